"""The demo's closing lines: what was proven, and what to type next. Floor 7."""

from __future__ import annotations

from cronsensus.cli.demo.closing import Closing
from cronsensus.cli.demo.lanes import label
from cronsensus.cli.output import Cell, Output

NEXT = """\
  from cronsensus import Scheduler, every            # jobs.py

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
        ("duplicates", report.duplicates + len(trace.twice), "recorded or run twice"),
        ("missed", report.missed, "without a run"),
        ("takeovers", report.takeovers, _takeovers(closing)),
    ):
        bad = name in {"duplicates", "missed"} and value > 0
        style = "bold red" if bad else "bold green" if name in {"duplicates", "missed"} else "bold"
        output.line(Cell(f"  {name:<11}{value:>5}  {words}", "" if style == "bold" else style))
    output.line(
        f"  The runs kept their own count in a file outside of the store: {trace.started} starts,\n"
        f"  {trace.ended} ends, {len(trace.cut)} cut off by kill -9"
        + (", none ended twice. It agrees with the ledger." if closing.ok else ".")
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
    output.heading("Next: write this, and start it in two terminals with  cronsensus run jobs:scheduler")
    output.line()
    output.line(Cell(NEXT, "cyan"))


def _takeovers(closing: Closing) -> str:
    parts = []
    for cut in closing.performance.cut:
        taken = closing.performance.taken_by.get(cut.occurrence)
        seconds = closing.performance.takeovers.get(cut.occurrence)
        if taken is not None and seconds is not None:
            parts.append(f"{cut.job} {label(cut)}: {cut.node} to {taken.node} in {seconds:.2f} s")
    return "; ".join(parts) or "runs of a dead node that another took over"
