"""The states of a claim on its node: a record for each claim.

::

    Ahead ──▶ Running ──▶ Over ┐
      │          │             ├──▶ the store has it
      └──────────┴─────▶ Back ─┘

``ActiveRuns`` holds what is ahead and what runs, ``Report`` what the store has yet to take.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cronsensus.membership.lease import SessionLease
from cronsensus.model.ends import End
from cronsensus.model.occurrence import Claim
from cronsensus.model.step import GiveBack
from cronsensus.node.executors.base import Call
from cronsensus.node.hooks import FREELY, Begin
from cronsensus.node.waking import Told


@dataclass(slots=True)
class Ahead:
    """A claim that has not begun.

    Attributes:
        since: when this node had it, in monotonic seconds.
        at: when it begins, in monotonic seconds; infinite while it is asked about.
        then_at: when it begins if the answer lets it; ``None``: nobody is asked.
        begin: what features want with it.
    """

    claim: Claim
    lease: SessionLease
    since: float
    at: float
    then_at: float | None = None
    begin: Begin = FREELY


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
class Over:
    """A claim whose end the store has yet to take.

    Attributes:
        told: what is looked at then, because something may go on.
        committing: the claim, where a transaction of the run's own may have written its end already.
    """

    end: End
    told: Sequence[Told] = ()
    committing: Claim | None = None


@dataclass(slots=True)
class Back:
    """A claim that goes back, as soon as the store takes it.

    Attributes:
        may_have_committed: a transaction of the run's own may have written its end already.
        may_be_back: it was sent, and the answer was lost.
    """

    give_back: GiveBack
    may_have_committed: bool = False
    may_be_back: bool = False
