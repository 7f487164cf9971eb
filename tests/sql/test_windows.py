"""outbox.take, outbox.tick and the pages: which rows a window holds, in random interleavings of
transactions on a real Postgres. The seed repeats a run exactly."""

import random
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

import psycopg2
import pytest
from psycopg2 import errors

from support.process import wait_for
from support.relay import run_command
from support.sessions import KEYS, SESSIONS, Application, Judge, Session, in_order
from support.windows import Ticks

# More xids than the range that a tick widens for its stragglers.
BURN_XIDS = """
DO $$ BEGIN
    FOR i IN 1..10100 LOOP
        BEGIN INSERT INTO burnt VALUES (i); EXCEPTION WHEN division_by_zero THEN NULL; END;
    END LOOP;
END $$"""


@pytest.mark.long
def test_every_commit_falls_into_one_window_and_keys_keep_their_order(database, seed, scale):
    """Three readers that look at different moments; one of them reads every window by pages."""
    readers = {name: Ticks(database.dsn, name) for name in ("often", "seldom", "pages")}
    sessions = [Session(database) for _ in range(SESSIONS)]
    database.execute("CREATE TABLE burnt (number int)")
    for number in range(scale(1000)):
        chance = random.Random(f"{seed}/{number}")
        application = Application(sessions, chance)
        often, seldom, pages = judges = [Judge(ticks) for ticks in readers.values()]
        burn_at = chance.randrange(600)
        for step in range(60):
            application.step()
            if step == burn_at:
                database.execute(BURN_XIDS)
            if chance.random() < 0.3:
                often.poll()
            if chance.random() < 0.05:
                seldom.poll()
            if chance.random() < 0.1:
                pages.poll_pages(chance.randint(1, 4), application.step)
        application.end_all()
        often.poll()
        seldom.poll()
        pages.poll_pages(2)
        for judge in judges:
            rows = judge.rows()
            assert sorted(rows) == sorted(application.committed), f"round {number}"
            assert in_order(rows), f"round {number}: {rows}"


def test_a_window_read_twice_gives_the_same_rows(database, chance):
    """By rows with the tick, by pages of any size, and after everything else has moved on."""
    application = Application([Session(database) for _ in range(SESSIONS)], chance)
    ticks = Ticks(database.dsn)
    for _ in range(40):
        application.step()
    ticks.poll()
    for _ in range(60):
        application.step()
    window = ticks.tick(max_rows=0)
    assert (window, ticks.verdict) == ([], "pages")
    first = list(ticks.pages(1000))
    for _ in range(40):
        application.step()
    application.end_all()
    assert first
    for size in (1, 2, 3, 7, 1000):
        assert list(ticks.pages(size)) == first
    ticks.close()


def test_bounds_in_chunks_enclose_the_same_rows_as_bounds_at_once(database):
    """Transactions of fewer and of more rows than a step of 1,000, one of them open, one rolled back."""
    def insert(count):
        cursor.execute("INSERT INTO outbox.message (topic, key, payload)"
                       " SELECT 't', 'k', 'x' FROM generate_series(1, %s)", (count,))

    # The first window begins at the first transaction of the server, and other tests have had many.
    database.execute("INSERT INTO outbox.message (topic) VALUES ('first')")
    ticks = Ticks(database.dsn)
    ticks.poll()
    with database.connect() as writer, database.connect(autocommit=False) as other:
        cursor = other.cursor()
        insert(1500)
        cursor = writer.cursor()
        for count in (1, 999, 1000, 1001, 7, 2500):
            insert(count)
        cursor.execute("BEGIN")
        insert(1200)
        cursor.execute("ROLLBACK")
        insert(3)
        insert(2100)
        ids, = database.execute("SELECT min(id), max(id), count(*) FROM outbox.message WHERE topic = 't'")
        ticks.tick(max_rows=0)
        for chunks in ({}, {"xids": 1}, {"xids": 2}, {"xids": 3, "max_rows": 1}, {"max_rows": 1},
                       {"max_rows": 1001}, {"max_rows": 2000}):
            bounds = ticks.bounds(**chunks)
            assert (bounds["low_id"], bounds["high_id"]) == ids[:2], chunks
            assert len(list(ticks.pages(5000, **chunks))) == ids[2]
        other.rollback()
    ticks.close()


def test_shards_part_the_rows_by_key_and_null_is_shard_0(database, chance):
    database.execute("INSERT INTO outbox.message (topic, key, payload) SELECT 't',"
                     " CASE WHEN i % 10 > 0 THEN (i % 50)::text END,"
                     " i::text FROM generate_series(1, 1000) i")
    whole = Ticks(database.dsn, "whole").poll()
    shards = [Ticks(database.dsn, "parted", shards=3, shard=shard, create=shard == 0)
              for shard in range(3)]
    for page in (None, 7):
        parts = [ticks.poll(page=page) for ticks in shards] if page is None else [
            list(ticks.pages(page)) for ticks in shards]
        assert sorted(row for part in parts for row in part) == sorted(whole)
        assert all(len(part) > 100 for part in parts)
        keys = [{row.key for row in part} for part in parts]
        assert None in keys[0]
        assert not keys[0] & keys[1] and not keys[1] & keys[2] and not keys[0] & keys[2]


