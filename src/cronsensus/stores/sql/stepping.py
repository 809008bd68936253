"""The verb ``step``: a node's report, the plans that it fires, and its claim of work, in three round trips at most."""

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
class WrittenStep:
    """A step that was carried out; its answer can be made once the transaction is over."""

    noted: list[bool]
    ends: finishing.Ends
    returned: list[bool]
    carried_out: list[bool]
    taken: claiming.StartedClaims | None

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


def take_step(tx: Transaction, session: str, step: Step) -> WrittenStep:
    """Carry out a step.

    The first trip locks: jobs of plans, then runs, each by id. The second writes the results of both, and finds work,
    skipping locked rows. The third locks the session, and starts the work if the session lives. Claims of runs that
    were cut off need a round trip of their own.

    Safe when another node does any of it at the same instant, because each part is: ``finishing``, ``firing``,
    ``claiming``.

    Raises:
        LeaseLost: the session is not alive, and the step has plans or wants work; nothing was written.
    """
    run_ids = (
        {note.id for note in step.notes}
        | {end.id for end in step.ends}
        | {release.claim.id for release in step.give_back}
    )
    locked_jobs = firing.LockedJobs(tx, (plan.job_id for plan in step.plans))
    locked_runs = finishing.LockedRuns(tx, run_ids, notes=step.notes)
    if step.plans:  # a step that only wants work is checked with the claim
        alive = tx.send("session_alive", session=session, space=tx.namespace, boot=tx.epoch, moment=tx.moment)
        if not alive.rows:
            raise not_alive(session)
    rows = locked_runs.read_rows()
    notes_kept = finishing.keep_notes(tx, step.notes, rows, locked_runs.last_lines())
    ends = finishing.Ends(tx, step.ends, rows)
    release_states = _release_claims(
        tx, step.give_back, {number: row for number, row in rows.items() if number not in ends.became}
    )
    closed_ids = [number for number, (_, state) in ends.became.items() if state is not State.PENDING]
    closed_ids += [
        release.claim.id
        for release, state in zip(step.give_back, release_states, strict=True)
        if state not in {None, State.PENDING}
    ]
    ended_by_job = Counter(rows[number].job_id for number in closed_ids if rows[number].serial)
    ahead = (step.want.ahead if step.want else NO_DELAY) // _MICROSECOND
    carried_out = firing.carry_out(tx, step.plans, locked_jobs, ahead, ended_by_job)
    claimed = None
    if step.want is not None:
        want = step.want
        limit = max(want.limit, 0)
        pending_claim = claiming.ask_for_work(
            tx, session, limit, want.functions, want.lease, ahead=ahead, reserve=want.reserve, oldest=want.oldest
        )
        claimed = claiming.claim_entries(tx, pending_claim, holds_jobs=bool(step.plans), part=want.part)
    return WrittenStep(notes_kept, ends, [state is not None for state in release_states], carried_out, claimed)


def _release_claims(
    tx: Transaction, releases: Sequence[GiveBack], locked_rows: Mapping[int, AnyRow]
) -> list[State | None]:
    """Release claims, and return the new state of each; ``None``: it is not current.

    ``locked_rows``: the occurrences, locked.
    """
    new_states: list[State | None] = [None] * len(releases)
    cuts: tuple[Cut | None, ...] = (
        None,
        *CUT_WORDS,
    )  # unstarted claims first, while ``locked_rows`` is still as it was read
    for cut in cuts:
        places = [place for place, release in enumerate(releases) if release.cut == cut]
        if claims := [releases[place].claim for place in places]:
            states = finishing.release_runs(tx, claims, locked_rows) if cut is None else cut_off_claims(tx, claims, cut)
            for place, state in zip(places, states, strict=True):
                new_states[place] = state
    return new_states


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
    if len(kinds := [part for part in of_kinds if part]) > 1:
        return kinds
    return [
        *(Step(notes=(part,)) for part in step.notes),
        *(Step(ends=(part,)) for part in step.ends),
        *(Step(give_back=(part,)) for part in step.give_back),
        *(Step(plans=(part,)) for part in step.plans),
        *([step] if step.want else []),
    ]


def joined(parts: Sequence[Done]) -> Done:
    """Return the answer to a step, joined from those to its parts."""
    return Done(
        noted=tuple(chain.from_iterable(part.noted for part in parts)),
        settled=tuple(chain.from_iterable(part.settled for part in parts)),
        returned=tuple(chain.from_iterable(part.returned for part in parts)),
        carried_out=tuple(chain.from_iterable(part.carried_out for part in parts)),
        claims=tuple(chain.from_iterable(part.claims for part in parts)),
        lost=any(part.lost for part in parts),
        age=parts[-1].age,  # the want comes last
    )


def refused(step: Step) -> Done:
    """Return the answer to a step of which nothing could be written."""
    return Done(
        noted=(False,) * len(step.notes),
        settled=tuple(Settled(end.id, end.token, accepted=False, state=None) for end in step.ends),
        returned=(False,) * len(step.give_back),
        carried_out=(False,) * len(step.plans),
    )


def name_of(step: Step) -> str:
    """Return a description, for the log, of a step with a single part that failed."""
    return next(
        chain(
            (f"what run {part.id} says cannot be kept" for part in step.notes),
            (f"the end of run {part.id} cannot be recorded" for part in step.ends),
            (f"run {part.claim.id} cannot be given back" for part in step.give_back),
            (f"job {part.job!r} cannot be fired" for part in step.plans),
        )
    )
