"""outbox.message and outbox.publish: what a writer may do, and what is refused by which name."""

import io
import json
import pathlib
import statistics
import time
import uuid

import pytest
from psycopg2 import errors


@pytest.fixture
def writer(database):
    """A cursor of somebody who is an outbox_writer and nothing else."""
    connection = database.connect()
    cursor = connection.cursor()
    cursor.execute("set role outbox_writer")
    yield cursor
    connection.close()


class Owner:
    """execute() of the database's owner, in the transaction of a writer."""

    def __init__(self, cursor):
        self.cursor = cursor

    def execute(self, statement, parameters=None):
        self.cursor.execute("set local role none")
        self.cursor.execute(statement, parameters)
        found = self.cursor.fetchall()
        self.cursor.execute("set local role outbox_writer")
        return found


@pytest.fixture(scope="module")
def common_database(postgres, migrated, make_database):
    postgres.create_database("message_common", template=migrated())
    yield make_database(postgres, "message_common")
    postgres.drop_database("message_common")


@pytest.fixture
def undone_writer(common_database):
    """A writer's cursor as well, in a transaction that is rolled back: a database of its own costs each case more
    than all else that it does."""
    connection = common_database.connect(autocommit=False)
    cursor = connection.cursor()
    cursor.execute("set local role outbox_writer")
    yield cursor
    connection.rollback()
    connection.close()


@pytest.fixture
def undone(undone_writer):
    """What undone_writer has written, as the owner sees it."""
    return Owner(undone_writer)


ROOT = pathlib.Path(__file__).parents[2]
PUBLISHED = ("outbox.published_bytes(key, key_bytes) as key, "
             "outbox.published_bytes(payload, payload_bytes) as payload")


def rows(database, columns=f"topic, {PUBLISHED}, headers"):
    return [tuple(bytes(value) if isinstance(value, memoryview) else value for value in row)
            for row in database.execute(f"select {columns} from outbox.message order by id")]


def test_a_writer_inserts_copies_and_publishes(database, writer, tmp_path):
    writer.execute("insert into outbox.message (topic, key, payload) "
                   "select 't', i::text, 'x' from generate_series(1, 1000) i")
    with open(tmp_path / "rows", "w+") as file:
        file.write("t\tk\t\\\\x01\t{\"a\": 1}\n")
        file.seek(0)
        writer.copy_expert("copy outbox.message (topic, key, payload_bytes, headers) from stdin", file)
    writer.execute("select outbox.publish('t', 'k', '{}'::jsonb)")
    counts = "select count(*), count(distinct txid) from outbox.message"
    assert database.execute(counts) == [(1002, 3)]


@pytest.mark.parametrize("column, value", [
    ("txid", "'1'"), ("id", "1"), ("created_at", "now()")])
def test_a_writer_does_not_choose_what_orders_messages(undone_writer, column, value):
    with pytest.raises(errors.InsufficientPrivilege):
        undone_writer.execute(f"insert into outbox.message (topic, {column}) "
                              f"overriding system value values ('t', {value})")
    undone_writer.connection.rollback()
    undone_writer.execute("set local role outbox_writer")
    with pytest.raises(errors.InsufficientPrivilege):
        undone_writer.copy_expert(f"copy outbox.message (topic, {column}) from stdin", io.StringIO())


@pytest.mark.parametrize("statement", [
    "select * from outbox.message", "delete from outbox.message",
    "update outbox.message set topic = 'x'", "truncate outbox.message",
    "select outbox.partition_drop('x')", "insert into outbox.log default values",
    "select outbox.publisher_drop('main')", "select outbox.set_max_message_bytes(1)",
    "select * from outbox.migration"])
def test_a_writer_can_do_nothing_else(undone_writer, statement):
    with pytest.raises(errors.InsufficientPrivilege):
        undone_writer.execute(statement)


