"""Services by name: url = grpc://shop of a [check] section (outbox/http/http_service.c)."""

import contextlib
import socket
import threading
import time

import pytest

from support.certificates import Authority
from support.check_asker import Asker
from support.dns import A, AAAA, NameServer, a, aaaa, cname, srv
from support.grpc_shop import GrpcShop, truth
from support.lookback import Case
from support.process import free_port, wait_for
from support.relay import run_command

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
        yield lambda url, variables=None, **settings: askers.enter_context(Asker(
            tmp_path, variables, **{"url": url, "networks": "127.0.0.0/8", "host_in_flight": 300, **settings}))


def publish(names, *shops, ttl=1, **options):
    """The SRV records of the shops, and their addresses."""
    names.set(SHOP, *[srv(f"{shop.host.replace('.', '-')}.shop.example", shop.port, ttl=ttl, **options)
                      for shop in shops])
    for shop in shops:
        names.set(f"{shop.host.replace('.', '-')}.shop.example", a(shop.host, ttl=ttl))


def ask_all(asker, ids):
    numbers = {biz_id: asker.send("order", biz_id) for biz_id in ids}
    return {biz_id: asker.answer(number) for biz_id, number in numbers.items()}


def settled(names, name):
    """Waits until a lookup of the name began and ended after now."""
    asked = names.count(name)
    wait_for(lambda: names.count(name) > asked + 1, timeout=20)


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
    asker = make_asker("grpc://shop.example", name_servers=names.address, breaker_failures=3, timeout="2s")
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


@contextlib.contextmanager
def measured_pauses():
    """A list of the pauses of this machine, each in seconds."""
    pauses, ended = [], threading.Event()

    def watch():
        while True:
            begin = time.monotonic()
            if ended.wait(0.02):
                return
            pause = time.monotonic() - begin - 0.02
            if pause > 0.1:
                pauses.append(pause)
    watcher = threading.Thread(target=watch)
    watcher.start()
    yield pauses
    ended.set()
    watcher.join()


def test_a_third_address_in_dns_is_used_within_its_time_to_live(names, start, make_asker):
    shops = [start("127.0.0.2"), start("127.0.0.3"), start("127.0.0.4")]
    publish(names, *shops[:2], ttl=3)
    asker = make_asker("grpc://shop.example", name_servers=names.address)
    ask_all(asker, ["0"])
    with measured_pauses() as pauses:
        publish(names, *shops, ttl=3)
        begin, number = time.monotonic(), 1
        while not shops[2].answered():
            assert time.monotonic() < begin + min(3 + sum(pauses), 15), "it was not used within its time to live"
            ask_all(asker, [str(number + i) for i in range(10)])
            number += 10
    # And one that left DNS is no longer used.
    publish(names, shops[2], ttl=3)
    settled(names, SHOP)
    left = [len(shop.answered()) for shop in shops[:2]]
    ask_all(asker, [str(number) for number in range(2000, 2100)])
    assert [len(shop.answered()) for shop in shops[:2]] == left


# --- what DNS says -----------------------------------------------------------------------------

def test_addresses_beside_the_record_are_used_without_another_query(names, start, make_asker):
    shop = start("127.0.0.2")
    names.set(SHOP, srv("x.shop.example", shop.port), extra=[("X.shop.example", a(shop.host))])
    asker = make_asker("grpc://shop.example/", name_servers=names.address)
    assert asker.ask("order", "2")["words"] == ["commit"]
    assert names.count("x.shop.example") == 0


def test_a_name_with_a_port_needs_no_service_record(names, start, make_asker):
    shop = start("127.0.0.2")
    names.set("shop.example", a(shop.host), a("127.0.0.9"))
    asker = make_asker(f"grpc://shop.example:{shop.port}", name_servers=names.address, breaker_failures=1000)
    assert set(one["words"][0] for one in ask_all(asker, [str(2 * n) for n in range(20)]).values()) == {"commit"}
    assert names.count(SHOP) == 0


