"""A form of a function's parameters, from its type hints: what is written into it becomes arguments by name."""

from __future__ import annotations

import enum
import inspect
import json
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from cronsensus.declared.functions import inspect_function
from cronsensus.errors import InvalidOption
from cronsensus.model.job import JobSpec
from cronsensus.payload.codec import dumps

Kind = Literal["text", "number", "choice", "json"]
PREFIX = "arg."
_NAMED_KINDS = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter that can be written into a form.

    Attributes:
        kind: ``text`` is taken as it is, ``number`` and ``json`` as JSON; ``choice`` is one of ``choices``.
        default: what the function takes if the field is left empty, as text; ``None``: the field must be filled in.
    """

    name: str
    kind: Kind
    default: str | None
    choices: tuple[str, ...] = ()


def parameters_of(function: Callable[..., Any], *, executor: str) -> list[Parameter] | None:
    """Return the parameters of a job's function, without its ``Run``; ``None``: a form cannot have all of them."""
    signature = inspect_function(function, name="job", executor=executor).signature
    if signature is None or any(parameter.kind not in _NAMED_KINDS for parameter in signature.parameters.values()):
        return None
    try:
        hints = typing.get_type_hints(function)
    except Exception:  # noqa: BLE001 - an annotation may be of a type checker only, and evaluating it raises what it likes
        hints = {}
    return [_parameter(parameter, hints.get(parameter.name)) for parameter in signature.parameters.values()]


def own_arguments(parameters: list[Parameter], spec: JobSpec) -> dict[str, str]:
    """Return what a job's definition passes, as texts of the fields."""
    by_name = dict(zip((parameter.name for parameter in parameters), spec.args, strict=False)) | spec.kwargs
    kinds = {parameter.name: parameter.kind for parameter in parameters}
    return {
        PREFIX + name: value if kinds.get(name) == "text" and isinstance(value, str) else _text(value)
        for name, value in by_name.items()
    }


def read_arguments(parameters: list[Parameter], fields: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments from the fields; an empty field is left out.

    Raises:
        InvalidOption: a required argument is missing, or a value is not what its field takes.
    """
    arguments = {}
    for parameter in parameters:
        text = fields.get(PREFIX + parameter.name, "")
        if parameter.kind != "text":
            text = text.strip()
        if not text:
            if parameter.default is None and parameter.kind != "text":
                raise InvalidOption(f"{parameter.name!r} is missing; the function has no default for it")
            if parameter.default is None:
                arguments[parameter.name] = ""
            continue
        arguments[parameter.name] = _value(parameter, text)
    return arguments


def _value(parameter: Parameter, text: str) -> Any:
    if parameter.kind == "text":
        return text
    if parameter.kind == "choice" and text in parameter.choices:
        return json.loads(text)
    try:
        value = json.loads(text)
    except ValueError:
        value = _NOT_JSON
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is _NOT_JSON or parameter.kind == "choice" or (parameter.kind == "number" and not is_number):
        expected = " or ".join(parameter.choices) or (
            "a number" if parameter.kind == "number" else "JSON, such as [1, 2]"
        )
        raise InvalidOption(f"{parameter.name!r} takes {expected}, not {text[:60]!r}")
    return value


_NOT_JSON = object()


def _parameter(parameter: inspect.Parameter, hint: Any) -> Parameter:
    default = None if parameter.default is inspect.Parameter.empty else _text(parameter.default)
    choices = _choices(hint)
    if choices is not None:
        return Parameter(parameter.name, "choice", default, choices)
    kind: Kind = "text" if hint is str else "number" if hint in {int, float} else "json"
    return Parameter(parameter.name, kind, default)


def _choices(hint: Any) -> tuple[str, ...] | None:
    """Return the values of a hint that allows only a few, as JSON; ``None``: it allows any."""
    if hint is bool:
        return ("true", "false")
    if typing.get_origin(hint) is Literal:
        return tuple(_text(value) for value in typing.get_args(hint))
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return tuple(_text(member.value) for member in hint)
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        choices_of_options = [_choices(option) for option in typing.get_args(hint) if option is not type(None)]
        if len(choices_of_options) == 1 and choices_of_options[0] is not None:
            return (*choices_of_options[0], "null")
    return None


def _text(value: Any) -> str:
    try:
        return dumps(value.value if isinstance(value, enum.Enum) else value) or "null"
    except Exception:  # noqa: BLE001 - a default is shown only; what is no JSON is shown as Python does
        return repr(value)[:60]
