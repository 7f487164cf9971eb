"""PostgreSQL servers that refuse WAL or control functions, as some managed ones do: `migrate up` and `doctor` find it,
the relay publishes, and another server is recognised by other evidence."""

import os
import shutil
import subprocess

import pytest

from support.auditor import audit, committed_messages, count_records, read_topics
from support.postgres import Postgres, carry
from support.relay import run_command

# Under new oids: the server calls a function of its own by its oid, whatever its row in the catalog says.
WAL = """ALTER FUNCTION pg_catalog.pg_current_wal_lsn() RENAME TO hidden_current_wal_lsn;
    CREATE FUNCTION pg_catalog.pg_current_wal_lsn() RETURNS pg_lsn LANGUAGE plpgsql
    AS $$ BEGIN RAISE EXCEPTION 'WAL functions are not supported here'; END $$"""
CONTROL = """ALTER FUNCTION pg_catalog.pg_control_system() RENAME TO hidden_control_system;
    CREATE FUNCTION pg_catalog.pg_control_system(OUT pg_control_version int,
    OUT catalog_version_no int, OUT system_identifier bigint, OUT pg_control_last_modified timestamptz)
    LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'control data is not readable here'; END $$"""
EVIDENCE = "SELECT outbox.timeline() < 0, outbox.system_identifier() < 0"
EPOCH = "SELECT epoch FROM outbox.progress"


def refuse(server, database, *functions):
    connection = server.connect(database)
    with connection.cursor() as cursor:
        cursor.execute("SET allow_system_table_mods = on")
        for function in functions:
            cursor.execute(function)
    connection.close()


@pytest.fixture
def refusing():
    """A server whose databases refuse both."""
    with Postgres() as server:
        refuse(server, "template1", WAL, CONTROL)
        server.create_database("shop")
        yield server


@pytest.fixture
def shop(refusing, make_database):
    return make_database(refusing, "shop").migrate()


@pytest.fixture
def drain(make_relay):
    """drain(database): a relay that has published all of it."""
    def run(database):
        relay = make_relay(("run", "--drain"), database_url=database.dsn, publisher_lease="2s")
        assert relay.wait(60) == 0
        return relay

    return run


def judge(database, kafka, topic, **options):
    return audit(committed_messages(database.dsn), read_topics(kafka.bootstrap, [topic]), **options)


