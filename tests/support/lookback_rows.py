"""Rows of the look-back as its reader and its checker write them, by the functions that they call."""

import uuid

TOPIC = "look_back_msg"
ID = ["type text", "id text", "partition int", "offset bigint"]
MESSAGE = ["topic text", "key bytea", "payload bytea", "headers text"]
ARRAYS = [  # of which rows, and what of them
    (("prepare",), [*ID, *MESSAGE, "service text", "url text", "check_ms bigint", "expire_ms bigint",
                    "digest bytea", "event_id uuid", "unique_key text", "within_ms bigint",
                    "while_pending text"]),
    (("decision",), [*ID, "prepared_at timestamptz", "decision text"]),
    (("dead_letter",), [*ID[2:], *MESSAGE]),
    (("tombstone", "conflict"), ["op text", *ID, "prepared_at timestamptz", "decision text",
                                 "kept text"])]
APPLY = ("select won, lost, promoted, clock from outbox.lookback_apply(%s, %s, %s, %s, %s::int[], "
         "%s::bigint[], %s::bigint[], %s::bigint[], %s::timestamptz[], "
         + ", ".join(f"%s::{column.split()[1]}[]" for _, columns in ARRAYS for column in columns) + ")")


class Reader:
    """One partition of the topic, read from its start, as the program does."""

    def __init__(self, database, partition=0, n=0, offset=0, section="shop"):
        self.connection = database.connect()
        self.cursor = self.connection.cursor()
        self.partition, self.n, self.offset, self.section = partition, n, offset, section

    def apply(self, *rows, horizon=None, most=1000):
        rows = [{"partition": self.partition, "offset": self.offset + place, **row}
                for place, row in enumerate(rows)]
        columns = [[row.get(column.split()[0]) for row in rows if row["op"] in ops]
                   for ops, columns in ARRAYS for column in columns]
        self.cursor.execute(APPLY, [self.section, TOPIC, "test", most, [self.partition], [self.n],
                                    [self.offset], [self.offset + len(rows)], [horizon], *columns])
        self.n, self.offset = self.n + 1, self.offset + len(rows)
        return self.cursor.fetchone()

    def known(self, *ids):
        """{id: [(kind, prepared_at, decision), …]}"""
        self.cursor.execute("select place, kind, prepared_at, decision from "
                            "outbox.lookback_known(%s, %s)", (["order"] * len(ids), list(ids)))
        found = {id: [] for id in ids}
        for place, kind, at, decision in self.cursor.fetchall():
            found[ids[place - 1]].append((kind, at, decision))
        return found

    def prepared_at(self, id):
        return next(at for kind, at, _ in self.known(id)[id] if kind == "prepare")


def prepare(id, check_ms=60_000, **more):
    return {"op": "prepare", "type": "order", "id": id, "topic": "orders", "key": id.encode(),
            "payload": f"payload of {id}".encode(), "headers": '{"a": "b"}', "service": "shop",
            "check_ms": check_ms, "digest": b"digest", "event_id": str(uuid.uuid4()), **more}


def decide(id, decision, at=None):
    return {"op": "decision", "type": "order", "id": id, "decision": decision, "prepared_at": at}


def commit(id, at=None):
    return decide(id, "commit", at)


def rollback(id, at=None):
    return decide(id, "rollback", at)


def claim(database, number, types=("order",), most=100, claim_ms=60_000):
    return database.execute(
        "select biz_id, prepared_at, attempts, check_service, is_expired from "
        "outbox.lookback_claim('shop', %s, %s, %s, %s) order by biz_id",
        (list(types), [most] * len(types), number, claim_ms))


def settle(database, number, rows):
    """rows: (id, prepared_at, result, counts, next_ms, parks); returns (won, lost, strange, parked)."""
    ids, ats, results, counts, next_ms, parks = zip(*rows)
    return database.execute(
        "select won, lost, strange, parked from outbox.lookback_settle('shop', %s, %s, %s, "
        "%s::timestamptz[], %s, %s::text[], %s, %s::bigint[], %s)",
        (number, ["order"] * len(ids), list(ids), list(ats), list(results),
         [f"said {result}" for result in results], list(counts), list(next_ms), list(parks)))[0]
