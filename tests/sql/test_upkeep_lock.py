"""The locks of upkeep and of migrations are rows and tables of the schema, so a login without grants holds none."""

import contextlib

import psycopg2
import pytest
from psycopg2 import errors

from support.relay import run_command

WORKS = ("partitions", "log_partitions", "lookback_tidy")
ROLES = ("outbox_writer", "outbox_consumer", "outbox_reader")


@pytest.fixture
def stranger(empty_database):
    """A session of a login without any grant, which holds each advisory lock that could be named after us."""
    empty_database.execute("CREATE ROLE stranger LOGIN")
    connection = empty_database.postgres.connect(empty_database.name, user="stranger")
    try:
        cursor = connection.cursor()
        for work in (*WORKS, "migration"):
            cursor.execute("SELECT pg_advisory_lock(hashtextextended(%s, 0))", (f"outbox.{work}",))
        yield cursor
    finally:
        connection.close()
        empty_database.execute("DROP ROLE stranger")


def test_advisory_locks_of_a_stranger_block_nothing(empty_database, stranger):
    status, output, error = run_command(["migrate", "up"], {"DATABASE_URL": empty_database.dsn}, timeout=40)
    assert status == 0, output + error
    ask = empty_database.execute
    assert ask("SELECT outbox.partition_make('message', '2020-01-01Z', '2020-01-02Z')") == [("made",)]
    assert ask("SELECT outbox.log_partition_make('main', 0, 5000000)") == [("made",)]
    assert ask("SELECT outbox.lookback_tidy(1)") == [(True,)]
    assert ask("SELECT outbox.publisher_create('second', 1, 'now')") == [("",)]


def test_a_login_without_grants_cannot_lock_a_row(empty_database, stranger):
    empty_database.migrate()
    for statement in ("SELECT FROM outbox.upkeep_lock FOR UPDATE",
                      "DO $$ BEGIN LOCK TABLE outbox.migration IN SHARE MODE; END $$",
                      "SELECT outbox.upkeep_begin('partitions', false)"):
        with pytest.raises(errors.InsufficientPrivilege):
            stranger.execute(statement)


@pytest.mark.parametrize("role", ROLES)
def test_no_role_but_the_relays_can_lock_a_row(database, role):
    with contextlib.closing(database.connect()) as connection:
        cursor = connection.cursor()
        cursor.execute(f"SET ROLE {role}")
        for statement in ("SELECT FROM outbox.upkeep_lock FOR UPDATE", "SELECT FROM outbox.upkeep_lock FOR KEY SHARE",
                          "DO $$ BEGIN LOCK TABLE outbox.upkeep_lock IN ROW SHARE MODE; END $$",
                          "DO $$ BEGIN LOCK TABLE outbox.migration IN ROW EXCLUSIVE MODE; END $$",
                          "SELECT outbox.upkeep_begin('partitions', true)"):
            with pytest.raises(errors.InsufficientPrivilege):
                cursor.execute(statement)


def test_one_transaction_at_a_time_has_a_lock_and_is_named(database):
    holders = "SELECT work, pid, user_name, application_name FROM outbox.upkeep_holders()"
    begin = "SELECT outbox.upkeep_begin('partitions', false)"
    assert database.execute(begin) == [(True,)]
    assert database.execute(holders) == []
    with contextlib.closing(database.connect(autocommit=False, application_name="by hand")) as holder:
        cursor = holder.cursor()
        cursor.execute("SAVEPOINT inner_one")  # as a function with an exception block takes it
        cursor.execute(begin)
        assert cursor.fetchone() == (True,)
        assert database.execute(begin) == [(False,)]
        assert database.execute("SELECT outbox.upkeep_begin('lookback_tidy', false)") == [(True,)]
        assert database.execute(holders) == [("partitions", holder.info.backend_pid, "postgres", "by hand")]
        assert database.execute("SELECT outbox.partition_make('message', '2020-01-01Z', '2020-01-02Z')") \
            == [("busy",)]
        holder.rollback()
    assert database.execute(holders) == []
    assert database.execute(begin) == [(True,)]


def test_a_row_that_is_gone_is_an_error(database):
    database.execute("DELETE FROM outbox.upkeep_lock WHERE work = 'partitions'")
    for waits in ("false", "true"):
        with pytest.raises(psycopg2.Error, match="no row partitions"):
            database.execute(f"SELECT outbox.upkeep_begin('partitions', {waits})")
