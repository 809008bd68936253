"""Runs async functions on the application's event loop, or on one of its own.

::

    start ──call_soon_threadsafe──▶ task ──▶ report
      stop, or the watchdog at the timeout ──▶ cancel ──(grace)──▶ cancel ──(grace)──▶ … ──▶ given up, reported

The application's loop may be closed, or stand still, while the node lives. Its runs are then released, because the jobs
are not to blame, and no others are started. A loop that shuts down cancels all its tasks first. So the end of a task
that other code has cancelled is reported a moment later, once it is known whether the loop still runs.

Failure handling: user code may block the loop, swallow its cancellation, or close the loop. So nothing here ever waits
for the loop, timeouts are watched from another thread, and open attempts on a closed loop are found by a check once a
second. If a loop of our own is blocked when an attempt is given up, it is abandoned, and later calls get a new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import itertools
import os
import threading
from collections import deque
from collections.abc import Callable
from contextvars import Context
from typing import Any

from msgspec import structs

from cronsensus.membership.timer import Timer
from cronsensus.model.ending import Ending
from cronsensus.model.states import Reason
from cronsensus.node.executors.attempt import GRACE, Attempt, Attempts, call_arguments
from cronsensus.node.executors.base import Call, Done, Executor
from cronsensus.node.executors.daemons import DaemonThreads
from cronsensus.node.executors.loop_watch import LoopWatch, Pulse
from cronsensus.node.executors.result import (
    cancelled_ending,
    cannot_be_called,
    describe_error,
    ending_of_error,
    ending_of_value,
    failed_ending,
    is_task_cancelled,
    never_begun,
    stack_of,
    timed_out,
)
from cronsensus.node.forks import Stepwise, leave_if_forked, own_selector
from cronsensus.node.loops import runs_jobs
from cronsensus.node.run import enter_run
from cronsensus.process.logger import Logger
from cronsensus.process.this_process import this_process
from cronsensus.timing.clock import Clock

logger = Logger(__name__)

MOST_CANCELS = 3
"""How often a task is cancelled, a grace apart, before it is given up."""
CHECK_EVERY = 1.0
"""Seconds between two checks whether the loop of an open attempt has been closed."""
CHECKS_AT_END = 10
"""How often a loop that is shutting down is checked before a task that was cancelled there counts as failed."""
_numbers = itertools.count(1)


class _LoopAttempt(Attempt):
    __slots__ = ("asked", "cancels", "held_back", "home", "looks", "seen", "task")

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self.home: _Home
        self.task: asyncio.Task[None] | None = None
        self.asked: str | None = None
        self.cancels = 0
        self.held_back: Ending | None = None
        """The end of a task that other code cancelled; reported once it is known whether the loop still runs."""
        self.looks = 0
        self.seen = False
        """Whether the loop has executed the latest cancel; if not, it is blocked."""


class _Home:
    """A loop, its thread (if known), and our tasks on it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        runs_jobs(loop)
        self.pulse = Pulse(loop)
        # A loop refers weakly to its tasks: without this set a task that was given up could be collected while it runs.
        self.tasks: set[asyncio.Task[None]] = set()
        self._posted: deque[tuple[Callable[[_LoopAttempt], None], _LoopAttempt]] = deque()
        self._called = False

    is_ours = False
    """Whether only jobs run on it."""

    @property
    def is_turning(self) -> bool:
        """Whether a thread runs the loop now."""
        return self.loop.is_running() and not self.loop.is_closed()

    @property
    def is_shut_down(self) -> bool:
        """Whether the loop runs its last coroutines: it waits for its threads, which may wait for our runs."""
        try:
            names = {getattr(task.get_coro(), "__name__", "") for task in asyncio.all_tasks(self.loop)}
        except Exception:  # noqa: BLE001 - the set changes while it is read
            return False
        return bool(names & {"shutdown_default_executor", "shutdown_asyncgens"})

    @property
    def is_ending(self) -> bool:
        """Whether the loop seems to shut down: every remaining task has been cancelled."""
        try:
            return all(task.cancelling() for task in asyncio.all_tasks(self.loop) if not task.done())
        except Exception:  # noqa: BLE001 - the set changes while it is read
            return True

    def post_attempt(self, act: Callable[[_LoopAttempt], None], attempt: _LoopAttempt) -> None:
        """Have ``what(attempt)`` called on the loop, in the order of posting; from any thread.

        A claim may bring many attempts at once. Waking the loop for each of them would cost a write to its pipe and a
        switch of threads each; so if the loop has been called already, the caller only appends to the queue.

        Raises:
            RuntimeError: the loop is closed.
        """
        if self.loop.is_closed():
            raise RuntimeError("the loop is closed")
        self._posted.append((act, attempt))
        if not self._called:
            self._called = True
            self.loop.call_soon_threadsafe(self._carry_out)

    def _carry_out(self) -> None:
        # Before the queue is read, or an attempt that is appended now would wait for the next call.
        self._called = False
        try:
            while self._posted:
                act, attempt = self._posted.popleft()
                act(attempt)
        finally:
            if self._posted:  # one raised; the others must not wait
                self.loop.call_soon(self._carry_out)


