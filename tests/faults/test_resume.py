"""What a new owner finds in Kafka already, and a database that went back in time."""

import os
import shutil
import subprocess

import pytest

from support.destinations import known_destinations
from support.auditor import (
    audit, committed_messages, count_records, read_topics, topic_ranges)
from support.postgres import Postgres
from support.process import wait_for

MEMORY = 64 * 2**20
LEASE = "4s"  # which a slow machine keeps
NEWEST = "SELECT epoch, owner FROM outbox.progress"


def epoch_of(database):
    return database.execute(NEWEST)[0][0]


def die_with_records_unnoted(relay, writers):
    """Killed when rows are in Kafka and not in the log."""
    relay.stop()
    writers.huge_transaction(1000)
    relay.start(OUTBOX_RELAY_FAULT="after_acknowledgement")
    assert relay.wait(60) == -9


def test_the_next_owner_skips_what_is_there(make_relay, make_writers, judge):
    relay = make_relay(publisher_lease=LEASE, publisher_ack_interval="60s").wait_ready()
    writers = make_writers(connections=2, keys=20)
    writers.run(50)
    die_with_records_unnoted(relay, writers)
    relay.start()
    judge(1, 20_000, none=True)
    relay.wait_for(lambda: relay.metric("relay_skipped_total"), what="the figure")
    relay.wait_for(lambda: relay.metric("relay_tails_read_total"), what="the figure of the tails")


def test_nothing_is_looked_for_without_resume(make_relay, make_writers, judge):
    relay = make_relay(publisher_lease=LEASE, publisher_ack_interval="60s", publisher_resume="none").wait_ready()
    writers = make_writers(connections=2, keys=20)
    writers.run(50)
    die_with_records_unnoted(relay, writers)
    relay.start()
    assert judge(1, 20_000).duplicates > 0
    relay.wait_for(lambda: relay.metric("relay_published_total"), what="the figures of the worker")
    assert relay.metric("relay_skipped_total") == relay.metric("relay_tails_read_total") == 0


def test_rows_that_others_wrote_to_the_same_topic_are_no_rows_of_ours(
        database, kafka, topic, make_relay, make_writers, until_published):
    """Positions of another publisher, of a publisher of this name in another database, of an older version, of
    nobody, and text that is none, between the relay's own."""
    relay = make_relay(publisher_lease=LEASE, publisher_ack_interval="60s").wait_ready()
    writers = make_writers(connections=2, keys=20)
    writers.run(50)
    die_with_records_unnoted(relay, writers)
    epoch = epoch_of(database)
    rows = database.execute("SELECT id, event_id FROM outbox.message")
    identity, = database.execute("SELECT left(identity::text, 8) FROM outbox.publisher")[0]
    rest = f"0:{epoch}:1:{rows[-1][0]}"
    headers = [("outbox-position", f"2:other:{identity}:{rest}"),
               ("outbox-position", f"2:main:{identity[::-1]}:{rest}"),
               ("outbox-position", f"2:main:{identity.upper()}x:{rest}"),
               ("outbox-position", f"1:main:{rest}"),
               ("outbox-position", "nonsense"), ("outbox-position", ""), ("outbox-id", "")]
    for name, value in headers:
        subprocess.run(["kcat", "-P", "-b", kafka.bootstrap, "-t", topic,
                        "-H", f"outbox-id={rows[-1][1]}", "-H", f"{name}={value}"],
                       input=b"x\n" * 50, check=True)
    relay.start()
    until_published()
    assert count_records(kafka.bootstrap, [topic]) == len(rows) + 50 * len(headers)
    assert relay.events("history_rewound") == []
    assert epoch_of(database) == epoch


@pytest.mark.rotated("tails")
def test_a_tail_that_lost_its_beginning_is_told(
        database, kafka, topic, make_relay, make_writers, until_published):
    relay = make_relay(publisher_lease=LEASE, publisher_ack_interval="60s").wait_ready()
    writers = make_writers(connections=2, keys=20)
    writers.run(50)
    die_with_records_unnoted(relay, writers)
    ends = topic_ranges(kafka.bootstrap, [topic])
    kafka.delete_records({place: end for place, (_, end) in ends.items()})
    assert count_records(kafka.bootstrap, [topic]) == 0
    relay.start()
    until_published()
    relay.wait_event("tail_cut")
    assert count_records(kafka.bootstrap, [topic]) > 0


@pytest.mark.rotated("tails")
def test_a_topic_made_anew_begins_a_new_epoch(
        database, kafka, topic, make_relay, make_writers, until_published):
    """Consumers must not take its records for old ones, whose positions they have seen."""
    relay = make_relay().wait_ready()
    writers = make_writers(connections=2, keys=20)
    writers.run(300)
    until_published()
    before = epoch_of(database)
    assert relay.stop() == 0
    kafka.delete_topic(topic)
    kafka.create_topic(topic)
    gone = len(writers.committed)
    relay.start().wait_event("topic_recreated", topic=topic)
    writers.run(200)
    until_published()
    assert epoch_of(database) != before
    assert count_records(kafka.bootstrap, [topic]) == len(writers.committed) - gone


@pytest.fixture
def own_postgres():
    with Postgres() as server:
        yield server


