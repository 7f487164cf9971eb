"""Writers who do not ring a relay that sleeps, or ring in vain: none of them fails, and each message is published once
and within a second. Only messages of the first second wait so long, since the relay polls after the first one.

The times are those of the broker and of this process, on one machine. Beside each case a witness takes the time of a
COMMIT and a record, which is what the way to Kafka costs besides: the machine may be busy with other tests.
"""

import contextlib
import io
import threading
import time
import uuid

import psycopg2
import pytest
from psycopg2.extras import wait_select

from confluent_kafka import Producer
from support.auditor import payload, read_topics, settle
from support.pgbouncer import PgBouncer
from support.postgres import Postgres
from support.process import wait_for

MOST_MS = 1000
AWAKE_MS = 200  # beside a relay that polls every poll_idle
BELL, RING, LEFT = 1, 2, 3
COLUMNS = "(event_id, topic, key, payload)"


class Shop:
    """Writes messages, and knows when each was committed."""

    def __init__(self, database, topic):
        self.database = database
        self.topic = topic
        self.keys = 0
        self.committed = {}  # event id -> milliseconds
        self.open_seconds = 5

    def message(self):
        """A new message, of a key of its own, as values of COLUMNS."""
        self.keys += 1
        key = f"key-{self.keys}"
        return str(uuid.uuid4()), self.topic, key, payload(key, 1).decode()

    def insert(self, cursor, table="outbox.message", columns=COLUMNS, values="(%s, %s, %s, %s)"):
        message = self.message()
        cursor.execute(f"insert into {table} {columns} values {values}", message)
        return message[0]

    def note(self, *event_ids):
        self.committed.update((event_id, time.time() * 1000) for event_id in event_ids)

    @contextlib.contextmanager
    def open_writer(self):
        """A transaction that has written. Yields (connection, event id)."""
        with contextlib.closing(self.database.connect(autocommit=False)) as connection:
            yield connection, self.insert(connection.cursor())

    def write(self, count=3, before=None, **where):
        """Messages one by one, each committed alone."""
        with contextlib.closing(self.database.connect()) as connection:
            cursor = connection.cursor()
            if before:
                cursor.execute(before)
            for _ in range(count):
                self.note(self.insert(cursor, **where))


@pytest.fixture
def database(quiet_database):
    return quiet_database


class Witness(threading.Thread):
    """Sends a record after a COMMIT, again and again, and knows how long that took at most."""

    def __init__(self, database, bootstrap, topic):
        super().__init__()
        self.longest_ms = 0
        self.done = threading.Event()
        self.connection = database.connect()
        self.producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
        self.topic = topic
        self.connection.cursor().execute("create table witness (at timestamptz)")

    def run(self):
        while not self.done.wait(0.01):
            began = time.monotonic()
            self.connection.cursor().execute("insert into witness values (now())")
            self.producer.produce(self.topic, b"x")
            self.producer.flush()
            self.longest_ms = max(self.longest_ms, 1000 * (time.monotonic() - began))

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.done.set()
        self.join()
        self.connection.close()


@pytest.fixture
def shop(kafka, database, topic, full):
    kafka.alter_topic(topic, message_timestamp_type="LogAppendTime")
    shop = Shop(database, topic)
    shop.open_seconds = 150 if full else 5  # the relay distrusts the doorbell for a minute
    return shop


@pytest.fixture
def witness(kafka, database, topic):
    other = kafka.create_topic(f"{topic}.witness", 1)
    with Witness(database, kafka.bootstrap, other) as witness:
        wait_for(lambda: witness.longest_ms, what="the first record")  # which waits for metadata
        witness.longest_ms = 0
        yield witness
    kafka.delete_topic(other)


def is_asleep(relay):
    return relay.metric("relay_bell_asleep") == 1


@contextlib.contextmanager
def stranger(database, lock, shared=""):
    """A session that holds a lock of the doorbell."""
    with contextlib.closing(database.connect()) as connection:
        connection.cursor().execute(
            f"select pg_advisory_lock{shared}('outbox.message'::regclass::oid::int4, {lock})")
        yield


def check(kafka, shop, witness=None):
    """Once; and in time, if there is a witness."""
    verdict = settle(shop.database.dsn, kafka.bootstrap, [shop.topic])
    assert verdict.correct and verdict.duplicates == 0, verdict
    assert verdict.committed == len(shop.committed), verdict
    if not witness:
        return

    waits = []  # (when it was committed, how long it waited)
    for record in read_topics(kafka.bootstrap, [shop.topic]):
        committed = shop.committed[dict(record.headers)["outbox-id"].decode()]
        waits.append((committed, record.timestamp[1] - committed))
    way = witness.longest_ms
    assert max(wait for _, wait in waits) <= MOST_MS + way, (way, sorted(waits))
    late = [committed for committed, wait in waits if wait > AWAKE_MS + way]
    assert not late or max(late) - min(late) <= MOST_MS + way, (way, sorted(waits))


