"""A topic that the relay may not write to, or whose brokers answer with an error that tells nothing,
costs the others nothing, and goes on once it is mended."""

import pytest

from support.auditor import audit, committed_messages, count_records, read_topics
from support.kafka import Kafka
from support.process import wait_for

RIGHTS = {"authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
          "allow_everyone_if_no_acl_found": "true"}
# The broker finds no place for the library of snappy, as where /tmp is mounted noexec, and answers
# UNKNOWN_SERVER_ERROR to who writes to a topic that it is to compress so.
NO_SNAPPY = ("-Dorg.xerial.snappy.tempdir=/dev/null",)
EXACT = {"publisher_delivery": "exactly-once"}


def allow(cluster, topic, *operations):
    cluster.tool("kafka.admin.AclCommand", "--bootstrap-server", cluster.bootstrap, "--add",
                 "--allow-principal", "User:ANONYMOUS", "--topic", topic,
                 *(word for name in operations for word in ("--operation", name)))


def test_a_topic_that_may_not_be_written_to_holds_up_no_other(
        database, make_relay, make_writers, until_published):
    with Kafka(nodes=1, **RIGHTS) as cluster:
        secret, plain = (cluster.create_topic(name, partitions=2) for name in ("secret", "plain"))
        allow(cluster, secret, "read", "describe", "describeconfigs")
        relay = make_relay(bootstrap=cluster.bootstrap, publisher_stall_after="2s").wait_ready()
        writers = make_writers([secret, plain], connections=2, rate=100)
        with writers:
            relay.wait_event("topic_denied", topic=secret)
            relay.wait_for(lambda: relay.readiness_says(200, f"waits for topic {secret}"),
                           what="the word of it")
            wait_for(lambda: database.execute(
                "select exists (select from outbox.parked where state = 'stalled')")[0][0], 60,
                "rows that are parked")
            before = count_records(cluster.bootstrap, [plain])
            wait_for(lambda: count_records(cluster.bootstrap, [plain]) > before + 100, 60,
                     "what goes on")
        assert count_records(cluster.bootstrap, [secret]) == 0
        allow(cluster, secret, "write")
        until_published()
        wait_for(lambda: database.execute("select count(*) from outbox.parked") == [(0,)], 120,
                 "the end of what is parked")
        verdict = audit(committed_messages(database.dsn),
                        read_topics(cluster.bootstrap, [secret, plain]))
        assert verdict.correct and verdict.committed == len(writers.committed), verdict
        assert not verdict.duplicates
        # a try after 1, 2, 4 … s, of each of its two partitions
        assert relay.metric("relay_producer_recreations_total") < 25
        relay.stop()


@pytest.fixture(scope="module")
def broker_without_snappy():
    with Kafka(nodes=1, options=NO_SNAPPY) as cluster:
        yield cluster


@pytest.mark.rotated
@pytest.mark.parametrize("settings", [{}, {"publisher_resume": "none"}, EXACT], ids=["tail", "none", "exact"])
def test_a_topic_that_answers_with_an_unknown_error_holds_up_no_other(
        database, broker_without_snappy, topic, make_relay, make_writers, until_published, settings):
    cluster = broker_without_snappy
    sick = cluster.create_topic(f"{topic}.sick", partitions=3, compression_type="snappy")
    plain = cluster.create_topic(f"{topic}.plain", partitions=3)
    # nothing that waits for stall_after helps here
    relay = make_relay(bootstrap=cluster.bootstrap, publisher_stall_after="10m", **settings).wait_ready()
    writers = make_writers([sick, plain], connections=2, rate=100)

    def published():
        return count_records(cluster.bootstrap, [plain])

    with writers:
        assert "nknown" in relay.wait_event("topic_denied", topic=sick)[-1]["error"]
        relay.wait_for(lambda: relay.readiness_says(200, f"waits for topic {sick}"),
                       what="the word of it")
        before = published()
        wait_for(lambda: published() > before + 50, 20, "what goes on while it is held")
        wait_for(lambda: database.execute(
            "select exists (select from outbox.parked where state = 'stalled'"
            " and error like 'partition % takes no records: %nknown%')")[0][0], 60,
            "rows that are parked with the error")
        # between two pauses, while it is tried, none is denied
        relay.wait_for(lambda: relay.metric("relay_denied_partitions"), what="its figure")
        before = published()
        wait_for(lambda: published() > before + 50, 20, "what goes on while it is parked")
    assert not list(read_topics(cluster.bootstrap, [sick], "read_committed"))
    # after 1, 2, 4 … s, of all its partitions: two until it is known that it is the topic
    assert relay.metric("relay_producer_recreations_total") < 20
    cluster.alter_topic(sick, compression_type="producer")
    until_published()
    wait_for(lambda: database.execute("select count(*) from outbox.parked") == [(0,)], 180,
             "the end of what is parked")
    verdict = audit(committed_messages(database.dsn),
                    read_topics(cluster.bootstrap, [sick, plain], "read_committed"))
    assert verdict.correct and verdict.committed == len(writers.committed), verdict
    assert not verdict.duplicates or settings.get("publisher_resume") == "none"
    relay.wait_for(lambda: relay.metric("relay_denied_partitions") == 0, what="no figure")
    relay.stop()
