"""Calls that are to be enqueued: the function's own arguments on one side, the options of the call on the other.

So a function may have a parameter of any name, and a type checker sees the arguments of each call.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, TypedDict, TypeVar

from cronsensus.declared.functions import Function
from cronsensus.errors import InvalidOption
from cronsensus.jobs.handle import R_co
from cronsensus.model.job import JobSpec, Policies, PolicyOptions, check_choice
from cronsensus.model.occurrence import Item, check_key
from cronsensus.once.choices import OnError, OnMismatch
from cronsensus.payload.typed import UNTYPED
from cronsensus.timing.durations import Duration, parse_duration
from cronsensus.triggers.options import describe_unknown_option
from cronsensus.triggers.zones import instant_in

T = TypeVar("T")


class CallOptions(TypedDict, total=False):
    """The options of a call; see ``Job.options`` for what each means."""

    key: str | None
    delay: Duration | None
    at: datetime | str | None
    priority: int | None
    expires: Duration | None
    on_mismatch: OnMismatch
    on_failed: OnError


@dataclass(frozen=True, slots=True)
class Call(Generic[R_co]):
    """One call of a job, checked and not enqueued yet. ``job.call`` and ``job.options(…).call`` make them.

    ``enqueue_many`` takes any number of them. A call without a key may be enqueued again: it is another one then.

    Example:
        >>> from cronsensus.scheduler import Scheduler
        >>> scheduler = Scheduler("memory://")
        >>> @scheduler.job()
        ... def bill(customer: int) -> None: ...
        >>> handles = bill.enqueue_many(bill.options(key=f"bill:{number}").call(number) for number in (1, 2, 3))
        >>> [handle.key for handle in handles]
        ['bill:1', 'bill:2', 'bill:3']

    Attributes:
        item: what the store gets: the job's name, arguments as JSON, and the options.
        on_mismatch: what another payload under a known key is.
        on_failed: what becomes of a key whose run ended without success.
    """

    item: Item
    on_mismatch: OnMismatch = "error"
    on_failed: OnError = "keep"


_RENAMED = {
    **dict.fromkeys(("countdown", "defer_by", "schedule_in"), "delay='60s'"),
    **dict.fromkeys(("eta", "run_at", "run_date", "schedule_at", "scheduled_at", "scheduled_for"), "at=…"),
    **dict.fromkeys(("id", "task_id", "job_id", "queueing_lock", "idempotency_key", "unique_key"), "key='invoice:42'"),
    "ttl": "expires='1h'",
}
"""Options of other task queues, and what to write here."""
_WRITE_INSTEAD = _RENAMED | {
    **dict.fromkeys(("args", "kwargs"), "the arguments as the function takes them: .options(…).enqueue(42, copies=2)"),
    **dict.fromkeys(PolicyOptions.__annotations__, "it where the job is declared: @scheduler.job(…)"),
}


def read_options(job: str, options: Mapping[str, Any], zone: str) -> Call[Any]:
    """Return a call of a job with these options, still without arguments.

    Text of a time without an offset is of ``zone``.

    Raises:
        InvalidOption: an unknown option, or one that makes no sense; the message says what to write.
        InvalidDuration: as it says.
    """
    known = CallOptions.__annotations__
    if wrong := [
        describe_unknown_option(name, known, where="a call", instead=_WRITE_INSTEAD)
        for name in options
        if name not in known
    ]:
        raise InvalidOption("; ".join(wrong))
    given = {name: value for name, value in options.items() if value is not None}
    if "delay" in given and "at" in given:
        raise InvalidOption("delay and at both say when; give one of them")
    if "key" in given:
        check_key(given["key"])
    if "priority" in given:
        Policies.read({"priority": given["priority"]})
    on_mismatch, on_failed = given.get("on_mismatch", "error"), given.get("on_failed", "keep")
    check_choice(on_mismatch, OnMismatch, what="on_mismatch")
    check_choice(on_failed, OnError, what="on_failed")
    item = Item(
        job=job,
        key=given.get("key"),
        delay=parse_duration(given["delay"], what="delay") if "delay" in given else timedelta(0),
        due_at=instant_in(given["at"], zone, "at") if "at" in given else None,
        priority=given.get("priority"),
        expires_in=parse_duration(given["expires"], what="expires") if "expires" in given else None,
    )
    return Call(item, on_mismatch, on_failed)


def require_call(given: Call[T], job: str | None = None) -> Call[T]:
    """Return what ``enqueue_many`` was given.

    Raises:
        InvalidOption: it is no call, or a call of another job than ``job``.
    """
    if not isinstance(given, Call):
        raise InvalidOption(
            f"enqueue_many takes calls, and {_show_value(given)} is none; "
            "write enqueue_many(job.call(one) for one in …), or job.options(key=…).call(one)"
        )
    if job is not None and given.item.job != job:
        raise InvalidOption(
            f"{job!r} was given a call of {given.item.job!r}; write scheduler.enqueue_many(…) for calls of several jobs"
        )
    return given


def with_arguments(
    item: Item, args: tuple[Any, ...], kwargs: Mapping[str, Any], function: Function | None, spec: JobSpec | None
) -> Item:
    """Return the call with arguments, as a store keeps them.

    Args:
        item: the call.
        args: by position; none at all, also no ``kwargs``: the job's own.
        kwargs: by name.
        function: ``None``: this process does not have it, and the arguments are not checked.
        spec: ``None``: this process does not declare the job.

    Raises:
        InvalidOption: the function cannot be called with them.
        InvalidPayload: one is neither JSON nor what its annotation names; or they are too large.
    """
    if not args and not kwargs:
        # The job's own arguments; they were checked where the job was declared, unless it has none.
        if function is not None and spec is not None and not spec.args and not spec.kwargs:
            function.bind((), {})
        return item
    if function is not None:
        given, named = function.bind(args, kwargs, hint=_hint_of_meant(function, kwargs))
    else:
        listed, named = UNTYPED.write_arguments(args, kwargs, what=f"arguments of {item.job!r}")
        given = tuple(listed)
    return dataclasses.replace(item, args=given, kwargs=named)


def refuse_options(job: str, kwargs: Mapping[str, Any], function: Function | None) -> None:
    """Refuse options among the arguments of a call that was given none by ``options``.

    A function that takes any keyword, or that this process does not have, would get the key as an argument, and each
    repeat would be a run of its own.

    Raises:
        InvalidOption: as said; with what to write.
    """
    signature = None if function is None else function.signature
    takes = {} if signature is None else signature.parameters
    found = {name: value for name, value in kwargs.items() if name in CallOptions.__annotations__ and name not in takes}
    if not found:
        return
    write = ", ".join(f"{name}={_show_value(value)}" for name, value in found.items())
    name = next(iter(found))
    sure = signature is not None and not any(one.kind is inspect.Parameter.VAR_KEYWORD for one in takes.values())
    otherwise = "" if sure else f". If {job!r} takes arguments of that name, write .options().enqueue(…, {write})"
    raise InvalidOption(
        f"`{name}` is an option of the call and no argument of {job!r}; write .options({write}).enqueue(…) instead of "
        f".enqueue(…, {write}){otherwise}"
    )


def _hint_of_meant(function: Function, kwargs: Mapping[str, Any]) -> str:
    """Return what was perhaps meant by arguments that do not fit."""
    from difflib import get_close_matches

    takes = () if function.signature is None else function.signature.parameters
    for name, value in kwargs.items():
        if name in takes:
            continue
        if name in CallOptions.__annotations__:
            return f"; `{name}` is an option of the call, which goes into .options({name}={_show_value(value)})"
        if close := get_close_matches(name, takes, n=1):
            return f"; did you mean {close[0]}=?"
        if close := get_close_matches(name, CallOptions.__annotations__, n=1):
            return f"; did you mean .options({close[0]}={_show_value(value)}).enqueue(…)?"
        if name in _WRITE_INSTEAD:
            write = f".options({_RENAMED[name]}).enqueue(…)" if name in _RENAMED else _WRITE_INSTEAD[name]
            return f"; write {write}"
    return ""


def _show_value(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else "…"
