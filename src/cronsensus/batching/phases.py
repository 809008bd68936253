"""Run a batch: list its items, park, collect. Each phase is an attempt of the batch's own occurrence.

::

    claimed ──▶ list: pages of items ──▶ park ──▶ woken, when no item is open ──▶ collect ──▶ succeeded
                 ▲                         ▲                     │
                 │                         └── an item is open ──┤
                 └── the store has lost some of the items ───────┘

``model/batch.py`` decides what comes next, from what the store has recorded, so any node may do it, any number of
times. A page that is written twice creates nothing twice: an item's key is made from its batch's and its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from cronsensus.batching.batch import Batch, batch_of, is_batch
from cronsensus.batching.pages import PAGE, Hashes, Pages, Results, batch_items, digest_key, items_of, write_pages
from cronsensus.errors import BatchFailed, InvalidOption
from cronsensus.model.batch import MOST_ITEMS, Children, Phase, item_key, phase, shown_key
from cronsensus.model.ends import Parked
from cronsensus.model.occurrence import Claim, Item, Occurrence, OccurrenceFilter
from cronsensus.model.states import Origin, Reason, State
from cronsensus.node.hooks import EndsAs
from cronsensus.node.registered import Registered
from cronsensus.node.run import BaseRun
from cronsensus.payload.typed import Types
from cronsensus.process.logger import Logger
from cronsensus.stores.base import Store

_log = Logger("cronsensus.node")

_MOST_KEYS = 5
_GONE_ADVICE = (
    "the store has forgotten them, and its list cannot be had again, or does not name them any more; enqueue those "
    "that are missing (batches by hand: enqueue_batch with another key)"
)
_MOST_RETRIES = 100


def make_adder(
    registered: Registered, claim: Claim, store: Callable[[], Store]
) -> Callable[[Iterable[Any]], int] | None:
    """Return a function that adds items to the batch of a run; ``None``: it belongs to no batch."""
    batch_id = claim.id if is_batch(registered, claim) else claim.parent
    if batch_id is None:
        return None
    batch = batch_of(registered)

    def add(items: Iterable[Any]) -> int:
        return write_pages(
            Pages(claim.job, batch_id, batch, store(), headers=claim.headers), as_items(items, "add_items")
        )

    return add


def make_phases(registered: Registered, claim: Claim, store: Store) -> Registered:
    """Return a batch's job with another function: the next phase of the batch."""
    batch = batch_of(registered)
    attempt = _Attempt(claim, batch, store, registered.types)
    return dataclasses.replace(
        registered,
        function=attempt.run_on_loop if batch.on_loop else attempt.run_in_thread,
        executor="async" if batch.on_loop else "thread",
        run_parameter="run",
        before_run=0,
        types=Types(batch.collect),
        parts=(),
    )


