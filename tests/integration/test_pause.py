"""An operator pauses a publisher: nothing is sent until it is resumed, and then everything in the order of its key."""

import json
import time

import pytest

from support.auditor import count_records, settle
from support.postgres import Postgres, carry
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
    return stays_as_it_is(kafka, topic, seconds, most=5)


def stays_as_it_is(kafka, topic, seconds=2.0, most=60):
    """The number of records of a topic that gets none for so long; records may come for `most` seconds before."""
    count, since = -1, time.monotonic()
    end = since + most + seconds
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


# --- one topic ---------------------------------------------------------------------------------------


@pytest.fixture
def other(kafka, topic):
    """A topic of the same publisher that is not paused."""
    yield kafka.create_topic(f"{topic}.other")
    kafka.delete_topic(f"{topic}.other")


def pause_topic(database, topic, verb="pause"):
    status, shown, error = publisher(database, verb, "main", "--topic", topic, "--reason", "ticket 8")
    assert status == 0, error
    return shown


def parked(database):
    return dict(database.execute("select state, count(*) from outbox.parked group by state"))


def knows_of_pauses(relay, count, shards=1):
    """Each of the shards knows so many paused topics."""
    for shard in range(shards):
        relay.wait_for(lambda: relay.metric("relay_paused_topics", shard=str(shard)) == count, 10, f"{count} paused topics")


def is_parked(database, count):
    """All rows of the paused topic are parked, the first of each key as paused."""
    wait_for(lambda: sum(parked(database).values()) == count, 60, f"{count} parked rows")
    assert set(parked(database)) <= {"paused", "behind"}


def test_messages_of_a_paused_topic_wait_and_others_go_on(make_relay, database, kafka, topic, other):
    relay = make_relay().wait_ready()
    write(database, topic, 10)
    wait_for(lambda: count_records(kafka.bootstrap, [topic]) == 10, 60, "the first records")
    assert f"topic {topic} of publisher main is paused" in pause_topic(database, topic)
    knows_of_pauses(relay, 1)
    write(database, topic, 100, first=11)
    write(database, other, 100)
    wait_for(lambda: count_records(kafka.bootstrap, [other]) == 100, 60, "the records of the other topic")
    is_parked(database, 100)
    assert count_records(kafka.bootstrap, [topic]) == 10

    # its messages are shown as paused, and not as a backlog or a fault
    wait_for(lambda: unpublished(database) == 0, 30, "no backlog")
    shard = json.loads(run_command(["status", "--json"], {"DATABASE_URL": database.dsn})[1])["postgres"][0]["shards"][0]
    assert list(shard["paused_topics"]) == [topic] and shard["paused_at"] is None
    assert f"paused topics: {topic} since 20" in " ".join(run_command(["status"], {"DATABASE_URL": database.dsn})[1].split())
    assert f"paused topics: {topic} since 20" in publisher(database, "list")[1]
    assert relay.metric("relay_stalled_partitions") == 0 and relay.metric("relay_missing_topic") == 0
    assert "an operator paused the topic" in run_command(["parked", "list"], {"DATABASE_URL": database.dsn})[1]
    assert "already: nothing was changed" in pause_topic(database, topic)

    # an operator cannot send its messages meanwhile
    status, _, error = run_command(["parked", "retry", "state=paused", "--reason", "x", "--yes"],
                                   {"DATABASE_URL": database.dsn})
    assert (status, "publisher resume main --topic" in error) == (65, True), error

    resumed = time.monotonic()
    assert f"topic {topic} of publisher main is not paused" in pause_topic(database, topic, "resume")
    wait_for(lambda: count_records(kafka.bootstrap, [topic]) == 110, 60, "the records of the resumed topic")
    assert time.monotonic() - resumed < 10
    verdict = settle(database.dsn, kafka.bootstrap, [topic, other])
    assert verdict.correct and verdict.duplicates == 0, verdict
    wait_for(lambda: not parked(database), 30, "no parked row")
    knows_of_pauses(relay, 0)
    assert database.execute("select verb, publisher, target ->> 'topic', reason from outbox.audit order by id") == [
        ("pause", "main", topic, "ticket 8"), ("resume", "main", topic, "ticket 8")]


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_a_paused_topic_keeps_the_order_of_its_keys_over_kills(make_relay, database, kafka, topic, other, delivery):
    """Two shards; the relay is killed while the topic is paused, and while its messages come back."""
    relay = make_relay(publisher_delivery=delivery, publisher_max_in_flight="500").wait_ready()
    split(database)
    relay.wait_for(lambda: relay.metric("relay_owner") == 2, 60, "the two shards")
    write(database, topic, 3000)
    wait_for(lambda: count_records(kafka.bootstrap, [topic]) > 500, 60, "the first records")
    pause_topic(database, topic)  # records are in flight
    knows_of_pauses(relay, 1, shards=2)
    relay.kill()
    write(database, topic, 1000, first=3001)
    write(database, other, 500)
    relay.start()
    wait_for(lambda: count_records(kafka.bootstrap, [other]) >= 500, 60, "the records of the other topic")
    wait_for(lambda: database.execute("select count(*) from outbox.parked where topic = %s and state = 'paused'",
                                      [topic])[0][0] >= 50, 60, "a parked row of each key")
    sent = stays_as_it_is(kafka, topic)
    assert sent < 4000

    pause_topic(database, topic, "resume")
    wait_for(lambda: count_records(kafka.bootstrap, [topic]) > sent, 60, "the first record after the pause")
    relay.kill()
    write(database, topic, 500, first=4001)
    relay.start()
    # the marks of transactions are among the offsets that settle counts, so they do not tell the end
    wait_for(lambda: unpublished(database) == 0 and not parked(database), 60, "no row that waits")
    verdict = settle(database.dsn, kafka.bootstrap, [topic, other], isolation="read_committed")
    assert verdict.correct, verdict
    if delivery == "exactly-once":
        assert verdict.duplicates == 0


