"""What this process runs outside of a node: claims that it won by name, held by a session of its own. Floor 5.

Nothing here decides who may run: the store's ``acquire`` does. A claim is kept alive by the session, its result is
recorded under its token, and what a dead process held is free again as soon as somebody who waits has noticed.

::

    take ──▶ Held ──▶ the function runs ──▶ settle ──▶ recorded
      │        └── the store is away: the keeper's thread goes on trying to settle it
      └──▶ the occurrence as it stands, if somebody else has it or had it

The session is not that of a node, also where a node runs in this process: a node's ends when it drains, and a function
that the program itself has called goes on then. (Nor is it that of the locks, whose long lease would be shortened.)
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from cronsensus.clock import Clock
from cronsensus.errors import LeaseLost, OccurrenceTooOld, StoreBusy, StoreError
from cronsensus.lock.watching import Watch
from cronsensus.logger import Logger
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import (
    Claim,
    Note,
    Occurrence,
    OccurrenceFilter,
    Outcome,
    Settled,
    scheduled_key,
)
from cronsensus.model.session import SessionView
from cronsensus.model.states import State
from cronsensus.node.effects import Effects
from cronsensus.node.evidence import is_dead
from cronsensus.node.guest import LONGEST_WAIT, Guest
from cronsensus.node.lease import SessionLease
from cronsensus.node.run import Run
from cronsensus.once.waiters import Waiters
from cronsensus.stores.base import Store

_log = Logger("cronsensus.once")

AGAIN = 0.5
"""Seconds between two tries to record a result while the store is away."""
PATIENCE = 3.0
"""Seconds that a caller waits for its result to be recorded; then the keeper's thread goes on trying."""
TRIES = 3
"""How often a busy store is asked for a claim, each time for as long as it lets others go first."""
CARE = 300.0
"""Seconds between two looks for what was kept long enough."""
MOST_PRUNED = 200
MOST_CLOSED = 20
FREED = "failed, and free for the next call"
"""Why an occurrence waits for another call."""
NOT_ASKED_FOR = "failed or cut off, and never asked for again"


@dataclass(frozen=True, slots=True)
class Wanted:
    """One key of one implicit job, or one of its nominal times."""

    spec: JobSpec
    key: str
    scheduled_for: datetime | None = None

    @classmethod
    def slot(cls, spec: JobSpec, scheduled_for: datetime) -> Wanted:
        """Return the occurrence of a nominal time."""
        return cls(spec, scheduled_key(scheduled_for), scheduled_for)

    @property
    def name(self) -> tuple[str, str]:
        """What names it in the namespace."""
        return self.spec.name, self.key


class Held:
    """A claim that this process works on, and the run that its code sees."""

    def __init__(self, claims: Claims, claim: Claim, lease: SessionLease, store: Store) -> None:
        self.claim = claim
        self.session = claim.session
        self.started = claims.clock.monotonic()
        self.run = Run(claim, effects=Effects(store, claim, _NO_NOTES))
        self.unsettled: Outcome | None = None
        self._claims = claims
        self._lease = lease

    @property
    def expires_in(self) -> float:
        """Return the seconds for which nobody else can have it."""
        return self._lease.trusted_for

    def expire(self) -> None:
        """Be told that its time is over."""
        self.lose("its session could not be renewed in time")

    def lose(self, why: str) -> None:
        """Be told that the session is over."""
        self.run.stop(f"lease lost: {why}", lease_lost=True)
        if self.unsettled is not None:
            self._claims.forget(self)  # somebody else may have it: there is nothing left to record

    def step(self, store: Store) -> float:
        """Try once more to record how it ended, if that could not be done; for the keeper's thread."""
        outcome = self.unsettled
        if outcome is None:
            return LONGEST_WAIT
        try:
            store.finish([outcome])
        except StoreError as error:
            _log.debug("the end of %r could not be recorded yet: %s", self.run, error)
            return AGAIN
        self._claims.done(self)
        return LONGEST_WAIT


