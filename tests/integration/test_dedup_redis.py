"""The forms of the store `redis`: on servers that go away, are slow, full, replicas or emptied, and
with owners that die."""

import collections
import contextlib
import shutil
import socket
import threading
import time
import uuid
import zlib

import pytest
import redis

from support.dedup import Dedup, DedupError, conform, handle_all, refused
from support.process import wait_for
from support.redis import FakeRedis, Redis, read_command

FORMS = {"key": "", "bitmap": "lossy form=bitmap ids=1M",
         "bitmap window": "lossy form=bitmap ids=1M window=24h", "bloom": "lossy form=bloom ids=30k timeout=60s",
         "bloom window": "lossy form=bloom ids=30k window=30d zone=Europe/Berlin timeout=60s"}

def line(server, form="key", **settings):
    words = {"name": "billing", "url": server.url, **settings}
    return " ".join(["redis", FORMS[form], *(f"{name}={value}" for name, value in words.items())])


@pytest.fixture(scope="module")
def shared():
    with Redis() as server:
        yield server


@pytest.fixture(scope="module")
def fake():
    with FakeRedis() as server:
        yield server


@pytest.fixture
def server(shared):
    shared.client.flushall()
    return shared


@pytest.fixture(params=FORMS)
def each(request):
    """(server, form): RedisBloom's commands are a fake server's."""
    server = request.getfixturevalue("fake" if request.param.startswith("bloom") else "shared")
    server.client.flushall()
    return server, request.param


@pytest.fixture
def own():
    """A server of its own, to be stopped and killed; the kernel keeps what it has acknowledged."""
    with Redis(appendonly="yes", appendfsync="no") as server:
        yield server


@pytest.fixture
def opened():
    """opened(line): a store, closed at the end."""
    with contextlib.ExitStack() as stack:
        yield lambda line: stack.enter_context(Dedup(line))


@pytest.mark.rotated
def test_it_is_as_every_store(each):
    # of 20,000 ids in a bitmap of 2^32 each has a chance of 5e-6; of the filter 0.1 % are false,
    # and the fake server is slow
    words = {"key": [], "bitmap": ["false=5"], "bitmap window": ["false=5"], "bloom": ["many=1000", "false=10"],
             "bloom window": ["many=1000", "false=10"]}[each[1]]
    conform("shared", "remembers", *words, line(*each))


def test_keys_are_hot_only_when_asked_for(server, opened):
    conform("shared", "remembers", line(server, hot=4096))
    store, other = opened(line(server, hot=16)), opened(line(server))
    store.check("h")
    store.done("h")
    before = server.client.info("stats")["total_commands_processed"]
    assert store.check("h") == ["done"]
    assert server.client.info("stats")["total_commands_processed"] == before + 1  # this INFO's
    store.release("h")
    assert store.check("h") == ["new"]
    assert other.check("h") == ["pending"]


def test_hot_ids_save_the_way_to_the_server(server, opened):
    # two ids share a place of the hot table with probability 1/65536: at most a few ids are queried
    store = opened(line(server, "bitmap", hot=65536))
    ids = [f"id-{number}" for number in range(100)]
    store.check(*ids)
    store.done(*ids)
    before = server.client.info("stats")["total_commands_processed"]
    found = store.check(*ids)
    assert found == ["done"] * 100
    assert server.client.info("stats")["total_commands_processed"] - before < 20


@pytest.mark.rotated
def test_batches_of_any_size(each, opened):
    store, other = opened(line(*each)), opened(line(*each))
    ids = [f"batch-{number}" for number in range(1500)]
    found = collections.Counter(store.check(*ids, *ids[:10]))
    assert found["new"] + found["done"] == 1500 and found["done"] < 10
    states = dict(zip(ids, other.check(*ids)))
    new = [id for id in ids if states[id] == "pending"]
    assert len(new) == found["new"]
    store.done(*new)
    assert set(other.check(*ids)) == {"done"}


def test_the_bits_are_where_the_classic_scheme_has_them(server, opened):
    store = opened(line(server, "bitmap"))
    store.check("order-1", "order-2")
    store.done("order-1")
    one, two = (zlib.crc32(id) for id in (b"order-1", b"order-2"))
    assert server.client.getbit(f"billing:bitmap:{one >> 22}", one & (1 << 22) - 1) == 1
    assert server.client.getbit(f"billing:bitmap:{two >> 22}", two & (1 << 22) - 1) == 0


