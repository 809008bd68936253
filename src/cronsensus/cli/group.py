"""The shape of the command line: groups that load late, and the options that every command takes.

Every command of the table, and every command below one of its groups, accepts the global options after its own name
too. They are added when a command is loaded, so a command's file declares nothing for them and asks
``Invocation.current()``.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import click
from click.shell_completion import CompletionItem

from cronsensus.cli.errors import PIPE_CLOSED_CODE, CommandError, report_error
from cronsensus.security.masking import mask

if TYPE_CHECKING:
    from cronsensus.scheduler import Scheduler


@dataclass(slots=True)
class Invocation:
    """The global options, before the command or after it; the later one counts.

    Attributes:
        program: how this command line is called; it may be another program's, such as ``manage.py cronsensus``.
        program_app: the application that it is for, if it is for one only.
        printed: the notes that were printed, so that each is printed once.
        scheduler: the application's, once it was loaded.
    """

    program: str = "cronsensus"
    program_app: str | None = None
    app: str | None = None
    url: str | None = None
    namespace: str | None = None
    output: Literal["table", "json"] | None = None
    debug: bool = False
    printed: set[str] = field(default_factory=set)
    scheduler: Scheduler | None = None

    @classmethod
    def current(cls) -> Invocation:
        """Return that of the command which is running."""
        return click.get_current_context().ensure_object(cls)

    def flags(self) -> dict[str, Any]:
        """Return the settings among the options that were given."""
        # A module alone is a way to find the only Scheduler in it, and no setting yet.
        app = self.app if self.app and ":" in self.app else None
        values = {"app": app, "url": self.url, "namespace": self.namespace}
        return {name: value for name, value in values.items() if value is not None}

    def typed(self, text: str) -> str:
        """Return ``text`` with program, application and store as they were typed, in each command that it contains.

        Without them the next command would look at another store than this one. A password is not shown.
        """
        app = None if self.app == self.program_app else self.app
        values = [("--app", app), ("--url", self.url and mask(self.url)), ("--namespace", self.namespace)]
        options = [f"{option} {shlex.quote(value)}" for option, value in values if value]
        if text.endswith("--help"):
            return text
        if self.app:
            text = text.replace("run MODULE:ATTR", f"run {app}" if app else "run")
        return _COMMAND.sub(lambda match: " ".join([self.program, *options, match[1]]), text)


_COMMAND = re.compile(
    r"\bcronsensus (run|consume|next|jobs|runs|nodes|locks|ledger|why|audit|db|doctor|health|config|lint|dashboard)\b"
)


def _remember(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    if isinstance(value, str) and not value.strip() and not ctx.resilient_parsing:
        # Passed over, --url "$NOT_SET" would act on another store than the one that was meant.
        raise click.BadParameter("it is empty; leave it out, or set the variable that was to fill it", ctx, param)
    if value and param.name:
        setattr(ctx.ensure_object(Invocation), param.name, value)


def _option(*names: str, **settings: Any) -> click.Option:
    return click.Option(list(names), expose_value=False, callback=_remember, **settings)


GLOBALS = (
    _option("--app", metavar="MODULE:ATTR", help="The application's Scheduler.  [env: CRONSENSUS_APP]"),
    _option("--url", metavar="URL", help="The store, such as sqlite:///cronsensus.db.  [env: CRONSENSUS_URL]"),
    _option("--namespace", metavar="NAME", help="The part of the store to look at.  [env: CRONSENSUS_NAMESPACE]"),
    _option("-o", "--output", type=click.Choice(["table", "json"]), help="How to print data (default: table)."),
    _option("--debug", is_flag=True, help="Show the traceback of an error."),
)

OTHER_WORDS = {
    "backfill": "jobs backfill", "beat": "run", "cancel": "runs cancel", "check": "db check", "consumer": "consume",
    "drain": "nodes drain",
    "enqueue": "jobs enqueue", "explain": "next", "forget": "once forget", "init": "db upgrade", "list": "jobs list",
    "logs": "runs logs", "pause": "jobs pause",
    "prune": "db prune", "resume": "jobs resume", "retry": "runs retry", "schedule": "jobs list", "serve": "run",
    "settings": "config", "show": "jobs show", "start": "run", "status": "jobs list", "trigger": "jobs trigger",
    "ui": "dashboard", "up": "run", "upgrade": "db upgrade", "verify": "audit", "web": "dashboard", "worker": "run",
    "workers": "nodes",
}  # fmt: skip
"""Commands of other programs, or without their group, and what they are called here."""
_REMOVED = (
    "take it out of the application's code, and the next release retires it; one that was made at run time: "
    "scheduler.remove_job(NAME); to stop it for a while: cronsensus jobs pause NAME --reason TEXT"
)
_CHANGED = (
    "change it in the application's code, and deploy; one that was made at run time: scheduler.change_job(NAME, …)"
)
NOT_COMMANDS = {
    ("jobs", "add"): "declare it in the application's code: @scheduler.job(cron(…)); at run time: scheduler.add_job()",
    ("jobs", "change"): _CHANGED,
    ("jobs", "delete"): _REMOVED,
    ("jobs", "disable"): "cronsensus jobs pause NAME --reason TEXT",
    ("jobs", "edit"): _CHANGED,
    ("jobs", "enable"): "cronsensus jobs resume NAME",
    ("jobs", "remove"): _REMOVED,
    ("jobs", "run"): "cronsensus jobs trigger NAME",
    ("jobs", "start"): "cronsensus jobs trigger NAME",
    ("runs", "delete"): "runs are pruned after their job's keep; sooner: cronsensus db prune --before 7d",
    ("runs", "kill"): "cronsensus runs cancel ID",
    ("runs", "stop"): "cronsensus runs cancel ID",
    ("nodes", "kill"): "cronsensus nodes drain NODE",
    ("nodes", "stop"): "cronsensus nodes drain NODE",
    ("locks", "release"): "cronsensus locks break NAME --reason TEXT",
    ("locks", "unlock"): "cronsensus locks break NAME --reason TEXT",
}
"""Commands that a group does not have, and what to type instead."""


def _keep_examples(text: str | None) -> str | None:
    """Mark the paragraphs of a help text that are commands to type, so that click does not fill their lines."""
    paragraphs = []
    for part in inspect.cleandoc(text or "").split("\n\n"):
        lines = [line.strip() for line in part.splitlines()]
        is_example = bool(lines) and all(line.startswith("cronsensus ") for line in lines)
        paragraphs.append("\b\n" + "\n".join(f"  {line}" for line in lines) if is_example else part)
    return "\n\n".join(paragraphs) or None


class Command(click.Command):
    """A command. Its help keeps examples as they are, and lists the global options apart from its own."""

    def __init__(self, name: str | None, help: str | None = None, **settings: Any) -> None:  # noqa: A002 - click's word
        super().__init__(name, help=_keep_examples(help), **settings)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a group's commands first, which are what one looks for; then its own options, and the global ones."""
        if isinstance(self, click.Group):
            self.format_commands(ctx, formatter)
        options = [param for param in self.get_params(ctx) if isinstance(param, click.Option)]
        for title, everywhere in (("Options", False), ("Options of every command", True)):
            records = [param.get_help_record(ctx) for param in options if (param in GLOBALS) is everywhere]
            if shown := [record for record in records if record is not None]:
                with formatter.section(title):
                    formatter.write_dl(shown)


