"""A topic that the relay may not write to costs the others nothing, and goes on once it may."""

from support.auditor import audit, committed_messages, count_records, read_topics
from support.kafka import Kafka
from support.process import wait_for

RIGHTS = {"authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
          "allow_everyone_if_no_acl_found": "true"}


def allow(cluster, topic, *operations):
    cluster.tool("kafka.admin.AclCommand", "--bootstrap-server", cluster.bootstrap, "--add",
                 "--allow-principal", "User:ANONYMOUS", "--topic", topic,
                 *(word for name in operations for word in ("--operation", name)))


def test_a_topic_that_may_not_be_written_to_holds_up_no_other(
        database, make_relay, make_writers, until_published):
    with Kafka(nodes=1, **RIGHTS) as cluster:
        secret, plain = (cluster.create_topic(name, partitions=2) for name in ("secret", "plain"))
        allow(cluster, secret, "read", "describe", "describeconfigs")
        relay = make_relay(bootstrap=cluster.bootstrap, slot_stall_after="2s").wait_ready()
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
