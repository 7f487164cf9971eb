"""Who may write to the message table cannot use the relay's own Kafka credentials to speak as an application
of the look-back, as the relay, or to topics that are not a publisher's."""

import json
import zlib

import psycopg2
import pytest

from support.auditor import read_topics
from support.lookback import Case, configuration, message
from support.process import wait_for
from support.relay import run_command


@pytest.fixture
def case(database, kafka, make_relay, request):
    return Case(database, kafka, make_relay, f"ld{zlib.crc32(request.node.nodeid.encode())}")


def publish(database, login, topic, key, payload="{}", headers=None):
    with psycopg2.connect(login["DATABASE_URL"]) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT outbox.publish(%s, %s, %s::text, %s::jsonb)",
                       (topic, key, payload, headers))


def dead(database):
    return dict(database.execute(
        "SELECT topic, error FROM outbox.parked WHERE state = 'dead' ORDER BY id"))


def test_a_writer_decides_no_business_transaction(case, database, login):
    """A commit that a writer of the table sends to the look-back topic is parked, and decides nothing."""
    relay = case.relay().wait_ready()
    case.application.prepare("1")
    case.read_up(relay, 1)
    forged = message("commit", "order", "1")
    writer = login("outbox_writer")
    publish(database, writer, case.topics["said"], forged[0].decode(), forged[1].decode())
    publish(database, writer, case.topics["orders"], "plain")
    relay.wait_for(lambda: case.ids() == ["plain"], what="a message of the table")
    relay.wait_for(lambda: case.topics["said"] in dead(database), what="the forged one to be parked")
    assert dead(database) == {case.topics["said"]:
                              "messages of the table may not go to this topic: it belongs to [lookback \"shop\"] topic"}
    assert case.decided() == {} and len(case.records("said")) == 1
    # an operator's retry changes nothing of it
    status, _, error = run_command(["parked", "retry", "--all", "--reason", "r", "--yes"],
                                   {"DATABASE_URL": database.dsn})
    assert status == 0, error
    relay.wait_for(lambda: relay.output().count("event=message_parked") == 2, what="it to be parked again")
    wait_for(lambda: case.topics["said"] in dead(database), 60, "it to be dead again")
    case.application.commit("1")
    relay.wait_for(lambda: case.ids() == ["1", "plain"], what="the application's own commit")
    assert len(case.records("said")) == 2


def test_internal_topics_take_only_what_the_relay_itself_writes(case, kafka, database, login):
    """A dead letter of the look-back passes, also behind a forged one of its key."""
    retry, last = (kafka.create_topic(f"{case.name}_{word}", 1) for word in ("retry", "last"))
    path = configuration(
        ("check \"shop\"", case.check), ("lookback \"shop\"", case.settings),
        ("deliver \"bills\"", {"url": "http://127.0.0.1:9/", "topics": case.topics["orders"],
                               "retry_topics": f"{retry}=10s", "dead_letter_topic": last}),
        ("publisher", {"topics": f"{case.topics['orders']}, plain.*"}))
    relay = case.make_relay(arguments=("run", "--config", path)).wait_ready()
    writer = login("outbox_writer")
    internal = {case.topics["dead"]: "[lookback \"shop\"] dead_letter", retry: "[deliver \"bills\"] retry_topics",
                last: "[deliver \"bills\"] dead_letter_topic",
                "__consumer_offsets": "Kafka's own topics, which begin with __"}
    for topic in internal:
        publish(database, writer, topic, "order:1", headers='{"dead-letter-reason": "forged"}')
    publish(database, writer, "others", "1")
    relay.wait_for(lambda: len(dead(database)) == 5, what="five dead messages")
    found = dead(database)
    assert found.pop("others") == "the topic is not in [publisher \"main\"] topics"
    assert found == {topic: f"messages of the table may not go to this topic: it belongs to {setting}"
                     for topic, setting in internal.items()}
    case.application.send((b"order:1", b"no JSON", [("h", b"1")]))
    relay.wait_for(lambda: len(case.records("dead")) == 1, what="the dead letter")
    letter, = case.records("dead")
    headers = dict(letter.headers)
    assert letter.payload == b"no JSON" and headers["dead-letter-reason"] == b"bad_json"
    assert headers["outbox-lookback"] == b"shop" and headers["h"] == b"1"
    publish(database, writer, case.topics["orders"], "k")
    relay.wait_for(lambda: len(case.records()) == 1, what="a message of an allowed topic")
    assert not list(read_topics(kafka.bootstrap, [retry, last]))


