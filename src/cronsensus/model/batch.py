"""Batches: an occurrence that is over when its items are; the items are occurrences themselves.

::

    list ──▶ parked while any item is open ──▶ collect ──▶ succeeded
                                           └──▶ too many failed ──▶ failed

This module decides what a batch does next, from what the store has recorded.
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
    """The items of a batch by state, each counted up to a limit, and the state of the batch itself.

    Attributes:
        state: of the batch; ``None``: it does not exist.
        listed: how many items its complete list had; ``None``: the list is not complete.
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
        """How many items are pending or running."""
        return self.pending + self.running

    @property
    def not_done(self) -> int:
        """How many items failed or were cancelled, which ``tolerate`` and ``stop_after`` count."""
        return self.failed + self.cancelled

    @property
    def total(self) -> int:
        """How many items there are, as far as they were counted."""
        return self.open + self.not_done + self.succeeded + self.skipped


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How many items may fail or be cancelled before the batch fails.

    Attributes:
        count: this many.
        share: or this share of all items, from 0 to 1; decimal, because 0.29 * 100 is less than 29 in floats.
        stop_after: after this many, no further item is started; ``None``: all are tried.
    """

    count: int = 0
    share: Decimal = Decimal(0)
    stop_after: int | None = None

    @property
    def counts(self) -> int:
        """How far items must be counted for a decision."""
        return 2 * MOST_ITEMS if self.share else max(self.count, self.stop_after or 0) + 1

    def allows(self, children: Children) -> bool:
        """Whether a batch whose items have all ended has succeeded."""
        return children.not_done <= max(self.count, int(self.share * children.total))

    def stops(self, children: Children) -> bool:
        """Whether no further item is to be started."""
        return self.stop_after is not None and children.not_done >= self.stop_after

    @classmethod
    def read(cls, tolerate: int | str | None, stop_after: int | None) -> Tolerance:
        """Build a tolerance from a user's options: ``tolerate=3`` or ``"5%"``, ``stop_after=10``.

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

    ``"list"``: complete its list. ``"wait"``: items are open. ``"stop"``: enough items failed to stop. ``"fail"``: all
    have ended, and too many failed. ``"collect"``: all have ended.
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
    """Return an item's key without the prefix of its batch, as the user gave it."""
    return key.removeprefix(ITEM_PREFIX).partition("/")[2] if key.startswith(ITEM_PREFIX) else key
