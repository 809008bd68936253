"""A count kept outside the system: what may happen at each verb, reckoned from what happened before.

The judge sees every verb in the moment in which the store carried it out (not when, or whether, a node got the
answer), and every piece of work that begins or ends. It keeps books of its own, in the plainest way, and compares. It
never asks the store what to think; what the ledger says in the end is compared by ``reckoning``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cronsensus.model.acquiring import NotWon
from tests.simulation.cluster.judge.bench import Seen
from tests.simulation.cluster.judge.creating import CreatingRules
from tests.simulation.cluster.judge.locks import LockRules
from tests.simulation.cluster.judge.running import RunningRules
from tests.simulation.cluster.judge.sessions import SessionRules
from tests.simulation.cluster.stage import Stage

__all__ = ["Judge"]


class Judge(CreatingRules, RunningRules, SessionRules, LockRules):
    """Looks at everything. ``violations`` holds what must not have been."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._looks: dict[str, Callable[[Seen], None]] = {
            "define_jobs": self.define_jobs,
            "retire": self.retire,
            "pause": self.pause,
            "resume": self.resume,
            "enqueue": self.enqueue,
            "trigger": self.trigger,
            "retry": self.retry,
            "backfill": self.backfill,
            "cancel": self.cancel,
            "prune": self.prune,
            "step": self.step,
            "acquire": self.acquire,
            "lock": self.lock,
            "extend": self.extend,
            "unlock": self.unlock,
            "open_session": self.open_session,
            "renew": self.renew,
            "close_session": self.close_session,
            "reclaim": self.reclaim,
        }

    def step(self, seen: Seen) -> None:
        """Look at the parts of a step, in the order in which the store takes them."""
        session, step = seen.args
        done = seen.answer
        self.note(Seen((step.notes,), {}, done.noted))
        self.finish(Seen((step.ends,), {}, done.settled))
        for back, returned in zip(step.give_back, done.returned, strict=True):
            self.release(Seen(([back.claim],), {"cut": back.cut}, [returned]))
        want = step.want
        ahead = {} if want is None else {"ahead": want.ahead}
        self.fire(Seen((step.plans,), ahead, done.carried_out))
        if done.lost and (done.claims or any(done.carried_out)):
            self.broken("claim", f"the session {session} is lost, and something was done for it")
        if want is not None and sum(not claim.reserved for claim in done.claims) > max(want.limit, 0):
            self.broken("claim", f"{len(done.claims)} claims, and no more than {want.limit} were to begin")
        if want is not None and not done.lost:
            self.claim(Seen((session, want.limit, want.functions), ahead | {"lease": want.lease}, done.claims))

    def acquire(self, seen: Seen) -> None:
        """Look at occurrences that somebody wanted by name: made if they were not there, and then claimed."""
        session, asks = seen.args
        for ask, [answer] in zip(asks, seen.answer, strict=True):
            if answer is NotWon.UNKNOWN or answer is NotWon.PRUNED:
                continue
            name = {"key": ask.key} if ask.scheduled_for is None else {"scheduled_for": ask.scheduled_for}
            claim = None if isinstance(answer, NotWon) else answer
            one = Seen((session, ask.job), seen.kwargs | name, claim)
            self.make_if_absent(one)
            self.claim_by_name(one)

    def saw(self, verb: str, args: tuple[Any, ...], kwargs: dict[str, Any], answer: Any) -> None:
        """Look at what the store just did."""
        look = self._looks.get(verb)
        if look is not None:
            look(Seen(args, kwargs, answer))
