"""The hooks by which a feature takes part in the runs of a node, without the node knowing the feature.

::

    a claim ─────────────────▶ Admission.decide_claim ──▶ Admit, or the end that it gets instead
                                    │  only the store can decide
                                    └──▶ Admission.admit_claims, on the thread of waking.py
    an end, accepted ────────▶ Waker.trigger_of_end   ┐
    a plan, carried out ─────▶ Waker.triggers_of_plans ├──▶ Waker.find_wakeable, on that thread ──▶ Store.wake
    all parked occurrences ──▶ Waker.start_sweep   ┘

The node knows these classes and no feature. Its rounds' thread starts every run, so a hook that it calls must not read
the store.
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
    """An extra of a run that is passed on to the process of a job that has its own."""

    def pack_call(self) -> tuple[str, Any]:
        """Return ``"module:function"`` and its arguments there, in plain JSON values."""


class InContext:
    """An extra of a run that changes the context in which the job's function is called."""

    def enter_context(self) -> None:
        """Change the context; called at the start of the run, and undone with its end. Must not raise."""


@dataclass(frozen=True, slots=True)
class Admit:
    """A claim may start.

    Attributes:
        extras: what the feature adds to the ``Run``, under a name of its choice.
        perform: returns the function to call in place of the job's; ``None``: the job's own.
    """

    extras: Mapping[str, Any] = field(default_factory=lambda: NOTHING)
    perform: Callable[[Registered, Claim], Registered] | None = None

    def combine_with(self, other: Admit) -> Admit:
        """Return the combination of two features; if both replace the function, the first one's is called."""
        return Admit({**self.extras, **other.extras}, self.perform or other.perform)


ADMITTED = Admit()
"""For a claim that no feature concerns."""


class Admission:
    """Decides whether a claim may start; an instance for each node. By default it concerns no claim."""

    def concerns_claim(self, claim: Claim) -> bool:  # noqa: ARG002
        """Whether the feature takes part in deciding a claim."""
        return False

    def decide_claim(self, claim: Claim) -> Admit | Then | None:  # noqa: ARG002
        """Decide from what is known here; ``None`` if the store has to be read. Safe from any thread."""
        return None

    def admit_claims(
        self, store: Store, claims: Sequence[Claim], company: Collection[Claim]
    ) -> Mapping[int, Admit | Then]:
        """Decide by reading the store, on the thread of ``waking.py``; by id of the occurrence.

        A claim that is left out is released, and claimed anew. The claims take slots until they are decided.

        Args:
            store: a handle of that thread's own.
            claims: those that it concerns and could not decide.
            company: all claims of the same steps; they are active or were a moment ago.

        Raises:
            StoreError: they cannot be decided now; all of them are released.
        """
        raise NotImplementedError

    def forget_answers(self) -> None:
        """Drop cached answers of the store: an operator has just acted."""


class Waker:
    """Finds parked occurrences that can go on; an instance for each node. By default it finds none.

    Waking too often costs a read, and two wakers at once do no harm: an occurrence that is woken decides by the ledger
    what to do. If a wake-up is lost because a node died, an operator acted or a run expired, a sweep makes up for it.

    Attributes:
        on: the ``parked_on`` of the occurrences that it wakes.
        pause: least seconds between two calls of ``find_wakeable``.
    """

    on = ""
    pause = 0.005

    def learn_view(self, view: View) -> None:
        """Learn from a look at the store; called on the thread of the node's rounds."""

    def trigger_of_end(self, claim: Claim, then: Then) -> Hashable | None:  # noqa: ARG002
        """Return what to check once the store has accepted this end; ``None`` for nothing. Safe from any thread."""
        return None

    def triggers_of_plans(self, plans: Sequence[Plan]) -> Iterable[Hashable]:  # noqa: ARG002
        """Return what to check once these plans have been carried out."""
        return ()

    def find_wakeable(self, store: Store, triggers: dict[Hashable, None]) -> Collection[int]:  # noqa: ARG002
        """Remove triggers from ``triggers`` and process them, the most urgent first; return the occurrences to wake.

        Called again while any trigger is left, with those that came meanwhile. A call should take few milliseconds:
        claims that wait for a decision wait for it.

        Raises:
            StoreError: it is called again, with the same triggers.
        """
        triggers.clear()
        return ()

    def start_sweep(self, store: Store) -> Callable[[Sequence[Sleeper]], Collection[int]]:  # noqa: ARG002
        """Start a sweep of all parked occurrences; return a function from a page of them to the ids to wake."""
        return lambda _: ()


class Host(NamedTuple):
    """What a feature may use of the node that it is made for.

    Attributes:
        registry: the functions that can be run here, by name; it may grow.
        clock: for waits.
        store: returns the handle for reads by runs and features, beside the node's own; any thread.
        refuse: ends reserved claims that match the first argument, as the second one; any thread.
    """

    registry: Mapping[str, Registered]
    clock: Clock
    store: Callable[[], Store]
    refuse: Callable[[Callable[[Claim], bool], Then], None]


class Hooks(NamedTuple):
    """The hooks of a feature at a node."""

    admission: Admission | None = None
    waker: Waker | None = None


HooksFactory = Callable[[Host], Hooks]
"""Makes the hooks of a feature for a node. Each folder of a feature has one, in its ``room.py``."""


class EndsAs(Snooze):
    """Raised by a feature's code that runs in place of a job's function: ends the attempt as ``then``."""

    def __init__(self, then: Then, message: str) -> None:
        super().__init__(message)
        self.then = then
