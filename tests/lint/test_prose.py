"""Sentences for people: pages, comments and messages name their subject.

Tests, and words in backticks, may have the phrases."""

import re

import pytest

from lint.test_lint import FILES, PRODUCT, TOKEN, none_of, read
from lint.test_pages import prose

BANNED = [
    ("looked back", "queried"), ("(?:is|are|was|were|been|be) told", "receives, or is reported"),
    ("(?:is|are|was|were|been|be) asked(?! for)", "the relay calls, or queries"),
    ("stands? still|stood still", "is blocked, or was paused"), ("at fault", "caused by"),
    ("stands?(?! for)|stood", "is stored, is, applies"), ("but for", "except"),
    ("any more", "no longer"), ("beside it", "compared with, or next to"), ("had by", "enabled with")]
PHRASE = re.compile(r"\b(?:%s)\b" % "|".join(f"({words})" for words, _ in BANNED), re.IGNORECASE)
# Sentences that begin so and are no question leave the reader to find their subject.
BEGINNING = re.compile(r"(?:^|[.:;!?] )(What|Whose|Whoever|Who|Of) (?:[^.:;!?]+ ){3,}[^.:;!?]*[.:;!]")
MOST_BEGINNINGS = 40

PAGES = [path for path in FILES if path.endswith(".md")]
SQL = [path for path in FILES if path.startswith("sql/") and path.endswith(".sql")]


def texts(path, text):
    """[(line, text)…] of a file: paragraphs of a page, comments, and strings that are no code."""
    if path.endswith(".md"):
        line = 1
        for part in re.split(r"(\n\s*\n|\n(?=[|#-]|\d\. ))", prose(text)):
            yield line, part
            line += part.count("\n")
    elif path.endswith(".sql"):
        for found in re.finditer(r"(?:^[ \t]*--.*\n)+|'(?:[^']|'')*'", text, re.MULTILINE):
            yield text.count("\n", 0, found.start()) + 1, found[0].replace("--", "")
    else:
        for found in TOKEN.finditer(text):
            if found["comment"] or found["string"]:
                yield (text.count("\n", 0, found.start()) + 1,
                       re.sub(r"^\s*\*|^/\*|\*/$|^//", "", found[0], flags=re.MULTILINE))


def sentences(path, text):
    for line, part in texts(path, text):
        yield line, " ".join(re.sub(r"`[^`]*`", "x", part).split())


def banned_phrases(path, text):
    for line, sentence in sentences(path, text):
        for found in PHRASE.finditer(sentence):
            instead = next(words for (_, words), group in zip(BANNED, found.groups()) if group)
            yield f"{path}:{line}: {found[0]!r}: write {instead}"


def beginnings(path, text):
    for line, sentence in sentences(path, text):
        for found in BEGINNING.finditer(sentence):
            yield f"{path}:{line}: {found[0].strip('.:;!? ')[:60]}"


def of_all(check):
    return [fault for path in [*PAGES, *PRODUCT, *SQL] for fault in check(path, read(path))]


def test_no_sentence_has_a_phrase_that_makes_readers_stumble():
    none_of(of_all(banned_phrases))


def test_few_sentences_begin_without_their_subject():
    found = of_all(beginnings)
    assert len(found) <= MOST_BEGINNINGS, "\n".join(found)


@pytest.mark.parametrize("path, text, phrases, begin", [
    ("a.md", "The host is asked.\n", 1, 0), ("a.md", "`is asked` and `stands`\n", 0, 0),
    ("a.md", "```\nit is told\n```\n", 0, 0), ("a.c", "int is_told; /* it is\n * told */", 1, 0),
    ("a.c", 'f("the disk stands still");', 1, 0), ("a.sql", "-- the owner is\n-- asked\nselect 1;", 1, 0),
    ("a.sql", "raise 'it is not used any more';", 1, 0), ("a.md", "A retry is asked for. 1 stands for one.\n", 0, 0),
    ("a.md", "What was read before the end is gone.\n", 0, 1), ("a.md", "What was read before the end?\n", 0, 0),
    ("a.c", "/* Whose partition went is handled again. */", 0, 1)])
def test_the_checks_of_prose_find_what_they_are_for(path, text, phrases, begin):
    assert len(list(banned_phrases(path, text))) == phrases
    assert len(list(beginnings(path, text))) == begin


# --- functions and sources ------------------------------------------------------------------------

LONG_FUNCTION, LONG_SOURCE = 12, 250
FUNCTION = re.compile(r"^([\w].*\n(?:[ \t].*\n)*)\{\n((?:.*\n)*?)\}$", re.MULTILINE)
SOURCES = [path for path in PRODUCT if path.endswith(".c")]


def functions_without_paragraphs(path, text):
    """Functions of 12 lines and more that have several statements and no blank line between them. A body
    that is one switch or one loop, with its declarations at most, is a paragraph."""
    for found in FUNCTION.finditer(text):
        body = found[2].rstrip("\n").split("\n")
        steps = [line for line in body if re.match(r"\t(?!case |default:|else)[^\t /}]", line)]
        if len(body) >= LONG_FUNCTION and len(steps) > 3 and "" not in body:
            yield f"{path}:{text.count(chr(10), 0, found.start()) + 1}"


def is_without_opening(text):
    """Does a long source begin without a paragraph, which says what it does and where to begin?"""
    return text.count("\n") > LONG_SOURCE and not re.match(
        r"(?:#.*\n|\s|/\* clang-format off \*/|(?:enum|struct)[^;{]*;)*/\*\n \* .{40,}\n", text)


def test_longer_functions_have_paragraphs():
    none_of([place for path in SOURCES for place in functions_without_paragraphs(path, read(path))])


def test_longer_sources_begin_with_a_paragraph():
    none_of([path for path in SOURCES if is_without_opening(read(path))])


def test_the_checks_of_sources_find_what_they_are_for():
    body = "".join(f"\tstep_{i}(x);\n" for i in range(12))
    assert list(functions_without_paragraphs("a.c", f"static void f(int x)\n{{\n{body}}}\n")) == ["a.c:1"]
    assert not list(functions_without_paragraphs("a.c", f"static void f(int x)\n{{\n{body}\n\tend();\n}}\n"))
    cases = "".join(f"\tcase {i}:\n\t\treturn;\n" for i in range(6))
    assert not list(functions_without_paragraphs("a.c", f"void f(int x)\n{{\n\tswitch (x) {{\n{cases}\t}}\n}}\n"))
    assert is_without_opening('#include "a.h"\n' + "\n" * 300)
    assert not is_without_opening("/*\n * Reads rows of the table and gives them to the sender. Begin at read.\n */\n" + "\n" * 300)


LOGGED = re.compile(r'\blog_(?:warn|error)\("(\w+)"(.*?)\);', re.DOTALL)


def events_without_consequence(path, text):
    """Warnings and errors that do not say what follows, or what to do."""
    return [f"{path}: {name}" for name, fields in LOGGED.findall(text)
            if not re.search(r'"(consequence|cure|next)"', fields)]


def test_each_warning_says_what_follows_or_what_to_do():
    none_of([event for path in SOURCES for event in events_without_consequence(path, read(path))])
    assert events_without_consequence("a.c", 'log_warn("a", {"error", LOG_TEXT(e)});') == ["a.c: a"]
