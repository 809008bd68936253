"""``cronsensus health``: answer a probe, quickly, with a single read of the store."""

from __future__ import annotations

import click

from cronsensus.cli.app import opened_store, read_settled
from cronsensus.cli.errors import FAILED, OK
from cronsensus.cli.group import Command
from cronsensus.cli.output import Cell, Output
from cronsensus.insight.as_data import life_data
from cronsensus.insight.health import Health, quick_health, read_health


@click.command(cls=Command)
@click.option("--node", metavar="NAME", help="This node must be alive, not just any; the host is enough.")
@click.option("--ready", is_flag=True, help="Nodes must also decide: no job may wait past its time for that.")
def health(node: str | None, *, ready: bool) -> int:
    """Answer a probe: exit code 0 if the store is there and a node lives, 1 if none lives, 3 if there is no store.

    A node lives if this host sees its process, if the store's server holds its connection, or if it renewed its lease
    just now: not because its lease goes on. Where only guarded functions and locks are used, no node is needed. With
    --node, a process that only uses those counts as alive while it holds something; and if that is the name of this
    host, only a process of this host counts.

    With --node it also fails where each slot of that node has been held for a minute by a run that is over its timeout
    (or, without one, its slow=): a liveness probe restarts it then. A run of a job that has neither never counts.

    With --ready it also fails where all nodes drain, or where a nominal time passed a minute ago and none has decided
    it: what hangs may look alive. Of several nodes one that hangs is not noticed so while others do its work; that one
    tells /ready of cronsensus run --metrics.

    cronsensus health --node "$HOSTNAME"
    """
    output = Output.current()
    health_now = _read_health(node, ready=ready)
    if output.as_json:
        nodes = [{"node": view.node, "session": view.id, "state": view.state} for view in health_now.nodes]
        others = [{"node": view.node, "session": view.id, **life_data(view, life)} for view, life in health_now.others]
        document = {"ok": health_now.ok, "store": "reachable", "nodes": nodes, "not_alive": others}
        document |= {} if node is None else {"stuck": health_now.stuck}
        output.document(document | ({"not_ready": health_now.not_ready} if ready else {}))
    else:
        output.line(Cell(health_now.sentence, "green" if health_now.ok else "bold red"))
    return OK if health_now.ok else FAILED


def _read_health(node: str | None, *, ready: bool) -> Health:
    settings = read_settled()
    quick = None if settings is None or ready else quick_health(settings.url, settings.namespace, node=node)
    if quick is not None:
        return quick
    with opened_store(writable=True) as store:
        return read_health(store, node=node, ready=ready)
