"""The calls of guarded functions in this process: claims acquired by key, and calls that wait for them.

::

    acquire_claim ──▶ OwnedClaim ──▶ the function runs ──▶ record_end ──▶ recorded
      │                 └── the store is away: the background queue keeps trying to record the end
      └──▶ the present occurrence, if another call runs it or has run it

The claim of a dead process is free as soon as a waiting process has noticed the death. The session and its claims are
those of ``outside/claims.py``.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

from cronsensus.errors import ConfigurationError, LeaseLost, StoreBusy, StoreError
from cronsensus.model.acquiring import AskNamed, NotWon
from cronsensus.model.ends import End, Final
from cronsensus.model.job import GUARDED, JobSpec
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter
from cronsensus.model.states import State
from cronsensus.model.step import Step
from cronsensus.once.call_key import CallKey
from cronsensus.once.identity import is_same_function
from cronsensus.once.waiters import Waiters
from cronsensus.outside.claims import OutsideClaims
from cronsensus.outside.owned_claim import OwnedClaim, Ticket, uncounted_end
from cronsensus.process.logger import Logger

_log = Logger("cronsensus.once")

TRIES = 3
"""How often a claim is attempted at a busy store."""
MOST_REFUSALS = 10
"""How often a key is tried that is refused and then not found, because others acquire and free it."""
MAINTAIN_EVERY = 300.0
"""Seconds between two rounds of maintenance."""
MOST_PRUNED = 200
MOST_CLOSED = 20
FREED = "failed, and free for the next call"
"""The reason of an occurrence that is pending until the next call."""
NOT_ASKED_FOR = "failed or cut off, and never asked for again"


class Claims(OutsideClaims):
    """The claims of this process's guarded calls. Safe to share between threads; not for a forked child."""

    def _set_up(self) -> None:
        self.waiters: Waiters = Waiters(self.clock, lambda: self.store)
        self._acquiring_keys: weakref.WeakKeyDictionary[Ticket, tuple[str, str]] = weakref.WeakKeyDictionary()
        """The keys that calls are acquiring now: an answer may be on its way, unless the call is gone."""
        self._waits: dict[tuple[str, str], list[tuple[str, str]]] = {}
        self._maintained_at = -MAINTAIN_EVERY

    @property
    def is_idle(self) -> bool:
        """Whether no call holds, acquires or waits for a claim."""
        with self._lock:
            return not self._held and not self._keys_being_acquired() and not self.waiters

    def close(self) -> None:
        """Close the session and connections; claims that are still held are released."""
        self.waiters.close()
        super().close()

    # --- acquiring ----------------------------------------------------------------------------------------------------

    def acquire_claim(self, call_key: CallKey, ticket: Ticket) -> OwnedClaim | Occurrence | None:
        """Acquire the occurrence, or return it if it is taken; ``None``: it is below the horizon, or its job is paused.

        Args:
            call_key: the key of the call, and the fingerprint of its arguments.
            ticket: of the call, which keeps it for as long as it goes on.

        Raises:
            PayloadMismatch: it has, or had, another payload.
            StoreError: the store cannot be used. A claim that was granted all the same is released.
        """
        for tries_left in reversed(range(TRIES)):
            try:
                return self._acquire_once(call_key, ticket)
            except StoreBusy as error:
                # Many calls came at the same moment, and others were first. Nothing was written.
                if not tries_left:
                    raise
                _log.debug("%s is tried once more: %s", call_key.key, error)
        raise AssertionError

    def _acquire_once(self, call_key: CallKey, ticket: Ticket) -> OwnedClaim | Occurrence | None:
        self._host.refuse_if_emptied()
        self.define_jobs(call_key.spec)
        for _ in range(MOST_REFUSALS):
            answer = self._try_acquire(call_key, ticket)
            if answer is NotWon.PRUNED:
                return None
            if answer is NotWon.UNKNOWN:
                # The store lost the job, with all of its records.
                self.define_jobs(call_key.spec, anew=True)
                continue
            if not isinstance(answer, NotWon):
                return self._of_this_payload(answer, call_key)
            occurrence = self.read_occurrence(call_key)
            if occurrence is not None and occurrence.state is State.CANCELLED and occurrence.reason == NOT_ASKED_FOR:
                self.store.forget(
                    call_key.spec.name, occurrence.key, by=self.name, why="asked for again", only=occurrence.id
                )
            elif occurrence is not None:
                return occurrence
            elif call_key.scheduled_for is not None and self._is_paused(call_key.spec):
                return None
        raise StoreBusy(
            f"{call_key.spec.name!r}: the key {call_key.key!r} was acquired and freed again and again; try again"
        )

    def _of_this_payload(self, held: OwnedClaim, call_key: CallKey) -> OwnedClaim:
        """Return the claim, unless an earlier attempt that was cut off had another payload."""
        difference = call_key.differs_from(held.claim.fingerprint)
        if difference is None:
            return held
        self.settle_unneeded(held)
        raise call_key.payload_mismatch(difference, "an attempt that was cut off", None)

    def read_occurrence(self, call_key: CallKey) -> Occurrence | None:
        """Return the present occurrence; a claim of this process whose answer was lost is released first.

        Raises:
            PayloadMismatch: it has another payload.
        """
        where = OccurrenceFilter(job=call_key.spec.name, key=call_key.key)
        occurrences = self.store.occurrences(where, limit=1)
        if occurrences and occurrences[0].state is State.RUNNING and self._was_left(occurrences[0]):
            occurrences = self.store.occurrences(where, limit=1)
        if not occurrences:
            return None
        differs = call_key.differs_from(occurrences[0].fingerprint)
        if differs is not None:
            raise call_key.payload_mismatch(differs, f"the call that is {occurrences[0].state} there", occurrences[0])
        return occurrences[0]

    def _was_left(self, occurrence: Occurrence) -> bool:
        """Record the end of a claim that no call of this process needs any more; return whether there was one."""
        with self._lock:
            held = self._held.get((occurrence.id, occurrence.token))
            is_acquiring = (occurrence.job, occurrence.key) in self._keys_being_acquired()
        if held is not None:
            if not held.is_left:
                return False
            self.settle_unneeded(held)
            return True
        if is_acquiring or occurrence.session is None:
            return False
        session = self._host.pin_session()
        self._host.unpin_session()
        if occurrence.session != session.session:
            return False
        # The answer to an ``acquire`` of this process was lost, so nobody runs the claim.
        self.store.step(
            occurrence.session, Step(ends=(uncounted_end(occurrence.id, occurrence.token, occurrence.session),))
        )
        return True

    def _is_paused(self, spec: JobSpec) -> bool:
        view = self.store.job(spec.name)
        return view is not None and view.paused_at is not None

    def _try_acquire(self, call_key: CallKey, ticket: Ticket) -> OwnedClaim | NotWon:
        with self._lock:
            self._acquiring_keys[ticket] = call_key.name
        try:
            return self._request_claim(call_key, ticket)
        except LeaseLost:
            # The session was declared dead; this process is alive, and opens a new one.
            return self._request_claim(call_key, ticket)
        finally:  # a lost answer is found by the next read of the key, or in the list of a renewal
            with self._lock:
                self._acquiring_keys.pop(ticket, None)

    def _keys_being_acquired(self) -> list[tuple[str, str]]:
        return [name for ticket, name in list(self._acquiring_keys.items()) if not ticket.over]

    def _request_claim(self, call_key: CallKey, ticket: Ticket) -> OwnedClaim | NotWon:
        nominal = call_key.scheduled_for
        key = call_key.key if nominal is None else None
        request = AskNamed(call_key.spec.name, scheduled_for=nominal, key=key, fingerprint=call_key.fingerprint)
        [[answer]] = self._request_claims([request], lambda: ticket)
        if isinstance(answer, NotWon):
            return answer
        held, _ = answer
        held.run.zone = call_key.zone
        return held

    def _list_held_keys(self) -> set[tuple[int, int]] | None:
        """Return the claims that calls hold; ``None`` while a call acquires, because its answer may be on the way."""
        with self._lock:
            return None if self._keys_being_acquired() else set(self._held)

    # --- calls that wait for calls ------------------------------------------------------------------------------------

    def note_waiting(self, chain: Iterable[tuple[str, str]], name: tuple[str, str]) -> None:
        """Record that a call, which holds the keys of ``chain``, waits for another one.

        Raises:
            ConfigurationError: that call waits for one of these keys: a deadlock.
        """
        held_keys = tuple(chain)
        if not held_keys:
            return
        with self._lock:
            occurrence, todo = set(), [name]
            while todo:
                key = todo.pop()
                if key in held_keys:
                    holder, held_key = held_keys[-1]
                    raise ConfigurationError(
                        f"{holder!r} under the key {held_key!r} would wait for {name[0]!r} under {name[1]!r}, "
                        "which waits for it: neither would ever end; call one of the two without its guard, by "
                        "`.function`, or always call them in key order"
                    )
                if key not in occurrence:
                    occurrence.add(key)
                    todo += self._waits.get(key, ())
            for key in held_keys:
                self._waits.setdefault(key, []).append(name)

    def end_waiting(self, chain: Iterable[tuple[str, str]], name: tuple[str, str]) -> None:
        """Remove what ``note_waiting`` recorded."""
        with self._lock:
            for key in chain:
                waited_for = self._waits.get(key, [])
                if name in waited_for:
                    waited_for.remove(name)
                if not waited_for:
                    self._waits.pop(key, None)

    def _stored_form(self, spec: JobSpec) -> JobSpec:
        """Return a definition with the function's name in the store; warn if the name is another function's."""
        if not spec.name.startswith(GUARDED) or spec.function == spec.name:
            return spec
        stored = self.store.job(spec.name)
        if stored is None or stored.spec.function in {spec.name, spec.function}:  # the first: of an earlier version
            return spec
        if is_same_function(stored.spec.function, spec.function):
            return replace(spec, function=stored.spec.function)
        kind, _, name = spec.name.partition(":")
        _log.warning(
            "two functions in namespace %r are guarded as %r by %s: %s here, and %s in another program or release. "
            "Under one key only one of them runs, and a call of the other gets its result. If these are two programs, "
            "give one of them another name=… or namespace=…; after a release that moved the function or changed its "
            "parameters there is nothing to do",
            self.store.namespace, name, kind, spec.function, stored.spec.function, extra={"job": spec.name},
        )  # fmt: skip
        return spec

    # --- ending -------------------------------------------------------------------------------------------------------

    def drop_settled(self, held: OwnedClaim, *, accepted: bool = False) -> None:
        """Drop a claim whose end the store has recorded, and notify waiting processes."""
        super().drop_settled(held, accepted=accepted)
        ran_for = self.clock.monotonic() - held.started
        self.waiters.notify_of_end(held.claim.id, ran_for=ran_for, attempt=held.claim.attempt)

    def drop_claim(self, held: OwnedClaim) -> None:
        """Drop a claim, and wake the calls that wait for it here."""
        try:
            super().drop_claim(held)
        finally:  # also if a signal handler raises, because nobody would drop it later
            with self._lock:
                self._held.pop((held.claim.id, held.claim.token), None)
        self.waiters.wake_calls(held.claim.id)

    # --- maintenance --------------------------------------------------------------------------------------------------

    def maintain_store(self) -> None:
        """Prune old rows, and close keys that were not called again within ``keep``; at most every five minutes."""
        now = self.clock.monotonic()
        with self._lock:
            if now - self._maintained_at < MAINTAIN_EVERY:
                return
            self._maintained_at = now
        try:
            self.store.prune(limit=MOST_PRUNED)
            for spec in list(self._defined.values()):
                self._close_abandoned(spec)
        except (StoreError, LeaseLost) as error:
            _log.debug("old rows could not be pruned or closed now: %s", error)

    def _close_abandoned(self, spec: JobSpec) -> None:
        where = OccurrenceFilter(job=spec.name, states=(State.PENDING,))
        now = self.store.now()
        for occurrence in self.store.occurrences(where, limit=MOST_CLOSED, newest_first=False):
            # A failed key is due when it may be closed; a call that was cut off is due at once.
            if occurrence.due_at + (timedelta(0) if occurrence.error is not None else spec.policies.keep) > now:
                continue
            ticket = Ticket()
            held = self._try_acquire(CallKey(spec, occurrence.key, occurrence.scheduled_for), ticket)
            if not isinstance(held, NotWon):
                # Acquired like a call, so that no call can start under the key at the same moment.
                self.record_end(held, End.of(held.claim, Final(State.CANCELLED, NOT_ASKED_FOR)))
