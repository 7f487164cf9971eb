"""`[topic] headers = none`: records with the application's headers alone, and the commands that read
the relay's own headers."""

import collections
import json

import pytest

from support.auditor import read_topics
from support.relay import run_command

MISCONFIGURED = 78
OWN = {"outbox-id", "outbox-position"}


@pytest.fixture
def configured(tmp_path, topic):
    """configured(text): arguments with a configuration that leaves the headers of `topic` out."""
    def write(text="[publisher]\nresume = none\n"):
        file = tmp_path / "relay.ini"
        file.write_text(f'{text}[topic "{topic}"]\nheaders = none\n')
        return "--config", str(file)

    return write


@pytest.fixture
def settings(database, kafka):
    return {"DATABASE_URL": database.dsn, "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap}


def write_rows(database, topic, first, last):
    database.execute("select outbox.publish(%s, 'k' || n %% 10, to_jsonb(n),"
                     " jsonb_build_object('n', n)) from generate_series(%s::int, %s) n", (topic, first, last))


def values_of(records):
    return collections.Counter(int(record.payload) for record in records)


def test_records_have_the_applications_headers_alone_and_come_at_least_once(
        database, kafka, topic, make_relay, configured):
    write_rows(database, topic, 1, 1000)
    relay = make_relay(arguments=(*configured(), "run"), publisher_lease="4s",
                       fault="after_acknowledgement")  # records are in Kafka and not in the log
    assert relay.wait(60) == -9
    assert make_relay(arguments=(*configured(), "run", "--drain")).wait() == 0

    records = list(read_topics(kafka.bootstrap, [topic]))
    for record in records:
        assert record.headers == [("n", record.payload)]
    published = values_of(records)
    assert published.keys() == set(range(1, 1001))
    assert max(published.values()) > 1  # at least once: the killed relay's records came again


def test_a_message_without_headers_gives_a_record_without_headers(
        database, kafka, topic, make_relay, configured):
    database.execute("select outbox.publish(%s, 'k', '1'::jsonb)", (topic,))
    assert make_relay(arguments=(*configured(), "run", "--drain")).wait() == 0
    record, = read_topics(kafka.bootstrap, [topic])
    assert not record.headers


def test_other_topics_keep_the_headers(database, kafka, topic, make_relay, configured):
    other = kafka.create_topic(f"{topic}.full")
    for number in range(20):  # in turns, within one batch
        write_rows(database, (topic, other)[number % 2], number, number)
    assert make_relay(arguments=(*configured(), "run", "--drain")).wait() == 0
    bare, full = (list(read_topics(kafka.bootstrap, [name])) for name in (topic, other))
    assert len(bare) == len(full) == 10
    assert not any(OWN & dict(record.headers).keys() for record in bare)
    assert all(OWN < dict(record.headers).keys() for record in full)
    kafka.delete_topic(other)


def test_verify_replay_and_doctor_know_the_topic(
        database, kafka, topic, make_relay, configured, settings):
    write_rows(database, topic, 1, 50)
    assert make_relay(arguments=(*configured(), "run", "--drain")).wait() == 0

    status, output, error = run_command([*configured(), "verify", "--json"], settings)
    verdict = json.loads(output)
    assert (status, verdict["lost"], verdict["published"]) == (0, 0, 0), error
    assert verdict["not_judged"]["rows_without_headers"] == 50
    status, output, _ = run_command([*configured(), "verify"], settings)
    assert "50  rows: their topics have headers = none" in output

    last = database.execute("select id from outbox.message order by id offset 9 limit 1")[0][0]
    status, _, error = run_command([*configured(), "replay", f"topic={topic}", f"ids=..{last}"], settings)
    assert status == 0, error
    replayed = [record for record in read_topics(kafka.bootstrap, [topic])
                if dict(record.headers).get("outbox-replay")]
    assert len(replayed) == 10
    assert not any(OWN & dict(record.headers).keys() for record in replayed)

    status, output, _ = run_command([*configured(), "doctor"], settings)
    assert f"topic {topic}" in output and "headers = none" in output


@pytest.mark.parametrize("publisher, cure", [
    ("", "needs resume = none"),
    ("[publisher]\nresume = tail\n", "needs resume = none"),
    ("[publisher]\ndelivery = exactly-once\n", "needs delivery = at-least-once and resume = none")])
@pytest.mark.parametrize("command", ["check-config", "run"])
def test_a_publisher_that_reads_tails_is_refused(topic, configured, settings, command, publisher, cure):
    arguments = configured(publisher)
    status, output, error = run_command([*arguments, command], settings)
    place = f'relay.ini:{len(publisher.splitlines()) + 2}: [topic "{topic}"] headers'
    assert (status, output) == (MISCONFIGURED, "")
    assert place in error and cure in error and "or headers = full here" in error
