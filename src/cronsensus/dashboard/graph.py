"""The page of what comes after what: one night of it, drawn as SVG in layers from left to right."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from markupsafe import Markup, escape

from cronsensus.dashboard.language import Words
from cronsensus.insight.graph import Graph, Standing, standings_at
from cronsensus.insight.words import shorten
from cronsensus.model.gate import Rule
from cronsensus.model.occurrence import OccurrenceFilter
from cronsensus.stores.base import Store

if TYPE_CHECKING:
    from collections.abc import Mapping

NIGHTS = 12
MOST_JOBS = 100
"""Jobs that are drawn; of a larger graph one part is."""
_ROOTS = 5
_WIDTH, _HEIGHT, _GAP_X, _GAP_Y, _EDGE = 190, 46, 70, 14, 2
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
        nights: the last ones, the earliest first.
        standing: what became of each job at that time; jobs that have no such time are left out.
        total: how many jobs come after others, or before.
    """

    graph: Graph
    at: datetime | None
    nights: tuple[datetime, ...]
    standing: Mapping[str, Standing]
    total: int


def graph_page(store: Store, whole: Graph, job: str, at: datetime | None) -> GraphPage:
    """Return one night of what a job comes after and what comes after it; of all jobs if none is named."""
    graph = whole.around(job) if job in whole.jobs else whole
    if len(graph.jobs) > MOST_JOBS:
        graph = graph.first(MOST_JOBS)
    nights: set[datetime] = {at} if at is not None else set()
    for root in graph.layers[0][:_ROOTS] if graph.layers else ():
        newest = store.occurrences(OccurrenceFilter(job=root), limit=2 * NIGHTS)
        nights |= {one.scheduled_for for one in newest if one.scheduled_for is not None}
    last = sorted(nights)[-NIGHTS:]
    if at is not None and at not in last:
        last = [at, *last[1:]]
    at = at or (last[-1] if last else None)
    standing = {} if at is None else standings_at(store, graph, at)
    return GraphPage(graph, at, tuple(last), standing, len(whole.jobs))


def graph_svg(page: GraphPage, t: Words, base: str) -> Markup:
    """Return the drawing; each job is a link, and says in words and by a shape what became of it."""
    place = {
        job: (layer * (_WIDTH + _GAP_X) + _EDGE, row * (_HEIGHT + _GAP_Y) + _EDGE)
        for layer, jobs in enumerate(page.graph.layers)
        for row, job in enumerate(jobs)
    }
    width = len(page.graph.layers) * (_WIDTH + _GAP_X) - _GAP_X + 2 * _EDGE
    height = max((len(jobs) for jobs in page.graph.layers), default=0) * (_HEIGHT + _GAP_Y) - _GAP_Y + 2 * _EDGE
    label = escape(t("What comes after what"))
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    parts = [f'<svg class="graph" {size} role="group" aria-label="{label}"><defs>{_ARROW}</defs>']
    for job, rules in page.graph.rules.items():
        parts += [_edge(place[rule.job], place[job], rule, job, t) for rule in rules]
    parts += [_node(job, place[job], page.standing.get(job), t, base) for job in page.graph.jobs]
    return Markup("".join([*parts, "</svg>"]))  # noqa: S704 - all that is not ours is escaped


def _edge(begin: tuple[int, int], end: tuple[int, int], rule: Rule, job: str, t: Words) -> str:
    x1, y1 = begin[0] + _WIDTH, begin[1] + _HEIGHT // 2
    x2, y2 = end[0] - 2, end[1] + _HEIGHT // 2
    middle = x2 - _GAP_X // 2
    said = t("{0} comes after {1}", job, rule.job)
    words = rule_words(rule, t)
    other = " g-other" if words else ""
    # Over the layers between the line keeps to its height, and turns in the last gap.
    path = f"M{x1} {y1}C{x1 + _GAP_X // 2} {y1} {middle} {y2} {x2} {y2}"
    title = escape(said + (f" ({words})" if words else ""))
    return f'<path class="g-edge{other}" d="{path}" marker-end="url(#arrow)"><title>{title}</title></path>'


def _node(job: str, place: tuple[int, int], standing: Standing | None, t: Words, base: str) -> str:
    x, y = place
    kind = "none" if standing is None else _KINDS[standing.state]
    link = f"{base}/job?{urlencode({'name': job})}"
    if standing is not None and standing.run is not None:
        link = f"{base}/runs/{standing.run}"
    said = t("no such time") if standing is None else t(standing.state)
    icon = "" if standing is None else (
        f'<svg x="{x + 10}" y="{y + 23}" width="16" height="16" class="{kind}" aria-hidden="true">'
        f'<use href="#i-{kind}"/></svg>'
    )  # fmt: skip
    return (
        f'<a href="{escape(link)}"><title>{escape(job)}: {escape(said)}</title>'
        f'<rect class="g-node g-{kind}" x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="6"/>'
        f'<text class="g-job" x="{x + 10}" y="{y + 18}">{escape(shorten(job, 24))}</text>{icon}'
        f'<text class="g-state" x="{x + (10 if standing is None else 31)}" y="{y + 36}">{escape(said)}</text></a>'
    )


def rule_words(rule: Rule, t: Words) -> str:
    """Return what is unusual of a rule, in words."""
    return ", ".join(t(word) for word in (rule.when, rule.which) if word not in {"succeeded", "same"})


def night_link(at: datetime, job: str) -> str:
    """Return the query of the page for one night."""
    return urlencode({"at": at.isoformat().replace("+00:00", "Z"), **({"job": job} if job else {})})
