"""End a forked child that returns from a job into the node's code: only the parent may report the run.

A forked child is a copy of the node's process with one thread. It has the node's table of runs, its event loop (with
the very same descriptor to wait at) and its connections, and none of these belongs to it. So if a job's code returns
to the library in another process than it was called in, that process ends. Before that the child may do anything:
``os.fork``, ``multiprocessing``, a daemon.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import sys
import threading
import traceback
from collections.abc import Awaitable, Generator, Iterable
from typing import Any

from cronsensus.process.this_process import this_process


def leave_if_forked(process: int, error: BaseException | None = None) -> None:
    """End this process if it is not ``process``, as a program would that ends here, with ``error`` or without."""
    if this_process.pid == process:
        return
    code = 0
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    elif error is not None:
        code = 1
        with contextlib.suppress(BaseException):  # the process ends, and has reported what it could
            traceback.print_exception(error)
    try:
        if sys.stderr is not None:
            sys.stderr.flush()
    finally:
        os._exit(code & 0xFF)


_masks = threading.local()


def block_signals(numbers: Iterable[int]) -> None:
    """Hold signals back on this thread until ``unblock_signals``: before a fork, and while a child settles in.

    A signal for the child that came before it has put the handlers right would go to those of its parent.
    """
    vars(_masks).setdefault("before", []).append(signal.pthread_sigmask(signal.SIG_BLOCK, numbers))


def unblock_signals() -> None:
    """Let those signals arrive; what was held back arrives now."""
    if masks := vars(_masks).get("before"):
        signal.pthread_sigmask(signal.SIG_SETMASK, masks.pop())


class Stepwise:
    """Awaits what a job awaits, and lets no forked child out into the event loop.

    A child that waits inside of a coroutine would go back to its parent's loop, and turn it.
    """

    __slots__ = ("_awaited", "_process")

    def __init__(self, awaited: Awaitable[Any], process: int) -> None:
        self._awaited = awaited
        self._process = process

    def __await__(self) -> Generator[Any, Any, Any]:
        """Hand each step on, in both directions."""
        process, awaited = self._process, self._awaited
        # A generator that types.coroutine made is awaitable without having the method.
        steps: Any = awaited.__await__() if hasattr(awaited, "__await__") else awaited
        step = steps.__next__
        arguments: tuple[Any, ...] = ()
        while True:
            leave_if_forked(process)
            try:
                yielded = step(*arguments)
            except StopIteration as end:
                leave_if_forked(process)
                return end.value
            except BaseException as error:
                leave_if_forked(process, error)
                raise
            leave_if_forked(process)
            try:
                sent = yield yielded
            except GeneratorExit:
                if (close := getattr(steps, "close", None)) is not None:
                    close()
                raise
            except BaseException as error:
                if (throw := getattr(steps, "throw", None)) is None:
                    raise
                step, arguments = throw, (error,)
            else:
                step, arguments = (steps.__next__, ()) if sent is None else (steps.send, (sent,))


def own_selector() -> selectors.BaseSelector:
    """Return the selector of a node's own loop; in a forked child its wait ends that child.

    A task that a job has made may fork, too, and goes back to the loop by itself.
    """
    process = os.getpid()

    class OwnSelector(
        selectors.DefaultSelector
    ):  # the one of now: gevent replaces it, and the other stops all greenlets
        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            leave_if_forked(process)
            return super().select(timeout)

    return OwnSelector()
