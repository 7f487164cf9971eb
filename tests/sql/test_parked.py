"""What a log row does to outbox.parked: refusals in, listed windows out."""

import json
import os

import psycopg2
import pytest

ROWS = "SELECT id, state, attempts, error, tick FROM outbox.parked ORDER BY id"


def write(database, *keys):
    """One transaction; returns [(id, created_at in µs), …]."""
    return database.execute(
        "INSERT INTO outbox.message (topic, key, payload) "
        "SELECT 't', convert_to(key, 'UTF8'), 'x' FROM unnest(%s::text[]) key "
        "RETURNING id, (extract(epoch FROM created_at) * 1000000)::bigint", (list(keys),))


def parks(reader, rows, errors, **limits):
    """rows: what write gave; errors: for each of them a text or None."""
    return json.dumps({"rows": [[row[0], row[1], error, reader.first_tick + 1]
                                for row, error in zip(rows, errors)],
                       "first_ms": 0, "max_ms": 0, "max_attempts": 3, **limits})


def opened(reader, database, *keys):
    """A window with a row of each key is open."""
    rows = write(database, *keys)
    assert len(reader.tick()) == len(keys)
    return rows


def park(reader, rows, errors, closed=1, **limits):
    reader.tick(closed=closed, must_write=True, may_open=False,
                parks=parks(reader, rows, errors, **limits))


def listed(reader, **more):
    """The ids of the listed window that opens; [] when none does."""
    return [row.id for row in reader.tick(may_list=True, **more)]


def states(database):
    return [(row[0], row[1]) for row in database.execute(ROWS)]


def test_refused_rows_are_full_copies_and_those_behind_them_wait(reader, database):
    rows = opened(reader, database, "a", "a", "b")
    park(reader, rows, ["too large", None, "bad"])
    assert database.execute(ROWS) == [
        (rows[0][0], "waiting", 1, "too large", 1), (rows[1][0], "behind", 0, None, 1),
        (rows[2][0], "waiting", 1, "bad", 1)]
    columns = "id, created_at, event_id, topic, key, payload, headers, partition"
    assert database.execute(f"SELECT {columns} FROM outbox.parked ORDER BY id") == \
        database.execute(f"SELECT {columns} FROM outbox.message ORDER BY id")


def test_what_waits_for_a_partition_that_takes_nothing_keeps_its_shard(reader, database):
    """What was sent to it may be there, and only this shard knows from where on to look."""
    reader.tick(must_write=True, may_open=False)
    stalls = """INSERT INTO outbox.parked (slot, shard, id, created_at, event_id, topic, tick, state,
        stalled, attempts, next_at) VALUES ('ticks', 0, 1, now(), gen_random_uuid(), 't', 1, %s, %s, 0, now())"""
    begin, finish = "SELECT outbox.slot_split_begin('ticks', 2)", "SELECT outbox.slot_split_finish('ticks')"
    for state, partition in (("stalled", 3), ("free", 3), ("behind", 3)):
        database.execute(stalls, (state, partition))
        with pytest.raises(psycopg2.errors.RaiseException, match="1 parked rows wait for partition 3 of topic t"):
            database.execute(begin)
        database.execute("DELETE FROM outbox.parked")
    database.execute(stalls, ("stalled", -1))  # a missing topic has nothing of it
    database.execute(begin)
    database.execute("SELECT outbox.slot_split_bound('ticks')")
    reader.tick()
    reader.tick(closed=1, must_write=True, may_open=False)
    database.execute("UPDATE outbox.parked SET stalled = 3")  # meanwhile
    with pytest.raises(psycopg2.errors.RaiseException, match="parked rows wait"):
        database.execute(finish)
    database.execute("DELETE FROM outbox.parked")
    assert database.execute(finish) == [(0,)]


def test_a_listed_window_names_due_heads_and_they_go_with_its_end(reader, database):
    rows = opened(reader, database, "a", "a", "b")
    park(reader, rows, ["x", None, "x"])
    heads = [rows[0][0], rows[2][0]]
    assert listed(reader) == heads
    assert database.execute("SELECT listed_tick, listed_ids FROM outbox.progress p "
                            "JOIN outbox.log l USING (slot, shard, n) WHERE slot = 'ticks'") == [(2, heads)]
    reader.tick(closed=1, must_write=True, may_open=False)
    assert states(database) == [(rows[1][0], "free")]
    assert listed(reader) == [rows[1][0]]
    reader.tick(closed=1, must_write=True, may_open=False)
    assert states(database) == []


def test_a_row_that_is_refused_again_stays_and_its_followers_with_it(reader, database):
    rows = opened(reader, database, "a", "a")
    park(reader, rows, ["x", None])
    assert listed(reader) == [rows[0][0]]
    park(reader, rows[:1], ["y"], closed=0)
    reader.tick(closed=1, must_write=True, may_open=False)
    assert [row[:4] for row in database.execute(ROWS)] == [
        (rows[0][0], "waiting", 2, "y"), (rows[1][0], "behind", 0, None)]


