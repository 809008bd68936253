"""Carry what a run came after into a process of its own: results as JSON text, read there by what annotations say."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from cronsensus.errors import InvalidPayload, UnsupportedFunction
from cronsensus.node.executors.base import Call
from cronsensus.node.executors.importing import Target, load, locate
from cronsensus.node.upstreams import Upstream, UpstreamResults
from cronsensus.typed import UNTYPED, Types, to_plain


class Behind(msgspec.Struct, frozen=True):
    """One upstream of a run.

    Attributes:
        target: its function, whose return annotation tells how a result is read; ``None``: that cannot be imported.
        times: of each nominal time that counts: when, verdict, result as JSON text, and run.
    """

    target: Target | None
    times: list[tuple[datetime, str, str | None, int | None]]


def write(call: Call) -> dict[str, Behind]:
    """Return what a run came after, as a message can hold it."""
    results = call.registered.upstreams or UpstreamResults()
    return {job: _behind(job, some, results) for job, some in call.run.came_after.items()}


def _behind(job: str, some: tuple[Upstream[Any], ...], results: UpstreamResults) -> Behind:
    function, types = results.functions.get(job), results.types.get(job, UNTYPED)
    target = None
    if function is not None:
        try:
            target = locate(function)
        except UnsupportedFunction:
            types = UNTYPED  # nobody could read it there by its annotation
    times = [(one.scheduled_for, one.verdict, _text(one.result, types), one.run) for one in some]
    return Behind(target, times)


def _text(result: Any, types: Types) -> str | None:
    try:
        return types.write_result(result)
    except InvalidPayload:
        return UNTYPED.write_result(to_plain(result))


def read(behind: Mapping[str, Behind]) -> dict[str, tuple[Upstream[Any], ...]]:
    """Return what a run came after, in the process that runs it.

    Raises:
        Exception: whatever an upstream's module raises when it is imported.
    """
    return {job: tuple(_upstreams(job, one)) for job, one in behind.items()}


def _upstreams(job: str, behind: Behind) -> list[Upstream[Any]]:
    types = UNTYPED if behind.target is None else Types(load(behind.target))
    return [Upstream(job, at, verdict, types.read_result(text), run) for at, verdict, text, run in behind.times]
