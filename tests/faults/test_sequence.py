"""Consumers that drop copies by position (the store `sequence`), on what a real relay publishes while it
dies, parks, replays, and is carried to another database: nothing real is dropped, and what comes again
within an epoch is."""

import collections

import pytest

from support.auditor import committed_messages, payload, topic_ranges
from support.inbox import Effects, Inbox, wait_committed
from support.postgres import Postgres, carry
from support.process import wait_for

CONCURRENCY = 64
CONSUMERS = 2
LIMIT = 60_000      # bytes of a batch; those of small rows fit
TOO_LARGE = 90_000  # characters that lz4 cannot shorten
CARRIED = 100       # rows that are published after the dump that takes them along
# Effects of a consumer that dies that may come twice: what it handled since it last committed, which
# is up to all that waited while another one's death was noticed.
HOLE = 1000
RELAY = {"publisher_lease": "2s", "publisher_max_in_flight": 500, "publisher_ack_interval": "60s",
         "publisher_resume": "none", "publisher_retry_first": "100ms", "publisher_retry_max": "400ms",
         "publisher_max_attempts": 1_000_000}
PARKED = "SELECT count(*) FROM outbox.parked"
POSITIONS = "SELECT min(id), max(id), max(id) - min(id) + 1 FROM outbox.message"
WHY = ["--reason", "a test", "--yes"]