def test_a_name_may_have_the_service_records_itself(names, start, make_asker):
    shop = start("127.0.0.2")
    names.set("shop.service.consul", srv("node.consul", shop.port))
    names.set("node.consul", a(shop.host))
    asker = make_asker("grpc://shop.service.consul", name_servers=names.address)
    assert asker.ask("order", "3")["words"] == ["rollback"]


def test_an_answer_that_is_too_long_is_fetched_by_tcp(names, start, make_asker):
    shops = [start("127.0.0.2"), start("127.0.0.3")]
    publish(names, *shops)
    names.truncates = True
    asker = make_asker("grpc://shop.example", name_servers=names.address)
    assert len(decided(ask_all(asker, [str(number) for number in range(50)]))) == 50
    assert {way for _, name, _, way in names.asked if name == SHOP} == {"udp", "tcp"}
    assert all(shop.answered() for shop in shops)


def test_a_service_may_have_two_hundred_targets(names, start, make_asker):
    """The only one that works stands last."""
    shop = start("127.0.0.2")
    hosts = [f"127.0.1.{number}" for number in range(1, 200)]
    targets = [f"{host.replace('.', '-')}.shop.example" for host in hosts]
    names.set(SHOP, *[srv(target, shop.port, priority=1) for target in targets], srv("last.shop.example", shop.port),
              extra=[*[(target, a(host)) for target, host in zip(targets, hosts)], ("last.shop.example", a(shop.host))])
    names.truncates = True
    asker = make_asker("grpc://shop.example", name_servers=names.address)
    assert asker.ask("order", "2")["words"] == ["commit"]


def test_a_higher_priority_is_used_only_while_no_lower_one_works(names, start, make_asker):
    first, second = start("127.0.0.2"), start("127.0.0.3")
    names.set(SHOP, srv("first.example", first.port, priority=1), srv("second.example", second.port, priority=2))
    names.set("first.example", a(first.host))
    names.set("second.example", a(second.host))
    asker = make_asker("grpc://shop.example", name_servers=names.address, breaker_failures=3)
    asker.expected = "event=service_address_fails"
    assert len(decided(ask_all(asker, [str(number) for number in range(50)]))) == 50
    assert len(first.answered()) == 50 and not second.answered()
    first.kill()
    assert len(decided(ask_all(asker, [str(number) for number in range(100, 150)]))) == 50
    assert len(second.answered()) == 50


def test_the_last_addresses_hold_while_no_name_server_answers(names, start, make_asker):
    shop = start("127.0.0.2")
    publish(names, shop)
    asker = make_asker("grpc://shop.example", name_servers=names.address)
    assert asker.ask("order", "2")["words"] == ["commit"]
    names.failing = True
    asked = names.count(SHOP)
    wait_for(lambda: names.count(SHOP) > asked + 1, timeout=20)
    assert asker.ask("order", "4")["words"] == ["commit"]
    names.failing = False
    asked = names.count(SHOP)
    wait_for(lambda: names.count(SHOP) > asked, timeout=20)
    assert asker.ask("order", "6")["words"] == ["commit"]
    wait_for(lambda: names.count(SHOP) > asked + 1, timeout=20)
    asker.expected = ["event=service_unresolved", "event=service_resolved"]
    asker.close()
    assert "requests go to the addresses that were found last" in asker.errors


def test_search_domains_of_the_system_are_used_and_may_fail(names, start, make_asker):
    """With ndots:5, as in Kubernetes, the plain name is asked for last, and does not exist."""
    shop, place = start("127.0.0.2"), "_grpc._tcp.shop.ns.example"
    names.set(place, srv("x.ns.example", shop.port))
    names.set("x.ns.example", a(shop.host))
    names.failing = {"_grpc._tcp.shop.none.example"}
    asker = make_asker("grpc://shop", name_servers=names.address,
                       variables={"LOCALDOMAIN": "none.example ns.example", "RES_OPTIONS": "ndots:5"})
    asker.expected = "event=service_unresolved"
    assert asker.ask("order", "2")["words"] == ["commit"]
    names.failing = {place}
    settled(names, place)
    assert asker.ask("order", "4")["words"] == ["commit"]


