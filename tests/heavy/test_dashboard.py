"""The Grafana dashboard of docs/examples: each query of each panel and each variable has series in a real Prometheus, after
a relay has published, parked, looked back and delivered. Grafana itself is not needed."""

import json
import pathlib
import re
import urllib.request

import pytest

from support.api import SEND, SENDER
from support.application import Application
from support.business import Business
from support.inbox import produce
from support.lookback import Application as LookbackApplication
from support.lookback import configuration
from support.process import free_port, wait_for
from support.prometheus import Prometheus

ROOT = pathlib.Path(__file__).resolve().parents[2]
DASHBOARD = ROOT / "docs/examples/dashboard.json"
METRICS = ROOT / "docs/reference/metrics.md"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
RANGE = "10s"
LABEL = re.compile(r"\{\{\s*(\w+)\s*\}\}")
VARIABLE = re.compile(r"label_values\((.+), (\w+)\)")
# Not 0 after what the relay has done.
POSITIVE = ["relay_published_total", "relay_parked_total", "relay_scheduled_total", "relay_lookback_decisions_total",
            "relay_lookback_checks_total", "relay_deliver_handled_total", "relay_deliver_duplicates_total",
            "relay_deliver_dead_letters_total", "relay_deliver_reported_total", "relay_api_requests_total"]


def dashboard():
    return json.loads(DASHBOARD.read_text(encoding="utf-8"))


def panels():
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def queries():
    """[(panel, expression, legend)]"""
    return [(panel["title"], target["expr"], target["legendFormat"]) for panel in panels() for target in panel["targets"]]


def variables():
    """{name: (selector, label)}"""
    return {each["name"]: VARIABLE.fullmatch(each["query"]["query"]).groups()
            for each in dashboard()["templating"]["list"] if each["type"] == "query"}


@pytest.fixture
def relay(database, kafka, topic, make_relay, tmp_path):
    """It does everything that the dashboard shows."""
    said, orders, dead = (kafka.create_topic(f"{topic}.{word}", 2) for word in ("said", "orders", "dead"))
    words = {"1": "commit", "2": "rollback"}
    api = f"127.0.0.1:{free_port()}"

    def handle(delivery):
        return 400 if "bad" in delivery.ids else 200

    with Business(lambda _, ids: {id: words.get(id, "unknown") for id in ids}) as business, Application(handle) as application:
        path = configuration(
            ("publisher \"main\"", {}),
            ("check \"shop\"", {"url": business.url, "networks": "127.0.0.0/8", "retry_first": "200ms", "retry_max": "1s",
                                "max_attempts": 1000}),
            ("lookback \"shop\"", {"types": "order", "topic": said, "group": said, "dead_letter": dead, "check": "shop",
                                   "check_after": "100ms"}),
            ("deliver \"billing\"", {
                "topics": topic, "group": topic, "url": application.url, "networks": "127.0.0.0/8",
                "path": tmp_path / "state", "dead_letter_topic": dead, "commit_every": "100ms",
                "dedup": "bloom ids=100k rate=0.1% window=1h", "report": f'postgres dsn="{database.dsn}"'}))
        with open(path, "a", encoding="utf-8") as file:
            file.write(SENDER)
        relay = make_relay(config=path, postgres_upkeep_interval="500ms", publisher_max_attempts="1", api_listen=api).wait_ready()

        insert = "insert into outbox.message (topic, key, payload) select %s, i::text, '{}' from generate_series(1, 200) i"
        database.execute(insert, (topic,))
        database.execute("insert into outbox.message (topic, key, payload, partition) values (%s, 'p', '{}', 99)", (topic,))
        database.execute("insert into outbox.message (topic, key, payload, deliver_at) "
                         "values (%s, 's', '{}', now() + interval '1 h')", (topic,))
        produce(kafka.bootstrap, topic, [("same", "d", "{}"), ("same", "d", "{}"), ("bad", "b", "{}")])
        LookbackApplication(kafka.bootstrap, said, "order", orders).prepare("1", "2", "3")
        send(api, {"version": 1, "op": "prepare", "biz_type": "order", "biz_id": "4", "topic": orders, "payload": {}})
        yield relay


