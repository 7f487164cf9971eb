"""Every verb of the console in headless Chromium, on a relay that runs: its preview, its reason, its result, its row in the
audit, and what a role does not see. test_console.py has the pages."""

import csv
import re
import types

from selenium.webdriver.common.keys import Keys

from support.api import caller
from support.browser import NARROW, WIDE
from support.console import ALICE, BOB, LIMITED, WATCHER, browser, chromium, log_in, park, parked_count, world  # noqa: F401
from support.postgres import Postgres, carry
from support.process import free_port, wait_for
from support.relay import Relay


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
    browser.go("#/lookback?state=undecided").see("No id of this page is undecided.")
    assert "parked" not in browser.script("return document.querySelector('ul.totals')?.textContent ?? ''")
    browser.go("#/lookback").see("orders")
    assert re.fullmatch(r"\d+ overdue\d+ parked", browser.script("return document.querySelector('ul.totals').textContent"))
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
    browser.go("#/overview").see("An operator paused publisher main.", "OutboxPublisherPaused, since")
    assert browser.violations() == []
    browser.press("Resume it")
    browser.press("Resume").fill("Reason", "it is back").press("Resume").see("main is publishing.").press("Close").see("Pause")
    assert not is_paused()
    assert ("alice", "it is back") in world.execute("SELECT caller, reason FROM outbox.audit")


def test_a_topic_of_a_publisher_is_paused_and_resumed(browser, world, kafka):
    def paused():
        return world.execute("SELECT paused_topics -> 'stock' IS NOT NULL FROM outbox.publisher WHERE name = 'main'") == [(True,)]

    kafka.create_topic("stock")
    browser.go("#/publishers/main").press("Pause a topic …").fill("Kafka topic", "stock").fill("Reason", "stock is counted")
    browser.press("Pause the topic").see("stock of main is paused.").press("Close").see("Resume stock …")
    assert paused()
    world.execute("INSERT INTO outbox.message (topic, key, payload) SELECT 'stock', i::text, '{}' FROM generate_series(1, 3) i")
    browser.go("#/overview").see("3 messages of main wait because an operator paused their topic.", "An operator paused topic stock of publisher main.").press("Resume it")
    browser.press("Resume stock …").fill("Reason", "it is counted").press("Resume the topic").see("stock of main is publishing.")
    browser.press("Close").see("Pause a topic …")
    assert not paused()
    browser.go("#/overview").see("Publisher main")
    wait_for(lambda: "paused their topic" not in browser.text, what=lambda: browser.text)
    kafka.delete_topic("stock")
    assert ("alice", "it is counted") in world.execute("SELECT caller, reason FROM outbox.audit")


def test_a_publisher_is_split(browser, world):
    browser.go("#/publishers/main").press("Split …").see("Shards now", "cancelled, and the publisher goes on as before")
    assert browser.violations() == []
    browser.fill("New number of shards", "65").fill("Reason", "more throughput")
    browser.find("dialog button[type=submit]").click()
    assert browser.script("return document.querySelector('dialog input:invalid').name") == "shards"  # said by the browser
    browser.fill("New number of shards", "2")
    browser.find("dialog button[type=submit]").click()
    browser.see("main has 2 shards.").press("Close").see("0 of 2", "1 of 2")
    assert world.execute("SELECT shards FROM outbox.publisher WHERE name = 'main'") == [(2,)]
    assert ("alice", "split", "more throughput") in world.execute("SELECT caller, verb, reason FROM outbox.audit")


def test_a_rebase_is_refused_where_it_was_requested(browser, world):
    """Its question is that of the command; and a relay owns the publisher."""
    browser.go("#/publishers/main").press("Rebase …").see("Plan of the rebase", "written here", "Rebase all publishers?")
    assert browser.violations() == []
    browser.fill("Confirm", "yes").fill("Reason", "restored").find("dialog button[type=submit]").click()
    browser.see('confirm is not "Rebase all publishers?"')
    browser.fill("Confirm", "Rebase all publishers?").tick("New identities: the original goes on publishing")
    browser.find("dialog button[type=submit]").click()
    browser.see("The request does not fit the present state").keys(Keys.ESCAPE)
    assert world.execute("SELECT count(*) FROM outbox.audit WHERE verb = 'rebase'") == [(0,)]


