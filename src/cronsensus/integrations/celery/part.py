"""The access of a Celery process to the store: opened at first use, which is after every fork."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from cronsensus.errors import ConfigurationError
from cronsensus.integrations.celery.store_clock import StoreClock
from cronsensus.outside import Outside
from cronsensus.scheduler import Scheduler
from cronsensus.timing.durations import Duration

if TYPE_CHECKING:
    from cronsensus.stores.base import Store

_DRAIN = timedelta(seconds=5)
NEEDS_STORE = (
    "configure(app) needs a store that all machines reach: configure(app, 'postgresql://…'), or CRONSENSUS_URL"
)


@dataclass(frozen=True, slots=True)
class Options:
    """The arguments of ``configure``."""

    url: str | None = None
    namespace: str | None = None
    lease: Duration | None = None
    keep: timedelta = timedelta(days=1)
    observe: bool | None = None


def options_of(app: Any) -> Options:
    """Return the options of a configured app; otherwise those of the environment."""
    found: Options | None = app.__dict__.get("_cronsensus")
    return Options() if found is None else found


def clock_of(app: Any) -> StoreClock:
    """Return the store's clock as this process knows it; all schedules of an app go by it."""
    clock: StoreClock = app.__dict__.setdefault("_cronsensus_clock", StoreClock())
    return clock


def is_guarded(task: Any) -> bool:
    """Whether the messages of a task are guarded by ``configure``."""
    return bool(getattr(task, "_cronsensus", False))


def make_scheduler(options: Options) -> Scheduler:
    """Return a scheduler on the store of an app, which is not opened yet.

    Raises:
        ConfigurationError: no store is named. By default each machine would have its own file.
        InvalidOption: an impossible option.
    """
    scheduler = Scheduler(options.url, namespace=options.namespace, lease=options.lease)
    if scheduler.settings.source("url") == "default":
        raise ConfigurationError(NEEDS_STORE)
    return scheduler


class Part:
    """The access of a process to the store; its owner closes it."""

    def __init__(self, app: Any) -> None:
        """Open nothing yet."""
        self._options = options_of(app)
        self._scheduler: Scheduler | None = None
        self._outside: Outside | None = None

    @property
    def is_open(self) -> bool:
        """Whether the store was reached."""
        return self._outside is not None

    def outside(self) -> Outside:
        """Return the access to claims; opened at the first call that reaches the store.

        Raises:
            StoreError: the store cannot be reached.
            ConfigurationError: no store is named.
        """
        if self._outside is None:
            if self._scheduler is None:
                self._scheduler = make_scheduler(self._options)
            self._scheduler._opened.shared().now()
            self._outside = self._scheduler._opened.outside()
        return self._outside

    @property
    def store(self) -> Store:
        """The store; for after ``outside``."""
        assert self._scheduler is not None  # noqa: S101 - see above
        return self._scheduler._opened.shared()

    def now(self) -> datetime:
        """Return the store's time."""
        return self.store.now()

    def close(self, *, wait: timedelta = _DRAIN) -> None:
        """Wait for the ends that are being recorded, and close; runs without an end are free for other processes."""
        outside, self._outside = self._outside, None
        if outside is not None:
            outside.close(wait=wait)
        if self._scheduler is not None:
            self._scheduler._opened.close()
            self._scheduler = None
