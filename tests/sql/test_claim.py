"""outbox.claim and its functions: whose a claim is, what its token tells, and who may ask."""

import contextlib
import random
import time
from concurrent.futures import ThreadPoolExecutor

import psycopg2
import pytest
from psycopg2 import errors


def take(database, id=b"a", name="billing", lease="1 hour"):
    return database.execute("select outbox.claim_take(%s, %s, %s)", (name, id, lease))[0][0]


def renew(database, claims, name="billing", lease="1 hour"):
    """claims: of ids and tokens."""
    ids, tokens = zip(*claims)
    return database.execute("select outbox.claim_renew(%s, %s::bytea[], %s::bigint[], %s)",
                            (name, list(ids), list(tokens), lease))[0][0]


def release(database, token, id=b"a", name="billing"):
    return database.execute("select outbox.claim_release(%s, %s, %s)", (name, id, token))[0][0]


def expire(database, ago="1 second"):
    database.execute("update outbox.claim set expires_at = clock_timestamp() - %s::interval", (ago,))


def test_an_id_has_one_owner(database):
    token = take(database)
    assert take(database) is None
    assert take(database, name="other") and take(database, id=b"b")
    assert release(database, token) is True
    assert take(database) > token


def test_what_has_expired_is_anybodys(database):
    token = take(database)
    expire(database)
    later = take(database)
    assert later > token
    assert renew(database, [(b"a", token)]) == [False]
    assert release(database, token) is False
    assert release(database, later) is True


def test_what_has_expired_is_not_renewed_though_nobody_took_it(database):
    token = take(database)
    expire(database)
    assert renew(database, [(b"a", token)]) == [False]
    assert release(database, token) is False
    assert database.execute("select count(*) from outbox.claim") == [(0,)]


def test_renewals_answer_in_the_order_of_the_question(database):
    tokens = {id: take(database, id=id) for id in (b"a", b"b", b"c")}
    release(database, tokens[b"b"], id=b"b")
    claims = [(b"c", tokens[b"c"]), (b"b", tokens[b"b"]), (b"x", 1), (b"a", tokens[b"a"])]
    assert renew(database, claims, lease="2 hours") == [True, False, False, True]
    assert database.execute(
        "select bool_and(expires_at > clock_timestamp() + interval '90 min') from outbox.claim") == [
        (True,)]


def test_tokens_rise_when_the_clock_goes_back_and_when_the_sequence_is_lost(database):
    first = take(database)
    database.execute("select setval('outbox.claim_token', %s)", (first + 10**12,))  # of a later clock
    expire(database)
    second = take(database)
    assert second > first + 10**12
    database.execute("select setval('outbox.claim_token', 1)")  # a standby that has not got it
    expire(database)
    third = take(database)
    assert third > second
    expire(database, ago="2 hours")
    assert take(database, id=b"z") and renew(database, [(b"z", 1)]) == [False]
    assert take(database) > first


def test_what_was_abandoned_is_removed(database):
    take(database, id=b"old")
    expire(database, ago="2 hours")
    token = take(database, id=b"new")
    renew(database, [(b"new", token)])
    assert [bytes(id) for id, in database.execute("select id from outbox.claim")] == [b"new"]


def test_who_holds_an_id_while_it_is_taken_is_waited_for(database):
    with contextlib.closing(database.connect(autocommit=False)) as one:
        cursor = one.cursor()
        cursor.execute("select outbox.claim_take('billing', 'a', '1 hour')")
        with contextlib.closing(database.connect(
                options="-c lock_timeout=50ms")) as two, pytest.raises(errors.LockNotAvailable):
            two.cursor().execute("select outbox.claim_take('billing', 'a', '1 hour')")
        one.rollback()
    assert take(database)


def await_waiters(database, count):
    for _ in range(500):
        if database.execute("select count(*) from pg_locks where not granted")[0][0] >= count:
            return
        time.sleep(0.02)
    raise AssertionError(f"no {count} sessions wait for a lock")


