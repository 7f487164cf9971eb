"""Every kind of end for every process there is, and every kind of trouble between them, in each way to
deliver, under writers at work.

Ends: asked (SIGTERM), killed (SIGKILL), stopped for longer than the lease (SIGSTOP). Networks are
those of the relays, each of which has one of its own to Postgres: cut for longer than the lease,
reset, slow. A disk is full for longer than the lease.
"""

import itertools
import time
from contextlib import ExitStack

import pytest

from faults.test_owners import fleet, owner_among, wait_for_owner
from faults.test_postgres_faults import through
from support import disk
from support.postgres import OnSmallDisk
from support.process import wait_for
from support.proxy import Proxy

LEASE = 2.0
MAX_IN_FLIGHT = 1000
ENDS = ["asked", "killed", "stopped"]
FAULTS = {"relay": ENDS, "broker": ENDS, "brokers": ENDS, "postgres": ENDS,
          "network_to_postgres": ["cut", "reset", "slow"], "network_to_kafka": ["cut", "slow"],
          "copy": ["reset"]}
DISK_FAULTS = {"disk": ["full"]}
# After these the owner may have been fenced with a queue that still arrives.
OUTLAST_THE_LEASE = {"stopped", "cut", "full"}
MODES = {"at-least-once": {"publisher_resume": "none"}, "tail": {"publisher_resume": "tail"},
         "exactly-once": {"publisher_delivery": "exactly-once"}}
SLOW = 0.1  # seconds longer in each direction
HUGE = 20_000  # rows


def faults_of(kinds, times):
    return [(victim, end) for victim, ends in kinds.items() for end in ends] * times


def one_of_each(kinds, chance):
    return [(victim, chance.choice(ends)) for victim, ends in kinds.items()]


def late_queues(faults):
    """How many of them may let an owner's queue arrive behind its successor's records."""
    return sum(end in OUTLAST_THE_LEASE for _, end in faults)


class Matrix:
    """networks: of the relays, to Postgres, in the relays' order. writers: whose rows the faults meet."""

    def __init__(self, database, postgres, kafka, relays, networks, writers, topic,
                 publisher="main", lease=LEASE):
        self.database, self.postgres, self.kafka = database, postgres, kafka
        self.relays, self.networks = relays, dict(zip(relays, networks))
        self.writers, self.topic, self.publisher, self.lease = writers, topic, publisher, lease

    def strike(self, victim, end):
        getattr(self, f"_{victim}")(end)
        self._goes_on()

    def _outlast_the_lease(self):
        time.sleep(1.5 * self.lease)  # what stands still cannot say when it is over

    def _windows(self):
        return self.database.execute(
            "select sum(first_tick) from outbox.progress where publisher = %s", (self.publisher,))[0][0]

    def _figure(self, name, **labels):
        """Of all relays together."""
        return sum(relay.metric(name, **labels) or 0 for relay in self.relays)

    def _goes_on(self):
        before = self._windows()
        wait_for(lambda: self._windows() >= before + 5, 120, "windows that are published",
                 interval=0.1)

    def _owner(self):
        return wait_for_owner(self.database, self.relays, (self.publisher, 0), timeout=60)

    def _another_than(self, owner):
        others = [relay for relay in self.relays if relay is not owner]
        wait_for(lambda: owner_among(self.database, others, (self.publisher, 0)), 60, "another owner")
        self._goes_on()

    def _relay(self, end):
        owner = self._owner()
        if end == "stopped":
            owner.pause()
            self._another_than(owner)
            owner.resume()
            return
        if end == "asked":
            assert owner.stop() == 0
        else:
            owner.kill()
        owner.start().wait_ready()

    def _nodes(self, numbers, end):
        if end == "stopped":
            for number in numbers:
                self.kafka.pause(number)
            self._outlast_the_lease()
            for number in numbers:
                self.kafka.resume(number)
            return
        if end == "asked":
            self.kafka.ask_nodes(numbers)
        for number in numbers:
            self.kafka.kill(number)
        self.kafka.start_nodes(numbers)

    def _broker(self, end):
        self._nodes([self.kafka.leader(self.topic, 0)], end)

    def _brokers(self, end):
        self._nodes(list(self.kafka.nodes), end)

    def _postgres(self, end):
        if end == "asked":
            self.postgres.restart()
        elif end == "killed":
            self.postgres.kill()
            self.postgres.start()
        else:
            self.postgres.pause()
            self._outlast_the_lease()
            self.postgres.resume()

    def _network_to_postgres(self, end):
        owner = self._owner()
        network = self.networks[owner]
        if end == "reset":
            network.reset()
        elif end == "slow":
            network.delay(SLOW)
            self._goes_on()
            network.heal()
        else:
            network.stall()
            self._another_than(owner)
            network.cut()
            network.heal()

    def _network_to_kafka(self, end):
        networks = [node.proxy for node in self.kafka.nodes.values()]
        for network in networks:
            network.stall() if end == "cut" else network.delay(SLOW)
        if end == "cut":
            self._outlast_the_lease()
        else:
            self._goes_on()
        for network in networks:
            if end == "cut":
                network.cut()
            network.heal()

    def _copy(self, _):
        """Networks are so slow that whoever owns is met while a page of a huge window comes in."""
        networks = self.networks.values()
        lost = self._figure("relay_postgres_reconnects_total")
        for network in networks:
            network.throttle(1_000_000)
        self.writers.huge_transaction(HUGE)
        before = self._figure("relay_published_total", publisher=self.publisher)
        wait_for(lambda: self._figure("relay_published_total", publisher=self.publisher) > before + 1000, 60,
                 "the first rows")
        for network in networks:
            network.reset()
            network.heal()
        wait_for(lambda: self._figure("relay_postgres_reconnects_total") > lost, 60,
                 "a lost connection")

    def _disk(self, _):
        self.postgres.fill_disk()
        self._outlast_the_lease()
        self.postgres.free_disk()


