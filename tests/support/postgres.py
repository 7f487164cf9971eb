"""A throw-away PostgreSQL server on a loopback port.

    with Postgres() as postgres:
        with postgres.connect() as connection: ...

fsync stays on: a kill -9 of every server process must lose nothing that was committed.
"""

import contextlib
import glob
import os
import select
import signal
import subprocess

import psycopg2
from psycopg2.extensions import TRANSACTION_STATUS_INERROR, TRANSACTION_STATUS_INTRANS

from .disk import Disk
from .process import (Process, free_port, kept, process_ended, server_user, temporary_folder,
                      wait_for)

SETTINGS = {
    "listen_addresses": "'127.0.0.1'",
    "max_connections": 200,
    "max_prepared_transactions": 20,
    "shared_buffers": "'128MB'",
    "max_wal_size": "'2GB'",
    "log_line_prefix": "'%m [%p] %q%u@%d '",
    "log_min_messages": "warning",
    "timezone": "'UTC'",
    "lc_messages": "'C'",
}


def program(name):
    """The path of a server program: in the folder TEST_POSTGRES, as that which other-postgres.sh
    unpacks, or where Debian keeps them out of PATH."""
    other = os.environ.get("TEST_POSTGRES")
    if other:
        return os.path.join(other, name)
    found = sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"))
    return found[-1] if found else name


class Connection(psycopg2.extensions.connection):
    """In autocommit commit() and rollback() do not end the transaction of a BEGIN: execute COMMIT or ROLLBACK."""

    def commit(self):
        super().commit()
        self._check_ended()

    def rollback(self):
        super().rollback()
        self._check_ended()

    def _check_ended(self):
        assert self.info.transaction_status not in (TRANSACTION_STATUS_INTRANS, TRANSACTION_STATUS_INERROR)


class Postgres:
    superuser = "postgres"

    def __init__(self, next_xid=None, next_oid=None, **settings):
        """settings override SETTINGS, as in postgresql.conf: wal_level="'logical'". next_xid: the
        first transaction id that is given out, a multiple of 2**20; next_oid: the first oid; None: initdb's."""
        self.user = server_user()
        self.folder = temporary_folder("postgres", self.user)
        self.data = os.path.join(self.folder, "data")
        self.log = os.path.join(self.folder, "log")
        self.port = free_port()
        self.process = None
        self.wrapper = []  # a command line in front of the server's, from its next start on
        self._fill_data()
        if next_xid:
            self._set_xid(next_xid)
        if next_oid:
            self._run("pg_resetwal", "-o", str(next_oid), "-D", self.data)
        with open(os.path.join(self.data, "postgresql.conf"), "a") as file:
            own = {"port": self.port, "unix_socket_directories": f"'{self.folder}'"}
            for name, value in {**SETTINGS, **own, **settings}.items():
                file.write(f"{name} = {value}\n")

    def _fill_data(self):
        self._run("initdb", "--pgdata", self.data, "--auth=trust", "--no-sync",
                  "--encoding=UTF8", "--locale=C.UTF-8", "--username", self.superuser)

    def _set_xid(self, next_xid):
        """As if a cluster had lived until then: with the file that its transactions would be in."""
        path = os.path.join(self.data, "pg_xact", f"{next_xid >> 20:04X}")
        with open(path, "wb") as file:
            file.write(bytes(256 * 1024))
        if self.user:
            subprocess.run(["chown", self.user, path], check=True)
        self._run("pg_resetwal", "-x", str(next_xid), "-D", self.data)

    def _run(self, name, *arguments):
        credentials = {"user": self.user, "group": self.user, "extra_groups": []} \
            if self.user else {}
        subprocess.run([program(name), *arguments], check=True, stdout=subprocess.DEVNULL,
                       cwd=self.folder, **credentials)

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()

    def start(self):
        """Returns when the server accepts connections."""
        # Server processes end by themselves when the postmaster is gone.
        self.process = Process([*self.wrapper, program("postgres"), "-D", self.data], self.log, self.user,
                               folder=self.folder)
        wait_for(self._answers, 60, "PostgreSQL's answer")
        return self

    def stop(self, mode="fast"):
        """mode: smart, fast or immediate."""
        if self.process and self.process.running:
            numbers = {"smart": signal.SIGTERM, "fast": signal.SIGINT,
                       "immediate": signal.SIGQUIT}
            self.process.resume()
            self.process.stop(numbers[mode], 60)

    def restart(self, mode="fast"):
        self.stop(mode)
        self.start()

    def kill(self):
        """kill -9 of every server process. start() then recovers from the log."""
        pids = self._pids()
        self.process.kill()
        for pid in pids:
            _signal(pid, signal.SIGKILL)
        wait_for(lambda: all(map(process_ended, pids)), 30, "the end of all server processes")

    def pause(self):
        """SIGSTOP of every server process: connections stay, nothing answers."""
        self.process.pause()
        for pid in self._pids():
            _signal(pid, signal.SIGSTOP)

    def resume(self):
        for pid in self._pids():
            _signal(pid, signal.SIGCONT)
        self.process.resume()

    def dsn(self, database="postgres", user=None):
        return f"postgresql://{user or self.superuser}@127.0.0.1:{self.port}/{database}"

    def connect(self, database="postgres", user=None, autocommit=True, **options):
        connection = psycopg2.connect(self.dsn(database, user), connection_factory=Connection, **options)
        connection.autocommit = autocommit
        return connection

    @contextlib.contextmanager
    def session(self, database="postgres"):
        """A connection in autocommit: a new one, or in a wait that of its looks (wait_for)."""
        sessions = kept()
        if sessions is None:
            with contextlib.closing(self.connect(database)) as connection:
                yield connection
            return
        # The server may have ended since the last look.
        if (self, database) not in sessions or not _is_alive(sessions[self, database]):
            sessions[self, database] = self.connect(database)
        yield sessions[self, database]

    def execute(self, statement, parameters=None, database="postgres"):
        """Runs one statement; returns its rows, or None when it has none."""
        with self.session(database) as connection, connection.cursor() as cursor:
            cursor.execute(statement, parameters)
            return cursor.fetchall() if cursor.description else None

    def create_database(self, name, template="template1"):
        self.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')

    def drop_database(self, name):
        self.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def come_back(self):
        """What an operator does when it may have ended by itself: returns when it answers."""
        def answers():
            if not self.process.running:
                self.start()
            return self._answers()

        wait_for(answers, 60, "PostgreSQL's answer")

    def terminate_backends(self, application_name=None, database=None):
        """pg_terminate_backend of client connections other than ours; returns how many."""
        return self.execute(
            """SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
               WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'
                 AND (%(application)s IS NULL OR application_name = %(application)s)
                 AND (%(database)s IS NULL OR datname = %(database)s)""",
            {"application": application_name, "database": database})[0][0]

    def wait_for_standbys(self, names):
        """A commit waits for these; "": for none."""
        self.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
        self.execute("SELECT pg_reload_conf()")
        wait_for(lambda: self.execute("SHOW synchronous_standby_names") == [(names,)], 30,
                 "the setting")

    def waiting_for_standbys(self, application="%"):
        """The backends whose commit waits."""
        return {pid for pid, in self.execute(
            "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
            " AND application_name LIKE %s", (application,))}

    def _answers(self):
        if not self.process.running:
            raise AssertionError(f"PostgreSQL ended at start:\n{self.process.tail()}")
        try:
            self.connect(connect_timeout=5).close()
            return True
        except psycopg2.OperationalError:
            return False

    def _pids(self):
        """The postmaster's children. They are in its session's process tree, one level deep."""
        path = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        with open(path) as file:
            return [int(pid) for pid in file.read().split()]


