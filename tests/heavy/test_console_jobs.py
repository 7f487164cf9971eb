"""Long work of the console in headless Chromium, on a relay that runs: many parked messages and a replay, each with preview,
progress, cancel and resume, a verification, and two operators at once."""

import contextlib
import re
import time
import types

import pytest

from support.balancer import Balancer
from support.browser import Browser
from support.console import ALICE, BOB, PAGES, browser, chromium, log_in, park, parked_count, publish_rows, world  # noqa: F401
from support.process import free_port, wait_for
from support.relay import Relay

MANY = 100_000      # rows; a preview counts no more than these
FIRST_ID = 10_000_000
PARK = """INSERT INTO outbox.parked (publisher, shard, id, created_at, event_id, topic, key, payload, tick, state, error, attempts, next_at)
    SELECT 'main', 0, i, now(), outbox.new_event_id(), %s, convert_to('k' || i, 'UTF8'), convert_to(i::text, 'UTF8'), 0, 'dead',
        %s, 3, now() FROM generate_series(%s, %s) i"""


@pytest.fixture
def park_many(world):
    """park_many(error, rows): dead rows of keys of their own, as a relay parks them, which Kafka takes now. Their ids: the
    first, and that behind the last."""
    def park(error, rows):
        world.execute(PARK, (world.topic, error, FIRST_ID, FIRST_ID + rows - 1))
        return FIRST_ID, FIRST_ID + rows

    yield park
    forget(world, (FIRST_ID, 2 * FIRST_ID))


def left(world, ids):
    return world.execute("SELECT count(*)::int FROM outbox.parked WHERE id >= %s AND id < %s", ids)[0][0]


def forget(world, ids):
    world.execute("DELETE FROM outbox.parked WHERE id >= %s AND id < %s", ids)


def shown_job(browser, world):
    """The job whose number is in the dialog or in the address."""
    name = re.search(r"parked-\d+|replay-\d+", browser.text)[0]
    return name, lambda: world.api.request("GET", f"/v1/jobs/{name}").json


def progress(browser):
    """The part that the progress bar of the page shows; None: there is none."""
    return browser.script("const bar = document.querySelector('dialog progress, main progress'); return bar && bar.value")


def see_bar(browser, above, most):
    wait_for(lambda: above < (progress(browser) or 0) <= most, 120,
             lambda: f"a bar between {above} and {most}: {progress(browser)}\n{browser.text[-600:]}")


class Held:
    """A parked row that the job comes to and cannot change before it is released."""

    def __init__(self, world, id):
        self.connection = world.connect(autocommit=False)
        self.connection.cursor().execute("SELECT FROM outbox.parked WHERE id = %s FOR UPDATE", (id,))

    def release(self):
        self.connection.close()


def see_growth(browser, steps):
    """Waits until the bar was seen to grow so often, and is not at its end."""
    seen = [0]

    def has_grown():
        value = progress(browser)
        if value is not None and value != seen[-1]:
            seen.append(value)
        return len(seen) > steps

    wait_for(has_grown, 120, lambda: f"a bar that grows: {seen}\n{browser.text[-600:]}")
    assert seen == sorted(seen) and seen[-1] < 1, seen


def instruct(browser, verb, reason, result):
    """A verb of the page of a job."""
    title = f"{verb} the job"
    browser.press(title).see(title + ":").fill("Reason", reason)
    browser.find("dialog button[type=submit]").click()
    browser.see(result).press("Close")


# --- parked messages ------------------------------------------------------------------------------


