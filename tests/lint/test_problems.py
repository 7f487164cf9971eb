"""Each code of a refusal is a row of relay/admin/api_problem.c and of docs/reference/api.md."""

import re

import pytest

from lint.test_lint import PRODUCT, blank, none_of, read

TABLE = "relay/admin/api_problem.c"
PAGE = "docs/reference/api.md"
ROW = re.compile(r'^    \{"(\w+)", (\d{3}), "[^"%]+"\},$', re.MULTILINE)
LISTS = re.compile(r"^## Which errors are there\?\n(.*?)^## ", re.MULTILINE | re.DOTALL)
LISTED = re.compile(r"^\| (\d{3}) \| ((?:`\w+` ?)+) \|", re.MULTILINE)
REFUSE = re.compile(r"\b(?:api_refuse|api_problem|refusal_set|refuse_item|tell_failed_outcome)\(([^;{]*);")
ELSEWHERE = re.compile(r'\.code = "(\w+)"')
# The gate's function takes the reason of a metric there; its two codes are in api_problem().
WITH_STATUS = re.compile(r'(?<!refuse_guest\(guest, )\b([45]\d\d), "([a-z]+(?:_[a-z]+)*)"')
LITERAL = re.compile(r'"((?:[^"\\]|\\.)*)"')
CODE = re.compile(r"[a-z]+(_[a-z]+)*")
# A request has no key, and its payload is measured before it becomes a record.
OF_RECORDS_ONLY = {"key_mismatch", "not_storable"}


def codes_of(text):
    """The codes in calls that refuse; they come before the text, which has blanks or a %."""
    found = set(ELSEWHERE.findall(text)) | {code for _, code in WITH_STATUS.findall(text)}
    for arguments in REFUSE.findall(text):
        for literal in LITERAL.findall(arguments):
            if not CODE.fullmatch(literal):
                break
            found.add(literal)
    return found


def listed_on(page):
    """{(status, code)} of the tables of errors."""
    return {(int(status), code) for status, codes in LISTED.findall(LISTS.search(page)[1])
            for code in re.findall(r"\w+", codes)}


SOURCES = {path: blank(read(path), "comment") for path in PRODUCT
           if path.startswith(("relay/admin/", "relay/lookback/")) and path.endswith(".c") and path != TABLE}
ROWS = [(int(status), code) for code, status in ROW.findall(read(TABLE))]
USED = {path: codes_of(text) for path, text in SOURCES.items()}


def test_the_places_of_codes_are_found():
    assert len(ROWS) == read(TABLE).count('\n    {"') > 30
    assert len(set.union(*USED.values())) > 30
    for path in ("api.c", "api_deliver.c", "api_look.c", "api_operate.c", "api_send.c", "api_sender.c", "gate.c"):
        assert USED[f"relay/admin/{path}"], path
    for path in ("json_slice.c", "reader.c", "route.c", "wire.c"):
        assert USED[f"relay/lookback/{path}"], path


def test_every_code_is_in_the_table_once_and_every_row_is_used():
    rows = [code for _, code in ROWS]
    used = set.union(*USED.values())
    none_of([f"{path}: {code}" for path, codes in USED.items()
             for code in sorted(codes - OF_RECORDS_ONLY - set(rows))], f"codes without a row in {TABLE}:")
    none_of(sorted(set(rows) - used), f"{TABLE}: nothing refuses with")
    none_of(sorted(code for code in set(rows) if rows.count(code) > 1), f"{TABLE}: there are two rows of")
    none_of(sorted(OF_RECORDS_ONLY - used | OF_RECORDS_ONLY & set(rows)), "OF_RECORDS_ONLY is wrong about")


def test_the_page_lists_what_the_table_has():
    listed = listed_on(read(PAGE))
    none_of(sorted(set(ROWS) - listed), f"rows of {TABLE} that {PAGE} does not list:")
    none_of(sorted({code for _, code in listed} - {code for _, code in ROWS}),
            f"codes of {PAGE} without a row in {TABLE}:")


def test_the_page_lists_every_status_that_a_code_is_sent_with():
    listed = listed_on(read(PAGE))
    sent = {(int(status), code) for text in SOURCES.values() for status, code in WITH_STATUS.findall(text)}
    none_of(sorted(sent - listed), f"statuses that {PAGE} does not list:")
    none_of(sorted(listed - sent - set(ROWS)), f"{PAGE}: nothing sends")


@pytest.mark.parametrize("text,codes", [
    ('api_refuse(call, 404, type ? "no_a" : "no_b",\n\t"no %s", type ? "type" : "name");', {"no_a", "no_b"}),
    ('return refusal_set(refusal, "bad", "%s is bad", name);\n f("good");', {"bad"}),
    ('struct refusal refusal = {.code = "bad"};', {"bad"}),
    ('{"OR002", 404, "gone", "it is gone"},\n{"22007", 400, "bad", "no time"},', {"gone", "bad"}),
    ('api_refuse(call, 400, refusal.code, "%s", refusal.text);', set())])
def test_codes_are_found_in_every_form(text, codes):
    assert codes_of(text) == codes


def test_the_page_is_read():
    page = "## Which errors are there?\n| status | code |\n| 400 | `a` `b_c` | why |\n\n| 503 | `d` | `e` |\n## Next\n| 400 | `f` |\n"
    assert listed_on(page) == {(400, "a"), (400, "b_c"), (503, "d")}
