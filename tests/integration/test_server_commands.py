"""`--server`: the commands of operators work over the HTTP interface of a relay, without the database.

Each is compared with the same command on the database, which the relay that runs here publishes from.
"""

import json

import pytest

from support.api import CALLERS, CONFIG, OPERATE, READ, caller, prepare, start_api
from support.auditor import payload
from support.process import free_port, wait_for
from support.relay import run_command

LIMIT, TOO_LARGE = 60_000, 90_000
PAYLOADS = "token-with-payloads"
WHY = ["--reason", "ticket 7", "--yes"]
USAGE, REFUSED, UNAVAILABLE, DENIED, MISCONFIGURED = 64, 65, 69, 77, 78


@pytest.fixture
def api(make_relay, kafka, topic, tmp_path):
    """A relay that parks what is too large; the token is an operator's."""
    requests = kafka.create_topic(f"{topic}-requests")
    kafka.alter_topic(topic, max_message_bytes=LIMIT)
    relay, api = start_api(make_relay, tmp_path, OPERATE, CONFIG.format(topic=requests) + CALLERS
                           + caller("eve", PAYLOADS, "read, payload"),
                           publisher_max_attempts=1, publisher_retry_first="100ms")
    api.relay = relay.wait_ready()
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
        pad = chance.randbytes(TOO_LARGE // 2).hex() if "!" in key else "small"
        ids += database.execute("INSERT INTO outbox.message (topic, key, payload_bytes) VALUES (%s, %s, %s) RETURNING id",
                                (topic, key.rstrip("!"), payload(key, 1, pad=pad)))[0]
    wait_for(lambda: states_of(database) == {"dead": 5, "behind": 1}, what=lambda: states_of(database))
    return ids


def states_of(database):
    return dict(database.execute("SELECT state, count(*)::int FROM outbox.parked GROUP BY state"))


def good(answer):
    status, output, error = answer
    assert status == 0, (status, output, error)
    return output


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
    ["--from", "2026-01-02"], ["--to", "2026-01-02T03:04:05.25Z"]])
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


def test_ids_are_listed_shown_and_decided(remote, undecided, database):
    listed = good(remote("lookback", "list", "--type", "orders"))
    assert all(f"orders {name}  overdue  section=orders" in listed for name in undecided)
    assert "biz_id         o/1" in good(remote("lookback", "show", "orders", "o/1"))
    assert "rollback of 1 id is done" in good(remote("lookback", "rollback", "orders", "o/0", *WHY))
    shown = good(remote("lookback", "commit", "--all", "--type", "orders", "--dry-run"))
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
    assert "publisher main is paused (outbox.audit" in good(remote("publisher", "pause", "main", "--reason", "ticket 7"))
    assert "was paused already" in good(local("publisher", "pause", "main", "--reason", "ticket 7"))
    status, _, error = remote("publisher", "split", "main", "--shards", "2", "--reason", "ticket 7")
    assert status == REFUSED and "is paused" in error
    assert "is not paused" in good(remote("publisher", "resume", "main", "--reason", "ticket 7"))
    assert "publisher main has 2 shards now" in good(remote("publisher", "split", "main", "--shards", "2", "--reason", "ticket 7"))
    assert database.execute("SELECT shards FROM outbox.publisher") == [(2,)]
    assert remote("publisher", "split", "main")[0] == REFUSED
    assert [row[0] for row in database.execute("SELECT verb FROM outbox.audit WHERE caller = 'alice' ORDER BY id")
            if row[0] in ("pause", "resume")] == ["pause", "resume"]


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
    fails(USAGE, "migrate up has no option '--server'", "migrate", "up")
    fails(REFUSED, "nothing is stored", "lookback", "show", "orders", "nobody")
    for words in (["--undecided"], ["--postgres", "main"]):
        fails(REFUSED, "does not go with --server", "lookback", "list", *words)
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
