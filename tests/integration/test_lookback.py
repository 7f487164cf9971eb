"""The look-back on real servers: what an application sends to the look-back topic, what its business
answers, and what comes of it in the business topic and in the tables."""

import contextlib
import http.server
import json
import pathlib
import re
import threading
import time
import zlib

import psycopg2
import pytest
from confluent_kafka import Producer

from support.auditor import read_topics
from support.leader import ForgetfulLeader
from support.lookback import ASK, Case, base64_text, configuration, in_headers, message
from support.process import free_port, wait_for
from support.relay import run_command

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def case(database, kafka, make_relay, request):
    return Case(database, kafka, make_relay, f"lb{zlib.crc32(request.node.nodeid.encode())}")


def test_a_committed_message_reaches_its_topic_as_if_it_had_been_a_row(case):
    case.relay().wait_ready()
    case.application.send(
        case.application.prepared("1", key="k", payload={"id": "1", "n": 1.5}, headers={"a": "b"}),
        case.application.prepared("2"), case.application.prepared("3"))
    case.application.commit("1")
    case.application.rollback("2")
    wait_for(lambda: case.ids() == ["k"], 60, "the committed message")
    record, = case.records()
    assert record.payload == b'{"id": "1", "n": 1.5}'
    headers = dict(record.headers)
    assert headers["a"] == b"b" and "outbox-id" in headers and "outbox-position" in headers
    wait_for(lambda: case.decided() == {"1": "commit", "2": "rollback"}, 60, "both decisions")
    assert case.ids() == ["k"] and case.conflicts() == [] and case.records("dead") == []


def test_what_is_passed_on_is_as_it_was_written_and_as_a_row_would_have_it(case):
    """Numbers keep their digits, also those that no double holds."""
    case.relay().wait_ready()
    headers = '{"n": 1, "d": 1.10, "large": 9007199254740993, "e": 1e400, "\\u00e9": "\\u0041"}'
    body = ('{"version":1, "op":"prepare", "biz_type":"order", "biz_id":"1", "topic":"%s", "key":"k", '
            '"h\\u0065aders": %s, "pay\\u006coad": {"n": [1.10, 1e400,  12345678901234567890123]}}'
            % (case.topics["orders"], headers))
    case.application.send((b"order:1", body.encode(), []))
    case.database.execute("SELECT outbox.publish(%s, 'row', '{}'::text, %s::json)",
                          (case.topics["orders"], headers))
    case.application.commit("1")
    wait_for(lambda: case.ids() == ["k", "row"], 60, "the message and the row")
    found = {record.key: record for record in case.records()}
    assert found[b"k"].payload == b'{"n": [1.10, 1e400,  12345678901234567890123]}'
    said = {key: [(name, value) for name, value in record.headers if not name.startswith("outbox-")]
            for key, record in found.items()}
    assert said[b"k"] == said[b"row"]
    assert {"n": b"1", "d": b"1.10", "large": b"9007199254740993", "é": b"A"}.items() <= dict(
        said[b"k"]).items()
    assert case.records("dead") == []


def test_a_lower_limit_does_not_stop_what_was_prepared_before(case):
    relay = case.relay().wait_ready()
    case.application.send(case.application.prepared("1", payload="x" * 1000))
    case.read_up(relay, 1)
    case.database.execute("select outbox.set_max_message_bytes(100)")
    case.application.commit("1")
    wait_for(lambda: case.ids() == ["1"], 60, "the committed message")
    assert case.records("dead") == [] and case.decided() == {"1": "commit"}


def test_the_header_form_carries_bytes_as_they_are(case):
    case.relay().wait_ready()
    value = bytes(range(256)) * 3
    case.application.send(
        in_headers("prepare", "order", "é", value, [("x", b"\xff"), ("y", b"text"), ("z", None)],
                   topic=case.topics["orders"], key="k"),
        message("prepare", "order", "2", topic=case.topics["orders"], key="k2",
                payload_base64=base64_text(value)),
        in_headers("commit", "order", "é"), in_headers("commit", "order", "2"))
    wait_for(lambda: len(case.records()) == 2, 60, "both messages")
    first, second = sorted(case.records(), key=lambda record: record.key, reverse=True)
    assert (first.key, first.payload, second.key, second.payload) == (b"k2", value, b"k", value)
    assert {("x", b"\xff"), ("y", b"text"), ("z", None)} <= set(second.headers)