def test_a_restored_database_publishes_again_after_a_rebase(browser, world, postgres, tmp_path):
    """A dump in another cluster, with a relay and its console of its own."""
    name = world.execute("SELECT current_database()::text")[0][0]
    with Postgres() as other:
        carry(postgres, other, name)
        path = tmp_path / "relay.ini"
        path.write_text('[publisher "main"]\n' + caller("alice", ALICE, "read, operate, decide"))
        path.chmod(0o600)
        port = free_port()
        with Relay({"DATABASE_URL": other.dsn(name), "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": world.bootstrap,
                    "OUTBOX_RELAY_CONFIG": str(path), "OUTBOX_RELAY_API_LISTEN": str(port)}) as relay:
            relay.wait_event("publisher_elsewhere")
            browser.open(f"http://127.0.0.1:{port}/console/#/publishers/main")
            log_in(browser, types.SimpleNamespace(url=f"http://127.0.0.1:{port}/console/"), ALICE)
            browser.go("#/publishers/main").see("carried here from another cluster").press("Rebase …").see("Plan of the rebase", "carried here")
            browser.fill("Confirm", "Rebase all publishers?").fill("Reason", "moved to another machine").find("dialog button[type=submit]").click()
            browser.see("Every publisher has a new epoch.").press("Close")
            wait_for(lambda: "carried here from another cluster" not in browser.text and "nobody" not in browser.text, what=lambda: browser.text)
            assert other.execute("SELECT caller, reason FROM outbox.audit WHERE verb = 'rebase'", None, name) == [
                ("alice", "moved to another machine")]


def test_a_publisher_is_created_and_dropped(browser, world):
    browser.go("#/publishers").press("Create a publisher …").see("keeps partitions from being dropped")
    assert browser.violations() == []
    browser.fill("Name", "late").fill("Start", "tomorrow").fill("Reason", "ticket 21").find("dialog button[type=submit]").click()
    browser.see("start is neither now nor beginning").find("dialog .problem")
    browser.fill("Start", "now").fill("Shards", "2").find("dialog button[type=submit]").click()
    browser.see('late has 2 shards in [postgres "main"].').press("Close").see("not configured", "Shards of late")
    assert world.execute("SELECT shards FROM outbox.publisher WHERE name = 'late'") == [(2,)]

    # the question is that of the command; a publisher that is configured and owned is dropped with further words only
    drop_buttons = browser.driver.find_elements("xpath", "//section[.//h2[.='late']]//button[.='Drop …']")
    drop_buttons[0].click()
    browser.see("Drop the publisher late", "Parked messages that go\n0 messages", "Drop publisher late?")
    assert browser.violations() == [] and "Even so" not in browser.text
    browser.fill("Confirm", "yes").fill("Reason", "ticket 22").find("dialog button[type=submit]").click()
    browser.see('confirm is not "Drop publisher late?"').fill("Confirm", "Drop publisher late?").find("dialog button[type=submit]").click()
    browser.see("The publisher late is dropped.").press("Close")
    wait_for(lambda: "not configured" not in browser.text, what=lambda: browser.text)
    assert world.execute("SELECT caller, verb, reason FROM outbox.audit WHERE publisher = 'late' ORDER BY id") == [
        ("alice", "publisher create", "ticket 21"), ("alice", "publisher drop", "ticket 22")]

    browser.go("#/publishers/main").press("Drop …").see("is the last one", "Even so (owned)", "Even so (last)", "Even so (configured)")
    assert browser.violations() == []
    browser.tick("Even so (last): it is the last publisher of the database").fill("Confirm", "Drop publisher main?").fill("Reason", "ticket 23")
    browser.find("dialog button[type=submit]").click()
    browser.see("is in the configuration").find("dialog .problem")
    browser.keys(Keys.ESCAPE)
    assert world.execute("SELECT name FROM outbox.publisher") == [("main",)]


def partition_names(world):
    return [row["partition"] for row in world.api.request("GET", "/v1/partitions?table=message").json["rows"]]


