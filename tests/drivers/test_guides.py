"""The code on the pages of docs/guide does what the pages say."""

import os
import re

import pytest

from drivers.guide_harness import PAGES, blocks_of, check_guide, pages, text_of
from drivers.guides import GUIDES

NOT_RUN = "The tests do not run the code of this page"


@pytest.mark.rotated
@pytest.mark.parametrize("guide", [pytest.param(guide, id=guide.page) for guide in GUIDES])
def test_the_code_of_a_page_works(guide, place):
    check_guide(guide, place)


def test_each_page_is_run_or_says_that_it_is_not():
    run = {page for guide in GUIDES for page in (guide.page, *guide.more)}
    assert run <= set(pages())
    assert {page for page in pages() if NOT_RUN in text_of(page)} == set(pages()) - run


def test_the_list_names_each_page():
    with open(os.path.join(PAGES, "README.md"), encoding="utf-8") as file:
        rows = [line for line in file if line.startswith("| ")][1:]
    assert sorted(re.findall(r"\(((?:read|write)/[\w-]+)\.md\)", "".join(rows))) == pages()
    assert rows == sorted(rows, key=str.lower), "the rows are not sorted"


def test_blocks_of_one_file_are_put_together():
    text = "<!-- file: a.py -->\n```python\n1\n```\n\n```python\n2\n```\n<!-- file: a.py -->\n\n```python\n3\n```\n"
    assert blocks_of(text) == {"a.py": "1\n\n3\n"}
