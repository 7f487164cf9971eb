"""`outbox-relay parked`: what stands parked is shown, and operators' requests are noted.

No relay runs here: rows of outbox.parked are written as a relay would leave them, and where a
request has to be carried out the test calls the functions that the owner of a shard calls.
"""

import json
import os
import resource
import subprocess
import time

import pytest

from support.process import wait_for
from support.relay import binary, environment, on_a_terminal, run_command

REFUSED, USAGE, UNAVAILABLE, DENIED, MISCONFIGURED = 65, 64, 69, 77, 78
WHY = ["--reason", "ticket 7", "--yes"]

TOO_LARGE = "Broker: Message size too large"
INVALID = "Broker: Broker failed to validate record"

# id, topic, key, state, attempts, error; the order is that of the queues
ROWS = [
    (1, "orders", b"k1", "dead", 10, TOO_LARGE),
    (2, "orders", b"k1", "behind", 0, None),
    (3, "orders", b"k1", "behind", 0, None),
    (4, "orders", b"k2", "waiting", 3, INVALID),
    (5, "orders", b"k3", "free", 0, None),
    (6, "orders", b"k3", "behind", 0, None),
    (7, "bills", None, "dead", 10, TOO_LARGE),
    (8, "bills", b"\x00\xff", "waiting", 1, "two\nlines \x1b[31mred"),
]


def park(database, rows, publisher="main"):
    for number, topic, key, state, attempts, error in rows:
        database.execute(
            "INSERT INTO outbox.parked (publisher, shard, id, created_at, event_id, topic, key, payload,"
            " headers, tick, state, error, attempts, next_at, parked_at) VALUES (%s, 0, %s, now(),"
            " gen_random_uuid(), %s, %s, %s, '{\"a\": 1}', 0, %s, %s, %s, now() + interval '1 hour',"
            " now() - interval '1 minute')",
            (publisher, number, topic, key, b"payload %d" % number, state, error, attempts))


@pytest.fixture
def settings(database):
    return {"DATABASE_URL": database.dsn}


@pytest.fixture
def parked(database, settings):
    """parked(*arguments): runs it to its end, which must be good; returns what it printed."""
    park(database, ROWS)

    def run(*arguments):
        status, output, error = run_command(["parked", *arguments], settings)
        assert (status, error) == (0, ""), error
        return output

    return run


