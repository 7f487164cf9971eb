"""The console in headless Chromium when something is away, has ended or has just changed: every page says in words what it is
and what to do, marks figures that it keeps as old, goes on by itself, and loses nothing that the operator typed."""

import contextlib
import re
import signal
import time
import types

import pytest
from selenium.webdriver.common.keys import Keys

from support.api import caller
from support.browser import Browser
from support.console import ALICE, BOB, PAGES, answers, browser, chromium, log_in, park, parked_count, publish_rows, world  # noqa: F401
from support.kafka import Kafka
from support.postgres import Postgres
from support.process import free_port, wait_for
from support.relay import Relay, run_command

# Pages whose figures come from the process or from Kafka.
WITHOUT_DATABASE = {"sidecars", "dedup", "dead-letters"}
OVERVIEW = "The figures of [postgres "
AWAY, CURE = "The database does not answer", "check that it runs and that the relay reaches it"
OLD = "What follows is of"


class Reached(Kafka):
    """Reached through the proxies of its nodes."""

    @property
    def bootstrap(self):
        return self.bootstrap_proxied


@pytest.fixture(scope="module")
def postgres():
    with Postgres() as server:
        yield server


@pytest.fixture(scope="module")
def kafka():
    with Reached(proxied=True) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def all_is_there(chromium, world, postgres):
    """Whatever a test stopped works again at its end, and its windows are closed."""
    first, *_ = chromium.driver.window_handles
    yield
    for window in chromium.driver.window_handles:
        if window != first:
            chromium.driver.switch_to.window(window)
            chromium.driver.close()
    chromium.driver.switch_to.window(first)
    if not postgres.process.running:
        postgres.start()
    if not world.relay.running:
        world.relay.start()
    wait_for(lambda: answers(world) and world.api.request("GET", "/v1/publishers").status == 200, 60, "the relay and its database")


def alerts(browser):
    """What a screen reader is told."""
    return browser.script("return [...document.querySelectorAll('[role=alert]')].map(each => each.innerText)")


def reload(world, text):
    """Another configuration and SIGHUP, until the relay has read it."""
    count = len(world.relay.events("reloaded"))
    world.path.write_text(text)
    world.relay.process.send(signal.SIGHUP)
    world.relay.wait_event("reloaded", count + 1)


@contextlib.contextmanager
def configured(world, change):
    """Another configuration for a while."""
    before = world.path.read_text()
    reload(world, change(before))
    yield
    reload(world, before)


@pytest.fixture(autouse=True)
def same_configuration(world):
    before = world.path.read_text()
    yield
    if world.path.read_text() != before:
        reload(world, before)


# --- the end of a session (the first test begins it, the last one sees its end) ----------------------


@pytest.fixture(scope="module")
def short_session(world, tmp_path_factory):
    """A browser whose session lasts for a minute, in a process of its own; and when it began."""
    folder = tmp_path_factory.mktemp("short")
    path = folder / "relay.ini"
    path.write_text('[publisher "main"]\nmax_attempts = 1\n' + caller("alice", ALICE, "read, operate, decide"))
    path.chmod(0o600)
    port = free_port()
    settings = {name: world.relay.settings[name] for name in ("DATABASE_URL", "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS")}
    with Relay({**settings, "OUTBOX_RELAY_CONFIG": str(path), "OUTBOX_RELAY_API_LISTEN": str(port),
                "OUTBOX_RELAY_API_SESSION_MAX": "1m", "OUTBOX_RELAY_API_SESSION_IDLE": "1m"}) as relay, Browser() as other:
        relay.wait_event("api_listens")
        log_in(other, types.SimpleNamespace(url=f"http://127.0.0.1:{port}/console/"), ALICE)
        yield other, time.monotonic()


def test_a_session_has_begun(short_session):
    browser, _ = short_session
    browser.go("#/audit?who=alice").see("Audit", "the session ends at")


# --- the database is away -------------------------------------------------------------------------


