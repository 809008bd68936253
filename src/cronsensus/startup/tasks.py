"""Start-up tasks: exactly one of the workers that start together runs each task.

A task is a guarded function with the generation of the workers as its key. So nothing needs clearing after a crash:
the next generation has another key, and a waiting worker takes over from a dead one.

With ``wait=False`` the other workers go on at once. The runner may still die, so they watch on another thread until the
task has succeeded.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable

# Not later: it cannot be loaded once the main thread has ended, and drivers that a thread then opens load it too.
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Literal, Never

from cronsensus.errors import CronsensusError, InvalidOption, StillRunning
from cronsensus.model.job import JobSpec, check_choice, check_name
from cronsensus.once.choices import OnError
from cronsensus.once.declaring import Guards, inspect_guarded, read_options, refuse_unknown, require_parentheses
from cronsensus.opened.scheduler_setup import Setup
from cronsensus.process.interrupts import Event
from cronsensus.process.logger import Logger
from cronsensus.process.twins import start_on_a_thread
from cronsensus.timing.durations import Duration

if TYPE_CHECKING:
    import asyncio

    from cronsensus.once.call_key import CallKey
    from cronsensus.once.guarded import GuardedOrSkipped
    from cronsensus.once.once import BusyPolicy, Once

_log = Logger("cronsensus.startup")

Scope = Literal["start", "deploy", "host"]

KEEP = "3650d"
"""Kept this long: a worker that is replaced months later must still find that its generation has done the task."""
_LEAVE = 2.0
"""Seconds that a watcher may take to end; a watcher that runs the task takes longer."""
_OPTIONS = {"scope", "wait", "deploy_id", "name", "on_error", "max_crashes", "keep"}


class Startups:
    """The start-up tasks of a scheduler."""

    def __init__(self, guards: Guards, setup: Setup) -> None:
        """Guard each task by ``guards``. Deploys and generations are identified by ``setup``."""
        self._guards = guards
        self._setup = setup
        self._startups: list[_Startup] = []
        self._watchers: list[_Watcher] = []

    def startup(
        self,
        scope: Scope = "start",
        *,
        wait: bool = False,
        deploy_id: str | None = None,
        on_error: OnError = "free",
        max_crashes: int | None = None,
        keep: Duration = KEEP,
        name: str | None = None,
        **unknown: Never,
    ) -> GuardedOrSkipped:
        """Run a function in exactly one of the workers that start together, when the scheduler starts.

        Tasks run in the order in which they are declared, before any job. An exception ends the start of that worker,
        and the task is free for another. Programs that start no node call ``run_startup``, or the function.

        Not prevented: that two generations run it at the same time, as in a reload; use a lock in it if they must not.

        Args:
            scope: ``"start"``: once for each generation of workers, that is for all that one master started, on one
                host. ``"deploy"``: once for each deploy, on any number of hosts. ``"host"``: once for each boot of the
                host.
            wait: do not go on before it has succeeded; take it over if its runner dies. Without it the others go on at
                once, and only watch.
            deploy_id: which deploy this is. Defaults to the setting (``CRONSENSUS_DEPLOY_ID``), and else to the code's
                version as far as it can be seen.
            on_error: ``"free"``: another worker may try; ``"keep"``: no worker of this generation tries again.
            max_crashes: of the runner, after which it is failed. ``None``: no limit.
            keep: how long it is remembered. Defaults to ten years.
            name: unique among the tasks. Defaults to the function's own.
            unknown: refused, with the option that was probably meant.

        Raises:
            InvalidOption: an unknown or impossible option.
            DuplicateJob: the name is taken by another task.
            UnsupportedFunction: no function.
        """
        refuse_unknown(unknown, _OPTIONS, "startup")
        require_parentheses(scope, "startup", "scope='start'")
        check_choice(scope, Scope, what="scope")
        if deploy_id is not None and scope != "deploy":
            raise InvalidOption(f"deploy_id={deploy_id!r}: only with scope='deploy'")
        if deploy_id is not None:
            check_name(deploy_id, what="deploy_id")
        most = 2**31 - 1 if max_crashes is None else max_crashes
        on_busy = "wait" if wait else "skip"
        options = read_options(keep, on_busy, on_error, "retry", most, None)

        def decorate(function: Callable[..., Any]) -> Any:
            inspected = inspect_guarded(function, name)
            try:
                if inspected.signature is not None:
                    inspected.signature.bind()
            except TypeError as error:
                raise InvalidOption(
                    f"startup: {inspected.name}() ({inspected.place}) is called without arguments: {error}"
                ) from None

            def call_key_of(spec: JobSpec, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallKey:  # noqa: ARG001
                from cronsensus.once.call_key import CallKey
                from cronsensus.startup.generations import generation_of

                key = generation_of(
                    scope,
                    deploy_id=deploy_id or self._setup.settings.deploy_id,
                    generation=self._setup.settings.generation,
                    release=lambda: self._setup.release,
                    function=inspected.registered.function,
                )
                return CallKey(spec, key)

            once = self._guards.guard_function("startup", inspected, call_key_of, options)
            self._startups.append(_Startup(once, wait=wait))
            return once

        return decorate

    @property
    def make_wait(self) -> bool:
        """Whether a task is declared for which each worker waits."""
        return any(task.waits for task in self._startups)

    def run_startup(self) -> None:
        """Run the start-up tasks that this process has to run; for programs that start no node.

        Raises:
            Exception: what a task raised here.
            RunFailed: a task failed for good elsewhere (``on_error="keep"``).
            StoreError: the store does not answer.
        """
        self.start_up(None)

    async def arun_startup(self) -> None:
        """Do what ``run_startup`` does without blocking the event loop, on which async tasks run."""
        import asyncio

        is_over, loop = Event(), asyncio.get_running_loop()

        def run() -> None:
            if not is_over.is_set():
                self.start_up(loop, is_over.is_set)

        running = start_on_a_thread(run)
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            is_over.set()
            await asyncio.wait([running])  # a second cancellation ends this wait; the thread ends at its next wait
            raise
        finally:
            is_over.set()

    def start_up(
        self, loop: asyncio.AbstractEventLoop | None, asked_to_stop: Callable[[], bool] = lambda: False
    ) -> None:
        """Run the tasks. Waiting for another worker's task ends when this worker is asked to stop."""
        for task in self._startups:
            watcher = task.run_task(loop, asked_to_stop)
            if watcher is not None:
                self._watchers = [
                    *(watcher_thread for watcher_thread in self._watchers if watcher_thread.is_alive()),
                    watcher,
                ]
                watcher.start()

    def end_watching(self) -> None:
        """Stop watching, so that this process takes over no task; a task that it has taken over goes on."""
        watchers = self._watchers
        for watcher in watchers:
            watcher.call_off()
        if any(watcher.is_alive() for watcher in watchers):
            self._guards.claims().waiters.wake_all()
        for watcher in watchers:
            watcher.join_thread()
        # Last: an interrupted call is repeated from the beginning.
        self._watchers = [watcher for watcher in self._watchers if watcher not in watchers]


