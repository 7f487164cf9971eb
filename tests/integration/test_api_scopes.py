"""For which business types a token of the HTTP interface speaks, and whose an id is."""

import os
import signal

import pytest

from support import openapi
from support.api import READ, READER, caller, decision, prepare, start_api
from support.auditor import read_topics
from support.files import replace
from support.process import wait_for
from support.relay import run_command

CONFIG = """\
[lookback "orders"]
types = orders, orders-web, returns
topic = {topic}
topics = orders.*
check = shop
[lookback "stock"]
topic = {topic}
topics = orders.*
check = shop
default = yes
[check "shop"]
url = http://127.0.0.1:9/lookback
"""
SENDERS = """\
[token "shop"]
roles = send
tokens = token-of-the-shop, other-token-of-the-shop
sections = orders
types = orders*
[token "store"]
roles = send
tokens = token-of-the-store
sections = stock
[token "all"]
roles = send
tokens = token-of-everybody
types = *
"""
SHOP, SHOP2, STORE, ALL = ("token-of-the-shop", "other-token-of-the-shop", "token-of-the-store",
                           "token-of-everybody")


@pytest.fixture
def api(make_relay, topic, tmp_path):
    relay, api = start_api(make_relay, tmp_path, SHOP, CONFIG.format(topic=topic) + SENDERS + READER)
    api.relay = relay
    yield api
    for token in (SHOP, SHOP2, STORE, ALL):
        assert token not in relay.output()


def test_a_token_speaks_for_its_types_and_for_no_others(api, kafka, topic):
    for token, types in [(SHOP, ["orders", "orders-web"]), (SHOP2, ["orders", "orders-web"]), (STORE, ["stock"]),
                         (ALL, ["orders", "returns", "stock"])]:
        for kind in ("orders", "orders-web", "returns", "stock"):
            for verb, message in [("prepare", prepare(f"{token}-{kind}", kind)), ("commit", decision("1", kind)),
                                  ("rollback", decision("1", kind))]:
                answer = api.as_(token).post(verb, message)
                if kind in types or token == ALL:
                    assert answer.status == 202, (token, kind, verb, answer.text)
                else:
                    assert (answer.status, answer.code) == (403, "out_of_scope"), (token, kind, verb)
    sent = {record.key.decode().split(":")[0] + ":" + record.key.decode().split(":")[1]
            for record in read_topics(kafka.bootstrap, [topic])}
    assert not {f"{STORE}-orders", f"{SHOP}-stock", f"{SHOP}-returns"} & {key.split(":")[1] for key in sent}
    assert api.as_(READ).post("commit", decision("1")).status == 403
    assert api.as_("token-of-nobody").post("commit", decision("1")).status == 401


def test_another_business_cannot_commit_an_id(api, database):
    """The attack of today: B commits what A prepared."""
    assert api.post("prepare", prepare("42")).status == 202
    assert api.as_(STORE).post("commit", decision("42")).status == 403
    assert api.as_(STORE).post("commit", {"messages": [decision("42"), decision("7", "stock")]}).status == 207
    assert api.as_(SHOP2).post("commit", decision("42")).status == 202
    wait_for(lambda: database.execute("SELECT biz_id, decision FROM outbox.lookback WHERE kind = 'decision'")
             == [("42", "commit")], 60, "the commit of its own")


def test_whoever_prepares_an_id_of_another_message_is_told(api, database, topic, kafka):
    first, other = prepare("1", key="a"), prepare("1", key="b")
    assert api.post("prepare", first).status == 202
    # at once, while no reader has stored it
    answer = api.as_(SHOP2).post("prepare", other)
    assert (answer.status, answer.code) == (409, "id_taken")
    assert api.post("prepare", first).status == 202  # its own repetition
    api.relay.wait_for(lambda: database.execute(
        "SELECT count(*) FROM outbox.lookback WHERE kind = 'prepare'") == [(1,)], what="the prepare")
    # the database says so as well: the next test has no other witness
    assert api.post("prepare", other).status == 409
    answer = api.post("prepare", {"messages": [other, prepare("2"), prepare("2", key="x"), first]})
    assert [result["status"] for result in answer.json["results"]] == [409, 202, 409, 202]
    assert len([record for record in read_topics(kafka.bootstrap, [topic])
                if record.key == b"orders:1"]) == 3


