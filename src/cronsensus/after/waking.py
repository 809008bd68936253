"""Which runs that come after others can go on?

Looked at when an upstream ends on this node, when what is parked was planned here, when something is parked at its
gate, and now and then for all that is parked.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from cronsensus.after.admission import PARKED_ON, sleeper_of
from cronsensus.after.upstreams import Gates, UpstreamResults
from cronsensus.model.ends import Final, Parked, Then
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Claim, OccurrenceFilter
from cronsensus.model.parking import Sleeper
from cronsensus.model.plan import Plan
from cronsensus.model.states import State
from cronsensus.node.hooks import Host, Waker
from cronsensus.stores.base import Store
from cronsensus.stores.pages import every_edge
from cronsensus.stores.values import View

_PAGE = 200
_SINGLY = 8
"""Up to so many that may go on are read one by one; more by a look at all that is parked."""
EARLIEST = datetime.min.replace(tzinfo=UTC)


class Ended(NamedTuple):
    """A nominal time of a job is over."""

    job: str
    at: datetime


class Decided(NamedTuple):
    """Times of a job were decided without an occurrence."""

    job: str


class Planned(NamedTuple):
    """A nominal time of a job was planned parked: what it waits for may be over already."""

    job: str
    at: datetime


class Held(NamedTuple):
    """A claim was parked at its gate: what it waits for may have ended meanwhile."""

    sleeper: Sleeper


class _Graph(NamedTuple):
    """Which jobs come after others; replaced as a whole, because several threads read it.

    Attributes:
        edges: the definitions of those that do, by name.
        downstream: by job, the names of those that come right after it.
    """

    edges: Mapping[str, JobSpec]
    downstream: Mapping[str, frozenset[str]]

    def with_edges(self, specs: Collection[JobSpec]) -> _Graph:
        """Return it with these definitions."""
        pairs = [(rule.job, one.name) for one in specs if one.after is not None for rule in one.after.upstreams]
        return _Graph({**self.edges, **{one.name: one for one in specs}}, self.downstream).with_pairs(pairs)

    def with_pairs(self, pairs: Iterable[tuple[str, str]]) -> _Graph:
        """Return it with upstreams, and what comes right after each."""
        downstream = dict(self.downstream)
        for upstream, name in pairs:
            downstream[upstream] = downstream.get(upstream, frozenset()) | {name}
        return self._replace(downstream=downstream)


class UpstreamWaker(Waker):
    """Wakes what is parked behind upstreams that are over."""

    on = PARKED_ON

    def __init__(self, host: Host) -> None:
        self._registry = host.registry
        self._graph = _Graph({}, {})
        self._changing = threading.Lock()
        self._known = 0
        """How many functions of the registry the graph knows of."""
        self._parked = False
        """Whether the last look showed anything that is parked."""

    # --- what is known of the graph ----------------------------------------------------------------------------------

    def learn_view(self, view: View) -> None:
        """Note which jobs come after others, and whether anything is parked."""
        self._parked = view.parked
        edges = self._graph.edges
        new = [one.spec for one in view.jobs if one.spec.after is not None and edges.get(one.spec.name) is not one.spec]
        if new:
            with self._changing:
                self._graph = self._graph.with_edges(new)

    def has_downstream(self, job: str) -> bool:
        """Whether any job is known to come after that one: from this program's code, a look, or the last sweep.

        Of one that is not known, what is parked is woken by a sweep.
        """
        if self._known != len(self._registry):  # asked at each end, so worked out when one is added
            with self._changing:
                self._graph = self._from_code(self._graph)
        return job in self._graph.downstream

    def _from_code(self, graph: _Graph) -> _Graph:
        """Return a graph with what this program's code says as well."""
        registry = dict(self._registry)
        self._known = len(registry)
        found = {name: one.part_of(UpstreamResults) for name, one in registry.items()}
        return graph.with_pairs(
            (upstream, name) for name, results in found.items() if results is not None for upstream in results.types
        )

    def _read_edges(self, store: Store) -> Mapping[str, JobSpec]:
        """Return which jobs come after others, as the store says now."""
        found = list(every_edge(store))
        with self._changing:
            self._graph = self._from_code(_Graph({}, {}).with_edges(found))
            return self._graph.edges

    def _edges_of(self, store: Store, jobs: Collection[str]) -> Mapping[str, JobSpec]:
        edges = self._graph.edges
        return edges if edges.keys() >= {*jobs} else self._read_edges(store)

    # --- what is to be looked at -------------------------------------------------------------------------------------

    def trigger_of_end(self, claim: Claim, then: Then) -> Hashable | None:
        """Return the nominal time that is over, if anything comes after it, or the claim that was parked."""
        if isinstance(then, Parked):
            return Held(sleeper_of(claim)) if then.on == PARKED_ON else None
        if isinstance(then, Final) and claim.scheduled_for is not None and self.has_downstream(claim.job):
            return Ended(claim.job, claim.scheduled_for)
        return None

    def triggers_of_plans(self, plans: Sequence[Plan]) -> Iterable[Hashable]:
        """Return what was planned parked, and the jobs of which times were decided without an occurrence.

        Who ended what it waits for may have looked before it was there. Of what is made after this look, whoever ends
        what it waits for finds it. And nobody ends a time that was decided without an occurrence.
        """
        for plan in plans:
            yield from (Planned(plan.job, one.scheduled_for) for one in plan.occurrences if one.parked_on == PARKED_ON)
            if plan.verdicts and self.has_downstream(plan.job):
                yield Decided(plan.job)

    def find_wakeable(self, store: Store, told: dict[Hashable, None]) -> Collection[int]:
        """Return whom to wake: behind what has ended first, then of what was planned, then of some that were parked."""
        ended = [one for one in told if isinstance(one, Ended)]
        decided = [one for one in told if isinstance(one, Decided)]
        planned = [one for one in told if isinstance(one, Planned)]
        held = [one for one in told if isinstance(one, Held)]
        if ended or decided:
            _remove_told(told, [*ended, *decided])
            return self._find_downstream(store, ended, {one.job for one in decided})
        if planned:
            _remove_told(told, planned)
            return self._among_planned(store, planned)
        if not self._parked:
            # The others may sleep for minutes, and if this node dies nobody else knows that anything is parked.
            store.notify()
            self._parked = True
        some = held[:_SINGLY]
        _remove_told(told, some)
        parked = [one.sleeper for one in some]
        return _find_free(Gates(store), self._edges_of(store, {one.job for one in parked}), parked)

    def start_sweep(self, store: Store) -> Callable[[Sequence[Sleeper]], Collection[int]]:
        """Return what looks at a page of what is parked behind upstreams."""
        gates, edges = Gates(store), self._read_edges(store)

        def find_in_page(page: Sequence[Sleeper]) -> Collection[int]:
            return [*_find_free(gates, edges, page), *_behind_nothing(store, edges, page)]

        return find_in_page

    # --- who may go on? ----------------------------------------------------------------------------------------------

    def _find_downstream(self, store: Store, ended: Collection[Ended], decided: Collection[str]) -> Collection[int]:
        """Return what may go on of what is parked behind times that are over, or behind jobs that have decided some."""
        downstream = self._graph.downstream
        names = {name for job in {*decided, *(one.job for one in ended)} for name in downstream.get(job, ())}
        edges = self._edges_of(store, names)
        behind = [
            (name, rule, one.at)
            for name in names & edges.keys()
            if (after := edges[name].after) is not None
            for rule in after.upstreams
            for one in ended
            if rule.job == one.job
        ]
        same = {(name, at) for name, rule, at in behind if rule.which == "same"}
        others = {name for name, rule, _ in behind if rule.which != "same"}
        others |= {name for job in decided for name in downstream.get(job, ()) if name in edges}
        gates = Gates(store)
        if not others:
            return _find_free(gates, edges, _parked_at(store, same), ended)
        found: list[int] = []
        for page in _read_pages(store):
            meant = [one for one in page if one.job in others or (one.job, one.scheduled_for) in same]
            found += _find_free(gates, edges, meant, ended)
        return found

    def _among_planned(self, store: Store, planned: Collection[Planned]) -> Collection[int]:
        """Return what waits for nothing of what was planned here: all that it comes after is over, or skipped."""
        edges = self._edges_of(store, {one.job for one in planned})
        gates = Gates(store, now=EARLIEST)  # whenever: they have waited for no time yet
        asked = [
            (edges[one.job], Sleeper(0, one.job, PARKED_ON, one.at, EARLIEST)) for one in planned if one.job in edges
        ]
        gates.read_upstreams(asked)
        ready = {
            (one.job, one.scheduled_for)
            for spec, one in asked
            if one.scheduled_for is not None and gates.decide_gate(spec, one)[0].decision != "wait"
        }
        return [one.id for one in _parked_at(store, ready)] if ready else ()


