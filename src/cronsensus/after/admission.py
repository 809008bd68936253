"""May a run begin that comes after others?"""

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
from cronsensus.node.hooks import Admission, Begin, Host
from cronsensus.process.logger import Logger
from cronsensus.stores.base import Store

_log = Logger("cronsensus.node")

PARKED_ON = "upstreams"
CAME_AFTER = "came_after"
"""The name of the extra of a run that has what it came after."""
AT_GATE = timedelta(seconds=0.5)
"""How much later than the claim what it comes after may have ended: the audit, which cannot know when a gate was asked,
allows a second."""


class UpstreamAdmission(Admission):
    """Asks the gate of each claim that comes after others."""

    def __init__(self, host: Host) -> None:
        self._registry = host.registry

    def concerns_claim(self, claim: Claim) -> bool:
        """Return whether a claim has a nominal time, and its job comes after others by its definition in the store."""
        return claim.scheduled_for is not None and claim.spec.after is not None

    def admit_claims(
        self, store: Store, claims: Sequence[Claim], company: Collection[Claim]
    ) -> Mapping[int, Begin | Then]:
        """Let begin what its gate lets through, and park or skip the rest.

        What was claimed in ``company`` is not asked for: it is active. That may be over by then; what is parked because
        of it is looked at once more when the store has it parked.
        """
        active = {(one.job, one.scheduled_for) for one in company if one.scheduled_for is not None}
        gates = Gates(store, active, now=max(claim.claimed_at for claim in claims))
        gates.read_upstreams([(claim.spec, sleeper_of(claim)) for claim in claims])
        answers: dict[int, Begin | Then] = {}
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

    def _read_gate(self, gates: Gates, claim: Claim) -> Begin | Then | None:
        registered = self._registry.get(claim.spec.function)
        results = None if registered is None else registered.part_of(UpstreamResults)
        gate, found = gates.decide_gate(claim.spec, sleeper_of(claim), results)
        if gate.decision == "run" and began_before(claim, gates.last_end(claim.spec, sleeper_of(claim))):
            return None
        # What has been parked on something else since went through its gate: what is retried of its upstreams does not
        # undo that.
        if gate.decision == "run" or claim.listed is not None:
            return Begin({CAME_AFTER: CameAfter(found, results)})
        return refusal_of(gate)


def refusal_of(gate: Gate) -> Then:
    """Return what becomes of a claim that its gate does not let through."""
    if gate.decision == "wait":
        return Parked(PARKED_ON, reason=f"waits {gate.reason}")
    return Final(State.SKIPPED, gate.reason)


def began_before(claim: Claim, end: datetime | None) -> bool:
    """Whether the record of a claim would say that it began before what it comes after had ended.

    It stood at its gate while that ended. Given back, it is claimed anew, and begins after it for everybody to see.
    """
    return end is not None and end > max(claim.claimed_at, claim.due_at) + AT_GATE


def sleeper_of(claim: Claim) -> Sleeper:
    """Return a claim as it stands in the list of what is parked."""
    return Sleeper(claim.id, claim.job, PARKED_ON, claim.scheduled_for, claim.created_at)
