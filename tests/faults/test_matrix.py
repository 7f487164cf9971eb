"""Every kind of end for every process there is, in each way to deliver, under writers at work.

Ends: asked (SIGTERM), killed (SIGKILL), stopped for longer than the lease (SIGSTOP).
"""

import itertools
import time

import pytest

from faults.test_owners import fleet, owner_among, wait_for_owner
from support.process import wait_for

LEASE = 2.0
MAX_IN_FLIGHT = 1000
ENDS = ["asked", "killed", "stopped"]
VICTIMS = ["relay", "broker", "brokers", "postgres"]
MODES = {"at-least-once": {"slot_resume": "none"}, "tail": {"slot_resume": "tail"},
         "exactly-once": {"slot_delivery": "exactly-once"}}


def outlast_the_lease():
    time.sleep(1.5 * LEASE)  # what stands still cannot say when it is over


class Matrix:
    def __init__(self, database, postgres, kafka, relays, topic):
        self.database, self.postgres, self.kafka = database, postgres, kafka
        self.relays, self.topic = relays, topic

    def strike(self, victim, end):
        getattr(self, f"_{victim}")(end)
        self._goes_on()

    def _windows(self):
        return self.database.execute("select sum(first_tick) from outbox.progress")[0][0]

    def _goes_on(self):
        before = self._windows()
        wait_for(lambda: self._windows() >= before + 5, 120, "windows that are published")

    def _relay(self, end):
        owner = wait_for_owner(self.database, self.relays)
        if end == "stopped":
            owner.pause()
            others = [relay for relay in self.relays if relay is not owner]
            wait_for(lambda: owner_among(self.database, others), 30, "another owner")
            self._goes_on()
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
            outlast_the_lease()
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
            outlast_the_lease()
            self.postgres.resume()


@pytest.mark.parametrize("mode", MODES)
def test_whoever_ends_however_nothing_is_lost_and_the_order_stays(
        mode, database, fragile_postgres, kafka3, make_relay, make_writers, judge, chance, full):
    """By default one end of each victim; with --full each nine times: 108 faults a mode."""
    topic = kafka3.create_topic(f"matrix-{mode}")
    relays = fleet(make_relay, 2, bootstrap=kafka3.bootstrap, slot_lease=f"{LEASE:g}s",
                   slot_max_in_flight=MAX_IN_FLIGHT, **MODES[mode])
    matrix = Matrix(database, fragile_postgres, kafka3, relays, topic)
    faults = list(itertools.product(VICTIMS, ENDS)) * 9 if full else \
        [(victim, chance.choice(ENDS)) for victim in VICTIMS]
    chance.shuffle(faults)
    with make_writers(topics=[topic], connections=4, keys=50, rate=200):
        for victim, end in faults:
            print(f"{victim} {end}")
            matrix.strike(victim, end)
    late = faults if mode == "at-least-once" else [fault for fault in faults if "stopped" in fault]
    judge(len(late), MAX_IN_FLIGHT, topics=[topic], bootstrap=kafka3.bootstrap,
          none=mode == "exactly-once",
          isolation="read_committed" if mode == "exactly-once" else "read_uncommitted")
