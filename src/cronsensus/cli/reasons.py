"""Why a job did or did not run at a time: sentences from what the store has on record. Prints nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta, tzinfo

from cronsensus.audit.nominal import Nominals
from cronsensus.insight.clock_changes import zone_of
from cronsensus.insight.ledger import MICROSECOND, NO_VERDICT, UNDECIDED
from cronsensus.insight.live_nodes import nodes_alive_at
from cronsensus.insight.summaries import error_text, why_ended
from cronsensus.insight.waiting import why_it_waits
from cronsensus.insight.words import brief, counted, exact, relative
from cronsensus.model.job import JobView, Stretch
from cronsensus.model.ledger import LedgerRange
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter, RunView
from cronsensus.model.states import Origin, Reason, State
from cronsensus.stores.base import Store
from cronsensus.stores.pages import every_range

LATE = timedelta(seconds=10)
_LONG = timedelta(days=366 * 50)


@dataclass(slots=True)
class Answer:
    """The facts on one job at one time."""

    job: str
    time: datetime
    nominal: bool
    verdict: str | None = None
    reason: str | None = None
    sentences: list[str] = field(default_factory=list)
    before: datetime | None = None
    after: datetime | None = None
    occurrences: list[Occurrence] = field(default_factory=list)


class Inquiry:
    """Asks the store about one job at one time."""

    def __init__(self, store: Store, view: JobView, at: datetime) -> None:
        self._store = store
        self._view = view
        self._at = at
        self._now = store.now()
        self._job = view.spec.name
        self._zone: tzinfo = zone_of(view.spec.trigger)
        self._history = store.history(self._job)
        self._nominals = Nominals(self._history.eras, retired=view.retired_at is not None)

    def answer(self) -> Answer:
        """Return the answer."""
        at, first = self._at, self._history.eras[:1]
        answer = Answer(self._job, at, nominal=self._nominals.has(at))
        where = OccurrenceFilter(job=self._job, scheduled_from=at, scheduled_until=at)
        answer.occurrences = self._store.occurrences(where, newest_first=False)
        ranges = [one for one in every_range(self._store, self._job, at, at) if answer.nominal]
        answer.before, answer.after = self._around()
        if not answer.nominal and not answer.occurrences:
            born = first[0].since if first else None
            self._not_nominal(answer, born)
            return answer
        scheduled = [one for one in answer.occurrences if one.origin is Origin.SCHEDULE]
        for one in scheduled or ([] if ranges else answer.occurrences[:1]):
            answer.verdict, answer.reason = one.state, one.reason
            self._occurrence(answer, one)
        for one_range in ranges[:1]:
            if answer.verdict is None:
                answer.verdict, answer.reason = one_range.range.state, one_range.range.reason
            self._range(answer, one_range)
        if answer.verdict is None:
            self._no_verdict(answer)
        self._later_ones(answer)
        return answer

    # --- which time ---------------------------------------------------------------------------------------------------

    def _around(self) -> tuple[datetime | None, datetime | None]:
        """Return the nearest nominal times before and after."""
        after = self._nominals.next_after(self._at)
        before = None
        eras = self._history.eras
        ends = [era.since for era in eras[1:]] + [self._at]
        for era, end in zip(eras, ends, strict=True):
            top = min(end, self._at - MICROSECOND)
            if era.trigger is not None and era.since < top:
                before = era.trigger.latest_until(top, max(era.since, top - _LONG)) or before
        return before, after

    def _not_nominal(self, answer: Answer, born: datetime | None) -> None:
        trigger = self._view.spec.trigger
        if self._view.retired_at is not None and self._view.retired_at <= self._at:
            answer.sentences.append(f"No: {self._job} was retired {exact(self._view.retired_at, self._zone)}.")
        elif self._view.horizon is not None and self._at <= self._view.horizon:
            answer.sentences += self._pruned(self._view.horizon)
        elif born is not None and self._at <= born and trigger is not None and _fires_at(trigger, self._at):
            answer.sentences += [
                f"No: {self._job} was first declared {exact(born, self._zone)}, and a job starts after that.",
                f"To run it for earlier times: cronsensus jobs backfill {self._job} --from '{exact(self._at)}'.",
            ]
        elif trigger is None:
            answer.sentences.append(f"No: {self._job} has no trigger; it only runs when it is told to.")
        else:
            answer.sentences.append(
                f"No: {exact(self._at, self._zone)} is not a nominal time of {self._job} ({trigger.describe()})."
            )
        near = [exact(time, self._zone) for time in (answer.before, answer.after) if time is not None]
        if near:
            answer.sentences.append(f"The nearest {'is' if len(near) == 1 else 'are'} {' and '.join(near)}.")

    # --- an occurrence was made ---------------------------------------------------------------------------------------

    def _occurrence(self, answer: Answer, one: Occurrence) -> None:
        runs = self._store.runs(one.id)
        say = answer.sentences.append
        if one.origin is not Origin.SCHEDULE:
            say(f"It was made by an operator ({one.origin}) as run {one.id}.")
        answer.sentences += self._standing(one)
        answer.sentences += [_attempt(run, self._now) for run in runs]
        delay = runs[0].started_at - self._at if runs else timedelta(0)
        if delay > LATE:
            say(f"It started {brief(delay)} after its nominal time.")
            answer.sentences += self._nodes_at(self._at)
        if one.state is State.FAILED:
            if one.reason == Reason.CRASHED:
                most = self._view.spec.policies.max_crashes
                say(f"After {one.crashes} crashes no other node tries it (max_crashes={most}).")
            say(f"See its error: cronsensus runs show {one.id}; run it again: cronsensus runs retry {one.id}.")

    def _standing(self, one: Occurrence) -> list[str]:
        match one.state:
            case State.SUCCEEDED:
                return [f"Yes: it ran and succeeded, as run {one.id}."]
            case State.FAILED:
                return [f"It ran and failed, as run {one.id}: {why_ended(one) or 'no error on record'}."]
            case State.RUNNING:
                return [f"It is running now, as run {one.id} on {one.node}{_since(one, self._now)}."]
            case State.PENDING:
                return [f"It waits, as run {one.id}.", *why_it_waits(self._store, self._view, one, self._now).sentences]
            case State.CANCELLED:
                return [f"It was cancelled: {self._cancelled(one)}."]
            case State.SKIPPED:
                return [f"The job skipped itself: {(one.reason or '').removeprefix(Reason.JOB_SAID_SO + ': ')}."]
            case State.MISSED:
                said = f"No: it did not start in time ({one.reason})."
                return [said, *self._too_late(one.due_at, one.finished_at or self._now)]

    def _cancelled(self, one: Occurrence) -> str:
        if one.reason == Reason.REPLACED:
            return "the next one was due, and overlap=cancel_previous"
        if one.reason == Reason.RETIRED:
            return "the job was retired"
        for act in self._store.trail(target=self._job, limit=200):
            if act.action == "cancel" and act.details.get("occurrence") == one.id:
                return f"by {act.by} {exact(act.at, self._zone)}" + (f", because: {act.why}" if act.why else "")
        return one.reason or "no reason on record"

    def _later_ones(self, answer: Answer) -> None:
        for one in answer.occurrences:
            if one.origin is not Origin.SCHEDULE and answer.verdict is not None and one.retry_of is not None:
                answer.sentences.append(f"Run {one.retry_of} was tried again as run {one.id}: {one.state}.")
            elif one.origin is Origin.BACKFILL and any(other.id != one.id for other in answer.occurrences):
                answer.sentences.append(f"It was backfilled as run {one.id}: {one.state}.")

    # --- no occurrence was made ---------------------------------------------------------------------------------------

    def _range(self, answer: Answer, one: LedgerRange) -> None:
        policies, say = self._view.spec.policies, answer.sentences.append
        found = f"it was found {exact(one.decided_at, self._zone)}, {brief(one.decided_at - self._at)} after its time"
        match one.range.reason:
            case Reason.PAUSED:
                say(f"No: {self._paused()}.")
                return
            case Reason.OVERLAP:
                say(f"No: {self._overlapped(one)}, and overlap={policies.overlap}.")
                return
            case Reason.RETIRED:
                say("No: the job was retired before it ran.")
                return
            case Reason.COALESCED:
                count = one.range.count or 1
                others = f", together with {counted(count - 1, 'other')}" if count > 1 else ""
                say(f"No: {found}{others}, and catch_up=latest runs only the last of those that passed meanwhile.")
                kept = self._nominals.next_after(one.range.last)
                if kept is not None and kept <= one.decided_at:
                    say(f"That was {exact(kept, self._zone)}.")
            case Reason.LATE:
                say(f"No: {found}, and grace is {'' if policies.grace is None else brief(policies.grace)}.")
            case Reason.NO_CATCH_UP:
                say(f"No: {found}, and catch_up=none runs nothing late.")
            case Reason.BEYOND_WINDOW:
                say(f"No: {found}, and catch_up_window is {brief(policies.catch_up_window)}.")
            case other:
                say(f"No: {one.range.state}, {other}.")
        answer.sentences += self._nodes_at(self._at)

    def _paused(self) -> str:
        stretch = self._stretch()
        if stretch is None:
            return "the job was paused"
        until = "it still is" if stretch.end is None else f"until {exact(stretch.end, self._zone)}"
        who = f"the job was paused {exact(stretch.start, self._zone)}, {until}"
        for act in self._store.trail(target=self._job, limit=500):
            if act.action == "pause" and act.at == stretch.start:
                return f"{who}, by {act.by}" + (f", because: {act.why}" if act.why else "")
        return who

    def _stretch(self) -> Stretch | None:
        for stretch in self._history.pauses:
            if stretch.start <= self._at and (stretch.end is None or self._at <= stretch.end):
                return stretch
        return None

    def _overlapped(self, one: LedgerRange) -> str:
        where = OccurrenceFilter(job=self._job, scheduled_until=self._at - MICROSECOND)
        for earlier in self._store.occurrences(where, limit=100):
            if earlier.created_at <= one.decided_at <= (earlier.finished_at or self._now):
                for_time = "" if earlier.scheduled_for is None else f", for {exact(earlier.scheduled_for, self._zone)}"
                return f"run {earlier.id}{for_time} was still active when it was due"
        return "an earlier run was still active when it was due"

    def _too_late(self, due: datetime, ended: datetime) -> list[str]:
        grace = self._view.spec.policies.grace
        said = [] if grace is None else [f"It was due {exact(due, self._zone)}, and grace is {brief(grace)}."]
        return [*said, *self._nodes_at(due), f"It was given up {exact(ended, self._zone)}."]

    def _no_verdict(self, answer: Answer) -> None:
        view, say = self._view, answer.sentences.append
        if view.horizon is not None and self._at <= view.horizon:
            answer.sentences += self._pruned(view.horizon)
            return
        if self._at > self._now:
            answer.verdict = "future"
            say(f"Not yet: it lies in the future, {relative(self._at, self._now)}.")
            if view.paused_at is not None:
                say(f"The job is paused: {self._paused_now()}. Unless it is resumed by then, it will be skipped.")
            return
        if self._at <= view.watermark:
            answer.verdict = NO_VERDICT
            say("The ledger has no verdict on it, although it is decided. That must not be: cronsensus audit.")
            return
        answer.verdict = UNDECIDED
        if view.paused_at is not None:
            say(f"No: the job is paused: {self._paused_now()}. The ledger will say so once it is resumed.")
            return
        say(f"Not yet: it was due {relative(self._at, self._now)}, and no node has fired it.")
        answer.sentences += self._nodes_at(self._now) or ["Nodes are alive: they will look within moments."]

    def _nodes_at(self, at: datetime) -> list[str]:
        """Return a sentence if no node was alive at ``at``."""
        return list(filter(None, [nodes_alive_at(self._store, at).sentence(self._zone)]))

    def _pruned(self, horizon: datetime) -> list[str]:
        keep = brief(self._view.spec.policies.keep)
        return [
            f"Nobody can say any more: the ledger was pruned up to {exact(horizon, self._zone)}.",
            f"Runs are kept for {keep} (keep).",
        ]

    def _paused_now(self) -> str:
        by, why = self._view.paused_by, self._view.paused_why
        return f"by {by or 'somebody'}, because: {why or 'no reason given'}"


def _attempt(run: RunView, now: datetime) -> str:
    where = f"Attempt {run.attempt} on {run.node or run.session}, started {exact(run.started_at)}"
    if run.finished_at is None:
        return f"{where}, runs for {brief(now - run.started_at)}."
    took = brief(run.finished_at - run.started_at)
    match run.end:
        case "succeeded":
            return f"{where}, succeeded after {took}."
        case "crashed":
            return f"{where}, ended with its node after {took}: the run was taken over ({run.reason or 'node lost'})."
        case "released":
            return f"{where}, was given back after {took} because its node drained."
        case "retry":
            return f"{where}, failed after {took} ({error_text(run.error) or run.reason}) and was to be tried again."
        case _:
            cause = error_text(run.error) or run.reason
            return f"{where}, {run.end} after {took}" + (f": {cause}." if cause else ".")


def _since(one: Occurrence, now: datetime) -> str:
    return "" if one.started_at is None else f" for {brief(now - one.started_at)}"


def _fires_at(trigger: object, at: datetime) -> bool:
    from cronsensus.triggers import Trigger

    return isinstance(trigger, Trigger) and trigger.next_after(at - MICROSECOND) == at