def doctor(kafka, dsn):
    status, output, _ = run_command(["doctor"], {"DATABASE_URL": dsn,
                                                 "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap})
    return status, output


def test_it_publishes_through_kills_and_the_doctor_says_what_is_missing(shop, kafka, topic, make_relay, make_writers, drain):
    assert shop.execute(EVIDENCE) == [(True, True)]
    status, output = doctor(kafka, shop.dsn)
    assert status == 0, output
    assert "refuses pg_current_wal_lsn() or pg_walfile_name()" in output and "refuses pg_control_system()" in output

    relay = make_relay(database_url=shop.dsn, publisher_lease="1s").wait_ready()
    with make_writers(dsn=shop.dsn, connections=2, keys=20, rate=200):
        for _ in range(3):
            relay.wait_for(lambda: relay.metric("relay_published_total"), what="the first records")
            relay.kill()
            relay.start()
    relay.stop()
    drain(shop)
    verdict = judge(shop, kafka, topic)
    assert verdict.correct and verdict.committed > 0 and verdict.duplicates == 0, verdict


def test_a_restarted_server_begins_a_new_epoch_under_a_living_owner(shop, kafka, topic, make_relay, make_writers, drain):
    relay = make_relay(database_url=shop.dsn, publisher_lease="2s").wait_ready()
    make_writers(dsn=shop.dsn).run(50)
    relay.wait_for(lambda: relay.metric("relay_published_total") >= 50, what="its records")
    before = shop.execute(EPOCH)
    shop.postgres.restart()
    make_writers(dsn=shop.dsn, prefix="later").run(50)
    relay.wait_event("shard_taken", count=2)
    assert relay.stop() == 0
    drain(shop)
    assert shop.execute(EPOCH) != before
    verdict = judge(shop, kafka, topic, same_epoch=False)
    assert verdict.correct and verdict.committed >= 100 and verdict.duplicates == 0, verdict


def test_an_older_copy_of_the_database_gets_a_new_epoch_and_loses_nothing(shop, kafka, topic, make_writers, drain):
    server = shop.postgres
    writers = make_writers(dsn=shop.dsn, connections=2, keys=20)
    writers.run(100)
    drain(shop)
    survivors = count_records(kafka.bootstrap, [topic])
    server.stop()
    copy = os.path.join(server.folder, "copy")
    shutil.copytree(server.data, copy, symlinks=True)
    server.start()
    writers.run(100)
    drain(shop)
    lost = count_records(kafka.bootstrap, [topic]) - survivors
    before = shop.execute(EPOCH)
    server.stop()
    shutil.rmtree(server.data)
    shutil.copytree(copy, server.data, symlinks=True)
    if server.user:
        subprocess.run(["chown", "-R", server.user, server.data], check=True)
    server.start()

    make_writers(dsn=shop.dsn, connections=2, keys=20, prefix="later").run(100)
    drain(shop)
    # Without history_rewound: the lost records have the epoch of a restart that the copy does not know.
    assert shop.execute(EPOCH) != before
    verdict = judge(shop, kafka, topic, same_epoch=False)
    assert verdict.lost == verdict.duplicates == 0 and verdict.phantom == lost > 0, verdict


def test_a_dump_in_another_cluster_is_refused_until_a_rebase(shop, kafka, topic, make_relay, make_writers, make_database, drain):
    make_writers(dsn=shop.dsn).run(50)
    drain(shop)
    with Postgres() as other:
        copy = make_database(carry(shop.postgres, other, "shop"), "shop")
        refuse(other, "shop", WAL, CONTROL)
        relay = make_relay(database_url=copy.dsn)
        relay.wait_event("publisher_elsewhere")
        assert relay.stop() == 0
        status, _, error = run_command(["publisher", "rebase", "--all", "--yes", "--reason", "restored"],
                                       {"DATABASE_URL": copy.dsn})
        assert status == 0, error
        make_writers(dsn=copy.dsn, prefix="later").run(50)
        drain(copy)
        verdict = judge(copy, kafka, topic, same_epoch=False)
        assert verdict.correct and verdict.committed >= 100 and verdict.duplicates == 0, verdict
        identifier = "SELECT outbox.system_identifier()"
        assert copy.execute(identifier) != shop.execute(identifier)


def test_migrate_up_follows_a_server_that_changed_its_mind(own_database, kafka, topic, make_writers, drain):
    assert own_database.execute(EVIDENCE) == [(False, False)]
    make_writers(dsn=own_database.dsn).run(20)
    drain(own_database)
    refuse(own_database.postgres, "own", WAL, CONTROL)
    status, output = doctor(kafka, own_database.dsn)
    assert status != 0, output
    assert "refuses a function" in output and "run `outbox-relay migrate up` on this server" in output

    own_database.migrate()
    assert own_database.execute(EVIDENCE) == [(True, True)]
    stored = own_database.execute("SELECT outbox.system_identifier()")
    own_database.migrate()
    assert own_database.execute("SELECT outbox.system_identifier()") == stored
    make_writers(dsn=own_database.dsn, prefix="later").run(20)
    drain(own_database)
    verdict = judge(own_database, kafka, topic, same_epoch=False)
    assert verdict.correct and verdict.committed >= 40 and verdict.duplicates == 0, verdict


@pytest.mark.parametrize("function, evidence", [("pg_current_wal_lsn()", (True, False)),
                                                ("pg_control_system()", (False, True))])
def test_a_function_that_only_the_owner_may_call_counts_as_refused(own_database, kafka, function, evidence):
    own_database.execute("CREATE ROLE relay LOGIN IN ROLE outbox_relay")
    own_database.execute(f"REVOKE EXECUTE ON FUNCTION {function} FROM public")
    relay = own_database.postgres.dsn("own", user="relay")
    status, output = doctor(kafka, relay)
    assert status in (1, 77) and "refuses a function" in output, output
    own_database.migrate()
    assert own_database.execute(EVIDENCE) == [evidence]
    assert doctor(kafka, relay)[0] == 0
    own_database.execute(f"GRANT EXECUTE ON FUNCTION {function} TO public")
    own_database.migrate()
    assert own_database.execute(EVIDENCE) == [(False, False)]
