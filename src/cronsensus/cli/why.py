"""``cronsensus why``: why did it run, or not?"""

from __future__ import annotations

from datetime import datetime

import click

from cronsensus.after.upstreams import last_until
from cronsensus.cli.app import opened_store
from cronsensus.cli.errors import CommandError
from cronsensus.cli.group import Command
from cronsensus.cli.options import job_argument
from cronsensus.cli.output import Cell, Output, style_state
from cronsensus.cli.zones import default_zone
from cronsensus.insight.as_data import occurrence_data, pick_fields
from cronsensus.insight.clock_changes import zone_of
from cronsensus.insight.lookup import require_job
from cronsensus.insight.successes import newest_whole
from cronsensus.insight.time_words import exact_time, read_time
from cronsensus.insight.why import explain_time
from cronsensus.model.job import JobView
from cronsensus.stores.base import Store

_MOST_READ = 20


@click.command(cls=Command)
@job_argument
@click.argument("time", required=False, metavar="[TIME]")
def why(job: str, time: str | None) -> None:
    """Say in plain sentences why a job did or did not run at a time.

    A time without an offset is in the job's own zone; 21:00 is the latest one that has come, and so is 9pm. Without
    TIME, and for "now", it is about the latest time of the job that has come.

    cronsensus why send_digest
    cronsensus why send_digest 21:00
    cronsensus why send_digest "yesterday 9pm"
    cronsensus why send_digest "2026-11-20 21:00"
    cronsensus why send_digest 2026-11-20T13:00:00Z -o json
    """
    output = Output.current()
    with opened_store() as store:
        view = require_job(store, job)
        zone = zone_of(view.spec.trigger, default_zone())
        if time is None or time.strip().lower() == "now":
            at = _latest(store, view)
        else:
            at = read_time(time, store.now(), tz=zone, what="TIME")
        answer = explain_time(store, view, at, zone=zone)
        sentences = [*map(str, answer.sentences), *store.unreadable]
    if output.printed_json(
        {
            **pick_fields(answer, "job time nominal verdict reason before after"),
            "sentences": sentences,
            "runs": [occurrence_data(occurrence) for occurrence in answer.occurrences],
        }
    ):
        return
    verdict = answer.verdict or ("not a nominal time" if not answer.nominal else "unknown")
    output.line(Cell(f"{job}, {exact_time(at, zone)}: {verdict}", style_state(verdict).style or "bold"))
    for sentence in sentences:
        output.line(f"  {sentence}")


def _latest(store: Store, view: JobView) -> datetime:
    """Return the latest nominal time up to now: by the schedule, or else of an occurrence.

    Raises:
        CommandError: there is none.
    """
    trigger, now = view.spec.trigger, store.now()
    if trigger is not None and (at := last_until(trigger, now)) is not None and at > view.created_at:
        return at
    newest = newest_whole(store, view.spec.name, limit=_MOST_READ)
    if (
        scheduled_for := next(
            (occurrence.scheduled_for for occurrence in newest if occurrence.scheduled_for is not None), None
        )
    ) is not None:
        return scheduled_for
    why_none = "it has no nominal times" if trigger is None else ""
    if view.paused_at is not None:
        why_none = f"it is paused by {view.paused_by or 'somebody'}, because: {view.paused_why or 'no reason given'}"
    raise CommandError(
        f"no time of {view.spec.name} has come yet",
        why=why_none,
        then=f"cronsensus runs list --job {view.spec.name}, or cronsensus next {view.spec.name}",
    )
