"""Topics that are not there, go away, or get more partitions while the relay runs."""

import pytest

from support.auditor import audit, committed_messages, count_records, read_topics
from support.process import wait_for


@pytest.mark.rotated("missing")
def test_a_missing_topic_is_waited_for_and_others_flow(
        database, kafka, topic, make_relay, make_writers, judge):
    absent = f"{topic}.later"
    relay = make_relay().wait_ready()
    here = make_writers(connections=2, keys=20)
    later = make_writers(connections=2, keys=20, topics=[absent], prefix="later")
    later.run(100)
    missing = relay.wait_event("topic_missing")[0]
    assert (missing["publisher"], missing["topic"]) == ("main", absent)
    here.run(200)
    later.run(100)
    here.run(200)
    relay.wait_for(lambda: count_records(kafka.bootstrap, [topic]) == len(here.committed),
                   what="the records of the topic that is there")
    relay.wait_for(lambda: relay.readiness_says(200, f"waits for topic {absent}"), what="readiness")
    kafka.create_topic(absent)
    try:
        here.run(100)
        assert judge(0, 0, topics=[topic, absent]).duplicates == 0
        assert len(relay.events("topic_missing")) == 1
        relay.wait_for(lambda: "waits for topic" not in relay.get("/readyz?verbose")[1],
                       what="readiness")
    finally:
        kafka.delete_topic(absent)


@pytest.mark.rotated("missing")
def test_a_relay_that_starts_behind_rows_of_a_missing_topic(
        database, kafka, topic, make_relay, make_writers, judge):
    absent = f"{topic}.later"
    make_writers(connections=2, keys=20, topics=[topic, absent]).run(300)
    relay = make_relay().wait_ready()
    relay.wait_event("topic_missing", topic=absent)
    assert relay.stop() == 0  # what waits is no reason not to end
    relay.start().wait_event("topic_missing", count=2, topic=absent)
    kafka.create_topic(absent)
    try:
        judge(1, 20_000, topics=[topic, absent])
    finally:
        kafka.delete_topic(absent)


@pytest.mark.rotated("changed")
@pytest.mark.long
def test_a_topic_that_is_made_anew_gets_what_comes_later(
        database, kafka, topic, make_relay, make_writers, until_published):
    """What stood in it is gone with it, by the operator's will."""
    relay = make_relay().wait_ready()
    writers = make_writers(connections=2, keys=20)
    writers.run(200)
    until_published()
    kafka.delete_topic(topic)
    gone = len(writers.committed)
    writers.run(200)
    relay.wait_event("topic_missing", topic=topic, timeout=90)
    kafka.create_topic(topic)
    until_published()
    verdict = audit(writers.committed[gone:], read_topics(kafka.bootstrap, [topic]))
    print(verdict)
    assert verdict.correct, verdict


def position_of(record):
    """(epoch, tick, id)"""
    header = dict(record.headers)["outbox-position"].decode()
    return tuple(int(number) for number in header.split(":")[4:])


@pytest.mark.rotated("changed")
@pytest.mark.long
def test_more_partitions_begin_a_new_epoch_and_lose_no_order(
        database, kafka, topic, make_relay, make_writers, until_published):
    relay = make_relay().wait_ready()
    with make_writers(connections=4, rate=200):
        wait_for(lambda: relay.metric("relay_published_total"), what="the first records")
        kafka.add_partitions(topic, 12)
        wait_for(lambda: any(record.partition >= 6
                             for record in read_topics(kafka.bootstrap, [topic])),
                 120, "records in the new partitions", interval=1)
    until_published()
    records = list(read_topics(kafka.bootstrap, [topic]))
    verdict = audit(committed_messages(database.dsn), records)
    print(verdict)
    assert not (verdict.lost or verdict.phantom or verdict.altered or verdict.backwards), verdict
    assert verdict.duplicates == 0, verdict

    epochs = {position_of(record)[0] for record in records}
    assert len(epochs) == 2
    assert_order_within_epochs(records)


def assert_order_within_epochs(records):
    """A key stays in one partition for an epoch, and its epochs do not mix: all windows of the
    first lie before those of the second."""
    partitions, orders = {}, {}
    for record in records:
        epoch, *position = position_of(record)
        if record.key is not None:
            assert partitions.setdefault((record.key, epoch), record.partition) == record.partition
        orders.setdefault((record.key, epoch), []).append(position)
    for (key, _), positions in orders.items():
        assert key is None or positions == sorted(positions)
    spans = {}
    for record in records:
        epoch, *position = position_of(record)
        first, last = spans.get(epoch, (position, position))
        spans[epoch] = min(first, position), max(last, position)
    ordered = sorted(spans.values())
    assert all(earlier[1] < later[0] for earlier, later in zip(ordered, ordered[1:])), spans
