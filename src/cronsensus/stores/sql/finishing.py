"""Write the report about attempts: ends, released claims, notes. Each part compares the token."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from cronsensus.model.ends import (
    STATE_AFTER,
    Again,
    End,
    Final,
    Parked,
    error_of,
    recorded_as,
    state_after,
    unless_cancelled,
)
from cronsensus.model.occurrence import Claim, Note, Settled
from cronsensus.model.states import State
from cronsensus.payload.codec import clean, clean_optional, write_error
from cronsensus.stores.sql.dialect import AnyRow
from cronsensus.stores.sql.sessions import attempt_row, began_at
from cronsensus.stores.sql.transaction import Transaction
from cronsensus.stores.values import MOST_AHEAD
from cronsensus.timing.instants import LATEST_MICROS, to_micros, within_stores

_MICROSECOND = timedelta(microseconds=1)


class Ends:
    """Records the ends of attempts, and has the answers.

    Safe when a takeover happens at the same instant: the rows are locked, token and session are compared, and the
    UPDATE writes only if the occurrence is running under that very token; nothing is committed unless it touched as
    many rows as were found. The second of two results finds another token.

    Attributes:
        became: the result: token and state by occurrence.
    """

    def __init__(self, tx: Transaction, ends: Sequence[End], locked_rows: Mapping[int, AnyRow]) -> None:
        """Record the ends; ``locked_rows``: the occurrences, locked."""
        now = tx.now if ends else 0  # not read without ends: reading it sends the queued statements
        self.became: dict[int, tuple[int, State]] = {}
        self._answers: list[Settled | None] = []
        self._refused: list[tuple[End, State | None]] = []
        close_rows: list[tuple[Any, ...]] = []
        retry_rows: list[tuple[Any, ...]] = []
        snooze_rows: list[tuple[Any, ...]] = []
        park_rows: list[tuple[Any, ...]] = []
        attempt_rows: list[tuple[Any, ...]] = []
        for end in ends:
            number, token = end.id, end.token
            row, became = locked_rows.get(number), self.became.get(number)
            if row is None or not _is_current(row, token, end.session) or became is not None:
                self._answers.append(_repeated_answer(end, row, became))
                if self._answers[-1] is None:
                    self._refused.append((end, _state_of(row, became)))
                continue
            next_state, elapsed = unless_cancelled(end.then, row.cancel_reason), end.elapsed // _MICROSECOND
            reason, error = clean_optional(next_state.reason), write_error(error_of(next_state))
            match next_state:
                case Final():
                    started_at = began_at(row, now - elapsed)
                    close_rows.append(
                        (str(next_state.state), reason, next_state.result, error, started_at, now, number, token)
                    )
                case Again(failed=True):
                    retry_rows.append((_due_again(now, next_state.after), reason, error, number, token))
                case Again():
                    snooze_rows.append((_due_again(now, next_state.after), reason, next_state.note, number, token))
                case Parked():
                    park_rows.append((LATEST_MICROS, next_state.on, reason, next_state.listed, number, token))
            if (recorded := recorded_as(next_state)) is not None:
                attempt_rows.append(attempt_row(row, now, recorded, reason, error, ran=elapsed))
            state = state_after(next_state)
            self.became[number] = token, state
            self._answers.append(Settled(number, token, accepted=True, state=state))
        # Read before the runs of this call are recorded.
        tokens = {end.token for end, _ in self._refused}
        self._ended = tx.send_in("ended_runs", "tokens", tokens)
        tx.send_rows("close_runs", close_rows, one_each=True)
        tx.send_rows("retry_runs", retry_rows, one_each=True)
        tx.send_rows("snooze_runs", snooze_rows, one_each=True)
        tx.send_rows("park_runs", park_rows, one_each=True)
        tx.send_rows("record_runs", attempt_rows)

    def list_answers(self) -> list[Settled]:
        """Return the answers in order. A repeated end, by the same token, gets its first answer."""
        repeated = iter(self._repeat_answers())
        return [next(repeated) if answer is None else answer for answer in self._answers]

    def _repeat_answers(self) -> Iterator[Settled]:
        ends = {(row.occurrence_id, row.token): row for answer in self._ended for row in answer.rows}
        for end, state_now in self._refused:
            run = ends.get((end.id, end.token))
            first = STATE_AFTER.get(run.ending) if run is not None and end.session in {None, run.session} else None
            is_repeated = first is not None and state_now is not None
            yield Settled(end.id, end.token, accepted=is_repeated, state=first if is_repeated else state_now)


def _due_again(now: int, after: timedelta) -> int:
    return within_stores(now + after // _MICROSECOND)


def _repeated_answer(end: End, row: AnyRow | None, became: tuple[int, State] | None) -> Settled | None:
    """Return the first answer to an end that this call has already answered, or that left no record."""
    if row is not None and became is not None and became[0] == end.token:
        return Settled(end.id, end.token, accepted=True, state=became[1])
    unrecorded = recorded_as(end.then) is None
    if unrecorded and became is None and row is not None and row.token == end.token and row.state == "pending":
        return Settled(end.id, end.token, accepted=True, state=State.PENDING)
    return None


def _state_of(row: AnyRow | None, became: tuple[int, State] | None) -> State | None:
    """Return the state of an occurrence in the middle of this call."""
    if became is not None:
        return became[1]
    return None if row is None else State(row.state)


def release_runs(tx: Transaction, claims: Sequence[Claim], locked_rows: Mapping[int, AnyRow]) -> list[State | None]:
    """Release claims whose attempt was not started, and return the new state of each; ``None``: it is not current.

    ``locked_rows``: the occurrences, locked.
    Safe when a takeover happens at the same instant: the UPDATE compares the token.
    """
    answers: list[State | None] = []
    release_rows: list[tuple[Any, ...]] = []
    cancel_rows: list[tuple[Any, ...]] = []
    attempt_rows: list[tuple[Any, ...]] = []
    released: set[int] = set()
    for claim in claims:
        row = locked_rows.get(claim.id)
        if row is None or not _is_current(row, claim.token, claim.session) or row.id in released:
            answers.append(None)
            continue
        released.add(row.id)
        if row.cancel_reason is not None:
            cancel_rows.append((row.cancel_reason, tx.now, row.id, row.token))
        else:
            release_rows.append((min(row.due_at, tx.now + MOST_AHEAD // _MICROSECOND), row.id, row.token))
        attempt_rows.append(attempt_row(row, tx.now, "released"))
        answers.append(State.PENDING if row.cancel_reason is None else State.CANCELLED)
    tx.send_rows("release_runs", release_rows, one_each=True)
    tx.send_rows("cancel_released_runs", cancel_rows, one_each=True)
    tx.send_rows("record_runs", attempt_rows)
    return answers


def last_line(tx: Transaction, occurrence: int) -> int:
    """Return the number of the last log line of an occurrence; 0: it has none."""
    return max((row.last for row in tx.send("last_lines", ids=[occurrence]).rows), default=0)


def keep_notes(
    tx: Transaction,
    notes: Sequence[Note],
    locked_rows: Mapping[int, AnyRow],
    last_lines: dict[int, int],
    *,
    after: int = 0,
) -> list[bool]:
    """Record notes; ``locked_rows``: the occurrences, locked; ``last_lines``: the numbers of their last lines.

    ``after`` is the number after which new lines are counted at least. Safe when a takeover happens at the same
    instant: the UPDATE compares the token.
    """
    answers: list[bool] = []
    start_rows: list[tuple[Any, ...]] = []
    progress_rows: list[tuple[Any, ...]] = []
    line_rows: list[tuple[Any, ...]] = []
    for note in notes:
        row = locked_rows.get(note.id)
        if row is None or not _is_current(row, note.token, note.session):
            answers.append(False)
            continue
        answers.append(True)
        if note.ran is not None and row.reserved:
            start_rows.append((began_at(row, tx.now - note.ran // _MICROSECOND), note.id, note.token))
        if note.progress is not None:
            progress_rows.append((*note.progress, note.id, note.token))
        for line in note.lines:
            last_lines[note.id] = number = max(last_lines.get(note.id, 0), after) + 1
            line_rows.append(
                (note.id, number, row.attempt, to_micros(line.at), clean(line.level)[:20], clean(line.text))
            )
    tx.send_rows("begin_reserved", start_rows)
    tx.send_rows("note_progress", progress_rows)
    tx.send_rows("insert_lines", line_rows)
    return answers


class LockedRuns:
    """Occurrences by id, locked; the statements are sent when this is made, and the answers read when needed."""

    def __init__(self, tx: Transaction, ids: Iterable[int], *, notes: Sequence[Note] = ()) -> None:
        """Send the statements, also for the last line numbers of runs for which ``notes`` have lines."""
        self._rows = tx.send_in("lock_runs", "ids", sorted(set(ids)), space=tx.namespace)
        self._lines = tx.send_in("last_lines", "ids", sorted({note.id for note in notes if note.lines}))

    def read_rows(self) -> dict[int, AnyRow]:
        """Return the existing rows."""
        return {row.id: row for answer in self._rows for row in answer.rows}

    def last_lines(self) -> dict[int, int]:
        """Return the numbers of the last lines, of occurrences that have any."""
        return {row.occurrence_id: row.last for answer in self._lines for row in answer.rows}


def _is_current(row: AnyRow, token: int, session: str | None) -> bool:
    """Whether a locked occurrence runs under the token and, if given, for the session."""
    return row.state == "running" and row.token == token and (session is None or session == row.session)
