"""Counts what a run of ./run-tests left in its results folder, and says what failed or was skipped.

    summary.py FOLDER    the last line: N passed, N failed, N skipped; exit status 1 when
                         anything failed or nothing ran

The folder holds
    NAME.pytest.xml   of pytest (JUnit)
    NAME.meson.json   of meson test, one line a program
    NAME.cmocka/      what cmocka wrote of these programs, one file a group
    steps             name TAB exit status TAB log file: builds, and runs that left no results
"""

import glob
import json
import os
import sys
import xml.etree.ElementTree as xml
from collections import Counter


class Summary:
    def __init__(self):
        self.counts = Counter(passed=0, failed=0, skipped=0)
        self.lines = []

    def add(self, result, name, text=""):
        self.counts[result] += 1
        if result == "skipped":
            self.lines.append(f"skipped: {name}: {text.strip()}")
        elif result == "failed":
            self.lines.append(f"FAILED: {name}")
            self.lines += [f"    {line}" for line in text.strip().splitlines()[-40:]]

    def junit(self, level, path):
        """Returns the number of failed cases; raises xml.ParseError on half a file."""
        failed = 0
        for case in xml.parse(path).iter("testcase"):
            name = f"{level}: {case.get('classname') or ''} {case.get('name')}".strip()
            skipped = case.find("skipped")
            problems = [*case.findall("failure"), *case.findall("error")]
            if problems:
                failed += 1
                self.add("failed", name, "\n".join(
                    problem.text or problem.get("message") or "" for problem in problems))
            elif skipped is not None:
                self.add("skipped", name, skipped.get("message") or skipped.text or "no reason")
            else:
                self.add("passed", name)
        return failed

    def program(self, level, outcome, cmocka):
        """One program of meson test: test by test where cmocka wrote its results."""
        name = f"{level}: {outcome['name']}"
        told = failed = 0
        for path in cmocka:
            try:
                failed += self.junit(name, path)
                told += 1
            except xml.ParseError:  # the program died while writing it
                pass
        output = (outcome.get("stdout") or "") + (outcome.get("stderr") or "")
        if outcome["result"] == "SKIP":
            self.add("skipped", name, output or "it ended with status 77")
        elif outcome["result"] != "OK" and not failed:
            self.add("failed", f"{name} ({outcome['result']}, {outcome.get('returncode')})", output)
        elif not told:
            self.add("passed" if outcome["result"] == "OK" else "failed", name, output)

    def meson(self, level, path):
        folder = path.replace(".meson.json", ".cmocka")
        with open(path) as file:
            for outcome in map(json.loads, file):
                program = outcome["name"].split("/")[-1].strip()
                self.program(level, outcome,
                             sorted(glob.glob(f"{folder}/test_{glob.escape(program)}-*.xml")))

    def step(self, name, status, log):
        text = ""
        if status != "0" and log:
            with open(log, errors="replace") as file:
                text = file.read()
        self.add("passed" if status == "0" else "failed", name, text)


def main(folder):
    summary = Summary()
    for path in sorted(glob.glob(os.path.join(folder, "*.pytest.xml"))):
        level = os.path.basename(path).split(".")[0]
        try:
            summary.junit(level, path)
        except xml.ParseError as error:
            summary.add("failed", f"{level}: its results cannot be read", str(error))
    for path in sorted(glob.glob(os.path.join(folder, "*.meson.json"))):
        summary.meson(os.path.basename(path).split(".")[0], path)
    steps = os.path.join(folder, "steps")
    if os.path.exists(steps):
        with open(steps) as file:
            for line in file:
                summary.step(*line.rstrip("\n").split("\t"))

    if summary.lines:
        print("\n".join(["", *summary.lines]))
    counts = summary.counts
    print(f"\n{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return 1 if counts["failed"] or not counts["passed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
