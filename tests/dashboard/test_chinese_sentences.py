"""Two tables say what ``insight`` answers: each code has its text in English and in Chinese, with the same slots."""

import ast
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

import cronsensus
from cronsensus.dashboard import dashboard
from cronsensus.dashboard.chinese_sentences import SENTENCES, Chinese
from cronsensus.insight import sentences
from cronsensus.insight.sentences import ENGLISH, Because, Clause, Code, Text, slots_of
from cronsensus.model.states import Reason, State
from tests.dashboard.browser import Browser
from tests.hand_cluster import HandCluster

TABLES = {table.__name__: table for table in Code.__subclasses__()}
CODES = [code for table in TABLES.values() for code in table]
SOURCES = [ast.parse(path.read_text()) for path in Path(cronsensus.__file__).parent.glob("insight/*.py")]
CHINESE = Chinese()


def _code(node: ast.AST) -> Code | None:
    match node:
        case ast.Attribute(value=ast.Name(id=table), attr=name) if table in TABLES:
            return TABLES[table][name]
    return None


@pytest.mark.parametrize("code", CODES, ids=str)
def test_each_code_says_the_same_values_in_both_languages(code: Code) -> None:
    assert code in SENTENCES, "it has no Chinese: dashboard/chinese_sentences.py"
    assert slots_of(SENTENCES[code]) == code.slots
    sentence = code(**dict.fromkeys(code.slots, 7))
    for said in (str(sentence), CHINESE.render(sentence)):
        assert not set("{}") & set(said)
        assert said.count("7") >= len(code.slots)
    assert (str(sentence)[-1] in ".:") == (CHINESE.render(sentence)[-1] in "。：") == isinstance(code, Text)


def test_each_text_in_chinese_is_of_a_code() -> None:
    assert set(SENTENCES) == set(CODES)


def test_each_code_is_used_with_the_values_that_its_text_has() -> None:
    nodes = [node for source in SOURCES for node in ast.walk(source)]
    for call in (node for node in nodes if isinstance(node, ast.Call)):
        if (code := _code(call.func)) is not None:
            names = {keyword.arg for keyword in call.keywords}
            assert names - {None} <= code.slots, code
            assert names >= code.slots or None in names, code
    assert {code for code in map(_code, nodes) if code not in set(Because)} - {None} == {*Text, *Clause}


def test_each_reason_of_the_ledger_has_its_clause() -> None:
    assert set(Because.__members__) == set(Reason.__members__)


def test_values_are_said_as_the_language_says_them() -> None:
    at = datetime(2026, 11, 20, 21, tzinfo=UTC)
    runs = [Clause.RUN_ON(run=1234, node="a"), Clause.RUN_ON(run=5, node="{b}")]
    sentence = Text.CONCURRENCY(most=2, job="tick", runs=runs)
    assert str(sentence) == (
        "No more than 2 of tick may run at a time (concurrency), and there are: run 1234 on a, run 5 on {b}."
    )
    assert (
        CHINESE.render(sentence)
        == "tick 同时最多运行 2 个（concurrency），现有：运行 1234（节点 a）、运行 5（节点 {b}）。"
    )
    local = at.astimezone(ZoneInfo("Asia/Shanghai"))
    assert str(Text.NEAREST_TWO(before=at, after=local)) == (
        "The nearest are 2026-11-20 21:00:00Z and Sat 2026-11-21 05:00:00 +08:00."
    )
    once = Text.DUE_AFTER_FAILURES(when=sentences.distance_text(at, at - timedelta(minutes=5)), failures=1)
    assert (str(once), CHINESE.render(once)) == (
        "It is due in 5m after 1 failed attempt.",
        "它将在 5 分钟 后到期，此前失败 1 次。",
    )
    items = Text.WAITS_FOR_ITEMS(total=2000, open=1000, running=0, pending=1000)
    assert str(items) == "It is a batch of 2,000 items, and waits for 1,000 of them: 0 run, 1,000 wait."
    again = Text.TRIED_AGAIN(run=1, again=2, state=State.FAILED)
    assert (str(again)[-7:], CHINESE.render(again)[-4:]) == ("failed.", "失败）。")
    assert CHINESE.render("what somebody wrote") == ENGLISH.render("what somebody wrote") == "what somebody wrote"


def test_a_page_says_why_in_chinese_and_leaves_what_people_wrote() -> None:
    cluster = HandCluster()
    cluster.join("node-1")
    cluster.every("tick", "1m")
    cluster.store.pause("tick", by="Failed", why="now <b>{time}")
    cluster.advance(60)
    at = cluster.store.now().isoformat().replace("+00:00", "Z")
    cluster.advance(30)
    browser = Browser(dashboard(cluster.store))
    text = browser.get(f"/ledger?job=tick&at={at}&lang=zh").text
    assert re.search(r"任务已暂停.由 Failed.原因.now &lt;b&gt;\{time\}.恢复后账本会记录", text)
    assert "because: now &lt;b&gt;{time}." in browser.get(f"/ledger?job=tick&at={at}&lang=en").text


def test_pages_of_nodes_and_of_a_ledger_say_in_chinese_how_it_is_known_and_what_is_open() -> None:
    cluster = HandCluster()
    cluster.join("node-1")
    cluster.every("tick", "1m")
    cluster.advance(60)
    browser = Browser(dashboard(cluster.store))
    assert "在线（空闲），进程在本机运行" in browser.get("/nodes?lang=zh").text
    assert "alive (idle), its process runs on this host" in browser.get("/nodes?lang=en").text
    assert "还没有节点触发它" in browser.get("/ledger?job=tick&lang=zh").text
