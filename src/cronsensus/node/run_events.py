"""The events of a node, for its subscribers. Like the log, they report only what the store has accepted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, Literal

from cronsensus.bus import Bus
from cronsensus.events import PlanCarriedOut, RunEnded, RunStarted, SessionLost, TakenOver
from cronsensus.model.ends import End, is_snoozed
from cronsensus.model.job import is_internal
from cronsensus.model.occurrence import Claim, RunEnd, Settled, Takeover
from cronsensus.model.plan import Plan
from cronsensus.model.states import State
from cronsensus.model.step import GiveBack

_ENDS: Mapping[State | None, RunEnd] = {
    State.SUCCEEDED: "succeeded",
    State.FAILED: "failed",
    State.CANCELLED: "cancelled",
    State.SKIPPED: "skipped",
    State.PENDING: "retry",
}


class RunEvents:
    """Emits a node's events; keeps each run's claim until the store has answered its end."""

    def __init__(self, bus: Bus, node: str) -> None:
        """Emit by ``bus``, as the node of that name."""
        self._bus = bus
        self._node = node
        self._begun: dict[tuple[int, int], Claim] = {}

    def publish_start(self, claim: Claim) -> None:
        """Publish the start of a run, unless it is one of our own."""
        if is_internal(claim.job):
            return
        self.remember_claim(claim)
        if self._bus.has_subscribers(RunStarted):
            self._bus.emit(RunStarted(**self._details_of(claim)))

    def remember_claim(self, claim: Claim) -> None:
        """Remember the claim of an end that is sent to the store."""
        if is_internal(claim.job):
            return
        if self._bus.has_subscribers(RunEnded):
            self._begun[claim.id, claim.token] = claim

    def publish_end(self, answer: Settled, ended: End) -> None:
        """Publish how a run ended, now that the store has answered."""
        claim = self._begun.pop((answer.id, answer.token), None)
        if claim is None or not self._bus.has_subscribers(RunEnded):
            return
        # It may have ended otherwise than reported: committed by a transaction of its own.
        as_said = answer.state is ended.state
        end: RunEnd | Literal["refused"] = _ENDS.get(answer.state, "refused")
        if as_said and is_snoozed(ended.then):
            end = "snoozed"
        self._emit_end(
            claim,
            end if answer.accepted else "refused",
            reason=ended.then.reason if as_said else None,
            error=ended.error if as_said else None,
            seconds=ended.elapsed.total_seconds(),
        )

    def publish_release(self, back: GiveBack, *, accepted: bool) -> None:
        """Publish that a run was cut off and released, now that the store has answered."""
        claim = self._begun.pop((back.claim.id, back.claim.token), None)
        if claim is None or not self._bus.has_subscribers(RunEnded):
            return
        end: RunEnd = "crashed" if back.cut == "crashed" else "released"
        self._emit_end(claim, end if accepted else "refused")

    def publish_takeovers(self, takeovers: Sequence[Takeover], names: Mapping[str, str]) -> None:
        """Publish whose runs this node took over from dead sessions; ``names`` are those of nodes, by session."""
        if not self._bus.has_subscribers(TakenOver):
            return
        in_order = sorted(takeovers, key=lambda takeover: (takeover.session, takeover.id))
        for session, runs in groupby(in_order, key=lambda takeover: takeover.session):
            self._bus.emit(TakenOver(node=self._node, session=session, dead_node=names.get(session), runs=tuple(runs)))

    def publish_plans(self, plans: Sequence[Plan]) -> None:
        """Publish the plans that the store accepted."""
        if not self._bus.has_subscribers(PlanCarriedOut):
            return
        for plan in plans:
            created = tuple(occurrence.scheduled_for for occurrence in plan.occurrences)
            self._bus.emit(PlanCarriedOut(node=self._node, job=plan.job, created=created, verdicts=plan.verdicts))

    def publish_loss(self, session: str, runs: Sequence[int]) -> None:
        """Publish that the session is lost, and with it the claims of these occurrences."""
        if self._bus.has_subscribers(SessionLost):
            self._bus.emit(SessionLost(node=self._node, session=session, runs=tuple(sorted(runs))))

    def _emit_end(self, claim: Claim, end: RunEnd | Literal["refused"], **fields: Any) -> None:
        self._bus.emit(RunEnded(end=end, **self._details_of(claim), **fields))

    def _details_of(self, claim: Claim) -> dict[str, Any]:
        return {
            "node": self._node, "job": claim.job, "occurrence": claim.id, "key": claim.key,
            "scheduled_for": claim.scheduled_for, "attempt": claim.attempt, "token": claim.token,
            "session": claim.session, "origin": claim.origin,
        }  # fmt: skip
