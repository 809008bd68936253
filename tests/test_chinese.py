"""Chinese pages and the Chinese of the dashboard: one word for each thing, and the punctuation that Chinese has."""

import re
from pathlib import Path

import pytest

from cronsensus.dashboard.catalogue import CHINESE
from cronsensus.dashboard.chinese_sentences import SENTENCES

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.zh-CN.md", *sorted(ROOT.glob("docs/zh/*.md"))]
CODE = re.compile(r"^(`{3,}).*?^\1|`[^`\n]+`|\]\([^)]*\)|^\[[^\]]+\]: .*$|<[^>]+>", re.MULTILINE | re.DOTALL)
REPLACED = {
    "台账": "账本", "名义时间": "计划时间", "裁决": "结论", "判定": "结论", "回填": "补跑", "仪表板": "控制台",
    "退役": "下线", "审计": "对账", "幂等函数": "防重函数", "受保护的函数": "防重函数", "悄悄丢": "静默丢失",
    "「": "“", "」": "”",
}  # fmt: skip
"""Words that once stood for the same thing, and the one that stands for it now."""
HALF_WIDTH = re.compile(r"[一-鿿][,;:!?(]|[,;:!?)][一-鿿]")
NO_SPACE = re.compile(r"[一-鿿][A-Za-z0-9]|[A-Za-z0-9][一-鿿]")


def prose(page: Path) -> str:
    return CODE.sub("`code`", page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_chinese_page_has_one_word_for_a_thing_and_chinese_punctuation(page: Path) -> None:
    text = prose(page)
    assert all(word in text for word in ("账本", "任务", "节点"))
    assert [word for word in REPLACED if word in text] == []
    assert HALF_WIDTH.findall(text) == []
    assert NO_SPACE.findall(text) == []


def test_the_dashboard_has_the_same_words_for_them() -> None:
    text = "\n".join([*CHINESE.values(), *SENTENCES.values()])
    assert [word for word in REPLACED if word in text] == []
