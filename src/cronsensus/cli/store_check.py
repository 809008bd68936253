"""``cronsensus store-check``: test the guarantees of stores on the store behind a URL."""

from __future__ import annotations

import importlib.util
from collections import Counter
from typing import TYPE_CHECKING

import click

from cronsensus.cli.errors import FAILED, OK, CommandError
from cronsensus.cli.group import Command
from cronsensus.cli.output import Cell, Output, print_message
from cronsensus.errors import SchemaMissing
from cronsensus.security.masking import mask
from cronsensus.stores import open_store

if TYPE_CHECKING:
    from cronsensus.testing.store_check import Rule

_LONGEST_REASON = 300
"""Characters of a reason that are shown."""


@click.command(cls=Command)
@click.argument("stores", metavar="STORE_URL...", nargs=-1, required=True)
@click.option("--only", metavar="WORDS", default="", help="Try the rules with these words, as pytest's -k takes them.")
def store_check(stores: tuple[str, ...], only: str) -> int:
    """Try each rule that stores promise on the store behind STORE_URL; exit code 1 if one does not hold.

    Several URLs name servers of one cluster that all take writes: each handle takes the next of them.

    For a server that nobody has tried: a fork of PostgreSQL or MySQL, a proxy, a hosted database. It takes some
    minutes, and a namespace of its own for each rule; what it writes stays. So name an empty database.

    cronsensus store-check postgresql://shop@db/scratch
    cronsensus store-check redis://cache:6379/15 --only "lock and not wait"
    """
    if importlib.util.find_spec("pytest") is None:
        raise CommandError("the rules are tests, and pytest is not installed", then="pip install pytest")
    _refuse_store_in_use(stores[0])
    from cronsensus.testing.store_check import check_store_at

    output = Output.current()

    def print_broken(rule: Rule) -> None:
        if rule.why and not output.as_json:
            output.line(Cell(f"broken  {rule.hazard}: {rule.name}", "red"))
            output.line(f"        {mask(rule.why)[:_LONGEST_REASON]}")

    rules = check_store_at(*stores, only=only, tell=print_broken)
    if not rules:
        raise CommandError(f"no rule has the words {only!r}", then="leave out --only")
    broken = [rule for rule in rules if rule.why]
    if output.as_json:
        named = [{"hazard": rule.hazard, "rule": rule.name, "why": mask(rule.why)} for rule in broken]
        output.document({"ok": not broken, "rules": len(rules), "broken": named})
        return FAILED if broken else OK
    tried, failed = Counter(rule.hazard for rule in rules), Counter(rule.hazard for rule in broken)
    for hazard, number in tried.items():
        output.line(Cell(f"{hazard}: {number - failed[hazard]} of {number} hold", "red" if failed[hazard] else "green"))
    verdict = f"{len(broken)} of {len(rules)} rules do not hold" if broken else f"all {len(rules)} rules hold"
    output.line(Cell(verdict, "bold red" if broken else "bold green"))
    print_message("what it wrote stays: drop the database, or delete what has check- in its namespace")
    return FAILED if broken else OK


def _refuse_store_in_use(url: str) -> None:
    """Raise if the default namespace has jobs or sessions."""
    store = open_store(url)
    try:
        store.check()
        used = store.jobs() or store.sessions()
    except SchemaMissing:
        used = []
    finally:
        store.close()
    if used:
        raise CommandError(
            f"{mask(url)} is a store in use, and the rules would be tried in its tables",
            then="name an empty database; or another ?schema= (PostgreSQL) or ?prefix= (Redis)",
        )
