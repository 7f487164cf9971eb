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
        "SELECT 't', key, 'x' FROM unnest(%s::text[]) key "
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


def ask(database, verb, **chosen):
    """What an operator's verb notes."""
    database.execute("SELECT outbox.parked_request('ticks', %s, %s, 'ticket 7', 0)", (verb, json.dumps(chosen)))


def request(database, number=1):
    columns = "looked, done, published, refused, ended_at IS NOT NULL"
    return database.execute(f"SELECT {columns} FROM outbox.parked_request WHERE id = %s ORDER BY shard", (number,))


def states(database):
    return [(row[0], row[1]) for row in database.execute(ROWS)]


def test_refused_rows_are_full_copies_and_those_behind_them_wait(reader, database):
    rows = opened(reader, database, "a", "a", "b")
    park(reader, rows, ["too large", None, "bad"])
    assert database.execute(ROWS) == [
        (rows[0][0], "waiting", 1, "too large", 1), (rows[1][0], "behind", 0, None, 1),
        (rows[2][0], "waiting", 1, "bad", 1)]
    columns = "id, created_at, event_id, topic, key, payload, headers, partition"
    assert database.execute(f"SELECT {columns} FROM outbox.parked ORDER BY id") == database.execute(
        "SELECT id, created_at, event_id, topic, convert_to(key, 'UTF8'), convert_to(payload, 'UTF8'), headers,"
        " partition FROM outbox.message ORDER BY id")


def test_what_waits_for_a_partition_that_takes_nothing_keeps_its_shard(reader, database):
    """What was sent to it may be there, and only this shard knows from where on to look."""
    reader.tick(must_write=True, may_open=False)
    stalls = """INSERT INTO outbox.parked (publisher, shard, id, created_at, event_id, topic, tick, state,
        stalled, attempts, next_at) VALUES ('ticks', 0, 1, now(), gen_random_uuid(), 't', 1, %s, %s, 0, now())"""
    begin, finish = "SELECT outbox.publisher_split_begin('ticks', 2)", "SELECT outbox.publisher_split_finish('ticks')"
    for state, partition in (("stalled", 3), ("free", 3), ("behind", 3)):
        database.execute(stalls, (state, partition))
        with pytest.raises(psycopg2.errors.RaiseException, match="1 parked rows wait for partition 3 of topic t"):
            database.execute(begin)
        database.execute("DELETE FROM outbox.parked")
    database.execute(stalls, ("stalled", -1))  # a missing topic has nothing of it
    database.execute(begin)
    database.execute("SELECT outbox.publisher_split_bound('ticks')")
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
    assert database.execute("SELECT listed_tick, listed_ids FROM outbox.progress WHERE publisher = 'ticks'") == [(2, heads)]
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


def test_a_published_list_leaves_in_pieces_after_a_late_tick(reader, database):
    """What is left goes with the next rows; nothing is listed before, and a new owner goes on with it."""
    rows = opened(reader, database, *"abcdef")
    park(reader, rows, ["x"] * 6)
    ids = [row[0] for row in rows]
    assert listed(reader) == ids
    reader.tick(closed=1, must_write=True, may_open=False, batch=1)
    assert states(database) == [(number, "waiting") for number in ids[2:]]
    assert listed(reader, may_open=False, batch=1) == []
    assert reader.verdict == "noted" and states(database) == [(number, "waiting") for number in ids[4:]]
    database.execute("UPDATE outbox.log SET lease_until = '-infinity'")
    reader.cursor.execute(
        "SELECT listed_tick, parked, windows, n FROM outbox.take('ticks', 0, 1, 7, 'x', 1000, 5)")
    listed_tick, parked, windows, reader.n = reader.cursor.fetchone()
    reader.nonce = 7
    assert (listed_tick, parked, windows) == (None, True, 0)
    assert listed(reader, may_open=False, batch=1) == []
    assert states(database) == []
    assert database.execute("SELECT listed_tick, listed_ids FROM outbox.log ORDER BY n DESC LIMIT 1") == [(None, None)]
    rows = opened(reader, database, "a")
    park(reader, rows, ["x"])
    assert listed(reader) == [rows[0][0]]