def test_partitions_are_made_and_dropped(browser, world):
    browser.go("#/partitions?table=message").see("message_default", "message_p20270105").press("Make partitions …")
    assert browser.violations() == []
    browser.choose("Table", "message").fill("From, in UTC", "next week").fill("Reason", "ticket 24").press("Make").see("from: ")
    browser.find("dialog .problem")
    browser.fill("From, in UTC", "2027-01-06").press("Make").see("message: a partition that begins at").press("Close").see("message_p20270106")
    browser.press("Make partitions …").fill("Reason", "ticket 25").press("Make").see("message: no partition was missing").press("Close")

    browser.press("message_p20270106").see("Partition message_p20270106", "Its rows are in the table.").press("Drop …")
    browser.see("0 rows", "keeps it until", "Even so (retain): it is younger than retain", "Drop message_p20270106?")
    assert browser.violations() == []
    browser.fill("Confirm", "Drop message_p20270106?").fill("Reason", "ticket 26").press("Drop").see("is not dropped")
    browser.find("dialog .problem")
    browser.tick("Even so (retain): it is younger than retain").press("Drop").see("message_p20270106 is dropped.").press("Close").see("message_p20270105")
    assert "message_p20270106" not in partition_names(world) and browser.driver.current_url.endswith("#/partitions")
    browser.go("#/partitions/message_p20270106").see("There is no partition message_p20270106: it was dropped or detached meanwhile.")
    browser.go("#/partitions/message_default").see("rows that no other partition takes")
    assert "Drop" not in browser.text
    assert world.execute("SELECT caller, verb, reason FROM outbox.audit WHERE verb LIKE 'partition%%' ORDER BY id") == [
        ("alice", "partition make", "ticket 24"), ("alice", "partition make", "ticket 25"), ("alice", "partition drop", "ticket 26")]


def test_a_partition_is_detached_with_the_keyboard(browser, world):
    assert world.api.request("POST", "/v1/partitions", {"table": "message", "from": "2027-01-07", "reason": "a test"}).status == 200
    browser.go("#/partitions?table=message").see("message_p20270107")
    browser.tab_to("message_p20270107").keys(Keys.ENTER).see("Partition message_p20270107")
    browser.tab_to("Detach …").keys(Keys.ENTER).see("It becomes a table of its own", "Even so (retain)")
    wait_for(lambda: browser.focused().startswith("Even so"), what=lambda: f"the focus in the dialog: {browser.focused()}")
    browser.keys(Keys.SPACE).tab_to("Confirm").keys("Detach message_p20270107?").tab_to("Reason").keys("ticket 27", Keys.TAB, Keys.ENTER)
    browser.see("message_p20270107 is detached.")
    assert browser.focused() == "Close"
    browser.keys(Keys.ENTER).see("message_p20270105")
    assert "message_p20270107" not in partition_names(world)
    assert world.execute("SELECT to_regclass('outbox.message_p20270107') IS NOT NULL") == [(True,)]


def test_a_sidecar_of_another_process_is_paused_and_resumed(browser, world, tmp_path):
    """The page of a process that does not run the section names those that do."""
    path = tmp_path / "relay.ini"
    path.write_text('[publisher "main"]\nmax_attempts = 1\n' + caller("alice", ALICE, "read, operate, decide"))
    path.chmod(0o600)
    port = free_port()
    settings = {name: world.relay.settings[name] for name in ("DATABASE_URL", "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS")}
    process = world.api.request("GET", "/v1/overview").json["process"]["name"]
    with Relay({**settings, "OUTBOX_RELAY_CONFIG": str(path), "OUTBOX_RELAY_API_LISTEN": str(port)}) as relay:
        relay.wait_event("api_listens")
        other = types.SimpleNamespace(url=f"http://127.0.0.1:{port}/console/")
        browser.open(other.url)
        log_in(browser, other, ALICE)
        browser.go("#/sidecars").see("This process runs no [deliver] section", "In other processes", "billing", process, "seen")
        for size in (NARROW, WIDE):
            browser.resize(size)
            assert browser.violations() == [] and browser.overflowing() == [] and not browser.is_too_wide(), size
        browser.press("Pause billing").fill("Reason", "ticket 28").press("Pause").see("billing is paused in every process").press("Close").see("Resume billing")
        wait_for(lambda: world.api.request("GET", "/v1/deliver").json["sections"][0]["paused"], what="the pause in the other process")
        browser.press("Resume billing").fill("Reason", "ticket 29").press("Resume").see("billing is running in every process").press("Close").see("Pause billing")
        wait_for(lambda: not world.api.request("GET", "/v1/deliver").json["sections"][0]["paused"], what="the resume in the other process")
    # its own console has the section once
    browser.open(world.url)
    log_in(browser, world, ALICE)
    browser.go("#/sidecars").see("Reload the rules")
    assert "In other processes" not in browser.text


