"""The verbs of people and programs: enqueue, trigger, cancel, retry, forget, backfill."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from cronsensus.errors import InvalidTransition
from cronsensus.model.ids import new_id
from cronsensus.model.job import JobSpec, refuse_run_by_hand
from cronsensus.model.occurrence import (
    Enqueued,
    Item,
    chain_time,
    origin_of_retry,
    scheduled_key,
    still_running,
    succeeded_already,
    when_due,
)
from cronsensus.model.states import Origin, Reason, State
from cronsensus.payload.codec import clean, write_payload
from cronsensus.stores.sql.acquiring import refuse_pruned
from cronsensus.stores.sql.job_rows import ask_locked, definition_of, living_job, spec_of, specs_of
from cronsensus.stores.sql.occurrence_rows import (
    ExistingOccurrence,
    Key,
    Keys,
    New,
    insert_absent,
    is_id,
    new_row,
    payload_of,
)
from cronsensus.stores.sql.pruning import delete_occurrences
from cronsensus.stores.sql.trail import record
from cronsensus.stores.sql.transaction import Transaction
from cronsensus.timing.instants import as_utc, from_micros, to_micros, within_stores

BATCH_SIZE = 2000
"""Most occurrences that are prepared between two statements.

A transaction that pauses for too long seems to stand still, and the server ends it.
"""
_MICROSECOND = timedelta(microseconds=1)


def enqueue_items(tx: Transaction, items: Sequence[Item]) -> list[Enqueued]:
    """Create occurrences by key; an existing key returns the existing one. It ends the transaction.

    Safe when two callers use a key at the same instant: the unique key of (job, key) admits only one INSERT. If an
    occurrence that was not there before exists by then, the INSERT fails; the verb is repeated, and finds it. No job is
    locked, because the INSERT may have to wait for a user's transaction that has the key. If a job is retired
    meanwhile, its run is cancelled later. Items of a batch lock the job: many come, and nobody else has their keys.

    Raises:
        The driver's error for a duplicate.
    """
    names = {item.job for item in items}
    of_batch = any(item.parent is not None for item in items)
    job_answers = tx.send_in(
        "lock_named_jobs" if of_batch else "definitions", "names", sorted(names), space=tx.namespace
    )
    existing = Keys(tx, {(item.job, item.key) for item in items if item.key is not None})
    rows = {row.name: row for answer in job_answers for row in answer.rows}
    existing_rows = existing.list_found()
    for name in names:
        living_job(name, rows.get(name))
    specs = specs_of(tx, {row.id: row for row in rows.values()})
    for spec in specs.values():
        refuse_run_by_hand(spec)
    for name, row in rows.items():
        tx.definitions.enqueued.note_definition(name, row.id, definition_of(row))
    default_payloads = {job: write_payload(spec.args, spec.kwargs, what="arguments") for job, spec in specs.items()}
    answers: list[Enqueued] = []
    for start in range(0, len(items), BATCH_SIZE):
        part = items[start : start + BATCH_SIZE]
        new_rows = [_enqueue_item(tx, item, rows[item.job].id, specs, default_payloads) for item in part]
        created = Created(tx, new_rows, [item.job for item in part], existing_rows, may_stand=of_batch)
        if start + BATCH_SIZE >= len(items):
            tx.commit()
        answers += created.list_answers()
    return answers


def _enqueue_item(
    tx: Transaction, item: Item, job: int, specs: Mapping[int, JobSpec], default_payloads: Mapping[int, str | None]
) -> New:
    is_bare = item.args is None and item.kwargs is None and item.headers is None
    payload = default_payloads[job] if is_bare else payload_of(item, specs[job])
    due_at = to_micros(when_due(item, from_micros(tx.now)))
    return new_row(
        tx,
        job,
        specs[job],
        new_id() if item.key is None else item.key,
        item.origin,
        due_at=due_at,
        payload=payload,
        expires_at=None if item.expires_in is None else within_stores(due_at + item.expires_in // _MICROSECOND),
        priority=item.priority,
        parent=item.parent,
    )


def create_occurrences(tx: Transaction, new_rows: Sequence[New], names: Sequence[str]) -> list[Enqueued]:
    """Insert occurrences whose keys are new; answer for each in order."""
    answers: list[Enqueued] = []
    for start in range(0, len(new_rows), BATCH_SIZE):
        part = slice(start, start + BATCH_SIZE)
        answers += Created(tx, new_rows[part], names[part], {}).list_answers()
    return answers


class Created:
    """Inserts occurrences whose keys are new, and has the answers."""

    def __init__(
        self,
        tx: Transaction,
        new_rows: Sequence[New],
        names: Sequence[str],
        before: Mapping[Key, ExistingOccurrence],
        *,
        may_stand: bool = True,
    ) -> None:
        """Insert the new occurrences.

        Args:
            tx: a transaction that writes.
            new_rows: the occurrences.
            names: of their jobs.
            before: the existing occurrences of the callers' keys.
            may_stand: occurrences that have been created meanwhile are left alone; otherwise they are an error.
        """
        self._names = names
        self._keys = [(row.job_id, row.key) for row in new_rows]
        self._before = before
        new: dict[Key, New] = {}
        for key, row in zip(self._keys, new_rows, strict=True):
            if key not in before:
                new.setdefault(key, row)
        if may_stand:
            insert_absent(tx, list(new.values()))
        else:
            tx.send_rows("insert_new", list(new.values()))
        self._new = new
        self._after = Keys(tx, new)

    def list_answers(self) -> list[Enqueued]:
        """Return an answer for each in order; of several with the same key, only the first was created."""
        after, fresh = self._after.list_found(), set(self._new)
        answers: list[Enqueued] = []
        for key, name in zip(self._keys, self._names, strict=True):
            row = after[key] if key in after else self._before[key]
            created = key in fresh
            payload = None if created else row.payload if key in self._before else self._new[key].payload
            created_at = from_micros(self._new[key].created_at) if created else None
            answers.append(Enqueued(row.id, name, key[1], created, row.state, payload, created_at))
            fresh.discard(key)
        return answers


def trigger_job(
    tx: Transaction, job: str, payload: str | None, key: str | None, downstream: Sequence[str], *, by: str, why: str
) -> Enqueued:
    """Run a job now, beside its schedule, and its ``downstream`` jobs after it.

    Safe: the keys are new. If two callers use a key at the same instant, the job's row is locked, so the second sees
    what the first created.
    """
    names = [job, *downstream]
    locked = tx.send_in("lock_named_jobs", "names", sorted(set(names)), space=tx.namespace)
    keys = Keys(tx, [] if key is None else [(job, key)])
    by_name = {row.name: row for answer in locked for row in answer.rows}
    rows = [living_job(name, by_name.get(name)) for name in names]
    for existing in keys.list_found().values():
        return Enqueued(existing.id, job, key or "", created=False, state=existing.state)
    nominal = chain_time(tx.now) if downstream else None
    specs = specs_of(tx, {row.id: row for row in rows})
    new_rows = []
    for place, row in enumerate(rows):
        spec = specs[row.id]
        refuse_run_by_hand(spec)
        default_payload = write_payload(spec.args, spec.kwargs, what="arguments")
        new_rows.append(
            new_row(
                tx,
                row.id,
                spec,
                key if key is not None and place == 0 else new_id(),
                Origin.MANUAL,
                due_at=tx.now,
                payload=payload if payload is not None and place == 0 else default_payload,
                scheduled_for=nominal,
            )
        )
    answer, *downstream_runs = create_occurrences(tx, new_rows, names)
    details = {"downstream": [run.id for run in downstream_runs]} if downstream_runs else {}
    record(tx, by, "trigger", job, why, occurrence=answer.id, **details)
    return answer


def cancel_occurrence(tx: Transaction, occurrence: int, *, by: str, why: str) -> State:
    """Cancel a pending occurrence, or ask a running one to stop.

    Safe when a node claims or finishes it at the same instant: the row is locked when its state is read, and the UPDATE
    compares that state.
    """
    _require_id(occurrence)
    row = tx.send("lock_occurrence", occurrence=occurrence, space=tx.namespace).row
    if row is None:
        raise _unknown_occurrence(occurrence)
    state = State(row.state)
    if state.final:
        raise InvalidTransition(f"occurrence {occurrence} is {state} and cannot be cancelled")
    reason = f"{Reason.OPERATOR}: {clean(why)}" if why else Reason.OPERATOR
    if state is State.PENDING:
        tx.send("cancel_occurrence", occurrence=occurrence, reason=reason, now=tx.now, expect=1)
        state = State.CANCELLED
    elif row.cancel_reason is None:
        tx.send("ask_to_stop", occurrence=occurrence, reason=reason, expect=1)
    record(tx, by, "cancel", row.job, why, occurrence=occurrence)
    return state


def retry_occurrence(tx: Transaction, occurrence: int, *, by: str, why: str, again: bool) -> Enqueued:
    """Create a new occurrence of a final one. Enqueued work stays enqueued; anything else becomes manual.

    Safe when two operators retry at the same instant: the job's row is locked (or there is one writer), so the second
    sees what the first created, and returns that.
    """
    _require_id(occurrence)
    locked = tx.send("lock_job_of", occurrence=occurrence, space=tx.namespace)
    old = tx.send("newest_retry", occurrence=occurrence, space=tx.namespace).row
    if old is None:
        raise _unknown_occurrence(occurrence)
    if old.id != occurrence and locked.row is not None:
        return Enqueued(old.id, locked.row.name, old.key, created=False, state=State(old.state))
    if not State(old.state).final:
        raise InvalidTransition(f"occurrence {occurrence} is {old.state}; only a final one can be retried")
    if old.state == State.SUCCEEDED and not again:
        raise succeeded_already(occurrence)
    row = living_job(f"of occurrence {occurrence}" if locked.row is None else locked.row.name, locked.row)
    spec = spec_of(tx, row)
    refuse_run_by_hand(spec)
    new = new_row(
        tx,
        row.id,
        spec,
        new_id(),
        origin_of_retry(Origin(old.origin), old.parent),
        due_at=tx.now,
        payload=old.payload,
        scheduled_for=old.scheduled_for,
        priority=old.priority,
        level=old.level,
        retry_of=old.id,
    )
    [answer] = create_occurrences(tx, [new], [row.name])
    tx.send("record_retry", occurrence=old.id, retry=answer.id)
    record(tx, by, "retry", row.name, why, occurrence=old.id, retry=answer.id)
    return answer


def forget_key(
    tx: Transaction, job: str, key: str, *, by: str, why: str, running: bool, only: int | None
) -> State | None:
    """Delete the occurrence with a key.

    Safe when a node claims it at the same instant: the row is locked when its state is read.
    """
    ask_locked(tx, job)
    row = tx.send("lock_named", space=tx.namespace, job=job, keys=[key]).row
    if row is None or only not in {None, row.id}:
        return None
    state = State(row.state)
    if state is State.RUNNING and not running:
        raise still_running(job, key)
    delete_occurrences(tx, [row.id])
    record(tx, by, "forget", job, why, occurrence=row.id, key=key, state=state.value)
    return state


def backfill_times(tx: Transaction, job: str, times: Sequence[datetime], *, by: str, why: str) -> list[Enqueued]:
    """Create occurrences for nominal times without an active or succeeded occurrence.

    Safe when two operators do it at the same instant: the job's row is locked (or there is one writer), so the second
    sees what the first created.
    """
    times = [as_utc(time, what="times") for time in times]
    time_of_moment = {to_micros(time): time for time in times}
    locked = ask_locked(tx, job)
    active = tx.send_in("standing_at", "times", time_of_moment, space=tx.namespace, job=job)
    keys = Keys(tx, {(job, scheduled_key(time)) for time in times})
    row = living_job(job, locked.row)
    for time in times:
        refuse_pruned(job, row.horizon, time)
    spec = spec_of(tx, row)
    refuse_run_by_hand(spec)
    payload = write_payload(spec.args, spec.kwargs, what="arguments")
    existing = {row.scheduled_for: row for answer in active for row in answer.rows}
    taken_keys = keys.list_found()
    new_rows = [
        new_row(
            tx,
            row.id,
            spec,
            new_id() if (row.id, scheduled_key(time)) in taken_keys else scheduled_key(time),
            Origin.BACKFILL,
            due_at=tx.now,
            payload=payload,
            scheduled_for=moment,
        )
        for moment, time in time_of_moment.items()
        if moment not in existing
    ]
    created = create_occurrences(tx, new_rows, [job] * len(new_rows))
    by_time = {new.scheduled_for: answer for new, answer in zip(new_rows, created, strict=True)}
    answers: list[Enqueued] = []
    for time in times:
        moment = to_micros(time)
        if moment in existing:
            occurrence = existing[moment]
            answers.append(Enqueued(occurrence.id, job, occurrence.key, created=False, state=State(occurrence.state)))
        else:
            answer = by_time[moment]
            answers.append(answer)
            by_time[moment] = Enqueued(answer.id, job, answer.key, created=False, state=answer.state)
    record(tx, by, "backfill", job, why, times=len(times), occurrences=[made.id for made in answers if made.created])
    return answers


def _require_id(occurrence: int) -> None:
    if not is_id(occurrence):
        raise _unknown_occurrence(occurrence)


def _unknown_occurrence(occurrence: int) -> LookupError:
    return LookupError(f"there is no occurrence {occurrence}")
