"""Pauses of [deliver] sections that are orders in the database: any process takes them, and all that run the section heed
them, also after a restart."""

import itertools
import types

import pytest

from support import sidecar
from support.api import OPERATE, OPERATOR, READER, Api
from support.application import Application
from support.balancer import Balancer
from support.inbox import produce
from support.process import free_port, wait_for
from support.proxy import Proxy
from support.relay import run_command

DATABASE = '[postgres "main"]\n'
# Pauses are in the first database; the publisher needs the second one, without which no relay begins.
FIRST = '[postgres "first"]\ndsn = {dsn}\n' + DATABASE
PARTITIONS = 6


@pytest.fixture
def make_process(make_relay, kafka, topic, dead_topic, tmp_path):
    """make_process(application, key=value…): a relay with [deliver "billing"], which a database may keep paused; without an
    application: one that publishes and has no such section. settings: of the section; environment: of the relay."""
    numbers = itertools.count()

    def make(application=None, database=DATABASE, environment=None, **settings):
        number = next(numbers)
        path, port = tmp_path / f"relay-{number}.ini", free_port()
        sections = (sidecar.configuration(kafka.bootstrap, topic, tmp_path / f"state-{number}", application.url,
                                          {"dedup": None, **settings}) if application
                    else '[publisher "main"]\n' + READER + OPERATOR)
        path.write_text(sections + database)
        path.chmod(0o600)
        relay = make_relay(config=path, api_listen=port, **(environment or {}))
        relay.wait_event("api_listens")
        return types.SimpleNamespace(relay=relay, port=port, api=Api(port, OPERATE))

    return make


def through(proxy, database):
    return database.dsn.replace(f":{database.postgres.port}/", f":{proxy.port}/")


def order(api, verb, section="billing", status=200):
    answer = api.request("POST", "/v1/deliver/operate", {"verb": verb, "section": section, "reason": f"why {verb}"})
    assert answer.status == status, answer.text
    return answer.json if status == 200 else answer.code


def section_of(process):
    return process.api.request("GET", "/v1/deliver").json["sections"][0]


def name_of(process):
    return process.api.request("GET", "/v1/overview").json["process"]["name"]


def known(process):
    """The sections of all processes: {section: (is it paused, names of processes)}"""
    answer = process.api.request("GET", "/v1/deliver?all=yes")
    assert answer.status == 200, answer.text
    return {row["section"]: (row["paused_at"] is not None, {each["name"] for each in row["processes"]}) for row in answer.json["known"]}


def wait_state(processes, paused):
    wait_for(lambda: all(section_of(one)["paused"] == paused and bool(section_of(one)["paused_at"]) == paused for one in processes), 20,
             lambda: f"paused {paused}: {[section_of(one) for one in processes]}")


def wait_partitions(processes):
    wait_for(lambda: sum(section_of(one)["partitions"] for one in processes) == PARTITIONS
             and all(section_of(one)["partitions"] for one in processes), 60, lambda: f"{[section_of(one) for one in processes]}")


def give(kafka, topic, first, count=60):
    produce(kafka.bootstrap, topic, [(f"id-{i}", f"k{i}", "{}") for i in range(first, first + count)])
    return {f"id-{i}" for i in range(first, first + count)}


def see_nothing(application, kafka, topic, first, processes):
    """New messages do not come: those after them, once the section works again, come with them."""
    before = len(application.ids)
    new = give(kafka, topic, first)
    # a section at work would have taken them long before its consumers have rejoined and looked again
    turns = [one.relay.metric("relay_deliver_handled_total") for one in processes]
    wait_for(lambda: all(section_of(one)["works"] and section_of(one)["paused"] for one in processes))
    for _ in range(20):
        wait_for(lambda: [one.relay.metric("relay_deliver_handled_total") for one in processes] == turns)
    assert len(application.ids) == before
    return new


