"""A dedup store is a file with a row, and every other place that needs it has it (CONTRIBUTING.md)."""

import os
import re

import pytest

from lint.test_lint import FILES, PRODUCT, findings, none_of, read

FOLDER = "outbox/dedup/stores"
ROW = re.compile(r"^const struct dedup_store_type (\w+) = \{\n(.*?)^\};", re.MULTILINE | re.DOTALL)
PROMISE = re.compile(r"\.store = \"([^\"]+)\"")


def stores_of(text):
    """[(row, its name and form, is it shared)] of the text of a store's file."""
    return [(row, PROMISE.search(body)[1], ".shared = true" in body) for row, body in ROW.findall(text)]


def lines_of(text):
    """Lines that open a store, without the words that every line may have."""
    return {re.sub(r" (?:lossy|[a-eg-z]\w*=\S+)", "", line)
            for line in re.findall(r"\"([a-z]+(?: (?:lossy|\w+=[^\"\s]+))*)\"", text)}


def faults_of_store(row, name, shared, texts):
    """texts: {path: text}, without the files that are missing."""
    def has(path, wanted):
        return wanted in texts.get(path, "")

    word = name.split()[0]
    places = {"outbox/dedup/dedup_stores.c": has("outbox/dedup/dedup_stores.c", f"row({row})"),
              "docs/reference/dedup.md": has("docs/reference/dedup.md", f"\n| `{name}` |")}
    if shared:
        places[f"tests/integration/test_dedup_{word}.py"] = f"tests/integration/test_dedup_{word}.py" in texts
    else:
        for path in ("relay/bench/bench_dedup_stores.c", "tests/unit/test_dedup_stores.c"):
            places[path] = name in lines_of(texts.get(path, ""))
    return [f"{path}: has no '{name}'" for path, there in places.items() if not there]


def all_stores():
    return [store for path in PRODUCT if os.path.dirname(path) == FOLDER for store in stores_of(read(path))]


def test_each_store_stands_in_every_place():
    texts = {path: read(path) for path in FILES if path.endswith((".c", ".md", ".py"))}
    stores = all_stores()
    none_of([fault for store in stores for fault in faults_of_store(*store, texts)])
    assert len(stores) >= 10 and {row for row, _, _ in stores} == set(
        re.findall(r"row\((\w+)\)", read("outbox/dedup/dedup_stores.c")))


def test_nobody_else_compares_names_of_stores():
    names = "|".join(sorted({name.split()[0] for _, name, _ in all_stores()}))
    paths = [path for path in PRODUCT if os.path.dirname(path) != FOLDER]
    none_of(findings(paths, rf"\b(?:text_equal|text_starts|strn?cmp)\([^;]*?\bstore\b[^;]*?\"(?:{names})\b"),
            "a trait of a store is a member of its row (dedup_store.h)")


ONE = 'const struct dedup_store_type a_store = {\n    .promise = {.store = "a form=b",\n\t.lossy = true},\n};\n'
PLACES = {"outbox/dedup/dedup_stores.c": "row(a_store)", "docs/reference/dedup.md": "\n| `a form=b` |",
          "relay/bench/bench_dedup_stores.c": '{"a lossy form=b rate=1%", 0}',
          "tests/unit/test_dedup_stores.c": '{.line = "a lossy form=b ids=5"}'}


@pytest.mark.parametrize("forgotten", [None, *PLACES])
def test_a_forgotten_place_of_a_store_is_found(forgotten):
    (store,) = stores_of(ONE)
    faults = faults_of_store(*store, {path: text for path, text in PLACES.items() if path != forgotten})
    assert faults == ([] if forgotten is None else [f"{forgotten}: has no 'a form=b'"])


def test_a_shared_store_needs_a_test_with_its_server():
    (store,) = stores_of(ONE.replace(".lossy", ".shared"))
    assert faults_of_store(*store, PLACES) == ["tests/integration/test_dedup_a.py: has no 'a form=b'"]
