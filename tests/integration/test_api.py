"""The look-back's HTTP interface: what is sent stands in the topic when it is answered, and who may
not, or says what cannot be taken, is told so with a code."""

import base64
import contextlib
import json
import socket
import threading
import time
import urllib.parse

import pytest
from confluent_kafka import Producer

from support import openapi
from support.api import CALLERS, CONFIG, OPERATE, READ, SEND, code_of, decision, prepare, shared_api, start_api
from support.auditor import read_topics
from support.kafka import Kafka
from support.process import wait_for

@pytest.fixture
def make_api(make_relay, topic, tmp_path):
    """make_api(**settings): (relay, api as a sender); its look-back topic is this test's."""
    def make(look_back=topic, **settings):
        return start_api(make_relay, tmp_path, SEND, CONFIG.format(topic=look_back) + CALLERS, **settings)

    return make


@pytest.fixture
def api(make_api):
    relay, api = make_api()
    api.relay = relay
    yield api
    for token in (SEND, READ, OPERATE):
        assert token not in relay.output()


@pytest.fixture
def records(kafka, topic):
    """The records of the look-back topic by partition and offset."""
    return lambda: {(r.partition, r.offset): r for r in read_topics(kafka.bootstrap, [topic])}


# --- what is sent ---------------------------------------------------------------------------------

def test_what_is_answered_stands_in_the_topic_at_the_place_that_was_told(api, topic, records):
    told = [(verb, api.post(verb, message)) for verb, message in [
        ("prepare", prepare("1", key="k", headers={"trace": "x"})),
        ("commit", decision("1")),
        ("rollback", decision("2", "stock", op="rollback"))]]

    found = records()
    assert len(found) == 3
    for verb, answer in told:
        assert answer.status == 202 and answer.json["topic"] == topic
        record = found[answer.json["partition"], answer.json["offset"]]
        assert json.loads(record.payload)["op"] == verb
    assert found[tuple(told[0][1].json[name] for name in ("partition", "offset"))].key == b"orders:1"
    assert told[0][1].json["partition"] == told[1][1].json["partition"]


def test_the_partition_is_the_one_that_every_client_chooses(api, kafka, topic):
    placed = {}
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "partitioner": "murmur2_random"})
    for id in ("1", "22", "an id of words", "ü"):
        producer.produce(topic, b"", f"orders:{id}".encode(), on_delivery=lambda error, record:
                         placed.update({record.key(): record.partition()}))
    producer.flush(30)
    assert len(placed) == 4
    for key, partition in placed.items():
        answer = api.post("commit", decision(key.decode().split(":", 1)[1]))
        assert answer.json["partition"] == partition


def test_a_message_becomes_a_record_as_it_was_written(api, records):
    body = (b' {"version":1,"biz_type":"orders","biz_id":"1","topic":"orders.new",\n'
            b'"payload":{"n":1.10,"big":123456789012345678901234567890,"s":"\\u00fc"}} ')
    assert api.post("prepare", body).status == 202
    (record,) = records().values()
    assert record.payload == b'{"op":"prepare",' + body[2:]


def test_a_batch_has_a_result_for_each_message_and_keeps_their_order(api, records):
    answer = api.post("prepare", {"messages": [
        prepare("1", payload=1), prepare("1", topic="others"), prepare("2"), 7,
        prepare("1", payload=2), prepare("3", "payroll"), prepare("1", payload=3)]})

    assert answer.status == 207
    results = answer.json["results"]
    assert [(result["status"], code_of(result)) for result in results] == [
        (202, None), (403, "topic_not_allowed"), (202, None), (400, "bad_json"), (409, "id_taken"),
        (404, "unknown_type"), (409, "id_taken")]
    found = records()
    assert [json.loads(found[result["partition"], result["offset"]].payload)["payload"]
            for result in (results[0], results[2])] == [1, {"id": "2"}]
    answer = api.post("rollback", {"messages": [decision("9", key=str(number)) for number in range(3)]})
    of_one = [records()[result["partition"], result["offset"]] for result in answer.json["results"]]
    assert [json.loads(record.payload)["key"] for record in of_one] == ["0", "1", "2"]
    assert of_one[0].offset < of_one[1].offset < of_one[2].offset


