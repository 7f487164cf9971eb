"""`outbox-relay migrate`: applied once, by any number of processes, and refused when it must be."""

import subprocess

import psycopg2
import psycopg2.errors
import pytest

from support.relay import binary, environment, run_command
from support.windows import Ticks

NUMBERED = ["0001_message", "0002_publish", "0003_log", "0004_partitions", "0005_publishers",
            "0006_replay", "0007_parked", "0008_rebase", "0009_scheduled", "0010_lookback",
            "0011_lookback_flow", "0012_processed", "0013_claim", "0014_unique", "0015_rules", "0016_archive",
            "0017_bell"]


def migrate(database, *arguments, **settings):
    return run_command(["migrate", *arguments], {"DATABASE_URL": database.dsn, **settings})


def migrate_well(database, *arguments, **settings):
    status, _, error = migrate(database, *arguments, **settings)
    assert status == 0, error


def names(database, schema="outbox"):
    return [name for name, in database.execute(
        f"select name from {schema}.migration order by version = 0, version")]


@pytest.fixture
def user(postgres, empty_database):
    """A login that owns the database and nothing else."""
    postgres.execute("create role plain_owner login")
    postgres.execute(f'alter database "{empty_database.name}" owner to plain_owner')
    empty_database.dsn = postgres.dsn(empty_database.name, "plain_owner")
    yield empty_database
    postgres.execute(f'alter database "{empty_database.name}" owner to postgres')
    connection = postgres.connect(empty_database.name)
    connection.cursor().execute("drop owned by plain_owner cascade; drop role plain_owner")
    connection.close()


def test_a_second_run_finds_nothing_to_do(database):
    before = database.execute("select name, applied_at from outbox.migration")
    migrate_well(database, "up")
    assert database.execute("select name, applied_at from outbox.migration") == before
    assert names(database) == NUMBERED + ["roles"]


def test_eight_at_once_apply_each_file_once(empty_database):
    children = [subprocess.Popen([binary(), "migrate", "up"], stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, text=True,
                                 env=environment({"DATABASE_URL": empty_database.dsn}))
                for _ in range(8)]
    ends = [(child.communicate(timeout=60), child.returncode) for child in children]
    assert [status for _, status in ends] == [0] * 8, ends
    assert names(empty_database) == NUMBERED + ["roles"]


def test_pgbouncer_may_stand_between(empty_database, pgbouncer):
    empty_database.dsn = pgbouncer.dsn(empty_database.name)
    migrate_well(empty_database, "up")
    assert names(empty_database) == NUMBERED + ["roles"]
    # the pooler's idle connection would keep the database from being dropped in some versions
    empty_database.postgres.terminate_backends(database=empty_database.name)


def test_a_changed_file_is_refused_with_its_name(database):
    database.execute("update outbox.migration set checksum = 'ab' where name = '0002_publish'")
    status, _, error = migrate(database, "up")
    assert status == 78
    assert "sql/migrations/0002_publish.sql is not the file" in error
    assert "changed" in migrate(database, "status")[1]


def test_a_newer_database_is_refused_unless_it_says_that_this_program_may_run(database):
    database.execute("""insert into outbox.migration
                            (name, version, checksum, oldest_program, program)
                        values ('0999_future', 999, 'ab', '99.0.0', '99.1.0')""")
    status, _, error = migrate(database, "up")
    assert status == 78
    assert "0999_future, applied by outbox-relay 99.1.0, needs outbox-relay 99.0.0" in error
    database.execute("update outbox.migration set oldest_program = '0.1.0'")
    migrate_well(database, "up")


def test_an_older_program_does_not_undo_the_roles_of_a_newer_one(database):
    database.execute("update outbox.migration set checksum = 'ab', program = '99.0.0' "
                     "where name = 'roles'")
    migrate_well(database, "up")
    assert database.execute(
        "select checksum from outbox.migration where name = 'roles'") == [("ab",)]


def test_changed_roles_are_applied_again(database):
    database.execute("revoke insert on outbox.log from outbox_relay")
    database.execute("update outbox.migration set checksum = 'ab' where name = 'roles'")
    migrate_well(database, "up")
    assert database.execute(
        "select has_table_privilege('outbox_relay', 'outbox.log', 'insert')") == [(True,)]


