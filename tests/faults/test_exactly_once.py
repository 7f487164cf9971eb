"""delivery = exactly-once: what a reader of committed records sees, once each, through faults."""

import time

import pytest
from confluent_kafka import Producer

from faults.test_owners import fleet, let_the_owner_sleep, wait_for_owner
from support.auditor import read_topics

EXACT = {"publisher_delivery": "exactly-once"}
TIMEOUT = 10  # transaction.timeout.ms, unless it is configured
BRIEF = {**EXACT, "publisher_lease": "1s"}  # where it runs out again and again


@pytest.fixture
def judge_once(judge, request):
    def judged(**options):
        verdict = judge(0, 0, none=True, isolation="read_committed", **options)
        for relay in request.node.relays:  # owners that follow each other are no copies of a database
            assert relay.events("identity_shared") == []
        return verdict

    return judged


def test_records_come_once_and_in_order(make_relay, make_writers, judge_once, scale):
    relay = make_relay(**EXACT).wait_ready()
    writers = make_writers(connections=4, keys=50)
    writers.run(scale(20_000))
    writers.huge_transaction(50_000)
    judge_once()
    assert relay.metric("relay_skipped_total") == 0


def test_an_owner_that_wakes_up_doubles_nothing(
        database, make_relay, make_writers, judge_once, scale):
    """It stops with a transaction open, or about to be committed."""
    relays = fleet(make_relay, 2, **{**EXACT, "publisher_lease": "2s"})
    with make_writers(connections=4, keys=50, rate=300):
        for _ in range(scale(20)):
            let_the_owner_sleep(database, relays)
    judge_once()


@pytest.mark.rotated("transactions")
def test_a_refused_record_takes_nothing_with_it(
        kafka, database, topic, make_relay, make_writers, until_published, chance):
    """The transaction it was in is lost, and its rows come in the next ones."""
    kafka.alter_topic(topic, max_message_bytes=20_000)
    # Batches fit: of a broker that refuses whole batches, what is behind only grows.
    relay = make_relay(**EXACT, publisher_retry_first="10m", publisher_retry_max="10m",
                       kafka_batch_size=10_000).wait_ready()
    with make_writers(connections=4, keys=50, rate=200) as writers:
        for number in range(5):
            # of bytes that compression does not make fewer
            database.execute(
                "select outbox.publish(%s, %s::text, %s::bytea)",
                (topic, f"large-{number}", chance.randbytes(30_000)))
            relay.wait_for(lambda: relay.metric("relay_parked_total") == number + 1,
                           what="the row that is parked")
    writers.run(200)
    relay.wait_for(lambda: relay.metric("relay_parked_rows") == 5, what="five parked rows")
    until_published()
    records = read_topics(kafka.bootstrap, [topic], "read_committed")
    assert len(list(records)) == len(writers.committed) > 200


def test_a_transaction_that_nobody_ends_holds_readers_back_no_longer_than_its_time(
        kafka, topic, make_relay, make_writers):
    """Killed with everything sent and nothing committed, and nobody takes over. By default 60 s."""
    relay = make_relay(**EXACT).wait_ready()
    relay.stop()
    writers = make_writers(connections=2, keys=20)
    writers.run(50)
    relay.start(OUTBOX_RELAY_FAULT="before_commit_transaction")
    assert relay.wait(60) == -9
    killed = time.monotonic()
    foreign = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    for partition in range(6):
        foreign.produce(topic, value="of somebody else", partition=partition)
    assert foreign.flush(30) == 0
    assert len(list(read_topics(kafka.bootstrap, [topic]))) == 6 + len(writers.committed)
    assert len(list(read_topics(kafka.bootstrap, [topic], "read_committed"))) == 6
    assert time.monotonic() - killed < TIMEOUT + 15


@pytest.mark.rotated("transactions")
def test_a_foreign_transaction_that_stays_open_is_waited_for(
        kafka, topic, make_relay, make_writers, judge_once, until_published):
    """A record of ours that was committed behind it cannot be seen, and is not sent again."""
    relay = make_relay(**BRIEF).wait_ready()
    writers = make_writers(connections=2, keys=20)
    writers.run(50)
    until_published()
    foreign = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "foreign",
                        "log_level": 0})
    foreign.init_transactions(30)
    foreign.begin_transaction()
    for partition in range(6):
        foreign.produce(topic, value="of somebody else", partition=partition)
    assert foreign.flush(30) == 0
    published = relay.metric("relay_published_total")
    writers.run(50)
    relay.wait_for(lambda: relay.metric("relay_published_total") > published, what="more records")
    relay.kill()
    relay.start()
    relay.wait_event("tail_not_read")
    assert not relay.metric("relay_published_total")
    foreign.abort_transaction(30)
    judge_once()


def test_two_that_made_their_producer_at_once_settle(
        database, make_relay, make_writers, judge_once, scale):
    """Kills of whoever owns the shard, with two more that want it."""
    relays = fleet(make_relay, 3, **BRIEF)
    with make_writers(connections=4, keys=50, rate=200):
        for _ in range(scale(30)):
            owner = wait_for_owner(database, relays)
            owner.kill()
            wait_for_owner(database, [relay for relay in relays if relay is not owner])
            owner.start().wait_ready()
    judge_once()
