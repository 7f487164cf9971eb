"""Partitions made, emptied, dropped, detached and moved into, beside writers who must not notice.

What holds for all tables is tested for each: by the fixture `table`, a row of which is needed
until it is released, which is to say acknowledged by the publisher, decided, or out of its window.

A writer's wait for a lock is not measured by a clock, which a busy machine stretches: the server
logs every wait that lasts 50 ms (log_lock_waits with deadlock_timeout = 50ms in its session). Those are
left out during which the machine itself stood still: a thread that sleeps 5 ms at a time says when. That
thread does not see that a single backend got no CPU, so one short wait is no failure: a function that keeps
writers waiting does it at each call, and keeps both of them waiting.
"""

import contextlib
import datetime
import random
import re
import threading
import time

import psycopg2
import pytest

from support.process import wait_for
from support.windows import QUERIES, Ticks

OLD = "2020-01-01", "2020-01-02"
OLD_LEAF = "message_p20200101"  # of the message table; see Table.leaf
OLD_AT = "2020-01-01 12:00Z"
A_LONG_WAIT_MS = 250


def call(database, function, *arguments):
    marks = ", ".join(["%s"] * len(arguments))
    return database.execute(f"select outbox.{function}({marks})", arguments)[0][0]


def until(expected, database, function, *arguments):
    """Repeats a call while it is busy, as the relay does."""
    deadline = time.monotonic() + 60
    while (outcome := call(database, function, *arguments)) == "busy":
        assert time.monotonic() < deadline, f"{function} stays busy"
    assert outcome == expected


class Message:
    name, time, holder = "message", "created_at", "main/0"
    id, id_type = "id", "bigint"
    write = "select outbox.publish('t', 'k', 'x')"  # by a writer, and now

    @staticmethod
    def insert(cursor, at=OLD_AT, payload="x"):
        """Only the owner can: a row as if it had been written at another time. Returns its id."""
        cursor.execute("insert into outbox.message (created_at, topic, key, payload, headers) "
                       "values (%s, 't', 'k', %s, '{\"a\": 1}') returning id", (at, payload))
        return cursor.fetchone()[0]

    @staticmethod
    def release(database):
        acknowledge(database)


class Lookback:
    name, time, holder = "lookback", "prepared_at", "shop"
    id, id_type = "biz_id", "text"
    prepare = """insert into outbox.lookback (biz_type, biz_id, prepared_at, kind, section,
                     source_partition, source_offset, topic, key, payload, headers, check_at, digest,
                     event_id)
                 values ('order', {id}, {at}, 'prepare', 'shop', 0, 0, 't', 'k', {payload},
                     '{{"a": 1}}', now(), 'd', gen_random_uuid()) returning biz_id"""
    # as everybody does who decides: it sees the prepare
    decide = """insert into outbox.lookback (biz_type, biz_id, prepared_at, kind, section, decision,
                    source, decided_at)
                select biz_type, biz_id, prepared_at, 'decision', section, 'rollback', 'operator',
                    now()
                from outbox.lookback where kind = 'prepare' and {which} on conflict do nothing"""
    write = prepare.format(id="gen_random_uuid()", at="clock_timestamp()", payload="'x'")

    @classmethod
    def insert(cls, cursor, at=OLD_AT, payload="x"):
        cursor.execute(cls.prepare.format(id="gen_random_uuid()", at="%s", payload="%s"),
                       (at, payload))
        return cursor.fetchone()[0]

    @classmethod
    def release(cls, database):
        connection = database.connect()
        connection.cursor().execute(cls.decide.format(which="true"))
        connection.close()


class Processed:
    name, time, holder = "processed", "record_at", "billing"
    id, id_type = "encode(id, 'hex')", "text"
    write = """select outbox.processed_take('billing', array[convert_to(gen_random_uuid()::text,
                   'UTF8')], array[now()], '1 day')"""

    @staticmethod
    def insert(cursor, at=OLD_AT, payload=None):
        id = random.randbytes(16).hex()
        cursor.execute("insert into outbox.processed (name, id, key, record_at, kept_until) "
                       "values ('billing', decode(%s, 'hex'), 0, %s, 'infinity')", (id, at))
        return id

    @staticmethod
    def release(database):
        """As if the window had passed."""
        database.execute("update outbox.processed set kept_until = '-infinity'")


class UniqueLedger:
    name, time, holder = "unique_ledger", "at", "orders"
    id, id_type = "unique_key", "text"
    write = """select outbox.publish('orders', 'k', 'p', unique_key => gen_random_uuid()::text, within => '1 day')"""

    @staticmethod
    def insert(cursor, at=OLD_AT, payload=None):
        key = random.randbytes(16).hex()
        cursor.execute("insert into outbox.unique_ledger (key, at, event_id, message_id, topic, unique_key, kept_until) "
                       "values (0, %s, gen_random_uuid(), 1, 'orders', %s, 'infinity')", (at, key))
        return key

    @staticmethod
    def release(database):
        """As if the window had passed."""
        database.execute("update outbox.unique_ledger set kept_until = '-infinity'")


TABLES = [Message, Lookback, Processed, UniqueLedger]
for each in TABLES:
    each.leaf = f"{each.name}_p20200101"


@pytest.fixture(params=TABLES, ids=lambda each: each.name)
def table(request):
    return request.param


