"""Rows that a dump carried into another cluster, and outbox.rebase: what has a publisher published there,
in which order comes the rest, and what is left of the log. Everything on a real dump and a real,
fresh cluster; the relay's reader is driven by hand."""

import itertools
import json
from concurrent.futures import ThreadPoolExecutor

import psycopg2
import pytest

from support.destinations import Destination, known_destinations
from support.postgres import Postgres, carry
from support.process import wait_for
from support.windows import Ticks

OLD_XIDS = 5 * 2**20  # far beyond what a fresh cluster will ever reach in a test
REBASE = "SELECT * FROM outbox.rebase('a test', false)"
NEW_IDENTITY = "SELECT * FROM outbox.rebase('a test', true)"
IDENTITIES = "SELECT name, identity::text FROM outbox.publisher ORDER BY 1"
EPOCHS = "SELECT publisher, shard, epoch FROM outbox.progress ORDER BY 1, 2"
ELSEWHERE = "SELECT publisher, bool_or(written_elsewhere) FROM outbox.progress GROUP BY 1 ORDER BY 1"
TAKE = """
SELECT outcome FROM outbox.take(%s, 0, %s, 1, 'somebody', 60000, 1)"""
FUTURE = "SELECT outbox.has_rows_of_the_future()"
NUMBERS = itertools.count(1)
AGES = {"younger": (OLD_XIDS, None), "older": (None, OLD_XIDS), "of the same age": (None, None)}


def at_each_age(test):
    return pytest.mark.rotated(pytest.mark.parametrize("clusters", AGES, indirect=True)(test))


@pytest.fixture(scope="module")
def clusters(request, make_database):
    """(origin, target) by the age of the target; the origin has a database with the schema, to be copied."""
    origin, target = AGES[getattr(request, "param", "younger")]
    with Postgres(next_xid=origin, fsync="off") as one, Postgres(next_xid=target, fsync="off") as other:
        one.create_database("migrated")
        make_database(one, "migrated").migrate()
        yield one, other


@pytest.fixture
def carried(clusters, make_database):
    """A database of the origin's. carry() of it dumps it, restores it in the target, and returns the
    copy."""
    origin, target = clusters
    name = f"shop_{next(NUMBERS)}"
    origin.create_database(name, template="migrated")
    shop = make_database(origin, name)
    shop.carry = lambda: make_database(carry(origin, target, name), name)
    yield shop
    origin.drop_database(name)
    target.drop_database(name)


def write(database, *payloads, key="k"):
    for payload in payloads:
        database.execute("SELECT outbox.publish('t', %s, %s::text)", (key, payload))


def payloads(rows):
    return [row.payload.decode() for row in rows]


def reader(database, publisher="main", **more):
    return Ticks(database.dsn, publisher=publisher, create=False, **more)


def publish_all(ticks):
    """The payloads of all windows until there is none: of the one that is open first."""
    found = list(ticks.pages(2)) if ticks.open_windows else []
    while rows := ticks.poll(page=2):
        found += rows
    ticks.tick(must_write=True)
    return payloads(found)


@at_each_age
def test_what_was_not_published_comes_next_and_nothing_else_ever(carried):
    ticks = reader(carried)
    write(carried, "a", "b")
    assert publish_all(ticks) == ["a", "b"]
    write(carried, "c", "d")
    copy = carried.carry()

    assert copy.execute(ELSEWHERE) == [("main", True)]
    assert copy.execute(TAKE, ("main", 1)) == [("elsewhere",)]
    write(copy, "e")             # before the rebase, with an xid of the new cluster
    copy.execute(REBASE)
    assert copy.execute(ELSEWHERE) == [("main", False)]
    assert copy.execute(FUTURE) == [(False,)]
    write(copy, "f")
    ticks = reader(copy)
    assert publish_all(ticks) == ["c", "d", "e", "f"]
    # whatever transaction ids will be given out
    assert copy.execute("SELECT bool_and(pg_visible_in_snapshot(m.txid, p.ticks[1])) "
                        "FROM outbox.message m, outbox.progress p") == [(True,)]
    assert publish_all(ticks) == []


