"""The reference pages are what the program writes, and each metric it shows is explained."""

import pathlib
import re

from support.api import CONFIG, Api, decision
from support.process import free_port, wait_for
from support.relay import run_command

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"


def page(name):
    return (DOCS / name).read_text(encoding="utf-8")


def printed(*arguments):
    status, out, error = run_command(arguments)
    assert status == 0, error
    return out


def test_the_page_of_commands_is_fresh():
    assert page("cli.md") == printed("help", "--markdown")


def test_the_page_of_the_configuration_is_fresh():
    assert page("configuration.md") == printed("config", "--print-reference")


def explained_metrics():
    rows = r"^\| `(\w+)` \| \w+ \| (.*) \|$"
    return dict(re.findall(rows, page("metrics.md"), re.MULTILINE))


def shown_metrics(relay):
    return dict(re.findall(r"^# HELP (\S+) (.*)$", relay.get("/metrics")[1], re.MULTILINE))


def test_every_metric_is_explained_and_every_explained_one_exists(
        database, topic, make_relay, tmp_path):
    explained = explained_metrics()
    (tmp_path / "relay.ini").write_text(CONFIG.format(topic=topic))
    port = free_port()
    relay = make_relay(config=tmp_path / "relay.ini", api_listen=port,
                       api_send_tokens="token").wait_ready()
    assert Api(port, "token").post("commit", decision("1", "payroll")).code == "unknown_type"
    # A part of the program shows its metrics when it first has something to tell.
    wait_for(lambda: shown_metrics(relay).keys() >= explained.keys(), 60, "every explained metric")
    assert explained == shown_metrics(relay)
