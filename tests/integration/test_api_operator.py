"""What operators see and do over the HTTP interface: parked rows, publishers, the audit.

Rows are parked by a relay that runs, because their topic refuses large records.
"""

import contextlib
import hashlib
import hmac
import json
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlencode

import pytest

from support.api import CALLERS, OPERATE, READ, SEND, caller, shared_api, start_api
from support.large_rows import LIMIT, ONCE, row_of
from support.process import wait_for
from support.proxy import Proxy
from support.relay import run_command

RETRY = "token-of-one-who-may-retry"
LIMITED = "token-of-one-with-limits"


@pytest.fixture
def make_api(make_relay, kafka, topic, tmp_path):
    """make_api(sections, **settings): an api with the token of a reader; its relay publishes to a narrow topic."""
    kafka.alter_topic(topic, max_message_bytes=LIMIT)

    def make(sections="", once=ONCE, **settings):
        return start_api(make_relay, tmp_path, READ, CALLERS + sections, **{**once, **settings})[1]

    return make


@pytest.fixture
def api(make_api):
    return make_api()


@pytest.fixture
def write(database, topic, chance):
    """write(*keys): a row of each, in order, in one transaction; "k!" is key k with too large a row. Their ids."""
    def in_one_transaction(*names, to=topic):
        ids = []
        connection = database.connect(autocommit=False)
        with connection, connection.cursor() as cursor:
            for name in names:
                cursor.execute("INSERT INTO outbox.message (topic, key, payload_bytes) VALUES (%s, %s, %s)"
                               " RETURNING id", (to, *row_of(name, chance)))
                ids.append(cursor.fetchone()[0])
        connection.close()
        return ids

    return in_one_transaction


@pytest.fixture
def parked(api, database, write):
    """Ids of ten parked rows: seven dead ones, and three behind the first."""
    ids = write("k0!", "k0", "k0", "k0", "k1!", "k2!", "k3!", "k4!", "!", "k6!")
    wait_for(lambda: states_of(database) == {"dead": 7, "behind": 3}, what=lambda: states_of(database))
    return ids


def states_of(database):
    return dict(database.execute("SELECT state, count(*)::int FROM outbox.parked GROUP BY state"))


def ids_of(answer):
    assert answer.status == 200, answer.text
    return [int(row["id"]) for row in answer.json["rows"]]


def get(api, path, **arguments):
    return api.request("GET", path + ("?" + urlencode(arguments) if arguments else ""))


# --- parked rows ----------------------------------------------------------------------------------

def test_parked_rows_come_in_pages_of_their_ids(api, parked, topic):
    pages, after = [], 0
    while after is not None:
        answer = get(api, "/v1/parked", limit=3, after=after)
        pages.append(ids_of(answer))
        after = answer.json["next"]
    assert [len(page) for page in pages] == [3, 3, 3, 1]
    assert sum(pages, []) == parked

    whole = get(api, "/v1/parked", totals="yes").json
    assert (whole["publisher"], whole["source"], whole["next"]) == ("main", "database", None)
    assert whole["totals"] == {"waiting": "0", "dead": "7", "stalled": "0", "paused": "0", "free": "0", "behind": "3"}
    assert whole["exact"]
    first = whole["rows"][0]
    assert first["parked_at"].endswith("Z") and "payload" not in first
    assert (first["topic"], first["key"], first["state"], first["attempts"]) == (topic, "k0", "dead", 1)
    assert "too large" in first["error"].lower()
    assert "totals" not in get(api, "/v1/parked", totals="no").json


def test_each_filter_chooses_as_on_the_command_line(api, parked, topic):
    year = time.strftime("%Y-01-01", time.gmtime())
    for arguments, wanted in [
            ({"topic": topic}, parked), ({"topic": "others"}, []), ({"key": "k0"}, parked[:4]),
            ({"key": r"\x6b30"}, parked[:4]), ({"error": "too large"}, parked[:1] + parked[4:]), ({"error": "%"}, []),
            ({"state": "behind"}, parked[1:4]), ({"state": "waiting"}, []), ({"from": year}, parked),
            ({"to": "2026-01-01T00:00:00Z"}, []), ({"from": "2999-01-01"}, []), ({"from_id": parked[2], "to_id": parked[5]}, parked[2:6]),
            ({"from_id": parked[9]}, parked[9:]), ({"from_id": parked[5], "to_id": parked[2]}, []), ({"publisher": "main"}, parked),
            ({"state": "dead", "key": "k2", "topic": topic}, parked[5:6])]:
        assert ids_of(get(api, "/v1/parked", **arguments)) == wanted, arguments


