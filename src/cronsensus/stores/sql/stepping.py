"""The verb ``step`` of a node's round: its report, its plans and its want, in three trips at most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain

from cronsensus.model.occurrence import CUT_WORDS, Claim, Cut, Settled
from cronsensus.model.states import State
from cronsensus.model.step import Done, GiveBack, Step
from cronsensus.stores.sql import claiming, finishing, firing
from cronsensus.stores.sql.dialect import AnyRow
from cronsensus.stores.sql.sessions import cut_off_claims, not_alive
from cronsensus.stores.sql.transaction import Transaction
from cronsensus.stores.values import NO_DELAY

_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Taken:
    """A step that was carried out; its answer can be made once the transaction is over."""

    noted: list[bool]
    ends: finishing.Ends
    returned: list[bool]
    carried_out: list[bool]
    taken: claiming.Taken | None

    def done(self, monotonic: Callable[[], float]) -> Done:
        """Return the answer; ``monotonic``: the dialect's clock, to measure its age."""
        claims: list[Claim] = [] if self.taken is None else self.taken.make_claims()
        return Done(
            noted=tuple(self.noted),
            settled=tuple(self.ends.list_answers()),
            returned=tuple(self.returned),
            carried_out=tuple(self.carried_out),
            claims=tuple(claims),
            age=0.0 if self.taken is None else monotonic() - self.taken.came_at,
        )


def take_step(tx: Transaction, session: str, step: Step) -> Taken:
    """Carry out a step.

    The first trip locks: jobs of plans, then runs, each by id. The second writes the results of both, and finds work,
    skipping locked rows. The third locks the session, and starts the work if the session lives. Claims of runs that
    were cut off need a round trip of their own.

    Safe when another node does any of it at the same instant, because each part is: ``finishing``, ``firing``,
    ``claiming``.

    Raises:
        LeaseLost: the session is not alive, and the step has plans or wants work; nothing was written.
    """
    locked = {one.id for one in step.notes} | {one.id for one in step.ends} | {one.claim.id for one in step.give_back}
    of_plans = firing.LockedJobs(tx, (plan.job_id for plan in step.plans))
    of_runs = finishing.LockedRuns(tx, locked, notes=step.notes)
    if step.plans:  # a step that only wants work is checked with the claim
        alive = tx.send("session_alive", session=session, space=tx.namespace, boot=tx.epoch, moment=tx.moment)
        if not alive.rows:
            raise not_alive(session)
    found = of_runs.read_rows()
    noted = finishing.keep_notes(tx, step.notes, found, of_runs.last_lines())
    ends = finishing.Ends(tx, step.ends, found)
    became = _release_claims(tx, step.give_back, {one: row for one, row in found.items() if one not in ends.became})
    ended = [number for number, (_, state) in ends.became.items() if state is not State.PENDING]
    ended += [
        one.claim.id for one, state in zip(step.give_back, became, strict=True) if state not in {None, State.PENDING}
    ]
    over = Counter(found[number].job_id for number in ended if found[number].serial)
    ahead = (step.want.ahead if step.want else NO_DELAY) // _MICROSECOND
    carried_out = firing.carry_out(tx, step.plans, of_plans, ahead, over)
    taken = None
    if step.want is not None:
        want = step.want
        limit = max(want.limit, 0)
        asked = claiming.ask_for_work(
            tx, session, limit, want.functions, want.lease, ahead=ahead, reserve=want.reserve, oldest=want.oldest
        )
        taken = claiming.claim_entries(tx, asked, holds_jobs=bool(step.plans), part=want.part)
    return Taken(noted, ends, [state is not None for state in became], carried_out, taken)


def _release_claims(tx: Transaction, back: Sequence[GiveBack], found: Mapping[int, AnyRow]) -> list[State | None]:
    """Release claims, and return the new state of each; ``None``: it is not current.

    ``found``: the occurrences, locked.
    """
    became: list[State | None] = [None] * len(back)
    cuts: tuple[Cut | None, ...] = (None, *CUT_WORDS)  # unstarted claims first, while ``found`` is still as it was read
    for cut in cuts:
        places = [place for place, one in enumerate(back) if one.cut == cut]
        if claims := [back[place].claim for place in places]:
            states = finishing.release_runs(tx, claims, found) if cut is None else cut_off_claims(tx, claims, cut)
            for place, state in zip(places, states, strict=True):
                became[place] = state
    return became


# --- when a row of a part cannot be written ---------------------------------------------------------------------------


def apart(step: Step) -> list[Step]:
    """Split a step into steps with the same effect: by kind of part, or if there is only one kind, by part."""
    of_kinds = [
        Step(notes=step.notes),
        Step(ends=step.ends),
        Step(give_back=step.give_back),
        Step(plans=step.plans),
        Step(want=step.want),
    ]
    if len(kinds := [one for one in of_kinds if one]) > 1:
        return kinds
    return [
        *(Step(notes=(one,)) for one in step.notes),
        *(Step(ends=(one,)) for one in step.ends),
        *(Step(give_back=(one,)) for one in step.give_back),
        *(Step(plans=(one,)) for one in step.plans),
        *([step] if step.want else []),
    ]


def joined(parts: Sequence[Done]) -> Done:
    """Return the answer to a step, joined from those to its parts."""
    return Done(
        noted=tuple(chain.from_iterable(one.noted for one in parts)),
        settled=tuple(chain.from_iterable(one.settled for one in parts)),
        returned=tuple(chain.from_iterable(one.returned for one in parts)),
        carried_out=tuple(chain.from_iterable(one.carried_out for one in parts)),
        claims=tuple(chain.from_iterable(one.claims for one in parts)),
        lost=any(one.lost for one in parts),
        age=parts[-1].age,  # the want comes last
    )


def refused(step: Step) -> Done:
    """Return the answer to a step of which nothing could be written."""
    return Done(
        noted=(False,) * len(step.notes),
        settled=tuple(Settled(one.id, one.token, accepted=False, state=None) for one in step.ends),
        returned=(False,) * len(step.give_back),
        carried_out=(False,) * len(step.plans),
    )


def name_of(step: Step) -> str:
    """Return a description, for the log, of a step with a single part that failed."""
    return next(
        chain(
            (f"what run {one.id} says cannot be kept" for one in step.notes),
            (f"the end of run {one.id} cannot be recorded" for one in step.ends),
            (f"run {one.claim.id} cannot be given back" for one in step.give_back),
            (f"job {one.job!r} cannot be fired" for one in step.plans),
        )
    )
