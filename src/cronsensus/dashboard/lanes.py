"""The picture of the last hour by node and of the next by job: what stands where, in percent of the width."""

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
_MOST_TIMES = 60
_MOST_LOOKED_UP = 100
_THIN = 0.25
"""The least width of a bar; what is nearer to its neighbour than that is drawn as one with it."""
_QUARTER = timedelta(minutes=15)
_KINDS = {"crashed": "crash", "retry": "retry", "failed": "fail", "succeeded": "ok", None: "run"}
_NEVER_RAN = (State.MISSED, State.SKIPPED, State.CANCELLED)


class _Attempt(NamedTuple):
    occurrence: int
    job: str
    node: str | None
    started_at: datetime
    finished_at: datetime | None
    end: str | None


@dataclass(slots=True, kw_only=True)
class Bar:
    """An attempt, or ``count`` short ones of one job that would touch each other."""

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
    """An attempt that ended with its node, and the one that went on elsewhere."""

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
    """A job that is due within the hour; ``xs``: where its times stand."""

    job: str
    y: int
    next: datetime
    xs: tuple[float, ...]
    more: bool
    paused: bool


@dataclass(slots=True)
class Lanes:
    """The picture; ``cut``: not all that ran in the hour is on it."""

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
    """What a lane says of its node."""

    name: str
    state: str
    gone_at: datetime | None


def draw_lanes(
    store: Store,
    now: datetime,
    *,
    nodes: Sequence[NodeState],
    views: Sequence[JobView],
    seen: Sequence[Glance],
    ranges: Iterable[LedgerRange],
) -> Lanes:
    """Return the picture of the hour before and after ``now``.

    Args:
        store: is asked for the attempts of what was taken over or tried again.
        now: the middle of the picture.
        nodes: what is known of them, by name.
        views: the jobs whose next times are drawn.
        seen: what runs, and what ended within the hour; at most ``MOST_RUNS``.
        ranges: verdicts of times that made no occurrence.
    """
    since = now - HOUR
    attempts = _attempts(store, [one for one in seen if one.started_at is not None])
    bars = [bar for one in attempts if (bar := _bar(one, now)) is not None]
    known = {node.name: node for node in nodes}
    names = sorted({bar.node for bar in bars} | {node.name for node in nodes if _is_of_the_hour(node, since)})
    shown = names[:_MOST_LANES]
    found = Lanes(now, 0, cut=len(seen) >= MOST_RUNS, lanes_more=len(names) - len(shown))
    for number, name in enumerate(shown):
        state = known.get(name, NodeState(name, "closed", None))
        gone_x = None if state.gone_at is None else _x(max(state.gone_at, since), now)
        found.lanes.append(Lane(name, HEAD + LANE * number, state.state, state.gone_at, gone_x))
    by_name = {lane.name: lane for lane in found.lanes}
    for name, lane in by_name.items():
        found.bars += _packed([bar for bar in bars if bar.node == name], lane)
    found.not_run_y = HEAD + LANE * len(shown)
    found.takeovers = _takeovers(attempts, by_name, found.bars, now)
    _add_not_run(found, seen, ranges, now)
    found.ahead, found.ahead_more = _ahead(views, now)
    found.height = max(found.not_run_y + LANE, HEAD + ROW * len(found.ahead))
    found.ticks = _ticks(now)
    return found


def _is_of_the_hour(node: NodeState, since: datetime) -> bool:
    return node.gone_at is None or node.gone_at >= since


def _x(at: datetime, now: datetime) -> float:
    """Return where an instant stands: now is in the middle."""
    return round(50 + 50 * ((at - now) / HOUR), 2)


def _attempts(store: Store, seen: Sequence[Glance]) -> list[_Attempt]:
    """Return the attempts of the hour; only what had several is asked for."""
    again = [one.id for one in seen if one.crashes or one.failures][:_MOST_LOOKED_UP]
    several = set(again)
    made = [
        _Attempt(
            one.id,
            one.job,
            one.node,
            one.started_at or one.created_at,
            one.finished_at,
            None if one.finished_at is None else str(one.state),
        )
        for one in seen
        if one.id not in several
    ]
    return made + [
        _Attempt(one.occurrence, one.job, one.node, one.started_at, one.finished_at, one.end)
        for one in store.runs(*again)
    ]


def _bar(one: _Attempt, now: datetime) -> Bar | None:
    ended = one.finished_at or now
    if ended < now - HOUR or one.node is None or one.end == "snoozed":  # it looked, and waits: no attempt
        return None
    x = _x(max(one.started_at, now - HOUR), now)
    width = max(_THIN, _x(min(ended, now), now) - x)
    kind = _KINDS.get(one.end, "skip")
    return Bar(
        kind=kind, node=one.node, job=one.job, run=one.occurrence, started=one.started_at, ended=one.finished_at,
        x=min(x, 50 - _THIN), width=round(width, 2),
    )  # fmt: skip


