"""Runs sync functions on threads of its own.

::

    start ──▶ idle worker, or a new one ──▶ function ──▶ report ──▶ idle ──▶ (a minute later) gone
                                               ▲            │
                                               └── start ◀──┘  an attempt that starts during the report reuses the
                                               worker
                                               │
                                        over its time: the watchdog asks it to stop; its end is reported only when its
                                        function returns, as timed out

Failure handling: Python cannot stop a thread. A stuck job therefore keeps its thread, and its run goes on: if it ended
while the function still works, the next attempt, or the next run of the job, would work beside it. Others get new
threads. All are daemons (those of ``concurrent.futures`` are joined at exit), so the process can end. No exception of a
function ends its worker. An exception that another thread raises *into* a worker (``PyThreadState_SetAsyncExc``, as
libraries for timeouts do) ends its attempt, and the worker goes on.
"""

from __future__ import annotations

import itertools
import queue
import threading

from cronsensus.membership.timer import Timer
from cronsensus.model.ending import Ending
from cronsensus.model.states import Reason
from cronsensus.node.executors.attempt import Attempt, Attempts, perform_call
from cronsensus.node.executors.base import Call, Done, Executor
from cronsensus.node.executors.result import ending_of_error, failed_ending, never_begun, stack_of, timed_out
from cronsensus.process.interrupts import Event
from cronsensus.process.logger import Logger
from cronsensus.timing.clock import Clock, SystemClock

_log = Logger("cronsensus.node")

IDLE_SECONDS = 60.0
"""How long a worker without work stays."""


YIELD_TO_WORKER = 0.00005
"""Seconds for which the caller of ``start`` releases the GIL, so that the new thread starts before the caller's round
goes on."""
BURST_WINDOW = 0.005
"""The GIL is released only for a run that starts alone: none is active, and none started so many seconds before."""
_CLOCK = SystemClock()


class _Worker:
    __slots__ = ("attempt", "chosen", "inbox", "thread")

    def __init__(self) -> None:
        self.inbox: queue.SimpleQueue[_ThreadAttempt | None] = queue.SimpleQueue()
        self.thread: threading.Thread
        self.attempt: _ThreadAttempt | None = None
        """The attempt that it has not reported yet. Set before it is in the inbox: an exception that is raised into the
        thread may come between the inbox and a local variable."""
        self.chosen = True
        """Whether an attempt is on its way to the inbox."""


class _ThreadAttempt(Attempt):
    __slots__ = ("late_at", "returned", "worker")

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self.worker: _Worker
        self.returned = False
        self.late_at: str | None = None
        """The stack at its timeout."""


