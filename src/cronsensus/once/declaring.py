"""The decorators ``once`` and ``once_per`` of a ``Scheduler``, which guard functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal, Never, overload

from cronsensus.declared.declarations import log_other_meanings
from cronsensus.declared.functions import Function, inspect_function
from cronsensus.errors import DuplicateJob, InvalidOption, UnsupportedFunction
from cronsensus.model.job import JobSpec, OnCrash, Policies, check_choice, unknown_option
from cronsensus.once.choices import OnBusy, OnError, OnMismatch
from cronsensus.once.identity import identity_of
from cronsensus.once.keys import KeyOf
from cronsensus.once.payloads import FingerprintOf, Payload
from cronsensus.once.slots import read_trigger, slot_of
from cronsensus.timing.durations import Duration, format_duration, parse_duration
from cronsensus.triggers import Trigger

if TYPE_CHECKING:
    from cronsensus.once.call_key import CallKey
    from cronsensus.once.claims import Claims
    from cronsensus.once.guarded import (
        Guarded,
        GuardedInTransaction,
        GuardedOrSkipped,
        GuardedOrSkippedInTransaction,
    )
    from cronsensus.once.once import CallKeyOf, Once, RecordedKeyOf

MOST_CRASHES = 10
"""Default for ``max_crashes``: a call that kills its process must not kill every process that repeats it."""
_PER_OPTIONS = {"name", "early", "keep", "on_busy", "on_error", "on_crash", "max_crashes", "wait_for"}
_OPTIONS = (_PER_OPTIONS - {"early"}) | {"key", "transaction", "payload", "on_mismatch"}


class Guards:
    """The functions that a scheduler guards.

    Attributes:
        claims: returns the claims of this process in the store.
        guarded: the place of each guarded function's definition, by the name of its implicit job.
    """

    def __init__(self, claims: Callable[[], Claims], zone: Callable[[], str]) -> None:
        """Guard functions by ``claims``; ``zone`` is the time zone of cron expressions without one."""
        self.claims = claims
        self.guarded: dict[str, str] = {}
        self._zone = zone

    @overload
    def once(
        self, key: str | Callable[..., str], *, on_busy: Literal["wait", "raise"] = ...,
        transaction: Literal[False] = ...,
        keep: Duration = ..., on_error: OnError = ..., on_crash: OnCrash = ..., max_crashes: int = ...,
        payload: Payload | None = ..., on_mismatch: OnMismatch = ...,
        wait_for: Duration | None = ..., name: str | None = ...,
    ) -> Guarded: ...  # fmt: skip
    @overload
    def once(
        self, key: str | Callable[..., str], *, on_busy: Literal["skip"], transaction: Literal[False] = ...,
        keep: Duration = ..., on_error: OnError = ..., on_crash: OnCrash = ..., max_crashes: int = ...,
        payload: Payload | None = ..., on_mismatch: OnMismatch = ...,
        name: str | None = ...,
    ) -> GuardedOrSkipped: ...  # fmt: skip
    @overload
    def once(
        self, key: str | Callable[..., str], *, on_busy: Literal["wait", "raise"] = ..., transaction: Literal[True],
        keep: Duration = ..., on_error: OnError = ..., on_crash: OnCrash = ..., max_crashes: int = ...,
        payload: Payload | None = ..., on_mismatch: OnMismatch = ...,
        wait_for: Duration | None = ..., name: str | None = ...,
    ) -> GuardedInTransaction: ...  # fmt: skip
    @overload
    def once(
        self, key: str | Callable[..., str], *, on_busy: Literal["skip"], transaction: Literal[True],
        keep: Duration = ..., on_error: OnError = ..., on_crash: OnCrash = ..., max_crashes: int = ...,
        payload: Payload | None = ..., on_mismatch: OnMismatch = ...,
        name: str | None = ...,
    ) -> GuardedOrSkippedInTransaction: ...  # fmt: skip
    def once(
        self,
        key: str | Callable[..., str],
        *,
        keep: Duration = "7d",
        on_busy: OnBusy = "wait",
        on_error: OnError = "free",
        transaction: bool = False,
        payload: Payload | None = None,
        on_mismatch: OnMismatch = "error",
        on_crash: OnCrash = "retry",
        max_crashes: int = MOST_CRASHES,
        wait_for: Duration | None = None,
        name: str | None = None,
        **unknown: Never,
    ) -> Any:
        """Run a function once for each key, in any process; a repeat gets the recorded result.

        For message handlers, webhooks, Celery tasks, any function, sync or async. It needs no running node. The result
        is kept as JSON: a repeat gets a list where the function returned a tuple.

        Not prevented: a call whose process is frozen for longer than the lease goes on beside the call that took its
        key over. Only the effects of ``transaction=True`` cannot happen twice.

        Args:
            key: a template over the function's arguments, such as ``"charge:{order_id}"``; or a function that is called
                with the same arguments. It counts within this function only.
            keep: how long a repeat gets the recorded result; after that it runs the function anew.
            on_busy: while another call runs under the key: ``"wait"`` for its result, ``"skip"`` (return ``None``), or
                ``"raise"`` ``StillRunning``.
            on_error: after an exception: ``"free"`` the key for the next call; or ``"keep"`` it: repeats raise
                ``RunFailed`` with the recorded error.
            transaction: pass the function a connection, before its own arguments, and commit its writes there together
                with the key and the result. SQL stores only. An async function gets an async connection.
            payload: what must be the same in all calls under a key: names of arguments, or of parts of them such as
                ``"message.body"``; or a function that is called with the same arguments and returns the values to
                compare. ``None``: all arguments with plain values (text, numbers, dates, lists, dicts, dataclasses),
                without those that a broker changes when it delivers again (``redelivered``, ``delivery_tag``, …).
            on_mismatch: if the key of a recorded call comes with another payload: ``"error"`` (``PayloadMismatch``), or
                ``"return"`` the recorded result.
            on_crash: if the process dies: the next or a waiting call runs it again (``"retry"``), or the key is closed
                as failed (``"fail"``), for work that must never be done twice.
            max_crashes: after this many crashes the key is closed as failed.
            wait_for: longest wait for another call; then ``StillRunning``. ``None``: no limit.
            name: distinguishes guarded functions. Defaults to the function's own.
            unknown: any other option is refused, with the nearest known name.

        Raises:
            InvalidOption: an unknown or invalid option; or the key has an argument that the function does not have.
            DuplicateJob: another guarded function has the name.
            UnsupportedFunction: it is not a function.
        """
        refuse_unknown(unknown, _OPTIONS, "once")
        options = read_options(keep, on_busy, on_error, on_crash, max_crashes, wait_for)
        check_choice(on_mismatch, OnMismatch, what="on_mismatch")

        def decorate(function: Any = None, *args: Any, **kwargs: Any) -> Once[..., Any]:
            if callable(key) and (args or kwargs or not callable(function)):
                # `key` is the function, and this is a call of the wrongly decorated function.
                raise _missing_parentheses("once", "key='charge:{order_id}'")
            inspected = inspect_guarded(function, name)
            signature = _callers_signature(inspected, transaction=transaction)
            key_of = KeyOf(key, inspected.name, signature)
            fingerprint_of = FingerprintOf(payload, inspected.name, signature)

            def call_key_of(spec: JobSpec, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallKey:
                from cronsensus.once.call_key import CallKey

                bound_arguments = key_of.bind_arguments(args, kwargs)
                filled_key = key_of(args, kwargs, bound_arguments)
                return CallKey(
                    spec,
                    filled_key.text,
                    fingerprint=fingerprint_of(args, kwargs, bound_arguments, filled_key),
                    fields=filled_key.fields,
                    lenient=on_mismatch == "return",
                )

            def recorded(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
                return key_of(args, kwargs, key_of.bind_arguments(args, kwargs, partly=True)).text

            return self.guard_function(
                "once", inspected, call_key_of, options, transaction=transaction, recorded=recorded
            )

        return decorate

    def once_per(
        self,
        period: Trigger | Duration,
        *,
        early: Duration = "10s",
        keep: Duration = "30d",
        on_busy: OnBusy = "skip",
        on_error: OnError = "free",
        on_crash: OnCrash = "retry",
        max_crashes: int = MOST_CRASHES,
        wait_for: Duration | None = None,
        name: str | None = None,
        **unknown: Never,
    ) -> GuardedOrSkipped:
        """Run a function once for each slot of a trigger, for programs with a timer of their own on every replica.

        A slot reaches from one nominal time to the next, by the store's clock. If its call has ended, later calls get
        the recorded result; while it is running, they return ``None``.

        Args:
            period: a trigger, the same as the program's own timer; or a duration.
            early: a call at most this much before the next nominal time counts for that; at most half of the slot.
            keep: how long slots are kept. Defaults to 30 days.
            on_busy: as for ``once``. Defaults to ``"skip"``.
            on_error: as for ``once``: ``"free"`` lets another replica try in the same slot.
            on_crash: as for ``once``.
            max_crashes: as for ``once``.
            wait_for: as for ``once``.
            name: as for ``once``.
            unknown: as for ``once``.

        Raises:
            InvalidTrigger, InvalidDuration: ``period`` is neither a trigger nor a duration.
            InvalidOption, DuplicateJob, UnsupportedFunction: as ``once``.
        """
        refuse_unknown(unknown, _PER_OPTIONS, "once_per")
        require_parentheses(period, "once_per", "'1h'")
        trigger, ahead = read_trigger(period), parse_duration(early, what="early")
        options = read_options(keep, on_busy, on_error, on_crash, max_crashes, wait_for)

        def decorate(function: Callable[..., Any]) -> Any:
            inspected = inspect_guarded(function, name)
            log_other_meanings(inspected.name, trigger)

            def call_key_of(spec: JobSpec, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallKey:  # noqa: ARG001
                from cronsensus.once.call_key import CallKey

                zone = self._zone()
                zoned_trigger = trigger.in_zone(zone)
                return CallKey.for_slot(
                    spec, slot_of(zoned_trigger, self.claims().store.now(), ahead), zoned_trigger.zone or zone
                )

            return self.guard_function("once_per", inspected, call_key_of, options)

        return decorate

    def guard_function(
        self,
        kind: str,
        inspected: Function,
        call_key_of: CallKeyOf,
        options: dict[str, Any],
        *,
        transaction: bool = False,
        recorded: RecordedKeyOf | None = None,
    ) -> Once[..., Any]:
        """Return the guarded function, under a name of its own."""
        from cronsensus.once.once import Once

        name = f"{kind}:{inspected.name}"
        if name in self.guarded:
            raise DuplicateJob(
                f"{inspected.name!r} is guarded twice by @scheduler.{kind}, at {self.guarded[name]} and at "
                f"{inspected.place}; give one of them another name=…"
            )
        spec = JobSpec(
            name=name,
            # No node registers a function of this name: it runs where it is called. The name shows if two programs
            # differ.
            function=identity_of(inspected),
            policies=options["policies"],
            executor=inspected.registered.executor,
            source="runtime",
        )
        guarded: Once[..., Any] = Once(
            inspected.registered.function,
            spec=lambda: spec,
            claims=self.claims,
            call_key_of=call_key_of,
            on_busy=options["on_busy"],
            on_error=options["on_error"],
            wait_for=options["wait_for"],
            transaction=transaction,
            recorded=recorded,
        )
        self.guarded[name] = inspected.place
        return guarded


def inspect_guarded(function: Callable[..., Any], name: str | None) -> Function:
    """Inspect a function that is to be guarded."""
    from cronsensus.once.once import Once

    plain = function.function if isinstance(function, Once) else function
    inspected = inspect_function(plain, name=name, executor=None)
    if inspected.registered.run_parameter is not None:
        raise UnsupportedFunction(
            f"{inspected.name} ({inspected.place}) asks for a Run by {inspected.registered.run_parameter!r}, but it is "
            "its caller who passes arguments here; write current_run() in it instead"
        )
    return inspected


def _callers_signature(inspected: Function, *, transaction: bool) -> inspect.Signature | None:
    """Return the signature for callers."""
    signature = inspected.signature
    if not transaction or signature is None:
        return signature
    parameters = list(signature.parameters.values())
    first = parameters[0] if parameters else None
    if first is None or first.kind not in (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    ):
        raise InvalidOption(
            f"once(transaction=True): {inspected.name}() ({inspected.place}) needs a first parameter for the connection"
        )
    if first.name in {"self", "cls"}:
        raise InvalidOption(
            f"once(transaction=True): {inspected.name}() ({inspected.place}) is a method; guard a function that gets "
            "the connection first"
        )
    return signature.replace(parameters=parameters[1:])


def read_options(  # noqa: PLR0917 - as they are written
    keep: Duration, on_busy: str, on_error: str, on_crash: str, max_crashes: int, wait_for: Duration | None
) -> dict[str, Any]:
    """Return checked options."""
    check_choice(on_busy, OnBusy, what="on_busy")
    check_choice(on_error, OnError, what="on_error")
    kept = parse_duration(keep, what="keep")
    if kept <= timedelta(0):
        raise InvalidOption(f"keep={format_duration(kept)!r}: a key that is kept for no time protects nothing")
    patience = None if wait_for is None else parse_duration(wait_for, what="wait_for")
    if patience is not None and on_busy != "wait":
        raise InvalidOption(f"wait_for says how long to wait, and on_busy={on_busy!r} does not; leave one of them out")
    policies = {"keep": kept, "on_crash": on_crash, "max_crashes": max_crashes, "overlap": "allow"}
    return {"policies": Policies.read(policies), "on_busy": on_busy, "on_error": on_error, "wait_for": patience}


def refuse_unknown(unknown: dict[str, Any], known: set[str], where: str) -> None:
    """Raise for options that a decorator does not have."""
    for option in unknown:
        raise unknown_option(option, known, where=where)


def require_parentheses(first: object, decorator: str, example: str) -> None:
    """Raise if a function stands where the decorator's first argument belongs."""
    if inspect.isfunction(first):
        raise _missing_parentheses(decorator, example)


def _missing_parentheses(decorator: str, example: str) -> InvalidOption:
    return InvalidOption(f"the decorator needs its parentheses; write @scheduler.{decorator}({example})")
