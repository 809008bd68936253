"""A job's policies, and the changes of its definition, by the names of options."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from cronsensus.errors import CronsensusError
from cronsensus.insight.time_words import brief_duration, shorten
from cronsensus.model.job import STORED_DURATIONS, JobSpec, Policies
from cronsensus.model.ledger import TrailEntry
from cronsensus.payload.codec import dumps_masked
from cronsensus.triggers import Trigger, trigger_from_json

_DEFAULT_POLICIES = Policies()
_ALWAYS_SHOWN = ("overlap", "catch_up", "retries", "timeout", "on_crash")
"""Policies that are always shown."""
_EXPECTATIONS = ("overdue", "slow")
_LONGEST_VALUE = 120


def list_policies(spec: JobSpec) -> list[tuple[str, Any]]:
    """Return a job's options that differ from the defaults, and those that are always shown, with values."""
    shown = [(item.name, getattr(spec.policies, item.name)) for item in dataclasses.fields(Policies)]
    shown = [
        (name, value) for name, value in shown if name in _ALWAYS_SHOWN or value != getattr(_DEFAULT_POLICIES, name)
    ]
    expected = [(name, getattr(spec, name)) for name in _EXPECTATIONS]
    return shown + [(name, value) for name, value in expected if value is not None]


def list_changes(details: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """Return what an entry of the trail changed: an option, its value before, and its value after.

    Values are as in a definition: triggers, durations, numbers. Both are empty texts where they were too long to keep.
    """
    changes = details.get("changes")
    differences: list[tuple[str, Any, Any]] = []
    for name, pair in changes.items() if isinstance(changes, dict) else ():
        before, after = pair if isinstance(pair, list) and len(pair) == 2 else (None, None)
        differences.append(
            (name, "", "") if before == after else (name, _read_value(name, before), _read_value(name, after))
        )
    return differences


def act_reason(act: TrailEntry) -> str:
    """Return why something was done; for a definition its changes: ``retries 1 → 3; timeout none → 10m``."""
    changes = list_changes(act.details)
    changed = "; ".join(f"{name} {value_text(before)} → {value_text(after)}" for name, before, after in changes)
    release = f"release {act.details['release']}" if act.action == "define" and act.details.get("release") else ""
    retired = "no release declares it any more" if act.details.get("did") == "retired" else ""
    return " - ".join(filter(None, [act.why, changed or retired, release]))


def value_text(value: Any) -> str:
    """Return the value of an option as people read it."""
    if isinstance(value, timedelta):
        return brief_duration(value)
    if isinstance(value, Trigger):
        return value.describe()
    return "none" if value is None else shorten(str(value), _LONGEST_VALUE) or "…"


def _read_value(name: str, value: Any) -> Any:
    """Convert a value of the trail to that of a definition: there durations are microseconds, and triggers JSON."""
    if name in STORED_DURATIONS and isinstance(value, int):
        return timedelta(microseconds=value)
    if name == "trigger" and isinstance(value, dict):
        try:
            return trigger_from_json(value)
        except (CronsensusError, KeyError, TypeError, ValueError):
            return "…"
    return dumps_masked(value) if isinstance(value, (dict, list)) else value
