"""The rules of ``cronsensus lint``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from types import MappingProxyType

from cronsensus.insight.clock_changes import describe_effect, find_changes, list_crons, zone_of
from cronsensus.insight.next_times import times_after
from cronsensus.insight.time_words import brief_duration, exact_time
from cronsensus.model.gate import Rule
from cronsensus.model.job import JobSpec, Policies
from cronsensus.triggers import Trigger
from cronsensus.triggers.fields import read_cron
from cronsensus.triggers.notes import notes_on
from cronsensus.triggers.wall import WallClock
from cronsensus.triggers.zones import load_zone

NOTHING_AFTER: Mapping[str, Sequence[Rule]] = MappingProxyType({})
LEAST_HERD = 3
"""So many jobs that fire at the same moments are a herd."""
_SAMPLE = 5
_YEAR = timedelta(days=370)
_MOST_TIMES = 10_000


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is allowed and rarely meant."""

    job: str
    rule: str
    text: str
    advice: str


Found = Iterator[tuple[str, str, str]]
"""Rule, text and advice of findings on one job."""


def lint_jobs(
    specs: Sequence[JobSpec], now: datetime, after: Mapping[str, Sequence[Rule]] = NOTHING_AFTER
) -> list[Finding]:
    """Return findings on these definitions, by job; ``after``: the dependencies of each job."""
    # A job that comes after the same nominal time of another has that schedule, and starts when the other ends.
    downstream = {name for name, rules in after.items() if any(rule.which == "same" for rule in rules)}
    scheduled = [spec for spec in specs if spec.name not in downstream]
    findings = [Finding(spec.name, *finding) for spec in specs for rule in _OF_JOBS for finding in rule(spec, now)]
    findings += [
        Finding(spec.name, *result) for spec in scheduled for rule in _OF_SCHEDULES for result in rule(spec, now)
    ]
    return sorted([*findings, *_herds(scheduled, now)], key=lambda finding: (finding.job, finding.rule))


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
        if len(calm) >= LEAST_HERD:
            at = exact_time(times[0], zone_of(group[0].trigger))
            further = f" and {len(calm) - 5} more" if len(calm) > 5 else ""
            yield Finding(
                calm[0],
                "herd",
                f"{len(calm)} jobs fire at the same moments, next {at}: {', '.join(calm[:5])}{further}",
                'spread them: jitter="30s" in their triggers, or other minutes',
            )


def _no_timeout(spec: JobSpec, _now: datetime) -> Found:
    if spec.policies.timeout is None:
        skips = spec.trigger is not None and spec.policies.overlap == "skip"
        blocks = " and, with overlap=skip, all later times with it" if skips else ""
        yield ("no timeout", f"a run that hangs holds its slot for ever{blocks}", 'give it one: timeout="10m"')


def _clock_changes(spec: JobSpec, now: datetime) -> Found:
    for part in list_crons(spec.trigger):
        fields = read_cron(part.expression)
        if not fields.fixed:
            continue
        clock = WallClock.of(fields)
        for change in find_changes(load_zone(part.tz), now, now + _YEAR):
            wall_before, wall_after = (
                change.at.replace(tzinfo=None) + offset for offset in (change.before, change.after)
            )
            if clock.count(min(wall_before, wall_after), max(wall_before, wall_after)):
                yield (
                    "clock change",
                    f"{change.describe()}: {describe_effect(part, change)}",
                    "if that is not meant, take a time that every day has once (04:00), or UTC",
                )
                break


def _slower_than_interval(spec: JobSpec, now: datetime) -> Found:
    policies, interval = spec.policies, _interval(spec.trigger, now)
    if interval is None or policies.timeout is None or policies.timeout <= interval:
        return
    effect = {"skip": "skips", "queue_one": "skips", "queue": "lets the queue grow"}.get(policies.overlap)
    if effect is not None:
        yield (
            "timeout longer than interval",
            (
                f"a run may take {brief_duration(policies.timeout)}, the next time comes after "
                f"{brief_duration(interval)}, "
                f"and overlap={policies.overlap} then {effect}"
            ),
            "a shorter timeout, a longer interval, or another overlap",
        )


