"""Inspect a user's function: its kind, its place, its parameters.

Nothing is called here. A function is refused, with what to write instead, when no executor could run it.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cronsensus.errors import InvalidOption, UnsupportedFunction
from cronsensus.model.job import Executor, check_choice
from cronsensus.node.registered import Registered
from cronsensus.node.run import BaseRun
from cronsensus.payload.typed import signature_of

_OFTEN_THE_RUN = ("run", "ctx", "context", "self")
"""Names of a parameter that is probably meant for the ``Run``; ``self`` is that of a bound task of Celery."""
_ONLY_NAMED = re.compile(r"(?:Optional\[)?(?:[\w.]+\.)?Run\]?(?:\s*\|\s*None)?|None\s*\|\s*(?:[\w.]+\.)?Run")
"""Spellings of ``Run`` in an annotation that cannot be evaluated, as after an import under ``TYPE_CHECKING``."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function that a job may call.

    Attributes:
        place: where it is defined, as ``file:line``.
        signature: without the parameter for the ``Run``; ``None``: Python does not know it.
    """

    name: str
    registered: Registered
    place: str
    signature: inspect.Signature | None

    def bind(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, hint: str = ""
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments as JSON values, as a store keeps them, without the ``Run``.

        Raises:
            InvalidPayload: an argument is neither JSON nor of its annotation; or they are too large.
            InvalidOption: the function cannot be called with them; the message says what is missing or too much.
        """
        if self.signature is not None:
            self._require_fitting(args, kwargs, hint)
        positional, named = self.registered.types.write_arguments(args, kwargs, what=f"arguments of {self.name!r}")
        return tuple(positional), named

    def require_item(self, kwargs: Mapping[str, Any]) -> None:
        """Raise unless the function can be called with an item by position, and ``kwargs``.

        Raises:
            InvalidOption: it cannot.
        """
        if self.signature is not None:
            self._require_fitting(
                (None,), kwargs, "; it is called with one item by position, and what kwargs={…} gives"
            )

    def _require_fitting(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], hint: str) -> None:
        assert self.signature is not None  # noqa: S101 - for the type checker
        run = self.registered.run_parameter
        if run in kwargs:
            raise InvalidOption(f"{self.name!r} gets its {run!r} from the node that runs it; leave it out")
        try:
            self.signature.bind(*args, **kwargs)
        except TypeError as error:
            hint = self._wanted_run(args, kwargs) or hint or f"; it takes {self.signature}"
            raise InvalidOption(f"{self.name!r} ({self.place}) cannot be called like that: {error}{hint}") from None

    def _wanted_run(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        """Return a hint if a parameter without a value was perhaps meant for the ``Run``."""
        assert self.signature is not None  # noqa: S101 - for the type checker
        if self.registered.run_parameter is not None:
            return ""
        for index, (name, parameter) in enumerate(self.signature.parameters.items()):
            empty = parameter.annotation is inspect.Parameter.empty and parameter.default is inspect.Parameter.empty
            if name in _OFTEN_THE_RUN and empty and index >= len(args) and name not in kwargs:
                return f"; if that is to be the run, annotate it: `{name}: Run`, after `from cronsensus import Run`"
        return ""


def inspect_function(function: Callable[..., Any], *, name: str | None, executor: str | None) -> Function:
    """Return what an executor needs to know about ``function``.

    Args:
        function: not called.
        name: under which it is registered. Defaults to the function's own.
        executor: ``"async"``, ``"thread"`` or ``"process"``. Defaults to ``"async"`` for an async function, else
            ``"thread"``.

    Raises:
        UnsupportedFunction: no function, a generator, or a function that this executor cannot run.
        InvalidOption: an unknown executor, or no usable name.
    """
    if isinstance(function, type) or not _is_callable(function):
        raise UnsupportedFunction(
            f"{function!r} is not a function; put the decorator right above `def`, below @staticmethod if there is one"
        )
    plain = inspect.unwrap(_inner(function))
    place = _place(plain)
    if inspect.isgeneratorfunction(plain) or inspect.isasyncgenfunction(plain):
        raise UnsupportedFunction(
            f"{_called(function)} ({place}) is a generator, which does nothing when called; write no `yield`"
        )
    name = _called(function) if name is None else name
    if name == "<lambda>":
        raise UnsupportedFunction(f"the lambda at {place} has no name; give the job one: name=…")
    parameters = _parameters(function)
    run, before_run = _run_parameter(function, parameters, place)
    without_run = None if parameters is None else [parameter for parameter in parameters if parameter.name != run]
    return Function(
        name=name,
        registered=Registered.from_function(name, function, _executor(function, executor, place), run, before_run),
        place=place,
        signature=None if without_run is None else inspect.Signature(without_run),
    )


def refuse_method(function: Function) -> None:
    """Refuse a method that needs an object: a node has only the function.

    Raises:
        UnsupportedFunction: it is such a method; the message says what to write.
    """
    first_parameter = (
        next(iter(function.signature.parameters.values()), None) if function.signature is not None else None
    )
    class_name = getattr(inspect.unwrap(_inner(function.registered.function)), "__qualname__", "").rpartition(".")[0]
    if (
        first_parameter is None
        or first_parameter.name not in {"self", "cls"}
        or not class_name
        or class_name.endswith("<locals>")
    ):
        return
    if first_parameter.annotation is inspect.Parameter.empty:
        raise UnsupportedFunction(
            f"{function.name!r} ({function.place}) is a method of {class_name.rpartition('.')[2]}, and a node has no "
            "object to call it with; write a function at the top level of the module that makes the object and calls "
            "it, or put @staticmethod above the decorator"
        )


def run_parameter_of(function: Callable[..., Any]) -> str | None:
    """Return the name of the parameter that wants the ``Run``.

    Raises:
        UnsupportedFunction: it cannot be passed by name.
    """
    return _run_parameter(function, _parameters(function), _place(inspect.unwrap(_inner(function))))[0]


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether a call of ``function`` returns a coroutine."""
    inner = _inner(function)
    return inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(getattr(inner, "__call__", None))  # noqa: B004


def mark_async(wrapper: object, function: Callable[..., Any]) -> None:
    """Mark a wrapper of an async function as async: frameworks check that before a call."""
    if not is_async(function):
        return
    if sys.version_info >= (3, 12):
        inspect.markcoroutinefunction(wrapper)
    else:
        import asyncio

        wrapper._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]  # noqa: SLF001


def _is_callable(function: object) -> bool:
    return callable(function)


def _inner(function: Callable[..., Any]) -> Callable[..., Any]:
    while isinstance(function, functools.partial):
        function = function.func
    return function


def _called(function: Callable[..., Any]) -> str:
    name = getattr(function, "__name__", None)
    if not isinstance(name, str):
        raise UnsupportedFunction(f"{function!r} has no name; give the job one: name=…")
    return name


def _place(function: Callable[..., Any]) -> str:
    # A function of an integration that calls a user's function (a task of Django's) names the user's.
    function = getattr(function, "stands_for", function)
    code = getattr(function, "__code__", None) or getattr(getattr(type(function), "__call__", None), "__code__", None)  # noqa: B004
    return f"{code.co_filename}:{code.co_firstlineno}" if code is not None else repr(function)


def _executor(function: Callable[..., Any], executor: str | None, place: str) -> Executor:
    if executor is None:
        return "async" if is_async(function) else "thread"
    check_choice(executor, Executor, what="executor")
    if executor == "async" and not is_async(function):
        raise UnsupportedFunction(
            f"{_called(function)} ({place}) is not async, so it would block the event loop; write `async def`, or use "
            'executor="thread"'
        )
    if executor == "process":
        from cronsensus.node.executors.importing import require_importable

        require_importable(function)
    return typing.cast("Executor", executor)


# --- the parameter for the Run ---------------------------------------------------------------------------------------


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter] | None:
    try:
        signature = signature_of(function)
    except (ValueError, TypeError):
        return None
    return list(signature.parameters.values())


def _wants_run(function: Callable[..., Any], parameter: inspect.Parameter) -> bool:
    if parameter.annotation is inspect.Parameter.empty:
        return False
    return _is_run(parameter.annotation, getattr(inspect.unwrap(_inner(function)), "__globals__", {}))


def _is_run(annotation: object, names: dict[str, Any]) -> bool:
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__forward_arg__", None)
    if isinstance(text, str):
        try:
            # What typing.get_type_hints does, but each annotation alone: a name that exists only for type checkers must
            # not hide the others.
            return _is_run(eval(text, names), names)  # noqa: S307 - the application's own code
        except Exception:  # noqa: BLE001 - an annotation may be any expression, and raise anything
            return _ONLY_NAMED.fullmatch(text.strip().strip("'\"")) is not None
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return any(_is_run(part, names) for part in typing.get_args(annotation))
    if typing.get_origin(annotation) is typing.Annotated:
        return _is_run(typing.get_args(annotation)[0], names)
    return isinstance(annotation, type) and issubclass(annotation, BaseRun)


def _run_parameter(
    function: Callable[..., Any], parameters: list[inspect.Parameter] | None, place: str
) -> tuple[str | None, int]:
    """Return the name of the parameter that wants the ``Run``, and how many positions lie before it."""
    name, before = None, sys.maxsize
    for index, parameter in enumerate(parameters or ()):
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL and before != sys.maxsize:
            raise UnsupportedFunction(
                f"{_called(function)} ({place}): the Run is passed by name, so it cannot stand before "
                f"*{parameter.name}; write `*{parameter.name}, {name}: Run`"
            )
        if not _wants_run(function, parameter):
            continue
        by_name = parameter.kind is inspect.Parameter.KEYWORD_ONLY
        if name is not None or not (by_name or parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD):
            raise UnsupportedFunction(
                f"{_called(function)} ({place}): the Run is passed by name to one parameter; write `run: Run` once, "
                "and not before a /"
            )
        name, before = parameter.name, sys.maxsize if by_name else index
    return name, before
