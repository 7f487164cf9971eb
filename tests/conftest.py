"""Fixtures for every level on real servers (sql, integration, faults).

Servers are started once a session and shared; a test gets a database, topics and a relay of its
own. ./run-tests sets OUTBOX_RELAY; by hand:
    OUTBOX_RELAY=build/release/… pytest tests/integration -k smoke
"""

import contextlib
import datetime
import faulthandler
import itertools
import os
import random
import re
import signal
import subprocess
import time
import zlib

import pytest

from support import relay as relay_module
from support import sidecar
from support.certificates import Authority
from support.kafka import Kafka
from support.pgbouncer import PgBouncer
from support.postgres import Postgres
from support.process import end_on_sigterm
from support.relay import Relay, run_command
from support.writers import Writers

TEST_LIMIT = 600         # seconds; a test that hangs fails
TEST_LIMIT_FULL = 6 * 3600

_numbers = itertools.count(1)
_workers = []  # process ids, where tests run two at a time
_terminal = None  # standard error as it was before pytest began to capture it


def pytest_addoption(parser):
    parser.addoption("--full", action="store_true",
                     help="the counts of a release, not a tenth; every case of what is rotated")
    parser.addoption("--every", action="store_true", help="every case of what is rotated, with small counts")
    parser.addoption("--minutes", type=float, default=10, help="how long the soak goes on")
    parser.addoption("--seed", type=int, help="repeat a run; without it each run has another")


def pytest_configure(config):
    global _terminal
    _terminal = os.fdopen(os.dup(2), "w")
    end_on_sigterm()
    if config.option.seed is None:
        config.option.seed = int(time.time()) % 1_000_000


def pytest_report_header(config):
    size = "full" if config.option.full else "default"
    return f"seed: {config.option.seed} (--seed={config.option.seed} repeats), size: {size}"


def turn_of(items, seed):
    """Of the cases of a test that is marked rotated, and of the tests of a file with the same
    rotated("name"), those whose turn it is; and everything else."""
    groups = {}
    for item in items:
        mark = item.get_closest_marker("rotated")
        if mark:
            group = item.path, mark.args[0] if mark.args else item.originalname
            groups.setdefault(group, []).append(item)
    # of another group another place in its list
    out = {id(item) for place, group in enumerate(groups.values())
           for item in group if item is not group[(seed + place) % len(group)]}
    return [item for item in items if id(item) not in out]


# Files whose tests take turns without --full or --every, each in one of two runs: they take long together, and what they
# test changes rarely.
HALVED = re.compile(r"""faults/|integration/test_(api_bad_bodies|api_crowds|api_jobs|api_messages|api_operator|api_process|api_verbs|bad_input|
    claims|dedup_commands|dedup_postgres|dedup_redis|deliver|deliver_pause|doorbell|doorbell_losses|doorbell_writers|health_command|inbox|inbox_claims|listener_tls|
    listeners|lookback|lookback_cases|lookback_storable|lookback_unique|parked_commands|pause|pollers|redis_cluster|
    redis_sentinel|redrive_jobs|refused_functions|replay|rules_of_a_user|rules_reload|server_commands|sharded_types|tail|verify|
    writers)\.py
    |sql/test_(partitions|plans|rebase|scheduled|unique_publish|windows)\.py""", re.VERBOSE)


def has_its_turn(item, seed):
    """What is marked rotated takes turns of its own."""
    return (item.get_closest_marker("rotated") or not HALVED.search(item.nodeid)
            or (zlib.crc32(item.nodeid.encode()) + seed) % 2 == 0)


def group_of(item):
    """Tests that share something costly are one group, which one worker runs, so that it is made once: the cluster of
    three nodes, and what a file makes for all its tests."""
    if "kafka3" in item.fixturenames:
        return "kafka3"
    shared = any(definitions[-1].scope == "module" for definitions in item._fixtureinfo.name2fixturedefs.values())
    return item.path.stem if shared else None


def pytest_itemcollected(item):
    group = group_of(item)
    if group and not item.get_closest_marker("xdist_group"):
        item.add_marker(pytest.mark.xdist_group(group))


@pytest.hookimpl(trylast=True)  # -k has chosen
def pytest_collection_modifyitems(config, items):
    if not config.option.full and not config.option.every:
        chosen = turn_of(items, config.option.seed)
        if not config.option.keyword:  # somebody wants these tests
            chosen = [item for item in chosen if has_its_turn(item, config.option.seed)]
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = chosen
    for item in items:
        item.add_marker(pytest.mark.timeout(limit_of(item), method="signal"))
        mark = item.get_closest_marker("full")
        if mark and not config.option.full:
            item.add_marker(pytest.mark.skip(reason=f"only with --full: {mark.args[0]}"))
    # A group that begins late is what everybody waits for at the end.
    items.sort(key=lambda item: (not item.get_closest_marker("long"), not item.get_closest_marker("xdist_group")))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_newgateway(gateway):
    _workers.append(gateway._io.popen.pid)