def test_a_list_is_saved_with_the_filter_of_its_page(browser, world, tmp_path):
    browser.driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    keys = park(world, "csv-1", "csv-2")
    for name, address, is_there in [
            ("parked", "parked?publisher=main&key=csv-2", lambda rows: [row["id"] for row in rows] == [str(keys[1])]),
            ("scheduled", "scheduled?key=later", lambda rows: [row["key"] for row in rows] == ["later"]),
            ("jobs", "jobs?kind=retry", lambda rows: rows and all(row["kind"] == "retry" for row in rows)),
            ("replays", "replays", lambda rows: rows == []),
            ("audit", "audit?who=alice", lambda rows: rows and all(row["caller"] == "alice" for row in rows)),
            ("lookback", "lookback?type=orders", lambda rows: rows and all(row["biz_type"] == "orders" for row in rows)),
            ("partitions", "partitions?table=lookback", lambda rows: rows and all(row["partition"].startswith("lookback_") for row in rows)),
            ("dead-letters", "dead-letters?section=billing&id=bad", lambda rows: [row["id"] for row in rows] == ["bad"]),
            ("preflight", "preflight", lambda rows: rows and all(row["severity"] for row in rows)),
            ("publishers", "publishers", lambda rows: [row["name"] for row in rows] == ["main"])]:
        browser.go(f"#/{address}").press("Save the list as CSV")
        file = tmp_path / f"{name}.csv"
        wait_for(file.exists, 30, f"{name}.csv")
        assert is_there(list(csv.DictReader(file.read_text().splitlines()))), (name, file.read_text())
    # a refusal is said beside the link
    browser.go("#/parked?publisher=main&key=csv-2").see("Save the list as CSV")
    browser.script("const real = window.fetch; window.fetch = (path, options) => real(path.replace('limit=1', 'limit=x'), options)")
    browser.press("Save the list as CSV").see("limit=x")
    browser.driver.refresh()


def test_ids_that_match_are_asked_at_once(browser, world):
    browser.go("#/lookback?type=orders").press("Ask now: all that match …").see("Match", "The ids that have waited longest")
    browser.fill("Reason", "the shop is back").press("Ask now").see("Done for").press("Close")


def test_dead_letters_go_back(browser, world):
    browser.go("#/dead-letters?reason=422").see("bad", "422", "Send all that match back")
    browser.press("Send all that match back …").see("1 dead letter").fill("Reason", "ticket 8").press("Send back")
    browser.see("finished", "1 of 1 message").press("Close").see("went back")
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
    world.execute("""INSERT INTO outbox.archive (of_table, name, from_at, to_at, state, host, folder, file)
        SELECT 'message', 'message_old_' || i, '2019-01-01Z', '2019-01-02Z', 'archived', 'relay-1', '/archive', 'file' FROM generate_series(1, 100) i""")
    browser.go("#/partitions").see("message_old_100").press("Next page").see("First page", "message_default", "unique_ledger_default")
    assert "message_old" not in browser.text and browser.violations() == []
    browser.go("#/partitions/message_old_7").see("Partition message_old_7", "relay-1:/archive/file")
    world.execute("DELETE FROM outbox.archive")


def test_a_caller_sees_the_verbs_of_its_roles_only(browser, world):
    log_in(browser, world, WATCHER)
    browser.go("#/parked").see("Next page")
    assert "Retry" not in browser.text and "Skip all" not in browser.text
    browser.go("#/sidecars").see("billing")
    assert "Pause" not in browser.text
    browser.go("#/partitions").see("message_default")
    assert "Make partitions" not in browser.text
    browser.go("#/partitions/message_p20270105").see("Its rows are in the table.")
    assert "Drop" not in browser.text and "Detach" not in browser.text
    browser.go("#/publishers").see("Newest log row")
    assert "Create" not in browser.text and "Drop" not in browser.text
    log_in(browser, world, LIMITED)
    browser.go("#/audit").see("is not for")
    assert "Choose a publisher, section or type that your token is for." in browser.text
    browser.go("#/parked").see("Retry all that match")
    assert "Skip all" not in browser.text
