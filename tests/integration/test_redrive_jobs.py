"""Redrives of all dead letters that match: jobs of a relay with a database, over the HTTP interface and the command line."""

import collections

import pytest

from support import sidecar
from support.api import CALLERS, OPERATE, READ, caller, start_api, waits
from support.auditor import count_records, read_topics
from support.inbox import produce
from support.process import wait_for
from support.relay import run_command

RETRY, LIMITED = "token-of-one-who-may-retry", "token-of-one-with-limits"
FEW, MANY = 5, 40_000  # a relay sends 10,000 in a batch


@pytest.fixture
def start(make_relay, kafka, topic, tmp_path):
    """start(): the api of a relay with the section `billing`, whose application does not answer."""
    def begin():
        sections = sidecar.configuration(kafka.bootstrap, topic, tmp_path / "state", "http://127.0.0.1:9/", {"start": "latest"})
        return start_api(make_relay, tmp_path, OPERATE, sections + CALLERS.replace(sidecar.READER, "").replace(sidecar.OPERATOR, "")
                         + caller("bob", RETRY, "read, operate") + caller("erin", LIMITED, "read, operate", sections="other")
                         + '[deliver "other"]\nurl = http://127.0.0.1:9/\ntopics = ' + topic
                         + '\ngroup = other\nwithout_id = process\n[postgres "main"]\n[publisher "main"]\n')[1]

    return begin


@pytest.fixture
def letters(kafka, topic, dead_topic):
    """letters(first, last): dead letters with these numbers as payload, as the section writes them."""
    def write(first, last, reason="status 422"):
        headers = [("outbox-group", topic), ("outbox-origin-topic", topic), ("outbox-reason", reason), ("outbox-attempts", "1")]
        produce(kafka.bootstrap, dead_topic, [(f"bad-{n}", f"k{n % 50}", str(n), None, headers) for n in range(first, last)])

    return write


def ask(api, path, status=200, **body):
    answer = api.request("POST" if body else "GET", path, body or None)
    assert answer.status == status, answer.text
    return answer.json


def order(api, why="ticket 7", **filter):
    """The name of the job."""
    shown = wait_for(lambda: (answer := api.request("POST", "/v1/dead-letters/preview", {"section": "billing", "filter": filter}))
                     .status == 200 and answer.json, 60, "a preview")
    stored = ask(api, "/v1/dead-letters/redrive", 202, section="billing", filter=filter, token=shown["token"], reason=why)
    assert (stored["section"], stored["count"]) == ("billing", shown["count"])
    return stored["job"]


def job(api, name):
    return ask(api, f"/v1/jobs/{name}")


def ended(api, name, state="finished"):
    return wait_for(lambda: (shown := job(api, name))["state"] == state and shown, 120, what=lambda: job(api, name))


def begun(api, name, least=1):
    return wait_for(lambda: int((shown := job(api, name))["done"]) >= least and shown, 120, what=lambda: job(api, name))


def redrive_over_an_end(start, letters, end):
    """A redrive of many, whose process ends and is followed by another; that one's api, and the job."""
    letters(0, MANY)
    api = start()
    name = order(api)
    begun(api, name)
    end(api.relay)
    return start(), name


def gone_back(kafka, topic):
    """{payload: how often it is in the topic}"""
    return collections.Counter(record.payload for record in read_topics(kafka.bootstrap, [topic]))


def test_a_redrive_is_a_job_with_progress(start, letters, kafka, topic, database):
    letters(0, FEW)
    letters(FEW, FEW + 2, reason="status 500")
    api = start()
    name = order(api, reason="status 422")
    letters(FEW + 2, FEW + 4)  # what comes behind the preview is left alone
    shown = ended(api, name)
    assert (shown["id"], shown["kind"], shown["publisher"], shown["section"]) == (name, "redrive", None, "billing")
    assert (shown["done"], shown["total"], shown["exact"], shown["error"]) == (str(FEW), str(FEW), True, None)
    assert (shown["caller"], shown["reason"], shown["filter"]) == ("alice", "ticket 7", {"reason": "status 422"})
    assert gone_back(kafka, topic) == {str(n).encode(): 1 for n in range(FEW)}
    assert database.execute("SELECT verb, caller, reason, target ->> 'redrive', target ->> 'rows' FROM outbox.audit") == [
        ("redrive", "alice", "ticket 7", name.removeprefix("redrive-"), str(FEW))]

    again = order(api, reason="status 422", id="bad-0")
    assert ended(api, again)["done"] == "0"
    assert [row["id"] for row in ask(api, "/v1/jobs?kind=redrive")["rows"]] == [again, name]
    assert [row["id"] for row in ask(api, "/v1/jobs?kind=redrive&limit=1&open=no")["rows"]] == [again]
    assert ask(api, "/v1/jobs?kind=replay")["rows"] == ask(api, "/v1/jobs?publisher=main")["rows"] == []
    assert api.request("POST", f"/v1/jobs/{name}/resume", {"reason": "r"}).code == "not_applicable"
    assert api.request("POST", f"/v1/jobs/{name}/cancel", {"reason": "r"}).code == "not_applicable"

    # a token for another section neither sees nor operates it
    limited = api.as_(LIMITED)
    assert ask(limited, "/v1/jobs")["rows"] == []
    assert [row["section"] for row in ask(limited, "/v1/deliver?all=yes")["known"]] == ["other"]
    assert [row["section"] for row in ask(api, "/v1/deliver?all=yes")["known"]] == ["billing", "other"]
    assert limited.request("GET", f"/v1/jobs/{name}").code == "out_of_scope"
    assert limited.request("POST", f"/v1/jobs/{name}/resume", {"reason": "r"}).code == "out_of_scope"
    assert api.as_(READ).request("POST", f"/v1/jobs/{name}/cancel", {"reason": "r"}).code == "forbidden"


