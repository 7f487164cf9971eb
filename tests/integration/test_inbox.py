"""The inbox, as a library: each message is handled, in the order of its key, and copies are dropped."""

import pathlib
import re
import signal
import subprocess
import time

import pytest

from support.auditor import read_topics, topic_ranges
from support.dedup import DedupError
from support.inbox import Effects, Inbox, commit, committed, header, produce, wait_committed
from support.leader import ForgetfulLeader
from support.process import wait_for
from support.redis import Redis
from support.relay import beside, environment


@pytest.fixture
def effects():
    return Effects()


@pytest.fixture
def make_inbox(kafka, topic, request, tmp_path, effects):
    """make_inbox(**settings): a consumer of this test's topic, in a group of its own."""
    inboxes = []

    def make(group=topic, topics=None, **settings):
        given = {"dedup": "bloom ids=100k rate=0.1% window=1h", "path": tmp_path / "state",
                 "effects": effects.path, "commit_every_ms": 100, **settings}
        inbox = Inbox(kafka.bootstrap, group, topics or [topic], **given)
        inboxes.append(inbox)
        return inbox

    yield make
    for inbox in inboxes:
        inbox.close()
        print("".join(inbox.log[-40:]))  # shown when the test fails


def messages(count, keys=10, copies=0, first=0, text=""):
    made = [(f"id-{first + i}", f"k{(first + i) % keys}", f"seq={first + i} {text}")
            for i in range(count)]
    return made + made[:copies]


def messages_of_one_partition(count, first=0):
    return [(f"id-{first + i}", f"k{i % 100}", f"seq={first + i}", 0) for i in range(count)]


def ends(kafka, topic):
    return {partition: high for (_, partition), (_, high)
            in topic_ranges(kafka.bootstrap, [topic]).items() if high}


def test_each_message_is_handled_once_in_the_order_of_its_key(make_inbox, kafka, topic, effects):
    produce(kafka.bootstrap, topic, messages(2000, keys=50, copies=600))
    inbox = make_inbox(concurrency=64, delay=3)
    effects.wait_ids(f"id-{i}" for i in range(2000))
    stats = inbox.wait_stats(handled=2000, duplicates=600)
    assert len(effects.all()) == 2000 and not effects.out_of_order()
    assert (stats["handled"], stats["duplicates"]) == (2000, 600)
    wait_committed(kafka.bootstrap, topic, topic, ends(kafka, topic))


def topic_records(kafka, topic):
    return list(read_topics(kafka.bootstrap, [topic]))


@pytest.fixture
def other_topic(kafka, topic):
    """other_topic("dead"): one beside this test's."""
    made = []

    def make(name, **config):
        made.append(kafka.create_topic(f"{topic}.{name}", **config))
        return made[-1]

    yield make
    for name in made:
        kafka.delete_topic(name)


# --- order and parallelism -----------------------------------------------------------------------


@pytest.mark.parametrize("shape", [{"batch": 100, "threads": 2, "concurrency": 300},
                                   {"concurrency": 1}, {"dedup": None, "path": None}])
def test_every_shape_of_a_handler_keeps_the_order(make_inbox, kafka, topic, effects, shape):
    # A handler of one message at a time answers before the next one begins, which takes long on a busy machine.
    count = 500 if shape.get("concurrency") == 1 else 3000
    produce(kafka.bootstrap, topic, messages(count, keys=200))
    make_inbox(**shape)
    effects.wait_ids((f"id-{i}" for i in range(count)), timeout=120)
    assert len(effects.all()) == count and not effects.out_of_order()


def test_handlers_finish_later_and_from_other_threads(make_inbox, kafka, topic, effects):
    produce(kafka.bootstrap, topic, messages(300, keys=40, text="later"))
    inbox = make_inbox(batch=10, threads=1, concurrency=60)
    inbox.wait_stats(handled=300)
    assert len(effects.all()) == 300 and not effects.out_of_order()


def test_a_slow_key_delays_nobody_else(make_inbox, kafka, topic, effects):
    slow = [("slow-1", "slow", "seq=0 slow=10000"), ("slow-2", "slow", "seq=1")]
    produce(kafka.bootstrap, topic, [*slow, *messages(1000, keys=300)])
    make_inbox(concurrency=8)
    found = effects.wait_ids(f"id-{i}" for i in range(1000))
    assert not [effect for effect in found if effect.key == "slow"]
    effects.wait_ids(["slow-1", "slow-2"])
    assert not effects.out_of_order()


def test_messages_without_a_key_run_beside_each_other(make_inbox, kafka, topic, effects):
    produce(kafka.bootstrap, topic,
            [(f"id-{i}", None, f"seq={i} slow=1500", 0) for i in range(8)])
    inbox = make_inbox(concurrency=8)
    inbox.wait_stats(in_progress=8)
    effects.wait_ids(f"id-{i}" for i in range(8))


# --- failures ------------------------------------------------------------------------------------


def test_a_retry_in_place_keeps_the_order_of_its_key(make_inbox, kafka, topic, effects):
    produce(kafka.bootstrap, topic, [("a", "k", "seq=1 retry=4"), ("b", "k", "seq=2"),
                                     ("c", "k", "seq=3 retry=2"), ("d", "k", "seq=4")])
    inbox = make_inbox(retry_first_ms=20)
    effects.wait_ids("abcd")
    assert [(effect.id, effect.attempt) for effect in effects.all()] == [
        ("a", 5), ("b", 1), ("c", 3), ("d", 1)]
    assert inbox.stats()["retries"] == 6


