"""Verbs of operators over the HTTP interface on all that matches: a preview shows it, and its token is the order."""

import csv
import io
import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlencode

import pytest

from support import sidecar
from support.api import CALLERS, CONFIG, OPERATE, READ, caller, start_api
from support.application import Application
from support.auditor import count_records
from support.inbox import produce
from support.process import free_port, wait_for
from support.relay import run_command

RETRY = "token-of-one-who-may-retry"
DECIDE = "token-of-one-who-may-decide"


@pytest.fixture
def api(make_relay, topic, tmp_path):
    return start_api(make_relay, tmp_path, OPERATE, CONFIG.format(topic=topic) + CALLERS
                     + caller("bob", RETRY, "operate") + caller("carol", DECIDE, "decide"))[1]


# --- look-back ------------------------------------------------------------------------------------

def overdue(database, ids, state="parked", biz_type="orders", error="no answer", service="shop"):
    """Undecided prepares of these ids that are overdue or parked."""
    for id in ids:
        database.execute("""
            with p as (insert into outbox.lookback (biz_type, biz_id, kind, section, prepared_at, source_partition,
                source_offset, topic, key, payload, check_service, check_at, digest, event_id)
                values (%s, %s, 'prepare', 'orders', now(), 0, 1, 'orders.new', 'k', 'p', 'shop', now(), 'd',
                gen_random_uuid()) returning section, biz_type, biz_id, prepared_at)
            insert into outbox.lookback_overdue (section, biz_type, biz_id, prepared_at, state, check_service, next_check,
                attempts, last_error) select p.section, p.biz_type, p.biz_id, p.prepared_at, %s, %s,
                now() + interval '1 day', 4, %s from p""", [biz_type, id, state, service, error])


def preview(api, verb, status=200, **filter):
    answer = api.post("preview", {"verb": verb, "filter": filter})
    assert answer.status == status, answer.text
    return answer.json


def order(api, verb, token, status=200, **filter):
    answer = api.post("operate", {"verb": verb, "filter": filter, "token": token, "reason": "ticket 7"})
    assert answer.status == status, answer.text
    return answer.json if status == 200 else answer.code


def decisions(database):
    return dict(database.execute("select biz_id, decision from outbox.lookback where kind = 'decision'"))


def test_a_preview_counts_and_shows_and_its_token_carries_it_out(api, database):
    overdue(database, [f"{number:02}" for number in range(12)])
    overdue(database, ["late"], state="overdue")
    shown = preview(api, "commit", type="orders", state="parked")
    assert (shown["verb"], shown["source"], shown["count"], shown["exact"]) == ("commit", "database", "12", True)
    assert shown["states"] == {"overdue": "0", "parked": "12"}
    assert [row["biz_id"] for row in shown["sample"]] == [f"{number:02}" for number in range(10)]
    assert not {"payload", "check_url"} & set(shown["sample"][0]) and decisions(database) == {}

    done = order(api, "commit", shown["token"], type="orders", state="parked")
    assert (done["done"], done["left_alone"], done["sections"]) == (12, 0, {"orders": 12})
    assert set(decisions(database).values()) == {"commit"} and "late" not in decisions(database)
    ((target, caller),) = database.execute("select target, caller from outbox.audit")
    assert target["filter"]["state"] == "parked" and target["rows"] == 12 and caller == "alice"
    # the token is spent: nothing of its selection is undecided
    assert order(api, "commit", shown["token"], 404, type="orders", state="parked") == "not_found"


def test_what_changed_after_the_preview_is_left_alone_and_counted(api, database):
    overdue(database, ["a", "b", "c", "d"])
    overdue(database, ["e"], state="overdue")
    shown = preview(api, "rollback", type="orders")
    assert api.post("operate", {"verb": "commit", "ids": [["orders", "a"]], "reason": "the books say so"}).status == 200
    database.execute("update outbox.lookback_overdue set state = 'parked', last_at = now() where biz_id = 'e'")
    overdue(database, ["new"])
    done = order(api, "rollback", shown["token"], type="orders")
    assert (done["done"], done["left_alone"]) == (3, 2)
    assert decisions(database) == {"a": "commit", "b": "rollback", "c": "rollback", "d": "rollback"}


