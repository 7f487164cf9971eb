"""An operator pauses a publisher: nothing is sent until it is resumed, and then everything in the order of its key."""

import json
import time

import pytest

from support.auditor import count_records, settle
from support.process import wait_for
from support.relay import run_command

BACKLOG = 40_000


def publisher(database, *words):
    return run_command(["publisher", *words], {"DATABASE_URL": database.dsn})


def pause(database, name="main"):
    status, shown, error = publisher(database, "pause", name, "--reason", "ticket 7")
    assert status == 0, error
    return shown


def resume(database, name="main"):
    assert publisher(database, "resume", name, "--reason", "ticket 7 is done")[0] == 0


def write(database, topic, count, first=1, keys=50):
    database.execute("insert into outbox.message (topic, key, payload) select %s, 'k' || n %% %s, json_build_object("
                     "'key', 'k' || n %% %s, 'seq', n)::text from generate_series(%s, %s) n", [topic, keys, keys, first, first + count - 1])


def stands_still(relay, kafka, topic, seconds=2.0):
    """What was in flight ends soon, with the marks of a transaction, and then no record comes for so long; their number."""
    wait_for(lambda: relay.metric("relay_paused") == 1, 5, "a paused relay")
    count, since = -1, time.monotonic()
    end = since + 5 + seconds
    while time.monotonic() - since < seconds:
        assert time.monotonic() < end, "records come without end"
        now = count_records(kafka.bootstrap, [topic])
        if now != count:
            count, since = now, time.monotonic()
        time.sleep(0.2)
    return count


@pytest.mark.parametrize("settings", [{}, {"postgres_doorbell": "off"}], ids=["default", "polls"])
def test_nothing_is_sent_while_a_publisher_is_paused(make_relay, database, kafka, topic, settings):
    relay = make_relay(**settings).wait_ready()
    write(database, topic, 10)
    wait_for(lambda: count_records(kafka.bootstrap, [topic]) == 10, 60, "the first records")
    assert "relays heed it within a second" in pause(database)
    time.sleep(1)  # the second that is promised
    write(database, topic, 10, first=11)
    assert stands_still(relay, kafka, topic) == 10

    status, shown, _ = run_command(["status", "--json"], {"DATABASE_URL": database.dsn})
    shard = json.loads(shown)["postgres"][0]["shards"][0]
    assert status == 0 and shard["paused_at"].endswith("Z") and shard["owner"] and int(shard["unpublished"]) == 10
    assert ", paused since " in run_command(["status"], {"DATABASE_URL": database.dsn})[1]
    assert "main/0 of 1, paused" in publisher(database, "list")[1]
    assert "paused already" in pause(database)
    assert "is paused: a split publishes" in publisher(database, "split", "main", "--shards", "2")[2]

    resumed = time.monotonic()
    resume(database)
    wait_for(lambda: count_records(kafka.bootstrap, [topic]) == 20, 60, "the records after the pause")
    assert time.monotonic() - resumed < 5
    relay.wait_for(lambda: relay.metric("relay_paused") == 0, what="the end of the pause")
    assert settle(database.dsn, kafka.bootstrap, [topic]).correct
    assert database.execute("select verb, publisher, reason from outbox.audit order by id") == [
        ("pause", "main", "ticket 7"), ("resume", "main", "ticket 7 is done")]


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_a_pause_stops_a_backlog_and_lasts_over_a_kill(make_relay, database, kafka, topic, delivery):
    # small pages: the window of the backlog is read while it is published
    settings = {"publisher_delivery": delivery, "publisher_memory": "1MiB", "publisher_max_in_flight": "500"}
    write(database, topic, BACKLOG)
    relay = make_relay(**settings)
    wait_for(lambda: count_records(kafka.bootstrap, [topic]) > 500, 60, "the first records of the backlog")
    pause(database)
    sent = stands_still(relay, kafka, topic)
    assert 500 < sent < BACKLOG + 500
    relay.kill()
    relay.start()
    relay.wait_for(lambda: relay.metric("relay_owner") == 1, 60, "the shard")
    assert stands_still(relay, kafka, topic) == sent
    # one that is stopped releases its shard
    assert relay.stop() == 0
    relay.start()
    relay.wait_for(lambda: relay.metric("relay_owner") == 1, 60, "the shard")
    write(database, topic, 100, first=BACKLOG + 1)
    assert stands_still(relay, kafka, topic) == sent
    resume(database)
    verdict = settle(database.dsn, kafka.bootstrap, [topic], isolation="read_committed")
    assert verdict.correct, verdict
    if delivery == "exactly-once":
        assert verdict.duplicates == 0


def test_scheduled_messages_wait_and_other_publishers_go_on(make_relay, database, kafka, topic, tmp_path):
    assert publisher(database, "create", "other")[0] == 0
    path = tmp_path / "relay.ini"
    path.write_text('[publisher "main"]\n[publisher "other"]\n')
    relay = make_relay(config=path).wait_ready()
    pause(database)
    wait_for(lambda: relay.metric("relay_paused", publisher="main") == 1, 5, "a paused shard")
    database.execute("insert into outbox.message (topic, key, payload, deliver_at) values (%s, 'k', '{}', now() + "
                     "interval '1 second')", [topic])
    write(database, topic, 5)

    def records():
        return count_records(kafka.bootstrap, [topic])

    wait_for(lambda: records() == 6, 60, "all records of the other publisher")
    assert relay.metric("relay_paused", publisher="other") == 0
    resume(database)
    wait_for(lambda: records() == 12, 60, "the records of the resumed publisher")


@pytest.mark.parametrize("words, text", [
    (["pause", "main"], "say why: --reason"), (["pause", "nobody", "--reason", "x"], "publisher nobody does not exist"),
    (["resume", "nobody", "--reason", "x"], "publisher nobody does not exist"), (["pause", "--reason", "x"], "NAME"),
    (["resume", "main", "--reason", " "], "say why: --reason")])
def test_a_pause_that_is_wrong_is_refused(database, words, text):
    status, _, error = publisher(database, *words)
    assert status != 0 and text in error, error


def test_a_publisher_that_is_not_paused_is_not_resumed(database):
    status, shown, _ = publisher(database, "resume", "main", "--reason", "x")
    assert status == 0 and "was not paused already: nothing was changed" in shown
    assert database.execute("select count(*) from outbox.audit") == [(0,)]
