"""What a run came after, also in a process of its own: results as JSON text, read there by what annotations say."""

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
    """What a run came after, by job; ``results``: how this program reads what they returned."""

    times: Found
    results: UpstreamResults | None = None

    def pack_call(self) -> tuple[str, Any]:
        """Return it as a message can hold it, and what reads that."""
        results = self.results or UpstreamResults()
        return f"{__name__}:{unpack_upstreams.__name__}", msgspec.to_builtins(
            {job: _pack_upstream(job, some, results) for job, some in self.times.items()}
        )


class _Packed(msgspec.Struct, frozen=True):
    """One upstream of a run.

    Attributes:
        target: its function, whose return annotation tells how a result is read; ``None``: that cannot be imported.
        times: of each nominal time that counts: when, verdict, result as JSON text, and run.
    """

    target: Target | None
    times: list[tuple[datetime, str, str | None, int | None]]


def _pack_upstream(job: str, some: tuple[Upstream[Any], ...], results: UpstreamResults) -> _Packed:
    function, types = results.functions.get(job), results.types.get(job, UNTYPED)
    target = None
    if function is not None:
        try:
            target = locate_function(function)
        except UnsupportedFunction:
            types = UNTYPED  # nobody could read it there by its annotation
    times = [(one.scheduled_for, one.verdict, _text_of(one.result, types), one.run) for one in some]
    return _Packed(target, times)


def _text_of(result: Any, types: Types) -> str | None:
    try:
        return types.write_result(result)
    except InvalidPayload:
        return UNTYPED.write_result(to_plain(result))


def unpack_upstreams(packed: Any) -> CameAfter:
    """Return what a run came after, in the process that runs it.

    Raises:
        Exception: whatever an upstream's module raises when it is imported.
    """
    upstreams = msgspec.convert(packed, dict[str, _Packed])
    return CameAfter({job: tuple(_rebuild_upstreams(job, one)) for job, one in upstreams.items()})


def _rebuild_upstreams(job: str, packed: _Packed) -> list[Upstream[Any]]:
    types = UNTYPED if packed.target is None else Types(load_function(packed.target))
    return [Upstream(job, at, verdict, types.read_result(text), run) for at, verdict, text, run in packed.times]
