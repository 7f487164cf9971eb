"""The sidecar, and an application that answers each kind of wrong thing, while both are killed, stopped
and away: nothing is lost, each key keeps its order, dead letters are those that were refused."""

import collections
import itertools
import os
import sys
import time

import pytest

from support.application import Application
from support.auditor import read_topics, topic_ranges
from support.inbox import header, out_of_order, produce, wait_committed
from support.process import Process, free_port, port_answers, wait_for

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
KEYS = 15
COUNT = 150       # messages between two faults
SECONDS = 300     # the limit of a condition that only load delays


class Shop:
    """support.bad_application, in a process of its own."""

    def __init__(self, folder, seed):
        self.file, self.log, self.seed = folder / "effects", folder / "application.log", seed
        self.file.touch()
        self.port, self.lives = free_port(), itertools.count()
        self.url = f"http://127.0.0.1:{self.port}/orders"
        self.start()

    def start(self):
        self.process = Process(
            [sys.executable, "-m", "support.bad_application", self.port, self.file,
             f"{self.seed} {next(self.lives)}"], self.log, folder=TESTS)
        wait_for(lambda: port_answers(self.port), SECONDS, "the application")

    def effects(self):
        lines = self.file.read_text().splitlines()
        return [tuple(line.split(" ", 2)) for line in lines if line.count(" ") >= 2]


@pytest.fixture
def shop(tmp_path, seed):
    made = Shop(tmp_path, seed)
    yield made
    made.process.resume()
    made.process.kill()


def sidecar_killed(relay, _, chance):
    time.sleep(chance.uniform(0, 0.3))  # the random moment itself
    relay.kill()
    relay.start()


def sidecar_asked(relay, *_):
    assert relay.stop() == 0
    relay.start()


def application_killed(_, shop, chance):
    time.sleep(chance.uniform(0, 0.3))
    shop.process.kill()
    shop.start()


def application_away(relay, shop, _, seconds):
    shop.process.kill()
    time.sleep(seconds)  # that long
    assert relay.running
    shop.start()


def application_stands_still(relay, shop, _, seconds):
    shop.process.pause()
    time.sleep(seconds)
    assert relay.running
    shop.process.resume()


FAULTS = [sidecar_killed, sidecar_asked, application_killed]


@pytest.mark.rotated
@pytest.mark.parametrize("settings", [
    {"form": "single", "mode": "structured"}, {"form": "single"}, {"form": "batch", "batch": 8}],
    ids=["structured", "single", "batch"])
def test_whatever_an_application_does_nothing_is_lost_and_dead_letters_are_exact(
        make_sidecar, kafka, topic, dead_topic, shop, chance, scale, settings):
    relay = make_sidecar(shop, session_ms=1500, attempts=0, timeout="1s", connect_timeout="1s",
                         breaker_failures=5, breaker_pause="300ms", concurrency=16, drain="1s",
                         **settings)
    away = scale(60, default=4)
    faults = [*FAULTS * scale(20, default=1), lambda *of: application_away(*of, away),
              lambda *of: application_stands_still(*of, away)]
    chance.shuffle(faults)
    made, sequence = [], collections.Counter()
    for fault in faults:
        before = len(shop.effects())
        for _ in range(COUNT):
            key = f"k{chance.randrange(KEYS)}"
            sequence[key] += 1
            refuse = ', "refuse": true' if chance.random() < 0.05 else ""
            made.append((f"{key}-{sequence[key]}", key, f'{{"seq": {sequence[key]}{refuse}}}'))
        copies = chance.sample(made, COUNT // 5)
        produce(kafka.bootstrap, topic, made[-COUNT:] + copies)
        wait_for(lambda: len(shop.effects()) > before + 20, SECONDS, "messages that are delivered")
        fault(relay, shop, chance)
    refused = {id for id, _, payload in made if "refuse" in payload}
    wanted = {id for id, _, _ in made} - refused
    wait_for(lambda: {id for id, _, _ in shop.effects()} >= wanted, SECONDS, "all that was produced",
             interval=0.2)
    wait_committed(kafka.bootstrap, topic, topic,
                   {partition: high for (_, partition), (_, high)
                    in topic_ranges(kafka.bootstrap, [topic]).items()}, timeout=SECONDS)
    effects = shop.effects()
    assert len(effects) == len(wanted) and {id for id, _, _ in effects} == wanted
    assert not out_of_order(effects)
    refusals = list(read_topics(kafka.bootstrap, [dead_topic]))
    assert {header(refusal, "outbox-id") for refusal in refusals} == refused
    assert {header(refusal, "outbox-reason")[:10] for refusal in refusals} == {"status 422"}
    # who is killed between a dead letter and its offset writes it once more
    twice = len(refusals) - len(refused)
    print(f"{len(made)} messages, {len(refusals)} dead letters, {twice} of them again")
    assert twice <= faults.count(sidecar_killed) * 16


OUTAGE = 22  # seconds: the first look at the group comes within 8, and a request for it usually lives 10


def test_an_outage_outlasts_a_look_at_the_group(make_sidecar, fragile_kafka, topic):
    """librdkafka ends the process if such a request ended by its time, and then its coordinator comes back."""
    with Application() as application:
        relay = make_sidecar(application)
        produce(fragile_kafka.bootstrap, topic, [("before", "k", "{}")])
        application.wait_ids(["before"])
        fragile_kafka.kill()
        time.sleep(OUTAGE)  # that long
        fragile_kafka.start_node(1)
        produce(fragile_kafka.bootstrap, topic, [("after", "k", "{}")])
        wait_for(lambda: not relay.running or "after" in application.ids, SECONDS, "the second message")
        assert relay.running
