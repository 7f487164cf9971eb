"""GET /v1/messages: where is a message? In each state, by id, by event id, and by topic and key."""

import contextlib
import datetime
import json
import statistics
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlencode

import pytest

from support.api import CALLERS, OPERATE, READ, SEND, caller, shared_api, start_api
from support.application import Application
from support.auditor import read_topics
from support.kafka import Kafka
from support.large_rows import LIMIT, ONCE, row_of
from support.process import wait_for
from support.proxy import Proxy
from support.relay import run_command
from support.windows import Ticks

PAYLOAD, COPY, STOCK = "token-of-one-who-reads-payloads", "token-for-the-copy", "token-for-the-stock"
TOKENS = CALLERS + caller("reader-of-payloads", PAYLOAD, "read, payload")


@pytest.fixture
def make_api(make_relay, kafka, topic, tmp_path):
    """make_api(sections, **settings): an api with the token of a reader; its relay publishes to a narrow topic."""
    kafka.alter_topic(topic, max_message_bytes=LIMIT)

    def make(sections="", **settings):
        return start_api(make_relay, tmp_path, READ, TOKENS + sections, **{**ONCE, **settings})[1]

    return make


@pytest.fixture
def api(make_api):
    return make_api()


@pytest.fixture
def write(database, topic, chance):
    """write("k"): the id and event id of a message with that key; "k!" is too large for the topic."""
    def one(name, to=topic, deliver_at=None, event_id=None):
        key, data = row_of(name, chance)
        (row,) = database.execute(
            "INSERT INTO outbox.message (topic, key, payload_bytes, headers, deliver_at, event_id) VALUES (%s, %s, %s,"
            " '{\"of\": \"a test\"}', %s, coalesce(%s, outbox.new_event_id())) RETURNING id, event_id::text",
            (to, key, data, deliver_at, event_id))
        return row

    return one


def get(api, **arguments):
    return api.request("GET", "/v1/messages" + ("?" + urlencode(arguments) if arguments else ""))


def find(api, **arguments):
    """The only message of the answer."""
    answer = get(api, **arguments)
    assert answer.status == 200, answer.text
    (row,) = answer.json["rows"]
    return row


def place(api, publisher="main", **arguments):
    (found,) = [place for place in find(api, **arguments)["publishers"] if place["publisher"] == publisher]
    return found


def wait_state(api, id, state, publisher="main"):
    """The place, once the message has this state."""
    found = []

    def reached():
        found[:] = [place(api, publisher, id=id, offset="no")]
        return found[0]["state"] == state

    wait_for(reached, what=lambda: found)
    return found[0]


def records_of(kafka, topic, event_id):
    """(partition, offset) of each record with this outbox-id."""
    return [(record.partition, record.offset) for record in read_topics(kafka.bootstrap, [topic])
            if dict(record.headers).get("outbox-id") == event_id.encode()]


def says(found, *names):
    """Which of the other parts are there."""
    return {name for name in ("parked", "scheduled", "skipped", "record") if found[name]} == set(names)


# --- each state -----------------------------------------------------------------------------------

def test_a_published_message_has_every_stage(api, write, topic, kafka):
    for _ in range(3):
        write("before")
    id, event_id = write("k")
    wait_state(api, id, "published")
    row = find(api, event_id=event_id)
    assert (row["id"], row["event_id"], row["topic"], row["key"]) == (str(id), event_id, topic, "k")
    assert row["kept"] and not row["deliver_at"] and row["partition"] is None and "payload" not in row
    (found,) = row["publishers"]
    assert (found["publisher"], found["shard"], found["state"]) == ("main", 0, "published") and says(found, "record")

    window, record = found["window"], found["record"]
    assert row["created_at"] <= window["opened_at"] <= window["settled_at"] == found["acknowledged_at"]
    assert int(window["opened_row"]) < int(window["settled_row"]) and window["log_from"] < row["created_at"]
    (partition, offset), = records_of(kafka, topic, event_id)
    assert (record["state"], record["topic"], record["partition"], record["offset"]) == (
        "found", topic, partition, str(offset))
    assert record["tick"] == window["tick"] and record["timestamp"] >= row["created_at"]
    assert int(record["from_offset"]) <= offset
    assert place(api, id=id) == found
    assert find(api, id=id, offset="no")["publishers"][0]["record"]["state"] == "unsearched"


