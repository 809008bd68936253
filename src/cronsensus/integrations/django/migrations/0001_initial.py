"""The models as Django has to know them for permissions and content types; it makes no table."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db import migrations, models

from cronsensus.integrations.django.models import Instant

_ID = ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID"))


class Migration(migrations.Migration):
    """Two unmanaged models."""

    initial = True
    dependencies: ClassVar[list[Any]] = []
    operations: ClassVar[list[Any]] = [
        migrations.CreateModel(
            name="Job",
            fields=[
                _ID,
                ("name", models.CharField(max_length=200)),
                ("namespace", models.CharField(max_length=200)),
                ("function", models.CharField(max_length=200)),
                ("source", models.CharField(max_length=10)),
                ("spec", models.TextField()),
                ("revision", models.IntegerField()),
                ("next_due", Instant(null=True, verbose_name="next")),
                ("paused_at", Instant(null=True)),
                ("paused_by", models.TextField(null=True)),
                ("paused_why", models.TextField(null=True)),
                ("retired_at", Instant(null=True)),
            ],
            options={
                "db_table": "cronsensus_jobs",
                "ordering": ("name",),
                "permissions": (("pause_job", "Can pause and resume jobs"), ("run_job", "Can run jobs now")),
                "managed": False,
            },
        ),
        migrations.CreateModel(
            name="Run",
            fields=[
                _ID,
                ("namespace", models.CharField(max_length=200)),
                ("key", models.CharField(max_length=400)),
                ("origin", models.CharField(max_length=12)),
                ("state", models.CharField(max_length=10)),
                ("scheduled_for", Instant(null=True, verbose_name="for")),
                ("due_at", Instant()),
                ("created_at", Instant()),
                ("started_at", Instant(null=True, verbose_name="started")),
                ("finished_at", Instant(null=True, verbose_name="finished")),
                ("attempt", models.IntegerField()),
                ("node", models.CharField(max_length=200, null=True)),
                ("reason", models.TextField(null=True)),
                ("payload", models.TextField(null=True, verbose_name="arguments")),
                ("result", models.TextField(null=True)),
                ("error", models.TextField(null=True)),
                (
                    "job",
                    models.ForeignKey(db_constraint=False, on_delete=models.DO_NOTHING, to="cronsensus_django.job"),
                ),
            ],
            options={
                "db_table": "cronsensus_occurrences",
                "ordering": ("-id",),
                "permissions": (("retry_run", "Can retry runs"), ("cancel_run", "Can cancel runs")),
                "managed": False,
            },
        ),
    ]
