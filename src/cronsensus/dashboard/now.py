"""What the first page shows: whether all is alive, what needs people, the last night, and what runs and comes next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Literal

from cronsensus.dashboard.attention import FAILED_ITEMS, Attention, Seen, find_attention
from cronsensus.dashboard.day import Day, draw_day
from cronsensus.dashboard.lanes import HOUR, MOST_RUNS, Lanes, NodeState, draw_lanes
from cronsensus.dashboard.night import SELDOM, Night, draw_night
from cronsensus.dashboard.numbers import Node, Standing, Work, count_nodes, count_work, read_nodes
from cronsensus.dashboard.reads import DAY
from cronsensus.dashboard.recent import Recent
from cronsensus.insight.failures import MOST, open_failures
from cronsensus.insight.live_nodes import needs_no_node
from cronsensus.insight.successes import last_success
from cronsensus.model.glance import Glance, Past
from cronsensus.model.job import JobView, is_internal
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter
from cronsensus.model.states import State
from cronsensus.stores.base import Store

By = Literal["node", "job", "list"]
MOST_JOBS = 50
"""Jobs of which the first page reads the last verdicts: those in trouble, then the first by name."""
STEP = 15
"""Seconds after which the picture moves on: a third of a pixel more each look would be a new page each time."""
SHOWN = 10
"""What needs people, of which more stands on the page that shows all."""
_NEWEST = 30
"""Verdicts that the first page reads of a job that is in trouble or runs."""
_NEWEST_OF_OTHERS = SELDOM + 2
"""Of the others: enough to see whether they run seldom in a night."""
_MOST_ALL = 200
_MOST_LISTED = 40
_MOST_NOTABLE = 30
_MOST_OVERDUE = 10
_MOST_BATCHES = 20
_RUNNING = 10
_WAITING = 200
_NEXT = 8
_NOTABLE = frozenset({State.MISSED, State.SKIPPED, State.FAILED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Now:
    """What the first page shows.

    Attributes:
        decided_at: when anything was last decided, as far as the newest rows tell.
        idle: why no node is needed although none is alive.
        keeper: the program that keeps the times, if no node is needed because of it.
        needs: how many jobs need people; ``hidden``: how many lines of ``attention`` are not shown.
        picture: by node; ``day``: by job; ``listed``: what ran lately. Only the one that was asked for is there.
    """

    now: datetime
    by: By
    nodes: tuple[Node, ...]
    standing: Standing
    work: Work
    decided_at: datetime | None
    idle: str | None
    keeper: str | None
    attention: tuple[Attention, ...]
    needs: int
    hidden: int
    upcoming: tuple[JobView, ...]
    running: tuple[Occurrence, ...]
    failed: int
    failed_capped: bool
    missed: int
    of_first_jobs: bool
    night: Night
    picture: Lanes | None
    day: Day | None
    listed: tuple[Occurrence, ...]

    @property
    def alive(self) -> int:
        """How many nodes are alive."""
        return self.standing.alive

    @property
    def is_well(self) -> bool:
        """Whether all that was looked for is as it should be, and all was looked at."""
        ticking = self.standing.alive > 0 or self.idle is not None
        return bool(self.work.jobs) and ticking and not self.attention and not self.of_first_jobs


def now_page(
    store: Store, *, by: By = "node", everything: bool = False, recent: Recent | None = None, zone: tzinfo = UTC
) -> Now:
    """Return what the first page shows.

    Args:
        store: has it.
        by: which picture.
        everything: all that needs people, and not the worst ``SHOWN``.
        recent: keeps what ended from page to page.
        zone: whose night is the last one.
    """
    at = store.now()
    since = at - DAY
    nodes, work = read_nodes(store), count_work(store)
    failed = open_failures(store, since=since)
    ran = (recent or Recent()).read_ran(store, at, since)
    ended, whole = [one for one in ran.glances if not is_internal(one.job)], ran.whole
    first = [view for view in store.jobs(limit=MOST_JOBS + 1) if not is_internal(view.spec.name)]
    views, notable = _choose_jobs(store, first, failed, ended, work.oldest)
    pasts = store.last_of([view.spec.name for view in views if view.spec.name in notable], limit=_NEWEST)
    others = [view.spec.name for view in views if view.spec.name not in notable]
    pasts |= store.last_of(others, limit=_NEWEST if by == "job" else _NEWEST_OF_OTHERS)
    single = {one.id: one for past in pasts.values() for one in past.glances} | {one.id: one for one in ended}
    missed = [
        one
        for one in single.values()
        if one.state is State.MISSED and one.parent is None and (one.finished_at or one.created_at) >= since
    ]
    ranges = [one for past in pasts.values() for one in past.ranges if one.range.last >= since]
    waiting = store.occurrences(OccurrenceFilter(states=(State.PENDING,)), limit=_WAITING, newest_first=False)
    attention = find_attention(
        Seen(
            now=at, since=since, views=views, pasts=pasts, failed=failed, missed=missed, nodes=nodes,
            running=work.oldest, waiting=[one for one in waiting if not is_internal(one.job)],
            succeeded=_read_successes(store, views, pasts), failed_items=_count_failed_items(store, waiting),
        )
    )  # fmt: skip
    shown = attention[: _MOST_ALL if everything else SHOWN]
    alive = [node for node in nodes if node.state == "alive"]
    idle = None if alive else needs_no_node(store, [node.session for node in alive])
    due = [view for view in views if view.next_due is not None and view.paused_at is None]
    decided = [one.created_at for one in single.values()] + [one.decided_at for one in ranges]
    steady = at - timedelta(seconds=at.timestamp() % STEP)
    hour = [one for one in ended if one.parent is None and (one.finished_at is None or one.finished_at >= at - HOUR)]
    return Now(
        now=at,
        by=by,
        nodes=nodes,
        standing=count_nodes(nodes, since),
        work=work,
        decided_at=max((*decided, *(one.created_at for one in waiting)), default=None),
        idle=idle,
        keeper=None if idle is None else next((view.spec.keeper for view in views if view.spec.keeper), None),
        attention=tuple(shown),
        needs=len({one.name for one in attention if one.needs_people}),
        hidden=len(attention) - len(shown),
        upcoming=tuple(sorted(due, key=lambda view: view.next_due or at)[:_NEXT]),
        running=tuple([one for one in work.oldest if one.parent is None][:_RUNNING]),
        failed=len(failed),
        failed_capped=len(failed) >= MOST,
        missed=len(missed) + sum(one.range.count or 1 for one in ranges if one.range.state is State.MISSED),
        of_first_jobs=len(first) > MOST_JOBS,
        night=draw_night(at, zone, pasts, ended, whole=whole),
        picture=draw_lanes(
            store, steady, nodes=_node_states(nodes), views=views, seen=hour[:MOST_RUNS],
            ranges=[one for one in ranges if one.range.state is State.MISSED],
        ) if by == "node" else None,
        day=draw_day(at, pasts, ended, whole=whole) if by == "job" else None,
        listed=tuple(_read_listed(store, single.values())) if by == "list" else (),
    )  # fmt: skip


def _choose_jobs(
    store: Store,
    first: Sequence[JobView],
    failed: Iterable[Occurrence],
    ended: Iterable[Glance],
    running: Iterable[Occurrence],
) -> tuple[list[JobView], set[str]]:
    """Return the jobs of which more is read, what is in trouble or runs before what stands first by name; and those."""
    known = {view.spec.name: view for view in first}
    notable = [one.job for one in failed] + [one.job for one in ended if one.state in _NOTABLE and one.parent is None]
    notable += [one.job for one in running if one.parent is None]
    for name in [name for name in dict.fromkeys(notable) if name not in known][:_MOST_NOTABLE]:
        if (view := store.job(name)) is not None:
            known[name] = view
    order = dict.fromkeys([*(name for name in notable if name in known), *known])
    chosen = [known[name] for name in list(order)[:MOST_JOBS] if known[name].retired_at is None]
    return chosen, set(notable)


def _count_failed_items(store: Store, waiting: Iterable[Occurrence]) -> dict[int, int]:
    """Return of batches whose items run how many of these failed, where any did."""
    open_ = [one.id for one in waiting if one.is_batch][:_MOST_BATCHES]
    return {number: found.failed for number, found in store.children(open_, limit=FAILED_ITEMS).items() if found.failed}


def _read_successes(store: Store, views: Iterable[JobView], pasts: dict[str, Past]) -> dict[str, datetime]:
    """Return when those succeeded last of which a success is expected and none is among the newest verdicts."""
    wanted = [
        view.spec.name
        for view in views
        if view.spec.overdue is not None
        and all(one.state is not State.SUCCEEDED for one in pasts.get(view.spec.name, Past()).glances)
    ]
    found = {name: last_success(store, name) for name in wanted[:_MOST_OVERDUE]}
    return {name: one.finished_at for name, one in found.items() if one is not None and one.finished_at is not None}


def _node_states(found: Iterable[Node]) -> list[NodeState]:
    """Return what is known of each name: a node that came back under its name is not gone."""
    known: dict[str, NodeState] = {}
    for node in found:  # the newest first
        one = node.session
        gone_at = (one.ended_at or one.renewed_at) if node.state in {"gone", "stopped", "closed"} else None
        known.setdefault(one.node, NodeState(one.node, node.state, gone_at))
    return list(known.values())


def _read_listed(store: Store, seen: Iterable[Glance]) -> Iterable[Occurrence]:
    """Return what began or was decided last, as a list; of items their batches."""
    began = (one for one in seen if not is_internal(one.job) and (one.state.final or one.begun_at is not None))
    newest = sorted(began, key=lambda one: -(one.parent or one.id))
    for number in list(dict.fromkeys(one.parent or one.id for one in newest))[:_MOST_LISTED]:
        if (one := store.occurrence(number)) is not None:
            yield one
