"""Every verb of the console in headless Chromium, on a relay that runs: its preview, its reason, its result, its row in the
audit, and what a role does not see. test_console.py has the pages."""

from selenium.webdriver.common.keys import Keys

from support.console import BOB, LIMITED, WATCHER, browser, chromium, log_in, park, parked_count, world  # noqa: F401
from support.process import wait_for


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


def test_two_operators_at_once(browser, world):
    """One message of the preview is skipped by somebody else before alice confirms; the audit shows both."""
    ids = park(world, "two-1", "two-2", "two-3")
    browser.go(f"#/parked?publisher=main&from_id={ids[0]}&to_id={ids[-1]}").see("3 dead")
    browser.press("Skip all that match …").see("3 messages").fill("Reason", "of alice")
    answer = world.api.as_(BOB).request("POST", "/v1/parked/skip", {"ids": [str(ids[0])], "reason": "of bob"})
    assert answer.status == 202, answer.text
    wait_for(lambda: parked_count(world, ids) == 2, what="the skip of bob")
    browser.press("Skip").see("skip of 2 messages", "finished").press("Close")
    wait_for(lambda: parked_count(world, ids) == 0, what="the skip of alice")
    assert {("bob", "of bob"), ("alice", "of alice")} <= set(world.execute("SELECT caller, reason FROM outbox.audit"))


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


def test_a_publisher_is_paused_and_resumed(browser, world):
    def is_paused():
        return world.execute("SELECT paused_at IS NOT NULL FROM outbox.publisher WHERE name = 'main'") == [(True,)]

    browser.go("#/publishers/main").press("Pause").fill("Reason", "the ledger is moved").press("Pause").see("main is paused.")
    browser.press("Close").see("paused", "since", "Resume")
    assert is_paused()
    browser.press("Resume").fill("Reason", "it is back").press("Resume").see("main is publishing.").press("Close").see("Pause")
    assert not is_paused()
    assert ("alice", "it is back") in world.execute("SELECT caller, reason FROM outbox.audit")


def test_ids_that_match_are_asked_at_once(browser, world):
    browser.go("#/lookback?type=orders").press("Ask now: all that match …").see("Match", "The ids that have waited longest")
    browser.fill("Reason", "the shop is back").press("Ask now").see("Done for").press("Close")


def test_dead_letters_go_back(browser, world):
    browser.go("#/dead-letters?reason=422").see("bad", "422", "Send all that match back")
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
