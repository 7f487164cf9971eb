"""The console in headless Chromium, on a relay that runs: every page and verb, with mouse and keyboard, in both themes and
at both widths, without a fault that axe-core finds; and whatever comes from outside is shown as text.

CONSOLE_PICTURES=docs/figures pytest tests/heavy/test_console.py -k pictures    # writes the pictures of the documentation
"""

import contextlib
import os
import pathlib
import types

import pytest
from selenium.webdriver.common.keys import Keys

from support.api import Api, caller
from support.application import Application
from support.browser import NARROW, WIDE, Browser
from support.business import Business
from support.inbox import produce
from support.process import free_port, wait_for
from support.relay import Relay, run_command

ROOT = pathlib.Path(__file__).resolve().parents[2]
ALICE, WATCHER, LIMITED = "token-of-alice-the-operator", "token-of-one-who-watches", "token-of-one-with-limits"
SENDER = "token-of-the-application"
EVIL = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>'
LIMIT = 60_000      # of the topic: a batch of small rows fits
TOO_LARGE = 90_000  # characters that lz4 cannot shorten
# What each page shows once it is there.
PAGES = {"overview": "Latency, 99th percentile", "publishers": "Shards of main", "where?id={id}": "Publisher main",
         "parked": "Parked messages of main", "parked/{id}": "Message size too large", "scheduled": "Scheduled messages of main",
         "jobs": "Progress", "lookback": "Overdue and parked ids", "lookback/orders/1": "Prepared",
         "sidecars": "billing", "dead-letters": "Dead letters of billing", "audit": "Actions of operators"}

CONFIG = """\
[publisher "main"]
max_attempts = 1
retry_first = 100ms
[lookback "orders"]
types = orders
topic = {said}
topics = {said}-orders
check = shop
check_after = 100ms
[check "shop"]
url = {business}
networks = 127.0.0.0/8
retry_first = 200ms
retry_max = 1s
max_attempts = 1000
[deliver "billing"]
topics = {delivered}
group = {delivered}
url = {application}
networks = 127.0.0.0/8
path = {folder}/state
dead_letter_topic = {said}-dead
retry_first = 100ms
retry_max = 1s
dedup = bloom ids=10k rate=0.1% window=1h
"""


@pytest.fixture(scope="module")
def world(postgres, kafka, tmp_path_factory):
    """A relay with parked rows, overdue ids, a sidecar that fails, and an audit."""
    folder = tmp_path_factory.mktemp("console")
    topics = {name: kafka.create_topic(f"console-{name}", 2) for name in ("rows", "said", "said-orders", "said-dead", "delivered")}
    kafka.alter_topic(topics["rows"], max_message_bytes=LIMIT)
    postgres.create_database("console")
    dsn = postgres.dsn("console")
    assert run_command(["migrate", "up"], {"DATABASE_URL": dsn})[0] == 0
    with contextlib.ExitStack() as stack:
        business = stack.enter_context(Business(lambda _, ids: {id: EVIL for id in ids}))
        application = stack.enter_context(Application(lambda delivery: (422 if "bad" in delivery.ids else 500, EVIL)))
        path = folder / "relay.ini"
        path.write_text(CONFIG.format(said=topics["said"], delivered=topics["delivered"], folder=folder, business=business.url,
                                      application=application.url)
                        + caller("alice", ALICE, "read, operate, decide") + caller("watcher", WATCHER, "read")
                        + caller("shop", SENDER, "send", types="*")
                        + caller("limited", LIMITED, "read, operate", publishers="main", types="*"))
        path.chmod(0o600)
        port = free_port()
        relay = stack.enter_context(Relay({
            "DATABASE_URL": dsn, "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap, "OUTBOX_RELAY_CONFIG": str(path),
            "OUTBOX_RELAY_API_LISTEN": str(port)}))
        relay.wait_event("api_listens")
        made = types.SimpleNamespace(relay=relay, port=port, url=f"http://127.0.0.1:{port}/console/", path=path,
                                     api=Api(port, ALICE), execute=lambda sql, values=None: postgres.execute(sql, values, "console"),
                                     topic=topics["rows"])
        fill_world(made, kafka, topics)
        yield made


def answers(world):
    with contextlib.suppress(OSError):
        return world.api.request("GET", "/console/session").status == 200
    return False


