"""Buffers that a session touches if it planned its statements while all tables were empty, as an owner does.

A function keeps the plan of each of its statements. On an empty table without statistics, a plan that
reads all rows of a publisher seems as cheap as a plan that finds a few rows by their ids.
"""

import json
import os
import re

import pytest
from conftest import Database

from support.windows import QUERIES, Ticks, query

ROWS = 50_000  # of each table
FEW = 10       # rows that a call names
MOST = 1500    # buffers of a call
WARM = 6       # calls on empty tables; PostgreSQL may keep a generic plan from the sixth call on
TABLES = ("parked", "parked_request", "scheduled", "message_default", "destination", "skipped")

# Every fifth row is due, every fifth row is stalled, and the others are behind.
PARKED = """INSERT INTO outbox.parked (publisher, shard, id, created_at, event_id, topic, key, payload, tick, state,
        error, stalled, attempts, next_at)
    SELECT 'ticks', 0, m.id, m.created_at, m.event_id, m.topic, convert_to(m.key, 'UTF8'),
        convert_to(m.payload, 'UTF8'), 0,
        CASE m.id %% 5 WHEN 0 THEN 'waiting' WHEN 1 THEN 'stalled' ELSE 'behind' END,
        CASE m.id %% 5 WHEN 0 THEN 'refused' END, CASE m.id %% 5 WHEN 1 THEN 3 END, 1, now() - interval '1 s'
    FROM outbox.message m WHERE m.id BETWEEN %s AND %s"""
SCHEDULED = """INSERT INTO outbox.scheduled (publisher, shard, id, created_at, event_id, topic, key, payload,
        deliver_at, tick)
    SELECT 'ticks', 0, m.id, m.created_at, m.event_id, m.topic, convert_to(m.key, 'UTF8'),
        convert_to(m.payload, 'UTF8'),
        now() + (m.id %% 3 - 1) * interval '1 hour', 0
    FROM outbox.message m WHERE m.id BETWEEN %s AND %s"""


def numbered(name, *values):
    """The text and the values of a query with the parameters $1, $2 and so on."""
    with open(os.path.join(QUERIES, f"{name}.sql")) as file:
        text = file.read().replace("%", "%%")
    return (re.sub(r"\$(\d+)", r"%(p\1)s", text),
            {f"p{number}": value for number, value in enumerate(values, 1)})


class Session:
    """A session that rolls each call back and so keeps nothing of it but the plans."""

    def __init__(self, database):
        self.database = database
        self.ticks = Ticks(database.dsn)
        self.cursor = self.ticks.cursor
        self.parked = self.scheduled = (0, 0)  # the first and the last id
        self.published()

    def written(self, count, execute):
        """Writes messages, and returns the first and the last id."""
        return execute("WITH w AS (INSERT INTO outbox.message (topic, key, payload, deliver_at) SELECT 't', "
                       "'k' || i / 5, repeat('x', 300), now() "
                       "FROM generate_series(1, %s) i RETURNING id) SELECT min(id), max(id) FROM w", (count,))[0]

    def published(self):
        """Opens a window of all messages, and ends it."""
        self.ticks.tick(max_rows=0)
        self.ticks.tick(must_write=True, may_open=False)
        assert self.ticks.open_windows == 0

    def fill(self, count, execute):
        """Adds parked rows and as many scheduled rows, and returns the first and the last id of both."""
        parked, scheduled = self.written(count, execute), self.written(count, execute)
        execute(PARKED, parked)
        execute(SCHEDULED, scheduled)
        return parked, scheduled

    def execute(self, statement, values=None):
        """Runs a statement in the session's transaction."""
        self.cursor.execute(statement, values)
        return self.cursor.fetchall() if self.cursor.description else None

    def parks(self, ids, error, **more):
        """The value for a tick: the messages with odd ids are refused, the others are behind them."""
        rows = self.execute(
            "SELECT id, (extract(epoch FROM created_at) * 1000000)::bigint FROM outbox.message "
            "WHERE id = ANY (%s::bigint[]) ORDER BY id", (list(ids),))
        return {"rows": [[*row, error if row[0] % 2 else None, 1] for row in rows], "first_ms": 0, "max_ms": 0,
                "max_attempts": 3, **more}

    def touched(self, name):
        """Buffers that a call touches: the minimum of some calls, since a call may also read catalogs."""
        counts = []
        state = vars(self.ticks).copy()
        for _ in range(3 if self.parked[1] else WARM):
            self.cursor.execute("BEGIN")
            try:
                statement, values = CALLS[name](self)
                plan = self.execute("EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) " + statement,
                                    values)[0][0][0]["Plan"]
            finally:
                self.cursor.execute("ROLLBACK")
                vars(self.ticks).update(state)
            counts.append(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])
        return min(counts)


def few(ids, first=0):
    """Some of the ids between the first and the last one."""
    return range(ids[0] + first, ids[0] + first + FEW)


def tick(**more):
    return lambda session: session.ticks.tick_call(max_rows=2 * FEW, batch=FEW, **more)


def parking(ids_of, error="refused"):
    """A tick that parks messages."""
    return lambda session: session.ticks.tick_call(
        must_write=True, may_open=False, parks=json.dumps(session.parks(ids_of(session), error)))


