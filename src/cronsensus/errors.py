"""Every exception that cronsensus raises, in one tree.

::

    CronsensusError
    ├── ConfigurationError           fix the code or the settings, then start again
    │   ├── InvalidTrigger           a cron text, zone, interval or instant that makes no sense
    │   ├── InvalidDuration
    │   ├── InvalidOption            an unknown or impossible option ("did you mean …")
    │   ├── DuplicateJob             two jobs under one name
    │   ├── UnknownJob               no job of that name here or in the store
    │   ├── NotCommittedYet          a run that stands in a transaction which has not committed
    │   ├── UnsupportedFunction      a function that this executor or a store cannot carry
    │   ├── UnsupportedTransaction   a run's transaction that cannot be had here, or not like this
    │   ├── NotTheHolder             a lock released or extended where it was not acquired
    │   ├── InvalidPayload           arguments or a result that are not JSON, or too large
    │   ├── UnknownStore             a URL scheme that nothing answers to
    │   └── MissingExtra             a driver that is not installed: says the exact ``pip install``
    ├── StoreError                   the store could not do it; ``retryable`` says whether later may help
    │   ├── StoreUnavailable         down, cut off                       (retryable)
    │   │   └── StoreRefused         it answers and refuses: password, rights, no such database
    │   ├── StoreBusy                locked by others for too long       (retryable)
    │   ├── StoreReadOnly            may be read but not written
    │   ├── StoreFull                no space left                       (retryable)
    │   ├── StoreCorrupt             a file or a record that cannot be read
    │   ├── SchemaMismatch           newer than this code, or changed by somebody
    │   │   └── SchemaMissing        none yet, or an older one: a node that starts, or ``db upgrade``, makes it
    │   ├── StoreEmptied             another one than this process knew, with ``on_store_loss="stop"``
    │   └── OccurrenceForgotten      it was acknowledged, and the store lost it
    ├── CoordinationError            another node was faster, or this one too slow
    │   ├── LeaseLost                the session or lock is no longer ours: stop working
    │   ├── LockHeld                 a ``with`` block whose lock was not to be had in time
    │   ├── StillRunning             a guarded function that another caller runs under this key now
    │   ├── InvalidTransition        a final state has no exit
    │   └── OccurrenceTooOld         at or below the pruned horizon: cannot prove that it never ran
    ├── PayloadMismatch              another payload under a key that was used before
    ├── RunFailed                    ``Handle.result``: the occurrence did not succeed
    ├── AlertNotSent                 a receiver did not take a message; it is sent again
    ├── BatchFailed                  more items of a batch failed than ``tolerate`` allows
    ├── NodeFailed                   ``Scheduler.run``: this node could not go on, and has ended
    └── TaskControl                  raised *by* a job to steer its own run
        ├── Retry                    try again later, although the code did not fail
        ├── Skip                     nothing to do this time
        ├── Snooze                   not yet: look again after a while
        └── Cancel                   stop here, and do not retry

Losing a race is never an exception: the verbs return the winner. The class docstring is the default message.
"""

from __future__ import annotations

from datetime import timedelta


class CronsensusError(Exception):
    """Something went wrong in cronsensus."""

    permanent = False
    """Whether another attempt of the run that raised it cannot end otherwise."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or default_message(type(self)))


def default_message(kind: type[CronsensusError]) -> str:
    """Return the message of an exception that was raised without one: the first line of its class, or its name.

    A subclass of the user's has no docstring of its own, and under ``python -OO`` ours have none either.
    """
    for each in kind.__mro__:
        if issubclass(each, CronsensusError) and (text := (each.__dict__.get("__doc__") or "").strip()):
            return str(text.splitlines()[0])
    return kind.__name__


class ConfigurationError(CronsensusError):
    """The code or the settings are wrong."""


class InvalidTrigger(ConfigurationError, ValueError):
    """The trigger makes no sense."""


class InvalidDuration(ConfigurationError, ValueError):
    """The duration cannot be read; write seconds, a timedelta, or text like '90s', '15m', '1h30m'."""


class InvalidOption(ConfigurationError, ValueError):
    """The option is unknown or impossible."""


class DuplicateJob(ConfigurationError):
    """Two jobs have one name; give one of them another, by its name argument."""


class UnknownJob(ConfigurationError, LookupError):
    """There is no job of that name."""


class UnsupportedFunction(ConfigurationError, TypeError):
    """The function cannot be used as this kind of job."""


class UnsupportedTransaction(ConfigurationError):
    """A run's transaction cannot be had here, or not like this."""


class NotCommittedYet(ConfigurationError, LookupError):
    """The transaction that enqueued a run has not committed, or was rolled back; to wait for it there is a deadlock."""