def test_a_batch_of_which_all_is_taken_or_all_refused_alike_has_one_status(api, records):
    many = [decision(str(i)) for i in range(2000)]
    answer = api.post("commit", {"messages": many})
    assert answer.status == 202 and len(answer.json["results"]) == 2000
    assert len(records()) == 2000
    assert api.post("commit", {"messages": [decision("1", version=2), {}]}).status == 400


STATUSES = {"unknown_type": 404, "unknown_service": 404, "no_route": 404, "topic_not_allowed": 403,
            "service_not_allowed": 403, "url_not_allowed": 403, "expired": 409}


@pytest.mark.parametrize("verb,message,code", [
    ("prepare", b"", "bad_json"),
    ("prepare", b"{", "bad_json"),
    ("prepare", b"[]", "bad_json"),
    ("prepare", b'{"a":"\xff"}', "bad_json"),
    ("prepare", b"[" * 100000, "too_complex"),
    ("prepare", b'{"op":"prepare","op":"commit"}', "bad_json"),
    ("prepare", b'{"\\u006fp":"prepare"}', "missing_field"),
    ("prepare", {}, "missing_field"),
    ("prepare", prepare("1", version=2), "bad_version"),
    ("prepare", prepare("1", shoes=2), "unknown_field"),
    ("prepare", prepare("1", topic=7), "wrong_type"),
    ("prepare", prepare("i" * 501), "bad_value"),
    ("prepare", prepare("1", op="commit"), "op_mismatch"),
    ("commit", prepare("1", op="prepare"), "op_mismatch"),
    ("prepare", prepare("1", "payroll"), "unknown_type"),
    ("rollback", decision("1", "payroll"), "unknown_type"),
    ("prepare", prepare("1", topic="others"), "topic_not_allowed"),
    ("prepare", prepare("1", "stock"), "no_route"),
    ("prepare", prepare("1", check_service="nobody"), "unknown_service"),
    ("prepare", prepare("1", check_service="bank"), "service_not_allowed"),
    ("prepare", prepare("1", check_url="http://169.254.169.254/"), "url_not_allowed"),
    ("prepare", prepare("1", expires_after=0), "expired"),
    ("commit", {"messages": []}, "bad_batch"),
    ("commit", {"messages": {}}, "bad_batch"),
    ("commit", {"messages": [decision("1")], "version": 1}, "bad_batch"),
    ("commit", {"messages": [{}] * 10001}, "bad_batch"),
])
def test_what_cannot_be_taken_is_refused_with_a_code(refusing_api, verb, message, code):
    answer = refusing_api.post(verb, message)
    assert (answer.status, answer.code) == (STATUSES.get(code, 400), code)


def test_a_refusal_is_a_problem_document(refusing_api):
    answer = refusing_api.post("commit", decision("1", "payroll"), headers={"X-Request-Id": "mine-7"})
    assert answer.status == 404 and answer.headers["Content-Type"] == "application/problem+json"
    assert answer.json == {
        "type": "urn:outbox-relay:problem:unknown_type", "title": "No [lookback] section has the business type",
        "status": 404, "detail": "no [lookback] section has the business type payroll",
        "instance": "urn:outbox-relay:request:mine-7"}


def test_a_batch_without_an_accepted_message_is_a_problem_with_results(refusing_api):
    answer = refusing_api.post("commit", {"messages": [decision("1", version=2), 7]})
    assert (answer.status, answer.code) == (400, "batch_refused")
    assert [set(result) for result in answer.json["results"]] == [{"type", "title", "status", "detail"}] * 2
    assert [(result["status"], code_of(result)) for result in answer.json["results"]] == [
        (400, "bad_version"), (400, "bad_json")]
    assert all(len(result["detail"]) > 10 for result in answer.json["results"])


