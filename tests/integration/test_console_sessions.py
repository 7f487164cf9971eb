"""Sessions of the console: who gets one, who accepts it, and when it ends."""

import concurrent.futures
import contextlib
import hashlib
import hmac
import http.client
import json
import os
import pathlib
import re
import signal
import ssl
import time

import pytest

from support.api import OPERATE, READ, Api, caller, start_api
from support.certificates import Authority
from support.files import replace
from support.process import wait_for
from support.relay import run_command

OTHER = "token-of-another-operator"
KEY = "a-key-of-sessions-that-nobody-will-guess"
ALICE = caller("alice", OPERATE, "read, operate, decide")
BOB = caller("bob", OTHER, "read, operate", publishers="main")
ORDER = {"verb": "retry", "ids": [["orders", "1"]], "reason": "x"}
ELSEWHERE = {"DATABASE_URL": "postgresql://127.0.0.1/x", "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:9"}
LOOKBACK = """\
[lookback "orders"]
types = orders
topic = {topic}
check = shop
[check "shop"]
url = http://127.0.0.1:9/lookback
"""


class Browser:
    """A cookie jar in front of an Api: it sends what it was given, and the CSRF token once it knows it."""

    def __init__(self, api, host=None):
        self.api, self.cookie, self.csrf = api.as_(None), None, None
        self.host = host

    def request(self, method, path, body=None, **headers):
        fields = {name.replace("_", "-"): value for name, value in headers.items() if value is not None}
        if self.cookie:
            fields.setdefault("Cookie", self.cookie)
        if self.host:
            fields.setdefault("Host", self.host)
        answer = self.api.request(method, path, body, headers=fields)
        if "Set-Cookie" in answer.headers:
            self.set_cookie = answer.headers["Set-Cookie"]
            self.cookie = self.set_cookie.partition(";")[0]
        return answer

    def login(self, token, **headers):
        answer = self.request("POST", "/console/login", {"token": token}, **headers)
        if answer.status == 200:
            self.csrf = answer.json["csrf_token"]
        return answer

    def at(self, api):
        """The same browser, sent to another process by a load balancer."""
        other = Browser(api, self.host)
        other.cookie, other.csrf = self.cookie, self.csrf
        return other


def own(api):
    return f"http://127.0.0.1:{api.port}"


@pytest.fixture
def make_api(make_relay, topic, tmp_path):
    def make(callers=ALICE + BOB, folder="one", **settings):
        (tmp_path / folder).mkdir()
        return start_api(make_relay, tmp_path / folder, None, LOOKBACK.format(topic=topic) + callers, **settings)[1]

    return make


@pytest.fixture
def api(make_api):
    return make_api()


def test_a_login_gives_a_session_that_says_who_calls(api):
    browser = Browser(api)
    assert browser.request("GET", "/console/session").status == 401
    answer = browser.login(OTHER)
    assert answer.status == 200, answer.text
    assert (answer.json["name"], answer.json["roles"], answer.json["publishers"]) == ("bob", ["read", "operate"], ["main"])
    assert re.fullmatch(r"outbox-relay=[0-9a-f.]+; Path=/; Max-Age=43200; HttpOnly; SameSite=Strict", browser.set_cookie)
    assert OTHER not in browser.set_cookie and OTHER.encode().hex() not in browser.set_cookie
    again = browser.request("GET", "/console/session")
    assert (again.status, again.json) == (200, answer.json)
    assert browser.request("GET", "/v1/publishers").status == 200
    assert OTHER not in api.relay.output()


def test_roles_and_limits_are_those_of_the_token(api):
    browser = Browser(api)
    browser.login(OTHER)
    decide = {**ORDER, "verb": "commit"}
    answer = browser.request("POST", "/v1/lookback/operate", decide, X_CSRF_Token=browser.csrf)
    assert (answer.status, answer.code) == (403, "forbidden") and "bob" in answer.text
    assert browser.request("GET", "/v1/audit").status == 403