class NotTheHolder(ConfigurationError, RuntimeError):
    """Only the thread and process that acquired a lock can release or extend it."""


class InvalidPayload(ConfigurationError, ValueError):
    """Arguments and results are stored as JSON of a bounded size."""


class UnknownStore(ConfigurationError):
    """No store answers to that URL scheme."""


class MissingExtra(ConfigurationError, ImportError):
    """A driver is not installed."""


class StoreError(CronsensusError):
    """The store could not do what was asked."""

    retryable = False
    came_from: object = None
    """What all handles on one store share; ``None``: no verb of a store raised it."""


class StoreUnavailable(StoreError):
    """The store cannot be reached; nothing runs until it can."""

    retryable = True


class StoreRefused(StoreUnavailable):
    """The store answers, and refuses this user: the password, a right, the name of the database, or a setting there.

    A node that runs already tries again, since an administrator may mend it. A start does not wait for that.
    """


class StoreBusy(StoreError):
    """The store stayed locked by another process for longer than the busy timeout."""

    retryable = True


class StoreReadOnly(StoreError):
    """The store can be read but not written."""


class StoreFull(StoreError):
    """The store has no space left."""

    retryable = True


class StoreCorrupt(StoreError):
    """The store holds something that cannot be read."""


class SchemaMismatch(StoreError):
    """The schema in the store is not the one that this code knows."""


class SchemaMissing(SchemaMismatch):
    """The store holds no schema of ours, or an older one; the first node that starts makes it."""


class StoreEmptied(StoreError):
    """The store was emptied while this process used it, and it is to stop then."""


class OccurrenceForgotten(StoreError, LookupError):
    """The store lost what it had acknowledged; it does not know this occurrence any more."""


class CoordinationError(CronsensusError):
    """Another node was faster, or this one was too slow."""


class LeaseLost(CoordinationError):
    """The lease is lost; another process may be doing this work now, so stop."""


class LockHeld(CoordinationError):
    """Another process or thread holds the lock, and did not release it in time."""


class StillRunning(CoordinationError):
    """Another caller runs this under the same key now."""


class InvalidTransition(CoordinationError):
    """The state does not allow that change; final states have no exit."""


class OccurrenceTooOld(CoordinationError):
    """The occurrence lies at or below the pruned horizon, so it cannot be proved that it never ran."""


class PayloadMismatch(CronsensusError):
    """A call has another payload than the one that is recorded under its key.

    Either it is the same call, and ``payload=`` should name what of it counts; or it is another one, and needs another
    key. No value is kept or shown: only hashes are compared.

    Attributes:
        occurrence: the recorded call of a guarded function; of enqueued work, its id.
        differs: names of the arguments that differ.
        given: names of all that was compared, of this call.
        recorded: the same of the recorded one.
    """

    def __init__(
        self,
        message: str | None = None,
        *,
        occurrence: object = None,
        differs: tuple[str, ...] = (),
        given: tuple[str, ...] = (),
        recorded: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        self.occurrence = occurrence
        self.differs = differs
        self.given = given
        self.recorded = recorded


class RunFailed(CronsensusError):
    """The occurrence ended otherwise than with a result."""

    occurrence: object = None

    def __init__(self, message: str | None = None, *, occurrence: object = None) -> None:
        super().__init__(message)
        self.occurrence = occurrence


class NodeFailed(CronsensusError):
    """The node could not go on, and has ended; its runs are left to others."""


class BatchFailed(CronsensusError):
    """More items of a batch failed than it tolerates."""

    permanent = True  # its items have ended


class AlertNotSent(CronsensusError):
    """A receiver did not take a message; it is sent again.

    Attributes:
        after: the seconds that the receiver asked to wait for; ``None``: it did not ask.
    """

    after: float | None = None


class TaskControl(CronsensusError):
    """Raised by a job to steer its own run."""


class Retry(TaskControl):
    """Try this occurrence again later, within the job's retries."""

    # Of the class, too: a subclass may forget super().__init__().
    after: timedelta | float | str | None = None

    def __init__(self, message: str | None = None, *, after: timedelta | float | str | None = None) -> None:
        super().__init__(message)
        self.after = after


class Snooze(TaskControl):
    """What this occurrence waits for is not there yet: look again after a while.

    It counts as no attempt. Crashes before it are kept: one that waits for weeks is failed after ``max_crashes`` nodes
    that died while it looked.
    """

    # Of the class, too: a subclass may forget super().__init__().
    after: timedelta | float | str = "1m"

    def __init__(self, message: str | None = None, *, after: timedelta | float | str = "1m") -> None:
        super().__init__(message)
        self.after = after


class Skip(TaskControl):
    """There is nothing to do this time; the occurrence ends as skipped."""


class Cancel(TaskControl):
    """Stop here; the occurrence ends as cancelled and is not retried."""
