"""outbox.look: whether a shard at rest need not tick."""

import pytest

LOOK = "SELECT seen, version, has_rows FROM outbox.look(%s, %s::xid8)"
OLDEST = "SELECT pg_snapshot_xmin(%s::pg_snapshot)::text"


@pytest.fixture
def look(database, reader):
    """look(): what is new since the last call, as (rows, publisher)."""
    def since():
        seen, version, has_rows = database.execute(LOOK, ("ticks", since.oldest))[0]
        changed, since.version = version != since.version, version
        since.oldest = database.execute(OLDEST, (seen,))[0][0]
        return has_rows, changed

    since.oldest, since.version = "3", None
    since()
    return since


def test_nothing_is_new_whatever_else_happens(database, look):
    assert look() == (False, False)
    database.execute("CREATE TABLE public.other ()")
    assert look() == (False, False)


def test_a_row_is_seen_once_it_is_committed(database, look):
    writer = database.connect(autocommit=False)
    writer.cursor().execute("SELECT outbox.publish('t', 'k', 'x')")
    for _ in range(3):
        database.execute("CREATE TABLE public.other ()")  # transactions that end before the writer
        database.execute("DROP TABLE public.other")
        assert look() == (False, False)
    writer.commit()
    assert look() == (True, False)
    assert look() == (False, False)  # a tick has seen it meanwhile
    writer.close()


def test_a_change_of_the_publisher_is_seen(database, look):
    database.execute("UPDATE outbox.publisher SET requests = requests + 1 WHERE name = 'ticks'")
    assert look() == (False, True) and look() == (False, False)
    database.execute("SELECT outbox.publisher_drop('ticks')")
    assert look() == (False, True) and look.version is None


def test_it_waits_for_no_lock(database, look):
    holder = database.connect(autocommit=False)
    holder.cursor().execute("LOCK TABLE outbox.message")
    assert database.execute(LOOK, ("ticks", look.oldest)) == [(None, None, None)]
    assert database.execute(LOOK, ("ticks", None)) == [(None, None, None)]  # reads no table
    holder.close()
    assert look() == (False, False)


def test_its_plan_reads_the_index(database, look):
    """Also if the table was empty when the session made the plan."""
    connection = database.connect()
    cursor = connection.cursor()
    for _ in range(7):
        cursor.execute(LOOK, ("ticks", look.oldest))
    database.execute("SELECT outbox.publish('t', i::text, repeat('x', 500)) FROM generate_series(1, 30000) i")
    look()
    cursor.execute("LOAD 'auto_explain'")
    cursor.execute("SET auto_explain.log_min_duration = 0; SET auto_explain.log_nested_statements = on;"
                   " SET auto_explain.log_analyze = on; SET client_min_messages = log")
    del connection.notices[:]
    cursor.execute(LOOK, ("ticks", look.oldest))
    plan = "".join(connection.notices)
    assert "Index Only Scan" in plan and "Seq Scan on" not in plan.replace("Seq Scan on publisher", ""), plan
    connection.close()
