"""One run as a person reads it: a timeline, its attempts, its error, its log."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from cronsensus.cli.output import Cell, Output, word
from cronsensus.insight.summaries import error_text, run_state, took, what_for
from cronsensus.insight.words import brief, exact, shorten
from cronsensus.model.ledger import TrailEntry
from cronsensus.model.occurrence import LogLine, Occurrence, RunView

Line = tuple[int, int, LogLine]
_LEVELS = {"WARNING": "yellow", "ERROR": "red", "CRITICAL": "bold red", "DEBUG": "dim"}


def print_run(
    output: Output,
    one: Occurrence,
    attempts: Sequence[RunView],
    lines: Sequence[Line],
    *,
    again: Sequence[int],
    acts: Sequence[TrailEntry],
    now: datetime,
) -> None:
    """Print all that is known of a run."""
    from cronsensus.codec import dumps

    output.heading(f"run {one.id} of {one.job}")
    arguments = shorten(dumps([list(one.args), one.kwargs]), 400) if one.args or one.kwargs else None
    output.pairs(
        [
            ("state", Cell(run_state(one), word(one.state).style)),
            ("for", what_for(one)),
            ("key", one.key if one.scheduled_for is None or one.origin != "schedule" else None),
            ("arguments", arguments),
            ("result", None if one.result is None else shorten(one.result, 400)),
            ("retry of", None if one.retry_of is None else f"run {one.retry_of}"),
            ("tried again as", ", ".join(f"run {number}" for number in again) or None),
        ]
    )
    output.line()
    output.heading("Timeline")
    output.table(["when", "after", "what"], _timeline(one, attempts, acts), prose=("what",))
    if attempts:
        output.line()
        output.heading("Attempts")
        output.table(
            ["attempt", "token", "node", "took", "end", "reason"],
            [
                [
                    str(run.attempt),
                    str(run.token),
                    run.node,
                    took(run, now),
                    word(run.end or "running"),
                    run.reason or error_text(run.error),
                ]
                for run in attempts
            ],
            prose=("reason",),
            spare=("node",),
        )
    if one.error is not None:
        output.line()
        output.heading("Error")
        said, where = f"{one.error.type}: {one.error.message}", one.error.traceback.rstrip()
        # A traceback ends with the message, unless it only shows where the run was when its time was up.
        output.line(where if said in where else f"{said}\n{where}".rstrip())
    if lines:
        output.line()
        output.heading("Log")
        for line in lines:
            show_line(output, line, attempts=one.attempt)


def _timeline(
    one: Occurrence, attempts: Sequence[RunView], acts: Sequence[TrailEntry]
) -> list[list[str | Cell | None]]:
    """Return what happened, in order, each with the time since the line before."""
    events: list[tuple[datetime, str]] = []
    if one.scheduled_for is not None:
        events.append((one.scheduled_for, "nominal time"))
    if one.created_at != one.scheduled_for:
        events.append((one.created_at, f"created ({one.origin})"))
    if one.due_at not in {one.scheduled_for, one.created_at}:
        events.append((one.due_at, "due"))
    for run in attempts:
        node = run.node or run.session
        events.append((run.started_at, f"attempt {run.attempt} started on {node}"))
        if run.finished_at is not None:
            events.append((run.finished_at, f"attempt {run.attempt} {_END.get(run.end or '', run.end)}"))
    if one.finished_at is not None and not any(run.finished_at == one.finished_at for run in attempts):
        events.append((one.finished_at, str(one.state)))
    events += [(act.at, f"{act.action} by {act.by}" + (f": {act.why}" if act.why else "")) for act in acts]
    events.sort(key=lambda event: event[0])
    rows: list[list[str | Cell | None]] = []
    before: datetime | None = None
    for at, what in events:
        rows.append([exact(at), "" if before is None else f"+{brief(at - before)}", what])
        before = at
    return rows


_END = {
    "succeeded": "ended well",
    "failed": "failed",
    "cancelled": "was cancelled",
    "skipped": "skipped itself",
    "retry": "failed, to be tried again",
    "crashed": "ended with its node: taken over",
    "released": "was given back by a node that drained",
}


def show_line(output: Output, line: Line, *, attempts: int) -> None:
    """Print a log line; with the attempt where there were several."""
    _, attempt, said = line
    which = f" #{attempt}" if attempts > 1 else ""
    output.line(Cell(f"{exact(said.at)}{which} {said.level:<7} {said.text}", _LEVELS.get(said.level.upper(), "")))
