"""The crank: one round of a node's work, and when to turn it again. Floor 4.

::

    step():  session ──▶ settle ──▶ look ──▶ fire ──▶ claim ──▶ start ──▶ take over ──▶ sleep until …
               │            │         │        │        │         │            │
             open one    finish()   due()   plan() +  claim()  executors   reclaim()
             if lost     in a batch          fire()

The conductor has no thread and no clock of its own: a thread turns the crank in production, a test or a simulation by
hand. It holds claims, hands them to executors, and hands their endings to the store. Everything that decides is pure
and elsewhere: ``plan`` (what a job owes), ``settle`` (what follows an ending), ``head_start`` (whose turn it is).

Failure handling: an error of the store ends the round, not the node. Endings stay here until the store has answered;
``finish`` is idempotent, so an answer that was lost is asked for again. Nothing is started unless the lease is
trusted. A session that is lost stops all it was running (``run.lease_lost``); its endings are still sent, and the
store refuses them by their tokens. Then the node goes on as a new session.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from cronsensus.clock import Clock
from cronsensus.errors import LeaseLost, StoreError
from cronsensus.model.ending import Ending
from cronsensus.model.job import JobState
from cronsensus.model.occurrence import Claim, Outcome, RunError
from cronsensus.model.plan import Plan
from cronsensus.model.session import SessionSpec, SessionView
from cronsensus.model.states import State
from cronsensus.node.ahead import LEAD, REHEARSAL, Ahead, Prepared
from cronsensus.node.doubt import unheard_of
from cronsensus.node.effects import Effects, tell_unrecorded
from cronsensus.node.evidence import Absence, is_dead
from cronsensus.node.executors.base import Call, Executor, Registered
from cronsensus.node.lease import IDLE_LEASE, SessionLease
from cronsensus.node.notes import Notes
from cronsensus.node.run import Run
from cronsensus.node.telling import Telling
from cronsensus.node.waking import Waking
from cronsensus.planning import plan
from cronsensus.retry import cut_off, settle
from cronsensus.stores.base import Glance, Store

_log = logging.getLogger("cronsensus.node")

WATCH = 0.5
"""Seconds between looks while another node runs something: how soon its death is noticed."""
HOUSEKEEPING = 3600.0
TIDY = 600.0
SAY_AGAIN = 30.0
"""Seconds between two tries to declare what a newer release left aside."""
PATIENCE = (0.1, 5.0)
"""First and longest wait after a store error, seconds."""
MOST_DUE = 200
PRUNED_AT_ONCE = 1000
SHARED_FROM = 8
"""Occurrences fired at once from which a node leaves the others their share."""


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """What a node is told at its start. ``fast_evidence=False`` judges other sessions by their lease alone."""

    name: str
    lease: timedelta
    concurrency: int
    fast_evidence: bool = True


@dataclass(slots=True)
class Tally:
    """What a conductor did since its start; for tests, metrics and people."""

    steps: int = 0
    fired: int = 0
    lost_races: int = 0
    claimed: int = 0
    settled: int = 0
    refused: int = 0
    taken_over: int = 0
    sessions: int = 0
    store_errors: int = 0


class Conductor:
    """Turns one node's crank; ``step`` returns the seconds until it wants to be turned again, if not woken before."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        settings: NodeSettings,
        *,
        registry: Mapping[str, Registered],
        executors: Mapping[str, Executor],
        new_session: Callable[[], SessionSpec],
        declare: Callable[[Store], bool],
        on_session: Callable[[SessionLease], None] = lambda _: None,
        on_work: Callable[[], None] = lambda: None,
        wake: Callable[[], None] = lambda: None,
        evidence: Callable[[SessionView], bool] = is_dead,
    ) -> None:
        """Make a conductor.

        Args:
            store: a handle of its own.
            clock: its monotonic side measures waits and trust; its wall clock decides nothing.
            settings: what the node was told.
            registry: functions by name; may grow while the node runs.
            executors: by the names of ``Registered.executor``.
            new_session: describes a session with a new id.
            declare: puts the application's jobs; called for each new session and again while it returns ``True``.
            on_session: told of each new session (the keeper renews it from then on).
            on_work: told when the lease begins to protect something, or must be asked about (the keeper hurries).
            wake: makes whoever turns the crank turn it now; called from executors' threads.
            evidence: tells whether the process of a session is certainly gone.
        """
        self._store = store
        self._clock = clock
        self._settings = settings
        self._registry = registry
        self._executors = executors
        self._new_session = new_session
        self._declare = declare
        self._declare_again = False
        self._on_session = on_session
        self._on_work = on_work
        self._wake = wake
        self._evidence = evidence
        self._absence = Absence()
        self.tally = Tally()
        self.lease: SessionLease | None = None
        self.draining = False
        self._active: dict[tuple[int, int], Call] = {}
        self._ended: deque[tuple[Call, Ending, bool]] = deque()
        self._outcomes: dict[tuple[int, int], Outcome] = {}
        self._given_back: list[Claim] = []
        self._notes = Notes(clock, wake)
        self._interrupted: set[tuple[int, int]] = set()
        self._claims_in_doubt = False
        self._answers_lost = False
        self._half_open: str | None = None
        self._waking = Waking()
        self._troubles = 0
        self._housekept_at = clock.monotonic()
        self._declared_at = clock.monotonic()
        self._reclaimed_at = clock.monotonic()
        self._backlog_seen = False
        self._looked_at = -1e9
        self._look_at = -1e9
        self._ahead = Ahead()
        self._telling = Telling()
        self._one_host = store.capabilities.hosts == "one"

    # --- what others may ask or tell, from any thread --------------------------------------------------------------

    @property
    def active(self) -> int:
        """Return how many runs this node holds: started and not yet settled."""
        return len(self._active) + len(self._outcomes)

    @property
    def holds(self) -> bool:
        """Whether the node holds anything that its lease protects."""
        return bool(self._active or self._outcomes or self._given_back or self._claims_in_doubt)

    @property
    def can_be_stopped(self) -> bool:
        """Whether something still runs that ends soon after it is asked to: not a thread."""
        self._collect()
        return any(call.registered.executor != "thread" for call in self._active.values())

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
        """Ask every run to stop; the end of a drain. What does not end before ``end`` is cut off there."""
        for call in list(self._active.values()):
            self._interrupt(call, reason)

    def _interrupt(self, call: Call, reason: str, *, lease_lost: bool = False) -> None:
        """Stop a run on the node's own account: nobody asked that its occurrence be cancelled."""
        if not call.run.cancelled.is_set():
            self._interrupted.add((call.claim.id, call.claim.token))
        self._executors[call.registered.executor].stop(call, reason, lease_lost=lease_lost)

    def begin(self) -> None:
        """Open the session and declare the jobs; raises what the store raises."""
        self._session()

    def end(self) -> None:
        """Settle what ended, cut off what still runs, and close the session."""
        if self._half_open is not None:
            self._store.close_session(self._half_open)
            self._half_open = None
        if self.lease is not None and not self.lease.lost:
            self._collect()
            for call in self._active.values():
                self._cut_off(call.claim, call.run.cancel_reason or "the node stops")
            self._active.clear()
            self._settle()
            self._store.close_session(self.lease.session)
            self.lease.lose()
            self._store.notify()

    # --- one round -------------------------------------------------------------------------------------------------

    def step(self) -> float:
        """Do one round; return the seconds until the next, if nobody wakes the node before."""
        self.tally.steps += 1
        try:
            wait = self._round()
        except StoreError as error:
            return self._trouble(error)
        if self._troubles:
            _log.info("the store answers again after %d failed rounds", self._troubles)
            self._troubles = 0
        return wait

    def _round(self) -> float:
        lease = self._session()
        self._settle()
        if self._claims_in_doubt:
            self._adopt(lease)
        if self.draining:
            return self._watch_while_draining()
        if (wait := self._use_prepared(lease)) is not None:
            return wait
        if self._backlog_seen and self._clock.monotonic() < min(self._looked_at + WATCH, self._look_at):
            # The hot path of a long queue: while claims come back full there is no need to look around each time, but
            # for what is due to be fired.
            if not self._free() or (self._claim(lease, self._free()) and not self._free()):
                return max(0.0, min(WATCH, self._look_at - self._clock.monotonic()))
            self._backlog_seen = False
        asked = lease.ask()
        glance = self._store.due(MOST_DUE)
        read_at = (asked.at + self._clock.monotonic()) / 2
        self._looked_at = read_at
        self._waking.compare_clocks(read_at, glance.now)
        self._absence.note(glance.absent, read_at)
        if self._answers_lost and (mine := self._overlooks(lease, glance)) is not None:
            # That claim made the lease short, whatever was answered since.
            lease.shorten(asked, mine.expires_in)
            self._on_work()
            self._adopt(lease)
        not_yet = self._waking.left_to_others(lease.session, glance)
        fired, again, coming, claimed = 0, False, None, 0
        if not glance.jobs:
            self._waking.lost_in_a_row = 0
        if glance.jobs and not_yet <= timedelta(0):
            fired, claimed, again, coming = self._fire(lease, self._plans(glance.jobs, glance.now), glance)
        if glance.backlog and not fired and not_yet <= timedelta(0):
            claimed = self._claim(lease, self._free())
        self._waking.fruitless = self._waking.fruitless + 1 if glance.backlog and not claimed else 0
        self._backlog_seen = claimed > 0 and not self._free()
        if self._notes.wanted_in == 0.0:
            self._notes.flush(self._store)
        again |= self._take_over(lease, glance)
        again |= self._housekeep()
        return self._sleep(lease, glance, read_at, not_yet, coming, again=again)

    def _session(self) -> SessionLease:
        """Return a session that may work, opening a new one if the last is lost."""
        lease = self.lease
        if lease is not None and not lease.lost:
            return lease
        if lease is not None:
            self.lose_session(lease)
        if self._half_open is not None:
            # The answer was lost, or the declaration failed: a session that nobody uses must not count as a live node.
            self._store.close_session(self._half_open)
        spec = self._new_session()
        self._half_open = spec.id
        # It holds nothing yet; the first claim makes the lease short.
        length = max(self._settings.lease, IDLE_LEASE)
        lease = SessionLease(spec.id, self._clock)
        asked = lease.ask()
        self._store.open_session(spec, lease=length)
        lease.confirm(asked, length)
        self._declare_again = self._declare(self._store)
        self._declared_at = self._clock.monotonic()
        self._half_open = None
        self._claims_in_doubt = self._answers_lost = False
        self.lease = lease
        self.tally.sessions += 1
        self._on_session(lease)
        return lease

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
                self._cut_off(call.claim, call.run.cancel_reason or "the node stops")
            else:
                self._outcomes[key] = settle(call.claim, ending)
                self._telling.ended(call.claim, self._outcomes[key])
            self._interrupted.discard(key)

    def _cut_off(self, claim: Claim, why: str) -> None:
        outcome = cut_off(claim, why)
        if outcome is None:
            self._given_back.append(claim)
            self._telling.given_back(claim, why)
        else:
            self._outcomes[(claim.id, claim.token)] = outcome
            self._telling.ended(claim, outcome)

    def _settle(self) -> None:
        """Give the store the endings since the last round, and claims that go back."""
        self._collect()
        if self._outcomes or self._given_back:
            self._notes.flush(self._store)
        if self._outcomes:
            answers = self._store.finish(list(self._outcomes.values()))
            for answer in answers:
                outcome = self._outcomes.pop((answer.id, answer.token))
                self.tally.settled += answer.accepted
                self._telling.settled(answer, outcome)
                if not answer.accepted:
                    self._refused(answer.id, answer.token, outcome.state)
                elif answer.state is State.SUCCEEDED is not outcome.state:
                    tell_unrecorded(outcome)
        if self._given_back:
            for claim, accepted in zip(self._given_back, self._store.release(self._given_back), strict=True):
                if not accepted:
                    self._refused(claim.id, claim.token, State.PENDING)
            self._given_back.clear()
            self._store.notify()

    def _refused(self, occurrence: int, token: int, wanted: State) -> None:
        self.tally.refused += 1
        _log.warning(
            "refused the end of occurrence %d (token %d, %s): it was taken over or closed meanwhile",
            occurrence, token, wanted,
        )  # fmt: skip

    def _plans(self, jobs: Sequence[JobState], now: datetime) -> list[Plan]:
        plans = []
        for job in jobs:
            try:
                plans.append(plan(job, now))
            except Exception:  # noqa: BLE001 - logged
                # One job's broken definition must not keep the others from firing; it stays due and visible.
                _log.exception("cannot plan job %r; its definition needs a look", job.spec.name)
        return plans

    def _fire(
        self, lease: SessionLease, plans: Sequence[Plan], glance: Glance
    ) -> tuple[int, int, bool, datetime | None]:
        """Carry plans out, and start what this node takes of that.

        Returns how many occurrences this node created, how many it claimed, whether more is due already, and when the
        next of what it fired is due: the glance was taken before and cannot know.
        """
        answers: list[bool] = []
        claims: list[Claim] = []
        planned = sum(len(each.occurrences) for each in plans)
        limit = self._fair_share(planned, glance)
        if planned and self._may_claim(lease, limit):
            with self._claiming(lease) as claims:
                answers, claims[:] = self._store.fire_and_claim(
                    plans, lease.session, limit, tuple(self._registry), lease=self._settings.lease
                )
            if lease.lost:
                return 0, 0, True, None
        else:
            answers = self._store.fire(plans)
        won = [each for each, ok in zip(plans, answers, strict=True) if ok]
        created = sum(len(each.occurrences) for each in won)
        self.tally.fired += created
        lost = len(plans) - len(won)
        self.tally.lost_races += lost
        self._telling.fired(won)
        coming = [each.next_due for each in won if each.next_due is not None]
        coming += [one.due_at for each in won for one in each.occurrences if one.due_at > glance.now]
        # Whoever won the others knows when they are due next; this node has to look.
        self._waking.lost_in_a_row = self._waking.lost_in_a_row + 1 if lost else 0
        again = (bool(won) and glance.more) or any(at <= glance.now for at in coming)
        if created > len(claims):
            self._store.notify()
        return created, len(claims), again, min(coming, default=None)

    def _use_prepared(self, lease: SessionLease) -> float | None:
        """Rehearse or fire what was planned ahead, if it is time to; return how long to wait if that was all."""
        now = self._clock.monotonic()
        if (prepared := self._ahead.rehearse(now)) is not None:
            # Too early by the store's clock; where it is not, this was no rehearsal, and the look that follows claims.
            if not any(self._store.fire(prepared.plans)) and not self._claim(lease, self._free()):
                return max(0.0, prepared.due_at - self._clock.monotonic())
        elif (prepared := self._ahead.take(now)) is not None:
            self._fire(lease, prepared.plans, prepared.glance)
        return None

    def _prepare(self, glance: Glance, read_at: float) -> None:
        """Look again shortly before the next due time if it is this node's turn then, and make the plans."""
        instant = self._waking.ours
        if instant is None or self._ahead.is_for(instant):
            return
        due_at = read_at + (instant - glance.now).total_seconds()
        if self._clock.monotonic() < due_at - LEAD:
            self._look_at = min(self._look_at, due_at - LEAD)
        elif self._free():
            plans = self._plans(self._store.upcoming(instant, MOST_DUE), instant)
            plans = [replace(each, not_before=instant) for each in plans]
            self._ahead.prepare(Prepared(instant, due_at, plans, glance))
            if self._one_host:
                self._look_at = min(self._look_at, due_at - REHEARSAL)

    def _free(self) -> int:
        # What was given up and cannot be stopped counts, or a job that hangs each time would take all of the host.
        return max(0, self._settings.concurrency - len(self._active) - self._given_up())

    def _given_up(self) -> int:
        return sum(executor.abandoned for executor in self._executors.values())

    def _fair_share(self, fired: int, glance: Glance) -> int:
        """Return how many occurrences to claim of those just fired: all of a few, a share of many."""
        nodes = len(glance.sessions)
        if fired < SHARED_FROM or nodes < 2 or glance.backlog:
            return self._free()
        return min(self._free(), -(-fired // nodes))

    def _may_claim(self, lease: SessionLease, limit: int) -> bool:
        return limit > 0 and lease.trusted and bool(self._registry)

    def _claim(self, lease: SessionLease, limit: int) -> int:
        """Claim and start up to ``limit`` runs; return how many."""
        if not self._may_claim(lease, limit):
            return 0
        with self._claiming(lease) as claims:
            claims[:] = self._store.claim(lease.session, limit, tuple(self._registry), lease=self._settings.lease)
        return len(claims)

    @contextmanager
    def _claiming(self, lease: SessionLease) -> Iterator[list[Claim]]:
        """Start the claims that the body puts into the list; know what to think of the lease where it fails."""
        claims: list[Claim] = []
        nothing_held = not self.holds
        asked = lease.ask()
        try:
            yield claims
        except LeaseLost:
            self._session_lost(lease)
            return
        except StoreError:
            # Only the answer may be lost: then the lease is short, and runs are ours that we have not heard of. In this
            # order, or a renewal asked in between may find the node idle and its long answer be trusted.
            self._claims_in_doubt = self._answers_lost = True
            lease.shorten(asked, self._settings.lease)
            self._on_work()
            raise
        if not claims:
            return
        shorter = lease.claimed(asked, self._settings.lease)
        self._telling.started(claims)
        for claim in claims:
            self._start(claim, lease)
        if shorter or nothing_held:
            self._on_work()
        self.tally.claimed += len(claims)

    def _adopt(self, lease: SessionLease) -> None:
        """Start what a claim won whose answer never came."""
        known = self._active.keys() | self._outcomes.keys() | {(claim.id, claim.token) for claim in self._given_back}
        for claim in unheard_of(self._store, lease.session, known):
            _log.info("occurrence %d of %r was claimed, but the answer was lost: it runs here", claim.id, claim.job)
            self._start(claim, lease)
            self.tally.claimed += 1
        self._claims_in_doubt = False

    def _overlooks(self, lease: SessionLease, glance: Glance) -> SessionView | None:
        """Return this session if it holds more than this node knows of: a claim was made after its answer was lost."""
        mine = next((holder for holder in glance.holders if holder.id == lease.session), None)
        running = sum(call.claim.session == lease.session for call in self._active.values())
        known = running + len(self._outcomes) + len(self._given_back)
        return mine if mine is not None and mine.holds > known else None

    def _start(self, claim: Claim, lease: SessionLease) -> None:
        registered = self._registry.get(claim.spec.function)
        if registered is None or not lease.trusted:
            self._given_back.append(claim)
            return
        effects = Effects(self._store, claim, self._notes)
        run = Run(claim, on_progress=self._notes.progress, on_line=self._notes.line, effects=effects)
        call = Call(claim, run, registered)
        self._active[(claim.id, claim.token)] = call
        try:
            self._executors[registered.executor].start(call)
        except Exception as error:  # noqa: BLE001 - logged
            # A claim that nobody runs and nobody gives back would wait for the end of this session.
            _log.exception("cannot start %r", run)
            failed = RunError(type=type(error).__name__, message=f"the node could not start it: {error}")
            self.ended(call, Ending(kind="raised", error=failed))

    def _session_lost(self, lease: SessionLease) -> None:
        _log.warning("session %s is lost: stopping its runs and going on as a new one", lease.session)
        lease.lose()
        self.lose_session(lease)

    def _take_over(self, lease: SessionLease, glance: Glance) -> bool:
        """Reclaim the runs of sessions that are overdue or evidently dead; ``True``: there may be work to claim now.

        Sessions that hold nothing show in no glance; a timer sweeps them away.
        """
        others = [holder for holder in glance.holders if holder.id != lease.session]
        dead = [holder.id for holder in others if self._settings.fast_evidence and self._seems_dead(holder)]
        overdue = any(holder.expires_in <= timedelta(0) for holder in glance.holders)
        now = self._clock.monotonic()
        if not dead and not overdue and now - self._reclaimed_at < TIDY:
            return False
        self._reclaimed_at = now
        taken = self._store.reclaim(dead)
        self.tally.taken_over += len(taken)
        self._telling.taken(taken, self._settings.name, {holder.id: holder.node for holder in others})
        # Also where they failed for good: what waited behind them may go on.
        return bool(taken)

    def _seems_dead(self, session: SessionView) -> bool:
        return self._absence.is_gone(session.id, self._looked_at) or self._evidence(session)

    # --- time ------------------------------------------------------------------------------------------------------

    @property
    def _told(self) -> bool:
        """Whether hints reach this node; a store may find out only when it has a connection."""
        capabilities = self._store.capabilities
        return capabilities.notify or capabilities.clock == "process"

    def _sleep(
        self,
        lease: SessionLease,
        glance: Glance,
        read_at: float,
        not_yet: timedelta,
        coming: datetime | None,
        *,
        again: bool,
    ) -> float:
        """Return the seconds until something wants this node, by what it saw at ``read_at``."""
        if again or self._outcomes or self._given_back or lease.lost:
            return 0.0
        waits = [
            self._waking.wait(
                lease.session,
                glance,
                not_yet,
                coming,
                free=self._free() > 0,
                watch=WATCH,
                told=self._told,
            ),
        ]
        if (notes := self._notes.wanted_in) is not None:
            waits.append(notes)
        if self._given_up():
            # A thread that returns at last frees a slot and tells nobody.
            waits.append(WATCH)
        if self._settings.fast_evidence and glance.absent:
            others = {holder.id for holder in glance.holders if holder.id != lease.session}
            if (doubt := self._absence.wants_look_in(others, read_at)) is not None:
                waits.append(doubt)
        if not lease.trusted:
            self._on_work()
            waits.append(WATCH)
        self._look_at = read_at + min(waits)
        self._prepare(glance, read_at)
        return max(0.0, self._look_at - self._clock.monotonic())

    def _trouble(self, error: StoreError) -> float:
        self.tally.store_errors += 1
        if self._troubles == 0:
            _log.error("the store cannot be used, so nothing is started until it can: %s", error)
        self._troubles += 1
        lease = self.lease
        if lease is not None and not lease.trusted:
            self.lose_session(lease)
        first, longest = PATIENCE
        return min(longest, first * 2.0 ** min(self._troubles, 10))

    def _watch_while_draining(self) -> float:
        self._notes.flush(self._store)
        return 0.0 if self._outcomes or self._given_back else WATCH

    def _housekeep(self) -> bool:
        """Now and then: prune what was kept long enough, and say again what a newer release left aside.

        Returns whether there is more to prune. One batch a round, because what is due must not wait for care.
        """
        now = self._clock.monotonic()
        if self._declare_again and now - self._declared_at > SAY_AGAIN:
            self._declared_at = now
            self._declare_again = self._declare(self._store)
        if now - self._housekept_at <= HOUSEKEEPING:
            return False
        more = self._store.prune(limit=PRUNED_AT_ONCE) >= PRUNED_AT_ONCE
        if not more:
            self._housekept_at = now
        return more
