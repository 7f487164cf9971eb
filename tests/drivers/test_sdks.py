"""Sidecar and look-back beside other people's libraries: CloudEvents and Standard Webhooks of Go and Node, grpc-go
and grpc-java. The programs are in sdks/."""

import base64
import collections
import contextlib
import datetime
import hashlib
import json
import os
import pathlib
import signal
import subprocess
import threading
import urllib.parse

import pytest

from drivers.harness import HERE, Driver, build, cache_folder, node
from support.certificates import Identity
from support.check_asker import Asker
from support.inbox import produce
from support.process import wait_for

SECRET = "whsec_" + base64.b64encode(b"n" * 24).decode()
PROTO = pathlib.Path(HERE, "../../docs/reference/lookback.proto").read_bytes()
BUILD = (("./build.sh", hashlib.sha256(PROTO).hexdigest()),)  # the file is outside of the folder
NODE_PACKAGES = ("cloudevents@8.0.3", "standardwebhooks@1.1.0")

SDKS = {
    "go": Driver("go", ("{cache}/program",), BUILD, install=("go",), folder="sdks/go"),
    "java": Driver("java", ("java", "-XX:TieredStopAtLevel=1", "-cp", "{cache}/target/classes:{cache}/libs/*"), BUILD,
                   install=("kafka",), folder="sdks/java"),
    "node": node("node", *NODE_PACKAGES, folder="sdks/node"),
}


class Program:
    """A server. It says its port, then a line for each request."""

    def __init__(self, name, *arguments):
        driver = SDKS[name]
        build(driver)
        command = [part.format(cache=cache_folder(driver)) for part in driver.run] + [*arguments]
        self.lines = []
        self.child = subprocess.Popen(command, cwd=os.path.join(HERE, driver.folder), stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, text=True)
        self.port = json.loads(self.child.stdout.readline())["port"]
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        for line in self.child.stdout:
            self.lines.append(json.loads(line))

    def all(self, name):
        return [line[name] for line in self.lines[:] if name in line]

    def begin_stop(self):
        self.child.stdin.write("stop\n")
        self.child.stdin.flush()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError):
            self.child.stdin.close()
        try:
            self.child.wait(20)
        except subprocess.TimeoutExpired:
            self.child.send_signal(signal.SIGKILL)
            raise
        self.thread.join(20)


# --- events ----------------------------------------------------------------------------------

class Receiver(Program):
    def __init__(self, name):
        super().__init__(name, *(("events",) if name == "go" else ()), SECRET)
        self.name = name
        self.url = f"http://127.0.0.1:{self.port}/orders"


def with_headers(**headers):
    """Of a record; an underscore in the name of one that is no attribute is a hyphen."""
    return [(name if name.startswith("ce_") else name.replace("_", "-"), value.encode())
            for name, value in headers.items()]


EVENT = {"specversion": "1.0", "id": "E-1", "source": "/shop", "type": "order.placed", "data": {"n": 1}}
# id: (key, payload, headers, what differs from the defaults)
RECORDS = {
    "plain": ("k", b'{"a": 1, "b": [1.5, null, "\xc3\xa4"]}', [], {}),
    "text-in-json": ("k", b'"text"', [], {}),
    "number": ("k", b"1.50", [], {}),
    "null": ("k", b"null", [], {}),
    "bytes": ("k", b"\xff\x00\xfe", [], {"content_type": "application/octet-stream"}),
    "text": ("k", "hällo".encode(), with_headers(content_type="text/plain; charset=utf-8"),
             {"content_type": "text/plain; charset=utf-8"}),
    "no-media-type": ("k", b"{}", with_headers(content_type="json"), {}),
    "empty": ("k", b"", [], {"content_type": "application/octet-stream"}),
    "tombstone": ("k", None, [], {"content_type": ""}),
    "key": ('schlüssel "x" 100%', b"{}", [], {"subject": 'schlüssel "x" 100%'}),
    "attributes": ("k", b"{}", with_headers(
        ce_source="https://shop.example/a?b#c", ce_type="order.placed", ce_subject="7", ce_time="2024-05-06T07:08:09+01:00",
        ce_dataschema="urn:schema:1", ce_traceparent="00-ab"), {
            "source": "https://shop.example/a?b#c", "type": "order.placed", "subject": "7",
            "time": "2024-05-06T06:08:09+00:00", "schema": "urn:schema:1"}),
    "time": ("k", b"{}", with_headers(ce_time="yesterday"), {}),
    "time-of-year-10000": ("k", b"{}", with_headers(ce_time="9999-12-31T23:59:59-01:00"), {}),
    "other-version": ("k", b"{}", with_headers(ce_schemaurl="urn:a:b", ce_datacontentencoding="base64"), {}),
    "schema": ("k", b"{}", with_headers(ce_dataschema="/schemas/1"), {}),
    **{f"source-{number}": ("k", b"{}", with_headers(ce_source=source), {}) for number, source in enumerate((
        "my shop", "1:foo", "://x", "/büro", "<x>", 'a"b', "a{b}", "/a#b#c", "http://[::1", "http://h:port/"))},
}


