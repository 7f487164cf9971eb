"""The container image: relay/packaging/Containerfile is built by buildah and run by podman, with a read-only root, no
capability and no shell.

No registry can be reached, so the base image is a bare Debian 12 (support/containers.py)."""
import json
import os
import re
import subprocess
from pathlib import Path
from urllib.request import urlopen

import pytest

from support.auditor import count_records
from support.containers import BASE, Images
from support.kafka import Kafka
from support.manifests import decode
from support.process import free_port, port_answers, wait_for
from support.threads import Stopped, thread_of

ROOT = Path(__file__).resolve().parents[2]
CONTAINERFILE = ROOT / "relay/packaging/Containerfile"
IMAGE = "outbox-relay"
MOST_MIB = 60
ACCOUNT = "10001"
GRACE = 15  # seconds: 5 s more than the longest lease and drain, as docs/guide/deploy/container.md says
LOCKED_DOWN = ("--read-only", "--read-only-tmpfs=false", "--cap-drop", "all", "--security-opt", "no-new-privileges")


@pytest.fixture(scope="module")
def images():
    store = Images()
    store.build(CONTAINERFILE, ROOT, IMAGE)
    yield store
    store.close()


@pytest.fixture
def start(images, tmp_path):
    """start(dsn, bootstrap): a container of the relay whose dsn is in a file, as a secret is."""
    def start(dsn, bootstrap, *options):
        secret = tmp_path / "dsn"
        secret.write_text(dsn + "\n")
        os.chmod(secret, 0o400)
        os.chown(secret, int(ACCOUNT), int(ACCOUNT))
        port = free_port()
        container = images.start(IMAGE, options=(
            *LOCKED_DOWN, "--volume", f"{secret}:/run/secrets/dsn:ro", "--env",
            "OUTBOX_RELAY_POSTGRES_DSN_FILE=/run/secrets/dsn", "--env",
            f"OUTBOX_RELAY_KAFKA_BOOTSTRAP_SERVERS={bootstrap}", "--env", f"OUTBOX_RELAY_ADMIN_LISTEN={port}",
            *options))
        wait_for(lambda: port_answers(port) or container.state["Status"] == "exited", 60, container.output)
        return container
    return start


def test_its_own_layers_are_small(images):
    own = images.inspect(IMAGE)["Size"] - images.inspect(BASE)["Size"]
    assert own <= MOST_MIB << 20, f"{own / (1 << 20):.1f} MiB"


def test_it_has_an_account_with_a_number_and_no_command_for_a_shell(images):
    found = images.inspect(IMAGE)
    about = found["Config"]
    assert about["User"] == f"{ACCOUNT}:{ACCOUNT}"  # of a name Kubernetes cannot know that it is not root's
    assert about["Entrypoint"] == ["/usr/bin/outbox-relay"] and about["Cmd"] == ["run"]
    assert found["Healthcheck"]["Test"] == ["CMD", "/usr/bin/outbox-relay", "health"]
    assert about["StopSignal"] == "SIGTERM"


def packages_of(root):
    """{package: version}, {path of a file: package} of an image."""
    admin = f"--admindir={root}/var/lib/dpkg"
    query = ["dpkg-query", admin, "-W", "-f", "${Package} ${Version}\\n"]
    versions = dict(line.split() for line in subprocess.run(query, capture_output=True, text=True,
                                                            check=True).stdout.splitlines())
    owners = {}
    for listing in Path(root, "var/lib/dpkg/info").glob("*.list"):
        owners |= dict.fromkeys(listing.read_text().splitlines(), listing.stem.partition(":")[0])
    return versions, owners


def test_it_has_each_library_that_the_program_is_linked_with_and_no_other(images):
    listed = re.search(r"no-install-recommends ca-certificates (.*?)&&", CONTAINERFILE.read_text().replace("\\\n", ""))
    with images.files(IMAGE) as root:
        versions, owners = packages_of(root)
        linked = subprocess.run(["objdump", "-p", root / "usr/bin/outbox-relay"], capture_output=True, text=True,
                                check=True).stdout
        materials = json.loads((root / "usr/share/outbox-relay/sbom.cdx.json").read_text())["components"]
    names = re.findall(r"NEEDED +(\S+)", linked)
    needed = {package for path, package in owners.items() if path.rpartition("/")[2] in names}
    assert set(listed[1].split()) == needed - {"libc6"}
    # The bill of materials was made in the other stage.
    found = {re.match(r"pkg:deb/debian/([^@]+)@", each["purl"])[1]: each["version"] for each in materials if "purl" in each}
    assert needed <= found.keys()
    assert all(versions[package] == version for package, version in found.items() if package in versions)


