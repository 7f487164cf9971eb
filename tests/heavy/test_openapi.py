"""docs/reference/openapi.json: it is valid, and it has every route of the program.

That the program does what it says is checked by test_openapi_a.py and its like; that no answer is undocumented, also wherever
a test calls the interface (support/openapi.py).
"""
import re

from support import openapi, openapi_run
from support.openapi_run import ROOT, api, check_links  # noqa: F401


def test_the_description_is_valid():
    checked = openapi_run.tool("openapi_spec_validator", openapi.PAGE)
    assert "OK" in checked.communicate()[0] and checked.returncode == 0


def test_every_operation_is_in_one_share():
    names = [name for number in range(openapi_run.SHARES) for part in openapi_run.share(number) for name in part]
    assert sorted([*names, *openapi_run.ENDLESS]) == sorted(openapi_run.operations())
    files = sorted(path.name for path in (ROOT / "tests/heavy").glob("test_openapi_*.py"))
    assert files == [f"test_openapi_{letter}.py" for letter in "abcd"[:openapi_run.SHARES]]


def test_answers_lead_to_other_operations(check_links):  # noqa: F811
    check_links()


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