def test_more_that_match_than_were_shown_change_nothing(api, database):
    overdue(database, ["a"])
    overdue(database, ["b"], error="another")
    shown = preview(api, "commit", error="no answer")
    database.execute("update outbox.lookback_overdue set last_error = 'no answer, again'")
    assert order(api, "commit", shown["token"], 409, error="no answer") == "changed"
    assert decisions(database) == {}


def test_two_operators_at_once_decide_each_id_once(api, database):
    overdue(database, ["a", "b"])
    first, second = preview(api, "commit", type="orders"), preview(api.as_(DECIDE), "rollback", type="orders")
    assert order(api, "commit", first["token"], type="orders")["done"] == 2
    assert order(api.as_(DECIDE), "rollback", second["token"], 404, type="orders") == "not_found"
    assert decisions(database) == {"a": "commit", "b": "commit"}
    assert database.execute("select caller from outbox.audit") == [("alice",)]


@pytest.mark.parametrize("verb, filter, code", [
    ("rollback", {"state": "parked"}, "bad_token"), ("retry", {"state": "parked"}, "bad_token"),
    ("commit", {"state": "overdue"}, "bad_token"), ("commit", {"state": "parked", "type": "orders"}, "bad_token")])
def test_a_token_is_for_its_verb_and_filter_only(api, database, verb, filter, code):
    overdue(database, ["a"])
    token = preview(api, "commit", state="parked")["token"]
    assert order(api, verb, token, 409, **filter) == code
    assert order(api, verb, "1.2.3.4", 409, **filter) == code
    assert decisions(database) == {}


@pytest.mark.parametrize("body, code", [
    ({"verb": "commit"}, "bad_value"), ({"verb": "commit", "filter": {}}, "bad_value"),
    ({"verb": "skip", "filter": {"state": "parked"}}, "bad_value"),
    ({"verb": "commit", "filter": {"until": "2026-01-01"}}, "bad_value"),
    ({"verb": "commit", "filter": {"from": "yesterdays"}}, "bad_value"),
    ({"verb": "commit", "filter": {"state": "parked"}, "reason": ""}, "bad_value"),
    ({"verb": "commit", "ids": [["orders", "1"]]}, "unknown_field"),
    ({"verb": "commit", "filter": {"state": "parked"}, "token": "x"}, "unknown_field"),
    ([], "bad_json")])
def test_a_preview_that_is_wrong_is_refused(api, body, code):
    answer = api.post("preview", body)
    assert (answer.status, answer.code) == (400, code), answer.text


def test_the_role_fits_the_verb_of_the_preview(api):
    for token, verb, status in [(RETRY, "retry", 200), (RETRY, "commit", 403), (DECIDE, "commit", 200),
                                (DECIDE, "retry", 403), (READ, "retry", 403), (OPERATE, "rollback", 200)]:
        answer = api.as_(token).post("preview", {"verb": verb, "filter": {"state": "parked"}})
        assert answer.status == status, (token, verb, answer.text)


# --- dedup ----------------------------------------------------------------------------------------

