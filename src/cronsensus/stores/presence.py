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
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

IN_VAIN = 5
"""After so many looks without a sign of a session none is expected: it is of an earlier release, or has a pooler."""


@dataclass(slots=True)
class Eyes:
    """What was seen through one connection; a new connection has new eyes.

    Attributes:
        asked: how often the sign of each session was asked for; one that has just begun shows it a moment later.
        seen: sessions whose sign was there when last asked for, or before.
    """

    asked: Mapping[str, int] = field(default_factory=dict)
    seen: frozenset[str] = frozenset()

    def worth_asking(self, holding: frozenset[str], others: frozenset[str]) -> frozenset[str]:
        """Return the sessions to ask for: all if one of them holds something, or may show its sign soon; else none."""
        every = holding | others
        return every if holding or any(self.may_come(one) for one in every) else frozenset()

    def may_come(self, session: str) -> bool:
        """Whether the sign of a session was not seen yet, and not asked for in vain often enough."""
        return session not in self.seen and self.asked.get(session, 0) < IN_VAIN

    def note(self, asked: frozenset[str], present: Collection[str]) -> tuple[str, ...]:
        """Take in an answer; return the sessions whose sign was seen before and is gone."""
        self.asked = {one: self.asked.get(one, 0) + 1 for one in asked}
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