def acknowledge(database, publisher="main", shard=0):
    """The publisher's newest log row says that everything committed by now is published."""
    database.execute(
        """insert into outbox.log (publisher, shard, n, epoch, nonce, owner, lease_until, first_tick,
               acked_id, ticks, destinations, folded, timeline, system_identifier)
           select publisher, shard, n + 1, epoch, 1, '', '-infinity', first_tick + 1, 0,
               array[pg_current_snapshot()], '{}', folded, timeline, system_identifier
           from outbox.progress where publisher = %s and shard = %s""", (publisher, shard))


def ids(database, table=Message):
    kind = "" if table is not Lookback else "where kind = 'prepare'"
    return [row[0] for row in database.execute(
        f"select {table.id} from outbox.{table.name} {kind} order by 1")]


def leaves(database, table=Message):
    return [name for name, in database.execute("select name from outbox.partitions(%s)",
                                               (table.name,))]


@pytest.fixture
def old(database):
    """A database with a partition of each table whose time has passed."""
    for each in TABLES:
        assert call(database, "partition_make", each.name, *OLD) == "made"
    return database


@contextlib.contextmanager
def transaction(database):
    connection = database.connect(autocommit=False)
    try:
        yield connection.cursor()
        connection.commit()
    finally:
        connection.close()


class Standstills:
    """When a sleep of 5 ms took 20 ms longer; in seconds since 1970."""

    def __init__(self):
        self.found = []
        self.ending = threading.Event()
        self.thread = threading.Thread(target=self._watch)

    def _watch(self):
        while not self.ending.is_set():
            begun = time.time()
            time.sleep(0.005)
            if time.time() - begun > 0.025:
                self.found.append((begun, time.time()))

    def cover(self, line):
        """Was there one in the 100 ms before the server wrote the line?"""
        written, = re.findall(r"^([-\d]+ [:\d]+\.\d+) UTC", line)
        at = datetime.datetime.fromisoformat(written).replace(
            tzinfo=datetime.timezone.utc).timestamp()
        return any(begun <= at + 0.01 and end >= at - 0.1 for begun, end in self.found)


class Writers:
    """Sessions that insert one row a transaction, as fast as they can, to the end of the block."""

    def __init__(self, database, table=Message, sessions=2):
        self.database = database
        self.write = table.write
        self.failures = []
        self.count = 0
        self.pids = []
        self.ending = threading.Event()
        self.standstills = Standstills()
        self.threads = [threading.Thread(target=self._write) for _ in range(sessions)]

    def _write(self):
        try:
            connection = self.database.connect()
            cursor = connection.cursor()
            cursor.execute("set deadlock_timeout = '50ms'; set log_lock_waits = on")
            self.pids.append(connection.info.backend_pid)
            while not self.ending.is_set():
                cursor.execute(self.write)
                self.count += 1
            connection.close()
        except psycopg2.Error as error:
            self.failures.append(error)

    def __enter__(self):
        self.log_start = len(self._log())
        self.standstills.thread.start()
        for thread in self.threads:
            thread.start()
        self.wait_more(10)
        return self

    def __exit__(self, *_):
        self.ending.set()
        self.standstills.ending.set()
        for thread in [*self.threads, self.standstills.thread]:
            thread.join()
        assert not self.failures
        lines = [line for line in self._log()[self.log_start:].splitlines()
                 if any(f"[{pid}]" in line for pid in self.pids) and not self.standstills.cover(line)]
        waits = [line for line in lines if "still waiting for" in line]
        took = [float(ms) for line in lines for ms in re.findall(r" acquired .* after ([\d.]+) ms", line)]
        assert len(waits) <= 1 and max(took, default=0) < A_LONG_WAIT_MS, lines

    def wait_more(self, rows=10):
        before = self.count
        wait_for(lambda: self.count >= before + rows or self.failures, 30, "rows of the writers")

    def _log(self):
        with open(self.database.postgres.log, errors="replace") as file:
            return file.read()


def test_waits_of_50_ms_would_be_seen(database, table):
    """Unless the machine stood still in it: then another one is."""
    def is_seen():
        try:
            with Writers(database, table) as writers, transaction(database) as cursor:
                cursor.execute(f"lock table outbox.{table.name} in access exclusive mode")
                time.sleep(0.2)
                assert writers.count
        except AssertionError as error:
            return "still waiting" in str(error)
        return False

    assert any(is_seen() for _ in range(20))


# --- making ------------------------------------------------------------------------------------

def test_the_migration_makes_today_and_tomorrow(database, table):
    today = datetime.datetime.now(datetime.timezone.utc).date()
    first = -1 if table is Processed else 0  # a window reaches back
    expected = [f"{table.name}_p{today + datetime.timedelta(day):%Y%m%d}" for day in range(first, 2)]
    assert leaves(database, table) == expected
    shapes = database.execute("select from_at::time, to_at - from_at from outbox.partitions(%s)",
                              (table.name,))
    assert set(shapes) == {(datetime.time(0), datetime.timedelta(days=1))}


@pytest.mark.parametrize("zone, style", [
    ("Asia/Kathmandu", "SQL, DMY"), ("America/New_York", "German")])
