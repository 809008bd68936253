"""Wake parked dependents whose upstreams have ended.

They are checked when an upstream ends on this node, when this node plans a parked occurrence, and when a claim is
parked at its gate. A sweep checks all parked occurrences every few seconds.
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
_MOST_READ_SINGLY = 8
"""Up to so many occurrences are read one by one; for more, all parked ones are read in pages."""
EARLIEST = datetime.min.replace(tzinfo=UTC)


class Ended(NamedTuple):
    """A nominal time of a job has ended."""

    job: str
    at: datetime


class Decided(NamedTuple):
    """Nominal times of a job were decided without an occurrence (skipped or missed)."""

    job: str


class Planned(NamedTuple):
    """An occurrence was planned as parked: its upstreams may be over already."""

    job: str
    at: datetime


class ParkedAtGate(NamedTuple):
    """A claim was parked at its gate: its upstreams may have ended meanwhile."""

    sleeper: Sleeper


class _Graph(NamedTuple):
    """The edges between jobs; replaced as a whole, because several threads read it.

    Attributes:
        edges: the definitions of dependent jobs, by name.
        downstream: by job, the names of its direct dependents.
    """

    edges: Mapping[str, JobSpec]
    downstream: Mapping[str, frozenset[str]]

    def with_edges(self, specs: Collection[JobSpec]) -> _Graph:
        """Return the graph with these definitions added."""
        pairs = [(rule.job, spec.name) for spec in specs if spec.after is not None for rule in spec.after.upstreams]
        return _Graph({**self.edges, **{spec.name: spec for spec in specs}}, self.downstream).with_pairs(pairs)

    def with_pairs(self, pairs: Iterable[tuple[str, str]]) -> _Graph:
        """Return the graph with pairs of an upstream and a dependent added."""
        downstream = dict(self.downstream)
        for upstream, name in pairs:
            downstream[upstream] = downstream.get(upstream, frozenset()) | {name}
        return self._replace(downstream=downstream)


class UpstreamWaker(Waker):
    """Wakes parked dependents whose upstreams are over."""

    on = PARKED_ON

    def __init__(self, host: Host) -> None:
        self._registry = host.registry
        self._graph = _Graph({}, {})
        self._changing = threading.Lock()
        self._known = 0
        """How many functions of the registry are in the graph."""
        self._parked = False
        """Whether the last look showed parked occurrences."""

    # --- the graph, as known here -------------------------------------------------------------------------------------

    def learn_view(self, view: View) -> None:
        """Note which jobs come after others, and whether anything is parked."""
        self._parked = view.parked
        edges = self._graph.edges
        new_specs = [
            job.spec for job in view.jobs if job.spec.after is not None and edges.get(job.spec.name) is not job.spec
        ]
        if new_specs:
            with self._changing:
                self._graph = self._graph.with_edges(new_specs)

    def has_downstream(self, job: str) -> bool:
        """Whether any job is known to depend on ``job``: from this program's code, a look, or the last sweep.

        Dependents that are not known here are woken by a sweep.
        """
        if self._known != len(self._registry):  # called at each end of a run, so computed only after a change
            with self._changing:
                self._graph = self._from_code(self._graph)
        return job in self._graph.downstream

    def _from_code(self, graph: _Graph) -> _Graph:
        """Return the graph with the edges from this program's code added."""
        registry = dict(self._registry)
        self._known = len(registry)
        results_by_name = {name: registered.part_of(UpstreamResults) for name, registered in registry.items()}
        return graph.with_pairs(
            (upstream, name)
            for name, results in results_by_name.items()
            if results is not None
            for upstream in results.types
        )

    def _read_edges(self, store: Store) -> Mapping[str, JobSpec]:
        """Read the edges from the store, and rebuild the graph."""
        specs = list(every_edge(store))
        with self._changing:
            self._graph = self._from_code(_Graph({}, {}).with_edges(specs))
            return self._graph.edges

    def _edges_of(self, store: Store, jobs: Collection[str]) -> Mapping[str, JobSpec]:
        edges = self._graph.edges
        return edges if edges.keys() >= {*jobs} else self._read_edges(store)

    # --- what triggers a check ----------------------------------------------------------------------------------------

    def trigger_of_end(self, claim: Claim, then: Then) -> Hashable | None:
        """Return the nominal time that has ended, if it has dependents, or the claim that was parked."""
        if isinstance(then, Parked):
            return ParkedAtGate(sleeper_of(claim)) if then.on == PARKED_ON else None
        if isinstance(then, Final) and claim.scheduled_for is not None and self.has_downstream(claim.job):
            return Ended(claim.job, claim.scheduled_for)
        return None

    def triggers_of_plans(self, plans: Sequence[Plan]) -> Iterable[Hashable]:
        """Return the occurrences planned as parked, and the jobs with times that were decided without an occurrence.

        Whoever ended the upstreams may have looked before the parked occurrence existed, so it is checked here. Later
        ends find it. A time that was decided without an occurrence has no run whose end would trigger a check.
        """
        for plan in plans:
            parked = (occurrence for occurrence in plan.occurrences if occurrence.parked_on == PARKED_ON)
            yield from (Planned(plan.job, occurrence.scheduled_for) for occurrence in parked)
            if plan.verdicts and self.has_downstream(plan.job):
                yield Decided(plan.job)

    def find_wakeable(self, store: Store, triggers: dict[Hashable, None]) -> Collection[int]:
        """Return occurrences to wake: first for ended upstreams, then of new plans, then a few that were parked."""
        ended = [trigger for trigger in triggers if isinstance(trigger, Ended)]
        decided = [trigger for trigger in triggers if isinstance(trigger, Decided)]
        planned = [trigger for trigger in triggers if isinstance(trigger, Planned)]
        parked_claims = [trigger for trigger in triggers if isinstance(trigger, ParkedAtGate)]
        if ended or decided:
            _remove_triggers(triggers, [*ended, *decided])
            return self._find_downstream(store, ended, {trigger.job for trigger in decided})
        if planned:
            _remove_triggers(triggers, planned)
            return self._among_planned(store, planned)
        if not self._parked:
            # The other nodes may sleep for minutes, and if this node dies no other knows that anything is parked.
            store.notify()
            self._parked = True
        checked = parked_claims[:_MOST_READ_SINGLY]
        _remove_triggers(triggers, checked)
        parked = [trigger.sleeper for trigger in checked]
        return _find_free(Gates(store), self._edges_of(store, {sleeper.job for sleeper in parked}), parked)

    def start_sweep(self, store: Store) -> Callable[[Sequence[Sleeper]], Collection[int]]:
        """Return the function that checks a page of parked occurrences."""
        gates, edges = Gates(store), self._read_edges(store)

        def find_in_page(page: Sequence[Sleeper]) -> Collection[int]:
            return [*_find_free(gates, edges, page), *_without_upstreams(store, edges, page)]

        return find_in_page

    # --- checking ---------------------------------------------------------------------------------------------------

    def _find_downstream(self, store: Store, ended: Collection[Ended], decided: Collection[str]) -> Collection[int]:
        """Return the parked dependents that may go on.

        They come after a time in ``ended``, or after a job in ``decided``, which decided times without an occurrence.
        """
        downstream = self._graph.downstream
        names = {name for job in {*decided, *(end.job for end in ended)} for name in downstream.get(job, ())}
        edges = self._edges_of(store, names)
        affected = [
            (name, rule, end.at)
            for name in names & edges.keys()
            if (after := edges[name].after) is not None
            for rule in after.upstreams
            for end in ended
            if rule.job == end.job
        ]
        same_time = {(name, at) for name, rule, at in affected if rule.which == "same"}
        any_time = {name for name, rule, _ in affected if rule.which != "same"}
        any_time |= {name for job in decided for name in downstream.get(job, ()) if name in edges}
        gates = Gates(store)
        if not any_time:
            return _find_free(gates, edges, _parked_at(store, same_time), ended)
        free: list[int] = []
        for page in _read_pages(store):
            candidates = [
                sleeper
                for sleeper in page
                if sleeper.job in any_time or (sleeper.job, sleeper.scheduled_for) in same_time
            ]
            free += _find_free(gates, edges, candidates, ended)
        return free

    def _among_planned(self, store: Store, planned: Collection[Planned]) -> Collection[int]:
        """Return the occurrences planned here that need not wait, because their upstreams have a verdict."""
        edges = self._edges_of(store, {plan.job for plan in planned})
        gates = Gates(store, now=EARLIEST)  # no time limit applies: they have not waited yet
        sleepers = [
            (edges[plan.job], Sleeper(0, plan.job, PARKED_ON, plan.at, EARLIEST))
            for plan in planned
            if plan.job in edges
        ]
        gates.read_upstreams(sleepers)
        ready = {
            (sleeper.job, sleeper.scheduled_for)
            for spec, sleeper in sleepers
            if sleeper.scheduled_for is not None and gates.decide_gate(spec, sleeper)[0].decision != "wait"
        }
        return [sleeper.id for sleeper in _parked_at(store, ready)] if ready else ()


