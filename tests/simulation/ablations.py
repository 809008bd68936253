"""Safeguards, each removed by a small subclass: the simulation must notice every one of them."""

import dataclasses
from collections.abc import Callable
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import structs

from cronsensus.errors import StoreError
from cronsensus.membership.lease import UNTRUSTED_SHARE, SessionLease
from cronsensus.membership.renewer import SessionRenewer
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Settled
from cronsensus.model.states import State
from cronsensus.node import decide
from cronsensus.node.active_runs import ActiveRuns
from cronsensus.node.claiming import Claiming
from cronsensus.node.hooks import ADMITTED
from cronsensus.node.situation import Fired, Firing
from cronsensus.stores.memory import MemoryStore
from cronsensus.timing.clock import Clock
from tests.simulation.cluster import Parts

# --- the store ------------------------------------------------------------------------------------------------------


def its_time_has_come(plan, until):
    return plan.not_before is None or plan.not_before <= until


class NoWatermark(MemoryStore):
    """Carries out a plan although another node was faster."""

    def _is_plan_current(self, plan, job, until):
        return job.fires and plan.revision == job.revision and its_time_has_come(plan, until)


class FiresWhilePaused(MemoryStore):
    """Carries out a plan although the job was paused or retired meanwhile."""

    def _is_plan_current(self, plan, job, until):
        seen = (plan.watermark_seen, plan.active_seen)
        return seen == (job.watermark, job.active) and its_time_has_come(plan, until)


class NoActiveCheck(MemoryStore):
    """Carries out a plan although other occurrences became active meanwhile."""

    def _is_plan_current(self, plan, job, until):
        seen = (plan.watermark_seen, plan.revision)
        return job.fires and seen == (job.watermark, job.revision) and its_time_has_come(plan, until)


class FiresInTwoSteps(MemoryStore):
    """Writes occurrences and verdicts, and now and then dies before it moves the watermark."""

    def _move_watermark(self, plan, job):
        if self._world.next_number("step") % 10:
            super()._move_watermark(plan, job)


class NoTokenCheck(MemoryStore):
    """Takes a result from whoever brings it."""

    def _current_run(self, occurrence, token, session):
        row = self._space.occurrences.get(occurrence)
        return row if row is not None and row.state is State.RUNNING else None


class ForgetsFirstAnswer(MemoryStore):
    """Refuses a result that is sent again because its answer was lost."""

    def _repeat_answer(self, outcome):
        row = self._space.occurrences.get(outcome.id)
        return Settled(outcome.id, outcome.token, accepted=False, state=None if row is None else row.state)


class ClaimsForTheDead(MemoryStore):
    """Gives claims without a proof that the session is alive."""

    def _live_session(self, session):
        return self._space.sessions[session]


class NoSerialGuard(MemoryStore):
    """Lets occurrences of one job overtake one another."""

    def _is_its_turn(self, row):
        return True


class NoConcurrencyLimit(MemoryStore):
    """Does not count."""

    def _is_below_limit(self, job, chosen):
        return True


class LeasesOnTheWallClock(MemoryStore):
    """Judges leases by a clock that may be set."""

    def _monotonic(self):
        return self._now().timestamp()


class ClaimsEarly(MemoryStore):
    """Gives out what is due in a second."""

    def _list_waiting(self, until, want):
        return super()._list_waiting(until + timedelta(seconds=1), want)


class RunsTwiceAtMostOnce(MemoryStore):
    """Puts back what may have begun and must not begin twice."""

    def _take_over(self, row, session, why, now, *, crashed):
        before = row.job.spec
        row.job.spec = _with(before, on_crash="retry")
        try:
            return super()._take_over(row, session, why, now, crashed=crashed)
        finally:
            row.job.spec = before


class NoMostCrashes(MemoryStore):
    """Lets a job that kills its process walk through the cluster."""

    def _take_over(self, row, session, why, now, *, crashed):
        before = row.job.spec
        row.job.spec = _with(before, max_crashes=1000)
        try:
            return super()._take_over(row, session, why, now, crashed=crashed)
        finally:
            row.job.spec = before


