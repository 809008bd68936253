"""The states of a claim on its node; each state is a class.

::

    Waiting ──▶ Running ──▶ Ended ─────┐
      │            │                   ├──▶ the store has it
      └────────────┴──────▶ Released ──┘

``ActiveRuns`` has the claims that wait or run, ``Report`` those whose end the store has yet to accept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cronsensus.membership.lease import SessionLease
from cronsensus.model.ends import End
from cronsensus.model.occurrence import Claim
from cronsensus.model.step import GiveBack
from cronsensus.node.executors.base import Call
from cronsensus.node.hooks import ADMITTED, Admit
from cronsensus.node.waking import WakeTrigger


@dataclass(slots=True)
class Waiting:
    """A claim that has not started.

    Attributes:
        since: when this node received it, in monotonic seconds.
        at: when it starts, in monotonic seconds; infinite while its admission is being decided.
        then_at: when it starts if it is admitted; ``None``: its admission is decided.
        admit: what features add to the run.
    """

    claim: Claim
    lease: SessionLease
    since: float
    at: float
    then_at: float | None = None
    admit: Admit = ADMITTED


@dataclass(slots=True)
class Running:
    """A claim that was handed to an executor; ``interrupted``: asked to stop on the node's own account."""

    call: Call
    since: float
    interrupted: bool = False

    @property
    def claim(self) -> Claim:
        """The claim."""
        return self.call.claim


@dataclass(slots=True)
class Ended:
    """A claim whose end the store has yet to accept.

    Attributes:
        triggers: what wakers check then, because parked occurrences may go on.
        committing: the claim, if the run's own transaction may have recorded its end already.
    """

    end: End
    triggers: Sequence[WakeTrigger] = ()
    committing: Claim | None = None


@dataclass(slots=True)
class Released:
    """A claim that is released as soon as the store accepts that.

    Attributes:
        may_have_committed: the run's own transaction may have recorded its end already.
        may_be_accepted: the release was sent, and the answer was lost, so the store may have it already.
    """

    give_back: GiveBack
    may_have_committed: bool = False
    may_be_accepted: bool = False
