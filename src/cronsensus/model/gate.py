"""One job after another: may an occurrence begin, seeing what became of those that it comes after?

Asked of what the store has recorded, each time the occurrence is claimed; so nothing is counted, and no edge is stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from cronsensus.model.states import Reason

When = Literal["succeeded", "ended", "failed"]
Which = Literal["same", "all_in_period", "latest_before"]
Verdict = Literal["wait", "succeeded", "failed", "cancelled", "skipped", "missed", "missing", "pruned"]
"""Of one nominal time of a job. ``"missing"``: it was decided, and there is nothing; or there is no such job.

``"pruned"``: there is nothing any more, so whatever it was is not known.
"""

_WELL: Mapping[When, frozenset[Verdict]] = {
    "succeeded": frozenset({"succeeded"}),
    "ended": frozenset({"succeeded", "failed", "cancelled", "skipped"}),
    "failed": frozenset({"failed", "cancelled"}),
}
_REASONS: Mapping[Verdict, Reason] = {
    "succeeded": Reason.UPSTREAM_SUCCEEDED,
    "failed": Reason.UPSTREAM_FAILED,
    "cancelled": Reason.UPSTREAM_FAILED,
    "skipped": Reason.UPSTREAM_SKIPPED,
    "missed": Reason.UPSTREAM_MISSING,
    "missing": Reason.UPSTREAM_MISSING,
    "pruned": Reason.UPSTREAM_PRUNED,
}


@dataclass(frozen=True, slots=True)
class Rule:
    """What an occurrence comes after.

    Attributes:
        job: the upstream's name.
        when: how that must have ended.
        which: of its nominal times: the ``"same"``, ``"all_in_period"`` since the dependent's own one before, or the
            ``"latest_before"`` it, itself included.
    """

    job: str
    when: When = "succeeded"
    which: Which = "same"


@dataclass(frozen=True, slots=True)
class Gate:
    """What to do with an occurrence.

    Attributes:
        decision: ``"run"``, ``"wait"`` or ``"skip"`` it.
        reason: for what it waits, or why it is skipped.
    """

    decision: Literal["run", "wait", "skip"]
    reason: str = ""


def is_against(rule: Rule, verdict: Verdict) -> bool:
    """Whether an occurrence is skipped because of this one."""
    return verdict != "wait" and verdict not in _WELL[rule.when]


def gate(
    rules: Sequence[Rule], verdicts: Mapping[str, Sequence[Verdict]], *, waited: timedelta, wait_for: timedelta
) -> Gate:
    """Return whether an occurrence runs.

    Args:
        rules: what it comes after.
        verdicts: of each upstream, by name; of several nominal times all must be well.
        waited: since its creation.
        wait_for: how long it may.
    """
    waits: list[str] = []
    for rule in rules:
        found = verdicts[rule.job]
        bad = next((one for one in found if is_against(rule, one)), None)
        if bad is not None:
            return Gate("skip", f"{_REASONS[bad]}: {rule.job}")
        if "wait" in found:
            waits.append(rule.job)
    if not waits:
        return Gate("run")
    if waited > wait_for:
        return Gate("skip", f"{Reason.UPSTREAM_LATE}: {', '.join(waits)}")
    return Gate("wait", f"for {', '.join(waits)}")
