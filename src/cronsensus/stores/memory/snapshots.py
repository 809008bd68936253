"""A memory store that loses its last moment, as real stores may: for tests and simulations.

``take_snapshot`` copies everything; ``restore_snapshot`` puts the copy back. Writes in between were acknowledged and
are gone, as after a failover to a standby that lags. Tokens go on from where they were, because no store gives one
twice. Handles, clocks and wait queues belong to processes, and stay.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Any

from cronsensus.stores.memory import MemoryStore
from cronsensus.stores.memory.state import JobRow, OccurrenceRow, SessionRow, Sorted, Space, World


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a store held at one moment. It may be restored more than once."""

    spaces: dict[str, dict[str, Any]]
    counters: dict[str, int]


def take_snapshot(store: MemoryStore) -> Snapshot:
    """Return what the store holds now, in all namespaces."""
    world = store._world  # noqa: SLF001 - a part of the store
    with world.changed:
        return Snapshot({name: _copy_space(vars(space)) for name, space in world.spaces.items()}, dict(world.counters))


def restore_snapshot(store: MemoryStore, snapshot: Snapshot) -> None:
    """Let the store forget everything since ``snapshot``, in all namespaces, without a notification."""
    world: World = store._world  # noqa: SLF001 - a part of the store
    with world.changed:
        for name, space in world.spaces.items():
            vars(space).update(_copy_space(snapshot.spaces[name]) if name in snapshot.spaces else _empty_world(world))
        world.counters = {**snapshot.counters, "token": world.counters.get("token", 0)}


def _empty_world(world: World) -> dict[str, Any]:
    return _copy_space(vars(Space(world)))


def _copy_space(space: dict[str, Any]) -> dict[str, Any]:
    """Return the rows of a space and the indexes that lead to them, as others that hold the same."""
    jobs: dict[int, JobRow] = {id(row): copy(row) for row in space["jobs_by_id"].values()}
    rows: dict[int, OccurrenceRow] = {id(row): copy(row) for row in space["occurrences"].values()}
    sessions: dict[int, SessionRow] = {id(row): copy(row) for row in space["sessions"].values()}
    for row in rows.values():
        row.job, row.runs, row.lines = jobs[id(row.job)], list(row.runs), list(row.lines)
    for job in jobs.values():
        job.eras, job.pauses, job.ranges = list(job.eras), list(job.pauses), list(job.ranges)
        job.pending, job.running = set(job.pending), set(job.running)
        job.ids, job.serial, job.final = _copy_sorted(job.ids), _copy_sorted(job.serial), _copy_sorted(job.final)
        job.keys = {key: rows[id(row)] for key, row in job.keys.items()}
        job.nominal = {time: [rows[id(row)] for row in occurrences] for time, occurrences in job.nominal.items()}
    for session in sessions.values():
        session.running, session.locks = _copy_sorted(session.running), set(session.locks)
    return {
        "jobs": {name: jobs[id(row)] for name, row in space["jobs"].items()},
        "jobs_by_id": {number: jobs[id(row)] for number, row in space["jobs_by_id"].items()},
        "names": _copy_sorted(space["names"]),
        "due": _copy_sorted(space["due"]),
        "occurrences": {number: rows[id(row)] for number, row in space["occurrences"].items()},
        "ids": _copy_sorted(space["ids"]),
        "pending": {level: _copy_sorted(waiting) for level, waiting in space["pending"].items()},
        "expiring": _copy_sorted(space["expiring"]),
        "running": set(space["running"]),
        "children": {batch: copy(counts) for batch, counts in space["children"].items()},
        "parked": _copy_sorted(space["parked"]),
        "items": {batch: _copy_sorted(items) for batch, items in space["items"].items()},
        "sessions": {name: sessions[id(row)] for name, row in space["sessions"].items()},
        "open": {name: sessions[id(row)] for name, row in space["open"].items()},
        "open_nodes": {name: sessions[id(row)] for name, row in space["open_nodes"].items()},
        "releases": dict(space["releases"]),
        "locks": {place: copy(row) for place, row in space["locks"].items()},
        "trail": list(space["trail"]),
    }


def _copy_sorted(keys: Sorted[Any]) -> Sorted[Any]:
    other: Sorted[Any] = Sorted()
    for key in keys:
        other.add(key)
    return other
