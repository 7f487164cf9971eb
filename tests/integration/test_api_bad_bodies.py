"""Every member of a body that docs/reference/openapi.json has, wrong in every way that its schema can name, and bodies that are
wrong as a whole: a problem document refuses each, its detail names the member, and nothing has changed.

EXAMPLES has bodies that the schemas allow. Each test replaces one member of one of them by a wrong value: the schema of the whole
body decides which values are wrong."""

import itertools
import json

import pytest

from support import openapi
from support.api import shared_api
from support.auditor import topic_ranges
from support.wrong_values import EVERYTHING, TEXTS, TOKEN, beyond_bounds, beyond_lengths, fault, validator, whole

PATHS = {item["post"]["operationId"]: path for path, item in openapi.document()["paths"].items() if "post" in item}
SCHEMAS = {name: openapi.inlined(openapi.document()["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"])
           for name, path in PATHS.items()}
DAY, DAYS = "2026-01-01T00:00:00Z", "2026-01-01..2026-01-02"
REASON = {"reason": "a test"}
DECISION = {"version": 1, "biz_type": "orders", "biz_id": "1"}
LOOKBACK_FILTER = {"type": "orders", "state": "parked", "service": "shop", "error": "e", "section": "orders", "from": DAY, "to": DAY}
PARKED_FILTER = {"topic": "orders", "key": "k", "error": "e", "state": "dead", "from": DAY, "to": DAY, "from_id": 1, "to_id": "2"}
DEAD_FILTER = {"id": "1", "key": "k", "topic": "orders", "reason": "422", "from": DAY, "to": DAY}
REPLAY = {"publisher": "main", "to": "orders", "rate": 10, **REASON, "filter": {
    "ids": "1..2", "created": DAYS, "topic": "orders", "key": "k", "event-id": "00000000-0000-0000-0000-000000000000", "state": "published"}}
PREPARE = {**DECISION, "op": "prepare", "topic": "orders.new", "key": "k", "headers": {"a": "b", "c": {"base64": "AAAA"}}, "check_service": "shop",
           "check_url": "https://shop.example.com/lookback", "check_after": "90s", "expires_after": 3600, "unique_key": "u",
           "within": "24h", "while_pending": "done"}
PREPARES = [{**PREPARE, "payload": {"id": 1}}, {**PREPARE, "payload_base64": "AAAA", "headers": [["a", "b"]]}]
DECISIONS = {verb: [{**PREPARE, "payload": 1, "payload_base64": "AAAA", "op": verb}] for verb in ("commit", "rollback")}
# by operationId; together they have every member
EXAMPLES = {
    **{verb: bodies + [{"messages": [body]} for body in bodies] for verb, bodies in {"prepare": PREPARES, **DECISIONS}.items()},
    "operate": [{"verb": "retry", **REASON, "postgres": "main", "ids": [["orders", "1"]], "whole": True},
                         {"verb": "retry", **REASON, "filter": LOOKBACK_FILTER, "token": "x"}],
    "lookback_preview": [{"verb": "retry", "postgres": "main", **REASON, "filter": LOOKBACK_FILTER}],
    "deliver_operate": [{"verb": "pause", "section": "billing", **REASON}],
    "publisher_create": [{"name": "late", "shards": 2, "start": "now", "postgres": "main", **REASON}],
    "publisher_pause": [{**REASON, "topic": "orders"}],
    "publisher_resume": [{**REASON, "topic": "orders"}],
    "publisher_split": [{**REASON, "shards": 2}, {**REASON, "cancel": True}],
    "publisher_rebase": [{"confirm": "Rebase all publishers?", "all": True, "new_identity": True, "dry_run": False, **REASON}],
    "publisher_drop": [{"confirm": "Drop publisher main?", "dry_run": False, "force": ["last"], "postgres": "main", **REASON}],
    "partition_make": [{"table": "message", "from": DAY, "postgres": "main", **REASON}],
    "partition_drop": [{"confirm": "Drop main?", "dry_run": False, "detach": False, "force": ["retain"], "postgres": "main", **REASON}],
    "parked_preview": [{"verb": "retry", "publisher": "main", "ids": [1, "2"], **REASON},
                       {"verb": "skip", "publisher": "main", "filter": PARKED_FILTER, **REASON}],
    "redrive_preview": [{"section": "billing", "filter": DEAD_FILTER, **REASON}],
    "redrive": [{"section": "billing", "places": ["0:1"], **REASON},
                             {"section": "billing", "filter": DEAD_FILTER, "token": "x", **REASON}],
    "replay_preview": [REPLAY],
    "replay": [{**REPLAY, "token": "x"}],
    "verification": [{"publisher": "main", "from": DAY, "to": "2026-01-02T00:00:00Z", "sequence": "seq", "no_duplicates": True, "memory": 64, **REASON}],
    "console_login": [{"token": "x"}],
    **{f"parked_{verb}": [{"publisher": "main", "ids": [1, "2"], **REASON},
                          {"publisher": "main", "filter": PARKED_FILTER, "token": "x", **REASON}] for verb in ("retry", "skip")},
    **{f"job_{verb}": [{"postgres": "main", "publisher": "main", **REASON}] for verb in ("cancel", "resume")},
}
# what no JSON text has
BROKEN = ['"a\0b"', '"a\nb"', '"\\ud800"', '"\\ud800x"', '"\\udc00\\ud800"', '"\\x"', '"\\u12"', '"\udcff"', '"\udced\udca0\udc80"', '"', "NaN", "-",
          "01", "1e", ".5", "Infinity", "undefined", "'a'", "[1,]", '{"a":1,}', "{a:1}"]


