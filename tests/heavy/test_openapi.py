"""docs/reference/openapi.json: it is valid, and it has every route of the program.

That no answer is undocumented is checked wherever a test calls the interface (support/openapi.py).
"""
import os
import pathlib
import re
import subprocess

from support import openapi

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOME = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "outbox-relay/openapi-spec-validator-0.9.0"


def test_the_description_is_valid():
    done = subprocess.run([HOME / "bin/python", "-m", "openapi_spec_validator", openapi.PAGE], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def names_of(row):
    """What follows the path of a row of the table: {}/{} for two names."""
    names, ends = re.search(r"\.names = (\d)", row), re.search(r'\.tail = "([^"]+)"', row)
    return "/".join(["{}"] * int(names[1]) if names else []) + (ends[1] if ends else "")


def test_it_has_every_route_with_its_roles():
    source = (ROOT / "relay/admin/api.c").read_text(encoding="utf-8")
    # pages of the console are no part of the interface
    rows = re.findall(r'\{"(?!console_page)\w+", "(GET|POST|DELETE)", "([^"]+)",\s*([A-Z_|\s]+|0),([^}]*)\}', source)
    routes = {(method.lower(), path + names_of(rest)): {role.strip().removeprefix("ROLE_").lower() for role in roles.split("|")} - {"0"}
              for method, path, roles, rest in rows}
    shown = {(method, re.sub(r"\{\w+\}", "{}", path)): set(operation["x-roles"])
             for path, operations in openapi.document()["paths"].items() for method, operation in operations.items()}
    assert len(routes) > 10 and shown == routes
