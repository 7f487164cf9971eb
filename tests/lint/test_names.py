"""Names of the product: each static function is found by one search, and a thing has one word.

The words are those of docs/explain/glossary.md. A new word for an old thing is added here with the old one.
"""

import functools
import os
import re
from collections import defaultdict
from typing import NamedTuple

import pytest

from lint.test_lint import FILES, PRODUCT, TOKEN, line_of, none_of, read

FOLDERS = sorted({os.path.dirname(path) for path in PRODUCT})

# --- code, and what is not code ------------------------------------------------------------------

ATTRIBUTE = re.compile(r"__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)")
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", re.MULTILINE)
STATIC = re.compile(r"^[ \t]*static\b[^;={}()\[]*?\b(\w+)\s*\((?!\*)", re.MULTILINE)
NO_NAMES = {"_Atomic", "_Alignas", "_Static_assert"}


def spaces(found):
    return re.sub(r"[^\n]", " ", found[0])


def code_of(text):
    """Without comments, strings, directives and attributes; every line keeps its number."""
    for pattern in (TOKEN, DIRECTIVE, ATTRIBUTE):
        text = pattern.sub(spaces, text)
    return text


def comments_of(text):
    """[(offset, comment)]"""
    return [(token.start(), token[0]) for token in TOKEN.finditer(text) if token.lastgroup == "comment"]


def static_functions(text):
    """{name: line} of the static functions that a file declares or defines.

    Those that a macro makes (DEFINE_OWNED) have no name in the text, and the name of their type.
    """
    code, found = code_of(text), {}
    for hit in STATIC.finditer(code):
        if hit[1] not in NO_NAMES:
            found.setdefault(hit[1], line_of(code, hit.start(1)))
    return found


# --- static functions ----------------------------------------------------------------------------


def of_one_word(statics, folder):
    """statics: {path: {name: line}}"""
    return [f"{path}:{line}: {name}" for path, names in statics.items() if os.path.dirname(path) == folder
            for name, line in names.items() if not re.fullmatch(r"[a-z0-9]+(_[a-z0-9]+)+", name)]


def of_two_files(statics, folder):
    places = defaultdict(list)
    for path, names in statics.items():
        for name, line in names.items():
            places[name].append(f"{path}:{line}")
    return [f"{name}: {', '.join(where)}" for name, where in places.items()
            if len(where) > 1 and any(os.path.dirname(place) == folder for place in where)]


@functools.cache
def statics_of_tree():
    return {path: static_functions(read(path)) for path in PRODUCT}


def test_static_functions_are_found():
    assert sum(map(len, statics_of_tree().values())) > 2000
    assert "make_one_line" in statics_of_tree()["outbox/base/errors.c"]


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_static_function_has_a_name_of_two_words(folder):
    none_of(of_one_word(statics_of_tree(), folder), "say what it does and to what: run_verify, refuse_prepare")


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_static_function_has_a_name_that_no_other_file_uses(folder):
    none_of(of_two_files(statics_of_tree(), folder), "name what the function of this file is about")


@pytest.mark.parametrize("text, names", [
    ("static void run(void)\n{\n}\n", ["run"]),
    ("static int start_it(int a);\n\nstatic int start_it(int a)\n{\n}\n", ["start_it"]),
    ("static struct a *\nmake_a(\n    int b)\n{\n}\n", ["make_a"]),
    ("__attribute__((format(printf, 1, 2))) static bool\nfail_it(const char *f, ...);\n", ["fail_it"]),
    ("static __attribute__((target(\"avx2\"))) void add_it(void)\n{\n}\n", ["add_it"]),
    ("\tstatic int at_home(void) {}\n", ["at_home"]),
    ("/* static void run(void) */ // static void run(void)\n", []),
    ("static const char *const names[] = {call(1)};\nstatic int a = b(1);\n", []),
    ("static void (*hook)(void);\nstatic _Atomic(int) count;\nint shown(void)\n{\n}\n", []),
    ("#define MADE(t) \\\n\tstatic inline void made_##t(t *a) \\\n\t{ \\\n\t}\nint a;\n", [])])
