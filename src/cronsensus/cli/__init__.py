"""The command line: ``main`` and the table of commands. One file per command, each loaded when it is typed.

Nothing here imports a store, a driver, rich or the application; so ``cronsensus --help`` costs little more than Python.
"""

from __future__ import annotations

import sys

import click

from cronsensus.cli.group import Entry, LazyGroup

TRY = "Try it out (needs no store)"
RUN = "Run"
OPERATE = "Look and operate"
PROVE = "Find out and prove"
CARE = "Set up and care"

COMMANDS = {
    "demo": Entry(
        "cronsensus.cli.demo", "demo", "Start real nodes, kill one in the middle of a run, watch the takeover.", TRY
    ),
    "next": Entry("cronsensus.cli.next", "next_", "Show the next fire times of a cron expression or a job.", TRY),
    "explain": Entry(
        "cronsensus.cli.explain", "explain", "Say a cron expression in words, and what clock changes do to it.", TRY
    ),
    "run": Entry("cronsensus.cli.run", "run", "Run a node: as many as you like, on as many machines as you like.", RUN),
    "lint": Entry(
        "cronsensus.cli.lint", "lint", "Look over an application's jobs for what is legal but rarely meant.", RUN
    ),
    "jobs": Entry(
        "cronsensus.cli.jobs", "jobs", "List, show, pause, resume, trigger, enqueue, backfill jobs.", OPERATE
    ),
    "runs": Entry("cronsensus.cli.runs", "runs", "List, show, retry and cancel runs; read their logs.", OPERATE),
    "nodes": Entry("cronsensus.cli.nodes", "nodes", "List and drain nodes.", OPERATE),
    "locks": Entry("cronsensus.cli.locks", "locks", "List held locks.", OPERATE),
    "once": Entry("cronsensus.cli.once", "once", "Forget what is recorded of a call of a guarded function.", OPERATE),
    "ledger": Entry("cronsensus.cli.ledger", "ledger", "Show the verdict on each nominal time of a job.", PROVE),
    "why": Entry("cronsensus.cli.why", "why", "Say why a job did or did not run at a time.", PROVE),
    "audit": Entry(
        "cronsensus.cli.audit", "audit", "Check the whole ledger: each nominal time once, none missing.", PROVE
    ),
    "db": Entry("cronsensus.cli.db", "db", "Upgrade, check and prune the store.", CARE),
    "doctor": Entry(
        "cronsensus.cli.doctor", "doctor", "Examine the store, the nodes and the jobs; say what is wrong.", CARE
    ),
    "health": Entry("cronsensus.cli.health", "health", "Answer a probe: is the store there, does a node live?", CARE),
    "config": Entry("cronsensus.cli.config", "config", "Show each setting and where it comes from.", CARE),
}

HELP = """Start the same code on every replica; each scheduled occurrence is run by exactly one of them.

  cronsensus demo                      see it work
  cronsensus next "0 9 * * MON-FRI"    when is that?
  cronsensus run jobs:scheduler        be a node
"""

EPILOG = """Exit codes: 0 ok, 1 the check failed, 2 usage or import error, 3 store unreachable.

Completion: eval "$(_CRONSENSUS_COMPLETE=bash_source cronsensus)" (or zsh_source, fish_source)."""

cli = LazyGroup(
    name="cronsensus",
    table=COMMANDS,
    help=HELP,
    epilog=EPILOG,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


def main() -> None:
    """Run the command line and exit; the entry point of the program ``cronsensus``."""
    for stream in (sys.stdout, sys.stderr):
        # A name in a script that this terminal cannot show must not end a command half-way.
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    cli.main(prog_name="cronsensus")


__all__ = ["COMMANDS", "cli", "main"]

if __name__ == "__main__":
    click.echo("use: python -m cronsensus", err=True)
