"""Turn a function's return value or exception into an ``Ending``.

No exception of a job gets past this file: ``sys.exit`` ends the run and not the node, and an exception that cannot even
be printed still gives a readable error. Inspecting an object of the job's (its class, text, attributes, traceback) may
run code of the job's, which may raise anything. So ``ending_of_value``, ``ending_of_error``, ``describe_error``,
``cannot_be_called``, ``stack_of`` and ``stack_at`` never raise: an executor that failed here would lose the run.

After a request to stop, the first of these that applies decides. A function that returned normally counts as returned
(the result existed before the request was noticed; if the lease is lost, the store refuses it anyway). ``Skip``,
``Snooze`` and ``Retry`` are explicit, and count. Every other exception ends the attempt as cancelled, and is kept as
its error unless it only means "stop".
"""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from msgspec import structs

from cronsensus.errors import (
    Cancel,
    CronsensusError,
    InvalidDuration,
    InvalidPayload,
    LeaseLost,
    Retry,
    Skip,
    Snooze,
    default_message,
)
from cronsensus.model.ending import Ending
from cronsensus.model.ends import Again
from cronsensus.model.occurrence import RunError
from cronsensus.model.states import Reason
from cronsensus.node.hooks import EndsAs
from cronsensus.node.run import BaseRun
from cronsensus.payload.typed import UNTYPED, Types, signature_of
from cronsensus.security.masking import mask
from cronsensus.timing.durations import format_duration, parse_duration

LONGEST_MESSAGE = 2_000
_DEEPEST_GROUP = 100
_MOST_EXCEPTIONS = 200
LONGEST_TRACEBACK = 16 * 1024
MOST_FRAMES = 30
_SEARCHED_BEYOND = 4 * 1024
"""Characters beyond a cut that are searched for the end of a secret that begins before it."""
STOPPED = "Stopped"
"""Type of the "error" by which a job process reports its stack when it was stopped."""

_PLUMBING_FILES = (
    str(Path(__file__).parent) + os.sep,
    str(Path(__file__).parent.parent / "forks.py"),
    str(Path(os.__file__).parent / "asyncio") + os.sep,
    str(Path(importlib.__file__).parent) + os.sep,
    "<frozen importlib",
    "<frozen runpy",
)
"""Files whose frames only lead to the job's own code."""
_UNNAMED_MODULES = frozenset({"builtins", "__main__", "__cronsensus_main__", "cronsensus.errors"})


def ending_of_value(value: Any, types: Types = UNTYPED) -> Ending:
    """Return the ending of a function that returned ``value``; a value that no store can keep is a failure.

    ``types`` has the type of its return annotation.

    Such a failure is not retried: its work is done, and a retry would return the same value.
    """
    try:
        return Ending(kind="returned", result=types.write_result(value))
    except InvalidPayload as error:
        message = f"the job ran to its end, but its {error}. Return None if nobody needs the result"
        failure = RunError(type="InvalidPayload", message=clean_text(message, LONGEST_MESSAGE))
    except BaseException as error:  # noqa: BLE001 — out of memory, or the value's class raises what it likes
        failure = describe_error(error)
    return Ending(kind="raised", error=failure, permanent=True)


def cannot_be_called(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], error: BaseException
) -> bool:
    """Whether ``error`` was raised because ``function`` does not take these arguments.

    An error that the function itself raises, even a ``TypeError``, may differ in a retry; this one will not.
    """
    if not issubclass(type(error), TypeError):
        return False
    try:
        # The signature of the called object, not of a wrapped function: a decorator may add or remove arguments.
        signature = signature_of(function, follow_wrapped=False)
    except BaseException:  # noqa: BLE001 — a callable object may compute its signature, or raise what it likes
        return False
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        return True
    except BaseException:  # noqa: BLE001 — names of arguments are compared, and comparing may run code of the job's
        return False
    return False


def ending_of_error(error: BaseException, run: BaseRun) -> Ending:
    """Return the ending of a function that raised ``error``."""
    try:
        ending = _classify_error(error, run)
        if ending.kind == "raised" and run.was_cut_off(error):
            ending = structs.replace(ending, cut_off=True)
        if _is_permanent(type(error)):
            return ending
        # If its text is cut in the record, the log gets the record: megabytes in a line would stop its handlers.
        if ending.error is not None and len(ending.error.message) >= LONGEST_MESSAGE:
            return ending
        # For the node's log, whose readers inspect it; only if it could be described.
        run.raised = type(error), error, _without_plumbing(error.__traceback__)
        return ending
    except BaseException as raised_meanwhile:  # noqa: BLE001 — raised by inspecting the first
        return Ending(kind="raised", error=describe_error(error, raised_by_inspecting=raised_meanwhile))


