"""What another program's function returned or raised, as the ledger keeps it."""

from __future__ import annotations

import traceback
from typing import Any

from cronsensus.errors import InvalidPayload
from cronsensus.model.occurrence import RunError
from cronsensus.payload.codec import dumps


def result_text(value: Any) -> tuple[bool, str | None]:
    """Return whether the ledger can keep a result, and its text; that program asks nothing of it."""
    if value is None:
        return True, None
    try:
        return True, dumps(value, what="the result")
    except InvalidPayload:
        return False, None


def error_text(error: BaseException, trace: str | None = None) -> RunError:
    """Return an exception as the ledger keeps it; ``trace``: its traceback, where it is text already."""
    if trace is None:
        trace = "".join(traceback.format_exception(error))
    return RunError(type=type(error).__qualname__, message=str(error), traceback=trace)
