"""Thousands of records that only the broker refuses, on some keys among very many good ones: nothing of
these keys passes, the others are hardly held up, and in the end everything is there in key order.
"""

import json

import pytest

from support.auditor import audit, committed_messages, read_topics, topic_ranges
from support.relay import run_command

LIMIT = 16_384      # of the topic
TOO_LARGE = 20_000  # characters that lz4 cannot shorten
MAX_IN_FLIGHT = 20_000
COST = 0.5          # seconds that a first refusal may cost the others
SETTINGS = {"kafka_batch_size": 12_000, "publisher_retry_first": "1h", "publisher_retry_max": "1h"}

# So many rows of each key in turns, one of 50 keys with poison in every second row; ids, and so the
# poisoned keys, in an order that is not that of the keys.
FILL = """
INSERT INTO outbox.message (topic, key, payload)
SELECT %(topic)s, name, format(
    '{"key": "%%s", "seq": %%s, "pad": "%%s"}', name, seq, CASE WHEN poison THEN (
        SELECT string_agg(md5(n || name || seq), '') FROM generate_series(1, %(size)s / 32 + 1) n)
    END)
FROM (
    SELECT %(prefix)s || key AS name, %(from)s + seq AS seq,
        key %% 50 = 0 AND seq %% 2 = 1 AND %(poisoned)s AS poison
    FROM generate_series(0, %(rounds)s - 1) seq
    CROSS JOIN LATERAL (SELECT (g * 7919) %% %(keys)s AS key
                        FROM generate_series(0, %(keys)s - 1) g OFFSET 0) k) made"""


class Sizes:
    def __init__(self, full):
        self.keys = 10_000 if full else 200
        self.rounds = 101
        self.poisoned_keys = self.keys // 50
        self.poison = self.poisoned_keys * (self.rounds // 2)
        self.rows = self.keys * self.rounds


class World:
    def __init__(self, sizes, database, kafka, topic, make_relay):
        self.sizes, self.database, self.kafka, self.topic = sizes, database, kafka, topic
        self.make_relay = make_relay
        self.ends = {}  # of what was read

    def fill(self, prefix="key-", poisoned=True, since=0, size=TOO_LARGE):
        self.database.execute(FILL, {
            "topic": self.topic, "prefix": prefix, "from": since, "poisoned": poisoned,
            "rounds": self.sizes.rounds, "keys": self.sizes.keys, "size": size})

    def drain(self, **settings):
        """Publishes what there is; the new records, and the seconds between the first and last."""
        relay = self.make_relay(arguments=("run", "--drain"), **{**SETTINGS, **settings})
        assert relay.wait(600) == 0
        ends = {place: end for place, (_, end)
                in topic_ranges(self.kafka.bootstrap, [self.topic]).items()}
        records = list(read_topics(self.kafka.bootstrap, [self.topic], places={
            place: (self.ends.get(place, 0), end) for place, end in ends.items()}))
        self.ends = ends
        times = [record.timestamp[1] for record in records]
        return records, (max(times) - min(times)) / 1000, relay

    def parked(self):
        return self.database.execute(
            "SELECT state, count(*) FROM outbox.parked GROUP BY 1 ORDER BY 1")

    def command(self, *arguments):
        status, output, error = run_command(
            arguments, {"DATABASE_URL": self.database.dsn,
                        "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": self.kafka.bootstrap})
        assert status == 0, error
        return output


def is_poisoned(record, prefix):
    key = record.key.decode()
    return key.startswith(prefix) and int(key[len(prefix):]) % 50 == 0


@pytest.mark.alone
def test_much_poison_holds_up_nobody_else(database, kafka, topic, make_relay, full):
    kafka.alter_topic(topic, message_timestamp_type="LogAppendTime", max_message_bytes=LIMIT)
    sizes = Sizes(full)
    world = World(sizes, database, kafka, topic, make_relay)

    world.fill("good-", poisoned=False)
    records, undisturbed, _ = world.drain()
    assert len(records) == sizes.rows
    rate = len(records) / undisturbed

    def share(records, seconds, what):
        """Of the undisturbed rate."""
        print(f"{what}: {len(records) / seconds:.0f} records/s, {len(records) / seconds / rate:.2f}"
              f" of {rate:.0f}")
        return len(records) / seconds / rate

    world.fill()
    records, seconds, _ = world.drain()
    good = sizes.rows - sizes.poisoned_keys * sizes.rounds
    assert len(records) == good + sizes.poisoned_keys
    passed = [json.loads(record.payload)["seq"] for record in records
              if is_poisoned(record, "key-")]
    assert passed == [0] * sizes.poisoned_keys, "only what came before the poison"
    cost = (seconds - len(records) / rate) / sizes.poisoned_keys
    print(f"each of {sizes.poisoned_keys} first refusals cost {cost * 1000:.0f} ms")
    assert cost <= COST
    assert world.parked() == [
        ("behind", sizes.poisoned_keys * (sizes.rounds - 2)), ("waiting", sizes.poisoned_keys)]

    world.fill(since=sizes.rounds)
    records, seconds, relay = world.drain()
    assert len(records) == good and not any(is_poisoned(record, "key-") for record in records)
    assert not relay.events("producer_recreated")
    later = share(records, seconds, "poison of parked keys")

    world.fill("known-")
    records, seconds, relay = world.drain(kafka_message_max_bytes=LIMIT)
    assert len(records) == good + sizes.poisoned_keys
    assert not relay.events("producer_recreated")
    known = share(records, seconds, "poison known before producing")
    if full:
        assert later >= 0.9 and known >= 0.9

    kafka.alter_topic(topic, max_message_bytes=1_048_588)
    heads = database.execute("SELECT id FROM outbox.parked WHERE state = 'waiting' ORDER BY id")
    skipped = [str(row[0]) for row in heads[::7]]
    world.command("parked", "skip", *skipped, "--reason", "not wanted", "--yes")
    world.command("parked", "retry", "--all", "--reason", "the topic is mended", "--yes")
    world.drain()
    assert world.parked() == []

    verdict = audit(committed_messages(database.dsn), read_topics(kafka.bootstrap, [topic]))
    print(verdict)
    assert verdict.committed == 4 * sizes.rows
    assert verdict.lost == len(skipped)
    assert (verdict.phantom, verdict.out_of_order, verdict.backwards, verdict.scattered,
            verdict.duplicates) == (0, 0, 0, 0, 0)
