"""The sidecar: messages of a topic are posted to an application, and its answers say what becomes of
them."""

import base64
import collections
import hashlib
import hmac
import json
import ssl
import threading
import time

import pytest

from support.api import OPERATE, READ, READER, Api
from support.application import Application
from support.auditor import read_topics
from support.certificates import Identity
from support.http_service import Service
from support.inbox import header, produce
from support.process import free_port
from support.relay import on_a_terminal, run_command
from support.sidecar import dead_letters

KEY = b"n" * 24
SECRET = "whsec_" + base64.b64encode(KEY).decode()


def messages(count, keys=10, first=0):
    return [(f"id-{first + i}", f"k{(first + i) % keys}", json.dumps({"seq": first + i}))
            for i in range(count)]


def test_each_message_is_posted_once_in_the_order_of_its_key(make_sidecar, kafka, topic):
    produce(kafka.bootstrap, topic, messages(500) + messages(100))
    with Application() as application:
        relay = make_sidecar(application)
        application.wait_ids(f"id-{i}" for i in range(500))
        relay.wait_for(lambda: relay.metric("relay_deliver_duplicates_total") == 100)
        assert len(application.ids) == 500
        by_key = collections.defaultdict(list)
        for delivery in application.deliveries:
            by_key[delivery.event["subject"]].append(json.loads(delivery.body)["seq"])
        assert all(sequence == sorted(sequence) for sequence in by_key.values())
        relay.wait_for(lambda: relay.metric("relay_deliver_handled_total", section="billing") == 500,
                       what="the metric")
        relay.wait_for(lambda: relay.metric("relay_deliver_answers_total", result="2xx") == 500, what="the metric")
        assert relay.stop() == 0


def test_more_ids_than_planned_are_told(make_sidecar, kafka, topic):
    produce(kafka.bootstrap, topic, messages(3000))
    with Application() as application:
        relay = make_sidecar(application, dedup="bloom ids=1000 rate=1% window=1h")
        relay.wait_for(lambda: relay.metric("relay_deliver_handled_total") == 3000)
        relay.wait_for(lambda: relay.metric("relay_deliver_dedup_sub_slices") > 0)
        events = relay.events("inbox_filter_overfilled")
        assert all("raise ids in the dedup line" in event["cure"] for event in events)
        told = [event["partition"] for event in events]
        assert told and len(told) == len(set(told))


def test_an_overfilled_filter_shows_in_the_metrics(make_sidecar, kafka, topic):
    """The setting `alarm` is far below the planned rate."""
    produce(kafka.bootstrap, topic, [(str(i), f"k{i % 500}", "{}", 0) for i in range(70_000)])
    with Application() as application:
        relay = make_sidecar(application, form="batch", batch=250, concurrency=500,
                             dedup="bloom ids=300k rate=20% alarm=0.1% window=1h")
        relay.wait_for(lambda: relay.metric("relay_deliver_dedup_alarms_total") == 1, timeout=120)
        relay.wait_for(lambda: relay.metric("relay_deliver_dedup_alarm") == 0)
        assert relay.events("inbox_filter_alarm") and relay.events("inbox_filter_relieved")
        relay.wait_for(lambda: relay.metric("relay_deliver_handled_total") == 70_000)


def test_a_request_is_a_signed_event(make_sidecar, kafka, topic):
    produce(kafka.bootstrap, topic, [("7", "customer ä", '{"a": 1}', None,
                                      [("ce_type", b"order placed"), ("x", b"y")])])
    with Application() as application:
        make_sidecar(application, secret=SECRET)
        application.wait_ids({"7"})
        delivery = application.of("7")[0]
        assert delivery.body == b'{"a": 1}' and delivery.kind == "application/json"
        assert delivery.headers["ce-subject"] == "customer%20%C3%A4"
        event = delivery.event
        assert (event["specversion"], event["type"]) == ("1.0", "order placed")
        assert event["source"] == f"/topics/{topic}" and event["outboxtopic"] == topic
        assert "x" not in {name.lower() for name in delivery.headers}
        signed = f"{delivery.headers['webhook-id']}.{delivery.headers['webhook-timestamp']}."
        digest = hmac.new(KEY, signed.encode() + delivery.body, hashlib.sha256).digest()
        assert delivery.headers["webhook-signature"] == "v1," + base64.b64encode(digest).decode()
        assert delivery.headers["webhook-id"] == "7"


