"""`outbox-relay lookback`: what is undecided is shown, and operators decide it; the figures of it in
`status`, and what `doctor` says of its sections.

No relay runs here: rows are written as its reader and its checker write them.
"""

import json
import re
import os
import resource
import subprocess
import time
from datetime import timedelta

import pytest

from support.lookback_rows import Reader, claim, commit, prepare, rollback, settle
from support.process import wait_for
from support.relay import binary, environment, on_a_terminal, run_command

REFUSED, USAGE, UNAVAILABLE, DENIED, MISCONFIGURED = 65, 64, 69, 77, 78
WHY = ["--reason", "ticket 7", "--yes"]


@pytest.fixture
def settings(database):
    return {"DATABASE_URL": database.dsn}


@pytest.fixture
def reader(database):
    return Reader(database)


@pytest.fixture
def look(settings):
    """look(*arguments): runs it to its end, which must be good; returns what it printed."""
    def run(*arguments):
        status, output, error = run_command(["lookback", *arguments], settings)
        assert (status, error) == (0, ""), error
        return output

    return run


@pytest.fixture
def shop(database, reader):
    """a and b are overdue, c and d parked, e is not due, f was committed, g rolled back; of h a commit
    came and no prepare; bill 1 is overdue, with a URL of its own."""
    late = [prepare(id, 0, expire_ms=3_600_000) for id in "abcd"]
    bill = prepare("1", 0, type="bill", service=None, url="https://bills.example/check", payload=None)
    *_, clock = reader.apply(*late, bill, prepare("e"), prepare("f"), prepare("g"),
                             {"op": "tombstone", "type": "order", "id": "h", "decision": "commit"})
    reader.apply(horizon=clock)
    at = {id: reader.prepared_at(id) for id in "abcdefg"}
    reader.apply(commit("f", at["f"]), rollback("g", at["g"]), rollback("f", at["f"]))
    claim(database, 7)
    settle(database, 7, [("b", at["b"], "unknown", True, 3_600_000, False),
                         ("c", at["c"], "pending", True, 0, True),
                         ("d", at["d"], "unknown", True, 0, True)])
    database.execute("update outbox.lookback_overdue set last_error = E'status 500\\n\\x1b[31mred' "
                     "where biz_id = 'd'")
    return at


@pytest.fixture
def configured(database, tmp_path):
    """configured(text): settings of a configuration file."""
    def make(text):
        path = tmp_path / "relay.ini"
        path.write_text(text)
        return {"DATABASE_URL": database.dsn, "OUTBOX_RELAY_CONFIG": str(path)}

    return make


def everything(database):
    """What an operator could change."""
    return [database.execute(f"select t.*::text from outbox.{table} t order by 1")
            for table in ("lookback", "lookback_overdue", "lookback_conflict", "audit", "message")]


def decisions(database):
    return {id: rest for id, *rest in database.execute(
        "select biz_id, decision, source, decided_by, reason from outbox.lookback "
        "where kind = 'decision' and source = 'operator'")}


def overdue(database):
    return dict(database.execute("select biz_id, state from outbox.lookback_overdue order by biz_id"))


def audit(database):
    return database.execute("select who, verb, target, reason from outbox.audit order by id")


def messages(database):
    return [bytes(key).decode() for key, in database.execute("select key_bytes from outbox.message order by id")]


# --- list -------------------------------------------------------------------------------------------

def test_the_list_tells_of_each_id_and_how_many_there_are(shop, look):
    *lines, totals = look("list").splitlines()
    assert [line.split("  ")[:2] for line in lines] == [
        ["bill 1", "overdue"], ["order a", "overdue"], ["order b", "overdue"], ["order c", "parked"],
        ["order d", "parked"]]
    assert "asked=https://bills.example/check" in lines[0] and "asked=shop" in lines[1]
    assert "  section=shop  prepared=20" in lines[1] and "result=-  error=-" in lines[1]
    assert "  attempts=1  pending=0  next=20" in lines[2] and "  expires=20" in lines[2]
    assert "  attempts=1  pending=1  next=-" in lines[3] and "result=pending" in lines[3]
    assert lines[4].endswith("result=unknown  error=status 500  [31mred")
    assert totals == "3 overdue, 2 parked"


