"""The stores on a real Redis Cluster of three masters: slots move and masters die while claims run. An
error is always retry, and no id is new twice."""

import collections
import os
import shutil
import threading
import time

import pytest

from support.certificates import Authority
from support.dedup import Claims, Dedup, DedupError, refused
from support.process import wait_for
from support.redis import SLOTS, Redis, RedisCluster

FORMS = {"key": "", "bitmap": "lossy form=bitmap ids=1M",
         "bitmap window": "lossy form=bitmap ids=1M window=5d"}


def line(cluster, form="key", **settings):
    words = {"name": "billing", "url": cluster.url, **settings}
    return " ".join(["redis", FORMS[form], *(f"{name}={value}" for name, value in words.items())])


@pytest.fixture(scope="module")
def shared():
    with RedisCluster() as cluster:
        yield cluster


@pytest.fixture
def cluster(shared):
    for node in shared.masters:
        node.client.flushall()
    return shared


@pytest.mark.parametrize("form", FORMS)
def test_ids_spread_over_the_nodes(cluster, form):
    ids = [f"id-{i}" for i in range(2000)]
    with Dedup(line(cluster, form)) as store:
        assert store.check(*ids) == ["new"] * 2000
        assert store.done(*ids) == "ok"
        assert store.check(*ids) == ["done"] * 2000
    pattern = {"key": "billing:id:*", "bitmap": "billing:bitmap:*", "bitmap window": "billing:2*"}[form]
    counts = cluster.keys(pattern)
    assert min(counts) > 0.2 * sum(counts), counts
    assert cluster.keys("billing:pending*") == [0, 0, 0]


def test_any_node_of_the_cluster_is_enough(cluster):
    with Dedup(line(cluster, url=cluster.masters[2].url)) as store:
        assert store.check("a", "b", "c") == ["new"] * 3 and store.done("a", "b", "c") == "ok"
    with Dedup(line(cluster, url=f"redis://127.0.0.1:1,127.0.0.1:{cluster.masters[1].port}")) as store:
        assert store.check("a", "b", "c") == ["done"] * 3


def test_claims_spread_over_the_nodes_and_their_tokens_rise(cluster):
    with Claims(line(cluster)) as claims:
        held = {f"id-{i}": claims.take(f"id-{i}") for i in range(60)}
        assert all(held.values()) and claims.take("id-1") is None
        assert min(cluster.keys("billing:claim:*")) > 0
        for claim in held.values():
            claims.release(claim)
        assert all(claims.take(id)[1] > token for id, (_, token) in held.items())


class Owner(threading.Thread):
    """Takes ids in batches until each has been new for somebody; errors other than retry end it, and a
    minute with no answer but retry."""

    def __init__(self, words, ids, chance):
        super().__init__(daemon=True)
        self.store = Dedup(words)
        self.ids = list(ids)
        chance.shuffle(self.ids)
        self.new, self.retries, self.failure = collections.Counter(), 0, None
        self.last = None

    def run(self):
        try:
            with self.store as store:
                for first in range(0, len(self.ids), 50):
                    self.handle(store, self.ids[first:first + 50])
        except Exception as error:  # noqa: BLE001, shown by the test
            self.failure = error

    def handle(self, store, batch):
        left, end = set(batch), time.monotonic() + 60
        while left:
            assert time.monotonic() < end, f"{len(left)} ids are not done: {sorted(left)[:3]}: {self.last}"
            try:
                states = dict(zip(sorted(left), store.check(*sorted(left))))
                new = [id for id, state in states.items() if state == "new"]
                self.new.update(new)
                while new and not self.ended(store, new):
                    self.retries += 1
                left -= {id for id, state in states.items() if state in ("new", "done")}
            except DedupError as error:
                assert error.kind == "retry", error
                self.retries, self.last = self.retries + 1, error

    def ended(self, store, ids):
        try:
            return store.done(*ids) == "ok"
        except DedupError as error:
            assert error.kind == "retry", error
            self.last = error
            return False


class Owners:
    """Three owners that have begun with the same ids."""

    def __init__(self, words, chance):
        self.ids = [f"id-{i}" for i in range(3000)]
        self.owners = [Owner(words, self.ids, chance) for _ in range(3)]
        for owner in self.owners:
            owner.start()

    def retries(self):
        return sum(owner.retries for owner in self.owners)

    def check(self):
        """Waits for their end; each id was new for one of them."""
        times = collections.Counter()
        for owner in self.owners:
            owner.join(300)
            assert not owner.is_alive(), "an owner still waits for its ids"
            assert owner.failure is None, owner.failure
            times.update(owner.new)
        assert times == dict.fromkeys(self.ids, 1)


def move_to_another(cluster, slot, chance):
    source = cluster.owner(slot)
    cluster.move_slot(slot, chance.choice([node for node in cluster.masters if node is not source]))


@pytest.mark.parametrize("form", FORMS)
def test_a_slot_that_moves_under_claims_doubles_none(cluster, chance, form):
    owners = Owners(line(cluster, form, timeout="10s"), chance)
    for slot in chance.sample(range(SLOTS), 60):
        move_to_another(cluster, slot, chance)
    owners.check()


@pytest.mark.rotated
@pytest.mark.parametrize("form", FORMS)
def test_a_master_that_is_killed_under_claims_doubles_none(chance, form):
    """It comes back with all that it acknowledged; slots move meanwhile."""
    with RedisCluster(appendonly="yes", appendfsync="always") as cluster:
        owners = Owners(line(cluster, form, timeout="1s"), chance)
        for _ in range(4):
            node = chance.choice(cluster.masters)
            node.kill()
            node.start()
            wait_for(lambda: cluster.is_whole() and cluster.nodes_agree(), 60, "the cluster")
            move_to_another(cluster, chance.randrange(SLOTS), chance)
        owners.check()
        assert owners.retries() > 0