def test_answers_say_what_becomes_of_a_message(make_sidecar, kafka, topic, dead_topic):
    tries = collections.Counter()

    def answer(delivery):
        id = delivery.event["id"]
        tries[id] += 1
        first = tries[id] == 1
        return {"done": 200, "copy": 409, "refused": (422, "no such\ncustomer"),
                "moved": (301, b"", {"Location": "/elsewhere"}),
                "waits": (503, b"", {"Retry-After": "1"}) if first else 200,
                "fails": 500 if first else 204}[id]

    names = ["done", "copy", "refused", "moved", "waits", "fails"]
    produce(kafka.bootstrap, topic, [(name, name, "{}") for name in names])
    with Application(answer) as application:
        relay = make_sidecar(application)
        refusals = dead_letters(kafka, dead_topic, 2)
        reasons = {header(refusal, "outbox-id"): header(refusal, "outbox-reason")
                   for refusal in refusals}
        assert set(reasons) == {"refused", "moved"}
        assert "status 422: no such customer" in reasons["refused"]
        assert "status 301" in reasons["moved"]
        relay.wait_for(lambda: relay.metric("relay_deliver_handled_total") == 3)
        relay.wait_for(lambda: relay.metric("relay_deliver_duplicates_total") == 1, what="the metric")
        assert len(application.of("fails")) == 2 and len(application.of("refused")) == 1
        attempts = {id: [delivery.event["outboxattempt"] for delivery in application.of(id)]
                    for id in ("fails", "waits")}
        assert attempts == {"fails": ["1", "2"], "waits": ["1", "1"]}
        assert {delivery.path for delivery in application.deliveries} == {"/orders"}


def test_a_batch_has_an_answer_for_each_of_its_messages(make_sidecar, kafka, topic, dead_topic):
    refused = {"id-3", "id-50"}

    def answer(delivery):
        if len(delivery.events) > 1 and "id-99" in delivery.ids:
            return 413, b"too much"
        return 200, json.dumps([{"id": id, "status": 422 if id in refused else 200}
                                for id in delivery.ids])

    produce(kafka.bootstrap, topic, messages(200, keys=200))
    with Application(answer) as application:
        relay = make_sidecar(application, form="batch", batch=20)
        application.wait_ids(f"id-{i}" for i in range(200))
        refusals = dead_letters(kafka, dead_topic, 2)
        assert {header(refusal, "outbox-id") for refusal in refusals} == refused
        relay.wait_for(lambda: relay.metric("relay_deliver_handled_total") == 198)
        assert max(len(delivery.ids) for delivery in application.deliveries) > 1
        # the batch that was too large came apart
        assert len(application.of("id-99")[-1].ids) == 1


def test_an_application_that_is_away_costs_no_message(make_sidecar, kafka, topic):
    away = threading.Event()
    away.set()
    produce(kafka.bootstrap, topic, messages(50, keys=50))
    with Application(lambda _: 500 if away.is_set() else 200) as application:
        relay = make_sidecar(application, breaker_failures=5, breaker_pause="500ms", attempts=10)
        relay.wait_event("deliver_breaker_opened", section="billing")
        assert relay.get("/readyz?verbose")[0] == 200
        time.sleep(2)
        asked = len(application.deliveries)
        assert asked < 100  # 50 messages, each tried ten times, were 500
        away.clear()
        relay.wait_event("deliver_breaker_closed", section="billing")
        relay.wait_for(lambda: relay.metric("relay_deliver_handled_total") == 50)
        assert relay.metric("relay_deliver_dead_letters_total") == 0


