"""Memory stores, each broken by the smallest change, that the conformance suite must reject.

``rejected_by`` names a test of the suite that tells what goes wrong. Where the fault is a gap between two steps, the
store waits in it for somebody else to come in, so that the race happens every time.
"""

import contextlib
import itertools
import threading
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, ClassVar

from msgspec import structs

from cronsensus.model.acquiring import Ask, AskNamed, Intent, NotWon
from cronsensus.model.claim_order import first_level
from cronsensus.model.ends import End, Parked
from cronsensus.model.job import JobSpec
from cronsensus.model.ledger import Loss, Prune
from cronsensus.model.occurrence import Claim, Cut, Enqueued, Item, Settled, Takeover, scheduled_key
from cronsensus.model.plan import Plan
from cronsensus.model.rewind import Rewind
from cronsensus.model.session import LockGrant, Renewal, SessionSpec
from cronsensus.model.states import State
from cronsensus.model.step import Done, GiveBack, Step, Want
from cronsensus.stores.memory import MemoryStore
from cronsensus.stores.memory.state import JobRow, LockRow, OccurrenceRow, SessionRow, World
from cronsensus.stores.values import NO_DELAY, Partition, Pruned, View
from cronsensus.timing.clock import SystemClock
from cronsensus.timing.instants import LATEST

Answers = list[tuple[Claim | NotWon, ...]]


class BrokenStore(MemoryStore):
    """A store with one fault. The subclasses say which."""

    rejected_by: str


class Gap:
    """The moment between two steps that should have been one; it lasts until somebody else is in it too."""

    def __init__(self) -> None:
        self._barrier = threading.Barrier(2)

    def wait_for_company(self) -> None:
        try:
            self._barrier.wait(0.1)
        except threading.BrokenBarrierError:
            self._barrier.reset()


# --- firing -----------------------------------------------------------------------------------------------------------


class NoWatermark(BrokenStore):
    """``step`` trusts the keys of the occurrences that are there, and looks at no watermark."""

    rejected_by = "test_a_replica_that_slept_until_everything_was_pruned_repeats_nothing"

    def _is_plan_current(self, plan: Plan, job: JobRow, until: datetime) -> bool:
        changed = replace(plan, watermark_seen=job.watermark, watermark=job.watermark)
        return super()._is_plan_current(changed, job, until)


class NoRevision(BrokenStore):
    """``step`` carries out what was planned under an older definition."""

    rejected_by = "test_a_plan_made_on_an_older_revision_loses_whole"

    def _is_plan_current(self, plan: Plan, job: JobRow, until: datetime) -> bool:
        return super()._is_plan_current(replace(plan, revision=job.revision), job, until)


class NoDefinition(BrokenStore):
    """``step`` takes an equal revision for the same definition, which it is not once the store forgot one."""

    rejected_by = "test_a_plan_made_on_another_definition_of_the_same_revision_loses_whole"

    def _is_plan_current(self, plan: Plan, job: JobRow, until: datetime) -> bool:
        return super()._is_plan_current(replace(plan, definition=""), job, until)


class TokensBelowTheClock(BrokenStore):
    """Tokens are counted, so a store that forgot its last ones gives them again."""

    rejected_by = "test_a_token_is_not_below_the_clock_so_none_is_given_again_by_a_store_that_forgot_its_last_ones"

    def _start_run(self, row: OccurrenceRow, session: SessionRow, now: datetime, *, at: datetime) -> Claim:
        claim = super()._start_run(row, session, now, at=at)
        row.token = self._world.next_number("counted")
        return structs.replace(claim, token=row.token)


class NoSession(BrokenStore):
    """The token alone is compared, not the session."""

    rejected_by = "test_under_the_right_token_another_session_writes_nothing"

    def _current_run(self, occurrence: int, token: int, session: str | None) -> OccurrenceRow | None:
        return super()._current_run(occurrence, token, None)


class NoHolder(BrokenStore):
    """The token of a lock alone is compared, not its holder."""

    rejected_by = "test_under_the_right_token_another_holder_or_session_moves_nothing"

    def _lock_under(self, grant: LockGrant) -> LockRow | None:
        row = self._space.locks.get((grant.name, grant.place))
        return row if row is not None and row.token == grant.token and self._is_held(row) else None


class MissesWhatNeverShowedASign(BrokenStore):
    """``look`` takes each session without a sign of life for one whose process is gone."""

    rejected_by = "test_a_session_that_never_showed_a_sign_of_life_is_not_missed_and_one_that_shows_it_neither"

    def _look(self, limit: int, partition: Partition | None, ahead: timedelta) -> View:
        view = super()._look(limit, partition, ahead)
        return replace(view, absent=tuple(holder.id for holder in view.holders))


class NoActive(BrokenStore):
    """``step`` carries out what was planned when fewer were active."""

    rejected_by = "test_a_plan_that_saw_another_number_of_active_occurrences_loses_whole"

    def _is_plan_current(self, plan: Plan, job: JobRow, until: datetime) -> bool:
        return super()._is_plan_current(replace(plan, active_seen=job.active), job, until)


class FiresPausedJobs(BrokenStore):
    """``step`` compares the plan and forgets the pause."""

    rejected_by = "test_a_plan_for_a_paused_job_loses_whole"

    def _is_plan_current(self, plan: Plan, job: JobRow, until: datetime) -> bool:
        paused, job.paused_at = job.paused_at, None
        try:
            return super()._is_plan_current(plan, job, until)
        finally:
            job.paused_at = paused


class FiresInTwoSteps(BrokenStore):
    """``step`` inserts occurrences in one transaction and moves the watermark in another."""

    rejected_by = "test_one_plan_is_carried_out_once"
    gap = Gap()

    def _step(self, session: str, step: Step) -> Done:
        won = tuple(self._fire_plan(plan, self._now()) for plan in step.plans)
        return replace(super()._step(session, replace(step, plans=())), carried_out=won)

    def _fire_plan(self, plan: Plan, until: datetime) -> bool:
        with self._changed:
            job = self._space.jobs_by_id.get(plan.job_id)
            if job is None or not self._is_plan_current(plan, job, until):
                return False
            self._create_planned(plan, job)
        self.gap.wait_for_company()
        with self._changed:
            self._move_watermark(plan, job)
        return True


class FiresTooEarly(BrokenStore):
    """``step`` carries out a plan that was made ahead, whatever the time is, by the word of a node's clock."""

    rejected_by = "test_nothing_is_fired_or_claimed_further_ahead_than_asked"

    def _is_plan_current(self, plan: Plan, job: JobRow, until: datetime) -> bool:
        return super()._is_plan_current(replace(plan, not_before=None), job, until)


class StartsBeforeItIsDue(BrokenStore):
    """What is claimed ahead counts as started when it was claimed."""

    rejected_by = "test_a_run_claimed_ahead_starts_when_due_and_records_when_it_was_claimed"

    def _start_run(self, row: OccurrenceRow, session: SessionRow, now: datetime, *, at: datetime) -> Claim:
        return super()._start_run(row, session, now, at=now)


class BringsBackAtOnce(BrokenStore):
    """What comes back is due now, although it was claimed ahead of its time."""

    rejected_by = "test_a_run_claimed_ahead_and_given_back_is_not_claimed_early"

    def _release_claim(self, one: GiveBack) -> bool:
        row = self._space.occurrences[one.claim.id]
        row.due_at = min(row.due_at, self._now())
        return super()._release_claim(one)


