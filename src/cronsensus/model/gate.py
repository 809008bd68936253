"""Dependencies: may an occurrence start, given the verdicts of its upstreams?

The gate is decided each time the occurrence is claimed, from what the store has recorded; so nothing is counted. The
upstreams are part of the job's definition.
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
"""The verdict of a nominal time of a job, as a gate sees it. ``"missing"``: it was decided without an occurrence, or
there is no such job. ``"pruned"``: its occurrence has been deleted, so its verdict is unknown.
"""

_ACCEPTED: Mapping[When, frozenset[Verdict]] = {
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
    """An upstream that an occurrence comes after.

    Attributes:
        job: the upstream's name.
        when: how the upstream must have ended.
        which: which of its nominal times count: the ``"same"``, ``"all_in_period"`` since the dependent's previous
            nominal time, or the ``"latest_before"`` the dependent's (or equal to it).
    """

    job: str
    when: When = "succeeded"
    which: Which = "same"


@dataclass(frozen=True, slots=True)
class After:
    """The upstreams of a job's occurrences.

    Attributes:
        upstreams: a rule for each, by name.
        wait_for: how long an occurrence may wait, from its creation on.
    """

    upstreams: tuple[Rule, ...]
    wait_for: timedelta = WAIT_FOR

    def __post_init__(self) -> None:
        """Sort the rules, so that the order in which they were written does not matter."""
        object.__setattr__(self, "upstreams", tuple(sorted(self.upstreams)))

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON values; the duration in microseconds."""
        rules = [[rule.job, rule.when, rule.which] for rule in self.upstreams]
        return {"wait_for": self.wait_for // timedelta(microseconds=1), "upstreams": rules}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Read what ``to_json`` wrote.

        Raises:
            LookupError, TypeError, ValueError: it was not written by ``to_json``, or by a newer version.
        """
        if data.keys() != {"wait_for", "upstreams"}:
            raise ValueError(f"after={str(dict(data))[:200]}")
        rules = tuple(
            Rule(str(job), _require_word(when, When), _require_word(which, Which))
            for job, when, which in data["upstreams"]
        )
        return cls(rules, timedelta(microseconds=data["wait_for"]))


def _require_word(word: Any, words: Any) -> Any:
    if word not in get_args(words):
        raise ValueError(f"{word!r} is none of {', '.join(get_args(words))}")
    return word


@dataclass(frozen=True, slots=True)
class Gate:
    """The decision about an occurrence.

    Attributes:
        decision: ``"run"``, ``"wait"`` or ``"skip"`` it.
        reason: what it waits for, or why it is skipped.
    """

    decision: Literal["run", "wait", "skip"]
    reason: str = ""


def is_against(rule: Rule, verdict: Verdict) -> bool:
    """Whether this verdict of an upstream means that the occurrence is skipped."""
    return verdict != "wait" and verdict not in _ACCEPTED[rule.when]


def decide_gate(
    rules: Sequence[Rule], verdicts: Mapping[str, Sequence[Verdict]], *, waited: timedelta, wait_for: timedelta
) -> Gate:
    """Decide whether an occurrence runs.

    Args:
        rules: its upstreams.
        verdicts: of each upstream, by name; if there are several nominal times, all must meet the rule.
        waited: time since its creation.
        wait_for: how long it may wait.
    """
    waiting_for: list[str] = []
    for rule in rules:
        of_upstream = verdicts[rule.job]
        bad = next((verdict for verdict in of_upstream if is_against(rule, verdict)), None)
        if bad is not None:
            return Gate("skip", f"{_REASONS[bad]}: {rule.job}")
        if "wait" in of_upstream:
            waiting_for.append(rule.job)
    if not waiting_for:
        return Gate("run")
    if waited > wait_for:
        return Gate("skip", f"{Reason.UPSTREAM_LATE}: {', '.join(waiting_for)}")
    return Gate("wait", f"for {', '.join(waiting_for)}")


def order_jobs(rules: Mapping[str, Sequence[Rule]]) -> list[str]:
    """Return all jobs, upstreams first; there must be no cycle among them."""
    # Not recursive: a chain may be longer than Python's recursion limit.
    return list(
        TopologicalSorter({job: [rule.job for rule in upstreams] for job, upstreams in rules.items()}).static_order()
    )


def without_cycles(
    rules: Mapping[str, Sequence[Rule]],
) -> tuple[Mapping[str, Sequence[Rule]], tuple[tuple[str, ...], ...]]:
    """Return the rules without those that make cycles, and the cycles.

    A single program cannot declare a cycle, but several programs that each declare a part of it can.
    """
    cycles: list[tuple[str, ...]] = []
    while True:
        try:
            order_jobs(rules)
        except CycleError as error:
            cycle = error.args[1][1:]  # the first job is repeated at the end; each is the upstream of the next
            cycles.append(tuple(cycle))
            before = dict(zip(cycle, (cycle[-1], *cycle), strict=False))
            rules = {
                job: [rule for rule in upstreams if rule.job != before.get(job)] for job, upstreams in rules.items()
            }
        else:
            return rules, tuple(cycles)
