"""The judge's books where the store loses its last moment.

What stands in the books is what the store said, so they are set back together with it, and every rule goes on from
there: an occurrence whose claim or end was forgotten may run again, a nominal time that was forgotten is decided again.
What happened in the world is not set back: work that began has begun, tokens that were given are given. And what a node
may still believe of a store that forgot is no violation: that its lease lasts, that a claim is its own. But it has to
find out; ``nobody_goes_on`` asks for that in the end.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from typing import Any

from cronsensus.model.states import State
from tests.simulation.cluster.judge.bench import Bench
from tests.simulation.cluster.stage import Attempt, Stage

_BOOKS = ("jobs", "records", "by_key", "by_id", "sessions", "expiring", "waits", "asked", "locks", "given")


class ForgettingRules(Bench):
    """Whatever the store forgets, its nodes come to agree with it again."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self.given: set[int] = set()
        """Tokens that claims were given."""
        self.forgotten: set[int] = set()
        """Those of them that the store gave, and knows nothing of any more."""
        self.began: dict[int, bool] = {}
        """Tokens under which work began, and whether it must not begin again."""

    def remember(self) -> dict[str, Any]:
        """Return the books as they are now."""
        memo: dict[int, Any] = {}
        for book in self.jobs.values():
            for fixed in (book.spec, *(trigger for _, trigger in book.eras)):
                memo[id(fixed)] = fixed
        return deepcopy({name: getattr(self, name) for name in _BOOKS}, memo)

    def forget(self, books: dict[str, Any]) -> None:
        """Go on from books as they were: the store forgot what came after."""
        given = self.given
        for name, book in books.items():
            setattr(self, name, book)
        self.forgotten |= given - self.given
        self.given = given
        for session in self.sessions.values():
            session.forgot = True
        for record in self.records:
            if record.state is State.RUNNING and record.token in self.began:
                record.once = self.began[record.token]
                if record.once and record.token not in record.begun:
                    record.begun.append(record.token)

    def may_be_mistaken(self, work: Attempt) -> bool:
        """Whether the store forgot something on which a node's belief in this work rests."""
        claim = work.call.claim
        session = self.sessions.get(claim.session)
        return claim.token in self.forgotten or session is None or session.forgot

    def nobody_goes_on(self, works: Iterable[Attempt]) -> None:
        """Ask whether what still runs is current, or was told that it is not."""
        for work in works:
            claim, run = work.call.claim, work.call.run
            record = self.by_id.get(claim.id)
            current = record is not None and record.state is State.RUNNING and record.token == claim.token
            if not current and not run.lease_lost.is_set() and not work.node.frozen:
                self.broken("goes on", f"{claim.job} #{claim.id} goes on under {claim.token} on {work.node.name}")
