"""One thread of a process, which a debugger could stop as well."""

import ctypes
import os
import pathlib

from .process import wait_for

SEIZE, INTERRUPT, DETACH = 0x4206, 0x4207, 17  # of ptrace(2)
WALL = 0x40000000

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


class Stopped:
    """One thread of a process does nothing; the others go on."""

    def __init__(self, thread):
        self.thread = thread

    def __enter__(self):
        for request in (SEIZE, INTERRUPT):
            if libc.ptrace(request, self.thread, None, None) != 0:
                raise OSError(ctypes.get_errno(), "ptrace")
        os.waitpid(self.thread, WALL)
        return self

    def __exit__(self, *_):
        assert libc.ptrace(DETACH, self.thread, None, None) == 0


def thread_of(pid, name):
    """The thread of that name, as soon as there is one; "main": the first."""
    def found():
        return next((int(task.name) for task in pathlib.Path(f"/proc/{pid}/task").iterdir()
                     if (task / "comm").read_text().strip() == name), None)

    return pid if name == "main" else wait_for(found, 60, f"a thread {name}")