@pytest.fixture(scope="module")
def relay(postgres, kafka, tmp_path_factory):
    """(relay, api) of a relay that has every route."""
    folder, topic = tmp_path_factory.mktemp("bodies"), kafka.create_topic("bad_bodies.in", 1)
    dead = kafka.create_topic("bad_bodies.dead", 1)
    billing = (f'[deliver "billing"]\ntopics = {topic}\ngroup = bad_bodies\nurl = http://127.0.0.1:9\nnetworks = 127.0.0.0/8\n'
               f"path = {folder / 'state'}\ndead_letter_topic = {dead}\ndedup = bloom ids=100k rate=0.1% window=1h\n")
    with shared_api(postgres, kafka, folder, "bad_bodies", TOKEN, EVERYTHING + billing, api_max_body="4MiB") as (relay, api):
        relay.wait_ready()
        yield relay, api
    for name in (topic, dead):
        kafka.delete_topic(name)


STATE = """SELECT (SELECT count(*) FROM outbox.audit), (SELECT count(*) FROM outbox.replay), (SELECT count(*) FROM outbox.redrive),
    (SELECT count(*) FROM outbox.parked_request), (SELECT count(*) FROM outbox.lookback_log), (SELECT count(*) FROM outbox.message),
    (SELECT count(*) FROM outbox.publisher), (SELECT count(*) FROM outbox.verification)"""


@pytest.fixture
def api(relay, postgres, kafka):
    """Nothing changes in the test: neither a row nor a record of the look-back topic."""
    def state():
        return postgres.execute(STATE, None, "bad_bodies"), topic_ranges(kafka.bootstrap, ["bad_bodies"])

    before = state()
    yield relay[1]
    assert state() == before


# --- JSON text -----------------------------------------------------------------------------------

class Raw(str):
    """Text in the place of a value."""


def written(value):
    """As bytes; those that are no UTF-8 are surrogates in a Raw."""
    def text(value):
        if isinstance(value, Raw):
            return value
        if isinstance(value, dict):
            return "{" + ",".join(f"{json.dumps(name)}:{text(item)}" for name, item in value.items()) + "}"
        return "[" + ",".join(map(text, value)) + "]" if isinstance(value, list) else json.dumps(value)

    return text(value).encode("utf-8", "surrogateescape")


def replaced(value, path, new):
    """The body with another value at this path; ...: without it."""
    if not path:
        return new
    if new is ... and len(path) == 1:
        return {name: item for name, item in value.items() if name != path[0]}
    copy = value.copy()
    copy[path[0]] = replaced(value.get(path[0]) if isinstance(value, dict) else value[path[0]], path[1:], new)
    return copy


def places(value, path=()):
    """(path, value) of the body and of everything in it."""
    yield path, value
    for step, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(item, (*path, step))


def names_of(path):
    """Of the member at the path, or of the one that has the item; or of the header. A batch shows by its results which message is
    wrong."""
    if path[:1] == ("messages",) and len(path) <= 2:
        return ["messages", "message", "biz_type"]
    steps = [step for step in path if isinstance(step, str)]
    return steps[steps.index("headers"):] if "headers" in steps else steps[-1:] or ["JSON object"]


# --- schemas -------------------------------------------------------------------------------------

def parts(schema):
    """The schema and those that it is made of."""
    yield schema
    for part in itertools.chain(*(schema.get(word, []) for word in ("allOf", "anyOf", "oneOf"))):
        yield from parts(part)


def below(schemas, step):
    """The schemas of a member or an item."""
    for part in itertools.chain(*map(parts, schemas)):
        if isinstance(step, str):
            found = part.get("properties", {}).get(step, part.get("additionalProperties"))
        else:
            found = dict(enumerate(part.get("prefixItems", []))).get(step, part.get("items"))
        if isinstance(found, dict):
            yield found