@pytest.mark.parametrize("verb,messages,status", [
    ("commit", [decision("1", "x"), decision("2", "y")], 404),
    ("prepare", [prepare("1", "x"), prepare("2", topic="others")], 404),
    ("prepare", [prepare("1", topic="others"), prepare("2", "x")], 403),
    ("commit", [decision("1", "x"), decision("2", version=2)], 400)])
def test_a_batch_that_is_refused_for_good_is_a_mistake_of_the_client(refusing_api, verb, messages, status):
    answer = refusing_api.post(verb, {"messages": messages})
    assert (answer.status, answer.code) == (status, "batch_refused"), answer.text


@pytest.fixture(scope="module")
def refusing_api(postgres, kafka, tmp_path_factory):
    """One for all that changes nothing."""
    with shared_api(postgres, kafka, tmp_path_factory.mktemp("api"), "refusing_api", SEND,
                    api_max_body="1MiB") as (_, api):
        yield api
        assert not list(read_topics(kafka.bootstrap, ["refusing_api"]))


# --- HTTP -----------------------------------------------------------------------------------------

@pytest.mark.parametrize("token,headers", [
    (None, {}), ("wrong", {}), ("", {"Authorization": f"Basic {SEND}"}),
    ("", {"Authorization": SEND}), (SEND[:-1], {}), (SEND + "x", {}), ("", {"Authorization": ""}),
    ("", {"Authorization": "Bearer "})])
def test_without_a_known_token_nobody_gets_in(refusing_api, token, headers):
    for answer in (refusing_api.as_(token).post("commit", decision("1"), headers=headers),
                   refusing_api.as_(token).get("/orders/1", headers=headers)):
        assert (answer.status, answer.code) == (401, "unauthorized")
        assert answer.headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize("verb,allowed", [
    ("prepare", SEND), ("commit", SEND), ("rollback", SEND), ("operate", OPERATE)])
def test_a_role_may_do_what_is_its_own(refusing_api, verb, allowed):
    for token in (SEND, READ, OPERATE):
        answer = refusing_api.as_(token).post(verb, {})
        assert answer.status == (400 if token == allowed else 403)
    assert refusing_api.as_(SEND).get("/orders/1").code == "forbidden"
    assert refusing_api.as_(SEND).get().code == "forbidden"
    for token in (READ, OPERATE):
        assert refusing_api.as_(token).get("/orders/1").code == "not_found"
        assert refusing_api.as_(token).get().json == {"postgres": "main", "source": "database", "rows": [], "next": None}


def test_what_is_no_path_no_method_or_no_json_is_told_so(refusing_api):
    for path in ("/v1", "/v1/lookback/", "/v1/lookback/orders", "/v1/lookback/orders/",
                 "/v1/lookback//1", "/v2/lookback/orders/1", "/metrics"):
        answer = refusing_api.request("GET", path)
        assert (answer.status, answer.code) == (404, "not_found"), path
    for method, path, allow in (("GET", "/prepare", "POST"), ("PUT", "/commit", "POST"),
                                ("DELETE", "/orders/1", "GET, HEAD"), ("POST", "", "GET, HEAD")):
        answer = refusing_api.request(method, f"/v1/lookback{path}")
        assert (answer.status, answer.headers["Allow"]) == (405, allow)
    for headers in ({"Content-Type": "text/plain"}, {"Content-Type": "application/jsonp"},
                    {"Content-Encoding": "gzip"}):
        answer = refusing_api.post("commit", decision("1"), headers=headers)
        assert (answer.status, answer.code) == (415, "unsupported_media_type")
    good = {"Content-Type": "Application/JSON; charset=utf-8"}
    assert refusing_api.post("commit", {}, headers=good).code == "missing_field"