def test_what_is_not_due_is_listed_when_it_is_asked_for(shop, look):
    *lines, totals = look("list", "--undecided", "--type", "order").splitlines()
    assert [line.split("  ")[0] for line in lines] == ["order a", "order b", "order c", "order d", "order e"]
    assert "  undecided  " in lines[4] and "next=20" in lines[4]
    assert totals == "2 overdue, 2 parked, 1 undecided and not due"


def test_the_list_is_json_that_says_the_same(shop, look):
    found = json.loads(look("list", "--json", "--undecided"))
    assert found["postgres"] == "main"
    assert found["totals"] == {"overdue": "3", "parked": "2", "undecided": "1"}
    assert [(row["type"], row["id"], row["state"], row["attempts"], row["pendings"], row["last_result"])
            for row in found["rows"]] == [
        ("bill", "1", "overdue", 0, 0, None), ("order", "a", "overdue", 0, 0, None),
        ("order", "b", "overdue", 1, 0, "unknown"), ("order", "c", "parked", 1, 1, "pending"),
        ("order", "d", "parked", 1, 0, "unknown"), ("order", "e", "undecided", 0, 0, None)]
    assert found["rows"][0]["check_url"] and found["rows"][1]["check_service"] == "shop"
    found = json.loads(look("list", "--json"))
    assert found["totals"] == {"overdue": "3", "parked": "2"} and found["exact"]


def test_a_limit_is_of_the_rows_and_not_of_the_totals(shop, look):
    output = look("list", "--limit", "2")
    assert len(output.splitlines()) == 3
    assert output.endswith("3 overdue, 2 parked; 2 of them are shown\n")


@pytest.mark.parametrize("options, wanted", [
    (["--type", "bill"], ["1"]), (["--state", "parked"], ["c", "d"]), (["--section", "shop"], list("1abcd")),
    (["--section", "other"], []), (["--service", "shop"], list("abcd")), (["--error", "500"], ["d"]),
    (["--error", "said"], ["b", "c"]), (["--error", "%"], []), (["--to", "2026-01-01"], ["b"]),
    (["--from", "2026-01-01"], list("1acd")),
    (["--from", "2025-01-01", "--to", "2999-01-01", "--type", "order", "--state", "overdue"], ["a", "b"])])
def test_options_choose(database, shop, look, options, wanted):
    database.execute("update outbox.lookback_overdue set prepared_at = '2025-12-31' where biz_id = 'b'")
    database.execute("update outbox.lookback_overdue set prepared_at = '2026-01-01' where biz_id <> 'b'")
    found = json.loads(look("list", "--json", *options))
    assert [row["id"] for row in found["rows"]] == wanted
    assert sum(map(int, found["totals"].values())) == len(wanted)


@pytest.mark.parametrize("options, wanted", [
    (["--service", "shop"], 1), (["--service", "none"], 0), (["--section", "none"], 0),
    (["--type", "bill"], 0), (["--to", "2020-01-01"], 0), (["--from", "2020-01-01"], 1)])
def test_options_choose_what_is_not_due_as_well(shop, look, options, wanted):
    found = json.loads(look("list", "--json", "--undecided", *options))
    assert found["totals"]["undecided"] == str(wanted)
    assert [row["id"] for row in found["rows"] if row["state"] == "undecided"] == ["e"] * wanted


def test_nothing_undecided_is_no_error(look):
    assert look("list") == "nothing is overdue or parked\n"
    assert look("list", "--undecided", "--type", "x") == "nothing that matches is undecided\n"
    assert json.loads(look("list", "--json"))["rows"] == []


# --- show -------------------------------------------------------------------------------------------