def unpublished(database):
    shards = json.loads(run_command(["status", "--json"], {"DATABASE_URL": database.dsn})[1])["postgres"][0]["shards"]
    return sum(int(shard["unpublished"]) for shard in shards)


def split(database):
    status, _, error = publisher(database, "split", "main", "--shards", "2")
    assert status == 0, error


def test_another_process_keeps_the_pause_and_ends_it(make_relay, database, kafka, topic):
    """Pause and resume are seen by an owner that took the shard in between, and pauses follow each other."""
    pause_topic(database, topic)
    write(database, topic, 100)
    database.execute("insert into outbox.message (topic, key, payload, deliver_at) values (%s, 'k1', json_build_object("
                     "'key', 'k1', 'seq', 101)::text, now() + interval '1 second')", [topic])
    first = make_relay().wait_ready()
    is_parked(database, 101)
    first.kill()
    pause_topic(database, topic, "resume")
    pause_topic(database, topic)
    second = make_relay().wait_ready()
    knows_of_pauses(second, 1)
    assert stays_as_it_is(kafka, topic, 1.0) == 0 and sum(parked(database).values()) == 101
    second.kill()
    pause_topic(database, topic, "resume")
    make_relay().wait_ready()
    verdict = settle(database.dsn, kafka.bootstrap, [topic])
    assert verdict.correct and verdict.duplicates == 0, verdict


def test_a_publisher_is_split_while_a_topic_is_paused(make_relay, database, kafka, topic):
    pause_topic(database, topic)
    relay = make_relay().wait_ready()
    write(database, topic, 100)
    is_parked(database, 100)
    split(database)
    write(database, topic, 50, first=101)
    is_parked(database, 150)
    assert count_records(kafka.bootstrap, [topic]) == 0
    pause_topic(database, topic, "resume")
    assert settle(database.dsn, kafka.bootstrap, [topic]).correct