class Claims:
    """The claims of this process in one store and namespace. Safe to share between threads; not for a forked child."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        name: str,
        release: Callable[[], str],
        lease: timedelta,
        fast_evidence: bool,
    ) -> None:
        """Hold claims in ``store``, which is ready, and stays the caller's to close.

        Args:
            store: of which siblings are opened.
            clock: for waits and trust.
            name: of this process, for people.
            release: under which implicit jobs are defined.
            lease: how long a process without a sign of life keeps what it runs.
            fast_evidence: take a process of this host for dead as soon as it is gone.
        """
        self.clock = clock
        self._name = name
        self._release = release
        self._lease = lease
        self._fast_evidence = fast_evidence
        self._guest = Guest(store, clock, name=name, lease=lease)
        self._watch = Watch(clock)
        self.waiters = Waiters(clock, lambda: self._guest.store)
        self._lock = threading.Lock()
        self._held: dict[tuple[int, int], Held] = {}
        self._asking: Counter[tuple[str, str]] = Counter()
        self._defined: dict[str, JobSpec] = {}
        self._cared_at = -CARE

    @property
    def store(self) -> Store:
        """The handle for verbs of the caller's own threads."""
        return self._guest.store

    @property
    def idle(self) -> bool:
        """Whether nothing is held here, and nobody waits."""
        return self._guest.idle and not self.waiters

    def close(self) -> None:
        """Let go of the session and of connections; what is still held goes back for others to take."""
        self.waiters.close()
        self._guest.close()
        self._watch.close()

    # --- winning ------------------------------------------------------------------------------------------------------

    def take(self, wanted: Wanted) -> Held | Occurrence | None:
        """Win the occurrence, or return it as it stands; ``None``: it was pruned just now, or lies below the horizon.

        Raises:
            StoreError: the store cannot be asked. What was won all the same is given back.
        """
        for left in reversed(range(TRIES)):
            try:
                return self._take(wanted)
            except StoreBusy as error:
                # Many came in the same moment, and the store let others go first. Nothing was written.
                if not left:
                    raise
                _log.debug("%s is asked for once more: %s", wanted.key, error)
        raise AssertionError

    def _take(self, wanted: Wanted) -> Held | Occurrence | None:
        self._define(wanted.spec)
        try:
            return self._try(wanted) or self.look(wanted)
        except LeaseLost:
            # Somebody has taken this process for dead; it is not, and begins a new session.
            return self._try(wanted) or self.look(wanted)
        except OccurrenceTooOld:
            return None

    def look(self, wanted: Wanted) -> Occurrence | None:
        """Return the occurrence as it stands; one that this process was given without knowing it is given back."""
        found = self.store.occurrences(OccurrenceFilter(job=wanted.spec.name, key=wanted.key), limit=1)
        if not found:
            return None
        seen = found[0]
        if seen.state is State.RUNNING and self._is_stray(wanted, seen):
            self.store.finish([_given_back(seen.id, seen.token, seen.session)])
            return replace(seen, state=State.PENDING)
        return seen

    def _try(self, wanted: Wanted) -> Held | None:
        with self._lock:
            self._asking[wanted.name] += 1
        try:
            session = self._guest.come()
            try:
                return self._ask(wanted, session)
            finally:
                self._guest.go()
        finally:
            with self._lock:
                self._asking[wanted.name] -= 1
                if not self._asking[wanted.name]:
                    del self._asking[wanted.name]

    def _ask(self, wanted: Wanted, session: SessionLease) -> Held | None:
        asked = session.ask()
        by_name = {"key": wanted.key} if wanted.scheduled_for is None else {"scheduled_for": wanted.scheduled_for}
        try:
            claim = self.store.acquire(session.session, wanted.spec.name, lease=self._lease, **by_name)
        except LeaseLost:
            self._guest.mistrust(session)
            raise
        except StoreError:
            session.shorten(asked, self._lease)
            raise
        if claim is None:
            return None
        session.claimed(asked, self._lease)
        held = Held(self, claim, session, self.store)
        with self._lock:
            self._held[claim.id, claim.token] = held
        self._guest.keep(held, self._lease.total_seconds() / 3)
        self._watch.begin(held)
        return held

    def _is_stray(self, wanted: Wanted, seen: Occurrence) -> bool:
        """Whether this process holds it without working on it: the answer to an ``acquire`` of ours was lost."""
        with self._lock:
            if self._asking[wanted.name] or (seen.id, seen.token) in self._held:
                return False
        session = self._guest.come()
        self._guest.go()
        return seen.session == session.session

    def _define(self, spec: JobSpec) -> None:
        if self._defined.get(spec.name) != spec:
            self.store.put_jobs([spec], release=self._release(), by=self._name)
            self._defined[spec.name] = spec

    # --- how it ended -------------------------------------------------------------------------------------------------

    def settle(self, held: Held, outcome: Outcome) -> Settled:
        """Record how it ended; what the store answers first is what stands.

        Raises:
            StoreError: the store is away, and has been for ``PATIENCE`` seconds. This process goes on trying for as
                long as its session lives.
        """
        until = self.clock.monotonic() + PATIENCE
        pause = 0.02
        while True:
            try:
                settled = self.store.finish([outcome])[0]
                break
            except StoreError as error:
                if not error.retryable or self.clock.monotonic() > until:
                    held.unsettled = outcome
                    self._guest.keep(held, AGAIN)
                    raise
            threading.Event().wait(pause)
            pause = min(AGAIN, pause * 2)
        self.done(held)
        return settled

    def give_back(self, held: Held) -> None:
        """Let others have what nobody here waits for any more, as if it had never been taken."""
        try:
            self.store.release([held.claim])
        except StoreError as error:
            _log.debug("%r could not be given back yet: %s", held.run, error)
            held.unsettled = _given_back(held.claim.id, held.claim.token, held.claim.session)
            self._guest.keep(held, AGAIN)
        else:
            self.done(held)

    def done(self, held: Held) -> None:
        """Hold this no more, as the store knows, and tell whoever may wait for it."""
        self.forget(held)
        ran_for = self.clock.monotonic() - held.started
        self.waiters.tell(held.claim.id, ran_for=ran_for, attempt=held.claim.attempt)

    def forget(self, held: Held) -> None:
        """Hold this no more, and wake those who wait for it here."""
        self._watch.end(held)
        self._guest.forget(held)
        with self._lock:
            self._held.pop((held.claim.id, held.claim.token), None)
        self.waiters.ring(held.claim.id)

    # --- those who hold it --------------------------------------------------------------------------------------------

    def holder(self, session: str | None) -> SessionView | None:
        """Return a session; ``None``: it is over, or there are too many to see it."""
        return next((one for one in self.store.sessions() if one.id == session), None)

    def is_gone(self, session: SessionView | None) -> bool:
        """Whether a session's process is seen to be gone. Asks no store."""
        return session is not None and self._fast_evidence and is_dead(session)

    def bury(self, session: SessionView | None) -> bool:
        """End what is over: this session if its process is gone, and all whose lease ran out; ``True``: something was.

        Asks the store only if there is a reason to.
        """
        gone = self.is_gone(session)
        if session is None or gone or session.expires_in <= timedelta(0):
            return bool(self.store.reclaim({session.id} if session is not None and gone else ()))
        return False

    # --- care ---------------------------------------------------------------------------------------------------------

    def care(self) -> None:
        """Now and then, prune what was kept long enough, and close what nobody has asked for again in that time."""
        now = self.clock.monotonic()
        with self._lock:
            if now - self._cared_at < CARE:
                return
            self._cared_at = now
        try:
            self.store.prune(limit=MOST_PRUNED)
            for spec in list(self._defined.values()):
                self._close_abandoned(spec)
        except (StoreError, LeaseLost) as error:
            _log.debug("what is over could not be looked for now: %s", error)

    def _close_abandoned(self, spec: JobSpec) -> None:
        where = OccurrenceFilter(job=spec.name, states=(State.PENDING,))
        now = self.store.now()
        for seen in self.store.occurrences(where, limit=MOST_CLOSED, newest_first=False):
            # What failed was made due when it may go; what was cut off is due at once.
            if seen.due_at + (timedelta(0) if seen.reason == FREED else spec.policies.keep) > now:
                continue
            held = self._try(Wanted(spec, seen.key, seen.scheduled_for))
            if held is not None:
                # Taken like by any caller, so that nobody can begin with it in this very moment.
                self.settle(
                    held,
                    Outcome(
                        id=seen.id,
                        token=held.claim.token,
                        session=held.claim.session,
                        state=State.CANCELLED,
                        reason=NOT_ASKED_FOR,
                    ),
                )


class _NoNotes:
    """Nothing is noted of a run outside of a node."""

    def hold(self, occurrence: int, token: int) -> None: ...

    def held(self, occurrence: int, token: int) -> Note | None:  # noqa: ARG002 - nothing is held
        return None

    def let_go(self, occurrence: int, token: int, written: Note | None = None) -> None: ...


_NO_NOTES = _NoNotes()


def _given_back(occurrence: int, token: int, session: str | None) -> Outcome:
    return Outcome(id=occurrence, token=token, session=session, state=State.PENDING, retry_in=timedelta(0))
