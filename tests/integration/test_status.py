"""`status` says what is known, what is unknown and why something waits; every list has --json."""

import http.server
import json
import os
import pty
import re
import select
import signal
import subprocess
import threading

import pytest

from support.process import free_port, wait_for
from support.relay import binary, environment, run_command


def status_of(settings, *arguments):
    status, output, error = run_command(["status", *arguments], settings)
    return status, output, error


def unwrapped(output):
    return output.replace("\n" + " " * 19, " ")


def report_of(settings):
    return json.loads(status_of(settings, "--json")[1])


@pytest.fixture
def settings(database, kafka):
    return {"DATABASE_URL": database.dsn, "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap}


def publish_long_ago(database, topic):
    database.execute("insert into outbox.message (topic, key, payload, created_at) "
                     "values (%s, 'k', 'x', clock_timestamp() - interval '1 minute')", (topic,))


def test_what_could_not_be_counted_is_unknown(database, settings, postgres):
    """The backlog cannot be read, but the shards can."""
    postgres.execute("drop role if exists blind")
    postgres.execute("create role blind login in role outbox_reader")
    try:
        for function, in database.execute("select oid::regprocedure::text from pg_proc where proname = 'first_bucket'"):
            database.execute(f"revoke execute on function {function} from outbox_reader")
        blind = {**settings, "DATABASE_URL": postgres.dsn(database.name, "blind")}
        status, output, _ = status_of(blind)
        assert status != 0 and "unpublished unknown, oldest unknown" in output and "  ! " in output
        found, = report_of(blind)["postgres"]
        shard, = found["shards"]
        assert (shard["unpublished"], shard["unpublished_estimated"], shard["oldest_age_ms"]) == (None, None, None)
        assert shard["unpublished_exact"] is False
        assert found["parked"] is None and found["partitions"] is None and set(found["default_rows"].values()) == {None}
    finally:
        postgres.execute("drop role blind")


def test_a_lock_of_the_messages_makes_numbers_unknown(database, settings):
    """An operator's DDL in another session; the timeout of `run_command` ends a `status` that waits for it."""
    holder = database.connect()
    holder.autocommit = False
    try:
        holder.cursor().execute("lock table outbox.message in access exclusive mode")
        status, output, error = run_command(["status"], settings, timeout=30)
        assert status != 0
        assert "main/0" in output and "unpublished unknown (outbox.message is locked), oldest unknown" in output, error
        assert "processed_p" in output and "message_p" not in output
        found, = json.loads(run_command(["status", "--json"], settings, timeout=30)[1])["postgres"]
        shard, = found["shards"]
        assert (shard["unpublished"], shard["oldest_age_ms"], shard["unknown"]) == (None, None, "outbox.message is locked")
        assert found["unknown"] == ["outbox.message is locked"] and found["error"] is None
        assert found["default_rows"]["message"] is None and found["default_rows"]["processed"] == "0"
        assert found["partitions"] is None  # those of the other tables would look like all of them
        assert found["parked"] == [
            {**found["parked"][0], "publisher": "main", "waiting": "0"}]
        assert run_command(["publisher", "list"], settings, timeout=30)[0] == 0
    finally:
        holder.close()
    found, = report_of(settings)["postgres"]
    assert found["unknown"] == [] and found["shards"][0]["unknown"] is None and found["shards"][0]["unpublished"] == "0"
    assert {row["name"].split("_")[0] for row in found["partitions"]} == {"message", "lookback", "processed", "unique"}


class Speechless(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(503)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def test_an_admin_endpoint_that_says_nothing_differs_from_none(settings):
    assert report_of(settings)["relay"] is None
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Speechless) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        listen = f"127.0.0.1:{server.server_port}"
        named = {**settings, "OUTBOX_RELAY_ADMIN_LISTEN": listen}
        assert report_of(named)["relay"] == {"listen": listen, "answers": True, "ready": False,
                                             "report": [], "lookback": [], "deliver": []}
        assert f"relay at {listen}\n  ! it answers with status 503 and no report\n" in status_of(named)[1]
        server.shutdown()


def test_rows_that_nobody_counted_are_unknown(database, settings):
    for partition, in database.execute("select relid::regclass::text from pg_partition_tree('outbox.message') where isleaf"):
        database.execute(f"alter table {partition} set (autovacuum_enabled = off)")
    database.execute("insert into outbox.message (topic, key, payload) select 'orders', 'k', 'x' "
                     "from generate_series(1, 100)")
    _, output, _ = status_of(settings)
    assert "rows unknown" in output
    used = [row for row in report_of(settings)["postgres"][0]["partitions"] if row["rows_estimated"] is None]
    assert used
    listed = json.loads(run_command(["partition", "list", "--json"], settings)[1])
    assert [row["partition"] for row in listed if row["rows_estimated"] is None] == [row["name"] for row in used]
    database.execute("analyze outbox.message")
    assert "rows unknown" not in status_of(settings)[1]


def test_a_missing_topic_is_named_without_admin(database, settings, topic):
    missing = topic + ".missing"
    publish_long_ago(database, missing)
    status, output, error = status_of(settings)
    assert status == 0, error
    assert re.search(rf"^  ! topic {re.escape(missing)}: ", output, re.MULTILINE), output
    assert any(line.startswith(f"topic {missing}: ") for line in report_of(settings)["waits"])


def test_kafka_is_not_asked_while_nothing_waits(database, settings, topic):
    away = {**settings, "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": f"127.0.0.1:{free_port()}"}
    status, output, _ = status_of(away)
    assert status == 0 and "  ! " not in output
    publish_long_ago(database, topic)
    assert "  ! kafka main: " in status_of(away)[1]


def test_a_parked_message_says_why(database, settings):
    for id, state, stalled, error in ((1, "stalled", 3, "timed out"), (2, "dead", None, "too large")):
        database.execute(
            "insert into outbox.parked (publisher, shard, id, created_at, event_id, topic, key, tick, state, error, "
            "stalled, attempts, next_at) values ('main', 0, %s, now(), gen_random_uuid(), 'orders', 'k', 1, %s, %s, "
            "%s, 1, now())", (id, state, error, stalled))
    _, output, _ = status_of(settings)
    assert "  ! publisher main: parked messages of topic orders: 1, partition 3 is stalled: timed out\n" in unwrapped(output)
    assert "  ! publisher main: parked messages of topic orders: 1 (dead: 1): too large\n" in output
    assert len(report_of(settings)["postgres"][0]["waits"]) == 2


def test_an_id_of_the_look_back_says_why_it_waits(database, settings):
    database.execute("insert into outbox.lookback_overdue (section, biz_type, biz_id, prepared_at, check_service, "
                     "next_check, attempts, last_error) values ('shop', 'order', '1', now(), 'billing', now(), 3, "
                     "'the breaker of http://127.0.0.1:9 is open')")
    _, output, _ = status_of(settings)
    assert ("  ! lookback shop: 1 undecided id of type order: billing: the breaker of http://127.0.0.1:9 is open"
            in unwrapped(output)), output


DELIVER = """[kafka]
bootstrap.servers = {kafka}
[deliver "billing"]
topics = {topic}
group = {topic}
url = http://127.0.0.1:9/
"""


def test_a_configuration_that_only_delivers_is_shown(kafka, topic, tmp_path):
    path = tmp_path / "relay.ini"
    path.write_text(DELIVER.format(kafka=kafka.bootstrap, topic=topic))
    status, output, error = status_of({}, "--config", path)
    assert status == 0, error
    assert output.startswith(f"deliver billing  {topic} to http://127.0.0.1:9/\n  ! its state is unknown: set [api]")
    report = json.loads(status_of({}, "--config", path, "--json")[1])
    assert report["deliver"] is None and "set [api]" in report["deliver_error"]


def test_no_line_is_wider_than_a_hundred_columns(database, settings):
    big = str(2 ** 29)
    database.execute("update pg_class set reltuples = %s, relpages = 1 where relname like 'message_p%%'", (big,))
    database.execute("insert into outbox.lookback_overdue (section, biz_type, biz_id, prepared_at, next_check, "
                     "last_error) values ('shop', 'order', '1', now(), now(), repeat('word 123456 ', 40))")
    _, output, _ = status_of(settings)
    assert f"about {big} rows" in unwrapped(output)
    assert max(len(line) for line in output.splitlines()) <= 100


def watch_on_terminal(settings, **more):
    leader, follower = pty.openpty()
    process = subprocess.Popen([binary(), "status", "--watch", "--interval", "1"], stdout=follower,
                               env=environment({**settings, **more}))
    os.close(follower)
    seen = b""
    try:
        def there():
            nonlocal seen
            if select.select([leader], [], [], 0.1)[0]:
                seen += os.read(leader, 65536)
            return seen.count(b"main/0") >= 2

        wait_for(there, 60, "two rounds")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
        os.close(leader)
    return seen.decode()


def test_watch_has_a_header_with_the_time_and_colours(settings):
    seen = watch_on_terminal(settings)
    assert re.search(r"outbox-relay status  20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ  every 1 s", seen)
    assert "\033[1mpostgres main" in seen and "/s" in seen
    plain = watch_on_terminal(settings, NO_COLOR="1")
    assert "\033[1m" not in plain and "every 1 s" in plain


def test_every_list_has_json(database, settings):
    publishers = json.loads(run_command(["publisher", "list", "--json"], settings)[1])
    assert [(one["publisher"], one["shard"], one["shards"], one["owner"]) for one in publishers] == [("main", 0, 1, None)]
    migrations = json.loads(run_command(["migrate", "status", "--json"], settings)[1])
    assert {one["state"] for one in migrations} == {"applied"} and migrations[-1]["applied_by"]
    partitions = json.loads(run_command(["partition", "list", "--json"], settings)[1])
    assert "message_default" in {one["partition"] for one in partitions}
    assert json.loads(run_command(["replay", "--list", "--json"], settings)[1]) == []
    assert run_command(["replay", "--json", "ids=1"], settings)[0] != 0
