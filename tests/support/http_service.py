"""A service of the business over HTTP, for whatever may be answered.

    with Service(lambda request: request.say("no", 404)) as service:
        … service.url, service.requests
"""

import contextlib
import copy
import json
import threading
import time

from support.http_server import QuietHandler, QuietServer


class Handler(QuietHandler):
    def do_POST(self):
        self.body = self.rfile.read(int(self.headers["Content-Length"]))
        with self.server.lock:
            self.server.requests.append(copy.copy(self))  # one handler serves a connection
            self.server.open += 1
            self.server.most_open = max(self.server.open, self.server.most_open)
        with contextlib.suppress(OSError):  # the asker has gone
            self.server.answer(self)
        with self.server.lock:
            self.server.open -= 1

    def do_GET(self):
        self.server.requests.append(copy.copy(self))
        self.say("no")

    def say(self, body, status=200, kind="application/json", **headers):
        body = body if isinstance(body, bytes) else body.encode()
        self.send_response(status)
        if kind:
            self.send_header("Content-Type", kind)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def say_raw(self, text):
        self.close_connection = True
        self.wfile.write(text if isinstance(text, bytes) else text.encode())


class Service(QuietServer):
    def __init__(self, answer, context=None):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer = answer
        self.requests = []
        self.open = self.most_open = 0
        self.lock = threading.Lock()
        if context:
            self.socket = context.wrap_socket(self.socket, server_side=True,
                                              do_handshake_on_connect=False)
        scheme = "https" if context else "http"
        self.url = f"{scheme}://127.0.0.1:{self.server_port}/lookback"


def silence(request):
    request.close_connection = True
    request.rfile.read(1)  # until the asker goes


def endless(request):
    request.say_raw("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                    "Transfer-Encoding: chunked\r\n\r\n")
    while True:
        request.say_raw(b"1000\r\n" + b" " * 4096 + b"\r\n")


def drip(request):
    request.say_raw("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n")
    while True:
        request.say_raw(" ")
        time.sleep(0.05)  # a drop now and then is what it does


def pair(biz_id, decision):
    return {"biz_id": biz_id, "decision": decision}


def say_of_each(decision):
    """A service that is right about everything."""
    def answer(request):
        question = json.loads(request.body)
        if "ids" in question:
            request.say(json.dumps({"answers": [pair(one["biz_id"], decision)
                                                for one in question["ids"]]}))
        else:
            request.say(json.dumps(pair(question["biz_id"], decision)))
    return answer
