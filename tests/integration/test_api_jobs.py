"""Jobs over the HTTP interface: retries and skips of many parked rows, and replays, with progress, cancel and resume.

Rows are parked as a relay does it, by SQL; a relay that runs works on them.
"""

from urllib.parse import urlencode

import pytest

from support.api import CALLERS, OPERATE, READ, SEND, caller, start_api, waits
from support.auditor import read_topics
from support.process import wait_for
from support.relay import run_command

RETRY, LIMITED = "token-of-one-who-may-retry", "token-of-one-with-limits"
TOKENS = CALLERS + caller("bob", RETRY, "read, operate")
MANY = 100_000
PARK = """INSERT INTO outbox.parked (publisher, shard, id, created_at, event_id, topic, key, payload, tick, state, error, attempts, next_at)
    SELECT 'main', 0, i, now(), outbox.new_event_id(), %s, convert_to('k' || i, 'UTF8'), convert_to(i::text, 'UTF8'), 0, 'dead',
        'Broker: Message size too large', 3, now() FROM generate_series(%s, %s) i"""


@pytest.fixture
def park(database, topic):
    """park(first, last): dead rows of keys of their own, which Kafka takes now."""
    return lambda first, last: database.execute(PARK, (topic, first, last))


@pytest.fixture
def api(make_relay, tmp_path):
    relay, api = start_api(make_relay, tmp_path, OPERATE, TOKENS)
    api.relay = relay
    return api


def get(api, path="/v1/jobs", **arguments):
    return api.request("GET", path + ("?" + urlencode(arguments) if arguments else ""))


def preview(api, verb="retry", **choice):
    answer = api.request("POST", "/v1/parked/preview", {"verb": verb, **(choice or {"filter": {}})})
    assert answer.status == 200, answer.text
    return answer.json


def order(api, shown, verb="retry", reason="ticket 7", **choice):
    answer = api.request("POST", f"/v1/parked/{verb}", {**(choice or {"filter": {}}), "token": shown["token"], "reason": reason})
    assert answer.status == 202, answer.text
    return f"parked-{answer.json['audit']}"


def job(api, name):
    answer = get(api, f"/v1/jobs/{name}")
    assert answer.status == 200, answer.text
    return answer.json


def ended(api, name, state="finished"):
    return wait_for(lambda: (shown := job(api, name))["state"] == state and shown, 120, what=lambda: job(api, name))


# --- many rows ------------------------------------------------------------------------------------

def test_many_rows_are_retried_with_progress_cancel_and_resume(api, park, database, kafka, topic, scale):
    rows = scale(MANY)
    park(1, rows)
    shown = preview(api)
    assert shown["count"] == str(rows) and shown["exact"]
    name = order(api, shown)
    seen = []

    def half():
        seen.append(job(api, name))
        return int(seen[-1]["done"]) > rows // 20 and seen[-1]

    now = wait_for(half, 60, what=lambda: job(api, name))
    assert now["state"] == "running" and int(now["done"]) < rows, now
    assert now["total"] == str(rows) and now["exact"] and now["per_second"] > 0 and now["seconds_left"] >= 0
    assert (now["kind"], now["publisher"], now["caller"], now["reason"]) == ("retry", "main", "alice", "ticket 7")
    assert [row["id"] for row in get(api, open="yes").json["rows"]] == [name]

    answer = api.request("POST", f"/v1/jobs/{name}/cancel", {"reason": "wrong topic"})
    assert (answer.status, answer.json["verb"], answer.json["id"]) == (200, "cancel", name)
    stopped = job(api, name)
    assert stopped["state"] == "cancelled" and stopped["ended_at"] and int(stopped["done"]) < rows
    # what was retried is published, and nothing more
    wait_for(lambda: (now := job(api, name))["published"] == now["done"], 60, what=lambda: job(api, name))
    assert job(api, name)["done"] == stopped["done"]
    left = rows - int(stopped["done"])
    assert database.execute("SELECT state, count(*)::int FROM outbox.parked GROUP BY 1") == [("dead", left)]
    assert get(api, open="yes").json["rows"] == [] and get(api, open="no").json["rows"][0]["id"] == name

    assert api.request("POST", f"/v1/jobs/{name}/resume", {"reason": "the topic was right"}).status == 200
    result = ended(api, name)
    assert (result["done"], result["changed"], result["refused"]) == (str(rows), "0", "0")
    wait_for(lambda: job(api, name)["published"] == str(rows), 60, what=lambda: job(api, name))
    assert database.execute("SELECT count(*)::int FROM outbox.parked") == [(0,)]
    records = read_topics(kafka.bootstrap, [topic])
    assert {int(record.payload) for record in records} == set(range(1, rows + 1))
    done = [int(shown["done"]) for shown in seen]
    assert done == sorted(done)
    verbs = [(verb, by, reason) for verb, by, reason in database.execute("SELECT verb, caller, reason FROM outbox.audit ORDER BY id")]
    assert verbs == [("retry", "alice", "ticket 7"), ("cancel", "alice", "wrong topic"), ("resume", "alice", "the topic was right")]