class LooksAtTheOldest(BrokenStore):
    """``due`` shows what came last when all that came before is done."""

    rejected_by = "test_jobs_that_came_due_last_do_not_wait_for_all_before_them"

    def _look(self, limit: int, partition: Partition | None, ahead: timedelta) -> View:
        every_one = super()._look(1000, partition, ahead)
        return replace(every_one, jobs=every_one.jobs[:limit], more=len(every_one.jobs) > limit)


class ShowsTheNextTwice(BrokenStore):
    """``next_job`` is of a job that ``jobs`` shows: a node that knows all of those never sees what comes after them."""

    rejected_by = "test_the_next_job_comes_later_than_the_look_goes_ahead_also_where_more_come_than_it_shows"

    def _look(self, limit: int, partition: Partition | None, ahead: timedelta) -> View:
        return replace(super()._look(limit, partition, ahead), next_job=super()._look(0, None, NO_DELAY).next_job)


class SharesByPlace(BrokenStore):
    """``due`` cuts the due jobs as they stand in line: as soon as one is fired, all shares are others."""

    rejected_by = "test_a_job_stays_in_its_partition"

    def _look(self, limit: int, partition: Partition | None, ahead: timedelta) -> View:
        every_one = super()._look(1000, None, ahead)
        jobs = every_one.jobs if partition is None else every_one.jobs[partition.place :: partition.of]
        older = limit - limit // 4
        shown = jobs if len(jobs) <= limit else jobs[:older] + jobs[older - limit :] if older < limit else jobs[:older]
        return replace(every_one, jobs=shown, more=len(jobs) > limit)


# --- clocks -----------------------------------------------------------------------------------------------------------


class OwnClock(BrokenStore):
    """Due times are judged by the process's clock instead of the store's."""

    rejected_by = "test_nothing_is_claimed_before_it_is_due"

    def _now(self) -> datetime:
        return SystemClock().now()


class HostsOwnClock(BrokenStore):
    """Of a clock made from the host's only the host's is asked."""

    rejected_by = "test_a_clock_made_from_the_hosts_is_the_one_that_is_asked"

    def _now(self) -> datetime:
        return SystemClock().now() if isinstance(self._world.clock, SystemClock) else super()._now()


class WatchesNoClock(BrokenStore):
    """Nobody is told that the clock was set back."""

    rejected_by = "test_a_clock_that_was_set_back_is_written_down_with_what_came_twice"

    def _note_set_back(self) -> None:
        pass


class RetiresUpToNow(BrokenStore):
    """A retirement begins an era now, also where the clock was set back to before the last one began."""

    rejected_by = "test_after_a_clock_that_was_set_back_a_retirement_leaves_nothing_undecided"

    def _retire_job(self, job: JobRow, retire_after: timedelta) -> None:
        later = [era for era in job.eras if era.since > self._now()]
        del job.eras[len(job.eras) - len(later) :]
        super()._retire_job(job, retire_after)
        job.eras[-1:-1] = later


class ForgetsWhatIsDeclared(BrokenStore):
    """A session is kept without what its program declares."""

    rejected_by = "test_a_session_is_read_with_what_its_program_declares"

    def _open_session(self, session: SessionSpec, lease: timedelta) -> datetime:
        return super()._open_session(replace(session, declares={}), lease)


class LeavesVerdictsBehind(BrokenStore):
    """A schedule that is taken back leaves the verdicts on times that come again."""

    rejected_by = "test_a_verdict_on_times_that_come_again_is_withdrawn_and_one_across_now_ends_there"

    def _rewind(self, rewind: Rewind, *, by: str, why: str) -> bool:
        before = self._space.jobs[rewind.job].ranges
        done = super()._rewind(rewind, by=by, why=why)
        self._space.jobs[rewind.job].ranges = before
        return done


class RewindsWhatIsNoMore(BrokenStore):
    """A schedule is taken back although a plan moved its watermark meanwhile."""

    rejected_by = "test_a_step_back_that_rests_on_what_is_no_more_does_nothing"

    def _rewind(self, rewind: Rewind, *, by: str, why: str) -> bool:
        job = self._space.jobs[rewind.job]
        return super()._rewind(replace(rewind, watermark_seen=job.watermark, revision=job.revision), by=by, why=why)


class ForgetsRunsOnRewind(BrokenStore):
    """A schedule that is taken back forgets the keys of what ran ahead, so that it runs again."""

    rejected_by = "test_a_time_that_ran_while_the_clock_was_ahead_does_not_run_again"

    def _rewind(self, rewind: Rewind, *, by: str, why: str) -> bool:
        done = super()._rewind(rewind, by=by, why=why)
        self._space.jobs[rewind.job].keys.clear()
        return done


class OwnLeaseClock(BrokenStore):
    """Leases are judged by the process's clock instead of the store's."""

    rejected_by = "test_a_lease_lasts_as_long_as_it_was_given"

    def _monotonic(self) -> float:
        return SystemClock().monotonic()


class LeasesEndLate(BrokenStore):
    """A session lives in the very moment in which its lease ends, while others bury it."""

    rejected_by = "test_a_session_lives_until_the_microsecond_before_its_lease_ends_and_is_dead_in_that_one"

    def _is_alive(self, session: SessionRow) -> bool:
        return session.ended_at is None and self._monotonic() <= session.until


class LocksEndLate(BrokenStore):
    """A lock is held in the very moment in which its time ends."""

    rejected_by = "test_a_lock_is_held_until_the_microsecond_before_its_time_ends_and_is_free_in_that_one"

    def _is_held(self, lock: LockRow) -> bool:
        return self._monotonic() == lock.until or super()._is_held(lock)


# --- claiming ---------------------------------------------------------------------------------------------------------


class ClaimsWithoutGuard(BrokenStore):
    """A claim chooses in one transaction and takes in another, without asking again whether it is still there."""

    rejected_by = "test_one_occurrence_is_claimed_once"
    gap = Gap()

    def _step(self, session: str, step: Step) -> Done:
        if step.want is None:
            return super()._step(session, step)
        with self._changed:
            holder = self._live_session(session)
            chosen = self._choose_claims(step.want, self._now())
        if chosen:
            self.gap.wait_for_company()
        with self._changed:
            for row in chosen:
                if row.state is State.RUNNING:
                    self._space.requeue_run(row, row.due_at)
            now = self._now()
            return Done(claims=tuple(self._start_run(row, holder, now, at=now) for row in chosen))


class ClaimsForTheDead(BrokenStore):
    """A claim believes that its session is alive because nobody ended it yet."""

    rejected_by = "test_session_with_an_expired_lease_claims_nothing_before_a_reclaim"

    def _live_session(self, session: str) -> SessionRow:
        row = self._space.open.get(session)
        return super()._live_session(session) if row is None else row


class ClaimKeepsLongLease(BrokenStore):
    """A claim never shortens a lease, so a node that died at work is missed for as long as an idle one."""

    rejected_by = "test_a_claim_that_takes_something_shortens_a_long_lease"

    def _claim_due(self, session: str, *wanted: Any) -> list[Claim]:
        holder = self._live_session(session)
        until = holder.until
        claims = super()._claim_due(session, *wanted)
        holder.until = max(holder.until, until)
        return claims


