"""`--server`: the commands of operators work over the HTTP interface of a relay, without the database.

Each is compared with the same command on the database, which the relay that runs here publishes from.
"""

import itertools
import json
import re

import pytest

from support.api import CALLERS, CONFIG, OPERATE, READ, caller, prepare, start_api
from support.large_rows import LIMIT, ONCE, row_of
from support.process import free_port, wait_for
from support.relay import run_command

PAYLOADS = "token-with-payloads"
WHY = ["--reason", "ticket 7", "--yes"]
USAGE, REFUSED, UNAVAILABLE, DENIED, MISCONFIGURED = 64, 65, 69, 77, 78


@pytest.fixture
def api(make_relay, kafka, topic, tmp_path):
    """A relay that parks what is too large; the token is an operator's."""
    requests = kafka.create_topic(f"{topic}-requests")
    kafka.alter_topic(topic, max_message_bytes=LIMIT)
    relay, api = start_api(make_relay, tmp_path, OPERATE, CONFIG.format(topic=requests) + CALLERS
                           + caller("eve", PAYLOADS, "read, payload"), **ONCE)
    relay.wait_ready()
    yield api
    kafka.delete_topic(requests)


@pytest.fixture
def remote(api):
    """remote(*words): (status, output, error) of a command with --server and no other setting."""
    def run(*words, token=OPERATE, url=None, settings=None):
        return run_command([*words, "--server", url or f"http://127.0.0.1:{api.port}"],
                           {"OUTBOX_RELAY_TOKEN": token, **(settings or {})})

    return run


@pytest.fixture
def local(api, database, kafka, tmp_path):
    """The same on the database, with the relay's configuration."""
    return lambda *words: run_command([*words, "--config", str(tmp_path / "relay.ini")], {
        "DATABASE_URL": database.dsn, "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap,
        "OUTBOX_RELAY_API_LISTEN": f"127.0.0.1:{api.port}"})


@pytest.fixture
def parked(api, database, topic, chance):
    """Ids of five parked rows, and of one behind the first."""
    ids = []
    for key in ("k0!", "k0", "k1!", "k2!", "k3!", "k4!"):
        ids += database.execute("INSERT INTO outbox.message (topic, key, payload_bytes) VALUES (%s, %s, %s) RETURNING id",
                                (topic, *row_of(key, chance)))[0]
    wait_for(lambda: states_of(database) == {"dead": 5, "behind": 1}, what=lambda: states_of(database))
    return ids


def states_of(database):
    return dict(database.execute("SELECT state, count(*)::int FROM outbox.parked GROUP BY state"))


def good(answer):
    status, output, error = answer
    assert status == 0, (status, output, error)
    return output


def when_free(run, *words):
    """The output of a command that may have to be repeated, because upkeep of the relay has the lock now."""
    answers = [run(*words)]

    def is_done():
        if answers[-1][0] == UNAVAILABLE and "a lock was not to be had" in answers[-1][2]:
            answers.append(run(*words))
        return answers[-1][0] != UNAVAILABLE

    wait_for(is_done, what=lambda: answers[-1])
    return good(answers[-1])


# --- parked rows ----------------------------------------------------------------------------------

def test_parked_rows_are_listed_as_on_the_database(remote, local, parked):
    for words in ([], ["state=dead"], ["key=k0"], [f"ids={parked[2]}..{parked[3]}"], ["--limit", "2"], ["topic=nothing"]):
        assert good(remote("parked", "list", *words)) == good(local("parked", "list", *words)), words
    listed = json.loads(good(remote("parked", "list", "--json")))
    assert listed["rows"] == json.loads(good(local("parked", "list", "--json")))["rows"]
    assert listed["totals"]["dead"] == "5"


def test_a_parked_row_is_shown_as_on_the_database(remote, local, parked, api):
    for words in ([], ["--json"]):
        for row in (parked[0], parked[1]):
            assert good(remote("parked", "show", row, *words, token=PAYLOADS)) == good(local("parked", "show", row, *words))
    shown = good(remote("parked", "show", parked[1], token=PAYLOADS))
    assert f"waits behind id {parked[0]} (dead), with 0 between them" in shown and "bytes, as text:" in shown
    hidden = good(remote("parked", "show", parked[1]))
    assert hidden.endswith("  payload      this login or token may not read payloads\n")
    assert json.loads(good(remote("parked", "show", parked[1], "--json")))["payload_form"] == "hidden"
    for words, text in [(["99999"], "is not parked in publisher main"), (["0"], "is no id"), (["x"], "is no id"),
                        ([parked[0], "--publisher", "nobody"], "no [publisher")]:
        status, _, error = remote("parked", "show", *words)
        assert status == REFUSED and text in error, (words, error)
    for path in ("0", "-1", "x", "9223372036854775808", "1/2", "1?publisher=main&publisher=main", "1?limit=3"):
        answer = api.request("GET", f"/v1/parked/{path}")
        assert (answer.status, answer.code) == (400, "bad_value"), (path, answer.text)