def test_every_process_pauses_by_an_order_to_one_that_does_not_run_the_section(make_process, database, kafka, topic):
    with Application() as application:
        runs = [make_process(application) for _ in range(2)]
        other = make_process()
        wait_partitions(runs)
        given = give(kafka, topic, 0)
        application.wait_ids(given)

        said = order(other.api, "pause")
        assert said == {"section": "billing", "source": "database", "paused": True, "changed": True, "audit": "1"}
        wait_state(runs, True)
        for one in runs:
            assert one.relay.readiness_says(200, "deliver billing: ", ", paused since 20")
        assert order(other.api, "pause")["changed"] is False
        assert other.api.request("GET", "/v1/deliver").json["sections"] == []
        given |= see_nothing(application, kafka, topic, 100, runs)

        # they end without a word, and the next ones know
        for one in runs:
            one.relay.kill()
            one.relay.start()
            one.relay.wait_event("api_listens", count=2)
        wait_state(runs, True)
        wait_partitions(runs)
        given |= see_nothing(application, kafka, topic, 200, runs)
        assert set(application.ids) < given

        # by the command line, with the database or a URL
        done = run_command(["deliver", "resume", "billing", "--reason", "the ledger is there"], other.relay.settings)
        assert done == (0, "deliver billing is at work in every process (outbox.audit 3)\n", "")
        done = run_command(["deliver", "resume", "billing", "--reason", "again"], other.relay.settings)
        assert done[1] == "deliver billing was at work already in every process: blocked partitions try again (outbox.audit 4)\n"
        wait_state(runs, False)
        application.wait_ids(given)
    process = name_of(other)
    assert database.execute("SELECT verb, caller, reason, target FROM outbox.audit ORDER BY id") == [
        (verb, "alice", reason, {"section": "billing", "process": process})
        for verb, reason in (("deliver pause", "why pause"), ("deliver pause", "why pause"), ("deliver resume", "the ledger is there"),
                             ("deliver resume", "again"))]


def test_every_process_names_those_that_run_a_section(make_process, database):
    url = "http://relay-1.example:9188"
    with Application() as application:
        runs = [make_process(application, environment={"api_advertise": url}), make_process(application)]
        other, names = make_process(), {name_of(one) for one in runs}
        for process in (*runs, other):
            wait_for(lambda: known(process) == {"billing": (False, names)}, what=lambda: known(process))

        def processes():
            return other.api.request("GET", "/v1/deliver?all=yes").json["known"][0]["processes"]

        wait_for(lambda: {each["url"] for each in processes()} == {url, None}, what=processes)
        assert all(each["seen_at"].endswith("Z") for each in processes())

        # one that was not seen for long counts no longer; its section stays as long as it is paused
        for one in runs:
            one.relay.kill()
        database.execute("UPDATE outbox.deliver_process SET seen_at = now() - interval '11 minutes'")
        assert known(other) == {}
        assert order(other.api, "pause")["changed"]
        assert known(other) == {"billing": (True, set())}
        runs[0].relay.start()
        runs[0].relay.wait_event("api_listens", count=2)
        wait_for(lambda: known(other) == {"billing": (True, {name_of(runs[0])})}, what=lambda: known(other))
        assert database.execute("SELECT count(*)::int FROM outbox.deliver_process") == [(1,)]


def test_a_balancer_may_send_each_order_to_another_process(make_process, kafka, topic):
    with Application() as application:
        runs, other = make_process(application), make_process()
        with Balancer([runs.port, other.port]) as balancer:
            api = Api(balancer.server_port, OPERATE)
            for _ in range(6):
                assert order(api, "pause")["source"] == "database"
                wait_state([runs], True)
                assert order(api, "resume")["changed"] is True
                wait_state([runs], False)
            assert min(balancer.served[port] for port in (runs.port, other.port)) >= 2
        # the process that takes the order heeds it before it answers
        order(runs.api, "pause")
        wait_for(lambda: section_of(runs)["paused"], 1)


def test_a_resume_tries_blocked_partitions_again_in_every_process(make_process, kafka, topic):
    mended = []
    with Application(lambda _: 200 if mended else 422) as application:
        runs = [make_process(application, dead_letter_topic=None) for _ in range(2)]
        other = make_process()
        wait_partitions(runs)
        given = give(kafka, topic, 0)
        wait_for(lambda: sum(section_of(one)["blocked"] for one in runs) == PARTITIONS, 60, lambda: f"{[section_of(one) for one in runs]}")
        assert all(section_of(one)["blocked"] for one in runs)
        mended.append(True)
        assert order(other.api, "resume") == {"section": "billing", "source": "database", "paused": False, "changed": False, "audit": "1"}
        wait_for(lambda: sum(section_of(one)["handled"] for one in runs) == len(given), 60, lambda: f"{[section_of(one) for one in runs]}")
        assert all(section_of(one)["blocked"] == 0 for one in runs)


