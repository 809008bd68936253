"""``cronsensus jobs backfill``: run a job for nominal times of the past, after a look at them."""

from __future__ import annotations

import click

from cronsensus.acting import MOST_AT_ONCE
from cronsensus.cli.app import opened_store
from cronsensus.cli.asking import ask
from cronsensus.cli.group import Command
from cronsensus.cli.options import acting, job_argument
from cronsensus.cli.output import Output, message, word
from cronsensus.cli.terminal import clean
from cronsensus.insight.backfill_plan import BackfillPlan, plan_backfill
from cronsensus.insight.clock_changes import zone_of
from cronsensus.insight.lookup import require_job
from cronsensus.insight.words import counted, exact, read_time

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
        zone = zone_of(view.spec.trigger)
        since = read_time(start, now, tz=zone, what="--from")
        until = read_time(end, now, tz=zone, what="--to")
        plan = plan_backfill(store, view, since, until, now)
        missing = plan.missing
        if dry_run or not output.as_json:
            _preview(output, plan, job, dry_run=dry_run)
        if not dry_run:
            plan.require_provable()
        if missing and not output.as_json and view.spec.policies.overlap == "skip":
            message("while these run, times of its schedule are skipped (overlap=skip)")
        if dry_run or not missing:
            if output.as_json and not dry_run:
                output.document({"job": job, "created": [], "unchanged": len(plan.times)})
            return
        if not yes:
            ask(f"Run {clean(job)} {counted(len(missing), 'time')}?")
        answers = []
        for index in range(0, len(missing), MOST_AT_ONCE):
            answers += store.backfill(job, missing[index : index + MOST_AT_ONCE], by=by, why=reason)
        store.notify()
    created = [one for one in answers if one.created]
    if output.printed_json(
        {"job": job, "created": [one.id for one in created], "unchanged": len(plan.times) - len(created)}
    ):
        return
    output.line(f"created {counted(len(created), 'run')} of {job}")
    message(f"watch them: cronsensus runs list --job {job}")


def _preview(output: Output, plan: BackfillPlan, job: str, *, dry_run: bool) -> None:
    times, standing, pruned = plan.times, plan.standing, plan.pruned
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
