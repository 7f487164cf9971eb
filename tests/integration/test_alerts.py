"""The alert rules in docs/examples/alerts.yml: promtool takes them, each fires when it should and is quiet in the
nearest healthy case, each has a runbook in docs/guide/alerts.md, and each metric in them exists."""

import os
import pathlib
import re
import subprocess

import pytest
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
RULES = ROOT / "docs/examples/alerts.yml"
TESTS = ROOT / "tests/integration/alerts_test.yml"
METRICS = ROOT / "docs/reference/metrics.md"
RUNBOOKS = ROOT / "docs/guide/alerts.md"
SHAPE = ["Meaning", "Users notice", "Look", "Do", "Ends"]  # of each runbook


@pytest.fixture(scope="module")
def promtool():
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    program = os.path.join(home, "outbox-relay", "prometheus-1", "promtool")
    assert os.access(program, os.X_OK), "promtool is missing: tests/support/install.sh tools"

    def run(*words):
        done = subprocess.run([program, *words], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def rules_of(text):
    return [rule for group in yaml.safe_load(text)["groups"] for rule in group["rules"]]


def cases_of(text):
    """({rules of which a case expects an alert}, {rules of which a whole test expects none})"""
    firing, quiet = set(), set()
    for test in yaml.safe_load(text)["tests"]:
        expected = [(case["alertname"], bool(case["exp_alerts"])) for case in test["alert_rule_test"]]
        fires = {name for name, alerts in expected if alerts}
        firing |= fires
        quiet |= {name for name, _ in expected} - fires
    return firing, quiet


def runbooks_of(page):
    """{heading: text}"""
    return dict(re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL))


def faults_of(rules, tests, page, metrics):
    """What is missing, of the texts of the four files."""
    faults = []
    (firing, quiet), runbooks, documented = cases_of(tests), runbooks_of(page), set(
        re.findall(r"^\| `(relay_\w+)`", metrics, re.MULTILINE))
    names = [rule["alert"] for rule in rules_of(rules)]
    for rule in rules_of(rules):
        name, notes = rule["alert"], rule["annotations"]
        if names.count(name) > 1:
            faults.append(f"{name}: there are two")
        if name not in firing:
            faults.append(f"{name}: no test in which it fires")
        if name not in quiet:
            faults.append(f"{name}: no test in which it is quiet")
        if rule["labels"].keys() != {"severity"} or rule["labels"]["severity"] not in ("critical", "warning", "info"):
            faults.append(f"{name}: severity is critical, warning or info")
        if notes.keys() != {"summary", "description", "runbook_url"}:
            faults.append(f"{name}: annotations are summary, description and runbook_url")
        if notes.get("runbook_url") != f"docs/guide/alerts.md#{name.lower()}" or name not in runbooks:
            faults.append(f"{name}: no runbook")
        unknown = set(re.findall(r"\brelay_\w+", rule["expr"])) - documented
        faults += [f"{name}: no metric {metric}" for metric in unknown]
    faults += [f"{name}: a runbook without a rule" for name in runbooks.keys() - set(names)]
    faults += [f"{name}: a runbook has {', '.join(SHAPE)}" for name, text in runbooks.items()
               if re.findall(r"^- \*\*(.+?)\*\*: ", text, re.MULTILINE) != SHAPE]
    return faults


def read(path):
    return path.read_text(encoding="utf-8")


def test_promtool_takes_the_rules(promtool):
    assert "SUCCESS" in promtool("check", "rules", RULES)


def test_each_rule_fires_when_it_should_and_not_else(promtool):
    promtool("test", "rules", TESTS)


def test_each_rule_has_tests_a_runbook_and_metrics_that_exist():
    assert not faults_of(*map(read, (RULES, TESTS, RUNBOOKS, METRICS)))


def test_each_alarm_of_the_page_of_metrics_has_a_rule():
    alarms = re.findall(r"^\| `(relay_\w+)` \| .*\| [^|]*[^| ] \|$", sections_with_alarms(read(METRICS)), re.MULTILINE)
    used = set(re.findall(r"\brelay_\w+", read(RULES)))
    assert len(alarms) > 25 and not set(alarms) - used


def sections_with_alarms(page):
    """The tables that have the column alarm, which is the last one."""
    return "".join(part for part in re.split(r"^## ", page, flags=re.MULTILINE) if "| alarm |\n" in part)


RULE = """
groups:
  - name: a
    rules:
      - alert: OutboxLate
        expr: relay_late_seconds > 60
        labels: {severity: warning}
        annotations: {summary: late, description: too late, runbook_url: docs/guide/alerts.md#outboxlate}
"""
CASES = """
tests:
  - alert_rule_test:
      - {eval_time: 1m, alertname: OutboxLate, exp_alerts: []}
      - {eval_time: 5m, alertname: OutboxLate, exp_alerts: [{exp_labels: {severity: warning}}]}
  - alert_rule_test:
      - {eval_time: 5m, alertname: OutboxLate, exp_alerts: []}
"""
PAGE = "# Alerts\n\n### OutboxLate\n\n" + "".join(f"- **{part}**: x.\n" for part in SHAPE)
TABLE = "| `relay_late_seconds` | gauge | Late. |\n"


@pytest.mark.parametrize("old,new,fault", [
    ("", "", None),
    ("### OutboxLate", "### OutboxSlow", "OutboxLate: no runbook"),
    ("### OutboxLate", "### OutboxSlow", "OutboxSlow: a runbook without a rule"),
    ("#outboxlate", "#late", "OutboxLate: no runbook"),
    ("exp_alerts: [{exp_labels: {severity: warning}}]", "exp_alerts: []", "no test in which it fires"),
    ("  - alert_rule_test:\n      - {eval_time: 5m, alertname: OutboxLate, exp_alerts: []}\n", "", "it is quiet"),
    ("expr: relay_late", "expr: relay_slow", "no metric relay_slow_seconds"),
    ("labels: {severity: warning}\n", "labels: {severity: high}\n", "severity is"),
    (", description: too late", "", "annotations are"),
    ("- **Do**: x.\n", "", "a runbook has")])
def test_what_is_missing_is_found(old, new, fault):
    texts = [text.replace(old, new, 1) if old else text for text in (RULE, CASES, PAGE, TABLE)]
    faults = faults_of(*texts)
    assert any(fault in found for found in faults) if fault else not faults
