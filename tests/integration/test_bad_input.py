"""Whatever is wrong: one clear line that names the place and the cure, the documented exit status,
and nothing published that should not be."""

import os
import re
import socket
import subprocess
import time

import psycopg2
import pytest
from psycopg2 import errors

from support.auditor import count_records, read_topics
from support.process import free_port, wait_for
from support.relay import binary, environment, run_command

CONFIG, DENIED, UNAVAILABLE, OUTPUT, FOUND, REFUSED, USAGE = 78, 77, 69, 74, 1, 65, 64


def refused(arguments, settings, expected, *words):
    """Runs it; stdout is empty, and of stderr exactly the last line is the program's own."""
    status, output, error = run_command(arguments, settings)
    lines = error.splitlines()
    assert status == expected, f"{status}: {error}"
    assert output == ""
    assert lines and lines[-1].startswith("outbox-relay: "), error
    # Before it, the log of what was found on the way, no errors.
    for line in lines[:-1]:
        assert line.startswith("ts=") and " level=error " not in line, error
    for word in words:
        assert word in lines[-1], f"{word!r} is missing: {lines[-1]}"
    return lines[-1]


# --- the command line -----------------------------------------------------------------------------


@pytest.mark.parametrize("words, message", [
    (["stauts"], "there is no command 'stauts' (did you mean status?); see `outbox-relay help`"),
    (["help", "stauts"], "(did you mean status?)"),
    (["help", "publisher", "lsit"], "(did you mean publisher list?)"),
    (["status", "--wacth"], "status has no option '--wacth' (did you mean --watch?); see `outbox-relay help status`"),
    (["paint"], "there is no command 'paint'; see `outbox-relay help`")])
def test_a_word_that_is_nearly_right(words, message):
    refused(words, {}, USAGE, message)


def test_a_call_without_a_command_prints_a_short_usage():
    status, output, error = run_command([])
    assert (status, error) == (USAGE, "")
    assert len(output.splitlines()) <= 24 and output.endswith("Example:\n  outbox-relay migrate up -h\n")


@pytest.mark.parametrize("words", [["status", "-h"], ["-h", "status"], ["help", "status"], ["status", "--help"]])
def test_a_command_explains_itself(words):
    status, output, error = run_command(words)
    assert (status, error) == (0, "")
    assert output.startswith("Usage: outbox-relay status ")
    assert "\n\nExample:\n  outbox-relay status --watch" in output


def test_a_variable_that_is_nearly_right():
    refused(["check-config"], {"OUTBOX_RELAY_PUBLISHER_LAESE": "5s"}, CONFIG,
            "(did you mean OUTBOX_RELAY_PUBLISHER_LEASE?)")


# --- the configuration ----------------------------------------------------------------------------


@pytest.mark.parametrize("text, words", [
    ("[publisher]\nlaese = 5s\n", ["x.ini:2:", '[publisher "main"]', "unknown key (did you mean lease?)"]),
    ("[publisher]\nlease = 5\n", ["x.ini:2:", "lease", "no unit", "5s"]),
    ("[publisher]\nlease = 5 parsecs\n", ["x.ini:2:", "lease", "not a duration", "5s"]),
    ("[publisher]\nmemory = 5 acres\n", ["x.ini:2:", "memory", "MiB"]),
    ("[publisher]\nlease = 1h\n\n[publisher]\nmemory = 1MiB\n",
     ["x.ini:4:", "duplicate section", "x.ini:1", "keep one"]),
    ('[publisher "a"]\n[publisher "a"]\n', ["x.ini:2:", "duplicate section", "x.ini:1"]),
    ("[publisher]\nlease = 1s\nlease = 2s\n", ["x.ini:3:", "duplicate key", "x.ini:2"]),
    ("[publisher]\nmax_in_flight = many\n", ["x.ini:2:", "max_in_flight", "whole number", "20000"]),
    ("[publisher]\nmax_in_flight = 0\n", ["x.ini:2:", "max_in_flight", "1 to 1000000"]),
    ("[publisher]\nsafety = sometimes\n", ["x.ini:2:", "safety", "warn | strict"]),
    ("[publisher]\nkafka = other\n", ["x.ini:2:", 'no [kafka "other"]', "declare it"]),
    ("[postgres]\nschema = Out-Box\n", ["x.ini:2:", "schema", "a-z"]),
    ("[slto]\n", ["x.ini:1:", "[slto]; there are", "[publisher]"]),
    ("[publishers]\n", ["x.ini:1:", "[publishers] (did you mean [publisher]?)"]),
    ("lease = 1s\n", ["x.ini:1:", "lease", "section"]),
    ("[publisher]\nlease\n", ["x.ini:2:", "key = value"]),
    ("[admin]\nlisten = here\n", ["x.ini:2:", "listen", "host:port"]),
    ("[postgres]\ndsn_file = /nowhere\n", ["x.ini:2:", "/nowhere", "No such file"]),
    ("[kafka]\nlinger.ms = 4\n", ["bootstrap.servers is missing", "host:port"]),
    ("[kafka]\nbootstrap.servers = x\nlinger = 4\n",
     ["x.ini:3:", "linger", "no such property", "CONFIGURATION.md"]),
    ("[kafka]\nbootstrap.servers = x\nlinger.ms = soon\n", ["x.ini:3:", "linger.ms = soon"]),
    ("[kafka]\nbootstrap.servers = x\nssl.ca.location = /nowhere\nsecurity.protocol = ssl\n",
     ['[kafka "main"]', "ssl.ca.location"]),
])
def test_a_wrong_configuration(tmp_path, text, words):
    (tmp_path / "x.ini").write_text(text)
    arguments = ["--config", tmp_path / "x.ini"]
    line = refused([*arguments, "check-config"], {}, CONFIG, *words)
    assert refused([*arguments, "run"], {}, CONFIG) == line