@pytest.mark.parametrize("query, text", [
    ("limit=0", "limit=0 is no whole number from 1 to 1000"), ("limit=1001", "1 to 1000"), ("limit=x", "limit=x"),
    ("limit=", "limit has no value"), ("limit", "limit has no value"), ("limit=1&limit=1", "limit is given twice"),
    ("after=-1", "after=-1"), ("after=9223372036854775808", "after=9"), ("totals=true", "neither yes nor no"),
    ("topics=x", "topics is no argument of this path: it takes topic, key, error"),
    ("topic=a%20b", "no topic's name"), ("topic=%ff", "topic is not UTF-8"), ("key=%5Cxf", "not hexadecimal"),
    ("state=lost", "write waiting, dead, stalled, paused, free or behind"), ("from_id=0", "from_id: '0' is no id"), ("to_id=a", "to_id: 'a' is no id"),
    ("from=yesterday", "from: "), ("to=2026-13-01", "to: "), ("key=", "key has no value")])
def test_a_wrong_argument_is_named_with_its_cure(shared, query, text):
    answer = shared.request("GET", f"/v1/parked?{query}")
    assert (answer.status, answer.code) == (400, "bad_value") and text in answer.json["detail"], answer.text


@pytest.fixture(scope="module")
def shared(postgres, kafka, tmp_path_factory):
    """For tests that change nothing."""
    with shared_api(postgres, kafka, tmp_path_factory.mktemp("api"), "operator_api", READ,
                    caller("bob", RETRY, "operate")) as (_, api):
        yield api


def test_an_unknown_publisher_is_not_found(shared):
    answer = get(shared, "/v1/parked", publisher="orders")
    assert (answer.status, answer.code) == (404, "unknown_publisher") and "orders" in answer.json["detail"]


def test_of_several_publishers_one_is_named(make_api, database):
    assert run_command(["publisher", "create", "orders"], {"DATABASE_URL": database.dsn})[0] == 0
    api = make_api('[publisher "main"]\n[publisher "orders"]\n')
    answer = get(api, "/v1/parked")
    assert (answer.status, answer.code) == (409, "ambiguous") and "2 publishers" in answer.json["detail"]
    assert get(api, "/v1/parked", publisher="orders").json["publisher"] == "orders"


@pytest.mark.parametrize("path", ["/v1/parked", "/v1/audit", "/v1/publishers", "/v1/publishers/main"])
def test_only_readers_may_look(shared, path):
    for token, status in [(READ, 200), (OPERATE, 200), (RETRY, 403), (SEND, 403), (None, 401)]:
        assert shared.as_(token).request("GET", path).status == status
    assert shared.request("PUT", path, {}).status == 405


# --- a database that is away ----------------------------------------------------------------------

def test_a_database_that_is_away_is_said_and_is_there_again_afterwards(make_api, database):
    with Proxy(database.postgres.port) as network:
        api = make_api(database_url=database.dsn.replace(f":{database.postgres.port}/", f":{network.port}/"))
        assert get(api, "/v1/parked").status == 200
        # kept sessions that broke are no matter
        database.execute("select pg_terminate_backend(pid) from pg_stat_activity "
                         "where application_name = 'outbox-relay api'")
        for _ in range(8):
            assert get(api, "/v1/parked").status == 200
        network.refuse()
        answer = get(api, "/v1/parked")
        assert (answer.status, answer.code) == (503, "no_database") and answer.headers["Retry-After"] == "1"
        network.heal()
        wait_for(lambda: get(api, "/v1/parked").status == 200)


def test_a_question_has_a_limit_and_too_many_that_wait_are_refused(api, database):
    with contextlib.closing(database.connect(autocommit=False)) as connection, ThreadPoolExecutor(90) as pool:
        connection.cursor().execute("lock table outbox.parked")
        begun = time.monotonic()
        answers = list(pool.map(lambda _: get(api, "/v1/parked"), range(90)))
        took = time.monotonic() - begun
        connection.rollback()
    assert {(answer.status, answer.code) for answer in answers} == {(503, "busy"), (503, "no_database")}
    refused = sum(answer.code == "busy" and "64 calls wait" in answer.json["detail"] for answer in answers)
    assert 22 <= refused <= 26  # a thread may not have begun its call when the last one came
    assert 19 < took < 26
    assert get(api, "/v1/parked").status == 200


