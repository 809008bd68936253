"""Occurrences, and what nodes are given and give back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

from msgspec import Struct

from cronsensus.errors import InvalidOption, InvalidTransition, OccurrenceTooOld
from cronsensus.model.batch import ITEM_PREFIX
from cronsensus.model.job import JobSpec, check_priority
from cronsensus.model.states import SERIAL_ORIGINS, Origin, State
from cronsensus.timing.instants import after, as_utc, format_instant

LONGEST_KEY = 400
SCHEDULED_KEY_PREFIX = "@"
"""Keys of scheduled occurrences start with it and users' keys may not, so the two can never meet."""


def scheduled_key(scheduled_for: datetime) -> str:
    """Return the key of the occurrence of a nominal time."""
    return SCHEDULED_KEY_PREFIX + format_instant(scheduled_for)


LONGEST_IDEMPOTENCY_KEY = 255
"""What Stripe takes, and what an index of any database does."""
_PLAIN = "@/+=,!$*()-"
_READABLE = 180


def idempotency_key(namespace: str, job: str, key: str, scheduled_for: datetime | None) -> str:
    """Return a text that names one piece of work among all that share a service: ``namespace:job:key``.

    The same for each attempt, for a takeover, and for a backfill or an operator's retry of the same nominal time.
    Never the same for two pieces of work: what has a meaning in it is escaped as in a URL (``%3A`` for a colon), so it
    is printable ASCII without spaces. One that would be longer than 255 is cut, and ends in a hash of the whole.

    Example:
        >>> idempotency_key("default", "mail", "invoice:42", None)
        'default:mail:invoice:42'
        >>> idempotency_key("default", "a:b", "é", None)
        'default:a%3Ab:%C3%A9'
    """
    from urllib.parse import quote  # only programs that ask for one pay for it

    of_occurrence = key if scheduled_for is None else scheduled_key(scheduled_for)
    text = f"{quote(namespace, _PLAIN)}:{quote(job, _PLAIN)}:{quote(of_occurrence, _PLAIN + ':')}"
    if len(text) <= LONGEST_IDEMPOTENCY_KEY:
        return text
    import hashlib

    return f"{text[:_READABLE]}#{hashlib.sha256(text.encode()).hexdigest()}"


def too_old(job: str, scheduled_for: datetime | None, horizon: datetime) -> OccurrenceTooOld:
    """Return the error for a nominal time at or below what was pruned."""
    asked = "" if scheduled_for is None else f" at {format_instant(scheduled_for)}"
    return OccurrenceTooOld(
        f"{job!r}{asked}: everything up to {format_instant(horizon)} may have been pruned, so it cannot be proved "
        "that it never ran; take a later time"
    )


MOST_IN_FUTURE = timedelta(days=366)
"""The most by which an acquired nominal time may lie ahead of the store's clock."""


def too_early(job: str, scheduled_for: datetime, now: datetime) -> InvalidOption:
    """Return the error for a nominal time that lies further ahead than ``MOST_IN_FUTURE``."""
    return InvalidOption(
        f"{job!r} at {format_instant(scheduled_for)}: more than {MOST_IN_FUTURE.days} days after the store's clock, "
        f"which says {format_instant(now)}. The job's watermark would move there for good. Were milliseconds taken for "
        "seconds? Give the time that is due now"
    )


def chain_time(now: int) -> int:
    """Return the nominal time of jobs that are run one after another by hand; both in microseconds.

    It is none that a trigger gives: those give whole milliseconds, but for a one-off that names its microsecond.
    """
    return now - 1 if now % 1000 == 0 else now


def still_running(job: str, key: str) -> InvalidTransition:
    """Return the error for a key that is to be forgotten while its function runs."""
    return InvalidTransition(
        f"{job!r} is running under the key {key!r}: forgotten now, it could run a second time beside this one; wait, "
        "or say that it is to be forgotten all the same (running=True, --running)"
    )


def succeeded_already(occurrence: int) -> InvalidTransition:
    """Return the error for a retry of a run that has done its work."""
    return InvalidTransition(
        f"run {occurrence} succeeded, and a retry would do its work a second time; if that is meant, say so: "
        f"cronsensus runs retry {occurrence} --again, or retry({occurrence}, again=True)"
    )