def test_the_sessions_settings_do_not_matter(database, zone, style):
    connection = database.connect()
    cursor = connection.cursor()
    cursor.execute("set timezone = %s; set datestyle = %s", (zone, style))
    cursor.execute(
        "select outbox.partition_make('message', '2030-03-04 05:06:07Z', '2030-03-05Z')")
    assert cursor.fetchone() == ("made",)
    connection.close()
    assert database.execute("select from_at, to_at from outbox.partitions('message') "
                            "where name = 'message_p20300304T050607'") == [
        (datetime.datetime(2030, 3, 4, 5, 6, 7, tzinfo=datetime.timezone.utc),
         datetime.datetime(2030, 3, 5, tzinfo=datetime.timezone.utc))]


def test_a_partition_is_made_once_and_overlaps_none(old, table):
    assert call(old, "partition_make", table.name, *OLD) == "exists"
    assert call(old, "partition_make", table.name, "2019-12-31", "2020-01-01 01:00") == "overlaps"
    old.execute(f"create table outbox.{table.name}_p20200102 ()")
    assert call(old, "partition_make", table.name, "2020-01-02", "2020-01-03") == "name_taken"


@pytest.mark.parametrize("name", ["log", "publisher", "message_default", "precious", None])
def test_no_partition_is_made_of_any_other_table(database, name):
    database.execute("create table outbox.precious (n int, created_at timestamptz) "
                     "partition by range (created_at)")
    for function, arguments in (("partition_make", OLD), ("partition_rehome", ("1 day",)),
                                ("partition_default_rows", (1,))):
        with pytest.raises(psycopg2.errors.InvalidParameterValue, match="kept in partitions"):
            call(database, function, name, *arguments)
    assert database.execute("select * from outbox.partitions(%s)", (name,)) == []


def test_a_new_partition_has_everything_that_the_table_has(database, table):
    assert call(database, "partition_make", table.name, *OLD) == "made"
    # attcompression by its name in JSON: PostgreSQL 13 has no such column
    shape = """select attname, format_type(atttypid, atttypmod), attnotnull,
                   to_jsonb(pg_attribute) ->> 'attcompression', attcollation,
                   pg_get_expr(adbin, adrelid)
               from pg_attribute left join pg_attrdef on adrelid = attrelid and adnum = attnum
               where attrelid = %s::regclass and attnum > 0 order by attnum"""
    checks = "select conname, pg_get_constraintdef(oid) from pg_constraint " \
             "where conrelid = %s::regclass and contype = 'c' order by conname"
    indexes = "select count(*) from pg_index where indrelid = %s::regclass"
    for question in (shape, checks, indexes):
        assert database.execute(question, (f"outbox.{table.leaf}",)) == \
            database.execute(question, (f"outbox.{table.name}",))


@pytest.mark.alone
def test_partitions_are_made_ahead_beside_a_writer_that_stays_open(database, table):
    with transaction(database) as open_writer:
        open_writer.execute(table.write)
        with Writers(database, table) as writers:
            for day in range(10, 20):
                assert call(database, "partition_make", table.name, f"2040-01-{day}",
                            f"2040-01-{day + 1}") == "made"
            writers.wait_more()


def test_a_partition_for_now_waits_for_open_writers_and_no_insert_fails(database, table):
    for name in leaves(database, table):
        database.execute(f'drop table outbox."{name}"')
    from_at, to_at = database.execute(
        "select now() - interval '1 hour', now() + interval '1 hour'")[0]
    with transaction(database) as open_reader:  # holds what a writer of another partition holds
        open_reader.execute(f"lock table only outbox.{table.name} in row exclusive mode")
        for _ in range(5):
            assert call(database, "partition_make", table.name, from_at, to_at) == "busy"
    until("made", database, "partition_make", table.name, from_at, to_at)


# --- emptying and dropping ---------------------------------------------------------------------

def test_a_partition_goes_when_no_row_is_needed(old, table):
    with transaction(old) as cursor:
        table.insert(cursor)
    assert call(old, "partition_holder", table.leaf) == table.holder
    assert call(old, "partition_empty", table.leaf) == "held"
    assert call(old, "partition_drop", table.leaf) == "not_empty"
    assert call(old, "partition_detach", table.leaf) == "held"
    table.release(old)
    assert call(old, "partition_holder", table.leaf) is None
    assert call(old, "partition_empty", table.leaf) == "emptied"
    assert call(old, "partition_drop", table.leaf) == "dropped"
    assert call(old, "partition_drop", table.leaf) == "missing"
    assert table.leaf not in leaves(old, table)


def test_without_a_publisher_nothing_goes(old):
    with transaction(old) as cursor:
        Message.insert(cursor)
    old.execute("select outbox.publisher_drop('main')")
    assert call(old, "partition_holder", OLD_LEAF) == "no publisher"
    assert call(old, "partition_empty", OLD_LEAF) == "held"


def test_every_publisher_must_have_acknowledged(old):
    with transaction(old) as cursor:
        Message.insert(cursor)
    old.execute("select outbox.publisher_create('other', 1, 'beginning')")
    acknowledge(old)
    assert call(old, "partition_holder", OLD_LEAF) == "other/0"
    acknowledge(old, "other")
    assert call(old, "partition_empty", OLD_LEAF) == "emptied"


