"""The pages of the shelf Reference that are made of the code: names, commands, settings, metrics, errors, tables.

What a page says is what the docstrings say; nothing is written twice. Pages that begin with ``..`` are
reStructuredText: Sphinx makes them of the objects themselves.
"""

import inspect
import re
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from sqlalchemy import Column, Table, UniqueConstraint
from sqlalchemy.dialects import postgresql

import cronsensus
from cronsensus import Scheduler, errors
from cronsensus.cli.errors import FAILED, OK, UNREACHABLE, USAGE, code_of
from cronsensus.config import PREFIX, TABLE, Settings
from cronsensus.metrics import Metrics
from cronsensus.metrics.reading import Reading, list_series
from cronsensus.stores.sql import schema
from cronsensus.timing.instants import EPOCH

NAMES = {
    "Declare": ("Scheduler", "JobDefaults", "Job", "cron", "every", "at", "any_of", "Trigger", "Alert"),
    "Within a run": ("Run", "current_run", "Retry", "Skip", "Snooze", "Cancel"),
    "What became of a call": ("Handle", "Occurrence", "State", "Origin"),
    "Locks": ("Lock", "Lease"),
    "Stores": ("open_store", "Store"),
    "Errors": (
        "CronsensusError",
        "ConfigurationError",
        "NotTheHolder",
        "StoreError",
        "StoreUnavailable",
        "CoordinationError",
        "LeaseLost",
        "LockHeld",
        "StillRunning",
        "PayloadMismatch",
        "RunFailed",
        "BatchFailed",
    ),
    "The version": ("__version__",),
}
"""The names of ``cronsensus.__all__``, in the order in which one meets them."""


def write_reference() -> dict[str, str]:
    """Return the pages by their names."""
    return {
        "reference/api": "\n".join(_api()),
        "reference/commands": "\n".join(_commands()),
        "reference/settings": "\n".join(_settings()),
        "reference/metrics": "\n".join(_metrics()),
        "reference/errors": "\n".join(_errors()),
        "reference/schema": "\n".join(_schema()),
    }


def _api() -> Iterator[str]:
    listed = [name for names in NAMES.values() for name in names]
    if sorted(listed) != sorted(cronsensus.__all__):
        raise ValueError(f"reference.py: NAMES and cronsensus.__all__ differ: {set(listed) ^ set(cronsensus.__all__)}")
    yield from _title(
        "Names", "Everything that ``from cronsensus import …`` gives. An underscore in front: not public."
    )
    for heading, names in NAMES.items():
        yield from (heading, "-" * len(heading), "")
        for name in names:
            value = getattr(cronsensus, name)
            if inspect.isclass(value):
                error = issubclass(value, BaseException)
                yield f".. auto{'exception' if error else 'class'}:: cronsensus.{name}"
                yield from (("   :show-inheritance:",) if error else ("   :members:",))
            elif callable(value):
                yield f".. autofunction:: cronsensus.{name}"
            else:
                yield from (f".. py:data:: cronsensus.{name}", "   :type: str", "", "   The version that is installed.")
            yield ""


def _title(title: str, text: str) -> tuple[str, ...]:
    # The comment says that the page is reStructuredText.
    return (".. Made by site/reference.py.", "", title, "=" * len(title), "", text, "")


def _commands() -> Iterator[str]:
    yield from _title(
        "Commands",
        f"Exit codes: {OK} ok, {FAILED} the check failed, {USAGE} usage or import error, {UNREACHABLE} the store "
        "cannot be used; 128 and the number of the signal that ended it.",
    )
    yield from (".. click:: cronsensus.cli:cli", "   :prog: cronsensus", "   :nested: full", "")


def _read_attributes(docstring: str) -> dict[str, str]:
    """Return what the section ``Attributes:`` of a docstring says of each."""
    section = inspect.cleandoc(docstring).partition("Attributes:\n")[2].partition("\n\n")[0]
    found = re.findall(r"^    (\w+): (.*(?:\n {5,}.*)*)", section, re.MULTILINE)
    return {name: re.sub(r"\s+", " ", text).replace("``", "`") for name, text in found}


def _settings() -> Iterator[str]:
    texts, defaults = _read_attributes(Settings.__doc__ or ""), Settings()
    arguments = set(inspect.signature(Scheduler).parameters)
    yield from ("# Settings", "")
    yield "Each may stand in a command's flag, in an argument of `Scheduler`, in the environment, or in"
    yield f"`pyproject.toml` below `[{TABLE}]`. The first of these that has it counts; `cronsensus config` shows each,"
    yield "and where it comes from."
    yield ""
    for name in defaults.names():
        shown = defaults.shown(name)
        yield from (f"## `{name}`", "", f"{texts[name][0].upper()}{texts[name][1:]}", "")
        yield f"- default: {f'`{shown}`' if shown else 'none'}"
        yield f"- environment: `{PREFIX}{name.upper()}`"
        yield f"- `pyproject.toml`: `{name.replace('_', '-')} = …`"
        yield from (f"- in code: `Scheduler({name}=…)`" for _ in range(name in arguments))
        yield ""


