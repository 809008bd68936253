"""``cronsensus runs``: list, show, retry and cancel runs, and print their logs."""

from __future__ import annotations

from datetime import datetime, tzinfo
from itertools import islice, takewhile
from typing import Any

import click

from cronsensus.after.downstream import plan_retry
from cronsensus.cli.app import complete_job, opened_store
from cronsensus.cli.asking import confirm_act
from cronsensus.cli.errors import CommandError
from cronsensus.cli.group import Group
from cronsensus.cli.options import add_limit_option, add_operator_options, id_argument, watchable
from cronsensus.cli.output import Cell, Output, print_message, style_state
from cronsensus.cli.retrying import print_left_out, print_retries, require_retryable, retry_runs
from cronsensus.cli.run_view import print_batch, print_run, show_entry
from cronsensus.cli.zones import JobZones
from cronsensus.errors import InvalidTransition
from cronsensus.insight.as_data import (
    batch_data,
    failures_data,
    log_data,
    occurrence_data,
    run_data,
    run_page_data,
    trail_data,
)
from cronsensus.insight.failures import failures_to_retry, group_failures, open_failures
from cronsensus.insight.lookup import require_job
from cronsensus.insight.run_list import ORDERS, Order, RunPage, RunSearch, list_runs
from cronsensus.insight.run_report import every_log_entry, run_report
from cronsensus.insight.summaries import took, what_for, why_ended
from cronsensus.insight.time_words import format_count, relative_time, shorten
from cronsensus.jobs.handle import cancel_occurrence as cancel_run
from cronsensus.model.job import is_internal
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter
from cronsensus.model.states import Origin, State
from cronsensus.security.masking import mask_data
from cronsensus.stores.base import Store
from cronsensus.stores.pages import every_edge, every_occurrence, rules_of
from cronsensus.stores.retries import retry_chain
from cronsensus.timing.instants import LATEST

_LAST_LINES = 20
_POLL_SECONDS = 1.0
_MOST_PREVIEWED = 20
_MOST_RUNS = 1000
_MOST_READ = 20_000


some_ids = click.argument("numbers", metavar="[ID]…", type=click.IntRange(1, 2**63 - 1), nargs=-1)


def add_filter_options(function: Any) -> Any:
    """Add the options that narrow a bulk action, and those on its confirmation."""
    for option in (
        click.option("--yes", is_flag=True, help="Do not ask."),
        click.option("--dry-run", is_flag=True, help="Only show which runs are meant."),
        click.option("--since", metavar="TIME", help="Only those since then; 2h means two hours ago."),
        click.option("--job", metavar="JOB", shell_complete=complete_job, help="Only of this job."),
    ):
        function = option(function)
    return function


@click.group(cls=Group)
def runs() -> None:
    """List, show, retry and cancel runs; read their logs.

    cronsensus runs list --state failed --since 1d
    cronsensus runs show 4711
    """


