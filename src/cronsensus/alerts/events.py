"""Find the events that people may want alerts of, in what the store has recorded, each event once.

A scan begins a little before the end of the last one, because a later commit may have an earlier time. So it keeps the
keys of the events that it has seen, in the ``Mark``, which the watching run passes on to its next scan.
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
"""The kinds of events."""
AGAIN = timedelta(seconds=60)
"""How far before the last scan the next scan begins. No transaction of the library is open for so long."""
RANGES_AGAIN = 200
MOST_SEEN = 2_000
"""With more events in ``AGAIN``, those that are committed late and out of order are not found."""
_PAGE = 1000
_RANGE = "range:"
_ITEMS = "items:"
MOST_BATCHES = 1_000
"""Open batches with failed items that are remembered."""
MOST_COUNTED = 1_000
"""Failed items of a batch that are counted at most."""
SLOW = "slow:"
"""The prefix of keys of slow runs, which are remembered for as long as the run is slow."""
_OF_STATE = {State.FAILED: "failed", State.MISSED: "missed", State.CANCELLED: "cancelled"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event that people may want an alert of.

    Attributes:
        key: its identity, by which it is reported once.
        event: one of ``EVENTS``.
        at: when it was recorded, by the store's clock.
        job: its name; ``None``: it is about a node.
        run: the occurrence, if there is one.
        scheduled_for: its nominal time; of a range the first.
        count: how many nominal times it stands for; ``None``: too many to count.
        reason: the reason in the ledger, or the error.
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
    """The position of a scan: up to where it has read, and what it has reported.

    Attributes:
        at: the store's clock at the last scan, microseconds.
        ranges: the last verdict range that was seen, by id.
        floor: nothing before this is reported, microseconds; ``range_floor``: nor ranges up to this id.
        seen: keys of events that the next scan may find again, each with its time.
        sent: when the last messages were sent, microseconds.
        wrong: the open conditions, and since when; ``checked``: when they were last checked.
        letter: the events of the pending message, so that a second try sends the same message.
        dropped: jobs with ``overdue=`` that no running release declares any more.
        batches: open batches with failed items.
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
    """Return a mark at this moment: earlier events are not reported."""
    now, last = to_micros(store.now()), max((ledger_range.id for ledger_range in store.decided(after=-1)), default=0)
    return Mark(now, last, now, last)


def read_events(store: Store, mark: Mark, *, takeovers: bool = False, items: bool = False) -> tuple[list[Event], Mark]:
    """Return the events since a mark, oldest first, and the mark for the next scan.

    Args:
        store: the store to scan.
        mark: from the last scan.
        takeovers: find takeovers, too, among the newest runs: a further read.
        items: find batches, too, that have succeeded although items failed: further reads.
    """
    now, last_look, floor = store.now(), from_micros(mark.at), from_micros(mark.floor)
    set_back = last_look - now > AGAIN
    if set_back:
        last_look, floor = now, min(floor, now - AGAIN)
    since = max(last_look - AGAIN, floor)
    ranges = list(_of_ranges(store, max(mark.ranges - RANGES_AGAIN, mark.range_floor)))
    ended, open_batches = list(_read_badly_ended(store, since)), mark.batches
    events = [*_of_occurrences(ended), *ranges, *_of_sessions(store, since)]
    if takeovers:
        events += _of_takeovers(store, since)
    if items:
        batch_events, open_batches = _of_batches(store, ended, mark)
        events += batch_events
    new = [found for found in events if found.key not in mark.seen]
    known = mark.seen
    if set_back:
        # Events between now and the last scan were reported before the store's clock was set back.
        reported = [found for found in new if now < found.at < from_micros(mark.at) - AGAIN]
        known = known | {found.key: to_micros(found.at) for found in reported}
        new = [found for found in new if found.key not in known]
    # A range is found again by its id, whenever that was.
    kept = {key: at for key, at in known.items() if at >= to_micros(since) or key.startswith((_RANGE, SLOW))}
    seen = kept | {found.key: to_micros(found.at) for found in new}
    last = max([mark.ranges, *(int(event.key.removeprefix(_RANGE)) for event in ranges)])
    at, until, range_floor = to_micros(now), to_micros(floor), mark.range_floor
    if len(seen) > MOST_SEEN:  # the next scan begins here, so that few of them are found again
        until, range_floor = at, last
        seen = {key: then for key, then in seen.items() if then >= at or key.startswith(SLOW)}
    return sorted(new, key=lambda found: found.at), Mark(
        at, last, until, range_floor, seen, mark.sent, mark.wrong, mark.checked, (), mark.dropped, open_batches
    )


