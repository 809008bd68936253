"""Messages: their key, their fingerprint, and their body as the function's argument. No I/O."""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cronsensus.declared.functions import inspect_function
from cronsensus.errors import InvalidOption, InvalidPayload, StoreCorrupt, UnsupportedFunction
from cronsensus.integrations.results import end_of_success
from cronsensus.model.ends import Final
from cronsensus.once.keys import KeyOf
from cronsensus.payload.codec import loads
from cronsensus.payload.typed import Types, signature_of
from cronsensus.run import Run

DEFAULT_KEY = "{properties.message_id}"
BODY_KEY = "body"
"""As ``key=``: the hash of the body is the key."""
NOT_BEFORE = "x-cronsensus-not-before"
"""The header of a delayed message: the time of its next attempt, in milliseconds of Unix time."""
_NOT_ASYNC = "pika runs threads. For aio-pika and FastStream there is a recipe in docs/rabbitmq.md"


@dataclass(frozen=True, slots=True)
class Message:
    """A message as it came.

    Attributes:
        body: its bytes.
        properties: pika's ``BasicProperties``.
        redelivered: the broker has delivered it before.
    """

    body: bytes
    properties: Any
    queue: str
    exchange: str = ""
    routing_key: str = ""
    redelivered: bool = False

    @property
    def headers(self) -> Mapping[str, Any]:
        """Its headers; empty if it has none."""
        return self.properties.headers or {}

    @property
    def message_id(self) -> str | None:
        """The id that its producer gave it."""
        value: str | None = self.properties.message_id
        return value

    @property
    def not_before(self) -> int:
        """When its next attempt is, in milliseconds of Unix time; 0: at once."""
        value = self.headers.get(NOT_BEFORE)
        return value if isinstance(value, int) else 0

    @property
    def fingerprint(self) -> str:
        """Return a hash of the body, by which payloads are compared."""
        return hashlib.blake2b(self.body, digest_size=16).hexdigest()


class _Fields:
    """A table of values for a template: ``{headers.order}``, or ``{headers[order]}``."""

    def __init__(self, what: str, values: Any) -> None:
        self._what, self._values = what, values

    def __getattr__(self, name: str) -> Any:
        value = self._values.get(name) if isinstance(self._values, Mapping) else None
        if value is None:
            raise AttributeError(f"the {self._what} has no {name!r}")
        return _Fields(f"{self._what}.{name}", value) if isinstance(value, Mapping) else value

    __getitem__ = __getattr__


class MessageKey:
    """Returns the key of a message.

    Example:
        >>> from types import SimpleNamespace
        >>> key_of = MessageKey("{headers.order}-{body.step}", "charge", "payments")
        >>> key_of(Message(b'{"step": 2}', SimpleNamespace(headers={"order": "o7"}), "payments"))
        'o7-2'
    """

    def __init__(self, key: str | Callable[[Message], str], function: str, queue: str) -> None:
        """Check ``key``.

        Raises:
            InvalidOption: no template over ``properties``, ``headers`` and ``body``, or a template without fields.
        """

        def over(properties: Any, headers: Any, body: Any) -> None: ...

        self._key, self._queue = key, queue
        if key == BODY_KEY:
            return
        if isinstance(key, str) and "{" not in key:
            raise InvalidOption(
                f"key={key!r} would make one of all messages: write a template such as {DEFAULT_KEY!r} or "
                '"{headers.order}", or key="body"'
            )
        self._key_of = KeyOf(key, function, inspect.signature(over))

    def __call__(self, message: Message) -> str:
        """Return the key of ``message``.

        Raises:
            InvalidOption: it has none; the message says what to do.
        """
        if self._key == BODY_KEY:
            return message.fingerprint
        if callable(self._key):
            return self._key_of((message,), {}).text
        if self._key == DEFAULT_KEY and not message.message_id:
            raise InvalidOption(
                f"a message in {self._queue!r} has no message_id: set it where it is published (basic_publish(…, "
                'BasicProperties(message_id=…))), or say key="{headers.order}" or key="body"'
            )
        body = None
        if "{body" in self._key:
            try:
                body = loads(message.body)
            except StoreCorrupt as error:
                raise InvalidOption(f"key={self._key!r}: the body of a message is no JSON") from error
        headers, fields = _Fields("headers", message.headers), _Fields("body", body)
        return self._key_of((), {}, {"properties": message.properties, "headers": headers, "body": fields}).text


