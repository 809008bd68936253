"""Decide whether a dependent run may start, by its gate."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta

from cronsensus.after.crossing import CameAfter
from cronsensus.after.upstreams import Gates, UpstreamResults
from cronsensus.errors import StoreError
from cronsensus.model.ends import Final, Parked, Then
from cronsensus.model.gate import Gate
from cronsensus.model.occurrence import Claim
from cronsensus.model.parking import Sleeper
from cronsensus.model.states import State
from cronsensus.node.hooks import Admission, Admit, Host
from cronsensus.process.logger import Logger
from cronsensus.stores.base import Store

_log = Logger("cronsensus.node")

PARKED_ON = "upstreams"
CAME_AFTER = "came_after"
"""The name of the extra of a run that has its upstream occurrences."""
AT_GATE = timedelta(seconds=0.5)
"""How much later than the claim an upstream may have ended: the audit, which does not know when a gate was decided,
allows a second."""


class UpstreamAdmission(Admission):
    """Decides the gate of each claim of a dependent job."""

    def __init__(self, host: Host) -> None:
        self._registry = host.registry

    def concerns_claim(self, claim: Claim) -> bool:
        """Return whether a claim has a nominal time, and its job's stored definition has upstreams."""
        return claim.scheduled_for is not None and claim.spec.after is not None

    def admit_claims(
        self, store: Store, claims: Sequence[Claim], company: Collection[Claim]
    ) -> Mapping[int, Admit | Then]:
        """Admit claims whose gate is open, and park or skip the rest.

        Upstreams in ``company`` are not read, because they are active. They may end meanwhile; a claim that is parked
        because of that is checked again once the store has parked it.
        """
        active = {(one.job, one.scheduled_for) for one in company if one.scheduled_for is not None}
        gates = Gates(store, active, now=max(claim.claimed_at for claim in claims))
        gates.read_upstreams([(claim.spec, sleeper_of(claim)) for claim in claims])
        answers: dict[int, Admit | Then] = {}
        for claim in claims:
            try:
                answer = self._read_gate(gates, claim)
            except StoreError as error:
                if error.retryable:
                    raise
                _log.warning("run %d of %r cannot be asked about, and waits: %s", claim.id, claim.job, error)
                continue
            if answer is not None:
                answers[claim.id] = answer
        return answers

    def _read_gate(self, gates: Gates, claim: Claim) -> Admit | Then | None:
        registered = self._registry.get(claim.spec.function)
        results = None if registered is None else registered.part_of(UpstreamResults)
        gate, found = gates.decide_gate(claim.spec, sleeper_of(claim), results)
        if gate.decision == "run" and began_before(claim, gates.last_end(claim.spec, sleeper_of(claim))):
            return None
        # A claim that has been parked for something else since has passed its gate already: a retry of its upstreams
        # does not undo that.
        if gate.decision == "run" or claim.listed is not None:
            return Admit({CAME_AFTER: CameAfter(found, results)})
        return refusal_of(gate)


def refusal_of(gate: Gate) -> Then:
    """Return the end of a claim that its gate does not admit."""
    if gate.decision == "wait":
        return Parked(PARKED_ON, reason=f"waits {gate.reason}")
    return Final(State.SKIPPED, gate.reason)


def began_before(claim: Claim, end: datetime | None) -> bool:
    """Whether a claim would be recorded as started before its upstream had ended.

    The upstream ended while the gate was being decided. If the claim is released and claimed anew, its record starts
    after that end.
    """
    return end is not None and end > max(claim.claimed_at, claim.due_at) + AT_GATE


def sleeper_of(claim: Claim) -> Sleeper:
    """Return a claim as the parked occurrence that it would be."""
    return Sleeper(claim.id, claim.job, PARKED_ON, claim.scheduled_for, claim.created_at)
