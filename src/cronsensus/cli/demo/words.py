"""The demo's closing lines: what was proven, and what to type next."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from cronsensus.cli.demo.closing import Closing
from cronsensus.cli.demo.lanes import label
from cronsensus.cli.output import Cell, Output

NEXT = """\
  from cronsensus import Scheduler, every

  scheduler = Scheduler("sqlite:///cronsensus.db")

  @scheduler.job(every("5s"))
  def hello():
      print("hello")
"""


def tell(output: Output, closing: Closing) -> None:
    """Print the verdict in plain words."""
    report, trace, done = closing.report, closing.trace, closing.performance
    output.line()
    output.heading("What the audit found")
    for name, value, words in (
        ("expected", report.expected, "nominal times, derived anew from the triggers"),
        ("ran", report.ran, "of them, each by exactly one node"),
        ("duplicates", closing.duplicates, "recorded or run twice"),
        ("missed", report.missed, "without a run"),
        ("takeovers", report.takeovers, "runs that were cut off, and run elsewhere"),
    ):
        bad = name in {"duplicates", "missed"} and value > 0
        style = "bold red" if bad else "bold green" if name in {"duplicates", "missed"} else "bold"
        output.line(Cell(f"  {name:<11}{value:>5}  {words}", "" if style == "bold" else style))
    for line in _takeovers(closing):
        output.line(Cell(f"  {'':<11}{'':>5}  {line}", "yellow"))
    output.line()
    output.line(
        f"  The runs kept their own count in a file outside of the store: {trace.started} starts,\n"
        f"  {trace.ended} ends, {len(trace.cut)} cut off by kill -9"
        + (". It agrees with the ledger." if closing.ok else ".")
    )
    if closing.comparison.unrecorded:
        number = len(closing.comparison.unrecorded)
        output.line(
            f"  {number} of them ended just before the kill, unrecorded, and ran once more:\n"
            "  at least once is all that can be had without a transaction."
        )
    output.line()
    if not closing.ok:
        output.line(Cell("Not as promised:", "bold red"))
        for problem in closing.problems[:20]:
            output.line(Cell(f"  {problem}", "red"))
        output.line("  Keep everything for a look: cronsensus demo --keep")
        return
    killed = done.killed[-1]
    output.line(
        Cell(f"{killed} was killed while it worked: nothing was lost, nothing was recorded twice.", "bold green")
    )
    output.line()
    output.heading("Next: save this as jobs.py")
    output.line()
    output.line(Cell(NEXT, "cyan"))
    output.heading("and start it in two terminals")
    output.line()
    output.line(Cell(f"  {program()} run jobs:scheduler", "cyan"))


def program() -> str:
    """Return how to type this program here: its name, or its path where the shell would not find it."""
    here = Path(sys.executable).with_name("cronsensus")
    found = shutil.which("cronsensus")
    if found is not None or not here.exists():
        return "cronsensus"
    return str(here.relative_to(Path.cwd())) if here.is_relative_to(Path.cwd()) else str(here)


def _takeovers(closing: Closing) -> list[str]:
    parts = []
    for cut in closing.performance.cut:
        taken = closing.performance.taken_by.get(cut.occurrence)
        seconds = closing.performance.takeovers.get(cut.occurrence)
        if taken is not None and seconds is not None:
            parts.append(f"{cut.job} {label(cut)}: from {cut.node} to {taken.node} in {seconds:.2f} s")
    return parts