def test_a_logout_removes_the_cookie(api):
    browser = Browser(api)
    browser.login(OPERATE)
    assert browser.request("DELETE", "/console/session").status == 403  # without the CSRF token
    assert browser.request("DELETE", "/console/session", X_CSRF_Token=browser.csrf).json == {"name": "alice"}
    assert browser.set_cookie.startswith("outbox-relay=; Path=/; Max-Age=0;")
    assert browser.request("GET", "/console/session").status == 401


def test_a_token_alone_needs_no_session(api):
    answer = api.as_(OPERATE).request("GET", "/console/session")
    assert (answer.status, answer.json["csrf_token"], answer.json["ends_at"]) == (200, None, None)
    assert api.as_(OPERATE).request("POST", "/v1/lookback/operate", ORDER).status == 404
    # a session of somebody else changes nothing
    browser = Browser(api)
    browser.login(OTHER)
    answer = api.as_(OPERATE).request("GET", "/console/session", headers={"Cookie": browser.cookie})
    assert answer.json["name"] == "alice"


@pytest.mark.parametrize("method,path,body", [
    ("POST", "/v1/lookback/operate", ORDER), ("POST", "/v1/parked/preview", {"verb": "retry", "filter": {}}),
    ("POST", "/v1/parked/retry", {"ids": ["1"], "reason": "x"}), ("DELETE", "/console/session", None)])
def test_a_page_of_somebody_else_changes_nothing(api, method, path, body):
    """Cross-site request forgery: the cookie travels along, but neither the CSRF token nor the origin do."""
    browser, other = Browser(api), Browser(api)
    browser.login(OPERATE), other.login(OPERATE)
    for csrf, origin, code in [(None, None, "wrong_csrf_token"), ("", own(api), "wrong_csrf_token"),
                               ("0" * 64, own(api), "wrong_csrf_token"), (other.csrf, own(api), "wrong_csrf_token"),
                               (browser.csrf, "http://127.0.0.1:1", "wrong_origin"), (browser.csrf, "null", "wrong_origin"),
                               (browser.csrf, f"https://127.0.0.1:{api.port}", "wrong_origin"),
                               (browser.csrf, own(api) + ".evil.example", "wrong_origin")]:
        answer = browser.request(method, path, body, X_CSRF_Token=csrf, Origin=origin)
        assert (answer.status, answer.code) == (403, code), (csrf, origin, answer.text)
    answer = browser.request(method, path, body, X_CSRF_Token=browser.csrf, Origin=own(api))
    assert answer.status not in (401, 403), answer.text


def test_a_form_of_somebody_else_cannot_log_a_browser_in(api):
    browser = Browser(api)
    for origin in ("http://evil.example", "null"):
        answer = browser.login(OPERATE, Origin=origin)
        assert (answer.status, answer.code) == (403, "wrong_origin") and browser.cookie is None
    for kind in ("application/x-www-form-urlencoded", "text/plain"):
        assert browser.login(OPERATE, Content_Type=kind).status == 415
    assert browser.login(OPERATE, Origin=own(api)).status == 200


def test_nobody_chooses_a_session(api):
    """Session fixation: a cookie from before the login is worth nothing after it."""
    browser = Browser(api)
    browser.login(OPERATE)
    first = browser.cookie
    browser.login(OPERATE)
    assert browser.cookie != first
    browser.cookie = "outbox-relay=616c696365.00.00.1.2." + "0" * 64
    planted = browser.cookie
    browser.login(OTHER)
    assert planted != browser.cookie
    for cookie in (planted, "outbox-relay=", "outbox-relay=.....", "outbox-relay=" + "a" * 5000, "outbox-relay=%00",
                   *forged(browser.cookie)):
        answer = api.request("GET", "/console/session", headers={"Cookie": cookie})
        assert (answer.status, answer.code) == (401, "session_ended"), cookie


def forged(cookie):
    """The cookie with each part changed, and its signature as it was."""
    name, _, value = cookie.partition("=")
    parts = value.split(".")
    assert len(parts) == 6
    for i, part in enumerate(parts):
        changed = ("1" if part[0] != "1" else "2") + part[1:]
        yield f"{name}=" + ".".join(parts[:i] + [changed] + parts[i + 1:])
    yield f"{name}=" + ".".join(["616c696365"] + parts[1:])  # bob calls himself alice


