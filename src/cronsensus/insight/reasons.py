"""The reasons of the ledger in words: a clause for each, filled in with the job's policies."""

from __future__ import annotations

from cronsensus.insight.sentences import Because, Clause, Sentence
from cronsensus.model.job import Policies
from cronsensus.model.states import Reason


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


def reason_clause(text: str | None, policies: Policies) -> Sentence | str:
    """Return the reason of a verdict as a clause; a text of people or jobs stays as it is."""
    reason, detail = reason_of(text)
    if reason is None:
        return detail
    code = Because[reason.name]
    clause = code(**{name: getattr(policies, name) for name in code.slots})
    return Clause.DETAILED(clause=clause, detail=detail) if detail else clause
