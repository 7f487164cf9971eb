"""What the relay says about itself: readiness while a publisher stands still, and doctor's warnings; and
that what a publisher needs to go on does not wait for anything else."""

import contextlib

import pytest

from support.auditor import count_records
from support.kafka import Kafka
from support.process import wait_for
from support.relay import run_command


def publish(database, topic, count, size=1):
    database.execute("SELECT outbox.publish(%s::text, 'key-' || i, repeat('x', %s)) "
                     "FROM generate_series(1, %s) i", (topic, size, count))


def readiness(relay):
    return relay.get("/readyz?verbose")


def until_ready_says(relay, status, *words):
    def said():
        answer, report = readiness(relay)
        return answer == status and all(word in report for word in words) and report

    return relay.wait_for(said, what=f"readiness {status} with {words}")


@contextlib.contextmanager
def locked(database, statement):
    connection = database.connect(autocommit=False)
    try:
        connection.cursor().execute(statement)
        yield
        connection.rollback()
    finally:
        connection.close()


# --- readiness -----------------------------------------------------------------------------------

def test_a_publisher_that_stands_still_behind_a_missing_topic_is_not_ready(
        database, kafka, topic, make_relay):
    absent = f"{topic}.later"
    relay = make_relay(publisher_max_in_flight=20).wait_ready()
    publish(database, absent, 1)
    relay.wait_event("topic_missing", topic=absent)
    publish(database, topic, 10)
    relay.wait_for(lambda: count_records(kafka.bootstrap, [topic]) == 10, what="what goes on")
    until_ready_says(relay, 200, f"[+] publisher main/0: owner, waits for topic {absent}\n")

    publish(database, topic, 100)
    until_ready_says(relay, 503,
                     f"[-] publisher main/0: owner, waits for topic {absent} and is blocked")
    # With the row that waits these are as many as max_in_flight.
    relay.wait_for(lambda: count_records(kafka.bootstrap, [topic]) == 19, what="what still goes on")
    assert relay.get("/livez")[0] == 200

    kafka.create_topic(absent)
    try:
        relay.wait_for(lambda: count_records(kafka.bootstrap, [topic, absent]) == 111,
                       what="every row")
        assert "waits for" not in until_ready_says(relay, 200, "[+] publisher main/0: owner\n")
    finally:
        kafka.delete_topic(absent)


def test_a_publisher_whose_memory_is_full_of_rows_for_a_missing_topic_is_not_ready(
        database, kafka, topic, make_relay):
    absent = f"{topic}.later"
    relay = make_relay(publisher_memory="1MiB").wait_ready()
    publish(database, absent, 400, size=4096)
    until_ready_says(relay, 503,
                     f"[-] publisher main/0: owner, waits for topic {absent} and is blocked")
    publish(database, topic, 10)
    kafka.create_topic(absent)
    try:
        relay.wait_for(lambda: count_records(kafka.bootstrap, [topic, absent]) == 410,
                       what="every row")
        until_ready_says(relay, 200, "[+] publisher main/0: owner\n")
    finally:
        kafka.delete_topic(absent)


def test_memory_that_a_drain_fills_and_frees_does_not_count(database, kafka, topic, make_relay):
    relay = make_relay(publisher_memory="1MiB", publisher_max_in_flight=100_000).wait_ready()
    publish(database, f"{topic}.later", 1)
    relay.wait_event("topic_missing")
    publish(database, topic, 30_000)
    while relay.metric("relay_published_total") < 30_000:
        status, report = readiness(relay)
        assert status == 200, report


def test_an_owner_that_cannot_write_the_log_is_not_ready(
        database, kafka, topic, make_relay):
    relay = make_relay(publisher_lease="1s").wait_ready()
    until_ready_says(relay, 200, "[+] publisher main/0: owner\n")
    with locked(database, "LOCK TABLE outbox.log IN SHARE MODE"):
        report = until_ready_says(relay, 503, "its lease is over: the log cannot be written")
        assert "[-] publisher main/0: " in report
    until_ready_says(relay, 200, "[+] publisher main/0: owner\n")
    publish(database, topic, 10)
    relay.wait_for(lambda: count_records(kafka.bootstrap, [topic]) == 10, what="the rows")


# --- the log's partitions ------------------------------------------------------------------------

LAST_BEFORE_DUE = """
    INSERT INTO outbox.log (publisher, shard, n, epoch, nonce, owner, lease_until, first_tick, acked_id,
        ticks, destinations, folded, timeline, system_identifier)
    SELECT publisher, shard, 499990, epoch, 1, '', '-infinity', first_tick, acked_id, ticks, '{}',
        folded, timeline, system_identifier FROM outbox.progress"""
