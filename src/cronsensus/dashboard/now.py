"""What the first page shows: whether all is alive, what needs people, the last night, and what runs and comes next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Literal

from cronsensus.dashboard.attention import FAILED_ITEMS, Attention, Facts, find_attention
from cronsensus.dashboard.day import Day, draw_day
from cronsensus.dashboard.lanes import HOUR, MOST_RUNS, Lanes, NodeState, draw_lanes
from cronsensus.dashboard.night import SELDOM, Night, draw_night
from cronsensus.dashboard.numbers import Node, Standing, Work, count_nodes, count_work, read_nodes
from cronsensus.dashboard.reads import DAY
from cronsensus.dashboard.recent import Recent
from cronsensus.insight.failures import MOST_FAILURES, open_failures
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
STEP_SECONDS = 15
"""Seconds after which the picture moves on. Smaller steps would make a new page for each poll."""
MOST_SHOWN = 10
"""Lines of what needs people; another page shows all of them."""
_NEWEST_VERDICTS = 30
"""Verdicts that the first page reads of a job that is in trouble or runs."""
_NEWEST_OF_OTHERS = SELDOM + 2
"""Verdicts of each other job: enough to see whether it runs seldom in a night."""
_MOST_ALL = 200
_MOST_LISTED = 40
_MOST_NOTABLE = 30
_MOST_OVERDUE = 10
_MOST_BATCHES = 20
_MOST_RUNNING = 10
_MOST_WAITING = 200
_MOST_UPCOMING = 8
_NOTABLE_STATES = frozenset({State.MISSED, State.SKIPPED, State.FAILED})


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
        everything: list all that needs people, not only the worst ``MOST_SHOWN``.
        recent: keeps the ended runs from page to page.
        zone: the zone of the last night.
    """
    now = store.now()
    since = now - DAY
    nodes, work = read_nodes(store), count_work(store)
    failed = open_failures(store, since=since)
    ran = (recent or Recent()).read_ran(store, now, since)
    ended, complete = [glance for glance in ran.glances if not is_internal(glance.job)], ran.complete
    first_jobs = [view for view in store.jobs(limit=MOST_JOBS + 1) if not is_internal(view.spec.name)]
    views, notable = _choose_jobs(store, first_jobs, failed, ended, work.oldest)
    pasts = store.last_of([view.spec.name for view in views if view.spec.name in notable], limit=_NEWEST_VERDICTS)
    others = [view.spec.name for view in views if view.spec.name not in notable]
    pasts |= store.last_of(others, limit=_NEWEST_VERDICTS if by == "job" else _NEWEST_OF_OTHERS)
    by_id = {glance.id: glance for past in pasts.values() for glance in past.glances} | {
        glance.id: glance for glance in ended
    }
    missed = [
        glance
        for glance in by_id.values()
        if glance.state is State.MISSED and glance.parent is None and (glance.finished_at or glance.created_at) >= since
    ]
    ranges = [
        ledger_range for past in pasts.values() for ledger_range in past.ranges if ledger_range.range.last >= since
    ]
    waiting = store.occurrences(OccurrenceFilter(states=(State.PENDING,)), limit=_MOST_WAITING, newest_first=False)
    attention = find_attention(
        Facts(
            now=now, since=since, views=views, pasts=pasts, failed=failed, missed=missed, nodes=nodes,
            running=work.oldest, waiting=[run for run in waiting if not is_internal(run.job)],
            succeeded=_read_successes(store, views, pasts), failed_items=_count_failed_items(store, waiting),
        )
    )  # fmt: skip
    shown = attention[: _MOST_ALL if everything else MOST_SHOWN]
    alive = [node for node in nodes if node.state == "alive"]
    idle = None if alive else needs_no_node(store, [node.session for node in alive])
    due = [view for view in views if view.next_due is not None and view.paused_at is None]
    decided = [glance.created_at for glance in by_id.values()] + [ledger_range.decided_at for ledger_range in ranges]
    picture_time = now - timedelta(seconds=now.timestamp() % STEP_SECONDS)
    last_hour = [
        glance
        for glance in ended
        if glance.parent is None and (glance.finished_at is None or glance.finished_at >= now - HOUR)
    ]
    return Now(
        now=now,
        by=by,
        nodes=nodes,
        standing=count_nodes(nodes, since),
        work=work,
        decided_at=max((*decided, *(run.created_at for run in waiting)), default=None),
        idle=idle,
        keeper=None if idle is None else next((view.spec.keeper for view in views if view.spec.keeper), None),
        attention=tuple(shown),
        needs=len({entry.name for entry in attention if entry.needs_people}),
        hidden=len(attention) - len(shown),
        upcoming=tuple(sorted(due, key=lambda view: view.next_due or now)[:_MOST_UPCOMING]),
        running=tuple([run for run in work.oldest if run.parent is None][:_MOST_RUNNING]),
        failed=len(failed),
        failed_capped=len(failed) >= MOST_FAILURES,
        missed=len(missed) + sum(
            ledger_range.range.count or 1 for ledger_range in ranges if ledger_range.range.state is State.MISSED
        ),
        of_first_jobs=len(first_jobs) > MOST_JOBS,
        night=draw_night(now, zone, pasts, ended, complete=complete),
        picture=draw_lanes(
            store, picture_time, nodes=_node_states(nodes), views=views, glances=last_hour[:MOST_RUNS],
            ranges=[ledger_range for ledger_range in ranges if ledger_range.range.state is State.MISSED],
        ) if by == "node" else None,
        day=draw_day(now, pasts, ended, complete=complete) if by == "job" else None,
        listed=tuple(_read_listed(store, by_id.values())) if by == "list" else (),
    )  # fmt: skip


