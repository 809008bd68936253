"""``cronsensus explain``: an expression in words, and what clock changes do to it."""

from __future__ import annotations

import dataclasses
from datetime import datetime
from itertools import islice
from typing import Any

import click

from cronsensus.cli.app import complete_job
from cronsensus.cli.group import Command
from cronsensus.cli.lint_rules import surprises
from cronsensus.cli.next import LOOK_AHEAD, find_target, print_times, times_data
from cronsensus.cli.output import Output
from cronsensus.cli.zones import default_zone
from cronsensus.clock import SystemClock
from cronsensus.insight.clock_changes import changes, crons, effect, zone_of
from cronsensus.insight.next_times import next_times
from cronsensus.triggers.cron import Cron
from cronsensus.triggers.zones import load_zone


@click.command(cls=Command)
@click.argument("words", nargs=-1, required=True, metavar='"CRON"|JOB', shell_complete=complete_job)
@click.option("--tz", metavar="ZONE", help="Time zone of the expression (default: the setting tz).")
@click.option("--dst", type=click.Choice(["cron", "both", "skip"]), help="What the expression does at clock changes.")
def explain(words: tuple[str, ...], tz: str | None, dst: str | None) -> None:
    """Say in words when an expression fires, and what the coming clock changes do to it.

    cronsensus explain "0 9-17/2 * * MON-FRI"
    cronsensus explain "30 2 * * *" --tz Europe/Berlin
    """
    now = SystemClock().now()
    target = find_target(words, tz=tz, dst=dst)
    zone = zone_of(target.trigger, default_zone())
    times = next_times(target.trigger, now, 5, zone)
    parts = [(part, list(_coming(part, now))) for part in crons(target.trigger)]
    hints = [hint for part, _ in parts for hint in surprises(part)]
    output = Output.current()
    if output.as_json:
        found = [change for _, several in parts for change in several]
        said = target.trigger.describe()
        output.document(
            {"job": target.job, "words": said, "times": times_data(times), "clock_changes": found, "notes": hints}
        )
        return
    output.heading(target.trigger.describe())
    for hint in hints:
        output.line(f"note: {hint}")
    output.line()
    print_times(output, times, zone, now)
    for part, several in parts:
        output.line()
        if not several:
            always = "UTC never changes its clocks" if part.tz == "UTC" else f"no clock change is coming in {part.tz}"
            output.line(f"{always}: it runs at the same distance all year.")
            continue
        output.heading(f"Clock changes in {part.tz} (dst={part.dst})")
        for change in several:
            output.line(f"  {change['words']}")
            output.line(f"    {change['effect']}")
            for other, differs in change["with_dst"].items():
                output.line(f"    with dst={other}: {differs}")


def _coming(part: Cron, now: datetime) -> list[dict[str, Any]]:
    found = []
    for change in islice(changes(load_zone(part.tz), now, now + LOOK_AHEAD), 2):
        here = effect(part, change)
        others = {dst: effect(dataclasses.replace(part, dst=dst), change) for dst in ("cron", "both", "skip")}
        found.append(
            {
                "tz": part.tz,
                "at": change.at,
                "before": change.before,
                "after": change.after,
                "words": change.describe(),
                "effect": here,
                "with_dst": {dst: text for dst, text in others.items() if text != here},
            }
        )
    return found
