"""``cronsensus demo``: see it work, in half a minute, with nothing to prepare.

``nodes`` starts and kills processes, ``app`` is what they run, ``trace`` is the count that the runs keep outside of
the store, ``stage`` is the plot, ``screen`` shows it, ``comparison`` and ``verdict`` judge it.
"""

from __future__ import annotations

import json
import shutil
import signal
import tempfile
from contextlib import ExitStack
from pathlib import Path

import click

from cronsensus.cli.dashboard import add_dashboard_option, open_server
from cronsensus.cli.errors import FAILED, OK, CommandError
from cronsensus.cli.group import Command, Invocation
from cronsensus.cli.output import Output, print_message
from cronsensus.timing.instants import format_instant

MOST_NODES = 16


@click.command(cls=Command)
@click.option("--nodes", type=click.IntRange(2, MOST_NODES), default=3, show_default=True, metavar="N",
              help="How many node processes.")  # fmt: skip
@click.option("--seconds", type=click.IntRange(8, 3600), default=30, show_default=True, metavar="S",
              help="How long, about.")  # fmt: skip
@click.option("--batch", is_flag=True, help="Also a batch: 90 pictures, over all nodes.")
@click.option("--keep", is_flag=True, help="Keep the store and the logs, and say where they are.")
@add_dashboard_option("the nodes")
def demo(*, nodes: int, seconds: int, batch: bool, keep: bool, dashboard_port: int | None) -> int:
    """Start real nodes, kill one in the middle of a run, watch the takeover.

    Three processes share one schedule on a SQLite file in a temporary folder. One of them is killed with SIGKILL
    while it works; another takes its run over. At the end the whole ledger is audited, and compared with a count that
    the jobs kept themselves. Exit code 1 if anything is not as promised.

    cronsensus demo
    cronsensus demo --nodes 5 --seconds 60
    cronsensus demo --seconds 600 --dashboard
    cronsensus demo --batch
    cronsensus demo -o json
    """
    from cronsensus.cli.demo.nodes import Nodes
    from cronsensus.cli.demo.screen import Lanes, Screen
    from cronsensus.cli.demo.stage import Stage
    from cronsensus.cli.demo.verdict import Verdict
    from cronsensus.stores import open_store
    from cronsensus.timing.clock import SystemClock

    output, clock = Output.current(), SystemClock()
    given = Invocation.current().url
    if given is not None and given.startswith("memory:"):
        raise CommandError("memory:// lives inside of one process", then="leave --url out, or name a shared store")
    folder = Path(tempfile.mkdtemp(prefix="cronsensus-demo-"))
    url = given or f"sqlite:///{folder / 'demo.db'}"
    namespace = f"demo-{clock.now():%Y%m%d-%H%M%S}"
    previous = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with ExitStack() as stack:
            store = open_store(url, namespace=namespace)
            stack.callback(store.close)
            store.migrate()
            if dashboard_port is not None:
                stack.enter_context(open_server(store, port=dashboard_port).beside())
            running = Nodes(url, namespace, folder, clock)
            stack.callback(running.stop, 3.0)
            title = f"{nodes} processes, {'one SQLite file' if given is None else 'one store'}, no leader"
            lanes = Lanes([f"node-{number}" for number in range(1, nodes + 1)])
            screen = Screen(lanes, title, live=output.terminal, to_stderr=output.as_json)
            if screen.live:
                from rich.live import Live

                live = Live(screen, console=output.console, refresh_per_second=15, redirect_stdout=False)
                stack.enter_context(live)
            stage = Stage(running, store, screen, clock=clock, batch=batch)
            stage.play(seconds)
            verdict = Verdict(store, stage)
            for job in store.jobs(limit=100):
                store.retire(job.spec.name, by="cronsensus demo", why="the demo is over")
    finally:
        signal.signal(signal.SIGTERM, previous)
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    if output.as_json:
        output.line(json.dumps(verdict.to_json(nodes=nodes, seconds=seconds)))
    else:
        verdict.print_verdict(output)
    if keep or given is not None:
        where = f"kept in {folder}; " if keep else ""
        look = f"cronsensus --url {url} --namespace {namespace} audit --to {format_instant(stage.until)}"
        print_message(f"{where}look around:\n{look}")
    return FAILED if verdict.problems else OK
