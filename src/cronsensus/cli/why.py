"""``cronsensus why``: why did it run, or not?"""

from __future__ import annotations

import click

from cronsensus.cli.app import opened_store
from cronsensus.cli.group import Command
from cronsensus.cli.options import job_argument
from cronsensus.cli.output import Cell, Output, word
from cronsensus.insight.as_data import fields, occurrence_data
from cronsensus.insight.clock_changes import zone_of
from cronsensus.insight.lookup import require_job
from cronsensus.insight.why import why as explained
from cronsensus.insight.words import exact, read_time


@click.command(cls=Command)
@job_argument
@click.argument("time", metavar="TIME")
def why(job: str, time: str) -> None:
    """Say in plain sentences why a job did or did not run at a time.

    A time without an offset is in the job's own zone.

    cronsensus why send_digest "2026-11-20 21:00"
    cronsensus why send_digest 2026-11-20T13:00:00Z -o json
    """
    output = Output.current()
    with opened_store() as store:
        view = require_job(store, job)
        zone = zone_of(view.spec.trigger)
        at = read_time(time, store.now(), tz=zone, what="TIME")
        answer = explained(store, view, at)
        sentences = [*answer.sentences, *store.unreadable]
    if output.printed_json(
        {
            **fields(answer, "job time nominal verdict reason before after"),
            "sentences": sentences,
            "runs": [occurrence_data(one) for one in answer.occurrences],
        }
    ):
        return
    verdict = answer.verdict or ("not a nominal time" if not answer.nominal else "unknown")
    output.line(Cell(f"{job}, {exact(at, zone)}: {verdict}", word(verdict).style or "bold"))
    for sentence in sentences:
        output.line(f"  {sentence}")
