"""The page of dependencies: a night of them, drawn as SVG in layers from left to right."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from markupsafe import Markup, escape

from cronsensus.dashboard.language import Words
from cronsensus.insight.graph import Graph, Standing, standings_at
from cronsensus.insight.next_times import times_after
from cronsensus.insight.time_words import shorten
from cronsensus.model.gate import Rule
from cronsensus.model.glance import Glance, Past
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter
from cronsensus.stores.base import Store
from cronsensus.triggers import Trigger

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NIGHTS = 12
MOST_JOBS = 100
"""Jobs that are drawn; of a larger graph only its first part."""
_MOST_ROOTS = 5
_LONGEST_AGO = timedelta(days=366 * 50)
_SAMPLE = 5
"""Nominal times to come whose distance shows how far back the last nights lie."""
_WIDTH, _HEIGHT, _GAP_X, _GAP_Y, _EDGE, _LANE = 166, 46, 48, 14, 2, 10
Slot = str | tuple[str, str, int]
"""A job; or the part of an edge that passes a layer: its upstream, its dependent, the layer."""
_KINDS = {
    "succeeded": "ok", "failed": "fail", "missed": "miss", "running": "run", "pending": "wait", "skipped": "skip",
    "cancelled": "stop",
}  # fmt: skip

_ARROW = (
    '<marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerUnits="userSpaceOnUse" markerWidth="8" '
    'markerHeight="8" orient="auto"><path class="g-head" d="M0 0L8 4L0 8z"/></marker>'
)


@dataclass(frozen=True, slots=True)
class GraphPage:
    """What the page shows.

    Attributes:
        graph: the jobs that are drawn.
        at: the nominal time whose states are shown; ``None``: nothing has run yet.
        nights: the last nights, the earliest first.
        standing: what became of each job at that time; jobs that have no such time are left out.
        total: how many jobs have dependencies.
    """

    graph: Graph
    at: datetime | None
    nights: tuple[datetime, ...]
    standing: Mapping[str, Standing]
    total: int


def graph_page(store: Store, full_graph: Graph, job: str, at: datetime | None) -> GraphPage:
    """Return a night of a job with its upstreams and dependents; of all jobs if no job is named.

    Args:
        store: where the runs are.
        full_graph: the graph of all jobs that have dependencies.
        job: the job whose part is drawn; an unknown name draws all jobs.
        at: the nominal time whose states are shown; ``None``: the newest.
    """
    graph = full_graph.neighbours_of(job) if job in full_graph.jobs else full_graph
    if len(graph.jobs) > MOST_JOBS:
        graph = graph.first_jobs(MOST_JOBS)
    nights: set[datetime] = {at} if at is not None else set()
    for root in graph.layers[0][:_MOST_ROOTS] if graph.layers else ():
        view = store.job(root)
        nights |= _nights_of(store, root, None if view is None else view.spec.trigger)
    last_nights = sorted(nights)[-NIGHTS:]
    if at is not None and at not in last_nights:
        last_nights = [at, *last_nights[1:]]
    at = at or (last_nights[-1] if last_nights else None)
    standing = {} if at is None else standings_at(store, graph, at)
    return GraphPage(graph, at, tuple(last_nights), standing, len(full_graph.jobs))


def _nights_of(store: Store, job: str, trigger: Trigger | None) -> set[datetime]:
    """Return the last nominal times of a job that have runs, however many runs without a nominal time came since."""
    now = store.now()
    following = list(times_after(trigger, now, _SAMPLE))
    runs: Sequence[Occurrence | Glance] = ()
    if following:  # a bound: without one all nominal times of a job that runs each second would be read
        since = now - min(NIGHTS * (following[-1] - now), _LONGEST_AGO)
        runs = store.occurrences(OccurrenceFilter(job=job, scheduled_from=since), limit=2 * NIGHTS)
    if not runs:  # paused for long, or run by hand alone
        runs = store.last_of([job], limit=2 * NIGHTS).get(job, Past()).glances
    return {run.scheduled_for for run in runs if run.scheduled_for is not None}


def graph_svg(page: GraphPage, t: Words, base: str) -> Markup:
    """Return the drawing. Each job is a link, and shows its state in words and by a shape."""
    places: dict[Slot, tuple[int, int]] = {}
    height = 0
    for layer, slots in enumerate(arrange_columns(page.graph)):
        y = _EDGE
        for slot in slots:
            places[slot] = (layer * (_WIDTH + _GAP_X) + _EDGE, y)
            y += (_HEIGHT if isinstance(slot, str) else _LANE) + _GAP_Y
        height = max(height, y - _GAP_Y + _EDGE)
    width = len(page.graph.layers) * (_WIDTH + _GAP_X) - _GAP_X + 2 * _EDGE
    label = escape(t("What comes after what"))
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    parts = [f'<svg class="graph" {size} role="group" aria-label="{label}"><defs>{_ARROW}</defs>']
    for job, rules in page.graph.rules.items():
        parts += [_edge(places, rule, job, t) for rule in rules]
    parts += [_node(job, places[job], page.standing.get(job), t, base) for job in page.graph.jobs]
    return Markup("".join([*parts, "</svg>"]))  # noqa: S704 - all that is not ours is escaped


def arrange_columns(graph: Graph) -> list[list[Slot]]:
    """Return the slots of each layer, from the top: jobs, and lanes for edges that pass the layer.

    Jobs with the same upstreams are placed together, near them: so fewer edges cross, and none passes behind a job.
    """
    depth = {job: layer for layer, jobs in enumerate(graph.layers) for job in jobs}
    columns: list[list[Slot]] = [list(jobs) for jobs in graph.layers]
    before: dict[Slot, list[Slot]] = {}
    for job, rules in graph.rules.items():
        for rule in rules:
            previous: Slot = rule.job
            for layer in range(depth[rule.job] + 1, depth[job]):
                lane = (rule.job, job, layer)
                columns[layer].append(lane)
                before[lane] = [previous]
                previous = lane
            before.setdefault(job, []).append(previous)
    row: dict[Slot, float] = {}
    for slots in columns:
        slots.sort(
            key=lambda slot: (
                sum(row[upstream] for upstream in before.get(slot, ())) / max(1, len(before.get(slot, ()))),
                str(slot),
            )
        )
        row |= {slot: number for number, slot in enumerate(slots)}
    return columns


def _edge(places: Mapping[Slot, tuple[int, int]], rule: Rule, job: str, t: Words) -> str:
    lanes = sorted((slot for slot in places if slot[:2] == (rule.job, job)), key=lambda slot: places[slot])
    x, y = places[rule.job][0] + _WIDTH, places[rule.job][1] + _HEIGHT // 2
    path = f"M{x} {y}"
    for slot in (*lanes, job):
        is_lane = not isinstance(slot, str)
        x2, y2 = places[slot][0] - (0 if is_lane else 2), places[slot][1] + (_LANE if is_lane else _HEIGHT) // 2
        path += f"C{x + _GAP_X // 2} {y} {x2 - _GAP_X // 2} {y2} {x2} {y2}" + (f"h{_WIDTH}" if is_lane else "")
        x, y = x2 + _WIDTH, y2
    text = t("{0} comes after {1}", job, rule.job)
    rule_text = rule_words(rule, t)
    css_class = " g-other" if rule_text else ""
    title = escape(text + (f" ({rule_text})" if rule_text else ""))
    return f'<path class="g-edge{css_class}" d="{path}" marker-end="url(#arrow)"><title>{title}</title></path>'


def _node(job: str, place: tuple[int, int], standing: Standing | None, t: Words, base: str) -> str:
    x, y = place
    kind = "none" if standing is None else _KINDS[standing.state]
    link = f"{base}/job?{urlencode({'name': job})}"
    if standing is not None and standing.run is not None:
        link = f"{base}/runs/{standing.run}"
    text = t("no such time") if standing is None else t(standing.state)
    icon = "" if standing is None else (
        f'<svg x="{x + 10}" y="{y + 23}" width="16" height="16" class="{kind}" aria-hidden="true">'
        f'<use href="#i-{kind}"/></svg>'
    )  # fmt: skip
    return (
        f'<a href="{escape(link)}"><title>{escape(job)}: {escape(text)}</title>'
        f'<rect class="g-node g-{kind}" x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="6"/>'
        f'<text class="g-job" x="{x + 10}" y="{y + 18}">{escape(shorten(job, 20))}</text>{icon}'
        f'<text class="g-state" x="{x + (10 if standing is None else 31)}" y="{y + 36}">{escape(text)}</text></a>'
    )


def rule_words(rule: Rule, t: Words) -> str:
    """Return the parts of a rule that differ from the default, in words."""
    return ", ".join(t(word) for word in (rule.when, rule.which) if word not in {"succeeded", "same"})


def night_link(at: datetime, job: str) -> str:
    """Return the query of the page for a night."""
    return urlencode({"at": at.isoformat().replace("+00:00", "Z"), **({"job": job} if job else {})})
