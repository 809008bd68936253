"""What happened, in order: plain values while it happens, text only when somebody reads it."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from typing import Any

from cronsensus.model.ends import End
from cronsensus.model.job import JobSpec, JobView
from cronsensus.model.ledger import Identity
from cronsensus.model.occurrence import (
    Claim,
    Enqueued,
    Item,
    Occurrence,
    OccurrenceFilter,
    Settled,
    Takeover,
)
from cronsensus.model.plan import Plan
from cronsensus.model.session import Renewal, SessionSpec
from cronsensus.model.step import Done, Step
from cronsensus.stores.values import DefineResult, View
from tests.simulation.cluster.clocks import SECOND, START


class Trace:
    """The events of one simulation. The same seed gives the same trace, on any machine and with any hash seed."""

    def __init__(self) -> None:
        self._events: list[tuple[int, str, str, tuple[Any, ...]]] = []

    def add(self, micros: int, who: str, what: str, *details: Any) -> None:
        """Note an event."""
        self._events.append((micros, who, what, details))

    def __len__(self) -> int:
        return len(self._events)

    def lines(self, about: str | None = None) -> Iterator[str]:
        """Give the events as text; with ``about``, only those in which that text occurs."""
        for micros, who, what, details in self._events:
            line = f"{micros / SECOND:11.6f}  {who:<10} {what:<13} {' '.join(map(_written, details))}".rstrip()
            if about is None or about in line:
                yield line

    def digest(self) -> str:
        """Return a hash of the whole trace."""
        digest = hashlib.blake2b(digest_size=16)
        for line in self.lines():
            digest.update(line.encode() + b"\n")
        return digest.hexdigest()


def _written(detail: Any) -> str:
    write = _WRITERS.get(type(detail))
    if write is not None:
        return write(detail)
    if isinstance(detail, (list, tuple)):
        return "[" + ", ".join(map(_written, detail)) + "]"
    if isinstance(detail, dict):
        return "{" + ", ".join(f"{key}: {_written(value)}" for key, value in detail.items()) + "}"
    return str(detail)


def _instant(instant: datetime) -> str:
    return f"@{(instant - START).total_seconds():g}"


def _view(view: View) -> str:
    due = " ".join(job.spec.name for job in view.jobs)
    holders = " ".join(f"{holder.id}({holder.expires_in.total_seconds():g}s)" for holder in view.holders)
    waits = "backlog" if view.backlog else ""
    return f"due[{due}] {waits} next {_written(view.next_job)} {_written(view.next_pending)} holders[{holders}]"


def _plan(plan: Plan) -> str:
    ranges = " ".join(f"{_instant(one.first)}-{_instant(one.last)} {one.state}({one.reason})" for one in plan.verdicts)
    created = " ".join(_instant(one.scheduled_for) for one in plan.occurrences)
    seen = f"{_instant(plan.watermark_seen)} r{plan.revision} a{plan.active_seen}"
    return f"{plan.job} after {seen}: run[{created}] {ranges} up to {_instant(plan.watermark)}"


def _defined(defined: DefineResult) -> str:
    done = {field.name: getattr(defined, field.name) for field in dataclasses.fields(defined)}
    return " ".join(f"{name}: {','.join(jobs)}" for name, jobs in done.items() if jobs)


def _step(step: Step) -> str:
    back = ", ".join(f"#{one.claim.id} token {one.claim.token} {one.cut or 'not begun'}" for one in step.give_back)
    said = {"notes": step.notes, "ends": step.ends, "fires": step.plans}
    parts = [f"{name}{_written(values)}" for name, values in said.items() if values]
    parts += [f"gives back[{back}]"] if back else []
    parts += [] if step.want is None else [f"wants {step.want.limit}"]
    return " ".join(parts)


def _done(done: Done) -> str:
    answers = {"unheard": done.noted, "not taken back": done.returned, "lost races": done.carried_out}
    parts = [f"{answer.count(False)} {name}" for name, answer in answers.items() if not all(answer)]
    parts += [_written(values) for values in (done.settled, done.claims) if values]
    parts += ["the session is lost"] if done.lost else []
    return " ".join(parts)


_WRITERS: dict[type, Callable[[Any], str]] = {
    datetime: _instant,
    timedelta: lambda one: f"{one.total_seconds():g}s",
    View: _view,
    Plan: _plan,
    Step: _step,
    Done: _done,
    DefineResult: _defined,
    JobSpec: lambda one: str(one.name),
    SessionSpec: lambda one: str(one.id),
    Claim: lambda one: f"#{one.id} {one.job} attempt {one.attempt} token {one.token}",
    End: lambda one: f"#{one.id} token {one.token} {one.state}({one.then.reason})",
    Settled: lambda one: f"#{one.id} token {one.token} {'accepted' if one.accepted else 'refused'} {one.state}",
    Renewal: lambda one: (
        f"{'alive' if one.alive else 'dead'} {one.lease.total_seconds():g}s "
        f"cancel{sorted(one.cancel)}{' drain' if one.drain else ''}"
    ),
    Takeover: lambda one: f"#{one.id} {one.job} token {one.token} of {one.session} became {one.became}",
    Enqueued: lambda one: f"#{one.id} {one.job} {one.key} {'new' if one.created else 'known'} {one.state}",
    Item: lambda one: f"{one.job} {one.key} in {one.delay.total_seconds():g}s",
    Occurrence: lambda one: f"#{one.id} {one.job} {one.state} token {one.token}",
    OccurrenceFilter: lambda one: f"of {one.session}",
    JobView: lambda one: str(one.spec.name),
    Identity: lambda one: f"store since {_written(one.since)}",  # its id is random, and a trace is not
}
