"""From a client of redis-py to the URL of its server."""

from __future__ import annotations

from typing import Any, Protocol, TypeGuard
from urllib.parse import quote

from cronsensus.errors import InvalidOption


class Client(Protocol):
    """A client of redis-py, sync or asyncio."""

    connection_pool: Any


def is_client(where: object) -> TypeGuard[Client]:
    """Whether this is a client of redis-py, or looks like one."""
    return hasattr(where, "connection_pool")


def url_of(client: Any) -> str:
    """Return the URL of the server that a client of redis-py talks to.

    Raises:
        InvalidOption: it is no such client, or one whose server cannot be named by a URL.
    """
    pool = getattr(client, "connection_pool", None)
    pool_arguments = getattr(pool, "connection_kwargs", None)
    if not isinstance(pool_arguments, dict) or "host" not in pool_arguments:
        raise InvalidOption(
            f"{type(client).__name__} is no client of redis-py for one server; give the URL, such as redis://localhost"
        )
    scheme = "rediss" if "SSL" in getattr(pool, "connection_class", type(None)).__name__ else "redis"
    user, password = pool_arguments.get("username"), pool_arguments.get("password")
    login = f"{quote(user or '', safe='')}:{quote(password, safe='')}@" if password else ""
    host = f"[{pool_arguments['host']}]" if ":" in pool_arguments["host"] else pool_arguments["host"]
    return f"{scheme}://{login}{host}:{pool_arguments.get('port', 6379)}/{pool_arguments.get('db', 0) or 0}"
