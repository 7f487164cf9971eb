"""Prepares with a unique key, on real servers: one message for each key, whichever way it comes, and a word about the others."""

import json
import threading
import zlib

import pytest

from support.api import CONFIG, OPERATOR, start_api
from support.lookback import Case, in_headers
from support.lookback_rows import Reader, commit, prepare
from support.process import wait_for
from support.relay import run_command


@pytest.fixture
def case(database, kafka, make_relay, request):
    return Case(database, kafka, make_relay, f"lu{zlib.crc32(request.node.nodeid.encode())}")


def show(case, id, *options):
    status, output, error = run_command(["lookback", "show", "order", id, *options],
                                        {"DATABASE_URL": case.database.dsn})
    assert status == 0, error
    return output


def publish(cursor, topic, key, **more):
    cursor.execute("select outbox.publish(%s, 'sql'::text, 'p'::text, unique_key => %s, within => %s)",
                   (topic, key, more.get("within", "24 hours")))
    return cursor.fetchone()[0]


def test_the_second_prepare_of_a_key_is_a_duplicate_and_says_of_which_message(case):
    relay = case.relay().wait_ready()
    case.application.send(
        case.application.prepared("1", unique_key="order-42", within="24h"),
        in_headers("prepare", "order", "2", b"payload", topic=case.topics["orders"], key="2",
                   unique_key="order-42", within="86400", while_pending="published"),
        case.application.prepared("3", unique_key="ü" * 256), case.application.prepared("4"))
    case.application.commit("1")
    wait_for(lambda: case.ids() == ["1"], 60, "the first message")
    case.application.commit("3", "4")
    case.application.send(case.application.prepared("5", unique_key="order-42", while_pending="done"))
    case.application.commit("5")
    wait_for(lambda: case.decided().keys() >= {"1", "3", "4", "5"}, 60, "the decisions")
    shown = {id: json.loads(show(case, id, "--json"))["rows"][0] for id in "12345"}
    assert {id: row["state"] for id, row in shown.items()} == {
        "1": "committed", "2": "undecided", "3": "committed", "4": "committed", "5": "duplicate"}
    first = shown["1"]["event_id"]
    assert shown["5"]["duplicate_of"] == first and shown["5"]["message"] is None
    assert (shown["5"]["unique_key"], shown["5"]["within"], shown["5"]["while_pending"]) == (
        "order-42", "24:00:00", "done")
    text = show(case, "5")
    assert "state        duplicate" in text and f"duplicate of {first}" in text
    relay.wait_for(lambda: relay.metric("relay_lookback_duplicates_total", section="shop") == 1, what="the metric")
    wait_for(lambda: case.ids() == ["1", "3", "4"], 60, "the messages that are unique")
    # `published` holds the key no longer: the first message is
    case.application.commit("2")
    wait_for(lambda: case.ids() == ["1", "2", "3", "4"], 60, "the next message of the key")


BAD = [({"unique_key": "k" * 513}, "unique_key has 513 bytes; it takes 1 to 512"),
       ({"unique_key": ""}, "unique_key has 0 bytes"),
       ({"unique_key": "k", "within": 0}, "within is less than 1 ms"),
       ({"unique_key": "k", "within": "0s"}, "within is less than 1 ms"),
       ({"unique_key": "k", "within": -1}, "within is neither"),
       ({"unique_key": "k", "within": "3651d"}, "within is neither"),
       ({"unique_key": "k", "while_pending": "handled"}, "while_pending is neither published nor done"),
       ({"within": "1h"}, "unique_key is missing"), ({"while_pending": "done"}, "unique_key is missing")]


def test_bad_keys_and_windows_become_dead_letters_that_name_the_field_and_the_cure(case):
    case.relay().wait_ready()
    case.application.send(*(case.application.prepared(str(number), **fields)
                            for number, (fields, _) in enumerate(BAD)), case.application.prepared("good"))
    case.application.commit("good")
    wait_for(lambda: len(case.records("dead")) == len(BAD) and case.ids() == ["good"], 60, "all of them")
    said = {dict(record.headers)["dead-letter-error"].decode() for record in case.records("dead")}
    for _, error in BAD:
        assert any(text.startswith(error) for text in said), (error, said)


def test_an_open_transaction_with_the_key_holds_up_only_its_partition(case):
    """What is behind the record in its partition waits, and everything else goes on. The status says which process has it."""
    relay = case.relay().wait_ready()
    application = case.database.connect(autocommit=False)
    publish(application.cursor(), case.topics["orders"], "k")
    ids = [str(number) for number in range(12)]
    places = {id: case.application.prepare(id)[0] for id in ids}
    case.application.prepare("held", unique_key="k")
    place, = case.application.commit("held")
    case.application.commit(*ids)
    others = [id for id in ids if places[id][0] != place[0]]
    assert 0 < len(others) < len(ids)
    wait_for(lambda: case.ids() == sorted(others), 60, "the messages of the other partitions")
    pid = application.get_backend_pid()
    wait_for(lambda: f"process {pid}" in relay.output(), 60, "the warning")
    assert case.decided().keys() == set(others)
    application.rollback()
    wait_for(lambda: case.ids() == sorted([*ids, "held"]), 60, "all messages")
    relay.wait_for(lambda: "lookback_reader_goes_on" in relay.output(), what="the end of the warning")