class TokensAreAttempts(BrokenStore):
    """The token is the number of the attempt, which a release gives back."""

    rejected_by = "test_every_holder_of_an_occurrence_has_a_greater_token"

    def _start_run(self, row: OccurrenceRow, session: SessionRow, now: datetime, *, at: datetime) -> Claim:
        claim = super()._start_run(row, session, now, at=at)
        row.token = row.attempt
        row.runs[-1] = replace(row.runs[-1], token=row.attempt)
        return structs.replace(claim, token=row.attempt)


class NoConcurrency(BrokenStore):
    """Nobody counts how often a job runs at a time."""

    rejected_by = "test_a_job_runs_no_more_often_at_a_time_than_its_concurrency"

    def _is_below_limit(self, job: JobRow, chosen: int) -> bool:
        return True


class TheDeadTakeUpRoom(BrokenStore):
    """Runs of a dead session count against concurrency until somebody reclaims them."""

    rejected_by = "test_runs_of_a_dead_session_do_not_count_against_concurrency"

    def _is_below_limit(self, job: JobRow, chosen: int) -> bool:
        most = job.spec.policies.concurrency
        return most is None or len(job.running) + chosen < most


class NoLine(BrokenStore):
    """Occurrences of the schedule run beside each other, whatever the overlap policy."""

    rejected_by = "test_occurrences_of_the_schedule_run_one_at_a_time_and_in_order"

    def _is_its_turn(self, row: OccurrenceRow) -> bool:
        return True


class OnlyRunningBlocks(BrokenStore):
    """One that waits for its retry is overtaken by the next."""

    rejected_by = "test_an_occurrence_waiting_for_its_retry_holds_back_the_next"

    def _is_its_turn(self, row: OccurrenceRow) -> bool:
        return row.job.spec.policies.overlap == "allow" or not row.job.running


class NeverExpires(BrokenStore):
    """What is past its expiry runs all the same."""

    rejected_by = "test_an_expired_occurrence_that_never_started_is_missed"

    def _create_occurrence(self, *args, expires_at: datetime | None = None, **more) -> OccurrenceRow:
        return super()._create_occurrence(*args, expires_at=None, **more)


# --- finishing --------------------------------------------------------------------------------------------------------


class NoTokenInFinish(BrokenStore):
    """Whoever finishes a running occurrence is believed."""

    rejected_by = "test_an_outcome_under_an_old_token_is_refused"

    def _current_run(self, occurrence: int, token: int, session: str | None) -> OccurrenceRow | None:
        row = self._space.occurrences.get(occurrence)
        return row if row is not None and row.state is State.RUNNING else None


class FinishNotIdempotent(BrokenStore):
    """A result that is sent again because the answer was lost is refused, as if it had been somebody else's."""

    rejected_by = "test_repeating_gives_the_first_answer_and_writes_nothing"

    def _repeat_answer(self, end: End) -> Settled:
        return structs.replace(super()._repeat_answer(end), accepted=False)


class FinishesOneByOne(BrokenStore):
    """Outcomes are recorded one after the other, until one of them is impossible."""

    rejected_by = "test_states_in_which_no_run_ends_are_refused_and_nothing_is_written"

    def step(self, session: str, step: Step) -> Done:
        settled = [super(FinishesOneByOne, self).step(session, Step(ends=(one,))).settled for one in step.ends]
        done = super().step(session, replace(step, ends=()))
        return replace(done, settled=tuple(itertools.chain.from_iterable(settled)))


class ReleaseCostsAnAttempt(BrokenStore):
    """A drain counts as an attempt."""

    rejected_by = "test_a_release_gives_the_attempt_back"

    def _release_unstarted(self, claim: Claim) -> bool:
        row = self._space.occurrences[claim.id]
        attempt = row.attempt
        released = super()._release_unstarted(claim)
        row.attempt = attempt
        return released


class CutOffRunsAreUnbegun(BrokenStore):
    """Who notices himself that his lease is gone gives back as if nothing had begun."""

    rejected_by = "test_a_run_that_its_node_could_not_hold_counts_as_a_crash"

    def _release_cut(self, claim: Claim, cut: Cut) -> bool:
        return self._release_unstarted(claim)


class StoppedRunsAreCrashes(BrokenStore):
    """A drain counts as a crash."""

    rejected_by = "test_a_run_that_its_node_stopped_keeps_the_number_of_its_attempt"

    def _release_cut(self, claim: Claim, cut: Cut) -> bool:
        return super()._release_cut(claim, "crashed")


class CutsOffWithoutToken(BrokenStore):
    """Whoever had a run gives it back, whosever it is now."""

    rejected_by = "test_cut_off_runs_are_given_back_once_and_under_a_current_token_only"

    def _release_cut(self, claim: Claim, cut: Cut) -> bool:
        row = self._space.occurrences.get(claim.id)
        return row is not None and super()._release_cut(
            structs.replace(claim, token=row.token, session=row.session or ""), cut
        )


class CancelledComesBack(BrokenStore):
    """What was asked to stop and then crashed runs again."""

    rejected_by = "test_a_run_asked_to_stop_is_cancelled_instead_of_run_again"

    def _take_over(
        self, row: OccurrenceRow, session: SessionRow, why: str, now: datetime, *, crashed: bool
    ) -> Takeover:
        row.cancel = None
        return super()._take_over(row, session, why, now, crashed=crashed)


# --- sessions and locks -----------------------------------------------------------------------------------------------


class TakeoversAreNotCounted(BrokenStore):
    """The items of a dead node count as running when they wait again."""

    rejected_by = "test_a_takeover_leaves_the_counts_right"

    def _reclaim(self, presumed_dead: Collection[str]) -> list[Takeover]:
        with self._changed:
            before = deepcopy(self._space.children)
            taken = super()._reclaim(presumed_dead)
            self._space.children = before
        return taken


class WakesWhatIsAwake(BrokenStore):
    """To wake a batch makes anything due that waits."""

    rejected_by = "test_waking_leaves_alone_what_is_awake"

    def _wake(self, numbers: Sequence[int], listed: int | None) -> int:
        with self._changed:
            for number in numbers:
                row = self._space.occurrences.get(number)
                if row is not None and row.state is State.PENDING:
                    self._space.wake_run(row, LATEST)
        return super()._wake(numbers, listed)


class SleepsWithoutToken(BrokenStore):
    """Whoever had a batch puts it to sleep, whosever it is now."""

    rejected_by = "test_a_batch_under_an_old_token_does_not_sleep"

    def _record_end(self, end: End) -> Settled:
        row = self._space.occurrences.get(end.id)
        if isinstance(end.then, Parked) and row is not None:
            end = structs.replace(end, token=row.token, session=row.session)
        return super()._record_end(end)


class SleepsForAWhile(BrokenStore):
    """What sleeps is due in a year."""

    rejected_by = "test_what_sleeps_is_claimed_by_nobody"

    def _record_end(self, end: End) -> Settled:
        settled = super()._record_end(end)
        if isinstance(end.then, Parked) and settled.accepted:
            row = self._space.occurrences[end.id]
            self._space.wake_run(row, row.created_at + timedelta(days=365))
        return settled


