"""[admin] and [api] over TLS: probes, applications and commands use them, certificates change under load, and hostile
clients get as little as without TLS."""
import contextlib
import os
import socket
import ssl
import subprocess
import threading
import time

import pytest

from support.api import CONFIG, OPERATOR, READER, SEND, SENDER, Api, decision, prepare
from support.files import replace
from support.hostile import exchange
from support.process import free_port, wait_for
from support.relay import run_command

REQUESTS = 10000  # with --full; a tenth by default
HEAD = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Files:
    """A certificate and its key, which a program reads and a test exchanges."""

    def __init__(self, folder):
        self.certificate, self.key = folder / "server.pem", folder / "server.key"

    def show(self, pair, only=None):
        for source, target in zip(pair, (self.certificate, self.key)):
            if only in (None, target):
                with open(source, "rb") as file:
                    replace(target, file.read())


@pytest.fixture
def files(authority, tmp_path):
    made = Files(tmp_path)
    made.show(authority.issue("server"))
    return made


def trusting(*authorities):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    for each in authorities:
        context.load_verify_locations(each.certificate)
    return context


@pytest.fixture
def make_secured(make_relay, topic, files, authority, tmp_path):
    """make_secured(): a relay whose listeners speak TLS, and an Api."""
    def make(sections="", **settings):
        path = tmp_path / "relay.ini"
        path.write_text(CONFIG.format(topic=topic) + SENDER + OPERATOR + sections)
        path.chmod(0o600)
        port = free_port()
        relay = make_relay(config=path, api_listen=port,
                           api_tls_certificate=files.certificate, api_tls_key=files.key,
                           admin_tls_certificate=files.certificate, admin_tls_key=files.key, **settings)
        relay.tls = trusting(authority)
        relay.wait_event("api_listens")
        relay.wait_event("started")
        return relay, Api(port, SEND, relay.tls)
    return make


# --- who uses them --------------------------------------------------------------------------------


def test_probes_and_applications_speak_tls(make_secured):
    relay, api = make_secured()
    relay.wait_ready()
    assert relay.get("/livez")[1] == "live\n" and relay.metric("relay_listener_connections", listener="admin") is not None
    assert api.post("prepare", prepare("1")).status == 202
    assert api.post("commit", decision("1")).status == 202
    large = {"version": 1, "biz_type": "orders", "biz_id": "2", "topic": "orders.new", "payload": {"text": "x" * 900_000}}
    assert api.post("prepare", large).status == 202
    assert api.as_(None).post("prepare", prepare("3")).status == 401


def test_a_stranger_is_not_trusted(make_secured, stranger):
    relay, api = make_secured()
    with pytest.raises(ssl.SSLCertVerificationError):
        Api(api.port, SEND, trusting(stranger)).post("prepare", prepare("1"))
    relay.wait_ready()


def test_commands_know_the_certificate(make_secured, files, stranger, tmp_path):
    relay, _ = make_secured()
    relay.wait_ready()
    assert run_command(["health"], relay.settings)[:2] == (0, "live\n")
    status, output, error = run_command(["status"], relay.settings)
    assert status == 0 and "https" not in error, output + error
    (tmp_path / "other").mkdir()
    other = Files(tmp_path / "other")
    other.show(stranger.issue("other"))
    status, _, error = run_command(["health"], {**relay.settings, "OUTBOX_RELAY_ADMIN_TLS_CERTIFICATE": other.certificate,
                                                "OUTBOX_RELAY_ADMIN_TLS_KEY": other.key})
    assert status == 1 and "no answer from" in error and error.count("\n") == 1, error
    assert f"it has to show the certificate in {other.certificate}" in error and "certificate_refused" in error, error
    other.certificate.write_bytes(b"")
    status, _, error = run_command(["health"], {**relay.settings, "OUTBOX_RELAY_ADMIN_TLS_CERTIFICATE": other.certificate,
                                                "OUTBOX_RELAY_ADMIN_TLS_KEY": other.key})
    assert status == 1 and f"{other.certificate} cannot be read: it is empty" in error, error