def logged_in(api, token=OPERATE):
    browser = Browser(api)
    assert browser.login(token).status == 200
    return browser


def aged(cookie, begun, used):
    """The cookie of a session whose login and newest request were so many seconds ago, signed with KEY."""
    name, _, value = cookie.partition("=")
    now = int(time.time())
    parts = ".".join(value.split(".")[:3] + [str(now - begun), str(now - used)])
    key = hashlib.sha256(f"outbox-relay session\n{KEY}\n".encode()).digest()
    return f"{name}={parts}." + hmac.new(key, f"session\n{parts}".encode(), "sha256").hexdigest()


def test_a_session_ends_when_it_is_not_used_and_when_it_is_old(make_api):
    api = make_api(api_session_key=KEY, api_session_idle="5m", api_session_max="1h")
    browser = logged_in(api)
    assert "Max-Age=3600;" in browser.set_cookie
    cookie, browser.set_cookie = browser.cookie, None
    for begun, used, status, renewed in [(0, 0, 200, False), (50, 50, 200, False), (70, 70, 200, True), (3500, 290, 200, True),
                                         (301, 301, 401, False), (3601, 10, 401, False)]:
        browser.cookie = aged(cookie, begun, used)
        answer = browser.request("GET", "/console/session")
        assert answer.status == status, (begun, used, answer.text)
        if status == 401:
            assert "the session has ended: log in again" in answer.text and "Max-Age=0" in browser.set_cookie
        else:
            assert ("Set-Cookie" in answer.headers) == renewed, (begun, used)
    # a renewal lengthens no session beyond its end
    browser.cookie = aged(cookie, 3500, 290)
    browser.request("GET", "/console/session")
    assert 90 <= int(re.search(r"Max-Age=(\d+)", browser.set_cookie)[1]) <= 100
    assert browser.cookie.split(".")[3:4] == aged(cookie, 3500, 0).split(".")[3:4]


def test_a_session_ends_with_its_token(make_api, tmp_path):
    """A reload without the token: the session goes with it, and sessions of others stay with a key of their own."""
    file = tmp_path / "alice-tokens"
    replace(file, f"{OPERATE}, {READ}")
    api = make_api(f'[token "alice"]\nroles = read, operate\ntokens_file = {file}\n' + BOB, api_session_key=KEY)
    old, new, bob = logged_in(api), logged_in(api, READ), logged_in(api, OTHER)
    replace(file, READ)
    os.kill(api.relay.process.pid, signal.SIGHUP)
    wait_for(lambda: old.at(api).request("GET", "/console/session").status == 401, what="the end of the session")
    answer = old.request("GET", "/console/session")
    assert "no longer valid: log in again" in answer.text
    assert old.set_cookie.startswith("outbox-relay=; Path=/; Max-Age=0;")
    assert new.request("GET", "/console/session").json["name"] == "alice"
    assert bob.request("GET", "/console/session").status == 200
    # a role that goes is gone in sessions, too
    path = tmp_path / "one/relay.ini"
    replace(path, path.read_text().replace("roles = read, operate\ntokens_file", "roles = read\ntokens_file"))
    os.kill(api.relay.process.pid, signal.SIGHUP)
    wait_for(lambda: new.request("GET", "/console/session").json["roles"] == ["read"], what="the reload")
    assert new.request("POST", "/v1/lookback/operate", ORDER, X_CSRF_Token=new.csrf).code == "forbidden"


@pytest.mark.parametrize("key", [None, KEY])
def test_every_process_with_the_key_accepts_a_session(make_api, key):
    settings = {"api_session_key": key} if key else {}
    one, two = make_api(**settings), make_api(BOB + ALICE, folder="two", **settings)
    browser = logged_in(one)
    assert browser.at(two).request("GET", "/console/session").json["name"] == "alice"
    answer = browser.at(two).request("POST", "/v1/lookback/operate", ORDER, X_CSRF_Token=browser.csrf, Origin=own(two))
    assert answer.status == 404, answer.text  # no such id, and nothing about the session
    stranger = make_api(folder="three", api_session_key=KEY + "2")
    assert browser.at(stranger).request("GET", "/console/session").status == 401