def test_what_can_never_be_handled_is_a_dead_letter_with_its_origin(
        make_inbox, kafka, topic, other_topic, effects):
    dead = other_topic("dead", partitions=3)
    produce(kafka.bootstrap, topic, [("a", "k", "seq=1 dead", 2, [("trace", b"t1")]),
                                     ("b", "k", "seq=2 retry=99", 2), ("c", "k", "seq=3", 2)])
    inbox = make_inbox(dead_letters=dead, attempts=3, retry_first_ms=10)
    effects.wait_ids("c")
    inbox.wait_stats(dead_letters=2)
    first, second = sorted(topic_records(kafka, dead), key=lambda record: header(record, "outbox-id"))
    assert first.key == b"k" and first.payload == b"seq=1 dead"
    assert {name: header(first, name) for name, _ in first.headers} == {
        "outbox-id": "a", "trace": "t1", "outbox-group": topic, "outbox-origin-topic": topic,
        "outbox-origin-partition": "2", "outbox-origin-offset": "0",
        "outbox-origin-time": header(first, "outbox-origin-time"), "outbox-attempts": "1",
        "outbox-reason": "the payload says dead", "outbox-leg": f"/{dead}"}
    assert header(second, "outbox-attempts") == "3"
    assert header(second, "outbox-reason") == "the payload says retry"
    wait_committed(kafka.bootstrap, topic, topic, {2: 3})


def test_retry_topics_come_in_turn_and_then_the_dead_letters(
        make_inbox, kafka, topic, other_topic, effects):
    dead, soon, late = other_topic("dead"), other_topic("soon"), other_topic("late")
    produce(kafka.bootstrap, topic, [("a", "k", "seq=1 retry=3"), ("b", "k", "seq=2"),
                                     ("c", "k", "seq=3 retry=99"), ("a", "k", "seq=1 retry=3")])
    inbox = make_inbox(dead_letters=dead, attempts=1, retry_topics=f"{soon}=200,{late}=400")
    inbox.wait_stats(dead_letters=2, retry_records=4)
    # "a" is tried three times in all, and is a letter then; its copy was none.
    ended = [(header(record, "outbox-id"), header(record, "outbox-attempts"),
              header(record, "outbox-origin-topic")) for record in topic_records(kafka, dead)]
    assert sorted(ended) == [("a", "3", topic), ("c", "3", topic)]
    assert [effect.id for effect in effects.all()] == ["b"]
    assert inbox.stats()["duplicates"] == 1


def test_a_retry_topic_waits_as_long_as_it_says(make_inbox, kafka, topic, other_topic, effects):
    late = other_topic("late")
    produce(kafka.bootstrap, topic, [("a", "k", "seq=1 retry=1"), ("b", "k", "seq=2")])
    inbox = make_inbox(attempts=1, retry_topics=f"{late}=3000")
    effects.wait_ids("ab")
    assert [(effect.id, effect.topic) for effect in effects.all()] == [("b", topic), ("a", late)]
    record, = topic_records(kafka, late)
    assert int(header(record, "outbox-retry-at")) - int(header(record, "outbox-origin-time")) >= 3000
    assert inbox.stats()["handled"] == 2


def test_without_dead_letters_a_partition_stands_still_until_it_is_resumed(
        make_inbox, kafka, topic, effects):
    produce(kafka.bootstrap, topic, [("a", "k", "seq=1 retry=3", 1), ("b", "k", "seq=2", 1)])
    inbox = make_inbox(attempts=2, retry_first_ms=10)
    inbox.wait_stats(blocked=1)
    assert "inbox_blocked" in inbox.wait_event("inbox_blocked")[0]
    produce(kafka.bootstrap, topic, [("c", "x", "seq=1", 2)])
    effects.wait_ids("c")
    assert [effect.id for effect in effects.all()] == ["c"]
    inbox.ask("resume")
    effects.wait_ids("ab")
    assert [effect.id for effect in effects.all()] == ["c", "a", "b"]
    wait_for(lambda: inbox.stats()["blocked"] == 0, 10, "a partition that goes on")


def test_wait_costs_no_try(make_inbox, kafka, topic, effects):
    produce(kafka.bootstrap, topic, [("a", "k", "seq=1 wait=300")])
    make_inbox(attempts=1)
    effects.wait_ids("a")
    assert effects.all()[0].attempt == 1


# --- handlers that do it wrong -------------------------------------------------------------------


def test_a_second_end_and_a_strangers_are_refused(make_inbox, kafka, topic, effects):
    produce(kafka.bootstrap, topic, [("a", "k", "seq=1 twice"), ("b", "k", "seq=2 foreign"),
                                     ("c", "k", "seq=3")])
    inbox = make_inbox()
    effects.wait_ids("abc")
    refused = inbox.ask("refused")
    assert refused.count("reject: 1 of 1 tickets are of no message that is being handled") == 2
    wait_committed(kafka.bootstrap, topic, topic, ends(kafka, topic))
    assert inbox.stats()["handled"] == 3


def test_a_handler_that_never_finishes_holds_its_key_alone(make_inbox, kafka, topic, effects):
    produce(kafka.bootstrap, topic, [("a", "k", "seq=1 never", 0), ("b", "k", "seq=2", 0),
                                     *[(f"id-{i}", f"x{i}", f"seq={i}", 0) for i in range(50)]])
    inbox = make_inbox(concurrency=4, drain_ms=500)
    effects.wait_ids(f"id-{i}" for i in range(50))
    stats = inbox.wait_stats(oldest_ms=1000)
    assert stats["in_progress"] == 1 and stats["messages"] == 2
    assert committed(kafka.bootstrap, topic, topic)[0] <= 0


