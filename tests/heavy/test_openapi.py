"""docs/reference/openapi.json: it is valid, it has every route of the program, and the program does what it says.

That no answer is undocumented is also checked wherever a test calls the interface (support/openapi.py).
"""
import os
import pathlib
import re
import subprocess

import pytest

from support import openapi
from support.api import CONFIG, caller, start_api
from support.process import wait_for

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOME = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "outbox-relay/schemathesis-4.32.5"
TOKEN = "token-with-every-role"
LIMIT = 30_000  # bytes of a batch that the topic takes
PART = "^/v1/(lookback|parked|publishers)"  # about half of the operations


def tool(*words, **options):
    return subprocess.run([HOME / "bin/python", "-m", *words], capture_output=True, text=True, **options)


def test_the_description_is_valid():
    done = tool("openapi_spec_validator", openapi.PAGE)
    assert done.returncode == 0, done.stdout + done.stderr


def names_of(row):
    """What follows the path of a row of the table: {}/{} for two names."""
    names, ends = re.search(r"\.names = (\d)", row), re.search(r'\.tail = "([^"]+)"', row)
    return "/".join(["{}"] * int(names[1]) if names else []) + (ends[1] if ends else "")


def test_it_has_every_route_with_its_roles():
    source = (ROOT / "relay/admin/api.c").read_text(encoding="utf-8")
    # pages of the console are no part of the interface
    rows = re.findall(r'\{"(?!console_page)\w+", "(GET|POST|DELETE)", "([^"]+)",\s*([A-Z_|\s]+|0),([^}]*)\}', source)
    routes = {(method.lower(), path + names_of(rest)): {role.strip().removeprefix("ROLE_").lower() for role in roles.split("|")} - {"0"}
              for method, path, roles, rest in rows}
    shown = {(method, re.sub(r"\{\w+\}", "{}", path)): set(operation["x-roles"])
             for path, operations in openapi.document()["paths"].items() for method, operation in operations.items()}
    assert len(routes) > 10 and shown == routes


@pytest.fixture
def api(make_relay, kafka, database, topic, tmp_path):
    """Of a relay with parked messages: of one topic that takes no large ones."""
    narrow = kafka.create_topic(f"{topic}.narrow", partitions=1)
    kafka.alter_topic(narrow, max_message_bytes=LIMIT)
    _, api = start_api(make_relay, tmp_path, TOKEN, CONFIG.format(topic=topic) + caller(
        "everything", TOKEN, "read, payload, send, operate, decide", types="*"), publisher_max_attempts=1)
    for number in range(20):
        database.execute("INSERT INTO outbox.message (topic, key, payload_bytes) VALUES (%s, %s, %s)",
                         (narrow, f"k{number % 4}", os.urandom(3 * LIMIT)))
    wait_for(lambda: api.request("GET", "/v1/parked?totals=yes").json["rows"], 60, "parked messages")
    yield api
    kafka.delete_topic(narrow)


@pytest.mark.parametrize("half", ["--include-path-regex", "--exclude-path-regex"])
def test_schemathesis_finds_nothing(api, scale, request, tmp_path, half):
    """Allowed requests are not refused as wrong, forbidden ones are; no undocumented answer, and no 5xx.

    Two halves, since one process of Python uses one core. /v1/events has no end, and a client that reads it to the end
    waits for ever: tests/integration/test_api_process.py has its test. Without a database of examples hypothesis does
    not look for the shortest of those that are no failures, which takes half of its time.
    """
    done = tool("schemathesis.cli", "run", openapi.PAGE, "--url", f"http://127.0.0.1:{api.port}",
                "--header", f"Authorization: Bearer {TOKEN}", "--header", "Connection: close",
                half, PART, "--exclude-path", "/v1/events", "--max-examples", str(scale(5000, default=300)),
                "--seed", str(request.config.option.seed), "--phases", "examples,coverage,fuzzing", "--workers", "1",
                "--generation-database", "none", "--continue-on-failure", "--no-color", cwd=tmp_path,
                env={**os.environ, "SCHEMATHESIS_HOOKS": str(ROOT / "tests/support/many_addresses.py")})
    assert done.returncode == 0, done.stdout[-20000:] + done.stderr[-2000:]
    assert re.search(r"^ *Tested: \d+$", done.stdout, re.MULTILINE), done.stdout
