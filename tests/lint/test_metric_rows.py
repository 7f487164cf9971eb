"""Metrics are rows of tables. These tests say which place of a new metric was forgotten.

The recipe "A metric" of CONTRIBUTING.md has the places in their order.
"""

import os
import re
from typing import NamedTuple

import pytest

from lint.test_lint import PRODUCT, TOKEN, blank, includes, none_of, read

PAGE = "docs/reference/metrics.md"
PRINTER = "tests/unit/metrics_page.c"
TABLE = re.compile(r"^const struct metric_table (\w+) = \{(.*?)^\};", re.MULTILINE | re.DOTALL)
ROWS = re.compile(r"^static const struct metric_row (\w+)\[\] = \{(.*?)^\};", re.MULTILINE | re.DOTALL)
ROW = re.compile(r'^    \{"(\w+)",\s*METRIC_(\w+),\s*(\w+)\((\w+)\)', re.MULTILINE)
FIELD = re.compile(r"#define (\w+)\(member\)\s+METRIC_FIELD\(struct (\w+), member\)")
SERIES = re.compile(r"struct metric ((?:\s*\*\w+,?)+);")
PAGE_ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| ", re.MULTILINE)
SUFFIXES = {"counter": r"_total", "histogram": r"_(seconds|bytes)", "gauge": r"(?<!_total)"}


class Row(NamedTuple):
    path: str
    table: str
    name: str
    kind: str
    struct: str
    member: str

    def __str__(self):
        return f"{self.path}: {self.name}"


def rows_of(path, text):
    structs = dict(FIELD.findall(text))
    tables = {rows: table for table, body in TABLE.findall(text)
              for rows in re.findall(r"METRIC_ROWS_OF\((\w+)\)", body)}
    return [Row(path, tables.get(rows), name, kind.lower(), structs.get(macro), member)
            for rows, body in ROWS.findall(text) for name, kind, macro, member in ROW.findall(body)]


def members_of(struct, texts):
    """The series that a struct of series declares; None: it is a struct of figures."""
    for text in texts:
        body = re.search(rf"\bstruct {struct} \{{(.*?)^\}}", text, re.MULTILINE | re.DOTALL)
        if body:
            return re.findall(r"\*(\w+)", " ".join(SERIES.findall(body[1]))) or None
    return None


def faults_of_names(rows):
    names = [row.name for row in rows]
    return [f"{row}: the name is no relay_…{'_total' if row.kind == 'counter' else ''}, in base units"
            for row in rows if not re.fullmatch(rf"relay(_[a-z0-9]+)+{SUFFIXES[row.kind]}", row.name)
            ] + [f"{row}: there are two of this name" for row in rows if names.count(row.name) > 1]


def faults_of_page(rows, page, printer):
    printed = dict(PAGE_ROW.findall(page))
    faults = [f"{row}: {PAGE} is older than the row" for row in rows if printed.get(row.name) != row.kind]
    faults += [f"{PAGE}: {name}: there is no row" for name in printed if name not in {row.name for row in rows}]
    return faults + [f"{row}: {PRINTER} does not print {row.table}" for row in rows
                     if not row.table or f"&{row.table}," not in printer]


def faults_of_updates(rows, sources, users):
    """sources: {path: code}; users: {path of rows: paths of the code that may update them}."""
    faults = []
    for row in rows:
        series = members_of(row.struct, sources.values())
        used = "\n".join(sources[path] for path in users[row.path])
        if series and not re.search(rf"(metrics|series)(\([^()]*\))?(->|\.){row.member}\b", used):
            faults.append(f"{row}: nothing updates {row.member}")
        if series is None and not re.search(rf"\bmetric_note\(\s*&{row.table}\b", used):
            faults.append(f"{row}: no metric_note reads {row.member}")
        if series is None and not re.search(
                rf"\b{row.member}\b", "\n".join(code for path, code in sources.items()
                                              if path != row.path and path.endswith(".c"))):
            faults.append(f"{row}: nothing sets {row.member}")
    return faults


def faults_of_series(rows, sources):
    faults, placed = [], {(row.struct, row.member) for row in rows}
    for struct in sorted({row.struct for row in rows}):
        faults += [f"struct {struct}: {member} has no row" for member in members_of(struct, sources.values()) or []
                   if (struct, member) not in placed]
    return faults


