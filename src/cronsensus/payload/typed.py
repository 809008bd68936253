"""Typed values: JSON in the store, and the types of a function's annotations at both ends.

::

    enqueue(date(2026, 1, 31)) ──▶ "2026-01-31" in the store ──▶ f(day: date) is given date(2026, 1, 31)

Only the annotations of the function decide, never stored data: no other class is ever built than those that they name.
If an annotation is no more than JSON (``int``, ``str``, ``list``, ``dict``, none at all), values pass unchanged and
unchecked. An annotation that cannot be resolved (a name that exists for type checkers only), or that msgspec does not
know (``Path``, a class of any kind), counts as none. A model of pydantic reads and writes its own JSON;
pydantic itself is not imported.
"""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from types import SimpleNamespace, UnionType
from typing import Any
from uuid import UUID

import msgspec
from msgspec import inspect as shapes

from cronsensus.errors import InvalidPayload
from cronsensus.payload.codec import dumps, loads

_CARRIED_BY_ANNOTATION = (datetime, date, time, timedelta, Decimal, UUID, Enum, bytes, bytearray, set, frozenset)
_TYPES_WITH_FIELDS = (shapes.DataclassType, shapes.StructType, shapes.TypedDictType, shapes.NamedTupleType)
_MORE_THAN_JSON = (
    *_TYPES_WITH_FIELDS, shapes.BytesType, shapes.ByteArrayType, shapes.MemoryViewType, shapes.DateTimeType,
    shapes.DateType, shapes.TimeType, shapes.TimeDeltaType, shapes.UUIDType, shapes.DecimalType, shapes.EnumType,
    shapes.SetType, shapes.FrozenSetType, shapes.TupleType, shapes.VarTupleType,
)  # fmt: skip
"""Types with values that JSON does not have."""
_MOST_CHARACTERS_SHOWN = 80
_RESULT = "the result"


