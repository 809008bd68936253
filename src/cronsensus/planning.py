"""Decide what a job owes by now. Pure: no clock, no store, no randomness. Floor 2.

``plan(job, now)`` looks at the nominal times after the watermark and up to ``now``, and gives each its verdict:
create an occurrence, or skipped / missed with a reason. The new watermark is the last nominal time decided. A store
carries the plan out in one step, if nobody was faster.

The rules, in the order in which they apply to a nominal time t that lies ``age = now - t`` back:

1. inside a paused stretch: skipped(paused);
2. ``age > grace`` (counted from t plus jitter): missed(late);
3. ``age > catch_up_window``: missed(catch_up_window);
4. catch-up, when several are left or the last is not on time: ``latest`` keeps the last, the others are
   skipped(coalesced); ``none`` keeps the last if it is on time (within ``ON_TIME``), the others are
   missed(catch_up=none); ``all`` keeps all;
5. overlap, for a kept one while earlier occurrences are active: ``skip`` → skipped(overlap); ``queue_one`` →
   skipped(overlap) if one already waits behind another; ``queue`` and ``allow`` keep it; ``cancel_previous`` keeps it
   and cancels the others. What ``catch_up="all"`` brings back late is asked for explicitly: it queues, and rule 5 is
   for the ones on time.

Neighbours with the same verdict are written as one range; in a long gap nobody walks a million nominal times. Plans
are bounded: at most ``MOST_OCCURRENCES`` at once, then the watermark stops and the job stays due.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from cronsensus.model.job import Era, JobState, Stretch
from cronsensus.model.plan import Plan, PlannedOccurrence, VerdictRange
from cronsensus.model.states import Reason, State
from cronsensus.triggers import Trigger

ON_TIME = timedelta(seconds=10)
"""How late a nominal time may be found and still count as on time where the job sets no ``grace``: the default lease,
which is how long a healthy cluster may need to notice that the node in charge is gone."""

MOST_OCCURRENCES = 1000
"""Most occurrences in one plan; the watermark stops there and the job stays due."""

MOST_COUNTED = 10_000
"""Most nominal times counted for a range; a longer one has no count."""

MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class _Piece:
    """Nominal times in (after, until] under one trigger, all paused or none."""

    trigger: Trigger
    after: datetime
    until: datetime
    paused: bool


def plan(job: JobState, now: datetime, *, most: int = MOST_OCCURRENCES) -> Plan:
    """Return what ``job`` owes at ``now`` (the store's).

    A plan without occurrences and verdicts still tells the store when to look again.
    """
    verdicts = _Verdicts()
    kept: list[tuple[datetime, Trigger]] = []
    watermark = job.watermark
    pieces = list(_pieces(job, now))
    last_live = _last_live(pieces)
    for piece in pieces:
        if piece.paused:
            watermark = _decide_whole(piece, State.SKIPPED, Reason.PAUSED, verdicts) or watermark
            continue
        room = most - len(kept)
        decided, whole = _decide(piece, job, now, last_live, verdicts, kept, room)
        watermark = decided or watermark
        if not whole:
            break
    occurrences, cancel_previous = _overlap(job, now, kept, verdicts)
    return Plan(
        job_id=job.id,
        job=job.spec.name,
        revision=job.revision,
        watermark_seen=job.watermark,
        active_seen=job.active,
        occurrences=tuple(occurrences),
        verdicts=verdicts.by_time(),
        cancel_previous=cancel_previous,
        watermark=watermark,
        next_due=next_nominal(job.eras, watermark),
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


def _pieces(job: JobState, now: datetime) -> Iterator[_Piece]:
    """Cut (watermark, now] where the trigger changes and where a pause begins or ends; leave out stretches without a
    trigger."""
    for index, era in enumerate(job.eras):
        after = job.watermark if index == 0 else max(era.since, job.watermark)
        until = min(job.eras[index + 1].since, now) if index + 1 < len(job.eras) else now
        if era.trigger is None or after >= until:
            continue
        for begin, end, paused in _split(after, until, job.pauses):
            yield _Piece(era.trigger, begin, end, paused)


def _split(after: datetime, until: datetime, pauses: tuple[Stretch, ...]) -> Iterator[tuple[datetime, datetime, bool]]:
    """Split (after, until] into live and paused parts. A pause includes both of its ends."""
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
    """Return the last nominal time that is not paused: the one that ``latest`` keeps."""
    for piece in reversed(pieces):
        if not piece.paused:
            last = piece.trigger.latest_until(piece.until, piece.after)
            if last is not None:
                return last
    return None


def _decide_whole(piece: _Piece, state: State, reason: str, verdicts: _Verdicts) -> datetime | None:
    """Give one verdict to every nominal time of a piece; return the last of them."""
    first = piece.trigger.next_after(piece.after)
    if first is None or first > piece.until:
        return None
    last = piece.trigger.latest_until(piece.until, piece.after) or first
    count = piece.trigger.count_between(piece.after, piece.until, MOST_COUNTED)
    verdicts.add(VerdictRange(first, last, state, reason, count))
    return last


def _decide(
    piece: _Piece,
    job: JobState,
    now: datetime,
    last_live: datetime | None,
    verdicts: _Verdicts,
    kept: list[tuple[datetime, Trigger]],
    room: int,
) -> tuple[datetime | None, bool]:
    """Decide a live piece: first what is certainly lost, as ranges, then the rest one by one.

    Returns the last nominal time decided (``None``: there was none), and whether the whole piece is decided.
    """
    trigger, policies = piece.trigger, job.spec.policies
    watermark = None
    position = piece.after
    late_until = None if policies.grace is None else now - policies.grace - trigger.jitter - MICROSECOND
    lost: list[tuple[datetime | None, State, str]] = [
        (late_until, State.MISSED, Reason.LATE),
        (now - policies.catch_up_window - MICROSECOND, State.MISSED, Reason.BEYOND_WINDOW),
    ]
    if policies.catch_up != "all" and last_live is not None:
        swept = (
            (State.SKIPPED, Reason.COALESCED) if policies.catch_up == "latest" else (State.MISSED, Reason.NO_CATCH_UP)
        )
        lost.append((last_live - MICROSECOND, *swept))
    if policies.catch_up == "none" and policies.grace is None:
        lost.append((now - ON_TIME - MICROSECOND, State.MISSED, Reason.NO_CATCH_UP))
    for bound, state, reason in lost:
        if bound is None or bound <= position:
            continue
        until = min(bound, piece.until)
        last = _decide_whole(_Piece(trigger, position, until, paused=False), state, reason, verdicts)
        watermark = last or watermark
        position = max(position, until)
    while position < piece.until:
        nominal = trigger.next_after(position)
        if nominal is None or nominal > piece.until:
            break
        if room <= 0:
            return watermark, False
        due = nominal + trigger.delay_for(job.spec.name, nominal)
        if policies.grace is not None and now - due > policies.grace:
            verdicts.add(VerdictRange(nominal, nominal, State.MISSED, Reason.LATE, 1))
        else:
            kept.append((nominal, trigger))
            room -= 1
        watermark = position = nominal
    return watermark, True


def _overlap(
    job: JobState, now: datetime, kept: list[tuple[datetime, Trigger]], verdicts: _Verdicts
) -> tuple[list[PlannedOccurrence], bool]:
    """Apply the overlap policy to what was kept; return what to create, and whether the earlier ones are to be
    cancelled."""
    policies = job.spec.policies
    created: list[PlannedOccurrence] = []
    cancel_previous = False
    most_active = {"skip": 0, "queue_one": 1}.get(policies.overlap)
    last = kept[-1][0] if kept else None
    skipped: tuple[datetime, Trigger] | None = None
    for nominal, trigger in kept:
        on_time = policies.catch_up != "all" or now - nominal <= ON_TIME
        replaced = policies.overlap == "cancel_previous" and nominal != last
        crowded = most_active is not None and job.active + len(created) > most_active
        if on_time and (replaced or crowded):
            # A range speaks for every nominal time within it, so only direct neighbours under one trigger may join.
            join = skipped is not None and skipped[1] is trigger and trigger.next_after(skipped[0]) == nominal
            verdicts.add(VerdictRange(nominal, nominal, State.SKIPPED, Reason.OVERLAP, 1), join=join)
            skipped = nominal, trigger
            continue
        skipped = None
        cancel_previous = on_time and policies.overlap == "cancel_previous" and job.active > 0
        due = nominal + trigger.delay_for(job.spec.name, nominal)
        created.append(PlannedOccurrence(nominal, due, None if policies.grace is None else due + policies.grace))
    return created, cancel_previous


class _Verdicts:
    """Collects verdicts, by piece; hands them out by time."""

    def __init__(self) -> None:
        self._ranges: list[VerdictRange] = []

    def add(self, verdict: VerdictRange, *, join: bool = False) -> None:
        """Add a verdict; ``join`` lengthens the last one instead, whose nominal times it directly follows."""
        if join:
            before = self._ranges.pop()
            count = None if before.count is None or verdict.count is None else before.count + verdict.count
            verdict = VerdictRange(before.first, verdict.last, verdict.state, verdict.reason, count)
        self._ranges.append(verdict)

    def by_time(self) -> tuple[VerdictRange, ...]:
        return tuple(sorted(self._ranges, key=lambda verdict: verdict.first))