def test_a_selection_is_shown_and_retried(remote, parked, database, kafka, topic):
    shown = good(remote("parked", "retry", "state=dead", "--dry-run"))
    assert shown.startswith("retry of 5 rows\n") and "nothing was requested: --dry-run" in shown
    assert states_of(database) == {"dead": 5, "behind": 1}
    kafka.alter_topic(topic, max_message_bytes=1_000_000)
    done = good(remote("parked", "retry", "state=dead", *WHY, "--wait"))
    assert "5 rows retried, 5 of them published" in done
    wait_for(lambda: states_of(database) == {}, what=lambda: states_of(database))
    reason, caller = database.execute("SELECT reason, caller FROM outbox.audit ORDER BY id DESC LIMIT 1")[0]
    assert (reason, caller) == ("ticket 7", "alice")


def test_a_row_that_kafka_refuses_again_is_an_error(remote, parked):
    status, output, error = remote("parked", "retry", str(parked[2]), *WHY, "--wait")
    assert status == REFUSED and "1 row retried, 0 of them published" in output and "too large" in error.lower()


def test_named_rows_are_skipped(remote, parked, database):
    assert "skip of 2 rows" in good(remote("parked", "skip", str(parked[2]), str(parked[3]), *WHY, "--wait"))
    wait_for(lambda: states_of(database) == {"dead": 3, "behind": 1}, what=lambda: states_of(database))
    status, _, error = remote("parked", "skip", str(parked[2]), *WHY)
    assert status == REFUSED and "is not parked" in error


def test_a_message_is_found(remote, local, parked):
    for words in ([], ["--json"]):
        assert good(remote("message", "find", "--id", parked[1], *words)) == good(
            local("message", "find", "--id", parked[1], *words))
    assert "publisher main, shard 0: parked" in good(remote("message", "find", "--id", parked[1]))
    status, _, error = remote("message", "find", "--id", 99999)
    assert status == REFUSED and "99999" in error
    assert "give one" in remote("message", "find")[2].lower() or remote("message", "find")[0] == REFUSED


# --- look-back ------------------------------------------------------------------------------------

@pytest.fixture
def undecided(api, database):
    """Ids of three prepares that nobody decides: their business does not answer."""
    for number in range(3):
        assert api.as_("token-of-a-sender").post(
            "prepare", prepare(f"o/{number}", check_after=1, expires_after=3600)).status == 202
    wait_for(lambda: database.execute("SELECT count(*)::int FROM outbox.lookback_overdue") == [(3,)], what="the overdue ids")
    return [f"o/{number}" for number in range(3)]


@pytest.mark.parametrize("words", [
    [], ["--type", "orders"], ["--state", "parked"], ["--section", "orders", "--limit", "2"], ["--error", "0"], ["--service", "none"],
    ["--from", "2026-01-02"], ["--to", "2026-01-02T03:04:05.25Z"], ["--postgres", "main"], ["--postgres", "main", "--type", "orders"],
    ["--undecided"], ["--undecided", "--limit", "2"], ["--undecided", "--service", "none"]])
def test_ids_are_listed_as_on_the_database(remote, local, undecided, words, database):
    # the relay would call again between the two commands
    database.execute("UPDATE outbox.lookback_overdue SET state = 'parked', claim = null, last_error = 'Error 0'")
    assert good(remote("lookback", "list", *words)) == good(local("lookback", "list", *words))
    assert json.loads(good(remote("lookback", "list", "--json", *words))) == json.loads(
        good(local("lookback", "list", "--json", *words)))


