"""The SQL store: each verb in one transaction, what it does in the modules named after the groups."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from datetime import datetime, timedelta
from typing import Any

from cronsensus.errors import SchemaMismatch
from cronsensus.instants import from_micros
from cronsensus.model.job import Era, JobSpec, JobView, Stretch
from cronsensus.model.ledger import Counts, Identity, LedgerRange, Loss, TrailEntry
from cronsensus.model.occurrence import (
    Claim,
    Cut,
    Enqueued,
    Item,
    LogLine,
    Note,
    Occurrence,
    OccurrenceFilter,
    Outcome,
    RunView,
    Settled,
    Takeover,
    check_forgettable,
    name_of,
)
from cronsensus.model.plan import Plan
from cronsensus.model.session import LockGrant, LockView, Renewal, SessionSpec, SessionView, check_lease, check_lock
from cronsensus.model.states import State
from cronsensus.stores.base import AT_ONCE, PutResult, Share, View, check_ahead
from cronsensus.stores.sql import (
    acquiring,
    borrowing,
    claiming,
    completing,
    defining,
    finishing,
    firing,
    locks,
    looking,
    migrations,
    operating,
    pausing,
    pruning,
    pruning_jobs,
    reading,
    reading_jobs,
    retiring,
    sessions,
)
from cronsensus.stores.sql.dialect import Reading, TryAgain
from cronsensus.stores.sql.handle import SqlHandle, repeated
from cronsensus.stores.sql.trail import record
from cronsensus.stores.sql.transaction import Transaction
from cronsensus.stores.transacting import RunTransaction
from cronsensus.stores.unreadable import is_of_values


class SqlStore(SqlHandle):
    """The verbs."""

    # --- jobs ---------------------------------------------------------------------------------------------------------

    @repeated
    def put_jobs(
        self,
        specs: Sequence[JobSpec],
        *,
        release: str,
        complete: bool = False,
        by: str = "",
        retire_after: timedelta = AT_ONCE,
    ) -> PutResult:
        """Define jobs; first look without the write lock whether there is anything to write at all."""
        declared = defining.declare(specs, release=release, complete=complete, by=by, retire_after=retire_after)
        with self._reading() as tx:
            nothing_to_do = defining.already_so(tx, declared)
        if nothing_to_do is not None:
            return nothing_to_do
        defining.prepare(declared, from_micros(tx.now))
        with self._writing() as tx:
            return defining.put(tx, declared)

    @repeated
    def retire(self, job: str, *, by: str, why: str) -> bool:
        """Stop a job for good."""
        with self._writing() as tx:
            return retiring.retire(tx, job, by=by, why=why)

    @repeated
    def pause(self, job: str, *, by: str, why: str) -> bool:
        """Stop firing a job."""
        with self._writing() as tx:
            return pausing.pause(tx, job, by=by, why=why)

    @repeated
    def resume(self, job: str, *, by: str, why: str = "") -> bool:
        """End a pause."""
        with self._writing() as tx:
            return pausing.resume(tx, job, by=by, why=why)

    # --- the scheduling round -----------------------------------------------------------------------------------------

    @repeated
    def _look(self, limit: int, share: Share | None, ahead: timedelta) -> View:
        """Look, in one statement when no job is due."""
        with self._glancing() as tx:
            return looking.look(tx, limit, share, ahead)

    @repeated
    def fire(self, plans: Sequence[Plan]) -> list[bool]:
        """Carry plans out."""
        return self._each(plans, self._fire, lambda plan: f"job {plan.job!r} cannot be fired", lambda _: False)

    def _fire(self, plans: Sequence[Plan]) -> list[bool]:
        with self._writing() as tx:
            return firing.fire(tx, plans)

    @repeated
    def claim(self, session: str, limit: int, functions: Collection[str], *, lease: timedelta) -> list[Claim]:
        """Take due pending occurrences."""
        with self._writing() as tx:
            taken = claiming.claim(tx, session, limit, functions, lease)
        return [] if taken is None else taken.claims()

    @repeated
    def fire_and_claim(
        self,
        plans: Sequence[Plan],
        session: str,
        limit: int,
        functions: Collection[str],
        *,
        lease: timedelta,
        ahead: timedelta = AT_ONCE,
    ) -> tuple[list[bool], list[Claim]]:
        """Carry plans out and take work, in one transaction."""
        further = check_ahead(ahead)
        if not plans:
            return [], []
        try:
            with self._writing() as tx:
                fired = firing.fire(tx, plans, further)
                taken = claiming.claim(tx, session, limit, functions, lease, ahead=further) if any(fired) else None
        except Exception as error:
            if not is_of_values(error):
                raise
            return self.fire(plans), []
        return fired, [] if taken is None else taken.claims()

    @repeated
    def acquire(
        self,
        session: str,
        job: str,
        *,
        scheduled_for: datetime | None = None,
        key: str | None = None,
        lease: timedelta,
        fingerprint: str | None = None,
    ) -> Claim | None:
        """Win one named occurrence now."""
        wanted = name_of(scheduled_for, key)
        with self._writing() as tx:
            return acquiring.acquire(tx, session, job, wanted, lease, fingerprint=fingerprint)

    @repeated
    def finish(self, outcomes: Sequence[Outcome]) -> list[Settled]:
        """Record how attempts ended."""
        finishing.refuse_impossible(outcomes)
        return self._each(
            outcomes,
            self._finish,
            lambda one: f"the end of run {one.id} cannot be recorded",
            lambda one: Settled(one.id, one.token, accepted=False, state=None),
        )

    def _finish(self, outcomes: Sequence[Outcome]) -> list[Settled]:
        with self._writing() as tx:
            return finishing.finish(tx, outcomes)

    @repeated
    def release(self, claims: Sequence[Claim], *, cut: Cut | None = None) -> list[bool]:
        """Give claims back."""

        def release(some: Sequence[Claim]) -> list[bool]:
            with self._writing() as tx:
                return finishing.release(tx, some, cut)

        return self._each(claims, release, lambda one: f"run {one.id} cannot be given back", lambda _: False)

    @repeated
    def note(self, notes: Sequence[Note]) -> list[bool]:
        """Record progress and log lines."""
        return self._each(notes, self._note, lambda one: f"what run {one.id} says cannot be kept", lambda _: False)

    def _note(self, notes: Sequence[Note]) -> list[bool]:
        with self._writing() as tx:
            return finishing.note(tx, notes)

    def transaction(self, claim: Claim) -> AbstractContextManager[RunTransaction]:
        """Lend a connection (SQLAlchemy's ``Connection``) for one transaction."""
        return self._lending.transaction(claim)

    def complete_in(self, connection: Any, claim: Claim, result: str | None = None, notes: Sequence[Note] = ()) -> None:
        """Write that an attempt succeeded, on a connection of the caller's."""
        with self._reading() as own:
            engine, reading = own.connection.engine, Reading(own.now, own.lease_now, own.epoch)
            # Theirs may read what stood when it began (repeatable read), and lines were written since. By now nothing
            # of the run is on its way to the store any more.
            after = finishing.last_line(own, claim.id) if notes else 0
        dialect = borrowing.Borrowed(self._dialect, reading)
        try:
            with self._errors_explained(), borrowing.borrowed(connection, engine) as theirs:
                tx = Transaction(theirs, dialect, self.namespace, self._definitions)
                completing.complete(tx, claim, result, notes, after=after)
        except SchemaMismatch as error:
            raise borrowing.elsewhere(self._where) from error
        except TryAgain as error:
            raise borrowing.overtaken(error) from error

    # --- sessions -----------------------------------------------------------------------------------------------------

    @repeated
    def open_session(self, session: SessionSpec, *, lease: timedelta) -> datetime:
        """Begin a session."""
        with self._writing() as tx:
            return sessions.open_session(tx, session, lease)

    @repeated
    def renew(self, session: str, *, lease: timedelta, idle_lease: timedelta | None = None) -> Renewal:
        """Set the lease, if it has not run out."""
        with self._writing() as tx:
            return sessions.renew(tx, session, lease, lease if idle_lease is None else idle_lease)

    @repeated
    def close_session(self, session: str) -> list[Takeover]:
        """End a session in order."""

        def close(*, careful: bool) -> list[Takeover]:
            with self._writing() as tx:
                return sessions.close_session(tx, session, careful=careful)

        return self._carefully(close, f"session {session!r} cannot be ended")

    def reclaim(self, presumed_dead: Collection[str] = ()) -> list[Takeover]:
        """End dead sessions, each in a transaction of its own; look for them without the write lock."""
        with self._reading() as tx:
            dead = sessions.find_dead(tx, presumed_dead)
        taken: list[Takeover] = []
        for session in dead:
            taken += self._reclaim(session, presumed=session in presumed_dead)
        return taken

    @repeated
    def _reclaim(self, session: str, *, presumed: bool) -> list[Takeover]:
        def reclaim(*, careful: bool) -> list[Takeover]:
            with self._writing() as tx:
                return sessions.reclaim(tx, session, presumed=presumed, careful=careful, on_held_up=self._held_up.seen)

        return self._carefully(reclaim, f"session {session!r} cannot be ended")

    @repeated
    def drain(self, session: str, *, by: str, why: str) -> bool:
        """Ask a node to take nothing new."""
        with self._writing() as tx:
            return sessions.drain(tx, session, by=by, why=why)

    # --- locks --------------------------------------------------------------------------------------------------------

    @repeated
    def lock(
        self, name: str, holder: str, *, ttl: timedelta, session: str | None = None, limit: int = 1
    ) -> LockGrant | None:
        """Take a lock; one that is plainly held is seen without the write lock."""
        check_lock(name, holder, ttl)
        wanted = locks.Wanted(name=name, holder=holder, ttl=ttl, session=session, limit=limit)
        with self._reading() as tx:
            if locks.is_taken(tx, wanted):
                return None
        with self._writing() as tx:
            return locks.lock(tx, wanted)

    @repeated
    def extend(self, grant: LockGrant, *, ttl: timedelta) -> bool:
        """Extend a lock that is still held."""
        check_lease(ttl)
        with self._writing() as tx:
            return locks.extend(tx, grant, ttl)

    @repeated
    def unlock(self, grant: LockGrant) -> bool:
        """Free a lock that is still held; once it is free, tell the next."""
        with self._writing() as tx:
            freed = locks.unlock(tx, grant)
        if freed:
            self.call_next(grant.name)
        return freed

    @repeated
    def break_lock(self, name: str, *, by: str, why: str) -> list[LockGrant]:
        """Free a lock whoever holds it, and tell the next."""
        with self._writing() as tx:
            broken = locks.break_lock(tx, name, by=by, why=why)
        for _ in broken:
            self.call_next(name)
        return broken

    # --- people and programs ------------------------------------------------------------------------------------------

    @repeated
    def enqueue(self, items: Sequence[Item]) -> list[Enqueued]:
        """Create occurrences by key."""
        operating.check_items(items)
        if not items:
            return []
        with self._writing() as tx:
            return operating.enqueue(tx, items)

    @repeated
    def trigger(self, job: str, *, by: str, why: str = "") -> Enqueued:
        """Run a job now."""
        with self._writing() as tx:
            return operating.trigger(tx, job, by=by, why=why)

    @repeated
    def cancel(self, occurrence: int, *, by: str, why: str) -> State:
        """Cancel a pending occurrence, or ask a running one to stop."""
        with self._writing() as tx:
            return operating.cancel(tx, occurrence, by=by, why=why)

    @repeated
    def retry(self, occurrence: int, *, by: str, why: str = "") -> Enqueued:
        """Make a new occurrence of a final one."""
        with self._writing() as tx:
            return operating.retry(tx, occurrence, by=by, why=why)

    @repeated
    def forget(
        self, job: str, key: str, *, by: str, why: str = "", running: bool = False, only: int | None = None
    ) -> State | None:
        """Delete the occurrence with a key."""
        check_forgettable(key)
        with self._writing() as tx:
            return operating.forget(tx, job, key, by=by, why=why, running=running, only=only)

    @repeated
    def backfill(self, job: str, times: Sequence[datetime], *, by: str, why: str = "") -> list[Enqueued]:
        """Create occurrences for nominal times."""
        with self._writing() as tx:
            return operating.backfill(tx, job, times, by=by, why=why)

    # --- care ---------------------------------------------------------------------------------------------------------

    @repeated
    def prune(self, before: datetime | None = None, *, limit: int = 1000) -> int:
        """Delete what is over; look for it without the write lock."""
        with self._reading() as tx:
            over = pruning.find(tx, before, limit)
            overdue = retiring.has_overdue(tx)
            bygone = pruning_jobs.find(tx, before)
        deleted = 0
        if not over.nothing or overdue:
            with self._writing() as tx:
                if overdue:
                    retiring.cancel_overdue(tx)
                deleted = pruning.prune(tx, over)
        self._forget(bygone, before)
        for _ in range(pruning.MOST_BATCHES):
            if not over.more:
                break
            with self._reading() as tx:
                over = pruning.find_further(tx)
            with self._writing() as tx:
                pruning.prune(tx, over)
        return deleted

    def _forget(self, bygone: pruning_jobs.Bygone, before: datetime | None) -> None:
        """Forget what is long over of jobs, each kind in a transaction of its own: each locks other rows."""
        for _ in range(pruning.MOST_BATCHES):
            if bygone.nothing:
                return
            if bygone.with_old_eras or bygone.pauses:
                with self._writing() as tx:
                    pruning_jobs.forget_history(tx, bygone, before)
            if bygone.retired:
                with self._writing() as tx:
                    pruning_jobs.forget_retired(tx, bygone.retired)
            if bygone.releases:
                with self._writing() as tx:
                    pruning_jobs.forget_releases(tx)
            if bygone.locks:
                with self._writing() as tx:
                    pruning_jobs.forget_locks(tx)
            if not bygone.more:
                return
            with self._reading() as tx:
                bygone = pruning_jobs.find(tx, before)

    # --- reads --------------------------------------------------------------------------------------------------------

    def job(self, name: str) -> JobView | None:
        """Return one job."""
        with self._reading() as tx:
            return reading_jobs.job(tx, name)

    def jobs(self, *, after: str = "", limit: int = 100, retired: bool = False) -> list[JobView]:
        """Return jobs by name."""
        with self._reading() as tx:
            return reading_jobs.jobs(tx, after, limit, retired=retired)

    def eras(self, job: str) -> list[Era]:
        """Return a job's eras."""
        with self._reading() as tx:
            return reading_jobs.eras(tx, job)

    def pauses(self, job: str) -> list[Stretch]:
        """Return a job's paused stretches."""
        with self._reading() as tx:
            return reading_jobs.pauses(tx, job)

    def occurrence(self, id: int) -> Occurrence | None:  # noqa: A002 - the field's own word
        """Return one occurrence."""
        with self._reading() as tx:
            return reading.occurrence(tx, id)

    def occurrences(
        self, where: OccurrenceFilter, *, after: int | None = None, limit: int = 100, newest_first: bool = True
    ) -> list[Occurrence]:
        """Return occurrences by id."""
        with self._reading() as tx:
            return reading.occurrences(tx, where, after, limit, newest_first=newest_first)

    def runs(self, occurrence: int) -> list[RunView]:
        """Return the attempts of an occurrence."""
        with self._reading() as tx:
            return reading.runs(tx, [occurrence])[occurrence]

    def runs_of(self, occurrences: Sequence[int]) -> dict[int, list[RunView]]:
        """Return the attempts of several occurrences, in two statements."""
        with self._reading() as tx:
            return reading.runs(tx, occurrences)

    def logs(self, occurrence: int, *, after: int = 0, limit: int = 1000) -> list[tuple[int, int, LogLine]]:
        """Return log lines."""
        with self._reading() as tx:
            return reading.logs(tx, occurrence, after, limit)

    def ranges(
        self,
        job: str,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        after: int = 0,
        limit: int = 1000,
    ) -> list[LedgerRange]:
        """Return verdict ranges."""
        with self._reading() as tx:
            return reading_jobs.ranges(tx, job, since=since, until=until, after=after, limit=limit)

    def sessions(self, *, ended: bool = False, limit: int = 200) -> list[SessionView]:
        """Return sessions."""
        with self._reading() as tx:
            return reading.sessions(tx, limit, ended=ended)

    def locks(self, *, name: str | None = None, limit: int = 200) -> list[LockView]:
        """Return held locks, or the held places of one."""
        with self._reading() as tx:
            return reading.locks(tx, name, limit)

    def counts(self, *, limit: int = 10_000) -> Counts:
        """Return bounded counts."""
        with self._reading() as tx:
            return reading.counts(tx, limit)

    def pending_of(self, jobs: Sequence[str]) -> dict[str, int]:
        """Return how many occurrences of each job are pending."""
        with self._reading() as tx:
            return reading.pending_of(tx, jobs)

    def trail(self, *, target: str | None = None, after: int | None = None, limit: int = 100) -> list[TrailEntry]:
        """Return the audit trail."""
        with self._reading() as tx:
            return reading.trail(tx, target, after, limit)

    def identity(self) -> Identity | None:
        """Return the random number that was made with the tables, and when the first of them were made."""
        with self._reading() as tx:
            found = tx.rows(migrations.IDENTITY)[0]
        return None if found.id is None else Identity(str(found.id), from_micros(found.since))

    @repeated
    def note_loss(self, loss: Loss, *, by: str) -> None:
        """Write into the trail what was lost."""
        with self._writing() as tx:
            record(tx, by, loss.action, "", loss.why, **loss.details)

    def describe(self) -> dict[str, Any]:
        """Return what ``doctor`` shows."""
        with self._reading() as tx:
            return {
                "store": self.capabilities.name,
                "namespace": self.namespace,
                "schema": migrations.version_of(tx.connection),
                **self._dialect.describe(tx.connection),
            }
