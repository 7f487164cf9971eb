"""The look-back's functions: who reads which offset, who decides first, who is asked."""

import json
import threading
from datetime import timedelta

import psycopg2
import pytest

from support.process import wait_for
from support.lookback_rows import TOPIC, Reader, claim, commit, prepare, rollback, settle


def messages(database):
    return [bytes(key).decode() for key, in database.execute(
        "select key_bytes from outbox.message order by id")]


def conflicts(database):
    return database.execute("select biz_id, kept, refused, source from outbox.lookback_conflict "
                            "order by id")


def overdue(database):
    return database.execute("select biz_id, state, attempts, claim from outbox.lookback_overdue "
                            "order by biz_id")


@pytest.fixture
def reader(database):
    return Reader(database)


def later(clock, seconds=3600):
    return clock + timedelta(seconds=seconds)


# --- the reader ------------------------------------------------------------------------------------

def test_a_commit_writes_the_message_that_was_prepared_and_a_rollback_none(database, reader):
    assert reader.apply(prepare("1"), prepare("2"), prepare("3"))[:3] == (0, 0, 0)
    assert messages(database) == []
    at = reader.prepared_at("1")
    assert reader.apply(commit("1", at), rollback("2", at))[:2] == (2, 0)
    assert database.execute("select topic, convert_from(key_bytes, 'UTF8'), convert_from(payload_bytes, 'UTF8'), "
                            "headers from outbox.message") == [
        ("orders", "1", "payload of 1", {"a": "b"})]
    assert database.execute(
        "select m.event_id = l.event_id, d.event_id = l.event_id from outbox.message m, "
        "outbox.lookback l, outbox.lookback d where l.biz_id = '1' and l.kind = 'prepare' "
        "and d.biz_id = '1' and d.kind = 'decision'") == [(True, True)]


def test_the_relays_role_may_do_all_of_it_and_write_no_other_message(database, reader):
    reader.cursor.execute("set role outbox_relay")
    *_, clock = reader.apply(prepare("1", 0), prepare("2", 0))
    at = reader.prepared_at("1")
    reader.apply(commit("1", at), horizon=clock)
    reader.cursor.execute("select biz_id from outbox.lookback_claim('shop', '{order}', '{9}', 7, 1)")
    assert reader.cursor.fetchall() == [("2",)]
    reader.cursor.execute("select outbox.lookback_settle('shop', 7, '{order}', '{2}', "
                          "array[%s::timestamptz], '{commit}', '{}', '{t}', '{0}', '{f}')", (at,))
    reader.cursor.execute("select outbox.lookback_tidy(1000)")
    assert messages(database) == ["1", "2"]
    with pytest.raises(psycopg2.errors.InsufficientPrivilege):
        reader.cursor.execute("insert into outbox.message (topic) values ('orders')")


def test_messages_are_in_the_order_of_the_records_that_committed_them(database, reader):
    ids = [f"{number * 7919 % 1000:03}" for number in range(100)]
    reader.apply(*(prepare(id) for id in reversed(ids)))
    at = reader.prepared_at(ids[0])
    dead_letter = {"op": "dead_letter", "topic": "dead", "key": b"dead", "headers": "[]"}
    reader.apply(*(commit(id, at) for id in ids[:50]), dead_letter,
                 *(commit(id, at) for id in ids[50:]))
    assert messages(database) == ids[:50] + ["dead"] + ids[50:]


def test_the_first_of_several_decisions_stands_and_others_are_noted(database, reader):
    reader.apply(prepare("1"), commit("1"), commit("1"), rollback("1"), prepare("2"), rollback("2"))
    at = reader.prepared_at("2")
    assert reader.apply(commit("1", at), rollback("1", at), commit("2", at))[:2] == (0, 3)
    assert messages(database) == ["1"]
    assert conflicts(database) == [("1", "commit", "rollback", "message")] * 2 + [
        ("2", "rollback", "commit", "message")]


