"""The relay under test, as a child process.

    with Relay({"DATABASE_URL": dsn, "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": servers}) as relay:
        relay.wait_ready()
        relay.kill()

The binary is the one that the environment variable OUTBOX_RELAY names.
"""

import http.client
import os
import pty
import re
import subprocess

from .process import Process, free_port, temporary_folder, wait_for

SANITIZER_REPORT = re.compile(
    r"ERROR: (Address|Leak)Sanitizer|WARNING: ThreadSanitizer|runtime error: "
    r"|ERROR SUMMARY: [1-9]\d* errors")
SUPPORT = os.path.dirname(os.path.abspath(__file__))
FIELD = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|\S*)')


def binary():
    path = os.environ.get("OUTBOX_RELAY")
    if not path:
        raise RuntimeError("set OUTBOX_RELAY to the program to test (./run-tests does)")
    return path


def bench_binary():
    """The bench of the same build."""
    return os.path.join(os.path.dirname(binary()), "../bench/outbox-relay-bench")


def beside(program):
    """beside("tests/sql/test_pg_live"): a program of the tests, in the build that TEST_BUILD names,
    or in that of the relay."""
    folder = os.environ.get("TEST_BUILD") or os.path.join(os.path.dirname(binary()), "../..")
    return os.path.join(folder, program)


def environment(settings=None):
    """The variables for the program: ours, without settings from the caller's shell."""
    clean = {name: value for name, value in os.environ.items()
             if not name.startswith(("OUTBOX_RELAY", "PG", "DATABASE_URL"))}
    suppressions = os.path.join(SUPPORT, "tsan.supp")
    other = os.environ.get("TEST_LIBRDKAFKA")  # the folder of another librdkafka.so.1
    if other:
        clean["LD_LIBRARY_PATH"] = other
    clean["ASAN_OPTIONS"] = "detect_stack_use_after_return=1"
    clean["UBSAN_OPTIONS"] = "print_stacktrace=1"
    clean["TSAN_OPTIONS"] = f"suppressions={suppressions} second_deadlock_stack=1"
    clean.update({name: str(value) for name, value in (settings or {}).items()})
    return clean


def run_command(arguments, settings=None, timeout=120, program=None):
    """Runs `outbox-relay arguments…` to its end: (exit status, stdout, stderr)."""
    done = subprocess.run(
        [program or binary(), *[str(argument) for argument in arguments]],
        capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL,
        env=environment(settings))
    return done.returncode, done.stdout, done.stderr


def on_a_terminal(arguments, settings, answer, meanwhile=lambda: None):
    """Runs it on a terminal where somebody types the answer, after something happened meanwhile: (exit
    status, what stood there)."""
    ours, its = pty.openpty()
    child = subprocess.Popen([binary(), *arguments], stdin=its, stdout=its, stderr=its,
                             env=environment(settings))
    os.close(its)
    shown = b""
    try:
        while b"Type yes" not in shown:
            shown += os.read(ours, 1000)
        meanwhile()
        os.write(ours, answer)
        while part := os.read(ours, 1000):
            shown += part
    except OSError:  # EIO: nobody has the terminal open any more
        pass
    os.close(ours)
    return child.wait(timeout=60), shown.decode()


def log_fields(line):
    """A logfmt line as a dict of texts."""
    fields = {}
    for name, value in FIELD.findall(line):
        if value.startswith('"'):
            value = re.sub(r"\\(.)", r"\1", value[1:-1])
        fields[name] = value
    return fields


