"""django-celery-beat's rows as jobs: as code, or added to the store at run time. The rows stay as they are.

They are read by SQL, so that django-celery-beat need not be installed any more, only its tables be there.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.db.utils import DatabaseError
from django.utils import timezone
from django.utils.module_loading import import_string

from cronsensus.errors import CronsensusError
from cronsensus.integrations.celery.crontab_text import cron_text
from cronsensus.integrations.django.backend import list_tasks
from cronsensus.integrations.django.options import read_options
from cronsensus.integrations.layout import Call, identifier, laid_out, quoted
from cronsensus.integrations.migration import (
    Migration,
    NoEquivalent,
    Remark,
    made_from,
    write_arguments,
    write_comment,
    write_duration,
)
from cronsensus.scheduler import Scheduler

_ROWS_QUERY = """
SELECT p.name, p.task, p.args, p.kwargs, p.queue, p.exchange, p.routing_key, p.headers, p.priority, p.expires,
    p.expire_seconds, p.one_off, p.start_time, p.enabled, i.every, i.period, c.minute, c.hour, c.day_of_month,
    c.month_of_year, c.day_of_week, c.timezone, k.clocked_time, s.event
FROM django_celery_beat_periodictask p
LEFT JOIN django_celery_beat_intervalschedule i ON i.id = p.interval_id
LEFT JOIN django_celery_beat_crontabschedule c ON c.id = p.crontab_id
LEFT JOIN django_celery_beat_clockedschedule k ON k.id = p.clocked_id
LEFT JOIN django_celery_beat_solarschedule s ON s.id = p.solar_id
ORDER BY p.name"""
_FIELDS = ("minute", "hour", "day_of_month", "month_of_year", "day_of_week")
_UNITS = {"days": "d", "hours": "h", "minutes": "m", "seconds": "s"}
_CLEANUP = "celery.backend_cleanup"
_TAKEN_NAMES = {"at", "cron", "every", "scheduler"}


@dataclass(frozen=True, slots=True)
class Entry:
    """The job of a row.

    Attributes:
        path: of its task.
        task: the object at this path: a task of Django's, a function, a task of Celery's.
        trigger: the call that makes its trigger; it was tried.
        options: of the job, as texts.
        remarks: the differences.
    """

    name: str
    path: str
    task: Any
    trigger: Call
    args: list[Any]
    kwargs: dict[str, Any]
    options: Mapping[str, str]
    enabled: bool
    remarks: Sequence[str]


def read_rows(alias: str) -> list[dict[str, Any]]:
    """Return the rows of a database, by their names; instants are aware.

    Raises:
        ImproperlyConfigured: it has none.
    """
    if alias not in connections.settings:
        raise ImproperlyConfigured(f"{alias!r} is none of DATABASES, which are {', '.join(connections.settings)}")
    connection: Any = connections[alias]
    try:
        with connection.cursor() as cursor:
            cursor.execute(_ROWS_QUERY)
            names = [column[0] for column in cursor.description]
            rows = [dict(zip(names, map(_aware_in(connection), row), strict=True)) for row in cursor.fetchall()]
    except DatabaseError as error:
        raise ImproperlyConfigured(
            f"DATABASES[{alias!r}] has no tables of django-celery-beat that can be read ({error}); name another one: "
            "--database ALIAS"
        ) from error
    return rows


def _aware_in(connection: Any) -> Any:
    zone = connection.timezone or timezone.get_default_timezone()

    def aware(value: Any) -> Any:
        if isinstance(value, datetime):
            return (value.replace(tzinfo=zone) if value.tzinfo is None else value).astimezone(UTC)
        return value

    return aware


def read_entry(row: Mapping[str, Any], now: datetime) -> Entry:
    """Return the job of a row.

    Raises:
        NoEquivalent: it has none; the message says why.
    """
    remarks: list[str] = []
    path = str(row["task"])
    if path == _CLEANUP:
        raise NoEquivalent("old runs are pruned after their job's keep")
    trigger = _trigger_of(row, now)
    made_from(str(trigger))
    if trigger.head == "every" and row["start_time"] is None:
        remarks.append("its interval counted from the last send; here it is due at its multiples since 1970")
    options = {}
    if row["expire_seconds"] is not None:
        options["grace"] = write_duration(row["expire_seconds"], "expire_seconds")
    routed = [name for name in ("queue", "exchange", "routing_key") if row[name]]
    remarks += [f"{name}={row[name]!r} is left out: nodes run all tasks" for name in routed]
    if _read_json(row, "headers", {}):
        remarks.append(f"headers={row['headers']} are left out: a run has none")
    if row["priority"] is not None:
        remarks.append(f"priority={row['priority']} is left out, as its order is the broker's; here higher goes first")
    args, kwargs = _read_json(row, "args", []), _read_json(row, "kwargs", {})
    return Entry(
        str(row["name"]), path, _import_task(path), trigger, args, kwargs, options, bool(row["enabled"]), remarks
    )


def _trigger_of(row: Mapping[str, Any], now: datetime) -> Call:
    start, expires = row["start_time"], row["expires"]
    if expires is not None and expires <= now:
        raise NoEquivalent(f"it has expired: {expires.isoformat()}")
    if row["clocked_time"] is not None:
        if row["clocked_time"] <= now:
            raise NoEquivalent(f"its one time is over: {row['clocked_time'].isoformat()}")
        return Call("at", [quoted(row["clocked_time"].isoformat())])
    if row["event"] is not None:
        raise NoEquivalent(
            f"solar {row['event']}: write a job of each morning that computes the time, and enqueues with at=…"
        )
    if row["one_off"]:
        raise NoEquivalent("one_off: it runs once, at the next time of its schedule; write at(…) for that time")
    bounds = [] if start is None else [f"start={quoted(start.isoformat())}"]
    if expires is not None:
        bounds.append(f"end={quoted(expires.isoformat())}")
    if row["every"] is not None:
        unit = _UNITS.get(row["period"])
        interval = f"{row['every']}{unit}" if unit else f"{row['every'] / 1_000_000:g}s"
        return Call("every", [write_duration(interval, "every"), *bounds])
    if row["minute"] is None:
        raise NoEquivalent("it has no schedule")
    if start is not None and start <= now:
        bounds = bounds[1:]  # a crontab has no phase
    text = cron_text(**{name: row[name] for name in _FIELDS})
    return Call("cron", [quoted(text), f"tz={quoted(str(row['timezone']))}", *bounds])


def _read_json(row: Mapping[str, Any], name: str, empty: Any) -> Any:
    try:
        value = json.loads(row[name] or json.dumps(empty))
    except ValueError as error:
        raise NoEquivalent(f"{name} are not JSON: {row[name]!r}") from error
    if not isinstance(value, type(empty)):
        raise NoEquivalent(f"{name} are {row[name]}, and no JSON {'object' if empty == {} else 'array'}")
    return value


def _import_task(path: str) -> Any:
    try:
        task = import_string(path)
    except ImportError as error:
        raise NoEquivalent(f"there is no task at {path!r}: {error}") from error
    if not callable(getattr(task, "call", task)):
        raise NoEquivalent(f"what is at {path!r} cannot be called: {task!r}")
    return task


# --- as code ----------------------------------------------------------------------------------------------------------


@dataclass
class _Program:
    blocks: list[str] = field(default_factory=list)
    modules: dict[str, str] = field(default_factory=dict)
    makers: set[str] = field(default_factory=set)
    functions: set[str] = field(default_factory=lambda: set(_TAKEN_NAMES))

    def add(self, entry: Entry) -> None:
        """Write a job that calls the entry's task."""
        if getattr(entry.task, "takes_context", False):
            raise NoEquivalent(f"{entry.path} takes the context of a task; add it at run time: --apply")
        module, _, attribute = entry.path.rpartition(".")
        called = f"{self._import(module)}.{attribute}{'.call' if hasattr(entry.task, 'call') else ''}"
        body = Call(called, write_arguments(entry.args, entry.kwargs))
        function = identifier(entry.name, self.functions)
        named = [] if entry.name == function else [f"name={quoted(entry.name)}"]
        options = [f"{option}={value}" for option, value in entry.options.items()]
        head = laid_out(Call("@scheduler.job", [entry.trigger, *named, *options]))
        self.functions.add(function)
        self.makers.add(entry.trigger.head)
        self.blocks.append("\n".join([head, f"def {function}() -> None:", laid_out(body, "    ")]))

    def _import(self, module: str) -> str:
        root = module.partition(".")[0]
        self.functions.add(root)
        plain = module if root not in _TAKEN_NAMES else f"{module.replace('.', '_')}_module"
        return self.modules.setdefault(module, plain)

    def write(self, remarks: Iterable[Remark]) -> str:
        """Return the program."""
        imports = [f"import {module}" if name == module else f"import {module} as {name}"
                   for module, name in sorted(self.modules.items())]  # fmt: skip
        own_imports = "from cronsensus.integrations.django import scheduler"
        if self.makers:
            own_imports = f"from cronsensus import {', '.join(sorted(self.makers))}\n{own_imports}"
        code = "\n\n\n".join(["\n".join([own_imports, *imports]), *self.blocks])
        comments = [
            write_comment(remark.text if remark.job is None else f"{remark.job}: {remark.text}") for remark in remarks
        ]
        return "\n".join([code, *(["", "", "# What is not the same:", *comments] if comments else []), ""])