def park(world, *keys, topic=None):
    """A row too large for its topic of each key: the relay parks it. Their ids."""
    ids = []
    for key in keys:
        ids += world.execute("INSERT INTO outbox.message (topic, key, payload_bytes) VALUES (%s, %s, %s) RETURNING id",
                             (topic or world.topic, key, os.urandom(TOO_LARGE)))[0]
    wait_for(lambda: world.execute("SELECT count(*) FROM outbox.parked WHERE id = ANY(%s)", (ids,)) == [(len(ids),)],
             what="parked rows")
    return ids


def parked_count(world, ids):
    return world.execute("SELECT count(*) FROM outbox.parked WHERE id = ANY(%s)", (ids,))[0][0]


def fill_world(world, kafka, topics):
    world.ids = park(world, *(f"k{i}" for i in range(60)), EVIL)
    for id in ("1", "2", "a/b", EVIL):
        answer = world.api.as_(SENDER).post("prepare", {"version": 1, "biz_type": "orders", "biz_id": id,
                                                        "topic": topics["said-orders"], "payload": {}})
        assert answer.status == 202, answer.text
    wait_for(lambda: len(world.api.get("").json["rows"]) == 4, what="overdue ids")
    produce(kafka.bootstrap, topics["delivered"], [("one", "k", "{}"), ("bad", EVIL, "{}")])
    wait_for(lambda: "500" in world.api.request("GET", "/v1/deliver").json["sections"][0]["last_error"],
             what=lambda: world.api.request("GET", "/v1/deliver").text)
    wait_for(lambda: world.api.request("GET", "/v1/dead-letters").json["rows"], what="a dead letter")
    world.execute("INSERT INTO outbox.message (topic, key, payload, deliver_at) VALUES (%s, 'later', '{}', now() + interval '1 h')",
                  (world.topic,))
    wait_for(lambda: world.api.request("GET", "/v1/scheduled").json["rows"], what="a scheduled message")
    assert world.api.request("POST", "/v1/parked/retry", {"ids": [str(world.ids[0])], "reason": EVIL}).status == 202


@pytest.fixture(scope="module")
def chromium():
    with Browser() as browser:
        yield browser


@pytest.fixture
def browser(chromium, world):
    """The browser with alice logged in."""
    chromium.resize(WIDE)
    chromium.prefer("light")
    chromium.driver.delete_all_cookies()
    chromium.open(world.url)
    chromium.script("localStorage.clear()")
    log_in(chromium, world, ALICE)
    yield chromium
    assert chromium.script("return window.hacked") is None
    assert chromium.errors() == []


def log_in(browser, world, token):
    browser.driver.delete_all_cookies()
    browser.open(world.url + "#/overview")
    browser.driver.refresh()
    browser.fill("Token", token).press("Log in").see("Log out")


# --- what can be seen -----------------------------------------------------------------------------


def test_a_wrong_token_is_refused_where_it_was_typed(chromium, world):
    chromium.driver.delete_all_cookies()
    chromium.open(world.url + "#/audit").driver.refresh()
    chromium.fill("Token", "token-of-nobody-at-all").press("Log in").see("copy it again")
    assert "log of the relay" in chromium.text and "outbox-relay" in chromium.text
    # the page that the address names comes after the login
    chromium.fill("Token", ALICE).press("Log in").see("Audit", "Reason")
    assert "token-of-alice" not in chromium.script("return JSON.stringify([localStorage, sessionStorage, document.cookie])")
    chromium.press("Log out").see("Log in")
    chromium.driver.refresh()
    chromium.see("Log in")


def test_every_page_at_both_widths_and_in_both_themes(browser, world):
    found = []
    for size in (WIDE, NARROW):
        browser.resize(size)
        for theme in ("light", "dark"):
            browser.prefer(theme)
            for page, text in PAGES.items():
                page = page.format(id=world.ids[1])
                browser.go(f"#/{page}").see("Log out")
                wait_for(lambda: text in browser.script("return document.body.textContent"), what=f"{page}: {text}")
                assert not browser.is_too_wide(), (page, size)
                found += [f"{page} {size} {theme}: {each}" for each in browser.violations()]
    assert found == []


def test_the_chosen_theme_stays(browser, world):
    def background():
        return browser.script("return getComputedStyle(document.body).backgroundColor")

    light = background()
    browser.prefer("dark")
    dark = background()
    assert light != dark
    browser.press("Theme: system").press("Theme: light")
    browser.see("Theme: dark")
    browser.prefer("light")
    assert background() == dark
    browser.driver.refresh()
    browser.see("Theme: dark")
    assert background() == dark
    browser.press("Theme: dark").see("Theme: system")
    assert background() == light