def test_dedup_shows_what_was_planned_and_what_is_observed(make_relay, kafka, topic, tmp_path):
    with Application(lambda _: 200) as application:
        sections = sidecar.configuration(kafka.bootstrap, topic, tmp_path / "state", application.url, {})
        _, api = start_api(make_relay, tmp_path, OPERATE, sections + '[deliver "other"]\nurl = http://127.0.0.1:9/\n'
                           + f"topics = {topic}\ngroup = other\nwithout_id = process\n" + caller("erin", RETRY, "read", sections="other"))
        for _ in range(2):
            produce(kafka.bootstrap, topic, [(f"id-{n}", "k", "{}") for n in range(10)])
        shown = wait_for(lambda: (one := api.request("GET", "/v1/dedup").json)["sections"][0]["duplicates"] == "10" and one,
                         what="the duplicates")
        billing, other = shown["sections"]
        assert (billing["section"], billing["runs"], billing["alarms"], billing["sub_slices"]) == ("billing", True, "0", "0")
        planned = billing["planned"]
        assert (planned["store"], planned["ids"], planned["target_rate"], planned["window_ms"]) == ("bloom", "100000", 0.001, "3600000")
        assert 0 <= billing["observed_rate"] <= 1 and int(billing["memory_bytes"]) > 0
        assert (other["section"], other["planned"]) == ("other", None)
        assert [row["section"] for row in api.as_(RETRY).request("GET", "/v1/dedup").json["sections"]] == ["other"]
        assert api.request("GET", "/v1/dedup?x=1").status == 400


# --- dead letters ---------------------------------------------------------------------------------

SEES = "token-of-one-who-may-see-payloads"
COUNT = 30


@pytest.fixture
def make_letters(make_relay, kafka, topic, dead_topic, tmp_path):
    """make_letters(application, database=False): the api of a sidecar with COUNT dead letters, whose payload is its number."""
    def make(application, database=False, count=COUNT):
        produce(kafka.bootstrap, topic, [(f"bad-{n}", f"k{n % 5}", f'{{"n": {n}}}') for n in range(count)])
        sections = sidecar.configuration(kafka.bootstrap, topic, tmp_path / "state", application.url, {})
        _, api = start_api(make_relay, tmp_path, OPERATE, sections + caller("dave", SEES, "read, payload")
                           + caller("bob", RETRY, "operate") + caller("erin", DECIDE, "read, operate", sections="other")
                           + '[deliver "other"]\nurl = http://127.0.0.1:9/\ntopics = ' + topic + "\ngroup = other\n"
                           + "without_id = process\n" + ('[postgres "main"]\n[publisher "main"]\n' if database else ""))
        sidecar.dead_letters(kafka, dead_topic, count)
        return api

    return make


def letters(api, status=200, **arguments):
    """Repeated while Kafka makes the topic of the groups' offsets."""
    answer = api.request("GET", "/v1/dead-letters?" + urlencode({"section": "billing", **arguments}))
    if answer.status == 503 != status:
        answer = wait_for(lambda: (again := api.request("GET", "/v1/dead-letters?" + urlencode(
            {"section": "billing", **arguments}))).status != 503 and again, 60, "Kafka's answer")
    assert answer.status == status, answer.text
    return answer.json


def redrive(api, status=200, path="redrive", **body):
    answer = api.request("POST", f"/v1/dead-letters/{path}", {"section": "billing", **body})
    assert answer.status == status, answer.text
    return answer.json if status in (200, 202) else answer.code


def test_dead_letters_are_shown_in_pages_with_their_reasons(make_letters, topic, dead_topic):
    with Application(lambda _: 422) as application:
        api = make_letters(application)
        shown, after = [], {}
        while True:
            page = letters(api, limit=7, **after)
            shown += page["rows"]
            if page["next"] is None:
                break
            after = {"after": page["next"]}
        assert (page["section"], page["topic"], page["source"]) == ("billing", dead_topic, "kafka")
        places = [(row["partition"], int(row["offset"])) for row in shown]
        assert len(shown) == COUNT and places == sorted(set(places))
        assert {row["id"] for row in shown} == {f"bad-{n}" for n in range(COUNT)}
        row = shown[0]
        assert (row["topic"], row["attempts"], row["redriven"]) == (topic, "1", False) and "status 422" in row["reason"]
        assert "payload" not in row and row["key"].startswith("k") and row["time"].endswith("Z")

        assert [row["id"] for row in letters(api, id="bad-7")["rows"]] == ["bad-7"]
        assert {row["id"] for row in letters(api, key="k3")["rows"]} == {f"bad-{n}" for n in range(3, COUNT, 5)}
        assert letters(api, reason="status 500")["rows"] == [] == letters(api, topic="elsewhere")["rows"]
        assert letters(api, to="2026-01-01")["rows"] == []

        assert letters(api, format="json") == shown
        file = api.as_(SEES).request("GET", "/v1/dead-letters?section=billing&format=csv&payload=yes&key=k3").text
        assert [line["payload"] for line in csv.DictReader(io.StringIO(file, newline=""))] == [
            f'{{"n": {row["id"].removeprefix("bad-")}}}' for row in shown if row["key"] == "k3"]

        (row,) = letters(api.as_(SEES), id="bad-7", payload="yes")["rows"]
        assert (row["key"], row["payload"], row["bytes"]) == ("k2", '{"n": 7}', "8")
        assert api.request("GET", "/v1/dead-letters?section=billing&payload=yes").code == "forbidden"
        assert api.as_(DECIDE).request("GET", "/v1/dead-letters?section=billing").code == "out_of_scope"
        assert api.as_(RETRY).request("GET", "/v1/dead-letters?section=billing").code == "forbidden"
        assert '{"n": 7}' not in api.relay.output()