def test_a_dump_whose_transaction_has_the_number_of_the_newest_rows_is_noticed(carried):
    ticks = reader(carried)
    ticks.tick(must_write=True)
    copy = carried.carry()
    copy.execute("UPDATE outbox.log SET txid = (pg_current_xact_id()::text)::xid8 WHERE n = %s",
                 (ticks.n,))
    assert copy.execute("SELECT count(*) FROM outbox.log WHERE xmin = txid::xid") == [(1,)]
    assert copy.execute(ELSEWHERE) == [("main", True)]


@at_each_age
def test_of_a_window_that_was_being_published_the_rest_comes(carried):
    ticks = reader(carried)
    write(carried, "a", "b", "c", "d")
    rows = ticks.poll()
    ticks.tick(closed=0, new_acked_id=rows[1].id, may_open=False, must_write=True)
    write(carried, "e")
    copy = carried.carry()
    copy.execute(REBASE)
    assert publish_all(reader(copy)) == ["c", "d", "e"]


@at_each_age
def test_each_publisher_goes_on_where_it_was(carried):
    for publisher in ("behind", "sharded"):
        carried.execute("SELECT outbox.publisher_create(%s, %s, 'beginning')",
                        (publisher, 3 if publisher == "sharded" else 1))
    write(carried, "a", "b")
    assert publish_all(reader(carried)) == publish_all(reader(carried, "behind")) == ["a", "b"]
    for number in range(10):
        write(carried, f"s{number}", key=f"k{number}")
    assert len(publish_all(reader(carried))) == 10
    mine = publish_all(reader(carried, "sharded", shards=3, shard=1))
    write(carried, "z")
    copy = carried.carry()
    plan = dict(row[::2] for row in copy.execute("SELECT * FROM outbox.rebase_plan()"))
    write(copy, "new")
    copy.execute(REBASE)

    rest = [f"s{number}" for number in range(10)] + ["z", "new"]
    assert publish_all(reader(copy)) == ["z", "new"]
    assert publish_all(reader(copy, "behind")) == rest
    shards = [publish_all(reader(copy, "sharded", shards=3, shard=shard)) for shard in range(3)]
    assert sorted(sum(shards, mine)) == sorted(["a", "b"] + rest)
    assert plan["main"] == 1 and plan["behind"] == 11
    assert plan["sharded"] == sum(map(len, shards)) - 1


def test_a_database_is_carried_on_again(carried, make_database):
    """The numbers of the first rebase mean nothing to the second."""
    carried.execute("SELECT outbox.publisher_create('behind', 1, 'beginning')")
    write(carried, "a")
    publish_all(reader(carried))
    write(carried, "b")
    copy = carried.carry()
    copy.execute(REBASE)
    assert publish_all(reader(copy)) == ["b"]
    write(copy, "c")
    with Postgres() as third:
        again = make_database(carry(copy.postgres, third, copy.name), copy.name)
        again.execute(REBASE)
        assert publish_all(reader(again)) == ["c"]
        assert publish_all(reader(again, "behind")) == ["a", "b", "c"]


def test_what_commits_during_a_rebase_comes_behind_it_and_no_writer_waits(carried):
    write(carried, "a")
    copy = carried.carry()
    early, rebase = copy.connect(autocommit=False), copy.connect(autocommit=False)
    early.cursor().execute("SELECT outbox.publish('t', 'k', 'early'::text)")
    rebase.cursor().execute(REBASE)
    late = copy.connect(autocommit=False)
    late.cursor().execute("SET LOCAL lock_timeout = '50ms'")
    late.cursor().execute("SELECT outbox.publish('t', 'k', 'late'::text)")
    late.commit()
    rebase.commit()
    ticks = reader(copy)
    assert publish_all(ticks) == ["a", "late"]
    early.commit()
    assert publish_all(ticks) == ["early"]


