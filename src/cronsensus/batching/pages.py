"""Write the items of a batch into the store, and read their results, page by page."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

from cronsensus.batching.batch import Batch
from cronsensus.errors import ConfigurationError, InvalidOption, InvalidPayload
from cronsensus.model.batch import MOST_ITEMS, item_key, shown_key
from cronsensus.model.occurrence import Item, Occurrence, OccurrenceFilter
from cronsensus.model.states import Origin, State
from cronsensus.payload.codec import dumps
from cronsensus.payload.typed import Types
from cronsensus.stores.base import Store
from cronsensus.timing.clock import SystemClock

PAGE = 1000
"""Most items that are enqueued in a step."""
PAGE_SECONDS = 1.0
"""Seconds after which an incomplete page is enqueued, so that the first items of a slow list need not wait."""
_clock = SystemClock()
T = TypeVar("T")


class Hashes:
    """A set of 64-bit hashes that takes 16 MB for a million of them; Python's own takes 100."""

    def __init__(self) -> None:
        self._slots = array("q", [0]) * 1024
        self._count = 0

    def add_value(self, value: int) -> bool:
        """Add a hash; return whether it is new."""
        if 3 * self._count >= 2 * len(self._slots):
            old_slots, self._slots, self._count = self._slots, array("q", [0]) * (2 * len(self._slots)), 0
            for old_value in old_slots:
                if old_value:
                    self.add_value(old_value)
        value = value or 1  # an empty slot is 0
        mask = len(self._slots) - 1
        slot = value & mask
        while taken := self._slots[slot]:
            if taken == value:
                return False
            slot = slot + 1 & mask
        self._slots[slot] = value
        self._count += 1
        return True


class Pages:
    """Writes items into the store.

    Attributes:
        count: how many were added.
    """

    def __init__(
        self,
        job: str,
        number: int,
        batch: Batch,
        store: Store,
        done: Collection[bytes] = (),
        *,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Add items to the batch with that number; items whose key digest is in ``done`` are left out.

        ``headers``: those of the batch, which its items have, too.
        """
        self._headers = headers
        self._job = job
        self._number = number
        self._batch = batch
        self._store = store
        self._done = done
        self._page: list[Item] = []
        self._again: set[str] = set()
        """Keys of the page that occurred before, judged by their hashes."""
        self._seen = Hashes()
        self._since = _clock.monotonic()
        self.count = 0

    def add_item(self, item: Any) -> bool:
        """Add an item; return whether it is time to write.

        Raises:
            InvalidPayload, InvalidOption: it is no valid item; the message has its number and the reason.
        """
        self.count += 1
        if self.count > MOST_ITEMS:
            raise InvalidOption(
                f"{self._batch.lister_name} gives more than {MOST_ITEMS:,} items, the most of one batch; let one item "
                "stand for several of them"
            )
        args, kwargs = self._bind_item(item)
        own_key = self._key_of(item, args)
        if self._done and digest_key(item_key(0, own_key)) in self._done:
            return False
        key = item_key(self._number, own_key)
        if not self._seen.add_value(hash(key)):
            self._again.add(key)
        self._page.append(
            Item(
                job=self._job,
                key=key,
                args=args,
                kwargs=kwargs or None,
                origin=Origin.BATCH,
                parent=self._number,
                headers=self._headers,
            )
        )
        return len(self._page) >= PAGE or _clock.monotonic() - self._since > PAGE_SECONDS

    def _bind_item(self, item: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        try:
            return self._batch.bind(item)
        except ConfigurationError as error:
            error_class = InvalidPayload if isinstance(error, InvalidPayload) else InvalidOption
            raise error_class(f"item {self.count} of {self._batch.lister_name} cannot be used: {error}") from error

    def _key_of(self, item: Any, args: tuple[Any, ...]) -> str:
        if self._batch.key_of is None:
            value = args[0] if args else self.count
            return value if isinstance(value, str) else dumps(value, what="item")
        key = self._batch.key_of(item)
        if not isinstance(key, str | int):
            raise InvalidOption(f"item_key gave {key!r} for item {self.count}; give text or a whole number")
        return str(key)

    def write_items(self) -> None:
        """Enqueue the added items.

        Raises:
            InvalidOption: two items of this list have the same key.
        """
        if self._page:
            for enqueued in self._store.enqueue(self._page):
                if not enqueued.created and enqueued.key in self._again:
                    raise InvalidOption(
                        f"two items of {self._batch.lister_name} have the key {shown_key(enqueued.key)!r}, so one of "
                        "them would not be run; leave it out, or give item_key=… what tells them apart"
                    )
        self._page.clear()
        self._again.clear()
        self._since = _clock.monotonic()


def write_pages(pages: Pages, items: Iterable[Any]) -> int:
    """Enqueue items page by page; return how many there were."""
    for item in items:
        if pages.add_item(item):
            pages.write_items()
    pages.write_items()
    return pages.count


class Results:
    """The results of a batch's items, in the order of the list, typed by their function's annotation.

    Read from the store page by page: a million results take no more memory than a thousand. An async ``collect`` reads
    them with ``async for``.
    """

    def __init__(self, store: Store, batches: Sequence[int], types: Types) -> None:
        self._store = store
        self._batches = batches
        self._types = types

    def __iter__(self) -> Iterator[Any]:
        for batch in self._batches:
            for item in items_of(self._store, batch, State.SUCCEEDED):
                yield self._types.read_result(item.result)

    async def __aiter__(self) -> AsyncIterator[Any]:
        import asyncio

        pages = batch_items(iter(self), PAGE)
        while page := await asyncio.to_thread(next, pages, ()):
            for result in page:
                yield result


def items_of(store: Store, batch: int, state: State) -> Iterator[Occurrence]:
    """Yield the items of a batch in a state, page by page."""
    of_batch = OccurrenceFilter(parent=batch, states=(state,))
    page: list[Occurrence] = []
    while page := store.occurrences(of_batch, after=page[-1].id if page else None, limit=PAGE, newest_first=False):
        yield from page


def digest_key(key: str) -> bytes:
    """Return the digest of a key, for large sets of keys."""
    return hashlib.blake2b(key.encode(), digest_size=16).digest()


def batch_items(items: Iterable[T], size: int) -> Iterator[tuple[T, ...]]:
    """Yield the items in tuples of a size; the last may be shorter. ``itertools`` has it from Python 3.12 on."""
    remaining = iter(items)
    while page := tuple(islice(remaining, size)):
        yield page
