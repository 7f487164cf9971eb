"""Cases of the look-back that are named here as they are in docs/explain/lookback-cases.md: what a business may
answer to a real relay, and what must not be possible, whoever says where it is to ask."""

import base64
import contextlib
import hmac
import json
import os
import signal
import socket
import subprocess
import threading
import time
import types
import zlib

import pytest
from confluent_kafka import Producer

from support.http_service import Service, drip, endless, pair, say_of_each, silence
from support.lookback import Case, base64_text, configuration, in_headers, message
from support.postgres import Postgres
from support.process import wait_for
from support.relay import Relay, run_command

LOCAL = "127.0.0.1"
OFTEN = {"networks": LOCAL, "retry_first": "50ms", "retry_max": "200ms", "pending_every": "200ms",
         "timeout": "500ms", "connect_timeout": "500ms", "breaker_failures": 1000000,
         "max_attempts": 1000000}


def asked_of(request):
    return json.loads(request.body)["biz_id"]


def say_commit(request, status=200, **headers):
    request.say(json.dumps(pair(asked_of(request), "commit")), status, **headers)


@pytest.fixture
def case(database, kafka, make_relay, request):
    return Case(database, kafka, make_relay, f"lbc{zlib.crc32(request.node.nodeid.encode())}")


# --- what a business answers ----------------------------------------------------------------------

# What is answered, and what is told of it. Who took the body alone would find "commit" in some.
CALLBACKS = {
    "404": (lambda request: say_commit(request, 404), "404"),
    "410": (lambda request: say_commit(request, 410), "410"),
    "429+Retry-After": (lambda request: say_commit(request, 429, Retry_After="1"), "429"),
    "500": (lambda request: say_commit(request, 500), "500"),
    "timeout": (silence, "timed out"),
    "redirect": (lambda request: say_commit(request, 307, Location="/elsewhere"), "307"),
    "garbage": (lambda request: request.say("Object reference not set to an instance"), "answer"),
    "huge": (endless, "too_large"),
    "slow-drip": (drip, "timed out"),
}


class Asked:
    """A relay whose business answers each id as it is told: answers[id](request)."""

    def __init__(self, case, service):
        self.case, self.service = case, service
        self.answers, self.times = {}, {}

    def answer(self, request):
        id = asked_of(request)
        self.times.setdefault(id, []).append(time.monotonic())
        self.answers[id](request)

    def overdue(self, id):
        """(state, attempts, last_error)"""
        rows = self.case.database.execute(
            "SELECT state, attempts, last_error FROM outbox.lookback_overdue WHERE biz_id = %s", (id,))
        return rows[0] if rows else (None, 0, None)


