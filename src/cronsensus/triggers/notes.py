"""Notes on valid cron texts that other programs read differently, or whose times are rarely meant."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from cronsensus.triggers.base import AnyOf, Trigger
from cronsensus.triggers.cron import Cron
from cronsensus.triggers.cron_words import cron_in_words
from cronsensus.triggers.field_orders import other_meanings, require_both_days
from cronsensus.triggers.fields import CronFields, read_cron

Rule = Literal["other programs", "every second", "days", "step"]


@dataclass(frozen=True, slots=True)
class Note:
    """A note, and what to write for what may be meant."""

    rule: Rule
    text: str
    advice: str

    def __str__(self) -> str:
        return f"{self.text}; {self.advice}"


def notes_on(trigger: Trigger | None) -> list[Note]:
    """Return the notes on the cron texts of a trigger."""
    parts = trigger.parts if isinstance(trigger, AnyOf) else (trigger,)
    return [note for part in parts if isinstance(part, Cron) for note in _notes_on_cron(part)]


def _notes_on_cron(part: Cron) -> Iterator[Note]:
    fields = read_cron(part.expression)
    yield from _note_six_fields(part, fields)
    yield from _note_both_day_fields(fields)
    if len(fields.seconds) == 60:
        yield Note(
            "every second",
            "the six fields of its expression begin with seconds, and it fires every second",
            "for every minute write five fields, or begin with 0; if every second is meant, write every('1s')",
        )
    yield from _note_missing_days(fields)
    yield from _note_uneven_steps(fields)


def _note_six_fields(part: Cron, fields: CronFields) -> Iterator[Note]:
    text = part.typed.strip() or part.expression
    if others := other_meanings(text):
        instead = ", or ".join(f"{written} ({program})" for program, written in others)
        own = fields.text.split()
        keep = f"; if it is meant as it reads here, write {fields.text!r}" if len(own) == 5 else ""
        yield Note(
            "other programs",
            f"the first of six fields is seconds here, so {text!r} fires {cron_in_words(fields)}; "
            "other programs have seconds or the year last",
            f"for their times write {instead}{keep}",
        )


def _note_both_day_fields(fields: CronFields) -> Iterator[Note]:
    *before, days, month, weekdays = fields.text.split()
    if days.startswith("*") or weekdays.startswith("*"):
        if {days, weekdays} & {"*"} or days == "*/1" or weekdays == "*/1":
            return
        yield Note(
            "other programs",
            "a day has to match both day fields, as one of them begins with '*'; Kubernetes and croniter take either",
            f"for either write any_of({_cron_call(*before, days, month, '*')}, "
            f"{_cron_call(*before, '*', month, weekdays)})",
        )
        return
    yield Note(
        "other programs",
        "day-of-month and day-of-week are both given: it fires when either of them matches, as in crontab; "
        "Celery and APScheduler want both",
        f"for both write {require_both_days(fields.text.split())}; for either, without this note, "
        f"any_of({_cron_call(*before, days, month, '*')}, {_cron_call(*before, '*', month, weekdays)})",
    )


def _cron_call(*fields: str) -> str:
    return f"cron({' '.join(fields)!r})"


def _note_missing_days(fields: CronFields) -> Iterator[Note]:
    days, _, weekdays = fields.text.split()[-3:]
    shortest = min(_LONGEST_FEBRUARY if month == 2 else 30 if month in {4, 6, 9, 11} else 31 for month in fields.months)
    first = min(fields.days)
    is_short = first > shortest or (first == _LONGEST_FEBRUARY and len(fields.months) > 1 and 2 in fields.months)
    if not days.startswith("*") and weekdays.startswith("*") and is_short:
        yield Note("days", f"not every month has a day {min(fields.days)}", "write L for the last day of the month")


_LONGEST_FEBRUARY = 29
_FIELDS = (
    ("second", 60, "s"), ("minute", 60, "m"), ("hour", 24, "h"), ("day-of-month", 31, "d"), ("month", 12, ""),
    ("day-of-week", 7, ""),
)  # fmt: skip
"""For each field: its name, how many values it has, and the unit of ``every``."""


def _note_uneven_steps(fields: CronFields) -> Iterator[Note]:
    """Find steps that are not even: ``*/90`` leads out of its field, and ``*/45`` has a shorter last step."""
    texts = fields.text.split()
    for text, (name, size, unit) in zip(texts, _FIELDS[-len(texts) :], strict=True):
        low = 1 if name in {"day-of-month", "month"} else 0
        for term in text.split(","):
            values, _, written = term.partition("/")
            step = int(written) if written.isdecimal() else 1
            first = values.partition("-")[0] if values != "*" else str(low)
            if step >= size and (values in {"*", str(low)} or "-" in values):
                instead = f"every('{step}{unit}') if that is meant, else " if unit else ""
                yield Note(
                    "step",
                    f"{term} in the {name} field is only {first}: a step begins anew with each round of the field, "
                    f"which has {size} values",
                    f"write {instead}{first}",
                )
            elif values in {"*", str(low)} and (size % step or (step > 1 and name == "day-of-month")):
                yield _uneven_step_note(term, name, range(low, low + size, step), size, unit, fields.text)


def _uneven_step_note(term: str, name: str, values: range, size: int, unit: str, text: str) -> Note:  # noqa: PLR0917
    values_text = f"{values[0]} and {values[1]}" if len(values) == 2 else f"{values[0]}, {values[1]}, … {values[-1]}"
    if name == "day-of-month":
        *before, _, month, weekdays = text.split()
        return Note(
            "step",
            f"{term} in the {name} field is days {values_text} of each month, and begins anew with the 1st",
            f"for one day in {values.step}, also from month to month, write "
            f"cron({' '.join([*before, '*', month, weekdays])!r}, every='{values.step} days', start='2027-01-01')",
        )
    unit_name = "day" if name == "day-of-week" else name
    cycle = {"second": "minute", "minute": "hour", "hour": "day", "month": "year", "day-of-week": "week"}[name]
    distances = f"the distance is {values.step} {unit_name}s, and then {values[0] + size - values[-1]}"
    return Note(
        "step",
        f"{term} in the {name} field is {unit_name}s {values_text} of each {cycle}: {distances}",
        f"for one {unit_name} in {values.step} write every('{values.step}{unit}')"
        if unit
        else f"if that is not meant, list the {unit_name}s",
    )