@pytest.mark.parametrize("statement, allowed", [
    ("select * from outbox.message", True), ("select * from outbox.lookback", True),
    ("insert into outbox.lookback (biz_type, biz_id, kind, section, source_partition, source_offset,"
     " decision) values ('order', '1', 'tombstone', 'shop', 0, 0, 'commit')", True),
    ("update outbox.lookback set section = 'mine'", False), ("delete from outbox.lookback", False),
    ("select outbox.partition_default_rows('lookback', 1)", True),
    ("lock table outbox.message in access share mode", True),
    ("select outbox.partition_make('message', '2030-01-01', '2030-01-02')", True),
    ("select outbox.partition_rehome('message', '1 day')", True), ("select * from outbox.partitions('message')", True),
    ("insert into outbox.message (topic) values ('t')", False), ("delete from outbox.log", False),
    ("create table outbox.mine ()", False), ("drop table outbox.message_default", False),
    ("select outbox.set_max_message_bytes(1)", False)])
def test_the_relay_owns_nothing(undone_writer, statement, allowed):
    undone_writer.execute("set local role outbox_relay")
    if allowed:
        undone_writer.execute(statement)
    else:
        with pytest.raises(errors.InsufficientPrivilege):
            undone_writer.execute(statement)


@pytest.mark.parametrize("role, seen", [("outbox_relay", True), ("outbox_writer", False)])
def test_the_last_id_is_unknown_without_the_privilege_to_see_it(undone_writer, role, seen):
    undone_writer.execute("select outbox.publish('t', 'k', 'v'::text)")
    undone_writer.execute(f"set local role {role}")
    undone_writer.execute((ROOT / "sql/queries/message_id_last.sql").read_text())
    assert (undone_writer.fetchone()[0] is not None) == seen


def test_a_reader_sees_all_but_payloads(database):
    connection = database.connect()
    cursor = connection.cursor()
    cursor.execute("set role outbox_reader")
    cursor.execute("select id, topic, headers from outbox.message")
    cursor.execute("select biz_id, kind, topic, decision from outbox.lookback")
    cursor.execute("select outbox.partition_default_rows(name, 1), outbox.partitions(name) "
                   "from outbox.partitioned()")
    cursor.execute("select * from outbox.message_state")
    cursor.execute("select * from outbox.progress")
    for statement in ("select payload from outbox.message", "select payload from outbox.lookback",
                      "insert into outbox.message (topic) values ('t')"):
        with pytest.raises(errors.InsufficientPrivilege):
            cursor.execute(statement)
    connection.close()


CURES = {
    "topic_is_a_kafka_topic_name": "1 to 249 characters", "partition_is_not_negative": "write null",
    "deliver_at_must_be_finite": "write null", "key_fits_8192_bytes": "shorten the key",
    "message_fits_max_message_bytes": "outbox.set_max_message_bytes", "key_is_text_or_bytes": "key_bytes",
    "payload_is_text_or_bytes": "payload_bytes", "payload_is_not_hex_of_bytes": "payload_bytes, or cast",
    "key_is_not_hex_of_bytes": "key_bytes", "headers_fit_32768_bytes": "into the payload",
    "headers_are_an_object_or_an_array_of_pairs": '{"name": value} or [["name", value], ...]',
    "header_names_beginning_with_outbox_are_reserved": "choose another name"}


@pytest.mark.parametrize("columns, values, constraint", [
    ("topic", "''", "topic_is_a_kafka_topic_name"),
    ("topic", "'.'", "topic_is_a_kafka_topic_name"),
    ("topic", "'..'", "topic_is_a_kafka_topic_name"),
    ("topic", "'a b'", "topic_is_a_kafka_topic_name"),
    ("topic", "E'a\\n'", "topic_is_a_kafka_topic_name"),
    ("topic", "'é'", "topic_is_a_kafka_topic_name"),
    ("topic", "repeat('a', 250)", "topic_is_a_kafka_topic_name"),
    ("topic, partition", "'t', -1", "partition_is_not_negative"),
    ("topic, deliver_at", "'t', 'infinity'", "deliver_at_must_be_finite"),
    ("topic, payload", "'t', repeat('x', 1000001)", "message_fits_max_message_bytes"),
    ("topic, payload", "'t', repeat('\u00fc', 500001)", "message_fits_max_message_bytes"),
    ("topic, payload_bytes", "'t', convert_to(repeat('x', 1000001), 'UTF8')", "message_fits_max_message_bytes"),
    ("topic, key", "'t', repeat('x', 8193)", "key_fits_8192_bytes"),
    ("topic, key_bytes", "'t', convert_to(repeat('x', 8193), 'UTF8')", "key_fits_8192_bytes"),
    ("topic, key, key_bytes", "'t', 'k', 'k'", "key_is_text_or_bytes"),
    ("topic, payload, payload_bytes", "'t', '', ''", "payload_is_text_or_bytes"),
    ("topic, payload", "'t', '{}'::bytea", "payload_is_not_hex_of_bytes"),
    ("topic, payload", "'t', E'\\\\x'", "payload_is_not_hex_of_bytes"),
    ("topic, key", "'t', E'\\\\x0aFf'", "key_is_not_hex_of_bytes"),
    ("topic, headers", "'t', jsonb_build_object('h', repeat('x', 32768))",
     "headers_fit_32768_bytes"),
    ("topic, headers", "'t', (repeat(' ', 32768) || '{}')::json", "headers_fit_32768_bytes"),
])
def test_a_refusal_explains_itself_by_a_name(undone_writer, columns, values, constraint):
    with pytest.raises(errors.CheckViolation) as refusal:
        undone_writer.execute(f"insert into outbox.message ({columns}) values ({values})")
    diagnosis = refusal.value.diag
    assert diagnosis.constraint_name == constraint
    assert CURES[constraint] in diagnosis.message_hint