def _new_loop() -> asyncio.AbstractEventLoop:
    """Return a loop of the kind that the application chose; the default kind notices a fork."""
    loop = asyncio.new_event_loop()
    if type(loop) is not asyncio.SelectorEventLoop:
        return loop
    loop.close()
    return asyncio.SelectorEventLoop(own_selector())


class _OwnHome(_Home):
    """A loop of our own on a daemon thread."""

    is_ours = True

    def __init__(self) -> None:
        super().__init__(_new_loop())
        self.loop.set_default_executor(DaemonThreads())
        self.runner = threading.Thread(target=self._run_loop, name=f"cronsensus-loop-{next(_numbers)}", daemon=True)
        try:
            self.runner.start()
        except RuntimeError:
            self.loop.close()
            raise

    def end_loop(self, *, cancel: bool) -> None:
        """Let the loop end after its tasks; with ``cancel``, soon. Does not wait for it."""
        with contextlib.suppress(RuntimeError):  # closed already
            self.loop.call_soon_threadsafe(lambda: self.tasks.add(self.loop.create_task(self._wind_up(cancel=cancel))))

    async def _wind_up(self, *, cancel: bool) -> None:
        me = asyncio.current_task()
        while others := {task for task in self.tasks if task is not me}:
            for task in others if cancel else ():
                task.cancel()
            await asyncio.wait(others, timeout=GRACE if cancel else None)
            if cancel:
                break
        await self.loop.shutdown_asyncgens()
        self.loop.stop()

    def _run_loop(self) -> None:
        self.pulse.thread = threading.get_ident()
        process, turning = os.getpid(), True
        while turning:
            try:
                self.loop.run_forever()
                turning = False
            except BaseException as error:
                leave_if_forked(process, error)
                logger.warning("a task on the event loop of the jobs raised what ends loops; it goes on", exc_info=True)
        self.loop.close()