def test_rows_that_changed_after_the_preview_are_left_alone_and_counted(api, park, database):
    park(1, 50)
    shown = preview(api)
    # as the owner does it, and another operator: others attempts, another error, gone
    database.execute("UPDATE outbox.parked SET attempts = 4, changed = pg_current_xact_id() WHERE id <= 3")
    database.execute("UPDATE outbox.parked SET error = 'other', changed = pg_current_xact_id() WHERE id = 4")
    database.execute("DELETE FROM outbox.parked WHERE id IN (5, 6)")
    result = ended(api, order(api, shown))
    assert (result["total"], result["done"], result["changed"]) == ("50", "44", "6")
    wait_for(lambda: job(api, result["id"])["published"] == "44", what=lambda: job(api, result["id"]))
    assert database.execute("SELECT id::int, state FROM outbox.parked ORDER BY id") == [(number, "dead") for number in (1, 2, 3, 4)]

    # named ids with the token of a preview are guarded in the same way
    park(101, 110)
    ids = [str(number) for number in range(101, 111)]
    shown = preview(api, "skip", ids=ids)
    database.execute("UPDATE outbox.parked SET error = 'other', changed = pg_current_xact_id() WHERE id = 105")
    result = ended(api, order(api, shown, "skip", ids=ids))
    assert (result["kind"], result["done"], result["changed"]) == ("skip", "9", "1")
    assert database.execute("SELECT id::int FROM outbox.parked WHERE id > 100") == [(105,)]


def test_of_two_operators_the_second_leaves_alone_what_the_first_has_changed(api, park, database):
    park(1, 40)
    mine, others = preview(api), preview(api.as_(RETRY))
    first = ended(api, order(api, mine))
    wait_for(lambda: database.execute("SELECT count(*)::int FROM outbox.parked") == [(0,)])
    park(41, 45)  # not seen by the second one: it would be refused if more matched than it saw
    second = ended(api, order(api.as_(RETRY), others, reason="me too"))
    assert (first["done"], first["changed"], first["caller"]) == ("40", "0", "alice")
    assert (second["done"], second["changed"], second["caller"], second["reason"]) == ("0", "40", "bob", "me too")
    assert database.execute("SELECT count(*)::int FROM outbox.parked") == [(5,)]
    assert [row["caller"] for row in get(api, "/v1/audit").json["rows"]] == ["bob", "alice"]


def test_a_cancelled_request_follows_its_rows_through_a_split(database, park, topic, make_relay, tmp_path):
    """Nobody publishes: the owners' steps are called by hand."""
    park(1, 30)
    database.execute("SELECT outbox.parked_request('main', 'retry', '{}', 'ticket 7', 30)")
    database.execute("SELECT outbox.parked_requests('main', 0, 0, 10)")
    assert database.execute("SELECT outcome FROM outbox.parked_request_cancel(1, 'wait', 'alice')") == [("cancelled",)]
    assert database.execute("SELECT outcome FROM outbox.parked_request_cancel(1, 'wait', 'alice')") == [("ended",)]
    database.execute("SELECT outbox.parked_requests('main', 0, 0, 10)")  # nothing is open
    database.execute("SELECT outbox.parked_requests_split('main', 2)")
    database.execute("UPDATE outbox.parked SET shard = id %% 2", ())
    assert database.execute("SELECT shard, is_cancelled, ended_at IS NOT NULL, done::int FROM outbox.parked_request ORDER BY shard") == [
        (0, True, True, 10), (1, True, True, 0)]
    assert database.execute("SELECT outcome FROM outbox.parked_request_resume(1, 'go on', 'alice')") == [("resumed",)]
    assert database.execute("SELECT outcome FROM outbox.parked_request_resume(1, 'go on', 'alice')") == [("running",)]
    for shard in (0, 1):
        for _ in range(3):
            database.execute("SELECT outbox.parked_requests('main', %s, 0, 10)", (shard,))
    assert database.execute("SELECT sum(done)::int, bool_and(ended_at IS NOT NULL) FROM outbox.parked_request") == [(30, True)]
    assert database.execute("SELECT outcome FROM outbox.parked_request_resume(1, 'go on', 'alice')") == [("finished",)]


