"""Runs by what is known of them, a page at a time: for the page of runs, ``cronsensus runs list`` and ``/api/runs``.

The store narrows by what it has an index for; the rest is looked for in pages of what it returns, up to a bound that a
page names, so that nothing that was asked for in haste reads a million rows.
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
"""Runs that are looked through for a page, unless its caller waits longer."""
_AT_ONCE = 500
_STEPS = 64
_SLACK = timedelta(minutes=1)
"""By which two runs may be created in another order than that of their ids."""
_NUMBER = re.compile(r"\d+")
_LETTERS = re.compile(r"\w+")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSearch:
    """Which runs are meant; all that is given holds together.

    Attributes:
        node: by which it runs, or ran last.
        key: the whole key. With ``job`` it is found at once, however old.
        since: created then or later; ``until``: created before.
        words: each stands in its job, key, node, reason, error or arguments as they are shown. A number is a whole
            number there, and ``customer=42`` an argument of that name with that value.
        order: by id; ``longest``: what began by how long it took, of what is looked through.
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
    """Runs that were found.

    Attributes:
        after: the id behind which the next page begins; ``None``: there is none.
        read: how many were looked through.
        stopped: not all were, because that was the bound.
    """

    runs: tuple[Occurrence, ...]
    after: int | None
    read: int
    stopped: bool


def list_runs(
    store: Store, search: RunSearch, *, after: int | None = None, limit: int = 50, most_read: int = MOST_READ
) -> RunPage:
    """Return a page of the runs that are meant.

    Args:
        store: has them.
        search: says which.
        after: the id behind which the page begins; not with ``longest``, which has one page.
        limit: how many at most.
        most_read: how many are looked through at most.
    """
    found: list[Occurrence] = []
    read, last, more, stopped = 0, after, None, False
    for one in _candidates(store, search, after, most_read, limit):
        if read >= most_read:
            more, stopped = last, True
            break
        read, last = read + 1, one.id
        if _matches(one, search):
            found.append(one)
        if search.order != "longest" and len(found) > limit:
            more = found[limit - 1].id
            break
    if search.order == "longest":
        found, more = _longest_first(found, store.now()), None
    return RunPage(runs=tuple(found[:limit]), after=more, read=read, stopped=stopped)


def _longest_first(found: Sequence[Occurrence], now: datetime) -> list[Occurrence]:
    took = {one.id: (one.finished_at or now) - one.begun_at for one in found if one.begun_at is not None}
    return sorted((one for one in found if one.id in took), key=lambda one: (-took[one.id], one.id))


def _candidates(store: Store, search: RunSearch, after: int | None, most_read: int, limit: int) -> Iterator[Occurrence]:
    """Yield what the store finds, in order, from where it may match to where no more can."""
    newest_first = search.order != "oldest" and not (search.order == "longest" and search.states == (State.RUNNING,))
    # No index has the keys and origins of all jobs together: the store would read all rows.
    key = search.key if search.job is not None else None
    where = OccurrenceFilter(job=search.job, states=search.states, key=key, parent=search.batch)
    edge = search.until if newest_first else search.since
    if after is None and edge is not None:
        after = _find_edge(store, edge, newest_first=newest_first)
    narrow = bool(search.words or search.node or search.origin or search.key) or search.order == "longest"
    page = min(_AT_ONCE, most_read + 1) if narrow else min(limit + 1, most_read + 1)
    for one in every_occurrence(store, where, after=after, newest_first=newest_first, page=page):
        # Items follow their batch, and what is backfilled its time: the moment of creation alone goes with ids.
        if newest_first and search.since is not None and one.created_at < search.since - _SLACK:
            return
        if not newest_first and search.until is not None and one.created_at > search.until + _SLACK:
            return
        yield one


def _find_edge(store: Store, edge: datetime, *, newest_first: bool) -> int | None:
    """Return an id beyond which, in this order, everything that was created by then lies, by halving."""
    where = OccurrenceFilter()
    ends = [store.occurrences(where, limit=1, newest_first=True), store.occurrences(where, limit=1, newest_first=False)]
    if not all(ends):
        return None
    high, low = ends[0][0].id + 1, ends[1][0].id - 1
    edge = edge + _SLACK if newest_first else edge - _SLACK
    for _ in range(_STEPS):
        if high - low <= 1:
            break
        middle = (low + high) // 2
        at = store.occurrences(where, after=middle, limit=1, newest_first=False)
        if at and at[0].created_at < edge:
            low = at[0].id
        else:
            high = middle
    return high + 1 if newest_first else max(low, 0)


def _matches(one: Occurrence, search: RunSearch) -> bool:
    return (
        (search.job is not None or search.batch is not None or not is_internal(one.job))
        and (search.node is None or one.node == search.node)
        and (search.origin is None or one.origin is search.origin)
        and (search.key is None or search.key in {one.key, shown_key(one.key)})
        and (search.since is None or one.created_at >= search.since)
        and (search.until is None or one.created_at < search.until)
        and (not search.words or _has_words(one, search.words))
    )


def _has_words(one: Occurrence, words: Sequence[str]) -> bool:
    text = " ".join((one.job, one.key, one.node or "", one.reason or "", error_text(one.error))).lower()
    raw = f"{text} {one.args} {one.kwargs}".lower()
    # To mask arguments takes long, and what is shown of them has no letters that they have not.
    if not all(core in raw for word in words for core in _LETTERS.findall(word.lower())[:1]):
        return False
    named = {f"{name}={_value(value)}".lower() for name, value in mask_data(one.kwargs).items()}
    shown = " ".join((text, *(_value(value) for value in mask_data(one.args)), *sorted(named))).lower()
    return all(_has_word(word.lower(), shown, named, text) for word in words)


def _value(value: Any) -> str:
    return value if isinstance(value, str) else dumps_masked(value)


def _has_word(word: str, shown: str, named: set[str], text: str) -> bool:
    if "=" in word:
        return word in named or word in text
    if _NUMBER.fullmatch(word):
        return re.search(rf"(?<!\d){word}(?!\d)", shown) is not None
    return word in shown