@pytest.mark.parametrize("name, value, words", [
    ("acks", "1", ["every in-sync replica", "use all"]),
    ("request.required.acks", "0", ["every in-sync replica", "use all"]),
    ("enable.idempotence", "false", ["doubles and reorders", "use true"]),
    ("enable.gapless.guarantee", "false", ["refused record", "use true"]),
    ("message.timeout.ms", "300000", ["given up", "use 0"]),
    ("delivery.timeout.ms", "300000", ["given up", "use 0"]),
    ("retries", "3", ["given up", "2147483647"]),
    ("max.in.flight", "10", ["order of at most 5", "1..5"]),
    ("queuing.strategy", "lifo", ["order", "use fifo"]),
    ("partitioner", "random", ["Java client", "remove it"]),
    ("transactional.id", "t", ["remove it"]),
    ("queue.buffering.max.messages", "10", ["memory", "remove it"]),
    ("group.id", "g", ["remove it"]),
])
def test_a_property_that_breaks_a_promise(tmp_path, name, value, words):
    (tmp_path / "x.ini").write_text(f"[kafka]\nbootstrap.servers = x\n{name} = {value}\n")
    refused(["--config", tmp_path / "x.ini", "run"], {}, CONFIG,
            "x.ini:3:", '[kafka "main"]', f"{name} = {value}", *words)


def test_a_wrong_variable():
    refused(["run"], {"OUTBOX_RELAY_PUBLISHER_LAESE": "5s"}, CONFIG, "OUTBOX_RELAY_PUBLISHER_LAESE", "unset")
    refused(["run"], {"OUTBOX_RELAY_PUBLISHER_LEASE": "5"}, CONFIG, "OUTBOX_RELAY_PUBLISHER_LEASE", "5s")
    refused(["--config", "/nowhere", "run"], {}, CONFIG, "/nowhere", "No such file")


def test_a_secret_is_in_no_message(tmp_path):
    for text in ("[postgres]\ndsn = postgresql://me:hunter2%zz@127.0.0.1:1/db\n"
                 "[kafka]\nbootstrap.servers = x\n",
                 "[kafka]\nbootstrap.servers = x\nsasl.pasword = hunter2\n",
                 "[kafka]\nbootstrap.servers = x\nssl.key.pem = hunter2\n"
                 "security.protocol = ssl\n",
                 "[kafka]\nbootstrap.servers = x\nsasl.jaas.config = Login password=hunter2;\n",
                 *(f"[kafka]\nbootstrap.servers = x\n[deliver \"a\"]\ntopics = x\n"
                   f"url = http://127.0.0.1:1/\ndedup = {line}\n" for line in (
                       "redis://u:hunter2@cache", "redis name=x redis://u:hunter2@cache",
                       "redis name=x redis://u:hunter2@cache=1", "redis name=u:hunter2@cache",
                       "redis name=x window=redis://u:hunter2@cache",
                       'postgres name=x "password=hunter2 host=x"'))):
        (tmp_path / "x.ini").write_text(text)
        assert "hunter2" not in refused(["--config", tmp_path / "x.ini", "run"], {}, CONFIG)


