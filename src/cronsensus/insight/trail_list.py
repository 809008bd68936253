"""Search the trail by who did what, and when: for the page, the command and ``/api/trail``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

from cronsensus.insight.time_words import read_time
from cronsensus.model.ledger import TrailEntry
from cronsensus.stores.base import Store

TRAIL_FILTERS: Mapping[str, str] = {
    "target": "only to this job, or to the session with this id",
    "who": "only by these: part of the name",
    "action": "only this: pause, cancel, define, …",
    "since": "only then or later: a time, or 2h",
    "until": "only before",
}
"""Names in an address, each with what it means."""
MOST_READ = 5_000
"""Entries that are read for a page at most."""
_PAGE = 500


@dataclass(frozen=True, slots=True)
class TrailSearch:
    """A search of the trail. An entry matches if it fits all fields that are set.

    Attributes:
        target: a job, or the id of a session.
        who: part of the name of who acted, however written.
        action: the verb, as ``pause``.
        since: acts then or later.
        until: acts before.
    """

    target: str | None = None
    who: str = ""
    action: str = ""
    since: datetime | None = None
    until: datetime | None = None

    def fits(self, act: TrailEntry) -> bool:
        """Whether an entry matches. It does not check ``since``, at which the caller stops reading."""
        return (
            self.who.lower() in act.by.lower()
            and self.action in {"", act.action}
            and (self.until is None or act.at < self.until)
        )


def read_trail_search(filters: Mapping[str, str], now: datetime, zone: tzinfo = UTC) -> TrailSearch:
    """Return the search that values of ``TRAIL_FILTERS`` ask for; times without an offset are of ``zone``.

    Raises:
        InvalidOption: a time cannot be read.
    """
    since, until = (
        read_time(filters[name], now, tz=zone, what=name) if filters.get(name) else None for name in ("since", "until")
    )
    return TrailSearch(filters.get("target") or None, filters.get("who", ""), filters.get("action", ""), since, until)


@dataclass(frozen=True, slots=True)
class TrailPage:
    """A page of the trail, newest first.

    Attributes:
        after: the id after which the next page begins; ``None``: this is the last page.
        stopped: ``MOST_READ`` entries were read, and there are older entries.
    """

    acts: tuple[TrailEntry, ...]
    after: int | None
    stopped: bool = False


def list_trail(store: Store, search: TrailSearch, *, after: int | None = None, limit: int = 100) -> TrailPage:
    """Return a page of the trail."""
    matching: list[TrailEntry] = []
    for _ in range(MOST_READ // _PAGE):
        entries = store.trail(target=search.target, after=after, limit=_PAGE)
        for act in entries:
            if search.since is not None and act.at < search.since:
                return TrailPage(tuple(matching), None)
            if search.fits(act):
                if len(matching) == limit:
                    return TrailPage(tuple(matching), matching[-1].id)
                matching.append(act)
        if len(entries) < _PAGE:
            return TrailPage(tuple(matching), None)
        after = entries[-1].id
    return TrailPage(tuple(matching), after, stopped=True)
