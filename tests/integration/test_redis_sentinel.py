"""The stores behind Sentinels: they find the master, and follow it when it fails over. An error is
always retry, and no id is new twice."""

import time

import pytest

from support.certificates import Authority
from support.dedup import Claims, Dedup, DedupError, refused
from support.process import wait_for
from support.redis import SentinelGroup


def line(url, **settings):
    words = {"name": "billing", "url": url, "timeout": "1s", **settings}
    return " ".join(["redis", *(f"{name}={value}" for name, value in words.items())])


def retried(call, *words):
    """What the call answers; None: retry."""
    try:
        return call(*words) or "nothing"
    except DedupError as error:
        assert error.kind == "retry", error
        return None


def answer(store, *ids):
    return retried(store.check, *ids)


@pytest.fixture
def group():
    with SentinelGroup() as group:
        yield group


@pytest.mark.rotated
@pytest.mark.parametrize("end", ["kill", "pause"])
def test_a_store_follows_the_failover_and_no_id_is_new_twice(group, end):
    ids = [f"id-{i}" for i in range(500)]
    with Dedup(line(group.url)) as store, Claims(line(group.url)) as claims:
        assert store.check(*ids) == ["new"] * 500 and store.done(*ids) == "ok"
        claim = claims.take("id-1")
        group.master.replicate()
        getattr(group.master, end)()
        assert answer(store, *ids) is None
        assert wait_for(lambda: answer(store, *ids), 60, "the new master") == ["done"] * 500
        wait_for(group.names_replica, 60, "Sentinels that agree")
        assert store.check("another") == ["new"] and store.done("another") == "ok"
        assert wait_for(lambda: retried(claims.release, claim), 60, "the claims on the new master")
        assert claims.take("id-1")
        if end == "pause":  # the old master comes back, as a replica
            group.master.resume()
            wait_for(group.old_master_follows, 60, "the old master's demotion")
        assert store.check("another", *ids) == ["done"] * 501


def test_a_failover_that_an_operator_asks_for_is_followed(group):
    with Dedup(line(group.url)) as store:
        assert store.check("a") == ["new"] and store.done("a") == "ok"
        group.master.replicate()
        group.sentinels[0].ask("FAILOVER", "shop")
        wait_for(group.old_master_follows, 60, "the failover")
        assert wait_for(lambda: answer(store, "a"), 60, "the new master") == ["done"]
        assert store.check("b") == ["new"] and store.done("b") == "ok"
        assert group.replica.client.exists("billing:id:b")


def test_one_sentinel_that_answers_is_enough(group):
    group.sentinels[0].kill()
    group.sentinels[1].pause()
    with Dedup(line(group.url)) as store:
        assert store.check("a") == ["new"]


def test_sentinels_that_hang_do_not_stop_a_master_that_works(group):
    with Dedup(line(group.url)) as store:
        assert store.check("a") == ["new"]
        for sentinel in group.sentinels:
            sentinel.pause()
        end, number = time.monotonic() + 4, 0
        while time.monotonic() < end:
            assert store.check(number) == ["new"]
            number += 1


def test_sentinels_and_servers_with_passwords_over_tls(tmp_path):
    authority = Authority(tmp_path / "authority")
    certificate, key = authority.issue("client")
    files = {"tls_ca": authority.certificate, "tls_certificate": certificate, "tls_key": key}
    (tmp_path / "sentinel").write_text("watch\n")
    with SentinelGroup(tls=authority, sentinel_settings={"requirepass": "watch"}, requirepass="serve") as group:
        url = group.url.replace("://", "://:serve@")
        with Dedup(line(url, sentinel_password_file=tmp_path / "sentinel", **files)) as store:
            assert store.check("a") == ["new"] and store.done("a") == "ok"
        with refused("denied", "sentinel_password_file"):
            Dedup(line(url, **files))


def test_a_url_that_does_not_fit_its_servers_is_refused(group):
    sentinels = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in group.sentinels)
    with refused("retry", "knows no master other"):
        Dedup(line(f"redis+sentinel://{sentinels}/other"))
    with refused("config", "this is a Sentinel", "redis+sentinel://"):
        Dedup(line(f"redis://127.0.0.1:{group.sentinels[0].port}"))
    with refused("config", "is no Sentinel"):
        Dedup(line(f"redis+sentinel://127.0.0.1:{group.master.port}/shop"))
    with refused("config", "no name of a master"):
        Dedup(line(f"redis+sentinel://{sentinels}"))
    with refused("config", "sentinel_password_file"):
        Dedup(line(f"redis://127.0.0.1:{group.master.port}", sentinel_password_file="/dev/null"))
    with refused("retry", "does the server run"):
        Dedup(line("redis+sentinel://127.0.0.1:1/shop"))
    with refused("retry", "this is a replica"):
        Dedup(line(f"redis://127.0.0.1:{group.replica.port}"))