def test_a_backlog_with_more_keys_than_a_transaction_takes_is_stored_in_parts(case):
    ids = [f"{number:04}" for number in range(2500)]
    case.application.send(*(case.application.prepared(id, unique_key=id) for id in ids),
                          *(case.application.decided(id, "commit") for id in ids), partition=0)
    relay = case.relay(batch=20000)
    relay.wait_for(lambda: len(case.decided()) == len(ids), what="all decisions")
    wait_for(lambda: case.ids() == ids, 60, "all messages")
    assert "lookback_reader_waits" not in relay.output()


def test_prepares_and_publishes_of_the_same_keys_at_once(case, scale):
    """Three partitions of the topic and writers in SQL, some of which roll back; the relay is killed in between."""
    keys, count, turns = [f"key-{number}" for number in range(20)], scale(600), scale(10, 2)
    case.options = {"kafka_session_timeout_ms": 3000, "kafka_heartbeat_interval_ms": 500}
    relay = case.relay(batch=50).wait_ready()
    returned, failures = set(), []

    def write(number):
        try:
            connection = case.database.connect(autocommit=False)
            for turn in range(count):
                event = publish(connection.cursor(), case.topics["orders"], keys[(turn * 3 + number) % len(keys)])
                if turn % 2:
                    connection.rollback()
                else:
                    connection.commit()
                    returned.add(event)
        except Exception as error:  # pylint: disable=broad-except
            failures.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for turn in range(turns):
        if turn > 0:
            relay.kill()
            relay = case.relay(batch=50)
        ids = [f"{turn}-{number}" for number in range(count)]
        case.application.send(*(case.application.prepared(id, unique_key=keys[number % len(keys)])
                                for number, id in enumerate(ids)))
        case.application.commit(*ids)
    for thread in threads:
        thread.join()
    assert failures == []
    wait_for(lambda: len(case.decided()) == turns * count, 120, "all decisions")
    wait_for(lambda: len(case.records()) >= len(keys), 60, "the messages")
    sent = [dict(record.headers)["outbox-id"].decode() for record in case.records()]
    assert len(sent) == len(set(sent)) == len(keys)
    assert returned <= set(sent)
    assert {event for event, in case.database.execute(
        "select event_id::text from outbox.lookback where kind = 'decision'")} <= set(sent)


def test_the_commands_and_the_http_interface_say_duplicate(database, make_relay, topic, tmp_path):
    relay, api = start_api(make_relay, tmp_path, "token-of-an-operator", CONFIG.format(topic=topic) + OPERATOR)
    reader = Reader(database, section="orders")
    reader.apply(*(prepare(id, type="orders", topic="orders.new", unique_key="k", within_ms=90_000)
                   for id in "1234"), commit("1") | {"type": "orders"})
    first = api.get("/orders/1").json
    assert first["state"] == "committed" and not first["prepares"][0]["decision"]["duplicate"]
    assert first["prepares"][0]["unique"] == {"unique_key": "k", "within_seconds": 90, "while_pending": None}

    def operate(*ids, verb="commit"):
        return api.post("operate", {"verb": verb, "reason": "ticket 7", "ids": [["orders", id] for id in ids]})

    answer = operate("2").json
    assert (answer["done"], answer["duplicates"]) == (1, 1)
    second = api.get("/orders/2").json
    assert second["state"] == "duplicate"
    decision = second["prepares"][0]["decision"]
    assert decision["duplicate"] and decision["event_id"] == first["prepares"][0]["event_id"]
    relay.wait_for(lambda: relay.metric("relay_lookback_decisions_total", section="orders", source="operator") == 1,
                   what="the metric")

    settings = {"DATABASE_URL": database.dsn}
    why = ["--reason", "ticket 7", "--yes"]
    status, output, error = run_command(["lookback", "commit", "orders", "3", *why], settings)
    assert (status, error) == (0, "")
    assert "1 id is done; 1 of them wrote no message, since another message has the unique key" in output

    # all ids or none, also when an open transaction has the key of one
    application = database.connect(autocommit=False)
    publish(application.cursor(), "orders.new", "held")
    reader.apply(prepare("5", type="orders", topic="orders.new", unique_key="held", within_ms=90_000))
    refused = operate("4", "5")
    assert (refused.status, refused.code) == (409, "key_held")
    status, _, error = run_command(["lookback", "commit", "orders", "4", "5", *why], settings)
    pid = application.get_backend_pid()
    assert status != 0 and f'has the unique key "held" of topic orders.new (process {pid})' in error
    assert "nothing was changed: end that transaction" in error and error.count("\n") == 1
    assert api.get("/orders/4").json["state"] == "undecided"
    application.rollback()
    assert (operate("4", "5").json["done"], api.get("/orders/5").json["state"]) == (2, "committed")
