"""Claim work for this node, and recover claims whose answer was lost.

A claim is not idempotent, because the store cannot know which answers arrived. But the store knows what a session
holds: after a lost answer, the node reads that, and reads it again if a look shows that the claim was carried out
later.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace

from cronsensus.errors import StoreError
from cronsensus.membership.lease import LeaseRequest, SessionLease
from cronsensus.model.claim_order import ignores_classes
from cronsensus.model.job import JobSpec, is_internal
from cronsensus.model.occurrence import Claim, Occurrence, OccurrenceFilter
from cronsensus.model.session import SessionView
from cronsensus.model.states import State
from cronsensus.model.step import Done, Step, Want
from cronsensus.node.accepted_ends import Key
from cronsensus.node.active_runs import ActiveRuns, Admitted
from cronsensus.node.hooks import Admit
from cronsensus.node.lead_time import ClockSample
from cronsensus.node.registered import Registered
from cronsensus.node.run_log import RunLog
from cronsensus.node.settings import NodeSettings
from cronsensus.node.situation import Firing, Work
from cronsensus.node.waking import Waking
from cronsensus.process.logger import Logger
from cronsensus.stores.base import Store
from cronsensus.stores.values import View
from cronsensus.timing.clock import Clock

_log = Logger("cronsensus.node")

PAGE = 200
END_UNKNOWN = "the store forgot how it ended, and this node does not know any more"


class Claiming:
    """Claims work for a session, and starts the claims that it won."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        settings: NodeSettings,
        active_runs: ActiveRuns,
        *,
        registry: Mapping[str, Registered],
        run_log: RunLog,
        waking: Waking,
    ) -> None:
        self._store = store
        self._clock = clock
        self._settings = settings
        self._active_runs = active_runs
        self._registry = registry
        self._run_log = run_log
        self._waking = waking
        self._answers_lost = False
        self._claims = 0
        """How many steps brought claims."""
        self.on_forgotten: Callable[..., None] = lambda *_, **__: None
        """Called with the sign by which the store was found to have lost a moment."""

    @property
    def free_slots(self) -> int:
        """Return how many more runs the node could take."""
        return max(0, self._settings.concurrency - self._active_runs.slots_taken)

    @property
    def internal_functions(self) -> tuple[str, ...]:
        """Return the names of the functions of internal jobs: their runs need no free slot."""
        return tuple(name for name in self._registry if is_internal(name))

    def reset_doubt(self) -> None:
        """Reset the doubt: it concerned the previous session."""
        self._active_runs.in_doubt = self._answers_lost = False

    def list_functions(self) -> tuple[str, ...]:
        """Return the names of the functions that can be run here now."""
        unable = self._active_runs.find_unable_executors()
        if not unable:
            return tuple(self._registry)
        return tuple(name for name, entry in self._registry.items() if entry.executor not in unable)

    def carry_out_step(self, lease: SessionLease, decision: Work | Firing, sample: ClockSample | None = None) -> Done:
        """Carry out a decision in a single step of the store, and start the claims that it won.

        A claim made ahead of its time starts when it is due, by the better of two samples of the store's clock: that of
        the last look, and that of the claim itself.
        """
        want = self._wanted_claims(lease, decision) if lease.is_trusted else None
        with self._active_runs.open_report() if isinstance(decision, Work) else nullcontext(Step()) as report:
            step = replace(report, plans=() if isinstance(decision, Work) else decision.plans, want=want)
            request = lease.note_request()
            try:
                done = self._store.step(lease.session, step)
            except StoreError:
                if want is not None:
                    # Perhaps only the answer was lost: then the lease is short, and the session holds runs that are not
                    # known here. Doubt comes first: otherwise a renewal in between might report the node as idle, and
                    # its long lease would be trusted.
                    self._answers_lost = True
                    self._active_runs.doubt_claims()
                    lease.shorten_trust(request, self._settings.lease)
                raise
        received_at = self._clock.monotonic()
        if done.claims:
            self._claims += 1
            lease.confirm_claim(request, self._settings.lease)
        self._active_runs.accept_report(report, done)
        if done.lost:
            _log.warning("session %s is lost: stopping its runs and going on as a new one", lease.session)
            lease.mark_lost()
            self._active_runs.lose_session(lease)
        self._start_claims(done.claims, lease, received_at - done.age, sample)
        if report.give_back:
            self._store.notify()
        return done

    def _wanted_claims(self, lease: SessionLease, decision: Work | Firing) -> Want | None:
        """Return what to claim; ``None`` to claim nothing."""
        want = Want(
            limit=decision.want,
            functions=self.list_functions(),
            lease=self._settings.lease,
            ahead=decision.ahead,
            oldest=ignores_classes(lease.session, self._claims),
        )
        if isinstance(decision, Work):
            want = replace(want, reserve=decision.reserve, nodes=decision.nodes)
        elif decision.internal:
            want = replace(want, limit=len(self.internal_functions), functions=self.internal_functions)
        return want if want.limit or want.reserve else None

    def _start_claims(
        self, claims: Sequence[Claim], lease: SessionLease, claimed_by: float, sample: ClockSample | None
    ) -> None:
        """Start claims, or wait until they are due; ``claimed_by``: the local time of their ``claimed_at``."""
        admitted, undecided = self._admit_claims(claims, lease)
        self._start_admitted(admitted, lease, claimed_by, sample)
        # After the others: these wait for a read of the store.
        for claim in undecided:
            self._active_runs.start_claim_if_admitted(self._start_time(claim, claimed_by, sample), claim, lease)
        if undecided:
            self._waking.queue_claims(undecided, claims)

    def _admit_claims(self, claims: Sequence[Claim], lease: SessionLease) -> tuple[list[Admitted], list[Claim]]:
        """Return the claims that may start, and those that the store has to decide; end those that may not start."""
        admitted: list[Admitted] = []
        undecided: list[Claim] = []
        for claim in claims:
            self._note_if_forgotten(claim, lease)
            match self._waking.decide_claim(claim):
                case Admit() as admit:
                    admitted.append((claim, admit))
                case None:
                    undecided.append(claim)
                case then:
                    self._active_runs.end_claim(claim, then)
        return admitted, undecided

    def _start_admitted(
        self, admitted: Sequence[Admitted], lease: SessionLease, claimed_by: float, sample: ClockSample | None
    ) -> None:
        for claim, admit in admitted:
            if claim.reserved:
                continue
            if claim.due_at <= claim.claimed_at:
                self._active_runs.start_claim(claim, lease, admit)
            else:
                self._active_runs.start_claim_at(self._start_time(claim, claimed_by, sample), claim, lease, admit)
        if reserved := [(claim, admit) for claim, admit in admitted if claim.reserved]:
            self._active_runs.reserve_claims(reserved, lease)
        if admitted:
            # Last: a logging handler may take its time.
            self._run_log.log_starts([claim for claim, _ in admitted])

    def _note_if_forgotten(self, claim: Claim, lease: SessionLease) -> None:
        if self._active_runs.accepted_ends.has_ended(claim.id, lease.session):
            sign = f"it gave occurrence {claim.id} of {claim.job!r} again, whose end it had accepted"
            self.on_forgotten(sign, claim.claimed_at)

    @staticmethod
    def _start_time(claim: Claim, claimed_by: float, sample: ClockSample | None) -> float:
        """Return when a claim starts, in monotonic seconds; ``claimed_by``: the local time of its ``claimed_at``."""
        if claim.due_at <= claim.claimed_at:
            return claimed_by
        at = ClockSample(claim.claimed_at, claimed_by).time_of(claim.due_at)
        return at if sample is None else min(at, sample.time_of(claim.due_at))

    def adopt_unknown_claims(self, lease: SessionLease, view: View, request: LeaseRequest) -> None:
        """Start the claims of a step whose answer was lost, if ``view`` shows any."""
        if self._answers_lost and (own_session := self._overlooked_session(lease, view)) is not None:
            # That claim made the lease short, even if a later answer reported a long one.
            lease.shorten_trust(request, own_session.expires_in)
            self.adopt_lost(lease)

    def _overlooked_session(self, lease: SessionLease, view: View) -> SessionView | None:
        """Return this session if it holds more than this node knows of."""
        own_session = next((holder for holder in view.holders if holder.id == lease.session), None)
        return (
            own_session
            if own_session is not None and own_session.holds > self._active_runs.count_claims(lease.session)
            else None
        )

    def adopt_lost(self, lease: SessionLease) -> None:
        """Start the claims of a step whose answer never came."""
        # A run that ended here and is still running in the store is no lost answer: see ``reconciling``.
        known = self._active_runs.list_open_claims() | self._active_runs.accepted_ends.keys()
        for claim in read_unknown_claims(self._store, lease.session, known):
            _log.info("occurrence %d of %r was claimed, but the answer was lost: it runs here", claim.id, claim.job)
            self._start_adopted(claim, lease)
        self._active_runs.in_doubt = False

    def adopt_runs(self, lease: SessionLease, keys: Collection[Key]) -> None:
        """Start those of the session's runs, by occurrence and token, that this node does not know of.

        Either the answer to a claim was lost, or the store lost the end of the run, which it had accepted. If no answer
        was lost, the run has taken place already, and an at-most-once job must not run again.
        """
        for claim in read_unknown_claims(self._store, lease.session, self._active_runs.list_open_claims()):
            if (claim.id, claim.token) not in keys:
                continue
            if claim.spec.policies.on_crash == "fail" and not self._answers_lost:
                _log.warning("occurrence %d of %r is not run again: %s", claim.id, claim.job, END_UNKNOWN)
                self._active_runs.fail_unknown_claim(claim, END_UNKNOWN)
                continue
            _log.warning("occurrence %d of %r is held by this node, which did not know of it", claim.id, claim.job)
            self._start_adopted(claim, lease)

    def _start_adopted(self, claim: Claim, lease: SessionLease) -> None:
        """Start a claim that was read from the store; it may have been made ahead of its due time."""
        admitted, undecided = self._admit_claims([claim], lease)
        if not admitted and not undecided:
            return
        sample = ClockSample(self._store.now(), self._clock.monotonic())
        if undecided:
            self._active_runs.start_claim_if_admitted(sample.time_of(claim.due_at), claim, lease)
            self._waking.queue_claims(undecided, ())
            return
        [(_, admit)] = admitted
        if claim.reserved:
            self._active_runs.reserve_claims(admitted, lease)
        elif claim.due_at <= sample.now:
            self._active_runs.start_claim(claim, lease, admit)
        else:
            self._active_runs.start_claim_at(sample.time_of(claim.due_at), claim, lease, admit)
        self._run_log.log_starts([claim])