@pytest.mark.parametrize("form, low, high", [
    ("0f8fad5b-d9cb-469f-a165-{:012x}", 115, 148),
    ("order-0f8fad5b-d9cb-469f-a165-{:06x}", 145, 188),
])
def test_an_id_takes_the_memory_that_is_promised(server, opened, form, low, high):
    store = opened(line(server, pending="20k"))
    before = server.client.info("memory")["used_memory"]
    for first in range(0, 60000, 1000):
        ids = [form.format(first + number) for number in range(1000)]
        store.check(*ids)
        store.done(*ids)
    assert low < (server.client.info("memory")["used_memory"] - before) / 60000 < high


UUID = "0f8fad5b-d9cb-469f-a165-70867728950e"


def test_a_uuid_is_kept_in_16_bytes_and_is_nothing_else(each, opened):
    server, form = each
    store, other = opened(line(*each)), opened(line(*each))
    packed = uuid.UUID(UUID).bytes
    alike = [UUID, UUID.upper(), packed.hex(), f"hex:{packed.hex()}", f"hex:{b'='.hex()}{packed.hex()}", UUID + "0"]
    store.check(UUID)
    claim = b"id" if form == "key" else b"pending"
    assert server.client.exists(b"billing:" + claim + b"=" + packed)
    assert other.check(*alike) == ["pending"] + ["new"] * 5
    store.done(UUID)
    assert other.check(UUID) == ["done"]


def test_done_ids_live_for_the_window(server, opened):
    store = opened(line(server, window="7s"))
    store.check("a")
    store.done("a")
    assert 0 < server.client.pttl("billing:id:a") <= 7000
    server.client.pexpire("billing:id:a", 1)
    wait_for(lambda: store.check("a") == ["new"], 30, "its end")


def test_the_filter_is_reserved_as_asked(fake, opened):
    fake.client.flushall()
    store = opened(f"redis lossy form=bloom ids=5000 rate=1% name=mine url={fake.url}")
    info = dict(zip(*[iter(fake.client.execute_command("BF.INFO", "mine:bloom"))] * 2))
    capacity = {str(name, "ascii").lower(): value for name, value in info.items()}["capacity"]
    assert capacity == 5000
    assert store.check("a") == ["new"] and store.done("a") == "ok" and store.check("a") == ["done"]
    assert opened(f"redis lossy form=bloom ids=5000 rate=1% name=mine url={fake.url}").check(
        "a") == ["done"]


def test_a_server_without_the_module_is_refused_with_the_cure(server):
    with refused("config", "RedisBloom", "form=key"):
        Dedup(line(server, "bloom"))


# --- owners ------------------------------------------------------------------------------------

def test_four_owners_of_the_same_ids_have_each_once(each, opened):
    ids = [f"id-{number}" for number in range(500)]
    count = handle_all([opened(line(*each)) for _ in range(4)], ids)
    false = 0 if each[1] == "key" else 5
    assert len(ids) - false <= len(count) and set(count.values()) == {1}


def test_the_ids_of_an_owner_that_is_killed_are_free_after_the_lease(each, opened):
    owner, other = (Dedup(line(*each, lease="600ms")), opened(line(*each)))
    assert owner.check("killed") == ["new"]
    owner.kill()
    assert other.check("killed") == ["pending"]
    wait_for(lambda: other.check("killed") == ["new"], 30, "the end of the lease")


def test_who_lost_its_lease_to_somebody_else_is_told(each, opened):
    owner, other = opened(line(*each, lease="300ms")), opened(line(*each))
    assert owner.check("x", "y", "z") == ["new"] * 3
    wait_for(lambda: "new" in other.check("x"), 30, "the end of the lease")
    with refused("fenced", "1 of 3 ids", "raise lease"):
        owner.done("x", "y", "z")
    assert owner.stats()["pending"] == 0
    assert owner.check("y", "z") == ["done", "done"]


