"""A server that speaks PostgreSQL's protocol just far enough to be connected to, and then sends what a
test wants.

    with FakePostgres(flood="rows") as server:
        dsn = server.dsn
        …
        server.sent  # bytes that went out in answer to a question
"""

import socket
import struct
import threading

CHUNK = 1 << 20
MOST = 2 << 30  # what a flood would come to


def message(kind, body=b""):
    return kind + struct.pack("!I", len(body) + 4) + body


READY = message(b"Z", b"I")
IN_TRANSACTION = message(b"Z", b"T")
HELLO = (message(b"R", struct.pack("!I", 0)) + message(b"S", b"server_version\x0015.8\0") +
         message(b"S", b"client_encoding\0UTF8\0") + message(b"K", struct.pack("!II", 1, 2)) + READY)
COLUMNS = message(b"T", struct.pack("!H", 2) + b"".join(
    name + b"\0" + struct.pack("!IhIhih", 0, 0, 25, -1, -1, 1) for name in (b"biz_id", b"decision")))


def row(*values):
    return message(b"D", struct.pack("!H", len(values)) + b"".join(
        struct.pack("!I", len(value)) + value for value in values))


def floods():
    """What each kind begins with, and what it repeats."""
    notice = message(b"N", b"SNOTICE\0M" + b"x" * 1000 + b"\0\0")
    setting = message(b"S", b"x" * 1000 + b"\0" + b"y" * 1000 + b"\0")
    begun = message(b"1") + message(b"2") + COLUMNS
    return {"rows": (begun, row(b"7", b"pending")),
            "row": (begun + b"D" + struct.pack("!IHI", 1 << 30, 2, (1 << 30) - 20), b"x"),
            "notices": (b"", notice), "settings": (b"", setting),
            "hello": (b"", setting)}  # before it lets anybody in


class FakePostgres:
    def __init__(self, flood):
        self.flood = flood
        self.sent = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.dsn = (f"host=127.0.0.1 port={self.listener.getsockname()[1]} user=u dbname=d "
                    "sslmode=disable gssencmode=disable")
        self.closing = False
        self.threads = []

    def __enter__(self):
        self._start(self._accept)
        return self

    def __exit__(self, *_):
        self.closing = True
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for thread in self.threads:
            thread.join(60)

    def _start(self, target, *arguments):
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self.threads.append(thread)
        thread.start()

    def _accept(self):
        while not self.closing:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self._start(self._serve, connection)

    def _serve(self, connection):
        with connection, connection.makefile("rb") as stream:
            try:
                self._talk(connection, stream)
            except (OSError, struct.error):
                pass  # the client hung up, which is what a test waits for

    def _talk(self, connection, stream):
        length, = struct.unpack("!I", stream.read(4))
        stream.read(length - 4)
        if self.flood == "hello":
            connection.sendall(HELLO[:9])
            self._pour(connection)
        connection.sendall(HELLO)
        while kind := stream.read(1):
            length, = struct.unpack("!I", stream.read(4))
            stream.read(length - 4)
            if kind == b"Q":
                connection.sendall(message(b"C", b"BEGIN\0") + IN_TRANSACTION)
            elif kind == b"S":
                self._pour(connection)

    def _pour(self, connection):
        begin, again = floods()[self.flood]
        connection.sendall(begin)
        chunk = again * (CHUNK // len(again))
        while self.sent < MOST and not self.closing:
            connection.sendall(chunk)
            self.sent += len(chunk)
