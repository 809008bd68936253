"""The verb for many processes that name the same times: all asks in one transaction, within what limits allow."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from cronsensus.codec import write_payload
from cronsensus.errors import StoreCorrupt
from cronsensus.instants import from_micros, to_micros, within_stores
from cronsensus.model.acquiring import MOST_EARLY, VERDICTS, Ask, Intent, NotWon, refusal
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import MOST_IN_FUTURE, Claim, scheduled_key, too_early
from cronsensus.model.states import Origin
from cronsensus.stores.sql.claim_query import Selection, count_room, read_claimed
from cronsensus.stores.sql.claiming import expire, start
from cronsensus.stores.sql.dialect import AnyRow
from cronsensus.stores.sql.job_rows import specs_of
from cronsensus.stores.sql.occurrence_rows import Key, New, insert_absent, new_row
from cronsensus.stores.sql.sessions import not_alive
from cronsensus.stores.sql.transaction import Transaction
from cronsensus.stores.unreadable import READING_RAISES


def acquire_times(
    tx: Transaction, session: str, asks: Sequence[Ask], lease: timedelta
) -> list[tuple[Claim | NotWon, ...]]:
    """Win nominal times, as many as the jobs have room for; the others get their verdicts.

    Safe when two processes ask at the same instant: the jobs' rows are locked in the order of ids (or the transaction
    has the one write lock), and only then are runs counted and occurrences read. So the second one counts what the
    first has taken, and finds the verdicts that it wrote. Every way of starting a run of a job with a limit locks the
    same row. Below that lies the unique key of (job, key).

    Raises:
        LeaseLost: the session is not alive; nothing was written.
    """
    asked = tx.send(
        "opening", session=session, space=tx.namespace, boot=tx.epoch, moment=tx.moment,
        now=tx.instant(), until=tx.instant(),
    )  # fmt: skip
    locked = tx.send_in("lock_asked_jobs", "names", sorted({ask.job for ask in asks}), space=tx.namespace)
    if not asked.rows or not asked.rows[0].alive:
        raise not_alive(session)
    for ask in asks:
        for time in ask.times:
            if time - from_micros(tx.now) > MOST_IN_FUTURE:
                raise too_early(ask.job, time, from_micros(tx.now))
    if asked.rows[0].late:
        expire(tx)
    contest = Contest(tx, {row.name: row for one in locked for row in one.rows if row.retired_at is None}, asks)
    answers = [contest.answer(ask) for ask in asks]
    contest.write()
    taken = start(tx, contest.selection, session, asked.rows[0].node, lease) if contest.selection.chosen else None
    tx.commit()
    won = {(one.job, one.scheduled_for): one for one in (taken.claims() if taken else ())}
    return [
        tuple(won[ask.job, time] if one is None else one for time, one in zip(ask.times, answer, strict=True))
        for ask, answer in zip(asks, answers, strict=True)
    ]


class Contest:
    """What is known of the jobs that were asked for, and what is decided of their times."""

    def __init__(self, tx: Transaction, jobs: dict[str, AnyRow], asks: Iterable[Ask]) -> None:
        """Read it; the jobs are locked."""
        self._tx = tx
        self._jobs = jobs
        ids = {row.id: row for row in jobs.values()}
        limited = {job: row.concurrency for job, row in ids.items() if type(row.concurrency) is int}
        self._keys = sorted({scheduled_key(time) for ask in asks if ask.job in jobs for time in ask.times})
        running = tx.send_in(
            "count_running", "ids", sorted(limited), space=tx.namespace, boot=tx.epoch, moment=tx.moment
        )
        eras = tx.send_in("eras_of_jobs", "ids", sorted(ids))
        self._found: dict[Key, AnyRow | NotWon | None] = dict(self._standing())
        self._eras: dict[int, list[AnyRow]] = {}
        for row in [row for one in eras for row in one.rows]:
            self._eras.setdefault(row.job_id, []).append(row)
        self.selection = Selection(frozenset(), sum(len(ask.times) for ask in asks), jobs=ids)
        """What is won."""
        count_room(tx, self.selection, limited, [row for one in running for row in one.rows])
        self._won: list[Key] = []
        self._new: list[New] = []
        self._closed: dict[Key, NotWon] = {}
        self._passed: dict[int, int] = {}

    def answer(self, ask: Ask) -> tuple[NotWon | None, ...]:
        """Decide the times of an ask; ``None``: it is won."""
        row = self._jobs.get(ask.job)
        if row is None:
            return (NotWon.UNKNOWN,) * len(ask.times)
        spec = self._spec(row)
        if spec is None:
            return (NotWon.LOST,) * len(ask.times)
        room = self.selection.room.get(row.id, 1) > 0
        return tuple(self._decide(row, spec, time, ask.intent, room=room) for time in ask.times)

    def _spec(self, row: AnyRow) -> JobSpec | None:
        """Return a definition; ``None``: it cannot be read, which is told, so that the other jobs still run."""
        if row.id not in self.selection.specs:
            try:
                self.selection.specs.update(specs_of(self._tx, {row.id: row}))
            except StoreCorrupt as error:
                self._tx.unreadable.tell(f"times of job {row.id} are not run, and the job", error)
                return None
        return self.selection.specs[row.id]

    def _decide(self, row: AnyRow, spec: JobSpec, time: datetime, intent: Intent, *, room: bool) -> NotWon | None:
        if time - from_micros(self._tx.now) > MOST_EARLY:
            return NotWon.EARLY
        at, name = to_micros(time), (row.id, scheduled_key(time))
        if (row.horizon is not None and at <= row.horizon) or not self._is_kept_elsewhere(row.id, at):
            return NotWon.LOST
        found = self._found.get(name)
        if found is not None:
            takes = not isinstance(found, NotWon) and intent == "run" and room and self._may_start(found)
            if not takes:
                return NotWon.LOST
        else:
            refused = refusal(intent, paused=row.paused_at is not None, room=room)
            if refused is NotWon.LEFT:
                return refused
            self._create(row, spec, name[1], at)
            if refused is not None:
                self._closed[name] = refused
                self._found[name] = refused
                return refused
        self._found[name] = NotWon.LOST  # for those who ask for it again
        self._won.append(name)
        if row.id in self.selection.room:
            self.selection.room[row.id] -= 1
        return None

    def _may_start(self, found: AnyRow) -> bool:
        if found.state != "pending":
            return False
        try:
            read_claimed(found)
        except READING_RAISES as error:
            self._tx.unreadable.tell(f"run {found.id} of job {found.job_id} waits, cannot be run, and", error)
            return False
        return bool(found.due_at <= self._tx.now)

    def _is_kept_elsewhere(self, job: int, at: int) -> bool:
        """Whether another program keeps the job's time then: no trigger ruled; before it was defined, as at first."""
        eras = self._eras.get(job, [])
        earlier = [era for era in eras if era.since < at]
        return bool(eras) and not (earlier or eras[:1])[-1].ruled

    def _create(self, row: AnyRow, spec: JobSpec, key: str, at: int) -> None:
        payload = write_payload(spec.args, spec.kwargs, what="arguments")
        grace = spec.policies.grace
        self._new.append(
            new_row(
                self._tx, row.id, spec, key, Origin.SCHEDULE, due_at=self._tx.now, payload=payload, scheduled_for=at,
                expires_at=None if grace is None else within_stores(at + grace // timedelta(microseconds=1)),
            )
        )  # fmt: skip
        if spec.trigger is None and (row.next_due is None or row.next_due > at):
            self._passed[row.id] = max(at, self._passed.get(row.id, at))

    def write(self) -> None:
        """Create what is new, give verdicts, and let ``selection`` have the rows that are to be started."""
        tx = self._tx
        insert_absent(tx, self._new)
        rows = self._standing() if self._new or self._won else {}
        tx.send_rows(
            "close_asked",
            [(tx.now, *map(str, VERDICTS[refused]), rows[name].id) for name, refused in self._closed.items()],
            one_each=True,
        )
        tx.send_rows("pass_watermarks", [(decided, job) for job, decided in self._passed.items()])
        self.selection.chosen = [rows[name] for name in self._won]
        self.selection.payloads = {row.id: read_claimed(row) for row in self.selection.chosen}

    def _standing(self) -> dict[Key, AnyRow]:
        """Lock and read what stands under the keys."""
        ids = sorted(row.id for row in self._jobs.values())
        if not ids:
            return {}
        asked = self._tx.send_in("lock_asked", "keys", self._keys, ids=ids)
        return {(row.job_id, row.key): row for one in asked for row in one.rows}
