"""Batches: an occurrence that is over when its items are, which are occurrences themselves.

::

    list ──▶ asleep while any item is open ──▶ collect ──▶ succeeded
                                          └──▶ too many failed ──▶ failed

What a batch does next is decided here, from what the store has recorded.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from cronsensus.errors import InvalidOption
from cronsensus.model.states import State

ITEM_PREFIX = "@item/"
"""Keys of items start with it: no user's key does, and no nominal time's."""
LONGEST_ITEM_KEY = 370
MOST_ITEMS = 1_000_000
"""Most items of one list."""


@dataclass(frozen=True, slots=True)
class Children:
    """The items of a batch by their states, each counted up to a limit, and where the batch itself stands.

    Attributes:
        state: of the batch; ``None``: it is not there.
        listed: how many items its list had; ``None``: the list is not complete.
    """

    state: State | None
    listed: int | None = None
    pending: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    skipped: int = 0

    @property
    def open(self) -> int:
        """How many are pending or running."""
        return self.pending + self.running

    @property
    def not_done(self) -> int:
        """How many ended without their work being done: what ``tolerate`` and ``stop_after`` count."""
        return self.failed + self.cancelled

    @property
    def total(self) -> int:
        """How many there are, as far as was counted."""
        return self.open + self.not_done + self.succeeded + self.skipped


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How many items may end without their work being done.

    Attributes:
        count: so many.
        share: or this part of all of them, from 0 to 1; in decimals, for 0.29 * 100 is less than 29 in floats.
        stop_after: with so many, no further item is begun; ``None``: all are tried.
    """

    count: int = 0
    share: Decimal = Decimal(0)
    stop_after: int | None = None

    @property
    def counts(self) -> int:
        """Up to which number items must be counted to decide."""
        return 2 * MOST_ITEMS if self.share else max(self.count, self.stop_after or 0) + 1

    def allows(self, children: Children) -> bool:
        """Whether a batch whose items have ended like this has succeeded."""
        return children.not_done <= max(self.count, int(self.share * children.total))

    def stops(self, children: Children) -> bool:
        """Whether no further item is to be begun."""
        return self.stop_after is not None and children.not_done >= self.stop_after

    @classmethod
    def read(cls, tolerate: int | str | None, stop_after: int | None) -> Tolerance:
        """Return what a user wrote: ``tolerate=3`` or ``"5%"``, ``stop_after=10``.

        Raises:
            InvalidOption: neither a number of items nor a share of them.
        """
        wrong = InvalidOption(f"tolerate={tolerate!r}: a number of items, as 3, or a share of them, as '5%'")
        count, share = 0, Decimal(0)
        if isinstance(tolerate, str) and tolerate.endswith("%"):
            try:
                share = Decimal(tolerate[:-1]) / 100
            except ArithmeticError:
                raise wrong from None
            if not (share.is_finite() and 0 <= share <= 1):
                raise wrong
        elif type(tolerate) is int and tolerate >= 0:
            count = tolerate
        elif tolerate is not None:
            raise wrong
        if stop_after is not None and (type(stop_after) is not int or stop_after < 1):
            raise InvalidOption(f"stop_after={stop_after!r}: after how many failed items to stop, at least 1")
        return cls(count, share, stop_after)


Phase = Literal["list", "wait", "stop", "fail", "collect"]


def phase(listed: int | None, children: Children, tolerance: Tolerance) -> Phase:
    """Return what a batch does next.

    ``"list"``: its list is not complete. ``"wait"``: for items that are open. ``"stop"``: enough of them failed.
    ``"fail"``: all have ended, and too many failed. ``"collect"``: all have ended.
    """
    if tolerance.stops(children):
        return "stop"
    if listed is None:
        return "list"
    if children.open:
        return "wait"
    return "collect" if tolerance.allows(children) else "fail"


def item_key(batch: int, key: str) -> str:
    """Return the key of an item: within a batch, equal item keys give equal keys."""
    if len(key) > LONGEST_ITEM_KEY:
        key = f"{key[:180]}#{hashlib.sha256(key.encode()).hexdigest()}"
    return f"{ITEM_PREFIX}{batch}/{key}"


def shown_key(key: str) -> str:
    """Return the key that a user knows an item by."""
    return key.removeprefix(ITEM_PREFIX).partition("/")[2] if key.startswith(ITEM_PREFIX) else key