def test_many_ids_are_listed_in_pages(remote, local, api, database):
    database.execute("""INSERT INTO outbox.lookback_overdue (section, biz_type, biz_id, prepared_at, state, next_check, attempts)
        SELECT 'orders', 'orders', 'ü, ' || i, now() - i * interval '1 s', 'parked', now(), 1 FROM generate_series(1, 2100) i""")
    listed = good(remote("lookback", "list"))
    assert listed == good(local("lookback", "list")) and listed.endswith("0 overdue, 2100 parked\n")
    assert good(remote("lookback", "list", "--limit", "1001")).endswith("; 1001 of them are shown\n")


def test_undecided_ids_are_listed_in_pages(remote, local, api, database):
    """The journal has more prepares than a page looks at, and most of them are decided."""
    database.execute("""WITH made AS (
            INSERT INTO outbox.lookback (biz_type, biz_id, kind, section, source_partition, source_offset, topic, key, payload, check_at,
                digest, event_id, check_url)
            SELECT 'orders', 'ü, ' || i, 'prepare', 'orders', -1, i, 'orders', 'k', 'x', now() + interval '1 h', '\\x00', gen_random_uuid(),
                CASE WHEN i % 2 = 0 THEN 'http://127.0.0.1/check' END
            FROM generate_series(1, 12000) i RETURNING biz_type, biz_id, prepared_at, section, source_offset)
        INSERT INTO outbox.lookback (biz_type, biz_id, prepared_at, kind, section, decision, source, decided_at)
        SELECT biz_type, biz_id, prepared_at, 'decision', section, 'rollback', 'message', now() FROM made WHERE source_offset % 4 <> 0""")
    for words in ([], ["--limit", "2"], ["--limit", "1001"], ["--service", "none"], ["--to", "2026-01-02"], ["--type", "orders"]):
        lines = [good(run("lookback", "list", "--undecided", *words)).splitlines() for run in (remote, local)]
        assert [pair for pair in itertools.zip_longest(*lines) if pair[0] != pair[1]][:3] == [], words  # pytest would compare for minutes
    assert good(remote("lookback", "list", "--undecided")).endswith("\n0 overdue, 0 parked, 3000 undecided and not due\n")
    assert json.loads(good(remote("lookback", "list", "--undecided", "--json"))) == json.loads(good(local("lookback", "list", "--undecided", "--json")))
    cut = good(remote("lookback", "list", "--undecided", "--limit", "2")).splitlines()[-1]
    assert re.fullmatch(r"at least 0 overdue, 0 parked, 2\d\d\d undecided and not due; 2 of them are shown", cut)
    found = json.loads(good(remote("lookback", "list", "--undecided", "--limit", "2", "--json")))
    assert not found["exact"] and len(found["rows"]) == 2 and found["rows"][0]["state"] == "undecided"
    exported = api.request("GET", "/v1/lookback?state=undecided&format=json").json
    assert len(exported) == 3000 and {row["state"] for row in exported} == {"undecided"}
    assert api.request("GET", "/v1/lookback?state=undecided&error=x").json["rows"] == []


def test_ids_are_listed_shown_and_decided(remote, undecided, database):
    listed = good(remote("lookback", "list", "--type", "orders"))
    assert all(f"orders {name}  overdue  section=orders" in listed for name in undecided)
    assert "biz_id         o/1" in good(remote("lookback", "show", "orders", "o/1", "--postgres", "main"))
    assert "rollback of 1 id is done" in good(remote("lookback", "rollback", "orders", "o/0", "--postgres", "main", *WHY))
    shown = good(remote("lookback", "commit", "--all", "--type", "orders", "--postgres", "main", "--dry-run"))
    assert shown.startswith("commit of 2 ids\n") and "nothing was" in shown
    assert "commit of 2 ids is done" in good(remote("lookback", "commit", "--all", "--type", "orders", *WHY))
    assert sorted(database.execute("SELECT biz_id, decision FROM outbox.lookback WHERE kind = 'decision'")
                  ) == [("o/0", "rollback"), ("o/1", "commit"), ("o/2", "commit")]
    assert good(remote("lookback", "list")) == "nothing is overdue or parked\n"


# --- reports --------------------------------------------------------------------------------------

def test_status_and_publishers_of_a_relay(remote, local, api, parked):
    shown = good(remote("status"))
    assert "publisher main of postgres main\n  1 of 1 shards have an owner\n" in shown
    assert "parked: 0 waiting, 5 dead" in shown and ": ready\n" in shown
    assert json.loads(good(remote("status", "--json")))["process"]["ready"]
    listed = good(remote("publisher", "list"))
    assert listed.strip() in good(local("publisher", "list")) and "owned by" in listed
    assert good(remote("deliver", "list")) == "no [deliver] section runs in that process\n"
    assert good(remote("rules", "reload")) == ""


