"""``cronsensus locks``: who holds what. Floor 7."""

from __future__ import annotations

import dataclasses

import click

from cronsensus.cli.app import opened_store
from cronsensus.cli.group import Group
from cronsensus.cli.options import limited
from cronsensus.cli.output import Cell, Output
from cronsensus.cli.words import brief, relative


@click.group(cls=Group)
def locks() -> None:
    """List held locks.

    cronsensus locks list
    """


@locks.command("list")
@limited(200)
def list_(limit: int) -> None:
    """List the locks that somebody holds: who, under which token, for how long still.

    cronsensus locks list -o json
    """
    output = Output.current()
    with opened_store() as store:
        now = store.now()
        found = store.locks(limit=limit)
    if output.as_json:
        output.document({"locks": [dataclasses.asdict(one) for one in found]})
        return
    output.table(
        ["lock", "holder", "token", "held since", "ends in", "session"],
        [
            [
                Cell(one.name, "bold"),
                one.holder,
                str(one.token),
                relative(one.acquired_at, now),
                brief(one.expires_in),
                one.session,
            ]
            for one in found
        ],
        empty="no lock is held",
        prose=("lock",),
        spare=("session", "held since"),
    )
