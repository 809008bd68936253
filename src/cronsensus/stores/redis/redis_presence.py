"""Signs of life: a session's process listens to a channel, until the server ends its connection.

Nothing is ever published on that channel. ``PUBSUB NUMSUB`` counts its subscribers, also inside of a script: a look
asks for signs without a further command over the network, and without a right that a node does not need anyway.
"""

from __future__ import annotations

import contextlib
import socket
import weakref
from collections.abc import Callable
from typing import Literal

from cronsensus.errors import StoreError
from cronsensus.stores.presence import Observations, SignRecord
from cronsensus.stores.redis.client import Client
from cronsensus.stores.redis.keyspace import Keyspace
from cronsensus.stores.redis.pubsub import Subscription

Signs = tuple[list[str], list[tuple[str, int, str | Literal[False]]]]
"""The sessions that show their sign; and those that do not, with the number and the record of each."""


class HeartbeatSign:
    """The heartbeat's sign of life, on a connection that each renewal checks. For one thread, except for ``close``."""

    def __init__(self, listening_to: Callable[[bytes], Subscription]) -> None:
        """Show signs on the subscriptions that ``listening_to`` makes."""
        self._listening_to = listening_to
        self._sign: bytes | None = None
        self._subscription: Subscription | None = None

    def show_sign(self, sign: bytes) -> bool:
        """Show ``sign``, unless it is shown; ``False``: that failed, which costs nothing but a slower takeover."""
        if sign != self._sign:
            self.close()
            self._sign, self._subscription = sign, self._listening_to(sign)
        if self._subscription is not None:
            with contextlib.suppress(StoreError):
                self._subscription.check_connection()
                return True
        return False

    def close(self) -> None:
        """Show none."""
        subscription, self._subscription, self._sign = self._subscription, None, None
        if subscription is not None:
            subscription.close()


class PresenceObserver:
    """The signs that the looks of one handle have observed, for each connection by itself."""

    def __init__(self) -> None:
        self._observations: weakref.WeakKeyDictionary[socket.socket, Observations] = weakref.WeakKeyDictionary()
        self.known: str | bool = ""
        """``opened`` when signs were last asked for; ``False``: do not ask."""

    def note_signs(self, through: socket.socket, opened: str, signs: Signs | str | None) -> tuple[str, ...]:
        """Note what a look saw ``through`` a connection; return the sessions of which the sign is gone.

        Args:
            through: a connection.
            opened: how many sessions were opened so far, and the last of them.
            signs: ``None``: not asked for. A text: this server or this user may not be asked; another connection may.
        """
        observations = self._observations.get(through)
        if observations is None:
            observations = self._observations[through] = Observations()
            self.known = ""
        if signs is None:
            return ()
        if isinstance(signs, str):
            self.known = False
            return ()
        present, absent = signs
        missing = {session: SignRecord(number, shown == "1" if shown else None) for session, number, shown in absent}
        missed = observations.note(present, missing, int(opened.partition(" ")[0]))
        self.known = "" if any(map(observations.may_come, missing)) else opened
        return missed


def may_ask(client: Client, keyspace: Keyspace) -> bool:
    """Whether the user of ``client`` may ask for signs of life."""
    try:
        client.run_command("PUBSUB", "NUMSUB", keyspace.sign_channel(""))
        client.run_command("INFO", "replication")
    except StoreError:
        return False
    return True