def call(database, function, *arguments):
    with contextlib.closing(database.connect()) as connection:
        cursor = connection.cursor()
        cursor.execute(f"select outbox.{function}", arguments)
        return cursor.fetchone()[0]


@contextlib.contextmanager
def renewed_by_another(database, token):
    """Another session has renewed the claim on a, and has not committed."""
    with contextlib.closing(database.connect(autocommit=False)) as connection:
        connection.cursor().execute(
            "select outbox.claim_renew('billing', '{a}', array[%s], '1 hour')", (token,))
        yield connection


TAKE_MANY = "claim_take_many('billing', %s::bytea[], '1 hour')"


def test_the_token_of_a_call_that_waited_is_larger_than_of_a_claim_that_came_and_went_meanwhile(database):
    token = take(database)
    with ThreadPoolExecutor() as pool:
        with renewed_by_another(database, token) as other:
            waits = pool.submit(call, database, TAKE_MANY, [b"a", b"b"])
            await_waiters(database, 1)
            meanwhile = take(database, id=b"b")
            assert release(database, meanwhile, id=b"b")
            other.rollback()
        held, later = waits.result(10)
    assert held is None and later > meanwhile


def claim_and_release(database, seed, end, claimed):
    """claimed(id, token) is called while this session has the claim."""
    dice = random.Random(seed)
    with contextlib.closing(database.connect()) as connection:
        cursor = connection.cursor()
        while time.monotonic() < end:
            ids = [b"%d" % number for number in dice.sample(range(20), 8)]
            cursor.execute(f"select outbox.{TAKE_MANY}", (ids,))
            mine = [(id, token) for id, token in zip(ids, cursor.fetchone()[0]) if token]
            for id, token in mine:
                claimed(id, token)
            if mine:
                ids, tokens = map(list, zip(*mine))
                cursor.execute("select outbox.claim_release_many('billing', %s::bytea[], %s::bigint[])",
                               (ids, tokens))
                assert all(cursor.fetchone()[0])


def test_tokens_rise_while_many_sessions_claim_and_release_the_same_ids(database):
    largest, wrong = {}, []

    def claimed(id, token):
        if token <= largest.get(id, 0):
            wrong.append((id, token, largest[id]))
        largest[id] = token

    end = time.monotonic() + 3
    with ThreadPoolExecutor(6) as pool:
        sessions = [pool.submit(claim_and_release, database, seed, end, claimed) for seed in range(6)]
        for session in sessions:
            session.result(30)
    assert largest and not wrong


def test_the_removal_of_abandoned_claims_and_one_who_takes_them_do_not_deadlock(database):
    take(database, id=b"z")
    expire(database, ago="2 hours")
    token = take(database)
    with ThreadPoolExecutor() as pool:
        with contextlib.closing(database.connect(autocommit=False)) as other:
            other.cursor().execute("select from outbox.claim where id = 'a' for update")
            takes = pool.submit(call, database, TAKE_MANY, [b"a", b"z"])
            await_waiters(database, 1)
            renews = pool.submit(call, database,
                                 "claim_renew('billing', '{a}', array[%s], '1 hour')", token)
            await_waiters(database, 2)
            other.rollback()
        assert renews.result(10) == [True]
        held, taken = takes.result(10)
    assert held is None and taken


@pytest.mark.parametrize("role, allowed", [
    ("outbox_consumer", True), ("outbox_relay", True), ("outbox_writer", False),
    ("outbox_reader", False)])
def test_consumers_may_and_applications_that_write_may_not(database, login, role, allowed):
    with contextlib.closing(psycopg2.connect(login(role)["DATABASE_URL"])) as connection:
        cursor = connection.cursor()
        for call in ("claim_take('b', 'a', '1 s')", "claim_renew('b', '{a}', '{1}', '1 s')",
                     "claim_release('b', 'a', 1)"):
            with contextlib.nullcontext() if allowed else pytest.raises(
                    errors.InsufficientPrivilege):
                cursor.execute(f"select outbox.{call}")
            connection.rollback()
        with pytest.raises(errors.InsufficientPrivilege):
            cursor.execute("delete from outbox.claim")