@pytest.mark.parametrize("text", ["\\x7", "\\x7g", "\\x7b\n", "x7b", " \\x7b", "\\X7b"])
def test_what_is_no_hex_of_bytes_is_taken_as_it_is(undone, undone_writer, text):
    undone_writer.execute("insert into outbox.message (topic, key, payload) values ('topic', %s, %s)", (text, text))
    assert rows(undone) == [("topic", text.encode(), text.encode(), None)]


def test_the_limit_of_a_payload_changes_in_open_sessions_and_locks_no_table(database, writer):
    insert = "insert into outbox.message (topic, payload) values ('topic', repeat('x', 101))"
    writer.execute("begin; " + insert)  # holds its lock
    database.execute("set lock_timeout = '1s'; select outbox.set_max_message_bytes(100)")
    with pytest.raises(errors.CheckViolation):
        writer.execute(insert)
    writer.execute("rollback")
    database.execute("select outbox.set_max_message_bytes(101)")
    writer.execute(insert)


TYPES = {"untyped": "'%s'", "text": "'%s'::text", "varchar": "'%s'::varchar", "bytea": "'%s'::bytea",
         "integer": "%s::int", "bigint": "%s::bigint", "uuid": "'%s'::uuid", "json": "'%s'::json",
         "jsonb": "'%s'::jsonb"}
VALUES = {"integer": "7", "bigint": "7", "uuid": "01234567-89ab-4cde-8f01-23456789abcd",
          "json": '{"a":1.50}', "jsonb": '{"a": 1.50}'}


@pytest.mark.parametrize("key", ["untyped", "text", "varchar", "bytea", "integer", "bigint", "uuid"])
@pytest.mark.parametrize("payload", list(TYPES))
def test_publish_resolves_for_each_pair_of_types(undone, undone_writer, key, payload):
    key_text, payload_text = VALUES.get(key, "k"), VALUES.get(payload, '{"p":"C:\\\\dir"}')
    if payload == "bytea":
        payload_text = "\\x00ff"
    arguments = f"'topic', {TYPES[key] % key_text}, {TYPES[payload] % payload_text}"
    for headers in ("", ", null", ", '{\"h\": 1}'", ", '{\"h\": 1}'::json", ", '{\"h\": 1}'::jsonb",
                    ", '{\"h\": 1}'::text", ", headers => '{\"h\": 1}'"):
        undone_writer.execute(f"select outbox.publish({arguments}{headers})")
    expected = b"\x00\xff" if payload == "bytea" else payload_text.encode()
    assert rows(undone) == [("topic", key_text.encode(), expected, headers)
                            for headers in [None] * 2 + [{"h": 1}] * 5]


def test_a_writer_learns_the_ids_that_were_made(writer):
    writer.execute("insert into outbox.message (topic, key) values ('topic', 'k') "
                   "returning id, event_id, created_at")
    (number, event_id, _), = writer.fetchall()
    assert number == 1 and uuid.UUID(event_id).version == 7


@pytest.mark.parametrize("value", ["infinity", "-infinity"])
def test_the_owner_may_not_write_an_infinite_time(database, value):
    with pytest.raises(errors.CheckViolation) as refusal:
        database.execute("insert into outbox.message (topic, created_at) values ('t', %s)", (value,))
    assert refusal.value.diag.constraint_name == "created_at_is_finite"


