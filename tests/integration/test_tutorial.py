"""The console blocks of the tutorial, typed as they stand, in order, into one shell.

`$ ` begins a command, with the lines of its here-document behind it; the lines up to the next command are
its output. Both sides are compared after mask(): what differs from run to run becomes a word. A line `…`
stands for any lines. A command that only reads is typed again until its output is as the page has it, since
the relay works beside it."""

import contextlib
import os
import pathlib
import re
import shlex
import signal
import subprocess
import time

import pytest
from confluent_kafka import KafkaException

from support.guide import calls_of
from support.kafka import java
from support.postgres import Postgres, program
from support.process import free_port
from support.relay import binary, environment

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = ["docs/start/tutorial.md"]
NOT_TYPED = {  # test_docs.py checks their commands and options
    "README.md": "test_first_steps.py types its commands",
    "docs/guide/alerts.md": "test_guide_commands.py types its commands",
    "docs/guide/archive.md": "test_guide_commands.py types its commands",
    "docs/guide/dedup.md": "test_guide_commands.py types its commands",
    "docs/guide/lookback-barrier.md": "test_guide_commands.py types its commands",
    "docs/guide/lookback-operate.md": "test_guide_commands.py types its commands",
    "docs/guide/operate.md": "test_guide_commands.py types its commands",
    "docs/guide/other-queues.md": "test_guide_commands.py types its commands",
    "docs/guide/parked.md": "test_guide_commands.py types its commands",
    "docs/guide/replay.md": "test_guide_commands.py types its commands",
    "docs/guide/rules.md": "test_guide_commands.py types its commands",
    "docs/guide/rules-of-a-user.md": "test_guide_commands.py types its commands",
    "docs/guide/upgrade.md": "test_guide_commands.py types its commands",
    "docs/start/install.md": "installs packages; test_install.py does the same",
}
BLOCK = re.compile(r"^(?:<!-- broker: (\w+) -->\n)?```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
READS = re.compile(r"(outbox-relay (status|publisher list|parked list|verify)|kcat -C)\b")
MASKS = [
    (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "UUID"),
    (r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME"),
    (r"\b[\w.-]+:\d+:[0-9a-f]{8}\b", "OWNER"),
    (r"\bidentity [0-9a-f]{8}\b", "identity IDENTITY"),
    (r"\b2:main:[0-9a-f]{8}:0:\d+:\d+:\d+", "POSITION"),
    (r"\b\d+\.\d s\b", "SECONDS"), (r"\b(n|attempts=?) ?\d+", r"\1 COUNT"),
    (r"127\.0\.0\.1:\d+", "SERVER")]

NAMES = re.compile("|".join(pattern for pattern, word in MASKS if word in ("UUID", "OWNER")))


def commands_of(page, broker="trial"):
    """[(command, expected output)…], without those for another broker."""
    found = []
    for wanted, block in BLOCK.findall(page):
        if wanted not in ("", broker):
            continue
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            lines, ended = part.split("\n"), 0
            if "<<'SQL'" in lines[0]:
                ended = lines.index("SQL")
            found.append(("\n".join(lines[:ended + 1]), "\n".join(lines[ended + 1:])))
    return found


def mask(text):
    for pattern, word in MASKS:
        text = re.sub(pattern, word, text)
    return text.strip("\n")


def equals(expected, output):
    """… alone on a line stands for any lines."""
    pattern = re.escape(mask(expected)).replace(re.escape("…") + "\n", "(?:.*\n)*")
    return re.fullmatch(pattern.replace(re.escape("…"), r"[\s\S]*").replace("…", r"[\s\S]*"), mask(output))


class Names:
    """The ids and owners of a page stand for those of the run: always the same, and no two for one."""

    def __init__(self):
        self.printed = {}

    def agree(self, expected, output):
        if "…" in expected:
            return True
        pairs = self.printed | dict(zip(NAMES.findall(expected), NAMES.findall(output), strict=True))
        known = all(pairs[name] == other for name, other in self.printed.items())
        if not known or len(set(pairs.values())) < len(pairs):
            return False
        self.printed = pairs
        return True


class Shell:
    """A bash that is spoken to command by command."""

    def __init__(self, env, folder):
        self.process = subprocess.Popen(
            ["bash", "--norc"], cwd=folder, env=env, text=True, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def type(self, command):
        """What it prints."""
        self.process.stdin.write(f"{command}\nprintf '\\n%s\\n' '--end--'\n")
        self.process.stdin.flush()
        lines = []
        while (line := self.process.stdout.readline()) not in ("--end--\n", ""):
            lines.append(line)
        # of a process that was killed: told by the shell at a moment of its own
        return "".join(line for line in lines if not re.match(r"bash: line \d+: +\d+ (Killed|Terminated)", line))

    def close(self):
        os.killpg(self.process.pid, signal.SIGTERM)  # bash and all that it started
        self.process.communicate(timeout=60)


def topic_tool(folder):
    """kafka-topics.sh, as a Kafka's own archive has it."""
    path = folder / "kafka-topics.sh"
    line = shlex.join(java("org.apache.kafka.tools.TopicCommand"))
    path.write_text(f'#!/bin/sh\nexec {line} "$@" 2> /dev/null\n', encoding="utf-8")
    path.chmod(0o755)


@pytest.fixture(params=["trial", "kafka"])
def broker(request):
    """(its name in the page, its port)"""
    if request.param == "trial":
        yield "trial", free_port()
        return
    kafka = request.getfixturevalue("kafka")
    yield "kafka", kafka.bootstrap.rpartition(":")[2]
    with contextlib.suppress(KafkaException):  # the page deleted it
        kafka.delete_topic("orders")


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_true_when_it_is_typed(page, broker, tmp_path):
    name, port = broker
    topic_tool(tmp_path)
    with Postgres() as server:
        folders = [tmp_path, *(os.path.dirname(path) for path in (binary(), program("psql")))]
        shell = Shell(environment({"PATH": ":".join([*map(str, folders), os.environ["PATH"]])}), tmp_path)
        there = {"127.0.0.1:5432": f"127.0.0.1:{server.port}", "127.0.0.1:9092": f"127.0.0.1:{port}",
                 "--port 9092": f"--port {port}"}
        names = Names()

        def as_on_the_page():
            return equals(expected, output) and names.agree(expected, output)

        try:
            commands = commands_of((ROOT / page).read_text(encoding="utf-8"), name)
            assert len(commands) > 10
            for command, expected in commands:
                for place, real in there.items():
                    command = command.replace(place, real)
                output = shell.type(command)
                deadline = time.monotonic() + 30
                while not as_on_the_page() and READS.match(command) and time.monotonic() < deadline:
                    time.sleep(0.2)
                    output = shell.type(command)
                assert as_on_the_page(), f"{page}: $ {command}\n--- page\n{expected}\n--- printed\n{output}"
        finally:
            shell.close()


def test_a_page_with_commands_is_typed_or_says_why_not():
    pages = [ROOT / "README.md", *(ROOT / "docs/start").glob("*.md"), *(ROOT / "docs/guide").glob("*.md")]
    found = {str(path.relative_to(ROOT)) for path in pages if calls_of(path.read_text(encoding="utf-8"))}
    assert found == NOT_TYPED.keys() | set(PAGES) and not NOT_TYPED.keys() & set(PAGES)


def test_an_output_that_differs_is_found():
    assert equals("a\n…\nd", "a\nb\nc\nd\n") and equals("a\n…", "a\nb") and equals("1.5 s", "2.0 s\n")
    assert not equals("a\n…\nd", "a\nb") and not equals("a b", "a c") and not equals("", "psql: error")


def test_a_name_stands_for_one_other():
    first, second = "vm:1:0123abcd", "vm:2:0123abcd"
    names = Names()
    assert names.agree(first, "a:7:00000000") and names.agree(first, "a:7:00000000")
    assert not names.agree(first, "a:8:00000000") and not names.agree(second, "a:7:00000000")
    assert names.agree(second, "a:8:00000000")


def test_commands_and_their_outputs_are_told_apart():
    assert commands_of("```console\n$ a <<'SQL'\nx\nSQL\nout\n$ b\n```\n") == [("a <<'SQL'\nx\nSQL", "out\n"), ("b", "")]
