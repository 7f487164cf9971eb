"""Very many parked messages are recovered, retried and skipped in batches: no step outlives a lease, the shard keeps
its owner, and everybody else's messages pass meanwhile."""

import pytest

from support.auditor import count_records
from support.relay import run_command

SHORT = {"slot_lease": "1s", "slot_memory": "8MiB", "slot_stall_after": "60s"}
LONG = 300
WHY = ["--reason", "ticket 7", "--yes"]


def park(database, topic, count, state, stalled=None):
    """Each the head of its queue, of a window that is published."""
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