def test_every_page_says_that_the_database_is_away_and_goes_on_by_itself(browser, world, postgres):
    """Each page in a window of its own, open all the time."""
    first, windows = browser.driver.current_window_handle, {}
    for page, text in PAGES.items():
        browser.driver.switch_to.new_window("window")
        browser.open(f"{world.url}#/{page.format(id=world.ids[1])}").see("Log out")
        wait_for(lambda: text in browser.script("return document.body.textContent"), what=f"{page}: {text}")
        windows[page] = browser.driver.current_window_handle
    postgres.stop()
    for page, window in windows.items():
        browser.driver.switch_to.window(window)
        text = PAGES[page]
        if page in WITHOUT_DATABASE:
            browser.see(text)
            if page == "sidecars":
                browser.see("Those of other processes are not shown: The database does not answer.")
            assert alerts(browser) == [] and OLD not in browser.text, page
            continue
        if page == "preflight":
            # for ten seconds the answer is the report that the page has
            wait_for(lambda: "does Postgres run there" in browser.press("Check again").text, 60, lambda: browser.text[:2000])
            continue
        # a request in the moment of the stop may get another problem first
        title = OVERVIEW if page == "overview" else AWAY
        wait_for(lambda: [title in said and CURE in said for said in alerts(browser)] == [True], 40,
                 lambda: f"{page}: one alert in\n{browser.text[:2000]}")
        # the last figures, with their time; the overview has those of the process only
        if page == "overview":
            assert "Publisher main" not in browser.text and "all well" not in browser.text
        else:
            browser.see(OLD, "tries again by itself")
            assert browser.find("main .old").text and text in browser.script("return document.body.textContent"), page
        if page in ("overview", "parked"):
            assert browser.violations() == [], page
    postgres.start()
    for page, window in windows.items():
        browser.driver.switch_to.window(window)
        if page == "preflight":
            browser.press("Check again")  # of its own it checks once a minute
        wait_for(lambda: not alerts(browser) and PAGES[page] in browser.script("return document.body.textContent"), 60,
                 lambda: f"{page}:\n{browser.text[:2000]}")
        assert OLD not in browser.text, page
        if page == "overview":
            browser.see("Publisher main")
        browser.driver.close()
    browser.driver.switch_to.window(first)


def test_a_page_that_is_opened_without_the_database_comes_with_it(browser, world, postgres):
    postgres.stop()
    for page in ("parked?publisher=main", "scheduled", "replays", "where?id=1", "jobs", "lookback", "audit", "publishers/main"):
        browser.go("#/nothing").see("There is no such page").go(f"#/{page}").see(AWAY, CURE, "The console tries again by itself.")
        assert len(alerts(browser)) == 1, page
    browser.go("#/parked?publisher=main&key=k7").see(AWAY)
    postgres.start()
    browser.see("Retry all that match", "1 dead", seconds=60)  # the form, and then the list
    assert alerts(browser) == []


def test_a_verb_without_the_database_keeps_what_was_typed(browser, world, postgres):
    ids = park(world, "away-1", "away-2")
    browser.go(f"#/parked?publisher=main&from_id={ids[0]}&to_id={ids[1]}").see(str(ids[0]), str(ids[1]))
    browser.tick(f"Choose message {ids[0]}").press("Skip the 1 chosen").see("Skip parked messages of main").fill("Reason", "ticket 10, sent by hand")
    postgres.stop()
    for _ in range(2):
        browser.press("Skip").see(AWAY, CURE)
        browser.find("dialog .problem")
        assert browser.script("return document.querySelector('dialog textarea').value") == "ticket 10, sent by hand"
        wait_for(lambda: browser.focused() == "Skip", what=lambda: f"the focus at the button: {browser.focused()}")
    browser.press("Cancel").see(OLD, AWAY)
    # the selection is that of before, and the same dialog says what is away
    browser.press("Skip the 1 chosen")
    browser.find("dialog .problem")
    postgres.start()
    wait_for(lambda: world.api.request("GET", "/v1/publishers").status == 200, what="the database")
    browser.press("Try again").see("Changes\n1 message").fill("Reason", "ticket 10").press("Cancel")
    wait_for(lambda: OLD not in browser.text, what="figures of now")
    assert browser.script("return [...document.querySelectorAll('tbody input:checked')].map(each => each.ariaLabel)") == [f"Choose message {ids[0]}"]
    browser.press("Skip the 1 chosen").fill("Reason", "ticket 10").press("Skip").see("The request is stored", "finished").press("Close")
    wait_for(lambda: parked_count(world, ids) == 1, what="the skip")