def test_a_publisher_is_paused_split_and_resumed(remote, local, database):
    assert "topic orders of publisher main is paused (outbox.audit" in good(
        remote("publisher", "pause", "main", "--topic", "orders", "--reason", "ticket 7"))
    assert "paused topics: orders since 20" in good(remote("publisher", "list"))
    status, _, error = remote("publisher", "pause", "main", "--topic", "a b", "--reason", "ticket 7")
    assert status == REFUSED and "topic has 1 to 249 characters" in error
    assert "orders of publisher main is not paused" in good(remote("publisher", "resume", "main", "--topic", "orders", "--reason", "x"))
    assert "publisher main is paused (outbox.audit" in good(remote("publisher", "pause", "main", "--reason", "ticket 7"))
    assert "was paused already" in good(local("publisher", "pause", "main", "--reason", "ticket 7"))
    status, _, error = remote("publisher", "split", "main", "--shards", "2", "--reason", "ticket 7")
    assert status == REFUSED and "is paused" in error
    assert "is not paused" in good(remote("publisher", "resume", "main", "--reason", "ticket 7"))
    assert "publisher main has 2 shards now" in good(remote("publisher", "split", "main", "--shards", "2", "--reason", "ticket 7"))
    assert database.execute("SELECT shards FROM outbox.publisher") == [(2,)]
    assert remote("publisher", "split", "main")[0] == REFUSED
    assert [row[0] for row in database.execute("SELECT verb FROM outbox.audit WHERE caller = 'alice' ORDER BY id")
            if row[0] in ("pause", "resume")] == ["pause", "resume"] * 2


def test_a_publisher_is_created_and_dropped(remote, local, database, api):
    assert good(remote("publisher", "create", "late", "--shards", "2", "--start", "now", "--reason", "ticket 7")) == (
        'publisher late made with 2 shards; publish it with a section [publisher "late"]\n')
    assert good(local("publisher", "create", "other")).startswith("publisher other made with 1 shard;")
    for words, text in [(["create", "late", "--reason", "x"], "publisher late exists already in"), (["create", "B!", "--reason", "x"], "no name"),
                        (["create", "new"], "say why"), (["create", "new", "--reason", " "], "empty"),
                        (["create", "new", "--start", "2100-01-01", "--reason", "x"], "in the future"),
                        (["create", "new", "--start", "soon", "--reason", "x"], "start is neither"),
                        (["create", "new", "--postgres", "second", "--reason", "x"], "second"),
                        (["drop", "late"], "say why"), (["drop", "nobody", *WHY], "publisher nobody does not exist"),
                        (["drop", "late", "--force", "all", *WHY], "force names what is forced (owned, last, configured)")]:
        status, _, error = remote("publisher", *words)
        assert status == REFUSED and text in error, (words, error)
    assert "force the drop with `configured`" in remote("publisher", "drop", "main", *WHY)[2]
    status, _, error = remote("publisher", "drop", "main", "--force", "configured", *WHY)
    assert (status, "owned by" in error) == (75, True), error
    assert status == local("publisher", "drop", "main", "--force", "configured", *WHY)[0]
    for run in (remote, local):
        assert good(run("publisher", "drop", "late", "--dry-run")) == (
            "drop of publisher late: its progress is forgotten, and with it go 0 parked and 0 scheduled messages\n"
            "nothing was changed: --dry-run\n")
    assert good(remote("publisher", "drop", "late", *WHY)).endswith("publisher late dropped\n")
    assert good(local("publisher", "drop", "other", *WHY)).endswith("publisher other dropped\n")
    assert database.execute("SELECT verb, publisher, reason, caller FROM outbox.audit ORDER BY id") == [
        ("publisher create", "late", "ticket 7", "alice"), ("publisher drop", "late", "ticket 7", "alice"),
        ("publisher drop", "other", "ticket 7", None)]
    for path, body, status, code in [
            ("", {"name": "new", "reason": "x", "shards": 0}, 400, "bad_value"), ("", {"name": "new", "reason": "x", "shards": "1"}, 400, "wrong_type"),
            ("", {"name": "new", "reason": ""}, 400, "bad_value"), ("", {"reason": "x"}, 400, "bad_value"), ("", {"name": 1, "reason": "x"}, 400, "wrong_type"),
            ("", {"name": "new", "reason": "x", "more": 1}, 400, "unknown_field"), ("/new/drop", {"reason": "x"}, 400, "missing_field"),
            ("/new/drop", {"reason": "x", "confirm": "Drop publisher main?"}, 409, "conflicting_arguments"),
            ("/new/drop", {"dry_run": True}, 404, "unknown_publisher"), ("/new/drop", {"dry_run": True, "force": "last"}, 400, "bad_value"),
            ("/new/drop", {"dry_run": True, "force": ["last,owned"]}, 400, "bad_value"), ("/B/drop", {"dry_run": True}, 400, "bad_value"),
            ("", {"name": "new", "reason": "x", "start": "soon"}, 400, "bad_value"), ("/main/drop", {"dry_run": True}, 409, "not_applicable"),
            ("/main/drop", {"dry_run": True, "force": ["configured"]}, 409, "not_applicable"),
            ("/main/drop", {"dry_run": True, "force": ["configured", "last"]}, 409, "owned")]:
        answer = api.request("POST", f"/v1/publishers{path}", body)
        assert (answer.status, answer.code) == (status, code), (path, body, answer.text)
        assert "--" not in answer.json["detail"], "no option of the command line: the caller sends members"


