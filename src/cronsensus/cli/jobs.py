"""``cronsensus jobs``: list, show and control jobs."""

from __future__ import annotations

from datetime import datetime, tzinfo
from itertools import islice
from typing import Any

import click

from cronsensus.after.downstream import list_names_after, plan_trigger
from cronsensus.batching.batch import Batch
from cronsensus.cli.app import code_at_hand, complete_job, opened_store
from cronsensus.cli.backfill import backfill
from cronsensus.cli.enqueue import enqueue
from cronsensus.cli.errors import FAILED, OK
from cronsensus.cli.group import Group, Invocation
from cronsensus.cli.next import print_times, times_data
from cronsensus.cli.options import add_limit_option, add_operator_options, job_argument, job_arguments, watchable
from cronsensus.cli.output import Cell, Output, print_message, style_state
from cronsensus.cli.terminal import clean_text
from cronsensus.cli.zones import JobZones, default_zone
from cronsensus.errors import InvalidTransition
from cronsensus.insight.as_data import job_data, made_data, occurrence_data, trail_data
from cronsensus.insight.clock_changes import zone_of
from cronsensus.insight.definition_words import act_reason
from cronsensus.insight.live_nodes import describe_missing_node, live_nodes
from cronsensus.insight.lookup import require_job
from cronsensus.insight.next_times import next_times
from cronsensus.insight.standstill import every_standstill
from cronsensus.insight.successes import newest_whole
from cronsensus.insight.summaries import job_next, job_state, run_result, took, what_for
from cronsensus.insight.time_words import exact_time, format_count, relative_time, shorten
from cronsensus.jobs.handle import Handle
from cronsensus.jobs.rewinding import rewind_job
from cronsensus.model.job import JobView, Policies, is_internal, refuse_run_by_hand
from cronsensus.model.occurrence import Enqueued, Occurrence
from cronsensus.model.rewind import Rewind
from cronsensus.model.states import State
from cronsensus.payload.codec import dumps_masked
from cronsensus.security.masking import mask_data
from cronsensus.stores.base import Store
from cronsensus.stores.pages import every_edge, every_job, rules_of

_MOST_LATEST = 20
"""How many of the newest ended occurrences are read to find the one that ended last."""
_LONGEST_RESULT = 60
FINAL_STATES = tuple(state for state in State if state.final)


@click.group(cls=Group)
def jobs() -> None:
    """List, show, pause, resume, rewind, trigger, enqueue and backfill jobs.

    cronsensus jobs list
    cronsensus jobs pause send_digest --reason "mail server is down"
    """


jobs.add_command(backfill)
jobs.add_command(enqueue)


@jobs.command("list")
@click.argument("text", required=False, metavar="[TEXT]")
@click.option("--paused", is_flag=True, help="Only paused jobs.")
@click.option("--retired", is_flag=True, help="Retired jobs too.")
@click.option("--all", "guarded", is_flag=True, help="Guarded functions too: what once, once_per and startup keep.")
@click.option("--after", default="", metavar="NAME", help="Begin after this name: the next page.")
@add_limit_option()
@watchable
def list_(*, text: str | None, paused: bool, retired: bool, guarded: bool, after: str, limit: int, watch: bool) -> None:
    """List jobs: in words, when next, how the last one ended, whether paused and why.

    TEXT shows only names that contain it.

    cronsensus jobs list
    cronsensus jobs list invoice --paused
    cronsensus jobs list --all
    """
    output = Output.current()
    hidden: set[str] = set()

    def wanted(view: JobView) -> bool:
        if (paused and view.paused_at is None) or (text or "").lower() not in view.spec.name.lower():
            return False
        if is_internal(view.spec.name) and not guarded:
            return False
        if view.spec.guarded and not guarded:
            hidden.add(view.spec.name)
            return False
        return True

    with opened_store() as store:

        def draw() -> None:
            views = list(islice(filter(wanted, every_job(store, after=after, retired=retired)), limit + 1))
            last_name = views[limit - 1].spec.name if len(views) > limit else None
            _print_jobs(output, store, views[:limit], last_name, hidden)

        output.show_live(store, draw, again=watch)


