"""The `postgres` store of dedup: two ways, on servers that go away and with owners that die; and the
query of a business that confirms what a filter may have."""

import contextlib
import datetime
import signal
import threading
import time

import pytest

from support.dedup import Dedup, DedupError, conform, handle_all, refused
from support.postgres import Standby
from support.process import wait_for
from support.relay import run_command

WAITERS = """SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""


def line(database, dsn=None, **settings):
    words = {"name": "billing", "dsn": dsn or database.dsn, **settings}
    return " ".join(["postgres", *(f"{name}={value}" for name, value in words.items())])


@pytest.fixture
def opened(database):
    """opened(…): a store on the test's database, closed at its end."""
    with contextlib.ExitStack() as stack:
        yield lambda **settings: stack.enter_context(Dedup(line(database, **settings)))


def test_it_is_as_every_store(database):
    conform("shared", "remembers", line(database))


def test_it_is_so_in_another_schema_as_well(empty_database):
    settings = {"DATABASE_URL": empty_database.dsn, "OUTBOX_RELAY_POSTGRES_SCHEMA": "shop"}
    status, _, error = run_command(["migrate", "up"], settings)
    assert status == 0, error
    conform("shared", "remembers", line(empty_database, schema="shop"))
    with refused("config", "migrate up"):
        Dedup(line(empty_database)).check("a")


def test_ids_hold_any_bytes(opened):
    ids = ["hex:00", "hex:0000", "hex:610062", "hex:610063", "hex:fffe", "a"]
    first, second = opened(), opened()
    assert first.check(*ids) == ["new"] * 6
    assert second.check(*ids) == ["pending"] * 6
    first.done(*ids)
    assert second.check(*ids) == ["done"] * 6


def test_the_relays_role_is_not_needed(database):
    database.execute("CREATE ROLE biller LOGIN IN ROLE outbox_consumer")
    try:
        conform("shared", "remembers", line(database, dsn=database.postgres.dsn(database.name, "biller")))
    finally:
        database.execute("DROP ROLE biller")


def test_an_id_takes_the_disk_and_the_memory_that_are_promised(opened, database):
    store, count = opened(), 20000
    size = """SELECT sum(pg_total_relation_size(c.oid)) FROM pg_class c
        JOIN pg_inherits i ON i.inhrelid = c.oid WHERE i.inhparent = 'outbox.processed'::regclass"""
    before = database.execute(size)[0][0]
    for first in range(0, count, 1000):
        ids = [f"0f8fad5b-d9cb-469f-a165-{first + number:012x}" for number in range(1000)]
        store.check(*ids)
        store.done(*ids)
    assert 100 < (database.execute(size)[0][0] - before) / count < 250
    assert store.stats()["memory"] < 200 * 1024


# --- owners that die ---------------------------------------------------------------------------

def test_the_ids_of_an_owner_that_is_killed_are_free_at_once(opened, database):
    owner, other = Dedup(line(database)), opened()
    assert owner.check("a", "b") == ["new", "new"]
    owner.done("b")
    assert other.check("a", "b") == ["pending", "done"]
    owner.kill()
    wait_for(lambda: other.check("a") == ["new"], 30, "the lock")


def test_four_owners_of_the_same_ids_have_each_once(opened):
    ids = [f"id-{number}" for number in range(500)]
    assert handle_all([opened() for _ in range(4)], ids) == dict.fromkeys(ids, 1)


# --- a connection that is lost -----------------------------------------------------------------

def lose(database):
    """The sessions of all stores end."""
    def are_gone():
        return database.postgres.terminate_backends("outbox dedup", database.name) == 0

    wait_for(are_gone, 30, "the sessions' end")


def test_a_lost_connection_is_no_loss_when_nobody_took_the_ids(opened, database):
    store, other = opened(), opened()
    assert store.check("a", "b") == ["new", "new"]
    lose(database)
    assert store.done("a", "b") == "ok"
    assert other.check("a", "b") == ["done", "done"]
    assert database.execute("SELECT count(*) FROM outbox.processed") == [(2,)]


