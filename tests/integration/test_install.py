"""What `meson install` puts where, and that the compile lines of the docs work with it."""

import glob
import json
import os
import pathlib
import re
import subprocess

import pytest

from support.relay import binary

ROOT = pathlib.Path(__file__).parents[2]
BUILD = pathlib.Path(binary()).resolve().parents[2]
LINES = [(page.name, line) for page in sorted((ROOT / "docs").rglob("*.md"))
         # that of a file of the Debian package runs in tests/heavy/test_packages.py
         for line in re.findall(r"^ *(cc (?!/usr/share/doc/).*)$", page.read_text(), re.M)]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("installed")
    subprocess.run(["meson", "install", "-C", BUILD, "--no-rebuild", "--quiet", "--destdir", folder], check=True)
    yield folder / "usr/local"


def test_each_file_is_in_its_place(installed):
    assert {path.name for path in (installed / "include").iterdir()} == {"outbox"}
    headers = {path.name for path in (installed / "include/outbox").iterdir()}
    assert {"inbox.h", "dedup.h", "rules.h", "claims.h", "position.h"} <= headers
    shared = installed / "share/outbox-relay"
    assert {path.name for path in (shared / "barrier").iterdir()} == {"mysql.sql", "postgres.sql"}
    assert {path.name for path in (shared / "examples").iterdir()} == set(os.listdir(ROOT / "docs/examples"))
    sample = shared / "relay.ini"
    assert sample.read_text() == subprocess.run(
        [binary(), "config", "--print-sample"], capture_output=True, text=True, check=True).stdout


def test_a_default_build_needs_no_tests():
    options = {option["name"]: option for option in json.loads(subprocess.run(
        ["meson", "introspect", "--buildoptions", ROOT / "meson.build"], capture_output=True, text=True,
        check=True).stdout)}
    assert options["tests"]["value"] is False
    assert "dependency('cmocka')" in (ROOT / "meson.build").read_text().split("if get_option('tests')")[1]


def test_there_are_compile_lines():
    assert {line.split()[1] for _, line in LINES} == {
        "dedup.c", "inbox.c", "lookback.c", "rabbitmq.c", "redis_queue.c"}


@pytest.mark.parametrize("page, line", LINES)
def test_a_compile_line_works_as_it_stands(installed, tmp_path, page, line):
    metadata, = glob.glob(f"{installed}/lib/**/pkgconfig", recursive=True)
    for path in pathlib.Path(metadata).glob("*.pc"):
        path.write_text(path.read_text().replace("prefix=/usr/local", f"prefix={installed}"))
    for example in (ROOT / "docs/examples").glob("*.c"):
        (tmp_path / example.name).write_bytes(example.read_bytes())
    done = subprocess.run(line, shell=True, cwd=tmp_path, capture_output=True, text=True,
                          env={**os.environ, "PKG_CONFIG_PATH": metadata})
    assert done.returncode == 0, f"{page}: {line}: {done.stderr}"
    named = re.search(r" -o (\S+)", line)
    assert (tmp_path / (named[1] if named else "a.out")).exists()


def test_the_library_of_dedup_has_no_kafka_inside(installed):
    def links_kafka(name):
        path, = glob.glob(f"{installed}/lib/**/{name}.so", recursive=True)
        needed = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
        assert "libpq" in needed
        return "rdkafka" in needed

    assert links_kafka("liboutbox-inbox") and not links_kafka("liboutbox")


def needed(path):
    """The libraries that a file names itself."""
    listing = subprocess.run(["readelf", "--wide", "--dynamic", path], capture_output=True, text=True,
                             check=True).stdout
    return re.findall(r"\(NEEDED\).*\[(.*)\]", listing)


def test_the_programs_have_jemalloc_and_the_libraries_leave_it_to_the_application(installed):
    for name in ("outbox-relay", "outbox-relay-bench"):
        libraries = needed(installed / "bin" / name)
        assert libraries.index("libjemalloc.so.2") < libraries.index("libc.so.6"), name
        printed = subprocess.run([installed / "bin" / name, "--version"], capture_output=True, text=True, check=True,
                                 env={**os.environ, "MALLOC_CONF": "stats_print:true"}).stderr
        # librdkafka's constructors alone make allocations; none would mean that another malloc serves them
        assert int(re.search(r"^Allocated: (\d+)", printed, re.M)[1]) > 1000, name
    for name in ("liboutbox", "liboutbox-inbox"):
        path, = glob.glob(f"{installed}/lib/**/{name}.so", recursive=True)
        assert not [library for library in needed(path) if "malloc" in library], name