def _choose_jobs(
    store: Store,
    first_jobs: Sequence[JobView],
    failed: Iterable[Occurrence],
    ended: Iterable[Glance],
    running: Iterable[Occurrence],
) -> tuple[list[JobView], set[str]]:
    """Return the jobs of which more is read, and the names of notable jobs, which come first: in trouble or running."""
    views = {view.spec.name: view for view in first_jobs}
    notable = [run.job for run in failed] + [
        run.job for run in ended if run.state in _NOTABLE_STATES and run.parent is None
    ]
    notable += [run.job for run in running if run.parent is None]
    for name in [name for name in dict.fromkeys(notable) if name not in views][:_MOST_NOTABLE]:
        if (view := store.job(name)) is not None:
            views[name] = view
    order = dict.fromkeys([*(name for name in notable if name in views), *views])
    kept = [views[name] for name in list(order)[:MOST_JOBS] if views[name].retired_at is None]
    return kept, set(notable)


def _count_failed_items(store: Store, waiting: Iterable[Occurrence]) -> dict[int, int]:
    """Return the number of failed items of each open batch that has any."""
    open_batches = [occurrence.id for occurrence in waiting if occurrence.is_batch][:_MOST_BATCHES]
    return {
        batch_id: children.failed
        for batch_id, children in store.children(open_batches, limit=FAILED_ITEMS).items()
        if children.failed
    }


def _read_successes(store: Store, views: Iterable[JobView], pasts: dict[str, Past]) -> dict[str, datetime]:
    """Return the last success of each job with ``overdue=`` that has none among its newest verdicts."""
    jobs = [
        view.spec.name
        for view in views
        if view.spec.overdue is not None
        and all(glance.state is not State.SUCCEEDED for glance in pasts.get(view.spec.name, Past()).glances)
    ]
    last_successes = {name: last_success(store, name) for name in jobs[:_MOST_OVERDUE]}
    return {
        name: success.finished_at
        for name, success in last_successes.items()
        if success is not None and success.finished_at is not None
    }


def _node_states(nodes: Iterable[Node]) -> list[NodeState]:
    """Return the newest state by node name: a node that came back under its name is not gone."""
    by_name: dict[str, NodeState] = {}
    for node in nodes:  # the newest first
        session = node.session
        gone_at = (session.ended_at or session.renewed_at) if node.state in {"gone", "stopped", "closed"} else None
        by_name.setdefault(session.node, NodeState(session.node, node.state, gone_at))
    return list(by_name.values())


def _read_listed(store: Store, glances: Iterable[Glance]) -> Iterable[Occurrence]:
    """Yield the runs that started or were decided last; of items their batches."""
    shown = (
        glance
        for glance in glances
        if not is_internal(glance.job) and (glance.state.final or glance.begun_at is not None)
    )
    newest = sorted(shown, key=lambda glance: -(glance.parent or glance.id))
    for run_id in list(dict.fromkeys(glance.parent or glance.id for glance in newest))[:_MOST_LISTED]:
        if (run := store.occurrence(run_id)) is not None:
            yield run
