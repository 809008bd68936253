"""What does this node hold, and what becomes of it?

::

    begin_if() ──▶ asked about
                          │
    begin_at() ──▶ waiting ──▶ begin_due()
                                   │
    reserve() ──▶ reserved ──▶ a slot is free
                                   │
                     begin() ──▶ active ──▶ ended() ──▶ outcome ──▶ settle(): the store has it
                                   │                       ▲
                                   └── cut off ────────────┴──▶ given back, for others to run

Endings stay here until the store has answered; they can be said again, so an answer that was lost is asked for again.
Executors' threads, the heartbeat and the node's rounds come here; what follows an ending is decided in the rounds. But
the slot of an attempt that ended passes to what is reserved at once, on the thread that tells of the end: in a long
queue of short jobs a round takes longer than many runs. And what is due begins on the timer's thread, or on that which
asks gates, where the rounds' thread waits for the store: a claim goes to the active runs under one lock.
"""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import NamedTuple

from cronsensus.clock import Clock
from cronsensus.errors import StoreError
from cronsensus.logger import ExcInfo, Logger, together
from cronsensus.membership.lease import SessionLease
from cronsensus.model.ending import Ending
from cronsensus.model.ends import End, Final, Then, is_snoozed
from cronsensus.model.job import is_internal
from cronsensus.model.occurrence import Claim, Cut, Settled
from cronsensus.model.states import Reason, State
from cronsensus.model.step import Done, GiveBack, Step
from cronsensus.model.stuck import overrun_of
from cronsensus.node.executors.base import Call, Executor
from cronsensus.node.executors.result import describe
from cronsensus.node.hooks import FREELY, Begin
from cronsensus.node.progress import ProgressBuffer
from cronsensus.node.registered import Registered
from cronsensus.node.reserved import Reserved
from cronsensus.node.run import BaseRun
from cronsensus.node.run_events import RunEvents
from cronsensus.node.run_log import RunLog
from cronsensus.node.run_transaction import RunTransaction, uncommitted
from cronsensus.node.said import Key, Said
from cronsensus.node.waking import Answer, Told, Waking
from cronsensus.retry import cut_off, settle
from cronsensus.stores.base import Store

_log = Logger("cronsensus.node")

_LOST = "lease lost"


class _Waiting(NamedTuple):
    """A claim that was made ahead, and when it begins; one that is asked about, never."""

    at: float
    claim: Claim
    lease: SessionLease


class _Due(NamedTuple):
    call: Call | None
    """``None``: it could not be made, and the claim goes back."""


