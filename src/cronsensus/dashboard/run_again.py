"""The action that runs an ended run again, alone or with its downstream."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from cronsensus.after.downstream import RetryPlan, list_names_after, plan_retry
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
    """Return the action; its form names the downstream jobs of the run's job."""

    def form(store: Store, values: Given) -> Form:
        occurrence = find_run(store, values)
        newest = retry_chain(store, occurrence)[-1]
        option = " --again" if newest is not occurrence or occurrence.state is State.SUCCEEDED else ""
        consequences: list[Text] = [("A new run, with the same arguments and nominal time; this one stays as it is.",)]
        if occurrence.error is not None:
            consequences.append(("It failed with: {0}", shorten(why_ended(occurrence), 200)))
        if occurrence.args or occurrence.kwargs:
            named = [f"{name}={dumps_masked(value)}" for name, value in mask_data(occurrence.kwargs).items()]
            consequences.append(
                ("Its arguments: {0}", shorten(", ".join([*map(dumps_masked, occurrence.args), *named]), 300))
            )
        releases = sorted({node.release for node in store.sessions() if node.is_node and node.state == "alive"})
        if releases:
            consequences.append(("Nodes run release {0} now.", shorten(", ".join(releases), 120)))
        if State.SUCCEEDED in {occurrence.state, newest.state}:
            consequences.append(("This run succeeded: what it did is done a second time.",))
        if occurrence.is_batch and occurrence.state is not State.SUCCEEDED:
            consequences.append(("Of its items only those run that have not succeeded.",))
            items = store.children([occurrence.id], limit=MOST_ITEMS)[occurrence.id]
            again_of = items.total - items.succeeded
            consequences.append(("Of its items {0} have succeeded, and {1} run again.", items.succeeded, again_of))
        if newest is not occurrence:
            consequences.append(("It was run again already, as run {0}.", newest.id))
        rules = rules_of(every_edge(store))
        after = list_names_after(rules, occurrence.job) if occurrence.scheduled_for is not None else ()
        if after:
            consequences.append(("After it comes: {0}. It follows only if you tick the box.", ", ".join(after)))
        plan = plan_retry(store, rules, newest) if after else None
        result = run_form(
            occurrence,
            # If somebody else retries the run meanwhile, ``newest`` changes, and the form is shown again.
            f" {newest.id}",
            title=("Run {0} of {1} again", occurrence.id, occurrence.job),
            consequences=tuple(consequences),
            fields=(Field("downstream", "Run again what comes after it, too", box=True),) if plan else (),
            rows=() if plan is None else _preview(plan),
            button="Run again",
            refused=runs_elsewhere(store.job(occurrence.job))
            or _not_again(occurrence)
            or (None if newest.state.final else ("It was run again already, as run {0}.", newest.id)),
            command=f"cronsensus runs retry {occurrence.id}{option}{' --downstream' if plan else ''}",
        )
        result.hidden["newest"] = str(newest.id)
        return result

    return Action(form, _carry_out)


def _not_again(occurrence: Occurrence) -> tuple[Any, ...] | None:
    if occurrence.parent is not None:
        return "It is an item of batch {0}. Run that again: it leaves out what succeeded.", occurrence.parent
    return None if occurrence.state.final else ("It is {0}; only what has ended can be run again.", occurrence.state)


def _preview(plan: RetryPlan) -> tuple[tuple[str, Text], ...]:
    """Return what would become of each downstream run."""
    follow = [(f"{run.id} {run.job}", ("follows it: a new run for the same nominal time",)) for run in plan.runs[1:]]
    return (*follow, *((job, ("left alone: {0}", reason)) for job, reason in plan.left_out))


def _carry_out(store: Store, values: Given, by: str, why: str) -> str:
    newest_id = int(values["newest"])
    downstream: Sequence[Occurrence] = ()
    if values.get("downstream") and (newest := store.occurrence(newest_id)) is not None:
        downstream = plan_retry(store, rules_of(every_edge(store)), newest).runs[1:]
    # If somebody else retries the newest run meanwhile, the store returns their new run.
    retry = store.retry(newest_id, by=by, why=why, again=True)
    for run in downstream:
        # Each waits for the new run of its upstream. Somebody else may have run it again meanwhile.
        with suppress(InvalidTransition, LookupError):
            retry_occurrence(store, run.id, by=by, why=why, again=True)
    return f"/runs/{retry.id}"