def test_a_proxy_with_tls_names_the_url_that_browsers_call(make_api):
    api = make_api(api_public_url="https://relay.example")
    browser = Browser(api, host="relay.example")
    assert browser.login(OPERATE, Origin=own(api)).code == "wrong_origin"
    assert browser.login(OPERATE, Origin="https://relay.example").status == 200
    assert re.fullmatch(r"__Host-outbox-relay=.*; Path=/; .*; Secure", browser.set_cookie)
    answer = browser.request("POST", "/v1/lookback/operate", ORDER, X_CSRF_Token=browser.csrf, Origin="https://relay.example")
    assert answer.status == 404
    assert api.request("GET", "/console/session", headers={"Host": "evil.example"}).status == 400


def test_cookies_are_secure_under_tls(make_api, tmp_path):
    authority = Authority(tmp_path / "authority")
    certificate, key = authority.issue("server")
    api = make_api(api_tls_certificate=certificate, api_tls_key=key)
    api = Api(api.port, None, ssl.create_default_context(cafile=authority.certificate))
    browser = Browser(api)
    assert browser.login(OPERATE, Origin=own(api)).code == "wrong_origin"  # a page without TLS
    assert browser.login(OPERATE, Origin=f"https://127.0.0.1:{api.port}").status == 200
    assert browser.set_cookie.startswith("__Host-outbox-relay=") and browser.set_cookie.endswith("; Secure")


def test_wrong_logins_are_slowed_and_counted(api):
    browser = Browser(api)
    times = []
    for _ in range(7):
        begun = time.monotonic()
        answer = browser.login("token-of-nobody-at-all")
        times.append(time.monotonic() - begun)
        assert (answer.status, answer.code) == (401, "unauthorized") and "copy it again" in answer.text
    assert max(times[:3]) < 0.4 < times[-1]
    assert api.relay.metric("relay_api_wrong_tokens_total") == 7
    assert browser.login(OPERATE).status == 200
    assert browser.request("POST", "/console/login", {}).code == "missing_field"
    assert browser.request("POST", "/console/login", {"token": 1}).code == "wrong_type"
    assert browser.request("POST", "/console/login", {"token": "a", "user": "b"}).code == "unknown_field"
    assert browser.request("POST", "/console/login", {"token": "a" * 5000}).code == "too_large"
    assert browser.request("GET", "/console/login").status == 405


def test_a_login_tried_a_thousand_times_hurts_nobody_else(api, scale):
    """From several connections at once, as somebody who guesses: each answer comes later, the memory is bounded, and others still log in."""
    tries, guessers = scale(1000, 120), 40
    status = pathlib.Path(f"/proc/{api.relay.process.child.pid}/statm")
    browser = logged_in(api)
    before, begun = int(status.read_text().split()[1]) * 4096, time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(guessers) as pool:
        guesses = [pool.submit(Browser(api).login, f"a-guess-with-the-number-{i}") for i in range(tries)]
        while not all(guess.done() for guess in guesses):
            # no delay for those who have a session, and none for a right token, from the same address
            asked = time.monotonic()
            assert browser.request("GET", "/console/session").status == 200
            assert logged_in(api).csrf
            assert time.monotonic() - asked < 2
            concurrent.futures.wait(guesses, timeout=0.5)
    took = time.monotonic() - begun
    assert {(guess.result().status, guess.result().code) for guess in guesses} == {(401, "unauthorized")}
    # 5 s for each but the first ones, for as many at once as guess
    assert took > 5 * (tries - 10) / guessers * 0.9, took
    assert api.relay.metric("relay_api_wrong_tokens_total") == tries
    assert int(status.read_text().split()[1]) * 4096 - before < 32 << 20


def get_page(api, path, method="GET", **headers):
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", api.port, timeout=30)) as connection:
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read().decode()


