"""Debian packages: relay/packaging/build deb makes them, and lintian finds nothing wrong."""
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ["liboutbox-dev", "liboutbox0", "outbox-relay", "outbox-relay-bench"]


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("packages")
    built = subprocess.run([ROOT / "relay/packaging/build", "deb", folder], capture_output=True, text=True)
    assert built.returncode == 0, built.stdout[-5000:] + built.stderr[-5000:]
    return folder


def test_every_package_is_built(packages):
    assert sorted(path.name.split("_")[0] for path in packages.glob("*.deb")
                  if "-dbgsym" not in path.name) == PACKAGES


def test_lintian_finds_nothing(packages):
    found = subprocess.run(["lintian", "--fail-on", "error,warning", "--tag-display-limit", "0",
                            *packages.glob("*.changes")], capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr
