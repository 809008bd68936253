"""Run a job now, with its own arguments or with others."""

from __future__ import annotations

import json
from typing import Any

from cronsensus.dashboard.actions import Action, Field, Form, Given, Text, job_form, retired
from cronsensus.dashboard.arguments import PREFIX, Parameter, parameters_of, read_arguments
from cronsensus.errors import InvalidOption
from cronsensus.insight.lookup import require_job
from cronsensus.model.job import JobView
from cronsensus.model.occurrence import Item
from cronsensus.scheduler import Scheduler
from cronsensus.stores.base import Store


def run_now(scheduler: Scheduler | None) -> Action:
    """Return the action; where ``scheduler`` declares a job, its form has a field for each parameter."""
    declared = scheduler.jobs if scheduler is not None else {}

    def parameters(view: JobView) -> list[Parameter] | None:
        job = declared.get(view.spec.name)
        return None if job is None else parameters_of(job.function, executor=view.spec.executor)

    def form(store: Store, given: Given) -> Form:
        view = require_job(store, given.get("job", ""))
        known = parameters(view)
        refused = retired(view)
        if view.spec.guarded or view.spec.keeper is not None:
            refused = ("Another program calls it, and no node runs it.",)
        says: tuple[Text, ...] = (("One run more, beside its schedule: its next times stay as they are.",),)
        if known is None or known:
            says += (("Where nothing is written, it gets the arguments of its definition.",),)
        return job_form(
            view,
            title=("Run {0} now", view.spec.name),
            says=says,
            button="Run now",
            seen=f"revision {view.revision}",
            fields=_json_fields(given) if known is None else tuple(_field(each, given) for each in known),
            refused=refused,
            command=f"cronsensus jobs trigger {view.spec.name}",
        )

    def carry_out(store: Store, given: Given, by: str, why: str) -> str:
        name = given["job"]
        if not any(text.strip() for key, text in given.items() if key.startswith(PREFIX)):
            code = scheduler if name in declared else None
            made = store.trigger(name, by=by, why=why) if code is None else code.trigger(name, by=by, reason=why)
            return f"/runs/{made.id}"
        known = parameters(require_job(store, name))
        if scheduler is not None and known is not None:
            handle = scheduler.options(name).enqueue(**read_arguments(known, given))
            return f"/runs/{handle.id}"
        args = _read(given.get(f"{PREFIX}args", ""), list, '[42, "a"]')
        kwargs = _read(given.get(f"{PREFIX}kwargs", ""), dict, '{"order": 42}')
        (enqueued,) = store.enqueue([Item(job=name, args=tuple(args), kwargs=kwargs)])
        return f"/runs/{enqueued.id}"

    return Action(form, carry_out)


def _json_fields(given: Given) -> tuple[Field, ...]:
    args, kwargs = f"{PREFIX}args", f"{PREFIX}kwargs"
    return (
        Field(args, "Other arguments by position, as a JSON list", given.get(args, ""), large=True),
        Field(kwargs, "Other arguments by name, as a JSON object", given.get(kwargs, ""), large=True),
    )


def _field(each: Parameter, given: Given) -> Field:
    return Field(
        PREFIX + each.name,
        each.name,
        given.get(PREFIX + each.name, ""),
        large=each.kind == "json",
        plain=True,
        choices=each.choices,
        hint=each.default or "",
    )


def _read(text: str, kind: type, example: str) -> Any:
    """Return what somebody wrote as JSON; nothing is nothing of that kind.

    Raises:
        InvalidOption: it is not JSON, or something else.
    """
    if not text.strip():
        return kind()
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, kind):
        raise InvalidOption(f"{text[:60]!r} is no JSON {kind.__name__}; write it like {example}")
    return value
