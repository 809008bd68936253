"""A few threads for the short questions of async code, and for what has to be freed in the background. Floor 5.

Not the event loop's own: those that wait for a lock in that pool's threads could use up all of them, and the holder of
the lock would find none to release it in. And not ``concurrent.futures``, whose threads take no more work as soon as
the main thread ends, while other threads of the program go on under their locks.

They are started when there is something to do, and end when there has been nothing for a while; one stays for as long
as a lock is held, because ``drop`` must not start any.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import TypeVar

from cronsensus.logger import Logger

Answer = TypeVar("Answer")
Act = Callable[[], object]

_log = Logger("cronsensus.lock")

THREADS = 8
IDLE_SECONDS = 10.0
"""How long a thread without work stays."""


class _Pool:
    """Up to ``THREADS`` daemon threads. Never fewer than there are acts under way, so that none waits for another."""

    def __init__(self) -> None:
        self._acts: SimpleQueue[tuple[Act, bool]] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = self._under_way = self._started = 0
        self.held: set[int] = set()

    def submit(self, act: Act) -> None:
        with self._lock:
            self._need(self._under_way + 1)
            self._under_way += 1
        self._acts.put((act, True))

    def drop(self, act: Act) -> None:
        # Python may run this anywhere, also while this very thread holds any lock of ours: SimpleQueue takes none.
        self._acts.put((act, False))

    def need_one(self) -> None:
        if not self._threads:
            with self._lock:
                self._need(1)

    def _need(self, threads: int) -> None:
        if self._threads < min(threads, THREADS):
            thread = threading.Thread(target=self._work, name=f"cronsensus-lock_{self._started}", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # no more threads can be had
                if not self._threads:
                    raise
                return
            self._threads += 1
            self._started += 1

    def _work(self) -> None:
        while True:
            try:
                act, counts = self._acts.get(timeout=IDLE_SECONDS)
            except Empty:
                with self._lock:
                    if self._under_way or not self._acts.empty() or (self.held and self._threads == 1):
                        continue
                    self._threads -= 1
                    return
            try:
                act()
            except Exception:  # noqa: BLE001 - logged
                _log.exception("a mistake in cronsensus; please report it. It was done in the background")
            finally:
                del act  # it may be what keeps a lock alive
                if counts:
                    with self._lock:
                        self._under_way -= 1


_pool = _Pool()


def submit(act: Act) -> None:
    """Have something done on a thread of our own."""
    _pool.submit(act)


def drop(act: Act) -> None:
    """Have something done on a thread of our own; for ``__del__``, so without taking a lock or starting a thread."""
    if not sys.is_finalizing():
        _pool.drop(act)


def begin_holding(what: object) -> None:
    """See to it that there is a thread for ``drop``."""
    _pool.held.add(id(what))
    _pool.need_one()


def end_holding(what: object) -> None:
    """Need it no more."""
    _pool.held.discard(id(what))


def _ask(ask: Callable[[], Answer]) -> Future[Answer]:
    asked: Future[Answer] = Future()

    def act() -> None:
        if not asked.set_running_or_notify_cancel():
            return
        try:
            answer = ask()
        except BaseException as error:  # noqa: BLE001 - it is the caller's
            asked.set_exception(error)
        else:
            asked.set_result(answer)

    _pool.submit(act)
    return asked


async def on_worker(ask: Callable[[], Answer], in_vain: Callable[[Answer], object] | None = None) -> Answer:
    """Call ``ask`` on a thread of our own; if the caller is cancelled, its answer goes to ``in_vain`` there.

    A caller that is cancelled before a thread has begun with ``ask`` withdraws it: for questions, not for what has to
    be done. See ``surely``.
    """
    asked = _ask(ask)
    try:
        return await asyncio.wrap_future(asked)
    except asyncio.CancelledError:
        if in_vain is not None:
            asked.add_done_callback(lambda done: _hand_over(done, in_vain))
        raise


async def surely(act: Callable[[], Answer]) -> Answer:
    """Call ``act`` on a thread of our own, also if the caller is cancelled: that waits until it is done.

    A second cancellation ends the waiting, and ``act`` goes on by itself.
    """
    done = asyncio.wrap_future(_ask(act))
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        done.add_done_callback(_look_at_the_error)
        await asyncio.wait([done])
        raise


def _look_at_the_error(done: asyncio.Future[Answer]) -> None:
    if not done.cancelled() and (error := done.exception()) is not None:
        _log.warning("what a cancelled task still had to do failed: %s", error)


def _hand_over(done: Future[Answer], in_vain: Callable[[Answer], object]) -> None:
    if not done.cancelled() and done.exception() is None:
        answer = done.result()
        _pool.submit(lambda: in_vain(answer))


def _in_child() -> None:
    global _pool  # noqa: PLW0603 - the parent's threads do not exist here
    _pool = _Pool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
