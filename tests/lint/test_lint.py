"""Rules of this tree that no compiler knows. Each test names the lines that break its rule."""

import os
import re
import shutil
import subprocess
from collections import defaultdict

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
ITSELF = os.path.relpath(os.path.abspath(__file__), ROOT)

# A row of the table of layers: | 2 | `outbox/store` | …
LAYER = re.compile(r"^\| (\d+) \| `([\w/]+)` \| (.+) \|$", re.MULTILINE)
# Headers of lower folders that only compute: the core of the publisher includes no others.
PURE_HEADERS = {"message.h", "copy_binary.h", "pg_array.h", "partitioner.h", "bloom_filter.h",
                "fingerprint.h"}
OWNERS = {r"libpq-fe\.h": "outbox/pg", r"librdkafka/": "outbox/kafka",
          r"curl/": "outbox/http", r"hiredis/": "outbox/redis",
          r"microhttpd\.h": "relay/admin", r"zstd\.h": "relay/upkeep",
          r"protobuf-c/|.*\.pb-c\.h": "relay/lookback"}
BANNED = re.compile(r"\b(strcpy|strcat|sprintf|vsprintf|strtok|atoi|atol|atoll|atof|gets|alloca)"
                    r"\s*\(")
# Cures may name an ALTER that an operator has to run; nothing else is told in SQL.
SQL = re.compile(r"\s*(select\s|insert\s+into\s|update\s+[\w.]+\s+set\s|delete\s+from\s|"
                 r"copy\s+\S+\s+(from|to)\s|truncate\s+\w|(create|drop)\s+(or\s+replace|table|"
                 r"schema|function|role|database|index|view|sequence)\b)", re.IGNORECASE)
TOKEN = re.compile(r'(?P<comment>/\*.*?\*/|//[^\n]*)|(?P<string>"(?:[^"\\\n]|\\.)*")'
                   r"|'(?:[^'\\\n]|\\.)*'", re.DOTALL)
INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]', re.MULTILINE)


def walk():
    """Paths of the tree's own files; nothing built, nothing of version control."""
    for folder, names, files in os.walk(ROOT):
        names[:] = sorted(name for name in names if name == ".ci" or not (
            name.startswith((".", "build")) or name == "__pycache__"))
        for name in sorted(set(files) - {".git"}):  # a file in a linked worktree
            yield os.path.relpath(os.path.join(folder, name), ROOT)


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8", errors="surrogateescape") as file:
        return file.read()


FILES = list(walk())
C_FILES = [path for path in FILES if path.endswith((".c", ".h"))]
PRODUCT = [path for path in C_FILES if path.startswith(("outbox/", "relay/"))]


def blank(text, *kinds):
    """The text with tokens of these kinds blanked out; every line keeps its number."""
    def cover(found):
        if found.lastgroup in kinds or (found.lastgroup is None and "string" in kinds):
            return re.sub(r"[^\n]", " ", found[0])
        return found[0]

    return TOKEN.sub(cover, text)


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def findings(paths, pattern, *blanked):
    found = []
    for path in paths:
        text = blank(read(path), *blanked) if blanked else read(path)
        found += [f"{path}:{line_of(text, hit.start())}: {hit[0].strip()}"
                  for hit in re.finditer(pattern, text)]
    return found


def includes(path):
    text = blank(read(path), "comment")
    return [(line_of(text, hit.start()), hit[1] == '"', hit[2]) for hit in INCLUDE.finditer(text)]


def none_of(found, advice=""):
    assert not found, "\n".join([advice, *map(str, found)])


def test_there_is_something_to_check():
    assert "outbox/base/errors.h" in C_FILES and len(PRODUCT) > 20


def test_no_banned_function_is_called():
    none_of(findings(C_FILES, BANNED, "comment", "string"))


def test_no_include_climbs_out_of_its_folder():
    none_of([f"{path}:{line}" for path in C_FILES for line, _, name in includes(path)
             if "../" in name])


def test_header_names_are_unique_in_the_tree():
    places = defaultdict(list)
    for path in C_FILES:
        if path.endswith(".h"):
            places[os.path.basename(path)].append(path)
    none_of([paths for paths in places.values() if len(paths) > 1])


def test_every_header_is_guarded():
    none_of([path for path in C_FILES
             if path.endswith(".h") and not read(path).startswith("#pragma once\n")])


