"""The figures of docs/figures: each is drawn from its input as that is now, and a page shows it.

Neither Graphviz nor a font is needed: an SVG carries the hashes that docs/figures/draw --check compares.
"""

import importlib.machinery
import importlib.util
import json
import os
import re

import pytest

from lint.test_lint import FILES, ROOT, none_of, read

FOLDER = "docs/figures/"


def load_draw():
    loader = importlib.machinery.SourceFileLoader("draw", os.path.join(ROOT, FOLDER, "draw"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("draw", loader))
    loader.exec_module(module)
    return module


DRAW = load_draw()


def test_every_figure_is_drawn_from_its_input_and_shown_by_a_page():
    figures = {path[len(FOLDER):]: read(path) for path in FILES if path.startswith(FOLDER)
               and path.endswith((".dot", ".json", ".svg"))}
    pages = {path: read(path) for path in FILES if path.endswith(".md")}
    assert figures
    none_of(list(DRAW.faults_of(figures, pages)), "tests/support/install.sh figures && docs/figures/draw")


BARS = json.dumps({"kind": "bars", "title": "t", "unit": "rows/s", "groups": ["g"], "date": "2026-11-24",
                   "series": [{"name": "relay", "values": [7]}, {"name": "limit", "values": [None]}]})
DRAWN = DRAW.draw("a.json", BARS)


@pytest.mark.parametrize("files,page,fault", [
    ({"a.json": BARS, "a.svg": DRAWN}, "![rows per second](../figures/a.svg)", None),
    ({"a.json": BARS, "a.svg": DRAWN}, "[rows per second](../figures/a.svg)", "a.svg: no page shows it"),
    ({"a.json": BARS, "a.svg": DRAWN}, "![](../figures/a.svg)", "a.svg: no page shows it"),
    ({"a.json": BARS.replace("7", "8"), "a.svg": DRAWN}, None, "a.svg: its input has changed"),
    ({"a.json": BARS, "a.svg": DRAWN.replace(">7<", ">8<")}, None, "a.svg: its drawing has changed"),
    ({"a.json": BARS, "a.svg": DRAWN.replace(DRAW.style_digest(), "0")}, None, "a.svg: its style has changed"),
    ({"a.json": BARS, "a.svg": "<svg/>"}, None, "a.svg: its input has changed"),
    ({"a.json": BARS}, None, "a.json: is not drawn"),
    ({"a.svg": DRAWN}, None, "a.svg: has no input"),
    ({"a.json": BARS, "a.dot": "", "a.svg": DRAWN}, None, "another input")])
def test_a_stale_or_lonely_figure_is_found(files, page, fault):
    found = list(DRAW.faults_of(files, {"p.md": page or "![rows per second](../figures/a.svg)"}))
    assert any(fault in line for line in found) if fault else not found


def lines(**changes):
    return {"kind": "lines", "title": "t", "unit": "ms", "x": {"name": "messages a second", "values": [1, 10, 100]},
            "series": [{"name": "relay", "values": [2, None, 50]}, {"name": "limit", "values": [1, 3, 9]}], **changes}


@pytest.mark.parametrize("scale,steps", [("log", ["1", "2", "5", "10", "20", "50"]), (None, ["0", "10", "20", "30", "40", "50"])])
def test_lines_have_their_points_and_round_steps(scale, steps):
    drawn = DRAW.draw("a.json", json.dumps(lines(scale=scale)))
    assert drawn.count("<circle") == 5 and drawn.count("<polyline") == 2
    assert re.findall(r'text-anchor="end">([\d.]+)</text>', drawn) == steps
    points = re.search(r'<polyline [^>]*points="([^"]+)"', drawn)[1].split()
    (left, low), (right, high) = ([float(part) for part in point.split(",")] for point in points)
    assert left < right and low > high  # the larger value is higher up


@pytest.mark.parametrize("low,high,log,steps", [
    (3.2, 480, True, [2, 5, 10, 20, 50, 100, 200, 500]), (1, 2, True, [1, 2]), (5, 434000, False, [
        0, 100000, 200000, 300000, 400000, 500000]), (0.1, 0.9, False, [0, 0.2, 0.4, 0.6, 0.8, 1])])
def test_steps_enclose_the_values(low, high, log, steps):
    assert DRAW.steps_between(low, high, log) == pytest.approx(steps)


def test_a_drawing_is_the_same_each_time_and_has_both_colours():
    assert DRAW.draw("a.json", BARS) == DRAWN
    assert "prefers-color-scheme:dark" in DRAWN and "2026-11-24" in DRAWN


@pytest.mark.parametrize("colour,backgrounds", [("#69727c", ("#ffffff", "#0d1117")), ("#9ea7b3", ("#0d1117",))])
def test_text_outside_of_boxes_is_legible(colour, backgrounds):
    """Of two colours the contrast is as WCAG defines it; a viewer may be wrong about a page's background."""
    def luminance(value):
        parts = [int(value[i:i + 2], 16) / 255 for i in (1, 3, 5)]
        red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    assert f"text{{fill:{colour}}}" in DRAW.STYLE or f"fill:{colour}}}\n" in DRAW.STYLE
    for background in backgrounds:
        low, high = sorted(map(luminance, (colour, background)))
        assert (high + 0.05) / (low + 0.05) > 3.8
