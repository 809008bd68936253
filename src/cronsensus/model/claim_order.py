"""The order in which pending occurrences are claimed.

By ``priority``, the highest first. Within a priority by class, so that a batch or a long queue does not hold up the
schedule::

    0  runs of the schedule, of people and of start-up tasks, and a batch whose items are done
    1  what was enqueued
    2  items of a batch, and what was backfilled

Within a class by due time, then by age. A store keeps priority and class as a single number, the level: the highest is
claimed first, so a single index gives the whole order.

For every tenth claim of a node, classes are ignored: the oldest due occurrence of a priority comes first. Only a finite
number of occurrences is due before a given one, later ones never get ahead of it, and each such claim takes at least
one of them. So every occurrence has its turn, however many come due in the classes before it. This holds within a
priority: a higher ``priority`` means that the others wait.
"""

from __future__ import annotations

from zlib import crc32

from cronsensus.model.states import Origin

CLASSES = 3
OLDEST_EVERY = 10
"""One claim of this many ignores classes."""
_CLASS_OF_ORIGIN = {Origin.ENQUEUE: 1, Origin.BATCH: 1, Origin.BACKFILL: 2}


def level_of(priority: int, origin: Origin, parent: int | None = None) -> int:
    """Return the level of a new occurrence; ``parent``: the batch that it is an item of."""
    behind = 2 if parent is not None else _CLASS_OF_ORIGIN.get(origin, 0)
    return CLASSES * priority + CLASSES - 1 - behind


def level_when_woken(level: int, listed: int | None) -> int:
    """Return the level of a parked occurrence that is woken; ``listed``: how many items it had, if it is a batch."""
    return level if listed is None else first_level(priority_of(level))


def first_level(priority: int) -> int:
    """Return the highest level of a priority."""
    return CLASSES * priority + CLASSES - 1


def priority_of(level: int) -> int:
    """Return the priority of a level."""
    return level // CLASSES


def ignores_classes(session: str, claims: int) -> bool:
    """Whether a node's next claim ignores classes; ``claims``: how many of its claims brought work so far.

    Which of ten it is depends on the session, so that nodes that live for less than ten claims do their share, too.
    """
    return (crc32(session.encode()) + claims) % OLDEST_EVERY == 0
