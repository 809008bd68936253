"""The main process of a worker: what it does for its children, and for other workers that die.

It holds a run as long as it lives. If it dies, another worker finds that run, and restores the messages that the dead
worker had fetched from Redis: at once, where Redis would wait an hour.
"""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict
from collections.abc import Mapping
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

from celery import bootsteps, signals

from cronsensus.errors import LeaseLost, StoreError
from cronsensus.integrations.celery.messages import PAGE, restore_unacked
from cronsensus.integrations.celery.naming import (
    JOB_HEADER,
    OVERDUE_HEADER,
    TIME_HEADER,
    celery_id,
    name_run,
    task_spec,
)
from cronsensus.integrations.celery.part import Part, is_guarded, options_of
from cronsensus.integrations.celery.worker import LONGEST_COPY_DELAY, MESSAGE_RETURNS, Guard, record_end_in_main
from cronsensus.integrations.results import error_text
from cronsensus.model.acquiring import AskNamed
from cronsensus.model.ends import Again, Final
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter
from cronsensus.model.states import State
from cronsensus.outside import Outside, Won
from cronsensus.process.interrupts import Event
from cronsensus.process.logger import Logger

_log = Logger("cronsensus.celery")

WORKERS = task_spec("(workers)", timedelta(days=1))
"""The job of which each live worker holds a run."""
ATTEND_EVERY = 1.0
"""Seconds between two calls of ``_attend``."""
RESTORE_AGAIN = timedelta(seconds=1)
"""Time between two tries to restore the messages of a dead worker."""
MOST_REMEMBERED = 10_000
"""Messages from beat whose headers are remembered."""
SETTLED = 3.0
"""Seconds after a worker's death in which its children have died, too."""
LOOKS = (SETTLED, LONGEST_COPY_DELAY)
"""Seconds until the messages of a dead worker are searched once more, and then again: its last copy of a message may
have waited for its time."""


class WorkerProcess:
    """What a worker's main process does: it holds a run for the worker, and restores the messages of dead workers."""

    def __init__(self, app: Any, name: str) -> None:
        """Open nothing yet; ``name`` is the worker's, as ``celery inspect`` shows it."""
        self._app = app
        self._name = name
        self._part = Part(app)
        self._won: Won | None = None
        self._away = False
        self._headers: OrderedDict[str, Mapping[str, Any]] = OrderedDict()
        self._stopped = Event()
        self._thread = threading.Thread(target=self._stay, name="cronsensus-celery", daemon=True)

    def start(self) -> None:
        """Hold this worker's run before the first message comes. The worker starts even if the store is away."""
        self._attend()
        self._thread.start()

    def stop(self) -> None:
        """Release this worker's run: a worker that stops in order restores its messages itself."""
        self._stopped.set()
        if self._thread.ident is not None:  # else the start has failed
            self._thread.join(5.0)
        won, self._won = self._won, None
        if won is not None:
            try:
                self._part.outside().settle_now(won, Final(State.SUCCEEDED, "stopped"))
            except StoreError as error:
                _log.debug("that this worker stopped could not be recorded: %s", error)
        self._part.close()

    def note_received(self, task_id: str, headers: Mapping[str, Any]) -> None:
        """Remember which nominal time a message from beat is for: Celery only reports the id of a killed task."""
        if JOB_HEADER in headers:
            self._headers[task_id] = {name: headers.get(name) for name in (JOB_HEADER, TIME_HEADER, OVERDUE_HEADER)}
            while len(self._headers) > MOST_REMEMBERED:
                self._headers.popitem(last=False)

    def close_run(self, task: Any, task_id: str, end: Final) -> None:
        """Record the end of a run whose child this process has killed, on a thread."""
        request = SimpleNamespace(id=task_id)
        spec, ask = name_run(task.name, request, self._headers.get(task_id), options_of(self._app).keep)
        outside = self._part.outside() if self._part.is_open else None
        if outside is None:
            _log.error("the end of %s[%s] is not recorded: the store was not reached yet", task.name, task_id)
            return
        outside.submit(lambda: record_end_in_main(outside, f"{task.name}[{task_id}]", spec, ask, end))

    def _stay(self) -> None:
        while not self._stopped.wait(ATTEND_EVERY):
            self._attend()

    def _attend(self) -> None:
        """Acquire this worker's run if it has none, and search for the runs that dead workers left."""
        try:
            if self._won is None or self._won.run.lease_lost.is_set():
                self._acquire()
            self._part.outside().look_for_leftovers()
        except (StoreError, LeaseLost) as error:
            if not self._away:
                _log.error("the store cannot be asked, so this worker's tasks wait until it can: %s", error)
            self._away = True
        else:
            if self._away:
                _log.warning("the store answers again")
            self._away = False

    def _acquire(self) -> None:
        first = not self._part.is_open
        outside = self._part.outside()
        if first:
            outside.on_leftover(self._take_leftover)
        [[answer]] = outside.acquire([(WORKERS, AskNamed(WORKERS.name, key=f"{self._name} {uuid.uuid4().hex[:12]}"))])
        if isinstance(answer, Won):
            self._won = answer

    def _take_leftover(self, won: Won) -> None:
        """Restore the messages of a dead worker."""
        outside = self._part.outside()
        if won.claim.job != WORKERS.name:
            # A run of a task, whose end this process recorded. Its message runs it, wherever it is delivered.
            outside.withdraw(won.claim.job)
            outside.settle(won, Again(MESSAGE_RETURNS, failed=False))
            return
        self._restore_messages(outside, won, set(), LOOKS)

    def _restore_messages(self, outside: Outside, won: Won, restored: set[str], looks: tuple[float, ...]) -> None:
        try:
            count = restore_unacked(self._app, self._find_running, restored)
            if looks and count is not None:
                # Its children may have died after it, in the middle of a run.
                then = outside.now() + timedelta(seconds=looks[0])
                outside.submit_at(then, lambda: self._restore_messages(outside, won, restored, looks[1:]))
                return
        except Exception as error:  # noqa: BLE001 - the store is away, or the broker, in as many ways as there are
            _log.warning("the messages of a worker that is gone cannot be given back yet: %s", error)
            outside.settle(won, Again(RESTORE_AGAIN, failed=False, reason=f"not given back: {error}"))
            return
        outcome = "the broker gives its messages back" if count is None else f"{len(restored)} messages were given back"
        _log.warning("worker %s is gone: %s", won.claim.key.rpartition(" ")[0], outcome)
        outside.settle(won, Final(State.FAILED, f"gone: {outcome}"))

    def _find_running(self) -> set[str]:
        """Return the ids of all running tasks, without those of the dead worker, whose sessions have ended."""
        running = OccurrenceFilter(states=(State.RUNNING,))
        ids: set[str] = set()
        page: list[Occurrence] = []
        while page := self._part.store.occurrences(running, after=page[-1].id if page else None, limit=PAGE):
            ids.update(map(celery_id, page))
        return ids