def test_a_restored_database_is_rebased(remote, local, api, database):
    for words in (["--all", "--dry-run"], ["main", "--dry-run"], ["main", "--all", "--dry-run"], ["--all", "--new-identity", "--dry-run"]):
        assert good(remote("publisher", "rebase", *words)) == good(local("publisher", "rebase", *words)), words
    for words in ([*WHY], ["nobody", *WHY], ["main", "--reason", "x"], ["main"]):
        assert remote("publisher", "rebase", *words)[0] == local("publisher", "rebase", *words)[0] == REFUSED, words
    # a relay owns it
    status, _, error = remote("publisher", "rebase", "main", *WHY)
    assert (status, local("publisher", "rebase", "main", *WHY)[0]) == (REFUSED, REFUSED), error


def test_partitions_are_listed_made_and_dropped(remote, local, api, database):
    made = when_free(remote, "partition", "make", "--table", "message", "--from", "2020-01-01", "--reason", "ticket 7")
    assert made == "message: made the partition from 2020-01-01T00:00:00Z\n"
    again = ["partition", "make", "--table", "message", "--from", "2020-01-01"]
    assert when_free(remote, *again, "--reason", "x") == when_free(local, *again) == "message: nothing to do, it is there\n"
    assert when_free(remote, "partition", "make", "--reason", "ticket 7") == when_free(local, "partition", "make")
    for words in ([], ["--table", "message"], ["--json"]):
        assert good(remote("partition", "list", *words)) == good(local("partition", "list", *words)), words
    name = json.loads(good(remote("partition", "list", "--table", "message", "--json")))[0]["partition"]
    for run in (remote, local):
        for words in ([], ["--detach"]):
            shown = good(run("partition", "drop", name, "--dry-run", *words))
            assert re.fullmatch(rf"{'detach' if words else 'drop'} of {name}: 0 rows from 2020-01-01T00:00:00Z to 2020-01-02T00:00:00Z, "
                                r"\d+ bytes\nnothing was changed: --dry-run\n", shown)
    newest = json.loads(good(remote("partition", "list", "--table", "message", "--json")))[1]["partition"]
    for words in ([newest, "--dry-run"], [newest, *WHY], [name], ["nothing", *WHY], [name, "--force", "all", *WHY], [name, "--force", "", *WHY],
                  [name, "--yes"]):
        (status, _, error), (wanted, _, text) = remote("partition", "drop", *words), local("partition", "drop", *words)
        assert (status, error.replace("the relay refuses: ", "")) == (wanted, text) and status == REFUSED, (words, error)
    assert good(remote("partition", "drop", name, *WHY)).endswith(f"{name} dropped\n")
    assert database.execute("SELECT verb, reason, caller FROM outbox.audit ORDER BY id DESC LIMIT 1") == [("partition drop", "ticket 7", "alice")]
    for words in (["make", "--table", "x", "--reason", "x"], ["make"], ["make", "--from", "soon", "--reason", "x"], ["list", "--table", "x"],
                  ["list", "--postgres", "second"]):
        assert remote("partition", *words)[0] == REFUSED, words
    for method, path, body, status, code in [
            ("GET", "?table=x", None, 400, "bad_value"), ("GET", "?limit=0", None, 400, "bad_value"), ("GET", "?limit=1001", None, 400, "bad_value"),
            ("GET", "?after=", None, 400, "bad_value"), ("GET", "?postgres=second", None, 404, "unknown_section"),
            ("POST", "", {}, 400, "bad_value"), ("POST", "", {"reason": "x", "table": 1}, 400, "wrong_type"), ("POST", "", {"reason": "x", "table": "x"}, 400, "bad_value"),
            ("POST", "", {"reason": "x", "from": "soon"}, 400, "bad_value"), ("POST", "", {"reason": "x", "to": "now"}, 400, "unknown_field"),
            ("POST", f"/{newest}/drop", {"reason": "x"}, 400, "missing_field"), ("POST", f"/{newest}/drop", {"dry_run": 1}, 400, "wrong_type"),
            ("POST", f"/{newest}/drop", {"reason": "x", "confirm": f"Detach {newest}?"}, 409, "conflicting_arguments"),
            ("POST", f"/{newest}/drop", {"dry_run": True}, 409, "not_applicable"), ("POST", f"/{name}/drop", {"dry_run": True}, 404, "not_found"),
            ("POST", f"/{newest}/drop", {"dry_run": True, "force": ["last"]}, 400, "bad_value")]:
        answer = api.request(method, f"/v1/partitions{path}", body)
        assert (answer.status, answer.code) == (status, code), (path, body, answer.text)
        assert "--" not in answer.json["detail"]


