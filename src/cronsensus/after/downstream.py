"""List the downstream jobs of a job, and plan which of them run again with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cronsensus.errors import InvalidOption
from cronsensus.model.gate import Rule, order_jobs, without_cycles
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter
from cronsensus.model.states import State
from cronsensus.stores.base import Store
from cronsensus.stores.retries import retry_chain
from cronsensus.timing.instants import format_instant


@dataclass(frozen=True, slots=True)
class Downstream:
    """The downstream jobs of a job, direct or not.

    Attributes:
        jobs: those that wait for the same nominal time, upstreams first.
        others: those that wait for other times. They are not run again.
    """

    jobs: tuple[str, ...]
    others: tuple[str, ...]


def list_downstream(rules: Mapping[str, Sequence[Rule]], job: str) -> Downstream:
    """Return the downstream jobs of a job, upstreams first."""
    downstream: dict[str, None] = {job: None}
    others: dict[str, None] = {}
    rules, _ = without_cycles(rules)
    for name in order_jobs(rules):
        which = {rule.which for rule in rules.get(name, ()) if rule.job in downstream}
        if "same" in which:
            downstream[name] = None
        elif which:
            others[name] = None
    return Downstream(tuple(downstream)[1:], tuple(others))


def list_names_after(rules: Mapping[str, Sequence[Rule]], job: str) -> tuple[str, ...]:
    """Return the names of all downstream jobs of a job, direct or not."""
    downstream = list_downstream(rules, job)
    return (*downstream.jobs, *downstream.others)


@dataclass(frozen=True, slots=True)
class TriggerPlan:
    """Which jobs run after a job that is triggered with its downstream.

    Attributes:
        jobs: those that run, upstreams first.
        left_out: those that do not run, and why.
    """

    jobs: tuple[str, ...]
    left_out: tuple[tuple[str, str], ...]


def plan_trigger(rules: Mapping[str, Sequence[Rule]], job: str) -> TriggerPlan:
    """Return which jobs run after a job that is triggered with its downstream.

    Raises:
        InvalidOption: the job itself has upstreams, and would wait for them.
    """
    if rules.get(job):
        before = ", ".join(repr(rule.job) for rule in rules[job])
        raise InvalidOption(
            f"{job!r} comes after {before} itself, so a chain does not begin with it: begin with the first job, or run "
            "one time of it again: cronsensus runs retry ID --downstream"
        )
    downstream, runs = list_downstream(rules, job), [job]
    left_out = [(name, "it comes after other times of it") for name in downstream.others]
    for name in downstream.jobs:
        missing = [rule.job for rule in rules[name] if rule.which == "same" and rule.job not in runs]
        if missing:
            left_out.append((name, f"it also comes after {', '.join(missing)}, which does not run now"))
        else:
            runs.append(name)
    return TriggerPlan(tuple(runs[1:]), tuple(left_out))


@dataclass(frozen=True, slots=True)
class RetryPlan:
    """Which runs are retried when a run is retried with its downstream.

    Attributes:
        runs: the runs to retry, upstreams first, so that a gate finds its upstreams active. If the first run was
            retried already, only those that were not.
        left_out: jobs without a retry, and why.
    """

    runs: tuple[Occurrence, ...]
    left_out: tuple[tuple[str, str], ...]


def retried_already(occurrence: int, newest: int, state: State) -> str:
    """Return the message for a second retry of a run: the first retry, and what to type for another."""
    how_to_retry = f"for one more: cronsensus runs retry {occurrence} --again"
    next_step = how_to_retry if state.final else f"see it: cronsensus runs show {newest}"
    return f"run {occurrence} was tried again already as run {newest} ({state}); {next_step}"


def plan_retry(store: Store, rules: Mapping[str, Sequence[Rule]], run: Occurrence) -> RetryPlan:
    """Return the runs to retry with a run that has ended: that run, and its downstream runs.

    A second call returns the runs that the first call's caller has not retried yet.

    Raises:
        InvalidOption: the run has no nominal time, so nothing comes after it.
    """
    if run.scheduled_for is None:
        raise InvalidOption(
            f"run {run.id} of {run.job!r} has no nominal time, so nothing comes after it; retry it without downstream"
        )
    downstream, at = list_downstream(rules, run.job), run.scheduled_for
    newest = retry_chain(store, run)[-1]
    runs, left_out = [run], [(job, "it comes after other times of it") for job in downstream.others]
    if newest is not run:
        runs, left_out = [], [(run.job, retried_already(run.id, newest.id, newest.state)), *left_out]
    for job in downstream.jobs:
        newest_of_job = store.occurrences(OccurrenceFilter(job=job, scheduled_from=at, scheduled_until=at), limit=1)
        if not newest_of_job:
            left_out.append((job, f"it has no run for {format_instant(at)}"))
        elif not newest_of_job[0].state.final:
            left_out.append((job, f"its run {newest_of_job[0].id} is {newest_of_job[0].state}"))
        elif newest is not run and newest_of_job[0].id > newest.id:
            left_out.append((job, f"run {newest_of_job[0].id} came after that ({newest_of_job[0].state})"))
        else:
            runs.append(newest_of_job[0])
    return RetryPlan(tuple(runs), tuple(left_out))
