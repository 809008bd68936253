"""The app of Django: it imports the modules that declare jobs, and starts nothing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from django.apps import AppConfig
from django.db import connections
from django.db.models.signals import post_migrate
from django.utils.module_loading import autodiscover_modules


class CronsensusConfig(AppConfig):
    """The app; ``manage.py cronsensus run`` is what starts a node."""

    name = "cronsensus.integrations.django"
    label = "cronsensus_django"
    verbose_name = "cronsensus"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Import what declares jobs: a node runs what its process declares, and imports nothing that a store names."""
        from cronsensus.integrations.django.options import read_options
        from cronsensus.stores.sql.sqlite.sqlite_store import add_transaction_finder

        post_migrate.connect(prepare_store, sender=self)
        post_migrate.connect(write_back_in_tests)
        add_transaction_finder(find_atomic)
        if modules := read_options().modules:
            autodiscover_modules(*modules)


def find_atomic(path: Path) -> Any:
    """Return Django's connection to a file of SQLite's, if this thread is inside ``atomic`` on it."""
    from cronsensus.integrations.django.options import read_options

    options = read_options()
    connection: Any = connections[options.database]
    if options.url is not None or connection.vendor != "sqlite" or not connection.in_atomic_block:
        return None
    name = Path(str(connection.settings_dict["NAME"]))
    return connection.connection if name.exists() and path.exists() and path.samefile(name) else None


def prepare_store(sender: AppConfig, *, using: str, verbosity: int = 1, **_: Any) -> None:  # noqa: ARG001 - a signal's
    """Bring the tables up to date behind ``manage.py migrate``, and put declared jobs into them.

    With that no first enqueue has to define its job, which it could not inside a transaction of SQLite.
    """
    from cronsensus.integrations.django.options import read_options
    from cronsensus.integrations.django.project import empty_store, find_scheduler, let_go_in_tests
    from cronsensus.integrations.django.running import is_in_tests

    options = read_options()
    if options.url is None and using != options.database:
        return
    scheduler = find_scheduler()
    for name in scheduler.store.migrate():
        if verbosity:
            sys.stdout.write(f"  cronsensus: {name}\n")
    if options.url is None and is_in_tests() and not scheduler.started:
        empty_store(options.database)
    scheduler.define()
    let_go_in_tests()


def write_back_in_tests(*, using: str, **_: Any) -> None:
    """Put what is in SQLite's log into the file: ``manage.py test --parallel`` copies that alone."""
    from cronsensus.integrations.django.options import read_options
    from cronsensus.integrations.django.running import is_in_tests

    connection: Any = connections[using]
    if is_in_tests() and using == read_options().database and connection.vendor == "sqlite":
        with connection.cursor() as cursor:
            cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
