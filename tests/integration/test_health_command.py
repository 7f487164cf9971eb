"""`outbox-relay health`, the probe of a container: a loop that stands still is no health, an outage is."""
import time

import pytest

from support.kafka import Kafka
from support.process import wait_for
from support.relay import run_command
from support.threads import Stopped, thread_of

CONFIG = 78


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
