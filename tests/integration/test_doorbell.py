"""The doorbell: writers wake a sleeping relay, and without them it finds every message by itself
within a second.

The server allows no PREPARE TRANSACTION, as PostgreSQL's default is: with `doorbell = auto` the
others of the tests have no doorbell.
"""

import operator
import os
import signal
import statistics
import time

import pytest
from support.auditor import settle
from support.pgbouncer import PgBouncer
from support.postgres import Postgres
from support.process import wait_for
from support.relay import run_command

POLL = 0.9    # seconds: how often a sleeping shard looks
PROMPT = 0.6  # the metric lags: a median below this is not that of a poll each 0.9 s


@pytest.fixture(scope="module")
def server():
    with Postgres(max_prepared_transactions=0) as server:
        server.create_database("migrated")
        yield server


@pytest.fixture(scope="module")
def template(server, make_database):
    make_database(server, "migrated").migrate()
    return "migrated"


@pytest.fixture
def database(server, template, make_database, request):
    name = f"bell_{abs(hash(request.node.nodeid))}"
    server.create_database(name, template=template)
    yield make_database(server, name)
    server.drop_database(name)


def is_asleep(relay):
    return relay.metric("relay_bell_asleep") == 1


def fall_asleep(relay, seconds=30):
    relay.wait_for(lambda: is_asleep(relay), seconds, "sleep")
    return relay


def holders(database, key=1):
    """The application names of the sessions that hold this lock of the doorbell exclusively."""
    return [name for name, in database.execute(
        "SELECT a.application_name FROM pg_locks l JOIN pg_stat_activity a USING (pid)"
        " WHERE l.locktype = 'advisory' AND l.objid = %s AND l.mode = 'ExclusiveLock' AND l.granted"
        " AND l.classid = 'outbox.message'::regclass AND a.datname = current_database()", (key,))]


def publish(database, topic, key="k"):
    database.execute("SELECT outbox.publish(%s, %s, 'payload')", (topic, key))


def seconds_to_publish(relay, database, topic, key="k", write=publish):
    before = relay.metric("relay_published_total")
    start = time.monotonic()
    write(database, topic, key)
    while relay.metric("relay_published_total") == before:
        assert time.monotonic() - start < 30, "not published"
        time.sleep(0.002)
    return time.monotonic() - start


def doorbell_line(relay):
    """What /readyz, and with it `status`, says of the doorbell."""
    return next(line for line in relay.get("/readyz?verbose")[1].splitlines() if "doorbell" in line)


def test_a_writer_wakes_the_relay(database, topic, make_relay):
    relay = make_relay().wait_ready()
    times = [seconds_to_publish(fall_asleep(relay), database, topic) for _ in range(8)]
    assert statistics.median(times) < PROMPT, times
    # Polls alone would read one of eight in this time. The machine may be busy: benchmarks measure the latency.
    read = relay.metric("relay_latency_commit_to_read_seconds_bucket", le="0.128")
    assert read >= 5, (read, times)
    fall_asleep(relay)
    assert holders(database) == ["outbox-relay bell"]
    assert doorbell_line(relay) == "[+] doorbell of postgres main: asleep, missed 0"
    assert relay.metric("relay_bell_rung_total") >= 7
    assert relay.metric("relay_bell_missed_total") == 0
    # Nobody is woken while nothing is written.
    rung = relay.metric("relay_bell_rung_total")
    time.sleep(2 * POLL)
    assert is_asleep(relay) and relay.metric("relay_bell_rung_total") == rung
    assert relay.stop() == 0
    assert holders(database) == []


def test_a_message_for_which_nobody_rings_is_found_within_a_second(database, topic, make_relay):
    relay = make_relay().wait_ready()
    fall_asleep(relay)
    database.execute("ALTER TABLE outbox.message DISABLE TRIGGER outbox_bell")
    assert seconds_to_publish(relay, database, topic) < POLL + 0.6
    relay.wait_for(lambda: relay.metric("relay_bell_missed_total") == 1, 10, "the miss")
    event = relay.wait_event("bell_missed")[0]
    assert event["reason"] == "the trigger outbox_bell is disabled"
    line = doorbell_line(relay)
    assert line.startswith("[!] doorbell of postgres main: distrust: "), line
    assert line.endswith(", missed 1"), line
    # It polls as without a doorbell, so the next ones wait no second.
    times = [seconds_to_publish(relay, database, topic) for _ in range(5)]
    assert statistics.median(times) < PROMPT, times
    assert relay.metric("relay_bell_missed_total") == 1 and not is_asleep(relay)
    assert holders(database) == []