def test_a_message_that_no_window_has_and_one_in_a_window(api, write, database):
    ticks = Ticks(database.dsn)
    id, event_id = write("k")
    found = place(api, "ticks", event_id=event_id)
    assert (found["state"], found["window"]["tick"]) == ("waiting", None) and says(found)

    assert [row.id for row in ticks.poll()] == [id]
    found = place(api, "ticks", event_id=event_id)
    assert found["state"] == "in_window" and found["window"]["tick"] == str(ticks.first_tick + 1)
    assert found["window"]["opened_row"] == str(ticks.n) and found["window"]["settled_row"] is None
    # this process does not know the cluster of that publisher
    assert found["record"]["state"] == "not_configured"

    ticks.tick(must_write=True, may_open=False)
    found = place(api, "ticks", event_id=event_id)
    assert (found["state"], found["window"]["settled_row"]) == ("published", str(ticks.n))
    ticks.connection.close()


def test_a_parked_message_one_behind_it_and_both_skipped(api, write, database, topic):
    (first, event_id), (second, _) = write("k!"), write("k")
    found = wait_state(api, first, "parked")
    assert says(found, "parked") and found["window"]["settled_row"] and not found["acknowledged_at"]
    parked = found["parked"]
    assert (parked["id"], parked["state"], parked["attempts"], parked["behind"]) == (str(first), "dead", 1, None)
    assert "too large" in parked["error"].lower() and parked["next_at"] is None

    found = wait_state(api, second, "parked")
    assert found["parked"]["state"] == "behind" and found["parked"]["behind"]["id"] == str(first)
    assert "too large" in found["parked"]["behind"]["error"].lower() and found["parked"]["error"] is None

    answer = api.as_(OPERATE).request("POST", "/v1/parked/skip", {"ids": [first], "reason": "ticket 7"})
    assert answer.status == 202, answer.text
    skipped = wait_state(api, first, "skipped")["skipped"]
    assert (skipped["audit"], skipped["by"], skipped["reason"]) == (answer.json["audit"], "alice", "ticket 7")
    # the one behind it was published afterwards, in a listed window
    found = wait_state(api, second, "published")
    found = place(api, id=second)
    assert found["record"]["state"] == "found" and found["record"]["tick"] != found["window"]["tick"]
    assert found["acknowledged_at"] > found["window"]["settled_at"]


def test_a_scheduled_message_before_and_after_its_time(api, write, topic, kafka):
    later = (datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)).replace(microsecond=0)
    id, _ = write("k", deliver_at=later)
    found = wait_state(api, id, "scheduled")
    assert says(found, "scheduled") and found["scheduled"]["due_at"] == later.strftime("%Y-%m-%dT%H:%M:%S.000Z")
    assert found["scheduled"]["window"] is None

    id, event_id = write("k", deliver_at=later - datetime.timedelta(hours=2))
    (partition, offset), = wait_for(lambda: records_of(kafka, topic, event_id))
    wait_state(api, id, "published")
    record = place(api, id=id)["record"]
    assert (record["state"], record["partition"], record["offset"]) == ("found", partition, str(offset))


def test_a_message_before_the_start_of_a_publisher(api, write, database):
    id, event_id = write("k")
    wait_state(api, id, "published")
    assert run_command(["publisher", "create", "late", "--start", "now"], {"DATABASE_URL": database.dsn})[0] == 0
    found = place(api, "late", event_id=event_id)
    assert found["state"] == "before_start" and says(found) and found["begins_at"] > find(api, id=id)["created_at"]
    assert place(api, id=id)["state"] == "published"


