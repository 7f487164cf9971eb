"""What the database or the role sets for others changes nothing: our sessions, and the functions that others
call, set what they depend on."""

import contextlib
import json
import zlib

import pytest

from support.auditor import count_records
from support.dedup import Dedup
from support.lookback import Case
from support.pgbouncer import PgBouncer
from support.relay import run_command

# Limits end no statement before the one that overrides them, which is short.
HOSTILE = {
    "standard_conforming_strings": "off", "escape_string_warning": "on", "backslash_quote": "off",
    "array_nulls": "off", "transform_null_equals": "on", "quote_all_identifiers": "on",
    "bytea_output": "escape", "extra_float_digits": "-15", "DateStyle": "'German, DMY'",
    "IntervalStyle": "sql_standard", "TimeZone": "'Asia/Kathmandu'", "client_encoding": "latin1",
    "default_transaction_isolation": "serializable", "default_transaction_deferrable": "on",
    "statement_timeout": "1000", "lock_timeout": "1",
    "idle_in_transaction_session_timeout": "1000", "check_function_bodies": "off", "row_security": "on",
    "lc_messages": "'C'", "lc_numeric": "'C'",
}
NEWER = {140000: {"idle_session_timeout": "1000"}, 170000: {"transaction_timeout": "1000"}}
ROLES = ("stubborn", "reader")


def hostile(version):
    settings = dict(HOSTILE)
    for since, more in NEWER.items():
        settings.update(more if version >= since else {})
    return settings


@contextlib.contextmanager
def hostile_logins(database):
    """With logins of which every setting is a hostile one."""
    version = int(database.execute("SHOW server_version_num")[0][0])
    try:
        for role in ROLES:
            database.execute(f"CREATE ROLE {role} LOGIN SUPERUSER")
            for name, value in hostile(version).items():
                database.execute(f"ALTER ROLE {role} SET {name} = {value}")
        yield database
    finally:
        for role in ROLES:
            database.execute(f"DROP OWNED BY {role} CASCADE")
            database.execute(f"DROP ROLE {role}")


@pytest.fixture
def database(empty_database):
    with hostile_logins(empty_database) as database:
        yield database


@pytest.fixture
def migrated_database(empty_database, migrated):
    """With the schema, of a role without such settings."""
    server, name = empty_database.postgres, empty_database.name
    server.drop_database(name)
    server.create_database(name, template=migrated())
    with hostile_logins(empty_database) as database:
        yield database


@pytest.fixture(params=["direct", "pooled"])
def dsn(request, database):
    if request.param == "direct":
        yield database.postgres.dsn(database.name, user="stubborn")
        return
    with PgBouncer(database.postgres, users=("postgres", "stubborn")) as pooler:
        yield pooler.dsn(database.name, user="stubborn")


def leaves(database, table="message"):
    return {name for name, in database.execute(
        f"SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'outbox.{table}'::regclass")}


