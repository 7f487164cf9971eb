"""The relay's own reader driven by hand, for exact interleavings: each poll() is one tick.

    ticks = Ticks(database.dsn)         # a publisher of its own, from the table's first row on
    ticks.poll()                        # the rows of the next window, [] when there is none
    ticks.poll(page=2)                  # the same, read by pages of two rows

It calls outbox.take and outbox.tick and fills sql/queries/page*.sql as the relay does; what it was
given counts as published with the next call.
"""

import os
import random
import re
import struct
from collections import namedtuple

import psycopg2

QUERIES = os.path.join(os.path.dirname(__file__), "../../sql/queries")
LEASE_MS = 3_600_000

Row = namedtuple("Row", "id event_id topic key payload headers partition")


def query(name, **values):
    """The text of sql/queries/NAME.sql with values in the places of :names, without comments."""
    with open(os.path.join(QUERIES, f"{name}.sql")) as file:
        text = re.sub(r"^--.*\n", "", file.read(), flags=re.MULTILINE)
    return re.sub(r"(?<!:):([a-z_]+)\b", lambda found: _literal(values[found[1]]), text)


class Ticks:
    def __init__(self, dsn, publisher="ticks", shards=1, shard=0, schema="outbox", create=True):
        self.connection = psycopg2.connect(dsn)
        self.connection.autocommit = True
        self.cursor = self.connection.cursor()
        self.publisher, self.shard, self.shards, self.schema = publisher, shard, shards, schema
        if create:
            self._one("SELECT {schema}.publisher_create(%s, %s, 'beginning')", publisher, shards)
        self.nonce = _random()
        taken = self._one(
            "SELECT outcome, n, first_tick, windows FROM {schema}.take("
            "%s, %s, %s, %s, 'by hand', %s, 1)", publisher, shard, shards, self.nonce, LEASE_MS)
        assert taken[0] == "taken", taken
        _, self.n, self.first_tick, self.open_windows = taken
        self.verdict = None

    def poll(self, page=None, max_rows=1000):
        """The next window's rows. page: force the way of large windows, by so many rows."""
        rows = self.tick(max_rows=0 if page else max_rows)
        if self.verdict == "pages":
            return list(self.pages(page or 1000))
        return rows

    def tick_call(self, **more):
        """(statement, values) of the next tick, for EXPLAIN as well."""
        self.next_nonce = _random()
        given = {"of_publisher": self.publisher, "of_shard": self.shard, "of_shards": self.shards,
                 "of_n": self.n, "of_nonce": self.nonce, "new_nonce": self.next_nonce,
                 "lease_ms": LEASE_MS, "closed": self.open_windows, "new_acked_id": 0,
                 "touched": "{}", "new_epoch": None, "may_open": True, "must_write": False,
                 "max_rows": 1000, "max_bytes": 10_000_000, "last_seen": None,
                 "parks": None, "may_list": False, "batch": 500, **more}
        names = ", ".join(f"{name} => %({name})s" for name in given)
        return (f"SELECT verdict, id, event_id::text, topic, key, payload, headers::text, "
                f"partition "
                f"FROM {self.schema}.tick({names})", given)

    def tick(self, **more):
        self.cursor.execute(*self.tick_call(**more))
        *rows, (self.verdict, *_) = self.cursor.fetchall()
        self.ticked(self.verdict)
        return [Row(*[_plain(value) for value in row[1:]]) for row in rows if row[0] is None]

    def ticked(self, verdict):
        """Follows what a tick wrote."""
        assert verdict in ("idle", "splitting", "noted", "rows", "pages", "listed"), verdict
        self.verdict = verdict
        if verdict not in ("idle", "splitting"):
            self.n += 1
            self.nonce = self.next_nonce
            self.first_tick += self.open_windows
            self.open_windows = int(verdict != "noted")

    def bounds(self, xids=1_000_000, max_rows=1_000_000):
        """What the pages of the open window are filled with, in chunks of so many xids."""
        found = chunk = self.bounds_chunk(None, xids, max_rows)
        while not chunk["over"]:
            chunk = self.bounds_chunk(chunk["next_xid"], xids, max_rows)
            found = {**found, "next_xid": chunk["next_xid"],
                     "low_id": _least(found["low_id"], chunk["low_id"]),
                     "high_id": _most(found["high_id"], chunk["high_id"])}
        found["last_id"] = _most(found["last_id"], found["high_id"]) or 0
        found["first_id"] = _least(found["least_id"], found["low_id"]) or 1
        found.update(low_id=found["low_id"] or 0, high_id=found["high_id"] or 0)
        return found

    def bounds_chunk(self, from_xid, xids, max_rows):
        texts = ("low_xid", "sure_xid", "upto", "stragglers", "next_xid")
        values = ("low_id", "high_id", "over", "least_id", "last_id")
        columns = ", ".join((*(f"{name}::text" for name in texts), *values))
        return dict(zip((*texts, *values), self._one(
            f"SELECT {columns} FROM {{schema}}.window_bounds(%s, %s, %s, %s, %s, %s, %s, %s, %s)",
            self.publisher, self.shard, self.shards, self.n, self.nonce,
            self.first_tick + self.open_windows,
            from_xid, xids, max_rows)))

    def page_script(self, bounds, after, rows, withheld=False, upto_id=2**62, topic=None):
        """topic: the page has null for it."""
        name = "page" if bounds["stragglers"] == "{}" else "page_stragglers"
        text = query(name, **bounds, publisher=self.publisher, shard=self.shard, shards=self.shards,
                     n=self.n, nonce=self.nonce, after=after, rows=rows, withheld=withheld,
                     from_id=max(after + 1, bounds["low_id"]), to_id=min(upto_id, bounds["high_id"]),
                     upto_id=upto_id, limit=0, topic=topic)
        return text.replace("outbox.", f"{self.schema}.")

    def pages(self, rows, withheld=False, span=2**62, **chunks):
        """span: each page looks at so many ids."""
        bounds = self.bounds(**chunks)
        after, topic = 0, None
        while True:
            upto_id = max(after, bounds["first_id"] - 1) + span
            script = self.page_script(bounds, after, rows, withheld, upto_id, topic)
            page = list(self._copy(script, topic))
            yield from page
            topic = page[-1].topic if page else topic
            if len(page) < rows and upto_id >= bounds["last_id"]:
                return
            after = page[-1].id if len(page) >= rows else upto_id

    def close(self):
        self.connection.close()

    def _copy(self, script, usual_topic):
        settings, copy = script.split("copy (", 1)
        self.cursor.execute("BEGIN")
        self.cursor.execute(settings)
        sink = _Sink()
        self.cursor.copy_expert("copy (" + copy, sink)
        self.cursor.execute("COMMIT")
        return _rows(bytes(sink.data), usual_topic)

    def _one(self, statement, *values):
        self.cursor.execute(statement.replace("{schema}", self.schema), values)
        return self.cursor.fetchone()


