"""outbox.publish with unique_key: one message for each key and window, whoever writes it, and the others get its event id."""

import contextlib
import random
import threading
import time
import uuid

import psycopg2
import pytest
from psycopg2 import errors

from support.process import wait_for

WAITERS = """select count(*) from pg_locks where locktype = 'advisory' and not granted
    and database = (select oid from pg_database where datname = current_database())"""
DAY = "24 hours"


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
    assert len(messages(database)) == 3
    assert publish(cursor, None) != publish(cursor, None)  # none, as in a unique index
    assert database.execute("select count(*) from outbox.unique_ledger") == [(3,)]


FORMS = ["'k', 'p'", "'k'::bytea, 'p'", "'k', 'p'::bytea", "'k'::bytea, 'p'::bytea", "7, '{}'::jsonb", "'k', 'p', '{}'::json",
         "'k', 'p', '{}'::text", "7::bigint, 'p'::bytea, '{}'::json", "gen_random_uuid(), 'p', '{}'::text",
         "'k', '{}'::jsonb, '{}'::json", "'k', 8, '{}'::text", "7, 8, '{}'::json", "7, 8, '{}'::text"]


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
    assert text.count("pg_advisory_xact_lock(") == 1
    database.execute(text.replace("pg_advisory_xact_lock(", "abs("))


def test_without_the_lock_that_test_fails(database, seed):
    break_lock(database)
    load = Load(database, 400, 20, DAY, seed, connections=16, pause=0.02, at_once=20)
    assert not load.failures, load.failures[0]
    assert load.too_close() > 0


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
            array[null, '\\xff'::bytea], headers => array['{"a": 1}', null]::jsonb[], event_ids => %s::uuid[],
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