@pytest.fixture
def start(settings):
    """start(*arguments): in the background; ended with the test."""
    children = []

    def run(*arguments):
        children.append(subprocess.Popen(
            [binary(), "parked", *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, env=environment(settings)))
        return children[-1]

    yield run
    for child in children:
        child.kill()
        child.communicate()


def everything(database):
    """What a request could change."""
    return (database.execute("SELECT p.*::text FROM outbox.parked p ORDER BY id"),
            database.execute("SELECT a.*::text FROM outbox.audit a ORDER BY id"),
            database.execute("SELECT name, requests FROM outbox.publisher ORDER BY name"))


def requests(database):
    """{id: (request, its number)} of the rows that have one which is yet to come to them."""
    return {number: rest for number, *rest in database.execute(
        "SELECT p.id, r.verb, r.id FROM outbox.parked p JOIN outbox.parked_request r ON r.publisher = p.publisher AND r.id ="
        " outbox.parked_request_of(p.publisher, p.shard, p.id, topic, key, p.error, parked_at, state, txid)"
        " ORDER BY p.id")}


def audit(database):
    return database.execute("SELECT who, verb, publisher, target, reason FROM outbox.audit ORDER BY id")


def bumps(database):
    return database.execute("SELECT requests FROM outbox.publisher WHERE name = 'main'")[0][0]


# --- list and show --------------------------------------------------------------------------------


def test_the_list_tells_of_each_row_and_how_many_there_are(parked):
    *lines, totals = parked("list").splitlines()
    assert [line.split()[1] for line in lines] == [str(row[0]) for row in ROWS]
    assert lines[0].startswith("id 1  orders  key=k1  dead  attempts=10  next=-  parked=20")
    assert lines[0].endswith(f"request=-  error={TOO_LARGE}")
    assert lines[1].endswith("error=-") and "  behind  " in lines[1]
    assert "  next=20" in lines[3] and "key=-" in lines[6]
    # bytes that are no text, and an error that would steer a terminal
    assert r"key=\x00ff" in lines[7] and lines[7].endswith("error=two lines  [31mred")
    assert totals == "8 parked in publisher main: 2 waiting, 2 dead, 0 stalled, 0 paused, 1 free, 3 behind"


def test_a_limit_is_of_the_rows_and_not_of_the_totals(parked):
    output = parked("list", "--limit", "2")
    assert len(output.splitlines()) == 3
    assert output.endswith("8 parked in publisher main: 2 waiting, 2 dead, 0 stalled, 0 paused, 1 free, 3 behind;"
                           " 2 of them are shown\n")
    assert len(json.loads(parked("list", "--json", "--limit", "3"))["rows"]) == 3


def test_many_rows_are_counted_up_to_a_bound(database, parked):
    """The last row is behind the bound."""
    database.execute("INSERT INTO outbox.parked (publisher, shard, id, created_at, event_id, topic, tick, state, attempts, next_at)"
                     " SELECT 'main', 0, 1000 + i, now(), gen_random_uuid(), 't', 0, 'dead', 1, now() FROM generate_series(1, 100000) i")
    assert parked("list", "--limit", "1").splitlines()[-1] == (
        "at least 100000 parked in publisher main: 2 waiting, 99994 dead, 0 stalled, 0 paused, 1 free, 3 behind; 1 of them are shown")
    found = json.loads(parked("list", "--limit", "1", "--json"))
    assert found["totals"]["dead"] == "99994" and found["exact"] is False
    assert parked("list", "--limit", "1", "ids=1..100").splitlines()[-1].startswith("8 parked in publisher main: ")


def test_the_list_is_json_that_says_the_same(parked):
    found = json.loads(parked("list", "--json"))
    assert found["publisher"] == "main"
    assert found["totals"] == {"waiting": "2", "dead": "2", "stalled": "0", "paused": "0", "free": "1", "behind": "3"}
    assert found["exact"]
    assert [(int(row["id"]), row["topic"], row["state"], row["attempts"], row["error"])
            for row in found["rows"]] == [(n, topic, state, attempts, error)
                                          for n, topic, _, state, attempts, error in ROWS]
    assert [row["key"] for row in found["rows"][3:]] == ["k2", "k3", "k3", None, r"\x00ff"]
    assert found["rows"][0]["next_at"] is None and found["rows"][3]["next_at"]


def test_nothing_parked_is_no_error(database, settings):
    assert run_command(["parked", "list"], settings) == (0, "nothing is parked in publisher main\n", "")
    status, output, _ = run_command(["parked", "list", "--json", "state=dead"], settings)
    assert status == 0 and json.loads(output)["rows"] == []


@pytest.mark.parametrize("terms, wanted", [
    (["topic=bills"], [7, 8]), (["key=k1"], [1, 2, 3]), ([r"key=\x00ff"], [8]),
    (["error=too large"], [1, 7]), (["error=%"], []), (["state=behind"], [2, 3, 6]),
    (["ids=3..5"], [3, 4, 5]), (["ids=7.."], [7, 8]), (["ids=2"], [2]),
    (["parked=2026-01-01.."], [1, 2, 3, 5, 6, 7, 8]), (["parked=..2026-01-01"], [4]),
    (["topic=orders", "state=dead", "ids=..6", "error=Message"], [1])])
def test_terms_choose_rows(database, parked, terms, wanted):
    database.execute("UPDATE outbox.parked SET parked_at = '2025-12-31' WHERE id = 4")
    database.execute("UPDATE outbox.parked SET parked_at = '2026-01-01' WHERE id <> 4")
    found = json.loads(parked("list", "--json", *terms))
    assert [int(row["id"]) for row in found["rows"]] == wanted
    assert sum(map(int, found["totals"].values())) == len(wanted)


def test_another_publisher_has_rows_of_its_own(database, parked, settings):
    database.execute("SELECT outbox.publisher_create('other', 1, 'now')")
    park(database, ROWS[:1], publisher="other")
    path = os.path.join(database.postgres.folder, "publishers.ini")
    with open(path, "w") as file:
        file.write('[publisher "main"]\n[publisher "other"]\n')
    both = {**settings, "OUTBOX_RELAY_CONFIG": path}
    status, output, error = run_command(["parked", "list", "--publisher", "other", "--json"], both)
    assert status == 0, error
    assert json.loads(output)["totals"]["dead"] == "1"
    status, _, error = run_command(["parked", "skip", "1", "--publisher", "other", *WHY], both)
    assert status == 0, error
    assert database.execute("SELECT publisher FROM outbox.parked_request WHERE verb = 'skip'") == [("other",)]


def test_a_row_is_shown_with_what_it_waits_behind_and_what_was_asked(database, parked):
    parked("retry", "1", "--reason", "the limit was raised", "--yes")
    output = parked("show", "3")
    assert "waits behind id 1 (dead), with 1 between them; error: " + TOO_LARGE in output
    assert "payload      9 bytes, as text:\npayload 3\n" in output
    output = parked("show", "1")
    assert "waits behind" not in output and "behind it    2\n" in output
    assert "request 1    retry by postgres at 20" in output and "the limit was raised" in output
    shown = json.loads(parked("show", "3", "--json"))
    assert shown["waits_behind"] == {"id": "1", "state": "dead", "error": TOO_LARGE,
                                     "rows_between": "1"}
    assert (shown["headers"], shown["payload"], shown["payload_bytes"]) == ({"a": 1}, "payload 3", 9)
    shown = json.loads(parked("show", "1", "--json"))
    assert shown["waits_behind"] is None and shown["rows_behind"] == "2"
    assert [(row["verb"], row["who"], row["reason"]) for row in shown["requests"]] == [
        ("retry", "postgres", "the limit was raised")]


@pytest.mark.parametrize("payload, form, shown", [
    (b'{"a": 1}\n', "text", '{"a": 1}\n'), ("grün €".encode(), "text", "grün €"),
    (b"\xff\xfe", "hex", r"\xfffe"), (b"a\x00b", "hex", r"\x610062"),
    (b"\x1b[2J", "hex", r"\x1b5b324a"), ("\u0085".encode(), "hex", r"\xc285"),
    (br"\x41", "hex", r"\x5c783431"), (b"", "hex", r"\x"), (None, "null", None)])
def test_a_payload_is_text_only_where_a_terminal_shows_it_as_it_is(
        database, parked, payload, form, shown):
    database.execute("UPDATE outbox.parked SET payload = %s WHERE id = 1", (payload,))
    found = json.loads(parked("show", "1", "--json"))
    assert (found["payload_form"], found["payload"]) == (form, shown)
    assert found["payload_bytes"] == (None if payload is None else len(payload))
    assert (shown or "null: a tombstone") in parked("show", "1")


def test_status_counts_the_parked_rows_of_each_publisher(parked, settings):
    status, output, error = run_command(["status"], settings)
    assert status == 0, error
    assert "parked 8 (2 waiting, 2 dead, 0 stalled, 0 paused, 1 free, 3 behind), the oldest for " in " ".join(output.split())
    _, output, _ = run_command(["status", "--json"], settings)
    found, = json.loads(output)["postgres"][0]["parked"]
    assert 60_000 <= int(found.pop("oldest_age_ms")) < 600_000
    assert found == {"publisher": "main", "waiting": "2", "dead": "2", "stalled": "0", "paused": "0", "free": "1", "behind": "3",
                     "exact": True}


def test_status_is_silent_about_a_publisher_with_nothing_parked(database, settings):
    status, output, error = run_command(["status"], settings)
    assert status == 0 and "main/0" in output and "parked" not in output, error


# --- what is noted --------------------------------------------------------------------------------


def test_a_retry_of_ids_is_noted_with_who_and_why(database, parked):
    output = parked("retry", "4", "1", "4", *WHY)
    assert "retry of 2 rows in publisher main\n" in output
    assert "request 1: the retry is noted" in output
    assert requests(database) == {1: ["retry", 1], 4: ["retry", 1]}
    assert bumps(database) == 1
    (who, verb, publisher, target, reason), = audit(database)
    assert (who, verb, publisher, reason) == ("postgres", "retry", "main", "ticket 7")
    assert target == {"filter": {"ids": [4, 1], "from_id": 1, "to_id": 4}}
    # state, error and attempts are the owner's to change
    assert database.execute("SELECT state, attempts FROM outbox.parked WHERE id = 1") == [
        ("dead", 10)]


def test_a_skip_takes_rows_of_any_state(database, parked):
    parked("skip", "1", "2", "4", "5", *WHY)
    assert requests(database) == {number: ["skip", 1] for number in (1, 2, 4, 5)}


def test_a_retry_by_terms_leaves_out_what_is_no_head(database, parked):
    output = parked("retry", "topic=orders", *WHY)
    assert ("retry of 2 rows in publisher main; 3 wait behind the first of their key; 1 are free and go"
            " anyway\n") in output
    assert requests(database) == {1: ["retry", 1], 4: ["retry", 1]}
    assert audit(database)[0][3] == {"filter": {"topic": "orders"}}


def test_all_is_every_row_of_the_publisher(database, parked):
    parked("skip", "--all", *WHY)
    assert requests(database) == {row[0]: ["skip", 1] for row in ROWS}
    assert audit(database)[0][3]["filter"] == {}


def test_a_dry_run_counts_shows_a_sample_and_changes_nothing(database, parked):
    before = everything(database)
    output = parked("retry", "topic=orders", "--dry-run")
    assert "retry of 2 rows in publisher main; 3 wait behind" in output
    assert "id 1  orders" in output and "id 4  orders" in output and "id 2  orders" not in output
    assert output.endswith("nothing was requested: --dry-run\n")
    parked("skip", "--all", "--dry-run", "--reason", "see what is there")
    parked("skip", "2", "3", "--dry-run")
    assert everything(database) == before


# --- what is refused ------------------------------------------------------------------------------

BAD_INPUT = [
    (["retry", *WHY], REFUSED, ["nothing says which rows", "--all"]),
    (["skip", *WHY], REFUSED, ["nothing says which rows", "--all"]),
    (["retry", "1", "--yes"], REFUSED, ["say why: --reason"]),
    (["retry", "1", "--yes", "--reason", " "], REFUSED, ["say why: --reason"]),
    (["skip", "--all", "--yes", "--reason="], REFUSED, ["say why: --reason"]),
    (["retry", "1", "--reason", "x"], REFUSED, ["no terminal to ask", "--yes"]),
    (["skip", "--all", "--reason", "x"], REFUSED, ["no terminal to ask", "--yes"]),
    (["retry", "--all", "1", *WHY], REFUSED, ["--all does not go with '1'"]),
    (["retry", "1", "topic=orders", *WHY], REFUSED, ["'topic=orders' does not go with '1'"]),
    (["retry", "topic=orders", "1", *WHY], REFUSED, ["'1' does not go with 'topic=orders'"]),
    (["retry", "99", *WHY], REFUSED, ["id 99 is not parked in publisher main", "parked list"]),
    (["skip", "1", "99", *WHY], REFUSED, ["id 99 is not parked in publisher main"]),
    (["skip", "0", *WHY], REFUSED, ["'0' is no id"]),
    (["skip", "1x", *WHY], REFUSED, ["'1x' is no id"]),
    (["retry", "3", *WHY], REFUSED, ["id 3 waits behind id 1 (dead)", "retry or skip id 1"]),
    (["retry", "1", "6", *WHY], REFUSED, ["id 6 waits behind id 5 (free)"]),
    (["retry", "5", *WHY], REFUSED, ["id 5 is free"]),
    (["retry", "topic=nobody", *WHY], REFUSED, ["nothing that matches is parked in publisher main"]),
    (["retry", "topic=nobody", "--dry-run"], REFUSED, ["nothing that matches is parked"]),
    (["retry", "state=behind", *WHY], REFUSED,
     ["none of the 3 rows can be asked for", "3 wait behind"]),
    (["retry", "state=free", *WHY], REFUSED, ["none of the 1 row", "1 are free"]),
    (["retry", "1", "--timeout", "3", *WHY], REFUSED, ["--timeout goes with --wait"]),
    (["retry", "1", "--wait", "--dry-run"], REFUSED, ["--wait does not go with --dry-run"]),
    (["retry", "1", "--wait", "--timeout", "0", *WHY], USAGE, ["--timeout wants a number"]),
    (["list", "1"], REFUSED, ["'1' chooses no rows", "ids=12"]),
    (["list", "colour=red"], REFUSED, ["'colour'", "state="]),
    (["list", "key=k1", "key=k2"], REFUSED, ["key= is given twice"]),
    (["list", "key="], REFUSED, ["key= names no key"]),
    (["list", r"key=\x0"], REFUSED, [r"key=\x0 is not hexadecimal"]),
    (["list", "error="], REFUSED, ["error= names no error"]),
    (["list", b"error=\xff"], REFUSED, ["error= is not UTF-8"]),
    (["list", "state=lost"], REFUSED, ["state=lost is not known", "behind"]),
    (["list", "topic=a/b"], REFUSED, ["topic=a/b is no topic's name"]),
    (["list", "ids=20..10"], REFUSED, ["reversed"]),
    (["list", "parked=2999-01-01.."], REFUSED, ["2999-01-01 lies in the future"]),
    (["list", "parked=2026-01-02"], REFUSED, ["parked=2026-01-02 is no range of moments"]),
    (["list", "--limit", "0"], USAGE, ["--limit wants a number"]),
    (["list", "--publisher", "other"], MISCONFIGURED, ['[publisher "other"]']),
    (["show"], USAGE, ["parked show wants ID"]),
    (["show", "99"], REFUSED, ["id 99 is not parked in publisher main"]),
    (["show", "x"], REFUSED, ["'x' is no id"]),
]


def test_bad_input_is_one_line_and_changes_nothing(database, settings):
    """All of it on one database, which stays as it is."""
    park(database, ROWS)
    before = everything(database)
    for arguments, expected, words in BAD_INPUT:
        words_given = [os.fsdecode(word) for word in ("parked", *arguments)]
        status, output, error = run_command(words_given, settings)
        assert (status, output) == (expected, ""), f"{arguments}: {error}"
        assert error.startswith("outbox-relay: ") and len(error.splitlines()) <= 2, error
        for word in words:
            assert word in error, f"{word!r} is missing: {error}"
    assert everything(database) == before


def test_nothing_parked_is_refused_by_all(database, settings):
    status, output, error = run_command(["parked", "skip", "--all", *WHY], settings)
    assert (status, output) == (REFUSED, "") and "nothing is parked in publisher main" in error
    assert audit(database) == [] and bumps(database) == 0


def test_a_publisher_that_the_database_does_not_have_is_named(database, settings):
    park(database, ROWS)
    database.execute("DELETE FROM outbox.publisher")
    status, _, error = run_command(["parked", "skip", "1", *WHY], settings)
    assert status == REFUSED and "publisher main does not exist" in error
    assert requests(database) == {} and audit(database) == []


def test_a_second_request_is_told_who_asked_for_what_and_when(
        database, parked, settings, login):
    status, _, error = run_command(["parked", "retry", "1", "--reason", "raised the limit", "--yes"],
                                   login("outbox_relay"))
    assert status == 0, error
    before = everything(database)
    for verb in ("retry", "skip"):
        status, _, error = run_command(["parked", verb, "4", "1", *WHY], settings)
        assert status == REFUSED
        assert "id 1: retry was requested by outbox_relay_" in error
        assert " at 20" in error and "(raised the limit) and is not carried out yet" in error
    assert everything(database) == before


def test_of_two_at_once_the_second_is_told(database, parked, start):
    """Both have looked before either notes; a lock on the publisher holds them there."""
    connection = database.connect(autocommit=False)
    connection.cursor().execute("SELECT FROM outbox.publisher WHERE name = 'main' FOR UPDATE")
    children = [start("retry", "1", "--reason", f"number {n}", "--yes") for n in (1, 2)]
    wait_for(lambda: database.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()"
        " AND wait_event_type = 'Lock'") == [(2,)], 30, "both to wait for the publisher")
    connection.rollback()
    connection.close()
    ends = sorted((child.wait(timeout=30), child.stderr.read()) for child in children)
    assert ends[0] == (0, "")
    assert ends[1][0] == REFUSED and "retry was requested by postgres at" in ends[1][1]
    assert len(audit(database)) == 1 and bumps(database) == 1
    assert audit(database)[0][4] in ends[1][1]


