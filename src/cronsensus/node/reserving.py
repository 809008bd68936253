"""When are runs reserved, when are results gathered, and when does what is reserved go back? Pure.

A strategy of the node beside ``decide``: with ``Memory.pace = None`` nothing is ever reserved, and all else is as it
was. See ``pace`` for how many.
"""

from __future__ import annotations

from dataclasses import replace

from cronsensus.node.pace import GATHER, STALLED, Pace
from cronsensus.node.situation import Facts, Memory, Release, Sleep


def release_or_gather(memory: Memory, facts: Facts, now: float) -> tuple[Release | Sleep | None, Memory]:
    """Decide whether to release the reserved claims, or to gather results first; ``None`` for neither.

    It goes back if this node is to take nothing new, or is slower than it was: others may have free slots, and begin it
    at once. Results wait while the slots have enough to do meanwhile.
    """
    queue = facts.queue
    if memory.pace is None or not queue.held:
        return None, memory
    stalled = queue.waits_for is not None and queue.waits_for > STALLED
    if stalled or facts.draining or not facts.trusted:
        return Release(), replace(memory, pace=Pace(since=now, ends=queue.ends))
    left = min(memory.pace.worked_at + GATHER, memory.look_at) - now
    if left > 0 and memory.hungry and not (queue.few or facts.in_doubt or memory.careful.results_alone):
        return Sleep(left), memory
    return None, memory


def plan_reserve(memory: Memory, facts: Facts, now: float) -> tuple[int, Memory]:
    """Decide how many runs to claim for slots that are soon free, so that these need not wait for the store.

    Only in a long queue, and with results: at the pace at which these come.
    """
    if memory.pace is None or not facts.unsettled:
        return 0, memory
    pace = memory.pace.measured_after(facts.queue.ends, now, full=memory.hungry)
    memory = replace(memory, pace=pace)
    if not memory.hungry or memory.careful.results_alone or not facts.queue.few or facts.given_up:
        return 0, memory
    if facts.in_doubt or facts.draining or not facts.trusted or memory.herd.partition is not None:
        return 0, memory
    return max(0, pace.reserve_limit - facts.queue.held), memory
