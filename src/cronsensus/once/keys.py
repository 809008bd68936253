"""Which key a call has: a template over its arguments, checked where it is written. Floor 5.

A key that says less than it seems to is worse than none: two payments under one key are one payment. So ``None`` and
objects whose text is their address have no place in a key.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from string import Formatter
from typing import Any

from cronsensus.errors import InvalidOption
from cronsensus.model.occurrence import check_key

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_ONLY)


class KeyOf:
    """Gives the key of a call.

    Example:
        >>> def charge(order_id: int, amount: float) -> None: ...
        >>> key_of = KeyOf("charge:{order_id}", "charge", inspect.signature(charge))
        >>> key_of((7, 9.99), {})
        'charge:7'
    """

    def __init__(self, key: str | Callable[..., str], name: str, signature: inspect.Signature | None) -> None:
        """Check ``key`` against what the function takes.

        Args:
            key: a template such as ``"charge:{order_id}"``, or a function that is called with the same arguments.
            name: of the function, for people.
            signature: what callers pass; ``None`` when Python cannot tell.

        Raises:
            InvalidOption: no template, or one that names an argument that the function does not have.
        """
        self._key = key
        self._name = name
        self._signature = signature
        self._fields: tuple[str, ...] = ()
        if not callable(key):
            self._fields = self._read(key)

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Return the key of a call with these arguments.

        Raises:
            TypeError: the function cannot be called with them.
            InvalidOption: what comes of them can be no key.
        """
        if callable(self._key):
            return check_key(self._key(*args, **kwargs))
        given = self._arguments(args, kwargs)
        for field in self._fields:
            self._require_said(field, given)
        try:
            key = Formatter().vformat(self._key, (), given)
        except (KeyError, AttributeError, IndexError, TypeError, ValueError) as error:
            raise InvalidOption(
                f"key={self._key!r} of {self._name}() cannot be filled in from this call: "
                f"{type(error).__name__}: {error}"
            ) from error
        return check_key(key)

    def _read(self, key: Any) -> tuple[str, ...]:
        if not isinstance(key, str):
            raise InvalidOption(
                f"key={key!r}: write a template such as 'charge:{{order_id}}', or a function of the call"
            )
        try:
            fields = tuple(field for _, field, _, _ in Formatter().parse(key) if field is not None)
        except ValueError as error:
            raise InvalidOption(
                f"key={key!r} is no template: {error}; a brace that is text is written twice"
            ) from error
        if not fields:
            check_key(key)
        for field in fields:
            self._require_argument(key, _first(field))
        return fields

    def _require_argument(self, key: str, named: str) -> None:
        from difflib import get_close_matches

        if not named or named.isdigit():
            raise InvalidOption(f"key={key!r}: name the argument, as in '{{order_id}}'")
        if self._signature is None:
            return
        parameters = self._signature.parameters.values()
        known = [each.name for each in parameters if each.kind in _NAMED]
        if named in known or any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters):
            return
        close = get_close_matches(named, known, n=1)
        has = f"it has {', '.join(known)}" if known else "it has none"
        hint = f"; did you mean {{{close[0]}}}?" if close else ""
        raise InvalidOption(f"key={key!r}: {self._name}() has no argument {named!r}, {has}{hint}")

    def _arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        if self._signature is None:
            return kwargs
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = dict(bound.arguments)
        for each in self._signature.parameters.values():
            if each.kind is inspect.Parameter.VAR_KEYWORD:
                given.update(given.pop(each.name))
        return given

    def _require_said(self, field: str, given: dict[str, Any]) -> None:
        try:
            value, _ = Formatter().get_field(field, (), given)
        except (KeyError, AttributeError, IndexError, TypeError):
            return  # told where the template is filled in
        if value is None:
            raise InvalidOption(
                f"key={self._key!r} of {self._name}(): {field} is None here, and all such calls would be one; "
                "give it a value, or take it out of the key"
            )
        kind = type(value)
        if all(getattr(kind, text) is getattr(object, text) for text in ("__str__", "__repr__", "__format__")):
            raise InvalidOption(
                f"key={self._key!r} of {self._name}(): {field} is of the type {kind.__qualname__}, which has no "
                f"text of its own, so no two calls would have the same key; name what tells it apart, "
                f"as in {{{field}.id}}"
            )


def _first(field: str) -> str:
    for end, character in enumerate(field):
        if character in ".[":
            return field[:end]
    return field
