"""Nothing an owner does outlives its lease: tables that stay locked, transactions of any size, standbys that
are away. The owner stays the owner, the server has few sessions of it, and traffic goes on afterwards."""

import time

import pytest

from support.auditor import audit, committed_messages, count_records, read_topics
from support.process import wait_for
from support.proxy import Proxy

LEASE = 1.0
LOCKED = 3 * LEASE
SESSIONS = """
SELECT count(*) FROM pg_stat_activity
WHERE application_name LIKE 'outbox-relay main/%' AND state <> 'idle'"""
OWNERS = "SELECT owner, max(n) FROM outbox.log WHERE publisher = 'main' AND shard = 0 GROUP BY owner"
DEAD = "SELECT coalesce(sum(n_dead_tup), 0) FROM pg_stat_user_tables WHERE schemaname = 'outbox'"
PUBLISH = "SELECT outbox.publish(%s, 'k' || i %% 10, 'x') FROM generate_series(1, %s) i"
SCHEDULE = """
INSERT INTO outbox.message (topic, key, payload, deliver_at)
SELECT %s, 's', 'x', clock_timestamp() + i * interval '100 ms' FROM generate_series(1, 10) i"""


def owners(database):
    """{who has ever written a log row: the newest}"""
    return {owner: n for owner, n in database.execute(OWNERS) if owner}


def start(make_relay, **settings):
    return make_relay(publisher_lease=f"{int(LEASE * 1000)}ms", **settings)


def watch(database, seconds, most):
    """For so long; never are there more sessions than so many."""
    until = time.monotonic() + seconds

    def over():
        count, = database.execute(SESSIONS)[0]
        assert count <= most, f"{count} sessions"
        return time.monotonic() > until

    wait_for(over, seconds + 60, "the time", interval=0.02)


class Locked:
    """Tables that nobody else may touch."""

    def __init__(self, database, *tables):
        self.connection = database.connect()
        self.connection.autocommit = False
        names = ", ".join(f"outbox.{table}" for table in tables)
        self.connection.cursor().execute(f"LOCK TABLE {names} IN ACCESS EXCLUSIVE MODE")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.connection.close()


def published(database, kafka, topic, until_published):
    until_published()
    wait_for(lambda: database.execute("SELECT NOT EXISTS (SELECT FROM outbox.scheduled)")[0][0], 60,
             "what was scheduled")
    verdict = audit(committed_messages(database.dsn), read_topics(kafka.bootstrap, [topic]))
    assert verdict.correct and not verdict.duplicates, verdict
    return verdict.committed


@pytest.mark.rotated
@pytest.mark.parametrize("tables", [
    ("message",), ("parked",), ("scheduled",), ("publisher",), ("message", "parked", "publisher", "scheduled")],
    ids="+".join)
def test_a_locked_table_costs_no_lease(
        tables, database, kafka, topic, make_relay, until_published):
    first = start(make_relay)
    first.wait_event("shard_taken")
    second = start(make_relay)
    second.wait_ready()
    database.execute(SCHEDULE, (topic,))
    database.execute(PUBLISH, (topic, 20))
    until_published()
    dead, = database.execute(DEAD)[0]
    with Locked(database, *tables):
        (owner, n), = owners(database).items()
        watch(database, LOCKED, 4)
    (same, later), = owners(database).items()
    assert same == owner and later >= n + 3, (owner, same, n, later)
    assert not second.events("shard_taken") and not first.events("shard_left")
    database.execute(PUBLISH, (topic, 20))
    assert published(database, kafka, topic, until_published) == 50
    assert database.execute(DEAD)[0][0] - dead < 1000


def test_a_locked_table_costs_no_lease_behind_a_pooler(
        database, pgbouncer, kafka, topic, make_relay, until_published):
    relay = start(make_relay, database_url=pgbouncer.dsn(database.name))
    relay.wait_event("shard_taken")
    start(make_relay, database_url=pgbouncer.dsn(database.name)).wait_ready()
    database.execute(PUBLISH, (topic, 20))
    until_published()
    with Locked(database, "message", "publisher"):
        (owner, n), = owners(database).items()
        watch(database, LOCKED, 4)
    (same, later), = owners(database).items()
    assert same == owner and later >= n + 3
    database.execute(PUBLISH, (topic, 20))
    assert published(database, kafka, topic, until_published) == 40


def test_a_locked_table_takes_up_no_sessions(database, kafka, topic, make_relay, until_published):
    """The log as well, so that leases are lost; and the application can go on connecting."""
    database.execute("SELECT outbox.publisher_drop('main')")
    database.execute("SELECT outbox.publisher_create('main', 4, 'beginning')")
    relay = start(make_relay)
    relay.wait_event("shard_taken", count=4)
    with Locked(database, "message", "log", "publisher"):
        watch(database, 6 * LEASE, 8)
    relay.wait_ready()
    database.execute(PUBLISH, (topic, 100))
    until_published()


def test_a_standby_that_is_away_costs_no_lease(
        own_database, kafka, topic, make_relay, until_published):
    server = own_database.postgres
    dsn = {"database_url": own_database.dsn}
    relay = start(make_relay, **dsn)
    relay.wait_event("shard_taken")
    other = start(make_relay, **dsn)
    other.wait_ready()
    own_database.execute(PUBLISH, (topic, 20))
    until_published(database=own_database)
    server.wait_for_standbys("nobody")
    try:
        (owner, n), = owners(own_database).items()
        own_database.execute("SET synchronous_commit = local; " + PUBLISH, (topic, 20))
        watch(own_database, 4 * LEASE, 4)
        (same, later), = owners(own_database).items()
        assert same == owner and later >= n + 4, (owner, same, n, later)
        assert count_records(kafka.bootstrap, [topic]) == 20
    finally:
        server.wait_for_standbys("")
    until_published(database=own_database)
    verdict = audit(committed_messages(own_database.dsn), read_topics(kafka.bootstrap, [topic]))
    assert verdict.correct and verdict.committed == 40 and not verdict.duplicates, verdict


