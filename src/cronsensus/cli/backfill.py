"""``cronsensus jobs backfill``: run a job for nominal times of the past, after a look at them. Floor 7."""

from __future__ import annotations

import sys
from datetime import datetime, timedelta

import click

from cronsensus.cli.app import opened_store
from cronsensus.cli.clock_changes import zone_of
from cronsensus.cli.errors import FAILED, CommandError
from cronsensus.cli.find import require_job
from cronsensus.cli.group import Command
from cronsensus.cli.options import acting, job_argument
from cronsensus.cli.output import Output, message, word
from cronsensus.cli.words import clean, exact, read_time
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter
from cronsensus.model.states import State
from cronsensus.operations import MOST_BACKFILLED
from cronsensus.stores.base import Store
from cronsensus.triggers import Trigger

_PREVIEWED = 20
_AT_ONCE = 1000


@click.command(cls=Command)
@job_argument
@click.option("--from", "start", required=True, metavar="TIME", help="The first time; included.")
@click.option("--to", "end", default="now", show_default=True, metavar="TIME", help="The last time; included.")
@click.option("--dry-run", is_flag=True, help="Only show which times would run.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@acting()
def backfill(*, job: str, start: str, end: str, dry_run: bool, yes: bool, reason: str, by: str) -> None:
    """Run a job for nominal times of the past that have no active or succeeded run.

    The times are those of the trigger that the job has now. A time without an offset is in the trigger's zone.

    cronsensus jobs backfill send_digest --from 2026-11-01 --to 2026-11-07 --dry-run
    cronsensus jobs backfill send_digest --from 7d --yes --reason "mail server was down"
    """
    output = Output.current()
    with opened_store() as store:
        now = store.now()
        view = require_job(store, job)
        trigger = view.spec.trigger
        if trigger is None:
            raise CommandError(
                f"job {job!r} has no trigger, so it has no nominal times to fill", then=f"cronsensus jobs trigger {job}"
            )
        zone = zone_of(trigger)
        since = read_time(start, now, tz=zone, what="--from")
        until = read_time(end, now, tz=zone, what="--to")
        times = _times(job, trigger, since, until, now)
        standing = _standing(store, job, since, until)
        missing = [time for time in times if time not in standing]
        if dry_run or not output.as_json:
            _preview(output, times, standing, missing, job, dry_run=dry_run)
        if dry_run or not missing:
            if output.as_json and not dry_run:
                output.document({"job": job, "created": [], "unchanged": len(times)})
            return
        if (
            not yes
            and not output.as_json
            and _somebody_is_there()
            and not click.confirm(f"Run {clean(job)} {len(missing)} times?", err=True)
        ):
            raise CommandError("nothing was done", code=FAILED)
        answers = []
        for index in range(0, len(missing), _AT_ONCE):
            answers += store.backfill(job, missing[index : index + _AT_ONCE], by=by, why=reason)
        store.notify()
    created = [one for one in answers if one.created]
    if output.as_json:
        output.document({"job": job, "created": [one.id for one in created], "unchanged": len(times) - len(created)})
        return
    output.line(f"created {len(created)} runs of {job}")
    message(f"watch them: cronsensus runs list --job {job}")


def _somebody_is_there() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _times(job: str, trigger: Trigger, since: datetime, until: datetime, now: datetime) -> list[datetime]:
    if since > until:
        raise CommandError(f"--from {exact(since)} is after --to {exact(until)}", then="write them the other way round")
    if until > now:
        raise CommandError(
            f"--to {exact(until)} lies in the future",
            why="those times will run by themselves",
            then=f"--to {exact(now)}",
        )
    times: list[datetime] = []
    nominal = trigger.next_after(since - timedelta(microseconds=1))
    while nominal is not None and nominal <= until:
        if len(times) == MOST_BACKFILLED:
            raise CommandError(
                f"more than {MOST_BACKFILLED:,} nominal times of {job!r} lie in that stretch",
                then=f"take a part of it: --to {exact(times[-1])}",
            )
        times.append(nominal)
        nominal = trigger.next_after(nominal)
    return times


def _standing(store: Store, job: str, since: datetime, until: datetime) -> dict[datetime, Occurrence]:
    """Return the active and succeeded occurrences by nominal time: the store leaves those alone."""
    states = (State.PENDING, State.RUNNING, State.SUCCEEDED)
    where = OccurrenceFilter(job=job, states=states, scheduled_from=since, scheduled_until=until)
    found: dict[datetime, Occurrence] = {}
    after: int | None = None
    while page := store.occurrences(where, after=after, limit=1000, newest_first=False):
        found |= {one.scheduled_for: one for one in page if one.scheduled_for is not None}
        after = page[-1].id
    return found


def _preview(
    output: Output,
    times: list[datetime],
    standing: dict[datetime, Occurrence],
    missing: list[datetime],
    job: str,
    *,
    dry_run: bool,
) -> None:
    if output.as_json:
        rows = [
            {
                "scheduled_for": time,
                "run": time not in standing,
                "state": standing[time].state if time in standing else None,
            }
            for time in times
        ]
        output.document({"job": job, "dry_run": True, "times": rows})
        return
    shown = times if dry_run else times[:_PREVIEWED]
    output.table(
        ["nominal time", "now", "then"],
        [
            [
                exact(time),
                word(standing[time].state) if time in standing else "no run that is active or succeeded",
                "left alone" if time in standing else "runs",
            ]
            for time in shown
        ],
        empty="no nominal time lies in that stretch",
    )
    if len(times) > len(shown):
        message(f"… and {len(times) - len(shown)} more")
    message(f"{len(missing)} of {len(times)} times {'would run' if dry_run else 'run'}")