def test_an_id_that_is_parked_is_shown_with_what_was_tried(shop, look):
    output = look("show", "order", "d")
    for words in ("order d\n", "state        parked\n", "came by      partition 0, offset 3\n",
                  "topic        orders\n", "key          d\n", 'headers      {"a": "b"}\n',
                  "service      shop\n", "attempts     1\n", "pending      0\n", "last result  unknown\n",
                  "last error   status 500  [31mred\n", "last asked   20", "expires      20",
                  "overdue      20", "payload      12 bytes, as text:\npayload of d\n"):
        assert words in output, words
    assert "decision" not in output and "message id" not in output and "next check" not in output


def test_an_id_that_was_decided_is_shown_with_who_why_and_its_message(database, shop, look):
    look("commit", "order", "a", *WHY)
    output = look("show", "order", "a")
    assert "state        committed\n" in output
    assert "decision     commit by operator at 20" in output and ", postgres: ticket 7\n" in output
    number, = database.execute("select id from outbox.message where key_bytes = 'a'")[0]
    assert f"message id   {number}: pending in publisher main\n" in output
    assert "request 1    lookback commit by postgres at 20" in output and ": ticket 7\n" in output
    assert "attempts" not in output
    database.execute("truncate outbox.message")
    assert "message id   gone with its partition\n" in look("show", "order", "a")


def test_an_id_is_shown_with_conflicts_and_the_places_in_kafka(shop, look):
    output = look("show", "order", "f")
    assert "decision     commit by message at 20" in output and ", partition 0, offset 9\n" in output
    assert "conflict     rollback of message at 20" in output
    assert "was refused, commit is final; partition 0, offset 11\n" in output
    output = look("show", "order", "h")
    assert "state        tombstone\n" in output and "told         commit\n" in output
    assert "came by      partition 0, offset 8\n" in output and "payload" not in output


def test_show_is_json_that_says_the_same(shop, look, configured, database):
    look("rollback", "order", "b", *WHY)
    shown = json.loads(look("show", "order", "f", "--json"))
    row, = shown["rows"]
    assert (shown["type"], shown["id"], row["state"]) == ("order", "f", "committed")
    assert (row["source_partition"], row["source_offset"], row["source_topic"]) == (0, "6", None)
    assert row["decision"]["source"] == "message" and row["decision"]["source_offset"] == "9"
    assert row["message"]["publishers"] == {"main": "pending"}
    assert (row["headers"], row["key"], row["payload"]) == ({"a": "b"}, "f", "payload of f")
    conflict, = shown["conflicts"]
    assert (conflict["kept"], conflict["refused"], conflict["source_offset"]) == (
        "commit", "rollback", "11")
    shown = json.loads(look("show", "order", "b", "--json"))
    assert shown["rows"][0]["decision"]["reason"] == "ticket 7" and shown["rows"][0]["message"] is None
    assert [(request["verb"], request["who"]) for request in shown["requests"]] == [
        ("lookback rollback", "postgres")]
    row, = json.loads(look("show", "order", "h", "--json"))["rows"]
    assert (row["state"], row["told"], row["decision"]) == ("tombstone", "commit", None)
    row, = json.loads(look("show", "bill", "1", "--json"))["rows"]
    assert (row["payload_form"], row["check_service"]) == ("null", None)
    # what the configuration knows of the section
    with_section = configured('[lookback "shop"]\ntypes = order\ntopic = asked\n')
    _, output, _ = run_command(["lookback", "show", "order", "f"], with_section)
    assert "came by      asked, partition 0, offset 6\n" in output


# --- deciding ---------------------------------------------------------------------------------------

