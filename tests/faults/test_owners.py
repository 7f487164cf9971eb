"""Several relays with one configuration: each shard has one owner, and another takes over."""

import time
from datetime import datetime

import pytest

from support.auditor import audit, committed_messages, read_topics
from support.process import wait_for
from support.proxy import Proxy
from support.windows import Ticks

PENDING = "SELECT EXISTS (SELECT FROM outbox.message_state WHERE state = 'pending')"
OWNERS = """
SELECT publisher, shard, split_part(owner, ':', 2)::int FROM outbox.progress
WHERE lease_until > clock_timestamp()"""


def owners(database):
    """{(publisher, shard): pid}, of the leases that run."""
    return {(publisher, shard): pid for publisher, shard, pid in database.execute(OWNERS)}


def owner_among(database, relays, shard=("main", 0)):
    """The relay that holds the shard's lease; None when none of these does."""
    pid = owners(database).get(shard)
    return next((relay for relay in relays if relay.running and relay.process.pid == pid), None)


def wait_for_owner(database, relays, shard=("main", 0), timeout=30):
    return wait_for(lambda: owner_among(database, relays, shard), timeout, f"an owner of {shard}")


def fleet(make_relay, count, **settings):
    relays = [make_relay(**settings) for _ in range(count)]
    return [relay.wait_ready() for relay in relays]


def moment_of(event):
    """When the relay logged it, as time.time(): the harness may be slow to notice."""
    return datetime.fromisoformat(event["ts"]).timestamp()


def taken_since(relays, moment):
    """Seconds from the moment until one of them took a shard. The line follows the row of the log."""
    def moments():
        return [moment_of(event) for relay in relays for event in relay.events("shard_taken")
                if moment_of(event) > moment]

    return min(wait_for(moments, what="the line of who took it")) - moment


def owned_shards(relays):
    """By what they say of themselves."""
    return [int(relay.metric("relay_owner") or 0) for relay in relays if relay.running]


def test_one_of_three_publishes(database, make_relay, make_writers, judge, scale):
    relays = fleet(make_relay, 3)
    owner = wait_for_owner(database, relays)
    make_writers().run(scale(5000))
    assert judge(0, 0).duplicates == 0
    assert owner_among(database, relays) is owner
    wait_for(lambda: owned_shards(relays) == [relay is owner for relay in relays], what="one owner")
    owner.wait_for(lambda: owner.metric("relay_published_total"), what="its figure")
    for relay in relays:
        if relay is not owner:
            assert not relay.metric("relay_published_total")
            relay.wait_for(lambda: "standby behind " in relay.get("/readyz?verbose")[1],
                           what="whom it stands behind")


@pytest.mark.alone
def test_another_takes_over_within_two_leases_of_a_kill(
        database, make_relay, make_writers, judge, scale):
    lease, max_in_flight = 2.0, 200
    relays = fleet(make_relay, 3, publisher_lease="2s", publisher_max_in_flight=max_in_flight)
    kills, took = scale(20), []
    with make_writers(connections=4, keys=50, rate=200):
        for _ in range(kills):
            victim = wait_for_owner(database, relays)
            died = time.time()
            victim.kill()
            others = [relay for relay in relays if relay is not victim]
            wait_for_owner(database, others)
            took.append(taken_since(others, died))
            victim.start().wait_ready()
    print(f"taken over after {', '.join(f'{seconds:.2f}' for seconds in took)} s")
    judge(kills, max_in_flight)
    assert max(took) <= 2 * lease


@pytest.mark.alone
def test_another_takes_over_within_a_second_of_a_sigterm(
        database, make_relay, make_writers, judge, scale):
    relays = fleet(make_relay, 2, publisher_lease="30s")
    ends, took = scale(20), []
    with make_writers(connections=4, keys=50, rate=200):
        for _ in range(ends):
            leaver = wait_for_owner(database, relays)
            assert leaver.stop() == 0
            asked = moment_of(leaver.events("stopping")[-1])
            others = [relay for relay in relays if relay is not leaver]
            wait_for_owner(database, others)
            took.append(taken_since(others, asked))
            leaver.start().wait_ready()
    print(f"taken over after {', '.join(f'{seconds:.2f}' for seconds in took)} s")
    assert judge(0, 0).duplicates == 0
    assert max(took) <= 1


def let_the_owner_sleep(database, relays):
    """For longer than its lease; returns when the other one of two has published and it is fenced."""
    owner = wait_for_owner(database, relays)
    other = next(relay for relay in relays if relay is not owner)
    before = len(owner.events("shard_left"))
    owner.pause()
    wait_for_owner(database, [other])
    other.wait_for(lambda: other.metric("relay_published_total"), what="its records")
    owner.resume()
    owner.wait_event("shard_left", before + 1)
    wait_for(lambda: sum(owned_shards(relays)) == 1, 60, "one owner")


def test_an_owner_that_wakes_up_after_its_lease_is_fenced(
        database, make_relay, make_writers, judge, scale):
    max_in_flight = 300
    relays = fleet(make_relay, 2, publisher_lease="2s", publisher_max_in_flight=max_in_flight)
    pauses = scale(20)
    with make_writers(connections=4, keys=50, rate=300):
        for _ in range(pauses):
            let_the_owner_sleep(database, relays)
    judge(pauses, max_in_flight)