@runs.command("list")
@click.option("--job", metavar="JOB", shell_complete=complete_job, help="Only of this job.")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice([str(state) for state in State]),
    help="Only in this state; may be repeated.",
)
@click.option("--origin", type=click.Choice([str(origin) for origin in Origin]), help="Only made so.")
@click.option("--node", metavar="NODE", help="Only that this node runs, or ran last.")
@click.option("--since", metavar="TIME", help="Only those created since then; 2h means two hours ago.")
@click.option("--until", metavar="TIME", help="Only those created before then.")
@click.option("--key", metavar="KEY", help="Only with this key.")
@click.option(
    "--text",
    metavar="WORDS",
    default="",
    help="Each word stands in job, key, node, reason, error or arguments; customer=42 is an argument.",
)
@click.option("--order", type=click.Choice(ORDERS), default="newest", show_default=True, help="What stands first.")
@click.option("--batch", type=click.IntRange(1), metavar="ID", help="Only the items of this batch.")
@click.option("--after", type=click.IntRange(1), metavar="ID", help="Begin after this id: the next page.")
@add_limit_option()
@watchable
def list_(
    *,
    job: str | None,
    states: tuple[str, ...],
    origin: str | None,
    node: str | None,
    since: str | None,
    until: str | None,
    key: str | None,
    text: str,
    order: Order,
    batch: int | None,
    after: int | None,
    limit: int,
    watch: bool,
) -> None:
    """List runs, newest first.

    cronsensus runs list --job send_digest --limit 10
    cronsensus runs list --state failed --since 1d
    cronsensus runs list --state running --order longest --watch
    cronsensus runs list --text customer=42
    cronsensus runs list --batch 4711 --state failed
    """
    output = Output.current()
    with opened_store() as store:
        if job is not None:
            require_job(store, job)
        zones = JobZones(store)
        search = RunSearch(
            job=job,
            states=tuple(State(state) for state in states),
            origin=None if origin is None else Origin(origin),
            node=node,
            key=key,
            since=None if since is None else zones.read_since(since, job),
            until=None if until is None else zones.read_since(until, job, what="--until"),
            words=tuple(text.split()),
            batch=batch,
            order=order,
        )

        def draw() -> None:
            page = list_runs(store, search, after=after, limit=limit, most_read=_MOST_READ)
            _print_runs(output, page, store.now(), zones, watched=watch)

        output.show_live(store, draw, again=watch)


def _print_runs(output: Output, page: RunPage, now: datetime, zones: JobZones, *, watched: bool) -> None:
    after = None if watched else page.after
    if output.printed_json({**run_page_data(page), "after": after}):
        return
    output.table(
        ["id", "job", "for", "state", "node", "attempt", "started", "took", "reason"],
        [_row(run, now, zones.find_zone(run.job)) for run in page.runs],
        empty="there is none",
        prose=("job", "state", "reason"),
        spare=("attempt", "took", "node", "started"),
    )
    if page.stopped:
        next_step = "" if after is None else f"; to go on: add --after {after}"
        print_message(f"only {page.read:,} runs were looked through{next_step}")
    elif after is not None:
        print_message(f"there are more: add --after {after}")


def _row(occurrence: Occurrence, now: datetime, zone: tzinfo) -> list[str | Cell | None]:
    state: str | Cell = style_state(occurrence.state)
    if occurrence.state is State.RUNNING and occurrence.cancel_requested:
        state = Cell("running, asked to stop", "yellow")
    elif occurrence.progress is not None and occurrence.state is State.RUNNING and occurrence.progress[1]:
        state = Cell(f"running {occurrence.progress[0] / occurrence.progress[1]:.0%}", style_state("running").style)
    started = "" if occurrence.started_at is None else relative_time(occurrence.started_at, now)
    if occurrence.state is State.PENDING:
        never = "parked" if occurrence.is_parked else "never due"
        started = never if occurrence.due_at >= LATEST else f"due {relative_time(occurrence.due_at, now)}"
    attempt = str(occurrence.attempt) if occurrence.attempt else ""
    name, why = Cell(occurrence.job, "bold"), shorten(why_ended(occurrence), 60)
    return [
        str(occurrence.id),
        name,
        what_for(occurrence, zone),
        state,
        occurrence.node,
        attempt,
        started,
        took(occurrence, now),
        why,
    ]


@runs.command()
@id_argument
def show(number: int) -> None:
    """Show one run: scheduled, due, started, finished; each attempt; the error; the last log lines.

    cronsensus runs show 4711
    """
    output = Output.current()
    with opened_store() as store:
        now = store.now()
        occurrence = _require_run(store, number)
        report = run_report(store, occurrence, log_lines=_LAST_LINES)
        zone = JobZones(store).find_zone(occurrence.job)
    if output.as_json:
        output.document(
            {
                **occurrence_data(occurrence),
                "args": mask_data(occurrence.args),
                "kwargs": mask_data(occurrence.kwargs),
                "result": _result(occurrence),
                "batch": None if report.batch is None else batch_data(report.batch),
                "attempts": [run_data(run) for run in report.attempts],
                "logs": [log_data(*entry) for entry in report.log],
                "trail": [trail_data(act) for act in report.acts],
            }
        )
        return
    print_run(output, report, now, zone)
    if report.log_length > len(report.log):
        print_message(f"all {report.log_length} lines: cronsensus runs logs {number}")


