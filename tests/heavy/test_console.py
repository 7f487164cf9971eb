"""The console in headless Chromium, on a relay that runs: every page with mouse and keyboard, in both themes and at both
widths, without a fault that axe-core finds; and whatever comes from outside is shown as text. test_console_verbs.py has the
verbs.

CONSOLE_PICTURES=docs/figures pytest tests/heavy/test_console.py -k pictures    # writes the pictures of the documentation
"""

import json
import math
import os
import pathlib
import time
from urllib.parse import quote

from selenium.webdriver.common.keys import Keys

from support.browser import NARROW, WIDE
from support.console import ALICE, EVIL, PAGES, VIEWER, answers, browser, chromium, log_in, park, parked_count, world  # noqa: F401
from support.inbox import produce
from support.process import wait_for


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


def test_every_page_at_both_widths_and_in_both_themes(browser, world, full):
    """Each width with each theme with --full; by default each once, which shows every colour and every layout."""
    found = []
    for size, theme in [(WIDE, "light"), (NARROW, "dark")] + [(WIDE, "dark"), (NARROW, "light")] * full:
        browser.resize(size)
        browser.prefer(theme)
        for page, text in PAGES.items():
            page = page.format(id=world.ids[1])
            browser.go(f"#/{page}").see("Log out")
            wait_for(lambda: text in browser.script("return document.body.textContent"), what=f"{page}: {text}")
            assert not browser.is_too_wide(), (page, size)
            found += [f"{page} {size}: {each} leaves its box" for each in browser.overflowing()]
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
    """Keys, headers, payloads, reasons, answers of a business, errors of a broker and of an application, ids and addresses with
    HTML in them. Names of topics, publishers and sections have no such characters, so addresses bring them."""
    evil = quote(EVIL)

    def is_text():
        return browser.driver.find_elements("css selector", "img[onerror], main script, main iframe") == []

    world.execute("UPDATE outbox.parked SET error = %s WHERE id = %s", (EVIL, world.ids[2]))
    browser.go(f"#/parked?publisher=main&key={evil}").see(EVIL)
    browser.press(str(world.ids[-1])).see("Parked message", EVIL)
    for page, place in [(f"parked/{world.ids[2]}", "pre.long"), (f"where?id={world.ids[2]}", "dd"), (f"parked?error={evil}", "td"),
                        ("audit", "td"), ("jobs?kind=retry", "td"), ("lookback", "td"), ("lookback/orders/" + quote(EVIL, ""), "dd"),
                        ("sidecars", "p"), ("dead-letters", "td")]:
        browser.go(f"#/{page}")
        wait_for(lambda: any(EVIL in text for text in shown(browser, place)), what=lambda: f"{page}: {browser.text[-2000:]}")
        assert is_text(), page

    for address, text in [(f"parked/{quote(EVIL, '')}", "is no id: it is a whole number"), (quote(EVIL, ""), "There is no such page"),
                          (f"publishers/{quote(EVIL, '')}", "onerror"), (f"parked?publisher={evil}", "onerror"), (f"parked?topic={evil}", "onerror"),
                          (f"where?event_id={evil}", "is no"), (f"jobs/{quote(EVIL, '')}", "onerror"), (f"scheduled?publisher={evil}", "onerror"),
                          (f"dead-letters?section={evil}", "onerror"), (f"lookback?type={evil}", "Look-back"), (f"replays?publisher={evil}", "onerror")]:
        browser.go("#/nothing").see("There is no such page").go(f"#/{address}").see(text)
        assert is_text(), address


def shown(browser, place):
    """The texts of these elements."""
    return browser.script("return [...document.querySelectorAll(arguments[0])].map(element => element.innerText)", f"main {place}")


