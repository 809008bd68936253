"""``cronsensus config``: each setting, and where it comes from."""

from __future__ import annotations

from typing import Any

import click

from cronsensus.cli.app import known_settings
from cronsensus.cli.group import Command
from cronsensus.cli.output import Cell, Output, message
from cronsensus.masking import mask


@click.command(cls=Command)
def config() -> None:
    """Show each setting and its source: flag, argument, environment, pyproject.toml, or default. Secrets are masked.

    cronsensus config
    cronsensus config --app jobs:scheduler -o json
    """
    from cronsensus.config import misspelt

    output = Output.current()
    known, of = known_settings()
    for sentence in misspelt():
        message(f"note: {sentence}")
    if output.as_json:
        rows = {name: {"value": _plain(known.value(name)), "source": known.source(name)} for name in known.names()}
        output.document({"app": of, "settings": rows})
        return
    output.table(
        ["setting", "value", "source"],
        [
            [Cell(name, "bold"), known.shown(name) or "-", Cell(known.source(name), _style(known.source(name)))]
            for name in known.names()
            # An application that was found and not named is no setting; which it is stands below.
            if of is None or name != "app" or known.app is not None
        ],
    )
    message(f"settings of {of}" if of else "no application: what it gives as arguments is not in this list")


def _plain(value: Any) -> Any:
    return mask(value) if isinstance(value, str) else value


def _style(source: str) -> str:
    return "dim" if source == "default" else ""