def test_a_lease_that_is_over_is_no_loss_when_nobody_took_the_ids(each, opened):
    owner, other = opened(line(*each, lease="100ms")), opened(line(*each))
    assert owner.check("p", "q") == ["new", "new"]
    keys = f"billing:{'id' if each[1] == 'key' else 'pending'}:*"
    wait_for(lambda: not each[0].client.keys(keys), 30, "the end of the lease")
    assert owner.done("p", "q") == "ok"
    assert other.check("p", "q") == ["done", "done"]


def test_what_was_given_back_is_not_taken_from_somebody_else(each, opened):
    owner, other = opened(line(*each, lease="300ms")), opened(line(*each))
    assert owner.check("r") == ["new"]
    wait_for(lambda: other.check("r") == ["new"], 30, "the end of the lease")
    owner.release("r")
    assert owner.check("r") == ["pending"]


def test_a_release_of_what_is_done_leaves_what_others_handle(server, opened):
    owner, other = opened(line(server)), opened(line(server))
    assert owner.check("s", "t") == ["new", "new"]
    other.release("s")
    assert other.check("s") == ["pending"]
    owner.done("s", "t")
    other.release("s")
    assert other.check("s", "t") == ["new", "done"]


# --- a server that goes away -------------------------------------------------------------------

@pytest.mark.parametrize("form", ["key", "bitmap"])
def test_a_server_that_is_killed_is_never_taken_for_new(own, opened, form):
    store, other = opened(line(own, form, hot=1)), opened(line(own, form))
    assert store.check("done", "open") == ["new", "new"]
    store.done("done")
    own.kill()
    for _ in range(3):
        with refused("retry", "does the server run"):
            store.check("x")
    with refused("retry"):
        store.done("open")
    own.start()
    assert store.done("open") == "ok"
    assert store.check("done", "open", "x") == ["done", "done", "new"]
    assert other.check("done", "open", "x") == ["done", "done", "pending"]


@pytest.fixture(params=FORMS)
def each_own(request):
    """(server, form): as each, of its own."""
    with FakeRedis() if request.param.startswith("bloom") else Redis(appendonly="yes",
                                                            appendfsync="no") as server:
        yield server, request.param


def test_a_server_that_stands_still_costs_no_more_than_the_timeout(each_own, opened):
    own = each_own[0]
    store, other = opened(line(*each_own, timeout="300ms")), opened(line(*each_own))
    assert store.check("a") == ["new"]
    own.pause()
    for ask in (lambda: store.check("b"), lambda: store.done("a"), lambda: store.check("b")):
        begun = time.monotonic()
        with refused("retry", "within"):
            ask()
        assert time.monotonic() - begun < 10
    own.resume()

    def goes_on():
        with contextlib.suppress(DedupError):
            return store.done("a") == "ok"

    wait_for(goes_on, 30, "the store")
    wait_for(lambda: own.client.keys("billing:*:b"), 30, "the claim that was carried out")
    assert other.check("a", "b") == ["done", "pending"]
    assert store.check("a", "b") == ["done", "new"]  # what was asked in vain was its own


def test_a_claim_whose_answer_was_lost_has_a_whole_lease_again(own, opened):
    store = opened(line(own, timeout="200ms", lease="1h"))
    own.pause()
    with refused("retry", "within"):
        store.check("a")
    own.resume()
    wait_for(lambda: own.client.get("billing:id:a"), 30, "the claim that was carried out")
    own.client.pexpire("billing:id:a", 60000)
    assert store.check("a") == ["new"]
    assert own.client.pttl("billing:id:a") > 3_000_000


def greet_and_leave(listener, info=b"$13\r\nrole:master\r\n\r\n"):
    """As a server that ends each connection as soon as it has answered the store's first questions."""
    with contextlib.suppress(OSError):
        while True:
            link, _ = listener.accept()
            with link:
                link.recv(1000)  # INFO
                link.sendall(info)
                asked = link.recv(1000)  # the store's mark
                link.sendall((b"+OK\r\n" if b"SET" in asked else b"") + b"$1\r\n7\r\n")


def test_a_connection_that_ends_while_it_is_written_to_kills_nobody(tmp_path, opened):
    """Each such write is answered by SIGPIPE."""
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        threading.Thread(target=greet_and_leave, args=(listener,), daemon=True).start()
        store = opened(f"redis name=billing url=unix://{path}")
        ids = [f"{number:0900d}" for number in range(1000)]
        for _ in range(20):
            with refused("retry", "does the server run"):
                store.check(*ids)
        listener.shutdown(socket.SHUT_RDWR)