@pytest.fixture(scope="module")
def asked(postgres, migrated, kafka):
    """One for all answers, as each id has its own."""
    name = f"lbcases{os.getpid()}"
    postgres.create_database(name, template=migrated())
    database = types.SimpleNamespace(
        execute=lambda statement, parameters=None: postgres.execute(statement, parameters, name))
    with contextlib.ExitStack() as open_ones:
        def make_relay(arguments):
            return open_ones.enter_context(Relay(
                {"DATABASE_URL": postgres.dsn(name),
                 "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap}, arguments))

        case = Case(database, kafka, make_relay, name, check_after="200ms")
        asked = Asked(case, open_ones.enter_context(Service(lambda request: asked.answer(request))))
        case.check = {**OFTEN, "url": asked.service.url}
        asked.relay = case.relay().wait_ready()
        yield asked
    postgres.drop_database(name)


@pytest.mark.parametrize("what", CALLBACKS)
def test_callback(asked, what):
    """It decides nothing, however often; the right answer still does."""
    asked.answers[what], word = CALLBACKS[what]
    asked.case.application.prepare(what)
    asked.relay.wait_for(lambda: asked.overdue(what)[1] >= 3, what="three attempts that decided nothing")
    state, _, error = asked.overdue(what)
    assert state == "overdue" and word in error
    assert what not in asked.case.decided()
    assert not [request for request in asked.service.requests if "elsewhere" in request.path]
    times = list(asked.times[what])
    if what == "429+Retry-After":
        assert min(later - sooner for sooner, later in zip(times, times[1:])) > 0.9
    asked.answers[what] = say_commit
    asked.relay.wait_for(lambda: asked.case.decided().get(what) == "commit", what="the right answer")
    wait_for(lambda: asked.case.ids().count(what) == 1, 60, "its message")


def test_worker_dies_while_a_callback_is_in_flight(case):
    """Another one asks again when the claim is over, and the id is decided once."""
    held = threading.Event()

    def answer(request):
        if len(service.requests) == 1:
            held.wait(60)
        say_commit(request)

    with Service(answer) as service:
        case.check = {**OFTEN, "url": service.url, "timeout": "60s"}
        case.settings.update(check_after="200ms", claim="1s")
        first = case.relay().wait_ready()
        case.application.prepare("1")
        wait_for(lambda: service.requests, 60, "the callback")
        first.kill()
        second = case.relay()
        second.wait_for(lambda: case.decided() == {"1": "commit"}, what="the second callback's answer")
        held.set()
        wait_for(lambda: case.ids() == ["1"], 60, "its message")
    assert len(service.requests) >= 2 and case.conflicts() == []


def test_an_answer_after_the_end_of_its_claim_parks_nothing(case):
    held = threading.Event()

    def answer(request):
        held.wait(60)
        request.say("no answer", 500)

    with Service(answer) as service:
        case.check = {**OFTEN, "url": service.url, "timeout": "60s", "max_attempts": 1}
        case.settings.update(check_after="200ms", claim="120s")
        relay = case.relay().wait_ready()
        case.application.prepare("1")
        relay.wait_for(lambda: service.requests, what="the callback")
        case.database.execute("UPDATE outbox.lookback_overdue SET claim = claim + 1")
        held.set()
        relay.wait_for(lambda: relay.metric("relay_lookback_late_answers_total", section="shop") == 1,
                       what="the answer that came too late")
    assert case.database.execute("SELECT state, attempts FROM outbox.lookback_overdue") == [("overdue", 0)]
    assert relay.metric("relay_lookback_parks_total", section="shop") == 0
    assert relay.events("lookback_parked") == []


def signatures(key, request):
    signed = f"{request.headers['webhook-id']}.{request.headers['webhook-timestamp']}.".encode()
    return "v1," + base64.b64encode(hmac.digest(key, signed + request.body, "sha256")).decode()


def test_change_of_a_secret(case, tmp_path):
    """A reload says that it takes a restart; then requests carry both signatures, the newer first."""
    old, new = b"o" * 24, b"n" * 24
    files = {name: tmp_path / name for name in ("secret", "old_secret")}

    def write(name, key):
        files[name].write_text("whsec_" + base64.b64encode(key).decode() + "\n")

    write("secret", old)
    with Service(say_of_each("pending")) as service:
        case.check = {**OFTEN, "url": service.url, "secret_file": files["secret"]}
        case.settings["check_after"] = "200ms"
        relay = case.relay().wait_ready()
        case.application.prepare("1")
        wait_for(lambda: service.requests, 60, "a question")
        write("secret", new)
        relay.process.send(signal.SIGHUP)
        relay.wait_event("reload_incomplete", setting="check.shop.secret: restart to apply")
        before = len(service.requests)
        wait_for(lambda: len(service.requests) > before, 60, "another question")
        assert all(request.headers["webhook-signature"] == signatures(old, request)
                   for request in service.requests)
        assert relay.stop() == 0
        write("old_secret", old)
        case.check["old_secret_file"] = files["old_secret"]
        before = len(service.requests)
        case.relay()
        wait_for(lambda: len(service.requests) > before, 60, "a question after the restart")
        request = service.requests[before]
        assert request.headers["webhook-signature"].split() == [
            signatures(new, request), signatures(old, request)]


# --- clocks ---------------------------------------------------------------------------------------

SHIFT = r"""
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>

int clock_gettime(clockid_t which, struct timespec *now)
{
	int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
	int result = real(which, now);

	if (which == CLOCK_REALTIME)
		now->tv_sec += SECONDS;
	return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
	int (*real)(struct timeval *, void *) = dlsym(RTLD_NEXT, "gettimeofday");
	int result = real(now, zone);

	now->tv_sec += SECONDS;
	return result;
}

time_t time(time_t *now)
{
	time_t (*real)(time_t *) = dlsym(RTLD_NEXT, "time");
	time_t seconds = real(NULL) + SECONDS;

	if (now)
		*now = seconds;
	return seconds;
}
"""


@pytest.fixture(params=[3600, -3600], ids=["an hour behind", "an hour ahead"])
def other_time(request, tmp_path):
    """A database whose clock differs by an hour from that of everybody else, the relay among them."""
    with Postgres() as server:
        server.stop()
        library, source = os.path.join(server.folder, "shift.so"), tmp_path / "shift.c"
        source.write_text(SHIFT)
        subprocess.run(["cc", "-shared", "-fPIC", "-D_GNU_SOURCE", f"-DSECONDS={request.param}",
                        "-o", library, source, "-ldl"], check=True)
        server.wrapper = ["env", f"LD_PRELOAD={library}"]
        server.start()
        off = server.execute("SELECT extract(epoch FROM clock_timestamp())")[0][0]
        assert abs(float(off) - time.time() - request.param) < 600
        server.create_database("other_time")
        assert run_command(["migrate", "up"], {"DATABASE_URL": server.dsn("other_time")})[0] == 0
        yield types.SimpleNamespace(
            dsn=server.dsn("other_time"),
            execute=lambda statement, parameters=None: server.execute(statement, parameters, "other_time"))


@pytest.mark.rotated
def test_clock_of_the_relay_off_by_an_hour(other_time, kafka, make_relay, request):
    """The database's clock alone says what is due and what has expired: nothing is asked about an hour
    too soon or too late, and nothing expires."""
    case = Case(other_time, kafka, lambda **more: make_relay(database_url=other_time.dsn, **more),
                f"lbc{zlib.crc32(request.node.nodeid.encode())}", check_after="1s", expires_after="30m")
    words = {"1": "pending"}
    with Service(lambda request: request.say(json.dumps(
            pair(asked_of(request), words.get(asked_of(request), "unknown"))))) as service:
        case.check = {**OFTEN, "url": service.url, "pending_max": "20m"}
        relay = case.relay().wait_ready()
        case.application.prepare("1")
        case.application.prepare("later", check_after="20m")
        case.application.prepare("short", expires_after="2s")
        relay.wait_for(lambda: len([r for r in service.requests if asked_of(r) == "1"]) >= 3,
                       what="several callbacks")
        relay.wait_for(lambda: dict(case.database.execute(
            "SELECT biz_id, state FROM outbox.lookback_overdue")) == {"1": "overdue", "short": "parked"},
            what="the one that has expired to be parked, and it alone")
        words["1"] = "commit"
        relay.wait_for(lambda: case.decided() == {"1": "commit"}, what="the answer")
        wait_for(lambda: case.ids() == ["1"], 60, "its message")
        assert "later" not in map(asked_of, service.requests)


# --- sizes ----------------------------------------------------------------------------------------

def test_10_mb_payload(case):
    """A dead letter while the tables do not take it, and nothing else waits; published when they do."""
    large = {"max_message_bytes": 30_000_000}
    for topic in case.topics.values():
        case.kafka.alter_topic(topic, **large)
    case.application.producer = Producer({
        "bootstrap.servers": case.kafka.bootstrap, "message.max.bytes": 30_000_000, "linger.ms": 0,
        "enable.idempotence": True, "partitioner": "murmur2_random"})
    path = configuration(("check \"shop\"", case.check), ("lookback \"shop\"", case.settings))
    relay = case.make_relay(arguments=("run", "--config", path), kafka_message_max_bytes=30_000_000)
    relay.wait_ready()
    value = os.urandom(10_000_000)

    def send(suffix):
        orders = case.topics["orders"]
        case.application.send(
            in_headers("prepare", "order", f"raw{suffix}", value, topic=orders, key=f"raw{suffix}"),
            message("prepare", "order", f"json{suffix}", topic=orders, key=f"json{suffix}",
                    payload_base64=base64_text(value)),
            case.application.prepared(f"small{suffix}"))
        case.application.commit(*(word + suffix for word in ("raw", "json", "small")))

    send("1")
    wait_for(lambda: case.decided() == {"small1": "commit"}, 60, "the small one")
    def letters():
        """The payloads of dead letters that came in parts, by offset; {} while some are missing."""
        parts = {}
        for record in case.records("dead"):
            headers = dict(record.headers)
            assert headers["dead-letter-reason"] == b"not_storable"
            number, total = map(int, headers["dead-letter-part"].split(b"/"))
            place = headers["dead-letter-partition"], headers["dead-letter-offset"]
            parts.setdefault((place, total), {})[number] = record.payload
        whole = [len(held) == total for (_, total), held in parts.items()]
        return [b"".join(held[number] for number in sorted(held) if number > 1)
                for held in parts.values()] if len(whole) == 2 and all(whole) else []

    wait_for(letters, 60, "all parts of two dead letters")
    found = sorted(letters(), key=len)
    assert found[0] == value and base64_text(value).encode() in found[1]
    dead = len(case.records("dead"))
    case.database.execute("SELECT outbox.set_max_message_bytes(20000000)")
    send("2")
    wait_for(lambda: len(case.decided()) == 4, 60, "the decisions")
    wait_for(lambda: case.ids() == ["json2", "raw2", "small1", "small2"], 120, "all three")
    assert {record.key: record.payload == value for record in case.records()
            if not record.key.startswith(b"small")} == {b"json2": True, b"raw2": True}
    assert len(case.records("dead")) == dead


# --- where an attacker wants it to ask ------------------------------------------------------------

class Trap:
    """Counts who connects to a port of this machine, by IPv4 or IPv6."""

    def __init__(self):
        self.connections = 0
        self.sockets = [socket.create_server((LOCAL, 0))]
        self.port = self.sockets[0].getsockname()[1]
        with contextlib.suppress(OSError):  # without IPv6
            self.sockets.append(socket.create_server(("::1", self.port), family=socket.AF_INET6))
        self.threads = [threading.Thread(target=self._accept, args=(one,)) for one in self.sockets]

    def _accept(self, listening):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listening.accept()
                self.connections += 1
                connection.close()

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_):
        for listening in self.sockets:
            listening.shutdown(socket.SHUT_RDWR)
            listening.close()
        for thread in self.threads:
            thread.join()


def test_check_urls_of_an_attacker_cause_no_request(case):
    """Not by the text of a URL, though the list allows it, nor by a redirect, nor by a proxy that the
    environment names; and what a service says without end is cut off."""
    with Trap() as trap, Service(lambda request: ATTACKS[request.path](request)) as service:
        ATTACKS = {
            "/right": say_of_each("commit"),
            "/redirect": lambda request: say_commit(
                request, 302, Location=f"http://{LOCAL}:{trap.port}/"),
            "/huge": lambda request: request.say(" " * 1_000_000 + json.dumps(pair("huge", "commit"))),
            "/endless": endless,
        }
        # allowed as a text: addresses are looked at when a socket is opened
        listed = [f"http://{host}:{trap.port}/" for host in (
            LOCAL, "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "127.255.255.254")]
        listed += ["http://169.254.169.254/latest/meta-data/", "http://[fd00:ec2::254]/"]
        refused = [f"http://{host}:{trap.port}/" for host in (
            "127.1", "127.0.1", "0x7f.1", "0x7f000001", "2130706433", "017700000001", "0177.0.0.1", "0",
            "%31%32%37.0.0.1", "[::]", "localhost.", "evil.example")]
        refused += [f"http://{LOCAL}:{trap.port}@evil.example/", f"http://{LOCAL}:{trap.port}/../x",
                    f"https://{LOCAL}:{trap.port}/", f"file://{LOCAL}/etc/passwd",
                    f"gopher://{LOCAL}:{trap.port}/_x", f"dict://{LOCAL}:{trap.port}/",
                    "http://169.254.169.254/other", "//localhost/", "localhost"]
        proxy = f"http://{LOCAL}:{trap.port}"
        own = f"http://{LOCAL}:{service.server_port}"
        path = configuration(
            ("check \"shop\"", {**OFTEN, "url": f"{own}/right", "allow": own}),
            ("check \"listed\"", {**OFTEN, "networks": "", "allow": ", ".join(listed)}),
            ("lookback \"shop\"", {**case.settings, "check_after": "200ms"}))
        relay = case.make_relay(arguments=("run", "--config", path), wrapper=(
            "env", *(f"{name}={proxy}" for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY",
                                                    "https_proxy", "HTTPS_PROXY"))))
        relay.wait_ready()
        case.application.send(
            *(case.application.prepared(url, check_url=url, check_service=check)
              for check, urls in (("listed", listed), ("listed", refused)) for url in urls),
            *(case.application.prepared(f"of any: {url}", check_url=url) for url in refused),
            *(case.application.prepared(name, check_url=f"{own}/{name}")
              for name in ("redirect", "huge", "endless")),
            case.application.prepared("right"))
        relay.wait_for(lambda: case.decided() == {"right": "commit"}, what="the one that may be asked")
        relay.wait_for(lambda: len(case.records("dead")) == 2 * len(refused), what="the refused ones")
        tried = "SELECT biz_id, attempts FROM outbox.lookback_overdue WHERE last_error LIKE %s"
        relay.wait_for(lambda: case.database.execute(tried, ("%address is refused%",)), what="tries")
        relay.wait_for(lambda: dict(case.database.execute(tried, ("%address is refused%",)))
                       == dict.fromkeys(listed, 0), what="each address to be refused, at no attempt")
        relay.wait_for(lambda: set(dict(case.database.execute(
            "SELECT biz_id, attempts FROM outbox.lookback_overdue WHERE attempts >= 2"))) == {
                "redirect", "huge", "endless"}, what="the answers that decide nothing")
        assert trap.connections == 0
        assert {dict(record.headers)["dead-letter-reason"] for record in case.records("dead")} == {
            b"url_not_allowed"}
        assert case.ids() == ["right"]