def test_a_command_follows_its_key_while_the_slot_moves(cluster):
    """ASK: the key is at its new node already, or comes into being there."""
    ids = [f"{{tag}}{i}" for i in range(20)]
    slot = cluster.masters[0].client.execute_command("CLUSTER", "KEYSLOT", "tag")
    key_slot = cluster.masters[0].client.execute_command("CLUSTER", "KEYSLOT", f"billing:id:{ids[0]}")
    assert key_slot == slot
    source = cluster.owner(slot)
    target = next(node for node in cluster.masters if node is not source)
    with Dedup(line(cluster)) as store:
        assert store.check(*ids[:10]) == ["new"] * 10 and store.done(*ids[:10]) == "ok"

        def between():
            assert store.check(*ids) == ["done"] * 10 + ["new"] * 10
            assert store.done(*ids[10:]) == "ok"

        cluster.move_slot(slot, target, between)
        assert store.check(*ids) == ["done"] * 20


def test_a_master_that_dies_makes_no_id_new(chance):
    ids = [f"id-{i}" for i in range(600)]
    with RedisCluster(replicas=True) as cluster, Dedup(line(cluster, timeout="500ms")) as store:
        assert store.check(*ids) == ["new"] * 600 and store.done(*ids) == "ok"
        for master in cluster.masters:
            master.replicate()
        chance.choice(cluster.masters).kill()

        def answer():
            try:
                return store.check(*ids)
            except DedupError as error:
                assert error.kind == "retry", error
                return None

        assert answer() is None
        assert wait_for(answer, 60, "a replica that takes over") == ["done"] * 600
        assert store.check("another", "third") == ["new"] * 2


def test_a_node_that_comes_back_empty_is_refused():
    with RedisCluster(appendonly="yes") as cluster, Dedup(line(cluster)) as store:
        assert store.check("a", "b", "c", "d") == ["new"] * 4 and store.done("a", "b", "c", "d") == "ok"
        for node in cluster.masters:
            node.kill()
            shutil.rmtree(os.path.join(node.data, "appendonlydir"))
            node.start()
        wait_for(cluster.is_whole, 60, "the cluster")
        with refused("fatal", "without its data"):
            store.check("a", "b", "c", "d")


def slot_of_mark(cluster, node, name="billing"):
    """A slot of the node that has a mark of the store and none of the ids id-0 to id-299."""
    def slot(key):
        return node.client.execute_command("CLUSTER", "KEYSLOT", key)

    used = {slot(f"{name}:id:id-{i}") for i in range(300)}
    return next(at for at in (slot(f"{name}:store:{i}") for i in range(1024))
                if at not in used and cluster.owner(at) is node)


def test_a_mark_that_moves_fails_no_call(cluster):
    ids = [f"id-{i}" for i in range(300)]
    first, second, _ = cluster.masters
    with Dedup(line(cluster)) as store:
        assert store.check(*ids) == ["new"] * 300 and store.done(*ids) == "ok"

        def connect_again():
            first.client.client_kill_filter(skipme=True, _type="normal")
            assert store.check(*ids) == ["done"] * 300
            with Dedup(line(cluster)) as other:
                assert other.check(*ids) == ["done"] * 300

        cluster.move_slot(slot_of_mark(cluster, first), second, connect_again)
        connect_again()


def test_a_node_that_was_emptied_before_the_first_command_to_it_is_refused():
    ids = [f"id-{i}" for i in range(300)]
    with RedisCluster(appendonly="yes") as cluster, Dedup(line(cluster)) as store, Dedup(line(cluster)) as idle:
        assert store.check(*ids) == ["new"] * 300 and store.done(*ids) == "ok"
        node = cluster.masters[2]
        node.kill()
        shutil.rmtree(os.path.join(node.data, "appendonlydir"))
        node.start()
        wait_for(cluster.is_whole, 60, "the cluster")
        with refused("fatal", "without its data"):
            idle.check(*ids)


def test_a_node_that_comes_back_empty_is_refused_after_its_slots_have_moved():
    ids = [f"id-{i}" for i in range(300)]
    with RedisCluster(appendonly="yes") as cluster, Dedup(line(cluster)) as store:
        assert store.check(*ids) == ["new"] * 300 and store.done(*ids) == "ok"
        node, other, _ = cluster.masters
        for _ in range(3):
            cluster.move_slot(slot_of_mark(cluster, node), other)
        node.kill()
        shutil.rmtree(os.path.join(node.data, "appendonlydir"))
        node.start()
        wait_for(cluster.is_whole, 60, "the cluster")
        with refused("fatal", "without its data"):
            store.check(*ids)


def test_a_cluster_over_tls(tmp_path):
    authority = Authority(tmp_path / "authority")
    certificate, key = authority.issue("client")
    with RedisCluster(tls=authority) as cluster:
        files = {"tls_ca": authority.certificate, "tls_certificate": certificate, "tls_key": key}
        with Dedup(line(cluster, **files)) as store:
            ids = [f"id-{i}" for i in range(500)]
            assert store.check(*ids) == ["new"] * 500 and store.done(*ids) == "ok"
        assert min(cluster.keys("billing:id:*")) > 0


def test_addresses_that_do_not_belong_together_are_refused(cluster):
    with Redis() as single, Redis() as other:
        with refused("config", "not all of them are its nodes"):
            Dedup(line(cluster, url=f"{cluster.masters[0].url},127.0.0.1:{single.port}"))
        with refused("config", "several addresses"):
            Dedup(line(cluster, url=f"{single.url},127.0.0.1:{other.port}"))
    with refused("config", "database 0"):
        Dedup(line(cluster, url=f"{cluster.url}/3"))