def test_a_request_waits_for_nobody_who_changes_the_rows(database, parked):
    connection = database.connect(autocommit=False)
    connection.cursor().execute("UPDATE outbox.parked SET attempts = attempts + 1 WHERE id = 1")
    parked("skip", "key=k1", *WHY)
    parked("retry", "4", "7", *WHY)
    connection.rollback()
    connection.close()
    assert requests(database) == {1: ["skip", 1], 2: ["skip", 1], 3: ["skip", 1], 4: ["retry", 2],
                                  7: ["retry", 2]}


def test_rows_parked_after_a_request_are_not_meant(database, parked):
    parked("skip", "topic=bills", *WHY)
    park(database, [(9, "bills", None, "dead", 10, TOO_LARGE)])
    assert requests(database) == {7: ["skip", 1], 8: ["skip", 1]}
    carry_out(database)
    assert database.execute("SELECT id FROM outbox.parked WHERE topic = 'bills'") == [(9,)]


def test_the_list_shows_how_far_a_request_is(database, parked):
    for number in range(1000, 1150):
        park(database, [(number, "many", b"k%d" % number, "dead", 10, TOO_LARGE)])
    parked("retry", "topic=many", "--reason", "ticket 7", "--yes")
    database.execute("SELECT outbox.parked_requests('main', 0, 0, 10)")
    line = parked("list", "--limit", "1").splitlines()[-1]
    assert line.startswith('request 1, retry {"topic": "many"}: 18 of about 158 rows looked at, 10 retried, of '
                           "which 0 were published and 0 refused again; by postgres at 20")
    assert line.endswith(": ticket 7")
    shown, = json.loads(parked("list", "--json", "--limit", "1"))["requests"]
    assert (shown["filter"], shown["about"], shown["looked_at"], shown["done"]) == (
        {"topic": "many"}, "158", "18", "10")
    while json.loads(parked("list", "--json", "--limit", "1"))["requests"]:
        database.execute("SELECT outbox.parked_requests('main', 0, 0, 10)")
    assert database.execute("SELECT done, ended_at IS NOT NULL FROM outbox.parked_request") == [(150, True)]


