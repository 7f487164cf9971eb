"""The look-back's checker over HTTP (relay/lookback/transport_http.c): what it asks, and that nothing
but the one right answer decides anything."""

import base64
import contextlib
import datetime
import email.utils
import gzip
import hashlib
import hmac
import json
import ssl
import threading
import time

import pytest

from support.certificates import Identity
from support.check_asker import PREPARED_AT, Asker
from support.http_service import Service, drip, endless, pair, say_of_each, silence
from support.process import free_port

LOCAL = "127.0.0.0/8"
RETRY, REJECT, CONFIG = 0, 1, 2  # enum err_kind
NEW_KEY, OLD_KEY = b"n" * 24, b"o" * 32
SECRETS = {"secret": "whsec_" + base64.b64encode(NEW_KEY).decode(),
           "old_secret": "whsec_" + base64.b64encode(OLD_KEY).decode()}


@pytest.fixture
def serve():
    """serve(answer) starts a service; answer(request) is called for each POST."""
    with contextlib.ExitStack() as services:
        yield lambda answer, **options: services.enter_context(Service(answer, **options))


@pytest.fixture
def make_asker(tmp_path):
    with contextlib.ExitStack() as askers:
        def make(url=None, **settings):
            return askers.enter_context(Asker(tmp_path, **{
                "networks": LOCAL, **({"url": url} if url else {}), **settings}))
        yield make


def assert_undecided(answer, failure, sent=True, reached=None):
    assert set(answer["words"]) == {"unknown"}, answer
    assert answer["failure"] == failure, answer
    assert answer["sent"] == sent and len(answer["error"]) > 10, answer
    assert reached is None or answer["reached"] == reached, answer


# --- what is asked, and the right answer -----------------------------------------------------

def test_one_id_is_asked_and_answered(serve, make_asker):
    service = serve(say_of_each("commit"))
    answer = make_asker(service.url).ask("order", 'ä"7', attempt=3)
    assert answer["words"] == ["commit"] and answer["failure"] is None
    assert (answer["sent"], answer["reached"], answer["status"]) == (True, True, 200)
    assert answer["error"] == "" and answer["retry_after_ms"] == -1 and answer["total_us"] > 0
    request, = service.requests
    assert request.path == "/lookback"
    assert json.loads(request.body) == {"biz_type": "order", "biz_id": 'ä"7', "attempt": 3,
                                        "prepared_at": PREPARED_AT}
    assert request.headers["Content-Type"] == request.headers["Accept"] == "application/json"
    assert request.headers["User-Agent"].startswith("outbox-relay/")
    assert request.headers["webhook-id"] is None


@pytest.mark.parametrize("word", ["commit", "rollback", "unknown", "pending"])
def test_each_word_is_understood(serve, make_asker, word):
    service = serve(say_of_each(word))
    answer = make_asker(service.url).ask("order", "7")
    assert answer["words"] == [word] and answer["failure"] is None


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "Application/JSON"])
def test_the_type_of_an_answer_may_be_written_otherwise(serve, make_asker, kind):
    service = serve(lambda request: request.say(
        ' \n{"decision":"rollback" , "biz_id" : "\\u0037"}\n', kind=kind))
    assert make_asker(service.url).ask("order", "7")["words"] == ["rollback"]


def test_several_ids_are_asked_in_one_request(serve, make_asker):
    words = ["commit", "rollback", "pending", "unknown"]
    def answer(request):
        ids = json.loads(request.body)["ids"]
        answers = [pair(one["biz_id"], words[int(one["biz_id"]) % 4]) for one in ids]
        request.say(json.dumps({"answers": answers[::-1] + answers[:3]}))
    service = serve(answer)
    asked = [str(number) for number in range(1000)]
    answer = make_asker(service.url, max_answer="1MiB").ask("order", *asked)
    assert answer["words"] == words * 250 and answer["failure"] is None
    question = json.loads(service.requests[0].body)
    assert question["biz_type"] == "order" and len(service.requests) == 1
    assert question["ids"][7] == {"biz_id": "7", "attempt": 1, "prepared_at": PREPARED_AT}


