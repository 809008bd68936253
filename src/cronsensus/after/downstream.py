"""What comes after a job, and what of it is done again with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cronsensus.errors import InvalidOption
from cronsensus.model.gate import Rule, in_order, without_circles
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter
from cronsensus.model.states import State
from cronsensus.stores.base import Store
from cronsensus.stores.retries import retry_chain
from cronsensus.timing.instants import format_instant


@dataclass(frozen=True, slots=True)
class Downstream:
    """What comes after a job, directly or not.

    Attributes:
        jobs: those that come after it by the same nominal time, each behind what it comes after.
        others: those that come after one of them by other times; nothing is done again for these.
    """

    jobs: tuple[str, ...]
    others: tuple[str, ...]


def list_downstream(rules: Mapping[str, Sequence[Rule]], job: str) -> Downstream:
    """Return what comes after a job, each behind what it comes after itself."""
    behind: dict[str, None] = {job: None}
    others: dict[str, None] = {}
    rules, _ = without_circles(rules)
    for name in in_order(rules):
        which = {rule.which for rule in rules.get(name, ()) if rule.job in behind}
        if "same" in which:
            behind[name] = None
        elif which:
            others[name] = None
    return Downstream(tuple(behind)[1:], tuple(others))


def names_after(rules: Mapping[str, Sequence[Rule]], job: str) -> tuple[str, ...]:
    """Return the names of all that comes after a job, directly or not."""
    found = list_downstream(rules, job)
    return (*found.jobs, *found.others)


@dataclass(frozen=True, slots=True)
class Chain:
    """What a job and all that comes after it, run now, are.

    Attributes:
        jobs: those that come after it, each behind what it comes after itself.
        left: jobs that do not run, and why.
    """

    jobs: tuple[str, ...]
    left: tuple[tuple[str, str], ...]


def chain_from(rules: Mapping[str, Sequence[Rule]], job: str) -> Chain:
    """Return what runs after a job that is run now.

    Raises:
        InvalidOption: it comes after another job itself, and would wait for that.
    """
    if rules.get(job):
        before = ", ".join(repr(rule.job) for rule in rules[job])
        raise InvalidOption(
            f"{job!r} comes after {before} itself, so a chain does not begin with it: begin with the first job, or run "
            "one time of it again: cronsensus runs retry ID --downstream"
        )
    found, runs = list_downstream(rules, job), [job]
    left = [(name, "it comes after other times of it") for name in found.others]
    for name in found.jobs:
        missing = [rule.job for rule in rules[name] if rule.which == "same" and rule.job not in runs]
        if missing:
            left.append((name, f"it also comes after {', '.join(missing)}, which does not run now"))
        else:
            runs.append(name)
    return Chain(tuple(runs[1:]), tuple(left))


@dataclass(frozen=True, slots=True)
class Again:
    """What a retry with all that comes after it does.

    Attributes:
        runs: those that are run again, each behind what it comes after: the gate of the next sees an active one.
            The first is left out if it was run again already; behind it is then what was not.
        left: jobs of which nothing is run again, and why.
    """

    runs: tuple[Occurrence, ...]
    left: tuple[tuple[str, str], ...]


def retried_already(occurrence: int, newest: int, state: State) -> str:
    """Return what a second retry of a run found, and what to type for one more."""
    more = f"for one more: cronsensus runs retry {occurrence} --again"
    then = more if state.final else f"see it: cronsensus runs show {newest}"
    return f"run {occurrence} was tried again already as run {newest} ({state}); {then}"


def retry_downstream(store: Store, rules: Mapping[str, Sequence[Rule]], one: Occurrence) -> Again:
    """Return what to run again after a run that has ended, and it first; repeated, what is still to be run again.

    Raises:
        InvalidOption: it has no nominal time, so nothing comes after it.
    """
    if one.scheduled_for is None:
        raise InvalidOption(
            f"run {one.id} of {one.job!r} has no nominal time, so nothing comes after it; retry it without downstream"
        )
    found, at = list_downstream(rules, one.job), one.scheduled_for
    newest = retry_chain(store, one)[-1]
    runs, left = [one], [(job, "it comes after other times of it") for job in found.others]
    if newest is not one:
        runs, left = [], [(one.job, retried_already(one.id, newest.id, newest.state)), *left]
    for job in found.jobs:
        last = store.occurrences(OccurrenceFilter(job=job, scheduled_from=at, scheduled_until=at), limit=1)
        if not last:
            left.append((job, f"it has no run for {format_instant(at)}"))
        elif not last[0].state.final:
            left.append((job, f"its run {last[0].id} is {last[0].state}"))
        elif newest is not one and last[0].id > newest.id:
            left.append((job, f"run {last[0].id} came after that ({last[0].state})"))
        else:
            runs.append(last[0])
    return Again(tuple(runs), tuple(left))