def _print_jobs(output: Output, store: Store, views: list[JobView], after: str | None, hidden: set[str]) -> None:
    """Print jobs; ``after``: the last name, if there are more."""
    now, zone = store.now(), default_zone()
    rows = []
    for view in views:
        # The newest are those created last. A delayed or retried occurrence may have ended after them.
        ended = newest_whole(store, view.spec.name, states=FINAL_STATES, limit=_MOST_LATEST)
        rows.append(
            (view, max(ended, key=lambda occurrence: occurrence.finished_at or occurrence.created_at, default=None))
        )
    if output.printed_json({"jobs": [job_data(view, last_run) for view, last_run in rows], "after": after}):
        return
    output.table(
        ["job", "schedule", "next", "at", "last result", "state"],
        [
            [
                Cell(view.spec.name, "bold"),
                _schedule(view),
                *job_next(view, now, zone),
                _last_result(last_run, now),
                _state(view, zone),
            ]
            for view, last_run in rows
        ],
        empty="there is none; nodes put the jobs that their code declares here: cronsensus run MODULE:ATTR",
        prose=("job", "schedule", "last result", "state"),
        spare=("at", "schedule"),
    )
    if after is not None:
        print_message(f"there are more: cronsensus jobs list --after '{clean_text(after)}'")
    if hidden:
        print_message(
            f"{format_count(len(hidden), 'guarded function')} not shown; see them: cronsensus jobs list --all"
        )
    if any(not view.spec.guarded and view.spec.keeper is None for view in views) and not live_nodes(store):
        print_message("no node is alive, so nothing runs; start one: cronsensus run MODULE:ATTR")


def _schedule(view: JobView) -> str:
    """Return the schedule in words; of a job whose times another program names, that program."""
    if view.spec.keeper is not None:
        return f"kept by {view.spec.keeper}"
    return "-" if view.spec.trigger is None else shorten(view.spec.trigger.describe(), 80)


def _state(view: JobView, zone: tzinfo) -> Cell:
    state = job_state(view, zone)
    return Cell(state.text, style_state(state.state).style)


def _follow(run: Enqueued | Handle) -> str:
    code = Invocation.current().scheduler
    function = None if code is None else code.declared.function_of(run.job)
    is_batch = function is not None and function.registered.part_of(Batch) is not None
    return f"cronsensus runs {'watch' if is_batch else 'logs -f'} {run.id}"


def _last_result(last_run: Occurrence | None, now: datetime) -> Cell:
    return (
        Cell("")
        if last_run is None
        else Cell(shorten(run_result(last_run, now), _LONGEST_RESULT), style_state(last_run.state).style)
    )


