"""The audit: compare the ledger with the nominal times of the triggers, independently of the planner.

``audit(store)`` derives every nominal time anew from the triggers that held (``Trigger.next_after`` and what is built
on it) and asks of each: is there exactly one verdict? Then it reads every run and asks: was it allowed? It never
imports ``planning`` or a node, so that it cannot repeat their mistakes. It only reads, and a cluster may work on
while it does.

::

    eras, pauses ──▶ nominal   every nominal time of a job's life, by its triggers
                        │
    verdict ranges ──▶ verdicts   duplicate · missing · stray         one window of nominal times after the other
    occurrences   ──▶     │
    runs, sessions ──▶   runs      duplicate · early · overlap · stale write · stuck      one page after the other
                        ▼
                     report    counts, lateness, findings

What is judged: each job's nominal times in the asked stretch that lie above the job's pruned horizon (below it the
record is gone), and every occurrence that belongs to them or was created in that stretch.

What it cannot see: whether a job's effects happened. A run that was cut off and taken over may have done half of its
work twice; only a count that the jobs keep themselves tells that, which is why the demo and the chaos tests keep one.
"""

from cronsensus.audit.auditor import audit
from cronsensus.audit.report import Finding, JobReport, Lateness, Report

__all__ = ["Finding", "JobReport", "Lateness", "Report", "audit"]
