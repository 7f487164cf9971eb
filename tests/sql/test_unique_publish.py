"""outbox.publish with unique_key: one message for each key and window, whoever writes it, and the others get its event id."""

import contextlib
import os
import random
import re
import subprocess
import threading
import time
import uuid

import psycopg2
import pytest
from psycopg2 import errors

from support.process import wait_for
from support.windows import Ticks

WAITERS = """select count(*) from pg_locks where locktype = 'advisory' and not granted
    and database = (select oid from pg_database where datname = current_database())"""
DAY = "24 hours"
GUIDE = os.path.join(os.path.dirname(__file__), "../../docs/guide/unique.md")


@contextlib.contextmanager
def session(database, autocommit=True, **options):
    connection = database.connect(autocommit=autocommit, **options)
    try:
        yield connection.cursor()
    finally:
        connection.close()


@pytest.fixture
def cursor(database):
    with session(database) as cursor:
        yield cursor


def publish(cursor, key, topic="orders", **arguments):
    """The event id that outbox.publish returns. arguments: within, while_pending, payload …"""
    arguments = {"payload": "p", "unique_key": key, **arguments}
    cursor.execute("select outbox.publish(topic => %(topic)s, key => 'k', {})".format(
        ", ".join(f"{name} => %({name})s" for name in arguments)), {"topic": topic, **arguments})
    return cursor.fetchone()[0]


def batch(cursor, unique_keys, topic="orders", **arguments):
    arguments = {"payloads": ["p"] * len(unique_keys), "unique_keys": list(unique_keys), **arguments}
    cursor.execute("select outbox.publish_batch(topic => %(topic)s, {})".format(
        ", ".join(f"{name} => %({name})s" for name in arguments)), {"topic": topic, **arguments})
    return cursor.fetchone()[0].strip("{}").split(",")


def messages(database):
    return [event for event, in database.execute("select event_id::text from outbox.message order by id")]


def test_the_second_gets_the_id_of_the_first(database, cursor):
    first = publish(cursor, "order-42")
    assert publish(cursor, "order-42", payload="another") == first
    assert publish(cursor, "order-42", event_id=str(uuid.uuid4())) == first
    assert publish(cursor, "order-43") != first
    assert publish(cursor, "order-42", topic="mails") != first  # each topic has keys of its own
    assert len(messages(database)) == 3  # orders twice, and mails
    assert publish(cursor, None) != publish(cursor, None)  # none, as in a unique index
    cursor.execute("select count(distinct outbox.publish('t', 'k', 'p', unique_key => (n % 3)::text)) from generate_series(1, 9) n")
    assert cursor.fetchone() == (3,)  # one statement sees what it has written itself
    assert database.execute("select count(*) from outbox.unique_ledger") == [(6,)]


def test_the_statements_of_the_guide_work(database, tmp_path):
    with open(GUIDE, encoding="utf-8") as page:
        blocks = re.findall(r"<!-- file: (\w+)\.sql -->\n```sql\n(.*?)```", page.read(), re.DOTALL)
    assert [name for name, _ in blocks] == ["unique", "unique_batch"]
    answers = []
    for name, block in [*blocks, blocks[1]]:
        path = tmp_path / f"{name}.sql"
        path.write_text(block, encoding="utf-8")
        answers.append(subprocess.run(["psql", "-XqAt", "-v", "ON_ERROR_STOP=1", "-f", path, database.dsn],
                                      capture_output=True, text=True, check=True).stdout)
    assert answers[0] == "t\n" and answers[1] == answers[2]
    assert messages(database) == [database.execute("select event_id::text from outbox.unique_ledger order by at")[0][0],
                                  answers[1].strip("{}\n").split(",")[1]]


FORMS = ["'k', 'p'", "'k'::bytea, 'p'", "'k', 'p'::bytea", "'k'::bytea, 'p'::bytea", "7, '{}'::jsonb", "'k', 'p', '{}'::json",
         "'k', 'p', '{}'::text", "7::bigint, 'p'::bytea, '{}'::json", "gen_random_uuid(), 'p', '{}'::text",
         "'k', '{}'::jsonb, '{}'::json", "'k', 'p', '{}'::jsonb", "7, 8, '{}'::jsonb", "'k', 8, '{}'::text", "7, 8, '{}'::json", "7, 8, '{}'::text"]