@jobs.command()
@job_argument
def show(job: str) -> None:
    """Show one job: its definition, its next times, its last runs, and what operators did to it.

    cronsensus jobs show send_digest
    """
    output = Output.current()
    with opened_store() as store:
        now = store.now()
        view = require_job(store, job)
        recent = newest_whole(store, job, limit=10)
        acts = store.trail(target=job, limit=10)
    trigger, zone = view.spec.trigger, zone_of(view.spec.trigger, default_zone())
    alive = trigger is not None and view.retired_at is None
    times = next_times(trigger, now, 5, zone) if alive and trigger is not None else []
    if output.printed_json(
        {
            **job_data(view),
            "args": mask_data(view.spec.args),
            "kwargs": mask_data(view.spec.kwargs),
            "times": times_data(times),
            "runs": [occurrence_data(run) for run in recent],
            "trail": [trail_data(entry) for entry in acts],
        }
    ):
        return
    output.heading(job)
    arguments = dumps_masked([view.spec.args, view.spec.kwargs]) if view.spec.args or view.spec.kwargs else None
    output.pairs(
        [
            ("state", _state(view, zone)),
            ("schedule", _schedule(view) if trigger or view.spec.keeper else "none: it only runs when told to"),
            ("next", " · ".join(filter(None, job_next(view, now, zone)))),
            ("active", f"{format_count(view.active, 'run')} pending or running" if view.active else None),
            ("function", f"{view.spec.function} ({view.spec.executor})"),
            ("arguments", arguments),
            ("policies", _policies(view)),
            ("revision", f"{view.revision}, {view.spec.source}, known since {exact_time(view.created_at, zone)}"),
            ("decided up to", exact_time(view.watermark, zone)),
            ("pruned up to", None if view.horizon is None else exact_time(view.horizon, zone)),
        ]
    )
    if times:
        output.line()
        output.heading("Next times")
        print_times(output, times, zone, now)
    if recent:
        output.line()
        output.heading("Last runs")
        output.table(
            ["id", "for", "state", "node", "took", "reason"],
            [
                [str(run.id), what_for(run, zone), style_state(run.state), run.node, took(run, now), run.reason]
                for run in recent
            ],
            prose=("reason",),
            spare=("took", "node"),
        )
    if acts:
        output.line()
        output.heading("Changes")
        output.table(
            ["when", "who", "did", "why"],
            [[relative_time(act.at, now), act.by, act.action, act_reason(act)] for act in acts],
            prose=("why",),
        )


def _policies(view: JobView) -> str:
    """Return the policies that differ from the defaults; ``overlap`` and ``catch_up`` always."""
    from dataclasses import fields
    from datetime import timedelta

    from cronsensus.timing.durations import format_duration

    plain, texts = Policies(), []
    for item in fields(Policies):
        value = getattr(view.spec.policies, item.name)
        if value != getattr(plain, item.name) or item.name in {"overlap", "catch_up"}:
            texts.append(f"{item.name}={format_duration(value) if isinstance(value, timedelta) else value}")
    return ", ".join(texts)


@jobs.command()
@job_arguments
@add_operator_options(reason=True)
def pause(names: tuple[str, ...], reason: str, by: str) -> None:
    """Stop firing jobs until they are resumed; the times that pass meanwhile are recorded as skipped (paused).

    What runs goes on.

    cronsensus jobs pause send_digest sync_orders --reason "migration until 14:00"
    """
    _each(names, "paused", "was paused already", lambda store, name: store.pause(name, by=by, why=reason))


@jobs.command()
@job_arguments
@add_operator_options()
def resume(names: tuple[str, ...], reason: str, by: str) -> None:
    """Fire jobs again.

    cronsensus jobs resume send_digest
    """
    _each(names, "resumed", "was not paused", lambda store, name: store.resume(name, by=by, why=reason))


@jobs.command()
@click.argument("names", metavar="JOB…", nargs=-1, shell_complete=complete_job)
@click.option("--all", "everything", is_flag=True, help="All jobs that stand still.")
@add_operator_options(reason=True)
def rewind(names: tuple[str, ...], *, everything: bool, reason: str, by: str) -> int:
    """Take the schedules of jobs back to now, after the store's clock was set back.

    Such a job stands still until the clock has come to where it was. What ran while the clock was ahead does not run
    again; each other time comes again. A job that waits for a time by older zone rules goes by those of this machine.
    See what stands still: cronsensus doctor.

    cronsensus jobs rewind send_digest --reason "the clock was 8 h ahead"
    cronsensus jobs rewind --all --reason "the clock was 8 h ahead"
    """
    if everything == bool(names):
        raise click.UsageError("name the jobs, or all that stand still: --all")
    output = Output.current()
    rewinds: dict[str, Rewind] = {}
    refused: dict[str, str] = {}
    with opened_store() as store:
        job_names = [standstill.view.spec.name for standstill in every_standstill(store)] if everything else names
        for name in job_names:
            require_job(store, name)
        for name in dict.fromkeys(job_names):
            try:
                rewinds[name] = rewind_job(store, name, by=by, why=reason)
            except InvalidTransition as error:
                refused[name] = str(error)
        now, zones = store.now(), JobZones(store)
        zone_of_job = {name: zones.find_zone(name) for name in rewinds}
    exit_code = FAILED if refused else OK
    if output.printed_json(
        {"rewound": {name: rewound.next_due for name, rewound in rewinds.items()}, "refused": refused}
    ):
        return exit_code
    for name, rewound in rewinds.items():
        following = (
            ""
            if rewound.next_due is None
            else f"; next {exact_time(rewound.next_due, zone_of_job[name])} ({relative_time(rewound.next_due, now)})"
        )
        begin = exact_time(rewound.watermark_seen, zone_of_job[name])
        end = exact_time(rewound.watermark, zone_of_job[name])
        if rewound.watermark == rewound.watermark_seen:
            output.line(f"{name} goes by the zone rules of this machine{following}")
        else:
            output.line(f"took {name} back from {begin} to {end}{following}")
    for text in refused.values():
        print_message(text)
    if not job_names:
        output.line("no job stands still")
    return exit_code