def test_after_max_attempts_it_is_dead_and_not_listed(reader, database):
    rows = opened(reader, database, "a")
    park(reader, rows, ["x"])
    for _ in range(2):
        assert listed(reader) == [rows[0][0]]
        park(reader, rows, ["x"])
    assert states(database) == [(rows[0][0], "dead")]
    assert listed(reader) == []


def test_progress_inside_a_listed_window_lets_go_what_it_covers(reader, database):
    rows = opened(reader, database, "a", "b", "c")
    park(reader, rows, ["x"] * 3)
    assert len(listed(reader)) == 3
    reader.tick(closed=0, new_acked_id=rows[1][0], must_write=True, may_open=False)
    assert states(database) == [(rows[2][0], "waiting")]


def test_rows_of_an_open_window_are_not_listed(reader, database):
    """Who takes over reads them from that window again."""
    rows = opened(reader, database, "a")
    park(reader, rows, ["x"], closed=0)
    assert listed(reader, closed=0) == []
    reader.tick(closed=1, must_write=True, may_open=False)
    assert listed(reader) == [rows[0][0]]


def test_where_nothing_is_parked_nothing_is_due(reader, database):
    assert database.execute("SELECT outbox.parked_wait('ticks', 0, 100)") == [(None,)]
    rows = opened(reader, database, "a")
    park(reader, rows, ["x"], first_ms=60_000, max_ms=60_000)
    assert 20_000 < database.execute("SELECT outbox.parked_wait('ticks', 0, 100)")[0][0] <= 60_000
    park(reader, [], [], closed=0)
    database.execute("UPDATE outbox.parked SET state = 'dead'")
    assert database.execute("SELECT outbox.parked_wait('ticks', 0, 100)") == [(None,)]


def test_parking_a_row_twice_changes_nothing(reader, database):
    rows = opened(reader, database, "a", "a")
    park(reader, rows, ["x", None], closed=0)
    before = database.execute(ROWS)
    park(reader, rows, [None, None], closed=0)
    assert database.execute(ROWS) == before


def test_rows_that_come_when_their_head_has_gone_are_free(reader, database):
    rows = opened(reader, database, "a", "a")
    park(reader, rows, [None, None])
    assert states(database) == [(rows[0][0], "free"), (rows[1][0], "behind")]
    assert listed(reader) == [rows[0][0], rows[1][0]]


def test_a_row_that_comes_late_stands_where_its_id_does(reader, database):
    """As one that waited for its deliver_at may; listed windows go by id as well."""
    early = opened(reader, database, "a")
    later = opened(reader, database, "a", "a")
    park(reader, later, ["x", None], closed=2)
    park(reader, early, [None], closed=0)
    assert states(database) == [
        (early[0][0], "free"), (later[0][0], "waiting"), (later[1][0], "behind")]
    assert listed(reader) == [early[0][0], later[0][0]]
    park(reader, early, ["y"], closed=0)
    reader.tick(closed=1, must_write=True, may_open=False)
    assert states(database) == [(early[0][0], "waiting"), (later[1][0], "behind")]


def test_a_free_row_is_behind_again_when_one_in_front_of_it_is_refused(reader, database):
    early = opened(reader, database, "a")
    later = opened(reader, database, "a", "a", "a")
    park(reader, later, [None, None, None], closed=2)
    park(reader, early, ["x"], closed=0)
    assert states(database)[:2] == [(early[0][0], "waiting"), (later[0][0], "free")]
    assert listed(reader) == [row[0] for row in (*early, *later)]
    # two of them were read and held; the third was not read yet
    park(reader, [*early, *later[:2]], ["y", None, None], closed=0)
    reader.tick(closed=1, must_write=True, may_open=False)
    assert [state for _, state in states(database)] == ["waiting", "behind", "behind", "behind"]
    assert listed(reader) == [early[0][0]]
    reader.tick(closed=1, must_write=True, may_open=False)
    assert listed(reader) == [row[0] for row in later]


def test_rows_without_a_key_do_not_wait_for_each_other(reader, database):
    rows = opened(reader, database, None, None)
    park(reader, rows, ["x", "x"])
    assert listed(reader) == [rows[0][0], rows[1][0]]


def test_a_skipped_head_frees_those_behind_it(reader, database):
    rows = opened(reader, database, "a", "a", "b")
    park(reader, rows, ["x", None, "x"], max_attempts=1)
    database.execute("UPDATE outbox.parked SET request = 'skip' WHERE state = 'dead'")
    assert listed(reader) == [rows[1][0]]
    assert states(database) == [(rows[1][0], "free")]


def test_an_operators_retry_begins_the_attempts_anew(reader, database):
    rows = opened(reader, database, "a")
    park(reader, rows, ["x"], max_attempts=1)
    database.execute("UPDATE outbox.parked SET request = 'retry'")
    assert listed(reader) == [rows[0][0]]
    assert database.execute("SELECT attempts, request FROM outbox.parked") == [(0, None)]


