"""`outbox-relay-bench` at its smallest: each part runs to its end, gives its figures and removes what it made.

What they are is not judged here: the exit status is 1 when one is beyond its bound.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import uuid

import pytest
from confluent_kafka.admin import AdminClient

from support.process import wait_for
from support.redis import Redis, RedisCluster
from support.relay import beside, bench_binary, binary, environment, run_command

# A part, its options, and what each of its figures must look like: names in order, with bounds.
PARTS = {
    "drain": (["--rows", 20_000, "--payload", 300], [
        figure for headers in ("", ", 2 headers") for figure in (
            f"drain of 20000 rows of 300 B{headers} >= 0.95",
            "whole process",
            "CPU of it, a million rows <= 1.4",
            "beside bare records >= 0.8",
            "beside bare records, whole process",
            "CPU beside bare records, a million rows <= 1.3",
            "headers = none, beside bare records >= 0.9",
            "headers = none, beside bare records, whole process",
            "CPU headers = none, beside bare records, a million rows <= 1.3")]),
    "exactly-once": (["--rows", 2000, "--seconds", 2, "--rate", 100], [
        "exactly-once of 2000 rows of 300 B >= 0.75",
        "CPU of it, a million rows",
        "exactly-once of 1000 rows of 4096 B >= 0.75",
        "CPU of it, a million rows",
        "exactly-once, commit to consumer at 100/s, p50",
        "exactly-once, commit to consumer at 100/s, p99",
    ]),
    "held": (["--rows", 5000], [
        "drain beside a held snapshot and an open write >= 0.95",
        "CPU of it, a million rows",
    ]),
    "spread": (["--rows", 5000], [
        "drain to 1 partition, 1 shard",
        "CPU of it, a million rows",
        "drain to 48 partitions, 1 shard",
        "CPU of it, a million rows",
    ]),
    "shards": (["--rows", 5000, "--runs", 1], [
        "drain to 6 partitions, 4 shards >= 0.9",
        "CPU of it, a million rows",
        "drain to 6 partitions, 16 shards >= 0.7",
        "CPU of it, a million rows",
    ]),
    "codec": (["--rows", 5000, "--payload", 300], [
        figure for codec in ("none", "gzip", "snappy", "lz4", "zstd") for figure in (
            f"drain with {codec}, 300 B", "CPU of it, a million rows",
            "bytes of it on the broker, a record")]),
    "table": (["--rows", 2000, "--published", 3000, "--parked", 500, "--scheduled", 700], [
        "drain behind 3000 published rows >= 0.95",
        "drain beside 500 parked messages >= 0.95",
        "drain beside 700 scheduled messages >= 0.95",
        "drain beside 50 open transactions >= 0.95",
        "drain in 12 partitions, not 4 >= 0.95",
        "empty look behind 3000 published rows <= 1.5",
        "empty look beside 500 parked messages <= 1.5",
        "look for what is due beside 500 parked messages <= 1.5",
        "empty look beside 700 scheduled messages <= 1.5",
        "look for what is due beside 700 scheduled messages <= 1.5",
        "empty look beside 50 open transactions <= 1.5",
        "empty look in 12 partitions, not 4 <= 3",
    ]),
    "growth": (["--topics", 100, "--parked", 3000, "--open-topics", 50, "--seconds", 2], [
        "take-over, 100 topics known <= 100",
        "tick, 100 topics known <= 100",
        "tick that folds, 100 topics known <= 100",
        "due rows listed, 20000 rows of the far future >= 0.9",
        "parked rows listed, 8192 bytes of a key",
        "p99 of healthy messages, 3000 skipped <= 100",
        "p99 of healthy messages, 3000 retried <= 100",
        "p99 of healthy messages, 3000 recovered <= 100",
        "start to first message, 3000 messages parked <= 10000",
        "peak memory, 3000 messages parked <= 64",
        "messages parked, 8192 random bytes of a key",
        "peak memory, 50 topics in use, 1 partition each <= 64",
    ]),
    "lookback": (["--pairs", 2000, "--overdue", 500, "--undecided", 3000, "--seconds", 2,
                  "--rate", 100], [
        "look-back, prepare and commit >= 10000",
        "of them at least a second apart >= 50",
        "CPU of it, a million pairs, relay",
        "CPU of it, a million pairs, sessions",
        "beside 3000 undecided prepares >= 0.95",
        "peak memory beside them <= 96",
        "decision to consumer at 100/s, p50 <= 10",
        "decision to consumer at 100/s, p99",
        "from its sending, linger 5 ms, p50",
        "overdue ones resolved singly >= 3000",
        "overdue ones resolved 100 in a request >= 10000",
        "CPU of a million look-backs, gRPC beside HTTP <= 1.2",
    ]),
    "inbox": (["--messages", 5000, "--runs", 1], [
        "inbox without dedup, beside a bare consumer >= 0.8",
        "inbox with bloom, beside a bare consumer >= 0.6",
        "inbox with sequence, beside a bare consumer >= 0.7",
        "handlers of 5 ms, 256 at once, beside what is possible >= 0.9",
        "memory of an inbox, besides its files <= 64",
        "sidecar, beside a bare loop of libcurl >= 0.5",
        "sidecar in batches of 100, beside single messages >= 5",
        "ab, against the same server",
    ]),
    "steady": (["--seconds", 2], [
        "CPU at 1000/s, a million messages, relay",
        "CPU at 1000/s, a million messages, sessions",
        "CPU at 1000/s, a million messages, together <= 240",
    ]),
}


def described(figure):
    bound = {"at most": "<=", "at least": ">="}.get(figure.get("bound"))
    return figure["name"] + (f" {bound} {figure['bound_value']:g}" if bound else "")


def verdict(figure):
    """By what was measured and the bound."""
    judged = next(figure[name] for name in ("ratio", "difference", "value") if name in figure)
    within = (judged <= figure["bound_value"] if figure["bound"] == "at most"
              else judged >= figure["bound_value"])
    return "ok" if within else "NOT"


def servers(database, kafka):
    return {"DATABASE_URL": database.dsn,
            "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap}


def nothing_is_left(database, kafka):
    left = database.execute("select nspname from pg_namespace where nspname like 'outbox%'")
    assert left == []
    client = AdminClient({"bootstrap.servers": kafka.bootstrap})
    # a broker answers that a topic is deleted before all of it has heard so
    wait_for(lambda: not [topic for topic in client.list_topics(timeout=30).topics
                          if topic.startswith("outbox-bench")], what="the end of the topics")
    # a group without members goes with the last topic that it has offsets of
    wait_for(lambda: not [group.id for group in client.list_groups(timeout=30)
                          if group.id.startswith("outbox_bench")], what="the end of the groups")


def run_bench(arguments, settings):
    return run_command(["--relay", binary(), *arguments], settings, timeout=300, program=bench_binary())


def bench(database, kafka, *arguments):
    status, output, error = run_bench(arguments, servers(database, kafka))
    assert status in (0, 1), error
    nothing_is_left(database, kafka)
    return status, output


@pytest.mark.rotated
@pytest.mark.parametrize("part", PARTS)
def test_a_part_runs_to_its_end(empty_database, kafka, part):
    options, expected = PARTS[part]
    status, output = bench(empty_database, kafka, "--json", "--runs", 1, *options, part)
    figures = json.loads(output)["figures"]
    assert [described(figure) for figure in figures] == expected
    assert all(figure["value"] > 0 for figure in figures
               if figure["unit"] not in ("ms", "%"))
    assert part != "growth" or all(figure["beside"] > 1e-3 for figure in figures)
    judged = [figure for figure in figures if "bound" in figure]
    assert [figure["verdict"] for figure in judged] == [verdict(figure) for figure in judged]
    assert status == ("NOT" in [figure["verdict"] for figure in judged])


def test_a_figure_is_printed_with_its_bound_and_verdict(empty_database, kafka):
    _, output = bench(empty_database, kafka, "--runs", 1, "--rows", 1000, "held")
    assert re.search(r"^drain beside a held snapshot and an open write +rows/s +[\d.]+ +[\d.]+ "
                     r"+[\d.]+  ≥ 0.95 +(ok|NOT)$", output, re.MULTILINE)


def local_stores():
    done = subprocess.run([binary(), "dedup", "stores", "--json"], capture_output=True, check=True)
    return [store["store"] for store in json.loads(done.stdout) if not store["shared"]]


def test_dedup_measures_its_stores_without_kafka(empty_database):
    with Redis() as redis, RedisCluster() as cluster:
        status, output, error = run_bench(
            ["dedup", "--json", "--ids", "100000", "--runs", "1", "--redis", redis.url,
             "--redis-cluster", cluster.url, "--dsn", empty_database.dsn], {})
        assert redis.client.dbsize() == 0
        assert cluster.keys("*") == [0, 0, 0]
    assert status in (0, 1), error
    figures = {figure["name"]: figure for figure in json.loads(output)["figures"]}
    for store in local_stores():
        assert figures[f"{store}: a copy of it, checked"]["value"] > 0
    assert figures["restart after kill -9"]["bound_value"] == 100
    assert figures["exact: memory, an id"]["bound_value"] == 40
    for name in ("redis: new ids checked, beside SETs of redis-benchmark",
                 "redis: ids made done, beside SETs of redis-benchmark",
                 "redis: commands of both, beside SETs of redis-benchmark"):
        assert figures[name]["ratio"] > 0 and figures[name]["bound_value"] == 0.5
    for form in ("redis", "redis form=bitmap"):
        for name in ("commands of both", "copies checked"):
            figure = figures[f"{form}: {name} in a cluster, beside one server"]
            assert figure["ratio"] > 0 and figure["bound_value"] == 0.7
    for batch in (1, 10, 100, 1000):
        name = f"postgres: {batch} taken in a transaction, beside an insert"
        assert figures[name]["ratio"] > 0 and figures[name]["bound_value"] == 0.2
    assert empty_database.execute(
        "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'outbox%'") == [(0,)]


def test_rules_are_measured_on_each_store(empty_database):
    with Redis() as redis, RedisCluster() as cluster:
        status, output, error = run_bench(
            ["rules", "--json", "--ids", "100000", "--runs", "1", "--redis", redis.url,
             "--redis-cluster", cluster.url, "--dsn", empty_database.dsn], {})
        assert redis.client.dbsize() == 0
    assert status in (0, 1), error
    figures = {figure["name"]: figure for figure in json.loads(output)["figures"]}
    for name in ("Redis", "a Redis Cluster", "PostgreSQL", "a folder"):
        assert figures[f"rules in {name}: messages judged"]["value"] > 0
    assert figures["rules in Redis: messages judged"]["bound_value"] == 20000
    assert empty_database.execute(
        "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'outbox%'") == [(0,)]


def warnings_of_dedup(*arguments):
    """What it says up to the stores on PostgreSQL, which come last; then it is ended."""
    with subprocess.Popen([bench_binary(), *map(str, arguments), "--runs", "1", "dedup", "--ids", "100000"],
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                          env=environment({})) as bench:
        said = ""
        while "postgres is not measured" not in said:
            said += bench.stderr.readline() or pytest.fail(said)
        bench.kill()
    return said


def test_dedup_empties_no_database_that_has_keys():
    with Redis() as redis:
        redis.client.set("theirs", "1")
        said = warnings_of_dedup("--redis", redis.url)
        assert redis.client.get("theirs") == b"1"
    assert "the database has 1 keys and is not emptied" in said
    assert "redis: copies checked" in said


def test_dedup_removes_no_key_that_came_meanwhile():
    with Redis() as redis:
        with subprocess.Popen([bench_binary(), "dedup", "--ids", "300000", "--runs", "9", "--redis", redis.url],
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                              env=environment({})) as bench:
            wait_for(redis.client.dbsize, 600, "its first key")
            redis.client.set("theirs", "1")
            error = bench.communicate(timeout=600)[1]
        assert redis.client.get("theirs") == b"1"
    assert bench.returncode > 1, error
    assert "whose key theirs came after the begin" in error


def test_the_inbox_is_measured_with_claims(empty_database, kafka):
    with Redis() as redis:
        _, output = bench(empty_database, kafka, "--runs", 1, "--messages", 2000, "--redis", redis.url,
                          "--dsn", empty_database.dsn, "inbox", "--json")
        assert not redis.client.keys("*:claim:*")
    figures = {figure["name"]: figure for figure in json.loads(output)["figures"]}
    for where in ("Redis", "PostgreSQL"):
        figure = figures[f"handlers of 5 ms, 16 at once, with claims in {where}"]
        assert figure["ratio"] > 0 and figure["bound_value"] == 0.5
        assert figures[f"handlers of 5 ms, 256 at once, with claims in {where}"]["ratio"] > 0
    assert empty_database.execute(
        "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'outbox%'") == [(0,)]


def test_a_configuration_that_only_delivers_is_measured_or_refused(tmp_path, kafka):
    (tmp_path / "relay.ini").write_text(
        f'[kafka]\nbootstrap.servers = {kafka.bootstrap}\n[deliver "billing"]\n'
        'url = http://127.0.0.1:1/\nnetworks = 127.0.0.1\n')

    def measure(*arguments):
        return run_bench(["--config", tmp_path / "relay.ini", "--runs", "1", *arguments], {})

    for kind in ("drain", "limit"):
        status, _, error = measure(kind)
        assert status == 78 and "without a [publisher] section" in error
    warnings_of_dedup("--config", tmp_path / "relay.ini")
    status, output, error = measure("inbox", "--messages", "1000", "--json")
    assert status in (0, 1) and json.loads(output)["figures"], error


FILTERS = pathlib.Path(__file__).parents[1] / "bench" / "filters" / "run"


@pytest.mark.parametrize("part", ["filter", "store"])
def test_our_side_of_the_comparison_of_filters(tmp_path, part):
    ids = 20_000
    (tmp_path / "ids").write_text("".join(str(uuid.UUID(int=number << 64)) for number in range(2 * ids)))
    run = subprocess.run([beside("tests/bench/filters/filters_ours"), part, tmp_path / "ids", str(ids),
                          "0.001"], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stderr
    result = json.loads(run.stdout)
    assert all(result[figure] > 0 for figure in ("add", "there", "absent", "bits"))
    assert result["false"] == 0 if part == "store" else result["false"] < ids * 0.002


@pytest.mark.full("Guava and blobloom come from registries")
def test_filters_are_compared(tmp_path):
    run = subprocess.run([FILTERS, "--ids", "100000", "--runs", "1", "--build", tmp_path],
                         capture_output=True, text=True, timeout=1200)
    assert run.returncode == 0, run.stderr
    rows = [row for row in run.stdout.splitlines() if row.startswith("| ") and "%" in row]
    assert len(rows) == 4, run.stdout
    assert all(float(row.split("|")[-2].strip().rstrip("%")) < 0.2 for row in rows)


def test_an_interrupted_one_removes_what_it_made(empty_database, kafka):
    child = subprocess.Popen(
        [bench_binary(), "--relay", binary(), "--rows", "2000", "--published", "2000", "--parked", "100",
         "--scheduled", "100", "table"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment(servers(empty_database, kafka)))
    try:
        said = iter(child.stderr.readline, "")
        assert any(line.startswith("outbox-relay-bench: open transactions:") for line in said)
        child.send_signal(signal.SIGINT)
        _, error = child.communicate(timeout=60)
    finally:
        child.kill()
    assert child.returncode not in (0, 1) and "interrupted" in error
    nothing_is_left(empty_database, kafka)


# Nobody listens there: a bench that has found the relay ends with status 69.
NOWHERE = {"DATABASE_URL": "postgres://127.0.0.1:1/", "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1"}


@pytest.fixture(name="lonely")
def fixture_lonely(tmp_path):
    """A bench in a folder of its own."""
    return shutil.copy(bench_binary(), tmp_path)


def test_the_relay_is_found_beside_the_bench_and_on_the_path(lonely, tmp_path):
    assert run_command(["drain"], NOWHERE | {"PATH": f"{os.path.dirname(binary())}:/bin"}, program=lonely)[0] == 69
    status, _, error = run_command(["drain"], NOWHERE | {"PATH": "/bin"}, program=lonely)
    assert status == 78 and "--relay PROGRAM" in error
    shutil.copy(binary(), tmp_path)
    assert run_command(["drain"], NOWHERE | {"PATH": "/bin"}, program=lonely)[0] == 69


@pytest.mark.parametrize("relay,status", [
    ("outbox-relay-of-nobody", 78), ("/", 78), (__file__, 78), ("./outbox-relay-of-nobody", 78), ("sh", 69)])
def test_the_relay_may_be_named(relay, status):
    given, _, error = run_command(["--relay", relay, "drain"], NOWHERE, program=bench_binary())
    assert given == status and (status == 69 or f"--relay {relay}" in error), error


@pytest.mark.parametrize("words,message", [
    (["drian"], "there is no kind 'drian' (did you mean drain?)"),
    (["--markdwon"], "bench has no option '--markdwon' (did you mean --markdown?)"),
    (["--paint"], "bench has no option '--paint'"), (["paint"], "there is no kind 'paint'"),
    (["help"], "there is no kind 'help'"), (["--rows", "1"], "--rows wants a number from 1000 to 1000000000")])
def test_the_command_line_of_the_bench_is_checked(words, message):
    status, _, error = run_command(words, program=bench_binary())
    assert status in (64, 65)
    assert error.startswith(f"outbox-relay-bench: {message}")
    assert "see `outbox-relay-bench --help`" in error


def test_the_bench_explains_itself():
    for word in ("--help", "-h"):
        status, output, _ = run_command([word], program=bench_binary())
        assert status == 0 and output.startswith("Usage: outbox-relay-bench [--rows N]")
        assert all(len(line) <= 80 for line in output.splitlines())
        assert output.endswith("Example:\n  outbox-relay-bench drain latency --rows 1000000\n")
    version = run_command(["--version"])[1]
    for word in ("--version", "-v"):
        assert run_command([word])[1] == version
        assert run_command([word], program=bench_binary())[1] == version.replace("outbox-relay", "outbox-relay-bench")
