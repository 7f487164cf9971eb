"""docs/guide/lookback.md shows parts of docs/examples, and those do what it says: they send to the
look-back and answer the relay.

lookback.go wants Go 1.26, which Debian 12 has not: where there is none its tests are skipped. Go fetches
the modules that docs/examples/go.mod names, once.
"""

import base64
import functools
import hashlib
import hmac
import http.client
import http.server
import os
import re
import shutil
import subprocess
import sys
import threading
import time

import psycopg2
import pytest

from support import guide
from support.auditor import read_topics
from support.kafka import class_path, java
from support.lookback import configuration
from support.process import Process, free_port, port_answers, temporary_folder, wait_for
from support.relay import beside

JDBC = "/usr/share/java/postgresql.jar"
LONG = 300  # seconds: the limit of a condition that only load delays
KEY, OTHER_KEY = b"k" * 24, b"o" * 32
SECRET, OTHER_SECRET = ("whsec_" + base64.b64encode(key).decode() for key in (KEY, OTHER_KEY))
# Those that take the longest take turns.
LANGUAGES = ("python", "c", pytest.param("java", marks=pytest.mark.rotated),
             pytest.param("go", marks=pytest.mark.rotated))

sys.path.insert(0, str(guide.EXAMPLES))
import lookback  # noqa: E402


def test_the_guide_shows_the_examples_as_they_are():
    page = guide.GUIDE.read_text(encoding="utf-8")
    assert {(name, part) for _, name, part, _, _ in guide.SHOWN.findall(page)} == {
        (name, part) for name in ("Lookback.java", "lookback.c", "lookback.go", "lookback.py")
        for part in ("send", "work", "verify", "answer")}
    assert page == guide.filled(page), "python3 tests/support/guide.py writes it"


class Handler(lookback.Checks):
    def log_message(self, *_):
        pass


class Cgi(http.server.BaseHTTPRequestHandler):
    """Runs the program in C for each request."""

    def do_POST(self):
        sent = {f"HTTP_{name.upper().replace('-', '_')}": text
                for name, text in self.headers.items()}
        done = subprocess.run(self.server.command, input=self.rfile.read(
            int(self.headers["Content-Length"])), env=sent, capture_output=True, timeout=LONG)
        head, _, body = done.stdout.partition(b"\r\n\r\n")
        status = 401 if head.startswith(b"Status: 401") else 200
        self.send_response(500 if done.returncode else status)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@functools.cache