def _remove_triggers(triggers: dict[Hashable, None], processed: Iterable[Hashable]) -> None:
    for trigger in processed:
        del triggers[trigger]


def _read_pages(store: Store, after: int = 0) -> Iterator[list[Sleeper]]:
    while page := store.parked(after=after, limit=_PAGE):
        yield [sleeper for sleeper in page if sleeper.on == PARKED_ON]
        if len(page) < _PAGE:
            return
        after = page[-1].id


def _parked_at(store: Store, times: Collection[tuple[str, datetime]]) -> list[Sleeper]:
    """Return the parked occurrences of some nominal times."""
    if len(times) > 1:
        first_page = store.parked(limit=_PAGE)
        if len(first_page) < _PAGE or len(times) > _MOST_READ_SINGLY:
            pages = _read_pages(store, first_page[-1].id) if len(first_page) == _PAGE else ()
            return [
                sleeper
                for page in (first_page, *pages)
                for sleeper in page
                if (sleeper.job, sleeper.scheduled_for) in times
            ]
    # The next link of a chain is found by a single read, however many others are parked.
    return [
        Sleeper(occurrence.id, occurrence.job, occurrence.parked_on, occurrence.scheduled_for, occurrence.created_at)
        for job, at in times
        for occurrence in store.occurrences(
            OccurrenceFilter(job=job, states=(State.PENDING,), scheduled_from=at, scheduled_until=at)
        )
        if occurrence.parked_on is not None
    ]


