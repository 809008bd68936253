"""Find the target of a command: the application's Scheduler, or only its store.

An application is named by ``--app``, ``CRONSENSUS_APP`` or ``[tool.cronsensus] app``. Otherwise the first of
``jobs.py``, ``tasks.py``, ``app.py`` and ``main.py`` in this folder with exactly one Scheduler is taken, with a
message. A command that needs only a store takes ``--url``, and then imports no application.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import re
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import click

from cronsensus.cli.errors import CommandError
from cronsensus.cli.group import Invocation
from cronsensus.cli.output import message_once, print_message
from cronsensus.cli.terminal import clean_text
from cronsensus.errors import CronsensusError, StoreReadOnly
from cronsensus.insight.time_words import shorten
from cronsensus.stores.base import Store

if TYPE_CHECKING:
    from cronsensus.config import Settings
    from cronsensus.scheduler import Scheduler

CANDIDATES = ("jobs.py", "tasks.py", "app.py", "main.py")
DEFAULT_FILE = "cronsensus.db"
_MOST_FILES = 50
_SCHEDULER_ASSIGNMENT = re.compile(r"^(\w+)\s*(?::[^=\n]*)?=\s*Scheduler\(", re.MULTILINE)
HOW_TO_SAY = "name it: cronsensus --app MODULE:ATTR …, or CRONSENSUS_APP, or app in [tool.cronsensus]"


@dataclass(frozen=True, slots=True)
class Application:
    """A Scheduler, and the name under which it was found."""

    scheduler: Scheduler
    name: str


def read_settings() -> Settings:
    """Return the settings as flags, environment, and pyproject.toml give them."""
    from cronsensus.config import load_settings

    return load_settings(Invocation.current().flags(), {}, env=os.environ, start=Path.cwd())


def load_application(name: str | None = None, **flags: Any) -> Application:
    """Load the application called ``name``; else that of the settings; else that of this folder.

    Args:
        name: ``MODULE:ATTR``, as an argument of a command.
        flags: further settings from options; ``None``: the option was not given.

    Raises:
        CommandError: there is no application, or it cannot be imported; the message says what to type.
    """
    application = _find_application(name)
    if application is None:
        raise CommandError(
            "there is no application here",
            why=f"none of {', '.join(CANDIDATES)} in {Path.cwd()} holds a Scheduler",
            then=_how_to_say(),
        )
    return apply_flags(application, **{key: value for key, value in flags.items() if value is not None})


def _find_application(name: str | None = None) -> Application | None:
    name = name or Invocation.current().app or read_settings().app
    return load_scheduler(name) if name else _discover()


def apply_flags(application: Application, **flags: Any) -> Application:
    """Let flags override the application's own settings; print a note on settings that the application overrides.

    Someone who sets ``CRONSENSUS_URL`` expects it to count, and would look for their runs in another store.
    """
    application.scheduler.configure(Invocation.current().flags() | flags)
    Invocation.current().scheduler = application.scheduler
    effective, outside = application.scheduler.settings, read_settings()
    for name in ("url", "namespace"):
        elsewhere = outside.source(name) not in {"default", "flag"}
        if effective.source(name) == "argument" and elsewhere and outside.value(name) != effective.value(name):
            message_once(
                f"note: {outside.source(name)} says {name} {outside.shown(name)}, which does not count: "
                f"{clean_text(application.name)} gives {effective.shown(name)} itself (--{name} would count)"
            )
    return application


def read_settled() -> Settings | None:
    """Return the settings if they name the store, and no application can change that; else ``None``."""
    settings, invocation = read_settings(), Invocation.current()
    if invocation.url is not None:
        return settings
    may_be_another = (
        invocation.app or settings.app or any((Path.cwd() / candidate).exists() for candidate in CANDIDATES)
    )
    return None if may_be_another or settings.source("url") == "default" else settings


def known_settings() -> tuple[Settings, str | None]:
    """Return the settings that a node would have here, and the application whose arguments are among them."""
    application = _find_application()
    return (
        (read_settings(), None)
        if application is None
        else (apply_flags(application).scheduler.settings, application.name)
    )


@contextlib.contextmanager
def opened_store(*, check: bool = True, writable: bool = False) -> Iterator[Store]:
    """Open the store that the command is about, and close it afterwards.

    Args:
        check: refuse a store that cannot be used as it is, and give the reason.
        writable: also refuse a store that can only be read, such as a backup or a standby.

    Raises:
        CommandError: no store was named.
        StoreError: it cannot be used.
    """
    store, is_own = _store()
    try:
        if check:
            check_store(store, writable=writable)
        if store.capabilities.hosts == "one" and store.capabilities.clock == "process":
            print_message("note: memory:// lives inside of one process; no other process sees what is in it")
        yield store
    finally:
        if is_own:
            store.close()


def check_store(store: Store, *, writable: bool = False) -> None:
    """Refuse a store that cannot be used as it is, and give the reason; print a message if it takes long to answer.

    Args:
        store: the opened store.
        writable: also refuse a store that can only be read.

    Raises:
        StoreError: it cannot be used.
    """
    from cronsensus.stores.connecting import connecting

    scheduler = Invocation.current().scheduler
    try:
        with connecting(
            (scheduler.settings if scheduler else read_settings()).url, lambda text: click.echo(text, err=True)
        ):
            store.check()
    except StoreReadOnly as error:
        if writable:
            raise
        # A backup or a standby can be read. A command that writes gets the same error then.
        problem = str(error).partition(";")[0]
        message_once(f"note: {problem}: it is only read, and does not show which nodes are alive now")


def code_at_hand() -> Scheduler | None:
    """Return the Scheduler that was loaded to find the store, or that ``--app`` names; ``None``: neither."""
    loaded: Scheduler | None = Invocation.current().scheduler
    return load_application().scheduler if loaded is None and Invocation.current().app else loaded


def _how_to_say() -> str:
    """Return what to type, with the name of an application in a file of this folder."""
    for file in sorted(Path.cwd().glob("*.py"))[:_MOST_FILES]:
        with contextlib.suppress(OSError, ValueError):
            match = _SCHEDULER_ASSIGNMENT.search(file.read_text())
            if match is not None and file.stem.isidentifier():
                name = f"{file.stem}:{match[1]}"
                return f"for {file.name}, which lies here: cronsensus --app {name} …, or export CRONSENSUS_APP={name}"
    return HOW_TO_SAY


def _store() -> tuple[Store, bool]:
    """Return the store, and whether the caller has to close it."""
    from cronsensus.stores import open_store

    settings = read_settings()
    # With --url on the command line nothing of the application can change the store. Otherwise its own url comes before
    # that of the environment, as in its nodes: a command must not read another store than they use.
    if Invocation.current().url is None:
        application = _find_application()
        if application is not None:
            return apply_flags(application).scheduler.store, False
        if settings.source("url") == "default":
            if not Path(DEFAULT_FILE).exists():
                raise CommandError(
                    "no store was named",
                    why=f"there is no --url, no CRONSENSUS_URL, and no application in {Path.cwd()}: none of "
                    f"{', '.join(CANDIDATES)} there holds a Scheduler",
                    then="cronsensus --url sqlite:///cronsensus.db …, or " + _how_to_say(),
                )
            print_message(f"using {settings.url} (it lies here)")
    return open_store(settings.url, namespace=settings.namespace), True


def load_scheduler(name: str) -> Application:
    """Import ``MODULE:ATTR`` and return the Scheduler there; without ``:ATTR`` the only one of the module.

    Raises:
        CommandError: wrong module, wrong attribute, not a Scheduler, or an exception while importing.
    """
    module_name, colon, attribute = name.partition(":")
    shown = shorten(name, 80)
    if module_name.endswith(".py") or not _is_dotted(module_name):
        dotted = module_name.removesuffix(".py").strip("./").replace("/", ".")
        example = f"{dotted if _is_dotted(dotted) else 'jobs'}:{attribute or 'scheduler'}"
        raise CommandError(
            f"{shown!r} is not MODULE:ATTR", then=f"write the module as Python imports it, for example {example}"
        )
    try:
        module = import_module(module_name)
    except CommandError as error:
        if not colon and (with_colon := _with_colon(module_name)):
            raise CommandError(
                f"{shown!r} is not MODULE:ATTR; did you mean {with_colon!r}?", then=f"--app {with_colon}"
            ) from error
        raise
    if not colon:
        return _only_one(module, module_name)
    return Application(_attribute(module, module_name, attribute), name)


def _is_dotted(name: str) -> bool:
    return all(part.isidentifier() for part in name.split("."))


def _with_colon(name: str) -> str | None:
    """Return ``MODULE:ATTR`` if the name is that with a dot in place of the colon."""
    module_name, _, attribute = name.rpartition(".")
    try:
        is_scheduler = bool(module_name) and attribute in _schedulers(import_module(module_name))
    except CommandError:
        return None
    return f"{module_name}:{attribute}" if is_scheduler else None


def import_module(module_name: str) -> ModuleType:
    """Import a module of this folder, or an installed module.

    Raises:
        CommandError: there is none, or it raises; the message says what to type.
    """
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is not None and (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise _no_module(module_name, error.name) from error
        raise _broken(module_name, error) from error
    except (Exception, SystemExit) as error:
        raise _broken(module_name, error) from error


def _no_module(module_name: str, missing: str) -> CommandError:
    files = [path.stem if path.suffix == ".py" else path.name for path in Path.cwd().iterdir()
             if (path.suffix == ".py" and path.stem.isidentifier()) or (path / "__init__.py").exists()]  # fmt: skip
    close = get_close_matches(module_name, files, n=1)
    return CommandError(
        f"there is no module {missing!r}" + (f"; did you mean {close[0]!r}?" if close else ""),
        why=f"looked in {Path.cwd()} and in the installed packages of {sys.executable}",
        then="go to the folder that holds it, or install it into this environment",
    )


def _broken(module_name: str, error: BaseException) -> CommandError:
    """Describe an error in the user's code by the user's own frames, without those of the library and of imports."""
    own_folder = str(Path(__file__).parents[1])
    lines = [f"{type(error).__name__}: {error}"]
    if isinstance(error, SystemExit):
        lines = [f'it called sys.exit({error.code!r}): put what starts things under  if __name__ == "__main__":']
    if isinstance(error, SyntaxError) and error.filename:
        lines.append(f"{error.filename}:{error.lineno}  {(error.text or '').strip()}")
    for frame in traceback.extract_tb(error.__traceback__):
        if not frame.filename.startswith((own_folder, "<frozen")) and "importlib" not in frame.filename:
            lines.append(f"{frame.filename}:{frame.lineno} in {frame.name}:  {frame.line or ''}")
    advice = "correct it, then try: python -c 'import " + module_name + "'"
    if isinstance(error, ModuleNotFoundError):
        advice = f"install what provides {error.name!r} into {sys.executable}"
    return CommandError(f"importing {module_name!r} failed", why="\n".join(lines), then=advice)


def _attribute(module: ModuleType, module_name: str, attribute: str) -> Scheduler:
    from cronsensus.scheduler import Scheduler

    value: Any = module
    for part in attribute.split("."):
        if not hasattr(value, part):
            names = list(_schedulers(module)) or [name for name in vars(module) if not name.startswith("_")]
            close = get_close_matches(part, names, n=1) or (names if len(names) == 1 else [])
            hint = f"; did you mean '{module_name}:{close[0]}'?" if close else ""
            raise CommandError(f"{module_name!r} has no attribute {part!r}{hint}", then=_say_app(module, module_name))
        value = getattr(value, part)
    if isinstance(value, Scheduler):
        return value
    what_it_is = "the class" if value is Scheduler else f"of type {type(value).__name__}"
    raise CommandError(
        f"'{module_name}:{attribute}' is {what_it_is}, not a Scheduler", then=_say_app(module, module_name)
    )


def _say_app(module: ModuleType, module_name: str) -> str:
    names = list(_schedulers(module))
    if names:
        return " or ".join(f"--app {module_name}:{name}" for name in names[:5])
    return f'make one there: scheduler = Scheduler("sqlite:///cronsensus.db"), then --app {module_name}:scheduler'


def _schedulers(module: ModuleType) -> dict[str, Scheduler]:
    """Return the Schedulers of a module by name, each object once."""
    from cronsensus.scheduler import Scheduler

    schedulers: dict[str, Scheduler] = {}
    for name, value in vars(module).items():
        if isinstance(value, Scheduler) and value not in schedulers.values():
            schedulers[name] = value
    return schedulers


def _only_one(module: ModuleType, module_name: str) -> Application:
    schedulers = _schedulers(module)
    if len(schedulers) == 1:
        name, scheduler = next(iter(schedulers.items()))
        return Application(scheduler, f"{module_name}:{name}")
    holds = f"{len(schedulers)} Schedulers" if schedulers else "no Scheduler"
    raise CommandError(f"{module_name!r} holds {holds}", then=_say_app(module, module_name))


def _discover() -> Application | None:
    for candidate in CANDIDATES:
        path = Path.cwd() / candidate
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        # Importing runs code, so do not import a main.py that does not use the library.
        if "cronsensus" not in text and "scheduler" not in text.lower():
            continue
        module = import_module(path.stem)
        if _schedulers(module):
            application = _only_one(module, path.stem)
            message_once(f"using {clean_text(application.name)} (found in {candidate})")
            return application
    return None


def complete_app(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return modules of this folder that may hold an application."""
    return [f"{path.stem}:scheduler" for path in Path.cwd().glob("*.py") if path.stem.startswith(incomplete)]


def complete_job(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return names of jobs in the store; nothing if it cannot be read."""
    # Messages on stderr would land in the line that is being typed.
    with ctx.scope(cleanup=False), contextlib.redirect_stderr(io.StringIO()):
        try:
            with opened_store() as store:
                return [view.spec.name for view in store.jobs(limit=500) if view.spec.name.startswith(incomplete)]
        except (CommandError, CronsensusError, OSError):
            return []
