"""A scheduler's store, opened at first use, and the sessions of its locks and guarded functions."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from cronsensus.config import Settings
from cronsensus.errors import ConfigurationError, InvalidOption
from cronsensus.opened.scheduler_setup import Setup
from cronsensus.opened.waits import Waits
from cronsensus.process.forking import left_to_the_parent, register_for_forks
from cronsensus.process.logger import Logger
from cronsensus.stores import open_store
from cronsensus.stores.base import Span, Store
from cronsensus.stores.connecting import connecting

if TYPE_CHECKING:
    from cronsensus.lock.in_store import StoreLockBackend
    from cronsensus.membership.heartbeat import Heartbeat
    from cronsensus.once.claims import Claims
    from cronsensus.outside.claims import OutsideClaims
    from cronsensus.outside.outside import Outside

_log = Logger("cronsensus.scheduler")


class Holdings(Protocol):
    """The locks and guarded calls of a process."""

    def lock_backend(self) -> StoreLockBackend:
        """Return the holder of its locks."""

    def claims(self) -> Claims:
        """Return the holder of its claims of guarded functions."""


class OpenedStore:
    """The store of a scheduler: the one that the settings name, or an open store that the caller passed.

    Attributes:
        lock: held while anything is opened or closed.
        waits: how callers wait for the end of a run.
        is_swapped: whether a test has replaced the store of the settings.
    """

    def __init__(self, setup: Setup, given: Store | None, span: Callable[[], Span | None]) -> None:
        """Open nothing yet.

        Args:
            setup: where the store is.
            given: an open store, which stays the caller's to close; ``None``: that of the settings.
            span: returns the context manager to enter around each verb, or ``None``.
        """
        self.lock: threading.RLock = threading.RLock()
        self.waits: Waits = Waits()
        self._setup = setup
        self._given = given
        self._span = span
        self._span_set: Span | None = None
        self._store: Store | None = None
        self._shared: Store | None = None
        self._heartbeat: Heartbeat | None = None
        self._lock_backend: StoreLockBackend | None = None
        self._claims: Claims | None = None
        self._outside: OutsideClaims | None = None
        self._find_holdings: Callable[[], Holdings] | None = None
        """In a test, whose simulated processes share a memory: finds the holdings of the calling process."""
        self._opened_as = ("", "")
        self._crossed_a_fork = False
        self._warns_of_memory = False
        self._migrated = False
        self.is_swapped = False
        register_for_forks(self)
        _all.add(self)

    @property
    def store(self) -> Store:
        """The store, opened at first use, without a change of its schema."""
        with self.lock:
            if self._store is None:
                if self._crossed_a_fork:
                    raise ConfigurationError(
                        "the store that this scheduler was given was opened before the process was forked, and its "
                        "connections are the parent's; give the scheduler a URL, or make it in the child"
                    )
                settings, self._store = self._setup.settings, self._given
                if self._store is None:
                    _refuse_in_test(settings)
                    clock = self._setup.given_clock
                    self._store = open_store(settings.url, namespace=settings.namespace, clock=clock)
                self._opened_as = (settings.url, settings.namespace)
                self._migrated = False
                in_memory = self._store.capabilities.clock == "process"
                if self._warns_of_memory and in_memory and not self.is_swapped:
                    _log.warning(
                        "this process was forked, and memory:// is not shared with other processes: each worker has "
                        "jobs, runs and locks of its own; give them one store, such as sqlite:///cronsensus.db"
                    )
                self._warns_of_memory = False
                self.measure()
            return self._store

    def measure(self) -> None:
        """Set or remove the span around each verb, as ``span()`` wants it now. A span that the caller has set stays."""
        with self.lock:
            store = self._store
            if store is not None and (store.span is None or store.span == self._span_set):
                store.span = self._span_set = self._span()

    def ready(self) -> Store:
        """Return the store with an up-to-date schema."""
        store = self.store
        if not self._migrated:
            with connecting(self._setup.settings.url, _log.info):
                store.migrate()
            self._migrated = True
        return store

    def heartbeat(self) -> Heartbeat:
        """Return the heartbeat that renews the sessions of its node, its locks and its guarded functions."""
        from cronsensus.membership.heartbeat import Heartbeat

        with self.lock:
            if self._heartbeat is None:
                self._heartbeat = Heartbeat(self.store, self._setup.clock)
            return self._heartbeat

    def shared(self) -> Store:
        """Return the store handle for locks and guarded functions: a sibling, if the store was given."""
        store = self.ready()
        if store is not self._given:
            return store
        if self._shared is None:
            self._shared = store.sibling()
        return self._shared

    def lock_backend(self) -> StoreLockBackend:
        """Return the holder of this process's locks in the store."""
        from cronsensus.lock.in_store import StoreLockBackend

        if self._find_holdings is not None:
            return self._find_holdings().lock_backend()
        with self.lock:
            if self._lock_backend is None:
                self._lock_backend = StoreLockBackend(
                    self.shared(),
                    self._setup.clock,
                    name=self._setup.node_name,
                    heartbeat=self.heartbeat(),
                    fast_evidence=self._setup.settings.fast_evidence,
                    stop=self._setup.stops_on_store_loss,
                )
            return self._lock_backend

    def claims(self) -> Claims:
        """Return the holder of this process's claims of guarded functions."""
        from cronsensus.once.claims import Claims

        if self._find_holdings is not None:
            return self._find_holdings().claims()
        with self.lock:
            if self._claims is None:
                self._claims = Claims(self.shared(), self._setup.clock, **self._claims_options())
            return self._claims

    def outside(self) -> Outside:
        """Return the access for programs that keep the time themselves; its claims are apart from guarded functions."""
        from cronsensus.outside.claims import OutsideClaims
        from cronsensus.outside.outside import Outside

        with self.lock:
            if self._outside is None:
                self._outside = OutsideClaims(self.shared(), self._setup.clock, **self._claims_options())
            return Outside(self._outside)

    def _claims_options(self) -> dict[str, Any]:
        return {
            "name": self._setup.node_name,
            "heartbeat": self.heartbeat(),
            "release": lambda: self._setup.release,
            "lease": self._setup.settings.lease,
            "fast_evidence": self._setup.settings.fast_evidence,
            "stop": self._setup.stops_on_store_loss,
        }

    def move(self, settings: Settings) -> None:
        """Close the store if the settings name another store now."""
        if self.is_swapped:
            return
        if settings.source("url") == "flag" and self._given is not None:
            self._given = None
        elif (settings.url, settings.namespace) == self._opened_as:
            return
        self.close()
        self._store = self._shared = self._heartbeat = None

    @contextmanager
    def swapped(self, store: Store, waits: Waits, find_holdings: Callable[[], Holdings]) -> Iterator[None]:
        """Use ``store`` in place of that of the settings, even if they change, until the block ends.

        ``find_holdings`` returns the locks and guarded calls of the simulated process that calls it.
        """
        nothing_open = {
            "_given": store, "waits": waits, "_find_holdings": find_holdings, "is_swapped": True,
            "_opened_as": ("", ""), "_migrated": False,
            **dict.fromkeys(("_store", "_shared", "_heartbeat", "_lock_backend", "_claims", "_outside")),
        }  # fmt: skip
        with self.lock:
            replaced = {name: getattr(self, name) for name in nothing_open}
            vars(self).update(nothing_open)
        try:
            yield
        finally:
            with self.lock:
                self.close()
                vars(self).update(replaced)

    def close(self) -> None:
        """Close connections, except those of held locks and of running guarded functions.

        A store in this process's memory would be lost with its handle, so it is kept.
        """
        lock_backend, claims, outside, store = self._lock_backend, self._claims, self._outside, self._store
        if lock_backend is not None and lock_backend.is_idle:
            self._lock_backend = None
            lock_backend.close()
        if claims is not None and claims.is_idle:
            self._claims = None
            claims.close()
        if outside is not None and outside.is_idle:
            self._outside = None
            outside.close()
        if self._lock_backend is not None or self._claims is not None or self._outside is not None:
            return
        if self._shared is not None:
            self._shared.close()
            self._shared = None
        if store is None or store is self._given or store.capabilities.clock == "process":
            return
        self._store = None
        store.close()

    def forked(self) -> None:
        """Leave the parent's connections to the parent; called in the child right after the fork."""
        self._warns_of_memory = True
        self.lock = threading.RLock()
        mine = (self._store, self._shared, self._heartbeat, self._lock_backend, self._claims, self._outside)
        left_to_the_parent.extend(mine)
        self._store = self._shared = self._heartbeat = self._lock_backend = self._claims = self._outside = None
        if self._given is not None and self._given.capabilities.clock != "process":
            left_to_the_parent.append(self._given)
            self._crossed_a_fork = True


