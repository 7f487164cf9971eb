"""A prepare with a unique key: its commit writes a message only if the key is free, as outbox.publish does, and otherwise
says whose the key is."""

import threading
import time

import psycopg2
import pytest

from support.lookback_rows import Reader, claim, commit, prepare, rollback, settle
from support.process import wait_for

DAY = 24 * 3600 * 1000


def unique(id, key, within_ms=DAY, **more):
    return prepare(id, unique_key=key, within_ms=within_ms, **more)


@pytest.fixture
def reader(database):
    return Reader(database)


def messages(database):
    return [bytes(key).decode() for key, in database.execute(
        "select key_bytes from outbox.message where key_bytes is not null order by id")]


def decisions(database):
    """{biz_id: (decision, duplicate, biz_id of the prepare whose message it names, if it is one)}"""
    return {id: values for id, *values in database.execute(
        "select d.biz_id, d.decision, d.duplicate, (select min(p.biz_id) from outbox.lookback p "
        "where p.kind = 'prepare' and p.event_id = d.event_id) from outbox.lookback d where d.kind = 'decision'")}


def publish(cursor, key, topic="orders", **more):
    arguments = {"payload": "p", "unique_key": key, **more}
    cursor.execute("select outbox.publish(%(topic)s, 'sql'::text, {})".format(
        ", ".join(f"{name} => %({name})s" for name in arguments)), {"topic": topic, **arguments})
    return cursor.fetchone()[0]


def test_only_the_first_commit_of_a_key_writes_a_message(database, reader):
    reader.apply(unique("1", "k"), unique("2", "k"), unique("3", "other"), prepare("4"))
    at = reader.prepared_at("1")
    assert reader.apply(commit("2", at))[:2] == (1, 0)
    assert reader.apply(commit("1", at), commit("4", at), commit("3", at))[:2] == (3, 0)
    assert messages(database) == ["2", "4", "3"]
    assert decisions(database) == {"1": ["commit", True, "2"], "2": ["commit", None, "2"],
                                   "3": ["commit", None, "3"], "4": ["commit", None, "4"]}
    assert database.execute("select count(*) from outbox.unique_ledger") == [(2,)]


def test_prepares_of_a_batch_are_unique_among_each_other(database, reader):
    """Also when the earlier of them was decided otherwise, in the same batch or before."""
    reader.apply(unique("a", "k"), unique("b", "k"), commit("b"), commit("a"), commit("b"),
                 unique("c", "l"), unique("d", "l"), rollback("c"), commit("c"), commit("d"))
    assert messages(database) == ["b", "d"]
    assert decisions(database) == {"a": ["commit", True, "b"], "b": ["commit", None, "b"],
                                   "c": ["rollback", None, None], "d": ["commit", None, "d"]}
    assert database.execute("select biz_id, kept, refused from outbox.lookback_conflict") == [
        ("c", "rollback", "commit")]
    at = reader.prepared_at("a")
    assert reader.apply(commit("c", reader.prepared_at("c")), commit("b", at), commit("a", at))[:2] == (0, 3)
    assert messages(database) == ["b", "d"]


def test_a_rollback_takes_no_key(database, reader):
    reader.apply(unique("1", "k"), unique("2", "k"), rollback("1"))
    reader.apply(commit("2", reader.prepared_at("2")))
    assert messages(database) == ["2"]


def test_keys_are_shared_with_outbox_publish_in_both_directions(database, reader):
    cursor = database.connect().cursor()
    first = publish(cursor, "from-sql")
    reader.apply(unique("1", "from-sql"), unique("2", "from-lookback"), unique("3", "from-sql", topic="mails"),
                 commit("1"), commit("2"), commit("3"))
    assert messages(database) == ["2", "3"]  # each topic has keys of its own
    assert database.execute("select event_id::text from outbox.lookback where biz_id = '1' and kind = 'decision'") == [
        (first,)]
    second, = database.execute("select event_id::text from outbox.message where key_bytes = '2'")[0]
    assert publish(cursor, "from-lookback") == second


