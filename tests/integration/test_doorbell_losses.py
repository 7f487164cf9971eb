"""A relay that sleeps while its sessions, its server or itself go away: each message is published, and soon after the
way is free again.
"""

import contextlib
import subprocess
import tempfile
import time

import pytest

from support.postgres import Postgres, Standby, program
from support.process import wait_for
from support.relay import run_command

PROMPT = 0.6  # seconds; a sleeping shard looks each 0.9


def is_asleep(relay):
    return relay.metric("relay_bell_asleep") == 1


def fall_asleep(relay):
    relay.wait_for(lambda: is_asleep(relay), 60, "sleep")
    return relay


def publish(database, topic):
    database.execute("SELECT outbox.publish(%s, 'k', 'payload')", (topic,))


def seconds_to_publish(relay, database, topic):
    before, start = relay.metric("relay_published_total"), time.monotonic()
    publish(database, topic)
    wait_for(lambda: relay.metric("relay_published_total") > before, 30, "the message", interval=0.005)
    return time.monotonic() - start


@pytest.fixture
def server():
    with Postgres(max_prepared_transactions=0) as server:
        server.create_database("own")
        yield server


@pytest.fixture
def database(server, make_database):
    return make_database(server, "own").migrate()


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_the_server_restarts(mode, server, database, topic, make_relay):
    relay = fall_asleep(make_relay().wait_ready())
    server.restart(mode)
    publish(database, topic)  # before the relay has its sessions back
    relay.wait_for(lambda: relay.metric("relay_published_total") == 1, 60, "the message")
    fall_asleep(relay)
    assert seconds_to_publish(relay, database, topic) < PROMPT
    assert relay.metric("relay_bell_missed_total") == 0


def test_the_server_allows_prepared_transactions_after_a_restart(server, database, topic, make_relay):
    relay = fall_asleep(make_relay().wait_ready())
    server.execute("ALTER SYSTEM SET max_prepared_transactions = 10")
    server.restart()
    relay.wait_event("doorbell_off", reason="max_prepared_transactions is above 0")
    with contextlib.closing(database.connect(autocommit=False)) as writer:
        writer.cursor().execute("SELECT outbox.publish(%s, 'k', 'payload')", (topic,))
        writer.cursor().execute("PREPARE TRANSACTION 'p'")
    database.execute("COMMIT PREPARED 'p'")
    relay.wait_for(lambda: relay.metric("relay_published_total") == 1, 60, "the message")
    assert not is_asleep(relay)


def test_the_primary_fails_over(server, database, topic, make_relay):
    with Standby(server, max_prepared_transactions=0) as standby:
        dsn = (f"postgresql://postgres@127.0.0.1:{server.port},127.0.0.1:{standby.port}/own"
               "?target_session_attrs=read-write")
        relay = fall_asleep(make_relay(database_url=dsn, publisher_lease="6s").wait_ready())
        server.kill()
        standby.promote()
        after = type(database)(standby, "own")
        publish(after, topic)
        relay.wait_for(lambda: relay.metric("relay_published_total") == 1, 60, "the message")
        fall_asleep(relay)
        assert seconds_to_publish(relay, after, topic) < PROMPT
        assert relay.metric("relay_bell_missed_total") == 0
        assert relay.stop() == 0


def test_the_relay_is_stopped_while_it_sleeps(database, topic, make_relay):
    """For longer than its lease, and writers go on."""
    relay = make_relay(publisher_lease="3s").wait_ready()
    publish(database, topic)
    relay.wait_for(lambda: relay.metric("relay_published_total") == 1, 60, "the first message")
    fall_asleep(relay).pause()
    for _ in range(20):
        publish(database, topic)
    second = make_relay(publisher_lease="3s").wait_ready()
    second.wait_for(lambda: second.metric("relay_owner") == 1, 60, "the shard")
    second.wait_for(lambda: second.metric("relay_published_total") == 20, 60, "the messages")
    assert seconds_to_publish(second, database, topic) < PROMPT
    assert not is_asleep(second)  # the lock is the other's
    relay.resume()
    fall_asleep(second)
    assert seconds_to_publish(second, database, topic) < PROMPT


def test_a_restored_dump_has_a_doorbell(server, database, topic, make_relay):
    """The table of a restored dump has another oid, and so other locks and another channel."""
    relay = fall_asleep(make_relay().wait_ready())
    assert relay.stop() == 0
    with tempfile.TemporaryFile() as dump:
        subprocess.run([program("pg_dump"), database.dsn], stdout=dump, check=True)
        server.drop_database("own")
        server.create_database("own")
        dump.seek(0)
        subprocess.run([program("psql"), "-qX", "-v", "ON_ERROR_STOP=1", database.dsn], stdin=dump, check=True,
                       stdout=subprocess.DEVNULL)
    relay = fall_asleep(make_relay().wait_ready())
    assert seconds_to_publish(relay, database, topic) < PROMPT
    assert relay.metric("relay_bell_rung_total") >= 1 and relay.metric("relay_bell_missed_total") == 0


@pytest.mark.parametrize("schema", ["shop", "my_outbox_shop"])
def test_a_schema_of_another_name_has_a_doorbell(schema, server, database, topic, make_relay):
    status, _, error = run_command(["migrate", "up"], {"DATABASE_URL": database.dsn,
                                                       "OUTBOX_RELAY_POSTGRES_SCHEMA": schema})
    assert status == 0, error
    relay = fall_asleep(make_relay(postgres_schema=schema).wait_ready())
    database.execute(f"SELECT {schema}.publish(%s, 'k', 'payload')", (topic,))
    relay.wait_for(lambda: relay.metric("relay_bell_rung_total") == 1, 10, "the ring")
    relay.wait_for(lambda: relay.metric("relay_published_total") == 1, 10, "the message")


def test_every_shard_of_both_publishers_is_woken(server, database, kafka, topic, make_relay, tmp_path):
    database.execute("SELECT outbox.publisher_create('second', 4, 'beginning')")
    path = tmp_path / "relay.ini"
    path.write_text(f"[postgres]\ndsn = {database.dsn}\n[kafka]\nbootstrap.servers = {kafka.bootstrap}\n"
                    '[publisher "main"]\n[publisher "second"]\n')
    relay = make_relay(config=path).wait_ready()
    relay.wait_for(lambda: relay.metric("relay_owner") == 5, 60, "the shards")
    for number in range(8):
        fall_asleep(relay)
        begun, start = relay.metric("relay_published_total"), time.monotonic()
        database.execute("SELECT outbox.publish(%s, %s, 'payload')", (topic, f"key {number}"))
        wait_for(lambda: relay.metric("relay_published_total") == begun + 2, 30, "both records", interval=0.005)
        assert number == 0 or time.monotonic() - start < PROMPT
    assert relay.metric("relay_bell_missed_total") == 0