def test_a_body_that_is_too_large_is_refused_declared_or_not(refusing_api):
    with refusing_api.connect() as connection:
        for body in (b" " * (1 << 20) + b"{", map(bytes, [4096] * 300)):
            answer = refusing_api.post("commit", body, connection=connection)
            assert (answer.status, answer.code) == (413, "too_large")
        just = json.dumps({}).encode().ljust(1 << 20)
        assert refusing_api.post("commit", just, connection=connection).code == "missing_field"
    # Nobody reads a flood to its end.
    with socket.create_connection(("127.0.0.1", refusing_api.port), 30) as sock:
        sock.sendall(b"POST /v1/lookback/commit HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n"
                     b"Content-Type: application/json\r\nAuthorization: Bearer " + SEND.encode() +
                     b"\r\n\r\n")
        assert sock.recv(100).startswith(b"HTTP/1.1 413 ")
    with pytest.raises(OSError):
        refusing_api.post("commit", map(bytes, [4096] * 100000))


def test_a_payload_that_the_tables_do_not_take_is_refused_and_not_acknowledged(make_api, database):
    """Once acknowledged it would be dead-lettered, and its sender would never know."""
    database.execute("SELECT outbox.set_max_message_bytes(1000)")
    _, api = make_api()
    longest = "x" * 998  # and its quotes
    answer = api.post("prepare", prepare("1", payload=longest + "x"))
    assert (answer.status, answer.code) == (413, "payload_too_large")
    assert "1001 bytes" in answer.json["detail"] and "take 1000" in answer.json["detail"]
    encoded = {**prepare("1"), "payload_base64": base64.b64encode(b"x" * 1001).decode()}
    del encoded["payload"]
    assert api.post("prepare", encoded).code == "payload_too_large"
    answer = api.post("prepare", {"messages": [prepare("1", payload=longest + "x"),
                                               prepare("2", payload=longest)]})
    assert answer.status == 207
    assert [result["status"] for result in answer.json["results"]] == [413, 202]
    wait_for(lambda: api.as_(READ).get("/orders/2").status == 200, 60, "the one that fits to be stored")


def test_a_request_has_the_id_that_it_brings_or_one_of_its_own(refusing_api):
    def id_of(**headers):
        return refusing_api.post("commit", {}, headers=headers).headers["X-Request-Id"]

    assert id_of(**{"X-Request-Id": "a-1.b_C"}) == "a-1.b_C"
    assert id_of() != id_of() and len(id_of()) == 16
    for bad in ("a b", "x" * 65, "é"):
        assert id_of(**{"X-Request-Id": bad}) != bad


def test_connections_that_hang_stop_nobody(refusing_api):
    head = (b"POST /v1/lookback/commit HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Authorization: Bearer " + SEND.encode() + b"\r\nContent-Length: 1000\r\n\r\n{")
    with contextlib.ExitStack() as stack:
        for i in range(400):
            sock = stack.enter_context(
                socket.create_connection(("127.0.0.1", refusing_api.port), 30))
            sock.sendall(head[:len(head) - i % 2 * 50])
        begun = time.monotonic()
        assert refusing_api.post("commit", {}).code == "missing_field"
        assert time.monotonic() - begun < 30


@pytest.mark.rotated("waits")
def test_who_sends_a_byte_from_time_to_time_is_cut_off(make_api):
    _, api = make_api(api_arrival="3s")
    begun = time.monotonic()
    with socket.create_connection(("127.0.0.1", api.port), 10) as sock, pytest.raises(OSError):
        sock.settimeout(0.5)
        while time.monotonic() - begun < 120:
            sock.sendall(b"G")
            with contextlib.suppress(TimeoutError):
                if not sock.recv(1):
                    raise ConnectionError("cut off")
    assert time.monotonic() - begun > 2.9


# --- Kafka ----------------------------------------------------------------------------------------

