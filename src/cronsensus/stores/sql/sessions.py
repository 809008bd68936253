"""Verbs on sessions: open, renew, end, and take over the runs of a dead session.

A session is alive until it is ended or its lease runs out, by the dialect's clock for leases. An ended session never
comes back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from cronsensus.errors import LeaseLost, StoreCorrupt
from cronsensus.model.job import JobSpec, UnknownParts
from cronsensus.model.occurrence import CUT_WORDS, Claim, Cut, Takeover
from cronsensus.model.session import Renewal, SessionSpec
from cronsensus.model.states import Reason, State
from cronsensus.payload.codec import dumps
from cronsensus.stores.sql.dialect import AnyRow
from cronsensus.stores.sql.job_rows import specs_of
from cronsensus.stores.sql.sending import Pending
from cronsensus.stores.sql.trail import record
from cronsensus.stores.sql.transaction import Transaction
from cronsensus.stores.unreadable import LARGEST_COUNT, whole_number
from cronsensus.stores.values import MOST_AHEAD
from cronsensus.timing.instants import from_micros

_MICROSECOND = timedelta(microseconds=1)
MOST_PRESUMED_SESSIONS = 500
"""Most presumed-dead sessions that a call of ``reclaim`` processes; the rest is left for the next call."""


def require_alive(tx: Transaction, session: str) -> AnyRow:
    """Return the row of a session that is alive and stays so until this transaction ends.

    Safe when another node ends the session at the same instant: the row is locked (or the transaction has the
    database's only write lock). Either the session ended before and this finds nothing, or it ends later and the
    reclaim sees what was claimed. Safe when the lease runs out while this waits for the row: a second statement
    compares, by the clock then.

    Raises:
        LeaseLost: the session is not alive.
    """
    session_values: dict[str, Any] = {"session": session, "space": tx.namespace}
    tx.send("lock_session", **session_values)
    rows: Sequence[AnyRow] = tx.send("session_alive", **session_values, boot=tx.epoch, moment=tx.moment).rows
    if not rows:
        raise not_alive(session)
    return rows[0]


def not_alive(session: str) -> LeaseLost:
    """Return the error for a session that was ended, or whose lease ran out."""
    return LeaseLost(f"session {session} is not alive; what it held may be with another node by now")


def know_release(tx: Transaction, release: str) -> None:
    """Record a release, if it is new: releases are ordered by when they became known."""
    if not tx.send("known_release", space=tx.namespace, wanted=release).rows:
        tx.send_rows("insert_release", [(tx.namespace, release, tx.now)])


def one_at_a_time(tx: Transaction) -> None:
    """Keep others from opening sessions or defining jobs in this namespace until this transaction ends.

    A transaction that defines jobs reads which releases are alive. Without the lock it would not see a session of a
    later release that opens at the same moment, and that node would read the definitions before they are changed, and
    accept them.
    Safe: the row to lock is the oldest release of the namespace. It is never deleted, and it exists, because the caller
    has recorded its own release.
    """
    tx.send("lock_oldest_release", space=tx.namespace)


def open_session(tx: Transaction, session: SessionSpec, lease: timedelta) -> datetime:
    """Open a session; repeated while it is alive, it only sets the lease.

    Safe when sent twice at the same instant (an answer was lost): the INSERT itself checks the unique id, and the
    second finds the first. Nothing is written if the session has ended.
    """
    if session.is_node:
        know_release(tx, session.release)
        one_at_a_time(tx)
    until = tx.lease_now + lease // _MICROSECOND
    row = (
        session.id, tx.namespace, session.node, session.host, session.pid, session.pid_started, session.release,
        session.version, session.concurrency, session.functions,
        dumps(dict(session.declares), what="what a session declares") if session.declares else None,
        session.tzdata or None, dumps(dict(session.zones), what="zones of a session") if session.zones else None,
        tx.now, until, tx.epoch,
    )  # fmt: skip
    tx.send_rows("insert_session", [row])
    session_values: dict[str, Any] = {"session": session.id, "space": tx.namespace}
    tx.send("lock_session", **session_values)
    tx.send(
        "renew_opened_session", **session_values, until=until, now=tx.now, boot=tx.epoch, moment=tx.moment, expect=1,
        otherwise=LeaseLost(f"session {session.id} is dead for good; open one with a new id"),
    )  # fmt: skip
    return from_micros(tx.now)


def renew_session(tx: Transaction, session: str, lease: timedelta, idle_lease: timedelta) -> Renewal:
    """Renew the lease by what the session holds; return which runs are to be cancelled and whether to drain.

    Safe when the same session claims at the same instant: its row is locked first, which waits for such a claim, and
    a later statement, which sees what was committed meanwhile, reads what the session holds. (A single UPDATE with
    EXISTS in it would wait too, but then decide by what it saw before.) A reclaim comes before or after as a whole.
    """
    session_values: dict[str, Any] = {"session": session, "space": tx.namespace}
    tx.send("lock_session", **session_values)
    rows = tx.send("read_renewing_session", **session_values, boot=tx.epoch, moment=tx.moment).rows
    now = from_micros(tx.now)
    if not rows or not rows[0].alive:
        beats, store = (rows[0].beats, rows[0].store) if rows else (0, _read_identity(tx))
        return Renewal(
            alive=False, lease=timedelta(0), cancel={}, drain=False, now=now, beats=beats, store=str(store or ""),
        )  # fmt: skip
    runs = [row for row in rows if row.id is not None]
    granted = lease if runs else idle_lease
    beats, store = rows[0].beats + 1, str(rows[0].store or "")
    until = tx.lease_now + granted // _MICROSECOND
    tx.send("renew", **session_values, until=until, now=tx.now, beat=beats, expect=1)
    cancel = {row.id: row.cancel_reason for row in runs if row.cancel_reason is not None}
    held = tuple((row.id, row.token) for row in runs if isinstance(row.token, int))
    return Renewal(
        alive=True, lease=granted, cancel=cancel, drain=bool(rows[0].draining), now=now, held=held,
        beats=beats, store=store,
    )  # fmt: skip


def _read_identity(tx: Transaction) -> Any:
    rows = tx.send("identity").rows
    return rows[0].value if rows else None


def drain_session(tx: Transaction, session: str, *, by: str, why: str) -> bool:
    """Ask a node to take nothing new. Safe: one UPDATE whose condition is that the session is alive."""
    if tx.send("drain", session=session, space=tx.namespace, boot=tx.epoch, moment=tx.moment).count != 1:
        return False
    record(tx, by, "drain", session, why)
    return True


# --- the end ----------------------------------------------------------------------------------------------------------


def find_dead(tx: Transaction, presumed: Collection[str]) -> Pending:
    """Read the open sessions whose lease ran out, or that are presumed dead, in the order in which they were opened."""
    presumed_ids = list(presumed)[:MOST_PRESUMED_SESSIONS] or [""]
    return tx.send("find_dead", space=tx.namespace, presumed=presumed_ids, boot=tx.epoch, moment=tx.moment)


def reclaim_session(
    tx: Transaction,
    session: str,
    *,
    presumed: bool,
    careful: bool = False,
    on_blocked: Callable[[str, Sequence[int]], None] = lambda *_: None,
) -> list[Takeover]:
    """End a dead session and take over its runs and locks.

    Safe when two nodes reclaim at the same instant, or the session is renewed: locking the session also reads whether
    its lease has run out, and the UPDATE checks again whether it is open.

    It waits for no transaction: a node that stalls inside one keeps its locks on the rows of its session or of runs
    that it finishes. Then nothing is taken over until the next call, and the caller goes on with its round.
    ``on_blocked`` is called with such runs. While the session is locked, it gets no more runs.
    """
    session_values: dict[str, Any] = {"session": session, "space": tx.namespace}
    session_lock = tx.send("try_lock_session", **session_values, boot=tx.epoch, moment=tx.moment)
    # No run is locked without its session: of two nodes that reclaim at once, each would lock some of the runs.
    if not tx.dialect.evaluates_before_locking and not session_lock.rows:
        return []
    locked, runs_of_session = tx.send("try_lock_runs", **session_values), tx.send("held_runs", **session_values)
    if not session_lock.rows:
        return []
    locked_ids = {row.id for row in locked.rows}
    if blocked := [row.id for row in runs_of_session.rows if row.id not in locked_ids]:
        on_blocked(session, blocked)
        return []
    if not session_lock.rows[0].overdue and not presumed:
        return []
    why = "lease ran out" if session_lock.rows[0].overdue else "process gone"
    tx.send("end_session", **session_values, now=tx.now, ended_as="dead", why=why, expect=1)
    return _take_over(tx, session, locked.rows, why, crashed=True, careful=careful)


def close_session(tx: Transaction, session: str, *, careful: bool = False) -> list[Takeover]:
    """End a session in order. Safe: only the UPDATE that found it open goes on."""
    why = "closed in order"
    session_values: dict[str, Any] = {"session": session, "space": tx.namespace}
    ended = tx.send("end_session", **session_values, now=tx.now, ended_as="closed", why=why)
    held = tx.send("lock_held", **session_values)
    if ended.count != 1:
        return []
    return _take_over(tx, session, held.rows, why, crashed=False, careful=careful)


class _CutOffRun(NamedTuple):
    """The takeover of a run, and the rows to write for it; one of ``requeue_rows`` and ``close_rows`` is empty."""

    requeue_rows: tuple[tuple[Any, ...], ...]
    close_rows: tuple[tuple[Any, ...], ...]
    attempt: tuple[Any, ...]
    takeover: Takeover


def _take_over(
    tx: Transaction, session: str, held: Sequence[AnyRow], why: str, *, crashed: bool, careful: bool
) -> list[Takeover]:
    """Decide what becomes of the locked runs of a session that has just ended, and free its locks."""
    # A reserved claim may not have started, so it counts as no crash. It is not reserved again.
    reserved = [row for row in held if row.reserved]
    started = [row for row in held if not row.reserved]
    takeovers = _cut_off(tx, started, why, crashed=crashed, careful=careful)
    if reserved:
        takeovers += _cut_off(tx, reserved, why, crashed=False, careful=careful)
    tx.send("free_locks_of", session=session, space=tx.namespace)
    return takeovers


def cut_off_claims(tx: Transaction, claims: Sequence[Claim], cut: Cut) -> list[State | None]:
    """End attempts that had started, and return the new state of each; ``None``: its claim is not current.

    Safe when a takeover happens at the same instant: the rows are locked before token and session are compared, and the
    UPDATE compares the token again.
    """
    answers = tx.send_in("lock_cut_off", "ids", sorted({claim.id for claim in claims}), space=tx.namespace)
    locked = {row.id: row for answer in answers for row in answer.rows}
    claimed_rows = [locked.pop(claim.id) if _is_of(locked.get(claim.id), claim) else None for claim in claims]
    current = [row for row in claimed_rows if row is not None]
    takeovers = _cut_off(tx, current, CUT_WORDS[cut], crashed=cut == "crashed")
    new_states = {takeover.id: takeover.became for takeover in takeovers}
    return [None if row is None else new_states.get(row.id) for row in claimed_rows]


def _is_of(row: AnyRow | None, claim: Claim) -> bool:
    """Whether a locked occurrence runs under a claim."""
    return row is not None and row.state == "running" and (row.token, row.session) == (claim.token, claim.session)


def _cut_off(
    tx: Transaction, held: Sequence[AnyRow], why: str, *, crashed: bool, careful: bool = False
) -> list[Takeover]:
    """Decide what becomes of runs that are cut off; this transaction has locked them.

    With ``careful`` each run is written separately, and a run that the database refuses stays as it is.
    """
    specs = _readable_specs(tx, held)
    cut_off_runs = tx.unreadable.keep_readable(
        held, lambda row: _decide_run(tx, row, why, specs.get(row.job_id), crashed=crashed), _name_of_run
    )
    if careful:
        cut_off_runs = tx.unreadable.keep_readable(
            cut_off_runs, lambda run: _write_alone(tx, run), lambda run: f"run {run.takeover.id} that was cut off"
        )
    else:
        _write_cut_off(tx, cut_off_runs)
    return [run.takeover for run in cut_off_runs]


def _name_of_run(row: AnyRow) -> str:
    return f"run {row.id} that was cut off"


def _readable_specs(tx: Transaction, held: Sequence[AnyRow]) -> dict[int, JobSpec]:
    """Return the definitions of jobs by id, where they can be read.

    Of a definition with parts of a newer version the known parts are used: whether a run may be started again is there.
    """
    jobs_of = {row.job_id: row for row in held}
    try:
        return specs_of(tx, jobs_of)
    except StoreCorrupt:
        readable: dict[int, JobSpec] = {}
        for job, row in jobs_of.items():
            try:
                readable |= specs_of(tx, {job: row})
            except StoreCorrupt as error:
                if isinstance(error.__cause__, UnknownParts):
                    readable[job] = error.__cause__.known
                else:
                    tx.unreadable.log_unreadable(f"job {job} whose run was cut off", error)
        return readable


def _decide_run(tx: Transaction, row: AnyRow, why: str, spec: JobSpec | None, *, crashed: bool) -> _CutOffRun:
    """Decide what becomes of a run that was cut off.

    A run without a readable definition is failed, because it is unknown whether it may be run again.
    """
    crash = f"{Reason.CRASHED}: {why}"
    reason = crash if crashed else why
    crashes = min(whole_number(row.crashes) + crashed, LARGEST_COUNT)
    requeue_rows: tuple[tuple[Any, ...], ...] = ()
    close_rows: tuple[tuple[Any, ...], ...] = ()
    if row.cancel_reason is not None:
        state, written_reason = State.CANCELLED, row.cancel_reason
    elif spec is None or spec.policies.on_crash == "fail" or (crashed and crashes >= spec.policies.max_crashes):
        state, written_reason = State.FAILED, crash
    else:
        state, written_reason = State.PENDING, reason
    if state is State.PENDING:
        requeue_rows = (
            (
                min(whole_number(row.due_at), tx.now + MOST_AHEAD // _MICROSECOND),
                crashes,
                written_reason,
                row.id,
                row.token,
            ),
        )
    else:
        close_rows = ((state.value, crashes, written_reason, tx.now, row.id, row.token),)
    attempt = attempt_row(row, tx.now, "crashed" if crashed else "released", reason)
    name = f"job {row.job_id}" if row.name is None else row.name
    return _CutOffRun(
        requeue_rows, close_rows, attempt, Takeover(row.id, name, row.key, row.token, row.session, state, reason)
    )


def _write_cut_off(tx: Transaction, runs: Sequence[_CutOffRun]) -> None:
    tx.send_rows("requeue_cut_off_runs", [row for run in runs for row in run.requeue_rows])
    tx.send_rows("close_cut_off_runs", [row for run in runs for row in run.close_rows])
    tx.send_rows("record_runs", [run.attempt for run in runs])


def _write_alone(tx: Transaction, run: _CutOffRun) -> _CutOffRun:
    """Write the rows of a run that was taken over, or none of them."""
    with tx.savepoint():
        _write_cut_off(tx, [run])
    return run


def attempt_row(
    row: AnyRow, now: int, end: str, reason: str | None = None, error: str | None = None, *, ran: int = 0
) -> tuple[Any, ...]:
    """Return the record of an attempt that ends now, after ``ran`` microseconds."""
    started = now if row.started_at is None else began_at(row, now - ran)
    return (row.token, row.id, row.attempt, row.session, row.node, started, now, end, reason, error)


def began_at(row: AnyRow, now: int) -> Any:
    """Return when an attempt started: by its row, or by ``at`` if it was reserved."""
    return max(now, row.started_at) if row.reserved else row.started_at
