"""The look-back's reader dies, is stopped past its session, loses its database or its partitions: each id
has one effect, and the messages of a key keep the order of their decisions."""

import threading
import zlib
from contextlib import contextmanager

import pytest

from support.auditor import read_topics
from support.lookback import Application, configuration
from support.process import wait_for


class World:
    """50 keys; of each key ids that are committed in their order, some rolled back, some sent twice."""

    def __init__(self, database, kafka, make_relay, name):
        self.database, self.kafka, self.make_relay, self.name = database, kafka, make_relay, name
        self.said = kafka.create_topic(f"{name}_said", 3)
        self.orders = kafka.create_topic(f"{name}_orders", 3)
        self.dead = kafka.create_topic(f"{name}_dead", 1)
        self.application = Application(kafka.bootstrap, self.said, "order", self.orders)
        self.committed, self.number = {}, 0

    def relay(self, readers=1, **settings):
        path = configuration(("check \"shop\"", {"url": "http://127.0.0.1:9/"}), ("lookback \"shop\"", {
            "types": "order", "topic": self.said, "group": self.name, "check": "shop", "batch": 40,
            "readers": readers, "dead_letter": self.dead}))
        return self.make_relay(arguments=("run", "--config", path),
                               kafka_session_timeout_ms=6000, **settings)

    def write(self, chance, count):
        """Ids of one key go through one partition of the look-back topic, so that their decisions have
        an order."""
        for _ in range(count):
            self.number += 1
            key = f"k{chance.randrange(50)}"
            partition = zlib.crc32(key.encode()) % 3
            id = f"{key}-{self.number}"
            verb = chance.choice(["commit", "commit", "commit", "rollback"])
            prepared = self.application.prepared(id, key=key, payload={"id": id})
            decided = self.application.decided(id, verb)
            records = [prepared, decided]
            if chance.random() < 0.1:
                records.reverse()
            if chance.random() < 0.2:
                records.append(chance.choice(records))
            self.application.send(*records, partition=partition)
            if verb == "commit":
                self.committed.setdefault(key, []).append(id)

    def judge(self):
        wait_for(lambda: self.database.execute(
            "SELECT count(*) FROM outbox.lookback WHERE kind = 'decision'")[0][0] == self.number,
            180, "a decision of each id")
        total = sum(len(ids) for ids in self.committed.values())
        wait_for(lambda: len(self.published()) >= total, 120, "every message")
        found = {}
        for record in self.published():
            found.setdefault(record.key.decode(), []).append(record.payload.decode()[8:-2])
        assert found == self.committed
        assert self.database.execute("SELECT count(*) FROM outbox.lookback_conflict") == [(0,)]

    def published(self):
        """Messages of the business and, since there should be none, dead letters."""
        return list(read_topics(self.kafka.bootstrap, [self.orders, self.dead]))


@contextmanager
def stream(world, chance):
    """Writes all the while, one key after the other."""
    ended = threading.Event()

    def write():
        while not ended.is_set():
            world.write(chance, 1)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@pytest.fixture
def world(database, kafka, make_relay, request):
    return World(database, kafka, make_relay, f"lb{zlib.crc32(request.node.nodeid.encode())}")


def test_a_reader_that_is_stopped_past_its_session_has_no_effect_when_it_wakes(world, chance):
    first = world.relay().wait_ready()
    world.write(chance, 20)
    first.pause()
    second = world.relay()
    world.write(chance, 60)
    second.wait_for(lambda: second.metric("relay_lookback_partitions") == 3, what="the partitions")
    first.resume()
    world.write(chance, 60)
    world.judge()
    first.wait_for(lambda: (first.metric("relay_lookback_partitions") or 0)
                   + (second.metric("relay_lookback_partitions") or 0) == 3, what="a shared topic")
    world.write(chance, 20)
    world.judge()


def test_a_server_that_crashes_takes_nothing_with_it_and_nothing_comes_twice(
        world, fragile_postgres, chance, scale):
    """Readers do not wait for the disk: what they wrote last is gone, and is read again."""
    relay = world.relay(readers=2, publisher_lease="30s")
    relay.wait_for(lambda: relay.readiness_says(200, "look-back shop: reads 3 partitions"),
                   what="the partitions")
    assert [event["partitions"] for event in relay.events("lookback_assigned")[-2:]] in (
        ["1", "2"], ["2", "1"])
    crashes = scale(20, default=3)
    with stream(world, chance):
        for _ in range(crashes):
            before = relay.metric("relay_lookback_batches_total", outcome="stored")
            relay.wait_for(lambda: relay.metric("relay_lookback_batches_total", outcome="stored")
                           > before + 10, what="more batches")
            fragile_postgres.kill()
            fragile_postgres.start()
    world.judge()
    relay.wait_for(lambda: relay.metric("relay_postgres_reconnects_total") >= crashes, what="the metric")
