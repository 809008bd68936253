"""Find rows of jobs, and read their definitions and eras through the cache."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence

from cronsensus.errors import StoreCorrupt, UnknownJob
from cronsensus.model.gate import After
from cronsensus.model.job import Era, JobSpec
from cronsensus.payload.codec import loads
from cronsensus.stores.sql.definitions import read_spec
from cronsensus.stores.sql.dialect import AnyRow
from cronsensus.stores.sql.sending import Pending
from cronsensus.stores.sql.transaction import Transaction
from cronsensus.stores.unreadable import READING_RAISES, instant_of, is_of_values, is_sound, no_definition, whole_number
from cronsensus.timing.instants import from_micros
from cronsensus.triggers import trigger_from_json


def ask_locked(tx: Transaction, name: str) -> Pending:
    """Send the statement that locks a job's row until this transaction ends."""
    return tx.send("lock_job", space=tx.namespace, job=name)


def find_locked(tx: Transaction, name: str) -> AnyRow | None:
    """Lock a job's row until this transaction ends, and return it; ``None``: there is no such job."""
    row: AnyRow | None = ask_locked(tx, name).row
    return row


def living_job(name: str, row: AnyRow | None) -> AnyRow:
    """Return the row of a job that exists and is not retired.

    Raises:
        UnknownJob: there is none, or it is retired.
    """
    if row is None:
        raise UnknownJob(f"no job is called {name!r} in the store; define it first, or see: cronsensus jobs list")
    if row.retired_at is not None:
        raise UnknownJob(f"the job {name!r} is retired; define it again to bring it back")
    return row


def definition_of(row: AnyRow) -> str:
    """Return the text that identifies a definition: its digest, its revision, and when it began."""
    return f"{row.digest}:{row.revision}:{row.defined_at}"


def spec_of(tx: Transaction, row: AnyRow) -> JobSpec:
    """Return the definition of a job's row."""
    return specs_of(tx, {row.id: row})[row.id]


def specs_of(tx: Transaction, rows: Mapping[int, AnyRow]) -> dict[int, JobSpec]:
    """Return definitions by job id, from the cache; those that are not cached are read in one statement."""
    specs: dict[int, JobSpec] = {}
    missing: list[int] = []
    for job, of in rows.items():
        cached = tx.definitions.specs.get(job, definition_of(of))
        if cached is None:
            missing.append(job)
        else:
            specs[job] = cached
    for row in [row for answer in tx.send_in("specs", "ids", missing) for row in answer.rows]:
        spec = read_spec(row.spec)
        tx.definitions.specs.put(row.id, definition_of(row), spec)
        specs[row.id] = spec
    return specs


def readable_specs(tx: Transaction, rows: Sequence[AnyRow]) -> dict[int, JobSpec]:
    """Return definitions by job id, without those that cannot be read; for verbs that write new ones."""
    specs: dict[int, JobSpec] = {}
    for row in [row for answer in tx.send_in("specs", "ids", [row.id for row in rows]) for row in answer.rows]:
        with contextlib.suppress(StoreCorrupt):
            specs[row.id] = read_spec(row.spec)
    return specs


def eras_after(tx: Transaction, rows: Sequence[AnyRow]) -> dict[int, tuple[Era, ...]]:
    """Return, by job id, the eras that still matter: the one that holds at the watermark, and those after it.

    The eras up to a definition never change, so they are kept; only the watermark moves on. ``rows`` are jobs, with
    ``id``, what names a definition, and ``watermark``.
    """
    eras_by_job = {row.id: tx.definitions.eras.get(row.id, definition_of(row)) for row in rows}
    eras_read: dict[int, list[Era]] = {job: [] for job, eras in eras_by_job.items() if eras is None}
    for era in [era for answer in tx.send_in("eras_after", "ids", eras_read) for era in answer.rows]:
        eras_read[era.job_id].append(read_era(era))
    for row in rows:
        if row.id in eras_read:
            eras_by_job[row.id] = eras = tuple(eras_read[row.id])
            tx.definitions.eras.put(row.id, definition_of(row), eras)
    return {row.id: holding_eras(eras_by_job[row.id] or (), row.watermark) for row in rows}


def readable_eras(tx: Transaction, rows: Sequence[AnyRow]) -> dict[int, tuple[Era, ...]]:
    """Return ``eras_after``, for verbs that begin a new era; a job with an unreadable era has none."""
    try:
        return eras_after(tx, rows)
    except Exception as error:
        if not is_of_values(error):
            raise
    eras: dict[int, tuple[Era, ...]] = {}
    for row in rows:
        try:
            eras |= eras_after(tx, [row])
        except Exception as error:
            if not is_of_values(error):
                raise
            tx.unreadable.log_unreadable(f"what job {row.id} was before", error)
            eras[row.id] = ()
    return eras


def holding_eras(all_eras: tuple[Era, ...], watermark: int) -> tuple[Era, ...]:
    """Return the last era that began at or before the watermark, and those after it."""
    if len(all_eras) < 2:
        return all_eras
    decided_until = from_micros(watermark)
    first = max((index for index, era in enumerate(all_eras) if era.since <= decided_until), default=0)
    return all_eras[first:] if first else all_eras


def read_era(row: AnyRow) -> Era:
    """Return an era from its row.

    Raises:
        StoreCorrupt: it cannot be read; a newer version of cronsensus may have written it.
    """
    try:
        trigger = None if row.trigger is None else trigger_from_json(loads(row.trigger))
        after = None if row.after is None else After.from_json(loads(row.after))
        return Era(from_micros(instant_of(row.since)), trigger, whole_number(row.revision), after)
    except READING_RAISES as error:
        raise no_definition("an era", error, row.trigger) from error


def last_eras(answers: Iterable[Pending]) -> dict[int, int]:
    """Return when the last era of each job began, by the answers to ``era_beginnings``."""
    last_since: dict[int, int] = {}
    for row in [row for answer in answers for row in answer.rows]:
        if is_sound(row.since):
            last_since[row.job_id] = max(row.since, last_since.get(row.job_id, row.since))
    return last_since
