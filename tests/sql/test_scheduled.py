"""What a log row does to outbox.scheduled: rows with a deliver_at in, listed windows out."""

import json
import statistics
import time

import pytest

from support.windows import Ticks

COLUMNS = "id, created_at, event_id, topic, key, payload, headers, partition, deliver_at"


def write(database, *rows):
    """One transaction; rows: (key, seconds from now); returns [(id, created_at in µs), …]."""
    return database.execute(
        "INSERT INTO outbox.message (topic, key, payload, deliver_at) "
        "SELECT 't', r ->> 0, 'x', "
        "clock_timestamp() + (r ->> 1)::float8 * interval '1 s' "
        "FROM jsonb_array_elements(%s) r "
        "RETURNING id, (extract(epoch FROM created_at) * 1000000)::bigint", (json.dumps(rows),))


def noted(reader, rows, closed=1):
    scheduled = [[*row, reader.first_tick + 1] for row in rows]
    reader.tick(closed=closed, must_write=True, may_open=False, parks=json.dumps(
        {"rows": [], "scheduled": scheduled, "first_ms": 0, "max_ms": 0, "max_attempts": 3}))


def scheduled(reader, database, *rows):
    """Rows that stand in outbox.scheduled, their window published to its end; their ids."""
    written = write(database, *rows)
    assert len(reader.tick()) == len(rows)
    noted(reader, written)
    return [row[0] for row in written]


def listed(reader, **more):
    return [row.id for row in reader.tick(may_list=True, **more)]


def is_published(reader):
    reader.tick(closed=1, must_write=True, may_open=False)


def waiting(database):
    return [row[0] for row in database.execute("SELECT id FROM outbox.scheduled ORDER BY id")]


def wait_ms(database, first_tick=100):
    return database.execute(f"SELECT outbox.listed_wait('ticks', 0, {first_tick}, 0, null)")[0][0]


def many(database, count, deliver_at, keys=3, publisher="ticks", first=1_000_000):
    """Rows of which the messages are gone; deliver_at: of the number i."""
    database.execute(
        "INSERT INTO outbox.scheduled (publisher, shard, id, created_at, event_id, topic, key, deliver_at, "
        f"tick) SELECT '{publisher}', 0, {first} + i, now(), gen_random_uuid(), 't', "
        f"convert_to('k' || i %% {keys}, 'UTF8'), {deliver_at}, 0 "
        "FROM generate_series(1, %s) i; ANALYZE outbox.scheduled", (count,))


def test_scheduled_rows_are_full_copies(reader, database):
    ids = scheduled(reader, database, ["a", 100], ["b", -1])
    assert waiting(database) == ids
    assert database.execute(f"SELECT {COLUMNS} FROM outbox.scheduled ORDER BY id") == \
        database.execute("SELECT id, created_at, event_id, topic, convert_to(key, 'UTF8'), convert_to(payload, 'UTF8'),"
                         " headers, partition, deliver_at FROM outbox.message ORDER BY id")


def test_what_is_due_is_listed_by_id_and_goes_with_the_end_of_the_window(reader, database):
    ids = scheduled(reader, database, ["a", -1], ["a", 100], ["a", -2], ["b", -3])
    assert listed(reader) == [ids[0], ids[2], ids[3]]
    is_published(reader)
    assert waiting(database) == [ids[1]]
    assert listed(reader) == []
    assert 60_000 < wait_ms(database) <= 100_000


def test_progress_inside_a_listed_window_lets_go_what_it_covers(reader, database):
    ids = scheduled(reader, database, ["a", -1], ["b", -1], ["c", -1])
    assert listed(reader) == ids
    reader.tick(closed=0, new_acked_id=ids[1], must_write=True, may_open=False)
    assert waiting(database) == ids[2:]


def test_rows_of_an_open_window_are_not_listed_and_noting_them_again_changes_nothing(reader, database):
    written = write(database, ["a", -1])
    reader.tick()
    noted(reader, written, closed=0)
    before = database.execute("SELECT * FROM outbox.scheduled")
    noted(reader, written, closed=0)
    assert database.execute("SELECT * FROM outbox.scheduled") == before
    assert listed(reader, closed=0) == []
    assert 0 < wait_ms(database, first_tick=0) <= 50
    is_published(reader)
    assert listed(reader) == [written[0][0]]


