"""Explain why a job did or did not run at a time, from the store's records: sentences, as codes with values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

from cronsensus.audit.nominal import Nominals
from cronsensus.insight.clock_changes import zone_of
from cronsensus.insight.ledger import MICROSECOND, NO_VERDICT, UNDECIDED
from cronsensus.insight.live_nodes import nodes_alive_at
from cronsensus.insight.reasons import reason_clause, reason_of
from cronsensus.insight.sentences import Because, Clause, Sentence, Text, Value, distance_text
from cronsensus.insight.standstill import find_standstill
from cronsensus.insight.summaries import error_text, why_ended
from cronsensus.insight.time_words import typed_time
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
LATE_AFTER = timedelta(seconds=10)
TIMEOUT_SLACK = timedelta(seconds=3)
"""Time beyond the timeout by which a coroutine or a process has ended. A run that goes on cannot be stopped."""
_UPSTREAM_TEXTS = {
    Reason.UPSTREAM_FAILED: Text.UPSTREAM_FAILED,
    Reason.UPSTREAM_SUCCEEDED: Text.UPSTREAM_SUCCEEDED,
    Reason.UPSTREAM_SKIPPED: Text.UPSTREAM_SKIPPED,
    Reason.UPSTREAM_MISSING: Text.UPSTREAM_MISSING,
    Reason.UPSTREAM_PRUNED: Text.UPSTREAM_PRUNED,
    Reason.UPSTREAM_LATE: Text.UPSTREAM_LATE,
}
_MOST_UPSTREAM_RUNS = 20
_LONGEST_AGO = timedelta(days=366 * 50)


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """What is known of a job at a time.

    Attributes:
        nominal: whether the job fires at this time.
        verdict: a state of an occurrence, ``undecided``, ``no verdict`` or ``future``; ``None``: there is none, because
            it is no nominal time, or because the ledger was pruned.
        reason: the text of the ledger; ``sentences`` explain it.
        before: the nearest nominal time before ``time``; ``after``: the nearest after it.
        occurrences: the occurrences of this time, the oldest first.
    """

    job: str
    time: datetime
    nominal: bool
    verdict: str | None
    reason: str | None
    sentences: tuple[Sentence, ...]
    before: datetime | None
    after: datetime | None
    occurrences: tuple[Occurrence, ...]


def explain_time(store: Store, view: JobView, at: datetime, *, zone: tzinfo = UTC) -> Why:
    """Return why a job did or did not run at ``at``; times are in the zone of its schedule, else in ``zone``."""
    return _Inquiry(store, view, at, zone_of(view.spec.trigger, zone)).answer()


class _Inquiry:
    """Reads the store about a job at a time."""

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
        nominal = self._nominals.is_nominal(self._at)
        before, after = self._around()
        verdict: str | None = None
        reason: str | None = None
        if nominal or occurrences:
            verdict, reason, sentences = self._verdict(occurrences, nominal=nominal)
        else:
            sentences = self._not_nominal(before, after)
        standstill = find_standstill(self._view, self._now, self._zone)
        if standstill is not None and self._at <= standstill.until:
            sentences.append(Text.STANDS_STILL(standstill=standstill.sentence))
            sentences.append(Text.REWIND(command=f"cronsensus jobs rewind {self._job}"))
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

    def _local(self, instant: datetime) -> datetime:
        """Return an instant in the zone in which it is shown."""
        return instant.astimezone(self._zone)

    def _occurrences(self) -> list[Occurrence]:
        of_time = OccurrenceFilter(job=self._job, scheduled_from=self._at, scheduled_until=self._at)
        return self._store.occurrences(of_time, newest_first=False)

    def _verdict(
        self, occurrences: Sequence[Occurrence], *, nominal: bool
    ) -> tuple[str | None, str | None, list[Sentence]]:
        """Return the verdict, its reason, and the sentences."""
        ranges = [ledger_range for ledger_range in every_range(self._store, self._job, self._at, self._at) if nominal][
            :1
        ]
        scheduled = [occurrence for occurrence in occurrences if occurrence.origin is Origin.SCHEDULE]
        shown = scheduled or ([] if ranges else occurrences[:1])
        sentences = [sentence for occurrence in shown for sentence in self._occurrence(occurrence)]
        for one_range in ranges:
            sentences += self._range(one_range)
        if shown:
            verdict, reason = str(shown[-1].state), shown[-1].reason
        elif ranges:
            verdict, reason = str(ranges[0].range.state), ranges[0].range.reason
        else:
            open_verdict, sentences = self._no_verdict()
            return open_verdict, None, sentences
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
                before = era.trigger.latest_until(top, max(era.since, top - _LONGEST_AGO)) or before
        return before, after

    def _not_nominal(self, before: datetime | None, after: datetime | None) -> list[Sentence]:
        sentences = self._no_such_time()
        if before is not None and after is not None:
            sentences.append(Text.NEAREST_TWO(before=self._local(before), after=self._local(after)))
        elif (near := before or after) is not None:
            sentences.append(Text.NEAREST(time=self._local(near)))
        if before is not None:
            # A person who names any moment wants to know about the last run before it.
            earlier = _Inquiry(self._store, self._view, before, self._zone)
            _, _, sentences_on_it = earlier._verdict(earlier._occurrences(), nominal=True)
            sentences += [Text.BECAME_OF(time=self._local(before)), *sentences_on_it]
        return sentences

    def _no_such_time(self) -> list[Sentence]:
        view, trigger = self._view, self._view.spec.trigger
        born = self._history.eras[0].since if self._history.eras else None
        if view.retired_at is not None and view.retired_at <= self._at:
            return [Text.WAS_RETIRED(job=self._job, time=self._local(view.retired_at))]
        if view.horizon is not None and self._at <= view.horizon:
            return self._pruned(view.horizon)
        if view.spec.keeper is not None:
            return [Text.NOT_NAMED(keeper=view.spec.keeper)]
        if trigger is None:
            return [Text.NO_TRIGGER(job=self._job)]
        if born is not None and self._at <= born and _fires_at(trigger, self._at):
            command = f"cronsensus jobs backfill {self._job} --from '{typed_time(self._at, self._zone)}'"
            return [
                Text.DECLARED_LATER(job=self._job, time=self._with_lead(born)),
                Text.BACKFILL(command=command),
            ]
        return [Text.NOT_NOMINAL(time=self._local(self._at), job=self._job, schedule=trigger)]

    def _with_lead(self, born: datetime) -> datetime | Sentence:
        """Return an instant, and how far it lies ahead of the store's clock if it does."""
        lead = born - self._now
        if lead <= AHEAD:
            return self._local(born)
        return Clause.IN_BRACKETS(what=self._local(born), more=Clause.AHEAD(time=lead))

    # --- an occurrence was made ---------------------------------------------------------------------------------------

    def _occurrence(self, occurrence: Occurrence) -> list[Sentence]:
        runs = self._store.runs(occurrence.id)
        sentences: list[Sentence] = []
        if occurrence.origin is not Origin.SCHEDULE:
            sentences.append(Text.MADE_BY_OPERATOR(origin=occurrence.origin, run=occurrence.id))
        sentences += self._standing(occurrence)
        sentences += [self._attempt(run) for run in runs]
        delay = runs[0].started_at - self._at if runs else timedelta(0)
        if delay > LATE_AFTER:
            sentences += [Text.STARTED_LATE(delay=delay), *self._no_node_at(self._at)]
        if occurrence.state is State.FAILED:
            if reason_of(occurrence.reason)[0] is Reason.CRASHED:
                sentences.append(self._not_tried_again(occurrence))
            sentences.append(Text.SEE_ERROR(run=occurrence.id))
        return sentences

    def _not_tried_again(self, occurrence: Occurrence) -> Sentence:
        if self._policies.on_crash == "fail":
            return Text.NO_TAKEOVER()
        return Text.CRASHED_TOO_OFTEN(crashes=occurrence.crashes, most=self._policies.max_crashes)

    def _standing(self, occurrence: Occurrence) -> list[Sentence]:
        reason, detail = reason_of(occurrence.reason)
        match occurrence.state:
            case State.SUCCEEDED:
                return [Text.SUCCEEDED(run=occurrence.id)]
            case State.FAILED:
                return [Text.FAILED(run=occurrence.id, why=why_ended(occurrence) or Clause.NO_ERROR())]
            case State.RUNNING if occurrence.reserved:
                return [Text.CLAIMED(run=occurrence.id, node=occurrence.node)]
            case State.RUNNING:
                if occurrence.started_at is None:
                    return [Text.RUNNING(run=occurrence.id, node=occurrence.node)]
                time = self._now - occurrence.started_at
                return [Text.RUNNING_FOR(run=occurrence.id, node=occurrence.node, time=time), *self._over_time(time)]
            case State.PENDING:
                wait = why_it_waits(self._store, self._view, occurrence, self._now, self._zone)
                return [Text.PENDING(run=occurrence.id), *wait.sentences]
            case State.CANCELLED:
                return [Text.CANCELLED(why=self._cancelled(occurrence))]
            case State.SKIPPED if reason in _UPSTREAM_TEXTS:
                return [_UPSTREAM_TEXTS[reason](jobs=detail), *self._upstream(occurrence, detail, reason)]
            case State.SKIPPED:
                return [self._skipped(reason, detail)]
            case State.MISSED if (keeper := self._view.spec.keeper) is not None:
                named = occurrence.finished_at or self._now
                return [Text.NAMED_TOO_LATE(keeper=keeper, time=self._local(named), delay=named - self._at)]
            case State.MISSED:
                sentence = Text.NOT_IN_TIME(reason=str(occurrence.reason))
                return [sentence, *self._too_late(occurrence.due_at, occurrence.finished_at or self._now)]

    def _skipped(self, reason: Reason | None, detail: str) -> Sentence:
        keeper = self._view.spec.keeper
        match reason:
            case Reason.PAUSED:
                return self._paused()
            case Reason.OVERLAP if keeper is not None:
                return Text.NAMED_BESIDE_OTHERS(keeper=keeper, most=self._policies.concurrency)
            case Reason.LATE if keeper is not None:
                return Text.WAITED_FOR_EXECUTOR(detail=detail)
            case _:
                return Text.SKIPPED_ITSELF(detail=detail)

    def _upstream(self, occurrence: Occurrence, jobs: str, reason: Reason) -> list[Sentence]:
        """Return the command that shows the upstream's run, and the command that runs this occurrence after all.

        The upstream's run is the run that the gate saw, or a later run.
        """
        job = jobs.partition(", ")[0]
        newest = self._store.occurrences(OccurrenceFilter(job=job, scheduled_until=self._at), limit=_MOST_UPSTREAM_RUNS)
        same_time = next((run for run in newest if run.scheduled_for == self._at), None)
        shown = same_time or max(newest, key=lambda run: run.scheduled_for or self._at, default=None)
        if shown is None or shown.state in {State.SUCCEEDED, State.SKIPPED}:
            see_command = Text.SEE_WHY(command=f"cronsensus why {job} '{typed_time(self._at, self._zone)}'")
        else:
            see_command = Text.SEE_RUN(command=f"cronsensus runs show {shown.id}")
        if same_time is None or occurrence.retried_as is not None or reason is Reason.UPSTREAM_SUCCEEDED:
            return [see_command]
        if same_time.state is State.SUCCEEDED:
            command = f"cronsensus runs retry {occurrence.id} --downstream"
            return [see_command, Text.UPSTREAM_SUCCEEDED_SINCE(command=command)]
        if same_time.state in {State.FAILED, State.CANCELLED, State.MISSED}:
            return [see_command, Text.RUN_UPSTREAM_AGAIN(command=f"cronsensus runs retry {same_time.id} --downstream")]
        return [see_command]

    def _over_time(self, time: timedelta) -> list[Sentence]:
        limit = self._policies.timeout
        return [] if limit is None or time <= limit + TIMEOUT_SLACK else [Text.OVER_TIME(limit=limit)]

    def _cancelled(self, occurrence: Occurrence) -> Sentence | str:
        reason, _ = reason_of(occurrence.reason)
        if reason not in {Reason.REPLACED, Reason.RETIRED}:
            for act in self._store.trail(target=self._job, limit=200):
                if act.action == "cancel" and act.details.get("occurrence") == occurrence.id:
                    time = self._local(act.at)
                    if act.why:
                        return Clause.BY_AT_BECAUSE(who=act.by, time=time, why=act.why)
                    return Clause.BY_AT(who=act.by, time=time)
        return reason_clause(occurrence.reason, self._policies) or Clause.NO_REASON()

    def _later_ones(self, occurrences: Sequence[Occurrence]) -> list[Sentence]:
        sentences: list[Sentence] = []
        for occurrence in occurrences:
            if occurrence.origin is not Origin.SCHEDULE and occurrence.retry_of is not None:
                sentences.append(Text.TRIED_AGAIN(run=occurrence.retry_of, again=occurrence.id, state=occurrence.state))
            elif occurrence.origin is Origin.BACKFILL and any(other.id != occurrence.id for other in occurrences):
                sentences.append(Text.BACKFILLED(run=occurrence.id, state=occurrence.state))
        return sentences

    # --- no occurrence was made ---------------------------------------------------------------------------------------

    def _range(self, ledger_range: LedgerRange) -> list[Sentence]:
        reason_text = reason_clause(ledger_range.range.reason, self._policies)
        values: dict[str, Value] = {
            "time": self._local(ledger_range.decided_at),
            "delay": ledger_range.decided_at - self._at,
            "why": reason_text,
        }
        reason, _ = reason_of(ledger_range.range.reason)
        match reason:
            case Reason.PAUSED:
                return [self._paused()]
            case Reason.OVERLAP:
                return [self._blocked(ledger_range) or Text.NO(why=reason_text)]
            case Reason.RETIRED:
                return [Text.NO_RETIRED()]
            case Reason.COALESCED:
                others = (ledger_range.range.count or 1) - 1
                late = Text.FOUND_LATE_TOGETHER(**values, others=others) if others else Text.FOUND_LATE(**values)
                sentences = [late, *self._kept(ledger_range)]
            case Reason.LATE | Reason.NO_CATCH_UP | Reason.BEYOND_WINDOW:
                sentences = [Text.FOUND_LATE(**values)]
            case _:
                sentences = [Text.NO_STATE(state=ledger_range.range.state, why=reason_text)]
        return sentences + self._no_node_at(self._at)

    def _kept(self, ledger_range: LedgerRange) -> list[Sentence]:
        """Return the nominal time that ran in place of all that passed meanwhile."""
        kept_time = self._nominals.next_after(ledger_range.range.last)
        return (
            [Text.KEPT_TIME(time=self._local(kept_time))]
            if kept_time is not None and kept_time <= ledger_range.decided_at
            else []
        )

    def _paused(self) -> Sentence:
        pause = self._stretch()
        if pause is None:
            return Text.NO(why=Because.PAUSED())
        start, end = self._local(pause.start), pause.end
        clause = (
            Clause.PAUSED_STILL(start=start) if end is None else Clause.PAUSED_UNTIL(start=start, end=self._local(end))
        )
        for act in self._store.trail(target=self._job, limit=500):
            if act.action == "pause" and act.at == pause.start:
                if act.why:
                    return Text.NO_PAUSED(pause=Clause.PAUSED_BY_BECAUSE(pause=clause, who=act.by, why=act.why))
                return Text.NO_PAUSED(pause=Clause.PAUSED_BY(pause=clause, who=act.by))
        return Text.NO_PAUSED(pause=clause)

    def _stretch(self) -> Stretch | None:
        for pause in self._history.pauses:
            if pause.start <= self._at and (pause.end is None or self._at <= pause.end):
                return pause
        return None

    def _blocked(self, ledger_range: LedgerRange) -> Sentence | None:
        earlier_times = OccurrenceFilter(job=self._job, scheduled_until=self._at - MICROSECOND)
        for earlier in self._store.occurrences(earlier_times, limit=100):
            if earlier.created_at <= ledger_range.decided_at <= (earlier.finished_at or self._now):
                run, overlap, time = earlier.id, self._policies.overlap, earlier.scheduled_for
                if time is None:
                    return Text.NO_OVERLAP(run=run, overlap=overlap)
                return Text.NO_OVERLAP_FOR(run=run, time=self._local(time), overlap=overlap)
        return None

    def _too_late(self, due: datetime, ended: datetime) -> list[Sentence]:
        given_up = Text.GIVEN_UP(time=self._local(ended))
        if self._policies.grace is None:
            return [*self._no_node_at(due), given_up]
        grace = reason_clause(Reason.LATE, self._policies)
        return [Text.DUE_AND(time=self._local(due), why=grace), *self._no_node_at(due), given_up]

    def _no_verdict(self) -> tuple[str | None, list[Sentence]]:
        view = self._view
        if view.horizon is not None and self._at <= view.horizon:
            return None, self._pruned(view.horizon)
        if self._at > self._now:
            sentences = [Text.TO_COME(when=distance_text(self._at, self._now))]
            if view.paused_at is not None:
                sentences.append(Text.TO_COME_PAUSED(paused=self._paused_now()))
            return FUTURE, sentences
        if self._at <= view.watermark:
            return NO_VERDICT, [Text.NO_VERDICT()]
        if view.paused_at is not None:
            return UNDECIDED, [Text.PAUSED_NOW(paused=self._paused_now())]
        due = Text.NOT_FIRED(when=distance_text(self._at, self._now))
        return UNDECIDED, [due, *(self._no_node_at(self._now) or [Text.NODES_WILL_LOOK()])]

    def _no_node_at(self, at: datetime) -> list[Sentence]:
        """Return a sentence if no node was alive at ``at``. A job of another program needs no node."""
        if self._view.spec.keeper is not None:
            return []
        sentence = nodes_alive_at(self._store, at).sentence(self._zone)
        return [] if sentence is None else [sentence]

    def _pruned(self, horizon: datetime) -> list[Sentence]:
        return [Text.PRUNED(time=self._local(horizon)), Text.KEPT_FOR(keep=self._policies.keep)]

    def _paused_now(self) -> Sentence:
        by, reason = self._view.paused_by, self._view.paused_why
        return Clause.BY_BECAUSE(who=by or Clause.SOMEBODY(), why=reason or Clause.NO_REASON_GIVEN())

    def _attempt(self, run: RunView) -> Sentence:
        duration = (run.finished_at or self._now) - run.started_at
        values: dict[str, Value] = {
            "attempt": run.attempt, "node": run.node or run.session, "start": self._local(run.started_at),
            "took": duration,
        }  # fmt: skip
        if run.finished_at is None:
            return Text.ATTEMPT_RUNS(**values)
        match run.end:
            case "succeeded":
                return Text.ATTEMPT_SUCCEEDED(**values)
            case "crashed":
                return Text.ATTEMPT_CRASHED(**values, why=run.reason or Clause.NODE_LOST())
            case "released":
                return Text.ATTEMPT_RELEASED(**values)
            case "snoozed":
                return Text.ATTEMPT_SNOOZED(**values, why=run.reason)
            case "retry":
                return Text.ATTEMPT_RETRIED(**values, why=error_text(run.error) or run.reason)
            case end:
                why = error_text(run.error) or run.reason
                ended = {**values, "end": None if end is None else State(end)}
                return Text.ATTEMPT_ENDED_WHY(**ended, why=why) if why else Text.ATTEMPT_ENDED(**ended)


def _fires_at(trigger: Trigger, at: datetime) -> bool:
    return trigger.next_after(at - MICROSECOND) == at
