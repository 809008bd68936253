"""What ``cronsensus runs retry`` does with the runs that it means, and what it prints of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from cronsensus.after.downstream import names_after, retried_already
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


def require_retryable(store: Store, found: Sequence[Occurrence], again: Collection[int]) -> None:
    """Raise if a run cannot be run again, before any is; the store refuses it as well.

    Args:
        store: what knows their jobs.
        found: the runs that are meant.
        again: the ids of those that may have succeeded.

    Raises:
        InvalidTransition: one cannot.
        InvalidOption: one ran in a program that is not ours to start.
    """
    for view in filter(None, map(store.job, sorted({one.job for one in found}))):
        refuse_run_by_hand(view.spec)
    for one in found:
        refuse_item(one)
        if one.retried_as is not None:
            continue
        if one.state is State.SUCCEEDED and one.id not in again:
            raise succeeded_already(one.id)
        if not one.state.final:
            raise InvalidTransition(
                f"run {one.id} is {one.state}; only what has ended can be run again: cronsensus runs show {one.id}"
            )


def retry_runs(
    store: Store, found: Sequence[Occurrence], again: Collection[int], *, by: str, why: str
) -> list[tuple[int, Enqueued]]:
    """Retry runs, and notify nodes; return the number of each with what was made of it."""
    made = [(one.id, retry_occurrence(store, one.id, by=by, why=why, again=one.id in again)) for one in found]
    store.notify()
    return made


def print_left_out(found: Sequence[Occurrence], rules: Mapping[str, Sequence[Rule]]) -> None:
    """Say which jobs come after those of runs, and do not follow."""
    for one in found:
        after = () if one.scheduled_for is None else names_after(rules, one.job)
        if after:
            print_message(
                f"what comes after {one.job} does not follow: {', '.join(after)}; to have it follow: "
                f"cronsensus runs retry {one.id} --downstream"
            )


def print_retries(output: Output, made: Sequence[tuple[int, Enqueued]]) -> None:
    """Print what became of each retry."""
    if output.printed_json({"runs": [{**made_data(new), "retry_of": old} for old, new in made]}):
        return
    for old, new in made:
        if new.created:
            output.line(f"run {old} of {new.job} is tried again as run {new.id}")
        else:
            output.line(retried_already(old, new.id, new.state))
