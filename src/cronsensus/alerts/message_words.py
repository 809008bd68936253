"""The text of a message: a sentence for each event, and counts if there are many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from cronsensus.alerts.events import Event
from cronsensus.timing.instants import format_instant

MOST_EVENTS = 50
"""Events that a message names one by one."""
_HEADLINES = {
    "failed": "{job} failed",
    "items_failed": "items of {job} failed",
    "missed": "{job} did not run",
    "cancelled": "{job} was cancelled",
    "overdue": "{job} is overdue",
    "retired": "{job} is retired",
    "slow": "{job} is slow",
    "stalled": "nobody decides when {job} runs",
    "backlog": "{job} waits for a free slot",
    "recovered": "{job} is well again",
    "taken_over": "{job} was taken over",
    "node_lost": "node {node} is gone",
}


def write_headline(event: Event) -> str:
    """Return what happened, without its time."""
    return _HEADLINES[event.event].format(job=event.job, node=event.node)


def write_sentence(event: Event, exact: Callable[[Event, datetime], str]) -> str:
    """Return what happened, to which nominal time, and why; ``exact`` shows a time in its job's zone."""
    title = write_headline(event)
    if event.scheduled_for is not None:
        title += f" at {exact(event, event.scheduled_for)}"
        if event.count != 1:
            title += " and further times" if event.count is None else f" and {event.count - 1} more times"
    if event.reason:
        title += f": {event.reason.splitlines()[0]}"
    if event.run is not None:
        title += f" (cronsensus runs show {event.run})"
    return title


def write_subject(events: Sequence[Event]) -> str:
    """Return what a message is about, in one line."""
    if len(events) == 1:
        return write_headline(events[0])
    counts = Counter(one.event for one in events)
    jobs = sorted({one.job for one in events if one.job is not None})
    what = ", ".join(f"{count:,} {event.replace('_', ' ')}" for event, count in counts.most_common())
    of = "" if not jobs else f" of {jobs[0]}" if len(jobs) == 1 else f" of {len(jobs):,} jobs"
    return what + of


def write_text(events: Sequence[Event], exact: Callable[[Event, datetime], str]) -> str:
    """Return the whole message as plain text."""
    lines = [write_sentence(event, exact) for event in events[:MOST_EVENTS]]
    if len(events) > MOST_EVENTS:
        counts = Counter(event.job or event.node for event in events[MOST_EVENTS:])
        named = ", ".join(f"{name} {count:,}" for name, count in counts.most_common(10))
        lines.append(f"… and {len(events) - MOST_EVENTS:,} more: {named}")
    return "\n".join(lines)


def events_as_data(events: Sequence[Event]) -> list[dict[str, Any]]:
    """Return events as the JSON of a webhook has them; times are ISO 8601 in UTC."""
    return [
        {
            "event": event.event,
            "job": event.job,
            "scheduled_for": None if event.scheduled_for is None else format_instant(event.scheduled_for),
            "count": event.count,
            "run": event.run,
            "reason": event.reason,
            "node": event.node,
            "at": format_instant(event.at),
        }
        for event in events[:MOST_EVENTS]
    ]
