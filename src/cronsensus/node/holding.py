"""What does this node hold, and what becomes of it? Floor 4.

::

    begin_at() ──▶ waiting ──▶ begin_due()
                                   │
                     begin() ──▶ active ──▶ ended() ──▶ outcome ──▶ settle(): the store has it
                                   │                       ▲
                                   └── cut off ────────────┴──▶ given back, for others to run

Endings stay here until the store has answered; ``finish`` is idempotent, so an answer that was lost is asked for again.
Executors' threads, the keeper's and the node's own come here; what follows an ending is decided in the node's rounds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple

from cronsensus.clock import Clock
from cronsensus.logger import Logger
from cronsensus.model.ending import Ending
from cronsensus.model.occurrence import Claim, Outcome, RunError
from cronsensus.model.states import State
from cronsensus.node.effects import Effects
from cronsensus.node.executors.base import Call, Executor, Registered
from cronsensus.node.lease import SessionLease
from cronsensus.node.notes import Notes
from cronsensus.node.run import Run
from cronsensus.node.telling import Telling
from cronsensus.retry import cut_off, settle
from cronsensus.stores.base import Store

_log = Logger("cronsensus.node")

_Key = tuple[int, int]
"""Occurrence and token."""


class _Waiting(NamedTuple):
    """A claim that was made ahead, and when it begins."""

    at: float
    claim: Claim
    lease: SessionLease


class Holding:
    """The claims of this node, from their start until the store has taken their end.

    ``on_work`` is told when there begins to be something that the lease protects.

    Attributes:
        in_doubt: whether the node may hold claims that it has not heard of.
        notes: what its runs say of themselves.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        registry: Mapping[str, Registered],
        executors: Mapping[str, Executor],
        wake: Callable[[], None],
        on_work: Callable[[], None],
        telling: Telling,
    ) -> None:
        self._store = store
        self._clock = clock
        self._registry = registry
        self._executors = executors
        self._wake = wake
        self._on_work = on_work
        self._telling = telling
        self.in_doubt = False
        self.notes = Notes(clock, wake)
        self._waiting: dict[_Key, _Waiting] = {}
        self._active: dict[_Key, Call] = {}
        self._ended: deque[tuple[Call, Ending, bool]] = deque()
        self._outcomes: dict[_Key, Outcome] = {}
        self._given_back: list[Claim] = []
        self._interrupted: set[_Key] = set()

    # --- what others may ask or tell, from any thread ----------------------------------------------------------------

    @property
    def active(self) -> int:
        """Return how many runs are started, or about to, and not yet settled."""
        return len(self._waiting) + len(self._active) + len(self._outcomes)

    @property
    def slots(self) -> int:
        """Return how many slots of the node are taken.

        What was given up and cannot be stopped counts, or a job that hangs each time would take all of the host.
        """
        return len(self._waiting) + len(self._active) + self.given_up

    @property
    def given_up(self) -> int:
        """Return how many attempts are over and run on all the same."""
        return sum(executor.abandoned for executor in self._executors.values())

    @property
    def unsettled(self) -> bool:
        """Whether the store has yet to take something."""
        return bool(self._outcomes or self._given_back)

    def __bool__(self) -> bool:
        """Whether there is anything that the lease protects."""
        return bool(self._waiting or self._active or self._outcomes or self._given_back or self.in_doubt)

    @property
    def can_be_stopped(self) -> bool:
        """Whether something still runs that ends soon after it is asked to: not a thread."""
        self._collect()
        return any(call.registered.executor != "thread" for call in self._active.values())

    def known(self) -> set[_Key]:
        """Return the (occurrence, token) of every claim."""
        back = {(claim.id, claim.token) for claim in self._given_back}
        return self._waiting.keys() | self._active.keys() | self._outcomes.keys() | back

    def count(self, session: str) -> int:
        """Return how many claims ``session`` may have, as far as is known here."""
        running = sum(call.claim.session == session for call in self._active.values())
        running += sum(waiting.claim.session == session for waiting in self._waiting.values())
        return running + len(self._outcomes) + len(self._given_back)

    def ended(self, call: Call, ending: Ending) -> None:
        """Take the end of an attempt from an executor."""
        # Told that its lease is lost, a run may have stopped for that and just returned: its result does not count.
        self._ended.append((call, ending, call.run.lease_lost.is_set()))
        self._wake()

    def cancel(self, reasons: Mapping[int, str]) -> None:
        """Ask runs to stop: occurrence id → reason."""
        for call in list(self._active.values()):
            reason = reasons.get(call.claim.id)
            if reason is not None and not call.run.cancelled.is_set():
                self._executors[call.registered.executor].stop(call, reason)

    def lose_session(self, lease: SessionLease) -> int:
        """Stop everything that ``lease`` protected, which is lost or can no longer be trusted; return how many runs.

        What ends wakes the node. This does not: while the store is away, each round that fails comes by here, and would
        have the next one begin at once.
        """
        calls = [call for call in list(self._active.values()) if call.claim.session == lease.session]
        calls = [call for call in calls if not call.run.lease_lost.is_set()]
        for call in calls:
            self._interrupt(call, "lease lost", lease_lost=True)
        return len(calls)

    def stop_all(self, reason: str) -> None:
        """Ask every run to stop; the end of a drain. What does not end before ``cut_off_all`` is cut off there."""
        for call in list(self._active.values()):
            self._interrupt(call, reason)

    def _interrupt(self, call: Call, reason: str, *, lease_lost: bool = False) -> None:
        """Stop a run on the node's own account: nobody asked that its occurrence be cancelled."""
        if not call.run.cancelled.is_set():
            self._interrupted.add((call.claim.id, call.claim.token))
        self._executors[call.registered.executor].stop(call, reason, lease_lost=lease_lost)

    # --- what the node's rounds do -----------------------------------------------------------------------------------

    def doubt(self) -> None:
        """Note that there may be claims here that nobody has heard of."""
        nothing_held = not self
        self.in_doubt = True
        if nothing_held:
            self._on_work()

    def begin(self, claim: Claim, lease: SessionLease) -> None:
        """Start a run; give it back if nobody here can, or if the lease is not trusted."""
        nothing_held = not self
        self._begin(claim, lease)
        if nothing_held:
            self._on_work()

    def begin_at(self, at: float, claim: Claim, lease: SessionLease) -> None:
        """Start a run in the first ``begin_due`` that comes at or after ``at`` (monotonic seconds)."""
        nothing_held = not self
        self._waiting[claim.id, claim.token] = _Waiting(at, claim, lease)
        if nothing_held:
            self._on_work()

    def begin_due(self) -> None:
        """Start what waits and whose time has come."""
        if not self._waiting:
            return
        now = self._clock.monotonic()
        for key, waiting in sorted(self._waiting.items(), key=lambda entry: entry[1].at):
            if waiting.at > now:
                return
            del self._waiting[key]
            self._begin(waiting.claim, waiting.lease)

    @property
    def begins_in(self) -> float | None:
        """Return the seconds until ``begin_due`` has something to do; ``None``: nothing waits."""
        if not self._waiting:
            return None
        return max(0.0, min(waiting.at for waiting in self._waiting.values()) - self._clock.monotonic())

    def _begin(self, claim: Claim, lease: SessionLease) -> None:
        registered = self._registry.get(claim.spec.function)
        if registered is None or not lease.trusted:
            self._given_back.append(claim)
            return
        effects = Effects(self._store, claim, self.notes)
        run = Run(claim, on_progress=self.notes.progress, on_line=self.notes.line, effects=effects)
        call = Call(claim, run, registered)
        self._active[(claim.id, claim.token)] = call
        try:
            self._executors[registered.executor].start(call)
        except Exception as error:  # noqa: BLE001 - logged
            # A claim that nobody runs and nobody gives back would wait for the end of this session.
            _log.exception("cannot start %r", run)
            failed = RunError(type=type(error).__name__, message=f"the node could not start it: {error}")
            self.ended(call, Ending(kind="raised", error=failed))

    def settle(self) -> bool:
        """Give the store the endings since the last round, and claims that go back; return whether there were any."""
        self._collect()
        if not self.unsettled:
            return False
        self.notes.flush(self._store)
        if self._outcomes:
            for answer in self._store.finish(list(self._outcomes.values())):
                self._telling.settled(answer, self._outcomes.pop((answer.id, answer.token)))
        if self._given_back:
            for claim, accepted in zip(self._given_back, self._store.release(self._given_back), strict=True):
                if not accepted:
                    self._telling.refused(claim.id, claim.token, State.PENDING)
            self._given_back.clear()
            self._store.notify()
        return True

    def cut_off_all(self) -> None:
        """Decide what becomes of what still runs when the node ends."""
        self._collect()
        self._given_back += [waiting.claim for waiting in self._waiting.values()]
        self._waiting.clear()
        for call in self._active.values():
            self._cut_off(call)
        self._active.clear()

    def _collect(self) -> None:
        """Decide what follows the endings that came in."""
        while self._ended:
            call, ending, lease_lost = self._ended.popleft()
            key = (call.claim.id, call.claim.token)
            if self._active.pop(key, None) is None:
                continue
            ending = call.run.ended(ending)
            lease_lost = lease_lost and not call.run.committed
            if lease_lost or (ending.kind == "cancelled" and key in self._interrupted):
                self._cut_off(call)
            else:
                self._outcomes[key] = settle(call.claim, ending)
                self._telling.ended(call.claim, self._outcomes[key])
            self._interrupted.discard(key)

    def _cut_off(self, call: Call) -> None:
        claim, why = call.claim, call.run.cancel_reason or "the node stops"
        outcome = cut_off(claim, why)
        if outcome is None:
            self._given_back.append(claim)
            self._telling.given_back(claim, why)
        else:
            self._outcomes[(claim.id, claim.token)] = outcome
            self._telling.ended(claim, outcome)
