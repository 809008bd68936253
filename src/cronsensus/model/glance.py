"""Short forms of occurrences, for lists and pictures of many."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from cronsensus.model.ledger import LedgerRange
from cronsensus.model.states import State


@dataclass(frozen=True, slots=True, kw_only=True)
class Glance:
    """An occurrence without its arguments, result and error, which may be megabytes each.

    Attributes:
        node: who runs it, or ran it last.
        started_at: when its last attempt started.
        parent: the batch that it is an item of.
        listed: how many items it has, of a batch whose list is complete.
    """

    id: int
    job: str
    state: State
    scheduled_for: datetime | None
    due_at: datetime
    crashes: int
    failures: int
    node: str | None
    reason: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    parent: int | None = None
    listed: int | None = None

    @property
    def is_batch(self) -> bool:
        """Whether it is a batch whose list is complete: its last attempt only collects."""
        return self.listed is not None

    @property
    def begun_at(self) -> datetime | None:
        """When it began: of a batch, when it was made."""
        return self.created_at if self.is_batch else self.started_at


@dataclass(frozen=True, slots=True)
class Past:
    """The end of a job's ledger: its last occurrences and its last verdict ranges, each the newest first.

    A batch is in it as one occurrence, without its items.
    """

    glances: tuple[Glance, ...] = ()
    ranges: tuple[LedgerRange, ...] = ()
