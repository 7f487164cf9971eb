"""PgBouncer in transaction mode in front of a Postgres."""

import os
import signal
from contextlib import ExitStack, closing

import psycopg2

from .process import Process, free_port, server_user, temporary_folder, wait_for

POOL_SIZE = 20

INI = """\
[databases]
* = host=127.0.0.1 port={postgres_port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = trust
auth_file = {folder}/users
pool_mode = transaction
ignore_startup_parameters = extra_float_digits
max_client_conn = 1000
default_pool_size = {pool_size}
"""


class PgBouncer:
    def __init__(self, postgres, pool_size=POOL_SIZE, users=("postgres",)):
        """users: every role that may log in (PgBouncer keeps a list of its own)."""
        self.user = server_user()
        self.folder = temporary_folder("pgbouncer", self.user)
        self.port = free_port()
        self.process = None
        with open(os.path.join(self.folder, "users"), "w") as file:
            file.writelines(f'"{name}" ""\n' for name in users)
        self.ini = os.path.join(self.folder, "pgbouncer.ini")
        with open(self.ini, "w") as file:
            file.write(INI.format(postgres_port=postgres.port, port=self.port,
                                  folder=self.folder, pool_size=pool_size))

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.stop()

    def start(self):
        self.process = Process(["pgbouncer", self.ini], os.path.join(self.folder, "log"),
                               self.user, folder=self.folder)
        wait_for(self._answers, 30, "PgBouncer's answer")
        return self

    def stop(self):
        if self.process and self.process.running:
            self.process.stop(signal.SIGTERM)

    def dsn(self, database="postgres", user="postgres"):
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def prepared_statements(self, database="postgres"):
        """In all sessions of the pool, which so many transactions at once need."""
        names = set()
        with ExitStack() as stack:
            for _ in range(POOL_SIZE):
                connection = stack.enter_context(closing(psycopg2.connect(self.dsn(database))))
                with connection.cursor() as cursor:
                    cursor.execute("SELECT name FROM pg_prepared_statements")
                    names |= {name for name, in cursor}
        return names

    def _answers(self):
        if not self.process.running:
            raise AssertionError(f"PgBouncer ended at start:\n{self.process.tail()}")
        try:
            psycopg2.connect(self.dsn(), connect_timeout=5).close()
            return True
        except psycopg2.OperationalError:
            return False
