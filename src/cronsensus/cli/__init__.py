"""The command line: ``main`` and the table of commands. One file per command, each loaded when it is typed.

Nothing here imports a store, a driver, rich or the application; so ``cronsensus --help`` costs little more than Python.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

import click

from cronsensus.cli.group import Invocation, LazyGroup

COMMANDS = {
    "Try it out (needs no store)": {
        "demo": "Start real nodes, kill one in the middle of a run, watch the takeover.",
        "next": "Say a cron expression or a job in words, with its next times and clock changes.",
    },
    "Run": {
        "run": "Run a node: as many as you like, on as many machines as you like.",
        "consume": "Consume a queue of RabbitMQ: each message once, over all consumers.",
        "lint": "Look over an application's jobs for what is legal but rarely meant.",
        "migrate": "Print another scheduler's jobs as code of cronsensus.",
    },
    "Look and operate": {
        "dashboard": "Show jobs, runs and nodes in a browser, and act on them.",
        "jobs": "List, show, pause, resume, trigger, enqueue, backfill jobs.",
        "runs": "List, show, retry and cancel runs; read their logs.",
        "nodes": "List and drain nodes.",
        "locks": "List held locks.",
        "alerts": "List the alerts, send a test message, mute a job.",
        "trail": "Show who did what, and why.",
        "once": "Forget what is recorded of a call of a guarded function.",
    },
    "Find out and prove": {
        "graph": "Show which job comes after which, and how far a night is.",
        "ledger": "Show the verdict on each nominal time of a job.",
        "why": "Say why a job did or did not run at a time.",
        "audit": "Check the whole ledger: each nominal time once, none missing.",
    },
    "Set up and care": {
        "db": "Upgrade, check and prune the store.",
        "doctor": "Examine the store, the nodes and the jobs; say what is wrong.",
        "store-check": "Try whether a store keeps what stores promise: for servers that nobody has tried.",
        "health": "Answer a probe: is the store there, does a node live?",
        "config": "Show each setting and where it comes from.",
    },
}
"""By section: each command's name, which is its module's too (with _ for -), and its line in the help."""

HELP = """Start the same code on every replica; each scheduled occurrence is run by exactly one of them.

  cronsensus demo                      see it work
  cronsensus next "0 9 * * MON-FRI"    when is that?
  cronsensus run jobs:scheduler        be a node
"""

EPILOG = """Exit codes: 0 ok, 1 the check failed, 2 usage or import error, 3 store unreachable.

Completion: eval "$(_CRONSENSUS_COMPLETE=bash_source cronsensus)" (or zsh_source, fish_source)."""

cli = LazyGroup(
    name="cronsensus",
    sections=COMMANDS,
    help=HELP,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
_PYTHON = sys.version.split()[0]
click.version_option(package_name="cronsensus", message=f"cronsensus %(version)s, Python {_PYTHON}")(cli)


def _end(number: int, _frame: FrameType | None) -> None:
    """End this process as an unhandled ``number`` does."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    os._exit(128 + number)  # reached only by process 1 of a container: to it the kernel delivers no default


def main(arguments: Sequence[str] | None = None, *, program: str = "cronsensus", app: str | None = None) -> None:
    """Run the command line and exit; the entry point of the program ``cronsensus``.

    Args:
        arguments: what was typed behind its name; ``None``: those of this process.
        program: its name, where it is a part of another program, as people type it.
        app: the application that such a program is for, as ``MODULE:ATTR``.
    """
    # Before a node handles SIGTERM it imports the application and connects. Process 1 would never hear of one then.
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _end)
    for stream in (sys.stdout, sys.stderr):
        # A name in a script that this terminal cannot show must not end a command half-way.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    cli.main(arguments, prog_name=program, obj=Invocation(program, program_app=app, app=app))


__all__ = ["COMMANDS", "cli", "main"]