def test_a_target_without_an_answer_keeps_the_last_list(names, start, make_asker):
    shops = [start("127.0.0.2"), start("127.0.0.3")]
    publish(names, *shops)
    asker = make_asker("grpc://shop.example", name_servers=names.address)
    asker.expected = "event=service_unresolved"
    ask_all(asker, ["0"])
    names.failing = {"127-0-0-2.shop.example"}
    settled(names, SHOP)
    count = len(shops[0].answered())
    ask_all(asker, [str(number) for number in range(100)])
    assert len(shops[0].answered()) > count + 10


def test_a_name_with_a_port_keeps_its_last_list_without_an_answer_about_ipv4(names, start, make_asker):
    shop = start("127.0.0.2")
    names.set("shop.example", a(shop.host), aaaa("fd00::1"))
    asker = make_asker(f"grpc://shop.example:{shop.port}", name_servers=names.address)
    asker.expected = ["event=address_refused", "event=service_unresolved"]
    assert asker.ask("order", "2")["words"] == ["commit"]
    names.failing = {("shop.example", A)}
    settled(names, "shop.example")
    wait_for(lambda: sum(one[1:3] == ("shop.example", AAAA) for one in list(names.asked)) > 2, timeout=20)
    assert asker.ask("order", "4")["words"] == ["commit"]
    asker.close()
    assert "the name servers did not answer about the address record of shop.example" in asker.errors


def test_a_target_keeps_its_last_list_without_an_answer_about_ipv4(names, start, make_asker):
    shop = start("127.0.0.2")
    publish(names, shop)
    names.set("127-0-0-2.shop.example", a(shop.host), aaaa("fd00::1"))
    asker = make_asker("grpc://shop.example", name_servers=names.address)
    asker.expected = ["event=address_refused", "event=service_unresolved"]
    assert asker.ask("order", "2")["words"] == ["commit"]
    names.failing = {("127-0-0-2.shop.example", A)}
    settled(names, SHOP)
    assert asker.ask("order", "4")["words"] == ["commit"]


def test_a_name_with_a_port_may_have_ipv6_addresses_only(names, make_asker):
    names.set("shop.example", aaaa("fd00::1"))
    asker = make_asker("grpc://shop.example:7", name_servers=names.address)
    asker.expected = "event=address_refused"
    assert_unsent(asker.ask("order", "2"), "address_refused", "all its addresses are refused: [fd00::1]:7 (private)")


def test_an_alias_is_followed_within_its_own_time_to_live(names, start, make_asker):
    old = start("127.0.0.2")
    new = start("127.0.0.3", port=old.port)
    names.set("old.example", a(old.host, ttl=300))
    names.set("new.example", a(new.host, ttl=300))
    names.set("shop.example", cname("old.example", ttl=1))
    asker = make_asker(f"grpc://shop.example:{old.port}", name_servers=names.address)
    ask_all(asker, ["0"])
    assert old.answered()
    names.set("shop.example", cname("new.example", ttl=1))
    wait_for(lambda: ask_all(asker, ["2"]) and new.answered(), timeout=30)


def test_a_name_that_leaves_dns_has_no_address_any_longer(names, start, make_asker):
    shop = start("127.0.0.2")
    publish(names, shop)
    asker = make_asker("grpc://shop.example", name_servers=names.address)
    asker.expected = "event=service_unresolved"
    assert asker.ask("order", "2")["words"] == ["commit"]
    names.set(SHOP)
    del names.records[SHOP]
    wait_for(lambda: asker.ask("order", "4")["failure"] == "resolve", timeout=20)
    count = len(shop.answered())
    assert_unsent(asker.ask("order", "6"), "resolve", "DNS has no SRV record of _grpc._tcp.shop.example")
    assert len(shop.answered()) == count