class _Startup:
    """A start-up task, as this worker runs it."""

    def __init__(self, once: Once[..., Any], *, wait: bool) -> None:
        self._once = once
        self.waits = wait

    def run_task(self, loop: asyncio.AbstractEventLoop | None, asked_to_stop: Callable[[], bool]) -> _Watcher | None:
        """Run it, or wait for the worker that does, or return a watcher of that worker."""
        from cronsensus.once.once import BusyPolicy

        try:
            self.call_task(loop, BusyPolicy("wait", None, asked_to_stop) if self.waits else BusyPolicy("raise", 0.0))
        except StillRunning as error:
            if self.waits:
                raise StillRunning(
                    f"this worker was asked to stop while it waited for {self.name!r}, which another worker runs; "
                    "nothing was started"
                ) from error
            _log.info("%s is being run by another worker; going on meanwhile", self.name)
            return _Watcher(self, loop)
        return None

    @property
    def name(self) -> str:
        """The name of the task."""
        return self._once.name

    def call_task(self, loop: asyncio.AbstractEventLoop | None, how: BusyPolicy) -> None:
        """Call it, on an event loop if it is async."""
        called = self._once.call(how)
        if not self._once.is_async:
            return
        import asyncio

        if loop is not None:
            asyncio.run_coroutine_threadsafe(called, loop).result()
        elif asyncio._get_running_loop() is None:  # noqa: SLF001 - it raises nothing where no loop runs
            asyncio.run(called)
        else:
            # start() on the thread of an event loop, which another loop cannot be run on.
            with ThreadPoolExecutor(1, thread_name_prefix="cronsensus-startup") as own_thread:
                own_thread.submit(contextvars.copy_context().run, asyncio.run, called).result()


class _Watcher(threading.Thread):
    """Waits until another worker has run the task, and takes it over if that worker dies."""

    def __init__(self, task: _Startup, loop: asyncio.AbstractEventLoop | None) -> None:
        super().__init__(name="cronsensus-startup", daemon=True)
        self._task = task
        self._loop = loop
        self._called_off = Event()

    def run(self) -> None:
        """Watch."""
        from cronsensus.once.once import BusyPolicy

        try:
            self._task.call_task(self._loop, BusyPolicy("raise", None, self._called_off.is_set))
        except StillRunning:
            _log.debug("%s is still being run by another worker; this one stops and watches no more", self._task.name)
        except CronsensusError as error:
            _log.warning("%s: %s", self._task.name, error)
        except Exception:  # noqa: BLE001 - logged: there is no caller
            _log.exception("%s failed; it was taken over from a worker that failed, or died", self._task.name)

    def call_off(self) -> None:
        """Stop watching; seen when the waiters are woken."""
        self._called_off.set()

    def join_thread(self) -> None:
        """Wait for the thread's end, but not for a task that it has taken over."""
        if self is not threading.current_thread():
            self.join(_LEAVE)
