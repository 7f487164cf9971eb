"""Fixtures of the tests of the schema."""

import pytest

from support.windows import Ticks


@pytest.fixture
def reader(database):
    """A publisher of its own, read by hand."""
    ticks = Ticks(database.dsn)
    yield ticks
    ticks.connection.close()
