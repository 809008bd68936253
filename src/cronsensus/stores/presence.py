"""Signs of life: what a server lets go of when a process's connection ends, and what is concluded from that.

A process shows the sign of its session on two connections: on one that hears at once when it is cut off and comes
back, and on another one, which is used with each renewal. Once the server itself shows the second sign, the session's
row says so. Others ask the server for signs in their looks:

- the sign is there: a process shows it;
- it is not, and was there while the connection that asks was open: the process is gone, or both of its connections were
  cut. One that lives comes back at once, so the decision needs two looks (``membership.liveness``);
- it was never there while that connection was open: nothing. After a restart of the server, or on another one, the
  connection that asks is a new one too. So no identity of a server has to be kept beside a sign.

A sign was there while a connection was open if this connection has seen it, or if the session was opened after this
connection was first used and says that it showed its sign. A server that copies another one is not asked: what its
rows say happened elsewhere.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

MOST_UNANSWERED = 5
"""After so many looks without a sign of a session none is expected: it is of an earlier release, or has a pooler."""


class SignRecord(NamedTuple):
    """What the row of a session says.

    Attributes:
        number: in the order in which sessions were opened.
        shown: whether it showed its sign; ``None``: it never said, as in an earlier release.
    """

    number: int
    shown: bool | None


@dataclass(slots=True)
class Observations:
    """What is known through one connection; a new connection has new observations.

    Attributes:
        since: the number of the newest session when signs were first asked for; ``None``: they never were.
        asked: how often the sign of each session was asked for; one that has just begun shows it a moment later.
        seen: sessions whose sign was there when last asked for, or before.
        silent: sessions whose row did not yet say, when last read, that they showed their sign.
        blind: signs mean nothing here.
    """

    since: int | None = None
    asked: Mapping[str, int] = field(default_factory=dict)
    seen: frozenset[str] = frozenset()
    silent: frozenset[str] = frozenset()
    blind: bool = False

    def worth_asking(self, holding: frozenset[str], every: frozenset[str]) -> bool:
        """Whether to ask for ``every`` session: at first, while one of them holds something, or may show its sign."""
        return not self.blind and (self.since is None or bool(holding) or any(map(self.may_come, every)))

    def may_come(self, session: str) -> bool:
        """Whether the sign of a session was not seen yet, and not asked for in vain often enough."""
        return session not in self.seen and self.asked.get(session, 0) < MOST_UNANSWERED

    def note(self, present: Collection[str], missing: Mapping[str, SignRecord], newest: int) -> tuple[str, ...]:
        """Take in an answer; return the sessions whose sign was there while this connection was open, and is gone.

        Args:
            present: sessions whose sign is there.
            missing: the others that were asked for.
            newest: the number of the newest session there is.
        """
        since = self.since = newest if self.since is None else self.since
        every = {*present, *missing}
        self.asked = {one: self.asked.get(one, 0) + 1 for one in every}
        self.seen = (self.seen & every).union(present)
        gone = (
            session
            for session, noted in missing.items()
            if noted.shown is not False
            and (session in self.seen or (noted.shown and (noted.number > since or session in self.silent)))
        )
        missed = tuple(sorted(gone))
        # What said nothing through this connection and says something later has shown its sign in between.
        still = (self.silent & every).difference(present)
        self.silent = still.union(session for session, noted in missing.items() if noted.shown is None)
        return missed


def detach_inherited(file: int) -> None:
    """In a forked child: replace its copy of a parent's connection by nothing.

    The copy would keep the connection, and with it the sign of life, open after the parent's death.
    """
    nothing = os.open(os.devnull, os.O_RDWR)
    with contextlib.suppress(OSError):
        os.dup2(nothing, file, inheritable=False)
    os.close(nothing)