def test_a_shard_keeps_rows_of_its_own_only(old):
    old.execute("select outbox.publisher_drop('main')")
    old.execute("select outbox.publisher_create('wide', 2, 'beginning')")
    with transaction(old) as cursor:
        Message.insert(cursor)
    shard = old.execute("select outbox.bucket_shard(bucket, 2) from outbox.message")[0][0]
    assert call(old, "partition_holder", OLD_LEAF) == f"wide/{shard}"
    acknowledge(old, "wide", shard)
    assert call(old, "partition_empty", OLD_LEAF) == "emptied"


def test_a_publisher_keeps_no_row_that_is_older_than_its_start(old):
    with transaction(old) as open_writer:
        Message.insert(open_writer)  # not visible in the snapshot behind which the publisher begins
        old.execute("select outbox.publisher_create('since', 1, '2020-01-01 12:00:01Z')")
        old.execute("select outbox.publisher_create('exact', 1, '2020-01-01 12:00:00Z')")
    acknowledge(old)
    assert call(old, "partition_holder", OLD_LEAF) == "exact/0"
    old.execute("select outbox.publisher_drop('exact')")
    assert call(old, "partition_holder", OLD_LEAF) is None


def test_a_row_of_a_transaction_that_was_open_at_the_release_stays(old, table):
    with transaction(old) as open_writer:
        row = table.insert(open_writer)
        table.release(old)  # this transaction is in progress in that snapshot
        with transaction(old) as later:
            later.execute(table.write)
        table.release(old)
        assert call(old, "partition_empty", table.leaf) == "busy"
        assert call(old, "partition_drop", table.leaf) == "not_empty"
        assert call(old, "partition_detach", table.leaf) == "busy"
    assert call(old, "partition_empty", table.leaf) == "held"
    assert call(old, "partition_holder", table.leaf) == table.holder
    assert row in ids(old, table)


@pytest.mark.parametrize("function", ["partition_empty", "partition_detach"])
def test_a_row_committed_between_the_look_and_the_lock_stays(old, table, function):
    """The commit comes while the call waits for its lock: it looked before, and must look again."""
    waiting = """select exists (select from pg_locks l where not granted
                     and l.mode = 'AccessExclusiveLock' and l.pid = %s)"""
    met = 0
    for attempt in range(15):
        connection = old.connect(autocommit=False)
        row = table.insert(connection.cursor())
        table.release(old)
        outcome = []
        caller = old.connect()
        watcher = old.connect()
        thread = threading.Thread(target=lambda: outcome.append(_one(
            caller, f"select outbox.{function}(%s)", table.leaf)))
        thread.start()
        while thread.is_alive() and not _one(watcher, waiting, caller.info.backend_pid):
            pass
        connection.commit()
        thread.join()
        for each in (connection, caller, watcher):
            each.close()
        assert outcome == ["busy"]
        assert row in ids(old, table)
        # a call that got its lock says busy all the same, since it found the row
        met += call(old, function, table.leaf) == "held"
        table.release(old)
    assert met == 15


def _one(connection, question, *parameters):
    with connection.cursor() as cursor:
        cursor.execute(question, parameters)
        return cursor.fetchone()[0]


@pytest.mark.alone
def test_dropping_beside_writers_and_an_open_transaction_makes_nobody_wait(old, table):
    with transaction(old) as cursor:
        table.insert(cursor)
    table.release(old)
    with Writers(old, table) as writers:
        with transaction(old) as open_writer:
            open_writer.execute(table.write)
            until("emptied", old, "partition_empty", table.leaf)  # needs that partition only
            for _ in range(20):
                assert call(old, "partition_drop", table.leaf) == "busy"
                writers.wait_more(2)
        until("dropped", old, "partition_drop", table.leaf)
        writers.wait_more()


@pytest.mark.alone
def test_detaching_leaves_a_table_with_its_rows(old, table):
    with transaction(old) as cursor:
        row = table.insert(cursor)
    table.release(old)
    with Writers(old, table) as writers:
        until("detached", old, "partition_detach", table.leaf)
        writers.wait_more()
    assert row not in ids(old, table)
    assert old.execute(f"select distinct {table.id} from outbox.{table.leaf}") == [(row,)]
    assert table.leaf not in leaves(old, table)
    assert call(old, "partition_make", table.name, *OLD) == "name_taken"


def test_a_foreign_table_is_never_touched(database):
    database.execute("create table outbox.precious (n int)")
    database.execute("create table public.message_p20200101 (n int)")
    for name in ("precious", "message_p20200101", "message_default", "message", "lookback_default",
                 "processed_default", "unique_ledger_default",
                 "x\"; drop"):
        for function in ("partition_empty", "partition_drop", "partition_detach"):
            assert call(database, function, name) == "missing"


def test_the_checks_refuse_a_snapshot_that_does_not_move(old):
    connection = old.connect(autocommit=False)
    connection.set_session(isolation_level="REPEATABLE READ")
    with pytest.raises(psycopg2.errors.InvalidTransactionState, match="READ COMMITTED"):
        connection.cursor().execute("select outbox.partition_empty(%s)", (OLD_LEAF,))
    connection.close()


def test_the_commit_does_not_wait_for_a_standby(old):
    connection = old.connect(autocommit=False)
    cursor = connection.cursor()
    cursor.execute("select outbox.partition_drop(%s)", (OLD_LEAF,))
    cursor.execute("show synchronous_commit")
    assert cursor.fetchone() == ("local",)
    connection.close()


# --- prepares ----------------------------------------------------------------------------------