NEXT_IS_THERE = "SELECT exists (SELECT FROM outbox.log_partitions() WHERE from_n = 1000000)"
NEWEST = "SELECT max(n) FROM outbox.log"
UPKEEP_WAITS = """
    SELECT exists (SELECT FROM pg_stat_activity WHERE datname = current_database()
        AND application_name IN ('outbox-relay upkeep', 'outbox-relay upkeep worker')
        AND wait_event_type = 'Lock')"""


@pytest.mark.long
def test_the_logs_next_partition_does_not_wait_for_the_upkeep_interval(
        database, topic, make_relay):
    database.execute(LAST_BEFORE_DUE)
    relay = make_relay(postgres_upkeep_interval="1d").wait_ready()
    relay.wait_for(lambda: relay.metric("relay_partition_ahead_seconds"), what="the first upkeep")
    assert database.execute(NEXT_IS_THERE) == [(False,)]

    def passed():
        publish(database, topic, 1)
        return database.execute(NEWEST)[0][0] >= 500_000

    relay.wait_for(passed, what="half of the log's partition")
    relay.wait_for(lambda: database.execute(NEXT_IS_THERE)[0][0], timeout=30,
                   what="the next partition")


def test_the_logs_next_partition_does_not_wait_for_the_message_table(
        database, topic, make_relay):
    relay = make_relay(postgres_upkeep_interval="200ms", publisher_lease="1s").wait_ready()
    with locked(database, "LOCK TABLE ONLY outbox.message_default IN ACCESS EXCLUSIVE MODE"):
        wait_for(lambda: database.execute(UPKEEP_WAITS)[0][0], what="upkeep that waits for a lock")
        database.execute(LAST_BEFORE_DUE.replace("499990", "500000"))
        relay.wait_for(lambda: database.execute(NEXT_IS_THERE)[0][0], timeout=30,
                       what="the next partition")
        wait_for(lambda: database.execute(UPKEEP_WAITS)[0][0], what="upkeep that still waits")
        relay.wait_for(lambda: "[+] upkeep of postgres main" in readiness(relay)[1],
                       what="upkeep that is well")


def test_readiness_names_who_holds_the_lock_of_upkeep(database, make_relay):
    lock = "SELECT pg_backend_pid() FROM outbox.upkeep_lock WHERE work = 'partitions' FOR UPDATE"
    with contextlib.closing(database.connect(autocommit=False, application_name="by hand")) as holder:
        cursor = holder.cursor()
        cursor.execute(lock)
        (pid,) = cursor.fetchone()
        # more partitions than the migration made
        relay = make_relay(postgres_upkeep_interval="200ms", postgres_partitions_ahead="5").wait_ready()
        who = f'pid {pid}, user postgres, application_name "by hand"'
        until_ready_says(relay, 200, f'[!] upkeep of postgres main: the lock "partitions" of upkeep is held by {who}')
        relay.wait_event("upkeep_lock_held")
        assert len(relay.events("upkeep_lock_held")) == 1
        holder.rollback()
    until_ready_says(relay, 200, "[+] upkeep of postgres main")
    relay.wait_event("upkeep_lock_free")


# It is called while the default partition holds rows.
SLOW_REHOME = """
    CREATE OR REPLACE FUNCTION outbox.partition_rehome(of_table text, width interval) RETURNS text
        LANGUAGE sql
        AS 'SELECT pg_sleep(300)::text'"""
UPKEEP_RUNS = """
    SELECT exists (SELECT FROM pg_stat_activity WHERE datname = current_database()
        AND application_name = 'outbox-relay upkeep' AND wait_event = 'PgSleep')"""


def test_an_end_does_not_wait_for_upkeep(database, topic, make_relay):
    database.execute(SLOW_REHOME)
    database.execute("INSERT INTO outbox.message (topic, created_at) VALUES (%s, '2200-01-01')",
                     (topic,))
    relay = make_relay(publisher_lease="1m").wait_ready()
    relay.wait_for(lambda: database.execute(UPKEEP_RUNS)[0][0], what="upkeep under way")
    assert relay.stop(timeout=30) == 0


# --- metrics -------------------------------------------------------------------------------------

