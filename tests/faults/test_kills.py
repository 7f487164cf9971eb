"""SIGKILLs of the relay, at random moments and at every step between two writes (EXPECTED and TRANSACTIONS).
The steps of parking and of a lost producer are in test_parking.py."""

import time

import pytest

from support.process import Timeout

LEASE = "1s"


def kill_at_a_random_moment(relay, chance):
    """Mostly while it publishes; sometimes while it starts, or waits for the lease."""
    relay.start()
    if chance.random() < 0.8:
        relay.wait_for(lambda: relay.metric("relay_published_total"), what="the first records")
        time.sleep(chance.uniform(0, 0.3))  # the random moment itself
    else:
        time.sleep(chance.uniform(0, 1))
    relay.kill()


@pytest.mark.rotated("at random")
@pytest.mark.long
@pytest.mark.parametrize("mode, max_in_flight", [
    ({"publisher_resume": "none"}, 20), ({"publisher_resume": "tail"}, 2000),
    ({"publisher_delivery": "exactly-once"}, 2000)], ids=["none", "tail", "exactly-once"])
def test_kills_at_random_moments_lose_nothing(
        make_relay, make_writers, judge, chance, scale, mode, max_in_flight):
    relay = make_relay(publisher_lease=LEASE, publisher_max_in_flight=max_in_flight, **mode).wait_ready()
    relay.kill()
    kills = scale(100)
    with make_writers(connections=4, keys=50, rate=400):
        for _ in range(kills):
            kill_at_a_random_moment(relay, chance)
        relay.start()
    judge(kills + 1, max_in_flight, none=mode != {"publisher_resume": "none"},
          isolation="read_committed" if "publisher_delivery" in mode else "read_uncommitted")


@pytest.mark.rotated("at random")
def test_kills_of_a_relay_with_several_shards(
        database, make_relay, make_writers, judge, chance, scale, command):
    command("publisher", "drop", "--yes", "--reason", "other shards", "--force", "last,owned", "main")
    command("publisher", "create", "--shards", 3, "main")
    relay = make_relay(publisher_lease=LEASE, publisher_max_in_flight=300).wait_ready()
    relay.kill()
    kills = scale(100, default=6)
    with make_writers(connections=4, keys=50, rate=400):
        for _ in range(kills):
            kill_at_a_random_moment(relay, chance)
        relay.start()
    judge(kills + 1, 300, none=True)


@pytest.mark.rotated("at random")
@pytest.mark.long
def test_kills_while_huge_transactions_are_read_by_pages(
        make_relay, make_writers, judge, chance, scale):
    """With little memory, so that a window is many pages and progress lies inside it."""
    relay = make_relay(publisher_lease=LEASE, publisher_max_in_flight=500, publisher_memory="1MiB").wait_ready()
    relay.kill()
    kills = scale(100, default=6)
    writers = make_writers(connections=2, keys=20, rate=50)
    with writers:
        for _ in range(kills):
            writers.huge_transaction(scale(30_000, default=12_000))
            kill_at_a_random_moment(relay, chance)
        relay.start()
    judge(kills + 1, 500, none=True)


def met_points(path):
    return path.read_text().split() if path.exists() else []


ONCE = {"after_take", "after_init_transactions"}  # passed once in the life of a process
TRANSACTIONS = {
    "after_init_transactions", "before_commit_transaction", "after_commit_transaction"}
HANDOVER = {"before_release", "after_release"}
EXPECTED = {"before_log_call", "after_log_call", "after_take", "after_tick", "after_page",
            "before_produce", "after_produce", "after_acknowledgement"} | HANDOVER


@pytest.mark.rotated
@pytest.mark.long
@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_a_kill_at_every_step_between_two_writes(
        make_relay, make_writers, judge, chance, scale, tmp_path, delivery):
    """Each point that a relay meets in this work is the end of several."""
    expected = EXPECTED | TRANSACTIONS if delivery == "exactly-once" else EXPECTED
    relay = make_relay(publisher_lease=LEASE, publisher_max_in_flight=200, publisher_memory="1MiB",
                       publisher_delivery=delivery)
    relay.stop()
    writers = make_writers(connections=2, keys=20, rate=100)
    deaths = 0
    with writers:
        writers.huge_transaction(5000)
        listed = tmp_path / "points"
        relay.start(OUTBOX_RELAY_FAULT_LIST=listed)
        relay.wait_for(lambda: expected - HANDOVER <= set(met_points(listed)), 120, "all points")
        assert relay.stop() == 0
        points = met_points(listed)
        assert expected <= set(points), points
        # not those that it met by chance, as the loss of a producer on a machine that stood still
        for point in (point for point in points if point in expected):
            deaths += die_at(point, relay, writers, chance, scale)
        relay.start()
    print(f"points: {', '.join(points)}")
    judge(deaths, 200, none=True, isolation="read_committed")


def die_at(point, relay, writers, chance, scale):
    """Returns how many relays died there."""
    if point in HANDOVER:
        relay.start(OUTBOX_RELAY_FAULT=point).wait_ready()
        assert relay.stop() == -9
        return 1
    passages = [1] if point in ONCE else [1, *chance.choices(range(2, 30), k=scale(10))]
    for passage in passages:
        writers.huge_transaction(1000)
        relay.start(OUTBOX_RELAY_FAULT=f"{point}:{passage}")
        try:
            assert relay.wait(120) == -9
        except Timeout as failure:
            raise AssertionError(f"{point}:{passage} was not met") from failure
    return len(passages)