def decide(cursor, which):
    """How many prepares were decided by this."""
    cursor.execute(Lookback.decide.format(which=which))
    return cursor.rowcount


def test_an_undecided_prepare_keeps_its_partition_and_its_section_is_named(old):
    with transaction(old) as cursor:
        cursor.execute("""
            insert into outbox.lookback (biz_type, biz_id, prepared_at, kind, section,
                source_partition, source_offset, decision)
            values ('order', '1', '2020-01-01 10:00Z', 'tombstone', 'shop', 0, 0, 'commit')""")
    assert call(old, "partition_holder", Lookback.leaf) is None
    with transaction(old) as cursor:
        for number, section in enumerate(["shop", "shop", "bank"]):
            cursor.execute(Lookback.prepare.format(
                id=f"'{number}'", at="'2020-01-01 12:00Z'", payload="'x'").replace(
                "'shop'", f"'{section}'"))
        # the same id once more, elsewhere: what is decided there says nothing of these
        cursor.execute(Lookback.prepare.format(id="'2'", at="now()", payload="'x'"))
        assert decide(cursor, "prepared_at = now()") == 1
        assert decide(cursor, "biz_id = '0'") == 1
    assert call(old, "partition_holder", Lookback.leaf) == "shop"
    old.execute(Lookback.decide.format(which="biz_id = '1'"))
    assert call(old, "partition_holder", Lookback.leaf) == "bank"
    assert call(old, "partition_empty", Lookback.leaf) == "held"
    old.execute(Lookback.decide.format(which="biz_id = '2'"))
    assert call(old, "partition_holder", Lookback.leaf) is None
    assert call(old, "partition_holder", Message.leaf) is None


def test_the_undecided_one_is_found_in_a_pass_over_the_key_alone(old):
    """In its order, so that neither memory nor the rows themselves are needed."""
    with transaction(old) as cursor:
        cursor.execute(Lookback.prepare.format(
            id="i", at="'2020-01-01 12:00Z'", payload="'x'").replace("values (", "select ").replace(
            "gen_random_uuid()) returning biz_id",
            "gen_random_uuid() from generate_series(1, 2000) i"))
        decide(cursor, "true")
    with transaction(old) as cursor:
        Lookback.insert(cursor)
    old.execute(f"vacuum analyze outbox.{Lookback.leaf}")
    with transaction(old) as cursor:
        cursor.execute("load 'auto_explain'; set auto_explain.log_min_duration = 0; "
                       "set auto_explain.log_nested_statements = on; "
                       "set client_min_messages = log")
        cursor.execute("select outbox.partition_holder(%s)", (Lookback.leaf,))
        assert cursor.fetchone() == ("shop",)
        plans = "\n".join(cursor.connection.notices)
    plan = plans[plans.index("having min"):]
    assert "Index Only Scan" in plan and "Seq Scan" not in plan and "Sort" not in plan, plans


@pytest.mark.parametrize("function, done", [
    ("partition_empty", "emptied"), ("partition_detach", "detached")])
def test_a_decision_counts_when_it_is_committed(old, function, done):
    with transaction(old) as cursor:
        row = Lookback.insert(cursor)
    with transaction(old) as open_decider:
        assert decide(open_decider, "true") == 1
        assert call(old, function, Lookback.leaf) == "held"
    assert ids(old, Lookback) == [row]
    until(done, old, function, Lookback.leaf)


@pytest.mark.parametrize("function, done", [
    ("partition_empty", "emptied"), ("partition_detach", "detached")])
def test_who_has_seen_a_prepare_keeps_its_partition_and_cannot_win_twice(old, function, done):
    with transaction(old) as cursor:
        Lookback.insert(cursor)
    Lookback.release(old)
    with transaction(old) as late_decider:
        late_decider.execute("select from outbox.lookback where kind = 'prepare'")
        assert call(old, function, Lookback.leaf) == "busy"
        assert decide(late_decider, "true") == 0
    until(done, old, function, Lookback.leaf)
    with transaction(old) as cursor:
        assert decide(cursor, "true") == 0


class Business:
    """Sessions that prepare into a partition whose time has passed, some of it in transactions that
    stay open for a while, and decide; each leaves its last prepare undecided. They pause often enough
    for the partition to be needed by none of them now and then."""

    def __init__(self, database, seed, sessions=2):
        self.database = database
        self.ending = threading.Event()
        self.failures, self.prepared, self.undecided = [], [], []
        self.threads = [threading.Thread(target=self._run, args=(random.Random(f"{seed}/{i}"),))
                        for i in range(sessions)]

    def _run(self, chance):
        connection = self.database.connect(autocommit=False)
        try:
            while not self.ending.is_set():
                self._prepare_and_decide(connection, chance)
            row = Lookback.insert(connection.cursor())
            connection.commit()
            self.undecided.append(row)
        except Exception as error:  # of a thread: told by stop()
            self.failures.append(error)
        finally:
            connection.close()

    def _prepare_and_decide(self, connection, chance):
        cursor = connection.cursor()
        row = Lookback.insert(cursor)
        time.sleep(chance.choice([0, 0, 0.003, 0.03]))
        connection.commit()
        self.prepared.append(row)
        time.sleep(chance.choice([0, 0.003]))
        found = decide(cursor, f"biz_id = '{row}'")
        time.sleep(chance.choice([0, 0, 0.003, 0.03]))
        connection.commit()
        assert found == 1, f"an undecided prepare is gone: {row}"
        time.sleep(chance.choice([0, 0.03, 0.1, 0.4]))

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self.ending.set()
        for thread in self.threads:
            thread.join()
        assert self.failures == []
        assert len(self.undecided) == len(self.threads)