def test_a_split_waits_for_the_end_of_a_published_list(reader, database):
    rows = opened(reader, database, *"abcdefgh")
    park(reader, rows, ["x"] * 8)
    assert len(listed(reader)) == 8
    reader.tick(closed=1, must_write=True, may_open=False, batch=1)
    database.execute("SELECT outbox.publisher_split_begin('ticks', 2)")
    database.execute("SELECT outbox.publisher_split_bound('ticks')")
    reader.tick(closed=0, batch=1)
    reader.tick(closed=1, must_write=True, may_open=False, batch=1)
    assert len(states(database)) == 2
    assert database.execute("SELECT outbox.publisher_split_finish('ticks')") == [(1,)]
    reader.tick(closed=0, may_list=True)
    assert states(database) == []
    assert database.execute("SELECT outbox.publisher_split_finish('ticks')") == [(0,)]


def test_a_rebase_ends_a_published_list(reader, database):
    rows = opened(reader, database, *"abcd")
    park(reader, rows, ["x"] * 4)
    assert len(listed(reader)) == 4
    reader.tick(closed=1, must_write=True, may_open=False, batch=1)
    with database.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT outbox.rebase_carried()")
        cursor.execute("SELECT count(*) FROM outbox.parked")
        assert cursor.fetchone() == (0,)


@pytest.mark.parametrize("blocked", [9, 10, 35])
def test_due_rows_of_open_windows_starve_no_others(blocked, reader, database):
    """They are due first and may not be listed; a look comes to ten times as many rows as it may list."""
    old = opened(reader, database, "old")
    park(reader, old, ["x"])
    database.execute("UPDATE outbox.parked SET next_at = now() - interval '1 minute'")
    rows = opened(reader, database, *(f"k{i}" for i in range(blocked)))
    park(reader, rows, ["x"] * blocked, closed=0)
    database.execute("UPDATE outbox.parked SET next_at = now() - interval '1 hour' WHERE id <> %s", (old[0][0],))
    found = []
    for look in range(blocked // 10 + 1):
        assert not found, look
        found = listed(reader, closed=0, may_open=False, max_rows=1)
    assert found == [old[0][0]]
    # when a round is over the next one begins with the first
    reader.tick(closed=2, must_write=True, may_open=False)
    found = []
    for _ in range(2 * blocked):
        found += listed(reader, may_open=False, max_rows=1)
        reader.tick(must_write=True, may_open=False)
    assert sorted(found) == [row[0] for row in rows]


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


def test_a_row_that_became_free_goes_behind_one_that_is_parked_in_front_of_it(reader, database):
    """Its head had gone. Rows of its key with smaller ids were on their way to Kafka, and came back."""
    early = opened(reader, database, "a")
    later = opened(reader, database, "a", "a")
    park(reader, later, [None, None], closed=2)
    assert states(database) == [(later[0][0], "free"), (later[1][0], "behind")]
    park(reader, early, ["x"], closed=0)
    assert states(database) == [(early[0][0], "waiting"), (later[0][0], "behind"), (later[1][0], "behind")]
    assert listed(reader) == [early[0][0]]


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
    park(reader, early, [None], closed=0)
    assert states(database)[:2] == [(early[0][0], "free"), (later[0][0], "behind")]
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
    ask(database, "skip", state="dead")
    assert listed(reader) == [rows[1][0]]
    assert states(database) == [(rows[1][0], "free")]


def test_an_operators_retry_begins_the_attempts_anew(reader, database):
    rows = opened(reader, database, "a")
    park(reader, rows, ["x"], max_attempts=1)
    ask(database, "retry")
    assert listed(reader) == [rows[0][0]]
    assert database.execute("SELECT attempts FROM outbox.parked") == [(0,)]


def test_the_back_off_doubles_up_to_its_cap(reader, database):
    rows = opened(reader, database, "a")
    waits = []
    park(reader, rows, ["x"], first_ms=1000, max_ms=6000, max_attempts=100)
    for _ in range(6):
        waits += database.execute(  # since the row of the log that parked it
            "SELECT extract(epoch FROM next_at - written_at)::float8 "
            "FROM outbox.parked JOIN outbox.progress USING (publisher, shard)")[0]
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
        cursor.execute("SELECT listed FROM outbox.window_bounds('ticks', 0, 1, "
                       "(SELECT max(n) FROM outbox.log WHERE publisher = 'ticks'), 5, 2, NULL, 1, 1)")
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
        "INSERT INTO outbox.message (topic, key_bytes) SELECT 't', key FROM unnest(%s::bytea[]) key "
        "RETURNING id, (extract(epoch FROM created_at) * 1000000)::bigint", ([keys[0], *keys],))
    assert len(reader.tick()) == 3
    park(reader, rows, ["x", None, "y"])
    assert [state for _, state in states(database)] == ["waiting", "behind", "waiting"]
    assert listed(reader) == [rows[0][0], rows[2][0]]
    reader.tick(closed=1, must_write=True, may_open=False)
    assert listed(reader) == [rows[1][0]]