def test_a_user_who_may_not_create_roles_is_told_so_before_anything_is_done(postgres, user):
    # another schema name, so that the roles of other tests do not serve
    status, _, error = migrate(user, "up", OUTBOX_RELAY_POSTGRES_SCHEMA="shop")
    assert status == 77
    assert "may not create the roles shop_writer, shop_consumer, shop_relay, shop_reader" in error
    assert "--no-roles" in error and len(error.strip().splitlines()) == 1
    assert user.execute("select to_regnamespace('shop')") == [(None,)]


def test_no_roles_needs_no_privilege_but_the_database(user):
    migrate_well(user, "up", "--no-roles", OUTBOX_RELAY_POSTGRES_SCHEMA="shop")
    assert names(user, "shop") == NUMBERED
    assert user.execute("select count(*) from pg_roles where rolname like 'shop%'") == [(0,)]


def test_another_schema_name_is_used_everywhere(empty_database):
    migrate_well(empty_database, "up", OUTBOX_RELAY_POSTGRES_SCHEMA="shop_events")
    assert empty_database.execute("select to_regnamespace('outbox')") == [(None,)]
    connection = empty_database.connect()
    cursor = connection.cursor()
    cursor.execute("set role shop_events_writer")
    cursor.execute("select shop_events.publish('t', 'k', 'x')")
    connection.close()
    assert empty_database.execute("select topic from shop_events.message") == [("t",)]
    texts = empty_database.execute("select prosrc from pg_proc where prosrc ~ "
        "'outbox([.]|_(writer|relay|reader))'")
    assert texts == []
    roles = "shop_events_writer, shop_events_relay, shop_events_reader"
    empty_database.execute(f"drop owned by {roles}")
    empty_database.execute(f"drop role {roles}")


@pytest.mark.parametrize("schema, words", [
    ("Shop", "is not a schema name"), ("pg_shop", "is not a schema name"),
    ("a; drop", "is not a schema name"), ("select", "reserved word"), ("order", "reserved word"),
    ("loop", "reserved word"), ("if", "reserved word"), ("begin", "reserved word"), ("by", "reserved word"),
    ("strict", "reserved word"), ("foreach", "reserved word")])
def test_a_schema_name_that_would_need_quotes_is_refused(empty_database, schema, words):
    status, _, error = migrate(empty_database, "up", OUTBOX_RELAY_POSTGRES_SCHEMA=schema)
    assert status == 78 and words in error


ENCODINGS = {"LATIN1": "\u00e9", "WIN1252": "\u20ac", "SQL_ASCII": "\u00e9", "EUC_JP": "\u65e5\u672c", "UTF8": "\U0001f600"}


@pytest.mark.parametrize("encoding", list(ENCODINGS))
def test_text_is_published_as_utf8_whatever_the_encoding_of_the_database(postgres, empty_database, encoding):
    text = ENCODINGS[encoding]
    postgres.execute(f"CREATE DATABASE other_encoding ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0")
    try:
        empty_database.dsn = postgres.dsn("other_encoding")
        migrate_well(empty_database, "up")
        connection = psycopg2.connect(empty_database.dsn)
        connection.set_client_encoding("SQL_ASCII" if encoding == "SQL_ASCII" else "UTF8")
        connection.autocommit = True
        cursor = connection.cursor()
        literal = b"'" + text.encode() + b"'"
        cursor.execute(b"select outbox.publish('topic', %b, %b, '{\"h\": \"%b\"}')" % (literal, literal, text.encode()))
        cursor.execute("insert into outbox.message (topic, key_bytes) values ('topic', %s)", (text.encode(),))
        cursor.execute("set client_encoding = 'UTF8'")
        ticks = Ticks(empty_database.dsn + "?client_encoding=UTF8")
        first, second = ticks.tick()
        assert first.key == first.payload == second.key == text.encode() and text in first.headers
        cursor.execute("select count(distinct bucket), "
                       "count(distinct outbox.published_bytes(key, key_bytes)) from outbox.message")
        assert cursor.fetchall() == [(1, 1)]
        ticks.connection.close()
        connection.close()
    finally:
        postgres.drop_database("other_encoding")


