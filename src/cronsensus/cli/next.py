"""``cronsensus next``: what does that mean, and when? An expression needs neither a store nor an application."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cronsensus.cli.app import complete_job, load_application, opened_store, read_settings
from cronsensus.cli.errors import CommandError
from cronsensus.cli.group import Command, Invocation
from cronsensus.cli.output import Output, print_message
from cronsensus.cli.terminal import clean_text
from cronsensus.cli.zones import default_zone
from cronsensus.errors import InvalidTrigger, UnknownJob
from cronsensus.insight.clock_changes import describe_effect, find_changes, list_crons, zone_of
from cronsensus.insight.lookup import require_job
from cronsensus.insight.next_times import NextTime, next_times
from cronsensus.insight.time_words import exact_time, read_time, relative_time, shorten
from cronsensus.timing.clock import SystemClock
from cronsensus.triggers import Trigger, cron, every
from cronsensus.triggers.cron import Cron
from cronsensus.triggers.dialects import describe_foreign_text
from cronsensus.triggers.notes import notes_on
from cronsensus.triggers.zones import load_zone, zone_name

if TYPE_CHECKING:
    from cronsensus.jobs.job import Job

LOOK_AHEAD = timedelta(days=400)
MOST_CHANGES = 2
"""How many clock changes are shown: the one into summer time, and the one out of it."""


@dataclass(frozen=True, slots=True)
class Target:
    """The subject of the question: a trigger, and the job that has it, if there is one."""

    trigger: Trigger
    job: str | None = None
    paused: str | None = None


def find_target(words: Sequence[str], *, tz: str | None, dst: str | None, **counted: str | None) -> Target:
    """Return the trigger that was typed as an expression, with quotes or without, or that of a job.

    Raises:
        CommandError: the job has no trigger; or the shell has put the names of files in the place of a star.
        InvalidTrigger: it looks like an expression and is none.
        UnknownJob: it is no expression, and no job has that name.
    """
    if len(words) > 1 and "*" not in "".join(words) and any(Path(word).exists() for word in words):
        raise CommandError(
            "the shell has replaced each * by the names of the files here",
            why=f"it passed on: {shorten(' '.join(words), 120)}",
            then='write the expression in quotes: "0 9 * * *"',
        )
    text = " ".join(words)
    fields = text.split()
    if fields[:1] == ["every"] and len(fields) > 1:
        return Target(every(" ".join(fields[1:])))
    if (
        text.lstrip().startswith("@")
        or len(fields) >= 5
        or (not text.isidentifier() and describe_foreign_text(text.strip()))
    ):
        # Not tz=: a text may name its own, as TZ=Europe/Paris 0 9 * * *.
        trigger = cron(text, tz=tz, dst=dst or "cron", **counted)  # type: ignore[arg-type]
        return Target(trigger.in_zone(read_settings().tz))
    if len(fields) != 1:
        raise InvalidTrigger(
            f'{text!r} is neither a job\'s name nor a cron expression; write five fields: "0 9 * * MON-FRI"'
        )
    if dst is not None:
        raise CommandError("--dst is for expressions", why="a job's own trigger says what it does at clock changes")
    if any(counted.values()):
        raise CommandError("--every and --start are for expressions", why="a job's own trigger says what it counts")
    return _job(text)


def _job(name: str) -> Target:
    trigger, paused = None, None
    declared: Mapping[str, Job[..., Any]] = {}
    if Invocation.current().url is None:
        declared = load_application().scheduler.jobs
    if name in declared:
        trigger = declared[name].rule
    else:
        with opened_store() as store:
            view = require_job(store, name, declared=declared)
        if view.retired_at is not None:
            raise UnknownJob(f"the job {name!r} is retired: it fires no more; see the names: cronsensus jobs list")
        trigger, paused = view.spec.trigger, None if view.paused_at is None else view.paused_why or "no reason given"
        if view.spec.keeper is not None:
            raise CommandError(
                f"{view.spec.keeper} keeps the time of {name!r}: its next times are known there",
                then=f"cronsensus jobs show {name}",
            )
    if trigger is None:
        raise CommandError(
            f"job {name!r} has no trigger: it only runs when it is told to", then=f"cronsensus jobs trigger {name}"
        )
    return Target(trigger, name, paused)


def times_data(times: Sequence[NextTime]) -> list[dict[str, Any]]:
    """Return next times as data for JSON."""
    return [
        {"utc": time.utc, "local": time.local.isoformat(), "note": str(time.note) if time.note else None}
        for time in times
    ]


def print_times(output: Output, times: Sequence[NextTime], zone: tzinfo, now: datetime) -> None:
    """Print next times as a table."""
    output.table(
        ["local time", "UTC", "when", "note"],
        [
            [
                "" if zone is UTC else exact_time(time.utc, zone),
                exact_time(time.utc),
                relative_time(time.utc, now),
                str(time.note or ""),
            ]
            for time in times
        ],
        empty="it never fires again",
    )


@click.command(cls=Command, name="next")
@click.argument("words", nargs=-1, required=True, metavar='"CRON"|JOB', shell_complete=complete_job)
@click.option(
    "-n", "--count", type=click.IntRange(1, 1000), default=10, show_default=True, help="How many times to show."
)
@click.option(
    "--tz", metavar="ZONE", help="Zone of the expression (default: the setting tz), or to show a job's times in."
)
@click.option("--dst", type=click.Choice(["cron", "both", "skip"]), help="What the expression does at clock changes.")
@click.option("--every", metavar="PERIOD", help="Only in each '2 weeks', '3 days' or '6 months' from --start on.")
@click.option("--start", metavar="DATE", help="The first day that counts.")
@click.option("--from", "begins", metavar="TIME", help="Where to begin (default: now).")
def next_(words: tuple[str, ...], count: int, tz: str | None, dst: str | None, **options: str | None) -> None:
    """Say in words when a cron expression or a job fires, with its next times and what clock changes do to it.

    Notes say what is rarely meant, and what other programs take for other times.

    An expression needs neither a store nor an application; of a job the name is enough.

    cronsensus next "30 2 * * *" --tz Europe/Berlin
    cronsensus next "0 9-17/2 * * MON-FRI" -n 3
    cronsensus next "0 9 * * MON" --every "2 weeks" --start 2027-01-04
    cronsensus next "every 90m"
    cronsensus next send_digest -n 3
    """
    now = SystemClock().now()
    typed_begin = options.pop("begins")
    target = find_target(words, tz=tz, dst=dst, **options)
    zone = zone_of(target.trigger, default_zone()) if tz is None else load_zone(zone_name(tz))
    begin = now if typed_begin is None else read_time(typed_begin, now, tz=zone, what="--from")
    times = next_times(target.trigger, begin, count, zone)
    notes = [str(note) for note in notes_on(target.trigger)]
    coming = [(part, _coming(part, begin)) for part in list_crons(target.trigger)]
    output = Output.current()
    if output.printed_json(
        {
            "job": target.job,
            "words": target.trigger.describe(),
            "notes": notes,
            "paused": target.paused,
            "tz": str(zone),
            "times": times_data(times),
            "clock_changes": [change for _, several in coming for change in several],
        }
    ):
        return
    output.heading(target.trigger.describe())
    for note in notes:
        output.line(f"note: {note}")
    if target.paused is not None:
        print_message(
            f"the job is paused ({clean_text(target.paused)}): these times will be skipped until it is resumed"
        )
    print_times(output, times, zone, now)
    for part, several in coming:
        _print_changes(output, part, several)


def _coming(part: Cron, begin: datetime) -> list[dict[str, Any]]:
    """Return the next clock changes as data: what they do to an expression, and what they would with another dst=."""
    changes = []
    for change in islice(find_changes(load_zone(part.tz), begin, begin + LOOK_AHEAD), MOST_CHANGES):
        effect = describe_effect(part, change)
        others = {dst: describe_effect(dataclasses.replace(part, dst=dst), change) for dst in ("cron", "both", "skip")}
        changes.append(
            {
                "tz": part.tz,
                "at": change.at,
                "before": change.before,
                "after": change.after,
                "words": change.describe(),
                "effect": effect,
                "with_dst": {dst: text for dst, text in others.items() if text != effect},
            }
        )
    return changes


def _print_changes(output: Output, part: Cron, several: list[dict[str, Any]]) -> None:
    if several:
        output.line()
        output.heading(f"Clock changes in {part.tz} (dst={part.dst})")
    for change in several:
        output.line(f"  {change['words']}: {change['effect']}")
        for dst, differs in change["with_dst"].items():
            output.line(f"    with dst={dst}: {differs}")