def test_dead_letters_go_back_by_place_and_by_preview(make_letters, kafka, topic, database):
    mended = threading.Event()
    with Application(lambda _: 200 if mended.is_set() else 422) as application:
        api = make_letters(application, database=True)
        one = letters(api, id="bad-7")["rows"][0]
        place = f'{one["partition"]}:{one["offset"]}'
        shown = redrive(api, path="preview", filter={"reason": "status 422"})
        assert (shown["count"], shown["exact"], shown["gone_before"], len(shown["sample"])) == (str(COUNT), True, "0", 10)
        mended.set()

        assert redrive(api, places=[place], reason="ticket 6") == {
            "section": "billing", "sent": "1", "left": "0", "gone_before": "0", "exact": True, "error": None, "audit": "1"}
        assert redrive(api, places=[place], reason="ticket 6")["gone_before"] == "1"
        assert letters(api, id="bad-7")["rows"][0]["redriven"] is True
        assert redrive(api, 404, places=["0:999999"], reason="ticket 6") == "not_found"

        # what became a dead letter after the preview is left alone
        mended.clear()
        produce(kafka.bootstrap, topic, [("late", "k", "{}")])
        wait_for(lambda: letters(api, id="late")["rows"], 60, "another dead letter")
        mended.set()
        redrive(api, 202, filter={"reason": "status 422"}, token=shown["token"], reason="ticket 7")
        wait_for(lambda: (job := api.request("GET", "/v1/jobs/redrive-1").json)["state"] == "finished" and job["done"] == str(COUNT),
                 60, "the end of the job")
        wait_for(lambda: api.relay.metric("relay_deliver_handled_total") == COUNT, 60, "what went back")
        assert [row["id"] for row in letters(api)["rows"] if not row["redriven"]] == ["late"]
        assert all(len(application.of(f"bad-{n}")) == 2 for n in range(COUNT))
    assert database.execute("select verb, caller, reason, target ->> 'rows' from outbox.audit order by id") == [
        ("redrive", "alice", "ticket 6", "1"), ("redrive", "alice", "ticket 7", str(COUNT))]


def test_orders_to_a_section_are_in_the_audit(make_letters, database):
    with Application(lambda _: 422) as application:
        api = make_letters(application, database=True, count=1)

        def operate(verb):
            answer = api.request("POST", "/v1/deliver/operate", {"verb": verb, "section": "billing", "reason": f"why {verb}"})
            assert answer.status == 200, answer.text
            return answer.json

        order = {"section": "billing", "source": "database", "changed": True}
        assert operate("pause") == {**order, "paused": True, "audit": "1"}
        assert operate("resume") == {**order, "paused": False, "audit": "2"}
        reloaded = operate("reload_rules")
        assert reloaded["audit"] == "3"
        process = api.request("GET", "/v1/overview").json["process"]["name"]
        assert reloaded["source"] == process
    assert database.execute("select verb, caller, reason, target from outbox.audit order by id") == [
        (audited, "alice", f"why {verb}", {"section": "billing", "process": process})
        for verb, audited in (("pause", "deliver pause"), ("resume", "deliver resume"), ("reload_rules", "rules reload"))]


