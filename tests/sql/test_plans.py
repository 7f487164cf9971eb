"""What the reader's statements touch when many published rows lie in front of the new ones.

Counted in buffers, not in milliseconds: a statement that walks through the published rows touches
thousands. Also on a table that was never analyzed, since that is what a new partition is.
"""

import datetime
import re

import pytest
from conftest import Database

from support.windows import QUERIES, Ticks

MANY = 10_000_000
NEW = 5000   # rows of the window that is read by pages
OLD = 20     # rows of a transaction that began before everything else
BURN_XIDS = """
DO $$ BEGIN
    FOR i IN 1..10100 LOOP
        BEGIN INSERT INTO burnt VALUES (i); EXCEPTION WHEN division_by_zero THEN NULL; END;
    END LOOP;
END $$"""
SETTINGS = "SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off;"


class Table:
    """Many published rows; `ticks` stands behind the last, `old` is open since before the first."""

    def __init__(self, database, rows):
        self.database = database
        self.cursor = database.connect().cursor()
        self.old = database.connect(autocommit=False).cursor()
        self.insert(OLD, "old", self.old)
        self.cursor.execute("CREATE TABLE burnt (number int)")
        self.cursor.execute(BURN_XIDS)
        for _ in range(0, rows, 100_000):
            self.insert(100_000, "published")
        self.ticks = Ticks(database.dsn)
        self.ticks.tick(max_rows=0)
        self.publish_all()

    def insert(self, count, body, cursor=None):
        (cursor or self.cursor).execute(
            "INSERT INTO outbox.message (topic, key, payload) SELECT 't', (i %% 1000)"
            "::text, %s || repeat('.', 100)"
            " FROM generate_series(1, %s) i", (body, count))

    def publish_all(self):
        self.ticks.tick(must_write=True, may_open=False)
        assert self.ticks.open_windows == 0

    def touched(self, statement, values=None, settings="SELECT"):
        """Buffers that the statement touches when the catalogues are known; it is undone. They may be
        read anew at any time, as when something else in the database was vacuumed: so the fewest."""
        fewest = None
        for _ in range(3):
            self.cursor.execute("BEGIN")
            self.cursor.execute(settings)
            self.cursor.execute(
                f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) {statement}", values)
            plan = self.cursor.fetchone()[0][0]["Plan"]
            self.cursor.execute("ROLLBACK")
            touched = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
            fewest = touched if fewest is None else min(fewest, touched)
        self.found = plan["Actual Rows"]
        return fewest

    def touched_by_page(self, bounds, after, rows):
        script = self.ticks.page_script(bounds, after, rows)
        settings, _, rest = script.partition("copy (")
        return self.touched(rest.rpartition(") to stdout")[0], settings=settings)


def question(file, values):
    """(statement, values) of sql/queries/FILE.sql"""
    with open(f"{QUERIES}/{file}.sql") as text:
        statement = re.sub(r"\$(\d)", r"%(p\1)s", text.read())
    return statement, {f"p{number}": value for number, value in enumerate(values, 1)}


@pytest.fixture(scope="module", params=["never_analyzed", "analyzed"])
def table(request, postgres):
    name = f"plans_{request.param}"
    postgres.create_database(name)
    database = Database(postgres, name).migrate()
    for leaf, in database.execute("SELECT inhrelid::regclass::text FROM pg_inherits"
                                  " WHERE inhparent = 'outbox.message'::regclass"):
        database.execute(f"ALTER TABLE {leaf} SET (autovacuum_enabled = false)")
    table = Table(database, MANY if request.config.option.full else 300_000)
    if request.param == "analyzed":
        table.cursor.execute("VACUUM ANALYZE outbox.message")
    yield table
    postgres.drop_database(name)


def test_a_walk_through_the_published_rows_would_be_seen(table):
    """What all the limits below stand against."""
    assert table.touched("SELECT min(id) FROM outbox.message WHERE payload IS NULL") > 5000


def test_a_tick_that_finds_nothing(table):
    assert table.touched(*table.ticks.tick_call()) < 100


def test_a_tick_that_finds_a_few_rows(table):
    table.insert(10, "new")
    assert table.touched(*table.ticks.tick_call()) < 100
    assert table.found == 11
    table.ticks.poll()
    table.publish_all()