# --- ids -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("id, same", [("key", "one"), ("payload", "seq=1"),
                                      ("header:order", "x"), ("json:$.order.id", '{"order": {"id": 7}}')])
def test_an_id_is_where_the_expression_says(make_inbox, kafka, topic, id, same):
    key, payload = (same, "seq=1") if id == "key" else ("k", same if id != "header:order" else "p")
    produce(kafka.bootstrap, topic, [(None, key, payload, 0, [("order", b"x")])] * 3)
    inbox = make_inbox(id=id)
    stats = inbox.wait_stats(handled=1, duplicates=2)
    assert (stats["handled"], stats["duplicates"]) == (1, 2)


def test_without_an_id_the_policy_decides(make_inbox, kafka, topic, other_topic, effects):
    dead = other_topic("dead")
    produce(kafka.bootstrap, topic, [(None, "k", "seq=1", 0), ("b", "k", "seq=2", 0),
                                     (None, "k", "seq=3", 0)])
    inbox = make_inbox(group=f"{topic}-dead", dead_letters=dead, without_id=0)
    inbox.wait_stats(handled=1, dead_letters=2)
    assert "header:outbox-id finds nothing" in header(topic_records(kafka, dead)[0], "outbox-reason")
    assert len(inbox.events("inbox_without_id")) == 1
    inbox.close()
    inbox = make_inbox(group=f"{topic}-process", without_id=1)
    inbox.wait_stats(handled=2)
    inbox.close()
    inbox = make_inbox(group=f"{topic}-fail", without_id=2)
    assert inbox.wait_stats(blocked=1)["handled"] == 0


def test_long_ids_keys_and_headers_are_taken_whole(make_inbox, kafka, topic, effects):
    long = "i" * 5000
    produce(kafka.bootstrap, topic,
            [(long, "k" * 3000, "seq=1", 0, [("big", b"h" * 900_000)]), (long, "k" * 3000, "seq=1", 0),
             (long + "x", "k" * 3000, "seq=1", 0)])
    stats = make_inbox().wait_stats(handled=2, duplicates=1)
    assert stats["handled"] == 2


def test_an_inbox_without_ids_is_told_once(make_inbox, kafka, topic):
    produce(kafka.bootstrap, topic, [(None, "k", "seq=1", partition) for partition in range(6)])
    inbox = make_inbox(without_id=1)
    inbox.wait_stats(handled=6)
    make_inbox(without_id=1)  # partitions go and come
    inbox.wait_stats(rebalances=2)
    produce(kafka.bootstrap, topic, [(None, "k", "seq=1", partition) for partition in range(6)])
    wait_committed(kafka.bootstrap, topic, topic, {partition: 2 for partition in range(6)})
    assert len(inbox.events("inbox_without_id")) == 1


@pytest.mark.parametrize("dedup, each", [("bloom ids=100k rate=0.1% window=1h", True), ("exact ids=100k window=1h", True),
                                         ("sequence", False)])
def test_the_memory_of_all_partitions_is_logged(make_inbox, kafka, topic, dedup, each):
    inbox = make_inbox(dedup=dedup, **({"path": None} if dedup == "sequence" else {}))
    inbox.wait_event("inbox_assigned")
    inbox.wait_stats(rebalances=1)
    if not each:
        assert inbox.events("inbox_dedup_memory") == []
        return
    line, = inbox.wait_event("inbox_dedup_memory")
    partitions, one, total = (int(re.search(rf" {name}=(\d+)", line)[1])
                              for name in ("partitions", "partition_bytes", "total_bytes"))
    assert partitions == len(topic_ranges(kafka.bootstrap, [topic])) and total == partitions * one > 0


def test_an_overfilled_filter_is_told_with_its_cure_and_is_relieved(make_inbox, kafka, topic):
    """The setting `alarm` is far below the planned rate, so that each full filter is overfilled."""
    line = "bloom ids=300k rate=20% alarm=0.1% window=1h"
    inbox = make_inbox(dedup=line, noop=1)
    produce(kafka.bootstrap, topic, messages_of_one_partition(72_000))
    event, = inbox.wait_event("inbox_filter_alarm", timeout=120)
    assert f"group={topic} topic={topic} partition=0 observed=" in event
    assert "raise ids or alarm" in event and "answers stay right" in event
    inbox.wait_event("inbox_filter_relieved")
    stats = inbox.wait_stats(handled=72_000)
    assert (stats["dedup_alarms"], stats["dedup_alarms_total"]) == (0, 1)
    # the answers were right all the time, and are
    produce(kafka.bootstrap, topic, messages_of_one_partition(72_000, first=36_000))
    stats = inbox.wait_stats(handled=108_000, duplicates=36_000)
    assert (stats["handled"], stats["duplicates"]) == (108_000, 36_000)
    assert len(inbox.events("inbox_filter_alarm")) == 1


def test_more_ids_than_planned_are_told_once(make_inbox, kafka, topic):
    inbox = make_inbox(dedup="bloom ids=5k rate=1% window=1h", noop=1)
    produce(kafka.bootstrap, topic, messages_of_one_partition(4000))
    event, = inbox.wait_event("inbox_filter_overfilled")
    assert "sub_slices=" in event and "raise ids in the dedup line" in event
    inbox.wait_stats(handled=4000)
    assert len(inbox.events("inbox_filter_overfilled")) == 1
    assert inbox.events("inbox_filter_alarm") == []