def _grace_beyond_window(spec: JobSpec, _now: datetime) -> Found:
    policies = spec.policies
    if policies.grace is not None and policies.grace > policies.catch_up_window:
        yield (
            "grace longer than window",
            (
                f"grace is {brief_duration(policies.grace)}, but what is older than catch_up_window="
                f"{brief_duration(policies.catch_up_window)} is missed anyway"
            ),
            "a shorter grace, or a longer catch_up_window",
        )
    if policies.keep < policies.catch_up_window:
        yield (
            "kept too short",
            (
                f"runs are deleted after {brief_duration(policies.keep)}, within "
                f"catch_up_window={brief_duration(policies.catch_up_window)}"
            ),
            "a longer keep",
        )


def _window_within_interval(spec: JobSpec, now: datetime) -> Found:
    policies, interval = spec.policies, _interval(spec.trigger, now)
    if interval is not None and interval > policies.catch_up_window and policies.catch_up != "none":
        yield (
            "window shorter than interval",
            (
                f"if no node is there for {brief_duration(policies.catch_up_window)} "
                f"(catch_up_window), the time that came due "
                f"is missed, and the next one comes after {brief_duration(interval)}"
            ),
            f'a longer one, such as catch_up_window="{interval.days}d", or catch_up="none" if late is too late',
        )


def _storm(spec: JobSpec, now: datetime) -> Found:
    policies = spec.policies
    if policies.catch_up != "all" or spec.trigger is None:
        return
    count = spec.trigger.count_between(now, now + policies.catch_up_window, _MOST_TIMES)
    if count is None or count > 1000:
        shown = f"more than {_MOST_TIMES:,}" if count is None else f"{count:,}"
        yield (
            "storm after downtime",
            f"catch_up=all within {brief_duration(policies.catch_up_window)} brings up to {shown} runs back at once",
            "a shorter catch_up_window, or catch_up=latest",
        )


def _notes(spec: JobSpec, _now: datetime) -> Found:
    for note in notes_on(spec.trigger):
        yield (note.rule, note.text, note.advice)


def _over(spec: JobSpec, now: datetime) -> Found:
    if spec.trigger is not None and spec.trigger.next_after(now) is None:
        yield ("over", "its trigger has no time to come", "remove the job, or give it a later end")


def _slow_retries(spec: JobSpec, now: datetime) -> Found:
    policies, interval = spec.policies, _interval(spec.trigger, now)
    if interval is None or not policies.retries or policies.overlap != "skip":
        return
    total_wait = sum(_delays(policies), timedelta(0))
    if total_wait > interval:
        yield (
            "retries longer than interval",
            (
                f"{policies.retries} retries wait {brief_duration(total_wait)} in all, and what comes every "
                f"{brief_duration(interval)} is skipped"
            ),
            "fewer retries, a shorter retry_delay, or overlap=queue_one",
        )


def lint_expression(trigger: Trigger, now: datetime) -> list[Finding]:
    """Return findings on a trigger alone."""
    spec = JobSpec(name="expression", function="expression", trigger=trigger)
    return [Finding(spec.name, *finding) for rule in _OF_TRIGGERS for finding in rule(spec, now)]


def _delays(policies: Policies) -> Iterator[timedelta]:
    delay = policies.retry_delay
    for _ in range(min(policies.retries, 1000)):
        yield delay
        delay = min(delay * policies.retry_factor, policies.retry_max_delay)


def _interval(trigger: Trigger | None, now: datetime) -> timedelta | None:
    """Return the shortest distance between two of the next nominal times."""
    times = list(times_after(trigger, now, 20))
    return min((later - earlier for earlier, later in pairwise(times)), default=None)


_OF_TRIGGERS: tuple[Callable[[JobSpec, datetime], Found], ...] = (
    _clock_changes,
    _notes,
    _over,
)
_OF_SCHEDULES: tuple[Callable[[JobSpec, datetime], Found], ...] = (
    *_OF_TRIGGERS,
    _slower_than_interval,
    _window_within_interval,
    _storm,
    _slow_retries,
)
_OF_JOBS: tuple[Callable[[JobSpec, datetime], Found], ...] = (_no_timeout, _grace_beyond_window)
