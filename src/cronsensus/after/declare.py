"""Read and check the options of jobs with ``after=``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypedDict

from cronsensus.after.upstreams import UpstreamResults, last_until
from cronsensus.declared.declarations import Declarations, Named, name_of
from cronsensus.errors import InvalidOption
from cronsensus.model.gate import WAIT_FOR, After, Rule, When, Which
from cronsensus.model.job import check_choice
from cronsensus.timing.clock import SystemClock
from cronsensus.timing.durations import Duration, format_duration, parse_duration
from cronsensus.timing.instants import format_instant
from cronsensus.triggers import Trigger

Upstreams = Named | str | Sequence[Named | str] | Mapping[Any, Literal["same", "all_in_period", "latest_before"]]


class AfterOptions(TypedDict, total=False):
    """The options of a dependent job; see ``Scheduler.job``."""

    after: Upstreams | None
    when: When | Mapping[Any, When] | None
    wait_for: Duration | None


DEPENDENT_DEFAULTS: dict[str, Any] = {"overlap": "allow", "concurrency": 1, "catch_up": "all"}
"""Default policies of a dependent job: its upstreams decide which nights run."""


@dataclass(frozen=True, slots=True)
class Dependencies:
    """The dependencies of a job: its upstreams, how it reads their results, and its trigger."""

    after: After
    results: UpstreamResults
    trigger: Trigger


def read_after(
    job: str,
    options: Mapping[str, Any],
    own_trigger: Trigger | None,
    declared: Declarations,
    policies: Mapping[str, Any],
) -> Dependencies | None:
    """Read the options for a job's upstreams; ``None``: it has none.

    Raises:
        InvalidOption: an upstream that is not declared, or contradictory options; the message has what to write.
    """
    upstreams = options.get("after")
    if not upstreams:
        for name in ("when", "wait_for"):
            if options.get(name) is not None:
                raise InvalidOption(f"{name}=… is for jobs that come after others; give after=[…]")
        return None
    if isinstance(upstreams, str) or not isinstance(upstreams, Sequence | Mapping):
        upstreams = [upstreams]
    if policies.get("overlap", "allow") != "allow":
        raise InvalidOption(
            f"{job!r} comes after others, so overlap={policies['overlap']!r} would let one that waits stop all behind "
            "it; leave it out (concurrency=1 keeps its runs apart)"
        )
    which = (
        {name_of(upstream): which for upstream, which in upstreams.items()} if isinstance(upstreams, Mapping) else {}
    )
    names = list(which) if which else [name_of(upstream) for upstream in upstreams]
    for name in names:
        if declared.spec(name) is None:
            raise InvalidOption(
                f"{job!r} comes after {name!r}, which is not declared here; declare it above (a job cannot come after "
                "itself, or in a circle)"
            )
        check_choice(which.get(name, "same"), Which, what=f"after={{{name}: …}}")
    when = options.get("when")
    for upstream in when if isinstance(when, Mapping) else ():
        if name_of(upstream) not in names:
            raise InvalidOption(
                f"when={{{name_of(upstream)}: …}}: {job!r} does not come after that; name it in after=, too"
            )
    trigger = own_trigger or _common_trigger(job, names, declared)
    _require_same(
        job,
        trigger,
        [name for name in names if which.get(name) is None],
        declared,
        has_own_trigger=own_trigger is not None,
    )
    wait_for = WAIT_FOR if options.get("wait_for") is None else parse_duration(options["wait_for"], what="wait_for")
    _require_kept(job, names, wait_for, declared)
    upstream_functions = {name: function.registered for name in names if (function := declared.function_of(name))}
    return Dependencies(
        After(tuple(Rule(name, _read_when(when, name), which.get(name, "same")) for name in names), wait_for),
        UpstreamResults(
            types={name: registered.result_types for name, registered in upstream_functions.items()},
            functions={
                name: returning
                for name, registered in upstream_functions.items()
                if (returning := registered.returning) is not None
            },
        ),
        trigger,
    )


def _require_kept(job: str, names: Sequence[str], wait_for: timedelta, declared: Declarations) -> None:
    """Raise if a job would wait for an upstream longer than the upstream's ``keep``."""
    for name in names:
        spec = declared.spec(name)
        if spec is not None and spec.policies.keep < wait_for:
            kept = format_duration(spec.policies.keep)
            raise InvalidOption(
                f"{job!r} waits for {name!r} for {format_duration(wait_for)} (wait_for), but what became of that is "
                f"forgotten after {kept} (keep); give {job!r} wait_for={kept!r}, or {name!r} a longer keep=…"
            )


def _read_when(when: Any, job: str) -> When:
    if isinstance(when, Mapping):
        when = next((value for upstream, value in when.items() if name_of(upstream) == job), None)
    choice: When = check_choice("succeeded" if when is None else when, When, what="when")
    return choice


def _common_trigger(job: str, names: Sequence[str], declared: Declarations) -> Trigger:
    """Return the trigger that the upstreams have in common."""
    triggers = {name: spec.trigger for name in names if (spec := declared.spec(name)) is not None}
    for name, trigger in triggers.items():
        if trigger is None:
            raise InvalidOption(
                f"{job!r} comes after {name!r}, which has no schedule, so there is no time that both have; give "
                f"{job!r} a trigger of its own and after={{{name}: 'latest_before'}}"
            )
    common = next(iter(triggers.values()))
    assert common is not None  # noqa: S101 - as checked
    return common


def _require_same(
    job: str, trigger: Trigger, names: Sequence[str], declared: Declarations, *, has_own_trigger: bool
) -> None:
    """Raise if a job and an upstream have different schedules, and no option decides which times count."""
    for name in names:
        spec = declared.spec(name)
        upstream_trigger = None if spec is None else spec.trigger
        if upstream_trigger is not None and upstream_trigger.to_json() == trigger.in_zone(declared.zone).to_json():
            continue
        raise InvalidOption(_check_choices(job, trigger, name, upstream_trigger, has_own_trigger=has_own_trigger))


def _check_choices(
    job: str, trigger: Trigger, name: str, upstream_trigger: Trigger | None, *, has_own_trigger: bool
) -> str:
    now = SystemClock().now().astimezone(UTC)
    at = trigger.next_after(now)
    compared_with = f"{job!r} has" if has_own_trigger else "the upstream before it has"
    start = f"{name!r} has another schedule than {compared_with}, so say which of its times count: "
    if at is None or upstream_trigger is None:
        return f"{start}after={{{name}: 'latest_before'}}"
    before = last_until(upstream_trigger, at)
    previous = last_until(trigger, at - timedelta(microseconds=1))
    first_in_period = None if previous is None else upstream_trigger.next_after(previous)
    latest = "none yet" if before is None else format_instant(before)
    period = (
        "none" if first_in_period is None or first_in_period > at else f"{format_instant(first_in_period)} to {latest}"
    )
    return (
        f"{start}after={{{name}: …}}. Of {job} at {format_instant(at)} that would be with 'latest_before' {latest}, "
        f"with 'all_in_period' {period}, with 'same' {_is_same_trigger(upstream_trigger, at)}"
    )


def _is_same_trigger(upstream_trigger: Trigger, at: datetime) -> str:
    return (
        format_instant(at)
        if upstream_trigger.next_after(at - timedelta(microseconds=1)) == at
        else "none, ever missing"
    )
