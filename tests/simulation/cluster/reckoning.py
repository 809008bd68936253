"""The end of a simulation: does the ledger say what the judge wrote down, and is nothing left over?"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from cronsensus.audit import audit
from cronsensus.model.job import JobView
from cronsensus.model.ledger import LedgerRange
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter
from cronsensus.model.states import ACTIVE, Origin, State
from tests.simulation.cluster.clocks import SECOND
from tests.simulation.cluster.judge import Judge
from tests.simulation.cluster.judge.books import FUZZ, JobBook, Record
from tests.simulation.cluster.node import SimulatedNode

EVERYTHING = 1_000_000


def reckon(judge: Judge) -> None:
    """Compare the ledger with the judge's books, with the triggers, and with what the audit says."""
    occurrences = judge.stage.store.occurrences(OccurrenceFilter(), limit=EVERYTHING)
    _states(judge, occurrences)
    for name, book in judge.jobs.items():
        job = judge.stage.store.job(name)
        if job is None:
            judge.broken("ledger", f"the job {name} is gone")
        else:
            ranges = judge.stage.store.ranges(name, limit=EVERYTHING)
            mine = [one for one in occurrences if one.job == name]
            _verdicts(judge, job, book, ranges, mine)
    _locks(judge)
    report = audit(judge.stage.store, tolerance=timedelta(seconds=30))
    for finding in report.findings:
        judge.broken("audit", finding.sentence)


def _locks(judge: Judge) -> None:
    """Ask whether the store shows the locks that are held, and no others."""
    shown = {view.name: view.token for view in judge.stage.store.locks()}
    for name, book in judge.locks.items():
        if judge.is_held(name, FUZZ) and shown.get(name) != book.grant.token:
            judge.broken("ledger", f"{name} is held under {book.grant.token}, and the store shows {shown.get(name)}")
    for name, token in shown.items():
        if not judge.is_held(name, -FUZZ):
            judge.broken("ledger", f"{name} is free, and the store shows {token}")


def nothing_is_left(judge: Judge, since: datetime) -> None:
    """Ask whether everything that was due before ``since`` is final, and every nominal time up to then decided."""
    for record in judge.records:
        if not record.pruned and record.state in ACTIVE and record.due_at <= since:
            judge.broken("progress", f"{record} was due at {record.due_at} and is still {record.state}")
    for name, book in judge.jobs.items():
        if book.paused or book.retired:
            continue
        left = book.nominals(book.watermark, since)
        if left:
            judge.broken("progress", f"{name} is not decided from {left[0]}; {len(left)} wait")


def nobody_waits(judge: Judge, nodes: Sequence[SimulatedNode]) -> None:
    """Ask whether something waits although nothing is in its way and a node that could run it has a hand free.

    Asked again and again; what waits at every look for longer than two looks of a node take was overlooked.
    """
    patience = int((1 + 2 * judge.stage.scenario.watch) * SECOND)
    hands = {name for node in nodes if node.free_hands > 0 for name in node.functions}
    waiting = [record for name in judge.jobs if name in hands for record in _unhindered(judge, name)]
    judge.waits = {record: judge.waits.get(record, judge.micros) for record in waiting}
    for record, since in judge.waits.items():
        if judge.micros - since > patience:
            judge.broken("idle hands", f"{record} waits since {since / SECOND:g} with nothing in its way")


def _unhindered(judge: Judge, job: str) -> list[Record]:
    """Return a job's occurrences that could be claimed now."""
    now, policies = judge.now, judge.jobs[job].spec.policies
    running, active = judge.running(job), judge.active(job)
    if policies.concurrency is not None and len(running) >= policies.concurrency:
        return []
    free = policies.overlap == "allow" or not any(record.serial for record in running)
    return [
        record
        for record in judge.jobs[job].records
        if record.state is State.PENDING
        and record.due_at <= now
        and (not record.serial or policies.overlap == "allow" or (free and active[0] is record))
    ]


def _states(judge: Judge, occurrences: list[Occurrence]) -> None:
    ledger = {one.id: one for one in occurrences}
    for record in judge.records:
        one = ledger.pop(record.id, None)
        if record.pruned:
            if one is not None:
                judge.broken("ledger", f"{record} came back after it was pruned")
        elif one is None:
            judge.broken("ledger", f"{record} is lost")
        elif (one.state, one.attempt, one.failures, one.crashes) != (
            record.state, record.attempts, record.failures, record.crashes,
        ):  # fmt: skip
            judge.broken(
                "ledger",
                f"{record} is {one.state} after {one.attempt} attempts, {one.failures} failures, {one.crashes} crashes "
                f"and had to be {record.state} after {record.attempts}, {record.failures}, {record.crashes}",
            )
        elif one.progress != record.progress:
            judge.broken("ledger", f"{record} says that it was at {one.progress} and had said {record.progress}")
        elif (
            record.lines
            and [(attempt, line.text) for _, attempt, line in judge.stage.store.logs(one.id)] != record.lines
        ):
            judge.broken("ledger", f"{record} has other lines than {record.lines}")
    for one in ledger.values():
        judge.broken("ledger", f"{one.job} #{one.id} ({one.origin}, {one.key}) was never created")


def _verdicts(
    judge: Judge, job: JobView, book: JobBook, ranges: list[LedgerRange], occurrences: list[Occurrence]
) -> None:
    """Ask of each nominal time that is decided and not pruned: does exactly one verdict speak of it?"""
    name, begin = job.spec.name, book.eras[0][0]
    after = begin if job.horizon is None else max(begin, job.horizon)
    runs = {one.scheduled_for for one in occurrences if one.origin is Origin.SCHEDULE and one.retry_of is None}
    adopted = {record.scheduled_for for record in book.records if record.adopted}
    nominals = book.nominals(after, book.watermark)
    for nominal in nominals:
        said = sum(one.range.first <= nominal <= one.range.last for one in ranges)
        said += (nominal in runs) + (nominal in adopted)
        if said != 1:
            judge.broken("verdicts", f"{name} has {said} verdicts for {nominal}")
    known = {*nominals, *book.acquired}
    for stray in sorted(time for time in runs if time is not None and time > after and time not in known):
        judge.broken("verdicts", f"{name} ran for {stray}, which is none of its nominal times")