def _metrics() -> Iterator[str]:
    yield from ("# Metrics", "")
    yield "Every series that a scrape may show. How to serve them, and what to watch: [metrics](../metrics.md)."
    yield from ("", "## From the store", "", "The same whichever process is asked: write `max`.", "")
    yield from ("| series | labels | what |", "|---|---|---|")
    for name, what, label, _ in list_series(_full_reading()):
        yield f"| `cronsensus_{name}` | {f'`{label}`' if label else ''} | {what} |"
    yield from ("", "## From this process", "", "Each process counts its own: write `sum`.", "")
    yield from ("| series | kind | labels | what |", "|---|---|---|---|")
    page = _scrape_after_a_run()
    for name, what in re.findall(r"^# HELP (\S+) (.*)$", page, re.MULTILINE):
        kind = re.search(rf"^# TYPE {name} (\w+)$", page, re.MULTILINE)
        labels = re.findall(rf"^{name}(?:_count)?\{{(.*?)\}} ", page, re.MULTILINE)
        known = [label for label in re.findall(r'(\w+)="', labels[0]) if label != "le"] if labels else []
        yield f"| `{name}` | {kind[1] if kind else ''} | {', '.join(f'`{label}`' for label in known)} | {what} |"
    yield ""


def _full_reading() -> Reading:
    """Return a reading in which nothing is absent, so that each series has its row."""
    values: dict[str, Any] = {field.name: 0 for field in fields(Reading)}
    return Reading(**values | {"jobs": (), "node_lost": EPOCH})


def _scrape_after_a_run() -> str:
    """Return what a process that ran something shows of itself."""
    scheduler = Scheduler("memory://")

    @scheduler.job()
    def work() -> None: ...

    metrics = Metrics(scheduler)
    with scheduler:
        work.enqueue().result("10s")
    stored = {f"cronsensus_{name}" for name, *_ in list_series(_full_reading())}
    lines = metrics.page().decode().splitlines()
    return "\n".join(line for line in lines if not line.startswith("# ") or line.split()[2] not in stored)


def _errors() -> Iterator[str]:
    yield from ("# Errors", "")
    yield "All are in `cronsensus.errors`; those that are often caught can be imported from `cronsensus` as well."
    yield "A message says what happened, why, and after a semicolon what to do. The exit code is that of a command that"
    yield "ends with the error."
    yield from ("", "```text", _tree(), "```", "")
    for name, kind in vars(errors).items():
        if not (inspect.isclass(kind) and issubclass(kind, errors.CronsensusError)):
            continue
        bases = ", ".join(f"`{base.__name__}`" for base in kind.__bases__)
        retryable = "; trying again later may help" if getattr(kind, "retryable", False) else ""
        yield from (f"## `{name}`", "", _as_markdown(inspect.getdoc(kind) or ""), "")
        yield from (f"A kind of {bases}. Exit code {code_of(kind.__new__(kind))}{retryable}.", "")


def _tree() -> str:
    tree = (errors.__doc__ or "").partition("::\n\n")[2].partition("\n\n")[0]
    return inspect.cleandoc(tree).replace("`", "")


def _as_markdown(docstring: str) -> str:
    return docstring.replace("``", "`")


def _schema() -> Iterator[str]:
    yield from ("# Tables", "")
    yield "What a SQL store keeps, for who looks there. It changes with `cronsensus db upgrade`, and is no interface:"
    yield "programs read with commands, pages or the library ([what stays stable](../stability.md#what-is-public))."
    yield "Types are those of PostgreSQL; instants are microseconds since 1970 in UTC."
    yield ""
    notes = _read_notes(inspect.getsource(schema))
    for table in schema.metadata.sorted_tables:
        yield from (f"## `{table.name}`", "", "| column | type | |", "|---|---|---|")
        for column in table.columns:
            note = notes.get((table.name, column.name), "")
            yield f"| `{column.name}` | {_type_of(column)} | {note} |"
        yield from ("", *_unique(table), "")


def _type_of(column: Column[object]) -> str:
    text = str(column.type.compile(dialect=postgresql.dialect()))  # type: ignore[no-untyped-call]
    text = text.partition(" COLLATE")[0]
    return f"`{text}`" + (", key" if column.primary_key else " or NULL" if column.nullable else "")


def _unique(table: Table) -> Iterator[str]:
    # PostgreSQL has some in another order of columns; what is unique is the same.
    kept = {frozenset(one.columns.keys()) for one in table.constraints if isinstance(one, UniqueConstraint)}
    for names in sorted(kept, key=sorted):
        yield f"One row for each {', '.join(f'`{name}`' for name in table.columns.keys() if name in names)}."  # noqa: SIM118


def _read_notes(source: str) -> dict[tuple[str, str], str]:
    """Return the comment that stands above a column, by table and column."""
    notes, table, comment = dict[tuple[str, str], str](), "", list[str]()
    for line in map(str.strip, source.splitlines()):
        if named := re.fullmatch(r'"(cronsensus_\w+)",', line):
            table = named[1]
        elif line.startswith("# "):
            comment.append(line.removeprefix("# "))
        else:
            if comment and (column := re.match(r'Column\(\s*"(\w+)"', line)):
                notes[table, column[1]] = " ".join(comment).replace("``", "`").replace("|", r"\|")
            comment = []
    return notes
