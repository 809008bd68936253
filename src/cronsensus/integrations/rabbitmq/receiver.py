"""The receiver of a connection's messages."""

from __future__ import annotations

from typing import Any, Protocol

from cronsensus.integrations.rabbitmq.messages import Message


class Receiver(Protocol):
    """``Deliveries``, which run messages here, or ``Storing``, which enqueues them."""

    @property
    def prefetch(self) -> int:
        """How many messages the broker delivers ahead of their acknowledgement."""

    def receive(self, channel: Any, tag: int, message: Message) -> None:
        """Accept what the broker delivers."""

    def forget_unbegun(self) -> None:
        """Forget the deliveries of a lost connection that have not started: the broker delivers them again."""

    def stop(self) -> None:
        """Begin nothing more."""

    @property
    def is_busy(self) -> bool:
        """Whether something is still to end before the connection is closed."""
