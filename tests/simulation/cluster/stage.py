"""What the actors see of the world, and of one another, so that no file has to know who plays whom."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from cronsensus.model.ending import EndingKind
from cronsensus.model.session import SessionView
from cronsensus.node.executors.base import Call
from tests.simulation.cluster.chance import Chance
from tests.simulation.cluster.clocks import NodeClock, StoreClock
from tests.simulation.cluster.parts import Parts
from tests.simulation.cluster.scenario import Scenario
from tests.simulation.cluster.trace import Trace

if TYPE_CHECKING:
    from cronsensus.stores.base import Store


class Process(Protocol):
    """A node, seen from what it does."""

    name: str
    clock: NodeClock
    suspended: list[Any]
    """Cranks that wait in the middle of a turn, on threads of their own."""
    phases: list[Any]
    """Cranks in which batches list and collect."""

    @property
    def stage(self) -> Stage:
        """The world."""

    @property
    def gone(self) -> bool:
        """Whether the process has ended."""

    @property
    def frozen(self) -> bool:
        """Whether the process stands still."""

    @property
    def thaw_at(self) -> int:
        """The moment from which the process goes on."""

    def later(self, micros: int, action: Callable[[], None]) -> None:
        """Do something of this process after a while."""

    def freeze(self, micros: int) -> None:
        """Stand still for a while."""

    def crash(self) -> None:
        """End without a word."""


class Attempt(Protocol):
    """Work under way, seen by the judge."""

    @property
    def call(self) -> Call:
        """What was started."""

    @property
    def node(self) -> Process:
        """Where."""


class Witness(Protocol):
    """The judge, seen by those who are judged."""

    def broken(self, rule: str, what: str) -> None:
        """Name a violation."""

    def trusts(self, node: Process, session: str, micros: int) -> None:
        """Look at how long a node that holds something trusts its lease."""

    def work_begins(self, work: Attempt) -> None:
        """Look at an attempt that a node starts."""

    def work_ends(self, work: Attempt, kind: EndingKind) -> None:
        """Look at an attempt that ended by itself."""

    def work_dies(self, work: Attempt) -> None:
        """Look at an attempt that ended with its process."""


class Stage(Protocol):
    """The world, seen by those who act in it."""

    chance: Chance
    clock: StoreClock
    trace: Trace
    scenario: Scenario
    parts: Parts
    store: Store
    calm: bool
    """Whether nothing goes wrong any more."""
    current: Any
    """The crank that is being turned."""
    faults: int
    release: int
    """What a node that starts now runs."""

    work: Any
    """The class of what runs do: ``Work``, or one derived from it."""

    @property
    def witness(self) -> Witness:
        """Who looks at everything."""

    def at(self, micros: int, action: Callable[[], None], node: Process | None = None) -> None:
        """Do something at a moment."""

    def after(self, micros: int, action: Callable[[], None]) -> None:
        """Do something after a while."""

    def go_on(self, until: Callable[[], bool]) -> None:
        """Let events happen until something is so."""

    def commit(self, who: str, verb: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Let the store carry a verb out."""

    def commit_late(self, who: str, verb: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Let the store carry a verb out for which nobody waits any more."""

    def interfere(self, job: str) -> None:
        """Let somebody change something about a job in this moment."""

    def remember(self) -> None:
        """Let the store forget, a moment later, whatever comes from now on."""

    def hint_all(self, who: str) -> None:
        """Wake the nodes."""

    def is_dead(self, session: SessionView) -> bool:
        """Return whether the process of a session is certainly gone."""

    def process_gone(self, pid: int) -> None:
        """Note the end of a process that is no node."""

    def node_gone(self, node: Any) -> None:
        """Note the end of a process."""

    def number_of(self, job: str, key: str) -> int:
        """Return the id under which the store keeps an occurrence."""

    def was_pruned(self, occurrence: int) -> bool:
        """Return whether the store has forgotten an occurrence."""