def test_an_owner_is_a_link_to_its_console_if_it_advertises_one(browser, world):
    owner, = world.execute("SELECT owner FROM outbox.progress")[0]
    browser.go("#/publishers").see(owner)
    assert browser.driver.find_elements("link text", owner) == []
    # of a database that another program wrote to: neither is followed
    world.execute("ALTER TABLE outbox.process DROP CONSTRAINT url_is_scheme_host_and_port")
    for url in ("javascript:window.hacked=1", "data:text/html,<script>1</script>", EVIL, "//evil.example"):
        world.execute("INSERT INTO outbox.process (name, url) VALUES (%s, %s) ON CONFLICT (name) DO UPDATE SET url = excluded.url", (owner, url))
        browser.go("#/overview").see("Now").go("#/publishers/main").see(owner)
        assert world.api.request("GET", "/v1/publishers/main").json["shards"][0]["url"] == url
        assert browser.driver.find_elements("link text", owner) == []
    world.execute("UPDATE outbox.process SET url = %s", (world.url.removesuffix("/console/"),))
    browser.go("#/overview").see("Now").go("#/publishers").see(owner)
    link = browser.driver.find_element("link text", owner)
    assert link.get_attribute("href") == world.url + "#/publishers/main"
    link.click()
    browser.see("Publisher main", "Log out")
    world.execute("DELETE FROM outbox.process")


def test_payloads_and_headers_are_texts_for_those_who_may_see_them(browser, world):
    id = world.execute("INSERT INTO outbox.message (topic, key, payload, headers) VALUES (%s, %s, %s, jsonb_build_object(%s::text, %s::text))"
                       " RETURNING id", (world.topic, EVIL, EVIL, "head", EVIL))[0][0]
    browser.go(f"#/where?id={id}").see(EVIL)
    assert "Payload" not in browser.text and "Headers" not in browser.text
    log_in(browser, world, VIEWER)
    browser.go(f"#/where?id={id}").see("Headers", "Payload")
    headers, payload = shown(browser, "pre.long")
    assert (json.loads(headers), payload) == ({"head": EVIL}, EVIL)
    browser.go("#/dead-letters").see("Payload", EVIL)
    assert browser.driver.find_elements("css selector", "img[onerror], main script") == []
    assert browser.violations() == []


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
    # and a stream of events that reaches each of them; with one for each tab, the seventh tab would get no answer
    handles = browser.driver.window_handles
    for handle in handles:
        browser.driver.switch_to.window(handle)
        browser.script("window.heard = []; window.addEventListener('relay-event', event => window.heard.push(event.detail.event))")
    order = {"verb": "pause", "section": "billing", "reason": "a test"}
    assert world.api.request("POST", "/v1/deliver/operate", order).status == 200
    for handle in handles:
        browser.driver.switch_to.window(handle)
        wait_for(lambda: "deliver" in browser.script("return window.heard"), 60, "the event in each tab")
    assert world.api.request("POST", "/v1/deliver/operate", {**order, "verb": "resume"}).status == 200
    assert len(handles) == 10
    for handle in handles:
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

TALL = WIDE[0], 1300
LINES_S = 480
PICTURES = [("overview", "#/overview", TALL, "light"), ("parked", "#/parked", WIDE, "dark"),
            ("where", "#/where?id={id}", (WIDE[0], 680), "light"), ("phone", "#/overview", NARROW, "dark")]


def test_pictures_of_the_pages(browser, world, tmp_path):
    folder = pathlib.Path(os.environ.get("CONSOLE_PICTURES") or tmp_path)
    folder.mkdir(parents=True, exist_ok=True)
    # an error that reads well, and lines for the charts: some minutes of them for the pictures that are kept
    world.words["error"] = "the ledger is closed"
    produce(world.bootstrap, world.delivered, [("two", "two", "{}")])
    begun, written = time.monotonic(), 0
    while written == 0 or "CONSOLE_PICTURES" in os.environ and time.monotonic() - begun < LINES_S:
        rows = round(60 + 40 * math.sin((time.monotonic() - begun) / 30)) + 40 * (written // 100 % 7 == 0)
        world.execute("INSERT INTO outbox.message (topic, key, payload) SELECT %s, i::text, '{}' FROM generate_series(1, %s) i",
                      (world.topic, rows))
        written += rows
        wait_for(lambda: world.relay.metric("relay_published_total") >= written, what="published messages")
    wait_for(lambda: "ledger" in world.api.request("GET", "/v1/deliver").json["sections"][0]["last_error"], what="another error")
    for name, fragment, size, theme in PICTURES:
        browser.resize(size)
        browser.prefer(theme)
        browser.go("#/nothing").see("There is no such page").go(fragment.format(id=world.ids[1])).see("Log out")
        wait_for(lambda: "Loading" not in browser.text and (name != "overview" or browser.find("canvas")), what="the page")
        browser.picture(folder / f"console-{name}.png")
        assert (folder / f"console-{name}.png").stat().st_size > 10_000
