"""The verb of a node's round: what its runs say, what jobs owe, and its wish for work, in three trips at most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from cronsensus.model.occurrence import Claim
from cronsensus.model.states import State
from cronsensus.model.step import Done, Step
from cronsensus.stores.sql import claiming, finishing, firing
from cronsensus.stores.sql.dialect import AnyRow
from cronsensus.stores.sql.sessions import not_alive
from cronsensus.stores.sql.transaction import Transaction
from cronsensus.stores.values import AT_ONCE

_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Taken:
    """A step that was taken; its answer can be made once the transaction is over."""

    noted: list[bool]
    ends: finishing.Ends
    returned: list[bool]
    carried_out: list[bool]
    taken: claiming.Taken | None

    def done(self) -> Done:
        """Return the answer."""
        claims: list[Claim] = [] if self.taken is None else self.taken.claims()
        return Done(
            noted=tuple(self.noted),
            settled=tuple(self.ends.answers()),
            returned=tuple(self.returned),
            carried_out=tuple(self.carried_out),
            claims=tuple(claims),
        )


def take(tx: Transaction, session: str, step: Step) -> Taken:
    """Take a step. Claims that it gives back were not begun (``cut`` is ``None``).

    The first trip locks: jobs of plans, then runs, each by id. The second one writes what became of both, and finds
    work, passing over what is locked. The third one locks the session, and starts the work if the session lives.

    Safe when another node does any of it at the same instant, as each part of it is: ``finishing``, ``firing``,
    ``claiming``.

    Raises:
        LeaseLost: the session is not alive, and the step has plans or wants work; nothing was written.
    """
    said = {one.id for one in step.notes} | {one.id for one in step.outcomes} | {one.claim.id for one in step.give_back}
    of_plans = firing.LockedJobs(tx, (plan.job_id for plan in step.plans))
    of_runs = finishing.LockedRuns(tx, said, notes=step.notes)
    if step.plans:  # those who only want work are asked with it
        alive = tx.send("session_alive", session=session, space=tx.namespace, boot=tx.epoch, moment=tx.moment)
        if not alive.rows:
            raise not_alive(session)
    found = of_runs.read()
    noted = finishing.keep(tx, step.notes, found, of_runs.last_lines())
    ends = finishing.Ends(tx, step.outcomes, found)
    left = {number: row for number, row in found.items() if number not in ends.became}
    returned = finishing.give_back(tx, [one.claim for one in step.give_back], left)
    ahead = (step.want.ahead if step.want else AT_ONCE) // _MICROSECOND
    carried_out = firing.carry_out(tx, step.plans, of_plans, ahead, _ended(step, found, ends, returned))
    taken = None
    if step.want is not None:
        want = step.want
        limit = max(want.limit, 0)
        asked = claiming.look(tx, session, limit, want.functions, want.lease, ahead=ahead, reserve=want.reserve)
        taken = claiming.take(tx, asked, holds_jobs=bool(step.plans), part=want.part)
    return Taken(noted, ends, returned, carried_out, taken)


def _ended(step: Step, found: Mapping[int, AnyRow], ends: finishing.Ends, returned: list[bool]) -> Counter[int]:
    """Return how many occurrences of each job, of those that its overlap rules, are not active any more."""
    over = [number for number, (_, state) in ends.became.items() if state is not State.PENDING]
    for one, went in zip(step.give_back, returned, strict=True):
        if went and found[one.claim.id].cancel_reason is not None:
            over.append(one.claim.id)
    return Counter(found[number].job_id for number in over if found[number].serial)
