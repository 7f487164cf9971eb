"""A database whose cluster is another one than it was: a dump that was restored, pg_upgrade, and a
standby that was promoted. Each either goes on, with nothing lost and nothing twice, or is refused
until a rebase."""

import pytest

from support.auditor import audit, committed_messages, count_records, read_topics
from support.pgbouncer import PgBouncer
from support.postgres import Postgres, Standby, Upgraded, carry
from support.process import wait_for
from support.relay import run_command

LEASE = "4s"  # which a slow machine keeps
OLD_XIDS = 5 * 2**20  # far beyond what a fresh cluster will ever reach in a test
EPOCHS = "SELECT publisher, shard, epoch FROM outbox.progress ORDER BY 1, 2"
SYSTEM = "SELECT system_identifier FROM pg_control_system()"
CURE = "run `outbox-relay publisher rebase --all`"


@pytest.fixture
def make_shop(database):
    """make_shop(server): a database of its own there, with the schema; or what is in it already."""
    def make(server, migrate=True):
        if migrate:
            server.create_database("shop")
        shop = type(database)(server, "shop")
        return shop.migrate() if migrate else shop

    return make


def whichever_writes(shop, standby):
    own = f"127.0.0.1:{shop.postgres.port}"
    hosts = shop.dsn.replace(own, f"{own},127.0.0.1:{standby.port}")
    return f"{hosts}?target_session_attrs=read-write"


@pytest.fixture
def publishers(tmp_path):
    """Arguments of a relay that publishes two publishers, of which one has shards."""
    file = tmp_path / "publishers.ini"
    file.write_text('[publisher "main"]\n[publisher "other"]\n')
    return "--config", str(file), "run"


def records_of(kafka, topic, publisher):
    return [record for record in read_topics(kafka.bootstrap, [topic])
            if dict(record.headers)["outbox-position"].startswith(f"2:{publisher}:".encode())]


AGES = {"a younger cluster": (OLD_XIDS, None), "an older cluster": (None, OLD_XIDS),
        "a cluster of the same age": (None, None)}


