"""Messages with a deliver_at: not before it, none lost or doubled, in the order of their key among those
that are due."""

import json
import re
import time

import psycopg2
import pytest

from support.auditor import audit, committed_messages, payload, read_topics
from support.relay import run_command


def write(database, topic, *rows):
    """One transaction; rows: (key, seq, seconds from now or None)."""
    connection = database.connect(autocommit=False)
    with connection, connection.cursor() as cursor:
        for key, seq, delay in rows:
            cursor.execute(
                "INSERT INTO outbox.message (topic, key, payload_bytes, deliver_at) "
                "VALUES (%s, %s, %s, clock_timestamp() + %s * interval '1 s')",
                (topic, key, payload(key, seq), delay))
    connection.close()


def published(kafka, topic):
    """[(key, seq)] in the order of each partition."""
    return [(record.key.decode(), json.loads(record.payload)["seq"])
            for record in read_topics(kafka.bootstrap, [topic])]


def of_key(kafka, topic, key):
    return [seq for name, seq in published(kafka, topic) if name == key]


def waiting(database):
    return database.execute("SELECT count(*) FROM outbox.scheduled")[0][0]


DELIVERIES = [{}, {"publisher_resume": "none"}, {"publisher_delivery": "exactly-once"}]


@pytest.mark.rotated
@pytest.mark.parametrize("delivery", DELIVERIES, ids=["tail", "none", "exactly-once"])
def test_a_message_comes_at_its_time_and_holds_up_nobody(
        database, kafka, topic, make_relay, delivery):
    relay = make_relay(**delivery).wait_ready()
    write(database, topic, *[(key, 0, None) for key in "ab"])
    relay.wait_for(lambda: len(published(kafka, topic)) == 2, what="all that is slow the first time")
    began = time.monotonic()
    write(database, topic, ("a", 1, 13), ("a", 2, None), ("b", 1, -5), ("a", 3, 10), ("b", 2, 3600))
    relay.wait_for(lambda: set(published(kafka, topic)) >= {("a", 2), ("b", 1)}, what="those due")
    assert time.monotonic() < began + 10, "the machine is too slow to tell"
    relay.wait_for(lambda: of_key(kafka, topic, "a")[2:] == [3, 1], what="the two that come later")
    assert time.monotonic() >= began + 13
    states = "SELECT state, count(*) FROM outbox.message_state GROUP BY 1"
    relay.wait_for(lambda: dict(database.execute(states)) == {"published": 6, "scheduled": 1},
                   what="its progress")
    relay.wait_for(lambda: relay.metric("relay_scheduled_total") == 4, what="the figure")
    due_ms = dict(database.execute("SELECT event_id::text, (extract(epoch FROM greatest("
                                   "created_at, deliver_at)) * 1000)::bigint FROM outbox.message"))
    for record in read_topics(kafka.bootstrap, [topic]):
        event = dict(record.headers)["outbox-id"].decode()
        assert abs(record.timestamp[1] - due_ms[event]) <= 1  # the time it carries
    assert relay.stop() == 0


@pytest.mark.rotated
@pytest.mark.parametrize("delivery", DELIVERIES, ids=["tail", "none", "exactly-once"])
def test_what_became_due_while_nobody_looked_comes_in_the_order_of_its_key(
        database, kafka, topic, make_relay, chance, delivery):
    """Their times are random, their partition is gone, and the relay is started anew."""
    relay = make_relay(publisher_memory="2MiB", **delivery).wait_ready()
    rows = [(f"key-{number % 7}", number // 7 + 1, 3600 + chance.random())
            for number in range(3000)]
    write(database, topic, *rows)
    relay.wait_for(lambda: waiting(database) == 3000, what="all of them")
    assert published(kafka, topic) == []
    assert relay.stop() == 0
    # an hour passes
    database.execute("UPDATE outbox.scheduled SET deliver_at = deliver_at - interval '2 h'")
    messages = list(committed_messages(database.dsn))
    database.execute("DELETE FROM outbox.message")
    relay = make_relay(publisher_memory="2MiB", **delivery).wait_ready()
    relay.wait_for(lambda: waiting(database) == 0, what="an empty table")
    assert relay.stop() == 0
    verdict = audit(messages, read_topics(kafka.bootstrap, [topic]))
    assert verdict.correct and verdict.duplicates == 0, verdict
    assert verdict.published == 3000


def test_commands_tell_of_those_that_wait(database, kafka, topic, make_relay):
    settings = {"DATABASE_URL": database.dsn,
                "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap}
    relay = make_relay().wait_ready()
    write(database, topic, ("a", 1, 3600), ("a", 2, 7200), ("a", 3, None))
    relay.wait_for(lambda: waiting(database) == 2 and published(kafka, topic), what="all")
    relay.wait_for(lambda: relay.metric("relay_scheduled_rows", publisher="main") == 2, what="the metric")
    status, output, error = run_command(["status"], settings)
    assert status == 0 and re.search("scheduled 2, the first in 5[5-9] min", output), output + error
    status, output, error = run_command(["status", "--json"], settings)
    found, = json.loads(output)["postgres"][0]["scheduled"]
    assert (found["publisher"], found["rows"], found["exact"], found["late_ms"]) == (
        "main", "2", True, "0")
    assert 3_300_000 < int(found["next_ms"]) <= 3_600_000
    status, output, error = run_command(["verify", "--json"], settings)
    assert status == 0, output + error
    verdict = json.loads(output)
    assert (verdict["committed"], verdict["published"], verdict["scheduled"], verdict["lost"]) == (
        3, 1, 2, 0)
    assert relay.stop() == 0


def test_each_publisher_has_its_own(database, kafka, topic, make_relay, tmp_path):
    settings = {"DATABASE_URL": database.dsn}
    status, output, error = run_command(["publisher", "create", "late"], settings)
    assert status == 0, output + error
    relay = make_relay().wait_ready()
    write(database, topic, ("a", 1, 2))
    relay.wait_for(lambda: of_key(kafka, topic, "a") == [1], what="it from the one publisher")
    relay.wait_for(lambda: waiting(database) == 0, what="its progress")
    path = tmp_path / "late.ini"
    path.write_text('[publisher "late"]\n')
    other = make_relay(config=str(path)).wait_ready()
    other.wait_for(lambda: of_key(kafka, topic, "a") == [1, 1], what="it from the other publisher")
    for each in (relay, other):
        assert each.stop() == 0


def test_a_drain_does_not_wait_for_the_future(database, kafka, topic, make_relay):
    write(database, topic, ("a", 1, 3600), ("a", 2, None), ("b", 1, -1))
    relay = make_relay(arguments=("run", "--drain"))
    assert relay.wait() == 0
    assert sorted(published(kafka, topic)) == [("a", 2), ("b", 1)]
    assert waiting(database) == 1


def test_a_row_with_a_time_that_never_comes_is_refused(database, topic):
    with pytest.raises(psycopg2.errors.CheckViolation, match="deliver_at_must_be_finite"):
        database.execute("SELECT outbox.publish(%s::text, 'k', 'x', deliver_at => 'infinity')", (topic,))
