"""The relay is killed again and again, between every two steps of the look-back and at random, while the
workers of a business prepare and decide, die, say things twice, in another order, or both things.

The business keeps the barrier, so that its own database says what each id has to come to. What the relay
had to say of the rest follows from the look-back topic itself, read by the test from its first record.
"""

import asyncio
import collections
import json
import pathlib
import random
import threading
import time

import psycopg2
import pytest

from support.auditor import read_topics
from support.business import Business
from support.lookback import Application, configuration
from support.process import wait_for

BARRIER = pathlib.Path(__file__).resolve().parents[2] / "sql" / "barrier" / "postgres.sql"
ROLLED_BACK, DONE_BEFORE = "LB001", "LB002"
VERBS = ("commit", "rollback")
KEYS = 10
READER = ["before_lookback_known", "before_lookback_apply", "after_lookback_apply"]
CHECKER = ["after_lookback_claim_sent", "after_lookback_claim", "after_lookback_question",
           "after_lookback_answer", "before_lookback_settle", "after_lookback_settle_sent",
           "after_lookback_settle"]
PUBLISHER = ["before_produce", "after_produce", "after_acknowledgement", "before_log_call",
             "after_log_call"]
POINTS = READER + CHECKER + PUBLISHER
MAX_IN_FLIGHT = 500


class Died(Exception):
    """A worker, at this place: nothing of what would follow happens."""


class Shop:
    """The business: its database, the workers that use it, and who answers for it."""

    def __init__(self, database, kafka, seed, said, orders):
        self.database, self.seed = database, seed
        database.execute(BARRIER.read_text())
        database.execute("create table shop_order (id text primary key)")
        self.application = Application(kafka.bootstrap, said, "order", orders)
        self.business = Business(self.answer)
        self.answering = None  # the connection of those who answer
        self.chance = random.Random(f"{seed}/answers")
        self.ended = threading.Event()
        self.failures, self.deaths = [], 0
        self.liars, self.reordered = set(), set()
        self.threads = []

    async def answer(self, biz_type, ids):
        await asyncio.sleep(self.chance.uniform(0, 0.05))
        if self.chance.random() < 0.1:
            return self.chance.choice([None, b"Object reference not set to an instance"])
        with self.answering.cursor() as cursor:
            cursor.execute("select biz_id, decision from lookback_check(%s, %s)", (biz_type, ids))
            said = dict(cursor.fetchall())
        if len(said) > 1 and self.chance.random() < 0.05:
            said.popitem()  # it is answered for, and nobody hears of it
        return said

    def open(self, workers):
        self.answering = self.database.connect()
        self.business.start()
        self.threads = [threading.Thread(target=self.work, args=(number,)) for number in range(workers)]
        for thread in self.threads:
            thread.start()

    def close(self):
        """Ends the workers; answers are given until end()."""
        self.ended.set()
        for thread in self.threads:
            thread.join()
        assert not self.failures, self.failures

    def end(self):
        self.ended.set()
        self.business.close()
        if self.answering:
            self.answering.close()

    def work(self, number):
        chance = random.Random(f"{self.seed}/{number}")
        worker = Worker(self, chance)
        try:
            for count in range(10**9):
                if self.ended.wait(chance.uniform(0, 0.3)):
                    return
                try:
                    worker.live(f"{number}-{count}")
                except Died:
                    self.deaths += 1
                    worker.die()
                    worker = Worker(self, chance)
        except Exception as failure:
            self.failures.append(failure)
        finally:
            worker.die()