def test_decisions_read_their_prepares_alone_in_a_partition_that_was_empty_when_planned(reader):
    for number in range(8):  # by now the plans are kept
        reader.apply(prepare(f"plan {number}"), commit(f"plan {number}"))
    reader.apply(*(prepare(str(number)) for number in range(500)))
    at = reader.prepared_at("0")
    reader.cursor.execute("begin")
    reader.apply(*(commit(str(number), at) for number in range(400, 500)))
    reader.cursor.execute("select sum(idx_tup_fetch)::int from pg_stat_xact_user_tables "
                          "where relname ~ '^lookback_(p|default)'")
    assert 100 <= reader.cursor.fetchone()[0] < 1000
    reader.cursor.execute("commit")


def test_what_came_before_its_prepare_is_known_when_that_comes(database, reader):
    reader.apply({"op": "tombstone", "type": "order", "id": "1", "decision": "commit"})
    (kind, _, decision), = reader.known("1", "2")["1"]
    assert (kind, decision) == ("tombstone", "commit")
    reader.apply(prepare("1"), commit("1"))
    assert messages(database) == ["1"]


def test_a_decision_of_a_prepare_that_is_gone_does_nothing(database, reader):
    reader.apply(prepare("1"))
    at = reader.prepared_at("1")
    assert reader.apply(commit("1", at - timedelta(days=9)), commit("2", at))[:2] == (0, 2)
    assert messages(database) == [] and len(reader.known("1")["1"]) == 1


def test_a_reader_that_was_overtaken_has_no_effect(database, reader):
    late = Reader(database)
    reader.apply(prepare("1"))
    with pytest.raises(psycopg2.Error) as refused:
        late.apply(prepare("2"))
    assert refused.value.pgcode == "OR004"
    for n, offset in ((1, 0), (0, 1), (2, 1)):  # the offset, the number or both are others
        with pytest.raises(psycopg2.Error) as refused:
            Reader(database, n=n, offset=offset).apply(prepare("2"))
        assert refused.value.pgcode == "OR004"
    assert database.execute("select biz_id from outbox.lookback") == [("1",)]
    assert Reader(database, n=1, offset=1).apply(prepare("2"))
    assert Reader(database, partition=1).apply(prepare("3"))
    assert database.execute("select * from outbox.lookback_progress('shop', %s)", (TOPIC,)) == [
        (0, 2, 2), (1, 1, 1)]