def test_a_take(table):
    assert table.touched("SELECT * FROM outbox.take('ticks', 0, 1, 1, 'by hand', 1000, 1)") < 100
    assert table.found == 1


@pytest.mark.parametrize("file, values, most", [
    ("newest", ("ticks", 0), 50), ("status", (), 50), ("backlogs", ("ticks", 100), 100),
    ("topics", ("ticks",), 1000)])  # it looks at the newest 10,000 rows
def test_what_status_and_doctor_ask(table, file, values, most):
    assert table.touched(*question(file, values), SETTINGS) < most


def test_the_backlog_behind_most_of_a_large_window(table):
    """Most of the window is published; a transaction that it does not hold has smaller ids, another one greater ones."""
    late = table.database.connect(autocommit=False).cursor()
    table.insert(3, "late", late)
    table.insert(NEW, "new")
    table.ticks.tick(max_rows=0)
    published = list(table.ticks.pages(1000))[-11].id
    first_tick = table.ticks.first_tick
    table.ticks.tick(closed=0, new_acked_id=published, must_write=True, may_open=False)
    table.ticks.first_tick, table.ticks.open_windows = first_tick, 1  # it is open still
    late.connection.commit()
    table.insert(2, "new")

    def count(bound):
        statement = question("backlogs", ("ticks", bound))
        table.cursor.execute(*statement)
        return table.cursor.fetchone()[:3], table.touched(*statement, SETTINGS)

    (rows, more, estimated), touched = count(100)
    assert (rows, more, estimated) == (15, False, 15) and touched < 150
    (rows, more, estimated), touched = count(5)
    assert (rows, more) == (5, True) and 12 <= estimated <= 15 and touched < 100
    table.publish_all()
    table.ticks.poll()
    table.publish_all()
    assert count(100)[0] == (0, False, 0)


@pytest.mark.parametrize("shards", [1, 64])
def test_what_people_ask_for_is_not_compiled(database, shards):
    """Of tables that were never analyzed, as these small ones are: compiling takes seconds where CPU is
    short, and leases are over by then."""
    database.execute("SELECT outbox.publisher_drop('main')")
    database.execute("SELECT outbox.publisher_create('main', %s, 'beginning')", (shards,))
    with open(f"{QUERIES}/status.sql") as text:
        plan = database.execute(f"EXPLAIN (FORMAT JSON) {text.read()}")[0][0][0]["Plan"]
    limit, = database.execute("SELECT current_setting('jit_above_cost')::float")[0]
    assert plan["Total Cost"] < limit / 2


def test_the_pages_of_a_large_window(table):
    table.insert(NEW, "new")
    table.ticks.tick(max_rows=0)
    assert table.touched("SELECT * FROM outbox.window_bounds('ticks', 0, 1, %s, %s, %s, NULL, 16384, "
                         "200000)",
                         (table.ticks.n, table.ticks.nonce, table.ticks.first_tick + 1)) < 150
    bounds = table.ticks.bounds()
    assert bounds["stragglers"] == "{}"
    assert table.touched_by_page(bounds, 0, 1000) < 150
    assert table.found == 1000
    rows = list(table.ticks.pages(1000))
    assert len(rows) == NEW
    assert table.touched_by_page(bounds, rows[-1001].id, 1000) < 150
    assert table.touched_by_page(bounds, rows[-1].id, 1000) < 50
    table.publish_all()


def test_the_pages_of_a_window_with_an_old_transaction_that_just_committed(table):
    table.insert(NEW, "new")
    table.old.connection.commit()
    assert table.touched(*table.ticks.tick_call()) < 100
    assert table.found == 1
    table.ticks.tick()
    assert table.ticks.verdict == "pages"
    bounds = table.ticks.bounds()
    assert bounds["stragglers"] != "{}"
    assert table.touched_by_page(bounds, 0, 1000) < 150
    rows = list(table.ticks.pages(1000))
    assert len(rows) == NEW + OLD
    assert [row.payload[:3] for row in rows] == [b"old"] * OLD + [b"new"] * NEW
    assert table.touched_by_page(bounds, rows[-1001].id, 1000) < 150
    assert table.found == 1000
    assert table.touched_by_page(bounds, rows[-1].id, 1000) < 50
    table.publish_all()


