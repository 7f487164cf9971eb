"""outbox.destination: what log rows say of destinations is folded into it, by rows that say so."""

import json
import time

import pytest
from psycopg2 import errors

from support.destinations import apply_row, folded_destinations, known_destinations
from support.process import wait_for
from support.windows import QUERIES, Ticks

TOPICS, PARTITIONS = 20_000, 12
FILL = """
    INSERT INTO outbox.destination
    SELECT 'ticks', 0, 'topic-' || t, %s, array_fill(t::bigint, array[%s]), false, 0
    FROM generate_series(1, %s) t"""


def sayings(chance, count):
    """JSON of a log row's destinations: some of all that a row may say."""
    said = {}
    for number in chance.sample(range(6), count):
        partitions = chance.randint(1, 4)
        offsets = {str(p): chance.randint(-1, 1000)
                   for p in range(partitions) if chance.random() < 0.5}
        said[f"topic-{number}"] = chance.choice(
            [[partitions, offsets], [partitions, offsets], [partitions, offsets, False], None])
    return json.dumps(said)


def take(database, nonce):
    database.execute("UPDATE outbox.log SET lease_until = '-infinity' WHERE publisher = 'ticks'")
    assert database.execute("SELECT outcome FROM outbox.take('ticks', 0, 1, %s, 'x', 1, 1)",
                            (nonce,)) == [("taken",)]


def test_a_fold_is_what_the_rows_said(database, chance, scale):
    for round_number in range(scale(100)):
        database.execute("SELECT outbox.publisher_drop(name) FROM outbox.publisher WHERE name = 'ticks'")
        reader, known = Ticks(database.dsn), {}
        for _ in range(20):
            text = sayings(chance, chance.randint(0, 4))
            fold = chance.random() < 0.2
            reader.tick(must_write=True, touched=text, fold_to=reader.n + 1 if fold else None)
            apply_row(known, text)
            assert known_destinations(database, "ticks") == known, f"round {round_number}"
            if fold:
                assert folded_destinations(database, "ticks") == known, f"round {round_number}"
        take(database, 7)
        assert folded_destinations(database, "ticks") == known, f"round {round_number}"
        reader.connection.close()


def test_who_lost_the_shard_folds_nothing(database, reader):
    reader.tick(must_write=True, touched='{"a": [1, {"0": 5}]}')
    take(database, 7)
    before = database.execute("SELECT ctid, * FROM outbox.destination")
    with pytest.raises(errors.UniqueViolation):
        reader.tick(must_write=True, touched='{"a": [1, {"0": 9}]}', fold_to=reader.n + 1)
    assert database.execute("SELECT ctid, * FROM outbox.destination") == before


@pytest.fixture
def many(database, reader):
    database.execute(FILL, (PARTITIONS, PARTITIONS, TOPICS))
    database.execute("ANALYZE outbox.destination")
    return database


def best_ms(call, times=5):
    """The fastest of some: others may be at work on this machine."""
    spans = []
    for _ in range(times):
        began = time.monotonic()
        call()
        spans.append(time.monotonic() - began)
    return min(spans) * 1000


def touched(count, partitions, at):
    return json.dumps({f"topic-{t}": [PARTITIONS, {str(p): at for p in range(partitions)}]
                       for t in range(1, count + 1)})


def test_a_tick_costs_what_its_row_says_whatever_is_known(many, reader):
    """With the most that a row says, with the most that a fold has before it."""
    def tick(fold):
        for at in range(0 if not fold else 4):
            reader.tick(must_write=True, touched=touched(41, PARTITIONS, at))
        began = time.monotonic()
        reader.tick(must_write=True, touched=touched(41, PARTITIONS, 9), fold_to=reader.n + 1 if fold else None)
        return (time.monotonic() - began) * 1000

    assert min(tick(False) for _ in range(5)) <= 100
    assert min(tick(True) for _ in range(5)) <= 100
    most, = many.execute("SELECT max(pg_column_size(destinations)) FROM outbox.log")[0]
    assert most < 20_000


def test_a_fold_of_thousands_of_new_topics_costs_the_same_without_statistics(database, reader):
    """As first traffic to each of them brings them, before the table is analyzed for the first time."""
    database.execute("ALTER TABLE outbox.destination SET (autovacuum_enabled = false)")
    spans = []
    for first in range(0, 8000, 2000):
        for at in range(first, first + 2000, 500):
            began = time.monotonic()
            reader.tick(must_write=True, fold_to=reader.n + 1 if at == first + 1500 else None,
                        touched=json.dumps({f"new-{t}": [1, {"0": 5}] for t in range(at, at + 500)}))
        spans.append((time.monotonic() - began) * 1000)
    assert len(folded_destinations(database, "ticks")) == 8000
    assert min(spans[1:]) <= 500, spans


def test_a_take_over_costs_what_is_not_folded_whatever_is_known(many, reader):
    spans = []
    for nonce in range(5):
        ticks = Ticks(many.dsn, create=False) if nonce else reader
        for at in range(5):
            ticks.tick(must_write=True, touched=touched(41, PARTITIONS, at))
        many.execute("UPDATE outbox.log SET lease_until = '-infinity' WHERE publisher = 'ticks'")
        began = time.monotonic()
        Ticks(many.dsn, create=False).close()
        spans.append((time.monotonic() - began) * 1000)
        many.execute("UPDATE outbox.log SET lease_until = '-infinity' WHERE publisher = 'ticks'")
    assert min(spans) <= 100


