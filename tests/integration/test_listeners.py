"""The doors of the program, [admin] and [api]: who may come in, how long, and with what. Hostile
clients have no token; whatever they do, probes and applications are answered."""

import contextlib
import json
import os
import re
import socket
import statistics
import threading
import time

import pytest

from support.api import CONFIG, READ, READER, SEND, SENDER, caller, decision, prepare, shared_api, start_api
from support.hostile import Attack, exchange
from support.process import free_port, wait_for
from support.relay import run_command

CONFIG_ERROR = 78
LOOPBACKS = [f"127.0.0.{i}" for i in range(1, 9)]


@pytest.fixture(scope="module")
def relay(postgres, kafka, tmp_path_factory):
    """One for all that changes nothing. Both listeners have a name besides their address."""
    sections = ("[admin]\nhost = relay.example, probes.example\n"
                "[api]\nhost = relay.example\n")
    with shared_api(postgres, kafka, tmp_path_factory.mktemp("listeners"), "listeners", SEND,
                    sections) as (relay, api):
        relay.wait_ready()
        relay.api = api
        yield relay
        assert SEND not in relay.output()


@pytest.fixture
def make_api_relay(make_relay, topic, tmp_path):
    def make(**settings):
        return start_api(make_relay, tmp_path, SEND, CONFIG.format(topic=topic) + SENDER, **settings)
    return make


@pytest.fixture(params=["admin", "api"])
def door(request, relay):
    """(port, a request that is answered with 200 there, without its last empty line)"""
    if request.param == "admin":
        return relay.admin_port, b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"
    return relay.api.port, (b"GET /v1/lookback HTTP/1.1\r\nHost: localhost\r\n"
                            b"Authorization: Bearer " + READ.encode() + b"\r\n")


def status(answer):
    assert answer.startswith(b"HTTP/1.1 "), answer
    return int(answer.split()[1])


# --- hostile clients ------------------------------------------------------------------------------

@pytest.mark.parametrize("sources", [["127.0.0.1"], LOOPBACKS[1:], LOOPBACKS])
def test_probes_are_answered_whatever_2000_hostile_clients_do(relay, sources):
    head = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
    times = []
    with Attack(relay.admin_port, 2000, head, sources) as attack:
        first, started = attack.rounds, time.monotonic()
        # A busy machine makes rounds and clients slower: counts are waited for.
        while len(times) < 60 or attack.rounds < first + 10 or attack.cut_off <= 500:
            assert time.monotonic() - started < 300, (len(times), attack.rounds - first, attack.cut_off)
            for path in ("/livez", "/readyz", "/metrics"):
                begun = time.monotonic()
                assert relay.get(path)[0] == 200, (path, len(times))
                times.append(time.monotonic() - begun)
        assert relay.metric("relay_listener_connections", listener="admin") <= 1024
        relay.wait_for(lambda: relay.metric("relay_listener_refused_total", listener="admin", reason="evicted") > 500,
                       what="500 evicted clients")
    assert statistics.median(times) < 2 and max(times) < 20, sorted(times)[-5:]


@pytest.mark.parametrize("sources", [["127.0.0.1"], LOOPBACKS[1:]])
def test_applications_are_answered_whatever_2000_hostile_clients_do(relay, sources):
    head = (b"POST /v1/lookback/commit HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n"
            b"Content-Type: application/json\r\n\r\n" + b"x" * 1000)
    times = []
    with Attack(relay.api.port, 2000, head, sources) as attack:
        while len(times) < 50 or attack.cut_off <= 500:
            assert sum(times) < 300, attack.cut_off
            begun = time.monotonic()
            assert relay.api.post("commit", {}).code == "missing_field"
            times.append(time.monotonic() - begun)
    assert statistics.median(times) < 2 and max(times) < 20, sorted(times)[-5:]


@contextlib.contextmanager
def many(port, count, request, source="127.0.0.1"):
    with contextlib.ExitStack() as stack:
        socks = []
        for _ in range(count):
            sock = stack.enter_context(
                socket.create_connection(("127.0.0.1", port), 30, (source, 0)))
            sock.sendall(request)
            socks.append(sock)
        yield socks


def is_cut_off(sock):
    with contextlib.suppress(ConnectionResetError, BlockingIOError):
        sock.setblocking(False)
        return sock.recv(1) == b""
    return False