def test_an_application_that_is_not_there_costs_no_attempt(make_sidecar, kafka, topic):
    produce(kafka.bootstrap, topic, messages(3))
    port = free_port()
    relay = make_sidecar(None, url=f"http://127.0.0.1:{port}/", attempts=1, breaker_failures=2,
                         breaker_pause="100ms")
    relay.wait_for(
        lambda: (relay.metric("relay_deliver_answers_total", result="connect") or 0) >= 5)
    with Application(port=port):
        relay.wait_for(lambda: relay.metric("relay_deliver_handled_total") == 3)
    assert relay.metric("relay_deliver_dead_letters_total") == 0


def test_the_last_error_is_shown_wherever_the_breaker_is(make_sidecar, kafka, topic, tmp_path):
    own = Identity(tmp_path, "own")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own.certificate, own.key)
    api = {"api_listen": free_port()}
    produce(kafka.bootstrap, topic, messages(1))
    with Service(lambda request: request.say(""), context=context) as service:
        relay = make_sidecar(service, environment=api, breaker_failures=1)
        opened = relay.wait_event("deliver_breaker_opened", section="billing")[0]
        assert opened["error"].startswith(f"tls: https://127.0.0.1:{service.server_port}: ")
        assert "certificate" in opened["error"]
        assert f"; last error: {opened['error']}" in relay.get("/readyz?verbose")[1]
        shown = run_command(["deliver", "list"], relay.settings)[1]
        assert f"  ! last error: {opened['error']}\n" in shown
        section = json.loads(run_command(["deliver", "list", "--json"], relay.settings)[1])["sections"][0]
        assert section["last_error"] == opened["error"]
        status, output, error = run_command(["status"], relay.settings)
        assert status == 0 and "breaker open" in output and "  ! last error: tls: " in output, output + error


def test_an_error_is_forgotten_once_the_application_answers(make_sidecar, kafka, topic):
    away = threading.Event()
    away.set()
    produce(kafka.bootstrap, topic, messages(1))
    with Application(lambda _: (500, b"full") if away.is_set() else 200) as application:
        relay = make_sidecar(application, breaker_failures=1, breaker_pause="100ms")
        assert relay.wait_event("deliver_breaker_opened")[0]["error"] == "status 500: full"
        away.clear()
        relay.wait_event("deliver_breaker_closed")
        relay.wait_for(lambda: "last error" not in relay.get("/readyz?verbose")[1])


def test_what_is_under_way_ends_before_the_process_does(make_sidecar, kafka, topic):
    going = threading.Event()

    def slow(delivery):
        going.set()
        time.sleep(1.5)
        return 200

    produce(kafka.bootstrap, topic, messages(1))
    with Application(slow) as application:
        relay = make_sidecar(application)
        assert going.wait(60)
        assert relay.stop() == 0
        assert application.ids == ["id-0"]
        relay.start().wait_ready()
        produce(kafka.bootstrap, topic, messages(1, first=1))
        application.wait_ids({"id-1"})
        assert application.ids == ["id-0", "id-1"]


def test_requests_at_once_are_limited(make_sidecar, kafka, topic):
    def slow(_):
        time.sleep(0.02)
        return 200

    produce(kafka.bootstrap, topic, messages(100, keys=100))
    with Application(slow) as application:
        make_sidecar(application, connections=3)
        application.wait_ids(f"id-{i}" for i in range(100))
        assert 1 < application.most_open <= 3


