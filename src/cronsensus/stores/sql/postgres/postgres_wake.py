"""Notifications by LISTEN and NOTIFY, and the sign of life, on a connection of their own.

A notification is advisory: losing one costs a node the time until its next poll. It is sent in a statement of its own
after the commit, because a transaction that notifies holds a lock of the whole server while it commits; without
anything else to write, that moment is short and needs no disk.
"""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import weakref
from collections.abc import Callable

import psycopg

from cronsensus.process.logger import Logger
from cronsensus.process.this_process import call_after_fork
from cronsensus.stores import poller
from cronsensus.stores.poller import Poller
from cronsensus.stores.presence import detach_inherited
from cronsensus.stores.sql.postgres.pipeline import has_pipeline, run_pipeline
from cronsensus.stores.sql.postgres.postgres_driver import PATIENCE, BoundedConnection
from cronsensus.stores.sql.postgres.postgres_presence import HIDE, SHOW, key_of

_log = Logger("cronsensus.store")
_all: weakref.WeakSet[Wake] = weakref.WeakSet()
_TELL = "SELECT pg_notify($1, $2)"


class Wake:
    """The notifications of one handle. ``wait`` is for one thread at a time; the other methods for any."""

    def __init__(self, connect: Callable[[], BoundedConnection], place: tuple[str, str]) -> None:
        """Listen for ``place``, a schema and a namespace; nothing is opened before the first ``wait``."""
        self._connect = connect
        self._place = place
        self.channel = "cronsensus_" + hashlib.sha256("\0".join(place).encode()).hexdigest()[:32]
        self.name = secrets.token_hex(8)
        """The payload of this handle's own notifications, so that it does not wake itself."""
        self._driver: BoundedConnection | None = None
        self._registered: str | None = None
        self._shown: str | None = None
        self._notified = False
        self._heard_at = 0.0
        self._poller = Poller(self._hang_up)
        _all.add(self)

    def register_presence(self, session: str | None) -> None:
        """Show a sign of life of ``session`` instead of the one before, while a thread waits."""
        self._registered = session
        self._poller.wake()

    # --- listening ----------------------------------------------------------------------------------------------------

    def wait(self, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds for a notification; ``True``: there was one. Behind a pooler: sleep."""
        if self._poller.is_closed():
            return False
        with self._poller:
            return self._wait_until(PATIENCE.monotonic() + max(0.0, timeout))

    def _wait_until(self, until: float) -> bool:
        while not self._poller.is_closed():
            driver = self._start_listening()
            try:
                if driver.pooled:
                    self._poller.wait([], until)
                else:
                    self._show_sign(driver)
                    # A notification that came with another answer was read already; the socket has nothing to read
                    # then.
                    if self._read_notifications(driver):
                        return True
                    if self._poller.wait([driver.pgconn.socket], until):
                        if self._read_notifications(driver):
                            return True
                    else:
                        self._ask_if_silent(driver)
                        if self._read_notifications(driver):
                            return True
            except psycopg.Error:
                self._hang_up()
                if self._poller.is_closed():
                    return False
                # Cut off. Reconnect at once, because peers take a missing sign of life for a death. Notifications since
                # then are lost, so this counts as one. If it fails, the caller waits.
                self._show_sign(self._start_listening())
                return True
            if PATIENCE.monotonic() >= until:
                break
        return False

    def _ask_if_silent(self, driver: BoundedConnection) -> None:
        """Make a round trip, which is no statement, on a connection that has said nothing for a while.

        Raises:
            NoAnswer: it is open, and nothing comes through.
        """
        if PATIENCE.monotonic() - self._heard_at < poller.SILENT:
            return
        try:
            if has_pipeline():
                run_pipeline(driver, ())
            else:
                driver.execute("SELECT 1", prepare=False)
        except psycopg.Error:
            if not self._poller.is_closed():
                _log.warning("the connection that listens for notifications delivers nothing; it is made anew")
            raise
        self._heard_at = PATIENCE.monotonic()

    def _start_listening(self) -> BoundedConnection:
        if self._driver is None:
            driver = self._connect()
            try:
                if not driver.pooled:
                    driver.add_notify_handler(self._note_notification)
                    driver.execute(f'LISTEN "{self.channel}"', prepare=False)
            except BaseException:
                driver.close()
                raise
            self._driver, self._shown, self._heard_at = driver, None, PATIENCE.monotonic()
        return self._driver

    def _show_sign(self, driver: BoundedConnection) -> None:
        """Hold the lock of the registered session, and no other."""
        session = self._registered
        if session == self._shown or driver.pooled:
            return
        cursor = psycopg.RawCursor(driver)
        if session is not None:
            cursor.execute(SHOW, [str(key_of(*self._place, session))])
        if self._shown is not None:
            cursor.execute(HIDE, [str(key_of(*self._place, self._shown))])
        self._shown = session

    def _read_notifications(self, driver: BoundedConnection) -> bool:
        """Read the notifications that came in; ``True`` if one is from another handle."""
        driver.pgconn.consume_input()
        while (notification := driver.pgconn.notifies()) is not None:
            self._take_in(notification.extra.decode())
        notified, self._notified = self._notified, False
        return notified

    def _note_notification(self, notification: psycopg.Notify) -> None:
        self._take_in(notification.payload)

    def _take_in(self, payload: str) -> None:
        self._heard_at = PATIENCE.monotonic()
        self._notified |= payload != self.name

    def _hang_up(self) -> None:
        driver, self._driver, self._shown = self._driver, None, None
        if driver is not None:
            driver.close()

    # --- notifying ----------------------------------------------------------------------------------------------------

    def notify_listeners(self, driver: psycopg.Connection[object]) -> None:
        """Notify all listeners."""
        psycopg.RawCursor(driver).execute(_TELL, [self.channel, self.name])

    # --- the end ------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop listening; ends a ``wait`` in another thread. Idempotent."""
        self._poller.close()

    def after_fork_in_child(self) -> None:
        """In a forked child: drop the connection of the parent without sending anything to the server."""
        if self._driver is not None:
            abandon_inherited(self._driver)
        self._driver = self._shown = self._registered = None
        self._poller.after_fork_in_child()
        self.name = secrets.token_hex(8)


def _after_fork_in_child() -> None:
    for wake in list(_all):
        wake.after_fork_in_child()


call_after_fork(_after_fork_in_child)


_abandoned: list[psycopg.Connection[object]] = []


def abandon_inherited(driver: psycopg.Connection[object]) -> None:
    """Drop a connection that belongs to the parent process.

    Closing it in order would end it for the parent. The object is kept, because its destructor would send Terminate.
    """
    _abandoned.append(driver)
    with contextlib.suppress(psycopg.Error):
        detach_inherited(driver.pgconn.socket)
