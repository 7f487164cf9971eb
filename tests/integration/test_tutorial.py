"""The console blocks of the tutorial, typed as they stand, in order, into one shell.

`$ ` begins a command, with the lines of its here-document behind it; the lines up to the next command are
its output. Both sides are compared after mask(): what differs from run to run becomes a word. A line `…`
stands for any lines. A command that only reads is typed again until its output is as the page has it, since
the relay works beside it."""

import os
import pathlib
import re
import signal
import subprocess
import time

import pytest

from support.postgres import Postgres, program
from support.process import free_port
from support.relay import binary, environment

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = ["docs/start/tutorial.md"]
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
READS = re.compile(r"(outbox-relay (status|publisher list|parked list|verify)|kcat -C)\b")
MASKS = [
    (r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", "UUID"),
    (r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", "TIME"),
    (r"\b[\w.-]+:\d+:[0-9a-f]{8}\b", "OWNER"),
    (r"\bidentity [0-9a-f]{8}\b", "identity IDENTITY"),
    (r"\b2:main:[0-9a-f]{8}:0:\d+:\d+:\d+", "POSITION"),
    (r"\b\d+\.\d s\b", "SECONDS"), (r"\b(n|attempts=?) ?\d+", r"\1 COUNT"),
    (r"127\.0\.0\.1:\d+", "SERVER")]


def commands_of(page):
    """[(command, expected output)…]"""
    found = []
    for block in BLOCK.findall(page):
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


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_true_when_it_is_typed(page, tmp_path):
    with Postgres() as server:
        folders = [os.path.dirname(path) for path in (binary(), program("psql"))]
        shell = Shell(environment({"PATH": ":".join([*folders, os.environ["PATH"]])}), tmp_path)
        there = {"127.0.0.1:5432": f"127.0.0.1:{server.port}"}
        port = str(free_port())
        try:
            commands = commands_of((ROOT / page).read_text(encoding="utf-8"))
            assert len(commands) > 10
            for command, expected in commands:
                for name, real in there.items():
                    command = command.replace(name, real)
                command = command.replace("9092", port)
                output = shell.type(command)
                deadline = time.monotonic() + 30
                while not equals(expected, output) and READS.match(command) and time.monotonic() < deadline:
                    time.sleep(0.2)
                    output = shell.type(command)
                assert equals(expected, output), f"{page}: $ {command}\n--- page\n{expected}\n--- printed\n{output}"
        finally:
            shell.close()


def test_an_output_that_differs_is_found():
    assert equals("a\n…\nd", "a\nb\nc\nd\n") and equals("a\n…", "a\nb") and equals("1.5 s", "2.0 s\n")
    assert not equals("a\n…\nd", "a\nb") and not equals("a b", "a c") and not equals("", "psql: error")


def test_commands_and_their_outputs_are_told_apart():
    assert commands_of("```console\n$ a <<'SQL'\nx\nSQL\nout\n$ b\n```\n") == [("a <<'SQL'\nx\nSQL", "out\n"), ("b", "")]