class ShowsNothingParked(BrokenStore):
    """Looks do not tell that anything waits to be woken: nobody would, when its waker has died."""

    rejected_by = "test_a_batch_sleeps_until_it_is_woken_and_then_goes_before_its_items"

    def _look(self, *args: Any) -> View:
        return replace(super()._look(*args), parked=False)


class PrunesWhatIsCounted(BrokenStore):
    """Items go when they are old, whether their batch counts them still or not."""

    rejected_by = "test_items_stay_as_long_as_their_batch_is_open"

    def _may_go(self, row: OccurrenceRow, before: datetime) -> bool:
        return row.scheduled_for is None or row.scheduled_for <= row.job.watermark


class PrunesItemsBeforeTheirBatch(BrokenStore):
    """Items go when they are old, although their batch, which may be tried again, is not."""

    rejected_by = "test_items_are_not_pruned_before_their_batch"

    def _may_go(self, row: OccurrenceRow, before: datetime) -> bool:
        batch = self._space.occurrences.get(row.parent or 0)
        return super()._may_go(row, before) or (batch is not None and batch.state.final)


class PrunesWhatIsRetried(BrokenStore):
    """A batch and its items go when they are old, although a retry of it collects what they did."""

    rejected_by = "test_a_batch_is_not_pruned_with_its_items_while_its_retry_is_open"

    def _is_being_retried(self, row: OccurrenceRow) -> bool:
        return False


class PrunesWhatTheRetryOfARetryNeeds(BrokenStore):
    """A batch goes once its retry is over, although that was retried as well and is not."""

    rejected_by = "test_what_the_retry_of_a_retry_collects_is_not_pruned"

    def _is_being_retried(self, row: OccurrenceRow) -> bool:
        batch = row if row.parent is None else self._space.occurrences[row.parent]
        retry = self._space.occurrences.get(batch.retried_as or 0)
        return retry is not None and not retry.state.final


class PrunesWhatIsWaitedFor(BrokenStore):
    """Upstreams go when they are old, whether something waits for them or not."""

    rejected_by = "test_upstreams_are_not_pruned_by_keep_while_a_run_waits"

    def _parked_dependents(self) -> Iterator[OccurrenceRow]:
        return iter(())


class KeepsWhatNobodyWaitsFor(BrokenStore):
    """A batch that waits for its items is taken for what waits for upstreams, and nothing is pruned meanwhile."""

    rejected_by = "test_what_no_open_run_can_need_is_pruned_beside_it"

    def _parked_dependents(self) -> Iterator[OccurrenceRow]:
        return (self._space.occurrences[number] for number in self._space.parked)


class SparesWhatIsNamed(BrokenStore):
    """An operator who names a time gets no room while anything waits."""

    rejected_by = "test_by_a_named_time_it_is_pruned_all_the_same_and_the_answer_says_how_much"

    def _prune_job(self, *args: Any, spare: bool) -> Pruned:
        return super()._prune_job(*args, spare=True)


class RenewRevives(BrokenStore):
    """A renewal that comes too late gives the lease back, if nobody reclaimed the session yet."""

    rejected_by = "test_a_lease_that_ran_out_is_never_revived"

    def renew(self, session: str, *, lease: timedelta, idle_lease: timedelta | None = None) -> Renewal:
        with self._changed:
            row = self._space.open.get(session)
            if row is not None:
                row.until = self._lease_end(lease)
            return super().renew(session, lease=lease, idle_lease=idle_lease)


class RenewNeverShortens(BrokenStore):
    """A renewal only ever prolongs."""

    rejected_by = "test_a_renewal_may_set_a_shorter_lease"

    def renew(self, session: str, *, lease: timedelta, idle_lease: timedelta | None = None) -> Renewal:
        with self._changed:
            row = self._space.open.get(session)
            until = 0.0 if row is None else row.until
            renewal = super().renew(session, lease=lease, idle_lease=idle_lease)
            if row is not None:
                row.until = max(row.until, until)
            return renewal


class IdleWhileItRuns(BrokenStore):
    """A renewal gives the lease of an idle session to whoever asks for it."""

    rejected_by = "test_a_session_that_runs_something_never_gets_the_lease_of_an_idle_one"

    def _lease_for(self, session: SessionRow, lease: timedelta, idle_lease: timedelta) -> timedelta:
        return idle_lease


class IdleWhileOthersRun(BrokenStore):
    """A renewal asks whether anybody runs something."""

    rejected_by = "test_runs_of_other_sessions_do_not_shorten_a_lease"

    def _lease_for(self, session: SessionRow, lease: timedelta, idle_lease: timedelta) -> timedelta:
        return lease if self._space.running else idle_lease


class RenewListsEverybodysRuns(BrokenStore):
    """A renewal lists the runs of the namespace, whoever holds them."""

    rejected_by = "test_a_renewal_lists_the_runs_that_the_session_holds_with_their_tokens"

    def renew(self, session: str, *, lease: timedelta, idle_lease: timedelta | None = None) -> Renewal:
        with self._changed:
            renewal = super().renew(session, lease=lease, idle_lease=idle_lease)
            runs = [self._space.occurrences[one] for one in sorted(self._space.running)]
            return replace(renewal, held=tuple((row.id, row.token) for row in runs))


class RenewListsOldTokens(BrokenStore):
    """A renewal lists a run under the token of the attempt before."""

    rejected_by = "test_a_renewal_lists_a_run_that_was_taken_again_under_its_new_token"

    def renew(self, session: str, *, lease: timedelta, idle_lease: timedelta | None = None) -> Renewal:
        with self._changed:
            renewal = super().renew(session, lease=lease, idle_lease=idle_lease)
            runs = [self._space.occurrences[one].runs[0] for one in sorted(self._space.running)]
            return replace(renewal, held=tuple((run.occurrence, run.token) for run in runs))


class RenewInTwoSteps(BrokenStore):
    """A renewal looks what the session runs, and sets the lease in another step."""

    rejected_by = "test_a_claim_and_a_renewal_never_leave_a_working_session_an_idle_lease"
    claimed: ClassVar[defaultdict[str, threading.Event]] = defaultdict(threading.Event)

    def _step(self, session: str, step: Step) -> Done:
        done = super()._step(session, step)
        self.claimed[session].set()
        return done

    def renew(self, session: str, *, lease: timedelta, idle_lease: timedelta | None = None) -> Renewal:
        with self._changed:
            given = self._lease_for(self._space.sessions[session], lease, idle_lease or lease)
        self.claimed[session].wait(0.1)
        return super().renew(session, lease=given)


class CrashesAreNotCounted(BrokenStore):
    """A job that kills its process walks through the cluster."""

    rejected_by = "test_a_job_that_kills_its_process_does_not_walk_through_the_cluster"

    def _take_over(
        self, row: OccurrenceRow, session: SessionRow, why: str, now: datetime, *, crashed: bool
    ) -> Takeover:
        return super()._take_over(row, session, why, now, crashed=False)


class CountsWhatNeverBegan(BrokenStore):
    """What was reserved on a node that is gone counts as crashed."""

    rejected_by = "test_reserved_claim_whose_node_is_gone_counts_no_crash"

    def _take_over(
        self, row: OccurrenceRow, session: SessionRow, why: str, now: datetime, *, crashed: bool
    ) -> Takeover:
        row.reserved = False
        return super()._take_over(row, session, why, now, crashed=crashed)


