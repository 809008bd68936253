"""The demo's verdict: the audit of the ledger, and the runs' own file beside it; then what to type next.

The two counts are independent: the audit derives from the triggers what had to happen, and reads the ledger; the trace
is what the runs themselves wrote. They have to agree.
"""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from cronsensus.audit import audit
from cronsensus.cli.demo.comparison import compare_ledger
from cronsensus.cli.demo.screen import PICTURES, SHRINK, occurrence_label
from cronsensus.cli.demo.stage import Stage
from cronsensus.cli.demo.trace import count_lines
from cronsensus.cli.output import Cell, Output
from cronsensus.insight.batches import counts_of, items_text
from cronsensus.model.states import State
from cronsensus.stores.base import Store

NEXT_STEPS = """
  from cronsensus import Scheduler, every

  scheduler = Scheduler("sqlite:///cronsensus.db")

  @scheduler.job(every("5s"))
  def hello():
      print("hello")
"""


class Verdict:
    """What was found on a stage after its nodes were stopped.

    Attributes:
        problems: sentences; none: everything is as promised.
    """

    def __init__(self, store: Store, stage: Stage) -> None:
        self._cuts, self._killed = stage.lanes.cuts.values(), stage.killed
        self._report = report = audit(store, until=stage.until)
        self._count, self._compared = count_lines(stage.lines), compare_ledger(store, stage.lines)
        self._duplicates = report.duplicates + len(self._compared.twice)
        self.problems = [finding.sentence for finding in report.findings]
        if report.expected == 0:
            self.problems.append("nothing was due; play for longer")
        if report.succeeded != report.expected:
            self.problems.append(f"{report.expected} nominal times were expected, {report.succeeded} succeeded")
        self.problems += self._compared.problems
        if not self._cuts:
            self.problems.append("no node could be killed in the middle of a run; play for longer")
        lost = [occurrence_label(cut.line) for cut in self._cuts if cut.takeover is None]
        self.problems += [f"{what} was cut off, and no node started it again" for what in lost]
        self._batch = None if stage.batch is None else store.children([stage.batch], limit=2 * PICTURES)[stage.batch]
        self._nodes = Counter(line.node for line in stage.lines if line.job == SHRINK and line.event == "end")
        if self._batch is not None and (self._batch.state is not State.SUCCEEDED or self._batch.succeeded != PICTURES):
            self.problems.append(f"the batch is {self._batch.state}: {items_text(self._batch)}")
        if not stage.in_order:
            self.problems.append("a node did not leave when it was asked to, and had to be killed")

    def to_json(self, **played: int) -> dict[str, Any]:
        """Return plain JSON values; ``played``: with which options."""
        report, counted = self._report, self._count
        slowest = max((cut.seconds for cut in self._cuts if cut.takeover), default=None)
        return {
            **{name: getattr(report, name) for name in ("expected", "ran", "succeeded", "missed", "takeovers")},
            "duplicates": self._duplicates,
            "takeover_seconds": None if slowest is None else round(slowest, 3),
            "runs_cut": len(self._cuts),
            "lateness": report.lateness.to_json(),
            "trace": {
                "started": counted.started,
                "ended": counted.ended,
                "cut": len(counted.cut),
                "unrecorded": len(self._compared.unrecorded),
            },
            "batch": None if self._batch is None else {**counts_of(self._batch), "nodes": dict(self._nodes)},
            **played,
            "problems": self.problems,
            "ok": not self.problems,
        }

    def print_verdict(self, output: Output) -> None:
        """Print it in plain words."""
        report, counted = self._report, self._count
        output.line()
        output.heading("What the audit found")
        for name, value, words, style in (
            ("expected", report.expected, "nominal times, derived anew from the triggers", ""),
            ("ran", report.ran, "of them, each by exactly one node", ""),
            ("duplicates", self._duplicates, "recorded or run twice", "bold red" if self._duplicates else "bold green"),
            ("missed", report.missed, "without a run", "bold red" if report.missed else "bold green"),
            ("takeovers", report.takeovers, "runs that were cut off, and run elsewhere", ""),
        ):
            output.line(Cell(f"  {name:<11}{value:>5}  {words}", style))
        for cut in self._cuts:
            if cut.takeover is not None:
                way = f"from {cut.line.node} to {cut.takeover.node} in {cut.seconds:.2f} s"
                output.line(Cell(f"{'':<18}  {occurrence_label(cut.line)}: {way}", "yellow"))
        if self._batch is not None:
            shares = ", ".join(f"{node} {count}" for node, count in sorted(self._nodes.items()))
            output.line(f"  {'batch':<11}{self._batch.succeeded:>5}  pictures shrunk, each once: {shares}")
        agrees = "." if self.problems else ". It agrees with the ledger."
        output.line(
            f"\n  The runs kept their own count in a file outside of the store: {counted.started} starts,\n"
            f"  {counted.ended} ends, {len(counted.cut)} cut off by kill -9{agrees}"
        )
        if unrecorded := len(self._compared.unrecorded):
            output.line(
                f"  {unrecorded} of them ended just before the kill, unrecorded, and ran once more:\n"
                "  at least once is all that can be had without a transaction."
            )
        output.line()
        if self.problems:
            output.line(Cell("Not as promised:", "bold red"))
            output.line(Cell("\n".join(f"  {problem}" for problem in self.problems[:20]), "red"))
            output.line("  Keep everything for a look: cronsensus demo --keep")
            return
        sentence = "was killed while it worked: nothing was lost, nothing was recorded twice."
        output.line(Cell(f"{self._killed} {sentence}\n", "bold green"))
        output.heading("Next: save this as jobs.py")
        output.line(Cell(NEXT_STEPS, "cyan"))
        output.heading("and start it in two terminals\n")
        output.line(Cell(f"  {shown_program()} run jobs:scheduler", "cyan"))


def shown_program() -> str:
    """Return how to type this program here: its name, or its path where the shell would not find it."""
    here = Path(sys.executable).with_name("cronsensus")
    if shutil.which("cronsensus") is not None or not here.exists():
        return "cronsensus"
    return str(here.relative_to(Path.cwd())) if here.is_relative_to(Path.cwd()) else str(here)