def test_libraries_are_included_only_by_their_adapters():
    wrong = [f"{path}:{line}: {name}" for path in PRODUCT for line, _, name in includes(path)
             for library, owner in OWNERS.items()
             if re.match(library, name) and os.path.dirname(path) != owner]
    none_of(wrong)


def test_the_table_of_layers_names_each_folder_once():
    rows = [folder for _, folder, _ in LAYER.findall(read("docs/explain/architecture.md"))]
    assert sorted(rows) == sorted({os.path.dirname(path) for path in PRODUCT} | {"sql"})


def test_includes_point_strictly_downwards():
    level = {folder: int(number) for number, folder, _ in LAYER.findall(read("docs/explain/architecture.md"))}
    owner = {os.path.basename(path): os.path.dirname(path)
             for path in PRODUCT if path.endswith(".h")}
    wrong = []
    for path in PRODUCT:
        own = os.path.dirname(path)
        assert own in level, f"{own} is in no layer: add it to the table of docs/explain/architecture.md"
        for line, quoted, name in includes(path):
            other = owner.get(name) if quoted else None
            if other not in (None, own) and level[other] >= level[own]:
                wrong.append(f"{path}:{line}: {name} of {other}")
    none_of(wrong)


def test_the_core_of_the_publisher_includes_no_header_of_io():
    place = {os.path.basename(path): path for path in PRODUCT if path.endswith(".h")}
    seen = [path for path in PRODUCT if path.startswith("outbox/publish/core/")]
    wrong = []
    for path in seen:
        for line, quoted, name in includes(path):
            other = place.get(name) if quoted else None
            if not other or other in seen:
                continue
            seen.append(other)
            if os.path.dirname(other) != "outbox/base" and name not in PURE_HEADERS:
                wrong.append(f"{path}:{line}: {name}")
    none_of(wrong)


@pytest.mark.parametrize("extra,compiles", [("", True), ('#include "config.h"\n', False)])
def test_an_upward_include_does_not_compile(tmp_path, extra, compiles):
    source = tmp_path / "upward.c"
    source.write_text(extra + read("outbox/base/backoff.c"))
    status = subprocess.run(
        ["cc", "-std=gnu11", "-D_GNU_SOURCE", "-fsyntax-only",
         f"-I{os.path.join(ROOT, 'outbox/base')}", source], capture_output=True).returncode
    assert (status == 0) == compiles


@pytest.mark.parametrize("text,is_sql", [
    ("select pg_is_in_recovery()", True), ("INSERT INTO t VALUES (1)", True),
    ("update outbox.log set n = 1", True), (" create table t ()", True),
    ("drop schema s", True), ("created", False), ("update available", False),
    ("delete the topic", False), ("selected", False)])
def test_sql_is_told_from_words(text, is_sql):
    assert bool(SQL.match(text)) == is_sql


@pytest.mark.parametrize("text,count", [
    ("strcpy(a, b);", 1), ("/* strcpy(a) */ // atoi(b)", 0), ('log("gets(x)");', 0),
    ("my_strcpy(a); snprintf(b); fgets(c);", 0), ("x = '\\'' + atoi (s);", 1)])
def test_calls_are_told_from_comments_and_texts(text, count):
    assert len(BANNED.findall(blank(text, "comment", "string"))) == count


def test_no_sql_stands_in_c():
    found = []
    for path in PRODUCT:
        text = read(path)
        for token in TOKEN.finditer(text):
            if token.lastgroup == "string" and SQL.match(token[0][1:-1]):
                found.append(f"{path}:{line_of(text, token.start())}: {token[0][:60]}")
    none_of(found)


def test_c_is_formatted():
    formatter = shutil.which("clang-format-14") or shutil.which("clang-format")
    assert formatter, "clang-format is missing: tests/support/install.sh tools"
    done = subprocess.run([formatter, "--dry-run", "-Werror", *C_FILES], cwd=ROOT,
                          capture_output=True, text=True)
    wrong = sorted(set(re.findall(r"^([^:\n]+\.[ch]):\d+", done.stderr, re.MULTILINE)))
    none_of(wrong, f"run {formatter} -i on these:")
    assert done.returncode == 0, done.stderr


def test_no_path_of_somebodys_machine():
    paths = [path for path in FILES if path not in ("LICENSE", ITSELF)]
    none_of(findings(paths, r"(?<![\w.}])/(home|work|Users)/\w+"))


