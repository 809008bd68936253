"""The functions that a node can run, as its program's code declares them."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

from cronsensus.model.job import Executor
from cronsensus.payload.typed import UNTYPED, Types

P = TypeVar("P", bound="Part")


class Part:
    """What a declaration leaves with its function for a feature to find: ``Registered.part_of``."""

    passes_arguments: ClassVar[bool] = False
    """Whether the feature passes arguments to each call, so that a schedule without them is complete."""

    def returning(self, function: Callable[..., Any] | None) -> Callable[..., Any] | None:
        """Return what returns the result of a nominal time, if that is not the job's function; ``None``: nothing."""
        return function


@dataclass(frozen=True, slots=True)
class Registered:
    """A function that this node's own code registered under a name.

    Attributes:
        run_parameter: name of the parameter annotated with ``Run``, if there is one.
        before_run: how many arguments may go by position before it.
        types: what the function's annotations make of JSON.
        parts: what its declaration left for features.
    """

    name: str
    function: Callable[..., Any]
    executor: Executor
    run_parameter: str | None = None
    before_run: int = sys.maxsize
    types: Types = field(default=UNTYPED, repr=False, compare=False)
    parts: tuple[Part, ...] = field(default=(), repr=False, compare=False)

    @classmethod
    def from_function(
        cls, name: str, function: Callable[..., Any], executor: Executor, run_parameter: str | None, before_run: int
    ) -> Registered:
        """Register a function by its annotations."""
        return cls(name, function, executor, run_parameter, before_run, Types(function, run_parameter))

    def part_of(self, kind: type[P]) -> P | None:
        """Return what its declaration left for a feature, if it left anything."""
        return next((part for part in self.parts if isinstance(part, kind)), None)

    def with_part(self, part: Part) -> Registered:
        """Return it with what a declaration leaves for a feature."""
        return dataclasses.replace(self, parts=(*self.parts, part))

    @property
    def gets_arguments(self) -> bool:
        """Whether a feature passes arguments to each of its calls."""
        return any(part.passes_arguments for part in self.parts)

    @property
    def returning(self) -> Callable[..., Any] | None:
        """What returns the result of a nominal time; ``None``: nothing does."""
        function: Callable[..., Any] | None = self.function
        for part in self.parts:
            function = part.returning(function)
        return function

    @property
    def result_types(self) -> Types:
        """What the annotations of that make of JSON."""
        returning = self.returning
        return self.types if returning is self.function else Types(returning)
