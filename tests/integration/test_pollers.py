"""Why the obvious pollers are wrong: each of them fails here, on the very rows and in the very
interleaving in which ours does not.

Ours is judged twice: its functions called at the same moments (Ticks), and the whole relay running
beside it all, in two processes with tiny pages where that could matter.
"""

import uuid

import pytest
from psycopg2 import sql

from support.auditor import count_records, read_topics
from support.postgres import Postgres
from support.process import wait_for
from support.relay import run_command
from support.windows import Ticks

SOON = 60  # seconds in which a row that waits for nobody has surely come


class Session:
    """One connection of an application, a transaction at a time."""

    def __init__(self, database, topic):
        self.connection = database.connect(autocommit=False)
        self.cursor = self.connection.cursor()
        self.topic = topic

    def take_xid(self):
        """Writes elsewhere, as any application does before it comes to its outbox."""
        self.cursor.execute("INSERT INTO elsewhere DEFAULT VALUES")
        return self

    def lock(self, key):
        self.cursor.execute("UPDATE account SET changes = changes + 1 WHERE key = %s", (key,))
        return self

    def write(self, key, body):
        """The outbox row; after lock(key) where keys have an order."""
        self.cursor.execute("INSERT INTO outbox.message (topic, key, payload) VALUES (%s, %s, %s)"
                            " RETURNING id", (self.topic, key, body))
        self.id = self.cursor.fetchone()[0]
        return self

    def change(self, key, body):
        return self.lock(key).write(key, body)

    def execute(self, statement):
        self.cursor.execute(statement)
        return self

    def commit(self):
        self.connection.commit()
        return self

    def rollback(self):
        self.connection.rollback()
        return self


@pytest.fixture
def shop(database, topic):
    """shop() is a new Session; keys a to f can be locked."""
    database.execute("CREATE TABLE account (key text PRIMARY KEY, changes int DEFAULT 0);"
                     "CREATE TABLE elsewhere (id int GENERATED ALWAYS AS IDENTITY);"
                     "INSERT INTO account SELECT chr(97 + i) FROM generate_series(0, 5) i")
    sessions = []

    def open_session():
        sessions.append(Session(database, topic))
        return sessions[-1]

    yield open_session
    for session in sessions:
        session.connection.close()


class Ours:
    """Our reader at both levels: Ticks polled with the wrong reader, and relays on the topic."""

    def __init__(self, database, kafka, topic, relays):
        self.kafka, self.topic, self.relays = kafka, topic, relays
        self.ticks = Ticks(database.dsn)
        self.seen = []

    def poll(self):
        self.seen += [row.payload.decode() for row in self.ticks.poll()]

    def published(self, *bodies):
        """Waits until the topic holds so many records; they must be these, each key in order."""
        self.relays[0].wait_for(
            lambda: count_records(self.kafka.bootstrap, [self.topic]) >= len(bodies), SOON,
            f"the arrival of {bodies}")
        found = [(record.key, record.payload.decode())
                 for record in read_topics(self.kafka.bootstrap, [self.topic])]
        assert sorted(body for _, body in found) == sorted(bodies)
        for key in {key for key, _ in found}:
            of_key = [body for other, body in found if other == key]
            assert of_key == sorted(of_key), f"{key}: {of_key}"


@pytest.fixture
def ours(database, kafka, topic, make_relay):
    relays = [make_relay().wait_ready()]
    relays[0].wait_event("shard_taken")  # by nobody else at once: one of two inserts leaves a dead row
    relays.append(make_relay().wait_ready())
    return Ours(database, kafka, topic, relays)


class Reader:
    """A wrong reader: `seen` is what it published, in its order."""

    def __init__(self, database):
        self.connection = database.connect()
        self.cursor = self.connection.cursor()
        self.seen = []
        self.last = None

    def rows(self, statement, **values):
        self.cursor.execute(statement, values)
        found = self.cursor.fetchall()
        self.seen += [row[-1] for row in found]
        return found


class IdCursor(Reader):
    def poll(self):
        rows = self.rows("SELECT id, payload FROM outbox.message WHERE id > %(last)s ORDER BY id",
                         last=self.last or 0)
        self.last = rows[-1][0] if rows else self.last


