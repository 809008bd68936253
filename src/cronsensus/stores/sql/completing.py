"""Record that an attempt succeeded, in the transaction that holds its effects."""

from __future__ import annotations

from collections.abc import Sequence

from cronsensus.errors import LeaseLost
from cronsensus.model.ends import End, Final
from cronsensus.model.occurrence import Claim, Note
from cronsensus.model.states import State
from cronsensus.stores.sql import finishing
from cronsensus.stores.sql.dialect import AnyRow
from cronsensus.stores.sql.transaction import Transaction


def require_current(tx: Transaction, claim: Claim) -> None:
    """Raise unless the run is current. Locks nothing.

    The run's code may hold the transaction for long, and a takeover, a request to cancel or a note of progress must not
    wait for it. A takeover after this check is found by ``complete_run``.
    """
    rows = tx.send("read_run", occurrence=claim.id, space=tx.namespace).rows
    _require_current(claim, rows[0] if rows else None)


def complete_run(tx: Transaction, claim: Claim, result: str | None, notes: Sequence[Note], *, after: int = 0) -> None:
    """Record the notes of the run, with log lines numbered after ``after``, and that it succeeded.

    Safe when a takeover happens at the same instant: the row is locked before token and state are compared, until the
    caller's commit; the second of the two finds the state of the first. The state is compared here too, because a
    repeated end of a run is answered with "accepted, as before": a second block of the same run must not commit its
    effects once more.
    """
    runs = finishing.LockedRuns(tx, [claim.id], notes=notes)
    locked_rows = runs.read_rows()
    _require_current(claim, locked_rows.get(claim.id))
    finishing.keep_notes(tx, notes, locked_rows, runs.last_lines(), after=after)
    finishing.Ends(tx, [End.of(claim, Final(State.SUCCEEDED, result=result))], locked_rows)
    tx.flush()


def _require_current(claim: Claim, row: AnyRow | None) -> None:
    # The session's id is compared too: it is random, so no row of another database is taken for this one.
    if row is None or row.session != claim.session or row.token != claim.token or row.state != State.RUNNING:
        now = "not to be found in this database" if row is None else f"{row.state} under token {row.token}"
        raise LeaseLost(
            f"attempt {claim.attempt} of {claim.job!r} (occurrence {claim.id}, token {claim.token}) is no longer "
            f"current: it is {now}. Its transaction is rolled back; stop, and write nothing more"
        )