def write_jobs(rows: Sequence[Mapping[str, Any]], now: datetime) -> Migration:
    """Write each row as a job in a module ``jobs.py``; list what has no equivalent, and what differs."""
    program, remarks, left_out = _Program(), [], 0
    for row in rows:
        program.functions.add(str(row["task"]).partition(".")[0])
    for row in rows:
        name = str(row["name"])
        try:
            entry = read_entry(row, now)
            program.add(entry)
        except NoEquivalent as error:
            left_out += 1
            remarks.append(Remark(name, f"not written: {error}"))
            continue
        remarks += [Remark(name, text) for text in entry.remarks]
        if not entry.enabled:
            pause = f"manage.py cronsensus jobs pause {quoted(name)} --reason disabled"
            remarks.append(Remark(name, f"it is disabled: manage.py migrate, and before a node starts: {pause}"))
    if program.blocks:
        remarks += [Remark(None, text) for text in _FOR_ALL]
    return Migration(program.write(remarks), len(program.blocks), left_out, tuple(remarks))


_FOR_ALL = (
    "end every beat before the first node starts, or its tasks run twice",
    "beat sends a task although the last one still runs; here that time is skipped (or overlap='allow')",
)


# --- at run time ------------------------------------------------------------------------------------------------------


def add_jobs(scheduler: Scheduler, rows: Sequence[Mapping[str, Any]], now: datetime) -> tuple[list[str], list[Remark]]:
    """Add a job for each row to the store; return their names, and what was left out, and what differs.

    Each job is a separate write. A repeated call changes nothing, so repeat it if it failed half-way.
    """
    added, remarks = [], []
    tasks = list_tasks()  # the tasks of the modules that a node imports; imports below do not count
    for row in rows:
        name = str(row["name"])
        try:
            entry = read_entry(row, now)
            if not entry.enabled:
                # Added and then paused, it could run in between.
                raise NoEquivalent("it is disabled; enable it there first, or delete it")
            if entry.path not in tasks:
                raise NoEquivalent(
                    f"nodes have no task {entry.path!r}; write @task above the function, in {read_options().modules}"
                )
            options: dict[str, Any] = {option: ast.literal_eval(text) for option, text in entry.options.items()}
            scheduler.add_job(
                entry.path, made_from(str(entry.trigger)), name=name, args=entry.args, kwargs=entry.kwargs, **options
            )
        except (NoEquivalent, CronsensusError) as error:
            remarks.append(Remark(name, f"not added: {error}"))
            continue
        added.append(name)
        remarks += [Remark(name, text) for text in entry.remarks]
    return added, remarks