def test_through_pgbouncer_in_transaction_mode(case, pgbouncer):
    """Batch after batch; nothing is left in a session that others get next."""
    relay = case.relay(pgbouncer.dsn(case.database.name)).wait_ready()
    for batch in range(3):
        case.application.prepare(str(batch))
        case.application.commit(str(batch))
        relay.wait_for(lambda: len(case.records()) == batch + 1, what="the message")
    assert pgbouncer.prepared_statements(case.database.name) == set()


def test_commit_before_prepare(case):
    case.relay().wait_ready()
    case.application.commit("1")
    wait_for(lambda: case.database.execute(
        "SELECT count(*) FROM outbox.lookback WHERE kind = 'tombstone'")[0][0] == 1, 60, "a tombstone")
    case.application.prepare("1")
    wait_for(lambda: case.ids() == ["1"], 60, "its message")
    case.application.send(case.application.decided("2", "commit"), case.application.prepared("2"))
    wait_for(lambda: case.ids() == ["1", "2"], 60, "one whose both records came in a batch")
    assert case.conflicts() == []


def test_a_commit_without_its_prepare_is_a_figure(case):
    relay = case.relay().wait_ready()
    case.application.commit("lost", "late")
    case.application.prepare("late")
    case.read_up(relay, 3)
    relay.stop()
    case.database.execute("UPDATE outbox.lookback SET prepared_at = prepared_at - interval '2 minutes' "
                          "WHERE kind = 'tombstone'")
    relay = case.relay()
    relay.wait_for(lambda: relay.metric("relay_lookback_unprepared", section="shop", type="order") == 1,
                   what="the one whose prepare never came")


def test_rollback_before_prepare(case):
    relay = case.relay().wait_ready()
    case.application.rollback("1")
    case.application.prepare("1", "2")
    case.application.commit("2")
    wait_for(lambda: case.ids() == ["2"], 60, "the other message")
    case.read_up(relay, 4)
    assert case.ids() == ["2"] and case.decided() == {"1": "rollback", "2": "commit"}


def test_duplicate_prepare(case):
    """The same body is counted, another one is a conflict and changes nothing."""
    relay = case.relay().wait_ready()
    case.application.prepare("1", payload=1)
    case.application.prepare("1", payload=1)
    case.application.prepare("1", payload=2)
    case.application.commit("1")
    wait_for(lambda: case.ids() == ["1"], 60, "its message")
    assert case.records()[0].payload == b"1"
    case.application.prepare("1", payload=1)
    relay.wait_for(lambda: relay.metric("relay_lookback_records_total", kind="duplicate") == 2,
                   what="the second duplicate")
    assert case.conflicts() == [("1", "prepare", "prepare", "message")]
    assert case.ids() == ["1"]


def test_duplicate_commit(case):
    relay = case.relay().wait_ready()
    case.application.prepare("1")
    for _ in range(3):
        case.application.commit("1")
    case.application.send(*[case.application.decided("1", "commit")] * 3)
    case.read_up(relay, 7)
    wait_for(lambda: case.ids() == ["1"], 60, "its message")
    assert case.conflicts() == []


def test_commit_and_rollback_both(case):
    relay = case.relay().wait_ready()
    case.application.prepare("1", "2")
    case.application.send(case.application.decided("1", "commit"),
                          case.application.decided("1", "rollback"))
    case.application.rollback("2")
    case.application.commit("2")
    case.read_up(relay, 6)
    wait_for(lambda: case.ids() == ["1"], 60, "the one that was committed first")
    assert case.conflicts() == [("1", "commit", "rollback", "message"),
                                ("2", "rollback", "commit", "message")]
    relay.wait_for(lambda: relay.metric("relay_lookback_conflicts", type="order") == 2, what="their number")


