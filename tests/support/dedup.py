"""A store of dedup, claims, or rules, in a process of their own: the programs dedup_driver,
claims_driver, rules_driver and dedup_conform."""

import collections
import contextlib
import os
import signal
import subprocess

import pytest

from support.relay import beside


class DedupError(Exception):
    """What the library refused: its kind, and its message."""

    def __init__(self, kind, message):
        super().__init__(f"{kind}: {message}")
        self.kind = kind


@contextlib.contextmanager
def refused(kind, *words):
    with pytest.raises(DedupError) as refusal:
        yield
    assert refusal.value.kind == kind, refusal.value
    for word in words:
        assert word in str(refusal.value)


class Driver:
    """A program that obeys a line of standard input, and answers with a line; a context manager."""

    program = None

    def __init__(self, *arguments, env=None):
        self.process = subprocess.Popen(
            [*self.command(), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **(env or {})},
        )
        self.answer()

    def command(self):
        return [beside(f"tests/unit/{self.program}")]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def answer(self):
        answer = self.process.stdout.readline().rstrip("\n")
        if not answer:
            raise EOFError(f"{self.program} ended with {self.process.wait()}")
        if answer.startswith("error "):
            _, kind, message = answer.split(" ", 2)
            raise DedupError(kind, message)
        return answer

    def say(self, *words):
        """Sends a command without waiting for its answer (answer())."""
        self.process.stdin.write(" ".join(str(word) for word in words) + "\n")
        self.process.stdin.flush()

    def ask(self, *words):
        self.say(*words)
        return self.answer()

    def checkpoint(self, offset=-1):
        return self.ask("checkpoint", offset)

    def stats(self):
        pairs = (pair.split("=") for pair in self.ask("stats").split())
        return {name: float(value) if "." in value else int(value) for name, value in pairs}

    def pause(self):
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def close(self):
        """In order; kill() does not."""
        if self.process.poll() is None:
            self.process.stdin.close()
            self.process.wait(timeout=60)
        self.process.stdout.close()

    def kill(self):
        self.process.kill()
        self.process.wait()


class Claims(Driver):
    """Claims that are open. A claim is (number, token); None: somebody else has it."""

    program = "claims_driver"

    def take(self, id):
        word, *numbers = self.ask("take", id).split()
        return tuple(int(number) for number in numbers) if word == "taken" else None

    def take_many(self, *ids):
        """A claim or None for each id, in one request."""
        numbers = [int(number) for number in self.ask("many", ",".join(ids)).split()[1:]]
        return [(number, token) if token else None for number, token in zip(numbers[::2], numbers[1::2])]

    def check(self, claim):
        return self.ask("check", claim[0])

    def release(self, claim):
        return self.ask("release", claim[0])


class Rules(Driver):
    """Rules that are open: of a path, and lines."""

    program = "rules_driver"

    def check(self, *messages):
        """Each of them offset, time in milliseconds and key; the verdicts."""
        return self.ask("check", *(":".join(map(str, message)) for message in messages)).split()


class Dedup(Driver):
    """A store that is open. Ids are text without blanks, or hex:… for any bytes."""

    program = "dedup_driver"

    def check(self, *ids):
        return self.ask("check", *ids).split()

    def time(self, time_ms):
        """What follows is of records of this time; -1: of now."""
        return self.ask("time", time_ms)

    def done(self, *ids):
        return self.ask("done", *ids)

    def release(self, *ids):
        return self.ask("release", *ids)

    def connect(self, dsn):
        """A connection to Postgres of the application's own, for run() and take()."""
        return self.ask("connect", dsn)

    def run(self, statement):
        return self.ask("run", statement)

    def take(self, *ids):
        return self.ask("take", *ids).split()


def handle_all(stores, ids):
    """Each of the stores handles the ids that are new to it, all of them at once, until all are done.
    Returns how often each was handled."""
    count = collections.Counter()
    states = [dict.fromkeys(ids, "pending") for _ in stores]
    while waiting := [(store, state) for store, state in zip(stores, states)
                      if "pending" in state.values()]:
        asked = [[id for id in ids if state[id] == "pending"][:100] for _, state in waiting]
        for (store, _), batch in zip(waiting, asked):
            store.say("check", *batch)
        answers = [store.answer().split() for store, _ in waiting]
        for (store, state), batch, answer in zip(waiting, asked, answers):
            state.update(zip(batch, answer))
            new = [id for id, found in zip(batch, answer) if found == "new"]
            count.update(new)
            store.say("done", *new)
        for store, _ in waiting:
            store.answer()
    return count


def conform(*words):
    """Runs the conformance test; words as conform.c has them, the line last."""
    run = subprocess.run(
        [beside("tests/unit/dedup_conform"), *words], capture_output=True, text=True, timeout=300
    )
    assert run.returncode == 0, run.stdout + run.stderr
