"""``Job``: a function that was declared, and what can be done with it. Floor 5."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from datetime import datetime
from typing import Any, Generic, ParamSpec, TypeVar

from cronsensus.functions import is_async
from cronsensus.handle import Handle
from cronsensus.model.durations import Duration
from cronsensus.model.job import JobSpec
from cronsensus.operations import Operations
from cronsensus.triggers import Trigger
from cronsensus.twins import twin

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)


class Job(Generic[P, R_co]):
    """A declared job: still the function that it was, and a name in the store.

    Calling it calls the function, here and now, and nothing else: no store, no record. ``enqueue`` asks the cluster to.

    Example:
        >>> from cronsensus.scheduler import Scheduler
        >>> scheduler = Scheduler("memory://")
        >>> @scheduler.job()
        ... def greet(name: str) -> str:
        ...     return f"Hello, {name}"
        >>> greet("Ada")
        'Hello, Ada'

    Attributes:
        name: unique in the namespace.
        function: the function itself.
    """

    def __init__(
        self, name: str, function: Callable[P, R_co], operations: Operations, spec: Callable[[], JobSpec]
    ) -> None:
        """Make a job; ``Scheduler.job`` and ``Scheduler.add_job`` do."""
        functools.update_wrapper(self, function, updated=())
        self.name = name
        self.function = function
        self._operations = operations
        self._spec = spec
        if is_async(function):
            # Frameworks ask before they call; a job of an async function is one.
            if sys.version_info >= (3, 12):
                inspect.markcoroutinefunction(self)
            else:
                import asyncio

                self._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]  # noqa: SLF001

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function."""
        return self.function(*args, **kwargs)

    @property
    def spec(self) -> JobSpec:
        """The definition that the store gets: names and JSON."""
        return self._spec()

    @property
    def trigger(self) -> Trigger | None:
        """When it runs by itself; ``None``: only when told to. To run it now, ``trigger_now``."""
        return self.spec.trigger

    def enqueue(
        self,
        /,
        *args: Any,
        key: str | None = None,
        delay: Duration | None = None,
        at: datetime | str | None = None,
        priority: int | None = None,
        expires: Duration | None = None,
        **kwargs: Any,
    ) -> Handle:
        """Ask for one run with these arguments; see ``Scheduler.enqueue``."""
        return self._operations.enqueue(
            self, *args, key=key, delay=delay, at=at, priority=priority, expires=expires, **kwargs
        )

    aenqueue = twin(enqueue)

    def pause(self, *, reason: str, by: str | None = None) -> bool:
        """Stop firing; see ``Scheduler.pause``."""
        return self._operations.pause(self, reason=reason, by=by)

    apause = twin(pause)

    def resume(self, *, by: str | None = None, reason: str = "") -> bool:
        """End a pause; see ``Scheduler.resume``."""
        return self._operations.resume(self, by=by, reason=reason)

    aresume = twin(resume)

    def trigger_now(self, *, by: str | None = None, reason: str = "") -> Handle:
        """Run it now, beside its schedule; see ``Scheduler.trigger``."""
        return self._operations.trigger(self, by=by, reason=reason)

    atrigger_now = twin(trigger_now)

    def backfill(
        self, start: datetime | str, end: datetime | str, *, by: str | None = None, reason: str = ""
    ) -> list[Handle]:
        """Run it for nominal times of the past; see ``Scheduler.backfill``."""
        return self._operations.backfill(self, start, end, by=by, reason=reason)

    abackfill = twin(backfill)

    def __repr__(self) -> str:
        return f"<Job {self.name!r}>"