@pytest.mark.parametrize("headers", [
    {}, [], {"a": "b"}, {"a": 1, "b": 1.5, "c": True, "d": None}, {"a": {"base64": "YWJj"}},
    {"a": {"base64": ""}}, {"a": {"base64": "YQ=="}}, {"Outbox-id": 1, "my-outbox-id": "outbox-id"},
    [["a", "b"], ["a", None], ["a", {"base64": "YWI="}], ["", "outbox-"]]])
def test_headers_of_the_right_form_are_taken(undone, undone_writer, headers):
    undone_writer.execute("select outbox.publish('t', 'k', 'x', %s)", (json.dumps(headers),))
    assert rows(undone, "headers") == [(headers,)]


# An object may repeat a name: the last value counts, for the rules as well.
@pytest.mark.parametrize("text", [
    '{"a":"b","c":1}', ' {\n\t"a" : "b" ,\r\n "c":1e2 }\n', '{"b":1.50,"a":2}', '[["a","b"],["a",null]]',
    '[ [ "a" , "b" ] ,\n["a",{"base64":"YWI="}]]', '{"a":1,"a":2}', '{"a":[1],"a":2}', '{"a":"\\u00e4\\"{"}'])
def test_headers_are_stored_as_they_were_written(undone, undone_writer, text):
    undone_writer.execute("insert into outbox.message (topic, headers) values ('t', %s)", (text,))
    undone_writer.execute("select outbox.publish('t', 'k', 'x', %s)", (text,))
    undone_writer.execute("select outbox.publish('t', 'k', 'x', %s::json)", (text,))
    undone_writer.execute("select outbox.publish_batch('t', '{k}', '{x}', headers => array[%s]::json[])", (text,))
    assert rows(undone, "headers::text") == [(text,)] * 4


def test_headers_of_jsonb_are_taken(undone, undone_writer):
    value = """'{"b":1, "a":2, "a":3}'::jsonb"""
    undone_writer.execute(f"insert into outbox.message (topic, headers) values ('t', {value})")
    undone_writer.execute(f"insert into outbox.message (topic, headers) select 't', {value}")
    undone_writer.execute(f"select outbox.publish('t', 'k', 'x', {value})")
    undone_writer.execute(f"select outbox.publish('t', 'k', 'x', {value}, unique_key => 'u')")
    assert rows(undone, "headers::text") == [('{"a": 3, "b": 1}',)] * 4


FORM = "headers_are_an_object_or_an_array_of_pairs"
RESERVED = "header_names_beginning_with_outbox_are_reserved"


@pytest.mark.parametrize("headers, constraint", [
    (None, FORM), (1, FORM), ("a", FORM), ({"a": []}, FORM), ({"a": [1]}, FORM), ({"a": {}}, FORM),
    ({"a": {"base64": "YQ"}}, FORM), ({"a": {"base64": "*"}}, FORM), ({"a": {"base64": 1}}, FORM),
    ({"a": {"base64": "YWJj\n"}}, FORM), ({"a": {"base64": "YQ==", "b": 1}}, FORM),
    (["a"], FORM), ([["a"]], FORM), ([["a", 1, 2]], FORM), ([[1, 1]], FORM), ([[None, 1]], FORM),
    ([["a", []]], FORM), ([["a", {}]], FORM), ([["a", {"base64": "Y"}]], FORM), ([{"a": 1}], FORM),
    ([[["a"], 1]], FORM),
    ({"outbox-id": "x"}, RESERVED), ([["a", 1], ["outbox-position", "x"]], RESERVED)])
def test_headers_of_the_wrong_form_are_refused(undone_writer, headers, constraint):
    with pytest.raises(errors.CheckViolation) as refusal:
        undone_writer.execute("insert into outbox.message (topic, headers) values ('t', %s)",
                              (json.dumps(headers),))
    assert refusal.value.diag.constraint_name == constraint
    assert CURES[constraint] in refusal.value.diag.message_hint