def test_of_two_readers_at_the_same_moment_one_has_an_effect(database):
    for round in range(20):
        readers = [Reader(database, n=round, offset=round) for _ in range(2)]
        outcomes = []

        def read(reader):
            try:
                outcomes.append(reader.apply(prepare(str(round))))
            except psycopg2.Error as failure:
                outcomes.append(failure.pgcode)

        threads = [threading.Thread(target=read, args=(reader,)) for reader in readers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        refused = [outcome for outcome in outcomes if isinstance(outcome, str)]
        assert len(refused) == 1 and refused[0] in ("OR004", "23505"), outcomes
    assert database.execute("select count(*) from outbox.lookback") == [(20,)]


def test_a_topic_that_the_database_refuses_has_no_effect_at_all(database, reader):
    with pytest.raises(psycopg2.errors.CheckViolation):
        reader.apply(prepare("1"), prepare("2", topic="no topic"))
    assert database.execute("select count(*) from outbox.lookback_log") == [(0,)]


# --- overdue ---------------------------------------------------------------------------------------

def test_undecided_prepares_become_overdue_when_their_time_has_come(database, reader):
    *_, clock = reader.apply(prepare("1", 1000), prepare("2", 1000), prepare("3", 10_000_000))
    at = reader.prepared_at("1")
    assert reader.apply(rollback("2", at))[2] == 0
    assert reader.apply(horizon=later(clock))[2] == 1
    assert overdue(database) == [("1", "overdue", 0, None)]
    assert reader.apply(horizon=later(clock))[2] == 0
    assert reader.apply(commit("1", at))[0] == 1  # late, and first all the same
    assert overdue(database) == [] and messages(database) == ["1"]


def test_no_more_become_overdue_at_once_than_asked_for_and_none_is_passed(database, reader):
    for batch in range(10):
        *_, clock = reader.apply(*(prepare(f"{batch}-{number}", 1000) for number in range(10)))
    counts = []
    while not counts or counts[-1]:
        counts.append(reader.apply(horizon=later(clock), most=25)[2])
    assert sum(counts) == 100 and max(counts) <= 34, counts  # those of one batch go together


def test_a_prepare_that_is_due_before_what_was_looked_through_is_overdue_at_once(database, reader):
    """As after a failover to a server whose clock is behind."""
    *_, clock = reader.apply(prepare("1", 1000))
    reader.apply(horizon=later(clock, 10_000))
    assert reader.apply(prepare("2", 1000), prepare("3", 1000), rollback("3"),
                        prepare("4", 100_000_000))[2] == 1
    assert [id for id, *_ in overdue(database)] == ["1", "2"]


# --- the checker -----------------------------------------------------------------------------------

@pytest.fixture
def late(database, reader):
    """late(ids): prepares that are overdue."""
    def make(*ids, **more):
        *_, clock = reader.apply(*(prepare(id, 0, **more) for id in ids))
        reader.apply(horizon=clock)
        assert len(overdue(database)) >= len(ids)

    return make


def test_a_claim_keeps_rows_from_others_until_it_ends(database, late):
    late("1", "2", "3")
    assert [id for id, *_ in claim(database, 7, most=2)] == ["1", "2"]
    assert [id for id, *_ in claim(database, 8)] == ["3"]
    assert claim(database, 9) == []
    database.execute("update outbox.lookback_overdue set next_check = now() where claim = 7")
    assert [id for id, *_ in claim(database, 10)] == ["1", "2"]


def test_rows_that_somebody_changes_are_not_waited_for(database, late):
    late("1", "2")
    with database.connect(autocommit=False) as other:
        other.cursor().execute("select from outbox.lookback_overdue where biz_id = '1' for update")
        assert [id for id, *_ in claim(database, 7)] == ["2"]


def test_an_answer_decides_or_says_when_to_ask_again(database, late):
    late("1", "2", "3", "4", "5")
    at = claim(database, 7)[0][1]
    assert settle(database, 7, [
        ("1", at, "commit", True, 0, False), ("2", at, "rollback", True, 0, False),
        ("3", at, "unknown", True, 1000, False), ("4", at, "not_sent", False, 1000, False),
        ("5", at, "unknown", True, 0, True)]) == (2, 0, 0, [5])
    assert messages(database) == ["1"]
    assert overdue(database) == [("3", "overdue", 1, None), ("4", "overdue", 0, None),
                                 ("5", "parked", 1, None)]
    assert database.execute("select last_result, last_error, pendings from outbox.lookback_overdue "
                            "where biz_id = '3'") == [("unknown", "said unknown", 0)]
    assert database.execute("select decision, source from outbox.lookback where kind = 'decision' "
                            "order by biz_id") == [("commit", "check"), ("rollback", "check")]
    assert claim(database, 8) == []  # none is due, and what is parked never is


def test_what_another_one_claimed_meanwhile_is_left_alone(database, late):
    late("1", "2")
    at = claim(database, 7)[0][1]
    database.execute("update outbox.lookback_overdue set next_check = now()")
    claim(database, 8)
    assert settle(database, 7, [("1", at, "commit", True, 0, False),
                                ("2", at, "unknown", True, 5, True)]) == (0, 0, 2, [])
    assert overdue(database) == [("1", "overdue", 0, 8), ("2", "overdue", 0, 8)]
    assert messages(database) == []


def test_an_answer_that_comes_after_the_decision_is_a_conflict_or_nothing(database, reader, late):
    late("1", "2")
    at = claim(database, 7)[0][1]
    reader.apply(commit("1", at), commit("2", at))
    assert settle(database, 7, [("1", at, "rollback", True, 0, False),
                                ("2", at, "commit", True, 0, False)]) == (0, 2, 0, [])
    assert messages(database) == ["1", "2"]
    assert conflicts(database) == [("1", "commit", "rollback", "check")]


def test_an_expired_one_says_so(database, late):
    late("1", expire_ms=0)
    late("2", expire_ms=3_600_000)
    assert [row[-1] for row in claim(database, 7)] == [True, False]


# --- the operator ----------------------------------------------------------------------------------

def operate(database, verb, chosen, reason="ticket 7", whole=False):
    """How many are done; or how it was refused."""
    done, refused = database.execute(
        "select done, refused from outbox.lookback_operate(%s, %s, %s, %s)",
        (verb, json.dumps(chosen), reason, whole))[0]
    assert done == 0 or refused is None
    return refused or done


def test_an_operator_decides_by_name_also_what_is_not_overdue(database, reader):
    reader.apply(prepare("1"), prepare("2"), prepare("3"))
    assert operate(database, "commit", {"ids": [["order", "1"]]}, whole=True) == 1
    assert messages(database) == ["1"]
    assert database.execute("select source, decided_by, reason from outbox.lookback "
                            "where kind = 'decision'") == [("operator", "postgres", "ticket 7")]
    assert database.execute("select verb, target -> 'rows', reason from outbox.audit") == [
        ("lookback commit", 1, "ticket 7")]


def test_an_operator_decides_all_that_match(database, late):
    late("1", "2", "3")
    database.execute("update outbox.lookback_overdue set last_error = 'timeout' where biz_id < '3'")
    assert operate(database, "rollback", {"error": "time", "type": "order"}) == 2
    assert [id for id, *_ in overdue(database)] == ["3"]
    assert operate(database, "commit", {"state": "overdue"}) == 1
    assert messages(database) == ["3"]


def test_a_retry_asks_anew_with_a_new_budget(database, late):
    late("1", expire_ms=0)
    at = claim(database, 7)[0][1]
    settle(database, 7, [("1", at, "unknown", True, 1_000_000, True)])
    assert operate(database, "retry", {"state": "parked"}) == 1
    assert overdue(database) == [("1", "overdue", 0, None)]
    assert [id for id, *_ in claim(database, 8)] == ["1"]


@pytest.mark.parametrize("chosen, whole, code", [
    ({"ids": [["order", "none"]]}, True, "OR002"),
    ({"ids": [["order", "2"]]}, True, "OR002"),
    ({"ids": [["order", "1"], ["order", "2"]]}, True, "OR002"),
    ({"type": "payment"}, False, "OR002")])
def test_what_is_not_undecided_is_refused_and_nothing_changes(database, reader, chosen, whole, code):
    reader.apply(prepare("1"), prepare("2"), rollback("2"))
    assert operate(database, "commit", chosen, whole=whole) == code
    assert messages(database) == [] and database.execute("select id from outbox.audit") == []


def test_an_operator_who_comes_too_late_leaves_what_he_wanted(database, reader):
    reader.apply(prepare("1"), prepare("2"), rollback("2"))
    named = {"ids": [["order", "1"], ["order", "2"]]}
    assert operate(database, "rollback", {"ids": [["order", "2"]]}, whole=True) == "OR002"
    assert operate(database, "retry", {"ids": [["order", "2"]]}, whole=True) == "OR002"
    assert conflicts(database) == []
    assert operate(database, "commit", named, whole=True) == "OR002"
    assert conflicts(database) == [("2", "rollback", "commit", "operator")]
    assert database.execute("select who from outbox.lookback_conflict") == [("postgres",)]
    assert operate(database, "commit", named) == 1


# --- all at once -----------------------------------------------------------------------------------

@pytest.mark.long
def test_whoever_decides_at_once_one_wins_and_nobody_waits_in_a_circle(database, reader, scale):
    """Reader, checker and operator want the same ids, some one thing and some the other."""
    rounds, size = scale(200, default=20), 50
    for number in range(rounds):
        ids = [f"{number}-{place}" for place in range(size)]
        *_, clock = reader.apply(*(prepare(id, 0) for id in ids))
        reader.apply(horizon=clock)
        at = reader.prepared_at(ids[0])
        claim(database, number)
        failures = []

        def run(call):
            try:
                call()
            except psycopg2.Error as failure:
                failures.append(failure)

        calls = [
            lambda: reader.apply(*(commit(id, at) for id in ids)),
            lambda: settle(database, number, [
                (id, at, ("rollback", "commit", "unknown")[place % 3], True, 0, False)
                for place, id in enumerate(reversed(ids))]),
            lambda: operate(database, "rollback", {"ids": [["order", id] for id in ids[::2]]})]
        threads = [threading.Thread(target=run, args=(call,)) for call in calls]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures, failures
    total = rounds * size
    assert database.execute("select count(*) from outbox.lookback where kind = 'decision'") == [
        (total,)]
    committed = database.execute("select biz_id from outbox.lookback where kind = 'decision' "
                                 "and decision = 'commit'")
    assert sorted(messages(database)) == sorted(id for id, in committed)
    assert overdue(database) == []
    # each that wanted something else and came too late is noted
    wanted = database.execute(
        "select count(*) from outbox.lookback_conflict c join outbox.lookback d "
        "on d.biz_id = c.biz_id and d.kind = 'decision' where c.kept <> d.decision "
        "or c.refused = d.decision")
    assert wanted == [(0,)] and conflicts(database)


def test_what_nobody_goes_on_from_is_forgotten(database, reader):
    for _ in range(5):
        reader.apply(prepare("1", 0) if reader.n == 0 else rollback("1"))
    database.execute("select outbox.lookback_tidy(1000 * 3600)")
    assert database.execute("select n from outbox.lookback_log") == [(5,)]
    reader.apply()
    database.execute("insert into outbox.lookback_conflict (at, section, biz_type, biz_id, kept, "
                     "refused, source) values (now() - interval '2 h', 's', 't', 'i', 'commit', "
                     "'rollback', 'message')")
    database.execute("select outbox.lookback_tidy(1000 * 3600)")
    assert conflicts(database) == []


def test_a_reader_whose_row_came_and_was_forgotten_has_no_effect(database):
    """It waits for a lock behind its look at the newest row, while others go on and upkeep tidies."""
    outcome = None
    while outcome in (None, "55P03"):  # it waited for more than five seconds: once more
        database.execute("delete from outbox.lookback_log")
        late, outcomes = Reader(database), []

        def read():
            try:
                outcomes.append(late.apply(prepare("1")))
            except psycopg2.Error as failure:
                outcomes.append(failure.pgcode)

        with database.connect(autocommit=False) as other:
            other.cursor().execute("lock table outbox.lookback in share row exclusive mode")
            thread = threading.Thread(target=read)
            thread.start()
            wait_for(lambda: outcomes or database.execute(
                "select 1 from pg_stat_activity where pid = %s and wait_event_type = 'Lock'",
                (late.connection.get_backend_pid(),)), 60, "the late reader to wait")
            database.execute("insert into outbox.lookback_log select 'shop', %s, 0, n, n, now(), 'x' "
                             "from generate_series(1, 3) n", (TOPIC,))
            database.execute("select outbox.lookback_tidy(1000)")
        thread.join()
        outcome, = outcomes
    assert outcome == "OR004"
    assert database.execute("select n from outbox.lookback_log") == [(3,)]


def test_it_is_told_when_the_first_prepare_comes_due_that_was_not_looked_at(database, reader):
    due = "select place, wait_ms from outbox.lookback_due('shop', %s, '{7,0}')"
    assert database.execute(due, (TOPIC,)) == [(1, None), (2, None)]
    *_, clock = reader.apply(prepare("1", 60_000), prepare("2", 3_600_000), prepare("3", -5_000))
    (_, other), (_, waited) = database.execute(due, (TOPIC,))
    assert other is None and -60_000 < waited <= -5_000
    assert reader.apply(horizon=clock)[2] == 1
    (_, waited), = database.execute(due, (TOPIC,))[1:]
    assert 0 < waited <= 60_000
    reader.apply(horizon=later(clock, 7200))
    assert database.execute(due, (TOPIC,))[1] == (2, None)
