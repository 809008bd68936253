"""Retry runs for ``cronsensus runs retry``, and print the new runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from cronsensus.after.downstream import list_names_after, retried_already
from cronsensus.batching.declare import refuse_item
from cronsensus.cli.output import Output, print_message
from cronsensus.errors import InvalidTransition
from cronsensus.insight.as_data import made_data
from cronsensus.jobs.handle import retry_occurrence
from cronsensus.model.gate import Rule
from cronsensus.model.job import refuse_run_by_hand
from cronsensus.model.occurrence import Enqueued, Occurrence, succeeded_already
from cronsensus.model.states import State
from cronsensus.stores.base import Store


def require_retryable(store: Store, runs: Sequence[Occurrence], forced: Collection[int]) -> None:
    """Raise if one of the runs cannot be run again, before any is. The store would refuse it as well.

    Args:
        store: has their jobs.
        runs: the chosen runs.
        forced: the ids of runs that are run again even if they have succeeded.

    Raises:
        InvalidTransition: a run cannot be retried.
        InvalidOption: a run ran in another program, which cannot be started from here.
    """
    for view in filter(None, map(store.job, sorted({run.job for run in runs}))):
        refuse_run_by_hand(view.spec)
    for run in runs:
        refuse_item(run)
        if run.retried_as is not None:
            continue
        if run.state is State.SUCCEEDED and run.id not in forced:
            raise succeeded_already(run.id)
        if not run.state.final:
            raise InvalidTransition(
                f"run {run.id} is {run.state}; only what has ended can be run again: cronsensus runs show {run.id}"
            )


def retry_runs(
    store: Store, runs: Sequence[Occurrence], forced: Collection[int], *, by: str, why: str
) -> list[tuple[int, Enqueued]]:
    """Retry runs, and notify nodes; return the id of each with its new run."""
    retries = [(run.id, retry_occurrence(store, run.id, by=by, why=why, again=run.id in forced)) for run in runs]
    store.notify()
    return retries


def print_left_out(runs: Sequence[Occurrence], rules: Mapping[str, Sequence[Rule]]) -> None:
    """Print the downstream jobs of the runs, which are not run again."""
    for run in runs:
        after = () if run.scheduled_for is None else list_names_after(rules, run.job)
        if after:
            print_message(
                f"what comes after {run.job} does not follow: {', '.join(after)}; to have it follow: "
                f"cronsensus runs retry {run.id} --downstream"
            )


def print_retries(output: Output, retries: Sequence[tuple[int, Enqueued]]) -> None:
    """Print the new run of each retried run."""
    if output.printed_json({"runs": [{**made_data(retry), "retry_of": run_id} for run_id, retry in retries]}):
        return
    for run_id, retry in retries:
        if retry.created:
            output.line(f"run {run_id} of {retry.job} is tried again as run {retry.id}")
        else:
            output.line(retried_already(run_id, retry.id, retry.state))