class XidBarrier(Reader):
    """Waits for every transaction that is older than the newest it has read."""

    ORDER = "txid, id"

    def poll(self):
        self.cursor.execute("SELECT pg_snapshot_xmin(pg_current_snapshot())::text")
        barrier = self.cursor.fetchone()[0]
        self.rows("SELECT payload FROM outbox.message WHERE txid >= %(last)s::xid8"
                  f" AND txid < %(barrier)s::xid8 ORDER BY {self.ORDER}",
                  last=self.last or "0", barrier=barrier)
        self.last = barrier

    def poll_until(self, *seen):
        """Any transaction of the server may hold it up for a moment, one of our relays too."""
        wait_for(lambda: self.poll() or len(self.seen) >= len(seen), what=f"{seen} from the barrier")
        assert self.seen == list(seen)


class XidBarrierById(XidBarrier):
    ORDER = "id"


class CutWindow(Reader):
    """Snapshot windows, the first of which ends at an xid to make it smaller."""

    def poll(self, cut=None):
        upto = self._value("SELECT pg_current_snapshot()::text")
        if cut:
            # Everything from the cut on counts as invisible.
            upto = self._value(
                "SELECT least(pg_snapshot_xmin(s), %(cut)s::xid8) || ':' || %(cut)s || ':' || coalesce((SELECT"
                " string_agg(x::text, ',') FROM pg_snapshot_xip(s) x WHERE x < %(cut)s::xid8), '')"
                " FROM (SELECT %(upto)s::pg_snapshot AS s) one", cut=cut, upto=upto)
        self.rows("SELECT payload FROM outbox.message WHERE"
                  " pg_visible_in_snapshot(txid, %(upto)s::pg_snapshot) AND NOT"
                  " pg_visible_in_snapshot(txid, %(last)s::pg_snapshot) ORDER BY id",
                  upto=upto, last=self.last or "3:3:")
        self.last = upto

    def _value(self, statement, **values):
        self.cursor.execute(statement, values)
        return self.cursor.fetchone()[0]


class SystemXmin(CutWindow):
    """Snapshot windows over the system column xmin instead of a stored txid."""

    def poll(self):
        upto = self._value("SELECT pg_current_snapshot()::text")
        self.rows("SELECT payload FROM outbox.message WHERE"
                  " pg_visible_in_snapshot(xmin::text::xid8, %(upto)s::pg_snapshot) AND NOT"
                  " pg_visible_in_snapshot(xmin::text::xid8, %(last)s::pg_snapshot) ORDER BY id",
                  upto=upto, last=self.last or "3:3:")
        self.last = upto


class GapDetection(Reader):
    """Goes on behind a missing id only after it was missing in `patience` polls."""

    def __init__(self, database, patience):
        super().__init__(database)
        self.last, self.patience, self.missing = 0, patience, 0

    def poll(self):
        while True:
            rows = self.rows("SELECT payload FROM outbox.message WHERE id = %(next)s",
                             next=self.last + 1)
            if not rows:
                self.cursor.execute("SELECT EXISTS (SELECT FROM outbox.message WHERE id > %s)",
                                    (self.last,))
                self.missing += self.cursor.fetchone()[0]
                if self.missing <= self.patience:
                    return
            self.last, self.missing = self.last + 1, 0


# --- lost ------------------------------------------------------------------------------------------


def test_an_id_cursor_loses_a_slow_transaction_and_we_do_not(database, shop, ours):
    wrong = IdCursor(database)
    slow = shop().change("a", "1")
    shop().change("b", "2").commit()
    wrong.poll()
    ours.poll()
    ours.published("2")
    slow.commit()
    wrong.poll()
    ours.poll()
    assert wrong.seen == ["2"]  # 1 is lost
    assert ours.seen == ["2", "1"]
    ours.published("1", "2")


