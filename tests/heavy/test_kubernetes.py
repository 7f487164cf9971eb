"""The manifests of relay/packaging/kubernetes: every field is one of Kubernetes, the objects fit together, and the
relay takes the configuration. test_container.py runs the image as the Deployment says; no cluster is started."""
import re
from pathlib import Path

import pytest

from support.manifests import decode
from support.relay import run_command

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "relay/packaging/kubernetes"
PAGE = (ROOT / "docs/guide/deploy/kubernetes.md").read_text()
FILES = sorted(FOLDER.glob("*.yaml"))
MESON = (ROOT / "meson.build").read_text()
LEASE, DRAIN, HANDOVER = 5, 10, 5  # seconds; the first two are defaults of the configuration
ACCOUNT = re.search(r"^USER (\d+):(\d+)$", (ROOT / "relay/packaging/Containerfile").read_text(), re.MULTILINE)


@pytest.fixture(scope="module")
def objects():
    return decode("kubernetes", *FILES)


@pytest.fixture(scope="module")
def one(objects):
    """one(kind): the only object of the kind, or that of the name."""
    def find(kind, name=None):
        found, = (each for each in objects if each["kind"] == kind and name in (None, each["metadata"]["name"]))
        return found
    return find


@pytest.fixture(scope="module")
def pods(one):
    """{kind: specification} of those that are started."""
    return {kind: one(kind)["spec"]["template"]["spec"] for kind in ("Deployment", "Job")}


def container_of(pod):
    found, = pod["containers"]
    return found


@pytest.mark.parametrize("right, wrong, said", [
    ("readOnlyRootFilesystem:", "readOnlyRootFileSystem:", 'unknown field "spec.template.spec.containers[0].securityContext'),
    ("replicas: 2", "replicas: 2\n  replicas: 3", 'key "replicas" already set in map'),
    ("periodSeconds: 10", "periodSeconds: often", "cannot unmarshal string"),
    ("apiVersion: policy/v1\n", "apiVersion: policy/v1beta2\n", 'no kind "PodDisruptionBudget" is registered'),
])
def test_a_broken_manifest_is_refused(tmp_path, right, wrong, said):
    text = (FOLDER / "deployment.yaml").read_text()
    assert text.count(right) == 1
    broken = tmp_path / "broken.yaml"
    broken.write_text(text.replace(right, wrong))
    with pytest.raises(ValueError, match=re.escape(said)):
        decode("kubernetes", broken)


def test_selectors_match_the_labels(one):
    labels = one("Deployment")["spec"]["template"]["metadata"]["labels"]
    others = one("Job")["spec"]["template"]["metadata"]["labels"]
    spread, = one("Deployment")["spec"]["template"]["spec"]["topologySpreadConstraints"]
    selectors = [*(one(kind)["spec"]["selector"]["matchLabels"] for kind in ("Deployment", "PodDisruptionBudget")),
                 spread["labelSelector"]["matchLabels"], one("Service")["spec"]["selector"]]
    for selector in selectors:
        assert selector.items() <= labels.items() and not selector.items() <= others.items()


def test_probes_and_the_service_use_the_port_of_the_configuration(one, pods):
    container = container_of(pods["Deployment"])
    listen = re.search(r"^\[admin\]\nlisten = 0\.0\.0\.0:(\d+)$", one("ConfigMap")["data"]["relay.ini"], re.MULTILINE)
    port, = container["ports"]
    assert port["containerPort"] == int(listen[1])
    for probe, path in (("startupProbe", "/livez"), ("readinessProbe", "/readyz")):
        assert container[probe]["httpGet"] == {"path": path, "port": port["name"]}
    served, = one("Service")["spec"]["ports"]
    assert (served["targetPort"], served["port"]) == (port["name"], port["containerPort"])
    # A restart does not help in an outage: the probe that restarts is not that of readiness.
    assert container["livenessProbe"]["exec"]["command"] == ["/usr/bin/outbox-relay", "health"]
    status, output, _ = run_command(["help", "health"])
    assert status == 0 and "outbox-relay health" in output


