"""What another program's function returned or raised, as the ledger keeps it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cronsensus.errors import InvalidPayload
from cronsensus.model.ends import Final
from cronsensus.model.occurrence import RunError
from cronsensus.model.states import State
from cronsensus.node.executors.result import describe_error
from cronsensus.payload.codec import dumps

NOT_KEPT = "succeeded; its result cannot be kept"


def result_text(value: Any) -> tuple[bool, str | None]:
    """Return whether the ledger can keep a result, and its text; the other program does not depend on it."""
    if value is None:
        return True, None
    try:
        return True, dumps(value, what="the result")
    except InvalidPayload:
        return False, None


def end_of_success(value: Any) -> Final:
    """Return the end of a function that has returned; the reason shows if the ledger cannot keep its result."""
    kept, text = result_text(value)
    return Final(State.SUCCEEDED, None if kept else NOT_KEPT, result=text)


def error_text(error: BaseException, trace: str | None = None) -> RunError:
    """Return an exception as the ledger keeps it, bounded; ``trace``: its traceback, where it is text already."""
    described = describe_error(error)
    return described if trace is None else replace(described, traceback=trace)