def test_a_rebase_in_another_cluster_keeps_the_pause_of_a_topic(make_relay, make_database, database, kafka, topic):
    """A dump, with the parked messages of the paused topic: all of them come after the resume, in the order of their keys."""
    relay = make_relay().wait_ready()
    pause_topic(database, topic)
    knows_of_pauses(relay, 1)
    write(database, topic, 100)
    is_parked(database, 100)
    assert relay.stop() == 0
    with Postgres() as target:
        copy = make_database(carry(database.postgres, target, database.name), database.name)
        relay = make_relay(database_url=copy.dsn)
        relay.wait_event("publisher_elsewhere")
        write(copy, topic, 50, first=101)
        status, shown, error = publisher(copy, "rebase", "main", "--yes", "--reason", "another machine")
        assert status == 0 and "rebased: " in shown, error
        relay.wait_event("shard_taken")
        knows_of_pauses(relay, 1)
        is_parked(copy, 150)
        assert stays_as_it_is(kafka, topic, 1.0) == 0
        assert f"paused topics: {topic} since 20" in publisher(copy, "list")[1]
        pause_topic(copy, topic, "resume")
        verdict = settle(copy.dsn, kafka.bootstrap, [topic])
        assert verdict.correct and verdict.duplicates == 0, verdict
        wait_for(lambda: not parked(copy), 30, "no parked row")
        assert relay.stop() == 0


def test_a_publisher_with_a_paused_topic_is_dropped(make_relay, database, kafka, topic, tmp_path):
    """Its parked messages go with it, which the command says before; the table keeps them, for the other publisher and for a
    new one of the name, which pauses nothing."""
    assert publisher(database, "create", "other")[0] == 0
    path = tmp_path / "relay.ini"
    path.write_text('[publisher "main"]\n[publisher "other"]\n')
    relay = make_relay(config=path).wait_ready()
    pause_topic(database, topic)
    relay.wait_for(lambda: relay.metric("relay_paused_topics", publisher="main") == 1, 10, "a paused topic")
    write(database, topic, 100)
    is_parked(database, 100)
    wait_for(lambda: count_records(kafka.bootstrap, [topic]) == 100, 60, "the records of the other publisher")
    status, _, error = publisher(database, "drop", "main", "--yes", "--reason", "x")
    assert status != 0 and "publisher main shard 0 is owned by" in error, error

    assert relay.stop() == 0
    status, shown, _ = publisher(database, "drop", "main", "--dry-run")
    assert status == 0 and "100 parked" in shown, shown
    assert parked(database)["paused"] == 50
    status, shown, error = publisher(database, "drop", "main", "--yes", "--reason", "ticket 9")
    assert status == 0 and "publisher main dropped" in shown, error
    assert parked(database) == {}
    assert database.execute("select verb, publisher, reason from outbox.audit order by id desc limit 1") == [("publisher drop", "main", "ticket 9")]

    assert publisher(database, "create", "main")[0] == 0
    relay.start()
    write(database, topic, 10, first=101)
    wait_for(lambda: count_records(kafka.bootstrap, [topic]) == 100 + 10 + 110, 60, "the records of both publishers")
    assert "paused" not in publisher(database, "list")[1] and parked(database) == {}


@pytest.mark.parametrize("words, text", [
    (["pause", "main", "--topic", "a b", "--reason", "x"], "'a b' is no name of a Kafka topic"),
    (["pause", "main", "--topic", "..", "--reason", "x"], "'..' is no name of a Kafka topic"),
    (["pause", "main", "--topic", "orders"], "say why: --reason"),
    (["pause", "nobody", "--topic", "orders", "--reason", "x"], "publisher nobody does not exist")])
def test_a_pause_of_a_topic_that_is_wrong_is_refused(database, words, text):
    status, _, error = publisher(database, *words)
    assert status != 0 and text in error, error
    assert database.execute("select count(*) from outbox.audit") == [(0,)]


def test_a_topic_that_is_not_paused_is_not_resumed(database):
    assert "was not paused already: nothing was changed" in pause_topic(database, "orders", "resume")


def test_a_publisher_has_at_most_100_paused_topics(database):
    for number in range(100):
        database.execute("select outbox.publisher_pause_topic('main', %s, true, 'x')", [f"topic{number}"])
    status, _, error = publisher(database, "pause", "main", "--topic", "orders", "--reason", "x")
    assert status != 0 and "has 100 paused topics already" in error