def test_a_tick_that_asks_what_is_due_beside_many_parked_rows(table):
    table.cursor.execute(
        "INSERT INTO outbox.parked (publisher, shard, id, created_at, event_id, topic, tick, state,"
        " attempts, next_at) SELECT 'ticks', 0, i, now(), gen_random_uuid(), 't', 0, 'waiting', 1,"
        " now() + interval '1 day' FROM generate_series(1, 20000) i")
    assert table.touched("SELECT count(*) FROM outbox.parked WHERE attempts = 0") > 200
    assert table.touched(*table.ticks.tick_call(may_list=True)) < 100
    table.cursor.execute("TRUNCATE outbox.parked")


def test_the_totals_of_parked_rows_read_no_more_than_they_may(table, kept):
    """A plan without the order of the index would read all rows."""
    all_rows = table.touched(*asked("parked_totals", "ticks", "{}", 100_000))
    table.cursor.execute(*asked("parked_totals", "ticks", "{}", 100_000))
    assert table.cursor.fetchall() == [("behind", 20_000, False)]
    assert table.touched(*asked("parked_totals", "ticks", "{}", 200)) < all_rows / 20
    for chosen, count, more in (("{}", 200, True), ('{"topic": "lost"}', 0, True), ('{"from_id": 19901, "to_id": 30000}', 100, False)):
        table.cursor.execute(*asked("parked_totals", "ticks", chosen, 200))
        assert table.cursor.fetchall() == [("behind", count, more)], chosen


def test_lists_of_the_look_back_read_no_more_than_they_may(table):
    """Of 20,000 prepares half are overdue, ten of them parked; the others are not due, and every second of those is decided."""
    table.cursor.execute("""WITH made AS (
            INSERT INTO outbox.lookback (biz_type, biz_id, kind, section, source_partition, source_offset, topic, check_at, digest, event_id)
            SELECT 'order', i::text, 'prepare', 'shop', 0, i, 't', now() + interval '1 day', '', gen_random_uuid()
            FROM generate_series(10001, 30000) i RETURNING biz_type, biz_id, section, prepared_at, check_at, source_offset AS i),
        late AS (
            INSERT INTO outbox.lookback_overdue (section, biz_type, biz_id, prepared_at, next_check, state)
            SELECT section, biz_type, biz_id, prepared_at, check_at, CASE WHEN i <= 10010 THEN 'parked' ELSE 'overdue' END
            FROM made WHERE i <= 20000)
        INSERT INTO outbox.lookback (biz_type, biz_id, prepared_at, kind, section, decision, source, decided_at)
        SELECT biz_type, biz_id, prepared_at, 'decision', section, 'rollback', 'message', now() FROM made WHERE i > 20000 AND i % 2 = 0""")

    def count(*values):
        table.cursor.execute(*asked("lookback_totals", *values))
        return {state: (ids, more) for state, ids, more in table.cursor.fetchall()}

    all_rows = table.touched(*asked("lookback_totals", "{}", 100_000, 100_000))
    assert count("{}", 100_000, 100_000) == {"overdue": (9990, False), "parked": (10, False), "undecided": (5000, False)}
    # an order counts every id: each page of the table is read once, whatever order the rows have in the index
    pages = table.touched("SELECT count(*) FROM outbox.lookback_overdue o WHERE o.section IS NOT NULL")
    assert table.touched(*asked("lookback_count", "{}")) <= pages + 5
    for chosen, ids in (("{}", 10_000), ('{"state": "parked"}', 10), ('{"type": "order", "state": "overdue"}', 9990), ('{"type": "lost"}', 0)):
        table.cursor.execute(*asked("lookback_count", chosen))
        assert table.cursor.fetchall() == [(ids,)], chosen
    assert table.touched(*asked("lookback_totals", "{}", 200, 200)) < all_rows / 20
    assert count("{}", 200, 200) == {"overdue": (190, True), "parked": (10, False), "undecided": (0, True)}
    assert count('{"state": "parked"}', 200, 0) == {"overdue": (0, False), "parked": (10, False), "undecided": (0, False)}
    assert count('{"state": "undecided", "error": "x"}', 200, 200) == {"overdue": (0, False), "parked": (0, False), "undecided": (0, False)}

    place, found, pages = ("", "", "-infinity"), [], 0
    while True:
        page = asked("lookback_waiting", "{}", *place, 1000, 500)
        table.cursor.execute(*page)
        rows = table.cursor.fetchall()
        if not rows:
            break
        found += [row[1] for row in rows if row[-1]]
        place, pages = (rows[-1][0], rows[-1][1], rows[-1][14]), pages + 1
        if pages == 21:  # the first of them that has rows
            assert table.touched(*page) < 10_000
    assert found == [str(i) for i in range(20001, 30000, 2)] and pages == 40
    table.cursor.execute("TRUNCATE outbox.lookback, outbox.lookback_overdue")