def test_a_commit_of_ids_writes_their_messages_and_says_who_and_why(database, shop, look):
    before = messages(database)
    output = look("commit", "order", "c", "a", "c", *WHY)
    assert output == "commit of 2 ids\nrequest 1: commit of 2 ids is done\n"
    assert sorted(messages(database)) == sorted(before + ["a", "c"])
    assert decisions(database) == {id: ["commit", "operator", "postgres", "ticket 7"] for id in "ac"}
    assert overdue(database) == {"1": "overdue", "b": "overdue", "d": "parked"}
    (who, verb, target, reason), = audit(database)
    assert (who, verb, target["rows"], reason) == ("postgres", "lookback commit", 2, "ticket 7")
    assert target["filter"] == {"ids": [["order", "c"], ["order", "a"]]}


def test_a_rollback_of_an_id_that_is_not_due_leaves_no_message(database, shop, look):
    before = messages(database)
    look("rollback", "order", "e", *WHY)
    assert decisions(database) == {"e": ["rollback", "operator", "postgres", "ticket 7"]}
    assert messages(database) == before


def test_a_retry_makes_it_due_at_once_with_no_attempts(database, shop, look):
    look("retry", "order", "d", "b", *WHY)
    assert database.execute(
        "select biz_id, state, attempts, next_check <= clock_timestamp() from outbox.lookback_overdue "
        "where biz_id in ('b', 'd') order by 1") == [("b", "overdue", 0, True), ("d", "overdue", 0, True)]
    assert decisions(database) == {}


def test_all_takes_what_the_options_choose_and_without_them_everything(database, shop, look):
    assert "rollback of 1 id is done" in look(
        "rollback", "--all", "--state", "parked", "--error", "500", *WHY)
    assert set(overdue(database)) == set("1abc")
    look("retry", "--all", "--type", "bill", *WHY)
    look("commit", "--all", *WHY)
    assert overdue(database) == {}
    assert [target["filter"] for _, _, target, _ in audit(database)] == [
        {"error": "500", "state": "parked"}, {"type": "bill"}, {}]
    # what is not due is named, or left alone
    assert set(decisions(database)) == set("1abcd")


def test_a_dry_run_counts_shows_some_and_changes_nothing(database, shop, look):
    before = everything(database)
    output = look("commit", "--all", "--type", "order", "--dry-run")
    assert output.startswith("commit of 4 ids\norder a  overdue  ")
    assert output.endswith("nothing was changed: --dry-run\n")
    output = look("rollback", "order", "e", "d", "--dry-run", "--reason", "see what is there")
    assert "order e  undecided  section=shop" in output and "order d  parked  " in output
    look("retry", "--all", "--dry-run")
    assert everything(database) == before


