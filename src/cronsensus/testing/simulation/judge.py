"""A count kept outside the system: what may happen at each verb, reckoned from what happened before. Floor 6.

The judge sees every verb in the moment in which the store carried it out (not when, or whether, a node got the answer),
and every piece of work that begins or ends. It keeps books of its own, in the plainest way, and compares. It never asks
the store what to think; what the store's ledger says in the end is compared by ``reckoning``.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from cronsensus.model.ending import EndingKind
from cronsensus.model.occurrence import Claim, Enqueued, Outcome, Settled, Takeover, scheduled_key
from cronsensus.model.plan import Plan
from cronsensus.model.session import Renewal, SessionSpec
from cronsensus.model.states import ACTIVE, Origin, State
from cronsensus.testing.simulation.books import JobBook, Record, SessionBook
from cronsensus.testing.simulation.clocks import SECOND

if TYPE_CHECKING:
    from cronsensus.testing.simulation.work import Work
    from cronsensus.testing.simulation.world import World

FUZZ = 1000
"""Microseconds within which the store's floats and the judge's integers may differ about the end of a lease."""


class Judge:
    """Keeps the books and names what must not be."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.violations: list[str] = []
        self.jobs: dict[str, JobBook] = {}
        self.records: dict[tuple[str, str], Record] = {}
        self.by_id: dict[int, Record] = {}
        self.sessions: dict[str, SessionBook] = {}
        self.live: dict[tuple[int, int], Work] = {}
        """Work under way, zombies included."""
        self._said: dict[tuple[int, int], tuple[EndingKind, bool, bool]] = {}
        self._token = 0
        self._sees: dict[str, Callable[[tuple[Any, ...], dict[str, Any], Any], None]] = {
            verb: getattr(self, f"_{verb}")
            for verb in (
                "put_jobs", "retire", "fire", "claim", "finish", "release", "open_session", "renew", "close_session",
                "reclaim", "enqueue", "trigger", "pause", "resume", "cancel", "retry", "backfill", "prune",
            )
        }  # fmt: skip

    def broken(self, rule: str, what: str) -> None:
        """Name a violation."""
        self.violations.append(f"{rule}: {what}")
        self._world.trace.add(self._world.clock.micros, "judge", "VIOLATION", rule, what)

    def saw(self, verb: str, args: tuple[Any, ...], kwargs: dict[str, Any], answer: Any) -> None:
        """Look at what the store just did."""
        sees = self._sees.get(verb)
        if sees is not None:
            sees(args, kwargs, answer)

    # --- definitions ------------------------------------------------------------------------------------------------------

    def _put_jobs(self, args: tuple[Any, ...], kwargs: dict[str, Any], answer: Any) -> None:
        now = self._now()
        for spec in args[0]:
            if spec.name in answer.created:
                self.jobs[spec.name] = JobBook(spec, now)
            elif spec.name in answer.changed:
                self.jobs[spec.name].redefine(spec, now)
        for name in answer.retired:
            self._retired(name)

    def _retire(self, args: tuple[Any, ...], kwargs: dict[str, Any], answer: bool) -> None:
        if answer:
            self._retired(args[0])

    def _retired(self, name: str) -> None:
        self.jobs[name].retire(self._now())
        for record in self._of_job(name):
            if record.state is State.PENDING:
                record.state = State.CANCELLED

    def _pause(self, args: tuple[Any, ...], kwargs: dict[str, Any], answer: bool) -> None:
        if answer:
            self.jobs[args[0]].paused = True

    def _resume(self, args: tuple[Any, ...], kwargs: dict[str, Any], answer: bool) -> None:
        if answer:
            self.jobs[args[0]].paused = False

    # --- what creates -----------------------------------------------------------------------------------------------------

    def _fire(self, args: tuple[Any, ...], kwargs: dict[str, Any], answer: list[bool]) -> None:
        for plan, won in zip(args[0], answer, strict=True):
            if won:
                self._fired(plan)

    def _fired(self, plan: Plan) -> None:
        job = self.jobs[plan.job]
        if job.paused or job.retired:
            self.broken("fire", f"{plan.job} fires although it is paused or retired")
        firsts = [planned.scheduled_for for planned in plan.occurrences] + [verdict.first for verdict in plan.verdicts]
        if plan.watermark < job.watermark or any(first <= job.watermark for first in firsts):
            self.broken("decided twice", f"{plan.job}: a plan from {plan.watermark_seen} after {job.watermark}")
        if plan.watermark > self._now():
            self.broken("early", f"{plan.job} is decided up to {plan.watermark}, ahead of the store's clock")
        job.watermark = max(job.watermark, plan.watermark)
        if plan.cancel_previous:
            for record in self._active(plan.job):
                self._ask_to_cancel(record)
        for planned in plan.occurrences:
            key = scheduled_key(planned.scheduled_for)
            standing = self.records.get((plan.job, key))
            if standing is not None and not standing.pruned:
                standing.adopted = True
                continue
            if planned.scheduled_for in job.fired:
                self.broken("fired twice", f"{plan.job} at {planned.scheduled_for}")
            job.fired.add(planned.scheduled_for)
            self._create(plan.job, key, Origin.SCHEDULE, planned.due_at, planned.scheduled_for, planned.expires_at)

    def _create(self, job: str, key: str, origin: Origin, due_at: datetime, scheduled_for: datetime | None = None,
                expires_at: datetime | None = None, number: int | None = None) -> None:  # fmt: skip
        record = Record(
            job=job, key=key, origin=origin, created=len(self.records), due_at=due_at,
            scheduled_for=scheduled_for, expires_at=expires_at,
        )  # fmt: skip
        self.records[job, key] = record
        self.jobs[job].records.append(record)
        record.id = self._world.number_of(job, key) if number is None else number
        self.by_id[record.id] = record

    def _made(self, one: Enqueued, origin: Origin, due_at: datetime, scheduled_for: datetime | None = None,
              expires_at: datetime | None = None) -> None:  # fmt: skip
        if one.created:
            self._create(one.job, one.key, origin, due_at, scheduled_for, expires_at, one.id)
        elif (one.job, one.key) not in self.records:
            self.broken("enqueue", f"{one.job} {one.key} stands already, but nobody made it")

    def _enqueue(self, args: tuple[Any, ...], kwargs: dict[str, Any], answer: list[Enqueued]) -> None:
        for item, one in zip(args[0], answer, strict=True):
            due_at = self._now() + item.delay
            self._made(one, item.origin, due_at, None, None if item.expires_in is None else due_at + item.expires_in)

    def _trigger(self, args: tuple[Any, ...], kwargs: dict[str, Any], answer: Enqueued) -> None:
        self._made(answer, Origin.MANUAL, self._now())

    def _retry(self, args: tuple[Any, ...], kwargs: dict[str, Any], answer: Enqueued) -> None:
        old = self.by_id[args[0]]
        self._made(answer, Origin.MANUAL if old.serial else old.origin, self._now(), old.scheduled_for)

    def _backfill(self, args: tuple[Any, ...], kwargs: dict[str, Any], answer: list[Enqueued]) -> None:
        for time, one in zip(args[1], answer, strict=True):
            self._made(one, Origin.BACKFILL, self._now(), time)

    # --- what runs --------------------------------------------------------------------------------------------------------

    def _claim(self, args: tuple[Any, ...], kwargs: dict[str, Any], answer: list[Claim]) -> None:
        self._expire()
        session = self.sessions[args[0]]
        for claim in answer:
            record = self.records.get((claim.job, claim.key))
            if record is None or record.id != claim.id:
                self.broken("claim", f"{claim.job} {claim.key} was never created")
                continue
            self._may_claim(record, claim, session, args[2])
            record.state, record.token, record.session = State.RUNNING, claim.token, session.id
            record.once = claim.spec.policies.on_crash == "fail"
            record.attempts += 1
            self._token = max(self._token, claim.token)
        if answer:
            session.until = self._world.clock.micros + _micros(kwargs["lease"])

    def _may_claim(self, record: Record, claim: Claim, session: SessionBook, functions: tuple[str, ...]) -> None:
        job = self.jobs[record.job]
        if not session.alive(self._world.clock.micros - FUZZ):
            self.broken("claim", f"{record} for the session {session.id}, which is dead")
        if record.state is not State.PENDING:
            self.broken("claim", f"{record} is {record.state}, and was given to {session.id}")
        if record.due_at > self._now():
            self.broken("early", f"{record} is due at {record.due_at} and was claimed at {self._now()}")
        if claim.token <= self._token:
            self.broken("token", f"{record} got the token {claim.token} after {self._token}")
        if claim.attempt != record.attempts + 1 or claim.failures != record.failures or claim.crashes != record.crashes:
            self.broken("attempts", f"{record}: attempt {claim.attempt} is not {record.attempts + 1}")
        if claim.spec.function not in functions:
            self.broken("claim", f"{record} needs a function that its node does not have")
        most = job.spec.policies.concurrency
        running = [one for one in self._running(record.job) if self.sessions[one.session].alive(self._world.clock.micros)]
        if most is not None and len(running) >= most:
            self.broken("concurrency", f"{record} is run {len(running) + 1} of {most}")
        if record.serial and job.spec.policies.overlap != "allow":
            before = [one for one in self._active(record.job) if one.created < record.created or one.state is State.RUNNING]
            if before:
                self.broken("serial", f"{record} was claimed before {before[0]}")
        for work in self.live.values():
            if work.call.run.id == record.id and not work.node.frozen and not work.call.run.lease_lost.is_set():
                self.broken("lease_lost", f"{record} is taken over from {work.node.name}, where nobody told the run")

    def work_begins(self, work: Work) -> None:
        """Look at an attempt that a node starts."""
        claim, micros = work.call.claim, self._world.clock.micros
        self._world.trace.add(micros, work.node.name, "begins", claim.job, claim.id, f"token={claim.token}")
        record, session = self.by_id[claim.id], self.sessions[claim.session]
        if not session.alive(micros):
            self.broken("trust", f"{record} was started on {work.node.name} after its lease had run out")
        elif record.state is not State.RUNNING or record.token != claim.token:
            self.broken("trust", f"{record} was started on {work.node.name} under the token {claim.token}, not current")
        if claim.spec.policies.on_crash == "fail":
            if record.begun:
                self.broken("at most once", f"{record} was begun under {record.begun} and again under {claim.token}")
            record.begun.append(claim.token)
        self.live[claim.id, claim.token] = work

    def work_ends(self, work: Work, kind: EndingKind) -> None:
        """Look at an attempt that ended by itself."""
        run = work.call.run
        self._world.trace.add(self._world.clock.micros, work.node.name, "ends", run.job, run.id, kind)
        self.live.pop((run.id, run.token), None)
        self._said[run.id, run.token] = kind, run.cancelled.is_set(), run.lease_lost.is_set()

    def work_dies(self, work: Work) -> None:
        """Look at an attempt that ended with its process."""
        self.live.pop((work.call.run.id, work.call.run.token), None)

    def _finish(self, args: tuple[Any, ...], kwargs: dict[str, Any], answer: list[Settled]) -> None:
        for outcome, settled in zip(args[0], answer, strict=True):
            record = self.by_id[outcome.id]
            if record.pruned:
                self._expect(record, settled, accepted=False, state=None)
            elif record.state is State.RUNNING and record.token == outcome.token:
                self._may_finish(record, outcome)
                state = State.CANCELLED if outcome.state is State.PENDING and record.cancel else outcome.state
                record.answers[outcome.token] = state
                self._expect(record, settled, accepted=True, state=state)
                if state is State.PENDING:
                    record.failures += 1
                    record.begun.clear()
                    record.due_at = self._now() + (outcome.retry_in or timedelta(0))
                record.state = state
            else:
                before = record.answers.get(outcome.token)
                self._expect(record, settled, accepted=before is not None, state=before or record.state)

    def _expect(self, record: Record, settled: Settled, *, accepted: bool, state: State | None) -> None:
        if settled.accepted != accepted or settled.state != state:
            self.broken(
                "result",
                f"{record}: the token {settled.token} was {'accepted' if settled.accepted else 'refused'} ({settled.state}), "
                f"and had to be {'accepted' if accepted else 'refused'} ({state})",
            )

    def _may_finish(self, record: Record, outcome: Outcome) -> None:
        """Ask whether the outcome is what the work said, and no invention of the node."""
        kind, cancelled, lease_lost = self._said.get((outcome.id, outcome.token), (None, False, False))
        by_itself = {
            State.SUCCEEDED: kind == "returned",
            State.SKIPPED: kind == "skipped",
            State.CANCELLED: record.cancel or (kind == "cancelled" and not cancelled),
            State.FAILED: kind in {"raised", "timed_out", "retry"} or record.once,
            State.PENDING: kind in {"raised", "timed_out", "retry"},
        }
        if not by_itself[outcome.state]:
            self.broken("invented", f"{record} became {outcome.state}({outcome.reason}), but the work said {kind}")
        elif lease_lost and outcome.state is State.SUCCEEDED:
            self.broken("lease_lost", f"{record} succeeded by a run that was told to stop because its lease was lost")

    def _release(self, args: tuple[Any, ...], kwargs: dict[str, Any], answer: list[bool]) -> None:
        for claim, given_back in zip(args[0], answer, strict=True):
            record = self.by_id[claim.id]
            current = not record.pruned and record.state is State.RUNNING and record.token == claim.token
            if given_back != current:
                self.broken("release", f"{record} under the token {claim.token}")
            if given_back:
                record.attempts -= 1
                self._goes_back(record)

    def _goes_back(self, record: Record) -> None:
        record.state = State.CANCELLED if record.cancel else State.PENDING
        record.due_at = min(record.due_at, self._now())

    # --- sessions ---------------------------------------------------------------------------------------------------------

    def _open_session(self, args: tuple[Any, ...], kwargs: dict[str, Any], answer: datetime) -> None:
        spec: SessionSpec = args[0]
        self.sessions[spec.id] = SessionBook(spec.id, spec.pid, self._world.clock.micros + _micros(kwargs["lease"]))

    def _renew(self, args: tuple[Any, ...], kwargs: dict[str, Any], answer: Renewal) -> None:
        session, micros = self.sessions[args[0]], self._world.clock.micros
        if answer.alive and not session.alive(micros - FUZZ):
            self.broken("session", f"{session.id} was dead and is alive again")
        if answer.alive:
            session.until = micros + _micros(kwargs["lease"])

    def _close_session(self, args: tuple[Any, ...], kwargs: dict[str, Any], answer: list[Takeover]) -> None:
        session = self.sessions.get(args[0])
        if session is not None and not session.ended:
            self._ends(session, answer, crashed=False)

    def _reclaim(self, args: tuple[Any, ...], kwargs: dict[str, Any], answer: list[Takeover]) -> None:
        presumed = args[0] if args else ()
        taken = {takeover.id: takeover for takeover in answer}
        for session in self.sessions.values():
            if not session.ended and (not session.alive(self._world.clock.micros + FUZZ) or session.id in presumed):
                self._ends(session, answer, crashed=True)
        for takeover in taken.values():
            if not self.sessions[takeover.session].ended:
                self.broken("takeover", f"{self.by_id[takeover.id]} was taken from {takeover.session}, which is alive")

    def _ends(self, session: SessionBook, answer: list[Takeover], *, crashed: bool) -> None:
        session.ended = True
        became = {takeover.id: takeover.became for takeover in answer if takeover.session == session.id}
        for record in self.records.values():
            if record.state is not State.RUNNING or record.session != session.id:
                continue
            policies = self.jobs[record.job].spec.policies
            record.crashes += crashed
            self._goes_back(record)
            given_up = crashed and record.crashes >= policies.max_crashes
            if record.state is State.PENDING and (policies.on_crash == "fail" or given_up):
                record.state = State.FAILED
            if became.pop(record.id, None) is not record.state:
                self.broken("takeover", f"{record} of {session.id}, which is over, did not become {record.state}")
        if became:
            self.broken("takeover", f"{sorted(became)} did not run for {session.id}")

    # --- people -----------------------------------------------------------------------------------------------------------

    def _cancel(self, args: tuple[Any, ...], kwargs: dict[str, Any], answer: State) -> None:
        self._ask_to_cancel(self.by_id[args[0]])

    def _ask_to_cancel(self, record: Record) -> None:
        if record.state is State.PENDING:
            record.state = State.CANCELLED
        elif record.state is State.RUNNING:
            record.cancel = True

    def _prune(self, args: tuple[Any, ...], kwargs: dict[str, Any], answer: int) -> None:
        for record in self.records.values() if answer else ():
            if not record.pruned and self._world.was_pruned(record.id):
                record.pruned = True
                if record.state in ACTIVE:
                    self.broken("prune", f"{record} is gone, and was {record.state}")

    # --- the books --------------------------------------------------------------------------------------------------------

    def _now(self) -> datetime:
        return self._world.clock.now()

    def _of_job(self, job: str) -> list[Record]:
        return self.jobs[job].records

    def _active(self, job: str) -> list[Record]:
        return [record for record in self._of_job(job) if record.serial and record.state in ACTIVE]

    def _running(self, job: str) -> list[Record]:
        return [record for record in self._of_job(job) if record.state is State.RUNNING]

    def _expire(self) -> None:
        now = self._now()
        for job in self.jobs.values():
            for record in job.records:
                if record.expires_at is not None and record.state is State.PENDING:
                    if record.expires_at < now and record.attempts == 0:
                        record.state = State.MISSED


def _micros(duration: timedelta) -> int:
    return round(duration.total_seconds() * SECOND)