@pytest.mark.parametrize("text, constraint", [
    ('{"a":{}}', FORM), ('{"a":1,"a":[1]}', FORM), (" [ ]1", None), ('[["a",1,2]]', FORM), ('[["a"],["b",1]]', FORM),
    ('[[1,"a"]]', FORM), ("{'a':1}", None), ('{"a":1,}', None), ("", None), ("null", FORM), (" 7", FORM),
    ('{"outbox-id":1}', RESERVED), ('{"\\u006futbox-id":1}', RESERVED), ('{"outbox-id":1,"outbox-id":2}', RESERVED),
    ('[["\\u006futbox-lookback","x"]]', RESERVED), ('[["outbox-lookback","x"]]', RESERVED)])
def test_text_that_is_no_headers_is_refused(undone_writer, text, constraint):
    """Also JSON as jsonb would not print it; None: it is no JSON."""
    with pytest.raises(errors.CheckViolation if constraint else errors.InvalidTextRepresentation) as refusal:
        undone_writer.execute("select outbox.publish('t', 'k', 'x', %s)", (text,))
    assert refusal.value.diag.constraint_name == constraint


def test_headers_have_no_character_that_text_cannot_hold(undone_writer):
    with pytest.raises(errors.UntranslatableCharacter):
        undone_writer.execute("select outbox.publish('t', 'k', 'x', %s)", ('{"a":"\\u0000"}',))


@pytest.mark.parametrize("payload, expected", [
    ("'{\"a\": 1}'", b'{"a": 1}'),               # an unknown literal is text, kept as it is
    ("'{\"a\":1}'::text", b'{"a":1}'),
    ("'{\"a\":1}'::jsonb", b'{"a": 1}'),
    ("'\\x00ff'::bytea", b"\x00\xff"),
    ("'ü'", "ü".encode()),
    ("null", None), ("null::jsonb", None), ("null::text", None), ("null::bytea", None),
    ("'null'::jsonb", b"null"), ("''", b"")])
def test_publish_takes_json_text_and_bytes(undone, undone_writer, payload, expected):
    undone_writer.execute(f"select outbox.publish('t', 'ä', {payload})")
    assert rows(undone) == [("t", "ä".encode(), expected, None)]


def test_publish_returns_the_event_id_and_takes_every_argument_by_name(database, writer):
    given = str(uuid.uuid4())
    writer.execute("select outbox.publish('t', null, '1'::jsonb, event_id => %s, "
                   "headers => '{\"a\": 1}')", (given,))
    assert writer.fetchone() == (given,)
    writer.execute("select outbox.publish(topic => 't', key => 'k', payload => 'x')")
    made, = writer.fetchone()
    assert rows(database, f"event_id, {PUBLISHED}, headers") == [
        (given, None, b"1", {"a": 1}), (made, b"k", b"x", None)]


def test_publish_notes_a_delivery_time(database, writer):
    writer.execute("select outbox.publish('t', 'k', 'x', deliver_at => '2100-01-01T00:00Z')")
    assert rows(database, "extract(year from deliver_at at time zone 'UTC')") == [(2100,)]
    with pytest.raises(errors.CheckViolation, match="deliver_at_must_be_finite"):
        writer.execute("select outbox.publish('t', 'k', 'x', deliver_at => '-infinity')")


def test_the_transaction_id_is_the_same_in_a_savepoint(database):
    connection = database.connect(autocommit=False)
    cursor = connection.cursor()
    cursor.execute("select outbox.publish('t', 'k', '1')")
    cursor.execute("savepoint s")
    cursor.execute("select outbox.publish('t', 'k', '2')")
    cursor.execute("select pg_current_xact_id()::text")
    txid, = cursor.fetchone()
    connection.commit()
    connection.close()
    assert rows(database, "txid::text") == [(txid,), (txid,)]


def test_ids_come_one_by_one_and_the_payload_is_lz4(database):
    assert database.execute("select seqcache from pg_sequence "
                            "where seqrelid = 'outbox.message_id_seq'::regclass") == [(1,)]
    lz4 = database.execute("select exists (select from pg_settings where "
                           "name = 'default_toast_compression' and 'lz4' = any (enumvals))")[0][0]
    if lz4:  # PostgreSQL 13 has neither it nor the column that tells
        assert database.execute(
            "select distinct attcompression from pg_attribute where attname in ('payload', 'payload_bytes') "
            "and attrelid in (select inhrelid from pg_inherits "
            "where inhparent = 'outbox.message'::regclass)") == [("l",)]


