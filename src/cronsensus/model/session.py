"""Sessions: the life of a process in the store, under a lease."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from cronsensus.errors import InvalidOption
from cronsensus.model.job import check_name

_LONGEST = {"id": 100, "node": 200, "host": 200, "release": 200, "version": 50, "tzdata": 200}
"""Most characters of the names in a session."""
MOST_DECLARED = 1_000
LONGEST_HOLDER = 400
LONGEST_LEASE = timedelta(days=36_525)
"""The longest lease of a lock; a lock without an end gets a hundred years."""


def check_text(text: str, longest: int, *, what: str) -> None:
    """Raise unless every store keeps this text unchanged: no NUL, no lone surrogates, at most ``longest`` characters.

    Raises:
        InvalidOption: a store would refuse or truncate it.
    """
    try:
        text.encode()
        is_storable = len(text) <= longest and "\0" not in text
    except UnicodeEncodeError:
        is_storable = False
    if not is_storable:
        shown = text if len(text) <= 60 else text[:60] + "…"
        raise InvalidOption(f"{what} {shown!r}: use at most {longest} characters, without NUL and half characters")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSpec:
    """The process that opens a session.

    Attributes:
        id: new for every process start, never a host name; sorts by time.
        node: a name for people; may repeat.
        host: identity of the process table that ``pid`` belongs to: boot id and pid namespace. Only sessions with an
            equal ``host`` may be judged by their pid.
        pid_started: when the process started, in the host's own units; with ``pid`` it is never reused within a
            ``host``. 0: unknown, so the process cannot be judged by its pid.
        release: the version of the application's code on this node.
        concurrency: most runs at a time; 0: not a node. Such a session takes no turn and defines nothing. It holds
            locks, and occurrences that it acquired.
        functions: how many functions it can run; only displayed.
        declares: the function (module, name and parameters) of each job that its program declares, by the job's name;
            at most ``MOST_DECLARED`` of them. Only compared, so that differing programs are noticed.
        tzdata: the version of its time zone data, and where that comes from; only displayed.
        zones: a digest of the rules of each time zone that its jobs use, by the zone's name. Only compared.
    """

    id: str
    node: str
    host: str
    pid: int
    pid_started: int
    release: str
    concurrency: int
    version: str
    functions: int = 0
    declares: Mapping[str, str] = field(default_factory=dict, hash=False)
    tzdata: str = ""
    zones: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        """Check the names.

        Raises:
            InvalidOption: a store could not keep a value.
        """
        for name, longest in _LONGEST.items():
            check_text(getattr(self, name), longest, what=f"{name} of a session")

    @property
    def is_node(self) -> bool:
        """Whether it takes turns and runs jobs; see ``concurrency``."""
        return self.concurrency > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Renewal:
    """The answer to a renewal.

    Attributes:
        alive: ``False``: the session is dead for good, and its runs and locks are lost.
        lease: the length of the lease from ``now`` on; zero for a dead session.
        cancel: occurrences of this session that are asked to stop: id → reason.
        drain: an operator asked the node to drain: to finish its runs and claim nothing new.
        now: the store's clock.
        beats: how often the session was renewed, this time included, as far as the store knows: less than the caller's
            own count means that the store lost a moment. 0: it knows no such session.
        store: the identity of the store. ``None`` for both: not reported.
        held: the runs that the store lists for this session, as (occurrence, token), by occurrence. ``None``: not
            reported.
    """

    alive: bool
    lease: timedelta
    cancel: dict[int, str]
    drain: bool
    now: datetime
    held: tuple[tuple[int, int], ...] | None = None
    beats: int | None = None
    store: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionView:
    """A session as reads return it.

    Attributes:
        state: ``alive``, ``draining``, ``closed`` (left in order) or ``dead`` (lease expired, or process gone).
        expires_in: the rest of the lease by the store's clock; negative when overdue.
        holds: how many runs and locks it holds.
        declares: see ``SessionSpec``; empty in a look.
        tzdata, zones: see ``SessionSpec``; may be empty in a look.
    """

    id: str
    node: str
    host: str
    pid: int
    pid_started: int
    release: str
    version: str
    concurrency: int
    functions: int
    state: str
    started_at: datetime
    renewed_at: datetime
    ended_at: datetime | None
    ended_why: str | None
    expires_in: timedelta
    holds: int
    declares: Mapping[str, str] = field(default_factory=dict, hash=False)
    tzdata: str = ""
    zones: Mapping[str, str] = field(default_factory=dict, hash=False)

    @property
    def is_node(self) -> bool:
        """Whether it takes turns and runs jobs; see ``SessionSpec.concurrency``."""
        return self.concurrency > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LockGrant:
    """A place of a named lock, held: ``token`` grows with every holder of the name.

    Attributes:
        place: the number of the place, from 0; a lock for a single holder has place 0.
        session: the session that holds it; ``None``: it is held without a session.
    """

    name: str
    holder: str
    token: int
    place: int = 0
    session: str | None = None


def check_lock(name: str, holder: str, ttl: timedelta) -> None:
    """Raise unless every store can keep a lock with these values.

    Raises:
        InvalidOption: a store could not.
    """
    check_name(name, what="lock name")
    check_text(holder, LONGEST_HOLDER, what="holder of a lock")
    check_lease(ttl)


def check_lease(ttl: timedelta) -> None:
    """Raise ``InvalidOption`` if a lock cannot last for so long."""
    if ttl > LONGEST_LEASE:
        raise InvalidOption(f"a lock lasts for at most {LONGEST_LEASE.days} days without a renewal, not for {ttl}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LockView:
    """A held place of a named lock as reads return it.

    Attributes:
        session: ``None``: held without a session.
        host, pid, pid_started: the process of the session, see ``SessionSpec``; ``None`` without a session.
    """

    name: str
    holder: str
    session: str | None
    token: int
    acquired_at: datetime
    expires_in: timedelta
    place: int = 0
    host: str | None = None
    pid: int | None = None
    pid_started: int | None = None
