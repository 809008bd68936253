"""``cronsensus doctor``: examine the store, the nodes and the jobs."""

from __future__ import annotations

import click

from cronsensus.cli.app import opened_store
from cronsensus.cli.errors import FAILED, OK, code_of
from cronsensus.cli.group import Command, Invocation
from cronsensus.cli.output import Cell, Output, style_state
from cronsensus.cli.terminal import pad_text
from cronsensus.cli.zones import default_zone
from cronsensus.errors import StoreError
from cronsensus.insight.check import FAIL, OK_LEVEL, WARN, Check
from cronsensus.insight.doctor import examine_store, unusable_store


@click.command(cls=Command)
def doctor() -> int:
    """Examine the store, the nodes and the jobs; say what is wrong and what to type. Exit code 1 if something fails.

    cronsensus doctor
    cronsensus doctor --url sqlite:///cronsensus.db -o json
    """
    output = Output.current()
    checks: list[Check] = []
    code = OK
    try:
        with opened_store(check=False) as store:
            checks += examine_store(store, default_zone())
    except StoreError as error:
        checks.append(unusable_store(error))
        code = code_of(error)
    fails = sum(check.level == FAIL for check in checks)
    warnings = sum(check.level == WARN for check in checks)
    if output.as_json:
        rows = [
            {"check": check.name, "level": check.level, "text": check.text, "next": check.then or None}
            for check in checks
        ]
        output.document({"ok": not fails, "checks": rows})
    else:
        width = max((len(check.name) for check in checks), default=0)
        for check in checks:
            name, style = pad_text(check.name, width), style_state(check.level).style
            output.line(Cell(f"{check.level:<4}  {name}  {check.text}", style))
            if check.then and check.level != OK_LEVEL:
                output.line(f"      {' ' * width}  next: {Invocation.current().typed(check.then)}")
        verdict = f"{fails} failed, {warnings} to look at" if fails or warnings else "all is well"
        output.line(Cell(verdict, "bold red" if fails else "yellow" if warnings else "bold green"))
    return code or (FAILED if fails else OK)