def test_parked_messages_keep_their_place(carried):
    """One whose window is not over yet must not be tried before it is read again."""
    ticks = reader(carried)
    write(carried, "refused", "behind")
    first, second = ticks.poll()
    parks = [[row.id, *carried.execute(
        "SELECT (extract(epoch FROM created_at) * 1000000)::bigint FROM outbox.message WHERE id = %s",
        (row.id,))[0], error, ticks.first_tick + 1]
        for row, error in ((first, "no"), (second, None))]
    ticks.tick(closed=0, may_open=False, must_write=True, parks=json.dumps(
        {"rows": parks, "first_ms": 1, "max_ms": 1, "max_attempts": 5}))
    before = carried.execute("SELECT id, state FROM outbox.parked ORDER BY id")
    copy = carried.carry()
    copy.execute(REBASE)
    assert len(before) == 2
    assert copy.execute("SELECT id, state FROM outbox.parked ORDER BY id") == before
    ticks = reader(copy)
    assert copy.execute("SELECT DISTINCT tick FROM outbox.parked") == [(ticks.first_tick + 1,)]
    assert copy.execute("SELECT ids FROM outbox.parked_next('main', 0, %s, 10, 10000, null)",
                        (ticks.first_tick,)) == [(None,)]


def test_an_owner_that_lives_on_reads_no_page_of_the_copy(carried):
    ticks = reader(carried)
    write(carried, "a", "b")
    ticks.poll(max_rows=0)
    copy = carried.carry()
    ticks.connection.close()
    ticks.connection = copy.connect()
    ticks.cursor = ticks.connection.cursor()
    with pytest.raises(psycopg2.Error, match="is not on this server"):
        list(ticks.pages(10))


def test_no_partition_goes_before_the_rebase(carried):
    write(carried, "a")
    publish_all(reader(carried))
    copy = carried.carry()
    (leaf,), *_ = copy.execute("SELECT name FROM outbox.partitions('message')")
    assert copy.execute("SELECT outbox.partition_empty(%s)", (leaf,)) == [("held",)]
    copy.execute(REBASE)
    assert copy.execute("SELECT outbox.partition_empty(%s)", (leaf,)) == [("emptied",)]


def test_the_look_backs_partitions_go_after_the_rebase(carried):
    """Its rows look as if they came just now, for as long as their txids are those of the future."""
    carried.execute("""
        INSERT INTO outbox.lookback (biz_type, biz_id, kind, section, source_partition, source_offset,
            decision) VALUES ('order', '1', 'tombstone', 'shop', 0, 0, 'commit')""")
    copy = carried.carry()
    (leaf,), *_ = copy.execute("SELECT name FROM outbox.partitions('lookback')")
    assert copy.execute("SELECT outbox.partition_empty(%s)", (leaf,)) == [("busy",)]
    copy.execute(REBASE)
    assert copy.execute("SELECT count(*) FROM outbox.lookback") == [(1,)]
    assert copy.execute("SELECT outbox.partition_empty(%s)", (leaf,)) == [("emptied",)]


def test_the_partitions_of_what_was_processed_go_after_the_rebase(carried):
    """And what was processed there was processed, here too."""
    take = "SELECT outbox.processed_take('billing', '{a}', array[now()], '1 hour')"
    assert carried.execute(take) == [([True],)]
    copy = carried.carry()
    assert copy.execute(take) == [([False],)]
    copy.execute("UPDATE outbox.processed SET kept_until = '-infinity'")
    (leaf,), = copy.execute("SELECT tableoid::regclass::text FROM outbox.processed")
    leaf = leaf.split(".")[1]
    assert copy.execute("SELECT outbox.partition_empty(%s)", (leaf,)) == [("busy",)]
    copy.execute(REBASE)
    assert copy.execute("SELECT outbox.partition_empty(%s)", (leaf,)) == [("emptied",)]


