"""Rules on named locks: one holder at a time, each with a greater token than all before."""

from __future__ import annotations

from dataclasses import dataclass

from cronsensus.model.session import LockGrant
from tests.simulation.cluster.judge.bench import Bench, Seen
from tests.simulation.cluster.judge.books import FUZZ, to_micros
from tests.simulation.cluster.stage import Stage


@dataclass(slots=True)
class LockBook:
    """A lock that was granted; ``until`` is the end of its time in true microseconds."""

    grant: LockGrant
    session: str | None
    until: int


class LockRules(Bench):
    """A lock ends with its time, with its session, or when its holder says so, and not before."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self.locks: dict[str, LockBook] = {}
        self._last_lock_token = 0

    def lock(self, seen: Seen) -> None:
        """Look at who got a lock, or did not."""
        name, grant = seen.args[0], seen.answer
        if grant is None:
            if not self.is_held(name, -FUZZ):
                self.broken("lock", f"{name} is free and was refused to {seen.args[1]}")
            return
        if self.is_held(name, FUZZ):
            self.broken("lock", f"{name} was given to {grant.holder}, and {self.locks[name].grant.holder} holds it")
        if grant.token <= self._last_lock_token:
            self.broken("lock", f"{name} got the token {grant.token} after {self._last_lock_token}")
        self._last_lock_token = grant.token
        self.locks[name] = LockBook(grant, seen.kwargs["session"], self.micros + to_micros(seen.kwargs["ttl"]))

    def extend(self, seen: Seen) -> None:
        """Look at a lock that was extended, or is lost."""
        grant = seen.args[0]
        if self._may_answer(grant, seen.answer, "extended"):
            self.locks[grant.name].until = self.micros + to_micros(seen.kwargs["ttl"])

    def unlock(self, seen: Seen) -> None:
        """Look at a lock that was freed, or was lost before."""
        grant = seen.args[0]
        if self._may_answer(grant, seen.answer, "freed"):
            del self.locks[grant.name]

    def _may_answer(self, grant: LockGrant, answer: bool, what: str) -> bool:
        """Ask whether the answer fits; return whether the lock is still the grant's."""
        book = self.locks.get(grant.name)
        mine = book is not None and book.grant == grant
        if answer and not (mine and self.is_held(grant.name, -FUZZ)):
            self.broken("lock", f"{grant} was {what}, and is over")
        if not answer and mine and self.is_held(grant.name, FUZZ):
            self.broken("lock", f"{grant} could not be {what}, and is not over")
        return answer and mine

    def is_held(self, name: str, margin: int) -> bool:
        """Whether a lock is held, for certain (a positive ``margin``, in microseconds) or perhaps (a negative one)."""
        book = self.locks.get(name)
        if book is None or self.micros + margin >= book.until:
            return False
        return book.session is None or self.sessions[book.session].alive(self.micros + margin)
