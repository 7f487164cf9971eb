"""Fixtures of the tests of the schema."""

import pytest

from support.postgres import Postgres
from support.windows import Ticks


@pytest.fixture(scope="session")
def postgres():
    """Without fsync: hundreds of databases are made and dropped, and each drop waits for a checkpoint. What a server
    that is killed has written is with the kernel, so it loses nothing."""
    with Postgres(fsync="off") as server:
        yield server


@pytest.fixture
def reader(database):
    """A publisher of its own, read by hand."""
    ticks = Ticks(database.dsn)
    yield ticks
    ticks.connection.close()
