"""A few threads for the store calls of async code, and for releases in the background.

Not the event loop's default pool: calls that wait for a lock could occupy all its threads, and the holder of the lock
would find none to release it in.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TypeVar

from cronsensus.process.background import Act, Background, Gone
from cronsensus.process.logger import Logger
from cronsensus.process.this_process import call_after_fork

Answer = TypeVar("Answer")

_log = Logger("cronsensus.lock")

THREADS = 8

_pool = Background("cronsensus-lock", most=THREADS, log=_log)
_renewing = Background("cronsensus-lock-renewal", most=THREADS, log=_log)


_is_inline = False


@contextmanager
def acting_inline() -> Iterator[None]:
    """Do acts on the thread that submits them until the block ends, for tests that have one thread and one order."""
    global _is_inline  # noqa: PLW0603 - of the process, as the pool is
    before, _is_inline = _is_inline, True
    try:
        yield
    finally:
        _is_inline = before


def submit_renewal(act: Act) -> None:
    """Run ``act`` on a thread for renewals: calls that wait for a busy store could occupy all others."""
    _renewing.submit(act)


def submit_act(act: Act) -> None:
    """Run ``act`` on a thread of this pool."""
    if _is_inline:
        act()
    else:
        _pool.submit(act)


def submit_drop(act: Act) -> None:
    """Run ``act`` on a thread of this pool; for ``__del__``, so it takes no lock and starts no thread."""
    if not sys.is_finalizing():
        _pool.drop(act)


def when_gone() -> Callable[[Gone], None]:
    """Return the callback of a ``Gone`` whose act is to run on this pool."""
    return _pool.when_gone


def start_holding(item: Gone) -> None:
    """Keep a reference to ``what``, and a thread for its act and for ``submit_drop``."""
    _pool.held[item] = None
    _pool.need_one()


def end_holding(item: Gone) -> None:
    """Drop the reference to ``what``."""
    _pool.held.pop(item, None)


def _ask_async(ask: Callable[[], Answer]) -> Future[Answer]:
    future: Future[Answer] = Future()

    def act() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            answer = ask()
        except BaseException as error:  # noqa: BLE001 - it is the caller's
            future.set_exception(error)
        else:
            future.set_result(answer)

    submit_act(act)
    return future


async def on_worker(ask: Callable[[], Answer], on_late_answer: Callable[[Answer], object] | None = None) -> Answer:
    """Call ``ask`` on a thread of this pool. If the caller is cancelled, ``on_late_answer`` gets the answer.

    A cancellation before a thread has begun with ``ask`` withdraws it. ``call_surely`` is for what has to be done.
    """
    future = _ask_async(ask)
    try:
        return await asyncio.wrap_future(future)
    except asyncio.CancelledError:
        if on_late_answer is not None:
            future.add_done_callback(lambda done_future: _hand_over(done_future, on_late_answer))
        raise


async def call_surely(act: Callable[[], Answer]) -> Answer:
    """Call ``act`` on a thread of this pool. A cancelled caller waits until it is done.

    A second cancellation ends the wait, and ``act`` goes on by itself.
    """
    future = asyncio.wrap_future(_ask_async(act))
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        future.add_done_callback(_retrieve_error)
        await asyncio.wait([future])
        raise


def _retrieve_error(future: asyncio.Future[Answer]) -> None:
    if not future.cancelled() and (error := future.exception()) is not None:
        _log.warning("what a cancelled task still had to do failed: %s", error)


def _hand_over(future: Future[Answer], on_late_answer: Callable[[Answer], object]) -> None:
    if not future.cancelled() and future.exception() is None:
        answer = future.result()
        submit_act(lambda: on_late_answer(answer))


def _in_child() -> None:
    global _pool, _renewing  # noqa: PLW0603 - the parent's threads do not exist here
    _pool = Background("cronsensus-lock", most=THREADS, log=_log)
    _renewing = Background("cronsensus-lock-renewal", most=THREADS, log=_log)


call_after_fork(_in_child)