def until_idle(ticks):
    """A look that took long on a busy machine is noted in the log; the next one need not be."""
    wait_for(lambda: ticks.poll() == [] and ticks.verdict == "idle", 60, "a look that is not noted")


def test_an_idle_tick_writes_nothing_and_says_what_it_saw(database):
    ticks = Ticks(database.dsn)

    def is_idle():  # a look that took long on a busy machine is written
        before = database.execute("SELECT count(*) FROM outbox.log")
        assert ticks.poll() == []
        if ticks.verdict == "idle":
            assert database.execute("SELECT count(*) FROM outbox.log") == before
        return ticks.verdict == "idle"

    wait_for(is_idle, 60, "a look without a row of the log")


@pytest.mark.parametrize("lie", [{"of_n": 5}, {"of_nonce": 7}])
def test_a_tick_from_another_history_is_fenced(database, lie):
    ticks = Ticks(database.dsn)
    database.execute("SELECT outbox.publish('t', 'k', 'x')")
    ticks.cursor.execute(*ticks.tick_call(**lie))
    assert [row[0] for row in ticks.cursor.fetchall()] == ["fenced"]
    assert [row.payload for row in ticks.poll()] == [b"x"]


def test_a_former_owner_cannot_write_behind_its_successor(database):
    """It wakes up with the row that it wrote last; the next number is taken."""
    former = Ticks(database.dsn)
    successor = Ticks(database.dsn, create=False)
    database.execute("SELECT outbox.publish('t', 'k', 'x')")
    with pytest.raises(errors.UniqueViolation):
        former.poll()
    assert [row.payload for row in successor.poll()] == [b"x"]


def test_a_dropped_or_split_publisher_is_told_so(database):
    ticks = Ticks(database.dsn)
    ticks.cursor.execute(*ticks.tick_call(of_shards=2))
    assert [row[0] for row in ticks.cursor.fetchall()] == ["dropped"]


def test_a_page_fails_on_a_server_without_the_log_row(database):
    database.execute("SELECT outbox.publish('t', 'k', 'x')")
    ticks = Ticks(database.dsn)
    ticks.tick(max_rows=0)
    ticks.nonce += 1
    with pytest.raises(psycopg2.Error, match="is not on this server"):
        list(ticks.pages(10))


def fill(database, rows, key="k"):
    database.execute("INSERT INTO outbox.message (topic, key, payload) SELECT 't', %s, 'x'"
                     " FROM generate_series(1, %s)", (key, rows))


def key_of_shard(database, shard, shards):
    return next(key for key in KEYS if database.execute(
        "SELECT outbox.shard_of(%s, %s)", (key.encode(), shards)) == [(shard,)])


@pytest.mark.parametrize("page", [None, 2])
def test_rows_restored_with_ids_beyond_the_sequence_are_read(database, page):
    """The table's owner may name ids: whatever the sequence says, they belong to their window."""
    fill(database, 3)
    database.execute("INSERT INTO outbox.message (id, topic, payload) OVERRIDING SYSTEM VALUE"
                     " VALUES (1000000, 't', 'x'), (2000000, 't', 'x')")
    ids = [row.id for row in Ticks(database.dsn).poll(page)]
    assert ids == [1, 2, 3, 1_000_000, 2_000_000]


def test_a_look_through_many_rows_of_other_shards_is_not_repeated(database):
    other, own = (key_of_shard(database, shard, 2) for shard in (1, 0))
    ticks = Ticks(database.dsn, shards=2)

    def a_few_are_not_noted():
        fill(database, 100, other)
        return ticks.poll() == [] and ticks.verdict == "idle"

    wait_for(a_few_are_not_noted, 60, "a look that is not noted")  # one that took long is
    fill(database, 1001, other)  # more than a window takes with the tick
    assert ticks.poll() == [] and ticks.verdict == "rows"
    until_idle(ticks)
    fill(database, 2, own)
    assert len(ticks.poll()) == 2


def test_rows_of_a_transaction_in_progress_are_looked_through_once(database):
    ticks = Ticks(database.dsn)
    with database.connect(autocommit=False) as slow, slow.cursor() as cursor:
        cursor.execute("INSERT INTO outbox.message (topic, payload) SELECT 't', 'x'"
                       " FROM generate_series(1, 200000)")
        database.execute("SELECT pg_current_xact_id()")  # later than the slow one
        assert ticks.poll() == [] and ticks.verdict == "rows"
        until_idle(ticks)
    assert len(ticks.poll()) == 200_000


