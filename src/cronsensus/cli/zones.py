"""The zone in which a command shows times, and reads times that are typed without an offset.

Times of a job are in the zone of its schedule. Other times, and those of a job whose schedule has no zone, are in the
setting ``tz``. So all commands show the same time in the same way. JSON is in UTC.
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

_PAGE_FROM = 3
"""The first jobs are read one by one. With this one a whole page is read, because more will probably follow."""
_PAGE = 1000


def default_zone() -> tzinfo:
    """Return the zone of the setting ``tz``; of the application's, once it was loaded."""
    scheduler = Invocation.current().scheduler
    return load_zone((read_settings() if scheduler is None else scheduler.settings).tz)


class JobZones:
    """The zones of jobs by name. Each job is read once, and many in one call, because the store may be far away."""

    def __init__(self, store: Store) -> None:
        """Read jobs from ``store``."""
        self._store = store
        self._default = default_zone()
        self._known: dict[str, tzinfo] = {}
        self._read_count = 0

    def find_zone(self, job: str) -> tzinfo:
        """Return the zone of a job; if it is missing or cannot be read, the setting's."""
        if job not in self._known:
            self._read_count += 1
            if self._read_count == _PAGE_FROM:
                self._add_jobs(*self._store.jobs(limit=_PAGE, retired=True))
        if job not in self._known:
            self._known[job] = self._default
            with suppress(StoreCorrupt):
                self._add_jobs(*filter(None, [self._store.job(job)]))
        return self._known[job]

    def _add_jobs(self, *views: JobView) -> None:
        self._known.update({view.spec.name: zone_of(view.spec.trigger, self._default) for view in views})

    def read_since(self, text: str, job: str | None, *, what: str = "--since") -> datetime:
        """Return the instant that was typed as ``what``, in the zone of the named job, if there is one.

        Raises:
            InvalidOption: it is no time.
        """
        zone = self._default if job is None else self.find_zone(job)
        return read_time(text, self._store.now(), tz=zone, what=what)