class _Sink:
    def __init__(self):
        self.data = bytearray()

    def write(self, data):
        self.data += data


def _rows(data, usual_topic):
    """COPY … (FORMAT binary) as Rows; created_at is left out."""
    at = 19
    while True:
        count, = struct.unpack_from(">h", data, at)
        at += 2
        if count < 0:
            return
        fields = []
        for _ in range(count):
            length, = struct.unpack_from(">i", data, at)
            at += 4
            fields.append(None if length < 0 else data[at:at + length])
            at += max(length, 0)
        number, _, event_id, topic, key, body, headers, partition, _, key_bytes, body_bytes = fields
        key = key if key_bytes is None else key_bytes
        body = body if body_bytes is None else body_bytes
        event = event_id.hex()
        yield Row(struct.unpack(">q", number)[0],
                  f"{event[:8]}-{event[8:12]}-{event[12:16]}-{event[16:20]}-{event[20:]}",
                  topic.decode() if topic else usual_topic, key, body, headers and headers[1:].decode(),
                  partition and struct.unpack(">i", partition)[0])


def _least(one, other):
    return min((value for value in (one, other) if value is not None), default=None)


def _most(one, other):
    return max((value for value in (one, other) if value is not None), default=None)


def _plain(value):
    return bytes(value) if isinstance(value, memoryview) else value


def _literal(value):
    return "null" if value is None else f"'{value}'" if isinstance(value, str) else str(value)


def _random():
    return random.getrandbits(62)
