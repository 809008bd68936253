"""Ask somebody before something large is done."""

from __future__ import annotations

import sys

import click

from cronsensus.cli.errors import FAILED, CommandError


def ask(question: str) -> None:
    """Return if somebody says yes.

    Raises:
        CommandError: the answer was no, or there is no terminal to ask on.
    """
    if not _somebody_is_there():
        raise CommandError(
            "nothing was done",
            why="there is no terminal on which to ask whether these should run",
            then="the same with --yes; or with --dry-run to see them",
        )
    if not click.confirm(question, err=True):
        raise CommandError("nothing was done", code=FAILED)


def _somebody_is_there() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()
