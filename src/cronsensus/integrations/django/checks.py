"""Django's system checks for a project that uses cronsensus."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage, Error
from django.core.checks import Warning as CheckWarning
from django.core.exceptions import ImproperlyConfigured
from django.db import connections, router

from cronsensus.integrations.django.options import read_options
from cronsensus.stores.filesystems import is_network, kind_of


def find_faults(queues: Collection[str]) -> list[CheckMessage]:
    """Return errors and warnings about the settings.

    Args:
        queues: the queues of the backend.
    """
    if not apps.is_installed("cronsensus.integrations.django"):
        return [
            Error(
                "tasks go to cronsensus, whose app is not installed: no tables, no manage.py cronsensus, so no node",
                hint='INSTALLED_APPS += ["cronsensus.integrations.django"]', id="cronsensus.E004",
            )
        ]  # fmt: skip
    try:
        options = read_options()
    except ImproperlyConfigured as error:
        return [Error(str(error), id="cronsensus.E003")]
    faults: list[CheckMessage] = []
    if not settings.USE_TZ:
        hint = "USE_TZ = True"
        faults.append(
            CheckWarning("USE_TZ is off, so run_after and due times are ambiguous", hint=hint, id="cronsensus.W001")
        )
    if len(queues) > 1:
        faults.append(
            CheckWarning(
                f"nodes run the tasks of all QUEUES alike: {', '.join(sorted(queues))}", id="cronsensus.W005",
                hint="give what must not wait a priority, or run a project of its own for it",
            )
        )  # fmt: skip
    if options.url is not None:
        faults.append(
            CheckWarning(
                "the store is no database of Django's, so tasks do not commit with its transactions",
                id="cronsensus.W004", hint="leave CRONSENSUS['url'] out, or enqueue in transaction.on_commit()",
            )
        )  # fmt: skip
        return faults
    if elsewhere := sorted({router.db_for_write(model) for model in _models_of_apps()} - {options.database}):
        faults.append(
            CheckWarning(
                f"rows in {', '.join(elsewhere)} do not commit with tasks, which are in {options.database}",
                id="cronsensus.W006",
                hint=f"enqueue in transaction.on_commit(…, using={elsewhere[0]!r}), or keep rows and tasks together",
            )
        )  # fmt: skip
    connection: Any = connections[options.database]
    return faults + (_faults_of_sqlite(options.database, connection) if connection.vendor == "sqlite" else [])


def _models_of_apps() -> list[Any]:
    """Return the models that tasks may be about: neither the library's, which read the store, nor Django's own."""
    return [
        model
        for model in apps.get_models()
        if model._meta.managed and not model.__module__.startswith("django.contrib.")  # noqa: SLF001 - Django's form
    ]


def _faults_of_sqlite(alias: str, connection: Any) -> list[CheckMessage]:
    settings_dict, options = connection.settings_dict, connection.settings_dict.get("OPTIONS", {})
    setting = f"DATABASES[{alias!r}]"
    faults: list[CheckMessage] = []
    file_system = kind_of(_folder_of(settings_dict["NAME"]))
    if is_network(file_system):
        faults.append(
            Error(
                f"{setting} lies on a network file system ({file_system}), where SQLite's locks do not hold between "
                "hosts",
                hint="use a local disk, or a server", id="cronsensus.E002",
            )
        )  # fmt: skip
    if options.get("transaction_mode") != "IMMEDIATE":
        faults.append(
            CheckWarning(
                f"{setting}: a transaction that reads, and enqueues after another process has written, fails at once",
                hint=f"{setting}['OPTIONS'] = {{'transaction_mode': 'IMMEDIATE'}}", id="cronsensus.W002",
            )
        )  # fmt: skip
    if float(options.get("timeout", 5)) < 5:
        faults.append(
            CheckWarning(
                f"{setting} gives up a lock after {options['timeout']} s", hint="5 or more", id="cronsensus.W003"
            )
        )
    return faults


def _folder_of(name: object) -> Any:
    from pathlib import Path

    return Path(str(name)).resolve().parent