def test_who_lost_its_ids_to_somebody_else_is_told(opened, database):
    store = opened()
    assert store.check("a", "b", "c") == ["new"] * 3
    lose(database)
    other = opened()
    assert other.check("a", "b") == ["new", "new"]
    other.done("b")
    with refused("retry", "another session holds 1 of 3"):  # or is it the lost one?
        store.done("a", "b", "c")
    assert store.stats()["pending"] == 3
    other.done("a")
    with refused("fenced", "2 of 3 ids"):
        store.done("a", "b", "c")
    assert store.stats()["pending"] == 0
    assert store.check("a", "b", "c") == ["done", "done", "done"]
    assert database.execute("SELECT count(*) FROM outbox.processed") == [(3,)]


def test_what_was_lost_is_given_back_all_the_same(opened, database):
    store = opened()
    assert store.check("a", "b") == ["new", "new"]
    lose(database)
    assert store.release("a", "b") == "ok"
    assert opened().check("a", "b") == ["new", "new"]


def test_an_answer_that_never_came_may_have_been_a_commit(own_database):
    """The commit waits for a standby that is not there, longer than the store waits for it."""
    with Dedup(line(own_database, timeout="500ms")) as store:
        assert store.check("a", "b", "c") == ["new"] * 3
        own_database.postgres.wait_for_standbys("nobody")
        with refused("retry", "no answer within"):
            store.done("a", "b")
        with refused("retry", "another session holds 1 of 1"):  # the lost one
            store.done("c")
        own_database.postgres.wait_for_standbys("")
        wait_for(lambda: not own_database.postgres.waiting_for_standbys(), 30,
                 "the end of what was under way")
        assert store.done("a") == "ok"
        assert store.release("b") == "ok"
        assert store.check("a", "b", "c") == ["done", "new", "pending"]
        assert store.done("c") == "ok"
    assert [bytes(id) for id, in own_database.execute("SELECT id FROM outbox.processed ORDER BY 1")] == [
        b"a", b"c"]


# --- a server that goes away -------------------------------------------------------------------

def test_a_server_that_is_killed_is_never_taken_for_new(own_database):
    with Dedup(line(own_database)) as store, Dedup(line(own_database)) as other:
        assert store.check("done", "open") == ["new", "new"]
        store.done("done")
        own_database.postgres.kill()
        for _ in range(3):
            with refused("retry"):
                store.check("x")
        with refused("retry"):
            store.done("open")
        own_database.postgres.start()
        assert store.done("open") == "ok"
        assert store.check("done", "open", "x") == ["done", "done", "new"]
        assert other.check("done", "open", "x") == ["done", "done", "pending"]


def test_a_server_that_stands_still_costs_no_more_than_the_timeout(own_database):
    with Dedup(line(own_database, timeout="300ms")) as store:
        assert store.check("a") == ["new"]
        own_database.postgres.pause()
        for ask in (lambda: store.check("b"), lambda: store.done("a"), lambda: store.check("b")):
            begun = time.monotonic()
            with refused("retry", "within"):
                ask()
            assert time.monotonic() - begun < 10
        own_database.postgres.resume()

        def goes_on():
            with contextlib.suppress(DedupError):
                return store.done("a") == "ok"

        wait_for(goes_on, 30, "the store")
        assert store.check("a") == ["done"]


def test_a_standby_is_not_asked(own_database):
    with Dedup(line(own_database)) as store:
        store.check("a")
        store.done("a")
        with Standby(own_database.postgres) as standby, refused("retry", "standby"):
            Dedup(line(own_database, dsn=standby.dsn("own"))).check("a")


def test_a_database_that_became_read_only_records_nothing(opened, database):
    store = opened()
    assert store.check("a") == ["new"]
    database.execute(f'ALTER DATABASE "{database.name}" SET default_transaction_read_only = on')
    lose(database)
    for ask in (lambda: store.check("b"), lambda: store.done("a")):
        with refused("retry", "25006"):
            ask()
    with contextlib.closing(database.connect(
            options="-c default_transaction_read_only=off")) as connection:
        connection.cursor().execute(
            f'ALTER DATABASE "{database.name}" RESET default_transaction_read_only')
    assert opened().check("a") == ["new"]


