"""What consumers written by others see: Kafka's console consumer, kcat, and where a Java producer
puts the same keys."""

import base64
import json
import os
import re
import subprocess
import time

import pytest

from support.auditor import read_topics
from support.kafka import java

HERE = os.path.dirname(os.path.abspath(__file__))
RAW = bytes(range(256))
POSITION = r"2:main:[0-9a-f]{8}:0:\d+:\d+:\d+"


def insert(database, topic, key=b"k", payload=b"v", headers=None, partition=None):
    """Returns (event id, created_at in milliseconds) of the row."""
    return database.execute(
        "INSERT INTO outbox.message (topic, key_bytes, payload_bytes, headers, partition)"
        " VALUES (%s, %s, %s, %s, %s) RETURNING event_id::text,"
        " floor(extract(epoch FROM created_at) * 1000)::bigint",
        (topic, key, payload, None if headers is None else json.dumps(headers), partition))[0]


@pytest.fixture
def publish(database, kafka, topic, make_relay):
    """publish(**settings): what is in the table now, to its end; returns the records by partition
    and offset."""
    def drain(**settings):
        assert make_relay(arguments=("run", "--drain"), **settings).wait() == 0
        return list(read_topics(kafka.bootstrap, [topic]))

    return drain


def kcat(kafka, topic, *arguments):
    done = subprocess.run(
        ["kcat", "-C", "-q", "-e", "-b", kafka.bootstrap, "-t", topic, "-o", "beginning",
         *arguments], capture_output=True, timeout=60, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_console_consumer_sees_all_of_a_record(database, kafka, topic, publish):
    written = {}
    for key, payload, headers in (
            ("plain", '{"a": 1}', None),
            ("ключ", "naïve ✓", {"grüße": "schön", "n": 7, "yes": True, "none": None}),
            ("list", "x", [["h", "1"], ["h", "2"], ["h", None], ["h", {"base64": "YWJj"}]]),
            ("tombstone", None, None),
            ("empty", "", {"e": ""})):
        written[key] = insert(database, topic, key.encode(),
                              None if payload is None else payload.encode(), headers)
    written["null"] = insert(database, topic, None, b"no key")
    publish()
    lines = {}
    for line in kafka.console_consumer(topic, 6):
        lines[line.split("|")[3]] = line.split("|")
    assert lines.keys() == written.keys()
    for key, (event_id, created) in written.items():
        timestamp, partition, headers, _, value = lines[key]
        assert timestamp == f"CreateTime:{created}"
        assert re.fullmatch("Partition:[0-5]", partition)
        assert re.search(f"(^|,)outbox-id:{event_id},outbox-position:{POSITION}$", headers)
    # Fields of a JSON object have no order of their own.
    assert set(lines["ключ"][2].split(",")[:4]) == {"grüße:schön", "n:7", "yes:true", "none:null"}
    assert lines["list"][2].startswith("h:1,h:2,h:null,h:abc,outbox-id:")
    assert lines["empty"][2].startswith("e:,outbox-id:")
    assert {key: fields[4] for key, fields in lines.items()} == {
        "plain": '{"a": 1}', "ключ": "naïve ✓", "list": "x", "tombstone": "null", "empty": "",
        "null": "no key"}


def test_kcat_sees_all_of_a_record(database, kafka, topic, publish):
    event_id, created = insert(database, topic, b"key", b"value", [["a", "1"], ["a", None]], 4)
    insert(database, topic, None, None, partition=3)
    publish()
    records = {record["partition"]: record
               for record in map(json.loads, kcat(kafka, topic, "-J").splitlines())}
    assert records.keys() == {3, 4}
    full, bare = records[4], records[3]
    assert (full["topic"], full["offset"], full["tstype"], full["ts"], full["key"],
            full["payload"]) == (topic, 0, "create", created, "key", "value")
    assert full["headers"][:6] == ["a", "1", "a", None, "outbox-id", event_id]
    assert full["headers"][6] == "outbox-position"
    assert re.fullmatch(POSITION, full["headers"][7])
    assert bare["key"] is None and bare["payload"] is None


def test_kcat_sees_bytes_as_they_were_written(database, kafka, topic, publish):
    insert(database, topic, RAW, RAW[::-1])
    publish()
    assert kcat(kafka, topic, "-f", "%k%s") == RAW + RAW[::-1]
    assert kcat(kafka, topic, "-f", "%K %S") == b"256 256"


def test_empty_and_null_are_told_apart(database, kafka, topic, publish):
    for key, payload in ((b"", b""), (None, b""), (b"", None), (None, None), (b"\0", b"\0")):
        insert(database, topic, key, payload)
    publish()
    lengths = sorted(kcat(kafka, topic, "-f", "%K %S\n").splitlines())
    assert lengths == sorted([b"0 0", b"-1 0", b"0 -1", b"-1 -1", b"1 1"])


HEADERS = [
    ({}, []),
    ([], []),
    ({"a": "b"}, [("a", b"b")]),
    ({"a": None}, [("a", None)]),
    ({"a": ""}, [("a", b"")]),
    ({"a": True}, [("a", b"true")]),
    ({"a": 12}, [("a", b"12")]),
    ({"a": -1.5}, [("a", b"-1.5")]),
    ({"a": {"base64": base64.b64encode(RAW).decode()}}, [("a", RAW)]),
    ({"a": {"base64": ""}}, [("a", b"")]),
    ([["z", "1"], ["a", "2"], ["z", "3"]], [("z", b"1"), ("a", b"2"), ("z", b"3")]),
    ([["a", None], ["a", {"base64": "AA=="}], ["a", "ü\n"]],
     [("a", None), ("a", b"\0"), ("a", "ü\n".encode())]),
    ([["", "no name"]], [("", b"no name")]),
]


def test_headers_arrive_as_documented(database, publish, topic):
    for number, (given, _) in enumerate(HEADERS):
        insert(database, topic, str(number).encode(), headers=given)
    records = publish()
    assert len(records) == len(HEADERS)
    for record in records:
        given, expected = HEADERS[int(record.key)]
        assert record.headers[:-2] == expected, given
        assert [name for name, _ in record.headers[-2:]] == ["outbox-id", "outbox-position"]


WRITTEN_HEADERS = {
    '{"b":"1","a":"2"}': [("b", b"1"), ("a", b"2")],
    '\t{ "b" : 1 ,\r\n"a":null}\n': [("b", b"1"), ("a", None)],
    '{"a":1,"b":2,"a":3}': [("a", b"3"), ("b", b"2")],
    '{"a":1,"\\u0061":"\\u00fc\\ud83d\\ude00\\/"}': [("a", "ü😀/".encode())],
    '{"a":{"b":1},"a":"c"}': [("a", b"c")],
    '[ ["a",1],["a" ,"[{\\"}"] ]': [("a", b"1"), ("a", b'[{"}')],
}


def test_headers_arrive_as_they_were_written(database, publish, topic):
    for text in WRITTEN_HEADERS:
        database.execute("INSERT INTO outbox.message (topic, key, headers) VALUES (%s, %s, %s)", (topic, text, text))
    assert {record.key.decode(): record.headers[:-2] for record in publish()} == WRITTEN_HEADERS


def test_a_number_in_a_header_arrives_as_it_was_written(database, publish, topic):
    """No float is made of it on the way."""
    numbers = ("0", "12345678901234567890", "-9223372036854775809", "1.10", "0.1", "1e300", "1E+400", "-0.0",
               "1e999999", "123456789.123456789123456789", "1.0")
    for number in numbers:
        database.execute("INSERT INTO outbox.message (topic, key, headers) VALUES (%s, %s, %s)",
                         (topic, number, f'{{"n": {number}}}'))
    assert {record.key.decode(): record.headers[0][1].decode() for record in publish()} == {n: n for n in numbers}


def test_the_timestamp_is_the_rows_or_that_of_publication(
        database, kafka, topic, publish, make_relay):
    _, created = insert(database, topic)
    assert publish()[0].timestamp == (1, created)  # 1: given by the producer
    _, created = insert(database, topic)
    began = time.time() * 1000
    records = publish(publisher_timestamp="publish")
    kind, published = records[1].timestamp
    assert kind == 1 and began <= published <= time.time() * 1000
    assert published > created


def test_an_explicit_partition_wins_over_the_key(database, publish, topic):
    for partition in range(6):
        insert(database, topic, b"one key", str(partition).encode(), partition=partition)
    records = publish()
    assert {record.partition: record.payload for record in records} == {
        partition: str(partition).encode() for partition in range(6)}
    assert {record.key for record in records} == {b"one key"}


def test_a_java_producer_puts_the_same_keys_into_the_same_partitions(
        database, kafka, topic, make_relay, chance):
    keys = {b"", b"\0", b"a", "ключ".encode(), RAW} | {
        chance.randbytes(chance.randint(1, 40)) for _ in range(500)}
    counts = (1, 6, 7, 50)
    ours, javas = ([kafka.create_topic(f"{topic}.{whose}-{count}", partitions=count)
                    for count in counts] for whose in ("ours", "java"))
    connection = database.connect()
    connection.cursor().execute(
        "INSERT INTO outbox.message (topic, key_bytes)"
        " SELECT topic, key FROM unnest(%s) topic, unnest(%s) key", (ours, list(keys)))
    connection.close()
    assert make_relay(arguments=("run", "--drain")).wait() == 0
    done = subprocess.run(
        java(os.path.join(HERE, "JavaProducer.java"), kafka.bootstrap, *javas),
        input="".join(f"{key.hex()}\n" for key in keys), text=True, capture_output=True,
        timeout=120)
    assert done.returncode == 0, done.stderr
    for our_topic, java_topic in zip(ours, javas):
        our_places, java_places = (
            {record.key: record.partition for record in read_topics(kafka.bootstrap, [name])}
            for name in (our_topic, java_topic))
        assert our_places.keys() == keys
        assert our_places == java_places
        kafka.delete_topic(our_topic)
        kafka.delete_topic(java_topic)


def test_null_keys_are_spread_over_the_partitions(database, publish, topic):
    database.execute("INSERT INTO outbox.message (topic, payload)"
                     " SELECT %s, 'x' FROM generate_series(1, 600)", (topic,))
    partitions = [record.partition for record in publish()]
    assert len(partitions) == 600
    assert all(partitions.count(partition) > 30 for partition in range(6))


@pytest.mark.parametrize("memory", ["1MiB", "24MiB"])
def test_a_row_of_the_largest_size_arrives(database, publish, topic, memory):
    """What the constraint lets in is not refused later: the relay's own headers come on top."""
    limit = 1_000_000
    insert(database, topic, b"k", b"x" * (limit - 1))
    insert(database, topic, b"k" * 1000, b"x" * (limit - 1000))
    insert(database, topic, None, RAW * (limit // 256))
    insert(database, topic, b"", b"x" * (limit - len('{"h": "v"}')), {"h": "v"})
    assert sorted(len(record.payload) for record in publish(publisher_memory=memory)) == [
        limit - 1000, limit // 256 * 256, limit - 10, limit - 1]
