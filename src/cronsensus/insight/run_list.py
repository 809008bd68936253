"""Search runs, a page at a time: for the page of runs, ``cronsensus runs list`` and ``/api/runs``.

The store filters by what it has an index for. This module applies the other filters to what the store returns, up to a
bound, so that a hasty search does not read a million rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, get_args

from cronsensus.insight.summaries import error_text
from cronsensus.model.batch import shown_key
from cronsensus.model.job import is_internal
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter
from cronsensus.model.states import Origin, State
from cronsensus.payload.codec import dumps_masked
from cronsensus.security.masking import mask_data
from cronsensus.stores.base import Store
from cronsensus.stores.pages import every_occurrence

Order = Literal["newest", "oldest", "longest"]
ORDERS: tuple[Order, ...] = get_args(Order)
MOST_READ = 1_500
"""Runs that are read for a page, unless its caller allows more."""
_PAGE = 500
_MOST_STEPS = 64
_SLACK = timedelta(minutes=1)
"""How far the creation of two runs may be out of the order of their ids."""
_NUMBER = re.compile(r"\d+")
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSearch:
    """A search for runs. A run matches if it fits all fields that are set.

    Attributes:
        node: the node that runs it, or ran it last.
        key: the whole key. With ``job`` it is found at once, however old.
        since: created then or later; ``until``: created before.
        words: each occurs in its job, key, node, reason, error or arguments as they are shown. A number matches a whole
            number only, and ``customer=42`` an argument of that name with that value.
        order: by id; ``longest``: by duration, of the runs that are read and have started.
    """

    job: str | None = None
    states: tuple[State, ...] = ()
    origin: Origin | None = None
    node: str | None = None
    key: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    words: tuple[str, ...] = ()
    batch: int | None = None
    order: Order = "newest"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPage:
    """A page of runs that match.

    Attributes:
        after: the id after which the next page begins; ``None``: this is the last page.
        read: how many runs were read.
        stopped: whether reading stopped at the bound.
    """

    runs: tuple[Occurrence, ...]
    after: int | None
    read: int
    stopped: bool


def list_runs(
    store: Store, search: RunSearch, *, after: int | None = None, limit: int = 50, most_read: int = MOST_READ
) -> RunPage:
    """Return a page of the runs that match a search.

    Args:
        store: where the runs are.
        search: which runs.
        after: the id after which the page begins; not with ``longest``, which has a single page.
        limit: how many runs the page has at most.
        most_read: how many runs are read at most.
    """
    matching: list[Occurrence] = []
    runs_read, last_id, next_after, stopped = 0, after, None, False
    for candidate in _candidates(store, search, after, most_read, limit):
        if runs_read >= most_read:
            next_after, stopped = last_id, True
            break
        runs_read, last_id = runs_read + 1, candidate.id
        if _matches(candidate, search):
            matching.append(candidate)
        if search.order != "longest" and len(matching) > limit:
            next_after = matching[limit - 1].id
            break
    if search.order == "longest":
        matching, next_after = _longest_first(matching, store.now()), None
    return RunPage(runs=tuple(matching[:limit]), after=next_after, read=runs_read, stopped=stopped)


def _longest_first(runs: Sequence[Occurrence], now: datetime) -> list[Occurrence]:
    durations = {run.id: (run.finished_at or now) - run.begun_at for run in runs if run.begun_at is not None}
    return sorted((run for run in runs if run.id in durations), key=lambda run: (-durations[run.id], run.id))


def _candidates(store: Store, search: RunSearch, after: int | None, most_read: int, limit: int) -> Iterator[Occurrence]:
    """Yield runs from the store in order, from the first that may match to the last that may."""
    newest_first = search.order != "oldest" and not (search.order == "longest" and search.states == (State.RUNNING,))
    # No index has the keys and origins of all jobs together: the store would read all rows.
    key = search.key if search.job is not None else None
    wanted = OccurrenceFilter(job=search.job, states=search.states, key=key, parent=search.batch)
    edge = search.until if newest_first else search.since
    if after is None and edge is not None:
        after = _find_edge(store, edge, newest_first=newest_first)
    is_narrow = bool(search.words or search.node or search.origin or search.key) or search.order == "longest"
    page = min(_PAGE, most_read + 1) if is_narrow else min(limit + 1, most_read + 1)
    for occurrence in every_occurrence(store, wanted, after=after, newest_first=newest_first, page=page):
        # Only the moment of creation grows with ids: not the due time of an item, nor the time of a backfill.
        if newest_first and search.since is not None and occurrence.created_at < search.since - _SLACK:
            return
        if not newest_first and search.until is not None and occurrence.created_at > search.until + _SLACK:
            return
        yield occurrence


def _find_edge(store: Store, edge: datetime, *, newest_first: bool) -> int | None:
    """Find by bisection an id from which, in this order, the runs created by ``edge`` begin."""
    every_run = OccurrenceFilter()
    newest_and_oldest = [
        store.occurrences(every_run, limit=1, newest_first=True),
        store.occurrences(every_run, limit=1, newest_first=False),
    ]
    if not all(newest_and_oldest):
        return None
    high, low = newest_and_oldest[0][0].id + 1, newest_and_oldest[1][0].id - 1
    edge = edge + _SLACK if newest_first else edge - _SLACK
    for _ in range(_MOST_STEPS):
        if high - low <= 1:
            break
        middle = (low + high) // 2
        next_run = store.occurrences(every_run, after=middle, limit=1, newest_first=False)
        if next_run and next_run[0].created_at < edge:
            low = next_run[0].id
        else:
            high = middle
    return high + 1 if newest_first else max(low, 0)


def _matches(occurrence: Occurrence, search: RunSearch) -> bool:
    return (
        (search.job is not None or search.batch is not None or not is_internal(occurrence.job))
        and (search.node is None or occurrence.node == search.node)
        and (search.origin is None or occurrence.origin is search.origin)
        and (search.key is None or search.key in {occurrence.key, shown_key(occurrence.key)})
        and (search.since is None or occurrence.created_at >= search.since)
        and (search.until is None or occurrence.created_at < search.until)
        and (not search.words or _has_words(occurrence, search.words))
    )


def _has_words(occurrence: Occurrence, words: Sequence[str]) -> bool:
    text = " ".join(
        (occurrence.job, occurrence.key, occurrence.node or "", occurrence.reason or "", error_text(occurrence.error))
    ).lower()
    unmasked = f"{text} {occurrence.args} {occurrence.kwargs}".lower()
    # Masking arguments is slow. It adds no letters, so a word that the raw text lacks cannot match.
    if not all(letters in unmasked for word in words for letters in _WORD.findall(word.lower())[:1]):
        return False
    by_name = {f"{name}={_value(value)}".lower() for name, value in mask_data(occurrence.kwargs).items()}
    shown = " ".join((text, *(_value(value) for value in mask_data(occurrence.args)), *sorted(by_name))).lower()
    return all(_has_word(word.lower(), shown, by_name, text) for word in words)


def _value(value: Any) -> str:
    return value if isinstance(value, str) else dumps_masked(value)


def _has_word(word: str, shown: str, by_name: set[str], text: str) -> bool:
    if "=" in word:
        return word in by_name or word in text
    if _NUMBER.fullmatch(word):
        return re.search(rf"(?<!\d){word}(?!\d)", shown) is not None
    return word in shown