def test_groups_with_one_folder_do_not_know_what_the_other_has_done(make_inbox, kafka, topic):
    produce(kafka.bootstrap, topic, messages(100))
    for group in (topic, f"{topic}/other"):
        inbox = make_inbox(group=group)
        inbox.wait_stats(handled=100)
        inbox.close()


# --- commits -------------------------------------------------------------------------------------


def test_what_is_finished_beyond_a_stuck_one_is_not_handled_again(make_inbox, kafka, topic, effects):
    produce(kafka.bootstrap, topic, [("stuck", "s", "seq=1 never", 0),
                                     *[(f"id-{i}", f"x{i}", f"seq={i}", 0) for i in range(500)]])
    inbox = make_inbox(dedup=None, drain_ms=100)
    effects.wait_ids(f"id-{i}" for i in range(500))

    def all_noted():
        offset, text = committed(kafka.bootstrap, topic, topic)
        return offset == 0 and text == "inbox1:rB0P:"

    wait_for(all_noted, 30, "a commit with what is finished")
    inbox.kill()
    produce(kafka.bootstrap, topic, [("last", "y", "seq=1", 0)])
    make_inbox(dedup=None, drain_ms=100)
    effects.wait_ids(["last"])
    assert len(effects.all()) == 501


def test_the_text_of_a_commit_stays_below_its_limit(make_inbox, kafka, topic, chance):
    stuck = set(chance.sample(range(1, 50_001), 500))
    produce(kafka.bootstrap, topic,
            [("id-0", "stuck", "seq=0 never", 0),
             *[(f"id-{i}", "stuck" if i in stuck else f"k{i}", f"seq={i}", 0)
               for i in range(1, 50_001)]])
    inbox = make_inbox(dedup=None, concurrency=256, batch=64, threads=2, drain_ms=100)
    inbox.wait_stats(handled=50_000 - 500, timeout=120)

    def noted():
        offset, text = committed(kafka.bootstrap, topic, topic)
        return offset == 0 and 1000 < len(text) <= 3072 and text

    text = wait_for(noted, 60, "a commit with all that is finished")
    assert text.startswith("inbox1:r")
    assert inbox.stats()["messages"] == 501


def test_the_mark_of_many_shards_is_committed(make_inbox, kafka, topic):
    """It takes most of the text; what is finished has the rest."""
    settings = {"dedup": "sequence", "path": None}
    shards = [("id", "k", f"seq={i}", 0, [("outbox-position",
               f"2:{'s' * 15}:1a2b3c4d:{i}:1:{10 ** 6 + i}:{10 ** 6 + i}".encode())]) for i in range(75)]
    produce(kafka.bootstrap, topic, shards)
    inbox = make_inbox(**settings)
    wait_committed(kafka.bootstrap, topic, topic, {0: 75})
    assert 3072 < len(committed(kafka.bootstrap, topic, topic)[1]) <= 4096
    inbox.kill()
    produce(kafka.bootstrap, topic, shards + [("last", "k", "seq=100", 0)])
    stats = make_inbox(**settings).wait_stats(handled=1, duplicates=75)
    assert (stats["handled"], stats["duplicates"]) == (1, 75)


def test_a_partition_takes_nothing_new_while_its_text_is_too_long(make_inbox, kafka, topic, effects):
    """Each other message is stuck: the worst case, in which a bit an offset is all there is."""
    count = 40_000
    produce(kafka.bootstrap, topic, [
        ("id-0", "stuck", "seq=0 slow=6000", 0),
        *[(f"id-{i}", "stuck" if i % 2 else f"k{i}", f"seq={i}", 0) for i in range(1, count)]])
    produce(kafka.bootstrap, topic, [("other", "o", "seq=0", 1)])
    inbox = make_inbox(dedup=None, concurrency=64, most_messages=100_000)
    effects.wait_ids(["other"])
    longest = 0
    while not any(effect.id == "id-0" for effect in effects.all()):
        longest = max(longest, len(committed(kafka.bootstrap, topic, topic)[1]))
    assert 2000 < longest <= 4096
    effects.wait_ids((f"id-{i}" for i in range(count)), timeout=120)
    assert not effects.out_of_order()
    wait_committed(kafka.bootstrap, topic, topic, ends(kafka, topic))
    inbox.close()
    assert len(effects.all()) == count + 1


def test_what_another_program_committed_is_told_and_its_offset_holds(
        make_inbox, kafka, topic, effects):
    produce(kafka.bootstrap, topic, [(f"id-{i}", "k", f"seq={i}", 0) for i in range(10)])
    commit(kafka.bootstrap, topic, topic, 0, 4, "somebody else's notes")
    inbox = make_inbox()
    effects.wait_ids(f"id-{i}" for i in range(4, 10))
    assert "another program commits" in inbox.wait_event("inbox_foreign_text")[0]
    assert {effect.id for effect in effects.all()} == {f"id-{i}" for i in range(4, 10)}


def test_a_text_of_ours_that_is_damaged_is_told(make_inbox, kafka, topic, effects):
    produce(kafka.bootstrap, topic, [(f"id-{i}", "k", f"seq={i}", 0) for i in range(10)])
    commit(kafka.bootstrap, topic, topic, 0, 4, "inbox1:rB!!:")
    inbox = make_inbox()
    effects.wait_ids(f"id-{i}" for i in range(4, 10))
    assert inbox.wait_event("inbox_foreign_text")


# --- who comes later -----------------------------------------------------------------------------