def test_a_tick_that_closes_a_window_says_that_its_rows_are_due(reader, database):
    """An owner that drains stops when nothing is due: it must not be told of a wait that is over."""
    written = write(database, ["a", -1])
    reader.tick()
    noted(reader, written, closed=0)
    statement, values = reader.tick_call(may_list=True, may_open=False, must_write=True, closed=1)
    reader.cursor.execute(statement.replace("SELECT ", "SELECT due_ms, ", 1), values)
    assert [row[:2] for row in reader.cursor.fetchall()] == [(0, "noted")]


def test_rows_come_back_as_they_were(reader, database):
    database.execute(
        "INSERT INTO outbox.message (topic, key, payload, headers, partition, deliver_at) VALUES "
        "('t', null, null, '{\"a\": 1}', 3, now() - interval '1 s')")
    row, = reader.tick()
    created, = database.execute(
        "SELECT (extract(epoch FROM created_at) * 1000000)::bigint FROM outbox.message")[0]
    noted(reader, [[row.id, created]])
    database.execute("DELETE FROM outbox.message")
    assert reader.tick(may_list=True) == [row]


@pytest.mark.parametrize("max_rows", [2, 1000])
def test_the_order_of_a_key_among_those_due_does_not_depend_on_their_number(
        reader, database, chance, max_rows):
    """Due times are random: the sooner of a key need not be the one that was written first."""
    rows = [[chance.choice("abc"), -chance.uniform(1, 1000)] for _ in range(20 * min(max_rows, 50))]
    ids = scheduled(reader, database, *rows)
    came = []
    while waiting(database):
        came += listed(reader, max_rows=max_rows)
        is_published(reader)
    assert came == ids


@pytest.mark.parametrize("deliver_at, due", [
    ("now() - (random() * 100) * interval '1 s'", 20_000),  # all of them
    # those with the largest ids only
    ("now() + case when i > 15000 then - random() else 1 end * interval '1 day'", 5000)])
def test_many_due_rows_come_by_id(reader, database, deliver_at, due):
    many(database, 20_000, deliver_at)
    expected = [row[0] for row in database.execute(
        "SELECT id FROM outbox.scheduled WHERE deliver_at <= now() ORDER BY id")]
    assert len(expected) == due
    came = []
    while len(came) < due:
        page = listed(reader, max_rows=500)
        assert 0 < len(page) <= 500
        came += page
        is_published(reader)
    assert came == expected


def test_a_list_is_bounded_in_bytes_but_has_a_row(reader, database):
    many(database, 10, "now()")
    database.execute("UPDATE outbox.scheduled SET payload = convert_to(repeat('x', 5000), 'UTF8')")
    assert len(listed(reader, max_bytes=13_000)) == 2
    is_published(reader)
    assert len(listed(reader, max_bytes=10)) == 1


def test_parked_and_scheduled_rows_share_a_list(reader, database):
    ids = scheduled(reader, database, ["a", -1], ["b", -1])
    database.execute("INSERT INTO outbox.message (topic, key, payload) VALUES ('t', 'c', 'x')")
    refused, = reader.tick()
    reader.tick(closed=1, must_write=True, may_open=False, parks=json.dumps(
        {"rows": [[refused.id, created_us(database, refused.id), "bad", reader.first_tick + 1]],
         "first_ms": 0, "max_ms": 0, "max_attempts": 3}))
    assert listed(reader) == [*ids, refused.id]
    is_published(reader)
    assert waiting(database) == []
    assert database.execute("SELECT count(*) FROM outbox.parked") == [(0,)]


def created_us(database, row_id):
    return database.execute("SELECT (extract(epoch FROM created_at) * 1000000)::bigint "
                            f"FROM outbox.message WHERE id = {row_id}")[0][0]


def test_a_due_row_that_is_refused_moves_to_the_parked_ones_though_its_message_is_gone(
        reader, database):
    first, second = scheduled(reader, database, ["a", -1], ["a", -1])
    assert listed(reader) == [first, second]
    created = [created_us(database, row) for row in (first, second)]
    database.execute("DELETE FROM outbox.message")
    rows = [[first, created[0], "too large", reader.first_tick + 1],
            [second, created[1], None, reader.first_tick + 1]]
    reader.tick(closed=0, must_write=True, may_open=False, parks=json.dumps(
        {"rows": rows, "first_ms": 0, "max_ms": 0, "max_attempts": 3}))
    is_published(reader)
    assert waiting(database) == []
    assert database.execute("SELECT id, state, error FROM outbox.parked ORDER BY id") == [
        (first, "waiting", "too large"), (second, "behind", None)]


