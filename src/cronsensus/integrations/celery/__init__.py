"""Celery on every machine: each scheduled time is sent by one beat.

::

    from cronsensus.integrations.celery import configure

    configure(app, "postgresql://…")

Needs ``pip install "cronsensus[celery]"``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cronsensus.errors import ConfigurationError

if TYPE_CHECKING:
    from celery.beat import Scheduler as Scheduler

    from cronsensus.integrations.celery.configuring import configure as configure
    from cronsensus.integrations.celery.wrapping import wrap as wrap

__all__ = ["DatabaseScheduler", "RedBeatScheduler", "Scheduler", "configure", "wrap"]

_WRAPPED = {
    "Scheduler": ("celery.beat", "Scheduler", "celery"),
    "DatabaseScheduler": ("django_celery_beat.schedulers", "DatabaseScheduler", "django-celery-beat"),
    "RedBeatScheduler": ("redbeat", "RedBeatScheduler", "celery-redbeat"),
}


def __getattr__(name: str) -> Any:
    """Import what is asked for; a program that reads a crontab of Celery's needs no Celery."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    require_celery()
    if name == "configure":
        return import_module(f"{__name__}.configuring").configure
    wrap = import_module(f"{__name__}.wrapping").wrap
    if name == "wrap":
        return wrap
    module, kind, package = _WRAPPED[name]
    try:
        return wrap(getattr(import_module(module), kind))
    except ImportError as error:
        raise ConfigurationError(f"{name} needs {package} ({error}); type: pip install {package}") from error


def require_celery() -> None:
    """Return if a Celery that this is tried with is installed.

    Raises:
        ConfigurationError: it is not; says what to type.
    """
    try:
        from celery import VERSION
    except ImportError as error:
        text = f'this needs Celery 5.7 or newer ({error}); type: pip install "cronsensus[celery]"'
        raise ConfigurationError(text) from error
    if VERSION[:2] < (5, 7):
        found = ".".join(map(str, VERSION[:3]))
        raise ConfigurationError(f'Celery {found}: this is tried with 5.7 and newer; type: pip install "celery>=5.7"')
