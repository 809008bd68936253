"""The guard of every task: a message that is delivered twice runs once.

::

    message ──▶ run (wrapped) ──▶ acquire (task, id) ──▶ won: the function, and task_postrun records how it ended
                                     ├──▶ it has succeeded: the recorded result, so that chains and chords go on
                                     ├──▶ it has ended otherwise: Ignore
                                     └──▶ it runs elsewhere: a copy for later, then Ignore

``task.run`` is where a message can still be refused: errors of signals are logged and forgotten. The end is recorded in
``task_postrun``, after Celery has stored the result and sent what comes next: recorded before, a crash in between would
end a chain. Hard limits and revokes kill the child, so the main process records those.
"""

from __future__ import annotations

import functools
import threading
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

from billiard.exceptions import WorkerLostError
from celery.exceptions import Ignore, Reject

from cronsensus.errors import LeaseLost, StoreError
from cronsensus.integrations.celery.messages import publish_copy
from cronsensus.integrations.celery.naming import name_run
from cronsensus.integrations.celery.part import Part, options_of
from cronsensus.integrations.results import end_of_success, error_text
from cronsensus.model.acquiring import AskNamed
from cronsensus.model.ends import Again, Final, Then
from cronsensus.model.job import CELERY, JobSpec
from cronsensus.model.occurrence import Occurrence
from cronsensus.model.states import Reason, State
from cronsensus.node.run import enter_run
from cronsensus.outside import Outside, Refused, Won
from cronsensus.payload.codec import loads
from cronsensus.process.forking import left_to_the_parent, register_for_forks
from cronsensus.process.interrupts import Event
from cronsensus.process.logger import Logger
from cronsensus.timing.clock import SystemClock

_log = Logger("cronsensus.celery")

_CLOCK = SystemClock()
STORE_PATIENCE = 10.0
"""Most seconds that a message waits for the store, before it is put back for later."""
STORE_PAUSE = 0.5
"""Seconds between two tries to reach the store."""
BEAT_PATIENCE = 0.5
"""Most seconds to wait for the beat to release the time that it has just sent."""
BEAT_PAUSE = 0.02
"""Seconds between two tries to acquire that time."""
FIRST_COPY_DELAY, LONGEST_COPY_DELAY = 1.0, 10.0
"""Seconds until the copy of a message that runs elsewhere comes; doubled with each copy."""
MESSAGE_RETURNS = timedelta(seconds=60)
"""How long a run whose message went back to the broker is reserved for that message."""
CLAIM_ATTRIBUTE = "_cronsensus_won"
"""The attribute of a request that has the claim of its message."""
COPY_COUNT_HEADER = "cronsensus-copies"
"""The header that counts the copies of a message."""