def test_many_messages_are_retried_with_progress_cancel_and_resume(browser, world, park_many, scale):
    """Rows that change between preview and action are left alone and counted."""
    rows = scale(MANY, 20_000)
    ids = park_many("many rows", rows)
    times = [time.monotonic()]
    browser.go(f"#/parked?error=many+rows&from_id={ids[0]}").see(f"{rows:,} dead")
    times.append(time.monotonic())
    browser.press("Retry all that match …").find("dialog form")
    times.append(time.monotonic())
    assert f"Changes\n{rows:,} messages\n" in browser.text and "at least" not in browser.text
    # the last ones, so that the job comes to them after it was cancelled: another attempt, another error, gone
    world.execute("UPDATE outbox.parked SET attempts = 4, changed = pg_current_xact_id() WHERE id = %s", (ids[1] - 1,))
    world.execute("UPDATE outbox.parked SET error = 'many rows, and others', changed = pg_current_xact_id() WHERE id = %s", (ids[1] - 2,))
    forget(world, (ids[1] - 4, ids[1] - 2))
    quarter, half = (Held(world, ids[0] + part) for part in (rows // 4, rows // 2))
    browser.fill("Reason", "the topic takes them").press("Retry").see("The request is stored")
    name, job = shown_job(browser, world)
    see_bar(browser, 0, 1 / 4)
    quarter.release()
    see_bar(browser, 1 / 4, 1 / 2)

    browser.press(name).see(f"Job {name}")
    instruct(browser, "Cancel", "wrong topic", "The job is being cancelled.")
    half.release()
    browser.see("cancelled", "Resume the job")
    stopped = job()
    assert stopped["state"] == "cancelled" and rows // 4 < int(stopped["done"]) <= rows // 2
    browser.see(f"{int(stopped['done']):,} of {rows:,} messages")
    assert left(world, ids) == rows - 2 - int(stopped["done"])
    assert job()["done"] == stopped["done"]

    instruct(browser, "Resume", "the topic was right", "The job goes on.")
    browser.see("finished", f"{rows - 4:,} of {rows:,} messages", "4 left alone, because they changed", seconds=600)
    times.append(time.monotonic())
    browser.see(f"{rows - 4:,} published", seconds=60)
    assert world.execute("SELECT id::int, state FROM outbox.parked WHERE id >= %s ORDER BY id", (ids[0],)) == [
        (ids[1] - 2, "dead"), (ids[1] - 1, "dead")]
    assert "Resume the job" not in browser.text and "Cancel the job" not in browser.text
    browser.go("#/audit?who=alice").see("the topic takes them", "wrong topic", "the topic was right")
    print(f"{rows} rows: list {times[1] - times[0]:.1f} s, preview {times[2] - times[1]:.1f} s, "
          f"retry with cancel and resume {times[3] - times[2]:.1f} s")


def test_two_operators_at_once(browser, world, park_many, scale):
    """Both have the same preview; each message is handled once, by one of the two, and the audit shows both."""
    rows = scale(20_000)
    ids = park_many("of both", rows)
    with Browser() as other:
        log_in(other, world, BOB)
        for each, verb in ((browser, "Retry"), (other, "Skip")):
            each.go("#/parked?error=of+both").press(f"{verb} all that match …").see(f"{rows:,} messages")
        browser.fill("Reason", "alice sends them")
        other.fill("Reason", "bob gives them up")
        browser.press("Retry")
        other.press("Skip")
        jobs = []
        for each in (browser, other):
            each.see("The request is stored", "finished", "left alone, because they changed", seconds=120)
            jobs.append(shown_job(each, world)[1]())
        assert left(world, ids) == 0
        assert [each["caller"] for each in jobs] == ["alice", "bob"]
        done, changed = [int(each["done"]) for each in jobs], [int(each["changed"]) for each in jobs]
        assert sum(done) == rows and changed == done[::-1], jobs
        for each in (browser, other):
            each.press("Close").go("#/audit").see("alice sends them", "bob gives them up")
        assert other.errors() == []


def test_a_preview_of_more_than_it_counts_shows_a_bound(browser, world, park_many):
    ids = park_many("very many rows", MANY + 1)
    answer = world.api.request("POST", "/v1/parked/preview", {"verb": "retry", "filter": {"error": "very many"}}).json
    assert 0 < int(answer["count"]) <= MANY < ids[1] - ids[0] and not answer["exact"], answer
    shown = f"at least {int(answer['count']):,} messages"
    browser.go("#/parked?error=very+many").press("Retry all that match …").find("dialog form")
    browser.see(f"Changes\n{shown}", f"Match\n{shown}", "The relay counts no more than the first 100,000")
    assert browser.violations() == []
    browser.press("Cancel")


# --- replays --------------------------------------------------------------------------------------


def test_messages_are_replayed_with_preview_progress_cancel_and_resume(browser, world):
    """The replay stands at the message, too, where an operator looks for it."""
    rows = 3000
    first, last = publish_rows(world, "again", rows)
    browser.go(f"#/where?id={first}").see("Kafka acknowledged it.").press("Send it once more").see("Replay all that match")
    assert f"ids={first}" in browser.driver.current_url
    browser.fill("Ids", f"{first}..{last}").fill("Messages a second", "100").choose("State", "published").press("Show")
    wait_for(lambda: f"ids={first}..{last}" in browser.driver.current_url, what="the selection in the address")
    browser.press("Replay all that match …").see(f"Sends\n{rows:,} messages", "at most 100 messages a second", world.topic)
    assert browser.violations() == []
    browser.fill("Reason", "a consumer lost its table").press("Replay").see("The replay of 3,000 messages is stored")
    name, job = shown_job(browser, world)
    see_growth(browser, 2)

    browser.press(name).see(f"Job {name}")
    instruct(browser, "Cancel", "too fast for it", "The job is being cancelled.")
    browser.see("cancelled", "Resume the job")
    stopped = job()
    assert stopped["state"] == "cancelled" and 0 < int(stopped["done"]) < rows
    world.execute("UPDATE outbox.replay SET rate = null")  # no need to wait for the rest
    instruct(browser, "Resume", "it is back", "The job goes on.")
    browser.see("finished", f"{rows:,} of {rows:,} messages")

    browser.go(f"#/where?id={first}").see("Replays", f"{world.topic}\tsent")
    browser.press(name.removeprefix("replay-")).see(f"Job {name}", "a consumer lost its table")
    browser.go("#/audit").see("a consumer lost its table", "too fast for it", "it is back")
    browser.go("#/replays").see("Replays of main", name)
    # nothing matches, and a topic that does not exist: said in the dialog
    browser.go("#/replays?publisher=main&key=nobody").press("Replay all that match …").see("take a term away, or widen its range")
    browser.press("Close").go(f"#/replays?publisher=main&ids={first}&target=lost").press("Replay all that match …").see("topic lost does not exist")
    browser.press("Close")


# --- verifications --------------------------------------------------------------------------------


def test_a_publisher_is_verified(browser, world):
    browser.go("#/publishers/main").press("Verify …").see("compares every row of the table with every record")
    assert browser.violations() == []
    browser.fill("Reason", "before the audit").press("Verify").see("The verification is stored")
    name = wait_for(lambda: re.search(r"verify-\d+", browser.text), what="the job's name")[0]
    browser.press(name).see(f"Job {name}", "finished", "Found", "rows and records", "before the audit")
    result = world.api.request("GET", f"/v1/jobs/{name}").json["result"]
    browser.see("nothing found" if result["clean"] else f"{result['lost']:,} lost" if result["lost"] else "Found")
    assert browser.violations() == []
    browser.go("#/jobs?kind=verify").see(name, "before the audit", "finished")
    assert browser.violations() == []


# --- several processes ----------------------------------------------------------------------------


@pytest.fixture
def fleet(world, tmp_path):
    """Three more relays with one session key, behind a load balancer that changes the process with each request."""
    ports = [free_port() for _ in range(3)]
    key = tmp_path / "session-key"
    key.write_text("a-key-of-sessions-that-nobody-will-guess")
    key.chmod(0o600)
    settings = {name: value for name, value in world.relay.settings.items() if name != "OUTBOX_RELAY_ADMIN_LISTEN"}
    with contextlib.ExitStack() as stack:
        balancer = stack.enter_context(Balancer(ports))
        relays = []
        for port in ports:
            folder = tmp_path / str(port)
            folder.mkdir()
            path = folder / "relay.ini"
            path.write_text(re.sub(r"(?m)^path = .*", f"path = {folder}/state", world.path.read_text()))
            path.chmod(0o600)
            relays.append(stack.enter_context(Relay({**settings, "OUTBOX_RELAY_CONFIG": str(path), "OUTBOX_RELAY_API_LISTEN": str(port),
                                                     "OUTBOX_RELAY_API_SESSION_KEY_FILE": str(key), "OUTBOX_RELAY_API_PUBLIC_URL": balancer.url})))
            relays[-1].wait_event("api_listens")
        yield types.SimpleNamespace(url=balancer.url + "/console/", balancer=balancer, relays=relays)


def names_of(browser, page, count):
    """The processes that answered a page, until there were so many."""
    seen = set()

    def has_seen():
        browser.go("#/nothing").see("There is no such page").go(f"#/{page}").see("answered")
        seen.update(element.text for element in browser.driver.find_elements("css selector", "main p.muted code") if element.text)
        return len(seen) >= count

    wait_for(has_seen, 60, lambda: f"{count} processes at {page}: {seen}")


def test_a_balancer_may_change_the_process_with_each_request(browser, world, fleet):
    log_in(browser, fleet, ALICE)
    browser.script("window.heard = []; window.addEventListener('relay-event', event => window.heard.push(event.detail.event))")
    for page, text in PAGES.items():
        browser.go(f"#/{page.format(id=world.ids[1])}").see("Log out")
        wait_for(lambda: text in browser.script("return document.body.textContent"), what=f"{page}: {text}")
    assert min(fleet.balancer.served[port] for port in fleet.balancer.ports) >= 5, fleet.balancer.served

    # who gave the figures: the database, or one of the processes, with its name
    browser.go("#/parked").see("The figures come from the database.")
    browser.go("#/publishers").see("Source of the figures\ndatabase")
    for page in ("overview", "sidecars", "dedup"):
        names_of(browser, page, 2)

    # the preview, the order and its progress come from different processes
    ids = park(world, "fleet-1", "fleet-2")
    browser.go(f"#/parked?from_id={ids[0]}&to_id={ids[1]}").press("Skip all that match …").fill("Reason", "from any process").press("Skip")
    browser.see("skip of 2 messages", "finished", "2 of 2 messages").press("Close")
    assert parked_count(world, ids) == 0
    assert ("alice", "from any process") in world.execute("SELECT caller, reason FROM outbox.audit")

    # the process of the stream ends, and another one: the session and the stream of events go on with the third
    browser.go("#/overview")
    *ended, third = sorted(fleet.balancer.ports, key=lambda port: port != fleet.balancer.streams[-1])
    browser.script("window.heard.length = 0")  # from here on, since the new stream begins with a reset as soon as it is there
    for port in ended:
        fleet.relays[fleet.balancer.ports.index(port)].stop()
    wait_for(lambda: fleet.balancer.streams[-1] == third and "reset" in browser.script("return window.heard"), 90,
             lambda: f"the reset of a stream of {third}: {fleet.balancer.streams}, {browser.script('return window.heard')}")
    assert fleet.balancer.served[third] > 5
    browser.go("#/audit").see("from any process", "Log out")
