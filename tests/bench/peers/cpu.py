"""CPU of a process, and of a system's sessions in PostgreSQL."""

import re
import threading
import time

HELPER = re.compile(r"postgres: parallel worker for PID (\d+)")


def process_cpu(pid):
    """Seconds of user and system time, by the process's own clock: the ticks of /proc are coarser than what a process at
    rest uses in half a minute."""
    try:
        return time.clock_gettime(~int(pid) << 3 | 2)  # as clock_getcpuclockid makes it
    except OSError as error:
        raise ProcessLookupError(pid) from error


class Sessions:
    """Looks several times a second, so that little is missed of a session that has ended since.

    A session is known by its role, which the process's title says: `postgres: ROLE DATABASE …`,
    `postgres: walsender ROLE DATABASE …`. Parallel workers belong to the session they work for.
    """
    INTERVAL = 0.2

    def __init__(self, postmaster, role):
        self.children = f"/proc/{postmaster}/task/{postmaster}/children"
        self.title = re.compile(rf"postgres: (walsender )?{re.escape(role)} ")
        self.seconds = {}
        self.lock = threading.Lock()
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()

    def cpu(self):
        """Seconds so far of all sessions, ended ones included."""
        self._look()
        with self.lock:
            return sum(self.seconds.values())

    def _watch(self):
        while not self.ended.wait(self.INTERVAL):
            self._look()

    def _look(self):
        with open(self.children) as file:
            pids = file.read().split()
        with self.lock:
            for pid in pids:
                try:
                    self._note(pid)
                except (FileNotFoundError, ProcessLookupError):
                    continue  # it ended just now; what it had a moment ago is noted

    def _note(self, pid):
        with open(f"/proc/{pid}/cmdline") as file:
            title = file.read()
        helper = HELPER.match(title)
        if self.title.match(title) or (helper and helper[1] in self.seconds):
            # a pid that is used again begins at 0: never take back what was counted
            self.seconds[pid] = max(self.seconds.get(pid, 0), process_cpu(pid))