BAD_INPUT = [
    (["commit", *WHY], REFUSED, ["nothing says which ids", "--all"]),
    (["retry", "--state", "parked", *WHY], REFUSED, ["nothing says which ids", "--all"]),
    (["commit", "order", "a", "--yes"], REFUSED, ["say why: --reason"]),
    (["rollback", "--all", "--yes", "--reason", " "], REFUSED, ["say why: --reason"]),
    (["commit", "order", "a", "--reason", "x"], REFUSED, ["no terminal to ask", "--yes"]),
    (["commit", "order", "a", "--all", *WHY], REFUSED, ["--all does not go with ids"]),
    (["commit", "order", "a", "--type", "order", *WHY], REFUSED, ["--type does not go with ids"]),
    (["commit", "order", *WHY], REFUSED, ["'order' names no id: write TYPE ID"]),
    (["commit", "or/der", "a", *WHY], REFUSED, ["'or/der' is no business type"]),
    (["commit", "order", "", *WHY], REFUSED, ["an id is text in UTF-8"]),
    (["commit", "order", b"\xff", *WHY], REFUSED, ["an id is text in UTF-8"]),
    (["commit", "order", "x" * 501, *WHY], REFUSED, ["1 to 500 bytes"]),
    (["commit", "order", "nobody", *WHY], REFUSED, ["order nobody is not known", "lookback list"]),
    (["commit", "order", "a", "nobody", *WHY], REFUSED, ["order nobody is not known"]),
    (["commit", "order", "h", *WHY], REFUSED, ["order h: its commit came, and its prepare has not"]),
    (["rollback", "order", "f", *WHY], REFUSED, ["order f was decided: commit by message at 20"]),
    (["commit", "order", "a", "g", *WHY], REFUSED, ["order g was decided: rollback by message"]),
    (["retry", "order", "e", *WHY], REFUSED, ["order e is not overdue: the business is called first at 20"]),
    (["commit", "--all", "--type", "none", *WHY], REFUSED, ["nothing that matches is overdue or parked"]),
    (["commit", "--all", "--type", "none", "--dry-run"], REFUSED, ["nothing that matches"]),
    (["list", "a"], USAGE, ["lookback list does not expect 'a'"]),
    (["list", "--state", "lost"], REFUSED, ["--state lost is not known", "parked"]),
    (["list", "--type", "a b"], REFUSED, ["--type", "'a b' is no business type"]),
    (["list", "--error="], REFUSED, ["--error is empty"]),
    (["list", b"--error=\xff"], REFUSED, ["--error is not UTF-8"]),
    (["list", "--from", "soon"], REFUSED, ["--from", "soon"]),
    (["list", "--from", "2026-01-02", "--to", "2026-01-01"], REFUSED, ["does not lie before"]),
    (["list", "--undecided", "--state", "parked"], REFUSED, ["--undecided does not go with --state"]),
    (["list", "--undecided", "--error", "x"], REFUSED, ["--undecided does not go with --error"]),
    (["list", "--limit", "0"], USAGE, ["--limit wants a number"]),
    (["list", "--postgres", "other"], MISCONFIGURED, ['[postgres "other"]']),
    (["show", "order"], USAGE, ["lookback show wants TYPE ID"]),
    (["show", "order", "nobody"], REFUSED, ["order nobody is not known"]),
    (["show", "or der", "a"], REFUSED, ["'or der' is no business type"]),
]


def test_bad_input_is_one_line_and_changes_nothing(database, shop, settings):
    """All of it on one database, which stays as it is."""
    before = everything(database)
    for arguments, expected, words in BAD_INPUT:
        given = [os.fsdecode(word) for word in ("lookback", *arguments)]
        status, output, error = run_command(given, settings)
        assert (status, output) == (expected, ""), f"{arguments}: {error}"
        assert error.startswith("outbox-relay: ") and len(error.splitlines()) <= 2, error
        for word in words:
            assert word in error, f"{word!r} is missing: {error}"
    assert everything(database) == before


def test_an_operators_decision_is_told_to_the_next_one(database, shop, settings, look):
    look("rollback", "order", "a", "--reason", "the customer called", "--yes")
    status, _, error = run_command(["lookback", "commit", "order", "a", *WHY], settings)
    assert status == REFUSED
    assert "order a was decided: rollback by operator at 20" in error
    assert "postgres: the customer called" in error


def test_of_two_at_once_the_first_decides_and_the_second_is_told(database, shop, reader, settings):
    """The second has looked before the first has committed, and waits for its row."""
    with database.connect(autocommit=False) as first:
        first.cursor().execute(
            "select from outbox.lookback_operate('commit', '{\"ids\": [[\"order\", \"a\"]]}', 'first', true)")
        second = subprocess.Popen(
            [binary(), "lookback", "rollback", "order", "a", "b", *WHY], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(settings))
        wait_for(lambda: database.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
            " AND wait_event_type = 'Lock'") == [(1,)], 30, "the second to wait for the first")
        first.commit()
    _, error = second.communicate(timeout=60)
    assert second.returncode == REFUSED
    assert "order a was decided: commit by operator" in error and "first" in error
    # all or none of those that were named
    assert decisions(database) == {"a": ["commit", "operator", "postgres", "first"]}
    assert "b" in overdue(database)