class Types:
    """The conversion of a function's arguments and result to and from JSON.

    Annotations are resolved at first use: the class may be defined further down in its module.

    Example:
        >>> from datetime import date
        >>> def close(day: date, shop: str) -> date: ...
        >>> types = Types(close)
        >>> types.write_arguments((date(2026, 1, 31), "north"), {})
        (['2026-01-31', 'north'], {})
        >>> types.read_arguments(("2026-01-31", "north"), {})
        ((datetime.date(2026, 1, 31), 'north'), {})
        >>> types.read_result('"2026-02-28"')
        datetime.date(2026, 2, 28)
    """

    def __init__(self, function: Callable[..., Any] | None, run_parameter: str | None = None) -> None:
        """Read the annotations of ``function``, which is not called; ``None`` has none.

        ``run_parameter`` is the parameter that gets the ``Run``, which is no argument.
        """
        self._by_position: list[_AnnotatedValue] = []
        self._by_name: dict[str, _AnnotatedValue] = {}
        self._var_positional: _AnnotatedValue | None = None
        self._var_keyword: _AnnotatedValue | None = None
        self._result = _AnnotatedValue(_RESULT, inspect.Parameter.empty, {})
        try:
            signature = None if function is None else signature_of(function)
        except Exception:  # noqa: BLE001 - an object may compute its signature, and raise what it likes
            signature = None
        if signature is None:
            return
        names = getattr(inspect.unwrap(_unwrap_partials(function)), "__globals__", {})
        for parameter in signature.parameters.values():
            if parameter.name == run_parameter:
                continue
            annotated = _AnnotatedValue(
                parameter.name, parameter.annotation, names, may_be_none=parameter.default is None
            )
            match parameter.kind:
                case inspect.Parameter.VAR_POSITIONAL:
                    self._var_positional = annotated
                case inspect.Parameter.VAR_KEYWORD:
                    self._var_keyword = annotated
                case inspect.Parameter.KEYWORD_ONLY:
                    self._by_name[annotated.name] = annotated
                case _:
                    self._by_position.append(annotated)
                    self._by_name[annotated.name] = annotated
        self._result = _AnnotatedValue(_RESULT, signature.return_annotation, names)

    def write_arguments(
        self, args: tuple[Any, ...] | list[Any], kwargs: Mapping[str, Any], *, what: str = "arguments"
    ) -> tuple[list[Any], dict[str, Any]]:
        """Return arguments as the JSON values that a store keeps.

        Raises:
            InvalidPayload: an argument is neither JSON nor of its annotation; the message says what to write.
        """
        positional = [
            annotated.write(value, what)
            for annotated, value in zip(self._values_at_positions(len(args)), args, strict=True)
        ]
        named = {name: self._value_named(name).write(value, what) for name, value in kwargs.items()}
        try:
            dumps([positional, named], what=what)
        except InvalidPayload:
            for annotated, value in (
                *zip(self._values_at_positions(len(positional)), positional, strict=True),
                *((self._value_named(name), value) for name, value in named.items()),
            ):
                annotated.require_json(value, what)
            raise
        return positional, named

    def read_arguments(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments in the types of the function's annotations.

        Raises:
            InvalidPayload: what is stored does not fit an annotation.
        """
        if not args and not kwargs:
            return (), {}
        annotated_values = (
            self._by_position if len(args) <= len(self._by_position) else self._values_at_positions(len(args))
        )
        positional = tuple([annotated.read(value) for annotated, value in zip(annotated_values, args, strict=False)])
        return positional, {name: self._value_named(name).read(value) for name, value in kwargs.items()}

    def write_result(self, value: Any, *, what: str = "result") -> str | None:
        """Return a result as JSON text; ``None`` for ``None``.

        Raises:
            InvalidPayload: it is neither JSON nor of the return annotation, or too large.
        """
        if value is None:
            return None
        try:
            return dumps(self._result.write(value, what), what=what)
        except InvalidPayload:
            # The work is done, so a JSON result is kept, even if it does not fit the annotation.
            self._result.require_json(value, what)
            return dumps(value, what=what)

    def read_result(self, text: str | None) -> Any:
        """Return a result in the type of the return annotation; as plain JSON if it does not fit.

        Raises:
            StoreCorrupt: the text is not JSON.
        """
        if text is None:
            return None
        value = loads(text)
        try:
            return self._result.read(value)
        except InvalidPayload:
            return value

    def _values_at_positions(self, count: int) -> Iterator[_AnnotatedValue]:
        yield from self._by_position[:count]
        for index in range(len(self._by_position), count):
            yield self._var_positional or _AnnotatedValue(f"argument {index + 1}", inspect.Parameter.empty, {})

    def _value_named(self, name: str) -> _AnnotatedValue:
        return self._by_name.get(name) or self._var_keyword or _AnnotatedValue(name, inspect.Parameter.empty, {})


class _AnnotatedValue:
    """Converts the value of a parameter, or the result, to and from JSON, by its annotation."""

    __slots__ = ("_annotation", "_exceeds_json", "_globals", "_may_be_none", "_type", "_why_not_converted", "name")

    def __init__(self, name: str, annotation: Any, names: dict[str, Any], *, may_be_none: bool = False) -> None:
        self.name = name
        self._may_be_none = may_be_none
        self._annotation = annotation
        self._globals = names
        self._type: Any = None
        self._exceeds_json: bool | None = None if annotation is not inspect.Parameter.empty else False
        self._why_not_converted = "has no annotation"

    def write(self, value: Any, what: str) -> Any:
        """Return ``value`` as JSON values, if the annotation is more than JSON."""
        converts = self._needs_conversion()
        if value is None and not self._may_be_none and self._type is not None and not _allows_none(self._type):
            raise InvalidPayload(
                f"{what}: {self.name} is None, which does not fit its annotation {self._annotation_text()}; with an "
                "ORM, a new row's number is None before session.flush(). "
                f"If None is meant, annotate {self._annotation_text()} | None"
            )
        if not converts:
            return value
        try:
            plain = to_plain(value)
            written = to_plain(self._convert(plain))
        except (msgspec.ValidationError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise InvalidPayload(
                f"{what}: {self.name} is {_describe_value(value)}, which does not fit its annotation "
                f"{self._annotation_text()}: {error}"
            ) from error
        if lost := _find_lost_part(plain, written):
            raise InvalidPayload(
                f"{what}: {self.name} is {_describe_value(value)}, and {lost} of it would be lost, because its "
                f"annotation {self._annotation_text()} does not name it; annotate the class that is passed"
            )
        return written

    def read(self, value: Any) -> Any:
        """Return the value that ``write`` has written."""
        if not self._needs_conversion():
            return value
        try:
            return self._convert(value)
        except (msgspec.ValidationError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise InvalidPayload(
                f"{self.name} is stored as {_describe_value(value)}, which does not fit its annotation "
                f"{self._annotation_text()}: {error}"
            ) from error

    def _convert(self, plain: Any) -> Any:
        return msgspec.convert(plain, self._type, str_keys=True, dec_hook=_load_model)

    def require_json(self, value: Any, what: str) -> None:
        """Raise, with what to write, if ``value`` needs an annotation to be stored."""
        try:
            dumps(value, what=what, largest=sys.maxsize)
        except InvalidPayload as error:
            kind = type(value)
            if issubclass(kind, _CARRIED_BY_ANNOTATION) or hasattr(kind, "__dataclass_fields__") or _is_model(kind):
                is_result = self.name == _RESULT
                where = "-> " if is_result else f"{self.name}: "
                subject = what if is_result else f"{what}: {self.name}"
                message = f"{subject} is {_describe_value(value)}, which is not JSON, and {self._why_not_converted}"
                raise InvalidPayload(
                    f"{message}; write `{where}{kind.__name__}` in the function's signature, and it is stored as JSON "
                    "and comes back as what it was; or pass text"
                ) from error
            raise

    def _needs_conversion(self) -> bool:
        if self._exceeds_json is None:
            self._resolve_type()
        return bool(self._exceeds_json)

    def _resolve_type(self) -> None:
        try:
            holder = SimpleNamespace(__annotations__={"it": self._annotation})
            self._type = typing.get_type_hints(holder, globalns=self._globals, include_extras=True)["it"]
        except Exception as error:  # noqa: BLE001 - an annotation may be any expression, and raise anything
            # It is resolved again the next time: the name may be defined by then.
            self._why_not_converted = (
                f"its annotation {self._annotation_text()} cannot be resolved ({type(error).__name__})"
            )
            return
        try:
            self._exceeds_json = _names_more_than_json(shapes.type_info(self._type), set())
        except Exception as error:  # noqa: BLE001 - what msgspec, or a metaclass, makes of a class
            self._exceeds_json = False
            self._why_not_converted = (
                f"its annotation {self._annotation_text()} cannot be carried by JSON ({str(error)[:200]})"
            )
        else:
            self._why_not_converted = f"its annotation is {self._annotation_text()}"

    def _annotation_text(self) -> str:
        annotation = self._annotation
        text = annotation if isinstance(annotation, str) else getattr(annotation, "__forward_arg__", None)
        if not isinstance(text, str):
            text = annotation.__name__ if isinstance(annotation, type) else str(annotation)
        return text[:_MOST_CHARACTERS_SHOWN]


def _allows_none(annotation: Any) -> bool:
    """Whether a resolved annotation allows ``None``; an annotation that restricts nothing does."""
    if typing.get_origin(annotation) is typing.Annotated:
        return _allows_none(typing.get_args(annotation)[0])
    if typing.get_origin(annotation) in {typing.Union, UnionType}:
        return any(map(_allows_none, typing.get_args(annotation)))
    if typing.get_origin(annotation) is typing.Literal:
        return None in typing.get_args(annotation)
    return not (isinstance(annotation, type) or typing.get_origin(annotation) is not None) or annotation in {
        type(None),
        object,
    }


def to_plain(value: Any) -> Any:
    """Return a value as JSON values.

    Raises:
        TypeError: its class is not known.
        ValueError: a model would come back different.
    """
    return msgspec.to_builtins(value, str_keys=True, enc_hook=_dump_model)


def _is_model(kind: Any) -> bool:
    """Whether this is a class of models of pydantic, version 2."""
    return isinstance(kind, type) and hasattr(kind, "model_validate_json") and hasattr(kind, "model_dump_json")


def _dump_model(value: Any) -> Any:
    """Return the JSON of a model of pydantic.

    Raises:
        ValueError: it would come back different.
        TypeError: it is no model.
    """
    kind: Any = type(value)
    if not _is_model(kind):
        raise TypeError(f"Encoding objects of type {kind.__name__} is unsupported")
    text = value.model_dump_json(round_trip=True, by_alias=True)
    try:
        read_back = _load_model(kind, msgspec.json.decode(text))
    except ValueError as error:
        raise ValueError(f"a {kind.__name__} cannot be read from its own JSON: {error}") from None
    if read_back != value:
        raise ValueError(
            f"a {kind.__name__} does not come back from its own JSON as it was; a SecretStr, a private or an excluded "
            "field is not in it: pass that as an argument of its own"
        )
    return msgspec.json.decode(text)


def _load_model(kind: Any, plain: Any) -> Any:
    if not _is_model(kind):
        raise TypeError(f"nothing is known of {kind.__name__}")
    try:
        return kind.model_validate_json(msgspec.json.encode(plain))
    except ValueError as error:
        errors = getattr(error, "errors", None)
        if errors is None:
            raise
        # On a line, and without the values, which may be secrets.
        where = [
            (".".join(map(str, problem["loc"])), problem["msg"])
            for problem in errors(include_url=False, include_input=False)
        ]
        raise ValueError("; ".join(f"{name}: {text}" if name else text for name, text in where[:5])) from None


def _names_more_than_json(shape: shapes.Type, seen: set[Any]) -> bool:
    """Return whether values of this type differ from those of JSON.

    Raises:
        TypeError: a class in it is not known.
    """
    if isinstance(shape, shapes.CustomType) and _is_model(shape.cls):
        return True
    if isinstance(shape, shapes.CustomType) and shape.cls is not object:
        raise TypeError(f"nothing is known of {shape.cls.__name__}")
    exceeds_json = isinstance(shape, _MORE_THAN_JSON)
    if isinstance(shape, _TYPES_WITH_FIELDS):
        if shape.cls in seen:
            return True
        seen.add(shape.cls)
    elif isinstance(shape, shapes.DictType):
        exceeds_json = not isinstance(shape.key_type, (shapes.AnyType, shapes.StrType))
    for part in _inner_types(shape):
        exceeds_json |= _names_more_than_json(part, seen)
    return exceeds_json


def _inner_types(shape: shapes.Type) -> list[shapes.Type]:
    match shape:
        case shapes.Metadata():
            return [shape.type]
        case shapes.UnionType():
            return list(shape.types)
        case shapes.DictType():
            return [shape.key_type, shape.value_type]
        case shapes.TupleType():
            return list(shape.item_types)
        case shapes.ListType() | shapes.SetType() | shapes.FrozenSetType() | shapes.VarTupleType():
            return [shape.item_type]
        case shapes.DataclassType() | shapes.StructType() | shapes.TypedDictType() | shapes.NamedTupleType():
            return [field.type for field in shape.fields]
        case _:
            return []


def _find_lost_part(before: Any, after: Any, path: str = "") -> str | None:
    """Return the path to a part that is lost; ``None``: nothing is lost."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name, value in before.items():
            if name not in after:
                return f"{path}.{name}"
            if (lost := _find_lost_part(value, after[name], f"{path}.{name}")) is not None:
                return lost
    if isinstance(before, (list, tuple)) and isinstance(after, (list, tuple)) and len(before) == len(after):
        for index, (before_item, after_item) in enumerate(zip(before, after, strict=True)):
            if (lost := _find_lost_part(before_item, after_item, f"{path}[{index}]")) is not None:
                return lost
    return None


def _describe_value(value: Any) -> str:
    kind = type(value)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    if kind in {str, int, float, bool}:
        text = repr(value) if kind is not int or abs(value) < 10**40 else "…"
        return text if len(text) <= _MOST_CHARACTERS_SHOWN else text[:_MOST_CHARACTERS_SHOWN] + "…"
    return f"a {name}"


def signature_of(function: Callable[..., Any], *, follow_wrapped: bool = True) -> inspect.Signature:
    """Return a signature without evaluating annotations: some exist for type checkers only.

    Raises:
        ValueError, TypeError: Python does not know it. (An object that computes its own signature may raise anything.)
    """
    if sys.version_info >= (3, 14):
        import annotationlib

        return inspect.signature(
            function, follow_wrapped=follow_wrapped, annotation_format=annotationlib.Format.FORWARDREF
        )
    return inspect.signature(function, follow_wrapped=follow_wrapped)


def _unwrap_partials(function: Any) -> Any:
    import functools

    while isinstance(function, functools.partial):
        function = function.func
    return function


UNTYPED = Types(None)
"""For functions that are not known here: values are JSON, and come back as JSON."""
