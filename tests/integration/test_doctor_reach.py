"""`doctor` and `check-config` find what would fail at the first request."""

import json
import socket

import pytest

from support.inbox import produce
from support.relay import Relay, run_command


@pytest.fixture
def configured(kafka, topic, tmp_path):
    """configured(command, lines of a [deliver] section, its topics): (exit status, output, error)."""
    def run(command, lines, topics=topic):
        path = tmp_path / "relay.ini"
        path.write_text(f"[kafka]\nbootstrap.servers = {kafka.bootstrap}\n[deliver \"billing\"]\n"
                        f"topics = {topics}\n{lines}")
        return run_command([command, "--config", path], {})

    run.bootstrap = kafka.bootstrap
    return run


@pytest.fixture
def server():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"url = http://127.0.0.1:{listener.getsockname()[1]}/\n"


def test_a_private_address_needs_networks_and_the_line_is_named(configured, server):
    status, output, _ = configured("doctor", server)
    assert status == 1
    assert "its address 127.0.0.1 is refused" in output and "loopback" in output
    assert "cure: add to the section: networks = 127.0.0.1\n" in output
    _, output, _ = configured("doctor", f"{server}networks = 10.0.0.0/8\n")
    assert "cure: add to the section: networks = 10.0.0.0/8, 127.0.0.1\n" in output
    _, output, _ = configured("doctor", f"{server}networks = 127.0.0.1\n")
    assert "url: " not in output


def test_a_url_that_nobody_answers_is_found(configured):
    _, output, _ = configured("doctor", "url = http://127.0.0.1:1/\nnetworks = 127.0.0.0/8\n")
    assert "127.0.0.1 cannot be reached: Connection refused" in output
    _, output, _ = configured("doctor", "url = http://no-such-host.invalid/\n")
    assert "its host no-such-host.invalid has no address" in output


def test_dead_letter_topics_that_do_not_exist_are_found(configured, server):
    status, output, _ = configured(
        "doctor", f"{server}networks = 127.0.0.1\ndead_letter_topic = no.such.letters\n")
    assert status == 1 and "[fail]   topic no.such.letters: " in output


@pytest.mark.parametrize("command", ["check-config", "run", "doctor"])
def test_the_folder_above_the_state_must_exist(configured, server, tmp_path, command):
    status, output, error = configured(
        command, f"{server}dedup = exact ids=1000\npath = {tmp_path}/none/state\n")
    assert status != 0
    assert f"path: {tmp_path}/none does not exist; make it: mkdir -p {tmp_path}/none" in output + error


def line_of(output, words):
    line, = [line for line in output.splitlines() if words in line]
    return line


def test_topics_that_are_read_must_exist(configured, server):
    status, output, _ = configured(
        "doctor", f"{server}networks = 127.0.0.1\ndead_letter_topic = no.such.c\n", "no.such.a, no.such.b")
    assert status == 1
    assert line_of(output, "no.such.a does not exist").startswith(
        "[fail]   topics no.such.a, no.such.b, no.such.c: topic no.such.a does not exist; ")
    assert line_of(output, "cure: create them: ").endswith(
        "for topic in no.such.a no.such.b no.such.c; do kafka-topics.sh --bootstrap-server "
        f"{configured.bootstrap} --create --topic $topic; done")
    assert "postgres" not in output


def test_a_topic_that_is_read_and_there_is_no_finding(configured, server, topic):
    _, output, _ = configured("doctor", f"{server}networks = 127.0.0.1\n")
    assert f"topic {topic}" not in output


def test_what_one_action_cures_is_one_line(configured, server, tmp_path):
    """Two sections: URLs of one host that nobody serves, a private address, folders that are missing."""
    two = "networks = {networks}\n[deliver \"bills\"]\nurl = http://127.0.0.1:1/bills\nnetworks = {networks}\n"
    _, output, _ = configured("doctor", "url = http://127.0.0.1:1/\n" + two.format(networks="127.0.0.1"))
    found = line_of(output, "cannot be reached")
    assert "deliver billing (" in found and "deliver bills (" in found
    assert output.count("start the service on 127.0.0.1, or correct url") == 1
    _, output, _ = configured("doctor", "url = http://127.0.0.1:1/\n" + two.format(networks="10.0.0.0/8"))
    found = line_of(output, "is refused")
    assert "deliver billing (" in found and "deliver bills (" in found
    assert output.count("add to the section: networks = 10.0.0.0/8, 127.0.0.1") == 1
    _, output, _ = configured(
        "doctor", f"{server}dedup = exact ids=1000\npath = {tmp_path}/a/state\nnetworks = 127.0.0.1\n"
        f"[deliver \"bills\"]\n{server}dedup = exact ids=1000\npath = {tmp_path}/b/state\nnetworks = 127.0.0.1\n")
    assert output.count("cure: mkdir -p ") == 1 and f"cure: mkdir -p {tmp_path}/a {tmp_path}/b\n" in output
    assert output.count("set secret_file") == 1


def test_findings_of_one_cure_are_one_object(kafka, topic, tmp_path):
    path = tmp_path / "relay.ini"
    path.write_text(f"[kafka]\nbootstrap.servers = {kafka.bootstrap}\n[deliver \"billing\"]\n"
                    "topics = no.such.a, no.such.b\nurl = http://127.0.0.1:1/\nnetworks = 127.0.0.1\n")
    status, output, _ = run_command(["doctor", "--json", "--config", path], {})
    missing, = [one for one in json.loads(output) if "does not exist" in one["finding"]]
    assert status == 1 and missing["place"] == "topics no.such.a, no.such.b" and missing["severity"] == "fail"


def test_a_refused_address_is_in_the_log_once(kafka, topic, tmp_path, server):
    path = tmp_path / "relay.ini"
    path.write_text(f"[kafka]\nbootstrap.servers = {kafka.bootstrap}\n[deliver \"billing\"]\n"
                    f"topics = {topic}\nstart = earliest\nretry_first = 10ms\n{server}")
    produce(kafka.bootstrap, topic, [("1", "k", "p")])
    with Relay({"OUTBOX_RELAY_CONFIG": str(path)}) as relay:
        first = relay.wait_event("address_refused", address="loopback")[0]
        assert first["target"].startswith("http://127.0.0.1:")
        relay.wait_event("deliver_breaker_opened")
        assert len(relay.events("address_refused")) == 1


def test_brokers_that_do_not_answer_are_named_with_a_cure(database):
    settings = {"DATABASE_URL": database.dsn, "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": "127.0.0.1:1"}
    status, output, _ = run_command(["doctor"], settings)
    assert status == 69
    assert "[fail]   kafka main: no broker answers at 127.0.0.1:1: " in output
    assert "cure: check bootstrap.servers, the firewall and security.protocol from this machine\n" in output


def test_an_empty_table_has_no_topics_to_check(database, kafka):
    settings = {"DATABASE_URL": database.dsn, "OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap}
    known = "publisher main: no topic is known yet: doctor checks a topic from its first message on"
    assert f"[info]   {known}\n" in run_command(["doctor"], settings)[1]
    database.execute("insert into outbox.message (topic) values ('orders')")
    assert known not in run_command(["doctor"], settings)[1]
