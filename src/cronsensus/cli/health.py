"""``cronsensus health``: the answer to a probe. Floor 7: quick, one look, nothing drawn."""

from __future__ import annotations

from datetime import timedelta

import click

from cronsensus.cli.app import opened_store
from cronsensus.cli.errors import FAILED, OK
from cronsensus.cli.group import Command
from cronsensus.cli.output import Cell, Output


@click.command(cls=Command)
@click.option("--node", metavar="NAME", help="This node must be alive, not just any; the host is enough.")
def health(node: str | None) -> int:
    """Answer a probe: exit code 0 if the store is there and a node lives, 1 if none lives, 3 if there is no store.

    cronsensus health --node "$HOSTNAME"
    """
    output = Output.current()
    with opened_store() as store:
        sessions = [one for one in store.sessions() if one.state in {"alive", "draining"}]
    # The default name is host:pid, and a probe inside of a container knows only the host.
    alive = [
        one
        for one in sessions
        if one.expires_in > timedelta(0) and node in {None, one.node, one.node.rpartition(":")[0], one.id}
    ]
    ok = bool(alive)
    if output.as_json:
        names = [{"node": one.node, "session": one.id, "state": one.state} for one in alive]
        output.document({"ok": ok, "store": "reachable", "nodes": names})
    elif ok:
        output.line(Cell(f"ok: the store answers, {len(alive)} live node{'' if len(alive) == 1 else 's'}", "green"))
    else:
        who = "no node is alive" if node is None else f"node {node!r} is not alive"
        output.line(Cell(f"fail: the store answers, but {who}", "bold red"))
    return OK if ok else FAILED
