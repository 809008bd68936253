"""Notify systemd that a node takes part, that it stops, and regularly that it is alive: ``sd_notify``.

It does so only where systemd asks for it, by ``$NOTIFY_SOCKET`` (``Type=notify``) and ``$WATCHDOG_USEC``
(``WatchdogSec=``). Each sign of life is sent only after a check that the rounds go on. A process that hangs, or whose
rounds have stopped, falls silent, and systemd restarts it. While the store is away the signs go on: a node recovers by
itself.
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

CHECK_EVERY = 5.0
"""Most seconds between two checks of the rounds."""
_log = Logger("cronsensus.systemd")


class Rounds(Protocol):
    """The rounds of a node, for systemd."""

    @property
    def turns(self) -> bool:
        """Whether rounds go on."""

    @property
    def status(self) -> str:
        """What the node is doing, in a few words."""


class Systemd:
    """Notifies systemd of a node while it is entered; does nothing where systemd does not ask for it."""

    def __init__(self, environ: Mapping[str, str], rounds: Rounds) -> None:
        """Send nothing yet; ``environ`` is that of this process."""
        self._address = environ.get("NOTIFY_SOCKET", "")
        self._process = os.getpid()
        microseconds = environ.get("WATCHDOG_USEC", "")
        if not microseconds.isdecimal() or environ.get("WATCHDOG_PID", str(self._process)) != str(self._process):
            microseconds = "0"
        self._watchdog = int(microseconds) / 1e6
        self._rounds = rounds
        self._last_status = ""
        self._over = Event()

    def __enter__(self) -> Self:
        """Report that the node takes part, and from now on that it is alive."""
        if self._address:
            self._send("READY=1", *self._list_signs())
            threading.Thread(target=self._look_and_wait, name="cronsensus-systemd", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()

    def report_stopping(self) -> None:
        """Report that the node takes nothing new, and ends: from now on systemd waits for ``TimeoutStopSec=``."""
        self._send("STOPPING=1", *self._list_signs())

    def _look_and_wait(self) -> None:
        # Three times within the watchdog's time, so that a sign may come late.
        while not self._over.wait(min(CHECK_EVERY, self._watchdog / 3 or CHECK_EVERY)):
            if signs := self._list_signs():
                self._send(*signs)

    def _list_signs(self) -> list[str]:
        """Return a sign of life if the rounds go on, and the status if it has changed."""
        signs = ["WATCHDOG=1"] if self._watchdog and self._rounds.turns else []
        if (status := self._rounds.status) != self._last_status:
            self._last_status = status
            signs.append(f"STATUS={status}")
        return signs

    def _send(self, *lines: str) -> None:
        if not self._address or os.getpid() != self._process:  # a forked child is not the service
            return
        # A name that begins with @ is an abstract socket, not a file.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                sender.sendto("\n".join(lines).encode(), address)
        except OSError as error:
            _log.warning("systemd was not notified of %s: %s", lines[0], error)