@pytest.fixture
def report(database, kafka):
    """report(): what doctor says about this test's database."""
    def make(database=database, dsn=None, **settings):
        variables = {f"OUTBOX_RELAY_{name.upper()}": value for name, value in settings.items()}
        return run_command(["doctor"], {"DATABASE_URL": dsn or database.dsn, **variables,
                                        "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap})[1]

    return make


def test_doctor_names_what_keeps_writers_from_ringing(database, topic, make_relay, report):
    fall_asleep(make_relay().wait_ready())
    assert "wake the relay" not in report() and "lock" not in report()
    with database.connect(autocommit=False, application_name="slow shop") as ringer:
        publish_in(ringer, topic)
        assert "a second: session" in report() and "slow shop) has lock 2 of the doorbell" in report()
        ringer.rollback()
    database.execute("ALTER TABLE outbox.message DISABLE TRIGGER outbox_bell")
    assert "it polls: the trigger outbox_bell is disabled" in report()


def test_doctor_names_what_keeps_the_relay_awake(database, topic, report):
    with database.connect(autocommit=False, application_name="slow shop") as writer:
        publish_in(writer, topic)
        assert "lock" not in report()  # each writer has it for a moment
        said = wait_for(lambda: "cannot sleep" in (said := report()) and said, 60, "an old transaction")
        assert "slow shop) has lock 1 of the doorbell and its transaction, which writes messages" in said
        writer.rollback()
    with database.connect(application_name="stranger") as stranger:
        stranger.cursor().execute("SELECT pg_advisory_lock('outbox.message'::regclass::oid::int4, 1)")
        assert "stranger) has lock 1 of the doorbell and is no relay" in report()


def test_doctor_names_the_prepared_transaction_that_keeps_the_relay_awake(
        postgres, migrated, make_database, topic, report):
    postgres.create_database(topic, template=migrated())
    other = make_database(postgres, topic)
    try:
        with other.connect(autocommit=False) as writer:
            publish_in(writer, topic)
            writer.cursor().execute("PREPARE TRANSACTION 'forgotten'")
        said = wait_for(lambda: "cannot sleep" in (said := report(other, postgres_doorbell="on")) and said, 60,
                        "an old transaction")
        assert "prepared transaction forgotten (postgres) has lock 1" in said
    finally:
        other.execute("ROLLBACK PREPARED 'forgotten'")
        postgres.drop_database(topic)


def test_the_miss_names_the_session_whose_ring_is_open(database, topic, make_relay):
    relay = make_relay().wait_ready()
    fall_asleep(relay)
    with database.connect(autocommit=False, application_name="slow shop") as ringer:
        publish_in(ringer, topic)
        assert holders(database, 2) == ["slow shop"]
        assert seconds_to_publish(relay, database, topic) < POLL + 0.6
        event = relay.wait_event("bell_missed")[0]
        assert "slow shop" in event["reason"], event
        ringer.commit()
    relay.wait_for(lambda: relay.metric("relay_published_total") == 2, 10, "the ringer's message")


def publish_in(connection, topic):
    with connection.cursor() as cursor:
        cursor.execute("SELECT outbox.publish(%s, 'other', 'payload')", (topic,))


def test_it_sleeps_only_after_the_writers_that_found_it_awake(database, topic, make_relay):
    relay = make_relay().wait_ready()
    fall_asleep(relay)
    publish(database, topic)
    relay.wait_for(lambda: not is_asleep(relay), 10, "the end of the sleep")
    with database.connect(autocommit=False) as writer:
        publish_in(writer, topic)
        time.sleep(1)
        asleep = is_asleep(relay)
        start = time.monotonic()
        published = relay.metric("relay_published_total")
        writer.commit()
    relay.wait_for(lambda: relay.metric("relay_published_total") > published, 10, "the message")
    assert time.monotonic() - start < PROMPT
    fall_asleep(relay)
    # The writer may have been first to write after the sleep began: then it rang.
    assert not asleep or relay.metric("relay_bell_rung_total") >= 2
    assert relay.metric("relay_bell_missed_total") == 0


def test_a_lost_session_is_replaced(database, topic, make_relay):
    relay = make_relay().wait_ready()
    fall_asleep(relay)
    database.postgres.terminate_backends("outbox-relay bell")
    assert seconds_to_publish(relay, database, topic) < POLL
    fall_asleep(relay)
    assert seconds_to_publish(relay, database, topic) < POLL
    assert relay.metric("relay_bell_missed_total") == 0


def test_an_owner_that_dies_frees_the_lock(database, topic, make_relay):
    first = fall_asleep(make_relay(publisher_lease="3s").wait_ready())
    second = make_relay(publisher_lease="3s").wait_ready()
    assert not is_asleep(second)  # it owns nothing
    first.kill()
    wait_for(lambda: not holders(database), 10, "the end of the session")
    second.wait_for(lambda: second.metric("relay_owner") == 1, 30, "the shard")
    fall_asleep(second)
    assert seconds_to_publish(second, database, topic) < PROMPT


def test_of_two_processes_one_sleeps_and_both_are_prompt(database, topic, make_relay, kafka, tmp_path):
    """Each has a publisher of its own, so a message is published twice."""
    relays = []
    for name in ("main", "second"):
        if name != "main":
            database.execute("SELECT outbox.publisher_create(%s, 1, 'beginning')", (name,))
        path = configuration(tmp_path / f"{name}.ini", "auto", database, kafka)
        path.write_text(f'{path.read_text()}[publisher "{name}"]\n')
        relays.append(make_relay(config=path).wait_ready())
    wait_for(lambda: any(map(is_asleep, relays)), 30, "sleep")
    assert not all(map(is_asleep, relays))  # there is one lock

    def published():
        return [relay.metric("relay_published_total") for relay in relays]

    times = []
    for number in range(10):
        before, start = published(), time.monotonic()
        publish(database, topic, f"key {number}")
        wait_for(lambda: all(map(operator.gt, published(), before)), 30, "the message")
        times.append(time.monotonic() - start)
        time.sleep(0.2)
    assert statistics.median(times) < PROMPT + 0.07 and max(times) < POLL + 0.6, times
    assert sum(relay.metric("relay_bell_missed_total") for relay in relays) == 0


def test_bursts_and_pauses_lose_nothing(database, topic, make_relay, make_writers, kafka, scale):
    relay = make_relay().wait_ready()
    writers = make_writers(connections=8, keys=20, rollback=0.3)
    for _ in range(4):
        fall_asleep(relay, 90)  # a ring that was rolled back is a missed one, after which the relay polls for a minute
        writers.run(scale(2000, default=60))
    verdict = settle(database.dsn, kafka.bootstrap, [topic], quiet=60)
    assert verdict.correct and verdict.duplicates == 0, verdict
    assert verdict.committed == len(writers.committed)
    fall_asleep(relay, 90)


def configuration(path, doorbell, database, kafka, more=""):
    path.write_text(f"[postgres]\ndsn = {database.dsn}\ndoorbell = {doorbell}\n"
                    f"[kafka]\nbootstrap.servers = {kafka.bootstrap}\n{more}")
    return path


def test_a_reload_turns_it_off_and_on(database, topic, make_relay, kafka, tmp_path):
    path = configuration(tmp_path / "relay.ini", "auto", database, kafka)
    relay = fall_asleep(make_relay(config=path).wait_ready())

    configuration(path, "off", database, kafka)
    os.kill(relay.process.pid, signal.SIGHUP)
    relay.wait_event("reloaded")
    relay.wait_for(lambda: not is_asleep(relay), 10, "the end of the sleep")
    wait_for(lambda: not holders(database), 10, "the end of the session")
    assert seconds_to_publish(relay, database, topic) < PROMPT
    time.sleep(0.5)
    assert not is_asleep(relay) and relay.metric("relay_bell_rung_total") == 0
    assert doorbell_line(relay) == "[+] doorbell of postgres main: off: doorbell = off, missed 0"

    configuration(path, "auto", database, kafka)
    os.kill(relay.process.pid, signal.SIGHUP)
    fall_asleep(relay)


def test_a_reload_of_poll_busy_changes_the_pause_between_rings(
        database, topic, make_relay, kafka, tmp_path):
    path = configuration(tmp_path / "relay.ini", "auto", database, kafka)
    relay = fall_asleep(make_relay(config=path).wait_ready())

    def count_prompt():
        """Of six messages into as many sleeps, those that were read within 32 ms."""
        name = "relay_latency_commit_to_read_seconds_bucket"
        before = relay.metric(name, le="0.032")
        for _ in range(6):
            seconds_to_publish(fall_asleep(relay), database, topic)
        return relay.metric(name, le="0.032") - before

    seconds_to_publish(relay, database, topic)
    configuration(path, "auto", database, kafka, "[publisher]\npoll_busy = 5s\n")
    os.kill(relay.process.pid, signal.SIGHUP)
    relay.wait_event("reloaded")
    seconds_to_publish(relay, database, topic)
    # The doorbell tries to sleep again 50 ms after the ring, and each shard looks before it does.
    assert count_prompt() <= 2
    assert relay.metric("relay_bell_missed_total") == 0


def test_prepared_transactions_forbid_it_unless_it_is_on(
        postgres, make_database, topic, make_relay):
    postgres.create_database("bell_prepared")
    other = make_database(postgres, "bell_prepared").migrate()
    try:
        relay = make_relay(database_url=other.dsn).wait_ready()
        event = relay.wait_event("doorbell_off")[0]
        assert event["reason"] == "max_prepared_transactions is above 0"
        assert "main: off: max_prepared_transactions is above 0, missed 0" in doorbell_line(relay)
        with other.connect(autocommit=False) as writer:
            publish_in(writer, topic)
            with writer.cursor() as cursor:
                cursor.execute("PREPARE TRANSACTION 'bell'")
        other.execute("COMMIT PREPARED 'bell'")
        relay.wait_for(lambda: relay.metric("relay_published_total") == 1, 10, "the message")
        assert not is_asleep(relay) and relay.stop() == 0

        relay = fall_asleep(make_relay(database_url=other.dsn, postgres_doorbell="on"))
        assert seconds_to_publish(relay, other, topic) < PROMPT
        relay.wait_for(lambda: relay.metric("relay_bell_rung_total") == 1, 10, "the metric")
        assert relay.stop() == 0
    finally:
        postgres.drop_database("bell_prepared")


def test_a_flood_of_rings_is_counted_while_it_lasts(database, make_relay):
    """By any login; the relay stays awake."""
    relay = fall_asleep(make_relay().wait_ready())
    channel = database.execute("SELECT 'outbox_bell_' || 'outbox.message'::regclass::oid")[0][0]

    def rung():
        database.execute(f"NOTIFY {channel}")
        return relay.metric("relay_bell_rung_total")

    relay.wait_for(lambda: rung() >= 10, 10, "the rings")
    assert not is_asleep(relay)
    fall_asleep(relay)
    assert relay.metric("relay_bell_missed_total") == 0


def test_behind_a_pooler_it_polls(database, server, topic, make_relay, report):
    with PgBouncer(server) as pooler:
        relay = make_relay(database_url=pooler.dsn(database.name)).wait_ready()
        event = relay.wait_event("doorbell_off")[0]
        assert event["reason"] == "a pooler is between relay and server"
        assert seconds_to_publish(relay, database, topic) < PROMPT
        assert not is_asleep(relay) and holders(database) == []
        assert "it polls: a pooler is between" in report(dsn=pooler.dsn(database.name))
        assert relay.stop() == 0


def cpu_seconds(*pids):
    """Of all threads that live, in seconds, more exactly than /proc/PID/stat has it."""
    total = 0
    for pid in pids:
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/schedstat") as file:
                total += int(file.read().split()[0])
    return total / 1e9


def sessions(server):
    """The server's processes for the sessions of relays."""
    with server.session() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'outbox-relay %'")
        return [pid for pid, in cursor.fetchall()]


def test_idle_databases_cost_next_to_nothing(
        server, template, make_database, make_relay, kafka, tmp_path, scale):
    """The process: at most a thousandth of a core each, and 1.5 MiB. The sessions of one database in
    the server, of which there are five: at most two thousandths."""
    count = scale(20, default=6)
    lines = [f"[kafka]\nbootstrap.servers = {kafka.bootstrap}\n"]
    for number in range(count):
        server.create_database(f"idle_{number}", template=template)
        own = make_database(server, f"idle_{number}")
        own.execute("SELECT outbox.publisher_create(%s, 1, 'beginning')", (f"shop_{number}",))
        lines.append(f'[postgres "{number}"]\ndsn = {own.dsn}\n'
                     f'[publisher "shop_{number}"]\npostgres = {number}\n')
    path = tmp_path / "relay.ini"
    path.write_text("".join(lines))

    relay = make_relay(config=path, database_url="").wait_ready()
    try:
        relay.wait_for(lambda: relay.metric("relay_bell_asleep") == count, 300, "sleep of all")
        pid, pids, seconds = relay.process.pid, sessions(server), 5
        before, sessions_before = cpu_seconds(pid), cpu_seconds(*pids)
        time.sleep(seconds)
        used = (cpu_seconds(pid) - before) / seconds
        sessions_used = (cpu_seconds(*pids) - sessions_before) / seconds
        assert used < 0.003 + 0.001 * count, f"{used:.4f} of a core for {count} databases"
        assert sessions_used < 0.002 * count, f"{sessions_used:.4f} of a core in {len(pids)} sessions"
        with open(f"/proc/{pid}/status") as file:
            resident = next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))
        assert resident < (20 + 1.5 * count) * 1024, f"{resident} KiB for {count} databases"
        assert relay.stop() == 0
    finally:
        if relay.running:
            relay.kill()
        for number in range(count):
            server.drop_database(f"idle_{number}")