# --- the list -------------------------------------------------------------------------------------

def test_a_publisher_names_the_database_of_its_jobs(make_relay, tmp_path, database, park):
    park(1, 1)
    _, api = start_api(make_relay, tmp_path, OPERATE, f'[postgres "other"]\ndsn = {database.dsn}\n[postgres "main"]\n'
                       '[publisher "main"]\npostgres = main\n' + TOKENS)
    name = order(api, preview(api))
    assert get(api).code == get(api, f"/v1/jobs/{name}").code == "ambiguous"
    listed = get(api, publisher="main").json
    assert (listed["postgres"], [row["id"] for row in listed["rows"]]) == ("main", [name])
    assert get(api, "/v1/replays", publisher="main").json["rows"] == []
    assert get(api, publisher="main", postgres="other").json["postgres"] == "other"
    ended_there = lambda: get(api, f"/v1/jobs/{name}", postgres="main").json["ended_at"]  # noqa: E731
    wait_for(ended_there, what="the end of the job")
    for body, code in (({}, "ambiguous"), ({"publisher": "nobody"}, "unknown_publisher"), ({"publisher": "main"}, "not_applicable")):
        assert api.request("POST", f"/v1/jobs/{name}/cancel", {**body, "reason": "r"}).code == code, body


def test_commands_follow_a_job_of_one_of_several_databases(make_relay, tmp_path, database, park, topic):
    """The answers to their orders name the database."""
    park(1, 4)
    database.execute("SELECT outbox.publish(%s, 'k', i::text) FROM generate_series(1, 3) i", (topic,))
    _, api = start_api(make_relay, tmp_path, OPERATE, f'[postgres "other"]\ndsn = {database.dsn}\n[postgres "main"]\n'
                       '[publisher "main"]\npostgres = main\n' + TOKENS)

    def run(*words):
        return run_command([*words, "--server", f"http://127.0.0.1:{api.port}"], {"OUTBOX_RELAY_TOKEN": OPERATE})

    for words in (("parked", "retry", "--all", "--wait"), ("replay", "--all", "--publisher", "main")):
        status, output, error = run(*words, "--yes", "--reason", "r")
        assert status == 0, (words, output, error)
    stopped = database.execute("UPDATE outbox.replay SET state = 'stopped', last_id = 0, done = 0 RETURNING id")[0][0]
    status, output, error = run("replay", "--resume", str(stopped), "--publisher", "main")
    assert status == 0 and f"replay-{stopped}: finished" in output, (output, error)


def test_jobs_come_in_pages_the_newest_first(api, park, database):
    for number in range(1, 8):
        park(number, number)
        ended(api, order(api, preview(api, "skip", ids=[str(number)]), "skip", reason=f"ticket {number}", ids=[str(number)]))
    pages, after = [], {}
    while after is not None:
        answer = get(api, limit=3, **after)
        assert answer.status == 200, answer.text
        pages.append([row["reason"] for row in answer.json["rows"]])
        after = answer.json["next"] and {"after": answer.json["next"]}
    assert pages == [["ticket 7", "ticket 6", "ticket 5"], ["ticket 4", "ticket 3", "ticket 2"], ["ticket 1"]]
    for arguments, count in [({"kind": "skip"}, 7), ({"kind": "retry"}, 0), ({"publisher": "main"}, 7), ({"open": "yes"}, 0),
                             ({"open": "no", "kind": "skip"}, 7), ({"postgres": "main"}, 7)]:
        assert len(get(api, **arguments).json["rows"]) == count, arguments
    assert get(api, "/v1/replays").json["rows"] == []


