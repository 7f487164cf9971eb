"""outbox.message.bucket: every row has the bucket of its key, however it was written, and a shard reads no row of
another shard's buckets. Reads are counted in buffers: rows are large and index entries small."""

import json
import random

import psycopg2
import pytest

from support.windows import QUERIES, Ticks

BUCKETS = 32768
OTHERS = 4000  # rows of another shard: 340 pages of the table, 35 of an index
KEYS = ["customer-1", "", "ключ", "\\x41", "a\\b", "x" * 8192]
# The bucket of this key. A row keeps its bucket, so another version of the server must have the same.
KNOWN = {"customer-1": 9828}


def test_shards_divide_the_buckets_among_them(database):
    assert database.execute(f"""
        SELECT shards FROM generate_series(1, 64) shards
        WHERE outbox.first_bucket(0, shards) <> 0 OR outbox.first_bucket(shards, shards) <> {BUCKETS}
            OR EXISTS (SELECT FROM generate_series(0, {BUCKETS - 1}, 7) b (bucket)
                CROSS JOIN LATERAL (SELECT outbox.bucket_shard(b.bucket::smallint, shards)) s (shard)
                WHERE b.bucket < outbox.first_bucket(s.shard, shards)
                    OR b.bucket >= outbox.first_bucket(s.shard + 1, shards))""") == []


def test_keys_spread_evenly_and_a_missing_key_is_in_the_first_shard(database):
    fewest, most, shards = database.execute("""
        SELECT min(rows), max(rows), count(*) FROM (
            SELECT outbox.shard_of(convert_to('customer-' || i, 'UTF8'), 16) AS shard, count(*) AS rows
            FROM generate_series(1, 32000) i GROUP BY 1) s""")[0]
    assert shards == 16 and 1800 < fewest and most < 2200
    assert database.execute("SELECT outbox.shard_of(NULL, 16)") == [(0,)]


def test_a_key_has_the_same_bucket_in_every_version_of_the_server(database):
    for key, bucket in KNOWN.items():
        assert database.execute("SELECT outbox.bucket_of(%s, NULL)", (key,)) == [(bucket,)]


def test_text_and_bytes_of_one_key_have_one_bucket(database, seed):
    chance = random.Random(seed)
    keys = KEYS + ["".join(chr(chance.randrange(1, 0xd7ff)) for _ in range(chance.randrange(1, 30)))
                   for _ in range(300)]
    for key in keys:
        as_text, as_bytes, shard = database.execute(
            "SELECT outbox.bucket_of(%s, NULL), outbox.bucket_of(NULL, %s), outbox.shard_of(%s, 64)",
            (key, key.encode(), key.encode()))[0]
        assert as_text == as_bytes and shard == as_text * 64 // BUCKETS
    assert database.execute("SELECT outbox.bucket_of(NULL, '\\xff00'::bytea)")[0][0] > 0


@pytest.mark.parametrize("before, statement", [
    ("", "SELECT outbox.publish('t', %s, 'x')"),
    ("", "INSERT INTO outbox.message (topic, key) SELECT 't', %s FROM generate_series(1, 3)"),
    ("SET session_replication_role = replica", "INSERT INTO outbox.message (topic, key) VALUES ('t', %s)"),
    ("ALTER TABLE outbox.message DISABLE TRIGGER ALL", "INSERT INTO outbox.message (topic, key) VALUES ('t', %s)"),
    ("", "INSERT INTO outbox.message_default (id, created_at, topic, key) OVERRIDING SYSTEM VALUE VALUES (1, '2000-01-01', 't', %s)"),
    ("SET session_replication_role = replica",
     "INSERT INTO outbox.message_default (id, created_at, topic, key) OVERRIDING SYSTEM VALUE VALUES (1, '2000-01-01', 't', %s)"),
])
def test_every_way_to_write_a_row_gives_it_its_bucket(database, before, statement):
    with database.connect() as connection:
        cursor = connection.cursor()
        if before:
            cursor.execute(before)
        cursor.execute(statement, ("customer-1",))
    assert database.execute("SELECT DISTINCT bucket FROM outbox.message") == [(KNOWN["customer-1"],)]