REFUSED = [
    ("not_json", b"{", "order:1", None),
    ("not JSON at all: NUL", b"\0", "order:1", None),
    ("invalid UTF-8", b'{"version":1,"op":"commit","biz_type":"order","biz_id":"\xff"}', "order:1", None),
    ("deep nesting", b"[" * 5000 + b"]" * 5000, "order:1", None),
    ("an empty value", b"", "order:1", None),
    ("a tombstone of Kafka", None, "order:1", None),
    ("a wrong type", b'{"version":1,"op":"commit","biz_type":"order","biz_id":1}', "order:1", None),
    ("a missing field", b'{"version":1,"op":"commit","biz_type":"order"}', "order:1", None),
    ("another version", b'{"version":2,"op":"commit","biz_type":"order","biz_id":"1"}', "order:1", None),
    ("a key that does not agree", b'{"version":1,"op":"commit","biz_type":"order","biz_id":"1"}',
     "order:2", None),
    ("a null key", b'{"version":1,"op":"commit","biz_type":"order","biz_id":"1"}', None, None),
    ("a type of no section", b'{"version":1,"op":"commit","biz_type":"other","biz_id":"1"}',
     "other:1", "unknown_type"),
    ("a topic of no name", b'{"version":1,"op":"prepare","biz_type":"order","biz_id":"1","topic":"?","payload":1}',
     "order:1", None),
    ("an unknown service", b'{"version":1,"op":"prepare","biz_type":"order","biz_id":"1","topic":"t",'
     b'"payload":1,"check_service":"nobody"}', "order:1", "unknown_service"),
    ("a URL that is not allowed", b'{"version":1,"op":"prepare","biz_type":"order","biz_id":"1",'
     b'"topic":"t","payload":1,"check_url":"http://169.254.169.254/"}', "order:1", "url_not_allowed"),
    ("a topic that is not the section's", b'{"version":1,"op":"prepare","biz_type":"order",'
     b'"biz_id":"1","topic":"elsewhere","payload":1}', "order:1", "topic_not_allowed"),
]


def test_what_cannot_be_taken_is_dead_lettered_with_its_reason_and_nothing_else_waits(case):
    """10 MB are below what Kafka takes here only when the topic allows it; 700 kB are enough."""
    case.settings["topics"] = f"t, {case.topics['orders']}"
    relay = case.relay().wait_ready()
    big = b'{"version":1,"op":"commit","biz_type":"order","biz_id":"' + b"x" * 700_000 + b'"}'
    rows = [*REFUSED, ("huge", big, "order:x", None)]
    places = case.application.send(*[
        (key.encode() if key else None, value, [("h", b"1")]) for _, value, key, _ in rows],
        partition=0)
    case.application.prepare("after")
    case.application.commit("after")
    wait_for(lambda: case.ids() == ["after"], 60, "what came behind them")
    relay.wait_for(lambda: len(case.records("dead")) == len(rows), what="all dead letters")
    letters = {}
    for record in case.records("dead"):
        headers = dict(record.headers)
        letters[int(headers["dead-letter-partition"]), int(headers["dead-letter-offset"])] = (
            record, headers)
    for (what, value, key, reason), place in zip(rows, places):
        record, headers = letters[place]
        assert record.payload == value, what
        assert record.key == (key.encode() if key else None), what
        assert headers["h"] == b"1" and headers["dead-letter-topic"].decode() == case.topics["said"]
        assert headers["dead-letter-error"], what
        if reason:
            assert headers["dead-letter-reason"].decode() == reason, what
    assert case.database.execute("SELECT count(*) FROM outbox.lookback WHERE biz_id <> 'after'") == [(0,)]


def test_what_the_table_does_not_store_is_found_among_others_and_dead_lettered(case):
    """A payload larger than the table takes fails the whole batch; the others of it still come."""
    case.database.execute("SELECT outbox.set_max_message_bytes(1000)")
    relay = case.relay().wait_ready()
    ids = [str(number) for number in range(60)]
    case.application.send(*[case.application.prepared(
        id, payload="x" * (5000 if id in ("7", "31") else 10)) for id in ids],
        *[case.application.decided(id, "commit") for id in ids])
    wait_for(lambda: case.ids() == sorted(set(ids) - {"7", "31"}), 120, "all others")
    relay.wait_for(lambda: len(case.records("dead")) == 14, what="the two, each in 7 parts")
    assert {dict(record.headers)["dead-letter-reason"] for record in case.records("dead")} == {
        b"not_storable"}
    assert [dict(record.headers)["dead-letter-left-out"] for record in case.records("dead")
            if dict(record.headers)["dead-letter-part"] == b"1/7"] == [b"payload"] * 2