@pytest.fixture
def strike(kafka3, make_relay, make_writers, judge, chance, mode):
    """strike(database, postgres, faults): a fleet and writers on this database meet these faults."""
    def struck(database, postgres, faults):
        chance.shuffle(faults)
        topic = kafka3.create_topic(f"matrix-{mode}-{len(faults)}")
        with ExitStack() as stack:
            networks = [stack.enter_context(Proxy(postgres.port)) for _ in range(2)]
            relays = [make_relay(
                database_url=through(network, database), bootstrap=kafka3.bootstrap_proxied,
                publisher_lease=f"{LEASE:g}s", publisher_max_in_flight=MAX_IN_FLIGHT,
                kafka_reconnect_backoff_max_ms=500, **MODES[mode])
                for network in networks]
            for relay in relays:
                relay.wait_ready()
            writers = make_writers(topics=[topic], dsn=database.dsn, connections=4, keys=50, rate=200)
            matrix = Matrix(database, postgres, kafka3, relays, networks, writers, topic)
            with writers:
                for victim, end in faults:
                    began = time.monotonic()
                    matrix.strike(victim, end)
                    print(f"{victim} {end}: {time.monotonic() - began:.1f} s")
            late = len(faults) if mode == "at-least-once" else late_queues(faults)
            judge(late, MAX_IN_FLIGHT, topics=[topic], bootstrap=kafka3.bootstrap,
                  database=database, none=mode == "exactly-once",
                  isolation="read_committed" if mode == "exactly-once" else "read_uncommitted")
            for relay in relays:
                relay.close()

    return struck


@pytest.mark.rotated
@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
def test_whoever_ends_however_nothing_is_lost_and_the_order_stays(
        strike, database, fragile_postgres, chance, full):
    """By default one fault of each victim; with --full each six times: 108 faults a mode."""
    strike(database, fragile_postgres,
           faults_of(FAULTS, 6) if full else one_of_each(FAULTS, chance))


@pytest.fixture(scope="module")
def postgres_on_small_disk():
    reason = disk.refusal()
    if reason:
        pytest.skip(reason)
    with OnSmallDisk() as server:
        yield server


@pytest.mark.rotated
@pytest.mark.parametrize("mode", MODES)
def test_a_full_disk_under_postgres_loses_nothing_and_the_order_stays(
        mode, strike, postgres_on_small_disk, database, full):
    postgres_on_small_disk.create_database(f"matrix_{mode}")
    there = type(database)(postgres_on_small_disk, f"matrix_{mode}").migrate()
    strike(there, postgres_on_small_disk, faults_of(DISK_FAULTS, 6 if full else 1))
