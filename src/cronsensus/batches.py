"""Jobs with ``items=``: what a user writes, checked, and made into what a node needs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypedDict

from cronsensus.errors import InvalidOption
from cronsensus.functions import Function, is_async, run_parameter_of
from cronsensus.model.batch import Tolerance
from cronsensus.node.items import Batch


class BatchOptions(TypedDict, total=False):
    """The options of a job that is called once for each item of a list; see ``Scheduler.job``."""

    items: Any
    item_key: Callable[[Any], str | int] | None
    tolerate: int | str | None
    stop_after: int | None
    collect: Callable[..., Any] | None


def read_batch(
    function: Function, options: Mapping[str, Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Batch | None:
    """Return how the items of a job come to be; ``None``: it has none.

    Raises:
        InvalidOption: options that make no sense, or a function that does not take one item.
    """
    lister = options.get("items")
    if lister is None:
        if rest := [name for name in options if options[name] is not None]:
            raise InvalidOption(f"{rest[0]}=… is for jobs with items; give items=… what lists them")
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
    for name, given in (("item_key", key_of), ("collect", collect)):
        if given is not None and not callable(given):
            raise InvalidOption(f"{name}={given!r}: give a function")
    return Batch(
        lister=lister,
        lister_name=_called(lister),
        lister_run=run_parameter_of(lister) if callable(lister) else None,
        bind=lambda item: function.bind((item,), kwargs),
        key_of=key_of,
        tolerance=Tolerance.read(options.get("tolerate"), options.get("stop_after")),
        collect=collect,
        collect_run=None if collect is None else run_parameter_of(collect),
        on_loop=_is_async(lister) or (collect is not None and is_async(collect)),
    )


def _is_async(lister: Any) -> bool:
    return callable(lister) and (is_async(lister) or inspect.isasyncgenfunction(inspect.unwrap(lister)))


def _called(lister: Any) -> str:
    return getattr(lister, "__name__", None) or ("items" if isinstance(lister, tuple) else type(lister).__name__)