def test_it_is_found_while_other_partitions_have_something_due(case):
    case.database.execute("SELECT outbox.set_max_message_bytes(1000)")
    for partition in range(3):
        case.application.send(
            case.application.prepared(f"{partition}-large", payload="x" * 5000),
            case.application.prepared(f"{partition}"), partition=partition)
    relay = case.relay(check_after="10ms")
    relay.wait_for(lambda: len(case.records("dead")) == 21, what="all that is too large, each in 7 parts")
    relay.wait_for(lambda: case.overdue() == ["0", "1", "2"], what="all others to be overdue")


def test_one_of_several_sections_answers_for_what_nobody_owns(case):
    case.settings["default"] = "yes"
    other = case.kafka.create_topic(f"{case.name}_dead2", 1)
    path = configuration(
        ("check \"shop\"", ASK), ("lookback \"shop\"", case.settings),
        ("lookback \"back\"", {"topic": case.topics["said"], "group": f"{case.name}b",
                               "types": "return", "dead_letter": other, "check": "shop"}))
    relay = case.make_relay(arguments=("run", "--config", path)).wait_ready()
    case.application.prepare("1")
    case.application.send(message("prepare", "return", "1", topic=case.topics["orders"], key="r",
                                  payload=1),
                          message("commit", "return", "1"), message("commit", "nobody", "1"),
                          (b"?", b"?", []))
    case.application.commit("1")
    wait_for(lambda: case.ids() == ["1", "r"], 60, "the messages of both sections")
    relay.wait_for(lambda: len(case.records("dead")) == 2, what="the dead letters")
    relay.wait_for(lambda: case.database.execute(
        "SELECT section, sum(next_offset)::int FROM (SELECT section, partition, max(next_offset) AS "
        "next_offset FROM outbox.lookback_log GROUP BY 1, 2) l GROUP BY 1 ORDER BY 1") == [
            ("back", 6), ("shop", 6)], what="both sections at the end of the topic")
    assert list(read_topics(case.kafka.bootstrap, [other])) == []


def test_records_of_another_section_use_no_memory_of_a_reader(case):
    """They are many times `memory`, and no record of the section is among them."""
    case.settings["memory"] = "1MiB"
    path = configuration(
        ("check \"shop\"", ASK), ("lookback \"shop\"", {**case.settings, "default": "yes"}),
        ("lookback \"back\"", {**case.settings, "group": f"{case.name}b", "types": "return", "memory": "64MiB"}))
    case.application.send(*[message("prepare", "return", str(id), topic=case.topics["orders"],
                                    payload="x" * 900_000) for id in range(24)], partition=0)
    case.application.send(case.application.prepared("1"), partition=0)
    relay = case.make_relay(arguments=("run", "--config", path))
    relay.wait_event("lookback_assigned", section="shop")
    begun = time.monotonic()
    wait_for(lambda: case.database.execute(
        "SELECT count(*) FROM outbox.lookback WHERE section = 'shop'") == [(1,)], 60, "the prepare of the section")
    assert time.monotonic() - begun < 6  # 2 foreign records a second would take 12


def test_an_idle_partition_with_one_overdue_prepare_is_looked_back_all_the_same(case):
    relay = case.relay(check_after="500ms").wait_ready()
    case.application.prepare("1")
    relay.wait_for(lambda: case.overdue() == ["1"], what="the prepare to be overdue")
    case.application.prepare("2", check_after="1h")
    case.application.commit("1")
    relay.wait_for(lambda: case.overdue() == [], what="the decision")
    relay.wait_for(lambda: relay.metric("relay_lookback_promoted_total") == 1, what="the metric")


