"""The alert rules themselves on a real Prometheus that scrapes a real relay: what they are about is broken on purpose,
the alert fires, and it ends after the repair. The minutes of the rules are seconds (support/prometheus.py); nothing else
of them is changed. Three by default, all with --full."""

import contextlib
import pathlib
import re
import threading
import time
import urllib.error
import urllib.request
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest
import yaml

from support.application import Application
from support.business import Business
from support.dns import NameServer, a, srv
from support.grpc_shop import GrpcShop
from support.inbox import produce
from support.kafka import Kafka
from support.lookback import Case
from support.postgres import Postgres, carry
from support.process import free_port, wait_for
from support.prometheus import Prometheus, shortened
from support.proxy import Proxy
from support.redis import Redis
from support.relay import run_command

ROOT = pathlib.Path(__file__).resolve().parents[2]
RULES = ROOT / "docs/examples/alerts.yml"
LIMIT = 100  # seconds; a look at the backlog comes every 15
every_alert = pytest.mark.full("every other alert is tried live")


def test_shortened_rules_differ_in_their_times_only():
    text = RULES.read_text(encoding="utf-8")
    assert "for: 2s" in shortened(text) and "[5s]" in shortened(text) and "offset 15s" in shortened(text)
    bare = re.compile(r"(for: |\[|offset )\d+[smh]\b")
    assert bare.sub("", shortened(text)) == bare.sub("", text) and shortened("a > 60") == "a > 60"
    assert shortened("for: 6h") == "for: 20s" and shortened("[1m]") == "[2s]"


@pytest.fixture(scope="module")
def prometheus():
    with Prometheus(shortened(RULES.read_text(encoding="utf-8"))) as server:
        yield server


class World:
    """The relays of a test, as one job, and the alerts of that job."""

    def __init__(self, prometheus, job, database, kafka, topic, make_relay, folder):
        self.prometheus, self.job = prometheus, job
        self.database, self.kafka, self.topic = database, kafka, topic
        self.make_relay, self.folder = make_relay, folder

    def watch(self, *relays):
        self.prometheus.scrape({self.job: [relay.admin_port for relay in relays]})
        wait_for(lambda: len(self.prometheus.query(f'relay_up{{job="{self.job}"}} == 1')) == len(relays), 60, "scrapes")
        return relays[0]

    def start(self, **settings):
        return self.watch(self.make_relay(**{"postgres_upkeep_interval": "500ms", **settings}).wait_ready())

    def states(self, *alerts):
        labels = {} if "OutboxNoRelay" in alerts else {"job": self.job}
        return {alert: self.prometheus.state_of(alert, **labels) for alert in alerts}

    def wait(self, state, *alerts, limit=LIMIT):
        wait_for(lambda: set(self.states(*alerts).values()) == {state}, limit,
                 lambda: f"{state}: {self.states(*alerts)}", interval=0.2)

    @contextlib.contextmanager
    def fire(self, *alerts, limit=LIMIT):
        """The body breaks something; the alerts fire at its end, and not before."""
        assert set(self.states(*alerts).values()) == {"inactive"}, self.states(*alerts)
        yield
        self.wait("firing", *alerts, limit=limit)
        assert not self.prometheus.errors()

    def publish(self, count=1, topic=None, **columns):
        columns = {"topic": topic or self.topic, "key": "k", "payload": "{}", **columns}
        for _ in range(count):
            self.database.execute(f"insert into outbox.message ({', '.join(columns)}) "
                                  f"values ({', '.join(['%s'] * len(columns))})", list(columns.values()))

    def wait_published(self, relay, count):
        relay.wait_for(lambda: (relay.metric("relay_published_total") or 0) >= count, LIMIT, f"{count} records")

    def run(self, *words, **settings):
        status, output, error = run_command(words, {
            "DATABASE_URL": self.database.dsn, "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": self.kafka.bootstrap, **settings})
        assert status == 0, output + error
        return output

    @contextlib.contextmanager
    def locked(self, statement):
        """An open transaction that has run the statement."""
        session = self.database.connect(autocommit=False)
        try:
            session.cursor().execute(statement)
            yield
        finally:
            session.close()


