"""Very many parked messages are recovered, retried and skipped in batches: no step outlives a lease, the shard keeps
its owner, and everybody else's messages pass meanwhile."""

import time

import pytest

from support.auditor import count_records, read_topics
from support.relay import run_command

SHORT = {"slot_lease": "1s", "slot_memory": "8MiB", "slot_stall_after": "60s"}
LONG = 300
WHY = ["--reason", "ticket 7", "--yes"]


def park(database, topic, count, state, stalled=None):
    """Each the head of its queue, of a window that is published. Later messages have higher ids, and so come
    behind it."""
    database.execute("SELECT setval(pg_get_serial_sequence('outbox.message', 'id'), 2000000000)")
    database.execute(
        "INSERT INTO outbox.parked (slot, shard, id, created_at, event_id, topic, key, payload, tick, state, error,"
        " stalled, attempts, next_at) SELECT 'main', 0, 1000000000 + n, now(), gen_random_uuid(), %s,"
        " convert_to('key-' || n, 'UTF8'), convert_to(repeat('x', 100), 'UTF8'), 0, %s, 'refused', %s, 10, now()"
        " FROM generate_series(1, %s) n", (topic, state, stalled, count))
    database.execute("ANALYZE outbox.parked")


def is_empty(database):
    return not database.execute("SELECT 1 FROM outbox.parked LIMIT 1")


def takes(database):
    """How often the shard was taken: each owner's rows say who it was."""
    return database.execute("SELECT count(DISTINCT owner) FROM outbox.log WHERE owner <> ''")[0][0]


def others_pass(database, kafka, topic, relay):
    """A message written now is published while the many are worked off."""
    before = count_records(kafka.bootstrap, [topic])
    database.execute("INSERT INTO outbox.message (topic, key, payload) VALUES (%s, 'other', 'x')", (topic,))
    relay.wait_for(lambda: count_records(kafka.bootstrap, [topic]) > before, LONG, "another message")


def test_a_missing_topic_with_very_many_keys_comes_back(database, kafka, topic, make_relay, scale):
    count = scale(600_000, default=40_000)
    absent = f"{topic}.later"
    park(database, absent, count, "stalled", -1)
    relay = make_relay(**SHORT).wait_ready()
    make_relay(**SHORT).wait_ready()
    kafka.create_topic(absent)
    try:
        others_pass(database, kafka, topic, relay)
        relay.wait_for(lambda: is_empty(database), LONG, "an empty table")
        assert count_records(kafka.bootstrap, [absent]) == count
        assert takes(database) == 1
    finally:
        kafka.delete_topic(absent)


@pytest.mark.parametrize("verb, arrive", [("retry", True), ("skip", False)])
def test_very_many_keys_are_asked_for_at_once(database, kafka, topic, make_relay, scale, verb, arrive):
    count = scale(600_000, default=40_000)
    park(database, topic, count, "dead")
    relay = make_relay(**SHORT).wait_ready()
    make_relay(**SHORT).wait_ready()
    status, _, error = run_command(["parked", verb, "--all", *WHY], {"DATABASE_URL": database.dsn})
    assert status == 0, error
    others_pass(database, kafka, topic, relay)
    relay.wait_for(lambda: is_empty(database), LONG, "an empty table")
    assert count_records(kafka.bootstrap, [topic]) == count * arrive + 1
    assert takes(database) == 1


def keys_in(kafka, topic):
    return [record.key for record in read_topics(kafka.bootstrap, [topic])]


def test_an_owner_knows_very_many_parked_keys_in_little_memory(database, kafka, topic, make_relay, full):
    """It sends what is not parked before it has heard of all that is."""
    count, memory = (3_000_000, 24 << 20) if full else (150_000, 8 << 20)
    settings = {**SHORT, "slot_memory": f"{memory >> 20}MiB"}
    write = "INSERT INTO outbox.message (topic, key, payload) SELECT %s, convert_to(k, 'UTF8'), 'x' FROM unnest(%s) k"
    relay = make_relay(**settings).wait_ready()
    database.execute(write, (topic, ["before"]))
    relay.wait_for(lambda: keys_in(kafka, topic) == [b"before"], LONG, "a message beside none that is parked")
    bare = relay.process.peak_memory()
    assert relay.stop() == 0

    park(database, topic, count, "dead")
    database.execute(write, (topic, [f"key-{count // 2}", "other", "key-1"]))
    relay = make_relay(**settings).wait_ready()
    relay.wait_for(lambda: keys_in(kafka, topic) == [b"before", b"other"], LONG, "the message of another key")
    relay.wait_for(lambda: database.execute(
        "SELECT count(*) FROM outbox.parked WHERE state = 'behind'") == [(2,)], LONG, "the messages behind")
    database.execute(write, (topic, ["late"] * 1000))
    relay.wait_for(lambda: len(keys_in(kafka, topic)) == 1002, LONG, "later messages")
    assert relay.process.peak_memory() - bare < memory
    assert relay.stop() == 0


def test_a_shard_with_very_many_parked_rows_is_taken_at_once(database, kafka, topic, make_relay, full):
    lease = 10 if full else 3
    settings = {**SHORT, "slot_lease": f"{lease}s"}
    make_relay(**settings).wait_ready().kill()
    park(database, topic, 10_000_000 if full else 150_000, "dead")
    database.execute("INSERT INTO outbox.message (topic, key, payload) VALUES (%s, 'other', 'x')", (topic,))
    relay = make_relay(**settings).start()
    began = time.monotonic()
    relay.wait_for(lambda: count_records(kafka.bootstrap, [topic]) == 1, 2 * lease, "the message of another key")
    assert time.monotonic() - began < 2 * lease
