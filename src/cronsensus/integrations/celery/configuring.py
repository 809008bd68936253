"""``configure``: a single call that makes an app of Celery safe on every machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery import Celery, signals
from celery.signals import beat_embedded_init, beat_init

from cronsensus.errors import ConfigurationError
from cronsensus.external.observing import wants_observing
from cronsensus.integrations.celery.beat import BeatScheduler
from cronsensus.integrations.celery.observing import observe_beat, observes
from cronsensus.integrations.celery.part import Options, make_scheduler
from cronsensus.integrations.celery.worker import Guard
from cronsensus.integrations.celery.worker_process import Attendance
from cronsensus.process.logger import Logger
from cronsensus.timing.durations import Duration, parse_duration

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
"""Schedulers of beat that an app may name, and the replacement of each."""


def configure(
    app: Celery,
    url: str | None = None,
    *,
    namespace: str | None = None,
    lease: Duration | None = None,
    keep: Duration = "1d",
    beat: bool = True,
    worker: bool = True,
    observe: bool | None = None,
) -> None:
    """Make an app of Celery safe on every machine: each scheduled time is sent once, each message is run once.

    To be called where the app is made, before its tasks. Nothing is opened until beat, or a task, starts.

    ``beat``: ``celery beat`` may run on every machine, or ``-B`` on every worker. Each (entry, time) is acquired before
    it is sent, and is a run in the ledger. Intervals are due at their multiples since 1970, so that all beats agree.

    ``worker``: ``task_acks_late`` and ``task_reject_on_worker_lost`` are set, so that no task is lost with its worker,
    and each task is acquired under its id before it runs. A message that comes again while it runs comes once more
    later; after it has succeeded, the recorded result is returned. Messages that a dead worker had fetched from Redis
    are restored at once. ``@app.task(once=False)`` takes a task out.

    Not prevented: if a worker was frozen for longer than the lease, its task goes on, and the worker that has taken it
    over does the same again, such as ``other.delay()`` in its body. Celery's result backend takes the result of either.

    Args:
        app: the app.
        url: of the store; ``None``: as for ``Scheduler``, from ``CRONSENSUS_URL`` or ``[tool.cronsensus]``. A file of
            SQLite does for one machine.
        namespace: of the jobs in the store; two apps on one store need two.
        lease: how long a process without a sign of life keeps what it holds.
        keep: how long a finished task is remembered, so that a copy of its message is recognized.
        beat: guard beat.
        worker: guard the tasks.
        observe: change nothing in what beat sends and workers run, and count what each beat sends, for ``cronsensus
            audit --observed``; ``None``: as ``CRONSENSUS_OBSERVE`` says.

    Raises:
        ConfigurationError: no store is named, it is no app, or its tasks are in use already.
        InvalidOption: an impossible option.
    """
    if not isinstance(app, Celery):
        raise ConfigurationError(f"configure({app!r}): it wants the app: app = Celery(…); configure(app, …)")
    options = Options(url, namespace, lease, parse_duration(keep, what="keep"), observe)
    make_scheduler(options)  # a wrong option is an error here, where it was written
    guards = not wants_observing(observe)
    if guards and worker:
        _refuse_used_tasks(app)
    app.__dict__["_cronsensus"] = options
    if guards and beat:
        _when_configured(app, _name_scheduler)
    if guards and worker:
        _guard_worker(app)


def _refuse_used_tasks(app: Celery) -> None:
    """Refuse an app some of whose tasks have read their settings: without ``acks_late``, they cannot be guarded."""
    used = [
        task.name
        for task in app._tasks.values()
        if not task.name.startswith("celery.") and getattr(task, "once", True) and not task.acks_late
    ]
    if used or app.finalized:
        raise ConfigurationError(
            f"configure(app) comes too late: {', '.join(sorted(used)) or 'tasks of the app'} were used already; "
            "call it right after app = Celery(…)"
        )


def _when_configured(app: Celery, change: Callable[[Celery], None]) -> None:
    """Change an app once it is configured: reading a setting loads all, before the program has its handlers."""
    app.on_after_configure.connect(lambda sender, **_: change(sender), weak=False)
    if app.configured:
        change(app)


def _name_scheduler(app: Celery) -> None:
    named = str(app.conf.beat_scheduler)
    app.conf.beat_scheduler = SCHEDULERS.get(named, named)


def _warn_of_eager(app: Celery) -> None:
    if app.conf.task_always_eager:
        _log.warning("task_always_eager runs tasks in the caller: none is guarded; leave it out, except in tests")


def _guard_worker(app: Celery) -> None:
    app.conf.task_acks_late = True
    app.conf.task_reject_on_worker_lost = True
    _when_configured(app, _warn_of_eager)
    app.steps["worker"].add(Attendance)
    guard = Guard(app)
    app.__dict__["_cronsensus_guard"] = guard
    app.on_after_finalize.connect(lambda **_: guard.guard_tasks(), weak=False)


@beat_init.connect(weak=False)  # type: ignore[untyped-decorator]
@beat_embedded_init.connect(weak=False)  # type: ignore[untyped-decorator]
def _check_beat(sender: Any = None, **_: Any) -> None:
    """Observe the beat of a configured app, or warn if an option names another, unguarded beat."""
    if sender is None or "_cronsensus" not in sender.app.__dict__ or isinstance(sender.scheduler, BeatScheduler):
        return
    if observes(sender.app):
        observe_beat(sender.scheduler)
        return
    name = f"{type(sender.scheduler).__module__}:{type(sender.scheduler).__qualname__}"
    safe = SCHEDULERS.get(name, SCHEDULER)
    way = "leave --scheduler and beat_scheduler out" if safe == SCHEDULER else f"write --scheduler {safe}"
    _log.warning(
        "this beat is not guarded, and sends what the others send, too: its scheduler is %s. Instead, %s; or make your "
        "own one safe: from cronsensus.integrations.celery import wrap",
        name,
        way,
    )


@signals.celeryd_init.connect(weak=False)  # type: ignore[untyped-decorator]
def _check_worker(options: Any = None, **_: Any) -> None:
    """Warn if a worker was given ``-S`` for its beat: for a worker it names the file of its state."""
    state = str((options or {}).get("statedb") or "")
    if ":" in state and ("Scheduler" in state or state.startswith("cronsensus.")):
        _log.warning(
            "worker -S %s names a file for the worker's state, not a scheduler: write --scheduler %s; with "
            "configure(app) neither is needed",
            state,
            state,
        )
