"""Compare the ledger with the file that the runs wrote themselves. It judges the demo and the chaos tests."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from cronsensus.cli.demo.trace import Line
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter, RunView
from cronsensus.model.states import State
from cronsensus.stores.base import Store

PAGE = 500


@dataclass(slots=True)
class Comparison:
    """The differences.

    Attributes:
        problems: sentences; without any, the two agree.
        twice: occurrences that ended more than once under results that were recorded.
        unrecorded: ends without a result in the ledger, because the run had been taken over by then, or its node was
            killed between the end and the record. The work may have been done twice; the record was not. That is what
            "at least once" means, and what tokens are for.
    """

    problems: tuple[str, ...] = ()
    twice: tuple[tuple[str, str], ...] = ()
    unrecorded: tuple[Line, ...] = ()


def compare_ledger(store: Store, lines: list[Line]) -> Comparison:
    """Compare the ledger with a trace, occurrence by occurrence, as they are now: stop the nodes first."""
    comparison = Comparison()
    ends: dict[tuple[str, str], list[Line]] = {line.occurrence: [] for line in lines}
    for line in lines:
        if line.event == "end":
            ends[line.occurrence].append(line)
    after: int | None = None
    while page := store.occurrences(OccurrenceFilter(), after=after, limit=PAGE, newest_first=False):
        runs_of: dict[int, dict[int, RunView]] = defaultdict(dict)
        for run in store.runs(*(occurrence.id for occurrence in page)):
            runs_of[run.occurrence][run.token] = run
        for occurrence in page:
            mine = (occurrence.job, occurrence.key)
            if mine in ends:  # a trace may leave out jobs, and what came after a time
                _compare_one(comparison, occurrence, runs_of[occurrence.id], ends.pop(mine))
        after = page[-1].id
    comparison.problems += tuple(f"{job} {key} ran, and the ledger does not know it" for job, key in sorted(ends))
    return comparison


def _compare_one(comparison: Comparison, occurrence: Occurrence, runs: dict[int, RunView], ends: list[Line]) -> None:
    recorded = [line for line in ends if line.token in runs and runs[line.token].end == "succeeded"]
    comparison.unrecorded += tuple(line for line in ends if line not in recorded)
    if len(recorded) > 1:
        comparison.twice += ((occurrence.job, occurrence.key),)
    unknown = [line.token for line in ends if line.token not in runs]
    if unknown:
        problem = f"ended under token {unknown[0]}, which the ledger never gave out"
    elif len(recorded) > 1:
        problem = f"was recorded {len(recorded)} times"
    elif occurrence.state is State.SUCCEEDED and not recorded:
        problem = "is succeeded in the ledger, and never ended in the runs' own file"
    elif occurrence.state is State.SUCCEEDED and recorded[0].token != occurrence.token:
        problem = f"ended under token {recorded[0].token}, the ledger has {occurrence.token}"
    else:
        return
    comparison.problems += (f"{occurrence.job} {occurrence.key} {problem}",)