def test_a_publishing_function_runs_as_its_caller(database):
    found = database.execute("select count(*), bool_or(prosecdef) from pg_proc "
                             "where pronamespace = 'outbox'::regnamespace and proname = 'publish'")
    assert found == [(12, False)]


def test_no_function_of_the_owner_is_everybodys(database):
    assert database.execute(
        """select p.oid::regprocedure::text from pg_proc p
           where pronamespace = 'outbox'::regnamespace and prosecdef
             and has_function_privilege('public', p.oid, 'execute')""") == []


def test_an_insert_never_fails_for_want_of_a_partition(database, writer):
    for name, in database.execute("select name from outbox.partitions('message')"):
        database.execute(f'drop table outbox."{name}"')
    writer.execute("select outbox.publish('t', 'k', 'x')")
    assert database.execute("select tableoid::regclass::text from outbox.message") == [
        ("outbox.message_default",)]


def test_a_writer_learns_the_state_of_its_message_by_its_event_id(database, writer):
    made = database.execute("select outbox.publish('topic', 'k', n) from generate_series(1, 5000) n")
    for event_id in (made[0][0], made[2500][0], made[-1][0]):
        writer.execute("select publisher, state from outbox.message_state_of(%s)", (event_id,))
        assert writer.fetchall() == [("main", "pending")]
    writer.execute("select outbox.message_state_of(outbox.new_event_id())")
    assert writer.fetchall() == []


@pytest.mark.parametrize("value", ["array[1, 2]", "row(1, 'a')", "current_date", "now()", "interval '1 day'",
                                   "int4range(1, 2)", "'x'::bytes_of_ours"])
def test_publish_refuses_types_whose_text_nobody_means(database, writer, value):
    database.execute("create domain public.bytes_of_ours as bytea")
    for arguments in (f"'k', {value}", f"{value}, 'x'"):
        with pytest.raises(errors.DatatypeMismatch):
            writer.execute(f"select outbox.publish('topic', {arguments})")
        writer.connection.rollback()
        writer.execute("set role outbox_writer")


def test_event_ids_differ_however_random_numbers_are_seeded(writer):
    writer.execute("""do $$ declare ids uuid[] := '{}'; begin
        for n in 1..1000 loop perform setseed(0.5); ids := ids || outbox.publish('topic', 'k', 'x'); end loop;
        assert (select count(distinct id) from unnest(ids) id) = 1000;
    end $$""")


# Messages of the last six hours, whose event ids say when they were made, up to 20 ms before their created_at.
MANY = """insert into outbox.message (created_at, event_id, topic, key, payload)
    select at, (lpad(to_hex(floor(extract(epoch from at - n %% 20 * interval '1 ms') * 1000)::bigint), 12, '0') || '7'
        || substr(md5(n::text), 1, 3) || 'a' || substr(md5(n::text), 4, 15))::uuid, 'topic', 'k' || n %% 1000, 'payload'
    from (select n, clock_timestamp() - interval '6 hours' * (1 - n / %s::float) as at
          from generate_series(1, %s) n) rows"""


@pytest.mark.alone
def test_the_state_is_known_within_100_ms_however_many_messages_there_are(database, writer, scale, chance):
    count = scale(50_000_000, 100_000)
    database.execute(MANY, (count, count))
    low, high = database.execute("select min(id), max(id) from outbox.message")[0]
    times = []
    for _ in range(20):
        (event_id,), = database.execute("select event_id from outbox.message where id = %s", (chance.randint(low, high),))
        began = time.monotonic()
        writer.execute("select state from outbox.message_state_of(%s)", (event_id,))
        assert writer.fetchall() == [("pending",)]
        times.append(time.monotonic() - began)
    assert statistics.median(times) < 0.1 and sorted(times)[-2] < 0.2, times


def test_an_event_id_of_another_kind_needs_the_time_of_its_message(database, writer):
    given = str(uuid.uuid4())
    writer.execute("insert into outbox.message (topic, event_id) values ('topic', %s) returning created_at", (given,))
    created_at, = writer.fetchone()
    writer.execute("select state from outbox.message_state_of(%s, %s)", (given, created_at))
    assert writer.fetchall() == [("pending",)]
    with pytest.raises(errors.InvalidParameterValue):
        writer.execute("select outbox.message_state_of(%s)", (given,))
