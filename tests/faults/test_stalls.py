"""A partition that takes nothing, and a topic that is missing, hold up the others for stall_after and no
longer: their records are parked, and follow in order, none lost or doubled, once they are there again."""

import re

import pytest

from support.auditor import audit, committed_messages, count_records, read_topics
from support.process import wait_for
from support.relay import run_command

LONG = 120
SMALL = {"publisher_memory": "1MiB", "publisher_stall_after": "3s", "publisher_lease": "4s", "publisher_max_in_flight": 500}


@pytest.fixture
def place(kafka3, topic):
    """A topic without copies, and the broker that leads its partition 0; whole again at the end."""
    kafka3.create_topic(topic, partitions=6, replicas=1, min_insync_replicas=1)
    number = kafka3.leader(topic, 0)
    yield topic, number
    kafka3.resume(number)
    if not kafka3.nodes[number].process.running:
        kafka3.start_node(number)
    kafka3.delete_topic(topic)


def write(database, topic, count, first=1, pad=300):
    """Rows of 50 keys, some without."""
    database.execute(
        "INSERT INTO outbox.message (topic, key, payload) SELECT %s,"
        " CASE WHEN i %% 10 > 0 THEN 'key-' || i %% 50 END,"
        " jsonb_build_object('n', i, 'pad', repeat('x', %s))::text"
        " FROM generate_series(%s, %s) i", (topic, pad, first, first + count - 1))


def states(database):
    return dict(database.execute("SELECT state, count(*) FROM outbox.parked GROUP BY 1"))


def published(database):
    return database.execute("SELECT count(*) FROM outbox.message_state WHERE state = 'published'")[0][0]


def none_is(database, state):
    """Asked again and again while there are many: the first that is found answers it."""
    return not database.execute(
        f"SELECT EXISTS (SELECT FROM outbox.message_state WHERE state {state})")[0][0]


def nothing_is_left(database):
    return none_is(database, "<> 'published'")


def judged(database, bootstrap, topics, duplicates=0):
    """In the order of ids for each key, by positions for each partition. Duplicates are those of a broker
    that stood still, and writes late what was in its queue."""
    verdict = audit(committed_messages(database.dsn), read_topics(bootstrap, topics))
    late = verdict.unequal + verdict.backwards  # under their old positions
    assert verdict.lost + verdict.phantom + verdict.out_of_order + verdict.altered == 0, verdict
    assert late <= 2 * verdict.duplicates <= 2 * duplicates, verdict
    assert verdict.published == verdict.committed, verdict
    numbers, seen = {}, set()
    for record in read_topics(bootstrap, topics):
        if dict(record.headers)["outbox-id"] in seen:
            continue
        seen.add(dict(record.headers)["outbox-id"])
        number = int(record.payload.split(b'"n": ', 1)[1].split(b",", 1)[0].split(b"}", 1)[0])
        if record.key:
            name = record.topic, record.key
            assert numbers.get(name, 0) < number, record
            numbers[name] = number


def test_status_names_a_partition_without_a_leader_before_it_is_stalled(database, kafka3, place):
    topic, number = place
    database.execute("INSERT INTO outbox.message (topic, key, payload, created_at)"
                     " VALUES (%s, 'k', 'p', clock_timestamp() - interval '1 minute')", (topic,))
    settings = {"DATABASE_URL": database.dsn, "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": kafka3.bootstrap}
    assert "no leader" not in run_command(["status"], settings)[1]
    kafka3.kill(number)

    def said():
        return re.search(r"  ! topic \S+: partitions? [\d, ]+ ha(s|ve) no leader: ",
                         run_command(["status"], settings)[1])

    wait_for(said, LONG, "a word about the partition")
    assert states(database) == {}

    def doctor_says(): # it may ask another broker, which hears of the death later
        status, output, _ = run_command(["doctor"], settings)
        return status == 1 and "no leader: " in output and "start the brokers that hold its replicas" in output

    wait_for(doctor_says, LONG, "a check that fails")