def test_states_of_messages_show_those_that_wait(reader, database):
    scheduled(reader, database, ["a", 100])
    assert database.execute("SELECT state FROM outbox.message_state WHERE publisher = 'ticks'") == [
        ("scheduled",)]


def test_a_publisher_that_goes_takes_its_rows_with_it(reader, database):
    scheduled(reader, database, ["a", 100])
    many(database, 1, "now()", publisher="other")
    database.execute("SELECT outbox.publisher_drop('ticks')")
    assert database.execute("SELECT publisher FROM outbox.scheduled") == [("other",)]


def test_the_shards_of_a_split_publisher_share_them(database):
    reader = Ticks(database.dsn)
    scheduled(reader, database, *[[f"key-{i}", -1] for i in range(20)])
    database.execute("SELECT outbox.publisher_split_begin('ticks', 3)")
    database.execute("SELECT outbox.publisher_split_bound('ticks')")
    reader.tick()
    is_published(reader)
    assert database.execute("SELECT outbox.publisher_split_finish('ticks')") == [(0,)]
    assert database.execute("SELECT bool_and(shard = outbox.shard_of(key, 3)), count(DISTINCT shard) "
                            "FROM outbox.scheduled") == [(True, 3)]
    reader.close()


def list_ends(database):
    """Of each list the log row's `due`: (id, µs since 1970)."""
    return [row for row, in database.execute(
        "SELECT due[:2] FROM outbox.log WHERE publisher = 'ticks' AND listed_tick IS NOT NULL ORDER BY n")]


def drain(reader, count, **more):
    """The lists that publish so many rows."""
    lists = []
    while sum(map(len, lists)) < count:
        lists.append(listed(reader, **more))
        if lists[-1]:
            is_published(reader)
    return lists


@pytest.mark.parametrize("ids", ["i", "i * 3001", "(i * 7919) % 4001 * 5000011"],
                         ids=["dense", "sparse", "scattered"])
def test_each_list_has_the_smallest_ids_of_all_that_are_due_at_its_moment(
        reader, database, chance, ids):
    """Rows become due while others are listed; those of the far future stand between them."""
    database.execute(
        "INSERT INTO outbox.scheduled (publisher, shard, id, created_at, event_id, topic, deliver_at, tick) "
        f"SELECT 'ticks', 0, {ids}, now(), gen_random_uuid(), 't', clock_timestamp() + CASE "
        "WHEN i % 3 = 0 THEN interval '1 day' ELSE (random() * 4 - 2) * interval '1 s' END, 0 "
        "FROM generate_series(1::bigint, 4000) i")
    rows = database.execute("SELECT id, (extract(epoch FROM deliver_at) * 1000000)::bigint "
                            "FROM outbox.scheduled WHERE deliver_at < now() + interval '1 hour'")
    lists = drain(reader, len(rows), max_rows=chance.choice([20, 100]))
    ends = list_ends(database)
    lists = [page for page in lists if page]
    assert len(ends) == len(lists) > 25
    for page, (_, horizon) in zip(lists, ends):
        due = sorted(row for row, at in rows if at <= horizon)
        assert page == due[:len(page)]
        rows = [row for row in rows if row[0] not in page]
    assert rows == []


def test_a_row_that_comes_late_is_listed_in_front_of_the_place_where_the_last_list_ended(
        reader, database):
    late = database.connect(autocommit=False)
    with late.cursor() as cursor:
        cursor.execute("INSERT INTO outbox.message (topic, deliver_at) VALUES ('t', now()) RETURNING "
                       "id, (extract(epoch FROM created_at) * 1000000)::bigint")
        row = cursor.fetchone()
    ids = scheduled(reader, database, ["a", -1], ["b", -1], ["c", -1])
    assert listed(reader, max_rows=2) == ids[:2]
    is_published(reader)
    late.commit()
    late.close()
    assert [found.id for found in reader.tick()] == [row[0]]
    noted(reader, [row])
    assert listed(reader) == [row[0], ids[2]]