def test_texts_from_outside_are_texts(browser, world):
    """Keys, reasons, answers of a business, errors of an application, ids and addresses with HTML in them."""
    browser.go("#/parked?publisher=main&key=" + browser.script("return encodeURIComponent(arguments[0])", EVIL)).see(EVIL)
    browser.press(str(world.ids[-1])).see("Parked message", EVIL)
    browser.go("#/audit").see(EVIL)
    browser.go("#/lookback").see(EVIL)
    browser.press(EVIL).see("Prepared", EVIL)
    browser.go("#/sidecars").see("billing", "last error")
    browser.go("#/parked/" + browser.script("return encodeURIComponent(arguments[0])", EVIL)).see("is no id: it is a whole number")
    browser.go("#/" + browser.script("return encodeURIComponent(arguments[0])", EVIL)).see("There is no such page")
    assert browser.driver.find_elements("css selector", "img[onerror], main script") == []


def test_nothing_is_loaded_from_elsewhere(browser, world):
    browser.driver.refresh()
    browser.see("Overview", "Throughput (records/s)")
    names = browser.script("return performance.getEntriesByType('resource').map(entry => entry.name)")
    assert any(name.endswith("/console/chart.js") for name in names)
    assert all(name.startswith(f"http://127.0.0.1:{world.port}/") for name in names), names


def test_the_overview_says_what_is_wrong_and_leads_to_the_repair(browser, world):
    browser.see("messages of main cannot be published and wait for you.", "undecided after the deadline")
    browser.press("Retry or skip them").see("Retry all that match")
    assert "state=dead" in browser.driver.current_url
    browser.go("#/overview").press("Ask or decide").see("Last answer of the business")


# --- the verbs ------------------------------------------------------------------------------------


def test_chosen_messages_are_skipped_with_a_reason(browser, world):
    ids = park(world, "choose-1", "choose-2")
    browser.go("#/parked?publisher=main&key=choose-1").see(str(ids[0]))
    browser.tick(f"Choose message {ids[0]}").press("Skip the 1 chosen").see("Skip parked messages of main", "1 message")
    browser.press("Cancel")
    assert parked_count(world, ids) == 2
    browser.press("Skip the 1 chosen").fill("Reason", "sent by hand, ticket 7").press("Skip").see("The request is stored")
    browser.press("Close")
    wait_for(lambda: parked_count(world, ids) == 1, what="the skip")
    assert ("alice", "sent by hand, ticket 7") in world.execute("SELECT caller, reason FROM outbox.audit")


def test_all_that_match_are_retried(browser, world):
    ids = park(world, *["all-1"] * 3, "all-2")
    browser.go("#/parked").see("Retry all that match")
    browser.fill("Error has", "too large").choose("State", "dead").press("Show").see("Retry all that match")
    assert "error=too+large" in browser.driver.current_url
    browser.go("#/parked?publisher=main&key=all-1").see(str(ids[0]), "1 dead", "2 behind")
    browser.press("Retry all that match …").see("behind the first of the key", "1 message")
    before = world.execute("SELECT count(*) FROM outbox.audit")[0][0]
    browser.fill("Reason", "the topic takes large records").press("Retry").see("The request is stored: retry of 1 message")
    assert world.execute("SELECT count(*) FROM outbox.audit")[0][0] == before + 1
    browser.press("Close")
    browser.go("#/parked?publisher=main&key=nothing-has-this").see("No parked message matches")


def test_a_preview_that_is_out_of_date_is_refused_in_the_dialog(browser, world):
    park(world, "late-1")
    browser.go("#/parked?publisher=main&topic=" + world.topic).see("Skip all that match")
    browser.press("Skip all that match …").fill("Reason", "too late")
    # the request is changed on its way, as by another operator's preview
    browser.script("const real = window.fetch; window.fetch = (path, options) => real(path, path.endsWith('/skip')"
                   " ? {...options, body: options.body.replace(/\"token\":\"\\d+/, '\"token\":\"1')} : options)")
    browser.press("Skip").see("The token of the preview does not fit the request")
    browser.press("Try again").see("Reason")
    browser.keys(Keys.ESCAPE)
    browser.driver.refresh()