@pytest.mark.rotated
@pytest.mark.long
@pytest.mark.parametrize("end", ["paused", "killed"])
@pytest.mark.parametrize("owner", ["lives", "dies"])
def test_a_partition_that_is_away_holds_up_no_other(
        database, kafka3, place, make_relay, end, owner):
    topic, number = place
    relay = make_relay(bootstrap=kafka3.bootstrap, **SMALL).wait_ready()
    write(database, topic, 1000)
    relay.wait_for(lambda: published(database) == 1000, LONG, "what was written before")
    if end == "paused":
        kafka3.pause(number)
    else:
        kafka3.kill(number)
    write(database, topic, 20_000, 1001)  # more than fits into its memory
    relay.wait_event("partition_stalled", timeout=LONG)
    # all of it is in Kafka or stands apart
    relay.wait_for(lambda: none_is(database, "= 'pending'"), LONG, "the others")

    def only_it_stands_apart():
        """Others may have been slow for as long, and are drained again."""
        found = states(database)
        return found.get("stalled") and set(found) <= {"stalled", "behind"} \
            and published(database) + sum(found.values()) == 21_000

    relay.wait_for(only_it_stands_apart, LONG, "rows of that partition apart, and no others")
    relay.wait_ready()
    if owner == "dies":
        relay.kill()
        write(database, topic, 500, 21_001)
        relay.start().wait_ready()
    write(database, topic, 500, 21_501)
    if end == "paused":
        kafka3.resume(number)
    else:
        kafka3.start_node(number)
    relay.wait_for(lambda: nothing_is_left(database), LONG, "the rest")
    assert relay.stop() == 0
    assert states(database) == {}
    judged(database, kafka3.bootstrap, [topic], SMALL["publisher_max_in_flight"] if end == "paused" else 0)


@pytest.mark.rotated("away")
@pytest.mark.long
def test_a_topic_that_is_missing_holds_up_no_other(database, kafka, topic, make_relay):
    absent = f"{topic}.later"
    settings = {"DATABASE_URL": database.dsn}
    relay = make_relay(**SMALL).wait_ready()
    write(database, topic, 10)
    write(database, absent, 10_000)
    write(database, topic, 10_000, 11)
    relay.wait_event("partition_stalled", timeout=LONG)
    relay.wait_for(lambda: count_records(kafka.bootstrap, [topic]) == 10_010, LONG, "the others")
    relay.wait_for(lambda: sum(states(database).values()) == 10_000, LONG, "the parked ones")
    status, output, error = run_command(["parked", "list", "--limit", "1", "state=stalled"], settings)
    assert status == 0 and "the topic was missing" in output, output + error

    def says_so():
        ready, report = relay.get("/readyz?verbose")
        return ready == 200 and f"waits for topic {absent}" in report

    relay.wait_for(says_so, LONG, "readiness, and its report")
    kafka.create_topic(absent)
    try:
        write(database, absent, 100, 10_001)
        relay.wait_for(lambda: nothing_is_left(database), LONG, "the rest")
        relay.wait_event("partition_recovered")
        assert relay.stop() == 0
        judged(database, kafka.bootstrap, [topic, absent])
    finally:
        kafka.delete_topic(absent)


@pytest.mark.long
def test_the_first_traffic_goes_to_a_topic_that_is_missing(
        database, kafka, topic, make_relay, scale):
    """No other partition is known that could be heard, and its rows are more than fit into memory."""
    absent, count = f"{topic}.later", scale(40_000, 6_000)
    write(database, absent, count)
    write(database, topic, 100)
    relay = make_relay(**SMALL).wait_ready()
    relay.wait_event("partition_stalled", timeout=LONG)
    relay.wait_for(lambda: count_records(kafka.bootstrap, [topic]) == 100, LONG, "the other topic")
    relay.wait_for(lambda: sum(states(database).values()) == count, LONG, "the parked ones")
    kafka.create_topic(absent)
    try:
        relay.wait_for(lambda: nothing_is_left(database), LONG, "the rest")
        assert relay.stop() == 0
        judged(database, kafka.bootstrap, [topic, absent])
    finally:
        kafka.delete_topic(absent)


@pytest.mark.rotated("away")
@pytest.mark.long
def test_a_cluster_that_is_away_is_waited_for(database, fragile_kafka, topic, make_relay):
    """Nobody else comes through: nothing is gained by parking."""
    relay = make_relay(**SMALL).wait_ready()
    write(database, topic, 100)
    relay.wait_for(lambda: published(database) == 100, LONG, "what was written before")
    fragile_kafka.pause()
    write(database, topic, 5000, 101)
    relay.wait_event("producer_recreated", timeout=LONG)
    relay.wait_event("tail_not_read", timeout=LONG)  # some times stall_after later
    assert states(database) == {}
    fragile_kafka.resume()
    relay.wait_for(lambda: nothing_is_left(database), LONG, "the rest")
    assert relay.stop() == 0
    judged(database, fragile_kafka.bootstrap, [topic], 10 * SMALL["publisher_max_in_flight"])
