"""The interface between a node and its executors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from cronsensus.model.ending import Ending
from cronsensus.model.occurrence import Claim
from cronsensus.node.registered import Registered
from cronsensus.node.run import BaseRun


class Call(Struct, frozen=True):
    """One attempt, ready to run."""

    claim: Claim
    run: BaseRun
    registered: Registered


def with_run(
    run: BaseRun, parameter: str | None, before: int, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments with the ``Run`` where the function wants one: by position if others follow it."""
    if parameter is None:
        return args, kwargs
    if len(args) > before:
        return (*args[:before], run, *args[before:]), kwargs
    return args, {**kwargs, parameter: run}


Done = Callable[[Call, Ending], None]
"""What an executor calls, exactly once for each call, from any thread, when the attempt has ended (or is given up: a
coroutine that its loop does not end is reported as timed out, and whatever it does later is ignored)."""


class Executor(ABC):
    """Runs calls. ``start`` never blocks; the end of each is reported through ``Done``, exactly once."""

    @property
    def is_able(self) -> bool:
        """Whether anything can be run here now."""
        return True

    @property
    def abandoned_count(self) -> int:
        """Return how many attempts were reported as over and run on all the same: they take up slots of the node."""
        return 0

    @abstractmethod
    def start(self, call: Call) -> None:
        """Begin an attempt. Its timeout is ``call.claim.spec.policies.timeout``, counted from now."""

    @abstractmethod
    def stop(self, call: Call, reason: str, *, lease_lost: bool = False) -> None:
        """Ask an attempt to stop: cancels what can be cancelled, and sets the run's events. It ends as cancelled."""

    @abstractmethod
    def close(self) -> None:
        """Stop everything that still runs and free what the executor holds; no call's end is reported any more."""
