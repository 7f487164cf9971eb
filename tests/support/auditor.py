"""An independent judge of what the relay published.

It shares no code with the relay (`outbox-relay verify` is the product's own auditor) and reads
both sides itself: the committed rows of the message table, and every record of the topics from
the first offset to the last. Contents are held as digests, so that a million messages fit.

The payload of a judged message is JSON that holds "key", "seq" (grows by one for each message of
that key, in commit order) and "crc" (see `payload`). Messages without a key have no order.
"""

import hashlib
import json
import re
import time
import zlib
from collections import namedtuple
from dataclasses import dataclass, field

import psycopg2
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from .process import wait_for

SAMPLES = 10  # named of each kind of finding
# 2:publisher:identity:shard:epoch:tick:id
POSITION = re.compile(r"2:([^:]+:[0-9a-f]{8}:\d+:-?\d+):(\d+):(\d+)")
UNSETTLED = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE,
             KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_PARTITION,
             KafkaError._TIMED_OUT, KafkaError._TRANSPORT)

# What was committed: event_id text, topic text, key and payload bytes or None.
Message = namedtuple("Message", "event_id topic key payload")
# What a consumer saw; headers: list of (name, bytes or None).
Record = namedtuple("Record", "topic partition offset key payload headers timestamp")


@dataclass(repr=False)
class Verdict:
    committed: int = 0
    records: int = 0        # read from Kafka, those of others among them
    published: int = 0      # distinct committed messages seen
    lost: int = 0           # committed and not seen
    phantom: int = 0        # seen and not committed
    out_of_order: int = 0   # first occurrence after that of a later message of its key
    scattered: int = 0      # keys that stand in more than one partition of a topic
    backwards: int = 0      # first occurrence with a position below an earlier one's
    duplicates: int = 0     # records beyond the first of their message
    unequal: int = 0        # duplicates that differ from their first occurrence
    altered: int = 0        # topic, key or payload is not the committed one, or the crc is wrong
    samples: dict = field(default_factory=dict)

    FAULTS = ("lost", "phantom", "out_of_order", "scattered", "backwards", "unequal",
              "altered")

    def count(self, kind, sample):
        setattr(self, kind, getattr(self, kind) + 1)
        known = self.samples.setdefault(kind, [])
        if len(known) < SAMPLES:
            known.append(sample)

    @property
    def correct(self):
        """At-least-once, in order: duplicates are judged by the caller."""
        return not any(getattr(self, kind) for kind in self.FAULTS)

    def __repr__(self):
        names = ("committed", "records", "published", *self.FAULTS, "duplicates")
        lines = ["  ".join(f"{name}={getattr(self, name)}" for name in names)]
        lines += [f"  {kind}: {', '.join(map(str, known))}"
                  for kind, known in sorted(self.samples.items())]
        return "\n".join(lines)


def payload(key, seq, **more):
    """A payload that the auditor can judge: `crc` covers everything before it."""
    body = json.dumps({"key": key, "seq": seq, **more})
    return f'{body[:-1]}, "crc": {zlib.crc32(body.encode())}}}'.encode()


def crc_holds(data):
    """True also for a payload without a crc."""
    body, mark, rest = data.rpartition(b', "crc": ')
    return not mark or rest[:-1] == b"%d" % zlib.crc32(body + b"}")