# two archives of each day
ARCHIVES = """INSERT INTO outbox.archive (of_table, name, from_at, to_at, state, host, folder, file)
    SELECT 'message', 'message_p' || to_char(day, 'YYYYMMDD'), day, day + interval '1 day', 'archived', 'relay-1', '/archive', 'file-' || copy
    FROM generate_series(timestamptz '2019-01-01Z', timestamptz '2019-01-01Z' + %s * interval '1 day', interval '1 day') day, generate_series(1, 2) copy"""


def pages_of(api, limit, arguments="", after=None):
    """The rows of all pages; each but the last one is full."""
    pages = []
    while after or not pages:
        answer = api.request("GET", f"/v1/partitions?limit={limit}{arguments}{f'&after={after}' if after else ''}")
        assert answer.status == 200, answer.text
        pages.append(answer.json["rows"])
        after = answer.json["next"]
    assert all(len(page) == limit for page in pages[:-1]) and 0 < len(pages[-1]) <= limit
    return list(itertools.chain(*pages))


def test_a_list_of_partitions_has_pages(remote, local, api, database):
    assert when_free(remote, "partition", "make", "--table", "message", "--from", "2019-01-02", "--reason", "x")
    database.execute(ARCHIVES, (2,))
    rows = pages_of(api, 1000)
    tables = [row["partition"].rsplit("_", 1)[0] for row in rows]
    assert tables == sorted(tables, key=["message", "lookback", "processed", "unique_ledger"].index)
    for table in set(tables):
        listed = [row["from"] for row in rows if row["partition"].rsplit("_", 1)[0] == table]
        assert listed[-1] is None and listed[:-1] == sorted(listed[:-1])
    # archives of a day are in the order of their making, before the partition
    assert [(row["partition"], row["state"], row.get("place")) for row in rows[:7]] == [
        (f"message_p2019010{day}", "archived", f"relay-1:/archive/file-{copy}") for day in (1, 2) for copy in (1, 2)] + [
        ("message_p20190102", "attached", None)] + [("message_p20190103", "archived", f"relay-1:/archive/file-{copy}") for copy in (1, 2)]

    for limit in (1, 2, 3, len(rows) - 1, len(rows), len(rows) + 1):
        assert pages_of(api, limit) == rows, limit
    for table in set(tables):
        assert pages_of(api, 2, f"&table={table}") == [row for row in rows if row["partition"].rsplit("_", 1)[0] == table]
    for name in ("message_p20190102", "message_default"):
        assert pages_of(api, 2, f"&partition={name}") == [row for row in rows if row["partition"] == name]
    answer = api.request("GET", "/v1/partitions?partition=none")
    assert (answer.status, answer.json["rows"], answer.json["next"]) == (200, [], None)


