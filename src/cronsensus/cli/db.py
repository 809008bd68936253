"""``cronsensus db``: the care of the store."""

from __future__ import annotations

from datetime import datetime

import click

from cronsensus.cli.app import opened_store
from cronsensus.cli.asking import confirm_act
from cronsensus.cli.errors import CommandError
from cronsensus.cli.group import Group
from cronsensus.cli.options import whoami
from cronsensus.cli.output import Cell, Output, print_message
from cronsensus.cli.zones import default_zone
from cronsensus.insight.time_words import exact_time, read_time
from cronsensus.model.states import Reason
from cronsensus.security.masking import mask

_BATCH_SIZE = 1000


@click.group(cls=Group)
def db() -> None:
    """Upgrade, check and prune the store.

    cronsensus db upgrade --url sqlite:///cronsensus.db
    """


@db.command()
def upgrade() -> None:
    """Bring the schema up to this version of cronsensus; nothing happens to a schema that is. Only ever forward.

    Nodes do this too when they start. It is safe while others run it.

    cronsensus db upgrade --url sqlite:///cronsensus.db
    """
    output = Output.current()
    with opened_store(check=False) as store:
        applied = store.migrate()
    if output.printed_json({"applied": applied}):
        return
    for name in applied:
        output.line(f"applied {name}")
    output.line(Cell("the schema is up to date", "green"))


@db.command()
def check() -> None:
    """Check that the store can be used as it is; exit code 3 if not, with the reason.

    cronsensus db check -o json
    """
    output = Output.current()
    with opened_store(writable=True) as store:
        described = {key: mask(value) if isinstance(value, str) else value for key, value in store.describe().items()}
    if output.printed_json({"ok": True, "store": described}):
        return
    output.line(Cell("ok: the store can be used", "green"))
    output.pairs([(key.replace("_", " "), str(value)) for key, value in described.items()])


@db.command()
@click.option(
    "--before", metavar="TIME", help="Prune what ended before then; 90d means 90 days ago (default: each job's keep)."
)
@click.option("--yes", is_flag=True, help="Do not ask.")
def prune(before: str | None, *, yes: bool) -> None:
    """Delete runs that have ended, with their logs, and old verdicts; what was pruned can still never run again.

    Nodes do this too, once an hour, after each job's keep. What something open needs is left: a batch that is tried
    again, and what a waiting run comes after. --before goes by no keep and leaves neither, and so it asks first: a key
    whose run is deleted is new again.

    cronsensus db prune
    cronsensus db prune --before 90d
    """
    output = Output.current()
    with opened_store() as store:
        now, zone = store.now(), default_zone()
        bound: datetime | None = None if before is None else read_time(before, now, tz=zone, what="--before")
        shown = "" if bound is None else exact_time(bound, zone)
        if bound is not None and bound > now:
            raise CommandError(f"--before {shown} lies in the future", then="cronsensus db prune --before 30d")
        if bound is not None and not yes:
            confirm_act(
                f"Delete all of namespace {store.namespace!r} that ended before {shown}, whatever each job's "
                "keep says?",
                about=f"what ended before {shown} is to be deleted, whatever each job's keep says",
                then="the same with --yes; or without --before, which goes by each job's keep",
            )
        batch = store.prune(bound, limit=_BATCH_SIZE, by=whoami())
        deleted, needed = int(batch), batch.needed
        while batch == _BATCH_SIZE:
            batch = store.prune(bound, limit=_BATCH_SIZE, by=whoami())
            deleted, needed = deleted + batch, needed + batch.needed
            if output.terminal:
                print_message(f"{deleted:,} so far")
    if output.printed_json({"deleted": deleted, "needed": needed, "before": bound}):
        return
    output.line(f"deleted {deleted:,}" + ("" if bound is None else f" from before {shown}"))
    if needed:
        output.line(
            f"{needed:,} of them may be needed by what is open: a run that waits for its upstreams is skipped, a batch "
            f"that is a retry fails, each with the reason “{Reason.UPSTREAM_PRUNED}”. See them: cronsensus runs list "
            "--state failed, and --state skipped"
        )
