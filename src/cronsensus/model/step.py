"""One step of a node: what it asks of the store, and the answer."""

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
    """A claim that is not kept.

    Attributes:
        cut: ``None``: its run was not begun. ``"stopped"``: its node stopped it in order. ``"crashed"``: its node could
            hold it no longer. ``Store.step`` tells what becomes of each.
    """

    claim: Claim
    cut: Cut | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """The work that a step asks for.

    Attributes:
        limit: most claims that begin at once.
        reserve: most further claims, that wait on this node for a free slot (``Claim.reserved``).
        nodes: how many nodes share a queue: of its end this one reserves only its part.
        functions: names of the functions that this node can run.
        lease: how long the session lasts from a claim on.
        ahead: plans and work that come due within this time count as due; a run starts when it is due, not before.
        oldest: within a priority the oldest due is claimed first, whatever its class (``model.claim_order``).
    """

    limit: int
    functions: Collection[str]
    lease: timedelta
    reserve: int = 0
    nodes: int = 1
    ahead: timedelta = timedelta(0)
    oldest: bool = False

    def part(self, chosen: int) -> int:
        """Return how many to take of as many as were chosen: fewer than were wanted are the end of a queue."""
        rest = chosen - max(self.limit, 0)
        return chosen if rest <= 0 or rest == self.reserve else chosen - rest + rest // self.nodes


def may_be_reserved(policies: Policies, *, attempt: int, failures: int, serial: bool) -> bool:
    """Whether an occurrence may be claimed to wait on its node for a free slot.

    Args:
        policies: of its job.
        attempt: how many attempts there were; more than have failed, if one was cut off or may never have begun.
        failures: how many attempts have failed.
        serial: whether overlap has a say.
    """
    return attempt == failures and policies.on_crash == "retry" and policies.concurrency is None and not serial


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The parts of one step. The store takes them in this order.

    Attributes:
        notes: progress and log lines of running attempts.
        ends: how attempts ended.
        give_back: claims that are not kept.
        plans: what jobs owe; ``active_seen`` of each is without the occurrences that the parts before it end.
        want: the work that is asked for; ``None``: none, and results are recorded without claiming.
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
        """Whether a part of it is done only for a live session."""
        return bool(self.plans or self.want)


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The answers to a step, each in the order of its part.

    Attributes:
        noted: ``False``: the token is no longer current.
        settled: what became of each outcome; a repeated one gets its first answer.
        returned: ``False``: the claim is no longer current.
        carried_out: ``False``: the plan lost a race, or ``lost``; nothing of it was written.
        claims: what this node is to run.
        lost: the session is not alive, so no plan was carried out and nothing was claimed. Known only where the step
            has plans or wants work.
        age: seconds that passed between the arrival of the claims' ``claimed_at`` and the end of the step, which may
            ask more than once.
    """

    noted: tuple[bool, ...] = ()
    settled: tuple[Settled, ...] = ()
    returned: tuple[bool, ...] = ()
    carried_out: tuple[bool, ...] = ()
    claims: tuple[Claim, ...] = ()
    lost: bool = False
    age: float = 0.0
