"""One child process: started, watched, paused, killed, and never left behind.

Everything the harness starts is a Process. A child runs in a session of its own, so that Ctrl-C
on the terminal reaches pytest alone, and dies with us (parent-death signal), even when we are
killed. Only processes that we started are ever signalled, by pid.
"""

import atexit
import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

_alive = set()
_ports_given = set()


class Timeout(AssertionError):
    """A condition did not come true in time."""


LONGEST_INTERVAL = 0.25
_wait = threading.local()


@contextlib.contextmanager
def _keeping():
    """A wait in a look of another one uses what that one has."""
    if kept() is not None:
        yield
        return
    _wait.kept = {}
    try:
        yield
    finally:
        for each in _wait.kept.values():
            each.close()
        _wait.kept = None


def kept():
    """A dictionary of what looks keep open until the end of their wait; None outside of a wait. A new session
    of Postgres costs 30 times as much as a look."""
    return getattr(_wait, "kept", None)


def wait_for(condition, timeout=60.0, what="the condition", interval=0.02):
    """Polls until condition() is true and returns its value. what: a text, or what makes it at the end.

    Looks that cost much, as a new session's on a busy machine, are made less often: what they take
    is taken from those that are waited for.
    """
    deadline = time.monotonic() + timeout
    with _keeping():
        while True:
            begun = time.monotonic()
            value = condition()
            if value:
                return value
            now = time.monotonic()
            if now > deadline:
                raise Timeout(f"{what() if callable(what) else what} did not come true within {timeout:g} s")
            time.sleep(interval and max(interval, min(3 * (now - begun), LONGEST_INTERVAL)))


def free_port():
    """A free loopback port below the kernel's range for outgoing connections.

    A port from that range could be taken by somebody's client while its server is down; and one
    that is given out and not listened on yet by the other worker, so each has ports of its own.
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 1))
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
    while True:
        port = random.SystemRandom().randrange(15000 + worker, 32000, workers)
        if port in _ports_given:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        _ports_given.add(port)
        return port


def port_answers(port, host="127.0.0.1"):
    try:
        socket.create_connection((host, port), timeout=1).close()
        return True
    except OSError:
        return False


def process_ended(pid):
    """Gone, or a zombie that only waits for its parent."""
    try:
        return _stat(pid)[0] == "Z"
    except FileNotFoundError:
        return True


def server_user():
    """The account for servers that refuse to run as root; None when we are not root."""
    return "postgres" if os.geteuid() == 0 else None


def temporary_folder(purpose, user=None):
    """A folder of the user's own, removed when we end (kept with OUTBOX_RELAY_KEEP_FILES)."""
    path = tempfile.mkdtemp(prefix=f"outbox-relay-{purpose}-")
    if user:
        shutil.chown(path, user)
    if not os.environ.get("OUTBOX_RELAY_KEEP_FILES"):
        atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


class Process:
    def __init__(self, arguments, log, user=None, environment=None, folder=None,
                 death_signal="KILL"):
        """Starts at once. Output of both streams is appended to the file `log`."""
        self.arguments = [str(argument) for argument in arguments]
        self.log = log
        # The signal comes when the *thread* that started the child ends, so only the main one
        # may ask for it.
        guard = []
        if threading.current_thread() is threading.main_thread():
            guard = ["setpriv", "--pdeathsig", death_signal, "--"]
        credentials = {"user": user, "group": user, "extra_groups": []} if user else {}
        with open(log, "ab") as output:
            self.child = subprocess.Popen(
                guard + self.arguments, stdin=subprocess.DEVNULL, stdout=output,
                stderr=subprocess.STDOUT, env=environment, cwd=folder, start_new_session=True,
                **credentials)
        _alive.add(self)

    @property
    def pid(self):
        return self.child.pid

    @property
    def running(self):
        return self.child.poll() is None

    def output(self):
        with open(self.log, errors="replace") as file:
            return file.read()

    def tail(self, lines=30):
        return "\n".join(self.output().splitlines()[-lines:])

    def send(self, number):
        if self.running:
            os.kill(self.pid, number)

    def pause(self):
        """SIGSTOP; returns when the process has really stopped."""
        self.send(signal.SIGSTOP)
        wait_for(lambda: not self.running or self.stopped, 30, "the stop")

    @property
    def stopped(self):
        return _stat(self.pid)[0] in "Tt"

    def resume(self):
        self.send(signal.SIGCONT)

    def wait(self, timeout=30.0):
        """Waits for the end and returns the exit status (negative: a signal)."""
        try:
            status = self.child.wait(timeout)
        except subprocess.TimeoutExpired:
            raise Timeout(f"{self.arguments[0]} did not end within {timeout:g} s; its log ends:\n"
                          f"{self.tail()}") from None
        _alive.discard(self)
        return status

    def stop(self, number=signal.SIGTERM, timeout=30.0):
        """Asks it to end; one that does not is killed and reported by Timeout."""
        self.resume()
        self.send(number)
        try:
            return self.wait(timeout)
        except Timeout:
            self.kill()
            raise

    def kill(self):
        self.send(signal.SIGKILL)
        return self.wait(30)

    def memory(self):
        """Resident bytes, now."""
        return self._status_bytes("VmRSS:")

    def peak_memory(self):
        return self._status_bytes("VmHWM:")

    def cpu_seconds(self):
        fields = _stat(self.pid)
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _status_bytes(self, name):
        with open(f"/proc/{self.pid}/status") as file:
            for line in file:
                if line.startswith(name):
                    return int(line.split()[1]) * 1024
        raise ProcessLookupError(f"process {self.pid} is gone")


def _stat(pid):
    """The fields of /proc/PID/stat from the third, the state, on."""
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()


@atexit.register
def end_all():
    for process in list(_alive):
        try:
            process.kill()
        except Exception:  # at the very end; the next one still has to be tried
            pass


def end_on_sigterm():
    """Makes SIGTERM do what Ctrl-C does: pytest ends the session and cleans up."""
    def interrupt(*_):
        raise KeyboardInterrupt("terminated")

    signal.signal(signal.SIGTERM, interrupt)
