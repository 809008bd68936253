"""``cronsensus run``: a node."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from cronsensus.cli.app import complete_app, load_application
from cronsensus.cli.dashboard import add_dashboard_option, open_server
from cronsensus.cli.errors import CommandError
from cronsensus.cli.group import Command, Invocation
from cronsensus.cli.options import DurationType, PlaceType
from cronsensus.cli.output import print_message
from cronsensus.cli.terminal import clean_text
from cronsensus.insight.live_nodes import live_nodes
from cronsensus.insight.standstill import every_standstill
from cronsensus.insight.time_words import format_count, relative_time
from cronsensus.triggers.zone_rules import zone_rules_of
from cronsensus.triggers.zones import load_zone

if TYPE_CHECKING:
    from cronsensus.scheduler import Scheduler

FOREVER = "36500d"
"""``--wait`` without a time."""
_MOST_SHOWN = 3


@click.command(cls=Command)
@click.argument("name", required=False, metavar="[APP]", shell_complete=complete_app)
@click.option("--concurrency", type=click.IntRange(1, 10_000), metavar="N", help="Most runs at a time on this node.")
@click.option(
    "--drain-timeout", type=DurationType(), metavar="TIME", help="How long runs may go on after SIGTERM or Ctrl-C."
)
@click.option("--node", metavar="NAME", help="The node's name, for people (default: host and pid).")
@click.option("--log-format", type=click.Choice(["text", "json"]), help="Log lines for people or for programs.")
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"], case_sensitive=False),
    help="Least level to log.",
)
@click.option(
    "--wait",
    is_flag=False,
    flag_value=FOREVER,
    default="0s",
    type=DurationType(),
    metavar="[TIME]",
    help="Wait for a store that cannot be reached, for so long or until it is there; else exit 3.",
)
@add_dashboard_option("it")
@click.option(
    "--metrics",
    "metrics_at",
    type=PlaceType(),
    metavar="[HOST:]PORT",
    help="Serve /metrics for Prometheus, and /ready for probes; 0.0.0.0:9464 lets other machines ask.",
)
@click.option(
    "--metrics-jobs",
    multiple=True,
    metavar="PATTERN",
    help="Jobs that have series of their own, such as 'billing-*'; may be repeated.",
)
def run(
    name: str | None,
    wait: timedelta,
    dashboard_port: int | None,
    metrics_at: tuple[str, int] | None,
    metrics_jobs: tuple[str, ...],
    **flags: Any,
) -> None:
    """Run a node: fire what is due, run what is claimed, take over from nodes that died.

    Start it as often as you like, on as many machines as you like: each occurrence is run by exactly one node. SIGTERM
    and Ctrl-C drain it: what runs gets --drain-timeout, the rest goes back at once for other nodes to take.

    cronsensus run jobs:scheduler
    cronsensus run jobs:scheduler --concurrency 20 --log-format json
    cronsensus run jobs:scheduler --dashboard --metrics 9464
    cronsensus run jobs:scheduler --wait=2m
    """
    from cronsensus.cli.log import start_logging
    from cronsensus.lifecycle.signals import StopSignals
    from cronsensus.lifecycle.starting import Tries
    from cronsensus.stores.connecting import connecting

    if name is not None:
        Invocation.current().app = name
    application = load_application(name, **flags)
    scheduler = application.scheduler
    settings = scheduler.settings
    start_logging(settings.log_format, settings.log_level, node=scheduler.node_name)
    # The store is opened before the greeting, which would otherwise look as if the node ran.
    with StopSignals() as signals:
        for pause in (tries := Tries(wait.total_seconds())):
            if not signals.is_asked() and signals.wait(pause) is None:
                with tries, connecting(settings.url, print_message):
                    applied = scheduler.store.migrate()
            if signals.is_asked():
                print_message("stopped before it took part; nothing was started")
                return
    if settings.log_format == "text":
        _greet(application.name, scheduler, is_new=bool(applied))
    # The objects that exist now stay until the end. The garbage collector need not scan them each time: that takes
    # 40 ms, in which no run starts.
    gc.freeze()
    with _shown(scheduler, dashboard_port), _measured(scheduler, metrics_at, metrics_jobs):
        scheduler.run(wait=wait)


@contextmanager
def _shown(scheduler: Scheduler, port: int | None) -> Iterator[None]:
    """Serve the dashboard beside a node. If the port is taken, the node runs without it."""
    if port is None:
        yield
        return
    try:
        shown = open_server(scheduler, port=port)
    except CommandError as error:
        print_message(f"no dashboard: {error}; the node runs without it")
        yield
        return
    with shown.beside():
        yield


@contextmanager
def _measured(scheduler: Scheduler, at: tuple[str, int] | None, jobs: tuple[str, ...]) -> Iterator[None]:
    """Serve metrics beside a node. If the port is taken, the node runs without them."""
    if at is None:
        yield
        return
    from cronsensus.metrics.serving import PortTakenError, Server

    host, port = at
    try:
        served = Server(scheduler, host=host, port=port, jobs=jobs)
    except PortTakenError as error:
        print_message(f"no metrics: {error}; the node runs without them")
        yield
        return
    alone = host in {"127.0.0.1", "localhost"}
    audience = f"this machine only; --metrics 0.0.0.0:{port} for others" if alone else "whoever reaches it"
    print_message(f"metrics: {served.url} ({audience})")
    with served.beside():
        yield


def _greet(name: str, scheduler: Scheduler, *, is_new: bool) -> None:
    """Print the store, the number of jobs and of other nodes, and the first time: an idle node shows why it is idle."""
    settings, now = scheduler.settings, scheduler.store.now()
    others = len(live_nodes(scheduler.store))
    store_file = scheduler.store.describe().get("file")
    store_text = settings.shown("url") + (
        f" ({store_file})" if store_file and str(store_file) not in settings.url else ""
    )
    if is_new and not others:
        store_text += ", new"
    standing_still = {
        standstill.view.spec.name: standstill
        for standstill in every_standstill(scheduler.store, load_zone(settings.tz))
        if not (standstill.is_by_zone_rules and standstill.view.spec.name in scheduler.jobs)  # this start sets it right
    }
    times = {
        job: nominal if job not in standing_still else standing_still[job].until
        for job, declared in scheduler.jobs.items()
        if declared.rule is not None and (nominal := declared.rule.next_after(now)) is not None
    }
    print_message(f"{name}: node {scheduler.node_name}, store {store_text}, {format_count(len(scheduler.jobs), 'job')}")
    print_message(
        f"{format_count(others, 'other node')} alive" if others else "no other node is alive: start more, anywhere"
    )
    rules = zone_rules_of(declared.rule for declared in scheduler.jobs.values())
    if rules.digests:
        print_message(f"zone rules: tzdata {rules.version}")
    if settings.url.startswith("memory:"):
        print_message(
            "note: memory:// is not shared with other processes; for several nodes give --url sqlite:///cronsensus.db"
        )
    for standstill in list(standing_still.values())[:_MOST_SHOWN]:
        sentence, job = clean_text(str(standstill.sentence)), clean_text(standstill.view.spec.name)
        print_message(f"note: {sentence}; take it back to now: cronsensus jobs rewind '{job}'")
    if len(standing_still) > _MOST_SHOWN:
        print_message(f"note: {len(standing_still) - _MOST_SHOWN} more stand still; see them: cronsensus jobs list")
    if times:
        first_job = min(times, key=lambda job: times[job])
        print_message(f"first: {clean_text(first_job)} {relative_time(times[first_job], now)}; Ctrl-C drains")
    else:
        print_message("no job has a time to come: it waits for what is enqueued or triggered; Ctrl-C drains")
