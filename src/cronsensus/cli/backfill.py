"""``cronsensus jobs backfill``: run a job for nominal times of the past, after a look at them."""

from __future__ import annotations

from collections.abc import Mapping

import click

from cronsensus.after.downstream import Downstream
from cronsensus.after.downstream import list_downstream as downstream_of
from cronsensus.cli.app import opened_store
from cronsensus.cli.asking import confirm_act
from cronsensus.cli.group import Command
from cronsensus.cli.options import add_operator_options, job_argument
from cronsensus.cli.output import Output, print_message, style_state
from cronsensus.cli.terminal import clean_text
from cronsensus.cli.zones import default_zone
from cronsensus.insight.backfill_plan import BackfillPlan, plan_backfill
from cronsensus.insight.clock_changes import zone_of
from cronsensus.insight.lookup import require_job
from cronsensus.insight.time_words import exact_time, format_count, read_time
from cronsensus.jobs.acting import MOST_AT_ONCE
from cronsensus.model.occurrence import Enqueued
from cronsensus.stores.pages import every_edge, rules_of

_MOST_PREVIEWED = 20


@click.command(cls=Command)
@job_argument
@click.option("--from", "start", required=True, metavar="TIME", help="The first time; included.")
@click.option("--to", "end", default="now", show_default=True, metavar="TIME", help="The last time; included.")
@click.option("--dry-run", is_flag=True, help="Only show which times would run.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--downstream", is_flag=True, help="And after it the jobs that come after it, for the same times.")
@add_operator_options()
def backfill(
    *, job: str, start: str, end: str, dry_run: bool, yes: bool, downstream: bool, reason: str, by: str
) -> None:
    """Run a job for nominal times of the past that have no active or succeeded run.

    The times are those of the trigger that the job has now. A time without an offset is in the trigger's zone. While
    the runs go on, a job with overlap=skip skips the times of its schedule. Asks first; without a terminal it needs
    --yes. With --downstream it does the same for each job that comes after it.

    cronsensus jobs backfill extract --from 2d --downstream --dry-run
    cronsensus jobs backfill send_digest --from 2026-11-01 --to 2026-11-07 --dry-run
    cronsensus jobs backfill send_digest --from 7d --yes --reason "mail server was down"
    """
    output = Output.current()
    with opened_store() as store:
        dependents = downstream_of(rules_of(every_edge(store)), job) if downstream else Downstream((), ())
        for left_out in dependents.others:
            print_message(f"{left_out} is left alone: it comes after other times of these")
        now = store.now()
        plans: dict[str, BackfillPlan] = {}
        skips = False
        for name in (job, *dependents.jobs):
            view = require_job(store, name)
            zone = zone_of(view.spec.trigger, default_zone())
            since = read_time(start, now, tz=zone, what="--from")
            until = read_time(end, now, tz=zone, what="--to")
            plan = plans[name] = plan_backfill(store, view, since, until, now, zone=zone)
            skips = skips or (bool(plan.missing) and view.spec.policies.overlap == "skip")
        _preview(output, plans, dry_run=dry_run)
        for plan in () if dry_run else plans.values():
            plan.require_provable()
        if skips and not output.as_json:
            print_message("while these run, times of its schedule are skipped (overlap=skip)")
        count = sum(len(plan.missing) for plan in plans.values())
        if dry_run or not count:
            if output.as_json and not dry_run:
                _print_created(output, plans, {})
            return
        if not yes:
            jobs_text = clean_text(job) + (
                f" and {format_count(len(plans) - 1, 'job')} after it" if dependents.jobs else ""
            )
            confirm_act(f"Run {jobs_text} {format_count(count, 'time')}?")
        created: dict[str, list[Enqueued]] = {}
        for name, plan in plans.items():  # upstream first: the gate of what comes after it finds it active
            missing = plan.missing
            for index in range(0, len(missing), MOST_AT_ONCE):
                answers = store.backfill(name, missing[index : index + MOST_AT_ONCE], by=by, why=reason)
                created.setdefault(name, []).extend(run for run in answers if run.created)
        store.notify()
    _print_created(output, plans, created)


def _print_created(output: Output, plans: Mapping[str, BackfillPlan], created: Mapping[str, list[Enqueued]]) -> None:
    rows = [
        {
            "job": name,
            "created": [run.id for run in created.get(name, ())],
            "unchanged": len(plan.times) - len(created.get(name, ())),
        }
        for name, plan in plans.items()
    ]
    if output.printed_json(rows[0] | ({"downstream": rows[1:]} if rows[1:] else {})):
        return
    for name in plans:
        output.line(f"created {format_count(len(created.get(name, ())), 'run')} of {name}")
    print_message(f"watch them: cronsensus runs list --job {next(iter(plans))}")


def _preview(output: Output, plans: Mapping[str, BackfillPlan], *, dry_run: bool) -> None:
    if output.as_json:
        if dry_run:
            rows = [{"job": name, "dry_run": True, "times": _times(plan)} for name, plan in plans.items()]
            output.document(rows[0] | ({"downstream": rows[1:]} if rows[1:] else {}))
        return
    for name, plan in plans.items():
        if len(plans) > 1:
            output.heading(name)
        _preview_one(output, plan, dry_run=dry_run)


def _times(plan: BackfillPlan) -> list[dict[str, object]]:
    return [
        {
            "scheduled_for": time,
            "run": time not in plan.standing and time not in plan.pruned,
            "state": plan.standing[time].state if time in plan.standing else None,
            "pruned": time in plan.pruned,
        }
        for time in plan.times
    ]


def _preview_one(output: Output, plan: BackfillPlan, *, dry_run: bool) -> None:
    times, standing, pruned = plan.times, plan.standing, plan.pruned
    shown = times if dry_run else times[:_MOST_PREVIEWED]
    output.table(
        ["nominal time", "now", "then"],
        [
            [
                exact_time(time, plan.zone),
                style_state(standing[time].state)
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
        print_message(f"… and {len(times) - len(shown)} more")
    print_message(f"{len(times) - len(standing) - len(pruned)} of {format_count(len(times), 'time')} would run")