@pytest.mark.parametrize("path, status, code, text", [
    ("/v1/jobs?kind=split", 400, "bad_value", "kind=split is none of retry, skip, replay, redrive and verify"), ("/v1/jobs?open=1", 400, "bad_value", "open=1"),
    ("/v1/jobs?after=7", 400, "bad_value", "after=7 is no place"), ("/v1/jobs?after=1.other-7", 400, "bad_value", "no place"),
    ("/v1/jobs?after=1.parked-0", 400, "bad_value", "no place"), ("/v1/replays?kind=skip", 400, "bad_value", "kind is no argument"),
    ("/v1/jobs?publisher=lost", 404, "unknown_publisher", "lost"), ("/v1/jobs?postgres=lost", 404, "unknown_section", "lost"),
    ("/v1/jobs/7", 404, "not_found", "like parked-7, replay-7, redrive-7 and verify-7"), ("/v1/jobs/parked-7", 404, "not_found", "no job parked-7"),
    ("/v1/jobs/replay-9223372036854775807", 404, "not_found", "GET /v1/jobs"), ("/v1/jobs/parked-9223372036854775808", 404, "not_found", ""),
    ("/v1/jobs/", 404, "not_found", "no such path"), ("/v1/jobs/parked-1?x=1", 400, "bad_value", "it takes postgres")])
def test_a_wrong_request_is_refused_with_its_cure(api, path, status, code, text):
    answer = api.request("GET", path)
    assert (answer.status, answer.code) == (status, code) and text in answer.json["detail"], answer.text


def test_a_wrong_order_is_refused_and_changes_nothing(api, park, database):
    park(1, 3)
    name = order(api, preview(api, "skip"), "skip")
    ended(api, name)
    before = database.execute("SELECT count(*) FROM outbox.audit")
    for body, code, text in [({}, "bad_value", "reason has 1 to 500"), ({"reason": ""}, "bad_value", "reason"),
                             ({"reason": "x" * 501}, "bad_value", "500"), ({"reason": 1}, "wrong_type", "reason"),
                             ({"reason": "x", "why": "y"}, "unknown_field", "why"), ({"reason": "x", "postgres": "lost"}, "unknown_section", "lost"),
                             ({"reason": "x"}, "not_applicable", "has ended (finished)")]:
        for verb in ("cancel", "resume"):
            answer = api.request("POST", f"/v1/jobs/{name}/{verb}", body)
            assert answer.code == code and text in answer.json["detail"], (verb, body, answer.text)
    for path in ("/v1/jobs/parked-99/cancel", "/v1/jobs/replay-99/resume", "/v1/jobs/x/cancel"):
        assert (answer := api.request("POST", path, {"reason": "x"})).code == "not_found", answer.text
    for path in ("/v1/jobs/cancel", "/v1/jobs//cancel", f"/v1/jobs/{name}/pause"):
        assert api.request("POST", path, {"reason": "x"}).status in (404, 405), path
    assert database.execute("SELECT count(*) FROM outbox.audit") == before


