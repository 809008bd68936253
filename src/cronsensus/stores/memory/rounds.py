"""The verbs of the scheduling round: look, step, acquire."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from heapq import merge
from itertools import groupby, takewhile

from msgspec import structs

from cronsensus.errors import LeaseLost
from cronsensus.model.acquiring import MOST_EARLY, VERDICTS, Ask, AskNamed, Intent, NotWon, refusal
from cronsensus.model.claim_order import priority_of
from cronsensus.model.ends import STATE_AFTER, Again, End, Final, Parked, error_of, recorded_as, unless_cancelled
from cronsensus.model.job import JobState
from cronsensus.model.ledger import LedgerRange
from cronsensus.model.occurrence import (
    CUT_WORDS,
    MOST_IN_FUTURE,
    Claim,
    Cut,
    LogLine,
    Note,
    Settled,
    scheduled_key,
    too_early,
    too_old,
)
from cronsensus.model.plan import Plan
from cronsensus.model.states import SERIAL_ORIGINS, Origin, Reason, State
from cronsensus.model.step import Done, GiveBack, Step, Want, may_be_reserved
from cronsensus.payload.codec import clean, clean_error, clean_optional
from cronsensus.stores.memory.memory_handle import Handle, writes
from cronsensus.stores.memory.state import JobRow, OccurrenceRow, SessionRow
from cronsensus.stores.values import MOST_AHEAD, NO_DELAY, Partition, View, newest_of
from cronsensus.timing.instants import after, to_micros

MOST_SESSIONS_SHOWN = 64
_NEVER = 1 << 62


class RoundVerbs(Handle):
    """The verbs of a node's round."""

    # --- look ---------------------------------------------------------------------------------------------------------

    def _look(self, limit: int, partition: Partition | None, ahead: timedelta) -> View:
        """Look by the indexes: the cost does not grow with the jobs that are not due."""
        with self._changed:
            now, space = self._now(), self._space
            after_now = (now, _NEVER)
            until = after(now, ahead)
            due_entries = takewhile(lambda entry: entry[0] <= until, space.due)
            soon = [entry for entry in due_entries if partition is None or entry[1] % partition.of == partition.place]
            has_more = len(soon) > limit
            if has_more:
                due_count = bisect_right(soon, now, key=lambda entry: entry[0])
                newest = soon[max(due_count - newest_of(limit), 0) : due_count]
                soon = list(dict.fromkeys([*soon[: limit - len(newest)], *newest]))
            jobs = [job for _, job in soon]
            heads = [waiting.first() for waiting in space.pending.values()]
            later = [next(waiting.keys_after(after_now), None) for waiting in space.pending.values()]
            holding = {space.occurrences[occurrence].session or "" for occurrence in space.running}
            holders = sorted(
                (space.open[session] for session in holding if session in space.open), key=lambda row: row.number
            )
            live_nodes = sorted(row.spec.id for row in space.open_nodes.values() if self._is_live_node(row))
            return View(
                now=now,
                jobs=tuple(job_state(space.jobs_by_id[job]) for job in jobs),
                more=has_more,
                next_job=next((due_at for due_at, _ in space.due.keys_after((until, _NEVER))), None),
                backlog=any(head is not None and head[0] <= now for head in heads),
                next_pending=min((entry[0] for entry in later if entry is not None), default=None),
                holders=tuple(self._session_view(session) for session in holders),
                sessions=tuple(live_nodes[:MOST_SESSIONS_SHOWN]),
                parked=bool(space.parked),
            )

    # --- step ---------------------------------------------------------------------------------------------------------

    @writes
    def _step(self, session: str, step: Step) -> Done:
        """Carry out the step under the lock; nothing in it can fail halfway."""
        noted = tuple(self._record_note(note) for note in step.notes)
        settled = tuple(self._record_end(end) for end in step.ends)
        returned = tuple(self._release_claim(release) for release in step.give_back)
        want, fired, claims = step.want, [False] * len(step.plans), list[Claim]()
        lost = step.needs_lease and not self._is_session_alive(session)
        if not lost:
            until = self._now() + (want.ahead if want else NO_DELAY)
            fired = [self._fire_plan(plan, until) for plan in step.plans]
            claims = self._claim_due(session, want, until) if want else claims
        return Done(
            noted=noted,
            settled=settled,
            returned=returned,
            carried_out=tuple(fired),
            claims=tuple(claims),
            lost=lost,
        )

    def _is_session_alive(self, session: str) -> bool:
        try:
            self._live_session(session)
        except LeaseLost:
            return False
        return True

    def _release_claim(self, release: GiveBack) -> bool:
        if release.cut is None:
            return self._release_unstarted(release.claim)
        return self._release_cut(release.claim, release.cut)

    # --- plans --------------------------------------------------------------------------------------------------------

    def _fire_plan(self, plan: Plan, until: datetime) -> bool:
        job = self._space.jobs_by_id.get(plan.job_id)
        if job is None or not self._is_plan_current(plan, job, until):
            return False
        self._create_planned(plan, job)
        self._move_watermark(plan, job)
        return True

    def _is_plan_current(self, plan: Plan, job: JobRow, until: datetime) -> bool:
        """Whether the job is as the plan saw it, and the plan's time has come."""
        seen = (plan.watermark_seen, plan.revision, plan.active_seen)
        unchanged = job.fires and seen == (job.watermark, job.revision, job.active)
        unchanged = unchanged and plan.watermark >= job.watermark and plan.definition in {"", definition_of(job)}
        return unchanged and (plan.not_before is None or plan.not_before <= until)

    def _create_planned(self, plan: Plan, job: JobRow) -> None:
        now = self._now()
        if plan.cancel_previous:
            for occurrence in list(job.serial):
                self._ask_to_cancel(self._space.occurrences[occurrence], Reason.REPLACED, now)
        for planned in plan.occurrences:
            key = scheduled_key(planned.scheduled_for)
            if key not in job.keys:  # it may have been acquired by name, or backfilled, before its time
                self._create_occurrence(
                    job,
                    key,
                    Origin.SCHEDULE,
                    planned.due_at,
                    now,
                    scheduled_for=planned.scheduled_for,
                    expires_at=planned.expires_at,
                    parked_on=planned.parked_on,
                )
        for verdict in plan.verdicts:
            job.ranges.append(LedgerRange(self._world.next_number("range"), job.spec.name, verdict, now))

    def _move_watermark(self, plan: Plan, job: JobRow) -> None:
        if job.next_due is not None:
            self._space.due.discard((job.next_due, job.id))
        job.watermark, job.next_due = plan.watermark, plan.next_due
        self._space.index_due(job)

    def _ask_to_cancel(self, row: OccurrenceRow, reason: str, now: datetime) -> State:
        """Cancel a pending occurrence; ask a running one to stop (the first reason stays). Return its state now."""
        if row.state is State.PENDING:
            self._space.close_run(row, State.CANCELLED, now, reason=reason)
        elif row.cancel is None:
            row.cancel = reason
        return row.state

    # --- claims -------------------------------------------------------------------------------------------------------

    def _claim_due(self, session: str, want: Want, until: datetime) -> list[Claim]:
        holder = self._live_session(session)
        now = self._now()
        self._space.expire_late(now)
        selected = self._choose_claims(want, until)
        selected = selected[: want.part(len(selected))]
        claims = [self._start_run(row, holder, now, at=max(now, row.due_at)) for row in selected]
        for place in range(max(want.limit, 0), len(selected)):
            selected[place].reserved = True
            claims[place] = structs.replace(claims[place], reserved=True)
        if claims:
            self._set_lease(holder, want.lease, now)
        return claims

    def _choose_claims(self, want: Want, until: datetime) -> list[OccurrenceRow]:
        """Return due occurrences that may run now, in the order of claims.

        An entry that cannot be reserved is not overtaken by one that can.
        """
        selected: list[OccurrenceRow] = []
        of_job: Counter[int] = Counter()
        functions, limit = frozenset(want.functions), max(want.limit, 0)
        for row in self._list_waiting(until, want):
            if len(selected) >= limit + want.reserve:
                break
            job = row.job
            if job.spec.function in functions and self._is_below_limit(job, of_job[job.id]) and self._is_its_turn(row):
                if len(selected) >= limit and not self._may_be_reserved(row):
                    break
                selected.append(row)
                of_job[job.id] += 1
        return selected

    @staticmethod
    def _may_be_reserved(row: OccurrenceRow) -> bool:
        policies = row.job.spec.policies
        serial = row.origin in SERIAL_ORIGINS and policies.overlap != "allow"
        return may_be_reserved(policies, attempt=row.attempt, failures=row.failures, serial=serial)

    def _list_waiting(self, until: datetime, want: Want) -> Iterator[OccurrenceRow]:
        """Yield due pending occurrences in the order of claims, see ``model.claim_order``."""
        levels = sorted(self._space.pending, reverse=True)
        for _, of_priority in groupby(levels, key=priority_of if want.oldest else None):
            for due_at, occurrence in merge(*(self._space.pending[level] for level in of_priority)):
                if due_at > until:
                    break
                yield self._space.occurrences[occurrence]

    def _is_below_limit(self, job: JobRow, selected: int) -> bool:
        """Whether ``concurrency`` allows another run. Runs of dead sessions do not count."""
        most = job.spec.policies.concurrency
        if most is None:
            return True
        holders = (self._space.occurrences[occurrence].session for occurrence in job.running)
        living = sum(1 for holder in holders if holder is not None and self._is_alive(self._space.sessions[holder]))
        return living + selected < most

    def _is_its_turn(self, row: OccurrenceRow) -> bool:
        """Whether no earlier occurrence under the overlap policy is active, and none of them runs."""
        job = row.job
        if row.origin not in SERIAL_ORIGINS or job.spec.policies.overlap == "allow":
            return True
        is_running = any(self._space.occurrences[running].origin in SERIAL_ORIGINS for running in job.running)
        return job.serial.first() == row.id and not is_running

    @writes
    def _acquire(
        self, session: str, asks: Sequence[Ask | AskNamed], lease: timedelta
    ) -> list[tuple[Claim | NotWon, ...]]:
        """Claim occurrences. A nominal time that is refused by a rule gets its verdict."""
        holder, now = self._live_session(session), self._now()
        for ask in asks:
            for time in ask.times:
                if time - now > MOST_IN_FUTURE:
                    raise too_early(ask.job, time, now)
        self._space.expire_late(now)
        answers = [
            self._answer_ask(ask, holder, now) if isinstance(ask, Ask) else (self._claim_named(ask, holder, now),)
            for ask in asks
        ]
        if any(isinstance(outcome, Claim) for answer in answers for outcome in answer):
            self._set_lease(holder, lease, now)
        return answers

    def _claim_named(self, ask: AskNamed, holder: SessionRow, now: datetime) -> Claim | NotWon:
        """Claim the occurrence of this name, even if others have waited longer."""
        key, scheduled_for = ask.named.key, ask.named.scheduled_for
        job = self._space.jobs.get(ask.job)
        if job is None or job.retired_at is not None:
            return NotWon.UNKNOWN
        if scheduled_for is not None and job.horizon is not None and scheduled_for <= job.horizon:
            return NotWon.PRUNED
        if scheduled_for is not None and not self._is_named_elsewhere(job, scheduled_for):
            return NotWon.LOST
        occurrence = job.keys.get(key)
        if occurrence is not None and scheduled_for is None and self._is_past_keep(occurrence, now):
            self._space.delete_run(occurrence)
            occurrence = None
        if occurrence is None:
            if scheduled_for is not None and job.paused_at is not None:
                return NotWon.LOST
            origin = Origin.SCHEDULE if scheduled_for is not None else Origin.ENQUEUE
            occurrence = self._create_occurrence(job, key, origin, now, now, scheduled_for=scheduled_for)
            if scheduled_for is not None and self._may_advance_watermark(job, scheduled_for):
                job.watermark = scheduled_for
        elif occurrence.state is not State.PENDING:
            return NotWon.LOST
        if occurrence.fingerprint is None or occurrence.attempt == 0:
            occurrence.fingerprint = ask.fingerprint
        claim = self._start_run(occurrence, holder, now, at=now)
        occurrence.due_at = min(occurrence.due_at, now)
        return structs.replace(claim, due_at=occurrence.due_at, fingerprint=occurrence.fingerprint)

    def _answer_ask(self, ask: Ask, holder: SessionRow, now: datetime) -> tuple[Claim | NotWon, ...]:
        job = self._space.jobs.get(ask.job)
        if job is None or job.retired_at is not None:
            return (NotWon.UNKNOWN,) * len(ask.times)
        below_limit = self._is_below_limit(job, 0)
        return tuple(
            self._decide_time(job, time, ask.intent, holder, now, below_limit=below_limit) for time in ask.times
        )

    def _decide_time(
        self, job: JobRow, time: datetime, intent: Intent, holder: SessionRow, now: datetime, *, below_limit: bool
    ) -> Claim | NotWon:
        if time - now > MOST_EARLY:
            return NotWon.EARLY
        if (job.horizon is not None and time <= job.horizon) or not self._is_named_elsewhere(job, time):
            return NotWon.LOST
        key = scheduled_key(time)
        occurrence = job.keys.get(key)
        if occurrence is not None:
            takes = occurrence.state is State.PENDING and occurrence.due_at <= now and intent == "run" and below_limit
            return self._start_run(occurrence, holder, now, at=now) if takes else NotWon.LOST
        refused = refusal(intent, paused=job.paused_at is not None, below_limit=below_limit)
        if refused is NotWon.LEFT:
            return refused
        grace = job.spec.policies.grace
        expires_at = None if grace is None else after(time, grace)
        occurrence = self._create_occurrence(
            job, key, Origin.SCHEDULE, now, now, scheduled_for=time, expires_at=expires_at
        )
        if self._may_advance_watermark(job, time):
            job.watermark = time
        if refused is None:
            return self._start_run(occurrence, holder, now, at=now)
        state, reason = VERDICTS[refused]
        self._space.close_run(occurrence, state, now, reason=reason)
        return refused

    @staticmethod
    def _is_past_keep(row: OccurrenceRow, now: datetime) -> bool:
        """Whether an occurrence has ended, and its job's ``keep`` has passed since."""
        return row.finished_at is not None and row.finished_at < now - row.job.spec.policies.keep

    @staticmethod
    def _is_named_elsewhere(job: JobRow, time: datetime) -> bool:
        """Whether another program named the job's times at ``time``, because its era had no trigger.

        A time before the first era counts as in that.
        """
        earlier = [era for era in job.eras if era.since < time]
        return (earlier or job.eras[:1])[-1].trigger is None

    @staticmethod
    def _may_advance_watermark(job: JobRow, time: datetime) -> bool:
        """Whether the watermark may move to ``time``.

        It may if another program names the times, and no earlier time is undecided.
        """
        nothing_owed = job.next_due is None or job.next_due > time
        return job.spec.trigger is None and time > job.watermark and nothing_owed

    # --- results ------------------------------------------------------------------------------------------------------

    def _record_end(self, end: End) -> Settled:
        row = self._current_run(end.id, end.token, end.session)
        if row is None:
            return self._repeat_answer(end)
        now, outcome = self._now(), unless_cancelled(end.then, row.cancel)
        self._space.start_reserved(row, now - end.elapsed)
        error = error_of(outcome)
        row.error, reason = None if error is None else clean_error(error), clean_optional(outcome.reason)
        if (recorded := recorded_as(outcome)) is None:
            row.runs.pop()
        else:
            self._space.end_run(row, recorded, now, reason=reason, error=row.error)
        if isinstance(outcome, Final):
            row.result = outcome.result
            self._space.close_run(row, outcome.state, now, reason=reason)
            return Settled(end.id, end.token, accepted=True, state=outcome.state)
        row.reason, row.fingerprint = reason, None
        match outcome:
            case Again(failed=True):
                row.failures += 1
                self._space.requeue_run(row, after(now, outcome.after))
            case Again():
                row.attempt, row.expires_at, row.note = row.attempt - 1, None, outcome.note
                if outcome.note is not None:
                    row.failures = 0
                self._space.requeue_run(row, after(now, outcome.after))
            case Parked():
                row.attempt, row.expires_at, row.failures, row.crashes = row.attempt - 1, None, 0, 0
                row.note = None
                row.listed = row.listed if outcome.listed is None else outcome.listed
                self._space.park_run(row, outcome.on)
        return Settled(end.id, end.token, accepted=True, state=State.PENDING)

    def _repeat_answer(self, end: End) -> Settled:
        """Answer for a run that is not current.

        If this token ended it, repeat the first answer; else the end is not accepted.
        """
        row = self._space.occurrences.get(end.id)
        if row is None:
            return Settled(end.id, end.token, accepted=False, state=None)
        if recorded_as(end.then) is None and row.token == end.token and row.state is State.PENDING:
            return Settled(end.id, end.token, accepted=True, state=State.PENDING)
        run = row.run_under(end.token)
        first = None if run is None or run.end is None else STATE_AFTER.get(run.end)
        if run is not None and first is not None and end.session in {None, run.session}:
            return Settled(end.id, end.token, accepted=True, state=first)
        return Settled(end.id, end.token, accepted=False, state=row.state)

    def _release_cut(self, claim: Claim, cut: Cut) -> bool:
        row = self._current_run(claim.id, claim.token, claim.session)
        if row is None:
            return False
        self._cut_off(row, CUT_WORDS[cut], self._now(), crashed=cut == "crashed")
        return True

    def _release_unstarted(self, claim: Claim) -> bool:
        row = self._current_run(claim.id, claim.token, claim.session)
        if row is None:
            return False
        now = self._now()
        self._space.end_run(row, "released", now)
        row.reason = None
        row.attempt -= 1
        if row.cancel is not None:
            self._space.close_run(row, State.CANCELLED, now, reason=row.cancel)
        else:
            self._space.requeue_run(row, min(row.due_at, now + MOST_AHEAD))
        return True

    def _record_note(self, note: Note) -> bool:
        row = self._current_run(note.id, note.token, note.session)
        if row is None:
            return False
        if note.ran is not None:
            self._space.start_reserved(row, self._now() - note.ran)
        if note.progress is not None:
            row.progress = note.progress
        for line in note.lines:
            kept = LogLine(line.at, clean(line.level), clean(line.text))
            row.lines.append((len(row.lines) + 1, row.attempt, kept))
        return True


def refuse_pruned(job: JobRow, time: datetime) -> None:
    """Raise for a nominal time at or below the pruned horizon."""
    if job.horizon is not None and time <= job.horizon:
        raise too_old(job.spec.name, time, job.horizon)


def job_state(job: JobRow) -> JobState:
    """Return the state of a job for planning."""
    return JobState(
        id=job.id,
        spec=job.spec,
        revision=job.revision,
        watermark=job.watermark,
        eras=job.eras_after_watermark(),
        pauses=tuple(pause for pause in job.pauses if pause.end is None or pause.end > job.watermark),
        active=job.active,
        due_at=job.next_due,
        definition=definition_of(job),
    )


def definition_of(job: JobRow) -> str:
    """Return the text that identifies a definition and its beginning; see ``JobState``."""
    return f"{job.digest}:{job.revision}:{to_micros(job.eras[-1].since)}"
