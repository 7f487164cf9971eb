"""A relay that has something to show on every page of the console, and a browser with an operator logged in: fixtures for
the tests of the console."""

import contextlib
import os
import types

import pytest

from .api import Api, caller
from .application import Application
from .browser import WIDE, Browser
from .business import Business
from .inbox import produce
from .large_rows import LIMIT, TOO_LARGE
from .process import free_port, wait_for
from .relay import Relay, run_command

ALICE, WATCHER, LIMITED = "token-of-alice-the-operator", "token-of-one-who-watches", "token-of-one-with-limits"
BOB, SENDER = "token-of-bob-the-operator", "token-of-the-application"
VIEWER = "token-of-one-who-sees-payloads"
EVIL = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'
# What each page shows once it is there.
PAGES = {"overview": "Latency, 99th percentile", "publishers": "Shards of main", "where?id={id}": "Publisher main",
         "parked": "Parked messages of main", "parked/{id}": "Message size too large", "scheduled": "Scheduled messages of main",
         "replays": "Replay all that match", "jobs": "Progress", "lookback": "Overdue and parked ids", "lookback/orders/1": "Prepared",
         "sidecars": "billing", "dead-letters": "Dead letters of billing", "dedup": "Planned ids",
         "partitions": "Partitions of [postgres", "partitions/message_p20270105": "Drop …",
         "preflight": "Checked at", "audit": "Actions of operators"}
CONFIG = """\
[publisher "main"]
max_attempts = 1
retry_first = 100ms
[lookback "orders"]
types = orders
topic = {said}
topics = {said}-orders
check = shop
check_after = 100ms
[check "shop"]
url = {business}
networks = 127.0.0.0/8
retry_first = 200ms
retry_max = 1s
max_attempts = 1000
[deliver "billing"]
topics = {delivered}
group = {delivered}
url = {application}
networks = 127.0.0.0/8
path = {folder}/state
dead_letter_topic = {said}-dead
retry_first = 100ms
retry_max = 1s
dedup = bloom ids=10k rate=0.1% window=1h
"""


@pytest.fixture(scope="module")
def world(postgres, kafka, tmp_path_factory, request):
    """A relay with parked rows, overdue ids, a sidecar that fails, and an audit; one for each file of tests."""
    name = request.module.__name__.rpartition("test_")[2]
    folder = tmp_path_factory.mktemp("console")
    topics = {word: kafka.create_topic(f"{name}-{word}", 2) for word in ("rows", "said", "said-orders", "said-dead", "delivered")}
    kafka.alter_topic(topics["rows"], max_message_bytes=LIMIT)
    postgres.create_database(name)
    dsn = postgres.dsn(name)
    for command in (["migrate", "up"], ["partition", "make", "--from", "2027-01-05", "--table", "message"]):
        assert run_command(command, {"DATABASE_URL": dsn})[0] == 0
    with contextlib.ExitStack() as stack:
        business = stack.enter_context(Business(lambda _, ids: {id: EVIL for id in ids}))
        words = {"error": EVIL}  # of the application
        application = stack.enter_context(Application(lambda delivery: (422 if "bad" in delivery.ids else 500, words["error"])))
        path = folder / "relay.ini"
        path.write_text(CONFIG.format(said=topics["said"], delivered=topics["delivered"], folder=folder, business=business.url,
                                      application=application.url)
                        + caller("alice", ALICE, "read, operate, decide") + caller("bob", BOB, "read, operate, decide") + caller("watcher", WATCHER, "read") + caller("viewer", VIEWER, "read, payload")
                        + caller("shop", SENDER, "send", types="*")
                        + caller("limited", LIMITED, "read, operate", publishers="main", types="*"))
        path.chmod(0o600)
        key = folder / "session-key"  # sessions last when the tokens change
        key.write_text("a-key-of-sessions-that-nobody-will-guess")
        key.chmod(0o600)
        port = free_port()
        relay = stack.enter_context(Relay({
            "OUTBOX_RELAY_API_SESSION_KEY_FILE": str(key),
            "DATABASE_URL": dsn, "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap, "OUTBOX_RELAY_CONFIG": str(path),
            "OUTBOX_RELAY_API_LISTEN": str(port)}))
        relay.wait_event("api_listens")
        made = types.SimpleNamespace(relay=relay, port=port, url=f"http://127.0.0.1:{port}/console/", path=path,
                                     api=Api(port, ALICE), execute=lambda sql, values=None: postgres.execute(sql, values, name),
                                     connect=lambda **options: postgres.connect(name, **options),
                                     topic=topics["rows"], words=words, delivered=topics["delivered"],
                                     bootstrap=kafka.bootstrap)
        fill_world(made, kafka, topics)
        yield made
    postgres.drop_database(name)
    for topic in topics.values():
        kafka.delete_topic(topic)