def restored(server, copy):
    """The data folder as it was when `copy` was made: a disk snapshot put back."""
    shutil.rmtree(server.data)
    shutil.copytree(copy, server.data, symlinks=True)
    if server.user:
        subprocess.run(["chown", "-R", server.user, server.data], check=True)
    server.start()


@pytest.mark.rotated("tails")
def test_a_disk_snapshot_put_back_is_noticed_and_loses_nothing(
        own_postgres, database, kafka, topic, make_relay, make_writers, until_published):
    own_postgres.create_database("shop")
    shop = type(database)(own_postgres, "shop").migrate()
    relay = make_relay(database_url=shop.dsn, publisher_lease=LEASE).wait_ready()
    writers = make_writers(dsn=shop.dsn, connections=2, keys=20)
    writers.run(300)
    until_published(database=shop)
    assert relay.stop() == 0

    noted = count_records(kafka.bootstrap, [topic])
    # rows that are committed and not published when the snapshot is taken
    writers.run(100)
    survivors = shop.execute("SELECT count(*) FROM outbox.message")[0][0]
    own_postgres.stop()
    copy = os.path.join(own_postgres.folder, "copy")
    shutil.copytree(own_postgres.data, copy, symlinks=True)
    own_postgres.start()
    before = epoch_of(shop)
    relay.start()
    writers.run(200)
    until_published(database=shop)
    in_kafka = count_records(kafka.bootstrap, [topic])
    assert relay.stop() == 0
    own_postgres.stop()
    restored(own_postgres, copy)

    relay.start()
    relay.wait_event("history_rewound")
    later = make_writers(dsn=shop.dsn, connections=2, keys=20, prefix="later")
    later.run(100)
    until_published(database=shop)
    assert epoch_of(shop) != before
    # what survived is in Kafka once, what was lost is there too, and nothing new was skipped
    verdict = audit(committed_messages(shop.dsn), read_topics(kafka.bootstrap, [topic]),
                    same_epoch=False)
    assert verdict.lost == 0 and verdict.duplicates == 0, verdict
    assert count_records(kafka.bootstrap, [topic]) == in_kafka + len(later.committed)
    assert verdict.phantom == in_kafka - survivors > 0, verdict
    assert sum(int(event["records"]) for event in relay.events("lost_history")) == in_kafka - noted


@pytest.mark.rotated("tails")
def test_a_new_owner_reads_no_more_than_what_came_since_the_partition_was_silent(
        database, kafka, topic, make_relay, make_writers, judge):
    """An idle owner notes how far the partitions of others' records have grown, some rows later."""
    relay = make_relay(publisher_lease="1s").wait_ready()
    make_writers(connections=2, keys=20).run(50)
    judge(0, 0)

    def offsets():
        return known_destinations(database)[topic].offsets

    noted = offsets()
    subprocess.run(["kcat", "-P", "-b", kafka.bootstrap, "-t", topic, "-p", "3"],
                   input=b"x\n" * 1000, check=True)
    wait_for(lambda: offsets()[3] == noted.get(3, -1) + 1000, 120, "the noted end")
    assert {**offsets(), 3: 0} == {**noted, 3: 0}


MIB = 2**20


def take_over_with_records_unnoted(rows, delivery, database, topic, make_relay, make_writers,
                                   until_published, copy_of):
    """A relay on a copy of the database, made before `rows` rows of it were published."""
    settings = {"publisher_lease": LEASE, "publisher_memory": "1MiB", "publisher_max_in_flight": "1000",
                "publisher_delivery": delivery}
    relay = make_relay(**settings).wait_ready()
    writers = make_writers(connections=2, keys=20)
    writers.run(20)
    until_published()
    assert relay.stop() == 0
    writers.huge_transaction(rows)
    copy = copy_of(database)
    relay.start()
    until_published()
    assert relay.stop() == 0
    return copy, make_relay(database_url=copy.dsn, **settings)


@pytest.mark.parametrize("delivery, isolation", [
    ("at-least-once", "read_uncommitted"), ("exactly-once", "read_committed")])
def test_very_many_records_that_are_not_noted_are_found_within_the_memory(
        delivery, isolation, database, kafka, topic, make_relay, make_writers, until_published,
        copy_of, scale):
    """The copy's log knows of none of them; 1 MiB of memory holds a small part of their names."""
    rows = scale(300_000)
    copy, relay = take_over_with_records_unnoted(
        rows, delivery, database, topic, make_relay, make_writers, until_published, copy_of)
    # new rows of the same keys come meanwhile, behind the others
    later = make_writers(dsn=copy.dsn, connections=2, keys=20, prefix="later")
    later.run(50)
    until_published(database=copy)
    # A worker copies its figures to the metrics every 100 ms, so they follow the log's row.
    relay.wait_for(lambda: relay.metric("relay_skipped_total") >= rows, what="the figure")
    skipped, peak = relay.metric("relay_skipped_total"), relay.process.peak_memory()
    print(f"{skipped:.0f} rows found, peak memory {peak / MIB:.1f} MiB")
    verdict = audit(committed_messages(copy.dsn), read_topics(kafka.bootstrap, [topic], isolation),
                    same_epoch=False)
    print(verdict)
    assert verdict.lost == 0 and verdict.duplicates == 0 and verdict.phantom == 0, verdict
    assert skipped == rows
    assert peak < MEMORY