def _classify_error(error: BaseException, run: BaseRun) -> Ending:
    control: Any = _unwrap_group(error)
    # The class itself, not isinstance, which calls the object: it may claim anything or raise.
    kind = type(control)
    is_asked_to_stop = run.cancelled.is_set()
    if issubclass(kind, Skip):
        return Ending(kind="skipped", reason=_given_message(control))
    if issubclass(kind, Retry):
        return _retry_ending(control)
    if issubclass(kind, EndsAs):
        return Ending(kind="snoozed", reason=_given_message(control), then=control.then)
    if issubclass(kind, Snooze):
        return _snooze_ending(control)
    if issubclass(kind, Cancel):
        reason = (
            run.cancel_reason if is_asked_to_stop else f"{Reason.JOB_SAID_SO}: {_given_message(control) or 'cancelled'}"
        )
        return Ending(kind="cancelled", reason=reason)
    if is_asked_to_stop:
        only_means_stop = issubclass(kind, LeaseLost | SystemExit) or is_task_cancelled(control)
        return Ending(
            kind="cancelled", reason=run.cancel_reason, error=None if only_means_stop else describe_error(error)
        )
    if issubclass(kind, SystemExit):
        message = f"the job called sys.exit({_error_code(control)}), which ends this run only"
        return _failed_ending(error, f"{message}; return instead, or raise an exception that says what is wrong")
    if issubclass(kind, KeyboardInterrupt):
        return _failed_ending(
            error, "the job raised KeyboardInterrupt, which ends this run only; raise Cancel to stop it"
        )
    if is_task_cancelled(control):
        possible_causes = "by the job itself, by the application, or by its event loop shutting down"
        return _failed_ending(error, f"the job's task was cancelled, but not by cronsensus: {possible_causes}")
    if _is_permanent(kind):
        return Ending(kind="raised", error=RunError(type=kind.__name__, message=_error_message(error)), permanent=True)
    return Ending(kind="raised", error=describe_error(error))


def timed_out(timeout: timedelta | None, *, traceback: str = "", detail: str = "") -> Ending:
    """Return the ending of an attempt that ran over its timeout; ``traceback`` is its stack then."""
    limit = "its timeout" if timeout is None else f"timeout={format_duration(timeout)}"
    message = f"the attempt ran longer than {limit}" + (f"; {detail}" if detail else "")
    return Ending(
        kind="timed_out",
        reason=Reason.TIMEOUT,
        error=RunError(type="TimeoutError", message=message, traceback=traceback),
    )


def cancelled_ending(run: BaseRun, *, detail: str = "", error: RunError | None = None, begun: bool = True) -> Ending:
    """Return the ending of an attempt that was stopped on request."""
    reason = run.cancel_reason or Reason.OPERATOR
    return Ending(kind="cancelled", reason=f"{reason} ({detail})" if detail else reason, error=error, begun=begun)


def never_begun(run: BaseRun) -> Ending:
    """Return the ending of an attempt that was stopped before its function was called."""
    return cancelled_ending(run, detail="before it began", begun=False)


def failed_ending(kind: str, message: str, *, traceback: str = "") -> Ending:
    """Return the ending of an attempt that failed for a reason outside of its code.

    ``kind`` is in the place of an exception's type.
    """
    return Ending(
        kind="raised", error=RunError(type=kind, message=clean_text(message, LONGEST_MESSAGE), traceback=traceback)
    )


def describe_error(error: BaseException, *, raised_by_inspecting: BaseException | None = None) -> RunError:
    """Return ``error`` as bounded text: type, message, and the last frames without their local variables.

    ``raised_by_inspecting``: the exception raised by inspecting it.
    """
    message = _error_message(error)
    if raised_by_inspecting is not None:
        message = clean_text(
            f"{message} (looking at this exception raised {_kind_name(type(raised_by_inspecting))})".strip(),
            LONGEST_MESSAGE,
        )
    return RunError(type=_kind_name(type(error)), message=message, traceback=_error_traceback(error))


def stack_of(thread: int | None) -> str:
    """Return the present stack of a thread, by its ``ident``, as bounded text; empty if it is gone."""
    frame = sys._current_frames().get(thread or -1)  # noqa: SLF001 — the documented way to look at another thread
    return "" if frame is None else stack_at(frame)


def stack_at(frame: FrameType) -> str:
    """Return the calls that led to ``frame``, as bounded text."""
    try:
        frames = traceback.extract_stack(frame)
        while frames and (
            frames[0].filename.startswith(_PLUMBING_FILES) or frames[0].filename.endswith("threading.py")
        ):
            del frames[0]
        return _join_bounded(traceback.format_list(frames[-MOST_FRAMES:]))
    except BaseException as error:  # noqa: BLE001 — source lines come from loaders, which may be the job's
        return f"(the stack cannot be shown: {_kind_name(type(error))})"


def is_task_cancelled(error: BaseException) -> bool:
    """Whether ``error`` is asyncio's ``CancelledError``, without importing asyncio."""
    exceptions = sys.modules.get("asyncio.exceptions")
    return exceptions is not None and issubclass(type(error), exceptions.CancelledError)


def clean_text(text: str, longest: int) -> str:
    """Return at most ``longest`` characters of ``text``, in a form that every store can keep.

    It has no NUL and no lone surrogates.

    Secrets are masked before it is cut, because a cut secret is not recognised. This happens here, and not only in the
    store, because the node's log and its events have the same text.
    """
    # By the method of str: what a __str__ returns may be of a subclass, whose own methods may do anything.
    return _shorten_text(mask(str.__getitem__(text, slice(longest + _SEARCHED_BEYOND))), longest)


