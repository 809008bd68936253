"""The layout of the picture: the last hour by node, the next hour by job; widths in percent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

from cronsensus.insight.next_times import times_after
from cronsensus.model.glance import Glance
from cronsensus.model.job import JobView
from cronsensus.model.ledger import LedgerRange
from cronsensus.model.states import State
from cronsensus.stores.base import Store

HOUR = timedelta(hours=1)
MOST_RUNS = 600
HEAD, LANE, TRACK, TRACKS = 26, 62, 13, 3
ROW = 41
_MOST_LANES = 12
_MOST_AHEAD = 20
_MOST_MARKS = 60
_MOST_LOOKED_UP = 100
_LEAST_WIDTH = 0.25
"""The least width of a bar. Bars with a smaller gap between them are joined."""
_QUARTER = timedelta(minutes=15)
_KIND_OF_END = {"crashed": "crash", "retry": "retry", "failed": "fail", "succeeded": "ok", None: "run"}
_NEVER_RAN = (State.MISSED, State.SKIPPED, State.CANCELLED)


class _Attempt(NamedTuple):
    occurrence: int
    job: str
    node: str | None
    started_at: datetime
    finished_at: datetime | None
    end: str | None


class _Mark(NamedTuple):
    """Nominal times that ran nowhere, before they have a place in the picture."""

    at: datetime
    state: str
    job: str
    times: int
    run: int | None
    reason: str


@dataclass(slots=True, kw_only=True)
class Bar:
    """An attempt, or ``count`` short attempts of the same job that would touch each other."""

    kind: str
    node: str
    job: str
    run: int
    started: datetime
    ended: datetime | None
    x: float
    width: float
    y: int = 0
    count: int = 1


@dataclass(slots=True)
class Lane:
    """A node: ``y`` is where its lane begins; ``hidden``, how many bars found no place."""

    name: str
    y: int
    state: str
    gone_at: datetime | None
    gone_x: float | None
    hidden: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Takeover:
    """An attempt that ended with its node, and the next attempt on another node."""

    job: str
    run: int
    x: float
    y: int
    to_y: int
    after: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class NotRun:
    """A nominal time, or several, that ran nowhere."""

    state: str
    job: str
    at: datetime
    x: float
    y: int
    count: int
    run: int | None
    reason: str
    labelled: bool


@dataclass(frozen=True, slots=True)
class Ahead:
    """A job that is due within the hour; ``xs``: the positions of its times."""

    job: str
    y: int
    next: datetime
    xs: tuple[float, ...]
    more: bool
    paused: bool


@dataclass(slots=True)
class Lanes:
    """The picture; ``cut``: too many attempts of the hour to show all."""

    now: datetime
    height: int
    lanes: list[Lane] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)
    takeovers: list[Takeover] = field(default_factory=list)
    not_run: list[NotRun] = field(default_factory=list)
    not_run_y: int = 0
    not_run_count: int = 0
    ahead: list[Ahead] = field(default_factory=list)
    ahead_more: int = 0
    ticks: list[tuple[float, datetime]] = field(default_factory=list)
    cut: bool = False
    lanes_more: int = 0


@dataclass(frozen=True, slots=True)
class NodeState:
    """What a lane shows of its node."""

    name: str
    state: str
    gone_at: datetime | None


def draw_lanes(
    store: Store,
    now: datetime,
    *,
    nodes: Sequence[NodeState],
    views: Sequence[JobView],
    glances: Sequence[Glance],
    ranges: Iterable[LedgerRange],
) -> Lanes:
    """Return the picture of the hour before and after ``now``.

    Args:
        store: read for the attempts of runs that were taken over or tried again.
        now: the middle of the picture.
        nodes: what is known of them, by name.
        views: the jobs whose next times are drawn.
        glances: runs that go on or ended within the hour; at most ``MOST_RUNS``.
        ranges: verdicts of times that made no occurrence.
    """
    since = now - HOUR
    attempts = _attempts(store, [glance for glance in glances if glance.started_at is not None])
    bars = [bar for attempt in attempts if (bar := _bar(attempt, now)) is not None]
    states = {node.name: node for node in nodes}
    names = sorted({bar.node for bar in bars} | {node.name for node in nodes if _is_of_the_hour(node, since)})
    shown_names = names[:_MOST_LANES]
    lanes = Lanes(now, 0, cut=len(glances) >= MOST_RUNS, lanes_more=len(names) - len(shown_names))
    for number, name in enumerate(shown_names):
        state = states.get(name, NodeState(name, "closed", None))
        gone_x = None if state.gone_at is None else _x(max(state.gone_at, since), now)
        lanes.lanes.append(Lane(name, HEAD + LANE * number, state.state, state.gone_at, gone_x))
    by_name = {lane.name: lane for lane in lanes.lanes}
    for name, lane in by_name.items():
        lanes.bars += _packed([bar for bar in bars if bar.node == name], lane)
    lanes.not_run_y = HEAD + LANE * len(shown_names)
    lanes.takeovers = _takeovers(attempts, by_name, lanes.bars, now)
    _add_not_run(lanes, glances, ranges, now)
    lanes.ahead, lanes.ahead_more = _ahead(views, now)
    lanes.height = max(lanes.not_run_y + LANE, HEAD + ROW * len(lanes.ahead))
    lanes.ticks = _ticks(now)
    return lanes


def _is_of_the_hour(node: NodeState, since: datetime) -> bool:
    return node.gone_at is None or node.gone_at >= since


def _x(at: datetime, now: datetime) -> float:
    """Return the position of an instant, in percent: now is in the middle."""
    return round(50 + 50 * ((at - now) / HOUR), 2)


def _attempts(store: Store, glances: Sequence[Glance]) -> list[_Attempt]:
    """Return the attempts of the hour. Only runs with several attempts are read from the store."""
    with_several = [glance.id for glance in glances if glance.crashes or glance.failures][:_MOST_LOOKED_UP]
    several_ids = set(with_several)
    single = [
        _Attempt(
            glance.id,
            glance.job,
            glance.node,
            glance.started_at or glance.created_at,
            glance.finished_at,
            None if glance.finished_at is None else str(glance.state),
        )
        for glance in glances
        if glance.id not in several_ids
    ]
    return single + [
        _Attempt(run.occurrence, run.job, run.node, run.started_at, run.finished_at, run.end)
        for run in store.runs(*with_several)
    ]


def _bar(attempt: _Attempt, now: datetime) -> Bar | None:
    ended = attempt.finished_at or now
    # A snoozed attempt did nothing but find out that it has to wait.
    if ended < now - HOUR or attempt.node is None or attempt.end == "snoozed":
        return None
    x = _x(max(attempt.started_at, now - HOUR), now)
    width = max(_LEAST_WIDTH, _x(min(ended, now), now) - x)
    kind = _KIND_OF_END.get(attempt.end, "skip")
    return Bar(
        kind=kind, node=attempt.node, job=attempt.job, run=attempt.occurrence, started=attempt.started_at,
        ended=attempt.finished_at,
        x=min(x, 50 - _LEAST_WIDTH), width=round(width, 2),
    )  # fmt: skip


def _packed(bars: list[Bar], lane: Lane) -> list[Bar]:
    """Place the bars of a lane on its tracks: trouble first; short neighbours of a job are joined."""
    tracks: list[list[Bar]] = [[] for _ in range(TRACKS)]
    for bar in sorted(_joined(bars), key=lambda bar: (bar.kind == "ok", bar.x)):
        for number, track in enumerate(tracks):
            if all(placed.x + placed.width <= bar.x or bar.x + bar.width <= placed.x for placed in track):
                bar.y = lane.y + 21 + TRACK * number
                track.append(bar)
                break
        else:
            lane.hidden += bar.count
    return sorted((bar for track in tracks for bar in track), key=lambda bar: bar.x)


def _joined(bars: list[Bar]) -> list[Bar]:
    joined: list[Bar] = []
    last_of_job: dict[str, Bar] = {}
    for bar in sorted(bars, key=lambda bar: (bar.x, bar.run)):
        previous = last_of_job.get(bar.job)
        if previous is not None and _touch(previous, bar):
            previous.width = round(max(previous.width, bar.x + bar.width - previous.x), 2)
            previous.count += bar.count
            previous.ended = bar.ended
        else:
            last_of_job[bar.job] = bar
            joined.append(bar)
    return joined


def _touch(left: Bar, right: Bar) -> bool:
    short = right.width <= 2 * _LEAST_WIDTH
    return (
        short
        and left.kind == right.kind == "ok"
        and left.job == right.job
        and right.x - left.x - left.width < _LEAST_WIDTH
    )


def _takeovers(
    attempts: Sequence[_Attempt], by_name: dict[str, Lane], bars: Sequence[Bar], now: datetime
) -> list[Takeover]:
    takeovers = []
    by_run: dict[int, list[_Attempt]] = {}
    for attempt in attempts:
        by_run.setdefault(attempt.occurrence, []).append(attempt)
    for run, attempts_of_run in by_run.items():
        for ended, next_one in pairwise(attempts_of_run):
            from_lane, to_lane = by_name.get(ended.node or ""), by_name.get(next_one.node or "")
            at = ended.finished_at
            if ended.end != "crashed" or from_lane is None or to_lane is None or from_lane is to_lane or at is None:
                continue
            if at < now - HOUR:
                continue
            ys = {(bar.node, bar.kind == "crash"): bar.y + 4 for bar in bars if bar.run == run}
            takeovers.append(
                Takeover(
                    job=ended.job, run=run, x=_x(at, now),
                    y=ys.get((from_lane.name, True), from_lane.y + 31),
                    to_y=ys.get((to_lane.name, False), to_lane.y + 31),
                    after=next_one.started_at - at,
                )
            )  # fmt: skip
    return takeovers


def _add_not_run(lanes: Lanes, glances: Sequence[Glance], ranges: Iterable[LedgerRange], now: datetime) -> None:
    marks = [
        _Mark(glance.scheduled_for or glance.due_at, str(glance.state), glance.job, 1, glance.id, glance.reason or "")
        for glance in glances
        if glance.started_at is None and glance.state in _NEVER_RAN
    ]
    marks += [
        _Mark(verdicts.last, str(verdicts.state), job, verdicts.count or 1, None, verdicts.reason)
        for job, verdicts in ((ledger_range.job, ledger_range.range) for ledger_range in ranges)
    ]
    marks = [mark for mark in marks if now - HOUR <= mark.at <= now]
    lanes.not_run_count = sum(mark.times for mark in marks)
    labelled = set[bool]()
    for at, state, job, count, run, reason in sorted(marks, key=lambda mark: mark.at, reverse=True)[:50]:
        missed = state == "missed"
        y = lanes.not_run_y + (22 if missed else 46)
        x = _x(at, now)
        # A single name for each track: more would overlap.
        is_labelled = missed not in labelled
        labelled.add(missed)
        lanes.not_run.append(
            NotRun(
                state=state, job=job, at=at, x=x, y=y, count=count, run=run, reason=reason, labelled=is_labelled
            )
        )  # fmt: skip


def _ahead(views: Sequence[JobView], now: datetime) -> tuple[list[Ahead], int]:
    upcoming: list[tuple[datetime, JobView, list[datetime]]] = []
    for view in views:
        trigger = view.spec.trigger
        if trigger is None or view.retired_at is not None or view.spec.keeper is not None:
            continue
        times: list[datetime] = []
        for at in times_after(trigger, now, _MOST_MARKS + 1):
            if at > now + HOUR:
                break
            times.append(at)
        if times:
            upcoming.append((times[0], view, times))
    upcoming.sort(key=lambda entry: (entry[0], entry[1].spec.name))
    rows = [
        Ahead(
            view.spec.name,
            HEAD + ROW * number,
            first,
            tuple(_x(at, now) for at in times[:_MOST_MARKS]),
            len(times) > _MOST_MARKS,
            view.paused_at is not None,
        )
        for number, (first, view, times) in enumerate(upcoming[:_MOST_AHEAD])
    ]
    return rows, len(upcoming) - len(rows)


def _ticks(now: datetime) -> list[tuple[float, datetime]]:
    """Return the quarters of an hour, without those at the edges and beside *now*, where their labels do not fit."""
    begin = now.replace(minute=0, second=0, microsecond=0) - HOUR
    times = [begin + _QUARTER * number for number in range(14)]
    ticks = [(_x(at, now), at) for at in times]
    return [tick for tick in ticks if 1.5 < tick[0] < 98 and abs(tick[0] - 50) > 5]
