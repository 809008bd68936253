"""Daemon threads for ``asyncio.to_thread`` on a node's own loop: the interpreter does not wait for them at exit."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from cronsensus.node.forks import leave_if_forked

MOST_THREADS = 32


class DaemonThreads(ThreadPoolExecutor):
    """Runs functions on daemon threads, made on demand.

    Those of ``ThreadPoolExecutor``, which an event loop insists on, are joined when the interpreter ends: a job that
    was cut off would keep a node's process for as long as what it had begun there.
    """

    def __init__(self, most: int = MOST_THREADS) -> None:
        super().__init__(most)
        self._most = most
        self._process = os.getpid()
        self._inbox: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        self._guard = threading.Lock()
        self._open = self._count = 0
        self._over = False

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Have a function called on a thread."""
        future: Future[Any] = Future()
        with self._guard:
            if self._over:
                raise RuntimeError("cannot schedule new futures after shutdown")
            self._inbox.put((future, lambda: function(*args, **kwargs)))
            self._open += 1
            if self._open > self._count and self._count < self._most:
                self._count += 1
                name = f"cronsensus-loop-worker-{self._count}"
                threading.Thread(target=self._run_functions, name=name, daemon=True).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002
        """Accept no more calls; idle threads end. Never waits."""
        with self._guard:
            self._over = True
            for _ in range(self._count):
                self._inbox.put(None)

    def _run_functions(self) -> None:
        while (item := self._inbox.get()) is not None:
            future, call = item
            if future.set_running_or_notify_cancel():
                try:
                    result = call()
                    leave_if_forked(self._process)
                except BaseException as error:  # noqa: BLE001 - raised where it is awaited
                    leave_if_forked(self._process, error)
                    future.set_exception(error)
                else:
                    future.set_result(result)
                    del result
            del item, future, call
            with self._guard:
                self._open -= 1
