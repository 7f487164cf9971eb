"""One table, two publishers, two Kafka clusters that know nothing of each other: both get every row in
order, neither waits for the other, and rows stay until both have them."""

import json

import pytest

from support.auditor import audit_topics, count_messages, count_records
from support.kafka import Kafka
from support.process import wait_for
from support.relay import run_command

OLD_LEAF = "message_p20200101"
CONFIG = """
[postgres]
upkeep_interval = 200ms
retain = 1h

[kafka "second"]
bootstrap.servers = {second}
reconnect.backoff.max.ms = 200

[publisher "main"]
timestamp = publish
lease = 4s

[publisher "copy"]
kafka = second
timestamp = publish
lease = 4s
"""


@pytest.fixture(scope="module")
def second():
    with Kafka() as cluster:
        yield cluster


@pytest.fixture
def settings(database, kafka, second, topic, tmp_path):
    """Of commands; the topic is in both clusters, the publisher `copy` begins with the first row."""
    second.create_topic(topic)
    path = tmp_path / "relay.ini"
    path.write_text(CONFIG.format(second=second.bootstrap))
    settings = {"DATABASE_URL": database.dsn, "OUTBOX_RELAY_CONFIG": str(path),
                "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap}
    assert run_command(["publisher", "create", "copy"], settings)[0] == 0
    return settings


@pytest.fixture
def make(make_relay, settings):
    """A relay that publishes both publishers."""
    return lambda **more: make_relay(config=settings["OUTBOX_RELAY_CONFIG"], **more)


def write(database, topic, count, created="clock_timestamp()"):
    database.execute(
        "insert into outbox.message (topic, key, payload, created_at) select %s,"
        f" 'k' || n %% 10, n::text, {created}"
        " from generate_series(1, %s) n", (topic, count))


def pending(database, publisher):
    return database.execute("select count(*) from outbox.message_state"
                            " where publisher = %s and state = 'pending'", (publisher,))[0][0]


def assert_clean(settings):
    for publisher in ("main", "copy"):
        status, output, error = run_command(["verify", "--json", "--publisher", publisher], settings)
        assert status == 0, output + error
        verdict = json.loads(output)
        assert verdict["committed"] == verdict["published"] == verdict["acknowledged"]


def test_both_clusters_get_every_row_in_the_order_of_its_key(
        database, kafka, second, topic, settings, make, make_writers):
    relay = make().wait_ready()
    with make_writers(connections=4, rate=300) as writers, writers.held_open():
        relay.wait_for(lambda: all((relay.metric("relay_published_total", publisher=publisher) or 0) > 500
                                   for publisher in ("main", "copy")), what="records in both")
    relay.wait_for(lambda: pending(database, "main") == pending(database, "copy") == 0,
                   what="the last row")
    relay.stop()
    for cluster in (kafka, second):
        verdict = audit_topics(database.dsn, cluster.bootstrap, [topic])
        assert verdict.correct and verdict.published == verdict.committed > 500, verdict
        assert verdict.duplicates == 0
    assert_clean(settings)


@pytest.mark.rotated("away")
def test_a_cluster_that_is_away_stops_its_own_publisher_only(
        database, kafka, second, topic, settings, make, make_writers):
    def in_the_first():
        return count_records(kafka.bootstrap, [topic]) == count_messages(database.dsn)

    writers = make_writers(connections=4)
    relay = make().wait_ready()
    writers.run(50)
    relay.wait_for(lambda: pending(database, "copy") == 0, what="rows in the second cluster")
    before = count_messages(database.dsn)
    second.kill()
    writers.run(200)
    relay.wait_for(in_the_first, what="the first cluster's records while the second is away")
    assert pending(database, "copy") == count_messages(database.dsn) - before > 200
    # the same for a relay that begins with the second cluster away
    relay.wait_for(lambda: pending(database, "main") == 0, what="the first publisher's progress")
    relay.kill()
    relay.start()
    writers.run(200)
    relay.wait_for(in_the_first, what="records of a relay that never saw the second cluster")
    relay.wait_for(lambda: pending(database, "main") == 0, what="the first publisher's progress")
    assert pending(database, "copy") == count_messages(database.dsn) - before
    second.start_node(1)
    relay.wait_for(lambda: pending(database, "copy") == 0, what="the second cluster's records")
    relay.stop()
    for cluster in (kafka, second):
        verdict = audit_topics(database.dsn, cluster.bootstrap, [topic])
        assert verdict.correct and verdict.published == verdict.committed, verdict
    assert_clean(settings)


@pytest.mark.rotated("away")
def test_a_partition_stays_until_both_clusters_have_its_rows(
        database, kafka, second, topic, settings, make):
    assert database.execute("select outbox.partition_make('message', '2020-01-01 00:00Z',"
                            " '2020-01-02 00:00Z')") == [("made",)]
    write(database, topic, 20, "'2020-01-01 12:00Z'")
    second.kill()
    relay = make()
    relay.wait_for(lambda: pending(database, "main") == 0, what="the first publisher's progress")
    assert count_records(kafka.bootstrap, [topic]) == 20
    relay.wait_event("partition_held", partition=OLD_LEAF, holder="copy/0")
    assert database.execute("select outbox.partition_holder(%s), outbox.partition_empty(%s)",
                            (OLD_LEAF, OLD_LEAF)) in ([("copy/0", "held")], [("copy/0", "busy")])
    leaves = "select count(*) from outbox.partitions('message') where name = %s"
    assert database.execute(leaves, (OLD_LEAF,)) == [(1,)]
    assert database.execute("select count(*) from outbox.message") == [(20,)]
    second.start_node(1)
    relay.wait_for(lambda: database.execute(leaves, (OLD_LEAF,)) == [(0,)],
                   what="the end of the partition")
    wait_for(lambda: count_records(second.bootstrap, [topic]) == 20, 30, "20 records")