def until_moved(caller, business):
    """Rows go to the default partition when theirs is gone, until they are given one again."""
    wait_for(lambda: business.failures or _one(
        caller, "select outbox.partition_rehome('lookback', '1 day')") == "moved", 60, "the move")


def test_no_undecided_prepare_is_lost_while_partitions_are_emptied_and_dropped(old, seed):
    caller = old.connect()
    count = f"select count(*) from outbox.{Lookback.leaf}"
    emptied = dropped = 0
    with Business(old, seed) as business:
        while (emptied < 5 or dropped < 2) and not business.failures:
            before = _one(caller, count)
            if _one(caller, "select outbox.partition_empty(%s)", Lookback.leaf) != "emptied":
                continue
            emptied += _one(caller, count) < before
            if _one(caller, "select outbox.partition_drop(%s)", Lookback.leaf) == "dropped":
                dropped += 1
                until_moved(caller, business)
    caller.close()
    assert set(business.undecided) <= set(ids(old, Lookback)) <= {
        *business.prepared, *business.undecided}
    assert call(old, "partition_holder", Lookback.leaf) == "shop"


def test_no_prepare_is_lost_while_partitions_are_detached(old, seed):
    caller = old.connect()
    archives = []
    with Business(old, seed) as business:
        while len(archives) < 3 and not business.failures:
            if _one(caller, "select outbox.partition_detach(%s)", Lookback.leaf) != "detached":
                continue
            archives.append(f"archive_{len(archives)}")
            old.execute(f"alter table outbox.{Lookback.leaf} rename to {archives[-1]}")
            until_moved(caller, business)
    caller.close()
    archived = [row for name in archives for row, in old.execute(
        f"select biz_id from outbox.{name} where kind = 'prepare'")]
    assert sorted([*archived, *ids(old, Lookback)]) == sorted(
        [*business.prepared, *business.undecided])
    assert not set(archived) & set(business.undecided)


# --- the default partition ---------------------------------------------------------------------

def everything(database, table):
    """With times as texts: some cannot be read here."""
    columns, = database.execute(
        """select string_agg(quote_ident(attname) || '::text', ', ' order by attnum)
           from pg_attribute where attrelid = %s::regclass and attnum > 0""",
        (f"outbox.{table.name}",))[0]
    return database.execute(f"select {columns} from outbox.{table.name} order by {table.id}")


@pytest.fixture
def uncovered(database):
    """A database whose partitions were not made in time: all rows go to the default one."""
    for each in TABLES:
        for name in leaves(database, each):
            database.execute(f'drop table outbox."{name}"')
    return database


def test_rows_in_the_default_partition_are_moved_as_they_are(uncovered, table):
    with transaction(uncovered) as cursor:
        for at in ("2020-01-01 00:00Z", "2020-01-05 23:59:59.999999Z", "2031-12-31 12:00Z"):
            table.insert(cursor, at)
    with transaction(uncovered) as cursor:
        table.insert(cursor, "now", "payload" * 5000)
    before = everything(uncovered, table)
    assert call(uncovered, "partition_make", table.name, "2040-01-01",
                "2040-01-02") == "default_not_empty"
    assert call(uncovered, "partition_rehome", table.name, "1 day") == "moved"
    assert everything(uncovered, table) == before
    assert call(uncovered, "partition_default_rows", table.name, 10) == 0
    assert call(uncovered, "partition_rehome", table.name, "1 day") == "empty"
    assert leaves(uncovered, table) == [table.leaf]
    assert uncovered.execute("select conname from pg_constraint where conname = 'rehomed'") == []


def test_moved_rows_fill_the_gaps_between_partitions(uncovered, table):
    assert call(uncovered, "partition_make", table.name, "2020-01-03", "2020-01-04") == "made"
    assert call(uncovered, "partition_make", table.name, "2020-01-05", "2020-01-06") == "made"
    with transaction(uncovered) as cursor:
        for day in (1, 2, 4, 6, 9):
            table.insert(cursor, f"2020-01-0{day} 10:00Z")
    before = everything(uncovered, table)
    until("moved", uncovered, "partition_rehome", table.name, "1 day")
    assert everything(uncovered, table) == before
    ranges = uncovered.execute("select extract(day from from_at)::int, "
                               "extract(day from to_at)::int from outbox.partitions(%s)",
                               (table.name,))
    assert ranges[:4] == [(1, 3), (3, 4), (4, 5), (5, 6)]
    assert uncovered.execute("select min(to_at) > now() from outbox.partitions(%s) "
                             "where from_at = '2020-01-06Z'", (table.name,)) == [(True,)]


def test_moving_is_put_off_while_a_writer_is_open(uncovered, table):
    with transaction(uncovered) as open_writer:
        open_writer.execute(table.write)
        uncovered.execute(table.write)
        for _ in range(3):
            assert call(uncovered, "partition_rehome", table.name, "1 day") == "busy"
        assert leaves(uncovered, table) == []
    until("moved", uncovered, "partition_rehome", table.name, "1 day")
    assert len(ids(uncovered, table)) == 2