@pytest.mark.parametrize("column, value", [
    ("key", b"'\xff'"), ("payload", b"'a\xc3'"), ("headers", b"'{\"h\": \"\xff\"}'")])
def test_text_that_is_no_utf8_is_refused_when_it_is_written(postgres, empty_database, column, value):
    postgres.execute("CREATE DATABASE other_encoding ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0")
    try:
        empty_database.dsn = postgres.dsn("other_encoding")
        migrate_well(empty_database, "up")
        connection = psycopg2.connect(empty_database.dsn)
        connection.set_client_encoding("SQL_ASCII")
        with pytest.raises(psycopg2.errors.CheckViolation) as refusal:
            connection.cursor().execute(
                b"insert into outbox.message (topic, %b) values ('topic', %b)" % (column.encode(), value))
        assert refusal.value.diag.constraint_name == "text_is_published_as_utf8"
        connection.close()
    finally:
        postgres.drop_database("other_encoding")


def test_a_script_with_a_reserved_word_is_not_printed():
    for schema in ("order", "loop"):
        status, output, error = run_command(["migrate", "print"], {"OUTBOX_RELAY_POSTGRES_SCHEMA": schema})
        assert status == 78 and output == "" and "reserved word" in error


def test_each_word_that_needs_quotes_is_refused(empty_database):
    for word, in empty_database.execute("select word from pg_get_keywords() where quote_ident(word) <> word"):
        status, _, error = migrate(empty_database, "up", OUTBOX_RELAY_POSTGRES_SCHEMA=word)
        assert status == 78 and "reserved word" in error, word


@pytest.mark.parametrize("schema", ["exception", "perform", "raise", "get", "new", "found", "log", "key", "value"])
def test_other_words_are_names(empty_database, schema):
    """Words that PL/pgSQL knows without reserving them, and names of our tables, columns and variables."""
    migrate_well(empty_database, "up", OUTBOX_RELAY_POSTGRES_SCHEMA=schema)
    empty_database.execute(f"select {schema}.publish('t', 'k', 'x')")
    empty_database.execute(f"select * from {schema}.take('main', 0, 1, 1, 'me', 1000, 1)")
    assert empty_database.execute(f"select topic from {schema}.message") == [("t",)]
    assert empty_database.execute(f"select {schema}.partition_make('message', '2020-01-01Z', '2020-01-02Z')") \
        == [("made",)]
    roles = ", ".join(f"{schema}_{role}" for role in ("writer", "relay", "reader", "consumer"))
    empty_database.execute(f"drop owned by {roles}")
    empty_database.execute(f"drop role {roles}")


def test_the_printed_script_makes_what_up_makes(empty_database, tmp_path):
    status, script, _ = run_command(["migrate", "print"])
    assert status == 0
    (tmp_path / "all.sql").write_text(script)
    subprocess.run(["psql", "-q", "-v", "ON_ERROR_STOP=1", "-f", tmp_path / "all.sql",
                    empty_database.dsn], check=True, capture_output=True, timeout=60)
    before = empty_database.execute("select name, applied_at from outbox.migration")
    migrate_well(empty_database, "up")
    assert empty_database.execute("select name, applied_at from outbox.migration") == before


def test_a_failed_file_leaves_nothing_of_itself(empty_database):
    empty_database.execute("create schema outbox")
    empty_database.execute("create table outbox.message (mine int)")
    status, _, error = migrate(empty_database, "up")
    assert status != 0 and "0001_message" in error
    assert empty_database.execute(
        "select to_regclass('outbox.migration'), to_regproc('outbox.headers_valid')"
    ) == [(None, None)]


def test_the_size_limit_is_set_and_changed(database):
    insert = "select outbox.publish('t', 'k', repeat('x', %s))"
    database.execute(insert, (999_999,))
    migrate_well(database, "up", "--max-message-bytes", "100")
    with pytest.raises(Exception, match="message_fits_max_message_bytes"):
        database.execute(insert, (101,))
    database.execute(insert, (100,))
    database.execute("select outbox.set_max_message_bytes(5000000)")
    database.execute(insert, (4_000_000,))
