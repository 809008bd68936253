"""``settings.CRONSENSUS``: which database is the store, and the options of the scheduler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

_OF_SCHEDULER = (
    "namespace", "lease", "defaults", "concurrency", "node", "release", "drain_timeout", "fast_evidence",
    "retire_after", "tz", "on_store_loss", "alerts", "heartbeat_url",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ProjectOptions:
    """The options of a project.

    Attributes:
        database: the alias of the database that is the store.
        url: of another store; then nothing commits with Django's transactions.
        modules: names of modules of apps that are imported when Django is ready: they declare jobs.
        scheduler: arguments of the ``Scheduler``.
    """

    database: str = "default"
    url: str | None = None
    modules: tuple[str, ...] = ("jobs", "tasks")
    scheduler: Mapping[str, Any] = field(default_factory=dict)


def read_options() -> ProjectOptions:
    """Read ``settings.CRONSENSUS``.

    Raises:
        ImproperlyConfigured: it names something that is not there.
    """
    options = dict(getattr(settings, "CRONSENSUS", {}))
    known = ("database", "url", "modules", *_OF_SCHEDULER)
    if unknown := sorted(options.keys() - set(known)):
        raise ImproperlyConfigured(f"CRONSENSUS has no {unknown[0]!r}; there are {', '.join(known)}")
    database = options.pop("database", "default")
    if database not in connections.settings:
        raise ImproperlyConfigured(
            f"CRONSENSUS['database'] = {database!r} is none of DATABASES, which are {', '.join(connections.settings)}"
        )
    modules = tuple(options.pop("modules", ("jobs", "tasks")))
    return ProjectOptions(database, options.pop("url", None), modules, options)
