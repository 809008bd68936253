"""Celery's ``crontab(…)`` as a cron text with the same times. Pure; does not import Celery.

In Celery a day must match both of its fields; in a cron text either, unless one of them starts with ``*``. So if both
restrict the days, it searches a text that means both: ``MON#1`` for the Mondays among the days 1-7, or the same days as
a field that starts with a star.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cronsensus.errors import InvalidTrigger
from cronsensus.integrations.migration import NoEquivalent
from cronsensus.triggers import cron
from cronsensus.triggers.field_orders import DAYS, MONTHS

Field = int | str | Iterable[int]
"""An argument of ``crontab``: a number, a text, or the values."""

_TERM = re.compile(r"(?:(?P<all>\*)|(?P<first>\w+)(?:-(?P<last>\w+))?)(?:/(?P<step>\d+))?")
_WEEKS = {number: frozenset(range(7 * number - 6, min(7 * number, 31) + 1)) for number in range(1, 6)}
"""The days of a month among which each weekday comes for the n-th time."""
_FEW = 4
"""Weekdays with their numbers that are read more easily than a field with a star."""


@dataclass(frozen=True, slots=True)
class _Kind:
    """A field: its name in Celery, its values, and their names."""

    name: str
    low: int
    high: int
    names: Sequence[str] = ()

    def number(self, word: str) -> int:
        """Return the value of a number or a name.

        Raises:
            NoEquivalent: it is no value of this field.
        """
        short = word[:3].upper()
        value = int(word) if word.isdecimal() else self.low + self.names.index(short) if short in self.names else -1
        return self.checked(value, word)

    def checked(self, value: int, shown: object) -> int:
        if not self.low <= value <= self.high:
            raise NoEquivalent(f"{self.name}: {shown!r} is not in {self.low}-{self.high}")
        return value

    def step(self, count: int) -> frozenset[int]:
        """Return the values of ``*/count`` in a cron text, where Sunday is 0 and 7."""
        if self.names is DAYS:
            return frozenset(day % 7 for day in range(0, 8, count))
        return frozenset(range(self.low, self.high + 1, count))


_MINUTE, _HOUR = _Kind("minute", 0, 59), _Kind("hour", 0, 23)
_WEEKDAY, _DAY = _Kind("day_of_week", 0, 6, DAYS), _Kind("day_of_month", 1, 31)
_MONTH = _Kind("month_of_year", 1, 12, MONTHS)


def cron_text(
    *,
    minute: Field = "*",
    hour: Field = "*",
    day_of_week: Field = "*",
    day_of_month: Field = "*",
    month_of_year: Field = "*",
) -> str:
    """Return the five fields of a cron text with the same times as ``crontab`` with these arguments.

    Raises:
        NoEquivalent: there is none, or an argument cannot be read.
    """
    weekdays, days = _values(_WEEKDAY, day_of_week), _values(_DAY, day_of_month)
    day, weekday = _written(_DAY, days, day_of_month), _written(_WEEKDAY, weekdays, day_of_week)
    if not day.startswith("*") and not weekday.startswith("*"):
        day, weekday = _both(days, weekdays)
    others = [
        _written(kind, _values(kind, given), given)
        for kind, given in ((_MINUTE, minute), (_HOUR, hour), (_MONTH, month_of_year))
    ]
    text = f"{others[0]} {others[1]} {day} {others[2]} {weekday}"
    try:
        cron(text)
    except InvalidTrigger as error:
        raise NoEquivalent(str(error)) from error  # too long, say
    return text


def _values(kind: _Kind, given: Field) -> frozenset[int]:
    if isinstance(given, int):
        found = {kind.checked(given, given)}
    elif isinstance(given, str):
        found = set().union(*(_values_of_term(kind, term.strip()) for term in given.split(",")))
    else:
        found = {kind.checked(value, value) for value in given}
    if not found:
        raise NoEquivalent(f"{kind.name}: no values, so it never comes")
    return frozenset(found)


def _values_of_term(kind: _Kind, term: str) -> set[int]:
    """Return the values of one part of a list. A range may go over the end: 22-2 is 22, 23, 0, 1, 2."""
    match = _TERM.fullmatch(term)
    step = int(match["step"] or 1) if match is not None else 0
    if match is None or step == 0 or (match["step"] and match["first"] and not match["last"]):
        raise NoEquivalent(f"{kind.name}: {term!r} cannot be read")
    if match["all"]:
        return set(range(kind.low, kind.high + 1, step))
    first = kind.number(match["first"])
    last = kind.number(match["last"] or match["first"])
    if first <= last:
        return set(range(first, last + 1, step))
    return set([*range(first, kind.high + 1), *range(kind.low, last + 1)][::step])


def _written(kind: _Kind, values: frozenset[int], given: Field) -> str:
    """Return values as a field. It starts with a star if the given field does, which means a frequency."""
    if len(values) == kind.high - kind.low + 1:
        return "*"
    stepped = re.match(r"\*/(\d+)", given) if isinstance(given, str) else None
    return _ranges(kind, values) if stepped is None else _stepped(kind, values, int(stepped[1]))


def _stepped(kind: _Kind, values: frozenset[int], step: int) -> str:
    rest = values - kind.step(step)
    return f"*/{step},{_ranges(kind, rest)}" if rest else f"*/{step}"


def _ranges(kind: _Kind, values: Iterable[int]) -> str:
    """Return values as a list, three and more that follow each other as a range."""
    runs: list[list[int]] = []
    for value in sorted(values):
        if runs and value == runs[-1][-1] + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    terms = []
    for run in runs:
        words = [DAYS[value] if kind is _WEEKDAY else str(value) for value in run]
        terms += [f"{words[0]}-{words[-1]}"] if len(run) > 2 else words
    return ",".join(terms)


def _both(days: frozenset[int], weekdays: frozenset[int]) -> tuple[str, str]:
    """Return the two day fields of a text that wants both to match.

    Raises:
        NoEquivalent: no text does.
    """
    weeks = [number for number, week in _WEEKS.items() if week <= days]
    whole = days == frozenset().union(*(_WEEKS[number] for number in weeks))
    counted = [f"{DAYS[day]}#{number}" for number in weeks for day in sorted(weekdays)]
    if whole and len(counted) <= _FEW:
        return "*", ",".join(counted)
    if (starred := _starred(_DAY, days)) is not None:
        return starred, _ranges(_WEEKDAY, weekdays)
    if (starred := _starred(_WEEKDAY, weekdays)) is not None:
        return _ranges(_DAY, days), starred
    if whole:
        return "*", ",".join(counted)
    listed, named = _ranges(_DAY, days), _ranges(_WEEKDAY, weekdays)
    raise NoEquivalent(
        f"day_of_month={listed!r} and day_of_week={named!r}: Celery wants both to match, a cron text either; write "
        f"{named} alone, and begin the function, which takes run: Run, with: "
        f"if run.local_time.day not in {{{', '.join(map(str, sorted(days)))}}}: raise Skip('not this day')"
    )


def _starred(kind: _Kind, values: frozenset[int]) -> str | None:
    """Return values as a field that starts with a star; ``None``: the first value that a star has is not among them."""
    steps = range(2, kind.high - kind.low + 2)
    exact = next((step for step in steps if kind.step(step) == values), None)
    widest = next((step for step in reversed(steps) if kind.step(step) <= values), None)
    step = widest if exact is None else exact
    return None if step is None else _stepped(kind, values, step)
