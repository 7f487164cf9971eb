"""The hot path leaves no dead tuples, and an old snapshot costs it nothing."""

import statistics
import threading
import time
from contextlib import contextmanager

import pytest

from support.auditor import count_records

LONG = 300
MIX = {"many_rows": 10, "copy": 10, "several_keys": 1, "no_key": 1}  # of writers that keep it all
LOG_ROWS = "SELECT count(*) FROM outbox.log"


@contextmanager
def old_snapshot(database):
    """A session that goes on seeing the database as it is now."""
    connection = database.connect(autocommit=False)
    cursor = connection.cursor()
    cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    cursor.execute("SELECT max(id) FROM outbox.message")
    seen = cursor.fetchone()
    yield
    cursor.execute("SELECT max(id) FROM outbox.message")
    assert cursor.fetchone() == seen  # it has held all the while
    connection.close()


def leaves(database):
    return [name for name, in database.execute(
        "SELECT c.oid::regclass::text FROM pg_class c WHERE c.relkind = 'r'"
        " AND c.relnamespace = 'outbox'::regnamespace"
        " AND c.relname ~ '^(message|log)_' ORDER BY 1")]


def dead_tuples(database):
    """{leaf: dead tuples}, of those that hold any; counted one by one, and as autovacuum sees it."""
    found = {}
    for leaf in leaves(database):
        exact, = database.execute(f"SELECT dead_tuple_count FROM pgstattuple('{leaf}')")[0]
        toast, = database.execute(
            f"""SELECT coalesce((SELECT dead_tuple_count FROM pgstattuple(reltoastrelid)), 0)
                FROM pg_class WHERE oid = '{leaf}'::regclass AND reltoastrelid <> 0""")[0]
        database.execute(f"ANALYZE {leaf}")
        counted, = database.execute(
            f"SELECT pg_stat_get_dead_tuples('{leaf}'::regclass)")[0]
        if exact or toast or counted:
            found[leaf] = exact, toast, counted
    return found


@pytest.mark.rotated
@pytest.mark.long
@pytest.mark.parametrize("held", [False, True], ids=["alone", "beside_an_old_snapshot"])
def test_no_dead_tuples_in_message_and_log(
        held, database, kafka, topic, make_relay, make_writers, scale):
    database.execute("CREATE EXTENSION pgstattuple")
    # What autovacuum removed would not be seen.
    for leaf in leaves(database):
        database.execute(f"ALTER TABLE {leaf} SET (autovacuum_enabled = false,"
                         " toast.autovacuum_enabled = false)")
    relay = make_relay(publisher_ack_interval="10ms").wait_ready()
    writers = make_writers(rollback=0, mix=MIX, padding=3000)
    few = make_writers(rollback=0, mix={"one": 1}, prefix="few", connections=4)

    def work():
        few.run(scale(10_000))
        while database.execute(LOG_ROWS)[0][0] <= 100:
            few.run(100)
        while len(writers.committed) < scale(100_000):
            writers.run(200)
        writers.huge_transaction(scale(1_000_000) - len(writers.committed) - len(few.committed))

    if held:
        with old_snapshot(database):
            work()
    else:
        work()
    count = database.execute("SELECT count(*) FROM outbox.message")[0][0]
    assert count == scale(1_000_000)
    relay.wait_for(lambda: count_records(kafka.bootstrap, [topic]) >= count, LONG, "all messages")
    assert relay.stop() == 0
    assert database.execute(LOG_ROWS)[0][0] > 100
    assert dead_tuples(database) == {}


WRITE = """
DO $$ BEGIN
    FOR i IN 1..%(transactions)s LOOP
        INSERT INTO outbox.message (topic, key, payload)
        SELECT %(topic)s, (g %% 200)::text, repeat('x', 200)
        FROM generate_series(1, 100) g;
        COMMIT;
    END LOOP;
END $$"""


@contextmanager
def written_all_the_while(database, topic):
    """Rows, as many as one session can write."""
    ends = threading.Event()

    def write():
        while not ends.is_set():
            database.execute(WRITE, {"transactions": 100, "topic": topic})

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    yield
    ends.set()
    writer.join(LONG)


def rate(relay, seconds):
    """Rows a second that are published during so many from now on."""
    before, began = relay.metric("relay_published_total"), time.monotonic()
    time.sleep(seconds)  # what is measured
    return (relay.metric("relay_published_total") - before) / (time.monotonic() - began)


@pytest.mark.alone
def test_a_snapshot_held_for_the_whole_run_costs_no_throughput(
        database, topic, make_relay, full):
    """In pairs of short runs, each beside the other in time: the machine may change its speed. So
    long as the median of the pairs is not clear there are more of them."""
    relay = make_relay().wait_ready()
    seconds = 60 if full else 1

    def beside():
        with old_snapshot(database):
            return rate(relay, seconds)

    ratios = []
    with written_all_the_while(database, topic):
        relay.wait_for(lambda: relay.metric("relay_published_total"), what="the first rows")
        rate(relay, seconds)  # caches, connections, the topic
        while len(ratios) < 7 or statistics.median(ratios) < 0.95 and len(ratios) < 75:
            if len(ratios) % 2:
                alone, held = rate(relay, seconds), beside()
            else:
                held, alone = beside(), rate(relay, seconds)
            ratios.append(held / alone)
    print(f"throughput beside an old snapshot, of that without: {statistics.median(ratios):.3f}")
    assert statistics.median(ratios) >= 0.9, ratios
