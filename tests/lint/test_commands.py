"""Commands of outbox-relay: each has one file and a place in every list, and relay/ops prints nothing."""

import os
import re

import pytest

from lint.test_lint import C_FILES, PRODUCT, blank, findings, none_of, read

FOLDER = "relay/cli/commands"
ROW = re.compile(r"^const struct command command_(\w+) = \{\s*\.name = \"([^\"]+)\"", re.MULTILINE)
PRINTS = r"\b(?:(?:v?f?printf|f?puts|f?putc|putchar|perror|isatty)\s*\(|stdout\b|stderr\b)"
COMMANDS = {os.path.basename(path)[:-2]: read(path) for path in C_FILES
            if path.startswith(FOLDER + "/") and path.endswith(".c")}
LISTS = {  # what a command needs in each place
    "relay/cli/commands.h": "\tX({symbol})",
    f"{FOLDER}/meson.build": "'{symbol}.c'",
    "docs/reference/commands.md": "\n## {name}\n",
}


def faults_of_command(symbol, text, lists):
    """symbol: of the file's name. lists: {path: text}."""
    rows = ROW.findall(text)
    if [row[0] for row in rows] != [symbol]:
        return [f"{symbol}.c defines {rows}, and not only command_{symbol}"]
    name = rows[0][1]
    faults = [f"command_{symbol} is called '{name}'"] if re.sub(r"\W", "_", name) != symbol else []
    return faults + [f"{path}: has no '{name}'" for path, wanted in LISTS.items()
                     if wanted.format(symbol=symbol, name=name) not in lists[path]]


def test_each_command_has_its_file_and_stands_in_every_list():
    lists = {path: read(path) for path in LISTS}
    none_of([fault for symbol, text in COMMANDS.items()
             for fault in faults_of_command(symbol, text, lists)])
    assert len(COMMANDS) > 30


def test_every_list_names_commands_that_are_there():
    names = set(re.findall(r"\tX\((\w+)\)", read("relay/cli/commands.h")))
    assert names == set(COMMANDS)
    none_of([path for path in PRODUCT if os.path.dirname(path) == FOLDER and path.endswith(".h")],
            "commands share what is in relay/cli")


@pytest.mark.parametrize("text,left_out,fault", [
    ('const struct command command_a_b = {\n    .name = "a b",', None, None),
    ('const struct command command_a_b = {\n    .name = "a-b",', "docs/reference/commands.md", "docs/reference/commands.md: has no 'a-b'"),
    ('const struct command command_a_b = {\n    .name = "a b",', "relay/cli/commands.h", "commands.h: has no"),
    ('const struct command command_a_b = {\n    .name = "c",', None, "is called 'c'"),
    ('const struct command command_a = {\n    .name = "a",', None, "and not only command_a_b"),
    ("", None, "and not only command_a_b")])
def test_a_forgotten_place_is_found(text, left_out, fault):
    name = "a-b" if "a-b" in text else "a b"
    lists = {path: "" if path == left_out else wanted.format(symbol="a_b", name=name)
             for path, wanted in LISTS.items()}
    faults = faults_of_command("a_b", text, lists)
    assert any(fault in found for found in faults) if fault else not faults


def test_relay_ops_prints_nothing():
    paths = [path for path in PRODUCT if os.path.dirname(path) == "relay/ops"]
    none_of(findings(paths, PRINTS, "comment", "string"))
    assert len(paths) > 30


@pytest.mark.parametrize("text,prints", [
    ('printf("x");', True), ("fprintf(stderr, x);", True), ("puts (x);", True), ("isatty(1)", True),
    ("fflush(stdout);", True), ("snprintf(text, 3, x);", False), ("format(printf, 3, 4)", False),
    ("text_addf(out, x); log_warn(y); // puts(z)", False)])
def test_printing_is_told_from_making_text(text, prints):
    assert bool(re.search(PRINTS, blank(text, "comment", "string"))) == prints
