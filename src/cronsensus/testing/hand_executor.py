"""Runs jobs on the test's own thread, between two actions of the agenda; sleep is virtual there.

While a job sleeps, due actions run *below* it, on the same thread. So objects of the thread work: a database connection
of the test, a monkeypatch. It also means that of two jobs asleep at once the first cannot wake before the other has
ended. If that is too late, the kit raises (``Kit.travel``). Async jobs of an
async test are tasks of its loop instead (``BorrowedLoop``), and wake in the right order.
"""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import selectors
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from msgspec import structs

from cronsensus.model.ending import Ending
from cronsensus.model.states import Reason
from cronsensus.node.executors.attempt import Attempt, Attempts, call_arguments, call_function
from cronsensus.node.executors.base import Call, Done, Executor
from cronsensus.node.executors.result import ending_of_error, ending_of_value, never_begun, timed_out
from cronsensus.node.registered import Registered
from cronsensus.node.run import BaseRun
from cronsensus.process.interrupts import Event

if TYPE_CHECKING:
    from cronsensus.membership.timer import Timer
    from cronsensus.testing.stage import AttemptRecord, HandTurned, Stage

_REAL_SILENCE = 0.5
"""Seconds that a job may wait for a socket or a thread before time moves on."""


class Died(BaseException):
    """The process that runs this code is gone."""


class _HandAttempt(Attempt):
    __slots__ = ("cancel", "late")

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self.late = False
        self.cancel: Callable[[], object] = lambda: None
        """Cancels the coroutine of an async job."""