def test_a_replayed_message(api, write, database, topic, kafka):
    (id, event_id), (other, _) = write("k"), write("k")
    wait_state(api, other, "published")
    status, _, error = run_command(["replay", f"ids={id}", "--yes", "--reason", "again"],
                                   {"DATABASE_URL": database.dsn,
                                    "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap})
    assert status == 0, error
    found = place(api, event_id=event_id)
    (replay,) = found["replays"]
    assert (replay["id"], replay["state"], replay["topic"]) == ("1", "sent", topic)
    # the offset is that of the first record, not of the replay's
    (partition, first), (_, second) = records_of(kafka, topic, event_id)
    assert (found["record"]["partition"], found["record"]["offset"]) == (partition, str(first)) and first < second
    assert place(api, id=other)["replays"] == []


@pytest.mark.parametrize("term, has", [
    ("ids=..{id}", True), ("ids={id}..", True), ("ids={next}..", False), ("topic={topic}", True), ("key=k", True),
    ("key=other", False), ("event-id={event}", True), ("state=published", True),
    ("created={before}..", True), ("created={after}..", False), ("created=..{after}", True)])
def test_a_replay_is_known_by_its_filter(api, write, database, topic, term, has):
    """As `outbox-relay replay` stores it."""
    before = datetime.datetime.now(datetime.timezone.utc)
    id, event_id = write("k")
    wait_state(api, id, "published")
    after = datetime.datetime.now(datetime.timezone.utc)
    name, _, value = term.format(id=id, next=id + 1, topic=topic, event=event_id, before=f"{before:%Y-%m-%dT%H:%M:%S.%f}",
                                 after=f"{after:%Y-%m-%dT%H:%M:%S.%f}").partition("=")
    if name == "key":
        value = "\\x" + value.encode().hex()
    database.execute(
        "INSERT INTO outbox.replay (publisher, filter, snapshot, shards, acked, windows, acked_ids, upto_id, last_id, total,"
        " nonce, owner, lease_until, system_identifier) SELECT 'main', jsonb_build_object(%s::text, %s::text),"
        " pg_current_snapshot(), 1, array[p.ticks[1]], array[p.ticks[1]], array[0], %s, %s, 1, 1, 'x', now(),"
        " outbox.system_identifier() FROM outbox.progress p", (name, value, id + 5, id - 1))
    found = place(api, id=id, offset="no")["replays"]
    assert [replay["state"] for replay in found] == (["waiting"] if has else [])


def test_a_message_that_a_sidecar_gave_up(api, write, topic, kafka, dead_topic, make_relay, tmp_path):
    api.relay.stop()
    with Application(lambda _: 422) as application:
        text = (f'[deliver "billing"]\ntopics = {topic}\ngroup = {topic}\nurl = {application.url}\n'
                f"networks = 127.0.0.0/8\npath = {tmp_path}/state\ndead_letter_topic = {dead_topic}\n")
        folder = tmp_path / "both"
        folder.mkdir()
        relay, api = start_api(make_relay, folder, READ, TOKENS + '[publisher "main"]\n' + text + caller("stock", STOCK, "read", sections="none")
                               + f'[deliver "none"]\ntopics = {topic}x\ngroup = x\nurl = {application.url}\n'
                               f"networks = 127.0.0.0/8\npath = {tmp_path}/state2\n")
        id, event_id = write("k")
        (wanted,) = wait_for(lambda: list(read_topics(kafka.bootstrap, [dead_topic])))
        (letter,) = find(api, event_id=event_id)["dead_letters"]
        assert (letter["section"], letter["state"], letter["topic"], letter["partition"], letter["offset"]) == (
            "billing", "found", dead_topic, wanted.partition, str(wanted.offset))
        assert "422" in letter["reason"]
        assert find(api, event_id=event_id, offset="no")["dead_letters"] == []
        # a token of another section sees none
        assert find(api.as_(STOCK), id=id)["dead_letters"] == []


def test_a_parked_copy_outlives_its_message(api, write, database):
    id, event_id = write("k!")
    wait_state(api, id, "parked")
    database.execute("DELETE FROM outbox.message WHERE id = %s", (id,))  # as a partition that is dropped
    for by in ({"id": id}, {"event_id": event_id}):
        row = find(api, **by)
        assert not row["kept"] and row["event_id"] == event_id and row["publishers"][0]["state"] == "parked"


def test_payload_and_headers_are_for_their_role(api, write):
    id, _ = write("k")
    assert not {"payload", "headers"} & set(find(api, id=id))
    row = find(api.as_(PAYLOAD), id=id)
    assert row["headers"] == {"of": "a test"} and '"small"' in row["payload"]
    assert '"small"' not in api.relay.process.tail(500)


# --- records --------------------------------------------------------------------------------------

def test_a_record_that_retention_removed(api, write, topic, kafka):
    id, event_id = write("k")
    wait_state(api, id, "published")
    (partition, offset), = records_of(kafka, topic, event_id)
    kafka.delete_records({(topic, partition): offset + 1})
    record = place(api, id=id)["record"]
    assert record["state"] == "gone" and "no longer in the topic" in record["detail"]
    assert record["offset"] is None


def test_a_message_that_the_log_no_longer_knows(api, write, database, topic, kafka):
    """Its rows were dropped with their partition: the record is found by the time of the message."""
    (id, event_id), later = write("k"), write("k")
    wait_state(api, later[0], "published")
    database.execute("DELETE FROM outbox.log l WHERE n < (SELECT n FROM outbox.progress)")
    found = place(api, id=id)
    assert found["state"] == "published" and found["window"]["opened_at"] is None and found["window"]["settled_at"] is None
    assert found["acknowledged_at"] is None and found["window"]["log_from"]
    (partition, offset), = records_of(kafka, topic, event_id)
    record = found["record"]
    assert (record["state"], record["partition"], record["offset"], record["from_offset"], record["to_offset"]) == (
        "found", partition, str(offset), None, None)


def test_a_topic_that_is_gone(api, write, topic, kafka):
    name = f"{topic}.other"
    kafka.create_topic(name, 1)
    id, _ = write("k", to=name)
    wait_state(api, id, "published")
    kafka.delete_topic(name)
    record = place(api, id=id)["record"]
    assert record["state"] == "no_topic" and name in record["detail"]


def test_a_message_without_a_key_is_found_in_any_partition(api, write, topic, kafka):
    id, event_id = write("")
    wait_state(api, id, "published")
    (partition, offset), = records_of(kafka, topic, event_id)
    record = place(api, id=id)["record"]
    assert (record["state"], record["partition"], record["offset"]) == ("found", partition, str(offset))


def test_a_record_without_headers_cannot_be_known(make_api, write, topic):
    api = make_api(f'[topic "{topic}"]\nheaders = none\n', publisher_resume="none")
    id, _ = write("k")
    wait_state(api, id, "published")
    assert place(api, id=id)["record"]["state"] == "unmarked"


def test_the_state_comes_without_kafka_and_calls_beyond_the_readers_do_without_the_offset(make_api, write, database, kafka):
    with Proxy(int(kafka.bootstrap.rpartition(":")[2])) as network:
        api = make_api()
        id, event_id = write("k")
        wait_state(api, id, "published")
        api.relay.stop()
        away = make_api(bootstrap=f"127.0.0.1:{network.port}")
        network.refuse()

        begun = time.monotonic()
        found = place(away, event_id=event_id)
        assert time.monotonic() - begun < 3
        assert (found["state"], found["record"]["state"]) == ("published", "kafka_away"), found
        assert len(found["record"]["detail"]) > 20

        with ThreadPoolExecutor(16) as pool:
            calls = [pool.submit(get, away, id=id) for _ in range(16)]
            quick = [time_of(lambda: get(away, id=id, offset="no")) for _ in range(5)]
            states = [call.result().json["rows"][0]["publishers"][0]["record"]["state"] for call in calls]
        # two are read, two wait, and readers of the database are free all the time
        assert set(states) == {"kafka_away", "busy"} and 2 <= states.count("kafka_away") <= 6, states
        assert max(quick) < 1, quick


def test_a_record_that_is_not_found_in_time(make_api, write, topic, chance):
    with Kafka(proxied=True) as cluster:
        cluster.create_topic(topic, 1, max_message_bytes=1_000_000)
        api = make_api(bootstrap=cluster.bootstrap_proxied)
        write("k")
        id, _ = write("k!")
        wait_state(api, id, "published")
        network = cluster.nodes[1].proxy
        network.throttle(20_000)
        begun = time.monotonic()
        record = place(api, id=id)["record"]
        assert time.monotonic() - begun < 3
        assert record["state"] == "timeout" and "partition 0 from offset" in record["detail"], record
        assert record["offset"] is None and int(record["from_offset"]) <= 1 <= int(record["to_offset"])

        network.stall()
        begun = time.monotonic()
        assert place(api, id=id)["record"]["state"] == "kafka_away"
        assert time.monotonic() - begun < 3
        network.heal()
        wait_for(lambda: place(api, id=id)["record"]["state"] == "found")
        assert place(api, id=id)["record"]["offset"] == "1"


def time_of(call):
    begun = time.monotonic()
    call()
    return time.monotonic() - begun


# --- by topic and key ------------------------------------------------------------------------------

def moment(shift=0):
    return (datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=shift)).isoformat(timespec="seconds")


def test_by_topic_and_key_within_a_range(api, write, topic):
    first, other = write("k"), write("l")
    more = [write("k")[0] for _ in range(4)]
    wait_state(api, more[-1], "published")
    answer = get(api, topic=topic, key="k", **{"from": moment(-60), "to": moment(60)}).json
    assert [int(row["id"]) for row in answer["rows"]] == [first[0], *more] and answer["next"] is None
    assert answer["searched"]["by"] == "topic_and_key" and answer["searched"]["complete"]
    assert {row["publishers"][0]["state"] for row in answer["rows"]} == {"published"}
    assert answer["rows"][0]["publishers"][0]["record"]["state"] == "unsearched"

    pages, after = [], 0
    while after is not None:
        answer = get(api, topic=topic, key=r"\x6b", limit=2, after=after, **{"from": moment(-60), "to": moment(60)}).json
        pages.append([int(row["id"]) for row in answer["rows"]])
        after = answer["next"]
    assert sum(pages, []) == [first[0], *more] and len(pages[0]) == 2
    for arguments in ({"topic": "none", "key": "k"}, {"topic": topic, "key": "none"}):
        assert get(api, **arguments, **{"from": moment(-60), "to": moment(60)}).json["rows"] == []
    assert get(api, topic=topic, key="k", **{"from": moment(-120), "to": moment(-60)}).json["rows"] == []
    assert other


def test_an_event_id_of_another_kind_within_a_range(api, write):
    given = str(uuid.uuid4())
    id, _ = write("k", event_id=given)
    assert find(api, event_id=given, **{"from": moment(-60), "to": moment(60)})["id"] == str(id)
    answer = get(api, event_id=given, **{"from": moment(-120), "to": moment(-60)})
    assert (answer.status, answer.code) == (404, "not_found") and "give that with from and to" in answer.json["detail"]


def test_several_messages_with_one_id(api, write, database, topic):
    """Ids that went back, as after a restore. The relay raises a sequence that goes back, maybe before the next row."""
    id, event_id = write("k")
    database.execute("INSERT INTO outbox.message (id, topic, key, payload_bytes) OVERRIDING SYSTEM VALUE"
                     " VALUES (%s, %s, 'l', '{}')", (id, topic))
    assert [row["key"] for row in get(api, id=id, offset="no").json["rows"]] == ["k", "l"]
    assert find(api, event_id=event_id, offset="no")["key"] == "k"


# --- bad input ------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def shared(postgres, kafka, tmp_path_factory):
    """For tests that change nothing."""
    with shared_api(postgres, kafka, tmp_path_factory.mktemp("api"), "messages_api", READ,
                    caller("copy", COPY, "read", publishers="main")) as (_, api):
        yield api


RANGE = "from=2026-01-02T03:00:00Z&to=2026-01-02T04:00:00Z"
V4, V7 = "8c1a3f7e-0b1d-4c55-9f43-6a2d1e0c7b90", "0190a3f7-0b1d-7c55-9f43-6a2d1e0c7b90"


@pytest.mark.parametrize("query, text", [
    ("", "no message is named: give id, or event_id, or topic and key"), (RANGE, "no message is named"),
    (f"id=1&event_id={V7}", "in one way"), (f"id=1&topic=a&key=b&{RANGE}", "in one way"), ("id=1&key=b", "in one way"),
    ("id=0", "id=0 is no whole number from 1"), ("id=x", "id=x"), ("id=9223372036854775808", "id=9223372036854775808 is no"),
    ("id=", "id has no value"), ("id=1&id=2", "id is given twice"), (f"id=1&{RANGE}", "leave from and to out"),
    ("id=1&limit=3", "limit and after are for topic and key"), ("id=1&after=3", "limit and after"),
    ("event_id=abc", "event_id=abc is no UUID: write it as"), (f"event_id={V7}0", "is no UUID"), (f"event_id={V7[:-1]}g", "is no UUID"),
    (f"event_id={V4}", "give the range of time"), (f"event_id={V7}&from=2026-01-02", "to is missing"),
    (f"topic=a&{RANGE}", "key is missing"), (f"key=a&{RANGE}", "topic is missing"),
    ("topic=a&key=b", "from is missing: give the range"), ("topic=a&key=b&from=2026-01-02", "to is missing"),
    ("topic=a&key=b&to=2026-01-02", "from is missing"),
    ("topic=a&key=b&from=2026-01-03&to=2026-01-02", "from=2026-01-03 is not before to=2026-01-02"),
    ("topic=a&key=b&from=2026-01-02&to=2026-01-02", "is not before"), ("topic=a&key=b&from=x&to=2026-01-02", "from: 'x' is no moment"),
    ("topic=a&key=b&from=2026-01-02&to=2026-02-30", "to: "), (f"topic=a%20b&key=b&{RANGE}", "no topic's name"),
    (f"topic=a&key=%5Cxf&{RANGE}", "not hexadecimal"), (f"topic=a&key=&{RANGE}", "key has no value"), (f"topic=a&key=%ff&{RANGE}", "not UTF-8"),
    (f"topic=a&key=b&limit=101&{RANGE}", "limit=101 is no whole number from 1 to 100"), (f"topic=a&key=b&after=-1&{RANGE}", "after=-1"),
    ("id=1&offset=maybe", "neither yes nor no"), ("ids=1", "ids is no argument of this path: it takes id, event_id")])
def test_a_wrong_argument_is_named_with_its_cure(shared, query, text):
    answer = shared.request("GET", f"/v1/messages?{query}")
    code = (409, "conflicting_arguments") if answer.status == 409 else (400, "bad_value")
    assert (answer.status, answer.code) == code and text in answer.json["detail"], answer.text


@pytest.mark.parametrize("query, text", [
    ("id=1", "no message has the id 1: its transaction is open or was rolled back"), ("id=9223372036854775807", "no message has the id"),
    (f"event_id={V7}", "no message written from 2024-"), (f"event_id={V7.upper()}", "no message written"),
    ("event_id=ffffffff-ffff-7c55-9f43-6a2d1e0c7b90", "no message written from 9999-"), (f"event_id={V4}&{RANGE}", "has event_id=")])
def test_an_unknown_message_is_not_found(shared, query, text):
    answer = shared.request("GET", f"/v1/messages?{query}")
    assert (answer.status, answer.code) == (404, "not_found") and text in answer.json["detail"], answer.text


def test_an_unknown_section_is_not_found(shared):
    assert get(shared, id=1, postgres="other").code == "unknown_section"


def test_only_readers_may_look(shared):
    for token, status in [(READ, 404), (OPERATE, 404), (COPY, 404), (SEND, 403), (None, 401)]:
        assert get(shared.as_(token), id=1).status == status
    assert shared.request("POST", "/v1/messages?id=1", {}).status == 405


def test_a_token_sees_the_publishers_that_it_is_for(make_api, write, database):
    assert run_command(["publisher", "create", "copy", "--start", "beginning"], {"DATABASE_URL": database.dsn})[0] == 0
    api = make_api('[publisher "main"]\n[publisher "copy"]\n' + caller("copy", COPY, "read", publishers="copy")
                   + caller("gone", STOCK, "read", publishers="main"))
    id, event_id = write("k")
    assert [place["publisher"] for place in find(api, id=id)["publishers"]] == ["copy", "main"]
    assert [place["publisher"] for place in find(api.as_(COPY), event_id=event_id)["publishers"]] == ["copy"]
    wait_state(api, id, "published")
    api.relay.stop()
    database.execute("SELECT outbox.publisher_drop('main')")


# --- at any size ----------------------------------------------------------------------------------

DAYS = 10
FILL = """
INSERT INTO outbox.message (created_at, event_id, topic, key, payload)
SELECT t.at, (lpad(to_hex((extract(epoch FROM t.at) * 1000)::bigint), 12, '0') || '7' || substr(t.random, 1, 3) || '8'
    || substr(t.random, 4, 15))::uuid, 'many', (i %% 10000)::text, repeat('.', 100)
FROM generate_series(1, %(rows)s) i CROSS JOIN LATERAL (
    SELECT %(begins)s::timestamptz + i * interval '24 hours' / %(day)s AS at, md5(i::text || %(begins)s) AS random) t"""


@pytest.fixture
def many(database, full):
    """(database, its number of messages): of ten days, published by a publisher `old`, and before the start of main."""
    rows = 50_000_000 if full else 1_000_000
    today = database.execute("SELECT date_trunc('day', now(), 'UTC')")[0][0]
    for number in range(DAYS, 0, -1):
        day = today - datetime.timedelta(days=number)
        assert database.execute("SELECT outbox.partition_make('message', %s, %s)",
                                (day, day + datetime.timedelta(days=1))) == [("made",)]
        # nothing crashes here, so that it need not be logged, and the rows break no rule
        (leaf,), = database.execute("SELECT outbox.partition_name('message', %s)", (day,))
        database.execute(f"ALTER TABLE outbox.{leaf} SET UNLOGGED, DISABLE TRIGGER message_check")
        for begun in range(0, rows // DAYS, 1_000_000):
            database.execute(FILL, {"begins": day + datetime.timedelta(days=1) * begun / (rows // DAYS), "day": rows // DAYS + 1,
                                    "rows": min(rows // DAYS - begun, 1_000_000)})
    database.execute("VACUUM ANALYZE outbox.message")
    old = Ticks(database.dsn, "old")
    old.tick(max_rows=0)
    for _ in range(2000):  # the log has more than a few rows
        old.tick(must_write=True, may_open=False)
    database.execute("SELECT outbox.publisher_drop('main')")
    assert run_command(["publisher", "create", "main", "--start", "now"], {"DATABASE_URL": database.dsn})[0] == 0
    yield database, rows
    old.connection.close()


def usual(call):
    """Milliseconds, the median of five calls: other work of the machine may delay any of them."""
    return statistics.median(time_of(call) for _ in range(5)) * 1000


def test_a_message_is_found_at_any_size_of_the_table(many, make_api, write, topic, chance, record_property):
    database, rows = many
    api = make_api(postgres_retain="3650d")
    later = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(hours=1)
    states = {"published": write("k"), "parked": write("p!"), "behind": write("p"), "scheduled": write("k", deliver_at=later)}
    ticks = Ticks(database.dsn)  # from the beginning; it has published everything but the two
    ticks.tick(max_rows=0)
    ticks.tick(must_write=True, may_open=False)
    states["in_window"] = write("k")
    ticks.tick(max_rows=0)
    states["waiting"] = write("k")
    for name in ("published", "parked", "scheduled"):
        wait_state(api, states[name][0], name)
    wait_state(api, states["behind"][0], "parked")
    for number in range(5):
        (event_id, id), = database.execute("SELECT event_id::text, id FROM outbox.message WHERE id >= %s ORDER BY id LIMIT 1",
                                           (chance.randrange(1, rows),))
        states[f"old {number}"] = id, event_id

    took = {}
    for name, (id, event_id) in states.items():
        for by in ({"id": id}, {"event_id": event_id}):
            took[name, *by] = usual(lambda by=by: get(api, offset="no", **by))
            assert find(api, offset="no", **by)["id"] == str(id), name
    assert {name: place(api, "ticks", id=states[name][0], offset="no")["state"] for name in ("in_window", "waiting")} == {
        "in_window": "in_window", "waiting": "waiting"}
    record_property("milliseconds", {key: round(value, 1) for key, value in took.items()})
    assert max(took.values()) < 100, took
    ticks.connection.close()

    # by topic and key: a small range whole, and the whole table as far as two seconds go
    wanted, at = database.execute("SELECT key, created_at FROM outbox.message WHERE id = %s", (states["old 0"][0],))[0]
    hour = datetime.timedelta(minutes=30)
    arguments = {"topic": "many", "key": wanted, "limit": 100, "from": (at - hour).isoformat(), "to": (at + hour).isoformat()}
    begun = time.monotonic()
    answer = get(api, **arguments).json
    record_property("an hour by key, ms", round((time.monotonic() - begun) * 1000))
    assert str(states["old 0"][0]) in [row["id"] for row in answer["rows"]] and answer["searched"]["complete"]
    assert len(answer["rows"]) == database.execute(
        "SELECT count(*) FROM outbox.message WHERE topic = 'many' AND key = %s AND created_at >= %s AND created_at < %s",
        (wanted, at - hour, at + hour))[0][0]

    begun = time.monotonic()
    answer = get(api, topic="many", key="no such key", **{"from": "2000-01-01", "to": moment(60)}).json
    spent = time.monotonic() - begun
    record_property("all by key, ms", round(spent * 1000))
    assert spent < 2.5 and answer["rows"] == [] and (answer["next"] is None) == answer["searched"]["complete"]

    begun = time.monotonic()
    answer = get(api, event_id=str(uuid.UUID(int=chance.getrandbits(128), version=4)), **{"from": "2000-01-01", "to": moment(60)})
    assert time.monotonic() - begun < 2.5 and answer.status == 404


# --- the command line -----------------------------------------------------------------------------

def test_the_command_finds_the_same(api, write, database, kafka, topic, login):
    id, event_id = write("k")
    wait_state(api, id, "published")
    brokers = {"OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap}
    settings = {"DATABASE_URL": database.dsn, **brokers}
    status, output, error = run_command(["message", "find", "--id", str(id)], settings)
    (partition, offset), = records_of(kafka, topic, event_id)
    assert status == 0, error
    assert f"message {id}\n" in output and "publisher main, shard 0: published\n" in output
    assert f"{topic}, partition {partition}, offset {offset}, timestamp " in output
    for user in (settings, {**login("outbox_reader"), **brokers}):
        status, output, error = run_command(["message", "find", "--event-id", event_id, "--json"], user)
        assert status == 0, error
        assert json.loads(output)["rows"] == [find(api, id=id)]
    server = {"OUTBOX_RELAY_SERVER": f"http://127.0.0.1:{api.port}", "OUTBOX_RELAY_TOKEN": READ}
    status, output, error = run_command(["message", "find", "--event-id", event_id, "--json"], server)
    assert status == 0 and json.loads(output)["rows"] == [find(api, id=id)], error
    status, output, error = run_command(["message", "find", "--id", str(id + 1)], server)
    assert status == 65 and f"no message has the id {id + 1}" in error and output == ""
    status, output, _ = run_command(["message", "find", "--topic", topic, "--key", "k", "--from", moment(-60), "--to", moment(60)],
                                    settings)
    assert status == 0 and f"message {id}\n" in output and output.endswith("the whole range was searched\n")


def test_the_command_shows_what_keeps_a_message(api, write, database):
    (first, _), (second, _) = write("k!"), write("k")
    wait_state(api, second, "parked")
    _, output, _ = run_command(["message", "find", "--id", str(second)], {"DATABASE_URL": database.dsn})
    assert "publisher main, shard 0: parked\n" in output and f"id {first} (dead): " in output


@pytest.mark.parametrize("arguments, text", [
    ([], "no message is named"), (["--id", "x"], "id=x is no whole number"), (["--id", "1", "--topic", "a"], "in one way"),
    (["--event-id", V4], "give the range of time"), (["--id", "1"], "no message has the id 1")])
def test_a_wrong_command_line_is_named_with_its_cure(database, arguments, text):
    status, output, error = run_command(["message", "find", *arguments], {"DATABASE_URL": database.dsn})
    assert status == 65 and text in error and output == "", error
