"""`outbox-relay verify` beside writers and relays: what it finds, what it only counts, the range of
time, its memory, its answers."""

import datetime
import json
import subprocess
import sys
import uuid

import pytest
from confluent_kafka import Producer

from support.auditor import count_records, read_topics
from support.process import free_port
from support.relay import binary, environment, run_command

FOUND, USAGE, REFUSED, UNAVAILABLE, MISCONFIGURED = 1, 64, 65, 69, 78
KINDS = ("lost", "phantom", "altered", "out_of_order", "unequal", "duplicates")
MIB = 1 << 20


@pytest.fixture
def settings(database, kafka):
    return {"DATABASE_URL": database.dsn,
            "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap}


@pytest.fixture
def verify(settings):
    """verify(*arguments): (exit status, verdict); it must have said something."""
    def run(*arguments):
        status, output, error = run_command(["verify", "--json", *arguments], settings, timeout=300)
        assert status in (0, FOUND), error
        verdict = json.loads(output)
        assert verdict["clean"] == (status == 0)
        return status, verdict

    return run


@pytest.fixture
def drain(make_relay):
    """Publishes all that is committed."""
    def run(**more):
        assert make_relay(arguments=("run", "--drain"), **more).wait(120) == 0

    return run


def write(database, topic, count, created="clock_timestamp()", key="k%s"):
    """Rows of one transaction, by the owner, who may choose created_at."""
    database.execute(
        "insert into outbox.message (topic, key, payload, created_at) select %s,"
        " format(%s, n %% 10), '{\"n\": ' || n || '}',"
        f" {created} from generate_series(1, %s) n", (topic, key, count))


def header(record, name):
    return next((value.decode() for key, value in record.headers if key == name), None)


def produce(kafka, topic, key, payload, event, position, partition, timestamp=0):
    """What somebody who is not the relay writes with the relay's headers."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "acks": "all"})
    producer.produce(topic, payload, key, partition, timestamp=timestamp,
                     headers=[("outbox-id", event.encode()), ("outbox-position", position.encode())])
    assert producer.flush(30) == 0


def identity_of(database):
    """As in positions."""
    return database.execute("select left(identity::text, 8) from outbox.publisher where name = 'main'")[0][0]


def produce_row(database, kafka, topic, number, tick, partition=0):
    """The record of a row that no relay has published."""
    event, key, payload = database.execute(
        "select event_id::text, outbox.published_bytes(key, key_bytes), outbox.published_bytes(payload, payload_bytes) from outbox.message where id = %s", (number,))[0]
    produce(kafka, topic, bytes(key), bytes(payload), event,
            f"2:main:{identity_of(database)}:0:7:{tick}:{number}", partition)


def found(verdict):
    """{kind: number} of what is not zero."""
    return {kind: verdict[kind] for kind in KINDS if verdict[kind]}


# --- a live system --------------------------------------------------------------------------------


def test_all_is_well_while_writers_write_and_the_relay_publishes(
        database, topic, make_relay, make_writers, verify):
    relay = make_relay().wait_ready()
    with make_writers(connections=4, rate=200) as writers, writers.held_open():
        for number in range(1, 4):
            relay.wait_for(lambda: (relay.metric("relay_published_total") or 0)
                           > 200 * number, what=f"the first {200 * number} records")
            status, verdict = verify("--sequence", "seq", "--memory", "1")
            assert (status, found(verdict)) == (0, {}), verdict
            assert verdict["published"] > 200 * (number - 1)
            # a record can be there before the log says so
            assert verdict["acknowledged"] <= verdict["published"] <= verdict["committed"]
    relay.stop()
    assert make_relay(arguments=("run", "--drain")).wait() == 0
    status, verdict = verify("--sequence", "seq", "--no-duplicates")
    assert status == 0
    count = database.execute("select count(*) from outbox.message")[0][0]
    assert verdict["committed"] == verdict["published"] == verdict["acknowledged"] == count


def test_rows_that_nobody_has_published_yet_are_pending(database, topic, drain, verify):
    write(database, topic, 20)
    drain()
    write(database, topic, 7)
    status, verdict = verify()
    assert (status, found(verdict), verdict["pending"]) == (0, {}, 7)
    assert verdict["published"] == 20


def test_what_kafka_refuses_is_parked_and_what_an_operator_skips_is_skipped(
        database, kafka, topic, make_relay, settings, verify):
    kafka.alter_topic(topic, max_message_bytes=2000)
    relay = make_relay().wait_ready()
    write(database, topic, 10)
    database.execute("select outbox.publish(%s, 'large', string_agg(md5(random()::text), ''))"
                     " from generate_series(1, 300)", (topic,))
    write(database, topic, 3, key="large")
    relay.wait_for(lambda: database.execute("select count(*) from outbox.parked") == [(4,)],
                   what="the refused row and three behind it")
    relay.wait_for(lambda: count_records(kafka.bootstrap, [topic]) == 10, what="the others")
    status, verdict = verify()
    assert (status, found(verdict), verdict["parked"], verdict["published"]) == (0, {}, 4, 10)
    assert run_command(["parked", "skip", "--all", "--reason", "too large", "--yes"],
                       settings)[0] == 0
    relay.wait_for(lambda: database.execute("select count(*) from outbox.parked") == [(0,)],
                   what="the end of what was parked")
    status, verdict = verify()
    assert (status, found(verdict), verdict["skipped"], verdict["parked"]) == (0, {}, 4, 0)


def test_a_row_that_is_lost_between_many_that_are_skipped_is_found(
        database, kafka, topic, make_relay, settings, verify):
    kafka.alter_topic(topic, max_message_bytes=2000)
    relay = make_relay().wait_ready()
    for key in ("large", "gone"):
        database.execute("select outbox.publish(%s, %s, string_agg(md5(random()::text), ''))"
                         " from generate_series(1, 300)", (topic, key))
    write(database, topic, 101, key="large")
    parked = "select count(*) from outbox.parked"
    relay.wait_for(lambda: database.execute(parked) == [(103,)], what="what is parked")
    relay.stop()
    database.execute("delete from outbox.parked where key = 'gone'")
    relay.start().wait_ready()
    assert run_command(["parked", "skip", "--all", "--reason", "too large", "--yes"],
                       settings)[0] == 0
    relay.wait_for(lambda: database.execute(parked) == [(0,)], what="the end of what was parked")
    status, verdict = verify()
    assert (status, found(verdict), verdict["skipped"]) == (FOUND, {"lost": 1}, 102)


def test_rows_before_the_start_of_a_publisher_are_none_of_its_own(
        database, topic, make_relay, settings, verify):
    write(database, topic, 30)
    start = database.execute("select to_char(clock_timestamp() at time zone 'UTC',"
                             " 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')")[0][0]
    database.execute("select outbox.publisher_drop('main')")
    write(database, topic, 12)
    assert run_command(["publisher", "create", "main", "--start", start], settings)[0] == 0
    assert make_relay(arguments=("run", "--drain")).wait() == 0
    status, verdict = verify("--no-duplicates")
    assert status == 0
    assert (verdict["before_start"], verdict["published"], verdict["acknowledged"]) == (30, 12, 12)


# --- faults, made by hand -------------------------------------------------------------------------


def test_a_row_that_the_log_calls_published_and_that_is_in_no_topic_is_lost(
        database, topic, drain, verify):
    write(database, topic, 20)
    drain()
    database.execute("insert into outbox.message (txid, topic, key, payload)"
                     " select min(txid::text)::xid8, %s, 'k1', 'x' from outbox.message", (topic,))
    status, verdict = verify()
    assert (status, found(verdict)) == (FOUND, {"lost": 1})
    newest = database.execute("select max(id) from outbox.message")[0][0]
    assert verdict["samples"]["lost"] == [f"id {newest} for {topic}"]


def test_a_row_with_a_record_is_not_judged_with_a_missing_row_of_its_id(
        database, topic, drain, verify, settings, tmp_path):
    """The sequence of ids went back, so two rows have one id; the later row has no record."""
    bare = f"{topic}.bare"
    write(database, topic, 3)
    drain()
    database.execute("insert into outbox.message (id, txid, topic, key) overriding system value"
                     " select min(id), min(txid::text)::xid8, %s, 'k1' from outbox.message", (bare,))
    verdict = verify()[1]
    assert found(verdict) == {"lost": 1}
    assert verdict["samples"]["lost"] == [sample for sample in verdict["samples"]["lost"] if bare in sample]

    # records of the topic name no row, so the missing row is no finding, and nothing else is missing
    file = tmp_path / "relay.ini"
    file.write_text(f'[publisher]\nresume = none\n[topic "{bare}"]\nheaders = none\n')
    status, output, error = run_command(["--config", file, "verify", "--json"], settings)
    verdict = json.loads(output)
    assert (status, found(verdict)) == (0, {}), error
    assert verdict["not_judged"] == {**dict.fromkeys(verdict["not_judged"], 0), "rows_without_headers": 1}


def test_a_record_whose_row_was_deleted_and_one_that_never_had_a_row_are_phantoms(
        database, kafka, topic, drain, verify):
    write(database, topic, 20)
    drain()
    gone = database.execute("delete from outbox.message where id = (select min(id) + 5"
                            " from outbox.message) returning id")[0][0]
    own = identity_of(database)
    produce(kafka, topic, b"k1", b"x", str(uuid.uuid4()), f"2:main:{own}:0:7:900:900", 0)
    # what the publisher did not write is not looked at
    for position in (f"2:other:{own}:0:7:900:901", f"2:main:{own[::-1]}:0:7:900:902",
                     "1:main:0:7:900:903"):
        produce(kafka, topic, b"k1", b"x", str(uuid.uuid4()), position, 0)
    status, verdict = verify()
    assert (status, found(verdict)) == (FOUND, {"phantom": 2})
    assert sorted(sample.split()[1] for sample in verdict["samples"]["phantom"]) == \
        sorted([str(gone), "900"])
    assert verdict["records_of_others"] == 3


def test_a_key_whose_records_stand_in_the_wrong_order_is_found(database, kafka, topic, verify):
    write(database, topic, 30)
    by_key = database.execute("select id from outbox.message where key = 'k3' order by id")
    (first,), (second,), (third,) = by_key
    produce_row(database, kafka, topic, second, tick=1)
    produce_row(database, kafka, topic, first, tick=1)
    produce_row(database, kafka, topic, third, tick=1)
    status, verdict = verify()
    assert (status, found(verdict)) == (FOUND, {"out_of_order": 1})
    assert f"id {first}, key k3," in verdict["samples"]["out_of_order"][0]


def test_a_duplicate_is_allowed_unless_it_is_asked_for_or_differs(
        database, kafka, topic, drain, verify):
    write(database, topic, 20)
    drain()
    record = next(iter(read_topics(kafka.bootstrap, [topic])))
    event, position = header(record, "outbox-id"), header(record, "outbox-position")
    produce(kafka, topic, record.key, record.payload, event, position, record.partition)
    status, verdict = verify()
    assert (status, found(verdict)) == (0, {"duplicates": 1})
    assert verify("--no-duplicates")[0] == FOUND
    produce(kafka, topic, record.key, b"changed", event, position, record.partition)
    status, verdict = verify()
    assert (status, found(verdict)) == (FOUND, {"duplicates": 2, "altered": 1})


# --- a range of time ------------------------------------------------------------------------------


@pytest.fixture
def hours(database):
    """hours(n): the server's clock n hours ago, in RFC 3339."""
    start = database.execute("select clock_timestamp()")[0][0].astimezone(datetime.timezone.utc)

    def ago(number):
        return (start - datetime.timedelta(hours=number)).isoformat()

    return ago


@pytest.fixture
def three_hours(database, topic, hours, settings):
    """100 rows six hours ago, 100 four hours ago, 100 two hours ago; none of them published. Their
    day has its partition, whatever the hour is: a record without one is not judged."""
    status, _, error = run_command(
        ["partition", "make", "--table", "message", "--from", hours(6)[:len("2026-01-02")]],
        settings)
    assert status == 0, error
    for number in (6, 4, 2):
        write(database, topic, 100, f"timestamptz '{hours(number)}' + n * interval '1 ms'")


def test_a_range_leaves_out_the_faults_outside_of_it(
        database, kafka, topic, hours, three_hours, drain, verify):
    drain()
    first, last = database.execute("select min(id), max(id) from outbox.message")[0]
    database.execute("delete from outbox.message where id in (%s, %s)", (first, last))
    assert found(verify()[1]) == {"phantom": 2}
    for start, end, expected in ((7, 5, 1), (5, 3, 0), (3, 1, 1), (5, 1, 1)):
        status, verdict = verify("--from", hours(start), "--to", hours(end))
        assert found(verdict) == ({"phantom": expected} if expected else {}), (start, end)
        assert status == (FOUND if expected else 0)
    status, verdict = verify("--from", hours(5), "--to", hours(3))
    assert (verdict["committed"], verdict["published"]) == (100, 100)
    assert verdict["records"] == 100, "it read more of the topic than the range needs"
    assert verify("--to", hours(5))[1]["records"] == 100
    assert verify("--from", hours(3))[1]["committed"] == 99
    assert datetime.datetime.fromisoformat(verdict["from"].replace("Z", "+00:00")) == \
        datetime.datetime.fromisoformat(hours(5))


def test_the_end_of_a_range_is_not_part_of_it(database, topic, drain, verify):
    write(database, topic, 3)
    drain()
    moments = [row[0].astimezone(datetime.timezone.utc).isoformat() for row in database.execute(
        "select created_at from outbox.message order by id")]
    assert verify("--from", moments[1])[1]["committed"] == 2
    assert verify("--to", moments[1])[1]["committed"] == 1
    assert verify("--from", moments[0], "--to", moments[2])[1]["published"] == 2


def test_a_lost_row_is_found_in_its_range_only(
        database, topic, hours, three_hours, drain, verify):
    drain()
    database.execute("insert into outbox.message (txid, topic, key, created_at)"
                     " select min(txid::text)::xid8, %s, 'k1', %s from outbox.message",
                     (topic, hours(4)))
    assert found(verify("--from", hours(5), "--to", hours(3))[1]) == {"lost": 1}
    assert verify("--from", hours(3))[0] == verify("--to", hours(5))[0] == 0


def test_a_row_that_was_published_long_after_its_range_is_looked_for_behind_it(
        database, topic, hours, three_hours, drain, verify):
    drain()
    write(database, topic, 5, f"timestamptz '{hours(4)}'")
    drain()
    status, verdict = verify("--from", hours(5), "--to", hours(3), "--no-duplicates")
    assert (status, found(verdict), verdict["published"]) == (0, {}, 105)


def test_each_record_that_is_read_counts_once(database, topic, hours, three_hours, drain, verify):
    """1 MiB holds 32768 rows: there are two rounds, and each reads on behind the range."""
    write(database, topic, 40_000, f"timestamptz '{hours(4)}'")
    drain()
    write(database, topic, 5, f"timestamptz '{hours(4)}'")
    drain()
    verdict = verify("--from", hours(5), "--to", hours(3), "--memory", "1")[1]
    assert found(verdict) == {} and verdict["published"] == 40_105
    # the 100 records before the range are not read
    assert verdict["records"] == database.execute("select count(*) from outbox.message")[0][0] - 100


def test_with_the_time_of_publication_in_records_a_range_is_one_of_rows_all_the_same(
        database, topic, hours, three_hours, drain, verify, settings):
    settings["OUTBOX_RELAY_PUBLISHER_TIMESTAMP"] = "publish"
    drain(publisher_timestamp="publish")
    status, verdict = verify("--from", hours(5), "--to", hours(3), "--no-duplicates")
    assert (status, found(verdict), verdict["published"]) == (0, {}, 100)


# --- memory ---------------------------------------------------------------------------------------


# Starts the command from a small process: the peak of a child counts what it was before its exec.
MEASURED = ("import resource, subprocess, sys; status = subprocess.call(sys.argv[1:]);"
            " print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr);"
            " sys.exit(status)")


def peak_of(arguments, settings):
    """(exit status, stdout, peak of the resident memory in bytes)."""
    done = subprocess.run([sys.executable, "-c", MEASURED, binary(), *arguments], text=True,
                          capture_output=True, env=environment(settings), check=False)
    return done.returncode, done.stdout, int(done.stderr.splitlines()[-1]) * 1024


def test_memory_is_what_was_asked_for_and_64_mib_however_many_rows_there_are(
        database, topic, drain, settings, scale):
    """32 bytes each in the judge's form: 1 MiB holds a fifth of them, with --full a tenth."""
    rows = scale(300_000, default=150_000)
    write(database, topic, rows)
    drain()
    for mebibytes in (1, 4):
        status, output, peak = peak_of(
            ["verify", "--json", "--memory", str(mebibytes)], settings)
        verdict = json.loads(output)
        assert (status, verdict["published"]) == (0, rows), verdict
        assert peak < (mebibytes + 64) * MIB, f"{peak / MIB:.1f} MiB with --memory {mebibytes}"


# --- answers --------------------------------------------------------------------------------------


def test_the_json_object_has_these_members(database, topic, drain, verify, hours):
    write(database, topic, 3)
    drain()
    counts = {"committed", "acknowledged", "published", "pending", "parked", "scheduled", "skipped",
              "before_start", *KINDS, "records", "records_of_others"}
    for arguments in ((), ("--from", hours(1))):
        verdict = verify(*arguments)[1]
        assert set(verdict) == counts | {"publisher", "database", "from", "to", "clean", "not_judged",
                                         "topics", "missing_topics", "samples", "seconds"}
        assert all(isinstance(verdict[name], int) for name in counts)
        assert verdict["publisher"] == "main" and verdict["clean"] is True and verdict["to"] is None
        assert set(verdict["not_judged"]) == {"expired_rows", "rows_without_headers", "older_records",
                                              "newer_records", "sequences"}
        assert verdict["samples"] == {kind: [] for kind in KINDS}
        assert verdict["topics"] == [topic] and verdict["missing_topics"] == []
        assert isinstance(verdict["seconds"], float)
        assert (verdict["from"] is None) == (arguments == ())


def test_the_text_names_the_range_and_what_was_found(database, topic, drain, settings, hours):
    write(database, topic, 3)
    drain()
    database.execute("delete from outbox.message where id = (select min(id) from outbox.message)")
    status, output, error = run_command(["verify", "--from", hours(1)], settings)
    assert (status, error) == (FOUND, "")
    lines = output.splitlines()
    assert lines[0].startswith("publisher main: ") and lines[-1] == "NOT CLEAN"
    assert lines[1].startswith("  rows created from 20") and lines[1].endswith("Z")
    assert any(line.split() == ["phantom", "1"] for line in lines)


@pytest.mark.parametrize("arguments, status, words", [
    (["--from", "yesterday"], REFUSED, ["--from", "'yesterday' is no moment", "2026-01-02T03"]),
    (["--to", "2026-13-01T00:00:00Z"], REFUSED, ["--to", "'2026-13-01T00:00:00Z' is no moment"]),
    (["--from", "2026-01-02T03:04:05+0100"], REFUSED, ["is no moment", "+01:00"]),
    (["--from", ""], REFUSED, ["--from", "'' is no moment"]),
    (["--from", "2026-01-03", "--to", "2026-01-02"], REFUSED,
     ["--from 2026-01-03T00:00:00Z does not lie before --to 2026-01-02T00:00:00Z"]),
    (["--from", "2026-01-02", "--to", "2026-01-02T01:00:00+01:00"], REFUSED,
     ["does not lie before"]),
    (["--from"], USAGE, ["--from wants a value: TIME"]),
    (["--until", "2026-01-02"], USAGE, ["has no option '--until'"]),
    (["--memory", "0"], USAGE, ["--memory wants a number"]),
    (["--publisher", "none"], MISCONFIGURED, ["none"]),
])
def test_what_cannot_be_read_is_said_in_one_line(settings, arguments, status, words):
    found_status, output, error = run_command(["verify", *arguments], settings)
    assert (found_status, output, error.count("\n")) == (status, "", 1), error
    for word in words:
        assert word in error


def test_a_server_that_is_away_is_no_finding(database, topic, settings):
    write(database, topic, 1)
    away = f"127.0.0.1:{free_port()}"
    for name, value in (("OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS", away),
                        ("DATABASE_URL", f"host=127.0.0.1 port={free_port()} dbname=x")):
        status, output, error = run_command(["verify"], {**settings, name: value})
        assert (status, output) == (UNAVAILABLE, ""), error
        assert error.splitlines()[-1].startswith("outbox-relay: ")