def ringer_is_rolled_back(shop):
    with shop.open_writer() as (ringer, _):
        shop.write()
        ringer.rollback()


def ringer_is_killed(shop):
    with shop.open_writer() as (ringer, _):
        shop.write()
        shop.database.execute("select pg_terminate_backend(%s)", (ringer.get_backend_pid(),))


def ringer_stays_open(shop):
    """For seconds, or minutes: the relay has waited for a ring, polled, and tried to sleep again."""
    with shop.open_writer() as (ringer, event_id):
        end = time.monotonic() + shop.open_seconds
        while time.monotonic() < end:
            shop.write(1)
            time.sleep(0.3)
        ringer.commit()
        shop.note(event_id)


def ring_is_undone_by_a_savepoint(shop):
    with contextlib.closing(shop.database.connect(autocommit=False)) as connection:
        cursor = connection.cursor()
        cursor.execute("savepoint s")
        shop.insert(cursor)
        cursor.execute("rollback to s")
        event_id = shop.insert(cursor)
        shop.write()
        connection.commit()
        shop.note(event_id)


def writers_end_in_another_order(shop):
    with shop.open_writer() as (first, first_id), shop.open_writer() as (second, second_id), \
            shop.open_writer() as (third, third_id):
        for writer, event_id in ((second, second_id), (first, first_id), (third, third_id)):
            writer.commit()
            shop.note(event_id)


def trigger_is_disabled(shop):
    shop.database.execute("alter table outbox.message disable trigger outbox_bell")
    shop.write()


def writer_is_a_replica(shop):
    shop.write(before="set session_replication_role = replica")


def rows_go_to_a_partition(shop):
    shop.write(table="outbox.message_default", columns="(id, created_at, event_id, topic, key, payload)",
               values="(nextval('outbox.message_id_seq'), '2000-01-01', %s, %s, %s, %s)")


def queue_is_half_full(shop):
    shop.database.execute("create or replace function pg_catalog.pg_notification_queue_usage() "
                          "returns double precision language sql as 'select 0.6::double precision'")
    shop.write()


def stranger_rings(shop):
    with stranger(shop.database, RING):
        shop.write()


def rows_are_copied(shop):
    with contextlib.closing(shop.database.connect()) as connection:
        messages = [shop.message() for _ in range(100)]
        connection.cursor().copy_expert(
            f"copy outbox.message {COLUMNS} from stdin with (format csv, quote '~')",
            io.StringIO("".join(",".join([*message[:3], f"~{message[3]}~"]) + "\n" for message in messages)))
        shop.note(*(message[0] for message in messages))


CASES = [ringer_is_rolled_back, ringer_is_killed, ringer_stays_open, ring_is_undone_by_a_savepoint,
         writers_end_in_another_order, trigger_is_disabled, writer_is_a_replica, rows_go_to_a_partition,
         queue_is_half_full, stranger_rings, rows_are_copied]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_each_message_is_published_in_time_and_once(case, kafka, shop, witness, make_relay):
    relay = make_relay().wait_ready()
    shop.write(1)  # the relay knows the topic from now on
    relay.wait_for(lambda: relay.metric("relay_published_total") == 1 and is_asleep(relay), what="sleep")
    case(shop)
    check(kafka, shop, witness)
    assert relay.metric("relay_bell_missed_total") <= 1


@pytest.mark.parametrize("lock, shared", [(BELL, ""), (BELL, "_shared"), (RING, ""), (LEFT, "_shared")])
def test_a_lock_of_a_stranger_keeps_the_relay_awake(lock, shared, kafka, shop, make_relay):
    with stranger(shop.database, lock, shared):
        relay = make_relay().wait_ready()
        shop.write()
        check(kafka, shop)
        assert not is_asleep(relay)
    relay.wait_for(lambda: is_asleep(relay), what="sleep after the stranger")
    assert relay.metric("relay_bell_missed_total") == 0


def test_writers_behind_a_pooler_ring_and_leave_nothing_in_its_sessions(kafka, shop, database, make_relay):
    relay = make_relay().wait_ready()
    with PgBouncer(database.postgres) as pooler:
        for round_ in range(3):
            relay.wait_for(lambda: is_asleep(relay), what="sleep")
            with contextlib.closing(psycopg2.connect(pooler.dsn(database.name))) as connection:
                cursor = connection.cursor()
                shop.insert(cursor)
                with pytest.raises(psycopg2.errors.QueryCanceled):
                    cursor.execute("set local statement_timeout = 1; select pg_sleep(10)")
                connection.rollback()
                event_id = shop.insert(cursor)
                connection.commit()
                shop.note(event_id)
            relay.wait_for(lambda: relay.metric("relay_published_total") > round_, what="the message")
        relay.wait_for(lambda: is_asleep(relay), what="sleep at the end")
    check(kafka, shop)
    assert relay.metric("relay_bell_missed_total") == 0