def test_rows_of_an_open_window_are_not_passed_for_good(reader, database):
    first = write(database, ["a", -1], ["a", -1])
    reader.tick()
    noted(reader, first, closed=0)
    many(database, 5, "now()")
    assert listed(reader, closed=0) == [1_000_001, 1_000_002, 1_000_003, 1_000_004, 1_000_005]
    assert reader.verdict == "listed"
    reader.tick(closed=2, must_write=True, may_open=False)
    assert listed(reader) == [row[0] for row in first]


def test_what_is_changed_by_hand_is_seen_at_once(reader, database):
    ids = scheduled(reader, database, ["a", 100], ["a", -1], ["a", 200])
    assert listed(reader) == [ids[1]]
    is_published(reader)
    before, = database.execute("SELECT requests FROM outbox.publisher WHERE name = 'ticks'")
    database.execute("UPDATE outbox.scheduled SET deliver_at = now() - interval '1 day' WHERE id = %s",
                     (ids[0],))
    after, = database.execute("SELECT requests FROM outbox.publisher WHERE name = 'ticks'")
    assert after > before
    assert listed(reader) == [ids[0]]


def test_a_new_owner_knows_where_the_last_list_ended(reader, database):
    ids = scheduled(reader, database, ["a", -1], ["b", -1])
    assert listed(reader, max_rows=1) == ids[:1]
    is_published(reader)
    end = database.execute("SELECT due FROM outbox.log ORDER BY n DESC LIMIT 1")[0][0]
    assert end[0] == ids[1]
    other = Ticks(database.dsn, create=False)
    assert database.execute("SELECT due FROM outbox.log ORDER BY n DESC LIMIT 1")[0][0] == end
    assert listed(other) == ids[1:]
    other.close()


class Looks:
    """What statements of the owner touch, under the settings of outbox.tick."""

    def __init__(self, reader):
        self.cursor = reader.cursor
        self.cursor.execute("SET enable_seqscan = off; SET enable_bitmapscan = off; SET jit = off; "
                            "SET plan_cache_mode = force_generic_plan")

    def buffers(self, call):
        for _ in range(2):  # the first one reads the catalogues
            self.cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT {call}")
        plan = self.cursor.fetchall()[0][0][0]["Plan"]
        return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]

    def of_list(self, due="null", rows=1000):
        return self.buffers(f"outbox.scheduled_next('ticks', 0, 100, {rows}, 10000000, 0, {due})")

    def of_wait(self, due="null"):
        return self.buffers(f"outbox.listed_wait('ticks', 0, 100, 0, {due})")


@pytest.fixture
def looks(reader, database):
    # statistics of other tests' rows must not matter, nor a vacuum in the middle
    database.execute("ALTER TABLE outbox.scheduled SET (autovacuum_enabled = false)")
    return Looks(reader)


def end_of(database):
    due, = database.execute("SELECT due FROM outbox.log ORDER BY n DESC LIMIT 1")[0]
    return f"'{{{','.join(map(str, due))}}}'"


def test_millions_that_wait_cost_a_look_nothing(reader, database, looks, scale):
    """Neither a list of the few that are due nor the time of the next one reads those that wait."""
    many(database, scale(1_000_000), "now() + i * interval '1 s' + interval '1 h'")
    ids = scheduled(reader, database, ["a", -1], ["b", -1])
    database.execute("VACUUM outbox.scheduled")
    assert looks.of_list() < 100
    assert looks.of_wait() < 100
    assert listed(reader) == ids
    assert looks.of_list(end_of(database)) < 100
    assert looks.of_wait(end_of(database)) < 100


LIST_BUFFERS = 10_000  # of 1,000 rows: their index entries, their heap pages, and those of the next ones


@pytest.mark.rotated
@pytest.mark.parametrize("analyzed", [True, False], ids=["analyzed", "never_analyzed"])
@pytest.mark.parametrize("ids, deliver_at", [
    # behind the far future, by id
    ("i", "case when i < {n} / 2 then interval '1 day' else - random() * interval '1 h' end"),
    # the same in a thousand regions of ids
    ("i * {regions}", "case when i < {n} / 2 then interval '1 day' else - random() * interval '1 h' end"),
    # between them: one of ten
    ("i", "case when i % 10 > 0 then interval '1 day' else - random() * interval '1 h' end"),
    # and one of ten in ids of which hardly one is scheduled
    ("i * 997", "case when i % 10 > 0 then interval '1 day' else - random() * interval '1 h' end")],
    ids=["behind", "behind_in_regions", "between", "between_sparse"])
