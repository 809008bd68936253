"""``cronsensus health``: the answer to a probe. Quick, one look, nothing drawn."""

from __future__ import annotations

from collections.abc import Sequence

import click

from cronsensus.cli.app import opened_store, settled
from cronsensus.cli.errors import FAILED, OK
from cronsensus.cli.group import Command
from cronsensus.cli.output import Cell, Output
from cronsensus.insight.live_nodes import is_alive, needs_no_node
from cronsensus.insight.words import counted
from cronsensus.model.session import SessionView
from cronsensus.stores.sql.probe import Living, probe


@click.command(cls=Command)
@click.option("--node", metavar="NAME", help="This node must be alive, not just any; the host is enough.")
def health(node: str | None) -> int:
    """Answer a probe: exit code 0 if the store is there and a node lives, 1 if none lives, 3 if there is no store.

    Where only guarded functions and locks are used, no node is needed. With --node, a process that only uses those
    counts as alive while it holds something.

    cronsensus health --node "$HOSTNAME"
    """
    output = Output.current()
    living, idle = _look()
    # The default name is host:pid, and a probe inside of a container knows only the host.
    called = {one.id: {one.node, one.node.rpartition(":")[0], one.id} for one in living}
    found = [one for one in living if (one.is_node if node is None else node in called[one.id])]
    if found or node is not None:
        idle = None
    ok = bool(found) or idle is not None
    if output.as_json:
        names = [{"node": one.node, "session": one.id, "state": one.state} for one in found]
        output.document({"ok": ok, "store": "reachable", "nodes": names})
    elif idle is not None:
        output.line(Cell(f"ok: the store answers, no node is alive, and {idle}", "green"))
    elif ok:
        output.line(Cell(f"ok: the store answers, {counted(len(found), 'live node')}", "green"))
    else:
        what = "no node is alive" if node is None else f"node {node!r} is not alive"
        output.line(Cell(f"fail: the store answers, but {what}", "bold red"))
    return OK if ok else FAILED


def _look() -> tuple[Sequence[Living | SessionView], str | None]:
    """Return the sessions that live, and why no node is needed, if none is."""
    known = settled()
    quick = None if known is None else probe(known.url, known.namespace)
    if quick is not None:
        return quick.living, None if quick.needs_a_node else "guarded functions and locks need none"
    with opened_store(writable=True) as store:
        sessions = store.sessions()
        return [one for one in sessions if is_alive(one)], needs_no_node(store, sessions)
