"""``Job``: a declared function, and the operations on it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, Unpack, overload

from cronsensus.declared.functions import mark_async
from cronsensus.jobs.calls import Call, CallOptions, read_options, require_call
from cronsensus.jobs.enqueuing import JobWithOptions
from cronsensus.jobs.handle import Handle
from cronsensus.jobs.operations import Operations
from cronsensus.model.job import JobSpec
from cronsensus.process.twins import require_reason, twin
from cronsensus.run import Run
from cronsensus.triggers import Trigger

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


_ENQUEUE = "{0}.enqueue(…), in async code await {0}.aenqueue(…)"
_LATER = '{0}.options(delay="5m").enqueue(…)'
_CHAIN = "{0}.call(…) for enqueue_many; for one after another @scheduler.job(after=[{0}])"
ELSEWHERE = {
    **dict.fromkeys(("delay", "send", "defer", "kiq", "kick", "perform_async"), _ENQUEUE),
    **dict.fromkeys(("apply_async", "send_with_options", "defer_async", "schedule", "perform_in"), _LATER),
    **dict.fromkeys(("s", "si", "signature", "subtask", "message"), _CHAIN),
    "trigger_now": "{0}.trigger(…)",
    "apply": "{0}(…), which calls the function here and now",
}
"""Method names of other libraries, and what to write here."""


class Job(Generic[P, R_co]):
    """A declared job: a callable like its function, with a name in the store.

    A call calls the function, here and now: no store, no record. ``enqueue`` has the cluster run it.

    A type checker checks the arguments of both, and knows the type of ``enqueue(…).result()``. It does not check the
    arguments of a function whose ``Run`` is not its first parameter: there is no type for it. ``enqueue`` always
    checks.

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
        self,
        name: str,
        function: Callable[P, R_co],
        operations: Operations,
        spec: Callable[[], JobSpec],
    ) -> None:
        """Make a job; ``Scheduler.job`` and ``Scheduler.add_job`` do."""
        functools.update_wrapper(self, function, updated=())
        self.name = name
        self.function = function
        self._operations = operations
        self._spec = spec
        mark_async(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function."""
        return self.function(*args, **kwargs)

    @property
    def spec(self) -> JobSpec:
        """The definition that the store gets: names and JSON."""
        return self._spec()

    @property
    def rule(self) -> Trigger | None:
        """When it runs by itself; ``None``: only on request. To run it now, call ``trigger()``."""
        return self.spec.trigger

    @property
    def zone(self) -> str:
        """The name of its time zone: that of its trigger, else the scheduler's."""
        return self._operations.zone_of(self.name)

    @property
    def next_time(self) -> datetime | None:
        """The nominal time that is decided next, aware, UTC, as the store has it now; the start may be later by jitter.

        It is in the past if no node was alive to decide it. ``None``: never again, without a trigger, while it is
        paused, and when it is retired. Reads the store; on an event loop ``await job.anext_time()``.

        Raises:
            StoreError: the store could not be read.
        """
        return self._operations.next_time(self.spec)

    async def anext_time(self) -> datetime | None:
        """Return ``next_time`` without blocking the event loop."""
        import asyncio

        return await asyncio.to_thread(lambda: self.next_time)

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R_co]:
        """Enqueue a run with these arguments; see ``Scheduler.enqueue``."""
        return self._operations.enqueue(self, *args, **kwargs)

    @twin(enqueue)
    def aenqueue(self) -> None:
        """Do what ``enqueue`` does without blocking the event loop."""

    def enqueue_in(self, connection: Any, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R_co]:
        """Enqueue a run that exists if the caller's transaction commits; see ``Scheduler.enqueue_in``."""
        return self._operations.enqueue_in(connection, self, *args, **kwargs)

    async def aenqueue_in(self, connection: Any, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R_co]:
        """Do what ``enqueue_in`` does on a connection that is awaited."""
        return await self._operations.aenqueue_in(connection, self, *args, **kwargs)

    def options(self, **options: Unpack[CallOptions]) -> JobWithOptions[P, R_co]:
        """Return the job with options for its next call: ``send_invoice.options(key="invoice:42").enqueue(42)``.

        Args:
            options:
                ``key``: a second call with the same key does nothing and returns the occurrence of the first, even if
                that is final, for as long as the job's ``keep`` (30 days by default). Defaults to a new key.
                ``on_mismatch``: other arguments under a known key are an ``"error"``, ``PayloadMismatch``; or
                ``"return"`` the occurrence of the first call.
                ``on_failed``: what to do if the run under the key ended without success (failed, cancelled, skipped or
                missed), and was not retried since with success. ``"keep"`` returns that run like any other; ``"free"``
                deletes it, with its attempts and its log, and makes a new run under the key. It is in the trail.
                ``delay``: not before this time has passed on the store's clock.
                ``at``: not before this instant: an aware datetime, or text. Text without an offset, such as
                ``"2026-12-01 09:00"``, is of the zone of the job's trigger, else of the scheduler. Later than the year
                2255 (``datetime.max``) means never.
                ``priority``: higher goes first. Defaults to the job's.
                ``expires``: not started this long after it was due: missed(late).

        Raises:
            InvalidOption, InvalidDuration: an unknown or invalid option.
        """
        return JobWithOptions(self._operations, read_options(self.name, options, self._operations.zone_of(self.name)))

    def call(self, /, *args: P.args, **kwargs: P.kwargs) -> Call[R_co]:
        """Return a call for ``enqueue_many``; it is checked, not enqueued. With options: ``options(…).call``."""
        return self._operations.call(self, *args, **kwargs)

    def enqueue_many(self, calls: Iterable[Call[R_co]]) -> list[Handle[R_co]]:
        """Enqueue many calls of this job, a thousand in one step of the store; see ``Scheduler.enqueue_many``.

        Example: ``send_invoice.enqueue_many(send_invoice.call(number) for number in numbers)``.

        Raises:
            InvalidOption: a call of another job; ``scheduler.enqueue_many`` takes calls of several jobs.
        """
        return self._operations.enqueue_many(require_call(call, self.name) for call in calls)

    @twin(enqueue_many)
    def aenqueue_many(self) -> None:
        """Do what ``enqueue_many`` does without blocking the event loop."""

    def enqueue_many_in(self, connection: Any, calls: Iterable[Call[R_co]]) -> list[Handle[R_co]]:
        """Enqueue at most a thousand calls of this job in the caller's transaction; see ``Scheduler.enqueue_in``.

        Raises:
            InvalidOption: a call of another job, or too many of them.
        """
        return self._operations.enqueue_many_in(connection, (require_call(call, self.name) for call in calls))

    async def aenqueue_many_in(self, connection: Any, calls: Iterable[Call[R_co]]) -> list[Handle[R_co]]:
        """Do what ``enqueue_many_in`` does on a connection that is awaited."""
        return await self._operations.aenqueue_many_in(connection, (require_call(call, self.name) for call in calls))

    def enqueue_batch(
        self, items: Iterable[Any], *, key: str | None = None, item_key: Callable[[Any], str | int] | None = None
    ) -> Handle[Any]:
        """Run it once for each item, on whichever nodes have free slots; see ``Scheduler.enqueue_batch``."""
        return self._operations.enqueue_batch(self, items, key=key, item_key=item_key)

    @twin(enqueue_batch)
    def aenqueue_batch(self) -> None:
        """Do what ``enqueue_batch`` does without blocking the event loop."""

    @require_reason
    def pause(self, *, reason: str, by: str | None = None) -> bool:
        """Stop firing; see ``Scheduler.pause``."""
        return self._operations.pause(self, reason=reason, by=by)

    @twin(pause)
    def apause(self) -> None:
        """Do what ``pause`` does without blocking the event loop."""

    def resume(self, *, by: str | None = None, reason: str = "") -> bool:
        """End a pause; see ``Scheduler.resume``."""
        return self._operations.resume(self, by=by, reason=reason)

    @twin(resume)
    def aresume(self) -> None:
        """Do what ``resume`` does without blocking the event loop."""

    def trigger(
        self, *, downstream: bool = False, key: str | None = None, by: str | None = None, reason: str = ""
    ) -> Handle[R_co]:
        """Run it now, beside its schedule; see ``Scheduler.trigger``."""
        return self._operations.trigger(self, downstream=downstream, key=key, by=by, reason=reason)

    @twin(trigger)
    def atrigger(self) -> None:
        """Do what ``trigger`` does without blocking the event loop."""

    def backfill(
        self, start: datetime | str, end: datetime | str, *, by: str | None = None, reason: str = ""
    ) -> list[Handle[R_co]]:
        """Run it for nominal times of the past; see ``Scheduler.backfill``."""
        return self._operations.backfill(self, start, end, by=by, reason=reason)

    @twin(backfill)
    def abackfill(self) -> None:
        """Do what ``backfill`` does without blocking the event loop."""

    if not TYPE_CHECKING:  # or each misspelt attribute would pass a type checker

        def __getattr__(self, attribute: str) -> Any:
            """Raise an error with what to write instead of another library's method.

            Raises:
                AttributeError: always.
            """
            if (instead := ELSEWHERE.get(attribute)) is not None:
                name = self.__dict__.get("name", "job")
                raise AttributeError(f"job {name!r} has no {attribute}; write {instead.format(name)}")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {attribute!r}")

    def __repr__(self) -> str:
        return f"<Job {self.name!r}>"