def test_an_id_that_came_by_kafka_is_taken_as_well(api, database, topic, kafka):
    from confluent_kafka import Producer
    import json
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "partitioner": "murmur2_random"})
    producer.produce(topic, json.dumps({**prepare("1", key="a"), "op": "prepare"}), "orders:1")
    assert producer.flush(30) == 0
    api.relay.wait_for(lambda: database.execute(
        "SELECT count(*) FROM outbox.lookback WHERE kind = 'prepare'") == [(1,)], what="the prepare")
    assert api.post("prepare", prepare("1", key="b")).status == 409
    assert api.post("prepare", prepare("1", key="a")).status == 202


X = "[token \"x\"]\nroles = send\ntokens = t-of-x-0123456789\n"


@pytest.mark.parametrize("senders,words", [
    ("[token \"x\"]\nroles = send\ntypes = *\n", "the section has no tokens"),
    ("[token \"x\"]\ntokens = t-of-x-0123456789\n", "the token may do nothing"),
    (X.replace("send", "send, sned"), "sned is no role: read, payload, send, operate and decide are"),
    (X, "write types = *"),
    (X + "sections = order\n", "there is no [lookback \"order\"] and no [deliver \"order\"]"),
    (X + "sections = stock\ntypes = orders\n", "orders is not a business type of its sections"),
    (X + "types = oder*\n", "not a business type of any"),
    (X + "types = *\npublishers = other\n", "there is no [publisher \"other\"]"),
    (X + "types = *\n[token \"y\"]\ntokens = t-of-x-0123456789\nroles = read\n", "belongs to [token \"x\"] as well"),
])
def test_a_scope_with_two_readings_is_refused(tmp_path, database, senders, words):
    path = tmp_path / "relay.ini"
    path.write_text(CONFIG.format(topic="said") + senders)
    status, _, error = run_command(["check-config", "--config", str(path)], {"DATABASE_URL": database.dsn})
    assert status == 78 and words in error, error
    assert "t-of-x-0123456789" not in error


# --- roles ----------------------------------------------------------------------------------------

