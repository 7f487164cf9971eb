"""docs/reference/redis-layout.md is right byte by byte, and its code for Java (Jedis) shares a bitmap and claims
with the stores: on a Redis server, and on a cluster of three masters."""

import contextlib
import datetime
import hashlib
import os
import random
import re
import time
import uuid
import zlib

import pytest

from drivers.guide_harness import PAGES, Guide, make_program, text_of
from drivers.guides import JAVAC
from drivers.harness import locked
from support.dedup import Claims, Dedup, Driver, handle_all, refused
from support.process import wait_for
from support.redis import Redis, RedisCluster, redisbloom

GUIDE = Guide("reference/redis-layout", ("java", "-XX:TieredStopAtLevel=1", "-cp", "{folder}/classes:{folder}/libs/*", "Main"),
              build=(("rm", "-rf", "libs", "classes"), *JAVAC), install=("kafka",),
              pages=os.path.dirname(PAGES))
NAME, LEASE = "billing", 1.5
DAY_MS = 86_400_000
# (window in milliseconds, slices): slices of whole days, and others; 0: without a window
WINDOWS = {"forever": (0, 5), "days": (10 * DAY_MS, 5), "hours": (DAY_MS, 5), "seconds": (59_999, 7)}
LOSSY = "lossy form=bitmap ids=1M"
UUID = "0f8fad5b-d9cb-469f-a165-70867728950e"
IDS = ["order-42", UUID, UUID.upper(), UUID.replace("-", ""), "hex:00ff0a20", "hex:7b7d", "a{b}c", "ü", "x" * 500]


class Jedis(Driver):
    """A process of the page's code, which answers as Dedup does. Of a claim it says the token, 0 if somebody
    else has it."""

    program = "Main"

    def command(self):
        return GUIDE.command(GUIDE.run)

    def check(self, *ids):
        return self.ask("check", *ids).split()

    def done(self, *ids):
        return self.ask("done", *ids)

    def take(self, id):
        return int(self.ask("take", id))

    def renew(self, id, token):
        return self.ask("renew", id, token) == "true"

    def end(self, id, token):
        return self.ask("end", id, token) == "true"


@pytest.fixture(scope="module")
def built():
    with locked(GUIDE.folder):  # of which each process of the run writes the same files
        make_program(GUIDE)


@pytest.fixture(scope="module")
def one_server():
    with Redis() as server:
        yield server


@pytest.fixture(scope="module")
def three_masters():
    with RedisCluster() as cluster:
        yield cluster


@pytest.fixture(params=["one_server", "three_masters"])
def servers(request):
    found = request.getfixturevalue(request.param)
    for node in masters(found):
        node.client.flushall()
    return found


def masters(servers):
    return getattr(servers, "masters", [servers])


def line(servers, words=LOSSY, lease=LEASE):
    return f"redis {words} name={NAME} url={servers.url} lease={int(lease * 1000)}ms"


@pytest.fixture
def window():
    """Parametrized: one of WINDOWS."""
    return "forever"


@pytest.fixture
def opened(servers, built, window):
    """opened(Dedup), opened(Claims), opened(Jedis): on the servers, closed at the end."""
    length, slices = WINDOWS[window]
    lossy = LOSSY + (f" window={length}ms slices={slices}" if length else "")

    with contextlib.ExitStack() as stack:
        def open_one(kind, **settings):
            if kind is Jedis:
                ports = [f"127.0.0.1:{node.port}" for node in masters(servers)]
                process = Jedis(NAME, str(int(settings.get("lease", LEASE) * 1000)), str(length), str(slices), *ports)
            else:
                process = kind(line(servers, lossy if kind is Dedup else "", **settings))
            stack.enter_context(process)
            stack.callback(process.resume)
            return process

        yield open_one


# --- a bitmap ------------------------------------------------------------------------------------

@pytest.mark.parametrize("window", WINDOWS)
def test_jedis_and_the_store_share_a_bitmap(opened):
    ours, theirs = opened(Dedup, lease=60), opened(Jedis, lease=60)
    chance = random.Random(6)
    ids = IDS + [f"hex:{chance.randbytes(chance.randint(1, 40)).hex()}" for _ in range(150)] + [
        str(uuid.UUID(bytes=chance.randbytes(16))) for _ in range(150)]
    for number, id in enumerate(ids):
        owner, other = (ours, theirs) if number % 2 else (theirs, ours)
        assert owner.check(id) == ["new"] and other.check(id) == ["pending"], id
        assert owner.done(id) == "ok"
        assert other.check(id) == owner.check(id) == ["done"], id