def guard_of(app: Any) -> Guard | None:
    """Return the guard of an app that ``configure`` was given."""
    found: Guard | None = app.__dict__.get("_cronsensus_guard")
    return found


def process_of(app: Any) -> WorkerProcess | None:
    """Return what this worker does in its main process, if this is one."""
    found: WorkerProcess | None = app.__dict__.get("_cronsensus_process")
    return found


@signals.celeryd_after_setup.connect(weak=False)  # type: ignore[untyped-decorator]
def _guard_late(instance: Any = None, **_: Any) -> None:
    """Guard the tasks that were declared after the app was finalized; the pool has not started yet."""
    guard = guard_of(instance.app)
    if guard is not None:
        guard.guard_tasks()


class Attendance(bootsteps.StartStopStep):  # type: ignore[misc]
    """Starts the ``WorkerProcess`` when a worker has its pool, and no message yet."""

    requires = ("celery.worker.components:Pool",)

    def start(self, parent: Any) -> None:
        """Start it, if the app is guarded."""
        if guard_of(parent.app) is not None:
            process = parent.app.__dict__["_cronsensus_process"] = WorkerProcess(parent.app, parent.hostname)
            process.start()


@signals.worker_shutdown.connect(weak=False)  # type: ignore[untyped-decorator]
def _stop(sender: Any = None, **_: Any) -> None:
    process = sender.app.__dict__.pop("_cronsensus_process", None)
    if process is not None:
        process.stop()
    guard = guard_of(sender.app)
    if guard is not None:
        guard.close()  # of a pool without children


@signals.worker_process_shutdown.connect(weak=False)  # type: ignore[untyped-decorator]
def _leave_child(**_: Any) -> None:
    """Close the session of a child that ends: with ``--max-tasks-per-child`` sessions would stay open."""
    from celery import current_app

    guard = guard_of(current_app._get_current_object())
    if guard is not None:
        guard.close()


@signals.task_postrun.connect(weak=False)  # type: ignore[untyped-decorator]
def _record_end(sender: Any = None, state: Any = None, retval: Any = None, **_: Any) -> None:
    guard = guard_of(sender.app)
    if guard is not None:
        guard.record_end(sender.request, state, retval)


@signals.task_received.connect(weak=False)  # type: ignore[untyped-decorator]
def _note_received(request: Any = None, **_: Any) -> None:
    process = process_of(request.app)
    if process is not None:
        fields = request.request_dict  # with the headers among them, or beside them
        process.note_received(request.id, {**fields, **(fields.get("headers") or {})})


@signals.task_failure.connect(weak=False)  # type: ignore[untyped-decorator]
def _close_failed(sender: Any = None, task_id: Any = None, exception: Any = None, **_: Any) -> None:
    """Record that a task exceeded its hard time limit: its child was killed, and cannot record it."""
    process, guard = process_of(sender.app), guard_of(sender.app)
    if process is not None and guard is not None and not guard.holds(task_id) and is_guarded(sender):
        process.close_run(sender, task_id, Final(State.FAILED, error=error_text(exception, "")))


@signals.task_revoked.connect(weak=False)  # type: ignore[untyped-decorator]
def _close_revoked(sender: Any = None, request: Any = None, expired: Any = None, **_: Any) -> None:
    process = process_of(sender.app)
    if process is not None and is_guarded(sender):
        process.close_run(sender, request.id, Final(State.CANCELLED, "expired" if expired else "revoked"))
