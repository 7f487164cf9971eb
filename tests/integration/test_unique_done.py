"""Handled messages are reported to their database: a unique key with while_pending => 'done' is taken until the
inbox or the sidecar has handled its message, and free then. No offset is committed before its report."""

import threading
import uuid

import pytest

from support.application import Application
from support.dedup import DedupError
from support.inbox import Effects, Inbox, committed, produce, wait_committed
from support.process import wait_for
from support.proxy import Proxy

STATE = "select state from outbox.message_state where event_id = %s"


@pytest.fixture
def publish(database, topic):
    """publish(unique_key, payload): the event id of the message that has the key, and whether it was written."""
    def call(key, payload="{}"):
        event = str(uuid.uuid4())
        (answer,), = database.execute("""select outbox.publish(%s, %s, %s::text, event_id => %s, unique_key => %s,
            within => '1 day', while_pending => 'done')::text""", (topic, key, payload, event, key))
        return answer, answer == event

    return call


@pytest.fixture
def wait_published(database):
    def call(*events):
        for event in events:
            wait_for(lambda event=event: database.execute(STATE, (event,)) == [("published",)], 60, "the publisher")

    return call


@pytest.fixture
def make_inbox(kafka, topic, database, tmp_path):
    """make_inbox(**settings): a consumer of the topic that reports to the database."""
    inboxes = []

    def make(**settings):
        given = {"report": f"postgres dsn={database.dsn}", "path": tmp_path / "state", "commit_every_ms": 50,
                 "retry_first_ms": 20, "effects": Effects().path, **settings}
        inboxes.append(Inbox(kafka.bootstrap, topic, [topic], **given))
        return inboxes[-1]

    yield make
    for inbox in inboxes:
        inbox.close()


@pytest.mark.parametrize("dedup", [None, "bloom ids=10k rate=0.1% window=1h"])
def test_a_key_is_taken_until_the_inbox_has_handled_its_message(
        make_relay, make_inbox, kafka, topic, dead_topic, publish, wait_published, dedup):
    """Retries, dead letters, and what a handler never finishes: only a message that is handled is reported."""
    payloads = {"plain": "x", "again": "retry=2", "copy": "copy", "slow": "slow=300", "dead": "dead",
                "never": "never"}
    first = {key: publish(key, payload)[0] for key, payload in payloads.items()}
    dropped = [publish(f"rule-{i}", "many")[0] for i in range(2)]
    make_relay().wait_ready()
    wait_published(*first.values(), *dropped)
    assert all(publish(key) == (event, False) for key, event in first.items()), "a key that nobody has handled"

    inbox = make_inbox(dedup=dedup, dead_letters=dead_topic, drain_ms=1,
                       rules=["sliding name=many most=1 within=1h key=payload action=drop"])
    handled = {key: event for key, event in first.items() if key not in ("dead", "never")}
    for key, event in [*handled.items(), *((f"rule-{i}", event) for i, event in enumerate(dropped))]:
        wait_for(lambda key=key, event=event: publish(key)[0] != event, 60, f"a second message of {key}")
    inbox.wait_stats(dead_letters=1, refused=1)
    last, written = publish("last")
    wait_for(lambda: publish("last")[0] != last, 60, "a report after all others")
    assert written and publish("dead") == (first["dead"], False) and publish("never") == (first["never"], False)


def test_a_key_is_taken_until_the_application_has_handled_its_message(
        make_relay, make_sidecar, database, publish, wait_published, tmp_path):
    """The dsn stands in a file. The message comes first with an answer that asks for another try."""
    line = tmp_path / "report"
    line.write_text(f"postgres dsn={database.dsn} schema=outbox\n")
    line.chmod(0o600)
    answer = threading.Event()

    def application_answers(_):
        return 200 if answer.is_set() else 503

    event, _ = publish("order-42")
    make_relay().wait_ready()
    wait_published(event)
    with Application(application_answers) as application:
        relay = make_sidecar(application, report_file=line, breaker_failures=1000)
        wait_for(lambda: len(application.of(event)) >= 2, 60, "two tries")
        assert publish("order-42") == (event, False)
        answer.set()
        wait_for(lambda: publish("order-42")[0] != event, 60, "a second message")
        relay.wait_for(lambda: relay.metric("relay_deliver_reported_total") >= 1)


