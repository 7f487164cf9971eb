"""Clients that a listener would rather not have.

    with Attack(port, 2000, paths=["/metrics"]) as attack:
        … attack.rounds, attack.sent
"""

import contextlib
import errno
import itertools
import socket
import threading

from .process import wait_for

# What a client does once it is connected.
KINDS = ["silent", "drip", "half", "unread", "idle"]
FIRST_ADDRESS = 2  # 127.0.0.2; a probe comes from 127.0.0.1


def exchange(port, request, timeout=30, source=None):
    """Sends the bytes as they are; all that is answered until the other side closes. A reset behind
    an answer is its end as well."""
    answer = b""
    address = (source, 0) if source else None
    with socket.create_connection(("127.0.0.1", port), timeout, address) as sock:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            sock.sendall(request)
        with contextlib.suppress(ConnectionResetError):
            while part := sock.recv(65536):
                answer += part
    return answer


class Client:
    def __init__(self, port, source, kind, head):
        self.kind = kind
        self.head = head
        self.position = 0
        self.socket = socket.socket()
        self.socket.setblocking(False)
        if kind == "unread":
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        self.socket.bind((source, 0))
        if self.socket.connect_ex(("127.0.0.1", port)) not in (0, errno.EINPROGRESS):
            raise OSError("no connection")

    def act(self):
        """False: the server cut it off, and it has to come again."""
        try:
            if self.kind == "drip":
                # Never its last byte, so that the request is never whole.
                self.socket.send(self.head[:-1][self.position:self.position + 1] or b"x")
                self.position += 1
            elif self.kind == "half" and self.position == 0:
                self.position = self.socket.send(self.head[:len(self.head) // 2])
            elif self.kind in ("unread", "idle") and self.position == 0:
                self.position = self.socket.send(self.head)
            if self.kind != "unread":
                return self.socket.recv(65536) != b""
            return self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
        except BlockingIOError:
            return True
        except OSError as error:
            return error.errno == errno.ENOTCONN


class Attack:
    """count connections, of every kind, that come again whenever they are cut off."""

    def __init__(self, port, count, head, sources=("127.0.0.1",)):
        self.port, self.count, self.head = port, count, head
        self.sources = itertools.cycle(sources)
        self.kinds = itertools.cycle(KINDS)
        self.clients = []
        self.rounds = self.cut_off = 0
        self.ends = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self.thread.start()
        wait_for(lambda: self.rounds > 1 or not self.thread.is_alive(), 120, "the attack")
        assert self.thread.is_alive()
        return self

    def __exit__(self, *_):
        self.ends.set()
        self.thread.join()
        for client in self.clients:
            client.socket.close()

    def _come(self):
        return Client(self.port, next(self.sources), next(self.kinds), self.head)

    def _run(self):
        while not self.ends.is_set():
            while len(self.clients) < self.count and not self.ends.is_set():
                self.clients.append(self._come())
            kept = []
            for client in self.clients:
                if client.act():
                    kept.append(client)
                else:
                    client.socket.close()
                    self.cut_off += 1
            self.clients = kept
            self.rounds += 1
            self.ends.wait(0.02)  # the pace of the attack, which waits for nothing
