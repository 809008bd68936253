"""Count what the store answered: so many attempts, takeovers and times without a run, whoever judges the night."""

from __future__ import annotations

from collections import Counter
from typing import Any

from cronsensus.model.states import State


class Tally(Counter[str]):
    """Sums of one night. Each counts what was carried out, whether or not a node got the answer::

    fired, claimed           occurrences that the schedule made; attempts that were given to nodes
    ended …                  accepted ends of attempts, by state; ``pending`` is to be tried again
    reclaimed …              claims taken from the dead, by what they became
    given back               claims that nodes did not keep
    skipped …, missed …      nominal times that got no run, by reason
    """

    def note_answer(self, verb: str, args: tuple[Any, ...], answer: Any) -> None:
        """Count what a verb did."""
        if verb == "step":
            self._note_step(args[1], answer)
        elif verb == "reclaim":
            self.update(f"reclaimed {takeover.became}" for takeover in answer)

    def _note_step(self, step: Any, done: Any) -> None:
        self.update(f"ended {settled.state}" for settled in done.settled if settled.accepted)
        self["claimed"] += len(done.claims)
        self["given back"] += sum(done.returned)
        for plan, carried_out in zip(step.plans, done.carried_out, strict=True):
            self["fired"] += len(plan.occurrences) if carried_out else 0
            self["races lost"] += not carried_out
            for verdict in plan.verdicts if carried_out else ():
                self[f"{verdict.state} {verdict.reason}"] += verdict.count or 0

    def note_occurrences(self, states: list[State]) -> None:
        """Count in which state occurrences are left."""
        self.update(f"left {state}" for state in states)