class RevivesTheDead(MemoryStore):
    """Renews a lease that ran out."""

    def renew(self, session, **leases):
        with self._changed:
            row = self._space.sessions[session]
            if row.ended_at is None:
                row.until = self._lease_end(leases["lease"])
            return super().renew(session, **leases)


class IdleWhileItRuns(MemoryStore):
    """Gives a session that runs something the lease of an idle one, if it is asked to."""

    def _lease_for(self, session, lease, idle_lease):
        return idle_lease


class NeverReclaims(MemoryStore):
    """Leaves to the dead what they hold."""

    def reclaim(self, presumed_dead=()):
        return []


class ReclaimsTooEarly(MemoryStore):
    """Takes from sessions whose lease has not run out."""

    def reclaim(self, presumed_dead=()):
        return super().reclaim({*presumed_dead, *self._space.open})


class ForgetsToCancel(MemoryStore):
    """Puts back what was asked to stop."""

    def _take_over(self, row, session, why, now, *, crashed):
        row.cancel = None
        return super()._take_over(row, session, why, now, crashed=crashed)


class PrunesAboveTheWatermark(MemoryStore):
    """Forgets occurrences whose nominal time is still to come, and so fires them again."""

    def _prune_job(self, job, *args, **more):
        watermark, job.watermark = job.watermark, datetime.max.replace(tzinfo=UTC)
        try:
            return super()._prune_job(job, *args, **more)
        finally:
            job.watermark = watermark


class TokensRepeat(MemoryStore):
    """Counts tokens per occurrence, and gives one twice when a claim is given back."""

    def _start_run(self, row, session, now, *, at):
        claim = super()._start_run(row, session, now, at=at)
        row.token = row.attempt
        row.runs[-1] = dataclasses.replace(row.runs[-1], token=row.attempt)
        return structs.replace(claim, token=row.attempt)


class HearsAnybody(MemoryStore):
    """Writes down what attempts say that are not current any more."""

    def _record_note(self, note):
        row = self._space.occurrences.get(note.id)
        return row is not None and super()._record_note(dataclasses.replace(note, token=row.token, session=row.session))


class LocksWithoutLooking(MemoryStore):
    """Gives a lock to whoever asks: sees no holder while it is asked for one, and sees them all else."""

    _blind = False

    def lock(self, name, holder, *, ttl, session=None, limit=1):
        with self._changed:
            self._blind = True
            try:
                return super().lock(name, holder, ttl=ttl, session=session, limit=limit)
            finally:
                self._blind = False

    def _is_held(self, lock):
        return not self._blind and super()._is_held(lock)


class LocksOutliveSessions(MemoryStore):
    """Keeps the locks of the dead until their time is over.

    Two safeguards are removed: a lock of a dead session is not held, and it is freed when the session is ended. Nodes
    end the dead soon, so the first matters for a moment only and alone is found too seldom.
    """

    def _is_held(self, lock):
        return self._monotonic() < lock.until

    def _end_session(self, session, ended_as, why, *, crashed):
        session.locks.clear()
        return super()._end_session(session, ended_as, why, crashed=crashed)


class WatchesNoClock(MemoryStore):
    """Tells nobody that its clock was set back."""

    def _note_set_back(self):
        pass


def _with(spec: JobSpec, **policies: Any) -> JobSpec:
    return dataclasses.replace(spec, policies=dataclasses.replace(spec.policies, **policies))


# --- the node -------------------------------------------------------------------------------------------------------


class TrustsForEver(SessionLease):
    """Starts work for as long as nobody says that the session is dead."""

    @property
    def is_trusted(self):
        return not self.is_lost


class TrustsFromTheAnswer(SessionLease):
    """Counts the lease from the answer, not from the question."""

    def confirm_renewal(self, asked, lease):
        super().confirm_renewal(self.note_request(), lease + lease * UNTRUSTED_SHARE)


class BelievesWhoeverReturns(ActiveRuns):
    """Takes the result of a run that was told that its lease is lost."""

    def receive_ending(self, call, ending):
        self._ended.append((call, ending, False))
        self._wake()


class GivesUpResults(ActiveRuns):
    """Sends a result once."""

    @contextmanager
    def open_report(self):
        try:
            with super().open_report() as step:
                yield step
        except StoreError:
            self.report.owed.clear()
            raise