def _remove_told(told: dict[Hashable, None], what: Iterable[Hashable]) -> None:
    for one in what:
        del told[one]


def _read_pages(store: Store, last: int = 0) -> Iterator[list[Sleeper]]:
    while page := store.parked(after=last, limit=_PAGE):
        yield [one for one in page if one.on == PARKED_ON]
        if len(page) < _PAGE:
            return
        last = page[-1].id


def _parked_at(store: Store, times: Collection[tuple[str, datetime]]) -> list[Sleeper]:
    """Return what is parked of some nominal times."""
    if len(times) > 1:
        first = store.parked(limit=_PAGE)
        if len(first) < _PAGE or len(times) > _SINGLY:
            rest = _read_pages(store, first[-1].id) if len(first) == _PAGE else ()
            return [one for page in (first, *rest) for one in page if (one.job, one.scheduled_for) in times]
    # However many others are parked, the next link of a chain is found by one read.
    return [
        Sleeper(one.id, one.job, one.parked_on, one.scheduled_for, one.created_at)
        for job, at in times
        for one in store.occurrences(
            OccurrenceFilter(job=job, states=(State.PENDING,), scheduled_from=at, scheduled_until=at)
        )
        if one.parked_on is not None
    ]


def _find_free(
    gates: Gates, edges: Mapping[str, JobSpec], parked: Sequence[Sleeper], ended: Collection[Ended] = ()
) -> list[int]:
    """Return what of this waits for nothing any more."""
    behind = [(edges[one.job], one) for one in parked if one.on == PARKED_ON and one.job in edges]
    # What waits for nothing else is not asked about: its gate is, at its claim.
    ready = [one.id for spec, one in behind if _only_after(spec, one, ended)]
    asked = [(spec, one) for spec, one in behind if not _only_after(spec, one, ended)]
    gates.read_upstreams(asked)
    return ready + [one.id for spec, one in asked if gates.decide_gate(spec, one)[0].decision != "wait"]


def _only_after(spec: JobSpec, one: Sleeper, ended: Collection[tuple[str, datetime]]) -> bool:
    """Whether all that it comes after is one nominal time, and that is over."""
    if spec.after is None or len(spec.after.upstreams) != 1 or one.scheduled_for is None:
        return False
    [rule] = spec.after.upstreams
    return rule.which == "same" and (rule.job, one.scheduled_for) in ended


def _behind_nothing(store: Store, edges: Mapping[str, JobSpec], parked: Sequence[Sleeper]) -> list[int]:
    """Return what comes after nothing any more: its job was defined anew."""
    left = [one for one in parked if one.job not in edges]
    living = {job: (view := store.job(job)) and view.retired_at is None for job in {one.job for one in left}}
    return [one.id for one in left if living[one.job]]