@pytest.mark.rotated("tails")
def test_an_owner_that_slept_does_not_take_the_records_of_the_next_one_for_a_lost_history(
        database, fragile_kafka, make_relay, make_writers, until_published, judge):
    """It wakes up, reads what the other one wrote, and does not hear from the database that it lost the shard."""
    with Proxy(database.postgres.port) as network:
        dsn = database.dsn.replace(f":{database.postgres.port}/", f":{network.port}/")
        sleeper = make_relay(database_url=dsn, publisher_lease="2s", publisher_stall_after="3s",
                             publisher_max_in_flight=300).wait_ready()
        writers = make_writers(connections=2, keys=20)
        writers.run(200)
        until_published()
        fragile_kafka.pause()
        writers.run(50)  # under way when it sleeps
        sleeper.wait_for(lambda: sleeper.metric("relay_in_flight"), what="records under way")
        read = sleeper.metric("relay_tails_read_total")
        sleeper.pause()
        fragile_kafka.resume()
        other = make_relay(publisher_lease="2s").wait_ready()
        wait_for_owner(database, [other])
        writers.run(300)
        until_published()
        network.stall()
        sleeper.resume()
        sleeper.wait_for(lambda: sleeper.metric("relay_tails_read_total") > read, 60,
                         "its look at the other one's records")
        assert sleeper.metric("relay_owner") == 1
        network.heal()
        sleeper.wait_event("shard_left")
        judge(1, 300)
        assert sleeper.events("history_rewound") == sleeper.events("lost_history") == []


def test_the_queue_of_a_stalled_owner_comes_late_and_breaks_no_order(
        database, fragile_kafka, make_relay, make_writers, judge, until_published):
    """The broker stands still until the owner's queue is full; then the owner does."""
    max_in_flight = 300
    relays = fleet(make_relay, 2, publisher_lease="3s", publisher_max_in_flight=max_in_flight)
    owner = wait_for_owner(database, relays)
    other = next(relay for relay in relays if relay is not owner)
    writers = make_writers(connections=4, keys=50)
    writers.run(200)
    until_published()  # to every partition: rows of one whose tail is still to be read do not fill it
    fragile_kafka.pause()
    writers.run(600)
    owner.wait_for(lambda: owner.metric("relay_in_flight") == max_in_flight, what="a full queue")
    owner.pause()
    fragile_kafka.resume()
    wait_for_owner(database, [other])
    other.wait_for(lambda: other.metric("relay_published_total"), what="its records")
    owner.resume()
    owner.wait_event("shard_left")
    judge(1, max_in_flight)


def configuration(tmp_path, kafka, database, text):
    path = tmp_path / "relay.ini"
    path.write_text(f"[postgres]\ndsn = {database.dsn}\n"
                    f"[kafka]\nbootstrap.servers = {kafka.bootstrap}\n{text}")
    return "--config", path, "run"


def records_of(kafka, topic, publisher):
    for record in read_topics(kafka.bootstrap, [topic]):
        if dict(record.headers)["outbox-position"].startswith(f"2:{publisher}:".encode()):
            yield record


def start_two_together(database, make, shards):
    """Two relays that find the shards free at one moment, however long their starts took: until both
    are ready somebody else holds all. Returned when each has half of them.

    Who stands still in the second in which shards are shared out comes too late: once more, then.
    """
    for _ in range(3):
        holders = [Ticks(database.dsn, publisher, 1 + max(number for name, number in shards
                                                     if name == publisher), shard, create=False)
                   for publisher, shard in shards]
        relays = [make(), make()]
        for relay in relays:
            relay.wait_for(lambda: relay.get("/readyz?verbose")[1].count("standby behind by hand")
                           == len(shards), what="its wait for the shards")
        for holder in holders:
            holder.tick(closed=0, must_write=True, may_open=False, lease_ms=0)
            holder.close()
        pids = [relay.process.pid for relay in relays]
        wait_for(lambda: set(owners(database).values()) <= set(pids)
                 and len(owners(database)) == len(shards), 60, "an owner of each shard")
        found = list(owners(database).values())
        if found.count(pids[0]) == found.count(pids[1]):
            return relays
        for relay in relays:
            assert relay.stop() == 0
    raise AssertionError(f"{found}: not half of the shards each")


def test_two_publishers_spread_over_two_processes(
        database, kafka, topic, make_relay, make_writers, command, tmp_path, until_published):
    command("publisher", "drop", "--yes", "--reason", "other shards", "--force", "last,owned", "main")
    for publisher in ("first", "second"):
        command("publisher", "create", publisher)
    arguments = configuration(tmp_path, kafka, database,
                              '[publisher "first"]\nlease = 2s\n[publisher "second"]\nlease = 2s\n')
    shards = [("first", 0), ("second", 0)]
    relays = start_two_together(database, lambda: make_relay(arguments=arguments), shards)
    with make_writers(connections=4, keys=50, rate=100):
        gone, left = (wait_for_owner(database, relays, shard) for shard in shards)
        gone.kill()
        for shard in shards:  # the other has both now
            wait_for_owner(database, [left], shard)
        gone.start().wait_ready()
    for publisher in ("first", "second"):
        until_published(publisher)
        verdict = audit(committed_messages(database.dsn), records_of(kafka, topic, publisher))
        print(f"{publisher}: {verdict}")
        assert verdict.correct and verdict.committed > 0, verdict
        assert verdict.duplicates <= 20_000 * (publisher == "first"), verdict