class Group(Command, click.Group):
    """A group that knows what somebody may have meant."""

    command_class = Command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that ``args`` begin with.

        Raises:
            UsageError: there is none; says which was perhaps meant.
        """
        name = args[0]
        command = self.get_command(ctx, name)
        if command is None and (instead := NOT_COMMANDS.get((self.name or "", name))):
            raise CommandError(f"there is no command '{self.name} {name}'", then=instead)
        if command is None and not ctx.resilient_parsing and not name.startswith("-"):
            raise click.UsageError(f"no such command {name!r}{self._meant(ctx, name)}", ctx)
        return super().resolve_command(ctx, args)

    def _meant(self, ctx: click.Context, name: str) -> str:
        from difflib import get_close_matches

        meanings = {command_name: command_name for command_name in self.list_commands(ctx)}
        if ctx.parent is None:
            meanings = OTHER_WORDS | meanings
        close = get_close_matches(name, meanings, n=1)
        return (
            f"; did you mean {meanings[close[0]]!r}?" if close else f"; there are: {', '.join(self.list_commands(ctx))}"
        )


class LazyGroup(Group):
    """The root: loads the command that is typed and no other, and turns an error into a sentence and an exit code."""

    def __init__(self, name: str, *, sections: Mapping[str, Mapping[str, str]], **settings: Any) -> None:
        super().__init__(name, **settings)
        self.sections = sections
        self.table = {name: text for section in sections.values() for name, text in section.items()}
        self.params.extend(GLOBALS)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the table."""
        return [*self.table, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command of the table, with the global options."""
        if cmd_name not in self.table:
            return super().get_command(ctx, cmd_name)
        name = cmd_name.replace("-", "_")
        module = importlib.import_module(f"cronsensus.cli.{name}")
        command: click.Command = getattr(module, "next_" if name == "next" else name)  # next is Python's word
        return with_globals(command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        """Write the table by sections, loading nothing."""
        width = max(map(len, self.table))
        for title, section in self.sections.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), text) for name, text in section.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return completions of a command's name from the table, loading nothing."""
        names = [CompletionItem(name, help=text) for name, text in self.table.items() if name.startswith(incomplete)]
        return names + click.Command.shell_complete(self, ctx, incomplete)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; where the reader of its output has gone, such as head, end as a shell expects it."""
        try:
            answer = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # Python flushes stdout once more at its end, and would print an error.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(PIPE_CLOSED_CODE)
        return answer

    def main(self, *args: Any, **settings: Any) -> Any:
        """Run a command line; by default end the process with one of the exit codes."""
        invocation = settings.setdefault("obj", Invocation())
        standalone = settings.pop("standalone_mode", True)
        run: Callable[..., Any] = super().main
        try:
            answer = run(*args, standalone_mode=False, **settings)
        except Exception as error:
            if not standalone:
                raise
            as_json = invocation.output == "json"
            sys.exit(report_error(error, debug=invocation.debug, as_json=as_json, typed=invocation.typed))
        if not standalone:
            return answer
        sys.exit(answer if isinstance(answer, int) else 0)


def with_globals(command: click.Command) -> click.Command:
    """Add the global options to a command and all below it; those that it declares itself stay its own."""
    own_names = {param.name for param in command.params} | {name for param in command.params for name in param.opts}
    command.params.extend(
        option for option in GLOBALS if option.name not in own_names and own_names.isdisjoint(option.opts)
    )
    if isinstance(command, click.Group):
        for subcommand in command.commands.values():
            with_globals(subcommand)
    return command
