"""Verifications as jobs of a relay, over the HTTP interface and the command line: the same result as without a relay, progress,
cancel, resume, and processes that end in the middle."""

import contextlib
import json
import os
import re
import signal
import subprocess

import pytest
from confluent_kafka import Producer

from support.api import OPERATE, READ, caller, start_api, waits
from support.auditor import count_records, read_topics
from support.process import wait_for
from support.relay import binary, environment, run_command

FOUND, REFUSED, UNAVAILABLE = 1, 65, 69
RETRY, LIMITED = "token-of-one-who-may-retry", "token-of-one-with-limits"
TOKENS = (caller("alice", OPERATE, "read, operate") + caller("watcher", READ, "read")
          + '[postgres "main"]\n[publisher "main"]\n')
# It would publish each row as well, so it is only where no row is.
OTHER = caller("erin", LIMITED, "read, operate", publishers="other") + '[publisher "other"]\n'
ROUND, ROUNDS = 32768, 5  # rows in a MiB; rounds take a second or more together
WRITE = """INSERT INTO outbox.message (topic, key, payload) SELECT %s, 'k' || n %% 10, '{"n": ' || n || '}'
    FROM generate_series(1, %s) n"""
LOSE = """INSERT INTO outbox.message (txid, topic, key, payload) SELECT min(txid::text)::xid8, %s, 'k1', 'x'
    FROM outbox.message"""