@pytest.mark.rotated("waits")
def test_without_a_topic_a_sender_is_told_to_try_again(make_api, kafka, topic):
    relay, api = make_api(f"{topic}.later")
    answer = api.post("commit", decision("1"))
    assert (answer.status, answer.code) == (503, "no_topic")
    assert int(answer.headers["Retry-After"]) > 0
    relay.wait_event("api_not_acknowledged", topic=f"{topic}.later")
    kafka.create_topic(f"{topic}.later")
    try:
        assert api.post("commit", decision("1")).status == 202
        relay.wait_event("api_acknowledged")
    finally:
        kafka.delete_topic(f"{topic}.later")


def test_a_record_that_the_broker_refuses_is_told_and_its_neighbours_are_taken(
        make_api, database, kafka, topic):
    database.execute("SELECT outbox.set_max_message_bytes(10000000)")
    kafka.alter_topic(topic, **{"max.message.bytes": "20000", "compression.type": "uncompressed"})
    _, api = make_api(kafka_compression_codec="none")
    answer = api.post("prepare", {"messages": [
        prepare("1"), prepare("2"), prepare("3", payload="x" * 30000), prepare("4")]})
    assert [(result["status"], code_of(result)) for result in answer.json["results"]] == [
        (202, None), (202, None), (400, "refused_by_broker"), (202, None)]
    assert api.post("prepare", prepare("3", payload="y")).status == 202
    # more than the producer takes
    answer = api.post("prepare", prepare("5", payload="x" * 2_000_000))
    assert (answer.status, answer.code) == (413, "too_large")


@pytest.mark.rotated("kafka away")
def test_a_broker_that_goes_away_and_comes_back_is_waited_for_and_else_the_sender_is_told(
        make_api, topic):
    with Kafka() as cluster:
        cluster.create_topic(topic)
        relay, api = make_api(bootstrap=cluster.bootstrap)
        assert api.post("commit", decision("1")).status == 202
        cluster.pause()
        begun = time.monotonic()
        answer = api.post("commit", decision("2"))
        assert (answer.status, answer.code) == (503, "no_acknowledgement")
        assert int(answer.headers["Retry-After"]) > 0
        assert 9 < time.monotonic() - begun < 60

        answers = []
        waiting = threading.Thread(
            target=lambda: answers.append(api.post("commit", decision("3"))))
        waiting.start()
        relay.wait_for(lambda: open_requests(api) > 0, what="the request's being there")
        cluster.resume()
        waiting.join()
        assert answers[0].status == 202
        relay.wait_for(lambda: relay.metric("relay_api_messages_total", result="acknowledged") == 2, what="the metric")
        relay.wait_for(lambda: relay.metric("relay_api_requests_total", verb="commit", code="503") == 1,
                       what="the metric")


def send_many(api, senders, done, answers):
    """Threads that commit one id after another, each on its connection, until done() says so."""
    def send(sender):
        with api.connect() as connection:
            for i in range(100000):
                if done(i):
                    return
                id = f"{sender}-{i}"
                answers.append((id, api.post("commit", decision(id), connection=connection)))

    threads = [threading.Thread(target=send, args=(sender,)) for sender in range(senders)]
    for thread in threads:
        thread.start()
    return threads


def stands_where_it_was_told(bootstrap, topic, answers):
    found = {(r.partition, r.offset): r.key for r in read_topics(bootstrap, [topic])}
    places = {(answer.json["partition"], answer.json["offset"]): f"orders:{id}".encode()
              for id, answer in answers}
    assert len(places) == len(answers) and places.items() <= found.items()
    return len(found)


def test_many_senders_at_once_are_all_answered(api, kafka, topic):
    answers = []
    for thread in send_many(api, 60, lambda i: i == 20, answers):
        thread.join()
    assert {answer.status for _, answer in answers} == {202} and len(answers) == 1200
    assert stands_where_it_was_told(kafka.bootstrap, topic, answers) == 1200


