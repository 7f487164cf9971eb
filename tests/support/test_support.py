"""The harness itself: a judge that finds nothing is worth nothing until it has found something."""

import argparse
import importlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
import uuid

import psycopg2
import pytest
from confluent_kafka import Producer

from support.auditor import (Message, Record, audit, audit_topics, count_records, crc_holds,
                             payload, read_topics)
from support.postgres import Postgres
from support.process import Process, Timeout, wait_for
from support.proxy import Proxy
from support.relay import log_fields
from support.writers import Writers

TABLE = """
CREATE SCHEMA outbox;
CREATE TABLE outbox.message (
    txid xid8 NOT NULL DEFAULT pg_current_xact_id(), id bigint GENERATED ALWAYS AS IDENTITY,
    event_id uuid NOT NULL DEFAULT gen_random_uuid(), topic text NOT NULL, key text,
    payload text, headers jsonb, partition int, key_bytes bytea, payload_bytes bytea);
CREATE FUNCTION outbox.publish(topic text, key text, payload text, headers jsonb DEFAULT null,
    event_id uuid DEFAULT gen_random_uuid(), deliver_at timestamptz DEFAULT null)
    RETURNS uuid LANGUAGE sql
    BEGIN ATOMIC
        INSERT INTO outbox.message (topic, key, payload, headers, event_id)
        VALUES (publish.topic, publish.key,
                publish.payload, publish.headers, publish.event_id)
        RETURNING event_id;
    END;
"""


@pytest.fixture
def outbox(empty_database):
    """A stand-in for the schema: these tests are about the harness and need no relay."""
    empty_database.execute(TABLE)
    return empty_database


def made(count, key="k"):
    return [Message(str(uuid.uuid4()), "t", key.encode(), payload(key, seq))
            for seq in range(1, count + 1)]


def records(messages, partition=0, positions=None):
    """What a faultless relay would leave in one partition."""
    return [Record(message.topic, partition, offset, message.key, message.payload,
                   [("outbox-id", message.event_id.encode()),
                    ("outbox-position", (positions or [f"2:main:1a2b3c4d:0:9:1:{offset}"] * 99)[offset]
                     .encode())], (1, 0))
            for offset, message in enumerate(messages)]


def counts(verdict):
    names = (*verdict.FAULTS, "duplicates")
    return {name: getattr(verdict, name) for name in names if getattr(verdict, name)}


def test_a_faultless_log_is_found_correct():
    messages = made(5)
    verdict = audit(messages, records(messages))
    assert verdict.correct and counts(verdict) == {}
    assert (verdict.committed, verdict.published, verdict.records) == (5, 5, 5)


def test_a_missing_record_is_lost():
    messages = made(5)
    verdict = audit(messages, records(messages[:3]))
    assert counts(verdict) == {"lost": 2}
    assert set(verdict.samples["lost"]) == {message.event_id for message in messages[3:]}


def test_a_record_that_nobody_committed_is_a_phantom():
    messages = made(5)
    assert counts(audit(messages[:4], records(messages))) == {"phantom": 1}


def test_a_record_without_our_header_is_a_phantom():
    messages = made(1)
    bare = records(messages)[0]._replace(headers=[])
    assert counts(audit(messages, [bare])) == {"phantom": 1, "lost": 1}


def test_an_earlier_message_after_a_later_one_is_out_of_order():
    messages = made(4)
    swapped = [messages[index] for index in (0, 2, 1, 3)]
    assert counts(audit(messages, records(swapped))) == {"out_of_order": 1}


def test_keys_are_ordered_apart():
    ours, theirs = made(3, "a"), made(3, "b")
    mixed = [theirs[0], ours[0], theirs[1], theirs[2], ours[1], ours[2]]
    assert audit(ours + theirs, records(mixed)).correct


def test_an_equal_repetition_is_only_a_duplicate():
    messages = made(3)
    seen = records(messages)
    verdict = audit(messages, seen + [record._replace(offset=record.offset + 3)
                                      for record in seen[:2]])
    assert verdict.correct and counts(verdict) == {"duplicates": 2}


@pytest.mark.parametrize("change", [
    {"headers": [("outbox-position", b"2:main:1a2b3c4d:0:9:1:7")]}, {"payload": b"{}"}, {"key": b"x"}])
