"""The graph of dependencies: jobs in layers from left to right, and their states at a nominal time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from cronsensus.model.gate import Rule, order_jobs, without_cycles
from cronsensus.model.occurrence import OccurrenceFilter
from cronsensus.stores.base import Store


@dataclass(frozen=True, slots=True)
class Graph:
    """Jobs with their upstreams.

    Attributes:
        layers: the jobs, each in a later layer than all of its upstreams.
        circles: cycles of jobs that would all wait for each other; their edges are left out.
    """

    rules: Mapping[str, Sequence[Rule]]
    layers: tuple[tuple[str, ...], ...]
    circles: tuple[tuple[str, ...], ...] = ()

    @property
    def jobs(self) -> list[str]:
        """All jobs, layer by layer."""
        return [job for layer in self.layers for job in layer]

    def first_jobs(self, count: int) -> Graph:
        """Return the graph of the first ``count`` jobs, from the left."""
        return graph_of(self.rules, set(self.jobs[:count]))

    def neighbours_of(self, job: str) -> Graph:
        """Return a job with its upstreams and downstreams, direct and indirect."""
        upstreams, downstreams = {job}, {job}
        for _ in self.layers:
            upstreams |= {rule.job for job_name in upstreams for rule in self.rules.get(job_name, ())}
            downstreams |= {
                job_name for job_name, rules in self.rules.items() if any(rule.job in downstreams for rule in rules)
            }
        kept = upstreams | downstreams
        return graph_of(self.rules, kept)


def graph_of(rules: Mapping[str, Sequence[Rule]], only: set[str] | None = None) -> Graph:
    """Return the graph of these dependencies; ``only``: of these jobs."""
    jobs = {*rules, *(rule.job for job_rules in rules.values() for rule in job_rules)}
    jobs = jobs if only is None else jobs & only
    rules, cycles = without_cycles(rules)
    kept_rules = {
        job: [rule for rule in job_rules if rule.job in jobs] for job, job_rules in rules.items() if job in jobs
    }
    depth: dict[str, int] = {}
    for job in order_jobs({job: kept_rules.get(job, ()) for job in jobs}):
        depth[job] = 1 + max((depth[rule.job] for rule in kept_rules.get(job, ())), default=-1)
    last_layer = max(depth.values(), default=-1)
    layers = (tuple(sorted(job for job in jobs if depth[job] == layer)) for layer in range(last_layer + 1))
    return Graph(kept_rules, tuple(layers), cycles)


@dataclass(frozen=True, slots=True)
class Standing:
    """What became of one nominal time of a job: the state, and the newest run, if there was one."""

    state: str
    run: int | None


def standings_at(store: Store, graph: Graph, at: datetime) -> dict[str, Standing]:
    """Return what became of each job's occurrence of a nominal time; jobs that have none are left out."""
    standings: dict[str, Standing] = {}
    for job in graph.jobs:
        of_time = OccurrenceFilter(job=job, scheduled_from=at, scheduled_until=at)
        if newest := store.occurrences(of_time, limit=1):
            standings[job] = Standing(str(newest[0].state), newest[0].id)
        elif ranges := store.ranges(job, since=at, until=at, limit=1):
            standings[job] = Standing(str(ranges[0].range.state), None)
    return standings


def states_at(store: Store, graph: Graph, at: datetime) -> dict[str, str]:
    """Return the states alone of ``standings_at``."""
    return {job: standing.state for job, standing in standings_at(store, graph, at).items()}


_COLOURS = {
    "succeeded": "#2e7d32", "failed": "#c62828", "skipped": "#757575", "running": "#1565c0", "pending": "#f9a825",
}  # fmt: skip


def write_dot(graph: Graph, states: Mapping[str, str]) -> str:
    """Return the graph in the language of Graphviz."""
    lines = ["digraph {", "    rankdir=LR", "    node [shape=box, style=rounded]"]
    for job in graph.jobs:
        state = states.get(job)
        text = job if state is None else f"{job}\n{state}"
        colour = f", color={_quoted(_COLOURS[state])}" if state in _COLOURS else ""
        lines.append(f"    {_quoted(job)} [label={_quoted(text)}{colour}]")
    for job, rules in graph.rules.items():
        for rule in rules:
            label = f" [label={_quoted(_label(rule))}]" if _label(rule) else ""
            lines.append(f"    {_quoted(rule.job)} -> {_quoted(job)}{label}")
    return "\n".join([*lines, "}"])


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _label(rule: Rule) -> str:
    return " ".join(word for word in (rule.when, rule.which) if word not in {"succeeded", "same"})


def write_mermaid(graph: Graph, states: Mapping[str, str]) -> str:
    """Return the graph as a diagram of Mermaid."""
    number = {job: f"j{index}" for index, job in enumerate(graph.jobs)}
    lines = ["flowchart LR"]
    for job, name in number.items():
        text = f"{job}<br/>{states[job]}" if job in states else job
        lines.append(f'    {name}["{text.replace(chr(34), "#quot;")}"]')
    for job, rules in graph.rules.items():
        for rule in rules:
            label = _label(rule)
            arrow = f"-- {label} -->" if label else "-->"
            lines.append(f"    {number[rule.job]} {arrow} {number[job]}")
    for job, state in states.items():
        if state in _COLOURS:
            lines.append(f"    style {number[job]} stroke:{_COLOURS[state]},stroke-width:3px")
    return "\n".join(lines)