ROLES = ("read", "payload", "send", "operate", "decide")
REQUESTS = [
    ("POST", "/v1/lookback/prepare", prepare("1"), {"send"}),
    ("POST", "/v1/lookback/commit", decision("1"), {"send"}),
    ("POST", "/v1/lookback/rollback", decision("1"), {"send"}),
    ("GET", "/v1/lookback", None, {"read"}),
    ("GET", "/v1/lookback/orders/1", None, {"read"}),
    ("POST", "/v1/lookback/operate", {"verb": "retry", "ids": [["orders", "1"]], "reason": "x"}, {"operate"}),
    ("POST", "/v1/lookback/operate", {"verb": "commit", "ids": [["orders", "1"]], "reason": "x"}, {"decide"}),
    ("POST", "/v1/lookback/operate", {"verb": "rollback", "ids": [["orders", "1"]], "reason": "x"}, {"decide"}),
    ("GET", "/v1/scheduled", None, {"read"}),
    ("GET", "/v1/messages?id=1", None, {"read"}),
    ("GET", "/v1/jobs", None, {"read"}),
    ("GET", "/v1/jobs/parked-1", None, {"read"}),
    ("POST", "/v1/jobs/parked-1/cancel", {"reason": "x"}, {"operate", "decide"}),
    ("POST", "/v1/jobs/replay-1/resume", {"reason": "x"}, {"operate", "decide"}),
    ("GET", "/v1/replays", None, {"read"}),
    ("POST", "/v1/replays/preview", {"filter": {}}, {"operate"}),
    ("POST", "/v1/replays", {"filter": {}, "token": "x", "reason": "x"}, {"operate"}),
    ("POST", "/v1/verifications", {"reason": "x"}, {"operate"}),
    ("GET", "/v1/deliver", None, {"read"}),
    ("POST", "/v1/deliver/operate", {"verb": "pause", "section": "a", "reason": "x"}, {"operate"}),
    ("GET", "/v1/dedup", None, {"read"}),
    ("GET", "/v1/overview", None, {"read"}),
    ("GET", "/v1/series", None, {"read"}),
    ("HEAD", "/v1/events", None, {"read"}),  # a stream has no end
    ("GET", "/v1/publishers", None, {"read"}),
    ("GET", "/v1/publishers/main", None, {"read"}),
    ("GET", "/v1/parked", None, {"read"}),
    ("GET", "/v1/parked/1", None, {"read"}),
    ("GET", "/v1/audit", None, {"read"}),
    ("POST", "/v1/parked/preview", {"verb": "retry", "filter": {}}, {"operate", "decide"}),
    ("POST", "/v1/parked/retry", {"ids": ["1"], "reason": "x"}, {"operate"}),
    ("POST", "/v1/parked/skip", {"ids": ["1"], "reason": "x"}, {"decide"}),
    ("POST", "/v1/lookback/preview", {"verb": "retry", "filter": {"state": "parked"}}, {"operate"}),
    ("POST", "/v1/lookback/preview", {"verb": "commit", "filter": {"state": "parked"}}, {"decide"}),
    ("POST", "/v1/lookback/preview", {"verb": "rollback", "filter": {"state": "parked"}}, {"decide"}),
    ("POST", "/v1/publishers/main/pause", {"reason": "x"}, {"operate"}),
    ("POST", "/v1/publishers/main/resume", {"reason": "x"}, {"operate"}),
    ("POST", "/v1/publishers/main/split", {"cancel": True, "reason": "x"}, {"decide"}),
    ("POST", "/v1/publishers/main/rebase", {"dry_run": True}, {"decide"}),
    ("POST", "/v1/publishers", {"name": "late", "reason": "x"}, {"operate"}),
    ("POST", "/v1/publishers/late/drop", {"dry_run": True}, {"decide"}),
    ("GET", "/v1/partitions", None, {"read"}),
    ("POST", "/v1/partitions", {"reason": "x"}, {"operate"}),
    ("POST", "/v1/partitions/none/drop", {"dry_run": True}, {"decide"}),
    ("GET", "/v1/preflight", None, {"read"}),
    ("GET", "/v1/dead-letters", None, {"read"}),
    ("POST", "/v1/dead-letters/preview", {"filter": {}}, {"operate"}),
    ("POST", "/v1/dead-letters/redrive", {"places": ["0:1"], "reason": "x"}, {"operate"}),
]


def test_every_route_is_tried_with_each_role():
    tried = {("GET" if method == "HEAD" else method, openapi.template_of(path)) for method, path, _, _ in REQUESTS}
    assert tried == {(method.upper(), path) for path, operations in openapi.document()["paths"].items()
                     for method, operation in operations.items() if operation.get("x-roles")}


def test_each_role_may_do_its_own_and_nothing_else(make_relay, topic, tmp_path):
    _, api = start_api(make_relay, tmp_path, None, CONFIG.format(topic=topic) + "".join(
        caller(f"only-{role}", f"token-with-{role:<16}".replace(" ", "-"), role, types="*") for role in ROLES))
    for method, path, body, allowed in REQUESTS:
        for role in ROLES:
            answer = api.as_(f"token-with-{role:<16}".replace(" ", "-")).request(method, path, body)
            refused = answer.status == 403 and (method == "HEAD" or answer.code == "forbidden")
            assert refused != (role in allowed), (method, path, role, answer.text)
            if refused and method != "HEAD":
                assert f"only-{role}" in answer.text
        assert api.request(method, path, body).status == 401