def test_a_partition_that_lags_is_not_looked_back(case):
    """Its decision is written and not read yet: what looks overdue is not."""
    first = case.relay(check_after="1s")
    first.wait_ready()
    case.application.prepare("1")
    case.read_up(first, 1)
    first.stop()
    case.application.commit("1")
    time.sleep(1.5)  # past the check_after, without a reader: there is nothing to wait for
    second = case.relay(check_after="1s")
    wait_for(lambda: case.ids() == ["1"], 90, "the decision that was written")
    assert second.metric("relay_lookback_promoted_total") in (0, None)
    assert case.overdue() == []


def test_a_partition_that_the_leader_of_the_group_forgot_gets_an_owner(case):
    with ForgetfulLeader(case.kafka.bootstrap, case.name, case.topics["said"]) as leader:
        relay = case.relay().wait_ready()
        leader.wait_forgotten_and_healed(3)
    relay.wait_event("group_partitions_unowned", topic=case.topics["said"], partition="2")
    wait_for(lambda: relay.metric("relay_lookback_partitions") == 3, 60, "all partitions")


def test_two_relays_share_the_partitions_and_each_id_has_one_effect(case):
    first = case.relay().wait_ready()
    second = case.relay().wait_ready()
    wait_for(lambda: first.metric("relay_lookback_partitions") in (1, 2)
             and second.metric("relay_lookback_partitions") in (1, 2), 120, "a shared topic")
    ids = [f"{number:03}" for number in range(300)]
    case.application.prepare(*ids[:150])
    case.application.send(*[case.application.decided(id, "commit") for id in ids[:100]],
                          *[case.application.prepared(id) for id in ids[150:]])
    first.stop()
    case.application.commit(*ids[100:])
    wait_for(lambda: case.ids() == ids, 120, "each message once")
    assert case.conflicts() == [] and case.decided() == {id: "commit" for id in ids}


def test_a_reader_goes_on_where_the_database_says_and_not_where_kafka_does(case):
    relay = case.relay().wait_ready()
    case.application.prepare("1")
    case.application.commit("1")
    wait_for(lambda: case.ids() == ["1"], 60, "its message")
    relay.stop()
    case.application.prepare("2")
    case.settings["group"] += "_another"
    case.relay().wait_ready()
    case.application.commit("2", "1")
    wait_for(lambda: case.ids() == ["1", "2"], 60, "the second message")
    assert case.conflicts() == [] and case.records("dead") == []


def recipe(heading, **places):
    """The SQL below a heading of docs/guide/lookback-operate.md, with other values in the places of its own."""
    page = (ROOT / "docs/guide/lookback-operate.md").read_text("utf-8")
    statement = re.search(rf"^## {heading}\n.*?```sql\n(.*?)```", page, re.DOTALL | re.MULTILINE)[1]
    for name, (old, new) in places.items():
        assert old in statement, name
        statement = statement.replace(old, new)
    return statement


def test_an_offset_that_is_not_there_stops_its_partition_and_no_other_until_an_operator_moves_it(
        case, login):
    relay = case.relay(check_after="300ms").wait_ready()
    for partition in range(3):
        case.application.send(case.application.prepared(f"{partition}-first"),
                              case.application.decided(f"{partition}-first", "commit"),
                              partition=partition)
    case.read_up(relay, 6)
    relay.stop()
    case.database.execute("UPDATE outbox.lookback_log SET next_offset = 1000 WHERE partition = 0")
    relay = case.relay(check_after="300ms")
    for partition in range(3):
        case.application.send(case.application.prepared(f"{partition}-late"),
                              case.application.prepared(f"{partition}-second", check_after="1h"),
                              case.application.decided(f"{partition}-second", "commit"),
                              partition=partition)
    wait_for(lambda: {"1-second", "2-second"} <= set(case.ids()), 90, "those of the other partitions")
    relay.wait_for(lambda: case.overdue() == ["1-late", "2-late"], what="their overdue ones")
    relay.wait_for(lambda: relay.readiness_says(503, "_AUTO_OFFSET_RESET"), what="it to be told")
    assert "0-second" not in case.ids()
    statement = recipe("A partition of the look-back topic whose offset is gone",
                       topic=("'look_back_msg'", f"'{case.topics['said']}'"), offset=(" 17,", " 2,"))
    with contextlib.closing(psycopg2.connect(login("outbox_relay")["DATABASE_URL"])) as operator:
        operator.cursor().execute(statement)
        operator.commit()
    wait_for(lambda: "0-second" in case.ids(), 90, "the partition to go on")
    relay.wait_ready()
    assert case.database.execute("SELECT verb, target FROM outbox.audit") == [("lookback offset", {
        "section": "shop", "topic": case.topics["said"], "partition": 0, "next_offset": 2, "was": 1000})]