def test_unique_keys_are_taken_after_the_rebase_as_before_and_their_partitions_go(carried):
    """The pending one until it is published, the published one not, and the one with a window for as long as that."""
    def publish(database, key, **arguments):
        texts = "".join(f", {name} => '{value}'" for name, value in arguments.items())
        return database.execute(f"SELECT outbox.publish('t', 'k', 'p', unique_key => '{key}'{texts})::text")[0][0]

    ticks = reader(carried)
    waits = {"while_pending": "published", "within": "1 second"}
    published = publish(carried, "published", **waits)
    publish_all(ticks)
    pending, kept = publish(carried, "pending", **waits), publish(carried, "kept")
    copy = carried.carry()
    copy.execute(REBASE)
    leaf = copy.execute("SELECT tableoid::regclass::text FROM outbox.unique_ledger")[0][0].split(".")[1]
    assert publish(copy, "pending", **waits) == pending and publish(copy, "kept") == kept
    copy.execute("UPDATE outbox.unique_ledger SET kept_until = '-infinity'")
    assert copy.execute("SELECT outbox.partition_empty(%s)", (leaf,)) == [("held",)]
    ticks = reader(copy)
    publish_all(ticks)
    assert publish(copy, "pending", **waits) != pending and publish(copy, "published", **waits) != published
    publish_all(ticks)
    copy.execute("UPDATE outbox.unique_ledger SET kept_until = '-infinity'")
    assert copy.execute("SELECT outbox.partition_empty(%s)", (leaf,)) == [("emptied",)]


def test_rows_without_their_log_are_noticed_by_their_transactions(carried):
    """The log was not carried along, or the publishers were dropped and made anew: rows of a far future
    would be missed until it comes."""
    write(carried, "a")
    copy = carried.carry()
    copy.execute("SELECT outbox.publisher_drop('main')")
    with pytest.raises(psycopg2.Error, match="publisher rebase"):
        copy.execute("SELECT outbox.publisher_create('main', 1, 'now')")
    copy.execute(REBASE)
    copy.execute("SELECT outbox.publisher_create('main', 1, 'now')")
    copy.execute("SELECT outbox.publisher_create('all', 1, 'beginning')")
    write(copy, "b")
    assert publish_all(reader(copy)) == ["b"]
    assert publish_all(reader(copy, "all")) == ["a", "b"]


def test_a_split_under_way_is_cancelled_and_a_replay_is_over(carried):
    carried.execute("SELECT outbox.publisher_split_begin('main', 2)")
    carried.execute("SELECT outbox.publisher_split_bound('main')")
    copy = carried.carry()
    copy.execute(
        "SELECT outbox.replay_create('why', 'main', '{}', null, null, pg_current_snapshot(), null, "
        "null, null, null, 1, 2, 2, 7, 'me', 60000)")
    copy.execute(REBASE)
    assert copy.execute("SELECT split_to, drain_to FROM outbox.publisher") == [(None, None)]
    assert copy.execute("SELECT outcome FROM outbox.replay_take(1, 8, 'me', 1)") == [("elsewhere",)]


def test_ids_go_on_behind_those_that_were_carried_here(carried):
    """Logical replication does not carry sequences."""
    write(carried, "a", "b", "c")
    copy = carried.carry()
    copy.execute("ALTER TABLE outbox.message ALTER id RESTART")
    copy.execute(REBASE)
    write(copy, "d")
    assert copy.execute("SELECT max(id) FROM outbox.message WHERE payload = 'd'") == [(4,)]


def test_a_rebase_is_audited_and_refused_where_nothing_was_carried(carried):
    write(carried, "a")
    with pytest.raises(psycopg2.Error, match="nothing to rebase"):
        carried.execute(REBASE)
    copy = carried.carry()
    copy.execute(REBASE)
    assert copy.execute("SELECT verb, reason, target -> 'rows' FROM outbox.audit") \
        == [("rebase", "a test", 1)]
    with pytest.raises(psycopg2.Error, match="nothing to rebase"):
        copy.execute(REBASE)


