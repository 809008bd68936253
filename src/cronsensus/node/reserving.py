"""Decide when a node reserves claims, gathers results, and releases reserved claims. Pure.

A strategy beside ``decide``: with ``Memory.pace = None`` nothing is ever reserved, and all else stays the same.
``pace`` computes how many claims are reserved.
"""

from __future__ import annotations

from dataclasses import replace

from cronsensus.node.pace import GATHER_SECONDS, STALLED_AFTER, Pace
from cronsensus.node.situation import Facts, Memory, Release, Sleep


def release_or_gather(memory: Memory, facts: Facts, now: float) -> tuple[Release | Sleep | None, Memory]:
    """Decide whether to release the reserved claims, or to gather results first; ``None`` for neither.

    Claims are released if this node takes nothing new, or is slower than it was: another node may have a free slot and
    start them at once. Results wait while there are enough reserved claims for slots that become free.
    """
    queue = facts.queue
    if memory.pace is None or not queue.held:
        return None, memory
    stalled = queue.waits_for is not None and queue.waits_for > STALLED_AFTER
    if stalled or facts.draining or not facts.trusted:
        return Release(), replace(memory, pace=Pace(since=now, ends=queue.ends))
    gather_for = min(memory.pace.worked_at + GATHER_SECONDS, memory.look_at) - now
    if gather_for > 0 and memory.backlog and not (queue.few or facts.in_doubt or memory.careful.results_alone):
        return Sleep(gather_for), memory
    return None, memory


def plan_reserve(memory: Memory, facts: Facts, now: float) -> tuple[int, Memory]:
    """Decide how many runs to reserve for slots that will soon be free, so that these need not wait for the store.

    Only in a long queue, and only in a step that reports results: so it happens as often as runs end.
    """
    if memory.pace is None or not facts.unsettled:
        return 0, memory
    pace = memory.pace.measured_after(facts.queue.ends, now, full=memory.backlog)
    memory = replace(memory, pace=pace)
    if not memory.backlog or memory.careful.results_alone or not facts.queue.few or facts.given_up:
        return 0, memory
    if facts.in_doubt or facts.draining or not facts.trusted or memory.herd.partition is not None:
        return 0, memory
    return max(0, pace.reserve_limit - facts.queue.held), memory