class LoopExecutor(Executor):
    """Runs functions as tasks on an event loop.

    ``timeout`` and ``stop`` cancel the task. A task that goes on is given up after ``MOST_CANCELS`` times ``grace``; if
    the loop itself is blocked, ``grace`` after its timeout.

    Args:
        done: called once with each end, on any thread, usually the loop's own; must not block.
        loop: the application's running loop; ``None`` for one of our own, made with the first call.
        clock: measures how long attempts take.
        timer: the watchdog shared with other executors.
        grace: seconds between two cancellations.
    """

    def __init__(
        self,
        on_ending: Done,
        clock: Clock,
        timer: Timer | None = None,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        grace: float = GRACE,
    ) -> None:
        self._attempts: Attempts[_LoopAttempt] = Attempts(on_ending, clock, timer)
        self._grace = grace
        self._lock = threading.Lock()
        self._home = None if loop is None else _Home(loop)
        self._looking = False
        self._closed = False
        self._watch = LoopWatch(self._attempts)

    @property
    def is_able(self) -> bool:
        """Whether a loop is running, or can be made."""
        home = self._home
        return home is None or isinstance(home, _OwnHome) or home.is_turning

    def start(self, call: Call) -> None:
        """Hand an attempt to the loop."""
        attempt = _LoopAttempt(call)
        problem = None
        with self._lock:
            if self._closed:
                raise RuntimeError("this executor is closed")
            if self._home is None or (isinstance(self._home, _OwnHome) and self._home.loop.is_closed()):
                try:
                    self._home = _OwnHome()
                except (RuntimeError, OSError) as error:
                    problem = f"the node cannot make an event loop: {error}"
            if self._home is not None:
                attempt.home = self._home
        self._attempts.open_attempt(attempt, self._over_time)
        if problem is not None:
            self._attempts.end_attempt(attempt, failed_ending("EventLoopClosed", problem))
            return
        with self._lock:
            look, self._looking = not self._looking, True
        if look:
            self._attempts.timer.call_after(CHECK_EVERY, self._end_orphans)
        self._watch.start_watching()
        self._post_attempt(attempt, self._start_task)

    def stop(self, call: Call, reason: str, *, lease_lost: bool = False) -> None:
        """Set the run's events and cancel its task."""
        call.run.request_stop(reason, lease_lost=lease_lost)
        attempt = self._attempts.find_attempt(call)
        if attempt is not None:
            self._request_cancel(attempt, "cancelled")

    def close(self) -> None:
        """Cancel every task; end a loop of our own, unless it is blocked: then it ends with the process."""
        open_attempts = self._attempts.close()
        with self._lock:
            self._closed = True
            home, self._home = self._home, None
        for attempt in open_attempts:
            attempt.call.run.request_stop("the node stops")
            self._post_attempt(attempt, self._cancel_task)
        if home is not None:
            runs_jobs(home.loop, now=False)
        if isinstance(home, _OwnHome):
            home.end_loop(cancel=True)
            if home.runner is not threading.current_thread():
                home.runner.join(GRACE + 1.0)

    def _post_attempt(self, attempt: _LoopAttempt, act: Callable[[_LoopAttempt], None]) -> None:
        """Have ``what(attempt)`` called on the loop; a loop that is closed ends the attempt."""
        try:
            attempt.home.post_attempt(act, attempt)
        except RuntimeError:
            self._loop_is_closed(attempt)

    def _loop_is_closed(self, attempt: _LoopAttempt) -> None:
        if not isinstance(attempt.home, _OwnHome):
            self._cut_off(attempt)
            return
        message = "the event loop of this node's async jobs is closed, by one of them, so the job cannot run on"
        self._attempts.end_attempt(attempt, failed_ending("EventLoopClosed", message))

    def _cut_off(self, attempt: _LoopAttempt) -> None:
        run = attempt.call.run
        run.request_stop("the application's event loop ended")
        ending = cancelled_ending(run, begun=attempt.task is not None)
        self._attempts.end_attempt(attempt, structs.replace(ending, cut_off=True))

    def _start_task(self, attempt: _LoopAttempt) -> None:
        run = attempt.call.run
        if not self._attempts.is_open(attempt):
            return
        if not run.may_begin():
            self._attempts.end_attempt(attempt, self._on_stopped(attempt))
            return
        attempt.home.pulse.thread = threading.get_ident()
        context = Context()
        context.run(enter_run, run)
        coroutine = self._run_attempt(attempt)
        try:
            # The task copies the context in which it is created. (create_task(context=…) fails with some task
            # factories.)
            task = context.run(attempt.home.loop.create_task, coroutine)
            # A task factory may also return something that is no task.
            task.add_done_callback(lambda task: self._on_settled(attempt, task))
        except BaseException as error:  # noqa: BLE001 — an application's own task factory may raise anything
            self._attempts.end_attempt(attempt, ending_of_error(error, run))
            with contextlib.suppress(BaseException):  # it may have begun
                coroutine.close()
            return
        attempt.task = task
        attempt.home.tasks.add(task)

    async def _run_attempt(self, attempt: _LoopAttempt) -> None:
        """Run the function and report its end; never raise: a SystemExit in a task would end the whole loop."""
        call, process = attempt.call, this_process.pid
        function, args, kwargs = call.registered.function, call.claim.args, call.claim.kwargs
        stack = ""
        try:
            args, kwargs = call_arguments(call.run, call.registered, args, kwargs)
        except BaseException as error:  # noqa: BLE001 — see above
            self._attempts.end_attempt(attempt, structs.replace(ending_of_error(error, call.run), permanent=True))
            return
        try:
            value = function(*args, **kwargs)
            leave_if_forked(process)
            if inspect.isawaitable(value):
                value = await Stepwise(value, process)
        except BaseException as error:  # noqa: BLE001 — see above
            leave_if_forked(process, error)
            permanent = cannot_be_called(function, args, kwargs, error)
            ending = structs.replace(ending_of_error(error, call.run), permanent=permanent)
            if attempt.asked == "timed_out":
                stack = describe_error(error).traceback
            elif attempt.asked is None and is_task_cancelled(error) and not isinstance(attempt.home, _OwnHome):
                attempt.held_back = ending
                self._attempts.timer.call_after(CHECK_EVERY, lambda: self._log_held_back(attempt))
                return
        else:
            ending = ending_of_value(value, call.registered.types)
        call.run.release_leftovers()
        if attempt.asked == "timed_out":
            ending = timed_out(attempt.timeout, traceback=stack)
        self._attempts.end_attempt(attempt, ending)

    def _on_settled(self, attempt: _LoopAttempt, task: asyncio.Task[None]) -> None:
        attempt.home.tasks.discard(task)
        if task.cancelled():  # before its first step, so the function was never called
            self._attempts.end_attempt(attempt, self._on_stopped(attempt))
        elif attempt.held_back is None and self._attempts.is_open(attempt):
            # The attempt is over, and nothing else would report it.
            self._attempts.end_attempt(
                attempt, failed_ending("RuntimeError", "the job's task ended without a word of how")
            )

    def _log_held_back(self, attempt: _LoopAttempt) -> None:
        """Report an attempt that other code cancelled, once it is known why."""
        if attempt.held_back is None or not self._attempts.is_open(attempt):
            return
        attempt.looks += 1
        if not attempt.home.is_turning or attempt.home.is_shut_down:
            self._cut_off(attempt)
        elif attempt.looks < CHECKS_AT_END and attempt.home.is_ending:
            self._attempts.timer.call_after(CHECK_EVERY, lambda: self._log_held_back(attempt))
        else:
            self._attempts.end_attempt(attempt, attempt.held_back)

    def _on_stopped(self, attempt: _LoopAttempt) -> Any:
        if attempt.asked == "timed_out":
            return timed_out(attempt.timeout, detail="before it began")
        return never_begun(attempt.call.run)

    def _over_time(self, attempt: _LoopAttempt) -> None:
        self._request_cancel(attempt, "timed_out")
        attempt.call.run.request_stop(Reason.TIMEOUT)

    def _request_cancel(self, attempt: _LoopAttempt, kind: str) -> None:
        with self._lock:
            if attempt.asked is not None:
                return
            attempt.asked = kind
        if attempt.held_back is not None:
            self._attempts.end_attempt(
                attempt, cancelled_ending(attempt.call.run) if kind == "cancelled" else attempt.held_back
            )
            return
        self._cancel_again(attempt)

    def _cancel_again(self, attempt: _LoopAttempt) -> None:
        """Cancel, and check after ``grace`` whether the task has ended."""
        if not self._attempts.is_open(attempt):
            return
        blocked = attempt.cancels > 0 and not attempt.seen
        if attempt.cancels >= MOST_CANCELS or (blocked and attempt.asked == "timed_out"):
            self._give_up(attempt, blocked=blocked)
            return
        attempt.cancels += 1
        attempt.seen = False
        self._post_attempt(attempt, self._cancel_task)
        self._attempts.timer.call_after(self._grace, lambda: self._cancel_again(attempt))

    def _cancel_task(self, attempt: _LoopAttempt) -> None:
        attempt.seen = True
        if attempt.task is not None:
            attempt.task.cancel()

    def _give_up(self, attempt: _LoopAttempt, *, blocked: bool) -> None:
        if blocked:
            detail = "something blocks its event loop; use await, asyncio.to_thread, or executor='thread'"
            stack = stack_of(attempt.home.pulse.thread)
            with self._lock:
                if self._home is attempt.home and isinstance(attempt.home, _OwnHome):
                    self._home = None  # the next call gets a new loop; this one ends when its tasks have, if ever
                    attempt.home.end_loop(cancel=False)
        else:
            detail = "it went on after it was cancelled, and is given up; what it does from here on is ignored"
            stack = ""
        if attempt.asked == "timed_out":
            self._attempts.end_attempt(attempt, timed_out(attempt.timeout, traceback=stack, detail=detail))
        else:
            self._attempts.end_attempt(attempt, cancelled_ending(attempt.call.run, detail=detail))

    def _end_orphans(self) -> None:
        """End the attempts whose loop was closed under them: its pending callbacks are dropped silently."""
        for attempt in self._attempts.list_open():
            home = attempt.home
            if home.loop.is_closed():
                self._loop_is_closed(attempt)
            elif attempt.task is None and not isinstance(home, _OwnHome) and not home.is_turning:
                self._cut_off(attempt)  # it waits in the queue of a loop that no thread runs
        with self._lock:
            self._looking = bool(self._attempts.list_open())
            goes_on = self._looking
        if goes_on:
            self._attempts.timer.call_after(CHECK_EVERY, self._end_orphans)