class HandExecutor(Executor):
    """Runs every kind of job inline. A job of ``executor="process"`` gets no process."""

    def __init__(self, kit: Stage, node: HandTurned, done: Done, timer: Timer) -> None:
        self._kit = kit
        self._node = node
        self._attempts: Attempts[_HandAttempt] = Attempts(done, kit.clock, timer)

    def start(self, call: Call) -> None:
        """Run it as the next action of the agenda."""
        attempt = _HandAttempt(call)
        self._attempts.open_attempt(attempt, self._over_time)
        self._kit.agenda.call_at(self._kit.clock.micros, lambda: self._perform(attempt), self._node)

    def stop(self, call: Call, reason: str, *, lease_lost: bool = False) -> None:
        """Set the run's events; cancel a coroutine."""
        call.run.request_stop(reason, lease_lost=lease_lost)
        if (attempt := self._attempts.find_attempt(call)) is not None:
            attempt.cancel()

    def close(self) -> None:
        """Stop reporting ends."""
        self._attempts.close()

    def _over_time(self, attempt: _HandAttempt) -> None:
        attempt.late = True
        attempt.call.run.request_stop(Reason.TIMEOUT)
        attempt.cancel()

    def _perform(self, attempt: _HandAttempt) -> None:
        call, kit = attempt.call, self._kit
        if not self._attempts.is_open(attempt):
            return
        if not call.run.may_begin():
            self._attempts.end_attempt(attempt, never_begun(call.run))
            return
        _make_waits_virtual(call.run, kit)
        if (loop := kit.task_loop) is not None and _is_async(call.registered):
            task = loop.start_task(call.run, self._node, self._perform_task(attempt))
            attempt.cancel = task.cancel
            return
        with kit.running(self._node, call) as record:
            ending = self._call(attempt)
            self._note_end(attempt, record)
        self._end_attempt(attempt, ending)

    async def _perform_task(self, attempt: _HandAttempt) -> None:
        """Run an async job on the loop of the test; nothing is raised, which would end the loop."""
        call, run, registered = attempt.call, attempt.call.run, attempt.call.registered
        with self._kit.running(self._node, call) as record:
            try:
                args, kwargs = call_arguments(run, registered, call.claim.args, call.claim.kwargs)
                ending = ending_of_value(await registered.function(*args, **kwargs), registered.types)
            except BaseException as error:  # noqa: BLE001 - the run's end
                ending = ending_of_error(error, run)
            finally:
                run.release_leftovers()
            self._note_end(attempt, record)
        self._end_attempt(attempt, ending)

    def _note_end(self, attempt: _HandAttempt, record: AttemptRecord) -> None:
        record.ended_at = self._kit.clock.now()
        raised = attempt.call.run.raised
        record.error = raised[1] if isinstance(raised, tuple) else None

    def _end_attempt(self, attempt: _HandAttempt, ending: Ending) -> None:
        if self._node.gone:
            return
        if attempt.late:
            ending = timed_out(attempt.timeout)
        self._attempts.end_attempt(attempt, ending)

    def _call(self, attempt: _HandAttempt) -> Ending:
        run, registered = attempt.call.run, attempt.call.registered
        try:
            args, kwargs = call_arguments(run, registered, attempt.call.claim.args, attempt.call.claim.kwargs)
        except Exception as error:  # noqa: BLE001 - the run's end
            return structs.replace(ending_of_error(error, run), permanent=True)
        function = registered.function
        if _is_async(registered):
            registered = dataclasses.replace(registered, function=lambda *a, **k: self._run(attempt, function(*a, **k)))
        return call_function(run, registered.function, args, kwargs, registered.types)

    def _run(self, attempt: _HandAttempt, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine on a loop with the kit's time."""
        outer = asyncio._get_running_loop()  # noqa: SLF001 - of an async test, in the middle of which jobs run
        asyncio._set_running_loop(None)  # noqa: SLF001
        loop = _VirtualLoop(self._kit)
        try:
            task = loop.create_task(coroutine)
            attempt.cancel = lambda: loop.call_soon(task.cancel)
            return loop.run_until_complete(task)
        finally:
            attempt.cancel = lambda: None
            loop.close()
            asyncio._set_running_loop(outer)  # noqa: SLF001


class _HandEvent(Event):
    """An event of a run: a job that waits for it lets virtual time pass."""

    def __init__(self, kit: Stage) -> None:
        super().__init__()
        self._kit = kit

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, or for so many seconds; return whether it was."""
        clock = self._kit.clock
        until = float("inf") if timeout is None else clock.monotonic() + timeout
        while not self.is_set() and (left := until - clock.monotonic()) > 0:
            self._kit.pass_below(None if timeout is None else left)  # which passes 1 µs at least
        return self.is_set()


def _make_waits_virtual(run: BaseRun, kit: Stage) -> None:
    run._cancelled, run._lease_lost = _HandEvent(kit), _HandEvent(kit)  # noqa: SLF001 - nothing has set them yet


def _is_async(registered: Registered) -> bool:
    return registered.executor == "async" or inspect.iscoroutinefunction(registered.function)


class _VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop with the kit's time: if nothing is ready, the agenda goes on."""

    def __init__(self, kit: Stage) -> None:
        self._kit = kit
        self._threads = 0
        super().__init__(_VirtualSelector(self._pass_time))

    def time(self) -> float:
        """Return virtual time."""
        return self._kit.clock.monotonic()

    def run_in_executor(  # type: ignore[override] # with the types of what it passes on
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Call ``func`` on a real thread; virtual time stands still meanwhile."""
        self._threads += 1
        future = super().run_in_executor(executor, func, *args)
        future.add_done_callback(self._thread_ended)
        return future

    def _thread_ended(self, _: object) -> None:
        self._threads -= 1

    def _pass_time(self, timeout: float | None, wait: Callable[[float | None], list[Any]]) -> list[Any]:
        events = wait(0)
        if events or timeout == 0:
            return events
        sockets = len(self._selector.get_map() or ()) > 1  # type: ignore[attr-defined] # one is the loop's own
        if timeout is None and (sockets or self._threads):
            return wait(None)
        if (sockets or self._threads) and (events := wait(_REAL_SILENCE)):
            return events
        self._kit.pass_below(timeout)
        return wait(0)


class _VirtualSelector(selectors.DefaultSelector):
    """Asks the loop how long to wait."""

    def __init__(self, pass_time: Callable[[float | None, Callable[[float | None], list[Any]]], list[Any]]) -> None:
        super().__init__()
        self._pass_time = pass_time

    def select(self, timeout: float | None = None) -> list[Any]:
        """Wait for events."""
        return self._pass_time(timeout, super().select)
