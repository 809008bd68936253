"""Verbs that end attempts: finish, release; and note, which speaks of a running one. Each asks for a token."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import bindparam, func, insert, select, update

from cronsensus.codec import clean, cleaned, write_error
from cronsensus.errors import StoreUnavailable
from cronsensus.instants import to_micros, within_stores
from cronsensus.model.occurrence import Claim, Cut, Note, Outcome, Settled
from cronsensus.model.states import State
from cronsensus.stores.sql.dialect import AnyRow
from cronsensus.stores.sql.schema import logs, occurrences
from cronsensus.stores.sql.sessions import CURRENT, INSERT_RUN, RUN, give_up, run_of
from cronsensus.stores.sql.transaction import Transaction
from cronsensus.stores.values import MOST_AHEAD

_o = occurrences.c
_MICROSECOND = timedelta(microseconds=1)

_RUN_ENDS = {
    State.SUCCEEDED: "succeeded",
    State.FAILED: "failed",
    State.CANCELLED: "cancelled",
    State.SKIPPED: "skipped",
    State.PENDING: "retry",
}
_ANSWERS = {end: state for state, end in _RUN_ENDS.items()}

_PUT_BACK_VALUES: dict[str, Any] = {
    "state": "pending",
    "due_at": bindparam("due"),
    "session": None,
    "node": None,
    "started_at": None,
    "progress_done": None,
    "progress_total": None,
}
_GIVE_BACK = update(occurrences).where(CURRENT).values(**_PUT_BACK_VALUES, attempt=_o.attempt - 1)
_GIVE_UP = (
    update(occurrences)
    .where(CURRENT)
    .values(state="cancelled", attempt=_o.attempt - 1, reason=bindparam("because"), finished_at=bindparam("now"))
)
_PROGRESS = (
    update(occurrences).where(CURRENT).values(progress_done=bindparam("done"), progress_total=bindparam("total"))
)
_LAST_LINES = (
    select(logs.c.occurrence_id, func.max(logs.c.sequence).label("last"))
    .where(logs.c.occurrence_id.in_(bindparam("ids", expanding=True)))
    .group_by(logs.c.occurrence_id)
)
_INSERT_LINES = insert(logs)


def finish(tx: Transaction, outcomes: Sequence[Outcome]) -> list[Settled]:
    """Record how attempts ended; all in this one transaction.

    Safe when a takeover happens at the same instant: the rows are locked, token and session are compared, and the
    UPDATE writes only where the occurrence is running under that very token; nothing is committed unless it touched as
    many rows as were found. A result that comes second finds another token.
    """
    found = standing(tx, [outcome.id for outcome in outcomes])
    now = tx.now
    answers: list[Settled | None] = []
    became: dict[int, tuple[int, State]] = {}  # what this call did: occurrence → token, state
    refused: list[tuple[Outcome, State | None]] = []
    closed: list[tuple[Any, ...]] = []
    later: list[tuple[Any, ...]] = []
    ended: list[tuple[Any, ...]] = []
    for outcome in outcomes:
        number, token, state = outcome.id, outcome.token, outcome.state
        row = found.get(number)
        if row is None or not _is_current(row, token, outcome.session) or number in became:
            answers.append(_repeated(outcome, row, became.get(number)))
            if answers[-1] is None:
                refused.append((outcome, _stands(row, became.get(number))))
            continue
        reason, error = cleaned(outcome.reason), write_error(outcome.error)
        if state is State.PENDING and row.cancel_reason is not None:
            state, reason = State.CANCELLED, row.cancel_reason  # asked to stop: it does not come back
        if state is State.PENDING:
            wait = (outcome.retry_in or timedelta(0)) // _MICROSECOND
            later.append((within_stores(now + wait), reason, error, number, token))
        else:
            closed.append((state.value, reason, outcome.result, error, now, number, token))
        ended.append(run_of(row, now, _RUN_ENDS[state], reason, error))
        became[number] = token, state
        answers.append(Settled(number, token, accepted=True, state=state))
    again = iter(_answer_again(tx, refused))
    tx.send_rows("close_runs", closed, one_each=True)
    tx.send_rows("retry_runs", later, one_each=True)
    tx.send_rows("record_runs", ended)
    return [next(again) if answer is None else answer for answer in answers]


def _repeated(outcome: Outcome, row: AnyRow | None, became: tuple[int, State] | None) -> Settled | None:
    """Return the first answer to an outcome that this call itself has given, if it has."""
    if row is not None and became is not None and became[0] == outcome.token:
        return Settled(outcome.id, outcome.token, accepted=True, state=became[1])
    return None


def _stands(row: AnyRow | None, became: tuple[int, State] | None) -> State | None:
    """Return where an occurrence stands in the middle of this call."""
    if became is not None:
        return became[1]
    return None if row is None else State(row.state)


def _answer_again(tx: Transaction, refused: Sequence[tuple[Outcome, State | None]]) -> list[Settled]:
    """Answer for runs that are not current: as the first time where this token finished it, else no."""
    if not refused:
        return []
    sent = tx.send_in("ended_runs", "tokens", {outcome.token for outcome, _ in refused})
    ends = {(row.occurrence_id, row.token): row for one in sent for row in one.rows}
    answers = []
    for outcome, stands in refused:
        run = ends.get((outcome.id, outcome.token))
        first = _ANSWERS.get(run.ending) if run is not None and outcome.session in {None, run.session} else None
        ours = first is not None and stands is not None
        answers.append(Settled(outcome.id, outcome.token, accepted=ours, state=first if ours else stands))
    return answers


def release(tx: Transaction, claims: Sequence[Claim], cut: Cut | None) -> list[bool]:
    """Give claims back, and the attempt too if it was never begun.

    Safe when a takeover happens at the same instant: as in ``finish``, the UPDATE asks for the token.
    """
    if cut is not None:
        return give_up(tx, claims, cut)
    found = standing(tx, (claim.id for claim in claims))
    answers: list[bool] = []
    back: list[dict[str, Any]] = []
    cancelled: list[dict[str, Any]] = []
    ended: list[tuple[Any, ...]] = []
    done: set[int] = set()
    for claim in claims:
        row = found.get(claim.id)
        if row is None or not _is_current(row, claim.token, claim.session) or row.id in done:
            answers.append(False)
            continue
        done.add(row.id)
        change = {"occurrence": row.id, "held": row.token}
        if row.cancel_reason is not None:
            cancelled.append({**change, "because": row.cancel_reason, "now": tx.now})
        else:
            back.append({**change, "due": min(row.due_at, tx.now + MOST_AHEAD // _MICROSECOND)})
        ended.append(run_of(row, tx.now, "released"))
        answers.append(True)
    _require_all(tx.change_many(_GIVE_BACK, back) + tx.change_many(_GIVE_UP, cancelled), len(done))
    tx.change_tuples(INSERT_RUN, RUN, ended)
    return answers


def last_line(tx: Transaction, occurrence: int) -> int:
    """Return the number of the last log line of an occurrence; 0: it has none."""
    return max((row.last for row in tx.rows(_LAST_LINES, ids=[occurrence])), default=0)


def note(tx: Transaction, notes: Sequence[Note], *, after: int = 0) -> list[bool]:
    """Record progress and log lines of running attempts; ``after`` is the least number that a line may follow.

    Safe when a takeover happens at the same instant: the rows are locked before their tokens are compared, and the
    UPDATE asks for the token again.
    """
    found = standing(tx, (note.id for note in notes))
    current: list[tuple[Note, AnyRow]] = []
    answers: list[bool] = []
    for one in notes:
        row = found.get(one.id)
        ok = row is not None and _is_current(row, one.token, one.session)
        answers.append(ok)
        if row is not None and ok:
            current.append((one, row))
    tx.change_many(
        _PROGRESS,
        [
            {"occurrence": one.id, "held": one.token, "done": one.progress[0], "total": one.progress[1]}
            for one, _ in current
            if one.progress is not None
        ],
    )
    speaking = {one.id for one, _ in current if one.lines}
    last = {row.occurrence_id: row.last for row in tx.rows_in(_LAST_LINES, "ids", speaking)}
    lines: list[dict[str, Any]] = []
    for one, row in current:
        for line in one.lines:
            last[one.id] = sequence = max(last.get(one.id, 0), after) + 1
            lines.append(
                {
                    "occurrence_id": one.id,
                    "sequence": sequence,
                    "attempt": row.attempt,
                    "at": to_micros(line.at),
                    "level": clean(line.level)[:20],
                    "text": clean(line.text),
                }
            )
    tx.change_many(_INSERT_LINES, lines)
    return answers


def standing(tx: Transaction, ids: Iterable[int]) -> dict[int, AnyRow]:
    """Return occurrences by id, locked."""
    sent = tx.send_in("lock_runs", "ids", sorted(set(ids)), space=tx.namespace)
    return {row.id: row for one in sent for row in one.rows}


def _is_current(row: AnyRow, token: int, session: str | None) -> bool:
    """Whether a locked occurrence runs under the token and, if one is named, for the session."""
    return row.state == "running" and row.token == token and session in {None, row.session}


def _require_all(touched: int, wanted: int) -> None:
    if touched != wanted:
        raise StoreUnavailable("a run changed under a lock; nothing was written; please report this")