def test_a_consumer_that_joins_takes_over_without_loss_or_copies(make_inbox, kafka, topic, effects):
    inbox = make_inbox(delay=4, concurrency=8)
    produce(kafka.bootstrap, topic, messages(2000, keys=100, copies=300))
    effects.wait_ids([f"id-{i}" for i in range(100)])
    second = make_inbox(delay=4, concurrency=8)
    produce(kafka.bootstrap, topic, messages(2000, keys=100, first=2000))
    effects.wait_ids(f"id-{i}" for i in range(4000))
    second.wait_stats(partitions=3)
    assert len(effects.all()) == 4000 and not effects.out_of_order()
    assert {effect.pid for effect in effects.all()} == {inbox.process.pid, second.process.pid}


@pytest.mark.parametrize("dedup", ["bloom ids=100k rate=0.1% window=1h", "exact ids=100k window=1h",
                                   "counting lossy ids=100k rate=0.1% window=1h",
                                   "bitmap lossy form=hash ids=100k window=1h"])
def test_a_new_machine_reads_what_its_store_needs_from_the_topic(
        make_inbox, kafka, topic, effects, tmp_path, dedup):
    made = messages(1000)
    produce(kafka.bootstrap, topic, made)
    inbox = make_inbox(dedup=dedup)
    inbox.wait_stats(handled=1000)
    inbox.close()
    produce(kafka.bootstrap, topic, made[:400] + [("new", "k", "seq=5000")])
    inbox = make_inbox(dedup=dedup, path=tmp_path / "elsewhere")
    stats = inbox.wait_stats(handled=1, duplicates=400)
    assert inbox.events("inbox_rebuild")
    assert stats["handled"] == 1 and len(effects.all()) == 1001


@pytest.mark.parametrize("dedup", ["bitmap ids=100k", "bitmap lossy form=hash ids=100k"])
def test_a_bitmap_without_a_window_reads_the_topic_from_its_begin(
        make_inbox, kafka, topic, effects, tmp_path, dedup):
    """Also records that are older than the default of the setting `window`, which it has not."""
    made = [(str(i), f"k{i % 10}", f"seq={i}") for i in range(600)]
    produce(kafka.bootstrap, topic, made[:300], timestamp=int((time.time() - 3 * 86400) * 1000))
    produce(kafka.bootstrap, topic, made[300:])
    with make_inbox(dedup=dedup) as inbox:
        inbox.wait_stats(handled=600)
    produce(kafka.bootstrap, topic, made[:300] + [("5000", "k", "seq=5000")])
    inbox = make_inbox(dedup=dedup, path=tmp_path / "elsewhere")
    stats = inbox.wait_stats(handled=1, duplicates=300)
    assert inbox.events("inbox_rebuild")
    assert stats["handled"] == 1 and len(effects.all()) == 601


def test_a_store_that_was_elsewhere_reads_the_gap(make_inbox, kafka, topic, effects, tmp_path):
    made = messages(900)
    first, second = {"path": tmp_path / "a"}, {"path": tmp_path / "b"}
    for place, part in ((first, made[:300]), (second, made[300:600])):
        produce(kafka.bootstrap, topic, part)
        with make_inbox(**place) as inbox:
            inbox.wait_stats(handled=300)
    produce(kafka.bootstrap, topic, made)
    stats = make_inbox(**first).wait_stats(handled=300, duplicates=600)
    assert stats["handled"] == 300 and len(effects.all()) == 900


# --- stores that others share --------------------------------------------------------------------


def with_position(ids, epoch=1, partition=0, **more):
    """Messages of a relay: their ids are their numbers, which are their positions as well."""
    return [(f"id-{i}", f"k{i % 5}", f"seq={i}", partition,
             [("outbox-position", f"2:main:1a2b3c4d:0:{epoch}:{i}:{i}".encode())], more) for i in ids]


def test_sequence_needs_no_state_but_the_commit(make_inbox, kafka, topic, effects):
    first = with_position(range(500))
    produce(kafka.bootstrap, topic, first + with_position(range(200, 300)))
    inbox = make_inbox(dedup="sequence", path=None, concurrency=32, delay=5)
    inbox.wait_stats(handled=500, duplicates=100)
    wait_committed(kafka.bootstrap, topic, topic, {0: 600})
    assert committed(kafka.bootstrap, topic, topic)[1] == "inbox1::2:main:1a2b3c4d:0:1:499:499"
    inbox.kill()
    replayed = [("id-7", "k2", "seq=7", 0, [("outbox-replay", b"r1")])]
    unreadable = [("id-8", "k3", "seq=8", 0, [("outbox-position", b"9:who:knows")])]
    produce(kafka.bootstrap, topic, with_position(range(400, 520)) + replayed + unreadable
            + with_position(range(3), epoch=2))
    # new: 20, the replay, the one that no reader understands, and those of an epoch of their own
    stats = make_inbox(dedup="sequence", path=None).wait_stats(handled=25, duplicates=100)
    assert (stats["handled"], stats["duplicates"]) == (25, 100)
    assert len(effects.all()) == 525


def test_with_take_the_effect_is_exactly_once(make_inbox, kafka, topic, database):
    database.execute("create table effect (n bigserial, id text, key text, payload text, partition int)")
    settings = {"dedup": "postgres name=t window=1h", "path": None, "take": 1, "dsn": database.dsn,
                "concurrency": 8}
    produce(kafka.bootstrap, topic, messages(400, copies=150))
    inbox = make_inbox(**settings)
    inbox.wait_stats(handled=400, duplicates=150)
    # another partition, another consumer, and nobody's memory: the table knows
    produce(kafka.bootstrap, topic, [(f"id-{i}", "k", f"seq={i}", 5) for i in range(50)])
    inbox.wait_stats(duplicates=200)
    assert database.execute("select count(*), count(distinct id) from effect") == [(400, 400)]