# --- a token, and its roles -----------------------------------------------------------------------


def test_a_token_that_is_removed_ends_its_session_with_a_word_and_leads_back(browser, world):
    browser.go("#/audit?who=alice").see("Verb", "Reason")
    with configured(world, lambda text: text.replace(ALICE, "token-of-alice-that-is-another")):
        browser.see("Log in", "The session of this browser has ended", "the token of the session is no longer valid: log in again", seconds=60)
        assert len(alerts(browser)) == 1 and "the page that you were on comes back" in browser.text
        assert browser.focused().startswith("Token") and browser.violations() == []
        browser.fill("Token", ALICE).press("Log in").see("no [token] section has this token")
    browser.fill("Token", ALICE).press("Log in").see("Log out", "Audit")
    assert browser.driver.current_url.endswith("#/audit?who=alice")


def test_a_role_that_is_taken_away_is_said_at_the_button(browser, world):
    ids = park(world, "roles-1")
    browser.go(f"#/parked?publisher=main&from_id={ids[0]}&to_id={ids[0]}").press("Skip all that match …").fill("Reason", "ticket 11")
    with configured(world, lambda text: re.sub(rf"(tokens = {ALICE}\nroles = )read, operate, decide", r"\1read, operate", text)):
        browser.press("Skip").see("The token has no role that allows the request", "Log out, and log in with a token that has the role.")
        browser.find("dialog .problem")
        browser.press("Cancel").see("Retry all that match")
        wait_for(lambda: "Skip all that match" not in browser.text and "decide" not in browser.text, what="the buttons of the roles")
        assert parked_count(world, ids) == 1


# --- the relay is away ----------------------------------------------------------------------------


def test_a_relay_that_was_killed_is_waited_for(browser, world):
    """The session lasts, pages go on, and so does the stream of events."""
    browser.go("#/overview").see("Publisher main")
    first, handles = browser.driver.current_window_handle, []
    for page in ("sidecars", "parked"):
        browser.driver.switch_to.new_window("window")
        browser.open(f"{world.url}#/{page}").see(PAGES[page].replace("Parked messages of main", "Retry all that match"))
        handles.append(browser.driver.current_window_handle)
    browser.press("Retry all that match …").fill("Reason", "nobody answers")
    browser.driver.switch_to.window(first)
    browser.script("window.heard = []; window.addEventListener('relay-event', event => window.heard.push(event.detail.event))")
    world.relay.kill()
    for handle in [first, *handles]:
        browser.driver.switch_to.window(handle)
        browser.see("The relay does not answer", "check that the relay runs", OLD, seconds=40)
        assert len(alerts(browser)) == 1
    browser.press("Retry").see("look at the audit before you try again: the order may have been carried out").press("Cancel")
    browser.press("Retry all that match …").see("you can reach it, then try again.").press("Close")
    world.relay.start()
    for handle in [first, *handles]:
        browser.driver.switch_to.window(handle)
        wait_for(lambda: not alerts(browser) and OLD not in browser.text, 60, lambda: browser.text[:2000])
        assert "Log out" in browser.text
    for handle in handles:
        browser.driver.switch_to.window(handle)
        browser.driver.close()
    browser.driver.switch_to.window(first)
    # the browser has sent the id of its last event: that of another process means that it reads everything anew
    wait_for(lambda: "reset" in browser.script("return window.heard"), 60, "the stream of events")
    browser.script("window.heard.length = 0")
    order = {"verb": "pause", "section": "billing", "reason": "a test"}
    assert world.api.request("POST", "/v1/deliver/operate", order).status == 200
    wait_for(lambda: "deliver" in browser.script("return window.heard"), 60, "an event")
    assert world.api.request("POST", "/v1/deliver/operate", {**order, "verb": "resume"}).status == 200


