"""What a feature may do to the runs of a node, from a room of its own.

::

    a claim ─────────────────▶ Admission.decide_claim ──▶ Begin, or what becomes of it instead
                                    │  only the store can say
                                    └──▶ Admission.admit_claims, on the thread of waking.py
    an end, accepted ────────▶ Waker.trigger_of_end   ┐
    a plan, carried out ─────▶ Waker.triggers_of_plans ├──▶ Waker.find_wakeable, on that thread ──▶ Store.wake
    all that is parked ──────▶ Waker.start_sweep   ┘

The node knows these classes and no feature. Its rounds' thread starts everybody's runs, so nothing that it calls here
may ask the store.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, runtime_checkable

from cronsensus.errors import Snooze
from cronsensus.model.ends import Then
from cronsensus.model.occurrence import Claim
from cronsensus.model.parking import Sleeper
from cronsensus.model.plan import Plan
from cronsensus.node.registered import Registered
from cronsensus.stores.base import Store
from cronsensus.stores.values import View
from cronsensus.timing.clock import Clock

NOTHING: Mapping[str, Any] = MappingProxyType({})


@runtime_checkable
class Portable(Protocol):
    """An extra of a run that goes along where the job runs in a process of its own."""

    def pack_call(self) -> tuple[str, Any]:
        """Return ``"module:function"`` and what that is called with there, in plain JSON values."""


class InContext:
    """An extra of a run that changes the context in which the job's function is called."""

    def enter_context(self) -> None:
        """Change it: at the start of the run's own context, which nothing outlives. Must not raise."""


@dataclass(frozen=True, slots=True)
class Begin:
    """A claim may begin.

    Attributes:
        extras: what the ``Run`` has of the feature, by a name of its choice.
        perform: makes of the job's function what is called in its place; ``None``: the function itself is.
    """

    extras: Mapping[str, Any] = field(default_factory=lambda: NOTHING)
    perform: Callable[[Registered, Claim], Registered] | None = None

    def combine_with(self, other: Begin) -> Begin:
        """Return what two features want together; of two functions the first one's is called."""
        return Begin({**self.extras, **other.extras}, self.perform or other.perform)


FREELY = Begin()
"""Of a claim in which no feature has a say."""


class Admission:
    """Decides whether a claim may start; an instance for each node. By default it concerns no claim."""

    def concerns_claim(self, claim: Claim) -> bool:  # noqa: ARG002
        """Whether the feature takes part in deciding a claim."""
        return False

    def decide_claim(self, claim: Claim) -> Begin | Then | None:  # noqa: ARG002
        """Decide from what is known here; ``None`` to have the store asked. Safe from any thread."""
        return None

    def admit_claims(
        self, store: Store, claims: Sequence[Claim], company: Collection[Claim]
    ) -> Mapping[int, Begin | Then]:
        """Decide by reading the store, on the thread of ``waking.py``; by id of the occurrence.

        What is left out goes back, and is claimed anew. The claims take slots until they are decided.

        Args:
            store: a handle of that thread's own.
            claims: those that it concerns and could not decide.
            company: what was claimed in the same steps, and is active or was a moment ago.

        Raises:
            StoreError: they cannot be decided now; all of them go back.
        """
        raise NotImplementedError

    def forget_answers(self) -> None:
        """Forget what the store answered before: an operator has just acted."""


class Waker:
    """Finds parked occurrences that can go on; an instance for each node. By default it finds none.

    Waking too often costs a look, and two at once do no harm: what an occurrence does then is decided by what is
    recorded. What is lost because a node died, an operator acted or a run expired is found by a sweep.

    Attributes:
        on: what it wakes: what is parked with this word.
        pause: least seconds between two calls of ``find_wakeable``.
    """

    on = ""
    pause = 0.005

    def learn_view(self, view: View) -> None:
        """Take in what a look showed; on the thread of the node's rounds."""

    def trigger_of_end(self, claim: Claim, then: Then) -> Hashable | None:  # noqa: ARG002
        """Return what to check once the store has accepted this end; ``None`` for nothing. Safe from any thread."""
        return None

    def triggers_of_plans(self, plans: Sequence[Plan]) -> Iterable[Hashable]:  # noqa: ARG002
        """Return what is to be looked at after these plans were carried out."""
        return ()

    def find_wakeable(self, store: Store, told: dict[Hashable, None]) -> Collection[int]:  # noqa: ARG002
        """Take triggers out of ``told``, the most urgent first; return what to wake.

        Called again for as long as anything is left, with what came meanwhile. A call should take few milliseconds:
        claims that are asked about wait for it.

        Raises:
            StoreError: it is asked again, with all that there was.
        """
        told.clear()
        return ()

    def start_sweep(self, store: Store) -> Callable[[Sequence[Sleeper]], Collection[int]]:  # noqa: ARG002
        """Begin to look at all that is parked; return what is called with each page, and returns whom to wake."""
        return lambda _: ()


class Host(NamedTuple):
    """What a feature may use of the node that it is made for.

    Attributes:
        registry: the functions that can be run here, by name; it may grow.
        clock: for waits.
        store: gives a handle for what runs and features ask, beside the node's own; any thread.
        refuse: ends what waits here for a slot, where the first says so, as the second says; any thread.
    """

    registry: Mapping[str, Registered]
    clock: Clock
    store: Callable[[], Store]
    refuse: Callable[[Callable[[Claim], bool], Then], None]


class Hooks(NamedTuple):
    """What one feature does at one node."""

    admission: Admission | None = None
    waker: Waker | None = None


HooksFactory = Callable[[Host], Hooks]
"""Makes the hooks of one feature for one node. Each folder of a feature has one, in its ``room.py``."""


class EndsAs(Snooze):
    """Raised by a feature's own code in place of a job's: the attempt gets the ending that it carries."""

    def __init__(self, then: Then, message: str) -> None:
        super().__init__(message)
        self.then = then
