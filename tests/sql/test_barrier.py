"""The barrier of the look-back (sql/barrier), as docs/guide/lookback-barrier.md says to use it: a business
transaction never commits after the relay was told "rollback", however slow it is, and what the relay is
told never changes.

The business keeps orders. `ask` is the callback that answers the relay; `look` is one that has no barrier
and looks for the order, as a first idea would.
"""

import contextlib
import json
import pathlib
import random
import threading
import time

import psycopg2
import psycopg2.errorcodes
import pymysql
import pytest

from support.mariadb import MariaDb
from support.postgres import Postgres
from support.process import wait_for

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "sql" / "barrier"
WAS_ROLLED_BACK, WAS_COMMITTED = "LB001", "LB002"


class Refused(Exception):
    """By the barrier, with its SQLSTATE, or by the server in its favour ("again")."""


class OnPostgres:
    levels = ["read committed", "repeatable read", "serializable"]

    def __init__(self, database):
        self.database = database
        self.database.execute((SCRIPTS / "postgres.sql").read_text())
        self.database.execute("create table shop_order (id text primary key)")

    def connect(self, level="read committed"):
        connection = self.database.connect(autocommit=False)
        connection.set_session(isolation_level=level)
        return connection

    def begin(self, connection, id):
        try:
            connection.cursor().execute("select lookback_begin('order', %s)", (id,))
        except psycopg2.Error as failure:
            again = (psycopg2.errorcodes.SERIALIZATION_FAILURE,)
            raise Refused("again" if failure.pgcode in again else failure.pgcode) from failure

    def caller(self):
        """A connection to ask on."""
        return self.database.connect()

    def execute(self, statement, parameters=(), connection=None):
        if connection is None:
            return self.database.execute(statement, parameters)
        with connection.cursor() as cursor:
            cursor.execute(statement, parameters)
            return cursor.fetchall()

    def ask(self, *ids, connection=None):
        return dict(self.execute("select biz_id, decision from lookback_check(%s, %s)",
                                 ("order", list(ids)), connection))

    def waiting(self):
        return self.execute("select count(*) from pg_stat_activity where wait_event_type = 'Lock' "
                            "and datname = current_database()")[0][0]

    def forget(self, days, most=10000):
        return self.execute("select lookback_forget(%s * interval '1 day', %s)", (days, most))[0][0]


class OnMariaDb:
    levels = ["read committed", "repeatable read", "serializable"]

    def __init__(self, server, name):
        self.server, self.name = server, name
        with server.connect() as connection:
            connection.cursor().execute(f"create database {name}")
        server.script(SCRIPTS / "mysql.sql", name)
        self.execute("create table shop_order (id varbinary(500) primary key)")

    def connect(self, level="read committed"):
        connection = self.server.connect(self.name, autocommit=False)
        connection.cursor().execute(f"set session transaction isolation level {level}")
        return connection

    def begin(self, connection, id):
        try:
            connection.cursor().execute("call lookback_begin('order', %s)", (id,))
        except pymysql.err.MySQLError as failure:
            number, text = failure.args
            if number in (1205, 1213, 1020):
                raise Refused("again") from failure
            if "look-back" not in text:
                raise
            raise Refused(WAS_COMMITTED if "committed before" in text else WAS_ROLLED_BACK) from failure

    def caller(self):
        """A connection to ask on."""
        return self.server.connect(self.name)

    def execute(self, statement, parameters=(), connection=None):
        if connection is None:
            with self.caller() as connection:
                return self.execute(statement, parameters, connection)
        with connection.cursor() as cursor:
            cursor.execute(statement, parameters)
            return cursor.fetchall()

    def ask(self, *ids, connection=None):
        return dict(self.execute("call lookback_check('order', %s)", (json.dumps(ids),), connection))

    def waiting(self):
        return self.execute("select count(*) from information_schema.innodb_trx "
                            "where trx_state = 'LOCK WAIT'")[0][0]

    def forget(self, days, most=10000):
        with self.server.connect(self.name) as connection, connection.cursor() as cursor:
            cursor.execute("call lookback_forget(%s, %s, @gone)", (days, most))
            cursor.execute("select @gone")
            return cursor.fetchone()[0]


@pytest.fixture(scope="module")
def mariadb():
    with MariaDb() as server:
        yield server


