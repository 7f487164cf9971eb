"""A login may create functions, operators and types in `public`; the relay's role has `public` in its
search_path. Nothing that is planted there is ever run by us."""

import contextlib
import json
import zlib

import psycopg2
import pytest

from support.auditor import count_records
from support.dedup import Dedup
from support.lookback import Case
from support.pgbouncer import PgBouncer
from support.planted import VICTIM, Planted
from support.process import wait_for
from support.relay import run_command

COMMANDS = [
    ["migrate", "status"], ["doctor"], ["status"], ["status", "--json"], ["verify"], ["publisher", "list"],
    ["partition", "list"], ["parked", "list"], ["replay", "--list"], ["lookback", "list"],
    ["lookback", "show", "order", "1"],
    ["publisher", "create", "second", "--start", "now"],
    ["publisher", "drop", "second", "--yes", "--reason", "done"],
    ["replay", "ids=1..2", "--reason", "again", "--yes"]]


@pytest.fixture
def planted(empty_database):
    plants = Planted(empty_database)
    try:
        yield plants
    finally:
        plants.close()


@pytest.fixture
def database(planted):
    """The one that make_relay uses."""
    return planted.database


@pytest.fixture(params=["direct", "pooled"])
def victims_dsn(request, planted):
    """How the login comes to the database."""
    if request.param == "direct":
        yield planted.dsn
        return
    with PgBouncer(planted.database.postgres, users=("postgres", VICTIM)) as pooler:
        yield pooler.dsn(planted.database.name, user=VICTIM)


def test_the_trap_is_sprung_by_the_login_itself(planted):
    """What the test below rests on."""
    assert planted.count > 500 and planted.runs() == 0
    runs = 0
    for statement in ("SELECT cardinality(ARRAY['a'])", "SELECT 1 = 1", "SELECT 'a'::text",
                      "SELECT count(*)", "SELECT 1 IN (1, 2)", "SELECT octet_length('a'::pg_catalog.bytea)"):
        with contextlib.suppress(psycopg2.Error):
            planted.as_victim(statement)
        assert planted.runs() > runs, statement
        runs = planted.runs()


@pytest.mark.rotated
def test_nothing_that_is_planted_is_run(
        planted, database, victims_dsn, kafka, topic, make_relay, request):
    settings = {"DATABASE_URL": victims_dsn, "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap}

    def run(*arguments, statuses=(0,)):
        status, output, error = run_command(arguments, settings)
        assert planted.runs() == 0, f"{arguments}: {planted.which()}"
        assert status in statuses, f"{arguments}: {output}{error}"
        return output

    run("migrate", "up")

    # a writer with that path
    application = database.postgres.connect(database.name, user=VICTIM).cursor()
    for number in range(200):
        application.execute(f"SELECT outbox.publish('{topic}', 'k{number}', 'v', '{{\"a\": \"b\"}}')")
    application.execute(f"INSERT INTO outbox.message (topic, key, headers) VALUES ('{topic}', 'k', '[[\"a\", 1]]')")
    assert planted.runs() == 0

    case = Case(database, kafka, make_relay, f"planted{zlib.crc32(request.node.nodeid.encode())}",
                check_after="1s")
    relay = case.relay(database_url=victims_dsn).wait_ready()
    relay.wait_for(lambda: count_records(kafka.bootstrap, [topic]) == 201, what="the rows")
    case.application.prepare("1", "2", "3")
    case.application.commit("1")
    case.application.rollback("2")
    relay.wait_for(lambda: case.ids() == ["1"] and case.overdue() == ["3"], what="the look-back")
    for command in COMMANDS:
        run(*command, statuses=(0, 1))
    found = json.loads(run("verify", "--json", statuses=(0, 1)))
    assert found["clean"] and found["published"] >= 201, found

    line = f"postgres name=billing dsn={planted.dsn}"
    with Dedup(line) as store:
        assert store.check("a", "b") == ["new", "new"]
        store.done("a", "b")
        assert store.check("a", "b") == ["done", "done"]
    wait_for(lambda: relay.running and relay.get("/readyz")[0] == 200, 60, "readiness")
    assert planted.runs() == 0, planted.which()
