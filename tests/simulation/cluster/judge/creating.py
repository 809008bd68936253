"""Rules on definitions, and on what creates, cancels and forgets occurrences."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from cronsensus.model.occurrence import Enqueued, scheduled_key
from cronsensus.model.plan import Plan
from cronsensus.model.states import ACTIVE, Origin, State
from cronsensus.stores.values import NO_DELAY
from tests.simulation.cluster.judge.bench import Bench, Seen
from tests.simulation.cluster.judge.books import JobBook, Record


class CreatingRules(Bench):
    """Each nominal time is decided once, none ahead of its time, none while its job is paused."""

    # --- definitions -------------------------------------------------------------------------------------------------

    def define_jobs(self, seen: Seen) -> None:
        """Note what a release declares."""
        for spec in seen.args[0]:
            if spec.name in seen.answer.created:
                self.jobs[spec.name] = JobBook(spec, self.now)
            elif spec.name in seen.answer.changed:
                self.jobs[spec.name].redefine(spec, self.now)
        for name in seen.answer.retired:
            self._retired(name)

    def retire(self, seen: Seen) -> None:
        """Note the end of a job."""
        if seen.answer:
            self._retired(seen.args[0])

    def _retired(self, name: str) -> None:
        self.jobs[name].retire(self.now)
        for record in self.jobs[name].records:
            if record.state is State.PENDING:
                record.state = State.CANCELLED

    def pause(self, seen: Seen) -> None:
        """Note the begin of a pause."""
        if seen.answer:
            self.jobs[seen.args[0]].paused = True

    def resume(self, seen: Seen) -> None:
        """Note the end of a pause."""
        if seen.answer:
            self.jobs[seen.args[0]].paused = False

    # --- the schedule ------------------------------------------------------------------------------------------------

    def fire(self, seen: Seen) -> None:
        """Look at each plan that won."""
        for plan, won in zip(seen.args[0], seen.answer, strict=True):
            if won:
                self._fired(plan, self.now + seen.kwargs.get("ahead", NO_DELAY))

    def _fired(self, plan: Plan, until: datetime) -> None:
        job = self.jobs[plan.job]
        if job.paused or job.retired:
            self.broken("fire", f"{plan.job} fires although it is paused or retired")
        firsts = [planned.scheduled_for for planned in plan.occurrences] + [verdict.first for verdict in plan.verdicts]
        if plan.watermark < job.watermark or any(first <= job.watermark for first in firsts):
            self.broken("decided twice", f"{plan.job}: a plan from {plan.watermark_seen} after {job.watermark}")
        if plan.watermark > until:
            self.broken("early", f"{plan.job} is decided up to {plan.watermark}, and it is {self.now}")
        counted = 0 if job.spec.policies.overlap == "allow" else len(self.active(plan.job))
        if plan.active_seen != counted:
            self.broken(
                "overlap", f"{plan.job} is planned for {plan.active_seen} active occurrences, and has {counted}"
            )
        if self.stage.scenario.punctual and not self.stage.scenario.rough and not self.stage.parts.forgets:
            self._punctual(job, plan)
        job.watermark = max(job.watermark, plan.watermark)
        if plan.cancel_previous:
            for record in self.active(plan.job):
                self.ask_to_cancel(record)
        for planned in plan.occurrences:
            key = scheduled_key(planned.scheduled_for)
            standing = self.by_key.get((plan.job, key))
            if standing is not None and not standing.pruned:
                standing.adopted = True
                continue
            if planned.scheduled_for in job.fired or standing is not None:
                self.broken("fired twice", f"{plan.job} at {planned.scheduled_for}")
            job.fired.add(planned.scheduled_for)
            self._create(
                plan.job,
                key,
                Origin.SCHEDULE,
                planned.due_at,
                scheduled_for=planned.scheduled_for,
                expires_at=planned.expires_at,
            )

    def _punctual(self, job: JobBook, plan: Plan) -> None:
        """Where nothing goes wrong, no job is paused and some node is always there, nothing is late."""
        late = (self.now - plan.watermark).total_seconds()
        if late > 1.0 + self.stage.scenario.watch and plan.watermark > job.declared_at:
            self.broken("late", f"{plan.job} at {plan.watermark} was found {late:g}s later, on a quiet night")

    # --- people and programs -----------------------------------------------------------------------------------------

    def enqueue(self, seen: Seen) -> None:
        """Note what was enqueued; a key that stands already creates nothing."""
        for item, one in zip(seen.args[0], seen.answer, strict=True):
            due_at = self.now + item.delay
            expires_at = None if item.expires_in is None else due_at + item.expires_in
            self._made(one, item.origin, due_at, expires_at=expires_at)

    def make_if_absent(self, seen: Seen) -> None:
        """Note what ``acquire`` makes; a time that another program keeps moves the watermark."""
        name, time, claim = seen.args[1], seen.kwargs.get("scheduled_for"), seen.answer
        key = seen.kwargs["key"] if time is None else scheduled_key(time)
        standing = self.by_key.get((name, key))
        if standing is not None and claim is not None and time is None and claim.id != standing.id:
            self._is_gone(standing)  # it was kept long enough, and made anew
        if standing is not None and not standing.pruned:
            return
        if standing is not None and time is not None:
            self.broken("acquired twice", f"{name} at {time}, which was pruned")
        job = self.jobs[name]
        may_be_made = time is None or (job.may_be_acquired(time) and not job.paused)
        if may_be_made is (claim is None):
            self.broken("acquire", f"{name} {key} is not there; to be made: {may_be_made}; given: {claim is not None}")
        if claim is None:
            return
        origin = Origin.ENQUEUE if time is None else Origin.SCHEDULE
        self._create(name, key, origin, self.now, scheduled_for=time, number=claim.id)
        if time is not None and job.spec.trigger is None:
            job.acquired.add(time)
            if time > job.watermark and not job.nominals(job.watermark, time):
                job.watermark = time

    def trigger(self, seen: Seen) -> None:
        """Note a run by hand."""
        self._made(seen.answer, Origin.MANUAL, self.now)

    def retry(self, seen: Seen) -> None:
        """Note a retry by hand; only what is over may be retried, once, and what succeeded for who says so."""
        old = self.by_id[seen.args[0]]
        if seen.answer.created:
            if old.state in ACTIVE or (old.state is State.SUCCEEDED and not seen.kwargs["again"]):
                self.broken("retry", f"{old} is {old.state} and was retried")
            earlier = self.retries.get(old.id)
            if earlier is not None and not self.stage.was_pruned(earlier):
                self.broken("retried twice", f"{old} as #{earlier} and as #{seen.answer.id}")
            self.retries[old.id] = seen.answer.id
        origin = Origin.MANUAL if old.serial else old.origin
        self._made(seen.answer, origin, self.now, scheduled_for=old.scheduled_for)

    def backfill(self, seen: Seen) -> None:
        """Note what was backfilled."""
        for time, one in zip(seen.args[1], seen.answer, strict=True):
            self._made(one, Origin.BACKFILL, self.now, scheduled_for=time)

    def cancel(self, seen: Seen) -> None:
        """Note a request to cancel."""
        self.ask_to_cancel(self.by_id[seen.args[0]])

    def prune(self, seen: Seen) -> None:
        """Note what is forgotten; only what is over may be."""
        for record in self.records if seen.answer else ():
            self._is_gone(record)

    def _is_gone(self, record: Record) -> None:
        if not record.pruned and self.stage.was_pruned(record.id):
            record.pruned = True
            if record.state in ACTIVE:
                self.broken("prune", f"{record} is gone, and was {record.state}")

    def _made(self, one: Enqueued, origin: Origin, due_at: datetime, **more: Any) -> None:
        standing = self.by_key.get((one.job, one.key))
        if one.created:
            self._create(one.job, one.key, origin, due_at, number=one.id, **more)
        elif standing is None or standing.id != one.id or standing.state is not one.state:
            self.broken("enqueue", f"{one.job} {one.key} was answered as #{one.id} {one.state}, and is {standing}")

    def _create(
        self,
        job: str,
        key: str,
        origin: Origin,
        due_at: datetime,
        *,
        scheduled_for: datetime | None = None,
        expires_at: datetime | None = None,
        number: int | None = None,
    ) -> None:
        record = Record(
            id=self.stage.number_of(job, key) if number is None else number,
            job=job,
            key=key,
            origin=origin,
            created=len(self.records),
            due_at=due_at,
            scheduled_for=scheduled_for,
            expires_at=expires_at,
        )
        self.records.append(record)
        if expires_at is not None:
            self.expiring.append((expires_at, record))
        self.by_key[job, key] = self.by_id[record.id] = record
        self.jobs[job].records.append(record)
