"""The URL of the store that is one of Django's databases."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

from django.core.exceptions import ImproperlyConfigured
from django.db import connections

_SCHEMES = {"postgresql": "postgresql", "mysql": "mysql"}
_PASSED_ON = {"sslmode", "sslrootcert", "sslcert", "sslkey", "connect_timeout", "target_session_attrs"}
"""Options of a connection to PostgreSQL that libpq knows, and that concern how the server is reached."""


def is_in_memory(name: object) -> bool:
    """Whether a database of SQLite's is no file; Django's tests make such a one unless told otherwise."""
    return str(name) in {"", ":memory:"} or "mode=memory" in str(name)


def url_of(alias: str) -> str:
    """Return the URL of a database as it is now: a test has another one.

    Raises:
        ImproperlyConfigured: it cannot be a store.
    """
    connection: Any = connections[alias]
    known = connection.settings_dict
    if connection.vendor == "sqlite":
        if is_in_memory(known["NAME"]):
            raise ImproperlyConfigured(
                f"DATABASES[{alias!r}] is in memory, and nodes and threads cannot share that; for tests give it a "
                f"file: DATABASES[{alias!r}]['TEST'] = {{'NAME': BASE_DIR / 'test.sqlite3'}}, or use Django's own "
                "backend there: TASKS = {'default': {'BACKEND': 'django.tasks.backends.immediate.ImmediateBackend'}}"
            )
        return f"sqlite:///{known['NAME']}"
    scheme = _SCHEMES.get(connection.vendor)
    if scheme is None:
        raise ImproperlyConfigured(
            f"DATABASES[{alias!r}] is {connection.vendor}, which cannot be a store; use one of postgresql, mysql and "
            "sqlite, or CRONSENSUS = {'url': 'redis://…'}"
        )
    user, password, host, port = (str(known[name] or "") for name in ("USER", "PASSWORD", "HOST", "PORT"))
    query: dict[str, str] = {}
    if scheme == "postgresql":
        options = known.get("OPTIONS", {})
        query = {"schema": "public"} | {name: str(options[name]) for name in _PASSED_ON & options.keys()}
    if host.startswith("/"):  # the folder, or the file, of a socket
        query["host" if scheme == "postgresql" else "unix_socket"] = host
        host = ""
    login = quote(user, safe="") + (f":{quote(password, safe='')}" if password else "") + "@" if user else ""
    place = f"{login}{host or ('' if 'host' in query else 'localhost')}{f':{port}' if port else ''}"
    return f"{scheme}://{place}/{quote(str(known['NAME']), safe='')}" + (f"?{urlencode(query)}" if query else "")
