"""A disk that can be full, for a server of its own.

    disk = Disk(folder, user)   # a file system of its own is mounted on the empty folder
    disk.fill()                 # not a block is left in it
    disk.free()
    disk.unmount()              # also done when we end

It is in memory and takes as much of it as its files are large: to fill it, its limit is lowered to
what is used. Mounting needs root; refusal() says why it is not possible.
"""

import atexit
import os
import subprocess

from .process import temporary_folder, wait_for

ROOM = "8g"  # a limit, not what it takes


def _mount(*arguments):
    return subprocess.run(["mount", *arguments], capture_output=True, text=True)


def refusal():
    """Why no disk can be made here; None: it can."""
    try:
        Disk(temporary_folder("disk")).unmount()
    except (RuntimeError, OSError) as failure:
        return str(failure)
    return None


class Disk:
    def __init__(self, folder, user=None):
        self.folder = folder
        os.makedirs(folder, exist_ok=True)
        owner = f",uid={user},gid={user}" if user else ""
        done = _mount("-t", "tmpfs", "-o", f"size={ROOM},mode=700{owner}", "outbox-relay", folder)
        if done.returncode:
            raise RuntimeError(f"no file system can be mounted: {done.stderr.strip()}")
        atexit.register(self.unmount)

    def fill(self):
        # The kernel refuses a limit below what is used by then: somebody is writing.
        wait_for(lambda: self._limit(self._used()), 10, "a limit that leaves no room", interval=0)

    def free(self):
        assert self._limit(ROOM)

    def unmount(self):
        """Also with a server on it, which loses what it has: it is to be ended before."""
        atexit.unregister(self.unmount)
        subprocess.run(["umount", "--lazy", self.folder], capture_output=True)

    def _used(self):
        found = os.statvfs(self.folder)
        return (found.f_blocks - found.f_bfree) * found.f_frsize

    def _limit(self, size):
        return _mount("-o", f"remount,size={size}", self.folder).returncode == 0
