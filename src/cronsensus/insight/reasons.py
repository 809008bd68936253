"""The reasons of the ledger in words: a clause for each, filled in with the job's policies."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from cronsensus.insight.time_words import brief
from cronsensus.model.job import Policies
from cronsensus.model.states import Reason

ENGLISH: dict[Reason, str] = {
    Reason.OVERLAP: "an earlier run was not over when this time was decided, and overlap={overlap}",
    Reason.COALESCED: "catch_up=latest runs only the last of those that passed meanwhile",
    Reason.PAUSED: "the job was paused",
    Reason.LATE: "grace is {grace}",
    Reason.NO_CATCH_UP: "catch_up=none runs nothing late",
    Reason.BEYOND_WINDOW: "catch_up_window is {catch_up_window}",
    Reason.REPLACED: "the next one was due, and overlap=cancel_previous",
    Reason.CRASHED: "its node ended while it ran (on_crash={on_crash}, max_crashes={max_crashes})",
    Reason.TIMEOUT: "it ran longer than its timeout of {timeout}",
    Reason.OPERATOR: "an operator cancelled it",
    Reason.RETIRED: "the job was retired",
    Reason.BATCH_ENDED: "the batch that it is an item of had ended",
    Reason.UPSTREAM_FAILED: "what it comes after failed",
    Reason.UPSTREAM_SUCCEEDED: "what it comes after did not fail",
    Reason.UPSTREAM_SKIPPED: "what it comes after was skipped",
    Reason.UPSTREAM_MISSING: "what it comes after has no run for that time",
    Reason.UPSTREAM_PRUNED: "what became of the job before it was pruned",
    Reason.UPSTREAM_LATE: "what it comes after was not over in time (wait_for)",
    Reason.JOB_SAID_SO: "the job said so",
}
"""Clauses without a full stop, to stand alone or within a sentence. Another language is another dict with these keys;
the names in braces are those of policies."""


def reason_of(text: str | None) -> tuple[Reason | None, str]:
    """Return the reason that a text of the ledger begins with, and what follows it; without one, all of the text."""
    text = text or ""
    for reason in Reason:
        if text == reason:
            return reason, ""
        if text.startswith(f"{reason}: "):
            return reason, text.removeprefix(f"{reason}: ")
        if text.startswith(f"{reason} (") and text.endswith(")"):
            return reason, text[len(reason) + 2 : -1]
    return None, text


def clause(text: str | None, policies: Policies) -> str:
    """Return the reason of a verdict as a clause; a text that is no reason of ours stays as it is."""
    reason, detail = reason_of(text)
    if reason is None:
        return detail
    words = ENGLISH[reason].format_map(_Shown(policies))
    return f"{words}: {detail}" if detail else words


class _Shown:
    """Policies as the clauses name them."""

    def __init__(self, policies: Policies) -> None:
        self._policies = policies

    def __getitem__(self, name: str) -> str:
        value: Any = getattr(self._policies, name)
        if value is None:
            return "none"
        return brief(value) if isinstance(value, timedelta) else str(value)
