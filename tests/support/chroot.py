"""A fresh system of a Debian release, in which a test installs packages (chroot.sh)."""

import os
import pathlib
import subprocess

from .process import Process, temporary_folder

SCRIPT = pathlib.Path(__file__).with_name("chroot.sh")
APT = ["apt-get", "-qq", "--yes", "--no-install-recommends", "-o", "Dpkg::Options::=--force-unsafe-io"]
# They belong to dpkg and apt, or change whenever an account is made.
FOREIGN = ("dev", "proc", "sys", "tmp", "packages", "var/lib/dpkg", "var/lib/apt", "var/cache", "var/log",
           "etc/.pwd.lock", "etc/passwd-", "etc/shadow-", "etc/group-", "etc/gshadow-")
ACCOUNTS = ("etc/passwd", "etc/shadow", "etc/group", "etc/gshadow")


def environment():
    return {**os.environ, "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}


class Chroot:
    def __init__(self, release):
        self.release = release
        self.root = pathlib.Path(temporary_folder("chroot")) / "root"
        subprocess.run([SCRIPT, "make", release, self.root], check=True)

    def command(self, *words):
        return [str(word) for word in (SCRIPT, "run", self.release, self.root, *words)]

    def status(self, *words, text=None):
        return subprocess.run(self.command(*words), capture_output=True, text=True, input=text,
                              stdin=None if text else subprocess.DEVNULL, env=environment())

    def run(self, *words, text=None):
        """Its output; an error has all that the command said."""
        done = self.status(*words, text=text)
        assert done.returncode == 0, f"{words}: {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-5000:]}"
        return done.stdout

    def apt(self, *words):
        """With lists that are older than the mirror apt may miss a package: then they are fetched again."""
        if self.status(*APT, *words).returncode != 0:
            self.run(*APT, "update")
            self.run(*APT, *words)

    def start(self, words, log):
        return Process(self.command(*words), log, environment=environment())

    def path(self, inside):
        return self.root / str(inside).lstrip("/")

    def files(self):
        """{path: (mode, owner, group, contents or where it leads)} of what packages and programs leave."""
        found = {}
        for folder, folders, files in os.walk(self.root):
            inside = os.path.relpath(folder, self.root)
            folders[:] = [name for name in folders if os.path.normpath(f"{inside}/{name}") not in FOREIGN]
            for name in folders + files:
                path = os.path.normpath(f"{inside}/{name}")
                if path not in FOREIGN and path not in ACCOUNTS:
                    found[path] = self._look(path)
        return found

    def accounts(self):
        return {f"{file}: {line}" for file in ACCOUNTS for line in (self.root / file).read_text().splitlines()}

    def _look(self, path):
        whole = self.root / path
        status = whole.lstat()
        contents = None
        if whole.is_symlink():
            contents = os.readlink(whole)
        elif path.startswith("etc/") and whole.is_file():
            contents = whole.read_bytes()
        return status.st_mode, status.st_uid, status.st_gid, contents
