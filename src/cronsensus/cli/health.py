"""``cronsensus health``: the answer to a probe. Floor 7: quick, one look, nothing drawn."""

from __future__ import annotations

import click

from cronsensus.cli.app import opened_store
from cronsensus.cli.errors import FAILED, OK
from cronsensus.cli.group import Command
from cronsensus.cli.output import Cell, Output
from cronsensus.cli.waiting import alive
from cronsensus.cli.words import counted


@click.command(cls=Command)
@click.option("--node", metavar="NAME", help="This node must be alive, not just any; the host is enough.")
def health(node: str | None) -> int:
    """Answer a probe: exit code 0 if the store is there and a node lives, 1 if none lives, 3 if there is no store.

    cronsensus health --node "$HOSTNAME"
    """
    output = Output.current()
    with opened_store(writable=True) as store:
        sessions = alive(store)
    # The default name is host:pid, and a probe inside of a container knows only the host.
    found = [one for one in sessions if node in {None, one.node, one.node.rpartition(":")[0], one.id}]
    ok = bool(found)
    if output.as_json:
        names = [{"node": one.node, "session": one.id, "state": one.state} for one in found]
        output.document({"ok": ok, "store": "reachable", "nodes": names})
    elif ok:
        output.line(Cell(f"ok: the store answers, {counted(len(found), 'live node')}", "green"))
    else:
        who = "no node is alive" if node is None else f"node {node!r} is not alive"
        output.line(Cell(f"fail: the store answers, but {who}", "bold red"))
    return OK if ok else FAILED
