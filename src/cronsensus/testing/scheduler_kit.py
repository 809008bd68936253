"""The kit: a scheduler in memory, its nodes, and time that moves when the test says so."""

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
"""Attempts of one job within a minute of virtual time from which the kit takes it for one that enqueues itself."""
RECORDED = 0.001
"""Seconds after which the end of a run is surely recorded, and what waits behind it may begin elsewhere."""
RESTART = 1.0
"""Seconds after which a process is started in the place of the last one that died."""
_OF_THE_RUN = (Exception, SystemExit, GeneratorExit, asyncio.CancelledError, Died)
"""What a job may raise without an end of the test."""


class Kit(Assertions, Crashes, Journeys):
    """A scheduler in memory, at a time that the test moves, with nodes that the test turns; ``with kit(…) as kit:``.

    No thread and no connection. Jobs run on the test's thread, in ``travel``, ``run_due`` and ``handle.result()``, and
    there does time move, as well as where a lock is waited for: ``time.sleep`` in a job, and ``asyncio.sleep`` in an
    async one, take no real time. Arguments and results go through the codec; retries, timeouts and limits are the real
    ones. What alerts would send is kept in ``alerts``; pings do nothing.

    Attributes:
        scheduler: what is tested.
        store: memory, or a SQLite file, in the place of its own.
        clock: the time of all nodes and of the store.
        nodes: those that live, by name.
        dead: the numbers of those that died.
    """

    gone = False
    """What belongs to no node never ends."""
    stands_until = 0
    name = "test"
    """Of the test as a process, which may hold locks too."""

    def __init__(self, scheduler: Scheduler, **options: Unpack[KitOptions]) -> None:
        """Do nothing yet; ``with`` begins."""
        self.scheduler = scheduler
        self.options = options
        self.tz = options.get("tz", scheduler.settings.tz)
        start = options.get("start")
        self.clock = VirtualClock(SystemClock().now() if start is None else self.read_instant(start))
        self.agenda = Agenda(self.clock)
        self.to_close = ExitStack()
        self.store = open_kit_store(self, options.get("store", "memory"), scheduler.settings.namespace)
        self._wakes_itself = not self.store.capabilities.transactional_finish
        """Whether nothing can come into the store without a notification; a commit of the test's own sends none."""
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
            opening.callback(self.scheduler._bus.close, LAST_EVENTS)  # noqa: SLF001 - subscribers learn of it all
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
        """End the process of a node without a word, as ``kill -9`` does; others notice it at once.

        What a job of it is in the middle of ends where it next sleeps: its thread is the test's.
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
        """End all nodes so; none is started in their place before ``start_node``."""
        self._stays_down = True
        for name in list(self.nodes):
            self.kill(name)

    def stand_still(self, duration: Duration, *, node: str | None = None) -> None:
        """Stop the process of the job that calls this for so long, as SIGSTOP or a paused machine does.

        Where that is longer than the scheduler's ``lease``, the others give the node up, and take over what it runs.
        Then it goes on, and learns that: ``run.lease_lost`` is set, and what the job returns counts for nothing.

        Args:
            duration: ``"1m"``, a ``timedelta``, or seconds.
            node: in place of a call by a job: which node stands still from now on, while the test travels.
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

        What is due is judged by the store's clock, so the ledger stays as it is.
        """
        shift = by if isinstance(by, timedelta) else parse_duration(by, what="by")
        self.nodes[node].wall_clock.skew = shift

    def die(self, *_: Any, **__: Any) -> NoReturn:
        """End the process of the job that calls this: ``monkeypatch.setattr(shop, "send_mail", kit.die)``.

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
        """Wake the nodes, as a notification of the store does; but for the one that sent it."""
        for node in list(self.nodes.values()):
            if not node.owns(sender):
                self.agenda.call_in(0.0001, node.notify, node)

    # --- the ledger ---------------------------------------------------------------------------------------------------

    def attempts(self, job: Any = None) -> list[AttemptRecord]:
        """Return the attempts that began so far, of one job or of all, and what each raised."""
        name = None if job is None else name_of(job)
        found = [record for record in self._records if name is None or record.job == name]
        self.looked_at.update(one.run for one in found)
        self._require_job(job, found)
        return found

    @property
    def alerts(self) -> list[Message]:
        """What the scheduler's alerts would have sent so far, by webhook, mail or function; none of it went out.

        Each has ``alert`` (its name), ``events``, ``subject``, ``text`` and ``data``.
        """
        with self._turning():
            self._captured.send_all()
        messages = list(self._captured.messages)
        self.looked_at.update(event.run for message in messages for event in message.events if event.run is not None)
        return messages

    def enqueued(self, job: Any = None) -> list[Occurrence]:
        """Return the runs that wait, of one job or of all, the oldest first: with ``args``, ``key``, ``due_at``."""
        where = OccurrenceFilter(job=None if job is None else name_of(job), states=(State.PENDING,))
        found = self.store.occurrences(where, limit=10_000, newest_first=False)
        self._require_job(job, found)
        return found

    def read_instant(self, time: datetime | str, job: Any = None) -> datetime:
        """Return what a test means by a time: text without an offset is of the job's zone, or of ``tz``."""
        zone = self.tz if job is None else self.scheduler._operations.zone_of(name_of(job))  # noqa: SLF001
        return instant_in(time, zone, "time").astimezone(UTC)

    def _begin_journey(self) -> None:
        if not self._wakes_itself:
            self._wake_nodes(0.0)

    def _is_busy(self) -> bool:
        """Whether anything runs, or is due now and may yet begin."""
        now = self.clock.now() + timedelta(milliseconds=1)
        if any(node.round.active_runs for node in self.nodes.values()):
            return True
        view = self.store.look()
        due = [at for at in (view.next_job, view.next_pending) if at is not None and at <= now]
        return bool(view.jobs or view.backlog or view.parked or due)

    # --- what jobs do -------------------------------------------------------------------------------------------------

    @contextmanager
    def running(self, node: HandNode, call: Call) -> Iterator[AttemptRecord]:
        """Note that a job runs, for as long as the block goes on."""
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
                self._fatal = error  # Ctrl-C, pytest.fail, pytest.skip: they mean the test

    def note_guarded(self, run: BaseRun, process: HandTurned) -> None:
        """Note in which process a guarded call goes on."""
        self._under_way[id(run)] = process, run

    def drop_guarded(self, run: BaseRun) -> None:
        """Note that it is over."""
        self._under_way.pop(id(run), None)

    def find_process(self, run: BaseRun) -> Process:
        """Return the process in which the code of a run goes on."""
        found = self._under_way.get(id(run))
        return self if found is None else found[0]

    def wake_waiters(self, name: str) -> None:
        """Wake who waits for a lock, in whatever process."""
        for waiter in list(self.waiters.get(name, ())):
            waiter.wake()

    def _find_holdings(self) -> HandHoldings:
        """Return the locks and guarded calls of the process that asks."""
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
