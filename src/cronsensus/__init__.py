"""Start the same code on every replica. Each scheduled occurrence is run by exactly one, and the ledger proves it.

>>> from cronsensus import Scheduler, cron
>>> scheduler = Scheduler("memory://")
>>> @scheduler.job(cron("0 21 * * *", tz="Asia/Shanghai"), timeout="10m", retries=3)
... def send_digest() -> None: ...

This module gathers what users touch. A name is imported when it is first used, so that importing the package costs next
to nothing and starts nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cronsensus.alerts.alert import Alert
    from cronsensus.config import Settings, load_settings
    from cronsensus.errors import (
        AlertNotSent,
        BatchFailed,
        Cancel,
        ConfigurationError,
        CoordinationError,
        CronsensusError,
        DuplicateJob,
        InvalidDuration,
        InvalidOption,
        InvalidPayload,
        InvalidTransition,
        InvalidTrigger,
        LeaseLost,
        LockHeld,
        MissingExtra,
        NodeFailed,
        NotTheHolder,
        OccurrenceForgotten,
        OccurrenceTooOld,
        PayloadMismatch,
        Retry,
        RunFailed,
        SchemaMismatch,
        SchemaMissing,
        Skip,
        Snooze,
        StillRunning,
        StoreBusy,
        StoreCorrupt,
        StoreEmptied,
        StoreError,
        StoreFull,
        StoreReadOnly,
        StoreRefused,
        StoreUnavailable,
        TaskControl,
        UnknownJob,
        UnknownStore,
        UnsupportedFunction,
        UnsupportedTransaction,
    )
    from cronsensus.jobs.calls import Call
    from cronsensus.jobs.handle import Handle
    from cronsensus.jobs.job import Job
    from cronsensus.lock import Lease, Lock
    from cronsensus.model.job import JobDefaults, JobSpec, Policies
    from cronsensus.model.occurrence import Occurrence
    from cronsensus.model.states import Origin, State
    from cronsensus.once.once import Once
    from cronsensus.run import Run, current_run
    from cronsensus.scheduler import Scheduler
    from cronsensus.stores import open_store
    from cronsensus.stores.base import Store
    from cronsensus.stores.values import StoreCapabilities
    from cronsensus.triggers import Trigger, any_of, at, cron, every

    __version__: str

__all__ = [
    "Alert",
    "AlertNotSent",
    "BatchFailed",
    "Call",
    "Cancel",
    "ConfigurationError",
    "CoordinationError",
    "CronsensusError",
    "DuplicateJob",
    "Handle",
    "InvalidDuration",
    "InvalidOption",
    "InvalidPayload",
    "InvalidTransition",
    "InvalidTrigger",
    "Job",
    "JobDefaults",
    "JobSpec",
    "Lease",
    "LeaseLost",
    "Lock",
    "LockHeld",
    "MissingExtra",
    "NodeFailed",
    "NotTheHolder",
    "Occurrence",
    "OccurrenceForgotten",
    "OccurrenceTooOld",
    "Once",
    "Origin",
    "PayloadMismatch",
    "Policies",
    "Retry",
    "Run",
    "RunFailed",
    "Scheduler",
    "SchemaMismatch",
    "SchemaMissing",
    "Settings",
    "Skip",
    "Snooze",
    "State",
    "StillRunning",
    "Store",
    "StoreBusy",
    "StoreCapabilities",
    "StoreCorrupt",
    "StoreEmptied",
    "StoreError",
    "StoreFull",
    "StoreReadOnly",
    "StoreRefused",
    "StoreUnavailable",
    "TaskControl",
    "Trigger",
    "UnknownJob",
    "UnknownStore",
    "UnsupportedFunction",
    "UnsupportedTransaction",
    "__version__",
    "any_of",
    "at",
    "cron",
    "current_run",
    "every",
    "load_settings",
    "open_store",
]

_ELSEWHERE = {
    "Alert": "alerts.alert",
    "Call": "jobs.calls",
    "Handle": "jobs.handle",
    "Job": "jobs.job",
    "JobDefaults": "model.job",
    "JobSpec": "model.job",
    "Lease": "lock",
    "Lock": "lock",
    "Occurrence": "model.occurrence",
    "Once": "once.once",
    "Origin": "model.states",
    "Policies": "model.job",
    "Run": "run",
    "Scheduler": "scheduler",
    "Settings": "config",
    "State": "model.states",
    "Store": "stores.base",
    "StoreCapabilities": "stores.values",
    "Trigger": "triggers",
    "any_of": "triggers",
    "at": "triggers",
    "cron": "triggers",
    "current_run": "run",
    "every": "triggers",
    "load_settings": "config",
    "open_store": "stores",
}
"""Where a name lives, below this package; those that are not here live in ``errors``."""


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("cronsensus")
    elif name in __all__:
        value = getattr(import_module(f"cronsensus.{_ELSEWHERE.get(name, 'errors')}"), name)
    else:
        raise AttributeError(f"module 'cronsensus' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
