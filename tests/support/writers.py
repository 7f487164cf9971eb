"""Writers that make an outbox hard to read: many connections, keys under row locks, rollbacks,
savepoints, many-row statements, COPY, transactions held open, and lost connections.

    with Writers(dsn, ["orders"], seed=7) as writers:
        ...                       # they write until the end of the block
    Writers(dsn, ["orders"], seed=7).run(500)   # or exactly this many transactions

A key is a row of harness.key. A transaction locks it, takes the next sequence numbers, and inserts
the outbox rows afterwards, as applications are told to; so the sequence is the key's commit order.
A key belongs to one topic. The seed decides what each writer does, not how they interleave.
"""

import io
import random
import threading
import time
import uuid
import zlib
from contextlib import contextmanager

import psycopg2

from .auditor import Message, payload

# What a transaction does, with its weight. Each name is a method of _Transaction.
MIX = {"one": 40, "several_changes": 15, "several_keys": 15, "savepoints": 10,
       "many_rows": 5, "copy": 5, "publish": 10, "no_key": 5}

SETUP = """
CREATE SCHEMA IF NOT EXISTS harness;
CREATE TABLE IF NOT EXISTS harness.key (key text PRIMARY KEY, seq bigint NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS harness.unrelated (note text);
"""
TEXTS = "(topic, key, payload, headers, event_id)"
BYTES = "(topic, key_bytes, payload_bytes, headers, event_id)"


class Writers:
    def __init__(self, dsn, topics, seed, connections=8, keys=200, mix=None, rollback=0.1,
                 rate=None, padding=0, schema="outbox", prefix="key", remember=True):
        """
        rollback: share of the transactions that end with ROLLBACK.
        rate: transactions a second of all connections together; None: as fast as they can.
        padding: bytes added to each payload (random text, which does not compress).
        prefix: of the keys' names; two Writers with one prefix share keys and lock each other out.
        remember: keeps what it wrote in `committed` and `in_doubt`; without it memory is bounded.
        """
        self.dsn = dsn
        self.topics = list(topics)
        self.seed = seed
        self.connections = connections
        self.keys = [f"{prefix}-{number}" for number in range(keys)]
        self.mix = mix or MIX
        self.rollback = rollback
        self.pause = connections / rate if rate else 0
        self.padding = padding
        self.schema = schema
        self.remember = remember

        self.committed = []    # Messages whose COMMIT was answered
        self.in_doubt = []     # Messages whose COMMIT was sent and not answered
        self.rolled_back = 0   # transactions
        self.interrupted = 0   # transactions ended by a lost connection, deadlock or restart
        self._lock = threading.Lock()  # guards the four above
        self._stop = threading.Event()
        self._threads = []
        self._failure = None
        self._prepare(self.keys)

    def __enter__(self):
        return self.start()

    def __exit__(self, kind, *_):
        self._stop.set()
        if kind is None:
            self.join()

    def topic_of(self, key):
        return self.topics[zlib.crc32(key.encode()) % len(self.topics)]

    def start(self, transactions=None):
        """Returns at once. transactions: how many in all; None: until stop()."""
        for number in range(self.connections):
            share = None
            if transactions is not None:
                share = (transactions + number) // self.connections
            thread = threading.Thread(target=self._write, args=(number, share), daemon=True)
            self._threads.append(thread)
            thread.start()
        return self

    def run(self, transactions):
        self.start(transactions)
        return self.join()

    def stop(self):
        self._stop.set()
        return self.join()

    def join(self, timeout=600):
        """Waits for all writers; raises what one of them did not expect."""
        deadline = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0, deadline - time.monotonic()))
            if thread.is_alive():
                self._stop.set()
                raise AssertionError(f"a writer still waits after {timeout} s")
        self._threads.clear()
        if self._failure:
            raise self._failure
        return self

    @contextmanager
    def held_open(self, keys=2):
        """A transaction that has written rows of keys of its own and commits at the end."""
        names = [f"held-{uuid.uuid4()}-{number}" for number in range(keys)]
        self._prepare(names)
        with self._open_transaction() as work:
            for name in names:
                work.change(name, 3)
            yield
            work.change(names[0], 1)

    @contextmanager
    def unrelated_transaction(self):
        """An open transaction with an xid that writes no message."""
        with self._open_transaction() as work:
            work.cursor.execute("INSERT INTO harness.unrelated VALUES ('open')")
            yield

    def huge_transaction(self, rows, keys=1000):
        """One transaction of very many rows, made by the server; not kept in `committed`."""
        prefix = f"huge-{uuid.uuid4()}"
        self._execute(
            f"""INSERT INTO {self.schema}.message (topic, key, payload)
                SELECT %(topic)s, name,
                       format('{{"key": "%%s", "seq": %%s}}', name, seq)
                FROM (SELECT %(prefix)s || '-' || g %% %(keys)s AS name, g / %(keys)s AS seq
                      FROM generate_series(0, %(rows)s - 1) AS g) AS made""",
            {"topic": self.topics[0], "prefix": prefix, "keys": keys, "rows": rows})

    @contextmanager
    def _open_transaction(self):
        connection = psycopg2.connect(self.dsn)
        try:
            work = _Transaction(self, connection.cursor(), random.Random(self.seed))
            yield work
            connection.commit()
            self._keep(self.committed, work.messages)
        finally:
            connection.close()

    def _prepare(self, keys):
        self._execute("SELECT pg_advisory_xact_lock(7103);" + SETUP)
        self._execute("INSERT INTO harness.key (key) SELECT unnest(%s) ON CONFLICT DO NOTHING",
                      (keys,))

    def _execute(self, statement, parameters=None):
        connection = psycopg2.connect(self.dsn)
        try:
            with connection, connection.cursor() as cursor:
                cursor.execute(statement, parameters)
        finally:
            connection.close()

    def _write(self, number, share):
        chance = random.Random(f"{self.seed}/{number}")
        connection = None
        done = 0
        try:
            while not self._stop.is_set() and (share is None or done < share):
                connection = connection or self._connect()
                if connection is None:
                    continue
                if self._one_transaction(connection, chance):
                    done += 1
                elif connection.closed:
                    connection = None
                if self.pause:
                    self._stop.wait(self.pause * chance.uniform(0.5, 1.5))
        except BaseException as failure:
            self._failure = failure
            self._stop.set()
        finally:
            if connection:
                connection.close()

    def _connect(self):
        try:
            return psycopg2.connect(self.dsn, connect_timeout=10)
        except psycopg2.OperationalError:
            self._stop.wait(0.05)  # the server is down or full: the next attempt is the condition
            return None

    def _one_transaction(self, connection, chance):
        """False when it was interrupted; what it wrote is then undone or in doubt."""
        work = _Transaction(self, connection.cursor(), chance)
        committing = False
        try:
            getattr(work, chance.choices(list(self.mix), self.mix.values())[0])()
            if chance.random() < self.rollback:
                connection.rollback()
                with self._lock:
                    self.rolled_back += 1
                return True
            committing = True
            connection.commit()
        except psycopg2.Error as failure:
            if not _interruption(failure):
                raise
            with self._lock:
                self.interrupted += 1
            if committing:
                self._keep(self.in_doubt, work.messages)
            connection.close()
            return False
        self._keep(self.committed, work.messages)
        return True

    def _keep(self, where, messages):
        if self.remember:
            with self._lock:
                where += messages


