"""Find jobs that two programs declare in the same namespace with different functions. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

from cronsensus.insight.time_words import format_count, shorten
from cronsensus.model.session import SessionView
from cronsensus.once.identity import is_same_function

_MOST_NAMED = 3
_LONGEST_FUNCTION = 60


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
        declarers = " and by ".join(
            f"{shorten(function, _LONGEST_FUNCTION)} on {node}" for function, node in self.declared[:_MOST_NAMED]
        )
        return f"{self.job} is declared by {declarers}: each of its times runs in whichever is first"


def find_twice_declared(nodes: Iterable[SessionView]) -> list[TwiceDeclared]:
    """Return the jobs on whose function these nodes disagree, by name."""
    by_job: dict[str, list[tuple[str, str]]] = {}
    for node in nodes:
        for job, function in node.declares.items():
            declared = by_job.setdefault(job, [])
            if not any(is_same_function(function, known_function) for known_function, _ in declared):
                declared.append((function, node.node))
    return [
        TwiceDeclared(job, tuple(declared_by)) for job, declared_by in sorted(by_job.items()) if len(declared_by) > 1
    ]


def describe_strangers(nodes: Sequence[SessionView]) -> str | None:
    """Describe two nodes that seem to run different programs: each declares a job that the other lacks.

    ``None``: there are no such nodes.
    """
    for first, second in combinations(nodes, 2):
        only_first = sorted(first.declares.keys() - second.declares)
        only_second = sorted(second.declares.keys() - first.declares)
        if only_first and only_second and first.release != second.release:
            return f"{first.node} alone declares {_some(only_first)}, {second.node} alone {_some(only_second)}"
    return None


def _some(jobs: Sequence[str]) -> str:
    hidden = len(jobs) - _MOST_NAMED
    return ", ".join(jobs[:_MOST_NAMED]) + (f" and {format_count(hidden, 'more job')}" if hidden > 0 else "")