def _read_badly_ended(store: Store, since: datetime) -> Iterator[Occurrence]:
    """Yield runs that did not end well, without those of internal jobs."""
    after = 0
    while page := store.ended_badly(since, after=after, limit=_PAGE):
        yield from (one for one in page if not is_internal(one.job) and one.finished_at is not None)
        last = page[-1]
        if len(page) < _PAGE or last.finished_at is None:
            return
        since, after = last.finished_at, last.id


def _of_occurrences(ended: Sequence[Occurrence]) -> Iterator[Event]:
    for occurrence in ended:
        # An item counts with its batch.
        if occurrence.parent is None and occurrence.finished_at is not None:
            yield _of_occurrence(occurrence, occurrence.finished_at)


def _of_batches(store: Store, ended: Sequence[Occurrence], mark: Mark) -> tuple[list[Event], tuple[int, ...]]:
    """Return events of batches that succeeded with failed items, and the open batches with failed items."""
    failed = {one.parent for one in ended if one.parent is not None and one.state is State.FAILED}
    known = [one for one in sorted({*failed, *mark.batches}) if f"{_ITEMS}{one}" not in mark.seen]
    stands = {number: one.state for number, one in store.children(known).items()}
    over = [number for number, state in stands.items() if state is State.SUCCEEDED]
    counts = store.children(over, limit=MOST_COUNTED)
    found = [_of_batch(one, counts[one.id]) for number in over if (one := store.occurrence(number)) is not None]
    goes_on = [number for number, state in stands.items() if state is not None and not state.final]
    return [one for one in found if one is not None], tuple(goes_on[-MOST_BATCHES:])


def _of_batch(occurrence: Occurrence, items: Children) -> Event | None:
    if occurrence.finished_at is None or not items.failed:  # they were run again meanwhile
        return None
    total = items.total if items.listed is None else items.listed
    count = f"{items.failed:,} or more" if items.failed >= MOST_COUNTED else f"{items.failed:,}"
    return Event(
        key=f"{_ITEMS}{occurrence.id}",
        event="items_failed",
        at=occurrence.finished_at,
        job=occurrence.job,
        run=occurrence.id,
        scheduled_for=occurrence.scheduled_for,
        reason=f"{count} of its {total:,} items failed, which tolerate= allows",
        node=occurrence.node,
    )


def _of_takeovers(store: Store, since: datetime) -> Iterator[Event]:
    for run in store.ran_since(since, limit=_PAGE):
        if not run.crashes or run.parent is not None or is_internal(run.job):
            continue
        if run.started_at is not None and run.started_at >= since:
            yield Event(
                key=f"taken_over:{run.id}:{run.crashes}",
                event="taken_over",
                at=run.started_at,
                job=run.job,
                run=run.id,
                scheduled_for=run.scheduled_for,
                reason=f"its process was gone; it began again on {run.node}",
                node=run.node,
            )


def _of_occurrence(occurrence: Occurrence, at: datetime) -> Event:
    error = (
        ""
        if occurrence.error is None or occurrence.state is not State.FAILED
        else f"{occurrence.error.type}: {occurrence.error.message}"
    )
    return Event(
        key=f"run:{occurrence.id}",
        event=_OF_STATE[occurrence.state],
        at=at,
        job=occurrence.job,
        run=occurrence.id,
        scheduled_for=occurrence.scheduled_for,
        reason=error or occurrence.reason or "",
        node=occurrence.node,
    )


def _of_ranges(store: Store, after: int) -> Iterator[Event]:
    after = max(after, 0)
    while page := store.decided(after=after, limit=_PAGE):
        yield from (_of_range(ledger_range) for ledger_range in page if ledger_range.range.state is State.MISSED)
        after = page[-1].id


def _of_range(ledger_range: LedgerRange) -> Event:
    return Event(
        key=f"{_RANGE}{ledger_range.id}",
        event="missed",
        at=ledger_range.decided_at,
        job=ledger_range.job,
        scheduled_for=ledger_range.range.first,
        count=ledger_range.range.count,
        reason=ledger_range.range.reason,
    )


def _of_sessions(store: Store, since: datetime) -> Iterator[Event]:
    for session in store.sessions(ended=True):
        if session.is_node and session.state == "dead" and session.ended_at is not None and session.ended_at >= since:
            yield _of_session(session, session.ended_at)


def _of_session(session: SessionView, at: datetime) -> Event:
    return Event(key=f"node:{session.id}", event="node_lost", at=at, node=session.node, reason=session.ended_why or "")
