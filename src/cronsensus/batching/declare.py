"""Read and check the options of jobs with ``items=`` or ``shards=``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypedDict

from cronsensus.batching.batch import Batch
from cronsensus.declared.functions import Function, is_async, run_parameter_of
from cronsensus.errors import InvalidOption, InvalidTransition
from cronsensus.model.batch import Tolerance
from cronsensus.model.occurrence import Occurrence
from cronsensus.payload.typed import UNTYPED

MOST_SHARDS = 10_000


class BatchOptions(TypedDict, total=False):
    """The options of a job that is called once for each item of a list; see ``Scheduler.job``."""

    items: Any
    item_key: Callable[[Any], str | int] | None
    tolerate: int | str | None
    stop_after: int | None
    collect: Callable[..., Any] | None
    shards: int | None


def read_batch(
    function: Function, options: Mapping[str, Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Batch | None:
    """Read the batch options of a job; ``None``: it has no items.

    Raises:
        InvalidOption: options that make no sense, or a function that does not take one item.
    """
    lister, shards = options.get("items"), options.get("shards")
    if shards is not None:
        return _shard_arguments(function, options, args, kwargs)
    if lister is None:
        if batch_options := [name for name in options if options[name] is not None]:
            raise InvalidOption(f"{batch_options[0]}=… is for jobs with items; give items=… what lists them")
        return None
    if args:
        raise InvalidOption(
            f"{function.name!r} is called with one item by position, so args={args!r} has no place; write kwargs={{…}}"
        )
    if isinstance(lister, str | bytes | Mapping) or not (callable(lister) or hasattr(lister, "__iter__")):
        raise InvalidOption(f"items={lister!r}: give a list, or a function that returns or yields the items")
    if not callable(lister):
        lister = tuple(lister)
    function.require_item(kwargs)
    key_of, collect = options.get("item_key"), options.get("collect")
    for name, option in (("item_key", key_of), ("collect", collect)):
        if option is not None and not callable(option):
            raise InvalidOption(f"{name}={option!r}: give a function")
    return Batch(
        lister=lister,
        lister_name=_lister_name(lister),
        lister_run=run_parameter_of(lister) if callable(lister) else None,
        bind=lambda item: function.bind((item,), kwargs),
        key_of=key_of,
        tolerance=Tolerance.read(options.get("tolerate"), options.get("stop_after")),
        collect=collect,
        collect_run=None if collect is None else run_parameter_of(collect),
        on_loop=_is_async(lister) or (collect is not None and is_async(collect)),
    )


def batch_by_hand(
    function: Function | None, kwargs: Mapping[str, Any], item_key: Callable[[Any], str | int] | None
) -> Batch:
    """Return the batch options for items that a program passes to ``enqueue_batch``.

    Raises:
        InvalidOption: a function that does not take one item, or a key that is no function.
    """
    if item_key is not None and not callable(item_key):
        raise InvalidOption(f"item_key={item_key!r}: give a function")
    if function is None:
        return Batch((), "enqueue_batch", _untyped_item, key_of=item_key)
    function.require_item(kwargs)
    declared = function.registered.part_of(Batch)
    key_of = item_key or (None if declared is None else declared.key_of)
    return Batch((), "enqueue_batch", lambda item: function.bind((item,), kwargs), key_of=key_of)


def _untyped_item(item: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    positional, named = UNTYPED.write_arguments((item,), {})
    return tuple(positional), named


def _shard_arguments(
    function: Function, options: Mapping[str, Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Batch:
    shards = options["shards"]
    if type(shards) is not int or not 1 <= shards <= MOST_SHARDS:
        raise InvalidOption(f"shards={shards!r}: a whole number from 1 to {MOST_SHARDS:,}")
    if options.get("items") is not None or options.get("item_key") is not None:
        raise InvalidOption("shards=… has no items: the function is called once for each shard, and asks run.shard")
    bound = function.bind(args, kwargs)
    collect = options.get("collect")
    return Batch(
        lister=range(shards),
        lister_name="shards",
        bind=lambda _: bound,
        key_of=lambda number: f"{number}/{shards}",
        tolerance=Tolerance.read(options.get("tolerate"), options.get("stop_after")),
        collect=collect,
        collect_run=None if collect is None else run_parameter_of(collect),
        on_loop=collect is not None and is_async(collect),
    )


def _is_async(lister: Any) -> bool:
    return callable(lister) and (is_async(lister) or inspect.isasyncgenfunction(inspect.unwrap(lister)))


def _lister_name(lister: Any) -> str:
    return getattr(lister, "__name__", None) or ("items" if isinstance(lister, tuple) else type(lister).__name__)


def refuse_item(occurrence: Occurrence | None) -> None:
    """Raise if a run is an item of a batch: retried alone, it would run outside the batch, under another key.

    Raises:
        InvalidTransition: it is one.
    """
    if occurrence is not None and occurrence.parent is not None:
        raise InvalidTransition(
            f"run {occurrence.id} is an item of batch {occurrence.parent}, which is run again as a whole and leaves "
            f"out what succeeded: cronsensus runs retry {occurrence.parent}"
        )
