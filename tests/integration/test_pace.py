"""[publisher] pace: how many windows a steady trickle of messages becomes, and how they travel."""

import contextlib
import time

import pytest

from support.auditor import count_records, settle

MESSAGES, EVERY = 100, 0.01
WINDOWS = "SELECT first_tick + cardinality(ticks) FROM outbox.log ORDER BY n DESC LIMIT 1"


def windows_of_a_trickle(database, kafka, topic, relay):
    """Writes a message each 10 ms; returns the number of their windows and the seconds it took."""
    relay.wait_ready()
    present = count_records(kafka.bootstrap, [topic]) + 1
    # A new owner opens no window before it has read the tails, so the first message comes alone.
    database.execute("SELECT outbox.publish(%s, 'k', 'x')", (topic,))
    relay.wait_for(lambda: count_records(kafka.bootstrap, [topic]) >= present, 30, "the first")
    before = database.execute(WINDOWS)[0][0]
    began = time.monotonic()
    with contextlib.closing(database.connect()) as connection:  # each statement is a transaction
        cursor = connection.cursor()
        for i in range(MESSAGES):
            cursor.execute("SELECT outbox.publish(%s, %s, 'x')", (topic, f"k{i}"))
            time.sleep(max(0, began + (i + 1) * EVERY - time.monotonic()))
    took = time.monotonic() - began
    relay.wait_for(lambda: count_records(kafka.bootstrap, [topic]) >= present + MESSAGES,
                   30, "all messages")
    assert relay.stop() == 0
    return database.execute(WINDOWS)[0][0] - before, took


def test_economy_makes_few_windows_and_latency_many(database, kafka, topic, make_relay):
    economy, took = windows_of_a_trickle(
        database, kafka, topic, make_relay(publisher_pace="economy"))
    latency, _ = windows_of_a_trickle(
        database, kafka, topic, make_relay(publisher_pace="latency"))
    # A window each 35 ms and more, against one for nearly each message, on a machine with other work.
    assert economy <= took / 0.034 + 3
    assert latency >= 1.5 * economy


def test_a_key_of_its_own_wins_over_the_pace(database, kafka, topic, make_relay):
    windows, _ = windows_of_a_trickle(database, kafka, topic, make_relay(
        publisher_pace="economy", publisher_poll_busy="300ms", publisher_poll_idle="300ms"))
    assert 2 <= windows <= 10


@pytest.mark.parametrize("pace", ["latency", "economy"])
def test_each_message_comes_once_in_transactions(
        pace, database, kafka, topic, make_relay, make_writers, scale):
    make_relay(publisher_pace=pace, publisher_delivery="exactly-once").wait_ready()
    writers = make_writers(keys=20).run(scale(4000, default=400))
    verdict = settle(database.dsn, kafka.bootstrap, [topic])
    assert verdict.correct and verdict.duplicates == 0, verdict
    assert verdict.committed == len(writers.committed)


def test_doctor_shows_the_linger_of_the_pace(make_relay):
    doctor = make_relay(("doctor",), publisher_pace="economy")
    assert doctor.wait() in (0, 1)
    assert "linger.ms = 2," in doctor.output()


def test_a_pace_that_does_not_exist_is_refused(make_relay):
    relay = make_relay(("check-config",), publisher_pace="fast")
    assert relay.wait() == 78
    assert "'fast' is not a choice; write latency | balanced | economy" in relay.output()