def test_what_fails_goes_through_the_retry_topics_and_is_dead_then(
        make_sidecar, kafka, topic, dead_topic):
    kafka.create_topic(f"{topic}.retry", 1)
    produce(kafka.bootstrap, topic, [("bad", "k", "{}"), ("good", "k", "{}")])
    with Application(lambda delivery: 500 if delivery.event["id"] == "bad" else 200) as application:
        make_sidecar(application, attempts=2, retry_topics=f"{topic}.retry=1s",
                     breaker_failures=1000)
        refusals = dead_letters(kafka, dead_topic, 1)
        assert [header(refusal, "outbox-id") for refusal in refusals] == ["bad"]
        assert "status 500" in header(refusals[0], "outbox-reason")
        tries = application.of("bad")
        # where it was first, whatever topic it comes from
        assert {(try_.event["outboxtopic"], try_.event["source"]) for try_ in tries} == {
            (topic, f"/topics/{topic}")}
        attempts = [int(try_.event["outboxattempt"]) for try_ in tries]
        assert len(attempts) >= 3 and attempts == sorted(attempts)
        assert len({try_.headers["ce-id"] for try_ in tries}) == 1


def test_a_killed_sidecar_repeats_no_more_than_what_was_not_committed(make_sidecar, kafka, topic):
    produce(kafka.bootstrap, topic, messages(300))
    with Application() as application:
        relay = make_sidecar(application, concurrency=16)
        application.wait_ids(f"id-{i}" for i in range(100))
        relay.kill()
        before = set(application.ids)
        relay.start().wait_ready()
        application.wait_ids(f"id-{i}" for i in range(300))
        relay.wait_for(lambda: relay.metric("relay_deliver_messages") == 0)
        repeated = len(application.ids) - 300
        assert before and repeated <= len(before)


def test_two_sidecars_share_the_partitions(make_sidecar, kafka, topic):
    produce(kafka.bootstrap, topic, messages(100))
    with Application() as application:
        first = make_sidecar(application)
        application.wait_ids(f"id-{i}" for i in range(100))
        second = make_sidecar(application, path=None, dedup=None)
        second.wait_for(lambda: first.metric("relay_deliver_partitions") == 3
                        and second.metric("relay_deliver_partitions") == 3)
        produce(kafka.bootstrap, topic, messages(100, first=100))
        application.wait_ids(f"id-{i}" for i in range(200))
        assert second.stop() == 0
        first.wait_for(lambda: first.metric("relay_deliver_partitions") == 6)
        assert sorted(application.ids) == sorted(f"id-{i}" for i in range(200))


def test_without_dead_letters_a_partition_stands_still_and_is_shown(make_sidecar, kafka, topic):
    api = {"api_listen": free_port()}
    produce(kafka.bootstrap, topic, [("bad", "k", "{}")])
    with Application(lambda _: 422) as application:
        relay = make_sidecar(application, dead_letter_topic=None, environment=api)
        relay.wait_for(lambda: relay.metric("relay_deliver_blocked_partitions") == 1)
        assert relay.readiness_says(200, "[!] deliver billing: ", "1 partition blocked")
        assert len(application.of("bad")) == 1

        assert run_command(["deliver", "resume", "billing", "--reason", "repaired"], relay.settings)[0] == 0
        relay.wait_for(lambda: len(application.of("bad")) == 2)


def test_a_tombstone_and_an_empty_message_are_told_apart(make_sidecar, kafka, topic):
    produce(kafka.bootstrap, topic, [("none", "k", None), ("empty", "k", "")])
    with Application() as application:
        make_sidecar(application, mode="structured")
        application.wait_ids({"none", "empty"})
        none, empty = application.of("none")[0].event, application.of("empty")[0].event
        assert none["outboxtombstone"] is True and "data_base64" not in none
        assert "outboxtombstone" not in empty and empty["data_base64"] == ""


def test_rules_of_a_section_drop_what_is_too_much(make_sidecar, kafka, topic):
    produce(kafka.bootstrap, topic, [(f"id-{i}", "user", "{}") for i in range(10)])
    with Application() as application:
        relay = make_sidecar(
            application, rules="sliding name=burst most=3 within=1h key=key action=drop")
        relay.wait_for(lambda: relay.metric("relay_deliver_refused_total") == 7)
        relay.wait_for(lambda: relay.metric("relay_deliver_handled_total") == 3)
        assert application.ids == ["id-0", "id-1", "id-2"]


