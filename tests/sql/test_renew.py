"""outbox.renew: a log row that renews the lease, whatever becomes of every other table."""

import json

import psycopg2
import pytest
from support.destinations import Destination, known_destinations

RENEW = "SELECT outbox.renew('ticks', 0, %s, %s, %s, %s, %s)"
COPIED = """epoch, owner, first_tick, acked_id, ticks::text, listed_tick, listed_ids, timeline,
    system_identifier"""
ROW = f"SELECT {COPIED} FROM outbox.log WHERE publisher = 'ticks' AND n = %s"


def renew(reader, lease_ms=60_000, deaths=None, n=None, nonce=None):
    reader.cursor.execute(RENEW, (reader.n if n is None else n, nonce or reader.nonce, 77, lease_ms,
                                  deaths))
    return reader.cursor.fetchone()[0]


def test_the_row_says_what_the_row_before_said(database, reader):
    database.execute("SELECT outbox.publish('t', 'k', 'x')")
    reader.tick(new_acked_id=5, touched='{"t": [3, {"1": 7}]}')
    before = database.execute(ROW, (reader.n,))
    assert renew(reader, lease_ms=60_000, deaths=[4, 1, 0]) == "noted"
    assert database.execute(ROW, (reader.n + 1,)) == before
    assert database.execute(
        """SELECT nonce, destinations::text, deaths, txid::xid = xmin,
           lease_until BETWEEN clock_timestamp() AND clock_timestamp() + interval '1 min'
           FROM outbox.log WHERE publisher = 'ticks' AND n = %s""", (reader.n + 1,)) == [
               (77, "{}", [4, 1, 0], True, True)]
    assert known_destinations(database, "ticks") == {"t": Destination(3, {1: 7}, True)}


def test_it_is_fenced_as_a_tick_is(database, reader):
    assert renew(reader, nonce=12345) == "fenced"
    assert renew(reader, n=reader.n + 1) == "fenced"
    database.execute("UPDATE outbox.log SET timeline = timeline + 1 WHERE publisher = 'ticks'")
    assert renew(reader) == "fenced"
    database.execute("UPDATE outbox.log SET timeline = timeline - 1, txid = '3' WHERE publisher = 'ticks'")
    assert renew(reader) == "fenced"  # carried here from another cluster


def test_it_fails_where_another_row_was_written(database, reader):
    assert renew(reader) == "noted"
    with pytest.raises(psycopg2.errors.UniqueViolation):
        renew(reader)


def test_it_commits_durably_whatever_the_role_says(database, reader):
    reader.connection.autocommit = False
    reader.cursor.execute("SET synchronous_commit = off")
    assert renew(reader) == "noted"
    reader.cursor.execute("SHOW synchronous_commit")
    assert reader.cursor.fetchone() == ("on",)


def test_it_locks_nothing_but_the_log(database, reader):
    reader.connection.autocommit = False
    assert renew(reader) == "noted"
    reader.cursor.execute(
        """SELECT DISTINCT relation::regclass::text FROM pg_locks JOIN pg_class c ON c.oid = relation
           WHERE pid = pg_backend_pid() AND relnamespace = 'outbox'::regnamespace""")
    found = {name for name, in reader.cursor.fetchall()}
    assert found and all(name.startswith("outbox.log") for name in found), found


def test_it_goes_while_every_other_table_is_locked(database, reader):
    locker = psycopg2.connect(database.dsn)
    names = [name for name, in database.execute(
        """SELECT oid::regclass::text FROM pg_class WHERE relnamespace = 'outbox'::regnamespace
           AND relkind IN ('r', 'p') AND relname NOT LIKE 'log%%'""")]
    locker.cursor().execute(f"LOCK TABLE {', '.join(names)} IN ACCESS EXCLUSIVE MODE")
    reader.cursor.execute("SET statement_timeout = '5s'")
    assert renew(reader) == "noted"
    locker.close()


def test_a_blind_look_opens_its_window_without_the_message_table(database, reader):
    database.execute("SELECT outbox.publish('t', 'k', 'x')")
    locker = psycopg2.connect(database.dsn)
    locker.cursor().execute("LOCK TABLE outbox.message IN ACCESS EXCLUSIVE MODE")
    reader.cursor.execute("SET statement_timeout = '5s'")
    assert reader.tick(blind=True) == []
    assert reader.verdict == "pages"
    locker.close()
    assert [row.payload for row in reader.pages(10)] == [b"x"]
    assert reader.tick(blind=True) == []


def test_a_blind_look_that_lists_rows_says_so(database, reader):
    """Taken for an ordinary window, its rows would be scheduled once more, and go with the list."""
    database.execute("INSERT INTO outbox.message (topic, deliver_at) VALUES ('t', now())")
    (number,), = database.execute("SELECT id FROM outbox.message")
    reader.tick()
    moved = json.dumps({"rows": [], "recovered": [], "scheduled": [
        [number, database.execute("SELECT (extract(epoch from created_at) * 1000000)::bigint "
                                  "FROM outbox.message")[0][0], reader.first_tick + 1]]})
    reader.tick(parks=moved, must_write=True)
    assert [row.id for row in reader.tick(blind=True, may_list=True)] == [number]
    assert reader.verdict == "listed"
