"""Periods of calendar days, such as every second week, counted from an anchor date.

Days of the calendar are counted, not elapsed time, so no change of clocks moves them. The count begins at the anchor.
It does not begin again with each month or year, as a step in a cron text does.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from functools import lru_cache

from cronsensus.errors import InvalidTrigger
from cronsensus.triggers.bounds import quoted
from cronsensus.triggers.cron_words import ordinal

MOST = 1000
_TEXT = re.compile(r"(\d{1,4})\s*(d|days?|w|weeks?|mo|months?)", re.IGNORECASE)
_DAYS = {"day": 1, "week": 7}
_A_MONTH = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class Period:
    """``number`` of a ``unit``: "day", "week" or "month". Made by ``read_period``."""

    number: int
    unit: str

    def __str__(self) -> str:
        """Return the text that ``read_period`` reads."""
        return f"{self.number} {self.unit}{'s' * (self.number > 1)}"

    def days_of(self, year: int, month: int, anchor: date) -> int:
        """Return the days of a month that count, as bits: bit d for day d. Weeks begin on Monday, as in ISO 8601."""
        if self.unit == "month":
            months = (year - anchor.year) * 12 + month - anchor.month
            return 0 if months % self.number else _A_MONTH << 1
        block = _DAYS[self.unit]
        first = anchor.toordinal() - (anchor.weekday() if self.unit == "week" else 0)
        offset = (date(year, month, 1).toordinal() - first) % (self.number * block)
        return (_pattern(self.number, block) >> offset & _A_MONTH) << 1

    def in_words(self) -> str:
        """Return what follows "every": "week", "2nd week"."""
        return self.unit if self.number == 1 else f"{ordinal(self.number)} {self.unit}"


def read_period(value: object) -> Period:
    """Return the period that a text such as "2 weeks", "3d" or "6 months" means.

    Raises:
        InvalidTrigger: it is none.
    """
    match = _TEXT.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or not 1 <= int(match[1]) <= MOST:
        raise InvalidTrigger(
            f"every={quoted(value)} is not a number of days, weeks or months from 1 to {MOST}; write every='2 weeks', "
            "'3 days' or '6 months', and every('90m') for a time that elapses"
        )
    unit = match[2].lower()
    return Period(int(match[1]), "month" if unit.startswith("mo") else "week" if unit.startswith("w") else "day")


@lru_cache(maxsize=64)
def _pattern(number: int, block: int) -> int:
    """Return bits of which the first ``block`` in each ``number * block`` are set, for a month behind any offset."""
    a_block, size = (1 << block) - 1, number * block
    return sum(a_block << start for start in range(0, size + 31, size))