def test_a_long_key_is_scheduled(reader, database):
    rows = database.execute(
        "INSERT INTO outbox.message (topic, key_bytes, deliver_at) VALUES ('t', %s, now()) "
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


# --- in batches -----------------------------------------------------------------------------------


def stalled(reader, database, *keys):
    """Rows of these keys, each the head of its queue, that wait for a topic."""
    rows = opened(reader, database, *keys)
    reader.tick(closed=1, must_write=True, may_open=False, parks=json.dumps({
        "rows": [[*row, "the topic was missing", reader.first_tick + 1, -1] for row in rows],
        "first_ms": 0, "max_ms": 0, "max_attempts": 3}))
    return rows


def recover(reader, database, batch, *places):
    """What a tick answers of places that are there again."""
    reader.cursor.execute(*reader.tick_call(
        closed=0, must_write=True, may_open=False, batch=batch,
        parks=json.dumps({"rows": [], "recovered": places})))
    rows = reader.cursor.fetchall()
    reader.ticked(rows[-1][0])
    return [(row[4 - 1], row[7], row[1]) for row in rows if row[0] == "recovered"]


def test_rows_of_a_place_that_is_there_again_are_freed_in_batches(reader, database):
    rows = stalled(reader, database, *"abcde")
    ids = [row[0] for row in rows]
    assert recover(reader, database, 2, ["t", -1, 0]) == [("t", -1, ids[1])]
    assert [state for _, state in states(database)] == ["free"] * 2 + ["stalled"] * 3
    assert recover(reader, database, 2, ["t", -1, ids[1]]) == [("t", -1, ids[3])]
    assert recover(reader, database, 2, ["t", -1, ids[3]]) == [("t", -1, None)]
    assert {state for _, state in states(database)} == {"free"}


@pytest.mark.parametrize("place", [3, -1, -2], ids=["silent", "missing", "paused"])
def test_a_row_of_a_place_that_is_there_again_stays_behind_a_refused_one(reader, database, place):
    """The first one waited for its deliver_at, and so came later than the second."""
    first, second, other = opened(reader, database, "a", "a", "b")
    for rows in ([[*row, "it waits", reader.first_tick + 1, place] for row in (second, other)],
                 [[*first, "too large", reader.first_tick + 1]]):
        reader.tick(must_write=True, may_open=False,
                    parks=json.dumps({"rows": rows, "first_ms": 0, "max_ms": 0, "max_attempts": 1}))
    waits = "paused" if place == -2 else "stalled"
    assert states(database) == [(first[0], "dead"), (second[0], waits), (other[0], waits)]
    assert recover(reader, database, 10, ["t", place, 0]) == [("t", place, None)]
    assert states(database) == [(first[0], "dead"), (second[0], "behind"), (other[0], "free")]
    database.execute("SELECT outbox.unpark('ticks', 0, %s, false)", ([first[0]],))
    assert states(database) == [(second[0], "free"), (other[0], "free")]


def test_a_batch_goes_on_with_the_next_place(reader, database):
    stalled(reader, database, *"abc")
    database.execute("UPDATE outbox.parked SET stalled = id - 1")
    assert recover(reader, database, 2, ["t", 0, 0], ["t", 1, 0], ["t", 2, 0]) == [
        ("t", 0, None), ("t", 1, 2)]
    assert recover(reader, database, 2, ["t", 1, 2], ["t", 2, 0]) == [("t", 1, None), ("t", 2, None)]


def test_a_request_is_worked_off_in_batches_by_the_order_of_ids(reader, database):
    rows = opened(reader, database, *"abcde")
    park(reader, rows, ["x"] * 5, max_attempts=1)
    ask(database, "retry")
    assert listed(reader, batch=2) == [row[0] for row in rows[:2]]
    assert request(database) == [(2, 2, 0, 0, False)]
    reader.tick(closed=1, must_write=True, may_open=False)
    assert request(database) == [(2, 2, 2, 0, False)]
    assert listed(reader, batch=2) == [row[0] for row in rows[2:4]]
    park(reader, rows[2:3], ["again"], closed=0)
    reader.tick(closed=1, must_write=True, may_open=False)
    assert request(database) == [(4, 4, 3, 1, False)]
    assert database.execute("SELECT refused_id, error FROM outbox.parked_request") == [(rows[2][0], "again")]
    assert listed(reader, batch=2) == [rows[2][0], rows[4][0]]
    assert request(database) == [(5, 5, 3, 1, True)]


def test_a_look_that_finds_nothing_is_bounded_as_well(reader, database):
    rows = opened(reader, database, *"abcdefghijklmnopqrstuvw")
    park(reader, rows, ["x"] * len(rows), max_attempts=1)
    ask(database, "skip", topic="another")
    for looked in (10, 20, 23):
        reader.tick(closed=0, may_list=True, batch=1)
        assert request(database)[0][:2] == (looked, 0)
    assert request(database) == [(23, 0, 0, 0, True)]


def test_rows_that_a_skip_means_are_not_published_before_it_comes_to_them(reader, database):
    rows = opened(reader, database, "a", "b", "a", "a")
    park(reader, rows, ["x", "x", None, None], max_attempts=1)
    ask(database, "retry", ids=[rows[1][0]])
    ask(database, "skip", key="\\x61")
    for left in (["dead", "free", "behind"], ["dead", "free"], ["dead"]):
        assert listed(reader, batch=1) == []
        assert [state for _, state in states(database)] == left
    assert request(database, 2)[0][1:] == (3, 0, 0, True)
    assert listed(reader, batch=1) == [rows[1][0]]


def test_a_skip_waits_for_the_window_of_its_row(reader, database):
    """Whoever takes over would read it there again, and publish it."""
    rows = opened(reader, database, "a", "b")
    park(reader, rows, ["x", "x"], closed=0)
    ask(database, "skip")
    assert listed(reader, closed=0) == []
    assert states(database) == [(rows[0][0], "waiting"), (rows[1][0], "waiting")]
    assert request(database) == [(2, 0, 0, 0, False)]
    assert database.execute("SELECT outbox.parked_wait('ticks', 0, 0)")[0][0] >= 49
    reader.tick(closed=1, must_write=True, may_open=False)
    assert database.execute("SELECT outbox.parked_wait('ticks', 0, 1)") == [(0,)]
    assert listed(reader) == []
    assert states(database) == [] and request(database) == [(4, 2, 0, 0, True)]


def test_a_request_follows_its_rows_through_a_split(reader, database):
    rows = opened(reader, database, *"abcdefgh")
    park(reader, rows, ["x"] * 8, max_attempts=1)
    ask(database, "retry")
    database.execute("SELECT outbox.parked_requests('ticks', 0, 1, 3)")
    database.execute("UPDATE outbox.parked p SET shard = outbox.shard_of(p.key, 2)")
    database.execute("SELECT outbox.parked_requests_split('ticks', 2)")
    for shard in (0, 1):
        for _ in range(3):
            database.execute("SELECT outbox.parked_requests('ticks', %s, 1, 3)", (shard,))
    assert sum(row[1] for row in request(database)) == 8
    assert all(row[4] for row in request(database)) and len(request(database)) == 2
    assert {state for _, state in states(database)} == {"waiting"}


def test_a_publisher_goes_with_its_requests(reader, database):
    rows = opened(reader, database, "a")
    park(reader, rows, ["x"])
    ask(database, "retry")
    database.execute("SELECT outbox.publisher_drop('ticks')")
    assert database.execute("SELECT count(*) FROM outbox.parked_request") == [(0,)]


def test_of_many_queues_a_list_takes_what_fits(reader, database):
    """Not all rows of each: what is looked at is bounded too."""
    rows = opened(reader, database, *("a" * 5 + "b" * 5))
    park(reader, rows, [None] * 10)
    assert listed(reader, max_rows=3) == [row[0] for row in rows[:3]]
    reader.tick(closed=1, must_write=True, may_open=False)
    assert len(listed(reader, max_rows=7)) == 7


@pytest.mark.parametrize("chosen", [{"from_id": "x"}, {"key": "\\xzz"}, {"from": "soon"}, {"to": "late"}])
def test_a_filter_that_nobody_can_read_is_refused_before_an_owner_meets_it(database, reader, chosen):
    with pytest.raises(psycopg2.DataError):
        ask(database, "retry", **chosen)
    assert database.execute("SELECT count(*) FROM outbox.parked_request") == [(0,)]