def test_one_address_never_has_all_places(relay, door):
    """600 connections of one address take 512 places, and none of another address' connection."""
    port, good = door
    with many(port, 1, b"", source="127.0.0.7") as (other,), many(port, 600, b"G") as socks:
        wait_for(lambda: sum(map(is_cut_off, socks[:200])) >= 88, 30, "the places of the address")
        assert not is_cut_off(other)
        other.setblocking(True)
        other.settimeout(30)
        other.sendall(good + b"\r\n")
        assert status(other.recv(65536)) == 200


def test_a_head_has_seconds_to_arrive_however_often_a_byte_comes(relay, door):
    port, good = door
    answer = b""
    begun = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), 30) as sock, pytest.raises(OSError):
        sock.settimeout(0.2)
        for byte in (good + b"X-Y: ") * 10:
            sock.sendall(bytes([byte]))
            with contextlib.suppress(TimeoutError):
                part = sock.recv(1000)
                answer += part
                if part == b"":
                    raise ConnectionError("cut off")
    assert status(answer) == 408
    assert 3 < time.monotonic() - begun < 30


def test_a_body_has_its_time_to_arrive_however_often_a_byte_comes(make_api_relay):
    """With a token or without: both connections end, the second one at once."""
    relay, api = make_api_relay(api_arrival="2s")
    for token, least in ((SEND, 1), ("a-token-that-nobody-has", 0)):
        head = (b"POST /v1/lookback/commit HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999\r\n"
                b"Content-Type: application/json\r\nAuthorization: Bearer " + token.encode()
                + b"\r\n\r\n")
        begun = time.monotonic()
        with socket.create_connection(("127.0.0.1", api.port), 30) as sock, \
                pytest.raises(OSError):
            sock.sendall(head)
            sock.settimeout(0.2)
            while time.monotonic() - begun < 60:
                sock.sendall(b" ")
                with contextlib.suppress(TimeoutError):
                    if sock.recv(1000) == b"":
                        raise ConnectionError("cut off")
        assert least < time.monotonic() - begun < 20
    relay.wait_for(lambda: relay.metric("relay_listener_refused_total", listener="api", reason="late") == 1,
                   what="the metric")


def test_a_client_that_does_not_read_its_answers_keeps_no_memory(relay):
    """Each of 400 asks for 100 pages that it never reads."""
    page = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"
    before = resident(relay)
    with many(relay.admin_port, 400, page * 100):
        for _ in range(20):
            assert relay.get("/livez")[0] == 200
        assert resident(relay) - before < 150 << 20