def test_long_ids_are_taken_as_well(make_inbox, kafka, topic, database):
    database.execute("create table effect (n bigserial, id text, key text, payload text, partition int)")
    long = "i" * 5000
    produce(kafka.bootstrap, topic, [(long, "k", "seq=1", 0), (long + "x", "k", "seq=2", 0),
                                     (long, "k", "seq=1", 1)])
    inbox = make_inbox(dedup="postgres name=t window=1h", path=None, take=1, dsn=database.dsn)
    inbox.wait_stats(handled=2, duplicates=1)
    assert database.execute("select count(*), count(distinct id) from effect") == [(2, 2)]


def test_the_example_charges_each_order_once(kafka, topic, database):
    source = pathlib.Path(__file__).parents[2] / "docs/examples/inbox.c"
    assert len(source.read_text().splitlines()) <= 60  # a newcomer reads it at one go
    database.execute("create table charge (customer text, amount numeric)")
    orders = [(f"order-{i}", f"customer-{i % 7}", f"{i}.50") for i in range(300)]
    produce(kafka.bootstrap, topic, orders + orders[:100])
    program = [beside("inbox_example"), topic, database.dsn, "bootstrap.servers", kafka.bootstrap,
               "session.timeout.ms", "3000"]

    def charged():
        return database.execute("select count(*) from charge")[0][0]

    for wanted in (100, 300):  # the first one is killed
        process = subprocess.Popen(program, env=environment())
        wait_for(lambda: charged() >= wanted, 60, "charges")
        process.send_signal(signal.SIGKILL if wanted < 300 else signal.SIGTERM)
        status = process.wait(30)
    assert status == 0
    assert database.execute("select count(*), count(distinct amount), sum(amount) from charge") == [
        (300, 300, sum(i + 0.5 for i in range(300)))]


def test_a_store_of_all_knows_the_copies_of_other_partitions(make_inbox, kafka, topic, database):
    settings = {"dedup": f'postgres name=t window=1h dsn="{database.dsn}"', "path": None}
    produce(kafka.bootstrap, topic, [(f"id-{i % 100}", "k", f"seq={i}", i % 6) for i in range(300)])
    stats = make_inbox(**settings).wait_stats(handled=100, duplicates=200)
    assert (stats["handled"], stats["duplicates"]) == (100, 200)


def test_a_stuck_partition_leaves_room_in_the_store_of_all(make_inbox, kafka, topic, database):
    """Each message that waits for its key is pending there, and there are few places."""
    line = f'postgres name=t window=1h pending=20 dsn="{database.dsn}"'
    produce(kafka.bootstrap, topic, [("stuck", "s", "seq=0 never", 0),
                                     *[(f"behind-{i}", "s", "seq=1", 0) for i in range(100)]])
    inbox = make_inbox(dedup=line, path=None, drain_ms=100)
    inbox.wait_stats(in_progress=1)
    produce(kafka.bootstrap, topic, [(f"id-{i}", f"k{i}", f"seq={i}", 1) for i in range(100)])
    inbox.wait_stats(handled=100)


def test_what_is_done_is_logged_before_its_partition_goes(make_inbox, kafka, topic, effects):
    """Though the store does not answer when it is to go."""
    with Redis() as server:
        line = f"redis url=redis://127.0.0.1:{server.port} name={topic} window=1h ids=10k"
        settings = {"dedup": line, "path": None, "drain_ms": 60_000}
        produce(kafka.bootstrap, topic, [("a", "k", "seq=1 slow=1000", 0)])
        inbox = make_inbox(**settings)
        inbox.wait_stats(in_progress=1)
        server.pause()
        inbox.process.stdin.close()
        inbox.wait_event("inbox_revoked")
        inbox.wait_event("inbox_waits")  # the effect was had, and cannot be logged
        server.resume()
        assert inbox.process.wait(60) == 0
        assert committed(kafka.bootstrap, topic, topic)[0] == 1
        produce(kafka.bootstrap, topic, [("a", "k", "seq=1", 1)])
        make_inbox(**settings).wait_stats(duplicates=1)
    assert len(effects.all()) == 1


def test_redis_knows_the_copies_of_other_partitions(make_inbox, kafka, topic):
    with Redis() as server:
        handle_with_redis(make_inbox, kafka, topic, server)


def handle_with_redis(make_inbox, kafka, topic, server):
    line = f"redis url=redis://127.0.0.1:{server.port} name={topic} window=1h ids=10k"
    settings = {"dedup": line, "path": None}
    produce(kafka.bootstrap, topic, [(f"id-{i % 100}", "k", f"seq={i}", i % 6) for i in range(300)])
    inbox = make_inbox(**settings)
    stats = inbox.wait_stats(handled=100, duplicates=200)
    assert (stats["handled"], stats["duplicates"]) == (100, 200)
    server.process.kill()
    produce(kafka.bootstrap, topic, [("last", "k", "seq=1000")])
    inbox.wait_event("inbox_waits")
    server.start()
    inbox.wait_stats(handled=101)


# --- topics that change --------------------------------------------------------------------------


