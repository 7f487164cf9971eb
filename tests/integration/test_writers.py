"""Writers of every kind at once, and the auditor's verdict: nothing lost, nothing published that
rolled back, each key in order, nothing twice."""

import threading
from contextlib import contextmanager

import pytest

from support.auditor import audit, committed_messages, count_records, read_topics
from support.process import wait_for
from support.relay import run_command
from support.writers import Writers

LONG = 300  # seconds: the limit of a condition that only load delays


def committed_count(database, schema="outbox"):
    return database.execute(f"SELECT count(*) FROM {schema}.message")[0][0]


def all_arrived(relay, kafka, topics, count):
    relay.wait_for(lambda: count_records(kafka.bootstrap, topics) >= count, LONG,
                   f"the arrival of {count} messages")


def flawless(database, kafka, topics, schema="outbox"):
    """The verdict over everything; the relay must have been stopped."""
    verdict = audit(committed_messages(database.dsn, schema),
                    read_topics(kafka.bootstrap, topics))
    assert verdict.correct, verdict
    assert verdict.duplicates == 0, verdict
    assert verdict.records == verdict.published == verdict.committed, verdict
    return verdict


@contextmanager
def running(work, *arguments, **options):
    """Runs it in a thread beside the block; its failure is ours."""
    failures = []

    def guarded():
        try:
            work(*arguments, **options)
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=guarded, daemon=True)
    thread.start()
    yield thread
    thread.join(LONG)
    assert not thread.is_alive(), "it still works"
    if failures:
        raise failures[0]


@pytest.mark.long
def test_every_kind_of_writer_at_once(database, kafka, topic, make_relay, make_writers, scale):
    """One relay, eight connections on 200 keys, and beside them one huge transaction, two that were
    open all the while, and one whose ids were drawn before everything else."""
    relay = make_relay().wait_ready()
    writers = make_writers(rollback=0.15)
    with writers.held_open(), writers.unrelated_transaction():
        with running(writers.huge_transaction, scale(1_000_000)):
            writers.run(scale(20_000))
    all_arrived(relay, kafka, [topic], committed_count(database))
    assert relay.stop() == 0
    assert writers.rolled_back > 0
    verdict = flawless(database, kafka, [topic])
    assert verdict.committed == len(writers.committed) + scale(1_000_000)


@pytest.mark.rotated("shards")
def test_a_relay_that_begins_behind_writers_at_work(
        database, kafka, topic, make_relay, make_writers, scale):
    """Pages first, then windows that come with the tick, with no gap between the two."""
    writers = make_writers()
    writers.huge_transaction(scale(300_000))
    writers.run(scale(5000))
    with writers:
        relay = make_relay(publisher_memory="2MiB").wait_ready()
        backlog = committed_count(database)
        all_arrived(relay, kafka, [topic], backlog)
    all_arrived(relay, kafka, [topic], committed_count(database))
    assert relay.stop() == 0
    flawless(database, kafka, [topic])


@pytest.mark.rotated
@pytest.mark.parametrize("rows", [50, 5000])
def test_a_transaction_that_commits_a_days_worth_of_ids_late(
        database, kafka, topic, make_relay, make_writers, scale, rows):
    """Few late rows come with a tick; many are merged into pages by their old ids."""
    relay = make_relay().wait_ready()
    writers = make_writers()
    late = database.connect(autocommit=False)
    cursor = late.cursor()
    cursor.execute(
        "SELECT outbox.publish(%s::text, 'late-' || i %% 7,"
        " format('{\"key\": \"late-%%s\", \"seq\": %%s}', i %% 7, i))"
        " FROM generate_series(1, %s) i", (topic, rows))
    writers.run(scale(2000))
    writers.huge_transaction(scale(500_000))
    all_arrived(relay, kafka, [topic], committed_count(database))
    with writers:  # it commits among others
        seen = len(writers.committed)
        wait_for(lambda: len(writers.committed) > seen, LONG, "work")
        late.commit()
        wait_for(lambda: len(writers.committed) > seen + 100, LONG, "work after it")
    late.close()
    all_arrived(relay, kafka, [topic], committed_count(database))
    assert relay.stop() == 0
    verdict = flawless(database, kafka, [topic])
    assert verdict.committed == len(writers.committed) + scale(500_000) + rows


