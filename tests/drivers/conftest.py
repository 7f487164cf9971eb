"""What the tests of drivers share: a database and a relay for the session, and the texts to be written."""

import pytest

from drivers.guide_harness import WRITTEN
from drivers.harness import Place
from support.pgbouncer import PgBouncer
from support.relay import Relay

USER = "shop"


@pytest.fixture(scope="session")
def place(postgres, kafka, migrated):
    """A database into which the role of an application writes, a topic, and a relay between them."""
    postgres.create_database("drivers", template=migrated())
    postgres.execute(f"CREATE ROLE {USER} LOGIN IN ROLE outbox_writer")
    topic = kafka.create_topic("drivers")
    for written in WRITTEN:
        kafka.create_topic(written)
    with PgBouncer(postgres, users=("postgres", USER)) as pooler, \
            Relay({"DATABASE_URL": postgres.dsn("drivers"),
                   "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap}):
        yield Place(postgres, pooler, kafka, USER, "drivers", topic)
    postgres.drop_database("drivers")
    postgres.execute(f"DROP ROLE {USER}")