# --- what has just changed ------------------------------------------------------------------------


def test_a_message_that_is_gone_before_the_click(browser, world):
    ids = park(world, "gone-1", "gone-2")
    place = f"#/parked?publisher=main&from_id={ids[0]}&to_id={ids[1]}"
    browser.go(place).see(str(ids[0]), str(ids[1]))
    for id in ids:
        browser.tick(f"Choose message {id}")
    skip(world, ids[:1])
    browser.press("Retry the 2 chosen").see(f"id {ids[0]} is not parked in publisher main, or no longer", "the page is loaded again then")
    browser.press("Close").see("Retry the 1 chosen")
    browser.press("Retry the 1 chosen").see("Changes\n1 message").fill("Reason", "ticket 15")
    skip(world, ids[1:])
    browser.press("Retry").see(f"id {ids[1]} is not parked").press("Cancel").see("No parked message matches.")
    # the page of one that goes while it is open
    ids = park(world, "gone-3")
    browser.go(f"#/parked/{ids[0]}?publisher=main").see("Message size too large").press("Skip").fill("Reason", "ticket 12")
    skip(world, ids)
    browser.press("Skip").see(f"id {ids[0]} is not parked").press("Cancel").see("it was published or skipped meanwhile")


def skip(world, ids):
    before = parked_count(world, ids)
    answer = world.api.as_(BOB).request("POST", "/v1/parked/skip", {"ids": [str(id) for id in ids], "reason": "of bob"})
    assert answer.status == 202, answer.text
    wait_for(lambda: parked_count(world, ids) < before, what="the skip of bob")


def test_an_id_that_was_decided_before_the_click(browser, world):
    browser.go("#/lookback/orders/2").press("Force commit").fill("Reason", "the books say so")
    order = {"verb": "rollback", "ids": [["orders", "2"]], "reason": "of bob"}
    assert world.api.as_(BOB).request("POST", "/v1/lookback/operate", order).status == 200
    browser.find("dialog button[type=submit]").click()
    browser.see("nothing that is chosen is undecided, or no longer", "the page is loaded again then")
    browser.keys(Keys.ESCAPE).see("rolled back", "by bob")
    assert "Force commit" not in browser.text


def test_a_job_that_ended_before_the_click(browser, world):
    first, last = publish_rows(world, "job", 400)
    order = {"publisher": "main", "filter": {"ids": f"{first}..{last}"}, "rate": 100}
    token = world.api.request("POST", "/v1/replays/preview", order).json["token"]
    job = world.api.request("POST", "/v1/replays", {**order, "token": token, "reason": "a test"}).json["job"]
    browser.go(f"#/jobs/{job}").press("Cancel the job").fill("Reason", "too late")
    wait_for(lambda: world.api.request("GET", f"/v1/jobs/{job}").json["state"] == "finished", what="the end of the job")
    browser.find("dialog button[type=submit]").click()
    browser.see("The request does not fit the present state", f"job {job} has ended (finished)")
    browser.keys(Keys.ESCAPE).see("finished")
    wait_for(lambda: "Cancel the job" not in browser.text, what="the page without the verb")


def test_a_publisher_that_was_dropped_while_its_page_is_open(browser, world):
    settings = world.relay.settings
    assert run_command(["publisher", "create", "other"], settings)[0] == 0
    before = world.path.read_text()
    world.path.write_text(before + '[publisher "other"]\n')
    world.relay.stop()
    world.relay.start()
    wait_for(lambda: answers(world), what="the relay")
    browser.go("#/publishers/other").see("Newest log row").press("Pause").see("Pause: other").fill("Reason", "ticket 13")
    world.path.write_text(before)
    world.execute("DELETE FROM outbox.publisher WHERE name = 'other'")
    browser.find("dialog button[type=submit]").click()
    browser.find("dialog .problem")
    browser.see("The publisher does not exist", "the database has no publisher other")
    browser.press("Cancel").see("The publisher does not exist")
    assert "Newest log row" not in browser.text and len(alerts(browser)) == 1
    world.relay.stop()
    world.relay.start()


