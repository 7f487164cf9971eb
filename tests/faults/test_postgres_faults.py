"""Postgres is restarted, killed, paused; backends end, connections are cut and stalled: the relay
comes back by itself, and repeats nothing as long as the shard was its own all the while."""

import contextlib
import threading
import time

import pytest

from support.auditor import (
    audit, committed_messages, count_messages, count_records, read_topics)
from support.postgres import Promoted
from support.process import Timeout, wait_for
from support.proxy import Proxy

MAX_IN_FLIGHT = 500
KEPT = "60s"  # a lease that no fault here outlasts
BACKENDS = """
SELECT pid, pg_terminate_backend(pid) FROM pg_stat_activity
WHERE application_name LIKE 'outbox-relay main/%%' AND state LIKE %s AND query LIKE %s"""
LOG, READ = ("%", "%tick(%"), ("active", "%copy (%")


def until_it_publishes(relay):
    before = relay.metric("relay_published_total") or 0
    relay.wait_for(lambda: (relay.metric("relay_published_total") or 0) > before,
                   what="more records")


def start(make_relay, **settings):
    relay = make_relay(publisher_max_in_flight=MAX_IN_FLIGHT, **settings)
    return relay.wait_ready()


@pytest.mark.rotated
@pytest.mark.parametrize("end", ["fast", "immediate", "kill -9"])
def test_a_restart_of_postgres_shorter_than_the_lease_repeats_nothing(
        end, fragile_postgres, make_relay, make_writers, judge, scale):
    relay = start(make_relay, publisher_lease=KEPT)
    restarts = scale(20, default=3)
    with make_writers(connections=4, rate=200) as writers:
        for _ in range(restarts):
            until_it_publishes(relay)
            if end == "kill -9":
                fragile_postgres.kill()
            else:
                fragile_postgres.stop(end)
            relay.wait_for(lambda: relay.get("/readyz?verbose")[0] == 503, what="unreadiness")
            fragile_postgres.start()
            relay.wait_ready()
        until_it_publishes(relay)
    assert writers.interrupted > 0
    assert relay.metric("relay_postgres_reconnects_total") >= restarts
    assert judge(0, 0).duplicates == 0


def test_a_restart_of_postgres_longer_than_the_lease_loses_nothing(
        fragile_postgres, make_relay, make_writers, judge):
    """The owner stops producing by its own clock, and takes the shard anew."""
    relay = start(make_relay, publisher_lease="1s")
    with make_writers(connections=4, rate=200):
        until_it_publishes(relay)
        fragile_postgres.stop("immediate")
        time.sleep(2)  # the outage
        fragile_postgres.start()
        relay.wait_ready()
        until_it_publishes(relay)
    judge(1, MAX_IN_FLIGHT)


@pytest.mark.rotated
@pytest.mark.parametrize("lease", ["1s", KEPT])
def test_a_postgres_that_stands_still_is_waited_for(
        lease, fragile_postgres, make_relay, make_writers, judge):
    relay = start(make_relay, publisher_lease=lease)
    with make_writers(connections=4, rate=200):
        until_it_publishes(relay)
        fragile_postgres.pause()
        time.sleep(2)
        fragile_postgres.resume()
        until_it_publishes(relay)
    verdict = judge(1, MAX_IN_FLIGHT)
    assert lease != KEPT or verdict.duplicates == 0


@pytest.mark.rotated
@pytest.mark.parametrize("which", [LOG, READ], ids=["log", "read"])
def test_terminated_backends_repeat_nothing(
        which, database, make_relay, make_writers, judge, scale):
    """The backend of the log, or the one that reads, in the middle of the page of a huge window."""
    relay = start(make_relay, publisher_lease=KEPT, publisher_memory="4MiB")
    ended = set()  # one that is about to end may be found once more
    writers = make_writers(connections=2, rate=50)
    watcher = database.connect()
    cursor = watcher.cursor()

    def end_one():
        cursor.execute(BACKENDS, which)
        found = {pid for pid, _ in cursor.fetchall()} - ended
        ended.update(found)
        return found

    def end_one_of_a_huge_window():
        """A page lasts for milliseconds: for one that was missed there are those of another window."""
        writers.huge_transaction(20_000)
        with contextlib.suppress(Timeout):
            return wait_for(end_one, 3, "a backend to end", interval=0)

    with writers:
        until_it_publishes(relay)
        for _ in range(scale(50)):
            wait_for(end_one_of_a_huge_window, 120, "a backend to end")
    watcher.close()
    assert judge(0, 0).duplicates == 0
    print(f"{len(ended)} backends ended")
    relay.wait_for(lambda: relay.metric("relay_postgres_reconnects_total") >= len(ended),
                   what="the figure")