def test_a_relay_that_ends_answers_calls_that_rest(api, database):
    with contextlib.closing(database.connect(autocommit=False)) as connection, ThreadPoolExecutor(8) as pool:
        connection.cursor().execute("lock table outbox.parked")
        calls = [pool.submit(get, api, "/v1/parked") for _ in range(8)]
        wait_for(lambda: database.execute("select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
                                          " and application_name = 'outbox-relay api'") == [(4,)])
        api.relay.stop()
        assert {call.result().code for call in calls} <= {"no_database", "ending"}
        connection.rollback()


# --- preview, retry and skip -----------------------------------------------------------------------

def post(api, path, **body):
    return api.as_(OPERATE).request("POST", f"/v1/parked/{path}", body)


def preview(api, verb="retry", **body):
    answer = post(api, "preview", verb=verb, **body)
    assert answer.status == 200, answer.text
    return answer.json


def audited(database):
    return database.execute("SELECT verb, who, caller, reason, target -> 'filter' FROM outbox.audit ORDER BY id")


def test_a_preview_counts_and_changes_nothing(api, parked, database, topic):
    found = preview(api, filter={"topic": topic})
    assert (found["publisher"], found["verb"], found["source"]) == ("main", "retry", "database")
    assert (found["count"], found["exact"], found["matching"]) == ("7", True, "10")
    assert found["left_out"] == {"behind": "3", "free": "0", "paused": "0"} and found["expires_at"].endswith("Z")
    assert [int(row["id"]) for row in found["sample"]] == parked[:1] + parked[4:]
    assert "payload" not in found["sample"][0]

    found = preview(api, "skip", filter={})
    assert (found["count"], found["left_out"], len(found["sample"])) == ("10", {"behind": "0", "free": "0", "paused": "0"}, 10)
    assert (preview(api, ids=[parked[0], str(parked[4])])["count"]) == "2"
    found = preview(api, filter={"topic": "others"})
    assert (found["count"], found["matching"], found["sample"]) == ("0", "0", [])
    found = preview(api, filter={"state": "behind"})
    assert (found["count"], found["matching"], found["left_out"]["behind"]) == ("0", "3", "3")
    assert audited(database) == []


def test_all_that_a_preview_showed_is_retried_by_another_process(api, make_api, parked, database, kafka, topic):
    token = preview(api, filter={"topic": topic, "state": "dead"})["token"]
    kafka.alter_topic(topic, max_message_bytes=1_048_588)
    other = make_api()
    answer = post(other, "retry", filter={"state": "dead", "topic": topic}, token=token, reason="ticket 7")
    assert answer.status == 202, answer.text
    assert answer.json == {"publisher": "main", "postgres": "main", "verb": "retry", "count": "7", "exact": True, "audit": "1"}
    (verb, who, caller, reason, chosen), = audited(database)
    assert (verb, who, caller, reason) == ("retry", "postgres", "alice", "ticket 7")
    assert chosen.pop("to").endswith("Z") and chosen == {"state": "dead", "topic": topic}
    wait_for(lambda: states_of(database) == {}, what=lambda: states_of(database))


def test_single_ids_need_no_token(api, parked, database):
    answer = post(api, "skip", ids=[parked[4], str(parked[1])], reason="ticket 8")
    assert (answer.status, answer.json["count"]) == (202, "2")
    wait_for(lambda: states_of(database) == {"dead": 6, "behind": 2})
    assert audited(database)[0][:4] == ("skip", "postgres", "alice", "ticket 8")
    text = run_command(["parked", "show", str(parked[0])], {"DATABASE_URL": database.dsn})[1]
    assert "request" not in text
    for verb, number, text in [("retry", parked[2], f"waits behind id {parked[0]} (dead) of the same key"),
                               ("skip", parked[4], f"id {parked[4]} is not parked in publisher main")]:
        answer = post(api, verb, ids=[number], reason="ticket 8")
        assert (answer.status, answer.code) == (409, "not_applicable") and text in answer.json["detail"]
    assert len(audited(database)) == 1