def test_while_the_database_is_away_sections_stay_as_they_are(make_process, database, kafka, topic):
    with Application() as application, Proxy(database.postgres.port) as proxy:
        runs = make_process(application, FIRST.format(dsn=through(proxy, database)))
        give(kafka, topic, 0)
        application.wait_ids({"id-0"})
        order(runs.api, "pause")
        proxy.refuse()
        runs.relay.wait_event("pauses_unread", consequence="sections stay paused or at work, as they are")
        assert order(runs.api, "resume", status=503) == "no_database"
        assert runs.api.request("GET", "/v1/deliver?all=yes").code == "no_database"
        assert section_of(runs)["paused"] and section_of(runs)["works"]

        # a process that begins meanwhile waits for the answer
        runs.relay.kill()
        runs.relay.start()
        runs.relay.wait_event("api_listens", count=2)
        given = give(kafka, topic, 100)
        wait_for(lambda: runs.relay.readiness_says(200, "waits for the database to say whether it is paused"))
        runs.relay.wait_event("pauses_unread", consequence="sections wait at most 30 s for the answer whether they are paused")
        wait_for(lambda: section_of(runs)["partitions"] == PARTITIONS, 60)
        proxy.heal()
        runs.relay.wait_event("pauses_read_again")
        wait_state([runs], True)
        assert not given & set(application.ids)
        order(runs.api, "resume")
        application.wait_ids(given)


def test_a_sidecar_does_not_wait_long_for_its_database(make_process, database, kafka, topic):
    with Application() as application, Proxy(database.postgres.port) as proxy:
        proxy.refuse()
        runs = make_process(application, FIRST.format(dsn=through(proxy, database)))
        given = give(kafka, topic, 0)
        runs.relay.wait_event("pauses_unread", consequence="sections deliver, even if an operator has paused them", timeout=90)
        application.wait_ids(given)
        assert not section_of(runs)["paused"]
        assert order(runs.api, "pause", status=503) == "no_database"
        proxy.heal()
        runs.relay.wait_event("pauses_read_again")
        order(runs.api, "pause")
        wait_state([runs], True)


def test_a_role_that_may_not_look_delivers_at_once(make_process, login, database, kafka, topic):
    database.execute("REVOKE SELECT ON outbox.deliver_section FROM outbox_relay")
    with Application() as application:
        runs = make_process(application, environment={"database_url": login("outbox_relay")["DATABASE_URL"]})
        assert "permission denied" in runs.relay.wait_event("pauses_unread", consequence="sections deliver, even if an operator has paused them")[0]["error"]
        application.wait_ids(give(kafka, topic, 0))
        database.execute("GRANT SELECT ON outbox.deliver_section TO outbox_relay")
        runs.relay.wait_event("pauses_read_again")
        order(runs.api, "pause")
        wait_state([runs], True)


def test_a_section_that_nobody_runs_is_no_section(make_process, database):
    other = make_process()
    assert order(other.api, "pause", "billings", 404) == "not_found"
    assert order(other.api, "reload_rules", "billing", 404) == "not_found"
    status, _, error = run_command(["deliver", "pause", "billings", "--reason", "x"], other.relay.settings)
    assert status == 65 and 'no process with this database has run a section [deliver "billings"]' in error
    assert database.execute("SELECT count(*)::int FROM outbox.audit") == [(0,)]


def test_a_process_without_a_database_pauses_itself(make_process, kafka, topic):
    with Application() as application:
        alone = make_process(application, database="")
        application.wait_ids(give(kafka, topic, 0))
        process = name_of(alone)
        assert known(alone) == {}
        assert order(alone.api, "pause") == {"section": "billing", "source": process, "paused": True, "changed": True, "audit": None}
        wait_for(lambda: section_of(alone)["paused"])
        assert section_of(alone)["paused_at"] is None
        assert order(alone.api, "pause")["changed"] is False
        alone.relay.kill()
        alone.relay.start()
        alone.relay.wait_event("api_listens", count=2)
        application.wait_ids(give(kafka, topic, 100))
