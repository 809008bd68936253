"""Signs of life: what a server lets go of when a process's connection ends, and what is concluded from that.

A process shows the sign of its session on two connections: on one that hears at once when it is cut off and comes back,
and on another one, which is used with each renewal. Others ask the server for signs in their looks:

- the sign is there: a process shows it;
- it was there before, by the same connection of the one that asks, and is gone: the process is gone, or both of its
  connections were cut. One that lives comes back at once, so the decision needs two looks (``membership.liveness``);
- it was never seen: nothing. After a restart of the server, or on another server, no sign was seen yet, because the
  connection that asks is a new one too.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection
from dataclasses import dataclass


@dataclass(slots=True)
class Eyes:
    """What was seen through one connection; a new connection has new eyes.

    Attributes:
        asked: sessions whose sign was asked for at least once.
        seen: sessions whose sign was there when last asked for, or before.
    """

    asked: frozenset[str] = frozenset()
    seen: frozenset[str] = frozenset()

    def worth_asking(self, holding: frozenset[str], others: frozenset[str]) -> frozenset[str]:
        """Return the sessions to ask for: all if one of them holds something, or was never asked for; else none."""
        every = holding | others
        return every if holding or not self.asked >= every else frozenset()

    def note(self, asked: frozenset[str], present: Collection[str]) -> tuple[str, ...]:
        """Take in an answer; return the sessions whose sign was seen before and is gone."""
        self.asked = asked
        self.seen = (self.seen & asked).union(present)
        return tuple(sorted(self.seen.difference(present)))


def hollow(file: int) -> None:
    """In a forked child: replace its copy of a parent's connection by nothing.

    The copy would keep the connection, and with it the sign of life, open after the parent's death.
    """
    nothing = os.open(os.devnull, os.O_RDWR)
    with contextlib.suppress(OSError):
        os.dup2(nothing, file, inheritable=False)
    os.close(nothing)
