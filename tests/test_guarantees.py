"""The tests that the page of guarantees names exist, under the names it gives them."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "guarantees.md"
NAMED = re.findall(r"^- `([\w/.]+\.py)::(?:(\w+)::)?(test_\w+)`", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)


def test_the_page_names_tests():
    assert len(NAMED) >= 20


@pytest.mark.parametrize(("file", "group", "name"), NAMED, ids=[name for _, _, name in NAMED])
def test_a_named_test_exists(file: str, group: str, name: str):
    text = (ROOT / file).read_text(encoding="utf-8")
    assert not group or f"class {group}" in text
    assert re.search(rf"def {name}\(", text), f"{PAGE.name} names {name}, which is not in {file}"


def test_every_promise_names_a_test_or_says_that_it_is_not_offered():
    sections = re.split(r"^## ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    promises = [section for section in sections if re.match(r"G\d", section)]
    assert [section[:2] for section in promises] == [f"G{number}" for number in range(1, 8)]
    without = [section[:2] for section in promises if "::test_" not in section and "*Not offered yet.*" not in section]
    assert without == []
