"""The look-back's journal: which columns belong to which kind of row, and what its keys promise."""

import psycopg2
import pytest

KINDS = {
    "prepare": {"source_partition": "0", "source_offset": "7", "topic": "'orders'",
                "check_at": "now() + interval '1 minute'"},
    "decision": {"decision": "'rollback'", "source": "'message'", "decided_at": "now()"},
    "tombstone": {"decision": "'commit'", "source_partition": "0", "source_offset": "7"},
}
MESSAGE = {"key": "'k'", "payload": "'x'", "headers": "'{}'", "check_service": "'orders'",
           "check_url": "'https://shop/check'", "expires_at": "now()"}
EVENT = {"event_id": "gen_random_uuid()"}


def insert(database, kind, at="clock_timestamp()", **columns):
    """Of the columns that are given, and those without which there is no such kind; None: left out."""
    row = {"biz_type": "'order'", "biz_id": "'1'", "prepared_at": at, "kind": f"'{kind}'",
           "section": "'shop'", **KINDS.get(kind, {}), **columns}
    row = {name: value for name, value in row.items() if value is not None}
    database.execute(f"insert into outbox.lookback ({', '.join(row)}) values "
                     f"({', '.join(row.values())})")


@pytest.mark.parametrize("kind, columns", [
    ("prepare", {}), ("prepare", MESSAGE), ("decision", {}), ("tombstone", {}),
    ("decision", {"decision": "'commit'", "source": "'operator'", "decided_by": "'ann'",
                  "reason": "'ticket 7'", **EVENT}),
    ("decision", {"source": "'check'", "source_partition": "3", "source_offset": "4"})])
def test_a_row_of_each_kind_has_the_columns_of_its_kind(database, kind, columns):
    insert(database, kind, **columns)
    assert database.execute("select kind from outbox.lookback") == [(kind,)]


@pytest.mark.parametrize("kind, columns, constraint", [
    ("promise", {"decision": "'commit'"}, "kind_is_prepare_decision_or_tombstone"),
    *(("prepare", {name: None}, "a_prepare_has_a_place_a_topic_and_a_time_to_check")
      for name in KINDS["prepare"]),
    ("prepare", {"decision": "'commit'"}, "all_but_a_prepare_say_what_was_decided"),
    ("decision", {"decision": None}, "all_but_a_prepare_say_what_was_decided"),
    ("tombstone", {"decision": None}, "all_but_a_prepare_say_what_was_decided"),
    *((kind, {name: value}, "only_a_prepare_has_a_message_and_a_check")
      for kind in ("decision", "tombstone")
      for name, value in {**MESSAGE, "topic": "'t'", "check_at": "now()"}.items()),
    ("decision", {"decision": "'maybe'"}, "decision_is_commit_or_rollback"),
    ("decision", {"source": "'rumour'"}, "source_is_message_check_or_operator"),
    ("decision", {"source": None}, "a_decision_says_by_what_and_when"),
    ("decision", {"decided_at": None}, "a_decision_says_by_what_and_when"),
    ("prepare", {"reason": "'x'"}, "a_decision_says_by_what_and_when"),
    ("tombstone", {"decided_by": "'ann'"}, "a_decision_says_by_what_and_when"),
    ("tombstone", {"source_offset": None}, "a_tombstone_has_a_place"),
    ("decision", {"decision": "'commit'"}, "exactly_a_committed_prepare_has_an_event"),
    ("decision", EVENT, "exactly_a_committed_prepare_has_an_event"),
    ("tombstone", EVENT, "exactly_a_committed_prepare_has_an_event"),
    ("prepare", EVENT, "exactly_a_committed_prepare_has_an_event"),
    ("prepare", {"topic": "'a b'"}, "topic_is_a_kafka_topic_name"),
    ("prepare", {"at": "'infinity'"}, "prepared_at_is_finite")])
def test_what_does_not_belong_to_the_kind_is_refused_by_name(database, kind, columns, constraint):
    with pytest.raises(psycopg2.errors.CheckViolation) as refused:
        insert(database, kind, **columns)
    assert refused.value.diag.constraint_name == constraint


def test_the_first_decision_of_a_prepare_is_the_only_one(database):
    at = "'2030-01-02 03:04:05Z'"
    insert(database, "prepare", at)
    insert(database, "decision", at)
    for decision in ({}, {"decision": "'commit'", **EVENT}):
        with pytest.raises(psycopg2.errors.UniqueViolation):
            insert(database, "decision", at, **decision)
    insert(database, "prepare")  # the same id once more is another one


def test_the_payload_is_lz4_in_all_partitions(database):
    lz4 = database.execute("select exists (select from pg_settings where "
                           "name = 'default_toast_compression' and 'lz4' = any (enumvals))")[0][0]
    if lz4:  # PostgreSQL 13 has neither it nor the column that tells
        assert database.execute(
            "select distinct attcompression from pg_attribute where attname = 'payload' "
            "and attrelid in (select inhrelid from pg_inherits "
            "where inhparent = 'outbox.lookback'::regclass)") == [("l",)]