def audit(committed, records, same_epoch=True):
    """Judges records (any order between partitions, offset order within one).

    same_epoch: a duplicate has the position of the first; else that may differ in the epoch, as it
    does when records passed one that was refused.
    """
    verdict = Verdict()
    expected = {}
    for message in committed:
        expected[message.event_id] = _digest(message.topic, message.key, message.payload)
    verdict.committed = len(expected)

    first = {}  # event id -> digest of the whole record
    order = _Order(verdict)
    for record in records:
        verdict.records += 1
        event_id = _header(record, "outbox-id")
        where = f"{record.topic}[{record.partition}]@{record.offset}"
        if event_id not in expected:
            verdict.count("phantom", f"{event_id} {where}")
            continue
        same = _digest(record.topic, record.key, record.payload) == expected[event_id]
        if not same or not crc_holds(record.payload or b""):
            verdict.count("altered", f"{event_id} {where}")
        whole = _digest(record.key, record.payload, repr(_headers(record, same_epoch)))
        if event_id not in first:
            first[event_id] = whole
            order.judge(record, where)
            continue
        verdict.count("duplicates", f"{event_id} {where}")
        if first[event_id] != whole:
            verdict.count("unequal", f"{event_id} {where}")

    verdict.published = len(first)
    for event_id in expected.keys() - first.keys():
        verdict.count("lost", event_id)
    return verdict


class _Order:
    """Judges first occurrences, by the payload's sequence and by the relay's own positions."""

    def __init__(self, verdict):
        self.verdict = verdict
        self.highest_seq = {}       # (topic, key) -> sequence
        self.place = {}             # (topic, key) -> partition
        self.highest_position = {}  # (topic, partition, publisher:identity:shard:epoch) -> (tick, id)

    def judge(self, record, where):
        self._positions(record, where)
        if record.key is None:
            return
        key = (record.topic, record.key)
        if self.place.setdefault(key, record.partition) != record.partition:
            self.verdict.count("scattered", f"{record.key!r} {where}")
        seq = _sequence(record.payload)
        if seq is None:
            return
        if seq < self.highest_seq.get(key, seq):
            self.verdict.count("out_of_order", f"{record.key!r} {seq} {where}")
        self.highest_seq[key] = max(seq, self.highest_seq.get(key, seq))

    def _positions(self, record, where):
        found = POSITION.fullmatch(_header(record, "outbox-position") or "")
        if not found:
            return
        lane = (record.topic, record.partition, found[1])
        position = (int(found[2]), int(found[3]))
        if position < self.highest_position.get(lane, position):
            self.verdict.count("backwards", f"{found[0]} {where}")
        self.highest_position[lane] = max(position, self.highest_position.get(lane, position))


def _sequence(data):
    """None: a tombstone, or a payload that is not made for judging."""
    try:
        return json.loads(data)["seq"]
    except (TypeError, ValueError, KeyError):
        return None


def committed_messages(dsn, schema="outbox", after_id=-2**63):
    """Every row of the message table (behind an id), in batches, of one snapshot."""
    connection = psycopg2.connect(dsn)
    try:
        with connection.cursor(name="audit") as cursor:
            cursor.itersize = 20000
            cursor.execute("SELECT event_id::text, topic, coalesce(key_bytes, convert_to(key, 'UTF8')),"
                           f" coalesce(payload_bytes, convert_to(payload, 'UTF8')) FROM {schema}.message"
                           " WHERE id > %s", (after_id,))
            for event_id, topic, key, body in cursor:
                yield Message(event_id, topic, _bytes(key), _bytes(body))
    finally:
        connection.close()


def read_topics(bootstrap, topics, isolation="read_uncommitted", timeout=60, places=None):
    """Every record that stands in the topics now, first offset to last, as Records.

    places: {(topic, partition): (beginning, end)} instead, as topic_ranges() gives them.
    """
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "auditor", "enable.auto.commit": False,
        "isolation.level": isolation, "enable.partition.eof": True, "log_level": 0,
        # an end is told by a fetch that waited for more in vain
        "fetch.wait.max.ms": 10, "reconnect.backoff.max.ms": 500})
    try:
        # What is decided is seen when its marker stands, behind the answer to who committed: the ends
        # are those of everything that was written, also for who reads what is committed.
        places = places or topic_ranges(bootstrap, topics, timeout)
        ends = {place: end for place, (_, end) in places.items()}
        consumer.assign([TopicPartition(*place, begin) for place, (begin, _) in places.items()])
        open_partitions = {place for place, (begin, end) in places.items() if begin < end}
        heard = time.monotonic()
        while open_partitions:
            # It waits for the full number or the whole time, whichever is first.
            batch = consumer.consume(5000, 0.1)
            if batch:
                heard = time.monotonic()
            elif time.monotonic() - heard > timeout:
                raise AssertionError(f"nothing came from {sorted(open_partitions)} "
                                     f"for {timeout} s")
            for message in batch:
                place = (message.topic(), message.partition())
                if message.error():
                    # An end that was reached before the one we saw is only a slow replica.
                    if message.error().code() != KafkaError._PARTITION_EOF:
                        raise KafkaException(message.error())
                    if message.offset() >= ends[place]:
                        open_partitions.discard(place)
                elif place in open_partitions and message.offset() < ends[place]:
                    yield Record(*place, message.offset(), message.key(), message.value(),
                                 message.headers() or [], message.timestamp())
    finally:
        consumer.close()


