"""Kafka is stopped, killed, paused, rolled: the relay waits, in bounded memory, and goes on."""

import time

import pytest

MEMORY = 64 * 1024 * 1024  # bytes resident, with the default setting of 24 MiB for rows
MAX_IN_FLIGHT = 2000
# librdkafka looks for a broker that was away after up to 10 s.
SETTINGS = {"publisher_max_in_flight": MAX_IN_FLIGHT, "kafka_reconnect_backoff_max_ms": 500}


def until_it_publishes(relay):
    """Some more than until now."""
    before = relay.metric("relay_published_total") or 0
    relay.wait_for(lambda: (relay.metric("relay_published_total") or 0) > before,
                   what="more records")


def peak_memory(relay):
    peak = relay.process.peak_memory()
    print(f"peak memory {peak / 2**20:.1f} MiB")
    return peak


@pytest.fixture
def outage(full):
    """outage(): as long as Kafka is away."""
    return lambda: time.sleep(60 if full else 3)


@pytest.mark.rotated("short")
@pytest.mark.long
@pytest.mark.parametrize("end", ["stop_node", "kill"])
def test_a_broker_that_is_away_is_waited_for(
        end, fragile_kafka, make_relay, make_writers, judge, outage, scale):
    relay = make_relay(**SETTINGS).wait_ready()
    writers = make_writers(connections=4, rate=50)
    with writers:
        until_it_publishes(relay)
        getattr(fragile_kafka, end)(1)
        writers.huge_transaction(scale(500_000))
        relay.wait_for(lambda: relay.readiness_says(503, "Kafka is away"), what="unreadiness")
        assert relay.get("/livez")[0] == 200
        outage()
        fragile_kafka.start_node(1)
        relay.wait_ready()
        until_it_publishes(relay)
    # The broker knows the producer again and sorts out what it has already.
    assert judge(0, MAX_IN_FLIGHT).duplicates == 0
    assert peak_memory(relay) < MEMORY


@pytest.mark.rotated("short")
@pytest.mark.parametrize("stall_after, anew", [("60s", False), ("2s", True)])
def test_a_broker_that_stands_still_is_waited_for(
        stall_after, anew, fragile_kafka, make_relay, make_writers, judge, outage, scale):
    """Connections stay and nothing answers; the watchdog makes a new producer if it is set so."""
    relay = make_relay(**SETTINGS, publisher_stall_after=stall_after).wait_ready()
    writers = make_writers(connections=4, rate=50)
    with writers:
        until_it_publishes(relay)
        fragile_kafka.pause()
        writers.huge_transaction(scale(500_000))
        outage()
        if anew:
            relay.wait_event("producer_recreated")
        fragile_kafka.resume()
        until_it_publishes(relay)
    verdict = judge(0, MAX_IN_FLIGHT)
    relay.wait_for(lambda: bool(relay.metric("relay_producer_recreations_total")) == anew, what="the metric")
    assert anew or verdict.duplicates == 0
    assert peak_memory(relay) < MEMORY


@pytest.mark.rotated("short")
def test_a_stop_gives_up_what_a_broker_does_not_take_before_it_hands_over(
        fragile_kafka, make_relay, make_writers, judge):
    relay = make_relay(**SETTINGS).wait_ready()
    writers = make_writers(connections=4)
    with writers:
        until_it_publishes(relay)
        fragile_kafka.pause()
        # Not all of it: rows of a partition whose tail is still to be read count in its last part.
        relay.wait_for(lambda: relay.metric("relay_in_flight") > MAX_IN_FLIGHT / 2,
                       what="a queue that fills")
    assert relay.stop() == 0
    events = [event["event"] for event in relay.events()]
    assert events.index("producer_recreated") < events.index("shard_left")
    assert "there is no time left" in relay.output()
    fragile_kafka.resume()
    make_relay(**SETTINGS)
    judge(1, MAX_IN_FLIGHT)


def all_in_sync(kafka, topic):
    return all(kafka.in_sync(topic, partition) == set(kafka.nodes) for partition in range(6))


@pytest.mark.rotated("leaders")
@pytest.mark.long
def test_a_killed_leader_loses_nothing(kafka3, make_relay, make_writers, judge, scale):
    topic = kafka3.create_topic("leaders")
    relay = make_relay(bootstrap=kafka3.bootstrap, **SETTINGS).wait_ready()
    writers = make_writers(topics=[topic], connections=4, rate=50)
    with writers:
        until_it_publishes(relay)
        for _ in range(scale(5, default=1)):
            leader = kafka3.leader(topic, 0)
            kafka3.kill(leader)
            writers.huge_transaction(scale(100_000))
            until_it_publishes(relay)
            kafka3.start_node(leader)
            relay.wait_for(lambda: all_in_sync(kafka3, topic), what="all replicas in sync")
    judge(0, MAX_IN_FLIGHT, topics=[topic], bootstrap=kafka3.bootstrap)
    assert peak_memory(relay) < MEMORY


@pytest.mark.rotated("leaders")
@pytest.mark.long
def test_a_rolled_cluster_loses_nothing(kafka3, make_relay, make_writers, judge):
    topic = kafka3.create_topic("rolled")
    relay = make_relay(bootstrap=kafka3.bootstrap, **SETTINGS).wait_ready()
    with make_writers(topics=[topic], connections=4, rate=50):
        until_it_publishes(relay)
        for node in kafka3.nodes:
            kafka3.stop_node(node)
            until_it_publishes(relay)
            kafka3.start_node(node)
            relay.wait_for(lambda: all_in_sync(kafka3, topic), what="all replicas in sync")
    judge(0, MAX_IN_FLIGHT, topics=[topic], bootstrap=kafka3.bootstrap)
    assert peak_memory(relay) < MEMORY


@pytest.mark.rotated("short")
@pytest.mark.long
def test_too_few_replicas_in_sync_are_waited_for(
        kafka3, make_relay, make_writers, judge, outage):
    """With two of three nodes gone acks=all is not to be had, nor a leader for most partitions."""
    topic = kafka3.create_topic("replicas")
    relay = make_relay(bootstrap=kafka3.bootstrap, **SETTINGS).wait_ready()
    writers = make_writers(topics=[topic], connections=4, rate=50)
    with writers:
        until_it_publishes(relay)
        for node in (1, 2):
            kafka3.kill(node)
        writers.huge_transaction(20_000)
        relay.wait_for(lambda: relay.metric("relay_in_flight") > 0, what="what waits")
        outage()
        for node in (1, 2):
            kafka3.start_node(node)
        until_it_publishes(relay)
    judge(0, MAX_IN_FLIGHT, topics=[topic], bootstrap=kafka3.bootstrap)
    assert peak_memory(relay) < MEMORY