def test_partitions_that_are_added_are_read(make_inbox, kafka, topic, effects):
    inbox = make_inbox(kafka={"topic.metadata.refresh.interval.ms": 500})
    inbox.wait_stats(partitions=6)
    kafka.add_partitions(topic, 9)
    inbox.wait_stats(partitions=9)
    produce(kafka.bootstrap, topic, [(f"id-{i}", "k", f"seq={i}", i) for i in range(9)])
    effects.wait_ids(f"id-{i}" for i in range(9))


def test_a_partition_that_the_leader_of_the_group_forgot_gets_an_owner(make_inbox, kafka, topic):
    with ForgetfulLeader(kafka.bootstrap, topic, topic) as leader:
        inbox = make_inbox()
        line = inbox.wait_event("group_partitions_unowned")[0]
        assert f"topic={topic} partition=2 partitions=1 " in line and "rejoins" in line
        leader.wait_forgotten_and_healed(6)
        inbox.wait_stats(rebalances=2, partitions=3)
    inbox.wait_stats(partitions=6)
    assert len(inbox.events("group_partitions_unowned")) == 1


def test_a_topic_that_is_made_anew_is_read_from_its_beginning(make_inbox, kafka, topic, effects):
    made = messages(300)
    produce(kafka.bootstrap, topic, made)
    inbox = make_inbox(kafka={"topic.metadata.refresh.interval.ms": 500})
    inbox.wait_stats(handled=300)
    wait_committed(kafka.bootstrap, topic, topic, ends(kafka, topic))
    kafka.delete_topic(topic)
    kafka.create_topic(topic)
    produce(kafka.bootstrap, topic, made[:100] + messages(50, first=1000))
    effects.wait_ids(f"id-{i}" for i in range(1000, 1050))
    wait_committed(kafka.bootstrap, topic, topic, ends(kafka, topic))
    assert inbox.stats()["handled"] == 350


def test_a_topic_that_is_deleted_under_way_is_told_and_what_is_in_progress_of_it_ends(
        make_inbox, kafka, topic, effects):
    gone = kafka.create_topic(f"{topic}.gone", partitions=1)
    produce(kafka.bootstrap, gone, [("slow", "k", "seq=0 slow=3000"), ("behind", "k", "seq=1")])
    inbox = make_inbox(topics=[topic, gone], kafka={"topic.metadata.refresh.interval.ms": 500})
    inbox.wait_stats(messages=2, in_progress=1)
    kafka.delete_topic(gone)
    told = inbox.wait_event("inbox_topic_missing")
    assert len(told) == 1 and f"topic={gone} partition=0 " in told[0]
    effects.wait_ids(["slow"])
    produce(kafka.bootstrap, topic, [("other", "k", "seq=1")])
    effects.wait_ids(["other"])
    kafka.create_topic(gone, partitions=1)
    produce(kafka.bootstrap, gone, [("anew", "k", "seq=2")])
    effects.wait_ids(["anew"])
    wait_committed(kafka.bootstrap, topic, gone, {0: 1})
    kafka.delete_topic(gone)
    assert [effect.id for effect in effects.all()].count("slow") == 1


def test_an_offset_that_is_gone_is_told_and_the_rest_is_handled(
        make_inbox, kafka, topic, effects):
    produce(kafka.bootstrap, topic, [(f"id-{i}", "k", f"seq={i}", 0) for i in range(10)])
    commit(kafka.bootstrap, topic, topic, 0, 5000, "")
    inbox = make_inbox()
    effects.wait_ids(f"id-{i}" for i in range(10))
    assert "offset=5000" in inbox.wait_event("inbox_offset_gone")[0]


@pytest.mark.parametrize("committed_before", [None, 5000])
def test_block_waits_for_an_offset_and_skips_nothing(
        make_inbox, kafka, topic, effects, committed_before):
    produce(kafka.bootstrap, topic, [(f"id-{i}", "k", f"seq={i}", 0) for i in range(10)])
    if committed_before:
        commit(kafka.bootstrap, topic, topic, 0, committed_before, "")
    inbox = make_inbox(start=2)
    inbox.wait_stats(blocked=6)
    produce(kafka.bootstrap, topic, [("late", "k", "seq=10", 0)])
    inbox.ask("resume")  # nobody has set an offset
    inbox.wait_stats(rebalances=2, blocked=6)
    inbox.close()
    assert not effects.all()
    assert committed(kafka.bootstrap, topic, topic)[0] == (committed_before or -1)
    commit(kafka.bootstrap, topic, topic, 0, 3, "")
    inbox = make_inbox(start=2)
    effects.wait_ids([*(f"id-{i}" for i in range(3, 10)), "late"])
    assert inbox.wait_stats(blocked=5, handled=8)["handled"] == 8
    wait_committed(kafka.bootstrap, topic, topic, {0: 11})


def test_what_was_deleted_unread_is_a_gap_and_the_rest_is_remembered(make_inbox, kafka, topic):
    """Also by a consumer that has read a part of it, and by one that comes later."""
    settings = {"dedup": "sequence", "path": None}
    produce(kafka.bootstrap, topic, with_position(range(50)))
    inbox = make_inbox(**settings)
    inbox.wait_stats(handled=50)
    for turn in range(2):
        produce(kafka.bootstrap, topic, [("new", "k1", f"seq={100 + turn} slow=3000", 0)])
        inbox.wait_stats(in_progress=1)
        inbox.ask("pause")
        inbox.wait_stats(paused=1)
        produce(kafka.bootstrap, topic, [("deleted", "k", "seq=1", 0)] * 10)
        kafka.delete_records({(topic, 0): 50 + 61 * turn + 11})
        produce(kafka.bootstrap, topic, with_position(range(50)))
        if turn == 0:
            inbox.ask("resume")
            inbox.wait_event("inbox_offset_gone")
            inbox.wait_stats(handled=51, duplicates=50)
            wait_committed(kafka.bootstrap, topic, topic, {0: 111})
        else:
            inbox.close()
            inbox = make_inbox(**settings)
            inbox.wait_event("inbox_offset_gone")
            inbox.wait_stats(duplicates=50)
            assert inbox.stats()["handled"] == 0
    wait_committed(kafka.bootstrap, topic, topic, {0: 172})
    assert committed(kafka.bootstrap, topic, topic)[1] == "inbox1::2:main:1a2b3c4d:0:1:49:49"