def audit_topics(dsn, bootstrap, topics, **options):
    """The usual case: the whole message table against everything in the topics."""
    return audit(committed_messages(dsn), read_topics(bootstrap, topics, **options))


def settle(dsn, bootstrap, topics, timeout=300, quiet=20, **options):
    """Waits until there are as many records as committed rows, then audits.

    Gives up waiting when nothing arrived for `quiet` seconds: what is lost then, the verdict names.
    """
    deadline = time.monotonic() + timeout
    seen, changed = -1, time.monotonic()
    while (now := time.monotonic()) < min(deadline, changed + quiet):
        count = count_records(bootstrap, topics)
        if count >= count_messages(dsn):
            break
        if count != seen:
            seen, changed = count, now
        time.sleep(0.1)
    return audit_topics(dsn, bootstrap, topics, **options)


def count_messages(dsn, schema="outbox"):
    connection = psycopg2.connect(dsn)
    try:
        with connection.cursor() as cursor:
            cursor.execute(f"SELECT count(*) FROM {schema}.message")
            return cursor.fetchone()[0]
    finally:
        connection.close()


def count_records(bootstrap, topics, timeout=30):
    """The sum of (end - beginning) of all partitions: cheap, for waiting."""
    return sum(high - low for low, high in topic_ranges(bootstrap, topics, timeout).values())


def topic_ranges(bootstrap, topics, timeout=30):
    """{(topic, partition): (beginning, end)}, as they are now, with what no transaction has decided."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "auditor", "log_level": 0,
                         "isolation.level": "read_uncommitted"})
    try:
        return _ranges(consumer, topics, timeout)
    finally:
        consumer.close()


def _ranges(consumer, topics, timeout):
    """{(topic, partition): (beginning, end)}."""
    ranges = {}
    for topic in topics:
        found = consumer.list_topics(topic, timeout).topics[topic]
        if found.error:
            raise KafkaException(found.error)
        for partition in found.partitions:
            place = TopicPartition(topic, partition)
            ranges[topic, partition] = wait_for(
                lambda: _watermarks(consumer, place), timeout, f"the offsets of {topic}")
    return ranges


def _watermarks(consumer, place):
    """None while the partition is led by nobody, or by a node that does not know it yet."""
    try:
        return consumer.get_watermark_offsets(place, timeout=10)
    except KafkaException as failure:
        if not failure.args[0].retriable() and failure.args[0].code() not in UNSETTLED:
            raise
        return None


def _headers(record, with_epoch):
    return [(name, value if with_epoch or name != "outbox-position"
             else re.sub(rb"\d+(:\d+:\d+)$", rb"\1", value)) for name, value in record.headers]


def _header(record, name):
    for header, value in record.headers:
        if header == name and value is not None:
            return value.decode(errors="replace")
    return None


def _bytes(value):
    return None if value is None else bytes(value)


def _digest(*parts):
    """128 bits over all parts; None and empty differ."""
    state = hashlib.blake2b(digest_size=16)
    for part in parts:
        if isinstance(part, str):
            part = part.encode()
        state.update(b"-" if part is None else b"%d:" % len(part) + part)
    return state.digest()
