"""Dependencies: may an occurrence start, given the verdicts of its upstreams?

Asked of what the store has recorded, each time the occurrence is claimed; so nothing is counted. What comes after what
stands in the job's definition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from graphlib import CycleError, TopologicalSorter
from typing import Any, Literal, Self, get_args

from cronsensus.model.states import Reason

WAIT_FOR = timedelta(days=1)
MOST_UPSTREAMS = 100
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


@dataclass(frozen=True, slots=True, order=True)
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
class After:
    """What the occurrences of a job come after.

    Attributes:
        upstreams: a rule for each, by name.
        wait_for: how long one may wait, from its creation on.
    """

    upstreams: tuple[Rule, ...]
    wait_for: timedelta = WAIT_FOR

    def __post_init__(self) -> None:
        """Bring the rules into one order: that of a mapping's keys makes no other definition."""
        object.__setattr__(self, "upstreams", tuple(sorted(self.upstreams)))

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON values; the duration in microseconds."""
        rules = [[rule.job, rule.when, rule.which] for rule in self.upstreams]
        return {"wait_for": self.wait_for // timedelta(microseconds=1), "upstreams": rules}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what ``to_json`` wrote.

        Raises:
            LookupError, TypeError, ValueError: something else did, or a newer version.
        """
        if data.keys() != {"wait_for", "upstreams"}:
            raise ValueError(f"after={str(dict(data))[:200]}")
        rules = tuple(
            Rule(str(job), _one_of(when, When), _one_of(which, Which)) for job, when, which in data["upstreams"]
        )
        return cls(rules, timedelta(microseconds=data["wait_for"]))


def _one_of(word: Any, known: Any) -> Any:
    if word not in get_args(known):
        raise ValueError(f"{word!r} is none of {', '.join(get_args(known))}")
    return word


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


def in_order(rules: Mapping[str, Sequence[Rule]]) -> list[str]:
    """Return all jobs, each behind what it comes after; there is no circle among them."""
    # Not by calls of itself: a chain may be longer than Python lets them nest.
    return list(TopologicalSorter({job: [rule.job for rule in each] for job, each in rules.items()}).static_order())


def without_circles(
    rules: Mapping[str, Sequence[Rule]],
) -> tuple[Mapping[str, Sequence[Rule]], tuple[tuple[str, ...], ...]]:
    """Return the rules without those that make circles, and the circles.

    No program can declare one; three that declare a part of it each can.
    """
    circles: list[tuple[str, ...]] = []
    while True:
        try:
            in_order(rules)
        except CycleError as error:
            circle = error.args[1][1:]  # its first job is its last again; each stands before what comes after it
            circles.append(tuple(circle))
            before = dict(zip(circle, (circle[-1], *circle), strict=False))
            rules = {job: [one for one in each if one.job != before.get(job)] for job, each in rules.items()}
        else:
            return rules, tuple(circles)