def test_an_operator_pauses_and_resumes_a_section(make_sidecar, kafka, topic):
    api = {"api_listen": free_port()}
    produce(kafka.bootstrap, topic, messages(5))
    with Application() as application:
        relay = make_sidecar(application, environment=api)
        application.wait_ids(f"id-{i}" for i in range(5))

        def command(*words):
            return run_command(["deliver", *words], relay.settings)

        assert command("pause", "billing", "--reason", "the ledger moves") == (
            0, "deliver billing is paused in that process alone, which has no [postgres] section\n", "")
        relay.wait_event("deliver_operated", verb="pause", reason="the ledger moves")
        assert command("pause", "billing", "--reason", "again")[1] == (
            "deliver billing was paused already in that process alone, which has no [postgres] section\n")
        relay.wait_for(lambda: relay.metric("relay_deliver_paused") == 1)
        produce(kafka.bootstrap, topic, messages(5, first=5))
        time.sleep(2)
        assert len(application.ids) == 5
        status, shown, _ = command("list", "--json")
        section = json.loads(shown)["sections"][0]
        assert status == 0 and section["section"] == "billing" and section["paused"]
        assert (section["handled"], section["breaker"]) == (5, "closed")
        assert command("resume", "billing", "--reason", "done")[0] == 0
        application.wait_ids(f"id-{i}" for i in range(10))
        assert "billing:\n  works, 6 partitions" in command("list")[1]


def test_status_shows_what_became_of_messages(make_sidecar, kafka, topic, tmp_path):
    names = ["bad", *(f"id-{i}" for i in range(5)), "id-0"]
    produce(kafka.bootstrap, topic, [(name, name, "{}") for name in names])
    with Application(lambda delivery: 422 if delivery.event["id"] == "bad" else 200) as application:
        relay = make_sidecar(application)
        relay.wait_for(lambda: relay.metric("relay_deliver_dead_letters_total") == 1)
        relay.wait_for(lambda: relay.metric("relay_deliver_duplicates_total") == 1)
        relay.wait_for(lambda: relay.metric("relay_deliver_messages") == 0)
        config = ["--config", tmp_path / "relay-0.ini", "status"]
        shown = run_command(config, relay.settings)[1]
        lines = json.loads(run_command([*config, "--json"], relay.settings)[1])["relay"]["deliver"]
    figures = {}
    for line in lines:
        assert f"  {line}\n" in shown
        name, value = line.split(" ")
        figures[name.removeprefix("relay_deliver_").removesuffix('{section="billing"}')] = float(value)
    assert figures.pop("rebalances_total") >= 1
    assert figures == {"handled_total": 5, "duplicates_total": 1, "false_positive_rate": 0, "in_progress": 0,
                       "oldest_seconds": 0, "retries_total": 0, "dead_letters_total": 1, "breaker": 0}


@pytest.fixture
def redrive(tmp_path):
    """redrive("--id", 7): exit status, lines, error; of the first sidecar's configuration. Repeated while it says that
    a later call may succeed, as while Kafka makes the topic of the groups' offsets."""
    def run(*arguments, **settings):
        for _ in range(5):
            status, output, error = run_command(
                ["--config", tmp_path / "relay-0.ini", "deliver", "redrive", "billing", *arguments],
                settings)
            if status != 69:
                break
        return status, output.splitlines(), error

    return run


