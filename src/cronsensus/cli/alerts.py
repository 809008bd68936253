"""``cronsensus alerts``: list the alerts, send a test message, mute a job."""

from __future__ import annotations

from datetime import timedelta

import click

from cronsensus.alerts.muting import list_muted, mute_job, unmute_job
from cronsensus.cli.app import complete_app, complete_job, load_application, opened_store
from cronsensus.cli.errors import FAILED, OK, CommandError
from cronsensus.cli.group import Group, Invocation
from cronsensus.cli.options import DurationType, add_operator_options
from cronsensus.cli.output import Cell, Output, print_message
from cronsensus.cli.zones import JobZones
from cronsensus.errors import StoreError
from cronsensus.insight.lookup import require_job
from cronsensus.insight.time_words import brief_duration, exact_time, relative_time
from cronsensus.scheduler import Scheduler


@click.group(cls=Group)
def alerts() -> None:
    """List the alerts of an application, send test messages, and mute a job.

    cronsensus alerts list myapp:scheduler
    cronsensus alerts test myapp:scheduler
    cronsensus alerts mute backup --for 2h --reason "the disk is being replaced"
    """


def _loaded(name: str | None) -> Scheduler:
    if name is not None:
        Invocation.current().app = name
    scheduler = load_application(name).scheduler
    if scheduler.alerts is None:
        raise CommandError(
            "this application declares no alerts",
            then="write Scheduler(url, alerts=[Alert('https://…', on=['failed', 'missed'])]), or set CRONSENSUS_ALERTS",
        )
    return scheduler


@alerts.command("list")
@click.argument("name", required=False, metavar="[APP]", shell_complete=complete_app)
def list_(name: str | None) -> None:
    """List the alerts of an application, and the jobs that are muted.

    cronsensus alerts list myapp:scheduler
    """
    scheduler, output = _loaded(name), Output.current()
    assert scheduler.alerts is not None  # noqa: S101 - for the type checker
    try:
        with opened_store() as store:
            muted = list_muted(store)
    except StoreError as error:  # no node may have made the store yet; the alerts are known without it
        print_message(f"muted jobs cannot be read: {error}")
        muted = []
    rows = [
        {"name": alert.name, "on": list(alert.on), "jobs": list(alert.jobs), "target": alert.shown_target}
        for alert in scheduler.alerts.by_name.values()
    ]
    quiet = [
        {"job": alert.job, "by": alert.by, "reason": alert.reason, "seconds": alert.left.total_seconds()}
        for alert in muted
    ]
    if output.printed_json({"alerts": rows, "muted": quiet}):
        return
    output.table(
        ["alert", "on", "jobs", "to"],
        [
            [Cell(alert.name, "bold"), ", ".join(alert.on), ", ".join(alert.jobs), alert.shown_target]
            for alert in scheduler.alerts.by_name.values()
        ],
        prose=("on", "to"),
    )
    if muted:
        output.line()
        output.heading("Muted")
        output.table(
            ["job", "for", "by", "reason"],
            [[Cell(alert.job, "bold"), brief_duration(alert.left), alert.by, alert.reason] for alert in muted],
        )


@alerts.command()
@click.argument("name", required=False, metavar="[APP]", shell_complete=complete_app)
@click.option("--alert", metavar="NAME", help="Only this one.")
def test(name: str | None, alert: str | None) -> int:
    """Send a test message by each alert, from this machine, and print whether it was accepted.

    cronsensus alerts test myapp:scheduler
    """
    scheduler, output = _loaded(name), Output.current()
    alerts = scheduler.alerts
    assert alerts is not None  # noqa: S101 - for the type checker
    if alert is not None and alert not in alerts.by_name:
        raise CommandError(f"no alert is called {alert!r}; there are {', '.join(alerts.by_name)}")
    failed: dict[str, str | None] = {}
    for declared in alerts.by_name.values():
        if alert in {None, declared.name}:
            failed[declared.name] = alerts.try_out(declared, scheduler.settings.namespace)
    if not output.printed_json({"sent": [{"alert": name, "error": error} for name, error in failed.items()]}):
        for alert_name, error in failed.items():
            output.line(Cell(f"{alert_name}: {error or 'sent'}", "red" if error else "green"))
    return FAILED if any(failed.values()) else OK


@alerts.command("mute")
@click.argument("job", shell_complete=complete_job)
@click.option("--for", "span", type=DurationType(), required=True, metavar="DURATION", help="For how long, as 2h.")
@add_operator_options(reason=True)
def mute_(job: str, span: timedelta, reason: str, by: str) -> None:
    """Send no alerts about a job for a while; what happens meanwhile is not sent later.

    cronsensus alerts mute backup --for 2h --reason "the disk is being replaced"
    """
    output = Output.current()
    with opened_store() as store:
        require_job(store, job)
        until = mute_job(store, job, span, by=by, why=reason)
        if not output.printed_json({"job": job, "until": until}):
            shown = exact_time(until.replace(microsecond=0), JobZones(store).find_zone(job))
            output.line(f"no alerts about {job} until {shown} ({relative_time(until, store.now())})")


@alerts.command("unmute")
@click.argument("job", shell_complete=complete_job)
@add_operator_options(reason=False)
def unmute_(job: str, reason: str, by: str) -> None:
    """Send alerts about a job again.

    cronsensus alerts unmute backup
    """
    output = Output.current()
    with opened_store() as store:
        was = unmute_job(store, job, by=by, why=reason)
        if not was:
            raise CommandError(f"{job!r} is not muted", then="cronsensus alerts list")
        if not output.printed_json({"job": job, "muted": False}):
            output.line(f"alerts about {job} are sent again")
