"""What somebody may want to be told: found in what the store has recorded, and never twice.

A look reads what has ended since a moment before the last one, because what is committed later may have an earlier
time; what it has seen, it knows by key. All of that is the ``Mark``, which the watching run leaves for the next look.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from msgspec import Struct

from cronsensus.model.batch import Children
from cronsensus.model.job import is_internal
from cronsensus.model.ledger import LedgerRange
from cronsensus.model.occurrence import Occurrence
from cronsensus.model.session import SessionView
from cronsensus.model.states import State
from cronsensus.stores.base import Store
from cronsensus.timing.instants import from_micros, to_micros

EVENTS = (
    "failed", "items_failed", "missed", "cancelled", "overdue", "retired", "slow", "stalled", "backlog", "recovered",
    "taken_over", "node_lost",
)  # fmt: skip
"""What there is to be told of."""
AGAIN = timedelta(seconds=60)
"""So far before the last look the next one begins: no transaction of ours is open for so long."""
RANGES_AGAIN = 200
MOST_SEEN = 2_000
"""Of more than so many in ``AGAIN``, what is committed late and out of order is not found."""
_PAGE = 1000
_RANGE = "range:"
_ITEMS = "items:"
MOST_BATCHES = 1_000
"""Batches that go on of which it is remembered that items have failed."""
MOST_COUNTED = 1_000
"""Failed items of a batch that are counted."""
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
        dropped: jobs with ``overdue=`` that no running release declares any more.
        batches: batches that go on, and of which items have failed.
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
    dropped: tuple[str, ...] = ()
    batches: tuple[int, ...] = ()


def read_mark(store: Store) -> Mark:
    """Return a mark at this moment: what was before is not told."""
    now, last = to_micros(store.now()), max((one.id for one in store.decided(after=-1)), default=0)
    return Mark(now, last, now, last)


def read_events(store: Store, mark: Mark, *, takeovers: bool = False, items: bool = False) -> tuple[list[Event], Mark]:
    """Return what has happened since a mark, oldest first, and the mark for the next look.

    ``takeovers``: these too. They are looked for among the newest runs, which is a read of its own. ``items``: batches
    that have succeeded although items of them failed, likewise.
    """
    now, last_look, floor = store.now(), from_micros(mark.at), from_micros(mark.floor)
    set_back = last_look - now > AGAIN
    if set_back:
        last_look, floor = now, min(floor, now - AGAIN)
    since = max(last_look - AGAIN, floor)
    ranges = list(_of_ranges(store, max(mark.ranges - RANGES_AGAIN, mark.range_floor)))
    ended, open_batches = list(_read_badly_ended(store, since)), mark.batches
    found = [*_of_occurrences(ended), *ranges, *_of_sessions(store, since)]
    if takeovers:
        found += _of_takeovers(store, since)
    if items:
        more, open_batches = _of_batches(store, ended, mark)
        found += more
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
        at, last, until, range_floor, seen, mark.sent, mark.wrong, mark.checked, (), mark.dropped, open_batches
    )


def _read_badly_ended(store: Store, since: datetime) -> Iterator[Occurrence]:
    """Yield what ended otherwise than well, without our own jobs."""
    after = 0
    while page := store.ended_badly(since, after=after, limit=_PAGE):
        yield from (one for one in page if not is_internal(one.job) and one.finished_at is not None)
        last = page[-1]
        if len(page) < _PAGE or last.finished_at is None:
            return
        since, after = last.finished_at, last.id


def _of_occurrences(ended: Sequence[Occurrence]) -> Iterator[Event]:
    for one in ended:
        # An item of a batch speaks through its batch.
        if one.parent is None and one.finished_at is not None:
            yield _of_occurrence(one, one.finished_at)


def _of_batches(store: Store, ended: Sequence[Occurrence], mark: Mark) -> tuple[list[Event], tuple[int, ...]]:
    """Return the batches that have succeeded with failed items, and those that may yet."""
    failed = {one.parent for one in ended if one.parent is not None and one.state is State.FAILED}
    known = [one for one in sorted({*failed, *mark.batches}) if f"{_ITEMS}{one}" not in mark.seen]
    stands = {number: one.state for number, one in store.children(known).items()}
    over = [number for number, state in stands.items() if state is State.SUCCEEDED]
    counts = store.children(over, limit=MOST_COUNTED)
    found = [_of_batch(one, counts[one.id]) for number in over if (one := store.occurrence(number)) is not None]
    goes_on = [number for number, state in stands.items() if state is not None and not state.final]
    return [one for one in found if one is not None], tuple(goes_on[-MOST_BATCHES:])


def _of_batch(one: Occurrence, items: Children) -> Event | None:
    if one.finished_at is None or not items.failed:  # they were run again meanwhile
        return None
    total = items.total if items.listed is None else items.listed
    count = f"{items.failed:,} or more" if items.failed >= MOST_COUNTED else f"{items.failed:,}"
    return Event(
        key=f"{_ITEMS}{one.id}",
        event="items_failed",
        at=one.finished_at,
        job=one.job,
        run=one.id,
        scheduled_for=one.scheduled_for,
        reason=f"{count} of its {total:,} items failed, which tolerate= allows",
        node=one.node,
    )


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
