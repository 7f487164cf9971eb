"""The snippets of the guides, which are parts of docs/examples.

    python3 tests/support/guide.py      writes them into the guides
"""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
GUIDE, EXAMPLES = ROOT / "docs/guide/lookback.md", ROOT / "docs/examples"
DELIVER_GUIDE = ROOT / "docs/guide/sidecar.md"
SHOWN = re.compile(r"(<!-- (\S+) (\w+) -->\n```\w+\n)(.*?)(\n```)", re.DOTALL)
CALL = re.compile(r"^\s*(?:\$ )?outbox-relay (?!-)(.*)$", re.MULTILINE)
CODE = re.compile(r"^```\w*\n(.*?)^```$|^((?: {4}\S.*\n)+)", re.MULTILINE | re.DOTALL)


def snippet(name, part):
    """The lines between `snippet: part` and `end`, without their common indentation."""
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    found = re.search(rf"^[ \t]*\S+ snippet: {part}\b.*\n((?:.*\n)*?)[ \t]*(?:#|//|/\*) end\b", text,
                      re.MULTILINE)
    lines = found[1].strip("\n").split("\n")
    margin = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    return "\n".join(line[margin:] for line in lines).rstrip()


def filled(page):
    return SHOWN.sub(lambda shown: shown[1] + snippet(shown[2], shown[3]) + shown[5], page)


def code_of(page):
    """The blocks of code of a page, fenced or indented, as one text."""
    return "\n".join(block or indented for block, indented in CODE.findall(page))


def calls_of(page):
    """The arguments of each `outbox-relay …` in its code, without a comment behind them."""
    return [re.sub(r"\s+# .*$", "", call) for call in CALL.findall(code_of(page))]


if __name__ == "__main__":
    for guide in (GUIDE, DELIVER_GUIDE):
        guide.write_text(filled(guide.read_text(encoding="utf-8")), encoding="utf-8")
