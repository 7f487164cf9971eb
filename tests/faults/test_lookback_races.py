"""Whoever may decide an id does it at the same moment: a record of the topic, one by the HTTP interface,
the business's answer, an operator by HTTP and one at the command line. One of them wins; what the others
wanted otherwise is noted, or was told to whom asked for it."""

import asyncio
import collections
import json
import threading
import time
import zlib

import pytest

from support.api import CALLERS, OPERATE, SEND, Api, decision
from support.auditor import read_topics
from support.business import Business
from support.lookback import Application, configuration
from support.process import free_port, wait_for
from support.relay import run_command

VERBS = ("commit", "rollback")
LONGEST_DELAY = 0.3  # seconds: with it each of them is the first now and then
PART = 0.7           # of the ids of a round each of them wants to decide

DECISIONS = """
SELECT biz_id, decision, source, reason FROM outbox.lookback WHERE kind = 'decision'"""
CONFLICTS = """
SELECT biz_id, kept, refused, source, source_partition, source_offset FROM outbox.lookback_conflict"""


class Round:
    """Some ids, who wants what of them, and the moment at which all begin."""

    def __init__(self, chance, number, size):
        self.ids = [f"{number}-{place}" for place in range(size)]
        self.delays = {who: chance.uniform(0, LONGEST_DELAY) for who in Race.ACTORS}
        self.delays["answer"] = chance.uniform(0, LONGEST_DELAY)
        self.answers = {id: chance.choice(VERBS) for id in self.ids}
        self.wants = {who: {id: chance.choice(VERBS) for id in self.ids if chance.random() < PART}
                      for who in Race.ACTORS}
        self.wants["command"] = dict(list(self.wants["command"].items())[:2])  # a process each


class Race:
    ACTORS = ("record", "interface", "operator", "command")

    def __init__(self, database, kafka, make_relay, name):
        self.database, self.kafka = database, kafka
        self.said = kafka.create_topic(f"{name}_said", 3)
        self.orders = kafka.create_topic(f"{name}_orders", 3)
        self.application = Application(kafka.bootstrap, self.said, "order", self.orders)
        self.business = Business(self.answer)
        self.round, self.asked, self.began = None, set(), None
        self.answers = {}  # {id: word}
        self.done, self.refused = {}, []  # by operators: {reason: (id, verb)}
        port = free_port()
        self.sender, self.operator_api = Api(port, SEND), Api(port, OPERATE)
        path = configuration(
            ("check \"shop\"", {"url": self.business.url, "networks": "127.0.0.1", "rate": 0,
                                "retry_first": "10ms", "timeout": "60s"}),
            ("lookback \"shop\"", {"types": "order", "topic": self.said, "group": name,
                                   "check": "shop", "check_after": "10ms"}))
        with open(path, "a", encoding="utf-8") as file:
            file.write(CALLERS)
        self.relay = make_relay(arguments=("run", "--config", path), api_listen=port)

    async def answer(self, _, ids):
        """Held until all ids of the round were asked about."""
        round = self.round
        self.asked.update(ids)
        while self.began is None or round is not self.round:
            await asyncio.sleep(0.005)
        await asyncio.sleep(round.delays["answer"])
        said = {id: round.answers[id] for id in ids}
        self.answers.update(said)
        return said

    def record(self, wants):
        self.application.send(*(self.application.decided(*row) for row in wants.items()))

    def interface(self, wants):
        for verb in VERBS:
            said = [decision(id, "order") for id, wanted in wants.items() if wanted == verb]
            if said:
                answer = self.sender.post(verb, {"messages": said})
                assert answer.status == 202, answer

    def operator(self, wants):
        for id, verb in wants.items():
            reason = f"operator {id}"
            answer = self.operator_api.post("operate", {"verb": verb, "ids": [["order", id]],
                                                        "reason": reason})
            self.note(answer.status == 200, reason, id, verb)
            assert answer.status == 200 or answer.code in ("not_found", "decided_meanwhile"), answer

    def command(self, wants):
        for id, verb in wants.items():
            reason = f"command {id}"
            status, _, error = run_command(
                ["lookback", verb, "order", id, "--reason", reason, "--yes"],
                {"DATABASE_URL": self.database.dsn})
            self.note(status == 0, reason, id, verb)
            assert status in (0, 65), error

    def note(self, done, reason, id, verb):
        if done:
            self.done[reason] = (id, verb)
        else:
            self.refused.append((reason, id, verb))

    def run(self, round):
        self.asked, self.began, self.round = set(), None, round
        self.application.prepare(*round.ids)
        self.relay.wait_for(lambda: set(round.ids) <= self.asked, what="a question about each")
        failures = []

        def act(who):
            try:
                time.sleep(round.delays[who])  # who is how late is by chance
                getattr(self, who)(round.wants[who])
            except Exception as failure:
                failures.append(failure)

        threads = [threading.Thread(target=act, args=(who,)) for who in self.ACTORS]
        self.began = True
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures, failures
        wait_for(lambda: set(round.ids) <= self.answers.keys(), 60, "all answers")

    def settled(self):
        """Answers that decided or came too late: the relay has told the database."""
        return ((self.relay.metric("relay_lookback_decisions_total", source="check") or 0)
                + (self.relay.metric("relay_lookback_lost_decisions_total") or 0))

    def read_up(self):
        """Until all that was said in the topic had its effect."""
        ends = collections.Counter()
        for record in read_topics(self.kafka.bootstrap, [self.said]):
            ends[record.partition] = record.offset + 1
        self.relay.wait_for(lambda: dict(ends) == dict(self.database.execute(
            "SELECT partition, max(next_offset) FROM outbox.lookback_log GROUP BY partition")),
            what="the reader at the end of the topic")