def test_jedis_finds_partition_and_offset_as_zlib_does(opened):
    theirs = opened(Jedis)
    for id in IDS:
        crc = zlib.crc32(bytes.fromhex(id[4:]) if id.startswith("hex:") else id.encode())
        assert theirs.ask("place", id) == f"{crc >> 22} {crc & (1 << 22) - 1}"


def test_a_pending_id_given_back_is_free_for_the_other(servers, opened):
    ours, theirs = opened(Dedup, lease=60), opened(Jedis, lease=60)
    for id in IDS:
        for owner, other in ((ours, theirs), (theirs, ours)):
            assert owner.check(id) == ["new"] and other.check(id) == ["pending"], id
            owner.ask("release", id)
            assert other.check(id) == ["new"], id
            other.ask("release", id)
    assert not keys_of(servers, b"billing:pending*")


@pytest.mark.parametrize("window", ["forever", "hours"])
def test_four_owners_have_each_id_once(opened):
    """Two are the store, two are Jedis, all at the same time."""
    ids = [f"order-{number}" for number in range(600)]
    count = handle_all([opened(kind, lease=60) for kind in (Dedup, Jedis, Dedup, Jedis)], ids)
    assert len(count) >= len(ids) - 2 and set(count.values()) == {1}  # a chance of 4e-5 for one false hit


def test_pending_ids_of_a_killed_owner_are_free_after_the_lease(opened):
    ours, theirs, killed_ours, killed_theirs = opened(Dedup), opened(Jedis), opened(Dedup), opened(Jedis)
    assert killed_theirs.check("a") == ["new"] and killed_ours.check("b") == ["new"]
    killed_theirs.kill()
    killed_ours.kill()
    assert ours.check("a") == ["pending"] and theirs.check("b") == ["pending"]
    wait_for(lambda: ours.check("a") == ["new"], 30, "the end of the lease of Jedis")
    wait_for(lambda: theirs.check("b") == ["new"], 30, "the end of the lease of the store")


def test_an_owner_is_told_that_the_other_took_its_id(opened):
    ours, theirs = opened(Dedup), opened(Jedis)
    for id, owner, other in (("a", ours, theirs), ("b", theirs, ours)):
        assert owner.check(id) == ["new"]
        wait_for(lambda: other.check(id) == ["new"], 30, "the end of the lease")
        with refused("fenced"):
            owner.done(id)
        assert other.done(id) == "ok" and owner.check(id) == ["done"]