class Worker:
    def __init__(self, shop, chance):
        self.shop, self.chance = shop, chance
        self.connection = shop.database.connect(autocommit=False)
        self.said = []  # records of the past, to be said once more

    def die(self):
        """As a process does: its transaction is undone by the server."""
        self.connection.close()

    def may_die(self, probability):
        if self.chance.random() < probability:
            raise Died

    def send(self, *records):
        """Some of them twice, and sometimes one of long ago with them."""
        twice = [record for record in records if self.chance.random() < 0.15]
        late = [self.chance.choice(self.said)] if self.said and self.chance.random() < 0.05 else []
        self.shop.application.send(*records, *twice, *late)
        self.said.extend(records)

    def prepared(self, id, **fields):
        """Payloads of one id differ only when the worker lies."""
        return self.shop.application.prepared(
            id, key=f"k{self.chance.randrange(KEYS)}", **{"payload": {"id": id}, **fields})

    def decided(self, id, verb):
        return self.shop.application.decided(id, verb)

    def live(self, id):
        dice = self.chance.random()
        if dice < 0.1:
            self.lie(id)
        elif dice < 0.2:
            self.reorder(id)
        else:
            self.send(self.prepared(id))
            self.may_die(0.05)
            self.send(self.decided(id, self.transaction(id)))

    def reorder(self, id):
        """As two producers do, or a network: the decision is there first."""
        self.shop.reordered.add(id)
        prepared, decided = self.prepared(id), self.decided(id, self.transaction(id, mortal=False))
        if self.chance.random() < 0.5:
            self.send(decided, prepared)
        else:
            self.send(decided)
            self.send(prepared)

    def lie(self, id):
        """It says both things, and may prepare two."""
        self.shop.liars.add(id)
        records = [self.decided(id, verb) for verb in self.chance.sample(VERBS, 2)]
        if self.chance.random() < 0.5:
            records.append(self.prepared(id, payload={"id": id, "another": True}))
        self.chance.shuffle(records)
        prepared = self.prepared(id)
        if self.chance.random() < 0.5:
            self.send(prepared, *records)
        else:
            self.send(prepared)
            for record in records:
                self.send(record)

    def transaction(self, id, mortal=True):
        """The business's own; returns what became of it."""
        cursor = self.connection.cursor()
        try:
            cursor.execute("select lookback_begin('order', %s)", (id,))
            cursor.execute("insert into shop_order (id) values (%s)", (id,))
            if self.chance.random() < 0.1:
                time.sleep(self.chance.uniform(0, 1))  # past the time at which it is asked for
            self.may_die(0.05 * mortal)
            if self.chance.random() < 0.2:
                self.connection.rollback()
                return "rollback"
            self.connection.commit()
        except psycopg2.Error as failure:
            assert failure.pgcode == ROLLED_BACK, failure
            self.connection.rollback()
            return "rollback"
        self.may_die(0.1 * mortal)
        return "commit"


class Said:
    """What stands in the look-back topic of one id, in the order of its offsets."""

    def __init__(self):
        self.prepares, self.decisions = [], []  # ((partition, offset), payload or verb, key)

    @staticmethod
    def read(records):
        found = collections.defaultdict(Said)
        for record in records:
            body = json.loads(record.payload)
            said, place = found[body["biz_id"]], (record.partition, record.offset)
            if body["op"] == "prepare":
                said.prepares.append((place, body["payload"], body["key"]))
            else:
                said.decisions.append((place, body["op"], None))
        return found


