"""Plan a backfill: the nominal times that it would run, and those that it leaves alone."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo

from cronsensus.errors import InvalidOption, OccurrenceTooOld
from cronsensus.insight.clock_changes import zone_of
from cronsensus.insight.time_words import exact_time, typed_time
from cronsensus.jobs.operations import nominal_times
from cronsensus.model.job import JobView, refuse_run_by_hand
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter
from cronsensus.model.states import State
from cronsensus.stores.base import Store
from cronsensus.stores.pages import every_occurrence


@dataclass(frozen=True, slots=True)
class BackfillPlan:
    """The nominal times of a stretch.

    Attributes:
        times: all of them, in order.
        standing: the times with an active or a succeeded occurrence, which the store leaves alone.
        pruned: the times that may have run and been pruned.
        zone: the zone of times in messages and previews.
    """

    times: list[datetime]
    standing: dict[datetime, Occurrence]
    pruned: set[datetime]
    zone: tzinfo

    @property
    def missing(self) -> list[datetime]:
        """Return the times that have no active or succeeded occurrence."""
        return [time for time in self.times if time not in self.standing]

    def require_provable(self) -> None:
        """Raise if a time may have run and have been pruned since.

        Raises:
            OccurrenceTooOld: such a time may have run.
        """
        if self.pruned:
            possible = next(
                (f"; --from '{typed_time(time, self.zone)}'" for time in self.missing if time not in self.pruned), ""
            )
            raise OccurrenceTooOld(
                f"{len(self.pruned)} of these times lie at or below "
                f"{exact_time(max(self.pruned), self.zone)}, up to which "
                f"runs may have been pruned, so it cannot be proved that they never ran{possible}"
            )


def plan_backfill(
    store: Store, view: JobView, since: datetime, until: datetime, now: datetime, *, zone: tzinfo = UTC
) -> BackfillPlan:
    """Return the plan of a backfill from ``since`` to ``until``, both included, of a job that has a trigger.

    Times are in the zone of its schedule, else in ``zone``.

    Raises:
        InvalidOption: the stretch is the wrong way round, reaches into the future, or holds too many times.
    """
    job, trigger = view.spec.name, view.spec.trigger
    shown_zone = zone_of(trigger, zone)
    refuse_run_by_hand(view.spec)
    if trigger is None:
        raise InvalidOption(
            f"job {job!r} has no trigger, so it has no nominal times to fill; cronsensus jobs trigger {job}"
        )
    if since > until:
        raise InvalidOption(
            f"--from {exact_time(since, shown_zone)} is after --to {exact_time(until, shown_zone)}; write them "
            f"the other way round"
        )
    if until > now:
        raise InvalidOption(
            f"--to {exact_time(until, shown_zone)} lies in the future, and those times will run by themselves; --to now"
        )
    times = nominal_times(job, trigger, since, until)
    states = (State.PENDING, State.RUNNING, State.SUCCEEDED)
    with_run = OccurrenceFilter(job=job, states=states, scheduled_from=since, scheduled_until=until)
    standing = {
        occurrence.scheduled_for: occurrence
        for occurrence in every_occurrence(store, with_run)
        if occurrence.scheduled_for is not None
    }
    pruned = {time for time in times if time not in standing and view.horizon is not None and time <= view.horizon}
    return BackfillPlan(times, standing, pruned, shown_zone)