def test_a_pooler_in_between_is_refused(database, pgbouncer):
    with refused("config", "pooler", "outbox_dedup_take"):
        Dedup(line(database, dsn=pgbouncer.dsn(database.name)))
    database.postgres.terminate_backends(database=database.name)


def test_no_more_are_pending_than_a_server_has_locks_for(opened, database):
    store = opened()
    ids = [f"id-{number}" for number in range(1001)]
    with refused("retry", "1000 (pending=)"):
        store.check(*ids)
    assert store.check(*ids[:1000]) == ["new"] * 1000
    with refused("retry", "1000 ids are pending"):
        store.check(ids[1000])
    store.done(*ids[:500])
    assert store.check(ids[1000]) == ["new"]
    with refused("config", "pending=1001"):
        opened(pending=1001)


@pytest.mark.parametrize("words, kind, said", [
    ("dsn=host=/nowhere", "retry", "Postgres listens"), ("dsn=nonsense", "config", "dsn"),
    ("schema=Bad", "config", "schema"), ("window=soon", "config", "window=24h"),
    ("lease=3s", "config", "no setting"), ("lossy", "config", "not lossy")])
def test_a_line_that_cannot_be_is_refused(words, kind, said):
    with refused(kind, said):
        Dedup(f"postgres name=billing {words}")


def test_without_a_name_it_is_refused():
    with refused("config", "name=billing"):
        Dedup("postgres dsn=dbname=x")


# --- in the transaction of the effect ----------------------------------------------------------

class Consumer:
    """A process that takes ids in the transaction in which it writes orders."""

    def __init__(self, database):
        self.store = Dedup("postgres name=billing")
        self.store.connect(database.dsn)

    def begin(self, id, time_ms=-1):
        """Says that it takes the id; finish() does the rest."""
        self.store.run("begin")
        self.store.time(time_ms)
        self.id = id
        self.store.say("take", id)

    def effect(self):
        """Writes the order, if the id is new; returns the state."""
        state = self.store.answer()
        if state == "new":
            self.store.run(f"insert into orders values ('{self.id}')")
        return state

    def end(self, how="commit"):
        self.store.run(how)


@pytest.fixture
def orders(database):
    database.execute("CREATE TABLE orders (id text)")
    return database


@pytest.fixture
def consumers(orders):
    """Two of them."""
    made = [Consumer(orders), Consumer(orders)]
    yield made
    for consumer in made:
        consumer.store.process.send_signal(signal.SIGCONT)
        consumer.store.close()


def midnight_ms():
    now = datetime.datetime.now(datetime.timezone.utc)
    return int(now.replace(hour=0, minute=0, second=0, microsecond=0).timestamp() * 1000)


@pytest.mark.parametrize("ending, second", [("commit", "done"), ("rollback", "new"), ("kill", "new")])
def test_a_zombie_across_midnight_has_no_second_effect(orders, consumers, ending, second):
    """The copies of an id lie in two partitions, in which no constraint could tell them apart."""
    zombie, other = consumers
    zombie.begin("a", midnight_ms() - 1)
    assert zombie.effect() == "new"
    zombie.store.process.send_signal(signal.SIGSTOP)
    other.begin("a", midnight_ms())
    wait_for(lambda: orders.execute(WAITERS) == [(1,)], 30, "the second to wait")
    if ending == "kill":
        zombie.store.kill()
    else:
        zombie.store.process.send_signal(signal.SIGCONT)
        zombie.end(ending)
    assert other.effect() == second
    other.end()
    assert orders.execute("SELECT id FROM orders") == [("a",)]
    assert orders.execute("SELECT record_at < date_trunc('day', now()) FROM outbox.processed") == [
        (ending == "commit",)]


def test_copies_in_one_call_and_in_one_transaction_are_told_apart(consumers):
    store = consumers[0].store
    store.run("begin")
    assert store.take("a", "b", "a", "hex:00") == ["new", "new", "done", "new"]
    assert store.take("b", "hex:00", "c") == ["done", "done", "new"]
    store.run("rollback")
    store.run("begin")
    assert store.take("a", "b", "c", "hex:00") == ["new"] * 4
    store.run("commit")
    assert store.stats()["pending"] == 0


