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
Lookup = Callable[[str], tuple[Function | None, JobSpec | None]]
"""Returns what this process knows of a job: its function and its definition."""


def enqueue_calls(store: Store, calls: Sequence[Call[Any]], *, by: str) -> list[Enqueued]:
    """Enqueue calls in one step, and those with ``on_failed="free"`` whose run has failed again in a second step.

    In between, the key is free. The first caller creates the new run, and others find it. If this process dies there,
    nothing was acknowledged, and the caller's next try creates it.
    """
    answers = store.enqueue([call.item for call in calls])
    freed_indexes = [
        index
        for index, (call, enqueued) in enumerate(zip(calls, answers, strict=True))
        if call.on_failed == "free"
        and call.item.key is not None
        and not enqueued.created
        and _has_failed_for_good(store, enqueued)
    ]
    if freed_indexes:
        for index in freed_indexes:
            enqueued = answers[index]
            reason = f"enqueued again: run {enqueued.id} is {enqueued.state}"
            store.forget(enqueued.job, enqueued.key, by=by, why=reason, only=enqueued.id)
        second_answers = store.enqueue([calls[index].item for index in freed_indexes])
        for index, enqueued in zip(freed_indexes, second_answers, strict=True):
            answers[index] = enqueued
    return answers


def _has_failed_for_good(store: Store, enqueued: Enqueued) -> bool:
    """Whether a run ended without success, and no retry of it does the work or has done it."""
    if not enqueued.state.final or enqueued.state is State.SUCCEEDED:
        return False
    occurrence = store.occurrence(enqueued.id)
    return occurrence is None or all(
        run.state.final and run.state is not State.SUCCEEDED for run in retry_chain(store, occurrence)
    )


def payload_mismatch(
    call: Call[Any], enqueued: Enqueued, function: Function | None, spec: JobSpec | None
) -> PayloadMismatch | None:
    """Return the error if another payload was enqueued under the key of a call. It has names, never values.

    Arguments are compared in the form of the store, omitted arguments by their defaults. Arguments that cannot be read,
    or that this process cannot know, are not compared.
    """
    if enqueued.created or enqueued.payload is None or call.on_mismatch == "return":
        return None
    arguments = _arguments_of(call, spec)
    if arguments is None:
        return None
    try:
        recorded = read_payload(enqueued.payload)
    except READING_RAISES:
        return None
    call_args, recorded_args = _by_name(arguments, function), _by_name(recorded, function)
    differs = tuple(
        sorted(
            name
            for name in call_args.keys() | recorded_args.keys()
            if _text_of(call_args, name) != _text_of(recorded_args, name)
        )
    )
    if not differs:
        return None
    verb = "differs" if len(differs) == 1 else "differ"
    return PayloadMismatch(
        f"{enqueued.job!r} was enqueued under the key {enqueued.key!r} with another payload, as run {enqueued.id}, "
        f"which was {enqueued.state}: {', '.join(differs)} {verb}. If this is another piece of work, it needs another "
        "key; if it is the same, write .options(key=…, on_mismatch='return')",
        occurrence=enqueued.id,
        differs=differs,
        given=tuple(sorted(call_args)),
        recorded=tuple(sorted(recorded_args)),
    )


def first_mismatch(calls: Sequence[Call[Any]], answers: Sequence[Enqueued], lookup: Lookup) -> PayloadMismatch | None:
    """Return the first error of several calls."""
    errors = (
        payload_mismatch(call, enqueued, *lookup(enqueued.job))
        for call, enqueued in zip(calls, answers, strict=True)
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
        by_name = dict(bound.arguments)
        for name, parameter in signature.parameters.items():
            if name not in by_name and parameter.default is not parameter.empty:
                try:
                    _, default_as_stored = function.registered.types.write_arguments((), {name: parameter.default})
                except InvalidPayload:  # a default that no caller could pass
                    continue
                by_name.update(default_as_stored)
        return _comparable_arguments(by_name)
    return _by_place(arguments)


def _by_place(arguments: Arguments) -> dict[str, Any]:
    args, kwargs = arguments
    return _comparable_arguments({f"argument {position}": value for position, value in enumerate(args, 1)} | kwargs)


def _comparable_arguments(by_name: dict[str, Any]) -> dict[str, Any]:
    """Return what ``once`` compares: without the parts that a broker changes when it delivers a message again."""
    comparable: dict[str, Any] = plain_json(by_name, leave_out=True)
    return comparable


def _text_of(by_name: dict[str, Any], name: str) -> str | None:
    return json.dumps(by_name[name], sort_keys=True) if name in by_name else None
