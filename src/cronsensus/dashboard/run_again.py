"""Run once more what has ended."""

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
    """Return the action; its form names what comes after the job."""

    def form(store: Store, given: Given) -> Form:
        one = find_run(store, given)
        newest = retry_chain(store, one)[-1]
        again = " --again" if newest is not one or one.state is State.SUCCEEDED else ""
        says: list[Text] = [("A new run, with the same arguments and nominal time; this one stays as it is.",)]
        if one.error is not None:
            says.append(("It failed with: {0}", shorten(why_ended(one), 200)))
        if one.args or one.kwargs:
            named = [f"{name}={dumps_masked(value)}" for name, value in mask_data(one.kwargs).items()]
            says.append(("Its arguments: {0}", shorten(", ".join([*map(dumps_masked, one.args), *named]), 300)))
        releases = sorted({node.release for node in store.sessions() if node.is_node and node.state == "alive"})
        if releases:
            says.append(("Nodes run release {0} now.", shorten(", ".join(releases), 120)))
        if State.SUCCEEDED in {one.state, newest.state}:
            says.append(("This run succeeded: what it did is done a second time.",))
        if one.is_batch and one.state is not State.SUCCEEDED:
            says.append(("Of its items only those run that have not succeeded.",))
            items = store.children([one.id], limit=MOST_ITEMS)[one.id]
            again_of = items.total - items.succeeded
            says.append(("Of its items {0} have succeeded, and {1} run again.", items.succeeded, again_of))
        if newest is not one:
            says.append(("It was run again already, as run {0}.", newest.id))
        rules = rules_of(every_edge(store))
        after = names_after(rules, one.job) if one.scheduled_for is not None else ()
        if after:
            says.append(("After it comes: {0}. It follows only if you tick the box.", ", ".join(after)))
        plan = plan_retry(store, rules, newest) if after else None
        shown = run_form(
            one,
            # Who else told it to run again has made the run that was wanted.
            f" {newest.id}",
            title=("Run {0} of {1} again", one.id, one.job),
            says=tuple(says),
            fields=(Field("downstream", "Run again what comes after it, too", box=True),) if plan else (),
            rows=() if plan is None else _preview(plan),
            button="Run again",
            refused=runs_elsewhere(store.job(one.job))
            or _not_again(one)
            or (None if newest.state.final else ("It was run again already, as run {0}.", newest.id)),
            command=f"cronsensus runs retry {one.id}{again}{' --downstream' if plan else ''}",
        )
        shown.keeps["newest"] = str(newest.id)
        return shown

    return Action(form, _carry_out)


def _not_again(one: Occurrence) -> tuple[Any, ...] | None:
    if one.parent is not None:
        return "It is an item of batch {0}. Run that again: it leaves out what succeeded.", one.parent
    return None if one.state.final else ("It is {0}; only what has ended can be run again.", one.state)


def _preview(plan: RetryPlan) -> tuple[tuple[str, Text], ...]:
    """Return what would become of each run that comes after the one that is run again."""
    follow = [(f"{run.id} {run.job}", ("follows it: a new run for the same nominal time",)) for run in plan.runs[1:]]
    return (*follow, *((job, ("left alone: {0}", why)) for job, why in plan.left_out))


def _carry_out(store: Store, given: Given, by: str, why: str) -> str:
    number = int(given["newest"])
    behind: Sequence[Occurrence] = ()
    if given.get("downstream") and (one := store.occurrence(number)) is not None:
        behind = plan_retry(store, rules_of(every_edge(store)), one).runs[1:]
    # If somebody retries the newest one in this moment, the store returns what was made of it.
    made = store.retry(number, by=by, why=why, again=True)
    for run in behind:
        # Each waits for the new run of what it comes after. Somebody else may have run it again in this moment.
        with suppress(InvalidTransition, LookupError):
            retry_occurrence(store, run.id, by=by, why=why, again=True)
    return f"/runs/{made.id}"