def data_as_read(name, payload):
    """The library for Node gives JSON parsed, and a JSON string in it without its quotes; a number stays as it is in
    one of the modes."""
    if name != "node" or not payload:
        return [payload or b""]
    with contextlib.suppress(ValueError):
        value = json.loads(payload)
        if isinstance(value, str):
            return [value.encode()]
        # as JavaScript writes it; null is no data in one of the modes
        written = json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
        return [written, b"" if value is None else payload]
    return [payload]


def check_event(event, name, binary, topic):
    key, payload, _, differences = RECORDS[event["id"]]
    expected = {"source": f"/topics/{topic}", "type": topic, "subject": key, "content_type": "application/json",
                "schema": "", **differences}
    if binary:  # these libraries leave %XX in headers as it is
        event = {**event, "subject": urllib.parse.unquote(event["subject"])}
    when = datetime.datetime.fromisoformat(event["time"].replace("Z", "+00:00"))
    if "time" in expected:
        assert when == datetime.datetime.fromisoformat(expected.pop("time"))
    else:
        assert datetime.datetime.now(datetime.timezone.utc) - when < datetime.timedelta(hours=1)
    assert {field: event[field] for field in expected} == expected
    assert base64.b64decode(event["data"]) in data_as_read(name, payload), event
    assert event["attempt"] == 1


@pytest.mark.rotated("events")
@pytest.mark.parametrize("mode", ["binary", "structured", "batch"])
@pytest.mark.parametrize("name", ["go", "node"])
def test_each_request_is_read_and_verified(make_sidecar, kafka, topic, name, mode):
    produce(kafka.bootstrap, topic, [(id, key, payload, None, headers)
                                     for id, (key, payload, headers, _) in RECORDS.items()])
    produce(kafka.bootstrap, topic, [("whole", "k", json.dumps(EVENT), None,
                                      with_headers(content_type="application/cloudevents+json"))])
    settings = {"form": "batch", "batch": 7} if mode == "batch" else {"mode": mode}
    with Receiver(name) as receiver:
        make_sidecar(receiver, secret=SECRET, **settings)
        wait_for(lambda: {*RECORDS, "E-1"} <= {*receiver.all("id")} or receiver.all("error"), 60, "events")
        assert receiver.all("error") == []
        events = {event["id"]: event for event in receiver.lines if "id" in event}
        whole = events.pop("E-1")
        assert (whole["source"], whole["type"]) == ("/shop", "order.placed")
        assert json.loads(base64.b64decode(whole["data"])) == EVENT["data"]
        for event in events.values():
            check_event(event, name, mode == "binary" and event["id"] != "bytes", topic)


# --- look-back -------------------------------------------------------------------------------

SERVICES = pytest.mark.parametrize("name", ["go", "java"])


class Service(Program):
    """settings: as the programs name them, times in milliseconds."""

    def __init__(self, name, **settings):
        if name == "go":
            super().__init__(name, "lookback", json.dumps(settings))
        else:
            super().__init__(name, *(f"-D{key}={value}" for key, value in settings.items()), "Service")
        self.url = f"{'https' if 'certificate' in settings else 'http'}://127.0.0.1:{self.port}"

    @property
    def connections(self):
        return len(self.all("connection"))


@pytest.fixture
def make_asker(tmp_path):
    with contextlib.ExitStack() as askers:
        yield lambda service, **settings: askers.enter_context(Asker(
            tmp_path, transport="grpc", url=service.url, networks="127.0.0.0/8", timeout="20s",
            **{"host_in_flight": 100, **settings}))


