"""Errors for people: what happened, why, and the next thing to type; and the exit codes.

No traceback unless ``--debug`` asks for one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import NamedTuple

import click

from cronsensus import errors
from cronsensus.cli.terminal import clean_text
from cronsensus.security.masking import mask

OK, FAILED, USAGE, UNREACHABLE = 0, 1, 2, 3
STOPPED_CODE = 130
"""The exit code of a program that was stopped with Ctrl-C."""
PIPE_CLOSED_CODE = 141
"""The exit code when the reader of the output, such as head, has ended: neither a failure nor a success."""


class CommandError(click.ClickException):
    """A command cannot do what was asked: what happened (``message``), ``why``, and what to do ``then``."""

    def __init__(self, message: str, *, why: str = "", then: str = "", code: int = USAGE) -> None:
        super().__init__(message)
        self.why = why
        self.then = then
        self.code = code


_NEXT_STEPS: list[tuple[type[BaseException], str]] = [
    (errors.StoreBusy, "try again; if it goes on, look which nodes use the store: cronsensus nodes list"),
    (
        errors.StoreUnavailable,
        "see that the store runs and that the URL is right (cronsensus config), then: cronsensus doctor",
    ),
    (
        errors.StoreReadOnly,
        "let this user write to the store (for SQLite: the file and its folder), then: cronsensus doctor",
    ),
    (errors.StoreFull, "free some space (cronsensus db prune deletes what is old enough), then: cronsensus doctor"),
    (errors.StoreCorrupt, "stop the nodes and restore a backup, then: cronsensus doctor"),
    (errors.SchemaMismatch, "cronsensus db upgrade"),
    (errors.UnknownStore, "write a URL such as sqlite:///cronsensus.db, with --url or CRONSENSUS_URL"),
    (errors.InvalidTrigger, 'see one that works: cronsensus next "0 9 * * MON-FRI"'),
    (errors.UnknownJob, "see the names: cronsensus jobs list"),
    (errors.DuplicateJob, 'give one of the two another name: @scheduler.job(…, name="…")'),
    (errors.InvalidTransition, "see where it stands: cronsensus runs show ID"),
    (errors.PayloadMismatch, "see what stands there: cronsensus runs show ID; or give --on-mismatch return"),
    (errors.OccurrenceTooOld, "take a later time, above what was pruned ('pruned up to' in cronsensus jobs show)"),
    (errors.ConfigurationError, "correct it where it was set; each setting and where it comes from: cronsensus config"),
]
"""The next step for errors that have none. Most errors name the cause, and after a semicolon what to do."""


def report_error(
    error: BaseException, *, debug: bool = False, as_json: bool = False, typed: Callable[[str], str] = str
) -> int:
    """Print an error to stderr and return the exit code that it stands for; ``typed`` completes commands to type.

    With ``as_json`` stdout gets it, too, as its only document: ``{"error": {"message", "why", "next", "exit_code"}}``.
    """
    if isinstance(error, click.exceptions.Abort):
        click.echo("stopped", err=True)
        return STOPPED_CODE if isinstance(error.__cause__, KeyboardInterrupt) else FAILED
    if debug:
        import traceback

        click.echo(clean_text(mask("".join(traceback.format_exception(error))), lines=True), err=True)
    if type(error).__name__ == "NoArgsIsHelpError":
        # click 8.2 and later show the help this way when a group is called without a command.
        click.echo(str(error) or getattr(error, "message", ""), err=True)
        return USAGE
    message, why, next_step, code = describe_error(error)
    if as_json:
        document = {
            "message": mask(message),
            "why": mask(why) or None,
            "next": typed(mask(next_step)) or None,
            "exit_code": code,
        }
        click.echo(json.dumps({"error": document}, indent=2))
    print_labelled("error", message, fg="red")
    if why:
        print_labelled("why", why)
    if next_step:
        print_labelled("next", typed(next_step))
    return code


class ErrorText(NamedTuple):
    """An error for people; ``why`` and ``next_step`` may be empty."""

    message: str
    why: str
    next_step: str
    code: int


def describe_error(error: BaseException) -> ErrorText:
    """Return what happened, why, the next thing to type, and the exit code."""
    match error:
        case CommandError():
            return ErrorText(error.message, error.why, error.then, error.code)
        case click.UsageError():
            return _usage(error)
        case click.ClickException():
            return ErrorText(error.format_message(), "", "", USAGE)
        case errors.CronsensusError():
            message, _, next_step = str(error).partition("; ")
            return ErrorText(message, _cause(error), next_step or _next(error), code_of(error))
        case LookupError() if type(error) is LookupError:
            # The store raises it for a run that was pruned meanwhile.
            return ErrorText(str(error), "", "cronsensus runs list", USAGE)
        case OSError():
            return ErrorText(f"{type(error).__name__}: {error}", "", "", USAGE)
        case _:
            pass
    import traceback

    frames = traceback.extract_tb(error.__traceback__)
    place = f"in {frames[-1].name}, {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""  # noqa: PTH119
    message = f"a mistake in cronsensus: {type(error).__name__}: {error}"
    return ErrorText(message, place, "run it again with --debug and report what it prints", FAILED)


def code_of(error: BaseException) -> int:
    """Return the exit code for one of our exceptions."""
    if isinstance(error, errors.StoreError):
        return UNREACHABLE
    return USAGE if isinstance(error, errors.ConfigurationError) else FAILED


def print_labelled(label: str, text: str, *, fg: str | None = None) -> None:
    """Print ``label: text`` to stderr, further lines indented under the first."""
    first_line, *following = clean_text(mask(text), lines=True).splitlines() or [""]
    colour = False if os.environ.get("NO_COLOR") else None
    click.secho(f"{label}: ".rjust(7), fg=fg, bold=True, nl=False, err=True, color=colour)
    click.echo("\n       ".join([first_line, *following]), err=True)


def _usage(error: click.UsageError) -> ErrorText:
    path = error.ctx.command_path if error.ctx is not None else "cronsensus"
    text = error.format_message()
    if isinstance(error, click.NoSuchOption):
        close = f"; did you mean {error.possibilities[0]!r}?" if error.possibilities else ""
        text = f"no such option {error.option_name!r}{close}"
        if error.ctx is not None and _takes_anything(error.ctx.command):
            next_step = (
                f"if it is an argument, write -- before it: {path} NAME -- {error.option_name}; else: {path} --help"
            )
            return ErrorText(text, "", next_step, USAGE)
    # click names its own types, which are not what anybody typed.
    text = text.replace("is not a valid integer range", "is not a whole number")
    return ErrorText(text[:1].lower() + text[1:].rstrip(), "", f"{path} --help", USAGE)


def _takes_anything(command: click.Command) -> bool:
    """Whether what follows the command's name may be any text, such as -1."""
    return any(isinstance(param, click.Argument) and param.name == "values" for param in command.params)


def _cause(error: BaseException) -> str:
    cause = error.__cause__
    if cause is None:
        return ""
    text = str(cause).strip().splitlines()
    # A driver may add the statement, and a mark below it. The sentence is enough.
    shown = f"{type(cause).__name__}: {text[0]}" if text else type(cause).__name__
    return "" if text and text[0] in str(error) else shown


def _next(error: errors.CronsensusError) -> str:
    return next((text for error_class, text in _NEXT_STEPS if isinstance(error, error_class)), "")
