"""A node: the threads that do rounds, renew the session, and listen."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

from cronsensus.bus import Bus
from cronsensus.errors import CronsensusError, StoreError
from cronsensus.membership.heartbeat import SHORTEST_WAIT, Heartbeat
from cronsensus.membership.lease import LeaseRequest, SessionLease
from cronsensus.membership.lease_monitor import LeaseMonitor
from cronsensus.membership.leaving import LEAVING_SECONDS, ended_within
from cronsensus.membership.liveness import is_dead
from cronsensus.membership.renewer import SessionRenewer
from cronsensus.membership.timer import Timer
from cronsensus.model.ending import Ending
from cronsensus.model.session import Renewal, SessionSpec, SessionView
from cronsensus.node.executors.base import Call, Executor
from cronsensus.node.executors.logs import RunLogHandler
from cronsensus.node.executors.loop import LoopExecutor
from cronsensus.node.executors.processes import ProcessExecutor
from cronsensus.node.executors.result import stack_of
from cronsensus.node.executors.threads import ThreadExecutor
from cronsensus.node.hooks import HooksFactory
from cronsensus.node.listener import Listener
from cronsensus.node.registered import Registered
from cronsensus.node.round import Round
from cronsensus.node.run import BaseRun
from cronsensus.node.settings import NodeSettings
from cronsensus.node.stats import NodeStats
from cronsensus.process.interrupts import Event
from cronsensus.process.logger import Logger, flush, log_aloud
from cronsensus.stores.base import Store
from cronsensus.timing.clock import Clock

_log = Logger("cronsensus.node")

BUG_PAUSE = 1.0
LONGEST_WATCH = 3600.0
"""Seconds, if there is nothing to watch."""
FIRST_RENEWAL = 1.0
"""Most seconds that a node on a database server waits for its session's first renewal before it claims anything."""
STUCK_CHECK_EVERY = 10.0
"""Seconds between two checks whether the rounds go on."""
STUCK_CHECKS = 12
"""How many checks in a row find the same round before the node gives up. Not seconds: a process that was frozen for an
hour has checked once."""
STOPPING_SECONDS = 2.0
"""Seconds that runs have to end after they were asked to stop, when the node stops; the log has as long again."""