@pytest.mark.rotated("lookback")
@SERVICES
def test_each_answer_of_a_service_is_read(make_asker, name):
    with Service(name, secret=SECRET) as service:
        asker = make_asker(service, secret=SECRET)
        for word in ("unknown", "pending", "commit", "rollback"):
            answer = asker.ask(word, "7", attempt=3)
            assert (answer["words"], answer["failure"]) == ([word], None), answer
        ids = [str(number) for number in range(1000)]
        assert asker.ask("commit", *ids)["words"] == ["commit"] * 1000
        refused = asker.ask("unavailable", "7")
        assert (refused["words"], refused["failure"], refused["status"]) == (["unknown"], "status", 14), refused
        assert "UNAVAILABLE: the ledger is away" in refused["error"]
        assert service.all("ids")[-2] == ids
        assert service.all("attempts")[0] == [3] and all(service.all("limited"))
        unsigned = make_asker(service).ask("commit", "7")
        assert (unsigned["words"], unsigned["status"]) == (["unknown"], 16), unsigned


@pytest.mark.rotated("lookback")
@SERVICES
def test_certificates_convince_on_both_sides(make_asker, tmp_path, name):
    own, client = Identity(tmp_path, "own"), Identity(tmp_path, "client")
    with Service(name, certificate=own.certificate, key=own.key, client_ca=client.certificate) as service:
        asker = make_asker(service, tls_ca=own.certificate, tls_certificate=client.certificate, tls_key=client.key)
        numbers = [asker.send("commit", str(number)) for number in range(100)]
        assert all(asker.answer(number)["words"] == ["commit"] for number in numbers)
        assert service.connections == 1
        stranger = make_asker(service, tls_ca=own.certificate).ask("commit", "7")
        assert stranger["words"] == ["unknown"] and not stranger["reached"], stranger
        assert len(service.all("ids")) == 100


def ask_until(asker, width, is_over):
    """Asks with so many questions under way, until is_over(); the answers."""
    under_way, answers = collections.deque(), []
    for number in range(1_000_000):
        if is_over():
            break
        under_way.append(asker.send("commit", str(number)))
        if len(under_way) == width:
            answers.append(asker.answer(under_way.popleft()))
    return answers + [asker.answer(number) for number in under_way]


AGES = {"go": 100, "java": 1000}  # grpc-java takes a second at least
CASES = {
    "one": {"width": 1},
    "many": {"width": 50, "delay": 20},
    "streams": {"width": 20, "delay": 20, "streams": 2},
    "tls": {"width": 20, "delay": 20, "tls": True},
}


@pytest.mark.rotated("lookback")
@pytest.mark.parametrize("case", CASES)
@SERVICES
def test_connections_that_end_by_their_age_cost_no_attempt(make_asker, tmp_path, name, case):
    settings = {**CASES[case], "age": AGES[name]}
    width = settings.pop("width")
    trust = {}
    if settings.pop("tls", False):
        own = Identity(tmp_path, "own")
        settings.update(certificate=own.certificate, key=own.key)
        trust["tls_ca"] = own.certificate
    with Service(name, **settings) as service:
        asker = make_asker(service, **trust)
        # the first ones begin with a connection each
        answers = ask_until(asker, width, lambda: service.connections >= width + 6)
        assert [answer for answer in answers if answer["words"] != ["commit"]] == []
        assert len(answers) == len({id for ids in service.all("ids") for id in ids})


@pytest.mark.rotated("lookback")
@SERVICES
def test_a_service_that_stops_gracefully_costs_at_most_the_call_under_way(make_asker, name):
    """When the last connection ends in the middle of a call and a second try finds no service, nobody knows whether
    the service had the call: it counts as an attempt."""
    with Service(name, delay=5) as service:
        asker = make_asker(service)
        stopping = iter([service.begin_stop])

        def is_over():
            if len(service.all("ids")) >= 200:
                for stop in stopping:
                    stop()
            return service.child.poll() is not None
        answers = ask_until(asker, 50, is_over)
        assert sum(answer["words"] == ["commit"] for answer in answers) >= 200
        lost = [answer for answer in answers if answer["words"] != ["commit"] and answer["sent"]]
        assert [answer["failure"] for answer in lost] in ([], ["connect"])
