"""Jobs and runs as Django's admin reads them: unmanaged models on the store's tables, which nothing is written through.

They are there where the store is one of ``DATABASES``. What acts goes through the scheduler's verbs.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import models

from cronsensus.integrations.django.options import read_options

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Instant(models.BigIntegerField):
    """Microseconds since 1970 in the store, an aware datetime in Python; filters and orders work on the number."""

    def from_db_value(self, value: int | None, *_: Any) -> datetime | None:
        """Return the instant."""
        return None if value is None else _EPOCH + value * _MICROSECOND

    def to_python(self, value: Any) -> Any:
        """Leave it as it is."""
        return value

    def get_prep_value(self, value: Any) -> Any:
        """Return the number."""
        return (value - _EPOCH) // _MICROSECOND if isinstance(value, datetime) else value


class _OfStore(models.Manager):
    """Reads the database that is the store, and the scheduler's namespace."""

    def get_queryset(self) -> Any:
        """Return the rows."""
        options = read_options()
        namespace = options.scheduler.get("namespace") or "default"
        return super().get_queryset().using(options.database).filter(namespace=namespace)


class Job(models.Model):
    """A job, as the store has it."""

    name = models.CharField(max_length=200)
    namespace = models.CharField(max_length=200)
    function = models.CharField(max_length=200)
    source = models.CharField(max_length=10)
    spec = models.TextField()
    revision = models.IntegerField()
    next_due = Instant("next", null=True)
    paused_at = Instant(null=True)
    paused_by = models.TextField(null=True)  # noqa: DJ001 - the store's own
    paused_why = models.TextField(null=True)  # noqa: DJ001
    retired_at = Instant(null=True)

    objects = _OfStore()

    class Meta:
        """Made by the store."""

        managed = False
        db_table = "cronsensus_jobs"
        ordering = ("name",)
        permissions = (("pause_job", "Can pause and resume jobs"), ("run_job", "Can run jobs now"))

    def __str__(self) -> str:
        """Return its name."""
        return str(self.name)


class Run(models.Model):
    """An occurrence of a job: what was to run, and what became of it."""

    job = models.ForeignKey(Job, models.DO_NOTHING, db_constraint=False)
    namespace = models.CharField(max_length=200)
    key = models.CharField(max_length=400)
    origin = models.CharField(max_length=12)
    state = models.CharField(max_length=10)
    scheduled_for = Instant("for", null=True)
    due_at = Instant()
    created_at = Instant()
    started_at = Instant("started", null=True)
    finished_at = Instant("finished", null=True)
    attempt = models.IntegerField()
    node = models.CharField(max_length=200, null=True)  # noqa: DJ001
    reason = models.TextField(null=True)  # noqa: DJ001
    payload = models.TextField("arguments", null=True)  # noqa: DJ001
    result = models.TextField(null=True)  # noqa: DJ001
    error = models.TextField(null=True)  # noqa: DJ001

    objects = _OfStore()

    class Meta:
        """Made by the store."""

        managed = False
        db_table = "cronsensus_occurrences"
        ordering = ("-id",)
        permissions = (("retry_run", "Can retry runs"), ("cancel_run", "Can cancel runs"))

    def __str__(self) -> str:
        """Return the job and the number."""
        return f"{self.job.name} {self.pk}"