# --- on a terminal --------------------------------------------------------------------------------


@pytest.mark.parametrize("answer, expected", [(b"no\n", REFUSED), (b"\x04", REFUSED),
                                              (b"yes\n", 0)])
def test_on_a_terminal_the_count_comes_first_and_then_the_question(
        database, settings, answer, expected):
    park(database, ROWS)
    before = everything(database)
    status, shown = on_a_terminal(["parked", "skip", "state=dead", "--reason", "ticket 7"], settings, answer)
    assert status == expected
    assert shown.index("skip of 2 rows in publisher main") < shown.index("Skip 2 rows? Type yes:")
    assert (everything(database) == before) == (expected != 0)


# --- waiting for the owner ------------------------------------------------------------------------


def carry_out(database):
    """What the owner does at its next look: skipped rows go, retried ones become due."""
    wait_for(lambda: requests(database), 30, "the request")
    database.execute("SELECT outbox.parked_requests('main', 0, 0, 500)")


def test_wait_ends_when_retried_rows_are_published(database, parked, start):
    child = start("retry", "1", "4", "--wait", *WHY)
    carry_out(database)
    database.execute("SELECT outbox.unpark('main', 0, '{1}', true)")
    # one of them is under way still
    assert child.poll() is None
    database.execute("SELECT outbox.unpark('main', 0, '{4}', true)")
    output, error = child.communicate(timeout=30)
    assert (child.returncode, error) == (0, "")
    assert "request 1: 2 rows retried, 2 of them published" in output


