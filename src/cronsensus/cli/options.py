"""Options and arguments that several commands take."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

import click

from cronsensus.cli.app import complete_job
from cronsensus.errors import InvalidDuration
from cronsensus.timing.durations import parse_duration

F = TypeVar("F", bound=Callable[..., Any])

LARGEST_PORT = 65_535


class DurationType(click.ParamType["timedelta"]):
    """A duration as text, such as ``30s``, ``10m`` or ``1h30m``."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> timedelta:
        """Return ``value`` as a timedelta."""
        try:
            return parse_duration(value, what=param.human_readable_name if param is not None else "duration")
        except InvalidDuration as error:
            self.fail(str(error), param, ctx)


class PlaceType(click.ParamType["tuple[str, int]"]):
    """A port of this machine, or ``HOST:PORT``."""

    name = "place"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        """Return ``value`` as host and port."""
        host, _, port = str(value).rpartition(":")
        if not (port.isascii() and port.isdigit() and int(port) <= LARGEST_PORT):
            self.fail(f"{value!r} is no port; write one such as 9464, or 0.0.0.0:9464", param, ctx)
        return host.strip("[]") or "127.0.0.1", int(port)


def whoami() -> str:
    """Return the operator's name for the audit trail: user@host."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError, ImportError):
        user = "unknown"  # a container may run under a number that has no name
    return f"{user}@{socket.gethostname()}"


def add_operator_options(*, reason: bool = False) -> Callable[[F], F]:
    """Add ``--reason`` (required or not) and ``--by``: every act of an operator goes into the audit trail."""
    # A default, even None, would answer for the option that is required.
    rules: dict[str, Any] = {"required": True, "callback": _not_blank} if reason else {"default": ""}

    def decorate(function: F) -> F:
        function = click.option("--by", default=whoami, metavar="NAME", help="Who acts (default: user@host).")(function)
        text = "Why; kept in the audit trail and shown to others."
        return click.option("--reason", metavar="TEXT", help=text, **rules)(function)

    return decorate


def _not_blank(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    if value is not None and not value.strip():
        raise click.BadParameter("say why, in a few words: whoever finds it wants to know")
    return value


def add_limit_option(default: int = 50, *, most: int = 1000) -> Callable[[F], F]:
    """Add ``--limit``."""
    return click.option(
        "--limit",
        type=click.IntRange(1, most),
        default=default,
        show_default=True,
        metavar="N",
        help="Most rows to show.",
    )


watchable = click.option("--watch", is_flag=True, help="Stay, and show what changes; Ctrl-C ends it.")
job_argument = click.argument("job", metavar="JOB", shell_complete=complete_job)
job_arguments = click.argument("names", metavar="JOB…", nargs=-1, required=True, shell_complete=complete_job)
id_argument = click.argument("number", metavar="ID", type=click.IntRange(1, 2**63 - 1))