# --- bad input ---------------------------------------------------------------------------------

def assert_unsent(answer, failure, *words):
    """Nothing was sent, so that no attempt of the id is used up."""
    assert answer["words"] == ["unknown"] and answer["failure"] == failure, answer
    assert not answer["sent"] and not answer["reached"], answer
    for word in words:
        assert word in answer["error"], answer


@pytest.mark.parametrize("records,error", [
    ([], "DNS has no SRV record of _grpc._tcp.shop.example; create the record, or write the port: grpc://NAME:PORT"),
    ([srv(".", 0)], "there is no such service"),
    ([srv("nowhere.example", 1)], "DNS has no address record of nowhere.example; create the record")])
def test_a_name_that_resolves_to_nothing_says_so(names, make_asker, records, error):
    if records:
        names.set(SHOP, *records)
    asker = make_asker("grpc://shop.example", name_servers=names.address)
    asker.expected = "event=service_unresolved"
    assert_unsent(asker.ask("order", "2"), "resolve", "grpc://shop.example: ", error)
    asker.close()
    line, = asker.errors.splitlines()
    assert "cure=" in line and "no attempt is used" in line and error.split(";")[0] in line


def test_a_name_with_a_port_that_resolves_to_nothing_says_so(names, make_asker):
    asker = make_asker("grpc://shop.example:1", name_servers=names.address)
    asker.expected = "event=service_unresolved"
    assert_unsent(asker.ask("order", "2"), "resolve", "shop.example", "create the record, or correct url")


def test_name_servers_that_do_not_answer_cost_no_attempt(names, start, make_asker):
    shop = start("127.0.0.2")
    publish(names, shop)
    names.silent = True
    asker = make_asker("grpc://shop.example", name_servers=names.address, connect_timeout="300ms")
    assert_unsent(asker.ask("order", "2"), "resolve_timeout", "its name servers did not answer in time")
    names.silent = False
    wait_for(lambda: asker.ask("order", "2")["words"] == ["commit"], timeout=30)


@pytest.mark.parametrize("records,code", [
    ([a("10.0.0.7")], "private"), ([a("169.254.169.254")], "metadata"), ([a("0.0.0.0")], "unspecified"),
    ([aaaa("::1")], "loopback"), ([aaaa("::ffff:127.0.0.2")], "v4_in_v6"), ([a("127.0.0.2")], "loopback")])
@pytest.mark.parametrize("way", ["extra", "query", "port"])
def test_every_address_passes_the_guard(names, start, make_asker, records, code, way):
    """Whichever way an address comes: none is connected to that networks does not list."""
    with socket.create_server(("127.0.0.2", 0)) as forbidden:
        port = forbidden.getsockname()[1]
        names.set(SHOP, srv("x.example", port), extra=[("x.example", one) for one in records if way == "extra"])
        names.set("x.example", *records)
        url = f"grpc://x.example:{port}" if way == "port" else "grpc://shop.example"
        asker = make_asker(url, name_servers=names.address, networks="192.168.7.0/24")
        asker.expected = "event=address_refused"
        assert_unsent(asker.ask("order", "2"), "address_refused", f"({code})", "networks")
        asker.close()
        assert "cure=" in asker.errors
        forbidden.setblocking(False)
        with pytest.raises(BlockingIOError):
            forbidden.accept()


def test_a_forbidden_address_beside_an_allowed_one_is_left_out(names, start, make_asker):
    shop = start("127.0.0.2")
    names.set(SHOP, srv("x.example", shop.port), srv("y.example", shop.port))
    names.set("x.example", a(shop.host))
    names.set("y.example", a("10.0.0.7"))
    asker = make_asker("grpc://shop.example", name_servers=names.address)
    asker.expected = "event=address_refused"
    assert len(decided(ask_all(asker, [str(number) for number in range(30)]))) == 30


# --- lists of addresses ------------------------------------------------------------------------

