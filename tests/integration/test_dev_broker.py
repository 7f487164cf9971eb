"""`outbox-relay dev-broker`: clients of other people work on it, at the port that was asked for, and the
relay's commands neither wait nor warn."""

import os
import re
import shutil
import socket
import struct
import subprocess
import time

import pytest

from support import guide
from support.kafka import java
from support.process import free_port, port_answers
from support.relay import binary, environment, run_command

HERE = os.path.dirname(os.path.abspath(__file__))
LONG = 120  # seconds: the limit of a condition that only load delays
API_VERSIONS, LIST_OFFSETS, METADATA, UNSUPPORTED_VERSION = 18, 2, 3, 35


@pytest.fixture
def make_broker():
    """make_broker(*arguments): its bootstrap.servers."""
    started = []

    def make(*arguments):
        child = subprocess.Popen([binary(), "dev-broker", *map(str, arguments)], stdout=subprocess.PIPE,
                                 text=True, env=environment())
        started.append(child)
        return child.stdout.readline().strip()

    yield make
    for child in started:
        child.terminate()
        assert child.wait(30) == 0


def kcat(servers, *arguments, given=""):
    return subprocess.run(["kcat", "-q", "-b", servers, *arguments], input=given, capture_output=True,
                          text=True, timeout=LONG, check=True).stdout


def ask(servers, api, version, body=b""):
    """The answer to a request, behind its length."""
    host, port = servers.split(",")[0].split(":")
    request = struct.pack(">hhi", api, version, 7) + struct.pack(">h", 4) + b"test" + body
    with socket.create_connection((host, int(port)), LONG) as client:
        client.sendall(struct.pack(">i", len(request)) + request)
        answer = client.makefile("rb")
        return answer.read(struct.unpack(">i", answer.read(4))[0])


@pytest.mark.parametrize("version", [3, 4, 99])
def test_a_newer_question_for_versions_is_answered_as_a_broker_does(make_broker, version):
    answer = ask(make_broker(), API_VERSIONS, version, b"\0\5test\2" + b"1\0")
    assert struct.unpack(">ihihhh", answer) == (7, UNSUPPORTED_VERSION, 1, API_VERSIONS, 0, 2)


def test_clients_are_told_versions_that_work(make_broker):
    answer = ask(make_broker(), API_VERSIONS, 0)
    _, error, count = struct.unpack(">ihi", answer[:10])
    newest = {api: most for api, _, most in struct.iter_unpack(">hhh", answer[10:10 + 6 * count])}
    assert error == 0 and newest[LIST_OFFSETS] == 3 and newest[METADATA] == 2


def test_the_ports_are_those_that_were_asked_for(make_broker):
    port = free_port()
    while port_answers(port + 1):
        port = free_port()
    servers = make_broker("--brokers", 2, "--port", port, "orders:4")
    assert servers == f"127.0.0.1:{port},127.0.0.1:{port + 1}"
    kcat(servers, "-P", "-t", "orders", "-K:", given="".join(f"k{n}:v{n}\n" for n in range(20)))
    found = kcat(servers, "-C", "-t", "orders", "-o", "beginning", "-e", "-f", "%k:%s\n").splitlines()
    assert sorted(found) == sorted(f"k{n}:v{n}" for n in range(20))
    known = kcat(servers, "-L")
    assert set(re.findall(r"at (127\.0\.0\.1:\d+)", known)) == set(servers.split(","))
    status, _, error = run_command(["dev-broker", "--port", port])
    assert status != 0 and f"port {port} of 127.0.0.1 cannot be used" in error and "--port" in error


def test_a_large_record_comes_through(make_broker):
    servers = make_broker("large:1")
    payload = "x" * 900_000
    kcat(servers, "-P", "-t", "large", given=payload)
    assert kcat(servers, "-C", "-t", "large", "-o", "beginning", "-e") == payload + "\n"


def test_the_java_client_produces_and_consumes_in_a_group(make_broker):
    servers = make_broker("--brokers", 2, "orders:3")
    keys = [f"k{n}" for n in range(10)]
    produced = subprocess.run(java(os.path.join(HERE, "JavaProducer.java"), servers, "orders"), text=True,
                              input="".join(f"{key.encode().hex()}\n" for key in keys), capture_output=True,
                              timeout=LONG)
    assert produced.returncode == 0, produced.stderr
    consumed = subprocess.run(
        java("org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", servers, "--topic", "orders",
             "--from-beginning", "--max-messages", len(keys), "--timeout-ms", 60000, "--property",
             "print.key=true"), text=True, capture_output=True, timeout=LONG)
    assert consumed.returncode == 0, consumed.stderr
    assert sorted(line.split("\t")[0] for line in consumed.stdout.splitlines()) == keys


def test_franz_go_produces_and_consumes_in_a_group(make_broker, tmp_path):
    tool = shutil.which("go") or shutil.which("/usr/local/go/bin/go")
    wanted = re.search(r"^go 1\.(\d+)", (guide.EXAMPLES / "go.mod").read_text(), re.MULTILINE)[1]
    told = tool and subprocess.run([tool, "version"], capture_output=True, text=True).stdout
    version = told and re.search(r"go1\.(\d+)", told)
    if not version or int(version[1]) < int(wanted):
        pytest.skip("no Go that docs/examples/go.mod asks for")
    for name in ("go.mod", "go.sum"):
        shutil.copy(guide.EXAMPLES / name, tmp_path)
    shutil.copy(os.path.join(HERE, "franz.go"), tmp_path)
    subprocess.run([tool, "build", "-o", "franz", "franz.go"], cwd=tmp_path, check=True, timeout=600,
                   env={**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly"})
    servers = make_broker("--brokers", 2, "orders:3")
    kcat(servers, "-P", "-t", "orders", given="kcat\n")
    done = subprocess.run([tmp_path / "franz", servers, "orders", "6"], capture_output=True, text=True,
                          timeout=LONG)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [f"franz {number}" for number in range(5)] + ["kcat"]


def test_the_relay_and_its_commands_neither_wait_nor_warn(make_broker, make_relay, database):
    servers = make_broker("orders:3")
    often = {"kafka_topic_metadata_refresh_interval_ms": 100}
    relay = make_relay(bootstrap=servers, **often).wait_ready()
    database.execute("select outbox.publish('orders', 'k' || n, to_jsonb(n)) from generate_series(1, 100) n")
    relay.wait_for(lambda: relay.metric("relay_published_total") == 100, what="the records")
    settings = {"DATABASE_URL": database.dsn, "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": servers}
    for command in (["doctor"], ["replay", "topic=orders"], ["verify"]):
        began = time.monotonic()
        status, output, error = run_command(command, settings)
        assert status == 0, output + error
        assert "event=kafka_log" not in error
        assert time.monotonic() - began < 10  # librdkafka's limits are 10 s and more
    assert "dev-broker does not" in run_command(["doctor"], settings)[1]
    assert not [event for event in relay.events("kafka_log") if event["facility"] == "AUTOCREATE"]