def test_dead_letters_go_back_by_a_command_with_the_address_of_the_relay(make_letters):
    with Application(lambda _: 422) as application:
        api = make_letters(application, count=5)
        letters(api)

        def command(*words):
            return run_command(["deliver", "redrive", "billing", "--server", f"http://127.0.0.1:{api.port}", *words],
                               {"OUTBOX_RELAY_TOKEN": RETRY})

        shown = command("--dry-run")
        assert shown[0] == 0 and shown[1].startswith("redrive of 5 dead letters\n") and "id bad-0, tried 1 times: " in shown[1], shown
        assert "1 dead letter went back" not in command("--id", "bad-3", "--dry-run")[1]
        assert command("--id", "bad-3", "--yes")[0] == 65  # without a reason
        assert command("--limit", "3", "--yes", "--reason", "ticket 7")[0] == 65
        done = command("--yes", "--reason", "ticket 7")
        assert done[0] == 0 and "5 dead letters went back" in done[1], done


def test_a_redrive_that_is_wrong_is_refused(make_letters):
    with Application(lambda _: 422) as application:
        api = make_letters(application, count=1)
        token = wait_for(lambda: (answer := api.request("POST", "/v1/dead-letters/preview",
                                                        {"section": "billing", "filter": {}})).status == 200
                         and answer.json["token"], 60, "a preview")
        base, _, ends = token.partition("/")
        further = f"{base}/{ends.replace(':1', ':9')}"
        for body, code in [
                ({"filter": {}}, "bad_value"), ({"filter": {}, "token": token, "places": ["0:1"]}, "bad_value"),
                ({}, "bad_value"), ({"places": []}, "bad_value"), ({"places": ["0"]}, "bad_value"), ({"places": [1]}, "bad_value"),
                ({"places": ["-1:0"]}, "bad_value"), ({"places": ["0:1"], "token": token}, "bad_value"),
                ({"filter": {"error": "x"}, "token": token}, "bad_value"), ({"filter": {"id": 7}, "token": token}, "bad_value"),
                ({"filter": {"from": "now"}, "token": token}, "bad_value"), ({"filter": {}, "token": 7}, "wrong_type"),
                ({"filter": {}, "token": token, "more": 1}, "unknown_field")]:
            assert redrive(api, 400, reason="r", **body) == code, body
        for body in ({"filter": {}, "token": further}, {"filter": {}, "token": base}, {"filter": {}, "token": "x"},
                     {"filter": {"id": "1"}, "token": token}):
            assert redrive(api, 409, reason="r", **body) == "bad_token", body
        assert redrive(api, 400, filter={}, token=token) == "bad_value"  # without a reason
        assert redrive(api, 404, places=["0:1"], reason="r", section="nobody") == "unknown_section"
        assert redrive(api, 409, places=["0:1"], reason="r", section="other") == "not_applicable"
        assert redrive(api.as_(DECIDE), 403, places=["0:1"], reason="r") == "out_of_scope"
        assert redrive(api.as_(SEES), 403, places=["0:1"], reason="r") == "forbidden"
        for query in ("limit=0", "after=7", "after=0:x", "payload=maybe", "from=soon", "colour=red", "id="):
            answer = api.request("GET", f"/v1/dead-letters?{query}")
            assert (answer.status, answer.code) == (400, "bad_value"), query
        # nothing went back, and the topic of the section without dead letters is named
        assert letters(api)["rows"][0]["redriven"] is False


