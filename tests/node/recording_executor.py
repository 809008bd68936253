"""A node without threads: an executor that only notes, and rounds that a test turns by hand."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import timedelta
from typing import Any

from cronsensus.model.ids import new_id
from cronsensus.model.session import SessionSpec
from cronsensus.node.executors.base import Call, Executor
from cronsensus.node.registered import Registered
from cronsensus.node.round import Round
from cronsensus.node.settings import NodeSettings
from cronsensus.stores.base import Store
from cronsensus.testing.conformance.fixtures import a_session
from cronsensus.timing.clock import Clock


class RecordingExecutor(Executor):
    """Notes what it is to start and to stop; a test ends each call.

    Attributes:
        able: whether it can run anything.
        abandoned: how many attempts it says are over and run on.
        calls: what it was to start.
        stopped: what it was to stop: the occurrence, the reason, and whether the lease was lost.
        error: what ``start`` raises, if anything.
    """

    is_able = True
    abandoned_count = 0

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.stopped: list[tuple[int, str, bool]] = []
        self.error: Exception | None = None

    def start(self, call: Call) -> None:
        if self.error is not None:
            raise self.error
        self.calls.append(call)

    def stop(self, call: Call, reason: str, *, lease_lost: bool = False) -> None:
        self.stopped.append((call.claim.id, reason, lease_lost))
        call.run.request_stop(reason, lease_lost=lease_lost)

    def close(self) -> None: ...


class RoundByHand(Round):
    """Rounds that a test turns: one that comes before its time, and that nothing here asked for, is to look."""

    def run_round(self) -> float:
        active_runs = self.active_runs
        told = self.notified or active_runs._ended or active_runs.has_unsent_ends
        if self._clock.monotonic() < self._asleep_until and not told:
            self.woken = True
        return super().run_round()


def registered(*functions: str) -> dict[str, Registered]:
    """Return functions that run in threads, by their names."""
    return {name: Registered(name, lambda: None, "thread") for name in functions}


def new_session(node: str = "a", *, concurrency: int = 5, **more: Any) -> Callable[[], SessionSpec]:
    """Return what describes a session with a new id each time."""
    return lambda: replace(a_session(new_id(), release="1"), node=node, concurrency=concurrency, **more)


def node_by_hand(
    store: Store,
    clock: Clock,
    executor: Executor,
    *,
    lease: timedelta,
    name: str = "a",
    concurrency: int = 5,
    functions: Collection[str] = ("work",),
    reserves: bool = True,
    **more: Any,
) -> RoundByHand:
    """Return the rounds of a node that runs ``functions`` and declares no job of its own."""
    how: dict[str, Any] = {
        "new_session": new_session(name, concurrency=concurrency),
        "declare": lambda _: False,
        **more,
    }
    return RoundByHand(
        store,
        clock,
        NodeSettings(name=name, lease=lease, concurrency=concurrency, reserves=reserves),
        registry=registered(*functions),
        executors={"thread": executor},
        **how,
    )
