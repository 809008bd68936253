"""``cronsensus dashboard``: pages that show jobs, runs and nodes in a browser, and act on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cronsensus.cli.app import check_store, code_at_hand, opened_store
from cronsensus.cli.errors import CommandError
from cronsensus.cli.group import Command
from cronsensus.cli.options import whoami
from cronsensus.cli.output import print_message

if TYPE_CHECKING:
    from cronsensus.dashboard.serving import Server
    from cronsensus.scheduler import Scheduler
    from cronsensus.stores.base import Store

CHECK_EVERY = 1.0
"""Seconds between two checks whether a node has made the schema."""
F = TypeVar("F", bound=Callable[..., Any])


def add_dashboard_option(what: str) -> Callable[[F], F]:
    """Add ``--dashboard [PORT]``: the dashboard is served beside ``what``, to this machine."""
    return click.option(
        "--dashboard",
        "dashboard_port",
        is_flag=False,
        flag_value=8080,
        type=click.IntRange(0, 65535),
        metavar="[PORT]",
        help=f"Show {what} in a browser of this machine (8080; 0: any port that is free).",
    )


def open_server(
    source: Scheduler | Store, *, host: str = "127.0.0.1", port: int, read_only: bool = False, prefix: str = ""
) -> Server:
    """Return a dashboard that listens, and print its URL.

    Raises:
        CommandError: something else listens there.
        InvalidOption, MissingExtra: as in ``Server``.
    """
    from cronsensus.dashboard.serving import PortTakenError, Server

    try:
        server = Server(source, host=host, port=port, read_only=read_only, by=whoami(), prefix=prefix)
    except PortTakenError as error:
        problem, _, why = str(error).partition(": ")
        next_step = "cronsensus dashboard --port 0 takes a free one"
        raise CommandError(problem, why=why.partition(";")[0], then=next_step) from error
    if server.link == server.url:
        note = "it asks for the password; without TLS that travels readable"
    else:
        note = "this machine only; who has this URL may look" + ("" if read_only else " and act")
    print_message(f"dashboard: {server.link} ({note})")
    return server


@click.command(cls=Command)
@click.option(
    "--host", default="127.0.0.1", show_default=True, metavar="HOST", help="Others than this machine's need a password."
)
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="0: any that is free.")
@click.option("--read-only", is_flag=True, help="Nobody can act: pages show, and change nothing.")
@click.option(
    "--prefix", default="", metavar="PATH", help="Stand below a path, such as /cron, as a proxy passes it on."
)
def dashboard(host: str, port: int, prefix: str, *, read_only: bool) -> None:
    """Show jobs, runs and nodes in a browser, and act on them. Ctrl-C ends it.

    It answers this machine only, and prints a URL with a token, without which nothing is shown. From elsewhere,
    tunnel: ssh -L 8080:127.0.0.1:8080 THE-MACHINE. Or set CRONSENSUS_DASHBOARD_TOKEN; then it asks for that, after each
    start for the same, and may listen on any address.

    cronsensus dashboard
    cronsensus dashboard --url sqlite:///cronsensus.db --port 8090
    """
    with opened_store(check=False) as store:
        _wait_for_schema(store)
        # With the application, pages know what comes after what.
        source = code_at_hand() or store
        open_server(source, host=host, port=port, read_only=read_only, prefix=prefix).serve()


def _wait_for_schema(store: Store) -> None:
    """Wait until a node has made the schema: dashboard and nodes are often started together."""
    from cronsensus.errors import SchemaMissing
    from cronsensus.process.interrupts import Event

    has_printed = False
    while True:
        try:
            check_store(store)
        except SchemaMissing as error:
            if not has_printed:
                has_printed = True
                print_message(f"waiting for the first node: {error}")
            Event().wait(CHECK_EVERY)
        else:
            return