@runs.command()
@id_argument
def watch(number: int) -> None:
    """Watch a batch: how many items are done, how fast, how long it will take, and what runs on which node.

    Ends with the batch; where there is no terminal it prints once.

    cronsensus runs watch 4711
    """
    output = Output.current()
    with opened_store() as store:

        def draw() -> bool:
            """Draw once; return whether the batch has ended."""
            occurrence = _require_run(store, number)
            report = run_report(store, occurrence, log_lines=0)
            if report.batch is None and not output.as_json:
                if not occurrence.state.final and occurrence.parent is None:
                    output.line(f"run {number} of {occurrence.job} is {occurrence.state}, and has no items yet")
                    return False
                raise CommandError(f"run {number} is no batch", then=f"see it with: cronsensus runs show {number}")
            batch = None if report.batch is None else batch_data(report.batch)
            if not output.printed_json({**occurrence_data(occurrence), "batch": batch}):
                print_batch(output, report)
            return occurrence.state.final

        if not draw() and output.terminal and not output.as_json:
            output.show_live(store, draw, again=True)
            draw()


def _result(occurrence: Occurrence) -> Any:
    from cronsensus.payload.codec import loads

    return None if occurrence.result is None else mask_data(loads(occurrence.result))


def _require_ids_or_flag(numbers: tuple[int, ...], flag: str, *, given: bool, others: tuple[object, ...]) -> None:
    """Check that runs are named either by their ids or by ``flag`` and the options that narrow it.

    Raises:
        CommandError: by both, or by neither.
    """
    if given == bool(numbers):
        problem = f"ids and {flag} cannot be combined" if given else f"neither ids nor {flag} were given"
        raise CommandError(problem, then=f"name the runs, or choose them by {flag} --job JOB --since TIME --dry-run")
    if not given and any(other is not None for other in others):
        raise CommandError(f"--job, --since and --error belong to {flag}", then=f"add {flag}")


def _checked_name(store: Store, job: str | None) -> str | None:
    return None if job is None else require_job(store, job).spec.name


def _is_confirmed(
    output: Output, zones: JobZones, chosen: list[Occurrence], question: str, *, dry_run: bool, yes: bool
) -> bool:
    """Show the chosen runs, and return whether the operator confirms the act."""
    if output.as_json and dry_run:
        output.document({"dry_run": True, "runs": [occurrence_data(run) for run in chosen]})
        return False
    if not output.as_json:
        output.table(
            ["id", "job", "for", "state", "reason"],
            [
                [
                    str(run.id),
                    Cell(run.job, "bold"),
                    what_for(run, zones.find_zone(run.job)),
                    style_state(run.state),
                    shorten(why_ended(run), 60),
                ]
                for run in chosen[:_MOST_PREVIEWED]
            ],
            empty="there is none",
            prose=("job", "reason"),
        )
        if len(chosen) > _MOST_PREVIEWED:
            print_message(f"… and {len(chosen) - _MOST_PREVIEWED} more")
    if dry_run:
        return False
    if chosen and not yes:
        confirm_act(question.format(format_count(len(chosen), "run")))
    return bool(chosen) or output.as_json


def _require_run(store: Store, number: int) -> Occurrence:
    occurrence = store.occurrence(number)
    if occurrence is None:
        raise CommandError(
            f"there is no run {number} in namespace {store.namespace!r}",
            why="it never was, or it was pruned",
            then="cronsensus runs list",
        )
    return occurrence


