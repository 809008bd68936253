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
            sessions = store.sessions(ended=ended, limit=limit)
            _print_nodes(output, sessions, lives_of(store, sessions), store.now())

        output.show_live(store, draw, again=watch)


def _print_nodes(output: Output, sessions: list[SessionView], lives: Mapping[str, Life], now: datetime) -> None:
    if output.printed_json({"nodes": [session_data(session, lives.get(session.id)) for session in sessions]}):
        return
    # If all nodes have the same version, do not show it.
    rules = ["tzdata"] if len({session.tzdata for session in sessions if session.tzdata}) > 1 else []
    output.table(
        ["node", "state", "holds", "most", "lease", "since", "release", "version", *rules, "pid", "session"],
        [
            [
                Cell(session.node, "bold"),
                _state(session, lives.get(session.id), now),
                str(session.holds),
                str(session.concurrency),
                _lease(session),
                relative_time(session.started_at, now),
                shorten(session.release, 12),
                session.version,
                *([session.tzdata] if rules else []),
                str(session.pid),
                session.id,
            ]
            for session in sessions
        ],
        empty="no node is running; start one: cronsensus run MODULE:ATTR",
        prose=("node", "state"),
        spare=("session", "version", "release", "pid", "most"),
    )
    nodes_proper = [session for session in sessions if session.is_node]
    if len(nodes_proper) == 1 and nodes_proper[0].ended_at is None:
        print_message("one node only: start another copy, and it takes over when this one dies")


def _state(session: SessionView, life: Life | None, now: datetime) -> Cell:
    if life is not None:
        style = style_state(session.state if life.is_alive else life.state).style
        return Cell(f"{life.sentence}, no node" if not session.is_node else str(life.sentence), style)
    # The state of a closed session is reason enough.
    reason = f": {session.ended_why}" if session.ended_why and session.state != "closed" else ""
    ended = "" if session.ended_at is None else f" {relative_time(session.ended_at, now)}"
    return Cell(f"{session.state}{ended}{reason}", style_state(session.state).style)


def _lease(session: SessionView) -> str:
    if session.ended_at is not None:
        return ""
    remaining = session.expires_in
    return (
        f"{brief_duration(remaining)} left" if remaining > timedelta(0) else f"overdue by {brief_duration(-remaining)}"
    )


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
        alive = [session for session in store.sessions() if session.state in {"alive", "draining"}]
        matching = [node_session for node_session in alive if node in {node_session.id, node_session.node}]
        if not matching:
            names = ", ".join(dict.fromkeys(node_session.node for node_session in alive)) or "none"
            raise CommandError(
                f"no live node is called {node!r}", why=f"alive are: {names}", then="cronsensus nodes list"
            )
        if len(matching) > 1 and not every:
            raise CommandError(
                f"{len(matching)} nodes are called {node!r}",
                why="\n".join(f"{node_session.id}  pid {node_session.pid}" for node_session in matching),
                then="give the session instead of the name, or --all",
            )
        drained = [node_session for node_session in matching if store.drain(node_session.id, by=by, why=reason)]
        store.notify()
    if output.printed_json({"draining": [node_session.id for node_session in drained]}):
        return
    for node_session in drained:
        output.line(f"draining {node_session.node}: it holds {node_session.holds} and takes nothing new")