@pytest.fixture
def world(prometheus, database, kafka, topic, make_relay, tmp_path):
    yield World(prometheus, database.name, database, kafka, topic, make_relay, tmp_path)
    prometheus.scrape({})


# --- publish ---------------------------------------------------------------------------------


def test_a_missing_topic(world):
    """OutboxTopicMissing OutboxPartitionStalled"""
    world.start(publisher_stall_after="2s")
    name = f"{world.topic}.missing"
    with world.fire("OutboxTopicMissing", "OutboxPartitionStalled"):
        world.publish(3, name)
    world.kafka.create_topic(name, 2)
    world.wait("inactive", "OutboxTopicMissing", "OutboxPartitionStalled")


@every_alert
def test_no_relay_runs(world):
    """OutboxNoRelay"""
    relay = world.start()
    world.wait("inactive", "OutboxNoRelay")
    with world.fire("OutboxNoRelay"):
        assert relay.stop() == 0
    relay.start().wait_ready()
    world.wait("inactive", "OutboxNoRelay")


@every_alert
def test_no_relay_can_take_the_shard(world):
    """OutboxPublisherWithoutOwner"""
    owner = world.start()
    world.watch(owner, world.make_relay().wait_ready())
    with world.locked("lock table outbox.log in access exclusive mode"), world.fire("OutboxPublisherWithoutOwner"):
        owner.kill()
    world.wait("inactive", "OutboxPublisherWithoutOwner")


@every_alert
def test_kafka_is_away(world):
    """OutboxNothingPublished OutboxMessagesLate OutboxPartitionHeld"""
    world.database.execute("select outbox.partition_make('message', '2020-01-01', '2020-01-02')")
    relay = world.start(postgres_retain="1d")
    world.publish()
    world.wait_published(relay, 1)
    world.kafka.pause()
    try:
        with world.fire("OutboxNothingPublished", "OutboxMessagesLate", "OutboxPartitionHeld"):
            world.publish(created_at="2020-01-01T12:00:00Z")
    finally:
        world.kafka.resume()
    world.wait("inactive", "OutboxNothingPublished", "OutboxMessagesLate", "OutboxPartitionHeld")


@every_alert
def test_a_due_message_waits(world):
    """OutboxScheduledLate"""
    relay = world.start()
    world.publish(deliver_at=world.database.execute("select now() + interval '2 s'")[0][0])
    relay.wait_for(lambda: world.database.execute("select count(*) from outbox.scheduled") == [(1,)])
    world.kafka.pause()
    try:
        with world.fire("OutboxScheduledLate", limit=2 * LIMIT):
            pass
    finally:
        world.kafka.resume()
    world.wait("inactive", "OutboxScheduledLate")


def limit_topic(world, bytes):
    world.kafka.alter_topic(world.topic, max_message_bytes=bytes)


@every_alert
def test_a_message_is_too_large(world):
    """OutboxMessagesDead"""
    limit_topic(world, 2000)
    world.start(publisher_max_attempts="1")
    with world.fire("OutboxMessagesDead"):
        world.publish(payload="x" * 5000)
    limit_topic(world, 1_048_588)
    world.run("parked", "retry", "--all", "--yes", "--reason", "the limit is raised")
    world.wait("inactive", "OutboxMessagesDead")


@every_alert
def test_a_publisher_stops_at_a_refused_record(world):
    """OutboxPublisherBlocked"""
    limit_topic(world, 2000)
    path = world.folder / "relay.ini"
    path.write_text(f'[topic "{world.topic}"]\non_refusal = stop\n')
    relay = world.start(config=path)
    with world.fire("OutboxPublisherBlocked"):
        world.publish(payload="x" * 5000)
    limit_topic(world, 1_048_588)
    relay.stop()
    relay.start().wait_ready()
    world.wait("inactive", "OutboxPublisherBlocked")