def test_dead_letters_go_back_once_as_an_operator_says(
        make_sidecar, kafka, topic, dead_topic, redrive):
    mended = threading.Event()

    def answer(delivery):
        return 200 if mended.is_set() or delivery.event["id"] == "fine" else 422

    names = [f"bad-{i}" for i in range(30)]
    produce(kafka.bootstrap, topic, [(name, name, '{"a": 1}') for name in ["fine", *names]])
    with Application(answer) as application:
        relay = make_sidecar(application)
        dead_letters(kafka, dead_topic, 30)
        mended.set()
        status, lines, _ = redrive("--dry-run")
        assert status == 0 and len(lines) == 22
        assert lines[-2:] == ["… and 10 more",
                              "30 dead letters match; 0 more went back before"]
        assert all("tried 1 times: " in line and "status 422" in line for line in lines[:20])
        assert len(list(read_topics(kafka.bootstrap, [topic]))) == 31  # nothing was sent

        assert redrive("--id", "bad-7", "--yes")[1][-1] == "1 dead letters went back"
        relay.wait_for(lambda: relay.metric("relay_deliver_handled_total") == 2)
        assert redrive("--id", "bad-7", "--yes")[1] == [
            "0 dead letters match; 1 more went back before"]
        assert redrive("--key", "bad-9", "--yes")[1][-1] == "1 dead letters went back"
        assert redrive("--limit", 3, "--yes")[1][-1] == "3 dead letters went back"
        assert redrive("--reason-has", "status 500", "--yes")[1][0].startswith("0 dead letters")
        status, lines, _ = redrive("--yes")
        assert (status, lines[-1]) == (0, "25 dead letters went back")
        relay.wait_for(lambda: relay.metric("relay_deliver_handled_total") == 31)
        # each was posted twice, and the second time it was the same event
        for name in names:
            first, second = application.of(name)
            assert first.event["id"] == second.event["id"] == name
            assert first.body == second.body
        assert len(application.of("fine")) == 1
    back = [record for record in read_topics(kafka.bootstrap, [topic])
            if header(record, "outbox-leg")]
    assert len(back) == 30
    assert {header(record, "outbox-group") for record in back} == {topic}
    assert not any(header(record, "outbox-reason") for record in back)


def test_a_letter_that_went_back_and_fails_again_is_a_dead_letter_again(
        make_sidecar, kafka, topic, dead_topic, redrive):
    produce(kafka.bootstrap, topic, [("bad", "k", "{}")])
    with Application(lambda _: 422) as application:
        make_sidecar(application)
        for times in (1, 2, 3):
            dead_letters(kafka, dead_topic, times)
            assert len(application.of("bad")) == times
            assert redrive("--yes")[1][-1] == "1 dead letters went back"
        dead_letters(kafka, dead_topic, 4)


def test_dead_letters_are_chosen_by_the_id_that_the_application_knows(
        make_sidecar, kafka, topic, dead_topic, redrive):
    produce(kafka.bootstrap, topic, [
        ("x-1", "k", '{"order": "o-1"}'), ("x-2", "k", '{"order": "o-2"}'),
        ("x-3", "k", '{"order": "o-3"}', None, [("ce_id", b"event-3")])])
    with Application(lambda _: 422) as application:
        make_sidecar(application, id="json:$.order")
        dead_letters(kafka, dead_topic, 3)
        assert set(application.ids) == {"o-1", "o-2", "event-3"}
    for known, outbox_id in (("o-2", "x-2"), ("event-3", "x-3")):
        for id in (known, outbox_id):
            status, lines, _ = redrive("--id", id, "--dry-run")
            assert status == 0 and lines[-1] == "1 dead letters match; 0 more went back before"
            assert f", id {known}, " in lines[0]
    assert redrive("--id", "k", "--dry-run")[1][-1].startswith("0 dead letters match")


