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
"""Seconds after which the picture moves on. Smaller steps would make a new page for each poll."""
SHOWN = 10
"""Lines of what needs people; another page shows all of them."""
_NEWEST = 30
"""Verdicts that the first page reads of a job that is in trouble or runs."""
_NEWEST_OF_OTHERS = SELDOM + 2
"""Verdicts of each other job: enough to see whether it runs seldom in a night."""
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
        decided_at: when anything was last decided, by the newest rows.
        idle: why no node is needed although none is alive.
        keeper: the program that keeps the times, if no node is needed because of it.
        needs: how many jobs need people; ``hidden``: how many lines of ``attention`` are not shown.
        picture: by node; ``day``: by job; ``listed``: what ran lately. Only the one that ``by`` names is set.
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
        """Whether nothing needs people, and all jobs were checked."""
        ticking = self.standing.alive > 0 or self.idle is not None
        return bool(self.work.jobs) and ticking and not self.attention and not self.of_first_jobs


def read_now_page(
    store: Store, *, by: By = "node", everything: bool = False, recent: Recent | None = None, zone: tzinfo = UTC
) -> Now:
    """Return what the first page shows.

    Args:
        store: where it is.
        by: which picture.
        everything: list all that needs people, not only the worst ``SHOWN``.
        recent: keeps the ended runs from page to page.
        zone: the zone of the last night.
    """
    at = store.now()
    since = at - DAY
    nodes, work = read_nodes(store), count_work(store)
    failed = open_failures(store, since=since)
    ran = (recent or Recent()).read_ran(store, at, since)
    ended, whole = [glance for glance in ran.glances if not is_internal(glance.job)], ran.whole
    first = [view for view in store.jobs(limit=MOST_JOBS + 1) if not is_internal(view.spec.name)]
    views, notable = _choose_jobs(store, first, failed, ended, work.oldest)
    pasts = store.last_of([view.spec.name for view in views if view.spec.name in notable], limit=_NEWEST)
    others = [view.spec.name for view in views if view.spec.name not in notable]
    pasts |= store.last_of(others, limit=_NEWEST if by == "job" else _NEWEST_OF_OTHERS)
    single = {glance.id: glance for past in pasts.values() for glance in past.glances} | {one.id: one for one in ended}
    missed = [
        one
        for one in single.values()
        if one.state is State.MISSED and one.parent is None and (one.finished_at or one.created_at) >= since
    ]
    ranges = [
        ledger_range for past in pasts.values() for ledger_range in past.ranges if ledger_range.range.last >= since
    ]
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
    decided = [one.created_at for one in single.values()] + [ledger_range.decided_at for ledger_range in ranges]
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
        missed=len(missed) + sum(
            ledger_range.range.count or 1 for ledger_range in ranges if ledger_range.range.state is State.MISSED
        ),
        of_first_jobs=len(first) > MOST_JOBS,
        night=draw_night(at, zone, pasts, ended, whole=whole),
        picture=draw_lanes(
            store, steady, nodes=_node_states(nodes), views=views, seen=hour[:MOST_RUNS],
            ranges=[ledger_range for ledger_range in ranges if ledger_range.range.state is State.MISSED],
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
    """Return the jobs of which more is read, and the names of notable jobs, which come first: in trouble or running."""
    known = {view.spec.name: view for view in first}
    notable = [run.job for run in failed] + [run.job for run in ended if run.state in _NOTABLE and run.parent is None]
    notable += [run.job for run in running if run.parent is None]
    for name in [name for name in dict.fromkeys(notable) if name not in known][:_MOST_NOTABLE]:
        if (view := store.job(name)) is not None:
            known[name] = view
    order = dict.fromkeys([*(name for name in notable if name in known), *known])
    chosen = [known[name] for name in list(order)[:MOST_JOBS] if known[name].retired_at is None]
    return chosen, set(notable)


def _count_failed_items(store: Store, waiting: Iterable[Occurrence]) -> dict[int, int]:
    """Return the number of failed items of each open batch that has any."""
    open_ = [one.id for one in waiting if one.is_batch][:_MOST_BATCHES]
    return {
        number: children.failed
        for number, children in store.children(open_, limit=FAILED_ITEMS).items()
        if children.failed
    }


def _read_successes(store: Store, views: Iterable[JobView], pasts: dict[str, Past]) -> dict[str, datetime]:
    """Return the last success of each job with ``overdue=`` that has none among its newest verdicts."""
    wanted = [
        view.spec.name
        for view in views
        if view.spec.overdue is not None
        and all(glance.state is not State.SUCCEEDED for glance in pasts.get(view.spec.name, Past()).glances)
    ]
    last_successes = {name: last_success(store, name) for name in wanted[:_MOST_OVERDUE]}
    return {
        name: success.finished_at
        for name, success in last_successes.items()
        if success is not None and success.finished_at is not None
    }


def _node_states(nodes: Iterable[Node]) -> list[NodeState]:
    """Return the newest state by node name: a node that came back under its name is not gone."""
    known: dict[str, NodeState] = {}
    for node in nodes:  # the newest first
        session = node.session
        gone_at = (session.ended_at or session.renewed_at) if node.state in {"gone", "stopped", "closed"} else None
        known.setdefault(session.node, NodeState(session.node, node.state, gone_at))
    return list(known.values())


def _read_listed(store: Store, seen: Iterable[Glance]) -> Iterable[Occurrence]:
    """Yield the runs that started or were decided last; of items their batches."""
    began = (one for one in seen if not is_internal(one.job) and (one.state.final or one.begun_at is not None))
    newest = sorted(began, key=lambda one: -(one.parent or one.id))
    for number in list(dict.fromkeys(one.parent or one.id for one in newest))[:_MOST_LISTED]:
        if (one := store.occurrence(number)) is not None:
            yield one
