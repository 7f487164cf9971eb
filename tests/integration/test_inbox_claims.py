"""Claims of the inbox: no two consumers work on one id at a time, however long a handler takes, and
tokens rise.

The effect table is `span`: a row when a handler begins with an id, which is completed at its end. It
stands behind `target`, which refuses a token that is lower than one it has seen."""

import contextlib
import time

import pytest

from support.dedup import DedupError
from support.inbox import Inbox, produce
from support.process import wait_for
from support.redis import Redis

LEASE = 600  # ms
TABLES = """
    create table target (id text primary key, token bigint not null);
    create table span (id text not null, token bigint not null, pid int not null,
        began timestamptz not null, ended timestamptz, unique (id, token))"""


class World:
    """The servers of a test, its topic of two partitions with the same ids, and its consumers."""

    def __init__(self, kafka, topic, database, redis, path):
        self.kafka, self.topic, self.database, self.redis, self.path = kafka, topic, database, redis, path
        self.inboxes = contextlib.ExitStack()
        database.execute(TABLES)

    def line(self, **settings):
        """Of claims, and of a shared store."""
        server = f"url={self.redis.url}" if self.redis else f'dsn="{self.database.dsn}"'
        words = {"name": "billing", **settings}
        return " ".join(["redis" if self.redis else "postgres", server,
                         *(f"{name}={word}" for name, word in words.items())])

    def open(self, partitions=1, **settings):
        """Once it has so many of the topic's partitions."""
        given = {"claims": self.line(lease=f"{LEASE}ms"), "commit_every_ms": 100, "spans": 1,
                 "dsn": self.database.dsn, "concurrency": 64, **settings}
        inbox = self.inboxes.enter_context(
            Inbox(self.kafka.bootstrap, self.topic, [self.topic], **given))
        wait_for(lambda: inbox.stats()["partitions"] == partitions, 60, f"{partitions} partitions")
        return inbox

    def open_two(self, **settings):
        one = self.open(partitions=2, **settings)
        two = self.open(**settings)
        wait_for(lambda: one.stats()["partitions"] == 1, 60, "a partition for each")
        return one, two

    def produce(self, count, slow, partitions=(0, 1)):
        produce(self.kafka.bootstrap, self.topic,
                [(f"id-{i}", f"key-{i}", f"slow={slow}", partition)
                 for i in range(count) for partition in partitions])

    def spans(self, where="true"):
        return self.database.execute(f"select id, token, pid from span where {where} order by began")

    def wait_ended(self, count, timeout=90):
        wait_for(lambda: len(self.spans("ended is not null")) >= count, timeout, f"{count} effects")

    def judge(self):
        """Effects of one id never overlap, and the later one has the larger token."""
        assert self.database.execute("""
            select a.id, a.began, a.ended, b.began from span a join span b
            on a.id = b.id and a.token < b.token
            where a.ended is not null and b.began < a.ended""") == []
        last = {}
        for id, token, _ in self.spans():
            assert token > last.get(id, 0), id
            last[id] = token


@pytest.fixture(params=["redis", "postgres"])
def world(request, kafka, database, tmp_path):
    name = f"{database.name}.claims"
    with contextlib.ExitStack() as stack:
        redis = stack.enter_context(
            Redis(appendonly="yes", appendfsync="no")) if request.param == "redis" else None
        topic = kafka.create_topic(name, partitions=2)
        made = World(kafka, topic, database, redis, tmp_path)
        with made.inboxes:
            yield made
        kafka.delete_topic(topic)


def test_a_handler_may_take_three_times_the_lease(world, scale):
    """Both partitions have each id, and no store tells them apart: so each id has two effects, one
    after the other. No token was refused: the claims alone keep the consumers apart."""
    count = scale(200, 20)
    one, two = world.open_two()
    world.produce(count, slow=3 * LEASE)
    world.wait_ended(2 * count)
    world.judge()
    assert len(world.spans()) == 2 * count
    assert one.stats()["claims_refused"] + two.stats()["claims_refused"] >= count
    assert one.stats()["claims_lost"] == two.stats()["claims_lost"] == 0


def test_a_pending_id_that_ends_before_its_handler_is_handled_once(world, scale):
    """The lease of the store's pending ids is as short as that of the claims, but nobody renews it."""
    count = scale(200, 20)
    lease = {"lease": f"{LEASE}ms"} if world.redis else {}
    one, two = world.open_two(dedup=world.line(window="1h", **lease))
    world.produce(count, slow=3 * LEASE)
    world.wait_ended(count)
    wait_for(lambda: one.stats()["duplicates"] + two.stats()["duplicates"] >= count, 60, "the copies")
    world.judge()
    assert len(world.spans()) == count
