"""Enqueue under a known key. A key names a piece of work, so another payload under it is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from cronsensus.declared.functions import Function
from cronsensus.errors import InvalidPayload, PayloadMismatch
from cronsensus.jobs.calls import Call
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Enqueued
from cronsensus.model.states import State
from cronsensus.once.payloads import plain_json
from cronsensus.payload.codec import read_payload
from cronsensus.stores.base import Store
from cronsensus.stores.retries import retry_chain
from cronsensus.stores.unreadable import READING_RAISES

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
Known = Callable[[str], tuple[Function | None, JobSpec | None]]
"""Returns what this process knows of a job: its function and its definition."""


def enqueue_calls(store: Store, calls: Sequence[Call[Any]], *, by: str) -> list[Enqueued]:
    """Enqueue calls in one step, and those with ``on_failed="free"`` whose run has failed again in a second step.

    In between, the key is free. The first caller creates the new run, and others find it. If this process dies there,
    nothing was acknowledged, and the caller's next try creates it.
    """
    made = store.enqueue([call.item for call in calls])
    freed = [
        place
        for place, (call, enqueued) in enumerate(zip(calls, made, strict=True))
        if call.on_failed == "free"
        and call.item.key is not None
        and not enqueued.created
        and _has_failed_for_good(store, enqueued)
    ]
    if freed:
        for place in freed:
            enqueued = made[place]
            why = f"enqueued again: run {enqueued.id} is {enqueued.state}"
            store.forget(enqueued.job, enqueued.key, by=by, why=why, only=enqueued.id)
        enqueued_again = store.enqueue([calls[place].item for place in freed])
        for place, enqueued in zip(freed, enqueued_again, strict=True):
            made[place] = enqueued
    return made


def _has_failed_for_good(store: Store, made: Enqueued) -> bool:
    """Whether a run ended without success, and no retry of it does the work or has done it."""
    if not made.state.final or made.state is State.SUCCEEDED:
        return False
    known = store.occurrence(made.id)
    return known is None or all(
        run.state.final and run.state is not State.SUCCEEDED for run in retry_chain(store, known)
    )


def payload_mismatch(
    call: Call[Any], made: Enqueued, function: Function | None, spec: JobSpec | None
) -> PayloadMismatch | None:
    """Return the error if another payload was enqueued under the key of a call. It has names, never values.

    Arguments are compared in the form of the store, omitted arguments by their defaults. Arguments that cannot be read,
    or that this process cannot know, are not compared.
    """
    if made.created or made.payload is None or call.on_mismatch == "return":
        return None
    given = _arguments_of(call, spec)
    if given is None:
        return None
    try:
        recorded = read_payload(made.payload)
    except READING_RAISES:
        return None
    mine, theirs = _by_name(given, function), _by_name(recorded, function)
    differs = tuple(
        sorted(name for name in mine.keys() | theirs.keys() if _text_of(mine, name) != _text_of(theirs, name))
    )
    if not differs:
        return None
    verb = "differs" if len(differs) == 1 else "differ"
    return PayloadMismatch(
        f"{made.job!r} was enqueued under the key {made.key!r} with another payload, as run {made.id}, which was "
        f"{made.state}: {', '.join(differs)} {verb}. If this is another piece of work, it needs another key; if it is "
        "the same, write .options(key=…, on_mismatch='return')",
        occurrence=made.id,
        differs=differs,
        given=tuple(sorted(mine)),
        recorded=tuple(sorted(theirs)),
    )


def first_mismatch(calls: Sequence[Call[Any]], made: Sequence[Enqueued], known: Known) -> PayloadMismatch | None:
    """Return the first error of several calls."""
    errors = (
        payload_mismatch(call, enqueued, *known(enqueued.job))
        for call, enqueued in zip(calls, made, strict=True)
        if not enqueued.created
    )
    return next((error for error in errors if error is not None), None)


def _arguments_of(call: Call[Any], spec: JobSpec | None) -> Arguments | None:
    """Return the arguments of a call, or else the job's own."""
    item = call.item
    if spec is not None:
        item = replace(
            item,
            args=spec.args if item.args is None else item.args,
            kwargs=spec.kwargs if item.kwargs is None else item.kwargs,
        )
    if item.args is None and item.kwargs is None:
        return None
    return item.args or (), item.kwargs or {}


def _by_name(arguments: Arguments, function: Function | None) -> dict[str, Any]:
    args, kwargs = arguments
    signature = None if function is None else function.signature
    if function is not None and signature is not None:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError:  # of a release with other parameters
            return _by_place(arguments)
        named = dict(bound.arguments)
        for name, parameter in signature.parameters.items():
            if name not in named and parameter.default is not parameter.empty:
                try:
                    _, written = function.registered.types.write_arguments((), {name: parameter.default})
                except InvalidPayload:  # a default that no caller could pass
                    continue
                named.update(written)
        return _comparable_arguments(named)
    return _by_place(arguments)


def _by_place(arguments: Arguments) -> dict[str, Any]:
    args, kwargs = arguments
    return _comparable_arguments({f"argument {place}": value for place, value in enumerate(args, 1)} | kwargs)


def _comparable_arguments(named: dict[str, Any]) -> dict[str, Any]:
    """Return what ``once`` compares: without the parts that a broker changes when it delivers a message again."""
    found: dict[str, Any] = plain_json(named, leave_out=True)
    return found


def _text_of(named: dict[str, Any], name: str) -> str | None:
    return json.dumps(named[name], sort_keys=True) if name in named else None
