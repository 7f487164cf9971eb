"""Two databases whose publisher has the same name, and which publish to one topic: each relay, `verify` and
each consumer tells the records of one from those of the other."""

import collections
import json

import pytest

from support.auditor import audit, committed_messages, count_records, read_topics
from support.inbox import Effects, Inbox
from support.relay import run_command

LEASE = "4s"  # which a slow machine keeps
RELAY = {"publisher_lease": LEASE, "publisher_ack_interval": "60s"}
EPOCH = 7  # of both databases: nothing but the identity differs
DELIVERIES = {"at-least-once": "read_uncommitted", "exactly-once": "read_committed"}
IDENTITY = "SELECT left(identity::text, 8) FROM outbox.publisher"


@pytest.fixture
def databases(database, empty_database):
    """Both with the publisher `main`, made each by its own migration."""
    both = database, empty_database.migrate()
    for each in both:
        each.execute("UPDATE outbox.log SET epoch = %s", (EPOCH,))
    assert both[0].execute(IDENTITY) != both[1].execute(IDENTITY)
    return both


def die_with_records_unnoted(relay, writers, rows):
    relay.stop()
    writers.huge_transaction(rows)
    relay.start(OUTBOX_RELAY_FAULT="after_acknowledgement")
    assert relay.wait(60) == -9


