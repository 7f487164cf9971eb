"""Verbs of operators over the HTTP interface on all that matches: a preview shows it, and its token is the order."""

from datetime import datetime, timezone

import pytest

from support.api import CONFIG, CALLERS, OPERATE, READ, caller, start_api

RETRY = "token-of-one-who-may-retry"
DECIDE = "token-of-one-who-may-decide"


@pytest.fixture
def api(make_relay, topic, tmp_path):
    relay, api = start_api(make_relay, tmp_path, OPERATE, CONFIG.format(topic=topic) + CALLERS
                           + caller("bob", RETRY, "operate") + caller("carol", DECIDE, "decide"))
    api.relay = relay
    return api


# --- look-back ------------------------------------------------------------------------------------

def overdue(database, ids, state="parked", biz_type="orders", error="no answer", service="shop"):
    """Undecided prepares of these ids that are overdue or parked."""
    for id in ids:
        database.execute("""
            with p as (insert into outbox.lookback (biz_type, biz_id, kind, section, prepared_at, source_partition,
                source_offset, topic, key, payload, check_service, check_at, digest, event_id)
                values (%s, %s, 'prepare', 'orders', now(), 0, 1, 'orders.new', 'k', 'p', 'shop', now(), 'd',
                gen_random_uuid()) returning section, biz_type, biz_id, prepared_at)
            insert into outbox.lookback_overdue (section, biz_type, biz_id, prepared_at, state, check_service, next_check,
                attempts, last_error) select p.section, p.biz_type, p.biz_id, p.prepared_at, %s, %s,
                now() + interval '1 day', 4, %s from p""", [biz_type, id, state, service, error])


def preview(api, verb, status=200, **filter):
    answer = api.post("preview", {"verb": verb, "filter": filter})
    assert answer.status == status, answer.text
    return answer.json


def order(api, verb, token, status=200, **filter):
    answer = api.post("operate", {"verb": verb, "filter": filter, "token": token, "reason": "ticket 7"})
    assert answer.status == status, answer.text
    return answer.json if status == 200 else answer.code


def decisions(database):
    return dict(database.execute("select biz_id, decision from outbox.lookback where kind = 'decision'"))


def test_a_preview_counts_and_shows_and_its_token_carries_it_out(api, database):
    overdue(database, [f"{number:02}" for number in range(12)])
    overdue(database, ["late"], state="overdue")
    shown = preview(api, "commit", type="orders", state="parked")
    assert (shown["verb"], shown["source"], shown["count"], shown["exact"]) == ("commit", "database", "12", True)
    assert shown["states"] == {"overdue": "0", "parked": "12"}
    assert [row["biz_id"] for row in shown["sample"]] == [f"{number:02}" for number in range(10)]
    assert not {"payload", "check_url"} & set(shown["sample"][0]) and decisions(database) == {}

    done = order(api, "commit", shown["token"], type="orders", state="parked")
    assert (done["done"], done["left_alone"], done["sections"]) == (12, 0, {"orders": 12})
    assert set(decisions(database).values()) == {"commit"} and "late" not in decisions(database)
    ((target, caller),) = database.execute("select target, caller from outbox.audit")
    assert target["filter"]["state"] == "parked" and target["rows"] == 12 and caller == "alice"
    # the token is spent: nothing of its selection is undecided
    assert order(api, "commit", shown["token"], 404, type="orders", state="parked") == "not_found"


def test_what_changed_after_the_preview_is_left_alone_and_counted(api, database):
    overdue(database, ["a", "b", "c", "d"])
    overdue(database, ["e"], state="overdue")
    shown = preview(api, "rollback", type="orders")
    assert api.post("operate", {"verb": "commit", "ids": [["orders", "a"]], "reason": "the books say so"}).status == 200
    database.execute("update outbox.lookback_overdue set state = 'parked', last_at = now() where biz_id = 'e'")
    overdue(database, ["new"])
    done = order(api, "rollback", shown["token"], type="orders")
    assert (done["done"], done["left_alone"]) == (3, 2)
    assert decisions(database) == {"a": "commit", "b": "rollback", "c": "rollback", "d": "rollback"}


def test_more_that_match_than_were_shown_change_nothing(api, database):
    overdue(database, ["a"])
    overdue(database, ["b"], error="another")
    shown = preview(api, "commit", error="no answer")
    database.execute("update outbox.lookback_overdue set last_error = 'no answer, again'")
    assert order(api, "commit", shown["token"], 409, error="no answer") == "changed"
    assert decisions(database) == {}


def test_two_operators_at_once_decide_each_id_once(api, database):
    overdue(database, ["a", "b"])
    first, second = preview(api, "commit", type="orders"), preview(api.as_(DECIDE), "rollback", type="orders")
    assert order(api, "commit", first["token"], type="orders")["done"] == 2
    assert order(api.as_(DECIDE), "rollback", second["token"], 404, type="orders") == "not_found"
    assert decisions(database) == {"a": "commit", "b": "commit"}
    assert database.execute("select caller from outbox.audit") == [("alice",)]


@pytest.mark.parametrize("verb, filter, code", [
    ("rollback", {"state": "parked"}, "bad_token"), ("retry", {"state": "parked"}, "bad_token"),
    ("commit", {"state": "overdue"}, "bad_token"), ("commit", {"state": "parked", "type": "orders"}, "bad_token")])
def test_a_token_is_for_its_verb_and_filter_only(api, database, verb, filter, code):
    overdue(database, ["a"])
    token = preview(api, "commit", state="parked")["token"]
    assert order(api, verb, token, 409, **filter) == code
    assert order(api, verb, "1.2.3.4", 409, **filter) == code
    assert decisions(database) == {}


@pytest.mark.parametrize("body, code", [
    ({"verb": "commit"}, "bad_value"), ({"verb": "commit", "filter": {}}, "bad_value"),
    ({"verb": "skip", "filter": {"state": "parked"}}, "bad_value"),
    ({"verb": "commit", "filter": {"until": "2026-01-01"}}, "bad_value"),
    ({"verb": "commit", "filter": {"from": "yesterdays"}}, "bad_value"),
    ({"verb": "commit", "filter": {"state": "parked"}, "reason": ""}, "bad_value"),
    ({"verb": "commit", "ids": [["orders", "1"]]}, "unknown_field"),
    ({"verb": "commit", "filter": {"state": "parked"}, "token": "x"}, "unknown_field"),
    ([], "bad_json")])
def test_a_preview_that_is_wrong_is_refused(api, body, code):
    answer = api.post("preview", body)
    assert (answer.status, answer.code) == (400, code), answer.text


def test_the_role_fits_the_verb_of_the_preview(api):
    for token, verb, status in [(RETRY, "retry", 200), (RETRY, "commit", 403), (DECIDE, "commit", 200),
                                (DECIDE, "retry", 403), (READ, "retry", 403), (OPERATE, "rollback", 200)]:
        answer = api.as_(token).post("preview", {"verb": verb, "filter": {"state": "parked"}})
        assert answer.status == status, (token, verb, answer.text)
