"""The reference pages are what the program writes, and each metric it shows is explained."""

import pathlib
import re

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


def test_every_metric_is_explained_and_every_explained_one_exists(database, make_relay):
    relay = make_relay().wait_ready()
    families = dict(re.findall(r"^# HELP (\S+) (.*)$", relay.get("/metrics")[1], re.MULTILINE))
    explained = dict(re.findall(r"^\| `(\w+)` \| \w+ \| (.*) \|$", page("metrics.md"), re.MULTILINE))
    assert explained == families
