"""Services by name: url = grpc://shop of a [check] section (outbox/http/http_service.c)."""

import contextlib
import time

import pytest

from support.check_asker import Asker
from support.dns import NameServer, a, srv
from support.grpc_shop import GrpcShop, truth
from support.process import wait_for

SHOP = "_grpc._tcp.shop.example"


@pytest.fixture
def names():
    with NameServer() as server:
        yield server


@pytest.fixture
def start(tmp_path):
    with contextlib.ExitStack() as shops:
        yield lambda host, **options: shops.enter_context(GrpcShop(tmp_path, host, **options))


@pytest.fixture
def make_asker(tmp_path):
    with contextlib.ExitStack() as askers:
        yield lambda url, **settings: askers.enter_context(Asker(
            tmp_path, **{"url": url, "networks": "127.0.0.0/8", "host_in_flight": 300, **settings}))


def publish(names, *shops, ttl=1, **options):
    """The SRV records of the shops, and their addresses."""
    names.set(SHOP, *[srv(f"{shop.host.replace('.', '-')}.shop.example", shop.port, ttl=ttl, **options)
                      for shop in shops])
    for shop in shops:
        names.set(f"{shop.host.replace('.', '-')}.shop.example", a(shop.host, ttl=ttl))


def ask_all(asker, ids):
    numbers = {biz_id: asker.send("order", biz_id) for biz_id in ids}
    return {biz_id: asker.answer(number) for biz_id, number in numbers.items()}


def assert_true_or_unknown(answers, *shops):
    """A word is the business's own; without one there is a failure that says why."""
    said = {pair for shop in shops for pair in shop.answered()}
    for biz_id, answer in answers.items():
        word, = answer["words"]
        if word == "unknown":
            assert answer["failure"] and len(answer["error"]) > 10, answer
        else:
            assert word == truth(biz_id) and (biz_id, word) in said, answer


def decided(answers):
    return [biz_id for biz_id, answer in answers.items() if answer["words"] != ["unknown"]]


def test_two_addresses_behind_one_name_share_the_work(names, start, make_asker):
    shops = [start("127.0.0.2"), start("127.0.0.3")]
    publish(names, *shops)
    asker = make_asker("grpc://shop.example", name_servers=names.address)
    ids = [str(number) for number in range(200)]
    answers = ask_all(asker, ids)
    assert decided(answers) == ids, answers
    assert_true_or_unknown(answers, *shops)
    shares = [len(shop.answered()) for shop in shops]
    assert sum(shares) == 200 and min(shares) > 50, shares


def test_one_of_two_addresses_is_killed(names, start, make_asker):
    shops = [start("127.0.0.2"), start("127.0.0.3")]
    publish(names, *shops)
    asker = make_asker("grpc://shop.example", name_servers=names.address, breaker_failures=3)
    asker.expected = "event=service_address_fails"
    before = ask_all(asker, [str(number) for number in range(20)])
    numbers = {str(number): asker.send("order", str(number)) for number in range(100, 150)}
    shops[0].kill()
    during = {biz_id: asker.answer(number) for biz_id, number in numbers.items()}
    after = ask_all(asker, [str(number) for number in range(200, 300)])
    assert_true_or_unknown({**before, **during, **after}, *shops)
    # The other address has them: none needs to be asked again.
    assert len(decided(during)) == 50 and len(decided(after)) == 100, (during, after)


def test_one_of_two_addresses_is_stopped(names, start, make_asker):
    shops = [start("127.0.0.2"), start("127.0.0.3")]
    publish(names, *shops)
    asker = make_asker("grpc://shop.example", name_servers=names.address, breaker_failures=3, timeout="500ms")
    asker.expected = "event=service_address_fails"
    ask_all(asker, [str(number) for number in range(20)])
    shops[0].pause()
    during = ask_all(asker, [str(number) for number in range(100, 150)])
    assert_true_or_unknown(during, *shops)
    lost = [answer for answer in during.values() if answer["words"] == ["unknown"]]
    assert 3 <= len(lost) < 50, during
    # The service as a whole works, so its own breaker may not open by that.
    assert all(answer["failure"] == "timeout" and answer["sent"] and answer["reached"] for answer in lost), lost
    after = ask_all(asker, [str(number) for number in range(200, 300)])
    assert len(decided(after)) == 100, after


def test_a_third_address_in_dns_is_used_within_its_time_to_live(names, start, make_asker):
    shops = [start("127.0.0.2"), start("127.0.0.3"), start("127.0.0.4")]
    publish(names, *shops[:2], ttl=2)
    asker = make_asker("grpc://shop.example", name_servers=names.address)
    ask_all(asker, ["0"])
    publish(names, *shops, ttl=2)
    begin, number = time.monotonic(), 1
    while not shops[2].answered():
        assert time.monotonic() < begin + 2, "it was not used within its time to live"
        ask_all(asker, [str(number + i) for i in range(10)])
        number += 10
    # And one that left DNS is no longer used.
    publish(names, shops[2], ttl=2)
    asked = names.count(SHOP)
    wait_for(lambda: names.count(SHOP) > asked, timeout=10)
    ask_all(asker, ["1000"])
    left = [len(shop.answered()) for shop in shops[:2]]
    ask_all(asker, [str(number) for number in range(2000, 2100)])
    assert [len(shop.answered()) for shop in shops[:2]] == left
