"""A librdkafka that tells of a new idempotent epoch in other words than the relay knows: exactly-once is
refused, at-least-once goes on with a warning. See outbox/kafka/epoch_check.h."""

import pytest

from support.relay import beside, run_command

CONFIG = 78
EXACT = {"OUTBOX_RELAY_PUBLISHER_DELIVERY": "exactly-once"}


@pytest.fixture
def settings(database, kafka):
    return {"DATABASE_URL": database.dsn, "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap}


@pytest.fixture
def other_texts():
    return {"LD_PRELOAD": beside("tests/integration/libother_texts.so")}


@pytest.mark.parametrize("command", [["run"], ["check-config"], ["doctor"]], ids=lambda words: words[0])
def test_exactly_once_is_refused_where_a_new_epoch_is_not_seen(settings, other_texts, command):
    status, output, error = run_command(command, {**settings, **EXACT, **other_texts})
    assert status == CONFIG
    assert "delivery = exactly-once: librdkafka" in output + error
    assert "new epoch" in output + error


def test_exactly_once_is_allowed_where_it_is(settings):
    assert run_command(["check-config"], {**settings, **EXACT})[0] == 0


def test_at_least_once_warns_and_goes_on(other_texts, make_relay, make_writers):
    relay = make_relay()
    relay.stop()
    assert not relay.events("epochs_unseen")
    relay.start(**other_texts).wait_ready()
    warning, = relay.wait_event("epochs_unseen")
    assert "new epoch" in warning["error"]
    writers = make_writers(connections=1, keys=5)
    writers.run(50)
    relay.wait_for(lambda: relay.metric("relay_published_total") == len(writers.committed),
                   what="its records")
    assert relay.stop() == 0