def schemas_at(schema, path):
    schemas = [schema]
    for step in path:
        schemas = list(below(schemas, step))
    return list(itertools.chain(*map(parts, schemas)))


def member_paths(schema):
    """Of all members; an item of an array has the step None."""
    for part in parts(schema):
        for name, item in part.get("properties", {}).items():
            yield (name,)
            yield from ((name, *path) for path in member_paths(item))
        for path in member_paths(part["items"]) if isinstance(part.get("items"), dict) else ():
            yield (None, *path)


def without_raw(value):
    """What a schema can judge: each Raw is a number that it forbids."""
    if isinstance(value, Raw):
        return 1e300
    if isinstance(value, dict):
        return {name: without_raw(item) for name, item in value.items()}
    return list(map(without_raw, value)) if isinstance(value, list) else value


def candidates(schemas, value):
    """Values of every type, and some beyond each bound; many of them are allowed."""
    yield from (None, True, False, 0, -1, 1.5, 10**18, 10**19, 10**30, Raw("1e400"), Raw("-1e400"), *TEXTS, [], [[]], [None], ["x", 1], ["x", "y", "z"],
                [{}], {}, {"nonsense": 1}, {"base64": "no!"}, {"base64": 1})
    for schema in schemas:
        yield from beyond_bounds(schema)
        yield from itertools.chain(*(beyond_lengths(schema, text) for text in ("x", "ä", "1")))
        yield from (str(word).upper() for word in schema.get("enum", []))
        if isinstance(value, list) and value:
            # Raw, since a schema needs seconds to judge 10,001 messages
            yield from (Raw(written(value[:1] * count).decode()) for count in (schema.get("minItems", 0) - 1, schema.get("maxItems", -2) + 1)
                        if count >= 0)


# --- tests ---------------------------------------------------------------------------------------

def cases():
    return [pytest.param(name, body, id=f"{name}-{number}") for name, bodies in EXAMPLES.items() for number, body in enumerate(bodies)]


def faults_of(api, operation, wrong):
    """wrong: (body, names), of which the detail has one."""
    found = []
    for body, names in wrong:
        answer = api.request("POST", whole(PATHS[operation]), written(body))
        if problem := fault(answer, *names):
            found.append((written(body)[:400], names, *problem))
    return "\n".join(map(str, found))


def test_the_examples_have_every_member():
    assert EXAMPLES.keys() == SCHEMAS.keys()
    for name, bodies in EXAMPLES.items():
        for body in bodies:
            validator(SCHEMAS[name]).validate(body)
        had = {tuple(None if isinstance(step, int) else step for step in path) for body in bodies for path, _ in places(body)}
        assert not set(member_paths(SCHEMAS[name])) - had, name


@pytest.mark.parametrize("operation,body", cases())
def test_every_member(api, operation, body):
    allowed = validator(SCHEMAS[operation]).is_valid
    wrong = []
    for path, value in places(body):
        for other in candidates(schemas_at(SCHEMAS[operation], path), value):
            changed = replaced(body, path, other)
            # which member of an object is wrong: below
            if not (isinstance(value, dict) and isinstance(other, dict)) and not allowed(without_raw(changed)):
                wrong.append((changed, names_of(path)))
    assert not (found := faults_of(api, operation, wrong)), found


@pytest.mark.parametrize("operation,body", cases())
def test_members_that_are_missing_unknown_or_there_twice(api, operation, body):
    allowed = validator(SCHEMAS[operation]).is_valid
    wrong = []
    for path, value in places(body):
        if path and isinstance(path[-1], str) and not allowed(changed := replaced(body, path, ...)):
            wrong.append((changed, names_of(path)))
        if isinstance(value, dict) and not allowed(changed := replaced(body, (*path, "nonsense"), 1)):
            wrong.append((changed, ["nonsense", *(names_of(path) if "headers" in path else [])]))
            for name in value:
                twice = Raw(f'{written(value).decode()[:-1]},"{name}":{written(value[name]).decode()}}}')
                wrong.append((replaced(body, path, twice), [name]))
    for other in EXAMPLES[operation]:
        if not allowed(both := {**other, **body}):
            wrong.append((both, [name for name in both if name not in body or name not in other]))
    assert not (found := faults_of(api, operation, wrong)), found


@pytest.mark.parametrize("operation,body", cases())
def test_text_that_is_no_json(api, operation, body):
    wrong = [(replaced(body, path, Raw(text)), [r"line \d, column \d+"]) for path, _ in places(body) for text in BROKEN]
    assert not (found := faults_of(api, operation, wrong)), found


