"""The key of a call: a template over its arguments, checked where it is written.

An ambiguous key is worse than none: two payments under the same key are a single payment. So different values never
give the same text, and a value without a text of its own is refused.

::

    charge:{order_id}        7           charge:7               plain, if it can be read back in only one way
    {tenant}:{order}         a:b, c      ~2:"a:b":"c"           each value quoted, if it cannot
    anything beyond 400 characters       ~2#<hash>:<its beginning>

``~2`` is the version of this form.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from string import Formatter
from typing import Any

from cronsensus.errors import InvalidOption
from cronsensus.model.occurrence import LONGEST_KEY, SCHEDULED_KEY_PREFIX, check_key

_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_ONLY)
_VERSION = "~2"
_QUOTED, _HASHED = f"{_VERSION}:", f"{_VERSION}#"
_SHOWN = 80
"""Characters of a hashed key that people see."""
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_KINDS = ((bool, "b"), (int, "i"), (float, "f"), ((list, tuple, dict), "c"))
_FORMATTER = Formatter()


@dataclass(frozen=True, slots=True)
class Key:
    """The key of a call.

    Attributes:
        text: as stored.
        kinds: the types of the values in it, a letter each: ``1``, ``"1"`` and ``True`` have the same spelling, but are
            not the same.
        fields: the names of the values.
    """

    text: str
    kinds: str = ""
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Part:
    """A field of a template, and the text before it."""

    before: str
    field: str
    spec: str
    conversion: str | None


class KeyOf:
    """Returns the key of a call.

    Example:
        >>> def charge(order_id: int, amount: float) -> None: ...
        >>> key_of = KeyOf("charge:{order_id}", "charge", inspect.signature(charge))
        >>> key_of((7, 9.99), {}).text
        'charge:7'
    """

    def __init__(self, key: str | Callable[..., str], name: str, signature: inspect.Signature | None) -> None:
        """Check ``key`` against the function's parameters.

        Args:
            key: a template such as ``"charge:{order_id}"``, or a function that is called with the same arguments.
            name: of the function, for messages.
            signature: the callers' parameters; ``None`` if Python cannot tell.

        Raises:
            InvalidOption: it is no template, or names an argument that the function does not have.
        """
        self._key = key
        self._name = name
        self._signature = signature
        self._parts: tuple[_Part, ...] = ()
        self._end = ""
        if not callable(key):
            self._read_path(key)

    def __call__(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], bound_arguments: dict[str, Any] | None = None
    ) -> Key:
        """Return the key of a call with these arguments; ``given``: as ``bind_arguments`` returned them.

        Raises:
            TypeError: the function cannot be called with them.
            InvalidOption: the resulting text is no valid key.
        """
        if callable(self._key):
            return self._spell_own(self._key(*args, **kwargs))
        bound_arguments = self.bind_arguments(args, kwargs) if bound_arguments is None else bound_arguments
        try:
            texts, kinds = self._fill_in(bound_arguments)
        except (KeyError, AttributeError, IndexError, TypeError, ValueError, RecursionError) as error:
            if isinstance(error, InvalidOption):
                raise
            raise InvalidOption(
                f"key={self._key!r} of {self._name}() cannot be filled in from this call: "
                f"{type(error).__name__}: {error}"
            ) from error
        plain = self._join_texts(texts)
        text = plain
        if not self._can_be_read_back(texts) or not _is_free(plain):
            text = _QUOTED + self._join_texts([json.dumps(text, ensure_ascii=False) for text in texts])
        return Key(check_key(_shorten_key(text, plain)), kinds, tuple(part.field for part in self._parts))

    def bind_arguments(self, args: tuple[Any, ...], kwargs: dict[str, Any], *, partly: bool = False) -> dict[str, Any]:
        """Return a call's arguments by name, with the defaults; ``partly``: some may be missing.

        Raises:
            TypeError: the function cannot be called with them.
        """
        if self._signature is None:
            return kwargs
        bound = (self._signature.bind_partial if partly else self._signature.bind)(*args, **kwargs)
        bound.apply_defaults()
        arguments = dict(bound.arguments)
        for parameter in self._signature.parameters.values():
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                arguments.update(arguments.pop(parameter.name))
        return arguments

    # --- the template -------------------------------------------------------------------------------------------------

    def _read_path(self, key: Any) -> None:
        if not isinstance(key, str):
            raise InvalidOption(
                f"key={key!r}: write a template such as 'charge:{{order_id}}', or a function of the call"
            )
        try:
            parsed = list(_FORMATTER.parse(key))
        except ValueError as error:
            raise InvalidOption(
                f"key={key!r} is no template: {error}; a brace that is text is written twice"
            ) from error
        parts: list[_Part] = []
        text = ""
        for literal, field, spec, conversion in parsed:
            text += literal
            if field is not None:
                require_argument(f"key={key!r}", field, self._name, self._signature)
                parts.append(_Part(text, field, spec or "", conversion))
                text = ""
        self._parts, self._end = tuple(parts), text
        if not parts and (not text or text.startswith(SCHEDULED_KEY_PREFIX)):
            check_key(text)

    def _join_texts(self, texts: list[str]) -> str:
        return "".join(part.before + text for part, text in zip(self._parts, texts, strict=True)) + self._end

    def _can_be_read_back(self, texts: list[str]) -> bool:
        """Whether a joined text can be split into the values in only one way."""
        return all(
            following.before and following.before[0] not in text
            for text, following in zip(texts, self._parts[1:], strict=False)
        )

    def _fill_in(self, arguments: dict[str, Any]) -> tuple[list[str], str]:
        texts: list[str] = []
        kinds = ""
        for part in self._parts:
            value, _ = _FORMATTER.get_field(part.field, (), arguments)
            self._require_said(part, value)
            spec = _FORMATTER.vformat(part.spec, (), arguments) if part.spec else ""
            kind = next((letter for types, letter in _KINDS if isinstance(value, types)), "s")
            if kind == "c" and not _has_own_text(value):
                spelled: Any = self._spell_container(value, part.field)
            else:
                spelled = value
                kind = "s" if part.conversion in {"r", "a"} else kind
            if spelled is value or part.conversion == "a":
                spelled = _FORMATTER.convert_field(spelled, part.conversion)
            text = format(spelled, spec)
            if not isinstance(value, str) and _ADDRESS.search(text):
                raise self._no_text(part.field, value)
            if not text:
                raise self._all_alike(part.field, "an empty text")
            texts.append(text)
            kinds += kind
        return texts, kinds

    def _require_said(self, part: _Part, value: Any) -> None:
        if part.conversion not in {"r", "a"}:
            if value is None:
                raise self._all_alike(part.field, "None")
            if isinstance(value, str) and not value:
                raise self._all_alike(part.field, "an empty text")
            if isinstance(value, float) and math.isnan(value):
                raise self._all_alike(part.field, "not a number (nan)")
        if isinstance(value, set | frozenset):
            raise InvalidOption(
                f"key={self._key!r} of {self._name}(): {part.field} is a set, which has no order, so one call would "
                f"have several keys; pass sorted(…), or write key=lambda …: … that sorts it"
            )
        kind = type(value)
        if inspect.isroutine(value) or all(
            getattr(kind, text) is getattr(object, text) for text in ("__str__", "__repr__", "__format__")
        ):
            raise self._no_text(part.field, value)

    def _spell_container(self, value: Any, field: str) -> str:
        """Return the ``repr`` of a container, with the keys of dicts sorted."""
        if isinstance(value, dict) and not _has_own_text(value):
            items = sorted(
                f"{self._spell_container(key, field)}: {self._spell_container(item, field)}"
                for key, item in value.items()
            )
            return f"{{{', '.join(items)}}}"
        if type(value) is list:
            return f"[{', '.join(self._spell_container(item, field) for item in value)}]"
        if type(value) is tuple:
            inner = ", ".join(self._spell_container(item, field) for item in value)
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        if value is not None:
            self._require_said(_Part("", field, "", "r"), value)
        text = repr(value)
        if not isinstance(value, str) and _ADDRESS.search(text):
            raise self._no_text(field, value)
        return text

    # --- a function instead of a template -----------------------------------------------------------------------------

    def _spell_own(self, text: Any) -> Key:
        if not isinstance(text, str) or not text:
            if inspect.iscoroutine(text):
                text.close()
                raise InvalidOption(f"key= of {self._name}() is an async function; write one that returns text at once")
            raise InvalidOption(
                f"key= of {self._name}() returned {text!r:.60}: return 1 to {LONGEST_KEY} characters of text; None, "
                "or an empty text, would make one call of all such calls"
            )
        key = text if _is_free(text) else _QUOTED + json.dumps(text, ensure_ascii=False)
        return Key(check_key(_shorten_key(key, text)), "s", ("key",))

    # --- errors -------------------------------------------------------------------------------------------------------

    def _all_alike(self, field: str, what: str) -> InvalidOption:
        return InvalidOption(
            f"key={self._key!r} of {self._name}(): {field} is {what} here, and all such calls would be one; "
            f"give it a value, or take it out of the key; if they are to be one, write {{{field}!r}}"
        )

    def _no_text(self, field: str, value: Any) -> InvalidOption:
        kind = type(value)
        return InvalidOption(
            f"key={self._key!r} of {self._name}(): {field} is of the type {kind.__qualname__}, or holds one, which has "
            f"no text of its own but its address, so no two calls would have the same key; name what tells it apart, "
            f"as in {{{field}.id}}, or write key=lambda …: …"
        )


def require_argument(option: str, field: str, name: str, signature: inspect.Signature | None) -> None:
    """Raise unless a function has the argument that a field such as ``order.id`` begins with.

    Raises:
        InvalidOption: it does not; the message lists its arguments.
    """
    from difflib import get_close_matches

    named = _first_name(field)
    if not named or named.isdigit():
        raise InvalidOption(f"{option}: name the argument, as in '{{order_id}}'")
    if signature is None:
        return
    parameters = signature.parameters.values()
    parameter_names = [parameter.name for parameter in parameters if parameter.kind in _NAMED]
    variadic = [parameter.name for parameter in parameters if parameter.kind is inspect.Parameter.VAR_POSITIONAL]
    if named in (*parameter_names, *variadic) or any(
        parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters
    ):
        return
    close = get_close_matches(named, parameter_names, n=1)
    has = f"it has {', '.join(parameter_names)}" if parameter_names else "it has none"
    hint = f"; did you mean {{{close[0]}}}?" if close else ""
    if named in {"run", "run_key", "idempotency_key"}:
        hint = "; inside a job pass it run.idempotency_key as an argument, or write key=lambda *args: …"
        hint = hint.replace("…", "current_run().idempotency_key")
    raise InvalidOption(f"{option}: {name}() has no argument {named!r}, {has}{hint}")


def _first_name(field: str) -> str:
    for end, character in enumerate(field):
        if character in ".[":
            return field[:end]
    return field


def _has_own_text(value: Any) -> bool:
    """Whether a container's type has a text of its own, such as a named tuple."""
    return type(value) not in {list, tuple} and not isinstance(value, dict)


def _is_free(text: str) -> bool:
    """Whether a text can be a key unchanged, without being mistaken for a quoted key or a nominal time."""
    return not text.startswith((_VERSION, SCHEDULED_KEY_PREFIX)) and "\0" not in text


def _shorten_key(key: str, plain: str) -> str:
    if len(key) <= LONGEST_KEY:
        return key
    try:
        digest = hashlib.blake2b(key.encode(), digest_size=32).hexdigest()
    except UnicodeEncodeError:
        return check_key(key[:LONGEST_KEY])  # a lone surrogate: check_key raises
    return f"{_HASHED}{digest}:{plain[:_SHOWN]}".replace("\0", "\\0")