@every_alert
def test_a_topic_may_not_be_written_to(prometheus, database, make_relay, tmp_path):
    """OutboxTopicDenied"""
    rights = {"authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
              "allow_everyone_if_no_acl_found": "true"}
    with Kafka(nodes=1, **rights) as cluster:
        def allow(*operations):
            cluster.tool("kafka.admin.AclCommand", "--bootstrap-server", cluster.bootstrap, "--add",
                         "--allow-principal", "User:ANONYMOUS", "--topic", topic,
                         *(word for name in operations for word in ("--operation", name)))

        topic = cluster.create_topic("secret", partitions=2)
        allow("read", "describe", "describeconfigs")
        world = World(prometheus, database.name, database, cluster, topic, make_relay, tmp_path)
        relay = world.start(bootstrap=cluster.bootstrap, publisher_stall_after="600s")
        with world.fire("OutboxTopicDenied"):
            world.publish()
        allow("write")
        world.wait("inactive", "OutboxTopicDenied")
        relay.stop()


@every_alert
def test_the_log_cannot_be_written(world):
    """OutboxLeaseOver"""
    world.start(publisher_lease="2s")
    with world.locked("lock table outbox.log in access exclusive mode"), world.fire("OutboxLeaseOver"):
        pass
    world.wait("inactive", "OutboxLeaseOver")


@every_alert
def test_an_owner_is_paused(world):
    """OutboxLeaseLost"""
    owner = world.start(publisher_lease="2s")
    other = world.make_relay(publisher_lease="2s").wait_ready()
    world.watch(owner, other)
    with world.fire("OutboxLeaseLost"):
        owner.pause()
        other.wait_event("shard_taken")
        owner.resume()
    world.wait("inactive", "OutboxLeaseLost")


@every_alert
def test_a_database_goes_back_in_time(world):
    """OutboxHistoryRewound"""
    relay = world.start()
    world.publish(10)
    world.wait_published(relay, 10)
    assert relay.stop() == 0
    copy = f"{world.database.name}_copy"
    world.database.postgres.create_database(copy, template=world.database.name)
    try:
        relay.start().wait_ready()
        world.publish(10)
        world.wait_published(relay, 10)
        assert relay.stop() == 0
        world.watch(other := world.make_relay(database_url=world.database.postgres.dsn(copy)))
        with world.fire("OutboxHistoryRewound"):
            world.database.postgres.execute("insert into outbox.message (topic, key, payload) values (%s, 'k', '{}')",
                                            (world.topic,), copy)
        world.wait("inactive", "OutboxHistoryRewound")
        other.stop()
    finally:
        world.database.postgres.drop_database(copy)


@every_alert
def test_rows_come_from_another_cluster(prometheus, database, kafka, topic, make_relay, make_database, tmp_path):
    """OutboxCopiedFromAnotherCluster"""
    with Postgres() as target:
        carry(database.postgres, target, database.name)
        world = World(prometheus, database.name, make_database(target, database.name), kafka, topic, make_relay, tmp_path)
        assert world.states("OutboxCopiedFromAnotherCluster") == {"OutboxCopiedFromAnotherCluster": "inactive"}
        relay = world.watch(make_relay(database_url=world.database.dsn))
        world.wait("firing", "OutboxCopiedFromAnotherCluster")
        world.run("publisher", "rebase", "--all", "--yes", "--reason", "a dump")
        world.wait("inactive", "OutboxCopiedFromAnotherCluster")
        relay.stop()


# --- upkeep ----------------------------------------------------------------------------------


def test_a_session_keeps_the_lock_of_upkeep(world):
    """OutboxUpkeepLockedOut"""
    world.start()
    with world.locked("select from outbox.upkeep_lock for update"), world.fire("OutboxUpkeepLockedOut"):
        pass
    world.wait("inactive", "OutboxUpkeepLockedOut")


@every_alert
def test_upkeep_fails(world):
    """OutboxUpkeepFailing"""
    world.start()
    with world.fire("OutboxUpkeepFailing"):
        world.database.execute("alter table outbox.upkeep_lock rename to upkeep_lock_away")
    world.database.execute("alter table outbox.upkeep_lock_away rename to upkeep_lock")
    world.wait("inactive", "OutboxUpkeepFailing")


@every_alert
def test_a_table_has_the_name_of_the_next_partition(world):
    """OutboxUpkeepBehind"""
    names = [name for name, in world.database.execute(
        "select 'outbox.message_p' || to_char(now() at time zone 'UTC' + i * interval '1 day', 'YYYYMMDD') "
        "from generate_series(1, 9) i")]
    for name in names:
        world.database.execute(f"drop table if exists {name}")
        world.database.execute(f"create table {name} ()")
    with world.fire("OutboxUpkeepBehind"):
        world.start()
    for name in names:
        world.database.execute(f"drop table {name}")
    world.wait("inactive", "OutboxUpkeepBehind")


