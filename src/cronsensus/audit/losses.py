"""Read from the trail what the store has lost, and from when on the ledger can be trusted."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import islice

from cronsensus.model.ledger import LOST_MOMENT, STORE_EMPTIED, TrailEntry
from cronsensus.stores.base import Store
from cronsensus.stores.pages import every_trail_entry
from cronsensus.timing.instants import format_instant, parse_instant

MOST_ENTRIES = 10_000
MOST_NOTES = 20


def losses(store: Store) -> list[TrailEntry]:
    """Return the losses that the trail records, newest first."""
    trail = islice(every_trail_entry(store, ""), MOST_ENTRIES)
    return [entry for entry in trail if entry.action in {LOST_MOMENT, STORE_EMPTIED}]


def notes(store: Store, since: datetime | None, until: datetime) -> Iterator[str]:
    """Yield a sentence for each loss that touches the stretch, and one on where the ledger begins."""
    entries = losses(store)
    identity = store.identity()
    began = None if identity is None else identity.since
    asked_earlier = began is not None and since is not None and since < began
    if began is not None and (asked_earlier or any(entry.action == STORE_EMPTIED for entry in entries)):
        yield f"the ledger begins at {format_instant(began)}, when the store was made; nothing before it is judged"
    for entry in [entry for entry in entries if entry.action == LOST_MOMENT][:MOST_NOTES]:
        end = parse_instant(entry.details["until"])
        begin = parse_instant(entry.details["from"]) if "from" in entry.details else None
        if (begin is None or begin <= until) and (since is None or end >= since):
            where = "up to" if begin is None else f"{format_instant(begin)} to"
            yield (
                f"the store lost a moment, {where} {format_instant(end)} ({entry.by}: {entry.why}): runs of that time "
                "may be missing here, and may have run once more since"
            )
