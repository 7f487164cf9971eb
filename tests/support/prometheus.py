"""A real Prometheus, of Debian's package.

    with Prometheus(rules=shortened(text)) as prometheus:
        prometheus.scrape({"shop": [relay.admin_port]})
        prometheus.query("relay_owner"), prometheus.state_of("OutboxNoRelay", job="shop")
"""

import json
import os
import re
import urllib.error
import urllib.parse
import urllib.request

from .files import replace
from .process import Process, free_port, temporary_folder, wait_for

DURATION = re.compile(r"(\bfor: |\[|\boffset )(\d+)([smh])\b")
SECONDS = {"s": 1, "m": 60, "h": 3600}
LEAST, MOST = 2, 20  # of a shortened duration; a range needs two scrapes
SCRAPE = "500ms"
CONFIG = """\
global:
  scrape_interval: {scrape}
  evaluation_interval: {scrape}
rule_files: [{rules}]
scrape_configs:
  - job_name: none
    file_sd_configs: [{{files: [{targets}], refresh_interval: 1s}}]
"""


def home():
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(cache, "outbox-relay", "prometheus-1")


def shortened(rules):
    """Rules whose minutes are seconds: each `for`, range and offset is a sixtieth, of 2 to 20 seconds. Names, limits and
    everything else stay."""
    return DURATION.sub(lambda found: f"{found[1]}{shorter(int(found[2]) * SECONDS[found[3]])}s", rules)


def shorter(seconds):
    return max(LEAST, min(MOST, seconds // 60))


class Prometheus:
    def __init__(self, rules="groups: []\n"):
        self.folder = temporary_folder("prometheus")
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.targets = os.path.join(self.folder, "targets.json")
        self.process = None
        self._write("rules.yml", rules)
        self._write("prometheus.yml", CONFIG.format(scrape=SCRAPE, rules=os.path.join(self.folder, "rules.yml"),
                                                    targets=self.targets))
        self.scrape({})

    def _write(self, name, text):
        replace(os.path.join(self.folder, name), text)

    def __enter__(self):
        program = os.path.join(home(), "prometheus")
        assert os.access(program, os.X_OK), "prometheus is missing: tests/support/install.sh tools"
        self.process = Process(
            [program, f"--config.file={self.folder}/prometheus.yml", f"--storage.tsdb.path={self.folder}/data",
             f"--web.listen-address=127.0.0.1:{self.port}", "--log.level=warn"], os.path.join(self.folder, "log"))
        wait_for(self._is_ready, 60, lambda: f"Prometheus; its log ends:\n{self.process.tail()}")
        return self

    def __exit__(self, *_):
        self.process.stop(timeout=60)

    def _is_ready(self):
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=5) as answer:
                return answer.status == 200
        except (urllib.error.URLError, OSError):
            assert self.process.running, self.process.tail()
            return False

    def scrape(self, jobs):
        """jobs: {job: [ports]}; from now on it scrapes these and no others."""
        self._write("targets.json", json.dumps(
            [{"targets": [f"127.0.0.1:{port}" for port in ports], "labels": {"job": job}}
             for job, ports in jobs.items()]))

    def _get(self, path, **parameters):
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}",
                                        timeout=30) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as refused:
            raise AssertionError(f"{path} {parameters}: {refused.read().decode()}") from None

    def query(self, expression):
        """[(labels, value)]"""
        return [(series["metric"], float(series["value"][1]))
                for series in self._get("query", query=expression)["result"]]

    def label_values(self, label, selector):
        return self._get(f"label/{label}/values", **{"match[]": selector})

    def state_of(self, alert, **labels):
        """firing, pending or inactive: of the alerts of this rule that have the labels."""
        states = {each["state"] for group in self._get("rules", type="alert")["groups"] for rule in group["rules"]
                  if rule["name"] == alert for each in rule["alerts"] if labels.items() <= each["labels"].items()}
        return next((state for state in ("firing", "pending") if state in states), "inactive")

    def errors(self):
        """Of rules that cannot be evaluated."""
        return [f"{rule['name']}: {rule['lastError']}" for group in self._get("rules", type="alert")["groups"]
                for rule in group["rules"] if rule.get("lastError")]
