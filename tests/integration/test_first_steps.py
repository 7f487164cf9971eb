"""README's *In use*, typed as it stands on an empty database."""

import os
import pathlib
import re
import signal
import subprocess

import pytest

from support.auditor import count_records, read_topics
from support.postgres import Postgres, program
from support.process import wait_for
from support.relay import binary, environment, run_command

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture
def server():
    """A server of its own: roles belong to the whole server."""
    with Postgres() as server:
        server.create_database("shop")
        yield server


@pytest.fixture
def shell(server, kafka, topic):
    """shell(script): a started bash that knows these servers by README's names."""
    names = {"db.example": f"127.0.0.1:{server.port}", "kafka-1.example:9092": kafka.bootstrap,
             "'orders'": f"'{topic}'"}
    folders = [os.path.dirname(path) for path in (binary(), program("psql"))]
    path = ":".join([*folders, os.environ["PATH"]])
    started = []

    def start(script):
        for name, there in names.items():
            script = script.replace(name, there)
        started.append(subprocess.Popen(
            ["bash", "-ec", script], env=environment({"PATH": path}), text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
        process.communicate(timeout=60)


def succeeds(process):
    output = process.communicate(timeout=120)[0]
    assert process.returncode == 0, output
    return output


def test_what_the_readme_says_works_when_it_is_typed(shell, kafka, topic):
    section = (ROOT / "README.md").read_text().split("## In use\n")[1].split("\n## ")[0]
    owner, relay, application = re.findall(r"^```\n(.*?)^```\n", section, re.MULTILINE | re.DOTALL)
    output = succeeds(shell(owner))
    assert "create role relay login" in output and "grant outbox_writer to shop" in output
    # doctor ends with 0 before run starts
    shell(relay)
    succeeds(shell(application))
    wait_for(lambda: count_records(kafka.bootstrap, [topic]) == 1, 60, "the message")
    (record,) = read_topics(kafka.bootstrap, [topic])
    assert (record.key, record.payload) == (b"42", b'{"state": "paid"}')


def test_the_next_steps_are_those_of_a_new_schema(server):
    settings = {"DATABASE_URL": server.dsn("shop")}
    assert "Next steps" in run_command(["migrate", "up"], settings)[1]
    status, output, _ = run_command(["migrate", "up"], settings)
    assert status == 0 and output.startswith("nothing to do") and "Next steps" not in output


def test_without_roles_the_next_steps_name_no_role(server):
    output = run_command(["migrate", "up", "--no-roles"], {"DATABASE_URL": server.dsn("shop")})[1]
    assert "outbox-relay migrate print" in output and "outbox_relay;" not in output