class ReservesAgain(BrokenStore):
    """What was reserved on a node that is gone is reserved again, so a job that ends its node is never counted."""

    rejected_by = "test_claim_that_was_reserved_by_a_node_that_is_gone_is_not_reserved_again"

    @staticmethod
    def _may_be_reserved(row: OccurrenceRow) -> bool:
        return row.job.spec.policies.concurrency is None


class ReservesWhatMayRunOnce(BrokenStore):
    """Anything may wait on a node."""

    rejected_by = "test_an_occurrence_that_waits_its_turn_is_not_reserved"

    @staticmethod
    def _may_be_reserved(_: OccurrenceRow) -> bool:
        return True


class TakenOverAndAccepted(BrokenStore):
    """A result is believed although its run was taken over, as long as nobody started it again."""

    rejected_by = "test_a_result_and_a_takeover_do_not_both_win"

    def _record_end(self, end: End) -> Settled:
        row = self._space.occurrences.get(end.id)
        if row is not None and row.state is State.PENDING and row.run_under(end.token) is not None:
            return Settled(end.id, end.token, accepted=True, state=State.SUCCEEDED)
        return super()._record_end(end)


class UnlocksWithoutToken(BrokenStore):
    """Whoever says that it held the lock frees it."""

    rejected_by = "test_a_late_unlock_does_not_free_the_lock_of_the_next_holder"

    def _lock_under(self, grant: LockGrant) -> LockRow | None:
        return self._space.locks.get((grant.name, grant.place))


class LockTokensStartAgain(BrokenStore):
    """Tokens of a lock are counted in its row, which goes when it is freed."""

    rejected_by = "test_the_token_grows_with_every_grant"

    def lock(
        self, name: str, holder: str, *, ttl: timedelta, session: str | None = None, limit: int = 1
    ) -> LockGrant | None:
        with self._changed:
            before = self._space.locks.get((name, 0))
            grant = super().lock(name, holder, ttl=ttl, session=session, limit=limit)
            if grant is None:
                return None
            row = self._space.locks[name, grant.place]
            row.token = 1 if before is None else before.token + 1
            return replace(grant, token=row.token)


class LocksOutliveSessions(BrokenStore):
    """A lock ends with its TTL alone."""

    rejected_by = "test_a_lock_of_a_session_ends_when_the_session_closes"

    def _end_session(self, session: SessionRow, ended_as: str, why: str, *, crashed: bool) -> list[Takeover]:
        session.locks.clear()
        return super()._end_session(session, ended_as, why, crashed=crashed)

    def _is_held(self, lock: LockRow) -> bool:
        return self._monotonic() < lock.until


class OnePlaceTooMany(BrokenStore):
    """A lock has a place more than was asked for, once it has more than one."""

    rejected_by = "test_a_lock_for_several_has_that_many_holders"

    def lock(
        self, name: str, holder: str, *, ttl: timedelta, session: str | None = None, limit: int = 1
    ) -> LockGrant | None:
        more = limit + 1 if limit > 1 else 1
        return super().lock(name, holder, ttl=ttl, session=session, limit=more)


class OwnLimitOnly(BrokenStore):
    """How many may hold a lock is what the caller says, whatever its holders have said."""

    rejected_by = "test_with_different_limits_the_smallest_in_force_counts"

    def lock(
        self, name: str, holder: str, *, ttl: timedelta, session: str | None = None, limit: int = 1
    ) -> LockGrant | None:
        with self._changed:
            for row in self._space.locks.values():
                row.most = 1000
            return super().lock(name, holder, ttl=ttl, session=session, limit=limit)


class KnownPlacesOnly(BrokenStore):
    """Of the holders of a lock only those are counted whose place the caller could have."""

    rejected_by = "test_an_exclusive_lock_is_refused_whichever_place_is_held"

    def lock(
        self, name: str, holder: str, *, ttl: timedelta, session: str | None = None, limit: int = 1
    ) -> LockGrant | None:
        with self._changed:
            beyond = {key: row for key, row in self._space.locks.items() if row.name == name and row.place >= limit}
            for key in beyond:
                del self._space.locks[key]
            try:
                return super().lock(name, holder, ttl=ttl, session=session, limit=limit)
            finally:
                self._space.locks.update(beyond)


class PlaceSeenAndTaken(BrokenStore):
    """To look for a free place and to take it are two steps."""

    rejected_by = "test_a_lock_for_several_has_no_more_holders"
    gap = Gap()

    def lock(
        self, name: str, holder: str, *, ttl: timedelta, session: str | None = None, limit: int = 1
    ) -> LockGrant | None:
        with self._changed:
            held = [
                place
                for lock, place in self._space.locks
                if lock == name and self._is_held(self._space.locks[lock, place])
            ]
            number = self._world.next_number("place")
        if len(held) >= limit:
            return None
        self.gap.wait_for_company()
        grant = super().lock(f"{name} {number}", holder, ttl=ttl, session=session)
        with self._changed:
            row = self._space.locks.pop((f"{name} {number}", 0))
            row.name, row.place = name, number
            self._space.locks[name, number] = row
        return None if grant is None else replace(grant, name=name, place=number)


class UnlockTellsNobody(BrokenStore):
    """Whoever waits for a lock has to look by himself."""

    rejected_by = "test_unlock_notifies_the_wait_queue"

    def unlock(self, grant: LockGrant) -> bool:
        queues, self._space.wait_queues = self._space.wait_queues, {}
        freed = super().unlock(grant)
        self._space.wait_queues = queues
        return freed


class GuestsTakeTurns(BrokenStore):
    """A process that only holds locks is taken for a node."""

    rejected_by = "test_a_guest_takes_no_turn"

    def _is_live_node(self, session: SessionRow) -> bool:
        return self._is_alive(session)

    def open_session(self, session: SessionSpec, *, lease: timedelta) -> datetime:
        opened = super().open_session(session, lease=lease)
        self._space.open_nodes[session.id] = self._space.open[session.id]
        return opened


# --- definitions ------------------------------------------------------------------------------------------------------


class ChangeStartsAnew(BrokenStore):
    """A changed definition begins where the job began."""

    rejected_by = "test_a_change_never_makes_a_decided_time_due_again"

    def _redefine_job(self, job: JobRow, spec: JobSpec, digest: str, payload: str) -> None:
        job.watermark = job.eras[0].since
        super()._redefine_job(job, spec, digest, payload)


class ComesBackInDebt(BrokenStore):
    """A job that is defined again owes everything since it was retired."""

    rejected_by = "test_times_while_a_job_was_retired_are_not_caught_up"

    def _redefine_job(self, job: JobRow, spec: JobSpec, digest: str, payload: str) -> None:
        watermark = job.watermark
        super()._redefine_job(job, spec, digest, payload)
        job.watermark = watermark
        self._space.schedule_job(job)


class LastWriterWins(BrokenStore):
    """A node of the old version that restarts during a deploy puts the old schedule back."""

    rejected_by = "test_an_older_release_changes_nothing_while_a_newer_one_lives"

    def _is_superseded(self, release: str) -> bool:
        super()._is_superseded(release)
        return False


