"""`outbox-relay replay`: rows published once more, by choice, in order, resumable."""

import collections
import json
import re
import subprocess
import time
import uuid

import pytest

from support.auditor import read_topics
from support.process import wait_for
from support.relay import binary, environment, on_a_terminal, run_command
from support.windows import query

REFUSED, USAGE, UNAVAILABLE, TAKEN = 65, 64, 69, 75
KEYS = 20
AT_ONCE = ["--rate", "1000000"]  # instead of the rate that it began with


@pytest.fixture
def settings(database, kafka):
    return {"DATABASE_URL": database.dsn,
            "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap,
            "OUTBOX_RELAY_PUBLISHER_LEASE": "2s"}


@pytest.fixture
def replay(settings):
    """replay(*arguments): runs it to its end, which must be good; returns what it printed."""
    def run(*arguments, **more):
        status, output, error = run_command(["replay", *arguments], {**settings, **more},
                                            timeout=120)
        assert status == 0, error
        return output

    return run


@pytest.fixture
def start(settings):
    """start(*arguments): in the background; ended with the test."""
    children = []

    def run(*arguments, **more):
        children.append(subprocess.Popen(
            [binary(), "replay", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, env=environment({**settings, **more})))
        return children[-1]

    yield run
    for child in children:
        child.kill()
        child.communicate()


@pytest.fixture
def other(kafka, topic):
    """Another topic with as many partitions."""
    yield kafka.create_topic(f"{topic}.again")
    kafka.delete_topic(f"{topic}.again")


def fill(database, topics, count, padding=0):
    """Rows in transactions of some each; key k<n> counts up in its payload, n is the order."""
    connection = database.connect()
    connection.cursor().execute(
        "INSERT INTO outbox.message (topic, key, payload, headers)"
        " SELECT (%s)[1 + n %% %s], 'k' || n %% %s,"
        " n || repeat('x', %s), jsonb_build_object('n', n)"
        " FROM generate_series(1, %s) n",
        (list(topics), len(topics), KEYS, padding, count))
    connection.close()


def rows_of(database, condition="true", *parameters):
    """{event id: (topic, key, payload)} in the order of ids."""
    connection = database.connect()
    cursor = connection.cursor()
    cursor.execute("SELECT event_id::text, topic, outbox.published_bytes(key, key_bytes),"
                   " outbox.published_bytes(payload, payload_bytes) FROM outbox.message"
                   f" WHERE {condition} ORDER BY id", parameters)
    found = {event: (topic, bytes(key) if key is not None else None,
                     bytes(payload) if payload is not None else None)
             for event, topic, key, payload in cursor.fetchall()}
    connection.close()
    return found


def header(record, name):
    return next((value.decode() for key, value in record.headers if key == name), None)


def replayed(kafka, topics, number=None):
    """Records of a replay, each checked for its headers."""
    records = [record for record in read_topics(kafka.bootstrap, topics)
               if header(record, "outbox-replay")]
    for record in records:
        assert header(record, "outbox-position") is None
    return [record for record in records
            if number in (None, int(header(record, "outbox-replay")))]


def events(records):
    return collections.Counter(header(record, "outbox-id") for record in records)


def check_key_order(records):
    """First occurrences of a key's records stand in the order of their rows, in one partition."""
    newest, places, seen = {}, {}, set()
    for record in records:
        n, event = int(record.payload.rstrip(b"x")), header(record, "outbox-id")
        if event in seen:
            continue
        seen.add(event)
        assert newest.get(record.key, 0) < n, f"{record.key} at {record.offset}"
        newest[record.key] = n
        assert places.setdefault((record.topic, record.key), record.partition) == record.partition


def id_of(database, n):
    """The id of the n-th row."""
    return database.execute("SELECT id FROM outbox.message ORDER BY id OFFSET %s LIMIT 1",
                            (n - 1,))[0][0]


def state(database, number=1):
    return database.execute(
        "SELECT state, done, total, last_id FROM outbox.replay WHERE id = %s", (number,))[0]


def number_in(output):
    return int(re.search(r"^replay (\d+):", output, re.MULTILINE)[1])


# --- what is sent ---------------------------------------------------------------------------------


def test_records_come_again_as_they_were_with_a_header_that_says_so(
        database, kafka, topic, make_relay, replay):
    fill(database, [topic], 300)
    database.execute("INSERT INTO outbox.message (topic, key, payload, headers, partition) VALUES"
                     " (%s, null, null, '[[\"a\", \"1\"], [\"a\", null]]', 4)", (topic,))
    assert make_relay(arguments=("run", "--drain")).wait() == 0
    first = {header(record, "outbox-id"): record
             for record in read_topics(kafka.bootstrap, [topic])}
    output = replay(f"topic={topic}", "--reason", "a consumer lost its table")
    assert "finished, 301 of 301 rows published" in output
    again = replayed(kafka, [topic])
    assert events(again) == dict.fromkeys(first, 1)
    for record in again:
        before = first[header(record, "outbox-id")]
        assert (record.partition, record.key, record.payload, record.timestamp) == (
            before.partition, before.key, before.payload, before.timestamp)
        assert record.headers == before.headers[:-1] + [("outbox-replay", b"1")]
    check_key_order([record for record in again if record.key])
    assert database.execute(
        "SELECT reason, asked_by, filter, target, state, done FROM outbox.replay") == [
            ("a consumer lost its table", "postgres", {"topic": topic}, None, "finished", 301)]


FILTERS = ["ids", "created", "topic", "key", "hex", "event-id", "state"]


@pytest.mark.parametrize("chosen", [[name] for name in FILTERS[:6]] + [None] * 6)
def test_a_filter_chooses_its_rows_and_no_others(
        database, kafka, topic, other, make_relay, replay, chance, chosen):
    """Where no name is given the seed chooses several."""
    chosen = chosen or chance.sample(FILTERS[:4] + FILTERS[6:], chance.randint(2, 5))
    fill(database, [topic, other], 200)
    if "state" in chosen:
        assert make_relay(arguments=("run", "--drain")).wait() == 0
        fill(database, [topic, other], 50)
    target = kafka.create_topic(f"{topic}.target")
    low, high = sorted(id_of(database, chance.randint(1, 200)) for _ in range(2))
    event = chance.choice(sorted(rows_of(database)))
    # rows of the past, so that the range is told apart by seconds
    database.execute("INSERT INTO outbox.message (topic, key, payload) VALUES (%s, 'k3', '900')",
                     (topic,))
    database.execute("UPDATE outbox.message SET created_at = created_at - interval '1 hour'"
                     " WHERE id %% 3 = 0 AND id > %s", (id_of(database, 3),))
    began, = database.execute("SELECT to_char(now() AT TIME ZONE 'UTC' - interval '30 min',"
                              " 'YYYY-MM-DD\"T\"HH24:MI:SS')")[0]
    terms = {
        "ids": (f"ids={low}..{high}", f"id BETWEEN {low} AND {high}"),
        "created": (f"created=..{began}", f"created_at < '{began}Z'"),
        "topic": (f"topic={topic}", f"topic = '{topic}'"),
        "key": ("key=k3", "key = 'k3'"),
        "hex": (r"key=\x6b33", "key = 'k3'"),
        "event-id": (f"event-id={event.upper()}", f"event_id = '{event}'"),
        "state": ("state=published", "id IN (SELECT id FROM outbox.message_state WHERE"
                  " state = 'published')"),
    }
    wanted = rows_of(database, " AND ".join(terms[name][1] for name in chosen))
    arguments = [terms[name][0] for name in chosen]
    if chosen == ["state"]:
        arguments += ["--all", "--yes", "--reason", "again"]
    if not wanted:
        status, _, error = run_command(["replay", *arguments, "--to", target],
                                       {"DATABASE_URL": database.dsn,
                                        "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap})
        assert status == REFUSED and "matches" in error
    else:
        replay(*arguments, "--to", target)
    records = replayed(kafka, [target])
    assert events(records) == dict.fromkeys(wanted, 1), chosen
    kafka.delete_topic(target)


def test_everything_goes_when_it_is_asked_for_and_only_what_was_committed(
        database, kafka, topic, other, replay):
    fill(database, [topic, other], 100)
    open_transaction = database.connect()
    open_transaction.autocommit = False
    open_transaction.cursor().execute(
        "INSERT INTO outbox.message (topic, key, payload) VALUES (%s, 'k1', '7')", (topic,))
    fill(database, [topic, other], 20)
    wanted = rows_of(database)
    replay("--all", "--yes", "--reason", "again")
    open_transaction.rollback()
    open_transaction.close()
    assert events(replayed(kafka, [topic, other])) == dict.fromkeys(wanted, 1)


def test_rows_that_commit_after_the_start_stay_out_also_after_a_resume(
        database, kafka, topic, replay, start):
    fill(database, [topic], 400)
    late = database.connect()
    late.autocommit = False
    # its id lies between those of the others
    late.cursor().execute("INSERT INTO outbox.message (topic, key, payload) VALUES"
                          " (%s, 'k1', '401')", (topic,))
    fill(database, [topic], 400)
    wanted = rows_of(database)
    child = start(f"topic={topic}", "--rate", "100")
    wait_for(lambda: len(replayed(kafka, [topic])) > 20, 30, "the first records")
    late.commit()
    late.close()
    child.terminate()
    output, error = child.communicate(timeout=30)
    assert child.returncode == UNAVAILABLE and "--resume 1" in error
    assert state(database)[0] == "stopped"
    assert "finished" in replay("--resume", "1", *AT_ONCE)
    # a signal lets what is under way come to its end: nothing is sent twice
    assert events(replayed(kafka, [topic])) == dict.fromkeys(wanted, 1)


def test_a_large_replay_goes_in_pages_through_little_memory(
        database, kafka, topic, replay, scale):
    count = scale(200_000)
    fill(database, [topic], count, padding=500)
    output = replay("--all", "--yes", "--reason", "again", OUTBOX_RELAY_PUBLISHER_MEMORY="1MiB",
                    OUTBOX_RELAY_PUBLISHER_MAX_IN_FLIGHT="500")
    assert f"{count} of {count} rows published" in output
    records = replayed(kafka, [topic])
    assert len(records) == count == len(events(records))
    check_key_order(records)


@pytest.mark.alone
def test_a_rate_is_kept_within_a_fifth(database, kafka, topic, replay):
    fill(database, [topic], 600)
    began = time.time() * 1000
    replay(f"topic={topic}", "--rate", "150", OUTBOX_RELAY_PUBLISHER_TIMESTAMP="publish")
    times = [record.timestamp[1] for record in replayed(kafka, [topic])]
    assert len(times) == 600 and min(times) >= began - 1
    seconds = (max(times) - min(times)) / 1000
    assert 0.8 * 150 <= 600 / seconds <= 1.2 * 150


def test_ids_whose_rows_are_gone_are_counted(database, kafka, topic, replay):
    fill(database, [topic], 50)
    first = id_of(database, 1)
    database.execute("DELETE FROM outbox.message WHERE id < %s", (first + 20,))
    output = replay(f"ids={first}..{first + 29}")
    assert f"20 ids of ids={first}..{first + 29} without a row" in output
    assert "10 of 10 rows published" in output


# --- going on -------------------------------------------------------------------------------------


def test_after_a_kill_it_goes_on_with_nothing_missing_and_little_repeated(
        database, kafka, topic, other, start, replay, chance, settings, scale):
    """The limit on what is repeated holds for each kill."""
    count, in_flight, kills = 6000, 50, scale(10, default=2)  # a slow machine notices late how many there are
    fill(database, [topic, other], count)
    wanted = rows_of(database)
    limit = {"OUTBOX_RELAY_PUBLISHER_MAX_IN_FLIGHT": in_flight}
    arguments = ["--all", "--yes", "--reason", "again"]
    for kill in range(kills):
        child = start(*arguments, "--rate", "300", **limit)
        before = len(replayed(kafka, [topic, other]))
        goal = before + chance.randint(100, 500)
        wait_for(lambda: len(replayed(kafka, [topic, other])) >= goal, 60, "some records")
        child.kill()
        child.wait()
        assert state(database)[:3:2] == ("running", count)
        arguments = ["--resume", "1"]
        wait_for(lambda: database.execute("SELECT lease_until < clock_timestamp()"
                                          " FROM outbox.replay") == [(True,)], 30, "the lease")
    assert "interrupted" in replay("--list")
    assert "finished" in replay(*arguments, *AT_ONCE, **limit)
    assert state(database) == ("finished", count, count, id_of(database, count))
    records = replayed(kafka, [topic, other])
    found = events(records)
    assert found.keys() == wanted.keys()
    assert sum(found.values()) - count <= kills * in_flight
    check_key_order(records)


def test_two_do_not_run_the_same_replay(database, kafka, topic, start, replay, settings):
    fill(database, [topic], 3000)  # more than come while the second one starts
    child = start("--all", "--yes", "--reason", "again", "--rate", "100")
    wait_for(lambda: database.execute("SELECT count(*) FROM outbox.replay") == [(1,)], 30,
             "the replay")
    status, output, error = run_command(["replay", "--resume", "1"], settings)
    assert (status, output) == (TAKEN, "")
    assert f":{child.pid};" in error and "replay 1 is run by" in error
    child.terminate()
    assert child.wait(timeout=60) == UNAVAILABLE
    assert "finished" in replay("--resume", "1", *AT_ONCE)
    assert max(events(replayed(kafka, [topic])).values()) == 1


def test_one_that_lost_its_replay_stops(database, kafka, topic, start):
    fill(database, [topic], 3000)
    child = start("--all", "--yes", "--reason", "again", "--rate", "100")
    wait_for(lambda: len(replayed(kafka, [topic])) > 10, 30, "the first records")
    database.execute("UPDATE outbox.replay SET nonce = nonce + 1")
    _, error = child.communicate(timeout=30)
    assert child.returncode == TAKEN
    assert "replay 1 was taken by another process" in error
    assert len(replayed(kafka, [topic])) < 3000


def test_several_replays_run_beside_each_other(database, kafka, topic, other, start):
    fill(database, [topic, other], 200)
    children = [start(f"topic={name}") for name in (topic, other)]
    for child in children:
        assert child.wait(timeout=60) == 0
    assert len(events(replayed(kafka, [topic]))) == 100
    assert len(events(replayed(kafka, [other]))) == 100


@pytest.mark.rotated("brokers")
def test_brokers_that_stand_still_are_waited_for_under_the_lease(
        database, kafka, topic, start, replay):
    fill(database, [topic], 2000)
    child = start("--all", "--yes", "--reason", "again", "--rate", "200")
    wait_for(lambda: database.execute("SELECT count(*) FROM outbox.replay WHERE done > 50")
             == [(1,)], 30, "the first note")
    kafka.pause()
    try:
        # twice the lease
        began, = database.execute("SELECT now()")[0]
        wait_for(lambda: database.execute(
            "SELECT noted_at > %s + interval '4 s' FROM outbox.replay", (began,)) == [(True,)],
            30, "notes meanwhile")
        assert state(database)[0] == "running" and state(database)[1] < 2000
    finally:
        kafka.resume()
    assert child.wait(timeout=60) == 0
    assert list(events(replayed(kafka, [topic])).values()) == [1] * 2000


def test_a_server_that_ends_its_connections_ends_it_and_a_resume_goes_on(
        database, kafka, topic, start, replay):
    fill(database, [topic], 3000)
    child = start("--all", "--yes", "--reason", "again", "--rate", "200")
    wait_for(lambda: len(replayed(kafka, [topic])) > 50, 30, "the first records")
    database.postgres.terminate_backends(database=database.name)
    _, error = child.communicate(timeout=30)
    assert child.returncode == UNAVAILABLE and "replay --resume 1` goes on" in error
    wait_for(lambda: database.execute("SELECT lease_until < clock_timestamp()"
                                      " FROM outbox.replay") == [(True,)], 30, "the lease")
    replay("--resume", "1", *AT_ONCE)
    assert len(events(replayed(kafka, [topic]))) == 3000


def test_a_refused_record_ends_it_by_name_and_a_resume_goes_on_behind_it(
        database, kafka, topic, replay, settings):
    fill(database, [topic], 100)
    database.execute("INSERT INTO outbox.message (topic, key, payload)"
                     " SELECT %s, 'k1', '101' || string_agg(md5(n::text), '')"
                     " FROM generate_series(1, 20000) n", (topic,))
    fill(database, [topic], 100)
    wanted = rows_of(database)
    kafka.alter_topic(topic, max_message_bytes=100_000)
    status, _, error = run_command(["replay", "--all", "--yes", "--reason", "again"], settings)
    assert status == REFUSED
    assert f"id {id_of(database, 101)} for topic {topic}: Kafka refuses the record" in error
    assert "--resume 1" in error
    guilty = list(wanted)[100]
    places = {header(record, "outbox-id"): record for record in replayed(kafka, [topic])}
    assert guilty not in places
    # nothing of its key passed it
    later = [event for event in list(wanted)[101:] if wanted[event][1] == b"k1"]
    assert later and not places.keys() & set(later)
    kafka.alter_topic(topic, max_message_bytes=1_000_000)
    replay("--resume", "1")
    assert events(replayed(kafka, [topic])).keys() == wanted.keys()


def test_an_id_is_passed_when_all_rows_that_share_it_are_acknowledged(
        database, kafka, topic, other, replay, settings):
    """One of two such rows is acknowledged when the replay ends, and the other one is refused."""
    fill(database, [topic], 100)
    database.execute("SELECT setval('outbox.message_id_seq', %s, false)", (id_of(database, 100),))
    database.execute("INSERT INTO outbox.message (topic, key, payload)"
                     " SELECT %s, 'k1', '101' || string_agg(md5(n::text), '')"
                     " FROM generate_series(1, 20000) n", (other,))
    wanted = rows_of(database)
    kafka.alter_topic(other, max_message_bytes=100_000)
    status, _, error = run_command(["replay", "--all", "--yes", "--reason", "again"], settings)
    assert status == REFUSED and f"for topic {other}: Kafka refuses the record" in error
    assert events(replayed(kafka, [topic, other])).total() == 100
    assert state(database) == ("stopped", 99, 101, id_of(database, 99))

    kafka.alter_topic(other, max_message_bytes=1_000_000)
    assert "finished, 101 of 101 rows published" in replay("--resume", "1")
    assert events(replayed(kafka, [topic, other])).keys() == wanted.keys()


def test_a_page_that_is_cut_separates_no_rows_that_share_an_id(database, kafka, topic, replay):
    """The rows of each id are larger than the memory and more than max_in_flight."""
    database.execute("INSERT INTO outbox.message (id, created_at, topic, key, payload)"
                     " OVERRIDING SYSTEM VALUE SELECT 1 + n / 100, clock_timestamp() + n * interval '1 us',"
                     " %s, 'k' || n, repeat('x', 100000) FROM generate_series(0, 599) n", (topic,))
    output = replay("--all", "--yes", "--reason", "again", OUTBOX_RELAY_PUBLISHER_MEMORY="1MiB",
                    OUTBOX_RELAY_PUBLISHER_MAX_IN_FLIGHT="50")
    assert "finished, 600 of 600 rows published" in output
    assert events(replayed(kafka, [topic])) == dict.fromkeys(rows_of(database), 1)


def test_the_auditor_finds_the_topic_clean_with_replayed_records_in_it(
        database, kafka, topic, make_relay, make_writers, settings, replay):
    relay = make_relay().wait_ready()
    with make_writers(connections=4):
        wait_for(lambda: database.execute("SELECT count(*) > 200 FROM outbox.message") == [(True,)],
                 60, "rows")
        replay("--all", "--yes", "--reason", "again")
    relay.stop()
    assert make_relay(arguments=("run", "--drain")).wait() == 0
    assert replayed(kafka, [topic])
    status, output, error = run_command(["verify", "--json"], settings)
    assert status == 0, error
    verdict = json.loads(output)
    assert verdict["clean"] and verdict["records_of_others"] > 200


# --- what changes nothing -------------------------------------------------------------------------


@pytest.mark.parametrize("rows", ["--all", "ids=1.."])
@pytest.mark.parametrize("answer, expected", [(b"no\n", REFUSED), (b"\x04", REFUSED),
                                              (b"yes\n", 0)])
def test_on_a_terminal_everything_has_to_be_confirmed(
        database, kafka, topic, settings, rows, answer, expected):
    fill(database, [topic], 30)
    status, shown = on_a_terminal(["replay", rows], settings, answer)
    assert status == expected
    assert "Publish 30 rows again?" in shown
    assert ("nothing was done" in shown) == (expected != 0)
    assert len(replayed(kafka, [topic])) == (0 if expected else 30)


def nothing_happened(database, kafka, topics):
    assert database.execute("SELECT count(*) FROM outbox.replay") == [(0,)]
    assert replayed(kafka, topics) == []


def test_a_dry_run_counts_and_changes_nothing(database, kafka, topic, other, replay):
    fill(database, [topic, other], 100)
    output = replay("--all", "--dry-run")
    assert f"50 rows of topic {topic} would go to {topic}" in output
    assert re.search(r"^100 rows, ids \d+ to \d+$", output, re.MULTILINE)
    output = replay(f"topic={topic}", "key=k2", "--to", other, "--dry-run")
    expected = len(rows_of(database, "topic = %s AND key = 'k2'", topic))
    assert f"{expected} rows of topic {topic} would go to {other}" in output
    nothing_happened(database, kafka, [topic, other])


BAD_INPUT = [
    ([], REFUSED, ["nothing says which rows", "--all"]),
    (["state=published"], REFUSED, ["nothing says which rows", "--all"]),
    (["--all"], REFUSED, ["--reason", "--yes"]),
    (["--all", "key=k1"], REFUSED, ["--all does not go with key=k1"]),
    (["orders"], REFUSED, ["'orders' chooses no rows", "topic=orders"]),
    (["colour=red"], REFUSED, ["'colour'", "event-id="]),
    (["key=k1", "key=k2"], REFUSED, ["key= is given twice"]),
    (["key="], REFUSED, ["key= names no key", r"key=\x"]),
    ([r"key=\x0"], REFUSED, [r"key=\x0 is not hexadecimal", "two digits"]),
    ([r"key=\xzz"], REFUSED, [r"key=\xzz is not hexadecimal"]),
    (["key=nobody"], REFUSED, ["no row in", "matches"]),
    (["topic=no-such-topic"], REFUSED, ["topic=no-such-topic", "no row in", "spelt"]),
    (["topic=a/b"], REFUSED, ["topic=a/b is no topic's name"]),
    (["ids=ten"], REFUSED, ["ids=ten is no range of ids", "ids=10..20"]),
    (["ids=.."], REFUSED, ["ids=.. is no range of ids"]),
    (["ids=0..5"], REFUSED, ["ids=0..5 is no range of ids"]),
    (["ids=20..10"], REFUSED, ["ids=20..10 is reversed"]),
    (["ids=99999999.."], REFUSED, ["no row in", "matches"]),
    (["created=yesterday.."], REFUSED, ["created: 'yesterday' is no moment", "2026-01-02"]),
    (["created=2026-01-02"], REFUSED, ["created=2026-01-02 is no range of moments"]),
    (["created=2020-02-30.."], REFUSED, ["'2020-02-30' is no moment"]),
    (["created=2020-01-02..2020-01-01"], REFUSED, ["reversed", "earlier moment comes first"]),
    (["created=2020-01-02..2020-01-02"], REFUSED, ["is empty"]),
    (["created=2999-01-01.."], REFUSED, ["2999-01-01 lies in the future", "leave the end"]),
    (["created=2020-01-01..2999-01-01"], REFUSED, ["2999-01-01 lies in the future"]),
    (["created=..2020-01-01"], REFUSED, ["no row in", "matches"]),
    (["event-id=8c1a"], REFUSED, ["event-id=8c1a is no uuid"]),
    ([f"event-id={uuid.UUID(int=1)}"], REFUSED, ["no row in", "matches"]),
    (["state=lost"], REFUSED, ["state=lost is not known", "state=published"]),
    (["key=k1", "--to", "no-such-topic"], REFUSED,
     ["topic no-such-topic does not exist in Kafka", "(`to`)"]),
    (["key=k1", "--to", "a b"], REFUSED, ["--to a b is no topic's name"]),
    (["key=k1", "--rate", "fast"], USAGE, ["--rate wants a number", "'fast'"]),
    (["key=k1", "--rate", "0"], USAGE, ["--rate wants a number", "'0'"]),
    (["--resume", "17"], REFUSED, ["there is no replay 17", "--list"]),
    (["--resume", "x"], USAGE, ["--resume wants a number"]),
    (["--resume", "1", "key=k1"], REFUSED, ["--resume does not go with 'key=k1'"]),
    (["--resume", "1", "--to", "t"], REFUSED, ["--resume does not go with --to"]),
    (["--resume", "1", "--list"], REFUSED, ["--list and --resume"]),
    (["key=k1", "--publisher", "other"], 78, ['[publisher "other"]']),
]


def test_bad_input_is_one_line_and_changes_nothing(database, kafka, topic, settings):
    """All of it on one database, which stays as it is."""
    fill(database, [topic], 40)
    for arguments, expected, words in BAD_INPUT:
        status, output, error = run_command(["replay", *arguments], settings)
        assert (status, output) == (expected, ""), f"{arguments}: {error}"
        assert error.startswith("outbox-relay: ") and len(error.splitlines()) == 1, error
        for word in words:
            assert word in error, f"{word!r} is missing: {error}"
    nothing_happened(database, kafka, [topic])


def test_a_topic_of_rows_that_kafka_does_not_have_is_named(database, kafka, topic, settings):
    fill(database, [topic], 10)
    database.execute("INSERT INTO outbox.message (topic, key, payload) VALUES ('lost', 'k', '1')")
    status, output, error = run_command(["replay", "--all", "--yes", "--reason", "again"], settings)
    assert (status, output) == (REFUSED, "") and "topic lost does not exist in Kafka" in error
    nothing_happened(database, kafka, [topic])


def test_a_target_with_too_few_partitions_is_refused(database, kafka, topic, settings):
    small = kafka.create_topic(f"{topic}.small", partitions=2)
    database.execute("INSERT INTO outbox.message (topic, key, payload, partition)"
                     " VALUES (%s, 'k', '1', 5)", (topic,))
    status, _, error = run_command(["replay", f"topic={topic}", "--to", small], settings)
    assert status == REFUSED and f"rows ask for partition 5, and topic {small} has 2" in error
    nothing_happened(database, kafka, [topic, small])
    kafka.delete_topic(small)


def test_a_finished_replay_is_not_gone_on_with(database, topic, replay, settings):
    fill(database, [topic], 10)
    number = number_in(replay("--all", "--yes", "--reason", "again"))
    status, output, error = run_command(["replay", "--resume", number], settings)
    assert (status, output) == (REFUSED, "") and f"replay {number} is finished" in error


def test_a_replay_of_another_cluster_is_not_gone_on_with(database, kafka, topic, replay, settings):
    fill(database, [topic], 10)
    replay("--all", "--yes", "--reason", "again")
    database.execute("UPDATE outbox.replay SET state = 'stopped', last_id = 0,"
                     " system_identifier = system_identifier + 1")
    status, output, error = run_command(["replay", "--resume", "1"], settings)
    assert (status, output) == (REFUSED, "") and "another database cluster" in error
    assert len(replayed(kafka, [topic])) == 10


def test_rows_older_than_the_retention_of_their_topic_are_warned_of(
        database, kafka, topic, settings):
    kafka.alter_topic(topic, retention_ms=3600_000)
    fill(database, [topic], 10)
    database.execute("UPDATE outbox.message SET created_at = created_at - interval '2 hours'")
    arguments = ["replay", "--all", "--dry-run"]
    status, _, error = run_command(arguments, settings)
    assert status == 0
    assert "event=replay_older_than_retention" in error and f"topic={topic}" in error
    status, _, error = run_command(
        arguments, {**settings, "OUTBOX_RELAY_PUBLISHER_TIMESTAMP": "publish"})
    assert (status, error) == (0, "")


@pytest.mark.rotated("brokers")
def test_kafka_that_does_not_answer_is_said_before_anything_is_done(database, topic, settings):
    fill(database, [topic], 10)
    status, output, error = run_command(
        ["replay", "--all", "--yes", "--reason", "again"],
        {**settings, "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1"})
    assert (status, output) == (UNAVAILABLE, "")
    assert "Kafka gives no answer within 10 s" in error
    assert database.execute("SELECT count(*) FROM outbox.replay") == [(0,)]


def test_the_list_shows_what_was_asked_for_by_whom_and_how_far_it_is(
        database, topic, other, replay):
    assert replay("--list") == "there was no replay\n"
    fill(database, [topic], 40)
    replay("key=k1", "--to", other, "--reason", "ticket 7")
    first, second, third = replay("--list").splitlines()
    assert re.fullmatch(rf"replay 1: finished, 2 of 2 published, id (\d+) of \1, to {other}", first)
    assert second == r'  filter {"key": "\\x6b31"}, publisher main'
    assert re.fullmatch(r"  asked by postgres at \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ: ticket 7", third)


# --- rights and plans -----------------------------------------------------------------------------


def test_the_relays_role_can_replay_and_cannot_forge_who_asked(
        database, kafka, postgres, topic, settings):
    fill(database, [topic], 20)
    role = f"operator_{uuid.uuid4().hex[:8]}"
    database.execute(f"CREATE ROLE {role} LOGIN IN ROLE outbox_relay")
    dsn = postgres.dsn(database.name, role)
    status, _, error = run_command(["replay", "--all", "--yes", "--reason", "again"],
                                   {**settings, "DATABASE_URL": dsn})
    assert status == 0, error
    assert database.execute("SELECT asked_by FROM outbox.replay") == [(role,)]
    assert database.execute(
        "SELECT has_column_privilege('outbox_relay', 'outbox.replay', 'asked_by',"
        " 'insert, update'),"
        " has_table_privilege('outbox_relay', 'outbox.replay', 'delete'),"
        " has_table_privilege('outbox_reader', 'outbox.replay', 'select'),"
        " has_table_privilege('outbox_writer', 'outbox.replay', 'select')") == [
            (False, False, True, False)]
    database.execute(f"DROP ROLE {role}")


def test_a_page_reads_the_index_on_id_between_its_bounds_only(database, topic):
    """Also with a filter by time, in front of which much was published, and without statistics."""
    fill(database, [topic], 50_000)
    database.execute("UPDATE outbox.message SET created_at = created_at - interval '1 hour'")
    fill(database, [topic], 300)
    low, = database.execute("SELECT max(id) - 299 FROM outbox.message")[0]
    began, = database.execute("SELECT to_char(now() AT TIME ZONE 'UTC' - interval '30 min',"
                              " 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')")[0]
    page = query("replay_page", replay=1, nonce=1, snapshot="1:1:", rows=100, from_id=low,
                 to_id=low + 299, from_at=began, to_at="infinity",
                 any_topic="t", topic="", any_key="t", key="", any_event="t",
                 event=str(uuid.UUID(int=0)), any_state="t", shards=1, acked="{}", windows="{}",
                 counted="{}")
    select = page[page.index("select m.id"):page.rindex(") to stdout")].replace(
        "'1:1:'::pg_snapshot", "pg_current_snapshot()")
    connection = database.connect()
    cursor = connection.cursor()
    cursor.execute("SET enable_seqscan = off; SET enable_bitmapscan = off")
    cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT json) {select}")
    plan = cursor.fetchone()[0][0]["Plan"]
    connection.close()
    assert plan["Actual Rows"] == 100
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 200


def test_pgbouncer_may_stand_between(database, kafka, pgbouncer, topic, replay):
    fill(database, [topic], 2000)
    replay("--all", "--yes", "--reason", "again", DATABASE_URL=pgbouncer.dsn(database.name))
    assert len(events(replayed(kafka, [topic]))) == 2000
    database.postgres.terminate_backends(database=database.name)
