"""``cronsensus migrate``: another scheduler's jobs as code of cronsensus. Floor 7: the integrations write it."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cronsensus.cli.app import import_module
from cronsensus.cli.errors import FAILED, OK, CommandError
from cronsensus.cli.group import Command, Group
from cronsensus.cli.output import Output, print_message
from cronsensus.insight.time_words import format_count
from cronsensus.timing.clock import SystemClock
from cronsensus.triggers.zones import zone_name

if TYPE_CHECKING:
    from cronsensus.integrations.crontab.lines import Entry, Mistake
    from cronsensus.integrations.crontab.migrating import Migration as CrontabMigration
    from cronsensus.integrations.migration import Migration


@click.group(cls=Group)
def migrate() -> None:
    """Print another scheduler's jobs as code of cronsensus.

    The schema of a store is another matter: cronsensus db upgrade.

    cronsensus migrate apscheduler shop:scheduler
    cronsensus migrate celery proj:app
    cronsensus migrate crontab --system /etc/crontab
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

    with not_starting():
        scheduler = _import_object(name, "apscheduler", "scheduler", "scheduler of APScheduler")
        migration = written(find_scheduler(scheduler, name), SystemClock().now())
    _print_migration(migration)


@migrate.command(cls=Command)
@click.argument("name", metavar="MODULE:ATTR")
@click.option("--keep-celery", is_flag=True, help="Jobs send the tasks to Celery's workers, instead of running them.")
def celery(name: str, keep_celery: bool) -> None:  # noqa: FBT001 - a flag
    """Print each entry of the beat of a Celery app as a job, and what has no equivalent, as comments below it.

    The module is imported, with the modules of tasks that the app names. No broker and no store is asked.

    cronsensus migrate celery proj:app > jobs.py
    """
    from cronsensus.integrations.celery import require_celery

    require_celery()
    from cronsensus.integrations.celery.migrating import migrate as written

    _print_migration(written(_import_object(name, "celery", "app", "app of Celery"), name, keep_celery=keep_celery))


def _import_object(name: str, command: str, usual: str, called: str) -> Any:
    """Return what ``MODULE:ATTR`` names.

    Raises:
        CommandError: it names nothing; says what to type.
    """
    module_name, _, attribute = name.partition(":")
    if not attribute:
        raise CommandError(
            f"{name!r} is not MODULE:ATTR", then=f"cronsensus migrate {command} {module_name or 'shop'}:{usual}"
        )
    module = import_module(module_name)
    if not hasattr(module, attribute):
        raise CommandError(
            f"{module_name!r} has no attribute {attribute!r}",
            then=f"name the {called} there: cronsensus migrate {command} {module_name}:NAME",
        )
    return getattr(module, attribute)


def _print_migration(migration: Migration | CrontabMigration) -> None:
    if not Output.current().printed_json(dataclasses.asdict(migration)):
        click.echo(migration.code, nl=False)
        print_message(
            f"{format_count(migration.jobs, 'job')} written, {migration.left_out} left out; see the comments below the "
            "code"
        )


@migrate.command(cls=Command)
@click.argument("files", nargs=-1, metavar="[FILE|-]...", type=click.Path(path_type=Path))
@click.option("--system", is_flag=True, help="A user stands before each command: /etc/crontab, /etc/cron.d.")
@click.option("--tz", metavar="ZONE", help="Zone of lines without CRON_TZ (default: this machine's).")
def crontab(files: tuple[Path, ...], system: bool, tz: str | None) -> int:  # noqa: FBT001 - a flag
    """Print each line of a crontab as a job, and what has no equivalent, as comments below it.

    Without FILE it reads stdin: crontab -l | cronsensus migrate crontab - > jobs.py. No command is run, and no crontab
    is changed. Exit code 1 if a line could not be read.

    cronsensus migrate crontab --system /etc/crontab /etc/cron.d/* > jobs.py
    """
    from cronsensus.integrations.crontab.machine_zone import machine_zone
    from cronsensus.integrations.crontab.migrating import Zone
    from cronsensus.integrations.crontab.migrating import migrate as written

    zone = Zone(zone_name(tz), "--tz") if tz is not None else Zone(*machine_zone(os.environ))
    lines = [line for file in files or (Path("-"),) for line in _lines_of(file, several=len(files) > 1, system=system)]
    migration = written(lines, zone, system=system)
    _print_migration(migration)
    return FAILED if migration.unreadable else OK


def _lines_of(file: Path, *, several: bool, system: bool) -> Iterator[Entry | Mistake]:
    from cronsensus.integrations.crontab.lines import read_crontab

    if str(file) == "-" and sys.stdin.isatty():
        raise CommandError("no crontab was given", then="crontab -l | cronsensus migrate crontab - > jobs.py")
    try:
        raw = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise CommandError(
            f"{str(file)!r} cannot be read", why=str(error), then="crontab -l | cronsensus migrate crontab -"
        ) from error
    return read_crontab(raw.decode(errors="surrogateescape"), name=str(file) if several else "", system=system)
