"""Fixtures of the fault tests: what has to be whole again after each, and the verdict on it."""

import pytest

from support.auditor import audit, committed_messages, read_topics
from support.process import wait_for
from support.relay import run_command

LONG = 300  # seconds: the limit of a condition that only load delays

PENDING = """
SELECT EXISTS (SELECT FROM outbox.message_state WHERE publisher = %s AND state = 'pending')"""


def is_published(database, publisher="main"):
    """By the log: the publisher has nothing left to publish of what is in the table."""
    return not database.execute(PENDING, (publisher,))[0][0]


def recreations(relays):
    return sum(len(relay.events("producer_recreated")) for relay in relays)


def lapses(relays):
    """How often an owner with records under way was stopped by its own lease, as a machine that stands
    still makes it: they may come late. exactly-once promises more."""
    return sum(event["reason"] == "the lease is over" for relay in relays
               if relay.settings.get("OUTBOX_RELAY_PUBLISHER_DELIVERY") != "exactly-once"
               for event in relay.events("producer_recreated"))


@pytest.fixture
def until_published(database, request):
    """until_published(): returns when the log says that all rows are; the relays must not end."""
    def wait(publisher="main", timeout=LONG, database=database):
        def published():
            ended = [relay for relay in request.node.relays if not relay.running]
            assert len(ended) < len(request.node.relays), ended[0].process.tail()
            return is_published(database, publisher)

        wait_for(published, timeout, f"the end of what publisher {publisher} has to publish", interval=0.1)

    return wait


@pytest.fixture
def judge(database, kafka, topic, request, until_published):
    """judge(deaths, max_in_flight): waits until all is published and returns the verdict.

    Nothing lost, nothing that rolled back, each key in order, and no more duplicates than
    (deaths + producers made anew) x max_in_flight, all of them equal to the first; or none at all,
    but for leases that ran out beside the test's faults.
    """
    def judged(deaths, max_in_flight, topics=None, bootstrap=None, same_epoch=True, none=False,
               isolation="read_uncommitted", database=database):
        until_published(database=database)
        verdict = audit(committed_messages(database.dsn),
                        read_topics(bootstrap or kafka.bootstrap, topics or [topic], isolation),
                        same_epoch)
        anew, lapsed = recreations(request.node.relays), lapses(request.node.relays)
        print(f"{deaths} deaths, {anew} producers made anew, {lapsed} of them since the lease was "
              f"over, max_in_flight {max_in_flight}:\n{verdict}")
        assert verdict.correct, verdict
        assert verdict.committed > 0
        allowed = lapsed if none else deaths + anew
        assert verdict.duplicates <= allowed * max_in_flight, verdict
        return verdict

    return judged


@pytest.fixture
def copy_of(postgres):
    """copy_of(database): a copy of its files in the same cluster, with the same transaction ids, as a
    snapshot of the disk is one. Nobody may be connected to the original."""
    made = []

    def make(database):
        name = f"{database.name[:50]}_copy"
        postgres.create_database(name, template=database.name)
        made.append(type(database)(postgres, name))
        return made[-1]

    yield make
    for copy in made:
        postgres.drop_database(copy.name)


@pytest.fixture
def fragile_kafka(kafka, topic):
    """The broker, to be stopped, killed and paused; it runs again at the end."""
    yield kafka
    kafka.resume()
    if not kafka.nodes[1].process.running:
        kafka.start_node(1)


@pytest.fixture
def fragile_postgres(postgres, database):
    """The server, to be stopped, killed and paused; it runs again at the end."""
    yield postgres
    if postgres.process.running:
        postgres.resume()
    else:
        postgres.start()


@pytest.fixture
def command(database, kafka):
    """command("publisher", "list"): runs it on this test's database; returns what it printed."""
    def run(*arguments, database_url=None, **settings):
        variables = {f"OUTBOX_RELAY_{name.upper()}": value for name, value in settings.items()}
        status, output, error = run_command(
            arguments, {"DATABASE_URL": database_url or database.dsn,
                        "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap, **variables})
        assert status == 0, error
        return output

    return run
