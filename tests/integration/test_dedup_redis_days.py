"""Filters of RedisBloom with a date, one for each day of a zone: what is in which key, when the server
deletes it, what a look costs, and who confirms a hit. The server has the real module; its rates of error
are its own."""

import collections
import contextlib
import datetime
import socket
import threading
import time
import zoneinfo

import pytest

from support.dedup import Dedup, handle_all, refused
from support.redis import Redis, RedisCluster, read_command, redisbloom

QUERY = "select id from orders where id = any($1)"


def line(server, lossy="lossy ", **settings):
    words = {"ids": "30k", "rate": "0.1%", "window": "30d", "name": "billing", "url": server.url, **settings}
    return f"redis {lossy}form=bloom " + " ".join(f"{name}={value}" for name, value in words.items())


@pytest.fixture(scope="module")
def shared():
    with Redis(**redisbloom()) as server:
        yield server


@pytest.fixture
def server(shared):
    shared.client.flushall()
    return shared


@pytest.fixture
def opened():
    with contextlib.ExitStack() as stack:
        yield lambda line: stack.enter_context(Dedup(line))


def today(zone="UTC"):
    """Waits for the next day rather than let it begin within the test."""
    now = datetime.datetime.now(zoneinfo.ZoneInfo(zone))
    if (now.hour, now.minute) == (23, 59):
        time.sleep(61 - now.second)
    return datetime.datetime.now(zoneinfo.ZoneInfo(zone)).date()


def key_of(day, name="billing"):
    return f"{name}:bloom:{day:%Y%m%d}"


def midnight(day, zone):
    """The first second of the day."""
    at = datetime.datetime(day.year, day.month, day.day, tzinfo=zoneinfo.ZoneInfo(zone))
    return int(at.timestamp())


def put(server, id, day, name="billing"):
    server.client.execute_command("BF.ADD", key_of(day, name), id)


def days(number):
    return datetime.timedelta(days=number)


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "Africa/Cairo", "Pacific/Auckland", "America/St_Johns"])
@pytest.mark.parametrize("window", [1, 30, 62])
def test_an_id_goes_into_the_filter_of_the_day_which_ends_at_a_midnight_of_the_zone(server, opened, zone, window):
    day = today(zone)
    store = opened(line(server, window=f"{window}d", zone=zone))
    assert store.check("a", "b") == ["new", "new"]
    store.done("a", "b")
    assert server.client.keys("billing:bloom*") == [key_of(day).encode()]
    assert server.client.execute_command("EXPIRETIME", key_of(day)) == midnight(day + days(window + 1), zone)


def test_thirty_one_filters_are_alive_and_the_one_of_tomorrow_is_asked(server, opened):
    store, day = opened(line(server)), today()
    numbers = range(-33, 4)
    for number in numbers:
        put(server, f"day{number}", day + days(number))
    states = dict(zip(numbers, store.check(*(f"day{number}" for number in numbers))))
    assert [number for number in numbers if states[number] == "done"] == list(range(-30, 2))


def test_a_batch_of_a_thousand_ids_is_one_command_for_each_day(server, opened):
    store, ids = opened(line(server)), [f"id-{number}" for number in range(1000)]
    server.client.config_resetstat()
    store.check(*ids)
    store.done(*ids)
    calls = calls_of(server)
    assert calls["bf.mexists"] == 32 and calls["bf.insert"] == calls["pexpireat"] == 1


def calls_of(node):
    """How often the server ran each command since the figures were reset, by its name in lower case."""
    return collections.Counter({name.removeprefix("cmdstat_").lower(): stat["calls"]
                                for name, stat in node.client.info("commandstats").items()})


def filter_info(server, key):
    pairs = iter(server.client.execute_command("BF.INFO", key))
    return {name.decode(): value for name, value in zip(pairs, pairs)}


def test_a_filter_has_its_part_of_the_ids_and_of_the_rate(server, opened):
    store = opened(line(server, ids=300000))
    store.check("a")
    store.done("a")
    info = filter_info(server, key_of(today()))
    assert info["Capacity"] == 10000 and info["Expansion rate"] == 2
    # RedisBloom takes about 1.44 * log2(2 / rate) bits an id
    assert 20 < info["Size"] * 8 / 10000 < 26


def test_more_ids_than_planned_grow_the_filter_and_keep_the_rate(server, opened):
    store = opened(line(server, ids=30000, rate="1%", window="3d", pending="20k"))
    for first in range(0, 50000, 1000):
        ids = [f"id-{number}" for number in range(first, first + 1000)]
        states = dict(zip(ids, store.check(*ids)))
        store.done(*(id for id in ids if states[id] == "new"))
    assert filter_info(server, key_of(today()))["Number of filters"] > 1
    false = sum(store.check(*(f"new-{number}" for number in range(first, first + 1000))).count("done")
                for first in range(0, 20000, 1000))
    assert false < 20000 * 0.01


