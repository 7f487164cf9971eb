"""Images that a Containerfile describes, and containers of them: by buildah, podman and runc, and without a registry.

The base image is made from the bare system of chroot.sh, which has all files of Debian's official image, and more
(that leaves out documentation). Needs root. No container outlives LONGEST_LIFE, not even if we are killed.
"""

import atexit
import contextlib
import json
import pathlib
import subprocess

from .process import temporary_folder, wait_for

SCRIPT = pathlib.Path(__file__).with_name("chroot.sh")
LONGEST_LIFE = 600  # seconds
BASE = "docker.io/library/debian:bookworm-slim"
# Podman would raise these limits, which a machine may forbid.
LIMITS = ["--ulimit", "nofile=4096:4096", "--ulimit", "nproc=4096:4096"]


class Images:
    """A store of images and containers of our own, which ends with us."""

    def __init__(self):
        folder = pathlib.Path(temporary_folder("containers"))
        self.options = ["--root", folder / "root", "--runroot", folder / "run"]
        self._containers = []
        atexit.register(self.close)
        system = subprocess.run([SCRIPT, "path", "bookworm"], check=True, capture_output=True, text=True).stdout.strip()
        self.podman("import", system, BASE)

    def podman(self, *words, status=0):
        """Its output."""
        done = self.run_podman(*words)
        assert done.returncode == status, f"podman {words}: {done.returncode}\n{done.stdout}{done.stderr[-5000:]}"
        return done.stdout

    def run_podman(self, *words):
        return subprocess.run(["podman", *self.options, "--runtime", "runc", "--cgroup-manager", "cgroupfs",
                               *[str(word) for word in words]], capture_output=True, text=True, stdin=subprocess.DEVNULL)

    def build(self, containerfile, context, name):
        done = subprocess.run(["buildah", *self.options, "build", "--pull-never", "--isolation", "chroot", "--format",
                               "docker", "--jobs", "2", "--tag", name, "--file", containerfile, context],
                              capture_output=True, text=True, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-10000:]

    def inspect(self, name):
        found, = json.loads(self.podman("image", "inspect", name))
        return found

    @contextlib.contextmanager
    def files(self, name):
        """The folder with all files of the image."""
        yield pathlib.Path(self.podman("image", "mount", name).strip())
        self.podman("image", "unmount", name)

    def run(self, image, *arguments, options=(), status=0):
        """Runs it to its end: the output."""
        return self.podman("run", "--rm", *self._common(), *options, image, *arguments, status=status)

    def start(self, image, *arguments, options=()):
        container = Container(self, self.podman("run", "--detach", *self._common(), *options, image,
                                                *arguments).strip())
        self._containers.append(container)
        return container

    def close(self):
        for container in self._containers:
            self.run_podman("rm", "--force", "--time", "0", container.id)
        self._containers.clear()

    def _common(self):
        """The network is the machine's own, so that a container reaches the servers of a test."""
        return ["--network", "host", "--timeout", LONGEST_LIFE, *LIMITS]


class Container:
    def __init__(self, images, identity):
        self.images = images
        self.id = identity

    @property
    def state(self):
        return json.loads(self.images.podman("inspect", "--format", "{{json .State}}", self.id))

    @property
    def pid(self):
        """On this machine, of the first process."""
        return self.state["Pid"]

    def execute(self, *words):
        """(exit status, standard output, standard error)"""
        done = self.images.run_podman("exec", self.id, *words)
        return done.returncode, done.stdout, done.stderr

    def probe(self):
        """The exit status of the image's HEALTHCHECK: 0 for healthy."""
        return self.images.run_podman("healthcheck", "run", self.id).returncode

    def output(self):
        done = self.images.run_podman("logs", self.id)
        return done.stdout + done.stderr

    def stop(self, grace):
        """SIGTERM, and SIGKILL after so many seconds: the exit status."""
        self.images.podman("stop", "--time", grace, self.id)
        return wait_for(lambda: self.state["Status"] == "exited" and self.state, 30, "the end")["ExitCode"]