@pytest.fixture
def network(postgres):
    with Proxy(postgres.port) as proxy:
        yield proxy


def through(network, database):
    return database.dsn.replace(f":{database.postgres.port}/", f":{network.port}/")


@pytest.mark.rotated
@pytest.mark.parametrize("fault", ["cut", "reset", "stall"])
def test_connections_lost_in_the_middle_of_a_huge_window(
        fault, network, database, make_relay, make_writers, judge, scale):
    """The network is slow, so that the fault finds a page half way, its first rows published."""
    relay = start(make_relay, publisher_lease=KEPT, database_url=through(network, database))
    writers = make_writers(connections=2, rate=50)
    faults = scale(20, default=3)
    with writers:
        until_it_publishes(relay)
        for _ in range(faults):
            network.throttle(1_000_000)
            writers.huge_transaction(20_000)
            until_it_publishes(relay)
            before = relay.metric("relay_published_total")
            relay.wait_for(lambda: relay.metric("relay_published_total") > before + 1000,
                           what="the first rows")
            getattr(network, fault)()
            if fault == "stall":
                time.sleep(1)
            network.heal()
            until_it_publishes(relay)
    assert judge(0, 0).duplicates == 0
    lost = relay.metric("relay_postgres_reconnects_total") or 0
    assert lost >= (faults if fault != "stall" else 0)


@pytest.mark.rotated("leases")
def test_a_network_that_is_silent_for_longer_than_the_lease(
        network, database, make_relay, make_writers, judge, scale):
    """Two relays behind two networks: the one that is cut off stops, the other goes on."""
    relay = start(make_relay, publisher_lease="3s", database_url=through(network, database))
    relay.wait_event("shard_taken")
    other = start(make_relay, publisher_lease="3s")
    cuts = scale(10, default=2)
    with make_writers(connections=4, rate=200):
        until_it_publishes(relay)
        for _ in range(cuts):
            network.stall()
            other.wait_for(lambda: other.metric("relay_owner"), what="the take-over")
            until_it_publishes(other)
            network.heal()
            relay.wait_for(lambda: relay.metric("relay_owner") == 0, what="the fence")
            other.stop()
            until_it_publishes(relay)
            other.start().wait_ready()
    judge(2 * cuts, MAX_IN_FLIGHT)


def test_a_postgres_that_refuses_connections_is_asked_again(
        network, database, make_relay, make_writers, judge):
    relay = start(make_relay, publisher_lease=KEPT, database_url=through(network, database))
    with make_writers(connections=4, rate=200):
        until_it_publishes(relay)
        network.refuse()
        relay.wait_for(lambda: relay.readiness_says(503, "Postgres is away"), what="unreadiness")
        assert relay.get("/livez")[0] == 200
        network.heal()
        relay.wait_ready()
        until_it_publishes(relay)
    assert judge(0, 0).duplicates == 0


@pytest.mark.rotated("leases")
def test_an_owner_whose_lease_runs_out_gives_up_its_queue(
        fragile_postgres, fragile_kafka, make_relay, make_writers, judge, until_published):
    """Kafka stands still with the queue full, and no row can be written that keeps the shard."""
    relay = start(make_relay, publisher_lease="3s")
    writers = make_writers(connections=4)
    writers.run(200)
    until_published()  # to every partition: rows of one whose tail is still to be read do not fill it
    fragile_kafka.pause()
    writers.run(400)
    relay.wait_for(lambda: relay.metric("relay_in_flight") == MAX_IN_FLIGHT, what="a full queue")
    fragile_postgres.stop("immediate")
    relay.wait_event("producer_recreated")
    fragile_postgres.start()
    fragile_kafka.resume()
    until_it_publishes(relay)
    judge(1, MAX_IN_FLIGHT)


