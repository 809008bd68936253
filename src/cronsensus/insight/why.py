"""Why a job did or did not run at a time: sentences from what the store has on record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

from cronsensus.audit.nominal import Nominals
from cronsensus.insight.clock_changes import zone_of
from cronsensus.insight.ledger import MICROSECOND, NO_VERDICT, UNDECIDED
from cronsensus.insight.live_nodes import nodes_alive_at
from cronsensus.insight.reasons import clause, reason_of
from cronsensus.insight.standstill import find_standstill
from cronsensus.insight.summaries import error_text, why_ended
from cronsensus.insight.time_words import brief, counted, exact, past, relative, typed_time
from cronsensus.insight.waiting import why_it_waits
from cronsensus.model.job import JobView, Stretch
from cronsensus.model.ledger import LedgerRange
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter, RunView
from cronsensus.model.rewind import AHEAD
from cronsensus.model.states import Origin, Reason, State
from cronsensus.stores.base import Store
from cronsensus.stores.pages import every_range
from cronsensus.triggers.base import Trigger

FUTURE = "future"
LATE = timedelta(seconds=10)
OVER_TIME = timedelta(seconds=3)
"""Beyond its timeout: a coroutine or a process has ended by then, so what still runs cannot be stopped."""
_UPSTREAM = {
    Reason.UPSTREAM_FAILED: "No: it comes after {}, which failed or was cancelled.",
    Reason.UPSTREAM_SUCCEEDED: "No: it comes after {} only if that fails, and it did not.",
    Reason.UPSTREAM_SKIPPED: "No: it comes after {}, which was skipped.",
    Reason.UPSTREAM_MISSING: "No: it comes after {}, which has no run for that time.",
    Reason.UPSTREAM_PRUNED: "No: it comes after {}, and what became of that was pruned before it could be asked.",
    Reason.UPSTREAM_LATE: "No: it comes after {}, which was not over in time (wait_for).",
}
_UPSTREAM_RUNS = 20
_LONG = timedelta(days=366 * 50)


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """What is known of one job at one time.

    Attributes:
        nominal: whether the job fires at this time.
        verdict: a state of an occurrence, ``undecided``, ``no verdict`` or ``future``; ``None``: there is none, because
            it is no nominal time, or because the ledger was pruned.
        reason: the text of the ledger; ``sentences`` say it in words.
        before: the nearest nominal time before, ``after`` the one after.
        occurrences: what was made for this time, the oldest first.
    """

    job: str
    time: datetime
    nominal: bool
    verdict: str | None
    reason: str | None
    sentences: tuple[str, ...]
    before: datetime | None
    after: datetime | None
    occurrences: tuple[Occurrence, ...]


def why(store: Store, view: JobView, at: datetime, *, zone: tzinfo = UTC) -> Why:
    """Return why a job did or did not run at ``at``; times are in the zone of its schedule, else in ``zone``."""
    return _Inquiry(store, view, at, zone_of(view.spec.trigger, zone)).answer()


class _Inquiry:
    """Asks the store about one job at one time."""

    def __init__(self, store: Store, view: JobView, at: datetime, zone: tzinfo) -> None:
        self._store = store
        self._view = view
        self._at = at
        self._now = store.now()
        self._job = view.spec.name
        self._policies = view.spec.policies
        self._zone = zone
        self._history = store.history(self._job)
        self._nominals = Nominals(self._history.eras, retired=view.retired_at is not None)

    def answer(self) -> Why:
        """Return the answer."""
        occurrences = self._occurrences()
        nominal = self._nominals.has(self._at)
        before, after = self._around()
        verdict: str | None = None
        reason: str | None = None
        if nominal or occurrences:
            verdict, reason, sentences = self._verdict(occurrences, nominal=nominal)
        else:
            sentences = self._not_nominal(before, after)
        stands = find_standstill(self._view, self._now, self._zone)
        if stands is not None and self._at <= stands.until:
            sentences += [f"{stands.sentence}.", f"Take it back to now: cronsensus jobs rewind {self._job}."]
        return Why(
            job=self._job,
            time=self._at,
            nominal=nominal,
            verdict=verdict,
            reason=reason,
            sentences=tuple(sentences),
            before=before,
            after=after,
            occurrences=tuple(occurrences),
        )

    def _occurrences(self) -> list[Occurrence]:
        where = OccurrenceFilter(job=self._job, scheduled_from=self._at, scheduled_until=self._at)
        return self._store.occurrences(where, newest_first=False)

    def _verdict(self, occurrences: Sequence[Occurrence], *, nominal: bool) -> tuple[str | None, str | None, list[str]]:
        """Return the verdict, its reason, and the sentences."""
        ranges = [one for one in every_range(self._store, self._job, self._at, self._at) if nominal][:1]
        scheduled = [one for one in occurrences if one.origin is Origin.SCHEDULE]
        shown = scheduled or ([] if ranges else occurrences[:1])
        sentences = [sentence for one in shown for sentence in self._occurrence(one)]
        for one_range in ranges:
            sentences += self._range(one_range)
        if shown:
            verdict, reason = str(shown[-1].state), shown[-1].reason
        elif ranges:
            verdict, reason = str(ranges[0].range.state), ranges[0].range.reason
        else:
            open_verdict, said = self._no_verdict()
            return open_verdict, None, said
        return verdict, reason, sentences + self._later_ones(occurrences)

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

    def _not_nominal(self, before: datetime | None, after: datetime | None) -> list[str]:
        near = [exact(time, self._zone) for time in (before, after) if time is not None]
        sentences = self._no_such_time()
        if near:
            sentences.append(f"The nearest {'is' if len(near) == 1 else 'are'} {' and '.join(near)}.")
        if before is not None:
            # Whoever names a moment asks for the run that should have been there by then.
            earlier = _Inquiry(self._store, self._view, before, self._zone)
            _, _, told = earlier._verdict(earlier._occurrences(), nominal=True)
            sentences += [f"What became of {near[0]}:", *told]
        return sentences

    def _no_such_time(self) -> list[str]:
        view, trigger = self._view, self._view.spec.trigger
        born = self._history.eras[0].since if self._history.eras else None
        if view.retired_at is not None and view.retired_at <= self._at:
            return [f"No: {self._job} was retired {exact(view.retired_at, self._zone)}."]
        if view.horizon is not None and self._at <= view.horizon:
            return self._pruned(view.horizon)
        if view.spec.keeper is not None:
            return [f"No: {view.spec.keeper} keeps its times, and no process has named this one."]
        if trigger is None:
            return [f"No: {self._job} has no trigger; it only runs when it is told to."]
        if born is not None and self._at <= born and _fires_at(trigger, self._at):
            first, begin = f"{exact(born, self._zone)}{self._ahead(born)}", typed_time(self._at, self._zone)
            return [
                f"No: {self._job} was first declared {first}, and a job starts after that.",
                f"To run it for earlier times: cronsensus jobs backfill {self._job} --from '{begin}'.",
            ]
        return [f"No: {exact(self._at, self._zone)} is not a nominal time of {self._job} ({trigger.describe()})."]

    def _ahead(self, born: datetime) -> str:
        """Return that an instant lies ahead of the store's clock, in brackets; nothing if it does not."""
        return f" ({past(born, self._now)})" if born - self._now > AHEAD else ""

    # --- an occurrence was made ---------------------------------------------------------------------------------------

    def _occurrence(self, one: Occurrence) -> list[str]:
        runs = self._store.runs(one.id)
        sentences: list[str] = []
        if one.origin is not Origin.SCHEDULE:
            sentences.append(f"It was made by an operator ({one.origin}) as run {one.id}.")
        sentences += self._standing(one)
        sentences += [_attempt(run, self._now, self._zone) for run in runs]
        delay = runs[0].started_at - self._at if runs else timedelta(0)
        if delay > LATE:
            sentences += [f"It started {brief(delay)} after its nominal time.", *self._no_node_at(self._at)]
        if one.state is State.FAILED:
            if reason_of(one.reason)[0] is Reason.CRASHED:
                sentences.append(self._not_tried_again(one))
            sentences.append(
                f"See its error: cronsensus runs show {one.id}; run it again: cronsensus runs retry {one.id}."
            )
        return sentences

    def _not_tried_again(self, one: Occurrence) -> str:
        if self._policies.on_crash == "fail":
            return "No other node tries it (on_crash=fail)."
        times = f"{one.crashes} crash" + ("" if one.crashes == 1 else "es")
        return f"After {times} no other node tries it (max_crashes={self._policies.max_crashes})."

    def _standing(self, one: Occurrence) -> list[str]:
        reason, detail = reason_of(one.reason)
        match one.state:
            case State.SUCCEEDED:
                return [f"Yes: it ran and succeeded, as run {one.id}."]
            case State.FAILED:
                return [f"It ran and failed, as run {one.id}: {why_ended(one) or 'no error on record'}."]
            case State.RUNNING if one.reserved:
                return [f"It is claimed, as run {one.id} on {one.node}: it waits there for a free slot."]
            case State.RUNNING:
                now = f"It is running now, as run {one.id} on {one.node}{_since(one, self._now)}."
                return [now, *self._over_time(one)]
            case State.PENDING:
                wait = why_it_waits(self._store, self._view, one, self._now, self._zone)
                return [f"It waits, as run {one.id}.", *wait.sentences]
            case State.CANCELLED:
                return [f"It was cancelled: {self._cancelled(one)}."]
            case State.SKIPPED if reason in _UPSTREAM:
                return [_UPSTREAM[reason].format(detail), *self._upstream(one, detail, reason)]
            case State.SKIPPED:
                return [self._skipped(reason, detail)]
            case State.MISSED if (keeper := self._view.spec.keeper) is not None:
                named = one.finished_at or self._now
                delay = brief(named - self._at)
                return [f"No: {keeper} named it {exact(named, self._zone)}, {delay} after its time, which is too late."]
            case State.MISSED:
                sentence = f"No: it did not start in time ({one.reason})."
                return [sentence, *self._too_late(one.due_at, one.finished_at or self._now)]

    def _skipped(self, reason: Reason | None, detail: str) -> str:
        keeper = self._view.spec.keeper
        match reason:
            case Reason.PAUSED:
                return f"No: {clause(reason, self._policies)}{self._pause()}."
            case Reason.OVERLAP if keeper is not None:
                most = self._policies.concurrency
                return f"No: when {keeper} named it, as many runs were active as it may have at a time: {most}."
            case Reason.LATE if keeper is not None:
                return f"No: it was won in time, and waited too long for its executor: {detail}."
            case _:
                return f"The job skipped itself: {detail}."

    def _upstream(self, one: Occurrence, jobs: str, reason: Reason) -> list[str]:
        """Return where to see what became of the job that it comes after, and what to type to have this one run.

        It is about the run that its gate saw, or a later one.
        """
        job = jobs.partition(", ")[0]
        newest = self._store.occurrences(OccurrenceFilter(job=job, scheduled_until=self._at), limit=_UPSTREAM_RUNS)
        for_it = next((other for other in newest if other.scheduled_for == self._at), None)
        found = for_it or max(newest, key=lambda other: other.scheduled_for or self._at, default=None)
        if found is None or found.state in {State.SUCCEEDED, State.SKIPPED}:
            see = f"See why: cronsensus why {job} '{typed_time(self._at, self._zone)}'."
        else:
            see = f"See it: cronsensus runs show {found.id}."
        if for_it is None or one.retried_as is not None or reason is Reason.UPSTREAM_SUCCEEDED:
            return [see]
        if for_it.state is State.SUCCEEDED:
            command = f"cronsensus runs retry {one.id} --downstream"
            return [see, f"It has succeeded since; run this one, and what comes after it: {command}."]
        if for_it.state in {State.FAILED, State.CANCELLED, State.MISSED}:
            return [see, f"Run it again, and this one after it: cronsensus runs retry {for_it.id} --downstream."]
        return [see]

    def _over_time(self, one: Occurrence) -> list[str]:
        limit = self._policies.timeout
        if limit is None or one.started_at is None or self._now - one.started_at <= limit + OVER_TIME:
            return []
        over = f"That is over its timeout of {brief(limit)} (timeout: still working)"
        then = "is failed or tried again only then; executor='process' ends at its timeout"
        return [f"{over}: a thread cannot be stopped, so it keeps its place until its function returns, and {then}."]

    def _cancelled(self, one: Occurrence) -> str:
        reason, _ = reason_of(one.reason)
        if reason not in {Reason.REPLACED, Reason.RETIRED}:
            for act in self._store.trail(target=self._job, limit=200):
                if act.action == "cancel" and act.details.get("occurrence") == one.id:
                    return f"by {act.by} {exact(act.at, self._zone)}" + (f", because: {act.why}" if act.why else "")
        return clause(one.reason, self._policies) or "no reason on record"

    def _later_ones(self, occurrences: Sequence[Occurrence]) -> list[str]:
        sentences: list[str] = []
        for one in occurrences:
            if one.origin is not Origin.SCHEDULE and one.retry_of is not None:
                sentences.append(f"Run {one.retry_of} was tried again as run {one.id}: {one.state}.")
            elif one.origin is Origin.BACKFILL and any(other.id != one.id for other in occurrences):
                sentences.append(f"It was backfilled as run {one.id}: {one.state}.")
        return sentences

    # --- no occurrence was made ---------------------------------------------------------------------------------------

    def _range(self, one: LedgerRange) -> list[str]:
        words = clause(one.range.reason, self._policies)
        reason, _ = reason_of(one.range.reason)
        match reason:
            case Reason.PAUSED:
                return [f"No: {words}{self._pause()}."]
            case Reason.OVERLAP:
                blocker = self._blocker(one)
                return [f"No: {words if blocker is None else blocker}."]
            case Reason.RETIRED:
                return [f"No: {words} before it ran."]
            case Reason.COALESCED:
                count = one.range.count or 1
                others = f", together with {counted(count - 1, 'other')}" if count > 1 else ""
                sentences = [f"No: {self._found(one)}{others}, and {words}.", *self._kept(one)]
            case Reason.LATE | Reason.NO_CATCH_UP | Reason.BEYOND_WINDOW:
                sentences = [f"No: {self._found(one)}, and {words}."]
            case _:
                sentences = [f"No: {one.range.state}, {words}."]
        return sentences + self._no_node_at(self._at)

    def _found(self, one: LedgerRange) -> str:
        delay = brief(one.decided_at - self._at)
        return f"it was found {exact(one.decided_at, self._zone)}, {delay} after its time"

    def _kept(self, one: LedgerRange) -> list[str]:
        """Return which of the nominal times that passed meanwhile was run."""
        kept = self._nominals.next_after(one.range.last)
        return [f"That was {exact(kept, self._zone)}."] if kept is not None and kept <= one.decided_at else []

    def _pause(self) -> str:
        stretch = self._stretch()
        if stretch is None:
            return ""
        until = "it still is" if stretch.end is None else f"until {exact(stretch.end, self._zone)}"
        times = f" {exact(stretch.start, self._zone)}, {until}"
        for act in self._store.trail(target=self._job, limit=500):
            if act.action == "pause" and act.at == stretch.start:
                return f"{times}, by {act.by}" + (f", because: {act.why}" if act.why else "")
        return times

    def _stretch(self) -> Stretch | None:
        for stretch in self._history.pauses:
            if stretch.start <= self._at and (stretch.end is None or self._at <= stretch.end):
                return stretch
        return None

    def _blocker(self, one: LedgerRange) -> str | None:
        where = OccurrenceFilter(job=self._job, scheduled_until=self._at - MICROSECOND)
        for earlier in self._store.occurrences(where, limit=100):
            if earlier.created_at <= one.decided_at <= (earlier.finished_at or self._now):
                for_time = "" if earlier.scheduled_for is None else f", for {exact(earlier.scheduled_for, self._zone)}"
                overlap = self._policies.overlap
                return f"run {earlier.id}{for_time} was not over when this time was decided, and overlap={overlap}"
        return None

    def _too_late(self, due: datetime, ended: datetime) -> list[str]:
        given_up = f"It was given up {exact(ended, self._zone)}."
        if self._policies.grace is None:
            return [*self._no_node_at(due), given_up]
        grace = clause(Reason.LATE, self._policies)
        return [f"It was due {exact(due, self._zone)}, and {grace}.", *self._no_node_at(due), given_up]

    def _no_verdict(self) -> tuple[str | None, list[str]]:
        view = self._view
        if view.horizon is not None and self._at <= view.horizon:
            return None, self._pruned(view.horizon)
        if self._at > self._now:
            sentences = [f"Not yet: it lies in the future, {relative(self._at, self._now)}."]
            if view.paused_at is not None:
                paused = self._paused_now()
                sentences.append(f"The job is paused: {paused}. Unless it is resumed by then, it will be skipped.")
            return FUTURE, sentences
        if self._at <= view.watermark:
            return NO_VERDICT, [
                "The ledger has no verdict on it, although it is decided. That must not be: cronsensus audit."
            ]
        if view.paused_at is not None:
            return UNDECIDED, [
                f"No: the job is paused: {self._paused_now()}. The ledger will say so once it is resumed."
            ]
        due = f"Not yet: it was due {relative(self._at, self._now)}, and no node has fired it."
        looking = ["Nodes are alive: they will look within moments."]
        return UNDECIDED, [due, *(self._no_node_at(self._now) or looking)]

    def _no_node_at(self, at: datetime) -> list[str]:
        """Return a sentence if no node was alive at ``at``; what another program keeps needs none."""
        if self._view.spec.keeper is not None:
            return []
        return list(filter(None, [nodes_alive_at(self._store, at).sentence(self._zone)]))

    def _pruned(self, horizon: datetime) -> list[str]:
        return [
            f"Nobody can say any more: the ledger was pruned up to {exact(horizon, self._zone)}.",
            f"Runs are kept for {brief(self._policies.keep)} (keep).",
        ]

    def _paused_now(self) -> str:
        by, reason = self._view.paused_by, self._view.paused_why
        return f"by {by or 'somebody'}, because: {reason or 'no reason given'}"


def _attempt(run: RunView, now: datetime, zone: tzinfo) -> str:
    where = f"Attempt {run.attempt} on {run.node or run.session}, started {exact(run.started_at, zone)}"
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
        case "snoozed":
            return f"{where}, looked for {took} and waits ({run.reason})."
        case "retry":
            return f"{where}, failed after {took} ({error_text(run.error) or run.reason}) and was to be tried again."
        case _:
            cause = error_text(run.error) or run.reason
            return f"{where}, {run.end} after {took}" + (f": {cause}." if cause else ".")


def _since(one: Occurrence, now: datetime) -> str:
    return "" if one.started_at is None else f" for {brief(now - one.started_at)}"


def _fires_at(trigger: Trigger, at: datetime) -> bool:
    return trigger.next_after(at - MICROSECOND) == at