@pytest.mark.alone
@pytest.mark.rotated
def test_moving_many_rows_beside_writers_fails_no_insert_and_hides_no_row(
        uncovered, table, scale):
    # a reader that looks for the lock without a pause sorts texts for as long as it holds one
    count = scale(1_000_000 if table is Message else 100_000)
    if table is Message:
        uncovered.execute("insert into outbox.message (topic, created_at, payload) "
                          "select 't', now() - i * interval '1 second', 'x' "
                          "from generate_series(1, %s) i", (count,))
    elif table is Processed:
        uncovered.execute("insert into outbox.processed (name, id, key, record_at, kept_until) "
                          "select 'many', int8send(i), i, now() - i * interval '1 second', 'infinity' "
                          "from generate_series(1, %s) i", (count,))
    elif table is UniqueLedger:
        uncovered.execute("insert into outbox.unique_ledger (key, at, event_id, message_id, topic, unique_key, kept_until) "
                          "select i, now() - i * interval '1 second', gen_random_uuid(), i, 'many', i::text, 'infinity' "
                          "from generate_series(1, %s) i", (count,))
    else:
        uncovered.execute(table.prepare.format(
            id="i", at="now() - i * interval '1 second'", payload="'x'").replace(
            "values (", "select ").replace("gen_random_uuid()) returning biz_id",
            f"gen_random_uuid() from generate_series(1, {count}) i"))
    first = {Message: "id <= %s", Lookback: "length(biz_id) < 36 and %s > 0",
             Processed: "name = 'many' and %s > 0", UniqueLedger: "topic = 'many' and %s > 0"}[table]
    ending = threading.Event()
    seen = []

    def read():
        """As the relay does: the lock first, then the snapshot."""
        connection = uncovered.connect(autocommit=False)
        cursor = connection.cursor()
        while not ending.is_set():
            cursor.execute(f"lock table outbox.{table.name} in access share mode")
            cursor.execute(f"select count(*), count(distinct {table.id}) "
                           f"from outbox.{table.name} where {first}", (count,))
            seen.append(cursor.fetchone())
            connection.commit()
        connection.close()

    reader = threading.Thread(target=read)
    with Writers(uncovered, table) as writers:
        reader.start()
        until("moved", uncovered, "partition_rehome", table.name, "1 hour")
        writers.wait_more(50)
        ending.set()
        reader.join()
    assert set(seen) == {(count, count)}
    assert len(ids(uncovered, table)) == count + writers.count
    assert call(uncovered, "partition_default_rows", table.name, 10) == 0


@pytest.mark.parametrize("planned", [False, True])
def test_a_tick_that_waits_for_a_move_sees_each_row_once(uncovered, planned):
    """Its snapshot for the rows comes after its locks, whether its plan is new or kept."""
    ticks = Ticks(uncovered.dsn)
    written = []
    for round_number in range(3 if planned else 1):
        written = [uncovered.execute("select outbox.publish('t', 'k', 'x')") for _ in range(5)]
        if round_number < 2 and planned:
            assert len(ticks.poll()) == 5
    found = []
    reader = threading.Thread(target=lambda: found.extend(ticks.poll()))
    with transaction(uncovered) as mover:
        mover.execute("select outbox.partition_rehome('message', '1 day')")
        assert mover.fetchone() == ("moved",)
        reader.start()
        wait_for(lambda: uncovered.execute(
            "select 1 from pg_locks where pid = %s and not granted",
            (ticks.connection.info.backend_pid,)), 30, "the tick that waits")
    reader.join()
    assert len(found) == len({row.id for row in found}) == len(written)
    assert ticks.poll() == []


# --- times that no partition takes -------------------------------------------------------------

TIMELESS = ["infinity", "-infinity", "294276-12-31 23:00Z", "4713-01-01 12:00Z BC"]


@pytest.fixture
def lenient(uncovered):
    """A table that lets its owner write any created_at, as one from before the CHECK does."""
    checks = """select conrelid::regclass, conname from pg_constraint
                where pg_get_constraintdef(oid) like '%isfinite%' and coninhcount = 0
                    and conrelid <> 0"""
    while found := uncovered.execute(checks):
        for table, name in found:
            uncovered.execute(f"alter table {table} drop constraint {name}")
    return uncovered


def insert_at(database, table, *times):
    with transaction(database) as cursor:
        for at in times:
            table.insert(cursor, at)


@pytest.mark.parametrize("zone, style", [("UTC", "ISO"), ("Asia/Kathmandu", "SQL, DMY")])
def test_a_row_that_no_partition_takes_stays_while_others_are_moved(lenient, table, zone, style):
    insert_at(lenient, table, TIMELESS[0], "2020-01-01 10:00Z", *TIMELESS[1:], "2020-01-02 10:00Z",
              "9999-12-31 23:59:59.999999Z", "0001-01-01Z")
    before = everything(lenient, table)
    lenient.execute(f"alter database {lenient.name} set timezone = '{zone}'")
    lenient.execute(f"alter database {lenient.name} set datestyle = '{style}'")
    until("moved", lenient, "partition_rehome", table.name, "1 day")
    lenient.execute(f"alter database {lenient.name} reset all")
    assert everything(lenient, table) == before
    left = lenient.execute(f"select {table.time} = any (%s::timestamptz[]) "
                           f"from outbox.{table.name}_default", (TIMELESS,))
    assert left == [(True,)] * 4
    assert lenient.execute("select to_regclass(%s)", (f"outbox.{table.name}_unplaced",)) == [
        (None,)]
    assert call(lenient, "partition_rehome", table.name, "1 day") == "empty"


