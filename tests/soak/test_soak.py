"""Everything at once for as long as it is told: ./run-tests soak [MINUTES].

Writers with roll-backs, transactions held open for long and huge ones; three relays with three publishers,
one in each way to deliver; three brokers. Faults are drawn from the matrix's. Every few minutes all
comes to rest and is judged twice, by the auditor of the harness and by `outbox-relay verify`: what
came since the time before. So neither memory nor the time of a judgement grows with the length; the
table and the topics keep a part of an hour.
"""

import json
import os
import resource
import statistics
import threading
import time
from collections import Counter
from contextlib import ExitStack

import psycopg2

from conftest import Database
from faults.conftest import is_published, recreations
from faults.test_matrix import (DISK_FAULTS, FAULTS, MAX_IN_FLIGHT, MODES, Matrix, late_queues)
from faults.test_postgres_faults import through
from support import disk
from support.auditor import Verdict, audit, committed_messages, read_topics, topic_ranges
from support.kafka import Kafka
from support.postgres import OnSmallDisk, Postgres
from support.process import wait_for
from support.proxy import Proxy
from support.relay import Relay, run_command
from support.writers import Writers

MIB = 1 << 20
LEASE = 3.0
ROUND = 240  # seconds between two judgements
TOPIC = "soak"
RATE = 50    # transactions a second, of a few messages each, all of which are published three times
HELD = 5, 60  # seconds that a transaction is held open
CONFIGURATION = """
[postgres]
partition_every = 5m
partitions_ahead = 2
retain = 20m
upkeep_interval = 5s
[publisher "at-least-once"]
resume = none
[publisher "tail"]
resume = tail
[publisher "exactly-once"]
delivery = exactly-once
"""
PUBLISHER = f"""lease = {LEASE:g}s
max_in_flight = {MAX_IN_FLIGHT}
memory = 8MiB
"""
# What a relay may take in the last quarter of the time over what it took in the first.
MEMORY_GROWTH = 24 * MIB
DESCRIPTORS_GROWTH = 20
MEMORY = 160 * MIB  # at any time: three publishers of 8 MiB for rows, and what three producers keep
LOG_BYTES = 1500  # for each row of the log, its index included; its partitions go by the million rows
LOG = """
SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint,
    coalesce(sum(t.tuple_count), 0)::bigint, coalesce(sum(t.dead_tuple_count), 0)::bigint
FROM pg_class c CROSS JOIN LATERAL pgstattuple(c.oid) t
WHERE c.relkind = 'r' AND c.relnamespace = 'outbox'::regnamespace AND c.relname ~ '^log_'"""


class Watch:
    """Looks at the relays every few seconds: memory, descriptors, and how old what waits has become."""

    def __init__(self, relays):
        self.relays = relays
        self.samples = []  # (seconds since the start, resident bytes, descriptors)
        self.oldest = 0.0
        self.began = time.monotonic()
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()

    def _look(self):
        while not self.ended.wait(3):
            for relay in self.relays:
                try:
                    resident = relay.process.memory()
                    descriptors = len(os.listdir(f"/proc/{relay.process.pid}/fd"))
                    ages = [relay.metric("relay_unpublished_age_seconds", publisher=publisher) or 0
                            for publisher in MODES]
                except (OSError, ProcessLookupError):
                    continue  # it has just ended
                self.samples.append((time.monotonic() - self.began, resident, descriptors))
                self.oldest = max(self.oldest, *ages)

    def quarter(self, number, figure):
        """What nineteen of twenty samples of a quarter of the time stay below. figure: 1 or 2."""
        length = self.samples[-1][0] / 4
        found = sorted(sample[figure] for sample in self.samples
                       if (number - 1) * length <= sample[0] <= number * length)
        return statistics.quantiles(found, n=20)[-1]

    @property
    def peak(self):
        return max(sample[1] for sample in self.samples)


