"""One long walk through the relay's paths under each sanitizer; the fixtures fail on a report."""

import signal

import pytest

from support.auditor import audit_topics, count_records
from support.relay import run_command

LONG = 300


# valgrind takes too long for it and runs the smoke test.
@pytest.mark.rotated
@pytest.mark.parametrize("each_build", ["asan", "tsan"], indirect=True)
def test_a_walk_through_every_path(
        each_build, database, kafka, topic, postgres, make_relay, make_writers, tmp_path):
    walk = dict(zip(("program", "wrapper"), each_build))
    ini = tmp_path / "relay.ini"
    publisher = "[publisher]\nmemory = 1MiB\nmax_in_flight = 500\nlease = 30s\n"  # long: it is slow
    ini.write_text(publisher)
    relay = make_relay(arguments=("--config", str(ini), "run"), **walk).wait_ready(LONG)
    relay.wait_event("shard_taken", timeout=LONG)
    make_relay(**walk).wait_ready(LONG)  # a standby
    writers = make_writers(connections=4, keys=20, rollback=0.2)

    def all_there():
        wanted = database.execute(
            "SELECT count(*) FROM outbox.message WHERE topic = %s", (topic,))[0][0]
        relay.wait_for(lambda: count_records(kafka.bootstrap, [topic]) >= wanted, LONG,
                       f"{wanted} records")
        return wanted

    def ask():
        for path in ("/livez", "/readyz?verbose", "/metrics", "/nowhere"):
            relay.get(path)

    # Small windows, pages, rows that come late, headers of each kind.
    with writers.held_open():
        writers.run(150)
        writers.huge_transaction(20_000)
        ask()
        all_there()
    database.execute(
        "SELECT outbox.publish(%s::text, NULL, NULL::text, '[[\"a\", 1.5], [\"a\", null]]')",
        (topic,))
    # A topic that is not there yet; a reload; connections that go.
    other = f"{topic}.later"
    database.execute("SELECT outbox.publish(%s::text, 'k', 'x')", (other,))
    relay.wait_event("topic_missing", topic=other, timeout=LONG)
    ini.write_text(f"{publisher}poll_idle = 20ms\n[log]\nlevel = debug\n")
    relay.process.send(signal.SIGHUP)
    relay.wait_event("reloaded", timeout=LONG)
    ask()
    kafka.create_topic(other, partitions=2)
    assert postgres.terminate_backends(database=database.name) > 0
    writers.run(50)
    all_there()
    relay.wait_for(lambda: count_records(kafka.bootstrap, [other]) == 1, LONG, "the other topic")
    # Other shards, while rows come.
    with writers:
        status, output, error = run_command(
            ["publisher", "split", "main", "--shards", 3], {"DATABASE_URL": database.dsn}, timeout=LONG)
        assert status == 0, output + error
        relay.wait_event("publisher_started", shards="3", timeout=LONG)
        ask()
    all_there()
    assert relay.stop(LONG) == 0
    verdict = audit_topics(database.dsn, kafka.bootstrap, [topic, other])
    assert verdict.correct, verdict
    kafka.delete_topic(other)