def test_a_letter_in_a_partition_that_is_added_meanwhile_waits_for_the_next_call(
        make_sidecar, kafka, topic, dead_topic, redrive, tmp_path):
    def grow():
        kafka.add_partitions(dead_topic, 2)
        produce(kafka.bootstrap, dead_topic,
                [("late", "k", "{}", 1, [("outbox-group", topic.encode()),
                                         ("outbox-origin-topic", topic.encode())])])

    produce(kafka.bootstrap, topic, [("bad", "k", "{}")])
    with Application(lambda delivery: 200 if application.of("bad") else 422) as application:
        make_sidecar(application)
        dead_letters(kafka, dead_topic, 1)
        status, shown = on_a_terminal(
            ["--config", tmp_path / "relay-0.ini", "deliver", "redrive", "billing"], None,
            b"yes\n", grow)
        assert status == 0 and "1 dead letters went back" in shown, shown
        assert redrive("--yes")[1][-1] == "1 dead letters went back"
        application.wait_ids({"late"})
        assert len(application.of("bad")) == 2


def dead_letter(topic, id, key="k", payload="{}", origin=None):
    return (id, key, payload, None, [("outbox-group", topic.encode()),
                                     ("outbox-origin-topic", (origin or topic).encode())])


def test_dead_letters_that_cannot_go_back_are_refused(make_sidecar, kafka, topic, dead_topic, redrive):
    produce(kafka.bootstrap, dead_topic, [dead_letter(topic, "x", origin="elsewhere")])
    with Application() as application:
        make_sidecar(application)
        for choice in ("--dry-run", "--yes"):  # before the question
            status, _, error = redrive(choice)
            assert status == 65 and "topic elsewhere, which [deliver" in error
        status, _, error = redrive()
        assert status == 65 and "--dry-run" in error
        assert redrive("--topic", "other", "--yes")[0] == 0


def test_a_dead_letter_that_kafka_refuses_keeps_no_other_one_from_being_noted(
        make_sidecar, kafka, topic, dead_topic, redrive):
    produce(kafka.bootstrap, dead_topic, [
        *[dead_letter(topic, f"small-{i}") for i in range(20)],
        dead_letter(topic, "large", "large", "x" * 5000),
        *[dead_letter(topic, f"small-{i}") for i in range(20, 40)]])
    with Application() as application:
        make_sidecar(application)
        status, lines, error = redrive("--yes", OUTBOX_RELAY_KAFKA_MESSAGE_MAX_BYTES="2000")
        assert (status, lines[-1]) == (65, "40 dead letters went back"), error
        status, lines, _ = redrive("--yes")
        assert (status, lines[-2:]) == (0, ["1 dead letters match; 40 more went back before",
                                            "1 dead letters went back"])
    assert len(list(read_topics(kafka.bootstrap, [topic]))) == 41


def test_an_order_to_a_section_that_is_not_plain_is_refused(make_sidecar, topic):
    port = free_port()
    with Application() as application:
        relay = make_sidecar(application, environment={"api_listen": port})
        order = {"verb": "pause", "section": "billing", "reason": "x"}
        for token, body, status, code in [
                (READ, order, 403, "forbidden"), ("nobody", order, 401, "unauthorized"),
                (OPERATE, {**order, "verb": "stop"}, 400, "bad_value"),
                (OPERATE, {**order, "reason": ""}, 400, "bad_value"),
                (OPERATE, {**order, "section": "other"}, 404, "not_found"),
                (OPERATE, {"verb": "pause", "reason": "x"}, 400, "bad_value"),
                (OPERATE, {**order, "more": 1}, 400, "unknown_field"), (OPERATE, b"{", 400, "bad_json"),
                (OPERATE, {**order, "reason": 7}, 400, "wrong_type"), (OPERATE, [order], 400, "bad_json")]:
            answer = Api(port, token).request("POST", "/v1/deliver/operate", body)
            assert (answer.status, answer.code) == (status, code), body
        assert Api(port, READ).request("GET", "/v1/deliver").json["sections"][0]["works"]
        status, _, error = run_command(["deliver", "pause", "other", "--reason", "x"],
                                       relay.settings)
        assert status == 65 and "no such [deliver] section" in error
        status, _, error = run_command(["deliver", "pause", "billing"], relay.settings)
        assert status == 65 and "--reason is missing" in error