def test_a_server_that_cannot_be_written_is_left_and_looked_for_anew(
        database, make_relay, make_writers, judge):
    """As a standby that several hosts in the dsn led to. The sessions that are open stay read-only
    for ever: only new ones find the server writable again."""
    relay = start(make_relay, publisher_lease="1s")
    writers = make_writers(connections=2)
    writers.run(100)
    read_only = f"ALTER DATABASE {database.name} SET default_transaction_read_only = "
    database.postgres.execute(read_only + "on")
    database.execute(BACKENDS, ("%", "%"))
    relay.wait_for(lambda: "25006" in relay.output(), what="a refused insert")
    relay.wait_for(lambda: relay.get("/readyz")[0] == 503, what="unreadiness")
    database.postgres.execute(read_only + "off")
    relay.wait_ready()
    writers.run(100)
    judge(1, MAX_IN_FLIGHT)


def test_a_log_call_without_an_answer_is_given_up_after_a_lease(
        fragile_postgres, make_relay, make_writers, judge):
    relay = start(make_relay, publisher_lease="1s")
    with make_writers(connections=2, rate=100):
        until_it_publishes(relay)
        fragile_postgres.pause()
        try:
            relay.wait_event("postgres_lost")
            relay.wait_for(lambda: relay.get("/readyz")[0] == 503, what="unreadiness")
        finally:
            fragile_postgres.resume()
        relay.wait_ready()
        until_it_publishes(relay)
    assert "no answer within a third of the lease" in relay.output()
    judge(1, MAX_IN_FLIGHT)


# --- synchronous standbys -----------------------------------------------------------------------

def test_what_no_synchronous_standby_has_is_not_published_though_nobody_waits_for_it(
        fragile_postgres, database, kafka, topic, make_relay, make_writers, until_published):
    """The waits of the writer and of the relay are cut short: what they committed is there to be seen,
    and would be lost with this server."""
    relay = start(make_relay, publisher_lease="3s")
    make_writers(connections=1).run(10)
    until_published()
    before = count_messages(database.dsn)

    def cut_one_short(application, how="pg_cancel_backend", but=()):
        pid = wait_for(lambda: fragile_postgres.waiting_for_standbys(application) - set(but), 60,
                       "a commit that waits").pop()
        assert fragile_postgres.execute(f"SELECT {how}({pid})") == [(True,)]
        return pid

    fragile_postgres.wait_for_standbys("nobody")
    try:
        writer = database.connect(application_name="a writer")
        thread = threading.Thread(target=writer.cursor().execute, args=[
            "INSERT INTO outbox.message (topic, payload) VALUES (%s, 'late')", (topic,)])
        thread.start()
        cut_one_short("a writer")
        thread.join(30)
        assert count_messages(database.dsn) == before + 1
        assert "canceling wait" in writer.notices[-1]
        cut = set()
        for how in ("pg_cancel_backend", "pg_terminate_backend", "pg_cancel_backend"):
            cut.add(cut_one_short("outbox-relay main/%", how, cut))
            assert count_records(kafka.bootstrap, [topic]) == before
        wait_for(lambda: fragile_postgres.waiting_for_standbys("outbox-relay main/%") - cut, 60,
                 "one more")
        assert count_records(kafka.bootstrap, [topic]) == before
        assert relay.metric("relay_published_total") == before
    finally:
        fragile_postgres.wait_for_standbys("")
    until_published()
    verdict = audit(committed_messages(database.dsn), read_topics(kafka.bootstrap, [topic]))
    assert verdict.correct and verdict.committed == before + 1 and not verdict.duplicates, verdict
    assert "the wait for a synchronous standby was cut short" in relay.output()


# --- what is read belongs to a history -----------------------------------------------------------

# The bounds of a window are given out only when this lock is free.
SLOW_BOUNDS = """
DO $$ DECLARE arguments text := pg_get_function_arguments('outbox.window_bounds'::regproc); BEGIN
    ALTER FUNCTION outbox.window_bounds RENAME TO window_bounds_at_once;
    EXECUTE format('CREATE FUNCTION outbox.window_bounds(%s) LANGUAGE plpgsql AS $f$ BEGIN
        PERFORM pg_advisory_xact_lock_shared(1);
        SELECT * INTO low_xid, sure_xid, upto, stragglers, low_id, high_id, listed, next_xid, over,
            least_id, last_id
        FROM outbox.window_bounds_at_once(of_publisher, of_shard, of_shards, of_n, of_nonce, of_tick, from_xid, xids,
            max_rows);
        END $f$', arguments);
END $$"""
WAITING = """
SELECT pid FROM pg_stat_activity
WHERE datname = current_database() AND wait_event = 'advisory'"""
STRANGER = """
INSERT INTO outbox.log (publisher, shard, n, epoch, nonce, owner, lease_until, first_tick, acked_id,
    ticks, destinations, folded, timeline, system_identifier)
SELECT publisher, shard, n + 1, epoch, 1, 'stranger', '-infinity', first_tick, acked_id, ticks, '{}',
    folded, timeline, system_identifier FROM outbox.progress
ON CONFLICT DO NOTHING RETURNING n"""