def _find_free(
    gates: Gates, edges: Mapping[str, JobSpec], parked: Sequence[Sleeper], ended: Collection[Ended] = ()
) -> list[int]:
    """Return the ids of the parked occurrences that can go on."""
    dependents = [
        (edges[sleeper.job], sleeper) for sleeper in parked if sleeper.on == PARKED_ON and sleeper.job in edges
    ]
    # If its only upstream has ended, the gate is not decided here: it is decided at the claim.
    ready = [sleeper.id for spec, sleeper in dependents if _only_after(spec, sleeper, ended)]
    other_dependents = [(spec, sleeper) for spec, sleeper in dependents if not _only_after(spec, sleeper, ended)]
    gates.read_upstreams(other_dependents)
    return ready + [
        sleeper.id for spec, sleeper in other_dependents if gates.decide_gate(spec, sleeper)[0].decision != "wait"
    ]


def _only_after(spec: JobSpec, sleeper: Sleeper, ended: Collection[tuple[str, datetime]]) -> bool:
    """Whether an occurrence has a single upstream time, and that has ended."""
    if spec.after is None or len(spec.after.upstreams) != 1 or sleeper.scheduled_for is None:
        return False
    [rule] = spec.after.upstreams
    return rule.which == "same" and (rule.job, sleeper.scheduled_for) in ended


def _without_upstreams(store: Store, edges: Mapping[str, JobSpec], parked: Sequence[Sleeper]) -> list[int]:
    """Return the parked occurrences of jobs whose new definition has no upstreams."""
    orphans = [sleeper for sleeper in parked if sleeper.job not in edges]
    declared = {
        job: (view := store.job(job)) and view.retired_at is None for job in {sleeper.job for sleeper in orphans}
    }
    return [sleeper.id for sleeper in orphans if declared[sleeper.job]]