class ActiveRuns:
    """The claims of this node, from their start until the store has taken their end.

    ``on_work`` is told when there begins to be something that the lease protects.

    Attributes:
        reserved: claims that wait for a free slot.
        ends: how many attempts have ended.
        in_doubt: whether the node may hold claims that it has not heard of.
        progress_buffer: what its runs say of themselves.
        said: which ends the store has accepted, for a while.
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
        run_log: RunLog,
        run_events: RunEvents,
        waking: Waking,
        make_run: Callable[..., BaseRun] = BaseRun,
        zone: str = "UTC",
    ) -> None:
        self._store = store
        self._clock = clock
        self._registry = registry
        self._unable: set[str] = set()
        self._executors = executors
        self._wake = wake
        self._on_work = on_work
        self._run_log = run_log
        self._run_events = run_events
        self._waking = waking
        self._make_run = make_run
        self._zone = zone
        self._to_tell: dict[Key, list[Told]] = {}
        """Of ends that the store has yet to take: what is looked at then, because something may go on."""
        self._begins: dict[Key, Begin] = {}
        """Of claims that are to begin: what features want with them."""
        self.in_doubt = False
        self.progress_buffer = ProgressBuffer(clock, wake)
        self._waiting: dict[Key, _Waiting] = {}
        self._asked: dict[Key, float] = {}
        """When claims begin that are asked about, if they may."""
        self._answers: deque[tuple[Claim, Answer]] = deque()
        """What was answered."""
        self._active: dict[Key, Call] = {}
        self._ended: deque[tuple[Call, Ending, bool]] = deque()
        self._ends: dict[Key, End] = {}
        self._given_back: list[GiveBack] = []
        self._perhaps_back: set[Key] = set()
        self._committing: dict[Key, Claim] = {}
        """Of those whose outcome is to be sent: the ones whose end a transaction of their own may have written."""
        self._known_since: dict[Key, float] = {}
        self.said = Said(clock)
        self._timed_out: deque[float] = deque(maxlen=1_000)
        """When the last timeouts were."""
        self._interrupted: set[Key] = set()
        self._unwanted: dict[Key, str] = {}
        """Claims that had not begun when their occurrences were cancelled, and why."""
        waking.on_answer = self._take_answer
        self.reserved = Reserved(clock, self._active)
        self._lock = self.reserved.lock
        """Held while a claim goes to the active runs: what looks at both must not find it in neither."""
        self.ends = 0

    # --- what others may ask or tell, from any thread ----------------------------------------------------------------

    @property
    def active(self) -> int:
        """Return how many runs are started, or about to, and not yet settled."""
        return len(self._waiting) + len(self.reserved) + len(self._active) + len(self._ends)

    @property
    def slots(self) -> int:
        """Return how many slots of the node are taken.

        What was given up and cannot be stopped counts, or a job that hangs each time would take all of the host.
        Internal jobs take none.
        """
        with self._lock:
            claims = [one.claim for one in self._waiting.values()] + [call.claim for call in self._active.values()]
        return sum(not is_internal(claim.job) for claim in claims) + self.given_up

    @property
    def given_up(self) -> int:
        """Return how many attempts are over and run on all the same."""
        return sum(executor.abandoned for executor in self._executors.values())

    def overruns(self) -> list[timedelta | None]:
        """Return by how much what holds the slots is over its time; ``None``: its job has no time.

        Of what was given up, since when is not known one by one: as many of the last timeouts stand for it.
        """
        now, given_up = self._clock.monotonic(), self.given_up
        held = [(call.claim.spec, now - self._known_since.get(key, now)) for key, call in list(self._active.items())]
        overruns = [overrun_of(spec, timedelta(seconds=ran)) for spec, ran in held if not is_internal(spec.name)]
        return overruns + [timedelta(seconds=now - at) for at in list(self._timed_out)[-given_up:] if given_up]

    @property
    def unsettled(self) -> bool:
        """Whether the store has yet to take something."""
        return bool(self._ends or self._given_back)

    def __bool__(self) -> bool:
        """Whether there is anything that the lease protects."""
        held = self._waiting or self.reserved or self._active or self._ends or self._given_back
        return bool(held or self.in_doubt)

    @property
    def progress_in(self) -> float | None:
        """Return the seconds until there is something to say of runs that go on; ``None``: there is nothing."""
        waits = [wait for wait in (self.progress_buffer.wanted_in, self.reserved.progress_in) if wait is not None]
        return min(waits, default=None)

    @property
    def can_be_stopped(self) -> bool:
        """Whether something still runs that ends soon after it is asked to: not a thread."""
        self.collect()
        return any(call.registered.executor != "thread" for call in list(self._active.values()))

    def unable(self) -> set[str]:
        """Return the names of the executors that can run nothing now."""
        unable = {name for name, executor in self._executors.items() if not executor.able}
        if self._unable != unable:
            self._unable = unable
            if unable:
                _log.error(
                    "the event loop that this node was started on does not run any more, so async jobs are left to "
                    "other nodes; stop the scheduler before its loop, or start it without one"
                )
        return unable

    def runs(self, run: BaseRun) -> bool:
        """Whether ``run`` is active here."""
        return any(call.run is run for call in list(self._active.values()))

    def known(self) -> set[Key]:
        """Return the (occurrence, token) of every claim whose end the store has not accepted."""
        back = {(one.claim.id, one.claim.token) for one in list(self._given_back)}
        with self.reserved.lock:
            return self._waiting.keys() | set(self.reserved.keys()) | self._active.keys() | self._ends.keys() | back

    def working(self, session: str) -> dict[Key, float]:
        """Return the claims that ``session`` must hold, as far as is known here, and since when that is known.

        Not among them: what has ended, what was told that its lease is lost, and runs whose end a transaction of their
        own may have written already.
        """
        with self._lock:
            keys = [key for key, waiting in self._waiting.items() if waiting.claim.session == session]
            keys += self.reserved.keys(session)
            active = list(self._active.items())
        for key, call in active:
            done = call.run.lease_lost.is_set() or call.run.may_have_committed
            if call.claim.session == session and not done:
                keys.append(key)
        return {key: self._known_since.get(key, -1.0) for key in keys}

    def bounds(self, session: str) -> tuple[int, int]:
        """Return how many runs the store must and may know of ``session``, where nothing is left to be settled."""
        least = len(self.working(session))
        ambiguous = [call for call in list(self._active.values()) if call.claim.session == session]
        open_ended = sum(call.run.may_have_committed or call.run.lease_lost.is_set() for call in ambiguous)
        return least, least + open_ended

    def count(self, session: str) -> int:
        """Return how many claims ``session`` may have, as far as is known here."""
        with self.reserved.lock:
            running = sum(call.claim.session == session for call in self._active.values())
            running += len(self.reserved.keys(session))
            running += sum(waiting.claim.session == session for waiting in self._waiting.values())
        return running + len(self._ends) + len(self._given_back)

    def ended(self, call: Call, ending: Ending) -> None:
        """Take the end of an attempt from an executor."""
        # Told that its lease is lost, a run may have stopped for that and just returned: its result does not count.
        self._ended.append((call, ending, call.run.lease_lost.is_set()))
        if ending.kind == "timed_out":
            self._timed_out.append(self._clock.monotonic())
        # What was given up on a blocked loop keeps its slot, and an internal job had none.
        frees = ending.kind != "timed_out" and not is_internal(call.claim.job)
        passed_on = self.reserved and frees and self._begin_reserved()
        if not passed_on or self.reserved.few:
            self._wake()

    def cancel(self, reasons: Mapping[int, str], held: Collection[Key] | None = None) -> None:
        """Ask runs to stop: occurrence id → reason; of an occurrence that was claimed anew, the run in ``held``.

        What has not begun goes back in the next round, and the store cancels it there.
        """
        self._waking.doubt()
        # What waits first: the slot of what is stopped passes to it at once, and it would be overlooked.
        with self.reserved.lock:
            waiting = [*self.reserved.keys(), *self._waiting]
        unwanted = {key: reasons[key[0]] for key in waiting if key[0] in reasons and (held is None or key in held)}
        self._unwanted |= unwanted
        for key, call in list(self._active.items()):
            reason = reasons.get(call.claim.id)
            if reason is None or (held is not None and key not in held):
                continue
            if not call.run.cancelled.is_set():
                self._executors[call.registered.executor].stop(call, reason)
        if unwanted:
            self._wake()

    def lose_session(self, lease: SessionLease) -> int:
        """Stop everything that ``lease`` protected, which is lost or can no longer be trusted; return how many runs.

        What ends wakes the node. This does not: while the store is away, each round that fails comes by here, and would
        have the next one begin at once.
        """
        calls = [call for call in list(self._active.values()) if call.claim.session == lease.session]
        calls = [call for call in calls if not call.run.lease_lost.is_set()]
        for call in calls:
            self._interrupt(call, _LOST, lease_lost=True)
        return len(calls)

    def stop_all(self, reason: str) -> None:
        """Ask every run to stop; the end of a drain. What does not end before ``cut_off_all`` is cut off there."""
        for call in list(self._active.values()):
            self._interrupt(call, reason)

    def _interrupt(self, call: Call, reason: str, *, lease_lost: bool = False) -> None:
        """Stop a run on the node's own account: no one asked that its occurrence be cancelled."""
        if not call.run.cancelled.is_set():
            self._interrupted.add((call.claim.id, call.claim.token))
        self._executors[call.registered.executor].stop(call, reason, lease_lost=lease_lost)

    # --- what the node's rounds do -----------------------------------------------------------------------------------

    def doubt(self) -> None:
        """Note that there may be claims of this session that this node has not heard of."""
        nothing_held = not self
        self.in_doubt = True
        if nothing_held:
            self._on_work()

    def begin(self, claim: Claim, lease: SessionLease) -> None:
        """Start a run; give it back if no executor here can, or if the lease is not trusted."""
        nothing_held = not self
        self._begin(claim, lease)
        if nothing_held:
            self._on_work()

    def begin_at(self, at: float, claim: Claim, lease: SessionLease) -> None:
        """Start a run in the first ``begin_due`` that comes at or after ``at`` (monotonic seconds)."""
        self._wait(at, claim, lease)

    def note(self, claim: Claim, begin: Begin) -> None:
        """Note what features want with a claim that is to begin."""
        if begin is not FREELY:
            self._begins[claim.id, claim.token] = begin

    def begin_if(self, at: float, claim: Claim, lease: SessionLease) -> None:
        """Start a run at ``at`` (monotonic seconds), or at once if that is over, when it is answered that it may."""
        self._asked[claim.id, claim.token] = at
        self._wait(math.inf, claim, lease)

    def _wait(self, at: float, claim: Claim, lease: SessionLease) -> None:
        nothing_held = not self
        self._known_since[claim.id, claim.token] = self._clock.monotonic()
        with self._lock:
            self._waiting[claim.id, claim.token] = _Waiting(at, claim, lease)
        if nothing_held:
            self._on_work()

    def _take_answer(self, claim: Claim, answer: Answer) -> None:
        """Take what becomes of a claim, on the thread that asked."""
        key = claim.id, claim.token
        with self._lock:
            at, waiting = self._asked.pop(key, None), self._waiting.get(key)
            if at is None or waiting is None:
                return  # it was withdrawn meanwhile
            if isinstance(answer, Begin):
                self.note(claim, answer)
                if not claim.reserved:
                    self._waiting[key] = waiting._replace(at=at)
            self._answers.append((claim, answer))
        if isinstance(answer, Begin):
            self.begin_meanwhile()
        self._wake()

    def _take_in_answers(self) -> None:
        """Settle the claims that may not begin, and reserve those that wait for a slot as well."""
        while self._answers:
            claim, answer = self._answers.popleft()
            key = claim.id, claim.token
            if isinstance(answer, Begin):
                self._run_log.started([claim])
                if claim.reserved and (waiting := self._waiting.get(key)) is not None:
                    self._withdraw(key)
                    self.note(claim, answer)
                    self.reserve([claim], waiting.lease)
            elif self._withdraw(key) is None:
                continue
            elif answer is None:
                self._give_back(claim, None)
            else:
                self.close(claim, answer)

    def reserve(self, claims: Sequence[Claim], lease: SessionLease) -> None:
        """Keep claims until slots are free."""
        nothing_held = not self
        calls = [self._call_of(claim, lease) for claim in claims]
        self.reserved.add([call for call in calls if call is not None], lease)
        if nothing_held:
            self._on_work()

    def begin_reserved(self, slots: int) -> None:
        """Begin what is reserved in so many free slots."""
        while slots > 0 and self.reserved and self._begin_reserved():
            slots -= 1

    def _begin_reserved(self) -> bool:
        """Begin what was reserved first; ``False``: there is nothing that can be begun now."""
        call = self.reserved.begin(self._start)
        if call is not None:
            self._run_log.begins(call.claim)
        return call is not None

    def hand_back(self, *, lost: bool = False) -> None:
        """Give back what is reserved; what a ``lost`` session had reserved is not this node's any more."""
        for claim in self.reserved.take_all():
            if lost:
                self._known_since.pop((claim.id, claim.token), None)
            else:
                self._give_back(claim, None)

    def begin_due(self) -> None:
        """Start what waits and whose time has come, or give it back."""
        while self._waiting and (due := self._take_due()) is not None:
            if due.call is not None:
                self._start(due.call)

    def begin_meanwhile(self) -> None:
        """Do so on another thread than that of the rounds, which waits for the store; give back nothing."""
        while self._waiting and (due := self._take_due(only_able=True)) is not None:
            if due.call is not None:
                self._start(due.call)

    def _take_due(self, *, only_able: bool = False) -> _Due | None:
        """Make the first that is due active; ``None``: none is, or it cannot begin here and ``only_able`` may."""
        with self._lock:
            key = min(self._waiting, key=lambda key: self._waiting[key].at, default=None)
            if key is None or self._waiting[key].at > self._clock.monotonic():
                return None
            _, claim, lease = self._waiting[key]
            if only_able and not self._is_able(claim, lease):
                return None
            del self._waiting[key]
            call = self._call_of(claim, lease)
            if call is not None:
                self._active[key] = call
            return _Due(call)

    @property
    def begins_in(self) -> float | None:
        """Return the seconds until ``begin_due`` has something to do; ``None``: nothing waits for a time."""
        with self._lock:
            at = min((waiting.at for waiting in self._waiting.values()), default=math.inf)
        return None if at == math.inf else max(0.0, at - self._clock.monotonic())

    def _begin(self, claim: Claim, lease: SessionLease) -> None:
        call = self._call_of(claim, lease)
        if call is not None:
            self._active[claim.id, claim.token] = call
            self._start(call)

    def _is_able(self, claim: Claim, lease: SessionLease) -> bool:
        registered = self._registry.get(claim.spec.function)
        return registered is not None and lease.trusted and self._executors[registered.executor].able

    def _call_of(self, claim: Claim, lease: SessionLease) -> Call | None:
        """Return the call that a claim is for; ``None``: it cannot be made here now, and goes back."""
        registered = self._registry.get(claim.spec.function)
        self._known_since.setdefault((claim.id, claim.token), self._clock.monotonic())
        if registered is None or not self._is_able(claim, lease):
            self._give_back(claim, None)
            return None
        begin = self._begins.pop((claim.id, claim.token), FREELY)
        if begin.perform is not None:
            registered = begin.perform(registered, claim)
        run_transaction = RunTransaction(self._store, claim, self.progress_buffer, registered.types)
        run = self._make_run(
            claim,
            namespace=self._store.namespace,
            on_progress=self.progress_buffer.progress,
            on_line=self.progress_buffer.line,
            run_transaction=run_transaction,
            trusted=lambda: lease.trusted,
            extras=begin.extras,
            zone=claim.spec.zone or self._zone,
        )
        return Call(claim, run, registered)

    def _start(self, call: Call) -> None:
        # Before: it may be over in a moment, and its end is told by another thread.
        self._run_events.begun(call.claim)
        try:
            self._executors[call.registered.executor].start(call)
        except Exception as error:  # noqa: BLE001 - logged
            # A claim that is neither run nor given back would wait for the end of this session.
            said = describe(error)
            failed = dataclasses.replace(said, message=f"the node could not start it: {said.message}")
            self.ended(call, Ending(kind="raised", error=failed))
            _log.exception("cannot start %r", call.run)

    def settle(self, session: str) -> bool:
        """Give the store what it has yet to take, in a step of its own; return whether there was anything."""
        with self.report() as said:
            if not said:
                return False
            done = self._store.step(session, said)
        self.settled(said, done)
        if said.give_back:
            self._store.notify()
        return True

    @contextmanager
    def report(self) -> Iterator[Step]:
        """Give what the store has yet to take: how runs ended, claims that go back, what runs say of themselves.

        A step is made of it within the body; all of it stays here until ``settled``, and is said again.
        """
        self.collect()
        with self.progress_buffer.writing() as notes:
            said = Step(
                notes=notes + self.reserved.notes(),
                ends=tuple(self._ends.values()),
                give_back=tuple(self._given_back),
            )
            try:
                yield said
            except StoreError:
                # It may be done all the same; asked again, the store says that they are not ours any more.
                self._perhaps_back.update((one.claim.id, one.claim.token) for one in said.give_back)
                raise

    def settled(self, said: Step, done: Done) -> None:
        """Keep what the store has accepted of a report.

        Others are told of what went back by the caller, and last: claims of the same step that were not begun because
        a notification failed would be known to nobody.
        """
        for note in said.notes:
            if note.ran is not None:
                self.reserved.unsaid.pop((note.id, note.token), None)
        with together():
            for answer in done.settled:
                self._settled(answer, self._ends.pop((answer.id, answer.token)))
        if not said.give_back:
            return
        taken = {(one.claim.id, one.claim.token) for one in said.give_back}
        self._given_back = [one for one in self._given_back if (one.claim.id, one.claim.token) not in taken]
        for one, accepted in zip(said.give_back, done.returned, strict=True):
            key = (one.claim.id, one.claim.token)
            if key in self._committing and not accepted:
                # It may have committed, and the answer was lost: to be told how a run ended, one has to say an end.
                self._perhaps_back.discard(key)
                self._to_settle(one.claim, uncommitted(one.claim))
                continue
            self._committing.pop(key, None)
            self._known_since.pop(key, None)
            is_back = accepted or key in self._perhaps_back
            self._run_events.returned(one, accepted=is_back)
            if is_back:
                self.said.remember(key, one)
            else:
                self._run_log.refused(*key, State.PENDING)
            self._perhaps_back.discard(key)

    def _settled(self, answer: Settled, end: End) -> None:
        """Keep what the store has accepted."""
        key = (answer.id, answer.token)
        committing = self._committing.pop(key, None)
        self._known_since.pop(key, None)
        if (tell := self._to_tell.pop(key, None)) is not None and (
            answer.state is not State.PENDING or is_snoozed(end.then)
        ):
            self._waking.tell(tell)
        if answer.accepted:
            if committing is not None and answer.state is State.SUCCEEDED:
                # Its effects are in the same database, and are forgotten with its end: then it has to run again.
                self.said.remember(key, GiveBack(claim=committing, cut="stopped"))
            else:
                self.said.remember(key, end)
        self._run_log.settled(answer, end)
        self._run_events.settled(answer, end)

    def _give_back(self, claim: Claim, cut: Cut | None) -> None:
        self._begins.pop((claim.id, claim.token), None)
        self._given_back.append(GiveBack(claim=claim, cut=cut))

    def say_again(self, key: Key) -> bool:
        """Send the end of a run once more that the store accepted and has forgotten; ``False``: it is known no more."""
        match self.said.take(key):
            case End() as end:
                self._ends[key] = end
            case GiveBack() as back:
                self._given_back.append(back)
            case None:
                return False
        return True

    def close(self, claim: Claim, then: Then) -> None:
        """Settle a claim that is not begun."""
        self._to_settle(claim, End.of(claim, then))

    def give_back(self, claim: Claim) -> None:
        """Give a claim back that is not begun."""
        self._give_back(claim, None)

    def close_unheard_of(self, claim: Claim, why: str) -> None:
        """Settle a claim that may have run here, and whose job must not run twice."""
        self._to_settle(claim, End.of(claim, Final(State.FAILED, f"{Reason.CRASHED}: {why}")))

    def disown(self, key: Key, why: str) -> Claim | None:
        """Stop a run that the store does not know as this session's; return its claim, if it was not over yet."""
        if (claim := self._withdraw(key)) is not None:
            self._known_since.pop(key, None)
            return claim
        call = self._active.get(key)
        if call is None:
            return None
        self._interrupt(call, f"{_LOST}: {why}", lease_lost=True)
        return call.claim

    def _withdraw(self, key: Key) -> Claim | None:
        """Let a claim wait no longer; ``None``: it does not wait."""
        with self._lock:
            waiting = self._waiting.pop(key, None)
            self._asked.pop(key, None)
        self._begins.pop(key, None)
        return self.reserved.remove(key) if waiting is None else waiting.claim

    def cut_off_all(self) -> None:
        """Decide what becomes of what still runs when the node ends."""
        self.collect()
        with self._lock:
            waiting = [one.claim for one in self._waiting.values()]
            self._waiting.clear()
            self._asked.clear()
        for claim in waiting:
            self._give_back(claim, None)
        self.reserved.close()
        self.hand_back()
        for call in self._active.values():
            self._cut_off(call, crashed=call.run.lease_lost.is_set())
        self._active.clear()

    def collect(self) -> None:
        """Decide what follows the endings and answers that came in, and what was cancelled before it began."""
        self._take_in_answers()
        while self._unwanted:
            key, reason = self._unwanted.popitem()
            if (claim := self._withdraw(key)) is not None:
                self._give_back(claim, None)
            else:  # it has begun meanwhile
                self.cancel({key[0]: reason}, {key})
        while self._waking.refused:
            applies, then = self._waking.refused.popleft()
            for claim in self.reserved.take(applies):
                self.close(claim, then)
        while self._ended:
            call, ending, lease_lost = self._ended.popleft()
            key = (call.claim.id, call.claim.token)
            self.ends += 1
            self.reserved.unsaid.pop(key, None)
            if self._active.pop(key, None) is None:
                continue
            ending = call.run.ended(ending)
            lease_lost = lease_lost and not call.run.committed
            interrupted = ending.cut_off or key in self._interrupted
            undone = ending.cut_off and ending.kind == "raised"
            if undone and call.run.may_have_committed:
                self._committing[key] = call.claim
            if lease_lost or undone or (ending.kind == "cancelled" and interrupted):
                if ending.begun:
                    self._cut_off(call, crashed=lease_lost or undone, why=_failure(ending) if undone else None)
                else:
                    self._give_back(call.claim, None)
            else:
                if call.run.may_have_committed:
                    self._committing[key] = call.claim
                self._to_settle(call.claim, settle(call.claim, ending), call.run.raised)
            self._interrupted.discard(key)

    def _cut_off(self, call: Call, *, crashed: bool, why: str | None = None) -> None:
        """Decide what becomes of a run that had begun and did not end by itself."""
        claim, why = call.claim, why or call.run.cancel_reason or "the node stops"
        end = cut_off(claim, why)
        if end is None:
            # Not as if it had never begun: a job that makes its nodes lose their lease would go round for ever.
            self._give_back(claim, "crashed" if crashed else "stopped")
            self._run_log.given_back(claim, why)
        else:
            self._to_settle(claim, end)

    def _to_settle(self, claim: Claim, end: End, raised: ExcInfo = None) -> None:
        self._ends[claim.id, claim.token] = end
        tell = self._waking.ended(claim, end.then)
        if tell:
            self._to_tell[claim.id, claim.token] = tell
        self._run_log.ended(claim, end, raised)
        self._run_events.remember(claim)


def _failure(ending: Ending) -> str:
    error = ending.error
    said = "" if error is None else f": {error.type}: {error.message}"
    return f"the store failed under it{said}"
