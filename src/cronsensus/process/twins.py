"""Decorators of methods: for asynchronous twins, and for a required ``reason=``."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Coroutine
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from cronsensus.errors import InvalidOption

if TYPE_CHECKING:
    import asyncio

S = TypeVar("S")
P = ParamSpec("P")
R = TypeVar("R")


async def _to_thread(call: Callable[[], R]) -> R:
    import asyncio

    return await asyncio.to_thread(call)


def twin(
    method: Callable[Concatenate[S, P], R], on: Callable[[Callable[[], R]], Awaitable[R]] = _to_thread
) -> Callable[[Callable[[S], None]], Callable[Concatenate[S, P], Coroutine[Any, Any, R]]]:
    """Return a decorator whose async method calls ``method`` ``on`` another thread; the event loop goes on meanwhile.

    It keeps the name and docstring of the decorated definition; the signature is ``method``'s. It decorates a
    definition, because type checkers may not agree on the type of an assignment in a package.

    A cancelled twin leaves its thread to finish: the verbs are atomic, so the step is done either whole or not at all.
    """

    def decorate(named: Callable[[S], None]) -> Callable[Concatenate[S, P], Coroutine[Any, Any, R]]:
        async def on_a_thread(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
            return await on(functools.partial(method, self, *args, **kwargs))

        functools.update_wrapper(on_a_thread, method)
        for kept in ("__name__", "__qualname__", "__doc__"):
            setattr(on_a_thread, kept, getattr(named, kept))
        return on_a_thread

    return decorate


def require_reason(method: Callable[P, R]) -> Callable[P, R]:
    """Return a method that raises, with what to write, if ``reason=`` was left out; type checkers notice it, too."""

    @functools.wraps(method)
    def checked(*args: P.args, **kwargs: P.kwargs) -> R:
        if "reason" not in kwargs:
            raise InvalidOption(
                f'{method.__name__}() needs a reason, for whoever finds it later in the trail; write reason="…"'
            )
        return method(*args, **kwargs)

    return checked


def start_on_a_thread(function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[R]:
    """Call a function on a thread of the running loop's, in a copy of this context; ``to_thread`` begins when awaited.

    So it is no task of its own, which a loop that ends would cancel before it has begun.
    """
    import asyncio

    call = functools.partial(copy_context().run, function, *args, **kwargs)
    return asyncio.get_running_loop().run_in_executor(None, call)
