"""``cronsensus health``: the answer to a probe. Floor 7: quick, one look, nothing drawn."""

from __future__ import annotations

import click

from cronsensus.cli.app import opened_store
from cronsensus.cli.errors import FAILED, OK
from cronsensus.cli.group import Command
from cronsensus.cli.output import Cell, Output
from cronsensus.cli.waiting import is_alive, needs_no_node
from cronsensus.cli.words import counted


@click.command(cls=Command)
@click.option("--node", metavar="NAME", help="This node must be alive, not just any; the host is enough.")
def health(node: str | None) -> int:
    """Answer a probe: exit code 0 if the store is there and a node lives, 1 if none lives, 3 if there is no store.

    Where only guarded functions and locks are used, no node is needed. With --node, a process that only uses those
    counts as alive while it holds something.

    cronsensus health --node "$HOSTNAME"
    """
    output = Output.current()
    with opened_store(writable=True) as store:
        sessions = store.sessions()
        living = [one for one in sessions if is_alive(one)]
        # The default name is host:pid, and a probe inside of a container knows only the host.
        called = {one.id: {one.node, one.node.rpartition(":")[0], one.id} for one in living}
        found = [one for one in living if (not one.guest if node is None else node in called[one.id])]
        idle = None if found or node is not None else needs_no_node(store, sessions)
    ok = bool(found) or idle is not None
    if output.as_json:
        names = [{"node": one.node, "session": one.id, "state": one.state} for one in found]
        output.document({"ok": ok, "store": "reachable", "nodes": names})
    elif idle is not None:
        output.line(Cell(f"ok: the store answers, no node is alive, and {idle}", "green"))
    elif ok:
        output.line(Cell(f"ok: the store answers, {counted(len(found), 'live node')}", "green"))
    else:
        who = "no node is alive" if node is None else f"node {node!r} is not alive"
        output.line(Cell(f"fail: the store answers, but {who}", "bold red"))
    return OK if ok else FAILED