def test_a_list_of_addresses_needs_no_dns(start, make_asker):
    shops = [start("127.0.0.2"), start("127.0.0.3")]
    asker = make_asker(f"grpc://{shops[0].address}, {shops[1].address}", breaker_failures=3)
    asker.expected = "event=service_address_fails"
    assert len(decided(ask_all(asker, [str(number) for number in range(60)]))) == 60
    assert all(len(shop.answered()) > 10 for shop in shops)
    shops[1].kill()
    answers = ask_all(asker, [str(number) for number in range(100, 160)])
    assert len(decided(answers)) == 60, answers


def test_with_all_addresses_away_nothing_is_decided(make_asker):
    asker = make_asker(f"grpc://127.0.0.2:{free_port()},127.0.0.3:{free_port()}", breaker_failures=2)
    asker.expected = ["event=service_address_fails"] * 2
    for answer in ask_all(asker, [str(number) for number in range(10)]).values():
        assert_unsent(answer, "connect", "127.0.0.")


@pytest.mark.parametrize("settings,error", [
    ({"url": "grpc://"}, "[check \"shop\"] url: it names no host; write grpc://NAME"),
    ({"url": "grpc://shop:0"}, "a port from 1 to 65535"),
    ({"url": "grpc://shop:99999"}, "a port from 1 to 65535"),
    ({"url": "grpc://sh op"}, "the only entry"),
    ({"url": "grpc://10.0.0.1"}, "the address 10.0.0.1 has no port; write for example 10.0.0.1:50051"),
    ({"url": "grpc://[::1"}, "a port from 1 to 65535"),
    ({"url": "grpc://10.0.0.1:1,shop:2"}, "\"shop\" is a name, which must be the only entry"),
    ({"url": "grpc://shop,10.0.0.1:1"}, "\"shop\" is a name, which must be the only entry"),
    ({"url": "grpc://user@shop"}, "credentials"),
    ({"url": "grpc://shop?a=b"}, "no query"),
    ({"url": "grpc://shop/../x"}, "\"..\""),
    ({"url": "grpc://010.0.0.1:1"}, "host"),
    ({"url": "grpc://shop", "name_servers": "x"}, "name_servers: \"x\" is not a list of addresses"),
    ({"url": "http://shop", "name_servers": "10.0.0.2"}, "name_servers: only url = grpc://NAME asks name servers"),
    ({"url": "grpc://10.0.0.1:1", "name_servers": "10.0.0.2"}, "name_servers: only url = grpc://NAME asks name servers"),
    ({"url": "", "allow": "https://a.example/", "name_servers": "10.0.0.2"}, "name_servers: "),
    ({"url": "grpc://shop", "transport": "sql", "dsn": "host=/x"}, "url: transport = sql")])
def test_settings_that_cannot_work_are_refused(make_asker, settings, error):
    asker = make_asker(**settings)
    assert error in asker.close()["config"]


def test_messages_may_not_bring_a_service(start, make_asker):
    """check_url keeps its strict form: only http and https, and only listed destinations."""
    shop = start("127.0.0.2")
    asker = make_asker(f"grpc://{shop.address}", allow="https://a.example/")
    answer = asker.ask("order", "2", url=f"grpc://{shop.address}")
    assert answer.get("words", ["unknown"]) == ["unknown"] and not shop.answered()


# --- TLS ---------------------------------------------------------------------------------------

def test_certificates_are_checked_against_the_name(names, make_asker, start, tmp_path):
    authority = Authority(tmp_path)
    good = start("127.0.0.2", certificate=authority.issue("good", "DNS:shop.example"))
    other = start("127.0.0.3", certificate=authority.issue("other", "DNS:other.example,IP:127.0.0.3"))
    publish(names, good)
    asker = make_asker("grpcs://shop.example", name_servers=names.address, tls_ca=authority.certificate)
    assert len(decided(ask_all(asker, [str(number) for number in range(20)]))) == 20
    publish(names, other)
    wait_for(lambda: asker.ask("order", "2")["failure"] == "tls", timeout=20)
    assert not other.answered()
    # A list has no name: the certificate needs the address.
    listed = make_asker(f"grpcs://{other.address}", tls_ca=authority.certificate)
    assert listed.ask("order", "2")["words"] == ["commit"]