@pytest.fixture
def slow_bounds(database):
    """No bounds are given out until the function that this gives is called."""
    database.execute(SLOW_BOUNDS)
    connection = database.connect()
    connection.cursor().execute("SELECT pg_advisory_lock(1)")
    yield connection.close
    connection.close()


def waiting(database):
    return {pid for pid, in database.execute(WAITING)}


def test_an_answer_that_does_not_come_is_waited_for_no_longer_than_the_shard_is_owned(
        database, slow_bounds, make_relay, make_writers, judge):
    relay = start(make_relay, publisher_lease="3s")
    make_writers(connections=2).huge_transaction(5_000)
    wait_for(lambda: waiting(database), 30, "the question for the bounds")
    wait_for(lambda: database.execute(STRANGER), 30, "another owner", interval=0)
    before = waiting(database)
    relay.wait_event("shard_taken", count=2)
    wait_for(lambda: waiting(database) - before, 30, "the same question on a new connection")
    slow_bounds()
    judge(1, MAX_IN_FLIGHT)


@pytest.mark.rotated("leases")
def test_bounds_of_a_lost_history_keep_no_row_of_the_new_one_out(
        postgres, database, kafka, topic, slow_bounds, network, make_relay, make_writers,
        until_published):
    """The failover takes back the row that opened a window, while its bounds are asked for. The old
    primary gives them late, and is shut down; the same number is a larger window by then."""
    with Promoted(postgres) as promoted:
        fresh = type(database)(promoted, database.name)
        hosts = f"127.0.0.1:{network.port},127.0.0.1:{promoted.port}"
        relay = start(make_relay, publisher_lease="3s",
                      database_url=database.dsn.replace(f"127.0.0.1:{postgres.port}", hosts))
        make_writers(connections=1).huge_transaction(2_000)
        wait_for(lambda: waiting(database), 30, "the question for the bounds")

        network.close_door()
        assert len(database.execute(BACKENDS, ("%", "%tick(%"))) == 1
        relay.wait_event("shard_taken", count=2)
        slow_bounds()
        wait_for(lambda: not waiting(database), 30, "the late answer")
        newest = fresh.execute("SELECT max(n) FROM outbox.log")[0][0]
        wait_for(lambda: fresh.execute("SELECT max(n) FROM outbox.log")[0][0] > newest + 1, 30,
                 "two renewals: the answer has come")
        network.cut()

        make_writers(dsn=fresh.dsn, connections=1).huge_transaction(5_000)
        until_published(database=fresh)
        verdict = audit(committed_messages(fresh.dsn), read_topics(kafka.bootstrap, [topic]))
        assert verdict.correct and verdict.committed == 5_000, verdict
        relay.stop()


def test_pages_that_end_early_lose_and_repeat_nothing(
        database, kafka, topic, make_relay, until_published):
    """Rows are larger than those before let expect: pages are cut off, each with its connection."""
    database.execute("INSERT INTO outbox.message (topic, payload) "
                     "SELECT %s, repeat('x', 100 + i / 1000 %% 2 * 30000) "
                     "FROM generate_series(0, 4999) i", (topic,))
    relay = make_relay(publisher_memory="1MiB").wait_ready()
    until_published()
    verdict = audit(committed_messages(database.dsn), read_topics(kafka.bootstrap, [topic]))
    assert verdict.correct and verdict.committed == 5_000 and not verdict.duplicates, verdict
    assert relay.events("page_failed") == relay.events("postgres_lost") == []


# --- the end -------------------------------------------------------------------------------------

def test_the_exit_status_tells_whether_a_shard_was_handed_over(
        database, fragile_postgres, make_relay, make_writers):
    owner = start(make_relay, publisher_lease="3s")
    owner.wait_event("shard_taken")
    standby = start(make_relay, publisher_lease="3s")
    fragile_postgres.stop("immediate")
    for relay in (owner, standby):
        relay.wait_for(lambda: relay.get("/readyz")[0] == 503, what="unreadiness")
    assert owner.stop() == 75
    assert "publisher main: shard 0 was not handed over" in owner.output()
    assert standby.stop() == 0
    fragile_postgres.start()
    assert owner.start().wait_ready().stop() == 0