def test_marks_of_transactions_behind_the_last_record_are_passed(case):
    """Kafka deletes them with what came before, and an offset that stood there would be lost."""
    case.relay().wait_ready()
    producer = Producer({"bootstrap.servers": case.kafka.bootstrap, "transactional.id": case.name})
    producer.init_transactions(60)
    for id, ends in (("1", producer.commit_transaction), ("2", producer.abort_transaction)):
        producer.begin_transaction()
        key, value, _ = case.application.prepared(id)
        producer.produce(case.topics["said"], key=key, value=value, partition=0)
        assert producer.flush(60) == 0
        ends(60)
    wait_for(lambda: case.database.execute(
        "SELECT max(next_offset) FROM outbox.lookback_log WHERE partition = 0") == [(4,)], 60,
        "the end of the partition to be stored")
    assert case.database.execute("SELECT biz_id FROM outbox.lookback") == [("1",)]


REFUSE = """
CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'refused for a test' USING errcode = '{code}'; END $$;
CREATE TRIGGER refuse BEFORE INSERT ON outbox.lookback_log EXECUTE FUNCTION public.refuse()"""
REFUSE_NO_MORE = "DROP FUNCTION public.refuse() CASCADE"


def test_a_reader_that_cannot_store_is_not_ready_until_it_can(case):
    relay = case.relay().wait_ready()
    case.database.execute(REFUSE.format(code="53100"))
    case.application.prepare("1")
    relay.wait_for(lambda: relay.metric("relay_lookback_batches_total", outcome="failed") >= 4,
                   what="several tries")
    assert relay.readiness_says(503, "refused for a test")
    assert len(relay.events("lookback_reader_waits")) == 1
    assert relay.events("lookback_reader_goes_on") == []
    case.database.execute(REFUSE_NO_MORE)
    relay.wait_ready()
    case.read_up(relay, 1)


def test_a_batch_that_is_too_much_for_the_server_is_tried_in_parts(case):
    case.database.execute("""
        CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN IF (SELECT count(*) FROM fresh) > 5 THEN
            RAISE EXCEPTION 'so many' USING errcode = '57014'; END IF; RETURN NULL; END $$;
        CREATE TRIGGER refuse AFTER INSERT ON outbox.lookback REFERENCING NEW TABLE AS fresh
            FOR EACH STATEMENT EXECUTE FUNCTION public.refuse()""")
    case.application.prepare(*map(str, range(12)))
    case.read_up(case.relay(), 12)


def test_a_server_that_cannot_be_written_is_left_for_another_connection(case):
    """As a standby that several hosts in the dsn led to: an open session stays read-only for ever."""
    read_only = f"ALTER DATABASE {case.database.name} SET default_transaction_read_only = "
    relay = case.relay().wait_ready()
    case.database.postgres.execute(read_only + "on")
    case.database.postgres.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s "
        "AND application_name = 'outbox-relay look-back'", (case.database.name,))
    case.application.prepare("1")
    relay.wait_for(lambda: relay.readiness_says(503, "reader of look-back shop", "25006"),
                   what="a refused insert")
    case.database.postgres.execute(read_only + "off")
    case.read_up(relay, 1)
    relay.wait_ready()


def test_the_database_is_away_for_a_while(case, postgres):
    relay = case.relay().wait_ready()
    case.application.prepare("1")
    case.read_up(relay, 1)
    postgres.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s "
        "AND application_name = 'outbox-relay look-back'", (case.database.name,))
    case.application.commit("1")
    wait_for(lambda: case.ids() == ["1"], 60, "its message")
    assert json.loads(case.records()[0].payload) == {"id": "1"}


# --- the business is asked ------------------------------------------------------------------------

