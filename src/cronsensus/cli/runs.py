"""``cronsensus runs``: what ran, runs, and will run."""

from __future__ import annotations

from datetime import datetime
from itertools import islice, takewhile
from typing import Any

import click

from cronsensus.cli.app import complete_job, opened_store
from cronsensus.cli.errors import CommandError
from cronsensus.cli.group import Group
from cronsensus.cli.options import acting, id_argument, id_arguments, limited, watchable
from cronsensus.cli.output import Cell, Output, message, word
from cronsensus.cli.run_view import print_run, show_entry
from cronsensus.errors import InvalidTransition
from cronsensus.insight.as_data import log_data, occurrence_data, run_data, trail_data
from cronsensus.insight.lookup import require_job
from cronsensus.insight.run_report import every_log_entry, run_report
from cronsensus.insight.summaries import took, what_for, why_ended
from cronsensus.insight.words import read_time, relative, shorten
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter
from cronsensus.model.states import State
from cronsensus.stores.base import Store
from cronsensus.stores.pages import every_occurrence

_TAIL = 20
_LOOK_AGAIN = 1.0


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
@click.option("--since", metavar="TIME", help="Only those created since then; 2h means two hours ago.")
@click.option("--after", type=click.IntRange(1), metavar="ID", help="Begin after this id: the next page.")
@limited()
@watchable
def list_(
    *, job: str | None, states: tuple[str, ...], since: str | None, after: int | None, limit: int, watch: bool
) -> None:
    """List runs, newest first.

    cronsensus runs list --job send_digest --limit 10
    cronsensus runs list --state failed --since 1d
    cronsensus runs list --state running --watch
    """
    output = Output.current()
    with opened_store() as store:
        if job is not None:
            require_job(store, job)
        begin = None if since is None else read_time(since, store.now(), what="--since")
        where = OccurrenceFilter(job=job, states=tuple(State(state) for state in states))

        def draw() -> None:
            newest = every_occurrence(store, where, after=after, newest_first=True, page=limit + 1)
            found = list(islice(takewhile(lambda one: begin is None or one.created_at >= begin, newest), limit + 1))
            _print_runs(output, found[:limit], store.now(), more=len(found) > limit and not watch)

        output.show(store, draw, again=watch)


def _print_runs(output: Output, found: list[Occurrence], now: datetime, *, more: bool) -> None:
    after = found[-1].id if more else None
    if output.printed_json({"runs": [occurrence_data(one) for one in found], "after": after}):
        return
    output.table(
        ["id", "job", "for", "state", "node", "attempt", "started", "took", "reason"],
        [_row(one, now) for one in found],
        empty="there is none",
        prose=("job", "state", "reason"),
        spare=("attempt", "took", "node", "started"),
    )
    if after is not None:
        message(f"there are more: add --after {after}")


def _row(one: Occurrence, now: datetime) -> list[str | Cell | None]:
    state: str | Cell = word(one.state)
    if one.state is State.RUNNING and one.cancel_requested:
        state = Cell("running, asked to stop", "yellow")
    elif one.progress is not None and one.state is State.RUNNING and one.progress[1]:
        state = Cell(f"running {one.progress[0] / one.progress[1]:.0%}", word("running").style)
    started = "" if one.started_at is None else relative(one.started_at, now)
    if one.state is State.PENDING:
        started = f"due {relative(one.due_at, now)}"
    attempt = str(one.attempt) if one.attempt else ""
    name, why = Cell(one.job, "bold"), shorten(why_ended(one), 60)
    return [str(one.id), name, what_for(one), state, one.node, attempt, started, took(one, now), why]


@runs.command()
@id_argument
def show(number: int) -> None:
    """Show one run: scheduled, due, started, finished; each attempt; the error; the last log lines.

    cronsensus runs show 4711
    """
    output = Output.current()
    with opened_store() as store:
        now = store.now()
        one = _found(store, number)
        report = run_report(store, one, log_lines=_TAIL)
    if output.as_json:
        output.document(
            {
                **occurrence_data(one),
                "args": list(one.args),
                "kwargs": one.kwargs,
                "result": _result(one),
                "retried_as": report.retried_as,
                "attempts": [run_data(run) for run in report.attempts],
                "logs": [log_data(*entry) for entry in report.log],
                "trail": [trail_data(act) for act in report.acts],
            }
        )
        return
    print_run(output, report, now)
    if report.log_length > len(report.log):
        message(f"all {report.log_length} lines: cronsensus runs logs {number}")


def _result(one: Occurrence) -> Any:
    from cronsensus.codec import loads

    return None if one.result is None else loads(one.result)


def _found(store: Store, number: int) -> Occurrence:
    found = store.occurrence(number)
    if found is None:
        raise CommandError(
            f"there is no run {number} in namespace {store.namespace!r}",
            why="it never was, or it was pruned",
            then="cronsensus runs list",
        )
    return found


@runs.command()
@id_arguments
@acting()
def retry(numbers: tuple[int, ...], reason: str, by: str) -> None:
    """Run what has ended once more, with the same arguments and nominal time: a new run, linked to the old one.

    cronsensus runs retry 4711
    """
    output = Output.current()
    with opened_store() as store:
        for number in numbers:
            one = _found(store, number)
            if not one.state.final:
                raise InvalidTransition(
                    f"run {number} is {one.state}; only what has ended can be run again: cronsensus runs show {number}"
                )
        made = [(number, store.retry(number, by=by, why=reason)) for number in numbers]
        store.notify()
    if output.printed_json(
        {"runs": [{"id": new.id, "retry_of": old, "job": new.job, "state": new.state} for old, new in made]}
    ):
        return
    for old, new in made:
        output.line(f"run {old} of {new.job} is tried again as run {new.id}")


@runs.command()
@id_arguments
@acting(reason=True)
def cancel(numbers: tuple[int, ...], reason: str, by: str) -> None:
    """Cancel what waits at once; ask what runs to stop.

    cronsensus runs cancel 4711 --reason "wrong month"
    """
    output = Output.current()
    with opened_store() as store:
        for number in numbers:
            one = _found(store, number)
            if one.state.final:
                raise InvalidTransition(
                    f"run {number} is {one.state} already; nothing is left to cancel: cronsensus runs show {number}"
                )
        states = {number: store.cancel(number, by=by, why=reason) for number in numbers}
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
        one = _found(store, number)
        if output.as_json:
            lines = [log_data(*entry) for entry in every_log_entry(store, number)]
            output.document({"id": number, "state": one.state, "logs": lines})
            return
        after = 0
        while True:
            # Look at the state first: what is written before the end is then certainly read after it.
            one = _found(store, number)
            for entry in every_log_entry(store, number, after):
                after = entry[0]
                show_entry(output, entry, attempts=one.attempt)
            if not follow or one.state.final:
                break
            store.wait(_LOOK_AGAIN)
    if not after and not follow:
        message(f"run {number} has logged nothing{'' if one.state.final else ' yet'}")
    if follow:
        message(f"run {number} {one.state}" + (f": {one.reason}" if one.reason else ""))
