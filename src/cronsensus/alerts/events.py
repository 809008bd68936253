"""What somebody may want to be told: found in what the store has recorded, and never twice.

A look reads what has ended since a moment before the last one, because what is committed later may have an earlier
time; what it has seen, it knows by key. All of that is the ``Mark``, which the watching run leaves for the next look.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from msgspec import Struct

from cronsensus.instants import from_micros, to_micros
from cronsensus.model.job import is_internal
from cronsensus.model.ledger import LedgerRange
from cronsensus.model.occurrence import Occurrence
from cronsensus.model.session import SessionView
from cronsensus.model.states import State
from cronsensus.stores.base import Store

EVENTS = (
    "failed", "missed", "cancelled", "overdue", "slow", "stalled", "backlog", "recovered", "taken_over", "node_lost",
)  # fmt: skip
"""What there is to be told of."""
AGAIN = timedelta(seconds=60)
"""So far before the last look the next one begins: no transaction of ours is open for so long."""
RANGES_AGAIN = 200
MOST_SEEN = 2_000
"""Of more than so many in ``AGAIN``, what is committed late and out of order is not found."""
_PAGE = 1000
_RANGE = "range:"
SLOW = "slow:"
"""Keys of what is slow start with it: they are known for as long as it is."""
_OF_STATE = {State.FAILED: "failed", State.MISSED: "missed", State.CANCELLED: "cancelled"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something to be told of.

    Attributes:
        key: names it for ever: it is told once.
        event: one of ``EVENTS``.
        at: when it was recorded, by the store's clock.
        job: its name; ``None``: it is about a node.
        run: the occurrence, if there is one.
        scheduled_for: its nominal time; of several in one verdict the first.
        count: how many nominal times it stands for; ``None``: too many to count.
        reason: the ledger's words, or the error.
        node: which node it happened on.
    """

    key: str
    event: str
    at: datetime
    job: str | None = None
    run: int | None = None
    scheduled_for: datetime | None = None
    count: int | None = 1
    reason: str = ""
    node: str | None = None


class Mark(Struct, frozen=True):
    """Up to where has been looked, and what has been told.

    Attributes:
        at: the store's clock at the last look, microseconds.
        ranges: the last verdict range that was seen, by id.
        floor: nothing before this is told, microseconds; ``range_floor``: nor ranges up to this id.
        seen: keys of events that the next look may find again, each with its time.
        sent: when the last messages were sent, microseconds.
        wrong: what is wrong of jobs, and since when; ``checked``: when that was last looked at.
        letter: what is to be told next, and nothing else: sent again, it is the same.
    """

    at: int
    ranges: int
    floor: int
    range_floor: int
    seen: dict[str, int] = {}
    sent: tuple[int, ...] = ()
    wrong: dict[str, int] = {}
    checked: int = 0
    letter: tuple[Event, ...] = ()


def begin(store: Store) -> Mark:
    """Return a mark at this moment: what was before is not told."""
    now, last = to_micros(store.now()), max((one.id for one in store.decided(after=-1)), default=0)
    return Mark(now, last, now, last)


def look(store: Store, mark: Mark, *, takeovers: bool = False) -> tuple[list[Event], Mark]:
    """Return what has happened since a mark, oldest first, and the mark for the next look.

    ``takeovers``: these too. They are looked for among the newest runs, which is a read of its own.
    """
    now, last_look, floor = store.now(), from_micros(mark.at), from_micros(mark.floor)
    set_back = last_look - now > AGAIN
    if set_back:
        last_look, floor = now, min(floor, now - AGAIN)
    since = max(last_look - AGAIN, floor)
    ranges = list(_of_ranges(store, max(mark.ranges - RANGES_AGAIN, mark.range_floor)))
    found = [*_of_occurrences(store, since), *ranges, *_of_sessions(store, since)]
    if takeovers:
        found += _of_takeovers(store, since)
    new = [one for one in found if one.key not in mark.seen]
    known = mark.seen
    if set_back:
        # What bears a time between now and the last look was told before the store's clock was set back.
        told = [one for one in new if now < one.at < from_micros(mark.at) - AGAIN]
        known = known | {one.key: to_micros(one.at) for one in told}
        new = [one for one in new if one.key not in known]
    # A range is found again by its id, whenever that was.
    kept = {key: at for key, at in known.items() if at >= to_micros(since) or key.startswith((_RANGE, SLOW))}
    seen = kept | {one.key: to_micros(one.at) for one in new}
    last = max([mark.ranges, *(int(one.key.removeprefix(_RANGE)) for one in ranges)])
    at, until, range_floor = to_micros(now), to_micros(floor), mark.range_floor
    if len(seen) > MOST_SEEN:  # the next look begins here, so that few of them are found again
        until, range_floor = at, last
        seen = {key: then for key, then in seen.items() if then >= at or key.startswith(SLOW)}
    return sorted(new, key=lambda one: one.at), Mark(
        at, last, until, range_floor, seen, mark.sent, mark.wrong, mark.checked
    )


def _of_occurrences(store: Store, since: datetime) -> Iterator[Event]:
    after = 0
    while page := store.ended_badly(since, after=after, limit=_PAGE):
        for one in page:
            # An item of a batch speaks through its batch.
            if one.parent is None and not is_internal(one.job) and one.finished_at is not None:
                yield _of_occurrence(one, one.finished_at)
        last = page[-1]
        if len(page) < _PAGE or last.finished_at is None:
            return
        since, after = last.finished_at, last.id


def _of_takeovers(store: Store, since: datetime) -> Iterator[Event]:
    for one in store.ran_since(since, limit=_PAGE):
        if not one.crashes or one.parent is not None or is_internal(one.job):
            continue
        if one.started_at is not None and one.started_at >= since:
            yield Event(
                key=f"taken_over:{one.id}:{one.crashes}",
                event="taken_over",
                at=one.started_at,
                job=one.job,
                run=one.id,
                scheduled_for=one.scheduled_for,
                reason=f"its process was gone; it began again on {one.node}",
                node=one.node,
            )


def _of_occurrence(one: Occurrence, at: datetime) -> Event:
    error = "" if one.error is None or one.state is not State.FAILED else f"{one.error.type}: {one.error.message}"
    return Event(
        key=f"run:{one.id}",
        event=_OF_STATE[one.state],
        at=at,
        job=one.job,
        run=one.id,
        scheduled_for=one.scheduled_for,
        reason=error or one.reason or "",
        node=one.node,
    )


def _of_ranges(store: Store, after: int) -> Iterator[Event]:
    after = max(after, 0)
    while page := store.decided(after=after, limit=_PAGE):
        yield from (_of_range(one) for one in page if one.range.state is State.MISSED)
        after = page[-1].id


def _of_range(one: LedgerRange) -> Event:
    return Event(
        key=f"{_RANGE}{one.id}",
        event="missed",
        at=one.decided_at,
        job=one.job,
        scheduled_for=one.range.first,
        count=one.range.count,
        reason=one.range.reason,
    )


def _of_sessions(store: Store, since: datetime) -> Iterator[Event]:
    for one in store.sessions(ended=True):
        if one.is_node and one.state == "dead" and one.ended_at is not None and one.ended_at >= since:
            yield _of_session(one, one.ended_at)


def _of_session(one: SessionView, at: datetime) -> Event:
    return Event(key=f"node:{one.id}", event="node_lost", at=at, node=one.node, reason=one.ended_why or "")