def test_every_form_of_publish_takes_a_unique_key(database, cursor):
    shape = """select event_id::text, key, key_bytes, payload, payload_bytes, headers from outbox.message
        where event_id = any (%s::uuid[]) order by id"""
    for number, form in enumerate(FORMS):
        calls = [f"select outbox.publish('t', {form}{key})::text" for key in ("", f", unique_key => 'form-{number}'")]
        ids = []
        for call in [*calls, calls[1]]:
            cursor.execute(call)
            ids.append(cursor.fetchone()[0])
        assert ids[0] != ids[1] == ids[2], form
        plain, unique = database.execute(shape, (ids[:2],))
        if "random" not in form:
            assert plain[1:] == unique[1:], form


def test_a_window_is_a_day_unless_it_is_given(database, cursor):
    publish(cursor, "a", within=None)
    publish(cursor, "b")
    batch(cursor, ["c"], within=None)
    assert database.execute("select kept_until - at = interval '24 hours' from outbox.unique_ledger") == [(True,)] * 3


def test_a_window_ends(database, cursor):
    first = publish(cursor, "a", within="1 second")
    ids = {first}
    wait_for(lambda: ids.add(publish(cursor, "a", within="1 second")) or len(ids) == 2, 30, "a second message")
    (first_at,), (second_at,) = database.execute("select created_at from outbox.message order by id")
    assert (second_at - first_at).total_seconds() >= 1
    assert publish(cursor, "a") == first  # a longer window of another writer has both


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_a_day_of_a_window_has_24_hours_in_each_zone(cursor, zone):
    """On the days on which the clocks change it would have 23 or 25 in some."""
    cursor.execute("set timezone = %s", (zone,))
    first = publish(cursor, "a", within="1 day 1 month")
    cursor.execute("select kept_until - at = interval '744 hours' from outbox.unique_ledger where event_id = %s", (first,))
    assert cursor.fetchone() == (True,)


def test_the_transaction_and_its_savepoints_decide(database):
    with session(database, autocommit=False) as writer:
        writer.execute("savepoint s")
        given_up = publish(writer, "a")
        writer.execute("rollback to s")
        first = publish(writer, "a")
        assert first != given_up and publish(writer, "a") == first
        writer.execute("savepoint t")
        released = publish(writer, "b")
        writer.execute("release t")
        assert publish(writer, "b") == released
        writer.connection.rollback()
        assert messages(database) == []
        again = publish(writer, "a")
        assert again != first
        writer.connection.commit()
    assert messages(database) == [again]


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_a_writer_waits_for_another_of_the_same_key(database, ending):
    """As at a unique index; its answer is the other one's end."""
    with session(database, autocommit=False) as first, session(database) as other:
        event = publish(first, "a")
        answers = []
        thread = threading.Thread(target=lambda: answers.append(publish(other, "a")))
        thread.start()
        wait_for(lambda: database.execute(WAITERS) == [(1,)], 30, "the second to wait")
        with session(database) as third:
            assert publish(third, "b")  # another key is free
        first.execute(ending)
        thread.join()
        assert (answers == [event]) == (ending == "commit")
        assert len(messages(database)) == 2


def test_a_prepared_transaction_keeps_its_key(postgres, database):
    if postgres.execute("show max_prepared_transactions") == [("0",)]:
        pytest.skip("max_prepared_transactions is 0")
    with session(database, autocommit=False) as first, session(database) as other:
        event = publish(first, "a")
        first.execute("prepare transaction 'one'")
        other.execute("set lock_timeout = '100ms'")
        with pytest.raises(errors.LockNotAvailable):
            publish(other, "a")
        other.execute("commit prepared 'one'")
        assert publish(other, "a") == event


def test_copies_wait_for_nobody_and_lock_nothing(database):
    with session(database) as first:
        event = publish(first, "a", within="1 day")
    with session(database, autocommit=False) as copy, session(database) as other:
        other.execute("set lock_timeout = '100ms'")
        assert publish(copy, "a") == event
        copy.execute("select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()")
        assert copy.fetchone() == (0,)
        assert batch(copy, ["a"] * 1500) == [event] * 1500  # nor are they counted
        assert publish(other, "a") == event
        # and a writer whose window has ended does not wait for the transaction of a copy
        assert publish(other, "a", within="1 microsecond") != event
        # a copy does not wait for such a writer either
        with session(database, autocommit=False) as late:
            publish(late, "a", within="1 microsecond")
            assert publish(other, "a") == event