def go_example():
    """The program in Go, built once; None: there is no Go that can."""
    tool = shutil.which("go") or shutil.which("/usr/local/go/bin/go")
    wanted = re.search(r"^go 1\.(\d+)", (guide.EXAMPLES / "go.mod").read_text(), re.MULTILINE)[1]
    told = tool and subprocess.run([tool, "version"], capture_output=True, text=True).stdout
    version = told and re.search(r"go1\.(\d+)", told)
    if not version or int(version[1]) < int(wanted):
        return None
    program = os.path.join(temporary_folder("guide"), "lookback")
    subprocess.run([tool, "build", "-o", program, "lookback.go"], cwd=guide.EXAMPLES, check=True, timeout=LONG,
                   env={**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly"})
    return program


class Example:
    """A program of docs/examples: it sends, and then it answers at a port."""

    def __init__(self, language, database, kafka):
        self.language, self.database, self.kafka = language, database, kafka
        self.port = free_port()
        self.log = os.path.join(temporary_folder("guide"), "log")
        self.server = self.process = None
        self.jdbc = (f"jdbc:postgresql://127.0.0.1:{database.postgres.port}/{database.name}"
                     "?user=postgres")
        self.c = beside("tests/integration/lookback_example")
        self.go = go_example() if language == "go" else None
        if language == "go" and not self.go:
            pytest.skip("no Go that docs/examples/go.mod asks for")

    def java(self, *arguments):
        line = java(guide.EXAMPLES / "Lookback.java", *arguments)
        line[line.index("-cp") + 1] = f"{class_path()}:{JDBC}"
        return line

    def send(self):
        """One id that is committed ("good"), one that is refused ("bad"), one that is "left"."""
        if self.language == "python":
            self._send_in_python()
            return
        servers = self.kafka.bootstrap
        lines = {"java": lambda: self.java("send", servers, self.jdbc, "java"),
                 "go": lambda: [self.go, "send", servers, self.database.dsn, "go"],
                 "c": lambda: [self.c, "send", servers, self.database.dsn, "c"]}
        done = subprocess.run(lines[self.language](), capture_output=True, text=True, timeout=LONG)
        assert done.returncode == 0, done.stderr

    def _send_in_python(self):
        application = lookback.Lookback(self.kafka.bootstrap, "python")
        for biz_id in ("good", "bad", "left"):
            application.prepare(biz_id, "orders", "python", f"of {biz_id}".encode())

        def refuse(cursor):
            cursor.execute("insert into work values (1)")
            raise ValueError

        connection = psycopg2.connect(self.database.dsn)
        lookback.in_transaction(application, connection, "good",
                                lambda cursor: cursor.execute("insert into work values (1)"))
        with pytest.raises(ValueError):
            lookback.in_transaction(application, connection, "bad", refuse)
        connection.close()

    def serve(self):
        if self.language == "java":
            self.process = Process(self.java("serve", self.port, self.jdbc, SECRET), self.log)
        elif self.language == "go":
            self.process = Process([self.go, "serve", str(self.port), self.database.dsn, SECRET], self.log)
        else:
            self.server = http.server.ThreadingHTTPServer(
                ("127.0.0.1", self.port), Cgi if self.language == "c" else Handler)
            self.server.command = [self.c, "serve", self.database.dsn, SECRET]
            self.server.secret = SECRET
            self.server.connect = lambda: psycopg2.connect(self.database.dsn)
            threading.Thread(target=self.server.serve_forever, daemon=True).start()
        wait_for(lambda: port_answers(self.port), LONG, f"the service in {self.language}")

    def close(self):
        if self.process:
            self.process.kill()
        if self.server:
            self.server.shutdown()
            self.server.server_close()

    def ask(self, body, secrets, sent_at=None):
        """Asks as the relay does: (status, body). A secret is the bytes of its key."""
        stamp = str(int(sent_at if sent_at is not None else time.time()))
        mark = " ".join("v1," + base64.b64encode(hmac.digest(
            key, f"check_1.{stamp}.".encode() + body, hashlib.sha256)).decode() for key in secrets)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LONG)
        connection.request("POST", "/", body, {
            "Content-Type": "application/json", "webhook-id": "check_1",
            "webhook-timestamp": stamp, "webhook-signature": mark})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, text


@pytest.fixture
def topics(kafka):
    """Those that the examples name."""
    names = ("look_back_msg", "orders")
    for name in names:
        kafka.create_topic(name, 3)
    yield names
    for name in names:
        kafka.delete_topic(name)


@pytest.fixture(params=LANGUAGES)
def example(request, database, kafka, topics):
    database.execute((guide.ROOT / "sql/barrier/postgres.sql").read_text(encoding="utf-8"))
    database.execute("create table work (n int)")
    made = Example(request.param, database, kafka)
    yield made
    made.close()


@pytest.mark.rotated
def test_what_an_example_sends_is_decided_and_what_it_leaves_is_asked_for(
        example, database, kafka, make_relay):
    example.serve()
    # The relay's newer secret is one that the service does not know yet.
    path = configuration(
        ('check "shop"', {"url": f"http://127.0.0.1:{example.port}/", "networks": "127.0.0.0/8",
                          "secret": OTHER_SECRET, "old_secret": SECRET, "timeout": "2m",
                          "retry_first": "200ms", "pending_every": "200ms"}),
        ('lookback "shop"', {"types": example.language, "check": "shop", "check_after": "1h"}))
    relay = make_relay(arguments=("run", "--config", path)).wait_ready()
    example.send()

    def decided():
        return dict((biz_id, (decision, source)) for biz_id, decision, source in database.execute(
            "select biz_id, decision, source from outbox.lookback where kind = 'decision'"))

    said = {"good": ("commit", "message"), "bad": ("rollback", "message")}
    relay.wait_for(lambda: decided() == said, LONG, "what was said")
    assert database.execute("select count(*) from work")[0][0] == 1
    assert relay.stop() == 0

    # The other one comes due, and the service says that it never began and never will.
    database.execute(
        "update outbox.lookback set check_at = clock_timestamp() where biz_id = 'left'")
    relay.start().wait_ready()
    relay.wait_for(lambda: decided() == {**said, "left": ("rollback", "check")}, LONG, "the answer")
    with pytest.raises(psycopg2.Error) as late:
        database.execute("select lookback_begin(%s, 'left')", (example.language,))
    assert late.value.pgcode == "LB001"
    wait_for(lambda: [(record.key, record.payload)
                      for record in read_topics(kafka.bootstrap, ["orders"])] ==
             [(example.language.encode(), b"of good")], LONG, "the message")


def test_an_example_answers_only_what_is_signed(example, database):
    example.serve()
    body = (b'{"biz_type":"order","biz_id":"1","attempt":1,'
            b'"prepared_at":"2024-05-06T07:08:09.123456Z"}')
    for keys, sent_at in (([OTHER_KEY], None), ([], None), ([KEY], time.time() - 3600),
                          ([KEY], time.time() + 3600)):
        assert example.ask(body, keys, sent_at)[0] == 401
    assert database.execute("select count(*) from lookback_barrier") == [(0,)]
    status, answer = example.ask(body, [OTHER_KEY, KEY])
    assert status == 200 and b'"rollback"' in answer
    database.execute("insert into lookback_barrier values ('order', '2', 'commit')")
    status, answer = example.ask(body.replace(b'"1"', b'"2"'), [KEY])
    assert status == 200 and b'"commit"' in answer
