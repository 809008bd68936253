"""The rules of ``cronsensus lint``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from types import MappingProxyType

from cronsensus.insight.clock_changes import changes, crons, effect, zone_of
from cronsensus.insight.next_times import times_after
from cronsensus.insight.words import brief, exact
from cronsensus.model.gate import Rule
from cronsensus.model.job import JobSpec, Policies
from cronsensus.triggers import Trigger
from cronsensus.triggers.cron import Cron
from cronsensus.triggers.fields import read_cron
from cronsensus.triggers.wall import WallClock
from cronsensus.triggers.zones import load_zone

NOTHING_AFTER: Mapping[str, Sequence[Rule]] = MappingProxyType({})
HERD = 3
"""Jobs at the same moments from which on it is a herd."""
_SAMPLE = 5
_YEAR = timedelta(days=370)
_MANY = 10_000


@dataclass(frozen=True, slots=True)
class Finding:
    """Something rarely meant."""

    job: str
    rule: str
    text: str
    advice: str


Found = Iterator[tuple[str, str, str]]
"""Rule, text and advice of findings on one job."""


def lint_jobs(
    specs: Sequence[JobSpec], now: datetime, after: Mapping[str, Sequence[Rule]] = NOTHING_AFTER
) -> list[Finding]:
    """Return what there is to say about these definitions, by job; ``after``: what each comes after."""
    # What comes after the same nominal time of another job has its schedule from there, and starts when that ends.
    downstream = {name for name, rules in after.items() if any(rule.which == "same" for rule in rules)}
    scheduled = [spec for spec in specs if spec.name not in downstream]
    found = [Finding(spec.name, *finding) for spec in specs for rule in _OF_JOBS for finding in rule(spec, now)]
    found += [Finding(spec.name, *one) for spec in scheduled for rule in _OF_SCHEDULES for one in rule(spec, now)]
    return sorted([*found, *_herds(scheduled, now)], key=lambda finding: (finding.job, finding.rule))


def _herds(specs: Sequence[JobSpec], now: datetime) -> Iterator[Finding]:
    """Find jobs that fire at the same moments: twins of one function, and herds."""
    moments: dict[tuple[datetime, ...], list[JobSpec]] = defaultdict(list)
    for spec in specs:
        if spec.trigger is not None:
            times = tuple(times_after(spec.trigger, now, _SAMPLE))
            if times:
                moments[times].append(spec)
    for times, group in moments.items():
        by_call: dict[str, list[str]] = defaultdict(list)
        for spec in group:
            by_call[f"{spec.function} {spec.args} {spec.kwargs}"].append(spec.name)
        for names in by_call.values():
            if len(names) > 1:
                yield Finding(
                    names[0],
                    "same work twice",
                    f"{', '.join(names[:5])} call the same function with the same arguments at the same times",
                    "keep one of them",
                )
        calm = [spec.name for spec in group if spec.trigger is not None and not spec.trigger.jitter]
        if len(calm) >= HERD:
            at = exact(times[0], zone_of(group[0].trigger))
            more = f" and {len(calm) - 5} more" if len(calm) > 5 else ""
            yield Finding(
                calm[0],
                "herd",
                f"{len(calm)} jobs fire at the same moments, next {at}: {', '.join(calm[:5])}{more}",
                'spread them: jitter="30s" in their triggers, or other minutes',
            )


def _no_timeout(spec: JobSpec, _now: datetime) -> Found:
    if spec.policies.timeout is None:
        skips = spec.trigger is not None and spec.policies.overlap == "skip"
        blocks = " and, with overlap=skip, all later times with it" if skips else ""
        yield ("no timeout", f"a run that hangs holds its slot for ever{blocks}", 'give it one: timeout="10m"')


def _every_second(spec: JobSpec, now: datetime) -> Found:
    times = list(times_after(spec.trigger, now, 3))
    seconds = any(len(read_cron(part.expression).seconds) == 60 for part in crons(spec.trigger))
    if seconds and len(times) > 1 and times[1] - times[0] <= timedelta(seconds=1):
        yield (
            "every second",
            "the six fields of its expression begin with seconds, and it fires every second",
            "for every minute write five fields, or begin with 0; if every second is meant, write every('1s')",
        )


def _clock_changes(spec: JobSpec, now: datetime) -> Found:
    for part in crons(spec.trigger):
        fields = read_cron(part.expression)
        if not fields.fixed:
            continue
        clock = WallClock.of(fields)
        for change in changes(load_zone(part.tz), now, now + _YEAR):
            old, new = (change.at.replace(tzinfo=None) + offset for offset in (change.before, change.after))
            if clock.count(min(old, new), max(old, new)):
                yield (
                    "clock change",
                    f"{change.describe()}: {effect(part, change)}",
                    "if that is not meant, take a time that every day has once (04:00), or UTC",
                )
                break


def _slower_than_interval(spec: JobSpec, now: datetime) -> Found:
    policies, interval = spec.policies, _interval(spec.trigger, now)
    if interval is None or policies.timeout is None or policies.timeout <= interval:
        return
    then = {"skip": "skips", "queue_one": "skips", "queue": "lets the queue grow"}.get(policies.overlap)
    if then is not None:
        yield (
            "timeout longer than interval",
            (
                f"a run may take {brief(policies.timeout)}, the next time comes after {brief(interval)}, "
                f"and overlap={policies.overlap} then {then}"
            ),
            "a shorter timeout, a longer interval, or another overlap",
        )


def _grace_beyond_window(spec: JobSpec, _now: datetime) -> Found:
    policies = spec.policies
    if policies.grace is not None and policies.grace > policies.catch_up_window:
        yield (
            "grace longer than window",
            (
                f"grace is {brief(policies.grace)}, but what is older than catch_up_window="
                f"{brief(policies.catch_up_window)} is missed anyway"
            ),
            "a shorter grace, or a longer catch_up_window",
        )
    if policies.keep < policies.catch_up_window:
        yield (
            "kept too short",
            f"runs are deleted after {brief(policies.keep)}, within catch_up_window={brief(policies.catch_up_window)}",
            "a longer keep",
        )


def _storm(spec: JobSpec, now: datetime) -> Found:
    policies = spec.policies
    if policies.catch_up != "all" or spec.trigger is None:
        return
    count = spec.trigger.count_between(now, now + policies.catch_up_window, _MANY)
    if count is None or count > 1000:
        shown = f"more than {_MANY:,}" if count is None else f"{count:,}"
        yield (
            "storm after downtime",
            f"catch_up=all within {brief(policies.catch_up_window)} brings up to {shown} runs back at once",
            "a shorter catch_up_window, or catch_up=latest",
        )


def _days(spec: JobSpec, _now: datetime) -> Found:
    for part in crons(spec.trigger):
        for text in _about_days(part):
            what, _, advice = text.partition("; ")
            yield ("days", what, advice or "see: cronsensus explain")


def _steps(spec: JobSpec, _now: datetime) -> Found:
    for part in crons(spec.trigger):
        for text in _long_steps(part):
            what, _, advice = text.partition("; ")
            yield ("step", what, advice)


def _over(spec: JobSpec, now: datetime) -> Found:
    if spec.trigger is not None and spec.trigger.next_after(now) is None:
        yield ("over", "its trigger has no time to come", "remove the job, or give it a later end")


def _slow_retries(spec: JobSpec, now: datetime) -> Found:
    policies, interval = spec.policies, _interval(spec.trigger, now)
    if interval is None or not policies.retries or policies.overlap != "skip":
        return
    waits = sum(_delays(policies), timedelta(0))
    if waits > interval:
        yield (
            "retries longer than interval",
            f"{policies.retries} retries wait {brief(waits)} in all, and what comes every {brief(interval)} is skipped",
            "fewer retries, a shorter retry_delay, or overlap=queue_one",
        )


def surprises(part: Cron) -> list[str]:
    """Return what is rarely meant by a cron expression, although it is right: the finding, then the advice."""
    return [*_about_days(part), *_long_steps(part)]


def lint_expression(trigger: Trigger, now: datetime) -> list[Finding]:
    """Return what there is to say about a trigger alone."""
    spec = JobSpec(name="expression", function="expression", trigger=trigger)
    return [Finding(spec.name, *finding) for rule in _OF_TRIGGERS for finding in rule(spec, now)]


def _about_days(part: Cron) -> list[str]:
    fields = read_cron(part.expression)
    found = []
    texts = fields.text.split()
    days, weekdays = texts[-3], texts[-1]
    if not days.startswith("*") and not weekdays.startswith("*"):
        found.append(
            "day-of-month and day-of-week are both given: it fires when either of them matches"
            "; for both at once begin one with *, such as */1"
        )
    if not days.startswith("*") and weekdays.startswith("*") and min(fields.days) > 28:
        found.append(f"not every month has a day {min(fields.days)}; write L for the last day of the month")
    return found


_FIELDS = (
    ("second", 60, "s"), ("minute", 60, "m"), ("hour", 24, "h"), ("day-of-month", 31, "d"), ("month", 12, ""),
    ("day-of-week", 7, ""),
)  # fmt: skip
"""Of each field: its name, how many values it has, and the unit of ``every``."""


def _long_steps(part: Cron) -> Iterator[str]:
    """Find steps that lead out of their field: what is left of ``*/90`` is one value."""
    texts = read_cron(part.expression).text.split()
    for text, (name, size, unit) in zip(texts, _FIELDS[-len(texts) :], strict=True):
        for term in text.split(","):
            values, _, step = term.partition("/")
            if step.isdecimal() and int(step) >= size and (values == "*" or "-" in values):
                first = values.partition("-")[0] if values != "*" else "1" if name in {"day-of-month", "month"} else "0"
                instead = f"every('{int(step)}{unit}') if that is meant, else " if unit else ""
                yield (
                    f"{term} in the {name} field is only {first}: a step begins anew with each round of the "
                    f"field, which has {size} values; write {instead}{first}"
                )


def _delays(policies: Policies) -> Iterator[timedelta]:
    delay = policies.retry_delay
    for _ in range(min(policies.retries, 1000)):
        yield delay
        delay = min(delay * policies.retry_factor, policies.retry_max_delay)


def _interval(trigger: Trigger | None, now: datetime) -> timedelta | None:
    """Return the shortest distance among the next nominal times."""
    times = list(times_after(trigger, now, 20))
    return min((later - earlier for earlier, later in pairwise(times)), default=None)


_OF_TRIGGERS: tuple[Callable[[JobSpec, datetime], Found], ...] = (
    _every_second,
    _clock_changes,
    _days,
    _steps,
    _over,
)
_OF_SCHEDULES: tuple[Callable[[JobSpec, datetime], Found], ...] = (
    *_OF_TRIGGERS,
    _slower_than_interval,
    _storm,
    _slow_retries,
)
_OF_JOBS: tuple[Callable[[JobSpec, datetime], Found], ...] = (_no_timeout, _grace_beyond_window)
