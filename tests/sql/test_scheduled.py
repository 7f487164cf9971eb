"""What a log row does to outbox.scheduled: rows with a deliver_at in, listed windows out."""

import json

import pytest

from support.windows import Ticks

COLUMNS = "id, created_at, event_id, topic, key, payload, headers, partition, deliver_at"


def write(database, *rows):
    """One transaction; rows: (key, seconds from now); returns [(id, created_at in µs), …]."""
    return database.execute(
        "INSERT INTO outbox.message (topic, key, payload, deliver_at) "
        "SELECT 't', convert_to(r ->> 0, 'UTF8'), 'x', "
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
    return database.execute(f"SELECT outbox.listed_wait('ticks', 0, {first_tick})")[0][0]


def many(database, count, deliver_at, keys=3, slot="ticks", first=1_000_000):
    """Rows of which the messages are gone; deliver_at: of the number i."""
    database.execute(
        "INSERT INTO outbox.scheduled (slot, shard, id, created_at, event_id, topic, key, deliver_at, "
        f"tick) SELECT '{slot}', 0, {first} + i, now(), gen_random_uuid(), 't', "
        f"convert_to('k' || i %% {keys}, 'UTF8'), {deliver_at}, 0 "
        "FROM generate_series(1, %s) i; ANALYZE outbox.scheduled", (count,))


def test_scheduled_rows_are_full_copies(reader, database):
    ids = scheduled(reader, database, ["a", 100], ["b", -1])
    assert waiting(database) == ids
    assert database.execute(f"SELECT {COLUMNS} FROM outbox.scheduled ORDER BY id") == \
        database.execute(f"SELECT {COLUMNS} FROM outbox.message ORDER BY id")


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
    assert database.execute("SELECT state FROM outbox.message_state WHERE slot = 'ticks'") == [
        ("scheduled",)]


def test_a_slot_that_goes_takes_its_rows_with_it(reader, database):
    scheduled(reader, database, ["a", 100])
    many(database, 1, "now()", slot="other")
    database.execute("SELECT outbox.slot_drop('ticks')")
    assert database.execute("SELECT slot FROM outbox.scheduled") == [("other",)]


def test_the_shards_of_a_split_slot_share_them(database):
    reader = Ticks(database.dsn)
    scheduled(reader, database, *[[f"key-{i}", -1] for i in range(20)])
    database.execute("SELECT outbox.slot_split_begin('ticks', 3)")
    database.execute("SELECT outbox.slot_split_bound('ticks')")
    reader.tick()
    is_published(reader)
    assert database.execute("SELECT outbox.slot_split_finish('ticks')") == [(0,)]
    assert database.execute("SELECT bool_and(shard = outbox.shard_of(key, 3)), count(DISTINCT shard) "
                            "FROM outbox.scheduled") == [(True, 3)]
    reader.close()


def test_millions_that_wait_cost_a_look_nothing(reader, database, scale):
    """Neither a list of the few that are due nor the time of the next one reads those that wait."""
    many(database, scale(1_000_000), "now() + i * interval '1 s' + interval '1 h'")
    ids = scheduled(reader, database, ["a", -1], ["b", -1])
    database.execute("VACUUM outbox.scheduled")

    def buffers(call):
        for _ in range(2):  # the first one reads the catalogues
            reader.cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT {call}")
        plan = reader.cursor.fetchall()[0][0][0]["Plan"]
        return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]

    # outbox.tick looks under these settings
    reader.cursor.execute("SET enable_seqscan = off; SET enable_bitmapscan = off; "
                          "SET plan_cache_mode = force_generic_plan")
    assert buffers("outbox.scheduled_next('ticks', 0, 100, 1000, 1000000)") < 100
    assert buffers("outbox.listed_wait('ticks', 0, 100)") < 100
    assert listed(reader) == ids
