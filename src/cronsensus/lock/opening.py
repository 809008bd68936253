"""Open the backend of a lock from its URL, store or client. Locks of this process in the same place share a backend."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from functools import partial

from cronsensus.errors import ConfigurationError, InvalidOption
from cronsensus.lock.backend import LockBackend
from cronsensus.lock.clients import Client, is_client, url_of
from cronsensus.lock.in_store import StoreLockBackend
from cronsensus.process.this_process import call_after_fork
from cronsensus.stores import missing_driver, open_store
from cronsensus.stores.base import Store
from cronsensus.timing.clock import SystemClock

Where = str | Store | Client | Sequence[str] | Callable[[], LockBackend]

ENTRY_POINTS = "cronsensus.locks"
"""The group of entry points of optional backends in ``pyproject.toml``: this module must not import them itself."""

_LONGEST_REPR = 100

_guard = threading.Lock()
_backends: dict[Hashable, LockBackend] = {}
_of_the_parent: list[object] = []


def backend_of(place: Where, namespace: str | None, *, stop: bool = False) -> Callable[[], LockBackend]:
    """Return a function that returns the backend of a place. It is opened once, and anew in a forked child.

    Args:
        place: ``where`` of ``Lock``.
        namespace: likewise.
        stop: refuse locks once the store was emptied (``on_store_loss="stop"``).

    Raises:
        InvalidOption: a lock cannot be held there.
        UnknownStore, MissingExtra: as ``open_store``.
    """
    if isinstance(place, Store):
        if namespace is not None and namespace != place.namespace:
            raise InvalidOption(f"namespace={namespace!r}: the store is open in {place.namespace!r}; open another one")
        return partial(_cached_backend, (place, stop), lambda: _in_store(place.sibling(), stop=stop))
    if is_client(place):
        return backend_of(url_of(place), namespace, stop=stop)
    if stop and not (isinstance(place, str) and not place.startswith("file:")):
        raise InvalidOption(
            "on_store_loss='stop': only a lock in a store finds out that its store was emptied; a lock in files or on "
            "several masters does not, and one of a scheduler has the scheduler's on_store_loss; leave it out"
        )
    if callable(place):
        return place
    if isinstance(place, str) and place.strip():
        url, space = place, namespace or "default"
        at_url = partial(_cached_backend, (url, space, stop), lambda: _open_backend(url, space, stop=stop))
        at_url()  # raises for an unknown kind of URL; connects to nothing yet
        return at_url
    if isinstance(place, (list, tuple)) and place and all(isinstance(url, str) for url in place):
        urls, space = tuple(place), namespace or "default"
        at_masters = partial(_cached_backend, (urls, space), lambda: _open_masters(urls, space))
        at_masters()
        return at_masters
    shown_place = repr(place)
    if len(shown_place) > _LONGEST_REPR:
        shown_place = type(place).__name__
    raise InvalidOption(
        f"{shown_place} is no place for a lock; write the URL of a store such as redis://localhost, "
        "file:///var/lock/app, or a list of redis:// URLs"
    )


def _open_backend(url: str, namespace: str, *, stop: bool) -> LockBackend:
    if url.startswith("file:"):
        from cronsensus.lock.in_files import FileLockBackend

        return FileLockBackend(url, namespace)
    return _in_store(open_store(url, namespace=namespace), stop=stop)


def _in_store(store: Store, *, stop: bool) -> LockBackend:
    return StoreLockBackend(store, SystemClock(), owned=True, stop=stop)


def _open_masters(urls: tuple[str, ...], namespace: str) -> LockBackend:
    from importlib.metadata import entry_points

    entry_points_found = entry_points(group=ENTRY_POINTS, name="redlock")
    if not entry_points_found:
        raise ConfigurationError(
            "this installation of cronsensus does not name its part for locks at a majority of Redis masters (its "
            "metadata are old or missing); install it again: pip install --force-reinstall --no-deps cronsensus, or "
            "scripts/setup in a checkout"
        )
    try:
        make: Callable[[Sequence[str], str], LockBackend] = next(iter(entry_points_found)).load()
    except ImportError as error:
        raise missing_driver(error, "redis", extra="redis") from error
    return make(urls, namespace)


def _cached_backend(key: Hashable, make: Callable[[], LockBackend]) -> LockBackend:
    cached = _backends.get(key)
    if cached is not None:
        return cached
    with _guard:
        backend = _backends.get(key)
        if backend is None:
            backend = _backends[key] = make()
        return backend


def close_all() -> None:
    """Release all locks that this process holds and close connections; a later acquire opens a new backend."""
    with _guard:
        backends = list(_backends.values())
        _backends.clear()
    for backend in backends:
        backend.close()


def _in_child() -> None:
    """Leave the parent's backends, with the locks they hold, to the parent."""
    global _guard  # noqa: PLW0603 - the parent's thread that may hold it does not exist here
    _guard = threading.Lock()
    _of_the_parent.extend(_backends.values())
    _backends.clear()


call_after_fork(_in_child)
