"""`outbox-relay health`, the probe of a container: a process with a blocked loop is not well, and one in an outage is."""
import contextlib
import time

import pytest

from support.kafka import Kafka
from support.lookback import ASK, configuration
from support.process import wait_for
from support.relay import run_command
from support.threads import Stopped, thread_of

CONFIG = 78
OUTAGE, OUTAGE_FULL = 80, 620  # seconds: longer than all limits except those of upkeep and of an inbox, which are 600
# It is called while the default partition holds rows.
SLOW_REHOME = """
    CREATE OR REPLACE FUNCTION outbox.partition_rehome(of_table text, width interval) RETURNS text
        LANGUAGE sql
        AS 'SELECT pg_sleep(3600)::text'"""


def health(relay, *arguments):
    return run_command(["health", *arguments], relay.settings, timeout=30)


def test_a_process_whose_loops_turn_is_well(make_relay):
    relay = make_relay().wait_ready()
    status, output, error = health(relay)
    assert (status, output, error) == (0, "live\n", "")


def test_an_outage_is_no_reason_to_restart(make_relay, own_database):
    with Kafka() as kafka:
        relay = make_relay(database_url=own_database.dsn, bootstrap=kafka.bootstrap).wait_ready()
        kafka.kill()
        own_database.postgres.stop("immediate")
        wait_for(lambda: relay.get("/readyz")[0] == 503, 60, "a relay that is not ready")
        assert health(relay)[:2] == (0, "live\n")


@pytest.mark.rotated
@pytest.mark.parametrize("name", ["main", "shard"])
def test_a_loop_that_stands_still_is_named(make_relay, name):
    relay = make_relay().wait_ready()
    with Stopped(thread_of(relay.process.pid, name)):
        wait_for(lambda: health(relay)[0] != 0, 60, "a process that is not well")
        status, output, error = health(relay)
        assert (status, output) == (1, "")
        what = "main loop" if name == "main" else "publisher main/0"
        assert error.count("\n") == 1 and f"HTTP 503: {what}: last turn" in error, error
    wait_for(lambda: health(relay)[0] == 0, 60, "a process that is well again")


def test_a_process_that_does_not_answer_is_not_well(make_relay):
    relay = make_relay().wait_ready()
    relay.pause()
    begun = time.monotonic()
    status, _, error = health(relay, "--timeout", 1)
    assert status == 1 and "no answer from" in error and time.monotonic() - begun < 10
    relay.resume()
    relay.stop()
    status, _, error = health(relay)
    assert status == 1 and "no relay answers at" in error and error.count("\n") == 1


def test_without_an_endpoint_the_key_is_named(make_relay):
    settings = {**make_relay().settings, "OUTBOX_RELAY_ADMIN_LISTEN": ""}
    status, _, error = run_command(["health"], settings)
    assert status == CONFIG and "[admin] listen" in error and "OUTBOX_RELAY_ADMIN_LISTEN" in error


def everything(kafka, folder):
    """A configuration with a loop of each kind."""
    topics = {word: kafka.create_topic(f"health_{word}", 1) for word in ("said", "dead", "orders")}
    ask = {"url": "http://127.0.0.1:9/", "networks": "127.0.0.1"}
    return configuration(
        ("postgres", {}), ("publisher", {}), ('check "shop"', ASK),
        ('lookback "shop"', {"types": "order", "topic": topics["said"], "group": "said", "dead_letter": topics["dead"],
                             "check": "shop", "check_after": "1h"}),
        ('deliver "billing"', {**ask, "topics": topics["orders"], "group": "orders", "path": folder, "drain": "1s",
                               "dead_letter_topic": topics["dead"]}))


@pytest.mark.long
@pytest.mark.rotated("a minute")
def test_loops_of_lookback_and_deliver_that_stand_still_are_named(make_relay, tmp_path):
    """Each of them may take a minute for a turn."""
    with Kafka() as kafka, contextlib.ExitStack() as stopped:
        relay = make_relay(("run", "--config", everything(kafka, tmp_path)), bootstrap=kafka.bootstrap).wait_ready()
        assert "[+] inbox of deliver billing: last turn " in relay.get("/livez?verbose")[1]
        for name in ("lookback-reader", "lookback-check", "deliver"):
            stopped.enter_context(Stopped(thread_of(relay.process.pid, name)))
        assert health(relay)[0] == 0

        def named():
            error = health(relay)[2]
            return all(f"{what}: last turn" in error for what in (
                "reader of look-back shop", "checker of look-back shop", "deliver billing"))

        wait_for(named, 120, lambda: f"a process that is not well: {health(relay)}", interval=1)
        assert "main loop" not in health(relay)[2] and "publisher" not in health(relay)[2]
        stopped.close()
        wait_for(lambda: health(relay)[0] == 0, 60, "a process that is well again")


@pytest.mark.full("waits for ten minutes, which a statement of upkeep may take")
def test_upkeep_that_hangs_is_named(make_relay, database, topic):
    database.execute(SLOW_REHOME)
    database.execute("INSERT INTO outbox.message (topic, created_at) VALUES (%s, '2200-01-01')", (topic,))
    relay = make_relay().wait_ready()
    wait_for(lambda: health(relay)[0] != 0, 900, "a process that is not well", interval=5)
    assert "upkeep of postgres main: last turn" in health(relay)[2]


@pytest.mark.full("waits for ten minutes, since the stores of an inbox may be slow")
def test_an_inbox_that_hangs_is_named(make_relay, tmp_path):
    with Kafka() as kafka:
        relay = make_relay(("run", "--config", everything(kafka, tmp_path)), bootstrap=kafka.bootstrap).wait_ready()
        with Stopped(thread_of(relay.process.pid, "inbox")):
            wait_for(lambda: health(relay)[0] != 0, 900, "a process that is not well", interval=5)
            assert "inbox of deliver billing: last turn" in health(relay)[2]
        wait_for(lambda: health(relay)[0] == 0, 60, "a process that is well again")


@pytest.mark.long
@pytest.mark.rotated("a minute")
def test_an_outage_may_last_longer_than_any_limit(make_relay, own_database, tmp_path, full):
    with Kafka() as kafka:
        relay = make_relay(("run", "--config", everything(kafka, tmp_path)), database_url=own_database.dsn,
                           bootstrap=kafka.bootstrap).wait_ready()
        kafka.kill()
        own_database.postgres.stop("immediate")
        wait_for(lambda: relay.get("/readyz")[0] == 503, 60, "a relay that is not ready")
        until = time.monotonic() + (OUTAGE_FULL if full else OUTAGE)
        while time.monotonic() < until:
            assert health(relay)[:2] == (0, "live\n")
            time.sleep(1)  # the next probe
        assert relay.get("/readyz")[0] == 503