def _packed(bars: list[Bar], lane: Lane) -> list[Bar]:
    """Return the bars of a lane on its tracks: trouble first, short neighbours of one job as one."""
    tracks: list[list[Bar]] = [[] for _ in range(TRACKS)]
    for bar in sorted(_joined(bars), key=lambda bar: (bar.kind == "ok", bar.x)):
        for number, track in enumerate(tracks):
            if all(one.x + one.width <= bar.x or bar.x + bar.width <= one.x for one in track):
                bar.y = lane.y + 21 + TRACK * number
                track.append(bar)
                break
        else:
            lane.hidden += bar.count
    return sorted((bar for track in tracks for bar in track), key=lambda bar: bar.x)


def _joined(bars: list[Bar]) -> list[Bar]:
    found: list[Bar] = []
    last: dict[str, Bar] = {}
    for bar in sorted(bars, key=lambda bar: (bar.x, bar.run)):
        one = last.get(bar.job)
        if one is not None and _touch(one, bar):
            one.width = round(max(one.width, bar.x + bar.width - one.x), 2)
            one.count += bar.count
            one.ended = bar.ended
        else:
            last[bar.job] = bar
            found.append(bar)
    return found


def _touch(one: Bar, other: Bar) -> bool:
    short = other.width <= 2 * _THIN
    return short and one.kind == other.kind == "ok" and one.job == other.job and other.x - one.x - one.width < _THIN


def _takeovers(
    attempts: Sequence[_Attempt], by_name: dict[str, Lane], bars: Sequence[Bar], now: datetime
) -> list[Takeover]:
    found = []
    by_run: dict[int, list[_Attempt]] = {}
    for one in attempts:
        by_run.setdefault(one.occurrence, []).append(one)
    for run, some in by_run.items():
        for ended, next_one in pairwise(some):
            begin, end = by_name.get(ended.node or ""), by_name.get(next_one.node or "")
            at = ended.finished_at
            if ended.end != "crashed" or begin is None or end is None or begin is end or at is None:
                continue
            if at < now - HOUR:
                continue
            ys = {(bar.node, bar.kind == "crash"): bar.y + 4 for bar in bars if bar.run == run}
            found.append(
                Takeover(
                    job=ended.job, run=run, x=_x(at, now),
                    y=ys.get((begin.name, True), begin.y + 31),
                    to_y=ys.get((end.name, False), end.y + 31),
                    after=next_one.started_at - at,
                )
            )  # fmt: skip
    return found


def _add_not_run(found: Lanes, seen: Sequence[Glance], ranges: Iterable[LedgerRange], now: datetime) -> None:
    marks: list[tuple[datetime, str, str, int, int | None, str]] = [
        (one.scheduled_for or one.due_at, str(one.state), one.job, 1, one.id, one.reason or "")
        for one in seen
        if one.started_at is None and one.state in _NEVER_RAN
    ]
    marks += [
        (one.range.last, str(one.range.state), one.job, one.range.count or 1, None, one.range.reason)
        for one in ranges
    ]  # fmt: skip
    marks = [mark for mark in marks if now - HOUR <= mark[0] <= now]
    found.not_run_count = sum(mark[3] for mark in marks)
    labelled = set[bool]()
    for at, state, job, count, run, reason in sorted(marks, key=lambda mark: mark[0], reverse=True)[:50]:
        missed = state == "missed"
        y = found.not_run_y + (22 if missed else 46)
        x = _x(at, now)
        # One name for each track: more would lie on each other.
        named = missed not in labelled
        labelled.add(missed)
        found.not_run.append(
            NotRun(
                state=state, job=job, at=at, x=x, y=y, count=count, run=run, reason=reason, labelled=named
            )
        )  # fmt: skip


def _ahead(views: Sequence[JobView], now: datetime) -> tuple[list[Ahead], int]:
    found: list[tuple[datetime, JobView, list[datetime]]] = []
    for view in views:
        trigger = view.spec.trigger
        if trigger is None or view.retired_at is not None or view.spec.keeper is not None:
            continue
        times: list[datetime] = []
        for at in times_after(trigger, now, _MOST_TIMES + 1):
            if at > now + HOUR:
                break
            times.append(at)
        if times:
            found.append((times[0], view, times))
    found.sort(key=lambda one: (one[0], one[1].spec.name))
    rows = [
        Ahead(
            view.spec.name,
            HEAD + ROW * number,
            first,
            tuple(_x(at, now) for at in times[:_MOST_TIMES]),
            len(times) > _MOST_TIMES,
            view.paused_at is not None,
        )
        for number, (first, view, times) in enumerate(found[:_MOST_AHEAD])
    ]
    return rows, len(found) - len(rows)


def _ticks(now: datetime) -> list[tuple[float, datetime]]:
    """Return the quarters of an hour, but those at the edges and beside *now*, where their words would not fit."""
    first = now.replace(minute=0, second=0, microsecond=0) - HOUR
    times = [first + _QUARTER * number for number in range(14)]
    found = [(_x(at, now), at) for at in times]
    return [one for one in found if 1.5 < one[0] < 98 and abs(one[0] - 50) > 5]
