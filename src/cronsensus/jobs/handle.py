"""A handle on an occurrence: read it, wait for its end, get its result."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, Protocol, overload

from cronsensus.batching.declare import refuse_item
from cronsensus.batching.pages import Results, items_of
from cronsensus.errors import InvalidTransition, NotCommittedYet, OccurrenceForgotten, RunFailed
from cronsensus.model.batch import MOST_ITEMS, Children
from cronsensus.model.occurrence import Enqueued, Occurrence, OccurrenceFilter
from cronsensus.model.states import State
from cronsensus.node.executors.importing import refuse_while_loading
from cronsensus.node.loops import refuse_to_block
from cronsensus.payload.typed import UNTYPED, Types
from cronsensus.process.twins import require_reason, twin
from cronsensus.stores.base import Store
from cronsensus.stores.retries import retry_chain
from cronsensus.timing.durations import Duration, parse_duration

if TYPE_CHECKING:
    # Python has defaults of type variables from 3.13 on; a type checker knows this way to write them at any time.
    from typing_extensions import TypeVar

    from cronsensus.opened.waits import Waits

    R_co = TypeVar("R_co", covariant=True, default=Any)
else:
    from typing import TypeVar

    R_co = TypeVar("R_co", covariant=True)
T = TypeVar("T")

_PAGE = 100
"""Results that are read at a time on a thread."""
_FIRST_LOOK = 0.002
_LONGEST_PAUSE = 0.25
_GROWTH = 1.5


class HasStore(Protocol):
    """Has a store, and the waits on it."""

    waits: Waits

    @property
    def store(self) -> Store:
        """Return the store."""


class TypesOf(Protocol):
    """Finds the types of a job's results."""

    def __call__(self, job: str, run: Occurrence | None = None) -> Types:
        """Return the types of a run's result; without a run, of the items of the job's batches."""


def _without_types(job: str, run: Occurrence | None = None) -> Types:  # noqa: ARG001
    return UNTYPED