def test_a_transaction_is_needed_and_of_the_right_level(consumers):
    store = consumers[0].store
    with refused("reject", "no transaction is open", "begin"):
        store.take("a")
    store.run("begin isolation level repeatable read")
    with refused("reject", "READ COMMITTED"):
        store.take("a")
    with refused("reject", "has failed", "roll it back"):
        store.take("a")
    store.run("rollback")
    store.run("begin")
    assert store.take("a") == ["new"]
    store.run("commit")


def test_at_most_1000_are_taken_in_a_transaction(consumers):
    store = consumers[0].store
    ids = [f"id-{number}" for number in range(1001)]
    store.run("begin")
    with refused("reject", "at most are 1000"):
        store.take(*ids)
    assert store.take(*ids[:1000]) == ["new"] * 1000
    with refused("reject", "at most 1000"):
        store.take(ids[1000])
    store.run("rollback")


def test_what_is_pending_here_is_not_taken(opened, database):
    """It would wait for itself."""
    store = opened()
    store.connect(database.dsn)
    store.check("a")
    store.run("begin")
    with refused("reject", "pending"):
        store.take("b", "a")
    assert store.take("b") == ["new"]
    store.run("commit")
    assert store.check("b") == ["done"]


def test_a_wait_ends_with_the_callers_lock_timeout(orders, consumers):
    one, two = consumers
    one.begin("a")
    assert one.effect() == "new"
    two.store.run("set lock_timeout = '50ms'")
    two.begin("a")
    with refused("retry", "55P03"):
        two.store.answer()
    two.end("rollback")
    one.end()
    two.begin("a")
    assert two.effect() == "done"
    two.end()
    assert orders.execute("SELECT count(*) FROM orders") == [(1,)]


def test_a_server_that_was_lost_is_worth_a_retry(orders, consumers):
    store = consumers[0].store
    store.run("begin")
    orders.postgres.terminate_backends(database=orders.name)
    with refused("retry"):
        store.take("a")
    store.connect(orders.dsn)
    store.run("begin")
    assert store.take("a") == ["new"]


def test_only_a_postgres_has_transactions(tmp_path, database):
    with Dedup(f"bloom ids=1k path={tmp_path}/d") as store:
        store.connect(database.dsn)
        store.run("begin")
        with refused("config", "begin the line with postgres"):
            store.take("a")