def verdict_of(database, kafka, *arguments):
    status, output, error = run_command(
        ["verify", "--json", "--no-duplicates", *arguments],
        {"DATABASE_URL": database.dsn, "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap})
    assert status in (0, 1), error
    return status, json.loads(output)


@pytest.mark.rotated
@pytest.mark.parametrize("delivery", DELIVERIES)
def test_take_overs_in_both_double_and_skip_nothing(
        delivery, databases, kafka, topic, make_relay, make_writers, until_published, scale):
    rows = scale(10_000)
    relays = [make_relay(database_url=each.dsn, **RELAY, publisher_delivery=delivery).wait_ready()
              for each in databases]
    writers = [make_writers(dsn=each.dsn, connections=2, keys=20, prefix=prefix)
               for each, prefix in zip(databases, ("first", "second"))]
    effects = Effects()
    with Inbox(kafka.bootstrap, topic, [topic], dedup="sequence", effects=effects.path):
        for some in writers:
            some.start(100)
        for some in writers:
            some.join()
        for _ in range(scale(20, default=1)):
            for relay, some in zip(relays, writers):
                die_with_records_unnoted(relay, some, rows)
            # what the one left in Kafka stands between what the other one did
            for relay in relays:
                relay.start()
            for each in databases:
                until_published(database=each)
        messages = [message for each in databases for message in committed_messages(each.dsn)]
        verdict = audit(messages, read_topics(kafka.bootstrap, [topic], DELIVERIES[delivery]))
        print(verdict)
        assert verdict.correct and verdict.duplicates == 0, verdict
        had = collections.Counter(
            effect.id for effect in effects.wait_ids(message.event_id for message in messages))
        assert had == collections.Counter(message.event_id for message in messages)
        assert not effects.out_of_order()
    for relay, each in zip(relays, databases):
        for event in ("history_rewound", "lost_history", "identity_shared"):
            assert relay.events(event) == []
        assert each.execute("SELECT DISTINCT epoch FROM outbox.log") == [(EPOCH,)]
        assert relay.stop() == 0


def test_verify_judges_the_records_of_its_own_database(
        databases, kafka, topic, make_relay, make_writers, until_published):
    counts = []
    for each, prefix in zip(databases, ("first", "second")):
        relay = make_relay(database_url=each.dsn, **RELAY).wait_ready()
        counts.append(len(make_writers(dsn=each.dsn, keys=20, prefix=prefix).run(50).committed))
        until_published(database=each)
        assert relay.stop() == 0
    for each, own, others in zip(databases, counts, reversed(counts)):
        status, verdict = verdict_of(each, kafka)
        assert status == 0, verdict
        assert verdict["records"] == verdict["published"] == own
        assert verdict["records_of_others"] == others

    # a record of the other database makes up for none of one's own
    event_id, = databases[0].execute("SELECT event_id FROM outbox.message ORDER BY id LIMIT 1")[0]
    databases[1].execute("UPDATE outbox.message SET event_id = %s WHERE id = (SELECT min(id) FROM"
                         " outbox.message)", (event_id,))
    status, verdict = verdict_of(databases[1], kafka)
    assert status == 1 and verdict["lost"] == 1, verdict
    assert count_records(kafka.bootstrap, [topic]) == sum(counts)


NEW_IDENTITY = ("publisher", "rebase", "--all", "--new-identity", "--yes", "--reason", "a copy")


def records_of(database, kafka, topic, isolation):
    identity, = database.execute(IDENTITY)[0]
    return [record for record in read_topics(kafka.bootstrap, [topic], isolation)
            if dict(record.headers)["outbox-position"].startswith(f"2:main:{identity}:".encode())]


@pytest.mark.rotated
@pytest.mark.parametrize("delivery", DELIVERIES)
def test_a_copy_with_an_identity_of_its_own_does_not_disturb_its_original(
        delivery, database, kafka, topic, make_relay, make_writers, until_published, command, copy_of):
    """What the original had published comes from it alone, and what it had not from both."""
    settings = {**RELAY, "publisher_delivery": delivery}
    relay = make_relay(database_url=database.dsn, **settings).wait_ready()
    make_writers(keys=20).run(50)
    until_published()
    published = count_records(kafka.bootstrap, [topic])
    assert relay.stop() == 0
    last, committed = database.execute("SELECT max(id), count(*) FROM outbox.message")[0]
    make_writers(keys=20, prefix="pending").run(10)
    copy = copy_of(database)
    assert "a new identity" in command(*NEW_IDENTITY, database_url=copy.dsn)
    assert copy.execute(IDENTITY) != database.execute(IDENTITY)
    assert copy.execute(IDENTITY)[0][0] in command("publisher", "list", database_url=copy.dsn)

    both = [(relay.start(), database, "original"),
            (make_relay(database_url=copy.dsn, **settings), copy, "copy")]
    for some, each, prefix in both:
        writers = make_writers(dsn=each.dsn, connections=2, keys=20, prefix=prefix)
        writers.run(100)
        die_with_records_unnoted(some, writers, 500)
    for some, *_ in both:
        some.start()
    for some, each, _ in both:
        until_published(database=each)
        after = last if each is copy else 0
        verdict = audit(committed_messages(each.dsn, after_id=after),
                        records_of(each, kafka, topic, DELIVERIES[delivery]))
        assert verdict.correct and verdict.duplicates == 0, verdict
        for event in ("history_rewound", "lost_history", "identity_shared"):
            assert some.events(event) == []
        status, found = verdict_of(each, kafka)
        assert status == 0, found
        assert found["before_start"] == (committed if each is copy else 0)
        assert some.stop() == 0
    assert published >= committed


def test_two_copies_that_fence_each_other_are_told(
        database, kafka, topic, make_relay, make_writers, until_published, command, copy_of):
    """With exactly-once, and one transactional id."""
    copy = copy_of(database)
    settings = {**RELAY, "publisher_delivery": "exactly-once"}
    relays = [make_relay(database_url=each.dsn, **settings).wait_ready() for each in (database, copy)]
    with make_writers(keys=20, rate=100), make_writers(dsn=copy.dsn, keys=20, rate=100, prefix="copy"):
        relays[0].wait_for(lambda: any(relay.events("identity_shared") for relay in relays),
                           what="an owner that notices")
        event, = [event for relay in relays for event in relay.events("identity_shared")][:1]
        assert event["identity"] == database.execute("SELECT identity::text FROM outbox.publisher")[0][0]
        assert "--new-identity" in event["consequence"]
        assert relays[1].stop() == 0
        command(*NEW_IDENTITY, database_url=copy.dsn)
        before = [len(relay.events("producer_recreated")) for relay in relays]
        relays[1].start().wait_ready()
    for each in (database, copy):
        until_published(database=each)
    after = [[event["reason"] for event in relay.events("producer_recreated")][count:]
             for relay, count in zip(relays, before)]
    # what the last fence of the copy's former identity did may be told behind it
    assert len(after[0]) <= 1 and after[1] == [], after


def test_a_copy_that_finds_records_of_its_original_says_what_it_may_be(
        database, kafka, topic, make_relay, make_writers, until_published, copy_of):
    relay = make_relay(**RELAY).wait_ready()
    writers = make_writers(keys=20)
    writers.run(20)
    until_published()
    assert relay.stop() == 0
    copy = copy_of(database)
    relay.start().wait_ready()
    writers.run(50)
    until_published()
    other = make_relay(database_url=copy.dsn, **RELAY)
    assert "--new-identity" in other.wait_event("history_rewound")[0]["consequence"]