def test_the_window_begins_when_the_message_is_written(database, reader):
    reader.apply(unique("1", "k", 1000), unique("2", "k", 1000), unique("3", "k", 1000))
    at = reader.prepared_at("1")
    reader.apply(commit("1", at))
    reader.apply(commit("2", at))
    assert messages(database) == ["1"]
    wait_for(lambda: database.execute("select clock_timestamp() > created_at + interval '1 second' "
                                      "from outbox.message order by id desc limit 1")[0][0], 10, "the end of the window")
    reader.apply(commit("3", at))
    assert messages(database) == ["1", "3"]


def test_commits_of_a_batch_are_one_moment_for_the_window(database, reader):
    """Otherwise a window that is shorter than the batch makes the decider call itself until the server's stack is full."""
    ids = [str(number) for number in range(200)]
    reader.apply(*[unique(id, "k", 1) for id in ids])
    at = reader.prepared_at("0")
    assert reader.apply(*[commit(id, at) for id in ids])[:2] == (200, 0)
    assert messages(database) == ["0"]
    assert sum(duplicate is True for _, duplicate, _ in decisions(database).values()) == 199


def test_while_pending_holds_until_the_message_is_published(database, reader):
    """Without a publisher every message is pending, whatever its window."""
    reader.apply(unique("1", "k", 1, while_pending="published"), unique("2", "k", 1, while_pending="published"), commit("1"))
    wait_for(lambda: database.execute("select clock_timestamp() > created_at + interval '1 second' "
                                      "from outbox.message")[0][0], 10, "the end of the window")
    reader.apply(commit("2", reader.prepared_at("2")))
    assert messages(database) == ["1"]
    assert database.execute("select waits_for from outbox.unique_ledger") == [("published",)]


def test_the_checker_and_an_operator_decide_in_the_same_way(database, reader):
    *_, clock = reader.apply(unique("1", "k", check_ms=0), unique("2", "k", check_ms=0), unique("3", "k", check_ms=0))
    reader.apply(horizon=clock)
    rows = {id: at for id, at, *_ in claim(database, 7)}
    assert settle(database, 7, [(id, rows[id], "commit", True, 0, False) for id in ("2", "1")]) == (2, 0, 0, [])
    database.execute("select outbox.lookback_operate('commit', '{\"ids\": [[\"order\", \"3\"]]}', 'because', true)")
    assert messages(database) == ["2"]
    assert [decisions(database)[id][1:] for id in "123"] == [[True, "2"], [None, "2"], [True, "2"]]


def test_an_open_transaction_that_has_the_key_is_waited_for_only_shortly(database, reader):
    """A reader gets the places of the first such decision of each partition, and nothing of its batch is stored."""
    application = database.connect(autocommit=False)
    first = publish(application.cursor(), "k")
    reader.apply(unique("1", "k"), prepare("2"), unique("3", "k", check_ms=0))
    at = reader.prepared_at("1")
    begin = time.monotonic()
    with pytest.raises(psycopg2.Error) as held:
        reader.apply(commit("2", at), commit("1", at), commit("3", at))
    assert time.monotonic() - begin < 5
    assert (held.value.pgcode, held.value.diag.message_detail) == ("OR007", "2")
    pid = application.get_backend_pid()
    assert held.value.diag.message_primary == (
        f'an open transaction has the unique key "k" of topic orders (process {pid})')
    assert messages(database) == [] and decisions(database) == {}

    *_, clock = reader.apply(commit("2", at))
    reader.apply(horizon=clock)
    asked, = claim(database, 7)
    # the business is called again; the attempt does not count
    assert settle(database, 7, [(asked[0], asked[1], "commit", True, 0, True)]) == (0, 0, 0, [])
    assert database.execute("select biz_id, state, attempts, last_result, last_error like 'an open transaction%' "
                            "from outbox.lookback_overdue") == [("3", "overdue", 0, "held", True)]
    with pytest.raises(psycopg2.Error) as held:
        database.execute("select outbox.lookback_operate('commit', '{\"ids\": [[\"order\", \"3\"]]}', 'because', true)")
    assert held.value.pgcode == "OR007" and "nothing was changed" in held.value.diag.message_hint

    application.commit()
    reader.apply(commit("1", at), commit("3", at))
    assert messages(database) == ["2"]
    assert database.execute("select distinct event_id::text from outbox.lookback where biz_id <> '2' "
                            "and kind = 'decision'") == [(first,)]