def test_a_configuration_that_only_delivers_has_no_database(tmp_path):
    (tmp_path / "relay.ini").write_text(
        '[kafka]\nbootstrap.servers = 127.0.0.1:1\n[deliver "billing"]\n'
        'url = http://127.0.0.1:1/\nnetworks = 127.0.0.1\nconnect_timeout = 20s\n')

    def command(*words):
        return run_command([*words, "--config", tmp_path / "relay.ini"],
                           {"DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none"})

    assert command("check-config")[:2] == (
        0, f"{tmp_path / 'relay.ini'}: 0 publishers, 1 section that delivers, no error\n")
    assert "it has no [postgres] section" in command("publisher", "list")[2]
    assert "it has no [publisher] section" in command("parked", "list")[2]
    found = command("doctor")[1]
    assert "postgres" not in found
    for word in ("requests are not signed", "no topic for dead letters", "connect_timeout is longer"):
        assert f"[warn]   deliver billing ({tmp_path / 'relay.ini'}:3): " in found and word in found


def test_commands_say_what_is_missing_to_ask_a_sidecar(tmp_path):
    path = tmp_path / "relay.ini"
    path.write_text(READER)
    kafka = {"OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1"}
    status, _, error = run_command(["deliver", "list"], kafka)
    assert status == 78 and "[api] does not listen" in error
    away = {**kafka, "OUTBOX_RELAY_API_LISTEN": free_port(), "OUTBOX_RELAY_CONFIG": str(path)}
    status, _, error = run_command(["deliver", "list"], away)
    assert status == 69 and "no relay answers" in error
    with Service(None) as other:  # it answers each GET with 200 and a text
        elsewhere = {**away, "OUTBOX_RELAY_API_LISTEN": str(other.server_port)}
        status, _, error = run_command(["deliver", "list"], elsewhere)
    assert status == 65 and "status 200: its body is not what a relay sends" in error
    status, _, error = run_command(["deliver", "pause", "a", "--reason", "x"], away)
    assert status == 78 and "no [token] section has the role operate" in error


def test_a_batch_that_cannot_fit_max_answer_is_refused(tmp_path):
    def status_of(max_answer):
        (tmp_path / "relay.ini").write_text(
            '[kafka]\nbootstrap.servers = 127.0.0.1:1\n[deliver "billing"]\nurl = http://127.0.0.1:1/\nnetworks = 127.0.0.1\n'
            f"form = batch\nbatch = 32\nmax_answer = {max_answer}B\n")
        return run_command(["check-config", "--config", tmp_path / "relay.ini"])

    assert status_of(1888)[0] == 0
    status, _, error = status_of(1887)
    assert status == 78 and "batch: the answer to 32 messages has at least 1888 bytes" in error


@pytest.mark.parametrize("key,value,said", [
    ("url", "", "url: it is empty"),
    ("url", "ftp://127.0.0.1/", "url: only http and https"),
    ("networks", "local", "networks: "),
    ("secret", "short", "secret: "),
    ("id", "jason:$.a", "id: "),
    ("dedup", "blom", "dedup: "),
    ("dedup", "bloom ids=1k path=/x", "dedup: leave path= out"),
    ("rules", "sliding name=a", "rules: "),
    ("tls_ca", "/nowhere", "tls_ca: "),
    ("event_source", "my shop", "event_source: it is no URI"),
])
def test_a_section_that_cannot_work_is_refused(tmp_path, key, value, said):
    lines = {"url": "http://127.0.0.1:1/", "path": tmp_path / "state", key: value}
    (tmp_path / "relay.ini").write_text(
        '[kafka]\nbootstrap.servers = 127.0.0.1:1\n[deliver "billing"]\n' + "".join(f"{name} = {text}\n" for name, text in lines.items()))
    for command in ("check-config", "run"):
        status, _, error = run_command([command, "--config", tmp_path / "relay.ini"])
        assert status == 78 and f'relay.ini:3: [deliver "billing"] {said}' in error
