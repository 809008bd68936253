"""Run an ended run again."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from cronsensus.after.downstream import RetryPlan, names_after, plan_retry
from cronsensus.dashboard.actions import Action, Field, Form, Given, Text, find_run, run_form, runs_elsewhere
from cronsensus.errors import InvalidTransition
from cronsensus.insight.summaries import why_ended
from cronsensus.insight.time_words import shorten
from cronsensus.jobs.handle import retry_occurrence
from cronsensus.model.batch import MOST_ITEMS
from cronsensus.model.occurrence import Occurrence
from cronsensus.model.states import State
from cronsensus.payload.codec import dumps_masked
from cronsensus.security.masking import mask_data
from cronsensus.stores.base import Store
from cronsensus.stores.pages import every_edge, rules_of
from cronsensus.stores.retries import retry_chain


def run_again() -> Action:
    """Return the action; its form names the jobs that come after the run's job."""

    def form(store: Store, given: Given) -> Form:
        occurrence = find_run(store, given)
        newest = retry_chain(store, occurrence)[-1]
        again = " --again" if newest is not occurrence or occurrence.state is State.SUCCEEDED else ""
        says: list[Text] = [("A new run, with the same arguments and nominal time; this one stays as it is.",)]
        if occurrence.error is not None:
            says.append(("It failed with: {0}", shorten(why_ended(occurrence), 200)))
        if occurrence.args or occurrence.kwargs:
            named = [f"{name}={dumps_masked(value)}" for name, value in mask_data(occurrence.kwargs).items()]
            says.append(("Its arguments: {0}", shorten(", ".join([*map(dumps_masked, occurrence.args), *named]), 300)))
        releases = sorted({node.release for node in store.sessions() if node.is_node and node.state == "alive"})
        if releases:
            says.append(("Nodes run release {0} now.", shorten(", ".join(releases), 120)))
        if State.SUCCEEDED in {occurrence.state, newest.state}:
            says.append(("This run succeeded: what it did is done a second time.",))
        if occurrence.is_batch and occurrence.state is not State.SUCCEEDED:
            says.append(("Of its items only those run that have not succeeded.",))
            items = store.children([occurrence.id], limit=MOST_ITEMS)[occurrence.id]
            again_of = items.total - items.succeeded
            says.append(("Of its items {0} have succeeded, and {1} run again.", items.succeeded, again_of))
        if newest is not occurrence:
            says.append(("It was run again already, as run {0}.", newest.id))
        rules = rules_of(every_edge(store))
        after = names_after(rules, occurrence.job) if occurrence.scheduled_for is not None else ()
        if after:
            says.append(("After it comes: {0}. It follows only if you tick the box.", ", ".join(after)))
        plan = plan_retry(store, rules, newest) if after else None
        shown = run_form(
            occurrence,
            # A retry by somebody else has made the wanted run: then the form has changed.
            f" {newest.id}",
            title=("Run {0} of {1} again", occurrence.id, occurrence.job),
            says=tuple(says),
            fields=(Field("downstream", "Run again what comes after it, too", box=True),) if plan else (),
            rows=() if plan is None else _preview(plan),
            button="Run again",
            refused=runs_elsewhere(store.job(occurrence.job))
            or _not_again(occurrence)
            or (None if newest.state.final else ("It was run again already, as run {0}.", newest.id)),
            command=f"cronsensus runs retry {occurrence.id}{again}{' --downstream' if plan else ''}",
        )
        shown.keeps["newest"] = str(newest.id)
        return shown

    return Action(form, _carry_out)


def _not_again(occurrence: Occurrence) -> tuple[Any, ...] | None:
    if occurrence.parent is not None:
        return "It is an item of batch {0}. Run that again: it leaves out what succeeded.", occurrence.parent
    return None if occurrence.state.final else ("It is {0}; only what has ended can be run again.", occurrence.state)


def _preview(plan: RetryPlan) -> tuple[tuple[str, Text], ...]:
    """Return what would become of each downstream run."""
    follow = [(f"{run.id} {run.job}", ("follows it: a new run for the same nominal time",)) for run in plan.runs[1:]]
    return (*follow, *((job, ("left alone: {0}", why)) for job, why in plan.left_out))


def _carry_out(store: Store, given: Given, by: str, why: str) -> str:
    number = int(given["newest"])
    downstream: Sequence[Occurrence] = ()
    if given.get("downstream") and (newest := store.occurrence(number)) is not None:
        downstream = plan_retry(store, rules_of(every_edge(store)), newest).runs[1:]
    # If somebody else retries the newest run meanwhile, the store returns their new run.
    made = store.retry(number, by=by, why=why, again=True)
    for run in downstream:
        # Each waits for the new run of its upstream. Somebody else may have run it again meanwhile.
        with suppress(InvalidTransition, LookupError):
            retry_occurrence(store, run.id, by=by, why=why, again=True)
    return f"/runs/{made.id}"
