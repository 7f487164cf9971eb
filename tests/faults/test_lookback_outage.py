"""The business is away while many prepares come due, and then it is back: all of them are decided,
as fast as the configuration allows and no faster, and no type waits for another."""

import asyncio
import collections
import time
import zlib

import pytest

from support.auditor import count_records
from support.business import Business
from support.lookback import Application, configuration
from support.process import wait_for

SHARES = {"order": 0.85, "refund": 0.05, "gift": 0.05, "invoice": 0.05}
RATE, IN_FLIGHT, FAILURES, PAUSE = 1000, 64, 10, 1.0


def word(biz_type, id):
    return "rollback" if zlib.crc32(f"{biz_type} {id}".encode()) % 3 == 0 else "commit"


def ids_of(count):
    return {biz_type: [f"{biz_type}-{number}" for number in range(int(count * share))]
            for biz_type, share in SHARES.items()}


def most_in(seconds, moments):
    """The most of these moments, which are in order, in any stretch of that length."""
    most, first = 0, 0
    for last, moment in enumerate(moments):
        while moments[first] <= moment - seconds:
            first += 1
        most = max(most, last - first + 1)
    return most


def last_places(questions):
    """{type: how many questions there were when its last one came}"""
    return {question.biz_type: place for place, question in enumerate(questions, 1)}


@pytest.fixture
def business():
    async def answer(biz_type, ids):
        await asyncio.sleep(0.02)
        return {id: word(biz_type, id) for id in ids}

    business = Business(answer)
    yield business
    business.close()


def undecided(database):
    return database.execute("SELECT count(*) FROM outbox.lookback_overdue")[0][0]


@pytest.mark.long
@pytest.mark.alone
def test_an_endpoint_that_comes_back_meets_a_bounded_stream_in_which_all_types_have_their_share(
        database, kafka, make_relay, business, scale):
    ids = ids_of(scale(100_000, default=8_000))
    total = sum(map(len, ids.values()))
    said, orders = kafka.create_topic("outage_said", 3), kafka.create_topic("outage_orders", 3)
    path = configuration(
        ("check \"shop\"", {
            "url": business.url, "networks": "127.0.0.1", "rate": RATE, "host_in_flight": IN_FLIGHT,
            "type_in_flight": IN_FLIGHT, "breaker_failures": FAILURES, "breaker_pause": "1s",
            "retry_first": "500ms", "retry_max": "2s", "max_attempts": 3}),
        ("lookback \"shop\"", {"types": ", ".join(SHARES), "topic": said, "group": "outage",
                               "check": "shop", "check_after": "100ms"}))
    relay = make_relay(arguments=("run", "--config", path)).wait_ready()
    applications = {biz_type: Application(kafka.bootstrap, said, biz_type, orders) for biz_type in ids}

    def tries():
        return relay.metric("relay_lookback_checks_total", result="connect") or 0

    # It is away: nobody is asked, nothing is counted, and it is tried rarely.
    for biz_type, application in applications.items():
        application.prepare(*ids[biz_type])
    relay.wait_for(lambda: undecided(database) == total, 240, "all of them to be overdue")
    relay.wait_for(lambda: relay.metric("relay_lookback_breaker") == 2, 60, "the breaker to open")
    before, began = tries(), time.monotonic()
    relay.wait_for(lambda: tries() >= before + 3, 120, "three more tries")
    assert tries() - before <= (time.monotonic() - began) / PAUSE + 1 + 1
    assert database.execute("SELECT max(attempts), count(*) FILTER (WHERE state = 'parked') "
                            "FROM outbox.lookback_overdue") == [(0, 0)]

    # It is back.
    business.start()
    back = time.monotonic()
    relay.wait_for(lambda: undecided(database) == 0, 60 + total / 50, "an answer about each")
    took = time.monotonic() - back
    assert dict(database.execute(
        "SELECT biz_type || ' ' || biz_id, decision FROM outbox.lookback WHERE kind = 'decision'")
        ) == {f"{biz_type} {id}": word(biz_type, id) for biz_type in ids for id in ids[biz_type]}

    questions = business.questions
    assert {attempt for question in questions for attempt in question.attempts.values()} == {1}
    assert len(questions) == total  # each of them once
    # What was sent within a second, and what may have been on its way before.
    most = most_in(1.0, [question.at for question in questions])
    print(f"{total} overdue in {took:.1f} s, at most {most} questions in a second, "
          f"{business.most_open} at once; last places {last_places(questions)}")
    assert most <= RATE * 1.05 + IN_FLIGHT
    assert business.most_open <= IN_FLIGHT
    # In turn: when the last one of a small type is asked about, the others had no more than it had,
    # but for what was asked before its rows were claimed.
    counts = collections.Counter(question.biz_type for question in questions)
    for biz_type, place in last_places(questions).items():
        if biz_type != "order":
            assert place <= len(SHARES) * counts[biz_type] * 1.5 + 300, last_places(questions)

    committed = sum(word(biz_type, id) == "commit" for biz_type in ids for id in ids[biz_type])
    wait_for(lambda: count_records(kafka.bootstrap, [orders]) >= committed, 240, "every message")
    assert count_records(kafka.bootstrap, [orders]) == committed
