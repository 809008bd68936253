"""Claims of a process that is no node, held by a session of its own.

The store's ``acquire`` alone decides which process may run. The session keeps a claim alive, and the result is recorded
under the claim's token. The session is not that of a node in this process: a node's session ends when it drains, and
the program's own runs go on then. Nor is it that of the locks, which have a longer lease.

::

    acquire ──▶ OwnedClaim ──▶ it runs ──▶ record_end ──▶ recorded
      │           └── the store is away: the background queue keeps trying to record the end
      └──▶ NotWon

Two features use it: guarded calls (``once.claims``), whose callers wait, and programs that keep the time or the queue
themselves (``Outside``), where nobody waits.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta

from cronsensus.errors import LeaseLost, StoreError
from cronsensus.membership.heartbeat import Heartbeat
from cronsensus.membership.lease import LeaseRequest, SessionLease
from cronsensus.membership.liveness import is_dead
from cronsensus.membership.session_host import SessionHost
from cronsensus.model.acquiring import Ask, AskNamed, NotWon
from cronsensus.model.ends import End
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Claim, Settled
from cronsensus.model.session import SessionView
from cronsensus.model.step import Step, Want
from cronsensus.outside.background_queue import BackgroundQueue
from cronsensus.outside.owned_claim import CHECK_INTERVAL, RETRY_INTERVAL, OwnedClaim, Ticket
from cronsensus.outside.reconciling import Reconciliation
from cronsensus.process.interrupts import Event
from cronsensus.process.logger import Logger
from cronsensus.stores.base import Store
from cronsensus.timing.clock import Clock

_log = Logger("cronsensus.outside")

PATIENCE = 3.0
"""Seconds that a caller waits for its result to be recorded; then the background queue keeps trying."""

Owned = tuple[OwnedClaim, Ticket]
"""A claim that was won, and the ticket that shows whether its owner still needs it."""


class OutsideClaims:
    """The claims of this process in one store and namespace. Safe to share between threads; not for a forked child."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        name: str,
        heartbeat: Heartbeat | None = None,
        release: Callable[[], str],
        lease: timedelta,
        fast_evidence: bool,
        stop: bool = False,
    ) -> None:
        """Use ``store`` for claims; it is ready, and the caller closes it.

        Args:
            store: all verbs of callers use this handle.
            clock: for waits and trust.
            name: of this process, for people.
            heartbeat: renews the session and all other leases of this process in the store; ``None``: a new one.
            release: the release under which implicit jobs are defined.
            lease: how long a process without a sign of life keeps its claims.
            fast_evidence: regard a process of this host as dead as soon as it is gone.
            stop: refuse everything once the store was emptied.
        """
        self.clock = clock
        self.name = name
        self.store = store
        self._release = release
        self._lease = lease
        self._fast_evidence = fast_evidence
        self.background: BackgroundQueue = BackgroundQueue()
        self._reconciliation = Reconciliation(clock, store, self._list_held_keys, call_later=self.background.add_call)
        self._host = SessionHost(
            store,
            clock,
            name=name,
            heartbeat=heartbeat,
            lease=lease,
            stop=stop,
            on_listed=self._reconciliation.compare_listed,
        )
        self._monitor = self._host.monitor
        self._lock = threading.Lock()
        self._held: dict[tuple[int, int], OwnedClaim] = {}
        self._acquiring = 0
        """How many threads are acquiring claims, whose answers may be on the way."""
        self._defined: dict[str, JobSpec] = {}
        self._pid = os.getpid()
        self._set_up()

    def _set_up(self) -> None:
        """Initialise the attributes of a subclass."""

    @property
    def session(self) -> str | None:
        """The id of the session that holds this process's claims; ``None``: none is open."""
        return self._host.session

    @property
    def is_idle(self) -> bool:
        """Whether no claim is held or being acquired."""
        with self._lock:
            return not self._held and not self._acquiring

    @property
    def crossed_a_fork(self) -> bool:
        """Whether this is a forked child's copy, whose claims belong to the parent."""
        return os.getpid() != self._pid

    def close(self) -> None:
        """Close the session and connections; claims that are still held are released."""
        self._host.close()

    # --- acquiring ----------------------------------------------------------------------------------------------------

    def acquire_claims(self, requests: Sequence[tuple[JobSpec, Ask | AskNamed]]) -> list[list[Owned | NotWon]]:
        """Acquire times and keys, all in a single step; the answers are in the order of ``requests``.

        Raises:
            StoreError: the store cannot be used. Claims that it granted all the same are released by a later renewal.
            LeaseLost: the session was declared dead, and so was the next one.
        """
        self._host.refuse_if_emptied()
        self.define_jobs(*(spec for spec, _ in requests))
        with self._counting_request():
            answers = self._acquire_with_new_session([ask for _, ask in requests])
            # The store lost these jobs, with all of their records.
            unknown = [place for place, answer in enumerate(answers) if NotWon.UNKNOWN in answer]
            if unknown:
                self.define_jobs(*(requests[place][0] for place in unknown), anew=True)
                new_answers = self._acquire_with_new_session([requests[place][1] for place in unknown])
                for place, answer in zip(unknown, new_answers, strict=True):
                    answers[place] = answer
            return answers

    @contextmanager
    def _counting_request(self) -> Iterator[None]:
        """Mark that an answer may be on its way: claims that a renewal lists meanwhile may belong to it."""
        with self._lock:
            self._acquiring += 1
        try:
            yield
        finally:
            with self._lock:
                self._acquiring -= 1

    def _acquire_with_new_session(self, asks: Sequence[Ask | AskNamed]) -> list[list[Owned | NotWon]]:
        try:
            return self._request_claims(asks, Ticket)
        except LeaseLost:
            # The session was declared dead; this process is alive, and opens a new one.
            return self._request_claims(asks, Ticket)

    def _request_claims(
        self, asks: Sequence[Ask | AskNamed], make_ticket: Callable[[], Ticket]
    ) -> list[list[Owned | NotWon]]:
        """Call the store once, and hold the claims that it grants."""
        with self._pinned_session() as (session, request):
            answers = self.store.acquire(session.session, asks, lease=self._lease)
            if any(isinstance(outcome, Claim) for answer in answers for outcome in answer):
                session.confirm_claim(request, self._lease)
            return [
                [
                    outcome if isinstance(outcome, NotWon) else self._hold_claim(outcome, session, make_ticket())
                    for outcome in answer
                ]
                for answer in answers
            ]

    @contextmanager
    def _pinned_session(self) -> Iterator[tuple[SessionLease, LeaseRequest]]:
        """Pin the session during a call of the store that may grant claims."""
        session = self._host.pin_session()
        try:
            request = session.note_request()
            try:
                yield session, request
            except LeaseLost:
                self._host.session_ended(session)
                raise
            except StoreError as error:
                session.shorten_trust(request, self._lease)
                self._host.store_failed(error)
                raise
        finally:
            self._host.unpin_session()

    @contextmanager
    def keep_session(self) -> Iterator[None]:
        """Keep the session open, also without claims, so that this process is listed.

        If the store has declared it dead, the next acquire opens a new one. It does not raise if the store is away now.
        """
        try:
            self._host.pin_session()
        except StoreError as error:
            _log.debug("the session could not be opened yet: %s", error)
            yield
            return
        try:
            yield
        finally:
            self._host.unpin_session()

    def take_pending(self, functions: Collection[str], limit: int) -> list[Owned]:
        """Claim pending occurrences of these functions, as a node does: leftovers, for this process to run.

        Raises:
            StoreError: the store cannot be used. Claims that it granted all the same are released by a later renewal.
            LeaseLost: the session has just been declared dead.
        """
        with self._pinned_session() as (session, request):
            done = self.store.step(
                session.session, Step(want=Want(limit=limit, functions=functions, lease=self._lease))
            )
            if done.lost:
                raise LeaseLost("the session of this process was declared dead; it begins a new one")
            if done.claims:
                session.confirm_claim(request, self._lease)
            return [self._hold_claim(claim, session, Ticket()) for claim in done.claims]

    def _hold_claim(self, claim: Claim, session: SessionLease, ticket: Ticket) -> Owned:
        owned = OwnedClaim(self, claim, session, ticket)
        with self._lock:
            self._held[claim.id, claim.token] = owned
        ticket.held = owned
        self._host.add_resource(owned, CHECK_INTERVAL)
        self._monitor.monitor_lease(owned)
        return owned, ticket

    def _list_held_keys(self) -> set[tuple[int, int]] | None:
        """Return the claims that are held; ``None`` while one is being acquired: its answer may be on the way."""
        with self._lock:
            return None if self._acquiring else set(self._held)

    # --- definitions --------------------------------------------------------------------------------------------------

    def define_jobs(self, *specs: JobSpec, anew: bool = False) -> None:
        """Define jobs that this process has not defined yet; with ``anew`` all of them."""
        new = {spec.name: spec for spec in specs if anew or self._defined.get(spec.name) != spec}
        if new:
            stored_form = [self._stored_form(spec) for spec in new.values()]
            self.store.define_jobs(stored_form, release=self._release(), by=self.name)
            self._defined |= new

    def _stored_form(self, spec: JobSpec) -> JobSpec:
        """Return a definition in the form for the store."""
        return spec

    # --- ending -------------------------------------------------------------------------------------------------------

    def record_end(self, owned: OwnedClaim, end: End) -> Settled:
        """Record how a run ended; the store's first answer stands.

        Raises:
            StoreError: the store has been away for ``PATIENCE`` seconds. This process keeps trying for as long as its
                session lives.
        """
        [settled] = self.record_ends({owned: end})
        return settled

    def record_ends(self, ends: Mapping[OwnedClaim, End]) -> list[Settled]:
        """Record the ends of several claims of a session in a single step; answers are in the order of ``ends``.

        Raises:
            StoreError: as ``record_end``.
        """
        [session] = {owned.claim.session for owned in ends}
        until = self.clock.monotonic() + PATIENCE
        pause = 0.02
        while True:
            try:
                settled = self.store.step(session, Step(ends=tuple(ends.values()))).settled
                break
            except StoreError as error:
                if not error.retryable or self.clock.monotonic() > until:
                    for owned, end in ends.items():
                        owned.unsettled, owned.owed = end, True
                        self.record_later(owned)
                    raise
            Event().wait(pause)
            pause = min(RETRY_INTERVAL, pause * 2)
        answers = {(settled_end.id, settled_end.token): settled_end for settled_end in settled}
        for owned, end in ends.items():
            answer = answers[end.id, end.token]
            if answer.accepted:
                self._reconciliation.note_end(owned.claim, end, committed=owned.run.may_have_committed)
            self.drop_settled(owned, accepted=answer.accepted)
        return [answers[end.id, end.token] for end in ends.values()]

    def settle_unneeded(self, owned: OwnedClaim) -> None:
        """End a claim that nobody here needs: record its end if it has started, or release it."""
        if not owned.record_end():
            owned.owed = True
            self.record_later(owned)

    def record_later(self, owned: OwnedClaim) -> None:
        """Record a claim's end later, as soon as the store can be used."""
        self._host.add_resource(owned, RETRY_INTERVAL)

    def note_owner_gone(self, ticket: Ticket) -> None:
        """Record that an owner is gone, and end the claim that it left behind. Quick if there is none."""
        ticket.over = True
        owned = ticket.held
        if owned is not None and not self.crossed_a_fork:
            self.settle_unneeded(owned)

    def drop_settled(self, owned: OwnedClaim, *, accepted: bool = False) -> None:
        """Drop a claim whose end the store has recorded; ``accepted``: it is the end that was sent."""
        owned.release_claim(accepted=accepted)
        self.drop_claim(owned)

    def drop_claim(self, owned: OwnedClaim) -> None:
        """Drop a claim."""
        self._monitor.drop_lease(owned)
        self._host.discard_resource(owned)
        with self._lock:
            self._held.pop((owned.claim.id, owned.claim.token), None)
        owned.report_recorded()

    # --- holders ------------------------------------------------------------------------------------------------------

    def find_session(self, session: str | None) -> SessionView | None:
        """Return a session; ``None``: it has ended, or is not among the newest."""
        return next((view for view in self.store.sessions() if view.id == session), None)

    def is_gone(self, session: SessionView | None) -> bool:
        """Whether a session's process is known to be gone. Reads no store."""
        return session is not None and self._fast_evidence and is_dead(session)

    def reclaim_if_dead(self, session: SessionView | None) -> bool:
        """End this session if its process is gone, and all sessions with an expired lease; ``True``: there was one.

        Calls the store only if there is a reason to.
        """
        gone = self.is_gone(session)
        if session is None or gone or session.expires_in <= timedelta(0):
            return bool(self.store.reclaim({session.id} if session is not None and gone else ()))
        return False
