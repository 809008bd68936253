"""What all rules stand on: the books, the clock, and how a violation is named."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from cronsensus.model.states import ACTIVE, State
from cronsensus.stores.values import MOST_AHEAD
from tests.simulation.cluster.judge.books import JobBook, Record, SessionBook
from tests.simulation.cluster.stage import Stage


@dataclass(frozen=True, slots=True)
class Seen:
    """A verb that was carried out."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    answer: Any


class Bench:
    """The books, shared by all rules."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.violations: list[str] = []
        self.jobs: dict[str, JobBook] = {}
        self.records: list[Record] = []
        self.by_key: dict[tuple[str, str], Record] = {}
        self.by_id: dict[int, Record] = {}
        self.retries: dict[int, int] = {}
        self.sessions: dict[str, SessionBook] = {}
        self.expiring: list[tuple[datetime, Record]] = []
        """Those that are too late some day, if they never start."""
        self.waits: dict[Record, int] = {}
        """Those with nothing in their way, and since when they were seen so."""
        self.asked: list[Record] = []
        """Those that were asked to stop while they ran."""

    def broken(self, rule: str, what: str) -> None:
        """Name a violation."""
        self.violations.append(f"{rule}: {what}")
        self.stage.trace.add(self.stage.clock.micros, "judge", "VIOLATION", rule, what)

    @property
    def now(self) -> datetime:
        """Return the store's clock."""
        return self.stage.clock.now()

    @property
    def micros(self) -> int:
        """Return true time."""
        return self.stage.clock.micros

    def active(self, job: str) -> list[Record]:
        """Return a job's occurrences that its overlap policy is for and that are not over."""
        return [record for record in self.jobs[job].records if record.serial and record.state in ACTIVE]

    def running(self, job: str) -> list[Record]:
        """Return a job's occurrences that run."""
        return [record for record in self.jobs[job].records if record.state is State.RUNNING]

    def go_back(self, record: Record) -> None:
        """Put a running occurrence back; what was asked to stop does not come back."""
        record.state = State.CANCELLED if record.cancel else State.PENDING
        record.due_at = min(record.due_at, self.now + MOST_AHEAD)

    def _cut_off(self, record: Record, *, crashed: bool) -> None:
        """Let a run go the way of one that was cut off after it had begun."""
        policies = self.jobs[record.job].spec.policies
        record.crashes += crashed
        self.go_back(record)
        given_up = crashed and record.crashes >= policies.max_crashes
        if not record.cancel and (policies.on_crash == "fail" or given_up):
            record.state = State.FAILED
        if record.state is State.PENDING:
            record.progress = None
            record.begun.clear()  # the definition that held when it was cut off lets it be repeated

    def ask_to_cancel(self, record: Record) -> None:
        """Cancel a pending occurrence, or note that a running one is asked to stop."""
        if record.state is State.PENDING:
            record.state = State.CANCELLED
        elif record.state is State.RUNNING:
            record.cancel = True
            self.asked.append(record)
