"""What ``why`` says is said in Chinese too: a sentence that is written anew or changed needs its pattern."""

import ast
import inspect
import re
from collections.abc import Iterator

import pytest

from cronsensus.dashboard import dashboard
from cronsensus.dashboard.catalogue import CLAUSES, SENTENCES
from cronsensus.dashboard.sentences import sentence_in_chinese
from cronsensus.insight import live_nodes, waiting, why
from cronsensus.insight.reasons import ENGLISH
from tests.dashboard.browser import Browser
from tests.hand_cluster import HandCluster

MADE_OF_CLAUSES = {
    "No: X.",
    "No: XX.",
    "No: X, X.",
    "No: X, and X.",
    "No: X before it ran.",
    "No: XX, and X.",
    "The nearest X X.",
    "After X no other node tries it (max_crashes=X).",
}
"""Their parts decide what is said; the page below shows some of them."""


def _sentences() -> Iterator[str]:
    for module in (why, waiting, live_nodes):
        tree = ast.parse(inspect.getsource(module))
        documentation = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in ast.walk(tree):
            if id(node) in documentation | inner:
                continue
            text = ""
            if isinstance(node, ast.JoinedStr):
                text = "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = node.value
            if re.match(r"[A-Z][a-z]", text) and text.endswith(".") and " " in text:
                yield text


@pytest.mark.parametrize("sentence", sorted(set(_sentences()) - MADE_OF_CLAUSES))
def test_every_sentence_that_why_may_say_has_its_pattern(sentence: str) -> None:
    assert re.search(r"[\u4e00-\u9fff]", sentence_in_chinese(sentence) or ""), sentence


def test_every_reason_of_the_ledger_has_its_clause() -> None:
    said = {re.sub(r"\{\d\}", "{}", clause) for clause in CLAUSES}
    assert {re.sub(r"\{\w+\}", "{}", clause) for clause in ENGLISH.values()} - said == set()


def test_no_pattern_loses_a_part() -> None:
    for english, chinese in {**SENTENCES, **CLAUSES}.items():
        assert set(re.findall(r"\{(\d)", english)) == set(re.findall(r"\{(\d)", chinese)), english


def test_a_page_says_why_in_chinese_and_leaves_what_people_wrote() -> None:
    cluster = HandCluster()
    cluster.join("node-1")
    cluster.every("tick", "1m")
    cluster.store.pause("tick", by="Failed", why="now <b>")
    cluster.advance(60)
    at = cluster.store.now().isoformat().replace("+00:00", "Z")
    cluster.advance(30)
    browser = Browser(dashboard(cluster.store))
    text = browser.get(f"/ledger?job=tick&at={at}&lang=zh").text
    assert re.search(r"任务已暂停.由 Failed.原因.now &lt;b&gt;.恢复后账本会记录", text)
    assert "because: now &lt;b&gt;" in browser.get(f"/ledger?job=tick&at={at}&lang=en").text
    assert sentence_in_chinese("It ran and failed, as run 7: " + "x" * 100_000 + ".") is None
