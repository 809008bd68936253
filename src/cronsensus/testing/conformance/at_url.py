"""The suite on the store behind a URL: ``cronsensus store-check`` has pytest collect this file.

Of several URLs, which lead to servers of one store, each handle that a test opens takes the next.

Each test has namespaces of its own, so the tables are made once, and what the test before has left is not seen.
"""

from __future__ import annotations

import itertools
import os
import uuid
from typing import Any

from cronsensus.stores import Store, open_store
from cronsensus.testing.conformance import StoreConformance
from cronsensus.timing.clock import Clock

URL = "CRONSENSUS_STORE_CHECK_URL"
"""The variable that names the store: with its password, so it is no argument of a command. One URL a line."""
_DRIVERS = {"postgres": "postgresql+psycopg", "postgresql": "postgresql+psycopg"}
_DRIVERS |= {"mysql": "mysql+pymysql", "mariadb": "mysql+pymysql", "sqlite": "sqlite"}


class TestStoreAtUrl(StoreConformance):
    """Every test of a store, one after the other."""

    def setup_method(self) -> None:
        """Choose namespaces that nobody has used."""
        super().setup_method()
        self._own = f"check-{uuid.uuid4().hex[:12]}"
        self._urls = os.environ[URL].splitlines()
        self._next_url = itertools.cycle(self._urls)

    def namespace_of(self, name: str) -> str:
        """Return the namespace of this test that stands for ``name``."""
        return f"{self._own}-{name}"

    def make_store(self, clock: Clock, namespace: str = "default") -> Store:
        """Open a handle."""
        return open_store(next(self._next_url), namespace=self.namespace_of(namespace), clock=clock)

    def sibling(self) -> Store:
        """Open a second handle on the store in use; of several URLs at the next one."""
        if len(self._urls) == 1:
            return super().sibling()
        store = open_store(next(self._next_url), namespace=self.store.namespace, clock=self.clock)
        self._opened.append(store)
        return store

    def make_connection(self) -> Any:
        """Open a connection as a user does, by the parts of the URL that a driver knows."""
        from sqlalchemy import NullPool, create_engine, make_url

        url = self._urls[0]
        scheme = url.partition(":")[0]
        if scheme.startswith("postgres"):
            import psycopg

            from cronsensus.stores.sql.postgres.postgres_url import read_url

            known: dict[str, Any] = dict(read_url(url).connection)
            options: dict[str, Any] = {"creator": lambda: psycopg.connect(**known)}
            return create_engine("postgresql+psycopg://", poolclass=NullPool, **options).connect()
        plain = make_url(url).set(drivername=_DRIVERS[scheme], query={})
        return create_engine(plain, poolclass=NullPool).connect()