class KeepsNoWordThatItIsMeant(BrokenStore):
    """Who retires what a release has dropped finds nothing to stop, and leaves no trace."""

    rejected_by = "test_retiring_what_a_release_dropped_says_in_the_trail_that_it_is_meant"

    def _retire(self, job: str, *, by: str, why: str) -> bool:
        row = self._space.jobs.get(job)
        return row is not None and row.retired_at is None and super()._retire(job, by=by, why=why)


class RetiresWhatOthersDeclare(BrokenStore):
    """A complete declaration retires the jobs of every other release."""

    rejected_by = "test_nothing_is_retired_while_a_session_of_another_release_lives"

    def _other_release_lives(self, release: str) -> bool:
        return False


# --- keys, namespaces, operators --------------------------------------------------------------------------------------


class FoldsKeys(BrokenStore):
    """Keys are compared as some databases compare text by default."""

    rejected_by = "test_hostile_keys_are_ordinary_and_different_keys"

    def _enqueue_one(self, item: Item, payload: str, now: datetime) -> Enqueued:
        key = None if item.key is None else item.key.casefold().rstrip(" ") or item.key
        return super()._enqueue_one(replace(item, key=key), payload, now)


class EnqueuesOneByOne(BrokenStore):
    """Items are enqueued one after the other, until one of them is bad."""

    rejected_by = "test_nothing_is_enqueued_if_one_item_is_bad"

    def enqueue(self, items: Sequence[Item]) -> list[Enqueued]:
        return [made for item in items for made in super(EnqueuesOneByOne, self).enqueue([item])]


class OneNamespace(BrokenStore):
    """Namespaces are a name that nobody looks at."""

    rejected_by = "test_jobs_of_one_namespace_are_unknown_in_another"

    def _enter_world(self, world: World, namespace: str) -> None:
        super()._enter_world(world, "default")
        self.namespace = namespace


class NoTrail(BrokenStore):
    """Nobody knows who did it."""

    rejected_by = "test_every_act_leaves_operator_action_and_reason"

    def trigger(self, job: str, *, by: str, why: str = "", **more: Any) -> Enqueued:
        with self._changed:
            made = super().trigger(job, by=by, why=why, **more)
            self._space.trail.pop()
            return made


class RetriesWhatWasRetried(BrokenStore):
    """Two operators who retry one run make two runs: its work is done twice."""

    rejected_by = "test_what_was_retried_already_returns_its_newest_retry"

    def _retry(self, occurrence: int, *, by: str, why: str, again: bool) -> Enqueued:
        self._existing_occurrence(occurrence).retried_as = None
        return super()._retry(occurrence, by=by, why=why, again=again)


class TriggersAsDefined(BrokenStore):
    """The arguments that somebody wrote are not those of the run."""

    rejected_by = "test_a_job_is_triggered_with_other_arguments"

    def trigger(self, job: str, *, by: str, why: str = "", arguments: Any = None, **more: Any) -> Enqueued:
        return super().trigger(job, by=by, why=why, **more)


class TriggersWhatWasTriggered(BrokenStore):
    """A form that a browser sends twice makes two runs."""

    rejected_by = "test_a_trigger_with_a_key_makes_one_run"

    def trigger(self, job: str, *, by: str, why: str = "", key: str | None = None, **more: Any) -> Enqueued:
        return super().trigger(job, by=by, why=why, **more)


class ChainsOneByOne(BrokenStore):
    """Of a chain that cannot be made, the first runs: nothing comes after it."""

    rejected_by = "test_a_chain_is_made_whole_or_not_at_all"

    def trigger(self, job: str, *, by: str, why: str = "", downstream: Sequence[str] = (), **more: Any) -> Enqueued:
        made = super().trigger(job, by=by, why=why, **more)
        for one in downstream:
            super().trigger(one, by=by, why=why)
        return made


class BackfillsWhatSucceeded(BrokenStore):
    """A backfill asks only for active occurrences."""

    rejected_by = "test_a_time_that_has_an_active_or_succeeded_occurrence_returns_it"

    def backfill(self, job: str, times: Sequence[datetime], *, by: str, why: str = "") -> list[Enqueued]:
        with self._changed, contextlib.ExitStack() as later:
            for rows in self._space.jobs[job].nominal.values():
                for row in rows:
                    if row.state is State.SUCCEEDED:
                        row.state = State.FAILED
                        later.callback(setattr, row, "state", State.SUCCEEDED)
            return super().backfill(job, times, by=by, why=why)


# --- pruning ----------------------------------------------------------------------------------------------------------


class PrunesUnnoticed(BrokenStore):
    """Nobody can tell what was pruned by hand from what was lost."""

    rejected_by = "test_a_prune_that_goes_by_no_keep_stands_in_the_trail_once"

    def _note_in_trail(self, act: Loss | Prune, by: str) -> None: ...


class PrunesWithoutHorizon(BrokenStore):
    """What was pruned is as if it had never been."""

    rejected_by = "test_a_pruned_time_cannot_be_acquired_or_backfilled"

    def _raise_horizon(self, job: JobRow, times: Iterable[datetime]) -> None:
        pass


class HorizonSinks(BrokenStore):
    """The horizon is where the last prune put it."""

    rejected_by = "test_the_horizon_never_sinks"

    def _raise_horizon(self, job: JobRow, times: Iterable[datetime]) -> None:
        job.horizon = max(times, default=job.horizon)


class AcquiresWhatPlansDecide(BrokenStore):
    """A nominal time that a trigger gives can be won by name, and gets a second verdict from a later plan."""

    rejected_by = "test_the_times_of_a_trigger_are_not_to_be_had"

    @staticmethod
    def _is_named_elsewhere(job: JobRow, time: datetime) -> bool:
        return True


class AcquiresPastWhatIsOwed(BrokenStore):
    """The watermark moves to an acquired time, over what an earlier trigger left undecided."""

    rejected_by = "test_acquiring_passes_over_no_time_that_an_earlier_trigger_left_undecided"

    @staticmethod
    def _may_advance_watermark(job: JobRow, time: datetime) -> bool:
        return job.spec.trigger is None and time > job.watermark


class PrunesAheadOfTheWatermark(BrokenStore):
    """What ran before its time is forgotten before its time."""

    rejected_by = "test_an_occurrence_backfilled_ahead_does_not_run_again_after_pruning"

    def _prune_job(self, job: JobRow, before: datetime, *args: Any, **more: Any) -> Pruned:
        watermark, job.watermark = job.watermark, datetime.max.replace(tzinfo=before.tzinfo)
        try:
            return super()._prune_job(job, before, *args, **more)
        finally:
            job.watermark = watermark


class ForgetsWhatErasOwe(BrokenStore):
    """An era goes when it has been over for long, whether its times were decided or not."""

    rejected_by = "test_an_era_stays_while_it_owes_something"

    @staticmethod
    def _owes_nothing_until(job: JobRow, time: datetime) -> bool:
        return True


class ForgetsErasAndNotTheirTimes(BrokenStore):
    """The watermark stays before the first era that is left, which then gives the times before it."""

    rejected_by = "test_a_job_whose_old_eras_went_fires_at_the_times_of_the_last_one_only"

    @staticmethod
    def _raise_watermark(job: JobRow, time: datetime) -> None:
        pass


class ForgetsJobsThatHaveRuns(BrokenStore):
    """A job goes before what it ran."""

    rejected_by = "test_a_retired_job_stays_while_something_of_it_is_kept"

    def _is_forgettable(self, job: JobRow, before: datetime) -> bool:
        return job.retired_at is not None and job.retired_at < before


