"""Questions to a business by tests/integration/check_asker.c, and what it takes to serve them over
TLS.

    with Asker(folder, transport="http", url=…) as asker:
        assert asker.ask("order", "7")["words"] == ["commit"]
"""

import itertools
import json
import subprocess
import tempfile
import threading

from .relay import beside, environment

WAIT = 60.0
PREPARED_AT = "2024-05-06T07:08:09.123456Z"


class Asker:
    """settings: of the [check] section."""

    def __init__(self, folder, variables=None, **settings):
        with tempfile.NamedTemporaryFile("w", dir=folder, suffix=".ini", delete=False) as file:
            file.write('[check "shop"]\n')
            file.writelines(f"{key} = {value}\n" for key, value in settings.items())
        self.child = subprocess.Popen(
            [beside("tests/integration/check_asker"), file.name, "shop"], text=True, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment(variables))
        self.numbers = itertools.count(1)
        self.changed = threading.Condition()
        self.answers = {}
        self.lines = []  # all that it wrote
        self.ended = False
        self.last = None  # what it said at its end
        self.errors = ""
        self.expected = ""  # of the one line of its log; "": it writes none; a list: of its lines
        self.threads = [threading.Thread(target=target, daemon=True)
                        for target in (self._read, self._read_errors)]
        for thread in self.threads:
            thread.start()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        try:
            self.close()
        except Exception:
            if kind is None:
                raise

    def _read(self):
        for line in self.child.stdout:
            answer = json.loads(line)
            with self.changed:
                self.lines.append(line)
                if "n" in answer:
                    self.answers[answer["n"]] = answer
                else:
                    self.last = answer
                self.changed.notify_all()
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def _read_errors(self):
        self.errors = self.child.stderr.read()

    def send(self, biz_type, *ids, url=None, attempt=1):
        """Asks about ids, in one question; its number."""
        number = next(self.numbers)
        question = {"n": number, "biz_type": biz_type, "url": url,
                    "ids": [{"biz_id": biz_id, "attempt": attempt, "prepared_at": PREPARED_AT}
                            for biz_id in ids]}
        self.child.stdin.write(json.dumps(question) + "\n")
        self.child.stdin.flush()
        return number

    def answer(self, number):
        with self.changed:
            there = self.changed.wait_for(lambda: number in self.answers or self.ended, WAIT)
            assert there and number in self.answers, (self.last, self.errors)
            return self.answers[number]

    def ask(self, biz_type, *ids, **options):
        return self.answer(self.send(biz_type, *ids, **options))

    def peak_memory(self):
        """Bytes that it had in memory at most."""
        with open(f"/proc/{self.child.pid}/status", encoding="ascii") as status:
            return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))

    def close(self):
        """Its last words: the longest turn of its loop, or why it refused the settings."""
        if not self.child.stdin.closed:
            self.child.stdin.close()
        try:
            status = self.child.wait(WAIT)
        except subprocess.TimeoutExpired:
            self.child.kill()
            raise
        for thread in self.threads:
            thread.join(WAIT)
        assert status == 0, (status, self.errors)
        lines = self.errors.splitlines()
        expected = self.expected if isinstance(self.expected, list) else [self.expected] * bool(self.expected)
        assert len(lines) == len(expected) and all(map(str.__contains__, lines, expected)), self.errors
        return self.last
