"""The alert rules in docs/examples/alerts.yml: promtool takes them, each fires when it should, and each
metric in them exists."""

import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
RULES = ROOT / "docs/examples/alerts.yml"
TESTS = ROOT / "tests/integration/alerts_test.yml"
METRICS = ROOT / "docs/reference/metrics.md"


@pytest.fixture(scope="module")
def promtool():
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    program = os.path.join(home, "outbox-relay", "prometheus-1", "promtool")
    assert os.access(program, os.X_OK), "promtool is missing: tests/support/install.sh tools"

    def run(*words):
        done = subprocess.run([program, *words], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_promtool_takes_the_rules(promtool):
    assert "SUCCESS" in promtool("check", "rules", RULES)


def test_each_rule_fires_when_it_should(promtool):
    promtool("test", "rules", TESTS)
    rules = re.findall(r"- alert: (\w+)", RULES.read_text())
    firing = re.findall(r"alertname: (\w+)\n +exp_alerts:\n", TESTS.read_text())
    assert sorted(rules) == sorted(firing)


def test_each_metric_of_the_rules_exists():
    documented = set(re.findall(r"^\| `(relay_\w+)`", METRICS.read_text(), re.MULTILINE))
    for path in (RULES, TESTS):
        named = set(re.findall(r"\brelay_\w+", path.read_text()))
        assert named and named <= documented, named - documented


def test_each_rule_names_a_cure():
    for rule in RULES.read_text().split("- alert: ")[1:]:
        assert re.search(r"\n +summary: .+\n +cure: .+", rule), rule
