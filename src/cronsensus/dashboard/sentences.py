"""Sentences of ``insight`` in Chinese: each fits a pattern of the catalogue, or stays English."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from cronsensus.dashboard.catalogue import CHINESE, CLAUSES, SENTENCES

_LONGEST = 1_000
"""Characters of a sentence that is looked at: one with a long error in it would take long to compare."""
_SLOT = re.compile(r"\\\{\d\\\}")
_CLAUSE_WORDS = ("succeeded", "failed", "cancelled", "skipped", "missed", "running", "pending")


class _Part:
    """What stands in a slot; ``{0:c}`` asks for it as a clause of ours, ``{0}`` for what a user or a clock wrote."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __format__(self, spec: str) -> str:
        return (_said(CLAUSES, self._text) or self._text) if spec == "c" else self._text


def sentence_in_chinese(text: str) -> str | None:
    """Return a sentence in Chinese; ``None``: no pattern fits."""
    return _said(SENTENCES, text) if len(text) <= _LONGEST else None


def _said(patterns: Mapping[str, str], text: str) -> str | None:
    if patterns is CLAUSES and text in _CLAUSE_WORDS:
        return CHINESE.get(text)
    for english, chinese in patterns.items():
        if not text.startswith(english.partition("{")[0]):
            continue
        found = _pattern(english).fullmatch(text)
        if found is not None:
            return chinese.format(*map(_Part, found.groups()))
    return None


@cache
def _pattern(english: str) -> re.Pattern[str]:
    return re.compile(_SLOT.sub("(.+?)", re.escape(english)), re.DOTALL)
