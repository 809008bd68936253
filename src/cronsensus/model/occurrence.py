"""Occurrences: their keys, and the values that nodes and stores exchange about them."""

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
"""Keys of scheduled occurrences start with it and users' keys may not, so the two never collide."""


def scheduled_key(scheduled_for: datetime) -> str:
    """Return the key of the occurrence of a nominal time."""
    return SCHEDULED_KEY_PREFIX + format_instant(scheduled_for)


LONGEST_IDEMPOTENCY_KEY = 255
"""The limit of Stripe, and of an index in any database."""
_PLAIN = "@/+=,!$*()-"
_READABLE = 180


def idempotency_key(namespace: str, job: str, key: str, scheduled_for: datetime | None) -> str:
    """Return a text that identifies a piece of work among all that share a service: ``namespace:job:key``.

    It is the same for each attempt, for a takeover, and for a backfill or an operator's retry of the same nominal time.
    Two pieces of work never share it: characters with a meaning in it are escaped as in a URL (``%3A`` for a colon), so
    it is printable ASCII without spaces. A text longer than 255 characters is cut, and ends in a hash of the whole.

    Example:
        >>> idempotency_key("default", "mail", "invoice:42", None)
        'default:mail:invoice:42'
        >>> idempotency_key("default", "a:b", "é", None)
        'default:a%3Ab:%C3%A9'
    """
    from urllib.parse import quote  # imported here, because few programs need it

    of_occurrence = key if scheduled_for is None else scheduled_key(scheduled_for)
    text = f"{quote(namespace, _PLAIN)}:{quote(job, _PLAIN)}:{quote(of_occurrence, _PLAIN + ':')}"
    if len(text) <= LONGEST_IDEMPOTENCY_KEY:
        return text
    import hashlib

    return f"{text[:_READABLE]}#{hashlib.sha256(text.encode()).hexdigest()}"


