"""Every argument of a query that docs/reference/openapi.json has, wrong in every way that its schema can name: the answer is a
problem document, and its detail names the argument."""

from urllib.parse import quote

import pytest

from support import openapi
from support.api import shared_api
from support.wrong_values import EVERYTHING, TEXTS, TOKEN, beyond_bounds, fault, validator, whole

READS = {path: item["get"] for path, item in openapi.document()["paths"].items() if "get" in item and path.startswith("/v1/") and path != "/v1/events"}
# what a page of messages needs beside its other arguments
SEARCH = "topic=orders&key=k&from=2026-01-01T00:00:00Z&to=2026-01-02T00:00:00Z&"
BESIDE = {("/v1/messages", name): SEARCH for name in ("limit", "after", "offset")}


@pytest.fixture(scope="module")
def api(postgres, kafka, tmp_path_factory):
    with shared_api(postgres, kafka, tmp_path_factory.mktemp("bad"), "bad_input", TOKEN, EVERYTHING) as (relay, api):
        relay.wait_ready()
        yield api


def wrong_arguments(schema):
    """Percent-encoded values that the schema forbids."""
    if schema.get("type") == "integer":
        return ["x", "", "1.5", "99999999999999999999", *map(str, beyond_bounds(schema))]
    allowed = validator(schema).is_valid
    return [quote(text, safe="") for text in TEXTS if not allowed(text)] + ["%ff", "a%c3"]


def fault_of(api, path, beside, name, value):
    """A NUL is refused before the arguments are read."""
    found = fault(api.request("GET", f"{path}?{beside}{name}={value}"), "not encoded well" if "%00" in value else name)
    return found and (name, value, *found)


@pytest.mark.parametrize("path", READS)
def test_every_argument(api, path):
    wrong = [("nonsense", "1")]
    for parameter in map(openapi.resolved, READS[path].get("parameters", [])):
        if parameter["in"] == "query":
            wrong += [(parameter["name"], value) for value in wrong_arguments(openapi.resolved(parameter["schema"]))]
            wrong.append((parameter["name"], f"1&{parameter['name']}=1"))
    faults = [found for name, value in wrong if (found := fault_of(api, whole(path), BESIDE.get((path, name), ""), name, value))]
    assert not faults, "\n".join(map(str, faults))


@pytest.mark.parametrize("path", ["/v1/publishers/main/rebase", "/v1/publishers/main/drop", "/v1/partitions/message_p20260101/drop"])
@pytest.mark.parametrize("reason", ["", "x" * 501])
def test_a_dry_run_may_leave_the_reason_out_and_does_not_take_a_wrong_one(api, path, reason):
    answer = api.request("POST", path, {"dry_run": True, "reason": reason})
    assert (answer.status, answer.code) == (400, "bad_value") and "reason" in answer.json["detail"], answer.text
    assert "reason" not in api.request("POST", path, {"dry_run": True}).text