def check_key(key: Any, *, of_item: bool = False) -> str:
    """Return ``key`` if a user may give it to an occurrence: 1 to 400 characters, no NUL, not beginning with ``@``.

    Keys are compared exactly: no folding of case, no trimming of spaces. That of an item of a batch begins otherwise.

    Raises:
        InvalidOption: it may not.
    """
    shown = repr(key if not isinstance(key, str) or len(key) <= 60 else key[:60] + "…")
    if not isinstance(key, str) or not key or len(key) > LONGEST_KEY or "\0" in key:
        raise InvalidOption(f"key {shown}: use 1 to {LONGEST_KEY} characters of text, without NUL")
    if key.startswith(SCHEDULED_KEY_PREFIX) and not (of_item and key.startswith(ITEM_PREFIX)):
        raise InvalidOption(f"key {shown}: keys that begin with {SCHEDULED_KEY_PREFIX!r} belong to nominal times")
    try:
        key.encode()
    except UnicodeEncodeError as error:
        raise InvalidOption(f"key {shown}: half a character (a lone surrogate) is no text") from error
    return key


def check_forgettable(key: Any) -> str:
    """Return ``key`` if it may be forgotten: any but those of nominal times, which run at most once for ever.

    Raises:
        InvalidOption: it may not.
    """
    if isinstance(key, str) and key.startswith(SCHEDULED_KEY_PREFIX):
        raise InvalidOption(f"key {key[:60]!r}: a nominal time is decided once for ever, and cannot be forgotten")
    return check_key(key)


@dataclass(frozen=True, slots=True)
class Named:
    """One occurrence of a job, by its key, which for a nominal time is made from it."""

    key: str
    scheduled_for: datetime | None


def name_of(scheduled_for: datetime | None, key: str | None) -> Named:
    """Return the occurrence that is asked for by its nominal time or by its key.

    Raises:
        InvalidOption: not exactly one of the two, or one that cannot be.
    """
    if scheduled_for is not None and key is None:
        scheduled_for = as_utc(scheduled_for, what="scheduled_for")
        return Named(scheduled_key(scheduled_for), scheduled_for)
    if key is not None and scheduled_for is None:
        return Named(check_key(key), None)
    raise InvalidOption("acquire: give exactly one of scheduled_for and key")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunError:
    """The error of an attempt, as text. ``traceback`` never holds local variables."""

    type: str
    message: str
    traceback: str = ""


class Claim(Struct, frozen=True, kw_only=True):
    """The right to run one occurrence: what a node got from ``step`` or ``acquire``.

    Attributes:
        token: fencing token; grows with every holder of this occurrence. Every later write carries it.
        claimed_at: the store's clock when the claim was made.
        created_at: the same when the occurrence was.
        crashes: takeovers so far.
        failures: failed attempts so far, which is what ``retries`` counts.
        fingerprint: what ``acquire`` was given to tell one payload from another, by this attempt or by an earlier one.
        reserved: it waits on its node for a free slot.
        parent: the batch that it is an item of.
        listed: of a batch whose list is complete: how many items it had.
        note: what the last look left for this attempt (``Again.note``).
        headers: what its enqueuer sent along beside the arguments (``Item.headers``).
    """

    id: int
    spec: JobSpec
    key: str
    origin: Origin
    scheduled_for: datetime | None
    due_at: datetime
    attempt: int
    token: int
    session: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    claimed_at: datetime
    created_at: datetime
    crashes: int = 0
    failures: int = 0
    fingerprint: str | None = None
    reserved: bool = False
    parent: int | None = None
    listed: int | None = None
    note: str | None = None
    headers: Mapping[str, str] | None = None

    @property
    def job(self) -> str:
        """The job's name."""
        return self.spec.name


class Settled(Struct, frozen=True):
    """The store's answer to one end.

    Attributes:
        accepted: the end is recorded under this token, now or when it was first sent. ``False``: the run was no
            longer current, nothing was written.
        state: where the occurrence stands.
    """

    id: int
    token: int
    accepted: bool
    state: State | None


@dataclass(frozen=True, slots=True)
class Note:
    """Progress and log lines of a running attempt. Refused when not current.

    Attributes:
        session: the session that claimed it; where it is given, it is compared like the token.
        ran: of an attempt that was reserved: it has begun, so long ago.
    """

    id: int
    token: int
    progress: tuple[float, float] | None = None
    lines: tuple[LogLine, ...] = ()
    session: str | None = None
    ran: timedelta | None = None