def _no_operator() -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Handle(Generic[R_co]):
    """An occurrence, as the call that returned the handle found or made it. Its type argument is the function's result.

    Handles on the same occurrence are equal, whichever calls returned them.

    Example:
        >>> from cronsensus.scheduler import Scheduler
        >>> with Scheduler("memory://") as scheduler:
        ...
        ...     @scheduler.job()
        ...     def double(number: int) -> int:
        ...         return number * 2
        ...
        ...     double.options(key="answer").enqueue(21).result("10s")
        42

    Attributes:
        id: the occurrence's id in the store.
        job: the job's name.
        key: with ``job`` it names the occurrence for as long as that is kept.
        created: whether this call made it; ``False``: it stood under that key already.
        state: where it stood then.
        created_at: when this call made it, by the store's clock; ``None``: it did not, or the time is not known.
    """

    id: int
    job: str
    key: str
    created: bool = field(compare=False)
    state: State = field(compare=False)
    _opened: HasStore = field(repr=False, compare=False)
    _types: TypesOf = field(repr=False, compare=False, default=_without_types)
    _operator: Callable[[], str] = field(repr=False, compare=False, default=_no_operator)
    _committed: bool = field(repr=False, compare=False, default=True)
    created_at: datetime | None = field(repr=False, compare=False, default=None)

    @classmethod
    def of(
        cls,
        enqueued: Enqueued,
        opened: HasStore,
        types: TypesOf = _without_types,
        operator: Callable[[], str] = _no_operator,
        *,
        committed: bool = True,
    ) -> Handle[Any]:
        """Make a handle from a store's answer.

        Args:
            enqueued: the answer.
            opened: where the store is.
            types: finds the types of a job's results.
            operator: returns who acts.
            committed: whether it is in the store already; else the caller's transaction decides.
        """
        of_store = (enqueued.id, enqueued.job, enqueued.key, enqueued.created, enqueued.state)
        return cls(*of_store, opened, types, operator, committed, enqueued.created_at)

    def look(self) -> Occurrence:
        """Return the occurrence as it is now; if it ended without success and was retried, its newest retry.

        Job and key are compared: a store that lost its last commits gives an occurrence's number to another one.

        Raises:
            LookupError: it was pruned.
            NotCommittedYet: the transaction that enqueued it has not committed, or was rolled back.
            OccurrenceForgotten: the store lost it, and has given its number to another one.
        """
        store = self._opened.store
        return _list_retries(store, self._find_occurrence(store))[-1]

    @twin(look)
    def alook(self) -> None:
        """Do what ``look`` does without blocking the event loop."""

    def _find_occurrence(self, store: Store) -> Occurrence:
        occurrence = store.occurrence(self.id)
        if occurrence is not None and (occurrence.job, occurrence.key) == (self.job, self.key):
            return occurrence
        # If it was enqueued again under its key since the store lost it, it has another number.
        if newest_of_key := store.occurrences(OccurrenceFilter(job=self.job, key=self.key), limit=1):
            return newest_of_key[0]
        if not self._committed:
            raise NotCommittedYet(
                f"run {self.id} of {self.job!r} is not in the store: the transaction that enqueued it has not "
                "committed, or was rolled back; look at it after the commit"
            )
        if occurrence is None:
            raise LookupError(
                f"occurrence {self.id} of {self.job!r} is no longer in the store: it was pruned after its `keep`, or "
                f"the store lost it (a failover, a snapshot, a restored backup; see: cronsensus doctor). If it must "
                f"run, enqueue it again under its key: .options(key={self.key!r}).enqueue(…)"
            )
        raise OccurrenceForgotten(
            f"the store lost occurrence {self.id} of {self.job!r} (key {self.key!r}), and has given its number to "
            f"{occurrence.key!r} of {occurrence.job!r}: it went back to an earlier moment (a failover, a snapshot, a "
            f"restored backup; see: cronsensus doctor). What happened to it is not known. Enqueue it again under its "
            f"key: .options(key={self.key!r}).enqueue(…)"
        )

    def wait(self, timeout: Duration | None = None) -> Occurrence:
        """Block until the occurrence, or its newest retry as in ``look``, is final, and return that.

        Args:
            timeout: how long to wait; ``None``: without a limit.

        Raises:
            TimeoutError: it is not final yet.
            ConfigurationError: it is not final, and waiting here would block an event loop on which async jobs run.
        """
        return self._wait_for_end(timeout, "handle.wait()", "await handle.await_()")

    def _wait_for_end(self, timeout: Duration | None, call: str, instead: str) -> Occurrence:
        waits = self._opened.waits
        for seconds in self._pauses_between_looks(timeout):
            occurrence = self.look()
            if occurrence.state.final:
                return occurrence
            refuse_to_block(call, instead)
            waits.wait(seconds)
        raise self._timeout_error(timeout)

    async def await_(self, timeout: Duration | None = None) -> Occurrence:  # noqa: ASYNC109 - the twin of wait
        """Wait until the occurrence is final and return it; holds no thread meanwhile.

        Raises:
            TimeoutError: it is not final yet.
        """
        import asyncio

        for seconds in self._pauses_between_looks(timeout):
            occurrence = await asyncio.to_thread(self.look)
            if occurrence.state.final:
                return occurrence
            await self._opened.waits.await_(seconds)
        raise await asyncio.to_thread(self._timeout_error, timeout)

    @overload
    def result(self: Handle[Coroutine[Any, Any, T]], timeout: Duration | None = None) -> T: ...
    @overload
    def result(self, timeout: Duration | None = None) -> R_co: ...
    def result(self, timeout: Duration | None = None) -> Any:
        """Block until the occurrence has succeeded and return what the job returned.

        It has the type of the function's return annotation, if this process has the function: dates, decimals, UUIDs,
        enums, dataclasses, tuples. Otherwise, or if it does not fit, it is plain JSON: a tuple is a list.

        Raises:
            RunFailed: it ended otherwise: failed, cancelled, skipped or missed.
            TimeoutError, ConfigurationError: as ``wait``.
        """
        return self._value_of(self._wait_for_end(timeout, "handle.result()", "await handle.aresult()"))

    @overload
    async def aresult(self: Handle[Coroutine[Any, Any, T]], timeout: Duration | None = None) -> T: ...  # noqa: ASYNC109
    @overload
    async def aresult(self, timeout: Duration | None = None) -> R_co: ...  # noqa: ASYNC109
    async def aresult(self, timeout: Duration | None = None) -> Any:  # noqa: ASYNC109 - the twin of result
        """Wait for the result; holds no thread meanwhile.

        Raises:
            RunFailed, TimeoutError: as ``result``.
        """
        return self._value_of(await self.await_(timeout))

    # --- batches ----------------------------------------------------------------------------------------------------

    def progress(self) -> Children:
        """Return how many items of this batch are in each state now; a run that is no batch has none.

        Example:
            >>> from cronsensus.scheduler import Scheduler
            >>> with Scheduler("memory://") as scheduler:
            ...
            ...     @scheduler.job()
            ...     def double(number: int) -> int:
            ...         return number * 2
            ...
            ...     batch = double.enqueue_batch([1, 2, 3])
            ...     _ = batch.wait("10s")
            ...     sorted(batch.results()), batch.progress().succeeded
            ([2, 4, 6], 3)
        """
        return self._opened.store.children([self.id], limit=2 * MOST_ITEMS)[self.id]

    @twin(progress)
    def aprogress(self) -> None:
        """Do what ``progress`` does without blocking the event loop."""

    def results(self) -> Iterator[Any]:
        """Iterate over the results of the items of this batch that have succeeded by now, in the order of the list.

        They are read page by page. If the batch was retried, as in ``look``, the results of the retry follow.

        Raises:
            LookupError, OccurrenceForgotten: as ``look``.
        """
        store = self._opened.store
        batches = [retry.id for retry in _list_retries(store, self._find_occurrence(store))]
        return iter(Results(store, batches, self._types(self.job)))

    async def aresults(self) -> AsyncIterator[Any]:
        """Iterate like ``results`` without blocking the event loop: ``async for result in batch.aresults():``."""
        import asyncio

        results = await asyncio.to_thread(self.results)
        while page := await asyncio.to_thread(lambda: list(islice(results, _PAGE))):
            for result in page:
                yield result

    @require_reason
    def cancel(self, *, reason: str, by: str | None = None) -> State:
        """Cancel it; of a batch no further item is started, and running items are asked to stop.

        Raises:
            InvalidTransition: it is final.
            LookupError: there is none.
        """
        return cancel_occurrence(self._opened.store, self.id, by=by or self._operator(), why=reason)

    @twin(cancel)
    def acancel(self) -> None:
        """Do what ``cancel`` does without blocking the event loop."""

    def retry(self, *, again: bool = False, by: str | None = None, reason: str = "") -> Handle[R_co]:
        """Run it once more; see ``Scheduler.retry``, which can also run its dependents again.

        Raises:
            InvalidTransition, LookupError, StoreError: as there.
        """
        refuse_while_loading("retries")
        store = self._opened.store
        enqueued = retry_occurrence(store, self.id, by=by or self._operator(), why=reason, again=again)
        store.notify()
        return Handle.of(enqueued, self._opened, self._types, self._operator)

    @twin(retry)
    def aretry(self) -> None:
        """Do what ``retry`` does without blocking the event loop."""

    if not TYPE_CHECKING:  # for type checkers a handle cannot be awaited

        def __await__(self) -> Iterator[Any]:
            """Raise, with what to write: a handle is there at once, and its run ends later.

            Raises:
                TypeError: always.
            """
            raise TypeError(
                f"a Handle cannot be awaited (run {self.id} of {self.job!r} is enqueued); write await handle.aresult() "
                f"for its result, and in async code await {self.job}.aenqueue(…), which does not block"
            )

    def _value_of(self, occurrence: Occurrence) -> Any:
        if occurrence.state is not State.SUCCEEDED:
            error = occurrence.error
            failure = f"{error.type}: {error.message}" if error is not None else occurrence.reason or "no reason given"
            raise RunFailed(
                f"occurrence {occurrence.id} of {self.job!r} is {occurrence.state}: {failure}; "
                f"more with `cronsensus runs show {occurrence.id}`",
                occurrence=occurrence,
            )
        return self._types(self.job, occurrence).read_result(occurrence.result)

    def _pauses_between_looks(self, timeout: Duration | None) -> Iterator[float]:
        """Yield how long to wait after each read; the last read is when the time is up."""
        monotonic = self._opened.waits.monotonic
        deadline = None if timeout is None else monotonic() + parse_duration(timeout, what="timeout").total_seconds()
        pause = _FIRST_LOOK
        while True:
            remaining = pause if deadline is None else deadline - monotonic()
            if remaining <= 0:
                yield 0.0
                return
            yield min(pause, remaining)
            pause = min(pause * _GROWTH, _LONGEST_PAUSE)

    def _timeout_error(self, timeout: Duration | None) -> TimeoutError:
        occurrence = self.look()
        sessions = self._opened.store.sessions()
        no_node = not any(session.ended_at is None and session.expires_in > timedelta(0) for session in sessions)
        hint = ", and no node is alive: scheduler.start(), or cronsensus run MODULE:ATTR" if no_node else ""
        return TimeoutError(
            f"occurrence {occurrence.id} of {self.job!r} is not final after {timeout}: it is {occurrence.state}{hint}"
        )


