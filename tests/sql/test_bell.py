"""The trigger outbox_bell: a writer rings if, and only if, a relay sleeps.

A relay is played by a session that listens and holds lock 1 (sql/migrations/0017_bell.sql).
"""

import contextlib
import io
import random
import threading

import psycopg2
import pytest

from support.process import wait_for

INSERT = "insert into outbox.message (topic, key, payload) values ('t', 'k', 'x')"
BELL, RING, LEFT, PREPARED = 1, 2, 3, 4


class Sleeper:
    """The bell's session of a relay."""

    def __init__(self, database):
        self.connection = database.connect()
        self.cursor = self.connection.cursor()
        self.cursor.execute("select 'outbox.message'::regclass::oid::int8, 'outbox.message'::regclass::oid::int4")
        self.oid, self.key = self.cursor.fetchone()
        self.cursor.execute(f"listen outbox_bell_{self.oid}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.connection.close()

    def ask(self, function, lock):
        self.cursor.execute(f"select {function}({self.key}, {lock})")
        return self.cursor.fetchone()[0]

    def take(self, lock=BELL):
        return self.ask("pg_try_advisory_lock", lock)

    def release(self, lock=BELL):
        assert self.ask("pg_advisory_unlock", lock)

    def is_free(self, lock):
        return self.ask("pg_try_advisory_xact_lock", lock)

    def sleeps(self):
        assert self.take()
        return self

    def rings(self):
        """The rings of all transactions that were committed before, each as (channel, payload): the server keeps them
        in the order of the commits, so that a notification of our own is the last one."""
        self.cursor.execute(f"notify outbox_bell_{self.oid}, 'own'")
        wait_for(self._has_own, 30, "our own notification", interval=0.002)
        rings = [(ring.channel, ring.payload) for ring in self.connection.notifies]
        del self.connection.notifies[:]
        return rings[:-1]

    def _has_own(self):
        self.connection.poll()
        return any(ring.payload == "own" for ring in self.connection.notifies)

    @property
    def ring(self):
        return f"outbox_bell_{self.oid}", ""


@pytest.fixture
def relay(quiet_database):
    with Sleeper(quiet_database) as sleeper:
        yield sleeper


@pytest.fixture
def make_writer(quiet_database):
    """make_writer(): a cursor in a transaction of somebody who is an outbox_writer and nothing else."""
    made = []

    def make(role="outbox_writer"):
        made.append(quiet_database.connect(autocommit=False))
        cursor = made[-1].cursor()
        cursor.execute(f"set role {role}")
        made[-1].commit()
        return cursor

    yield make
    for connection in made:
        connection.close()


def commit(writer):
    writer.connection.commit()


def rollback(writer):
    writer.connection.rollback()


# --- the relay is awake ---------------------------------------------------------------------------


@pytest.mark.parametrize("end", [commit, rollback])
def test_a_relay_falls_asleep_after_the_transactions_that_found_it_awake(relay, make_writer, end):
    writer, other = make_writer(), make_writer()
    writer.execute(INSERT)
    other.execute(INSERT)
    assert not relay.take()
    end(writer)
    assert not relay.take()
    end(other)
    assert relay.take()
    assert relay.rings() == []


def test_what_is_rolled_back_to_a_savepoint_keeps_nobody_awake(relay, make_writer):
    writer = make_writer()
    writer.execute(f"savepoint s; {INSERT}; rollback to s")
    relay.sleeps()
    writer.execute(INSERT)
    commit(writer)
    assert relay.rings() == [relay.ring]


# --- the relay sleeps -----------------------------------------------------------------------------


def copy(writer):
    writer.copy_expert("copy outbox.message (topic, payload) from stdin", io.StringIO("t\tx\nt\ty\n"))


WAYS = {
    "insert": INSERT,
    "of many": "insert into outbox.message (topic) select 't' from generate_series(1, 1000)",
    "many": "do $$ begin for i in 1..100 loop insert into outbox.message (topic) values ('t'); end loop; end $$",
    "copy": copy,
    "function": "select outbox.publish('t', 'k', 'x')",
    "unique": "select outbox.publish('t', 'k', 'x', unique_key => 'u')",
    "batch": "select outbox.publish_batch('t', array['a', 'b'], array['x', 'y'])",
    "returning": INSERT + " returning id",
    "in a savepoint": f"savepoint s; {INSERT}; release s",
}


@pytest.mark.parametrize("level", ["read committed", "repeatable read", "serializable"])
def test_each_way_to_write_rings_once_and_when_it_is_committed(relay, make_writer, level):
    relay.sleeps()
    writer = make_writer()
    for name, way in WAYS.items():
        if name == "unique" and level != "read committed":
            continue  # is refused
        writer.execute(f"set transaction isolation level {level}")
        if callable(way):
            way(writer)
        else:
            writer.execute(way)
        assert relay.rings() == [], name
        commit(writer)
        assert relay.rings() == [relay.ring], name


def test_row_security_is_no_hindrance(quiet_database, relay, make_writer):
    quiet_database.execute("alter table outbox.message enable row level security;"
                  "create policy p on outbox.message for insert to outbox_writer with check (topic = 't')")
    relay.sleeps()
    writer = make_writer()
    writer.execute(INSERT)
    commit(writer)
    assert relay.rings() == [relay.ring]


def test_names_that_a_writer_planted_are_not_used(quiet_database, relay, make_writer):
    quiet_database.execute("""create schema planted; grant usage on schema planted to public;
        create function planted.pg_try_advisory_xact_lock_shared(int, int) returns boolean
            language sql as 'select true';
        create function planted.pg_notify(text, text) returns void language sql as '';
        create function planted.never(text, text) returns boolean language sql as 'select true';
        create operator planted.<> (leftarg = text, rightarg = text, function = planted.never)""")
    relay.sleeps()
    writer = make_writer()
    writer.execute(f"set local search_path = planted, pg_catalog; {INSERT}")
    commit(writer)
    assert relay.rings() == [relay.ring]


def test_one_transaction_rings_and_the_others_leave(relay, make_writer):
    relay.sleeps()
    ringer, others = make_writer(), [make_writer() for _ in range(3)]
    for writer in [ringer, *others]:
        writer.execute(INSERT)
    assert not relay.is_free(RING)
    for writer in others[:2]:
        commit(writer)
    assert relay.rings() == [] and not relay.is_free(LEFT)
    commit(ringer)
    assert relay.rings() == [relay.ring] and relay.is_free(RING)
    # the woken relay does not fall asleep again in front of the last one
    assert not relay.is_free(LEFT)
    commit(others[2])
    assert relay.is_free(LEFT) and relay.rings() == []


def test_after_a_ringer_that_is_rolled_back_the_next_one_rings(relay, make_writer):
    relay.sleeps()
    ringer, next_one = make_writer(), make_writer()
    ringer.execute(INSERT)
    rollback(ringer)
    ringer.execute(f"savepoint s; {INSERT}; rollback to s")
    next_one.execute(INSERT)
    commit(next_one)
    assert relay.rings() == [relay.ring]
    commit(ringer)
    assert relay.rings() == []


def test_who_is_refused_the_ring_of_a_relay_that_awakes_keeps_it_awake(relay, make_writer):
    """The second test of lock 1: the relay wakes up while the ringer is still open."""
    relay.sleeps()
    ringer, late = make_writer(), make_writer()
    ringer.execute(INSERT)
    relay.release()
    late.execute(INSERT)
    assert not relay.take()
    commit(ringer)
    assert relay.rings() == [relay.ring] and not relay.take()
    commit(late)
    assert relay.take()


# --- who has no bell ------------------------------------------------------------------------------


@pytest.mark.parametrize("before, statement", [
    ("alter table outbox.message disable trigger outbox_bell", INSERT),
    ("", "set session_replication_role = replica; " + INSERT),
    ("", "insert into outbox.message_default (id, created_at, topic) overriding system value values (1, '2000-01-01', 't')")])
def test_without_the_trigger_nothing_rings_and_nothing_fails(quiet_database, relay, before, statement):
    relay.sleeps()
    quiet_database.execute(before + ";" + statement if before else statement)
    assert relay.rings() == []
    assert quiet_database.execute("select count(*) from outbox.message") == [(1,)]


def test_nothing_rings_into_a_queue_that_is_half_full(quiet_database, relay):
    relay.sleeps()
    for usage, rings in ((0.51, []), (0.5, [relay.ring])):
        quiet_database.execute("create or replace function pg_catalog.pg_notification_queue_usage() "
                               f"returns double precision language sql as 'select {usage}::double precision'")
        quiet_database.execute(INSERT)
        assert relay.rings() == rings


# --- a server with prepared transactions (the tests' usual one) -------------------------------------


def prepare(connection, name):
    cursor = connection.cursor()
    cursor.execute(f"begin; {INSERT}; prepare transaction '{name}'")
    cursor.execute(f"commit prepared '{name}'")


@pytest.mark.parametrize("sleeps", [False, True])
def test_a_writer_may_prepare_whoever_holds_the_bell(database, sleeps):
    with Sleeper(database) as relay:
        if sleeps:
            relay.sleeps()
        connection = database.connect()
        prepare(connection, f"p_{database.name}")
        connection.close()
        assert relay.rings() == []
        assert database.execute("select count(*) from outbox.message") == [(1,)]


def test_a_prepared_transaction_keeps_the_relay_awake(database):
    with Sleeper(database) as relay:
        database.execute(f"begin; {INSERT}; prepare transaction 'p_{database.name}'")
        assert not relay.take()
        database.execute(f"commit prepared 'p_{database.name}'")
        assert relay.take()


def test_the_relay_may_say_that_nobody_prepares(database, login):
    for role, rings in (("outbox_relay", 1), ("outbox_writer", 0)):
        dsn = login(role)["DATABASE_URL"]
        with Sleeper(database) as relay, contextlib.closing(psycopg2.connect(dsn)) as consents:
            consents.cursor().execute(f"select pg_advisory_lock_shared({relay.key}, {PREPARED})")
            relay.sleeps()
            database.execute(INSERT)
            assert len(relay.rings()) == rings


def test_a_stranger_does_not_consent_by_a_prepared_transaction(database):
    """Its lock has no process, and so no login."""
    with Sleeper(database) as relay:
        database.execute(f"begin; select pg_advisory_xact_lock_shared({relay.key}, {PREPARED});"
                         f"prepare transaction 's_{database.name}'")
        relay.sleeps()
        connection = database.connect()
        prepare(connection, f"p_{database.name}")
        connection.close()
        database.execute(f"rollback prepared 's_{database.name}'")
        assert relay.rings() == []


# --- all together ---------------------------------------------------------------------------------


def write_at_random(database, chance, stop):
    connection = database.connect(autocommit=False)
    cursor = connection.cursor()
    while not stop.is_set():
        cursor.execute(INSERT)
        stop.wait(chance.choice([0, 0, 0.03]))
        connection.commit()
        stop.wait(chance.choice([0, 0.001, 0.02, 0.05]))
    connection.close()


def count(relay):
    relay.cursor.execute("select count(*) from outbox.message")
    return relay.cursor.fetchone()[0]


def has_ringer(relay):
    """Without a test of the lock, which would keep a writer from ringing."""
    relay.cursor.execute("select exists (select from pg_locks where locktype = 'advisory' and classid = %s "
                         "and objid = %s and granted)", (relay.oid, RING))
    return relay.cursor.fetchone()[0]


def sleep_once(relay):
    """True: it slept until the first message. Then there is a ring, or its transaction is still open. The ring is in
    the queue before its transaction can be seen."""
    if not (relay.is_free(RING) and relay.is_free(LEFT) and relay.take()):
        return False
    relay.rings()
    before = count(relay)
    wait_for(lambda: count(relay) > before, 30, "a message", interval=0.001)
    assert has_ringer(relay) or relay.rings(), "a message was committed into a sleep, and nobody rings"
    relay.release()
    return True


def test_each_message_that_is_committed_into_a_sleep_has_a_ring(quiet_database, relay, chance):
    stop = threading.Event()
    writers = [threading.Thread(target=write_at_random, args=(quiet_database, random.Random(chance.random()), stop))
               for _ in range(3)]
    for writer in writers:
        writer.start()
    try:
        slept = [0]

        def enough():
            slept[0] += sleep_once(relay)
            return slept[0] == 60

        wait_for(enough, 60, "60 sleeps", interval=0)
    finally:
        stop.set()
        for writer in writers:
            writer.join()