def test_a_selection_that_grew_is_refused_and_one_that_shrank_is_not(api, parked, database, write):
    token = preview(api, filter={"state": "dead"})["token"]
    write("k9!")
    wait_for(lambda: states_of(database) == {"dead": 8, "behind": 3})
    answer = post(api, "skip", filter={"state": "dead"}, token=token, reason="ticket 9")
    assert (answer.status, answer.code) == (409, "bad_token")  # it is for retry
    answer = post(api, "retry", filter={"state": "dead"}, token=token, reason="ticket 9")
    assert (answer.status, answer.code) == (409, "changed")
    assert "8 rows match now, and the preview showed 7" in answer.json["detail"] and audited(database) == []
    assert post(api, "skip", ids=parked[8:], reason="ticket 9").status == 202
    wait_for(lambda: states_of(database) == {"dead": 6, "behind": 3})
    answer = post(api, "retry", filter={"state": "dead"}, token=token, reason="ticket 9")
    assert (answer.status, answer.json["count"]) == (202, "6")


def test_rows_that_came_after_the_preview_are_left_alone(api, parked, database, write):
    token = preview(api, "skip", filter={"state": "dead"})["token"]
    assert post(api, "skip", ids=parked[8:], reason="ticket 1").status == 202
    wait_for(lambda: states_of(database) == {"dead": 5, "behind": 3})
    later = write("k8!", "k9!")
    wait_for(lambda: states_of(database) == {"dead": 7, "behind": 3})
    answer = post(api, "skip", filter={"state": "dead"}, token=token, reason="ticket 2")
    assert (answer.status, answer.json["count"]) == (202, "7")
    wait_for(lambda: database.execute("SELECT 1 FROM outbox.parked_request WHERE ended_at IS NULL") == [])
    left = [number for number, in database.execute("SELECT id FROM outbox.parked WHERE key >= 'k8' ORDER BY id")]
    assert left == later


def signed(verb, selection, count=7, until=None, tokens=(READ, OPERATE, SEND), publisher="main"):
    """A token as the documentation of relay/admin/preview_token.h describes it."""
    numbers = f"{until or int(time.time()) + 60}.{int(time.time() * 1e6)}.{count}."  # and no snapshot
    key = hashlib.sha256(("outbox-relay preview\n" + "".join(f"{token}\n" for token in sorted(tokens))).encode()).digest()
    chosen = json.dumps(selection, separators=(",", ":"), sort_keys=True)
    return numbers + "." + hmac.new(key, "\n".join([verb, publisher, numbers, chosen]).encode(), "sha256").hexdigest()


def test_a_token_that_expired_or_was_forged_is_refused(api, parked, database):
    good, chosen = signed("retry", {"state": "dead"}), {"state": "dead"}
    for token, code in [(signed("retry", chosen, until=int(time.time()) - 1), "token_expired"),
                        (signed("retry", chosen, tokens=(READ, OPERATE)), "bad_token"),
                        (signed("retry", chosen, publisher="other"), "bad_token"),
                        (signed("retry", {}), "bad_token"), (good[:-1], "bad_token"), ("", "bad_token"),
                        (good.replace(".7..", ".8.."), "bad_token"), ("x" * 1000, "bad_token")]:
        answer = post(api, "retry", filter=chosen, token=token, reason="ticket 7")
        assert (answer.status, answer.code) == (409, code), token
        assert "preview" in answer.json["detail"]
    assert audited(database) == []
    assert post(api, "retry", filter=chosen, token=good, reason="ticket 7").status == 202


