"""A throw-away MariaDB server on a loopback port, for what applications on MySQL do.

    with MariaDb() as server:
        with server.connect() as connection: ...
"""

import os
import shutil
import signal
import subprocess

import pymysql

from .process import Process, free_port, server_user, temporary_folder, wait_for

ROOT = {"user": "root", "host": "127.0.0.1"}


def program(name):
    """Debian keeps servers out of the PATH of most users."""
    return shutil.which(name) or os.path.join("/usr/sbin", name)


class MariaDb:
    def __init__(self):
        self.user = server_user()
        self.folder = temporary_folder("mariadb", self.user)
        self.data = os.path.join(self.folder, "data")
        self.log = os.path.join(self.folder, "log")
        self.port = free_port()
        self.process = None
        credentials = {"user": self.user, "group": self.user, "extra_groups": []} \
            if self.user else {}
        subprocess.run(
            [program("mariadb-install-db"), "--no-defaults", f"--datadir={self.data}",
             "--auth-root-authentication-method=normal", "--skip-test-db"],
            check=True, stdout=subprocess.DEVNULL, cwd=self.folder, **credentials)

    def __enter__(self):
        self.process = Process(
            [program("mariadbd"), "--no-defaults", f"--datadir={self.data}", f"--port={self.port}",
             "--bind-address=127.0.0.1", f"--socket={self.folder}/socket", f"--pid-file={self.folder}/pid",
             "--innodb-buffer-pool-size=64M", "--character-set-server=utf8mb4", "--skip-name-resolve",
             "--max-connections=200"],
            self.log, self.user, folder=self.folder)
        wait_for(self._answers, 60, "MariaDB's answer")
        return self

    def __exit__(self, *_):
        self.process.stop(signal.SIGTERM, 60)

    def connect(self, database=None, autocommit=True):
        return pymysql.connect(**ROOT, port=self.port, database=database, autocommit=autocommit,
                               charset="utf8mb4", connect_timeout=10)

    def script(self, path, database):
        """Runs a file as the client that comes with the server does."""
        with open(path, "rb") as file:
            subprocess.run([program("mariadb"), "--no-defaults", "--protocol=tcp", "--host=127.0.0.1",
                            f"--port={self.port}", "--user=root", database], stdin=file, check=True)

    def _answers(self):
        if not self.process.running:
            raise AssertionError(f"MariaDB ended at start:\n{self.process.tail()}")
        try:
            self.connect().close()
            return True
        except pymysql.err.OperationalError:
            return False