class Guard:
    """Wraps the tasks of an app, so that a message that is delivered twice runs once; one for each process."""

    def __init__(self, app: Any) -> None:
        """Open nothing: the children of a pool open their own."""
        self._app = app
        self._part = Part(app)
        self._lock = threading.Lock()
        self._held: dict[str, Won] = {}
        register_for_forks(self)

    def forked(self) -> None:
        """Drop the parent's connections without closing them; called in a forked child."""
        left_to_the_parent.append((self._part, self._held))
        self._part, self._lock, self._held = Part(self._app), threading.Lock(), {}

    # --- tasks --------------------------------------------------------------------------------------------------------

    def guard_tasks(self) -> None:
        """Wrap the ``run`` of each task that is not wrapped yet; log which tasks cannot be wrapped."""
        unguarded = []
        for task in list(self._app.tasks.values()):
            if task.name.startswith("celery.") or getattr(task, "once", True) is False or hasattr(task, "_cronsensus"):
                continue
            task._cronsensus = bool(task.acks_late)
            if not task.acks_late:
                unguarded.append(task.name)
                continue
            self._guard_task(task)
        if unguarded:
            _log.warning(
                "these tasks have acks_late=False, so a message is gone before its task begins, and they are not "
                "guarded: %s; leave acks_late out, or write once=False to say that it is meant",
                ", ".join(sorted(unguarded)),
            )

    def _guard_task(self, task: Any) -> None:
        original = task.run

        @functools.wraps(original)  # Celery reads the signature, and so do retries
        def run(*args: Any, **kwargs: Any) -> Any:
            request = task.request
            # A request with a claim is of a task that calls itself within its message.
            if request.called_directly or request.is_eager or not request.id or CLAIM_ATTRIBUTE in request.__dict__:
                return original(*args, **kwargs)
            won = self._acquire_run(task)
            if not isinstance(won, Won):
                return won.value
            request.__dict__[CLAIM_ATTRIBUTE] = won
            with self._lock:
                self._held[request.id] = won
            enter_run(won.run)
            try:
                return original(*args, **kwargs)
            finally:
                enter_run(None)

        task.run = run

    def _acquire_run(self, task: Any) -> Won | _Recorded:
        """Acquire the run of a message.

        Raises:
            Ignore: this message must not run here; it is taken care of.
            Reject: neither store nor broker answers; the broker delivers it again.
            WorkerLostError: each process that ran it died.
        """
        request = task.request
        spec, ask = name_run(task.name, request, request.headers, options_of(self._app).keep)
        try:
            answer = self._request_run(spec, ask)
        except (StoreError, LeaseLost) as error:
            self._put_back(task, f"the store cannot be asked: {error}")
        if isinstance(answer, Won):
            if answer.claim.failures > (request.retries or 0):
                self._part.outside().release(answer)
                raise Ignore("a copy of an attempt that has failed: the message of its retry runs it")
            return answer
        seen = answer.seen
        if seen is None or not seen.state.final:
            self._put_back(task, "it runs elsewhere")
        if seen.state is State.FAILED:
            _restore_failure(task, seen)
        return _recorded(seen, request.id)

    def _request_run(self, spec: JobSpec, ask: AskNamed) -> Won | Refused:
        waited = 0.0
        while True:
            try:
                outside = self._part.outside()
                [[answer]] = outside.acquire([(spec, ask)])
                seen = answer.seen if isinstance(answer, Refused) else None
                if isinstance(answer, Won) or (seen is not None and seen.state.final):
                    return answer
                if seen is not None and seen.state is State.RUNNING and not outside.reclaim_holder(seen):
                    wait = BEAT_PATIENCE if ask.key is None else 0.0
                else:
                    wait = BEAT_PATIENCE  # it was released between the try and the read
                if waited >= wait:
                    return answer
                pause = BEAT_PAUSE
            except StoreError as error:
                if not error.retryable or waited >= STORE_PATIENCE:
                    raise
                pause = STORE_PAUSE
            Event().wait(pause)
            waited += pause

    def _put_back(self, task: Any, why: str) -> NoReturn:
        """Put the message back for later: publish a copy, because ``Ignore`` acknowledges this one."""
        request = task.request
        copies = int((request.headers or {}).get(COPY_COUNT_HEADER, 0))
        wait = min(_longest_copy_delay(self._app), FIRST_COPY_DELAY * 2**copies)
        try:
            publish_copy(task, countdown=wait, headers={COPY_COUNT_HEADER: copies + 1})
        except Exception as error:
            _log.warning(
                "%s[%s] goes back to the broker: %s; no copy can be sent: %s", task.name, request.id, why, error
            )
            raise Reject(why, requeue=True) from error
        _log.info("%s[%s] comes again in %g s: %s", task.name, request.id, wait, why)
        raise Ignore(why)

    # --- how it ended -------------------------------------------------------------------------------------------------

    def record_end(self, request: Any, state: str | None, value: Any) -> None:
        """Record how a run ended, once Celery has stored its result and sent what comes next.

        Args:
            request: of the message. Another request of the same id may run at this moment, on another thread.
            state: Celery's; ``None``: the child was told to end.
            value: the result, or the exception.
        """
        won = request.__dict__.pop(CLAIM_ATTRIBUTE, None)
        if won is None:
            return
        with self._lock:
            self._held.pop(request.id, None)
        outside = self._part.outside()
        try:
            if not outside.settle_now(won, outcome_of_state(state, value)):
                _log.warning(
                    "the end of %s was refused: this process was without a sign of life for too long, and another one "
                    "has run it; Celery's result may be of either",
                    won,
                )
        except StoreError as error:
            _log.error("the end of %s could not be recorded yet, and is tried again: %s", won, error)

    def holds(self, task_id: str) -> bool:
        """Whether a task runs in this process."""
        with self._lock:
            return task_id in self._held

    def close(self) -> None:
        """Close the session: other processes may take over the runs that still go on here."""
        self._part.close()