def test_ids_that_are_left_out_are_unknown_and_the_others_are_not(serve, make_asker):
    service = serve(lambda request: request.say(json.dumps(
        {"answers": [pair("2", "commit"), pair("3", "COMMIT")]})))
    answer = make_asker(service.url).ask("order", "1", "2", "3")
    assert answer["words"] == ["unknown", "commit", "unknown"]
    assert answer["failure"] is None and "of 1 " in answer["error"]


def test_a_message_may_bring_its_own_url(serve, make_asker):
    service = serve(say_of_each("commit"))
    with_none = make_asker(allow=f"http://127.0.0.1:{service.server_port}/")
    assert with_none.ask("order", "7", url=service.url + "/own?a=b")["words"] == ["commit"]
    assert service.requests[0].path == "/lookback/own?a=b"
    refused = with_none.ask("order", "7")
    assert refused["refused"] == REJECT and '[check "shop"] has no url' in refused["error"]


# --- signatures ------------------------------------------------------------------------------

def signature_of(request, key):
    signed = f"{request.headers['webhook-id']}.{request.headers['webhook-timestamp']}.".encode()
    made = hmac.new(key, signed + request.body, hashlib.sha256).digest()
    return "v1," + base64.b64encode(made).decode()


def test_requests_are_signed_with_both_keys_while_they_change(serve, make_asker):
    service = serve(say_of_each("commit"))
    asker = make_asker(service.url, **SECRETS)
    for attempt in (1, 2):
        asker.ask("order", "7", attempt=attempt)
    asker.ask("order", "7", "8")
    asker.ask("order", "8")
    for request in service.requests:
        assert request.headers["webhook-signature"].split() == [
            signature_of(request, NEW_KEY), signature_of(request, OLD_KEY)]
        assert abs(int(request.headers["webhook-timestamp"]) - time.time()) < 60
    first, again, both, other = (request.headers["webhook-id"] for request in service.requests)
    assert first == again and len({first, both, other}) == 3


# --- wrong answers ---------------------------------------------------------------------------