@pytest.fixture(params=["postgres", pytest.param("mariadb", marks=pytest.mark.xdist_group("test_barrier"))])
def business(request):
    if request.param == "postgres":
        return OnPostgres(request.getfixturevalue("empty_database"))
    name = f"shop_{abs(hash(request.node.nodeid)) % 10**9}"
    return OnMariaDb(request.getfixturevalue("mariadb"), name)


def place_order(connection, id):
    connection.cursor().execute("insert into shop_order (id) values (%s)", (id,))


def orders(business, connection=None):
    return {row[0] if isinstance(row[0], str) else row[0].decode()
            for row in business.execute("select id from shop_order", (), connection)}


def look(business, id):
    """The callback without a barrier."""
    return "commit" if id in orders(business) else "rollback"


@contextlib.contextmanager
def transaction(business, id, level="read committed"):
    """Open, and past its barrier; ends with the block, by commit()/rollback() of what it gives."""
    connection = business.connect(level)
    try:
        business.begin(connection, id)
        place_order(connection, id)
        yield connection
    finally:
        with contextlib.suppress(psycopg2.Error, pymysql.err.MySQLError):
            connection.rollback()
        connection.close()


# --- the race ---------------------------------------------------------------------------------------

def test_without_the_barrier_a_slow_transaction_commits_what_the_relay_was_told_to_roll_back(business):
    """What the barrier is there for."""
    slow = business.connect()
    place_order(slow, "1")
    assert look(business, "1") == "rollback"
    slow.commit()
    slow.close()
    assert orders(business) == {"1"}


def test_a_transaction_that_is_open_is_pending_until_it_ends(business):
    with transaction(business, "1") as first, transaction(business, "2") as second:
        assert business.ask("1", "2", "3") == {"1": "pending", "2": "pending", "3": "rollback"}
        first.commit()
        second.rollback()
    for _ in range(3):
        assert business.ask("1", "2", "3") == {"1": "commit", "2": "rollback", "3": "rollback"}
    assert orders(business) == {"1"}


def test_what_was_told_to_be_rolled_back_cannot_begin_any_more(business):
    assert business.ask("1") == {"1": "rollback"}
    for level in business.levels:
        late = business.connect(level)
        with pytest.raises(Refused, match=WAS_ROLLED_BACK):
            business.begin(late, "1")
        late.rollback()
        late.close()
    assert business.ask("1") == {"1": "rollback"} and orders(business) == set()


def test_a_transaction_that_reads_before_it_begins_is_refused_as_well(business):
    """Its snapshot is older than what the relay was told, in the stricter levels. (On MariaDB a
    serializable one locks what it reads, so that the relay is told to wait.)"""
    for level in business.levels:
        late = business.connect(level)
        late.cursor().execute("select * from shop_order")
        late.cursor().execute("select * from lookback_barrier")
        told = business.ask(level)[level]
        if told == "rollback":
            with pytest.raises(Refused):
                business.begin(late, level)
            late.rollback()
        else:
            assert (told, level) == ("pending", "serializable")
            business.begin(late, level)
            late.commit()
        late.close()
        assert business.ask(level) == {level: "rollback" if told == "rollback" else "commit"}


def test_a_second_transaction_of_an_id_is_told_that_it_was_done(business):
    with transaction(business, "1") as first:
        first.commit()
    again = business.connect()
    with pytest.raises(Refused, match=WAS_COMMITTED):
        business.begin(again, "1")
    again.rollback()
    again.close()
    assert business.ask("1") == {"1": "commit"}


@pytest.mark.parametrize("outcome", ["rollback", "commit"])
def test_a_transaction_waits_for_an_answer_that_is_being_given(business, outcome):
    """Another one has inserted the answer and not committed it yet."""
    answering, late, said = business.connect(), business.connect(), []
    answering.cursor().execute("insert into lookback_barrier (biz_type, biz_id, outcome) "
                               "values ('order', '1', 'rollback')")

    def begin():
        try:
            business.begin(late, "1")
            late.commit()
            said.append("begun")
        except Refused as refusal:
            said.append(str(refusal))

    thread = threading.Thread(target=begin)
    thread.start()
    # MariaDB shows what it showed last when it was asked less than 0.1 s ago
    wait_for(lambda: business.waiting() == 1, 30, "the transaction to wait", interval=0.25)
    assert business.ask("1") == {"1": "pending"}
    getattr(answering, outcome)()
    thread.join()
    for connection in (answering, late):
        connection.close()
    assert said == ([WAS_ROLLED_BACK] if outcome == "commit" else ["begun"])
    assert business.ask("1") == {"1": "rollback" if outcome == "commit" else "commit"}


