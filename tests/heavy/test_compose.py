"""relay/packaging/compose.yaml: the library of Compose itself takes it, and its services work together.

No registry can be reached, so no container is started here (test_container.py builds and runs the image): each service
runs as a program of this machine, in the order of depends_on, with the commands and variables of the file. Only host
names, ports and paths are replaced."""
import re
import urllib.request
from pathlib import Path

import pytest

from support.auditor import read_topics
from support.kafka import Kafka
from support.manifests import decode
from support.postgres import Postgres
from support.process import free_port, wait_for
from support.prometheus import Prometheus
from support.relay import Relay, run_command

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "relay/packaging"
FILE = FOLDER / "compose.yaml"
CONTAINERFILE = (FOLDER / "Containerfile").read_text()
READY = {"service_healthy", "service_completed_successfully", "service_started"}
# The scripts of the image apache/kafka, and what they run.
SCRIPTS = {"/opt/kafka/bin/kafka-broker-api-versions.sh": "kafka.admin.BrokerApiVersionsCommand",
           "/opt/kafka/bin/kafka-topics.sh": "org.apache.kafka.tools.TopicCommand"}


@pytest.fixture(scope="module")
def services():
    return decode("compose", FILE)["services"]


@pytest.mark.parametrize("right, wrong, said", [
    ("restart: on-failure", "restarts: on-failure", "Additional property restarts is not allowed"),
    ("stop_grace_period: 15s", "stop_grace_period: [15]", "stop_grace_period must be a string"),
    ("      kafka:\n        condition: service_healthy", "      broker:\n        condition: service_healthy",
     'depends on undefined service "broker"'),
    ("    secrets: [dsn]\n    ports", "    secrets: [dns]\n    ports", "undefined secret dns"),
])
def test_a_broken_file_is_refused(tmp_path, right, wrong, said):
    text = FILE.read_text()
    assert text.count(right) == 1
    (tmp_path / "compose.yaml").write_text(text.replace(right, wrong))
    with pytest.raises(ValueError, match=re.escape(said)):
        decode("compose", tmp_path / "compose.yaml")


def test_the_relay_waits_for_what_it_needs_and_has_no_rights(services):
    assert {name: {needed: way["condition"] for needed, way in service.get("depends_on", {}).items()}
            for name, service in services.items()} == {
        "postgres": {}, "kafka": {}, "topics": {"kafka": "service_healthy"}, "migrate": {"postgres": "service_healthy"},
        "relay": {"migrate": "service_completed_successfully", "topics": "service_completed_successfully"},
        "prometheus": {"relay": "service_started"}}
    for name in ("postgres", "kafka"):
        assert services[name]["healthcheck"]["test"][0] == "CMD"
    for name in ("migrate", "relay", "prometheus"):
        service = services[name]
        assert service["read_only"] and service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
    for name in ("migrate", "relay"):
        assert services[name]["build"] == {"context": str(ROOT), "dockerfile": "relay/packaging/Containerfile"}
    # An image in the format of OCI has none, so the file repeats it.
    assert str(services["relay"]["healthcheck"]["test"][1:]).replace("'", '"') in CONTAINERFILE
    assert all(port["host_ip"] == "127.0.0.1" for service in services.values() for port in service.get("ports", []))


class Place:
    """Host names and ports of the services on this machine, and the secrets in a folder."""

    def __init__(self, postgres, kafka, relay_port, folder):
        self.words = {"kafka:29092": kafka.bootstrap, "0.0.0.0:9187": f"127.0.0.1:{relay_port}",
                      "relay:9187": f"127.0.0.1:{relay_port}", "/run/secrets/dsn": str(folder / "dsn")}
        (folder / "dsn").write_text(postgres.dsn("shop") + "\n")
        (folder / "dsn").chmod(0o600)

    def here(self, text):
        for word, own in self.words.items():
            text = text.replace(word, own)
        return text

    def environment(self, service):
        return {name: self.here(value) for name, value in service["environment"].items()}


def configure_kafka(cluster, service):
    """As the image does it: KAFKA_LOG_DIRS is log.dirs. Of two lines of one property the last one counts."""
    node = cluster.nodes[1]
    ports = {"29092": node.port, "9092": free_port(), "9093": node.controller_port}
    with open(node.properties, "a", encoding="utf-8") as file:
        for name, value in service["environment"].items():
            value = value.replace("://:", "://127.0.0.1:").replace("kafka:", "127.0.0.1:")
            value = re.sub(r":(\d+)\b", lambda found: f":{ports[found[1]]}", value)
            file.write(f"{name.removeprefix('KAFKA_').lower().replace('_', '.')}={value}\n")


def run_script(cluster, place, command):
    script, *arguments = command
    return cluster.tool(SCRIPTS[script], *map(place.here, arguments))


def test_its_services_work_together(services, tmp_path):
    cluster, port = Kafka(), free_port()
    configure_kafka(cluster, services["kafka"])
    with cluster, Postgres() as postgres:
        settings = services["postgres"]["environment"]
        assert settings["POSTGRES_USER"] == postgres.superuser and settings["POSTGRES_DB"] == "shop"
        postgres.create_database("shop")
        place = Place(postgres, cluster, port, tmp_path)
        run_script(cluster, place, services["kafka"]["healthcheck"]["test"][1:])
        assert "Created topic orders" in run_script(cluster, place, services["topics"]["command"])
        status, output, error = run_command(services["migrate"]["command"], place.environment(services["migrate"]))
        assert status == 0 and "applied 0001" in output, error

        variables = place.environment(services["relay"])
        assert run_command(["doctor"], variables)[0] == 0
        with Relay(variables, services["relay"]["command"]) as relay:
            relay.admin_port = port
            relay.wait_ready()
            assert run_command(services["relay"]["healthcheck"]["test"][2:], variables)[:2] == (0, "live\n")
            postgres.execute("SELECT outbox.publish('orders', '42', '{}'::text)", database="shop")
            record, = wait_for(lambda: list(read_topics(cluster.bootstrap, ["orders"])), 60, "the record")
            assert record.key == b"42"
            check_prometheus(services["prometheus"], place, port)


def check_prometheus(service, place, port):
    # The name by which Prometheus of the file calls the relay.
    with urllib.request.urlopen(urllib.request.Request(f"http://127.0.0.1:{port}/metrics",
                                                       headers={"Host": "relay:9187"}), timeout=10) as answer:
        assert answer.status == 200
    prometheus = Prometheus()
    for volume in service["volumes"]:
        if volume["type"] == "bind":
            assert volume["target"].startswith("/etc/prometheus/") and volume["read_only"]
            text = place.here(Path(volume["source"]).read_text(encoding="utf-8"))
            Path(prometheus.folder, volume["target"].rpartition("/")[2]).write_text(text, encoding="utf-8")
    assert "--config.file=/etc/prometheus/prometheus.yml" in service["command"]
    with prometheus:
        wait_for(lambda: [value for _, value in prometheus.query('up{job="outbox-relay"}')] == [1], 60, "the relay")
        wait_for(lambda: [value for _, value in prometheus.query("sum(relay_published_total)")] == [1], 60, "the row")
        rules = re.findall(r"- alert: (\w+)", (ROOT / "docs/examples/alerts.yml").read_text())
        assert rules and not prometheus.errors()
        assert all(prometheus.state_of(rule) in ("inactive", "pending", "firing") for rule in rules)
