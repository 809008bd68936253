"""Signs of life: a session's process holds a lock of the server (``GET_LOCK``), freed when its connection ends.

Such a lock has one holder, so each session has a few names. A connection takes the first that is free: a former one of
the same process may still hold its name, because the server does not know yet that it is gone. Others ask
``IS_USED_LOCK``, which needs no right and no lock.

Locks belong to one server. They mean nothing where something between gives connections to several clients (ProxySQL,
MaxScale), and where several servers are written to. Then no sign is shown and none is missed: leases decide alone.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable, Sequence

from pymysql.err import MySQLError

from cronsensus.errors import CronsensusError
from cronsensus.process.this_process import call_after_fork
from cronsensus.stores.poller import Poller
from cronsensus.stores.presence import detach_inherited
from cronsensus.stores.sql.mysql.literals import literal_of
from cronsensus.stores.sql.mysql.mysql_driver import BoundedConnection, run_text
from cronsensus.stores.sql.transaction import Transaction
from cronsensus.timing.clock import SystemClock

SIGNS = 4
"""Names for each session: two connections show it, and each may have a predecessor."""
IDLE_FOR = 900
"""Seconds after which the server ends a connection that shows a sign and is not used."""
USED_EVERY = 240.0
"""Seconds after which the connection that is kept for the sign is used; an idle node renews its session as often."""
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 5.0
"""Seconds between two tries to connect."""
_SEVERAL = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('wsrep_on', 'group_replication_single_primary_mode')"
_ONE_SERVER = {"wsrep_on": "OFF", "group_replication_single_primary_mode": "ON"}
_CLOCK = SystemClock()
_all: weakref.WeakSet[Sign] = weakref.WeakSet()

Place = tuple[str, str]
"""A database and a namespace."""


def names_of(place: Place, session: str) -> list[str]:
    """Return the names of a session's locks: those of the whole server, at most 64 characters."""
    name = hashlib.blake2b("\0".join((*place, session)).encode(), digest_size=16).hexdigest()
    return [f"cronsensus {name} {number}" for number in range(SIGNS)]


def show_sign(driver: BoundedConnection, place: Place, session: str | None) -> bool:
    """Hold a lock of ``session`` on a connection, and no other; return ``False`` where it would mean nothing."""
    if session == driver.shown:
        return driver.shows
    if driver.lock is not None:
        run_text(driver, f"DO RELEASE_LOCK({literal_of(driver, driver.lock)})")
    driver.shown, driver.lock, driver.shows = session, None, _is_one_server(driver)
    if session is None or not driver.shows:
        return driver.shows
    driver.keep_idle_for(IDLE_FOR)
    for name in names_of(place, session):
        text = literal_of(driver, name)
        if run_text(driver, f"SELECT GET_LOCK({text}, 0)") == ((1,),):
            [(holder,)] = run_text(driver, f"SELECT IS_USED_LOCK({text})")
            driver.lock, driver.shows = name, _is_thread(driver, holder)
            return driver.shows
    driver.shown = None  # all are taken: try again with the next use
    return True


def list_present(tx: Transaction, driver: BoundedConnection, place: Place, sessions: Sequence[str]) -> set[str] | None:
    """Return those of ``sessions`` of which a lock is held; ``None``: there is a proxy, or this is a replica."""
    names_by_place = [(number, *names_of(place, session)) for number, session in enumerate(sessions)]
    rows = [row for answer in tx.send_rows("held_signs", names_by_place) for row in answer.rows]
    if any(row.is_replica or not _is_thread(driver, row.thread) for row in rows):
        return None
    return {sessions[row.place] for row in rows if row.holder is not None}


def describe_presence(driver: BoundedConnection) -> str:
    """Return whether others learn here that a process is gone, in words."""
    if not _is_one_server(driver):
        return "none where several servers are written to: a dead node on another host is noticed when its lease ends"
    [(thread,)] = run_text(driver, "SELECT CONNECTION_ID() + 0")
    if not _is_thread(driver, thread):
        return "none through a proxy: a dead node on another host is noticed when its lease ends"
    return "a lock that the server frees when the process's connection ends"


