"""The scheduler of a Django project, made from its settings at first use."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connections, transaction

from cronsensus.integrations.django.database import url_of
from cronsensus.integrations.django.options import ProjectOptions, read_options
from cronsensus.integrations.django.running import is_in_tests, mind_connections
from cronsensus.scheduler import Scheduler
from cronsensus.stores.sql.sql_handle import SqlHandle

_KEPT_TABLES = {"cronsensus_schema", "cronsensus_counters"}
"""Tables that have rows from the start."""
_lock = threading.RLock()
_made: tuple[Scheduler, str] | None = None
"""The scheduler, and the URL that it was given last."""
_url_when_ready = ""
"""The URL before a test runner renamed the database."""


class ProjectScheduler(Scheduler):
    """A scheduler that manages Django's connections around runs."""

    def job(self, *args: Any, **options: Any) -> Any:
        """Declare a job; see ``Scheduler.job``."""
        declare = self._definitions.job(*args, **options)
        return lambda function: declare(mind_connections(function))

    def function(self, function: Any = None, /, **options: Any) -> Any:
        """Register a function for jobs that are added at run time; see ``Scheduler.function``."""
        register: Callable[[Any], Any] = self._definitions.function(**options)
        return (
            (lambda decorated: register(mind_connections(decorated)))
            if function is None
            else register(mind_connections(function))
        )


def find_scheduler() -> Scheduler:
    """Return the scheduler of the project, on the database by its present name: a test has another database.

    Raises:
        ImproperlyConfigured: the settings name no database that could be the store.
    """
    global _made, _url_when_ready  # noqa: PLW0603 - one for each process
    options = read_options()
    url = find_url(options)
    with _lock:
        if _made is None:
            _url_when_ready = "" if is_in_tests() else url
            scheduler_options = {"tz": settings.TIME_ZONE} | dict(options.scheduler)
            _made = ProjectScheduler(url, **scheduler_options), url
        scheduler, made_for = _made
        if url != made_for and not scheduler.started:
            scheduler.configure({"url": url})
            _made = scheduler, url
        return scheduler


def find_url(options: ProjectOptions) -> str:
    """Return the URL of the store."""
    return options.url or url_of(options.database)


def empty_store(alias: str) -> None:
    """Empty the store of a test: ``flush`` between two tests empties only the tables that Django manages."""
    from cronsensus.stores.sql.schema import metadata

    scheduler, url = find_scheduler(), find_url(read_options())
    connection: Any = connections[alias]
    with transaction.atomic(using=alias), connection.cursor() as cursor:
        for table in sorted(metadata.tables.keys() - _KEPT_TABLES):
            cursor.execute(f"DELETE FROM {connection.ops.quote_name(table)}")  # noqa: S608 - our own names
    scheduler.configure({"url": "memory://"})  # forgets its caches of the rows
    scheduler.configure({"url": url})


def require_test_database() -> None:
    """Refuse to enqueue in a test without a test database for the store: the run would go to the project's own.

    A test with the kit needs none.

    Raises:
        ImproperlyConfigured: the runner has made none; the message says what to write.
        AssertionError: this test case may not use it; Django's own, as for a query.
    """
    options = read_options()
    if options.url is not None or not is_in_tests() or find_scheduler()._opened.is_swapped:  # noqa: SLF001 - our room
        return
    if url_of(options.database) == _url_when_ready:
        aliases = ", ".join(repr(alias) for alias in dict.fromkeys(("default", options.database)))
        raise ImproperlyConfigured(
            f"DATABASES[{options.database!r}] is no database of these tests; use TestCase or TransactionTestCase with "
            f"databases = {{{aliases}}}"
        )
    connect: Any = connections[options.database].connect
    if hasattr(connect, "wrapped"):  # what Django puts there in a test case that may not use it; it only raises
        connect()


def let_go_in_tests() -> None:
    """Close idle connections of the store: a database with a connection cannot be dropped."""
    if is_in_tests() and _made is not None:
        store: Any = _made[0].store
        if isinstance(store, SqlHandle):
            store.forget_idle()