def test_static_functions_are_told_from_other_code(text, names):
    assert list(static_functions(text)) == names


def test_planted_names_are_found():
    statics = {path: static_functions(text) for path, text in {
        "outbox/one/a.c": "static void run(void)\n{\n}\nstatic void take_row(void)\n{\n}\n",
        "outbox/one/b.c": "\n\nstatic void take_row(void);\nstatic void take_row(void)\n{\n}\n",
        "relay/two/c.c": "static void take_row(void)\n{\n}\n_",
        "relay/three/d.c": "static void run_it(void)\n{\n}\n"}.items()}
    assert of_one_word(statics, "outbox/one") == ["outbox/one/a.c:1: run"]
    shared = ["take_row: outbox/one/a.c:4, outbox/one/b.c:3, relay/two/c.c:1"]
    assert of_two_files(statics, "outbox/one") == of_two_files(statics, "relay/two") == shared
    assert not of_one_word(statics, "relay/three") and not of_two_files(statics, "relay/three")


# --- one word for a thing ------------------------------------------------------------------------


class Word(NamedTuple):
    """A word that no longer stands for the thing, and where it is refused: as a part of a name in the
    code of the product, as a part of the name of a file, in comments and pages."""
    word: str
    instead: str
    where: str = "code file prose"
    within: str = ""  # a pattern of paths; every path by default
    allowed: str = r"(?!)"  # a pattern of texts with the word that stay, or of paths


WORDS = [
    Word("slots?", "publisher", allowed=r"replication[ _]slots?|hash[ _]slots?|cluster[ |]slots|array[ _]slots?|"
         # slots of an array, and hash slots of a Redis Cluster
         r"outbox/inbox/worker_pool\.c|outbox/redis/redis_\w+\.[ch]|outbox/store/redis_session\.[ch]|"
         r"outbox/claims/claims_redis\.c|tests/unit/test_redis_\w+\.c"),
    Word("lanes?", "partition queue, key queue or high mark",
         allowed=r"outbox/dedup/window/bloom_neon\.h|tests/unit/neon_model\.h"),  # those are lanes of a vector
    Word("flow", "record queue", "code file"),
    Word("letters?", "dead letter, redelivery or outgoing record", "code file", allowed="dead_letters?"),
    Word("hands", "worker pool", "code file"),
    Word("couriers?", "HTTP sender"),
    Word("surveys?", "status report or replay plan"),
    Word("catalogs?", "topic metadata", allowed=r"pg_catalog|current_catalog|system catalogs?"),
    Word("audits?", "verify (the audit log is the table outbox.audit)", "file"),
    Word("keepers?", "upkeep worker"),
    Word("fleets?", "publishers"),
    Word("spreads?", "take limiter", "code file", within="outbox/publish/|tests/unit/"),
    Word("careful", "poison guard", "code file"),
    Word("desks?", "API database or deliver client"),
    Word("undecided", "look-back selection", "file"),
    Word("shares?", "assigned partition", "code file", within="outbox/inbox/|relay/deliver/|tests/unit/"),
]
OF_C = [path for path in FILES if re.match(r"(outbox|relay|tests/unit|tests/fuzz)/.*\.[ch]$", path)]
# Pages about the old word or about PostgreSQL's replication slots.
EXPLAIN_NAMES = {"docs/explain/glossary.md", "docs/decisions/publisher.md", "docs/decisions/poller.md"}
PAGES = [path for path in FILES if path.endswith(".md") and not path.startswith("tests/")
         and path not in EXPLAIN_NAMES]


def uses(word, path, text):
    """Of a word, in the name or the text of a file: [place: line]"""
    found = []
    if not re.match(word.within, path):
        return found
    part = re.compile(rf"(?<![a-z0-9]){word.word}(?![a-z0-9])", re.IGNORECASE)
    allowed = re.compile(word.allowed, re.IGNORECASE)
    of_c = path.endswith((".c", ".h"))
    if allowed.search(path):
        return found
    if "file" in word.where and of_c:
        name = os.path.basename(path)
        found += [f"{path}: the name"] if part.search(allowed.sub(spaces, name)) else []
    pieces = []
    if "code" in word.where and of_c and path.startswith(("outbox/", "relay/")):
        pieces.append((0, code_of(text)))
    if "prose" in word.where:
        pieces += comments_of(text) if of_c else [(0, text)]
    for offset, piece in pieces:
        found += [f"{path}:{line_of(text, offset + hit.start())}: {hit[0]}"
                  for hit in part.finditer(allowed.sub(spaces, piece))]
    return list(dict.fromkeys(found))