# --- many at once ------------------------------------------------------------------------------

TOO_CLOSE = """select count(*) from (select created_at - lag(created_at) over (partition by key order by created_at) as distance
    from outbox.message) d where distance < %s"""


class Load:
    """Connections that publish the same keys at once, with rollbacks and savepoints."""

    def __init__(self, database, calls, keys, within, seed, connections=64, pause=0.0, at_once=4, while_pending=None):
        self.database, self.within, self.while_pending = database, within, while_pending
        self.pause, self.seed = pause, seed
        self.answers = []   # (key, answer, own id, clock before, clock behind): of own messages the committed ones
        self.failures = []
        self.turns = ((number // at_once) % keys for number in range(calls))
        self.lock = threading.Lock()
        threads = [threading.Thread(target=self.run, args=(number,)) for number in range(connections)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def next_key(self):
        with self.lock:
            return next(self.turns, None)

    def run(self, number):
        chance = random.Random(f"{self.seed}/{number}")
        try:
            with session(self.database, autocommit=False) as cursor:
                while (key := self.next_key()) is not None:
                    self.transaction(cursor, f"key-{key}", chance)
        except Exception as failure:  # in a thread: the test fails with it
            self.failures.append(failure)

    def call(self, cursor, key):
        own = str(uuid.uuid4())
        cursor.execute("""select clock_timestamp(), outbox.publish('orders', %s, 'p', event_id => %s, unique_key => %s,
                within => %s, while_pending => %s)::text, clock_timestamp()""",
                       (key, own, key, self.within, self.while_pending))
        before, answer, behind = cursor.fetchone()
        return key, answer, own, before, behind

    def transaction(self, cursor, key, chance):
        answers = []
        if chance.random() < 0.3:
            cursor.execute("savepoint s")
            answers.append(self.call(cursor, key))
            if chance.random() < 0.5:
                cursor.execute("rollback to s")
                answers = [answer for answer in answers if answer[1] != answer[2]]
        answers.append(self.call(cursor, key))
        own = {answer[2] for answer in answers}
        if any(answer[1] in own for answer in answers):
            time.sleep(chance.random() * self.pause)
        if chance.random() < 0.2:
            cursor.connection.rollback()
            answers = [answer for answer in answers if answer[1] not in own]  # those of others are there all the same
        else:
            cursor.connection.commit()
        self.answers.extend(answers)

    def too_close(self):
        return self.database.execute(TOO_CLOSE, (self.within,))[0][0]


def test_64_connections_publish_the_same_keys_and_each_is_one_message_a_window(database, scale, seed):
    seconds = 1
    load = Load(database, scale(128_000, 10_000), 1000, f"{seconds} seconds", seed, pause=0.02)
    assert not load.failures, load.failures[0]
    written = {event: (key, at) for event, key, at in database.execute(
        "select event_id::text, key, created_at from outbox.message")}
    assert load.too_close() == 0
    for key, answer, own, before, behind in load.answers:
        assert answer in written, "an id without a message"
        of_key, at = written[answer]
        assert of_key == key
        assert (before - at).total_seconds() < seconds and at <= behind, "a message of another window"
    # each message is the answer of the call that wrote it, and nothing else was written
    assert {answer for _, answer, own, *_ in load.answers if answer == own} == set(written)
    # each key was written in more windows than one, and copied in them
    assert len({key for key, _ in written.values()}) == 1000
    assert 1000 < len(written) < len(load.answers)


def break_lock(database):
    """As if two writers of one key did not lock each other out."""
    (text,), = database.execute("select pg_get_functiondef('outbox.unique_take'::regproc)")
    assert text.count("advisory_xact_lock(") == 2
    database.execute(text.replace("pg_try_advisory_xact_lock(w.number)", "true").replace("pg_advisory_xact_lock(", "abs("))


def test_without_the_lock_that_test_fails(database, seed):
    break_lock(database)
    load = Load(database, 400, 20, DAY, seed, connections=16, pause=0.02, at_once=20)
    assert not load.failures, load.failures[0]
    assert load.too_close() > 0


def test_rows_that_upkeep_moves_are_found_all_the_same(database, seed, scale):
    """They are in the default partition, and go to one of their own while the same keys are published."""
    for leaf, in database.execute("select name from outbox.partitions('unique_ledger')"):
        database.execute("select outbox.partition_empty(%s)", (leaf,))
        database.execute("select outbox.partition_drop(%s)", (leaf,))
    moved, over = [], threading.Event()

    def move():
        with session(database) as cursor:
            while not over.is_set():
                cursor.execute("select outbox.partition_rehome('unique_ledger', '1 day')")
                if cursor.fetchone() == ("moved",):
                    moved.append(True)
                    # and back, so that they are moved again
                    cursor.execute("""begin; lock outbox.unique_ledger in access exclusive mode;
                        create temp table rows on commit drop as select * from outbox.unique_ledger;
                        do $$ declare leaf text; begin
                            for leaf in select name from outbox.partitions('unique_ledger') loop
                                execute format('drop table outbox.%I', leaf);
                            end loop; end $$;
                        insert into outbox.unique_ledger select * from rows; commit""")
                over.wait(0.02)

    mover = threading.Thread(target=move)
    mover.start()
    load = Load(database, scale(20_000, 2000), 200, DAY, seed, connections=8)
    over.set()
    mover.join()
    assert not load.failures, load.failures[0]
    assert moved, "nothing was moved"
    assert database.execute("select count(*), count(distinct key) from outbox.message") == [(200, 200)]


# --- several keys in a transaction -------------------------------------------------------------

def test_singles_in_opposite_orders_deadlock_as_at_a_unique_index(database):
    with session(database, autocommit=False) as one, session(database, autocommit=False) as two:
        publish(one, "a")
        publish(two, "b")
        outcomes = []

        def go_on(cursor, key):
            try:
                publish(cursor, key)
                cursor.connection.commit()
                outcomes.append("committed")
            except errors.DeadlockDetected as failure:
                outcomes.append(failure.pgcode)
                cursor.connection.rollback()

        threads = [threading.Thread(target=go_on, args=each) for each in ((one, "b"), (two, "a"))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(outcomes) == ["40P01", "committed"]
        assert len(messages(database)) == 2  # the other one has done all of its own


def test_batches_in_opposite_orders_do_not_deadlock(database, scale):
    keys = [f"key-{number}" for number in range(40)]
    answers, failures = [], []

    def write(number):
        chance = random.Random(number)
        try:
            with session(database, autocommit=False) as cursor:
                for turn in range(scale(200, 10)):
                    mine = chance.sample([f"{turn}-{key}" for key in keys], 20)
                    found = batch(cursor, mine[::-1] if number % 2 else mine)
                    answers.extend(zip(mine[::-1] if number % 2 else mine, found))
                    cursor.connection.commit()
        except psycopg2.Error as failure:
            failures.append(failure)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]
    assert len(dict(answers)) == len({key for key, _ in set(answers)}) == len(set(answers))
    assert sorted(event for _, event in set(answers)) == sorted(messages(database))


def test_a_batch_is_written_in_its_order(database, cursor):
    taken = publish(cursor, "c")
    ids = batch(cursor, ["b", "c", "a", None, "b", None], payloads=list("123456"), keys=list("uvwxyz"))
    assert ids[1] == taken and ids[4] == ids[0]
    assert database.execute("select event_id::text, key, payload from outbox.message order by id")[1:] == [
        (ids[0], "u", "1"), (ids[2], "w", "3"), (ids[3], "x", "4"), (ids[5], "z", "6")]
    assert batch(cursor, ["b", "a"]) == [ids[0], ids[2]]
    own = [str(uuid.uuid4()) for _ in range(2)]
    cursor.execute("""select outbox.publish_batch('t', keys_bytes => array['\\x00'::bytea, null], payloads_bytes =>
            array[null, '\\xff'::bytea], headers => array['{"a": 1}', null]::json[], event_ids => %s::uuid[],
            deliver_at => now() + interval '1 hour')::text[]""", (own,))
    assert cursor.fetchone()[0] == own
    assert database.execute("""select key_bytes = '\\x00', payload_bytes = '\\xff', headers::text, deliver_at > now()
        from outbox.message where topic = 't' order by id""") == [(True, None, '{"a": 1}', True), (None, True, None, True)]
    cursor.execute("select outbox.publish_batch('t', '{}'), outbox.publish_batch('t', '{}', '{}', '{}'), outbox.publish_batch('t')")
    assert cursor.fetchone() == ("{}", "{}", "{}")


def test_a_transaction_takes_a_thousand_new_keys(database):
    keys = [f"key-{number}" for number in range(1001)]
    with session(database, autocommit=False) as cursor:
        with pytest.raises(errors.ProgramLimitExceeded, match="1000 new unique keys .* are 1001"):
            batch(cursor, keys)
        cursor.connection.rollback()
        ids = batch(cursor, keys[:1000])
        cursor.execute("savepoint s")
        with pytest.raises(errors.ProgramLimitExceeded, match="1001"):
            publish(cursor, keys[1000])
        cursor.execute("rollback to s")
        cursor.connection.commit()
        assert messages(database) == ids
        assert batch(cursor, keys)[:1000] == ids  # the next one counts anew


# --- while_pending -----------------------------------------------------------------------------

@pytest.fixture
def publisher(database):
    """The publisher "main", driven by hand."""
    ticks = Ticks(database.dsn, publisher="main", create=False)
    yield ticks
    ticks.connection.close()


def publish_all(ticks):
    while ticks.poll():
        pass
    ticks.tick(must_write=True)


def test_a_key_is_taken_until_its_message_is_published(cursor, publisher):
    first = publish(cursor, "a", while_pending="published", within="1 microsecond")  # the window plays no part
    assert publish(cursor, "a", while_pending="published", within="1 microsecond") == first
    publisher.poll()  # a window is open, and its records may be in Kafka or not
    assert publish(cursor, "a", while_pending="published") == first
    publish_all(publisher)
    second = publish(cursor, "a", while_pending="published")
    assert second != first
    assert publish(cursor, "a", while_pending="published") == second


def test_a_key_is_taken_until_all_publishers_have_published(cursor, publisher, reader):
    first = publish(cursor, "a", while_pending="published")
    publish_all(publisher)
    assert publish(cursor, "a", while_pending="published") == first
    publish_all(reader)
    assert publish(cursor, "a", while_pending="published") != first


def test_a_message_that_no_publisher_could_publish_is_pending(database, cursor):
    database.execute("select outbox.publisher_drop('main')")
    first = publish(cursor, "a", while_pending="published")
    assert publish(cursor, "a", while_pending="published") == first


KEPT = {"parked": ("tick, state, attempts, next_at", "0, 'dead', 10, now()"),
        "scheduled": ("deliver_at, tick", "now() + interval '1 hour', 0")}


@pytest.mark.parametrize("table", KEPT)
def test_a_key_is_taken_while_its_message_is_kept_back(database, cursor, publisher, table):
    names, values = KEPT[table]
    for key, mode, was_id in [("a", "published", "null"), ("b", "published", "id"), ("c", "done", "null"), ("d", "done", "id")]:
        first = publish(cursor, key, while_pending=mode, within="1 microsecond")
        database.execute(f"""insert into outbox.{table} (publisher, shard, id, created_at, event_id, topic, key, payload,
                was_id, {names}) select 'main', 0, id + 1000 * num_nonnulls({was_id}), created_at, event_id, topic, 'k', 'p',
                {was_id}, {values} from outbox.message where event_id = %s""", (first,))
        publish_all(publisher)
        assert publish(cursor, key, while_pending=mode, within="1 microsecond") == first, (mode, was_id)
        database.execute(f"delete from outbox.{table}")  # it was published, or skipped by an operator
        assert publish(cursor, key, while_pending=mode, within="1 microsecond") != first, (mode, was_id)
        publish_all(publisher)


def done(cursor, *ids):
    cursor.execute("select outbox.unique_done(%s::uuid[])", (list(ids),))
    return cursor.fetchone()[0]


def test_a_key_is_taken_until_its_message_is_reported_as_done(database, cursor, publisher):
    first = publish(cursor, "a", while_pending="done")
    others = [publish(cursor, "b"), publish(cursor, "c", while_pending="published"), publish(cursor, None)]
    publish_all(publisher)
    assert publish(cursor, "a", while_pending="done") == first
    assert done(cursor, *others, str(uuid.uuid4()), None) == 0  # nobody waits for these
    assert publish(cursor, "a", while_pending="done") == first
    assert done(cursor, first, *others, first) == 1
    assert done(cursor, first) == 0  # a copy was handled as well
    second = publish(cursor, "a", while_pending="done")
    assert second != first
    assert done(cursor, first) == 0  # and once more: the second one is not meant
    publish_all(publisher)
    assert publish(cursor, "a", while_pending="done") == second
    assert done(cursor) == 0


def test_a_consumer_may_be_faster_than_the_publishers_log(cursor, publisher):
    first = publish(cursor, "a", while_pending="done")
    publisher.poll()
    assert done(cursor, first) == 1
    assert publish(cursor, "a", while_pending="done") == first
    publish_all(publisher)
    assert publish(cursor, "a", while_pending="done") != first


def test_a_consumer_that_never_reports_keeps_a_key_for_its_window(cursor, publisher):
    first = publish(cursor, "a", while_pending="done", within="1 second")
    time.sleep(1)
    assert publish(cursor, "a", while_pending="done", within="1 second") == first  # it is not published yet
    publish_all(publisher)
    assert publish(cursor, "a", while_pending="done", within="1 second") != first


def rows_read(database, call):
    """How many rows of the ledger call(cursor) reads."""
    with session(database, autocommit=False) as cursor:
        call(cursor)
        cursor.execute("""select sum(idx_tup_fetch + seq_tup_read) from pg_stat_xact_user_tables
            where relname like 'unique_ledger%'""")
        read, = cursor.fetchone()
        cursor.connection.commit()
    return read


@pytest.mark.parametrize("mode", ["published", "done"])
def test_a_key_that_is_used_all_day_costs_no_more_than_a_new_one(database, cursor, publisher, mode):
    first = publish(cursor, "a", while_pending=mode)
    database.execute("""insert into outbox.unique_ledger (key, at, event_id, message_id, topic, unique_key, waits_for, kept_until)
        select l.key, l.at - n * interval '1 ms', gen_random_uuid(), -n, l.topic, l.unique_key, l.waits_for, l.kept_until
        from outbox.unique_ledger l, generate_series(1, 2000) n""")
    database.execute("""insert into outbox.unique_ledger (key, at, event_id, topic, kept_until)
        select l.key, l.at, l.event_id, l.topic, l.kept_until from outbox.unique_ledger l where l.message_id < 0""")
    publish_all(publisher)
    assert rows_read(database, lambda cursor: publish(cursor, "a", while_pending=mode)) < 20
    assert rows_read(database, lambda cursor: done(cursor, first)) < 20
    assert rows_read(database, lambda cursor: publish(cursor, "a", while_pending=mode)) < 20
    assert publish(cursor, "a", while_pending=mode) != first


@pytest.mark.parametrize("mode", ["published", "done"])
def test_many_writers_of_a_pending_key_write_one_message(database, seed, mode):
    load = Load(database, 1000, 20, DAY, seed, connections=16, pause=0.01, while_pending=mode)
    assert not load.failures, load.failures[0]
    assert database.execute("select count(*), count(distinct key) from outbox.message") == [(20, 20)]
    assert {answer for _, answer, *_ in load.answers} == set(messages(database))


# --- refused -----------------------------------------------------------------------------------

BAD = [
    ({"key": ""}, "unique_key has 0 bytes", "1 to 512 bytes"),
    ({"key": "x" * 513}, "unique_key has 513 bytes", "SHA-256"),
    ({"key": "\u00e4" * 257}, "unique_key has 514 bytes", "SHA-256"),
    ({"within": "0"}, "within is 00:00:00", "more than 0 and at most 3650 days"),
    ({"within": "-1 hour"}, "within is -01:00:00", "interval '24 hours'"),
    ({"within": "-1 year 362 days"}, "within is -1 years +362 days", "more than 0"),
    ({"within": "10 years"}, "within is 10 years", "at most 3650 days"),
    ({"within": "3651 days"}, "within is 3651 days", "at most 3650 days"),
    ({"while_pending": "x"}, 'while_pending is "x"', "'published', 'done' or null"),
    ({"while_pending": ""}, 'while_pending is ""', "'published', 'done' or null"),
]


def test_a_bad_argument_is_one_line_with_a_cure_and_writes_nothing(database, cursor):
    for arguments, message, hint in BAD:
        key, rest = arguments.get("key", "a"), {name: value for name, value in arguments.items() if name != "key"}
        with pytest.raises(errors.InvalidParameterValue) as refusal:
            publish(cursor, key, **rest)
        assert refusal.value.diag.message_primary == message and hint in refusal.value.diag.message_hint
        with pytest.raises(errors.InvalidParameterValue) as refusal:
            batch(cursor, ["good", key], **rest)
        assert refusal.value.diag.message_primary.startswith(message.replace("unique_key", "unique_keys[2]"))
    assert messages(database) == [] and database.execute("select count(*) from outbox.unique_ledger") == [(0,)]
    assert publish(cursor, "x" * 512, within="3650 days")


def test_a_bad_message_takes_no_key(database, cursor):
    with pytest.raises(errors.CheckViolation, match="topic_is_a_kafka_topic_name"):
        publish(cursor, "a", topic="no topic")
    with pytest.raises(errors.NotNullViolation):
        publish(cursor, "a", topic=None)
    with pytest.raises(errors.CheckViolation, match="payload_is_text_or_bytes"):
        batch(cursor, ["a"], payloads_bytes=[b"x"])
    assert database.execute("select count(*) from outbox.unique_ledger") == [(0,)]


def test_arrays_of_a_batch_have_one_length(cursor):
    with pytest.raises(errors.ArraySubscriptError, match="different lengths, of which 2 is the largest"):
        batch(cursor, ["a", "b"], payloads=["p"])


def test_a_snapshot_that_does_not_move_is_refused(database):
    """It would not see what was committed while it waited."""
    for level in ("REPEATABLE READ", "SERIALIZABLE"):
        with session(database, autocommit=False) as cursor:
            cursor.connection.set_session(isolation_level=level)
            for call in (lambda: publish(cursor, "a"), lambda: batch(cursor, ["a"]), lambda: done(cursor, str(uuid.uuid4()))):
                with pytest.raises(errors.InvalidTransactionState, match="READ COMMITTED") as refusal:
                    call()
                assert "\n" not in refusal.value.diag.message_primary and refusal.value.diag.message_hint
                cursor.connection.rollback()
            assert publish(cursor, None)  # without a key each level is right
            cursor.connection.commit()
    assert len(messages(database)) == 2


def test_roles_may_do_their_part(database, login):
    def allowed(url, statement):
        connection = psycopg2.connect(url)
        connection.autocommit = True
        try:
            connection.cursor().execute(statement)
            return True
        except errors.InsufficientPrivilege:
            return False
        finally:
            connection.close()

    single = "select outbox.publish('t', 'k', 'p', unique_key => 'a')"
    several = "select outbox.publish_batch('t', '{k}', '{p}', '{b}', while_pending => 'done')"
    reports = "select outbox.unique_done('{}')"
    reads = "select topic, unique_key from outbox.unique_ledger"
    writes = "insert into outbox.unique_ledger select * from outbox.unique_ledger"
    urls = {role: login(role)["DATABASE_URL"] for role in ("outbox_writer", "outbox_consumer", "outbox_reader")}
    may = {role: [allowed(url, statement) for statement in (single, several, reports, reads, writes)]
           for role, url in urls.items()}
    assert may == {"outbox_writer": [True, True, False, False, False],
                   "outbox_consumer": [False, False, True, False, False],
                   "outbox_reader": [False, False, False, True, False]}


def test_a_policy_of_the_messages_holds_for_unique_ones(database, login):
    url = login("outbox_writer")["DATABASE_URL"]
    database.execute("""create policy only_mails on outbox.message for insert with check (topic = 'mails');
        create policy all_of_them on outbox.message for select using (true);
        alter table outbox.message enable row level security""")
    connection = psycopg2.connect(url)
    connection.autocommit = True
    cursor = connection.cursor()
    first = publish(cursor, "a", topic="mails")
    assert publish(cursor, "a", topic="mails") == first
    with pytest.raises(errors.InsufficientPrivilege, match="row-level security"):
        publish(cursor, "a", topic="orders")
    (message,) = database.execute("select event_id, id, created_at from outbox.message")
    for topic in ("orders", "mails"):  # neither of a topic that it may not write, nor of a message of another transaction
        with pytest.raises(errors.InsufficientPrivilege, match="has not written the message"):
            cursor.execute("select outbox.unique_note(1, %s, 'b', %s, %s, %s, '1 day', null)", (topic, *message))
    connection.close()
    assert database.execute("select topic from outbox.unique_ledger") == [("mails",)]


# --- upkeep ------------------------------------------------------------------------------------

LEAF = "unique_ledger_p20200101"


def age(database, **columns):
    """Moves the messages and their rows in the ledger to a day of long ago."""
    for name in ("message", "unique_ledger"):
        database.execute(f"select outbox.partition_make('{name}', '2020-01-01 00:00Z', '2020-01-02 00:00Z')")
    database.execute("update outbox.unique_ledger set at = '2020-01-01 10:00Z'")
    database.execute("update outbox.message set created_at = '2020-01-01 10:00Z'")
    for name, value in columns.items():
        database.execute(f"update outbox.unique_ledger set {name} = %s", (value,))


def holder(database):
    return database.execute("select outbox.partition_holder(%s)", (LEAF,))[0][0]


def test_upkeep_drops_keys_whose_window_has_passed(database, cursor, publisher):
    publish(cursor, "a")
    age(database)
    assert holder(database) == "orders"
    assert database.execute("select outbox.partition_empty(%s)", (LEAF,)) == [("held",)]
    age(database, kept_until="now")
    assert holder(database) is None
    assert database.execute("select outbox.partition_empty(%s)", (LEAF,)) == [("emptied",)]
    assert database.execute("select outbox.partition_drop(%s)", (LEAF,)) == [("dropped",)]
    assert publish(cursor, "a")


@pytest.mark.parametrize("state", ["pending", "parked", "scheduled", "without publishers"])
def test_upkeep_keeps_keys_of_pending_messages_beyond_their_window(database, cursor, publisher, state):
    publish(cursor, "a", while_pending="published")
    age(database, kept_until="now")
    if state in KEPT:
        names, values = KEPT[state]
        database.execute(f"""insert into outbox.{state} (publisher, shard, id, created_at, event_id, topic, key, {names})
            select 'main', 0, id, created_at, event_id, topic, 'k', {values} from outbox.message""")
        publish_all(publisher)
    if state == "without publishers":
        database.execute("select outbox.publisher_drop('main')")
    assert holder(database) == "orders"
    if state in KEPT:
        database.execute(f"delete from outbox.{state}")
    elif state == "pending":
        publish_all(publisher)
    else:
        database.execute("select outbox.publisher_create('main', 1, 'now')")
    assert holder(database) is None


def test_upkeep_keeps_a_report_as_long_as_the_window(database, cursor, publisher):
    first = publish(cursor, "a", while_pending="done")
    publish_all(publisher)
    assert done(cursor, first) == 1
    database.execute("delete from outbox.unique_ledger where message_id is not null")
    age(database)
    assert holder(database) == "orders"
    age(database, kept_until="now")
    assert holder(database) is None


def test_an_open_transaction_of_a_writer_keeps_upkeep_from_nothing(database):
    """Its search has read each partition, of the ledger and of the messages."""
    for name in ("message", "unique_ledger"):
        database.execute(f"select outbox.partition_make('{name}', '2020-01-01 00:00Z', '2020-01-02 00:00Z')")
    with session(database, autocommit=False) as cursor:
        publish(cursor, "a", while_pending="published")
        assert publish(cursor, "a", while_pending="published")
        batch(cursor, ["a", "b"], while_pending="done")
        for name in ("message", "unique_ledger"):
            assert database.execute(f"select outbox.partition_make('{name}', '2999-01-01 00:00Z', '2999-01-02 00:00Z')") \
                == [("made",)]
            assert database.execute(f"select outbox.partition_empty('{name}_p20200101')") == [("emptied",)]