@pytest.mark.parametrize("kafka, postgres, warned", [
    ("127.0.0.1:1", "host=127.0.0.1 port=1", []),
    ("192.0.2.1:1", "host=192.0.2.1 port=1 connect_timeout=2",
     ["postgres_unencrypted", "kafka_unencrypted"]),
    ("192.0.2.1:1\nsecurity.protocol = ssl", "host=192.0.2.1 sslmode=require connect_timeout=2", [])])
def test_another_machine_without_tls_is_warned_of_once(tmp_path, kafka, postgres, warned):
    (tmp_path / "x.ini").write_text(
        f"[postgres]\ndsn = {postgres}\n[kafka]\nbootstrap.servers = {kafka}\n")
    _, _, error = run_command(["--config", tmp_path / "x.ini", "run"], {})
    events = re.findall(r"event=(\w+_unencrypted)", error)
    assert events == warned, error


@pytest.mark.parametrize("line, warned", [
    ('postgres name=x dsn="host=192.0.2.1"', True), ('postgres name=x dsn="host=127.0.0.1"', False),
    ('bloom ids=1k confirm=sql dsn="host=192.0.2.1" query="select true"', True), ("bloom ids=1k", False)])
def test_a_database_of_ids_on_another_machine_without_tls_is_warned_of(tmp_path, line, warned):
    (tmp_path / "x.ini").write_text(
        "[postgres]\ndsn = host=127.0.0.1 port=1\n[kafka]\nbootstrap.servers = 127.0.0.1:1\n"
        f"[deliver \"bills\"]\ntopics = x\nurl = http://127.0.0.1:1/\npath = {tmp_path}\ndedup = {line}\n")
    _, _, error = run_command(["--config", tmp_path / "x.ini", "run"], {})
    assert ("event=postgres_unencrypted deliver=bills" in error) == warned, error


# --- the database ---------------------------------------------------------------------------------