class _Attempt:
    """An attempt of a batch."""

    def __init__(self, claim: Claim, batch: Batch, store: Store, types: Types) -> None:
        self._claim = claim
        self._batch = batch
        self._store = store
        self._types = types
        self._listed = claim.listed
        self._listed_anew = False
        """Whether its list was read again, because items were lost."""
        self._earlier_batches: tuple[int, ...] = ()
        """The batches of which this is a retry, oldest first: items that succeeded in them are done."""
        self._enqueued_again = 0
        """How many items of those batches were enqueued again."""

    # Called without the job's arguments, which are passed to the items.

    def run_in_thread(self, *_: Any, run: BaseRun, **__: Any) -> Any:
        """Run the next phase, on this thread."""
        self._read_earlier()
        while self._next_phase() == "list":
            self._write_all(run, self._list_items(run))
        collect = self._batch.collect
        return (
            None if collect is None else collect(self._typed_results, **_name_parameter(self._batch.collect_run, run))
        )

    async def run_on_loop(self, *_: Any, run: BaseRun, **__: Any) -> Any:
        """Run the next phase, on an event loop; the store is called on another thread."""
        import asyncio

        await asyncio.to_thread(self._read_earlier)
        while await asyncio.to_thread(self._next_phase) == "list":
            await self._write_all_on_loop(run)
        collect = self._batch.collect
        if collect is None:
            return None
        result = await asyncio.to_thread(collect, self._typed_results, **_name_parameter(self._batch.collect_run, run))
        return await result if hasattr(result, "__await__") else result

    @property
    def _typed_results(self) -> Results:
        return Results(self._store, (*self._earlier_batches, self._claim.id), self._types)

    def _read_earlier(self) -> None:
        """Find the batches of which this is a retry, the oldest first.

        Raises:
            BatchFailed: they, or some of their items, were pruned, so their results are unknown.
        """
        batch, listed_counts = self._store.occurrence(self._claim.id), list[int | None]()
        while batch is not None and batch.retry_of is not None and len(self._earlier_batches) < _MOST_RETRIES:
            self._earlier_batches = batch.retry_of, *self._earlier_batches
            batch = self._store.occurrence(batch.retry_of)
            listed_counts.insert(0, None if batch is None else batch.listed)
        children_of, succeeded = self._store.children(self._earlier_batches, limit=2 * MOST_ITEMS), 0
        for batch_id, listed in zip(self._earlier_batches, listed_counts, strict=True):
            children = children_of[batch_id]
            if children.state is None or children.total + succeeded < (listed or 0):
                raise BatchFailed(
                    f"{Reason.UPSTREAM_PRUNED}: batch {batch_id}, of which this is a retry, has not all of its items "
                    "any more, so what they did is not known; start it anew, which runs all of them"
                )
            succeeded += children.succeeded

    def _next_phase(self) -> Phase:
        """Return ``"list"`` or ``"collect"``.

        Raises:
            EndsAs: items are open.
            BatchFailed: too many of them failed, or some are lost and cannot be listed again.
        """
        tolerance = self._batch.tolerance
        children = self._store.children([self._claim.id], limit=tolerance.counts)[self._claim.id]
        step = phase(self._listed, children, tolerance)
        if step == "wait":
            raise EndsAs(Parked("items", self._listed), "waits for its items")
        if step in {"stop", "fail"}:
            raise BatchFailed(self._failure_message(stopped=step == "stop"))
        if step == "collect" and (missing := self._count_missing()):
            if self._listed_anew or (self._claim.origin is Origin.BATCH and not self._earlier_batches):
                raise BatchFailed(f"{missing:,} of {self._listed:,} items are gone: {_GONE_ADVICE}")
            self._listed_anew = True
            _log.warning("batch %d of %r lists its items again: %d are gone", self._claim.id, self._claim.job, missing)
            return "list"
        return step

    def _count_missing(self) -> int:
        """Return how many items of the list are missing: a store that was restored, or failed over, lost them."""
        children_of = self._store.children([self._claim.id, *self._earlier_batches], limit=2 * MOST_ITEMS)
        succeeded_before = sum(
            children_of[batch_id].succeeded for batch_id in self._earlier_batches
        )  # in its list, but not enqueued again
        return max(0, (self._listed or 0) - children_of[self._claim.id].total - succeeded_before)

    def _failure_message(self, *, stopped: bool) -> str:
        """Return the reason why a batch has failed, with the keys of some items."""
        batch_id = self._claim.id
        children = self._store.children([batch_id], limit=MOST_ITEMS)[batch_id]
        unsuccessful = OccurrenceFilter(parent=batch_id, states=(State.FAILED, State.CANCELLED))
        examples = self._store.occurrences(unsuccessful, limit=_MOST_KEYS + 1, newest_first=False)
        keys = ", ".join(shown_key(item.key) for item in examples[:_MOST_KEYS]) + (
            ", …" if len(examples) > _MOST_KEYS else ""
        )
        of_total = (
            "" if self._listed is None else f" of {max(self._listed, children.total):,}"
        )  # items may have added some
        # Items that were not started because the batch stops do not count as its reason.
        count = (
            children.failed if stopped and self._batch.tolerance.stops(_only_failed(children)) else children.not_done
        )
        failed = f"{count:,}{of_total} items failed: {keys}"
        stop_note = f"; no further one was begun (stop_after={self._batch.tolerance.stop_after})" if stopped else ""
        return f"{failed}{stop_note}. See them: cronsensus runs list --batch {batch_id} --state failed"

    # --- the list ---------------------------------------------------------------------------------------------------

    def _list_items(self, run: BaseRun) -> Iterable[Any]:
        if self._claim.origin is Origin.BATCH:
            self._list_again()
            return ()
        lister = self._batch.lister
        items = lister(**_name_parameter(self._batch.lister_run, run)) if callable(lister) else lister
        return as_items(items, self._batch.lister_name)

    def _list_again(self) -> None:
        """Enqueue the unsuccessful items of a batch that was enqueued by hand; its items are its only list."""
        if not self._earlier_batches:
            raise BatchFailed(
                "its list was not completed: the program that called enqueue_batch ended before it was; call it again "
                "with the same key, or items"
            )
        succeeded, hashes, self._enqueued_again = self._succeeded_before(), Hashes(), 0
        for earlier in self._earlier_batches:
            # In the order in which an item passes through them, so that none is overlooked meanwhile.
            for state in (State.PENDING, State.RUNNING, State.FAILED, State.CANCELLED):
                for page in batch_items(items_of(self._store, earlier, state), PAGE):
                    items = [
                        self._as_item(earlier_item)
                        for earlier_item in page
                        if digest_key(item_key(0, shown_key(earlier_item.key))) not in succeeded
                    ]
                    if items:
                        self._store.enqueue(items)
                    self._enqueued_again += sum(hashes.add_value(hash(item.key)) for item in items)

    def _as_item(self, earlier_item: Occurrence) -> Item:
        return Item(
            job=earlier_item.job,
            key=item_key(self._claim.id, shown_key(earlier_item.key)),
            args=earlier_item.args,
            kwargs=earlier_item.kwargs,
            priority=earlier_item.priority,
            origin=Origin.BATCH,
            parent=self._claim.id,
            headers=self._claim.headers,
        )

    def _write_all(self, run: BaseRun, items: Iterable[Any]) -> None:
        pages = self._make_pages()
        for item in items:
            if pages.add_item(item):
                run.check()
                pages.write_items()
                self._stop_early()
        run.check()
        pages.write_items()
        self._note_listed(pages.count + self._enqueued_again)

    async def _write_all_on_loop(self, run: BaseRun) -> None:
        import asyncio

        if self._claim.origin is Origin.BATCH:
            await asyncio.to_thread(self._list_again)
            await asyncio.to_thread(self._write_all, run, ())
            return
        lister = self._batch.lister
        items = lister(**_name_parameter(self._batch.lister_run, run)) if callable(lister) else lister
        if hasattr(items, "__await__"):
            items = await items
        if not hasattr(items, "__aiter__"):
            await asyncio.to_thread(self._write_all, run, as_items(items, self._batch.lister_name))
            return
        pages = self._make_pages()
        async for item in items:
            if pages.add_item(item):
                run.check()
                await asyncio.to_thread(pages.write_items)
                await asyncio.to_thread(self._stop_early)
        run.check()
        await asyncio.to_thread(pages.write_items)
        self._note_listed(pages.count)

    def _note_listed(self, count: int) -> None:
        # A shorter list than before does not make up for lost items.
        self._listed = max(count, self._listed or 0)

    def _make_pages(self) -> Pages:
        return Pages(
            self._claim.job, self._claim.id, self._batch, self._store, self._succeeded_before(),
            headers=self._claim.headers,
        )  # fmt: skip

    def _succeeded_before(self) -> set[bytes]:
        """Return the key digests of the items that succeeded in the earlier batches."""
        return {
            digest_key(item_key(0, shown_key(item.key)))
            for earlier in self._earlier_batches
            for item in items_of(self._store, earlier, State.SUCCEEDED)
        }

    def _stop_early(self) -> None:
        """Stop listing if enough items have failed already."""
        tolerance = self._batch.tolerance
        if tolerance.stop_after is not None:
            children = self._store.children([self._claim.id], limit=tolerance.counts)[self._claim.id]
            if tolerance.stops(children):
                raise BatchFailed(self._failure_message(stopped=True))


def _only_failed(children: Children) -> Children:
    return Children(children.state, failed=children.failed)


def _name_parameter(parameter: str | None, run: BaseRun) -> dict[str, BaseRun]:
    return {} if parameter is None else {parameter: run}


def as_items(value: Any, name: str) -> Iterable[Any]:
    """Return ``value`` as a list of items.

    Raises:
        InvalidOption: it is not iterable, or a text or mapping.
    """
    if isinstance(value, str | bytes | Mapping) or not hasattr(value, "__iter__"):
        raise InvalidOption(f"{name} gave a {type(value).__name__}, no list of items; return a list, or yield them")
    return value  # type: ignore[no-any-return]
