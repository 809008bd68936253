"""Ask for confirmation before something large is done."""

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
        then: what to type there.

    Raises:
        CommandError: the answer was no, or there is no terminal to ask on.
    """
    if not _somebody_is_there():
        raise CommandError(
            "nothing was done",
            why=f"there is no terminal on which to ask whether {about}",
            then=then,
        )
    if not click.confirm(question, err=True):
        raise CommandError("nothing was done", code=FAILED)


def _somebody_is_there() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()
