"""Crowds of clients that cost much at [api]: beside each, the probes of [admin] and the verbs of other clients answer within a
second, and the memory of the relay is bounded and comes back. The crowds of test_listeners.py come to both listeners, and
know no token."""

import contextlib
import errno
import http.client
import itertools
import json
import socket
import struct
import threading
import time

import pytest

from support.api import CALLERS, OPERATE, READ, shared_api, start_api
from support.process import wait_for

ADDRESSES = [f"127.0.0.{i}" for i in range(2, 10)]  # the probes and verbs come from 127.0.0.1
SLOWEST = 1.0
ROUNDS = 15  # of probes and verbs beside each crowd
PARK = """INSERT INTO outbox.parked (publisher, shard, id, created_at, event_id, topic, key, payload, tick, state, error, attempts, next_at)
    SELECT 'main', 0, i, now(), outbox.new_event_id(), 'orders', convert_to('k' || i, 'UTF8'), 'x', 0, 'dead', 'too large', 3, now()
    FROM generate_series(1, 5000) i"""
MOST_MORE, MOST_KEPT = 160 << 20, 64 << 20  # bytes of memory during a crowd, and after it


@pytest.fixture(scope="module")
def relay(postgres, kafka, tmp_path_factory):
    sections = "[api]\nmax_body = 1MiB\n"
    with shared_api(postgres, kafka, tmp_path_factory.mktemp("crowds"), "crowds", READ, sections, (PARK,)) as (relay, api):
        relay.wait_ready()
        relay.api = api
        yield relay


def memory(relay):
    with open(f"/proc/{relay.process.pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS:")) << 10


# --- beside a crowd -------------------------------------------------------------------------------

VERBS = [("GET", "/v1/parked", READ, None), ("GET", "/v1/overview", READ, None),
         ("POST", "/v1/parked/preview", OPERATE, {"verb": "retry", "filter": {}}),
         ("POST", "/v1/publishers/main/pause", OPERATE, {"reason": "a crowd"}),
         ("POST", "/v1/publishers/main/resume", OPERATE, {"reason": "a crowd"})]
VERBS_OF_MAIN = [verb for verb in VERBS if "main" in verb[1]]