@pytest.mark.parametrize("patience", [0, 3])
def test_a_gap_that_was_waited_for_loses_or_stalls_and_we_do_neither(
        database, shop, ours, patience):
    """No patience is right: a rolled-back id never comes, a slow transaction's may at any time."""
    wrong = GapDetection(database, patience)
    slow = shop().change("a", "1")
    shop().change("b", "2").commit()
    for _ in range(patience):
        wrong.poll()
        assert wrong.seen == []  # it stalls, as it would for a rolled-back transaction
    wrong.poll()
    assert wrong.seen == ["2"]  # and then it gives up
    ours.poll()
    ours.published("2")
    slow.commit()
    wrong.poll()
    ours.poll()
    assert wrong.seen == ["2"]  # 1 is lost
    assert ours.seen == ["2", "1"]
    ours.published("1", "2")


def test_windows_over_the_system_column_xmin_lose_a_savepoints_row_and_ours_do_not(
        database, shop, ours):
    wrong = SystemXmin(database)
    slow = shop().take_xid().execute("SAVEPOINT s").change("a", "1")
    shop().change("b", "2").commit()
    # The savepoint's own xid is in no snapshot's list of those in progress.
    wrong.poll()
    ours.poll()
    slow.execute("RELEASE SAVEPOINT s").commit()
    wrong.poll()
    ours.poll()
    assert wrong.seen == ["2"]  # 1 is lost
    assert ours.seen == ["2", "1"]
    ours.published("1", "2")


# --- reordered ------------------------------------------------------------------------------------


def test_xid_order_reorders_a_key_and_we_do_not(database, shop, ours):
    wrong = XidBarrier(database)
    second = shop().take_xid()
    shop().change("a", "1").commit()
    second.change("a", "2").commit()
    wrong.poll_until("2", "1")
    ours.poll()
    assert ours.seen == ["1", "2"]
    ours.published("1", "2")


def test_the_xid_barrier_ordered_by_id_reorders_a_key_and_we_do_not(database, shop, ours):
    wrong = XidBarrierById(database)
    second = shop().take_xid()
    unrelated = shop().take_xid()
    shop().change("a", "1").commit()
    second.change("a", "2").commit()
    wrong.poll_until("2")  # the barrier stands between the two
    ours.poll()
    assert ours.seen == ["1", "2"]
    ours.published("1", "2")
    unrelated.commit()
    wrong.poll_until("2", "1")
    ours.poll()
    assert ours.seen == ["1", "2"]


def test_a_window_cut_at_an_xid_reorders_a_key_and_our_pages_do_not(database, shop, ours):
    wrong = CutWindow(database)
    second = shop().take_xid()
    first = shop().change("a", "1")
    first.execute("SELECT pg_current_xact_id()::text")
    cut = first.cursor.fetchone()[0]
    first.commit()
    second.change("a", "2").commit()
    wrong.poll(cut)
    wrong.poll()
    assert wrong.seen == ["2", "1"]
    # Ours are made smaller by ids, within the one snapshot.
    ours.seen += [row.payload.decode() for row in ours.ticks.poll(page=1)]
    assert ours.seen == ["1", "2"]
    ours.published("1", "2")


def test_a_page_boundary_between_the_rows_of_a_key_keeps_them_in_order(database, shop, ours):
    second = shop().take_xid()
    late = shop().change("c", "1")
    shop().change("b", "1").commit()
    ours.poll()
    for key in "abd":
        shop().change(key, "2").commit()
    second.change("a", "3").commit()
    late.change("c", "2").commit()  # a straggler: its rows come between the others, by id
    pages = ours.ticks.poll(page=2)
    assert [row.id for row in pages] == sorted(row.id for row in pages)
    assert [(row.key, row.payload) for row in pages] == [
        (b"c", b"1"), (b"a", b"2"), (b"b", b"2"), (b"d", b"2"), (b"a", b"3"), (b"c", b"2")]
    ours.published("1", "1", "2", "2", "2", "2", "3")


# --- stalled ---------------------------------------------------------------------------------------


def blocker_here(shop, postgres):
    session = shop().take_xid()
    return session.commit


def blocker_in_another_database(shop, postgres):
    connection = postgres.connect(autocommit=False)
    connection.cursor().execute("CREATE TABLE never_committed ()")

    def end():
        connection.rollback()
        connection.close()

    return end