def test_wait_says_which_row_was_refused_again_and_why(database, parked, start):
    child = start("retry", "1", "4", "--wait", *WHY)
    carry_out(database)
    database.execute("SELECT outbox.unpark('main', 0, '{1}', true)")
    database.execute("""SELECT outbox.park('main', 0, '{"rows": [[4, 0, "still invalid"]],
        "first_ms": 1000, "max_ms": 1000, "max_attempts": 5}')""")
    output, error = child.communicate(timeout=30)
    assert child.returncode == REFUSED and "2 rows retried, 1 of them published" in output
    assert "Kafka refused 1 of 2 rows again, first id 4: still invalid" in error


def test_wait_ends_when_skipped_rows_are_gone(database, parked, start):
    child = start("skip", "topic=bills", "--wait", *WHY)
    carry_out(database)
    output, error = child.communicate(timeout=30)
    assert (child.returncode, error) == (0, "") and "2 rows skipped" in output
    assert database.execute("SELECT count(*) FROM outbox.parked WHERE topic = 'bills'") == [(0,)]


def test_wait_is_bounded_and_the_request_stays(database, parked, settings):
    began = time.monotonic()
    status, _, error = run_command(["parked", "skip", "1", "--wait", "--timeout", "1", *WHY],
                                   settings)
    assert 1 <= time.monotonic() - began < 30
    assert status == UNAVAILABLE and "not all rows are skipped yet; the request remains" in error
    assert requests(database) == {1: ["skip", 1]}