@pytest.mark.rotated
@pytest.mark.parametrize("age", AGES)
def test_a_dump_in_another_cluster_is_refused_until_a_rebase_and_goes_on_then(
        age, kafka, topic, make_relay, make_writers, make_shop, command, publishers, until_published):
    """Two publishers, one of which is behind; rows in Kafka that nobody noted; rows that nobody read; and
    writers that went on in the copy, before and during the rebase."""
    old, new = AGES[age]
    with Postgres(next_xid=old) as origin, Postgres(next_xid=new) as target:
        shop = make_shop(origin)
        command("publisher", "create", "--shards", 2, "other", database_url=shop.dsn)
        settings = {"publisher_lease": LEASE, "publisher_ack_interval": "60s", "arguments": publishers}
        relay = make_relay(database_url=shop.dsn, **settings).wait_ready()
        writers = make_writers(dsn=shop.dsn, connections=2, keys=20)
        writers.run(50)
        for publisher in ("main", "other"):
            until_published(publisher, database=shop)
        relay.stop()
        writers.huge_transaction(1000)
        relay.start(OUTBOX_RELAY_FAULT="after_acknowledgement")
        assert relay.wait(60) == -9
        writers.run(50)
        epochs = shop.execute(EPOCHS)
        carry(origin, target, "shop")
        origin.stop()

        copy = make_shop(target, migrate=False)
        noted = count_records(kafka.bootstrap, [topic])
        relay = make_relay(database_url=copy.dsn, **settings)
        relay.wait_event("publisher_elsewhere", count=3)
        relay.wait_for(lambda: relay.readiness_says(
            503, "[-] publisher main/0: standby", "[-] publisher other/1", "another database cluster", CURE),
            what="its readiness")
        relay.wait_for(lambda: relay.metric("relay_elsewhere", publisher="main", shard="0") == 1, what="the metric")
        assert CURE in " ".join(command("status", database_url=copy.dsn).split())  # it wraps its lines
        status, findings, _ = run_command(
            ["doctor"], {"DATABASE_URL": copy.dsn,
                         "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap})
        assert status == 1 and f"cure: {CURE}" in findings

        later = make_writers(dsn=copy.dsn, connections=2, keys=20)
        later.run(20)
        assert relay.events("shard_taken") == []
        assert count_records(kafka.bootstrap, [topic]) == noted
        with later:
            assert "rebased: " in command("publisher", "rebase", "--all", "--yes", "--reason", "restored",
                                          database_url=copy.dsn)
            relay.wait_event("shard_taken", count=3)
        assert len(relay.events("publisher_elsewhere")) == 3
        for publisher in ("main", "other"):
            until_published(publisher, database=copy)
            verdict = audit(committed_messages(copy.dsn), records_of(kafka, topic, publisher),
                            same_epoch=False)
            print(f"{publisher}: {verdict}")
            assert verdict.correct and verdict.committed > 1200, verdict
            assert verdict.duplicates == 0, verdict
        assert not {row[2] for row in copy.execute(EPOCHS)} & {row[2] for row in epochs}
        relay.wait_for(lambda: relay.get("/readyz?verbose")[0] == 200, what="its readiness")
        relay.wait_for(lambda: relay.metric("relay_elsewhere", publisher="main", shard="0") == 0, what="the metric")
        assert relay.stop() == 0


@pytest.mark.rotated
@pytest.mark.parametrize("pooled", [False, True], ids=["directly", "behind a pooler"])
def test_the_server_is_exchanged_under_a_living_owner(
        pooled, kafka, topic, make_relay, make_writers, make_shop, command, until_published):
    """At the same address, with the log that it has written to."""
    with Postgres(next_xid=OLD_XIDS) as origin, Postgres() as target, PgBouncer(origin) as pooler:
        shop = make_shop(origin)
        dsn = pooler.dsn("shop") if pooled else shop.dsn
        relay = make_relay(database_url=dsn, publisher_lease="60s").wait_ready()
        writers = make_writers(dsn=shop.dsn, connections=2, keys=20)
        writers.run(50)
        until_published(database=shop)
        relay.pause()
        writers.run(20)
        carry(origin, target, "shop")
        origin.stop()
        target.stop()
        target.port = origin.port
        with open(f"{target.data}/postgresql.conf", "a") as file:
            file.write(f"port = {origin.port}\n")
        target.start()
        relay.resume()
        relay.wait_event("publisher_elsewhere")
        writers.run(20)
        command("publisher", "rebase", "main", "--yes", "--reason", "restored", database_url=shop.dsn)
        until_published(database=shop)
        verdict = audit(committed_messages(shop.dsn), read_topics(kafka.bootstrap, [topic]),
                        same_epoch=False)
        assert verdict.correct and verdict.duplicates == 0, verdict
        assert relay.stop() == 0


def test_a_publisher_that_is_refused_stops_no_other(
        database, kafka, topic, make_relay, make_shop, command, tmp_path):
    with Postgres() as origin, Postgres() as target:
        make_shop(origin)
        carry(origin, target, "shop")
        file = tmp_path / "two.ini"
        file.write_text(f'[postgres]\ndsn = {target.dsn("shop")}\n'
                        f'[postgres "second"]\ndsn = {database.dsn}\n'
                        f"[kafka]\nbootstrap.servers = {kafka.bootstrap}\n"
                        '[publisher]\n[publisher "other"]\npostgres = second\n')
        command("publisher", "create", "other")
        relay = make_relay(arguments=("--config", str(file), "run"), database_url="", bootstrap="")
        relay.wait_event("publisher_elsewhere", publisher="main")
        database.execute("SELECT outbox.publish(%s, 'k', 'x'::text)", (topic,))
        relay.wait_for(lambda: count_records(kafka.bootstrap, [topic]) == 1, what="the record")
        relay.wait_for(lambda: relay.readiness_says(
            503, "[-] publisher main/0", "[+] publisher other/0: owner"), what="its readiness")
        assert relay.stop() == 0


def test_a_drain_of_a_database_that_was_carried_here_ends_and_says_so(make_relay, make_shop):
    with Postgres() as origin, Postgres() as target:
        make_shop(origin)
        carry(origin, target, "shop")
        relay = make_relay(arguments=("run", "--drain"), database_url=target.dsn("shop"))
        assert relay.wait() == 65
        assert CURE in relay.output()


@pytest.mark.parametrize("arguments, status, words", [
    (["main"], 65, ["--reason"]),
    (["main", "--reason", "why"], 65, ["--yes"]),
    (["nobody", "--dry-run"], 65, ["no publisher nobody"]),
    (["--dry-run"], 65, ["--all"]),
    (["main", "--dry-run"], 65, ["2 are there", "--all"]),
    (["--all", "--dry-run"], 0, ["publisher main: written here, rows to publish: 1", "publisher second: "]),
    (["--all", "--yes", "--reason", "why"], 65, ["nothing to rebase"]),
])
def test_what_publisher_rebase_asks_for(database, arguments, status, words):
    database.execute("SELECT outbox.publisher_create('second', 1, 'beginning')")
    database.execute("SELECT outbox.publish('t', 'k', 'x'::text)")
    done, output, error = run_command(["publisher", "rebase", *arguments],
                                      {"DATABASE_URL": database.dsn})
    assert done == status, error
    assert all(word in output + error for word in words), output + error
    assert database.execute("SELECT count(*) FROM outbox.audit") == [(0,)]


@pytest.mark.rotated("same cluster")
def test_after_pg_upgrade_it_goes_on_by_itself_in_a_new_epoch(
        kafka, topic, make_relay, make_writers, make_shop, until_published):
    origin = Postgres().start()
    shop = make_shop(origin)
    relay = make_relay(database_url=shop.dsn, publisher_lease=LEASE,
                       publisher_ack_interval="60s").wait_ready()
    writers = make_writers(dsn=shop.dsn, connections=2, keys=20)
    writers.run(50)
    until_published(database=shop)
    relay.stop()
    writers.huge_transaction(1000)
    relay.start(OUTBOX_RELAY_FAULT="after_acknowledgement")
    assert relay.wait(60) == -9
    writers.run(50)
    epochs, system = shop.execute(EPOCHS), shop.execute(SYSTEM)
    origin.stop()
    with Upgraded(origin) as target:
        copy = make_shop(target, migrate=False)
        assert copy.execute(SYSTEM) != system
        relay = make_relay(database_url=copy.dsn, publisher_lease=LEASE).wait_ready()
        make_writers(dsn=copy.dsn, connections=2, keys=20).run(50)
        until_published(database=copy)
        assert copy.execute(EPOCHS) != epochs
        assert relay.events("publisher_elsewhere") == []
        verdict = audit(committed_messages(copy.dsn), read_topics(kafka.bootstrap, [topic]),
                        same_epoch=False)
        assert verdict.correct and verdict.committed > 1000, verdict
        assert verdict.duplicates == 0, verdict
        assert relay.stop() == 0


@pytest.mark.rotated("same cluster")
def test_a_promoted_standby_that_has_everything_goes_on_in_a_new_epoch(
        kafka, topic, make_relay, make_writers, make_shop, until_published):
    """The primary is shut down while a large window is published; nothing was lost, and nothing comes
    twice, though the owner never restarts."""
    with Postgres() as primary, Standby(primary) as standby:
        shop = make_shop(primary)
        fresh = type(shop)(standby, "shop")
        relay = make_relay(database_url=whichever_writes(shop, standby), publisher_lease=LEASE,
                           publisher_ack_interval="60s", publisher_max_in_flight=1000).wait_ready()
        writers = make_writers(dsn=shop.dsn, connections=2, keys=20)
        writers.run(50)
        until_published(database=shop)
        before = shop.execute(EPOCHS)
        writers.huge_transaction(20_000)
        relay.wait_for(lambda: relay.metric("relay_published_total") > 2000, what="a part of it")
        wait_for(lambda: primary.execute("SELECT state FROM pg_stat_replication") == [
            ("streaming",)], what="the standby's stream")
        primary.stop()  # waits until the standby has all of it
        standby.promote()
        relay.wait_event("shard_taken", count=2)
        make_writers(dsn=fresh.dsn, connections=2, keys=20).run(50)
        until_published(database=fresh)
        assert fresh.execute(EPOCHS) != before
        assert fresh.execute("SELECT timeline FROM outbox.progress") == [(2,)]
        assert relay.events("publisher_elsewhere") == relay.events("history_rewound") == []
        verdict = audit(committed_messages(fresh.dsn), read_topics(kafka.bootstrap, [topic]),
                        same_epoch=False)
        assert verdict.correct and verdict.committed > 20_000, verdict
        assert verdict.duplicates == 0, verdict
        assert relay.stop() == 0


@pytest.mark.rotated("same cluster")
@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_a_promoted_standby_that_lost_commits_skips_nothing_of_what_it_has(
        delivery, kafka, topic, make_relay, make_writers, make_shop, until_published):
    """Their records stand in Kafka; their transaction ids and ids are given out again."""
    xids = "SELECT DISTINCT txid::text FROM outbox.message WHERE id > %s"
    with Postgres() as primary, Standby(primary) as standby:
        shop = make_shop(primary)
        fresh = type(shop)(standby, "shop")
        relay = make_relay(database_url=whichever_writes(shop, standby), publisher_lease=LEASE,
                           publisher_delivery=delivery).wait_ready()
        writers = make_writers(dsn=shop.dsn, connections=2, keys=20)
        writers.run(200)
        until_published(database=shop)
        newest = "SELECT max(n) FROM outbox.log"
        wait_for(lambda: fresh.execute(newest) == shop.execute(newest), 60, "the standby")
        standby.execute("ALTER SYSTEM SET primary_conninfo = ''")
        standby.execute("SELECT pg_reload_conf()")
        wait_for(lambda: not primary.execute("SELECT 1 FROM pg_stat_replication"), 60, "the cut")
        last = fresh.execute("SELECT max(id) FROM outbox.message")[0][0]
        survivors = fresh.execute("SELECT count(*) FROM outbox.message")[0][0]
        writers.run(200)
        until_published(database=shop)
        lost = shop.execute(xids, (last,))
        in_kafka = len(list(read_topics(kafka.bootstrap, [topic], "read_committed")))
        before = shop.execute(EPOCHS)
        primary.stop("immediate")
        standby.promote()
        relay.wait_event("history_rewound")
        later = make_writers(dsn=fresh.dsn, connections=2, keys=20, prefix="later")
        later.run(200)
        until_published(database=fresh)
        assert set(lost) & set(fresh.execute(xids, (last,)))
        assert fresh.execute(EPOCHS) != before
        verdict = audit(committed_messages(fresh.dsn),
                        read_topics(kafka.bootstrap, [topic], "read_committed"), same_epoch=False)
        assert verdict.lost == verdict.altered == verdict.duplicates == 0, verdict
        assert verdict.phantom == in_kafka - survivors > 0, verdict
        assert verdict.committed == survivors + len(later.committed), verdict
        assert sum(int(event["records"]) for event in relay.events("lost_history")) == verdict.phantom
        assert relay.stop() == 0