def test_a_page_of_partitions_goes_on_behind_a_row_that_is_gone(remote, api, database):
    assert when_free(remote, "partition", "make", "--table", "message", "--from", "2020-01-01", "--reason", "x")
    database.execute(ARCHIVES, (2,))
    rows = pages_of(api, 1000)
    first = api.request("GET", "/v1/partitions?limit=3").json
    database.execute("DELETE FROM outbox.archive WHERE from_at <= '2019-01-02Z'")
    assert first["rows"] + pages_of(api, 2, after=first["next"]) == rows[:3] + rows[4:]


def test_a_place_that_is_none_is_refused(api):
    for after in ("x", "message", "message.1", "message.1.", ".1.x", "message..x", "message.x.x", "other.1.x", "message.1x.y",
                  "message.99999999999999999999.x", "message.1." + "x" * 64):
        answer = api.request("GET", f"/v1/partitions?after={after}")
        assert (answer.status, answer.code) == (400, "bad_value"), answer.text
        assert answer.json["detail"] == f"after={after[:60]} is no place in the list: use the value of next as it is"


def test_all_pages_of_partitions_are_shown_over_the_server(remote, local, database):
    database.execute(ARCHIVES, (1100,))
    for words in ([], ["--json"], ["--table", "message"]):
        assert good(remote("partition", "list", *words)) == good(local("partition", "list", *words)), words
    assert len(json.loads(good(remote("partition", "list", "--json")))) > 2202


def test_a_partition_that_is_locked_is_left(remote, api, database):
    assert when_free(remote, "partition", "make", "--table", "message", "--from", "2020-01-01", "--reason", "x")
    name = json.loads(good(remote("partition", "list", "--table", "message", "--json")))[0]["partition"]
    with database.connect() as session, session.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute(f"LOCK TABLE outbox.{name} IN SHARE MODE")
        status, _, error = remote("partition", "drop", name, *WHY)
        assert status == UNAVAILABLE and "a lock was not to be had" in error, error
        answer = api.request("POST", f"/v1/partitions/{name}/drop", {"confirm": f"Drop {name}?", "reason": "x"})
        assert (answer.status, answer.code) == (409, "locked"), answer.text
    assert good(remote("partition", "drop", name, *WHY)).endswith(f"{name} dropped\n")


def test_a_replay_is_previewed_sent_by_the_relay_and_watched(remote, database, kafka, topic):
    database.execute("INSERT INTO outbox.message (topic, key, payload_bytes) SELECT %s, n::text, 'x' FROM generate_series(1, 20) n",
                     (topic,))
    wait_for(lambda: "0 unpublished" in good(remote("status")), what="the published rows")
    shown = good(remote("replay", f"topic={topic}", "--dry-run"))
    assert shown.startswith("replay of 20 rows, ids ") and f"  20 from {topic} to {topic}\n" in shown
    done = good(remote("replay", f"topic={topic}", *WHY))
    assert "finished, 20 of 20 rows" in done.splitlines()[-1], done
    assert "replay-1: finished, 20 of 20 rows" in good(remote("replay", "--list"))
    assert json.loads(good(remote("replay", "--list", "--json")))[0]["state"] == "finished"
    for words in (["topic=a b"], ["lost=1"], [], ["topic=nothing-here"], ["topic=a", "topic=b"], ["x"]):
        assert remote("replay", *words, *WHY)[0] == REFUSED, words


def test_the_checks_of_doctor_come_from_the_relay(remote, local):
    def without_figures(text):
        return [line for line in text.splitlines() if "undecided" not in line and "rows" not in line]

    status, shown, _ = remote("doctor")
    assert status in (0, 1) and without_figures(shown) == without_figures(local("doctor")[1])
    assert {"severity", "place", "finding", "cure"} == set(json.loads(remote("doctor", "--json")[1])[0])


# A database that the relay does not have: no command leaves the option out in silence.
OF_A_DATABASE = [
    ["publisher", "list"], ["publisher", "create", "new", "--reason", "x"], ["publisher", "drop", "main", *WHY], ["publisher", "rebase", "--all", *WHY],
    ["partition", "list"], ["partition", "make", "--reason", "x"], ["partition", "drop", "message_p20200101", *WHY], ["message", "find", "--id", "7"],
    ["lookback", "list"], ["lookback", "list", "--undecided"], ["lookback", "show", "orders", "o/0"], ["lookback", "retry", "orders", "o/0", *WHY],
    ["lookback", "commit", "--all", "--type", "orders", *WHY], ["lookback", "rollback", "--all", "--state", "parked", "--dry-run"]]


