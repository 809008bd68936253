"""The types of the decorators of guarded functions."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from cronsensus.node.async_transaction import AsyncConnection
    from cronsensus.once.once import Once

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Guarded(Protocol):
    """A decorator that makes a ``Once`` of a function."""

    def __call__(self, function: Callable[P, R]) -> Once[P, R]:
        """Guard ``function``."""


class GuardedOrSkipped(Protocol):
    """The same where a call may be skipped, and returns ``None`` then."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, T]]) -> Once[P, Coroutine[Any, Any, T | None]]: ...
    @overload
    def __call__(self, function: Callable[P, R]) -> Once[P, R | None]: ...


class GuardedInTransaction(Protocol):
    """The same for a function that gets a connection first, which its callers do not pass."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[AsyncConnection, P], Coroutine[Any, Any, T]]
    ) -> Once[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Connection, P], R]) -> Once[P, R]: ...


class GuardedOrSkippedInTransaction(Protocol):
    """The same where a call may be skipped, for a function that gets a connection first."""

    @overload
    def __call__(
        self, function: Callable[Concatenate[AsyncConnection, P], Coroutine[Any, Any, T]]
    ) -> Once[P, Coroutine[Any, Any, T | None]]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Connection, P], R]) -> Once[P, R | None]: ...