def test_without_kafka_dead_letters_are_refused_in_bounded_time(make_relay, topic, tmp_path):
    nobody = f"127.0.0.1:{free_port()}"
    sections = sidecar.configuration(nobody, topic, tmp_path / "state", "http://127.0.0.1:9/", {})
    _, api = start_api(make_relay, tmp_path, OPERATE, sections, kafka_bootstrap_servers=nobody)
    begun = time.monotonic()
    with ThreadPoolExecutor(6) as pool:
        answers = list(pool.map(lambda _: api.request("GET", "/v1/dead-letters"), range(6)))
    assert {answer.status for answer in answers} == {503} and time.monotonic() - begun < 20
    assert {answer.code for answer in answers} == {"no_kafka", "busy"}
    assert api.request("GET", "/v1/deliver").status == 200


# --- publishers -----------------------------------------------------------------------------------

LIMITED = "token-of-one-with-other-publishers"


@pytest.fixture
def publishers(make_relay, topic, tmp_path, database):
    """The api of a relay with the publishers main and other."""
    assert run_command(["publisher", "create", "other"], {"DATABASE_URL": database.dsn})[0] == 0
    relay, api = start_api(make_relay, tmp_path, OPERATE, '[publisher "main"]\n[publisher "other"]\n' + CALLERS
                           + caller("bob", RETRY, "operate") + caller("carol", DECIDE, "decide")
                           + caller("frank", LIMITED, "read, operate, decide", publishers="other"))
    relay.wait_ready()
    return api


def instruct(api, path, status=200, **body):
    answer = api.request("POST", f"/v1/publishers/{path}", body)
    assert answer.status == status, answer.text
    return answer.json if status == 200 else answer.code


def test_a_publisher_is_paused_and_resumed(publishers, database, kafka, topic):
    done = instruct(publishers, "main/pause", reason="ticket 7")
    assert done == {"publisher": "main", "topic": None, "paused": True, "changed": True, "audit": done["audit"]}
    assert instruct(publishers, "main/pause", reason="ticket 7") == {
        "publisher": "main", "topic": None, "paused": True, "changed": False, "audit": None}
    publishers.relay.wait_for(lambda: publishers.relay.metric("relay_paused", publisher="main") == 1, 5, "a paused shard")
    (shard,) = publishers.request("GET", "/v1/publishers/main").json["shards"]
    assert shard["paused_at"].endswith("Z")
    (shard,) = publishers.request("GET", "/v1/publishers/other").json["shards"]
    assert shard["paused_at"] is None
    database.execute("insert into outbox.message (topic, key, payload) values (%s, 'k', '{}')", [topic])
    wait_for(lambda: count_records(kafka.bootstrap, [topic]) == 1, 60, "the record of the other publisher")
    assert instruct(publishers.as_(RETRY), "main/resume", reason="ticket 8")["paused"] is False
    wait_for(lambda: count_records(kafka.bootstrap, [topic]) == 2, 60, "the record after the pause")
    assert database.execute("select caller, verb, publisher, reason from outbox.audit order by id") == [
        ("alice", "pause", "main", "ticket 7"), ("bob", "resume", "main", "ticket 8")]