@pytest.mark.rotated("kafka away")
def test_what_was_acknowledged_stands_in_the_topic_though_the_broker_was_killed(make_api, topic):
    with Kafka() as cluster:
        cluster.create_topic(topic)
        _, api = make_api(bootstrap=cluster.bootstrap)
        answers, ended = [], threading.Event()
        threads = send_many(api, 30, lambda _: ended.is_set(), answers)

        def taken_now(more):
            return sum(answer.status == 202 for _, answer in answers) + more

        for outlasts_requests in (False, True):
            enough = taken_now(300)
            wait_for(lambda: taken_now(0) > enough, 60, "answers")
            cluster.kill()
            if outlasts_requests:
                before = len(answers)
                wait_for(lambda: len(answers) > before + 45, 60, "requests that were given up")
            cluster.start_node(1)
        enough = taken_now(300)
        wait_for(lambda: taken_now(0) > enough, 180, "answers after the last death")
        ended.set()
        for thread in threads:
            thread.join()
        assert {answer.status for _, answer in answers} <= {202, 503}
        taken = [(id, answer) for id, answer in answers if answer.status == 202]
        stands_where_it_was_told(cluster.bootstrap, topic, taken)


def open_requests(api):
    """Connections to it that are established."""
    with open("/proc/net/tcp") as file:
        rows = [line.split() for line in file][1:]
    return sum(row[1].endswith(f":{api.port:04X}") and row[3] == "01" for row in rows)


def test_what_was_taken_is_answered_when_the_relay_ends(make_api, topic):
    with Kafka() as cluster:
        cluster.create_topic(topic)
        relay, api = make_api(bootstrap=cluster.bootstrap)
        assert api.post("commit", decision("1")).status == 202
        cluster.pause()
        answers = []
        waiting = [threading.Thread(target=lambda i=i: answers.append(
            api.post("commit", decision(str(i))))) for i in range(20)]
        for thread in waiting:
            thread.start()
        relay.wait_for(lambda: open_requests(api) == 20, what="the requests' being there")
        ending = threading.Thread(target=relay.stop)
        ending.start()
        relay.wait_event("stopping")
        cluster.resume()
        for thread in [*waiting, ending]:
            thread.join()
        assert [answer.status for answer in answers] == [202] * 20
        assert not relay.running


# --- ids ------------------------------------------------------------------------------------------

def journal(database, id, kind, **columns):
    row = {"biz_type": "orders", "biz_id": id, "kind": kind, "section": "orders", **columns}
    names = ", ".join(row)
    database.execute(f"insert into outbox.lookback ({names}) values "
                     f"({', '.join(['%s'] * len(row))})", list(row.values()))


def prepared(database, id, overdue=None):
    journal(database, id, "prepare", prepared_at="2026-01-02 03:04:05+00", source_partition=3,
            source_offset=17, topic="orders.new", key=b"k", payload=b"p", check_service="shop",
            check_url="https://shop.example.com/lookback?secret=1", check_at="2026-01-02 03:05:05+00",
            digest=b"d", event_id="11111111-1111-5111-8111-111111111111")
    if overdue:
        database.execute(
            "insert into outbox.lookback_overdue (section, biz_type, biz_id, prepared_at, state, "
            "next_check, attempts, last_error) values ('orders', 'orders', %s, "
            "'2026-01-02 03:04:05+00', %s, now(), 4, 'no answer')", [id, overdue])