def test_who_may_see_and_change_jobs(make_relay, tmp_path, park, database):
    assert run_command(["publisher", "create", "other"], {"DATABASE_URL": database.dsn})[0] == 0
    park(1, 3)
    retry, skip = (f"parked-{database.execute('SELECT outbox.parked_request(%s, %s, %s, %s, 1)', ('main', verb, chosen, 'ticket'))[0][0]}"
                   for verb, chosen in (("retry", '{"ids": [1]}'), ("skip", '{"ids": [2], "from_id": 2, "to_id": 2}')))
    assert database.execute("SELECT outcome FROM outbox.parked_request_cancel(%s, 'x', null)", (skip.removeprefix("parked-"),)) == [("cancelled",)]
    _, api = start_api(make_relay, tmp_path, READ, '[publisher "main"]\n[publisher "other"]\n' + TOKENS
                       + caller("carol", LIMITED, "read, operate, decide", publishers="other"))
    for token, status in [(READ, 200), (OPERATE, 200), (RETRY, 200), (SEND, 403), (None, 401)]:
        for path in ("/v1/jobs", "/v1/replays", f"/v1/jobs/{retry}"):
            assert get(api.as_(token), path).status == status, (token, path)
    # a skip goes on only with the role decide
    answer = api.as_(RETRY).request("POST", f"/v1/jobs/{skip}/resume", {"reason": "x"})
    assert (answer.status, answer.code) == (403, "forbidden")
    assert api.as_(READ).request("POST", f"/v1/jobs/{skip}/resume", {"reason": "x"}).status == 403
    assert api.as_(OPERATE).request("POST", f"/v1/jobs/{skip}/resume", {"reason": "x"}).status == 200
    # another publisher's jobs are not shown
    assert get(api.as_(LIMITED)).json["rows"] == [] and len(get(api).json["rows"]) == 2
    for answer in (get(api.as_(LIMITED), f"/v1/jobs/{skip}"), get(api.as_(LIMITED), publisher="main"),
                   api.as_(LIMITED).request("POST", f"/v1/jobs/{skip}/cancel", {"reason": "x"})):
        assert (answer.status, answer.code) == (403, "out_of_scope"), answer.text


# --- replays --------------------------------------------------------------------------------------

ROWS = "INSERT INTO outbox.message (topic, key, payload) SELECT %s, 'k' || i %% 20, i::text FROM generate_series(1, %s) i"


def replay(api, reason="a consumer lost its table", **what):
    """Starts a replay, and returns its job's id."""
    body = {"filter": {}, **what}
    shown = api.request("POST", "/v1/replays/preview", body)
    assert shown.status == 200, shown.text
    answer = api.request("POST", "/v1/replays", {**body, "token": shown.json["token"], "reason": reason})
    assert answer.status == 202 and answer.json["count"] == shown.json["count"], answer.text
    return answer.json["job"]


def replayed(kafka, topic):
    return [int(record.payload) for record in read_topics(kafka.bootstrap, [topic])
            if any(name == "outbox-replay" for name, _ in record.headers)]


def test_a_relay_carries_a_replay_out(api, database, kafka, topic):
    database.execute(ROWS, (topic, 300))
    wait_for(lambda: api.request("POST", "/v1/replays/preview", {"filter": {"state": "published"}}).json.get("count") == "300", 60)
    name = replay(api, filter={"topic": topic, "state": "published"})
    result = ended(api, name)
    assert (result["kind"], result["done"], result["total"], result["caller"], result["error"]) == ("replay", "300", "300", "alice", None)
    assert result["filter"] == {"topic": topic, "state": "published"} and result["reason"] == "a consumer lost its table"
    assert sorted(replayed(kafka, topic)) == list(range(1, 301))
    assert [row["id"] for row in get(api, "/v1/replays").json["rows"]] == [name]
    assert database.execute("SELECT verb, caller FROM outbox.audit") == [("replay", "alice")]
    for verb in ("cancel", "resume"):
        answer = api.request("POST", f"/v1/jobs/{name}/{verb}", {"reason": "x"})
        assert (answer.status, answer.code) == (409, "not_applicable"), answer.text


def test_a_replay_begins_at_once(api, database, topic):
    """As a verification: test_verify_jobs.py."""
    database.execute(ROWS, (topic, 10))
    for _ in range(4):
        ended(api, replay(api))
    assert min(waits(database, "replay")[1:]) < 1


def test_a_replay_survives_its_process_and_is_cancelled_and_resumed_by_another(api, make_relay, tmp_path_factory, database, kafka, topic):
    database.execute(ROWS, (topic, 3000))
    wait_for(lambda: api.request("POST", "/v1/replays/preview", {"filter": {"state": "published"}}).json.get("count") == "3000", 60)
    name = replay(api, rate=200)
    wait_for(lambda: int(job(api, name)["done"]) >= 200 and job(api, name)["per_second"] > 0, 60, what=lambda: job(api, name))
    _, other = start_api(make_relay, tmp_path_factory.mktemp("other"), OPERATE, TOKENS)
    api.relay.stop()
    assert job(other, name)["state"] in ("waiting", "running")
    before = int(job(other, name)["done"])
    wait_for(lambda: int(job(other, name)["done"]) > before + 100, 60, what=lambda: job(other, name))
    assert job(other, name)["state"] == "running" and job(other, name)["seconds_left"] > 0 and job(other, name)["rate_limit"] == 200

    assert other.request("POST", f"/v1/jobs/{name}/cancel", {"reason": "too fast"}).status == 200
    stopped = job(other, name)
    assert stopped["state"] == "cancelled" and int(stopped["done"]) < 3000 and stopped["owner"] is None
    database.execute("UPDATE outbox.replay SET rate = null")
    assert other.request("POST", f"/v1/jobs/{name}/resume", {"reason": "go on"}).status == 200
    result = ended(other, name)
    assert result["done"] == "3000"
    sent = replayed(kafka, topic)
    assert set(sent) == set(range(1, 3001))


