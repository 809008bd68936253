"""The attempts under way in an executor, and their ends, each reported once.

An attempt may end, exceed its time, be asked to stop, and be closed, all in the same moment and on four threads.
Whoever removes it from the table of open attempts reports it; the others find it gone. No lock is held during a report,
because the node may be holding its own and be about to call ``start`` or ``stop``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import Context
from datetime import timedelta
from types import CoroutineType
from typing import Any, Generic, TypeVar

from msgspec import structs

from cronsensus.membership.timer import Deadline, Timer
from cronsensus.model.ending import Ending
from cronsensus.node.executors.base import Call, Done, with_run
from cronsensus.node.executors.result import cannot_be_called, ending_of_error, ending_of_value
from cronsensus.node.forks import Stepwise, leave_if_forked
from cronsensus.node.registered import Registered
from cronsensus.node.run import BaseRun, enter_run
from cronsensus.payload.typed import UNTYPED, Types
from cronsensus.process.interrupts import Condition
from cronsensus.process.logger import Logger
from cronsensus.process.this_process import this_process
from cronsensus.timing.clock import Clock

logger = Logger(__name__)

GRACE = 2.0
"""Seconds that code has to stop after it was asked to, before a harder attempt."""


class Attempt:
    """A call under way.

    Attributes:
        key: identifies the attempt: occurrence and token.
    """

    __slots__ = ("call", "deadline", "key", "started")

    def __init__(self, call: Call) -> None:
        self.call = call
        self.key = call.claim.id, call.claim.token
        self.started = 0.0
        self.deadline: Deadline | None = None

    @property
    def timeout(self) -> timedelta | None:
        """The longest time that it may take."""
        return self.call.claim.spec.policies.timeout


A = TypeVar("A", bound=Attempt)


class Attempts(Generic[A]):
    """The open attempts of an executor.

    Args:
        done: called once with each end, on whatever thread it happens; must not block.
        timer: the watchdog shared with other executors; ``None``: a timer of its own, closed with this object.
    """

    def __init__(self, on_ending: Done, clock: Clock, timer: Timer | None) -> None:
        self.clock = clock
        self.timer = Timer(clock) if timer is None else timer
        self._owns_timer = timer is None
        self._done = on_ending
        self._changed = Condition()
        self._open: dict[tuple[int, int], A] = {}
        self._reporting: list[int] = []
        self._closed = False

    def open_attempt(self, attempt: A, over_time: Callable[[A], None]) -> None:
        """Register an attempt and watch its timeout: ``over_time`` is called on the watchdog's thread.

        Raises:
            RuntimeError: the executor is closed, or runs this attempt already.
        """
        key = attempt.key
        attempt.started = self.clock.monotonic()
        with self._changed:
            if self._closed:
                raise RuntimeError("this executor is closed")
            if key in self._open:
                raise RuntimeError(f"attempt {key} of {attempt.call.claim.job!r} is already running here")
            self._open[key] = attempt
        if (timeout := attempt.timeout) is not None:
            attempt.deadline = self.timer.call_after(timeout.total_seconds(), lambda: over_time(attempt))

    def find_attempt(self, call: Call) -> A | None:
        """Return the open attempt of ``call``; ``None`` if it has ended."""
        with self._changed:
            return self._open.get((call.claim.id, call.claim.token))

    def __len__(self) -> int:
        """Return how many attempts are open."""
        with self._changed:
            return len(self._open)

    def list_open(self) -> list[A]:
        """Return the open attempts."""
        with self._changed:
            return list(self._open.values())

    def is_open(self, attempt: A) -> bool:
        """Whether ``attempt`` is still open."""
        with self._changed:
            return self._open.get(attempt.key) is attempt

    def end_attempt(self, attempt: A, ending: Ending) -> bool:
        """Report the end of an attempt; ``False`` if another thread has already."""
        thread = threading.get_ident()
        with self._changed:
            if self._open.get(attempt.key) is not attempt:
                return False
            del self._open[attempt.key]
            self._reporting.append(thread)
        if attempt.deadline is not None:
            attempt.deadline.cancel()
        elapsed = timedelta(seconds=self.clock.monotonic() - attempt.started)
        try:
            self._done(attempt.call, structs.replace(ending, elapsed=elapsed))
        except Exception:  # noqa: BLE001 - logged
            logger.aside.exception("the end of %r could not be reported", attempt.call.run)
        finally:
            with self._changed:
                self._reporting.remove(thread)
                if self._closed:
                    self._changed.notify_all()
        return True

    def close(self) -> list[A]:
        """Drop the open attempts: no end is reported after this returns. Idempotent."""
        with self._changed:
            self._closed = True
            still_open = list(self._open.values())
            self._open.clear()
            own_thread = threading.get_ident()
            # Bounded: a report may itself wait for the thread that is closing us.
            self._changed.wait_for(lambda: all(thread == own_thread for thread in self._reporting), timeout=1.0)
        for attempt in still_open:
            if attempt.deadline is not None:
                attempt.deadline.cancel()
        if self._owns_timer:
            self.timer.close()
        return still_open


def perform_call(run: BaseRun, registered: Registered, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Ending:
    """Call a function with its stored arguments, typed by its annotations, and with its ``Run``. Never raises."""
    try:
        args, kwargs = call_arguments(run, registered, args, kwargs)
    except BaseException as error:  # noqa: BLE001 — see ``call_function``
        return structs.replace(ending_of_error(error, run), permanent=True)
    return call_function(run, registered.function, args, kwargs, registered.types)


def call_arguments(
    run: BaseRun, registered: Registered, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call: typed, and with its ``Run`` if the function has a parameter for it.

    Raises:
        InvalidPayload: the stored values do not fit the function's annotations. (Their classes may raise others.)
    """
    args, kwargs = registered.types.read_arguments(args, kwargs)
    return with_run(run, registered.run_parameter, registered.before_run, args, kwargs)


def call_function(
    run: BaseRun, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], types: Types = UNTYPED
) -> Ending:
    """Call ``function`` on this thread, in a fresh context whose current run is ``run``, and return how that ended.

    Never raises, or the attempt would not end. In a forked child that the function leaves behind it does not
    return.
    """
    process = this_process.pid
    try:
        value = Context().run(_invoke_function, run, function, args, kwargs)
        leave_if_forked(process)
    except BaseException as error:  # noqa: BLE001 — sys.exit in a job ends the run, never the node
        leave_if_forked(process, error)
        return structs.replace(ending_of_error(error, run), permanent=cannot_be_called(function, args, kwargs, error))
    finally:
        run.release_leftovers()
    return ending_of_value(value, types)


def _invoke_function(run: BaseRun, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    enter_run(run)
    value = function(*args, **kwargs)
    if isinstance(value, CoroutineType):
        import asyncio  # an async function in a thread or a process gets a loop of its own there

        return asyncio.run(_run_stepwise(value))
    return value


async def _run_stepwise(coroutine: CoroutineType[Any, Any, Any]) -> Any:
    return await Stepwise(coroutine, this_process.pid)
