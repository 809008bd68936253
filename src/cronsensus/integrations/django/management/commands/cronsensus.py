"""``manage.py cronsensus …``: the whole command line, on the project's scheduler."""

from __future__ import annotations

import runpy
import sys
from typing import Any

from django.core.management.base import BaseCommand


class Command(BaseCommand):
    """Hands everything over to the program ``cronsensus``."""

    help = "cronsensus on this project: run, jobs, runs, ledger, audit, doctor, …; --help lists them"
    requires_system_checks: list[str] = []  # noqa: RUF012 - Django's own form

    def run_from_argv(self, argv: list[str]) -> None:
        """Run the command line with what was typed behind the command's name."""
        sys.argv = [argv[0], "--app", "cronsensus.integrations.django:scheduler", *argv[2:]]
        runpy.run_module("cronsensus", run_name="__main__", alter_sys=False)  # as python -m cronsensus does

    def handle(self, *_: Any, **__: Any) -> None:
        """Do nothing: ``call_command`` has no command line."""
