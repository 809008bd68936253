"""A node of a test: rounds, renewals and wake-ups are ``Node``'s own code, run by the test and not by threads."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from cronsensus.lifecycle.participation import Participation
from cronsensus.membership.heartbeat import SHORTEST_WAIT, Heartbeat
from cronsensus.membership.timer import Timer
from cronsensus.model.job import is_internal
from cronsensus.model.session import SessionSpec, SessionView
from cronsensus.node.executors.base import Executor
from cronsensus.node.node import Node
from cronsensus.node.settings import NodeSettings
from cronsensus.node.waking import IDLE_SECONDS
from cronsensus.process.interrupts import Event
from cronsensus.testing.hand_executor import HandExecutor
from cronsensus.testing.virtual_time import FAR, Crank, Deadlines, SkewedClock

if TYPE_CHECKING:
    from cronsensus.lifecycle.lifecycle import Lifecycle
    from cronsensus.testing.stage import Stage

HOST = "test"
# Between two due actions a node of a test has little to do, so that a job may sleep for an hour: deaths are known at
# once, and the kit wakes waiting runs. No node has to poll for either.
_LEASE = timedelta(hours=1)
_WATCH = timedelta(minutes=1)
_POLL = timedelta(days=30)
_IDLE_RENEWAL = timedelta(days=20)
_IDLE_LEASE = timedelta(days=60)


class HandNode(Node):
    """A process of a test.

    Attributes:
        name: its name for people.
        gone: whether it has died.
        stands_until: until when its process is stopped, in microseconds of the clock.
        wall_clock: its source of the time of day.
        session_id: of its present session.
    """

    stands_until = 0
    session_id = ""

    def __init__(self, kit: Stage, lifecycle: Lifecycle, pid: int) -> None:
        """Make a node that is not started yet; ``pid`` numbers the nodes of a test from 1."""
        self.kit = kit
        self.pid = pid
        self.name = f"node-{pid}"
        self.gone = False
        self.wall_clock = SkewedClock(kit.clock)
        self._numbers = itertools.count(1)
        agenda, settings = kit.agenda, kit.scheduler.settings
        self._turning = Crank(agenda, self, self._do_round)
        self._beating = Crank(agenda, self, lambda: self._renewer.renew(self._store), SHORTEST_WAIT)
        parts = lifecycle.node_parts()
        parts["registry"] = {name: one for name, one in parts["registry"].items() if not is_internal(name)}
        super().__init__(
            kit.store,
            self.wall_clock,
            NodeSettings(
                name=self.name,
                lease=_LEASE,
                concurrency=settings.concurrency,
                zone=settings.tz,
                watch_seconds=_WATCH.total_seconds(),
                poll_seconds=_POLL.total_seconds(),
                idle_lease=_IDLE_LEASE,
                idle_renewal=_IDLE_RENEWAL,
            ),
            new_session=self._new_session,
            evidence=self._is_gone,
            heartbeat=cast("Heartbeat", _HandHeartbeat(self._beating)),
            **parts,
        )
        self._waking = Crank(agenda, self, self._wake_parked)
        self.round.waking.on_queued = self._waking.wake

    def start_turning(self) -> None:
        """Start."""
        self.open_session()
        self._turning.wake()
        self._beating.wake()

    def die(self) -> None:
        """Die at once, as by ``kill -9``."""
        self.gone = True
        self.drop_logs()

    def go_on(self) -> None:
        """Go on after a standstill: find out from the store whether its session was ended meanwhile."""
        self._renewer.request_renewal()
        self._renewer.renew(self._store)
        self.look_at_store()

    def owns(self, handle: object) -> bool:
        """Whether this is the handle of its rounds."""
        return handle is self._store

    def notify(self) -> None:
        """Take a wake-up from the store."""
        if not self.gone:
            self._on_notification()

    def look_at_store(self) -> None:
        """Wake its rounds now."""
        if not self.gone:
            self.wake()

    def _round_event(self) -> Event:
        return cast("Event", self._turning)

    def _watchdog(self) -> Timer:
        return cast("Timer", Deadlines(self.kit.agenda, self))

    def _make_executors(self, _: asyncio.AbstractEventLoop | None) -> Mapping[str, Executor]:
        executor = HandExecutor(self.kit, self, self._receive_ending, self._timer)
        return dict.fromkeys(("thread", "async", "process"), executor)

    def _wake_parked(self) -> float:
        wait = self.round.waking.wake_due()
        return wait if wait < IDLE_SECONDS else FAR

    def _is_gone(self, session: SessionView) -> bool:
        return session.host == HOST and session.pid in self.kit.dead

    def _new_session(self) -> SessionSpec:
        scheduler = self.kit.scheduler
        self.session_id = f"{self.pid:04}-{self.name}-{next(self._numbers)}"
        return SessionSpec(
            id=self.session_id,
            node=self.name,
            host=HOST,
            pid=self.pid,
            pid_started=self.pid,
            release=scheduler.release,
            concurrency=scheduler.settings.concurrency,
            version=HOST,
            functions=len(scheduler.declared.registry),
        )


class _HandHeartbeat:
    """Replaces a node's ``Heartbeat``."""

    def __init__(self, crank: Crank) -> None:
        self._crank = crank

    def register_presence(self, session: str) -> None:
        """Show nothing: the kit knows who lives."""

    def beat_within(self, seconds: float) -> None:
        """Renew due sessions; the renewer returns when the next is due."""
        del seconds
        self._crank.wake()


class ByHand(Participation):
    """Replaces a scheduler's participation: in a test the kit's nodes take part, whoever calls ``start``."""

    def __init__(self, kit: Stage) -> None:
        super().__init__(lambda *_: None, _make_no_node, lambda: None)
        self._kit = kit

    @property
    def node(self) -> Node | None:
        """A node of the kit."""
        return next(iter(self._kit.nodes.values()), None)

    is_over = False

    def start(self, *_: Any, **__: Any) -> bool:
        """Start nothing: the kit starts the nodes."""
        return True

    async def astart(self) -> None:
        """Start nothing."""

    def stop(self, drain: timedelta) -> bool:
        """Stop nothing."""
        del drain
        return True

    def run(self, *_: Any, **__: Any) -> bool:
        """Return at once."""
        return True


def _make_no_node(*_: Any) -> Node:
    raise AssertionError("the kit makes its nodes itself")