@dataclass(frozen=True, slots=True)
class LogLine:
    """One line that a job logged; ``at`` is the node's wall clock: shown, never compared."""

    at: datetime
    level: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """Work to enqueue.

    Attributes:
        key: ``None`` asks for a new one.
        delay: counts from the store's now.
        due_at: absolute, instead of ``delay``. Later than ``cronsensus.timing.instants.LATEST`` (in 2255) counts as
            that, which is never.
        parent: the batch that it is an item of.
        headers: goes along with the arguments to each attempt, also to those of an operator's retry; no part of what
            tells two payloads under one key apart.
    """

    job: str
    key: str | None = None
    args: tuple[Any, ...] | None = None
    kwargs: dict[str, Any] | None = None
    delay: timedelta = timedelta(0)
    due_at: datetime | None = None
    priority: int | None = None
    origin: Origin = Origin.ENQUEUE
    expires_in: timedelta | None = None
    parent: int | None = None
    headers: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        """Check what a store might refuse, or cut off.

        Raises:
            InvalidOption: it would.
        """
        if self.priority is not None:
            check_priority(self.priority)


def when_due(item: Item, now: datetime) -> datetime:
    """Return when an item is due, if it is enqueued ``now``; later than every store can keep exactly is never."""
    if item.due_at is None:
        return after(now, item.delay)
    return after(as_utc(item.due_at, what="due_at"), timedelta(0))


def origin_of_retry(origin: Origin, parent: int | None) -> Origin:
    """Return the origin of an occurrence that an operator makes of another: what was a queue stays one."""
    if parent is not None:
        return Origin.ENQUEUE  # an item of a batch, which runs alone now
    return Origin.MANUAL if origin in SERIAL_ORIGINS else origin


@dataclass(frozen=True, slots=True)
class Enqueued:
    """The occurrence that stands under a key; ``created`` tells whether this call made it.

    Attributes:
        payload: the arguments of one that ``enqueue`` found under the caller's key, as the row keeps them; ``None``: it
            is new, or the store does not tell.
        created_at: when this call made it, by the store's clock; ``None``: it did not, or the store does not tell.
    """

    id: int
    job: str
    key: str
    created: bool
    state: State
    payload: str | None = field(default=None, compare=False, repr=False)
    created_at: datetime | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """An occurrence as reads return it.

    Attributes:
        listed: of a batch whose list is complete: how many items it had.
        parked_on: what it waits for, due never, until it is woken; of one that ended so: what it waited for.
        note: what its last look left for the next one.
        reserved: it was claimed to wait on its node for a free slot, and is not known to have begun.
    """

    id: int
    job: str
    key: str
    origin: Origin
    state: State
    scheduled_for: datetime | None
    due_at: datetime
    priority: int
    attempt: int
    crashes: int
    failures: int
    token: int
    session: str | None
    node: str | None
    reason: str | None
    result: str | None
    error: RunError | None
    progress: tuple[float, float] | None
    cancel_requested: bool
    retry_of: int | None
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    fingerprint: str | None = None
    parent: int | None = None
    listed: int | None = None
    retried_as: int | None = None
    parked_on: str | None = None
    note: str | None = None
    reserved: bool = False

    @property
    def is_batch(self) -> bool:
        """Whether it is a batch whose list is complete: its last attempt only collects."""
        return self.listed is not None

    @property
    def is_parked(self) -> bool:
        """Whether it waits, due never, until it is woken."""
        return self.state is State.PENDING and self.parked_on is not None

    @property
    def begun_at(self) -> datetime | None:
        """When it began: of a batch, when it was made."""
        return self.created_at if self.is_batch else self.started_at


Cut = Literal["stopped", "crashed"]
"""The end of an attempt that was cut off: its node stopped it in order, or lost it."""
CUT_WORDS: dict[Cut, str] = {
    "stopped": "stopped by its node",
    "crashed": "its node lost its lease, or the store its transaction",
}
"""The same, as the ledger says it."""

RunEnd = Literal["succeeded", "failed", "cancelled", "skipped", "retry", "snoozed", "crashed", "released"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """One attempt, ended (``end`` says how) or still running (``end`` is ``None``)."""

    occurrence: int
    job: str
    key: str
    scheduled_for: datetime | None
    attempt: int
    token: int
    session: str
    node: str | None
    started_at: datetime
    finished_at: datetime | None
    end: RunEnd | None
    reason: str | None = None
    error: RunError | None = None


@dataclass(frozen=True, slots=True)
class Takeover:
    """A run that a dead session left behind, and what became of its occurrence."""

    id: int
    job: str
    key: str
    token: int
    session: str
    became: State
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OccurrenceFilter:
    """Which occurrences a read returns; all given conditions hold together.

    Bounds on ``scheduled_for`` are both included.
    """

    job: str | None = None
    states: tuple[State, ...] = ()
    origin: Origin | None = None
    key: str | None = None
    scheduled_from: datetime | None = None
    scheduled_until: datetime | None = None
    session: str | None = None
    parent: int | None = None