class Node:
    """Takes part: fires, claims, runs, takes over. ``start`` once, and ``stop`` once, at any time."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        settings: NodeSettings,
        *,
        registry: Mapping[str, Registered],
        new_session: Callable[[], SessionSpec],
        declare: Callable[[Store], bool],
        ensure_runs: Callable[[Store], None] = lambda _: None,
        loop: asyncio.AbstractEventLoop | None = None,
        on_drained: Callable[[], None] = lambda: None,
        on_failed: Callable[[], None] = lambda: None,
        evidence: Callable[[SessionView], bool] = is_dead,
        heartbeat: Heartbeat | None = None,
        bus: Bus | None = None,
        rooms: Sequence[HooksFactory] = (),
        make_run: Callable[..., BaseRun] = BaseRun,
    ) -> None:
        """Make a node on handles of its own on ``store``.

        Args:
            store: the node opens siblings of it.
            clock: for waits and trust.
            settings: name, lease, concurrency.
            registry: functions by name; may grow while the node runs.
            new_session: describes a session with a new id.
            declare: defines the application's jobs; returns whether it must be called again later.
            ensure_runs: enqueues the runs that must always exist, if they are missing; called every half minute.
            loop: the application's event loop, if its async jobs are to run there.
            on_drained: called once, when the node is draining, for any reason, and nothing runs any more.
            on_failed: called once, on a thread of its own, when the node cannot go on; it is to be stopped.
            evidence: whether the process of a session is certainly gone.
            heartbeat: renews the session, and all leases of this process in the store; ``None``: a heartbeat of its
                own.
            bus: receives the node's events.
            rooms: make the hooks of the features that take part.
            make_run: makes the ``Run`` of each attempt, with what features add to it.
        """
        self._store = store.sibling()
        self._settings = settings
        self._clock = clock
        self._on_drained = on_drained
        self._on_failed = on_failed
        self.failed: str | None = None
        self._stuck = False
        self._wake_event = self._round_event()
        self._stopping = Event()
        self._drained = Event()
        self._drain_over = Event()
        """Set when ``stop`` need not wait for runs any more: none is left, or ``end_drain`` was called."""
        self._timer = self._watchdog()
        self._monitor = LeaseMonitor(clock, self._timer)
        self._executors = self._make_executors(loop)
        self.round = Round(
            self._store,
            clock,
            settings,
            registry=registry,
            executors=self._executors,
            new_session=new_session,
            declare=declare,
            ensure_runs=ensure_runs,
            on_session=self._on_session,
            on_work=self._on_work,
            wake=self._wake_event.set,
            request_renewal=self._request_renewal,
            after=self._timer.call_after,
            evidence=evidence,
            bus=bus,
            rooms=rooms,
            make_run=make_run,
        )
        self._heartbeat = heartbeat or Heartbeat(store, clock)
        self._renewer = SessionRenewer(
            clock,
            lease=settings.lease,
            holds=lambda: bool(self.round.active_runs),
            on_renewal=self._on_renewal,
            beat_within=self._heartbeat.beat_within,
            idle_lease=settings.idle_lease,
            idle_renewal=settings.idle_renewal,
        )
        self._renewed = Event()
        self._renewal_wanted = False
        """Whether a notification came since the renewer was last asked to renew."""
        self._listener = Listener(store.sibling(), self._on_notification)
        self._rounds_thread: threading.Thread | None = None
        self._listener_thread: threading.Thread | None = None
        self._leaving_until = 0.0
        self._left = False
        self._failing = threading.Lock()
        self._rounds = 0
        self._in_round = 0
        """The number of the present round; 0: none."""
        self._seen_round = self._seen_again = 0

    # --- replaced in a simulation -------------------------------------------------------------------------------------

    def _round_event(self) -> Event:
        """Return the event on which the rounds' thread sleeps."""
        return Event()

    def _watchdog(self) -> Timer:
        return Timer(self._clock)

    def _make_executors(self, loop: asyncio.AbstractEventLoop | None) -> Mapping[str, Executor]:
        on_ending, clock, timer = self._receive_ending, self._clock, self._timer
        return {
            "thread": ThreadExecutor(on_ending, clock, timer),
            "async": LoopExecutor(on_ending, clock, timer, loop=loop),
            "process": ProcessExecutor(on_ending, clock, timer, most=self._settings.concurrency),
        }

    # --- from start to stop ------------------------------------------------------------------------------------------

    @property
    def stats(self) -> NodeStats:
        """Return what this node did so far."""
        return self.round.stats

    @property
    def session(self) -> str | None:
        """Return the id of the present session; ``None`` before the start."""
        return None if self.round.lease is None else self.round.lease.session

    @property
    def decides(self) -> bool:
        """Whether its last decisions were on time, and more are to come."""
        return self.failed is None and not self._stopping.is_set() and self.round.decides

    @property
    def is_stuck(self) -> bool:
        """Whether every slot has been held for a minute by a run that is over its time."""
        return self.round.is_stuck

    @property
    def draining(self) -> bool:
        """Whether the node takes nothing new."""
        return self.round.draining

    def start(self) -> None:
        """Open the session, declare the jobs, and begin.

        Raises:
            StoreError: the store cannot be used now; nothing was started. After any exception, call ``stop``.
        """
        self.open_session()
        self._rounds_thread = _start_thread("rounds", self._run_rounds)
        self._listener_thread = _start_thread("listener", self._listener.run)
        self._heartbeat.add_member(self._renewer)
        self._timer.call_after(STUCK_CHECK_EVERY, self._watch_rounds)

    def open_session(self) -> None:
        """Open the session, declare the jobs, and keep the log lines of runs: the part of ``start`` without threads."""
        self.round.open_session()
        _keep_logs(self, self._clock)

    def drop_logs(self) -> None:
        """Stop keeping the log lines of runs."""
        _leave_logs(self)

    def is_running(self, run: BaseRun | None) -> bool:
        """Whether this node is executing ``run`` now."""
        return run is not None and self.round.active_runs.is_running(run)

    def wake(self) -> None:
        """Look at the store now."""
        self.round.woken = True
        self._wake_event.set()

    def drain(self) -> None:
        """Claim no more work; active runs go on. Returns at once."""
        self.round.drain_node()
        self.wake()

    def stop(self, drain: timedelta = timedelta(0)) -> bool:
        """Stop: let runs end for ``drain``, release the rest for others to claim at once, and close the session.

        Returns whether everything ended in time. A threaded run cannot be stopped from outside: its claim is released,
        its writes are fenced off, and its thread dies with the process. ``end_drain`` cuts the drain short, from any
        thread.
        """
        self.drain()
        all_ended = self._rounds_thread is None or (
            self._drain_over.wait(drain.total_seconds()) and self._drained.is_set()
        )
        self._leaving_until = self._clock.monotonic() + LEAVING_SECONDS
        self._stopping.set()
        self.wake()
        if self._rounds_thread is not None:
            self._rounds_thread.join(0.0 if self._stuck else LEAVING_SECONDS / 2)
        self._stop_runs()
        self.close()
        return all_ended

    def end_drain(self) -> None:
        """Stop waiting for runs to end, in the present or a later ``stop``."""
        self._drain_over.set()

    def close(self) -> None:
        """Close the session and free everything."""
        await_renewal = self._stop_renewals()
        try:
            # If a verb hangs on this handle, a second thread must not use it.
            in_use = self._rounds_thread is not None and self._rounds_thread.is_alive()
            if self._stuck and in_use:
                answered = self._report_in_time(self._end_session_of_a_stuck_node)
            elif in_use:
                answered = False
            else:
                self.round.cut_off()
                answered = self._report_in_time(self.round.close_session)
            if not answered:
                _log.warning("the store does not answer: the session is left to end with its lease")
        except StoreError as error:
            _log.warning("the session could not be closed, others will notice within its lease: %s", error)
        self.drop_logs()
        self._listener.stop()
        self.round.waking.stop()
        for executor in self._executors.values():
            executor.close()
        self._timer.close()
        if self._listener_thread is not None:
            self._listener_thread.join(max(SHORTEST_WAIT, self._seconds_to_leave))
        await_renewal(max(SHORTEST_WAIT, self._seconds_to_leave))
        flush(min(STOPPING_SECONDS, max(SHORTEST_WAIT, self._seconds_to_leave)))
        self._left = True
        self._store.close()

    def _report_in_time(self, report: Callable[[], None]) -> bool:
        """Send the last report to the store; ``False`` if it did not answer in time."""
        if self._rounds_thread is None:
            report()
            return True
        return ended_within(max(LEAVING_SECONDS / 4, self._seconds_to_leave), report)

    @property
    def _seconds_to_leave(self) -> float:
        return self._leaving_until - self._clock.monotonic()

    def _stop_runs(self) -> None:
        """Ask runs to stop, and give them a moment: once released, another node may start them at once."""
        self.round.active_runs.stop_all("the node is shutting down")
        until = self._clock.monotonic() + STOPPING_SECONDS
        while self.round.active_runs.can_be_stopped and (remaining := until - self._clock.monotonic()) > 0:
            self._wake_event.wait(remaining)
            self._wake_event.clear()

    def _run_rounds(self) -> None:
        try:
            self._run_until_stopped()
        except BaseException as error:  # noqa: BLE001 - logged, and the node ends
            self._give_up(f"its rounds were ended by {type(error).__name__}", stuck=False)

    def _run_until_stopped(self) -> None:
        # A node that dies before its session has recorded a sign of life keeps its runs until its lease ends.
        if self._store.capabilities.hosts == "many":
            self._renewed.wait(FIRST_RENEWAL)
        while not self._stopping.is_set():
            self._wake_event.clear()
            self._rounds += 1
            self._in_round = self._rounds
            try:
                wait = self._do_round()
            except CronsensusError:
                _log.exception("this round failed; the next one tries again")
                wait = BUG_PAUSE
            except Exception as error:  # noqa: BLE001 - logged
                if self._left:  # ``close`` took the connection away under the driver's hands
                    _log.debug("the last round was cut off by the stop: %r", error)
                    return
                # The loop outlives any bug of the library: a node without rounds is worse than an error in the log.
                _log.exception("a mistake in cronsensus; please report it. The node goes on")
                wait = BUG_PAUSE
            self._in_round = 0
            self._wake_event.wait(wait)

    def _do_round(self) -> float:
        try:
            wait = self.round.run_round()
        finally:
            if self._renewal_wanted:
                # After the round: the renewal locks the session, and a claim would wait for its commit.
                self._renewal_wanted = False
                self._renewer.renew_soon()
        if self.round.draining and not self.round.active_runs and not self._drained.is_set():
            self._drained.set()
            self._drain_over.set()
            self._on_drained()
        return wait

    # --- a node that cannot go on ------------------------------------------------------------------------------------

    def _watch_rounds(self) -> None:
        """Watch the rounds: if they stall, the lease would be renewed and no result ever recorded.

        Runs on the watchdog's thread.
        """
        if self._stopping.is_set():
            return
        number = self._in_round
        self._seen_again = self._seen_again + 1 if number and number == self._seen_round else 0
        self._seen_round = number
        if self._seen_again >= STUCK_CHECKS:
            stack = stack_of(self._rounds_thread.ident if self._rounds_thread else None)
            seconds = STUCK_CHECK_EVERY * STUCK_CHECKS
            reason = f"a round has not come to its end for {seconds:.0f} seconds; it is at:\n{stack}"
            self._give_up(reason, stuck=True)
            return
        self._timer.call_after(STUCK_CHECK_EVERY, self._watch_rounds)

    def _give_up(self, why: str, *, stuck: bool) -> None:
        """Stop renewing, log it, and stop the node. Other nodes take over its runs.

        If the rounds have ended, ``stop`` can still report the end of each run on their handle; rounds that are stuck
        keep it in use.
        """
        with self._failing:
            if self.failed is not None or self._stopping.is_set():
                return
            self.failed, self._stuck = why, stuck
        self.round.drain_node()
        self._stop_renewals()
        lease = self.round.lease
        if stuck and lease is not None:
            lease.mark_lost()
            self.round.active_runs.lose_session(lease)
        self.end_drain()
        words = f"node {self._settings.name} cannot go on and ends, what it ran is for others to take over: {why}"
        log_aloud(words)
        _log.aside.critical("%s", words)
        threading.Thread(target=self._on_failed, name="cronsensus-end", daemon=True).start()

    def _stop_renewals(self) -> Callable[[float], None]:
        """Stop renewing the session; return a function that waits so many seconds for a renewal that is under way."""
        self._renewer.stop()
        if (session := self.session) is not None:
            self._heartbeat.withdraw_presence(session)
        return self._heartbeat.remove_member(self._renewer)

    def _end_session_of_a_stuck_node(self) -> None:
        lease = self.round.lease
        if lease is not None:
            other = self._store.sibling()
            other.close_session(lease.session)
            other.notify()
            other.close()

    def _receive_ending(self, call: Call, ending: Ending) -> None:
        self.round.active_runs.receive_ending(call, ending)

    def _on_session(self, lease: SessionLease) -> None:
        self._renewer.keep_session(lease)
        self._listener.register_presence(lease.session)
        # A second sign of life. The first renewal shows it, and opens the heartbeat's connection early.
        self._heartbeat.register_presence(lease.session)
        self._renewer.renew_soon()

    def _on_work(self) -> None:
        self._renewer.reschedule_renewal()
        self._monitor.monitor_lease(self)

    def _request_renewal(self) -> None:
        self._renewer.request_renewal()

    def _on_notification(self) -> None:
        # Not ``wake``: a notification causes a claim first, and the look only later.
        self._renewal_wanted = self.round.notified = True
        self._wake_event.set()

    def _on_renewal(self, lease: SessionLease, renewal: Renewal, asked: LeaseRequest) -> None:
        self._renewed.set()
        self.round.store_watch.detect_loss(lease.session, renewal)
        if not renewal.alive:
            self.round.active_runs.lose_session(lease)
            self.wake()
            _log.aside.warning("session %s is lost: stopping its runs and going on as a new one", lease.session)
            return
        if renewal.cancel:
            self.round.active_runs.cancel_runs(renewal.cancel, renewal.held)
        self.round.reconciling.compare_held(lease, renewal.held, asked)
        if renewal.drain and not self.round.draining:
            self.drain()
            _log.aside.info("an operator asked this node to drain")

    # --- the end of trust --------------------------------------------------------------------------------------------

    @property
    def expires_in(self) -> float:
        """Return the seconds for which the lease may be trusted; for the monitor of leases."""
        lease = self.round.lease
        # Also without any run: a claim shortens the lease before its runs are listed here.
        return LONGEST_WATCH if lease is None else lease.trusted_for

    def expire(self) -> float | None:
        """Stop all runs: the lease was not renewed in time, perhaps because all threads hang in the store.

        Checked again while anything is held: the store may answer again, and the same lease protect other runs.
        """
        lease = self.round.lease
        if lease is None or not self.round.active_runs:
            return None
        stopped = self.round.active_runs.lose_session(lease)
        if stopped:
            _log.aside.error(
                "the lease could not be renewed in time: stopping what runs (%d), another node may take it over",
                stopped,
            )
        return self._settings.lease.total_seconds() / 2


def _start_thread(name: str, target: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=target, name=f"cronsensus-{name}", daemon=True)
    thread.start()
    return thread


# --- a single handler for all nodes of the process, or each line would be kept once for each of them-------------------

_logging = threading.Lock()
_handlers: list[RunLogHandler] = []
_users: set[Node] = set()


def _keep_logs(node: Node, clock: Clock) -> None:
    with _logging:
        if not _users:
            _handlers.append(RunLogHandler(clock))
            _handlers[0].install_behind()
        _users.add(node)


def _leave_logs(node: Node) -> None:
    with _logging:
        _users.discard(node)
        if not _users and _handlers:
            _handlers.pop().remove_from_root()
