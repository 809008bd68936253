"""Enqueue work, with or without a node in this process; also in a transaction of the caller's own.

Every act is one verb of the store. Each blocking method has an ``a…`` twin that does the same on a thread; those for a
connection that is awaited await it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, Unpack, overload

from cronsensus.batching.declare import batch_by_hand
from cronsensus.batching.pages import Pages, write_pages
from cronsensus.batching.phases import as_items
from cronsensus.declared.declarations import Named, name_of
from cronsensus.errors import ConfigurationError, InvalidOption, InvalidTransition, UnknownJob
from cronsensus.jobs.acting import MOST_AT_ONCE, Acts, unknown_job
from cronsensus.jobs.calls import Call, CallOptions, read_options, refuse_options, require_call, with_arguments
from cronsensus.jobs.handle import Handle, R_co
from cronsensus.jobs.known_keys import enqueue_calls, first_mismatch
from cronsensus.jobs.runs import next_time
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Enqueued, Item, OccurrenceFilter, check_key
from cronsensus.model.states import Origin
from cronsensus.node.executors.importing import refuse_while_loading
from cronsensus.process.twins import twin

_LISTED_WITHIN = timedelta(hours=1)

P = ParamSpec("P")
T = TypeVar("T")


class Declared(Named, Protocol[R_co]):
    """A job whose result type is known: a ``Job``."""

    def trigger(
        self, *, downstream: bool = False, key: str | None = None, by: str | None = None, reason: str = ""
    ) -> Handle[R_co]:
        """Run it now."""


class Enqueuing:
    """Enqueues calls of jobs, and finds runs by key."""

    def __init__(self, acts: Acts) -> None:
        """Operate by ``acts``."""
        self._acts = acts

    def enqueue(self, job: str | Named, /, *args: Any, **kwargs: Any) -> Handle:
        """Enqueue a run of a job with these arguments, on the first node that is free.

        Args:
            job: a job, or its name.
            args: JSON values, or values of the function's annotations. Without any arguments: the job's own.
            kwargs: likewise, by name. A key, a delay and the like are no arguments: they go into ``options``.

        Raises:
            UnknownJob: neither this process nor the store has such a job.
            InvalidOption: the function cannot be called with these arguments.
            InvalidPayload: an argument is neither JSON nor what its annotation names, or they are too large.
            PayloadMismatch: other arguments stand under the key.
            StoreError: the store could not do it. Without a key in ``options`` it may have been done all the same.
        """
        return self.enqueue_many([self.call(job, *args, **kwargs)])[0]

    @twin(enqueue)
    def aenqueue(self) -> None:
        """Do what ``enqueue`` does without blocking the event loop."""

    def call(self, job: str | Named, /, *args: Any, **kwargs: Any) -> Call:
        """Return a call of a job for ``enqueue_many``; it is checked and not enqueued.

        Raises:
            InvalidOption, InvalidPayload: as ``enqueue``.
        """
        name = name_of(job)
        refuse_options(name, kwargs, self._acts.declared.function_of(name))
        return self.options(name).call(*args, **kwargs)

    def options(self, job: str | Named, /, **options: Unpack[CallOptions]) -> JobWithOptions[..., Any]:
        """Return the job with options for its next call: ``scheduler.options("bill", key="bill:42").enqueue(42)``.

        Args:
            job: a job, or its name.
            options: as for ``Job.options``.

        Raises:
            InvalidOption, InvalidDuration: an unknown option, or one that makes no sense.
        """
        return JobWithOptions(self, read_options(name_of(job), options, self.zone_of(name_of(job))))

    def zone_of(self, job: str) -> str:
        """Return the zone of times without an offset: that of the job's trigger, else the scheduler's."""
        spec = self._acts.declared.spec_here(job)
        return (spec and spec.zone) or self._acts.declared.zone

    def next_time(self, job: JobSpec) -> datetime | None:
        """Return the nominal time that is decided next; see ``Job.next_time``."""
        return next_time(self._acts.opened.ready(), job)

    def enqueue_many(self, calls: Iterable[Call[T]]) -> list[Handle[T]]:
        """Enqueue calls of one or several jobs, a thousand in a step of the store.

        Atomic: for each thousand of them, not for all. If it failed half-way repeat it: those with keys are not made
        twice.

        Args:
            calls: what ``job.call(…)`` and ``job.options(…).call(…)`` return; by name ``scheduler.call("name", …)`` and
                ``scheduler.options("name", …).call(…)``.

        Raises:
            UnknownJob: neither this process nor the store has such a job.
            InvalidOption: something else than a call; nothing was enqueued.
            PayloadMismatch: other arguments stand under the key of a call; all the other calls were enqueued.
            StoreError: the store could not do it.
        """
        checked = self._acts.add_headers([require_call(call) for call in calls])
        if any(call.item.key is None for call in checked):
            refuse_while_loading("enqueues")
        enqueued: list[Enqueued] = []
        for index in range(0, len(checked), MOST_AT_ONCE):
            enqueued += self._enqueue_calls(checked[index : index + MOST_AT_ONCE])
        self._raise_mismatch(checked, enqueued)
        return [self._acts.handle_of(run) for run in enqueued]

    @twin(enqueue_many)
    def aenqueue_many(self) -> None:
        """Do what ``enqueue_many`` does without blocking the event loop."""

    def enqueue_batch(
        self,
        job: str | Named,
        items: Iterable[Any],
        *,
        key: str | None = None,
        item_key: Callable[[Any], str | int] | None = None,
    ) -> Handle[Any]:
        """Run a job once for each item, on all nodes with free slots; items start while the list is read.

        Args:
            job: a job, or its name. With ``items=``, its ``tolerate``, ``stop_after`` and ``collect`` hold.
            items: up to a million; each is passed by position.
            key: as in ``options``. A call that failed half-way is repeated with it: no item is enqueued twice.
            item_key: returns the text that names an item. Defaults to the job's, or the item itself.

        Raises:
            UnknownJob: neither this process nor the store has such a job.
            InvalidPayload, InvalidOption: an item that cannot be, or two with one key. The batch is cancelled then.
            StoreError: the store could not do it. Not completed within an hour, the batch fails.
        """
        name = name_of(job)
        if key is not None:
            check_key(key)
        refuse_while_loading("enqueues")
        function, spec = self._acts.declared.function_of(name), self._acts.declared.spec_here(name)
        batch = batch_by_hand(function, {} if spec is None else spec.kwargs, item_key)
        headers = self._acts.headers()
        batch_item = Item(
            job=name, key=key, args=(), kwargs={}, origin=Origin.BATCH, delay=_LISTED_WITHIN, headers=headers
        )
        [enqueued] = self._acts.act_and_notify({name}, lambda store: store.enqueue([batch_item]), notify=False)
        store = self._acts.opened.ready()
        if enqueued.created or not (
            enqueued.state.final or store.children([enqueued.id])[enqueued.id].listed is not None
        ):
            try:
                pages = Pages(name, enqueued.id, batch, store, headers=headers)
                listed = write_pages(pages, as_items(items, "enqueue_batch"))
            except ConfigurationError:
                with suppress(InvalidTransition, LookupError):
                    store.cancel(enqueued.id, by=self._acts.operator_name(None), why="its list cannot be used")
                raise
            store.wake([enqueued.id], listed=listed)
        return self._acts.handle_of(enqueued)

    @twin(enqueue_batch)
    def aenqueue_batch(self) -> None:
        """Do what ``enqueue_batch`` does without blocking the event loop."""

    # --- in a transaction of the caller's own ------------------------------------------------------------------------

    def enqueue_in(self, connection: Any, job: str | Named, /, *args: Any, **kwargs: Any) -> Handle:
        """Enqueue a run that exists if, and only if, the caller's transaction commits.

        Until then nobody sees it, ``look``, ``wait`` and ``result`` of the handle raise ``NotCommittedYet``; and after
        a rollback, also to a savepoint, it never was. Delays and due times count from this call, not from the commit.
        It locks nothing that schedules or other calls wait for, however long the transaction stays open.

        Args:
            connection: on which a transaction on the store's database is open: SQLAlchemy's ``Session`` or
                ``Connection``, or a connection of psycopg, psycopg2, PyMySQL or ``sqlite3``.
            job: a job, or its name.
            args: as for ``enqueue``.
            kwargs: likewise.

        Raises:
            UnsupportedTransaction: the store has no transactions, cannot use such a connection, it commits each
                statement by itself, or it leads to another database than the store's.
            UnknownJob, InvalidOption, InvalidPayload, PayloadMismatch: as ``enqueue``.
            StoreBusy: another open transaction has the key for too long, or the database ended this one in favour of
                another. Roll back, and do all of it again.
        """
        return self.enqueue_many_in(connection, [self.call(job, *args, **kwargs)])[0]

    async def aenqueue_in(self, connection: Any, job: str | Named, /, *args: Any, **kwargs: Any) -> Handle:
        """Do what ``enqueue_in`` does on psycopg's ``AsyncConnection``, or SQLAlchemy's ``AsyncSession``.

        Raises:
            As ``enqueue_in``.
        """
        return (await self.aenqueue_many_in(connection, [self.call(job, *args, **kwargs)]))[0]

    def enqueue_many_in(self, connection: Any, calls: Iterable[Call[T]]) -> list[Handle[T]]:
        """Enqueue calls of one or several jobs in the caller's transaction; see ``enqueue_in``.

        Args:
            connection: as for ``enqueue_in``.
            calls: as for ``enqueue_many``; at most a thousand.

        Raises:
            As ``enqueue_in``.
        """
        checked = self._acts.add_headers(_calls_in(calls))
        enqueued = self._acts.act_and_notify(
            {call.item.job for call in checked},
            lambda store: store.enqueue_in(connection, [call.item for call in checked]),
            notify=False,
        )
        return self._handles_in(checked, enqueued)

    async def aenqueue_many_in(self, connection: Any, calls: Iterable[Call[T]]) -> list[Handle[T]]:
        """Do what ``enqueue_many_in`` does on a connection that is awaited.

        Raises:
            As ``enqueue_in``.
        """
        import asyncio

        checked = self._acts.add_headers(_calls_in(calls))
        items = [call.item for call in checked]
        store = await asyncio.to_thread(self._acts.opened.ready)
        try:
            enqueued = await store.aenqueue_in(connection, items)
        except UnknownJob as unknown:
            await asyncio.to_thread(self._acts.define_unknown, {item.job for item in items}, unknown)
            enqueued = await store.aenqueue_in(connection, items)
        return self._handles_in(checked, enqueued)

    def _handles_in(self, calls: Sequence[Call[Any]], enqueued: Sequence[Enqueued]) -> list[Handle[Any]]:
        self._raise_mismatch(calls, enqueued)
        return [self._acts.handle_of(run, committed=not run.created) for run in enqueued]

    def _enqueue_calls(self, calls: Sequence[Call]) -> list[Enqueued]:
        by = self._acts.operator_name(None)
        return self._acts.act_and_notify(
            {call.item.job for call in calls}, lambda store: enqueue_calls(store, calls, by=by), notify=False
        )

    def _raise_mismatch(self, calls: Sequence[Call[Any]], enqueued: Sequence[Enqueued]) -> None:
        declared = self._acts.declared
        mismatch = first_mismatch(calls, enqueued, lambda job: (declared.function_of(job), declared.spec(job)))
        if mismatch is not None:
            raise mismatch

    def with_arguments(self, options: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call:
        """Return the call of a job with these options and arguments; both are checked."""
        declared, item = self._acts.declared, options.item
        function, spec = declared.function_of(item.job), declared.spec(item.job)
        return replace(options, item=with_arguments(item, args, kwargs, function, spec))

    @overload
    def find(self, job: Declared[T], /, *, key: str) -> Handle[T] | None: ...
    @overload
    def find(self, job: str | Named, /, *, key: str) -> Handle | None: ...
    def find(self, job: str | Named, /, *, key: str) -> Handle | None:
        """Return a handle on the run under a key; ``None``: there is none, or no longer.

        Its ``look``, ``wait`` and ``result`` follow an operator's retry, which has another key.

        Args:
            job: a job, or its name.
            key: as in ``options(key=…)``.

        Raises:
            UnknownJob: neither this process nor the store has such a job.
            InvalidOption: the key is no text.
            StoreError: the store could not be read.
        """
        text_key: Any = key
        if not isinstance(text_key, str):  # None would find the newest run of all
            raise InvalidOption(f"key={key!r} is no text; give the key as options(key=…) had it")
        name, store = name_of(job), self._acts.opened.ready()
        newest = store.occurrences(OccurrenceFilter(job=name, key=key), limit=1)
        if newest:
            run = newest[0]
            return self._acts.handle_of(Enqueued(id=run.id, job=name, key=run.key, created=False, state=run.state))
        if self._acts.declared.spec(name) is None and store.job(name) is None:
            raise UnknownJob(unknown_job(name))
        return None

    @overload
    async def afind(self, job: Declared[T], /, *, key: str) -> Handle[T] | None: ...
    @overload
    async def afind(self, job: str | Named, /, *, key: str) -> Handle | None: ...
    async def afind(self, job: str | Named, /, *, key: str) -> Handle | None:
        """Do what ``find`` does without blocking the event loop."""
        import asyncio

        return await asyncio.to_thread(self.find, job, key=key)


class JobWithOptions(Generic[P, R_co]):
    """A job with options for its next calls: ``send_invoice.options(key="invoice:42", delay="5m").enqueue(42)``.

    Example:
        >>> from cronsensus.scheduler import Scheduler
        >>> scheduler = Scheduler("memory://")
        >>> @scheduler.job()
        ... def unlock(key: str) -> None: ...
        >>> tonight = unlock.options(delay="8h", priority=5)
        >>> tonight.enqueue("front door").look().args
        ('front door',)
    """

    def __init__(self, operations: Enqueuing, options: Call) -> None:
        """Make one; ``Job.options`` and ``Scheduler.options`` do."""
        self._operations = operations
        self._options = options

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R_co]:
        """Enqueue a run with these arguments and the options; see ``Scheduler.enqueue``."""
        return self._operations.enqueue_many([self.call(*args, **kwargs)])[0]

    @twin(enqueue)
    def aenqueue(self) -> None:
        """Do what ``enqueue`` does without blocking the event loop."""

    def enqueue_in(self, connection: Any, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R_co]:
        """Enqueue a run that exists if the caller's transaction commits; see ``Scheduler.enqueue_in``."""
        return self._operations.enqueue_many_in(connection, [self.call(*args, **kwargs)])[0]

    async def aenqueue_in(self, connection: Any, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R_co]:
        """Do what ``enqueue_in`` does on a connection that is awaited."""
        return (await self._operations.aenqueue_many_in(connection, [self.call(*args, **kwargs)]))[0]

    def call(self, /, *args: P.args, **kwargs: P.kwargs) -> Call[R_co]:
        """Return the call for ``enqueue_many``; it is checked and not enqueued.

        Raises:
            InvalidOption, InvalidPayload: as ``Scheduler.enqueue``.
        """
        return self._operations.with_arguments(self._options, args, kwargs)

    def __repr__(self) -> str:
        return f"<Job {self._options.item.job!r} with options>"


def _calls_in(calls: Iterable[Call[T]]) -> list[Call[T]]:
    """Return the calls to enqueue in the caller's transaction.

    Raises:
        InvalidOption: there are too many, or one wants what cannot be part of that.
    """
    checked = [require_call(call) for call in calls]
    if len(checked) > MOST_AT_ONCE:
        raise InvalidOption(
            f"enqueue_many_in takes at most {MOST_AT_ONCE:,} calls, as one step, and these are {len(checked):,}; "
            "enqueue one run that lists them (docs/batches.md), or call it several times"
        )
    if any(call.on_failed == "free" for call in checked):
        raise InvalidOption(
            "on_failed='free' deletes a run, which cannot be part of your transaction; free the key before "
            "(cronsensus runs forget), or use another key"
        )
    if any(call.item.key is None for call in checked):
        refuse_while_loading("enqueues")
    return checked