def test_a_missing_topic_is_told_and_waited_for(make_inbox, kafka, topic, effects):
    absent = f"{topic}-absent"
    inbox = make_inbox(topics=[topic, absent],
                       kafka={"topic.metadata.refresh.interval.ms": 500})
    assert absent in inbox.wait_event("inbox_waits")[0]
    produce(kafka.bootstrap, topic, [("a", "k", "seq=1")])
    effects.wait_ids("a")
    kafka.create_topic(absent)
    produce(kafka.bootstrap, absent, [("b", "k", "seq=1")])
    effects.wait_ids("b")
    kafka.delete_topic(absent)


# --- the rest ------------------------------------------------------------------------------------


def test_a_paused_topic_waits(make_inbox, kafka, topic, other_topic, effects):
    other = other_topic("other")
    inbox = make_inbox(topics=[topic, other])
    inbox.wait_stats(partitions=12)
    inbox.ask("pause", topic)
    inbox.wait_stats(paused=1)
    produce(kafka.bootstrap, topic, [("a", "k", "seq=1")])
    produce(kafka.bootstrap, other, [("b", "k", "seq=1")])
    effects.wait_ids("b")
    assert [effect.id for effect in effects.all()] == ["b"]
    inbox.ask("resume", topic)
    effects.wait_ids("a")


def test_rules_drop_and_send_to_the_dead_letters(make_inbox, kafka, topic, other_topic):
    dead = other_topic("dead")
    produce(kafka.bootstrap, topic, [(f"id-{i}", "k", f"seq={i}", 0, [("user", b"u")])
                                     for i in range(10)])
    inbox = make_inbox(dead_letters=dead, rules=[
        "sliding name=burst most=6 within=1h key=header:user action=drop",
        "sliding name=few most=4 within=1h key=key action=dead-letter"])
    stats = inbox.wait_stats(handled=4, dead_letters=6)
    assert stats["refused"] == 0
    assert header(topic_records(kafka, dead)[0], "outbox-reason") == "rule few"


def test_memory_stays_bounded_behind_a_slow_handler(make_inbox, kafka, topic):
    produce(kafka.bootstrap, topic, [(f"id-{i}", f"k{i}", "x" * 20_000) for i in range(3000)])
    inbox = make_inbox(dedup=None, concurrency=2, delay=20, most_bytes=4_000_000)
    for _ in range(20):
        stats = inbox.stats()
        assert stats["bytes"] < 4_100_000 and stats["messages"] < 300
        inbox.wait_stats(handled=stats["handled"] + 5)


def test_stuck_partitions_leave_memory_to_the_others(make_inbox, kafka, topic):
    produce(kafka.bootstrap, topic, [
        (f"{partition}-{i}", "s", "seq=0" if i else "seq=0 never", partition)
        for partition in range(5) for i in range(400)])
    inbox = make_inbox(dedup=None, concurrency=8, most_messages=300, drain_ms=100)
    inbox.wait_stats(in_progress=5)
    produce(kafka.bootstrap, topic, [(f"id-{i}", f"k{i}", f"seq={i}", 5) for i in range(1000)])
    inbox.wait_stats(handled=1000)
    assert inbox.stats()["messages"] <= 300


def test_a_handler_past_the_drain_has_its_message_still(make_inbox, kafka, topic, effects):
    produce(kafka.bootstrap, topic, [("a", "k", "seq=1 slow=1500", 0)])
    inbox = make_inbox(drain_ms=1)
    inbox.wait_stats(in_progress=1)
    inbox.close()
    assert [effect.topic for effect in effects.all()] == [topic]


@pytest.mark.parametrize("wrong, words", [
    ({"group": ""}, "group is missing"), ({"dedup": "bloom ids=1M rate=x"}, "rate=x"),
    ({"path": None}, "path is missing"), ({"attempts": -1}, "attempts = -1"),
    ({"retry_topics": "x=10"}, "attempts = 0"), ({"id": "jsn:$.a"}, "id = jsn:$.a"),
    ({"dedup": "bloom ids=1k rate=1% window=1h path=/tmp/x"}, "leave path= out"),
    ({"take": 1}, "take needs a line of postgres"), ({"concurrency": 100_000}, "concurrency = 100000"),
    ({"topics": ["^a.*"]}, "topic ^a.*"), ({"kafka": {"group.id": "x"}}, "group.id"), ({"kafka": {"no.such": "1"}}, "no.such"),
    ({"rules": ["sliding most=1"]}, "rule 1: name is missing"), ({"batch": 17}, "batch = 17"),
])
def test_settings_that_are_wrong_are_refused_by_name(make_inbox, wrong, words):
    with pytest.raises(DedupError) as refused:
        make_inbox(**wrong)
    assert words in str(refused.value)
