"""What differs between two definitions of a job, as the trail keeps it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cronsensus.model.job import STORED_DEFAULTS, JobSpec

_LONGEST_VALUE = 300
"""Most characters of a value, as JSON. A longer value is kept as ``None``, before and after: it only shows a change."""
_NOT_COMPARED = {"name", "source", "policies"}

Changes = dict[str, list[Any]]
"""Option name → value before and after, as ``JobSpec.to_json`` writes them: durations in microseconds."""


def changes_between(before: JobSpec | None, after: JobSpec) -> Changes:
    """Return the options that differ between two definitions; none if the earlier one could not be read."""
    if before is None:
        return {}
    before_options, after_options = _options(before), _options(after)
    changed = {
        name: [before_options.get(name), after_options.get(name)]
        for name in {**before_options, **after_options}
        if before_options.get(name) != after_options.get(name)
    }
    return {name: pair if _is_short(pair) else [None, None] for name, pair in changed.items()}


def _options(spec: JobSpec) -> dict[str, Any]:
    data = spec.to_json()
    options = {name: value for name, value in data.items() if name not in _NOT_COMPARED}
    return {**options, **STORED_DEFAULTS, **data["policies"]}


def _is_short(pair: list[Any]) -> bool:
    return all(len(json.dumps(value)) <= _LONGEST_VALUE for value in pair)


def definition_entries(
    did: Mapping[str, Sequence[str]], changes: Mapping[str, Changes], release: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the entries of the trail for a ``define_jobs``: each job's name, and the details."""
    for act in ("created", "changed", "retired"):
        for name in did[act]:
            details = {"changes": changes[name]} if changes.get(name) else {}
            yield name, {"did": act, "release": release, **details}
