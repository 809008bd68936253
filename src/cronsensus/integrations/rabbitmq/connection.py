"""The connection that consumes, used only by its own thread.

It reconnects as long as the consumer runs. An acknowledgement belongs to the channel that delivered: after a reconnect
it is dropped, and the message that comes again is found to have succeeded.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pika
from pika.exceptions import (
    AMQPError,
    ConnectionWrongStateError,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
)

from cronsensus.errors import ConfigurationError
from cronsensus.integrations.rabbitmq.deliveries import Delivery
from cronsensus.integrations.rabbitmq.messages import Message
from cronsensus.integrations.rabbitmq.options import Options
from cronsensus.integrations.rabbitmq.queues import declare_queues
from cronsensus.integrations.rabbitmq.receiver import Receiver
from cronsensus.process.logger import Logger
from cronsensus.security.masking import mask
from cronsensus.timing.clock import SystemClock

_log = Logger("cronsensus.rabbitmq")

EVENTS_SECONDS = 0.2
"""Seconds until the thread notices that the consumer must stop."""
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
DRAIN_SECONDS = 10.0
"""Seconds that runs have to end when the consumer stops."""
_LOGIN_REFUSED = (ProbableAuthenticationError, ProbableAccessDeniedError)


def read_url(url: str) -> pika.connection.Parameters:
    """Return how to connect.

    Raises:
        ConfigurationError: it is no broker's URL.
    """
    if not url.startswith(("amqp://", "amqps://")):
        raise ConfigurationError(f"{mask(url)!r} is no broker: write amqp://host/vhost, or amqps://…")
    try:
        parameters = pika.URLParameters(url)
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigurationError(f"{mask(url)!r} is no broker: {mask(str(error))}") from None
    parameters.connection_attempts = 1  # it is tried again here, as long as the consumer runs
    return parameters


class Connection:
    """The connection of a consumer to its broker."""

    def __init__(self, url: str, parameters: pika.connection.Parameters, options: Options) -> None:
        """Open nothing yet."""
        self._shown, self._parameters, self._options = mask(url), parameters, options
        parameters.client_properties = {"connection_name": f"cronsensus {options.queue} {os.getpid()}"}
        self._connection: Any = None
        self._channel: Any = None
        self._lock = threading.Lock()
        self._acks: list[Delivery] = []
        self._open_tags: dict[int, None] = {}
        """The channel's unacknowledged deliveries, oldest first; only for the thread that consumes."""

    def acknowledge(self, delivery: Delivery) -> None:
        """Acknowledge a delivery soon, together with others."""
        with self._lock:
            self._acks.append(delivery)
            is_first = len(self._acks) == 1
        if is_first:
            with suppress(ConnectionWrongStateError, AttributeError):  # closed, so it comes again
                self._connection.add_callback_threadsafe(self._send_acks)

    def _send_acks(self) -> None:
        with self._lock:
            acks, self._acks = self._acks, []
        channel = self._channel
        if channel is None or not channel.is_open:
            return
        tags = {ack.tag for ack in acks if ack.channel is channel}
        for tag in tags:
            self._open_tags.pop(tag, None)
        first_open = next(iter(self._open_tags), None)
        together = {tag for tag in tags if first_open is None or tag < first_open}
        if together:  # no earlier delivery is open, so a single frame acknowledges all
            channel.basic_ack(max(together), multiple=True)
        for tag in sorted(tags - together):
            channel.basic_ack(tag)

    def consume(self, deliveries: Receiver, stopping: threading.Event, at_intervals: Callable[[], object]) -> None:
        """Consume until ``stopping`` is set, then let what runs end.

        Raises:
            ConfigurationError: the broker refused the login, or a queue.
        """
        pause = FIRST_PAUSE
        while not stopping.is_set():
            try:
                self._open(deliveries)
                pause = FIRST_PAUSE
                while not stopping.is_set():
                    self._connection.process_data_events(time_limit=EVENTS_SECONDS)
                    at_intervals()
                    # pika does not report that the broker closes a channel, or ends a consumer because its queue is
                    # deleted.
                    if not self._channel.is_open or not self._channel.consumer_tags:
                        raise AMQPError("the broker has closed the channel, or ended the consumer")
            except _LOGIN_REFUSED as error:
                raise ConfigurationError(f"the broker at {self._shown} refused the login: {error!r}") from error
            except (AMQPError, OSError) as error:
                _log.warning(
                    "no connection to the broker at %s, the next try is in %.1f s: %r", self._shown, pause, error
                )
                self._forget(deliveries)
                stopping.wait(pause)
                pause = min(LONGEST_PAUSE, pause * 2)
        self._drain(deliveries)

    def close(self) -> None:
        """Close the connection; unacknowledged messages go back to the broker."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(AMQPError, OSError):
                connection.close()

    def _open(self, deliveries: Receiver) -> None:
        self._connection = pika.BlockingConnection(self._parameters)
        declare_queues(self._connection, self._options)
        self._channel = self._connection.channel()
        self._open_tags.clear()
        with self._lock:
            # Even if it ended while there was no connection: otherwise nobody would send the acknowledgements that
            # follow.
            self._acks.clear()
        self._channel.basic_qos(prefetch_count=deliveries.prefetch)

        def receive(channel: Any, method: Any, properties: Any, body: bytes) -> None:
            message = Message(
                body, properties, self._options.queue, method.exchange, method.routing_key, method.redelivered
            )
            self._open_tags[method.delivery_tag] = None
            deliveries.receive(channel, method.delivery_tag, message)

        self._channel.basic_consume(self._options.queue, receive)
        _log.info("consuming %r at %s", self._options.queue, self._shown)

    def _forget(self, deliveries: Receiver) -> None:
        self.close()
        deliveries.forget_unbegun()

    def _drain(self, deliveries: Receiver) -> None:
        deliveries.stop()
        clock = SystemClock()
        deadline = clock.monotonic() + DRAIN_SECONDS
        try:
            if self._channel is not None and self._channel.is_open:
                for tag in list(self._channel.consumer_tags):
                    self._channel.basic_cancel(tag)
            while deliveries.is_busy and clock.monotonic() < deadline:
                if self._connection is None:
                    threading.Event().wait(EVENTS_SECONDS)
                else:
                    self._connection.process_data_events(time_limit=0.05)
            if deliveries.is_busy:
                _log.warning("runs of %r have not ended: their messages come again", self._options.queue)
            if self._connection is not None:
                self._send_acks()
                self._connection.process_data_events(time_limit=0)
        except (AMQPError, OSError) as error:
            _log.warning("the broker is gone while %r is stopped: %r", self._options.queue, error)