@pytest.mark.parametrize("word", WORDS, ids=lambda word: re.sub(r"\W", "", word.word))
def test_a_thing_has_one_word(word):
    none_of([use for path in OF_C + PAGES for use in uses(word, path, read(path))],
            f"write {word.instead}; docs/explain/glossary.md says what it is")


@pytest.mark.parametrize("path, text, count", [
    ("outbox/base/text.c", "int lane_of(int a);\nint lanes;\n/* the lane of it */", 3),
    ("outbox/base/text.c", "int plane; /* planes */ char *a = \"lane\";", 0),
    ("outbox/base/text.c", "enum { DEAD_LETTER }; int dead_letters; bool dead_lettered;", 0),
    ("outbox/base/text.c", "enum { LETTER_BARE };\nint first_letter; /* letters and digits */", 2),
    ("outbox/base/text.c", "int overflow; /* records flow */ struct flow *a;", 1),
    ("outbox/base/text.c", "/* a replication slot, and a slot */ int hash_slot;", 1),
    ("outbox/inbox/hands.c", "", 1),
    ("tests/unit/test_flow_parks.c", "", 1),
    ("outbox/base/text.c", "/* pg_catalog and other system catalogs */ struct catalog *metadata;", 1),
    ("docs/guide/inbox.md", "It waits in the lane of its key. A replication slot. A consumer that changes hands.", 1)])
def test_planted_words_are_found(path, text, count):
    assert len([use for word in WORDS for use in uses(word, path, text)]) == count


# --- the glossary --------------------------------------------------------------------------------


def glossary(text):
    """[(term, what it is)]"""
    return re.findall(r"^\| \*\*([^*|]+)\*\* \| ([^|\n]+) \|$", text, re.MULTILINE)


def faults_of_glossary(text):
    """At most 40 terms in the order of the alphabet, each with one or two sentences."""
    terms = glossary(text)
    names = [term.lower() for term, _ in terms]
    rows = [row for row in re.findall(r"^\|.*$", text, re.MULTILINE)
            if not re.match(r"\| term \||\|---", row)]
    faults = [f"no row of a term: {row}" for row in rows if not glossary(row)]
    faults += [] if len(terms) <= 40 else [f"{len(terms)} terms"]
    faults += [] if names == sorted(set(names)) else ["the terms are not in order"]
    return faults + [f"{term}: not one or two sentences" for term, said in terms
                     if not re.fullmatch(r"[A-Z`](?:[^.]|\.(?! ))*\.(?: [A-Z`](?:[^.]|\.(?! ))*\.)?", said)]


def test_the_glossary_is_short_and_has_every_word_that_is_to_be_written():
    text = read("docs/explain/glossary.md")
    none_of(faults_of_glossary(text))
    terms = {term.lower() for term, _ in glossary(text)}
    instead = {name.lower().removesuffix("s") for word in WORDS
               for name in re.split(r", | or ", re.sub(r" \(.*\)", "", word.instead))}
    assert instead <= terms


@pytest.mark.parametrize("row, fault", [
    ("| **tick** | A snapshot. It is stored. |", None),
    ("| **tick** | A snapshot. It is stored. It is old. |", "not one or two"),
    ("| **tick** | a snapshot |", "not one or two"),
    ("| tick | A snapshot. |", "no row of a term"),
    ("| **tick** | A snapshot. |\n| **log** | A table. |", "not in order"),
    ("\n".join(f"| **t{number:02}** | A term. |" for number in range(41)), "41 terms")])
def test_faults_of_a_glossary_are_found(row, fault):
    faults = faults_of_glossary("| term | |\n|---|---|\n" + row + "\n")
    assert any(fault in found for found in faults) if fault else not faults
