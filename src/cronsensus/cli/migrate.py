"""``cronsensus migrate``: another scheduler's jobs as code of cronsensus. Floor 7: the integrations write it."""

from __future__ import annotations

import dataclasses

import click

from cronsensus.cli.app import import_module
from cronsensus.cli.errors import CommandError
from cronsensus.cli.group import Command, Group
from cronsensus.cli.output import Output, message
from cronsensus.clock import SystemClock
from cronsensus.insight.words import counted


@click.group(cls=Group)
def migrate() -> None:
    """Print another scheduler's jobs as code of cronsensus.

    The schema of a store is another matter: cronsensus db upgrade.

    cronsensus migrate apscheduler shop:scheduler
    """


@migrate.command(cls=Command)
@click.argument("name", metavar="MODULE:ATTR")
def apscheduler(name: str) -> None:
    """Print each job of an APScheduler 3 scheduler as code, and what has no equivalent, as comments below it.

    The module is imported; its scheduler is not started, also where the module starts it. No store is asked.

    cronsensus migrate apscheduler shop:scheduler > jobs.py
    """
    from cronsensus.integrations.apscheduler.migrating import find_scheduler, not_starting
    from cronsensus.integrations.apscheduler.migrating import migrate as written

    module_name, _, attribute = name.partition(":")
    if not attribute:
        raise CommandError(
            f"{name!r} is not MODULE:ATTR", then=f"cronsensus migrate apscheduler {module_name or 'shop'}:scheduler"
        )
    with not_starting():
        module = import_module(module_name)
        if not hasattr(module, attribute):
            raise CommandError(
                f"{module_name!r} has no attribute {attribute!r}",
                then=f"name the scheduler of APScheduler there: cronsensus migrate apscheduler {module_name}:NAME",
            )
        found = written(find_scheduler(getattr(module, attribute), name), SystemClock().now())
    output = Output.current()
    if output.printed_json(dataclasses.asdict(found)):
        return
    click.echo(found.code, nl=False)
    message(f"{counted(found.jobs, 'job')} written, {found.left_out} left out; see the comments below the code")