@runs.command("failed")
@click.option("--job", metavar="JOB", shell_complete=complete_job, help="Only of this job.")
@click.option("--since", metavar="TIME", default="1d", show_default=True, help="Only those that ended since then.")
def failed_(*, job: str | None, since: str) -> None:
    """Show what failed and was not run again, grouped by error: one thing or many?

    cronsensus runs failed
    cronsensus runs failed --job push_prices --since 7d
    """
    output = Output.current()
    with opened_store() as store:
        if job is not None:
            require_job(store, job)
        now = store.now()
        groups = group_failures(open_failures(store, job=job, since=JobZones(store).read_since(since, job)))
    if output.printed_json({"groups": [failures_data(group) for group in groups]}):
        return
    output.table(
        ["error", "what", "where", "jobs", "runs", "newest", "last"],
        [
            [
                group.fingerprint,
                Cell(shorten(f"{group.type}: {group.message}" if group.type else group.message, 60), "bold"),
                group.place,
                shorten(", ".join(group.jobs), 60),
                str(len(group.runs)),
                str(group.runs[0].id),
                relative_time(group.runs[0].finished_at or now, now),
            ]
            for group in groups
        ],
        empty="nothing that failed is left",
        prose=("what", "jobs"),
        spare=("where", "newest"),
    )
    if groups:
        print_message(f"run them again: cronsensus runs retry --failed --error {groups[0].fingerprint} --dry-run")


@runs.command()
@some_ids
@click.option("--failed", is_flag=True, help="Instead of ids: what failed and was not run again.")
@add_filter_options
@click.option("--error", metavar="ERROR", help="With --failed: only this group of 'runs failed'.")
@click.option("--downstream", is_flag=True, help="Of one run: and what comes after it, for the same nominal time.")
@click.option("--again", is_flag=True, help="Once more what succeeded, or was tried again already.")
@add_operator_options()
def retry(
    *,
    numbers: tuple[int, ...],
    failed: bool,
    downstream: bool,
    again: bool,
    job: str | None,
    since: str | None,
    error: str | None,
    dry_run: bool,
    yes: bool,
    reason: str,
    by: str,
) -> None:
    """Run what has ended once more, with the same arguments and nominal time: a new run, linked to the old one.

    What was tried again already is left alone: it says as which run. So two people who type it make one run.

    With --failed, all that is left of what failed (500 at most), the oldest first. It asks first; without a terminal
    it needs --yes.

    With --downstream, after it what comes after it. It shows what it means and asks, too.

    cronsensus runs retry 4711
    cronsensus runs retry 4711 --downstream --dry-run
    cronsensus runs retry --failed --job push_prices --since 12h
    """
    output = Output.current()
    must_confirm = failed or downstream or dry_run
    _require_ids_or_flag(numbers, "--failed", given=failed, others=(job, since, error))
    if again and failed:
        raise CommandError("--again is for runs that are named", then="cronsensus runs retry ID --again")
    if downstream and (failed or len(numbers) > 1):
        raise CommandError("--downstream is for one run", then="cronsensus runs retry ID --downstream --dry-run")
    with opened_store() as store:
        rules, zones = rules_of(every_edge(store)), JobZones(store)
        if downstream:
            first = _require_run(store, numbers[0])
            plan = plan_retry(store, rules, retry_chain(store, first)[-1] if again else first)
            chosen = list(plan.runs)
            for name, reason_left in plan.left_out:
                print_message(f"{name} is left alone: {reason_left}")
        elif failed:
            begin = None if since is None else zones.read_since(since, job)
            chosen = failures_to_retry(store, job=_checked_name(store, job), since=begin, group=error)
        else:
            chosen = [_require_run(store, number) for number in numbers]
        # Downstream runs were not named, so they are run again whether they succeeded or not.
        forced = {run.id for run in chosen if again or (downstream and run.id not in numbers)}
        require_retryable(store, chosen, forced)
        if must_confirm and not _is_confirmed(output, zones, chosen, "Run {} again?", dry_run=dry_run, yes=yes):
            return
        made = retry_runs(store, chosen, forced, by=by, why=reason)
    if not downstream:
        print_left_out(chosen, rules)
    print_retries(output, made)


