"""Presence: a lock or subscription that the server drops when a process's connection ends (a sign of life).

A process shows the sign of its session on two connections: the one that listens, which notices at once when it is cut
off and reconnects, and the one that renews the session. Once the server itself shows the second sign, the session's row
records that. Peers ask the server for signs in their looks. The answers mean:

- the sign is there: the process shows it;
- the sign is missing, and was there while the asking connection was open: the process is gone, or both of its
  connections were cut. A live process reconnects at once, so a decision needs two looks (``membership.liveness``);
- the sign was never there while the asking connection was open: nothing. After a restart of the server, or on another
  server, the asking connection is a new one too. So a sign need not be stored with an identity of the server.

A sign was there while a connection was open if that connection has seen it, or if the session's row records it and did
not when the connection was first used. A node starts to observe when it opens its session: if several start together,
one of them may run something and die before the first look of the others. A replica gives no answer: its rows are
about connections to another server.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

MOST_UNANSWERED_LOOKS = 5
"""After so many looks without its sign, a session is not expected to show it: it is behind a pooler."""


class SignRecord(NamedTuple):
    """What a session's row records about its sign.

    Attributes:
        number: of the session, in the order of opening.
        shown: whether it showed its sign; ``None``: not recorded: a new session, or one behind a pooler.
    """

    number: int
    shown: bool | None


@dataclass(slots=True)
class Observations:
    """The signs that a connection has observed. A new connection begins with none.

    Attributes:
        since: the number of the newest session when the connection began to observe; ``None``: it has not.
        asked: how often the sign of each session was asked for; a new session shows its sign a moment later.
        seen: sessions whose sign this connection has seen.
        silent: sessions whose row, when last read, did not record a sign yet.
        blind: signs mean nothing on this server.
    """

    since: int | None = None
    asked: Mapping[str, int] = field(default_factory=dict)
    seen: frozenset[str] = frozenset()
    silent: frozenset[str] = frozenset()
    blind: bool = False

    def start_observing(self, silent: Iterable[str], newest: int) -> None:
        """Begin to observe, if this connection has not; ``silent``: sessions whose rows record no sign yet."""
        if self.since is None:
            self.since, self.silent = newest, frozenset(silent)

    def worth_asking(self, holding: frozenset[str], every: frozenset[str]) -> bool:
        """Whether to read the signs of ``every`` session: at first, and while one has runs or may show its first."""
        return not self.blind and (self.since is None or bool(holding) or any(map(self.may_come, every)))

    def may_come(self, session: str) -> bool:
        """Whether a session may still show its first sign: it was missing in only a few looks."""
        return session not in self.seen and self.asked.get(session, 0) < MOST_UNANSWERED_LOOKS

    def note(self, present: Collection[str], missing: Mapping[str, SignRecord], newest: int) -> tuple[str, ...]:
        """Record an answer; return the sessions whose sign was there while this connection was open, and is gone.

        Args:
            present: sessions that show their sign.
            missing: the other sessions that were asked for.
            newest: the number of the newest session there is.
        """
        since = self.since = newest if self.since is None else self.since
        asked_for = {*present, *missing}
        self.asked = {session: self.asked.get(session, 0) + 1 for session in asked_for}
        self.seen = (self.seen & asked_for).union(present)
        withdrawn = (
            session
            for session, record in missing.items()
            if record.shown is not False
            and (session in self.seen or (record.shown and (record.number > since or session in self.silent)))
        )
        absent = tuple(sorted(withdrawn))
        # If a session's row recorded nothing at first and a sign later, the sign was shown in between.
        still_silent = (self.silent & asked_for).difference(present)
        self.silent = still_silent.union(session for session, record in missing.items() if record.shown is None)
        return absent


def detach_inherited(file: int) -> None:
    """In a forked child: close its copy of a connection of the parent, without sending anything to the server.

    An open copy would keep the connection, and with it the sign of life, after the death of the parent.
    """
    nothing = os.open(os.devnull, os.O_RDWR)
    with contextlib.suppress(OSError):
        os.dup2(nothing, file, inheritable=False)
    os.close(nothing)