class Judgement:
    """What each publisher published since the time before, and the sum of it."""

    def __init__(self, database, kafka, relays, settings):
        self.database, self.kafka, self.relays, self.settings = database, kafka, relays, settings
        self.after_id = 0
        self.since = self._now()
        self.ranges = topic_ranges(kafka.bootstrap, [TOPIC])
        self.anew = 0
        self.totals = {publisher: Verdict() for publisher in MODES}

    def judge(self, faults):
        """faults: those that struck since the time before."""
        self._wait_for_rest()
        ranges = topic_ranges(self.kafka.bootstrap, [TOPIC])
        places = {place: (self.ranges[place][1], end) for place, (_, end) in ranges.items()}
        anew = recreations(self.relays)
        until = self._now()
        for publisher in MODES:
            verdict = audit(committed_messages(self.database.dsn, after_id=self.after_id),
                            self._records(publisher, places))
            self._add(publisher, verdict)
            assert verdict.correct and verdict.committed, f"publisher {publisher}: {verdict}"
            assert verdict.duplicates <= self._allowed(publisher, faults, anew - self.anew), \
                f"publisher {publisher}: {verdict}"
            self._verify(publisher, until)
        self.after_id = self.database.execute("SELECT max(id) FROM outbox.message")[0][0]
        self.ranges, self.since, self.anew = ranges, until, anew

    def _now(self):
        return self.database.execute("SELECT to_char(clock_timestamp() AT TIME ZONE 'UTC', "
                                     "'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')")[0][0]

    def _wait_for_rest(self):
        """All rows published, and nothing more that comes from a queue of a former owner."""
        for publisher in MODES:
            wait_for(lambda: is_published(self.database, publisher), 300,
                     f"the end of what publisher {publisher} has to publish", interval=0.5)
        ends = []

        def still():
            ends.append(topic_ranges(self.kafka.bootstrap, [TOPIC]))
            return len(ends) > 3 and ends[-1] == ends[-2] == ends[-3] == ends[-4]

        wait_for(still, 120, "topics that no longer grow", interval=0.5)

    def _records(self, publisher, places):
        for record in read_topics(self.kafka.bootstrap, [TOPIC], "read_committed", places=places):
            if dict(record.headers)["outbox-position"].startswith(f"2:{publisher}:".encode()):
                yield record

    @staticmethod
    def _allowed(publisher, faults, anew):
        if publisher == "exactly-once":
            return 0
        late = faults if publisher == "tail" else None
        return (anew + (len(faults) if late is None else late_queues(faults))) * MAX_IN_FLIGHT

    def _verify(self, publisher, until):
        status, output, error = run_command(
            ["verify", "--json", "--publisher", publisher, "--from", self.since, "--to", until,
             "--sequence", "seq", *(["--no-duplicates"] if publisher == "exactly-once" else [])],
            self.settings, timeout=300)
        assert status == 0, f"verify of publisher {publisher}: {status}: {output}{error}"
        assert json.loads(output)["published"] > 0, output

    def _add(self, publisher, verdict):
        total = self.totals[publisher]
        for name in ("committed", "records", "published", "duplicates", *Verdict.FAULTS):
            setattr(total, name, getattr(total, name) + getattr(verdict, name))


class Soak:
    def __init__(self, stack, chance, seed, folder):
        self.stack, self.chance, self.seed = stack, chance, seed
        self.disk_refusal = disk.refusal()
        self.postgres = stack.enter_context(Postgres() if self.disk_refusal else OnSmallDisk())
        self.kafka = stack.enter_context(Kafka(nodes=3, proxied=True))
        # What is judged is minutes old; what is half an hour old may go.
        self.kafka.create_topic(TOPIC, retention_ms=30 * 60_000, segment_ms=5 * 60_000)
        self.postgres.create_database("soak")
        self.database = Database(self.postgres, "soak").migrate()
        self.database.execute("CREATE EXTENSION pgstattuple")
        path = folder / "relay.ini"
        path.write_text(CONFIGURATION.replace('"]\n', f'"]\n{PUBLISHER}'))
        self.settings = {"DATABASE_URL": self.database.dsn, "OUTBOX_RELAY_CONFIG": path,
                         "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": self.kafka.bootstrap}
        for verb in (*(["create", publisher] for publisher in MODES),
                     ["drop", "--yes", "--reason", "one of each mode", "main"]):
            status, _, error = run_command(["publisher", *verb], self.settings)
            assert status == 0, error
        networks = [stack.enter_context(Proxy(self.postgres.port)) for _ in range(3)]
        self.relays = [stack.enter_context(Relay({
            **self.settings, "DATABASE_URL": through(network, self.database),
            "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": self.kafka.bootstrap_proxied,
            "OUTBOX_RELAY_KAFKA_RECONNECT_BACKOFF_MAX_MS": 1000}))
            for network in networks]
        for relay in self.relays:
            relay.wait_ready()
        self.matrices = [
            Matrix(self.database, self.postgres, self.kafka, self.relays, networks, None, TOPIC,
                   publisher, LEASE) for publisher in MODES]
        kinds = {**FAULTS, **({} if self.disk_refusal else DISK_FAULTS)}
        self.kinds = [(victim, end) for victim, ends in kinds.items() for end in ends]
        self.rounds = 0
        self.huge = 0
        self.held = Counter()
        self.struck = Counter()

    def round(self, seconds):
        """Writers at work and faults for so long; returns the faults."""
        self.rounds += 1
        until = time.monotonic() + seconds
        faults, over = [], threading.Event()
        writers = Writers(self.database.dsn, [TOPIC], f"{self.seed}/{self.rounds}", connections=4,
                          keys=100, rate=RATE, remember=False)
        holder = threading.Thread(target=self._hold_open, args=(writers, over), daemon=True)
        holder.start()
        with writers:
            while not faults or time.monotonic() < until:
                matrix = self.chance.choice(self.matrices)
                matrix.writers = writers
                faults.append(self._strike(matrix))
                if self.chance.random() < 0.05:
                    writers.huge_transaction(self.chance.randrange(10_000, 50_000))
                    self.huge += 1
                time.sleep(self.chance.uniform(0, 5))  # the random moment itself
        over.set()
        holder.join(60)
        assert not holder.is_alive()
        return faults

    def _strike(self, matrix):
        victim, end = self.chance.choice(self.kinds)
        began = time.monotonic()
        print(f"{time.strftime('%H:%M:%S')} publisher {matrix.publisher}: {victim} {end}", end="", flush=True)
        matrix.strike(victim, end)
        print(f", {time.monotonic() - began:.1f} s", flush=True)
        self.struck[f"{victim} {end}"] += 1
        return victim, end

    def _hold_open(self, writers, over):
        """Transactions that stay open for long, one after the other; a fault may end them."""
        while not over.is_set():
            try:
                with writers.held_open():
                    over.wait(self.chance.uniform(*HELD))
                self.held["committed"] += 1
            except psycopg2.Error:
                self.held["lost"] += 1
                over.wait(1)

    def log_figures(self):
        """(bytes, rows, dead rows) of all partitions of the log."""
        return self.database.execute(LOG)[0]


