"""outbox.job_tidy deletes replays, redrives and verifications that ended long ago, and no other one."""

import contextlib

import pytest

from support.process import wait_for

DAY = 86_400_000
STATEMENTS = {
    "replay": """INSERT INTO outbox.replay (publisher, filter, snapshot, upto_id, last_id, total, nonce, owner, system_identifier,
            by_relay, state, created_at, noted_at, lease_until)
        SELECT 'main', '{}', pg_current_snapshot(), 1, 0, 1, 0, '', 0, %s, %s, now() - %s::interval, noted, noted
        FROM (SELECT now() - %s::interval AS noted) n, generate_series(1, %s)""",
    "redrive": """INSERT INTO outbox.redrive (reason, section, filter, ends, total, state, created_at, noted_at, lease_until)
        SELECT 'r', coalesce('s', %s::text), '{}', '0:1', 1, %s, now() - %s::interval, noted, noted
        FROM (SELECT now() - %s::interval AS noted) n, generate_series(1, %s)""",
    "verification": """INSERT INTO outbox.verification (reason, publisher, filter, state, created_at, noted_at, lease_until)
        SELECT 'r', coalesce('main', %s::text), '{}', %s, now() - %s::interval, noted, noted
        FROM (SELECT now() - %s::interval AS noted) n, generate_series(1, %s)"""}


@pytest.fixture(params=STATEMENTS)
def table(request):
    return request.param


@pytest.fixture
def add(database, table):
    """add(state, created, noted): a job whose owner had it until then."""
    def insert(state, created, noted, by_relay=True, count=1):
        database.execute(STATEMENTS[table], (by_relay, state, created, noted, count))

    return insert


def left(database, table):
    return [job for job, in database.execute(f"SELECT id FROM outbox.{table} ORDER BY id")]


def tidy(database, retain_ms=3 * DAY):
    database.execute("SELECT outbox.job_tidy(%s)", (retain_ms,))


def test_only_jobs_that_ended_long_ago_are_deleted(database, table, add):
    add("finished", "40 days", "31 days")
    add("stopped", "40 days", "31 days")
    for state, noted in [("finished", "29 days"), ("stopped", "29 days"), ("running", "31 days"), ("running", "0")]:
        add(state, "40 days", noted)
    tidy(database)
    assert left(database, table) == [3, 4, 5, 6]
    tidy(database, 28 * DAY)  # a shorter time than 30 days changes nothing
    assert left(database, table) == [3, 4, 5, 6]


def test_jobs_stay_as_long_as_messages(database, table, add):
    for noted in ("101 days", "99 days"):
        add("finished", "120 days", noted)
    tidy(database, 100 * DAY)
    assert left(database, table) == [2]


@pytest.mark.parametrize("table", ["replay"])
def test_a_replay_whose_command_ended_is_deleted(database, table, add):
    for noted in ("31 days", "29 days"):
        add("running", "40 days", noted, by_relay=False)
    tidy(database)
    assert left(database, table) == [2]


def test_many_jobs_are_deleted_in_steps_the_oldest_first(database, table, add):
    add("finished", "50 days", "50 days", count=1500)
    add("finished", "60 days", "60 days", count=1000)
    tidy(database)
    assert left(database, table) == list(range(1, 1501))
    tidy(database)
    assert len(left(database, table)) == 500
    tidy(database)
    assert left(database, table) == []


def test_a_job_that_is_being_resumed_is_left_alone(database, table, add):
    add("stopped", "40 days", "31 days")
    add("stopped", "40 days", "31 days")
    with contextlib.closing(database.connect(autocommit=False)) as other:
        other.cursor().execute(f"UPDATE outbox.{table} SET state = 'running' WHERE id = 1")
        tidy(database)
        assert left(database, table) == [1]
        other.commit()
    tidy(database)
    assert left(database, table) == [1]


def test_the_upkeep_of_a_relay_deletes_them(database, table, add, make_relay):
    add("finished", "40 days", "31 days")
    add("finished", "40 days", "29 days")
    make_relay(postgres_upkeep_interval="100ms").wait_ready()
    wait_for(lambda: left(database, table) == [2], 60, "the upkeep")


def test_a_relay_may_delete_no_other_job(database, table, add):
    add("finished", "40 days", "31 days")
    with contextlib.closing(database.connect()) as connection:
        cursor = connection.cursor()
        cursor.execute("SET ROLE outbox_relay")
        with pytest.raises(Exception, match="permission denied"):
            cursor.execute(f"DELETE FROM outbox.{table}")
        cursor.execute("SELECT outbox.job_tidy(1)")
    assert left(database, table) == []