def orphan_prepared_transaction(shop, postgres):
    name = f"orphan-{uuid.uuid4()}"
    session = shop().take_xid()
    session.execute(f"PREPARE TRANSACTION '{name}'")
    session.commit()  # psycopg2's; the transaction is prepared and belongs to nobody
    connection = session.connection
    connection.autocommit = True
    return lambda: session.execute(f"ROLLBACK PREPARED '{name}'")


@pytest.mark.parametrize("wrong_reader", [XidBarrier, XidBarrierById])
@pytest.mark.parametrize("blocker", [
    blocker_here, blocker_in_another_database, orphan_prepared_transaction])
def test_an_unrelated_transaction_stalls_the_xid_barrier_and_not_us(
        database, postgres, shop, ours, blocker, wrong_reader):
    wrong = wrong_reader(database)
    end = blocker(shop, postgres)
    try:
        for number in range(1, 4):
            second = shop().take_xid()
            shop().change("a", f"{number}a").commit()
            second.change("a", f"{number}b").commit()
            wrong.poll()
            ours.poll()
        expected = ["1a", "1b", "2a", "2b", "3a", "3b"]
        assert wrong.seen == []
        assert ours.seen == expected
        ours.published(*expected)  # while it is still open
    finally:
        end()
    wait_for(lambda: wrong.poll() or len(wrong.seen) == len(expected), what="what was stalled")
    assert sorted(wrong.seen) == expected


# --- SKIP LOCKED ----------------------------------------------------------------------------------


class Worker:
    """FOR UPDATE SKIP LOCKED on a queue table; what it takes is published before it commits."""

    def __init__(self, database, finish):
        self.connection = database.connect(autocommit=False)
        self.cursor = self.connection.cursor()
        self.finish = finish

    def take(self, limit=1):
        self.cursor.execute(
            "SELECT id, body FROM queue WHERE NOT sent ORDER BY id LIMIT %s"
            " FOR UPDATE SKIP LOCKED", (limit,))
        rows = self.cursor.fetchall()
        self.ids = [number for number, _ in rows]
        return [body for _, body in rows]

    def done(self):
        self.cursor.execute(sql.SQL({
            "update": "UPDATE queue SET sent = true WHERE id = ANY (%s)",
            "delete": "DELETE FROM queue WHERE id = ANY (%s)"}[self.finish]), (self.ids,))
        self.connection.commit()


@pytest.mark.parametrize("finish", ["update", "delete"])
def test_two_workers_with_skip_locked_reorder_a_key_and_two_relays_do_not(
        database, shop, ours, finish):
    database.execute("CREATE TABLE queue (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
                     " body text, sent bool NOT NULL DEFAULT false)")
    for body in ("1", "2"):
        session = shop().change("a", body)
        session.cursor.execute("INSERT INTO queue (body) VALUES (%s)", (body,))
        session.commit()
    one, two = Worker(database, finish), Worker(database, finish)
    first = one.take()
    wrong = two.take()  # skips the row that the other one holds
    two.done()
    wrong += first
    one.done()
    assert wrong == ["2", "1"]
    ours.published("1", "2")
    one.connection.close()
    two.connection.close()


def dead_tuples(database, pattern):
    return database.execute(
        "SELECT coalesce(sum((pgstattuple(oid)).dead_tuple_count), 0)::bigint FROM pg_class"
        " WHERE relkind = 'r' AND oid::regclass::text LIKE %s", (pattern,))[0][0]