def pytest_keyboard_interrupt():
    """Workers clean up as well; their controller only waits ten seconds before it kills them."""
    for pid in _workers:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


def limit_of(item):
    limit = TEST_LIMIT_FULL if item.config.option.full else TEST_LIMIT
    return limit + 60 * item.config.option.minutes if "soak" in item.path.parts else limit


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item):
    """What even a signal does not end, in a C library, ends the whole run, with all its stacks."""
    faulthandler.dump_traceback_later(limit_of(item) + 120, exit=True, file=_terminal)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """A failing test shows how to repeat it and the end of its relays' logs."""
    outcome = yield
    report = outcome.get_result()
    if report.failed:
        report.sections.append(("seed", f"--seed={item.config.option.seed}"))
        for relay in getattr(item, "relays", []):
            if relay.process:
                report.sections.append((f"relay {relay.process.pid}", relay.process.tail(60)))


@pytest.fixture
def full(request):
    return request.config.option.full


@pytest.fixture
def scale(full):
    """scale(1_000_000): the count that is asked for, a tenth of it by default."""
    return lambda count, default=None: count if full else default or max(1, count // 10)


@pytest.fixture
def seed(request):
    """Of this test: follows from the run's seed and the test's name, to which xdist adds @ and the group."""
    name = re.sub(r"@[^@\]]*$", "", request.node.nodeid)
    return f"{request.config.option.seed}/{name}"


@pytest.fixture
def chance(seed):
    return random.Random(seed)


@pytest.fixture(scope="session")
def postgres(request):
    """Without fsync where only SQL is tested, and no doctor warns of it: hundreds of databases are made and dropped, and
    each drop waits for a checkpoint. What a server that is killed has written is with the kernel, so it loses nothing."""
    only_sql = all("sql" in item.path.parts for item in request.session.items)
    with Postgres(fsync="off" if only_sql else "on") as server:
        yield server


@pytest.fixture(scope="session")
def pgbouncer(postgres):
    with PgBouncer(postgres) as pooler:
        yield pooler


@pytest.fixture(scope="session")
def kafka():
    with Kafka() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kafka3():
    """Three nodes, replication factor 3, min.insync.replicas 2; also to be had through proxies."""
    with Kafka(nodes=3, proxied=True) as cluster:
        yield cluster


class Database:
    def __init__(self, postgres, name):
        self.postgres = postgres
        self.name = name
        self.dsn = postgres.dsn(name)

    def connect(self, **options):
        return self.postgres.connect(self.name, **options)

    def session(self):
        return self.postgres.session(self.name)

    def execute(self, statement, parameters=None):
        return self.postgres.execute(statement, parameters, self.name)

    def migrate(self, *arguments):
        status, _, error = run_command(["migrate", "up", *arguments], {"DATABASE_URL": self.dsn})
        assert status == 0, f"migrate up: exit status {status}: {error}"
        return self


@pytest.fixture(scope="session")
def make_database():
    """make_database(server, name): a Database on a server that a test file has for itself."""
    return Database


def _name(request):
    """The test's name and a number, fit for a database and for a topic."""
    base = re.sub(r"\W+", "_", request.node.name).strip("_").lower()[:40]
    return f"{base}_{next(_numbers)}"


@pytest.fixture
def empty_database(postgres, request):
    name = _name(request)
    postgres.create_database(name)
    yield Database(postgres, name)
    postgres.drop_database(name)


@pytest.fixture(scope="session")
def migrated(postgres):
    """migrated(): the name of a database with the schema, to be copied, which costs a fraction of
    what all migrations do. Its partitions are those of its day: the next day has one of its own."""
    made = {}

    def of_today():
        today = datetime.datetime.now(datetime.timezone.utc).date()
        if today not in made:
            name = f"migrated_{today:%Y%m%d}"
            postgres.create_database(name)
            Database(postgres, name).migrate()
            made[today] = name
        return made[today]

    return of_today


@pytest.fixture
def database(postgres, migrated, request):
    """A database of this test's own, with the schema in it."""
    name = _name(request)
    postgres.create_database(name, template=migrated())
    yield Database(postgres, name)
    postgres.drop_database(name)


@pytest.fixture(scope="session")
def quiet_postgres():
    """A server that allows no PREPARE TRANSACTION, as is PostgreSQL's default: its writers ring the doorbell. Its oids
    are above 2**31, which the locks of the doorbell hold as negative numbers."""
    with Postgres(next_oid=3_000_000_000, max_prepared_transactions=0) as server:
        server.create_database("migrated")
        Database(server, "migrated").migrate()
        yield server


@pytest.fixture
def quiet_database(quiet_postgres, request):
    """A database of this test's own on that server, with the schema in it."""
    name = _name(request)
    quiet_postgres.create_database(name, template="migrated")
    yield Database(quiet_postgres, name)
    quiet_postgres.drop_database(name)


@pytest.fixture
def own_database():
    """A database with the schema on a server of its own, to be stopped and killed."""
    with Postgres() as server:
        server.create_database("own")
        yield Database(server, "own").migrate()


@pytest.fixture
def login(database):
    """login(role): settings of a new login that has it."""
    made = []

    def make(role):
        name = f"{role}_{database.name}"[:60]
        database.execute(f"CREATE ROLE {name} LOGIN IN ROLE {role}")
        made.append(name)
        return {"DATABASE_URL": database.postgres.dsn(database.name, user=name)}

    yield make
    for name in made:
        database.execute(f"DROP ROLE {name}")


@pytest.fixture
def topic(kafka, request):
    """A topic of this test's own, with 6 partitions."""
    name = _name(request)
    yield kafka.create_topic(name)
    kafka.delete_topic(name)


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    """Signs the certificates that a file of tests trusts."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    """An authority that nobody trusts at first."""
    return Authority(tmp_path_factory.mktemp("stranger"), "stranger")


@pytest.fixture
def make_relay(database, kafka, request):
    """make_relay(**settings) starts a relay on this test's database; ended with the test.

    settings: names without the prefix, as publisher_max_in_flight=100; DATABASE_URL and the brokers
    may be given to replace this test's own. arguments=…, program=…, wrapper=… as in Relay.
    """
    request.node.relays = []

    def make(arguments=("run",), program=None, wrapper=(), database_url=None, bootstrap=None,
             **settings):
        variables = {f"OUTBOX_RELAY_{name.upper()}": value for name, value in settings.items()}
        relay = Relay({"DATABASE_URL": database_url or database.dsn,
                       "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": bootstrap or kafka.bootstrap,
                       **variables}, arguments, program, wrapper)
        request.node.relays.append(relay)
        return relay.start()

    yield make
    failures = []
    for relay in request.node.relays:
        try:
            relay.close()
        except AssertionError as failure:
            failures.append(str(failure))
    assert not failures, "\n".join(failures)


@pytest.fixture
def dead_topic(kafka, topic):
    return kafka.create_topic(f"{topic}.dead", 1)


@pytest.fixture
def make_sidecar(kafka, topic, dead_topic, make_relay, tmp_path):
    """make_sidecar(application, key=value…): a relay with a [deliver] section and no database."""
    numbers = itertools.count()

    def make(application, url=None, environment=None, **settings):
        path = tmp_path / f"relay-{next(numbers)}.ini"
        path.write_text(sidecar.configuration(kafka.bootstrap, topic, tmp_path / "state",
                                              url or application.url, settings))
        relay = make_relay(config=path, **(environment or {})).wait_ready()
        if environment:
            relay.wait_event("api_listens")
        return relay

    return make


@pytest.fixture
def make_writers(database, topic, seed):
    """make_writers(connections=4, …): Writers on this test's database and topic."""
    def make(topics=None, dsn=None, **options):
        return Writers(dsn or database.dsn, topics or [topic], seed, **options)

    return make


@pytest.fixture(params=["release", "asan", "tsan", "valgrind"])
def each_build(request):
    """(program, wrapper) of every build; those that were not made are skipped."""
    if request.param == "release":
        return relay_module.binary(), ()
    if request.param == "valgrind":
        return relay_module.binary(), ("valgrind", "-q", "--leak-check=full",
                                       "--errors-for-leak-kinds=definite", "--error-exitcode=99")
    variable = f"OUTBOX_RELAY_{request.param.upper()}"
    if variable not in os.environ:
        pytest.skip(f"{variable} names no program (./run-tests builds it)")
    # ThreadSanitizer of this age does not know where newer kernels put things at random.
    fixed = ("setarch", "-R")
    if request.param != "tsan" or subprocess.run([*fixed, "true"], capture_output=True).returncode:
        fixed = ()
    return os.environ[variable], fixed