def _each(names: tuple[str, ...], did: str, already: str, act: Any) -> None:
    """Do ``act`` to each job, or to none if one of them does not exist."""
    output = Output.current()
    with opened_store() as store:
        for name in names:
            require_job(store, name)
        changed_by_name = {name: bool(act(store, name)) for name in dict.fromkeys(names)}
        store.notify()
    if output.printed_json(
        {
            did: [name for name in changed_by_name if changed_by_name[name]],
            "unchanged": [name for name in changed_by_name if not changed_by_name[name]],
        }
    ):
        return
    for name, changed in changed_by_name.items():
        output.line(f"{did} {name}" if changed else f"{name} {already}")


@jobs.command()
@job_arguments
@click.option("--downstream", is_flag=True, help="And after them what comes after them, for one nominal time: now.")
@add_operator_options()
def trigger(names: tuple[str, ...], *, downstream: bool, reason: str, by: str) -> None:
    """Run jobs now, beside their schedule: their next times stay as they are.

    With --downstream, after each what comes after it.

    cronsensus jobs trigger send_digest --reason "the morning one failed"
    cronsensus jobs trigger extract --downstream
    """
    output = Output.current()
    with opened_store() as store:
        code, rules = code_at_hand(), rules_of(every_edge(store))
        plans = {name: plan_trigger(rules, name) for name in names} if downstream else {}
        specs = [require_job(store, name).spec for name in names]
        for spec in specs:  # each, before any runs
            refuse_run_by_hand(spec)
        enqueued: list[Enqueued | Handle] = [
            # With the code, the arguments are checked against the function's signature.
            store.trigger(name, by=by, why=reason, downstream=plans[name].jobs if downstream else ())
            if code is None
            else code.trigger(name, downstream=downstream, by=by, reason=reason)
            for name in names
        ]
        store.notify()
        missing = [describe_missing_node(store, spec) for spec in specs]
    for name in names:
        for dependent, why_left in plans[name].left_out if downstream else ():
            print_message(f"{dependent} is left alone: {why_left}")
        after = () if downstream else list_names_after(rules, name)
        if after:
            next_step = (
                "cronsensus runs retry ID --downstream"
                if rules.get(name)
                else f"cronsensus jobs trigger {name} --downstream"
            )
            print_message(
                f"what comes after {name} does not follow: {', '.join(after)}; to have it follow: {next_step}"
            )
    if output.printed_json(
        {"runs": [{**made_data(run), "downstream": plans[run.job].jobs if downstream else ()} for run in enqueued]}
    ):
        return
    for run in enqueued:
        downstream_text = f"; after it: {', '.join(plans[run.job].jobs)}" if downstream and plans[run.job].jobs else ""
        output.line(f"triggered {run.job}: run {run.id} is {run.state}{downstream_text}")
    for text in dict.fromkeys(filter(None, missing)):
        print_message(f"note: {text}")
    print_message(f"follow it: {', '.join(_follow(run) for run in enqueued)}")
