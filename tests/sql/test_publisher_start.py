"""outbox.publisher_create with a start: which rows a publisher has that begins now or at a time, in random
interleavings of transactions. The seed repeats a run exactly."""

import random

import psycopg2
import pytest

from support.sessions import SESSIONS, Application, Judge, Session, in_order
from support.windows import Ticks


def now(database):
    return database.execute("select clock_timestamp()")[0][0]


def create(database, name, start, shards=1):
    database.execute("select outbox.publisher_create(%s, %s, %s)", (name, shards, str(start)))


def row_of(cursor, name):
    cursor.execute("insert into outbox.message (topic, key, payload) values ('t', 'k', %s)",
                   (name,))


def names(rows):
    return [row.payload.decode() for row in rows]


def created_since(database, moment):
    """(key, number) of the committed rows that a publisher of this start must have."""
    return [(key, int(payload)) for key, payload in database.execute(
        "select key, payload from outbox.message where created_at >= %s", (moment,))]


def test_a_publisher_has_the_rows_created_at_its_start_or_later_and_no_others(database, seed, scale):
    """Start and creation fall anywhere into what sessions do; one reader reads by pages only."""
    sessions = [Session(database) for _ in range(SESSIONS)]
    straddled = 0
    for number in range(scale(300)):
        chance = random.Random(f"{seed}/{number}")
        application = Application(sessions, chance)
        start_at = chance.randrange(10, 50)
        create_at = chance.randrange(start_at, 80)
        judges = []
        for step in range(100):
            application.step()
            if step == start_at:
                start = now(database)
                straddled += any(session.rows for session in sessions)
            if step == create_at:
                for name in ("rows", "pages"):
                    create(database, f"{name}{number}", start)
                judges = [Judge(Ticks(database.dsn, f"{name}{number}", create=False))
                          for name in ("rows", "pages")]
            if judges and chance.random() < 0.3:
                judges[0].poll()
            if judges and chance.random() < 0.1:
                judges[1].poll_pages(chance.randint(1, 4), application.step)
        application.end_all()
        judges[0].poll()
        judges[1].poll_pages(2)
        for judge in judges:
            rows = judge.rows()
            assert sorted(rows) == sorted(created_since(database, start)), f"round {number}"
            assert in_order(rows), f"round {number}: {rows}"
            judge.ticks.close()
            database.execute("select outbox.publisher_drop(%s)", (judge.ticks.publisher,))
    assert straddled


def test_a_transaction_that_commits_late_with_older_rows_loses_none_and_waits_for_nobody(database):
    early, late = Session(database), Session(database)
    early.run("select pg_current_xact_id()")  # the lower xid, and it commits last
    row_of(early.cursor, "before, committed late")
    late.run("select pg_current_xact_id()")
    row_of(late.cursor, "before")
    start = now(database)
    row_of(early.cursor, "after, committed late")
    row_of(late.cursor, "after")
    late.run("commit")
    create(database, "later", start)
    ticks = Ticks(database.dsn, "later", create=False)
    assert names(ticks.poll()) == ["after"]
    early.run("commit")
    assert names(ticks.poll()) == ["after, committed late"]
    ticks.close()


def test_the_row_created_at_the_very_moment_belongs_to_the_publisher(database):
    for name in ("one", "two", "three"):
        database.execute("insert into outbox.message (topic, key, payload) values ('t', 'k', %s)",
                         (name,))
    start = database.execute("select created_at from outbox.message where payload = 'two'")[0][0]
    create(database, "exact", start)
    ticks = Ticks(database.dsn, "exact", create=False)
    assert names(ticks.poll()) == ["two", "three"]
    ticks.close()


def test_most_older_rows_are_behind_the_start_without_being_looked_at(database):
    """The first tick of such a publisher must not walk through the table."""
    database.execute("insert into outbox.message (topic, key, payload) select 't', 'k', 'old'"
                     " from generate_series(1, 1000)")
    start = now(database)
    database.execute("insert into outbox.message (topic, key, payload) values ('t', 'k', 'new')")
    create(database, "tight", start)
    assert database.execute(
        "select count(*) from outbox.message m join outbox.publisher s on s.name = 'tight'"
        " where not pg_visible_in_snapshot(m.txid, s.start)") == [(1,)]


def test_a_clock_that_was_set_back_makes_no_long_list_of_transactions(database):
    """Newer rows of 1,100 transactions below the one of an older row."""
    start = now(database)
    connection = database.connect()
    cursor = connection.cursor()
    for _ in range(1100):
        row_of(cursor, "new")
    cursor.execute("insert into outbox.message (topic, key, payload, created_at)"
                   " values ('t', 'k', 'old', %s::timestamptz - interval '1 s')", (start,))
    connection.close()
    create(database, "back", start)
    assert database.execute("select count(*) from outbox.publisher, pg_snapshot_xip(start)"
                            " where name = 'back'") == [(0,)]
    ticks = Ticks(database.dsn, "back", create=False)
    assert names(ticks.poll(max_rows=2000)) == ["new"] * 1100
    ticks.close()


def test_shards_of_a_publisher_part_what_came_since_its_start(database):
    insert = ("insert into outbox.message (topic, key, payload) select 't',"
              " 'k' || n, %s from generate_series(1, 50) n")
    database.execute(insert, ("old",))
    start = now(database)
    database.execute(insert, ("new",))
    create(database, "wide", start, 2)
    found = []
    for shard in (0, 1):
        ticks = Ticks(database.dsn, "wide", 2, shard, create=False)
        found += ticks.poll(page=7)
        ticks.close()
    assert sorted(row.key for row in found) == sorted(f"k{n}".encode() for n in range(1, 51))
    assert set(names(found)) == {"new"}


def test_the_state_of_an_older_row_is_that_it_lies_before_the_start(database):
    database.execute("select outbox.publish('t', 'k', 'old')")
    start = now(database)
    create(database, "now", "now")
    database.execute("select outbox.publish('t', 'k', 'new')")
    create(database, "since", start)
    states = database.execute("select publisher, payload, state"
                              " from outbox.message_state join outbox.message using (id)"
                              " order by publisher, id")
    assert states == [("main", "old", "pending"), ("main", "new", "pending"),
                      ("now", "old", "before_start"), ("now", "new", "pending"),
                      ("since", "old", "before_start"), ("since", "new", "pending")]


def test_a_start_in_the_future_or_that_is_no_time_is_refused(database):
    for start, word in (("2999-01-01 00:00:00Z", "in the future"), ("noon-ish", "noon-ish"),
                        ("infinity", "infinity"), ("-infinity", "-infinity"), ("", "not at")):
        with pytest.raises(psycopg2.errors.RaiseException, match=word):
            create(database, "odd", start)
    assert database.execute("select count(*) from outbox.publisher where name = 'odd'") == [(0,)]


def test_a_publisher_is_not_made_while_a_partition_is_emptied_on_the_word_of_the_others(database):
    upkeep, maker = database.connect(autocommit=False), database.connect(autocommit=False)
    upkeep.cursor().execute("select outbox.partition_begin()")
    cursor = maker.cursor()
    cursor.execute("set lock_timeout = '100ms'")
    with pytest.raises(psycopg2.errors.LockNotAvailable):
        cursor.execute("select outbox.publisher_create('new', 1, 'beginning')")
    maker.rollback()
    upkeep.rollback()
    cursor.execute("select outbox.publisher_create('new', 1, 'beginning')")
    assert database.execute("select outbox.partition_begin()") == [(False,)]
    maker.commit()
    assert database.execute("select outbox.partition_begin()") == [(True,)]
    upkeep.close()
    maker.close()