def test_what_is_known_of_an_id_is_shown_but_its_payload(api, database):
    reader = api.as_(READ)
    prepared(database, "1")
    prepared(database, "a/b ü", overdue="parked")
    journal(database, "3", "tombstone", decision="commit", source_partition=0, source_offset=1)

    known = reader.get("/orders/1").json
    assert known["state"] == "undecided" and known["conflicts"] == [] == known["tombstones"]
    (shown,) = known["prepares"]
    assert shown["source"] == {"partition": 3, "offset": 17} and shown["key_hex"] == "6b"
    assert shown["check_url"] == "https://shop.example.com/lookback?..."
    assert shown["decision"] is None and shown["overdue"] is None and "payload" not in shown
    assert shown["prepared_at"] == "2026-01-02T03:04:05+00:00"

    parked = reader.get("/orders/a%2Fb%20%C3%BC").json
    assert (parked["state"], parked["biz_id"]) == ("parked", "a/b ü")
    assert parked["prepares"][0]["overdue"]["attempts"] == 4
    assert reader.get("/orders/3").json["state"] == "tombstone"
    assert (reader.get("/orders/4").status, reader.get("/orders/4").code) == (404, "not_found")
    assert reader.get("/payroll/1").code == "unknown_type"
    assert reader.get("/orders/%FF").code == "bad_value"


def test_what_is_overdue_or_parked_is_listed(api, database):
    reader = api.as_(READ)
    for i in range(5):
        prepared(database, str(i), overdue="parked" if i < 3 else "overdue")

    def ids(query):
        return [row["biz_id"] for row in reader.get(query).json["rows"]]

    assert ids("") == ["0", "1", "2", "3", "4"]
    assert ids("?state=parked") == ["0", "1", "2"] and ids("?state=overdue&limit=1") == ["3"]
    page = reader.get("?limit=4&totals=yes").json
    assert page["totals"] == {"overdue": "2", "parked": "3"} and reader.get("?limit=5").json["next"] is None
    last = reader.get("?" + urllib.parse.urlencode({"limit": 4, "after": page["next"]})).json
    assert [row["biz_id"] for row in last["rows"]] == ["4"] and last["next"] is None
    assert ids("?from=2100-01-01T00:00:00Z") == [] and len(ids("?to=2100-01-01T00:00:00Z")) == 5 and ids("?error=x") == []
    assert ids("?type=orders&state=overdue") == ["3", "4"] and ids("?type=stock") == ["0", "1"][:0]
    assert reader.get("?type=payroll").code == "unknown_type"
    file = reader.get("?format=csv&state=parked")
    assert file.headers["Content-Disposition"] == 'attachment; filename="lookback.csv"'
    header, *lines = file.text.split("\r\n")
    assert sorted(header.split(",")) == sorted(openapi.document()["components"]["schemas"]["LookbackRow"]["properties"])
    assert len(lines) == 4 and [row["biz_id"] for row in reader.get("?format=json").json] == ["0", "1", "2", "3", "4"]
    assert all(row["check_url"] is None for row in page["rows"])
    assert not any(row["claimed"] for row in page["rows"] if row["state"] == "parked")  # the relay may ask about others just now
    for query in ("?state=lost", "?limit=0", "?limit=1001", "?limit=x", "?service=%FF", "?type=orders&section=%FF",
                  "?type=%FF", "?section=%FF", "?from=yesterday", "?to=2026-02-30", "?after=x", "?after=orders,x,1",
                  "?after=orders,2026-01-01T00:00:00.000000Z", "?totals=maybe", "?undecided=yes", "?error="):
        assert (reader.get(query).status, reader.get(query).code) == (400, "bad_value")