def test_a_topic_of_a_publisher_is_paused_and_resumed(publishers, database, kafka, topic):
    assert instruct(publishers, "main/pause", topic=topic, reason="ticket 9") == {
        "publisher": "main", "topic": topic, "paused": True, "changed": True, "audit": "1"}
    assert instruct(publishers, "main/pause", topic=topic, reason="ticket 9")["changed"] is False
    publishers.relay.wait_for(lambda: publishers.relay.metric("relay_paused_topics", publisher="main") == 1, 5, "a paused topic")
    shown = publishers.request("GET", "/v1/publishers/main").json["shards"][0]
    assert list(shown["paused_topics"]) == [topic] and shown["paused_at"] is None
    assert publishers.request("GET", "/v1/publishers/other").json["shards"][0]["paused_topics"] == {}

    [(id, event)] = database.execute("insert into outbox.message (topic, key, payload) values (%s, 'k', '{}') returning id, event_id::text", [topic])
    wait_for(lambda: count_records(kafka.bootstrap, [topic]) == 1, 60, "the record of the other publisher")
    wait_for(lambda: publishers.request("GET", "/v1/publishers/main").json["parked"]["paused"] == "1", 60, "the parked row")
    (found,) = publishers.request("GET", f"/v1/messages?event_id={event}&offset=no").json["rows"]
    (place,) = [each for each in found["publishers"] if each["publisher"] == "main"]
    assert (place["state"], place["parked"]["state"]) == ("parked", "paused")
    assert place["parked"]["error"] == "an operator paused the topic"
    refused = publishers.request("POST", "/v1/parked/retry", {"publisher": "main", "ids": [str(id)], "reason": "x"})
    assert refused.status == 409 and "publisher resume main" in refused.text

    for wrong in ("a b", "", ".", "x" * 250):
        assert instruct(publishers, "main/pause", 400, topic=wrong, reason="x") == "bad_value"
    assert instruct(publishers, "main/resume", topic="absent", reason="x")["changed"] is False
    assert instruct(publishers.as_(RETRY), "main/resume", topic=topic, reason="ticket 10")["paused"] is False
    wait_for(lambda: count_records(kafka.bootstrap, [topic]) == 2, 60, "the record after the pause")
    assert database.execute("select caller, verb, target ->> 'topic', reason from outbox.audit order by id") == [
        ("alice", "pause", topic, "ticket 9"), ("bob", "resume", topic, "ticket 10")]


def test_a_publisher_is_split(publishers, database):
    assert instruct(publishers, "main/split", shards=3, reason="ticket 7") == {"publisher": "main", "shards": 3, "audit": "1"}
    assert len(publishers.request("GET", "/v1/publishers/main").json["shards"]) == 3
    assert instruct(publishers, "main/split", 409, shards=3, reason="again") == "not_applicable"
    assert instruct(publishers.as_(DECIDE), "main/split", cancel=True, reason="none is open")["shards"] is None
    assert database.execute("select caller, verb, publisher, target from outbox.audit order by id") == [
        ("alice", "split", "main", {"shards": 3}), ("alice", "split", "main", {"shards": 3}),
        ("carol", "split cancel", "main", {})]


def test_a_split_that_cannot_end_is_cancelled(publishers, database, topic):
    # the shard waits for a topic that does not exist, so it does not come to the common end
    database.execute("insert into outbox.message (topic, key, payload) values (%s, 'k', '{}')", [f"{topic}.missing"])
    publishers.relay.wait_for(lambda: publishers.relay.metric("relay_missing_topic", publisher="main") == 1, 60, "a wait")
    answer = publishers.request("POST", "/v1/publishers/main/split", {"shards": 2, "reason": "ticket 7"})
    assert (answer.status, answer.code) == (409, "not_applicable"), answer.text
    assert "cancelled, it goes on as before" in answer.json["detail"]
    assert database.execute("select shards, split_to from outbox.publisher where name = 'main'") == [(1, None)]


def test_a_rebase_needs_its_question_answered(publishers, database):
    plan = instruct(publishers, "main/rebase", dry_run=True)
    assert {row["publisher"] for row in plan["plan"]} >= {"main", "other"} and plan["audit"] is None and plan["dry_run"]
    for body in ({}, {"confirm": "yes"}, {"confirm": "Rebase main?"}):
        assert instruct(publishers, "main/rebase", 400, reason="r", **body) == "bad_value"
    confirm = "Rebase all publishers?"
    assert instruct(publishers, "main/rebase", 409, reason="r", confirm=confirm) == "not_applicable"  # several publishers
    # nothing was carried here, and owners are alive
    assert instruct(publishers, "main/rebase", 409, reason="r", confirm=confirm, all=True) == "not_applicable"
    assert instruct(publishers, "main/rebase", 409, reason="r", confirm=confirm, all=True, new_identity=True) == "not_applicable"
    assert instruct(publishers.as_(LIMITED), "other/rebase", 403, dry_run=True) == "out_of_scope"
    # the session that was refused holds no lock
    assert instruct(publishers, "main/pause", reason="r")["changed"]
    assert database.execute("select verb from outbox.audit") == [("pause",)]