@pytest.mark.parametrize("verb, body, text", [
    ("preview", {}, "name one of ids and filter"), ("preview", {"ids": [1], "filter": {}}, "name one of"),
    ("preview", {"filter": {}}, "verb is neither retry nor skip"),
    ("preview", {"filter": {}, "verb": "drop"}, "verb is neither"), ("retry", {"filter": {}}, "reason has 1 to 500 characters"),
    ("retry", {"filter": {}, "reason": ""}, "reason has 1"), ("retry", {"filter": {}, "reason": "x" * 501}, "reason has 1"),
    ("retry", {"filter": {}, "reason": "x"}, "a filter needs the token of a preview"),
    ("skip", {"ids": [], "reason": "x"}, "ids is no array of 1 to 1000"), ("skip", {"ids": [1] * 1001, "reason": "x"}, "ids is"),
    ("skip", {"ids": "1", "reason": "x"}, "ids is no array"), ("skip", {"ids": [1.5], "reason": "x"}, "no whole number"),
    ("skip", {"ids": ["x"], "reason": "x"}, "'x' is no id"), ("skip", {"ids": [0], "reason": "x"}, "'0' is no id"),
    ("skip", {"ids": ["topic=x"], "reason": "x"}, "no whole number"), ("skip", {"filter": [], "reason": "x"}, "filter is no"),
    ("skip", {"filter": {"state": 1.5}, "reason": "x"}, "filter: state is no text"),
    ("skip", {"filter": {"topics": "x"}, "reason": "x"}, "'topics' is nothing to choose parked messages by"),
    ("skip", {"filter": {"error=x": "y"}, "reason": "x"}, "'error=x' is nothing to choose"),
    ("skip", {"filter": {"state": "lost"}, "reason": "x"}, "write waiting, dead"),
    ("skip", {"filter": {"from": "tomorrow"}, "reason": "x"}, "from: "),
    ("skip", {"filter": {"error": 0}, "reason": "x"}, "filter: error is no text"),
    ("skip", {"filter": {"to_id": 1.5}, "reason": "x"}, "filter: to_id is no whole number"),
    ("skip", {"filter": {"to_id": "x"}, "reason": "x"}, "to_id: 'x' is no id")])
def test_a_wrong_body_is_refused_with_its_cure(shared, verb, body, text):
    answer = shared.as_(OPERATE).request("POST", f"/v1/parked/{verb}", body)
    assert (answer.status, answer.code) == (400, "bad_value") and text in answer.json["detail"], answer.text


@pytest.mark.parametrize("verb, body, code, text", [
    ("preview", {"filter": {}, "verb": 1}, "wrong_type", "verb is no string"),
    ("preview", {"filter": {}, "verb": "skip", "token": "x"}, "unknown_field", "token is no member"),
    ("retry", {"filter": {}, "verb": "retry"}, "unknown_field", "verb is no member"),
    ("skip", [], "bad_json", "no JSON object"), ("skip", b"{", "bad_json", "")])
def test_a_body_of_the_wrong_form_is_refused(shared, verb, body, code, text):
    answer = shared.as_(OPERATE).request("POST", f"/v1/parked/{verb}", body)
    assert (answer.status, answer.code) == (400, code) and text in answer.json["detail"], answer.text


def test_only_operators_may_change_parked_rows(shared):
    for verb in ("preview", "retry", "skip"):
        for token, status in [(READ, 403), (SEND, 403), (None, 401), (OPERATE, 400),
                              (RETRY, 403 if verb == "skip" else 400)]:
            assert shared.as_(token).request("POST", f"/v1/parked/{verb}", {}).status == status
        assert shared.as_(OPERATE).request("GET", f"/v1/parked/{verb}").status == 405
        assert shared.as_(OPERATE).request("POST", f"/v1/parked/{verb}?x=1", {}).status == 400
    answer = shared.as_(OPERATE).request("POST", "/v1/parked/skip", {"publisher": "orders", "ids": [1], "reason": "x"})
    assert (answer.status, answer.code) == (404, "unknown_publisher")


# --- publishers -----------------------------------------------------------------------------------

def test_publishers_show_their_owner_and_their_parked_rows(api, parked):
    wait_for(lambda: get(api, "/v1/publishers/main").json["shards"][0]["unpublished"] == "0")
    answer = get(api, "/v1/publishers").json
    assert answer["postgres"] == [{"name": "main", "error": None, "unknown": []}]
    publisher, = answer["publishers"]
    assert (publisher["name"], publisher["postgres"], publisher["source"], publisher["configured"]) == (
        "main", "main", "database", True)
    shard, = publisher["shards"]
    assert shard["owner"] and 0 < int(shard["lease_left_ms"]) and shard["split_to"] is None
    assert (shard["unpublished"], shard["unpublished_exact"], shard["oldest_age_ms"]) == ("0", True, "0")
    assert {name: publisher["parked"][name] for name in ("waiting", "dead", "behind", "exact")} == {
        "waiting": "0", "dead": "7", "behind": "3", "exact": True}
    one = get(api, "/v1/publishers/main").json
    assert one["unknown"] == [] and one["parked"]["dead"] == "7" and len(one["shards"]) == 1