def test_all_types_are_no_limit(make_relay, topic, tmp_path):
    _, api = start_api(make_relay, tmp_path, READ, CONFIG.format(topic=topic)
                       + caller("all", READ, "read", types="*") + caller("some", SHOP, "read", types="orders*"))
    for path in ("/v1/audit", "/v1/partitions"):
        assert api.request("GET", path).status == 200
        assert api.as_(SHOP).request("GET", path).code == "out_of_scope"


def test_a_scope_limits_what_is_read_and_decided(make_relay, topic, tmp_path):
    _, api = start_api(make_relay, tmp_path, READ, CONFIG.format(topic=topic)
                       + caller("orders", READ, "read, operate, decide", sections="orders")
                       + caller("types", SHOP, "read, operate, decide", types="orders*"))
    order = {"verb": "retry", "reason": "x"}
    for token, method, path, body, fits in [
            (READ, "GET", "/orders/1", None, True), (READ, "GET", "/stock/1", None, False),
            (READ, "GET", "?section=orders", None, True), (READ, "GET", "?type=returns", None, True),
            (READ, "GET", "?section=stock", None, False), (READ, "GET", "", None, False),
            (READ, "POST", "/operate", {**order, "ids": [["returns", "1"]]}, True),
            (READ, "POST", "/operate", {**order, "ids": [["returns", "1"], ["stock", "1"]]}, False),
            (READ, "POST", "/operate", {**order, "filter": {"section": "orders"}}, True),
            (READ, "POST", "/operate", {**order, "filter": {"state": "parked"}}, False),
            (READ, "POST", "/operate", {**order, "filter": {"section": "stock"}}, False),
            (READ, "POST", "/preview", {**order, "filter": {"section": "orders"}}, True),
            (READ, "POST", "/preview", {**order, "filter": {"section": "stock"}}, False),
            (SHOP, "GET", "/orders-web/1", None, True), (SHOP, "GET", "/returns/1", None, False),
            (SHOP, "GET", "?section=orders", None, False), (SHOP, "GET", "?type=orders", None, True),
            (SHOP, "POST", "/operate", {**order, "filter": {"section": "orders"}}, False),
            (SHOP, "POST", "/operate", {**order, "filter": {"type": "orders"}}, True)]:
        answer = api.as_(token).request(method, f"/v1/lookback{path}", body)
        assert (answer.status == 403 and answer.code == "out_of_scope") != fits, (token, path, body, answer.text)


def test_a_reload_reads_the_tokens_again(make_relay, topic, tmp_path):
    """A token goes, another takes its place in its file, a section comes, and one loses a role."""
    file = tmp_path / "tokens"
    replace(file, SHOP)
    begin = CONFIG.format(topic=topic) + f'[token "shop"]\nroles = read\ntokens_file = {file}\n'
    relay, api = start_api(make_relay, tmp_path, SHOP, begin + caller("old", STORE, "read") + caller("both", ALL, "read, operate"))

    def status(token, method="GET", path="/v1/lookback", body=None):
        return api.as_(token).request(method, path, body).status

    retry = "POST", "/v1/lookback/operate", {"verb": "retry", "ids": [["orders", "1"]], "reason": "x"}
    assert [status(token) for token in (SHOP, SHOP2, STORE, ALL, READ)] == [200, 401, 200, 200, 401]
    assert status(ALL, *retry) == 404
    replace(file, f"{SHOP2}\n")
    replace(tmp_path / "relay.ini", begin + caller("new", READ, "read") + caller("both", ALL, "read"))
    os.kill(relay.process.pid, signal.SIGHUP)
    relay.wait_event("reloaded")
    assert [status(token) for token in (SHOP, SHOP2, STORE, ALL, READ)] == [401, 200, 401, 200, 200]
    assert status(ALL, *retry) == 403
    assert not relay.events("reload_incomplete")

    replace(tmp_path / "relay.ini", begin + caller("short", "short", "read"))
    os.kill(relay.process.pid, signal.SIGHUP)
    refused = relay.wait_event("reload_refused")[0]
    assert "needs 16" in refused["error"] and status(READ) == 200
