"""A few threads for the short questions of async code. Floor 5.

Not the event loop's own: those who wait for a lock in that pool's threads could use up all of them, and whoever holds
the lock would find none to release it in.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

Answer = TypeVar("Answer")

THREADS = 8
_guard = threading.Lock()
_pools: list[ThreadPoolExecutor] = []


def _pool() -> ThreadPoolExecutor:
    with _guard:
        if not _pools:
            _pools.append(ThreadPoolExecutor(THREADS, thread_name_prefix="cronsensus-lock"))
        return _pools[0]


def submit(act: Callable[[], object]) -> None:
    """Have something done on a thread of our own."""
    _pool().submit(act)


async def on_worker(ask: Callable[[], Answer], in_vain: Callable[[Answer], object] | None = None) -> Answer:
    """Call ``ask`` on a thread of our own; if the caller is cancelled, its answer goes to ``in_vain`` there."""
    asked = _pool().submit(ask)
    try:
        return await asyncio.wrap_future(asked)
    except asyncio.CancelledError:
        if in_vain is not None:
            asked.add_done_callback(lambda done: _hand_over(done, in_vain))
        raise


def _hand_over(done: Future[Answer], in_vain: Callable[[Answer], object]) -> None:
    if not done.cancelled() and done.exception() is None:
        _pool().submit(in_vain, done.result())


def _in_child() -> None:
    global _guard  # noqa: PLW0603 - the parent's thread that may hold it does not exist here
    _guard = threading.Lock()
    _pools.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