@pytest.mark.parametrize("answer, expected", [(b"no\n", REFUSED), (b"yes\n", 0)])
def test_on_a_terminal_the_count_comes_first_and_then_the_question(
        database, shop, settings, answer, expected):
    before = everything(database)
    status, shown = on_a_terminal(
        ["lookback", "rollback", "--all", "--state", "parked", "--reason", "ticket 7"], settings, answer)
    assert status == expected
    assert shown.index("rollback of 2 ids") < shown.index("Roll back 2 ids? Type yes:")
    assert (everything(database) == before) == (expected != 0)


# --- who may, and where -----------------------------------------------------------------------------

def test_the_relays_role_may_do_all_of_it(database, shop, login):
    as_relay = login("outbox_relay")
    for arguments in (["list", "--undecided"], ["show", "order", "a"], ["retry", "order", "c", *WHY],
                      ["commit", "order", "a", *WHY], ["rollback", "--all", *WHY], ["show", "order", "f"]):
        status, _, error = run_command(["lookback", *arguments], as_relay)
        assert status == 0, f"{arguments}: {error}"
    who, = database.execute("SELECT DISTINCT who FROM outbox.audit")[0]
    assert f"//{who}@" in as_relay["DATABASE_URL"]


def test_a_reader_sees_all_but_payloads_and_decides_nothing(database, shop, login):
    as_reader = login("outbox_reader")
    before = everything(database)
    status, output, error = run_command(["lookback", "list", "--json", "--undecided"], as_reader)
    assert status == 0 and len(json.loads(output)["rows"]) == 6, error
    status, output, error = run_command(["lookback", "show", "order", "f", "--json"], as_reader)
    assert status == 0, error
    row, = json.loads(output)["rows"]
    assert (row["payload_form"], row["payload"]) == ("hidden", None)
    assert row["message"]["publishers"] == {"main": "pending"}
    for verb in ("commit", "rollback", "retry"):
        status, _, error = run_command(["lookback", verb, "order", "a", "--dry-run"], as_reader)
        assert status == 0, error
        status, _, error = run_command(["lookback", verb, "order", "a", *WHY], as_reader)
        assert status == DENIED and "permission denied" in error
    status, output, error = run_command(["status"], as_reader)
    assert status == 0 and "overdue 2, parked 2" in output, error
    assert everything(database) == before


def test_the_configuration_says_which_database_it_is(postgres, database, shop, configured):
    text = (f'[postgres "here"]\ndsn = {database.dsn}\n[postgres "there"]\n'
            f'dsn = {postgres.dsn("postgres")}\n[publisher "main"]\npostgres = here\n'
            '[lookback "shop"]\npostgres = here\ntypes = order, bill\ndefault = yes\n'
            '[lookback "other"]\npostgres = there\n')
    both = configured(text)
    for arguments in (["list", "--section", "shop"], ["list", "--type", "order"],
                      ["list", "--postgres", "here"], ["show", "order", "a"],
                      ["retry", "order", "a", *WHY]):
        status, _, error = run_command(["lookback", *arguments], both)
        assert status == 0, f"{arguments}: {error}"
    status, _, error = run_command(["lookback", "list"], both)
    assert status == MISCONFIGURED and "--postgres SECTION" in error
    status, _, error = run_command(["lookback", "list", "--type", "other"], both)
    assert status == MISCONFIGURED and "migrate up" in error  # it is the other database


# --- status -----------------------------------------------------------------------------------------

def test_status_counts_what_is_undecided_by_section_and_type(database, shop, settings):
    status, output, error = run_command(["status"], settings)
    assert status == 0, error
    assert "  shop/order       overdue 2, parked 2, the oldest for " in output
    assert ", 1 conflict\n" in output
    assert "  shop/bill        overdue 1, parked 0, the oldest for " in output
    _, output, _ = run_command(["status", "--json"], settings)
    bill, order = json.loads(output)["postgres"][0]["lookback"]
    assert int(bill.pop("oldest_age_ms")) >= 0 and int(order.pop("oldest_age_ms")) >= 0
    assert bill == {"section": "shop", "type": "bill", "overdue": "1", "parked": "0", "conflicts": "0",
                    "unprepared": "0", "exact": True}
    assert order == {"section": "shop", "type": "order", "overdue": "2", "parked": "2", "conflicts": "1",
                     "unprepared": "0", "exact": True}