def answers(world):
    with contextlib.suppress(OSError):
        return world.api.request("GET", "/console/session").status == 200
    return False


def park(world, *keys, topic=None):
    """A row too large for its topic of each key: the relay parks it. Their ids."""
    ids = []
    for key in keys:
        ids += world.execute("INSERT INTO outbox.message (topic, key, payload_bytes) VALUES (%s, %s, %s) RETURNING id",
                             (topic or world.topic, key, os.urandom(TOO_LARGE)))[0]
    wait_for(lambda: world.execute("SELECT count(*) FROM outbox.parked WHERE id = ANY(%s)", (ids,)) == [(len(ids),)],
             what="parked rows")
    return ids


def publish_rows(world, name, rows):
    """So many small rows of twenty keys, which Kafka has; the numbers of the first and the last."""
    first = world.execute("INSERT INTO outbox.message (topic, key, payload) SELECT %s, %s || '-' || i %% 20, '{}'"
                          " FROM generate_series(1, %s) i RETURNING id", (world.topic, name, rows))[0][0]
    last = first + rows - 1
    wait_for(lambda: world.api.request("GET", f"/v1/messages?id={last}").json["rows"][0]["publishers"][0]["state"] == "published",
             what="published messages")
    return first, last


def parked_count(world, ids):
    return world.execute("SELECT count(*) FROM outbox.parked WHERE id = ANY(%s)", (ids,))[0][0]


def fill_world(world, kafka, topics):
    world.ids = park(world, *(f"k{i}" for i in range(60)), EVIL)
    for id in ("1", "2", "a/b", EVIL):
        answer = world.api.as_(SENDER).post("prepare", {"version": 1, "biz_type": "orders", "biz_id": id,
                                                        "topic": topics["said-orders"], "payload": {}})
        assert answer.status == 202, answer.text
    wait_for(lambda: len(world.api.get("").json["rows"]) == 4, what="overdue ids")
    produce(kafka.bootstrap, topics["delivered"], [("one", "k", "{}"), ("bad", EVIL, "{}")])
    wait_for(lambda: "500" in world.api.request("GET", "/v1/deliver").json["sections"][0]["last_error"],
             what=lambda: world.api.request("GET", "/v1/deliver").text)
    wait_for(lambda: world.api.request("GET", "/v1/dead-letters").json["rows"], what="a dead letter")
    world.execute("INSERT INTO outbox.message (topic, key, payload, deliver_at) VALUES (%s, 'later', '{}', now() + interval '1 h')",
                  (world.topic,))
    wait_for(lambda: world.api.request("GET", "/v1/scheduled").json["rows"], what="a scheduled message")
    assert world.api.request("POST", "/v1/parked/retry", {"ids": [str(world.ids[0])], "reason": EVIL}).status == 202


@pytest.fixture(scope="module")
def chromium():
    with Browser() as browser:
        yield browser


@pytest.fixture
def browser(chromium, world):
    """The browser with alice logged in."""
    chromium.resize(WIDE)
    chromium.prefer("light")
    chromium.driver.delete_all_cookies()
    chromium.open(world.url)
    chromium.script("localStorage.clear()")
    log_in(chromium, world, ALICE)
    yield chromium
    assert chromium.script("return window.hacked") is None
    assert chromium.errors() == []


def log_in(browser, world, token):
    browser.driver.delete_all_cookies()
    browser.open(world.url + "#/overview")
    browser.driver.refresh()
    browser.fill("Token", token).press("Log in").see("Log out")
