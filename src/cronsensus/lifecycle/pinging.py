"""Ping a service while a node decides on time, so that the service alerts when no node does any more.

A dead-man's switch: a dead process cannot report its death, and a process that hangs may seem alive. So a ping is sent
only if the last decisions were on time, and the service notices the silence. Replicas may all ping the same URL, which
falls silent with the last of them.
"""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Callable
from urllib.parse import urlsplit

from cronsensus.process.interrupts import Event
from cronsensus.process.logger import Logger

PING_EVERY = 60.0
"""Seconds between two pings."""
CHECK_EVERY = 1.0
"""Seconds between two checks whether to ping, once a ping is due."""
PING_TIMEOUT = 5.0
"""Seconds that a service may take for a ping."""

_log = Logger("cronsensus.heartbeat")


def ping_url(url: str, data: bytes | None = None) -> None:
    """Request a URL, which the caller has checked to be http or https; with ``data`` by POST.

    Raises:
        Exception: no 2xx answer within ``PING_TIMEOUT``; ``HTTPError``: another status.
    """
    request = urllib.request.Request(url, data=data, headers={"User-Agent": "cronsensus"})  # noqa: S310 - checked
    with urllib.request.urlopen(request, timeout=PING_TIMEOUT) as answer:  # noqa: S310 - checked
        answer.read(1)


class Pinging:
    """Pings a URL from its own thread, for which nothing waits."""

    def __init__(self, url: str, decides: Callable[[], bool], *, every: float = PING_EVERY) -> None:
        """Prepare; no ping is sent yet.

        Args:
            url: answers 2xx to a GET.
            decides: returns whether the last decisions were on time.
            every: seconds between two pings.
        """
        self._url = url
        self._decides = decides
        self._every = every
        self._over = Event()
        self._failed = False

    def start_pinging(self) -> None:
        """Ping from now on."""
        threading.Thread(target=self._ping_and_wait, name="cronsensus-ping", daemon=True).start()

    def stop_pinging(self) -> None:
        """Stop pinging, without a wait for a ping that is under way."""
        self._over.set()

    def _ping_and_wait(self) -> None:
        while not self._over.is_set():
            if self._decides():
                self._ping_once()
                self._over.wait(self._every)
            else:
                self._over.wait(min(self._every, CHECK_EVERY))

    def _ping_once(self) -> None:
        try:
            ping_url(self._url)
        except Exception as error:  # noqa: BLE001 - logged; the next ping may arrive
            if not self._failed:
                # Not the whole URL: anybody who knows it can ping in place of this node.
                template = "no ping reaches %s (%s); a service that waits for it will say that nothing runs"
                _log.warning(template, urlsplit(self._url).hostname, error)
            self._failed = True
        else:
            if self._failed:
                _log.info("pings reach %s again", urlsplit(self._url).hostname)
            self._failed = False