# --- who may --------------------------------------------------------------------------------------


def test_the_relays_role_may_do_all_of_it(database, parked, login):
    as_relay = login("outbox_relay")
    for arguments in (["list"], ["show", "1"], ["retry", "1", *WHY], ["skip", "topic=bills", *WHY]):
        status, _, error = run_command(["parked", *arguments], as_relay)
        assert status == 0, f"{arguments}: {error}"
    name, = database.execute("SELECT DISTINCT who FROM outbox.audit")[0]
    assert f"//{name}@" in as_relay["DATABASE_URL"] and len(audit(database)) == 2


def test_a_reader_sees_all_but_payloads_and_asks_for_nothing(database, parked, login):
    as_reader = login("outbox_reader")
    before = everything(database)
    status, output, error = run_command(["parked", "list", "--json", "topic=orders"], as_reader)
    assert status == 0 and len(json.loads(output)["rows"]) == 6, error
    status, output, error = run_command(["parked", "show", "3", "--json"], as_reader)
    shown = json.loads(output)
    assert (status, shown["payload_form"], shown["payload"]) == (0, "hidden", None), error
    assert shown["waits_behind"]["id"] == "1"
    status, output, error = run_command(["parked", "show", "3"], as_reader)
    assert status == 0 and "may not read payloads" in output and "payload 3" not in output
    for verb in ("retry", "skip"):
        status, output, error = run_command(["parked", verb, "1", "--dry-run"], as_reader)
        assert status == 0, error
        status, output, error = run_command(["parked", verb, "1", *WHY], as_reader)
        assert status == DENIED and "permission denied" in error
    status, output, error = run_command(["status"], as_reader)
    assert "parked 8" in output, error
    assert everything(database) == before