def read_unknown_claims(store: Store, session: str, known: Collection[tuple[int, int]]) -> Iterator[Claim]:
    """Yield the claims of ``session`` whose (occurrence, token) this node does not know."""
    of_session = OccurrenceFilter(states=(State.RUNNING,), session=session)
    page: list[Occurrence] = []
    while page := store.occurrences(of_session, after=page[-1].id if page else None, limit=PAGE):
        for occurrence in page:
            job = store.job(occurrence.job) if (occurrence.id, occurrence.token) not in known else None
            if job is not None:
                yield _rebuild_claim(occurrence, job.spec, session)


def _rebuild_claim(occurrence: Occurrence, spec: JobSpec, session: str) -> Claim:
    return Claim(
        id=occurrence.id,
        spec=spec,
        key=occurrence.key,
        origin=occurrence.origin,
        scheduled_for=occurrence.scheduled_for,
        due_at=occurrence.due_at,
        attempt=occurrence.attempt,
        token=occurrence.token,
        session=session,
        args=occurrence.args,
        kwargs=occurrence.kwargs,
        claimed_at=occurrence.started_at or occurrence.due_at,
        crashes=occurrence.crashes,
        failures=occurrence.failures,
        parent=occurrence.parent,
        listed=occurrence.listed,
        created_at=occurrence.created_at,
        note=occurrence.note,
        reserved=occurrence.reserved,
    )
