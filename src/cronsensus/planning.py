"""Decide the verdict of each nominal time that a job owes by now. Pure: no clock, no store, no randomness.

``plan(job, now)`` reads the nominal times after the watermark and up to ``now``. Each of them becomes an occurrence, or
is skipped or missed with a reason. The new watermark is the last nominal time decided. A store carries the plan out in
one step, unless another node was faster.

The rules, in the order in which they apply to a nominal time t that lies ``age = now - t`` back:

1. inside a paused stretch: skipped(paused);
2. ``age > grace + jitter``, so it is late even with the longest delay: missed(late);
3. ``age > catch_up_window``: missed(catch_up_window);
4. catch-up: ``latest`` keeps the last, the others are skipped(coalesced); ``none`` keeps the last if it is on time
   (within ``grace``, or within ``ON_TIME`` without ``grace``), the others are missed(catch_up=none); ``all`` keeps
   all of them;
5. kept, but later than ``grace`` counted from its own due time, which is t plus its delay: missed(late);
6. overlap, for a kept time while earlier occurrences are active: ``skip`` → skipped(overlap); ``queue_one`` →
   skipped(overlap) if an occurrence already waits behind another; ``queue`` and ``allow`` keep it; ``cancel_previous``
   keeps it and cancels the others, or skips those of the same step. Exception: times that ``catch_up="all"`` brings
   back late (by more than ``ON_TIME``) were asked for explicitly, so they queue. With ``catch_up="all"``, times that
   are on time are skipped only for occurrences that were active before, not for each other: after a short downtime,
   too, all means all. (Of more than ``MOST_OCCURRENCES`` the last ones may be skipped: an earlier plan's are active.)

A new job may have only one nominal time left, in the past (a one-off ``at``). Declaring it means to run it now, so
``grace`` is the only rule on lateness that applies to it.

Neighbours with the same verdict are written as a range, so a long gap is not walked time by time. Plans are bounded:
after ``MOST_OCCURRENCES`` single decisions the watermark stops and the job stays due.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from cronsensus.model.job import Era, JobState, Stretch
from cronsensus.model.plan import Plan, PlannedOccurrence, VerdictRange
from cronsensus.model.states import Reason, State
from cronsensus.timing.instants import LATEST
from cronsensus.triggers import Trigger

ON_TIME = timedelta(seconds=10)
"""How late a nominal time may be found and still count as on time if the job sets no ``grace``: the default lease,
which is how long a healthy cluster may need to notice that the node in charge is gone."""

MOST_OCCURRENCES = 1000
"""Most nominal times that a plan decides one by one, and so most occurrences in it; then the watermark stops and the
job stays due."""

MOST_COUNTED = 10_000
"""Most nominal times counted for a range; a longer range has no count."""

MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class _Piece:
    """Nominal times in (after, until] of one era, either all paused or all live."""

    era: Era
    trigger: Trigger
    after: datetime
    until: datetime
    paused: bool


@dataclass(slots=True)
class _Draft:
    """A plan in the making.

    Attributes:
        times_left: how many nominal times may still be decided one by one.
        cut: whether some were left to the next plan.
    """

    times_left: int
    watermark: datetime
    verdicts: list[tuple[VerdictRange, Trigger]] = field(default_factory=list)
    kept: list[tuple[datetime, Trigger]] = field(default_factory=list)
    cut: bool = False

    def decide(self, trigger: Trigger, verdict: VerdictRange) -> None:
        """Give ``verdict`` to all nominal times of ``trigger`` within its range."""
        self.verdicts.append((verdict, trigger))
        self.watermark = max(self.watermark, verdict.last)


def plan(job: JobState, now: datetime, *, most: int = MOST_OCCURRENCES) -> Plan:
    """Return what ``job`` owes at ``now`` (the store's).

    A plan without occurrences and verdicts still sets the job's next due time.
    """
    draft = _Draft(times_left=most, watermark=job.watermark)
    pieces = list(_pieces(job, now))
    last_live = _last_live(pieces)
    for piece in pieces:
        if piece.paused:
            _decide_whole(piece, State.SKIPPED, Reason.PAUSED, draft)
        else:
            _decide(piece, job, now, last_live, draft)
        if draft.cut:
            break
    occurrences, cancel_previous = _overlap(job, now, draft)
    return Plan(
        job_id=job.id,
        job=job.spec.name,
        revision=job.revision,
        definition=job.definition,
        function=job.spec.function,
        watermark_seen=job.watermark,
        active_seen=job.active,
        occurrences=tuple(occurrences),
        verdicts=_joined(draft.verdicts),
        cancel_previous=cancel_previous,
        watermark=draft.watermark,
        next_due=next_nominal(job.eras, draft.watermark),
        not_before=draft.watermark,
    )


def next_nominal(eras: tuple[Era, ...], after: datetime) -> datetime | None:
    """Return the first nominal time after ``after`` under the eras that hold, or ``None``."""
    for index, era in enumerate(eras):
        until = eras[index + 1].since if index + 1 < len(eras) else None
        if era.trigger is None or (until is not None and until <= after):
            continue
        nominal = era.trigger.next_after(max(after, era.since) if index else after)
        if nominal is not None and (until is None or nominal <= until):
            return nominal
    return None


def next_due_by_zone(
    trigger: Trigger | None, since: datetime, watermark: datetime, next_due: datetime | None
) -> datetime | None:
    """Return the next due time under the zone rules of this machine, for a job whose stored one is ``next_due``.

    A store keeps the instant, and zone rules change with ``tzdata``. A job without a time zone keeps the stored
    instant. So does a job that is already due under an earlier trigger: its next plan computes everything anew.

    Args:
        trigger: the current trigger.
        since: when its era began.
        watermark: the latest nominal time already decided.
        next_due: the stored instant.
    """
    if trigger is None or not trigger.zones or (next_due is not None and next_due <= since):
        return next_due
    return trigger.next_after(max(watermark, since))


def _pieces(job: JobState, now: datetime) -> Iterator[_Piece]:
    """Cut (watermark, now] where the trigger changes and where a pause begins or ends.

    Stretches without a trigger are left out.
    """
    for index, era in enumerate(job.eras):
        after = job.watermark if index == 0 else max(era.since, job.watermark)
        until = min(job.eras[index + 1].since, now) if index + 1 < len(job.eras) else now
        if era.trigger is None:
            continue
        for begin, end, paused in _split(after, until, job.pauses):
            yield _Piece(era, era.trigger, begin, end, paused)


def _split(after: datetime, until: datetime, pauses: tuple[Stretch, ...]) -> Iterator[tuple[datetime, datetime, bool]]:
    """Split (after, until], which may be empty, into live and paused parts. A pause includes both of its ends."""
    position = after
    for pause in pauses:
        begin = max(pause.start - MICROSECOND, position)
        end = until if pause.end is None else min(pause.end, until)
        if end <= begin:
            continue
        if begin > position:
            yield position, begin, False
        yield begin, end, True
        position = end
    if position < until:
        yield position, until, False


def _last_live(pieces: list[_Piece]) -> datetime | None:
    """Return the last nominal time that is not paused, which ``latest`` keeps."""
    for piece in reversed(pieces):
        if not piece.paused:
            last = piece.trigger.latest_until(piece.until, piece.after)
            if last is not None:
                return last
    return None


def _decide_whole(piece: _Piece, state: State, reason: str, draft: _Draft) -> None:
    """Give one verdict to every nominal time of a piece."""
    first = piece.trigger.next_after(piece.after)
    if first is None or first > piece.until:
        return
    last = piece.trigger.latest_until(piece.until, piece.after) or first
    count = piece.trigger.count_between(piece.after, piece.until, MOST_COUNTED)
    draft.decide(piece.trigger, VerdictRange(first, last, state, reason, count))


def _decide(piece: _Piece, job: JobState, now: datetime, last_live: datetime | None, draft: _Draft) -> None:
    """Decide a live piece: first the times that are lost for certain, as ranges, then the rest one by one."""
    trigger, policies = piece.trigger, job.spec.policies
    position = piece.after
    for bound, state, reason in _lost(piece, job, now, last_live):
        if bound > position:
            until = min(bound, piece.until)
            _decide_whole(replace(piece, after=position, until=until), state, reason, draft)
            position = until
    while position < piece.until:
        nominal = trigger.next_after(position)
        if nominal is None or nominal > piece.until:
            return
        if draft.times_left <= 0:
            draft.cut = True
            return
        draft.times_left -= 1
        due = nominal + trigger.delay_for(job.spec.name, nominal)
        if policies.grace is not None and now - due > policies.grace:
            draft.decide(trigger, VerdictRange(nominal, nominal, State.MISSED, Reason.LATE, 1))
        else:
            draft.kept.append((nominal, trigger))
            draft.watermark = nominal
        position = nominal


def _lost(piece: _Piece, job: JobState, now: datetime, last_live: datetime | None) -> list[tuple[datetime, State, str]]:
    """Return bounds up to which all times of a live piece are lost, with the verdict; in the order of the rules."""
    policies = job.spec.policies
    bounds: list[tuple[datetime, State, str]] = []
    if policies.grace is not None:
        bounds.append((now - policies.grace - piece.trigger.jitter - MICROSECOND, State.MISSED, Reason.LATE))
    if _is_one_off(piece):
        return bounds
    bounds.append((now - policies.catch_up_window - MICROSECOND, State.MISSED, Reason.BEYOND_WINDOW))
    if policies.catch_up != "all" and last_live is not None:
        keeps_last = policies.catch_up == "latest"
        verdict = (State.SKIPPED, Reason.COALESCED) if keeps_last else (State.MISSED, Reason.NO_CATCH_UP)
        bounds.append((last_live - MICROSECOND, *verdict))
    if policies.catch_up == "none" and policies.grace is None:
        bounds.append((now - ON_TIME - MICROSECOND, State.MISSED, Reason.NO_CATCH_UP))
    return bounds


def _is_one_off(piece: _Piece) -> bool:
    """Whether the era begins right before its only nominal time: so a store registers a one-off in the past."""
    since = piece.era.since
    return piece.after == since and piece.trigger.next_after(since + MICROSECOND) is None


def _overlap(job: JobState, now: datetime, draft: _Draft) -> tuple[list[PlannedOccurrence], bool]:
    """Apply the overlap policy to the times that were kept.

    Returns the occurrences to create, and whether earlier ones are to be cancelled.
    """
    policies = job.spec.policies
    created: list[PlannedOccurrence] = []
    cancel_previous = False
    most_active = {"skip": 0, "queue_one": 1}.get(policies.overlap)
    # Where the plan was cut, even the last one has a successor that is due by now.
    newest_kept = draft.kept[-1][0] if draft.kept and not draft.cut else None
    for nominal, trigger in draft.kept:
        on_time = policies.catch_up != "all" or now - nominal <= ON_TIME
        is_replaced = policies.overlap == "cancel_previous" and nominal != newest_kept
        active = job.active + (0 if policies.catch_up == "all" else len(created))
        is_crowded = most_active is not None and active > most_active
        if on_time and (is_replaced or is_crowded):
            draft.decide(trigger, VerdictRange(nominal, nominal, State.SKIPPED, Reason.OVERLAP, 1))
            continue
        cancel_previous = on_time and policies.overlap == "cancel_previous" and job.active > 0
        if job.spec.after is not None:
            # Grace was checked above. From now on only ``wait_for`` limits how long it waits for its upstreams.
            created.append(PlannedOccurrence(nominal, LATEST, None, "upstreams"))
            continue
        due = nominal + trigger.delay_for(job.spec.name, nominal)
        created.append(PlannedOccurrence(nominal, due, None if policies.grace is None else due + policies.grace))
    return created, cancel_previous


def _joined(verdicts: list[tuple[VerdictRange, Trigger]]) -> tuple[VerdictRange, ...]:
    """Return the verdicts by time, with equal neighbours joined.

    A range applies to every nominal time within it, so only direct neighbours under the same trigger may join.
    """
    joined: list[VerdictRange] = []
    previous_trigger: Trigger | None = None
    for verdict, trigger in sorted(verdicts, key=lambda entry: entry[0].first):
        previous = joined[-1] if joined else None
        if (
            previous is not None
            and trigger == previous_trigger
            and (previous.state, previous.reason) == (verdict.state, verdict.reason)
            and trigger.next_after(previous.last) == verdict.first
        ):
            joined[-1] = replace(previous, last=verdict.last, count=_together(previous.count, verdict.count))
        else:
            joined.append(verdict)
        previous_trigger = trigger
    return tuple(joined)


def undecided_until(eras: tuple[Era, ...], watermark: datetime, until: datetime) -> VerdictRange | None:
    """Return the nominal times in (watermark, until] as missed(retired); ``None`` if there are none.

    ``eras`` are the era at the watermark, and all after it.
    """
    first = next_nominal(eras, watermark)
    if first is None or first > until:
        return None
    last = first
    count: int | None = 0
    for index, era in enumerate(eras):
        after = watermark if index == 0 else max(era.since, watermark)
        end = min(eras[index + 1].since, until) if index + 1 < len(eras) else until
        if era.trigger is None:
            continue
        last = era.trigger.latest_until(end, after) or last
        count = _together(count, era.trigger.count_between(after, end, MOST_COUNTED))
    return VerdictRange(first, last, State.MISSED, Reason.RETIRED, count)


def _together(first: int | None, second: int | None) -> int | None:
    """Return the count of two ranges together; ``None`` if either has none, or the sum is too large for one range."""
    if first is None or second is None or first + second > MOST_COUNTED:
        return None
    return first + second
