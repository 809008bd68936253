"""The view of a kit that its parts have."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypedDict

from cronsensus.testing.virtual_time import Process

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Coroutine

    from cronsensus.lock.waiter import Waiter
    from cronsensus.model.occurrence import Occurrence
    from cronsensus.node.executors.base import Call
    from cronsensus.node.node import Node
    from cronsensus.node.run import BaseRun
    from cronsensus.once.waiters import Waiters
    from cronsensus.scheduler import Scheduler
    from cronsensus.stores.base import Store
    from cronsensus.testing.virtual_time import Agenda, VirtualClock


class KitOptions(TypedDict, total=False):
    """How a kit is set up.

    Attributes:
        start: when it begins: an aware time, or text, which without an offset is of ``tz``. Defaults to now.
        tz: the zone of times without an offset that belong to no job. Defaults to the scheduler's.
        nodes: how many take part. Defaults to 1. If the last node dies, another is started a second later.
        store: ``"memory"``; ``"sqlite"``, the kit's own file, for ``run.transaction()`` and ``enqueue_in``; or the URL
            of the test's own SQLite file. Defaults to memory.
        startup: whether each node runs the start-up tasks before it begins. Defaults to ``False``.
        audit: whether ``check``, which ends each test, audits the ledger. Defaults to ``True``.
        allow_failures: whether ``check`` accepts failed runs that the test did not read. Defaults to ``False``.
    """

    start: datetime | str
    tz: str
    nodes: int
    store: str
    startup: bool
    audit: bool
    allow_failures: bool


@dataclass(slots=True)
class AttemptRecord:
    """An attempt that a node of the kit began.

    Attributes:
        key: of its occurrence; ``run``: the occurrence's number.
        attempt: 1, 2, ….
        node: the node that ran it.
        ended_at: when its function returned or raised, even if its process had died by then.
        error: its exception; ``None``: none, or one that is no failure (``Skip``, ``Snooze``).
    """

    job: str
    scheduled_for: datetime | None
    key: str
    run: int
    attempt: int
    node: str
    started_at: datetime
    ended_at: datetime | None = None
    error: BaseException | None = None


class HandTurned(Process, Protocol):
    """A process, as its code sees it: a node, or the test."""

    name: str


class TaskLoop(Protocol):
    """A loop on which async jobs run."""

    def start_task(self, run: BaseRun, node: HandTurned, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Begin a job."""


class Stage(Protocol):
    """A kit, as its nodes see it."""

    scheduler: Scheduler
    store: Store
    clock: VirtualClock
    agenda: Agenda
    dead: set[int]
    looked_at: set[int]
    to_close: ExitStack
    waiters: dict[str, set[Waiter]]
    call_waiters: Waiters

    @property
    def task_loop(self) -> TaskLoop | None:
        """Return the loop of an async test that travels now."""

    gone: bool
    stands_until: int

    @property
    def nodes(self) -> Mapping[str, Node]:
        """The live nodes."""

    @property
    def is_turning(self) -> bool:
        """Whether an action of the agenda runs, and not the test itself."""

    def notify_nodes(self, sender: Store) -> None:
        """Wake the nodes, except the sender."""

    def pass_time(self, seconds: float) -> None:
        """Run the next action within so many seconds, or else let them pass."""

    async def apass_time(self, seconds: float) -> None:
        """Do the same in an async test."""

    def running(self, node: Any, call: Call) -> AbstractContextManager[AttemptRecord]:
        """Record that a job runs while the block goes on."""

    def pass_while_blocked(self, seconds: float, what: str) -> None:
        """Run the next action, within so long, for a caller that waits for ``what``, which another process has."""

    def wake_waiters(self, name: str) -> None:
        """Wake the waiters for locks."""

    def note_guarded(self, run: BaseRun, process: HandTurned) -> None:
        """Record in which process a guarded call goes on."""

    def drop_guarded(self, run: BaseRun) -> None:
        """Record that it has ended."""

    def find_process(self, run: BaseRun) -> Process:
        """Return the process in which the code of a run goes on."""

    def fail(self, why: str) -> NoReturn:
        """Fail the test, even if jobs catch the exception."""

    def pass_below(self, seconds: float | None) -> None:
        """Let an idle job wait for the next action of the agenda, at most so long."""


def note_looked_at(kit: Stage, found: list[Occurrence]) -> list[Occurrence]:
    """Return runs that were read; those that the test itself has read are recorded as such."""
    if not kit.is_turning:
        kit.looked_at.update(one.id for one in found)
    return found