def test_cases_of_the_look_back_name_tests_that_are_there():
    named = re.findall(r"`(tests/[\w/.]+)::(\w+)(?:\[([^\]]+)\])?`", read("docs/explain/lookback-cases.md"))
    wrong = []
    for path, name, parameter in named:
        text = read(path) if path in FILES else ""
        if not (re.search(rf"^(?:def|static void|int) {name}\(", text, re.MULTILINE)
                and f'"{parameter}' in text):
            wrong.append(f"{path}::{name} {parameter}")
    none_of(wrong)
    assert len(named) > 50


def test_nothing_is_left_to_be_done_later():
    paths = [path for path in FILES if path != ITSELF]
    none_of(findings(paths, r"\b(TODO|FIXME)\b"))


def test_scripts_start_with_an_interpreter():
    wrong = [path for path in FILES if os.access(os.path.join(ROOT, path), os.X_OK)
             and not read(path).startswith("#!")]
    none_of(wrong)


# --- fuzz targets ------------------------------------------------------------------------------

# Names of functions that read a text or bytes which somebody else wrote.
PARSER = re.compile(r"^\w[\w *]*?\b(\w+?_(?:parse|decode|verify|read)(?:_\w+)?|\w+_from_(?:copy|result|json)|"
                    r"json_slice\w*|json_text_is)\(", re.MULTILINE)


def declared_parsers(texts):
    """Functions that such headers declare; those of programs that measure are not exposed."""
    return {name for text in texts for name in PARSER.findall(blank(text, "comment", "string"))}


def parser_table(text):
    """{function: (target, note)}; comments begin with #."""
    rows = [line.split(None, 2) for line in text.splitlines() if line and line[0] != "#"]
    return {row[0]: (row[1], row[2] if len(row) > 2 else "") for row in rows}


def faults_of_parser_table(table, declared, functions, targets):
    """functions: names in all headers. targets: {name: source}."""
    faults = [f"{name}: has no row in tests/fuzz/parsers.txt" for name in declared - set(table)]
    for name, (target, note) in table.items():
        through = re.match(r"through (\w+)", note)
        called = through[1] if through else name
        if name not in functions:
            faults.append(f"{name}: no header declares it")
        elif target == "-" and not note:
            faults.append(f"{name}: has no target and no reason")
        elif target != "-" and target not in targets:
            faults.append(f"{name}: there is no target {target}")
        elif target != "-" and not re.search(rf"\b{called}\b", targets[target]):
            faults.append(f"{name}: fuzz_{target}.c does not call {called}")
    used = {target for target, _ in table.values()}
    return faults + [f"fuzz_{name}: no row names it" for name in set(targets) - used]


def test_every_parser_has_a_fuzz_target_or_a_reason():
    headers = [read(path) for path in PRODUCT
               if path.endswith(".h") and not path.startswith("relay/bench/")]
    built = set(re.findall(r"^  '(\w+)': \[", read("tests/fuzz/meson.build"), re.MULTILINE))
    targets = {os.path.basename(path)[5:-2]: read(path) for path in C_FILES
               if path.startswith("tests/fuzz/fuzz_")}
    functions = set(re.findall(r"\b(\w+)\(", "\n".join(headers)))
    table = parser_table(read("tests/fuzz/parsers.txt"))
    assert built == set(targets)
    none_of(faults_of_parser_table(table, declared_parsers(headers), functions, targets))
    assert len(table) > 50 and len(targets) >= 20


@pytest.mark.parametrize("table,fault", [
    ("a_parse  one\n", None),
    ("", "a_parse: has no row"),
    ("a_parse  two\n", "there is no target two"),
    ("a_parse  one\nb_read  one\n", "b_read: no header declares it"),
    ("a_parse  one  through c_parse\n", "does not call c_parse"),
    ("a_parse  -\n", "no target and no reason"),
    ("a_parse  -  it is trusted\n", "fuzz_one: no row names it")])
def test_gaps_of_the_parser_table_are_found(table, fault):
    faults = faults_of_parser_table(
        parser_table(table), declared_parsers(["bool a_parse(const char *text);\n"]), {"a_parse"},
        {"one": "if (a_parse(text))"})
    assert any(fault in found for found in faults) if fault else not faults


# --- keys of the configuration -------------------------------------------------------------------

CONFIG_KEY = re.compile(r'(?:([A-Z]+?)(_MS)?\((\w+)\)|CONFIG_([A-Z]+), "(\w+)")')


