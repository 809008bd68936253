"""Run a job now, with its own arguments or with others."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from cronsensus.after.downstream import list_names_after
from cronsensus.dashboard.actions import Action, Field, Form, Given, Text, job_form, refuse_retired, runs_elsewhere
from cronsensus.dashboard.arguments import PREFIX, Parameter, own_arguments, parameters_of, read_arguments
from cronsensus.errors import InvalidOption
from cronsensus.insight.lookup import require_job
from cronsensus.model.ids import new_id
from cronsensus.model.job import JobView
from cronsensus.payload.codec import dumps
from cronsensus.scheduler import Scheduler
from cronsensus.security.masking import mask_data
from cronsensus.stores.base import Store
from cronsensus.stores.pages import every_edge, rules_of

_FORM = re.compile(r"[0-9a-f-]{36}")
"""The form of an id of ``new_id``. Nothing else that a browser sends becomes a key."""


def run_now(scheduler: Scheduler | None) -> Action:
    """Return the action; where ``scheduler`` declares a job, its form has a field for each parameter."""
    declared = scheduler.jobs if scheduler is not None else {}

    def parameters(view: JobView) -> list[Parameter] | None:
        job = declared.get(view.spec.name)
        return None if job is None else parameters_of(job.function, executor=view.spec.executor)

    def form(store: Store, values: Given) -> Form:
        view = require_job(store, values.get("job", ""))
        known = parameters(view)
        refused = runs_elsewhere(view) or refuse_retired(view)
        consequences: tuple[Text, ...] = (("One run more, beside its schedule: its next times stay as they are.",),)
        if known is None or known:
            consequences += (("Where nothing is written, it gets the arguments of its definition.",),)
        after = list_names_after(rules_of(every_edge(store)), view.spec.name)
        if after:
            consequences += (
                (
                    "What comes after it does not follow: {0}. To have it follow: {1}",
                    ", ".join(after),
                    f"cronsensus jobs trigger {view.spec.name} --downstream",
                ),
            )
        shown = job_form(
            view,
            title=("Run {0} now", view.spec.name),
            consequences=consequences,
            button="Run now",
            seen=f"revision {view.revision}",
            fields=_json_fields(values)
            if known is None
            else tuple(_field(parameter, values, own_arguments(known, view.spec)) for parameter in known),
            refused=refused,
            command=f"cronsensus jobs trigger {view.spec.name}",
        )
        # A form that a browser sends twice makes the same run.
        shown.hidden["form"] = values.get("form", "") if _FORM.fullmatch(values.get("form", "")) else new_id()
        return shown

    def carry_out(store: Store, values: Given, by: str, why: str) -> str:
        name = values["job"]
        if not any(text.strip() for key, text in values.items() if key.startswith(PREFIX)):
            code = scheduler if name in declared else None
            key = _key(values, "")
            if code is None:
                return f"/runs/{store.trigger(name, by=by, why=why, key=key).id}"
            return f"/runs/{code.trigger(name, by=by, reason=why, key=key).id}"
        view = require_job(store, name)
        known = parameters(view)
        if scheduler is not None and known is not None:
            written = {key: text for key, text in values.items() if text.strip()}
            item = scheduler.options(name).call(**read_arguments(known, own_arguments(known, view.spec) | written)).item
            args, kwargs = item.args or (), item.kwargs or {}
        else:
            args = _read(values.get(f"{PREFIX}args", ""), list, '[42, "a"]', view.spec.args)
            kwargs = _read(values.get(f"{PREFIX}kwargs", ""), dict, '{"order": 42}', view.spec.kwargs)
        key = _key(values, dumps([list(args), kwargs], what="arguments"))
        return f"/runs/{store.trigger(name, by=by, why=why, arguments=(args, kwargs), key=key).id}"

    return Action(form, carry_out)


def _key(values: Given, arguments: str) -> str | None:
    """Return the key of the run of a form: the same form with other arguments is another run."""
    form = values.get("form", "")
    if not _FORM.fullmatch(form):
        return None
    return f"{form} {hashlib.sha256(arguments.encode()).hexdigest()[:12]}" if arguments else form


def _json_fields(values: Given) -> tuple[Field, ...]:
    args, kwargs = f"{PREFIX}args", f"{PREFIX}kwargs"
    return (
        Field(args, "Other arguments by position, as a JSON list", values.get(args, ""), large=True),
        Field(kwargs, "Other arguments by name, as a JSON object", values.get(kwargs, ""), large=True),
    )


def _field(parameter: Parameter, values: Given, own: Mapping[str, str]) -> Field:
    hint = own.get(PREFIX + parameter.name) or parameter.default or ""
    return Field(
        PREFIX + parameter.name,
        parameter.name,
        values.get(PREFIX + parameter.name, ""),
        large=parameter.kind == "json",
        plain=True,
        choices=parameter.choices,
        hint=hint and mask_data(hint, parameter.name),
    )


def _read(text: str, kind: type, example: str, own: Any) -> Any:
    """Parse a field as JSON; an empty field gives the job's own value.

    Raises:
        InvalidOption: it is not JSON of this kind.
    """
    if not text.strip():
        return own
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, kind):
        raise InvalidOption(f"{text[:60]!r} is no JSON {kind.__name__}; write it like {example}")
    return value
