"""Find jobs that two programs declare in the same namespace with different functions. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from cronsensus.insight.time_words import format_count, shorten
from cronsensus.model.session import SessionView
from cronsensus.once.identity import is_same_function

_NAMED = 3
_LONGEST = 60


@dataclass(frozen=True, slots=True)
class TwiceDeclared:
    """A job that live nodes declare with different functions.

    Attributes:
        declared: each function with a node that declares it.
    """

    job: str
    declared: tuple[tuple[str, str], ...]

    @property
    def sentence(self) -> str:
        """The nodes and their functions, without a full stop."""
        who = " and by ".join(f"{shorten(function, _LONGEST)} on {node}" for function, node in self.declared[:_NAMED])
        return f"{self.job} is declared by {who}: each of its times runs in whichever is first"


def find_twice_declared(nodes: Iterable[SessionView]) -> list[TwiceDeclared]:
    """Return the jobs on whose function these nodes disagree, by name."""
    found: dict[str, list[tuple[str, str]]] = {}
    for node in nodes:
        for job, function in node.declares.items():
            known = found.setdefault(job, [])
            if not any(is_same_function(function, other) for other, _ in known):
                known.append((function, node.node))
    return [TwiceDeclared(job, tuple(of)) for job, of in sorted(found.items()) if len(of) > 1]


def describe_strangers(nodes: Sequence[SessionView]) -> str | None:
    """Describe the first two nodes that each declare a job that the other lacks; ``None``: there are none."""
    for one, other in combinations(nodes, 2):
        ours, theirs = sorted(one.declares.keys() - other.declares), sorted(other.declares.keys() - one.declares)
        if ours and theirs and one.release != other.release:
            return f"{one.node} alone declares {_some(ours)}, {other.node} alone {_some(theirs)}"
    return None


def _some(jobs: Sequence[str]) -> str:
    more = len(jobs) - _NAMED
    return ", ".join(jobs[:_NAMED]) + (f" and {format_count(more, 'more job')}" if more > 0 else "")
