"""Each codec is what the broker stores: the attributes of the batches in its log say so. An old librdkafka and a new
broker could agree on no compression without a word (confluentinc/librdkafka#4956)."""

import struct
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from support.process import wait_for

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]  # by their number in a batch's attributes
HEADER = struct.Struct(">qiibihi")  # base offset, length, leader epoch, magic, CRC, attributes, last offset delta
ROWS = 200


def stored_batches(kafka, topic):
    """(codec, number of records, bytes) of each batch of the topic in the log of the broker."""
    for path in Path(kafka.nodes[1].folder).glob(f"{topic}-*/*.log"):
        log, at = path.read_bytes(), 0
        while at + HEADER.size <= len(log):
            _, length, _, magic, _, attributes, last = HEADER.unpack_from(log, at)
            assert magic == 2
            yield CODECS[attributes & 7], last + 1, length + 12
            at += length + 12


def read_back(kafka, topic, count):
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": topic, "auto.offset.reset": "earliest",
                         "check.crcs": True})
    consumer.subscribe([topic])
    found = []

    def read():
        found.extend((message.key(), message.value()) for message in consumer.consume(count, 1) if not message.error())
        return len(found) >= count

    wait_for(read, 60, f"{count} records")
    consumer.close()
    return found


@pytest.mark.parametrize("codec", CODECS)
def test_each_codec_is_stored_and_read_back(database, kafka, topic, make_relay, codec):
    payload = "compressible " * 40
    database.execute("SELECT outbox.publish(%s, n::text, %s || n) FROM generate_series(1, %s) n",
                     (topic, payload, ROWS))
    make_relay(arguments=("run", "--drain"), kafka_compression_codec=codec).process.wait(60)
    assert sorted(read_back(kafka, topic, ROWS)) == sorted(
        (str(n).encode(), f"{payload}{n}".encode()) for n in range(1, ROWS + 1))
    batches = list(stored_batches(kafka, topic))
    assert sum(records for _, records, _ in batches) == ROWS
    # A batch of one record may grow by its compression; librdkafka then sends it as it is.
    assert {name for name, records, _ in batches if records > 3} == {codec}
    if codec != "none":
        assert sum(size for *_, size in batches) < ROWS * len(payload) / 2