@pytest.mark.parametrize("operation", PATHS)
def test_bodies_that_are_wrong_as_a_whole(api, operation):
    path, body = whole(PATHS[operation]), written(EXAMPLES[operation][0])
    deep, many = b'{"a":' * 101 + b"1" + b"}" * 101, b'{"a":[' + b"1," * 1_000_000 + b"1]}"
    json_type, large = {"Content-Type": "application/json"}, body + b" " * (4 << 20)
    found = []
    for sent, headers, status, code in [
            (b"", json_type, 400, "bad_json"), (b" ", json_type, 400, "bad_json"), (b"{", json_type, 400, "bad_json"),
            (body + b"x", json_type, 400, "bad_json"), (body + body, json_type, 400, "bad_json"), (b"\xef\xbb\xbf" + body, json_type, 400, "bad_json"),
            (b"[" + body + b"]", json_type, 400, "bad_json"), (b"null", json_type, 400, "bad_json"), (b"1", json_type, 400, "bad_json"),
            (b'"x"', json_type, 400, "bad_json"), (body.decode().encode("utf-16"), json_type, 400, "bad_json"), (deep, json_type, 400, "too_complex"),
            (many, json_type, *((413, "too_large") if operation == "console_login" else (400, "too_complex"))), (large, json_type, 413, "too_large"),
            (map(bytes, [large]), json_type, 413, "too_large"), (body, {"Content-Type": ""}, 415, "unsupported_media_type"),
            (body, {"Content-Type": "text/plain"}, 415, "unsupported_media_type"),
            (body, {"Content-Type": "application/jsonp"}, 415, "unsupported_media_type"),
            (body, {**json_type, "Content-Encoding": "gzip"}, 415, "unsupported_media_type")]:
        answer = api.request("POST", path, sent, headers)
        if (answer.status, answer.code) != (status, code):
            found.append((str(sent)[:100], headers, answer.status, answer.text[:300]))
    assert not found, "\n".join(map(str, found))


# --- names that nothing has ----------------------------------------------------------------------

UNKNOWN = {"/v1/lookback/{type}/{id}": [("nobody/1", "nobody"), ("orders/nobody", "nobody")], "/v1/parked/{id}": [("999999", "999999")],
           "/v1/jobs/{id}": [(f"{kind}-999999", f"{kind}-999999") for kind in ("parked", "replay", "redrive", "verify")] + [("nobody", "nobody")],
           "/v1/publishers/{name}": [("nobody", "nobody")], "/v1/partitions/{name}": [("message_p19990101", "message_p19990101")]}
NAMED = [(method, path, name, named) for path, item in openapi.document()["paths"].items() if "{" in path for method in item
         for known, names in UNKNOWN.items() if path.startswith(known) for name, named in names]
# a name in a body
MEMBERS = [(operation, body, (member,)) for operation, bodies in EXAMPLES.items() for body in bodies
           for member in ("publisher", "postgres", "section") if member in body]
MEMBERS += [("operate", EXAMPLES["operate"][1], ("filter", "section")), ("operate", EXAMPLES["operate"][1], ("filter", "type")),
            # a database that is named may have ids of types that no section has any longer
            ("operate", replaced(EXAMPLES["operate"][0], ("postgres",), ...), ("ids", 0, 0)),
            ("lookback_preview", replaced(EXAMPLES["lookback_preview"][0], ("postgres",), ...), ("filter", "section")),
            ("prepare", PREPARES[0], ("biz_type",)), ("prepare", PREPARES[0], ("check_service",))]


@pytest.mark.parametrize("method,path,name,named", NAMED)
def test_a_name_in_a_path_that_nothing_has(api, method, path, name, named):
    body = None
    if method == "post":
        body = next(bodies[0] for operation, bodies in EXAMPLES.items() if PATHS[operation] == path)
        body = {"dry_run": True} if "confirm" in body else body
    answer = api.request(method.upper(), path[:path.index("{")] + name + path.rpartition("}")[2], body)
    assert answer.status == 404 and answer.code in ("not_found", "unknown_publisher", "unknown_type"), answer.text
    assert named in answer.json["detail"] and len(answer.json["detail"]) > 40, answer.text


@pytest.mark.parametrize("operation,body,path", MEMBERS, ids=lambda value: "-".join(map(str, value)) if isinstance(value, tuple) else None)
def test_a_name_in_a_body_that_nothing_has(api, operation, body, path):
    answer = api.request("POST", whole(PATHS[operation]), replaced(body, path, "nobody"))
    assert answer.status == 404 and "nobody" in answer.json["detail"] and len(answer.json["detail"]) > 40, (answer.code, answer.text)