# --- a server of their own --------------------------------------------------------------------------


@pytest.fixture
def large_database(make_database):
    """On a server that takes 600 connections."""
    with Postgres(max_prepared_transactions=0, max_connections=600) as server:
        server.create_database("large")
        yield make_database(server, "large").migrate()


def sleeping_relay(make_relay, shop):
    relay = make_relay(database_url=shop.database.dsn).wait_ready()
    shop.write(1)
    relay.wait_for(lambda: relay.metric("relay_published_total") == 1 and is_asleep(relay), what="sleep")
    return relay


def test_a_burst_of_500_connections_onto_a_sleeping_relay(large_database, kafka, topic, make_relay):
    kafka.alter_topic(topic, message_timestamp_type="LogAppendTime")
    shop = Shop(large_database, topic)
    with contextlib.ExitStack() as stack:
        writers = [stack.enter_context(contextlib.closing(psycopg2.connect(large_database.dsn, async_=True)))
                   for _ in range(500)]
        for writer in writers:
            wait_select(writer)
        sleeping_relay(make_relay, shop)
        cursors = [writer.cursor() for writer in writers]
        began = time.monotonic()
        for cursor in cursors:
            cursor.execute(f"insert into outbox.message {COLUMNS} values (%s, %s, %s, %s)"
                           " returning event_id::text, extract(epoch from clock_timestamp())::float8 * 1000",
                           shop.message())
        for cursor in cursors:
            wait_select(cursor.connection)  # raises what the server refuses
            shop.committed.update([cursor.fetchone()])
        burst_ms = 1000 * (time.monotonic() - began)
        check(kafka, shop)
        waits = [record.timestamp[1] - shop.committed[dict(record.headers)["outbox-id"].decode()]
                 for record in read_topics(kafka.bootstrap, [topic])]
        # On a busy machine a shard's own poll may come before a ring that took 500 ms, which counts as missed.
        assert max(waits) <= MOST_MS + burst_ms, (burst_ms, sorted(waits)[-10:])


@pytest.mark.full("writes 4 GB into the queue of NOTIFY")
def test_a_queue_that_is_more_than_half_full_fails_nobody(large_database, kafka, topic, make_relay):
    """A session that listens and idles in a transaction keeps all notifications of the cluster."""
    kafka.alter_topic(topic, message_timestamp_type="LogAppendTime")
    shop = Shop(large_database, topic)
    relay = sleeping_relay(make_relay, shop)
    with contextlib.closing(large_database.connect()) as listener:
        listener.cursor().execute("listen other")
        listener.cursor().execute("begin")
        listener.cursor().execute("select 1")
        while large_database.execute("select pg_notification_queue_usage() <= 0.5") == [(True,)]:
            # each fills a page of the queue
            large_database.execute("select pg_notify('flood', repeat('x', 4100) || g) from generate_series(1, 8000) g")
        assert is_asleep(relay)
        with Witness(large_database, kafka.bootstrap, kafka.create_topic(f"{topic}.witness", 1)) as witness:
            shop.write(10)
            check(kafka, shop, witness)
        assert relay.wait_event("bell_missed")[0]["reason"].startswith("the queue of NOTIFY is more than half full")


# --- prepared transactions --------------------------------------------------------------------------


@pytest.fixture
def prepared_database(postgres, migrated, topic, make_database):
    """A database of the tests' usual server, which allows PREPARE TRANSACTION."""
    postgres.create_database(topic, template=migrated())
    yield make_database(postgres, topic)
    postgres.drop_database(topic)


def test_writers_prepare_whoever_holds_the_bell(prepared_database, kafka, topic, make_relay):
    """There the relay does not take the bell by itself."""
    database = prepared_database
    shop = Shop(database, topic)
    kafka.alter_topic(topic, message_timestamp_type="LogAppendTime")
    make_relay(database_url=database.dsn).wait_ready()
    with stranger(database, BELL), contextlib.closing(database.connect()) as connection:
        cursor = connection.cursor()
        for number in range(3):
            name = f"{database.name}_{number}"
            cursor.execute("begin")
            event_id = shop.insert(cursor)
            cursor.execute(f"prepare transaction '{name}'")
            cursor.execute(f"commit prepared '{name}'")
            shop.note(event_id)
        check(kafka, shop)