@pytest.mark.parametrize("shards", [1, 2])
def test_shards_of_a_server_with_another_byte_order_are_refused(carried, shards):
    """Its keys have other buckets there: each shard would continue with keys of the others."""
    carried.execute("SELECT outbox.publisher_drop('main')")
    carried.execute("SELECT outbox.publisher_create('main', %s, 'beginning')", (shards,))
    carried.execute("UPDATE outbox.publisher SET hashed = hashed # 1")
    write(carried, "a")
    copy = carried.carry()
    if shards > 1:
        with pytest.raises(psycopg2.Error, match="another byte order") as refusal:
            copy.execute(REBASE)
        assert "publisher split main --shards 1" in refusal.value.diag.message_hint
    else:
        copy.execute(REBASE)
        assert copy.execute("SELECT hashed = outbox.bucket_of('outbox-relay', null) FROM outbox.publisher") \
            == [(True,)]


def test_a_clock_that_is_behind_is_refused(carried):
    """Rows that were written here are told from others by their time."""
    carried.execute("SELECT outbox.publisher_drop('main')")
    carried.execute("SELECT outbox.publisher_create('main', 1, 'beginning')")
    carried.execute("UPDATE outbox.log SET written_at = clock_timestamp() + interval '1 hour'")
    copy = carried.carry()
    with pytest.raises(psycopg2.Error, match="clock"):
        copy.execute(REBASE)


def test_a_rebase_keeps_the_identity(carried):
    """The publisher finds what it had sent before the dump, and not noted."""
    reader(carried).tick(must_write=True, touched='{"t": [6, {"0": 17}]}')
    copy = carried.carry()
    copy.execute(REBASE)
    assert known_destinations(copy) == {"t": Destination(6, {0: 17}, True)}
    assert copy.execute(IDENTITIES) == carried.execute(IDENTITIES)
    assert copy.execute("SELECT identity_since, target ? 'identities_from' FROM outbox.publisher,"
                        " outbox.audit") == [(None, False)]


def test_a_copy_beside_its_living_original_gets_an_identity_of_its_own(carried):
    carried.execute("SELECT outbox.publisher_create('other', 2, 'beginning')")
    ticks = reader(carried)
    write(carried, "a")
    assert publish_all(ticks) == ["a"]
    write(carried, "b")
    copy = carried.carry()
    before = dict(carried.execute(IDENTITIES))
    epochs = carried.execute(EPOCHS)
    copy.execute(NEW_IDENTITY)
    after = dict(copy.execute(IDENTITIES))
    assert before.keys() == after.keys()
    assert len({*before.values(), *after.values()}) == 4
    assert len({*epochs, *copy.execute(EPOCHS)}) == 6
    assert copy.execute("SELECT target -> 'identities_from' FROM outbox.audit") == [(before,)]
    assert copy.execute("SELECT count(*) FROM outbox.publisher WHERE identity_since"
                        " BETWEEN clock_timestamp() - interval '1 minute' AND clock_timestamp()") \
        == [(2,)]
    assert publish_all(reader(copy)) == ["b"]
    # the original knows nothing of it
    assert dict(carried.execute(IDENTITIES)) == before and carried.execute(EPOCHS) == epochs
    assert publish_all(ticks) == ["b"]


def copy_in_place(database):
    """A copy of the files, with the same transaction ids: as a snapshot of the disk is one."""
    name = f"{database.name[:50]}_copy"
    database.postgres.create_database(name, template=database.name)
    return type(database)(database.postgres, name)


@pytest.fixture
def same_cluster(carried):
    """carried, and how to copy it where it is."""
    made = []
    carried.copy = lambda: made.append(copy_in_place(carried)) or made[-1]
    yield carried
    for copy in made:
        carried.postgres.drop_database(copy.name)


