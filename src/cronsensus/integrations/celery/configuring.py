"""``configure``: one call that makes an app of Celery safe on every machine."""

from __future__ import annotations

from typing import Any

from celery import Celery, signals
from celery.signals import beat_embedded_init, beat_init

from cronsensus.errors import ConfigurationError
from cronsensus.integrations.celery.beat import BeatScheduler
from cronsensus.integrations.celery.part import Options, make_scheduler
from cronsensus.process.logger import Logger
from cronsensus.timing.durations import Duration

_log = Logger("cronsensus.celery")

SCHEDULER = "cronsensus.integrations.celery:Scheduler"
SCHEDULERS = {
    "celery.beat:PersistentScheduler": SCHEDULER,
    "celery.beat:Scheduler": SCHEDULER,
    "celery.beat.PersistentScheduler": SCHEDULER,
    "celery.beat.Scheduler": SCHEDULER,
    "django_celery_beat.schedulers:DatabaseScheduler": "cronsensus.integrations.celery:DatabaseScheduler",
    "django_celery_beat.schedulers.DatabaseScheduler": "cronsensus.integrations.celery:DatabaseScheduler",
    "redbeat.RedBeatScheduler": "cronsensus.integrations.celery:RedBeatScheduler",
    "redbeat:RedBeatScheduler": "cronsensus.integrations.celery:RedBeatScheduler",
    "redbeat.schedulers:RedBeatScheduler": "cronsensus.integrations.celery:RedBeatScheduler",
    "redbeat.schedulers.RedBeatScheduler": "cronsensus.integrations.celery:RedBeatScheduler",
}
"""Schedulers of beat that an app may name, and what stands in for each."""


def configure(
    app: Celery,
    url: str | None = None,
    *,
    namespace: str | None = None,
    lease: Duration | None = None,
) -> None:
    """Let ``celery beat`` run on every machine, or ``-B`` on every worker: each scheduled time is sent by one of them.

    To be called where the app is made. Nothing is opened until beat starts. Each (entry, time) is acquired in the store
    before it is sent, and is a run in the ledger. Intervals are due at their multiples since 1970, so that all beats
    agree on them.

    Args:
        app: the app.
        url: of the store; ``None``: as for ``Scheduler``, from ``CRONSENSUS_URL`` or ``[tool.cronsensus]``. A file of
            SQLite does for one machine.
        namespace: of the jobs in the store; two apps on one store need two.
        lease: how long a process without a sign of life keeps what it holds.

    Raises:
        ConfigurationError: no store is named, or it is no app.
        InvalidOption: an impossible option.
    """
    if not isinstance(app, Celery):
        raise ConfigurationError(f"configure({app!r}): it wants the app: app = Celery(…); configure(app, …)")
    options = Options(url, namespace, lease)
    make_scheduler(options)  # a wrong option is an error here, where it was written
    app.__dict__["_cronsensus"] = options
    named = str(app.conf.beat_scheduler)
    app.conf.beat_scheduler = SCHEDULERS.get(named, named)


@beat_init.connect(weak=False)  # type: ignore[untyped-decorator]
@beat_embedded_init.connect(weak=False)  # type: ignore[untyped-decorator]
def _check_beat(sender: Any = None, **_: Any) -> None:
    """Say so where a beat of a configured app runs unguarded: by an option that names another scheduler."""
    if sender is None or "_cronsensus" not in sender.app.__dict__ or isinstance(sender.scheduler, BeatScheduler):
        return
    name = f"{type(sender.scheduler).__module__}:{type(sender.scheduler).__qualname__}"
    _log.warning(
        "this beat is not guarded, and sends what the others send, too: its scheduler is %s. Leave --scheduler and "
        "beat_scheduler out, or make your own one safe: from cronsensus.integrations.celery import wrap",
        name,
    )


@signals.celeryd_init.connect(weak=False)  # type: ignore[untyped-decorator]
def _check_worker(options: Any = None, **_: Any) -> None:
    """Say so where a worker was given ``-S`` for its beat: for a worker it names the file of its state."""
    state = str((options or {}).get("statedb") or "")
    if ":" in state and ("Scheduler" in state or state.startswith("cronsensus.")):
        _log.warning(
            "worker -S %s names a file for the worker's state, not a scheduler: write --scheduler %s; with "
            "configure(app) neither is needed",
            state,
            state,
        )
