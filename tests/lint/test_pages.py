"""The pages of docs/: every link and anchor leads somewhere, and docs/README.md lists every page."""

import os
import re

import pytest

from lint.test_lint import FILES, ROOT, none_of, read

PAGES = [path for path in FILES if path.endswith(".md")]
FENCE = re.compile(r"^(`{3,})[^\n]*\n.*?^\1\s*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^()\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)


def prose(text):
    """The text without its blocks of code; every line keeps its number."""
    return FENCE.sub(lambda block: re.sub(r"[^\n]", " ", block[0]), text)


def anchors(text):
    """The anchors that GitHub gives to the headings of a page: lower case, no punctuation, hyphens
    for blanks, and -1, -2 for headings that occur again."""
    found = {}
    for heading in HEADING.findall(prose(text)):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        found[anchor] = found.get(anchor, -1) + 1
    return {anchor if not number else f"{anchor}-{number}"
            for anchor, last in found.items() for number in range(last + 1)}


def broken_links(page, text, exists, read_page):
    """Lines of the page whose link leads to no file, or to no heading of a page."""
    for number, line in enumerate(prose(text).split("\n"), 1):
        for link in LINK.findall(re.sub(r"`[^`]*`", "", line)):
            if re.match(r"[a-z+]+:", link):
                continue
            path, _, anchor = link.partition("#")
            target = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
            if not exists(target):
                yield f"{page}:{number}: {link}: there is no {target}"
            elif anchor and anchor not in anchors(read_page(target)):
                yield f"{page}:{number}: {link}: {target} has no heading of that anchor"


def test_every_link_of_a_page_leads_somewhere():
    none_of([fault for page in PAGES for fault in broken_links(
        page, read(page), lambda path: os.path.exists(os.path.join(ROOT, path)), read)])


@pytest.mark.parametrize("line,faults", [
    ("[a](b.md) and [c](b.md#the-line-1)", 0), ("[a](c.md)", 1), ("[a](b.md#the-line-2)", 1),
    ("[a](#its-own), [b](https://example.org/#x)", 1), ("`[a](c.md)`\n```\n[a](c.md)\n```", 0)])
def test_the_check_of_links_finds_what_is_broken(line, faults):
    page = "## The `line`\n## The line\n```\n# its own\n```\n"
    found = list(broken_links("docs/a.md", line, {"docs/b.md", "docs/a.md"}.__contains__,
                              {"docs/b.md": page, "docs/a.md": line}.get))
    assert len(found) == faults, found


def test_the_index_lists_every_page_of_docs():
    index = "docs/README.md"
    listed = {os.path.normpath(os.path.join("docs", link.partition("#")[0]))
              for link in LINK.findall(read(index))}
    none_of([f"{index}: does not list {page}" for page in PAGES
             if page.startswith("docs/") and page != index and page not in listed])