def test_a_list_costs_what_it_has_whatever_waits(reader, database, looks, scale, ids, deliver_at, analyzed):
    count = scale(2_000_000)
    database.execute(
        "INSERT INTO outbox.scheduled (publisher, shard, id, created_at, event_id, topic, deliver_at, tick) "
        f"SELECT 'ticks', 0, {ids.format(regions=1600 * 2**22 // count)}, now(), gen_random_uuid(), "
        f"'t', now() + {deliver_at.format(n=count)}, 0 FROM generate_series(1::bigint, {count}) i")
    database.execute("VACUUM ANALYZE outbox.scheduled" if analyzed else "VACUUM outbox.scheduled")
    assert looks.of_list() < 2 * LIST_BUFFERS  # with a look at the first 8,000 by time
    for _ in range(3):
        assert len(listed(reader)) > 100
        is_published(reader)
    assert looks.of_list(end_of(database)) < LIST_BUFFERS
    assert looks.of_wait(end_of(database)) < 100


def test_a_look_goes_on_where_the_one_before_ended_among_regions_without_a_due_row(
        reader, database, looks):
    database.execute(
        "INSERT INTO outbox.scheduled (publisher, shard, id, created_at, event_id, topic, deliver_at, tick) "
        "SELECT 'ticks', 0, i << 22, now(), gen_random_uuid(), 't', now() + "
        "CASE WHEN i > 9500 THEN '-1 h' ELSE '1 h' END::interval, 0 FROM generate_series(1::bigint, 20000) i")
    assert looks.of_list() < 2 * LIST_BUFFERS
    written = reader.n
    lists = drain(reader, 3000)
    assert len(lists) < 20
    assert [row for page in lists for row in page] == [i << 22 for i in range(9501, 12501)]
    assert reader.n - written <= 2 * len(lists)


def test_rows_that_were_listed_cost_the_next_list_nothing(reader, database, looks, scale):
    """A transaction that is open elsewhere keeps their index entries alive: a list meets those of one block."""
    many(database, scale(200_000), "now() - random() * interval '1 h'")
    database.execute("VACUUM ANALYZE outbox.scheduled")
    old = database.connect(autocommit=False)
    old.cursor().execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM outbox.publisher")
    drain(reader, 1000)
    first = looks.of_list(end_of(database))
    drain(reader, scale(200_000) * 9 // 10)
    assert looks.of_list(end_of(database)) < first + 4096
    assert looks.of_wait(end_of(database)) < 100
    old.close()


def test_many_rows_of_an_open_window_are_not_read_with_every_look(reader, database, looks, scale):
    many(database, scale(200_000), "now() - random() * interval '1 h'")
    database.execute("UPDATE outbox.scheduled SET tick = 101")
    database.execute("VACUUM ANALYZE outbox.scheduled")
    assert looks.of_list() < 2 * LIST_BUFFERS


@pytest.mark.parametrize("deliver_at", ["interval '1 s'", "random() * interval '1 h'"],
                         ids=["at_once", "one_by_one"])
def test_the_far_future_in_front_of_the_due_ones_slows_no_drain(database, scale, deliver_at):
    """Rates in turns: one publisher has such rows, the other has not."""
    count, chunk = scale(20_000_000, 20_000), 5_000
    publishers = {"behind": 20_000, "alone": 0}
    readers = {}
    for publisher, front in publishers.items():
        readers[publisher] = Ticks(database.dsn, publisher=publisher)
        many(database, front, "now() + interval '30 days' + i * interval '1 s'", publisher=publisher, first=0)
        many(database, count, f"now() - {deliver_at}", publisher=publisher)
    database.execute("VACUUM ANALYZE outbox.scheduled")
    ratios = []
    for _ in range(min(count // chunk, 40)):
        seconds = {}
        for publisher in sorted(publishers, reverse=len(ratios) % 2):
            began = time.perf_counter()
            drain(readers[publisher], chunk)
            seconds[publisher] = time.perf_counter() - began
        ratios.append(seconds["alone"] / seconds["behind"])
    for reader in readers.values():
        reader.close()
    print(f"{count} due rows: {statistics.median(ratios):.2f} of the rate without rows of the far future")
    # today's figure is above 0.9: the rest is for a machine that does other things as well
    assert statistics.median(ratios) > 0.7, ratios