class Beside:
    """Probes and verbs meanwhile: how long each took, and the most memory that the relay had."""

    def __init__(self, relay, verbs):
        self.relay, self.verbs, self.before = relay, verbs, memory(relay)
        self.most, self.times = 0, {}

    def _took(self, name, call):
        begun = time.monotonic()
        status = call()
        self.times.setdefault(name, []).append(time.monotonic() - begun)
        assert status == 200, (name, status)
        self.most = max(self.most, memory(self.relay))

    def _verb(self, method, path, token, body):
        connection = http.client.HTTPConnection("127.0.0.1", self.relay.api.port, timeout=30)
        with contextlib.closing(connection):
            connection.request(method, path, body and json.dumps(body), {
                "Authorization": f"Bearer {token}", "Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            return answer.status

    def round(self):
        for path in ("/livez", "/readyz", "/metrics"):
            self._took(path, lambda path=path: self.relay.get(path)[0])
        for verb in self.verbs:
            self._took(verb[1], lambda verb=verb: self._verb(*verb))

    def check(self):
        for name, times in self.times.items():
            late = sorted(times)[len(times) * 95 // 100 - 1]
            print(f"{name}: median {sorted(times)[len(times) // 2] * 1000:.0f} ms, p95 {late * 1000:.0f} ms of {len(times)}")
            assert late < SLOWEST, (name, sorted(times))
        print(f"memory: {self.before >> 20} MiB, {self.most >> 20} MiB meanwhile, {memory(self.relay) >> 20} MiB then")
        assert self.most - self.before < MOST_MORE
        wait_for(lambda: memory(self.relay) - self.before < MOST_KEPT, 60, "the memory to come back")


@contextlib.contextmanager
def beside(relay, verbs=VERBS):
    seen = Beside(relay, verbs)
    seen.round()  # the sessions of the API are made at first use
    seen.times.clear()
    yield seen
    seen.check()


class Crowd:
    """Connections of several addresses; each sends `request` at once."""

    def __init__(self, port, count, request=b"", window=None):
        self.sockets = []
        for address in itertools.islice(itertools.cycle(ADDRESSES), count):
            sock = socket.socket()
            if window:  # before the connection: it limits also the buffer of the other side
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
            sock.bind((address, 0))
            sock.settimeout(30)
            sock.connect(("127.0.0.1", port))
            self.sockets.append(sock)
            if request:
                sock.sendall(request)
            sock.setblocking(False)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for sock in self.sockets:
            sock.close()

    def each(self, act):
        """Calls it for each connection that the relay has not ended."""
        ended = []
        for sock in self.sockets:
            try:
                if act(sock) == b"":
                    ended.append(sock)
            except BlockingIOError:
                pass
            except OSError:
                ended.append(sock)
        for sock in ended:
            self.sockets.remove(sock)
            sock.close()


def head(method="GET", path="/v1/overview", token=READ, *fields):
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", f"Authorization: Bearer {token}", *fields, "", ""]).encode()


def rounds_beside(seen, each_second=lambda: None, rounds=ROUNDS):
    """Rounds of probes and verbs, and what the crowd does each second, three times at least."""
    acted, ends = [], threading.Event()

    def act():
        while not ends.wait(1):
            each_second()
            acted.append(True)

    thread = threading.Thread(target=act)
    thread.start()
    try:
        while rounds > 0 or len(acted) < 3:
            seen.round()
            rounds -= 1
    finally:
        ends.set()
        thread.join()


def test_a_thousand_idle_connections(relay):
    with beside(relay) as seen, Crowd(relay.api.port, 1000):
        wait_for(lambda: relay.metric("relay_listener_connections", listener="api") >= 1000, 30, "their places")
        rounds_beside(seen)


def test_slow_writers_of_heads_and_bodies(relay, scale):
    """A byte a second."""
    count = scale(500, 100)
    body = head("POST", "/v1/parked/preview", OPERATE, "Content-Type: application/json", "Content-Length: 1000")
    with beside(relay) as seen, Crowd(relay.api.port, count, b"GET /v1/ov") as heads, Crowd(relay.api.port, count, body) as bodies:
        def drip():
            heads.each(lambda sock: sock.send(b"e"))
            bodies.each(lambda sock: sock.send(b" "))

        rounds_beside(seen, drip)


def test_slow_readers_of_long_answers(relay, scale):
    """A byte a second of pages and of exports, which come in turns: the queue of the API has 64 places."""
    page, export = head(path="/v1/parked?limit=1000"), head(path="/v1/parked?format=csv")
    with beside(relay) as seen, contextlib.ExitStack() as stack:
        crowds = []
        for request in [export] + [page] * scale(20, 3):
            crowds.append(stack.enter_context(Crowd(relay.api.port, 20, request, window=2048)))
            wait_for(lambda: all(begins(sock) for sock in crowds[-1].sockets), 30, "the answers")
        rounds_beside(seen, lambda: [crowd.each(lambda sock: sock.recv(1)) for crowd in crowds])


def begins(sock):
    """The answer began; its bytes stay in the socket."""
    with contextlib.suppress(BlockingIOError):
        begun = sock.recv(2000, socket.MSG_PEEK)
        assert begun.startswith(b"HTTP/1.1 200"), begun
        return True
    return False


@pytest.mark.parametrize("coding", ["Content-Length: 99999999999", "Transfer-Encoding: chunked"])
def test_bodies_beyond_the_limit_are_not_read_to_their_end(relay, coding, scale):
    """413, then the connection ends; the client has sent what the relay drops, and what the kernel holds."""
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n" if "chunked" in coding else b" " * 0x10000
    request = head("POST", "/v1/parked/preview", OPERATE, "Content-Type: application/json", coding)
    sent, answers = [], []

    def flood():
        with socket.create_connection(("127.0.0.1", relay.api.port), 30, (ADDRESSES[0], 0)) as sock:
            total = 0
            try:
                sock.sendall(request)
                while total < 1 << 30:
                    total += sock.send(chunk)
            except OSError as error:
                assert error.errno in (errno.EPIPE, errno.ECONNRESET), error
            sent.append(total)
            with contextlib.suppress(OSError):
                answers.append(sock.recv(100))

    with beside(relay) as seen:
        threads = [threading.Thread(target=flood) for _ in range(scale(64, 8))]
        for thread in threads:
            thread.start()
        rounds_beside(seen, rounds=5)
        for thread in threads:
            thread.join()
    assert len(sent) == len(threads) and max(sent) < 32 << 20, sorted(sent)
    assert all(answer.startswith(b"HTTP/1.1 413 ") for answer in answers if answer), answers


def test_clients_that_never_read_their_events(database, make_relay, tmp_path, scale, full):
    """Each wants all events since the start; with --full these are more than its window and the buffers of the kernel take."""
    name, shards = "a-name-that-makes-events-long", scale(64, 4)
    database.execute("SELECT outbox.publisher_create(%s, %s, 'now')", (name, shards))
    relay, relay.api = start_api(make_relay, tmp_path, READ, CALLERS + f'[publisher "main"]\n[publisher "{name}"]\nshards = {shards}\n')
    relay.wait_for(lambda: relay.metric("relay_owner", publisher=name) == shards, what="the shards")
    process = relay.api.request("GET", "/v1/overview").json["process"]["name"]
    request = head("GET", "/v1/events", READ, f"Last-Event-ID: 0@{process}")
    with beside(relay, VERBS_OF_MAIN) as seen, Crowd(relay.api.port, 32, request, window=2048) as deaf:
        wait_for(lambda: all(begins(sock) for sock in deaf.sockets), 30, "the streams")
        refused = relay.api.request("GET", "/v1/events")
        assert (refused.status, refused.code, refused.headers["Retry-After"]) == (429, "too_many_streams", "1")
        rounds_beside(seen)
        if full:  # each loss of a shard is one more; then half a minute
            database.execute("SELECT outbox.publisher_drop(%s)", (name,))
            relay.wait_for(lambda: relay.metric("relay_listener_refused_total", listener="api", reason="unread") == 32, what="their end")


def test_requests_behind_one_another_in_one_connection(relay, scale):
    """Only the first is read (test_listeners.py)."""
    count = scale(500, 100)
    with beside(relay) as seen:
        ends = threading.Event()

        def pipeline():
            while not ends.wait(0.05):
                with Crowd(relay.api.port, 20) as crowd:
                    for sock in crowd.sockets:
                        with contextlib.suppress(OSError):
                            sock.setblocking(True)
                            sock.sendall(head(path="/v1/series") * count)

        thread = threading.Thread(target=pipeline)
        thread.start()
        rounds_beside(seen)
        ends.set()
        thread.join()


def test_connections_that_are_opened_and_closed_at_once(relay, scale):
    """Half of them with a reset, half of them behind a request whose answer nobody reads."""
    with beside(relay) as seen:
        thread = threading.Thread(target=come_and_go, args=(relay.api.port, scale(50_000)))
        thread.start()
        rounds_beside(seen, rounds=5)
        while thread.is_alive():
            seen.round()
        thread.join()
    wait_for(lambda: relay.metric("relay_listener_connections", listener="api") == 0, 30, "the last connection to be closed")


def come_and_go(port, count):
    for i in range(count):
        with socket.socket() as sock:
            sock.bind((ADDRESSES[i % len(ADDRESSES)], 0))
            sock.connect(("127.0.0.1", port))
            if i % 2:
                sock.sendall(head(path="/v1/series"))
            if i % 4 < 2:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def test_too_many_calls_at_once_are_refused_for_a_moment(relay, scale):
    """The pool of the API has a queue; a call for which it has no place gets 503, and comes again after a second."""
    count = scale(600, 300)
    with beside(relay, ()) as seen, Crowd(relay.api.port, count, head(path="/v1/parked?limit=1000")) as crowd:
        seen.round()
        answers = [read_all(sock) for sock in crowd.sockets]
        assert {answer.split()[1] for answer in answers} == {b"200", b"503"}
        assert all(b"\r\nRetry-After: 1\r\n" in answer for answer in answers if answer.split()[1] == b"503")


def read_all(sock):
    sock.settimeout(30)
    answer = b""
    while part := sock.recv(1 << 16):
        answer += part
    return answer
