"""The verb ``acquire``: claim named occurrences, for a program that keeps the time itself. One transaction."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from cronsensus.model.acquiring import VERDICTS, Ask, AskNamed, NotWon
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import MOST_IN_FUTURE, Claim, too_early, too_old
from cronsensus.stores.sql.claiming import expire_late, prolong_session
from cronsensus.stores.sql.competing import Contest, Win, is_pruned
from cronsensus.stores.sql.job_rows import definition_of
from cronsensus.stores.sql.occurrence_rows import insert_absent
from cronsensus.stores.sql.pruning import delete_occurrences
from cronsensus.stores.sql.sending import Pending
from cronsensus.stores.sql.sessions import not_alive
from cronsensus.stores.sql.transaction import Transaction, pieces
from cronsensus.timing.instants import from_micros


def acquire_occurrences(
    tx: Transaction, session: str, asks: Sequence[Ask | AskNamed], lease: timedelta
) -> list[tuple[Claim | NotWon, ...]]:
    """Claim occurrences, creating those that do not exist; nominal times that are not run get their verdicts.

    The first trip locks the jobs and the occurrences of the named keys. If times compete, a second trip counts runs and
    locks the occurrences of those times. The last one writes, locks the session, and ends the transaction.

    Safe when two processes acquire at the same instant: the jobs' rows are locked in the order of ids (or the
    transaction has the database's only write lock), and only then are runs counted and occurrences read. So the second
    counts what the first has claimed, and finds what it wrote. Every way of starting a run of a job with a limit locks
    the same row. Below that lies the unique key of (job, key). The occurrence of a key is locked too, and the UPDATE
    claims it only while it is pending.

    Raises:
        LeaseLost: the session is not alive; nothing was written.
    """
    locked = tx.send_in(
        "lock_asked_jobs", "names", sorted({ask.job for ask in asks}), space=tx.namespace, session=session,
        boot=tx.epoch, moment=tx.moment, now=tx.instant(),
    )  # fmt: skip
    contest = Contest(tx, asks)
    jobs = [row for result in locked for row in result.rows]
    if not jobs:
        alive = tx.send("session_alive", session=session, space=tx.namespace, boot=tx.epoch, moment=tx.moment).rows
    if (jobs and jobs[0].holder is None) or (not jobs and not alive):
        raise not_alive(session)
    for ask in asks:
        for time in ask.times:
            if time - from_micros(tx.now) > MOST_IN_FUTURE:
                raise too_early(ask.job, time, from_micros(tx.now))
    has_late = any(row.late for row in jobs)
    if has_late:
        expire_late(tx)
    contest.read_contest({row.name: row for row in jobs if row.retired_at is None}, again=has_late)
    answers = [contest.answer_ask(ask) for ask in asks]
    write_contest(tx, contest)
    claims = iter(start_won(tx, contest, session, jobs[0].holder, lease) if contest.won else ())
    return [tuple(next(claims) if result is None else result for result in answer) for answer in answers]


def write_contest(tx: Transaction, contest: Contest) -> None:
    """Delete occurrences past their job's ``keep``, create new ones, and write verdicts."""
    if contest.over:
        delete_occurrences(tx, contest.over)
    insert_absent(tx, contest.new)
    tx.send_rows(
        "close_asked",
        [(tx.now, *map(str, VERDICTS[refused]), *name) for name, refused in contest.closed.items()],
        one_each=True,
    )
    tx.send_rows("pass_watermarks", [(decided, job) for job, decided in contest.passed.items()])


def start_won(tx: Transaction, contest: Contest, session: str, node: str, lease: timedelta) -> list[Claim]:
    """Start the won occurrences for ``session``, each under a new token, and commit; return the claims in order.

    Nothing is written unless the session is alive; then its lease is set.
    """
    won = contest.won
    for job in {win.job for win in won}:
        tx.definitions.claimed.note_definition(job, job, definition_of(contest.jobs[job]))
    prolong_session(tx, session, lease)
    answers = _take_tokens(tx, won)
    # The end of the previous attempt may have been written since this transaction began.
    now, last_place = tx.by_now, len(won) - 1
    tx.send_rows(
        "start_asked",
        [
            (last_place - place, max(now, win.due_at), win.due_at, win.fingerprint, win.job, win.key)
            for place, win in enumerate(won)
        ],
        one_each=True, session=session, node=node,
    )  # fmt: skip
    tx.commit()
    ids = {(win.job, win.key): win.row.id for win in won if win.row is not None}
    if len(ids) < len(won):
        ids |= {(row.job_id, row.key): row.id for answer in answers for row in answer.rows}
    first, claimed_at = answers[0].row.last - last_place, from_micros(tx.now)
    return [
        _make_claim(
            win, ids[win.job, win.key], contest.specs[win.job], first + place, session=session, claimed_at=claimed_at
        )
        for place, win in enumerate(won)
    ]


def _take_tokens(tx: Transaction, won: Sequence[Win]) -> list[Pending]:
    """Take a token for each; return the reads of the last token and of the ids of new occurrences.

    Jobs in which the same keys were created share a read, as with a nominal time of fifty jobs.
    """
    created: dict[int, list[str]] = {}
    for win in won:
        if win.row is None:
            created.setdefault(win.job, []).append(win.key)
    if not created:
        return [tx.take_tokens(len(won))]
    jobs: dict[tuple[str, ...], list[int]] = {}
    for job, keys in created.items():
        jobs.setdefault(tuple(sorted(keys)), []).append(job)
    id_queries = [(ids, list(part)) for keys, ids in jobs.items() for part in pieces(keys, tx.dialect.most_parameters)]
    (ids, keys_of), *more_queries = id_queries
    last = tx.take_tokens(len(won), read_by="ids_of_asked", ids=ids, keys=keys_of)
    return [last, *(tx.send("ids_of_asked", ids=ids, keys=keys) for ids, keys in more_queries)]


def _make_claim(win: Win, number: int, spec: JobSpec, token: int, *, session: str, claimed_at: datetime) -> Claim:
    row, (args, kwargs, headers) = win.row, win.payload
    return Claim(
        id=number,
        spec=spec,
        key=win.key,
        origin=win.origin,
        scheduled_for=win.scheduled_for,
        due_at=from_micros(win.due_at),
        attempt=1 if row is None else row.attempt + 1,
        token=token,
        session=session,
        args=args,
        kwargs=kwargs,
        claimed_at=claimed_at,
        crashes=0 if row is None else row.crashes,
        failures=0 if row is None else row.failures,
        fingerprint=win.fingerprint if win.by_name else None,
        parent=None if row is None else row.parent,
        listed=None if row is None else row.listed,
        created_at=claimed_at if row is None else from_micros(row.created_at),
        note=None if row is None else row.note,
        headers=headers,
    )


def refuse_pruned(job: str, horizon: int | None, scheduled_for: datetime) -> None:
    """Raise if the occurrence of a nominal time may have been pruned."""
    if is_pruned(horizon, scheduled_for) and horizon is not None:
        raise too_old(job, scheduled_for, from_micros(horizon))