def asked(name, *values):
    """(statement, values) of sql/queries/NAME.sql."""
    with open(f"{QUERIES}/{name}.sql") as text:
        statement = re.sub(r"^--.*\n", "", text.read(), flags=re.MULTILINE).replace("%", "%%")
    return (re.sub(r"\$(\d+)", r"%(p\1)s", statement), {f"p{number}": value for number, value in enumerate(values, 1)})


@pytest.fixture
def kept(table):
    """Parked, scheduled and skipped messages beside the others."""
    table.cursor.execute(
        "INSERT INTO outbox.parked (publisher, shard, id, created_at, event_id, topic, key, tick, state, attempts, next_at)"
        " SELECT 'ticks', 0, i, now(), gen_random_uuid(), 't', 'k', 0, 'behind', 1, now() FROM generate_series(1, 20000) i")
    table.cursor.execute(
        "INSERT INTO outbox.scheduled (publisher, shard, id, created_at, event_id, topic, key, tick, deliver_at)"
        " SELECT 'ticks', 0, i, now(), gen_random_uuid(), 't', 'k', 0, now() FROM generate_series(20001, 40000) i")
    table.cursor.execute(
        "WITH asked AS (INSERT INTO outbox.audit (verb, target, reason) VALUES ('skip', '{}', 'x') RETURNING id)"
        " INSERT INTO outbox.skipped (publisher, request_id, ids)"
        " SELECT 'ticks', asked.id, array(SELECT 100000 + i * 500 + g FROM generate_series(1, 500) g)"
        " FROM asked, generate_series(1, 1000) i")
    yield
    table.cursor.execute("TRUNCATE outbox.parked, outbox.scheduled, outbox.skipped")


@pytest.mark.parametrize("id", [100, 30_000, 50_000, 150_000])  # parked, scheduled, published, skipped
def test_the_search_for_a_message(table, kept, id):
    table.cursor.execute("SELECT id, created_at, event_id::text, topic, key, txid::text, bucket FROM outbox.message"
                         " WHERE id >= %s ORDER BY id LIMIT 1", (id,))
    id, at, event_id, topic, key, txid, bucket = table.cursor.fetchone()
    assert table.touched("SELECT count(*) FROM outbox.skipped WHERE 1 = any (ids)") > 100
    assert table.touched(*asked("message_rows", id, None)) < 150
    assert table.touched(*asked("message_rows", id, at)) < 150
    assert table.touched(*asked("message_places", id, at, event_id, topic, key.encode(), txid, bucket)) < 1000
    assert table.touched(*asked("message_bracket", "ticks", 0, topic, 0, table.ticks.n)) < 150
    assert table.touched(*asked("message_scan", event_id, None, None, at, at + datetime.timedelta(milliseconds=5), 0, 10, 60_000)) < 5000
    assert table.found == 2


def test_the_search_by_topic_and_key_reads_no_messages_of_other_keys(table):
    """Only the index, which has the bucket of the key."""
    day = datetime.timedelta(days=1)
    table.cursor.execute("SELECT min(created_at), max(created_at), count(*) FROM outbox.message")
    first, last, count = table.cursor.fetchone()
    assert table.touched(*asked("message_scan", None, "t", b"no such key", first - day, last + day, 0, 10, 60_000)) < count / 60
    assert table.found == 1