def test_the_back_off_doubles_up_to_its_cap(reader, database):
    rows = opened(reader, database, "a")
    waits = []
    park(reader, rows, ["x"], first_ms=1000, max_ms=6000, max_attempts=100)
    for _ in range(6):
        waits += database.execute(  # since the row of the log that parked it
            "SELECT extract(epoch FROM next_at - written_at)::float8 "
            "FROM outbox.parked JOIN outbox.progress USING (slot, shard)")[0]
        park(reader, rows, ["x"], closed=0, first_ms=1000, max_ms=6000, max_attempts=100)
    for wait, whole in zip(waits, [1, 2, 4, 6, 6, 6]):
        assert whole / 2 - 0.5 < wait <= whole + 0.5, waits


def test_a_list_is_bounded_by_bytes_and_rows(reader, database):
    rows = opened(reader, database, *"abcdef")
    park(reader, rows, ["x"] * 6)
    assert listed(reader, max_bytes=2500) == [row[0] for row in rows[:2]]
    reader.tick(closed=1, must_write=True, may_open=False)
    assert listed(reader, max_rows=3) == [row[0] for row in rows[2:5]]
    reader.tick(closed=1, must_write=True, may_open=False)
    assert listed(reader, max_bytes=1) == [rows[5][0]]  # one always


def test_who_takes_over_is_told_of_the_listed_window(reader, database):
    rows = opened(reader, database, "a")
    park(reader, rows, ["x"])
    assert listed(reader) == [rows[0][0]]
    with database.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT listed_tick, parked, windows FROM outbox.take("
                       "'ticks', 0, 1, 5, 'by hand', 60000, 1)")
        assert cursor.fetchone() == (2, True, 1)
        cursor.execute("SELECT listed FROM outbox.window_bounds('ticks', 0, "
                       "(SELECT max(n) FROM outbox.log WHERE slot = 'ticks'), 5, 2)")
        assert cursor.fetchone() == ("{%d}" % rows[0][0],)


def test_what_is_behind_one_that_is_refused_again_leaves_the_list_with_it(reader, database):
    """Who takes over when only the first of them is noted would send the others in front of it."""
    rows = opened(reader, database, "a", "a", "b")
    park(reader, rows, ["x", None, "x"])
    database.execute("UPDATE outbox.parked SET state = 'free' WHERE id = %s", (rows[0][0],))
    assert listed(reader) == [row[0] for row in rows]
    park(reader, rows[:1], ["x again"], closed=0)
    assert database.execute("SELECT listed_ids FROM outbox.log ORDER BY n DESC LIMIT 1") == [
        ([rows[2][0]],)]
    assert states(database) == [(rows[0][0], "waiting"), (rows[1][0], "behind"),
                                (rows[2][0], "waiting")]


@pytest.mark.parametrize("length", [2700, 2704, 5000, 8192])
def test_a_long_key_has_a_queue_like_any_other(reader, database, length):
    """Random bytes do not shrink, and an index takes no value of more than 2,704."""
    keys = [os.urandom(length), os.urandom(length)]
    rows = database.execute(
        "INSERT INTO outbox.message (topic, key) SELECT 't', key FROM unnest(%s::bytea[]) key "
        "RETURNING id, (extract(epoch FROM created_at) * 1000000)::bigint", ([keys[0], *keys],))
    assert len(reader.tick()) == 3
    park(reader, rows, ["x", None, "y"])
    assert [state for _, state in states(database)] == ["waiting", "behind", "waiting"]
    assert listed(reader) == [rows[0][0], rows[2][0]]
    reader.tick(closed=1, must_write=True, may_open=False)
    assert listed(reader) == [rows[1][0]]


def test_a_long_key_is_scheduled(reader, database):
    rows = database.execute(
        "INSERT INTO outbox.message (topic, key, deliver_at) VALUES ('t', %s, now()) "
        "RETURNING id, (extract(epoch FROM created_at) * 1000000)::bigint", (os.urandom(8192),))
    reader.tick()
    reader.tick(closed=1, must_write=True, may_open=False, parks=json.dumps(
        {"rows": [], "scheduled": [[*rows[0], reader.first_tick + 1]]}))
    assert listed(reader) == [rows[0][0]]


def test_two_queues_of_one_digest_do_not_wait_for_each_other(reader, database):
    database.execute("CREATE OR REPLACE FUNCTION outbox.parked_digest(topic text, key bytea) RETURNS bigint "
                     "LANGUAGE sql IMMUTABLE STRICT AS 'SELECT 7::bigint'")
    rows = opened(reader, database, "a", "b", "a", "b")
    park(reader, rows, ["x", "x", None, None])
    assert listed(reader) == [rows[0][0], rows[1][0]]
    park(reader, rows[1:2], ["y"], closed=0)
    reader.tick(closed=1, must_write=True, may_open=False)
    assert [state for _, state in states(database)] == ["waiting", "free", "behind"]
    assert listed(reader) == [rows[1][0], rows[2][0]]