def test_a_key_whose_writer_was_killed_before_it_said_its_end_gets_it(server, opened):
    put(server, "left", today())
    store = opened(line(server))
    assert server.client.ttl(key_of(today())) == -1
    assert store.check("left", "a") == ["done", "new"]
    store.done("a")
    assert server.client.execute_command("EXPIRETIME", key_of(today())) == midnight(today() + days(31), "UTC")


def test_filters_without_an_end_of_days_that_are_gone_are_removed(server, opened):
    day = today()
    numbers = range(-64, 2)
    for number in numbers:
        put(server, "left", day + days(number))
    opened(line(server))
    left = {key_of(day + days(number)).encode() for number in numbers if number < -62 or number > -32}
    assert set(server.client.keys("billing:bloom:*")) == left


@pytest.mark.parametrize("changed", [{"window": "31d"}, {"zone": "Europe/Berlin"}])
def test_another_window_or_zone_under_the_same_name_is_refused(server, opened, changed):
    opened(line(server))
    with refused("config", "form=bloom window=30d zone=UTC", "choose another name"):
        Dedup(line(server, **changed))
    opened(line(server, name="other", **changed))


def test_a_key_of_somebody_else_is_refused_at_the_start(server):
    """BF.MEXISTS would answer that it has no id."""
    server.client.set(key_of(today() - days(3)), "theirs")
    with refused("config", "WRONGTYPE", "choose another"):
        Dedup(line(server))


def test_a_server_without_the_module_is_refused_with_the_cure():
    with Redis() as server, refused("config", "RedisBloom", "form=bitmap"):
        Dedup(line(server))


def test_a_full_server_keeps_the_claim(server, opened):
    store, other = opened(line(server)), opened(line(server, hot=1))
    assert store.check("a") == ["new"]
    server.client.config_set("maxmemory", 1)
    with refused("retry", "OOM"):
        store.done("a")
    server.client.config_set("maxmemory", 0)
    assert other.check("a") == ["pending"]
    assert store.done("a") == "ok" and other.check("a") == ["done"]


def test_four_owners_have_each_id_once(server, opened):
    ids = [f"id-{number}" for number in range(2000)]
    count = handle_all([opened(line(server)) for _ in range(4)], ids)
    assert len(count) > 1990 and set(count.values()) == {1}


# --- the local copy ----------------------------------------------------------------------------

def answer_all_but(listener, silent, heard):
    """As a server with RedisBloom that has no id, takes claims, and never answers these commands."""
    numbers = {b"EVAL", b"BF.CARD", b"UNLINK", b"PEXPIREAT"}
    with contextlib.suppress(OSError):
        while True:
            link, _ = listener.accept()
            with link, link.makefile("rb") as stream:
                while words := read_command(stream):
                    heard.append(words[0])
                    stored = b"form=bloom window=30d zone=UTC" if words[-1] == b"billing:filter" else b"7"
                    answers = {b"INFO": b"$13\r\nrole:master\r\n\r\n", b"SET": b"+OK\r\n",
                               b"GET": b"$%d\r\n%s\r\n" % (len(stored), stored),
                               b"BF.MEXISTS": b"*%d\r\n" % (len(words) - 2) + b":0\r\n" * (len(words) - 2)}
                    if words[0] not in silent:
                        link.sendall(b":1\r\n" if words[0] in numbers else answers[words[0]])


@pytest.mark.parametrize("silent", [b"BF.INSERT", b"PEXPIREAT"])
def test_the_local_copy_is_never_ahead_of_the_server(tmp_path, opened, silent):
    """An id whose addition was not answered is pending here, not done; and its claim stays."""
    path, heard = tmp_path / "socket", []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        threading.Thread(target=answer_all_but, args=(listener, {silent, b"BF.INSERT"}, heard), daemon=True).start()
        store = opened("redis lossy form=bloom ids=30k window=30d hot=1000 name=billing "
                       f"timeout=500ms url=unix://{path}")
        assert store.check("a", "b") == ["new", "new"]
        with refused("retry", "within"):
            store.done("a", "b")
        assert store.check("a", "b") == ["pending", "pending"]
        store.release("a", "b")
        assert store.check("a", "b") == ["new", "new"]
        assert b"BF.INSERT" in heard
        listener.shutdown(socket.SHUT_RDWR)


def test_a_done_id_is_remembered_here_and_forgotten_with_the_server(server, opened):
    store = opened(line(server, hot=1000))
    assert store.check("a") == ["new"]
    store.done("a")
    server.client.config_resetstat()
    assert store.check("a") == ["done"]
    assert calls_of(server)["bf.mexists"] == 0
    server.client.flushall()
    server.client.client_kill_filter(skipme=True, _type="normal")
    with refused("fatal", "open the store again"):
        store.check("b")
    assert opened(line(server)).check("a") == ["new"]


# --- confirm=sql -------------------------------------------------------------------------------

@pytest.fixture
def orders(database):
    database.execute("CREATE TABLE orders (id text)")
    return database


