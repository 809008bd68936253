"""Who plans what, while more is due than one look takes?

If all nodes looked at the most overdue jobs, all would plan the same ones, and all but one of them in vain. So while
there is more than one look takes, each live node looks at a share of its own; all compute the shares alike from who
else is there. Whoever is through with its own looks at everything again, and so helps those who are slower, or dead.

It is only an order of politeness: where nodes do not agree on the shares, a plan loses its race, or one look finds
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from cronsensus.stores.values import Share, View


class Sharing:
    """What this node looks at next.

    Attributes:
        share: the part of the due jobs for the next look; ``None``: all.
    """

    def __init__(self) -> None:
        self.share: Share | None = None
        self._helping = False

    def begins(self, session: str, view: View) -> bool:
        """Whether a look shows that it is time to share: then the next one is at this node's share."""
        if self.share is not None:
            return False
        self._helping &= view.more
        if view.more and not self._helping:
            self.share = share_of(session, view.sessions)
        return self.share is not None

    def fired(self, view: View, won: int, lost: int) -> bool:
        """Take in what came of a look; return whether to look again at once."""
        if self.share is not None:
            if won and view.more:
                return True
            # Through with it, or it leads nowhere: the next look is at everything.
            self.share, self._helping = None, True
            return won > 0 or not view.jobs
        if lost > won:
            # In the way of those whose share it is. Let them be, and see what has come to its own meanwhile.
            self._helping = False
        return won > 0 and view.more


def share_of(session: str, sessions: Sequence[str]) -> Share:
    """Return the share of ``session`` among live ``sessions``; all, if it is not among those that a look shows."""
    return Share(sessions.index(session), len(sessions)) if session in sessions else Share(0, 1)
