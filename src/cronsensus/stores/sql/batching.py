"""Batches: count their items by state, list parked occurrences, and wake them."""

from __future__ import annotations

from collections.abc import Sequence

from cronsensus.model.batch import Children
from cronsensus.model.parking import Sleeper
from cronsensus.model.states import State
from cronsensus.stores.sql.dialect import AnyRow
from cronsensus.stores.sql.occurrence_rows import instant, is_id
from cronsensus.stores.sql.transaction import Transaction
from cronsensus.timing.instants import LATEST_MICROS, from_micros


def read_children(tx: Transaction, numbers: Sequence[int], limit: int) -> dict[int, Children]:
    """Return the state of batches and their items by state; a statement for each, all in one trip."""
    queries = {
        number: tx.send("children", batch=number, space=tx.namespace, size=limit) for number in numbers if is_id(number)
    }
    children = {number: _children_of(answer.rows[0]) for number, answer in queries.items()}
    return {number: children.get(number, Children(None)) for number in numbers}


def _children_of(row: AnyRow) -> Children:
    return Children(
        state=None if row.state is None else State(row.state),
        listed=row.listed,
        pending=row.pending,
        running=row.running,
        succeeded=row.succeeded,
        failed=row.failed,
        cancelled=row.cancelled,
        skipped=row.skipped,
    )


def list_parked(tx: Transaction, after: int, limit: int) -> list[Sleeper]:
    """Return a page of what is parked, each with the name of its job."""
    rows = tx.send_last("parked", space=tx.namespace, never=LATEST_MICROS, after=after, size=limit)
    return [
        Sleeper(row.id, row.job, row.parked_on, instant(row.scheduled_for), from_micros(row.created_at)) for row in rows
    ]


def wake_parked(tx: Transaction, numbers: Sequence[int], listed: int | None) -> int:
    """Make due what is parked of these, or note that the list of the one batch is complete and make it due.

    Safe when a node claims or ends one at the same instant: the UPDATE asks for its state.
    """
    ids = [number for number in numbers if is_id(number)]
    if listed is not None:
        return sum(tx.send("complete_list", batch=batch, listed=listed, space=tx.namespace).count for batch in ids)
    return sum(sent.count for sent in tx.send_in("wake", "ids", ids, space=tx.namespace))
