"""The page of metrics, from the store and from the counters of this process."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from cronsensus.errors import CronsensusError, InvalidOption
from cronsensus.metrics.counting import Counting, counting_of, shares_a_folder
from cronsensus.metrics.reading import Reader, Reading, list_series
from cronsensus.process.forking import register_for_forks
from cronsensus.process.logger import Logger
from cronsensus.scheduler import Scheduler
from cronsensus.stores.base import Store
from cronsensus.timing.clock import Clock, SystemClock

READ_EVERY = 2.0
"""Seconds for which a reading of the store is shown again."""
WAIT_SECONDS = 5.0
"""Seconds that a scrape waits for another scrape that reads the store."""
READ_AHEAD = 1.0
"""Seconds before the next scrape at which the store is read for it, where scrapes come at equal intervals."""
SCRAPE_INTERVALS = (4.0, 120.0)
"""Least and most seconds of such an interval."""
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_log = Logger("cronsensus.metrics")


class _Page(NamedTuple):
    """The series of the store, as text, with the reading that they show."""

    read_at: float
    reading: Reading
    text: bytes


class Metrics:
    """A collector for prometheus-client: ``REGISTRY.register(Metrics(scheduler))``; and a page by itself.

    The metrics of the store are read at a scrape, at most every two seconds. If the store cannot be read, those series
    are missing: an old number would look like a current one.
    """

    def __init__(self, source: Scheduler | Store, *, jobs: str | Sequence[str] = ()) -> None:
        """Prepare to read ``source``; for a scheduler, also count events in this process.

        Args:
            source: the Scheduler, or a store, which has no events to count.
            jobs: patterns of the jobs that have series of their own, as ``"billing-*"``; by default all. At most the
                first 1,000 by name have them; runs of others are counted together.

        Raises:
            InvalidOption: something else.
        """
        if not isinstance(source, (Scheduler, Store)):
            raise InvalidOption(f"metrics({source!r}): pass the Scheduler, or an open store")
        patterns = (jobs,) if isinstance(jobs, str) else tuple(jobs)
        self._source = source
        self._counting: Counting | None = counting_of(source, patterns) if isinstance(source, Scheduler) else None
        self._clock: Clock = SystemClock()
        self._patterns = patterns
        register_for_forks(self)
        self.forked()

    def forked(self) -> None:
        """Replace the lock: another thread may have held it."""
        self._lock = threading.Lock()
        self._reader = Reader(self._patterns, self._clock)
        self._page: _Page | None = None
        self._logged_error = ""
        self._scraped_at = self._interval = 0.0

    def page(self) -> bytes:
        """Return everything in Prometheus's text format (``CONTENT_TYPE``)."""
        page = self._read_store()
        self._read_ahead()
        counted = b"" if self._counting is None else _text_of(self._counting.collect())
        return (b"" if page is None else page.text) + counted

    def collect(self) -> Iterator[Metric]:
        """Yield everything as prometheus-client's own values.

        In its multiprocess mode without the counters: its own collector finds those in the folder.
        """
        if (page := self._read_store()) is not None:
            for name, description, label, values in list_series(page.reading):
                family = GaugeMetricFamily(f"cronsensus_{name}", description, labels=[label] if label else [])
                for key, value in values:
                    family.add_metric([key] if label else [], value)
                yield family
        if self._counting is not None and not shares_a_folder():
            yield from self._counting.collect()

    def describe(self) -> Iterable[Metric]:
        """Return nothing, so that registering does not read the store."""
        return ()

    def _read_store(self) -> _Page | None:
        if not self._lock.acquire(timeout=WAIT_SECONDS):
            return None
        try:
            page, now = self._page, self._clock.monotonic()
            if page is None or now - page.read_at >= READ_EVERY:
                store = self._source.store if isinstance(self._source, Scheduler) else self._source
                reading = self._reader.read_store(store)
                page = self._page = _Page(self._clock.monotonic(), reading, _format_text(reading))
        except CronsensusError as error:
            if (error_text := str(error)) != self._logged_error:
                _log.warning("the store cannot be read, so scrapes have no series of jobs and queues: %s", error_text)
            self._logged_error = error_text
            return None
        else:
            self._logged_error = ""
        finally:
            self._lock.release()
        return page

    def _read_ahead(self) -> None:
        """Read the store in advance for a scraper that comes at equal intervals, as Prometheus does.

        So a scrape does not wait for the store, which is read no more often than before.
        """
        now, before = self._clock.monotonic(), self._interval
        self._interval, self._scraped_at = now - self._scraped_at, now
        if SCRAPE_INTERVALS[0] <= self._interval <= SCRAPE_INTERVALS[1] and abs(self._interval - before) < READ_AHEAD:
            ahead = threading.Timer(self._interval - READ_AHEAD, self._read_store)
            ahead.daemon = True
            with suppress(RuntimeError):  # the interpreter is at its end, or no more threads can be had
                ahead.start()


# The text is written by hand: it is simple, and the library takes three times as long for thousands of series.


def _text_of(families: Iterable[Metric]) -> bytes:
    lines: list[str] = []
    for family in families:
        name = family.name + ("_total" if family.type == "counter" else "")
        lines += f"# HELP {name} {family.documentation}", f"# TYPE {name} {family.type}"
        for sample in family.samples:
            name, of, value, *_ = sample
            labels = ",".join([f'{label}="{_escape_text(text)}"' for label, text in of.items()])
            lines.append(f"{name}{{{labels}}} {value!r}" if labels else f"{name} {value!r}")
    return ("\n".join(lines) + "\n").encode()


def _format_text(reading: Reading) -> bytes:
    lines: list[str] = []
    for name, description, label, values in list_series(reading):
        lines += f"# HELP cronsensus_{name} {description}", f"# TYPE cronsensus_{name} gauge"
        begin = f"cronsensus_{name}" + (f'{{{label}="' if label else "")
        lines += [
            f'{begin}{_escape_text(key)}"}} {value!r}' if label else f"{begin} {value!r}" for key, value in values
        ]
    return ("\n".join(lines) + "\n").encode()


def _escape_text(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
