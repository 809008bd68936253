"""Find the events that people may want alerts of, in what the store has recorded, each event once.

A scan begins a little before the end of the last one, because a later commit may have an earlier time. So it keeps the
keys of the events that it has seen, in the ``Mark``, which the watching run passes on to its next scan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from msgspec import Struct, field

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
"""The kinds of events, as ``Alert(on=…)`` names them."""
SCAN_OVERLAP = timedelta(seconds=60)
"""How far before the last scan the next scan begins. No transaction of the library is open for so long."""
RANGE_OVERLAP = 200
"""How many ids before the last verdict range the next scan begins, for the same reason."""
MOST_SEEN = 2_000
"""Keys that are remembered. With more events in ``SCAN_OVERLAP``, those that are committed late are not found."""
_PAGE = 1000
_RANGE_PREFIX = "range:"
_ITEMS_PREFIX = "items:"
MOST_BATCHES = 1_000
"""Open batches with failed items that are remembered."""
MOST_COUNTED = 1_000
"""Failed items of a batch that are counted at most."""
SLOW_PREFIX = "slow:"
"""The prefix of keys of slow runs, which are remembered for as long as the run is slow."""
_EVENT_OF_STATE = {State.FAILED: "failed", State.MISSED: "missed", State.CANCELLED: "cancelled"}


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
    """The position of a scan, which the watching run keeps: up to where it has read, and what it has reported.

    It is stored, so the names in quotes never change.

    Attributes:
        at: the store's clock at the last scan, microseconds.
        ranges: the last verdict range that was seen, by id.
        floor: nothing before this is reported, microseconds; ``range_floor``: nor ranges up to this id.
        seen: keys of events that the next scan may find again, each with its time.
        sent: when the last messages were sent, microseconds.
        open_conditions: conditions that last, such as ``overdue:JOB``, and since when.
        checked: when they were last checked.
        pending: the events of the pending message, so that a second try sends the same message.
        dropped: jobs with ``overdue=`` that no running release declares any more.
        batches: open batches with failed items.
    """

    at: int
    ranges: int
    floor: int
    range_floor: int
    seen: dict[str, int] = {}
    sent: tuple[int, ...] = ()
    open_conditions: dict[str, int] = field(default_factory=dict, name="wrong")
    checked: int = 0
    pending: tuple[Event, ...] = field(default=(), name="letter")
    dropped: tuple[str, ...] = ()
    batches: tuple[int, ...] = ()


def read_mark(store: Store) -> Mark:
    """Return a mark at this moment: earlier events are not reported."""
    now = to_micros(store.now())
    last_range = max((ledger_range.id for ledger_range in store.decided(after=-1)), default=0)
    return Mark(now, last_range, now, last_range)


def read_events(store: Store, mark: Mark, *, takeovers: bool = False, items: bool = False) -> tuple[list[Event], Mark]:
    """Return the events since a mark, oldest first, and the mark for the next scan.

    Args:
        store: the store to scan.
        mark: from the last scan.
        takeovers: find takeovers, too, among the newest runs: a further read.
        items: find batches, too, that have succeeded although items failed: further reads.
    """
    now, last_scan, floor = store.now(), from_micros(mark.at), from_micros(mark.floor)
    set_back = last_scan - now > SCAN_OVERLAP
    if set_back:
        last_scan, floor = now, min(floor, now - SCAN_OVERLAP)
    scan_from = max(last_scan - SCAN_OVERLAP, floor)
    ranges = list(_of_ranges(store, max(mark.ranges - RANGE_OVERLAP, mark.range_floor)))
    ended, open_batches = list(_read_badly_ended(store, scan_from)), mark.batches
    events = [*_of_occurrences(ended), *ranges, *_of_sessions(store, scan_from)]
    if takeovers:
        events += _of_takeovers(store, scan_from)
    if items:
        batch_events, open_batches = _of_batches(store, ended, mark)
        events += batch_events
    new_events = [event for event in events if event.key not in mark.seen]
    reported = mark.seen
    if set_back:
        # Events between now and the last scan were reported before the store's clock was set back.
        reported_before = [event for event in new_events if now < event.at < from_micros(mark.at) - SCAN_OVERLAP]
        reported = reported | {event.key: to_micros(event.at) for event in reported_before}
        new_events = [event for event in new_events if event.key not in reported]
    # A range is found again by its id, whenever that was.
    remembered = {
        key: at
        for key, at in reported.items()
        if at >= to_micros(scan_from) or key.startswith((_RANGE_PREFIX, SLOW_PREFIX))
    }
    seen = remembered | {event.key: to_micros(event.at) for event in new_events}
    last_range = max([mark.ranges, *(int(event.key.removeprefix(_RANGE_PREFIX)) for event in ranges)])
    at, new_floor, range_floor = to_micros(now), to_micros(floor), mark.range_floor
    if len(seen) > MOST_SEEN:  # the next scan begins here, so that few of them are found again
        new_floor, range_floor = at, last_range
        seen = {key: then for key, then in seen.items() if then >= at or key.startswith(SLOW_PREFIX)}
    next_mark = Mark(
        at=at,
        ranges=last_range,
        floor=new_floor,
        range_floor=range_floor,
        seen=seen,
        sent=mark.sent,
        open_conditions=mark.open_conditions,
        checked=mark.checked,
        dropped=mark.dropped,
        batches=open_batches,
    )
    return sorted(new_events, key=lambda event: event.at), next_mark


def _read_badly_ended(store: Store, since: datetime) -> Iterator[Occurrence]:
    """Yield runs that did not end well, without those of internal jobs."""
    after = 0
    while page := store.ended_badly(since, after=after, limit=_PAGE):
        yield from (
            occurrence for occurrence in page if not is_internal(occurrence.job) and occurrence.finished_at is not None
        )
        newest = page[-1]
        if len(page) < _PAGE or newest.finished_at is None:
            return
        since, after = newest.finished_at, newest.id


def _of_occurrences(ended: Sequence[Occurrence]) -> Iterator[Event]:
    for occurrence in ended:
        # An item counts with its batch.
        if occurrence.parent is None and occurrence.finished_at is not None:
            yield _of_occurrence(occurrence, occurrence.finished_at)


def _of_batches(store: Store, ended: Sequence[Occurrence], mark: Mark) -> tuple[list[Event], tuple[int, ...]]:
    """Return events of batches that succeeded with failed items, and the open batches with failed items."""
    batches_with_failures = {
        occurrence.parent for occurrence in ended if occurrence.parent is not None and occurrence.state is State.FAILED
    }
    unreported = [
        batch_id
        for batch_id in sorted({*batches_with_failures, *mark.batches})
        if f"{_ITEMS_PREFIX}{batch_id}" not in mark.seen
    ]
    states = {batch_id: children.state for batch_id, children in store.children(unreported).items()}
    succeeded = [batch_id for batch_id, state in states.items() if state is State.SUCCEEDED]
    counts = store.children(succeeded, limit=MOST_COUNTED)
    events = [
        _of_batch(occurrence, counts[occurrence.id])
        for batch_id in succeeded
        if (occurrence := store.occurrence(batch_id)) is not None
    ]
    still_open = [batch_id for batch_id, state in states.items() if state is not None and not state.final]
    return [event for event in events if event is not None], tuple(still_open[-MOST_BATCHES:])


def _of_batch(occurrence: Occurrence, items: Children) -> Event | None:
    if occurrence.finished_at is None or not items.failed:  # they were run again meanwhile
        return None
    total = items.total if items.listed is None else items.listed
    count = f"{items.failed:,} or more" if items.failed >= MOST_COUNTED else f"{items.failed:,}"
    return Event(
        key=f"{_ITEMS_PREFIX}{occurrence.id}",
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
        event=_EVENT_OF_STATE[occurrence.state],
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
        key=f"{_RANGE_PREFIX}{ledger_range.id}",
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