@pytest.mark.parametrize("path, body, status, code", [
    ("main/pause", {}, 400, "bad_value"), ("main/pause", {"reason": "r", "shards": 2}, 400, "unknown_field"),
    ("nobody/pause", {"reason": "r"}, 404, "unknown_publisher"), ("main/stop", {"reason": "r"}, 405, None),
    ("main/split", {"reason": "r"}, 400, "bad_value"), ("main/split", {"reason": "r", "shards": 0}, 400, "bad_value"),
    ("main/split", {"reason": "r", "shards": 65}, 400, "bad_value"), ("main/split", {"reason": "r", "shards": "2"}, 400, "wrong_type"),
    ("main/split", {"reason": "r", "shards": 2, "cancel": True}, 400, "bad_value"),
    ("main/split", {"reason": "r", "cancel": False}, 400, "bad_value"), ("main/split", {"shards": 2}, 400, "bad_value"),
    ("main/rebase", {"dry_run": "yes"}, 400, "wrong_type"), ("main/resume", {"reason": 7}, 400, "wrong_type")])
def test_an_order_about_a_publisher_that_is_wrong_is_refused(publishers, database, path, body, status, code):
    answer = publishers.request("POST", f"/v1/publishers/{path}", body)
    assert answer.status == status and (code is None or answer.code == code), answer.text
    assert database.execute("select count(*) from outbox.audit") == [(0,)]


def test_orders_about_publishers_need_their_role_and_scope(publishers):
    for token, path, body, status in [
            (READ, "main/pause", {"reason": "r"}, 403), (DECIDE, "main/pause", {"reason": "r"}, 403),
            (RETRY, "main/split", {"reason": "r", "shards": 1}, 403), (RETRY, "main/rebase", {"dry_run": True}, 403),
            (LIMITED, "main/resume", {"reason": "r"}, 403), (LIMITED, "other/resume", {"reason": "r"}, 200),
            (RETRY, "main/resume", {"reason": "r"}, 200), (DECIDE, "main/rebase", {"dry_run": True}, 200)]:
        answer = publishers.as_(token).request("POST", f"/v1/publishers/{path}", body)
        assert answer.status == status, (token, path, answer.text)


# --- checks ---------------------------------------------------------------------------------------

def test_the_findings_of_the_checks_are_shown(publishers, database, kafka):
    answer = publishers.request("GET", "/v1/preflight").json
    assert answer["complete"] and answer["checked_at"].endswith("Z") and answer["took_ms"] >= 0
    found = json.loads(run_command(["doctor", "--json"], publishers.relay.settings)[1])
    places = {finding["place"] for finding in answer["findings"]}
    assert places == {finding["place"] for finding in found} and "postgres main" in places
    # a problem shows with its cure; the findings of the last seconds serve until then
    database.execute("delete from outbox.log where publisher = 'other'")
    database.execute("delete from outbox.publisher where name = 'other'")
    assert publishers.request("GET", "/v1/preflight").json["checked_at"] == answer["checked_at"]

    def missing():
        shown = publishers.request("GET", "/v1/preflight").json
        return shown["failed"] and [finding["cure"] for finding in shown["findings"] if finding["severity"] == "fail"]

    assert any("publisher create other" in cure for cure in wait_for(missing, 60, "the next checks"))


def test_one_call_at_a_time_makes_the_checks(publishers):
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: publishers.request("GET", "/v1/preflight"), range(8)))
    made = {answer.json["checked_at"] for answer in answers if answer.status == 200}
    assert len(made) == 1 and {answer.code for answer in answers if answer.status != 200} <= {"busy"}
    assert publishers.as_(LIMITED).request("GET", "/v1/preflight").code == "out_of_scope"
    assert publishers.as_(RETRY).request("GET", "/v1/preflight").code == "forbidden"
