"""``cronsensus lint``: warn of job definitions that are allowed and probably not meant. Rules: ``lint_rules``."""

from __future__ import annotations

import click

from cronsensus.cli.app import complete_app, load_application, read_settings
from cronsensus.cli.errors import FAILED, OK
from cronsensus.cli.group import Command, Invocation
from cronsensus.cli.lint_rules import Finding, lint_expression, lint_jobs
from cronsensus.cli.output import Cell, Output
from cronsensus.insight.time_words import format_count
from cronsensus.stores.pages import rules_of
from cronsensus.timing.clock import SystemClock
from cronsensus.triggers import cron


def _group_findings(findings: list[Finding]) -> list[tuple[str, Finding]]:
    """Group equal findings of several jobs. The largest groups come last, where they do not hide the others."""
    groups_by_text: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        groups_by_text.setdefault((finding.rule, finding.text), []).append(finding)
    groups = sorted(groups_by_text.values(), key=len)
    return [(", ".join(finding.job for finding in group), group[0]) for group in groups]


def _lint_expression(text: str, *, strict: bool) -> int:
    trigger = cron(text).in_zone(read_settings().tz)
    findings = lint_expression(trigger, SystemClock().now())
    output = Output.current()
    if output.as_json:
        rows = [{"rule": finding.rule, "text": finding.text, "advice": finding.advice} for finding in findings]
        output.document({"expression": text, "means": trigger.describe(), "findings": rows})
    else:
        for finding in findings:
            output.line(Cell(f"{text}: {finding.rule}", "yellow"))
            output.line(f"  {finding.text}")
            output.line(f"  {finding.advice}")
        if findings:
            output.line(f"it means: {trigger.describe()}")
        else:
            output.line(Cell(f"nothing to say about {text}: {trigger.describe()}", "green"))
    return FAILED if strict and findings else OK


@click.command(cls=Command)
@click.argument("name", required=False, metavar="[APP]", shell_complete=complete_app)
@click.option("--strict", is_flag=True, help="Exit code 1 if there is any finding.")
def lint(name: str | None, strict: bool) -> int:  # noqa: FBT001 - a flag
    """Look over an application's jobs: herds, times at which clocks change, limits that contradict each other.

    What is certainly wrong is an error where the job is declared; this finds what is allowed and rarely meant. A cron
    expression in place of an application is looked over alone.

    cronsensus lint jobs:scheduler --strict
    cronsensus lint "*/90 * * * *"
    """
    if name is not None and (len(name.split()) > 1 or name.startswith("@")):
        return _lint_expression(name, strict=strict)
    if name is not None:
        Invocation.current().app = name
    application = load_application(name)
    specs = [job.spec for job in application.scheduler.jobs.values()]
    findings = lint_jobs(specs, SystemClock().now(), rules_of(application.scheduler.declared.specs()))
    output = Output.current()
    if output.as_json:
        rows = [
            {"job": finding.job, "rule": finding.rule, "text": finding.text, "advice": finding.advice}
            for finding in findings
        ]
        output.document({"app": application.name, "jobs": len(specs), "findings": rows})
    else:
        for names, finding in _group_findings(findings):
            output.line(Cell(f"{names}: {finding.rule}", "yellow"))
            output.line(f"  {finding.text}")
            output.line(f"  {finding.advice}")
        jobs = f"{format_count(len(specs), 'job')} of {application.name}"
        if findings:
            output.line(Cell(f"{format_count(len(findings), 'finding')} in {jobs}", "yellow"))
        else:
            output.line(Cell(f"nothing to say about the {jobs}", "green"))
    return FAILED if strict and findings else OK