def test_a_replay_that_cannot_begin_is_refused(api, database, topic):
    database.execute(ROWS, (topic, 5))
    for body, status, code, text in [
            ({}, 400, "bad_value", "filter is no object"), ({"filter": {"lost": "1"}}, 400, "bad_value", "nothing to choose rows by"),
            ({"filter": {"ids": 1}}, 400, "bad_value", "ids is no text"), ({"filter": {"ids": "x"}}, 400, "bad_value", "ids"),
            ({"filter": {}, "to": "a b"}, 400, "bad_value", "no topic's name"), ({"filter": {}, "rate": 0}, 400, "bad_value", "rate"),
            ({"filter": {}, "rate": "5"}, 400, "wrong_type", "rate"), ({"filter": {}, "rate": 1.5}, 400, "wrong_type", "rate"),
            ({"filter": {"ids": "2..1"}}, 409, "conflicting_arguments", "reversed"), ({"filter": {"created": "2999-01-01.."}}, 409, "conflicting_arguments", "future"),
            ({"filter": {"created": "2026-01-02..2026-01-01"}}, 409, "conflicting_arguments", "reversed"), ({"filter": {}, "reason": ""}, 400, "bad_value", "reason"),
            ({"filter": {"created": "0000-12-31.."}}, 400, "bad_value", "no moment"), ({"filter": {"created": "0001-01-01T00:00+00:01.."}}, 400, "bad_value", "no moment"),
            ({"filter": {}, "x": 1}, 400, "unknown_field", "x"),
            ({"filter": {"topic": "none"}}, 409, "not_applicable", "no row"),
            ({"filter": {}, "to": "no-such-topic"}, 409, "not_applicable", "does not exist in Kafka: create it, or choose another target (`to`)"),
            ({"filter": {}, "publisher": "lost"}, 404, "unknown_publisher", "lost")]:
        answer = api.request("POST", "/v1/replays/preview", body)
        assert (answer.status, answer.code) == (status, code) and text in answer.json["detail"], (body, answer.text)
    # the year 1 is not 2001, and 5.0 is the number 5
    answer = api.request("POST", "/v1/replays/preview", {"filter": {"created": "0001-01-01.."}, "rate": 5.0})
    assert (answer.status, answer.json["count"]) == (200, "5"), answer.text
    answer = api.request("POST", "/v1/replays/preview", {"filter": {"created": "..0001-01-02"}})
    assert (answer.status, answer.code) == (409, "not_applicable"), answer.text
    token = api.request("POST", "/v1/replays/preview", {"filter": {}}).json["token"]
    for body, code in [({"filter": {}, "reason": "x"}, "bad_value"), ({"filter": {}, "token": token}, "bad_value"),
                       ({"filter": {"ids": "1.."}, "token": token, "reason": "x"}, "bad_token"),
                       ({"filter": {}, "rate": 5, "token": token, "reason": "x"}, "bad_token")]:
        assert (answer := api.request("POST", "/v1/replays", body)).code == code, (body, answer.text)
    database.execute(ROWS, (topic, 1))
    answer = api.request("POST", "/v1/replays", {"filter": {}, "token": token, "reason": "x"})
    assert (answer.status, answer.code) == (409, "changed")
    assert database.execute("SELECT count(*)::int FROM outbox.replay") == [(0,)]
    assert api.request("PUT", "/v1/replays").headers["Allow"] == "GET, HEAD, POST"
    assert api.as_(READ).request("POST", "/v1/replays", {"filter": {}, "token": token, "reason": "x"}).status == 403
