"""The answer to a probe: is the store there, and does a node live?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cronsensus.insight.live_nodes import is_alive, needs_no_node
from cronsensus.insight.words import counted
from cronsensus.model.session import SessionView
from cronsensus.stores.base import Store
from cronsensus.stores.sql.probe import Living, probe


@dataclass(frozen=True, slots=True)
class Health:
    """The answer.

    Attributes:
        nodes: those alive of which it was asked: all nodes, or the sessions of the one that was named.
        node: the name, if it was asked of one.
        idle: why no node is needed, if none is alive and none is needed.
    """

    nodes: tuple[Living | SessionView, ...]
    node: str | None = None
    idle: str | None = None

    @property
    def ok(self) -> bool:
        """Whether all is well."""
        return bool(self.nodes) or self.idle is not None

    @property
    def sentence(self) -> str:
        """The answer in words."""
        if self.nodes:
            return f"ok: the store answers, {counted(len(self.nodes), 'live node')}"
        if self.idle is not None:
            return f"ok: the store answers, no node is alive, and {self.idle}"
        what = "no node is alive" if self.node is None else f"node {self.node!r} is not alive"
        return f"fail: the store answers, but {what}"


def health(store: Store, *, node: str | None = None) -> Health:
    """Return the health of the cluster, or of one node.

    Args:
        store: asked with two or three reads.
        node: the name of a node, its host alone, or a session.
    """
    sessions = store.sessions()
    return _judged([one for one in sessions if is_alive(one)], node, needs_no_node(store, sessions))


def quick_health(url: str, namespace: str, *, node: str | None = None) -> Health | None:
    """Return the same without opening the store; ``None``: it cannot be told so, and the store must be asked."""
    quick = probe(url, namespace)
    if quick is None:
        return None
    return _judged(quick.living, node, None if quick.needs_a_node else "guarded functions and locks need none")


def _judged(living: Sequence[Living | SessionView], node: str | None, idle: str | None) -> Health:
    if node is None:
        found = tuple(one for one in living if one.is_node)
        return Health(found, idle=None if found else idle)
    # The default name is host:pid, and a probe inside of a container knows only the host.
    return Health(tuple(one for one in living if node in {one.node, one.node.rpartition(":")[0], one.id}), node)
