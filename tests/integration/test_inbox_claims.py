"""Claims of the inbox: no two consumers work on one id at a time, however long a handler takes, and
tokens rise.

The effect table is `span`: a row when a handler begins with an id, which is completed at its end. It
stands behind `target`, which refuses a token that is lower than one it has seen."""

import contextlib

import pytest

from support.dedup import DedupError
from support.inbox import Inbox, produce
from support.process import wait_for
from support.redis import Redis
from support.spans import Span, judge

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
        return [Span(*row) for row in self.database.execute(
            f"select id, token, began, ended from span where {where} order by began")]

    def wait_spans(self, count, where="ended is not null", timeout=90):
        wait_for(lambda: len(self.spans(where)) >= count, timeout, f"{count} spans: {where}")

    def judge(self):
        judge(self.spans())


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
    world.wait_spans(2 * count)
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
    world.wait_spans(count)
    wait_for(lambda: one.stats()["duplicates"] + two.stats()["duplicates"] >= count, 60, "the copies")
    world.judge()
    assert len(world.spans()) == count


@pytest.mark.rotated
def test_a_consumer_that_is_stopped_for_longer_than_its_lease_has_no_effect(world, scale):
    """Its handlers have begun, and only the token tells the target so. It lost the claims of messages
    that waited for a handler, too: those are claimed again."""
    count = scale(100, 16)
    pair = {inbox.process.pid: inbox for inbox in world.open_two(concurrency=8)}
    world.produce(count, slow=3 * LEASE)
    world.wait_spans(8, "true")
    one = pair.pop(world.database.execute("select pid from span limit 1")[0][0])
    (two,) = pair.values()
    one.pause()
    taken_over = f"""pid = {two.process.pid} and exists (select from span a
        where a.id = span.id and a.token < span.token and a.pid = {one.process.pid} and a.ended is null)"""
    world.wait_spans(1, taken_over)
    one.resume()
    one.wait_stats(claims_lost=1)
    world.wait_spans(2 * count)
    world.judge()
    assert world.spans(f"pid = {one.process.pid} and ended is null")
    assert one.wait_event("inbox_claim_lost") and not two.events("inbox_claim_lost")


def test_each_try_has_a_larger_token(world):
    """The claim ends with the try: the next one may be another consumer's."""
    inbox = world.open(partitions=2, batch=8, retry_first_ms=10)
    produce(world.kafka.bootstrap, world.topic,
            [(f"id-{i}", f"key-{i}", "retry=2", 0) for i in range(20)])
    world.wait_spans(20)
    spans = world.spans()
    judge(spans)
    assert len(spans) == 60 and len({span.id for span in spans}) == 20
    inbox.wait_stats(handled=20)
    assert inbox.stats()["claims_lost"] == 0


@pytest.mark.rotated
def test_the_claims_of_a_killed_consumer_end_with_their_leases(world):
    one, two = world.open_two()
    world.produce(10, slow=3 * LEASE)
    world.wait_spans(1, f"pid = {one.process.pid}")
    one.kill()
    world.wait_spans(20)
    world.judge()
    assert len(world.spans(f"pid = {two.process.pid} and ended is not null")) == 20


@pytest.mark.rotated
def test_a_handler_keeps_its_claim_when_its_partition_goes(world):
    """The new owner of the partition waits for the old one's handler, which the drain left behind."""
    one = world.open(partitions=2, drain_ms=1)
    world.produce(20, slow=8 * LEASE, partitions=[0, 1])
    world.wait_spans(20, "true")
    two = world.open(drain_ms=1)
    wait_for(lambda: one.stats()["abandoned"], 60, "handlers without a partition")
    world.wait_spans(1, f"pid = {two.process.pid}")
    world.wait_spans(40)
    wait_for(lambda: not world.spans("ended is null"), 60, "ends: the target refused none")
    world.judge()
    assert not one.events("inbox_claim_lost") and not two.events("inbox_claim_lost")


@pytest.mark.parametrize("world", ["redis"], indirect=True) # the tests share the server of PostgreSQL
def test_nothing_is_handled_while_the_server_of_the_claims_is_away(world):
    world.redis.kill()
    inbox = world.open(partitions=2)
    world.produce(5, slow=0)
    inbox.wait_event("inbox_claims_wait")
    assert inbox.stats()["in_progress"] == 0 and not world.spans()
    world.redis.start()
    world.wait_spans(10)
    world.redis.kill()
    world.produce(5, slow=0)
    wait_for(lambda: inbox.stats()["messages"] == 10, 60, "messages that wait")
    world.redis.start()
    world.wait_spans(20)
    world.judge()


@pytest.mark.parametrize("line, words", [
    ("none", ["claims = none: "]),
    ("redis url=redis://127.0.0.1:1", ["claims = redis url=redis://127.0.0.1:1: ", "name"]),
    ("redis url=redis://127.0.0.1:1 name=a lease=forever", ["lease"]),
    ("postgres name=a url=redis://127.0.0.1:1", ["url"])])
def test_a_wrong_line_is_refused_at_once(kafka, topic, line, words):
    with pytest.raises(DedupError) as refusal:
        Inbox(kafka.bootstrap, topic, [topic], claims=line)
    assert refusal.value.kind == "config"
    for word in words:
        assert word in str(refusal.value)