class ForgetsJobsThatLive(BrokenStore):
    """A job goes a year after it was retired, also when it came back."""

    rejected_by = "test_a_job_that_came_back_is_not_forgotten"

    def _redefine_job(self, job: JobRow, spec: JobSpec, digest: str, payload: str) -> None:
        self._once_retired = getattr(self, "_once_retired", {})
        if job.retired_at is not None:
            self._once_retired[job.id] = job.retired_at
        super()._redefine_job(job, spec, digest, payload)

    def _is_forgettable(self, job: JobRow, before: datetime) -> bool:
        retired_at = getattr(self, "_once_retired", {}).get(job.id, job.retired_at)
        return retired_at is not None and retired_at < before and not (job.keys or job.ranges)


# --- keys that are used anew ------------------------------------------------------------------------------------------


class KeepsUntilSomebodyPrunes(BrokenStore):
    """How long a key is kept depends on who prunes, and when."""

    rejected_by = "test_a_key_that_was_kept_long_enough_is_acquired_anew_without_a_prune"

    @staticmethod
    def _is_past_keep(row: OccurrenceRow, now: datetime) -> bool:
        return False


class ForgetsTooEarly(BrokenStore):
    """What ended is as if it had never been."""

    rejected_by = "test_a_key_is_not_acquired_again_before_it_was_kept_long_enough"

    @staticmethod
    def _is_past_keep(row: OccurrenceRow, now: datetime) -> bool:
        return row.finished_at is not None


class ForgetsWhatRuns(BrokenStore):
    """A key is forgotten while its function runs, and is run a second time beside it."""

    rejected_by = "test_forget_deletes_a_running_occurrence_only_on_request"

    def forget(self, job: str, key: str, **how: Any) -> State | None:
        return super().forget(job, key, **how | {"running": True})


class TheLastFingerprintStands(BrokenStore):
    """What an attempt was about that was cut off is overwritten by the next one."""

    rejected_by = "test_an_attempt_that_was_cut_off_leaves_its_fingerprint"

    def _claim_named(self, ask: AskNamed, *who: Any) -> Claim | NotWon:
        row = self._space.jobs[ask.job].keys.get(ask.named.key)
        if row is not None and row.state is State.PENDING:
            row.fingerprint = None
        return super()._claim_named(ask, *who)


class FingerprintsOutliveFailures(BrokenStore):
    """A call that failed is what the next one is compared with, although nothing of it is recorded."""

    rejected_by = "test_an_attempt_that_failed_leaves_no_fingerprint"

    def _record_end(self, end: End) -> Settled:
        row = self._space.occurrences.get(end.id)
        before = None if row is None else row.fingerprint
        settled = super()._record_end(end)
        if row is not None:
            row.fingerprint = before
        return settled


# --- steps ------------------------------------------------------------------------------------------------------------


class StepsOnlyForTheLiving(BrokenStore):
    """``step`` asks for the session first, and records nothing of one that is lost."""

    rejected_by = "test_step_of_lost_session_records_what_its_runs_say_and_gets_nothing"

    def _step(self, session: str, step: Step) -> Done:
        if self._is_alive(self._space.sessions[session]):
            return super()._step(session, step)
        refused = tuple(Settled(one.id, one.token, accepted=False, state=None) for one in step.ends)
        return Done(carried_out=(False,) * len(step.plans), settled=refused, lost=True)


class FiresForTheLost(BrokenStore):
    """``step`` carries out plans of a session that is lost, if it wants no work."""

    rejected_by = "test_step_of_lost_session_without_wish_carries_out_no_plan"

    def _step(self, session: str, step: Step) -> Done:
        if step.want is not None:
            return super()._step(session, step)
        with self._changed:
            done = super()._step(session, replace(step, plans=()))
            return replace(done, carried_out=tuple(self._fire_plan(plan, self._now()) for plan in step.plans))


class ClaimsBeforeResults(BrokenStore):
    """``step`` claims before it records what ended."""

    rejected_by = "test_step_with_result_claims_into_the_room_it_made_under_a_limit"

    def _step(self, session: str, step: Step) -> Done:
        early = super()._step(session, Step(want=step.want))
        done = super()._step(session, replace(step, want=None))
        return replace(done, claims=early.claims, lost=early.lost)


class PlansBeforeResults(BrokenStore):
    """``step`` compares plans with what was active before its own outcomes."""

    rejected_by = "test_step_with_plan_compares_what_is_active_after_its_own_outcome"

    def _step(self, session: str, step: Step) -> Done:
        early = super()._step(session, Step(plans=step.plans))
        done = super()._step(session, replace(step, plans=()))
        return replace(done, carried_out=early.carried_out)


class NotesAfterResults(BrokenStore):
    """``step`` records what runs say when they have ended."""

    rejected_by = "test_step_with_notes_of_a_run_that_it_ends_keeps_them"

    def _step(self, session: str, step: Step) -> Done:
        done = super()._step(session, replace(step, notes=()))
        return replace(done, noted=super()._step(session, Step(notes=step.notes)).noted)


class StepsAsOne(BrokenStore):
    """``step`` records nothing if one of its tokens is no longer current."""

    rejected_by = "test_step_with_stale_tokens_beside_good_ones_takes_the_good_ones"

    def _step(self, session: str, step: Step) -> Done:
        current = all(self._current_run(one.id, one.token, one.session) for one in step.ends)
        return super()._step(session, step if current else replace(step, notes=(), give_back=()))


class ClaimsOnlyWhatItFires(BrokenStore):
    """``step`` claims nothing if none of its plans was carried out."""

    rejected_by = "test_step_whose_plan_loses_claims_what_waits"

    def _step(self, session: str, step: Step) -> Done:
        done = super()._step(session, replace(step, want=None))
        fired = any(done.carried_out)
        return replace(super()._step(session, Step(want=step.want)), carried_out=done.carried_out) if fired else done


class KeepsTheZoneRulesOfOthers(BrokenStore):
    """An unchanged job stays due by the zone rules of the node that fired it last."""

    rejected_by = "test_a_job_that_is_paused_is_due_as_the_zone_rules_are_once_it_goes_on"

    def _move_due(self, job: JobRow, spec: JobSpec) -> bool:
        return False


# --- what goes first --------------------------------------------------------------------------------------------------


class OldestFirst(BrokenStore):
    """A batch that waits goes before the schedule."""

    rejected_by = "test_the_schedule_and_people_come_first_then_what_was_enqueued_then_items_and_backfill"

    def _claim_due(self, session: str, want: Want, until: datetime) -> list[Claim]:
        return super()._claim_due(session, replace(want, oldest=True), until)


class NeverTheOldest(BrokenStore):
    """A claim without classes goes by classes, so an item waits for as long as something else is due."""

    rejected_by = "test_without_classes_the_oldest_of_a_priority_comes_first"

    def _claim_due(self, session: str, want: Want, until: datetime) -> list[Claim]:
        return super()._claim_due(session, replace(want, oldest=False), until)


