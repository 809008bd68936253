"""Say that an attempt succeeded in the very transaction that holds its effects."""

from __future__ import annotations

from collections.abc import Sequence

from cronsensus.errors import LeaseLost
from cronsensus.model.occurrence import Claim, Note, Outcome
from cronsensus.model.states import State
from cronsensus.stores.sql import finishing
from cronsensus.stores.sql.dialect import AnyRow
from cronsensus.stores.sql.transaction import Transaction


def require_current(tx: Transaction, claim: Claim) -> None:
    """Raise unless the run is current now, without holding anybody up.

    No lock on purpose: the run's code may hold the transaction for long, and a takeover, a request to cancel or a
    note of progress must not wait for it. What is taken over after this look is found by ``complete``.
    """
    rows = tx.send("read_run", occurrence=claim.id, space=tx.namespace).rows
    _require(claim, rows[0] if rows else None)


def complete(tx: Transaction, claim: Claim, result: str | None, notes: Sequence[Note], *, after: int = 0) -> None:
    """Write what was noted of the run, after the log line of that number, and that it succeeded.

    Safe when a takeover happens at the same instant: the row is locked before token and state are compared, and stays
    so until the caller's commit; whoever comes second finds the other's state. Compared here too, since the end of a
    run answers "yes, as before" when it is said a second time: a second block of the same run must not commit its
    effects once more.
    """
    runs = finishing.LockedRuns(tx, [claim.id], notes=notes)
    found = runs.read()
    _require(claim, found.get(claim.id))
    finishing.keep(tx, notes, found, runs.last_lines(), after=after)
    outcome = Outcome(id=claim.id, token=claim.token, session=claim.session, state=State.SUCCEEDED, result=result)
    finishing.Ends(tx, [outcome], found)
    tx.flush()


def _require(claim: Claim, row: AnyRow | None) -> None:
    # The session's id is compared too: it is random, so no row of another database is taken for this one.
    if row is None or row.session != claim.session or row.token != claim.token or row.state != State.RUNNING:
        now = "not to be found in this database" if row is None else f"{row.state} under token {row.token}"
        raise LeaseLost(
            f"attempt {claim.attempt} of {claim.job!r} (occurrence {claim.id}, token {claim.token}) is no longer "
            f"current: it is {now}. Its transaction is rolled back; stop, and write nothing more"
        )