def test_many_open_transactions_do_not_make_the_answer_slow(business):
    ids = [f"{number:02}" for number in range(100)]
    with contextlib.ExitStack() as stack:
        connection = business.connect()
        stack.callback(connection.close)
        for id in ids:
            business.begin(connection, id)
        began = time.monotonic()
        assert business.ask(*ids, "other") == {**dict.fromkeys(ids, "pending"), "other": "rollback"}
        assert time.monotonic() - began < 8  # a [check] section waits 10 s
        connection.rollback()


def test_ids_are_told_apart_by_their_bytes(business):
    ids = ["a", "A", "a ", " a", "ä", "a\u0308", "", "%", "it's", '"]', "\\"]
    with transaction(business, "a") as first:
        first.commit()
    assert business.ask(*ids) == {id: "commit" if id == "a" else "rollback" for id in ids}
    assert business.ask() == {}


# --- at random --------------------------------------------------------------------------------------

class Shop:
    """Workers with an order each, slow, fast, aborted or dead, and the relay that asks at any time until
    it is told something; the first thing it is told stands."""

    def __init__(self, business, seed, count, ask, begin):
        self.business, self.ask, self.begin = business, ask, begin
        self.ids = [f"id-{number:05}" for number in range(count)]
        self.chance = random.Random(seed)
        self.prepared, self.told, self.pendings, self.failures = [], {}, 0, []

    def work(self, ids, seed):
        chance = random.Random(seed)
        for id in ids:
            connection = self.business.connect(chance.choice(self.business.levels))
            self.prepared.append(id)
            try:
                self.pause(chance)
                self.begin(connection, id)
                self.pause(chance)
                place_order(connection, id)
                self.pause(chance)
                # the last one closes it without a word, as a process that dies
                end = chance.choice([connection.commit] * 3 + [connection.rollback, lambda: None])
                end()
            except Refused:
                connection.rollback()
            except (psycopg2.errors.SerializationFailure, pymysql.err.OperationalError):
                pass
            finally:
                connection.close()

    def pause(self, chance):
        if chance.random() < 0.5:
            time.sleep(chance.random() * 0.02)

    def look_back(self, seed):
        chance = random.Random(seed)
        with contextlib.closing(self.business.caller()) as connection:
            while len(self.told) < len(self.ids):
                waiting = [id for id in self.prepared if id not in self.told]
                batch = chance.sample(waiting, min(len(waiting), chance.randint(1, 3)))
                for id, decision in self.ask(connection, batch).items():
                    if decision == "pending":
                        self.pendings += 1
                    else:
                        self.told.setdefault(id, decision)
                self.pause(chance)

    def run(self):
        calls = [(self.work, (self.ids[worker::8], self.chance.random())) for worker in range(8)]
        calls += [(self.look_back, (self.chance.random(),)) for _ in range(3)]

        def guarded(call, arguments):
            try:
                call(*arguments)
            except Exception as failure:
                self.failures.append(failure)
                self.told.update(dict.fromkeys(self.ids, "failed"))  # ends the others

        threads = [threading.Thread(target=guarded, args=call) for call in calls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not self.failures, self.failures
        done = orders(self.business)
        return [id for id in self.ids if (self.told[id] == "commit") != (id in done)]


def test_at_random_what_the_relay_is_told_is_what_the_business_did(business, seed, scale):
    count = scale(3000, default=300)
    shop = Shop(business, seed, count, lambda connection, ids: business.ask(*ids, connection=connection),
                business.begin)
    assert shop.run() == []
    decisions = list(shop.told.values())
    # all of it happened: both answers, and transactions that were asked about while they were open
    assert decisions.count("commit") > count / 20 and decisions.count("rollback") > count / 20
    assert shop.pendings > 0
    assert business.ask(*shop.ids) == shop.told


def test_at_random_without_the_barrier_it_is_not(business, seed):
    """The same shop: the test above can fail."""
    def ask(connection, ids):
        done = orders(business, connection)
        return {id: "commit" if id in done else "rollback" for id in ids}

    shop = Shop(business, seed, 300, ask, lambda connection, id: None)
    wrong = shop.run()
    assert wrong and all(shop.told[id] == "rollback" for id in wrong)


# --- what stays -------------------------------------------------------------------------------------

def test_old_rows_are_forgotten_in_parts_and_young_ones_kept(business):
    ids = [f"{number:02}" for number in range(30)]
    business.ask(*ids)
    business.execute("update lookback_barrier set at = at - interval '40' day where biz_id < '25'")
    assert [business.forget(30, most=10) for _ in range(4)] == [10, 10, 5, 0]
    with pytest.raises((psycopg2.Error, pymysql.err.MySQLError), match="less than a day are kept"):
        business.forget(0)
    assert business.execute("select count(*) from lookback_barrier")[0][0] == 5


def test_the_role_that_answers_may_do_nothing_else(empty_database):
    business = OnPostgres(empty_database)
    role = f"checker_{empty_database.name}"[:60]
    business.execute(f"create role {role} login")
    try:
        business.execute(f"grant execute on function lookback_check(text, text[]) to {role}")
        with contextlib.closing(empty_database.connect(user=role)) as connection:
            assert business.ask("1", connection=connection) == {"1": "rollback"}
            for statement in ("select * from lookback_barrier", "select lookback_begin('order', '2')",
                              "select lookback_forget('9 days')"):
                with pytest.raises(psycopg2.errors.InsufficientPrivilege):
                    connection.cursor().execute(statement)
    finally:
        business.execute(f"drop owned by {role}")
        business.execute(f"drop role {role}")


def test_an_answer_is_committed_also_on_a_connection_without_autocommit(mariadb):
    business = OnMariaDb(mariadb, "without_autocommit")
    with transaction(business, "1"), contextlib.closing(business.connect()) as connection:
        cursor = connection.cursor()
        for _ in range(2):
            cursor.execute("select * from shop_order")
            cursor.execute("call lookback_check('order', %s)", (json.dumps(["1", "2"]),))
            assert dict(cursor.fetchall()) == {"1": "pending", "2": "rollback"}
            cursor.execute("select @@session.innodb_lock_wait_timeout")
            assert cursor.fetchone() == (50,)
        connection.rollback()
    assert business.ask("2") == {"2": "rollback"}
    assert business.execute("select biz_id, asked from lookback_barrier order by biz_id") == (
        (b"2", 2),)


def test_a_transaction_that_is_prepared_for_a_second_phase_is_pending(empty_database):
    business = OnPostgres(empty_database)
    with contextlib.closing(business.connect()) as connection:
        connection.tpc_begin("shop-1")
        business.begin(connection, "1")
        connection.tpc_prepare()
    assert business.ask("1") == {"1": "pending"}
    business.execute("commit prepared 'shop-1'")
    assert business.ask("1") == {"1": "commit"}


def test_what_was_told_outlives_a_crash_also_where_commits_are_asynchronous():
    """A commit that is told, and a rollback that is: the rows are on the disk by then."""
    with Postgres(synchronous_commit="off", wal_writer_delay="'10s'", autovacuum="off") as server:
        server.create_database("shop")
        business = OnPostgres(Database(server, "shop"))
        server.execute("checkpoint")
        for number in range(3):
            with transaction(business, f"c{number}") as connection:
                connection.commit()
            assert business.ask(f"c{number}") == {f"c{number}": "commit"}
            server.kill()
            server.start()
            assert f"c{number}" in orders(business)
            assert business.ask(f"r{number}") == {f"r{number}": "rollback"}
            server.kill()
            server.start()
            with contextlib.closing(business.connect()) as late, \
                    pytest.raises(Refused, match=WAS_ROLLED_BACK):
                business.begin(late, f"r{number}")


class Database:
    def __init__(self, server, name):
        self.server, self.name = server, name

    def connect(self, **options):
        return self.server.connect(self.name, **options)

    def execute(self, statement, parameters=None):
        return self.server.execute(statement, parameters, self.name)
