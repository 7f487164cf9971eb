"""outbox.processed and its functions: what is new, what is a copy, and who may ask."""

import contextlib
import datetime
import threading

import psycopg2
import pytest
from psycopg2 import errors

from support.process import wait_for

WAITERS = """select count(*) from pg_locks where locktype = 'advisory' and not granted
    and database = (select oid from pg_database where datname = current_database())"""
NOW = datetime.datetime.now(datetime.timezone.utc)


def take(cursor, *ids, name="billing", at=None, remember="24 hours"):
    """at: of all records, or a list."""
    times = at if isinstance(at, list) else [at] * len(ids)
    cursor.execute("select outbox.processed_take(%s, %s::bytea[], %s::timestamptz[], %s)",
                   (name, list(ids), times, remember))
    return cursor.fetchone()[0]


def claim(cursor, *ids, name="billing"):
    cursor.execute("select outbox.processed_claim(%s, %s::bytea[], %s::timestamptz[], '24 hours')",
                   (name, list(ids), [NOW] * len(ids)))
    return cursor.fetchone()[0]


def add(cursor, *ids, name="billing"):
    cursor.execute("select outbox.processed_add(%s, %s::bytea[], %s::timestamptz[], '24 hours')",
                   (name, list(ids), [NOW] * len(ids)))


@contextlib.contextmanager
def session(database, autocommit=True):
    connection = database.connect(autocommit=autocommit)
    try:
        yield connection.cursor()
    finally:
        connection.close()


@pytest.fixture
def cursor(database):
    with session(database) as cursor:
        yield cursor


def test_an_id_is_new_once(cursor):
    assert take(cursor, b"a", b"b") == [True, True]
    assert take(cursor, b"b", b"c") == [False, True]
    assert take(cursor) == []


def test_of_two_copies_in_a_call_the_second_is_none(cursor):
    assert take(cursor, b"a", b"b", b"a", b"a") == [True, True, False, False]
    assert take(cursor, b"b", b"c", b"c") == [False, True, False]


def test_ids_of_another_consumer_are_others(cursor):
    assert take(cursor, b"a", name="billing") == [True]
    assert take(cursor, b"a", name="mails") == [True]
    assert take(cursor, b"ls\0a", name="mai") == [True]  # name and id are not run together


def test_ids_are_bytes(cursor):
    ids = [b"\0", b"\0\0", b"a\0b", b"a\0c", b"\xff\xfe'\"\\", b"x" * 1024]
    assert take(cursor, *ids) == [True] * len(ids)
    assert take(cursor, *ids) == [False] * len(ids)


@pytest.mark.parametrize("id", [b"", b"x" * 1025])
def test_an_id_is_neither_empty_nor_long(cursor, id):
    with pytest.raises(errors.CheckViolation) as refusal:
        take(cursor, id)
    assert refusal.value.diag.constraint_name == "id_has_1_to_1024_bytes"


@pytest.mark.parametrize("hours, new", [(0, False), (23, False), (-23, False), (25, True), (-25, True)])
def test_a_copy_is_one_within_the_window_of_its_record(cursor, hours, new):
    at = NOW - datetime.timedelta(days=10)
    assert take(cursor, b"a", at=at) == [True]
    assert take(cursor, b"other", b"a", at=[at, at + datetime.timedelta(hours=hours)]) == [True, new]


def test_a_record_of_the_future_is_one_of_now(database, cursor):
    assert take(cursor, b"a", at=NOW + datetime.timedelta(days=400)) == [True]
    assert take(cursor, b"a") == [False]
    assert database.execute("select record_at <= processed_at from outbox.processed") == [(True,)]


def test_a_rollback_makes_it_new_again(database):
    with session(database, autocommit=False) as cursor:
        assert take(cursor, b"a") == [True]
        cursor.execute("savepoint s")
        assert take(cursor, b"b") == [True]
        cursor.execute("rollback to s")
        assert take(cursor, b"a", b"b") == [False, True]
        cursor.connection.rollback()
        assert take(cursor, b"a", b"b") == [True, True]


