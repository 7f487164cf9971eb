"""`outbox-relay-bench` as a program: its options, its output, and its end. tests/bench runs its kinds."""

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
from support.redis import Redis
from support.relay import beside, bench_binary, binary, environment, run_command


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


def test_path_needs_a_relay_that_writes_its_steps(empty_database, kafka):
    status, _, error = run_bench(["path", "--rate", 100, "--seconds", 2],
                                 servers(empty_database, kafka))
    assert status not in (0, 1)
    assert "writes no trace: build it with -Dfault_points=true" in error
    nothing_is_left(empty_database, kafka)


def test_a_figure_is_printed_with_its_bound_and_verdict(empty_database, kafka):
    _, output = bench(empty_database, kafka, "--runs", 1, "--rows", 1000, "held")
    assert re.search(r"^drain beside a held snapshot and an open write +rows/s +[\d.]+ +[\d.]+ "
                     r"+[\d.]+  ≥ 0.95 +(ok|NOT)$", output, re.MULTILINE)


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