def test_an_operator_decides_one_by_one_or_all_that_match_with_a_reason(api, database):
    operator = api.as_(OPERATE)
    for i in range(6):
        prepared(database, str(i), overdue="parked")

    def operate(verb, status=200, **more):
        answer = operator.post("operate", {"verb": verb, "reason": "told by the shop", **more})
        assert answer.status == status, answer.text
        return answer.json

    answer = operate("commit", ids=[["orders", "0"], ["orders", "1"]])
    assert answer["done"] == 2 and answer["sections"] == {"orders": 2}
    assert operate("rollback", ids=[["orders", "2"]])["done"] == 1
    parked = {"state": "parked", "type": "orders"}
    token = operator.post("preview", {"verb": "retry", "filter": parked}).json["token"]
    assert operate("retry", filter=parked, token=token)["done"] == 3
    # what is asked anew is decided by nobody yet
    api.relay.wait_for(lambda: api.relay.metric("relay_lookback_decisions_total", section="orders", source="operator") == 3,
                       what="the metric")
    assert code_of(operate("commit", status=404, ids=[["orders", "0"]])) == "not_found"
    token = operator.post("preview", {"verb": "commit", "filter": parked}).json["token"]
    assert code_of(operate("commit", status=404, filter=parked, token=token)) == "not_found"

    decision_of = operator.get("/orders/0").json["prepares"][0]["decision"]
    assert decision_of["reason"] == "told by the shop" and decision_of["by"].startswith("alice via ")
    assert operator.get("/orders/2").json["state"] == "rolled_back"
    assert operator.get("/orders/3").json["state"] == "overdue"
    assert database.execute("select verb, reason, caller from outbox.audit order by id") == [
        ("lookback commit", "told by the shop", "alice"), ("lookback rollback", "told by the shop", "alice"),
        ("lookback retry", "told by the shop", "alice")]


@pytest.mark.parametrize("order,code", [
    ({"verb": "commit", "ids": [["orders", "1"]]}, "bad_value"),
    ({"verb": "commit", "ids": [["orders", "1"]], "reason": ""}, "bad_value"),
    ({"verb": "forget", "ids": [["orders", "1"]], "reason": "r"}, "bad_value"),
    ({"verb": "commit", "reason": "r"}, "bad_value"),
    ({"verb": "commit", "reason": "r", "ids": [], "filter": {}}, "bad_value"),
    ({"verb": "commit", "reason": "r", "ids": []}, "bad_value"),
    ({"verb": "commit", "reason": "r", "ids": [["orders"]]}, "bad_value"),
    ({"verb": "commit", "reason": "r", "filter": {}}, "bad_value"),
    ({"verb": "commit", "reason": "r", "filter": {"colour": "red"}}, "bad_value"),
    ({"verb": "commit", "reason": "r", "filter": {"state": "parked"}}, "bad_value"),
    ({"verb": "commit", "reason": "r", "ids": [["orders", "1"]], "token": "1.2.3.4"}, "bad_value"),
    ({"verb": "commit", "reason": "r", "ids": [["orders", "1"]], "shoes": 1}, "unknown_field"),
    ({"verb": "commit", "reason": "r", "ids": [["orders", "1"]], "whole": "yes"}, "wrong_type"),
    ({"verb": 1}, "wrong_type"),
    ([], "bad_json"),
])
def test_an_order_that_is_not_plain_is_refused(refusing_api, order, code):
    answer = refusing_api.as_(OPERATE).post("operate", order)
    assert (answer.status, answer.code) == (400, code)


@pytest.mark.rotated("waits")
def test_while_the_database_is_away_records_are_taken_and_questions_are_not(
        make_api, database, postgres):
    relay, api = make_api()
    reader = api.as_(READ)
    assert reader.get("/orders/1").status == 404
    database.execute("alter table outbox.lookback_conflict rename to away")
    assert (reader.get("/orders/1").status, reader.get("/orders/1").code) == (500, "database_error")
    database.execute("alter table outbox.away rename to lookback_conflict")
    # an idle connection that broke is no matter
    database.execute("select pg_terminate_backend(pid) from pg_stat_activity "
                     "where application_name = 'outbox-relay api'")
    assert reader.get("/orders/1").status == 404
    with contextlib.closing(database.connect(autocommit=False)) as connection:
        connection.cursor().execute("lock table outbox.lookback_conflict")
        assert api.post("commit", decision("1")).status == 202
        begun = time.monotonic()
        answer = reader.get("/orders/1")
        assert (answer.status, answer.code) == (503, "no_database")
        assert int(answer.headers["Retry-After"]) > 0 and time.monotonic() - begun < 30
    wait_for(lambda: reader.get("/orders/1").status == 200, 60, "the tombstone of what was taken")