@pytest.mark.parametrize("dedup", [None, "bloom ids=10k rate=0.1% window=1h"])
def test_a_report_that_a_killed_consumer_did_not_make_comes_after_its_restart(
        kafka, topic, database, publish, make_relay, make_inbox, wait_published, dedup):
    """It dies between the effect and the report. With dedup the message comes again as a copy."""
    effects, asked = Effects(), threading.Event()
    with Proxy(database.postgres.port) as network:
        dsn = database.dsn.replace(f":{database.postgres.port}/", f":{network.port}/")
        inbox = make_inbox(report=f"postgres dsn={dsn}", dedup=dedup, effects=effects.path)
        produce(kafka.bootstrap, topic, [(str(uuid.uuid4()), None, "x", 0)])
        inbox.wait_stats(reported=1)
        network.watch(b"unique_done", asked.set)  # the report does not arrive
        event, _ = publish("order-42")
        make_relay().wait_ready()
        effect = next(effect for effect in effects.wait_ids({event}) if effect.id == event)
        assert asked.wait(60)
        inbox.kill()
        wait_published(event)
        assert publish("order-42") == (event, False)
    assert committed(kafka.bootstrap, topic, topic, effect.partition)[0] <= effect.offset
    inbox.arguments = [argument.replace(dsn, database.dsn) for argument in inbox.arguments]
    inbox.start()
    wait_for(lambda: publish("order-42")[0] != event, 60, "a second message")
    effects.wait_ids({event})
    assert sum(effect.id == event for effect in effects.all()) == (1 if dedup else 2)


def test_while_the_database_is_away_nothing_is_committed(kafka, topic, database, make_inbox):
    """Messages are handled meanwhile. One line says so, with the cure; then all are reported."""
    ids = [str(uuid.uuid4()) for _ in range(200)]
    with Proxy(database.postgres.port) as network:
        dsn = database.dsn.replace(f":{database.postgres.port}/", f":{network.port}/")
        network.refuse()
        inbox = make_inbox(report=f'postgres dsn="{dsn}" timeout=1s')
        produce(kafka.bootstrap, topic, [(id, id, "x", 0) for id in ids] + [("no-uuid", None, "x", 0)])
        inbox.wait_stats(handled=201, unreported=200)
        line, = inbox.wait_event("inbox_reports_wait")
        assert "their offsets are not committed" in line and f":{network.port}/" in line
        assert committed(kafka.bootstrap, topic, topic)[0] <= 0 and inbox.stats()["reported"] == 0

        network.heal()
        wait_committed(kafka.bootstrap, topic, topic, {0: 201})
        stats = inbox.wait_stats(reported=200)
        assert stats["unreported"] == 0

        network.refuse()
        produce(kafka.bootstrap, topic, [(id, id, "x", 0) for id in ids])
        inbox.wait_stats(handled=401)
        inbox.close()
    assert committed(kafka.bootstrap, topic, topic)[0] == 201, "it closed without a report"
    inbox = make_inbox()  # whoever has the partition next reports them
    wait_committed(kafka.bootstrap, topic, topic, {0: 401})
    assert inbox.stats()["reported"] == 200


def test_a_login_that_may_not_report_is_told_the_cure(database, make_inbox, login):
    wrong, right = (login(role)["DATABASE_URL"] for role in ("outbox_writer", "outbox_consumer"))
    inbox = make_inbox(report=f"postgres dsn={wrong}")
    line, = inbox.wait_event("inbox_reports_wait")  # before the first message
    assert "permission denied for function unique_done" in line and "grant the role outbox_consumer" in line
    inbox.close()
    inbox = make_inbox(report=f"postgres dsn={right}")
    inbox.wait_stats(partitions=6)
    assert not inbox.events("inbox_reports_wait")


@pytest.mark.parametrize("line, words", [
    ("redis url=redis://127.0.0.1", ["'redis' is no database", "postgres"]),
    ("postgres name=billing", ["'name' is no setting", "dsn, schema, timeout"]),
    ("postgres schema=Out", ["schema"]),
    ("postgres timeout=forever", ["timeout 'forever'", "timeout=2s"]),
    ("postgres dsn=", ["dsn ''", "a connection string"]),
    ("postgres dsn=postgresql://a:hunter2@[/x", ["dsn"]),
    ("", ["begin the line with one of: postgres"])])
def test_a_wrong_line_of_the_inbox_is_refused_at_once(kafka, topic, line, words):
    with pytest.raises(DedupError) as refusal:
        Inbox(kafka.bootstrap, topic, [topic], report=line)
    assert refusal.value.kind == "config" and "hunter2" not in str(refusal.value)
    assert str(refusal.value).startswith("config: report: ")
    for word in words:
        assert word in str(refusal.value)
