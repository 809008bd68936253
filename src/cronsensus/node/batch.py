"""Run a batch: list its items, sleep, collect. Each phase is an attempt of the batch's own occurrence.

::

    claimed ──▶ list: pages of items ──▶ sleep ──▶ woken, when no item is open ──▶ collect ──▶ succeeded
                                           ▲                     │
                                           └── an item is open ──┘

What comes next is decided in ``model/batch.py``, from what the store has recorded, so it does not matter which node
does it, or how often. A page that is written twice makes nothing twice: an item's key is that of its batch and its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Any

from cronsensus.clock import SystemClock
from cronsensus.codec import dumps
from cronsensus.errors import Asleep, BatchFailed, ConfigurationError, InvalidOption, InvalidPayload
from cronsensus.model.batch import MOST_ITEMS, Phase, item_key, phase, shown_key
from cronsensus.model.occurrence import Claim, Item, Occurrence, OccurrenceFilter
from cronsensus.model.states import Origin, State
from cronsensus.node.executors.base import Registered
from cronsensus.node.items import Batch
from cronsensus.node.run import Run
from cronsensus.stores.base import Store
from cronsensus.typed import Types

PAGE = 1000
"""Most items that are enqueued in one step."""
PAGE_SECONDS = 1.0
"""After so long a page is enqueued as it is: a list may come slowly, and its first items need not wait for that."""
_NAMED = 5
_clock = SystemClock()


def is_batch(claim: Claim) -> bool:
    """Whether an occurrence of a job with items is a batch of them; else it is an item, or a call of its own."""
    return claim.parent is None and claim.origin is not Origin.ENQUEUE


def phases(registered: Registered, claim: Claim, store: Store) -> Registered:
    """Return what is called for a batch in place of its job's function."""
    batch = registered.batch
    assert batch is not None  # noqa: S101 - for the type checker
    turn = _Turn(claim, batch, store, registered.types)
    return dataclasses.replace(
        registered,
        function=turn.on_loop if batch.on_loop else turn.here,
        executor="async" if batch.on_loop else "thread",
        run_parameter="run",
        before_run=0,
        types=Types(batch.collect),
        batch=None,
    )


class Results:
    """What the items of a batch returned, in the order in which they were listed, as their function's annotation names.

    Read from the store page by page: a million of them take no more memory than a thousand. An async ``collect`` goes
    through them with ``async for``.
    """

    def __init__(self, store: Store, batch: int, types: Types) -> None:
        self._store = store
        self._batch = batch
        self._types = types

    def __iter__(self) -> Iterator[Any]:
        page: list[Occurrence] = []
        while page := self._page(page):
            yield from (self._types.read_result(one.result) for one in page)

    async def __aiter__(self) -> AsyncIterator[Any]:
        import asyncio

        page: list[Occurrence] = []
        while page := await asyncio.to_thread(self._page, page):
            for one in page:
                yield self._types.read_result(one.result)

    def _page(self, before: list[Occurrence]) -> list[Occurrence]:
        where = OccurrenceFilter(parent=self._batch, states=(State.SUCCEEDED,))
        after = before[-1].id if before else None
        return self._store.occurrences(where, after=after, limit=PAGE, newest_first=False)