@pytest.mark.parametrize("ending, second", [("commit", False), ("rollback", True)])
def test_a_copy_waits_for_the_first_ones_end(database, ending, second):
    with session(database, autocommit=False) as first, session(database) as other:
        assert take(first, b"x", b"a") == [True, True]
        answers = []
        thread = threading.Thread(target=lambda: answers.append(take(other, b"a", b"b")))
        thread.start()
        wait_for(lambda: database.execute(WAITERS) == [(1,)], 30, "the second to wait")
        first.execute(ending)
        thread.join()
        assert answers == [[second, True]]


def test_batches_with_ids_in_common_do_not_stand_still(database):
    """In whatever order they name them: each is new once, and nobody meets a deadlock."""
    ids = [b"%d" % number for number in range(300)]
    found, failures = [], []

    def consume(number):
        try:
            with session(database) as cursor:
                for turn in range(10):
                    batch = ids[number::2] + ids[turn::3]
                    batch = batch[::-1] if number % 2 else batch
                    found.extend(id for id, new in zip(batch, take(cursor, *batch)) if new)
        except psycopg2.Error as error:
            failures.append(error)

    threads = [threading.Thread(target=consume, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert sorted(found) == sorted(ids)


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
@pytest.mark.parametrize("ask", [take, claim, add])
def test_another_level_is_refused(database, level, ask):
    with session(database) as cursor:
        cursor.execute(f"begin isolation level {level}")
        with pytest.raises(psycopg2.Error, match="READ COMMITTED") as refusal:
            ask(cursor, b"a")
        assert refusal.value.pgcode == "25000"


def test_at_most_1000_are_taken_in_a_transaction(database):
    ids = [b"%d" % number for number in range(1001)]
    with session(database) as cursor:
        with pytest.raises(errors.ProgramLimitExceeded, match="at most 1000"):
            take(cursor, *ids)
        for turn in range(2):  # the count ends with the transaction
            assert take(cursor, *ids[:1000]) == [turn == 0] * 1000
        cursor.execute("begin")
        take(cursor, *ids[:600])
        with pytest.raises(errors.ProgramLimitExceeded, match="1001"):
            take(cursor, *ids[600:])


@pytest.mark.parametrize("ids, times", [([b"a"], []), ([b"a", None], [None, None]), ([], [None])])
def test_what_does_not_belong_together_is_refused(cursor, ids, times):
    with pytest.raises(errors.InvalidParameterValue, match="each id has a time"):
        take(cursor, *ids, at=times)


def test_a_claim_is_the_sessions_until_it_is_recorded_or_given_back(database):
    with session(database) as one, session(database) as two:
        assert claim(one, b"a", b"b") == [0, 0]
        assert claim(two, b"a", b"b", b"c") == [1, 1, 0]
        add(one, b"a")
        one.execute("select outbox.processed_give_back('billing', '{b}')")
        assert claim(two, b"a", b"b") == [2, 0]
        assert one.connection.notices == two.connection.notices == []


def test_a_claim_ends_with_its_session(database):
    with session(database) as one, session(database) as two:
        assert claim(one, b"a") == [0]
        assert claim(two, b"a") == [1]
        one.connection.close()
        wait_for(lambda: claim(two, b"a") == [0], 30, "the lock")


def test_who_has_not_claimed_records_nothing(database, cursor):
    with pytest.raises(errors.LockNotAvailable, match="has not claimed"):
        add(cursor, b"a")
    assert database.execute("select count(*) from outbox.processed") == [(0,)]


def test_what_is_claimed_is_not_taken(database):
    """The two ways exclude each other."""
    with session(database) as one, session(database, autocommit=False) as two:
        assert claim(one, b"a") == [0]
        two.execute("set local lock_timeout = '50ms'")
        with pytest.raises(errors.LockNotAvailable):
            take(two, b"a")
        two.connection.rollback()
        add(one, b"a")
        assert take(two, b"b", b"a") == [True, False]
        assert claim(one, b"b") == [1]


def test_what_was_removed_is_new(cursor):
    take(cursor, b"a", b"b")
    take(cursor, b"a", name="mails")
    cursor.execute("select outbox.processed_remove('billing', '{a,c}')")
    assert cursor.fetchone() == (1,)
    assert take(cursor, b"a", b"b") == [True, False]
    assert take(cursor, b"a", name="mails") == [False]


def test_a_consumer_takes_and_does_nothing_else(database):
    with session(database) as cursor:
        cursor.execute("set role outbox_consumer")
        assert take(cursor, b"a") == [True]
        assert claim(cursor, b"a", b"b") == [2, 0]
        add(cursor, b"b")
        cursor.execute("select outbox.processed_remove('billing', '{a}')")
        for statement in ("select * from outbox.processed", "delete from outbox.processed",
                          "select * from outbox.message", "select outbox.partition_drop('x')"):
            with pytest.raises(errors.InsufficientPrivilege):
                cursor.execute(statement)


@pytest.mark.parametrize("role", ["outbox_writer", "outbox_reader"])
def test_others_take_nothing(database, role):
    with session(database) as cursor:
        cursor.execute(f"set role {role}")
        for ask in (take, claim, add):
            with pytest.raises(errors.InsufficientPrivilege):
                ask(cursor, b"a")


def test_a_look_opens_the_partitions_of_its_window_alone(database):
    """So that making and dropping others waits for no consumer's transaction."""
    with session(database, autocommit=False) as cursor:
        take(cursor, b"a", remember="1 hour", at=NOW)
        cursor.execute("""select count(*) from pg_locks l join pg_class c on c.oid = l.relation
                          where l.pid = pg_backend_pid() and c.relname = 'processed_default'""")
        assert cursor.fetchone() == (0,)


def test_a_partition_is_kept_until_the_window_has_passed(database, cursor):
    """Of its processing, too: a record that is older than the retention may come again."""
    old = datetime.datetime(2020, 1, 1, 12, tzinfo=datetime.timezone.utc)
    database.execute("select outbox.partition_make('processed', '2020-01-01', '2020-01-02')")
    leaf = "processed_p20200101"
    question = "select outbox.partition_holder(%s)"
    assert take(cursor, b"long", name="months", at=old, remember="90 days") == [True]
    assert take(cursor, b"short", name="minutes", at=old, remember="-1 ms") == [True]
    assert database.execute(question, (leaf,)) == [("months",)]
    assert database.execute("select outbox.partition_empty(%s)", (leaf,)) == [("held",)]
    database.execute("update outbox.processed set kept_until = now() where name = 'months'")
    assert database.execute(question, (leaf,)) == [(None,)]
    assert database.execute("select outbox.partition_empty(%s)", (leaf,)) == [("emptied",)]
    assert take(cursor, b"long", name="months", at=old, remember="90 days") == [True]


def test_copies_are_found_while_rows_are_moved(database):
    """Out of the default partition into their own: no look misses one."""
    count = 500
    old = datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)
    ids = [b"%d" % number for number in range(count)]
    times = [old + datetime.timedelta(minutes=number) for number in range(count)]
    with session(database) as cursor, session(database) as mover:
        assert take(cursor, *ids, at=times) == [True] * count
        moved = []

        def move():
            while moved[-1:] not in (["moved"], ["empty"]):
                mover.execute("select outbox.partition_rehome('processed', '1 hour')")
                moved.append(mover.fetchone()[0])

        thread = threading.Thread(target=move)
        thread.start()
        while thread.is_alive():
            assert take(cursor, *ids, at=times) == [False] * count
        assert moved[-1] == "moved"
        assert take(cursor, *ids, at=times) == [False] * count