@pytest.mark.parametrize("column", ["key", "headers", "payload", "key_bytes", "payload_bytes"])
def test_every_large_column_makes_a_window_one_for_pages(database, column):
    value = {"key": "repeat('k', 2000)", "payload": "repeat('p', 2000)",
             "key_bytes": "repeat('k', 2000)::bytea", "payload_bytes": "repeat('p', 2000)::bytea",
             "headers": "jsonb_build_object('h', repeat('h', 2000))"}[column]
    database.execute(f"INSERT INTO outbox.message (topic, {column}) SELECT 't', {value}"
                     " FROM generate_series(1, 100)")
    ticks = Ticks(database.dsn)
    ticks.tick(max_bytes=150_000)
    assert ticks.verdict == "pages"
    assert len(list(ticks.pages(1000))) == 100


def test_a_split_under_way_is_not_taken_for_the_end_of_the_rows(database):
    ticks = Ticks(database.dsn)
    fill(database, 1)
    database.execute("SELECT outbox.publisher_split_begin('ticks', 2)")
    assert ticks.poll() == [] and ticks.verdict == "splitting"
    database.execute("SELECT outbox.publisher_split_cancel('ticks')")
    assert len(ticks.poll()) == 1


def blocked_by(database, connection):
    """When the statements began that wait for a lock of this connection's transaction."""
    return [began for began, in database.execute(
        "SELECT query_start FROM pg_stat_activity WHERE %s = ANY (pg_blocking_pids(pid))",
        (connection.info.backend_pid,))]


def open_last_window(database, ticks):
    """Of a split that began: the window that all shards end with."""
    wait_for(lambda: database.execute(
        "SELECT 1 FROM outbox.publisher WHERE name = %s AND drain_to IS NOT NULL", (ticks.publisher,)),
        60, "the common end")
    assert ticks.poll() == [] and ticks.verdict == "rows"


def split_in_two(database, ticks):
    return run_command(["publisher", "split", ticks.publisher, "--shards", 2], {"DATABASE_URL": database.dsn})


def test_a_split_that_meets_a_renewal_looks_again(database):
    """Both write the row after the drained one; the owner is the first to commit."""
    ticks = Ticks(database.dsn)
    with ThreadPoolExecutor() as pool, database.connect(autocommit=False) as holder:
        split = pool.submit(split_in_two, database, ticks)
        open_last_window(database, ticks)
        holder.cursor().execute("SELECT FROM outbox.publisher WHERE name = 'ticks' FOR UPDATE")
        ticks.tick(must_write=True)
        ticks.cursor.execute("BEGIN")
        ticks.tick(must_write=True)
        wait_for(lambda: blocked_by(database, holder), 60, "the end of the split")
        holder.commit()
        wait_for(lambda: blocked_by(database, ticks.connection), 60, "the same row")
        ticks.cursor.execute("COMMIT")
        status, output, error = split.result()
    assert (status, error) == (0, ""), output
    assert database.execute("SELECT n, owner FROM outbox.log WHERE publisher = 'ticks' AND shard = 0"
                            " ORDER BY n DESC LIMIT 2") == [(ticks.n + 1, ""), (ticks.n, "by hand")]
    assert database.execute("SELECT shards FROM outbox.publisher WHERE name = 'ticks'") == [(2,)]


def test_a_split_that_meets_a_locked_log_looks_again(database):
    ticks = Ticks(database.dsn)
    with ThreadPoolExecutor() as pool, database.connect(autocommit=False) as holder:
        holder.cursor().execute(
            "SELECT FROM outbox.upkeep_lock WHERE work = 'log_partitions' FOR UPDATE")
        split = pool.submit(split_in_two, database, ticks)
        open_last_window(database, ticks)
        ticks.tick(must_write=True)
        first = wait_for(lambda: blocked_by(database, holder), 60, "the first try")
        wait_for(lambda: blocked_by(database, holder) not in ([], first), 60, "the next try")
        holder.rollback()
        status, output, error = split.result()
    assert (status, error) == (0, ""), output


@pytest.mark.parametrize("call", ["tick", "pages"])
def test_windows_are_refused_in_other_isolation_levels(database, call):
    fill(database, 1)
    ticks = Ticks(database.dsn)
    if call == "pages":
        ticks.tick(max_rows=0)
    ticks.cursor.execute("SET default_transaction_isolation = 'repeatable read'")
    with pytest.raises(psycopg2.Error, match="READ COMMITTED"):
        list(ticks.pages(10) if call == "pages" else ticks.tick())


def test_a_page_is_not_cut_by_statement_timeout(database):
    fill(database, 1)
    ticks = Ticks(database.dsn)
    ticks.tick(max_rows=0)
    ticks.cursor.execute("SET statement_timeout = '1h'")
    settings, _ = ticks.page_script(ticks.bounds(), 0, 1).split("copy (", 1)
    ticks.cursor.execute("BEGIN")
    ticks.cursor.execute(settings)
    ticks.cursor.execute("SHOW statement_timeout")
    assert ticks.cursor.fetchone() == ("0",)
