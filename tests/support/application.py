"""An application that gets messages by HTTP: it writes down what comes, and answers as it is told.

    with Application(lambda delivery: 200) as application:
        application.url
        application.wait_ids({"7"})
"""

import contextlib
import copy
import json
import threading
import urllib.parse

from support.http_server import QuietHandler, QuietServer
from support.process import wait_for


class Delivery:
    """A request. Attributes of the event, or of each of a batch, are in `events`."""

    def __init__(self, handler, body):
        self.path = handler.path
        self.headers = dict(handler.headers.items())
        self.body = body
        self.kind = self.headers.get("Content-Type", "").split(";")[0]
        if self.kind == "application/cloudevents-batch+json":
            self.events = json.loads(body)
        elif self.kind == "application/cloudevents+json":
            self.events = [json.loads(body)]
        else:
            self.events = [{name[3:]: urllib.parse.unquote(value)
                            for name, value in self.headers.items() if name.startswith("ce-")}]

    @property
    def ids(self):
        return [event["id"] for event in self.events]

    @property
    def event(self):
        assert len(self.events) == 1
        return self.events[0]


class Handler(QuietHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        delivery = Delivery(copy.copy(self), body)
        with self.server.lock:
            self.server.open += 1
            self.server.most_open = max(self.server.open, self.server.most_open)
        answer = self.server.answer(delivery)
        with self.server.lock:
            self.server.open -= 1
            self.server.deliveries.append(delivery)
        with contextlib.suppress(OSError):  # the relay has gone
            if callable(answer):
                answer(self)
            else:
                self.say(*answer if isinstance(answer, tuple) else (answer,))

    def say(self, status, body=b"", headers=None):
        body = body if isinstance(body, bytes) else body.encode()
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Application(QuietServer):
    def __init__(self, answer=lambda _: 200, port=0, context=None):
        """answer(delivery): a status, or (status, body), or (status, body, headers), or what is done to
        the request's handler instead. context: an ssl.SSLContext."""
        super().__init__(("127.0.0.1", port), Handler)
        self.answer = answer
        self.deliveries = []
        self.open = self.most_open = 0
        self.lock = threading.Lock()
        if context:
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.url = f"{'https' if context else 'http'}://127.0.0.1:{self.server_port}/orders"

    @property
    def ids(self):
        with self.lock:
            return [id for delivery in self.deliveries for id in delivery.ids]

    def of(self, id):
        with self.lock:
            return [delivery for delivery in self.deliveries if id in delivery.ids]

    def wait_ids(self, ids, timeout=60):
        missing = set(ids)
        wait_for(lambda: missing <= set(self.ids), timeout, f"requests with {len(missing)} ids")
        return self.ids