def slice_key(id, number, length, slices, name=NAME):
    """As the page says, of the slice that is number slices behind the current one."""
    each = -(-length // slices)
    begin = (int(time.time() * 1000) // each + number) * each
    form = "%Y%m%d" if each % DAY_MS == 0 else "%Y%m%dT%H%M%S"
    text = datetime.datetime.fromtimestamp(begin // 1000, datetime.timezone.utc).strftime(form)
    crc = zlib.crc32(id.encode())
    return f"{name}:{text}:{crc >> 22}", crc & (1 << 22) - 1


@pytest.mark.parametrize("window", ["days", "hours"])
@pytest.mark.parametrize("servers", ["one_server"], indirect=True)
def test_jedis_and_the_store_look_into_the_same_slices(servers, opened, window):
    ours, theirs = opened(Dedup), opened(Jedis)
    length, slices = WINDOWS[window]
    for number, found in ((1, "done"), (0, "done"), (-slices, "done"), (-slices - 1, "new"), (2, "new")):
        for id, store in ((f"ours{number}", ours), (f"theirs{number}", theirs)):
            servers.client.setbit(*slice_key(id, number, length, slices), 1)
            assert store.check(id) == [found], id


@pytest.mark.parametrize("window", ["days", "hours"])
@pytest.mark.parametrize("servers", ["one_server"], indirect=True)
def test_jedis_and_the_store_give_a_slice_the_same_end(servers, opened, window):
    length, slices = WINDOWS[window]
    each = -(-length // slices)
    for id, store in (("ours", opened(Dedup)), ("theirs", opened(Jedis))):
        key, offset = slice_key(id, 0, length, slices)
        store.check(id)
        store.done(id)
        assert servers.client.getbit(key, offset) == 1
        end = servers.client.execute_command("PEXPIRETIME", key)
        assert end % each == 0 and end - int(time.time() * 1000) // each * each == (slices + 1) * each


def test_another_window_on_the_same_name_is_refused_by_both(servers, opened):
    opened(Dedup)
    with refused("config", "in use", "form=bitmap window=86400000ms slices=5"):
        Jedis(NAME, "1000", str(DAY_MS), "5", *(f"127.0.0.1:{node.port}" for node in masters(servers)))
    with refused("config", "in use"):
        Dedup(line(servers, LOSSY + " window=24h"))


# --- claims --------------------------------------------------------------------------------------

def test_of_jedis_and_the_library_one_has_a_claim(opened):
    """And the tokens rise across both."""
    ours, theirs = opened(Claims), opened(Jedis, lease=60)
    for id in IDS[:4] + ["a{b}c"]:
        last = 0
        for _ in range(3):
            token = theirs.take(id)
            assert token > last
            assert ours.take(id) is None and theirs.take(id) == 0
            assert theirs.end(id, token) and not theirs.end(id, token)
            claim = ours.take(id)
            assert claim[1] > token and theirs.take(id) == 0
            assert not theirs.renew(id, token) and not theirs.end(id, token)
            assert ours.check(claim) == ours.release(claim) == "ok"
            last = claim[1]


def test_a_claim_of_jedis_lasts_while_it_is_renewed(opened):
    ours, theirs = opened(Claims), opened(Jedis)
    token, until = theirs.take("a"), time.monotonic() + 3 * LEASE
    while time.monotonic() < until:
        assert ours.take("a") is None
        assert theirs.renew("a", token)
        time.sleep(LEASE / 10)
    claim = wait_for(lambda: ours.take("a"), 30, "the end of the lease, which nobody renews now")
    assert claim[1] > token and not theirs.renew("a", token)


def test_a_claim_of_the_library_is_renewed_against_jedis(opened):
    ours, theirs = opened(Claims), opened(Jedis)
    claim, until = ours.take("a"), time.monotonic() + 3 * LEASE
    while time.monotonic() < until:
        assert theirs.take("a") == 0
        time.sleep(LEASE / 10)
    ours.pause()
    token = wait_for(lambda: theirs.take("a"), 30, "the end of the lease of a paused holder")
    assert token > claim[1]
    ours.resume()
    with refused("fenced"):
        ours.check(claim)
    with refused("fenced"):
        ours.release(claim)
    assert theirs.renew("a", token) and theirs.end("a", token)


# --- the page ------------------------------------------------------------------------------------

PAGE = text_of(GUIDE.page, GUIDE.pages)
PLACES = {"NAME": NAME.encode(), "ID": b".+", "UUID": b".{16}", "PARTITION|NUMBER|N": rb"(?:\d|[1-9]\d{1,2}|10[01]\d|102[0-3])",
          "DATE": rb"\d{8}", "SLICE": rb"\d{8}(?:T\d{6})?"}


def patterns():
    """{key as the page has it: its regular expression}."""
    table = PAGE.split("## All keys")[1].split("\n## ")[0]
    keys = [key for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for key in re.findall("`(.*?)`", row)]
    found = {}
    for key in keys:
        pattern = re.escape(key.encode())
        for place, value in PLACES.items():
            pattern = re.sub(rb"\b(?:%s)\b" % place.encode(), lambda _, value=value: value, pattern)
        found[key] = re.compile(pattern, re.DOTALL)
    return found


def keys_of(servers, pattern=b"*"):
    return [key for node in masters(servers) for key in node.client.keys(pattern)]


FILTERS = "lossy form=bloom ids=30k", "lossy form=bloom ids=30k window=30d zone=Europe/Berlin"


def use(servers, form):
    """Makes ids pending and done, and yields while some are pending."""
    with Dedup(line(servers, form, 60)) as store:
        store.check("done", "pending", UUID, UUID.replace("0", "1"))
        store.done("done", UUID)
        yield


def test_the_page_has_every_key(servers):
    found, table = set(), patterns()
    for form in ("", LOSSY, f"{LOSSY} window=24h", f"{LOSSY} window=5d", *FILTERS):
        with Redis(**redisbloom()) if form in FILTERS else contextlib.nullcontext(servers) as server:
            for node in masters(server):
                node.client.flushall()
            for _ in use(server, form):
                found |= set(keys_of(server))
    with Claims(line(servers, "")) as claims:
        claims.take("order-42")
        found |= set(keys_of(servers))
    matching = {key: [name for name, pattern in table.items() if pattern.fullmatch(key)] for key in found}
    assert all(len(names) == 1 for names in matching.values()), matching
    expected = set(table) - (set() if len(masters(servers)) > 1 else {"NAME:store:NUMBER"})
    assert {names[0] for names in matching.values()} == expected


def test_times_to_live_and_values_are_those_of_the_page(servers):
    def one(key):
        node = next(node for node in masters(servers) if key in node.client.keys(NAME + "*"))
        return node.client, key

    for _ in use(servers, "window=1h"):
        client, key = one(b"billing:id:pending")
        assert 0 < client.pttl(key) <= 60_000 and 0 < int(client.get(key)) < 1 << 63
        client, key = one(b"billing:id:done")
        assert 60_000 < client.pttl(key) <= 3600_000 and 0 > int(client.get(key)) > -(1 << 63)
        assert one(b"billing:id=" + uuid.UUID(UUID).bytes)
    for node in masters(servers):
        node.client.flushall()
    for _ in use(servers, LOSSY):
        client, key = one(b"billing:pending:pending")
        assert 0 < client.pttl(key) <= 60_000 and 0 < int(client.get(key)) < 1 << 63
        bitmaps = keys_of(servers, b"billing:bitmap:*")
        assert len(bitmaps) == 2 and all(one(key)[0].pttl(key) == -1 for key in bitmaps)
    with Claims(line(servers, "")) as claims:
        _, token = claims.take("order-42")
        client, key = one(b"billing:claim:{734}:order-42")
        assert client.get(key) == b"%d" % token and 0 < client.pttl(key) <= LEASE * 1000
        assert client.get("billing:token:{734}") == b"%d" % token and client.pttl("billing:token:{734}") == -1


def test_the_worked_examples_are_right(one_server):
    """And the bits of the server's own bytes are where the page says."""
    one_server.client.flushall()
    rows = re.findall(r"^\| `(\S+)` \| `0x(\w+)` \| (\d+) \| (\d+) \| (\d+) \| `0x(\w+)` \|$", PAGE, re.MULTILINE)
    assert len(rows) == 3
    with Dedup(line(one_server)) as store:
        store.check(*(id for id, *_ in rows))
        store.done(*(id for id, *_ in rows))
    for id, crc, partition, offset, byte, bit in rows:
        crc, partition, offset, byte, bit = int(crc, 16), int(partition), int(offset), int(byte), int(bit, 16)
        assert crc == zlib.crc32(id.encode()) and (partition, offset) == divmod(crc, 1 << 22)
        assert one_server.client.getrange(f"billing:bitmap:{partition}", byte, byte) == bytes([bit])
        assert one_server.client.getbit(f"billing:bitmap:{partition}", offset)
    each = DAY_MS // 5
    number = int(datetime.datetime(2026, 11, 26, 14, tzinfo=datetime.timezone.utc).timestamp()) * 1000 // each
    begin = datetime.datetime.fromtimestamp(number * each // 1000, datetime.timezone.utc)
    for text in (f"| {each} ", f"| {number} |", f"| `{begin:%Y%m%dT%H%M%S}` |", f"| {(number + 6) * each}: 2026"):
        assert text in PAGE, text
    assert zlib.crc32(b"123456789") == 0xCBF43926 and "`0xCBF43926`" in PAGE
    assert "SETBIT billing:bitmap:351 3606238 1" in PAGE and "{734}:order-42" in PAGE


def test_the_scripts_are_those_of_the_page(one_server):
    """The server knows a script that ran by the SHA-1 of its text."""
    scripts = re.findall(r"^```lua\n(.*?)\n```$", PAGE, re.MULTILINE | re.DOTALL)
    assert len(scripts) == 6
    digests = [hashlib.sha1(script.encode()).hexdigest() for script in scripts]
    one_server.client.flushall()
    one_server.client.script_flush()
    assert one_server.client.script_exists(*digests) == [False] * 6
    for _ in use(one_server, ""):
        with Claims(line(one_server, "", 3)) as claims:
            claim = claims.take("a")
            wait_for(lambda: one_server.client.script_exists(*digests).count(True) == 2, 30, "a renewal")
            claims.release(claim)
            claims.take_many("b", "c")  # and closing releases both
    with Dedup(line(one_server, "")) as store:
        store.check("done")
        store.release("done")
    assert one_server.client.script_exists(*digests) == [True] * 6
