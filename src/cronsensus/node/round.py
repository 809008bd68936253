"""A round of a node's work: report and claim, look, fire, start, set the alarm, sleep.

::

    step():  session ──▶ Work ──▶ Look ──▶ plan_firing ──▶ fire, claim ──▶ start ──▶ upkeep ──▶ set_alarm ──▶ sleep
               │           │        │           │              │             │         │
             open one   step()   look()       pure,          step()      executors  reclaim(),
             if lost    of the store        decide.py     of the store              prune()

Results never share a step with plans, and after an error they go alone: a plan that fails each time keeps no result
from the store. ``decide`` decides what a node does next, from what rounds remember, what the store returned, and what
the node knows about itself. This module calls the store, carries out the decisions, and handles errors. It has no
thread and no clock of its own: a thread calls ``run_round`` in production, a test or a simulation calls it by hand.

Failure handling: an error of the store ends the round, not the node. Nothing is started unless the lease is trusted. If
a session is lost, all of its runs are stopped (``run.lease_lost``); their results are still sent, and the store refuses
them by their tokens. Then the node goes on with a new session.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from cronsensus.bus import Bus
from cronsensus.errors import SchemaMismatch, StoreEmptied, StoreError, StoreReadOnly
from cronsensus.membership.lease import SessionLease
from cronsensus.membership.liveness import is_dead
from cronsensus.membership.loss import StoreWatch
from cronsensus.model.plan import Plan
from cronsensus.model.session import SessionSpec, SessionView
from cronsensus.model.states import State
from cronsensus.model.stuck import is_stuck
from cronsensus.node import decide
from cronsensus.node.active_runs import ActiveRuns
from cronsensus.node.backoff import backoff_seconds
from cronsensus.node.careful import Careful
from cronsensus.node.claiming import Claiming
from cronsensus.node.executors.base import Executor
from cronsensus.node.herd import Herd
from cronsensus.node.hooks import HooksFactory
from cronsensus.node.lead_time import ClockSample
from cronsensus.node.pace import STALLED_AFTER, Pace, Queue
from cronsensus.node.reconciling import Reconciling
from cronsensus.node.registered import Registered
from cronsensus.node.run import BaseRun
from cronsensus.node.run_events import RunEvents
from cronsensus.node.run_log import RunLog
from cronsensus.node.session import OwnSession
from cronsensus.node.settings import NodeSettings
from cronsensus.node.situation import NEVER, Adopt, Facts, Fired, Firing, Look, Memory, Release, Sleep, Work
from cronsensus.node.stats import NodeStats
from cronsensus.node.waking import Waking
from cronsensus.process.logger import Logger
from cronsensus.stores.base import Store
from cronsensus.stores.values import View
from cronsensus.timing.clock import Clock

_log = Logger("cronsensus.node")

FIRST_AND_LONGEST_WAIT = (0.1, 5.0)
"""First and longest wait after a store error, seconds."""
LOG_AGAIN_AFTER = (10.0, 60.0)
"""Seconds after which a node logs again that it cannot use the store: for another reason, and for the same."""
GRACE_SECONDS = 10.0
"""Seconds that a round may be late, even after a short sleep: a slow store is no dead node."""
HALTED_SECONDS = 60.0
"""Seconds between the rounds of a node that has stopped for good."""
PRUNED_AT_ONCE = 1000
LONGEST_ROUND = 5.0
"""Longest time of a round, in seconds: claims that start later are left to the next round."""
ERRORS_NOT_OF_PLANS = (SchemaMismatch, StoreEmptied, StoreReadOnly)
"""Errors of a store that no plan causes."""


class Cancellable(Protocol):
    """A scheduled action that can be withdrawn."""

    def cancel(self) -> None:
        """Withdraw the action."""


class Round:
    """Does a node's rounds; ``run_round`` returns the seconds until the next one, if nothing wakes the node before.

    Attributes:
        active_runs: what the node runs; for executors and the heartbeat too.
        waking: for the features of the node: decides which claims may start and which parked runs may go on.
        reconciling: receives from each renewal which runs the store lists for this node.
        draining: whether it takes nothing new.
        notified: whether a notification came since the last round began; set by the listener.
        woken: whether something else that a look may show happened since the last look; set by whatever wakes the node,
            except the listener and its runs.
    """

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
        ensure_runs: Callable[[Store], None] = lambda _: None,
        on_session: Callable[[SessionLease], None] = lambda _: None,
        on_work: Callable[[], None] = lambda: None,
        wake: Callable[[], None] = lambda: None,
        request_renewal: Callable[[], None] = lambda: None,
        after: Callable[[float, Callable[[], None]], Cancellable] | None = None,
        evidence: Callable[[SessionView], bool] = is_dead,
        bus: Bus | None = None,
        rooms: Sequence[HooksFactory] = (),
        make_run: Callable[..., BaseRun] = BaseRun,
    ) -> None:
        """Make the rounds of one node.

        Args:
            store: a handle of its own.
            clock: its monotonic side measures waits and trust; its wall clock decides nothing.
            settings: of this node.
            registry: functions by name; may grow while the node runs.
            executors: by the names of ``Registered.executor``.
            new_session: describes a session with a new id.
            declare: defines the application's jobs; called for each new session and again while it returns ``True``.
            ensure_runs: enqueues the runs that must always exist, if they are missing; called every half minute.
            on_session: called with each new session (the heartbeat renews it from then on).
            on_work: called when the lease begins to protect something, or must be checked (the heartbeat hurries).
            wake: starts the next round now; called from executors' threads.
            request_renewal: requests a renewal of the session as soon as possible.
            after: calls a function in so many seconds, on a thread that waits for nothing; ``None``: there is none.
            evidence: whether the process of a session is certainly gone.
            bus: receives the node's events.
            rooms: make the hooks of the features that take part.
            make_run: makes the ``Run`` of each attempt, with what features add to it.
        """
        self._store = store
        self._clock = clock
        self._settings = settings
        self._on_session = on_session
        self._on_work = on_work
        self._evidence = evidence
        self._after = after
        self.stats = NodeStats()
        self.draining = self.notified = self.woken = False
        self._asleep_until, self._planned = NEVER, 0.0
        self._run_log = RunLog(self.stats)
        self._run_events = RunEvents(bus or Bus(clock), settings.name)
        self._published_lost: str | None = None
        self._session = OwnSession(
            store,
            clock,
            settings,
            new_session=new_session,
            declare=declare,
            ensure_runs=ensure_runs,
            on_lease_shortened=on_work,
        )

        def wake_to_look() -> None:
            self.woken = True
            wake()

        def wake_to_claim() -> None:
            self.notified = True  # it knows that there is work, so it claims without a look
            wake()

        self.waking = Waking(store, clock, registry, wake_to_claim, rooms)
        self.active_runs = ActiveRuns(
            store,
            clock,
            registry=registry,
            executors=executors,
            wake=wake,
            on_work=on_work,
            run_log=self._run_log,
            run_events=self._run_events,
            waking=self.waking,
            make_run=make_run,
            zone=settings.zone,
        )
        self._claiming = Claiming(
            store, clock, settings, self.active_runs, registry=registry, run_log=self._run_log, waking=self.waking
        )
        self.reconciling = Reconciling(
            clock, self.active_runs, self._claiming, wake=wake_to_look, request_renewal=request_renewal
        )
        self.store_watch = StoreWatch(settings.name, stop=settings.stop_on_store_loss, wake=wake_to_look)
        self.reconciling.on_forgotten = self._claiming.on_forgotten = self.store_watch.note_sign_of_loss
        now = clock.monotonic()
        pace = Pace() if settings.reserves else None
        self._memory = Memory(active_at=now, reclaimed_at=now, pruned_at=now, pace=pace)
        self._not_planned: set[tuple[int, int]] = set()
        self._troubles = 0
        self._logged_trouble = "", NEVER

    @property
    def lease(self) -> SessionLease | None:
        """Return the present session's lease; ``None`` before the start."""
        return self._session.lease

    @property
    def decides(self) -> bool:
        """Whether the last round succeeded, and is no older than twice the sleep that it planned."""
        lost = self.lease is None or self.lease.is_lost
        return self.turns and not (lost or self._troubles or self.draining or self.store_watch.is_halted)

    @property
    def turns(self) -> bool:
        """Whether rounds go on, with or without success: the last is no older than twice the sleep that it planned."""
        return self._clock.monotonic() - self._asleep_until <= max(self._planned, GRACE_SECONDS)

    @property
    def status(self) -> str:
        """What the node is doing, in a few words."""
        if self.draining:
            return "draining: nothing new is taken, what runs may end"
        return "the store cannot be used; trying again" if self._troubles else "taking part"

    @property
    def is_stuck(self) -> bool:
        """Whether every slot has been held for a minute by a run that has exceeded its time."""
        return is_stuck(self._settings.concurrency, self.active_runs.list_overruns())

    def drain_node(self) -> None:
        """Claim no more work, and start no reserved claim; active runs go on."""
        self.draining = True
        self.active_runs.reserved.stop_starting()

    def open_session(self) -> None:
        """Open the session and declare the jobs; raises what the store raises."""
        self._trusted_session()

    def cut_off(self) -> None:
        """Decide what becomes of active runs; ``close_session`` reports it to the store."""
        if self.lease is not None and not self.lease.is_lost:
            self.active_runs.cut_off_all()

    def close_session(self) -> None:
        """Report the ends of runs, cut off active runs, and close the session."""
        self.cut_off()
        self._session.close_half_open()
        if self.lease is not None and not self.lease.is_lost:
            self.active_runs.send_report(self.lease.session)
            self._session.close_session()

    # --- one round -------------------------------------------------------------------------------------------------

    def run_round(self) -> float:
        """Do a round; return the seconds until the next, if nothing wakes the node before."""
        self.stats.steps += 1
        if self._asleep_until != NEVER:
            # If this round hangs, it is late from now on; the sleep planned before it does not count.
            self._asleep_until, self._planned = self._clock.monotonic(), 0.0
        # Before anything that waits for the store: claims made ahead of their time are due in this moment.
        self.active_runs.start_due()
        try:
            with self._start_due_by_timer():
                wait = self._try_round()
        except StoreEmptied:
            wait = self._stop_for_good()  # trying again later would not help
        except StoreError as error:
            wait = self._note_trouble(error)
        else:
            if self._troubles:
                _log.info("the store answers again after %d failed rounds", self._troubles)
                self._troubles = 0
        waits = [wait]
        if (starts_in := self.active_runs.starts_in) is not None:
            waits.append(starts_in)
        if (reserved_for := self.active_runs.reserved.waits_for) is not None:
            waits.append(max(0.0, STALLED_AFTER - reserved_for))
        self._planned = min(waits)
        self._asleep_until = self._clock.monotonic() + self._planned
        return self._planned

    @contextlib.contextmanager
    def _start_due_by_timer(self) -> Iterator[None]:
        """Start due claims by the timer in the meantime, because this thread may wait for the store."""
        call_after, first_start = self._after, self.active_runs.starts_in
        if call_after is None or first_start is None or first_start > LONGEST_ROUND:
            yield
            return

        deadlines: list[Cancellable] = []

        def start_and_rearm() -> None:
            self.active_runs.start_meanwhile()
            next_start = self.active_runs.starts_in
            if next_start is not None and 0 < next_start <= LONGEST_ROUND:
                deadlines.append(call_after(next_start, start_and_rearm))

        deadlines.append(call_after(first_start, start_and_rearm))
        try:
            yield
        finally:
            for deadline in deadlines:
                deadline.cancel()

    def _try_round(self) -> float:
        if self.store_watch.is_halted:
            return self._stop_for_good()
        lease = self._trusted_session()
        self.store_watch.record_losses(self._store)
        self.reconciling.correct_differences(lease)
        look = self._seconds_to_look(lease)
        if isinstance(look, Sleep):
            return look.seconds
        view, sample = self._read_view(lease, look)
        started_at = self._clock.monotonic()
        firing = decide.plan_firing(self._memory, view, self._collect_facts(lease), started_at)
        fired = self._carry_out(lease, firing, view, sample)
        firing_seconds = self._clock.monotonic() - started_at
        more_to_do = self._keep_up(lease, view)
        facts, now = self._collect_facts(lease), self._clock.monotonic()
        self._memory = decide.set_alarm(
            self._memory,
            view,
            facts,
            now,
            firing=firing,
            fired=fired,
            firing_seconds=firing_seconds,
            look_at_once=more_to_do,
        )
        if not facts.trusted:
            self._on_work()
        action, self._memory = decide.next_step(self._memory, facts, now, worked=True)
        return action.seconds if isinstance(action, Sleep) else 0.0

    def _seconds_to_look(self, lease: SessionLease) -> Look | Sleep:
        """Do the work that needs no look; return when to look, or how long to sleep."""
        worked = False
        notified, self.notified = self.notified, False
        self.active_runs.collect_endings()
        self.active_runs.start_reserved(self._claiming.free_slots)
        while True:
            facts = self._collect_facts(lease, notified=notified)
            step, self._memory = decide.next_step(self._memory, facts, self._clock.monotonic(), worked=worked)
            match step:
                case Adopt():
                    self._claiming.adopt_lost(lease)
                case Release():
                    self.active_runs.release_waiting(lost=lease.is_lost)
                case Work():
                    self._carry_out_work(lease, step)
                    worked = True
                case _:
                    return step

    def _carry_out_work(self, lease: SessionLease, work: Work) -> None:
        try:
            done = self._claiming.carry_out_step(lease, work)
        except StoreError:
            careful = self._memory.careful._replace(results_alone=True)
            self._memory = replace(self._memory, careful=careful)
            raise
        if self.draining and done.settled:
            # The ends may have freed work that waited for them; other nodes are to claim it now.
            self._store.notify()
        more_to_do = any(done.returned) or any(answer.state is State.PENDING for answer in done.settled)
        facts, now = self._collect_facts(lease), self._clock.monotonic()
        self._memory = decide.note_work(
            self._memory, facts, now, want=work.want, claimed=len(done.claims), pending_again=more_to_do
        )

    def _read_view(self, lease: SessionLease, look: Look) -> tuple[View, ClockSample]:
        """Look, and process what concerns the claims of this node."""
        request = lease.note_request()
        self.woken = False
        view = self._store.look(limit=look.limit, partition=look.partition, ahead=look.ahead)
        received_at = self._clock.monotonic()
        memory_before, self._memory = self._memory, decide.note_look(self._memory, view, request.at, received_at)
        if shift := decide.clock_set(memory_before, self._memory):
            direction = "ahead" if shift.total_seconds() > 0 else "back"
            # Ahead is downtime, back is a delay; neither repeats anything.
            if direction == "back":  # the runs that watch for alerts may wait for a time before the change
                self._session.request_declaring()
            advice = "" if direction == "ahead" else "; see what stands still until it has caught up: cronsensus doctor"
            _log.warning(
                "the store's clock was set %s by %s: due times follow it, nothing is repeated%s",
                direction,
                abs(shift),
                advice,
            )
        self.waking.learn_view(view)
        self.store_watch.compare_watermarks(view.jobs, view.now)
        self._claiming.adopt_unknown_claims(lease, view, request)
        self.reconciling.compare_view(lease, view)
        return view, ClockSample(view.now, received_at - view.age)

    def _carry_out(self, lease: SessionLease, firing: Firing, view: View, sample: ClockSample) -> Fired:
        """Send plans and claim, in a single step if there are both; start the claims that it won."""
        self._log_not_planned(firing)
        if not (firing.plans or firing.want or firing.internal):
            return Fired()
        try:
            done = self._claiming.carry_out_step(lease, firing, sample)
        except StoreError as error:
            self._note_failure(firing.plans, error)
            raise
        if lease.is_lost:
            return Fired()
        won = tuple(plan for plan, ok in zip(firing.plans, done.carried_out, strict=True) if ok)
        fired = Fired(won, len(firing.plans) - len(won), len(done.claims))
        if firing.plans:
            self.store_watch.note_plans(fired.won, view.now)
            self._run_log.log_plans(fired.won, lost=fired.lost)
            self._run_events.publish_plans(fired.won)
            self.waking.queue_plans(fired.won)
        if fired.created > fired.claimed:
            self._store.notify()
        return fired

    def _note_failure(self, plans: Sequence[Plan], error: StoreError) -> None:
        """Find the plan that makes the store fail, over some rounds."""
        careful_before, temporary = self._memory.careful, error.retryable or isinstance(error, ERRORS_NOT_OF_PLANS)
        careful = careful_before.after_failure(plans, self._clock.monotonic(), temporary=temporary)
        self._memory = replace(self._memory, careful=careful)
        if careful.set_aside != careful_before.set_aside:
            _log.error("job %r cannot be fired, and is left alone for a minute: %s", plans[0].job, error)

    def _log_not_planned(self, firing: Firing) -> None:
        for job, error in firing.not_planned:
            if (job.id, job.revision) not in self._not_planned:
                self._not_planned.add((job.id, job.revision))
                _log.error("cannot plan job %r; check its definition", job.spec.name, exc_info=error)

    def _keep_up(self, lease: SessionLease, view: View) -> bool:
        """Take over dead sessions, declare again, prune; return whether there may be more to do now."""
        now = self._clock.monotonic()
        judged_sessions = view.holders if self._settings.fast_evidence else ()
        dead = frozenset(held.id for held in judged_sessions if held.id != lease.session and self._evidence(held))
        upkeep, self._memory = decide.plan_upkeep(self._memory, view, self._collect_facts(lease, dead), now)
        more_to_do = False
        if upkeep.reclaim is not None:
            reclaimed = self._store.reclaim(list(upkeep.reclaim))
            nodes = {holder.id: holder.node for holder in view.holders if holder.id != lease.session}
            self._run_log.log_takeovers(reclaimed, self._settings.name, nodes)
            self._run_events.publish_takeovers(reclaimed, nodes)
            # Even if they failed for good, dependents may go on now. They are claimed without another look.
            more_to_do = bool(reclaimed)
            self.notified |= more_to_do
        self._session.declare_again()
        if upkeep.sweep:
            self.waking.request_sweep()
        if upkeep.prune:
            now = self._clock.monotonic()
            if self._store.prune(limit=PRUNED_AT_ONCE) >= PRUNED_AT_ONCE:
                return True
            self._memory = replace(self._memory, pruned_at=now)
        return more_to_do

    def _collect_facts(
        self, lease: SessionLease, gone: frozenset[str] = frozenset(), *, notified: bool = False
    ) -> Facts:
        active_runs, trusted = self.active_runs, lease.is_trusted
        reserved, undecided = active_runs.reserved, active_runs.undecided_reserves
        return Facts(
            session=lease.session,
            free_slots=self._claiming.free_slots if trusted and self._claiming.list_functions() else 0,
            internal=trusted and bool(self._claiming.internal_functions),
            in_doubt=active_runs.in_doubt,
            draining=self.draining,
            unsettled=active_runs.has_unsent_ends,
            queue=Queue(
                len(reserved) + undecided,
                reserved.is_half_empty and not undecided,
                reserved.waits_for,
                active_runs.ends,
            ),
            notified=notified,
            woken=self.woken,
            progress_in=active_runs.progress_in,
            given_up=active_runs.given_up > 0,
            trusted=trusted,
            lost=lease.is_lost,
            hears_notifications=self._hears_notifications,
            gone=gone,
            watch_seconds=self._settings.watch_seconds,
            fast_evidence=self._settings.fast_evidence,
            poll_seconds=min(self._settings.poll_seconds, self._store.capabilities.poll),
        )

    @property
    def _hears_notifications(self) -> bool:
        """Whether the store notifies this node; a store may know this only once it is connected."""
        capabilities = self._store.capabilities
        return capabilities.notify or capabilities.clock == "process"

    # --- sessions and trouble ----------------------------------------------------------------------------------------

    def _trusted_session(self) -> SessionLease:
        """Return a session whose lease is trusted; open a new session if the last is lost."""
        lease = self.lease
        if lease is not None:
            if not lease.is_lost:
                self._know_store(lease)
                return lease
            self._lose_session(lease)
            self.active_runs.release_waiting(lost=True)
        self.store_watch.check_store(self._store)
        self._refuse_if_halted()
        lease = self._session.open_session()
        self._claiming.reset_doubt()
        self.reconciling.reset_doubt()
        # The old session's memory of jobs is dropped: the store may be a new one.
        self._memory = replace(self._memory, look_at=NEVER, defers=False, careful=Careful(), herd=Herd())
        self.stats.sessions += 1
        self._on_session(lease)
        self._know_store(lease)
        return lease

    def _lose_session(self, lease: SessionLease) -> None:
        """Stop all runs of a lost session, and publish it once, in however many rounds."""
        if self._published_lost != lease.session:
            self._published_lost = lease.session
            self._run_events.publish_loss(lease.session, [number for number, _ in self.active_runs.list_open_claims()])
        self.active_runs.lose_session(lease)

    def _know_store(self, lease: SessionLease) -> None:
        """Record in the store watch which store the session is in; repeated until it is known."""
        if self.store_watch.session == lease.session or self._session.opened_at is None:
            return
        self.store_watch.note_opened(self._store, lease.session, self._session.opened_at)
        if self.store_watch.is_halted:  # emptied between the look and the opening
            with contextlib.suppress(StoreError):
                self._session.close_session()
        self._refuse_if_halted()

    def _refuse_if_halted(self) -> None:
        if self.store_watch.is_halted:
            raise StoreEmptied("the store was emptied, and on_store_loss='stop': nothing runs; restart this node")

    def _stop_for_good(self) -> float:
        """Stop everything: the store that this node knew is gone."""
        if self.lease is not None:
            self.lease.mark_lost()
            self._lose_session(self.lease)
        with contextlib.suppress(StoreError):
            # The store refuses the results; but a stop that waits for the runs here need not wait any longer.
            if self.lease is not None:
                self.active_runs.send_report(self.lease.session)
            self.store_watch.record_losses(self._store)
        return HALTED_SECONDS

    def _note_trouble(self, error: StoreError) -> float:
        self.stats.store_errors += 1
        self.woken = True
        self.store_watch.note_trouble(error)
        now, reason = self._clock.monotonic(), str(error)
        if self._troubles == 0:
            self._logged_trouble = "", NEVER
        if self._troubles == 0 and error.retryable:
            # A connection that was cut costs a round, and should not page anybody.
            _log.warning("the store did not answer, and is asked again: %s", reason)
        elif now - self._logged_trouble[1] >= LOG_AGAIN_AFTER[reason == self._logged_trouble[0]]:
            if self._logged_trouble[1] == NEVER:
                _log.error("the store cannot be used, so nothing is started until it can: %s", reason)
            else:  # the present error need not be the first
                _log.error("the store still cannot be used, after %d failed rounds: %s", self._troubles, reason)
            self._logged_trouble = reason, now
        self._troubles += 1
        lease = self.lease
        if lease is not None and not lease.is_trusted:
            self.active_runs.lose_session(lease)
        return backoff_seconds(
            self._troubles, FIRST_AND_LONGEST_WAIT, self._settings.name if lease is None else lease.session
        )
