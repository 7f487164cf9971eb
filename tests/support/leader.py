"""A leader of a consumer group that leaves partition 2 without an owner once: ForgetfulLeader.java."""

import os
import pathlib
import subprocess

from .kafka import java
from .process import temporary_folder, wait_for


class ForgetfulLeader:
    """Leads the group if it joins before all others. A context manager: it leaves the group at the end."""

    def __init__(self, bootstrap, group, topic):
        self.output = os.path.join(temporary_folder("leader"), "divisions")
        with open(self.output, "w", encoding="utf-8") as output:
            self.process = subprocess.Popen(
                java(pathlib.Path(__file__).with_name("ForgetfulLeader.java"), bootstrap, group, topic),
                stdin=subprocess.PIPE, stdout=output)

    def __enter__(self):
        wait_for(self.divisions, 60, "a leader of the group")
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait(60)

    def divisions(self):
        """Each is "M members, N partitions", N: how many have got an owner."""
        with open(self.output, encoding="utf-8") as output:
            return output.read().splitlines()

    def wait_forgotten_and_healed(self, partitions):
        """Until all partitions have owners, after one had none."""
        wait_for(lambda: self.divisions()[-1] == f"2 members, {partitions} partitions", 60,
                 lambda: f"a division of all partitions, after {self.divisions()}")
        assert f"2 members, {partitions - 1} partitions" in self.divisions()