def test_the_owner_of_a_shard_has_a_url(make_api, make_relay, database):
    """The one that it advertises; after a change of the owner that of the next one, which advertises none here."""
    url = "http://relay-1.example:9188"
    database.execute("INSERT INTO outbox.process (name, url, seen_at) VALUES ('gone', %s, now() - interval '2 days'),"
                     " ('away for an hour', %s, now() - interval '1 hour')", (url, url))
    api = make_api(api_advertise=url)
    shards = lambda: get(api, "/v1/publishers/main").json["shards"]
    wait_for(lambda: shards()[0]["owner"] and shards()[0]["url"] == url, what=shards)
    owner = shards()[0]["owner"]
    assert get(api, "/v1/overview").json["publishers"][0]["owners"] == [{"name": owner, "url": url}]
    assert database.execute("SELECT name, url FROM outbox.process ORDER BY name") == sorted(
        [("away for an hour", url), (owner, url)])
    settings = api.relay.settings
    status, shown, error = run_command(["status", "--json"], settings)
    assert status == 0 and json.loads(shown)["postgres"][0]["shards"][0]["url"] == url, error
    assert f"owner {owner} at {url}, lease" in run_command(["status"], settings)[1]
    assert json.loads(run_command(["publisher", "list", "--json"], settings)[1])[0]["url"] == url

    api.relay.stop()
    make_relay().wait_event("shard_taken", publisher="main", state="owner")
    listed, = json.loads(run_command(["publisher", "list", "--json"], settings)[1])
    assert listed["owner"] != owner and listed["url"] is None


def test_a_role_that_may_not_advertise_publishes_all_the_same(make_api, login, database, write):
    database.execute("REVOKE EXECUTE ON FUNCTION outbox.process_note(text, text) FROM outbox_relay")
    api = make_api(api_advertise="http://relay-1.example:9188", database_url=login("outbox_relay")["DATABASE_URL"])
    assert "permission denied" in api.relay.wait_event("advertise_failed")[0]["error"]
    write("a")
    shard = lambda: get(api, "/v1/publishers/main").json["shards"][0]
    wait_for(lambda: shard()["unpublished"] == "0", what=shard)
    assert shard()["owner"] and shard()["url"] is None


def test_lag_is_counted_while_nobody_publishes(make_api, database, topic):
    """The interface runs for another publisher; that of the test has no owner."""
    assert run_command(["publisher", "create", "orders"], {"DATABASE_URL": database.dsn})[0] == 0
    api = make_api('[publisher "orders"]\n', once={})
    assert run_command(["publisher", "create", "idle", "--shards", "2"], {"DATABASE_URL": database.dsn})[0] == 0
    database.execute("INSERT INTO outbox.message (topic, key, payload, created_at) SELECT %s, n::text, 'x',"
                     " clock_timestamp() - interval '1 minute' FROM generate_series(1, 100) n", (topic,))
    found = {publisher["name"]: publisher for publisher in get(api, "/v1/publishers").json["publishers"]}
    assert set(found) == {"main", "orders", "idle"} and found["orders"]["configured"]
    assert not found["main"]["configured"] and not found["idle"]["configured"]
    main, = found["main"]["shards"]
    assert (main["owner"], main["lease_left_ms"]) == (None, "0")
    assert (main["unpublished"], main["unpublished_exact"]) == ("100", True) and int(main["oldest_age_ms"]) >= 60000
    wait_for(lambda: get(api, "/v1/publishers/orders").json["shards"][0]["unpublished"] == "0")
    answer = get(api, "/v1/publishers/main")  # of the database, but not of this configuration
    assert (answer.status, answer.code) == (404, "unknown_publisher")


def test_a_publisher_that_was_dropped_says_how_it_is_made(make_api, database):
    assert run_command(["publisher", "create", "orders"], {"DATABASE_URL": database.dsn})[0] == 0
    api = make_api('[publisher "main"]\n[publisher "orders"]\n')
    database.execute("SELECT outbox.publisher_drop('orders')")
    answer = get(api, "/v1/publishers/orders")
    assert (answer.status, answer.code) == (404, "unknown_publisher")
    assert "outbox-relay publisher create orders" in answer.json["detail"]


