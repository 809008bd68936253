"""``manage.py cronsensus …``: the whole command line, on the project's scheduler."""

from __future__ import annotations

import importlib
from typing import Any

from django.core.management.base import BaseCommand


class Command(BaseCommand):
    """Hands everything over to the program ``cronsensus``."""

    help = "cronsensus on this project: run, jobs, runs, ledger, audit, doctor, …; --help lists them"
    requires_system_checks: list[str] = []  # noqa: RUF012 - Django's own form

    def run_from_argv(self, argv: list[str]) -> None:
        """Run the command line with what was typed behind the command's name."""
        main = importlib.import_module("cronsensus.cli").main  # loaded when it is typed: nothing here rests on it
        program = f"{'python ' if argv[0].endswith('.py') else ''}{argv[0]} {argv[1]}"
        main(argv[2:], program=program, app="cronsensus.integrations.django:scheduler")

    def handle(self, *_: Any, **__: Any) -> None:
        """Do nothing: ``call_command`` has no command line."""