def test_a_replay_sends_nothing_to_internal_topics(case, database, kafka, login):
    path = configuration(
        ("check \"shop\"", case.check), ("lookback \"shop\"", case.settings), ("publisher", {"topics": "ld*"}))
    forged, writer = message("commit", "order", "1"), login("outbox_writer")
    for topic in (case.topics["said"], case.topics["orders"], "others"):
        publish(database, writer, topic, forged[0].decode(), forged[1].decode())
    settings = {"DATABASE_URL": database.dsn, "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap}
    for terms, why in [(["--all", "--yes", "--reason", "test"], "it belongs to [lookback \"shop\"] topic"),
                       (["topic=" + case.topics["orders"], "--to", case.topics["said"]], "[lookback \"shop\"] topic"),
                       (["topic=others"], "the topic is not in [publisher \"main\"] topics")]:
        status, _, error = run_command(["replay", *terms, "--config", path], settings)
        assert status != 0 and why in error and len(error.strip().splitlines()) == 1, error
    assert not case.records("said") and not case.records("orders")
    status, _, error = run_command(["replay", "topic=" + case.topics["orders"], "--config", path], settings)
    assert status == 0, error
    assert len(case.records("orders")) == 1


@pytest.mark.parametrize("role", ["outbox_writer", "outbox_relay"])
@pytest.mark.parametrize("headers", [
    [["outbox-lookback", "shop"]], [["outbox-lookback", "shop"], ["a", "b"]], {"outbox-lookback": "shop"},
    [["a", "b"], ["outbox-lookback", "shop"]], [["outbox-lookback", "shop"], ["outbox-id", "x"]]])
def test_nobody_else_writes_the_mark_of_the_look_back(database, login, role, headers):
    if role == "outbox_writer":
        with pytest.raises(psycopg2.errors.CheckViolation, match="reserved"):
            publish(database, login(role), "orders", "k", headers=json.dumps(headers))
    else:
        with pytest.raises(psycopg2.errors.CheckViolation, match="reserved"), \
                psycopg2.connect(login(role)["DATABASE_URL"]) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT %s::jsonb::outbox.message_headers", (json.dumps(headers),))


def test_a_mark_in_a_value_is_none(case, database, login):
    relay = case.relay().wait_ready()
    publish(database, login("outbox_writer"), case.topics["dead"], "k",
            headers=json.dumps([["a", "[[\"outbox-lookback\", "], ["outboxlookback", "[[\"outbox-lookback\", "]]))
    relay.wait_for(lambda: case.topics["dead"] in dead(database), what="the message to be parked")
    assert not case.records("dead")


def test_topics_of_a_section_never_include_internal_ones(case, kafka, database):
    relay = case.relay(topics="*").wait_ready()
    for place, word in enumerate(("said", "dead")):
        case.application.send(case.application.prepared(str(place), topic=case.topics[word]))
    case.application.send(case.application.prepared("2", topic="__consumer_offsets"))
    relay.wait_for(lambda: len(case.records("dead")) == 3, what="three dead letters")
    assert {dict(record.headers)["dead-letter-reason"] for record in case.records("dead")} == {
        b"topic_not_allowed"}
    status, _, error = run_command(
        ["check-config", "--config", configuration(
            ("check \"shop\"", case.check),
            ("lookback \"shop\"", {**case.settings, "topics": f"orders.*, {case.topics['dead']}"}))],
        {"DATABASE_URL": database.dsn})
    assert status == 78 and "[lookback \"shop\"] dead_letter" in error
