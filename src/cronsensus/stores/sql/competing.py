"""Decide the requests of ``acquire``, from rows that were read under the locks of their jobs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cronsensus.errors import StoreCorrupt
from cronsensus.model.acquiring import MOST_EARLY, Ask, AskNamed, Intent, NotWon, refusal
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import scheduled_key
from cronsensus.model.states import Origin
from cronsensus.payload.codec import read_call, write_payload
from cronsensus.stores.sql.claim_query import ORIGINS, Payload, Selection, count_runs_left, read_claimed
from cronsensus.stores.sql.dialect import AnyRow
from cronsensus.stores.sql.job_rows import spec_of
from cronsensus.stores.sql.occurrence_rows import Key, New, instant, new_row
from cronsensus.stores.sql.sending import Pending
from cronsensus.stores.sql.transaction import Transaction
from cronsensus.stores.unreadable import READING_RAISES, read_one
from cronsensus.timing.instants import from_micros, to_micros, within_stores

_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Win:
    """An occurrence that is to be started.

    Attributes:
        row: the existing row; ``None``: it is new.
        fingerprint: the fingerprint to store.
        by_name: it was named by the caller, so the claim carries the fingerprint.
    """

    job: int
    key: str
    origin: Origin
    scheduled_for: datetime | None
    due_at: int
    payload: Payload
    row: AnyRow | None
    fingerprint: str | None
    by_name: bool


class Contest:
    """The rows of the jobs and keys in the asks, and the decisions about them."""

    def __init__(self, tx: Transaction, asks: Sequence[Ask | AskNamed]) -> None:
        """Send the reads of the named keys; the statement before locks the jobs."""
        self._tx = tx
        self._asks = asks
        self._keys: dict[str, set[str]] = {}
        """The named keys, by the names of their jobs."""
        first: dict[str, int] = {}
        for ask in asks:
            if isinstance(ask, AskNamed):
                self._keys.setdefault(ask.job, set()).add(ask.named.key)
                for time in ask.times:
                    first[ask.job] = min(to_micros(time), first.get(ask.job, to_micros(time)))
        self._named = self._lock_named()
        self._named_eras = [tx.send("eras_from", space=tx.namespace, job=job, time=at) for job, at in first.items()]
        self.won: list[Win] = []
        """The occurrences to start, in the order of the asks."""
        self.new: list[New] = []
        self.over: list[int] = []
        """Occurrences past their job's ``keep``, to be deleted."""
        self.closed: dict[Key, NotWon] = {}
        """New occurrences that get a verdict."""
        self.passed: dict[int, int] = {}
        """The new watermarks of jobs."""
        self.specs: dict[int, JobSpec] = {}
        self._payloads: dict[int, str | None] = {}

    def read_contest(self, jobs: dict[str, AnyRow], *, again: bool) -> None:
        """Read the rows; ``jobs`` are locked, and not retired. ``again``: named rows may have changed meanwhile."""
        self._by_name = jobs
        self.jobs = {row.id: row for row in jobs.values()}
        named_answers = self._lock_named() if again else self._named
        self._rows_by_key: dict[Key, AnyRow | NotWon | None] = {}
        self._eras = _by_job(self._named_eras)
        self._runs_left: dict[int, int] = {}
        timed = [ask for ask in self._asks if isinstance(ask, Ask) and ask.job in jobs]
        if timed:
            self._read_timed({jobs[ask.job].id: jobs[ask.job] for ask in timed}, timed)
        self._rows_by_key |= {(row.job_id, row.key): row for row in _rows_of(named_answers)}

    def _lock_named(self) -> list[Pending]:
        # Job by job: for pairs in one list, SQLite would read the whole table.
        return [
            answer
            for job, keys in sorted(self._keys.items())
            for answer in self._tx.send_in("lock_named", "keys", sorted(keys), space=self._tx.namespace, job=job)
        ]

    def _read_timed(self, jobs: dict[int, AnyRow], asks: Iterable[Ask]) -> None:
        """Count runs, and read the occurrences of the requested times."""
        tx, ids = self._tx, sorted(jobs)
        limited = {job: row.concurrency for job, row in jobs.items() if type(row.concurrency) is int}
        running = tx.send_in(
            "count_running", "ids", sorted(limited), space=tx.namespace, boot=tx.epoch, moment=tx.moment
        )
        eras = tx.send_in("eras_of_jobs", "ids", ids)
        keys = sorted({scheduled_key(time) for ask in asks for time in ask.times})
        key_answers = tx.send_in("lock_asked", "keys", keys, ids=ids)
        selection = Selection(frozenset(), 0, jobs=jobs)
        count_runs_left(tx, selection, limited, _rows_of(running))
        self._runs_left = selection.runs_left
        self._rows_by_key |= {(row.job_id, row.key): row for row in _rows_of(key_answers)}
        self._eras |= _by_job(eras)

    # --- decisions
    # -----------------------------------------------------------------------------------------------------

    def answer_ask(self, ask: Ask | AskNamed) -> tuple[NotWon | None, ...]:
        """Decide an ask; ``None``: it is won, and is the last in ``won``."""
        row = self._by_name.get(ask.job)
        if isinstance(ask, AskNamed):
            return (NotWon.UNKNOWN if row is None else self._decide_named(row, ask),)
        if row is None:
            return (NotWon.UNKNOWN,) * len(ask.times)
        spec = self._read_spec(row)
        if spec is None:
            return (NotWon.LOST,) * len(ask.times)
        below_limit = self._runs_left.get(row.id, 1) > 0
        return tuple(self._decide_time(row, spec, time, ask.intent, below_limit=below_limit) for time in ask.times)

    def _decide_named(self, row: AnyRow, ask: AskNamed) -> NotWon | None:
        named, tx = ask.named, self._tx
        place, nominal = (row.id, named.key), None if named.scheduled_for is None else to_micros(named.scheduled_for)
        if named.scheduled_for is not None and is_pruned(row.horizon, named.scheduled_for):
            return NotWon.PRUNED
        if nominal is not None and not self._is_named_elsewhere(row.id, nominal):
            return NotWon.LOST
        spec = self._read_spec(row)
        if spec is None:
            return NotWon.LOST
        row_of_key, fingerprint = self._rows_by_key.get(place), ask.fingerprint
        if (
            row_of_key is not None
            and nominal is None
            and not isinstance(row_of_key, NotWon)
            and _is_past_keep(row_of_key, spec, tx.now)
        ):
            self.over.append(row_of_key.id)
            row_of_key = None
        if row_of_key is None:
            if nominal is not None and row.paused_at is not None:
                return NotWon.LOST
            self._create_occurrence(row, spec, named.key, nominal, fingerprint=fingerprint)
            return None
        if isinstance(row_of_key, NotWon) or row_of_key.state != "pending":
            return NotWon.LOST
        if row_of_key.fingerprint is not None and row_of_key.attempt > 0:
            fingerprint = row_of_key.fingerprint
        payload = self._read_payload(row_of_key)
        if payload is None:
            return NotWon.LOST
        self._win_existing(row_of_key, payload, min(row_of_key.due_at, tx.now), fingerprint, by_name=True)
        return None

    def _decide_time(
        self, row: AnyRow, spec: JobSpec, time: datetime, intent: Intent, *, below_limit: bool
    ) -> NotWon | None:
        if time - from_micros(self._tx.now) > MOST_EARLY:
            return NotWon.EARLY
        nominal, place = to_micros(time), (row.id, scheduled_key(time))
        if is_pruned(row.horizon, time) or not self._is_named_elsewhere(row.id, nominal):
            return NotWon.LOST
        row_of_key = self._rows_by_key.get(place)
        if row_of_key is not None:
            payload = None
            if not isinstance(row_of_key, NotWon) and row_of_key.state == "pending" and intent == "run" and below_limit:
                payload = self._read_payload(row_of_key)
            if payload is None or isinstance(row_of_key, NotWon) or row_of_key.due_at > self._tx.now:
                return NotWon.LOST
            self._win_existing(row_of_key, payload, row_of_key.due_at, row_of_key.fingerprint, by_name=False)
            return None
        refused = refusal(intent, paused=row.paused_at is not None, below_limit=below_limit)
        if refused is NotWon.LEFT:
            return refused
        grace = spec.policies.grace
        expires_at = None if grace is None else within_stores(nominal + grace // _MICROSECOND)
        self._create_occurrence(row, spec, place[1], nominal, expires_at=expires_at, refused=refused)
        return refused

    def _read_spec(self, row: AnyRow) -> JobSpec | None:
        """Return a definition; ``None``: it cannot be read, which is logged, so that the other jobs still run.

        Raises:
            StoreCorrupt: it cannot be read, and this is the only ask.
        """
        if row.id not in self.specs:
            try:
                self.specs[row.id] = spec_of(self._tx, row)
            except StoreCorrupt as error:
                if self._is_alone:
                    raise
                self._tx.unreadable.log_unreadable(f"what is asked for of job {row.id} is not run, and the job", error)
                return None
        return self.specs[row.id]

    def _read_payload(self, row: AnyRow) -> Payload | None:
        """Return the arguments of a pending occurrence; ``None``: they cannot be read, as in ``_read_spec``."""
        if self._is_alone:
            payload: Payload = read_one(row, read_claimed, f"run {row.id} of job {row.job_id}")
            return payload
        try:
            return read_claimed(row)
        except READING_RAISES as error:
            self._tx.unreadable.log_unreadable(f"run {row.id} of job {row.job_id} waits, cannot be run, and", error)
            return None

    @property
    def _is_alone(self) -> bool:
        """Whether a single occurrence is requested by name: then its caller gets the error."""
        return len(self._asks) == 1 and isinstance(self._asks[0], AskNamed)

    def _is_named_elsewhere(self, job: int, nominal: int) -> bool:
        """Whether another program named the job's times at ``at``, because its era had no trigger.

        A time before the first era counts as in that.
        """
        eras = self._eras.get(job, [])
        earlier = [era for era in eras if era.since < nominal]
        return bool(eras) and not (earlier or eras[:1])[-1].ruled

    # --- writing
    # -------------------------------------------------------------------------------------------------------

    def _create_occurrence(
        self,
        row: AnyRow,
        spec: JobSpec,
        key: str,
        nominal: int | None,
        *,
        expires_at: int | None = None,
        refused: NotWon | None = None,
        fingerprint: str | None = None,
    ) -> None:
        """Create an occurrence, which is won unless it is ``refused``."""
        tx, origin = self._tx, Origin.ENQUEUE if nominal is None else Origin.SCHEDULE
        if row.id not in self._payloads:
            self._payloads[row.id] = write_payload(spec.args, spec.kwargs, what="arguments")
        payload = self._payloads[row.id]
        self.new.append(
            new_row(
                tx,
                row.id,
                spec,
                key,
                origin,
                due_at=tx.now,
                payload=payload,
                scheduled_for=nominal,
                expires_at=expires_at,
            )
        )
        if nominal is not None and spec.trigger is None and (row.next_due is None or row.next_due > nominal):
            self.passed[row.id] = max(nominal, self.passed.get(row.id, nominal))
        if refused is not None:
            self._rows_by_key[row.id, key] = self.closed[row.id, key] = refused
            return
        self._note_win(
            Win(row.id, key, origin, instant(nominal), tx.now, read_call(payload), None, fingerprint, by_name=True)
        )

    def _win_existing(
        self, row: AnyRow, payload: Payload, due_at: int, fingerprint: str | None, *, by_name: bool
    ) -> None:
        origin, scheduled_for = ORIGINS[row.origin], instant(row.scheduled_for)
        self._note_win(Win(row.job_id, row.key, origin, scheduled_for, due_at, payload, row, fingerprint, by_name))

    def _note_win(self, win: Win) -> None:
        self.won.append(win)
        self._rows_by_key[win.job, win.key] = NotWon.LOST  # for later asks of the same occurrence
        if win.job in self._runs_left:
            self._runs_left[win.job] -= 1


def is_pruned(horizon: int | None, scheduled_for: datetime) -> bool:
    """Whether the occurrence of a nominal time may have been pruned."""
    return horizon is not None and to_micros(scheduled_for) <= horizon


def _is_past_keep(row: AnyRow, spec: JobSpec, now: int) -> bool:
    """Whether an occurrence has ended, and its job's ``keep`` has passed since."""
    return row.finished_at is not None and row.finished_at < now - spec.policies.keep // _MICROSECOND


def _by_job(answers: Iterable[Pending]) -> dict[int, list[AnyRow]]:
    rows_by_job: dict[int, list[AnyRow]] = {}
    for row in _rows_of(answers):
        rows_by_job.setdefault(row.job_id, []).append(row)
    return rows_by_job


def _rows_of(answers: Iterable[Pending]) -> list[AnyRow]:
    return [row for answer in answers for row in answer.rows]
