"""`doctor` and `check-config` find what would fail at the first request."""

import socket

import pytest

from support.inbox import produce
from support.relay import Relay, run_command


@pytest.fixture
def configured(kafka, topic, tmp_path):
    """configured(command, lines of a [deliver] section): (exit status, output, error)."""
    def run(command, lines):
        path = tmp_path / "relay.ini"
        path.write_text(f"[kafka]\nbootstrap.servers = {kafka.bootstrap}\n[deliver \"billing\"]\n"
                        f"topics = {topic}\n{lines}")
        return run_command([command, "--config", path], {})

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
