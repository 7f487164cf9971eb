"""The main way of a row, on real servers: migrate, write, relay, consume, judge."""

from support.auditor import audit_topics, count_records, settle
from support.process import wait_for

LONG = 300  # seconds: the limit of a condition that only load, or valgrind, delays


def assert_faultless(verdict, committed=None):
    assert verdict.correct and verdict.duplicates == 0, verdict
    assert committed in (None, verdict.committed), verdict


def test_committed_rows_arrive_once_and_in_order(
        each_build, database, kafka, topic, make_relay, make_writers, scale):
    program, wrapper = each_build
    relay = make_relay(program=program, wrapper=wrapper).wait_ready(LONG)
    writers = make_writers(keys=50, rollback=0.2)
    with writers.held_open(), writers.unrelated_transaction():
        writers.run(scale(3000, default=400))
        # Neither open transaction delays the others: they arrive while both are open.
        assert_faultless(settle(database.dsn, kafka.bootstrap, [topic], quiet=60),
                         len(writers.committed))
    assert_faultless(settle(database.dsn, kafka.bootstrap, [topic], quiet=60),
                     len(writers.committed))
    assert writers.rolled_back > 0
    assert relay.stop() == 0


def test_drain_publishes_what_is_there_and_ends(
        database, kafka, topic, make_relay, make_writers, scale):
    writers = make_writers(keys=50).run(scale(2000))
    relay = make_relay(arguments=("run", "--drain"))
    assert relay.wait(120) == 0
    # Not settle(): it said that it was done.
    assert_faultless(audit_topics(database.dsn, kafka.bootstrap, [topic]), len(writers.committed))


def test_a_restart_goes_on_where_it_was(database, kafka, topic, make_relay, make_writers):
    relay = make_relay().wait_ready()
    with make_writers(connections=4, keys=20, rate=200) as writers:
        for _ in range(3):
            seen = count_records(kafka.bootstrap, [topic])
            wait_for(lambda: count_records(kafka.bootstrap, [topic]) > seen, 60, "progress")
            assert relay.stop() == 0
            relay.start().wait_ready()
    assert_faultless(settle(database.dsn, kafka.bootstrap, [topic]), len(writers.committed))
    assert relay.stop() == 0
