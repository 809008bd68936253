"""Cronsensus at home in Django: its tasks, its database, its ``manage.py``. The page is docs/django.md.

::

    INSTALLED_APPS += ["cronsensus.integrations.django"]
    TASKS = {"default": {"BACKEND": "cronsensus.integrations.django.Backend"}}

Nothing is imported before it is asked for: Django loads this package before its apps are ready.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cronsensus.integrations.django.backend import Backend as Backend
    from cronsensus.integrations.django.backend import periodic as periodic
    from cronsensus.integrations.django.running import atomic as atomic
    from cronsensus.scheduler import Scheduler

    scheduler: Scheduler

__all__ = ["Backend", "atomic", "periodic", "scheduler"]


def __getattr__(name: str) -> Any:
    """Give what users import from here; ``scheduler`` is the one of the project, made from Django's settings."""
    if name == "scheduler":
        from cronsensus.integrations.django.project import find_scheduler

        return find_scheduler()
    if name in {"Backend", "periodic"}:
        from cronsensus.integrations.django import backend

        return getattr(backend, name)
    if name == "atomic":
        from cronsensus.integrations.django.running import atomic

        return atomic
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
