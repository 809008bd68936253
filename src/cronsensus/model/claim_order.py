"""What goes first: the order in which pending occurrences are claimed.

By ``priority``, the highest first. Within one priority by class, so that a batch or a long queue does not hold up the
schedule::

    0  what the schedule, a person or a start-up asked for, and a batch whose items are done
    1  what was enqueued
    2  items of a batch, and what was backfilled

Within one class by due time, then by age. A store keeps priority and class as one number, the level: the higher is
claimed first, so one index gives the whole order.

For each tenth claim of a node the class has no say: the oldest due of a priority comes first, whatever its class. At
any moment only so many are due before a given one, and none that comes later is; each such claim takes at least one of
them. So whatever waits has its turn, however much comes due in the classes before it. It stays within one priority:
who sets ``priority`` means that the others wait.
"""

from __future__ import annotations

from zlib import crc32

from cronsensus.model.states import Origin

CLASSES = 3
EVERY = 10
"""One claim of so many is without classes."""
_OF_ORIGIN = {Origin.ENQUEUE: 1, Origin.BATCH: 1, Origin.BACKFILL: 2}


def level_of(priority: int, origin: Origin, parent: int | None = None) -> int:
    """Return the level of a new occurrence; ``parent``: the batch that it is an item of."""
    behind = 2 if parent is not None else _OF_ORIGIN.get(origin, 0)
    return CLASSES * priority + CLASSES - 1 - behind


def level_when_woken(level: int, listed: int | None) -> int:
    """Return the level of a sleeper that is woken; ``listed``: how many items it had, if it is a batch."""
    return level if listed is None else first_level(priority_of(level))


def first_level(priority: int) -> int:
    """Return the highest level of a priority."""
    return CLASSES * priority + CLASSES - 1


def priority_of(level: int) -> int:
    """Return the priority of a level."""
    return level // CLASSES


def ignores_classes(session: str, claims: int) -> bool:
    """Whether a node's next claim is without classes; ``claims``: how many of its claims brought work so far.

    Which of ten it is depends on the session: nodes that live for less than ten claims have their part of them, too.
    """
    return (crc32(session.encode()) + claims) % EVERY == 0