def test_the_relay_takes_the_configuration_and_the_secrets(one, pods, tmp_path):
    mounts = {mount["mountPath"]: mount["name"] for mount in container_of(pods["Deployment"])["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in pods["Deployment"]["volumes"]}
    files = {"configMap": one("ConfigMap")["data"], "secret": one("Secret", "outbox-relay")["stringData"]}
    assert set(mounts.values()) == set(volumes)
    text = None
    for path, name in mounts.items():
        kind, = volumes[name].keys() - {"name"}
        folder = tmp_path / name
        folder.mkdir()
        for file, contents in files[kind].items():
            (folder / file).write_text(contents)
            (folder / file).chmod(volumes[name][kind]["defaultMode"])
            if f"{path}/{file}" == "/etc/outbox-relay/relay.ini":
                text, named = folder / file, path
    ini = text.read_text()
    for path, name in mounts.items():
        ini = ini.replace(path, str(tmp_path / name))
    text.write_text(ini)
    variables = {each["name"]: each["value"] for each in container_of(pods["Deployment"])["env"]}
    assert variables == {"OUTBOX_RELAY_CONFIG": f"{named}/relay.ini"}
    status, output, error = run_command(["check-config"], {"OUTBOX_RELAY_CONFIG": text})
    assert status == 0, output + error
    # Control: a key that the relay does not know.
    text.write_text(ini.replace("listen =", "listens ="))
    assert run_command(["check-config"], {"OUTBOX_RELAY_CONFIG": text})[0] == 78


def test_the_migration_uses_the_secret_of_the_owner(one, pods):
    pod = pods["Job"]
    container = container_of(pod)
    mount, = container["volumeMounts"]
    volume, = pod["volumes"]
    variable, = container["env"]
    assert mount["name"] == volume["name"] and volume["secret"]["secretName"] == "outbox-relay-owner"
    assert variable["name"] == "OUTBOX_RELAY_POSTGRES_DSN_FILE"
    assert variable["value"].rpartition("/")[::2] == (mount["mountPath"], *one("Secret", "outbox-relay-owner")["stringData"])
    assert container["args"] == ["migrate", "up"] and run_command(["migrate", "up", "--help"])[0] == 0


@pytest.mark.parametrize("kind", ["Deployment", "Job"])
def test_a_pod_has_no_rights_and_its_own_variables_only(one, pods, kind):
    """The names of a Service come as variables, OUTBOX_RELAY_SERVICE_HOST among them, which the relay refuses."""
    pod, container = pods[kind], container_of(pods[kind])
    assert pod["securityContext"] == {
        "runAsNonRoot": True, "runAsUser": int(ACCOUNT[1]), "runAsGroup": int(ACCOUNT[2]), "fsGroup": int(ACCOUNT[2]),
        "seccompProfile": {"type": "RuntimeDefault"}}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
    assert pod["automountServiceAccountToken"] is False and pod["enableServiceLinks"] is False
    assert container["resources"]["requests"] and container["resources"]["limits"]["memory"]
    assert container["image"].endswith(f":{re.search(r'version: .([0-9.]+).,', MESON)[1]}")
    status, _, error = run_command(["check-config"], {"OUTBOX_RELAY_SERVICE_HOST": "10.0.0.1"})
    assert status == 78 and "OUTBOX_RELAY_SERVICE_HOST" in error


def test_two_processes_and_time_to_hand_over(one, pods):
    budget = one("PodDisruptionBudget")["spec"]
    assert one("Deployment")["spec"]["replicas"] >= 2 and budget["maxUnavailable"] == 1
    assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"  # in an outage no pod is ready
    assert pods["Deployment"]["terminationGracePeriodSeconds"] >= max(LEASE, DRAIN) + HANDOVER
    assert pods["Deployment"]["serviceAccountName"] == one("ServiceAccount")["metadata"]["name"]


def test_the_page_names_each_file():
    assert {f"relay/packaging/kubernetes/{path.name}" for path in FILES} == set(
        re.findall(r"relay/packaging/kubernetes/\w+\.yaml", PAGE))
