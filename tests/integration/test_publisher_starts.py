"""`publisher create --start`: a further publisher of a table in use publishes what its start says, by the real
command, relay and broker."""

import json

import pytest

from support.auditor import audit, read_topics
from support.process import wait_for
from support.relay import run_command

REFUSED = 65
COUNT = "select count(*) > %s from outbox.message"


@pytest.fixture
def settings(database, kafka, tmp_path):
    """Only the publisher `late` is published."""
    path = tmp_path / "relay.ini"
    path.write_text('[publisher "late"]\n')
    return {"DATABASE_URL": database.dsn, "OUTBOX_RELAY_CONFIG": str(path),
            "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap}


@pytest.fixture
def create(settings):
    """create(start): the publisher `late`; returns the exit status and what stood on stderr."""
    def run(start):
        status, output, error = run_command(["publisher", "create", "late", "--start", start], settings)
        assert bool(output) == (status == 0)
        return status, error

    return run


def moment(database):
    return database.execute("select to_char(clock_timestamp() at time zone 'UTC',"
                            " 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')")[0][0]


def events_since(database, start):
    return {event for event, in database.execute(
        "select event_id::text from outbox.message where created_at >= %s", (start,))}


def test_beside_writers_a_publisher_publishes_exactly_what_was_created_at_its_start_or_later(
        database, kafka, topic, settings, create, make_relay, make_writers):
    """A transaction open from before the start until after the publisher was made wrote on both sides."""
    with make_writers(connections=4, rate=300) as writers:
        with writers.held_open():
            wait_for(lambda: database.execute(COUNT, (300,)) == [(True,)], 60, "older rows")
            start = moment(database)
            wait_for(lambda: database.execute(COUNT, (600,)) == [(True,)], 60, "newer rows")
            assert create(start) == (0, "")
            relay = make_relay(config=settings["OUTBOX_RELAY_CONFIG"]).wait_ready()
            relay.wait_for(lambda: (relay.metric("relay_published_total") or 0) > 100,
                           what="records")
    relay.stop()
    assert make_relay(arguments=("run", "--drain"),
                      config=settings["OUTBOX_RELAY_CONFIG"]).wait() == 0
    expected = events_since(database, start)
    held = [message for message in writers.committed if (message.key or b"").startswith(b"held-")]
    assert {message.event_id in expected for message in held} == {True, False}
    verdict = audit([message for message in writers.committed if message.event_id in expected],
                    read_topics(kafka.bootstrap, [topic]))
    assert verdict.correct and verdict.published == verdict.committed == len(expected), verdict
    status, output, error = run_command(["verify", "--json", "--publisher", "late"], settings)
    assert status == 0, error
    verdict = json.loads(output)
    assert verdict["published"] == verdict["acknowledged"] == len(expected)
    assert verdict["before_start"] == len(writers.committed) - len(expected) > 300


@pytest.mark.parametrize("start, expected", [("beginning", 40), ("now", 10)])
def test_a_publisher_publishes_everything_or_what_commits_from_here_on(
        database, kafka, topic, settings, create, make_relay, start, expected):
    publish = "select outbox.publish(%s, 'k', 'x') from generate_series(1, %s)"
    database.execute(publish, (topic, 30))
    assert create(start)[0] == 0
    database.execute(publish, (topic, 10))
    assert make_relay(arguments=("run", "--drain"),
                      config=settings["OUTBOX_RELAY_CONFIG"]).wait() == 0
    assert len(list(read_topics(kafka.bootstrap, [topic]))) == expected


@pytest.mark.parametrize("start, words", [
    ("yesterday", ["start is neither now nor beginning", "'yesterday' is no moment"]),
    ("2026-02-30", ["'2026-02-30' is no moment"]),
    ("", ["'' is no moment"]),
    ("2999-01-01T00:00:00Z", ["a publisher cannot start in the future", "the server's clock says 20"]),
])
def test_a_start_that_cannot_be_is_refused_and_nothing_is_made(database, create, start, words):
    status, error = create(start)
    assert (status, error.count("\n")) == (REFUSED, 1), error
    for word in words:
        assert word in error
    assert database.execute("select name from outbox.publisher") == [("main",)]
