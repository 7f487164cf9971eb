"""A unique key with while_pending, with a real relay: taken while the message is pending, scheduled or parked, free once
it is published."""

import pytest

from support.auditor import count_records

LIMIT, TOO_LARGE = 60_000, 90_000  # bytes: of the topic, and of a payload that it refuses
STATE = "SELECT state FROM outbox.message_state WHERE event_id = %s"


@pytest.fixture
def publish(database, topic):
    """publish(payload, delay): the event id, and whether a message was written. The window is over at once."""
    def call(payload="p", delay=None):
        before = database.execute("SELECT count(*) FROM outbox.message")
        (event,), = database.execute("""SELECT outbox.publish(%s, 'k', %s::text, deliver_at => now() + %s::interval,
            unique_key => 'order-42', within => '1 ms', while_pending => 'published')::text""", (topic, payload, delay))
        return event, database.execute("SELECT count(*) FROM outbox.message") != before

    return call


def test_a_key_is_free_once_its_message_is_published(database, kafka, topic, publish, make_relay):
    first, written = publish()
    assert written and publish() == (first, False)  # no relay runs
    relay = make_relay().wait_ready()
    relay.wait_for(lambda: database.execute(STATE, (first,)) == [("published",)], what="the first message")
    second, written = publish()
    assert written and second != first
    relay.wait_for(lambda: count_records(kafka.bootstrap, [topic]) == 2, what="both")
    relay.kill()
    relay.start().wait_ready()  # and what the new owner finds in the log is the same
    relay.wait_for(lambda: database.execute(STATE, (second,)) == [("published",)], what="the second message")
    assert publish()[1]


def test_a_key_is_taken_while_its_message_is_scheduled(database, kafka, topic, publish, make_relay):
    relay = make_relay().wait_ready()
    first, _ = publish(delay="1 hour")
    relay.wait_for(lambda: database.execute(STATE, (first,)) == [("scheduled",)], what="the copy")
    assert publish() == (first, False)
    assert publish(delay="2 hours") == (first, False)
    database.execute("UPDATE outbox.scheduled SET deliver_at = now()")
    relay.wait_for(lambda: publish()[1], what="a second message")
    assert count_records(kafka.bootstrap, [topic]) >= 1, "the second was written before the first was published"


def test_a_key_is_taken_while_its_message_is_parked(database, kafka, topic, publish, make_relay, chance):
    kafka.alter_topic(topic, max_message_bytes=LIMIT)
    relay = make_relay(publisher_retry_first="100ms", publisher_retry_max="400ms",
                       publisher_max_attempts=1000000).wait_ready()
    first, _ = publish(chance.randbytes(TOO_LARGE // 2).hex())
    relay.wait_for(lambda: database.execute(STATE, (first,)) == [("parked",)], what="the refusal")
    assert publish() == (first, False)
    assert database.execute("SELECT attempts > 0 FROM outbox.parked") == [(True,)]
    kafka.alter_topic(topic, max_message_bytes=1_048_588)
    relay.wait_for(lambda: publish()[1], what="a second message")
    assert count_records(kafka.bootstrap, [topic]) >= 1, "the second was written before the first was published"


def test_a_key_is_free_once_an_operator_has_skipped_its_message(database, kafka, topic, publish, make_relay, chance):
    kafka.alter_topic(topic, max_message_bytes=LIMIT)
    relay = make_relay().wait_ready()
    first, _ = publish(chance.randbytes(TOO_LARGE // 2).hex())
    relay.wait_for(lambda: database.execute(STATE, (first,)) == [("parked",)], what="the refusal")
    assert publish() == (first, False)
    database.execute("SELECT outbox.parked_request('main', 'skip', '{\"all\": true}', 'ticket 7', 0)")
    relay.wait_for(lambda: publish()[1], what="a second message")