def test_nobody_writes_the_bucket_of_a_row(database):
    for statement in ("INSERT INTO outbox.message (topic, key, bucket) VALUES ('t', 'k', 1)",
                      "UPDATE outbox.message SET bucket = 1"):
        # PostgreSQL 13 calls it an error of syntax.
        with pytest.raises((psycopg2.errors.lookup("428C9"), psycopg2.errors.SyntaxError), match='column "bucket"'):
            database.execute(statement)


def touched(cursor, statement, values=None):
    cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) {statement}", values)
    found = cursor.fetchone()[0]
    plan = (json.loads(found) if isinstance(found, str) else found)[0]["Plan"]
    return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]


def key_of_shard(database, shard, shards):
    return next(key for key in map(str, range(1000)) if database.execute(
        "SELECT outbox.shard_of(%s, %s)", (key.encode(), shards)) == [(shard,)])


def write_others(database, key):
    database.execute("INSERT INTO outbox.message (topic, key, payload) SELECT 't', %s, repeat('x', 600)"
                     " FROM generate_series(1, %s)", (key, OTHERS))


@pytest.fixture
def reader(database):
    """A reader of shard 1 of 4, and many unpublished rows of shard 2."""
    ticks = Ticks(database.dsn, shard=1, shards=4)
    write_others(database, key_of_shard(database, 2, 4))
    database.execute("INSERT INTO outbox.message (topic, key, payload) VALUES ('t', %s, 'mine')",
                     (key_of_shard(database, 1, 4),))
    yield ticks
    ticks.close()


def test_a_read_of_all_rows_would_be_seen(database, reader):
    cursor = database.connect().cursor()
    assert touched(cursor, "SELECT count(payload) FROM outbox.message") > 300


def test_a_tick_reads_no_row_of_another_shard(database, reader):
    reader.cursor.execute("BEGIN")
    statement, values = reader.tick_call(max_rows=1000)
    reader.cursor.execute(statement, values)  # plans it
    reader.cursor.execute("ROLLBACK")
    reader.cursor.execute("BEGIN")
    assert touched(reader.cursor, statement, values) < 250
    reader.cursor.execute("ROLLBACK")
    assert [row.payload for row in reader.tick()] == [b"mine"]


def test_the_pages_of_a_window_read_no_row_of_another_shard(database, reader):
    reader.tick(max_rows=0)
    values = (reader.n, reader.nonce, reader.first_tick + 1)
    statement = "SELECT * FROM outbox.window_bounds('ticks', 1, 4, %s, %s, %s, NULL, 16384, 200000)"
    reader.cursor.execute(statement, values)  # plans it
    assert touched(reader.cursor, statement, values) < 150
    bounds = reader.bounds()
    assert bounds["low_id"] == bounds["high_id"] == OTHERS + 1
    settings, _, page = reader.page_script({**bounds, "low_id": 1}, 0, 1000).partition("copy (")
    reader.cursor.execute("BEGIN")
    reader.cursor.execute(settings)
    assert touched(reader.cursor, page.rpartition(") to stdout")[0]) < 100
    reader.cursor.execute("ROLLBACK")
    assert [row.payload for row in reader.pages(1000)] == [b"mine"]


def text_of(name, *values):
    with open(f"{QUERIES}/{name}.sql") as file:
        text = file.read().replace("%", "%%")
    for number, value in enumerate(values, 1):
        text = text.replace(f"${number}", value)
    return text


def test_the_backlog_of_all_shards_reads_few_rows_more_than_its_bound(database, reader):
    cursor = database.connect().cursor()
    cursor.execute("SET enable_seqscan = off; SET enable_bitmapscan = off")
    assert touched(cursor, text_of("backlogs", "'ticks'", "100")) < 150
    cursor.execute(text_of("backlogs", "'ticks'", "2000"))
    assert {row[-1]: row[:2] for row in cursor.fetchall()} == {0: (0, False), 1: (1, False), 2: (2000, True), 3: (0, False)}


