"""Records that Kafka refuses for good are parked, with what comes later of their keys, and everybody
else goes on. Once the topic is mended they arrive in key order.
"""

import json

import pytest

from support.auditor import payload, read_topics
from support.process import wait_for

LIMIT = 60_000      # of the topic: a batch of small rows fits
TOO_LARGE = 90_000  # characters that lz4 cannot shorten
MAX_IN_FLIGHT = 1000
KEYS = [f"key-{number}" for number in range(20)]  # of all partitions
FAST = {"publisher_retry_first": "100ms", "publisher_retry_max": "400ms", "publisher_max_attempts": 1000000}
STATES = "SELECT convert_from(key, 'UTF8'), state FROM outbox.parked ORDER BY id"


@pytest.fixture
def narrow(kafka, topic):
    kafka.alter_topic(topic, max_message_bytes=LIMIT)
    return topic


def mend(kafka, topic):
    kafka.alter_topic(topic, max_message_bytes=1_048_588)


@pytest.fixture
def write(database, topic, chance):
    """write(*keys): a row of each name, in order, in one transaction; a name that ends with "!" is the
    same key with too large a row, and "" is no key."""
    seqs = {}

    def in_one_transaction(*names):
        connection = database.connect(autocommit=False)
        with connection, connection.cursor() as cursor:
            for name in names:
                key = name.rstrip("!")
                seqs[key] = seqs.get(key, 0) + 1
                pad = chance.randbytes(TOO_LARGE // 2).hex() if name != key else "small"
                cursor.execute(
                    "INSERT INTO outbox.message (topic, key, payload_bytes) VALUES (%s, %s, %s)",
                    (topic, key or None, payload(key, seqs[key], pad=pad)))
        connection.close()

    return in_one_transaction


def keys_in(kafka, topic):
    return [record.key.decode() for record in read_topics(kafka.bootstrap, [topic]) if record.key]


def parked(database):
    return database.execute(STATES)


def is_empty(database):
    return not database.execute("SELECT 1 FROM outbox.parked LIMIT 1")


def ask(database, request, **chosen):
    """What an operator's verb notes."""
    database.execute("SELECT outbox.parked_request('main', %s, %s, 'ticket 7', 0)", (request, json.dumps(chosen)))


def test_a_refused_record_is_parked_with_what_comes_behind_it(
        database, kafka, narrow, make_relay, write, judge):
    relay = make_relay(publisher_max_in_flight=MAX_IN_FLIGHT, **FAST).wait_ready()
    write("a", "b", *KEYS, "a!", "b", "a", *KEYS, "a")
    relay.wait_for(lambda: len(keys_in(kafka, narrow)) == 43, what="all others")
    parked_at = relay.wait_event("message_parked", topic=narrow)[0]
    assert "too large" in parked_at["error"]
    relay.wait_for(lambda: parked(database) == [
        ("a", "waiting"), ("a", "behind"), ("a", "behind")], what="the rows of the key")
    write("a", "b")
    relay.wait_for(lambda: parked(database)[3:] == [("a", "behind")], what="the later one")
    relay.wait_for(lambda: len(keys_in(kafka, narrow)) == 44, what="the other key's")
    relay.wait_ready()
    relay.wait_for(lambda: relay.metric("relay_parked_total") == 4, what="the figure")
    relay.wait_for(lambda: dict(database.execute(
        "SELECT state, count(*) FROM outbox.message_state GROUP BY 1")) == {
            "parked": 4, "published": 44}, what="the progress")

    mend(kafka, narrow)
    relay.wait_for(lambda: is_empty(database), what="an empty table")
    write("a")
    verdict = judge(0, MAX_IN_FLIGHT)
    assert verdict.committed == 49


def test_a_refused_record_without_a_key_is_parked_alone(
        database, kafka, narrow, make_relay, write, judge):
    relay = make_relay(**FAST).wait_ready()
    write("!", "", "a", "!", "")
    relay.wait_for(lambda: database.execute("SELECT state FROM outbox.parked") == [
        ("waiting",), ("waiting",)], what="both")
    mend(kafka, narrow)
    relay.wait_for(lambda: is_empty(database), what="an empty table")
    assert judge(0, MAX_IN_FLIGHT).committed == 5


def test_the_longest_key_is_parked_and_followed_by_its_messages(
        database, kafka, narrow, make_relay, chance):
    """Its bytes are random: none of them can be left out of an index."""
    relay = make_relay(**FAST).wait_ready()
    key = chance.randbytes(8192)
    for number, size in enumerate([TOO_LARGE, 1, 1]):
        database.execute("INSERT INTO outbox.message (topic, key_bytes, payload_bytes) VALUES (%s, %s, %s)",
                         (narrow, key, b"%d" % number + chance.randbytes(size)))
    relay.wait_for(lambda: database.execute("SELECT state FROM outbox.parked ORDER BY id") == [
        ("waiting",), ("behind",), ("behind",)], what="the parked rows")
    mend(kafka, narrow)
    relay.wait_for(lambda: is_empty(database), what="an empty table")
    records = read_topics(kafka.bootstrap, [narrow])
    assert [(record.key, record.payload[:1]) for record in records] == [(key, b"0"), (key, b"1"), (key, b"2")]


def test_after_max_attempts_it_is_dead_until_an_operator_asks(
        database, kafka, narrow, make_relay, write, judge):
    relay = make_relay(**{**FAST, "publisher_max_attempts": 3}).wait_ready()
    write("a!", "a")
    relay.wait_for(lambda: parked(database) == [("a", "dead"), ("a", "behind")], what="its death")
    assert database.execute("SELECT max(attempts) FROM outbox.parked") == [(3,)]
    ask(database, "retry", state="dead")
    relay.wait_for(lambda: database.execute(
        "SELECT p.state, p.attempts, r.refused FROM outbox.parked p JOIN outbox.parked_request r "
        "ON r.id = p.request_id ORDER BY p.id LIMIT 1") == [("dead", 3, 1)], what="three attempts more")
    mend(kafka, narrow)
    ask(database, "retry", state="dead")
    relay.wait_for(lambda: is_empty(database), what="an empty table")
    assert judge(0, MAX_IN_FLIGHT).committed == 2


def test_behind_a_skipped_one_the_others_go(database, kafka, narrow, make_relay, write):
    relay = make_relay(**FAST).wait_ready()
    write("a", "a!", "a", "a!", "a", "b!")
    relay.wait_for(lambda: len(parked(database)) == 5, what="the parked rows")
    ask(database, "skip", error="too large", key="\\x61")
    relay.wait_for(lambda: keys_in(kafka, narrow) == ["a", "a"], what="the next one")
    relay.wait_for(lambda: parked(database) == [
        ("a", "waiting"), ("a", "behind"), ("b", "waiting")] or parked(database) == [
        ("b", "waiting"), ("a", "waiting"), ("a", "behind")], what="the second poison")
    ask(database, "skip", error="too large", key="\\x61")
    relay.wait_for(lambda: parked(database) == [("b", "waiting")], what="the end of the key")
    write("a")
    relay.wait_for(lambda: keys_in(kafka, narrow) == ["a"] * 4, what="the key to flow")


@pytest.mark.parametrize("policy, arrives", [("pass", ["a", "a", "b"]), ("block", ["a", "b"])])
def test_the_policy_of_a_topic(database, kafka, narrow, make_relay, write, tmp_path, policy, arrives):
    file = tmp_path / "relay.ini"
    file.write_text(f'[topic "{narrow}"]\non_refusal = {policy}\n')
    relay = make_relay(arguments=("--config", file, "run"), **FAST).wait_ready()
    write("a", "a!", "a", "b")
    relay.wait_for(lambda: sorted(keys_in(kafka, narrow)) == arrives, what="what may go")
    relay.wait_for(lambda: len(parked(database)) == 4 - len(arrives), what="the parked ones")
    assert relay.stop() == 0
    relay.start().wait_ready()
    write("a")
    relay.wait_for(lambda: keys_in(kafka, narrow).count("a") == (3 if policy == "pass" else 1),
                   what="what the policy says of later ones")
    mend(kafka, narrow)
    relay.wait_for(lambda: is_empty(database), what="an empty table")


def test_many_parked_rows_of_many_keys_arrive_in_order(
        database, kafka, narrow, make_relay, write, judge, scale):
    relay = make_relay(publisher_max_in_flight=MAX_IN_FLIGHT, **FAST).wait_ready()
    rounds = scale(50)
    for _ in range(rounds):
        write(*[f"{key}!" for key in KEYS[:5]], *KEYS * 10)
    good = 15 * 10 * rounds
    relay.wait_for(lambda: len(keys_in(kafka, narrow)) >= good, what="the good keys")
    wait_for(lambda: len(parked(database)) == 55 * rounds, 120, "the parked rows")
    assert len(keys_in(kafka, narrow)) == good
    mend(kafka, narrow)
    relay.wait_for(lambda: is_empty(database), what="an empty table")
    assert judge(0, MAX_IN_FLIGHT).duplicates == 0


def test_kills_while_rows_are_parked_and_drained(
        database, kafka, narrow, make_relay, write, judge, chance, scale):
    relay = make_relay(publisher_max_in_flight=MAX_IN_FLIGHT, publisher_lease="1s", **FAST).wait_ready()
    points = ["before_log_call", "after_log_call", "after_tick", "after_page", "before_produce",
              "after_produce", "after_acknowledgement", "after_producer_lost"]
    deaths = 0
    for number in range(scale(80, default=6)):
        relay.stop()
        if number % 3 == 2:
            mend(kafka, narrow)
        else:
            kafka.alter_topic(narrow, max_message_bytes=LIMIT)
        write(*KEYS, *[f"{key}!" for key in chance.sample(KEYS, 3)], *KEYS)
        point = points[number % len(points)]
        relay.start(OUTBOX_RELAY_FAULT=f"{point}:{chance.randint(1, 40)}")
        try:
            relay.process.wait(chance.uniform(1, 3))
        except AssertionError:
            relay.kill()
        deaths += 1
    mend(kafka, narrow)
    relay.start()
    wait_for(lambda: is_empty(database), 120, "an empty table")
    judge(deaths, MAX_IN_FLIGHT, none=True)


def test_parked_rows_follow_their_keys_through_a_split(
        database, kafka, narrow, make_relay, write, judge, command):
    relay = make_relay(**FAST).wait_ready()
    write(*[f"{key}!" for key in KEYS], *KEYS)
    relay.wait_for(lambda: len(parked(database)) == 40, what="the parked rows")
    command("publisher", "split", "main", "--shards", 3)
    shards = database.execute("SELECT shard = outbox.shard_of(key, 3) FROM outbox.parked GROUP BY 1")
    assert shards == [(True,)]
    write(*KEYS)
    relay.wait_for(lambda: len(parked(database)) == 60, what="the later ones")
    mend(kafka, narrow)
    relay.wait_for(lambda: is_empty(database), what="an empty table")
    assert judge(0, 20_000).committed == 60