class Relay:
    def __init__(self, settings, arguments=("run",), program=None, wrapper=()):
        """
        settings: environment of the program; an admin listener is added.
        wrapper: a command line in front of the program, as valgrind's.
        """
        self.program = program or binary()
        self.wrapper = list(wrapper)
        self.arguments = list(arguments)
        self.admin_port = free_port()
        self.settings = {"OUTBOX_RELAY_ADMIN_LISTEN": f"127.0.0.1:{self.admin_port}", **settings}
        self.log = os.path.join(temporary_folder("relay"), "log")
        self.process = None
        self.tls = None  # an ssl.SSLContext, if the admin listener speaks TLS

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.close()

    def start(self, **settings):
        """Starts it (again); settings hold for this start only, as OUTBOX_RELAY_FAULT=…"""
        self.process = Process([*self.wrapper, self.program, *self.arguments], self.log,
                               environment=environment({**self.settings, **settings}))
        return self

    def close(self):
        """Ends it, and fails when a sanitizer found something at any time."""
        if self.process and self.process.running:
            self.process.stop(timeout=60)
        found = SANITIZER_REPORT.search(self.output())
        if found:
            raise AssertionError(self.output()[max(0, found.start() - 200):][:8000])

    @property
    def running(self):
        return self.process.running

    def stop(self, timeout=30.0):
        """SIGTERM; returns the exit status."""
        return self.process.stop(timeout=timeout)

    def kill(self):
        return self.process.kill()

    def pause(self):
        self.process.pause()

    def resume(self):
        self.process.resume()

    def wait(self, timeout=60.0):
        """Waits for an end that it comes to by itself; returns the exit status."""
        return self.process.wait(timeout)

    def output(self):
        return self.process.output() if self.process else ""

    def events(self, name=None):
        """The log's lines as dicts, of one event code or of all."""
        mark = f" event={name or ''}"
        lines = (log_fields(line) for line in self.output().splitlines() if mark in line)
        return [fields for fields in lines if name in (None, fields["event"])]

    def wait_event(self, name, count=1, timeout=60.0, **fields):
        """Waits until the log holds `count` lines of this event with these fields."""
        def matching():
            found = [event for event in self.events(name) if fields.items() <= event.items()]
            return found if len(found) >= count else None

        return self._wait(matching, timeout, f"event {name} {fields or ''}")

    def wait_ready(self, timeout=120.0):
        self._wait(lambda: self.get("/readyz")[0] == 200, timeout, "readiness")
        return self

    def readiness_says(self, status, *words):
        """Is that its readiness, with all these words in the same report?"""
        answer, report = self.get("/readyz?verbose")
        return answer == status and all(word in report for word in words)

    def wait_for(self, condition, timeout=120.0, what="the condition"):
        """Like wait_for, but an end of the relay is reported as such."""
        return self._wait(condition, timeout, what)

    def get(self, path):
        """(status, body) of the admin endpoint; status 0 when it does not answer.

        A relay that is slow, or paused for a moment, answers late: that is no missing answer.
        """
        where = "127.0.0.1", self.admin_port
        connection = (http.client.HTTPSConnection(*where, timeout=30, context=self.tls) if self.tls
                      else http.client.HTTPConnection(*where, timeout=30))
        try:
            connection.request("GET", path, headers={"Connection": "close"})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        except (OSError, http.client.HTTPException):
            return 0, ""
        finally:
            connection.close()

    def metric(self, name, **labels):
        """The sum of a metric's samples with these labels; None when there is no sample."""
        total = None
        for line in self.get("/metrics")[1].splitlines():
            if not line.startswith(name):
                continue
            found = re.match(r"([\w:]+)(?:\{(.*)\})? (\S+)", line)
            if not found or found[1] != name:
                continue
            if labels.items() <= dict(re.findall(r'(\w+)="([^"]*)"', found[2] or "")).items():
                total = (total or 0) + float(found[3])
        return total

    def _wait(self, condition, timeout, what):
        def checked():
            value = condition()
            if not value and not self.running:
                raise AssertionError(f"the relay ended with {self.process.child.returncode} "
                                     f"before {what}; its log ends:\n{self.process.tail()}")
            return value

        try:
            return wait_for(checked, timeout, what)
        except AssertionError as error:
            if "its log ends" in str(error):
                raise
            raise AssertionError(f"{error}; the log ends:\n{self.process.tail()}") from None