def test_each_option_works_over_the_server_or_is_refused_with_the_cure(remote, local, api):
    for words in OF_A_DATABASE:
        status, _, error = remote(*words, "--postgres", "second")
        assert status == REFUSED and ("second" in error or "no publisher there" in error), (words, status, error)
    assert good(remote("publisher", "list", "--postgres", "main")) == good(remote("publisher", "list"))
    assert [row["name"] for row in json.loads(good(remote("publisher", "list", "--postgres", "main", "--json")))["publishers"]] == ["main"]
    for words, cure in [(["publisher", "pause", "main", "--reason", "x", "--postgres", "main"], "leave it out"),
                        (["publisher", "resume", "main", "--reason", "x", "--postgres", "main"], "leave it out"),
                        (["publisher", "split", "main", "--shards", "2", "--reason", "x", "--postgres", "main"], "leave it out"),
                        (["publisher", "rebase", "main", "--postgres", "main", *WHY], "leave it out"),
                        (["publisher", "split", "main", "--shards", "2", "--reason", "x", "--timeout", "9"], "split on the database"),
                        (["replay", "--resume", "1", "--rate", "5"], "resume on the database"),
                        (["deliver", "redrive", "orders", "--limit", "5", *WHY], "choose by --id"),
                        (["lookback", "retry", "--all", *WHY], "an option that selects")]:
        status, _, error = remote(*words)
        assert status == REFUSED and cure in error.replace("Leave", "leave"), (words, status, error)
    assert good(remote("replay", "--list", "--publisher", "main")) == good(local("replay", "--list", "--publisher", "main"))


# --- what goes wrong ------------------------------------------------------------------------------

def test_a_wrong_address_or_token_names_the_cure(remote, api, tmp_path):
    def fails(wanted, words, *arguments, **options):
        status, _, error = remote(*arguments or ("parked", "list"), **options)
        assert (status, words in error) == (wanted, True), (status, error)

    fails(MISCONFIGURED, "--token-file", token="")
    fails(DENIED, "a token is needed", token="token-of-nobody")
    fails(DENIED, "role", "parked", "retry", "--all", *WHY, token=READ)
    fails(REFUSED, "https://relay.example.com:9188", url="relay.example.com:9188")
    fails(UNAVAILABLE, "no answer from the relay", url=f"http://127.0.0.1:{free_port()}")
    fails(REFUSED, "state=gone is not known", "parked", "list", "state=gone")
    fails(REFUSED, "say why", "parked", "retry", "--all")
    fails(REFUSED, "no [publisher", "parked", "list", "--publisher", "nobody")
    for words, why in [(["migrate", "up"], "migrate up has no option '--server': it needs the login of the schema's owner"),
                       (["partition", "restore", "x"], "call it on the host that has the archive"), (["run"], "starts the relay on this machine"),
                       (["rules", "check", "x"], "reads a file of this machine"),
                       (["dedup", "stat", "x"], "GET /v1/dedup"), (["version"], "it works without a relay")]:
        fails(USAGE, why, *words)
    fails(REFUSED, "nothing is stored", "lookback", "show", "orders", "nobody")
    fails(REFUSED, "--undecided does not go with --state", "lookback", "list", "--undecided", "--state", "parked")
    fails(REFUSED, "--from", "lookback", "list", "--from", "yesterday")


def test_the_token_comes_from_a_file_and_the_address_from_a_variable(api, tmp_path):
    file = tmp_path / "token"
    file.write_text(f"{OPERATE}\n")
    variables = {"OUTBOX_RELAY_SERVER": f"http://127.0.0.1:{api.port}/", "OUTBOX_RELAY_TOKEN_FILE": str(file)}
    assert "nothing is parked" in good(run_command(["parked", "list"], variables))
    assert "nothing is parked" in good(run_command(["--token-file", str(file), "parked", "list", "--server",
                                                    variables["OUTBOX_RELAY_SERVER"]], {}))
    file.write_text("\n")
    status, _, error = run_command(["parked", "list"], variables)
    assert status == MISCONFIGURED and "its first line has no token" in error
    status, _, error = run_command(["parked", "list", "--token-file", "/nowhere"], variables)
    assert status == MISCONFIGURED and "/nowhere" in error
    # a command that works without a relay leaves the variables alone
    assert run_command(["version"], variables)[0] == 0
