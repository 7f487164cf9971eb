"""What the programs are made of, and that anybody can make the same ones."""
import hashlib
import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from support import relay

ROOT = Path(__file__).resolve().parents[2]
VALIDATOR = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "outbox-relay/cyclonedx-11.12.0"
VALIDATE = """
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
sys.exit(str(JsonStrictValidator(SchemaVersion.V1_5).validate_str(sys.stdin.read()) or "") or 0)
"""


def bill_of(*files):
    made = subprocess.run([ROOT / "relay/packaging/sbom", "0.1.0", *files], capture_output=True, text=True,
                          env={**os.environ, "SOURCE_DATE_EPOCH": "1764201600"})
    assert made.returncode == 0, made.stderr
    return made.stdout


def needed(file):
    shown = subprocess.run(["readelf", "-d", file], check=True, capture_output=True, text=True).stdout
    return set(re.findall(r"\(NEEDED\).*\[(.+)\]", shown))


def test_the_bill_of_materials_lists_every_linked_library():
    programs = [relay.binary(), relay.bench_binary()]
    bill = json.loads(bill_of(*programs))
    listed = {component["name"]: component for component in bill["components"]}
    linked = set().union(*map(needed, programs))
    assert {"librdkafka.so.1", "libpq.so.5"} <= linked <= set(listed)
    assert {"outbox-relay", "outbox-relay-bench", "xxhash", "uthash", "chart.js"} <= set(listed)
    for name in linked:
        assert listed[name]["version"] and listed[name]["purl"].startswith("pkg:deb/debian/"), name
    known = {component["bom-ref"] for component in bill["components"]}
    for dependency in bill["dependencies"]:
        assert set(dependency["dependsOn"]) <= known


def test_the_bill_of_materials_is_a_valid_one_and_always_the_same():
    bill = bill_of(relay.binary())
    validated = subprocess.run([VALIDATOR / "bin/python", "-c", VALIDATE], input=bill, capture_output=True, text=True)
    assert validated.returncode == 0, validated.stderr
    assert bill_of(relay.binary()) == bill


def test_a_file_that_cannot_be_read_is_named():
    made = subprocess.run([ROOT / "relay/packaging/sbom", "0.1.0", "/nonexistent"], capture_output=True, text=True)
    assert made.returncode != 0 and "/nonexistent" in made.stderr


@pytest.mark.full("two builds of all packages take minutes")
def test_two_builds_of_a_commit_are_equal(tmp_path):
    sums = []
    for folder in (tmp_path / "one", tmp_path / "the other one"):
        subprocess.run([ROOT / "relay/packaging/build", "deb", folder], check=True, capture_output=True)
        sums.append({path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.glob("*.deb")})
    assert sums[0] == sums[1] and len(sums[0]) >= 4