def confirmed(server, orders, **settings):
    return line(server, lossy="", hot=1, confirm="sql", dsn=orders.dsn, query=f'"{QUERY}"', **settings)


def test_a_hit_that_the_query_does_not_have_is_new(server, opened, orders):
    store, other = opened(confirmed(server, orders)), opened(confirmed(server, orders))
    orders.execute("INSERT INTO orders VALUES ('there'), ('old')")
    for id in ("there", "false"):
        put(server, id, today())
    put(server, "old", today() - days(30))
    assert store.check("there", "old", "false", "fresh") == ["done", "done", "new", "new"]
    assert other.check("there", "false", "fresh") == ["done", "pending", "pending"]
    stats = store.stats()
    assert stats["filter_hits"] == 3 and stats["false_hits"] == 1
    store.done("false")
    orders.execute("INSERT INTO orders VALUES ('false')")
    assert other.check("false") == ["done"]


def test_a_bitmap_is_confirmed_as_well(server, opened, orders):
    store = opened(f'redis form=bitmap ids=1k hot=1 name=billing url={server.url} confirm=sql '
                   f'dsn={orders.dsn} query="{QUERY}"')
    assert store.check("a", "b", "c") == ["new"] * 3
    orders.execute("INSERT INTO orders VALUES ('a')")
    store.done("a", "b", "c")  # the last one is hot
    assert store.check("fresh", "a", "b") == ["new", "done", "new"]


def test_without_the_database_no_hit_is_new(server, opened, orders):
    store = opened(confirmed(server, orders, timeout="2s"))
    put(server, "a", today())
    orders.execute("ALTER TABLE orders RENAME TO gone")
    for _ in range(2):
        with refused("config", "query"):
            store.check("a", "b")
    assert store.check("b") == ["new"]  # no hit, no query
    orders.execute("ALTER TABLE gone RENAME TO orders")
    assert store.check("a") == ["new"]


def test_an_id_that_the_query_cannot_take_is_refused_before_it_is_claimed(server, opened, orders):
    store = opened(confirmed(server, orders))
    with refused("reject", "UTF-8"):
        store.check("a", "hex:ff")
    assert server.client.keys("billing:pending*") == []


@pytest.mark.parametrize("words, said", [
    ("lossy form=bloom ids=1k confirm=sql query=x", "with confirm=sql is not lossy"),
    ("form=bloom ids=1k", "add confirm=sql"), ("form=bloom ids=1k confirm=sql", "query is missing"),
    ("lossy form=bloom ids=1k query=x", "confirm=sql"), ("confirm=sql query=x", "compares ids as a whole"),
    ("form=bloom ids=1k confirm=sql query=x lease=5s", "lengthen lease"),
    ("lossy form=bloom ids=1k window=36h", "whole days from 1d to 62d"),
    ("lossy form=bloom ids=1k window=63d", "whole days from 1d to 62d"),
    ("lossy form=bloom ids=1k window=0", "window=24h"),
    ("lossy form=bloom ids=1k window=30d slices=30", "leave it out"),
    ("lossy form=bloom ids=1k zone=UTC", "add window=30d"),
    ("lossy form=bloom ids=1k window=30d zone=Mars/Olympus", "zone=Mars/Olympus is no time zone"),
    ("lossy form=bitmap ids=1k window=30d zone=UTC", "form=bloom"), ("zone=UTC", "form=bloom")])
def test_a_line_that_cannot_be_is_refused_with_the_cure(words, said):
    with refused("config", said):
        Dedup(f"redis name=billing url=redis://127.0.0.1:1 {words}")


# --- in a cluster ------------------------------------------------------------------------------

def test_the_days_spread_over_a_cluster(opened):
    with RedisCluster(**redisbloom()) as cluster:
        store, day = opened(line(cluster)), today()
        numbers = range(-30, 2)
        for number in numbers:
            key = key_of(day + days(number))
            slot = cluster.masters[0].client.execute_command("CLUSTER", "KEYSLOT", key)
            cluster.owner(slot).client.execute_command("BF.ADD", key, f"day{number}")
        assert min(cluster.keys("billing:bloom:*")) > 0
        ids = [f"id-{number}" for number in range(998)]
        for node in cluster.masters:
            node.client.config_resetstat()
        assert store.check(*ids, "day-30", "day1") == ["new"] * 998 + ["done", "done"]
        calls = [calls_of(node)["bf.mexists"] for node in cluster.masters]
        assert sum(calls) == 32 and min(calls) > 0

        slot = cluster.masters[0].client.execute_command("CLUSTER", "KEYSLOT", key_of(day))
        source = cluster.owner(slot)
        cluster.move_slot(slot, next(node for node in cluster.masters if node is not source))
        assert store.done(*ids) == "ok"
        with Dedup(line(cluster)) as other:
            assert other.check(*ids) == ["done"] * 998
        assert cluster.owner(slot).client.execute_command(
            "EXPIRETIME", key_of(day)) == midnight(day + days(31), "UTC")
