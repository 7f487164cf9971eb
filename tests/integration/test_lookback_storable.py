"""What the look-back accepts is what its database stores, and it costs what its length says: memory,
numbers, encodings, and how one bad record leaves the others alone."""

import threading
import time
import zlib

import pytest

from support.api import CONFIG, Api, decision, prepare
from support.lookback import Case
from support.process import free_port, wait_for

SEND = "token-of-a-sender"
MIB = 1 << 20


@pytest.fixture
def case(database, kafka, make_relay, request):
    return Case(database, kafka, make_relay, f"ls{zlib.crc32(request.node.nodeid.encode())}")


@pytest.fixture
def make_api(make_relay, topic, tmp_path):
    def make(**settings):
        config = tmp_path / "relay.ini"
        config.write_text(CONFIG.format(topic=topic))
        port = free_port()
        relay = make_relay(**{"config": config, "api_listen": port, "api_send_tokens": SEND,
                              **settings})
        relay.wait_event("api_listens")
        return relay, Api(port, SEND)

    return make


# --- memory ---------------------------------------------------------------------------------------

def flood(length):
    """JSON of as many objects as fit."""
    return b"[" + b"{}," * ((length - 3) // 3) + b"0]"


@pytest.mark.parametrize("around", [
    (b"", b""), (b'{"messages":', b"}"),
    (b'{"version":1,"biz_type":"orders","biz_id":"1","topic":"orders.new","payload":', b"}"),
    (b'{"version":1,"biz_type":"orders","biz_id":"1","topic":"orders.new","payload":1,"headers":', b"}"),
], ids=["a list", "a batch", "a payload", "headers"])
def test_a_body_of_many_values_costs_no_more_memory_than_it_is_long(make_api, around):
    relay, api = make_api()
    assert api.post("commit", decision("0")).status == 202
    before = relay.process.peak_memory()
    body = around[0] + flood(8 * MIB - sum(map(len, around))) + around[1]
    answers, longest = [], 0
    sender = threading.Thread(target=lambda: answers.append(api.post("prepare", body)))
    sender.start()
    while sender.is_alive():
        begun = time.monotonic()
        assert api.post("commit", decision("0")).status == 202
        longest = max(longest, time.monotonic() - begun)
    sender.join()
    assert (answers[0].status, answers[0].code) == (400, "too_complex"), answers[0].text
    assert "1000000 values" in answers[0].json["error"]
    assert relay.process.peak_memory() - before < 64 * MIB
    assert longest < 1


def test_a_body_that_is_deep_is_refused_with_the_limit(make_api):
    _, api = make_api()
    answer = api.post("prepare", b'{"a":' * 200 + b"1" + b"}" * 200)
    assert (answer.status, answer.code) == (400, "too_complex") and "deep" in answer.json["error"]


def test_an_order_of_many_values_is_refused(make_api):
    relay, api = make_api(api_operate_tokens="token-of-an-operator")
    before = relay.process.peak_memory()
    answer = api.as_("token-of-an-operator").post("operate", b'{"ids":' + flood(8 * MIB - 10) + b"}")
    assert (answer.status, answer.code) == (400, "too_complex")
    assert relay.process.peak_memory() - before < 64 * MIB


def test_prepares_of_many_values_cost_no_more_memory_by_kafka(case):
    relay = case.relay().wait_ready()
    case.application.prepare("0")
    case.application.commit("0")
    relay.wait_for(lambda: case.ids() == ["0"], what="the first message")
    before = relay.process.peak_memory()
    body = (b'{"version":1,"op":"prepare","biz_type":"order","biz_id":"%d","topic":"%s","payload":'
            % (1, case.topics["orders"].encode()))
    payload = flood(980_000)
    case.application.send(*[(b"order:%d" % number, body.replace(b'"biz_id":"1"', b'"biz_id":"%d"' % number)
                             + payload + b"}", []) for number in range(1, 5)], partition=0)
    case.application.commit(*"1234")
    relay.wait_for(lambda: len(case.records()) == 5, what="all four messages")
    assert [record.payload for record in case.records() if record.key is None] == [payload] * 4
    assert relay.process.peak_memory() - before < 48 * MIB
