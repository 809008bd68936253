"""The names of beat's times and of tasks in the store.

::

    a time of an entry   job beat:ENTRY, at its nominal time   sent as the task with the id that is made of both
    any other task       job celery:TASK, under the task's id

A task that beat has sent is the same run from its time to the task's end: its message names the run, its id proves it.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from cronsensus.errors import InvalidOption
from cronsensus.model.acquiring import AskNamed
from cronsensus.model.job import BEAT, CELERY, JobSpec, Policies, name_kept_job
from cronsensus.model.occurrence import Occurrence
from cronsensus.timing.instants import format_instant, parse_instant

IDS = uuid.UUID("f3b0a0c4-6a0f-5d0e-8a55-6f6f0b8c2a11")
"""The namespace of the ids of tasks that beat sends; never changed, or a deploy sends twice."""
JOB_HEADER, TIME_HEADER, TOKEN_HEADER = "cronsensus-job", "cronsensus-time", "cronsensus-token"
OVERDUE_HEADER = "cronsensus-overdue"
"""Headers of a message that beat sends; the last in seconds, where the entry has it."""
HEADERS = (JOB_HEADER, TIME_HEADER, TOKEN_HEADER, OVERDUE_HEADER)
REPLACED = "replaced "
LONGEST_ID = 350
"""An id that is longer is hashed: a key has at most 400 characters."""
OPTIONS = ("once", "overdue")
"""The options of an entry that are for this integration."""
KEEP = timedelta(days=7)
"""How long the verdict of a time is kept."""
_POLICIES = Policies(overlap="allow", keep=KEEP)


def job_name(entry: str) -> str:
    """Return the name of an entry's job in the store."""
    return name_kept_job(BEAT, entry)


def task_id(entry: str, nominal: datetime) -> str:
    """Return the id of the task for a time of an entry: if it is sent twice, it has the same id."""
    return _id_of(job_name(entry), nominal)


def entry_spec(job: str, overdue: timedelta | None) -> JobSpec:
    """Return the definition of an entry's job, the same in beat and worker: they must not redefine it in turns."""
    return JobSpec(name=job, function=job, policies=_POLICIES, source="runtime", overdue=overdue)


def task_spec(task: str, keep: timedelta) -> JobSpec:
    """Return the definition of a task's job."""
    job = name_kept_job(CELERY, task)
    return JobSpec(name=job, function=job, policies=Policies(overlap="allow", keep=keep), source="runtime")


def name_run(task: str, request: Any, headers: Mapping[str, Any] | None, keep: timedelta) -> tuple[JobSpec, AskNamed]:
    """Return which run a message is for: the time that beat has sent it for, or the task's own.

    Args:
        task: its name.
        request: with the ``id``, and ``replaced_task_nesting``: a task that has replaced itself is another run.
        headers: of the message.
        keep: how long a finished task is remembered.
    """
    nesting = int(getattr(request, "replaced_task_nesting", 0) or 0)
    job, headers_of_beat = (headers or {}).get(JOB_HEADER), (headers or {}).get(TIME_HEADER)
    if isinstance(job, str) and isinstance(headers_of_beat, str) and job.startswith(BEAT) and not nesting:
        try:
            nominal = parse_instant(headers_of_beat)
        except InvalidOption:
            nominal = None
        # A program may have passed the headers on to a task of another id, which is another run.
        if nominal is not None and request.id == _id_of(job, nominal):
            seconds = (headers or {}).get(OVERDUE_HEADER)
            overdue = timedelta(seconds=seconds) if isinstance(seconds, int | float) else None
            return entry_spec(job, overdue), AskNamed(job, scheduled_for=nominal)
    spec = task_spec(task, keep)
    return spec, AskNamed(spec.name, key=_key_of(str(request.id), nesting))


def celery_id(occurrence: Occurrence) -> str:
    """Return the id of a run's task."""
    if occurrence.scheduled_for is not None:
        return _id_of(occurrence.job, occurrence.scheduled_for)
    return (
        occurrence.key.removeprefix(REPLACED).partition(" ")[2]
        if occurrence.key.startswith(REPLACED)
        else occurrence.key
    )


def _key_of(task_id: str, nesting: int) -> str:
    if len(task_id) > LONGEST_ID:
        task_id = hashlib.blake2b(task_id.encode(), digest_size=16).hexdigest()
    return f"{REPLACED}{nesting} {task_id}" if nesting else task_id


def _id_of(job: str, nominal: datetime) -> str:
    return str(uuid.uuid5(IDS, f"{job}@{format_instant(nominal)}"))