def test_pages_are_served_and_guarded(api):
    for path in ("/", "/console"):
        status, headers, _ = get_page(api, path)
        assert (status, headers["Location"]) == (302, "/console/")
    status, headers, page = get_page(api, "/console/")
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    files = re.findall(r'(?:src|href)="([^"#]+)"', page)
    assert files and not re.search(r"<script>|<style|style=|\son\w+=|https?://", page)
    for file in files:
        assert get_page(api, f"/console/{file}")[0] == 200, file
    policy = headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in policy and "unsafe" not in policy and "http" not in policy
    assert (headers["X-Frame-Options"], headers["X-Content-Type-Options"]) == ("DENY", "nosniff")
    # a browser that has the file gets it once
    status, again, body = get_page(api, "/console/", If_None_Match=headers["ETag"])
    assert (status, body, again["ETag"]) == (304, "", headers["ETag"])
    status, head, body = get_page(api, "/console/", method="HEAD")
    assert (status, body, head["Content-Length"]) == (200, "", headers["Content-Length"])
    for path in ("/console/../api.c", "/console/%2e%2e/x", "/console/nothing.js", "/console//"):
        assert get_page(api, path)[0] == 404, path
    assert json.loads(get_page(api, "/console/nothing.js")[2])["type"].endswith("not_found")
    assert get_page(api, "/console/", Host="evil.example")[0] == 400
    assert get_page(api, "/console/", method="POST")[0] in (405, 415)


def test_the_console_can_be_off(make_api):
    api = make_api(api_console="no")
    for path in ("/", "/console", "/console/", "/console/session"):
        assert get_page(api, path)[0] == 404
    assert api.request("POST", "/console/login", {"token": OPERATE}).status == 404
    assert api.as_(OPERATE).request("GET", "/v1/publishers").status == 200


@pytest.mark.parametrize("key,value,words", [
    ("public_url", "relay.example", "is not scheme, host and port alone; write for example https://relay.example"),
    ("public_url", "https://relay.example/console", "is not scheme, host and port alone"),
    ("public_url", "https://user@relay.example", "is not scheme, host and port alone"),
    ("public_url", "https://relay.example:http", "is not scheme, host and port alone"),
    ("advertise", "relay-1.example:9188", "is not scheme, host and port alone; write for example http://relay-1.example:9188"),
    ("advertise", "javascript:alert(1)", "is not scheme, host and port alone"),
    ("advertise", "https://user:word@relay-1.example", "is not scheme, host and port alone"),
    ("advertise", "http://relay-1.example/console", "is not scheme, host and port alone"),
    ("advertise", "http://<b>:9188", "is not scheme, host and port alone"),
    ("advertise", 'http://h"x:9188', "is not scheme, host and port alone"),
    ("advertise", "http://h\\x:9188", "is not scheme, host and port alone"),
    ("session_key", "short", "the key has 5 characters and needs 32; make one with: openssl rand -hex 32"),
    ("session_max", "1s", "is out of range; write 1m to 30d"),
    ("session_idle", "13h", "raise session_max, or lower this"),
    ("console", "maybe", "write no | yes")])
def test_wrong_keys_are_refused_with_their_cure(tmp_path, key, value, words):
    path = tmp_path / "relay.ini"
    path.write_text(f"[api]\nlisten = 9188\n{key} = {value}\n" + ALICE)
    status, _, error = run_command(["check-config", "--config", str(path)], ELSEWHERE)
    assert status == 78 and words in error and f"relay.ini:3: [api] {key}" in error, error
    assert "short" not in error


def test_a_url_that_nothing_answers_is_not_advertised(tmp_path):
    path = tmp_path / "relay.ini"
    path.write_text("[api]\nadvertise = http://relay-1.example:9188\n")
    status, _, error = run_command(["check-config", "--config", str(path)], ELSEWHERE)
    assert status == 78 and "nothing answers at this URL without listen" in error, error


@pytest.mark.parametrize("url", ["https://relay.example", "https://relay.example:8443/", "http://[::1]:80", "https://[::1]"])
def test_a_public_url_is_an_origin(tmp_path, url):
    path = tmp_path / "relay.ini"
    path.write_text(f"[api]\nlisten = 9188\npublic_url = {url}\n" + ALICE)
    assert run_command(["check-config", "--config", str(path)], ELSEWHERE)[0] == 0
