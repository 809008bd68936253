"""``cronsensus trail``: who did what, and why."""

from __future__ import annotations

import click

from cronsensus.cli.app import complete_job, opened_store
from cronsensus.cli.group import Command
from cronsensus.cli.options import add_limit_option
from cronsensus.cli.output import Cell, Output, print_message
from cronsensus.cli.zones import default_zone
from cronsensus.insight.as_data import trail_data
from cronsensus.insight.definition_words import act_reason
from cronsensus.insight.time_words import relative_time, shorten
from cronsensus.insight.trail_list import MOST_READ, list_trail, read_trail_search

_SESSIONS = 1000
"""How many sessions are read to find the names of drained nodes."""


@click.command(cls=Command)
@click.argument("target", required=False, metavar="[JOB|SESSION]", shell_complete=complete_job)
@click.option("--who", default="", metavar="TEXT", help="Only by these: part of the name.")
@click.option("--action", default="", metavar="VERB", help="Only this: pause, cancel, define, …")
@click.option("--since", default="", metavar="TIME", help="Only then or later: 2h, 03:00, 2026-11-20.")
@click.option("--until", default="", metavar="TIME", help="Only before.")
@click.option("--after", type=click.IntRange(1), metavar="ID", help="Begin after this id: the next page.")
@add_limit_option()
def trail(*, target: str | None, after: int | None, limit: int, **filters: str) -> None:
    """Show what operators and releases did, newest first: who, what, to what, and why.

    cronsensus trail
    cronsensus trail send_digest --limit 10
    cronsensus trail --action define --since 1d
    """
    output = Output.current()
    with opened_store() as store:
        now = store.now()
        search = read_trail_search({"target": target or "", **filters}, now, default_zone())
        page = list_trail(store, search, after=after, limit=limit)
        drained = any(act.action == "drain" for act in page.acts)
        nodes = {session.id: session.node for session in store.sessions(ended=True, limit=_SESSIONS)} if drained else {}
    if output.printed_json({"trail": [trail_data(act) for act in page.acts], "after": page.after}):
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
            for act in page.acts
        ],
        empty="no such act is in the trail" if any(filters.values()) else "nobody has done anything yet",
        prose=("why",),
        spare=("run",),
    )
    if page.after is not None:
        looked = f"{MOST_READ:,} entries were looked through; to look further" if page.stopped else "there are more"
        print_message(f"{looked}: add --after {page.after}")