def test_a_server_that_is_busy_with_a_script_is_worth_a_retry(own, opened):
    store = opened(line(own))
    own.client.config_set("busy-reply-threshold", 10)
    script = threading.Thread(target=run_until_killed, args=(own,))
    script.start()
    wait_for(lambda: is_busy(own), 30, "the script")
    with refused("retry", "BUSY"):
        store.check("a")
    own.client.script_kill()
    script.join()
    assert store.check("a") == ["new"]


def is_busy(server):
    try:
        return not server.client.ping()
    except redis.exceptions.ResponseError as error:
        return str(error).startswith("BUSY")


def run_until_killed(server):
    with contextlib.suppress(redis.exceptions.ResponseError):
        redis.Redis(port=server.port).eval("while true do end", 0)


# --- a filter that forgets ----------------------------------------------------------------------

DAY = 86400


def bit_of(id):
    crc = zlib.crc32(id.encode())
    return crc >> 22, crc & (1 << 22) - 1


def slice_name(begin, seconds=DAY):
    """The name of the slice that begins then, seconds long."""
    return time.strftime("%Y%m%d" if seconds % DAY == 0 else "%Y%m%dT%H%M%S", time.gmtime(begin))


def begin_of_slice(seconds, number=0):
    """When the slice of now begins, or the one `number` slices after it. Waits for a new slice rather
    than let it end within the test."""
    while seconds - time.time() % seconds < 5:
        time.sleep(0.5)
    return (int(time.time()) // seconds + number) * seconds


def put_bit(server, id, number, seconds=DAY):
    partition, offset = bit_of(id)
    name = slice_name(begin_of_slice(seconds, number), seconds)
    server.client.setbit(f"billing:{name}:{partition}", offset, 1)


def windowed(server, **settings):
    return line(server, "bitmap", **{"window": "5d", "slices": 5, **settings})


@pytest.mark.parametrize("window, seconds", [("5d", DAY), ("10d", 2 * DAY), ("24h", 17280), ("1h", 720)])
def test_the_bits_of_a_window_are_in_the_key_of_their_slice(server, opened, window, seconds):
    store, begin = opened(windowed(server, window=window)), begin_of_slice(seconds)
    store.check("order-1", "order-2")
    store.done("order-1")
    partition, offset = bit_of("order-1")
    key = f"billing:{slice_name(begin, seconds)}:{partition}"
    assert server.client.getbit(key, offset) == 1
    assert server.client.keys("billing:2*") == [key.encode()]
    assert server.client.execute_command("PEXPIRETIME", key) == (begin + 6 * seconds) * 1000
    partition, offset = bit_of("order-2")
    assert server.client.getbit(f"billing:{slice_name(begin, seconds)}:{partition}", offset) == 0


def test_ids_of_all_living_slices_and_of_the_next_one_are_done(server, opened):
    store = opened(windowed(server))
    numbers = range(-7, 4)
    for number in numbers:
        put_bit(server, f"day{number}", number)
    done = [f"day{number}" for number in numbers if -5 <= number <= 1]
    states = dict(zip(numbers, store.check(*(f"day{number}" for number in numbers))))
    assert [f"day{number}" for number in numbers if states[number] == "done"] == done
    assert set(states.values()) == {"new", "done"}


def test_each_id_costs_two_commands_more_than_slices(server, opened):
    store = opened(windowed(server, slices=1))
    server.client.config_resetstat()
    store.check(*(f"id-{number}" for number in range(1000)))
    assert server.client.info("commandstats")["cmdstat_getbit"]["calls"] == 3000


def test_an_end_is_told_once_for_each_partition(server, opened):
    store, ids = opened(windowed(server)), [f"id-{number}" for number in range(6000)]
    server.client.config_resetstat()
    for first in range(0, 6000, 1000):
        store.check(*ids[first:first + 1000])
        store.done(*ids[first:first + 1000])
    partitions = {bit_of(id)[0] for id in ids}
    assert server.client.info("commandstats")["cmdstat_pexpireat"]["calls"] == len(partitions)
    keys = server.client.keys("billing:2*")
    assert len(keys) == len(partitions) and all(server.client.ttl(key) > 5 * DAY for key in keys)


@pytest.mark.parametrize("first, second", [
    ("window=5d slices=5", "window=5d slices=4"), ("window=5d slices=5", ""),
    ("", "window=5d slices=5"), ("window=5d slices=5", "window=10d slices=5")])
def test_another_window_under_the_same_name_is_refused(server, opened, first, second):
    opened(f"{line(server, 'bitmap')} {first}")
    opened(f"{line(server, 'bitmap')} {first}")
    with refused("config", "billing is in use", "form=bitmap", "choose another name"):
        Dedup(f"{line(server, 'bitmap')} {second}")
    opened(f"{line(server, 'bitmap', name='other')} {second}")


def test_keys_without_an_end_of_slices_that_are_gone_are_removed(server, opened):
    """Those of a process that was killed before it could say their end."""
    numbers = range(-16, 2)
    for number in numbers:
        put_bit(server, "left behind", number)
    opened(windowed(server))
    left = {slice_name(begin_of_slice(DAY, number)) for number in numbers if number < -14 or number > -7}
    assert {key.decode().split(":")[1] for key in server.client.keys("billing:2*")} == left


def test_rotating_slices_give_each_id_to_one_owner_and_leave_no_key(server, opened, chance):
    """Slices of 3 s, over 12 s: four owners, and ids of the last 7 s again and again."""
    words = windowed(server, window="9s", slices=3, timeout="1s", hot=1)
    owners = [opened(words) for _ in range(4)]
    born, number = {}, 0
    end = time.monotonic() + 12
    while time.monotonic() < end:
        fresh = [f"id-{number + i}" for i in range(50)]
        number += 50
        begun = time.monotonic()
        for id, times in handle_all(owners, fresh).items():
            assert times == 1
            born[id] = begun
        again = [id for id, at in born.items() if time.monotonic() - at < 7]
        for owner in owners:
            again = chance.sample(again, min(len(again), 500))
            states = dict(zip(again, owner.check(*again)))
            late = time.monotonic()
            assert not [id for id in again if states[id] != "done" and late - born[id] < 9]
    assert len(born) > 100
    wait_for(lambda: not server.client.keys("billing:2*"), 60, "the end of all slices")
    assert set(owners[0].check("id-0", "id-1")) == {"new"}


def test_an_id_that_the_server_forgot_is_forgotten_by_the_hot_layer(server, opened):
    store = opened(windowed(server, window="3s", slices=1, timeout="1s", hot=1000))
    assert store.check("a") == ["new"]
    store.done("a")
    assert store.check("a") == ["done"]
    wait_for(lambda: not server.client.keys("billing:2*"), 60, "the end of the slice")
    assert store.check("a") == ["new"]


def test_a_server_with_another_time_is_refused_with_the_cure(tmp_path):
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        late = f"role:master\r\nserver_time_usec:{int((time.time() - 3600) * 1e6)}\r\n".encode()
        answer = b"$%d\r\n%s\r\n" % (len(late), late)
        threading.Thread(target=greet_and_leave, args=(listener, answer), daemon=True).start()
        with refused("retry", "behind this machine's, at most are 30000", "set the clocks"):
            Dedup(f"redis lossy form=bitmap ids=1M window=24h name=billing url=unix://{path}")
        listener.shutdown(socket.SHUT_RDWR)


def is_done(server, form, id):
    partition, offset = bit_of(id)
    if form == "bitmap":
        return server.client.getbit(f"billing:bitmap:{partition}", offset)
    return server.client.get(f"billing:id:{id}")


@pytest.mark.parametrize("form", ["key", "bitmap"])
def test_a_failover_makes_it_look_for_the_primary(own, opened, form):
    with Redis(replicaof=f"127.0.0.1 {own.port}") as replica:
        wait_for(lambda: replica.client.info()["master_link_status"] == "up", 30, "the replica")
        with refused("retry", "replica"):
            Dedup(line(replica, form))
        store = opened(line(own, form))
        assert store.check("a", "b") == ["new", "new"]
        store.done("a")
        wait_for(lambda: is_done(replica, form, "a"), 30, "the replica")
        replica.client.replicaof("NO", "ONE")
        own.client.replicaof("127.0.0.1", replica.port)
        for ask in (lambda: store.check("x"), lambda: store.done("b")):
            with refused("retry", "replica"):
                ask()
        assert opened(line(replica, form)).check("a", "b") == ["done", "pending"]
        own.client.replicaof("NO", "ONE")
        assert store.done("b") == "ok"


@pytest.mark.parametrize("form", ["key", "bitmap"])
def test_a_server_that_is_full_forgets_nothing_and_calls_nothing_new(own, opened, form):
    store, other = opened(line(own, form)), opened(line(own, form, hot=1))
    assert store.check("a", "open") == ["new", "new"]
    store.done("a")
    own.client.config_set("maxmemory", 1)
    with refused("retry", "OOM", "maxmemory"):
        store.check("b")
    with refused("retry", "OOM"):
        other.check("a")
    with refused("retry", "OOM"):
        store.done("open")
    own.client.config_set("maxmemory", 0)
    assert other.check("open") == ["pending"]  # neither done nor new
    assert store.done("open") == "ok"
    assert other.check("a", "open", "b") == ["done", "done", "new"]


def refuse_filter(listener, settings, refusal, heard):
    """As a server with RedisBloom that takes claims, and answers this to what is put into the filter."""
    answers = {b"INFO": b"$13\r\nrole:master\r\n\r\n", b"SET": b"+OK\r\n",
               b"EXISTS": b":1\r\n", b"BF.MEXISTS": b"*2\r\n:0\r\n:0\r\n", b"EVAL": b":1\r\n",
               b"BF.CARD": b":0\r\n", b"UNLINK": b":0\r\n", b"PEXPIREAT": b":1\r\n",
               b"BF.MADD": refusal, b"BF.INSERT": refusal}
    with contextlib.suppress(OSError):
        while True:
            link, _ = listener.accept()
            with link, link.makefile("rb") as stream:
                while words := read_command(stream):
                    heard.append(words[0])
                    stored = settings if words[1:] == [b"billing:filter"] else b"7"
                    link.sendall(b"$%d\r\n%s\r\n" % (len(stored), stored) if words[0] == b"GET"
                                 else answers[words[0]])


@pytest.mark.parametrize("window, settings, command", [
    ("", b"form=bloom", b"BF.MADD"), ("window=30d", b"form=bloom window=30d zone=UTC", b"BF.INSERT")],
    ids=["for ever", "by day"])
@pytest.mark.parametrize("refusal, said", [
    (b"-OOM command not allowed when used memory > 'maxmemory'.\r\n", "OOM"),
    (b"-READONLY You can't write against a read only replica.\r\n", "replica"),
    (b"*2\r\n:1\r\n-ERR Maximum expansions reached\r\n", "Maximum expansions"),
    (b"", "within"),
], ids=["full", "failed over", "one of them", "slow"])
def test_a_claim_stays_when_the_filter_refuses_what_is_done(
        tmp_path, opened, window, settings, command, refusal, said):
    path, heard = tmp_path / "socket", []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        threading.Thread(target=refuse_filter, args=(listener, settings, refusal, heard), daemon=True).start()
        store = opened(f"redis lossy form=bloom ids=1k {window} name=billing timeout=1s url=unix://{path}")
        assert store.check("a", "b") == ["new", "new"]
        with refused("retry", said):
            store.done("a", "b")
        assert command in heard and b"EVAL" not in heard
        assert store.stats()["pending"] == 2
        listener.shutdown(socket.SHUT_RDWR)


def test_a_server_that_may_drop_keys_is_refused(own):
    own.client.config_set("maxmemory", "100mb")
    own.client.config_set("maxmemory-policy", "volatile-ttl")
    with refused("config", "set maxmemory-policy noeviction"):
        Dedup(line(own))
    own.client.config_set("maxmemory-policy", "noeviction")
    assert Dedup(line(own)).check("a") == ["new"]


def test_a_server_that_cannot_save_is_worth_a_retry(opened):
    with Redis(save="1 1") as server:
        store = opened(line(server))
        shutil.rmtree(server.data)
        server.client.set("x", 1)
        wait_for(lambda: server.client.info()["rdb_last_bgsave_status"] == "err", 30, "the failure")
        with refused("retry", "MISCONF"):
            store.check("a")


def test_a_server_that_lost_its_data_is_not_believed(opened):
    with Redis() as server:
        store = opened(line(server))
        assert store.check("a") == ["new"]
        store.done("a")
        server.kill()
        server.start()
        for _ in range(2):
            with refused("fatal", "without its data", "open the store again"):
                store.check("a")
        assert opened(line(server)).check("a") == ["new"]


def test_passwords_users_and_databases(opened):
    with Redis(requirepass="s:e@c/r%t") as server:
        address = f"127.0.0.1:{server.port}"
        with refused("denied", "password"):
            Dedup(line(server))
        with refused("denied", "correct"):
            Dedup(f"redis name=b url=redis://:wr0ng@{address}")
        store = opened(f"redis name=b url=redis://:s%3Ae%40c%2Fr%25t@{address}/3")
        assert store.check("a") == ["new"]
        with refused("config", "DB index"):
            Dedup(f"redis name=b url=redis://:s%3Ae%40c%2Fr%25t@{address}/99")
        server.client.execute_command(
            "ACL", "SETUSER", "biller", "on", ">pass", "~billing:*", "+@all", "-flushall")
        store = opened(f"redis name=billing url=redis://biller:pass@{address}")
        assert store.check("a") == ["new"]
        with refused("denied", "NOPERM"):
            Dedup(f"redis name=other url=redis://biller:pass@{address}")
        # without the right to ask, nobody knows whether the server drops keys
        server.client.execute_command("ACL", "SETUSER", "biller", "-info")
        with refused("denied", "NOPERM", "info"):
            Dedup(f"redis name=billing url=redis://biller:pass@{address}")


def test_a_name_that_somebody_else_uses_is_refused(server, opened):
    store = opened(line(server))
    server.client.lpush("billing:id:a", "theirs")
    with refused("config", "WRONGTYPE", "choose another"):
        store.check("a")


def test_a_socket_in_the_file_system(opened):
    with Redis(unixsocket="redis.sock") as server:
        store = opened(f"redis name=b url=unix://{server.data}/redis.sock?db=2")
        assert store.check("a") == ["new"]


def test_an_idle_connection_that_the_server_closed_is_made_anew(own, opened):
    store = opened(line(own))
    assert store.check("a") == ["new"]
    own.client.client_kill_filter(skipme=True, _type="normal")
    assert store.done("a") == "ok"
    own.client.client_kill_filter(skipme=True, _type="normal")
    assert store.check("a", "b") == ["done", "new"]


@pytest.mark.parametrize("words, kind, said", [
    ("url=redis://127.0.0.1:1", "retry", "does the server run"),
    ("url=redis://[::1", "config", "bracket"), ("url=redis://:1", "config", "host"),
    ("url=redis://h:99999", "config", "port"), ("url=redis://h/x", "config", "database"),
    ("url=redis://:%zz@h", "config", "percent"), ("url=127.0.0.1", "config", "redis://"),
    ("url=unix://x", "config", "socket"), ("url=http://h", "config", "rediss://"),
    ("url=redis://h form=bitmap ids=1M", "config", "lossy"),
    ("url=redis://h lossy form=bitmap", "config", "ids is missing"),
    ("url=redis://h lossy form=bloom ids=1M window=1h", "config", "whole days"),
    ("url=redis://h lossy form=bitmap ids=1M slices=3", "config", "add window"),
    ("url=redis://h lossy form=bitmap ids=1M window=0", "config", "window=24h"),
    ("url=redis://h lossy form=bitmap ids=1M window=20s", "config", "lengthen window"),
    ("url=redis://h lossy form=bitmap ids=1M window=20s slices=2 timeout=5s", "config", "11000 ms"),
    ("url=redis://h slices=3", "config", "form=bitmap"),
    ("url=redis://h lossy", "config", "not lossy"),
    ("url=redis://h form=plain", "config", "form=plain"),
    ("url=redis://h rate=2", "config", "rate"), ("", "config", "url is missing")])
def test_a_line_that_cannot_be_is_refused(words, kind, said):
    with refused(kind, said):
        Dedup(f"redis name=billing {words}")
