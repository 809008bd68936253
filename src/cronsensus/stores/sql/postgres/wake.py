"""Wake-ups by LISTEN and NOTIFY, and the sign of life that goes with them, on a connection of their own.

A notification is a hint, never the truth: one that is lost costs a node the time until it looks by itself. It is sent
in a statement of its own after the commit, because a transaction that notifies holds a lock of the whole server while
it commits; without anything else to write, that moment is short and needs no disk.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import weakref
from collections.abc import Callable

import psycopg

from cronsensus.stores.poller import Poller
from cronsensus.stores.presence import detach_inherited
from cronsensus.stores.sql.postgres.driver import PATIENCE, BoundedConnection
from cronsensus.stores.sql.postgres.presence import HIDE, SHOW, key_of

_all: weakref.WeakSet[Wake] = weakref.WeakSet()
_TELL = "SELECT pg_notify($1, $2)"


class Wake:
    """One handle's ear. ``wait`` by one thread at a time; ``register_presence`` and ``close`` by any."""

    def __init__(self, connect: Callable[[], BoundedConnection], place: tuple[str, str]) -> None:
        """Listen for ``place``, a schema and a namespace; nothing is opened before the first ``wait``."""
        self._connect = connect
        self._place = place
        self.channel = "cronsensus_" + hashlib.sha256("\0".join(place).encode()).hexdigest()[:32]
        self.name = secrets.token_hex(8)
        """What this handle's own notifications say, so that it does not wake itself."""
        self._driver: BoundedConnection | None = None
        self._registered: str | None = None
        self._shown: str | None = None
        self._hinted = False
        self._poller = Poller(self._hang_up)
        _all.add(self)

    def register_presence(self, session: str | None) -> None:
        """Show a sign of life for ``session`` instead of the one before, while somebody waits."""
        self._registered = session
        self._poller.wake()

    # --- listening ----------------------------------------------------------------------------------------------------

    def wait(self, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds for a hint; ``True``: there was one. Without a connection of ours: sleep."""
        if self._poller.is_closed():
            return False
        with self._poller:
            return self._wait(PATIENCE.monotonic() + max(0.0, timeout))

    def _wait(self, until: float) -> bool:
        while not self._poller.is_closed():
            driver = self._listen()
            try:
                if driver.pooled:
                    self._poller.wait([], until)
                else:
                    self._show(driver)
                    # What came in while the server answered something else waits for nobody to read the socket.
                    if self._heard(driver):
                        return True
                    if self._poller.wait([driver.pgconn.socket], until) and self._heard(driver):
                        return True
            except psycopg.Error:
                self._hang_up()
                if self._poller.is_closed():
                    return False
                # Cut off: at once back again, because others take the sign of life for a death when it stays away.
                # What was sent meanwhile is lost, so this is a hint as well. Where it fails, the caller waits.
                self._show(self._listen())
                return True
            if PATIENCE.monotonic() >= until:
                break
        return False

    def _listen(self) -> BoundedConnection:
        if self._driver is None:
            driver = self._connect()
            try:
                if not driver.pooled:
                    driver.add_notify_handler(self._note)
                    driver.execute(f'LISTEN "{self.channel}"', prepare=False)
            except BaseException:
                driver.close()
                raise
            self._driver, self._shown = driver, None
        return self._driver

    def _show(self, driver: BoundedConnection) -> None:
        """Hold the lock of the registered session, and no other."""
        wanted = self._registered
        if wanted == self._shown or driver.pooled:
            return
        cursor = psycopg.RawCursor(driver)
        if wanted is not None:
            cursor.execute(SHOW, [str(key_of(*self._place, wanted))])
        if self._shown is not None:
            cursor.execute(HIDE, [str(key_of(*self._place, self._shown))])
        self._shown = wanted

    def _heard(self, driver: BoundedConnection) -> bool:
        """Take what came in; ``True`` if anything of it is from another handle."""
        driver.pgconn.consume_input()
        while (notification := driver.pgconn.notifies()) is not None:
            self._hinted |= notification.extra != self.name.encode()
        hinted, self._hinted = self._hinted, False
        return hinted

    def _note(self, notification: psycopg.Notify) -> None:
        self._hinted |= notification.payload != self.name

    def _hang_up(self) -> None:
        driver, self._driver, self._shown = self._driver, None, None
        if driver is not None:
            driver.close()

    # --- telling ------------------------------------------------------------------------------------------------------

    def tell(self, driver: psycopg.Connection[object]) -> None:
        """Notify all who listen."""
        psycopg.RawCursor(driver).execute(_TELL, [self.channel, self.name])

    # --- the end ------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop listening; ends a ``wait`` in another thread. Idempotent."""
        self._poller.close()

    def after_fork_in_child(self) -> None:
        """In a forked child: let go of the parent's connection without a word to the server, which would hear it."""
        if self._driver is not None:
            abandon_inherited(self._driver)
        self._driver = self._shown = self._registered = None
        self._poller.after_fork_in_child()
        self.name = secrets.token_hex(8)


def _after_fork_in_child() -> None:
    for wake in list(_all):
        wake.after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


_abandoned: list[psycopg.Connection[object]] = []


def abandon_inherited(driver: psycopg.Connection[object]) -> None:
    """Let go of a connection that belongs to the parent process.

    Closing it in order would end it for the parent; and the object is kept, for its end would speak.
    """
    _abandoned.append(driver)
    with contextlib.suppress(psycopg.Error):
        detach_inherited(driver.pgconn.socket)
