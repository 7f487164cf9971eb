"""Verbs that destroy show what they would do, ask on a terminal, need --yes and --reason in scripts, and
refuse what contradicts the configuration unless --force names it."""

import datetime

import pytest

from support.relay import on_a_terminal, run_command

REFUSED = 65
AGREED = ["--yes", "--reason", "ticket 7"]


@pytest.fixture
def settings(database):
    return {"DATABASE_URL": database.dsn}


def leaves(database, table="message"):
    return {name for name, in database.execute(
        "SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid"
        f" WHERE i.inhparent = 'outbox.{table}'::regclass")}


@pytest.fixture
def today(database):
    """The partition of today, with three rows that are not published."""
    database.execute("INSERT INTO outbox.message (topic, key, payload) SELECT 't', 'k', 'p'"
                     " FROM generate_series(1, 3)")
    (day,), = database.execute("SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD')")
    return f"message_p{day}"


@pytest.fixture
def old(settings):
    """An empty partition of long ago."""
    status, _, error = run_command(
        ["partition", "make", "--from", "2026-01-02", "--table", "message"], settings)
    assert status == 0, error
    return "message_p20260102"


def drop(settings, *arguments):
    return run_command(["partition", "drop", *arguments], settings)


def audit(database):
    return database.execute("SELECT verb, publisher, target, reason FROM outbox.audit ORDER BY id")


def test_todays_partition_goes_only_when_all_that_speaks_against_it_is_named(settings, database, today):
    for force, words in (([], ["`retain`", "main/0 has not published", "force it with `retain`, `unpublished`"]),
                         (["--force", "retain"], ["main/0 has not published", "force it with `unpublished`"]),
                         (["--force", "unpublished"], ["`retain`", "force it with `retain`\n"])):
        status, output, error = drop(settings, today, *AGREED, *force)
        assert (status, output) == (REFUSED, ""), error
        for word in words:
            assert word in error
    assert today in leaves(database) and audit(database) == []
    assert database.execute("SELECT count(*) FROM outbox.message") == [(3,)]

    force = ["--force", "retain,unpublished"]
    status, output, _ = drop(settings, today, *force, "--dry-run")
    assert status == 0 and f"drop of {today}: 3 rows" in output and "nothing was changed" in output
    assert today in leaves(database) and audit(database) == []
    status, output, error = drop(settings, today, *AGREED, *force)
    assert status == 0 and output.endswith(f"{today} dropped\n"), error
    assert today not in leaves(database)
    assert audit(database) == [
        ("partition drop", None, {"partition": today, "force": "retain,unpublished"}, "ticket 7")]


def test_a_partition_is_detached_by_the_same_rules(settings, database, today):
    status, _, error = drop(settings, today, "--detach", *AGREED)
    assert status == REFUSED and f"{today} is not detached: " in error and "force it with `retain`, `unpublished`" in error
    status, _, error = drop(settings, today, "--detach", *AGREED, "--force=unpublished,retain")
    assert status == 0, error
    assert today not in leaves(database)
    assert [row[0] for row in audit(database)] == ["partition detach"]


def test_a_retention_that_detaches_keeps_rows_from_being_dropped(settings, database, old):
    detaches = {**settings, "OUTBOX_RELAY_POSTGRES_RETENTION": "detach"}
    status, _, error = drop(detaches, old, *AGREED)
    assert status == REFUSED and "retention = detach" in error and "force it with `retention`" in error
    status, _, error = drop(detaches, old, *AGREED, "--force", "retention")
    assert status == 0, error
    assert old not in leaves(database)


@pytest.mark.parametrize("table, word", [("lookback", "undecided"), ("processed", "window"), ("unique_ledger", "window")])
def test_other_tables_have_words_of_their_own(settings, database, table, word):
    if table == "lookback":
        database.execute(
            "INSERT INTO outbox.lookback (biz_type, biz_id, prepared_at, kind, section, source_partition,"
            " source_offset, topic, key, payload, headers, check_at, digest, event_id)"
            " VALUES ('order', '1', now(), 'prepare', 'shop', 0, 0, 't', 'k', 'p', '{}', now(), 'd',"
            " gen_random_uuid())")
    elif table == "unique_ledger":
        database.execute("SELECT outbox.publish('t', 'k', 'p', unique_key => 'a')")
    else:
        connection = database.connect()
        with connection.cursor() as cursor:
            for function in ("claim", "add"):
                cursor.execute(f"SELECT outbox.processed_{function}('billing', ARRAY['a'::bytea],"
                               " ARRAY[now()], interval '1 day')")
        connection.close()
    day = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%d")
    status, _, error = drop(settings, f"{table}_p{day}", *AGREED, "--force", "retain")
    assert status == REFUSED and f"force it with `{word}`" in error, error
    status, _, error = drop(settings, f"{table}_p{day}", *AGREED, "--force", f"retain,{word}")
    assert status == 0, error


@pytest.mark.parametrize("arguments, words", [
    ([], ["--reason", "--yes"]), (["--yes"], ["--reason"]), (["--reason", "ticket 7"], ["--yes"]),
    (["--yes", "--reason", " "], ["--reason"])])
