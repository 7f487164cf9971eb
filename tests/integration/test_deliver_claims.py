"""Claims of the sidecar: an application never has an id twice at a time, and gets the fencing token."""

import contextlib
import json
import threading
import time

import pytest

from support.application import Application
from support.inbox import produce
from support.process import wait_for
from support.redis import Redis
from support.spans import Span, judge

LEASE = 600  # ms


class Ledger:
    """What an application does, which takes `slow` ms a message. Like a table with a fencing token, it
    refuses a token below the largest one that it has seen of the id."""

    def __init__(self, slow):
        self.slow, self.lock = slow, threading.Lock()
        self.tokens, self.begun, self.spans = {}, [], []

    def answer(self, delivery):
        id, token = delivery.event["id"], int(delivery.headers["ce-outboxtoken"])
        with self.lock:
            if token <= self.tokens.get(id, 0):
                return 503
            self.tokens[id] = token
            span = Span(id, token, time.monotonic(), None)
            self.begun.append(span)
        time.sleep(self.slow / 1000)
        with self.lock:
            accepted = self.tokens[id] == token
            self.spans.append(span._replace(ended=time.monotonic() if accepted else None))
            return 200 if accepted else 503

    def done(self):
        with self.lock:
            return [span for span in self.spans if span.ended]


@pytest.fixture(params=["redis", "postgres"])
def claims(request, database):
    """The line of the key `claims`."""
    with contextlib.ExitStack() as stack:
        if request.param == "redis":
            server = f"redis url={stack.enter_context(Redis(appendonly='yes', appendfsync='no')).url}"
        else:
            server = f'postgres dsn="{database.dsn}"'
        yield f"{server} name=billing lease={LEASE}ms"


@pytest.fixture
def make_pair(make_sidecar):
    """make_pair(application, **settings): two relays that share the topic."""
    def make(application, **settings):
        pair = [make_sidecar(application, dedup=None, **settings) for _ in range(2)]
        for relay in pair:
            relay.wait_for(lambda relay=relay: relay.metric("relay_deliver_partitions") == 3, timeout=60)
        return pair

    return make


def produce_twice(kafka, topic, count):
    """Each id in the first and in the last partition: each relay has one of them."""
    produce(kafka.bootstrap, topic,
            [(f"id-{i}", f"key-{i}", "{}", partition) for i in range(count) for partition in (0, 5)])


@pytest.mark.rotated
def test_an_application_may_take_three_times_the_lease(make_pair, kafka, topic, claims, scale):
    count, ledger = scale(200, 16), Ledger(3 * LEASE)
    with Application(ledger.answer) as application:
        pair = make_pair(application, claims=claims)
        produce_twice(kafka, topic, count)
        wait_for(lambda: len(ledger.done()) == 2 * count, 90, "all deliveries")
        judge(ledger.spans)
        assert len(application.deliveries) == 2 * count
        figures = {name: [relay.metric(f"relay_deliver_claims_{name}_total") for relay in pair]
                   for name in ("refused", "lost")}
        assert sum(figures["refused"]) >= count and figures["lost"] == [0, 0]


@pytest.mark.rotated
def test_a_relay_that_is_stopped_for_longer_than_its_lease_is_refused_by_its_token(
        make_pair, kafka, topic, claims, scale):
    count, ledger = scale(100, 10), Ledger(3 * LEASE)
    with Application(ledger.answer) as application:
        pair = make_pair(application, claims=claims)
        produce_twice(kafka, topic, count)
        wait_for(lambda: len(ledger.begun) == count, 60, "each id with one of them")
        one, two = sorted(pair, key=lambda relay: -relay.metric("relay_deliver_in_progress"))
        one.pause()
        wait_for(lambda: len(ledger.begun) > count, 60, "an id that the other one takes over")
        one.resume()
        wait_for(lambda: len(ledger.done()) >= 2 * count, 90, "all deliveries")
        judge(ledger.spans)
        assert two.running and one.running


@pytest.mark.parametrize("settings", [{}, {"mode": "structured"}, {"form": "batch", "batch": 10}])
def test_every_form_of_a_request_has_the_token(make_sidecar, kafka, topic, settings):
    produce(kafka.bootstrap, topic, [
        ("a", "a", '{"a": 1}'),
        ("b", "b", json.dumps({"specversion": "1.0", "id": "b", "source": "/x", "type": "t"}), None,
         [("content-type", b"application/cloudevents+json")])])
    with Redis() as redis, Application() as application:
        make_sidecar(application, claims=f"redis url={redis.url} name=billing", **settings)
        application.wait_ids({"a", "b"})
        plain = next(event for delivery in application.deliveries for event in delivery.events
                     if event["id"] == "a")
        assert int(plain["outboxtoken"]) > 0
        for delivery in application.deliveries:
            if "form" not in settings:
                assert int(delivery.headers["ce-outboxtoken"]) > 0