def test_a_rolled_back_transaction_leaves_the_key_to_a_commit(database, reader):
    application = database.connect(autocommit=False)
    publish(application.cursor(), "k")
    reader.apply(unique("1", "k"))
    with pytest.raises(psycopg2.Error):
        reader.apply(commit("1", reader.prepared_at("1")))
    application.rollback()
    reader.apply(commit("1", reader.prepared_at("1")))
    assert messages(database) == ["1"] and decisions(database) == {"1": ["commit", None, "1"]}


def test_more_keys_than_a_transaction_takes_are_left_for_the_next(database, reader):
    count = 1003
    ids = [str(number) for number in range(count)]
    reader.apply(*(unique(id, id) for id in ids))
    at = reader.prepared_at("0")
    with pytest.raises(psycopg2.Error) as full:
        reader.apply(*(commit(id, at) for id in ids))
    assert (full.value.pgcode, full.value.diag.message_detail) == ("OR008", "1001")
    begin = time.monotonic()
    assert reader.apply(*(commit(id, at) for id in ids[:1000]))[0] == 1000
    assert time.monotonic() - begin < 10
    assert messages(database) == ids[:1000]


def test_prepares_and_publishes_of_the_same_keys_at_once_give_one_message_each(database, scale):
    """Readers of several partitions, which commit in opposite orders, against writers, some of which roll back."""
    keys, rounds = [f"key-{number}" for number in range(30)], scale(40, 4)
    failures, returned = [], []

    def read(number):
        try:
            reader = Reader(database, partition=number)
            for turn in range(rounds):
                order = keys if number % 2 else keys[::-1]
                ids = [f"{number}-{turn}-{key}" for key in order]
                reader.apply(*(unique(id, key) for id, key in zip(ids, order)))
                at = reader.prepared_at(ids[0])
                while True:
                    try:
                        reader.apply(*(commit(id, at) for id in ids))
                        break
                    except psycopg2.Error as error:
                        if error.pgcode not in ("OR007", "40P01"):
                            raise
        except Exception as error:  # pylint: disable=broad-except
            failures.append(error)

    def write(number):
        try:
            connection = database.connect(autocommit=False)
            for turn in range(rounds * 10):
                try:
                    event = publish(connection.cursor(), keys[(turn * 7 + number) % len(keys)])
                    if turn % 3 == 0:
                        connection.rollback()
                    else:
                        connection.commit()
                        returned.append(event)
                except psycopg2.errors.DeadlockDetected:
                    connection.rollback()
        except Exception as error:  # pylint: disable=broad-except
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4) for work in (read, write)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert database.execute("select count(*), count(distinct unique_key) from outbox.unique_ledger") == [(30, 30)]
    events = {event for event, in database.execute("select event_id::text from outbox.message")}
    assert len(events) == 30 == database.execute("select count(*) from outbox.message")[0][0]
    assert set(returned) <= events
    said = database.execute("select event_id::text, duplicate from outbox.lookback where kind = 'decision'")
    assert len(said) == 4 * rounds * len(keys) and {event for event, _ in said} <= events
    written = [event for event, duplicate in said if not duplicate]
    assert len(written) == len(set(written))