def report(soak, judgement, watch, log, began):
    """Lines for people; what they say was checked where it was found, or is below."""
    lines = [f"{(time.monotonic() - began) / 60:.1f} minutes, {sum(soak.struck.values())} faults, "
             f"{soak.rounds} judgements, seed {soak.seed}"]
    lines += [f"  {count:4} {kind}" for kind, count in sorted(soak.struck.items())]
    if soak.disk_refusal:
        lines.append(f"     - disk full: {soak.disk_refusal}")
    lines.append(f"transactions held open: {soak.held['committed']} committed, {soak.held['lost']} "
                 f"lost; huge: {soak.huge} and one for each copy reset")
    for publisher, total in judgement.totals.items():
        lines.append(f"publisher {publisher}: {total!r}")
    lines += [f"peak memory of a relay: {watch.peak / MIB:.1f} MiB; first quarter "
              f"{watch.quarter(1, 1) / MIB:.1f}, last {watch.quarter(4, 1) / MIB:.1f}",
              f"descriptors: first quarter {watch.quarter(1, 2):.0f}, "
              f"last {watch.quarter(4, 2):.0f}",
              f"peak memory of the judging process: "
              f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.1f} MiB",
              f"oldest message seen unpublished: {watch.oldest:.1f} s (a transaction is held open "
              f"for {HELD[1]} s at most)",
              f"log tables: {log[0] / MIB:.1f} MiB, {log[1]} rows and {log[2]} dead ones"]
    return "\n".join(lines)


def test_faults_at_random_for_as_long_as_it_is_told(chance, seed, request, tmp_path):
    with ExitStack() as stack:
        soak = Soak(stack, chance, seed, tmp_path)
        judgement = Judgement(soak.database, soak.kafka, soak.relays, soak.settings)
        began = time.monotonic()
        until = began + 60 * request.config.option.minutes
        with Watch(soak.relays) as watch:
            while time.monotonic() < until:
                faults = soak.round(min(ROUND, until - time.monotonic()))
                judgement.judge(faults)
                print(f"{time.strftime('%H:%M:%S')} judged: " + ", ".join(
                    f"{publisher} {total.published} published, {total.duplicates} duplicates"
                    for publisher, total in judgement.totals.items()), flush=True)
        log = soak.log_figures()
        print("\n" + report(soak, judgement, watch, log, began), flush=True)
    assert watch.peak < MEMORY
    assert watch.quarter(4, 1) - watch.quarter(1, 1) < MEMORY_GROWTH
    assert watch.quarter(4, 2) - watch.quarter(1, 2) < DESCRIPTORS_GROWTH
    assert log[0] < LOG_BYTES * log[1] + MIB
    # A row is dead whose insert failed: the end of an owner, or another one that was first.
    assert log[2] <= len(MODES) * sum(soak.struck.values())
