"""The events that a scheduler sends to its subscribers, each after the store has confirmed it.

An event is about a node, and only that node sends it: to get the events of a cluster, subscribe in each process. Events
are news, not the record. The record is the ledger, which the store keeps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Literal, TypeAlias

from cronsensus.errors import InvalidOption
from cronsensus.model.occurrence import RunEnd, RunError, Takeover
from cronsensus.model.plan import VerdictRange
from cronsensus.model.states import Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened.

    Attributes:
        name: the name to subscribe by.
        node: the name of the node that sends it.
    """

    name: ClassVar[str]
    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfRun(Event):
    job: str
    occurrence: int
    key: str
    scheduled_for: datetime | None
    attempt: int
    token: int
    session: str
    origin: Origin


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted(_OfRun):
    """A node starts a run that it has claimed. One ``run.ended`` follows, unless the node dies before."""

    name = "run.started"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded(_OfRun):
    """The store has recorded the end of a run, or refused it.

    Attributes:
        end: as ``cronsensus runs show`` has it; ``"refused"``: the run was taken over or closed meanwhile. Its end is
            in the ledger, and in the events of another node.
        reason: the reason of the verdict, if there is one.
        error: the error of a run that failed, for good or to be tried again; ``error.type`` is the name of the
            exception.
        seconds: how long the run took; ``None`` where it was cut off.
    """

    name = "run.ended"
    end: RunEnd | Literal["refused"]
    reason: str | None = None
    error: RunError | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenOver(Event):
    """A node took the runs of a dead session.

    Attributes:
        session: the dead session.
        dead_node: the name of its node, if that is known.
        runs: the runs that it left behind, and what became of each.
    """

    name = "takeover"
    session: str
    dead_node: str | None
    runs: tuple[Takeover, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCarriedOut(Event):
    """A job was fired: this node's plan won.

    Attributes:
        created: the nominal times that have an occurrence now.
        verdicts: the nominal times that are skipped or missed, and why.
    """

    name = "plan.carried_out"
    job: str
    created: tuple[datetime, ...]
    verdicts: tuple[VerdictRange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLost(Event):
    """The store does not know this node's session any more. The node stops its runs, and goes on with a new session.

    Attributes:
        session: the lost session.
        runs: the ids of the occurrences that the node held.
    """

    name = "session.lost"
    session: str
    runs: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreVerb(Event):
    """A verb of the store was called, by any part of this scheduler.

    Attributes:
        verb: a method of ``Store``. ``wait`` waits for a notification, ``transaction`` for the user's own code.
        seconds: how long the call took.
        error: the name of the exception that was raised instead.
    """

    name = "store.verb"
    verb: str
    seconds: float
    error: str | None = None


KINDS: dict[str, type[Event]] = {
    kind.name: kind for kind in (RunStarted, RunEnded, TakenOver, PlanCarriedOut, SessionLost, StoreVerb)
}
Subscriber: TypeAlias = Callable[[Any], object]


def kinds_of(event: str | type[Event]) -> tuple[type[Event], ...]:
    """Return the kinds of event for a name, a class, or ``"*"``, which is all.

    Raises:
        InvalidOption: there is no such event; the message lists the events.
    """
    if event == "*":
        return tuple(KINDS.values())
    name = event if isinstance(event, str) else getattr(event, "name", None)
    kind = KINDS.get(name) if isinstance(name, str) else None
    if kind is not None and event in {name, kind}:
        return (kind,)
    import difflib

    close = difflib.get_close_matches(str(event), KINDS, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise InvalidOption(
        f"there is no event {event!r}; {hint}The events are {', '.join(KINDS)}, and '*' for all of them"
    )
