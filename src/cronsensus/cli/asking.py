"""Ask for confirmation before an act on many runs or jobs."""

from __future__ import annotations

import sys

import click

from cronsensus.cli.errors import FAILED, CommandError


def confirm_act(
    question: str, *, about: str = "these should run", then: str = "the same with --yes; or with --dry-run to see them"
) -> None:
    """Ask for confirmation, and return if it is given.

    Args:
        question: the question.
        about: what the question is about, for the error where there is no terminal.
        then: what to type in that case.

    Raises:
        CommandError: the answer was no, or there is no terminal to ask on.
    """
    if not _has_terminal():
        raise CommandError(
            "nothing was done",
            why=f"there is no terminal on which to ask whether {about}",
            then=then,
        )
    if not click.confirm(question, err=True):
        raise CommandError("nothing was done", code=FAILED)


def _has_terminal() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()
