"""``cronsensus nodes``: list and drain nodes."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

import click

from cronsensus.cli.app import opened_store
from cronsensus.cli.errors import CommandError
from cronsensus.cli.group import Group
from cronsensus.cli.options import add_limit_option, add_operator_options, watchable
from cronsensus.cli.output import Cell, Output, print_message, style_state
from cronsensus.insight.as_data import session_data
from cronsensus.insight.life import Life, lives_of
from cronsensus.insight.time_words import brief_duration, relative_time, shorten
from cronsensus.model.session import SessionView


@click.group(cls=Group)
def nodes() -> None:
    """List and drain nodes.

    cronsensus nodes list
    cronsensus nodes drain web-1 --reason "kernel update"
    """


@nodes.command("list")
@click.option("--ended", is_flag=True, help="Also those that left or died in the last day.")
@add_limit_option(200)
@watchable
def list_(*, ended: bool, limit: int, watch: bool) -> None:
    """List nodes: alive or not, what they hold, when their lease ends.

    cronsensus nodes list --ended
    """
    output = Output.current()
    with opened_store() as store:

        def draw() -> None:
            found = store.sessions(ended=ended, limit=limit)
            _print_nodes(output, found, lives_of(store, found), store.now())

        output.show_live(store, draw, again=watch)


def _print_nodes(output: Output, found: list[SessionView], lives: Mapping[str, Life], now: datetime) -> None:
    if output.printed_json({"nodes": [session_data(one, lives.get(one.id)) for one in found]}):
        return
    # Where all nodes have the same, it is nothing to look at.
    rules = ["tzdata"] if len({one.tzdata for one in found if one.tzdata}) > 1 else []
    output.table(
        ["node", "state", "holds", "most", "lease", "since", "release", "version", *rules, "pid", "session"],
        [
            [
                Cell(one.node, "bold"),
                _state(one, lives.get(one.id), now),
                str(one.holds),
                str(one.concurrency),
                _lease(one),
                relative_time(one.started_at, now),
                shorten(one.release, 12),
                one.version,
                *([one.tzdata] if rules else []),
                str(one.pid),
                one.id,
            ]
            for one in found
        ],
        empty="no node is running; start one: cronsensus run MODULE:ATTR",
        prose=("node", "state"),
        spare=("session", "version", "release", "pid", "most"),
    )
    nodes_proper = [one for one in found if one.is_node]
    if len(nodes_proper) == 1 and nodes_proper[0].ended_at is None:
        print_message("one node only: start another copy, and it takes over when this one dies")


def _state(one: SessionView, life: Life | None, now: datetime) -> Cell:
    if life is not None:
        style = style_state(one.state if life.is_alive else life.state).style
        return Cell(f"{life.sentence}, no node" if not one.is_node else str(life.sentence), style)
    # A session that was closed says so in more words than that.
    why = f": {one.ended_why}" if one.ended_why and one.state != "closed" else ""
    ended = "" if one.ended_at is None else f" {relative_time(one.ended_at, now)}"
    return Cell(f"{one.state}{ended}{why}", style_state(one.state).style)


def _lease(one: SessionView) -> str:
    if one.ended_at is not None:
        return ""
    left = one.expires_in
    return f"{brief_duration(left)} left" if left > timedelta(0) else f"overdue by {brief_duration(-left)}"


@nodes.command()
@click.argument("node", metavar="NODE|SESSION")
@click.option("--all", "every", is_flag=True, help="Every node of that name, if there are several.")
@add_operator_options()
def drain(node: str, every: bool, reason: str, by: str) -> None:  # noqa: FBT001 - a flag
    """Ask a node to finish what it runs and take nothing new.

    cronsensus nodes drain web-1 --reason "kernel update"
    """
    output = Output.current()
    with opened_store() as store:
        alive = [one for one in store.sessions() if one.state in {"alive", "draining"}]
        found = [one for one in alive if node in {one.id, one.node}]
        if not found:
            names = ", ".join(dict.fromkeys(one.node for one in alive)) or "none"
            raise CommandError(
                f"no live node is called {node!r}", why=f"alive are: {names}", then="cronsensus nodes list"
            )
        if len(found) > 1 and not every:
            raise CommandError(
                f"{len(found)} nodes are called {node!r}",
                why="\n".join(f"{one.id}  pid {one.pid}" for one in found),
                then="give the session instead of the name, or --all",
            )
        drained = [one for one in found if store.drain(one.id, by=by, why=reason)]
        store.notify()
    if output.printed_json({"draining": [one.id for one in drained]}):
        return
    for one in drained:
        output.line(f"draining {one.node}: it holds {one.holds} and takes nothing new")