def test_it_publishes_and_is_stopped_without_loss(images, start, empty_database, kafka, topic):
    dsn = empty_database.dsn
    assert "applied 0001" in images.run(IMAGE, "migrate", "up", options=(
        *LOCKED_DOWN, "--env", f"DATABASE_URL={dsn}"))
    # An image without a shell: a file that cannot be run hides it.
    no_shell = ("--volume", "/dev/null:/usr/bin/dash:ro", "--volume", "/dev/null:/usr/bin/bash:ro")
    relay = start(dsn, kafka.bootstrap, *no_shell)
    assert relay.execute("/bin/sh", "-c", "true")[0] != 0
    empty_database.execute("insert into outbox.message (topic, key, payload) "
                           "select %s, i::text, '{}' from generate_series(1, 3) i", (topic,))
    wait_for(lambda: count_records(kafka.bootstrap, [topic]) == 3, 60, relay.output)

    status = Path(f"/proc/{relay.pid}/status").read_text()
    assert set(re.search(r"^Uid:\s+(.*)", status, re.MULTILINE)[1].split()) == {ACCOUNT}
    assert re.search(r"^CapEff:\s+0+$", status, re.MULTILINE) and re.search(r"^NoNewPrivs:\s+1$", status, re.MULTILINE)
    assert relay.execute("/usr/bin/touch", "/tmp/file")[0] != 0
    assert relay.probe() == 0
    assert relay.execute("/usr/bin/outbox-relay", "health") == (0, "live\n", "")

    assert relay.stop(GRACE) == 0, relay.output()
    assert "event=stopped" in relay.output()
    # Everything that was published was stored: another one finds nothing to repeat.
    again = start(dsn, kafka.bootstrap)
    empty_database.execute("insert into outbox.message (topic, payload) values (%s, '{}')", (topic,))
    wait_for(lambda: count_records(kafka.bootstrap, [topic]) >= 4, 60, again.output)
    assert again.stop(GRACE) == 0
    assert count_records(kafka.bootstrap, [topic]) == 4


def test_the_probe_fails_for_a_loop_that_stands_still_and_not_for_an_outage(start, own_database):
    with Kafka() as kafka:
        relay = start(own_database.dsn, kafka.bootstrap)
        wait_for(lambda: relay.probe() == 0, 60, relay.output)
        shard = thread_of(relay.pid, "shard")
        with Stopped(shard):
            wait_for(lambda: relay.probe() != 0, 60, "an unhealthy container")
            status, _, error = relay.execute("/usr/bin/outbox-relay", "health")
            assert status == 1 and "publisher main/0: last turn" in error
        wait_for(lambda: relay.probe() == 0, 60, "a healthy container")
        kafka.kill()
        own_database.postgres.stop("immediate")
        wait_for(lambda: "event=postgres_lost" in relay.output(), 60, relay.output)
        assert relay.probe() == 0


def kubelet_volume(folder, files, mode, group):
    """As the kubelet lays a ConfigMap or a Secret out, for pods with fsGroup."""
    version = folder / "..2026_11_27"
    version.mkdir(parents=True)
    for name, contents in files.items():
        (version / name).write_text(contents)
        os.chown(version / name, 0, group)
        (version / name).chmod(mode)
        (folder / name).symlink_to(f"..data/{name}")
    (folder / "..data").symlink_to(version.name)
    for each, rights in ((version, 0o2755), (folder, 0o3777)):
        os.chown(each, 0, group)
        each.chmod(rights)
    return folder


def test_it_runs_as_the_deployment_says(images, database, kafka, topic, tmp_path):
    objects = decode("kubernetes", *sorted((ROOT / "relay/packaging/kubernetes").glob("*.yaml")))
    named = {(each["kind"], each["metadata"]["name"]): each for each in objects}
    pod = named["Deployment", "outbox-relay"]["spec"]["template"]["spec"]
    container, = pod["containers"]
    account = pod["securityContext"]
    port = free_port()
    own = {"relay.ini": named["ConfigMap", "outbox-relay"]["data"]["relay.ini"].replace("9187", str(port)).replace(
        "kafka-1.example.com:9092", kafka.bootstrap), "dsn": database.dsn + "\n"}
    options = []
    for mount in container["volumeMounts"]:
        volume, = (each for each in pod["volumes"] if each["name"] == mount["name"])
        source = volume.get("configMap") or volume["secret"]
        kind, field = ("ConfigMap", "data") if "configMap" in volume else ("Secret", "stringData")
        files = named[kind, source.get("name") or source["secretName"]][field]
        folder = kubelet_volume(tmp_path / mount["name"], {name: own[name] for name in files}, source["defaultMode"],
                                account["fsGroup"])
        options += ["--volume", f"{folder}:{mount['mountPath']}:ro"]
    options += [word for each in container["env"] for word in ("--env", f"{each['name']}={each['value']}")]
    relay = images.start(IMAGE, *container["args"], options=(
        *LOCKED_DOWN, "--user", f"{account['runAsUser']}:{account['runAsGroup']}", "--group-add", account["fsGroup"],
        "--memory", container["resources"]["limits"]["memory"].replace("Mi", "m"), *options))

    def probe(name):
        return urlopen(f"http://127.0.0.1:{port}{container[name]['httpGet']['path']}", timeout=5).status == 200

    wait_for(lambda: port_answers(port) or relay.state["Status"] == "exited", 60, relay.output)
    assert probe("startupProbe")
    database.execute("insert into outbox.message (topic, payload) values (%s, '{}')", (topic,))
    wait_for(lambda: count_records(kafka.bootstrap, [topic]) == 1, 60, relay.output)
    assert probe("readinessProbe")
    assert relay.execute(*container["livenessProbe"]["exec"]["command"])[0] == 0
    assert "file_open_to_others" not in relay.output()
    assert relay.stop(pod["terminationGracePeriodSeconds"]) == 0
