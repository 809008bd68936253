"""Find jobs that wait longer than by their triggers, mostly because the store's clock was set back.

Times that were decided while the clock was ahead stay decided, so such a job fires next after its watermark.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice

from cronsensus.insight.clock_changes import zone_of
from cronsensus.insight.sentences import Clause, Sentence, distance_text
from cronsensus.model.job import JobView
from cronsensus.model.rewind import AHEAD
from cronsensus.stores.base import Store
from cronsensus.stores.pages import every_job

MOST_READ = 1000


@dataclass(frozen=True, slots=True)
class Standstill:
    """A job whose next time comes later than by its trigger.

    Attributes:
        until: its next due time in the store.
        expected: when its trigger would fire next, counted from the store's now.
        ahead: how far its watermark is ahead of the store's clock; zero: it is not.
        zone: the zone of times in the sentence.
    """

    view: JobView
    now: datetime
    until: datetime
    expected: datetime
    ahead: timedelta
    zone: tzinfo

    @property
    def is_by_zone_rules(self) -> bool:
        """Whether the stored time may be by other zone rules: then a node that declares the job corrects it."""
        trigger = self.view.spec.trigger
        return not self.ahead and trigger is not None and bool(trigger.zones)

    @property
    def cause(self) -> Sentence:
        """Return why, as half a sentence."""
        if self.ahead:
            return Clause.WATERMARK_AHEAD(ahead=self.ahead)
        return Clause.LATER_THAN_TRIGGER(when=distance_text(self.expected, self.now))

    @property
    def sentence(self) -> Sentence:
        """The job, until when it stands still, and why, without a full stop."""
        until, when = self.until.astimezone(self.zone), distance_text(self.until, self.now)
        return Clause.STANDS_STILL(job=self.view.spec.name, until=until, when=when, why=self.cause)


def find_standstill(view: JobView, now: datetime, zone: tzinfo = UTC) -> Standstill | None:
    """Return the standstill of a job; ``None``: it waits no longer than by its trigger, is paused, or is over.

    Args:
        view: the job.
        now: the store's clock.
        zone: that of times, if its schedule has none.
    """
    trigger = view.spec.trigger
    if trigger is None or view.next_due is None or view.paused_at is not None or view.retired_at is not None:
        return None
    ahead = view.watermark - now
    expected = trigger.next_after(now if ahead > AHEAD else max(now, view.watermark))
    if expected is None or expected >= view.next_due or view.next_due - now <= AHEAD:
        return None
    return Standstill(
        view, now, view.next_due, expected, ahead if ahead > AHEAD else timedelta(0), zone_of(trigger, zone)
    )


def every_standstill(store: Store, zone: tzinfo = UTC) -> Iterator[Standstill]:
    """Yield the jobs that stand still, by name; of the first ``MOST_READ`` jobs."""
    now = store.now()
    for view in islice(every_job(store), MOST_READ):
        if (standstill := find_standstill(view, now, zone)) is not None:
            yield standstill
