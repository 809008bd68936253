"""How the items of a job come to be, as its declaration says; ``batch.py`` runs them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cronsensus.errors import Snooze
from cronsensus.model.batch import Tolerance


@dataclass(frozen=True, slots=True)
class Batch:
    """How the items of a job come to be, and what becomes of their results.

    Attributes:
        lister: the items, or what is called for them.
        lister_name: what errors call it.
        lister_run: its parameter that wants the ``Run``.
        bind: makes of an item what a store keeps: the arguments of one call.
        key_of: makes of an item its key; ``None``: the item itself.
        tolerance: how many may fail.
        collect: is given the results, and makes that of the batch.
        collect_run: its parameter that wants the ``Run``.
        on_loop: whether lister or ``collect`` is async.
    """

    lister: Any
    lister_name: str
    bind: Callable[[Any], tuple[tuple[Any, ...], dict[str, Any]]]
    lister_run: str | None = None
    key_of: Callable[[Any], Any] | None = None
    tolerance: Tolerance = field(default_factory=Tolerance)
    collect: Callable[..., Any] | None = None
    collect_run: str | None = None
    on_loop: bool = False


class Watching(Snooze):
    """A run of our own that looks now and then: it leaves no record, and ``state`` for its next attempt."""

    def __init__(self, *, after: float, state: str) -> None:
        super().__init__("watching", after=after)
        self.state = state


class Asleep(Snooze):
    """A batch has listed its items and sleeps until they are done."""

    def __init__(self, message: str, *, listed: int | None) -> None:
        super().__init__(message)
        self.listed = listed
