"""Thousands of topics: take-overs, memory, topics that are closed and used again."""

import os
import subprocess

import pytest

from support.auditor import audit, committed_messages, read_topics
from support.destinations import known_destinations
from support.kafka import Kafka

MIB = 1 << 20
LONG = 540
SOURCE = os.path.join(os.path.dirname(__file__), "../support/bare_producer.c")
# a row for each partition, by its number: a record for each, whatever the keys
WRITE = """
    INSERT INTO outbox.message (topic, key, partition, payload)
    SELECT 'many-' || t, t || '/' || p, p, 'x'
    FROM generate_series(0, %s) p, generate_series(%s, %s) t"""
PUBLISHED = """
    SELECT cardinality(p.ticks) = 1 AND NOT EXISTS (SELECT FROM outbox.message m
        WHERE NOT pg_visible_in_snapshot(m.txid, p.ticks[1])) FROM outbox.progress p"""


@pytest.fixture(scope="module")
def many_kafka():
    """A broker of its own: it ends with its topics, which would take long to delete."""
    with Kafka(log_index_size_max_bytes=4096) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def bare_producer(tmp_path_factory):
    program = tmp_path_factory.mktemp("bare") / "bare_producer"
    subprocess.run(["cc", "-O2", "-o", program, SOURCE, "-lrdkafka"], check=True)
    return program


@pytest.fixture
def write(database):
    """write(first, last, partitions): a row for each partition of these topics."""
    return lambda first, last, partitions: database.execute(
        WRITE, (partitions - 1, first, last))


def judged(database, kafka, names, isolation="read_uncommitted"):
    verdict = audit(committed_messages(database.dsn),
                    read_topics(kafka.bootstrap, names, isolation))
    print(verdict)
    assert verdict.correct, verdict
    assert verdict.duplicates == 0, verdict


@pytest.mark.rotated
@pytest.mark.long
@pytest.mark.parametrize("topics, partitions", [(5000, 1), (1000, 12)], ids=["narrow", "wide"])
def test_take_overs_with_many_topics_in_use(
        topics, partitions, database, many_kafka, make_relay, bare_producer, write, scale):
    topics = scale(topics)
    names = [f"many-{number}" for number in range(1, topics + 1)]
    many_kafka.create_topics(names, partitions)
    try:
        relay = make_relay(bootstrap=many_kafka.bootstrap, publisher_lease="2s").wait_ready()

        def until_published(what):
            relay.wait_for(lambda: database.execute(PUBLISHED) == [(True,)], LONG, what)
            print(what, f"{relay.process.memory() / MIB:.1f} MiB")

        write(1, topics, partitions)
        until_published("the first rows")
        for _ in range(2):
            write(1, topics, partitions)
            relay.kill()
            relay = make_relay(bootstrap=many_kafka.bootstrap, publisher_lease="2s")
            write(1, topics, partitions)
            until_published("the rows after a take-over")
        judged(database, many_kafka, names)
        bare = int(subprocess.run(
            [bare_producer, many_kafka.bootstrap], check=True, text=True, stdout=subprocess.PIPE,
            input="".join(f"{name} {partitions}\n" for name in names)).stdout)
        print(f"bare producer {bare / MIB:.1f} MiB")
        peak = relay.process.peak_memory()
        print(f"peak {peak / MIB:.1f} MiB")
        assert peak - bare <= 64 * MIB
        most, = database.execute("SELECT max(pg_column_size(destinations)) FROM outbox.log")[0]
        assert most < 20_000
        assert relay.stop() == 0
    finally:
        many_kafka.delete_topics(names)


def test_topics_that_are_not_used_are_closed_and_opened_again(
        database, kafka, topic, make_relay, write, scale):
    """By their own relay, by the next one, and beside records of others on their partitions."""
    topics = scale(500)
    names = kafka.create_topics([f"many-{number}" for number in range(1, topics + 1)], 2)
    try:
        relay = make_relay(publisher_topic_idle="1s", publisher_lease="2s").wait_ready()

        def closed():
            known = known_destinations(database)
            return len(known) == topics and not any(each.open for each in known.values())

        for kills in (False, True, False):
            write(1, topics, 2)
            relay.wait_for(lambda: database.execute(PUBLISHED) == [(True,)], what="the rows")
            relay.wait_for(closed, what="the end of all topics")
            if kills:
                relay.kill()
                relay = make_relay(publisher_topic_idle="1s", publisher_lease="2s")
        judged(database, kafka, names)
    finally:
        kafka.delete_topics(names)


def test_a_producer_is_exchanged_between_transactions(
        database, many_kafka, make_relay, write):
    """Most of its topics were closed; records go on, and none comes twice."""
    topics = 420  # more than PRODUCER_FEW_TOPICS for one of two producers, which take turns
    names = many_kafka.create_topics([f"many-{number}" for number in range(1, topics + 1)], 1)
    try:
        relay = make_relay(bootstrap=many_kafka.bootstrap, publisher_topic_idle="1s",
                           publisher_delivery="exactly-once").wait_ready()
        for exchanges in (1, 2):
            write(1, topics, 1)

            def exchanged():
                write(1, 3, 1)  # traffic at the moment of the exchange
                relay.wait_for(lambda: database.execute(PUBLISHED) == [(True,)], what="the rows")
                return len(relay.events("producer_slimmed")) >= exchanges

            relay.wait_for(exchanged, timeout=180, what=f"exchange {exchanges}")
        write(1, topics, 1)
        relay.wait_for(lambda: database.execute(PUBLISHED) == [(True,)], what="the rows")
        judged(database, many_kafka, names, "read_committed")
    finally:
        many_kafka.delete_topics(names)


@pytest.mark.rotated
@pytest.mark.parametrize("pooled", [False, True], ids=["direct", "pooled"])
def test_topics_that_are_gone_leave_the_list(
        pooled, database, request, kafka, topic, make_relay, write, scale):
    """In use or closed long ago."""
    topics = scale(200)
    names = kafka.create_topics([f"many-{number}" for number in range(1, topics + 1)], 1)
    through = {}
    if pooled:
        pooler = request.getfixturevalue("pgbouncer")
        through = {"database_url": pooler.dsn(database.name)}
    relay = make_relay(publisher_topic_idle="1s", publisher_lease="2s", **through).wait_ready()
    write(1, topics, 1)
    relay.wait_for(lambda: database.execute(PUBLISHED) == [(True,)], what="the rows")
    assert set(known_destinations(database)) == set(names)
    kafka.delete_topics(names)
    relay.wait_for(lambda: known_destinations(database) == {}, what="the end of destinations")
    kafka.create_topics(names[:1], 1)
    try:
        write(1, 1, 1)
        relay.wait_for(lambda: database.execute(PUBLISHED) == [(True,)], what="the rows")
        assert len(list(read_topics(kafka.bootstrap, names[:1]))) == 1
    finally:
        kafka.delete_topics(names[:1])