class Handler:
    """Calls the function with a message's body, in the type of its annotation."""

    def __init__(self, function: Callable[..., Any], *, transaction: bool = False, stored: bool = False) -> None:
        """Read the signature.

        Args:
            function: takes the body, and perhaps the message.
            transaction: it takes a connection first, and its writes there commit with the record.
            stored: nodes call it, as a job: with the body alone, and a ``Run`` if it asks for one.

        Raises:
            UnsupportedFunction: it is async, or takes neither the body nor the body and the message.
        """
        self._function, self._transaction = function, transaction
        name = getattr(function, "__name__", repr(function))
        if stored:
            self._read_stored(function, name)
            return
        if inspect.iscoroutinefunction(function):
            raise UnsupportedFunction(f"{name} is async: {_NOT_ASYNC}")
        positional = [
            parameter for parameter in signature_of(function).parameters.values()
            if parameter.kind in {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD}
        ]  # fmt: skip
        needed = sum(parameter.default is inspect.Parameter.empty for parameter in positional)
        connection_text, body_index = ("connection, ", 1) if transaction else ("", 0)
        if len(positional) <= body_index or needed > body_index + 2:
            raise UnsupportedFunction(
                f"{name} takes {needed} arguments: write {name}({connection_text}body) or "
                f"{name}({connection_text}body, message)"
            )
        self._annotation = positional[body_index].annotation
        self._takes_message = len(positional) > body_index + 1
        typed_function = functools.partial(function, None) if transaction else function
        self._types = Types(typed_function, positional[body_index + 1].name if self._takes_message else None)

    def _read_stored(self, function: Callable[..., Any], name: str) -> None:
        run = inspect_function(function, name=name, executor=None).registered.run_parameter
        parameters = [parameter for parameter in signature_of(function).parameters.values() if parameter.name != run]
        if not parameters or any(parameter.default is inspect.Parameter.empty for parameter in parameters[1:]):
            raise UnsupportedFunction(
                f'{name} is to take the body alone, or the body and a Run: with ack="stored" no more is kept of a '
                f"message. Its key is current_run().key; write {name}(body: dict)"
            )
        body_parameter = parameters[0]
        if body_parameter.annotation is inspect.Parameter.empty:
            raise UnsupportedFunction(
                f'{name}: with ack="stored" the annotation says how the body is kept; write bytes, str, dict, or a '
                f"dataclass: {name}({body_parameter.name}: dict)"
            )
        self._annotation, self._types = body_parameter.annotation, Types(function, run)

    def read_body(self, body: bytes) -> Any:
        """Return a body in the type of the annotation: bytes as they came, text, or a type from JSON.

        Raises:
            InvalidPayload: it is no text, no JSON, or does not fit.
        """
        if self._annotation in {inspect.Parameter.empty, bytes, "bytes"}:
            return body
        try:
            plain = body.decode() if self._annotation in {str, "str"} else loads(body)
        except (UnicodeDecodeError, StoreCorrupt) as error:
            raise InvalidPayload(f"the body is no {'text' if isinstance(error, UnicodeError) else 'JSON'}") from error
        [[value], _] = self._types.read_arguments((plain,), {})
        return value

    def call_function(self, body: Any, message: Message, run: Run) -> Final:
        """Call the function; return its end, with which its effects may be committed already."""
        arguments = (body, message) if self._takes_message else (body,)
        if not self._transaction:
            return end_of_success(self._require_done(self._function(*arguments)))
        with run.transaction() as connection:
            value = self._require_done(self._function(connection, *arguments))
            end = end_of_success(value)
            if end.reason is None:  # otherwise it cannot be stored, and the effects stay without it
                run.complete(value)
        return end

    def _require_done(self, value: Any) -> Any:
        """Refuse a coroutine: a decorator hides that the function is async, and nothing is done yet."""
        if not inspect.isawaitable(value):
            return value
        if inspect.iscoroutine(value):
            value.close()
        raise UnsupportedFunction(f"the function returned {type(value).__name__!r}, which nobody awaits: {_NOT_ASYNC}")
