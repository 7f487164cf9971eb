"""The look-back's journal: which columns belong to which kind of row, and what its keys promise."""

import psycopg2
import pytest

KINDS = {
    "prepare": {"source_partition": "0", "source_offset": "7", "topic": "'orders'",
                "check_at": "now() + interval '1 minute'", "digest": "'d'",
                "event_id": "gen_random_uuid()"},
    "decision": {"decision": "'rollback'", "source": "'message'", "decided_at": "now()"},
    "tombstone": {"decision": "'commit'", "source_partition": "0", "source_offset": "7"},
}
MESSAGE = {"key": "'k'", "payload": "'x'", "headers": "'{}'", "check_service": "'orders'",
           "check_url": "'https://shop/check'", "expires_at": "now()"}
EVENT = {"event_id": "gen_random_uuid()"}
DECIDED = {"source": "'message'", "decided_at": "now()", "decided_by": "'ann'", "reason": "'x'"}


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


REFUSED = [
    ("promise", {"decision": "'commit'"}, "kind_is_prepare_decision_or_tombstone"),
    *(("prepare", {name: None}, "a_prepare_has_a_place_a_topic_and_a_time_to_check")
      for name in KINDS["prepare"]),
    *(("prepare", {name: value}, "a_prepare_has_a_place_a_topic_and_a_time_to_check")
      for name, value in {**DECIDED, "decision": "'commit'"}.items()),
    ("decision", {"decision": "'maybe'"}, "decision_is_commit_or_rollback"),
    ("decision", {"source": "'rumour'"}, "source_is_message_check_or_operator"),
    *(("decision", {name: None}, "a_decision_says_what_by_what_and_when")
      for name in KINDS["decision"]),
    ("decision", {"decision": "'commit'"}, "a_decision_says_what_by_what_and_when"),
    ("decision", EVENT, "a_decision_says_what_by_what_and_when"),
    *(("decision", {name: value}, "a_decision_says_what_by_what_and_when")
      for name, value in {**MESSAGE, "topic": "'t'", "check_at": "now()", "digest": "'d'"}.items()),
    *(("tombstone", {name: None}, "a_tombstone_says_what_and_has_a_place")
      for name in KINDS["tombstone"]),
    *(("tombstone", {name: value}, "a_tombstone_says_what_and_has_a_place")
      for name, value in {**MESSAGE, **DECIDED, **EVENT, "topic": "'t'", "check_at": "now()", "digest": "'d'"}.items()),
    ("prepare", {"topic": "'a b'"}, "topic_is_a_kafka_topic_name"),
    ("prepare", {"at": "'infinity'"}, "prepared_at_is_finite")]


def test_what_does_not_belong_to_the_kind_is_refused_by_name(database):
    for kind, columns, constraint in REFUSED:
        with pytest.raises(psycopg2.errors.CheckViolation) as refused:
            insert(database, kind, **columns)
        assert (kind, columns, refused.value.diag.constraint_name) == (kind, columns, constraint)


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
