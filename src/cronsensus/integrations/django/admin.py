"""Jobs and runs in Django's admin: lists with filters and search, and actions with a reason.

Each action is recorded in Django's history of the object and in the store's trail, under the user's name.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from enum import Enum
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ActionForm
from django.core.paginator import Paginator
from django.urls import reverse
from django.utils import timezone
from django.utils.functional import cached_property
from django.utils.html import format_html

from cronsensus.errors import CronsensusError
from cronsensus.integrations.django.models import Job, Run
from cronsensus.integrations.django.options import read_options
from cronsensus.integrations.django.project import find_scheduler
from cronsensus.model.states import Origin, State
from cronsensus.payload.codec import read_error
from cronsensus.stores.sql.definitions import read_spec

_MOST_COUNTED = 10_000
"""Lists are counted up to this for their page numbers: counting a million runs would read them all."""
_MOST_SEARCHED = 100_000
"""Runs of a list that filters search: without a bound a filter without matches would read all runs."""
_MOST_JOBS = 100
_LONGEST_NUMBER = 18
_MOST_LATEST = 10
_LONGEST_REASON = 80


def _local(moment: datetime | None) -> str:
    return "-" if moment is None else timezone.localtime(moment).strftime("%Y-%m-%d %H:%M:%S")


class ReasonForm(ActionForm):
    """The form beside the choice of an action."""

    reason = forms.CharField(required=False, widget=forms.TextInput(attrs={"placeholder": "reason, for the trail"}))


class BoundedPaginator(Paginator):
    """Counts no further than a person would page."""

    @cached_property
    def count(self) -> int:
        """Return how many there are, up to a bound beyond which nobody pages."""
        return int(self.object_list.order_by()[:_MOST_COUNTED].count())


class _ReadOnly(admin.ModelAdmin):
    """A list and a page of rows of the store; only actions change anything."""

    action_form = ReasonForm
    paginator = BoundedPaginator
    show_full_result_count = False
    list_per_page = 50

    def has_add_permission(self, request: Any) -> bool:  # noqa: ARG002
        """Refuse: a job is declared in code, and a run is enqueued."""
        return False

    def has_change_permission(self, request: Any, obj: Any = None) -> bool:  # noqa: ARG002
        """Refuse: there are actions."""
        return False

    def has_delete_permission(self, request: Any, obj: Any = None) -> bool:  # noqa: ARG002
        """Refuse: ended runs are pruned."""
        return False

    def _is_allowed(self, request: Any, permission: str) -> bool:
        return bool(request.user.has_perm(f"cronsensus_django.{permission}"))

    def _act(self, request: Any, queryset: Any, done: str, verb: Callable[[Any, str, str], object]) -> None:
        """Carry an action out on each chosen object; show a message for each refusal."""
        reason, user_name, count = request.POST.get("reason", "").strip(), request.user.get_username(), 0
        for obj in queryset:
            try:
                verb(obj, reason, user_name)
            except (CronsensusError, LookupError) as error:
                self.message_user(request, f"{obj}: {error}", messages.ERROR)
                continue
            count += 1
            self.log_change(request, obj, f"{done}: {reason}" if reason else done)
        if count:
            self.message_user(request, f"{done}: {count}", messages.SUCCESS)


class _Words(admin.SimpleListFilter):
    """A filter by the possible values of a column: finding its actual values would read a million rows."""

    words: type[Enum]

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, str]]:  # noqa: ARG002
        """Return the choices."""
        return [(word.value, word.value) for word in self.words]

    def queryset(self, request: Any, queryset: Any) -> Any:  # noqa: ARG002
        """Return what was chosen."""
        return queryset if self.value() is None else queryset.filter(**{self.parameter_name: self.value()})


class StateFilter(_Words):
    """By state."""

    title, parameter_name, words = "state", "state", State


class OriginFilter(_Words):
    """By origin."""

    title, parameter_name, words = "origin", "origin", Origin


class PausedFilter(admin.SimpleListFilter):
    """Whether a job is paused."""

    title, parameter_name = "state", "paused"

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[str, str]]:  # noqa: ARG002
        """Return the choices."""
        return [("no", "active"), ("yes", "paused")]

    def queryset(self, request: Any, queryset: Any) -> Any:  # noqa: ARG002
        """Return what was chosen."""
        return queryset if self.value() is None else queryset.filter(paused_at__isnull=self.value() == "no")


class JobAdmin(_ReadOnly):
    """The jobs that are not retired."""

    list_display = ("name", "schedule", "next", "state", "runs")
    list_filter = (PausedFilter, "source")
    search_fields = ("name", "function")
    actions = ("run_now", "pause", "resume")
    fields = readonly_fields = ("name", "function", "source", "schedule", "next", "state", "revision", "latest")

    def get_queryset(self, request: Any) -> Any:
        """Return the jobs that run."""
        return super().get_queryset(request).filter(retired_at=None)

    @admin.display(description="schedule")
    def schedule(self, job: Any) -> str:
        """Return when it runs, in words."""
        try:
            trigger = read_spec(job.spec).trigger
        except CronsensusError as error:
            return str(error)
        return "-" if trigger is None else trigger.describe()

    @admin.display(description="next", ordering="next_due")
    def next(self, job: Any) -> str:
        """Return when it is due next."""
        return "-" if job.paused_at else _local(job.next_due)

    @admin.display(description="state")
    def state(self, job: Any) -> str:
        """Return whether it is paused, by whom and why."""
        return "active" if job.paused_at is None else f"paused by {job.paused_by}: {job.paused_why}"

    @admin.display(description="runs")
    def runs(self, job: Any) -> Any:
        """Return a link to its runs."""
        path = reverse(f"{self.admin_site.name}:cronsensus_django_run_changelist")
        return format_html('<a href="{}?job__id__exact={}">runs</a>', path, job.pk)

    @admin.display(description="latest runs")
    def latest(self, job: Any) -> Any:
        """Return the state of its latest run."""
        lines = [f"{_local(run.scheduled_for or run.due_at)}  {run.state}  {run.reason or ''}" for run in
                 Run.objects.filter(job=job.pk)[:_MOST_LATEST]]  # fmt: skip
        return format_html("<pre>{}</pre>", "\n".join(lines))

    @admin.action(description="Run now", permissions=["run"])
    def run_now(self, request: Any, queryset: Any) -> None:
        """Run jobs beside their schedule."""
        trigger = find_scheduler().trigger
        self._act(request, queryset, "run now", lambda job, why, who: trigger(job.name, reason=why, by=who))

    @admin.action(description="Pause (with a reason)", permissions=["pause"])
    def pause(self, request: Any, queryset: Any) -> None:
        """Stop jobs firing."""
        pause = find_scheduler().pause
        self._act(request, queryset, "paused", lambda job, why, who: pause(job.name, reason=why, by=who))

    @admin.action(description="Resume", permissions=["pause"])
    def resume(self, request: Any, queryset: Any) -> None:
        """End pauses."""
        resume = find_scheduler().resume
        self._act(request, queryset, "resumed", lambda job, why, who: resume(job.name, reason=why, by=who))

    def has_pause_permission(self, request: Any) -> bool:
        """Whether the user may pause jobs."""
        return self._is_allowed(request, "pause_job")

    def has_run_permission(self, request: Any) -> bool:
        """Whether the user may run jobs now."""
        return self._is_allowed(request, "run_job")


class RunAdmin(_ReadOnly):
    """The runs, newest first."""

    list_display = ("id", "job", "nominal", "state", "attempt", "started", "took", "node", "why")
    list_filter = (StateFilter, OriginFilter)
    list_select_related = ("job",)
    search_fields = ("=id",)
    search_help_text = f"a number, a key, or a part of a job's name; lists look at the latest {_MOST_SEARCHED:,} runs"
    sortable_by = ()
    actions = ("retry", "cancel")
    fields = readonly_fields = (
        "job", "key", "origin", "state", "reason", "nominal", "started", "finished", "took", "attempt", "node",
        "payload", "result", "failure", "attempts",
    )  # fmt: skip

    def get_search_results(self, request: Any, queryset: Any, search_term: str) -> tuple[Any, bool]:  # noqa: ARG002
        """Find a run by its number or its key, or runs by a part of their job's name; each by an index."""
        term = search_term.strip()
        if not term:
            return queryset, False
        if term.isdecimal() and len(term) <= _LONGEST_NUMBER:
            return queryset.filter(pk=int(term)), False
        jobs = list(Job.objects.filter(name__icontains=term).values_list("pk", flat=True)[:_MOST_JOBS])
        if jobs:
            return queryset.filter(job_id__in=jobs), False
        return queryset.filter(job_id__in=Job.objects.values("pk"), key=term), False

    def get_queryset(self, request: Any) -> Any:
        """Return the runs; without a job or a search only the latest, so that no list reads all."""
        runs = super().get_queryset(request)
        query = getattr(request, "GET", {})
        match = getattr(request, "resolver_match", None)
        if query.get("q") or query.get("job__id__exact") or match is None or not match.url_name.endswith("changelist"):
            return runs
        newest = runs.order_by("-pk").values_list("pk", flat=True).first() or 0
        return runs.filter(pk__gt=newest - _MOST_SEARCHED)

    @admin.display(description="for")
    def nominal(self, run: Any) -> str:
        """Return the time that it is for."""
        return _local(run.scheduled_for or run.due_at)

    @admin.display(description="started")
    def started(self, run: Any) -> str:
        """Return when its last attempt began."""
        return _local(run.started_at)

    @admin.display(description="finished")
    def finished(self, run: Any) -> str:
        """Return when it ended."""
        return _local(run.finished_at)

    @admin.display(description="took")
    def took(self, run: Any) -> str:
        """Return how long its last attempt took."""
        if run.started_at is None or run.finished_at is None:
            return "-"
        return f"{(run.finished_at - run.started_at).total_seconds():.3f} s"

    @admin.display(description="why")
    def why(self, run: Any) -> str:
        """Return its reason, or its error, in short."""
        error = read_error(run.error)
        text = run.reason or ("" if error is None else f"{error.type}: {error.message}")
        return text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]}…"

    @admin.display(description="error")
    def failure(self, run: Any) -> Any:
        """Return its error with the traceback."""
        error = read_error(run.error)
        return (
            "-" if error is None else format_html("<pre>{}</pre>", error.traceback or f"{error.type}: {error.message}")
        )

    @admin.display(description="attempts")
    def attempts(self, run: Any) -> Any:
        """Return each attempt with its node and its end."""
        lines = (
            ", ".join(
                filter(
                    None,
                    (
                        f"{attempt.attempt}: {_local(attempt.started_at)}",
                        attempt.node,
                        str(attempt.end or "running"),
                        attempt.reason,
                    ),
                )
            )
            for attempt in find_scheduler().store.runs(run.pk)
        )
        return format_html("<pre>{}</pre>", "\n".join(lines) or "-")

    @admin.action(description="Retry", permissions=["retry"])
    def retry(self, request: Any, queryset: Any) -> None:
        """Run again the runs that did not succeed."""
        retry = find_scheduler().retry
        self._act(request, queryset, "retried", lambda run, why, who: retry(run.pk, reason=why, by=who))

    @admin.action(description="Cancel (with a reason)", permissions=["cancel"])
    def cancel(self, request: Any, queryset: Any) -> None:
        """Cancel pending runs, and ask running runs to stop."""
        cancel = find_scheduler().cancel

        def act(run: Any, why: str, who: str) -> None:
            cancel(run.pk, reason=why or "cancelled in the admin", by=who)

        self._act(request, queryset, "cancelled", act)

    def has_retry_permission(self, request: Any) -> bool:
        """Whether the user may retry runs."""
        return self._is_allowed(request, "retry_run")

    def has_cancel_permission(self, request: Any) -> bool:
        """Whether the user may cancel runs."""
        return self._is_allowed(request, "cancel_run")


if read_options().url is None:  # without the tables there is no admin; the dashboard shows any store
    admin.site.register(Job, JobAdmin)
    admin.site.register(Run, RunAdmin)
