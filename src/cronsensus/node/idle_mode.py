"""How does a node sleep that leaves due times to the active set, and what ends that? Pure."""

from __future__ import annotations

from dataclasses import replace

from cronsensus.model.session import SessionView
from cronsensus.node.backoff import lot
from cronsensus.node.situation import Facts, Idle, Memory, Todo
from cronsensus.stores.values import View

HINTED = (0.05, 0.1)
"""Least and most seconds between a notification and the look of an idle node: active nodes go first."""
NEIGHBOURS_KEPT = 60.0
"""Seconds between two readings of which other nodes are on this host."""


def neighbours_to_check(memory: Memory, now: float) -> tuple[SessionView, ...]:
    """Return the sessions of this host whose processes are to be looked at now: ``Facts.gone`` tells which are gone."""
    idle = memory.idle
    return memory.neighbours if idle is not None and idle.watch_at <= now < idle.until else ()


def go_on(
    idle: Idle, neighbours: tuple[SessionView, ...], facts: Facts, now: float
) -> tuple[Idle | None, tuple[SessionView, ...]]:
    """Return how the sleep in idle mode goes on (``None``: it is time to look), and which neighbours still live."""
    until, watch_at = idle.until, idle.watch_at
    if now < watch_at:
        # Called before the time that was asked for: a notification. All idle nodes get it in the same instant.
        least, most = HINTED
        until = min(until, now + least + lot(f"{facts.session} {now:.3f}") * (most - least))
    elif now < until:
        alive = tuple(one for one in neighbours if one.id not in facts.gone)
        if len(alive) < len(neighbours):
            return None, alive
        watch_at = now + facts.watch
    return (Idle(until=until, watch_at=watch_at) if now < until else None), neighbours


def begin(memory: Memory, view: View, facts: Facts, now: float, *, runs: bool) -> tuple[Todo, Memory]:
    """Decide how to sleep in idle mode.

    What an idle node watches all the same costs the store nothing: the processes of its own host, since no node on
    another host can tell that one of them is dead. ``runs``: other nodes run something now.
    """
    watch_at, read = memory.look_at, False
    if facts.fast_evidence and (begins := view.now if runs else memory.expected) is not None:
        watch_at = max(now, memory.looked_at + (begins - view.now).total_seconds()) + facts.watch
        read = now - memory.neighbours_at > NEIGHBOURS_KEPT and watch_at < memory.look_at
    idle = Idle(until=memory.look_at, watch_at=watch_at)
    sleep = max(0.0, min(watch_at, memory.look_at) - now)
    return Todo(sleep=sleep, read_neighbours=read, renew=not facts.trusted), replace(memory, idle=idle)
