"""Pass a run's upstream results to a process of its own: as JSON text, typed there by the annotations."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from cronsensus.after.upstreams import Found, Upstream, UpstreamResults
from cronsensus.errors import InvalidPayload, UnsupportedFunction
from cronsensus.node.executors.importing import Target, load_function, locate_function
from cronsensus.payload.typed import UNTYPED, Types, to_plain


@dataclass(frozen=True, slots=True)
class CameAfter:
    """A run's upstream occurrences, by job; ``results``: how this program reads their results."""

    times: Found
    results: UpstreamResults | None = None

    def pack_call(self) -> tuple[str, Any]:
        """Return the name of the function that reads it, and its contents for a message."""
        results = self.results or UpstreamResults()
        return f"{__name__}:{unpack_upstreams.__name__}", msgspec.to_builtins(
            {job: _pack_upstream(job, occurrences, results) for job, occurrences in self.times.items()}
        )


class _Packed(msgspec.Struct, frozen=True):
    """An upstream of a run.

    Attributes:
        target: its function, whose return annotation has the type of the result; ``None``: it cannot be imported.
        times: for each nominal time that counts: when, verdict, result as JSON text, and run.
    """

    target: Target | None
    times: list[tuple[datetime, str, str | None, int | None]]


def _pack_upstream(job: str, occurrences: tuple[Upstream[Any], ...], results: UpstreamResults) -> _Packed:
    function, types = results.functions.get(job), results.types.get(job, UNTYPED)
    target = None
    if function is not None:
        try:
            target = locate_function(function)
        except UnsupportedFunction:
            types = UNTYPED  # its annotation cannot be read in the other process
    times = [
        (upstream.scheduled_for, upstream.verdict, _text_of(upstream.result, types), upstream.run)
        for upstream in occurrences
    ]
    return _Packed(target, times)


def _text_of(result: Any, types: Types) -> str | None:
    try:
        return types.write_result(result)
    except InvalidPayload:
        return UNTYPED.write_result(to_plain(result))


def unpack_upstreams(packed: Any) -> CameAfter:
    """Return a run's upstream occurrences, in the process that runs it.

    Raises:
        Exception: an exception that importing an upstream's module raises.
    """
    upstreams = msgspec.convert(packed, dict[str, _Packed])
    return CameAfter({job: tuple(_rebuild_upstreams(job, upstream)) for job, upstream in upstreams.items()})


def _rebuild_upstreams(job: str, packed: _Packed) -> list[Upstream[Any]]:
    types = UNTYPED if packed.target is None else Types(load_function(packed.target))
    return [Upstream(job, at, verdict, types.read_result(text), run) for at, verdict, text, run in packed.times]
