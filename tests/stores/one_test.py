"""One test of the conformance suite, run on any store: for tests that expect it to fail."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from cronsensus.stores import Store
from cronsensus.stores.sql.sqlite import SqliteStore
from cronsensus.testing.conformance import StoreConformance
from cronsensus.timing.clock import Clock


def run(
    opened: Callable[[Clock, str], Store], test: str, *arguments: str, connect: Callable[[], Any] | None = None
) -> BaseException | None:
    """Run one test of the suite as pytest would; return what it raised."""

    class Suite(StoreConformance):
        patience = 1.0

        def make_store(self, clock: Clock, namespace: str = "default") -> Store:
            return opened(clock, namespace)

        def make_connection(self) -> Any:
            assert connect is not None
            return connect()

    suite = Suite()
    suite.setup_method()
    try:
        getattr(suite, test)(*arguments)
    except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - whatever pytest would report
        return error
    finally:
        suite.teardown_method()
    return None


def run_on_sqlite(folder: Path, test: str, *arguments: str) -> BaseException | None:
    """Run one test of the suite on a database in a new folder; return what it raised."""
    folder.mkdir()
    url = f"sqlite:///{folder}/jobs.db"
    return run(
        lambda clock, namespace: SqliteStore(url, namespace=namespace, clock=clock),
        test,
        *arguments,
        connect=lambda: create_engine(url, poolclass=NullPool).connect(),
    )
