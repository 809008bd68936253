"""``cronsensus dashboard``: pages that show jobs, runs and nodes in a browser, and act on them."""

from __future__ import annotations

import socket

import click

from cronsensus.cli.app import opened_store
from cronsensus.cli.errors import CommandError
from cronsensus.cli.group import Command
from cronsensus.cli.options import whoami
from cronsensus.cli.output import message


@click.command(cls=Command)
@click.option(
    "--host", default="127.0.0.1", show_default=True, metavar="HOST", help="Others than this machine's need a password."
)
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="0: any that is free.")
@click.option("--read-only", is_flag=True, help="Nobody can act: pages show, and change nothing.")
def dashboard(host: str, port: int, *, read_only: bool) -> None:
    """Show jobs, runs and nodes in a browser, and act on them. Ctrl-C ends it.

    It answers this machine only. From elsewhere, tunnel: ssh -L 8080:127.0.0.1:8080 THE-MACHINE. Or set
    CRONSENSUS_DASHBOARD_TOKEN; then it asks for that and may listen on any address.

    cronsensus dashboard
    cronsensus dashboard --url sqlite:///cronsensus.db --port 8090
    """
    from cronsensus.dashboard.access import require_loopback
    from cronsensus.dashboard.passwords import from_environment

    password = from_environment()
    if password is None:
        require_loopback(host)
    try:
        import uvicorn
    except ImportError as error:
        from cronsensus.errors import MissingExtra

        raise MissingExtra(
            f'the dashboard needs {error.name}, which is not installed; pip install "cronsensus[dashboard]"'
        ) from error
    from cronsensus.dashboard.app import dashboard as application

    with opened_store() as store:
        listener = _listen(host, port)
        shown = f"[{host}]" if ":" in host else host
        who = "this machine only" if password is None else "it asks for the password; without TLS it travels readable"
        message(f"dashboard: http://{shown}:{listener.getsockname()[1]}/ ({who}; Ctrl-C ends it)")
        # With proxy_headers a header of the request would say who the peer is.
        settings = uvicorn.Config(
            application(store, read_only=read_only, by=whoami()),
            proxy_headers=False,
            server_header=False,
            access_log=False,
            log_level="warning",
            # Open pages listen to streams that end by themselves only after a while.
            timeout_graceful_shutdown=1,
        )
        uvicorn.Server(settings).run(sockets=[listener])


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise CommandError(
            f"cannot listen on {host}:{port}", why=str(error), then="cronsensus dashboard --port 0 takes a free one"
        ) from error
