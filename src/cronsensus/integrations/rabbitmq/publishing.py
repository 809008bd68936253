"""Publish dead letters and messages for the delay queue, on a separate connection.

A broker in alarm stops reading from connections that publish, including their acknowledgements. So acknowledgements
have another connection. The broker confirms a published message before the original is acknowledged. If a process dies
in between, or a confirmation comes too late, there is a second copy: dead letters are at least once.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pika
from pika.exceptions import AMQPError

from cronsensus.errors import ConfigurationError
from cronsensus.integrations.rabbitmq.messages import NOT_BEFORE, Message
from cronsensus.integrations.rabbitmq.options import Options
from cronsensus.integrations.rabbitmq.queues import declare_queues
from cronsensus.membership.timer import Timer
from cronsensus.model.ends import Final
from cronsensus.model.occurrence import Occurrence, RunError
from cronsensus.node.executors.result import clean_text
from cronsensus.process.background import Background
from cronsensus.process.logger import Logger
from cronsensus.timing.clock import SystemClock

_log = Logger("cronsensus.rabbitmq")

CONFIRM_SECONDS = 5.0
"""Seconds that the broker may take to confirm a published message."""
HEARTBEAT_SECONDS = 20
IDLE_SECONDS = 5.0
"""Seconds without anything to publish after which the connection is closed; well below twice ``HEARTBEAT_SECONDS``."""
LONGEST_ERROR = 2000
HEADER_PREFIX = "x-cronsensus-"
_PERSISTENT = 2
_DROPPED_HEADERS = ("CC", "BCC", NOT_BEFORE)
"""Headers by which the broker would send a copy to more queues, and the library's headers of an earlier attempt."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Why a message is put aside.

    Attributes:
        reason: ``failed``, ``crashed``, ``poison``, ``mismatch``, ``no-key``, or the state that an operator gave it.
        run: the occurrence's id; ``None``: it has none.
    """

    reason: str
    error: str
    attempts: int = 0
    run: int | None = None
    key: str | None = None

    @classmethod
    def of_end(cls, end: Final | Occurrence, *, run: int, attempts: int, key: str) -> DeadLetter:
        """Return the dead letter of a run that ended without success, from its end or its ledger entry."""
        reason = (end.reason or str(end.state)).partition(":")[0].partition("(")[0]
        return cls(reason, error_line(end.error) or end.reason or str(end.state), attempts, run, key)

    def headers(self, queue: str) -> dict[str, Any]:
        """Return its headers."""
        values = {
            "reason": self.reason,
            "error": clean_text(self.error, LONGEST_ERROR),
            "attempts": self.attempts,
            "run": self.run,
            "queue": queue,
            "key": self.key,
        }
        return {f"{HEADER_PREFIX}{name}": value for name, value in values.items() if value is not None}


def error_line(error: RunError | None) -> str | None:
    """Return an error on a line."""
    return None if error is None else f"{error.type}: {error.message}"


class Publisher:
    """The thread and the connection that publish; opened when there is something to publish."""

    def __init__(self, parameters: pika.connection.Parameters, options: Options) -> None:
        """Open nothing yet."""
        self._parameters = copy.copy(parameters)
        # A frozen broker is noticed while a confirmation is awaited. While there is nothing to publish
        # nobody serves heartbeats: it is closed before they are missed, and before a firewall forgets it.
        self._parameters.heartbeat = HEARTBEAT_SECONDS
        self._parameters.blocked_connection_timeout = CONFIRM_SECONDS
        self._options = options
        self._background = Background("cronsensus-rabbitmq-publish", most=1, log=_log)
        self._timer = Timer(SystemClock())
        self._published = 0
        self._connection: Any = None
        self._channel: Any = None

    def bury(self, message: Message, letter: DeadLetter, then: Callable[[bool], object]) -> None:
        """Publish a dead letter soon; ``then`` is called with whether the broker has it."""
        _log.warning(
            "a message in %r was put into %r: %s, %s", self._options.queue, self._options.dead_letter, letter.reason,
            letter.error,
        )  # fmt: skip
        self._background.submit(
            lambda: then(self._publish(self._options.dead_letter, message, letter.headers(self._options.queue)))
        )

    def delay(self, message: Message, then: Callable[[bool], object], *, until: int | None = None) -> None:
        """Put a message into the delay queue soon; ``then`` is called with whether the broker has it.

        Args:
            message: as it came.
            then: called on the publishing thread.
            until: when it may run, in milliseconds of Unix time; it may come back earlier.
        """
        headers = {} if until is None else {NOT_BEFORE: until}
        self._background.submit(lambda: then(self._publish(self._options.held_queue, message, headers)))

    def close(self) -> None:
        """Close the connection after the pending messages."""
        self._timer.close()
        self._background.submit(self._drop_connection)

    def _publish(self, queue: str, message: Message, headers: dict[str, Any]) -> bool:
        try:
            if self._connection is None or self._connection.is_closed:
                self._connection = pika.BlockingConnection(self._parameters)
                declare_queues(self._connection, self._options)
                self._channel = self._connection.channel()
                self._channel.confirm_delivery()
                self._close_when_idle()
            properties = _properties_of_copy(message, headers, expires=queue == self._options.held_queue)
            self._channel.basic_publish("", queue, message.body, properties, mandatory=True)
        except (AMQPError, OSError, ConfigurationError) as error:
            _log.warning("a message could not be put into %r yet, and stays where it is: %r", queue, error)
            self._drop_connection()
            return False
        except Exception:  # noqa: BLE001 - logged; the message stays where it is
            _log.exception("a message could not be put into %r yet: a mistake in cronsensus; please report it", queue)
            self._drop_connection()
            return False
        self._published += 1
        return True

    def _close_when_idle(self) -> None:
        published, connection = self._published, self._connection

        def check() -> None:
            if connection is not self._connection:
                return
            if published == self._published:
                self._drop_connection()
            else:
                self._close_when_idle()

        self._timer.call_after(IDLE_SECONDS, lambda: self._background.submit(check))

    def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(AMQPError, OSError):
                connection.close()


def _properties_of_copy(message: Message, headers: dict[str, Any], *, expires: bool) -> Any:
    properties = copy.copy(message.properties)
    kept_headers = {name: value for name, value in message.headers.items() if name not in _DROPPED_HEADERS}
    if properties.user_id:  # the broker refuses a user id that is not this connection's
        kept_headers[f"{HEADER_PREFIX}user-id"], properties.user_id = properties.user_id, None
    if not expires:  # or the dead letter would vanish
        properties.expiration = None
    properties.headers = {**kept_headers, **headers}
    properties.delivery_mode = _PERSISTENT
    return properties