class OnSmallDisk(Postgres):
    """A server on a disk of its own that can be full: fill_disk() and free_disk()."""

    def __init__(self, **settings):
        super().__init__(**{"max_wal_size": "'256MB'", **settings})

    def __exit__(self, *_):
        self.stop()
        self.disk.unmount()

    def fill_disk(self):
        """Returns when the server has met it. It may have ended by then: without a place for the
        log that it writes ahead it cannot go on."""
        before = self._refusals()
        self.disk.fill()
        wait_for(lambda: self._refusals() > before, 60, "a write that found no place")

    def free_disk(self):
        self.disk.free()
        self.come_back()

    def _fill_data(self):
        self.disk = Disk(self.data, self.user)
        super()._fill_data()

    def _refusals(self):
        return self.process.output().count("No space left on device")


class Promoted(Postgres):
    """What is left after an asynchronous failover: a standby of `origin` that was promoted and never
    got what comes after. It has a timeline of its own."""

    def __init__(self, origin, **settings):
        self.origin = origin
        super().__init__(**settings)

    def start(self):
        super().start()
        self.execute("SELECT pg_promote()")
        return self

    def _fill_data(self):
        self._run("pg_basebackup", "--pgdata", self.data, "--dbname", self.origin.dsn(),
                  "--checkpoint=fast", "--no-sync")
        with open(os.path.join(self.data, "standby.signal"), "w"):
            pass


class Standby(Postgres):
    """A standby of `origin` that streams what it writes; promote() makes it a primary on a timeline of
    its own."""

    def __init__(self, origin, **settings):
        self.origin = origin
        super().__init__(**settings)

    def promote(self):
        self.execute("SELECT pg_promote()")

    def _fill_data(self):
        self._run("pg_basebackup", "--pgdata", self.data, "--dbname", self.origin.dsn(),
                  "--checkpoint=fast", "--no-sync", "--write-recovery-conf")


class Upgraded(Postgres):
    """What pg_upgrade makes of `origin`, which is stopped: another cluster with its files."""

    def __init__(self, origin, **settings):
        self.origin = origin
        super().__init__(**settings)

    def _fill_data(self):
        super()._fill_data()
        # both servers are started by it; what they need beyond defaults is given here
        place = f"-c unix_socket_directories={self.folder} -c listen_addresses="
        self._run("pg_upgrade", "-b", os.path.dirname(program("initdb")),
                  "-B", os.path.dirname(program("initdb")), "-d", self.origin.data,
                  "-D", self.data, "-U", self.superuser, "-s", self.folder,
                  "-p", str(free_port()), "-P", str(free_port()), "-o", place, "-O", place)


def carry(origin, target, name):
    """Dumps a database, and the roles, and restores both into another cluster: the target."""
    roles = subprocess.run(
        [program("pg_dumpall"), "--roles-only", "--dbname", origin.dsn()],
        stdout=subprocess.PIPE, check=True).stdout
    subprocess.run([program("psql"), "--quiet", target.dsn()], input=roles, check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # they may exist
    target.create_database(name, template="template0")
    dump = subprocess.run([program("pg_dump"), origin.dsn(name)], stdout=subprocess.PIPE, check=True)
    subprocess.run([program("psql"), "--quiet", "-v", "ON_ERROR_STOP=1", target.dsn(name)],
                   input=dump.stdout, check=True, stdout=subprocess.DEVNULL)
    return target


def _is_alive(connection):
    """An idle session hears of nothing but its end, or new settings, after which another one is as good."""
    return not connection.closed and not select.select([connection], [], [], 0)[0]


def _signal(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
