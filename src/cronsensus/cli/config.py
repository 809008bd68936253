"""``cronsensus config``: each setting, and where it comes from."""

from __future__ import annotations

import click

from cronsensus.cli.app import known_settings
from cronsensus.cli.group import Command
from cronsensus.cli.output import Cell, Output, print_message
from cronsensus.security.masking import mask


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
        print_message(f"note: {sentence}")
    if output.as_json:
        values = {name: known.value(name) for name in known.names()}
        rows = {
            name: {"value": mask(value) if isinstance(value, str) else value, "source": known.source(name)}
            for name, value in values.items()
        }
        output.document({"app": of, "settings": rows})
        return
    output.table(
        ["setting", "value", "source"],
        [
            [Cell(name, "bold"), known.shown(name) or "-", Cell(source, "dim" if source == "default" else "")]
            for name, source in ((name, known.source(name)) for name in known.names())
            # An application that was found and not named is no setting; which it is stands below.
            if of is None or name != "app" or known.app is not None
        ],
    )
    print_message(f"settings of {of}" if of else "no application: what it gives as arguments is not in this list")
