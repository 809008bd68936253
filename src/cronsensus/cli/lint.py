"""``cronsensus lint``: what is legal and rarely meant. Floor 7; the rules are in ``lint_rules``."""

from __future__ import annotations

import click

from cronsensus.cli.app import application, complete_app
from cronsensus.cli.errors import FAILED, OK
from cronsensus.cli.group import Command, Invocation
from cronsensus.cli.lint_rules import lint_jobs
from cronsensus.cli.output import Cell, Output
from cronsensus.clock import SystemClock


@click.command(cls=Command)
@click.argument("name", required=False, metavar="[APP]", shell_complete=complete_app)
@click.option("--strict", is_flag=True, help="Exit code 1 if there is any finding.")
def lint(name: str | None, strict: bool) -> int:  # noqa: FBT001 - a flag
    """Look over an application's jobs: herds, times at which clocks change, limits that contradict each other.

    What is certainly wrong is an error where the job is declared; this finds what is allowed and rarely meant.

    cronsensus lint jobs:scheduler --strict
    """
    if name is not None:
        Invocation.current().app = name
    found = application(name)
    specs = [job.spec for job in found.scheduler.jobs.values()]
    findings = lint_jobs(specs, SystemClock().now())
    output = Output.current()
    if output.as_json:
        rows = [{"job": one.job, "rule": one.rule, "text": one.text, "advice": one.advice} for one in findings]
        output.document({"app": found.name, "jobs": len(specs), "findings": rows})
    else:
        for one in findings:
            output.line(Cell(f"{one.job}: {one.rule}", "yellow"))
            output.line(f"  {one.text}")
            output.line(f"  {one.advice}")
        if not findings:
            output.line(Cell(f"nothing to say about the {len(specs)} jobs of {found.name}", "green"))
    return FAILED if strict and findings else OK
