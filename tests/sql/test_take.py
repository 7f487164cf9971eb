"""outbox.take: who gets a shard, and when. And what take and tick share: both commit durably."""

import pytest

from support.windows import Ticks

TAKE = """SELECT outcome, n, holder, wait_ms
    FROM outbox.take(%(publisher)s, 0, 1, %(nonce)s, %(owner)s, %(lease_ms)s, 9)"""


def take(database, owner, lease_ms=60_000, publisher="main"):
    return database.execute(TAKE, {"publisher": publisher, "nonce": 1, "owner": owner, "lease_ms": lease_ms})[0]


def test_a_running_lease_is_the_owners_alone(database):
    outcome, n, _, _ = take(database, "one")
    assert outcome == "taken"
    outcome, nothing, holder, wait_ms = take(database, "other")
    assert (outcome, nothing, holder) == ("held", None, "one") and 50_000 < wait_ms <= 60_000
    assert take(database, "one")[:2] == ("taken", n + 1)


def test_a_lease_that_is_over_is_anybodys(database):
    _, n, _, _ = take(database, "one", lease_ms=0)
    assert take(database, "other")[:2] == ("taken", n + 1)


def test_rows_of_transactions_that_are_yet_to_begin_were_carried_here(database):
    """The log was written here, the rows were not: a dump of the message table alone."""
    assert take(database, "one")[0] == "taken"
    database.execute("INSERT INTO outbox.message (topic, txid) VALUES ('t', '99999999999')")
    assert take(database, "one")[0] == "elsewhere"
    database.execute("DELETE FROM outbox.message")
    assert take(database, "one")[0] == "taken"


@pytest.mark.parametrize("call", ["take", "tick"])
def test_a_log_row_is_committed_durably_where_the_database_does_not_wait(database, call):
    database.execute(f"ALTER DATABASE {database.name} SET synchronous_commit = off")
    reader = Ticks(database.dsn)
    reader.connection.autocommit = False
    reader.cursor.execute("SHOW synchronous_commit")
    assert reader.cursor.fetchone() == ("off",)
    if call == "tick":
        reader.tick(must_write=True, may_open=False)
        assert reader.verdict == "noted"
    else:
        reader.cursor.execute(TAKE, {"publisher": "ticks", "nonce": 1, "owner": "by hand", "lease_ms": 60_000})
        assert reader.cursor.fetchone()[0] == "taken"
    reader.cursor.execute("SHOW synchronous_commit")
    assert reader.cursor.fetchone() == ("on",)