def test_a_locked_table_makes_its_figures_unknown(api, database):
    with contextlib.closing(database.connect(autocommit=False)) as connection:
        connection.cursor().execute("lock table outbox.message")
        answer = get(api, "/v1/publishers/main").json
        assert answer["unknown"] == ["outbox.message is locked"] and answer["parked"]["dead"] == "0"
        assert answer["shards"][0]["unpublished"] is None and "locked" in answer["shards"][0]["unknown"]
    assert get(api, "/v1/publishers/main").json["unknown"] == []


@pytest.mark.parametrize("path", ["/v1/publishers?name=main", "/v1/publishers/main?x=1"])
def test_publishers_take_no_arguments(shared, path):
    answer = shared.request("GET", path)
    assert (answer.status, answer.code) == (400, "bad_value") and "it takes none" in answer.json["detail"]


@pytest.mark.parametrize("path", ["/v1/publishers/", "/v1/publishers/orders", "/v1/publishers/main/x"])
def test_other_publishers_are_not_found(shared, path):
    assert shared.request("GET", path).status == 404


def test_a_caller_with_limits_sees_its_own_publishers_only(make_api, database):
    assert run_command(["publisher", "create", "orders"], {"DATABASE_URL": database.dsn})[0] == 0
    api = make_api('[publisher "main"]\n[publisher "orders"]\n' + caller(
        "carol", LIMITED, "read, operate, decide", publishers="orders")).as_(LIMITED)
    assert [publisher["name"] for publisher in get(api, "/v1/publishers").json["publishers"]] == ["orders"]
    assert get(api, "/v1/publishers/orders").status == get(api, "/v1/parked", publisher="orders").status == 200
    body = {"publisher": "main", "ids": [1], "reason": "x"}
    for answer in (get(api, "/v1/publishers/main"), get(api, "/v1/parked", publisher="main"), get(api, "/v1/audit"),
                   *(api.request("POST", f"/v1/parked/{verb}", body) for verb in ("preview", "retry", "skip"))):
        assert (answer.status, answer.code) == (403, "out_of_scope"), answer.text


# --- the audit ------------------------------------------------------------------------------------

def test_the_audit_comes_in_pages_the_newest_first(api, parked, database):
    for verb, number in [("skip", 9), ("skip", 8), ("retry", 7), ("skip", 6)]:
        assert run_command(["parked", verb, str(parked[number]), "--yes", "--reason", f"ticket {number}"],
                           {"DATABASE_URL": database.dsn})[0] == 0
    database.execute("SELECT outbox.parked_request('main', 'retry', '{\"state\": \"dead\"}', 'ticket 1', 0, 'alice')")

    first = get(api, "/v1/audit", limit=3).json
    assert [row["reason"] for row in first["rows"]] == ["ticket 1", "ticket 6", "ticket 7"]
    assert (first["postgres"], first["source"]) == ("main", "database") and first["rows"][0]["at"].endswith("Z")
    assert [(row["verb"], row["publisher"], row["who"], row["caller"]) for row in first["rows"][:2]] == [
        ("retry", "main", "postgres", "alice"), ("skip", "main", "postgres", None)]
    assert first["rows"][1]["target"]["filter"]["ids"] == [str(parked[6])]
    rest = get(api, "/v1/audit", limit=3, before=first["next"]).json
    assert [row["reason"] for row in rest["rows"]] == ["ticket 8", "ticket 9"] and rest["next"] is None

    assert ids_of(get(api, "/v1/audit", verb="retry")) == [5, 3]
    assert ids_of(get(api, "/v1/audit", who="alice")) == [5]
    assert ids_of(get(api, "/v1/audit", who="postgres", verb="skip")) == [4, 2, 1]
    assert ids_of(get(api, "/v1/audit", who="mallory")) == []


@pytest.mark.parametrize("query, text", [
    ("limit=0", "limit=0"), ("before=0", "before=0"), ("after=1", "it takes postgres, limit, before, verb, who"),
    ("verb=%c3", "not UTF-8"), ("who=a&who=b", "given twice")])
def test_a_wrong_argument_of_the_audit_is_named(shared, query, text):
    answer = shared.request("GET", f"/v1/audit?{query}")
    assert (answer.status, answer.code) == (400, "bad_value") and text in answer.json["detail"], answer.text


def test_an_unknown_database_is_not_found(shared):
    answer = get(shared, "/v1/audit", postgres="orders")
    assert (answer.status, answer.code) == (404, "unknown_section")
