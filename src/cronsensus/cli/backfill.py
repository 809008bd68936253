"""``cronsensus jobs backfill``: run a job for nominal times of the past, after a look at them."""

from __future__ import annotations

import sys
from datetime import datetime

import click

from cronsensus.acting import MOST_AT_ONCE
from cronsensus.cli.app import opened_store
from cronsensus.cli.errors import FAILED, CommandError
from cronsensus.cli.group import Command
from cronsensus.cli.options import acting, job_argument
from cronsensus.cli.output import Output, message, word
from cronsensus.cli.terminal import clean
from cronsensus.errors import OccurrenceTooOld
from cronsensus.insight.clock_changes import zone_of
from cronsensus.insight.lookup import require_job
from cronsensus.insight.words import counted, exact, read_time
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter
from cronsensus.model.states import State
from cronsensus.operations import nominal_times
from cronsensus.stores.base import Store
from cronsensus.stores.pages import every_occurrence
from cronsensus.triggers import Trigger

_PREVIEWED = 20


@click.command(cls=Command)
@job_argument
@click.option("--from", "start", required=True, metavar="TIME", help="The first time; included.")
@click.option("--to", "end", default="now", show_default=True, metavar="TIME", help="The last time; included.")
@click.option("--dry-run", is_flag=True, help="Only show which times would run.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@acting()
def backfill(*, job: str, start: str, end: str, dry_run: bool, yes: bool, reason: str, by: str) -> None:
    """Run a job for nominal times of the past that have no active or succeeded run.

    The times are those of the trigger that the job has now. A time without an offset is in the trigger's zone. While
    the runs go on, a job with overlap=skip skips the times of its schedule. Asks first; without a terminal it needs
    --yes.

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
        pruned = {time for time in missing if view.horizon is not None and time <= view.horizon}
        if dry_run or not output.as_json:
            _preview(output, times, standing, pruned, job, dry_run=dry_run)
        if pruned and not dry_run:
            possible = next((f"; --from '{exact(time)}'" for time in missing if time not in pruned), "")
            raise OccurrenceTooOld(
                f"{len(pruned)} of these times lie at or below {exact(max(pruned))}, up to which runs may have been "
                f"pruned, so it cannot be proved that they never ran{possible}"
            )
        if missing and not output.as_json and view.spec.policies.overlap == "skip":
            message("while these run, times of its schedule are skipped (overlap=skip)")
        if dry_run or not missing:
            if output.as_json and not dry_run:
                output.document({"job": job, "created": [], "unchanged": len(times)})
            return
        if not yes:
            _ask(f"Run {clean(job)} {counted(len(missing), 'time')}?")
        answers = []
        for index in range(0, len(missing), MOST_AT_ONCE):
            answers += store.backfill(job, missing[index : index + MOST_AT_ONCE], by=by, why=reason)
        store.notify()
    created = [one for one in answers if one.created]
    if output.printed_json(
        {"job": job, "created": [one.id for one in created], "unchanged": len(times) - len(created)}
    ):
        return
    output.line(f"created {counted(len(created), 'run')} of {job}")
    message(f"watch them: cronsensus runs list --job {job}")


def _ask(question: str) -> None:
    """Return if somebody says yes.

    Raises:
        CommandError: the answer was no, or there is no terminal to ask on.
    """
    if not _somebody_is_there():
        raise CommandError(
            "nothing was done",
            why="there is no terminal on which to ask whether these should run",
            then="the same with --yes; or with --dry-run to see them",
        )
    if not click.confirm(question, err=True):
        raise CommandError("nothing was done", code=FAILED)


def _somebody_is_there() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _times(job: str, trigger: Trigger, since: datetime, until: datetime, now: datetime) -> list[datetime]:
    if since > until:
        raise CommandError(f"--from {exact(since)} is after --to {exact(until)}", then="write them the other way round")
    if until > now:
        raise CommandError(
            f"--to {exact(until)} lies in the future",
            why="those times will run by themselves",
            then=f"--to {exact(now)}",
        )
    return nominal_times(job, trigger, since, until)


def _standing(store: Store, job: str, since: datetime, until: datetime) -> dict[datetime, Occurrence]:
    """Return the active and succeeded occurrences by nominal time: the store leaves those alone."""
    states = (State.PENDING, State.RUNNING, State.SUCCEEDED)
    where = OccurrenceFilter(job=job, states=states, scheduled_from=since, scheduled_until=until)
    return {one.scheduled_for: one for one in every_occurrence(store, where) if one.scheduled_for is not None}


def _preview(
    output: Output,
    times: list[datetime],
    standing: dict[datetime, Occurrence],
    pruned: set[datetime],
    job: str,
    *,
    dry_run: bool,
) -> None:
    if output.as_json:
        rows = [
            {
                "scheduled_for": time,
                "run": time not in standing and time not in pruned,
                "state": standing[time].state if time in standing else None,
                "pruned": time in pruned,
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
                word(standing[time].state)
                if time in standing
                else "may have been pruned"
                if time in pruned
                else "no run that is active or succeeded",
                "left alone" if time in standing else "refused" if time in pruned else "would run",
            ]
            for time in shown
        ],
        empty="no nominal time lies in that stretch",
    )
    if len(times) > len(shown):
        message(f"… and {len(times) - len(shown)} more")
    message(f"{len(times) - len(standing) - len(pruned)} of {counted(len(times), 'time')} would run")