@pytest.fixture
def race(database, kafka, make_relay, request):
    race = Race(database, kafka, make_relay, f"race{zlib.crc32(request.node.nodeid.encode())}")
    with race.business:
        race.relay.wait_ready()
        yield race


def said_in(records):
    """{(partition, offset): (id, verb)} of the decisions in the look-back topic."""
    return {(record.partition, record.offset): (said["biz_id"], said["op"])
            for record in records for said in [json.loads(record.payload)]
            if said["op"] in VERBS}


@pytest.mark.long
def test_of_all_who_decide_at_once_one_wins_and_the_others_are_noted(race, chance, scale):
    size = 25
    rounds = [Round(chance, number, size) for number in range(scale(5000) // size)]
    for round in rounds:
        race.run(round)
    race.read_up()
    race.relay.wait_for(lambda: race.settled() == len(race.answers), what="what came of each answer")
    assert race.database.execute("SELECT count(*) FROM outbox.lookback_overdue") == [(0,)]

    ids = {id for round in rounds for id in round.ids}
    rows = race.database.execute(DECISIONS)
    decisions = {id: decision for id, decision, _, _ in rows}
    assert len(rows) == len(decisions) and decisions.keys() == ids
    committed = sorted(id for id, kept in decisions.items() if kept == "commit")
    wait_for(lambda: len(list(read_topics(race.kafka.bootstrap, [race.orders]))) >= len(committed),
             120, "every message")
    assert sorted(record.key.decode() for record in
                  read_topics(race.kafka.bootstrap, [race.orders])) == committed

    # An operator was told that it is done where it is, and that it is not where it is not.
    assert {reason: (id, decision) for id, decision, source, reason in rows
            if source == "operator"} == race.done

    # Each record and each answer that wanted something else is noted, and nothing more.
    said = said_in(read_topics(race.kafka.bootstrap, [race.said]))
    found = race.database.execute(CONFLICTS)
    assert all(kept == decisions[id] for id, kept, *_ in found)
    of_records = sorted((partition, offset, id, refused)
                        for id, _, refused, source, partition, offset in found if source == "message")
    assert of_records == sorted((*place, id, verb) for place, (id, verb) in said.items()
                                if decisions[id] != verb)
    of_answers = sorted((id, refused) for id, _, refused, source, *_ in found if source == "check")
    assert of_answers == sorted((id, word) for id, word in race.answers.items()
                                if decisions[id] != word)
    # So is an operator, unless the command looked first and saw that it was decided.
    of_operators = {(id, refused) for id, _, refused, source, *_ in found if source == "operator"}
    late = [(reason, id, verb) for reason, id, verb in race.refused if decisions[id] != verb]
    assert of_operators <= {(id, verb) for _, id, verb in late}
    assert of_operators >= {(id, verb) for reason, id, verb in late if reason.startswith("operator")}

    winners = collections.Counter(source for _, _, source, _ in rows)
    print(f"{len(ids)} ids: {dict(winners)} won; {len(of_records)} records, {len(of_answers)} "
          f"answers and {len(race.refused)} operators came too late")
    assert set(winners) == {"message", "check", "operator"} and of_records and of_answers
