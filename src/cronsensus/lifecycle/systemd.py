"""Tell systemd that a node takes part, that it stops, and again and again that it lives: ``sd_notify``.

Spoken only where systemd asks for it, by ``$NOTIFY_SOCKET`` (``Type=notify``) and ``$WATCHDOG_USEC``
(``WatchdogSec=``). Nothing is sent by habit: each sign of life follows a look at the rounds. A process that hangs, or
whose rounds go on no more, falls silent, and systemd starts it anew. A store that is away is no reason: a node comes
back by itself.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Protocol, Self

from cronsensus.process.interrupts import Event
from cronsensus.process.logger import Logger

LOOK_EVERY = 5.0
"""Most seconds between two looks at the rounds."""
_log = Logger("cronsensus.systemd")


class Rounds(Protocol):
    """What is told of a node."""

    @property
    def turns(self) -> bool:
        """Whether they go on."""

    @property
    def status(self) -> str:
        """What the node does, in a few words."""


class Systemd:
    """Tells systemd of a node while it is entered; nothing where none asks for it."""

    def __init__(self, environ: Mapping[str, str], rounds: Rounds) -> None:
        """Tell nothing yet; ``environ`` is that of this process."""
        self._address = environ.get("NOTIFY_SOCKET", "")
        self._process = os.getpid()
        asked = environ.get("WATCHDOG_USEC", "")
        if not asked.isdecimal() or environ.get("WATCHDOG_PID", str(self._process)) != str(self._process):
            asked = "0"
        self._watchdog = int(asked) / 1e6
        self._rounds = rounds
        self._last_status = ""
        self._over = Event()

    def __enter__(self) -> Self:
        """Tell that the node takes part, and from now on that it lives."""
        if self._address:
            self._send("READY=1", *self._list_signs())
            threading.Thread(target=self._look_and_wait, name="cronsensus-systemd", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()

    def report_stopping(self) -> None:
        """Tell that the node takes nothing new, and ends: from now on systemd waits for ``TimeoutStopSec=``."""
        self._send("STOPPING=1", *self._list_signs())

    def _look_and_wait(self) -> None:
        # Thrice within the time after which silence counts: one sign may come late.
        while not self._over.wait(min(LOOK_EVERY, self._watchdog / 3 or LOOK_EVERY)):
            if signs := self._list_signs():
                self._send(*signs)

    def _list_signs(self) -> list[str]:
        """Return a sign of life, if there is one to give, and the status if it has changed."""
        signs = ["WATCHDOG=1"] if self._watchdog and self._rounds.turns else []
        if (status := self._rounds.status) != self._last_status:
            self._last_status = status
            signs.append(f"STATUS={status}")
        return signs

    def _send(self, *lines: str) -> None:
        if not self._address or os.getpid() != self._process:  # a forked child is not the service
            return
        # A name that begins with @ is of no file.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                sender.sendto("\n".join(lines).encode(), address)
        except OSError as error:
            _log.warning("systemd was not told %s: %s", lines[0], error)