class RetriesOvertake(BrokenStore):
    """What an operator runs again goes first, whatever it is: ten thousand items hold up the schedule."""

    rejected_by = "test_a_retry_keeps_the_class_of_what_it_repeats"

    def _create_occurrence(self, *args: Any, level: int | None = None, **row: Any) -> OccurrenceRow:
        made = super()._create_occurrence(*args, level=level, **row)
        if level is not None:
            self._move(made, first_level(made.priority))
        return made

    def _move(self, row: OccurrenceRow, level: int) -> None:
        self._space._unindex_row(row)
        row.level = level
        self._space._index_row(row)


class WokenBatchesQueue(BrokenStore):
    """A batch whose items are done waits behind what was enqueued before it."""

    rejected_by = "test_a_batch_whose_items_are_done_goes_first"

    def _wake(self, numbers: Sequence[int], listed: int | None) -> int:
        rows = [self._space.occurrences[number] for number in numbers]
        lengths = [row.listed for row in rows]
        for row in rows:
            row.listed = None
        woken = super()._wake(numbers, listed)
        for row, length in zip(rows, lengths, strict=True):
            row.listed = length
        return woken


# --- what a promise rests on ------------------------------------------------------------------------------------------


class FiresWhateverIsPlanned(BrokenStore):
    """``step`` carries out each plan that it is given."""

    rejected_by = "test_the_same_plan_wins_once"

    def _is_plan_current(self, plan: Plan, job: JobRow, until: datetime) -> bool:
        return True


class WritesNoVerdicts(BrokenStore):
    """``step`` moves the watermark past times that nothing is said of."""

    rejected_by = "test_a_plan_writes_its_verdicts"

    def _create_planned(self, plan: Plan, job: JobRow) -> None:
        super()._create_planned(replace(plan, verdicts=()), job)


class ClaimsWhatRuns(BrokenStore):
    """A claim takes what somebody else runs."""

    rejected_by = "test_a_claimed_occurrence_is_not_claimed_again"

    def _claim_due(self, session: str, *wanted: Any) -> list[Claim]:
        for row in list(self._space.occurrences.values()):
            if row.state is State.RUNNING:
                self._space.requeue_run(row, row.due_at)
        return super()._claim_due(session, *wanted)


class AcquiresOfPausedJobs(BrokenStore):
    """A time of a paused job is won by name."""

    rejected_by = "test_no_time_of_a_paused_job_is_won_but_what_stood_before_and_what_has_a_key"

    def _claim_named(self, ask: AskNamed, *who: Any) -> Claim | NotWon:
        row = self._space.jobs[ask.job]
        paused, row.paused_at = row.paused_at, None
        try:
            return super()._claim_named(ask, *who)
        finally:
            row.paused_at = paused


class AcquiresTwiceInOneStep(BrokenStore):
    """Each ask is decided by what stood before the step."""

    rejected_by = "test_of_two_asks_for_one_occurrence_the_first_wins"

    def _acquire(self, session: str, asks: Sequence[Ask | AskNamed], lease: timedelta) -> Answers:
        first = {ask: place for place, ask in reversed(list(enumerate(asks)))}
        answers = super()._acquire(session, asks, lease)
        return [answers[first[ask]] for ask in asks]


class AcquiresOneByOne(BrokenStore):
    """What is asked for before an impossible time is won, and its caller does not learn of it."""

    rejected_by = "test_one_bad_ask_in_many_and_nothing_is_done"

    def _acquire(self, session: str, asks: Sequence[Ask | AskNamed], lease: timedelta) -> Answers:
        return [super(AcquiresOneByOne, self)._acquire(session, [ask], lease)[0] for ask in asks]


class TimesBeyondTheLimit(BrokenStore):
    """A named time is won however many of its job run."""

    rejected_by = "test_a_full_job_has_its_time_skipped_and_says_so_once"

    def _answer_ask(self, ask: Ask, *who: Any) -> tuple[Claim | NotWon, ...]:
        job = self._space.jobs.get(ask.job)
        if job is not None:
            job.spec = replace(job.spec, policies=replace(job.spec.policies, concurrency=None))
        return super()._answer_ask(ask, *who)


class SkipsWhatWaits(BrokenStore):
    """A time that was begun, and waits to be run again, is skipped because its job is full."""

    rejected_by = "test_what_waits_is_taken_when_there_is_room_and_never_skipped"

    def _decide_time(
        self, job: JobRow, time: datetime, intent: Intent, holder: SessionRow, now: datetime, *, below_limit: bool
    ) -> Claim | NotWon:
        found = job.keys.get(scheduled_key(time))
        if found is not None and found.state is State.PENDING and not below_limit:
            self._space.close_run(found, State.SKIPPED, now, reason="overlap")
        return super()._decide_time(job, time, intent, holder, now, below_limit=below_limit)


class MakesRunsForNobody(BrokenStore):
    """An operator makes a run of a job that only other programs run."""

    rejected_by = "test_what_only_other_programs_run_is_made_by_nobody_else"

    def _job_open_to_callers(self, name: str) -> JobRow:
        return self._living_job(name)


class GrantsTooEarly(BrokenStore):
    """A time is won as soon as the fastest clock of a replica names it."""

    rejected_by = "test_a_time_is_not_granted_before_the_clock_of_the_store_says_it"

    def _decide_time(
        self, job: JobRow, time: datetime, intent: Intent, holder: SessionRow, now: datetime, *, below_limit: bool
    ) -> Claim | NotWon:
        return super()._decide_time(job, time, intent, holder, max(now, time), below_limit=below_limit)


class RunsHoweverLate(BrokenStore):
    """A time that was given back before it began waits for ever."""

    rejected_by = "test_what_is_given_back_unbegun_is_missed_past_its_grace_and_what_began_is_not"

    def _create_occurrence(self, *what: Any, expires_at: datetime | None = None, **more: Any) -> OccurrenceRow:
        return super()._create_occurrence(*what, **more)


class LeavesNoVerdict(BrokenStore):
    """A time that nobody ran in time leaves no trace."""

    rejected_by = "test_a_time_that_nobody_started_in_time_is_missed"

    def _acquire(self, session: str, asks: Sequence[Ask | AskNamed], lease: timedelta) -> Answers:
        in_time = [one for one in asks if isinstance(one, AskNamed) or one.intent == "run"]
        return super()._acquire(session, in_time, lease) or [(NotWon.LATE,)]


class KeepsSecrets(BrokenStore):
    """The text of an error is kept as it was raised."""

    rejected_by = "test_no_secret_is_kept_of_an_error_a_reason_or_a_log_line"

    def _record_end(self, end: End) -> Settled:
        answer = super()._record_end(end)
        self._space.occurrences[end.id].error = end.error
        return answer


class KeepsSecretsOfOperators(BrokenStore):
    """Why a job is paused is kept as it was typed."""

    rejected_by = "test_no_secret_is_kept_of_what_an_operator_says"

    def _pause(self, job: str, *, by: str, why: str) -> bool:
        done = super()._pause(job, by=by, why=why)
        self._space.jobs[job].paused_why = why
        return done


class DropsHeaders(BrokenStore):
    """What an enqueuer sends along beside the arguments is lost."""

    rejected_by = "test_headers_go_along_to_each_attempt_and_are_no_arguments"

    def _enqueue(self, items: Sequence[Item]) -> list[Enqueued]:
        return super()._enqueue([replace(one, headers=None) for one in items])


BROKEN = BrokenStore.__subclasses__()
