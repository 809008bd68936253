"""Start the same code on every replica. Each scheduled occurrence is run by exactly one, and the ledger proves it.

>>> from cronsensus import Scheduler, cron
>>> scheduler = Scheduler("memory://")
>>> @scheduler.job(cron("0 21 * * *", tz="Asia/Shanghai"), timeout="10m", retries=3)
... def send_digest() -> None: ...

This module gathers what users touch: of the errors those that a job raises, those that are often caught, and the bases
of all, which are in ``cronsensus.errors``. A name is imported when it is first used, so that importing the package
costs next to nothing and starts nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cronsensus.alerts.alert import Alert
    from cronsensus.errors import (
        BatchFailed,
        Cancel,
        ConfigurationError,
        CoordinationError,
        CronsensusError,
        LeaseLost,
        LockHeld,
        NotTheHolder,
        PayloadMismatch,
        Retry,
        RunFailed,
        Skip,
        Snooze,
        StillRunning,
        StoreError,
        StoreUnavailable,
    )
    from cronsensus.jobs.handle import Handle
    from cronsensus.jobs.job import Job
    from cronsensus.lock import Lease, Lock
    from cronsensus.model.job import JobDefaults
    from cronsensus.model.occurrence import Occurrence
    from cronsensus.model.states import Origin, State
    from cronsensus.run import Run, current_run
    from cronsensus.scheduler import Scheduler
    from cronsensus.stores import open_store
    from cronsensus.stores.base import Store
    from cronsensus.triggers import Trigger, any_of, at, cron, every

    __version__: str

__all__ = [
    "Alert",
    "BatchFailed",
    "Cancel",
    "ConfigurationError",
    "CoordinationError",
    "CronsensusError",
    "Handle",
    "Job",
    "JobDefaults",
    "Lease",
    "LeaseLost",
    "Lock",
    "LockHeld",
    "NotTheHolder",
    "Occurrence",
    "Origin",
    "PayloadMismatch",
    "Retry",
    "Run",
    "RunFailed",
    "Scheduler",
    "Skip",
    "Snooze",
    "State",
    "StillRunning",
    "Store",
    "StoreError",
    "StoreUnavailable",
    "Trigger",
    "__version__",
    "any_of",
    "at",
    "cron",
    "current_run",
    "every",
    "open_store",
]

_MODULE_OF = {
    "Alert": "alerts.alert",
    "Handle": "jobs.handle",
    "Job": "jobs.job",
    "JobDefaults": "model.job",
    "Lease": "lock",
    "Lock": "lock",
    "Occurrence": "model.occurrence",
    "Origin": "model.states",
    "Run": "run",
    "Scheduler": "scheduler",
    "State": "model.states",
    "Store": "stores.base",
    "Trigger": "triggers",
    "any_of": "triggers",
    "at": "triggers",
    "cron": "triggers",
    "current_run": "run",
    "every": "triggers",
    "open_store": "stores",
}
"""Where a name lives, below this package; those that are not here live in ``errors``."""


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        value: Any = version("cronsensus")
    elif name in __all__:
        value = getattr(import_module(f"cronsensus.{_MODULE_OF.get(name, 'errors')}"), name)
    else:
        errors = import_module("cronsensus.errors")
        hint = f"; write from cronsensus.errors import {name}" if name in vars(errors) else ""
        raise AttributeError(f"module 'cronsensus' has no attribute {name!r}{hint}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