def test_ids_of_the_look_back_are_asked_and_decided(browser, world):
    browser.go("#/lookback").see("orders")
    browser.tick("Choose orders 1").press("Ask now (1)").fill("Reason", "the shop is back").press("Ask now").see("Done for 1 id")
    browser.press("Close")
    browser.go("#/lookback/orders/a%2Fb").see("overdue", "Last answer")
    browser.press("Force commit").fill("Reason", "the books say so").press("Force commit").see("Done for 1 id").press("Close")
    browser.see("committed", "by alice", "the books say so")
    browser.go("#/lookback").fill("Type of one id", "orders").fill("The id", "2").press("Show the id").see("Force rollback")
    browser.press("Force rollback").fill("Reason", "no such order").press("Force rollback").see("Done for 1 id").press("Close")
    browser.see("rolled back")
    browser.go("#/lookback/orders/nothing-is-here").see("nothing")


def test_a_sidecar_is_paused_and_resumed(browser, world):
    browser.go("#/sidecars").press("Pause").fill("Reason", "the ledger is moved").press("Pause").see("billing is paused").press("Close")
    browser.see("paused", "Resume")
    assert world.api.request("GET", "/v1/deliver").json["sections"][0]["paused"]
    browser.press("Resume").fill("Reason", "it is back").press("Resume").see("billing is running").press("Close")
    wait_for(lambda: not world.api.request("GET", "/v1/deliver").json["sections"][0]["paused"], what="the resume")
    browser.press("Reload the rules").fill("Reason", "none").press("Reload the rules").see("0 rules").press("Close")


def test_ids_that_match_are_asked_at_once(browser, world):
    browser.go("#/lookback?type=orders").press("Ask now: all that match …").see("Match", "The ids that have waited longest")
    browser.fill("Reason", "the shop is back").press("Ask now").see("Done for").press("Close")


def test_dead_letters_go_back(browser, world):
    browser.go("#/dead-letters").see("bad", "422", "Send all that match back")
    browser.press("Send all that match back …").see("1 dead letter").fill("Reason", "ticket 8").press("Send back")
    browser.see("1 dead letter went back").press("Close").see("went back")
    assert ("alice", "ticket 8") in world.execute("SELECT caller, reason FROM outbox.audit")


def test_a_message_is_found_in_each_state(browser, world):
    published = world.execute("INSERT INTO outbox.message (topic, key, payload) VALUES (%s, 'small', '{}') RETURNING id, event_id::text",
                              (world.topic,))[0]
    wait_for(lambda: world.api.request("GET", f"/v1/messages?id={published[0]}").json["rows"][0]["publishers"][0]["state"] == "published",
             what="a published message")
    browser.go("#/where").fill("Id", str(published[0])).press("Show").see("Kafka acknowledged it.", "partition", "offset")
    browser.go(f"#/where?event_id={published[1]}").see(f"Message {published[0]}", "Searched by event id")
    browser.go(f"#/where?id={world.ids[1]}").see("It is parked.", "Message size too large")
    browser.go("#/scheduled").see("later")
    browser.find("tbody td a").click()
    browser.see("It waits for its time.")
    browser.go("#/where?id=999999999").see("999999999", "Try again")


def test_jobs_show_what_became_of_a_request(browser, world):
    ids = park(world, "job-1")
    browser.go("#/parked?publisher=main&key=job-1").see(str(ids[0])).press("Skip all that match …").fill("Reason", "ticket 9")
    browser.press("Skip").see("The request is stored", "finished", "1 of 1 message")
    browser.press("Close")
    browser.go("#/jobs?kind=skip").see("ticket 9", "finished")
    browser.find("tbody td a").click()
    browser.see("Job parked-", "Selection", "ticket 9")


def test_pages_of_a_list(browser, world):
    browser.go("#/parked").press("Next page").see("First page")
    assert "after=" in browser.driver.current_url
    browser.driver.back()
    browser.press("Next page").press("First page").see("Next page")


def test_a_caller_sees_the_verbs_of_its_roles_only(browser, world):
    log_in(browser, world, WATCHER)
    browser.go("#/parked").see("Next page")
    assert "Retry" not in browser.text and "Skip all" not in browser.text
    browser.go("#/sidecars").see("billing")
    assert "Pause" not in browser.text
    log_in(browser, world, LIMITED)
    browser.go("#/audit").see("is not for")
    assert "Choose a publisher, section or type that your token is for." in browser.text
    browser.go("#/parked").see("Retry all that match")
    assert "Skip all" not in browser.text