REAL_STORES = "CRONSENSUS_REAL_STORES"
"""Set to ``refuse`` while a test runs that may use only memory. A variable can be set without an import."""


def _refuse_in_test(settings: Settings) -> None:
    """Raise if a test is about to open a real store."""
    if os.environ.get(REAL_STORES) == "refuse" and not settings.url.startswith("memory:"):
        raise ConfigurationError(
            f"this test would use the real store {settings.shown('url')}; take the fixture cronsensus, which "
            "puts memory in its place, or mark the test @pytest.mark.real_store"
        )


def _at_exit() -> None:
    """Close the stores that are still open; the nodes were stopped before, because they registered for that later."""
    for opened in list(_all):
        opened.close()


_all: weakref.WeakSet[OpenedStore] = weakref.WeakSet()
atexit.register(_at_exit)


def refuse_connection(given: object) -> None:
    """Raise for a connection or a client, with the URL to write: each node needs connections of its own.

    Raises:
        InvalidOption: it is one of these.
    """
    kind = type(given)
    url = {
        "psycopg": "postgresql://USER:PASSWORD@HOST/DATABASE",
        "asyncpg": "postgresql://USER:PASSWORD@HOST/DATABASE",
        "pymysql": "mysql://USER:PASSWORD@HOST/DATABASE",
        "sqlite3": "sqlite:///FILE",
        "redis": "redis://HOST:6379/0",
        "sqlalchemy": "",
    }.get(kind.__module__.partition(".")[0])
    if url is None:
        return
    write = repr(url) if url else "engine.url.render_as_string(hide_password=False)"
    about = getattr(getattr(given, "connection_pool", None), "connection_kwargs", None)
    if isinstance(about, dict) and about.get("host"):
        secret = ":PASSWORD@" if about.get("password") else ""
        write = repr(f"redis://{secret}{about['host']}:{about.get('port', 6379)}/{about.get('db') or 0}")
    raise InvalidOption(
        f"Scheduler({kind.__module__.partition('.')[0]}'s {kind.__name__}): a scheduler opens connections of its own, "
        f"and so takes a URL; write Scheduler({write})"
    )
