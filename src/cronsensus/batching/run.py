"""The batch's part of ``Run``: ``run.batch``, ``run.shard`` and ``run.add_items``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cronsensus.batching.admission import ADD_ITEMS
from cronsensus.errors import UnsupportedFunction
from cronsensus.model.batch import shown_key
from cronsensus.node.run import BaseRun


class OfBatch(BaseRun):
    """A run that may be an item of a batch, or a batch itself."""

    @property
    def batch(self) -> int | None:
        """The number of the batch that this run is an item of; ``None``: it is no item."""
        return self._parent

    @property
    def shard(self) -> int:
        """Which shard this is, counted from 0, of a job with ``shards=``; 0: it has none."""
        return self._read_shard[0]

    @property
    def shards(self) -> int:
        """How many shards the job has; 1: it has none."""
        return self._read_shard[1]

    @property
    def _read_shard(self) -> tuple[int, int]:
        number, _, many = shown_key(self.key).partition("/") if self.batch is not None else ("", "", "")
        return (int(number), int(many)) if number.isdecimal() and many.isdecimal() else (0, 1)

    def add_items(self, items: Iterable[Any]) -> int:
        """Add items to the batch that this run is an item, or the lister, of; return how many.

        One whose key the batch has already is not run again.

        Raises:
            UnsupportedFunction: the run belongs to no batch, or is in a process of its own.
            InvalidPayload, InvalidOption: one of them cannot be an item.
        """
        add = self.extras.get(ADD_ITEMS)
        if add is None:
            raise UnsupportedFunction(
                f"this run of {self.job!r} cannot add items: it belongs to no batch, or runs in a process of its own "
                "(executor='process'), which has no connection to the store; add them in its lister, or use a thread"
            )
        added: int = add(items)
        return added