def test_a_copy_in_the_same_cluster_goes_on_under_a_new_identity_and_epoch(same_cluster):
    """Nothing was carried: no row changes, and the window that is open goes on where it was."""
    ticks = reader(same_cluster)
    write(same_cluster, "a", "b", "c")
    rows = ticks.poll()
    ticks.tick(closed=0, new_acked_id=rows[0].id, may_open=False, must_write=True,
               touched='{"t": [6, {"0": 17}]}')
    ticks.connection.close()
    rows_before = same_cluster.execute("SELECT id, txid FROM outbox.message ORDER BY id")
    same_cluster.execute("UPDATE outbox.log SET lease_until = '-infinity'")
    copy = same_cluster.copy()
    with pytest.raises(psycopg2.Error, match="needs --new-identity"):
        copy.execute(REBASE)
    assert copy.execute(NEW_IDENTITY)[0][1] == 0
    assert copy.execute(IDENTITIES) != same_cluster.execute(IDENTITIES)
    assert copy.execute(EPOCHS) != same_cluster.execute(EPOCHS)
    assert copy.execute("SELECT id, txid FROM outbox.message ORDER BY id") == rows_before
    # no record of its own is in Kafka, and nothing has to be read there
    assert known_destinations(copy) == {}
    assert known_destinations(same_cluster) == {"t": Destination(6, {0: 17}, True)}
    state = "SELECT first_tick, acked_id, ticks::text FROM outbox.progress"
    assert copy.execute(state) == same_cluster.execute(state)
    assert copy.execute(state)[0][:2] == (0, rows[0].id)
    write(copy, "d")
    assert publish_all(reader(copy)) == ["a", "b", "c", "d"]


def test_an_owner_of_the_original_is_fenced_in_the_copy_and_a_living_one_refused(same_cluster):
    ticks = reader(same_cluster)
    ticks.tick(must_write=True)
    ticks.connection.close()
    copy = same_cluster.copy()
    with pytest.raises(psycopg2.Error, match="is owned by"):
        copy.execute(NEW_IDENTITY)
    copy.execute("UPDATE outbox.log SET lease_until = '-infinity'")
    copy.execute(NEW_IDENTITY)
    with pytest.raises(psycopg2.errors.UniqueViolation):
        copy.connect().cursor().execute(*ticks.tick_call(must_write=True))


def test_a_take_that_meets_a_new_identity_does_not_go_on_with_the_old_one(same_cluster):
    copy = same_cluster.copy()
    rebase = copy.connect(autocommit=False)
    rebase.cursor().execute("LOCK TABLE outbox.log IN ACCESS EXCLUSIVE MODE")
    with ThreadPoolExecutor() as threads:
        taken = threads.submit(copy.execute, TAKE.replace("outcome", "outcome, identity::text"),
                               ("main", 1))
        wait_for(lambda: copy.execute("SELECT 1 FROM pg_locks WHERE NOT granted"), 60, "the take")
        rebase.cursor().execute(NEW_IDENTITY)
        rebase.commit()
        assert taken.result() == [("taken", dict(copy.execute(IDENTITIES))["main"])]


def test_parked_rows_of_a_copy_stay_parked(same_cluster):
    ticks = reader(same_cluster)
    write(same_cluster, "refused")
    row, = ticks.poll()
    created, = same_cluster.execute("SELECT (extract(epoch FROM created_at) * 1000000)::bigint"
                                    " FROM outbox.message")[0]
    ticks.tick(closed=1, may_open=False, must_write=True, parks=json.dumps(
        {"rows": [[row.id, created, "no", ticks.first_tick + 1]], "first_ms": 1, "max_ms": 1,
         "max_attempts": 5}))
    ticks.connection.close()
    same_cluster.execute("UPDATE outbox.log SET lease_until = '-infinity'")
    copy = same_cluster.copy()
    copy.execute(NEW_IDENTITY)
    parked = "SELECT id, tick, state FROM outbox.parked"
    assert copy.execute(parked) == same_cluster.execute(parked) != []