@pytest.fixture
def settings(database, kafka):
    return {"DATABASE_URL": database.dsn,
            "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap}


def test_a_dsn_that_refuses(settings):
    port = free_port()
    refused(["run"], {**settings, "DATABASE_URL": f"postgresql://127.0.0.1:{port}/x"}, UNAVAILABLE,
            "postgres main", f"127.0.0.1:{port}", "does Postgres run there")


@pytest.mark.long
def test_a_dsn_that_is_silent(settings):
    with socket.create_server(("127.0.0.1", 0), backlog=5) as silent:
        port = silent.getsockname()[1]
        began = time.monotonic()
        refused(["run"], {**settings, "DATABASE_URL": f"postgresql://127.0.0.1:{port}/x"},
                UNAVAILABLE, "postgres main", f"127.0.0.1:{port}", "no answer within")
        assert time.monotonic() - began < 20


def test_a_dsn_with_a_name_that_is_none(settings):
    refused(["run"], {**settings, "DATABASE_URL": "host=does-not-exist.invalid"}, UNAVAILABLE,
            "postgres main", "check the host in the dsn")
    refused(["run"], {**settings, "DATABASE_URL": "hots=x"}, CONFIG, "postgres main", "hots")


def test_a_database_that_is_not_there(settings, postgres):
    refused(["run"], {**settings, "DATABASE_URL": postgres.dsn("not_there")}, CONFIG,
            "postgres main", "not_there", "create the database")


@pytest.fixture
def role(postgres, database):
    """A login role with a password and no grants at all."""
    postgres.execute("CREATE ROLE stranger LOGIN PASSWORD 'right'")
    path = os.path.join(postgres.data, "pg_hba.conf")
    with open(path) as file:
        before = file.read()
    with open(path, "w") as file:
        file.write(f"host all stranger 127.0.0.1/32 scram-sha-256\n{before}")
    postgres.execute("SELECT pg_reload_conf()")

    def asks_for_a_password():
        try:
            postgres.connect(database.name, "stranger").close()
        except psycopg2.OperationalError:
            return True

    wait_for(asks_for_a_password, what="the rule")  # it is read by and by
    yield database.dsn.replace("postgres@", "stranger:right@")
    with open(path, "w") as file:
        file.write(before)
    postgres.execute("SELECT pg_reload_conf()")
    database.execute("DROP OWNED BY stranger")
    postgres.execute("DROP ROLE stranger")


def test_a_wrong_password(settings, role):
    refused(["run"], {**settings, "DATABASE_URL": role.replace("right", "wrong")}, DENIED,
            "postgres main", "password authentication failed", "check user and password")
    refused(["run"], {**settings, "DATABASE_URL": role.replace(":right", "")}, DENIED,
            "postgres main", "no password supplied", "PGPASSWORD")


def test_a_missing_privilege(settings, role, database, kafka, topic):
    database.execute("SELECT outbox.publish(%s::text, 'k', 'x')", (topic,))
    mine = {**settings, "DATABASE_URL": role}
    refused(["run", "--drain"], mine, DENIED, "postgres main", "role stranger lacks USAGE",
            "grant outbox_relay to")
    database.execute("GRANT outbox_reader TO stranger")
    refused(["run", "--drain"], mine, DENIED, "lacks", "grant outbox_relay to")
    status, output, _ = run_command(["doctor"], mine)
    assert status == FOUND and output.count("role stranger lacks") == 1
    assert output.count("cure: grant") == 1
    assert "[fail]" in output and "cure: grant outbox_relay" in output
    assert count_records(kafka.bootstrap, [topic]) == 0
    database.execute("GRANT outbox_relay TO stranger")
    assert run_command(["run", "--drain"], mine)[0] == 0
    assert count_records(kafka.bootstrap, [topic]) == 1


def test_a_schema_that_is_not_migrated(empty_database, kafka):
    refused(["run"], {"DATABASE_URL": empty_database.dsn,
                      "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap}, CONFIG,
            "postgres main", "schema outbox has no message table", "outbox-relay migrate up")


FUTURE = ("INSERT INTO outbox.migration (name, version, checksum, oldest_program, program)"
          " VALUES ('0099_future.sql', 99, '', '{}', '99.2.0')")


@pytest.mark.parametrize("change, words", [
    ("UPDATE outbox.migration SET checksum = 'of another file' WHERE version = 3",
     ["0003_log.sql", "put the file back"]),
    (FUTURE.format("99.1.0"), ["0099_future.sql", "99.1.0 or newer"]),
    ("DELETE FROM outbox.migration WHERE version = 5", ["0005", "outbox-relay migrate up"]),
], ids=["drifted", "too_new", "incomplete"])
def test_a_schema_that_does_not_fit(settings, database, kafka, topic, change, words):
    database.execute("SELECT outbox.publish(%s::text, 'k', 'x')", (topic,))
    database.execute(change)
    refused(["run", "--drain"], settings, CONFIG, "postgres main", *words)
    status, output, _ = run_command(["doctor"], settings)
    assert status == FOUND and "[fail]" in output
    assert count_records(kafka.bootstrap, [topic]) == 0


def test_a_newer_schema_that_this_program_may_run_on(settings, database, kafka, topic):
    """A rolling upgrade: the schema first, then one program after the other."""
    database.execute("SELECT outbox.publish(%s::text, 'k', 'x')", (topic,))
    database.execute(FUTURE.format("0.1.0"))
    assert run_command(["run", "--drain"], settings)[0] == 0
    assert count_records(kafka.bootstrap, [topic]) == 1


def test_a_publisher_that_is_not_there_or_is_split_otherwise(settings, database):
    refused(["run"], {**settings, "OUTBOX_RELAY_PUBLISHER_SHARDS": "3"}, CONFIG,
            "publisher main", "1 shards, not 3", "publisher split main --shards 3")
    database.execute("SELECT outbox.publisher_drop('main')")
    refused(["run"], settings, CONFIG, "publisher main", "has no such publisher",
            "outbox-relay publisher create main")


def test_a_publisher_that_may_not_go(settings, database):
    database.execute(
        "INSERT INTO outbox.scheduled (publisher, shard, id, created_at, event_id, topic, deliver_at, tick)"
        " VALUES ('main', 0, 1, now(), gen_random_uuid(), 't', now() + interval '1 h', 0)")
    agreed = ["--yes", "--reason", "other took over"]
    refused(["publisher", "drop", "main", *agreed], settings, REFUSED, "main is the last one", "force the drop with `last`")
    assert run_command(["publisher", "create", "other"], settings)[0] == 0
    refused(["publisher", "drop", "main"], settings, REFUSED, "--reason", "--yes")
    status, output, _ = run_command(["publisher", "drop", "main", "--dry-run"], settings)
    assert status == 0 and "0 parked" in output and "1 scheduled" in output
    assert database.execute("SELECT count(*) FROM outbox.scheduled") == [(1,)]
    for command in (["drop"], ["drop", *agreed], ["split", "--shards", "2"], ["split", "--cancel"]):
        refused(["publisher", command[0], "nobody", *command[1:]], settings, REFUSED,
                "publisher nobody does not exist")
    assert run_command(["publisher", "drop", "main", *agreed], settings)[0] == 0
    assert database.execute("SELECT name FROM outbox.publisher") == [("other",)]
    assert database.execute("SELECT count(*) FROM outbox.scheduled") == [(0,)]


def test_a_standby_or_a_read_only_role(settings, role, database):
    database.execute("GRANT outbox_relay TO stranger")
    database.execute("ALTER ROLE stranger SET default_transaction_read_only = on")
    refused(["run"], {**settings, "DATABASE_URL": role}, CONFIG, "postgres main", "read-only",
            "reset default_transaction_read_only")


def test_a_disk_of_postgres_that_is_full(database, kafka, topic, make_relay, make_writers):
    """What cannot be noted in the log is not published; when there is room again, it goes on."""
    def disk(action):
        database.execute("CREATE OR REPLACE FUNCTION disk() RETURNS trigger LANGUAGE plpgsql"
                         f" AS $$ BEGIN {action}; END $$")

    disk("RETURN NEW")
    database.execute("CREATE TRIGGER disk BEFORE INSERT ON outbox.log"
                     " FOR EACH ROW EXECUTE FUNCTION disk()")
    relay = make_relay().wait_ready()
    writers = make_writers(keys=20)

    def all_there():
        return count_records(kafka.bootstrap, [topic]) >= len(writers.committed)

    writers.run(50)
    relay.wait_for(all_there, 60, "the first rows")
    published = len(writers.committed)
    disk("RAISE EXCEPTION 'could not extend file: No space left on device'"
         " USING errcode = '53100'")
    writers.run(50)
    failed = relay.wait_event("log_call_failed", count=3)[-1]
    assert "No space left on device" in failed["error"] and "53100" in failed["error"]
    assert count_records(kafka.bootstrap, [topic]) == published
    disk("RETURN NEW")
    relay.wait_for(all_there, 60, "the rows that waited")


# --- the cluster, the machine ---------------------------------------------------------------------


def test_safety_strict_on_a_cluster_that_can_lose_data(settings, database, kafka, topic):
    database.execute("SELECT outbox.publish(%s::text, 'k', 'x')", (topic,))
    strict = {**settings, "OUTBOX_RELAY_PUBLISHER_SAFETY": "strict"}
    refused(["run", "--drain"], strict, CONFIG, "kafka main", "one broker", "three brokers",
            "safety = strict")
    status, output, _ = run_command(["doctor"], strict)
    assert status == FOUND and "[unsafe]" in output
    assert count_records(kafka.bootstrap, [topic]) == 0


@pytest.mark.rotated
@pytest.mark.parametrize("config, words", [
    ({"min_insync_replicas": 1}, ["min.insync.replicas = 1", "set min.insync.replicas = 2"]),
    ({"unclean_leader_election_enable": "true"}, ["unclean.leader.election.enable"]),
    ({"replicas": 1, "min_insync_replicas": 1}, ["replication factor 1", "3"]),
], ids=["min_isr", "unclean", "one_replica"])
def test_safety_strict_on_a_topic_that_can_lose_data(
        database, kafka3, request, config, words):
    name = f"strict-{request.node.callspec.id}"
    kafka3.create_topic(name, partitions=1, **config)
    database.execute("SELECT outbox.publish(%s::text, 'k', 'x')", (name,))
    refused(["run", "--drain"],
            {"DATABASE_URL": database.dsn, "OUTBOX_RELAY_PUBLISHER_SAFETY": "strict",
             "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": kafka3.bootstrap}, CONFIG,
            f"topic {name}", "safety = strict", *words)
    assert count_records(kafka3.bootstrap, [name]) == 0


def test_safety_strict_on_a_safe_cluster(database, kafka3):
    kafka3.create_topic("strict-safe", partitions=1)
    database.execute("SELECT outbox.publish('strict-safe', 'k', 'x')")
    status, _, error = run_command(
        ["run", "--drain"],
        {"DATABASE_URL": database.dsn, "OUTBOX_RELAY_PUBLISHER_SAFETY": "strict",
         "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": kafka3.bootstrap})
    assert status == 0, error
    assert count_records(kafka3.bootstrap, ["strict-safe"]) == 1


def test_an_occupied_port(settings, database, kafka, topic):
    database.execute("SELECT outbox.publish(%s::text, 'k', 'x')", (topic,))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        refused(["run", "--drain"], {**settings, "OUTBOX_RELAY_ADMIN_LISTEN": address}, CONFIG,
                address, "in use")
    assert count_records(kafka.bootstrap, [topic]) == 0


def test_a_full_disk_for_the_output(settings):
    for arguments in (["status"], ["doctor"], ["config", "--print-sample"], ["help"]):
        with open("/dev/full", "w") as full:
            done = subprocess.run([binary(), *arguments], stdout=full, stderr=subprocess.PIPE,
                                  text=True, timeout=60, env=environment(settings))
        assert done.returncode == OUTPUT, arguments
        assert "the output could not be written: No space left on device" in done.stderr


def test_a_relay_whose_log_has_no_room_goes_on(settings, database, kafka, topic):
    database.execute("SELECT outbox.publish(%s::text, 'k', 'x')", (topic,))
    with open("/dev/full", "w") as full:
        done = subprocess.run([binary(), "run", "--drain"], stderr=full, timeout=60,
                              env=environment(settings))
    assert done.returncode == 0
    assert count_records(kafka.bootstrap, [topic]) == 1


def test_a_topic_that_is_missing_is_waited_for_and_reported(
        settings, database, kafka, topic, make_relay):
    missing = topic + ".missing"
    relay = make_relay().wait_ready()
    for name in (missing, topic, missing, topic):
        database.execute("SELECT outbox.publish(%s::text, 'k', 'x')", (name,))
    event = relay.wait_event("topic_missing", topic=missing)[0]
    assert "wait until the topic exists" in event["consequence"]
    # Others go on.
    relay.wait_for(lambda: count_records(kafka.bootstrap, [topic]) == 2, 60, "the other topic")
    relay.wait_for(lambda: f"waits for topic {missing}" in relay.get("/readyz?verbose")[1], 60,
                   "readiness")
    status, output, _ = run_command(["doctor"], settings)
    assert status == FOUND
    assert f"[fail]   topic {missing}" in output
    kafka.create_topic(missing)
    relay.wait_for(lambda: count_records(kafka.bootstrap, [missing]) == 2, 60, "the topic's rows")
    assert relay.stop() == 0
    assert [record.payload for record in read_topics(kafka.bootstrap, [missing])] == [b"x", b"x"]
    assert count_records(kafka.bootstrap, [topic]) == 2
    kafka.delete_topic(missing)


def test_a_partition_that_the_topic_does_not_have(database, kafka, topic, make_relay):
    """Legal at insert, since only Kafka knows; it is parked, and said which row it is."""
    relay = make_relay().wait_ready()
    database.execute("INSERT INTO outbox.message (topic, key, partition) VALUES (%s, 'a', 0)",
                     (topic,))
    row = database.execute("INSERT INTO outbox.message (topic, key, partition)"
                           " VALUES (%s, 'b', 6) RETURNING id", (topic,))[0][0]
    parked = relay.wait_event("message_parked", topic=topic, id=str(row))[0]
    assert parked["error"] == "the row wants partition 6, the topic has 6"
    # the line comes when it is refused, the row with the next one of the log
    relay.wait_for(lambda: database.execute("SELECT id, state, error FROM outbox.parked") == [
        (row, "waiting", parked["error"])], what="the parked row")
    relay.wait_ready()
    relay.wait_for(lambda: count_records(kafka.bootstrap, [topic]) == 1, what="the other row")


# --- rows -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns, values, constraint", [
    ("topic", "'no blanks'", "topic_is_a_kafka_topic_name"),
    ("topic, headers", "'t', '7'", "headers_are_an_object_or_an_array_of_pairs"),
    ("topic, payload", "'t', repeat('x', 1000001)", "message_fits_max_message_bytes"),
])
def test_a_row_that_is_refused_at_insert(database, columns, values, constraint):
    with pytest.raises(errors.CheckViolation) as refusal:
        database.execute(f"INSERT INTO outbox.message ({columns}) VALUES ({values})")
    assert refusal.value.diag.constraint_name == constraint


def test_the_configured_size_is_what_is_refused(database):
    database.migrate("--max-message-bytes", 2000)
    database.execute("SELECT outbox.publish('t', 'k', repeat('x', 2000))")
    with pytest.raises(errors.CheckViolation, match="message_fits_max_message_bytes"):
        database.execute("SELECT outbox.publish('t', 'k', repeat('x', 2001))")