@every_alert
def test_rows_stay_in_the_default_partition(world):
    """OutboxDefaultPartition"""
    relay = world.start()
    world.publish()
    world.wait_published(relay, 1)
    with world.locked("lock table outbox.message_default in row exclusive mode"), world.fire("OutboxDefaultPartition"):
        world.publish(created_at="2020-01-01T00:00:00Z")
    world.wait("inactive", "OutboxDefaultPartition")


@every_alert
def test_the_sequence_gets_a_cache(world):
    """OutboxIdsUnordered"""
    world.start()
    with world.fire("OutboxIdsUnordered"):
        world.database.execute("alter sequence outbox.message_id_seq cache 5")
    world.database.execute("alter sequence outbox.message_id_seq increment by 1 cache 1")
    world.wait("inactive", "OutboxIdsUnordered")


@every_alert
def test_the_folder_of_the_archive_is_missing(world):
    """OutboxArchiveWaits"""
    world.database.execute("select outbox.partition_make('message', '2020-01-01', '2020-01-02')")
    world.publish(created_at="2020-01-01T12:00:00Z")
    folder = world.folder / "archive"
    with world.fire("OutboxArchiveWaits"):
        world.start(postgres_retention="archive", postgres_retain="1d", postgres_archive_path=folder)
    folder.mkdir()
    world.wait("inactive", "OutboxArchiveWaits")


@every_alert
def test_a_writer_does_not_ring(prometheus, quiet_database, kafka, topic, make_relay, tmp_path):
    """OutboxDoorbellMissed"""
    world = World(prometheus, quiet_database.name, quiet_database, kafka, topic, make_relay, tmp_path)
    relay = world.watch(make_relay(database_url=quiet_database.dsn).wait_ready())
    relay.wait_for(lambda: relay.metric("relay_bell_asleep") == 1, LIMIT, "sleep")
    with world.fire("OutboxDoorbellMissed"):
        with quiet_database.connect() as session, session.cursor() as cursor:
            cursor.execute("set session_replication_role = replica")
            cursor.execute("insert into outbox.message (topic, key, payload) values (%s, 'k', '{}')", (topic,))
    world.wait("inactive", "OutboxDoorbellMissed")
    relay.stop()


# --- look-back -------------------------------------------------------------------------------


@pytest.fixture
def lookback(world):
    """start(**settings of the section): a relay and the application of a look-back."""
    def start(url=None, check=(), **settings):
        case = Case(world.database, world.kafka, world.make_relay, world.database.name, **settings)
        case.check |= {"networks": "127.0.0.0/8", **({"url": url} if url else {}), **dict(check)}
        world.watch(case.relay().wait_ready())
        return case.application

    return start


@every_alert
def test_a_business_is_away(world, lookback):
    """LookbackBreakerOpen"""
    business = Business(lambda _, ids: dict.fromkeys(ids, "commit"))
    application = lookback(business.url, {"retry_first": "200ms", "breaker_pause": "1s"}, check_after="100ms")
    with world.fire("LookbackBreakerOpen"):
        application.prepare(*map(str, range(40)))
    with business:
        world.wait("inactive", "LookbackBreakerOpen")


@every_alert
def test_a_business_has_no_answer(world, lookback):
    """LookbackParked"""
    with Business(lambda _, ids: dict.fromkeys(ids, "unknown")) as business:
        application = lookback(business.url, {"max_attempts": 2, "retry_first": "200ms"}, check_after="100ms")
        with world.fire("LookbackParked"):
            application.prepare("1", "2")
        world.run("lookback", "rollback", "--all", "--yes", "--reason", "test data")
        world.wait("inactive", "LookbackParked")


@every_alert
def test_an_application_contradicts_itself(world, lookback):
    """LookbackConflicts"""
    application = lookback()
    with world.fire("LookbackConflicts"):
        application.prepare("1")
        application.commit("1")
        application.rollback("1")
    world.database.execute("update outbox.lookback_conflict set at = at - interval '1 hour'")  # time passes
    world.wait("inactive", "LookbackConflicts")


