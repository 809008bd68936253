"""The ledger beside the runs' own file: do they say the same? Judges the demo and the chaos tests."""

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
    """What differs.

    Attributes:
        problems: sentences; none: the two agree.
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
    found = Comparison()
    ends: dict[tuple[str, str], list[Line]] = {line.occurrence: [] for line in lines}
    for line in lines:
        if line.event == "end":
            ends[line.occurrence].append(line)
    after: int | None = None
    while page := store.occurrences(OccurrenceFilter(), after=after, limit=PAGE, newest_first=False):
        runs_of: dict[int, dict[int, RunView]] = defaultdict(dict)
        for run in store.runs(*(one.id for one in page)):
            runs_of[run.occurrence][run.token] = run
        for one in page:
            mine = (one.job, one.key)
            if mine in ends:  # a trace may leave out jobs, and what came after a time
                _compare_one(found, one, runs_of[one.id], ends.pop(mine))
        after = page[-1].id
    found.problems += tuple(f"{job} {key} ran, and the ledger does not know it" for job, key in sorted(ends))
    return found


def _compare_one(found: Comparison, one: Occurrence, runs: dict[int, RunView], ends: list[Line]) -> None:
    recorded = [line for line in ends if line.token in runs and runs[line.token].end == "succeeded"]
    found.unrecorded += tuple(line for line in ends if line not in recorded)
    if len(recorded) > 1:
        found.twice += ((one.job, one.key),)
    strange = [line.token for line in ends if line.token not in runs]
    if strange:
        problem = f"ended under token {strange[0]}, which the ledger never gave out"
    elif len(recorded) > 1:
        problem = f"was recorded {len(recorded)} times"
    elif one.state is State.SUCCEEDED and not recorded:
        problem = "is succeeded in the ledger, and never ended in the runs' own file"
    elif one.state is State.SUCCEEDED and recorded[0].token != one.token:
        problem = f"ended under token {recorded[0].token}, the ledger has {one.token}"
    else:
        return
    found.problems += (f"{one.job} {one.key} {problem}",)