def send(api, body):
    request = urllib.request.Request(f"http://{api}/v1/lookback/prepare", json.dumps(body).encode(), {
        "Authorization": f"Bearer {SEND}", "Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status in (200, 202), answer.read()


def interpolated(expression, values):
    """As Grafana does it for variables of several values."""
    for name, found in values.items():
        expression = expression.replace(f"${name}", "|".join(map(re.escape, found)))
    assert "$" not in expression.replace("$__rate_interval", ""), expression
    return expression.replace("$__rate_interval", RANGE)


def test_every_query_has_series(relay):
    with Prometheus() as prometheus:
        prometheus.scrape({"shop": [relay.admin_port]})
        values = {}
        for name, (selector, label) in variables().items():
            wait_for(lambda: prometheus.label_values(label, interpolated(selector, values)), 60, f"values of {name}")
            values[name] = prometheus.label_values(label, interpolated(selector, values))
        assert values == {"job": ["shop"], "publisher": ["main"], "section": ["billing", "shop"]}

        found = {}

        def empty():
            for panel, expression, _ in queries():
                if not found.get(expression):
                    found[expression] = prometheus.query(interpolated(expression, values))
            return [f"{panel}: {expression}" for panel, expression, _ in queries() if not found[expression]]

        wait_for(lambda: not empty(), 60, lambda: "series of\n" + "\n".join(empty()), interval=0.5)
        for panel, expression, legend in queries():
            for labels, _ in found[expression]:
                assert set(LABEL.findall(legend)) <= labels.keys(), (panel, legend, labels)
            texts = [LABEL.sub(lambda label: labels[label[1]], legend) for labels, _ in found[expression]]
            assert len(texts) == len(set(texts)), f"{panel}: two series have one legend: {sorted(texts)}"
        for metric in POSITIVE:
            wait_for(lambda: prometheus.query(f"sum({metric}) > 0"), 60, f"{metric} above 0", interval=0.5)


def test_the_legends_of_a_panel_differ():
    for panel in panels():
        legends = [target["legendFormat"] for target in panel["targets"]]
        assert len(legends) == len(set(legends)), panel["title"]
        assert [target["refId"] for target in panel["targets"]] == [chr(ord("A") + i) for i in range(len(legends))]


def test_it_is_a_whole_dashboard():
    board = dashboard()
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids)) and board["id"] is None and board["schemaVersion"] == 38
    assert [each["name"] for each in board["templating"]["list"]] == ["datasource", "job", "publisher", "section"]
    assert [panel["title"] for panel in board["panels"] if panel["type"] == "row"] == [
        "Publish", "Look-back", "Inbox and sidecar", "Upkeep", "Process"]
    for panel in panels():
        assert panel["datasource"] == SOURCE and all(target["datasource"] == SOURCE for target in panel["targets"])
        assert panel["fieldConfig"]["defaults"]["unit"] and panel["description"].endswith("."), panel["title"]
    cells = [(x, y) for panel in board["panels"] for place in [panel["gridPos"]]
             for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])]
    assert len(cells) == len(set(cells)) and max(x for x, _ in cells) < 24, "panels lie on each other"


def test_it_uses_metrics_that_exist_and_nearly_all_of_them():
    documented = set(re.findall(r"^\| `(relay_\w+)`", METRICS.read_text(encoding="utf-8"), re.MULTILINE))
    texts = " ".join([expression for _, expression, _ in queries()] + [selector for selector, _ in variables().values()])
    used = {re.sub(r"_bucket$", "", name) for name in re.findall(r"\brelay_\w+", texts)}
    assert used <= documented, used - documented
    assert len(used) > 0.8 * len(documented), documented - used
