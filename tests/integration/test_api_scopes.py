"""For which business types a token of the HTTP interface speaks, and whose an id is."""

import pytest

from support.api import decision, prepare, start_api
from support.auditor import read_topics
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
[sender "shop"]
tokens = token-of-the-shop, other-token-of-the-shop
sections = orders
types = orders*
[sender "store"]
tokens = token-of-the-store
sections = stock
[sender "all"]
tokens = token-of-everybody
types = *
"""
SHOP, SHOP2, STORE, ALL = ("token-of-the-shop", "other-token-of-the-shop", "token-of-the-store",
                           "token-of-everybody")


@pytest.fixture
def api(make_relay, topic, tmp_path):
    relay, api = start_api(make_relay, tmp_path, SHOP, CONFIG.format(topic=topic) + SENDERS,
                           api_read_tokens="token-of-a-reader")
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
    assert api.as_("token-of-a-reader").post("commit", decision("1")).status == 403
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


@pytest.mark.parametrize("senders,words", [
    ("[sender \"x\"]\ntypes = *\n", "the sender has no tokens"),
    ("[sender \"x\"]\ntokens = t-of-x-0123456789\n", "write types = *"),
    ("[sender \"x\"]\ntokens = t-of-x-0123456789\nsections = order\n", "there is no [lookback \"order\"]"),
    ("[sender \"x\"]\ntokens = t-of-x-0123456789\nsections = stock\ntypes = orders\n",
     "orders is not a business type of its sections"),
    ("[sender \"x\"]\ntokens = t-of-x-0123456789\ntypes = oder*\n", "not a business type of any"),
    ("[sender \"x\"]\ntokens = t-of-x-0123456789\ntypes = *\n[sender \"y\"]\ntokens = t-of-x-0123456789\n"
     "types = stock\n", "belongs to [sender \"x\"] as well"),
    ("[sender \"x\"]\ntokens = t-of-x-0123456789\ntypes = *\n[api]\nsend_tokens = t-of-x-0123456789\n",
     "is also in [api] send_tokens"),
])
def test_a_scope_with_two_readings_is_refused(tmp_path, database, senders, words):
    path = tmp_path / "relay.ini"
    path.write_text(CONFIG.format(topic="said") + senders)
    status, _, error = run_command(["check-config", "--config", str(path)], {"DATABASE_URL": database.dsn})
    assert status == 78 and words in error, error
    assert "t-of-x-0123456789" not in error
