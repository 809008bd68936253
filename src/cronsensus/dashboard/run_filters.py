"""The filters of runs in a query string: the same for the page of runs and ``/api/runs``."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from datetime import UTC, datetime, tzinfo
from urllib.parse import parse_qsl, urlencode

from cronsensus.errors import InvalidOption
from cronsensus.insight.run_list import ORDERS, RunSearch
from cronsensus.insight.time_words import read_time
from cronsensus.model.states import Origin, State

FILTERS: Mapping[str, str] = {
    "job": "only of this",
    "state": "only in these, with commas between",
    "origin": "only made so: " + ", ".join(Origin),
    "node": "only that this node runs, or ran last",
    "since": "only created then or later: a time, or 2h",
    "until": "only created before",
    "key": "only with this key",
    "text": "each word stands in job, key, node, reason, error or arguments; customer=42 is an argument",
    "order": ", ".join(ORDERS),
}
"""Names in a query, each with its meaning."""
_LONGEST_FILTER = 400
_MOST_WORDS = 8


def read_search(
    query_values: Mapping[str, str], now: datetime, *, batch: int | None = None, zone: tzinfo = UTC
) -> RunSearch:
    """Return the search of a query string; times without an offset are of ``zone``.

    Raises:
        InvalidOption: a state, an origin, an order or a time is invalid.
    """
    texts = {name: query_values.get(name, "").strip()[:_LONGEST_FILTER] for name in FILTERS}
    try:
        states = tuple(State(word) for word in texts["state"].split(",") if word)
    except ValueError:
        raise InvalidOption(f"state= is one or more of {', '.join(State)}, with commas between") from None
    if texts["origin"] and texts["origin"] not in set(Origin):
        raise InvalidOption(f"origin= is one of {', '.join(Origin)}")
    order = next((word for word in ORDERS if word == (texts["order"] or "newest")), None)
    if order is None:
        raise InvalidOption(f"order= is one of {', '.join(ORDERS)}")
    return RunSearch(
        job=texts["job"] or None,
        states=states,
        origin=Origin(texts["origin"]) if texts["origin"] else None,
        node=texts["node"] or None,
        key=texts["key"] or None,
        since=read_time(texts["since"], now, tz=zone, what="since") if texts["since"] else None,
        until=read_time(texts["until"], now, tz=zone, what="until") if texts["until"] else None,
        words=tuple(texts["text"].split()[:_MOST_WORDS]),
        batch=batch,
        order=order,
    )


def list_path(query_values: Mapping[str, str], **changes: str) -> str:
    """Return the path of the page of runs with these filters; a change to an empty text removes a filter."""
    kept = {name: query_values[name] for name in (*FILTERS, "batch") if query_values.get(name)} | changes
    query = urlencode({name: text for name, text in kept.items() if text})
    return f"/runs?{query}" if query else "/runs"


def read_list_path(query: str) -> str:
    """Return the path of the page of runs that a form came from, made of nothing but its filters."""
    return list_path({name: text[:_LONGEST_FILTER] for name, text in parse_qsl(query[:4000])})


def list_command(query_values: Mapping[str, str]) -> str:
    """Return the command that lists the same."""
    states = [("state", state) for state in query_values.get("state", "").split(",") if state]
    others = [(name, query_values[name]) for name in (*FILTERS, "batch") if name != "state" and query_values.get(name)]
    return "cronsensus runs list" + "".join(f" --{name} {shlex.quote(text)}" for name, text in states + others)