class _Transaction:
    """The statements of one transaction; `messages` are those that a commit publishes."""

    def __init__(self, writers, cursor, chance):
        self.writers = writers
        self.cursor = cursor
        self.chance = chance
        self.messages = []
        self.name = uuid.UUID(int=chance.getrandbits(128)).hex

    def one(self):
        self.change(self._key(), 1)

    def several_changes(self):
        key = self._key()
        for _ in range(self.chance.randint(2, 5)):
            self.change(key, 1)

    def several_keys(self):
        for key in self._keys(self.chance.randint(2, 6)):
            self.change(key, self.chance.randint(1, 3))

    def savepoints(self):
        for key in self._keys(3):
            self.cursor.execute("SAVEPOINT step")
            before = len(self.messages)
            self.change(key, 2)
            if self.chance.random() < 0.4:
                self.cursor.execute("ROLLBACK TO SAVEPOINT step")
                del self.messages[before:]
            elif self.chance.random() < 0.5:
                self.cursor.execute("RELEASE SAVEPOINT step")

    def many_rows(self):
        made = [message for key in self._keys(5) for message in self._make(key, 20)]
        self._insert(made)

    def copy(self):
        made = [message for key in self._keys(5) for message in self._make(key, 20)]
        lines = "".join(
            f"{message.topic}\t\\\\x{message.key.hex()}\t\\\\x{message.payload.hex()}"
            f"\t\\N\t{message.event_id}\n" for message in made)
        self.cursor.copy_expert(
            f"COPY {self.writers.schema}.message {BYTES} FROM STDIN", io.StringIO(lines))
        self.messages += made

    def publish(self):
        for message in self._make(self._key(), 2):
            self.cursor.execute(
                f"SELECT {self.writers.schema}.publish(%s::text, %s::text, %s::text,"
                " event_id => %s::uuid)",
                (message.topic, message.key.decode(), message.payload.decode(),
                 message.event_id))
            self.messages.append(message)

    def no_key(self):
        topic = self.chance.choice(self.writers.topics)
        body = payload(None, 0, txn=self.name)
        self._insert([Message(str(uuid.uuid4()), topic, None, body)])

    def change(self, key, count):
        """The usual transaction's step: lock the row, change it, then write about it."""
        self._insert(self._make(key, count))

    def _key(self):
        return self.chance.choice(self.writers.keys)

    def _keys(self, count):
        """Sorted, so that writers do not deadlock."""
        keys = self.writers.keys
        return sorted(self.chance.sample(keys, min(count, len(keys))))

    def _make(self, key, count):
        self.cursor.execute("SELECT seq FROM harness.key WHERE key = %s FOR UPDATE", (key,))
        seq = self.cursor.fetchone()[0]
        self.cursor.execute("UPDATE harness.key SET seq = seq + %s WHERE key = %s", (count, key))
        more = {"txn": self.name}
        if self.writers.padding:
            more["pad"] = self.chance.randbytes(self.writers.padding // 2).hex()
        return [Message(str(uuid.uuid4()), self.writers.topic_of(key), key.encode(),
                        payload(key, number, **more))
                for number in range(seq + 1, seq + count + 1)]

    def _insert(self, made):
        rows = ", ".join(["(%s, %s, %s, %s, %s::uuid)"] * len(made))
        as_bytes = self.chance.random() < 0.3
        headers = '{"content-type": "application/json"}'
        self.cursor.execute(
            f"INSERT INTO {self.writers.schema}.message {BYTES if as_bytes else TEXTS} VALUES {rows}",
            [value for message in made for value in
             (message.topic, *(each if as_bytes or each is None else each.decode()
                               for each in (message.key, message.payload)), headers, message.event_id)])
        self.messages += made


def _interruption(failure):
    """A lost connection, a shutdown, a deadlock, a timeout: not the writer's fault."""
    if isinstance(failure, (psycopg2.OperationalError, psycopg2.InterfaceError)):
        return True
    return failure.pgcode is None or failure.pgcode[:2] in ("08", "40", "53", "57")