if TYPE_CHECKING:

    class RunJob(Job[P, R_co]):
        """A job of a function that takes the ``Run`` first: a call passes it, ``enqueue`` does not."""

        def __call__(self, run: Run, *args: P.args, **kwargs: P.kwargs) -> R_co:  # type: ignore[override]
            """Call the function."""


class Anything:
    """A type that no parameter accepts, unless it accepts anything."""


class _ByName0(Protocol[R_co]):
    def __call__(self, *, run: Run) -> R_co: ...


class _ByName1(Protocol[R_co]):
    def __call__(self, a: Any, /, *, run: Run) -> R_co: ...


class _ByName2(Protocol[R_co]):
    def __call__(self, a: Any, b: Any, /, *, run: Run) -> R_co: ...


class _ByName3(Protocol[R_co]):
    def __call__(self, a: Any, b: Any, c: Any, /, *, run: Run) -> R_co: ...


class Declare(Protocol):
    """The decorator that makes a job of a function, for type checkers: a caller of ``enqueue`` passes no ``Run``.

    If ``Run`` is the first parameter, the types of the others are known. If it comes later, or by name, they cannot be
    expressed, so the arguments are only checked at the call.
    """

    @overload
    def __call__(self, function: Callable[Concatenate[Anything, ...], R]) -> Job[..., R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Run, P], R]) -> RunJob[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Any, Run, ...], R]) -> Job[..., R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Any, Any, Run, ...], R]) -> Job[..., R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Any, Any, Any, Run, ...], R]) -> Job[..., R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Any, Any, Any, Any, Run, ...], R]) -> Job[..., R]: ...
    @overload
    def __call__(self, function: _ByName0[R] | _ByName1[R] | _ByName2[R] | _ByName3[R]) -> Job[..., R]: ...
    @overload
    def __call__(self, function: Callable[P, R]) -> Job[P, R]: ...