RIGHT = '{"biz_id": "7", "decision": "commit"}'
NESTED = "[" * 100_000 + "]" * 100_000
WRONG = {
    "another status of success": (RIGHT, 202),
    "created": (RIGHT, 201),
    "part of it": (RIGHT, 206),
    "a redirect": (RIGHT, 302),
    "a permanent redirect": (RIGHT, 308),
    "bad request": (RIGHT, 400),
    "not found": (RIGHT, 404),
    "gone": (RIGHT, 410),
    "an error of the server": (RIGHT, 500),
    "not there": (RIGHT, 503),
    "text": (RIGHT, 200, "text/plain"),
    "no type": (RIGHT, 200, None),
    "a type that begins alike": (RIGHT, 200, "application/jsonp"),
    "html": ("<html>Object reference not set to an instance of an object</html>",),
    "html by its type": ("<html>commit</html>", 200, "text/html"),
    "nothing": ("",),
    "a word": ("commit",),
    "a string": ('"commit"',),
    "null": ("null",),
    "true": ("true",),
    "a list": ("[" + RIGHT + "]",),
    "an empty object": ("{}",),
    "another id": ('{"biz_id": "8", "decision": "commit"}',),
    "an id with a blank": ('{"biz_id": "7 ", "decision": "commit"}',),
    "an id with a NUL": ('{"biz_id": "7\\u0000", "decision": "commit"}',),
    "no id": ('{"decision": "commit"}',),
    "a number for an id": ('{"biz_id": 7, "decision": "commit"}',),
    "no decision": ('{"biz_id": "7"}',),
    "null for a decision": ('{"biz_id": "7", "decision": null}',),
    "a number for a decision": ('{"biz_id": "7", "decision": 2}',),
    "true for a decision": ('{"biz_id": "7", "decision": true}',),
    "a list for a decision": ('{"biz_id": "7", "decision": ["commit"]}',),
    "another case": ('{"biz_id": "7", "decision": "COMMIT"}',),
    "another word": ('{"biz_id": "7", "decision": "committed"}',),
    "a word with a blank": ('{"biz_id": "7", "decision": "commit "}',),
    "a word with a NUL": ('{"biz_id": "7", "decision": "commit\\u0000"}',),
    "names in another case": ('{"BIZ_ID": "7", "Decision": "commit"}',),
    "a key twice": ('{"biz_id": "7", "decision": "commit", "decision": "commit"}',),
    "a key twice, written otherwise":
        ('{"biz_id": "7", "decision": "commit", "d\\u0065cision": "rollback"}',),
    "more than was asked for": ('{"biz_id": "7", "decision": "commit", "error": "no"}',),
    "something behind it": (RIGHT + "x",),
    "another object behind it": (RIGHT + RIGHT,),
    "a NUL behind it": (RIGHT.encode() + b"\0",),
    "something before it": ("\ufeff" + RIGHT,),
    "half of it": (RIGHT[:-1],),
    "not UTF-8": (b'{"biz_id": "7", "decision": "commit", "x": "\xff"}',),
    "another encoding": (RIGHT.encode("utf-16"),),
    "single quotes": (RIGHT.replace('"', "'"),),
    "deep nesting": (NESTED,),
    "deep nesting within": ('{"biz_id": "7", "decision": "commit", "x": ' + NESTED + "}",),
    "the form of several": ('{"answers": [' + RIGHT + "]}",),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_nothing_is_decided_by(serve, make_asker, wrong):
    body, status, kind = (*WRONG[wrong], *(200, "application/json")[len(WRONG[wrong]) - 1:])
    service = serve(lambda request: request.say(body, status, kind, Location=service.url))
    answer = make_asker(service.url, max_answer="1MiB").ask("order", "7")
    assert_undecided(answer, "answer" if status == 200 else "status", reached=status < 500)
    assert answer["status"] == status and len(service.requests) == 1


TWO = '{"biz_id": "1", "decision": "commit"}, {"biz_id": "2", "decision": "rollback"}'


@pytest.mark.parametrize("body", [
    '{"answers": [' + TWO + ', {"biz_id": "3", "decision": "commit"}]}',
    '{"answers": [' + TWO + ', {"biz_id": "1", "decision": "rollback"}]}',
    '{"answers": [' + TWO + ', {"biz_id": "1", "decision": "Commit"}]}',
    '{"answers": [' + TWO + ', {"biz_id": "1"}]}',
    '{"answers": [' + TWO + ', "1"]}',
    '{"answers": [' + TWO + ', null]}',
    '{"answers": [' + TWO + '], "next": 1}',
    '{"answers": {"1": "commit", "2": "rollback"}}',
    '{"answers": [{"biz_id": "1", "decision": "commit", "biz_id": "2"}]}',
    '{"answers": []}',
    '{"answers": null}',
    '{"biz_id": "1", "decision": "commit"}',
    '[' + TWO + ']',
])
def test_of_several_nothing_is_decided_by(serve, make_asker, body):
    service = serve(lambda request: request.say(body))
    assert_undecided(make_asker(service.url).ask("order", "1", "2"), "answer", reached=True)


def test_a_redirect_is_never_followed(serve, make_asker):
    other = serve(say_of_each("commit"))
    for status in (301, 302, 303, 307, 308):
        service = serve(lambda request: request.say("", status, Location=other.url))
        answer = make_asker(service.url).ask("order", "7")
        assert_undecided(answer, "status", reached=True)
        assert answer["status"] == status
    assert other.requests == []


@pytest.mark.parametrize("answer,failure,reached", [
    (silence, "timeout", False),
    (drip, "timeout", False),
    (endless, "too_large", True),
    (lambda request: request.say(" " * 70_000 + RIGHT), "too_large", True),
    (lambda request: request.say_raw("HTTP/1.1 200 OK\r\n" + "X: y\r\n" * 10_000),
     "headers_too_large", False),
    (lambda request: request.say_raw(""), "closed", False),
    (lambda request: request.say_raw("HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n" + RIGHT),
     "closed", False),
    (lambda request: request.say_raw("220 ready\r\n"), "garbled", False),
    (lambda request: request.say_raw(RIGHT), "garbled", False),
], ids=["silence", "drip", "endless", "large", "headers", "closed", "cut", "mail", "bare"])
def test_an_answer_that_is_none_decides_nothing(serve, make_asker, answer, failure, reached):
    service = serve(answer)
    asker = make_asker(service.url, timeout="700ms")
    assert_undecided(asker.ask("order", "7"), failure, reached=reached)


def test_an_encoded_answer_is_named_as_such(serve, make_asker):
    service = serve(lambda request: request.say(gzip.compress(RIGHT.encode()), Content_Encoding="gzip"))
    answer = make_asker(service.url).ask("order", "7")
    assert_undecided(answer, "answer", reached=True)
    assert "its answer is encoded (gzip)" in answer["error"]


def test_an_answer_encoded_as_identity_is_one(serve, make_asker):
    service = serve(lambda request: request.say(RIGHT, Content_Encoding="identity"))
    assert make_asker(service.url).ask("order", "7")["words"] == ["commit"]


# --- pauses ----------------------------------------------------------------------------------

def in_seconds(seconds):
    now = datetime.datetime.now(datetime.timezone.utc)
    return email.utils.format_datetime(now + datetime.timedelta(seconds=seconds), usegmt=True)


@pytest.mark.parametrize("status,value,low,high", [
    (429, "120", 120_000, 120_000), (503, "0", 0, 0), (200, "7", 7000, 7000),
    (503, 100, 60_000, 101_000), (503, -100, 0, 0),
    (503, "soon", -1, -1), (503, "-5", -1, -1), (503, "1.5", -1, -1), (503, "", -1, -1),
    (503, "99999999999999999999999", -1, -1), (503, "Wednesday", -1, -1)])
def test_a_service_says_when_to_come_again(serve, make_asker, status, value, low, high):
    text = value if isinstance(value, str) else in_seconds(value)
    service = serve(lambda request: request.say(RIGHT, status, Retry_After=text))
    answer = make_asker(service.url).ask("order", "7")
    assert low <= answer["retry_after_ms"] <= high
    assert answer["reached"] == (status == 200)


# --- not sent --------------------------------------------------------------------------------

def test_nobody_there_is_no_attempt(make_asker):
    asker = make_asker(f"http://127.0.0.1:{free_port()}/?token=geheim", **SECRETS)
    answer = asker.ask("order", "7")
    assert_undecided(answer, "connect", sent=False, reached=False)
    assert answer["status"] == -1
    assert not any(secret in line for line in asker.lines for secret in ("geheim", "whsec_"))


def test_an_address_that_is_not_allowed_is_not_connected_to(serve, make_asker):
    service = serve(say_of_each("commit"))
    asker = make_asker(service.url, networks="10.0.0.0/8")
    asker.expected = "event=address_refused"
    assert_undecided(asker.ask("order", "7"), "address_refused", sent=False, reached=False)
    for host in ("localhost", "2130706433", "[::ffff:127.0.0.1]", "0"):
        url = f"http://{host}:{service.server_port}/"
        asker = make_asker(service.url, networks="")
        asker.expected = "event=address_refused"
        assert_undecided(asker.ask("order", "7", url=url), "address_refused", sent=False)
    assert service.requests == []


def test_a_proxy_of_the_environment_is_not_taken(serve, tmp_path):
    service, proxy = serve(say_of_each("commit")), serve(say_of_each("rollback"))
    variables = {name: proxy.url for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy")}
    with Asker(tmp_path, variables, url=service.url, networks=LOCAL) as asker:
        assert asker.ask("order", "7")["words"] == ["commit"]
    assert proxy.requests == []


# --- many ------------------------------------------------------------------------------------

def test_hundreds_are_under_way_at_once_and_no_more_than_may_be(serve, make_asker):
    together = threading.Event()
    right = say_of_each("commit")
    def answer(request):
        if service.most_open >= 300:
            together.set()
        together.wait(30)
        right(request)
    service = serve(answer)
    asker = make_asker(service.url, host_in_flight=300, timeout="60s")
    numbers = [asker.send("order", str(number)) for number in range(320)]
    answers = [asker.answer(number) for number in numbers]
    taken = [answer for answer in answers if "words" in answer]
    assert len(taken) == 300 == service.most_open
    assert all(answer["words"] == ["commit"] for answer in taken)
    assert {answer["refused"] for answer in answers if "refused" in answer} == {RETRY}
    assert asker.ask("order", "again")["words"] == ["commit"]
    assert asker.close()["longest_us"] < 5_000_000


# --- TLS -------------------------------------------------------------------------------------

def context_of(identity, client=None):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.certificate, identity.key)
    if client:
        context.load_verify_locations(client.certificate)
        context.verify_mode = ssl.CERT_REQUIRED
        context.maximum_version = ssl.TLSVersion.TLSv1_2  # a refusal within the handshake
    return context


def test_certificates_convince_on_both_sides(serve, make_asker, tmp_path):
    own, client, other = (Identity(tmp_path, name) for name in ("own", "client", "other"))
    service = serve(say_of_each("commit"), context=context_of(own, client))
    shown = {"tls_certificate": client.certificate, "tls_key": client.key}
    wrong = {"tls_certificate": other.certificate, "tls_key": other.key}
    answer = make_asker(service.url, tls_ca=own.certificate, **shown).ask("order", "7")
    assert answer["words"] == ["commit"]
    for settings in (shown, {"tls_ca": other.certificate, **shown}, {"tls_ca": own.certificate},
                     {"tls_ca": own.certificate, **wrong}):
        assert_undecided(make_asker(service.url, **settings).ask("order", "7"), "tls", sent=False,
                         reached=False)
    assert len(service.requests) == 1


# --- settings --------------------------------------------------------------------------------

@pytest.mark.parametrize("key,settings", [
    ("url", {}),
    ("url", {"url": "shop.example.com"}),
    ("url", {"url": "ftp://shop.example.com/"}),
    ("url", {"url": "http://user:geheim@shop.example.com/"}),
    ("url", {"transport": "grpc"}),
    ("url", {"transport": "grpc", "url": "http://shop.example.com/?a=geheim"}),
    ("allow", {"allow": "shop.example.com"}),
    ("networks", {"networks": "10.0.0.0/64"}),
    ("dsn", {"dsn": "postgresql://a:geheim@b/c"}),
    ("secret", {"secret": "geheim"}),
    ("secret", {"secret": "whsec_Z2VoZWlt"}),
    ("old_secret", {"old_secret": SECRETS["secret"]}),
    ("old_secret", {**SECRETS, "old_secret": "whsec_geheim"}),
    ("tls_ca", {"tls_ca": "/nowhere/ca.pem"}),
    ("tls_ca", {"tls_ca": "/dev/null"}),
    ("tls_certificate", {"tls_certificate": "/nowhere/own.pem", "tls_key": "/nowhere/own.key"}),
    ("tls_certificate", {"tls_certificate": "/dev/null"}),
    ("tls_key", {"tls_key": "/dev/null"}),
    ("dsn", {"transport": "sql"}),
    ("dsn", {"transport": "sql", "dsn": "postgresql://a:geheim@b@c/d"}),
    ("function", {"transport": "sql", "dsn": "host=127.0.0.1", "function": "a.b.c"}),
    ("function", {"transport": "sql", "dsn": "host=127.0.0.1", "function": "a."}),
    ("url", {"transport": "sql", "dsn": "host=127.0.0.1", "url": "http://shop.example.com/"}),
    ("secret", {"transport": "sql", "dsn": "host=127.0.0.1", "secret": SECRETS["secret"]}),
])
def test_settings_that_cannot_be_are_refused_by_name(tmp_path, key, settings):
    complete = key == "url" or settings.get("transport") == "sql"
    url = {} if complete else {"url": "http://shop.example.com/"}
    with Asker(tmp_path, **url, **settings) as asker:
        last = asker.close()
    assert last["kind"] == CONFIG
    assert f':1: [check "shop"] {key}: ' in last["config"]
    assert "geheim" not in last["config"] and "whsec_Z2" not in last["config"]
