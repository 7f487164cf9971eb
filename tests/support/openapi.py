"""docs/reference/openapi.json: each answer of the HTTP interface that a test sees is checked against it.

    check("GET", "/v1/lookback?limit=1", 200, headers, text)
    schema = inlined({"$ref": "#/components/schemas/Prepare"})   # has no $ref
"""
import functools
import json
import pathlib
import re

import jsonschema

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs/reference/openapi.json"


@functools.cache
def document():
    return json.loads(PAGE.read_text(encoding="utf-8"))


@functools.cache
def _templates():
    """(regular expression, template), those without variables first, and those that end with one last: it may contain slashes."""
    def expression(template):
        words = re.split(r"\{\w+\}", template)
        return re.compile("([^/]+)".join(map(re.escape, words[:-1])) + ("(.+)" if len(words) > 1 else "")
                          + re.escape(words[-1]))

    return [(expression(template), template) for template in sorted(document()["paths"],
                                                                   key=lambda path: (path.endswith("}"), path.count("{")))]


def template_of(path):
    """None: no such path is documented."""
    path = path.partition("?")[0]
    return next((template for known, template in _templates() if known.fullmatch(path)), None)


@functools.cache
def _file(name):
    return document() if name in ("", PAGE.name) else json.loads((PAGE.parent / name).read_text(encoding="utf-8"))


def _target(reference, file):
    """(what it refers to, the name of its file). file: the name of the one that has the reference."""
    name, _, path = reference.partition("#/")
    place = _file(name or file)
    for word in path.split("/"):
        place = place[word]
    return place, name or file


def resolved(value):
    while "$ref" in value:
        value, _ = _target(value["$ref"], "")
    return value


def inlined(value, file=""):
    """The same with all that it refers to in the place of each $ref."""
    if isinstance(value, list):
        return [inlined(item, file) for item in value]
    if not isinstance(value, dict):
        return value
    if "$ref" in value:
        more = {name: item for name, item in value.items() if name != "$ref"}
        return {**inlined(*_target(value["$ref"], file)), **inlined(more, file)}
    return {name: inlined(item, file) for name, item in value.items()}


def check(method, path, status, headers, text):
    """Nothing is undocumented: neither the status of the path nor a member of the answer. An unknown path is 404."""
    template = template_of(path)
    method = "get" if method == "HEAD" and template else method.lower()
    operation = template and document()["paths"][template].get(method)
    if not operation:
        assert status in ((405, 400) if template else (404, 400)), (method, path, status, text)
        content = resolved({"$ref": "#/components/responses/NotFound"})["content"]
    else:
        assert str(status) in operation["responses"], f"{method} {template}: the status {status} is not documented: {text}"
        response = resolved(operation["responses"][str(status)])
        assert all(name in headers for name in response.get("headers", {})), (path, status, headers)
        content = response["content"]
    media = headers["Content-Type"]
    assert media in content, (method, path, status, media)
    if text and not media.startswith("text/csv"):  # HEAD has none
        jsonschema.Draft202012Validator({**content[media]["schema"], "components": document()["components"]}).validate(
            json.loads(text))