class CancelsWhatItInterrupts(ActiveRuns):
    """Calls cancelled what the node itself cut off."""

    def _interrupt_run(self, run, reason, *, lease_lost=False):
        self._stop_run(run, reason, lease_lost=lease_lost)


class TellsNobody(ActiveRuns):
    """Does not tell its runs that the lease is lost."""

    def lose_session(self, lease):
        return 0


class StartsAhead(ActiveRuns):
    """Starts at once what was claimed ahead of its time."""

    def start_claim_at(self, at, claim, lease, admit=ADMITTED):
        self.start_claim(claim, lease, admit)


class AdoptsOnce(Claiming):
    """Asks what it holds right after an answer was lost, but not again when the claim is carried out later.

    Two safeguards are removed. A look that shows more runs than the node knows of adopts them at once; where none does,
    two renewals in a row that list a run have it adopted a little later. Either alone keeps the promise.
    """

    def adopt_unknown_claims(self, lease, view, asked):
        pass

    def adopt_runs(self, lease, keys):
        pass


class NeverAdopts(Claiming):
    """Forgets claims whose answer was lost."""

    def adopt_lost(self, lease):
        self._active_runs.in_doubt = self._answers_lost = False


_set_alarm, _plan_upkeep = decide.set_alarm, decide.plan_upkeep


def fires_and_forgets(memory, view, facts, now, *, firing, fired, firing_seconds, look_at_once):
    """Does not look again after what it fired, nor after a race that it lost, nor after a plan that was cut."""
    return _set_alarm(
        memory, view, facts, now, firing=Firing(), fired=Fired(), firing_seconds=firing_seconds, look_at_once=False
    )


def never_takes_over(*seen):
    """Leaves to the dead what they hold."""
    upkeep, memory = _plan_upkeep(*seen)
    return upkeep._replace(reclaim=None), memory


def blind_while_full(memory, view, facts, now, **more):
    """Does not look for what is due to be fired while all its slots are taken."""
    after = _set_alarm(memory, view, facts, now, **more)
    return after if facts.free_slots else dataclasses.replace(after, look_at=1e18)


class NeverRenews(SessionRenewer):
    """Lets the lease run out."""

    def _renew_lease(self, store, lease):
        return 1.0


def on(store: type[MemoryStore]) -> Parts:
    """A cluster on that store."""

    def made(clock: Clock) -> MemoryStore:
        return store(clock=clock)

    return Parts(store=made)


STORES: list[type[MemoryStore]] = [
    NoWatermark,
    FiresWhilePaused,
    NoActiveCheck,
    FiresInTwoSteps,
    NoTokenCheck,
    ForgetsFirstAnswer,
    ClaimsForTheDead,
    NoSerialGuard,
    NoConcurrencyLimit,
    LeasesOnTheWallClock,
    ClaimsEarly,
    RunsTwiceAtMostOnce,
    NoMostCrashes,
    RevivesTheDead,
    IdleWhileItRuns,
    NeverReclaims,
    ReclaimsTooEarly,
    ForgetsToCancel,
    PrunesAboveTheWatermark,
    TokensRepeat,
    HearsAnybody,
    LocksWithoutLooking,
    LocksOutliveSessions,
    WatchesNoClock,
]
MADE_IN: dict[str, list[Callable[..., Any]]] = {
    "cronsensus.membership.session": [TrustsForEver, TrustsFromTheAnswer],
    "cronsensus.node.round": [
        BelievesWhoeverReturns,
        GivesUpResults,
        CancelsWhatItInterrupts,
        TellsNobody,
        StartsAhead,
        AdoptsOnce,
        NeverAdopts,
    ],
    "cronsensus.node.node": [NeverRenews],
    "cronsensus.node.decide": [fires_and_forgets, never_takes_over, blind_while_full],
}
"""The parts of a node, by the module that makes them; and decisions."""
_DECISIONS = {fires_and_forgets: "set_alarm", never_takes_over: "plan_upkeep", blind_while_full: "set_alarm"}


def place_of(module: str, part: Callable[..., Any]) -> str:
    """Return what a part is put in the place of: the class that it is derived from, or a decision."""
    return f"{module}.{part.__mro__[1].__name__ if isinstance(part, type) else _DECISIONS[part]}"
