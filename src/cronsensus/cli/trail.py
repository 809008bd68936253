"""``cronsensus trail``: who did what, and why."""

from __future__ import annotations

import click

from cronsensus.cli.app import complete_job, opened_store
from cronsensus.cli.group import Command
from cronsensus.cli.options import add_limit_option
from cronsensus.cli.output import Cell, Output, print_message
from cronsensus.insight.as_data import trail_data
from cronsensus.insight.definition_words import act_reason
from cronsensus.insight.time_words import relative_time, shorten

_SESSIONS = 1000
"""Sessions among which names of drained nodes are looked for."""


@click.command(cls=Command)
@click.argument("target", required=False, metavar="[JOB|SESSION]", shell_complete=complete_job)
@click.option("--after", type=click.IntRange(1), metavar="ID", help="Begin after this id: the next page.")
@add_limit_option()
def trail(target: str | None, after: int | None, limit: int) -> None:
    """Show what operators did, newest first: who, what, to what, and why.

    cronsensus trail
    cronsensus trail send_digest --limit 10
    """
    output = Output.current()
    with opened_store() as store:
        found = store.trail(target=target, after=after, limit=limit + 1)
        now = store.now()
        drained = any(act.action == "drain" for act in found)
        nodes = {one.id: one.node for one in store.sessions(ended=True, limit=_SESSIONS)} if drained else {}
    more = found[limit - 1].id if len(found) > limit else None
    found = found[:limit]
    if output.printed_json({"trail": [trail_data(act) for act in found], "after": more}):
        return
    output.table(
        ["when", "who", "did", "to", "run", "why"],
        [
            [
                relative_time(act.at, now),
                act.by,
                Cell(act.action, "bold"),
                nodes.get(act.target, act.target),
                str(act.details.get("occurrence", "")),
                shorten(act_reason(act), 200),
            ]
            for act in found
        ],
        empty="nobody has done anything yet",
        prose=("why",),
        spare=("run",),
    )
    if more is not None:
        print_message(f"there are more: add --after {more}")
