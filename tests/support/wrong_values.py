"""Values that a schema of docs/reference/openapi.json forbids, and the refusals that they must get.

    for value in wrong_values(schema): …
    fault(api.request("GET", "/v1/jobs?limit=x"), "limit")   # None: refused as it should be
"""
import re

import jsonschema

from support import openapi
from support.api import caller

TOKEN = "token-with-every-role"
EVERYTHING = caller("everything", TOKEN, "read, payload, send, operate, decide", types="*")
NAMES = {"name": "main", "type": "orders", "id": "parked-1"}
OWN_NAMES = {"/v1/parked/{id}": {"id": "77"}}
TEXTS = ["", "no such value", "a\0b", "yesterday", "2026-13-01T00:00:00Z", "x" * 300, "99999999999999999999", "-1", "1=1", "a,b",
         "..", "/", "ä", "\\x0", "\\", " "]


def whole(path):
    """The path with a name in each place for one."""
    for name, value in {**NAMES, **OWN_NAMES.get(path, {})}.items():
        path = path.replace(f"{{{name}}}", value)
    return path


def validator(schema):
    return jsonschema.Draft202012Validator(openapi.inlined(schema))


def beyond_bounds(schema):
    """Numbers just outside of the bounds of a schema."""
    return [schema[bound] + step for bound, step in (("minimum", -1), ("maximum", 1)) if bound in schema]


def beyond_lengths(schema, long_text="x"):
    texts = [long_text * (schema["minLength"] - 1)] if schema.get("minLength") else []
    return texts + ([long_text * (schema["maxLength"] + 1)] if "maxLength" in schema else [])


def fault(answer, *names):
    """None: a problem document refuses the request, and its detail, or that of a message of a batch, has one of the names (regular
    expressions)."""
    if not 400 <= answer.status < 500 or not answer.code:
        return answer.status, answer.text[:300]
    problem = answer.json
    details = [part["detail"] for part in (problem, *problem.get("results", []))]
    named = any(re.search(rf"(?<![\w.-]){name}(?![\w-])", detail) for name in names for detail in details)
    return None if named else (answer.status, *details[:2])