@pytest.mark.long
def test_through_pgbouncer_in_transaction_mode(
        database, pgbouncer, kafka, topic, make_relay, make_writers, scale):
    """Relay and writers both; nothing is left in a session that others get next."""
    dsn = pgbouncer.dsn(database.name)
    relay = make_relay(database_url=dsn).wait_ready()
    writers = make_writers(dsn=dsn, rollback=0.15)
    with writers.held_open(), writers.unrelated_transaction():
        with running(writers.huge_transaction, scale(1_000_000)):
            writers.run(scale(10_000))
    all_arrived(relay, kafka, [topic], committed_count(database))
    assert pgbouncer.prepared_statements(database.name) == set()
    assert relay.stop() == 0
    assert writers.rolled_back > 0
    flawless(database, kafka, [topic])


@pytest.mark.rotated("shards")
@pytest.mark.long
def test_a_publisher_is_split_and_joined_again_while_writers_run(
        database, kafka, topic, make_relay, make_writers):
    relays = [make_relay().wait_ready(), make_relay().wait_ready()]
    settings = {"DATABASE_URL": database.dsn}
    writers = make_writers(connections=6)
    with writers, writers.unrelated_transaction():
        for shards in (3, 5, 1):
            seen = count_records(kafka.bootstrap, [topic])
            relays[0].wait_for(lambda: count_records(kafka.bootstrap, [topic]) > seen, LONG,
                               "progress before the split")
            status, output, error = run_command(
                ["publisher", "split", "main", "--shards", shards], settings, timeout=LONG)
            assert (status, error) == (0, ""), f"{status}: {output} {error}"
            assert database.execute("SELECT shards FROM outbox.publisher") == [(shards,)]
            seen = count_records(kafka.bootstrap, [topic])
            relays[0].wait_for(lambda: count_records(kafka.bootstrap, [topic]) > seen, LONG,
                               f"progress with {shards} shards")
            for relay in relays:
                relay.wait_event("publisher_started", publisher="main", shards=str(shards))
    all_arrived(relays[0], kafka, [topic], committed_count(database))
    for relay in relays:
        assert relay.stop() == 0
    flawless(database, kafka, [topic])


@pytest.mark.rotated("shards")
def test_three_shards_share_the_work(database, kafka, topic, make_relay, make_writers, scale):
    for arguments in (["drop", "main", "--yes", "--reason", "other shards", "--force", "last"],
                      ["create", "main", "--shards", 3]):
        status, output, error = run_command(["publisher", *arguments], {"DATABASE_URL": database.dsn})
        assert status == 0, output + error
    relay = make_relay(publisher_shards=3).wait_ready()
    writers = make_writers()
    with writers.held_open():
        with running(writers.huge_transaction, scale(300_000)):
            writers.run(scale(5000))
    all_arrived(relay, kafka, [topic], committed_count(database))
    assert relay.stop() == 0
    flawless(database, kafka, [topic])
    assert database.execute("SELECT shard, count(*) > 1 FROM outbox.log GROUP BY shard ORDER BY 1"
                            ) == [(0, True), (1, True), (2, True)]


def test_a_schema_of_another_name(database, kafka, topic, make_relay, seed):
    """The whole way under another name; the outbox of the usual name beside it is left alone."""
    settings = {"DATABASE_URL": database.dsn, "OUTBOX_RELAY_POSTGRES_SCHEMA": "shop_events"}
    status, _, error = run_command(["migrate", "up"], settings)
    assert status == 0, error
    database.execute("SELECT outbox.publish(%s::text, 'key', 'not ours')", (topic,))
    relay = make_relay(postgres_schema="shop_events").wait_ready()
    writers = Writers(database.dsn, [topic], seed, schema="shop_events")
    with writers.held_open():
        writers.run(500)
    writers.huge_transaction(5000)
    all_arrived(relay, kafka, [topic], committed_count(database, "shop_events"))
    assert relay.stop() == 0
    flawless(database, kafka, [topic], "shop_events")
    assert database.execute("SELECT max(n) FROM outbox.log") == [(0,)]


def test_several_topics_with_keys_of_their_own(
        database, kafka, topic, make_relay, make_writers, scale):
    other = kafka.create_topic(topic + ".other", partitions=3)
    relay = make_relay().wait_ready()
    writers = make_writers(topics=[topic, other])
    writers.run(scale(3000))
    all_arrived(relay, kafka, [topic, other], len(writers.committed))
    assert relay.stop() == 0
    flawless(database, kafka, [topic, other])
    kafka.delete_topic(other)
