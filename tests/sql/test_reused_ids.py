"""Message ids that were given out again: after a restore, TRUNCATE … RESTART IDENTITY, setval."""

import json

import pytest

KEPT = "SELECT id, was_id, event_id::text, convert_from(key, 'UTF8') FROM outbox.parked ORDER BY id"
SCHEDULED = "SELECT id, was_id, event_id::text FROM outbox.scheduled ORDER BY id"
SEQUENCE = "outbox.message_id_seq"


def write(database, *keys, deliver_at=None):
    """[(id, created_at in µs, event id), …]"""
    return database.execute(
        "INSERT INTO outbox.message (topic, key, payload, deliver_at) "
        "SELECT 't', key, 'x', %s FROM unnest(%s::text[]) key "
        "RETURNING id, (extract(epoch FROM created_at) * 1000000)::bigint, event_id::text",
        (deliver_at, list(keys)))


def begin_again(database, at=1):
    database.execute("TRUNCATE outbox.message")
    database.execute(f"SELECT setval('{SEQUENCE}', {at}, false)")


def parks(reader, rows=(), scheduled=()):
    """rows: [(row, error), …]"""
    tick = reader.first_tick + 1
    return json.dumps({"rows": [[row[0], row[1], error, tick] for row, error in rows],
                       "scheduled": [[row[0], row[1], tick] for row in scheduled],
                       "first_ms": 0, "max_ms": 0, "max_attempts": 3})


def keep(reader, rows=(), scheduled=(), closed=1):
    reader.tick(closed=closed, must_write=True, may_open=False, parks=parks(reader, rows, scheduled))


def all_of(reader):
    """The event ids of all listed windows, in their order, each window acknowledged."""
    events = []
    while rows := reader.tick(may_list=True):
        events += [row.event_id for row in rows]
        reader.tick(closed=1, must_write=True, may_open=False)
    return events


def opened(reader, database, *keys, **more):
    rows = write(database, *keys, **more)
    assert len(reader.tick()) == len(keys)
    return rows


def test_a_message_with_the_id_of_a_parked_one_is_parked_as_well(reader, database):
    old, = opened(reader, database, "a")
    keep(reader, [(old, "too large")])
    begin_again(database)
    new, = opened(reader, database, "b")
    assert new[0] == old[0]
    keep(reader, [(new, "too large")])
    kept = database.execute(KEPT)
    assert kept[0] == (old[0], None, old[2], "a")
    assert kept[1] == (kept[1][0], new[0], new[2], "b") and kept[1][0] > old[0]
    assert all_of(reader) == [old[2], new[2]]
    assert database.execute(KEPT) == []


def test_it_comes_behind_the_rows_of_its_key(reader, database):
    """Also those with larger ids."""
    old = opened(reader, database, "a", "a", "a")
    keep(reader, [(old[0], "bad"), (old[1], None), (old[2], None)])
    begin_again(database)
    new = opened(reader, database, "a")
    keep(reader, [(new[0], None)])
    assert all_of(reader) == [row[2] for row in old + new]


@pytest.mark.parametrize("together", [True, False])
def test_later_rows_of_its_key_come_behind_it(reader, database, together):
    """Whether or not ids of theirs meet others."""
    old, = opened(reader, database, "a")
    keep(reader, [(old, "bad")])
    begin_again(database)
    new = opened(reader, database, "b", "b", "c", "b")
    assert new[0][0] == old[0]
    rows = [(new[0], "bad"), (new[1], None), (new[2], "bad"), (new[3], None)]
    for part in [rows] if together else [rows[:1], rows[1:3], rows[3:]]:
        keep(reader, part, closed=0)
    reader.tick(closed=1, must_write=True, may_open=False)
    events = all_of(reader)
    assert [event for event in events if event not in (old[2], new[2][2])] == [row[2] for row in new if row != new[2]]
    assert sorted(events) == sorted(row[2] for row in [old] + new)


def test_a_message_with_the_id_of_a_scheduled_one_is_scheduled_as_well(reader, database):
    old, = opened(reader, database, "a", deliver_at="2000-01-01")
    keep(reader, scheduled=[old])
    begin_again(database)
    new, = opened(reader, database, "b", deliver_at="2000-01-01")
    assert new[0] == old[0]
    keep(reader, scheduled=[new])
    assert [row[1:] for row in database.execute(SCHEDULED)] == [(None, old[2]), (new[0], new[2])]
    assert all_of(reader) == [old[2], new[2]]
    assert database.execute(SCHEDULED) == []


