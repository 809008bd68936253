"""``cronsensus once``: forget recorded calls of guarded functions."""

from __future__ import annotations

import click

from cronsensus.cli.app import opened_store
from cronsensus.cli.errors import CommandError
from cronsensus.cli.group import Group
from cronsensus.cli.options import add_operator_options
from cronsensus.cli.output import Output
from cronsensus.errors import InvalidTransition
from cronsensus.insight.lookup import require_job
from cronsensus.insight.time_words import shorten
from cronsensus.model.job import GUARDED
from cronsensus.stores.base import Store


@click.group(cls=Group)
def once() -> None:
    """Forget what is recorded of a call of a guarded function.

    cronsensus once forget charge charge:4711
    """


@once.command()
@click.argument("function", metavar="FUNCTION")
@click.argument("key", metavar="KEY")
@click.option("--running", is_flag=True, help="Also while the function runs; the next call then runs beside it.")
@add_operator_options()
def forget(*, function: str, key: str, running: bool, reason: str, by: str) -> None:
    """Forget what is recorded under a key, so that the next call runs the function.

    FUNCTION is the name of the function, or of its job, such as once:charge. KEY is as the list of runs shows it.

    cronsensus runs list --job once:charge
    cronsensus once forget charge charge:4711 --reason "wrong amount"
    """
    output = Output.current()
    with opened_store() as store:
        name = _guarded_job(store, function)
        try:
            state = store.forget(name, key, by=by, why=reason, running=running)
        except InvalidTransition as error:
            raise CommandError(
                f"{name} is running under the key {shorten(key, 60)!r}",
                why="forgotten now, it could run a second time beside this one",
                then="wait for its end, or say that it is meant: --running",
            ) from error
        if state is None:
            raise CommandError(
                f"nothing is recorded of {name} under the key {shorten(key, 60)!r}",
                why="it never ran under it, or that was pruned, or forgotten",
                then=f"see the keys: cronsensus runs list --job {name}",
            )
        store.notify()
    if output.printed_json({"job": name, "key": key, "was": state}):
        return
    output.line(f"{name} under the key {shorten(key, 200)} was {state}, and is forgotten: the next call runs it")


def _guarded_job(store: Store, function: str) -> str:
    """Return the name of a guarded function's job, from that name or from the function's."""
    names = [function] if function.startswith(GUARDED) else [f"{kind}{function}" for kind in GUARDED]
    found = [name for name in names if store.job(name) is not None]
    if len(found) > 1:
        raise CommandError(
            f"{shorten(function, 60)!r} is guarded in several ways: {', '.join(found)}",
            then="name the one that is meant",
        )
    if found:
        return found[0]
    view = require_job(store, function, declared=[view.spec.name for view in store.jobs(limit=1000)])
    if not view.spec.guarded:
        raise CommandError(
            f"{shorten(function, 60)!r} is a job, not a guarded function",
            why="what it ran is history; nothing is repeated because of it",
            then="run it again: cronsensus runs retry ID; see guarded functions: cronsensus jobs list --all",
        )
    return view.spec.name