STRANGER = """
    INSERT INTO outbox.log (publisher, shard, n, epoch, nonce, owner, lease_until, first_tick, acked_id,
        ticks, destinations, folded, timeline, system_identifier)
    SELECT publisher, shard, n + 1, epoch, 1, 'stranger', '-infinity', first_tick, acked_id, ticks, '{}',
        folded, timeline, system_identifier FROM outbox.progress
    ON CONFLICT DO NOTHING RETURNING n"""


def test_latency_is_sampled_though_the_shard_was_lost_with_the_sample(
        database, kafka, topic, make_relay):
    """The sample is a row that waits for its topic, and nothing is under way."""
    absent = f"{topic}.later"
    relay = make_relay(publisher_lease="1s").wait_ready()
    publish(database, absent, 1)
    relay.wait_event("topic_missing", topic=absent)
    wait_for(lambda: database.execute(STRANGER), what="another owner", interval=0)
    relay.wait_event("shard_taken", count=2)
    kafka.create_topic(absent)
    try:
        relay.wait_for(lambda: relay.metric("relay_latency_produce_to_ack_seconds_count"),
                       what="a sample")
    finally:
        kafka.delete_topic(absent)


# --- doctor --------------------------------------------------------------------------------------

@pytest.fixture
def doctor(database, kafka):
    def findings(database_url=None):
        status, output, error = run_command(
            ["doctor"], {"DATABASE_URL": database_url or database.dsn,
                         "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap})
        assert status == 0, output + error
        return output

    return findings


def test_doctor_warns_of_several_hosts_of_which_one_may_be_a_standby(postgres, database, doctor):
    host = f"127.0.0.1:{postgres.port}"
    several = database.dsn.replace(host, f"{host},{host}")
    said = "several hosts are named without target_session_attrs"
    assert f"[warn]   postgres main: {said}" in doctor(several)
    assert "cure: add target_session_attrs=read-write to the dsn" in doctor(several)
    assert said not in doctor(f"{several}?target_session_attrs=read-write")
    assert said not in doctor()


def test_doctor_says_nothing_of_a_timeout_that_hurts_nobody(database, doctor):
    for setting in ("idle_in_transaction_session_timeout", "lock_timeout", "statement_timeout"):
        database.execute(f"ALTER ROLE postgres IN DATABASE {database.name} SET {setting} = '20s'")
    assert "_timeout =" not in doctor()


def test_doctor_prints_the_producer_settings_in_force(database, kafka):
    said = {"OUTBOX_RELAY_KAFKA_LINGER_MS": "7", "OUTBOX_RELAY_KAFKA_COMPRESSION_TYPE": "zstd"}
    servers = {"DATABASE_URL": database.dsn, "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap}
    lines = [run_command(["doctor"], servers | more)[1] for more in ({}, said)]
    assert "kafka main: producer: client.id = outbox-relay, " in lines[0]
    assert "compression.codec = none, linger.ms = 0, message.max.bytes = 1048576" in lines[0]
    assert "compression.codec = zstd, linger.ms = 7, " in lines[1]
    assert "transaction.timeout.ms" not in lines[0]
    exact = run_command(["doctor"], servers | {"OUTBOX_RELAY_PUBLISHER_DELIVERY": "exactly-once"})[1]
    assert "transaction.timeout.ms = 10000" in exact


def test_doctor_warns_of_a_topic_that_may_not_be_read(database):
    """Which resume = tail needs."""
    rights = {"authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
              "allow_everyone_if_no_acl_found": "true"}

    def doctor(**more):
        status, output, error = run_command(
            ["doctor"], {"DATABASE_URL": database.dsn,
                         "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": cluster.bootstrap, **more})
        assert status == 0, output + error
        return output

    with Kafka(nodes=1, **rights) as cluster:
        secret, plain = (cluster.create_topic(name, partitions=1) for name in ("secret", "plain"))
        for topic in (secret, plain):
            publish(database, topic, 1)
        said = "its records cannot be read"
        assert said not in doctor()
        cluster.tool("kafka.admin.AclCommand", "--bootstrap-server", cluster.bootstrap, "--add",
                     "--allow-principal", "User:ANONYMOUS", "--operation", "write", "--operation",
                     "describeconfigs", "--topic", secret)
        output = wait_for(lambda: said in (report := doctor()) and report, 60, "doctor's warning")
        assert f"[warn]   topic secret: {said}" in output and output.count(said) == 1
        assert ("cure: allow the relay READ on the topic, or set delivery = at-least-once and resume = "
                "none\n") in output
        assert said not in doctor(OUTBOX_RELAY_PUBLISHER_RESUME="none")