def _shorten_text(text: str, longest: int) -> str:
    if len(text) > longest:
        text = text[: longest - 1] + "…"
    return text.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode()


def _unwrap_group(error: BaseException) -> BaseException:
    """Return the only exception of a group: a task group wraps the ``Cancel`` or ``Skip`` of a task."""
    for _ in range(_DEEPEST_GROUP):
        if not issubclass(type(error), BaseExceptionGroup) or len(error.exceptions) != 1:  # type: ignore[attr-defined]
            break
        error = error.exceptions[0]  # type: ignore[attr-defined]
    return error


def _retry_ending(control: Retry) -> Ending:
    try:
        after = None if control.after is None else parse_duration(control.after, what="Retry(after=…)")
    except InvalidDuration as invalid:
        return Ending(kind="raised", error=describe_error(invalid))
    cause = control.__cause__ or (None if control.__suppress_context__ else control.__context__)
    error = None if cause is None else describe_error(cause)
    return Ending(kind="retry", reason=_given_message(control), retry_after=after, error=error)


def _snooze_ending(control: Snooze) -> Ending:
    try:
        after = parse_duration(control.after, what="Snooze(after=…)")
    except InvalidDuration as invalid:
        return Ending(kind="raised", error=describe_error(invalid))
    return Ending(kind="snoozed", reason=_given_message(control), then=Again(after, failed=False))


def _failed_ending(error: BaseException, message: str) -> Ending:
    return failed_ending(_kind_name(type(error)), message, traceback=_error_traceback(error))


def _is_permanent(kind: type[BaseException]) -> bool:
    return issubclass(kind, CronsensusError) and kind.permanent


def _given_message(control: CronsensusError) -> str | None:
    """Return the job's own message; ``None`` if the exception has only the default sentence of its class."""
    text = _error_message(control)
    return None if text in {"", default_message(type(control))} else text


def _error_code(error: SystemExit) -> str:
    code: object = error.code
    return clean_text(repr(code), 80) if isinstance(code, int | str | None) else "…"


def _kind_name(kind: type[BaseException]) -> str:
    try:
        module, name = clean_text(str(kind.__module__), 200), clean_text(str(kind.__qualname__), 200)
    except BaseException:  # noqa: BLE001 — a metaclass can do anything
        return "Exception"
    return name if module in _UNNAMED_MODULES else clean_text(f"{module}.{name}", 200)


def _error_message(error: BaseException) -> str:
    try:
        return clean_text(str(error), LONGEST_MESSAGE)
    except BaseException as second:  # noqa: BLE001 — an exception of __str__, even SystemExit, must not end the node
        return f"(the exception's __str__ raised {_kind_name(type(second))})"


def _error_traceback(error: BaseException) -> str:
    try:
        trace = _without_plumbing(error.__traceback__)
        if _is_too_much(error):
            frames = traceback.format_list(traceback.extract_tb(trace, limit=-MOST_FRAMES))
            first = (
                "(too many exceptions stand behind it, or in it, to show them)\nTraceback (most recent call last):\n"
            )
            return _join_bounded([first, *frames, f"{_kind_name(type(error))}: {_error_message(error)}"])
        text = traceback.TracebackException(type(error), error, trace, limit=-MOST_FRAMES, compact=True)
        return _join_bounded(list(text.format()))
    except BaseException as second:  # noqa: BLE001 — same as above
        return f"(the traceback cannot be shown: {_kind_name(type(second))})"


def _is_too_much(error: BaseException) -> bool:
    """Whether an exception nests too many others, or itself, for ``traceback`` to format."""
    seen: dict[int, BaseException] = {}  # kept alive, or an id might be reused
    inside: set[int] = set()
    waiting = [error]
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen[id(one)] = one
        if len(seen) > _MOST_EXCEPTIONS:
            return True
        if issubclass(type(one), BaseExceptionGroup):
            parts = one.exceptions  # type: ignore[attr-defined]
            if len(parts) > _MOST_EXCEPTIONS or any(id(part) in seen or id(part) in inside for part in parts):
                return True
            inside.update(map(id, parts))
            waiting += parts
        waiting += [other for other in (one.__cause__, one.__context__) if other is not None]
    return False


def _without_plumbing(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_PLUMBING_FILES):
        trace = trace.tb_next
    return trace


def _join_bounded(lines: list[str]) -> str:
    """Join lines; too much text is cut at its beginning, because the innermost frames and the message come last."""
    text = "".join(line if len(line) <= LONGEST_MESSAGE else clean_text(line, LONGEST_MESSAGE) + "\n" for line in lines)
    text = mask(text[-LONGEST_TRACEBACK - _SEARCHED_BEYOND :])
    if len(text) > LONGEST_TRACEBACK:
        text = "…" + text[1 - LONGEST_TRACEBACK :]
    return _shorten_text(text.rstrip("\n"), LONGEST_TRACEBACK)
