"""`bench` at its smallest: a drain and a steady rate run to their end and give figures.

What they are is not judged here: the exit status is 1 when one is beyond its bound.
"""

import json

import pytest

from support.relay import run_command


@pytest.mark.parametrize("what", [
    ["drain", "--rows", 20_000, "--payload", 300, "--runs", 1],
    ["steady", "--seconds", 2, "--runs", 1],
], ids=lambda what: what[0])
def test_a_measurement_runs_to_its_end(empty_database, kafka, what):
    status, output, error = run_command(
        ["bench", "--json", *what],
        {"DATABASE_URL": empty_database.dsn,
         "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap}, timeout=180)
    assert status in (0, 1), error
    figures = json.loads(output)["figures"]
    assert figures and all(figure["value"] > 0 for figure in figures if figure["unit"] != "ms")
    left = empty_database.execute(
        "select nspname from pg_namespace where nspname like 'outbox%'")
    assert left == [], "it removes what it made"