class ThreadExecutor(Executor):
    """Runs functions on daemon threads, made on demand and reused when idle.

    ``timeout`` and ``stop`` only set the run's events, and the attempt ends when its function does.

    Args:
        done: called once with each end, on any thread (also on the one that calls ``start``, if no thread can be
            created); must not block.
        clock: measures how long attempts take.
        timer: the watchdog shared with other executors.
    """

    def __init__(self, on_ending: Done, clock: Clock, timer: Timer | None = None) -> None:
        self._attempts: Attempts[_ThreadAttempt] = Attempts(on_ending, clock, timer)
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self._reporting: dict[int, _Worker] = {}
        """Workers that are reporting an end, by thread: an attempt that starts on such a thread reuses the worker."""
        self._numbers = itertools.count(1)
        self._closed = False
        self._began_at = float("-inf")

    def start(self, call: Call) -> None:
        """Start an attempt on an idle thread or a new one."""
        attempt = _ThreadAttempt(call)
        idle = self._reporting.pop(threading.get_ident(), None)
        with self._lock:
            if idle is None and self._idle:
                idle = self._idle.pop()
            if idle is not None:
                idle.chosen = True
        attempt.worker = worker = idle or self._new_worker()
        try:
            self._attempts.open_attempt(attempt, self._over_time)
        except RuntimeError:
            worker.inbox.put(None)
            raise
        worker.attempt = attempt
        worker.inbox.put(attempt)
        if idle is None:
            try:
                worker.thread.start()
            except RuntimeError as error:
                message = f"the node cannot start another thread: {error}"
                hint = "lower --concurrency, or raise the limit on threads"
                self._attempts.end_attempt(attempt, failed_ending("RuntimeError", f"{message}; {hint}"))
        elif worker.thread is not threading.current_thread() and self._begins_alone():
            # Otherwise the GIL would pass to the worker only when the caller next waits for something.
            Event().wait(YIELD_TO_WORKER)

    def _begins_alone(self) -> bool:
        before, self._began_at = self._began_at, _CLOCK.monotonic()
        return self._began_at - before > BURST_WINDOW and len(self._attempts) == 1

    def stop(self, call: Call, reason: str, *, lease_lost: bool = False) -> None:
        """Set the run's events; a thread cannot be stopped from outside."""
        call.run.request_stop(reason, lease_lost=lease_lost)

    def close(self) -> None:
        """Ask all runs to stop, and end idle threads; the others end with the process."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for attempt in self._attempts.close():
            attempt.call.run.request_stop("the node stops")
        for worker in idle:
            worker.inbox.put(None)
        for worker in idle:
            if worker.thread is not threading.current_thread():
                worker.thread.join(1.0)

    def _new_worker(self) -> _Worker:
        worker = _Worker()
        name = f"cronsensus-job-{next(self._numbers)}"
        worker.thread = threading.Thread(target=self._run_worker, args=(worker,), name=name, daemon=True)
        return worker

    def _run_worker(self, worker: _Worker) -> None:
        goes_on = True
        while goes_on:
            try:
                self._work_on(worker)
                goes_on = False
            except BaseException as error:  # noqa: BLE001 — a worker that died of it would never report its attempt
                goes_on = self._clear_interruption(worker, error)

    def _work_on(self, worker: _Worker) -> None:
        # The first attempt comes through the inbox, too: a Thread keeps its arguments alive.
        attempt, thread = worker.inbox.get(), threading.get_ident()
        while attempt is not None:
            worker.chosen = False
            call = attempt.call
            if not call.run.may_begin():
                ending = never_begun(call.run)
            else:
                ending = perform_call(call.run, call.registered, call.claim.args, call.claim.kwargs)
            ending = self._in_time(attempt, ending)
            self._reporting[thread] = worker
            reported = self._attempts.end_attempt(attempt, ending)
            has_next = self._reporting.pop(thread, None) is None
            if not has_next:
                worker.attempt = None
            if not reported:
                break
            attempt = call = ending = None  # type: ignore[assignment]  # so that an idle thread keeps nothing alive
            attempt = worker.inbox.get() if has_next else self._next_attempt(worker)

    def _clear_interruption(self, worker: _Worker, error: BaseException) -> bool:
        """Clean up after an exception from outside; return whether an attempt is on its way to the worker."""
        attempt, worker.attempt = worker.attempt, None
        self._reporting.pop(threading.get_ident(), None)
        with self._lock:
            if worker in self._idle:
                self._idle.remove(worker)
                return False
        if attempt is not None:
            self._attempts.end_attempt(attempt, self._in_time(attempt, ending_of_error(error, attempt.call.run)))
            return False
        return worker.chosen

    def _in_time(self, attempt: _ThreadAttempt, ending: Ending) -> Ending:
        """Return the ending of a function that has returned, or of its timeout, if that came first."""
        with self._lock:
            attempt.returned = True
        if attempt.late_at is None:
            return ending
        detail = "its thread cannot be stopped, and what it did afterwards is ignored; executor='process' can be"
        return timed_out(attempt.timeout, traceback=attempt.late_at, detail=detail)

    def _next_attempt(self, worker: _Worker) -> _ThreadAttempt | None:
        """Wait for the worker's next attempt; ``None`` when it should leave."""
        with self._lock:
            if self._closed:
                return None
            self._idle.append(worker)
        try:
            return worker.inbox.get(timeout=IDLE_SECONDS)
        except queue.Empty:
            with self._lock:
                if worker in self._idle:
                    self._idle.remove(worker)
                    return None
        return worker.inbox.get()  # it was chosen in this moment: its attempt is on the way

    def _over_time(self, attempt: _ThreadAttempt) -> None:
        stack = stack_of(attempt.worker.thread.ident)
        with self._lock:
            if attempt.returned or not self._attempts.is_open(attempt):
                return
            attempt.late_at = stack
        attempt.call.run.request_stop(Reason.TIMEOUT)
        _log.aside.warning(
            "run %d of %r is over its timeout and still working: a thread cannot be stopped, so it keeps its place, "
            "here and in its job's concurrency, until its function returns, and is failed or tried again only then; "
            "with executor='process' it would end now",
            attempt.call.claim.id, attempt.call.claim.job,
        )  # fmt: skip
