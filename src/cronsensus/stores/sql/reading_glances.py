"""Read short rows (glances) of many occurrences at once, for lists and pictures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from cronsensus.model.glance import Glance, Past
from cronsensus.model.states import State
from cronsensus.stores.sql.dialect import AnyRow
from cronsensus.stores.sql.occurrence_rows import instant
from cronsensus.stores.sql.reading_jobs import ledger_range
from cronsensus.stores.sql.transaction import Transaction
from cronsensus.stores.unreadable import whole_number
from cronsensus.stores.values import LOOKED_THROUGH
from cronsensus.timing.instants import from_micros, to_micros


def last_of(tx: Transaction, names: Sequence[str], limit: int) -> dict[str, Past]:
    """Return the newest entries of the ledgers of jobs.

    A statement for each job, along its own index, all in one trip: one statement for all of them would have to number
    the whole history of each. If items of a batch are found, a second statement reads the job's batches.
    """
    job_answers = tx.send_in("job_ids", "names", names, space=tx.namespace)
    jobs = [(row.id, row.name) for answer in job_answers for row in answer.rows]
    queries = [
        (name, tx.send("last_glances", job=job, size=limit), tx.send("last_verdicts", job=job, size=limit))
        for job, name in jobs
    ]
    pasts = [
        (name, job, _read_glances(tx, occurrences.rows), verdicts)
        for (job, name), (_, occurrences, verdicts) in zip(jobs, queries, strict=True)
    ]
    batch_answers = {
        name: tx.send("last_whole_glances", job=job, size=limit, looked=LOOKED_THROUGH)
        for name, job, glances, _ in pasts
        if any(answer.parent is not None for answer in glances)
    }
    return {
        name: Past(
            tuple(_read_glances(tx, batch_answers[name].rows) if name in batch_answers else glances),
            tuple(
                tx.unreadable.keep_readable(
                    verdicts.rows,
                    lambda row: ledger_range(name, row),  # noqa: B023 - it is called here
                    lambda row: f"verdict {row.id} of job {name!r}",  # noqa: B023
                )
            ),
        )
        for name, _, glances, verdicts in pasts
    }


def ran_since(tx: Transaction, since: datetime, limit: int) -> list[Glance]:
    """Return the occurrences that run, and those that have ended since ``since``."""
    newest = tx.send("newest_number")
    running = tx.send("running_glances", space=tx.namespace, size=limit)
    lowest_id = (newest.rows[0].newest or 0) - LOOKED_THROUGH
    ended = tx.send_last("ended_since", space=tx.namespace, least=lowest_id, since=to_micros(since), size=limit)
    by_id = {glance.id: glance for glance in _read_glances(tx, [*running.rows, *ended])}
    return sorted(by_id.values(), key=lambda glance: -glance.id)[:limit]


def _read_glances(tx: Transaction, rows: Iterable[AnyRow]) -> list[Glance]:
    return tx.unreadable.keep_readable(rows, _read_glance, lambda row: f"run {row.id}")


def _read_glance(row: AnyRow) -> Glance:
    if row.job is None:
        raise LookupError(f"its job {row.job_id} is not there")
    return Glance(
        id=row.id,
        job=str(row.job),
        state=State(row.state),
        scheduled_for=instant(row.scheduled_for),
        due_at=from_micros(row.due_at),
        crashes=whole_number(row.crashes),
        failures=whole_number(row.failures),
        node=row.node,
        reason=row.reason,
        created_at=from_micros(row.created_at),
        started_at=instant(row.started_at),
        finished_at=instant(row.finished_at),
        parent=row.parent,
        listed=row.listed,
    )
