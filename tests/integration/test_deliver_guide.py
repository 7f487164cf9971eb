"""docs/guide/sidecar.md shows parts of docs/examples, and those do what it says: a web service behind a
sidecar charges each order once."""

import base64
import contextlib
import hashlib
import hmac
import http.client
import json
import sqlite3
import sys
import time

import pytest

from support import guide
from support.inbox import header, produce
from support.process import Process, free_port, port_answers, wait_for
from support.sidecar import dead_letters

KEY, OTHER_KEY = b"k" * 24, b"o" * 32
SECRET, OTHER_SECRET = ("whsec_" + base64.b64encode(key).decode() for key in (KEY, OTHER_KEY))
EXAMPLES = {"python": "orders.py", "node": "orders.mjs"}
COUNT = 60


def test_the_guide_shows_the_examples_as_they_are():
    page = guide.DELIVER_GUIDE.read_text(encoding="utf-8")
    assert {(name, part) for _, name, part, _, _ in guide.SHOWN.findall(page)} == {
        (name, part) for name in EXAMPLES.values() for part in ("verify", "charge", "answer")}
    assert page == guide.filled(page), "python3 tests/support/guide.py writes it"


class Service:
    """A program of docs/examples."""

    def __init__(self, language, folder):
        self.language, self.file, self.log = language, folder / "charges", folder / "service.log"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/orders"
        self.start()

    def start(self):
        program = {"python": sys.executable, "node": "node"}[self.language]
        self.process = Process([program, guide.EXAMPLES / EXAMPLES[self.language], self.port, self.file],
                               self.log, environment={"PATH": "/usr/bin:/bin", "WEBHOOK_SECRET": SECRET})
        wait_for(lambda: port_answers(self.port), 120, f"the service in {self.language}")

    def charges(self):
        """(id, customer, amount) of all, in the order of their ids."""
        if self.language == "python":
            with contextlib.closing(sqlite3.connect(self.file)) as database:
                return sorted(database.execute("select id, customer, amount from charge"))
        lines = self.file.read_text().splitlines() if self.file.exists() else []
        return sorted(tuple(json.loads(line).values()) for line in lines)

    def post(self, body, keys, sent_at=None, kind="application/json"):
        """The status, and the body, as the relay would sign it with each of the keys."""
        stamp = str(int(sent_at if sent_at is not None else time.time()))
        marks = " ".join("v1," + base64.b64encode(hmac.digest(
            key, f"order-1.{stamp}.".encode() + body, hashlib.sha256)).decode() for key in keys)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request("POST", "/orders", body, {
            "Content-Type": kind, "webhook-id": "order-1", "webhook-timestamp": stamp,
            "webhook-signature": marks})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, text


@pytest.fixture(params=EXAMPLES)
def service(request, tmp_path):
    made = Service(request.param, tmp_path)
    yield made
    made.process.kill()


def order(number):
    return f"order-{number}", f"customer-{number % 7}", json.dumps(
        {"customer": f"customer-{number % 7}", "amount": number + 0.5})


@pytest.mark.rotated
@pytest.mark.parametrize("form", ["single", "batch"])
def test_a_service_charges_each_order_once(service, make_sidecar, kafka, topic, dead_topic, form):
    batch = {"form": "batch", "batch": 10} if form == "batch" else {}
    relay = make_sidecar(service, dedup=None, secret=OTHER_SECRET, old_secret=SECRET,
                         breaker_failures=1000, attempts=1000, concurrency=10, **batch)
    produce(kafka.bootstrap, topic, map(order, range(COUNT)))
    relay.wait_for(lambda: len(service.charges()) >= 10)
    service.process.kill()
    produce(kafka.bootstrap, topic, [
        ("none", "customer-1", '{"customer": "customer-1"}'),
        *map(order, range(20))])  # copies, which only the service knows
    service.start()
    relay.wait_for(lambda: relay.metric("relay_deliver_messages") == 0
                   and relay.metric("relay_deliver_duplicates_total") >= 20
                   and relay.metric("relay_deliver_dead_letters_total") == 1)
    assert service.charges() == sorted(
        (f"order-{i}", f"customer-{i % 7}", i + 0.5) for i in range(COUNT))
    refusals = dead_letters(kafka, dead_topic, 1)
    assert [header(refusal, "outbox-id") for refusal in refusals] == ["none"]
    assert "an order has a customer and an amount" in header(refusals[0], "outbox-reason")


def test_a_service_takes_only_what_is_signed(service):
    body = b'{"customer": "c", "amount": 1}'
    for keys, sent_at in (([OTHER_KEY], None), ([], None), ([KEY], time.time() - 3600),
                          ([KEY], time.time() + 3600)):
        assert service.post(body, keys, sent_at)[0] == 401
    assert service.post(b"{", [KEY])[0] == 400
    assert service.charges() == []
    assert service.post(body, [OTHER_KEY, KEY])[0] == 200
    assert service.post(body, [KEY])[0] == 409
    assert service.charges() == [("order-1", "c", 1)]


def test_a_service_answers_for_each_message_of_a_batch(service):
    events = [{"id": "a", "data": {"customer": "c", "amount": 2}}, {"id": "b"},
              {"id": "a", "data": {"customer": "c", "amount": 2}}]
    status, text = service.post(json.dumps(events).encode(), [KEY],
                                kind="application/cloudevents-batch+json")
    assert status == 200
    assert [(one["id"], one["status"]) for one in json.loads(text)] == [
        ("a", 200), ("b", 422), ("a", 409)]
    assert service.charges() == [("a", "c", 2)]
