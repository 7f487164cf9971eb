"""How the release program is built, and what it keeps from a core dump."""

import os
import platform
import re
import shutil
import subprocess
import tempfile

import pytest

from support.process import wait_for
from support.relay import bench_binary, binary, environment

NOBODY = 65534


def readelf(*arguments):
    return subprocess.run(["readelf", "--wide", *arguments, binary()], check=True,
                          capture_output=True, text=True).stdout


def test_it_is_position_independent_and_its_tables_are_read_only():
    dynamic = readelf("--dynamic")
    assert re.search(r"Type:\s+DYN", readelf("--file-header"))
    assert re.search(r"FLAGS_1\).*\bNOW\b.*\bPIE\b", dynamic)
    segments = readelf("--segments")
    assert re.search(r"^\s+GNU_RELRO", segments, re.MULTILINE)
    assert re.search(r"^\s+GNU_STACK.* RW +0x", segments, re.MULTILINE)


def test_overflows_are_noticed():
    """By calls that the compiler put in, one of them for each protection."""
    symbols = readelf("--dyn-syms")
    assert "__stack_chk_fail" in symbols
    for name in ("memcpy", "snprintf", "vsnprintf"):
        assert f"__{name}_chk" in symbols, name


def names_of_the_bench(program):
    """Texts and symbols of a program that speak of the bench; "benchmark" is a range of addresses."""
    printed = [subprocess.run([*tool, program], check=True, capture_output=True, text=True).stdout
               for tool in (["strings", "--data"], ["nm"])]
    return [line for line in "".join(printed).splitlines()
            if re.search(r"bench(?!mark)", line, re.IGNORECASE)]


def test_the_relay_contains_nothing_of_the_bench():
    assert names_of_the_bench(binary()) == []
    found = "\n".join(names_of_the_bench(bench_binary()))
    assert "outbox.bench_plain" in found and "bench_business_grpc" in found


@pytest.mark.skipif(platform.machine() != "x86_64", reason="CET is of x86-64")
def test_jumps_have_marked_targets():
    listing = subprocess.run(["objdump", "--disassemble=main", binary()], check=True,
                             capture_output=True, text=True).stdout
    assert re.search(r"<main>:\n.*endbr64", listing)


def test_memory_is_kept_from_core_dumps_and_other_processes():
    """The kernel gives /proc/PID of such a process to root."""
    folder = tempfile.mkdtemp()
    identity = {"user": NOBODY, "group": NOBODY} if os.getuid() == 0 else {}
    try:
        os.chmod(folder, 0o755)
        shutil.copy(binary(), os.path.join(folder, "relay"))
        with open(os.path.join(folder, "relay.ini"), "w", encoding="ascii") as file:
            file.write("[kafka]\nbootstrap.servers = 127.0.0.1:1\n[deliver \"a\"]\n"
                       "topics = x\nurl = http://127.0.0.1:1/\n")
        with subprocess.Popen([os.path.join(folder, "relay"), "--config",
                               os.path.join(folder, "relay.ini"), "run"], cwd=folder,
                              env=environment({}), **identity,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process, \
                subprocess.Popen(["sleep", "60"], **identity) as other:
            try:
                assert any(b"event=started" in line for line in process.stderr)
                wait_for(lambda: os.stat(f"/proc/{other.pid}/environ").st_uid ==
                         identity.get("user", os.getuid()), what="the other to be one's own")
                assert process.poll() is None
                assert os.stat(f"/proc/{process.pid}/environ").st_uid == 0
            finally:
                process.kill()
                other.kill()
    finally:
        shutil.rmtree(folder)