@pytest.mark.parametrize("at", TIMELESS)
def test_a_row_that_no_partition_takes_is_in_nobodys_way(lenient, table, at):
    insert_at(lenient, table, at)
    assert call(lenient, "partition_rehome", table.name, "1 day") == "empty"
    today, tomorrow = lenient.execute(
        "select current_date::timestamptz, current_date + interval '1 day'")[0]
    until("made", lenient, "partition_make", table.name, today, tomorrow)
    insert_at(lenient, table, "now", tomorrow)
    until("moved", lenient, "partition_rehome", table.name, "1 day")
    assert len(leaves(lenient, table)) == 2
    assert lenient.execute(f"select {table.time}::text = %s::timestamptz::text "
                           f"from outbox.{table.name}_default", (at,)) == [(True,)]


@pytest.mark.parametrize("times, oldest", [
    (["infinity"], 0), (["-infinity"], 0), (["infinity", "-infinity", "one hour ago"], 3600),
    (["infinity", "one hour ahead"], 0)])
def test_the_backlog_is_counted_with_rows_of_infinite_times(lenient, times, oldest):
    now = datetime.datetime.now(datetime.timezone.utc)
    moments = {"one hour ago": now - datetime.timedelta(hours=1),
               "one hour ahead": now + datetime.timedelta(hours=1)}
    insert_at(lenient, Message, *[moments.get(at, at) for at in times])
    with open(f"{QUERIES}/backlogs.sql") as text:
        statement = re.sub(r"\$(\d)", r"%(p\1)s", text.read())
    (rows, more, estimated, age_ms, *_), = lenient.execute(statement, {"p1": "main", "p2": 100})
    assert (rows, more, estimated) == (len(times), False, len(times))
    assert oldest <= age_ms / 1000 < oldest + 600


# --- the log -----------------------------------------------------------------------------------

LOG_ROW = """insert into outbox.log (publisher, shard, n, epoch, nonce, owner, lease_until, first_tick,
                 acked_id, ticks, destinations, folded, timeline, system_identifier)
             select publisher, shard, v.n, epoch, 1, '', '-infinity', first_tick, 0, ticks, '{}',
                 v.n - 1, timeline, system_identifier
             from outbox.log l, (values (%s::bigint)) v (n) where l.n = 0 and publisher = 'main'"""


def due(database):
    return database.execute("select * from outbox.log_partitions_due()")


def test_the_logs_next_partition_is_made_in_time(database):
    assert due(database) == []
    database.execute(LOG_ROW, (499_999,))
    assert due(database) == []
    database.execute(LOG_ROW, (500_000,))
    assert due(database) == [("make", "main", 0, 1_000_000)]
    assert call(database, "log_partition_make", "main", 0, 1_000_000) == "made"
    assert call(database, "log_partition_make", "main", 0, 1_999_999) == "exists"
    assert due(database) == []


def test_the_logs_old_partition_goes_when_nothing_looks_back_at_it(database):
    call(database, "log_partition_make", "main", 0, 1_000_000)
    database.execute(LOG_ROW, (1_000_999,))
    assert due(database) == []
    assert call(database, "log_partition_drop", "main", 0, 0) == "held"
    database.execute(LOG_ROW, (1_001_000,))
    assert due(database) == [("drop", "main", 0, 0)]
    assert call(database, "log_partition_drop", "main", 0, 0) == "dropped"
    assert call(database, "log_partition_drop", "main", 0, 0) == "missing"
    assert database.execute("select n from outbox.log order by n") == [(1_000_999,), (1_001_000,)]


def test_the_log_of_a_publisher_that_is_no_more_goes(database):
    database.execute("select outbox.publisher_create('gone', 2, 'now')")
    database.execute("select outbox.publisher_drop('gone')")
    assert due(database) == [("drop", "gone", 0, 0), ("drop", "gone", 1, 0)]
    for _, publisher, shard, n in due(database):
        assert call(database, "log_partition_drop", publisher, shard, n) == "dropped"
    assert due(database) == []


@pytest.mark.parametrize("publisher", ["a", "a_1", "a-1", "x" * 40, "-", "_"])
def test_any_publisher_name_makes_a_partition_of_its_own(database, publisher):
    database.execute("select outbox.publisher_create(%s, 3, 'now')", (publisher,))
    assert database.execute("select publisher, shard, from_n, to_n from outbox.log_partitions() "
                            "where publisher = %s", (publisher,)) == [
        (publisher, shard, 0, 1_000_000) for shard in range(3)]


@pytest.mark.alone
def test_dropping_a_log_partition_keeps_its_owner_waiting_for_a_moment_only(database):
    call(database, "log_partition_make", "main", 0, 1_000_000)
    database.execute(LOG_ROW, (1_001_000,))
    with transaction(database) as reader:
        reader.execute("select count(*) from outbox.log")
        start = time.monotonic()
        assert call(database, "log_partition_drop", "main", 0, 0) == "busy"
        assert time.monotonic() - start < 5
    until("dropped", database, "log_partition_drop", "main", 0, 0)
