"""What the node asks of an executor."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from cronsensus.model.ending import Ending
from cronsensus.model.job import Executor as ExecutorName
from cronsensus.model.occurrence import Claim
from cronsensus.node.items import Batch
from cronsensus.node.run import Run
from cronsensus.node.upstreams import UpstreamResults
from cronsensus.typed import UNTYPED, Types


@dataclass(frozen=True, slots=True)
class Registered:
    """A function that this node's own code registered under a name.

    Attributes:
        run_parameter: name of the parameter annotated with ``Run``, if there is one.
        before_run: how many arguments may go by position before it.
        types: what the function's annotations make of JSON.
        batch: how its items come to be, if it is called once for each item of a list.
        upstreams: how it reads what the jobs returned that its own comes after.
    """

    name: str
    function: Callable[..., Any]
    executor: ExecutorName
    run_parameter: str | None = None
    before_run: int = sys.maxsize
    types: Types = field(default=UNTYPED, repr=False, compare=False)
    batch: Batch | None = field(default=None, repr=False, compare=False)
    upstreams: UpstreamResults | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of(
        cls, name: str, function: Callable[..., Any], executor: ExecutorName, run_parameter: str | None, before_run: int
    ) -> Registered:
        """Register a function with what its annotations say."""
        return cls(name, function, executor, run_parameter, before_run, Types(function, run_parameter))

    @property
    def returning(self) -> Callable[..., Any] | None:
        """What returns the result of a nominal time: of a batch what collects, if anything does."""
        return self.function if self.batch is None else self.batch.collect

    @property
    def result_types(self) -> Types:
        """What the annotations of that make of JSON."""
        return self.types if self.batch is None else Types(self.batch.collect)


class Call(Struct, frozen=True):
    """One attempt, ready to run."""

    claim: Claim
    run: Run
    registered: Registered


def with_run(
    run: Run, parameter: str | None, before: int, args: tuple[Any, ...], kwargs: dict[str, Any]
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
    def able(self) -> bool:
        """Whether anything can be run here now."""
        return True

    @property
    def abandoned(self) -> int:
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
