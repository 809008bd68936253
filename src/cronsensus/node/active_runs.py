"""The claims that this node holds, from winning them to the store's acceptance of their end.

::

    start_claim_if_admitted() ──▶ being decided
                                     │
    start_claim_at() ──▶ waiting ──▶ start_due()
                                     │
    reserve_claims() ──▶ reserved ──▶ a slot is free
                                     │
                  start_claim() ──▶ running ──▶ receive_ending() ──▶ ended ──▶ accept_report(): the store has it
                                     │                                 ▲
                                     └── cut off ──────────────────────┴──▶ released, for others to run

Executors' threads, the heartbeat and the node's rounds call this module. The rounds decide what follows an ending. But
the slot of an attempt that ended passes to a reserved claim at once, on the thread that reports the end: in a long
queue of short jobs a round takes longer than many runs. While the rounds' thread waits for the store, due claims start
on the timer's thread, or on the thread that decides about claims: a claim starts under a lock.
"""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from operator import itemgetter

from cronsensus.membership.lease import SessionLease
from cronsensus.model.ending import Ending
from cronsensus.model.ends import End, Final, Then
from cronsensus.model.job import is_internal
from cronsensus.model.occurrence import Claim, Cut
from cronsensus.model.states import Reason, State
from cronsensus.model.step import Done, Step
from cronsensus.model.stuck import overrun_of
from cronsensus.node.accepted_ends import AcceptedEnds, Key
from cronsensus.node.executors.base import Call, Executor
from cronsensus.node.executors.result import describe_error
from cronsensus.node.holding import Running, Waiting
from cronsensus.node.hooks import ADMITTED, Admit
from cronsensus.node.progress import ProgressBuffer
from cronsensus.node.registered import Registered
from cronsensus.node.report import Report
from cronsensus.node.reserved import Reserved
from cronsensus.node.run import BaseRun
from cronsensus.node.run_events import RunEvents
from cronsensus.node.run_log import RunLog
from cronsensus.node.run_transaction import RunTransaction
from cronsensus.node.waking import Answer, Waking
from cronsensus.process.logger import Logger
from cronsensus.retry import decide_cut_off, decide_end
from cronsensus.stores.base import Store
from cronsensus.timing.clock import Clock

_log = Logger("cronsensus.node")

LOOP_PAUSE = 5.0
"""Seconds for which an event loop may stand still before that is logged: some servers stop it between start and use."""
_LEASE_LOST = "lease lost"
Admitted = tuple[Claim, Admit]
"""A claim that may start, and what features add to it."""