def scheduling(session):
    parks = session.parks([], None)
    parks["scheduled"] = [[row[0], row[1], 1] for row in session.parks(few(session.parked), None)["rows"]]
    return session.ticks.tick_call(must_write=True, may_open=False, parks=json.dumps(parks))


def recovering(session):
    parks = session.parks([], None, recovered=[["t", 3, 0]])
    return session.ticks.tick_call(must_write=True, may_open=False, batch=FEW, parks=json.dumps(parks))


def listed(then):
    """A call behind a tick that opens a listed window. Empty tables get some rows first."""
    def call(session):
        if not session.parked[1]:
            session.fill(5 * FEW, session.execute)
        session.ticks.tick(may_list=True, max_rows=2 * FEW, batch=FEW)
        assert session.ticks.verdict == "listed"
        return then(session)
    return call


def listed_ids(session):
    return session.execute("SELECT listed_ids FROM outbox.log WHERE n = %s", (session.ticks.n,))[0][0]


def refused_again(session):
    parks = session.parks(listed_ids(session)[::4], "refused again")
    return session.ticks.tick_call(must_write=True, may_open=False, parks=json.dumps(parks))


def half(session):
    ids = listed_ids(session)
    return session.ticks.tick_call(closed=0, new_acked_id=ids[len(ids) // 2], must_write=True, may_open=False)


def page(session):
    ids = ",".join(map(str, listed_ids(session)))
    script = query("page_listed", publisher="ticks", shard=0, n=session.ticks.n, nonce=session.ticks.nonce,
                   listed=f"{{{ids}}}", after=0, rows=FEW, withheld=False, limit=0)
    settings, _, rest = script.partition("copy (")
    session.execute(settings)
    return rest.rpartition(") to stdout")[0], None


def asked(verb, chosen=lambda session: {}):
    """A tick that carries out a request of an operator."""
    def call(session):
        session.cursor.execute("SELECT outbox.parked_request('ticks', %s, %s, 'ticket 7', 0)",
                               (verb, json.dumps(chosen(session))))
        return session.ticks.tick_call(may_list=True, max_rows=2 * FEW, batch=FEW)
    return call


def request_of_ids(session):
    """An operator's request that names ids."""
    ids = session.parked if session.parked[1] else session.fill(5 * FEW, session.execute)[0]
    return numbered("parked_request", "ticks", "skip", json.dumps({"ids": list(few(ids))}), "ticket 7", 0, "alice", 1,
                    True, None)


def guarded(name, *values):
    """A query of parked rows that names the owner's log row."""
    return lambda session: numbered(name, "ticks", 0, session.ticks.n, session.ticks.nonce,
                                    *(value(session) if callable(value) else value for value in values))


def events_of_parked(session):
    return [event for event, in session.execute(
        "SELECT event_id::text FROM outbox.message WHERE id = ANY (%s::bigint[]) ORDER BY id",
        (list(few(session.parked)),))]


CALLS = {
    "take": lambda session: numbered("take", "ticks", 0, 1, 1, "by hand", 1000, 1),
    "a window": tick(),
    "a list": tick(may_list=True),
    "parked": parking(lambda session: few(session.scheduled, 5000)),
    "parked again": parking(lambda session: few(session.parked)),
    "parked behind": parking(lambda session: few(session.parked), None),
    "scheduled": scheduling,
    "recovered": recovering,
    "refused again": listed(refused_again),
    "half of a list is published": listed(half),
    "a list is published": listed(tick(closed=1, must_write=True, may_open=False)),
    "a page of a list": listed(page),
    "retry": asked("retry"),
    "retry of ids": asked("retry", lambda session: {"ids": [session.parked[0] + 5 - session.parked[0] % 5]}
                          if session.parked[1] else {"from_id": 1}),
    "skip": asked("skip"),
    "a request of ids": request_of_ids,
    "a look-up": guarded("parked_lookup", lambda session: list(few(session.parked)), list(range(FEW)),
                         events_of_parked),
    "digests": guarded("parked_digests", 0, FEW),
    "places": guarded("parked_places", None, None, FEW),
    "scheduled states": lambda session: numbered("scheduled_states", 1000),
}


@pytest.fixture(scope="module")
def session(postgres, migrated):
    postgres.create_database("plans_of_empty_tables", template=migrated())
    database = Database(postgres, "plans_of_empty_tables")
    for table in TABLES:
        database.execute(f"ALTER TABLE outbox.{table} SET (autovacuum_enabled = false)")
    session = Session(database)
    session.written(FEW, database.execute)
    for name in CALLS:
        session.touched(name)
    session.parked, session.scheduled = session.fill(ROWS, database.execute)
    session.published()
    session.written(FEW, database.execute)
    yield session
    session.ticks.close()
    postgres.drop_database("plans_of_empty_tables")


@pytest.mark.parametrize("name", CALLS)
def test_a_call(session, name):
    assert session.touched(name) <= MOST


def test_a_call_that_reads_all_rows_would_be_seen(session):
    for table in ("parked", "scheduled"):
        pages, = session.execute(f"SELECT pg_relation_size('outbox.{table}') / 8192")[0]
        assert pages > MOST
        known = session.execute("SELECT relpages FROM pg_class WHERE oid = %s::regclass", (f"outbox.{table}",))
        assert known == [(0,)]
