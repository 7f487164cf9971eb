"""A load balancer that sends each request to another process than the one before, also those of one connection.

    with Balancer([9188, 9189]) as balancer:
        … balancer.url, balancer.served      # {port: number of its requests}
        … balancer.streams                   # the ports that answered with a stream, one after the other
"""

import collections
import contextlib
import http.client
import random
import threading

from support.http_server import QuietHandler, QuietServer

HOP_BY_HOP = ("connection", "keep-alive", "transfer-encoding")


class Handler(QuietHandler):
    def forward(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))) or None
        headers = {name: value for name, value in self.headers.items() if name.lower() not in HOP_BY_HOP}
        for port in self.server.next_ports():
            with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
                try:
                    connection.connect()
                except OSError:
                    continue  # that process is away
                self.server.served[port] += 1
                connection.request(self.command, self.path, body, headers)
                with contextlib.suppress(OSError):  # either side has gone
                    self.answer(connection.getresponse(), port)
                return
        self.send_error(502)

    do_GET = do_POST = do_DELETE = do_HEAD = forward

    def answer(self, answer, port):
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in HOP_BY_HOP:
                self.send_header(name, value)
        if answer.length is None:  # a stream
            self.server.streams.append(port)
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        while part := answer.read1(65536):
            self.wfile.write(part)


class Balancer(QuietServer):
    def __init__(self, ports):
        super().__init__(("127.0.0.1", 0), Handler)
        self.ports, self.served, self.streams = ports, collections.Counter(), []
        self.chance, self.newest, self.lock = random.Random(7), None, threading.Lock()
        self.url = f"http://127.0.0.1:{self.server_port}"

    def next_ports(self):
        """All of them: first another one than the last time. In a fixed order a page with as many requests as there are
        processes would always get the same ones."""
        with self.lock:
            first = self.chance.choice([port for port in self.ports if port != self.newest])
            self.newest = first
        return [first, *(port for port in self.ports if port != first)]