class Case:
    def __init__(self, database, kafka, shop, said_topic, orders_topic):
        self.database, self.kafka, self.shop = database, kafka, shop
        self.topics = said_topic, orders_topic

    def records(self, topic):
        return list(read_topics(self.kafka.bootstrap, [topic]))

    def judge(self):
        said = Said.read(self.records(self.topics[0]))
        assert all(one.prepares for one in said.values())  # or nothing could become of it
        wait_for(lambda: self.database.execute(
            "SELECT count(*) FROM outbox.lookback WHERE kind = 'decision'")[0][0] >= len(said),
            240, "a decision of each id")
        self.read_up(said)
        rows = self.database.execute(
            "SELECT biz_id, decision, source FROM outbox.lookback WHERE kind = 'decision'")
        kept = {id: decision for id, decision, _ in rows}
        sources = {id: source for id, _, source in rows}
        assert len(rows) == len(kept) and kept.keys() == said.keys()
        assert self.database.execute("SELECT count(*) FROM outbox.lookback_overdue") == [(0,)]

        honest = kept.keys() - self.shop.liars
        orders = {id for id, in self.shop.database.execute("select id from shop_order")}
        assert {id for id in honest if kept[id] == "commit"} == orders
        for id, one in said.items():
            if sources[id] == "message":
                assert kept[id] == one.decisions[0][1], id  # the first that was said
            elif id in self.shop.liars:
                assert (kept[id], sources[id]) == ("rollback", "check"), id
        self.judge_conflicts(said, kept)
        return said, kept, sources

    def read_up(self, said):
        ends = collections.Counter()
        for one in said.values():
            for (partition, offset), *_ in one.prepares + one.decisions:
                ends[partition] = max(ends[partition], offset + 1)
        wait_for(lambda: dict(ends) == dict(self.database.execute(
            "SELECT partition, max(next_offset) FROM outbox.lookback_log GROUP BY partition")),
            120, "the reader at the end of the topic")

    def judge_conflicts(self, said, kept):
        """Each record that came too late with something else is noted, once, and nothing more."""
        found = self.database.execute(
            "SELECT biz_id, kept, refused, source, source_partition, source_offset "
            "FROM outbox.lookback_conflict")
        of_decisions = sorted((partition, offset, id, refused)
                              for id, _, refused, source, partition, offset in found
                              if source == "message" and refused != "prepare")
        assert of_decisions == sorted((*place, id, verb) for id, one in said.items()
                                      for place, verb, _ in one.decisions if verb != kept[id])
        of_prepares = sorted((partition, offset, id) for id, _, refused, _, partition, offset in found
                             if refused == "prepare")
        assert of_prepares == sorted(
            (*place, id) for id, one in said.items() for place, *content in one.prepares
            if content != list(one.prepares[0][1:]))
        of_answers = {id for id, _, _, source, *_ in found if source == "check"}
        assert of_answers <= self.shop.liars
        print(f"{len(of_decisions)} decisions, {len(of_prepares)} prepares and {len(of_answers)} "
              f"answers came too late and were noted")
        assert of_decisions and of_prepares

    def judge_messages(self, said, kept, sources):
        """Behind the judge of what was published: what was prepared first, in the order in which
        each look-back partition brought the decisions of a key."""
        places, order = {}, collections.defaultdict(list)
        for record in self.records(self.topics[1]):
            payload = json.loads(record.payload)
            id, key = payload["id"], record.key.decode()
            assert (payload, key) == said[id].prepares[0][1:], id
            if places.setdefault(id, record.offset) != record.offset:
                continue
            if sources[id] == "message" and id not in self.shop.reordered | self.shop.liars:
                place, *_ = said[id].decisions[0]
                order[key, place[0]].append(place[1])
        assert places.keys() == {id for id, decision in kept.items() if decision == "commit"}
        for found in order.values():
            assert found == sorted(found)
        return sum(map(len, order.values()))


@pytest.fixture
def case(database, empty_database, kafka, seed):
    said, orders = (kafka.create_topic(f"lookback_kills_{word}", 3) for word in ("said", "orders"))
    shop = Shop(empty_database, kafka, seed, said, orders)
    yield Case(database, kafka, shop, said, orders)
    shop.end()


def kill_at(relay, point, chance):
    if point:
        relay.start(OUTBOX_RELAY_FAULT=f"{point}:{chance.randrange(1, 5)}")
        assert relay.wait(120) == -9, point
    else:
        relay.start()
        time.sleep(chance.uniform(0, 3))  # the random moment itself
        relay.kill()


@pytest.mark.long
def test_kills_at_every_step_and_at_random_leave_each_id_with_the_decision_of_its_business(
        case, make_relay, judge, chance, scale):
    path = configuration(
        ("check \"shop\"", {
            "url": case.shop.business.url, "networks": "127.0.0.1", "batch": 20, "timeout": "1s",
            "retry_first": "100ms", "retry_max": "500ms", "pending_every": "200ms",
            "max_attempts": 1_000_000, "breaker_pause": "200ms"}),
        ("lookback \"shop\"", {
            "types": "order", "topic": case.topics[0], "group": "kills", "check": "shop",
            "check_after": "300ms", "claim": "2s", "batch": 50}))
    relay = make_relay(arguments=("run", "--config", path), kafka_session_timeout_ms=1500,
                       kafka_heartbeat_interval_ms=300, publisher_lease="1s",
                       publisher_max_in_flight=MAX_IN_FLIGHT)
    relay.kill()
    kills = scale(200)
    at_random = max(kills // 4, kills % len(POINTS))
    points = [POINTS[number % len(POINTS)] for number in range(kills - at_random)]
    points += [None] * at_random
    chance.shuffle(points)
    case.shop.open(scale(50, default=12))
    try:
        for point in points:
            kill_at(relay, point, chance)
        relay.start()
    finally:
        case.shop.close()
    said, kept, sources = case.judge()
    verdict = judge(kills + 1, MAX_IN_FLIGHT, topics=[case.topics[1]], none=True)
    ordered = case.judge_messages(said, kept, sources)
    print(f"{kills} kills, {case.shop.deaths} deaths of workers, {len(said)} ids, "
          f"{verdict.committed} committed, {ordered} of them in an order that counts; decided by "
          f"{dict(collections.Counter(sources.values()))}")
    assert case.shop.deaths and set(sources.values()) == {"message", "check"}
