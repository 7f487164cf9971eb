"""Records that only the broker refuses (over the topic's own max.message.bytes, below the relay's) on
topics with on_refusal = stop.

Nothing of their keys passes them, nothing else is blamed, the rest of their batch arrives, and once
the topic is mended everything is there in key order.
"""

import uuid

import pytest

from support.auditor import payload, read_topics
from support.process import wait_for

LIMIT = 60_000      # of the topic: a batch of small rows fits
TOO_LARGE = 90_000  # characters that lz4 cannot shorten
MAX_IN_FLIGHT = 1000


@pytest.fixture
def second_database(database, postgres):
    name = f"{database.name}_second"
    postgres.create_database(name)
    yield type(database)(postgres, name).migrate()
    postgres.drop_database(name)


@pytest.fixture
def narrow(kafka, topic):
    kafka.alter_topic(topic, max_message_bytes=LIMIT)
    return topic


@pytest.fixture
def make_relay(make_relay, narrow, tmp_path):
    """As the usual one; the publisher stops at a refusal."""
    file = tmp_path / "stops.ini"
    file.write_text(f'[topic "{narrow}"]\non_refusal = stop\n')

    def make(arguments=("run",), **settings):
        return make_relay(arguments=("--config", file, *arguments), **settings)

    return make


@pytest.fixture
def write(database, topic, chance):
    """write(*keys): one transaction with a row of each name, in order; a name that ends with "!" is
    the same key with too large a row. Returns the event ids."""
    seqs = {}

    def in_one_transaction(*names, database=database):
        connection = database.connect(autocommit=False)
        with connection, connection.cursor() as cursor:
            ids = []
            for name in names:
                key = name.rstrip("!")
                seqs[key] = seqs.get(key, 0) + 1
                pad = chance.randbytes(TOO_LARGE // 2).hex() if name != key else "small"
                ids.append(str(uuid.UUID(int=chance.getrandbits(128), version=4)))
                cursor.execute(
                    "INSERT INTO outbox.message (topic, key, payload_bytes, event_id)"
                    " VALUES (%s, %s, %s, %s)",
                    (topic, key, payload(key, seqs[key], pad=pad), ids[-1]))
        connection.close()
        return ids

    return in_one_transaction


def arrived(kafka, topic):
    return {dict(record.headers)["outbox-id"].decode()
            for record in read_topics(kafka.bootstrap, [topic])}


def row_of(database, event_id):
    return database.execute("SELECT id FROM outbox.message WHERE event_id = %s", (event_id,))[0][0]


def says_why(relay, command, topic, row):
    """Log, readiness, metric and `status` name the row and the reason."""
    stopped, = relay.wait_event("publisher_stopped")
    assert (stopped["publisher"], stopped["topic"], stopped["id"]) == ("main", topic, str(row))
    assert "too large" in stopped["error"]
    reason = f"Kafka refuses row {row} of topic {topic}: {stopped['error']}"
    relay.wait_for(lambda: reason in relay.get("/readyz?verbose")[1], what="the reason")
    assert relay.get("/readyz")[0] == 503
    assert relay.get("/livez")[0] == 200
    relay.wait_for(lambda: relay.metric("relay_refused", publisher="main") == 1, what="the metric")
    wrapped = command("status", admin_listen=f"127.0.0.1:{relay.admin_port}")
    assert reason in " ".join(wrapped.split())


def mend(kafka, topic, relay):
    kafka.alter_topic(topic, max_message_bytes=1_048_588)
    assert relay.stop() == 0
    relay.start().wait_ready()


KEYS = [f"key-{number}" for number in range(20)]  # of all partitions


def stops_at(relay, database, kafka, topic, expected, poison, command):
    """Exactly these arrive, and the poison is named."""
    relay.wait_for(lambda: arrived(kafka, topic) >= expected, what="the rest of the batch")
    says_why(relay, command, topic, row_of(database, poison))
    assert arrived(kafka, topic) == expected


@pytest.mark.rotated
@pytest.mark.parametrize("producer", ["fresh", "established"])
def test_a_refused_record_stops_its_key_and_nothing_else_of_its_batch(
        producer, database, kafka, narrow, make_relay, write, command, judge):
    relay, first = None, []
    if producer == "established":
        relay = make_relay(publisher_max_in_flight=MAX_IN_FLIGHT).wait_ready()
        first = write(*KEYS, "poison")
        relay.wait_for(lambda: arrived(kafka, narrow) == set(first), what="the first records")
    before = write(*KEYS, "poison", *KEYS)
    poison, after, *rest = write("poison!", "poison", *KEYS, *KEYS)
    relay = relay or make_relay(publisher_max_in_flight=MAX_IN_FLIGHT)
    stops_at(relay, database, kafka, narrow, {*first, *before, *rest}, poison, command)
    later = write("poison")
    mend(kafka, narrow, relay)
    verdict = judge(1, MAX_IN_FLIGHT, same_epoch=False)
    assert arrived(kafka, narrow) >= {poison, after, *later}
    assert verdict.committed == len(first) + len(before) + 2 + len(rest) + 1


@pytest.mark.rotated
@pytest.mark.parametrize("producer", ["fresh", "established"])
def test_a_refused_record_that_is_alone(
        producer, database, kafka, narrow, make_relay, write, command, judge):
    relay, first = None, []
    if producer == "established":
        relay = make_relay(publisher_max_in_flight=MAX_IN_FLIGHT).wait_ready()
        first = write("poison")
        relay.wait_for(lambda: arrived(kafka, narrow) == set(first), what="the first record")
    poison, = write("poison!")
    relay = relay or make_relay(publisher_max_in_flight=MAX_IN_FLIGHT)
    stops_at(relay, database, kafka, narrow, set(first), poison, command)
    mend(kafka, narrow, relay)
    judge(1, MAX_IN_FLIGHT, same_epoch=False)


@pytest.mark.rotated
@pytest.mark.parametrize("producer", ["fresh", "established"])
def test_several_refused_records_of_different_keys(
        producer, database, kafka, narrow, make_relay, write, command, judge):
    relay, first = None, []
    names = ["a", "b", "c"]
    if producer == "established":
        relay = make_relay(publisher_max_in_flight=MAX_IN_FLIGHT).wait_ready()
        first = write(*KEYS, *names)
        relay.wait_for(lambda: arrived(kafka, narrow) == set(first), what="the first records")
    ids = write(*KEYS, *names, "a!", *KEYS, "b", "b!", "c!", "a", *KEYS, "a!", "b", "c", *KEYS)
    good = set(ids[:23] + ids[24:44] + [ids[44]] + ids[48:68] + ids[71:])
    relay = relay or make_relay(publisher_max_in_flight=MAX_IN_FLIGHT)
    relay.wait_for(lambda: arrived(kafka, narrow) >= {*first, *good}, what="all others")
    assert arrived(kafka, narrow) == {*first, *good}
    stopped, = relay.wait_event("publisher_stopped")
    assert int(stopped["id"]) in {row_of(database, ids[place]) for place in (23, 45, 46)}
    mend(kafka, narrow, relay)
    judge(1, MAX_IN_FLIGHT, same_epoch=False)


def test_a_refused_record_of_no_key_holds_up_nobody(
        database, kafka, narrow, make_relay, write, command, chance, judge):
    relay = make_relay(publisher_max_in_flight=MAX_IN_FLIGHT).wait_ready()
    database.execute(
        "INSERT INTO outbox.message (topic, payload_bytes, event_id) VALUES (%s, %s, %s)",
        (narrow, chance.randbytes(TOO_LARGE), poison := str(uuid.UUID(int=1, version=4))))
    relay.wait_event("publisher_stopped")
    stops_at(relay, database, kafka, narrow, set(), poison, command)
    mend(kafka, narrow, relay)
    judge(1, MAX_IN_FLIGHT, same_epoch=False)


def test_a_restart_alone_changes_nothing(
        database, kafka, narrow, make_relay, write, judge):
    """Met again by a fresh producer, and by one that took over from a dead one."""
    relay = make_relay(publisher_max_in_flight=MAX_IN_FLIGHT, publisher_lease="1s")
    good, poison, _ = write("poison", "poison!", "poison")
    others = write(*KEYS)
    relay.wait_event("publisher_stopped")
    assert relay.stop() == 0
    relay.start().wait_event("publisher_stopped", count=2)
    relay.kill()
    relay.start().wait_event("publisher_stopped", count=3)
    assert {event["id"] for event in relay.events("publisher_stopped")} == {
        str(row_of(database, poison))}
    assert arrived(kafka, narrow) <= {good, *others}
    mend(kafka, narrow, relay)
    judge(3, MAX_IN_FLIGHT, same_epoch=False)


def test_a_publisher_that_is_stopped_does_not_stop_another(
        database, second_database, kafka, narrow, make_relay, write, command, tmp_path):
    """A publisher of another database, in the same process and on the same cluster."""
    file = tmp_path / "stops.ini"
    file.write_text(
        f'[topic "{narrow}"]\non_refusal = stop\n'
        f"[postgres]\ndsn = {database.dsn}\n"
        f'[postgres "second"]\ndsn = {second_database.dsn}\n'
        '[publisher]\n[publisher "other"]\npostgres = second\n')
    command("publisher", "create", "other", database_url=second_database.dsn)
    relay = make_relay().wait_ready()
    poison, = write("poison!")
    relay.wait_event("publisher_stopped", publisher="main")
    for _ in range(3):
        ids = write(*KEYS, database=second_database)
        relay.wait_for(lambda: arrived(kafka, narrow) >= set(ids), what="the other publisher's records")
    assert poison not in arrived(kafka, narrow)
    assert relay.metric("relay_refused", publisher="other") == 0
    relay.wait_for(lambda: "[+] publisher other/0: owner" in relay.get("/readyz?verbose")[1],
                   what="the other publisher's readiness")


def test_a_drain_behind_a_refused_record_ends_and_says_so(kafka, narrow, make_relay, write):
    fine, _ = write("fine", "poison!")
    relay = make_relay(arguments=("run", "--drain"), publisher_max_in_flight=MAX_IN_FLIGHT)
    assert relay.wait() == 65
    assert f"Kafka refuses row 2 of topic {narrow}" in relay.output()
    assert arrived(kafka, narrow) == {fine}
    kafka.alter_topic(narrow, max_message_bytes=1_048_588)
    again = make_relay(arguments=("run", "--drain"), publisher_max_in_flight=MAX_IN_FLIGHT)
    assert again.wait() == 0
    assert len(arrived(kafka, narrow)) == 2