class Fleet:
    def __init__(self, bootstrap, topic, effects):
        self.effects = effects
        self.members = [
            Inbox(bootstrap, topic, [topic], dedup="sequence", concurrency=CONCURRENCY, delay=10,
                  commit_every_ms=100, drain_ms=5000, effects=effects.path,
                  kafka={"session.timeout.ms": 1500, "heartbeat.interval.ms": 300,
                         "topic.metadata.refresh.interval.ms": 500})
            for _ in range(CONSUMERS)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for member in self.members:
            member.close()

    def goes_on(self):
        before = len(self.effects.all())
        wait_for(lambda: len(self.effects.all()) > before + 50, 60, "effects that go on",
                 interval=0.2)

    def asked(self):
        """Another one has what it had, at once."""
        self.members.append(self.members.pop(0))
        self.members[-1].close()
        self.members[-1].start()

    def killed(self):
        self.members.append(self.members.pop(0))
        self.members[-1].kill()
        self.members[-1].start()


class World:
    """A relay, its database, a topic, and what each event's count of effects has to be."""

    def __init__(self, kafka, database, topic, relay, chance):
        self.kafka, self.database, self.topic, self.relay = kafka, database, topic, relay
        self.chance, self.deaths = chance, 0
        self.more = collections.Counter()  # event id: effects beyond the first

    def write(self, key, count):
        """In one transaction; their event ids."""
        return [id for id, in self.database.execute(
            "INSERT INTO outbox.message (topic, key, payload) SELECT %s, %s, "
            "'{\"seq\": ' || n || '}' FROM generate_series(1, %s) n"
            " RETURNING event_id::text", (self.topic, key, count))]

    def died(self, times):
        """It leaves records in Kafka that the log does not have, and they come again."""
        for _ in range(times):
            self.relay.stop()
            self.deaths += 1
            self.write(f"h{self.deaths}", 300)
            self.relay.start(OUTBOX_RELAY_FAULT="after_acknowledgement:100")
            assert self.relay.wait(60) == -9
            self.relay.start().wait_ready()

    def parked_and_drained(self, fleet):
        """Three keys stand still behind a row that is too large, and come when everything else went on; the
        relay tries them again by itself."""
        self.kafka.alter_topic(self.topic, max_message_bytes=LIMIT)
        for key in ("p", "q", "r"):
            for sequence, pad in ((1, "x"), (2, self.chance.randbytes(TOO_LARGE // 2).hex()), (3, "x")):
                self.database.execute(
                    "INSERT INTO outbox.message (topic, key, payload_bytes) VALUES (%s, %s, %s)",
                    (self.topic, key, payload(key, sequence, pad=pad)))
        wait_for(lambda: self.database.execute(PARKED) == [(6,)], 60, "what is parked")
        fleet.goes_on()
        self.kafka.alter_topic(self.topic, max_message_bytes=1_048_588)
        wait_for(lambda: self.database.execute(PARKED) == [(0,)], 60, "the end of what is parked")

    def replayed(self, command):
        low, _, count = self.database.execute(POSITIONS)[0]
        last = low + count // 4
        command("replay", f"ids={low}..{last}", "--rate", "1000000", *WHY)
        self.more.update(id for id, in self.database.execute(
            "SELECT event_id::text FROM outbox.message WHERE id <= %s", (last,)))

    def carried(self, origin, target, make_relay, until_published, command):
        """To a dump that does not know what was published after it."""
        self.relay.stop()
        ids = self.write("c", CARRIED)
        carry(origin, target, self.database.name)
        self.relay.start()
        until_published(database=self.database)
        self.relay.stop()
        self.more.update(ids)
        self.database = type(self.database)(target, self.database.name)
        command("publisher", "rebase", "--all", *WHY, database_url=self.database.dsn)
        self.relay = make_relay(database_url=self.database.dsn, **RELAY).wait_ready()

    def expected(self):
        ids = [message.event_id for message in committed_messages(self.database.dsn)]
        return collections.Counter(ids) + self.more

    def until_consumed(self):
        wait_committed(self.kafka.bootstrap, self.topic, self.topic,
                       {partition: high for (_, partition), (_, high)
                        in topic_ranges(self.kafka.bootstrap, [self.topic]).items() if high},
                       timeout=120)

    def records(self):
        return sum(high for _, high in topic_ranges(self.kafka.bootstrap, [self.topic]).values())


@pytest.mark.long
def test_no_message_is_dropped_and_every_repeat_within_an_epoch_is(
        kafka, postgres, database, make_relay, make_writers, until_published, command, scale,
        chance):
    topic = kafka.create_topic(database.name, partitions=3)
    effects = Effects()
    world = World(kafka, database, topic, make_relay(**RELAY).wait_ready(), chance)
    with Postgres() as target, Fleet(kafka.bootstrap, topic, effects) as fleet:
        with make_writers([topic], connections=2, rate=40):
            world.died(scale(10, default=2))
            fleet.asked()
            world.parked_and_drained(fleet)
            kafka.add_partitions(topic, 5)
            fleet.goes_on()
            world.died(1)
        until_published()
        world.replayed(command)
        world.carried(postgres, target, make_relay, until_published, command)
        with make_writers([topic], dsn=world.database.dsn, connections=2, rate=40, prefix="later"):
            fleet.goes_on()
            world.died(1)
            fleet.asked()
            fleet.goes_on()
        until_published(database=world.database)
        world.until_consumed()
        had = collections.Counter(effect.id for effect in effects.all())
        expected = world.expected()
        repeats = world.records() - expected.total()
        print(f"{world.records()} records, {repeats} of them repeats within an epoch,"
              f" {len(world.more) - CARRIED} replayed, {CARRIED} again under a new epoch")
        assert repeats > 0 and len(world.more) > CARRIED
        assert had == expected
        assert not effects.out_of_order()

        with make_writers([topic], dsn=world.database.dsn, connections=2, rate=40, prefix="last"):
            deaths = scale(50, default=4)
            for death in range(deaths):
                fleet.killed()
                if death % 4 == 0:
                    world.died(1)
                fleet.goes_on()
        until_published(database=world.database)
        world.until_consumed()
        twice = collections.Counter(effect.id for effect in effects.all())
        missing = world.expected() - twice
        twice -= world.expected()
    print(f"{deaths} deaths of consumers, {twice.total()} effects more than once")
    assert not missing
    assert twice.total() <= deaths * HOLE
    assert not effects.out_of_order()