class Business:
    """Answers over HTTP as it is told: answers[biz_id] is a word, a (status, body), or a function."""

    def __init__(self):
        business = self
        self.asked, self.answers, self.lock = [], {}, threading.Lock()

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with business.lock:
                    business.asked.append(question)
                answer = business.answers.get(question["biz_id"], "unknown")
                status, body = answer if isinstance(answer, tuple) else (200, json.dumps(
                    {"biz_id": question["biz_id"], "decision": answer}))
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}/lookback"

    def times(self, biz_id):
        with self.lock:
            return sum(question["biz_id"] == biz_id for question in self.asked)

    def close(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def business(case):
    server = Business()
    case.check = {"url": server.url, "networks": "127.0.0.1", "retry_first": "100ms",
                  "retry_max": "300ms", "pending_every": "200ms"}
    case.settings["check_after"] = "300ms"
    yield server
    server.close()


def test_whoever_does_not_decide_is_asked_until_the_answer_is_clear(case, business):
    business.answers = {"1": "commit", "2": "rollback", "3": "pending", "5": (500, "commit"),
                        "6": (404, ""), "7": (200, "Object reference not set to an instance")}
    relay = case.relay().wait_ready()
    case.application.prepare("1", "2", "3", "4", "5", "6", "7")
    wait_for(lambda: case.decided() == {"1": "commit", "2": "rollback"}, 60, "the clear answers")
    wait_for(lambda: all(business.times(id) >= 3 for id in "34567"), 60, "the others, several times")
    assert case.decided() == {"1": "commit", "2": "rollback"} and case.ids() == ["1"]
    business.answers.update({"3": "commit", "4": "commit", "5": "rollback", "6": "commit",
                             "7": "rollback"})
    relay.wait_for(lambda: len(case.decided()) == 7, what="all answers")
    wait_for(lambda: case.ids() == ["1", "3", "4", "6"], 60, "their messages")
    assert case.overdue() == [] and case.conflicts() == []
    relay.wait_for(lambda: relay.metric("relay_lookback_decisions_total", source="check") == 7, what="the metric")
    status, output, error = run_command(["status", "--config", relay.arguments[-1]], relay.settings)
    assert status == 0, error
    assert '  relay_lookback_decisions_total{section="shop",source="check"} 7\n' in output
    assert '  relay_lookback_checks_total{section="shop",service="shop",result="commit"} 4\n' in output
    assert f'  relay_lookback_breaker{{section="shop",host="127.0.0.1:{business.port}"}} 0\n' in output


@pytest.mark.parametrize("transport,bytes_of_one", [("http", 70), ("grpc", 42)])
def test_a_batch_that_cannot_fit_max_answer_is_refused(tmp_path, transport, bytes_of_one):
    def status_of(max_answer):
        path = tmp_path / "relay.ini"
        path.write_text('[check "shop"]\nurl = http://127.0.0.1:9/\nnetworks = 127.0.0.1\nbatch = 100\n'
                        f"transport = {transport}\nmax_answer = {max_answer}B\n")
        return run_command(["check-config", "--config", path], {
            "DATABASE_URL": "host=127.0.0.1", "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1"})

    needed = 100 * bytes_of_one
    assert status_of(needed)[0] == 0
    status, _, error = status_of(needed - 1)
    assert status == 78 and f"batch: the answer about 100 ids has at least {needed} bytes" in error


def test_the_last_error_of_a_host_is_in_the_breakers_event_and_the_readiness(case):
    host = f"127.0.0.1:{free_port()}"
    case.check = {"url": f"http://{host}/", "networks": "127.0.0.1",
                  "breaker_failures": 1, "retry_first": "50ms"}
    case.settings["check_after"] = "200ms"
    relay = case.relay().wait_ready()
    case.application.prepare("1")
    opened = relay.wait_event("lookback_breaker_opened", host=host)[0]
    assert opened["error"].startswith(f"http://{host}: ") and "connect" in opened["error"]
    relay.wait_for(lambda: relay.readiness_says(200, f"1 host not called; {host}: {opened['error']}"))


def test_commit_after_the_look_back_answered_rollback(case, business):
    """It is a conflict, and nothing that was decided is turned round."""
    business.answers = {"1": "rollback", "2": "commit"}
    relay = case.relay().wait_ready()
    case.application.prepare("1", "2")
    relay.wait_for(lambda: len(case.decided()) == 2, what="both answers")
    case.application.commit("1")
    case.application.rollback("2")
    relay.wait_for(lambda: len(case.conflicts()) == 2, what="both conflicts")
    assert case.conflicts() == [("1", "rollback", "commit", "message"),
                                ("2", "commit", "rollback", "message")]
    assert case.decided() == {"1": "rollback", "2": "commit"}
    wait_for(lambda: case.ids() == ["2"], 60, "the message of the one that was committed")


def test_over_its_budget_an_id_is_parked_and_an_operator_decides(case, business):
    case.check["max_attempts"] = 3
    relay = case.relay().wait_ready()
    case.application.prepare("1")
    relay.wait_for(lambda: case.database.execute(
        "SELECT state, attempts FROM outbox.lookback_overdue") == [("parked", 3)], what="it to be parked")
    assert business.times("1") == 3
    status, _, error = run_command(["lookback", "commit", "order", "1", "--reason", "asked them", "--yes"],
                                   {"DATABASE_URL": case.database.dsn})
    assert status == 0, error
    wait_for(lambda: case.ids() == ["1"], 60, "its message")


def test_an_endpoint_that_is_away_costs_no_attempt(case, business):
    business.close()
    relay = case.relay().wait_ready()
    case.application.prepare("1", "2")
    relay.wait_for(lambda: (relay.metric("relay_lookback_checks_total", result="connect") or 0) >= 3,
                   what="several tries")
    assert case.database.execute("SELECT max(attempts) FROM outbox.lookback_overdue") == [(0,)]
    assert case.decided() == {}


# --- the barrier ----------------------------------------------------------------------------------

@pytest.fixture
def barrier(empty_database, tmp_path):
    """What docs/guide/lookback-barrier.md says to do, in a database of the business: (it, the settings of the
    [check] section)."""
    page = (ROOT / "docs/guide/lookback-barrier.md").read_text("utf-8")
    snippet = re.search(r'```ini\n\[check "shop"\]\n(.*?)```', page, re.DOTALL)[1]
    settings = dict(line.split(" = ") for line in snippet.splitlines())
    grant = re.search(r"`(grant execute on function public.lookback_check\([^`]*)`", page)[1]
    empty_database.execute((ROOT / "sql/barrier/postgres.sql").read_text("utf-8"))
    login = f"asks_{empty_database.name}"[:60]
    empty_database.execute(f"create role {login} login; {grant} to {login}")
    dsn = tmp_path / settings["dsn_file"]
    dsn.write_text(empty_database.postgres.dsn(empty_database.name, user=login))
    yield empty_database, {**settings, "dsn_file": str(dsn)}
    empty_database.execute(f"drop owned by {login}; drop role {login}")


def test_the_barrier_answers_the_relay_as_its_page_says(case, barrier):
    """No transaction commits after the relay was answered rollback, and one that is open is waited for."""
    shop, settings = barrier
    case.check = {**settings, "retry_first": "100ms", "retry_max": "300ms", "pending_every": "200ms"}
    case.settings["check_after"] = "300ms"
    relay = case.relay().wait_ready()
    shop.execute("select lookback_begin('order', 'done')")
    with contextlib.closing(shop.connect(autocommit=False)) as slow:
        slow.cursor().execute("select lookback_begin('order', 'open')")
        case.application.prepare("done", "open", "never")
        relay.wait_for(lambda: case.decided() == {"done": "commit", "never": "rollback"},
                       what="the clear answers")
        relay.wait_for(lambda: relay.metric("relay_lookback_checks_total", result="pending") >= 2,
                       what="the one that is open to be asked again")
        assert case.overdue() == ["open"]
        slow.commit()
    relay.wait_for(lambda: case.decided().get("open") == "commit", what="its commit")
    with pytest.raises(psycopg2.Error, match="the relay was answered rollback") as late:
        shop.execute("select lookback_begin('order', 'never')")
    assert late.value.pgcode == "LB001"
    wait_for(lambda: case.ids() == ["done", "open"], 60, "the messages of what was committed")
    assert relay.metric("relay_lookback_checks_total", result="database") is None
