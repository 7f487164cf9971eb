"""A quarter of the operations of docs/reference/openapi.json (support/openapi_run.py)."""
from support.openapi_run import api, check_share  # noqa: F401


def test_schemathesis_finds_nothing(check_share):  # noqa: F811
    check_share(1)