def too_old(job: str, scheduled_for: datetime | None, horizon: datetime) -> OccurrenceTooOld:
    """Return the error for a nominal time at or below the pruned horizon."""
    at_text = "" if scheduled_for is None else f" at {format_instant(scheduled_for)}"
    return OccurrenceTooOld(
        f"{job!r}{at_text}: everything up to {format_instant(horizon)} may have been pruned, so it cannot be proved "
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
    """Return the nominal time for a chain that is run by hand; both in microseconds.

    No trigger gives such a time: triggers give whole milliseconds, except a one-off that names its microsecond.
    """
    return now - 1 if now % 1000 == 0 else now


def still_running(job: str, key: str) -> InvalidTransition:
    """Return the error for forgetting a key while its function runs."""
    return InvalidTransition(
        f"{job!r} is running under the key {key!r}: forgotten now, it could run a second time beside this one; wait, "
        "or say that it is to be forgotten all the same (running=True, --running)"
    )


def succeeded_already(occurrence: int) -> InvalidTransition:
    """Return the error for a retry of a run that succeeded."""
    return InvalidTransition(
        f"run {occurrence} succeeded, and a retry would do its work a second time; if that is meant, say so: "
        f"cronsensus runs retry {occurrence} --again, or retry({occurrence}, again=True)"
    )


def check_key(key: Any, *, of_item: bool = False) -> str:
    """Return ``key`` if a user may give it to an occurrence: 1 to 400 characters, no NUL, not beginning with ``@``.

    Keys are compared exactly, with case and spaces. The key of an item of a batch begins with ``ITEM_PREFIX``.

    Raises:
        InvalidOption: the key is not allowed.
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
    """Return ``key`` if it may be forgotten: keys of nominal times, which run at most once for ever, may not.

    Raises:
        InvalidOption: the key may not be forgotten, or is no valid key.
    """
    if isinstance(key, str) and key.startswith(SCHEDULED_KEY_PREFIX):
        raise InvalidOption(f"key {key[:60]!r}: a nominal time is decided once for ever, and cannot be forgotten")
    return check_key(key)


@dataclass(frozen=True, slots=True)
class OccurrenceKey:
    """An occurrence of a job, by its key; for a nominal time the key is made from it."""

    key: str
    scheduled_for: datetime | None


def occurrence_key(scheduled_for: datetime | None, key: str | None) -> OccurrenceKey:
    """Return the occurrence with this nominal time or this key.

    Raises:
        InvalidOption: not exactly one of the two, or an invalid value.
    """
    if scheduled_for is not None and key is None:
        scheduled_for = as_utc(scheduled_for, what="scheduled_for")
        return OccurrenceKey(scheduled_key(scheduled_for), scheduled_for)
    if key is not None and scheduled_for is None:
        return OccurrenceKey(check_key(key), None)
    raise InvalidOption("acquire: give exactly one of scheduled_for and key")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunError:
    """The error of an attempt, as text. ``traceback`` never holds local variables."""

    type: str
    message: str
    traceback: str = ""


class Claim(Struct, frozen=True, kw_only=True):
    """The right to run an occurrence, as ``step`` or ``acquire`` grants it.

    Attributes:
        token: fencing token; grows with every holder of this occurrence. Every later write carries it.
        claimed_at: the store's clock when the claim was made.
        created_at: the store's clock when the occurrence was created.
        crashes: takeovers so far.
        failures: failed attempts so far, which ``retries`` limits.
        fingerprint: the fingerprint of the payload that ``acquire`` stored, by this attempt or by an earlier one.
        reserved: it waits on its node for a free slot.
        parent: the batch that it is an item of.
        listed: for a batch whose list is complete: how many items it had.
        note: the note that the last snoozed attempt left for this one (``Again.note``).
        headers: metadata that its enqueuer sent beside the arguments (``Item.headers``).
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
        state: the state of the occurrence now.
    """

    id: int
    token: int
    accepted: bool
    state: State | None


@dataclass(frozen=True, slots=True)
class Note:
    """Progress and log lines of a running attempt. Refused if the attempt is not current.

    Attributes:
        session: the session that claimed it; if given, it is compared like the token.
        ran: for an attempt that was reserved: how long it has been running.
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
        key: ``None`` gives the occurrence a new key.
        delay: counts from the store's now.
        due_at: absolute, instead of ``delay``. Later than ``cronsensus.timing.instants.LATEST`` (in 2255) means never.
        parent: the batch that it is an item of.
        headers: metadata for each attempt, beside the arguments; an operator's retry has them too. They do not count
            when two payloads under the same key are compared.
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
        """Check values that a store might refuse or truncate.

        Raises:
            InvalidOption: a value is out of range.
        """
        if self.priority is not None:
            check_priority(self.priority)


def when_due(item: Item, now: datetime) -> datetime:
    """Return when an item is due, if it is enqueued ``now``; a time beyond what stores keep exactly means never."""
    if item.due_at is None:
        return after(now, item.delay)
    return after(as_utc(item.due_at, what="due_at"), timedelta(0))


def origin_of_retry(origin: Origin, parent: int | None) -> Origin:
    """Return the origin of an operator's retry: enqueued work stays enqueued."""
    if parent is not None:
        return Origin.ENQUEUE  # an item of a batch, which runs alone now
    return Origin.MANUAL if origin in SERIAL_ORIGINS else origin


@dataclass(frozen=True, slots=True)
class Enqueued:
    """The occurrence that has the key; ``created`` is whether this call made it.

    Attributes:
        payload: the stored arguments of an occurrence that ``enqueue`` found under the caller's key; ``None``: it is
            new, or the store does not return them.
        created_at: when this call made it, by the store's clock; ``None``: it did not, or the store does not return it.
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
        listed: for a batch whose list is complete: how many items it had.
        parked_on: the kind of thing that a parked occurrence waits for; it stays when the occurrence ends while parked.
        note: the note that its last snoozed attempt left for the next one.
        reserved: it was claimed to wait on its node for a free slot, and is not known to have started.
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
        """Whether it is parked: without a due time, until it is woken."""
        return self.state is State.PENDING and self.parked_on is not None

    @property
    def begun_at(self) -> datetime | None:
        """When it started; a batch starts when it is created."""
        return self.created_at if self.is_batch else self.started_at


Cut = Literal["stopped", "crashed"]
"""The end of an attempt that was cut off: its node stopped it in order, or lost it."""
CUT_WORDS: dict[Cut, str] = {
    "stopped": "stopped by its node",
    "crashed": "its node lost its lease, or the store its transaction",
}
"""The reason that the ledger records for each."""

RunEnd = Literal["succeeded", "failed", "cancelled", "skipped", "retry", "snoozed", "crashed", "released"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """An attempt that has ended (``end`` is how), or still runs (``end`` is ``None``)."""

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
    """Conditions on the occurrences that a read returns; all of them must hold.

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
