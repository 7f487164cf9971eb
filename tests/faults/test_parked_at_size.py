"""Very many parked messages are recovered, retried and skipped in batches: no step outlives a lease, the shard keeps
its owner, and everybody else's messages pass meanwhile."""

import threading
import time

import pytest

from support.auditor import count_records, read_topics
from support.relay import run_command

SHORT = {"publisher_lease": "1s", "publisher_memory": "8MiB", "publisher_stall_after": "60s"}
LONG = 1800
WHY = ["--reason", "ticket 7", "--yes"]


def park(database, topic, count, state, stalled=None):
    """Each the head of its queue, of a window that is published. Later messages have higher ids, and so come
    behind it."""
    database.execute("SELECT setval(pg_get_serial_sequence('outbox.message', 'id'), 2000000000)")
    database.execute(
        "INSERT INTO outbox.parked (publisher, shard, id, created_at, event_id, topic, key, payload, tick, state, error,"
        " stalled, attempts, next_at) SELECT 'main', 0, 1000000000 + n, now(), gen_random_uuid(), %s,"
        " convert_to('key-' || n, 'UTF8'), convert_to(repeat('x', 100), 'UTF8'), 0, %s, 'refused', %s, 10, now()"
        " FROM generate_series(1, %s) n", (topic, state, stalled, count))
    database.execute("ANALYZE outbox.parked")


def is_empty(database):
    return not database.execute("SELECT 1 FROM outbox.parked LIMIT 1")


def takes(database):
    """How often the shard was taken: each owner's rows say who it was."""
    return database.execute("SELECT count(DISTINCT owner) FROM outbox.log WHERE owner <> ''")[0][0]


class Others:
    """Messages of other keys, a hundred a second to a topic of their own, while the many are worked off."""

    def __init__(self, database, kafka, topic):
        self.database, self.kafka = database, kafka
        self.topic = kafka.create_topic(f"{topic}.others", 6, message_timestamp_type="LogAppendTime")
        self.committed = {}
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self._write)

    def _write(self):
        connection = self.database.connect()
        with connection.cursor() as cursor:
            while not self.stopping.wait(0.01):
                number = len(self.committed)
                cursor.execute("INSERT INTO outbox.message (topic, key, payload) VALUES (%s, %s, %s)",
                               (self.topic, f"other-{number % 1000}", str(number)))
                self.committed[number] = time.time()
        connection.close()

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.stopping.set()
        self.thread.join()

    def p99_ms(self, relay):
        """From their COMMIT to the broker's log, by the clock of this machine. The topic goes."""
        try:
            relay.wait_for(lambda: count_records(self.kafka.bootstrap, [self.topic]) >= len(self.committed),
                           LONG, "messages of other keys")
            spans = sorted(record.timestamp[1] - self.committed[int(record.payload)] * 1000
                           for record in read_topics(self.kafka.bootstrap, [self.topic]))
        finally:
            self.kafka.delete_topic(self.topic)
        assert len(spans) == len(self.committed)
        print(f"{len(spans)} messages of other keys: p50 {spans[len(spans) // 2]:.1f} ms, "
              f"p99 {spans[len(spans) * 99 // 100]:.1f} ms, at most {spans[-1]:.1f} ms")
        return spans[len(spans) * 99 // 100]


@pytest.fixture
def most_ms(full):
    """Of the p99 of other messages. By default other tests run beside this one."""
    return 100 if full else 1000


def test_a_missing_topic_with_very_many_keys_comes_back(database, kafka, topic, make_relay, scale, most_ms):
    count = scale(3_000_000, default=40_000)
    absent = f"{topic}.later"
    park(database, absent, count, "stalled", -1)
    relay = make_relay(**SHORT).wait_ready()
    make_relay(**SHORT).wait_ready()
    kafka.create_topic(absent)
    try:
        with Others(database, kafka, topic) as others:
            relay.wait_for(lambda: is_empty(database), LONG, "an empty table")
        assert count_records(kafka.bootstrap, [absent]) == count
        assert others.p99_ms(relay) <= most_ms
        assert takes(database) == 1
    finally:
        kafka.delete_topic(absent)


@pytest.mark.rotated
@pytest.mark.parametrize("verb, arrive", [("retry", True), ("skip", False)])
def test_very_many_keys_are_asked_for_at_once(
        database, kafka, topic, make_relay, scale, most_ms, verb, arrive):
    count = scale(3_000_000, default=40_000)
    park(database, topic, count, "dead")
    relay = make_relay(**SHORT).wait_ready()
    make_relay(**SHORT).wait_ready()
    status, _, error = run_command(["parked", verb, "--all", *WHY], {"DATABASE_URL": database.dsn})
    assert status == 0, error
    with Others(database, kafka, topic) as others:
        relay.wait_for(lambda: is_empty(database), LONG, "an empty table")
    assert count_records(kafka.bootstrap, [topic]) == count * arrive
    assert takes(database) == 1
    assert others.p99_ms(relay) <= most_ms


def keys_in(kafka, topic):
    return [record.key for record in read_topics(kafka.bootstrap, [topic])]


def test_an_owner_knows_very_many_parked_keys_in_little_memory(database, kafka, topic, make_relay, full):
    """It sends what is not parked before it has heard of all that is."""
    count, memory = (3_000_000, 24 << 20) if full else (150_000, 8 << 20)
    settings = {**SHORT, "publisher_memory": f"{memory >> 20}MiB"}
    write = "INSERT INTO outbox.message (topic, key, payload) SELECT %s, k, 'x' FROM unnest(%s) k"
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
    settings = {**SHORT, "publisher_lease": f"{lease}s"}
    make_relay(**settings).wait_ready().kill()
    park(database, topic, 10_000_000 if full else 150_000, "dead")
    database.execute("INSERT INTO outbox.message (topic, key, payload) VALUES (%s, 'other', 'x')", (topic,))
    relay = make_relay(**settings)
    began = time.monotonic()
    relay.wait_for(lambda: count_records(kafka.bootstrap, [topic]) == 1, 2 * lease, "the message of another key")
    assert time.monotonic() - began < 2 * lease