def _longest_copy_delay(app: Any) -> float:
    """Return for how long a copy may wait, in seconds.

    Redis restores what waits for longer than the visibility timeout, so that each copy would become two.
    """
    timeout = (app.conf.broker_transport_options or {}).get("visibility_timeout")
    return min(LONGEST_COPY_DELAY, timeout / 2) if isinstance(timeout, int | float) else LONGEST_COPY_DELAY


class _Recorded:
    """The result of an earlier run."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _recorded(seen: Occurrence, task_id: str) -> _Recorded:
    """Return the recorded result of a run that succeeded, so that a chain whose worker died after it goes on.

    Raises:
        Ignore: it did not succeed, or its result is not there.
        WorkerLostError: it failed because each process that ran it died, which Celery does not know yet.
    """
    if seen.state is State.SUCCEEDED and seen.reason is None:
        _log.info("%s[%s] has succeeded before: it is not run again", seen.job.removeprefix(CELERY), task_id)
        return _Recorded(None if seen.result is None else loads(seen.result))
    if (seen.reason or "").startswith(Reason.CRASHED):
        raise WorkerLostError(f"each of the {seen.crashes} processes that ran it died: {seen.reason}")
    raise Ignore(f"it has ended before: {seen.state}")


def _restore_failure(task: Any, seen: Occurrence) -> None:
    """Record in Celery again that a task failed: with ``track_started`` it has just recorded the copy as started."""
    if task.track_started and not task.ignore_result:
        text = "" if seen.error is None else f"{seen.error.type}: {seen.error.message}"
        task.backend.store_result(task.request.id, RuntimeError(text), "FAILURE", request=task.request)


def outcome_of_state(state: str | None, value: Any) -> Then:
    """Return the end of a run, by Celery's state."""
    match state:
        case "SUCCESS":
            return end_of_success(value)
        case "RETRY":
            return Again(
                _retry_delay(value) + MESSAGE_RETURNS,
                failed=True,
                error=error_text(getattr(value, "exc", None) or value),
            )
        case "IGNORED":
            return Final(State.SUCCEEDED, "ignored")
        case "REJECTED" if not getattr(value, "requeue", False):
            return Final(State.FAILED, "rejected", error=error_text(value))
        case "REJECTED" | None:
            return Again(MESSAGE_RETURNS, failed=False, reason="it went back to the broker")
        case _:
            return Final(State.FAILED, error=error_text(value))


def _retry_delay(retry: Any) -> timedelta:
    when = getattr(retry, "when", None) or 0
    if isinstance(when, datetime):
        return max(timedelta(0), when.astimezone(UTC) - _CLOCK.now())
    return timedelta(seconds=max(0.0, float(when)))


def record_end_in_main(outside: Outside, name: str, spec: JobSpec, ask: AskNamed, end: Final) -> None:
    """Record the end of a run whose child the main process has killed; ``name`` is the task's, for the log."""
    try:
        outside.close_by_name(spec, ask, end)
    except (StoreError, LeaseLost) as error:
        _log.error("the end of %s could not be recorded: %s", name, error)
    finally:
        outside.withdraw(spec.name)  # the main process runs no task
