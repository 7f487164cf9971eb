"""A name server on loopback, by UDP and TCP, whose records a test changes.

    with NameServer() as names:
        names.set("_grpc._tcp.shop", srv("a.shop", 50051, ttl=1))
        names.set("a.shop", a("127.0.0.1", ttl=1))
        names.address                       # "127.0.0.1:PORT", for name_servers
"""

import contextlib
import ipaddress
import socket
import struct
import threading
import time

from .process import free_port

A, CNAME, AAAA, SRV = 1, 5, 28, 33
NOERROR, SERVFAIL, NXDOMAIN = 0, 2, 3


def encode_name(name):
    return b"".join(bytes([len(label)]) + label.encode() for label in name.strip(".").split(".") if label) + b"\0"


def decode_name(data):
    labels = []
    while data[0]:
        labels.append(data[1:1 + data[0]].decode())
        data = data[1 + data[0]:]
    return ".".join(labels)


def record(kind, data, ttl):
    return kind, ttl, data


def a(address, ttl=1):
    return record(A, ipaddress.IPv4Address(address).packed, ttl)


def aaaa(address, ttl=1):
    return record(AAAA, ipaddress.IPv6Address(address).packed, ttl)


def cname(target, ttl=1):
    return record(CNAME, encode_name(target), ttl)


def srv(target, port, priority=0, weight=0, ttl=1):
    return record(SRV, struct.pack(">HHH", priority, weight, port) + encode_name(target), ttl)


class NameServer:
    """silent: it does not answer at all. failing: it answers SERVFAIL, to all or about these names or
    pairs of a name and a type. truncates: by UDP it only says that the answer is longer. extra: names whose addresses stand in the additional section."""

    def __init__(self):
        self.lock = threading.Lock()
        self.records = {}
        self.extra = {}
        self.silent = self.failing = self.truncates = False
        self.asked = []  # (time.monotonic(), name, type, "udp" or "tcp")
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        port = free_port()
        self.udp.bind(("127.0.0.1", port))
        self.tcp = socket.create_server(("127.0.0.1", port))
        self.address = f"127.0.0.1:{port}"
        for target in (self._serve_udp, self._serve_tcp):
            threading.Thread(target=target, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for one in (self.udp, self.tcp):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def set(self, name, *records, extra=()):
        """Replaces the records of a name; none: the name does not exist. extra: (name, record)."""
        with self.lock:
            self.records[name.lower()] = list(records)
            self.extra[name.lower()] = list(extra)

    def count(self, name):
        return sum(one[1] == name for one in list(self.asked))

    def _answer(self, query, way):
        name = decode_name(query[12:]).lower()
        end = 12 + len(encode_name(name))
        kind, = struct.unpack(">H", query[end:end + 2])
        question = query[12:end + 4]
        with self.lock:
            self.asked.append((time.monotonic(), name, kind, way))
            if self.silent:
                return None
            known = self.records.get(name, [])
            found = [(name, one) for one in known if one[0] in (kind, CNAME)]
            # The records of an alias's target come along, as those of a resolver do.
            found += [(target, one) for _, alias in found if alias[0] == CNAME
                      for target in [decode_name(alias[2])] for one in self.records.get(target, []) if one[0] == kind]
            extra = self.extra.get(name, []) if found else []
        fails = self.failing is True or bool({name, (name, kind)} & set(self.failing or ()))
        code = SERVFAIL if fails else NOERROR if known else NXDOMAIN
        if fails:
            found = extra = []
        cut = self.truncates and way == "udp"
        flags = 0x8580 | code | (0x0200 if cut else 0)
        sections = [[] if cut else [encode_name(owner) + struct.pack(">HHIH", one[0], 1, one[1], len(one[2])) + one[2]
                                    for owner, one in section] for section in (found, extra)]
        return (query[:2] + struct.pack(">HHHHH", flags, 1, len(sections[0]), 0, len(sections[1]))
                + question + b"".join(sections[0] + sections[1]))

    def _serve_udp(self):
        with contextlib.suppress(OSError):
            while True:
                query, sender = self.udp.recvfrom(4096)
                if not query:  # the socket was shut down
                    return
                answer = self._answer(query, "udp")
                if answer:
                    self.udp.sendto(answer, sender)

    def _serve_tcp(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.tcp.accept()
                threading.Thread(target=self._serve_connection, args=(connection,), daemon=True).start()

    def _serve_connection(self, connection):
        with connection, contextlib.suppress(OSError, struct.error):
            file = connection.makefile("rb")
            while True:
                length, = struct.unpack(">H", file.read(2))
                answer = self._answer(file.read(length), "tcp")
                if answer:
                    connection.sendall(struct.pack(">H", len(answer)) + answer)
