"""schemathesis sends what docs/reference/openapi.json allows and what it forbids, and checks every answer by it.

All operations take half an hour of one core, so tests/heavy/test_openapi_a.py and its like have a share each, for a process
of Python on each of two cores:

    check_share(0)  # a fixture
    check_links()   # a fixture: values of answers as arguments of other operations (phase `stateful`), in one process for all
"""
import contextlib
import os
import pathlib
import re
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from support import openapi
from support.api import CONFIG, caller, start_api
from support.process import wait_for

ROOT = pathlib.Path(__file__).resolve().parents[2]
HOME = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "outbox-relay/schemathesis-4.32.5"
SHARES, PROCESSES = 4, 2
# a split waits for a paused publisher, so they run one after the other
TOGETHER = "publisher_pause", "publisher_resume", "publisher_split"
LIMIT = 2000  # bytes of a batch that the topic of the parked messages takes
# 64 shards make each later answer slow, and a share has it
SLOWING = {"publisher_split"}
# its answer has no end, and a client that reads it to the end waits for ever: tests/integration/test_api_process.py has its test
ENDLESS = {"events"}


def tool(*words, **options):
    return subprocess.Popen([HOME / "bin/python", "-m", *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)


def operations():
    """{id: method} of all operations."""
    return {operation["operationId"]: method for path in openapi.document()["paths"].values() for method, operation in path.items()}


def share(number):
    """The operations of each process of a share, which take about as long as those of any other."""
    methods = operations()
    weights = {name: 3 if method == "post" else 1 for name, method in methods.items()}  # bodies have the most cases
    alone = [[name] for name in sorted(weights, key=weights.get, reverse=True) if name not in (*ENDLESS, *TOGETHER)]
    parts = [[] for _ in range(SHARES * PROCESSES)]
    for names in [list(TOGETHER), *alone]:
        min(parts, key=lambda part: sum(weights[name] for name in part)).extend(names)
    return parts[number * PROCESSES:(number + 1) * PROCESSES]


def start(api, names, examples, seed, folder, phases="examples,coverage,fuzzing"):
    """Without a database of examples hypothesis does not look for the shortest of those that are no failures, which takes
    half of its time. It keeps its table of Unicode, which takes seconds, in the storage."""
    chosen = [word for name in names for word in ("--include-operation-id", name)]
    return tool("schemathesis.cli", "--config-file", str(ROOT / "tests/support/schemathesis.toml"), "run", openapi.PAGE, "--url", f"http://127.0.0.1:{api.port}",
                "--header", f"Authorization: Bearer {api.token}", "--header", "Connection: close", *chosen,
                "--max-examples", str(examples), "--seed", str(seed), "--phases", phases, "--workers", "1",
                "--request-timeout", "60", "--generation-database", "none", "--continue-on-failure", "--no-color", cwd=folder,
                env={**os.environ, "SCHEMATHESIS_HOOKS": str(ROOT / "tests/support/schemathesis_hooks.py"),
                     "HYPOTHESIS_STORAGE_DIRECTORY": str(HOME / "hypothesis")})


def check(api, number, examples, seed, folder):
    """Nothing is found: allowed requests are not refused as wrong, forbidden ones are; no undocumented answer, and no 5xx."""
    shares = share(number)
    running = [start(api, names, examples, seed, folder) for names in shares]
    try:
        outputs = [process.communicate()[0] for process in running]
    finally:
        for process in running:
            process.kill()
    said = "\n".join(line[:500] for output in outputs for line in output.splitlines())  # a body may have megabytes
    assert [process.returncode for process in running] == [0] * len(running), said[-20000:]
    for names, output in zip(shares, outputs):
        assert re.search(rf"^ *Tested: {len(names)}$", output, re.MULTILINE), output


def check_operations_together(api, examples, seed, folder):
    """Nothing is found, and answers gave their values to other operations. schemathesis finds by the names in the schemas which ones."""
    process = start(api, [name for name in operations() if name not in ENDLESS | SLOWING], examples, seed, folder, "stateful")
    try:
        output = process.communicate()[0]
    finally:
        process.kill()
    assert process.returncode == 0, output[-20000:]
    links = re.search(r"API Links: +(\d+) covered / (\d+) selected", output)
    assert links and int(links[1]) > 0, output


@contextlib.contextmanager
def log_partitions_dropped(database):
    """Drops the log partitions of dropped publishers. The relay's upkeep lets a publisher that is being created go first, and
    here one always is: thousands of partitions would make each creation slow."""
    ending = threading.Event()

    def drop():
        with contextlib.closing(database.connect(autocommit=False)) as connection, connection.cursor() as cursor:
            while not ending.wait(0.2):
                cursor.execute("SELECT outbox.upkeep_begin('partitions', true)")
                cursor.execute("SELECT outbox.log_partition_drop(publisher, shard, n) FROM outbox.log_partitions_due()"
                               " WHERE action = 'drop' LIMIT 20")
                connection.commit()

    with ThreadPoolExecutor() as pool:
        dropping = pool.submit(drop)
        try:
            yield
        finally:
            ending.set()
    dropping.result()


@pytest.fixture
def api(make_relay, kafka, database, topic, tmp_path):
    """Of a relay with parked messages."""
    narrow = kafka.create_topic(f"{topic}.narrow", partitions=1)
    kafka.alter_topic(narrow, max_message_bytes=LIMIT)
    _, api = start_api(make_relay, tmp_path, "token-with-every-role", CONFIG.format(topic=topic) + caller(
        "everything", "token-with-every-role", "read, payload, send, operate, decide", types="*"), publisher_max_attempts=1)
    for number in range(20):
        database.execute("INSERT INTO outbox.message (topic, key, payload_bytes) VALUES (%s, %s, %s)",
                         (narrow, f"k{number % 4}", os.urandom(3 * LIMIT)))
    wait_for(lambda: api.request("GET", "/v1/parked?totals=yes").json["rows"], 60, "parked messages")
    with log_partitions_dropped(database):
        yield api
    kafka.delete_topic(narrow)


@pytest.fixture
def check_share(api, scale, request, tmp_path):
    return lambda number: check(api, number, scale(5000, default=300), request.config.option.seed, tmp_path)


@pytest.fixture
def check_links(api, scale, request, tmp_path):
    return lambda: check_operations_together(api, scale(500, default=100), request.config.option.seed, tmp_path)
