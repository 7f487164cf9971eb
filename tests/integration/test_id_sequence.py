"""The sequence of message.id goes back, or does not rise, while the relay runs: each message comes exactly once,
and the event, the metric, `doctor` and `migrate up` tell of it and mend it."""

import collections
import json
import os

import pytest

from support.auditor import payload, read_topics
from support.relay import run_command

LIMIT = 60_000  # bytes of a batch
SEQUENCE = "outbox.message_id_seq"
KEPT = "SELECT (SELECT count(*) FROM outbox.parked), (SELECT count(*) FROM outbox.scheduled)"
PENDING = "SELECT EXISTS (SELECT FROM outbox.message_state WHERE state = 'pending')"
RETRY = {"publisher_retry_first": "100ms", "publisher_retry_max": "400ms", "publisher_max_attempts": 1_000_000}


def insert(cursor, topic, key, count, large=False, seconds=None, first=1):
    """The event ids."""
    events = []
    for number in range(first, first + count):
        pad = os.urandom(LIMIT * 3 // 4).hex() if large else "x"  # lz4 does not shorten it
        cursor.execute("INSERT INTO outbox.message (topic, key, payload_bytes, deliver_at) VALUES "
                       "(%s, %s, %s, clock_timestamp() + %s * interval '1 s') RETURNING event_id::text",
                       (topic, key, payload(key, number, pad=pad), seconds))
        events += cursor.fetchone()
    return events


def in_one(database, *steps):
    """Statements, and arguments of insert, in one transaction; the event ids."""
    connection = database.connect(autocommit=False)
    events = []
    with connection, connection.cursor() as cursor:
        for step in steps:
            if isinstance(step, str):
                cursor.execute(step)
            else:
                events += insert(cursor, *step[:3], **(step[3] if len(step) > 3 else {}))
    connection.close()
    return events


def published(kafka, topic):
    """[(key, event id)] in the order of each partition."""
    return [((record.key or b"").decode(), dict(record.headers)["outbox-id"].decode())
            for record in read_topics(kafka.bootstrap, [topic])]


def wait_for_each_once(relay, database, kafka, topic, events):
    relay.wait_for(lambda: database.execute(PENDING) == [(False,)] and database.execute(KEPT) == [(0, 0)],
                   what="the end of all that waits")
    assert collections.Counter(event for _, event in published(kafka, topic)) == collections.Counter(events)


def verify(database, kafka, lost=0):
    """lost: records whose rows are gone from the table."""
    status, output, error = run_command(["verify", "--json"], {"DATABASE_URL": database.dsn,
                                        "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap})
    found = json.loads(output.splitlines()[-1])
    assert (int(found["lost"]), int(found["phantom"]), int(found["duplicates"])) == (0, lost, 0), output + error


def next_id(database):
    return database.execute(f"SELECT nextval('{SEQUENCE}')")[0][0]


@pytest.mark.parametrize("begin_again", [
    "TRUNCATE outbox.message RESTART IDENTITY",
    f"TRUNCATE outbox.message; SELECT setval('{SEQUENCE}', 1, false)",
    f"ALTER SEQUENCE {SEQUENCE} RESTART"], ids=["truncate", "setval", "restart"])
def test_ids_of_parked_and_scheduled_messages_come_again(database, kafka, topic, make_relay, begin_again):
    relay = make_relay(**RETRY).wait_ready()
    kafka.alter_topic(topic, max_message_bytes=LIMIT)
    old = in_one(database, (topic, "p", 3, {"large": True}), (topic, "s", 3, {"seconds": 3600}))
    relay.wait_for(lambda: database.execute(KEPT) == [(3, 3)], what="what is kept")
    relay.wait_for(lambda: database.execute(PENDING) == [(False,)], what="its progress")
    # ids 1 to 3 go to scheduled and to small ones, 4 to 6 to large ones, and some meet nothing
    new = in_one(database, begin_again, (topic, "s", 2, {"seconds": 3600}), (topic, "a", 1),
                 (topic, "p", 2, {"large": True, "first": 4}), (topic, "b", 1), (topic, "p", 1, {"first": 6}))
    relay.wait_for(lambda: database.execute(KEPT) == [(6, 5)], what="what is kept now")
    told = relay.wait_event("id_sequence_went_back")[0]
    assert "RESTART IDENTITY" in told["consequence"] and int(told["raised_to"]) > int(told["highest_id"])
    relay.wait_for(lambda: relay.metric("relay_id_sequence_raised_total") >= 1, what="the metric")
    assert next_id(database) > int(told["highest_id"])
    kafka.alter_topic(topic, max_message_bytes=1_048_588)
    database.execute("UPDATE outbox.scheduled SET deliver_at = clock_timestamp()")
    wait_for_each_once(relay, database, kafka, topic, old + new)
    verify(database, kafka, lost=len(old) if "TRUNCATE" in begin_again else 0)
    assert [event for key, event in published(kafka, topic) if key == "p"] == old[:3] + new[3:5] + new[6:]


def test_one_transaction_has_each_id_many_times(database, kafka, topic, make_relay):
    """It is read by pages, since its rows are too many for the memory."""
    relay = make_relay(publisher_memory="1MiB", publisher_max_in_flight=100).wait_ready()
    back = f"SELECT setval('{SEQUENCE}', 1, false)"
    events = in_one(database, *[step for _ in range(7) for step in (back, (topic, "a", 500))])
    wait_for_each_once(relay, database, kafka, topic, events)


def test_writers_draw_ids_ahead(database, kafka, topic, make_relay, make_writers, judge_all):
    relay = make_relay().wait_ready()
    database.execute(f"ALTER SEQUENCE {SEQUENCE} CACHE 20")
    told = relay.wait_event("id_sequence_unordered")[0]
    assert told["cache"] == "20" and "cache 1" in told["cure"]
    relay.wait_for(lambda: relay.metric("relay_id_sequence_unordered") == 1, what="the metric")
    make_writers(connections=6, keys=50).run(1000)
    judge_all(relay)
    assert relay.events("id_sequence_went_back") == []
    database.execute(f"ALTER SEQUENCE {SEQUENCE} CACHE 1")
    relay.wait_event("id_sequence_ordered")
    relay.wait_for(lambda: relay.metric("relay_id_sequence_unordered") == 0, what="the metric")


def test_ids_go_down(database, kafka, topic, make_relay, judge_all):
    """Past those of parked and scheduled messages."""
    relay = make_relay(**RETRY).wait_ready()
    kafka.alter_topic(topic, max_message_bytes=LIMIT)
    old = in_one(database, (topic, "a", 20), (topic, "p", 2, {"large": True}), (topic, "s", 2, {"seconds": 3600}))
    relay.wait_for(lambda: database.execute(KEPT) == [(2, 2)], what="what is kept")
    database.execute(f"ALTER SEQUENCE {SEQUENCE} INCREMENT BY -1")
    new = in_one(database, (topic, "p", 2, {"large": True, "first": 3}), (topic, "s", 2, {"seconds": 3600}),
                 (topic, "a", 10, {"first": 21}))
    relay.wait_for(lambda: database.execute(KEPT) == [(4, 4)], what="what is kept now")
    assert relay.wait_event("id_sequence_unordered")[0]["increment"] == "-1"
    kafka.alter_topic(topic, max_message_bytes=1_048_588)
    database.execute("UPDATE outbox.scheduled SET deliver_at = clock_timestamp()")
    wait_for_each_once(relay, database, kafka, topic, old + new)


@pytest.fixture
def judge_all(database, kafka, topic):
    def judge(relay):
        events = [event for event, in database.execute("SELECT event_id::text FROM outbox.message")]
        wait_for_each_once(relay, database, kafka, topic, events)

    return judge


def doctor(database, kafka):
    _, output, error = run_command(["doctor"], {"DATABASE_URL": database.dsn,
                                                "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap})
    return output + error


def status(database):
    return run_command(["status"], {"DATABASE_URL": database.dsn})[1]


def test_doctor_names_a_sequence_that_went_back_and_migrate_raises_it(database, kafka, topic):
    assert "sequence of message.id" not in doctor(database, kafka)
    in_one(database, (topic, "a", 5), f"SELECT setval('{SEQUENCE}', 1, false)")
    said = doctor(database, kafka)
    assert "the sequence of message.id went back to 0, and rows with ids up to 5 are kept" in said
    assert "outbox-relay migrate up" in said
    assert "the sequence of message.id went back to 0, and ids up to 5 are in use" in status(database)
    database.migrate()
    assert next_id(database) > 5
    assert "sequence of message.id" not in doctor(database, kafka)
    assert "sequence of message.id" not in status(database)


def test_doctor_fails_where_ids_go_down(database, kafka):
    database.execute(f"ALTER SEQUENCE {SEQUENCE} INCREMENT BY -1")
    assert "INCREMENT -1" in doctor(database, kafka)
    assert "INCREMENT -1" in status(database)


@pytest.mark.parametrize("insert_kept", [
    "INSERT INTO outbox.skipped VALUES ('main', 1, '{3, 700}')",
    "INSERT INTO outbox.scheduled (publisher, shard, id, created_at, event_id, topic, deliver_at, tick) VALUES "
    "('main', 0, 700, now(), gen_random_uuid(), 't', now(), 1)",
    "INSERT INTO outbox.parked (publisher, shard, id, created_at, event_id, topic, tick, state, attempts, next_at) "
    "VALUES ('main', 0, 700, now(), gen_random_uuid(), 't', 1, 'dead', 1, now())",
    "INSERT INTO outbox.message (id, topic) OVERRIDING SYSTEM VALUE VALUES (700, 't')",
    ], ids=["skipped", "scheduled", "parked", "message"])
def test_ids_are_raised_above_everything_that_is_kept(database, insert_kept):
    database.execute(insert_kept)
    database.migrate()
    assert next_id(database) > 700
