"""What systemd does for a service, as far as tests need it: the socket of sd_notify, and the command line,
the account and the credentials of a unit. The unit is read, so that a test runs what is installed."""

import pathlib
import shlex
import socket
import struct
import threading
import time

CREDENTIALS = struct.Struct("3i")  # pid, uid, gid: SCM_CREDENTIALS


class Notifications:
    """$NOTIFY_SOCKET at a path; every datagram with its time and sender, as systemd reads them."""

    def __init__(self, path):
        self.path = str(path)
        self.received = []  # (monotonic time, pid of the sender, text)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._socket.bind(self.path)
        pathlib.Path(self.path).chmod(0o666)  # as /run/systemd/notify
        self._thread = threading.Thread(target=self._receive, daemon=True)
        self._thread.start()

    def _receive(self):
        while True:
            text, ancillary, *_ = self._socket.recvmsg(4096, socket.CMSG_SPACE(CREDENTIALS.size))
            if not text:
                return
            (*_, data), = ancillary
            self.received.append((time.monotonic(), CREDENTIALS.unpack(data)[0], text.decode()))

    def states(self):
        return [text for _, _, text in self.received if text != "WATCHDOG=1"]

    def times(self, state="WATCHDOG=1", since=0.0):
        return [at for at, _, text in self.received if text == state and at >= since]

    def senders(self):
        return {pid for _, pid, _ in self.received}

    def close(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
            end.sendto(b"", self.path)
        self._thread.join()
        self._socket.close()


class Unit:
    """A unit file and its drop-ins: {key: [value…]} of the section [Service]. An empty value clears a list."""

    def __init__(self, *texts):
        self.service = {}
        for text in texts:
            section = None
            for line in text.splitlines():
                if line.startswith("["):
                    section = line.strip()
                elif section == "[Service]" and "=" in line and not line.startswith(("#", ";")):
                    key, value = (part.strip() for part in line.split("=", 1))
                    self.service.setdefault(key, []).append(value)
                    if not value:
                        self.service[key].clear()

    def one(self, key):
        return self.service[key][-1]

    def command(self):
        return shlex.split(self.one("ExecStart"))

    def watchdog_us(self):
        return int(self.one("WatchdogSec")) * 1_000_000

    def credentials(self):
        """{name: path}"""
        return dict(value.split(":", 1) for value in self.service.get("LoadCredential", []))