def test_a_script_says_yes_and_why(settings, database, old, arguments, words):
    for command in (["partition", "drop", old], ["publisher", "drop", "main", "--force", "last"],
                    ["publisher", "rebase", "main"], ["replay", "--all"]):
        status, output, error = run_command([*command, *arguments], settings)
        assert (status, output) == (REFUSED, ""), f"{command}: {error}"
        for word in words:
            assert word in error, command
    assert old in leaves(database) and audit(database) == []
    assert database.execute("SELECT name FROM outbox.publisher") == [("main",)]


@pytest.mark.parametrize("word", ["", "retaim", "message_p20260102", "all", "retain,,window", "owned"])
def test_what_is_forced_must_be_known(settings, database, old, word):
    status, _, error = drop(settings, old, *AGREED, "--force", word)
    assert status == REFUSED and "--force" in error
    assert old in leaves(database)


@pytest.mark.parametrize("answer, done", [(b"no\n", False), (b"\n", False), (b"yes\n", True)])
def test_a_terminal_is_asked(settings, database, old, answer, done):
    status, shown = on_a_terminal(["partition", "drop", old], settings, answer)
    assert status == (0 if done else REFUSED), shown
    assert f"drop of {old}: 0 rows" in shown and f"Drop {old}?" in shown
    assert (old not in leaves(database)) == done
    command = ["publisher", "drop", "main", "--force", "last", "--reason", "ticket 8"]
    status, shown = on_a_terminal(command, settings, answer)
    assert status == (0 if done else REFUSED), shown
    assert "Drop publisher main?" in shown and "0 parked" in shown
    assert (database.execute("SELECT name FROM outbox.publisher") == []) == done
    reasons = ["confirmed on a terminal without a reason", "ticket 8"]
    assert [row[3] for row in audit(database)] == (reasons if done else [])


def test_an_owned_publisher_is_dropped_by_that_word(settings, database, make_relay):
    make_relay().wait_ready().wait_event("shard_taken", publisher="main", state="owner")
    arguments = ["publisher", "drop", "main", *AGREED, "--force"]
    status, _, error = run_command([*arguments, "last"], settings)
    assert status != 0 and "owned by" in error and "force the drop with `owned`" in error
    status, _, error = run_command([*arguments, "last,owned"], settings)
    assert status == 0, error
    assert audit(database) == [
        ("publisher drop", "main", {"publisher": "main", "force": "last,owned"}, "ticket 7")]


def test_a_count_that_ended_at_its_bound_says_at_least(settings, database):
    columns = "publisher, shard, id, created_at, event_id, topic, tick"
    row = "'main', 0, n, now(), gen_random_uuid(), 't', 1"
    database.execute(f"INSERT INTO outbox.parked ({columns}, state, attempts, next_at)"
                     f" SELECT {row}, 'dead', 1, now() FROM generate_series(1, 3) n")
    database.execute(f"INSERT INTO outbox.scheduled ({columns}, deliver_at)"
                     f" SELECT {row}, now() FROM generate_series(1, 100001) n")
    arguments = ["publisher", "drop", "main", "--force", "last", "--dry-run"]
    assert "go 3 parked and at least 100000 scheduled" in run_command(arguments, settings)[1]


def test_a_configured_publisher_is_dropped_by_that_word(settings, database, tmp_path):
    path = tmp_path / "relay.ini"
    path.write_text('[publisher "billing"]\n[publisher "bills"]\n')
    for name in ("billing", "other"):
        assert run_command(["publisher", "create", name], settings)[0] == 0
    arguments = ["--config", path, "publisher", "drop"]
    for more in (["--dry-run"], AGREED, [*AGREED, "--force", "owned"]):
        status, output, error = run_command([*arguments, "billing", *more], settings)
        assert (status, output) == (REFUSED, ""), error
        assert f"publisher billing is in the configuration ({path}:1)" in error and "force the drop with `configured`" in error
    assert ("billing",) in database.execute("SELECT name FROM outbox.publisher")
    status, output, error = run_command([*arguments, "billing", *AGREED, "--force", "configured"], settings)
    assert (status, output.endswith("publisher billing dropped\n")) == (0, True), error
    assert run_command([*arguments, "other", *AGREED], settings)[0] == 0  # which the file does not name
    assert [row[2]["force"] for row in audit(database)] == ["configured", ""]


def test_a_publisher_that_a_variable_configures_is_named_by_it(settings, database):
    named = {**settings, "OUTBOX_RELAY_PUBLISHER_LEASE": "20s"}
    assert run_command(["publisher", "create", "other"], settings)[0] == 0
    status, _, error = run_command(["publisher", "drop", "main", *AGREED], named)
    assert status == REFUSED and "OUTBOX_RELAY_PUBLISHER_LEASE" in error
    assert run_command(["publisher", "drop", "main", *AGREED, "--force", "configured"], named)[0] == 0


def test_a_replay_of_everything_is_in_the_audit_log(settings, database, kafka, topic):
    database.execute("INSERT INTO outbox.message (topic, key, payload) VALUES (%s, 'k', 'p')", (topic,))
    status, _, error = run_command(["replay", "--all", *AGREED], {
        **settings, "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap})
    assert status == 0, error
    (verb, publisher, target, reason), = audit(database)
    assert (verb, publisher, reason) == ("replay", "main", "ticket 7")
    assert target["replay"] == 1 and target["rows"] == 1
