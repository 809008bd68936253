"""What people can do from a page: each act is one verb of the store, shown before it is done.

An action shows what it would do (a ``Form``), and then does it. Both read the store anew. A form carries the state of
its target (``seen``): if that has changed when the form is sent, the form is shown again and nothing is done.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlencode

from cronsensus.errors import CronsensusError
from cronsensus.insight.backfill_plan import plan_backfill
from cronsensus.insight.clock_changes import zone_of
from cronsensus.insight.failures import failures_to_retry
from cronsensus.insight.life import lives_of
from cronsensus.insight.lookup import require_job
from cronsensus.insight.summaries import why_ended
from cronsensus.insight.time_words import exact_time, read_time, shorten, typed_time
from cronsensus.jobs.acting import MOST_AT_ONCE
from cronsensus.jobs.handle import cancel_occurrence
from cronsensus.model.batch import MOST_ITEMS
from cronsensus.model.job import JobView
from cronsensus.model.occurrence import Occurrence
from cronsensus.stores.base import Store
from cronsensus.triggers.zones import load_zone

Text = tuple[Any, ...]
"""A sentence of the catalogue, and the values for ``{0}``, ``{1}``."""
Given = Mapping[str, str]
PAGE_ZONE = "page_zone"
"""The key of the zone in which people who look at the page read and type times."""
_MOST_PREVIEWED = 20


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a form.

    Attributes:
        label: a text of the catalogue; if ``plain``, a name of the user's.
        large: a text area instead of a line.
        choices: the values of a selection; the field may also stay empty.
        box: a checkbox, which sends ``1``.
        hint: what applies if the field is left empty.
    """

    name: str
    label: str
    value: str = ""
    large: bool = False
    plain: bool = False
    choices: tuple[str, ...] = ()
    box: bool = False
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A form that shows an act before it is done.

    Attributes:
        title: what would be done, and to what.
        consequences: what it does, in sentences.
        button: the verb.
        back: the path to return to.
        hidden: hidden fields, which name the target.
        seen: the state of the target when the form was shown; another when the form is sent: it is shown again.
        reason: whether a reason must be given.
        fields: what else can be written.
        asks: fields to fill in before there is a preview; sent by GET.
        rows: the times or runs that it is about, with what would become of each.
        more: how many further rows are not shown.
        refused: why it cannot be done.
        command: the command that does the same.
        stops: it stops or breaks something, and is drawn in the colour of danger.
    """

    title: Text
    consequences: tuple[Text, ...]
    button: str
    back: str
    hidden: dict[str, str]
    seen: str = ""
    reason: bool = False
    fields: tuple[Field, ...] = ()
    asks: tuple[Field, ...] = ()
    rows: tuple[tuple[str | datetime, Text], ...] = ()
    more: int = 0
    refused: Text | None = None
    command: str = ""
    stops: bool = False


@dataclass(frozen=True, slots=True)
class Action:
    """Something that can be done to a job, a run, a node or a lock."""

    form: Callable[[Store, Given], Form]
    carry_out: Callable[[Store, Given, str, str], str]
    """Takes who acts, and why. Returns the path of what to look at next."""


class NoTargetError(LookupError):
    """The target of an act does not exist."""


# --- jobs -------------------------------------------------------------------------------------------------------------


def job_form(view: JobView, **parts: Any) -> Form:
    """Return a form about a job."""
    name = view.spec.name
    return Form(back=_job_path(name), hidden={"job": name}, **parts)


def _job_path(name: str) -> str:
    return f"/job?{urlencode({'name': name})}"


def _pause_form(store: Store, values: Given) -> Form:
    view = require_job(store, values.get("job", ""))
    return job_form(
        view,
        title=("Pause {0}", view.spec.name),
        consequences=(
            ("It does not fire until it is resumed; what runs goes on.",),
            ("Times that pass meanwhile are recorded as skipped (paused), and are not made up for.",),
        ),
        button="Pause",
        reason=True,
        refused=refuse_retired(view) or (("It is paused already.",) if view.paused_at is not None else None),
        command=f"cronsensus jobs pause {view.spec.name} --reason WHY",
    )


def _pause(store: Store, values: Given, by: str, why: str) -> str:
    store.pause(values["job"], by=by, why=why)
    return _job_path(values["job"])


def _resume_form(store: Store, values: Given) -> Form:
    view = require_job(store, values.get("job", ""))
    paused = view.paused_at
    consequences: tuple[Text, ...] = (("It fires again from now on.",),)
    if paused is not None:
        consequences += (
            ("It was paused by {0} on {1}: {2}", view.paused_by, exact_time(paused), view.paused_why or "-"),
        )
    return job_form(
        view,
        title=("Resume {0}", view.spec.name),
        consequences=consequences,
        button="Resume",
        seen=str(paused),
        refused=None if paused is not None else ("It is not paused.",),
        command=f"cronsensus jobs resume {view.spec.name}",
    )


def _resume(store: Store, values: Given, by: str, why: str) -> str:
    store.resume(values["job"], by=by, why=why)
    return _job_path(values["job"])


def _backfill_form(store: Store, values: Given) -> Form:
    view = require_job(store, values.get("job", ""))
    name, now, jobs_zone = view.spec.name, store.now(), zone_of(view.spec.trigger)
    start, end = values.get("from", "").strip(), values.get("to", "").strip() or "now"
    fields = (Field("from", "From", start or "1d"), Field("to", "To", end))
    common: dict[str, Any] = {
        "title": ("Backfill {0}", name),
        "consequences": (
            ("Nominal times of the past that have no active or succeeded run are run, one after another.",),
        ),
        "button": "Backfill",
        "asks": fields,
        "command": f"cronsensus jobs backfill {name} --from {start or '1d'} --to {end} --dry-run",
    }
    if not start:
        return job_form(view, **common, refused=refuse_retired(view) or ("Say from when, and look.",))
    try:
        zone = load_zone(values[PAGE_ZONE]) if PAGE_ZONE in values else jobs_zone
        since, until = read_time(start, now, tz=zone, what="From"), read_time(end, now, tz=zone, what="To")
        plan = plan_backfill(store, view, since, until, now)
        plan.require_provable()
        # A shell knows nothing of this page's zone.
        texts = (
            typed if read_time(typed, now, tz=jobs_zone) == instant else typed_time(instant)
            for typed, instant in ((start, since), (end, until))
        )
        common["command"] = "cronsensus jobs backfill {} --from {} --to {} --dry-run".format(
            name, *map(shlex.quote, texts)
        )
    except CronsensusError as error:
        return job_form(view, **common, refused=("{0}", str(error)))
    rows = [
        (
            time,
            ("has {0}: left alone", plan.standing[time].state) if time in plan.standing else ("will run",),
        )
        for time in plan.times[:_MOST_PREVIEWED]
    ]
    form = job_form(
        view,
        **{
            **common,
            "consequences": (
                *common["consequences"],
                ("{0} of {1} times would run.", len(plan.missing), len(plan.times)),
            ),
        },
        rows=tuple(rows),
        more=max(0, len(plan.times) - _MOST_PREVIEWED),
        seen=f"{len(plan.missing)} of {len(plan.times)}",
        refused=refuse_retired(view) or (None if plan.missing else ("No time is left to run.",)),
    )
    # Exact, so that what runs is what was shown, however long somebody looks at it.
    form.hidden.update({"from": since.isoformat(), "to": until.isoformat()})
    return form


def _backfill(store: Store, values: Given, by: str, why: str) -> str:
    view = require_job(store, values["job"])
    since, until = datetime.fromisoformat(values["from"]), datetime.fromisoformat(values["to"])
    missing = plan_backfill(store, view, since, until, store.now()).missing
    for index in range(0, len(missing), MOST_AT_ONCE):
        store.backfill(view.spec.name, missing[index : index + MOST_AT_ONCE], by=by, why=why)
    return _job_path(view.spec.name)


def refuse_retired(view: JobView) -> Text | None:
    """Return why nothing can be done to a job that is retired."""
    return ("It is retired: no code declares it any more.",) if view.retired_at is not None else None


def runs_elsewhere(view: JobView | None) -> Text | None:
    """Return why nobody can run a job from here, if only other programs run it."""
    if view is None or not view.spec.runs_elsewhere:
        return None
    return ("Another program calls it, and no node runs it.",)


# --- runs -------------------------------------------------------------------------------------------------------------


def find_run(store: Store, values: Given) -> Occurrence:
    """Return the run that a form names.

    Raises:
        NoTargetError: there is none.
    """
    number = values.get("run", "")
    occurrence = store.occurrence(int(number)) if number.isdecimal() and len(number) < 19 else None
    if occurrence is None:
        raise NoTargetError("There is no such run")
    return occurrence


def run_form(occurrence: Occurrence, seen: str = "", **parts: Any) -> Form:
    """Return a form about a run."""
    return Form(
        back=f"/runs/{occurrence.id}",
        hidden={"run": str(occurrence.id)},
        seen=f"{occurrence.state} {occurrence.attempt}{seen}",
        **parts,
    )


def _cancel_form(store: Store, values: Given) -> Form:
    occurrence = find_run(store, values)
    is_running = occurrence.state == "running"
    consequences: tuple[Text, ...] = (
        ("It runs. It is asked to stop, and is running until it does.",)
        if is_running
        else ("It waits, and will not run.",),
    )
    if occurrence.is_batch and occurrence.parent is None:
        items = store.children([occurrence.id], limit=MOST_ITEMS)[occurrence.id]
        consequences = (
            ("Its items: {0} that wait are cancelled, {1} that run are asked to stop.", items.pending, items.running),
        )
    return run_form(
        occurrence,
        title=("Cancel run {0} of {1}", occurrence.id, occurrence.job),
        consequences=consequences,
        button="Ask it to stop" if is_running else "Cancel it",
        reason=True,
        stops=True,
        refused=("It is {0} already; nothing is left to cancel.", occurrence.state) if occurrence.state.final else None,
        command=f"cronsensus runs cancel {occurrence.id} --reason WHY",
    )


def _cancel(store: Store, values: Given, by: str, why: str) -> str:
    cancel_occurrence(store, int(values["run"]), by=by, why=why)
    return f"/runs/{values['run']}"


def _failures(store: Store, values: Given) -> list[Occurrence]:
    """Return the failed runs that a bulk retry covers, the oldest first."""
    span = values.get("since", "") or "1d"
    since = read_time(span, store.now(), what="since")
    return failures_to_retry(store, job=values.get("job") or None, since=since, group=values.get("error") or None)


def _retry_failed_form(store: Store, values: Given) -> Form:
    failures = _failures(store, values)
    hidden = {name: values[name] for name in ("job", "since", "error") if values.get(name)}
    options = "".join(f" --{name} {shlex.quote(text)}" for name, text in hidden.items())
    return Form(
        title=("Run {0} failed runs again", len(failures)),
        consequences=(("A new run for each, the oldest first, with the same arguments and nominal time.",),),
        button="Run again",
        back="/failed",
        hidden=hidden,
        # Runs that failed since the form was shown are left out.
        seen=f"{len(failures)} {max((run.id for run in failures), default=0)}",
        rows=tuple(
            (f"{run.id} {run.job}", ("{0}", shorten(why_ended(run), 120))) for run in failures[:_MOST_PREVIEWED]
        ),
        more=max(0, len(failures) - _MOST_PREVIEWED),
        refused=None if failures else ("Nothing that failed is left.",),
        command=f"cronsensus runs retry --failed{options} --dry-run",
    )


def _retry_failed(store: Store, values: Given, by: str, why: str) -> str:
    for failure in _failures(store, values):
        store.retry(failure.id, by=by, why=why)
    return "/failed"


# --- nodes and locks --------------------------------------------------------------------------------------------------


def _drain_form(store: Store, values: Given) -> Form:
    session_id = values.get("node", "")
    node = next(
        (session for session in store.sessions(limit=1000) if session.is_node and session.id == session_id), None
    )
    if node is None:
        raise NoTargetError("There is no such node, or it has ended")
    life = lives_of(store, [node]).get(node.id)
    is_gone = life is not None and life.state == "gone"
    return Form(
        title=("Drain {0}", node.node),
        consequences=(
            ("It finishes what it runs, takes nothing new, and ends. Others take its work.",),
            ("It holds {0} now.", node.holds),
        ),
        button="Drain",
        back="/nodes",
        hidden={"node": node.id},
        seen=node.state,
        refused=("It is {0} already.", node.state)
        if node.state != "alive"
        else (("It is gone; its work is taken over without it.",) if is_gone else None),
        command=f"cronsensus nodes drain {node.id}",
    )


def _drain(store: Store, values: Given, by: str, why: str) -> str:
    store.drain(values["node"], by=by, why=why)
    return "/nodes"


def _break_form(store: Store, values: Given) -> Form:
    name = values.get("lock", "")
    locks = store.locks(name=name, limit=200)
    if not locks:
        raise NoTargetError("There is no such lock, or nobody holds it")
    return Form(
        title=("Break the lock {0}", name),
        consequences=(
            *(("It is held by {0} under the token {1}.", lock.holder, lock.token) for lock in locks[:10]),
            ("Its holder notices at its next renewal, and may work on until then beside the next one.",),
        ),
        button="Break it",
        back="/locks",
        hidden={"lock": name},
        seen=" ".join(str(lock.token) for lock in locks),
        reason=True,
        stops=True,
        command=f"cronsensus locks break {name} --reason WHY",
    )


def _break(store: Store, values: Given, by: str, why: str) -> str:
    store.break_lock(values["lock"], by=by, why=why)
    return "/locks"


ACTIONS: Mapping[str, Action] = {
    "pause": Action(_pause_form, _pause),
    "resume": Action(_resume_form, _resume),
    "backfill": Action(_backfill_form, _backfill),
    "retry-failed": Action(_retry_failed_form, _retry_failed),
    "cancel": Action(_cancel_form, _cancel),
    "drain": Action(_drain_form, _drain),
    "break": Action(_break_form, _break),
}
DONE_MESSAGES: Mapping[str, str] = {
    "pause": "It is paused.",
    "resume": "It is resumed.",
    "trigger": "It was told to run: this is the run.",
    "backfill": "The runs are made; they stand below.",
    "retry": "It is tried again: this is the new run.",
    "retry-failed": "They are tried again.",
    "retry-runs": "They are tried again.",
    "cancel": "It is cancelled, or asked to stop.",
    "cancel-runs": "They are cancelled, or asked to stop.",
    "drain": "It is asked to drain.",
    "break": "The lock is free.",
}
"""The message on the next page."""