# --- a keyboard, and things that go wrong ---------------------------------------------------------


def test_a_keyboard_is_enough(chromium, world):
    """From the login to a skip, without a click."""
    ids = park(world, "keys-1")
    chromium.resize(WIDE)
    chromium.driver.delete_all_cookies()
    chromium.open(world.url + "#/overview").driver.refresh()
    chromium.see("Log in")
    chromium.keys(ALICE, Keys.ENTER).see("Log out")
    chromium.tab_to("Parked").keys(Keys.ENTER).see("Retry all that match")
    chromium.tab_to("Key").keys("keys-1", Keys.ENTER).see(str(ids[0]), "1 dead")
    wait_for(lambda: chromium.script("return document.querySelectorAll('tbody tr').length") == 1, what="one row")
    chromium.tab_to(f"Choose message {ids[0]}").keys(Keys.SPACE).see("Skip the 1 chosen")
    chromium.back_to("Skip the 1 chosen").keys(Keys.ENTER).see("Skip parked messages of main")
    wait_for(lambda: chromium.focused().startswith("Reason"), what="the focus in the dialog")
    chromium.keys("with the keyboard").tab_to("Skip").keys(Keys.ENTER).see("The request is stored")
    assert chromium.focused() == "Close"
    chromium.keys(Keys.ENTER)
    wait_for(lambda: parked_count(world, ids) == 0, what="the skip")
    assert chromium.driver.find_elements("css selector", "dialog") == []


def test_a_session_that_ends_leads_back_to_its_page(browser, world):
    browser.go("#/publishers").see("Newest log row")
    browser.driver.delete_all_cookies()
    browser.go("#/audit").see("Log in")
    browser.fill("Token", ALICE).press("Log in").see("Reason", "Audit")


def test_ten_tabs_share_the_session(browser, world):
    first = browser.driver.current_window_handle
    for page in ["overview", "parked", "publishers", "jobs", "lookback", "sidecars", "audit", "scheduled", "overview"]:
        browser.driver.switch_to.new_window("tab")
        browser.open(f"{world.url}#/{page}").see("Log out")
    for handle in browser.driver.window_handles:
        browser.driver.switch_to.window(handle)
        browser.driver.refresh()
        browser.see("Log out")
        if handle != first:
            browser.driver.close()
    browser.driver.switch_to.window(first)


def test_a_relay_that_is_away_is_said_where_the_reader_looks(browser, world):
    browser.go("#/parked").see("Retry all that match")
    world.relay.stop()
    browser.press("Retry all that match …").see("The relay does not answer", "check that the relay runs")
    browser.keys(Keys.ESCAPE)
    browser.go("#/audit").see("The relay does not answer", "Try again")
    world.relay.start()
    wait_for(lambda: answers(world), what="the relay")
    browser.press("Try again").see("Reason")


def test_no_page_of_another_origin_shows_the_console(browser, world, tmp_path):
    page = tmp_path / "evil.html"
    page.write_text(f'<iframe src="{world.url}" width="900" height="600"></iframe>')
    browser.open(f"file://{page}")
    wait_for(lambda: browser.script("return document.querySelector('iframe') !== null"), what="the frame")
    browser.driver.switch_to.frame(0)
    assert "Overview" not in browser.text and "Token" not in browser.text
    browser.driver.switch_to.default_content()
    browser.errors()  # the refusal itself
    browser.open(world.url).see("Overview")


# --- pictures -------------------------------------------------------------------------------------

# Those that the documentation shows, and two of a telephone to look at.
PICTURES = [("overview", "#/overview", WIDE, "light"), ("parked", "#/parked", WIDE, "dark"),
            ("where", "#/where?id={id}", WIDE, "light"), ("phone", "#/overview", NARROW, "dark"),
            ("parked-phone", "#/parked", NARROW, "light"), ("publishers", "#/publishers", WIDE, "dark")]


def test_pictures_of_the_pages(browser, world, tmp_path):
    folder = pathlib.Path(os.environ.get("CONSOLE_PICTURES") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    for name, fragment, size, theme in PICTURES:
        browser.resize(size)
        browser.prefer(theme)
        browser.go("#/nothing").see("There is no such page").go(fragment.format(id=world.ids[1])).see("Log out")
        wait_for(lambda: "Loading" not in browser.text, what="the page")
        browser.picture(folder / f"console-{name}.png")
        assert (folder / f"console-{name}.png").stat().st_size > 10_000