def make_tombstones_old(database):
    database.execute("update outbox.lookback set prepared_at = prepared_at - interval '2 minutes' "
                     "where kind = 'tombstone'")


def test_a_commit_whose_prepare_never_comes_is_told_after_a_minute(database, shop, settings):
    make_tombstones_old(database)
    output = run_command(["status"], settings)[1].replace("\n" + " " * 19, " ")
    assert ", 1 conflict, 1 decision without a prepare\n" in output
    _, output, _ = run_command(["status", "--json"], settings)
    assert [row["unprepared"] for row in json.loads(output)["postgres"][0]["lookback"]] == ["0", "1"]


def test_doctor_has_the_figures_of_the_look_back(database, shop, configured, look):
    settings = configured("[lookback \"shop\"]\ntypes = order, bill\n")
    look("commit", "order", "b", *WHY)
    make_tombstones_old(database)
    _, output, _ = run_command(["doctor"], settings)
    assert re.search(r"\[warn\]   lookback shop: type order: 1 overdue, 2 parked, "
                     r"the oldest prepared \d+ s ago; 1 conflict\n", output), output
    assert "[warn]   lookback shop: type order: 1 decision came without a prepare\n" in output
    assert re.search(r"\[info\]   lookback shop: type order: decided lately: 2 by messages, "
                     r"0 by answers, 1 by operators; undecided: 4, the oldest for \d+ s\n", output), output
    assert re.search(r"\[info\]   lookback shop: type bill: 1 overdue, 0 parked", output), output


def test_status_is_silent_where_nothing_is_undecided(database, settings):
    status, output, error = run_command(["status"], settings)
    assert status == 0 and "overdue" not in output, error
    _, output, _ = run_command(["status", "--json"], settings)
    assert json.loads(output)["postgres"][0]["lookback"] == []


# --- many -------------------------------------------------------------------------------------------

LIST_MEMORY = 16 << 20  # bytes of heap; all rows at once take several times as much
LIST_SECONDS = 60  # where a look for each row would take many minutes


def test_many_ids_are_listed_in_little_memory_and_time_and_decided_at_once(
        database, reader, settings, tmp_path, scale):
    count = scale(100_000)
    for batch in range(10):
        *_, clock = reader.apply(*(prepare(f"{batch}-{number:04}", 0) for number in range(count // 10)))
    reader.apply(horizon=clock + timedelta(seconds=1), most=2 * count)
    began = time.monotonic()
    with open(tmp_path / "list", "w") as file:
        done = subprocess.run(
            [binary(), "lookback", "list", "--json"], stdin=subprocess.DEVNULL, stdout=file,
            env=environment(settings), timeout=120,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (LIST_MEMORY,) * 2))
    assert done.returncode == 0 and time.monotonic() - began < LIST_SECONDS
    rows = json.loads((tmp_path / "list").read_text())["rows"]
    assert [row["id"] for row in rows] == sorted(
        f"{batch}-{number:04}" for batch in range(10) for number in range(count // 10))
    # in one pass over the journal, though none of it is left to be found
    began = time.monotonic()
    status, output, error = run_command(["lookback", "list", "--undecided"], settings)
    assert status == 0 and output.endswith(f"{count} overdue, 0 parked, 0 undecided and not due\n"), error
    assert time.monotonic() - began < LIST_SECONDS
    began = time.monotonic()
    status, output, error = run_command(["lookback", "rollback", "--all", *WHY], settings)
    assert status == 0 and f"rollback of {count} ids is done" in output, error
    assert time.monotonic() - began < LIST_SECONDS
    assert overdue(database) == {}