def test_a_repetition_that_differs_is_found(change):
    messages = made(1)
    seen = records(messages)[0]
    if "headers" in change:
        change = {"headers": [seen.headers[0], *change["headers"]]}
    verdict = audit(messages, [seen, seen._replace(offset=1, **change)])
    assert verdict.duplicates == 1 and verdict.unequal == 1 and not verdict.correct


def test_a_changed_payload_is_found():
    messages = made(2)
    seen = records(messages)
    seen[1] = seen[1]._replace(payload=payload("k", 2, more=1))
    assert counts(audit(messages, seen)) == {"altered": 1}


def test_a_wrong_checksum_is_found_even_when_both_sides_agree():
    spoiled = Message(str(uuid.uuid4()), "t", b"k", payload("k", 1).replace(b"1", b"2", 1))
    assert counts(audit([spoiled], records([spoiled]))) == {"altered": 1}
    assert crc_holds(payload("k", 1)) and crc_holds(b"no checksum at all")


def test_a_key_in_two_partitions_is_found():
    messages = made(2)
    seen = records(messages[:1]) + records(messages[1:], partition=1)
    assert counts(audit(messages, seen)) == {"scattered": 1}


def test_messages_without_a_key_may_stand_anywhere():
    messages = [Message(str(uuid.uuid4()), "t", None, payload(None, seq)) for seq in (2, 1)]
    seen = records(messages[:1]) + records(messages[1:], partition=1)
    assert audit(messages, seen).correct


def test_tombstones_and_foreign_payloads_are_only_counted():
    messages = [Message(str(uuid.uuid4()), "t", b"k", body) for body in (None, b"\xff", b"[1]")]
    assert audit(messages, records(messages)).correct


def test_a_position_that_goes_back_is_found():
    messages = made(3)
    lane = ["2:main:1a2b3c4d:0:9:5:1", "2:main:1a2b3c4d:0:9:7:1", "2:main:1a2b3c4d:0:9:6:9"]
    assert counts(audit(messages, records(messages, positions=lane))) == {"backwards": 1}
    other_epoch = [*lane[:2], "2:main:1a2b3c4d:0:8:6:9"]
    assert audit(messages, records(messages, positions=other_epoch)).correct


def test_what_the_writers_committed_is_what_the_table_holds(outbox, seed):
    writers = Writers(outbox.dsn, ["t1", "t2"], seed, connections=4, keys=20, rollback=0.2)
    with writers.held_open(), writers.unrelated_transaction():
        writers.run(300)
    assert writers.rolled_back > 20 and not writers.in_doubt
    rows = outbox.execute("SELECT event_id::text, topic, coalesce(key_bytes, convert_to(key, 'UTF8')),"
                          " coalesce(payload_bytes, convert_to(payload, 'UTF8')) FROM outbox.message")
    table = {Message(*row[:2], row[2] and bytes(row[2]), bytes(row[3])) for row in rows}
    assert table == set(writers.committed)
    # The order of ids is the order of each key's commits.
    assert outbox.execute("""
        SELECT count(*) FROM (
            SELECT seq - lag(seq) OVER (PARTITION BY key ORDER BY id) AS step FROM (
                SELECT key, id, (convert_from(coalesce(payload_bytes, convert_to(payload, 'UTF8')),
                    'UTF8')::json->>'seq')::bigint AS seq
                FROM (SELECT id, coalesce(key_bytes, convert_to(key, 'UTF8')) AS key, payload,
                    payload_bytes FROM outbox.message) AS m WHERE key IS NOT NULL) AS s) AS d
        WHERE step <> 1""") == [(0,)]


def test_writers_survive_a_server_that_is_killed(outbox, seed):
    server = outbox.postgres
    with Writers(outbox.dsn, ["t"], seed, connections=4, keys=20) as writers:
        wait_for(lambda: len(writers.committed) > 100, 30, "the first hundred messages")
        server.kill()
        server.start()
        before = len(writers.committed)
        wait_for(lambda: len(writers.committed) > before + 100, 30, "a hundred more")
    assert writers.interrupted > 0
    rows = outbox.execute("SELECT event_id::text FROM outbox.message")
    table = {row[0] for row in rows}
    known = {message.event_id for message in writers.committed}
    assert known <= table, "a commit that was answered is gone"
    assert table <= known | {message.event_id for message in writers.in_doubt}