def resident(relay):
    with open(f"/proc/{relay.process.pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# --- strict HTTP ----------------------------------------------------------------------------------

CHUNKED = b"Transfer-Encoding: chunked\r\n"
BODY = b"0\r\n\r\n"
BAD = {
    "length and coding": (b"Content-Length: 5\r\n" + CHUNKED + b"\r\n" + BODY),
    "coding and length": (CHUNKED + b"Content-Length: 5\r\n\r\n" + BODY),
    "two lengths": b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
    "the same length twice": b"Content-Length: 1\r\nContent-Length: 1\r\n\r\nx",
    "two lengths in one": b"Content-Length: 1, 1\r\n\r\nx",
    "a signed length": b"Content-Length: +1\r\n\r\nx",
    "a hexadecimal length": b"Content-Length: 0x1\r\n\r\nx",
    "an empty length": b"Content-Length: \r\n\r\n",
    "a length without end": b"Content-Length: 99999999999999999999\r\n\r\n",
    "a blank before the colon": b"Content-Length : 0\r\n\r\n",
    "a tab before the colon": b"X-Y\t: 0\r\n\r\n",
    "a name without a character": b": 0\r\n\r\n",
    "no colon": b"nonsense\r\n\r\n",
    "a folded field": b"X-Y: 1\r\n 2\r\n\r\n",
    "a bare LF behind a field": b"X-Y: 1\n\r\n",
    "a bare LF at the end": b"X-Y: 1\r\n\n",
    "a bare CR": b"X-Y: 1\rZ: 2\r\n\r\n",
    "another coding": b"Transfer-Encoding: gzip\r\n\r\n",
    "a coding that ends otherwise": b"Transfer-Encoding: chunked, gzip\r\n\r\n" + BODY,
    "a coding by a similar name": b"Transfer-Encoding: xchunked\r\n\r\n" + BODY,
    "two codings": CHUNKED + CHUNKED + b"\r\n" + BODY,
    "a vertical tab": b"Transfer-Encoding: \x0bchunked\r\n\r\n" + BODY,
    "a second host": b"Host: localhost\r\n\r\n",
    "a NUL in a value": b"X-Y: a\0b\r\n\r\n",
    "a NUL in a name": b"X\0Y: b\r\n\r\n",
    "a NUL behind the token": b"Authorization: Bearer " + READ.encode() + b"\0x\r\n\r\n",
    "too many fields": b"X-Y: 1\r\n" * 100 + b"\r\n",
}


@pytest.mark.parametrize("name", BAD)
def test_a_request_that_could_be_read_in_two_ways_is_refused_and_the_connection_closed(door, name):
    port, good = door
    hidden = good + b"\r\n"
    answer = exchange(port, good + BAD[name] + hidden)
    assert status(answer) == 400, answer
    assert answer.count(b"HTTP/1.1 ") == 1  # what stood behind it was not read as a request
    assert b"connection: close" in answer.lower()


LINES = {
    "no host": b"GET /livez HTTP/1.1\r\n\r\n",
    "no host in 1.0": b"GET /livez HTTP/1.0\r\n\r\n",
    "an empty host": b"GET /livez HTTP/1.1\r\nHost:\r\n\r\n",
    "chunked in 1.0": b"POST /livez HTTP/1.0\r\nHost: localhost\r\n" + CHUNKED + b"\r\n" + BODY,
    "a NUL in the path": b"GET /li\0vez HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "an encoded NUL in the path": b"GET /livez%00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "an encoded NUL in an argument": b"GET /livez?a=%00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "half a code in the path": b"GET /livez%4 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a bare LF behind the first line": b"GET /livez HTTP/1.1\nHost: localhost\r\n\r\n",
    "bare LFs": b"GET /livez HTTP/1.1\nHost: localhost\n\n",
    "two blanks": b"GET  /livez HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a tab": b"GET\t/livez\tHTTP/1.1\r\nHost: localhost\r\n\r\n",
    "no version": b"GET /livez\r\nHost: localhost\r\n\r\n",
    "another version": b"GET /livez HTTP/3.7\r\nHost: localhost\r\n\r\n",
    "a whole URL": b"GET http://localhost/livez HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "no slash": b"GET livez HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "an empty line first": b"\r\nGET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
}


@pytest.mark.parametrize("name", LINES)
def test_a_first_line_that_is_not_plain_is_refused_and_the_connection_closed(door, name):
    answer = exchange(door[0], LINES[name])
    assert status(answer) == 400, answer
    assert b"connection: close" in answer.lower()


@pytest.mark.parametrize("request_head,code,word", [
    (b"GET /v1/deliver HTTP/1.1\r\nHost: shop.example\r\n\r\n", 400, "host lists further ones"),
    (b"GET /v1/deliver HTTP/1.1\r\nHost: localhost\r\nX-Y: " + b"x" * 20000, 431, "16 KiB")])
def test_a_request_that_is_refused_before_it_is_read_gets_an_id(relay, request_head, code, word):
    head, _, body = exchange(relay.api.port, request_head).partition(b"\r\n\r\n")
    problem = json.loads(body)
    assert status(head) == code and b"\r\nContent-Type: application/problem+json\r\n" in head
    assert word in problem.pop("detail")
    (request_id,) = re.findall(rb"\r\nX-Request-Id: ([0-9a-f]{16})\r\n", head)
    assert problem == {"type": "urn:outbox-relay:problem:bad_request", "status": code,
                       "instance": f"urn:outbox-relay:request:{request_id.decode()}", "title": "The request violates HTTP or a rule of the listener"}


@pytest.mark.parametrize("body", [
    b"5\r\n{}\r\n", b"x\r\n", b"\r\n", b"-1\r\n", b"2\r\n{}0\r\n\r\n", b"2 \r\n{}\r\n",
    b"2;x\r\n{}\0\n0\r\n\r\n", b"0x2\r\n{}\r\n0\r\n\r\n"])
def test_chunks_that_are_not_well_formed_are_refused(relay, body):
    head = (b"POST /v1/lookback/commit HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "
            + SEND.encode() + b"\r\nContent-Type: application/json\r\n" + CHUNKED + b"\r\n")
    hidden = b"GET /v1/lookback HTTP/1.1\r\nHost: localhost\r\n\r\n"
    answer = exchange(relay.api.port, head + body + b"x" * 10 + hidden)
    assert status(answer) == 400 and answer.count(b"HTTP/1.1 ") == 1, answer
    assert b"connection: close" in answer.lower()


def test_chunks_come_in_any_pieces(relay):
    head = (b"POST /v1/lookback/commit HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "
            + SEND.encode() + b"\r\nConnection: close\r\nContent-Type: application/json\r\n"
            + CHUNKED + b"\r\n")
    request = head + b"1;name=value\r\n{\r\n1\r\n}\r\n0\r\n\r\n"
    with socket.create_connection(("127.0.0.1", relay.api.port), 30) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for i in range(len(request)):
            sock.sendall(request[i:i + 1])
        answer = sock.recv(65536)
    assert status(answer) == 400 and b"missing_field" in answer  # of the message, not of HTTP


def test_a_head_that_is_too_long_is_refused(door):
    port, good = door
    assert status(exchange(port, good + b"X-Y: " + b"x" * 20000 + b"\r\n\r\n")) == 431


def test_a_head_that_is_just_not_too_long_is_served(door):
    port, good = door
    fields = b"".join(b"X-%d: y\r\n" % i for i in range(50))
    rest = 16384 - len(good + fields + b"X-Y: \r\n\r\n")
    request = good + fields + b"X-Y: " + b"x" * rest + b"\r\n\r\n"
    assert len(request) == 16384
    assert status(exchange(port, request)) == 200


def test_a_connection_carries_one_request(door):
    """What stands behind it has not passed the gate, and nobody reads it."""
    port, good = door
    answer = exchange(port, (good + b"\r\n") * 50)
    assert answer.count(b"HTTP/1.1 ") == 1 and status(answer) == 200
    assert b"connection: close" in answer.lower()


def test_a_head_in_any_pieces_is_served(door):
    port, good = door
    with socket.create_connection(("127.0.0.1", port), 30) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in good + b"\r\n":
            sock.sendall(bytes([byte]))
        assert status(sock.recv(65536)) == 200


def test_requests_to_admin_have_no_body(relay):
    head = b"POST /livez HTTP/1.1\r\nHost: localhost\r\n"
    for body in (b"Content-Length: 2\r\n\r\n{}", CHUNKED + b"\r\n" + BODY):
        assert status(exchange(relay.admin_port, head + body)) == 413
    assert status(exchange(relay.admin_port, head + b"Content-Length: 0\r\n\r\n")) == 405


# --- names ----------------------------------------------------------------------------------------

@pytest.mark.parametrize("host,is_own", [
    ("localhost", True), ("LOCALHOST:1", True), ("127.0.0.1", True), ("127.0.0.1:80", True),
    ("relay.example", True), ("Relay.Example:9187", True), ("evil.example", False),
    ("relay.example.evil.example", False), ("xrelay.example", False), ("10.1.2.3", False),
    ("127.0.0.2", False), ("[::1]", False), ("localhost.evil.example", False),
    ("localhost:x", False), ("localhost:99999", False), ("evil@localhost", False),
    ("localhost, evil.example", False), ("localhost/evil", False)])
def test_only_the_names_of_a_listener_are_answered(door, host, is_own):
    port, good = door
    request = good.replace(b"Host: localhost", b"Host: " + host.encode())
    answer = exchange(port, request + b"Connection: close\r\n\r\n")
    assert status(answer) == (200 if is_own else 400), answer


def test_a_listener_of_every_address_knows_its_own(database, kafka, make_relay):
    port = free_port()
    relay = make_relay(admin_listen=f"0.0.0.0:{port}", admin_remote="yes")
    relay.admin_port = port
    relay.wait_ready()
    for address in ("127.0.0.1", "127.0.0.5"):
        with socket.create_connection((address, port), 30) as sock:
            sock.sendall(b"GET /livez HTTP/1.1\r\nHost: " + address.encode() + b"\r\n\r\n")
            assert status(sock.recv(1000)) == 200
    assert status(exchange(port, b"GET /livez HTTP/1.1\r\nHost: 0.0.0.0\r\n\r\n")) == 400


# --- tokens ---------------------------------------------------------------------------------------

def wrong_time(api, source, token):
    request = (b"GET /v1/lookback HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "
               + token.encode() + b"\r\nConnection: close\r\n\r\n")
    begun = time.monotonic()
    answer = exchange(api.port, request, source=source)
    return status(answer), time.monotonic() - begun


def test_wrong_tokens_make_later_ones_of_their_address_slow_and_are_counted(relay):
    before = relay.metric("relay_api_wrong_tokens_total")
    times = []
    for i in range(9):
        code, took = wrong_time(relay.api, "127.0.0.9", f"a-wrong-token-of-somebody-{i}")
        assert code == 401
        times.append(took)
    assert sum(times) > 5 and times[-1] > 2
    relay.wait_for(lambda: relay.metric("relay_api_wrong_tokens_total") == before + 9, what="the metric")
    # Neither another address waits for that, nor a client of the same one that has a token.
    assert wrong_time(relay.api, "127.0.0.10", "a-wrong-token-of-another")[1] < 2
    begun = time.monotonic()
    request = (b"GET /v1/lookback HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
               b"Authorization: Bearer " + READ.encode() + b"\r\n\r\n")
    assert status(exchange(relay.api.port, request, source="127.0.0.9")) == 200
    assert time.monotonic() - begun < 2
    # A request without a token guesses nothing.
    assert relay.api.as_(None).get().status == 401
    relay.wait_for(lambda: relay.metric("relay_api_wrong_tokens_total") == before + 10, what="the metric")


# --- the configuration ----------------------------------------------------------------------------

def check_config(path, text, mode=0o600, **settings):
    path.write_text(text)
    os.chmod(path, mode)
    return run_command(["--config", path, "check-config"], settings)


API = "[kafka]\nbootstrap.servers = localhost:1\n[api]\nlisten = 9188\n"


@pytest.mark.parametrize("role", ["read", "payload", "operate", "decide"])
def test_a_token_has_16_characters(tmp_path, role):
    long, short = "0123456789abcdef", "0123456789abcde"
    assert check_config(tmp_path / "a.ini", API + caller("x", long, role))[0] == 0
    for value in (short, f"{long}, {short}"):
        done, _, error = check_config(tmp_path / "a.ini", API + caller("x", value, role))
        assert done == CONFIG_ERROR and "a.ini:6: [token \"x\"] tokens" in error and "needs 16" in error
        assert short not in error
    token = tmp_path / "token"
    token.write_text(short + "\n")
    token.chmod(0o600)
    assert check_config(tmp_path / "a.ini", f"{API}[token \"x\"]\nroles = read\ntokens_file = {token}\n")[0] == CONFIG_ERROR


@pytest.mark.parametrize("listen", ["0.0.0.0:9187", "[::]:9187", "10.1.2.3:9187", "relay.example:1"])
def test_the_admin_endpoint_is_for_this_machine_unless_it_says_otherwise(tmp_path, listen):
    text = f"[kafka]\nbootstrap.servers = localhost:1\n[admin]\nlisten = {listen}\n"
    done, _, error = check_config(tmp_path / "a.ini", text)
    assert done == CONFIG_ERROR and "a.ini:4:" in error and "remote = yes" in error
    assert check_config(tmp_path / "a.ini", text + "remote = yes\n")[0] == 0


MINIMAL = "[kafka]\nbootstrap.servers = localhost:1\n"


@pytest.mark.parametrize("mode", [0o602, 0o646, 0o666, 0o777])
def test_a_file_that_others_can_write_is_refused(tmp_path, mode):
    config, secret = tmp_path / "a.ini", tmp_path / "secret"
    done, _, error = check_config(config, MINIMAL, mode)
    assert done == CONFIG_ERROR and str(config) in error and "chmod" in error

    secret.write_text("0123456789abcdef")
    secret.chmod(mode)
    texts = [f"{API}[token \"x\"]\nroles = read\ntokens_file = {secret}\n",
             f"{MINIMAL}[postgres]\ndsn_file = {secret}\n",
             f"{MINIMAL}sasl.password_file = {secret}\n",
             f"{MINIMAL}ssl.key.location = {secret}\n",
             f"{MINIMAL}ssl.ca.location = {secret}\n",
             f'{MINIMAL}[check "shop"]\nurl = https://shop.example\ntls_key = {secret}\n',
             f'{MINIMAL}[check "shop"]\nurl = https://shop.example\nsecret_file = {secret}\n']
    for text in texts:
        done, _, error = check_config(config, text)
        assert done == CONFIG_ERROR and str(secret) in error and "can write" in error, text
        (tmp_path / "link").unlink(missing_ok=True)
        (tmp_path / "link").symlink_to(secret)
        done, _, error = check_config(config, text.replace(str(secret), str(tmp_path / "link")))
        assert done == CONFIG_ERROR and "can write" in error, text


def test_a_file_in_a_folder_that_is_open_to_everybody_is_refused(tmp_path):
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    done, _, error = check_config(folder / "a.ini", MINIMAL)
    assert done == CONFIG_ERROR and str(folder) in error
    folder.chmod(0o1777)  # as /tmp: only its owner replaces a file there
    assert check_config(folder / "a.ini", MINIMAL)[0] == 0


def test_a_file_that_others_can_read_is_warned_about_at_start(
        database, kafka, make_relay, tmp_path):
    config, tokens, own = (tmp_path / name for name in ("a.ini", "tokens", "own"))
    for path, mode in ((tokens, 0o644), (own, 0o640)):
        path.write_text("0123456789abcdef")
        path.chmod(mode)
    own.write_text("fedcba9876543210")
    config.write_text(f"[api]\nlisten = {free_port()}\n[token \"a\"]\nroles = read\ntokens_file = {tokens}\n"
                      f"[token \"b\"]\nroles = read\ntokens_file = {own}\n")
    config.chmod(0o604)
    relay = make_relay(config=config).wait_ready()
    warned = "\n".join(event["file"] for event in relay.events("file_open_to_others"))
    assert f"{config}: " in warned and f"{tokens}: " in warned and f"{own}: " not in warned
    assert "0123456789abcdef" not in relay.output()


# --- an occupied port -----------------------------------------------------------------------------

@pytest.mark.parametrize("section", ["admin", "api"])
def test_an_occupied_port_ends_the_start_with_one_line_before_anything_else(tmp_path, section):
    """Neither Postgres nor Kafka is there: it does not come to ask for them."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = {"admin": free_port(), "api": free_port(), section: taken.getsockname()[1]}
        config = tmp_path / "a.ini"
        config.write_text("[postgres]\ndsn = host=127.0.0.1 port=1\n" + MINIMAL
                          + f"[admin]\nlisten = {ports['admin']}\n"
                          + f"[api]\nlisten = {ports['api']}\n" + READER)
        config.chmod(0o644)  # its warning does not come first
        done, out, error = run_command(["--config", config, "run"])
    assert done == CONFIG_ERROR and out == ""
    assert len(error.splitlines()) == 1, error
    assert f"[{section}] listen" in error and "in use" in error


def test_probes_are_answered_while_the_relay_starts(database, make_relay):
    """It waits for a broker; meanwhile it is alive and not ready, and says so."""
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections and says nothing
        relay = make_relay(bootstrap=f"127.0.0.1:{silent.getsockname()[1]}")
        relay.wait_for(lambda: relay.readiness_says(503, "[-] starting"), what="a start that is told")
        assert relay.get("/livez")[0] == 200


# --- requests that take a while -------------------------------------------------------------------

def test_an_expensive_request_holds_up_no_other(relay):
    batch = {"messages": [prepare(str(i), "nobody", payload=["x"] * 150) for i in range(9000)]}
    heavy, light, ended = [], [], threading.Event()

    def send_heavy():
        while not ended.is_set():
            begun = time.monotonic()
            assert relay.api.post("prepare", batch).status in (400, 503)
            heavy.append(time.monotonic() - begun)

    threads = [threading.Thread(target=send_heavy) for _ in range(4)]
    for thread in threads:
        thread.start()
    wait_for(lambda: heavy, 120, "the first expensive answer")
    while len(heavy) < 8 or len(light) < 20:
        begun = time.monotonic()
        assert relay.api.post("commit", decision("1", "nobody")).code == "unknown_type"
        light.append(time.monotonic() - begun)
    ended.set()
    for thread in threads:
        thread.join()
    assert statistics.median(light) < statistics.median(heavy) / 4, (light, heavy)