def test_four_shards_spread_over_two_processes(
        database, make_relay, make_writers, judge, command):
    command("publisher", "drop", "--yes", "--reason", "other shards", "--force", "last,owned", "main")
    command("publisher", "create", "--shards", 4, "main")
    relays = start_two_together(
        database, lambda: make_relay(publisher_lease="2s", publisher_max_in_flight=200),
        [("main", shard) for shard in range(4)])
    with make_writers(connections=4, keys=50, rate=200):
        relays[0].kill()
        wait_for(lambda: list(owners(database).values()) == [relays[1].process.pid] * 4, 60,
                 "one owner of all shards")
        relays[0].start().wait_ready()
        assert relays[1].stop() == 0
        wait_for(lambda: owned_shards(relays) == [4], 60, "the way back")
    judge(1, 200)


@pytest.mark.rotated
@pytest.mark.parametrize("shards", [1, 2])
def test_a_second_relay_finds_nothing_to_do_when_the_first_drains(
        database, make_relay, make_writers, judge, command, shards):
    """--drain waits for a shard that somebody else owns, until that one is through."""
    command("publisher", "drop", "--yes", "--reason", "other shards", "--force", "last,owned", "main")
    command("publisher", "create", "--shards", shards, "main")
    make_writers(connections=4).run(500)
    relays = [make_relay(arguments=("run", "--drain"), publisher_lease="30s") for _ in range(2)]
    assert [relay.wait(60) for relay in relays] == [0, 0]
    relays.append(make_relay())
    assert judge(0, 0).duplicates == 0


def test_a_drain_waits_for_the_end_of_a_split(database, topic, make_relay, make_writers, judge):
    """No window opens before the split is over: that nothing is found then does not mean that
    nothing is there."""
    database.execute("SELECT outbox.publisher_split_begin('main', 2)")
    make_writers(connections=2).run(100)
    relay = make_relay(arguments=("run", "--drain"), publisher_lease="1s")
    relay.wait_for(lambda: (database.execute("SELECT max(n) FROM outbox.log")[0][0] or 0) >= 5,
                   what="several looks")
    assert relay.running and database.execute(PENDING) == [(True,)]
    database.execute("SELECT outbox.publisher_split_cancel('main')")
    assert relay.wait() == 0
    assert database.execute(PENDING) == [(False,)]


def test_a_split_does_not_wait_for_upkeep_that_takes_long(database, topic, make_relay, command):
    """The rows of the default partition are moved all the while."""
    database.execute(
        "CREATE OR REPLACE FUNCTION outbox.partition_rehome(of_table text, width interval) RETURNS text"
        " LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock(42); RETURN 'busy'; END $$")
    database.execute("INSERT INTO outbox.message (topic, created_at)"
                     " VALUES (%s, now() + interval '1 year')", (topic,))
    waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    with database.connect(autocommit=False) as holder:
        holder.cursor().execute("SELECT pg_advisory_xact_lock(42)")
        relay = make_relay()
        relay.wait_for(lambda: database.execute(waits) == [(1,)], what="upkeep that waits")
        wait_for_owner(database, [relay])
        command("publisher", "split", "main", "--shards", "3")
        relay.wait_event("publisher_started", publisher="main", shards="3")
        wait_for(lambda: len(owners(database)) == 3, 30, "an owner of each shard")
        assert database.execute(waits) == [(1,)]


SLOW_LOOK = """
CREATE OR REPLACE FUNCTION outbox.has_rows_of_the_future() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN PERFORM pg_sleep(4); RETURN false; END $$"""


def test_a_look_that_takes_longer_than_a_lease_says_who_owned_when_it_began(
        database, make_relay, command):
    """The renewals that came since are not among the rows that it sees."""
    relay = make_relay(publisher_lease="3s").wait_ready()
    wait_for_owner(database, [relay])
    database.execute(SLOW_LOOK)
    assert f":{relay.process.pid}:" in command("publisher", "list")


def test_a_standby_that_slept_through_a_split_learns_of_it(database, make_relay, command):
    """All shards are held by then: what it asked for as shard 0 of 1 is shard 0 of 3."""
    relays = fleet(make_relay, 2)
    owner = wait_for_owner(database, relays)
    standby = next(relay for relay in relays if relay is not owner)
    standby.pause()
    command("publisher", "split", "main", "--shards", "3")
    wait_for(lambda: len(owners(database)) == 3, 30, "an owner of each shard")
    standby.resume()
    standby.wait_event("publisher_started", publisher="main", shards="3")