def test_writers_pass_through_pgbouncer(outbox, pgbouncer, seed):
    writers = Writers(pgbouncer.dsn(outbox.name), ["t"], seed, connections=30, keys=20)
    writers.run(200)
    count = outbox.execute("SELECT count(*) FROM outbox.message")[0][0]
    assert count == len(writers.committed) > 0


def test_a_huge_transaction_is_one_commit(outbox, seed):
    Writers(outbox.dsn, ["t"], seed).huge_transaction(20000, keys=100)
    assert outbox.execute("SELECT count(*), count(DISTINCT txid::text), count(DISTINCT key) "
                          "FROM outbox.message") == [(20000, 1, 100)]


def test_the_whole_audit_works_on_real_servers(outbox, kafka, topic, seed):
    writers = Writers(outbox.dsn, [topic], seed, connections=4, keys=20)
    writers.run(100)
    rows = outbox.execute("SELECT event_id::text, coalesce(key_bytes, convert_to(key, 'UTF8')),"
                          " coalesce(payload_bytes, convert_to(payload, 'UTF8')) FROM outbox.message ORDER BY id")
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True,
                         "partitioner": "murmur2_random"})
    for event_id, key, body in rows:
        producer.produce(topic, bytes(body), key and bytes(key),
                         headers=[("outbox-id", event_id)])
        producer.poll(0)
    assert producer.flush(30) == 0
    verdict = audit_topics(outbox.dsn, kafka.bootstrap, [topic])
    assert verdict.correct and verdict.duplicates == 0, verdict
    assert verdict.published == len(rows) == count_records(kafka.bootstrap, [topic])
    line = kafka.console_consumer(topic, 1)[0]
    assert "outbox-id:" in line and "Partition:" in line


def test_an_empty_topic_is_read_to_its_end(kafka, topic):
    assert list(read_topics(kafka.bootstrap, [topic])) == []


def test_topics_can_be_changed_while_they_are_used(kafka, topic):
    kafka.alter_topic(topic, max_message_bytes=2000)
    kafka.alter_topic(topic, retention_ms=123456)
    config = kafka.topic_config(topic)
    assert (config["max.message.bytes"], config["retention.ms"]) == ("2000", "123456")
    kafka.add_partitions(topic, 8)
    assert kafka.leader(topic, 7) == 1


def test_a_killed_leader_is_replaced(kafka3):
    topic = kafka3.create_topic(f"killed_leader_{os.getpid()}", partitions=3)
    first = kafka3.leader(topic, 0)
    kafka3.kill(first)
    wait_for(lambda: kafka3.leader(topic, 0) not in (first, -1), 60, "a new leader")
    wait_for(lambda: first not in kafka3.in_sync(topic, 0), 60, "a smaller ISR")
    kafka3.start_node(first)
    wait_for(lambda: kafka3.in_sync(topic, 0) == {1, 2, 3}, 60, "all in sync")
    producer = Producer({"bootstrap.servers": kafka3.bootstrap_proxied})
    producer.produce(topic, b"through the proxies")
    assert producer.flush(30) == 0
    assert sum(node.proxy.accepted for node in kafka3.nodes.values()) > 0
    kafka3.delete_topic(topic)


def test_postgres_can_be_paused(postgres):
    postgres.pause()
    try:
        with pytest.raises(psycopg2.OperationalError):
            postgres.connect(connect_timeout=2)
    finally:
        postgres.resume()
    assert postgres.execute("SELECT 1") == [(1,)]


def test_the_looks_of_a_wait_share_a_session_until_its_end_or_the_servers():
    with Postgres() as server:
        sessions = []

        def look():
            sessions.append(server.execute("SELECT pg_backend_pid()")[0][0])
            if len(sessions) == 2:
                server.kill()
                server.start()
            return len(sessions) == 4

        wait_for(look)
        assert sessions[0] == sessions[1] != sessions[2] == sessions[3]
        wait_for(lambda: not server.execute("SELECT 1 FROM pg_stat_activity WHERE pid = %s", (sessions[3],)),
                 what="the end of the session")
        assert len({server.execute("SELECT pg_backend_pid()")[0][0] for _ in range(3)}) == 3


