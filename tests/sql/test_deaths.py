"""What the log says of owners that die, and what is done about a message that kills them."""

import json

import pytest

from support.windows import Ticks

TAKE = """SELECT outcome, deaths, alone_deaths FROM outbox.take('ticks', 0, 1, %s, %s, %s, 1)"""
NEWEST = "SELECT deaths FROM outbox.log WHERE publisher = 'ticks' ORDER BY n DESC LIMIT 1"


@pytest.fixture
def take(database):
    """take("b"): an owner of this name takes the shard, of which the lease is over."""
    nonces = iter(range(100, 200))

    def took(owner, lease_ms=0):
        expire(database)
        return database.execute(TAKE, (next(nonces), owner, lease_ms))[0]

    return took


def expire(database):
    """The lease is over, and was not released."""
    database.execute("UPDATE outbox.log SET lease_until = clock_timestamp(), "
                     "written_at = written_at - interval '1 hour' "
                     "WHERE lease_until > clock_timestamp()")


def test_deaths_are_counted_until_an_owner_notes_progress(database, reader, take):
    assert take("b", 60000) == ("taken", 1, 0)
    assert take("b", 60000) == ("taken", 1, 0)  # itself
    assert take("c", 60000) == ("taken", 2, 0)
    assert database.execute(NEWEST) == [([2, 0, 0],)]
    expire(database)
    ticks = Ticks(database.dsn, create=False)
    ticks.tick(must_write=True, new_deaths=None)
    assert database.execute(NEWEST) == [(None,)]
    assert take("d") == ("taken", 1, 0)


def test_a_release_is_no_death(database, reader, take):
    reader.tick(must_write=True, lease_ms=0, new_deaths=[2, 1, 0])
    assert take("b") == ("taken", 2, 1)


@pytest.mark.parametrize("marked, alone", [(1, 3), (0, 0)])
def test_a_death_counts_for_the_row_that_was_alone_then(marked, alone, database, reader, take):
    reader.tick(must_write=True, new_deaths=[5, 2, marked])
    assert take("b") == ("taken", 6, alone)
    assert database.execute(NEWEST) == [([6, alone, 0],)]


def test_a_withheld_page_has_neither_payload_nor_headers(database, reader):
    database.execute("SELECT outbox.publish('t', 'k', 'x', '{\"h\": \"v\"}')")
    reader.tick(max_rows=0)
    row, = reader.pages(1, withheld=True)
    assert (row.topic, row.key, row.payload, row.headers) == ("t", b"k", None, None)


def listed_row(database, reader):
    row = database.execute(
        "INSERT INTO outbox.message (topic, key, payload) VALUES ('t', 'k', 'x') "
        "RETURNING id, (extract(epoch FROM created_at) * 1000000)::bigint")[0]
    reader.tick()
    parks = {"rows": [[*row, "too large", 1]], "first_ms": 0, "max_ms": 0, "max_attempts": 3}
    reader.tick(must_write=True, may_open=False, parks=json.dumps(parks))
    return row


def test_a_listed_window_for_pages_comes_without_rows(database, reader):
    row = listed_row(database, reader)
    assert reader.tick(may_list=True, max_rows=0) == []
    assert reader.verdict == "listed"
    assert database.execute("SELECT listed_ids FROM outbox.log ORDER BY n DESC LIMIT 1") == [
        ([row[0]],)]


@pytest.mark.parametrize("again", [False, True])
def test_a_row_that_kills_is_dead_at_once(again, database, reader):
    if again:
        row = listed_row(database, reader)
        reader.tick(may_list=True)
    else:
        row = database.execute(
            "INSERT INTO outbox.message (topic, key, payload) VALUES ('t', 'k', 'x') "
            "RETURNING id, (extract(epoch FROM created_at) * 1000000)::bigint")[0]
        reader.tick()
    parks = {"rows": [[*row, "it kills", 1, None, True]], "first_ms": 0, "max_ms": 0,
             "max_attempts": 1000}
    reader.tick(must_write=True, may_open=False, parks=json.dumps(parks))
    assert database.execute("SELECT state, error, convert_from(payload, 'UTF8') "
                            "FROM outbox.parked") == [("dead", "it kills", "x")]
