"""``manage.py cronsensus …``: the whole command line, on the project's scheduler; and ``import_beat``."""

from __future__ import annotations

import importlib
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError

from cronsensus.timing.clock import SystemClock

_IMPORT_BEAT = "import_beat"


class Command(BaseCommand):
    """Hands everything over to the program ``cronsensus`` but what only makes sense in Django."""

    help = "django-celery-beat's rows as code for jobs.py; every other command: manage.py cronsensus --help"
    requires_system_checks: list[str] = []  # noqa: RUF012 - Django's own form

    def run_from_argv(self, argv: list[str]) -> None:
        """Run the command line with what was typed behind the command's name."""
        if argv[2:3] == [_IMPORT_BEAT]:
            super().run_from_argv(argv)
            return
        main = importlib.import_module("cronsensus.cli").main  # loaded when it is typed: nothing here rests on it
        program = f"{'python ' if argv[0].endswith('.py') else ''}{argv[0]} {argv[1]}"
        main(argv[2:], program=program, app="cronsensus.integrations.django:scheduler")

    def add_arguments(self, parser: Any) -> None:
        """Add those of ``import_beat``."""
        parser.add_argument("command", choices=[_IMPORT_BEAT])
        parser.add_argument("--apply", action="store_true", help="add them to the store, and print no code")
        parser.add_argument("--database", default="default", help="the alias of the database with the rows")

    def handle(self, *_: Any, **given: Any) -> None:
        """Print the rows of django-celery-beat as code, or add them as jobs.

        Raises:
            CommandError: they cannot be read.
        """
        from cronsensus.integrations.django import import_beat
        from cronsensus.integrations.django.project import find_scheduler

        now = SystemClock().now()
        try:
            rows = import_beat.read_rows(given["database"])
        except ImproperlyConfigured as error:
            raise CommandError(str(error)) from error
        if not given["apply"]:
            found = import_beat.write_jobs(rows, now)
            self.stdout.write(found.code, ending="")
            self.stderr.write(f"{found.jobs} written, {found.left_out} left out; see the comments below the code")
            return
        added, remarks = import_beat.add_jobs(find_scheduler(), rows, now)
        for name in added:
            self.stdout.write(f"added: {name}")
        for remark in remarks:
            self.stderr.write(f"{remark.job}: {remark.text}")