def test_a_redrive_begins_at_once(start, letters, database):
    """As a verification: test_verify_jobs.py."""
    letters(0, FEW)
    api = start()
    for _ in range(4):
        ended(api, order(api))
    assert min(waits(database, "redrive")[1:]) < 1


def test_a_redrive_is_cancelled_and_resumed(start, letters, kafka, topic, database):
    count = 3 * MANY  # so many are not sent before the cancel
    letters(0, count)
    api = start()
    name = order(api)
    begun(api, name)
    ask(api, f"/v1/jobs/{name}/cancel", reason="too early")
    stopped = ended(api, name, "cancelled")
    assert stopped["error"] is None and stopped["owner"] is None
    # its owner ends the batch that is under way
    wait_for(lambda: database.execute("SELECT lease_until <= clock_timestamp() FROM outbox.redrive") == [(True,)], what="the end of the batch")
    assert 0 < int(job(api, name)["done"]) == count_records(kafka.bootstrap, [topic]) < count

    ask(api, f"/v1/jobs/{name}/resume", reason="now")
    assert ended(api, name)["done"] == str(count)
    assert gone_back(kafka, topic) == {str(n).encode(): 1 for n in range(count)}


def test_a_redrive_survives_its_process(start, letters, kafka, topic):
    api, name = redrive_over_an_end(start, letters, lambda relay: relay.kill())
    assert job(api, name)["state"] in ("running", "waiting")
    assert ended(api, name)["done"] == str(MANY)
    # the batch under way, which was not noted, may go back twice; dedup knows the copies by their outbox-leg
    back = gone_back(kafka, topic)
    assert set(back) == {str(n).encode() for n in range(MANY)} and sum(back.values()) <= MANY + 10_000


def test_a_stop_gives_a_redrive_back(start, letters, kafka, topic):
    api, name = redrive_over_an_end(start, letters, lambda relay: relay.stop())
    assert ended(api, name)["done"] == str(MANY)
    assert gone_back(kafka, topic) == {str(n).encode(): 1 for n in range(MANY)}


def test_a_redrive_that_cannot_be_sent_fails_and_can_be_resumed(start, kafka, topic, dead_topic, database):
    """As when the section lost a topic after the preview."""
    headers = [("outbox-group", topic), ("outbox-origin-topic", "of-nobody"), ("outbox-reason", "status 409")]
    produce(kafka.bootstrap, dead_topic, [("other", "k", "x", 0, headers)])
    api = start()
    database.execute("SELECT outbox.redrive_create('r', 'alice', 'billing', '{}', '0:1', 1)")
    failed = ended(api, "redrive-1", "failed")
    assert "of topic of-nobody, which [deliver \"billing\"] does not read: add it to its topics" in failed["error"]
    assert failed["done"] == "0" and failed["ended_at"]
    ask(api, "/v1/jobs/redrive-1/resume", reason="again")
    assert api.request("POST", "/v1/jobs/redrive-1/resume", {"reason": "once more"}).code in ("not_applicable", None)
    assert ended(api, "redrive-1", "failed")["error"] == failed["error"]


def test_the_command_follows_the_job(start, letters, kafka, topic):
    letters(0, FEW)
    api = start()
    wait_for(lambda: api.request("GET", "/v1/dead-letters?section=billing").status == 200, 60, "Kafka's answer")
    status, output, error = run_command(
        ["deliver", "redrive", "billing", "--server", f"http://127.0.0.1:{api.port}", "--yes", "--reason", "ticket 8"],
        {"OUTBOX_RELAY_TOKEN": RETRY})
    assert status == 0, (output, error)
    assert output.startswith(f"redrive of {FEW} dead letters; 0 more went back before\n") and output.endswith(f"redrive-1: finished, {FEW} of {FEW} dead letters\n")
    assert len(gone_back(kafka, topic)) == FEW