@pytest.mark.parametrize("version,served", [("-tls1_1", False), ("-tls1_2", True), ("-tls1_3", True)])
def test_old_versions_are_refused(make_secured, authority, version, served):
    relay, _ = make_secured()
    done = subprocess.run(["openssl", "s_client", "-connect", f"127.0.0.1:{relay.admin_port}", "-CAfile", authority.certificate,
                           "-cipher", "DEFAULT:@SECLEVEL=0", "-quiet", version], input=HEAD, capture_output=True, timeout=30)
    assert (b"200 OK" in done.stdout) == served, done.stderr


# --- certificates that change ---------------------------------------------------------------------


def test_a_certificate_changes_under_load(make_secured, files, authority, stranger, scale):
    """Each request is answered, by one certificate or the other, while the files change one after the other."""
    relay, _ = make_secured()
    relay.wait_ready()
    context, count = trusting(authority, stranger), scale(REQUESTS)
    seen, failures, ending = set(), [], threading.Event()

    def ask():
        while not ending.is_set():
            try:
                with socket.create_connection(("127.0.0.1", relay.admin_port), 30) as plain, \
                        context.wrap_socket(plain, server_hostname="127.0.0.1") as secure:
                    issuer = dict(pair for part in secure.getpeercert()["issuer"] for pair in part)["commonName"]
                    secure.sendall(HEAD)
                    answer = b""
                    while part := secure.recv(4096):
                        answer += part
                    assert answer.endswith(b"live\n"), answer
                    seen.add(issuer)
                    done.append(issuer)
            except Exception as failure:  # told by the test
                failures.append(failure)

    done = []
    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        wait_for(lambda: len(done) >= count // 4 or failures, 120, "requests")
        pair = stranger.issue("server")
        files.show(pair, only=files.certificate)
        relay.wait_event("certificate_refused")
        before = len(done)
        wait_for(lambda: len(done) >= before + count // 4 or failures, 120, "requests")
        assert set(done[before:]) == {"authority"}
        files.show(pair, only=files.key)
        relay.wait_event("certificate_changed", section="admin")
        wait_for(lambda: done[-50:].count("stranger") == 50 and len(done) >= count or failures, 120, "the new one")
    finally:
        ending.set()
        for thread in threads:
            thread.join()
    assert not failures and seen == {"authority", "stranger"}
    refused = relay.events("certificate_refused")[0]
    assert f"tls_key = {files.key}: " in refused["error"]


# --- hostile clients ------------------------------------------------------------------------------


def hello(authority):
    """The first bytes of a handshake."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = trusting(authority).wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


@pytest.mark.rotated
def test_clients_that_never_finish_a_handshake_displace_only_each_other(
        make_secured, each_build, authority):
    program, wrapper = each_build
    relay, api = make_secured(program=program, wrapper=wrapper)
    relay.wait_ready()
    first = hello(authority)
    kinds = {"silent": b"", "part": first[:50], "hello": first, "garbage": os.urandom(300), "http": HEAD}
    with contextlib.ExitStack() as sockets:
        for number in range(300):
            client = sockets.enter_context(socket.create_connection(("127.0.0.1", relay.admin_port)))
            with contextlib.suppress(OSError):
                client.sendall(list(kinds.values())[number % len(kinds)])
            if number % 50 == 0:
                assert relay.get("/livez")[0] == 200
                assert api.post("prepare", prepare(str(number))).status == 202
        # Each ends within the time for a head and the time to leave.
        relay.wait_for(lambda: relay.metric("relay_listener_connections", listener="admin") <= 2, what="their end")
    assert relay.get("/metrics")[0] == 200
    assert relay.stop() == 0


def test_a_client_that_never_leaves_loses_its_place(make_secured, authority):
    """It has its answer, and goes on sending."""
    relay, _ = make_secured()
    relay.wait_ready()
    with socket.create_connection(("127.0.0.1", relay.admin_port), 30) as plain, \
            trusting(authority).wrap_socket(plain, server_hostname="127.0.0.1") as secure:
        secure.sendall(HEAD)
        begun = time.monotonic()

        def is_cut():
            try:
                secure.sendall(b"x")
                return False
            except OSError:
                return True

        wait_for(is_cut, 60, "the end", interval=0.5)
        assert time.monotonic() - begun < 30


def test_clients_that_never_read_lose_their_places(make_secured, authority):
    relay, _ = make_secured()
    relay.wait_ready()
    request = HEAD.replace(b"/livez", b"/metrics")

    def places():
        """Connections to the port that the relay has open; the kernel shows those that it closed without an inode."""
        with open(f"/proc/{relay.process.pid}/net/tcp", encoding="ascii") as file:
            rows = [line.split() for line in file.readlines()[1:]]
        return sum(row[1].endswith(f":{relay.admin_port:04X}") and row[3] != "0A" and row[9] != "0" for row in rows)

    with contextlib.ExitStack() as sockets:
        for _ in range(30):
            plain = socket.socket()
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            plain.connect(("127.0.0.1", relay.admin_port))
            sockets.enter_context(trusting(authority).wrap_socket(plain, server_hostname="127.0.0.1")).sendall(request)
        wait_for(lambda: places() >= 30, 30, "their places")
        wait_for(lambda: places() == 0, 60, "their end", interval=0.2)
    assert relay.get("/livez")[0] == 200


def test_a_client_that_speaks_no_tls_is_closed(make_secured):
    relay, _ = make_secured()
    relay.wait_ready()
    answer = exchange(relay.admin_port, HEAD)
    assert b"HTTP/1.1 200" not in answer
    assert relay.get("/livez")[0] == 200


def test_an_answer_waits_for_a_slow_reader(make_secured, authority):
    relay, _ = make_secured()
    relay.wait_ready()
    whole = relay.get("/metrics")[1]
    with socket.create_connection(("127.0.0.1", relay.admin_port), 30) as plain:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        with trusting(authority).wrap_socket(plain, server_hostname="127.0.0.1") as secure:
            secure.sendall(HEAD.replace(b"/livez", b"/metrics"))
            answer = b""
            while part := secure.recv(1000):
                answer += part
                time.sleep(0.001)  # it reads slowly, which is what it is for
    body = answer.split(b"\r\n\r\n", 1)[1].decode()
    assert len(body) > len(whole) // 2 and body.endswith("\n")


# --- settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize("section", ["api", "admin"])
@pytest.mark.parametrize("certificate,key,said", [
    ("good", None, "tls_certificate: there is no tls_key for it"),
    (None, "good", "tls_key: there is no tls_certificate for it"),
    ("/nowhere/x.pem", "good", "tls_certificate = /nowhere/x.pem: No such file"),
    ("good", "/nowhere/x.key", "tls_key = /nowhere/x.key: No such file"),
    ("empty", "good", "tls_certificate = "),
    ("good", "other", "it is not the key of tls_certificate"),
    ("good", "empty", "tls_key = "),
])
def test_files_that_cannot_be_are_refused_by_name(tmp_path, authority, stranger, section, certificate, key, said):
    empty = tmp_path / "empty"
    empty.write_bytes(b"")
    pair, others = authority.issue("server"), stranger.issue("server")
    names = {"good": pair, "other": others, "empty": (empty, empty)}
    lines = [f"{name} = {names[value][place] if value in names else value}"
             for place, (name, value) in enumerate((("tls_certificate", certificate), ("tls_key", key))) if value]
    path = tmp_path / "relay.ini"
    path.write_text(f"[kafka]\nbootstrap.servers = 127.0.0.1:1\n[{section}]\nlisten = 9187\n"
                    + "".join(f"{line}\n" for line in lines) + (READER if section == "api" else ""))
    path.chmod(0o600)
    status, output, error = run_command(["check-config", "--config", path])
    assert status == 78 and said in error and f"[{section}]" in error, output + error
    assert error.count("\n") == 1