def test_neither_kind_takes_the_other_one_along(reader, database):
    """One that is not due must not be published, nor go, with a parked one that has its id."""
    later, = opened(reader, database, "a", deliver_at="2999-01-01")
    keep(reader, scheduled=[later])
    begin_again(database)
    new, = opened(reader, database, "b")
    assert new[0] == later[0]
    keep(reader, [(new, "bad")])
    assert all_of(reader) == [new[2]]
    assert [row[2] for row in database.execute(SCHEDULED)] == [later[2]]
    begin_again(database)
    dead, = opened(reader, database, "c")
    keep(reader, [(dead, "bad")])
    begin_again(database)
    again, = opened(reader, database, "d", deliver_at="2000-01-01")
    keep(reader, scheduled=[again])
    assert sorted(all_of(reader)) == sorted([dead[2], again[2]])


def test_a_row_that_is_noted_once_more_stands_once(reader, database):
    """A new owner reads an open window again; the row that had its id may have gone meanwhile."""
    old, = opened(reader, database, "a")
    keep(reader, [(old, "bad")])
    later, = opened(reader, database, "a", deliver_at="2000-01-01")
    keep(reader, scheduled=[later])
    begin_again(database)
    new = opened(reader, database, "b") + opened(reader, database, "b", deliver_at="2000-01-01")
    assert [row[0] for row in new] == [old[0], later[0]]
    for _ in range(2):
        keep(reader, [(new[0], "bad")], [new[1]], closed=0)
        assert len(database.execute(KEPT)) == len(database.execute(SCHEDULED)) == 2
    database.execute("DELETE FROM outbox.parked WHERE id = %s", (old[0],))
    database.execute("DELETE FROM outbox.scheduled WHERE id = %s", (later[0],))
    keep(reader, [(new[0], "bad")], [new[1]], closed=0)
    assert [row[2] for row in database.execute(KEPT)] == [new[0][2]]
    assert [row[2] for row in database.execute(SCHEDULED)] == [new[1][2]]


def test_a_refused_row_of_a_list_does_not_keep_a_namesake_and_the_other_way_round(reader, database):
    """The listed row is published, and the message that has its id is parked, in one log row."""
    old, = opened(reader, database, "a")
    keep(reader, [(old, "bad")])
    begin_again(database)
    new, = opened(reader, database, "b")
    assert [row.id for row in reader.tick(may_list=True, closed=0)] == [old[0]]
    keep(reader, [(new, "bad")], closed=2)
    assert [row[2] for row in database.execute(KEPT)] == [new[2]]


def test_two_rows_of_one_window_may_have_one_id(reader, database):
    first = write(database, "a")
    database.execute(f"SELECT setval('{SEQUENCE}', {first[0][0]}, false)")
    second = write(database, "b")
    assert first[0][0] == second[0][0]
    assert len(reader.tick()) == 2
    keep(reader, [(first[0], "bad"), (second[0], "bad")])
    assert sorted(all_of(reader)) == sorted([first[0][2], second[0][2]])


def test_a_page_does_not_part_rows_with_one_id(reader, database):
    events = []
    for _ in range(3):
        database.execute(f"SELECT setval('{SEQUENCE}', 1, false)")
        events += [row[2] for row in write(database, *"abcde")]
    assert sorted(row.event_id for row in reader.poll(page=2)) == sorted(events)


def test_pages_of_late_transactions_do_not_either(reader, database):
    late = database.connect()
    with late, late.cursor() as cursor:
        cursor.execute("INSERT INTO outbox.message (topic, key, payload) "
                       "SELECT 't', 'l', 'x' FROM generate_series(1, 5) RETURNING event_id::text")
        events = [event for event, in cursor.fetchall()]
        first, = opened(reader, database, "a")
        assert first[0] == 6
    database.execute(f"SELECT setval('{SEQUENCE}', 1, false)")
    events += [row[2] for row in write(database, *"abcde")]
    assert sorted(row.event_id for row in reader.poll(page=2)) == sorted(events)


def test_a_look_up_compares_event_ids(reader, database):
    old, = opened(reader, database, "a")
    keep(reader, [(old, "bad")])
    begin_again(database)
    new, = opened(reader, database, "b")
    look = ("SELECT itself FROM outbox.parked_lookup('ticks', 0, %s, %s, ARRAY[%s]::bigint[], "
            "ARRAY[null]::bigint[], ARRAY[%s]::uuid[])")

    def itself(row):
        return database.execute(look, (reader.n, reader.nonce, row[0], row[2]))

    assert itself(old) == [(True,)] and itself(new) == []
    keep(reader, [(new, "bad")])
    assert itself(old) == itself(new) == [(True,)]


def test_the_state_of_a_message_is_its_own(reader, database):
    old, = opened(reader, database, "a")
    keep(reader, [(old, "bad")])
    begin_again(database)
    new, = opened(reader, database, "b")
    reader.tick(closed=1, must_write=True, may_open=False)
    state = "SELECT state FROM outbox.message_state WHERE publisher = 'ticks'"
    assert database.execute(state) == [("published",)]
