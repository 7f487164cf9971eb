"""Several relays read one look-back topic, and one of them sleeps past its session, at a step of its own
choice: what it does when it wakes has no effect, or the one that it was to have."""

import asyncio
import zlib

import pytest

from faults.test_lookback import World
from support.auditor import read_topics
from support.business import Business
from support.lookback import Application, configuration
from support.process import wait_for

SHORT = {"kafka_session_timeout_ms": 2000, "kafka_heartbeat_interval_ms": 500}
READER = ["before_lookback_known", "before_lookback_apply", "after_lookback_apply"]
CHECKER = ["after_lookback_claim_sent", "after_lookback_claim", "after_lookback_question",
           "after_lookback_answer", "before_lookback_settle", "after_lookback_settle_sent"]


@pytest.fixture
def name(request):
    return f"sleep{zlib.crc32(request.node.nodeid.encode())}"


@pytest.fixture
def world(database, kafka, make_relay, name):
    return World(database, kafka, lambda **settings: make_relay(**{**settings, **SHORT}), name)


def partitions(relays):
    return [relay.metric("relay_lookback_partitions") or 0 for relay in relays]


def wait_asleep(relay):
    relay.wait_for(lambda: relay.process.stopped, what="the relay to fall asleep")


@pytest.mark.rotated
@pytest.mark.parametrize("count", [2, 3])
def test_rebalances_in_mid_batch_with_several_relays(world, chance, count):
    """They come, are asked to go, are killed, and sleep past their session while others go on."""
    relays = [world.relay() for _ in range(count)]
    wait_for(lambda: all(partitions(relays)) and sum(partitions(relays)) == 3, 120, "a shared topic")
    for end in chance.sample(["asked", "killed", "asleep"], 3):
        world.write(chance, 40)
        victim = relays.pop(chance.randrange(count))
        if end == "asked":
            victim.stop()
        elif end == "killed":
            victim.kill()
        else:
            victim.pause()
        world.write(chance, 40)
        wait_for(lambda: sum(partitions(relays)) == 3, 120, "the others to have the partitions")
        world.write(chance, 40)
        if end == "asleep":
            victim.resume()
            relays.append(victim)
        else:
            relays.append(world.relay())
        world.write(chance, 40)
    world.judge()
    wait_for(lambda: all(partitions(relays)) and sum(partitions(relays)) == 3, 120, "a shared topic")
    world.write(chance, 40)
    world.judge()


@pytest.mark.rotated
@pytest.mark.parametrize("step", READER)
def test_a_reader_that_sleeps_between_two_steps_is_fenced_when_it_wakes(world, chance, step):
    """With a batch in its hands that another one has read meanwhile."""
    sleeper = world.relay(fault_stop=f"{step}:2")
    world.write(chance, 100)
    wait_asleep(sleeper)
    other = world.relay()
    other.wait_for(lambda: partitions([other]) == [3], what="the partitions")
    world.write(chance, 40)
    world.judge()
    sleeper.resume()
    if step != "after_lookback_apply":  # else its batch was stored, and it may be told in time
        sleeper.wait_event("lookback_fenced")
    world.write(chance, 100)
    world.judge()
    wait_for(lambda: all(partitions([sleeper, other])), 120, "a shared topic")
    world.write(chance, 40)
    world.judge()


@pytest.mark.rotated
@pytest.mark.parametrize("step", CHECKER)
def test_a_checker_that_sleeps_past_its_claim_changes_nothing_when_it_wakes(
        database, kafka, make_relay, name, step):
    """It sleeps at some step between its claim and the end of what came of it, and is asked for nothing
    any more: another relay asks again, and is answered otherwise, against all promises."""
    said, orders = kafka.create_topic(f"{name}_said", 1), kafka.create_topic(f"{name}_orders", 1)
    word = "rollback"

    async def answer(_, ids):
        await asyncio.sleep(0.01)
        return dict.fromkeys(ids, word)

    with Business(answer) as business:
        path = configuration(
            ("check \"shop\"", {"url": business.url, "networks": "127.0.0.1", "timeout": "700ms"}),
            ("lookback \"shop\"", {"types": "order", "topic": said, "group": name, "check": "shop",
                                   "check_after": "100ms", "claim": "1s"}))

        def relay(**settings):
            return make_relay(arguments=("run", "--config", path), **SHORT, **settings)

        sleeper = relay(fault_stop=step)
        Application(kafka.bootstrap, said, "order", orders).prepare("1")
        wait_asleep(sleeper)
        settled = step == "after_lookback_settle_sent"
        word = "commit"
        other = relay()
        decisions = "SELECT biz_id, decision FROM outbox.lookback WHERE kind = 'decision'"
        other.wait_for(lambda: database.execute(decisions), what="the decision")
        kept = "rollback" if settled else "commit"
        assert database.execute(decisions) == [("1", kept)]
        sleeper.resume()
        sleeper.wait_ready()
        Application(kafka.bootstrap, said, "order", orders).prepare("2")
        other.wait_for(lambda: len(database.execute(decisions)) == 2, what="the next decision")
        assert sleeper.stop() == 0  # what it had to write is written
        assert dict(database.execute(decisions)) == {"1": kept, "2": "commit"}
        committed = ["2"] if settled else ["1", "2"]
        wait_for(lambda: len(list(read_topics(kafka.bootstrap, [orders]))) >= len(committed), 60,
                 "the messages")
        assert other.stop() == 0
        assert [record.key.decode() for record in read_topics(kafka.bootstrap, [orders])] == committed
        # The answer that it held in its hands was in time when it came, and is noted.
        held = step in ("after_lookback_answer", "before_lookback_settle")
        assert database.execute("SELECT biz_id, kept, refused, source FROM outbox.lookback_conflict"
                                ) == [("1", "commit", "rollback", "check")] * held
