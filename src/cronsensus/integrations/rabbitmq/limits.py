"""A warning before a queue's delivery limit drops messages that have never run."""

from __future__ import annotations

import threading

from cronsensus.integrations.rabbitmq.messages import Message
from cronsensus.process.logger import Logger

_log = Logger("cronsensus.rabbitmq")

COUNT = "x-delivery-count"
"""The header in which a quorum queue counts earlier deliveries."""
SUSPICIOUS = 2
"""Deliveries without an attempt from which a warning is logged: one is an ordinary restart."""


class DeliveryLimitWarning:
    """Warns once for each consumer. Safe to share between threads."""

    def __init__(self, queue: str) -> None:
        """Warn of ``queue``."""
        self._queue, self._lock, self._warned = queue, threading.Lock(), False

    def check_count(self, message: Message, attempt: int) -> None:
        """Warn if a message was delivered more often than it was tried, ``attempt`` being the number of this try."""
        count = message.headers.get(COUNT)
        if not isinstance(count, int) or count - (attempt - 1) < SUSPICIOUS:
            return
        with self._lock:
            warned, self._warned = self._warned, True
        if not warned:
            _log.warning(
                "a message of %r was delivered %d times before, and tried %d times: it had been fetched by consumers "
                "that went away before it ran. A delivery limit of the queue counts these, too, and drops messages "
                "that never ran (RabbitMQ 4 is said to set one of 20): set none or a high one, or fetch less by room=0",
                self._queue, count, attempt - 1,
            )  # fmt: skip