def rows_of_macros(table):
    """The table with the rows of its macros NAME_ROWS(kind, section) in their places."""
    macros = dict(re.findall(r"#define (\w+_ROWS)\(kind, section\)((?:.*\\\n)*.*)", table))
    return re.sub(r"\n\t(\w+_ROWS)\((\w+), \w+\),", lambda use: re.sub(r"\bkind\b", use[2], macros[use[1]]), table)


def config_keys(table):
    """Each row of config_rows.c as (section, key, member or None, help)."""
    table = rows_of_macros(table)
    table = table[table.index("config_rows[] = {"):].split("\n};")[0]
    for row in re.split(r"\n\t\{", table)[1:]:
        macro, unit, name, kind, key = CONFIG_KEY.match(row).groups()
        offset = re.search(r"(?:offsetof|CREDENTIAL)\([^,]+, (?:\w+\.)*(\w+)\)", row)
        member = offset[1] if offset else name and name + (unit or "").lower()
        text = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', row[row.find(".help"):]))
        yield (macro or kind).lower(), key or name, member, text if ".help" in row else ""


def faults_of_config_keys(table, page, product, tests):
    """page: docs/reference/configuration.md; product, tests: their sources as one text."""
    keys = list(config_keys(table))
    known = {row[:2] for row in keys}
    parts = re.split(r"^## \[(\w+)", page, flags=re.M)
    # the table of [kafka] has properties of librdkafka, from kafka_defaults.c
    printed = {(section, key) for section, text in zip(parts[1::2], parts[2::2]) if section != "kafka"
               for key in re.findall(r"^\| `(\w+)` \|", text, re.M)}
    members = set(re.findall(r"(?:->|\.)(\w+)", product))
    settings = set(re.findall(r'\w+(?= ?=)|(?<=")\w+(?=")|OUTBOX_RELAY_\w+',
                              tests.replace("\\n", " ")))
    faults = [f"[{section}] {key}: the reference has it, but no row of config_rows.c"
              for section, key in printed - known]
    for section, key, member, text in keys:
        variable = f"OUTBOX_RELAY_{section}_{key}".upper()
        if not text.endswith((".", "?")):
            faults.append(f"[{section}] {key}: its help is no sentence")
        if (section, key) not in printed:
            faults.append(f"[{section}] {key}: print docs/reference/configuration.md again")
        if member and member not in members:
            faults.append(f"[{section}] {key}: no code reads {member}")
        if member and key not in settings and variable not in settings:
            faults.append(f"[{section}] {key}: no test sets it")
    return faults


def test_every_key_of_the_configuration_is_documented_read_and_tested():
    product = "".join(read(path) for path in PRODUCT if path != "relay/conf/config_rows.c")
    tests = "".join(read(path) for path in FILES
                    if re.match(r"tests/(unit|integration|faults|heavy|support)/", path))
    table = read("relay/conf/config_rows.c")
    none_of(faults_of_config_keys(table, read("docs/reference/configuration.md"), product, tests))
    assert len(list(config_keys(table))) > 100


@pytest.mark.parametrize("row,page,product,tests,fault", [
    ('LOG_MS(every), .help = "It is."', "every", "log->every_ms", "every = 1s", None),
    ('CONFIG_LOG, "every_file", CONFIG_FILE, .help = "It is."', "every_file", "", "", None),
    ('CONFIG_LOG, "every", offsetof(struct config, log.often), .help = "It is."', "every",
     "config->log.often", "OUTBOX_RELAY_LOG_EVERY", None),
    ('LOG(every)', "every", "log->every", "every=1", "help is no sentence"),
    ('LOG(every), .help = "It is."', "other", "log->every", "every=1", "print docs"),
    ('LOG(every), .help = "It is."', "other", "log->every", "every=1", "but no row"),
    ('LOG(every), .help = "It is."', "every", "log->everything", "every=1", "no code reads every"),
    ('LOG(every), .help = "It is."', "every", "log->every", "everything=1", "no test sets it")])
def test_forgotten_places_of_a_key_are_found(row, page, product, tests, fault):
    faults = faults_of_config_keys(f"config_rows[] = {{\n\t{{{row}}},\n}};",
                                   f"## [log]\n| `{page}` | any |\n", product, tests)
    assert any(fault in found for found in faults) if fault else not faults
