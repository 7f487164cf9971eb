"""The C programs here that need a living Postgres (test_*_live.c), each as one test."""

import glob
import os
import subprocess

import pytest

from support.postgres import Postgres
from support.relay import beside, environment

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAMS = sorted(os.path.basename(path)[:-2]
                  for path in glob.glob(os.path.join(HERE, "test_*_live.c")))


@pytest.fixture(scope="module")
def own_postgres():
    """Not the shared one: such a program terminates backends as it likes."""
    with Postgres(fsync="off") as server:
        yield server


@pytest.mark.parametrize("program", PROGRAMS)
def test_program(program, own_postgres):
    done = subprocess.run(
        [beside(f"tests/sql/{program}")], capture_output=True, text=True, timeout=300,
        stdin=subprocess.DEVNULL, env=environment({"TEST_DATABASE_URL": own_postgres.dsn()}))
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