def _list_retries(store: Store, occurrence: Occurrence) -> list[Occurrence]:
    """Return an occurrence and, if it ended without success, its chain of retries."""
    return [occurrence] if occurrence.state is State.SUCCEEDED else retry_chain(store, occurrence)


def retry_occurrence(store: Store, occurrence: int, *, by: str, why: str, again: bool) -> Enqueued:
    """Retry an occurrence; ``again``: even if it succeeded, or was retried already and that retry has ended.

    Raises:
        InvalidTransition: it is not final yet, or an item of a batch; or it succeeded, and ``again`` is not given.
        LookupError: there is none.
    """
    original = store.occurrence(occurrence)
    refuse_item(original)
    if again and original is not None and (newest := retry_chain(store, original)[-1]).state.final:
        # If somebody else retries that at the same time, the store returns their retry.
        occurrence = newest.id
    return store.retry(occurrence, by=by, why=why, again=again)


def cancel_occurrence(store: Store, occurrence: int, *, by: str, why: str) -> State:
    """Cancel an occurrence, and the running items of a batch.

    Its pending items are cancelled when they are claimed.

    Raises:
        InvalidTransition: it is final.
        LookupError: there is none.
    """
    state = store.cancel(occurrence, by=by, why=why)
    if store.occurrences(OccurrenceFilter(parent=occurrence), limit=1):
        for item in list(items_of(store, occurrence, State.RUNNING)):
            try:
                store.cancel(item.id, by=by, why=f"its batch {occurrence} was cancelled" + (f": {why}" if why else ""))
            except (InvalidTransition, LookupError):
                continue  # it has ended meanwhile
    return state
