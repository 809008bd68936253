"""The set-up of a scheduler: the settings in force, the clock, and the node's name."""

from __future__ import annotations

import os
from collections.abc import Callable

from cronsensus.config import Settings
from cronsensus.process.forking import register_for_forks
from cronsensus.timing.clock import Clock, SystemClock


class Setup:
    """The settings in force, for all parts of one scheduler; ``Scheduler.configure`` exchanges them.

    Attributes:
        settings: those in force.
        given_clock: for tests; ``None``: each store has its own.
    """

    settings: Settings

    def __init__(self, clock: Clock | None, digest: Callable[[], str]) -> None:
        """Start without settings; ``digest`` returns the hash of all declared jobs."""
        self.given_clock = clock
        self._digest = digest
        self._release: str | None = None
        register_for_forks(self)

    @property
    def clock(self) -> Clock:
        """The clock by which this process waits."""
        return self.given_clock or SystemClock()

    @property
    def node_name(self) -> str:
        """The node's name for people; host name and pid if none was given."""
        return self.settings.node or f"{os.uname().nodename}:{os.getpid()}"

    @property
    def release(self) -> str:
        """The release under which this process declares its jobs; the same from start to stop."""
        if self._release is not None:
            return self._release
        version, source = self.settings.release, self.settings.source("release")
        if version is not None and (source == "flag" or source.startswith("CRONSENSUS_")):
            return version
        return self._digest() if version is None else f"{version}+{self._digest()}"

    def keep_release(self) -> None:
        """Freeze the release, whatever is declared later."""
        self._release = None  # of a start that failed
        self._release = self.release

    def forget_release(self) -> None:
        """Derive the release from the declarations again."""
        self._release = None

    forked = forget_release

    @property
    def stops_on_store_loss(self) -> bool:
        """Whether nothing more is started once the store was emptied."""
        return self.settings.on_store_loss == "stop"
