"""Every argument of a query that docs/reference/openapi.json has, wrong in every way that its schema can name: the answer is a
problem document, and its detail names the argument."""

from urllib.parse import quote

import jsonschema
import pytest

from support import openapi
from support.api import TYPE, shared_api

TOKEN = "token-with-every-role"
NAMES = {"name": "main", "type": "orders", "id": "parked-1"}
OWN_NAMES = {"/v1/parked/{id}": {"id": "77"}}
READS = {path: item["get"] for path, item in openapi.document()["paths"].items() if "get" in item and path.startswith("/v1/") and path != "/v1/events"}
# what a page of messages needs beside its other arguments
SEARCH = "topic=orders&key=k&from=2026-01-01T00:00:00Z&to=2026-01-02T00:00:00Z&"
BESIDE = {("/v1/messages", name): SEARCH for name in ("limit", "after", "offset")}


@pytest.fixture(scope="module")
def api(postgres, kafka, tmp_path_factory):
    section = f'[token "everything"]\ntokens = {TOKEN}\nroles = read, payload, send, operate, decide\ntypes = *\n'
    with shared_api(postgres, kafka, tmp_path_factory.mktemp("bad"), "bad_input", TOKEN, section) as (relay, api):
        relay.wait_ready()
        yield api


def whole(path):
    for name, value in {**NAMES, **OWN_NAMES.get(path, {})}.items():
        path = path.replace(f"{{{name}}}", value)
    return path


def is_allowed(schema, value):
    return jsonschema.Draft202012Validator({**schema, "components": openapi.document()["components"]}).is_valid(value)


def resolved(schema):
    while "$ref" in schema:
        place = openapi.document()
        for word in schema["$ref"].removeprefix("#/").split("/"):
            place = place[word]
        schema = place
    return schema


def wrong_numbers(schema):
    return [schema[bound] + step for bound, step in (("minimum", -1), ("maximum", 1)) if bound in schema]


def wrong_arguments(schema):
    """Percent-encoded values that the schema forbids."""
    if schema.get("type") == "integer":
        return ["x", "", "1.5", "99999999999999999999", *map(str, wrong_numbers(schema))]
    texts = ["", "no such value", "a\0b", "yesterday", "2026-13-01T00:00:00Z", "x" * 300]
    return [quote(text, safe="") for text in texts if not is_allowed(schema, text)] + ["%ff", "a%c3"]


def fault(api, path, beside, name, value):
    """None: it is refused as it should be. A NUL is refused before the arguments are read."""
    answer = api.request("GET", f"{path}?{beside}{name}={value}")
    problem = answer.json if 400 <= answer.status < 500 else {}
    named = "%00" in value or name in problem.get("detail", "")
    return None if named and problem.get("type", "").startswith(TYPE) else (name, value, answer.status, answer.text[:300])


@pytest.mark.parametrize("path", READS)
def test_every_argument(api, path):
    wrong = [("nonsense", "1")]
    for parameter in map(resolved, READS[path].get("parameters", [])):
        if parameter["in"] == "query":
            wrong += [(parameter["name"], value) for value in wrong_arguments(resolved(parameter["schema"]))]
            wrong.append((parameter["name"], f"1&{parameter['name']}=1"))
    faults = [found for name, value in wrong if (found := fault(api, whole(path), BESIDE.get((path, name), ""), name, value))]
    assert not faults, "\n".join(map(str, faults))


@pytest.mark.parametrize("path", ["/v1/publishers/main/rebase", "/v1/publishers/main/drop", "/v1/partitions/message_p20260101/drop"])
@pytest.mark.parametrize("reason", ["", "x" * 501])
def test_a_dry_run_may_leave_the_reason_out_and_does_not_take_a_wrong_one(api, path, reason):
    answer = api.request("POST", path, {"dry_run": True, "reason": reason})
    assert (answer.status, answer.code) == (400, "bad_value") and "reason" in answer.json["detail"], answer.text
    assert "reason" not in api.request("POST", path, {"dry_run": True}).text
