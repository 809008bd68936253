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

_FORM_ID = re.compile(r"[0-9a-f-]{36}")
"""The form of an id of ``new_id``. Nothing else that a browser sends becomes a key."""


def run_now(scheduler: Scheduler | None) -> Action:
    """Return the action; where ``scheduler`` declares a job, its form has a field for each parameter."""
    declared = scheduler.jobs if scheduler is not None else {}

    def parameters(view: JobView) -> list[Parameter] | None:
        job = declared.get(view.spec.name)
        return None if job is None else parameters_of(job.function, executor=view.spec.executor)

    def form(store: Store, values: Given) -> Form:
        view = require_job(store, values.get("job", ""))
        own_parameters = parameters(view)
        refused = runs_elsewhere(view) or refuse_retired(view)
        consequences: tuple[Text, ...] = (("One run more, beside its schedule: its next times stay as they are.",),)
        if own_parameters is None or own_parameters:
            consequences += (("Where nothing is written, it gets the arguments of its definition.",),)
        downstream = list_names_after(rules_of(every_edge(store)), view.spec.name)
        if downstream:
            consequences += (
                (
                    "What comes after it does not follow: {0}. To have it follow: {1}",
                    ", ".join(downstream),
                    f"cronsensus jobs trigger {view.spec.name} --downstream",
                ),
            )
        run_form = job_form(
            view,
            title=("Run {0} now", view.spec.name),
            consequences=consequences,
            button="Run now",
            seen=f"revision {view.revision}",
            fields=_json_fields(values)
            if own_parameters is None
            else tuple(
                _field(parameter, values, own_arguments(own_parameters, view.spec)) for parameter in own_parameters
            ),
            refused=refused,
            command=f"cronsensus jobs trigger {view.spec.name}",
        )
        # A form that a browser sends twice makes the same run.
        run_form.hidden["form"] = values.get("form", "") if _FORM_ID.fullmatch(values.get("form", "")) else new_id()
        return run_form

    def carry_out(store: Store, values: Given, by: str, why: str) -> str:
        name = values["job"]
        if not any(text.strip() for key, text in values.items() if key.startswith(PREFIX)):
            declaring_scheduler = scheduler if name in declared else None
            key = _key(values, "")
            if declaring_scheduler is None:
                return f"/runs/{store.trigger(name, by=by, why=why, key=key).id}"
            return f"/runs/{declaring_scheduler.trigger(name, by=by, reason=why, key=key).id}"
        view = require_job(store, name)
        own_parameters = parameters(view)
        if scheduler is not None and own_parameters is not None:
            filled = {key: text for key, text in values.items() if text.strip()}
            item = (
                scheduler.options(name)
                .call(**read_arguments(own_parameters, own_arguments(own_parameters, view.spec) | filled))
                .item
            )
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
    if not _FORM_ID.fullmatch(form):
        return None
    return f"{form} {hashlib.sha256(arguments.encode()).hexdigest()[:12]}" if arguments else form


def _json_fields(values: Given) -> tuple[Field, ...]:
    args, kwargs = f"{PREFIX}args", f"{PREFIX}kwargs"
    return (
        Field(args, "Other arguments by position, as a JSON list", values.get(args, ""), large=True),
        Field(kwargs, "Other arguments by name, as a JSON object", values.get(kwargs, ""), large=True),
    )


def _field(parameter: Parameter, values: Given, own_texts: Mapping[str, str]) -> Field:
    hint = own_texts.get(PREFIX + parameter.name) or parameter.default or ""
    return Field(
        PREFIX + parameter.name,
        parameter.name,
        values.get(PREFIX + parameter.name, ""),
        large=parameter.kind == "json",
        plain=True,
        choices=parameter.choices,
        hint=hint and mask_data(hint, parameter.name),
    )


def _read(text: str, json_type: type, example: str, own_value: Any) -> Any:
    """Parse a field as JSON; an empty field gives the job's own value.

    Raises:
        InvalidOption: it is not JSON of this kind.
    """
    if not text.strip():
        return own_value
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, json_type):
        raise InvalidOption(f"{text[:60]!r} is no JSON {json_type.__name__}; write it like {example}")
    return value