def test_prepared_transactions_are_possible(postgres):
    connection = postgres.connect(autocommit=False)
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_current_xact_id()")
            cursor.execute("PREPARE TRANSACTION 'orphan'")
        assert postgres.execute("SELECT gid FROM pg_prepared_xacts") == [("orphan",)]
        postgres.execute("ROLLBACK PREPARED 'orphan'")
    finally:
        connection.close()


@pytest.fixture
def echo():
    """A proxy in front of a server that sends back what it gets."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve_one(connection):
        with connection:
            try:
                while data := connection.recv(65536):
                    connection.sendall(data)
            except OSError:
                pass

    def serve():
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=serve_one, args=(connection,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    with Proxy(server.getsockname()[1]) as proxy:
        yield proxy
    server.close()


def ask(client, data=b"hello"):
    client.sendall(data)
    answer = b""
    while len(answer) < len(data):
        more = client.recv(65536)
        if not more:
            raise ConnectionError("closed")
        answer += more
    return answer


def test_the_proxy_stalls_and_heals(echo):
    with socket.create_connection(("127.0.0.1", echo.port)) as client:
        assert ask(client) == b"hello"
        echo.stall()
        client.settimeout(0.3)
        with pytest.raises(TimeoutError):
            ask(client)
        echo.heal()
        client.settimeout(60)
        assert client.recv(5) == b"hello"
        big = bytes(range(256)) * 4000
        assert ask(client, big) == big


def test_the_proxy_cuts_resets_and_refuses(echo):
    for end, expected in ((echo.cut, ConnectionError), (echo.reset, ConnectionResetError)):
        with socket.create_connection(("127.0.0.1", echo.port)) as client:
            ask(client)
            end()
            with pytest.raises(expected):
                client.settimeout(60)
                ask(client)
    echo.refuse()
    with socket.create_connection(("127.0.0.1", echo.port)) as client:
        with pytest.raises(ConnectionError):
            ask(client)
    echo.heal()
    with socket.create_connection(("127.0.0.1", echo.port)) as client:
        assert ask(client) == b"hello"


def test_the_proxy_delays_and_throttles(echo):
    with socket.create_connection(("127.0.0.1", echo.port)) as client:
        echo.delay(0.1)
        began = time.monotonic()
        ask(client)
        assert 0.2 <= time.monotonic() - began < 30
        echo.heal()
        echo.throttle(50_000)
        began = time.monotonic()
        ask(client, b"x" * 10_000)
        assert 0.2 <= time.monotonic() - began < 30


def test_a_process_is_paused_killed_and_reported(tmp_path):
    process = Process(["sh", "-c", "echo begun; exec sleep 600"], tmp_path / "log")
    wait_for(lambda: "begun" in process.output(), 60, "the first line")
    process.pause()
    assert process.running and process.memory() > 0
    process.resume()
    assert process.kill() == -9 and not process.running
    stubborn = Process(["sh", "-c", "trap '' TERM; echo begun; while :; do sleep 1; done"],
                       tmp_path / "log2")
    wait_for(lambda: "begun" in stubborn.output(), 60, "the first line")
    with pytest.raises(Timeout):
        stubborn.stop(timeout=0.3)
    assert not stubborn.running


def test_log_lines_are_read_as_fields():
    line = r'ts=2026-01-02T03:04:05.678Z level=warn event=x id=7 error="no \"way\""'
    assert log_fields(line) == {"ts": "2026-01-02T03:04:05.678Z", "level": "warn", "event": "x",
                                "id": "7", "error": 'no "way"'}


PEERS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "bench", "peers")


def test_the_bench_beside_peers_starts_and_explains_itself():
    done = subprocess.run([os.path.join(PEERS, "run"), "--help"], capture_output=True, text=True,
                          timeout=60)
    assert done.returncode == 0, done.stderr
    assert "--messages" in done.stdout and "--quick" in done.stdout and not done.stderr
    refused = subprocess.run([os.path.join(PEERS, "run"), "--messages", "1"],
                             capture_output=True, text=True, timeout=60)
    assert refused.returncode == 2 and "at least 1000" in refused.stderr


@pytest.fixture
def peers_load(tmp_path):
    """The writer and consumer of the bench, which compiles them by itself, too."""
    program = tmp_path / "load"
    libraries = subprocess.run(["pkg-config", "--cflags", "--libs", "libpq", "rdkafka"],
                               check=True, capture_output=True, text=True).stdout.split()
    subprocess.run(["cc", "-std=gnu11", "-O2", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror",
                    "-o", program, *[os.path.join(PEERS, name)
                                     for name in ("load.c", "watch.c", "write.c")],
                    *libraries, "-pthread"], check=True, timeout=120)
    return program


def test_the_load_of_the_bench_beside_peers_refuses_half_a_command(peers_load):
    refused = subprocess.run([peers_load, "read", "--topic", "t"], capture_output=True, text=True,
                             timeout=60)
    assert refused.returncode == 2 and "usage" in refused.stdout


def test_the_consumer_of_the_bench_beside_peers_counts_repetitions_and_inversions(
        peers_load, kafka, topic):
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True})
    producer.produce(topic, b'{"n":1,"t":0}', partition=0)  # before it looks: not its business
    assert producer.flush(30) == 0
    with subprocess.Popen([peers_load, "read", "--brokers", kafka.bootstrap, "--topic", topic,
                           "--first", "0", "--count", "10001", "--at", "4000"],
                          stdout=subprocess.PIPE, text=True) as reader:
        assert '"ready"' in reader.stdout.readline()
        # 0 and 10000 are of one key: the second before the first
        for number in [10000, *range(6000), *range(5990, 6000), *range(6000, 10000), 50000]:
            producer.produce(topic, b'{"n":%d,"t":0}' % number, partition=0)
        assert producer.flush(30) == 0
        events = [json.loads(line) for line in reader.stdout]
    assert [event["event"] for event in events] == ["first", "at", "last", "done"]
    assert (events[-1]["twice"], events[-1]["backwards"]) == (10, 1)
    assert events[-1]["span_us"] > 0


@pytest.fixture
def peers_table(monkeypatch):
    monkeypatch.syspath_prepend(PEERS)
    yield importlib.import_module("table")
    sys.modules.pop("table")


def test_a_bound_of_the_bench_beside_peers_is_judged_by_medians(peers_table):
    figures = {key: [100.0, 1.0, 1.0] for key in
               [key for key, _, _ in peers_table.DRAIN + peers_table.REST_AND_CRASH]
               + [f"rate1000_{key}" for key, _, _ in peers_table.AT_RATE]}
    systems = ("default", "tuned", "relay")
    results = {system: dict(figures) for system in systems}
    results["relay"]["drain_rate"] = [4.0, 3.9, 90.0]
    results["relay"]["crash_twice"] = [0.0]
    results["tuned"]["crash_twice"] = [400.0]
    result = peers_table.summary(results, {"titles": dict.fromkeys(systems, "a system")})
    bounds = {bound["name"]: bound for bound in result["bounds"]}
    assert bounds["drain rate, beside tuned"]["value"] == 4.0
    assert bounds["drain rate, beside tuned"]["reached"]
    assert not bounds["messages a CPU second in the drain, beside tuned"]["reached"]
    assert bounds["published twice after kill -9, beside tuned"]["reached"]
    # beside nothing: a peer that repeated nothing leaves no ratio to reach
    results["tuned"]["crash_twice"] = [0.0]
    result = peers_table.summary(results, {"titles": dict.fromkeys(systems, "a system")})
    assert not [bound for bound in result["bounds"] if "published twice" in bound["name"]][0][
        "reached"]


def test_a_part_of_the_bench_beside_peers_has_its_rows_and_bounds_only(peers_table):
    titles = {"default": "Debezium, default", "tuned": "Debezium, tuned", "relay": "outbox-relay"}
    figures = {f"rate{rate}_{key}": [2.0] for rate in (4, 1000) for key, _, _ in peers_table.AT_RATE}
    about = {"titles": titles, "rates": [4, 1000], "loads": [{"load": 0.0}], "date": "2026-11-26", "machine": "m",
             "versions": "v", "command": "c", "messages": 1, "seconds": 1, "idle_seconds": 1, "runs": 1}
    text = peers_table.text(peers_table.summary({system: dict(figures) for system in titles}, about))
    assert "| 4/s: commit to consumer, p50, ms" in text and "| 1,000/s: process and its sessions, % core" in text
    assert "drain" not in text.partition("| figure")[2]
    assert "p50 at 1,000/s, beside tuned" in text and "idle" not in text.partition("| bound")[2]


CHARTS = os.path.join(os.path.dirname(PEERS), "charts")


@pytest.fixture
def charts(monkeypatch):
    monkeypatch.syspath_prepend(CHARTS)
    yield importlib.import_module("charts")
    sys.modules.pop("charts")


def test_the_charts_are_listed_and_a_wrong_name_is_refused(charts):
    def run(*words):
        return subprocess.run([os.path.join(CHARTS, "run"), *words], capture_output=True, text=True, timeout=60)

    assert [line.split()[0] for line in run("--list").stdout.splitlines()] == [chart.name for chart in charts.CHARTS]
    assert "there is no chart 'paint'" in run("paint").stderr
    assert "needs --peers FILE" in run("rate_p50").stderr


def test_a_chart_of_the_peers_is_made_of_the_parts_of_a_run(charts, tmp_path):
    about = {"titles": {"default": "Debezium, default", "relay": "outbox-relay"}, "date": "2026-11-26",
             "versions": "v", "command": "tests/bench/peers/run"}
    for rate, p50 in ((4, 3.04), (1000, 2.5)):
        medians = {system: {f"rate{rate}_p50": p50 * factor} for system, factor in (("relay", 1), ("default", 100))}
        (tmp_path / f"{rate}").write_text(json.dumps({"about": {**about, "rates": [rate]}, "medians": medians}))
    options = argparse.Namespace(build="build", peers=[tmp_path / "1000", tmp_path / "4"], into=tmp_path, quick=False,
                                 runs=None)
    charts.write(charts.Bench(options), charts.CHARTS[0])
    made = json.loads((tmp_path / "rate_p50.json").read_text())
    assert made["x"]["values"] == [4, 1000] and made["kind"] == "lines" and made["scale"] == "log"
    assert made["series"] == [{"name": "outbox-relay", "values": [3.04, 2.5]},
                              {"name": "Debezium, default", "values": [304, 250], "colour": "fourth"}]
    assert made["command"] == "command: tests/bench/peers/run; tests/bench/peers/run; tests/bench/charts/run --peers FILE rate_p50"


def test_bars_beside_the_peers_need_all_their_figures(charts, tmp_path, monkeypatch):
    about = {"titles": {"default": "Debezium, default", "relay": "outbox-relay"}, "date": "2026-11-26", "versions": "v",
             "command": "tests/bench/peers/run", "messages": 100_000, "rates": []}
    path = tmp_path / "figures"
    path.write_text(json.dumps({"about": about, "medians": {"relay": {"drain_rate": 4000}, "default": {"drain_rate": 300}}}))
    bench = charts.Bench(argparse.Namespace(build="build", peers=[path], into=tmp_path, quick=True, runs=None))
    monkeypatch.setattr(bench, "figures", lambda *words: {"drain": {"value": 5000, "beside": 6000}})
    chart = {chart.name: chart for chart in charts.CHARTS}
    charts.write(bench, chart["drain"])
    made = json.loads((tmp_path / "drain.json").read_text())
    assert made["kind"] == "bars" and made["groups"] == [
        "100,000 rows of 300 B", "10,000 rows of 4,096 B", "100,000 rows of 300 B, beside Debezium"]
    assert {row["name"]: row["values"] for row in made["series"]} == {
        "outbox-relay": [5000, 5000, 4000], "limit": [6000, 6000, None], "Debezium, default": [None, None, 300]}
    with pytest.raises(SystemExit, match="have no figure rate1000_p50: "):
        charts.write(bench, chart["latency"])


def test_the_times_of_a_topic_are_those_of_its_batches(charts, kafka, topic):
    kafka.alter_topic(topic, **{"message.timestamp.type": "LogAppendTime"})
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    began = time.time() * 1000
    for partition in (0, 5, 0):
        producer.produce(topic, b"x", partition=partition)
        assert producer.flush(30) == 0
        done = time.time()
        wait_for(lambda: time.time() > done + 0.002, what="another millisecond")
    first, last = charts.appended_ms(kafka, topic)
    assert began - 1000 <= first < last <= time.time() * 1000 + 1000
