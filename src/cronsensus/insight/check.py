"""A finding about a store, its nodes or its jobs, and how bad it is."""

from __future__ import annotations

from dataclasses import dataclass

OK_LEVEL, WARN, FAIL = "ok", "warn", "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """One finding: ``ok``, ``warn`` or ``fail``, a sentence, and what to type."""

    name: str
    level: str
    text: str
    then: str = ""
