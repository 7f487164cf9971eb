"""From a business transaction to its effect in another one: outbox, relay, Kafka, inbox, with nothing in
their places, while relay, broker, consumer and Postgres are killed in turn. What was committed has its
effect, once, and those of a key in the order of their commits."""

import itertools
import time

import psycopg2
import pytest

from support.auditor import committed_messages
from support.inbox import Inbox, out_of_order
from support.process import wait_for

MAX_IN_FLIGHT = 500
CONSUMERS = 2
KAFKA = {"session.timeout.ms": 1500, "heartbeat.interval.ms": 300, "reconnect.backoff.max.ms": 500}
EFFECTS = "select id, key, payload from effect order by n"


@pytest.fixture
def effects(database, fragile_postgres):
    """effects(): (event id, key, payload) in the order in which they came; None while Postgres is away."""
    database.execute(
        "create table effect (n bigserial, id text, key text, payload text, partition int)")

    def all_effects():
        try:
            return database.execute(EFFECTS)
        except psycopg2.OperationalError:
            return None

    return all_effects


class System:
    """Its parts, each of which can be killed, and is started again."""

    def __init__(self, relay, cluster, postgres, consumers, chance):
        self.relay, self.cluster, self.postgres = relay, cluster, postgres
        self.consumers, self.chance = consumers, chance
        self.deaths = 0

    def kill_relay(self):
        self.deaths += 1
        self.relay.kill()
        self.relay.start()

    def kill_broker(self):
        number = self.chance.choice(list(self.cluster.nodes))
        self.cluster.kill(number)
        self.cluster.start_nodes([number])

    def kill_consumer(self):
        consumer = self.chance.choice(self.consumers)
        consumer.kill()
        consumer.start()

    def kill_postgres(self):
        self.deaths += 1
        self.postgres.kill()
        self.postgres.start()

    PARTS = (kill_relay, kill_consumer, kill_broker, kill_consumer, kill_postgres, kill_consumer)


@pytest.mark.long
def test_what_is_committed_has_its_effect_once(
        kafka3, database, fragile_postgres, effects, make_relay, make_writers, chance, scale, judge):
    topic = kafka3.create_topic(database.name)
    relay = make_relay(publisher_max_in_flight=MAX_IN_FLIGHT, publisher_lease="1s",
                       kafka_reconnect_backoff_max_ms=500, bootstrap=kafka3.bootstrap)
    consumers = [Inbox(kafka3.bootstrap, topic, [topic], dedup="postgres name=test window=1h", take=1,
                       dsn=database.dsn, concurrency=16, delay=10, commit_every_ms=100,
                       drain_ms=2000, retry_most_ms=500, kafka=KAFKA) for _ in range(CONSUMERS)]
    system = System(relay, kafka3, fragile_postgres, consumers, chance)

    def goes_on():
        before = len(effects() or [])
        wait_for(lambda: len(effects() or []) > before + 20, 120, "effects that go on", interval=0.2)

    try:
        until = time.monotonic() + scale(600, default=15)
        with make_writers([topic], connections=4, rate=60) as writers:
            for number, kill in enumerate(itertools.cycle(System.PARTS), start=1):
                goes_on()
                time.sleep(chance.uniform(0, 0.3))  # the random moment itself
                kill(system)
                if time.monotonic() > until and number >= len(System.PARTS):
                    break
            goes_on()
        assert writers.rolled_back > 0
        judge(system.deaths, MAX_IN_FLIGHT, topics=[topic], bootstrap=kafka3.bootstrap)
        committed = {message.event_id: message for message in committed_messages(database.dsn)}
        wait_for(lambda: len({id for id, _, _ in effects()}) >= len(committed), 120,
                 "an effect of each message", interval=0.5)
    finally:
        for consumer in consumers:
            consumer.close()
    had = effects()
    print(f"{len(committed)} messages, {system.deaths} deaths of relay and Postgres")
    assert len(had) == len(committed)
    assert {id: (key, body) for id, key, body in had} == {
        id: (text(message.key), text(message.payload)) for id, message in committed.items()}
    assert not out_of_order(had)


def text(data):
    return None if data is None else data.decode()
