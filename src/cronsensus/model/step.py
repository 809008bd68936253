"""A step of a node: its report and requests to the store, and the answer."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta

from cronsensus.model.ends import End
from cronsensus.model.job import Policies
from cronsensus.model.occurrence import Claim, Cut, Note, Settled
from cronsensus.model.plan import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveBack:
    """A claim that is released.

    Attributes:
        cut: ``None``: its run was not started. ``"stopped"``: its node stopped it in order. ``"crashed"``: its node
            lost it. ``Store.step`` describes what follows from each.
    """

    claim: Claim
    cut: Cut | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """The work that a step is to claim.

    Attributes:
        limit: most claims to start at once.
        reserve: most further claims, which wait on this node for a free slot (``Claim.reserved``).
        nodes: how many nodes share a queue; near its end each reserves only its share.
        functions: names of the functions that this node can run.
        lease: the session's lease from a claim on.
        ahead: plans and work that come due within this time count as due; a run starts when it is due, not before.
        oldest: within a priority the oldest due is claimed first, in any class (``model.claim_order``).
    """

    limit: int
    functions: Collection[str]
    lease: timedelta
    reserve: int = 0
    nodes: int = 1
    ahead: timedelta = timedelta(0)
    oldest: bool = False

    def part(self, found: int) -> int:
        """Return how many of ``found`` occurrences to claim. If fewer than wanted were found, nodes share the rest."""
        to_reserve = found - max(self.limit, 0)
        if to_reserve <= 0 or to_reserve == self.reserve:
            return found
        return found - to_reserve + to_reserve // self.nodes


def may_be_reserved(policies: Policies, *, attempt: int, failures: int, serial: bool) -> bool:
    """Whether an occurrence may be claimed to wait on its node for a free slot.

    Args:
        policies: of its job.
        attempt: how many attempts there were; more than failed if an attempt was cut off or may not have started.
        failures: how many attempts have failed.
        serial: whether the overlap policy applies.
    """
    return attempt == failures and policies.on_crash == "retry" and policies.concurrency is None and not serial


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The parts of a step. The store processes them in this order.

    Attributes:
        notes: progress and log lines of running attempts.
        ends: how attempts ended.
        give_back: claims that are released.
        plans: occurrences and verdicts that jobs owe; ``active_seen`` of each excludes occurrences that this step ends.
        want: the work to claim; ``None``: nothing, results are recorded without claiming.
    """

    notes: tuple[Note, ...] = ()
    ends: tuple[End, ...] = ()
    give_back: tuple[GiveBack, ...] = ()
    plans: tuple[Plan, ...] = ()
    want: Want | None = None

    def __bool__(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.notes or self.ends or self.give_back or self.plans or self.want)

    @property
    def needs_lease(self) -> bool:
        """Whether the step has a part that needs a live session."""
        return bool(self.plans or self.want)


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The answers to a step, each in the order of its part.

    Attributes:
        noted: ``False``: the token is no longer current.
        settled: the store's answer to each end; a repeated end gets its first answer.
        returned: ``False``: the claim is no longer current.
        carried_out: ``False``: the plan lost a race, or ``lost``; nothing of it was written.
        claims: the claims that this node won.
        lost: the session is not alive, so no plan was carried out and nothing was claimed. Known only if the step has
            plans or wants work.
        age: seconds from the store's ``claimed_at`` to the end of the step, which may take several round trips.
    """

    noted: tuple[bool, ...] = ()
    settled: tuple[Settled, ...] = ()
    returned: tuple[bool, ...] = ()
    carried_out: tuple[bool, ...] = ()
    claims: tuple[Claim, ...] = ()
    lost: bool = False
    age: float = 0.0
