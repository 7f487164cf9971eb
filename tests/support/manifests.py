"""Manifests of Kubernetes and files of Compose, decoded strictly by the Go types of their own projects.

python3 -m support.manifests builds the programs, which takes a minute the first time.
"""

import hashlib
import json
import os
import pathlib
import subprocess

from drivers.harness import build_once, locked

FOLDER = pathlib.Path(__file__).with_suffix("")
GO = pathlib.Path(__file__).with_name("go.sh")
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "outbox-relay/manifests-1")


def program(name):
    """The path of a program of the module, made once from the same files."""
    files = sorted(path for path in FOLDER.rglob("*") if path.is_file())
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()

    def build():
        done = subprocess.run([GO, "build", "-o", f"{CACHE}/", "./..."], cwd=FOLDER, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    with locked(CACHE):
        build_once(CACHE / "made-from", digest, build)
    return CACHE / name


def decode(name, *files):
    """What the program prints for the files; an error if it refuses one."""
    done = subprocess.run([program(name), *files], capture_output=True, text=True)
    if done.returncode:
        raise ValueError(done.stderr)
    return json.loads(done.stdout)


if __name__ == "__main__":
    program("kubernetes")
