"""Rules on who may run what, and on what becomes of it."""

from __future__ import annotations

from datetime import datetime, timedelta

from cronsensus.model.ending import EndingKind
from cronsensus.model.ends import Again, End, is_snoozed
from cronsensus.model.occurrence import Claim, Settled, scheduled_key
from cronsensus.model.states import State
from cronsensus.stores.values import NO_DELAY
from tests.simulation.cluster.clocks import SECOND
from tests.simulation.cluster.judge.bench import Seen
from tests.simulation.cluster.judge.books import FUZZ, Record, SessionBook, most_early, to_micros
from tests.simulation.cluster.judge.forgetting import ForgettingRules
from tests.simulation.cluster.stage import Attempt, Stage


class RunningRules(ForgettingRules):
    """One run at a time is current, under a new token; only it decides what becomes of its occurrence."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self.live: dict[tuple[int, int], Attempt] = {}
        """Work under way, zombies included."""
        self._said: dict[tuple[int, int], tuple[EndingKind, bool, bool]] = {}
        """How work ended, by its own count: how, whether it had been asked to stop, whether its lease was lost."""
        self._last_token = 0

    # --- claims ------------------------------------------------------------------------------------------------------

    def claim(self, seen: Seen) -> None:
        """Look at each claim, then at the lease that it set."""
        self._expire()
        session = self.sessions[seen.args[0]]
        for claim in seen.answer:
            record = self.by_id.get(claim.id)
            if record is None or (record.job, record.key) != (claim.job, claim.key):
                self.broken("claim", f"{claim.job} {claim.key} was never created")
                continue
            ahead = seen.kwargs.get("ahead", NO_DELAY)
            self._may_claim(record, claim, session, self.now + ahead)
            if claim.reserved:
                self._may_reserve(record)
            if claim.spec.function not in seen.args[2]:
                self.broken("claim", f"{record} needs a function that its node does not have")
            self._give(record, claim, session, ahead)
        if seen.answer:
            session.until = self.micros + to_micros(seen.kwargs["lease"])

    def claim_by_name(self, seen: Seen) -> None:
        """Look at what ``acquire`` won: whatever waits before it, and whenever it is due, but only if nobody had it."""
        self._expire()
        session, claim = self.sessions[seen.args[0]], seen.answer
        time = seen.kwargs.get("scheduled_for")
        record = self.by_key.get((seen.args[1], seen.kwargs["key"] if time is None else scheduled_key(time)))
        if record is None:
            return
        may_be_won = record.state is State.PENDING and (time is None or self.jobs[record.job].may_be_acquired(time))
        if (claim is not None) != may_be_won:
            self.broken("acquire", f"{record} is {record.state}, and was given to {session.id}: {claim is not None}")
        if claim is not None:
            self._may_hold(record, claim, session)
            record.due_at = min(record.due_at, self.now)
            self._give(record, claim, session, NO_DELAY)
            session.until = self.micros + to_micros(seen.kwargs["lease"])

    def _give(self, record: Record, claim: Claim, session: SessionBook, ahead: timedelta) -> None:
        record.state, record.token, record.session = State.RUNNING, claim.token, session.id
        record.attempts += 1
        record.progress, record.reserved = None, claim.reserved
        wait = max(record.due_at - self.now, timedelta(0))
        record.begins = self.micros + to_micros(wait)
        record.early = most_early(ahead, self.stage.scenario.drift) if wait else 0
        self._last_token = max(self._last_token, claim.token)
        self.given.add(claim.token)

    def _expire(self) -> None:
        """A claim first gives up what never started and is too late by now."""
        now = self.now
        for expires_at, record in self.expiring:
            if expires_at < now and record.state is State.PENDING and record.attempts == 0:
                record.state = State.MISSED

    def _may_claim(self, record: Record, claim: Claim, session: SessionBook, until: datetime) -> None:
        if record.state is not State.PENDING:
            self.broken("claim", f"{record} is {record.state}, and was given to {session.id}")
        if record.due_at > until:
            self.broken("early", f"{record} is due at {record.due_at} and was claimed at {self.now}")
        self._may_hold(record, claim, session)
        self._there_is_room(record)

    def _may_reserve(self, record: Record) -> None:
        policies = self.jobs[record.job].spec.policies
        serial = record.serial and policies.overlap != "allow"
        cut_off = record.attempts != record.failures
        if policies.on_crash == "fail" or policies.concurrency is not None or serial or cut_off:
            self.broken("reserved", f"{record} was reserved")

    def _may_hold(self, record: Record, claim: Claim, session: SessionBook) -> None:
        if not session.alive(self.micros - FUZZ):
            self.broken("claim", f"{record} for the session {session.id}, which is dead")
        if claim.token <= self._last_token:
            self.broken("token", f"{record} got the token {claim.token} after {self._last_token}")
        if (claim.attempt, claim.failures, claim.crashes) != (record.attempts + 1, record.failures, record.crashes):
            self.broken("attempts", f"{record}: attempt {claim.attempt} is not {record.attempts + 1}")
        for work in self.live.values():
            # In the very moment in which a process goes on it may not have come to tell its runs yet.
            awake = self.micros > work.node.thaw_at
            told = work.call.run.lease_lost.is_set() or self.may_be_mistaken(work)
            if work.call.run.id == record.id and awake and not told:
                self.broken("lease_lost", f"{record} is taken over from {work.node.name}, where nobody told the run")

    def _there_is_room(self, record: Record) -> None:
        policies = self.jobs[record.job].spec.policies
        if policies.concurrency is not None:
            running = [one for one in self.running(record.job) if self.sessions[one.session].alive(self.micros)]
            if len(running) >= policies.concurrency:
                self.broken("concurrency", f"{record} is run {len(running) + 1} of {policies.concurrency}")
        if record.serial and policies.overlap != "allow":
            for other in self.active(record.job):
                if other is not record and (other.created < record.created or other.state is State.RUNNING):
                    self.broken("serial", f"{record} was claimed before {other}")

    # --- work --------------------------------------------------------------------------------------------------------

    def work_begins(self, work: Attempt) -> None:
        """Look at an attempt that a node starts."""
        claim = work.call.claim
        self.stage.trace.add(self.micros, work.node.name, "begins", claim.job, claim.id, f"token={claim.token}")
        self.began[claim.token] = claim.spec.policies.on_crash == "fail"
        self.live[claim.id, claim.token] = work
        if self.may_be_mistaken(work) and not self._is_current(claim.id, claim.token):
            return
        record, session = self.by_id[claim.id], self.sessions[claim.session]
        if session.forgot:
            pass
        elif not session.alive(self.micros):
            self.broken("trust", f"{record} was started on {work.node.name} after its lease had run out")
        elif record.state is not State.RUNNING or record.token != claim.token:
            self.broken("trust", f"{record} was started on {work.node.name} under the token {claim.token}, not current")
        if self.micros < record.begins - record.early:
            early = (record.begins - self.micros) / SECOND
            self.broken("early", f"{record} was started on {work.node.name} {early:g}s before it was due")
        # By the definition that its node has: one that adopts a claim may have a later one than the claim gave out.
        record.once = claim.spec.policies.on_crash == "fail"
        if record.once:
            if record.begun:
                self.broken("at most once", f"{record} was begun under {record.begun} and again under {claim.token}")
            record.begun.append(claim.token)

    def _is_current(self, number: int, token: int) -> bool:
        record = self.by_id.get(number)
        return record is not None and record.state is State.RUNNING and record.token == token

    def work_ends(self, work: Attempt, kind: EndingKind) -> None:
        """Look at an attempt that ended by itself."""
        run = work.call.run
        self.stage.trace.add(self.micros, work.node.name, "ends", run.job, run.id, kind)
        self.live.pop((run.id, run.token), None)
        self._said[run.id, run.token] = kind, run.cancelled.is_set(), run.lease_lost.is_set()

    def work_dies(self, work: Attempt) -> None:
        """Look at an attempt that ended with its process."""
        self.live.pop((work.call.run.id, work.call.run.token), None)

    # --- results -----------------------------------------------------------------------------------------------------

    def finish(self, seen: Seen) -> None:
        """Look at each result: accepted if its token is current, or answered as the first time."""
        for outcome, settled in zip(seen.args[0], seen.answer, strict=True):
            record = self.by_id.get(outcome.id)
            if record is None:
                self._unknown(outcome.id, settled.accepted)
            elif record.pruned:
                self._expect(record, settled, accepted=False, state=None)
            elif record.state is State.RUNNING and record.token == outcome.token:
                self._accept(record, outcome, settled)
            else:
                before = record.answers.get(outcome.token)
                self._expect(record, settled, accepted=before is not None, state=before or record.state)

    def _accept(self, record: Record, outcome: End, settled: Settled) -> None:
        self._may_finish(record, outcome)
        state = State.CANCELLED if outcome.state is State.PENDING and record.cancel else outcome.state
        record.state = record.answers[outcome.token] = state
        self._expect(record, settled, accepted=True, state=state)
        if state is State.PENDING:
            record.failures += not is_snoozed(outcome.then)
            record.progress = None
            record.begun.clear()  # the user's retries may repeat what began
            if isinstance(outcome.then, Again):
                record.due_at = self.now + outcome.then.after

    def _expect(self, record: Record, settled: Settled, *, accepted: bool, state: State | None) -> None:
        if settled.accepted != accepted or settled.state != state:
            did, had = ("accepted" if yes else "refused" for yes in (settled.accepted, accepted))
            what = f"{record}: the token {settled.token} was {did} ({settled.state}) and had to be {had} ({state})"
            self.broken("result", what)

    def _may_finish(self, record: Record, outcome: End) -> None:
        """Ask whether the outcome is what the work said, and no invention of the node."""
        kind, cancelled, lease_lost = self._said.get((outcome.id, outcome.token), (None, False, False))
        by_itself = {
            State.SUCCEEDED: kind == "returned",
            State.SKIPPED: kind == "skipped",
            # A store that forgot knows no more that the run was asked to stop.
            State.CANCELLED: record.cancel or (kind == "cancelled" and (not cancelled or self._forgot(record))),
            State.FAILED: kind in {"raised", "timed_out", "retry"} or record.once,
            State.PENDING: kind in {"raised", "timed_out", "retry"},
        }
        if not by_itself[outcome.state]:
            self.broken("invented", f"{record} became {outcome.state}({outcome.then.reason}), but the work said {kind}")
        elif lease_lost and outcome.state is State.SUCCEEDED:
            self.broken("lease_lost", f"{record} succeeded by a run that was told to stop because its lease was lost")

    def _forgot(self, record: Record) -> bool:
        session = self.sessions.get(record.session)
        return session is None or session.forgot

    def _unknown(self, number: int, accepted: bool) -> None:
        """Look at an answer about an occurrence that the store forgot."""
        if accepted or not self.forgotten:
            self.broken("unknown", f"#{number} was never created; accepted: {accepted}")

    def note(self, seen: Seen) -> None:
        """Look at what attempts say of themselves: only the current one is heard."""
        for note, heard in zip(seen.args[0], seen.answer, strict=True):
            record = self.by_id.get(note.id)
            if record is None:
                self._unknown(note.id, heard)
                continue
            current = not record.pruned and record.state is State.RUNNING and record.token == note.token
            if heard != current:
                self.broken("note", f"{record}: a note under the token {note.token} was heard: {heard}")
            if current:
                record.progress = note.progress or record.progress
                record.reserved = record.reserved and note.ran is None
                record.lines += [(record.attempts, line.text) for line in note.lines]

    def release(self, seen: Seen) -> None:
        """Look at what was given back."""
        for claim, given_back in zip(seen.args[0], seen.answer, strict=True):
            record = self.by_id.get(claim.id)
            if record is None:
                self._unknown(claim.id, given_back)
                continue
            current = not record.pruned and record.state is State.RUNNING and record.token == claim.token
            if given_back != current:
                self.broken("release", f"{record} under the token {claim.token}")
            cut = seen.kwargs.get("cut")
            if given_back and cut is not None:
                self._cut_off(record, crashed=cut == "crashed")
            elif given_back:
                record.attempts -= 1
                self.go_back(record)
                if record.state is State.PENDING:
                    record.progress = None