def test_many_consumers_with_the_same_ids_have_each_effect_once(orders):
    ids = [f"id-{number}" for number in range(400)]
    failures = []

    def consume(number):
        try:
            with Dedup("postgres name=billing") as store:
                store.connect(orders.dsn)
                for start in range(0, len(ids), 40):
                    batch = ids[start:start + 40][::-1 if number % 2 else 1]
                    store.run("begin")
                    states = store.take(*batch)
                    for id, state in zip(batch, states):
                        if state == "new":
                            store.run(f"insert into orders values ('{id}')")
                    store.run("rollback" if (start // 40 + number) % 5 == 0 else "commit")
        except (DedupError, EOFError) as error:
            failures.append(error)

    threads = [threading.Thread(target=consume, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert sorted(orders.execute("SELECT id FROM orders")) == sorted((id,) for id in ids)


# --- confirm=sql -------------------------------------------------------------------------------

QUERY = "select id from orders where id = any($1)"


@pytest.fixture
def confirmed(orders, tmp_path):
    """confirmed(…): a filter whose hits the table of orders confirms."""
    with contextlib.ExitStack() as stack:
        def make(query=QUERY, dsn=None, **settings):
            words = {"ids": "1k", "hot": 1, "timeout": "2s", "path": tmp_path / "d", **settings}
            text = " ".join(f"{name}={value}" for name, value in words.items())
            return stack.enter_context(Dedup(
                f'bloom {text} confirm=sql dsn={dsn or orders.dsn} query="{query}"'))
        yield make


def handle(database, store, *ids, commit=True):
    for id in ids:
        assert store.check(id) == ["new"]
        if commit:
            database.execute("INSERT INTO orders VALUES (%s)", (id,))
        store.done(id)


def test_a_hit_is_asked_of_the_business(orders, confirmed):
    store = confirmed()
    handle(orders, store, "a", "b", "c\"d\\{}")
    handle(orders, store, "lost", commit=False)
    handle(orders, store, "last")
    before = store.stats()
    assert store.check("a", "b", "c\"d\\{}", "lost", "fresh") == [
        "done", "done", "done", "new", "new"]
    after = store.stats()
    assert after["false_hits"] - before["false_hits"] == 1
    assert after["filter_hits"] - before["filter_hits"] == 4


def test_what_was_done_a_moment_ago_is_not_asked(orders, confirmed):
    store = confirmed(hot=1000)
    handle(orders, store, "a", "b", commit=False)
    assert store.check("a", "b") == ["done", "done"]
    assert store.stats()["filter_hits"] == 0


def test_the_filter_is_there_after_a_restart(orders, confirmed):
    store = confirmed()
    handle(orders, store, "a", "b")
    store.checkpoint(2)
    store.close()
    assert confirmed().check("a", "b", "c") == ["done", "done", "new"]


def test_ids_of_another_type_are_compared_as_what_they_are(database, orders, confirmed):
    database.execute("CREATE TABLE numbers (n bigint)")
    store = confirmed("select n from numbers where n = any($1)")
    for id in ("1", "2"):
        assert store.check(id) == ["new"]
        database.execute("INSERT INTO numbers VALUES (%s)", (id,))
        store.done(id)
    assert store.check("1") == ["done"]
    assert store.check("x", "3") == ["new", "new"]  # no hits
    store.done("x", "3")
    with refused("reject", "id::text"):
        store.check("x")


@pytest.mark.parametrize("query, said", [
    ("select id from nothing where id = any($1)", "42P01"),
    ("select id form orders", "42601"), ("select id, id from orders where id = any($1)", "2 columns"),
    ("select 'x' from (values ($1::text[])) v", "1 rows"),
    ("select id from orders where id = any($1) and id = any($2)", "08P01")])
def test_a_query_that_is_wrong_is_refused_at_the_start(confirmed, query, said):
    with refused("config", "query", said):
        confirmed(query)


def test_a_query_that_names_others_is_refused(orders, confirmed):
    """An id in another form than it was asked in would be taken for none."""
    store = confirmed("select upper(id) from orders where id = any($1)")
    handle(orders, store, "a", "b")
    with refused("config", "'A'", "as they are in $1"):
        store.check("a")
    assert store.stats()["pending"] == 0


@pytest.mark.parametrize("id", ["hex:00", "hex:610062", "hex:fffe", "hex:eda080"])
def test_an_id_that_is_no_text_is_refused_also_when_it_is_new(confirmed, id):
    with refused("reject", "id 2", "hexadecimal"):
        confirmed().check("a", id)


def test_without_its_database_nothing_is_new(own_database, tmp_path):
    own_database.execute("CREATE TABLE orders (id text)")
    text = (f"bloom ids=1k hot=1 timeout=300ms path={tmp_path}/d confirm=sql "
            f'dsn={own_database.dsn} query="{QUERY}"')
    with Dedup(text) as store:
        handle(own_database, store, "a", "b")
        own_database.postgres.pause()
        with refused("retry", "within"):
            store.check("a")
        own_database.postgres.resume()
        own_database.postgres.kill()
        with refused("retry"):
            store.check("a")
        with refused("retry"):
            Dedup(text.replace("/d ", "/e "))
        assert store.check("fresh") == ["new"]  # the filter is sure
        own_database.postgres.start()

        def answers():
            with contextlib.suppress(DedupError):
                return store.check("a") == ["done"]

        wait_for(answers, 30, "the store")


def test_a_pooler_may_stand_before_the_business(orders, confirmed, pgbouncer):
    store = confirmed(dsn=pgbouncer.dsn(orders.name))
    handle(orders, store, "a", "b")
    assert store.check("a", "c") == ["done", "new"]
    store.close()
    orders.postgres.terminate_backends(database=orders.name)
