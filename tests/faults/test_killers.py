"""A message that kills the relay is found and parked, and a relay that is killed for other reasons
parks nothing.

What kills is a proxy: when bytes of the message come by, on their way from Postgres or to Kafka, it
kills the relay before they go on.
"""

import time

import pytest

from faults.test_postgres_faults import through
from support.auditor import payload, read_topics
from support.process import wait_for
from support.proxy import Proxy

MAX_IN_FLIGHT = 1000
NEEDLE = "this kills"
MOST_DEATHS = 12  # three of any kind and three alone, were it not for a machine that is slow
SETTINGS = {"publisher_max_in_flight": MAX_IN_FLIGHT, "publisher_lease": "1s",
            "kafka_compression_type": "none", "kafka_reconnect_backoff_max_ms": 500}
STATES = "SELECT convert_from(key, 'UTF8'), state FROM outbox.parked ORDER BY id"


@pytest.fixture
def write(database, chance):
    """write(topic, 3, "key!", "key"): three rows of other keys in front of, between and behind these; a
    key with "!" is one with a message that kills."""
    seqs = {}

    def in_one_transaction(topic, others, *names):
        rows = [f"other-{chance.randrange(50)}" for _ in range(others)]
        for name in names:
            rows += [name] + [f"other-{chance.randrange(50)}" for _ in range(others)]
        connection = database.connect(autocommit=False)
        with connection, connection.cursor() as cursor:
            for row in rows:
                key = row.rstrip("!")
                seqs[key] = seqs.get(key, 0) + 1
                cursor.execute(
                    "INSERT INTO outbox.message (topic, key, payload_bytes) VALUES (%s, %s, %s)",
                    (topic, key, payload(key, seqs[key], pad=NEEDLE if row != key else "-")))
        connection.close()
        return len(rows)

    return in_one_transaction


@pytest.fixture
def postgres_proxy(postgres):
    with Proxy(postgres.port) as proxy:
        yield proxy


class Supervised:
    """A relay that is started again whenever it is dead."""

    def __init__(self, relay, proxies):
        self.relay, self.proxies, self.deaths = relay, proxies, 0
        for proxy in proxies:
            proxy.watch(NEEDLE.encode(), relay.kill)

    def wait_for(self, condition, what):
        def holds():
            if not self.relay.running:
                self.deaths += 1
                assert self.deaths <= MOST_DEATHS, self.relay.process.tail()
                self.relay.start()
            return condition()

        wait_for(holds, 120, what, interval=0.05)

    def spare(self):
        for proxy in self.proxies:
            proxy.heal()


@pytest.mark.rotated
@pytest.mark.long
@pytest.mark.parametrize("dies, delivery", [
    ("when it reads", "at-least-once"), ("when it sends", "at-least-once"),
    ("when it sends", "exactly-once")])
def test_a_message_that_kills_the_relay_is_parked_and_no_other(
        dies, delivery, database, kafka3, postgres_proxy, make_relay, write, command, judge):
    topic = kafka3.create_topic(database.name)
    brokers = [node.proxy for node in kafka3.nodes.values()]
    relay = make_relay(
        **SETTINGS, publisher_delivery=delivery, bootstrap=kafka3.bootstrap_proxied,
        database_url=through(postgres_proxy, database)).wait_ready()
    supervised = Supervised(relay, [postgres_proxy] if dies == "when it reads" else brokers)
    total = write(topic, 40, "bad!", "bad", "good", "bad")
    supervised.wait_for(lambda: database.execute(STATES) == [
        ("bad", "dead"), ("bad", "behind"), ("bad", "behind")], "the parked rows")
    print(f"{supervised.deaths} deaths")
    assert supervised.deaths >= 6
    assert "with this message alone in flight" in relay.wait_event("message_parked")[0]["error"]
    assert relay.wait_event("one_at_a_time")
    more = write(topic, 20, "bad", "good")

    def arrived():
        records = read_topics(kafka3.bootstrap, [topic], "read_committed")
        return len({(record.key, record.payload) for record in records}) == total + more - 4

    supervised.wait_for(arrived, "all others")
    deaths = supervised.deaths
    supervised.spare()
    command("parked", "retry", "--all", "--reason", "it is mended", "--yes")
    relay.wait_for(lambda: not database.execute(STATES), what="an empty table")
    verdict = judge(deaths, MAX_IN_FLIGHT, topics=[topic], bootstrap=kafka3.bootstrap,
                    isolation="read_committed")
    assert verdict.committed == total + more


@pytest.mark.rotated
@pytest.mark.long
@pytest.mark.parametrize("kafka_is", ["well", "paused"])
def test_a_relay_that_is_killed_again_and_again_parks_nothing(
        kafka_is, database, fragile_kafka, topic, make_relay, write, chance, scale, judge):
    relay = make_relay(**SETTINGS).wait_ready()
    write(topic, 100, "good")
    relay.wait_for(lambda: relay.metric("relay_published_total"), what="the first records")
    if kafka_is == "paused":
        fragile_kafka.pause()
    deaths = scale(40, default=8)
    for _ in range(deaths):
        taken = len(relay.events("shard_taken"))
        write(topic, 50, "good")
        relay.kill()
        relay.start()
        relay.wait_event("shard_taken", count=taken + 1)
        relay.wait_for(lambda: relay.get("/livez")[0] == 200, what="some life")
        time.sleep(chance.uniform(0, 0.6))  # the random moment itself
    fragile_kafka.resume()
    judge(deaths, MAX_IN_FLIGHT)
    assert not database.execute(STATES)
