"""Businesses behind TLS, passwords and tokens, as gateways have them: own authority, client certificates, headers of the
operator, OAuth 2 client credentials of a real token server. A mistake gives one line that names the cure, and
certificates, passwords and tokens change under load without a restart of the relay."""
import json
import ssl
import threading
from collections import Counter

import pytest

from support.application import Application
from support.auditor import read_topics
from support.check_asker import Asker
from support.files import replace
from support.grpc_service import GrpcService, messages as grpc_messages
from support.http_service import Service, say_of_each
from support.inbox import produce
from support.oidc import TokenServer
from support.process import wait_for
from support.relay import run_command

LOAD = 20000  # messages with --full; a tenth by default
LOCAL = "127.0.0.0/8"
COMMIT = 2  # as the .proto numbers it


@pytest.fixture(scope="module")
def tokens(authority, tmp_path_factory):
    """Its tokens live for two seconds, so that they change under load."""
    with TokenServer(authority, tmp_path_factory.mktemp("tokens"), {"relay": "first"}, life_s=2) as server:
        yield server


def context_of(pair, clients=None):
    """Of a server with this certificate; clients: files of the authorities that its clients need."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*pair)
    for file in clients or ():
        context.load_verify_locations(file)
    if clients:
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def messages(numbers):
    return [(f"id-{number}", f"k{number % 20}", json.dumps({"seq": number})) for number in numbers]


def assert_handled_once(kafka, topic, accepted, count):
    assert Counter(Counter(accepted).values()) == {1: count}
    last = {}
    for id in accepted:
        number = int(id[3:])
        assert last.get(number % 20, -1) < number
        last[number % 20] = number
    assert not list(read_topics(kafka.bootstrap, [f"{topic}.dead"]))


# --- mistakes -------------------------------------------------------------------------------------


MISTAKES = {
    "wrong authority": ("set tls_ca to its certificate authority", {"ca": "stranger"}),
    "system's authorities": ("set tls_ca to its certificate authority", {"ca": None}),
    "wrong name": ("write the URL with a name that its certificate has", {"hosts": "DNS:shop.example"}),
    "expired certificate": ("give the peer a valid certificate, or correct a wrong clock", {"days": -1}),
    "no client certificate": ("if the peer wants a client certificate, correct tls_certificate and tls_key", {"client": None}),
    "wrong client certificate": ("if the peer wants a client certificate, correct tls_certificate and tls_key", {"client": "stranger"}),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_wrong_certificate_is_one_line_with_the_cure(
        make_sidecar, kafka, topic, authority, stranger, tmp_path, mistake):
    cure, changed = MISTAKES[mistake]
    others = {"authority": authority, "stranger": stranger}
    setting = {"hosts": "IP:127.0.0.1", "days": 1, "ca": "authority", "client": "authority", **changed}
    pair = authority.issue("shop", setting["hosts"], days=setting["days"])
    keys = {"tls_ca": others[setting["ca"]].certificate} if setting["ca"] else {}
    if setting["client"]:
        keys["tls_certificate"], keys["tls_key"] = others[setting["client"]].issue("relay")
    produce(kafka.bootstrap, topic, messages(range(1)))
    with Application(context=context_of(pair, [authority.certificate])) as application:
        relay = make_sidecar(application, breaker_failures=1, breaker_pause="100ms", **keys)
        error = relay.wait_event("deliver_breaker_opened")[0]["error"]
        assert f"https://127.0.0.1:{application.server_port}: " in error and error.endswith(cure), error
        assert cure in relay.get("/readyz?verbose")[1]
        assert len(relay.events("deliver_breaker_opened")) == 1
        assert not application.ids


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
def test_an_old_version_of_tls_is_refused(make_sidecar, kafka, topic, authority):
    context = context_of(authority.issue("shop"))
    context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    produce(kafka.bootstrap, topic, messages(range(1)))
    with Application(context=context) as application:
        relay = make_sidecar(application, breaker_failures=1, breaker_pause="100ms", tls_ca=authority.certificate)
        error = relay.wait_event("deliver_breaker_opened")[0]["error"]
        assert error.startswith("tls: ") and "protocol" in error and "certificate" not in error, error
        assert not application.ids


# --- passwords in headers -------------------------------------------------------------------------


def test_headers_go_with_each_request(make_sidecar, kafka, topic, authority, tmp_path):
    certificate, key = authority.issue("relay")
    file = tmp_path / "headers"
    replace(file, "# of the gateway\nAuthorization: Bearer 1|abc\nX-Tenant: shop 7\n")
    produce(kafka.bootstrap, topic, messages(range(10)))
    context = context_of(authority.issue("shop"), [authority.certificate])
    with Application(context=context) as application:
        make_sidecar(application, headers_file=file, tls_ca=authority.certificate, tls_certificate=certificate,
                     tls_key=key)
        application.wait_ids(f"id-{number}" for number in range(10))
        for delivery in application.deliveries:
            assert delivery.headers["Authorization"] == "Bearer 1|abc"
            assert delivery.headers["X-Tenant"] == "shop 7"


def test_a_password_changes_under_load(make_sidecar, kafka, topic, scale, tmp_path):
    count, passwords = scale(LOAD), ["first", "second", "third", "fourth"]
    file = tmp_path / "headers"
    replace(file, "Authorization: Bearer first")
    now, accepted, lock = ["first"], [], threading.Lock()

    def answer(delivery):
        with lock:
            if delivery.headers.get("Authorization") != f"Bearer {now[0]}":
                return 401, b"wrong password"
            accepted.extend(delivery.ids)
            return 200

    with Application(answer) as application:
        relay = make_sidecar(application, headers_file=file, breaker_failures=100)
        for turn, password in enumerate(passwords):
            if turn:
                now[0] = password  # the application is the first to change
                produce(kafka.bootstrap, topic, messages(range(turn * count, turn * count + 1)))
                replace(file, f"Authorization: Bearer {password}")
            produce(kafka.bootstrap, topic, messages(range(turn * count + bool(turn), (turn + 1) * count)))
            wait_for(lambda: len(accepted) >= turn * count + count // 2, 120, "half of a turn")
        wait_for(lambda: len(accepted) >= len(passwords) * count, 120, "all messages")
        assert_handled_once(kafka, topic, accepted, len(passwords) * count)
        assert "first" not in relay.output()


# --- tokens ---------------------------------------------------------------------------------------


def token_keys(tokens, authority, secret):
    return {"token_url": tokens.token_url, "client_id": "relay", "client_secret_file": secret,
            "token_ca": authority.certificate}


@pytest.fixture
def secret(tmp_path):
    path = tmp_path / "secret"
    replace(path, "first\n")
    return path


def test_tokens_and_their_password_change_under_load(
        make_sidecar, kafka, topic, authority, tokens, secret, scale):
    """The token server judges each new token that the application sees."""
    count = scale(LOAD)
    accepted, seen, lock = [], {}, threading.Lock()

    def answer(delivery):
        token = delivery.headers.get("Authorization", "").removeprefix("Bearer ")
        with lock:
            if token not in seen:
                seen[token] = tokens.is_valid(token)
            if not seen[token]:
                return 401, b"wrong token"
            accepted.extend(delivery.ids)
            return 200

    with Application(answer) as application:
        relay = make_sidecar(application, **token_keys(tokens, authority, secret))
        produced = 0
        while len(seen) < 3 or produced < count:
            produce(kafka.bootstrap, topic, messages(range(produced, produced + count // 10)))
            produced += count // 10
            wait_for(lambda: len(accepted) >= produced - count // 20, 60, "the application")
        tokens.set_clients({"relay": "second"})
        replace(secret, "second\n")
        before = len(seen)
        while len(seen) < before + 2:
            produce(kafka.bootstrap, topic, messages(range(produced, produced + 100)))
            produced += 100
            wait_for(lambda: len(accepted) >= produced, 60, "the application")
        assert_handled_once(kafka, topic, accepted, produced)
        assert all(seen.values())
        said = relay.output()
        assert not any(token in said for token in seen) and "second" not in said
    tokens.set_clients({"relay": "first"})


def test_without_a_token_messages_wait_and_cost_no_attempt(
        make_sidecar, kafka, topic, authority, tmp_path, secret):
    server = TokenServer(authority, tmp_path, {"relay": "other"}, life_s=60)
    produce(kafka.bootstrap, topic, messages(range(20)))
    with Application() as application:
        relay = make_sidecar(application, attempts=1, breaker_failures=1, breaker_pause="200ms",
                             **token_keys(server, authority, secret))
        away = relay.wait_event("token_refused")[0]
        assert away["section"] == "deliver billing" and "connect: " in away["error"]
        with server:
            wrong = relay.wait_event("token_refused", count=2)[1]
            assert wrong["error"] == "status 401 invalid_client; correct client_id or client_secret"
            assert "token: status 401 invalid_client" in relay.get("/readyz?verbose")[1]
            assert not application.ids
            replace(secret, "other")
            application.wait_ids(f"id-{number}" for number in range(20))
            relay.wait_event("token_received")
        assert len(application.ids) == 20


def test_a_token_that_the_business_refuses_is_exchanged(make_sidecar, kafka, topic, authority, tmp_path, secret):
    refused = set()
    with TokenServer(authority, tmp_path, {"relay": "first"}, life_s=3600) as server:
        def answer(delivery):
            return 401 if delivery.headers["Authorization"] in refused else 200

        with Application(answer) as application:
            relay = make_sidecar(application, breaker_pause="200ms", **token_keys(server, authority, secret))
            produce(kafka.bootstrap, topic, messages(range(1)))
            application.wait_ids(["id-0"])
            first = application.deliveries[0].headers["Authorization"]
            refused.add(first)
            produce(kafka.bootstrap, topic, messages(range(1, 20)))
            wait_for(lambda: sum(delivery.headers["Authorization"] != first for delivery in
                                 application.deliveries) >= 19, 60, "a token that is let in")
            assert relay.running


# --- the look-back --------------------------------------------------------------------------------


def test_the_lookback_sends_headers_and_tokens(authority, tokens, secret, tmp_path):
    certificate, key = authority.issue("relay")
    context = context_of(authority.issue("shop"), [authority.certificate])
    keys = {"networks": LOCAL, "tls_ca": authority.certificate, "tls_certificate": certificate, "tls_key": key,
            "headers": "X-Tenant: shop 7 | X-Zone: eu"}
    with Service(say_of_each("commit"), context=context) as service, Asker(
            tmp_path, url=service.url, **keys, **token_keys(tokens, authority, secret)) as asker:
        numbers = [asker.send("order", str(number)) for number in range(8)]
        assert [asker.answer(number)["words"] for number in numbers] == [["commit"]] * 8
        for request in service.requests:
            assert request.headers["X-Tenant"] == "shop 7" and request.headers["X-Zone"] == "eu"
            assert tokens.is_valid(request.headers["Authorization"].removeprefix("Bearer "))


def test_a_grpc_service_gets_them_as_metadata(authority, tokens, secret, tmp_path):
    pb = grpc_messages(tmp_path)
    seen = []

    def answer(request, context):
        seen.append(dict(context.invocation_metadata()))
        return pb.CheckResponse(answers=[pb.CheckAnswer(biz_id=one.biz_id, decision=COMMIT) for one in request.ids])

    with GrpcService(answer, pb.CheckRequest.FromString) as service, Asker(
            tmp_path, transport="grpc", url=service.url, networks=LOCAL, headers="X-Tenant: shop 7",
            **token_keys(tokens, authority, secret)) as asker:
        assert asker.ask("order", "7")["words"] == ["commit"]
        assert seen[0]["x-tenant"] == "shop 7"
        assert tokens.is_valid(seen[0]["authorization"].removeprefix("Bearer "))


def test_an_id_is_unknown_while_there_is_no_token(authority, tmp_path, secret):
    server = TokenServer(authority, tmp_path, {"relay": "other"}, life_s=60)
    with server, Service(say_of_each("commit")) as service, Asker(
            tmp_path, url=service.url, networks=LOCAL, **token_keys(server, authority, secret)) as asker:
        asker.expected = ["token_refused", "token_received"]
        answer = asker.ask("order", "7")
        assert answer["words"] == ["unknown"] and answer["failure"] == "token" and not answer["sent"]
        assert answer["error"] == "status 401 invalid_client; correct client_id or client_secret"
        replace(secret, "other")
        wait_for(lambda: asker.ask("order", "7")["words"] == ["commit"], 30, "a token", interval=0.2)


# --- certificates under load ----------------------------------------------------------------------


def test_certificates_of_both_sides_change_under_load(
        make_sidecar, kafka, topic, authority, stranger, scale, tmp_path):
    """A new authority comes in the usual steps: trusted by both, used by both, and the old one is gone."""
    count = scale(LOAD)
    files = {name: tmp_path / name for name in ("ca.pem", "relay.pem", "relay.key")}

    def present(authorities, pair):
        replace(files["ca.pem"], *(each.read("certificate") for each in authorities))
        for name, path in zip(("relay.key", "relay.pem"), reversed(pair)):
            with open(path, "rb") as file:
                replace(files[name], file.read())

    accepted, lock = [], threading.Lock()

    def answer(delivery):
        with lock:
            accepted.extend(delivery.ids)
        return lambda handler: (handler.say(200), close(handler))

    def close(handler):
        handler.close_connection = True  # so that each request has a handshake

    present([authority], authority.issue("relay"))
    context = context_of(authority.issue("shop"), [authority.certificate, stranger.certificate])
    with Application(answer, context=context) as application:
        relay = make_sidecar(application, tls_ca=files["ca.pem"], tls_certificate=files["relay.pem"],
                             tls_key=files["relay.key"])
        steps = [lambda: None,
                 lambda: present([authority, stranger], authority.issue("relay")),
                 lambda: context.load_cert_chain(*stranger.issue("shop")),
                 lambda: present([stranger], stranger.issue("relay"))]
        part = count // len(steps)
        for turn, step in enumerate(steps):
            produce(kafka.bootstrap, topic, messages(range(turn * part, turn * part + part // 2)))
            step()
            produce(kafka.bootstrap, topic, messages(range(turn * part + part // 2, (turn + 1) * part)))
            wait_for(lambda: len(accepted) >= (turn + 1) * part - part // 4, 120, "most of a turn")
        wait_for(lambda: len(accepted) >= part * len(steps), 120, "all messages")
        assert_handled_once(kafka, topic, accepted, part * len(steps))
        assert relay.running


# --- settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize("section", ["deliver", "check"])
@pytest.mark.parametrize("key,lines", [
    ("headers", ["headers = geheim"]),
    ("headers", ["headers = X-A: 1 | Host: geheim"]),
    ("headers", ["headers = Authorization: Bearer geheim", "token_url = https://id.example/", "client_id = relay",
                 "client_secret = geheim"]),
    ("client_id", ["token_url = https://id.example/", "client_secret = geheim"]),
    ("client_secret", ["token_url = https://id.example/", "client_id = relay"]),
    ("scope", ["scope = orders"]),
    ("token_url", ["token_url = id.example", "client_id = relay", "client_secret = geheim"]),
    ("token_url", ["token_url = http://127.0.0.2/token", "client_id = relay", "client_secret = geheim"]),
    ("token_ca", ["token_url = https://id.example/", "client_id = relay", "client_secret = geheim",
                  "token_ca = /nowhere/ca.pem"]),
])
def test_wrong_keys_are_refused_by_name(tmp_path, section, key, lines):
    place = {"deliver": 'deliver "billing"', "check": 'check "shop"'}[section]
    path = tmp_path / "relay.ini"
    path.write_text(f"[kafka]\nbootstrap.servers = 127.0.0.1:1\n[{place}]\nurl = https://shop.example/\n"
                    + "".join(f"{line}\n" for line in lines))
    path.chmod(0o600)
    status, output, error = run_command(["check-config", "--config", path])
    assert status == 78 and f"[{place}] {key}: " in error, output + error
    assert "geheim" not in output + error and len(error.splitlines()) == 1


def test_doctor_requests_a_token(database, kafka, topic, authority, tokens, secret, tmp_path):
    with Application() as application:
        def findings(**changed):
            keys = {**token_keys(tokens, authority, secret), **changed}
            path = tmp_path / "relay.ini"
            path.write_text(f'[postgres]\ndsn = {database.dsn}\n[kafka]\nbootstrap.servers = {kafka.bootstrap}\n'
                            f'[deliver "billing"]\ntopics = {topic}\nurl = {application.url}\nnetworks = {LOCAL}\n'
                            f"path = {tmp_path / 'state'}\n" + "".join(f"{a} = {b}\n" for a, b in keys.items()))
            path.chmod(0o600)
            return run_command(["doctor", "--config", path])[1]

        assert "no token" not in findings()
        wrong = tmp_path / "wrong"
        replace(wrong, "guess")
        assert "status 401 invalid_client; correct client_id or client_secret" in findings(client_secret_file=wrong)
        assert "set token_ca to its certificate authority" in findings(token_ca="/etc/ssl/certs/ca-certificates.crt")
        assert "guess" not in findings(client_secret_file=wrong)


