"""Cancel or retry many chosen runs at once. The form first shows what would become of each."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from cronsensus.dashboard.actions import Action, Form, Given, NoTargetError, Text, runs_elsewhere
from cronsensus.dashboard.run_filters import read_list_path
from cronsensus.errors import InvalidTransition
from cronsensus.jobs.handle import cancel_occurrence, retry_occurrence
from cronsensus.model.occurrence import Occurrence
from cronsensus.model.states import ACTIVE, State
from cronsensus.stores.base import Store

MOST_CHOSEN = 200
_MOST_PREVIEWED = 50
Judge = Callable[[Store, Occurrence], tuple[bool, Text]]
"""Returns whether the act applies to a run, and a text on what would become of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Verb:
    """What is done to each run; ``single_title``: the title if it is done to only one."""

    judge: Judge
    title: str
    single_title: str
    button: str
    command: str
    act: Callable[[Store, Occurrence, str, str], None]


def _judge_cancel(_: Store, occurrence: Occurrence) -> tuple[bool, Text]:
    if occurrence.state not in ACTIVE:
        return False, ("has ended, {0}: left alone", occurrence.state)
    if occurrence.is_batch:
        return True, ("a batch: its items are cancelled, or asked to stop",)
    return True, ("runs: it is asked to stop",) if occurrence.state is State.RUNNING else ("waits: it will not run",)


def _judge_retry(store: Store, occurrence: Occurrence) -> tuple[bool, Text]:
    if occurrence.state in ACTIVE:
        return False, ("is {0}: left alone, for it has not ended", occurrence.state)
    if occurrence.state is State.SUCCEEDED:
        return False, ("has succeeded: left alone; its own page runs it a second time",)
    if occurrence.parent is not None:
        return False, ("is an item of batch {0}: left alone; run that again", occurrence.parent)
    if occurrence.retried_as is not None:
        return False, ("was run again already, as run {0}: left alone", occurrence.retried_as)
    if runs_elsewhere(store.job(occurrence.job)) is not None:
        return False, ("another program calls it: left alone",)
    return True, ("a new run, with the same arguments and nominal time",)


def _chosen_runs(store: Store, values: Given) -> list[Occurrence]:
    """Return the chosen runs, the oldest first; runs that are gone are left out."""
    numbers = sorted({int(text) for text in values.get("runs", "").split() if text.isdecimal() and len(text) < 19})
    runs = [run for number in numbers[:MOST_CHOSEN] if (run := store.occurrence(number)) is not None]
    if not runs:
        raise NoTargetError("No run was chosen, or none of them is there any more")
    return runs


def _many(verb: _Verb) -> Action:
    def form(store: Store, values: Given) -> Form:
        chosen = _chosen_runs(store, values)
        judged = [(run, *verb.judge(store, run)) for run in chosen]
        affected = [run for run, applies, _ in judged if applies]
        # Runs that are left alone are listed last.
        rows = [(f"{run.id} {run.job}", outcome) for run, _, outcome in sorted(judged, key=lambda row: not row[1])]
        state = " ".join(f"{run.id}:{run.state}:{run.attempt}:{run.retried_as}" for run in chosen)
        run_ids = " ".join(str(run.id) for run in chosen)
        return Form(
            title=(verb.single_title,) if len(affected) == 1 else (verb.title, len(affected) or len(chosen)),
            consequences=(("{0} of the {1} that were chosen are meant.", len(affected), len(chosen)),),
            button=verb.button,
            back=read_list_path(values.get("list", "")),
            hidden={"runs": run_ids, "list": values.get("list", "")[:4000]},
            seen=hashlib.sha256(state.encode()).hexdigest()[:16],
            reason=verb.command == "cancel",
            stops=verb.command == "cancel",
            rows=tuple(rows[:_MOST_PREVIEWED]),
            more=max(0, len(rows) - _MOST_PREVIEWED),
            refused=None if affected else ("None of them can be meant.",),
            command=f"cronsensus runs {verb.command} " + " ".join(str(run.id) for run in affected[:20])
            + (" …" if len(affected) > 20 else ""),
        )  # fmt: skip

    def carry_out(store: Store, values: Given, by: str, why: str) -> str:
        for run in _chosen_runs(store, values):
            if verb.judge(store, run)[0]:
                # A run that ended or was pruned meanwhile does not stop the others.
                with suppress(InvalidTransition, LookupError):
                    verb.act(store, run, by, why)
        return read_list_path(values.get("list", ""))

    return Action(form, carry_out)


def _cancel(store: Store, run: Occurrence, by: str, why: str) -> None:
    cancel_occurrence(store, run.id, by=by, why=why)


def _retry(store: Store, run: Occurrence, by: str, why: str) -> None:
    retry_occurrence(store, run.id, by=by, why=why, again=False)


_CANCEL = _Verb(
    judge=_judge_cancel,
    title="Cancel {0} runs",
    single_title="Cancel one run",
    button="Cancel them",
    command="cancel",
    act=_cancel,
)
_RETRY = _Verb(
    judge=_judge_retry,
    title="Run {0} runs again",
    single_title="Run one run again",
    button="Run again",
    command="retry",
    act=_retry,
)
MANY_RUNS_ACTIONS = {"cancel-runs": _many(_CANCEL), "retry-runs": _many(_RETRY)}