@pytest.mark.rotated
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_huge_transaction_costs_no_lease(
        end, database, kafka, topic, make_relay, until_published, scale):
    """While it is open, when it ends, and as dead rows that no vacuum has taken away yet."""
    rows = scale(3_000_000, default=100_000)
    relay = make_relay(publisher_lease="300ms")
    relay.wait_event("shard_taken")
    for leaf, in database.execute("SELECT inhrelid::regclass::text FROM pg_inherits"
                                  " WHERE inhparent = 'outbox.message'::regclass"):
        database.execute(f"ALTER TABLE {leaf} SET (autovacuum_enabled = false)")
    writer = database.connect()
    writer.autocommit = False
    with writer.cursor() as cursor:
        cursor.execute("INSERT INTO outbox.message (topic) SELECT %s FROM generate_series(1, %s)",
                       (topic, rows))
    database.execute(PUBLISH, (topic, 20))
    wait_for(lambda: count_records(kafka.bootstrap, [topic]) == 20, 60, "what others wrote")
    getattr(writer, end)()
    database.execute(PUBLISH, (topic, 20))
    expected = 40 + rows * (end == "commit")
    assert published(database, kafka, topic, until_published) == expected
    assert len(owners(database)) == 1 and not relay.events("shard_left")


def test_a_slow_look_delays_no_renewal(database, postgres, kafka, topic, make_relay, until_published):
    """A look took most of its call's time, a third of the lease, and found that the publisher has changed. The tick behind
    it would take as much again, so the lease is renewed first, and no call is cancelled."""
    lease, slow = 6.0, 1.5
    with Proxy(postgres.port) as proxy:
        relay = make_relay(publisher_lease=f"{int(lease * 1000)}ms", publisher_poll_idle="50ms",
                           database_url=database.dsn.replace(
                               f":{database.postgres.port}/", f":{proxy.port}/"))
        relay.wait_event("shard_taken")
        database.execute(PUBLISH, (topic, 20))
        until_published()
        proxy.slow(slow, b"outbox_look", b"outbox_tick")
        (owner, n), = owners(database).items()

        def have_rows():
            database.execute("UPDATE outbox.publisher SET name = name")
            return owners(database)[owner] >= n + 4

        wait_for(have_rows, 60, "four log rows")
        gap, = database.execute(
            "SELECT max(gap)::float FROM (SELECT extract(epoch FROM l.written_at"
            " - lag(l.written_at) OVER (ORDER BY l.n)) AS gap FROM outbox.log l WHERE l.n > %s) g",
            (n,))[0]
        assert slow < gap < 2 * slow + lease / 6, gap
        assert not relay.events("log_call_failed")
        proxy.heal()
        database.execute(PUBLISH, (topic, 20))
        assert published(database, kafka, topic, until_published) == 40
        assert len(owners(database)) == 1


def test_a_huge_backlog_is_read_within_a_short_lease(database, kafka, topic, make_relay, scale):
    rows = scale(3_000_000, default=100_000)
    database.execute("SELECT outbox.publisher_drop('main')")
    database.execute("SELECT outbox.publisher_create('main', 8, 'beginning')")
    database.execute(PUBLISH, (topic, rows))
    database.execute("INSERT INTO outbox.message (topic) SELECT %s FROM generate_series(1, 1000)",
                     (topic,))
    relay = make_relay(publisher_lease="300ms")
    wait_for(lambda: count_records(kafka.bootstrap, [topic]) >= rows + 1000, 300, "all of them")
    assert len(owners(database)) == 1, relay.output()


def test_a_relay_that_is_killed_leaves_no_session_that_waits(database, topic, make_relay):
    relay = make_relay(publisher_lease="3s")
    relay.wait_ready()
    database.execute(PUBLISH, (topic, 20))
    with Locked(database, "message"):
        wait_for(lambda: database.execute(SESSIONS + " AND wait_event_type = 'Lock'")[0][0], 60,
                 "a session that waits")
        relay.kill()
        wait_for(lambda: not database.execute(SESSIONS)[0][0], 10, "its end")


def test_the_timeouts_of_the_role_change_nothing(
        database, kafka, topic, login, make_relay, until_published):
    settings = login("outbox_relay")
    role = settings["DATABASE_URL"].split("//")[1].split("@")[0]
    for setting in ("statement_timeout = '300ms'", "lock_timeout = '1ms'"):
        database.execute(f"ALTER ROLE {role} SET {setting}")
    relay = make_relay(database_url=settings["DATABASE_URL"], publisher_lease="6s",
                       postgres_upkeep_interval="1h")
    relay.wait_event("shard_taken")
    with Locked(database, "message"):
        wait_for(lambda: database.execute(SESSIONS + " AND wait_event_type = 'Lock'"
                                          " AND now() - query_start > interval '500 ms'")[0][0], 60,
                 "a statement that goes on waiting")
    database.execute(PUBLISH, (topic, 20))
    assert published(database, kafka, topic, until_published) == 20
    assert not relay.events("log_call_failed")