# --- many -----------------------------------------------------------------------------------------

LIST_MEMORY = 16 << 20  # bytes of heap; all rows at once take several times as much
LIST_SECONDS = 60  # where a look for each row would take many minutes


def fill(database, count):
    database.execute(
        "INSERT INTO outbox.parked (publisher, shard, id, created_at, event_id, topic, key, payload,"
        " tick, state, error, attempts, next_at) SELECT 'main', 0, n, now(), gen_random_uuid(), 'orders',"
        " convert_to('k' || n %% (%(count)s / 10), 'UTF8'), convert_to(repeat('x', 500), 'UTF8'),"
        " 0, CASE WHEN n <= %(count)s / 10 THEN 'dead' ELSE 'behind' END, repeat('e', 100), 0, now()"
        " FROM generate_series(1, %(count)s) n", {"count": count})
    database.execute("ANALYZE outbox.parked")


def run_bounded(arguments, settings, path):
    """Under a limit to its memory: (exit status, seconds); its output goes to the path."""
    began = time.monotonic()
    with open(path, "w") as file:
        done = subprocess.run(
            [binary(), "parked", *arguments], stdin=subprocess.DEVNULL, stdout=file,
            env=environment(settings), timeout=120,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (LIST_MEMORY,) * 2))
    return done.returncode, time.monotonic() - began


def test_a_hundred_thousand_rows_are_listed_in_little_memory_and_time(
        database, settings, tmp_path):
    count = 100_000
    fill(database, count)
    status, seconds = run_bounded(["list"], settings, tmp_path / "text")
    assert status == 0 and seconds < LIST_SECONDS
    with open(tmp_path / "text") as file:
        lines = file.read().splitlines()
    assert len(lines) == count + 1
    assert lines[-1] == ("at least 100000 parked in publisher main: 0 waiting, 10000 dead, 0 stalled, 0 paused, 0 free,"
                         " 90000 behind; 100000 of them are shown")
    status, seconds = run_bounded(["list", "--json"], settings, tmp_path / "json")
    assert status == 0 and seconds < LIST_SECONDS
    with open(tmp_path / "json") as file:
        rows = json.load(file)["rows"]
    assert [int(row["id"]) for row in rows] == list(range(1, count + 1))


def test_a_request_for_very_many_rows_is_noted_in_a_moment(database, settings):
    """None of them is written to, and only the first ones are counted."""
    fill(database, 100_002)
    written = database.execute("SELECT xmin::text, count(*) FROM outbox.parked GROUP BY 1")
    status, output, error = run_command(["parked", "skip", "--all", *WHY], settings)
    assert status == 0 and "request 1: the skip is noted" in output, error
    assert "skip of at least 100001 rows in publisher main; counted among the first 100000 of about 1000" in output
    assert database.execute("SELECT xmin::text, count(*) FROM outbox.parked GROUP BY 1") == written
    assert database.execute("SELECT count(*), min(about) FROM outbox.parked_request") == [(1, 100_002)]
