"""``cronsensus graph``: the dependencies between jobs, and their states at a nominal time."""

from __future__ import annotations

from datetime import datetime

import click

from cronsensus.cli.app import complete_app, load_application, opened_store
from cronsensus.cli.errors import CommandError
from cronsensus.cli.group import Command, Invocation
from cronsensus.cli.output import Cell, Output, print_message, style_state
from cronsensus.cli.zones import default_zone
from cronsensus.insight.clock_changes import zone_of
from cronsensus.insight.graph import Graph, graph_of, states_at, write_dot, write_mermaid
from cronsensus.insight.time_words import exact_time, read_time
from cronsensus.stores.pages import every_edge, rules_of


@click.command(cls=Command)
@click.argument("names", nargs=-1, metavar="[APP] [JOB]", shell_complete=complete_app)
@click.option("--job", metavar="JOB", help="Only what it comes after, and what comes after it: as JOB alone.")
@click.option("--at", "time", metavar="TIME", help="With the states of this nominal time; 2h means two hours ago.")
@click.option("--mermaid", "as_mermaid", is_flag=True, help="As a diagram for Mermaid, which GitHub draws.")
@click.option("--dot", "as_dot", is_flag=True, help="In the language of Graphviz: … --dot | dot -Tsvg.")
def graph(*, names: tuple[str, ...], job: str | None, time: str | None, as_mermaid: bool, as_dot: bool) -> None:
    """Show which job comes after which.

    cronsensus graph myapp:scheduler
    cronsensus graph myapp:scheduler load --at 2026-11-27T01:00:00Z
    cronsensus graph load --mermaid
    cronsensus graph --dot
    """
    apps, jobs = [name for name in names if ":" in name], [name for name in names if ":" not in name]
    if len(apps) > 1 or len(jobs) > 1:
        raise CommandError(f"{' '.join(names)}: one application and one job at most", then="cronsensus graph --help")
    if apps:
        Invocation.current().app = apps[0]
    job = jobs[0] if jobs else job
    output, code = Output.current(), load_application().scheduler if Invocation.current().app else None
    if code is not None:
        specs = code.declared.specs()
    else:
        with opened_store() as store:
            specs = list(every_edge(store))
    shown_graph = graph_of(rules_of(specs))
    for cycle in shown_graph.circles:
        print_message(f"{' → '.join((cycle[-1], *cycle))} is a circle, so each waits for the last: cronsensus doctor")
    if job is not None:
        if job not in shown_graph.jobs:
            raise CommandError(f"{job!r} comes after no job, and none after it", then="cronsensus graph")
        shown_graph = shown_graph.neighbours_of(job)
    states: dict[str, str] = {}
    at: datetime | None = None
    zone = zone_of(next((spec.trigger for spec in specs if spec.trigger), None), default_zone())
    if time is not None:
        with opened_store() as store:
            at = read_time(time, store.now(), tz=zone, what="--at")
            states = states_at(store, shown_graph, at)
            if shown_graph.jobs and not any(states.values()):
                print_message(
                    f"none of these jobs has the nominal time {exact_time(at, zone)}; see: cronsensus "
                    f"ledger {shown_graph.jobs[0]}"
                )
    rows = [
        {
            "job": job_name,
            "after": [
                {"job": rule.job, "when": rule.when, "which": rule.which}
                for rule in shown_graph.rules.get(job_name, ())
            ],
            "state": states.get(job_name),
        }
        for job_name in shown_graph.jobs
    ]
    if output.printed_json({"at": at, "jobs": rows}):
        return
    if as_mermaid or as_dot:
        output.line(write_mermaid(shown_graph, states) if as_mermaid else write_dot(shown_graph, states))
        return
    if at is not None:
        output.heading(f"for {exact_time(at, zone)}")
    _draw(output, shown_graph, states)


def _draw(output: Output, graph: Graph, states: dict[str, str]) -> None:
    if not graph.jobs:
        output.line("no job comes after another; write @scheduler.job(after=[…])")
    for layer, names in enumerate(graph.layers):
        for name in names:
            rules = graph.rules.get(name, ())
            upstreams = ", ".join(
                rule.job
                + ("" if rule.when == "succeeded" else f" ({rule.when})")
                + ("" if rule.which == "same" else f" ({rule.which})")
                for rule in rules
            )
            state = style_state(states[name]) if name in states else None
            line = (
                "    " * layer
                + name
                + (f"  ◂ {upstreams}" if upstreams else "")
                + (f"  [{state.text}]" if state else "")
            )
            output.line(Cell(line, state.style if state else ""))
