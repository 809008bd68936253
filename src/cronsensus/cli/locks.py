"""``cronsensus locks``: list the held locks, and break one."""

from __future__ import annotations

import dataclasses

import click

from cronsensus.cli.app import opened_store
from cronsensus.cli.errors import CommandError
from cronsensus.cli.group import Group
from cronsensus.cli.options import add_limit_option, add_operator_options
from cronsensus.cli.output import Cell, Output
from cronsensus.insight.time_words import brief_duration, relative_time


@click.group(cls=Group)
def locks() -> None:
    """List held locks, and free one that hangs.

    cronsensus locks list
    """


@locks.command("list")
@add_limit_option(200)
def list_(limit: int) -> None:
    """List the held locks: the holder, its token, for how long still.

    cronsensus locks list -o json
    """
    output = Output.current()
    with opened_store() as store:
        now = store.now()
        held = store.locks(limit=limit)
    if output.printed_json({"locks": [dataclasses.asdict(lock) for lock in held]}):
        return
    output.table(
        ["lock", "holder", "token", "held since", "ends in", "session"],
        [
            [
                Cell(lock.name, "bold"),
                lock.holder,
                str(lock.token),
                relative_time(lock.acquired_at, now),
                brief_duration(lock.expires_in),
                lock.session,
            ]
            for lock in held
        ],
        empty="no lock is held",
        prose=("lock",),
        spare=("session", "held since"),
    )


@locks.command("break")
@click.argument("name")
@add_operator_options(reason=True)
def break_(name: str, reason: str, by: str) -> None:
    """Free a lock in place of its holder.

    A former holder notices at its next renewal, and may work on until then.

    cronsensus locks break reindex --reason "host db-3 hangs"
    """
    output = Output.current()
    with opened_store() as store:
        broken = store.break_lock(name, by=by, why=reason)
        if not broken:
            held = ", ".join(dict.fromkeys(lock.name for lock in store.locks(limit=20))) or "none"
            raise CommandError(
                f"no process holds a lock {name!r}", why=f"held are: {held}", then="cronsensus locks list"
            )
    if output.printed_json({"broken": [dataclasses.asdict(freed) for freed in broken]}):
        return
    for freed in broken:
        output.line(f"freed {name}: it was held by {freed.holder} under the token {freed.token}")
