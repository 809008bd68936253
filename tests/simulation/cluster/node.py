"""A node whose cranks the simulation turns: rounds, renewer and what ``Node`` does between them are real."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from cronsensus.errors import StoreError
from cronsensus.membership.heartbeat import SHORTEST_WAIT, Heartbeat
from cronsensus.membership.timer import Timer
from cronsensus.model.session import SessionSpec, SessionView
from cronsensus.node.executors.base import Executor
from cronsensus.node.node import STOPPING_SECONDS, Node
from cronsensus.node.registered import Registered
from cronsensus.node.settings import NodeSettings
from cronsensus.process.interrupts import Event
from cronsensus.rooms import ROOMS
from cronsensus.stores.base import Store
from cronsensus.testing.virtual_time import Deadline
from tests.simulation.cluster.clocks import SECOND, NodeClock
from tests.simulation.cluster.cranks import Crank
from tests.simulation.cluster.stage import Stage
from tests.simulation.cluster.wire import Wire
from tests.simulation.cluster.work import SimulatedExecutor

HOST = "simulated"


class SimulatedNode(Node):
    """One process: its cranks, its runs, its clock. It may stand still, be killed, and leave in order.

    What ``Node`` decides is ``Node``'s own code; only its threads, its events and its watchdog are the simulation's.
    """

    def __init__(self, stage: Stage, name: str, pid: int, *, release: int, functions: frozenset[str], clock: NodeClock,
                 concurrency: int, fast_evidence: bool) -> None:  # fmt: skip
        """Make a node that is not started yet."""
        self.stage = stage
        self.name = name
        self.pid = pid
        self.release = release
        self.functions = functions
        self.clock = clock
        self.gone = False
        self.leaving = False
        self.suspended: list[Crank] = []
        self.thaw_at = 0
        """The moment from which the process goes on."""
        self._sessions = 0
        self.executor = SimulatedExecutor(self, self._receive_ending)
        self.turning = Crank(self, name, self._step)
        self.beating = Crank(self, f"{name}.heartbeat", self._beat, soonest=SHORTEST_WAIT)
        scenario = stage.scenario
        self._wire = Wire(stage)
        super().__init__(
            cast("Store", self._wire),
            clock,
            NodeSettings(name, scenario.lease, concurrency, fast_evidence=fast_evidence, watch_seconds=scenario.watch),
            registry={
                one: Registered(
                    one,
                    _never,
                    scenario.executors[one],
                    parts=() if one not in scenario.batches else (scenario.batches[one],),
                )
                for one in sorted(functions)
            },
            new_session=self._new_session,
            declare=self._declare,
            on_drained=lambda: self.leave(0),
            evidence=stage.is_dead,
            heartbeat=cast("Heartbeat", _Heartbeat(self.beating)),
            rooms=ROOMS,
        )
        self.waking = Crank(self, f"{name}.batches", self.round.waking.wake_due)
        self.phases: list[Crank] = []
        """Of batches that list or collect here."""
        self.round.waking.on_queued = self.waking.wake

    def _round_event(self) -> Event:
        return cast("Event", _Waker(self.turning))

    def _watchdog(self) -> Timer:
        return cast("Timer", Watchdog(self))

    def _make_executors(self, _: object) -> Mapping[str, Executor]:
        return dict.fromkeys(("async", "thread", "process"), self.executor)

    # --- what the process does ---------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start, and try again for as long as the store does not answer."""
        self.turning.wake()
        self.beating.wake()
        if self.stage.scenario.batches or self.stage.scenario.afters:
            self.waking.wake()

    def leave(self, after: int) -> None:
        """Leave in order: drain, let runs end for a while, stop them, close the session, exit."""
        if self.gone or self.leaving:
            return
        self.leaving = True
        self.stage.trace.add(self.stage.clock.micros, self.name, "leaves")
        self.drain()
        self.later(after, self._stop_turning)

    def crash(self) -> None:
        """End without a word."""
        if self.gone:
            return
        self._exit("crashes")

    def freeze(self, micros: int) -> None:
        """Stand still: nothing of this process happens for a while."""
        self.thaw_at = max(self.thaw_at, self.stage.clock.micros + micros)
        self.stage.trace.add(self.stage.clock.micros, self.name, "freezes", f"{micros / SECOND:g}s")

    @property
    def frozen(self) -> bool:
        """Whether the process stands still."""
        return self.stage.clock.micros < self.thaw_at

    @property
    def free_hands(self) -> int:
        """How many more runs this node could take now."""
        if self.frozen or self.leaving or self.round.draining or self.turning.suspended or self.beating.suspended:
            return 0
        return self._settings.concurrency - len(self.executor.works)

    def notify(self) -> None:
        """Take a wake-up from the store."""
        if not self.gone:
            self._on_notification()

    def later(self, micros: int, action: Callable[[], None]) -> None:
        """Do something of this process after a while: later when it stands still then, never when it is gone."""
        self.stage.at(self.stage.clock.micros + micros, action, self)

    # --- the cranks --------------------------------------------------------------------------------------------------

    def _step(self) -> float:
        wait = self._do_round()
        self._tell_trust()
        return wait

    def _beat(self) -> float:
        wait = self._renewer.renew(self._store)
        self._tell_trust()
        return wait

    def _tell_trust(self) -> None:
        lease = self.round.lease
        if lease is not None and lease.is_trusted and self.round.active_runs:
            self.stage.witness.trusts(self, lease.session, self.clock.micros(lease.trusted_for))

    def _stop_turning(self) -> None:
        self.turning.on_rest = self._beat_a_while_longer
        self.turning.stop()

    def _beat_a_while_longer(self) -> None:
        self.round.active_runs.stop_all("the node is shutting down")
        self.later(
            int(self.stage.chance[f"node {self.name}"].uniform(0, STOPPING_SECONDS) * SECOND), self._stop_beating
        )

    def _stop_beating(self) -> None:
        # Node.stop does not wait for the heartbeat before it closes the session.
        self.beating.stop()
        Crank(self, f"{self.name}.exit", self._close).wake()

    def _close(self) -> float:
        try:
            self.round.close_session()
        except StoreError as error:
            self.stage.trace.add(self.stage.clock.micros, self.name, "not closed", str(error))
        self._exit("exits")
        return 0.0

    def _exit(self, how: str) -> None:
        self.gone = True
        self.stage.trace.add(self.stage.clock.micros, self.name, how)
        for crank in [crank for crank in self.suspended if crank is not self.stage.current]:
            crank.kill()
        self.executor.die()
        self.stage.node_gone(self)

    # --- what it tells its rounds ---------------------------------------------------------------------------------

    def _new_session(self) -> SessionSpec:
        self._sessions += 1
        return SessionSpec(
            id=f"{self.pid:04}-{self.name}-{self._sessions}",
            node=self.name,
            host=HOST,
            pid=self.pid,
            pid_started=self.pid,
            release=f"release {self.release}",
            concurrency=self._settings.concurrency,
            version="simulated",
            functions=len(self.functions),
        )

    def _declare(self, store: Store) -> bool:
        defined = store.define_jobs(
            self.stage.scenario.releases[self.release], release=f"release {self.release}", complete=True
        )
        return bool(defined.superseded or defined.kept)


class Watchdog:
    """Stands where a node has its ``Timer``: calls back in so many of the node's own seconds."""

    def __init__(self, node: SimulatedNode) -> None:
        self._node = node

    def call_after(self, seconds: float, action: Callable[[], None]) -> Deadline:
        """Call ``action`` unless it is cancelled before."""
        deadline = Deadline(action)
        self._node.later(self._node.clock.micros(seconds), deadline.call_back)
        return deadline


class _Waker:
    """Stands where a thread waits for an event."""

    def __init__(self, crank: Crank) -> None:
        self._crank = crank

    def set(self) -> None:
        self._crank.wake()


class _Heartbeat:
    """Stands where a node has its ``Heartbeat``: a crank of the node's own."""

    def __init__(self, crank: Crank) -> None:
        self._crank = crank

    def register_presence(self, session: str) -> None:
        """Show nothing."""

    def beat_within(self, seconds: float) -> None:
        """Turn the crank now, whenever the thread of a real one would."""
        del seconds
        self._crank.wake()


def _never() -> None:
    raise AssertionError("simulated work is not called")


def is_gone(session: SessionView, gone: set[int]) -> bool:
    """Return whether the process of a session is certainly gone: evidence that never lies."""
    return session.host == HOST and session.pid in gone