def test_a_partition_that_was_dropped_elsewhere(browser, world):
    """The page of a message whose row goes, and the replay that was chosen before."""
    assert run_command(["partition", "make", "--from", "2026-01-02", "--table", "message"], world.relay.settings)[0] == 0
    (id,), = world.execute("INSERT INTO outbox.message (topic, key, payload, created_at) VALUES (%s, 'drop', '{}', '2026-01-02') RETURNING id",
                           (world.topic,))
    browser.go(f"#/where?id={id}").see("Kafka acknowledged it.", seconds=60)
    first = browser.driver.current_window_handle
    browser.driver.switch_to.new_window("window")
    browser.open(f"{world.url}#/replays?publisher=main&ids={id}").press("Replay all that match …").see("Sends\n1 message").fill("Reason", "ticket 14")
    status, _, error = run_command(["partition", "drop", "message_p20260102", "--yes", "--reason", "x", "--force", "retain,unpublished"], world.relay.settings)
    assert status == 0, error
    browser.find("dialog button[type=submit]").click()
    browser.see("matches, or its partition was dropped")
    browser.driver.close()
    browser.driver.switch_to.window(first)
    browser.see(f"no message has the id {id}", "its partition was dropped")
    assert "Kafka acknowledged it." not in browser.text


# --- Kafka is away --------------------------------------------------------------------------------


@pytest.mark.full("it waits half a minute for clients of a Kafka that is away")
def test_pages_that_need_kafka_say_that_it_is_away(browser, world, kafka):
    (id,), = world.execute("INSERT INTO outbox.message (topic, key, payload) VALUES (%s, 'away', '{}') RETURNING id", (world.topic,))
    browser.go(f"#/where?id={id}").see("Kafka acknowledged it.", "offset", seconds=60)
    first = browser.driver.current_window_handle
    browser.driver.switch_to.new_window("window")
    browser.open(f"{world.url}#/dead-letters").see("Read from the topic")
    with refused(kafka):
        browser.see("Kafka does not answer", "Check the brokers", OLD, seconds=60)
        second = browser.driver.current_window_handle
        browser.driver.switch_to.window(first)
        browser.see("Kafka does not answer: check the brokers", "Kafka acknowledged it.", seconds=60)
        for page in PAGES.keys() - {"dead-letters", "preflight", "where?id={id}"}:
            browser.go(f"#/{page.format(id=world.ids[1])}")
            wait_for(lambda: PAGES[page] in browser.script("return document.body.textContent"), what=f"{page}: {PAGES[page]}")
            assert alerts(browser) == [], page
    for window in (first, second):
        browser.driver.switch_to.window(window)
    browser.see("Read from the topic", seconds=60)
    wait_for(lambda: not alerts(browser), 60, lambda: browser.text)
    browser.driver.close()
    browser.driver.switch_to.window(first)


@contextlib.contextmanager
def refused(kafka):
    for node in kafka.nodes.values():
        node.proxy.refuse()
    yield
    for node in kafka.nodes.values():
        node.proxy.heal()


# --- the end of a session -------------------------------------------------------------------------


def test_a_session_whose_time_is_over_leads_back_to_its_page(short_session):
    browser, began = short_session
    browser.see("The session of this browser has ended", "log in again", "the page that you were on comes back", seconds=90)
    assert time.monotonic() - began > 55
    browser.fill("Token", ALICE).press("Log in").see("Audit", "the session ends at")
    assert browser.driver.current_url.endswith("#/audit?who=alice")
    assert browser.errors() == []
