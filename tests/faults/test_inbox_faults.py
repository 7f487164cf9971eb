"""Consumers with an inbox, three of a group, under deaths, stops, rebalances and topics that change: each
message has its effect, in the order of its key, and once, or twice in the hole that is documented."""

import collections
import json
import threading
import time

import pytest

from support.auditor import read_topics, topic_ranges
from support.dedup import Dedup
from support.inbox import (
    Effects, Inbox, committed, header, out_of_order, produce, wait_committed)
from support.process import wait_for
from support.redis import Redis
from support.relay import run_command

CONSUMERS = 3
CONCURRENCY = 64
POLL_MS = 3000     # max.poll.interval.ms
KEYS = 60
COMMIT_MS = 100
# Effects of a consumer that dies that may come twice: what is being handled, or was since ids were
# last written to the log, ten milliseconds ago.
HOLE = 3 * CONCURRENCY


class Input:
    """Messages that are produced while the test goes on: of each ten three are copies, and some fail at
    their first try."""

    def __init__(self, bootstrap, topic, chance, rate=300):
        self.bootstrap, self.topic, self.chance, self.rate = bootstrap, topic, chance, rate
        self.made = []
        self.first = 0  # of those that may have copies now
        self.sequence = collections.Counter()
        self.over = threading.Event()
        self.held = threading.Lock()  # nothing is produced
        self.called = None  # time at which produce() was called, while it runs
        self.thread = threading.Thread(target=self._run)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()

    def _fresh(self):
        key = f"k{self.chance.randrange(KEYS)}"
        self.sequence[key] += 1
        fails = " retry=1" if self.chance.random() < 0.05 else ""
        message = (f"{key}-{self.sequence[key]}", key, f"seq={self.sequence[key]}{fails}")
        self.made.append(message)
        return message

    def _next(self):
        recent = min(len(self.made) - self.first, 2000)
        if recent and self.chance.random() < 0.3:
            return self.made[-self.chance.randint(1, recent)]
        return self._fresh()

    def _run(self):
        while not self.over.is_set():
            with self.held:
                self.called = time.monotonic()
                produce(self.bootstrap, self.topic,
                        [self._next() for _ in range(self.rate // 5)])
                self.called = None
            self.over.wait(0.2)

    def state(self):
        """For the error of a wait: tells a consumer that hangs from a producer that does."""
        called = self.called
        return (f"{len(self.made)} ids made, thread {'alive' if self.thread.is_alive() else 'dead'}" +
                (f", in produce() for {time.monotonic() - called:.1f} s" if called else ""))

    @property
    def ids(self):
        return [id for id, _, _ in self.made]


class Fleet:
    def __init__(self, kafka, topic, chance, all_effects, **settings):
        self.kafka, self.topic, self.chance, self.effects = kafka, topic, chance, all_effects
        self.deaths = 0
        self.members = [
            Inbox(kafka.bootstrap, topic, [topic], delay=10, commit_every_ms=COMMIT_MS,
                  drain_ms=2000, retry_first_ms=20,
                  kafka={"session.timeout.ms": 1500, "heartbeat.interval.ms": 300,
                         "max.poll.interval.ms": POLL_MS,
                         "topic.metadata.refresh.interval.ms": 1000,
                         "reconnect.backoff.max.ms": 500},
                  **{"concurrency": CONCURRENCY, **settings})
            for _ in range(CONSUMERS)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for member in self.members:
            member.close()

    def handled(self):
        return sum(member.stats()["handled"] for member in self.members)

    def goes_on(self, made):
        before = len(self.effects())
        wait_for(lambda: len(self.effects()) > before + 50, 120, interval=0.2, what=lambda:
                 f"more than {before + 50} effects ({len(self.effects())} now; {self.said(made)})")

    def said(self, made):
        """What each member knows and logged last."""
        return f"input: {made.state()}" + "".join(
            f"\n{member.stats()}\n  " + "\n  ".join(member.log[-12:]) for member in self.members)

    def state(self, missing, made):
        """Where the first records of these ids are, what is committed there, and what the members say."""
        places = {}
        for record in read_topics(self.kafka.bootstrap, [self.topic]):
            id = header(record, "outbox-id")
            if id in missing:
                places.setdefault(id, (record.partition, record.offset))
        commits = {partition: committed(self.kafka.bootstrap, self.topic, self.topic, partition)
                   for partition in {partition for partition, _ in places.values()}}
        return (f"in the topic: {sorted(places.items())[:5]} of {len(places)}; committed: {commits}; "
                f"{self.said(made)}")

    def strike(self, end, made):
        if end in ("add_partition", "make_anew"):
            getattr(self, end)(made)
        else:
            getattr(self, end)(self.chance.choice(self.members), made)

    def killed(self, member, _):
        self.deaths += 1
        time.sleep(self.chance.uniform(0, 0.5))  # the random moment itself
        member.kill()
        member.start()

    def asked(self, member, _):
        member.close()
        member.start()

    def stopped(self, member, made):
        """For longer than max.poll.interval.ms: others have its partitions when it wakes up."""
        self.deaths += 1
        member.pause()
        time.sleep(POLL_MS / 1000 * 1.2)  # what stands still cannot say when it is over
        self.goes_on(made)
        member.resume()

    def broker(self, *_):
        number = self.kafka.leader(self.topic, 0)
        self.kafka.kill(number)
        self.kafka.start_nodes([number])

    def add_partition(self, made):
        """Once all that was made is done: else a copy in its key's new partition may come first."""
        with made.held:
            until_all(self.effects, made.ids)
            count = len(topic_ranges(self.kafka.bootstrap, [self.topic]))
            self.kafka.add_partitions(self.topic, count + 1)
            self.is_owned(count + 1)

    def make_anew(self, made):
        """The topic, once all that was in it is done: copies of that would be another topic's."""
        with made.held:
            until_all(self.effects, made.ids)
            made.first = len(made.made)
            count = len(topic_ranges(self.kafka.bootstrap, [self.topic]))
            self.kafka.delete_topic(self.topic)
            wait_for(lambda: not any(member.stats()["partitions"] for member in self.members), 120,
                     "consumers that have nothing left of it")
            self.kafka.create_topic(self.topic, count)
            self.is_owned(count)

    def is_owned(self, count):
        wait_for(lambda: sum(member.stats()["partitions"] for member in self.members) == count,
                 60, "an owner of each partition", interval=0.2)


STORES = {
    "bloom": {"dedup": "bloom ids=200k rate=0.1% window=1h"},
    "exact": {"dedup": "exact ids=200k window=1h"},
    "redis": {"dedup": "redis url={redis} name=test window=1h ids=200k"},
    "postgres": {"dedup": "postgres name=test window=1h", "take": 1},
}


@pytest.fixture
def effect_table(database):
    database.execute("create table effect (n bigserial, id text, key text, payload text, partition int)")
    return lambda: database.execute("select id, key, payload, partition from effect order by n")


@pytest.fixture
def redis_server():
    with Redis() as server:
        yield server


@pytest.mark.rotated
@pytest.mark.long
@pytest.mark.parametrize("store", STORES)
def test_whoever_dies_each_message_has_its_effect_in_order(
        kafka3, database, effect_table, chance, scale, tmp_path, redis_server, store):
    topic = kafka3.create_topic(f"inbox-{store}", partitions=6)
    settings = {**STORES[store], "dedup": STORES[store]["dedup"].format(redis=redis_server.url)}
    table = store == "postgres"
    effects = Effects()
    if table:
        settings |= {"dsn": database.dsn, "concurrency": 16}  # a connection each
    else:
        settings |= {"path": None if store == "redis" else tmp_path / "state", "effects": effects.path}

    def all_effects():
        return effect_table() if table else [
            (effect.id, effect.key, effect.payload, effect.partition) for effect in effects.all()]

    kills = scale(300, default=10)
    ends = ["killed"] * kills + ["asked", "stopped", "broker"] * max(1, kills // 20) + [
        "add_partition", "make_anew"]
    chance.shuffle(ends)
    with Fleet(kafka3, topic, chance, all_effects, **settings) as fleet:
        with Input(kafka3.bootstrap, topic, chance) as made:
            for end in ends:
                fleet.strike(end, made)
                if end != "killed" or chance.random() < 0.3:
                    fleet.goes_on(made)
        until_all(all_effects, made.ids, lambda missing: fleet.state(missing, made))
        wait_committed(kafka3.bootstrap, topic, topic,
                       {partition: high for (_, partition), (_, high)
                        in topic_ranges(kafka3.bootstrap, [topic]).items()}, timeout=120)
    judge(all_effects(), made, fleet.deaths, shared=store in ("redis", "postgres"), exact=table)


def until_all(effects, ids, where=lambda missing: ""):
    """where(ids): for the error, what is known of the ids that have no effect."""
    def missing():
        return set(ids) - {effect[0] for effect in effects()}

    wait_for(lambda: not missing(), 300, interval=0.5, what=lambda:
             f"an effect of each id (missing: {len(missing())}; {where(missing())})")


def judge(effects, made, deaths, shared, exact):
    """A key whose partition changes, because some were added, has an order in each of them, and a store
    of the consumer's own knows the copies of its partition."""
    assert {effect[0] for effect in effects} == set(made.ids)
    times = collections.Counter((id, None if shared else partition)
                                for id, _, _, partition in effects)
    twice = sum(count - 1 for count in times.values())
    print(f"{len(made.ids)} ids, {deaths} deaths, {twice} effects more than once")
    if exact:
        assert twice == 0, [place for place, count in times.items() if count > 1][:10]
    assert twice <= deaths * HOLE
    wrong = out_of_order((id, (key, partition), payload) for id, key, payload, partition in effects)
    assert not wrong, wrong[:10]


def test_one_that_stood_still_for_longer_than_its_session_hands_out_nothing(kafka, topic):
    """Though it has messages ready, and was polled not long ago."""
    count, effects = 60, Effects()
    produce(kafka.bootstrap, topic,
            [(f"id-{i}", f"k{i}", f"seq={i} slow=200", 0) for i in range(count)])
    settings = {"dedup": None, "concurrency": 1, "effects": effects.path,
                "kafka": {"session.timeout.ms": 1500, "heartbeat.interval.ms": 300}}
    with Inbox(kafka.bootstrap, topic, [topic], **settings) as first:
        wait_for(lambda: effects.all(), 60, "its first effect")
        first.pause()
        again = len(effects.all()) - max(committed(kafka.bootstrap, topic, topic)[0], 0)
        with Inbox(kafka.bootstrap, topic, [topic], **settings) as second:
            wait_for(lambda: any(effect.pid == second.process.pid for effect in effects.all()), 60,
                     "an effect of the other one")
            first.resume()
            effects.wait_ids(f"id-{i}" for i in range(count))
            first.wait_stats(rebalances=2)
    assert len(effects.all()) <= count + again + 1  # that was in progress


def test_what_goes_to_another_consumer_is_not_pending_until_a_lease_ends(kafka, topic, redis_server):
    """The first one has claimed all that waits in its memory, for longer than this test takes."""
    count, effects = 60, Effects()
    produce(kafka.bootstrap, topic, [(f"id-{i}", f"k{i}", f"seq={i} slow=200") for i in range(count)])
    settings = {"dedup": f"redis url={redis_server.url} name=test window=1h ids=10k lease=10m",
                "concurrency": 1, "effects": effects.path,
                "kafka": {"session.timeout.ms": 6000, "heartbeat.interval.ms": 300}}
    with Inbox(kafka.bootstrap, topic, [topic], **settings) as first:
        wait_for(lambda: effects.all(), 60, "its first effect")
        with Inbox(kafka.bootstrap, topic, [topic], **settings) as second:
            effects.wait_ids(f"id-{i}" for i in range(count))
            assert second.stats()["handled"] > 0 and first.stats()["handled"] > 0
    assert len(effects.all()) == count


def test_a_partition_whose_leader_is_away_holds_up_no_other(kafka3, tmp_path):
    topic = kafka3.create_topic("inbox-leaders", partitions=3, replicas=1)
    produce(kafka3.bootstrap, topic,
            [(f"id-{i}", f"k{i}", f"seq={i}", i % 3) for i in range(60)])
    node = kafka3.leader(topic, 0)
    kafka3.kill(node)
    with Inbox(kafka3.bootstrap, topic, [topic], dedup="exact ids=10k window=1h",
               path=tmp_path / "state", effects=Effects().path) as inbox:
        inbox.wait_stats(handled=40, partitions=3, timeout=120)
        kafka3.start_nodes([node])
        inbox.wait_stats(handled=60, timeout=120)


# From a handler's end to the commit of its offset; those of the key log are not counting's.
STEPS = ["inbox_handled", "inbox_durable", "inbox_to_commit", "inbox_committed"]
LOG_STEPS = ["before_key_log_write", "after_key_log_write", "before_dedup_offset"]
PARTITIONS = 2


def durable_offset(folder):
    """What stands in the store's files: everything below it was synced to the disk."""
    status, output, error = run_command(["dedup", "stat", "--json", folder])
    assert status == 0, error
    offset = json.loads(output)["offset"]
    return -1 if offset is None else int(offset)


def known_of(line, folder, ids):
    """Those that a store knows to be done, which nobody has open."""
    with Dedup(f"{line} path={folder}") as dedup:
        known = {id for id, state in zip(ids, dedup.check(*ids)) if state == "done"}
        dedup.kill()  # it has left nothing there
    return known


def death(store, step):
    """Of all steps one is tried each time, but for the one that shows an offset ahead of its ids."""
    always = step == "before_dedup_offset"
    return pytest.param(store, step, marks=[] if always else pytest.mark.rotated)


@pytest.mark.parametrize("store, step", [
    *(death(store, step) for store in ("bloom", "exact") for step in STEPS + LOG_STEPS),
    *(death("counting", step) for step in STEPS)])
def test_killed_between_two_steps_no_offset_is_ahead_of_a_durable_id(
        kafka, tmp_path, chance, store, step):
    """At each death: every id before a committed offset is in the store; and whatever is in it then is
    not handled again."""
    topic = kafka.create_topic(f"inbox-steps-{store}-{step}", PARTITIONS)
    lossy = {"counting": "lossy rate=0.1%", "bloom": "rate=0.1%"}
    line = f"{store} ids=100k window=1h {lossy.get(store, '')}"
    effects = Effects()
    settings = {"dedup": line, "path": tmp_path / "state", "effects": effects.path,
                "commit_every_ms": 50, "concurrency": CONCURRENCY,
                "kafka": {"session.timeout.ms": 1500, "heartbeat.interval.ms": 300}}
    made = [(f"id-{i}", f"k{i % KEYS}", f"seq={i}") for i in range(3000)]
    produce(kafka.bootstrap, topic, made)
    ids = [{}, {}]  # of each partition, by offset
    for record in read_topics(kafka.bootstrap, [topic]):
        ids[record.partition][record.offset] = header(record, "outbox-id")

    def judge_death(before):
        """The ids that are durable."""
        durable = set()
        for partition in range(PARTITIONS):
            folder = tmp_path / f"state/{topic}/{topic}-{partition}/dedup"
            offset, _ = committed(kafka.bootstrap, topic, topic, partition)
            past = {id for at, id in ids[partition].items() if at < offset}
            if not folder.exists():
                assert not past
                continue
            assert offset <= max(durable_offset(folder), 0)  # where it begins is committed before
            known = known_of(line, folder, list(ids[partition].values()))
            assert past <= known, f"{len(past - known)} of {len(past)} before {offset} are forgotten"
            assert known <= before or store == "counting", "known, and without an effect"
            durable |= known
        return durable

    deaths, durable, again, seen = 0, set(), 0, []
    while len(set(seen)) < 1000:
        inbox = Inbox(kafka.bootstrap, topic, [topic], delay=20,
                      env={"OUTBOX_RELAY_FAULT": f"{step}:{chance.randint(2, 8)}"}, **settings)
        # a fast one has done all in fewer commits
        wait_for(lambda: not inbox.running or len({effect.id for effect in effects.all()}) == 3000,
                 60, "its death", interval=0.2)
        inbox.kill()
        deaths += 1
        fresh = [effect.id for effect in effects.all()][len(seen):]
        assert not durable.intersection(fresh)
        again += len(set(seen).intersection(fresh))
        seen += fresh
        durable = judge_death(set(seen))
    with Inbox(kafka.bootstrap, topic, [topic], **settings) as inbox:
        produce(kafka.bootstrap, topic, made)  # a copy of each
        effects.wait_ids(id for id, _, _ in made)
        wait_committed(kafka.bootstrap, topic, topic,
                       {p: high for (_, p), (_, high)
                        in topic_ranges(kafka.bootstrap, [topic]).items()})
    assert not durable.intersection(effect.id for effect in effects.all()[len(seen):])
    print(f"{deaths} deaths, {len(durable)} durable at the last, {again} effects more than once")
    assert not effects.out_of_order()
    kafka.delete_topic(topic)


REPORT_STEPS = [*STEPS[:2], "inbox_to_report", "inbox_reported", *STEPS[2:]]


@pytest.mark.parametrize("dedup", [None, "bloom ids=100k rate=0.1% window=1h"])
def test_killed_between_two_steps_no_offset_is_ahead_of_a_report(kafka, database, tmp_path, chance, scale, dedup):
    """At each death: every message before a committed offset was reported as done. In the end all are."""
    topic = kafka.create_topic(f"inbox-reports-{'dedup' if dedup else 'none'}", PARTITIONS)
    events = [event for first in range(0, 2000, 500) for event, in database.execute(
        """select outbox.publish(%s, key => n::text, payload => 'x'::text, unique_key => n::text, within => '1 day',
           while_pending => 'done')::text from generate_series(%s, %s) n""", (topic, first, first + 499))]
    produce(kafka.bootstrap, topic, [(event, f"k{i % KEYS}", "x") for i, event in enumerate(events)])
    ids = [{}, {}]  # of each partition, by offset
    for record in read_topics(kafka.bootstrap, [topic]):
        ids[record.partition][record.offset] = header(record, "outbox-id")
    settings = {"dedup": dedup, "path": tmp_path / "state", "effects": Effects().path, "commit_every_ms": 20,
                "concurrency": CONCURRENCY, "report": f"postgres dsn={database.dsn}",
                "kafka": {"session.timeout.ms": 1500, "heartbeat.interval.ms": 300}}

    def reported():
        return {event for event, in database.execute(
            "select event_id::text from outbox.unique_ledger where message_id is null")}

    for step in chance.sample(REPORT_STEPS, scale(len(REPORT_STEPS), 2)):
        inbox = Inbox(kafka.bootstrap, topic, [topic], delay=20,
                      env={"OUTBOX_RELAY_FAULT": f"{step}:{chance.randint(2, 6)}"}, **settings)
        # a fast one has done all in fewer commits
        wait_for(lambda inbox=inbox: not inbox.running or reported() == set(events), 60, "its death", interval=0.2)
        inbox.kill()
        offsets = [committed(kafka.bootstrap, topic, topic, partition)[0] for partition in range(PARTITIONS)]
        past = {id for partition, offset in enumerate(offsets)
                for at, id in ids[partition].items() if at < offset}
        assert past <= reported(), f"{len(past - reported())} of {len(past)} are not reported"
    with Inbox(kafka.bootstrap, topic, [topic], **settings):
        wait_for(lambda: reported() == set(events), 60, "all reports")
    kafka.delete_topic(topic)
