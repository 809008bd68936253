"""Calls to enqueue: the function's arguments are kept apart from the options of the call.

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
    """A call of a job, checked and not enqueued yet. ``job.call`` and ``job.options(…).call`` make calls.

    ``enqueue_many`` takes any number of calls. A call without a key may be enqueued again, which makes another run.

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
        on_mismatch: what to do about another payload under a known key.
        on_failed: what to do if the run under a known key ended without success.
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
        InvalidOption: an unknown or invalid option; the message says what to write.
        InvalidDuration: an invalid duration.
    """
    known_options = CallOptions.__annotations__
    if wrong := [
        describe_unknown_option(name, known_options, where="a call", instead=_WRITE_INSTEAD)
        for name in options
        if name not in known_options
    ]:
        raise InvalidOption("; ".join(wrong))
    options_given = {name: value for name, value in options.items() if value is not None}
    if "delay" in options_given and "at" in options_given:
        raise InvalidOption("delay and at both say when; give one of them")
    if "key" in options_given:
        check_key(options_given["key"])
    if "priority" in options_given:
        Policies.read({"priority": options_given["priority"]})
    on_mismatch, on_failed = options_given.get("on_mismatch", "error"), options_given.get("on_failed", "keep")
    check_choice(on_mismatch, OnMismatch, what="on_mismatch")
    check_choice(on_failed, OnError, what="on_failed")
    item = Item(
        job=job,
        key=options_given.get("key"),
        delay=parse_duration(options_given["delay"], what="delay") if "delay" in options_given else timedelta(0),
        due_at=instant_in(options_given["at"], zone, "at") if "at" in options_given else None,
        priority=options_given.get("priority"),
        expires_in=parse_duration(options_given["expires"], what="expires") if "expires" in options_given else None,
    )
    return Call(item, on_mismatch, on_failed)


def require_call(call: Call[T], job: str | None = None) -> Call[T]:
    """Check and return a call that ``enqueue_many`` was given.

    Raises:
        InvalidOption: it is no call, or a call of another job than ``job``.
    """
    if not isinstance(call, Call):
        raise InvalidOption(
            f"enqueue_many takes calls, and {_show_value(call)} is none; "
            "write enqueue_many(job.call(one) for one in …), or job.options(key=…).call(one)"
        )
    if job is not None and call.item.job != job:
        raise InvalidOption(
            f"{job!r} was given a call of {call.item.job!r}; write scheduler.enqueue_many(…) for calls of several jobs"
        )
    return call


def with_arguments(
    item: Item, args: tuple[Any, ...], kwargs: Mapping[str, Any], function: Function | None, spec: JobSpec | None
) -> Item:
    """Return the call with arguments in the form of the store.

    Args:
        item: the call.
        args: by position; none at all, also no ``kwargs``: the job's own.
        kwargs: by name.
        function: ``None``: this process does not have it, and the arguments are not checked.
        spec: ``None``: this process does not declare the job.

    Raises:
        InvalidOption: the function cannot be called with them.
        InvalidPayload: an argument is neither JSON nor of its annotation; or they are too large.
    """
    if not args and not kwargs:
        # The job's own arguments; they were checked where the job was declared, unless it has none.
        if function is not None and spec is not None and not spec.args and not spec.kwargs:
            function.bind((), {})
        return item
    if function is not None:
        positional, named = function.bind(args, kwargs, hint=_hint_of_meant(function, kwargs))
    else:
        listed, named = UNTYPED.write_arguments(args, kwargs, what=f"arguments of {item.job!r}")
        positional = tuple(listed)
    return dataclasses.replace(item, args=positional, kwargs=named)


def refuse_options(job: str, kwargs: Mapping[str, Any], function: Function | None) -> None:
    """Refuse options of a call among its arguments, if ``options`` was not used.

    A function that takes any keyword, or that this process does not have, would get the key as an argument, and each
    repeat would be another run.

    Raises:
        InvalidOption: there is such an argument; the message says what to write.
    """
    signature = None if function is None else function.signature
    takes = {} if signature is None else signature.parameters
    misplaced = {
        name: value for name, value in kwargs.items() if name in CallOptions.__annotations__ and name not in takes
    }
    if not misplaced:
        return
    write = ", ".join(f"{name}={_show_value(value)}" for name, value in misplaced.items())
    name = next(iter(misplaced))
    sure = signature is not None and not any(
        parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in takes.values()
    )
    otherwise = "" if sure else f". If {job!r} takes arguments of that name, write .options().enqueue(…, {write})"
    raise InvalidOption(
        f"`{name}` is an option of the call and no argument of {job!r}; write .options({write}).enqueue(…) instead of "
        f".enqueue(…, {write}){otherwise}"
    )


def _hint_of_meant(function: Function, kwargs: Mapping[str, Any]) -> str:
    """Return a hint on arguments that do not fit."""
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
