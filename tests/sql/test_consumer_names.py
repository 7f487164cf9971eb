"""A name of processed ids and claims belongs to one role, and nothing is kept for thousands of years."""

import contextlib

import pytest
from psycopg2 import errors

CALLS = ["processed_take('billing', '{a}', array[now()], '1 day')",
         "processed_claim('billing', '{a}', array[now()], '1 day')",
         "processed_add('billing', '{a}', array[now()], '1 day')",
         "processed_remove('billing', '{a}')",
         "claim_take('billing', 'a', '1 hour')",
         "claim_renew('billing', '{a}', '{1}', '1 hour')",
         "claim_release('billing', 'a', 1)"]
OWNERS = "SELECT name, owner FROM outbox.consumer ORDER BY name"


@pytest.fixture
def session(database):
    """session(name, *roles): a cursor of a new login that is a member of these roles."""
    made, open_ones = [], contextlib.ExitStack()

    def create(name, *roles):
        database.execute(f"CREATE ROLE {name} LOGIN")
        made.append(name)
        for role in roles:
            database.execute(f"GRANT {role} TO {name}")
        return open_ones.enter_context(contextlib.closing(
            database.postgres.connect(database.name, user=name))).cursor()

    yield create
    open_ones.close()
    for name in reversed(made):
        database.execute(f"DROP ROLE {name}")


def call(cursor, function):
    cursor.execute(f"SELECT outbox.{function}")
    return cursor.fetchone()[0]


@pytest.mark.parametrize("function", CALLS)
def test_another_consumer_cannot_use_the_name(database, session, function):
    owner, other = session("first", "outbox_consumer"), session("second", "outbox_consumer")
    assert call(owner, "processed_take('billing', '{a}', array[now()], '1 day')") == [True]
    assert call(owner, "claim_take('billing', 'b', '1 hour')")
    before = database.execute("SELECT count(*) FROM outbox.processed")
    with pytest.raises(errors.InsufficientPrivilege, match='the name "billing" belongs to the role first'):
        call(other, function)
    assert database.execute("SELECT count(*) FROM outbox.processed") == before
    assert call(other, "processed_take('mails', '{a}', array[now()], '1 day')") == [True]
    assert call(owner, "processed_take('billing', '{a}', array[now()], '1 day')") == [False]


def test_logins_of_a_group_share_its_names(database, session):
    database.execute("CREATE ROLE billing_group IN ROLE outbox_consumer")
    try:
        one, two = session("one", "billing_group"), session("two", "billing_group")
        other = session("other", "outbox_consumer")
        assert call(one, CALLS[0]) == [True]
        assert call(two, CALLS[0]) == [False]
        assert database.execute(OWNERS) == [("billing", "billing_group")]
        with pytest.raises(errors.InsufficientPrivilege):
            call(other, CALLS[0])
        database.execute("UPDATE outbox.consumer SET owner = 'outbox_consumer'")
        assert call(other, CALLS[0]) == [False]
    finally:
        database.execute("DROP ROLE billing_group")


def test_the_schemas_owner_uses_each_name_and_owns_none(database, session):
    assert database.execute(f"SELECT outbox.{CALLS[0]}") == [([True],)]
    assert database.execute(OWNERS) == []
    assert call(session("first", "outbox_consumer"), CALLS[0]) == [False]
    assert database.execute(OWNERS) == [("billing", "first")]
    assert database.execute(f"SELECT outbox.{CALLS[0]}") == [([False],)]


def test_a_role_that_is_gone_leaves_its_names(database, session):
    database.execute("INSERT INTO outbox.consumer (name, owner) VALUES ('billing', 'gone')")
    assert call(session("first", "outbox_consumer"), CALLS[0]) == [True]
    assert database.execute(OWNERS) == [("billing", "first")]


def test_a_consumer_cannot_change_owners_or_read_the_secret_of_the_locks(session):
    cursor = session("first", "outbox_consumer", "outbox_reader")
    for statement in ("UPDATE outbox.consumer SET owner = 'first'", "INSERT INTO outbox.consumer VALUES ('a', 'first')",
                      "SELECT * FROM outbox.processed_secret", "SELECT outbox.processed_locks('{1}')"):
        with pytest.raises(errors.InsufficientPrivilege):
            cursor.execute(statement)


def test_the_number_of_a_lock_follows_from_nothing_that_others_know(database, session):
    """A login without grants, which may hold any advisory lock, does not know which one an id has."""
    stranger, owner = session("stranger"), session("first", "outbox_consumer")
    hashed = "sha256('billing'::bytea || '\\000'::bytea || 'a'::bytea)"
    key = f"('x' || encode(substr({hashed}, 1, 8), 'hex'))::bit(64)::bigint"
    assert database.execute(f"SELECT {key} = outbox.processed_key('billing', 'a')") == [(True,)]
    stranger.execute(f"SELECT pg_advisory_lock({key} # hashtextextended('outbox.processed', 0))")
    assert call(owner, "processed_claim('billing', '{a}', array[now()], '1 day')") == [0]


@pytest.mark.parametrize("function", ["processed_take('billing', '{a}', array[now()], %s)",
                                      "processed_claim('billing', '{a}', array[now()], %s)",
                                      "processed_add('billing', '{a}', array[now()], %s)",
                                      "claim_take('billing', 'a', %s)",
                                      "claim_renew('billing', '{a}', '{1}', %s)"])
def test_nothing_is_kept_for_thousands_of_years(database, function):
    most, longer = ("1 day", "25 hours") if function.startswith("claim") else ("3650 days", "3651 days")
    for time in (longer, "5000 years"):
        with pytest.raises(errors.InvalidParameterValue, match="at most"):
            database.execute(f"SELECT outbox.{function}", (time,))
    if "processed_add" not in function:  # which records only what its session has claimed
        database.execute(f"SELECT outbox.{function}", (most,))