class ActiveRuns:
    """The claims of this node, from their start until the store has accepted their end.

    Attributes:
        report: what the store has yet to accept.
        reserved: claims that wait for a free slot.
        ends: how many attempts have ended.
        in_doubt: whether the node may hold claims that it does not know of.
        progress_buffer: progress and log lines of its runs.
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
        """Start without claims; ``on_work`` is called when the lease begins to protect something."""
        self._store = store
        self._clock = clock
        self._registry = registry
        self._unable_since = math.inf
        """Since when an executor has been unable to run anything, by the clock's monotonic time."""
        self._logged_unable = False
        self._executors = executors
        self._wake = wake
        self._on_work = on_work
        self._run_log = run_log
        self._run_events = run_events
        self._waking = waking
        self._make_run = make_run
        self._zone = zone
        self._held: dict[Key, Waiting | Running] = {}
        self._answers: deque[tuple[Claim, Answer]] = deque()
        """The decisions that have arrived about claims."""
        self._ended: deque[tuple[Call, Ending, bool]] = deque()
        self._timed_out: deque[float] = deque(maxlen=1_000)
        """The times of the last timeouts."""
        self._unwanted: deque[tuple[Key, str]] = deque()
        """Claims whose occurrences were cancelled before they started, and why."""
        self.in_doubt = False
        self.ends = 0
        self.progress_buffer = ProgressBuffer(clock, wake)
        self.report = Report(clock, waking=waking, run_log=run_log, run_events=run_events)
        self.reserved = Reserved(clock, self._held)
        self._lock = self.reserved.lock
        """Held while a claim starts: whoever lists all claims must find it in exactly one place."""
        waking.on_answer = self._receive_answer

    # --- for other parts of the node, from any thread ----------------------------------------------------------------

    @property
    def accepted_ends(self) -> AcceptedEnds:
        """Which ends the store has accepted, for a while."""
        return self.report.accepted

    @property
    def active_count(self) -> int:
        """Return how many runs are started, or about to, and not yet settled."""
        return len(self._held) + len(self.reserved) + len(self.report.unsent_ends)

    @property
    def slots_taken(self) -> int:
        """Return how many slots of the node are taken.

        An attempt that was given up and cannot be stopped counts, or a job that hangs each time would fill the host.
        Internal jobs take none. A claim to be reserved takes none while its admission is being decided.
        """
        return sum(_takes_slot(held) for _, held in self._list_held()) + self.given_up

    @property
    def undecided_reserves(self) -> int:
        """Return how many claims will wait for a slot once they are admitted."""
        return sum(isinstance(held, Waiting) and held.claim.reserved for _, held in self._list_held())

    @property
    def given_up(self) -> int:
        """Return how many attempts count as ended although their function still runs."""
        return sum(executor.abandoned_count for executor in self._executors.values())

    def list_overruns(self) -> list[timedelta | None]:
        """Return how far each run that takes a slot has exceeded its time; ``None`` if its job has no limit.

        For attempts that were given up, single times are not known: as many of the last timeouts are used instead.
        """
        now, given_up = self._clock.monotonic(), self.given_up
        running = [(run.claim.spec, now - run.since) for _, run in self._list_running()]
        overruns = [overrun_of(spec, timedelta(seconds=ran)) for spec, ran in running if not is_internal(spec.name)]
        return overruns + [timedelta(seconds=now - at) for at in list(self._timed_out)[-given_up:] if given_up]

    @property
    def has_unsent_ends(self) -> bool:
        """Whether something is still to be recorded in the store."""
        return bool(self.report.owed)

    def __bool__(self) -> bool:
        """Whether there is anything that the lease protects."""
        return bool(self._held or self.reserved or self.report.owed or self.in_doubt)

    @property
    def progress_in(self) -> float | None:
        """Return the seconds until progress is to be reported; ``None`` if no run has any."""
        waits = [wait for wait in (self.progress_buffer.wanted_in, self.reserved.progress_in) if wait is not None]
        return min(waits, default=None)

    @property
    def can_be_stopped(self) -> bool:
        """Whether a run is left that ends soon when it is asked to stop: any but those in threads."""
        self.collect_endings()
        return any(run.call.registered.executor != "thread" for _, run in self._list_running())

    def find_unable_executors(self) -> set[str]:
        """Return the names of the executors that can run nothing now."""
        unable = {name for name, executor in self._executors.items() if not executor.is_able}
        now = self._clock.monotonic()
        if not unable:
            self._unable_since, self._logged_unable = math.inf, False
        elif math.isinf(self._unable_since):
            self._unable_since = now
        elif now - self._unable_since >= LOOP_PAUSE and not self._logged_unable:
            self._logged_unable = True
            _log.error(
                "the event loop that this node was started on does not run any more, so async jobs are left to other "
                "nodes; stop the scheduler before its loop, or start it without one"
            )
        return unable

    def is_running(self, run: BaseRun) -> bool:
        """Whether ``run`` is active here."""
        return any(running.call.run is run for _, running in self._list_running())

    def list_open_claims(self) -> set[Key]:
        """Return the (occurrence, token) of every claim whose end the store has not accepted."""
        with self._lock:
            return {*self._held, *self.reserved.list_keys(), *self.report.owed}

    def list_held_claims(self, session: str) -> dict[Key, float]:
        """Return the claims that ``session`` must hold, as far as known here, and since when that is known.

        Not included: runs that have ended or learned that their lease is lost, and runs whose own transaction may have
        written their end already.
        """
        with self._lock:
            held, reserved = list(self._held.items()), self.reserved.list_keys(session)
        return reserved | {
            key: claim.since for key, claim in held if claim.claim.session == session and not _is_open_ended(claim)
        }

    def bound_run_count(self, session: str) -> tuple[int, int]:
        """Return how many runs the store must and may know of ``session``, if no end is left to be reported."""
        least = len(self.list_held_claims(session))
        open_ended = sum(_is_open_ended(run) for _, run in self._list_running() if run.claim.session == session)
        return least, least + open_ended

    def count_claims(self, session: str) -> int:
        """Return how many claims ``session`` may have, as far as is known here."""
        with self._lock:
            held = sum(claim.claim.session == session for claim in self._held.values())
            return held + len(self.reserved.list_keys(session)) + len(self.report.owed)

    def receive_ending(self, call: Call, ending: Ending) -> None:
        """Receive the end of an attempt from an executor."""
        # A run that knows of its lost lease may have stopped for that and just returned: its result does not count.
        self._ended.append((call, ending, call.run.lease_lost.is_set()))
        if ending.kind == "timed_out":
            self._timed_out.append(self._clock.monotonic())
        # A timed-out attempt on a blocked loop keeps its slot, and an internal job had none.
        frees = ending.kind != "timed_out" and not is_internal(call.claim.job)
        passed_on = self.reserved and frees and self._start_reserved()
        if not passed_on or self.reserved.is_half_empty:
            self._wake()

    def cancel_runs(self, reasons: Mapping[int, str], held: Collection[Key] | None = None) -> None:
        """Ask runs to stop: occurrence id → reason; of an occurrence that was claimed anew, the run in ``held``.

        Claims that have not started are released in the next round, and the store cancels them there.
        """
        self._waking.forget_answers()

        def is_meant(key: Key) -> bool:
            return key[0] in reasons and (held is None or key in held)

        # Waiting claims first: a stopped run's slot passes to one of them at once, which would then be overlooked.
        with self._lock:
            waiting = [key for key, held_claim in self._held.items() if isinstance(held_claim, Waiting)]
            unwanted = [(key, reasons[key[0]]) for key in (*self.reserved.list_keys(), *waiting) if is_meant(key)]
        self._unwanted += unwanted
        for key, run in self._list_running():
            if is_meant(key) and not run.call.run.cancelled.is_set():
                self._stop_run(run, reasons[key[0]])
        if unwanted:
            self._wake()

    def lose_session(self, lease: SessionLease) -> int:
        """Stop everything that ``lease`` protected, which is lost or can no longer be trusted; return how many runs.

        Each run that ends wakes the node; this call does not. While the store is away, each failing round calls it, and
        the next round would start at once.
        """
        runs = [run for _, run in self._list_running() if run.claim.session == lease.session]
        runs = [run for run in runs if not run.call.run.lease_lost.is_set()]
        for run in runs:
            self._interrupt_run(run, _LEASE_LOST, lease_lost=True)
        return len(runs)

    def stop_all(self, reason: str) -> None:
        """Ask every run to stop, at the end of a drain. ``cut_off_all`` ends those that go on."""
        for _, run in self._list_running():
            self._interrupt_run(run, reason)

    def _interrupt_run(self, run: Running, reason: str, *, lease_lost: bool = False) -> None:
        """Stop a run on the node's own account: its occurrence was not cancelled."""
        if not run.call.run.cancelled.is_set():
            run.interrupted = True
        self._stop_run(run, reason, lease_lost=lease_lost)

    def _stop_run(self, run: Running, reason: str, *, lease_lost: bool = False) -> None:
        self._executors[run.call.registered.executor].stop(run.call, reason, lease_lost=lease_lost)

    def _list_held(self) -> list[tuple[Key, Waiting | Running]]:
        with self._lock:
            return list(self._held.items())

    def _list_running(self) -> Iterator[tuple[Key, Running]]:
        """Yield the running claims, as of this moment."""
        for key, held in list(self._held.items()):
            if isinstance(held, Running):
                yield key, held

    # --- starting ----------------------------------------------------------------------------------------------------

    @contextmanager
    def _notice_first_work(self) -> Iterator[None]:
        nothing_held = not self
        yield
        if nothing_held:
            self._on_work()

    def doubt_claims(self) -> None:
        """Record that this session may have claims that this node does not know of."""
        with self._notice_first_work():
            self.in_doubt = True

    def start_claim(self, claim: Claim, lease: SessionLease, admit: Admit = ADMITTED) -> None:
        """Start a run; release its claim if no executor here can run it, or if the lease is not trusted."""
        with self._notice_first_work():
            call = self._call_of(claim, lease, admit)
            if call is not None:
                self._held[claim.id, claim.token] = Running(call, self._clock.monotonic())
                self._start_call(call)

    def start_claim_at(self, at: float, claim: Claim, lease: SessionLease, admit: Admit = ADMITTED) -> None:
        """Start a run in the first ``start_due`` that comes at or after ``at`` (monotonic seconds)."""
        self._hold_claim(Waiting(claim, lease, self._clock.monotonic(), at, admit=admit))

    def start_claim_if_admitted(self, at: float, claim: Claim, lease: SessionLease) -> None:
        """Start a run once it is admitted, at ``at`` (monotonic seconds), or at once if that has passed."""
        self._hold_claim(Waiting(claim, lease, self._clock.monotonic(), math.inf, then_at=at))

    def _hold_claim(self, waiting: Waiting) -> None:
        with self._notice_first_work(), self._lock:
            self._held[waiting.claim.id, waiting.claim.token] = waiting

    def _receive_answer(self, claim: Claim, answer: Answer) -> None:
        """Receive the decision about a claim, on the thread that made it."""
        with self._lock:
            held = self._held.get((claim.id, claim.token))
            if not isinstance(held, Waiting) or held.then_at is None:
                return  # it was withdrawn meanwhile
            if isinstance(answer, Admit) and not claim.reserved:
                held.at, held.admit = held.then_at, answer
            held.then_at = None
            self._answers.append((claim, answer))
        if isinstance(answer, Admit):
            self.start_meanwhile()
        self._wake()

    def _process_answers(self) -> None:
        """End or release the claims that were not admitted, and reserve those that now wait for a slot."""
        while self._answers:
            claim, answer = self._answers.popleft()
            if isinstance(answer, Admit):
                self._run_log.log_starts([claim])
                if not claim.reserved:
                    continue
            held = self._withdraw_waiting((claim.id, claim.token))
            if held is None:
                continue
            if isinstance(answer, Admit):
                self.reserve_claims([(claim, answer)], held.lease)
            elif answer is None:
                self.release_claim(claim)
            else:
                self.end_claim(claim, answer)

    def reserve_claims(self, claims: Sequence[Admitted], lease: SessionLease) -> None:
        """Keep claims until slots are free."""
        with self._notice_first_work():
            calls = [self._call_of(claim, lease, admit) for claim, admit in claims]
            self.reserved.add_calls([call for call in calls if call is not None], lease)

    def start_reserved(self, slots: int) -> None:
        """Start reserved claims in so many free slots."""
        while slots > 0 and self.reserved and self._start_reserved():
            slots -= 1

    def _start_reserved(self) -> bool:
        """Start the reserved claim that is first; ``False`` if none can start now."""
        call = self.reserved.start_first(self._start_call)
        if call is not None:
            self._run_log.log_reserved_start(call.claim)
        return call is not None

    def release_waiting(self, *, lost: bool = False) -> None:
        """Release the reserved claims; those of a ``lost`` session are dropped."""
        for claim in self.reserved.withdraw_all():
            if not lost:
                self.release_claim(claim)

    def start_due(self) -> None:
        """Start or release the claims whose time has come."""
        while due := self._list_due():
            for key in due:
                call = self._make_running(key)
                if call is not None:
                    self._start_call(call)

    def start_meanwhile(self) -> None:
        """Start due claims while the rounds' thread waits for the store, from another thread; release nothing."""
        for key in self._list_due():
            call = self._make_running(key, only_able=True)
            if call is not None:
                self._start_call(call)

    def _list_due(self) -> list[Key]:
        """Return the claims whose time has come, the earliest first."""
        now = self._clock.monotonic()
        due = [(held.at, key) for key, held in self._list_held() if isinstance(held, Waiting) and held.at <= now]
        return [key for _, key in sorted(due, key=itemgetter(0))]

    def _make_running(self, key: Key, *, only_able: bool = False) -> Call | None:
        """Make a due claim running; ``None``: it was withdrawn, or cannot start here and is released.

        With ``only_able`` a claim that cannot start here stays as it is.
        """
        with self._lock:
            waiting = self._held.get(key)
            if not isinstance(waiting, Waiting) or (only_able and not self._is_able(waiting.claim, waiting.lease)):
                return None
            del self._held[key]
            call = self._call_of(waiting.claim, waiting.lease, waiting.admit)
            if call is not None:
                self._held[key] = Running(call, waiting.since)
            return call

    @property
    def starts_in(self) -> float | None:
        """Return the seconds until ``start_due`` has work; ``None`` if no claim waits for its time."""
        at = min((held.at for _, held in self._list_held() if isinstance(held, Waiting)), default=math.inf)
        return None if at == math.inf else max(0.0, at - self._clock.monotonic())

    def _is_able(self, claim: Claim, lease: SessionLease) -> bool:
        registered = self._registry.get(claim.spec.function)
        return registered is not None and lease.is_trusted and self._executors[registered.executor].is_able

    def _call_of(self, claim: Claim, lease: SessionLease, admit: Admit) -> Call | None:
        """Return the call that a claim is for; ``None``: it cannot start here now, and is released."""
        registered = self._registry.get(claim.spec.function)
        if registered is None or not self._is_able(claim, lease):
            self.release_claim(claim)
            return None
        if admit.perform is not None:
            registered = admit.perform(registered, claim)
        run = self._make_run(
            claim,
            namespace=self._store.namespace,
            on_progress=self.progress_buffer.note_progress,
            on_line=self.progress_buffer.note_line,
            run_transaction=RunTransaction(self._store, claim, self.progress_buffer, registered.types),
            trusted=lambda: lease.is_trusted,
            extras=admit.extras,
            zone=claim.spec.zone or self._zone,
        )
        return Call(claim, run, registered)

    def _start_call(self, call: Call) -> None:
        # Published first: the run may end in a moment, and another thread publishes its end.
        self._run_events.publish_start(call.claim)
        try:
            self._executors[call.registered.executor].start(call)
        except Exception as error:  # noqa: BLE001 - logged
            # A claim that is neither run nor released would wait for the end of this session.
            described = describe_error(error)
            failed = dataclasses.replace(described, message=f"the node could not start it: {described.message}")
            self.receive_ending(call, Ending(kind="raised", error=failed))
            _log.exception("cannot start %r", call.run)

    # --- ending ------------------------------------------------------------------------------------------------------

    def send_report(self, session: str) -> bool:
        """Send the report in a step of its own; return whether there was anything to send."""
        with self.open_report() as step:
            if not step:
                return False
            done = self._store.step(session, step)
        self.accept_report(step, done)
        if step.give_back:
            self._store.notify()
        return True

    @contextmanager
    def open_report(self) -> Iterator[Step]:
        """Give the report as a step: ends of runs, released claims, and progress and log lines.

        All of it stays here until ``accept_report``; until then it is sent again.
        """
        self.collect_endings()
        with (
            self.progress_buffer.open_writing() as notes,
            self.report.open_step(notes + self.reserved.start_notes()) as step,
        ):
            yield step

    def accept_report(self, step: Step, done: Done) -> None:
        """Drop from the report what the store has accepted.

        The caller notifies other nodes of released claims last: if that failed earlier, nobody would know the new
        claims of the same step.
        """
        for note in step.notes:
            if note.ran is not None:
                self.reserved.unrecorded_starts.pop((note.id, note.token), None)
        self.report.drop_accepted(step, done)

    def send_again(self, key: Key) -> bool:
        """Send an end again that the store accepted and has lost; ``False``: this node does not know it any more."""
        return self.report.send_again(key)

    def end_claim(self, claim: Claim, then: Then) -> None:
        """End a claim whose run has not started."""
        self.report.record_end(claim, End.of(claim, then))

    def release_claim(self, claim: Claim) -> None:
        """Release a claim whose run has not started."""
        self.report.record_release(claim, None)

    def fail_unknown_claim(self, claim: Claim, reason: str) -> None:
        """Fail a claim that may have run here, and whose job must not run twice."""
        self.end_claim(claim, Final(State.FAILED, f"{Reason.CRASHED}: {reason}"))

    def disown_run(self, key: Key, reason: str) -> Claim | None:
        """Stop a run that the store does not list for this session; return its claim, unless it had ended."""
        if (claim := self._withdraw_claim(key)) is not None:
            return claim
        held = self._held.get(key)
        if not isinstance(held, Running):
            return None
        self._interrupt_run(held, f"{_LEASE_LOST}: {reason}", lease_lost=True)
        return held.claim

    def _withdraw_waiting(self, key: Key) -> Waiting | None:
        """Withdraw a claim that waits for its time; ``None`` if it does not wait."""
        with self._lock:
            held = self._held.get(key)
            if not isinstance(held, Waiting):
                return None
            del self._held[key]
            return held

    def _withdraw_claim(self, key: Key) -> Claim | None:
        """Withdraw and return a claim that waits for its time or a slot; ``None`` if it does not wait."""
        waiting = self._withdraw_waiting(key)
        return self.reserved.withdraw_claim(key) if waiting is None else waiting.claim

    def cut_off_all(self) -> None:
        """Decide what becomes of the runs that are active when the node ends."""
        self.collect_endings()
        self.reserved.stop_starting()
        for key, held in self._list_held():
            if isinstance(held, Waiting) and self._withdraw_waiting(key) is not None:
                self.release_claim(held.claim)
        self.release_waiting()
        for key, run in self._list_running():
            self._cut_off(run.call, crashed=run.call.run.lease_lost.is_set())
            del self._held[key]

    def collect_endings(self) -> None:
        """Process the endings and answers that arrived, and the claims that were cancelled before their start."""
        refused = [self._waking.refused.popleft() for _ in range(len(self._waking.refused))]
        self._process_answers()  # also those that came before the refusals: what they reserve is refused
        while self._unwanted:
            key, reason = self._unwanted.popleft()
            if (claim := self._withdraw_claim(key)) is not None:
                self.release_claim(claim)
            else:  # it has started meanwhile
                self.cancel_runs({key[0]: reason}, {key})
        for applies, then in refused:
            for claim in self.reserved.withdraw_matching(applies):
                self.end_claim(claim, then)
        while self._ended:
            self._process_ending(*self._ended.popleft())

    def _process_ending(self, call: Call, ending: Ending, lease_lost: bool) -> None:  # noqa: FBT001
        """Decide what follows the end of an attempt; ``lease_lost``: whether its lease was lost before."""
        key = call.claim.id, call.claim.token
        self.ends += 1
        self.reserved.unrecorded_starts.pop(key, None)
        held = self._held.get(key)
        if not isinstance(held, Running):
            return
        try:
            self._end_run(held, call.run.effective_ending(ending), lease_lost=lease_lost and not call.run.committed)
        finally:
            del self._held[key]  # last, so that at every moment it is listed as running, as ended, or as both

    def _end_run(self, run: Running, ending: Ending, *, lease_lost: bool) -> None:
        call, store_failed = run.call, ending.cut_off and ending.kind == "raised"
        may_have_committed = call.run.may_have_committed
        if not (lease_lost or store_failed or (ending.kind == "cancelled" and (ending.cut_off or run.interrupted))):
            end = decide_end(call.claim, ending)
            self.report.record_end(call.claim, end, call.run.raised, may_have_committed=may_have_committed)
            return
        may_have_committed = may_have_committed and store_failed
        if ending.begun:
            reason = _describe_failure(ending) if store_failed else None
            self._cut_off(
                call, crashed=lease_lost or store_failed, reason=reason, may_have_committed=may_have_committed
            )
        else:
            self.report.record_release(call.claim, None, may_have_committed=may_have_committed)

    def _cut_off(
        self, call: Call, *, crashed: bool, reason: str | None = None, may_have_committed: bool = False
    ) -> None:
        """Decide what becomes of a run that its node cuts off."""
        claim, reason = call.claim, reason or call.run.cancel_reason or "the node stops"
        end = decide_cut_off(claim, reason)
        if end is None:
            # It counts as started: a job that makes its nodes lose their lease would otherwise be retried for ever.
            cut: Cut = "crashed" if crashed else "stopped"
            self.report.record_release(claim, cut, may_have_committed=may_have_committed)
            self._run_log.log_release(claim, reason)
        else:
            self.report.record_end(claim, end, may_have_committed=may_have_committed)


def _takes_slot(held: Waiting | Running) -> bool:
    return not is_internal(held.claim.job) and not (isinstance(held, Waiting) and held.claim.reserved)


def _is_open_ended(held: Waiting | Running) -> bool:
    """Whether a run here may have ended in the store already, or belong to another session by now."""
    if isinstance(held, Waiting):
        return False
    return held.call.run.lease_lost.is_set() or held.call.run.may_have_committed


def _describe_failure(ending: Ending) -> str:
    error = ending.error
    details = "" if error is None else f": {error.type}: {error.message}"
    return f"the store failed under it{details}"
