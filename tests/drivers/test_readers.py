"""Clients of Kafka in other languages read the records of a relay as the confluent client does."""

import base64
import json

import pytest

from drivers.harness import build, consume, run
from drivers.readers import READERS

SMALL = 500  # each batch of the relay has many of these
TOPIC = "readers"


@pytest.fixture(scope="module")
def written(place):
    """The records of a topic, as lines of a reader's program."""
    place.kafka.create_topic(TOPIC, partitions=3)
    with place.postgres.connect(place.database) as connection, connection.cursor() as cursor:
        cursor.execute("""
            INSERT INTO outbox.message (topic, key, payload, headers)
            SELECT %s, number, jsonb_build_object('id', number, 'state', 'paid'),
                jsonb_build_object('source', 'shop', 'number', number)
            FROM generate_series(1, %s) number""", (TOPIC, SMALL))
        cursor.executemany("""
            INSERT INTO outbox.message (topic, key, key_bytes, payload, payload_bytes, headers)
            VALUES (%s, %s, %s, %s, %s, %s)""", [
                (TOPIC, "text", None, "é \U0001f600 \t", None, None),
                (TOPIC, None, bytes(range(256)), None, bytes(range(256)), None),
                (TOPIC, "tombstone", None, None, None, None),
                (TOPIC, None, None, "no key", None, None),
                (TOPIC, "", None, "", None, None),
                (TOPIC, "large", None, "large " * 50_000, None, None),
                (TOPIC, "headers", None, "{}", None, '[["a", "1"], ["b", null], ["a", "é"], ["c", {"base64": "AP8="}]]')])
    connection.close()
    return read_all(place, SMALL + 7)


def read_all(place, count):
    return [{"partition": message.partition(), "offset": message.offset(), "key": encode(message.key()),
             "value": encode(message.value()), "headers": [[name, encode(value)] for name, value in message.headers()]}
            for message in consume(place, TOPIC, dict.fromkeys(range(3), 0), count)]


def encode(value):
    return None if value is None else base64.b64encode(value).decode()


def by_place(lines):
    """Headers by their names: some clients keep no order of other names."""
    records = {}
    for line in lines:
        headers = {}
        for name, value in line["headers"]:
            headers.setdefault(name, []).append(value)
        records[line["partition"], line["offset"]] = line["key"], line["value"], headers
    assert len(records) == len(lines), "the client read a record twice"
    return records


@pytest.mark.rotated
@pytest.mark.parametrize("reader", [pytest.param(reader, id=reader.name) for reader in READERS])
def test_a_client_reads_the_records_of_a_relay(reader, place, written):
    build(reader)
    printed = run(reader, {"bootstrap": place.kafka.bootstrap, "topic": TOPIC, "group": f"readers-{reader.name}",
                           "count": len(written)})
    read = by_place([json.loads(line) for line in printed.splitlines()])
    wrong = [f"{where}: read {read.get(where)}, confluent {record}"
             for where, record in by_place(written).items() if read.get(where) != record]
    assert not wrong, "\n".join(wrong[:10])
    assert len(read) == len(written)
