"""The index for a search over all jobs: their names and texts, kept in the process for some seconds.

Reading ten thousand definitions takes most of a second, which is too long for a page. So the texts are kept, and read
anew in the background. The jobs that are found are read from the store each time: a page shows no outdated job.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from cronsensus.errors import CronsensusError
from cronsensus.model.job import JobView, is_internal
from cronsensus.stores.base import Store
from cronsensus.timing.clock import Clock, SystemClock

MOST_KEPT = 20_000
"""Jobs whose texts are kept, the first by name."""
_JOBS_AT_ONCE = 50
_PAUSE_FACTOR = 4.0
"""The pause after each part of reading anew, in times of its work, so that pages are slowed by a fifth at most."""
_KEPT_SECONDS = 10.0
_LEAST_TIMES_OF_WORK = 20
"""Reading anew takes at most a part in so many of the time, however many jobs there are."""
_MOST_ACTS = 200
_CHANGING_ACTS = {"pause", "resume", "define"}
_NEIGHBOURS_FOR_ONE = 3
"""Reading so many neighbouring jobs costs less than reading a job by its name."""


@dataclass(frozen=True, slots=True)
class _Text:
    name: str
    text: str
    paused: bool


@dataclass(frozen=True, slots=True)
class _Kept:
    """Texts by name; ``end``: the last name that is kept, if there are more jobs."""

    texts: tuple[_Text, ...]
    last_name: str | None
    read_at: datetime
    read_anew_at: float


def _name_of(entry: _Text) -> str:
    return entry.name


def text_of(view: JobView) -> str:
    """Return what a search looks through: name, function, and schedule in words."""
    trigger = view.spec.trigger
    return f"{view.spec.name} {view.spec.function} {trigger.describe() if trigger else ''}".lower()


class JobIndex:
    """Finds names of jobs by words. Safe to share between threads."""

    def __init__(self, clock: Clock | None = None) -> None:
        """Start empty: nothing is read before the first search."""
        self._clock = clock or SystemClock()
        self._kept: _Kept | None = None
        self._first = threading.Lock()
        self._anew = threading.Lock()

    def find_names(
        self, store: Store, words: Sequence[str], *, paused: bool = False, after: str = "", limit: int
    ) -> tuple[list[str], str | None]:
        """Return names of jobs that may match, in order, and the name after which others may match.

        Args:
            store: has the jobs.
            words: in lower case; the text of a job has each of them.
            paused: only paused jobs.
            after: the name after which the others come.
            limit: how many.
        """
        kept = self._current(store)
        if kept.last_name is not None and after >= kept.last_name:
            beyond = [view.spec.name for view in store.jobs(after=after, limit=limit)]
            return beyond, beyond[-1] if len(beyond) == limit else None
        names = {
            entry.name
            for entry in kept.texts[bisect_right(kept.texts, after, key=_name_of) :]
            if (entry.paused or not paused) and all(word in entry.text for word in words)
        }
        # People look for a job right after they have paused it, here or by the command line.
        acts = store.trail(limit=_MOST_ACTS)
        acts = [act for act in acts if act.action in _CHANGING_ACTS and act.at >= kept.read_at]
        names |= {act.target for act in acts if act.target > after}
        ordered = sorted(names)
        return ordered[:limit], ordered[limit - 1] if len(ordered) > limit else kept.last_name

    def read_views(self, store: Store, names: Sequence[str]) -> list[JobView]:
        """Return the jobs of these names as they are now; neighbours are read together."""
        kept = self._kept
        if kept is None or not names:
            return []
        begin, end = (bisect_left(kept.texts, name, key=_name_of) for name in (names[0], names[-1]))
        if begin > 0 and end - begin < _NEIGHBOURS_FOR_ONE * len(names):
            named = set(names)
            neighbours = store.jobs(after=kept.texts[begin - 1].name, limit=end - begin + 1)
            views = [view for view in neighbours if view.spec.name in named]
            if len(views) == len(names):
                return views
        return [view for name in names if (view := store.job(name)) is not None]

    def _current(self, store: Store) -> _Kept:
        with self._first:
            if self._kept is None:
                self._kept = self._read(store, 0.0)
            kept = self._kept
        if self._clock.monotonic() >= kept.read_anew_at and self._anew.acquire(blocking=False):
            threading.Thread(target=self._read_anew, args=(store,), name="cronsensus-search", daemon=True).start()
        return kept

    def _read_anew(self, store: Store) -> None:
        try:
            self._kept = self._read(store, _PAUSE_FACTOR)
        except CronsensusError:
            pass  # The next page shows why: its own reads fail as well.
        finally:
            self._anew.release()

    def _read(self, store: Store, pause_factor: float) -> _Kept:
        """Return the texts of all jobs; ``pause_factor``: how long to pause after each part, in times of its work."""
        read_at, worked = store.now(), 0.0
        texts: list[_Text] = []
        position = ""
        while len(texts) < MOST_KEPT:
            began = self._clock.monotonic()
            views = store.jobs(after=position, limit=_JOBS_AT_ONCE)
            texts += [
                _Text(view.spec.name, text_of(view), view.paused_at is not None)
                for view in views
                if not is_internal(view.spec.name)
            ]
            seconds = self._clock.monotonic() - began
            worked += seconds
            if len(views) < _JOBS_AT_ONCE:
                break
            position = views[-1].spec.name
            # Pages are made meanwhile, by the same interpreter.
            threading.Event().wait(seconds * pause_factor)
        end = texts[-1].name if len(texts) >= MOST_KEPT else None
        return _Kept(
            tuple(texts), end, read_at, self._clock.monotonic() + max(_KEPT_SECONDS, _LEAST_TIMES_OF_WORK * worked)
        )