class _Turn:
    """One attempt of a batch."""

    def __init__(self, claim: Claim, batch: Batch, store: Store, types: Types) -> None:
        self._claim = claim
        self._batch = batch
        self._store = store
        self._types = types
        self._listed = claim.listed

    # Called with no arguments of the job's: those are passed to the items.

    def here(self, *_: Any, run: Run, **__: Any) -> Any:
        """Do what comes next, on this thread."""
        if self._next() == "list":
            self._write_all(run, self._items(run))
            self._next()
        collect = self._batch.collect
        return None if collect is None else collect(self._results, **_named(self._batch.collect_run, run))

    async def on_loop(self, *_: Any, run: Run, **__: Any) -> Any:
        """Do what comes next, on an event loop; what asks the store does so on a thread."""
        import asyncio

        if await asyncio.to_thread(self._next) == "list":
            await self._write_all_on_loop(run)
            await asyncio.to_thread(self._next)
        collect = self._batch.collect
        if collect is None:
            return None
        made = await asyncio.to_thread(collect, self._results, **_named(self._batch.collect_run, run))
        return await made if hasattr(made, "__await__") else made

    @property
    def _results(self) -> Results:
        return Results(self._store, self._claim.id, self._types)

    def _next(self) -> Phase:
        """Return ``"list"`` or ``"collect"``.

        Raises:
            Asleep: items are open.
            BatchFailed: too many of them failed.
        """
        tolerance = self._batch.tolerance
        children = self._store.children([self._claim.id], limit=tolerance.counts)[self._claim.id]
        step = phase(self._listed, children, tolerance)
        if step == "wait":
            raise Asleep("for its items", listed=self._listed)
        if step in {"stop", "fail"}:
            raise BatchFailed(self._said(stopped=step == "stop"))
        return step

    def _said(self, *, stopped: bool) -> str:
        """Say why a batch has failed, with the keys of some items."""
        number = self._claim.id
        children = self._store.children([number], limit=MOST_ITEMS)[number]
        where = OccurrenceFilter(parent=number, states=(State.FAILED, State.CANCELLED))
        some = self._store.occurrences(where, limit=_NAMED + 1, newest_first=False)
        named = ", ".join(shown_key(one.key) for one in some[:_NAMED]) + (", …" if len(some) > _NAMED else "")
        of = "" if self._listed is None else f" of {self._listed:,}"
        failed = f"{children.not_done:,}{of} items failed: {named}"
        end = f"; no further one was begun (stop_after={self._batch.tolerance.stop_after})" if stopped else ""
        return f"{failed}{end}. See them: cronsensus runs list --batch {number} --state failed"

    # --- the list ---------------------------------------------------------------------------------------------------

    def _items(self, run: Run) -> Iterable[Any]:
        lister = self._batch.lister
        return _iterable(lister(**_named(self._batch.lister_run, run)) if callable(lister) else lister, self._batch)

    def _write_all(self, run: Run, items: Iterable[Any]) -> None:
        pages = _Pages(self._claim, self._batch, self._store)
        for item in items:
            if pages.add(item):
                run.check()
                pages.write()
                self._stop_early()
        run.check()
        pages.write()
        self._listed = pages.count

    async def _write_all_on_loop(self, run: Run) -> None:
        import asyncio

        lister = self._batch.lister
        found = lister(**_named(self._batch.lister_run, run)) if callable(lister) else lister
        if hasattr(found, "__await__"):
            found = await found
        if not hasattr(found, "__aiter__"):
            await asyncio.to_thread(self._write_all, run, _iterable(found, self._batch))
            return
        pages = _Pages(self._claim, self._batch, self._store)
        async for item in found:
            if pages.add(item):
                run.check()
                await asyncio.to_thread(pages.write)
                await asyncio.to_thread(self._stop_early)
        run.check()
        await asyncio.to_thread(pages.write)
        self._listed = pages.count

    def _stop_early(self) -> None:
        """End a list of which enough items have failed already."""
        if self._batch.tolerance.stop_after is not None:
            self._next()


class _Pages:
    """Items on their way into the store."""

    def __init__(self, claim: Claim, batch: Batch, store: Store) -> None:
        self._claim = claim
        self._batch = batch
        self._store = store
        self._page: list[Item] = []
        self._again: set[str] = set()
        """Keys of the page that came before, as far as their hashes tell."""
        self._seen: set[int] = set()
        """Hashes of keys: a million of them fit where a million keys would not."""
        self._since = _clock.monotonic()
        self.count = 0

    def add(self, item: Any) -> bool:
        """Take an item in; return whether it is time to write.

        Raises:
            InvalidPayload, InvalidOption: it cannot be an item; which one, and why.
        """
        self.count += 1
        if self.count > MOST_ITEMS:
            raise InvalidOption(
                f"{self._batch.lister_name} gives more than {MOST_ITEMS:,} items, the most of one batch; let one item "
                "stand for several of them"
            )
        args, kwargs = self._bound(item)
        key = item_key(self._claim.id, self._key(item, args))
        if (seen := hash(key)) in self._seen:
            self._again.add(key)
        self._seen.add(seen)
        self._page.append(
            Item(
                job=self._claim.job,
                key=key,
                args=args,
                kwargs=kwargs or None,
                origin=Origin.BATCH,
                parent=self._claim.id,
            )
        )
        return len(self._page) >= PAGE or _clock.monotonic() - self._since > PAGE_SECONDS

    def _bound(self, item: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        try:
            return self._batch.bind(item)
        except ConfigurationError as error:
            kind = InvalidPayload if isinstance(error, InvalidPayload) else InvalidOption
            raise kind(f"item {self.count} of {self._batch.lister_name} cannot be used: {error}") from error

    def _key(self, item: Any, args: tuple[Any, ...]) -> str:
        if self._batch.key_of is None:
            value = args[0] if args else self.count
            return value if isinstance(value, str) else dumps(value, what="item")
        key = self._batch.key_of(item)
        if not isinstance(key, str | int):
            raise InvalidOption(f"item_key gave {key!r} for item {self.count}; give text or a whole number")
        return str(key)

    def write(self) -> None:
        """Enqueue what has been taken in.

        Raises:
            InvalidOption: two items of this list have one key.
        """
        if self._page:
            for made in self._store.enqueue(self._page):
                if not made.created and made.key in self._again:
                    raise InvalidOption(
                        f"two items of {self._batch.lister_name} have the key {shown_key(made.key)!r}, so one of them "
                        "would not be run; leave it out, or give item_key=… what tells them apart"
                    )
        self._page.clear()
        self._again.clear()
        self._since = _clock.monotonic()


def _named(parameter: str | None, run: Run) -> dict[str, Run]:
    return {} if parameter is None else {parameter: run}


def _iterable(found: Any, batch: Batch) -> Iterable[Any]:
    if isinstance(found, str | bytes | Mapping) or not hasattr(found, "__iter__"):
        raise InvalidOption(
            f"{batch.lister_name} gave a {type(found).__name__}, no list of items; return a list, or yield them"
        )
    return found  # type: ignore[no-any-return]