def load(reader, name, *more):
    with open(f"{QUERIES}/{name}.sql") as file:
        text = file.read()
    for number in range(9, 0, -1):
        text = text.replace(f"${number}", f"%(p{number})s")
    values = (reader.publisher, reader.shard, reader.n, reader.nonce, *more)
    reader.cursor.execute(text, {f"p{i}": value for i, value in enumerate(values, 1)})
    return reader.cursor.fetchall()


def test_open_destinations_come_in_pages_and_others_by_name(many, reader):
    many.execute("UPDATE outbox.destination SET open = true WHERE topic LIKE '%%7'")
    expected = sorted(topic for topic, in many.execute(
        "SELECT topic FROM outbox.destination WHERE open"))
    found, after = [], ""
    while True:
        page = load(reader, "destinations_open", after, 1000, 1200)[1:]
        assert len(page) <= 100
        if not page:
            break
        found += [row[0] for row in page]
        after = found[-1]
    assert found == expected
    assert best_ms(lambda: load(reader, "destinations_open", "", 1000, 4000)) <= 100
    names = [f"topic-{t}" for t in range(1, 201)] + ["none"]
    rows = load(reader, "destinations_named", names)
    assert {row[0] for row in rows} == {None, *names[:-1]}
    assert best_ms(lambda: load(reader, "destinations_named", names)) <= 100
    reader.nonce += 1  # another server, or another owner
    for name, *more in (("destinations_named", names), ("destinations_open", "", 1000, 4000)):
        with pytest.raises(errors.DatabaseError, match="is not on this server") as refused:
            load(reader, name, *more)
        assert refused.value.pgcode == "OR001"
        reader.connection.rollback()


def test_folds_leave_few_dead_tuples_and_no_new_index_entries(database, reader):
    """HOT: the next fold of a page removes what the last one left."""
    database.execute("CREATE EXTENSION pgstattuple")
    database.execute("ALTER TABLE outbox.destination SET (autovacuum_enabled = false)")
    for at in range(300):
        reader.tick(must_write=True, touched=touched(20, PARTITIONS, at), fold_to=reader.n + 1)
    dead, = database.execute(
        "SELECT dead_tuple_count FROM pgstattuple('outbox.destination')")[0]
    assert dead <= 300, dead  # of 6,000 that were replaced
    reader.connection.close()  # its counters are known then, also to a PostgreSQL before 15
    updated, hot = wait_for(lambda: [row for row in database.execute(
        "SELECT pg_stat_get_tuples_updated(c), pg_stat_get_tuples_hot_updated(c)"
        " FROM (SELECT 'outbox.destination'::regclass AS c) t") if row[0] > 5_900],
        what="the counters of 6,000 updates")[0]
    assert hot >= 0.9 * updated


def test_an_owner_of_before_a_split_folds_nothing_into_the_shards_of_after(database, reader):
    """Its tick began before the split was finished, or comes behind it."""
    # a slow tick that may open a window opens an empty one, which nobody would close here
    reader.tick(must_write=True, may_open=False, touched='{"a": [1, {"0": 5}]}')
    database.execute("SELECT outbox.publisher_split_begin('ticks', 2)")
    database.execute("SELECT outbox.publisher_split_bound('ticks')")
    reader.tick(closed=0)
    reader.tick(closed=1, must_write=True, may_open=False)
    waiting = database.connect()
    waiting.autocommit = False
    with waiting.cursor() as cursor:  # it has inserted its row and folded, and is yet to commit
        statement, values = reader.tick_call(closed=0, must_write=True, may_open=False,
                                             touched='{"b": [1, {"0": 9}]}', fold_to=reader.n + 1)
        cursor.execute(statement, values)
        finish = database.connect()
        with finish.cursor() as other:
            other.execute("SET lock_timeout = '100ms'")
            with pytest.raises(errors.LockNotAvailable):
                other.execute("SELECT outbox.publisher_split_finish('ticks')")
        finish.close()
    waiting.rollback()
    waiting.close()
    assert database.execute("SELECT outbox.publisher_split_finish('ticks')") == [(0,)]
    reader.cursor.execute(statement, values)
    assert reader.cursor.fetchone()[0] == "dropped"
    assert [known_destinations(database, "ticks", shard) for shard in range(2)] == [{}, {}]
    assert database.execute("SELECT count(*) FROM outbox.destination") == [(0,)]


def test_a_split_and_a_drop_leave_no_destination(database, reader):
    reader.tick(must_write=True, touched='{"a": [1, {"0": 5}]}', fold_to=reader.n + 1)
    reader.tick(must_write=True, touched='{"b": [2, {"1": 5}]}', lease_ms=0)
    assert set(known_destinations(database, "ticks")) == {"a", "b"}
    database.execute("SELECT outbox.publisher_split_begin('ticks', 2)")
    database.execute("SELECT outbox.publisher_split_bound('ticks')")
    database.execute("UPDATE outbox.log l SET ticks = array[s.drain_to] FROM outbox.publisher s"
                     " WHERE s.name = 'ticks' AND l.publisher = 'ticks'")
    assert database.execute("SELECT outbox.publisher_split_finish('ticks')") == [(0,)]
    assert [known_destinations(database, "ticks", shard) for shard in range(2)] == [{}, {}]
    ticks = Ticks(database.dsn, create=False, shards=2)
    ticks.tick(must_write=True, touched='{"c": [1, {}]}', fold_to=ticks.n + 1)
    assert set(folded_destinations(database, "ticks")) == {"c"}
    database.execute("SELECT outbox.publisher_drop('ticks')")
    assert database.execute("SELECT count(*) FROM outbox.destination") == [(0,)]