@runs.command()
@some_ids
@click.option("--pending", is_flag=True, help="Instead of ids: what waits; 1,000 at most.")
@add_filter_options
@add_operator_options(reason=True)
def cancel(
    *,
    numbers: tuple[int, ...],
    pending: bool,
    job: str | None,
    since: str | None,
    dry_run: bool,
    yes: bool,
    reason: str,
    by: str,
) -> None:
    """Cancel what waits at once; ask what runs to stop.

    With --pending, what waits. It asks first; without a terminal it needs --yes.

    cronsensus runs cancel 4711 --reason "wrong month"
    cronsensus runs cancel --pending --job send_invoice --since 1h --reason "wrong month"
    """
    output = Output.current()
    _require_ids_or_flag(numbers, "--pending", given=pending, others=(job, since))
    with opened_store() as store:
        zones = JobZones(store)
        if pending:
            where = OccurrenceFilter(job=_checked_name(store, job), states=(State.PENDING,))
            begin = None if since is None else zones.read_since(since, job)
            every = every_occurrence(store, where, newest_first=True)
            # Nobody queued the internal runs that watch for alerts: they are cancelled only by name.
            newest = (run for run in every if job is not None or not is_internal(run.job))
            chosen = list(islice(takewhile(lambda run: begin is None or run.created_at >= begin, newest), _MOST_RUNS))
        else:
            chosen = [_require_run(store, number) for number in numbers]
            for run in chosen:
                if run.state.final:
                    raise InvalidTransition(
                        f"run {run.id} is {run.state} already; nothing is left to cancel: cronsensus runs show {run.id}"
                    )
        if (pending or dry_run) and not _is_confirmed(output, zones, chosen, "Cancel {}?", dry_run=dry_run, yes=yes):
            return
        numbers = tuple(run.id for run in chosen)
        states: dict[int, State] = {}
        for number in numbers:
            try:
                states[number] = cancel_run(store, number, by=by, why=reason)
            except InvalidTransition:
                # It ended since it was listed. The others are cancelled all the same.
                if not pending:
                    raise
        store.notify()
    if output.printed_json({"runs": [{"id": number, "state": state} for number, state in states.items()]}):
        return
    for number, state in states.items():
        output.line(
            f"run {number} is cancelled"
            if state is State.CANCELLED
            else f"run {number} is asked to stop; it is {state} until it does"
        )


@runs.command()
@id_argument
@click.option("-f", "--follow", is_flag=True, help="Go on until the run has ended.")
def logs(number: int, follow: bool) -> None:  # noqa: FBT001 - a flag
    """Print what a run logged.

    cronsensus runs logs -f 4711
    """
    output = Output.current()
    if output.as_json and follow:
        raise CommandError(
            "-f and -o json do not go together", why="a document that goes on has no end", then="leave one of them out"
        )
    with opened_store() as store:
        occurrence = _require_run(store, number)
        if output.as_json:
            lines = [log_data(*entry) for entry in every_log_entry(store, number)]
            output.document({"id": number, "state": occurrence.state, "logs": lines})
            return
        after, zone = 0, JobZones(store).find_zone(occurrence.job)
        while True:
            # Read the state first: then all lines that were written before the end are read after it.
            occurrence = _require_run(store, number)
            for entry in every_log_entry(store, number, after):
                after = entry[0]
                show_entry(output, entry, zone, attempts=occurrence.attempt)
            if not follow or occurrence.state.final:
                break
            store.wait(_POLL_SECONDS)
    if not after and not follow:
        print_message(f"run {number} has logged nothing{'' if occurrence.state.final else ' yet'}")
    if follow:
        print_message(f"run {number} {occurrence.state}" + (f": {occurrence.reason}" if occurrence.reason else ""))
