"""Business topics sharded over two databases, in one process: the rows, the business types of the look-back and the
partitions of each topic are in one of them."""

import pytest

from support.auditor import audit, committed_messages, read_topics
from support.lookback import Application, configuration
from support.process import wait_for
from support.relay import run_command

SHARDS = "orders", "billing"
STATES = """
SELECT l.biz_id, l.decision FROM outbox.lookback l WHERE l.kind = 'decision' AND l.biz_type = %s ORDER BY 1"""


@pytest.fixture
def databases(database, empty_database):
    """The database of each topic, with a publisher of that name."""
    both = dict(zip(SHARDS, (database, empty_database.migrate())))
    for name, each in both.items():
        for command in (["create", name], ["drop", "main", "--yes", "--reason", "sharded"]):
            status, _, error = run_command(["publisher", *command], {"DATABASE_URL": each.dsn})
            assert status == 0, error
    return both


@pytest.fixture
def topics(kafka, topic):
    """The topic of each business, and the one of the look-back, which both share."""
    made = {name: kafka.create_topic(f"{topic}_{name}", 3) for name in (*SHARDS, "said", "dead")}
    yield made
    for each in made.values():
        kafka.delete_topic(each)


@pytest.fixture
def relay(databases, topics, make_relay, tmp_path):
    sections = []
    for name, each in databases.items():
        sections += [
            (f'postgres "{name}"', {"dsn": each.dsn, "retain": "1s", "retention": "archive",
                                    "archive_path": tmp_path, "upkeep_interval": "100ms"}),
            (f'publisher "{name}"', {"postgres": name, "topics": topics[name], "max_attempts": 1}),
            (f'check "{name}"', {"url": "http://127.0.0.1:9/"}),
            (f'lookback "{name}"', {
                "postgres": name, "types": name, "topic": topics["said"], "group": topics["said"] + name,
                "topics": topics[name], "dead_letter": topics["dead"], "check": name, "check_after": "1h",
                "default": "yes" if name == SHARDS[0] else "no"})]
    return make_relay(config=configuration(*sections)).wait_ready()


def until_quiet(relay, database):
    """Until all rows of the database are published."""
    relay.wait_for(lambda: database.execute(
        "SELECT EXISTS (SELECT FROM outbox.message_state WHERE state = 'pending')") == [(False,)], what="its rows")


def judge(database, kafka, topic):
    verdict = audit(committed_messages(database.dsn), read_topics(kafka.bootstrap, [topic]))
    assert verdict.correct and verdict.duplicates == 0 and verdict.committed > 0, verdict


def test_each_topic_has_the_rows_of_its_own_database(
        databases, topics, kafka, relay, make_writers, scale):
    writers = [make_writers(dsn=databases[name].dsn, topics=[topics[name]], connections=2, keys=20, prefix=name)
               for name in SHARDS]
    for each in writers:
        each.start(scale(1000))
    for each in writers:
        each.join()
    for name in SHARDS:
        until_quiet(relay, databases[name])
        judge(databases[name], kafka, topics[name])

    # what is written to the wrong database is not published, and says why
    wrong = databases["orders"]
    wrong.execute("SELECT outbox.publish(%s, 'k', 'x')", (topics["billing"],))
    wait_for(lambda: wrong.execute("SELECT error FROM outbox.parked"), 60, "the parked row")
    error, = wrong.execute("SELECT error FROM outbox.parked")[0]
    assert 'the topic is not in [publisher "orders"] topics' in error
    judge(databases["billing"], kafka, topics["billing"])


def test_a_database_that_is_down_stops_its_own_topic_only(
        databases, topics, kafka, postgres, relay, make_writers):
    down = databases["orders"]
    postgres.execute(f'ALTER DATABASE "{down.name}" ALLOW_CONNECTIONS false')
    postgres.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (down.name,))
    make_writers(dsn=databases["billing"].dsn, topics=[topics["billing"]], keys=20, prefix="b").run(100)
    until_quiet(relay, databases["billing"])
    judge(databases["billing"], kafka, topics["billing"])
    postgres.execute(f'ALTER DATABASE "{down.name}" ALLOW_CONNECTIONS true')
    make_writers(dsn=down.dsn, topics=[topics["orders"]], keys=20, prefix="o").run(100)
    until_quiet(relay, down)
    judge(down, kafka, topics["orders"])


def test_each_business_type_is_decided_in_its_own_database(databases, topics, kafka, relay):
    for name in SHARDS:
        application = Application(kafka.bootstrap, topics["said"], name, topics[name])
        application.prepare(*(f"{name}-{i}" for i in range(20)))
        application.commit(*(f"{name}-{i}" for i in range(0, 20, 2)))
        application.rollback(*(f"{name}-{i}" for i in range(1, 20, 2)))
    for name, each in databases.items():
        wanted = sorted((f"{name}-{i}", "rollback" if i % 2 else "commit") for i in range(20))
        wait_for(lambda each=each, name=name, wanted=wanted: each.execute(STATES, (name,)) == wanted, 60, "decisions")
        assert each.execute("SELECT count(*) FROM outbox.lookback WHERE biz_type <> %s", (name,)) == [(0,)]
        keys = {f"{name}-{i}".encode() for i in range(0, 20, 2)}
        wait_for(lambda name=name, keys=keys: {record.key for record in read_topics(
            kafka.bootstrap, [topics[name]])} == keys, 60, "the committed messages")


def test_both_databases_archive_into_one_folder(databases, topics, relay, tmp_path):
    for name, each in databases.items():
        each.execute("SELECT outbox.partition_make('message', '2020-01-01', '2020-01-02')")
        each.execute("INSERT INTO outbox.message (created_at, topic, key, payload) VALUES "
                     "('2020-01-01 12:00Z', %s, 'k', 'x')", (topics[name],))
    for name, each in databases.items():
        wait_for(lambda each=each: each.execute("SELECT state, folder FROM outbox.archive"), 60, "the archive")
        wait_for(lambda each=each, name=name: each.execute("SELECT state, folder FROM outbox.archive") == [
            ("archived", str(tmp_path))], 60, "the file")
    # the partitions have the same name and number
    assert len(list(tmp_path.iterdir())) == 2
    for name, each in databases.items():
        status, _, error = run_command(["partition", "restore", "message_p20200101"], {"DATABASE_URL": each.dsn})
        assert status == 0, error
        assert each.execute("SELECT topic FROM outbox.message WHERE created_at < '2021-01-01'") == [(topics[name],)]