def code_without_rows(text):
    return ROWS.sub("", blank(text, "comment"))


ROWS_OF_TREE = [row for path in PRODUCT if path.endswith(".c") for row in rows_of(path, read(path))]
SOURCES = {path: code_without_rows(read(path)) for path in PRODUCT}


def users_of(path):
    """Files beside the table, and those that include its header."""
    header = os.path.basename(path)[:-2] + ".h"
    return [other for other in PRODUCT if os.path.dirname(other) == os.path.dirname(path)
            or header in {name for _, _, name in includes(other)}]


def test_rows_of_metrics_are_found():
    assert len(ROWS_OF_TREE) > 80
    written = {name for path in PRODUCT for token in TOKEN.finditer(read(path))
               if token.lastgroup == "string" for name in re.findall(r'^"(relay_\w+)"$', token[0])}
    none_of(sorted(written - {row.name for row in ROWS_OF_TREE}), "names of metrics that are in no table:")


def test_names_of_metrics_follow_the_pattern():
    none_of(faults_of_names(ROWS_OF_TREE))


def test_every_metric_is_on_the_page():
    none_of(faults_of_page(ROWS_OF_TREE, read(PAGE), read(PRINTER)),
            f"run build/release/tests/unit/metrics_page > {PAGE}")


def test_every_metric_is_updated():
    users = {path: users_of(path) for path in {row.path for row in ROWS_OF_TREE}}
    none_of(faults_of_updates(ROWS_OF_TREE, SOURCES, users))


def test_every_series_has_a_row():
    none_of(faults_of_series(ROWS_OF_TREE, SOURCES))


GOOD = '''
struct part_metrics {
	struct metric *sent, *late;
};
#define SERIES(member) METRIC_FIELD(struct part_metrics, member)
#define STATS(member) METRIC_FIELD(struct part_stats, member)
static const struct metric_row part_rows[] = {
    {"relay_sent_total", METRIC_COUNTER, SERIES(sent), "Sent."},
    {"relay_late_seconds", METRIC_GAUGE, SERIES(late), "Late."},
    {"relay_open", METRIC_GAUGE, STATS(open), "Open."},
};
const struct metric_table part_metric_table = {
    METRIC_ROWS_OF(part_rows),
};
void tell_part(void)
{
	metric_add(metrics->sent, 1);
	metric_set(part->metrics.late, 1);
	metric_note(&part_metric_table, NULL, &stats);
}
'''
GOOD_PAGE = """
| `relay_sent_total` | counter | Sent. |
| `relay_late_seconds` | gauge | Late. |
| `relay_open` | gauge | Open. |
"""


@pytest.mark.parametrize("old,new,fault", [
    ("", "", None),
    ("relay_sent_total", "relay_sent", "no relay_…_total"),
    ("relay_open", "relay_open_total", "no relay_…,"),
    ("relay_open", "open", "no relay_…,"),
    ("relay_open", "relay_late_seconds", "two of this name"),
    ("relay_open", "relay_closed", "older than the row"),
    ('relay_open", METRIC_GAUGE', 'relay_open", METRIC_COUNTER', "older than the row"),
    ('    {"relay_open", METRIC_GAUGE, STATS(open), "Open."},\n', "", "relay_open: there is no row"),
    ("metrics->sent", "metrics->late", "nothing updates sent"),
    ("metric_note(&part", "metric_note(&other", "no metric_note reads open"),
    ("STATS(open)", "STATS(shut)", "nothing sets shut"),
    ("*late;", "*late, *lost;", "lost has no row"),
    ("part_metric_table = ", "other_metric_table = ", "does not print other_metric_table")])
def test_forgotten_places_of_a_metric_are_found(old, new, fault):
    text = GOOD.replace(old, new, 1)
    rows = rows_of("part.c", text)
    sources = {"part.c": code_without_rows(text), "other.c": "stats.open = 1;"}
    faults = faults_of_names(rows) + faults_of_page(rows, GOOD_PAGE, "&part_metric_table,") \
        + faults_of_updates(rows, sources, {"part.c": ["part.c"]}) + faults_of_series(rows, sources)
    assert any(fault in found for found in faults) if fault else not faults
