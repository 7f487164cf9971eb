"""What a database knows of the destinations of a shard: its table, and on top of it what the log rows
behind the last fold say."""

import json
from collections import namedtuple

Destination = namedtuple("Destination", "partitions offsets open")

TABLE = """
    SELECT d.topic, d.partitions, d.offsets, d.open FROM outbox.destination d
    WHERE d.publisher = %s AND d.shard = %s"""
ROWS = """
    SELECT l.destinations::text FROM outbox.progress p
    JOIN outbox.log l ON l.publisher = p.publisher AND l.shard = p.shard AND l.n > p.folded
    WHERE p.publisher = %s AND p.shard = %s ORDER BY l.n"""


def apply_row(known, text):
    """Changes {topic: Destination} as a log row says."""
    for topic, said in json.loads(text).items():
        if said is None:
            known.pop(topic, None)
            continue
        before = known[topic].offsets if topic in known else {}
        offsets = {int(partition): offset for partition, offset in said[1].items()}
        known[topic] = Destination(said[0], {**before, **offsets}, len(said) == 2)


def folded_destinations(database, publisher="main", shard=0):
    """{topic: Destination} of the table alone."""
    return {topic: Destination(partitions, {partition: offset for partition, offset
                                            in enumerate(offsets) if offset > -2}, is_open)
            for topic, partitions, offsets, is_open in database.execute(TABLE, (publisher, shard))}


def known_destinations(database, publisher="main", shard=0):
    """{topic: Destination}; offsets are {partition: offset}."""
    with database.session() as connection, connection.cursor() as cursor:
        cursor.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        cursor.execute(TABLE, (publisher, shard))
        known = {topic: Destination(partitions, {partition: offset for partition, offset
                                                 in enumerate(offsets) if offset > -2}, is_open)
                 for topic, partitions, offsets, is_open in cursor.fetchall()}
        cursor.execute(ROWS, (publisher, shard))
        for text, in cursor.fetchall():
            apply_row(known, text)
        cursor.execute("COMMIT")
    return known
