"""Claims: of several consumers one works on an id, and who lost its claim is told."""

import contextlib
import time

import pytest

from support.dedup import Claims, DedupError, refused
from support.process import wait_for
from support.redis import Redis

LEASE = 1.5


class OnPostgres:
    """The claims' server, and what becomes of it."""

    kind = "postgres"

    def __init__(self, database):
        self.server, self.database = database.postgres, database
        self.address = {"dsn": database.dsn}

    def count(self):
        return self.database.execute("SELECT count(*) FROM outbox.claim")[0][0]

    def lose(self):
        """Somebody empties it."""
        self.database.execute("DELETE FROM outbox.claim")


class OnRedis:
    kind = "redis"

    def __init__(self, server):
        self.server = server
        self.address = {"url": server.url}

    def count(self):
        return len(self.server.client.keys("billing:claim:*"))

    def lose(self):
        self.server.client.delete(*self.server.client.keys("billing:claim:*"))


@pytest.fixture(params=["postgres", "redis"])
def world(request):
    """A server of its own, to be stopped and killed."""
    if request.param == "postgres":
        yield OnPostgres(request.getfixturevalue("own_database"))
        return
    with Redis(appendonly="yes", appendfsync="no") as server:
        yield OnRedis(server)


@pytest.fixture
def opened(world):
    """opened(…): claims on the test's server, closed at its end."""
    with contextlib.ExitStack() as stack:
        def open_claims(**settings):
            words = {"name": "billing", "lease": f"{int(LEASE * 1000)}ms", **world.address,
                     **settings}
            line = " ".join([world.kind, *(f"{name}={word}" for name, word in words.items())])
            claims = stack.enter_context(Claims(line))
            stack.callback(claims.resume)
            return claims

        yield open_claims


def taken(claims, id, timeout=30):
    """The claim, when it can be had."""
    return wait_for(lambda: claims.take(id), timeout, f"the claim on {id}")


def test_of_two_one_has_it(world, opened):
    one, two = opened(), opened()
    claim = one.take("a")
    assert claim and two.take("a") is None and one.take("a") is None
    assert two.take("b") and world.count() == 2
    assert one.check(claim) == one.release(claim) == "ok"
    assert two.take("a")[1] > claim[1]
    with refused("reject", "released before"):
        one.check(claim)


def test_many_are_taken_in_one_request(world, opened):
    """An id that comes twice is taken once; tokens rise, and closing releases all."""
    one, two = opened(), opened()
    held = two.take("id-3")
    ids = [f"id-{number}" for number in range(300)]
    claims = one.take_many(*ids, "id-0")
    assert [number for number, claim in enumerate(claims) if claim is None] == [3, 300]
    assert two.take_many(*ids) == [None] * 300 and world.count() == 300
    assert one.release(claims[7]) == one.check(claims[8]) == two.release(held) == "ok"
    later = two.take_many("id-3", "id-7")
    assert later[0][1] > held[1] and later[1][1] > claims[7][1]
    one.close()
    assert world.count() == 2


def test_names_are_worlds_of_their_own(opened):
    one, two = opened(), opened(name="other")
    assert one.take("a") and two.take("a")


@pytest.mark.rotated
def test_a_claim_is_renewed_for_as_long_as_it_is_held(opened):
    owner, other = opened(), opened()
    claims = [owner.take(f"id-{number}") for number in range(50)]
    until = time.monotonic() + 4 * LEASE
    while time.monotonic() < until:
        assert other.take("id-7") is None
        time.sleep(LEASE / 20)
    for claim in claims:
        assert owner.check(claim) == "ok"


def test_who_is_stopped_for_longer_than_its_lease_is_told_at_its_next_step(opened):
    """And the token of the next owner is larger, so that the first cannot write any more."""
    owner, other = opened(), opened()
    claim = owner.take("a")
    owner.pause()
    later = taken(other, "a")
    assert later[1] > claim[1]
    owner.resume()
    with refused("fenced", "stop"):
        owner.check(claim)
    with refused("fenced"):
        owner.release(claim)
    assert other.check(later) == "ok"
    assert owner.take("a") is None


def test_who_is_stopped_but_nobody_came_is_told_all_the_same(opened):
    owner = opened()
    claim = owner.take("a")
    owner.pause()
    time.sleep(1.5 * LEASE)  # what is tried: that this time has passed
    owner.resume()
    with refused("fenced"):
        owner.check(claim)


def test_the_claims_of_an_owner_that_is_killed_are_free_after_the_lease(opened):
    owner, other = opened(), opened()
    begun = time.monotonic()
    claim = owner.take("a")
    owner.kill()
    assert other.take("a") is None
    assert taken(other, "a")[1] > claim[1]
    assert time.monotonic() - begun >= LEASE * 0.9


def test_what_is_held_is_given_back_at_the_end(world, opened):
    owner, other = opened(lease="1h"), opened()
    assert owner.take("a") and owner.take("b")
    owner.close()
    assert world.count() == 0
    assert other.take("a")


def test_a_server_that_is_gone_costs_the_claim_after_its_lease(world, opened):
    owner, other = opened(), opened()
    claim, kept = owner.take("a"), other.take("b")
    world.server.kill()
    with refused("retry"):
        other.take("c")
    wait_for(lambda: fenced(owner, claim), 30, "the end of the lease")
    with refused("fenced"):
        owner.release(claim)
    world.server.start()
    assert taken(other, "a")[1] > claim[1]
    assert fenced(other, kept)


def fenced(owner, claim):
    try:
        return owner.check(claim) != "ok"
    except DedupError as error:
        return error.kind == "fenced"


def test_a_server_that_is_back_in_time_costs_nothing(world, opened):
    owner = opened(lease="20s")
    claim = owner.take("a")
    world.server.kill()
    world.server.start()
    assert owner.check(claim) == owner.release(claim) == "ok"


def test_a_server_that_stands_still_costs_no_more_than_the_timeout(world, opened):
    owner = opened(timeout="100ms", lease="20s")
    claim = owner.take("a")
    world.server.pause()
    begun = time.monotonic()
    with refused("retry", "within"):
        owner.take("b")
    assert owner.check(claim) == "ok"
    assert time.monotonic() - begun < 10
    world.server.resume()


def test_claims_that_the_server_lost_are_told_of(world, opened):
    owner, other = opened(), opened()
    claim = owner.take("a")
    world.lose()
    later = taken(other, "a")
    assert later[1] > claim[1]
    wait_for(lambda: fenced(owner, claim), 30, "the watchdog")


def test_ids_hold_any_bytes_and_have_a_length(opened):
    claims = opened()
    assert claims.take("%00;drop") and claims.take("x" * 1024)
    with refused("reject", "1025 bytes"):
        claims.take("x" * 1025)


@pytest.mark.parametrize("words, kind, said", [
    ("redis name=b url=redis://127.0.0.1:1", "retry", "does the server run"),
    ("redis name=b url=http://127.0.0.1", "config", "redis://"),
    ("redis url=redis://127.0.0.1", "config", "name is missing"),
    ("redis name=b", "config", "url is missing"),
    ("postgres name=b dsn=host=/nowhere", "retry", "Postgres listens"),
    ("postgres name=b lease=1ms", "config", "lease"),
    ("bloom name=b", "config", "no store of claims")])
def test_a_line_that_cannot_be_is_refused(words, kind, said):
    with refused(kind, said):
        Claims(words)
