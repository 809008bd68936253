"""Tell a service elsewhere that a node decides on time, so that it tells when nobody does any more.

A dead-man's switch: what is dead cannot say so, and what hangs says that it lives. So nothing is sent unless the last
decisions were on time, and it is the silence that is noticed. Replicas may all ping one URL: that falls silent when the
last of them does.
"""

from __future__ import annotations

import threading
import urllib.request
from collections.abc import Callable
from urllib.parse import urlsplit

from cronsensus.process.interrupts import Event
from cronsensus.process.logger import Logger

EVERY = 60.0
"""Seconds between two pings."""
LOOK_EVERY = 1.0
"""Seconds between two looks whether to ping, where one is due."""
TIMEOUT = 5.0
"""Seconds that a service may take for one ping."""

_log = Logger("cronsensus.heartbeat")


def ping_url(url: str, data: bytes | None = None) -> None:
    """Ask a URL, of which is known that it is http or https; with ``data`` by POST.

    Raises:
        Exception: it does not answer with 2xx within ``TIMEOUT``; ``HTTPError``: with another.
    """
    asked = urllib.request.Request(url, data=data, headers={"User-Agent": "cronsensus"})  # noqa: S310 - as said
    with urllib.request.urlopen(asked, timeout=TIMEOUT) as answer:  # noqa: S310 - as said
        answer.read(1)


class Pinging:
    """Pings a URL from a thread of its own, for which nothing waits."""

    def __init__(self, url: str, decides: Callable[[], bool], *, every: float = EVERY) -> None:
        """Ping nothing yet.

        Args:
            url: answers 2xx to a GET.
            decides: tells whether the last decisions were on time.
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
        """Ping no more; one that is under way is not waited for."""
        self._over.set()

    def _ping_and_wait(self) -> None:
        while not self._over.is_set():
            if self._decides():
                self._ping_once()
                self._over.wait(self._every)
            else:
                self._over.wait(min(self._every, LOOK_EVERY))

    def _ping_once(self) -> None:
        try:
            ping_url(self._url)
        except Exception as error:  # noqa: BLE001 - told; the next ping may arrive
            if not self._failed:
                # Not the whole URL: who knows it may ping in our place.
                words = "no ping reaches %s (%s); a service that waits for it will say that nothing runs"
                _log.warning(words, urlsplit(self._url).hostname, error)
            self._failed = True
        else:
            if self._failed:
                _log.info("pings reach %s again", urlsplit(self._url).hostname)
            self._failed = False