@every_alert
def test_a_record_of_the_look_back_cannot_be_read(world, lookback):
    """LookbackDeadLetters"""
    application = lookback()
    with world.fire("LookbackDeadLetters"):
        application.send((b"order:1", b"no JSON", []))
    world.wait("inactive", "LookbackDeadLetters")


@every_alert
def test_a_commit_has_no_prepare(world, lookback):
    """LookbackUnprepared"""
    application = lookback()
    with world.fire("LookbackUnprepared", limit=2 * LIMIT):
        application.commit("1")
    application.prepare("1")
    world.wait("inactive", "LookbackUnprepared", limit=2 * LIMIT)


@every_alert
def test_a_business_does_not_know_a_message(world, lookback):
    """LookbackUndecided"""
    answers = {"1": "unknown"}
    with Business(lambda _, ids: {id: answers[id] for id in ids}) as business:
        application = lookback(business.url, {"retry_first": "500ms"}, check_after="100ms", claim="1s")
        application.prepare("1")
        wait_for(lambda: world.database.execute("select count(*) from outbox.lookback_overdue") == [(1,)], LIMIT, "a question")
        with world.fire("LookbackUndecided"):
            for table in ("lookback", "lookback_overdue"):  # time passes
                world.database.execute(f"update outbox.{table} set prepared_at = prepared_at - interval '20 minutes'")
        answers["1"] = "commit"
        world.wait("inactive", "LookbackUndecided")


@every_alert
def test_no_address_of_a_service_works(world, lookback):
    """LookbackNoAddress"""
    with NameServer() as names:
        names.set("_grpc._tcp.shop.example", srv("a.shop.example", port := free_port(), ttl=1))
        names.set("a.shop.example", a("127.0.0.2", ttl=1))
        application = lookback("grpc://shop.example", {"name_servers": names.address}, check_after="100ms")
        with world.fire("LookbackNoAddress"):
            application.prepare(*map(str, range(40)))
        with GrpcShop(world.folder, "127.0.0.2", port):
            world.wait("inactive", "LookbackNoAddress")


# --- inbox and HTTP interface ------------------------------------------------------------------


def send(world, count=1, first=0, **options):
    produce(world.kafka.bootstrap, world.topic,
            [(str(uuid.uuid4()), f"k{number}", "{}") for number in range(first, first + count)], **options)


def operated():
    """The environment of a relay whose sections an operator can pause and resume."""
    return {"api_listen": f"127.0.0.1:{free_port()}"}


def test_the_application_is_away(world, make_sidecar):
    """InboxBreakerOpen"""
    port = free_port()
    world.watch(make_sidecar(None, url=f"http://127.0.0.1:{port}/"))
    with world.fire("InboxBreakerOpen"):
        send(world, 40)
    with Application(port=port):
        world.wait("inactive", "InboxBreakerOpen")


@every_alert
def test_the_application_handles_nothing(world, make_sidecar):
    """InboxStuck"""
    with Application(lambda _: 503) as application:
        world.watch(make_sidecar(application, attempts=0))
        with world.fire("InboxStuck", limit=2 * LIMIT):
            send(world)
        application.answer = lambda _: 200
        world.wait("inactive", "InboxStuck")


@every_alert
def test_the_application_refuses_messages(world, make_sidecar):
    """InboxDeadLetters"""
    with Application(lambda _: 400) as application:
        world.watch(make_sidecar(application))
        with world.fire("InboxDeadLetters"):
            send(world, 3)
        world.wait("inactive", "InboxDeadLetters")


@every_alert
def test_there_is_no_topic_for_dead_letters(world, make_sidecar):
    """InboxPartitionBlocked"""
    with Application(lambda _: 400) as application:
        relay = world.watch(make_sidecar(application, dead_letter_topic=None, environment=operated()))
        with world.fire("InboxPartitionBlocked"):
            send(world)
        application.answer = lambda _: 200
        world.run("deliver", "resume", "billing", "--reason", "repaired", **relay.settings)
        world.wait("inactive", "InboxPartitionBlocked")