END_READER = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%copy (%'"""


@pytest.fixture
def start(make_relay, tmp_path):
    """start(name): the api of a relay with a configuration of its own."""
    def begin(name="one", more=""):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        relay, api = start_api(make_relay, folder, OPERATE, TOKENS + more)
        api.relay = relay
        return api

    return begin


@pytest.fixture
def write(database, kafka, topic):
    """write(rows): rows that the relay has published."""
    def run(relay, rows):
        database.execute(WRITE, (topic, rows))
        relay.wait_for(lambda: count_records(kafka.bootstrap, [topic]) == rows, what="the records")
        relay.wait_for(lambda: (relay.metric("relay_published_total") or 0) >= rows, what="their acknowledgement")

    return run


@pytest.fixture
def commands(database, kafka, tmp_path):
    """local(…) and remote(api, …): status, output and error of `verify`."""
    def local(*arguments):
        return run_command(["verify", "--config", tmp_path / "one" / "relay.ini", *arguments],
                           {"DATABASE_URL": database.dsn, "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap})

    def remote(api, *arguments, token=OPERATE):
        return run_command(["verify", "--server", f"http://127.0.0.1:{api.port}", *arguments], {"OUTBOX_RELAY_TOKEN": token})

    return local, remote


@contextlib.contextmanager
def no_more_rows(database):
    """A verification cannot read another round of rows; the relay and the interface go on."""
    session = database.postgres.connect(database.name)
    with contextlib.closing(session), session.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("LOCK TABLE outbox.renumbered IN ACCESS EXCLUSIVE MODE")
        yield
        cursor.execute("ROLLBACK")


def ask(api, path, status=200, **body):
    answer = api.request("POST" if body else "GET", path, body or None)
    assert answer.status == status, answer.text
    return answer.json


def order(api, **options):
    """The name of the job."""
    stored = ask(api, "/v1/verifications", 202, publisher="main", reason="ticket 7", **options)
    assert (stored["publisher"], stored["postgres"]) == ("main", "main")
    return stored["job"]


def job(api, name):
    return ask(api, f"/v1/jobs/{name}")


def ended(api, name, state="finished"):
    return wait_for(lambda: (shown := job(api, name))["state"] == state and shown, 120, what=lambda: job(api, name))


def begun(api, name):
    return wait_for(lambda: int((shown := job(api, name))["done"]) > 0 and shown, 120, what=lambda: job(api, name))


def owner_of(api, name, candidates):
    """The process of one of these relays, as soon as it has the job."""
    owners = {f":{pid(candidate)}": pid(candidate) for candidate in candidates}
    return wait_for(lambda: next((process for end, process in owners.items() if (job(api, name)["owner"] or "").endswith(end)), None),
                    120, what=lambda: job(api, name))


def pid(api):
    return api.relay.process.pid


# --- the same as without a relay ------------------------------------------------------------------

def timeless(text):
    return re.sub(r"in \d+\.\d s|\"seconds\":[0-9.e-]+", "TIME", text)


def equal(commands, api, status, *arguments):
    """The output of both."""
    local, remote = commands
    expected, given = local("--publisher", "main", *arguments), remote(api, "--publisher", "main", *arguments)
    assert expected[0] == status, expected
    assert (given[0], timeless(given[1])) == (expected[0], timeless(expected[1])), given
    return given[1]


def repeat_first_record(kafka, topic):
    record = next(iter(read_topics(kafka.bootstrap, [topic])))
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(topic, record.payload, record.key, record.partition, headers=record.headers)
    assert producer.flush(30) == 0


def test_the_command_prints_the_same_with_a_relay(start, write, commands, database, kafka, topic):
    api = start()
    write(api.relay, 20)
    assert equal(commands, api, 0).endswith("\nclean\n")
    verdict = json.loads(equal(commands, api, 0, "--json", "--sequence", "n", "--no-duplicates", "--from", "2020-01-01"))
    assert (verdict["clean"], verdict["published"], verdict["from"]) == (True, 20, "2020-01-01T00:00:00Z")

    repeat_first_record(kafka, topic)
    assert "clean" in equal(commands, api, 0)
    assert "NOT CLEAN" in equal(commands, api, FOUND, "--no-duplicates")
    database.execute(LOSE, (topic,))
    database.execute("DELETE FROM outbox.message WHERE id = (SELECT min(id) + 5 FROM outbox.message)")
    assert "NOT CLEAN" in equal(commands, api, FOUND, "--memory", "1")
    verdict = json.loads(equal(commands, api, FOUND, "--json"))
    assert (verdict["lost"], verdict["phantom"], verdict["duplicates"]) == (1, 1, 1)

    # the job of the last command
    shown = ask(api, "/v1/jobs?kind=verify&limit=1")["rows"][0]
    assert (shown["state"], shown["clean"], shown["exact"]) == ("finished", False, True) and "result" not in shown
    assert shown["done"] == shown["total"] == str(21 - 1 + 21)  # rows and records
    assert job(api, shown["id"])["result"]["samples"] == verdict["samples"]
    assert (shown["caller"], shown["reason"], shown["publisher"]) == ("alice", "outbox-relay verify", "main")


def test_a_wrong_call_of_the_command_says_why(start, commands):
    api, (_, remote) = start(), commands
    for words, why in [(["--from", "yesterday"], "--from"), (["--from", "2026-01-02", "--to", "2026-01-01"], "does not lie before"),
                       (["--memory", "257"], "memory is no whole number from 1 to 256"), (["--publisher", "nobody"], "nobody")]:
        status, output, error = remote(api, *words)
        assert (status, output) == (REFUSED, "") and why in error, (words, error)
    assert remote(api, token=READ)[0] == 77


def test_an_interrupted_command_says_how_to_cancel_the_job(start, write, database):
    api = start()
    write(api.relay, 10)
    with no_more_rows(database):
        command = subprocess.Popen([binary(), "verify", "--server", f"http://127.0.0.1:{api.port}", "--publisher", "main"],
                                   env=environment({"OUTBOX_RELAY_TOKEN": OPERATE}), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        wait_for(lambda: [row["id"] for row in ask(api, "/v1/jobs")["rows"] if row["state"] == "running"], 60, "the job")
        command.send_signal(signal.SIGINT)
        output, error = command.communicate(timeout=60)
    assert (command.returncode, output) == (UNAVAILABLE, b"")
    assert b"verify-1 goes on at the relay: GET /v1/jobs/verify-1 shows it, and POST /v1/jobs/verify-1/cancel" in error
    assert ended(api, "verify-1")["clean"] is True


# --- the job --------------------------------------------------------------------------------------

def test_a_verification_has_progress_and_is_cancelled_and_resumed(start, write, database):
    api = start()
    write(api.relay, ROUND * ROUNDS)
    name = order(api, memory=1)
    begun(api, name)
    with no_more_rows(database):
        shown = job(api, name)
        assert (shown["state"], shown["kind"], shown["exact"], shown["clean"]) == ("running", "verify", False, None)
        assert 0 < int(shown["done"]) < int(shown["total"]) and shown["per_second"] > 0 and shown["seconds_left"] >= 0
        assert (shown["filter"], shown["result"], shown["error"]) == ({"memory": "1"}, None, None)
        assert [row["id"] for row in ask(api, "/v1/jobs?open=yes")["rows"]] == [name]

        ask(api, f"/v1/jobs/{name}/cancel", reason="not now")
        stopped = ended(api, name, "cancelled")
        assert stopped["owner"] is None and stopped["ended_at"] and stopped["result"] is None
        # it is waiting for Postgres: the wait ends as well
        wait_for(lambda: database.execute("SELECT lease_until <= clock_timestamp() FROM outbox.verification") == [(True,)], 10,
                 "the end of the work")
        assert api.request("POST", f"/v1/jobs/{name}/cancel", {"reason": "r"}).code == "not_applicable"
        ask(api, f"/v1/jobs/{name}/resume", reason="now")
        assert job(api, name)["state"] in ("waiting", "running")
    shown = ended(api, name)
    assert (shown["clean"], shown["result"]["published"]) == (True, ROUND * ROUNDS)
    assert shown["done"] == shown["total"] and shown["exact"]
    assert api.request("POST", f"/v1/jobs/{name}/resume", {"reason": "r"}).code == "not_applicable"
    assert database.execute("SELECT verb, publisher, caller, reason, target FROM outbox.audit ORDER BY id") == [
        ("verify", "main", "alice", "ticket 7", {"verification": 1, "filter": {"memory": 1}}),
        ("cancel", "main", "alice", "not now", {"verification": 1}), ("resume", "main", "alice", "now", {"verification": 1})]


def test_a_verification_begins_at_once(start, database):
    """Not when the relay looks for jobs of other processes, every 5 s; of several, since the machine may be busy."""
    api = start()
    for _ in range(4):
        ended(api, order(api))
    assert min(waits(database, "verification")[1:]) < 1

    for _ in range(3):
        (name,), = database.execute("""INSERT INTO outbox.verification (reason, publisher, filter, state)
            VALUES ('r', 'main', '{}', 'stopped') RETURNING 'verify-' || id""")
        ask(api, f"/v1/jobs/{name}/resume", reason="again")
        ended(api, name)
    resumed = database.execute("""SELECT min(extract(epoch FROM v.begun_at - a.at)) FROM outbox.verification v
        JOIN outbox.audit a ON a.verb = 'resume' AND (a.target ->> 'verification')::bigint = v.id""")
    assert resumed[0][0] < 1


def test_another_process_begins_it_again(start, write, database):
    apis = [start("one"), start("two"), start("three")]
    write(apis[0].relay, 100)
    with no_more_rows(database):
        name = order(apis[0])
        kill, *left = sorted(apis, key=lambda api: pid(api) != owner_of(apis[0], name, apis))
        kill.relay.kill()
        give_back, last = sorted(left, key=lambda api: pid(api) != owner_of(left[0], name, left))
        os.kill(pid(give_back), signal.SIGTERM)  # nobody waits for the end of a lease
        assert owner_of(last, name, [last]) == pid(last)
    assert (shown := ended(last, name))["clean"] is True and shown["result"]["published"] == 100
    assert give_back.relay.wait() == 0


def test_an_error_is_tried_again_or_ends_it(start, write, database, topic):
    api = start()
    write(api.relay, 10)
    with no_more_rows(database):
        name = order(api)
        wait_for(lambda: database.execute(END_READER), 60, "its session")
        shown = wait_for(lambda: (now := job(api, name))["error"] and now, 60, "the error")
        assert shown["state"] in ("waiting", "running") and shown["clean"] is None
    assert (shown := ended(api, name))["error"] is None and shown["clean"] is True

    again = order(api)
    ended(api, again)
    database.execute("INSERT INTO outbox.verification (reason, publisher, filter) VALUES ('r', 'main', '{\"memory\": 0}')")
    failed = ended(api, "verify-3", "failed")
    assert "memory is no whole number" in failed["error"]


# --- refusals -------------------------------------------------------------------------------------

@pytest.mark.parametrize("body, status, code, text", [
    ({"reason": ""}, 400, "bad_value", "reason has 1 to 500"), ({"publisher": "main"}, 400, "bad_value", "reason has 1 to 500"),
    ({"memory": 0}, 400, "bad_value", "from 1 to 256"), ({"memory": 257}, 400, "bad_value", "from 1 to 256"),
    ({"memory": "1"}, 400, "wrong_type", "memory"), ({"sequence": ""}, 400, "bad_value", "sequence is empty"),
    ({"from": "yesterday"}, 400, "bad_value", "from: "), ({"no_duplicates": "yes"}, 400, "wrong_type", "no_duplicates"),
    ({"from": "2026-01-02T00:00:00Z", "to": "2026-01-02T00:00:00Z"}, 409, "conflicting_arguments", "does not lie before"),
    ({"from": "2999-01-02T00:00:00Z"}, 409, "conflicting_arguments", "lies in the future"),
    ({"publisher": "nobody"}, 404, "unknown_publisher", "nobody"), ({"topic": "x"}, 400, "unknown_field", "topic")])
def test_a_wrong_order_is_refused_with_its_cure(api, body, status, code, text):
    answer = api.request("POST", "/v1/verifications", body if "publisher" in body and body["publisher"] == "main"
                         else {"publisher": "main", "reason": "r", **body})
    assert (answer.status, answer.code) == (status, code) and text in answer.json["detail"], answer.text
    assert ask(api, "/v1/jobs")["rows"] == []


@pytest.fixture
def api(start, database):
    database.execute("SELECT outbox.publisher_create('other', 1, 'now')")
    return start(more=OTHER)


def test_who_may_verify(api):
    name = order(api)
    for path, body in [("/v1/verifications", {"publisher": "main", "reason": "r"}), (f"/v1/jobs/{name}/cancel", {"reason": "r"}),
                       (f"/v1/jobs/{name}/resume", {"reason": "r"})]:
        assert api.as_(READ).request("POST", path, body).code == "forbidden"
        assert api.as_(LIMITED).request("POST", path, body).code == "out_of_scope"
    assert api.as_(LIMITED).request("GET", f"/v1/jobs/{name}").code == "out_of_scope"
    assert ask(api.as_(LIMITED), "/v1/jobs")["rows"] == []
    assert ended(api.as_(READ), name)["result"]["publisher"] == "main"
    of_other = ask(api.as_(LIMITED), "/v1/verifications", 202, publisher="other", reason="r")["job"]
    assert [row["id"] for row in ask(api, "/v1/jobs?publisher=other")["rows"]] == [of_other]