# --- before the start, and in the relay --------------------------------------------------------

def test_check_config_and_doctor_look_at_each_address(database, kafka, names, start, tmp_path):
    def run(command, url, **settings):
        path = tmp_path / "relay.ini"
        lines = "".join(f"{key} = {value}\n" for key, value in settings.items())
        path.write_text(f"[kafka]\nbootstrap.servers = {kafka.bootstrap}\n[postgres]\ndsn = {database.dsn}\n"
                        "[publisher \"main\"]\n[lookback \"shop\"]\ncheck = shop\n"
                        f"[check \"shop\"]\nurl = {url}\n{lines}")
        status, output, error = run_command([command, "--config", path], {})
        return status, output + error

    shop = start("127.0.0.2")
    status, output = run("check-config", "grpc://10.0.0.1:1,127.0.0.2:2", networks="10.0.0.0/8")
    assert status and "its address 127.0.0.2 is refused" in output
    assert "add to the section: networks = 10.0.0.0/8, 127.0.0.2" in output
    status, output = run("check-config", "grpc://10.0.0.1:1,127.0.0.2:2")
    assert status and "networks = 10.0.0.1, 127.0.0.2" in output
    assert run("check-config", "grpc://shop.example", name_servers=names.address)[0] == 0
    assert names.asked == []

    settings = {"name_servers": names.address, "networks": "127.0.0.0/8"}
    _, output = run("doctor", "grpc://shop.example", **settings)
    assert "url: DNS has no SRV record of _grpc._tcp.shop.example\n" in output
    assert "cure: create the record, or write the port: grpc://NAME:PORT" in output
    publish(names, shop)
    _, output = run("doctor", "grpc://shop.example", **settings)
    assert "url: " not in output
    names.set(SHOP, srv("127-0-0-2.shop.example", shop.port), srv("x.example", shop.port), srv("y.example", 1))
    names.set("x.example", a("10.0.0.7"))
    names.set("y.example", a("127.0.0.2"))
    _, output = run("doctor", "grpc://shop.example", **settings)
    assert "its address 10.0.0.7 is refused" in output and "networks = 127.0.0.0/8, 10.0.0.7\n" in output
    assert "its address 127.0.0.2 cannot be reached: Connection refused" in output


def test_a_relay_loses_no_id_while_addresses_die_and_come(database, kafka, make_relay, names, start):
    shops = [start("127.0.0.2"), start("127.0.0.3")]
    publish(names, *shops)
    case = Case(database, kafka, make_relay, f"names{free_port()}", check_after="10ms")
    case.check = {"url": "grpc://shop.example", "name_servers": names.address, "networks": "127.0.0.0/8",
                  "timeout": "1s", "retry_first": "100ms", "retry_max": "1s", "breaker_failures": 3,
                  "breaker_pause": "500ms"}
    relay = case.relay().wait_ready()
    ids = [str(number) for number in range(120)]
    case.application.prepare(*ids[:40])
    wait_for(lambda: len(case.decided()) == 40, 60, "the first decisions")
    shops[0].kill()
    case.application.prepare(*ids[40:80])
    wait_for(lambda: len(case.decided()) == 80, 60, "decisions of the other address")
    shops[1].pause()
    case.application.prepare(*ids[80:])
    third = start("127.0.0.4")
    publish(names, third)
    wait_for(lambda: len(case.decided()) == 120, 60, "decisions of the third address")
    assert case.decided() == {biz_id: truth(biz_id) for biz_id in ids}
    assert third.answered() and case.overdue() == []
    # The killed address left DNS, and so did the stopped one.
    relay.wait_for(lambda: [relay.metric("relay_lookback_addresses", state=state, service="shop")
                            for state in ("working", "failing", "refused")] == [1, 0, 0])
    assert relay.events("service_address_fails")