@every_alert
def test_the_server_of_the_claims_is_away(world, make_sidecar):
    """InboxClaimsLost"""
    handled = threading.Event()

    def handle(_):
        handled.wait(LIMIT)
        return 200

    with Redis() as server, Application(handle) as application:
        relay = make_sidecar(application, dedup=None, timeout="5m", claims=f"redis url={server.url} name=b lease=600ms")
        world.watch(relay)
        with world.fire("InboxClaimsLost"):
            send(world)
            wait_for(lambda: application.open == 1, LIMIT, "a delivery")
            relay.pause()
            wait_for(lambda: not [key for key in server.client.keys("*") if server.client.pttl(key) > 0], LIMIT,
                     "the end of the claim")
            server.kill()
            handled.set()
            relay.resume()
            relay.wait_event("inbox_claim_lost")
            server.start()
        world.wait("inactive", "InboxClaimsLost")


@every_alert
def test_the_database_of_the_reports_is_away(world, make_sidecar):
    """InboxUnreported"""
    with Proxy(world.database.postgres.port) as network, Application() as application:
        dsn = world.database.dsn.replace(f":{world.database.postgres.port}/", f":{network.port}/")
        world.watch(make_sidecar(application, report=f'postgres dsn="{dsn}" timeout=1s'))
        with world.fire("InboxUnreported"):
            network.refuse()
            send(world, 5)
        network.heal()
        world.wait("inactive", "InboxUnreported")


@every_alert
def test_more_ids_come_than_the_filter_has_room_for(world, make_sidecar):
    """DedupMoreIdsThanPlanned"""
    with Application() as application:
        world.watch(make_sidecar(application, form="batch", batch=250, dedup="bloom ids=1000 rate=1% window=1h"))
        with world.fire("DedupMoreIdsThanPlanned"):
            send(world, 9000, timestamp=int((time.time() - 4 * 3600) * 1000))
        send(world, 600)  # the window's time is that of the records
        world.wait("inactive", "DedupMoreIdsThanPlanned")


@every_alert
def test_the_rows_of_remembered_ids_are_missing(world, make_sidecar):
    """DedupFilterAlarm"""
    world.database.execute("create table handled (id text)")
    dedup = f"""bloom ids=500k rate=1% window=1h confirm=sql dsn="{world.database.dsn}" \
query="select id from handled where id = any($1)\""""

    def send_ids(first, count):
        produce(world.kafka.bootstrap, world.topic,
                [(str(i), f"k{i % 500}", "{}", 0) for i in range(first, first + count)])

    with Application() as application:
        world.watch(make_sidecar(application, form="batch", batch=250, concurrency=500, dedup=dedup))
        with world.fire("DedupFilterAlarm"):
            for _ in range(2):
                send_ids(0, 70_000)
        send_ids(100_000, 140_000)
        world.wait("inactive", "DedupFilterAlarm")


@every_alert
def test_a_filter_has_too_many_false_positives(world, make_sidecar):
    """DedupFilterRepaired"""
    with Application() as application:
        world.watch(make_sidecar(application, form="batch", batch=250, concurrency=500,
                                 dedup="bloom ids=300k rate=20% alarm=0.1% window=1h"))
        with world.fire("DedupFilterRepaired"):
            produce(world.kafka.bootstrap, world.topic, [(str(i), f"k{i % 500}", "{}", 0) for i in range(70_000)])
        world.wait("inactive", "DedupFilterRepaired")


def guess(address, number):
    request = urllib.request.Request(f"http://{address}/v1/lookback?state=overdue",
                                     headers={"Authorization": f"Bearer guess-{number}"})
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(request, timeout=60)


@every_alert
def test_somebody_guesses_tokens(world):
    """ApiWrongTokens"""
    access = operated()
    world.start(**access)
    # All at once, since the relay holds the answers to a guesser back.
    with ThreadPoolExecutor(60) as guessers, world.fire("ApiWrongTokens"):
        guesses = [guessers.submit(guess, access["api_listen"], number) for number in range(60)]
    for each in guesses:
        each.result()
    world.wait("inactive", "ApiWrongTokens")


# The first line of each test names its alerts.
def test_every_rule_is_tried_live():
    tests = [test for name, test in globals().copy().items() if name.startswith("test_") and test.__doc__]
    rules = {rule["alert"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]}
    assert rules == {name for test in tests for name in test.__doc__.split()}
