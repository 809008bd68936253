"""The event loop of an async test, on which async jobs run as tasks while the test awaits ``atravel``.

::

    agenda ──▶ job begins: a task of the test's loop ──▶ sleeps: its timer goes to the agenda
       ▲                                                              │
       └──────────── next thing, once no task is ready ◀──────────────┘

A job shares the objects of the test's loop: locks, a pool of connections. Timers of a job's code are in virtual time,
all other timers of the loop are not; the caller's context shows whose code it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from contextvars import Context
from typing import TYPE_CHECKING, Any, TypeGuard
from unittest.mock import patch

from cronsensus.node.run import BaseRun, current_run, enter_run, find_run_of_context
from cronsensus.testing.virtual_time import SECOND

if TYPE_CHECKING:
    from cronsensus.testing.stage import HandTurned, Stage

SILENCE = 0.5
"""Seconds in which a job that waits for a socket or a thread may do nothing before time moves on."""
SILENCE_ASLEEP = 0.05
"""The same, if all jobs also wait for a timer."""
_REST = 0.001
_MOST_SPINS = 1_000
"""Turns of the loop after which time moves on although some task is always ready."""


class BorrowedLoop:
    """A running loop, changed until ``give_back``."""

    def __init__(self, kit: Stage, loop: asyncio.BaseEventLoop) -> None:
        self.loop = loop
        self._kit = kit
        self._tasks: dict[asyncio.Task[None], HandTurned] = {}
        self._timers: dict[asyncio.TimerHandle, BaseRun] = {}
        self._threads = 0
        self._has_stirred = False
        self._real_call_soon = loop.call_soon
        self._real_call_at = loop.call_at
        self._real_time = loop.time
        self._real_run_in_executor = loop.run_in_executor
        self._patches = ExitStack()
        for name in ("call_soon", "call_at", "time", "run_in_executor"):
            self._patches.enter_context(patch.object(loop, name, getattr(self, f"_{name}")))

    @classmethod
    def can_borrow(cls, loop: asyncio.AbstractEventLoop) -> TypeGuard[asyncio.BaseEventLoop]:
        """Whether it is asyncio's own loop; others, such as uvloop, cannot be changed."""
        return isinstance(loop, asyncio.BaseEventLoop) and hasattr(loop, "_ready")

    def start_task(self, run: BaseRun, node: HandTurned, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine as a task in the context of ``run``."""
        context = Context()
        context.run(enter_run, run)
        task = context.run(self.loop.create_task, coroutine)
        self._tasks[task] = node
        task.add_done_callback(lambda task: self._tasks.pop(task, None))
        self._has_stirred = True
        return task

    def cancel_tasks(self, node: HandTurned | None = None) -> None:
        """Cancel the jobs of a node, or all, unless the loop is closed."""
        for task, its_node in list(self._tasks.items()):
            if (node is None or its_node is node) and not self.loop.is_closed():
                task.cancel()

    def give_back(self) -> None:
        """Restore the loop; jobs that still run are cancelled."""
        self.cancel_tasks()
        self._patches.close()

    async def settle(self) -> None:
        """Wait until no job can do more before time moves on."""
        while self._has_stirred and self._tasks:
            await self._run_ready()
            if self._tasks and (self._threads or len(self.loop._selector.get_map() or ()) > 1):  # type: ignore[attr-defined] # noqa: SLF001 - one is the loop's own
                await self._wait_for_real()
        self._has_stirred = False

    async def _run_ready(self) -> None:
        self._has_stirred = False
        for _ in range(_MOST_SPINS):
            await asyncio.sleep(0)
            if not self.loop._ready and not self._has_stirred:  # type: ignore[attr-defined] # noqa: SLF001
                return
            self._has_stirred = False

    async def _wait_for_real(self) -> None:
        """Wait for the next step of a job that waits for something outside of virtual time."""
        asleep = {id(run) for run in self._timers.values()}
        is_asleep = len(asleep) >= len(self._tasks)
        until = self._real_time() + (SILENCE_ASLEEP if is_asleep else SILENCE)
        while not self._has_stirred and (self._real_time() < until or (self._threads and not is_asleep)):  # noqa: ASYNC110
            await asyncio.sleep(_REST)

    # --- in the place of the loop's own -------------------------------------------------------------------------------

    def _time(self) -> float:
        return self._real_time() if current_run() is None else self._kit.clock.monotonic()

    def _call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> asyncio.Handle:
        if (current_run() if context is None else find_run_of_context(context)) is not None:
            self._has_stirred = True
        return self._real_call_soon(callback, *args, context=context)

    def _call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        run = current_run()
        if run is None:
            return self._real_call_at(when, callback, *args, context=context)
        timer = _VirtualTimer(when, callback, args, self.loop, context)
        timer.on_cancel = lambda: self._timers.pop(timer, None)
        self._timers[timer] = run
        micros = round((when - self._kit.clock.monotonic()) * SECOND)
        self._kit.agenda.call_at(
            self._kit.clock.micros + micros, lambda: self._fire(timer), self._kit.find_process(run)
        )
        return timer

    def _fire(self, timer: _VirtualTimer) -> None:
        self._timers.pop(timer, None)
        if not timer.cancelled() and not self.loop.is_closed():
            self._has_stirred = True
            self._real_call_soon(timer._run)  # noqa: SLF001 - it runs in a context of its own

    def _run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        future = self._real_run_in_executor(executor, func, *args)
        if current_run() is not None:
            self._threads += 1
            future.add_done_callback(self._thread_ended)
        return future

    def _thread_ended(self, _: object) -> None:
        self._threads -= 1


class _VirtualTimer(asyncio.TimerHandle):
    """A timer that the agenda holds, and not the loop."""

    __slots__ = ("on_cancel",)
    on_cancel: Callable[[], object]

    def cancel(self) -> None:
        """Cancel the timer."""
        super().cancel()
        self.on_cancel()
