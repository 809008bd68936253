"""Claim work: the entries that ``claim_query`` selected become running, each under a new token.

Nothing here waits for another node's rows: entries that another node is claiming are skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from cronsensus.model.occurrence import Claim
from cronsensus.stores.sql.claim_query import ORIGINS, Selection, choose_entries, first_page
from cronsensus.stores.sql.dialect import AnyRow
from cronsensus.stores.sql.job_rows import definition_of
from cronsensus.stores.sql.occurrence_rows import instant
from cronsensus.stores.sql.sending import Pending
from cronsensus.stores.sql.sessions import not_alive
from cronsensus.stores.sql.transaction import Transaction
from cronsensus.timing.instants import from_micros

MOST_EXPIRED_RUNS = 1000
"""Most occurrences that one claim closes as missed(late); the rest is skipped until the next."""
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class StartedClaims:
    """Occurrences that are made running, in order, each under its token.

    Attributes:
        last: the answer with the last of the tokens; it is known once the transaction is over.
        now: the store's clock then, or a little earlier; a claim ahead of its due time is awaited from this.
        came_at: when that was here, by ``dialect.monotonic``.
    """

    selection: Selection
    last: Pending
    session: str
    now: int
    came_at: float

    def make_claims(self) -> list[Claim]:
        """Return the claims. Call it after the transaction, because other claims wait for its end."""
        now = from_micros(self.now)
        first = self.last.rows[0].last - len(self.selection.chosen) + 1
        limit = self.selection.limit
        return [
            self._make_claim(row, first + place, now, reserved=place >= limit)
            for place, row in enumerate(self.selection.chosen)
        ]

    def _make_claim(self, row: AnyRow, token: int, now: datetime, *, reserved: bool) -> Claim:
        args, kwargs, headers = self.selection.payloads[row.id]
        return Claim(
            id=row.id,
            spec=self.selection.specs[row.job_id],
            key=row.key,
            origin=ORIGINS[row.origin],
            scheduled_for=instant(row.scheduled_for),
            due_at=from_micros(row.due_at),
            attempt=row.attempt + 1,
            token=token,
            session=self.session,
            args=args,
            kwargs=kwargs,
            claimed_at=now,
            crashes=row.crashes,
            failures=row.failures,
            reserved=reserved,
            parent=row.parent,
            listed=row.listed,
            created_at=from_micros(row.created_at),
            note=row.note,
            headers=headers,
        )


@dataclass(slots=True)
class PendingClaim:
    """A claim whose first statements are sent, and not answered yet.

    Attributes:
        page: the first entries; ``None``: it is known that nothing is due.
    """

    opening: Pending
    page: Pending | None
    selection: Selection
    session: str
    lease: timedelta


def ask_for_work(
    tx: Transaction,
    session: str,
    limit: int,
    functions: Collection[str],
    lease: timedelta,
    *,
    ahead: int = 0,
    reserve: int = 0,
    oldest: bool = False,
) -> PendingClaim:
    """Send the first statements of a claim of work that is due now or within ``ahead`` (µs).

    ``reserve``: how many more entries to select, which wait on their node for free slots. ``oldest``: ignore classes.
    """
    function_set = functions if isinstance(functions, AbstractSet) else frozenset(functions)
    selection = Selection(function_set, limit, ahead, reserve, oldest)
    opening = tx.send(
        "read_claim_opening", session=session, space=tx.namespace, boot=tx.epoch, moment=tx.moment,
        now=tx.instant(), until=tx.instant(ahead),
    )  # fmt: skip
    if not opening.answered:
        return PendingClaim(opening, first_page(tx, selection), selection, session, lease)
    # Without a network, the answer is here already, and tells the level.
    level = opening.rows[0].level if opening.rows else None
    page = None if level is None else first_page(tx, selection, level)
    return PendingClaim(opening, page, selection, session, lease)


def claim_entries(
    tx: Transaction, pending: PendingClaim, *, holds_jobs: bool = False, part: Callable[[int], int] = int
) -> StartedClaims | None:
    """Claim the entries that were found; ``holds_jobs``: this transaction has locked jobs already.

    ``part`` returns how many of so many selected entries this node claims.

    Safe when two nodes claim at the same instant: an entry is taken by the UPDATE that asks once more for ``pending``,
    on rows that this transaction has locked. Safe when the session is ended at the same instant: its row is locked with
    the last statements, so the reclaim sees what was claimed, or nothing is written and this raises.

    Raises:
        LeaseLost: the session is not alive.
    """
    opening_rows = pending.opening.rows
    if not opening_rows or not opening_rows[0].alive:
        raise not_alive(pending.session)
    if opening_rows[0].late:
        expire_late(tx)
    selection = pending.selection
    selection.counting = holds_jobs
    choose_entries(
        tx,
        selection,
        pending.page.rows if pending.page else (),
        [row.level for row in opening_rows if row.level is not None],
    )
    del selection.chosen[part(len(selection.chosen)) :]
    return start_runs(tx, selection, pending.session, opening_rows[0].node, pending.lease) if selection.chosen else None


def expire_late(tx: Transaction) -> None:
    """Give the verdict missed(late) to occurrences that never started and are past their expiry, if there are any.

    InnoDB also locks entries next to the range that was asked for: those of running occurrences. A transaction that
    goes on to wait for such a row would deadlock with the one that is recording its end.
    """
    expired = tx.send("lock_expired", space=tx.namespace, now=tx.now, size=MOST_EXPIRED_RUNS).rows
    tx.send_rows("close_expired", [(tx.now, row.id) for row in expired], one_each=True)


def start_runs(tx: Transaction, selection: Selection, session: str, node: str, lease: timedelta) -> StartedClaims:
    """Make pending occurrences running for ``session``, each under a new token; no attempt starts before it is due.

    Nothing is written unless the session lives; then its lease is set.
    """
    for job in {row.job_id for row in selection.chosen}:
        tx.definitions.claimed.note_definition(job, job, definition_of(selection.jobs[job]))
    prolong_session(tx, session, lease)
    last = tx.take_tokens(len(selection.chosen))
    # The end of the attempt before may have been written since this transaction began.
    now, last_place = tx.by_now, len(selection.chosen) - 1
    rows = [
        (last_place - place, max(now, row.due_at), 1 if place >= selection.limit else None, row.id)
        for place, row in enumerate(selection.chosen)
    ]
    tx.send_rows("start_runs", rows, one_each=True, session=session, node=node)
    return StartedClaims(selection, last, session, tx.now, tx.came_at)


def prolong_session(tx: Transaction, session: str, lease: timedelta) -> None:
    """Lock a session and set its lease; nothing of the transaction is committed unless the session lives."""
    session_values: dict[str, Any] = {"session": session, "space": tx.namespace}
    tx.send("lock_session", **session_values)
    tx.send(
        "renew_claiming_session", **session_values, until=tx.lease_now + lease // _MICROSECOND, now=tx.now,
        boot=tx.epoch, moment=tx.moment, expect=1, otherwise=not_alive(session),
    )  # fmt: skip
