"""An application that answers each kind of wrong thing, as a process that can be killed:

    python3 -m support.bad_application PORT FILE SEED

It does what a message says once, since it keeps the ids, and adds a line "id key payload" to FILE for it.
A payload with "refuse" in it is refused for good. By chance it is slow, fails before or after it has
done it, is busy, says nonsense, or nothing.
"""

import json
import random
import signal
import sys
import threading
import time

from .application import Application

SLOW = 1.5  # seconds: longer than the relay waits
BODIES = [b"[", b"{}", b"null", b'[{"id":"nobody","status":200}]', b'[{"id":7,"status":200}]', b"<html>",
          b"\xff\xfe"]


def close(handler):
    handler.close_connection = True


def nonsense(handler):
    handler.wfile.write(b"220 ready when you are\r\n\r\n")
    close(handler)


def torn(handler):
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n[")
    close(handler)


WRONG = [500, 502, 503, 408, (503, b"", {"Retry-After": "soon"}), (503, b"", {"Retry-After": "1"}),
         (429, b"", {"Retry-After": "0"}), close, nonsense, torn, "slow"]


class Shop:
    def __init__(self, path, seed):
        self.chance = random.Random(seed)
        self.lock = threading.Lock()
        self.file = open(path, "a+", encoding="utf-8")
        self.file.seek(0)
        self.done = {line.split(" ", 1)[0] for line in self.file}

    def one(self, event, payload):
        """The status, for good."""
        if "refuse" in payload:
            return 422
        with self.lock:
            if event["id"] in self.done:
                return 409
            self.done.add(event["id"])
            self.file.write(f"{event['id']} {event['subject']} {payload}\n")
            self.file.flush()
        return 200

    def each(self, delivery):
        """As the answer to a single one, or to a batch."""
        if delivery.kind != "application/cloudevents-batch+json":
            return self.one(delivery.event, delivery.body.decode())
        answers = [{"id": event["id"], "status": self.one(event, json.dumps(event["data"]))}
                   for event in delivery.events]
        if self.chance.random() < 0.1:
            answers.pop()
        return 200, json.dumps(answers)

    def answer(self, delivery):
        luck = self.chance.random()
        if luck > 0.3:
            return self.each(delivery)
        if luck > 0.2:  # it is done, and the answer is wrong
            self.each(delivery)
        if len(delivery.events) > 1 and luck < 0.05:
            return 413
        if delivery.kind == "application/cloudevents-batch+json" and luck < 0.1:
            return 200, self.chance.choice(BODIES)
        wrong = self.chance.choice(WRONG)
        if wrong != "slow":
            return wrong
        time.sleep(SLOW)
        return self.each(delivery)


def main(port, path, seed):
    ends = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    with Application(Shop(path, seed).answer, int(port)):
        signal.sigwait(ends)


main(*sys.argv[1:])