@pytest.mark.rotated
def test_the_relay_does_everything_whatever_the_role_sets(database, dsn, kafka, topic, make_relay, request):
    settings = {"DATABASE_URL": dsn, "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap}

    def run(*arguments, statuses=(0,)):
        status, output, error = run_command(arguments, settings)
        assert status in statuses, f"{arguments}: {output}{error}"
        return output

    run("migrate", "up")
    run("migrate", "up")
    assert "applied" in run("migrate", "status")

    # partitions: made by hand and ahead; dropped by the relay
    run("partition", "make", "--from", "2026-01-02")
    assert "outbox.message_p20260102" in leaves(database)
    run("partition", "drop", "message_p20260102", "--yes", "--reason", "empty")
    assert "outbox.message_p20260102" not in leaves(database)
    run("partition", "make", "--from", "2026-01-03", "--table", "message")
    database.execute("INSERT INTO outbox.message (topic, key, payload, created_at) VALUES (%s, 'old', 'old',"
                     " clock_timestamp() - interval '2 days')", (topic,))  # no partition is that of its day

    case = Case(database, kafka, make_relay, f"settings{zlib.crc32(request.node.nodeid.encode())}",
                check_after="1s")
    before = leaves(database)
    relay = case.relay(database_url=dsn).wait_ready()
    relay.wait_for(lambda: "outbox.message_p20260103" not in leaves(database), what="the old partition's end")
    relay.wait_for(lambda: not database.execute("SELECT id FROM outbox.message_default"),
                   what="the stray row's partition")
    assert len(leaves(database) - before) == 1

    headers = json.dumps({"a": "b", "bytes": {"base64": "AAE="}})
    database.execute("SELECT outbox.publish(%s, 'k' || n, E'\\\\000\\\\377'::bytea, %s::jsonb)"
                     " FROM generate_series(1, 300) n", (topic, headers))
    relay.wait_for(lambda: count_records(kafka.bootstrap, [topic]) == 301, what="the rows")
    case.application.prepare("1", "2", "3")
    case.application.commit("1")
    case.application.rollback("2")
    relay.wait_for(lambda: case.ids() == ["1"] and case.overdue() == ["3"], what="the look-back")

    for command in (["doctor"], ["status", "--json"], ["publisher", "list"], ["partition", "list"],
                    ["parked", "list"], ["lookback", "list"], ["lookback", "show", "order", "3"],
                    ["lookback", "commit", "order", "3", "--reason", "known", "--yes"],
                    ["replay", "topic=" + topic, "state=published", "--reason", "again", "--yes"],
                    ["publisher", "create", "second", "--start", "2026-01-02T03:04:05Z"],
                    ["publisher", "drop", "second", "--yes", "--reason", "done"]):
        run(*command, statuses=(0, 1))
    relay.wait_for(lambda: case.ids() == ["1", "3"], what="the operator's commit")
    verdict = json.loads(run("verify", "--json", statuses=(0, 1)))
    assert verdict["clean"] and verdict["published"] >= 300, verdict


def test_a_store_of_dedup_remembers_whatever_the_role_sets(database, kafka):
    dsn = database.postgres.dsn(database.name, user="stubborn")
    status, _, error = run_command(["migrate", "up"], {"DATABASE_URL": dsn})
    assert status == 0, error
    ids = ["hex:00", "hex:5c78", "hex:ff", "a", "o'clock"]
    with Dedup(f"postgres name=billing dsn={dsn}") as store:
        assert store.check(*ids) == ["new"] * 5
        store.done(*ids)
    with Dedup(f"postgres name=billing dsn={dsn}") as store:
        assert store.check(*ids) == ["done"] * 5


def test_an_application_with_such_settings_publishes_and_takes_ids(migrated_database, topic):
    """Its own limits and isolation hold for itself."""
    database = migrated_database
    connection = database.postgres.connect(database.name, user="reader")
    cursor = connection.cursor()
    cursor.execute("SET statement_timeout = 0; SET lock_timeout = 0;"
                   "SET default_transaction_isolation = 'read committed';"
                   "SET idle_in_transaction_session_timeout = 0")
    for headers in ('{"a": {"base64": "AAE="}}', '[["a", "b"], ["a", null]]'):
        cursor.execute("SELECT outbox.publish(%s, 'k', 'v'::text, %s::jsonb)", (topic, headers))
    taken = "SELECT outbox.processed_take('billing', array['\\134x00'::bytea, 'b'], array[now(), null], '1 day')"
    cursor.execute(taken)
    assert cursor.fetchone() == ([True, True],)
    cursor.execute(taken)
    assert cursor.fetchone() == ([False, False],)
    # the key is the one that any other session finds
    assert database.execute("SELECT count(*) FROM outbox.processed WHERE key = outbox.processed_key(name, id)") \
        == [(2,)]
    connection.close()


# Each is run in both sessions; the last statement's rows are compared, in a form that no setting prints differently.
CALLS = [
    """SELECT outbox.publish('t', 'k', decode('00ff5c6e', 'hex'),
           '{"a": {"base64": "AAE="}, "b": "x"}'::jsonb, gen_random_uuid(), to_timestamp(1000000000));
       SELECT outbox.publish('t', 'k', 'v'::text), outbox.publish('t', 'k', '{"n": 1.5}'::jsonb);
       SELECT payload, encode(payload_bytes, 'hex'), key, headers::text, extract(epoch FROM deliver_at)::bigint
       FROM outbox.message WHERE topic = 't' ORDER BY id""",
    """SELECT h.headers::text, outbox.headers_valid(h.headers) FROM (VALUES
           ('{"a": "b"}'::json), ('[["a", null]]'), ('{"a": {"base64": "!"}}'), ('{"": "b"}'), ('[1]'),
           ('{"a": {"base64": "AAE="}}')) h (headers)""",
    "SELECT name, extract(epoch FROM from_at)::bigint, extract(epoch FROM to_at)::bigint"
    " FROM outbox.partitions('message')",
    "SELECT name, publisher, shard, from_n, to_n FROM outbox.log_partitions()",
    "SELECT outbox.partition_make('message', '2020-01-02 03:04:05Z', '2020-01-03Z');"
    "SELECT outbox.partition_empty('message_p20200102T030405'), outbox.partition_drop('message_p20200102T030405')",
    "INSERT INTO outbox.message (topic, created_at) VALUES ('t', '2020-01-01Z');"
    "SELECT outbox.partition_rehome('message', '1 day')",
    "SELECT outbox.publisher_create('second', 2, '2020-01-02T03:04:05Z');"
    "SELECT name, shards, extract(epoch FROM start_at)::bigint FROM outbox.publisher ORDER BY name",
    "SELECT outcome, n, windows FROM outbox.take('main', 0, 1, 1, 'me', 1000, 1)",
    "SELECT outbox.processed_take('billing', array[decode('005c', 'hex'), 'b'], array[now(), null], '1 day');"
    "SELECT name, encode(id, 'hex'), key FROM outbox.processed ORDER BY id",
    "SELECT outbox.processed_claim('billing', '{a,b}', array[now(), now()], '1 day')",
    "SELECT outbox.claim_take('billing', 'a', '1 hour') > 0",
    "SELECT outbox.lookback_tidy(1000)",
    "SELECT outbox.job_tidy(1000)",
    "SELECT publisher, elsewhere, rows FROM outbox.rebase_plan()",
]


@pytest.mark.parametrize("call", CALLS)
def test_functions_that_others_call_mean_the_same_in_such_a_session(migrated_database, call):
    database = migrated_database
    answers = []
    for user in (None, "reader"):
        connection = database.postgres.connect(database.name, user=user)
        cursor = connection.cursor()
        cursor.execute("SET statement_timeout = 0; SET lock_timeout = 0; SET search_path = ''")
        cursor.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
        cursor.execute(call)
        answers.append(cursor.fetchall())
        cursor.execute("ROLLBACK")  # frees its locks; after close() alone the server frees them some time later
        connection.close()
    assert answers[0] and answers[0] == answers[1]
