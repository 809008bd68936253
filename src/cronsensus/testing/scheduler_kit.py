"""The kit: a scheduler in memory, its nodes, and time that the test moves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn, Self, Unpack
from unittest.mock import patch

from cronsensus.declared.declarations import name_of
from cronsensus.lifecycle.lifecycle import LAST_EVENTS
from cronsensus.lock.waiter import Waiter
from cronsensus.lock.worker_pool import acting_inline
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter
from cronsensus.model.states import State
from cronsensus.node.executors.base import Call
from cronsensus.stores.base import Store
from cronsensus.testing.assertions import Assertions
from cronsensus.testing.captured_alerts import CapturedAlerts
from cronsensus.testing.crashes import Crashes
from cronsensus.testing.hand_executor import Died
from cronsensus.testing.hand_holdings import HandHoldings, HandWaiters
from cronsensus.testing.hand_node import ByHand, HandNode
from cronsensus.testing.journeys import Journeys
from cronsensus.testing.kit_store import KitWaits, open_kit_store
from cronsensus.testing.stage import AttemptRecord, HandTurned, KitOptions
from cronsensus.testing.virtual_time import SECOND, Agenda, Process, VirtualClock
from cronsensus.timing.clock import SystemClock
from cronsensus.timing.durations import Duration, parse_duration
from cronsensus.triggers.zones import instant_in

if TYPE_CHECKING:
    from cronsensus.alerts.sending import Message
    from cronsensus.node.run import BaseRun
    from cronsensus.once.waiters import Waiters
    from cronsensus.scheduler import Scheduler

MOST_RUNS = 5_000
"""Attempts of a job within a minute of virtual time from which it counts as enqueuing itself without end."""
RECORDED = 0.001
"""Seconds after which the end of a run is certainly recorded, and waiting runs may begin elsewhere."""
RESTART = 1.0
"""Seconds after which a process is started to replace the last process that died."""
_OF_THE_RUN = (Exception, SystemExit, GeneratorExit, asyncio.CancelledError, Died)
"""Exceptions of a job that do not end the test."""


class Kit(Assertions, Crashes, Journeys):
    """A scheduler in memory, with time and nodes that the test drives; ``with kit(…) as kit:``.

    It has no threads and no connections. Jobs run on the test's thread, in ``travel``, ``run_due`` and
    ``handle.result()``. Time moves only there, and in waits for locks: ``time.sleep`` in a job, and ``asyncio.sleep``
    in an async job, take no real time. Arguments and results go through the codec; retries, timeouts and limits are
    real. The messages of alerts are kept in ``alerts``; pings do nothing.

    Attributes:
        scheduler: the scheduler under test.
        store: memory, or a SQLite file, that replaces its own store.
        clock: the time of all nodes and of the store.
        nodes: the live nodes, by name.
        dead: the numbers of dead nodes.
    """

    gone = False
    """The process of actions that belong to no node; it never ends."""
    stands_until = 0
    name = "test"
    """The holdings of the test itself, which may hold locks, too."""

    def __init__(self, scheduler: Scheduler, **options: Unpack[KitOptions]) -> None:
        """Prepare; the ``with`` block starts it."""
        self.scheduler = scheduler
        self.options = options
        self.tz = options.get("tz", scheduler.settings.tz)
        start = options.get("start")
        self.clock = VirtualClock(SystemClock().now() if start is None else self.read_instant(start))
        self.agenda = Agenda(self.clock)
        self.to_close = ExitStack()
        self.store = open_kit_store(self, options.get("store", "memory"), scheduler.settings.namespace)
        self._wakes_itself = not self.store.capabilities.transactional_finish
        """Whether each change of the store comes with a notification; a commit of the test itself has none."""
        self.nodes: dict[str, HandNode] = {}
        self.dead: set[int] = set()
        self.looked_at: set[int] = set()
        """Occurrences that the test has read."""
        self._records: list[AttemptRecord] = []
        self.waiters: dict[str, set[Waiter]] = {}
        self.call_waiters: Waiters = HandWaiters(self)
        self._under_way: dict[int, tuple[HandTurned, BaseRun]] = {}
        self._asleep: list[tuple[int, str]] = []
        """Jobs that sleep on the test's thread, and until when; the last one below all others."""
        self._holdings: dict[HandTurned, HandHoldings] = {}
        self._starting: HandNode | None = None
        self._stays_down = False
        self._lately: dict[str, list[int]] = {}
        self._open = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as opening:
            swapped = self.scheduler._swapped(  # noqa: SLF001
                self.store, self.clock, ByHand(self), KitWaits(self), self._find_holdings
            )
            self._lifecycle = opening.enter_context(swapped)
            opening.enter_context(acting_inline())
            opening.callback(self._close_holdings)
            opening.callback(self.scheduler._bus.close, LAST_EVENTS)  # noqa: SLF001 - subscribers get all events
            self._captured = CapturedAlerts(self)
            opening.enter_context(patch("time.sleep", self._sleep_of(time.sleep)))  # noqa: TID251 - what a job calls
            opening.callback(self._kill_nodes)
            opening.callback(self._give_loop_back)
            for _ in range(self.options.get("nodes", 1)):
                self.start_node()
            self._open = opening.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()
        self.to_close.close()

    # --- nodes --------------------------------------------------------------------------------------------------------

    def start_node(self) -> str:
        """Start one more node; return its name."""
        self._stays_down = False
        node = HandNode(self, self._lifecycle, len(self.dead) + len(self.nodes) + 1)
        self.nodes[node.name] = node
        if self.options.get("startup", False):
            self._starting = node
            try:
                self.scheduler.run_startup()
            finally:
                self._starting = None
        node.start_turning()
        return node.name

    def kill(self, node: str) -> None:
        """End the process of a node at once, as ``kill -9`` does; other nodes notice it at once.

        A job that it runs ends where it next sleeps, because its thread is the test's.
        """
        killed = self.nodes.pop(node)
        self.dead.add(killed.pid)
        killed.die()
        if self._borrowed is not None:
            self._borrowed.cancel_tasks(killed)
        self._wake_nodes(0.0)
        if not self.nodes:
            self.agenda.call_in(RESTART, self._restart, self)

    def kill_all(self) -> None:
        """End all nodes like that; none is started before ``start_node``."""
        self._stays_down = True
        for name in list(self.nodes):
            self.kill(name)

    def stand_still(self, duration: Duration, *, node: str | None = None) -> None:
        """Stop the process of the calling job for so long, as SIGSTOP or a paused machine does.

        If that is longer than the scheduler's ``lease``, other nodes declare the node dead and take its runs over. When
        it goes on, ``run.lease_lost`` is set, and the result of the job is refused.

        Args:
            duration: ``"1m"``, a ``timedelta``, or seconds.
            node: the node that stands still from now on, while the test travels; instead of that of the calling job.
        """
        caller = self._find_caller() if node is None else self.nodes[node]
        if not isinstance(caller, HandNode):
            raise AssertionError(  # noqa: TRY004 - of the test that calls it
                'stand_still() stops the process of a job: have a job call it, or say which: node="node-1"'
            )
        length = parse_duration(duration, what="duration").total_seconds()
        caller.stands_until = self.clock.micros + round(length * SECOND)
        self.agenda.call_at(caller.stands_until, caller.go_on, caller)
        lease = self.scheduler.settings.lease.total_seconds()
        if length > lease:
            self.agenda.call_in(lease, lambda: self._give_up(caller), self)
        if node is None:
            self.sleep(length)

    def _give_up(self, node: HandNode) -> None:
        if not node.gone and node.stands_until > self.clock.micros:
            self.store.reclaim({node.session_id})
            self._wake_nodes(0.0)

    def skew(self, node: str, by: Duration) -> None:
        """Set the time of day of a node wrong: ``skew("node-1", "2h")``, or ``timedelta(hours=-2)``.

        Due times are judged by the store's clock, so the ledger does not change.
        """
        shift = by if isinstance(by, timedelta) else parse_duration(by, what="by")
        self.nodes[node].wall_clock.skew = shift

    def die(self, *_: Any, **__: Any) -> NoReturn:
        """End the process of the calling job: ``monkeypatch.setattr(shop, "send_mail", kit.die)``.

        A ``finally`` of the job does run, unlike with ``kill -9``.
        """
        node = self._find_caller()
        if not isinstance(node, HandNode):
            raise AssertionError(  # noqa: TRY004 - of the test that calls it
                "die() ends the process of a job: have a job call it, or kill(node) from the test"
            )
        if not node.gone:
            self.kill(node.name)
        raise Died

    def _wake_nodes(self, after: float) -> None:
        for node in self.nodes.values():
            self.agenda.call_in(after, node.look_at_store, node)

    def _restart(self) -> None:
        if not self.nodes and not self._stays_down:
            self.start_node()

    def _kill_nodes(self) -> None:
        for node in self.nodes.values():
            node.die()
        self.nodes.clear()

    def notify_nodes(self, sender: Store) -> None:
        """Wake the nodes, as a notification of the store does, except its sender."""
        for node in list(self.nodes.values()):
            if not node.owns(sender):
                self.agenda.call_in(0.0001, node.notify, node)

    # --- the ledger ---------------------------------------------------------------------------------------------------

    def attempts(self, job: Any = None) -> list[AttemptRecord]:
        """Return the attempts that began so far, of a job or of all, each with its error."""
        name = None if job is None else name_of(job)
        records = [record for record in self._records if name is None or record.job == name]
        self.looked_at.update(one.run for one in records)
        self._require_job(job, records)
        return records

    @property
    def alerts(self) -> list[Message]:
        """The messages that the scheduler's alerts would have sent so far; none was sent.

        Each has ``alert`` (its name), ``events``, ``subject``, ``text`` and ``data``.
        """
        with self._turning():
            self._captured.send_all()
        messages = list(self._captured.messages)
        self.looked_at.update(event.run for message in messages for event in message.events if event.run is not None)
        return messages

    def enqueued(self, job: Any = None) -> list[Occurrence]:
        """Return the pending runs, of a job or of all, the oldest first: with ``args``, ``key``, ``due_at``."""
        where = OccurrenceFilter(job=None if job is None else name_of(job), states=(State.PENDING,))
        pending = self.store.occurrences(where, limit=10_000, newest_first=False)
        self._require_job(job, pending)
        return pending

    def read_instant(self, time: datetime | str, job: Any = None) -> datetime:
        """Return the instant of a test's time: text without an offset is of the job's zone, or of ``tz``."""
        zone = self.tz if job is None else self.scheduler._operations.zone_of(name_of(job))  # noqa: SLF001
        return instant_in(time, zone, "time").astimezone(UTC)

    def _begin_journey(self) -> None:
        if not self._wakes_itself:
            self._wake_nodes(0.0)

    def _is_busy(self) -> bool:
        """Whether a job runs, or a run is due now and may still begin."""
        now = self.clock.now() + timedelta(milliseconds=1)
        if any(node.round.active_runs for node in self.nodes.values()):
            return True
        view = self.store.look()
        due = [at for at in (view.next_job, view.next_pending) if at is not None and at <= now]
        return bool(view.jobs or view.backlog or view.parked or due)

    # --- what jobs do -------------------------------------------------------------------------------------------------

    @contextmanager
    def running(self, node: HandNode, call: Call) -> Iterator[AttemptRecord]:
        """Record that a job runs while the block goes on."""
        run = call.run
        record = AttemptRecord(
            run.job, run.scheduled_for, run.key, run.id, run.attempt, node.name, started_at=self.clock.now()
        )
        self._refuse_endless(run.job)
        self._records.append(record)
        self._under_way[id(run)] = node, run
        try:
            yield record
            self.kill_after(node, call)
            self._captured.look_soon()
            if not self._wakes_itself or (len(self.nodes) > 1 and self.store.look().backlog):
                self._wake_nodes(RECORDED)
        finally:
            del self._under_way[id(run)]
            error = record.error
            if error is not None and not isinstance(error, _OF_THE_RUN):
                self._fatal = error  # Ctrl-C, pytest.fail, pytest.skip: they are for the test

    def note_guarded(self, run: BaseRun, process: HandTurned) -> None:
        """Record in which process a guarded call goes on."""
        self._under_way[id(run)] = process, run

    def drop_guarded(self, run: BaseRun) -> None:
        """Record that it has ended."""
        self._under_way.pop(id(run), None)

    def find_process(self, run: BaseRun) -> Process:
        """Return the process in which the code of a run goes on."""
        process = self._under_way.get(id(run))
        return self if process is None else process[0]

    def wake_waiters(self, name: str) -> None:
        """Wake the waiters for locks in all processes."""
        for waiter in list(self.waiters.get(name, ())):
            waiter.wake()

    def _find_holdings(self) -> HandHoldings:
        """Return the locks and guarded calls of the calling process."""
        process = self._starting or self._find_caller() or self
        if process not in self._holdings:
            self._holdings[process] = HandHoldings(self, process)
        return self._holdings[process]

    def _close_holdings(self) -> None:
        for holdings in self._holdings.values():
            holdings.close()

    def _refuse_endless(self, job: str) -> None:
        lately = self._lately.setdefault(job, [])
        if lately and lately[0] < self.clock.micros - 60 * SECOND:
            lately.clear()
        lately.append(self.clock.micros)
        if len(lately) > MOST_RUNS:
            self.fail(f"{job!r} has begun {MOST_RUNS} times within a minute, and more wait: does it enqueue itself?")

    def _sleep_of(self, real: Any) -> Any:
        def sleep(seconds: float) -> None:
            if self._find_caller() is not None:
                self.sleep(seconds)
            else:
                real(seconds)

        return sleep
