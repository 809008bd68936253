"""In which zone a command shows times, and reads those that are typed without an offset.

What belongs to a job is in the zone of its schedule. What belongs to none, and a job whose schedule has none, are in
the setting ``tz``. So the same night reads alike in every command. JSON is in UTC.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, tzinfo

from cronsensus.cli.app import read_settings
from cronsensus.cli.group import Invocation
from cronsensus.errors import StoreCorrupt
from cronsensus.insight.clock_changes import zone_of
from cronsensus.insight.time_words import read_time
from cronsensus.model.job import JobView
from cronsensus.stores.base import Store
from cronsensus.triggers.zones import load_zone

_TOGETHER = 3
"""The first jobs are read one by one. From this number on a whole page is read, because more will come."""
_PAGE = 1000


def default_zone() -> tzinfo:
    """Return the zone of the setting ``tz``; of the application's, once it was loaded."""
    scheduler = Invocation.current().scheduler
    return load_zone((read_settings() if scheduler is None else scheduler.settings).tz)


class JobZones:
    """The zones of jobs by name, each asked of the store once; of many together, for the store may be far."""

    def __init__(self, store: Store) -> None:
        """Ask ``store`` for jobs."""
        self._store = store
        self._default = default_zone()
        self._known: dict[str, tzinfo] = {}
        self._asked = 0

    def find_zone(self, job: str) -> tzinfo:
        """Return the zone of a job; if it is missing or cannot be read, the setting's."""
        if job not in self._known:
            self._asked += 1
            if self._asked == _TOGETHER:
                self._note(*self._store.jobs(limit=_PAGE, retired=True))
        if job not in self._known:
            self._known[job] = self._default
            with suppress(StoreCorrupt):
                self._note(*filter(None, [self._store.job(job)]))
        return self._known[job]

    def _note(self, *views: JobView) -> None:
        self._known.update({view.spec.name: zone_of(view.spec.trigger, self._default) for view in views})

    def read_since(self, text: str, job: str | None, *, what: str = "--since") -> datetime:
        """Return the instant that was typed as ``what``, in the zone of the named job, if there is one.

        Raises:
            InvalidOption: it is no time.
        """
        zone = self._default if job is None else self.find_zone(job)
        return read_time(text, self._store.now(), tz=zone, what=what)