def test_skip_locked_leaves_dead_tuples_and_we_leave_none(database, shop, ours, kafka, topic):
    database.execute("CREATE EXTENSION pgstattuple")
    database.execute("CREATE TABLE queue (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
                     " body text, sent bool NOT NULL DEFAULT false)"
                     " WITH (autovacuum_enabled = false)")
    count = 500
    old_snapshot = shop().execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT 1")
    session = shop()
    for number in range(count):
        session.write("a", f"{number:03}")
        session.cursor.execute("INSERT INTO queue (body) VALUES (%s)", (f"{number:03}",))
        session.commit()
    for finish in ("update", "delete"):
        worker = Worker(database, finish)
        if finish == "delete":  # the other half of the usual pair: clean up what was sent
            worker.cursor.execute("UPDATE queue SET sent = false")
            worker.connection.commit()
        for _ in range(count // 10):
            worker.take(10)
            worker.done()
        worker.connection.close()
    ours.published(*[f"{number:03}" for number in range(count)])
    assert dead_tuples(database, "queue") >= 2 * count
    assert dead_tuples(database, "outbox.message%") == 0
    assert dead_tuples(database, "outbox.log%") == 0
    old_snapshot.rollback()


# --- held WAL -------------------------------------------------------------------------------------


def test_a_stopped_logical_slot_holds_wal_and_a_stopped_relay_does_not(kafka, topic, make_relay):
    with Postgres(wal_level="'logical'", min_wal_size="'32MB'", max_wal_size="'64MB'") as server:
        status, _, error = run_command(["migrate", "up"], {"DATABASE_URL": server.dsn()})
        assert status == 0, error
        relay = make_relay(database_url=server.dsn()).wait_ready()
        server.execute("SELECT outbox.publish(%s::text, 'a', '1')", (topic,))
        relay.wait_for(lambda: count_records(kafka.bootstrap, [topic]) == 1, SOON, "a record")
        relay.stop()  # from here on, both readers are behind
        server.execute("SELECT pg_create_logical_replication_slot('stopped', 'test_decoding')")
        for number in range(12):
            server.execute("SELECT outbox.publish(%s::text, 'a', %s::text)", (topic, number))
            server.execute("SELECT pg_switch_wal()")
        assert wal_after_checkpoint(server) > 150
        server.execute("SELECT pg_drop_replication_slot('stopped')")
        wait_for(lambda: wal_after_checkpoint(server) < 100, SOON, "the removal of the WAL")
        assert server.execute("SELECT count(*) FROM pg_replication_slots") == [(0,)]
        relay.start()
        relay.wait_for(lambda: count_records(kafka.bootstrap, [topic]) == 13, SOON,
                       "the rows that waited")
        relay.close()


def wal_after_checkpoint(server):
    """Megabytes."""
    server.execute("CHECKPOINT")
    return server.execute("SELECT sum(size) / 1048576 FROM pg_ls_waldir()")[0][0]


# --- the rule's other half: ids in the order of their drawing -------------------------------------


def test_a_sequence_with_a_cache_inverts_a_key_and_is_refused(database, kafka, shop):
    """Sessions that draw ids ahead break every order by id, ours too: so nothing is published."""
    database.execute("ALTER SEQUENCE outbox.message_id_seq CACHE 10")
    one, two = shop(), shop()
    one.write("b", "0").commit()
    two.change("a", "1").commit()
    one.change("a", "2").commit()
    assert two.id > one.id  # the later change has the smaller id
    settings = {"DATABASE_URL": database.dsn,
                "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap}
    status, output, error = run_command(["run", "--drain"], settings)
    assert status == 78
    assert len(error.splitlines()) == 1, error
    for word in ("postgres main", "message.id has CACHE 10",
                 "alter sequence outbox.message_id_seq cache 1"):
        assert word in error
    assert database.execute("SELECT max(n) FROM outbox.log WHERE publisher = 'main'") == [(0,)]
    status, output, error = run_command(["doctor"], settings)
    assert status == 1
    assert "[fail]" in output and "message.id has CACHE 10" in output
    assert "cure: alter sequence outbox.message_id_seq cache 1" in output


def test_with_the_sequence_mended_the_relay_starts(database, kafka, topic, shop, make_relay):
    database.execute("ALTER SEQUENCE outbox.message_id_seq CACHE 10")
    database.execute("ALTER SEQUENCE outbox.message_id_seq CACHE 1")
    shop().change("a", "1").commit()
    assert make_relay(arguments=("run", "--drain")).wait() == 0
    assert [record.payload for record in read_topics(kafka.bootstrap, [topic])] == [b"1"]