def _is_one_server(driver: BoundedConnection) -> bool:
    return all(_ONE_SERVER[name] == value.upper() for name, value in run_text(driver, _SEVERAL))


def _is_thread(driver: BoundedConnection, number: int | None) -> bool:
    """Whether a thread of the server is the one that greeted this connection; behind a proxy it is another one."""
    return number is not None and number & 0xFFFFFFFF == driver.greeted_by & 0xFFFFFFFF


class Sign:
    """A connection kept for a sign, which hears at once that it was cut off. ``wait`` by one thread, others by any."""

    def __init__(self, connect: Callable[[], BoundedConnection], place: Place) -> None:
        """Show signs in ``place``; nothing is opened unless a session registered its presence."""
        self._connect = connect
        self._place = place
        self._driver: BoundedConnection | None = None
        self._registered: str | None = None
        self._connected_at = 0.0
        self._in_vain = False
        """A sign would mean nothing here."""
        self._poller = Poller(self._hang_up)
        _all.add(self)

    def register_presence(self, session: str | None) -> None:
        """Show a sign of life for ``session`` instead of the one before, while something waits."""
        self._registered = session
        self._poller.wake()

    def wait(self, timeout: float) -> None:
        """Wait so many seconds, or until the end, and show the sign meanwhile. Where that fails nothing is lost."""
        until = _CLOCK.monotonic() + max(0.0, timeout)
        pause = FIRST_PAUSE
        with self._poller:
            while not self._poller.is_closed():
                try:
                    self._show_until(until)
                except (MySQLError, CronsensusError, OSError):
                    now = _CLOCK.monotonic()
                    if self._driver is None or self._driver.shown is None:
                        pause, wait = min(2 * pause, LONGEST_PAUSE), pause
                    else:
                        # Cut off: at once back again, because others take the sign of life for a death when it stays
                        # away. But not at once if it had not been there for a moment.
                        pause, wait = FIRST_PAUSE, max(0.0, FIRST_PAUSE - (now - self._connected_at))
                    self._hang_up()
                    self._poller.wait([], min(until, now + wait))
                if _CLOCK.monotonic() >= until:
                    return

    def _show_until(self, until: float) -> None:
        """Show the sign that is wanted until another one is, or until then.

        Raises:
            MySQLError: the connection was cut off, or there is none.
        """
        session = self._registered
        if self._driver is None and session is not None and not self._in_vain:
            self._driver = self._connect()
            self._connected_at = _CLOCK.monotonic()
        driver = self._driver
        if driver is not None:
            self._in_vain = not show_sign(driver, self._place, session)
        if driver is None or session is None or self._in_vain:
            self._hang_up()
            self._poller.wait([], until)
            return
        next_use = _CLOCK.monotonic() + USED_EVERY
        if self._poller.wait([driver.socket_number], min(until, next_use)) or _CLOCK.monotonic() >= next_use:
            driver.ping(reconnect=False)  # the server says nothing unasked but good-bye

    def close(self) -> None:
        """Show none; ends a ``wait`` in another thread. Idempotent."""
        self._poller.close()

    def _hang_up(self) -> None:
        driver, self._driver = self._driver, None
        if driver is not None and driver.open:
            driver.close()

    def after_fork_in_child(self) -> None:
        """In a forked child: close the copy of the parent's connection, without sending anything to the server."""
        driver, self._driver = self._driver, None
        if driver is not None and driver.open:
            detach_inherited(driver.socket_number)
        self._registered = None
        self._poller.after_fork_in_child()


def _after_fork_in_child() -> None:
    for sign in list(_all):
        sign.after_fork_in_child()


call_after_fork(_after_fork_in_child)