# By the definition: neither published before the newest acknowledged tick, nor in the first open window up to acked_id.
UNPUBLISHED = """
    SELECT p.publisher, p.shard, count(m.id), coalesce(extract(epoch FROM now() - min(m.created_at)) * 1000, 0)
    FROM outbox.progress p LEFT JOIN outbox.message m ON outbox.bucket_shard(m.bucket, p.shards) = p.shard
        AND m.created_at >= coalesce(p.start_at, '-infinity') AND NOT pg_visible_in_snapshot(m.txid, p.ticks[1])
        AND NOT (p.ticks[2] IS NOT NULL AND pg_visible_in_snapshot(m.txid, p.ticks[2]) AND m.id <= p.acked_id)
    GROUP BY p.publisher, p.shard"""


def test_the_backlogs_of_all_shards_are_counted_at_once(database, seed):
    """Shards at different places, with open windows and transactions; of two publishers."""
    chance = random.Random(seed)
    readers = [Ticks(database.dsn, publisher, shards, shard, create=shard == 0)
               for publisher, shards in (("ticks", 4), ("other", 3)) for shard in range(shards)]
    open_ones = [database.connect(autocommit=False) for _ in range(2)]
    cursor = database.connect().cursor()
    seen = set()
    for _ in range(60):
        session = chance.choice([database.connect(), *open_ones])
        session.cursor().execute("INSERT INTO outbox.message (topic, key) SELECT 't', 'k' || %s + i FROM generate_series(1, %s) i",
                                 (chance.randrange(50), chance.randrange(1, 30)))
        if session in open_ones and chance.random() < 0.5:
            session.commit()
        reader = chance.choice(readers)
        last = cursor.execute("SELECT coalesce(max(id), 0) FROM outbox.message") or cursor.fetchone()[0]
        reader.tick(max_rows=0, must_write=True, new_acked_id=last - chance.randrange(40) if reader.open_windows and last > 40 else 0,
                    closed=reader.open_windows if chance.random() < 0.5 else 0)
        unpublished = {(publisher, shard): (rows, age) for publisher, shard, rows, age in database.execute(UNPUBLISHED)}
        last_id = database.execute("SELECT coalesce(max(id), 0) FROM outbox.message")[0][0]
        for bound in (10_000, 25):
            cursor.execute(text_of("backlogs", "null", str(bound)))
            counted = {row[5:]: row[:5] for row in cursor.fetchall()}
            assert counted.keys() == unpublished.keys()
            for name, (rows, more, estimated, age, newest) in counted.items():
                right, oldest = unpublished[name]
                assert newest == last_id
                if not more:
                    assert (rows, estimated) == (right, right) and abs(age - float(oldest)) < 5000, (name, bound)
                else:
                    assert bound == 25 and rows <= min(bound, right) and estimated >= rows, (name, right, rows)
                seen.add((bound, more, right > 0))
    assert seen >= {(10_000, False, True), (25, False, True), (25, True, True)}, seen
    cursor.execute(text_of("backlogs", "'other'", "1000"))
    assert {row[5:] for row in cursor.fetchall()} == {("other", 0), ("other", 1), ("other", 2)}
    for each in readers + open_ones:
        each.close()


def test_a_plan_for_empty_partitions_does_not_read_published_rows_later(database):
    """The primary key holds the bucket too, but a tick that reads it reads the entries of all rows."""
    for leaf, in database.execute("SELECT inhrelid::regclass::text FROM pg_inherits"
                                  " WHERE inhparent = 'outbox.message'::regclass"):
        database.execute(f"ALTER TABLE {leaf} SET (autovacuum_enabled = false)")
    database.execute("VACUUM ANALYZE outbox.message")
    ticks = Ticks(database.dsn, shard=1, shards=4)
    mine = key_of_shard(database, 1, 4)
    ticks.tick()
    database.execute("SELECT outbox.publish('t', %s, 'first')", (mine,))
    ticks.poll()
    for _ in range(5):
        write_others(database, mine)
    ticks.tick(max_rows=0)
    ticks.tick(must_write=True, may_open=False)
    database.execute("SELECT outbox.publish('t', %s, 'last')", (mine,))
    assert touched(ticks.cursor, *ticks.tick_call()) < 100
    ticks.close()
