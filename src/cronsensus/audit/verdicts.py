"""Check that each nominal time has exactly one verdict.

The time span is read in windows of ``WINDOW_TIMES`` nominal times, so that only a window is in memory at a time. A
verdict range that is longer than a window is counted by the trigger's own arithmetic instead, so a night of downtime
costs as little as a minute. A window with more rows than ``MOST_ROWS`` (only a damaged ledger has one) is halved until
it fits.

The verdict of a nominal time is the occurrence that the schedule made; or, if there is neither that nor a range, an
occurrence that was backfilled ahead of its time. Backfills and an operator's retries beside it are no second verdict:
they are counted as ``by_hand``, and are a finding only where the ledger's own rule forbids them (a backfill of a time
that had succeeded).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice

from cronsensus.audit.finding_words import Words
from cronsensus.audit.nominal import MICROSECOND, MOST_COUNTED, Nominals, split_at_pauses
from cronsensus.audit.report import JobReport
from cronsensus.audit.rows import Row, succeeded_before, tally
from cronsensus.audit.set_backs import Rewound, SetBacks
from cronsensus.model.job import JobView, Stretch
from cronsensus.model.ledger import LedgerRange
from cronsensus.model.occurrence import OccurrenceFilter
from cronsensus.model.states import Origin, State
from cronsensus.stores.base import Store
from cronsensus.stores.pages import every_occurrence, every_range

WINDOW_TIMES = 1000
MOST_ROWS = 5000
MOST_LONG_RANGES = 10_000
MOST_REREADS = 5
"""Most repeats of a read while the running cluster changes the rows."""


@dataclass(slots=True)
class _Gap:
    first: datetime
    last: datetime
    count: int


class Verdicts:
    """Judges a job's nominal times in (after, until]."""

    def __init__(
        self,
        store: Store,
        job: JobView,
        nominals: Nominals,
        report: JobReport,
        *,
        pauses: Sequence[Stretch],
        set_backs: SetBacks,
    ) -> None:
        self._store = store
        self._job = job
        self._name = job.spec.name
        self._nominals = nominals
        self._pauses = list(pauses)
        self._set_backs = set_backs
        self._report = report
        self._rewound = Rewound(store, job.spec.name)
        self._words = Words(self._name)
        self._gap: _Gap | None = None

    def judge(self, after: datetime, until: datetime, *, late: datetime) -> None:
        """Judge (after, until]. Times above the watermark may be undecided, unless they are as old as ``late``."""
        position = after
        for _ in range(MOST_REREADS):
            watermark = self._job.watermark
            decided = max(position, min(until, watermark))
            self._decided(position, decided)
            position = decided
            undecided = self._undecided(position, until, late)
            reread = self._store.job(self._name) or self._job
            # Nodes go on during the audit: an undecided time may have its verdict by now.
            if undecided.missing == 0 or reread.watermark == watermark:
                break
            self._job = reread
        self._close_gap()
        undecided.add_to(self._report)
        for row in (stray for stray in undecided.strays if not self._rewound.covers(stray.at)):
            self._report.add(self._words.stray(row))
        if undecided.missing and undecided.first is not None:
            self._report.add(self._words.undecided(undecided.first, undecided.missing, self._job.watermark))

    # --- decided: at or below the watermark -----------------------------------------------------------------------

    def _decided(self, after: datetime, until: datetime) -> None:
        if after >= until:
            return
        position = covered_until = after
        for long in self._look_at_ranges(after, until):
            begin, end = max(long.range.first - MICROSECOND, after), min(long.range.last, until)
            if twice := self._number(begin, min(end, covered_until)):  # by another long range
                self._report.add(
                    self._words.two_ranges(begin + MICROSECOND, min(end, covered_until), twice, long.range)
                )
            self._walk(position, begin)
            self._long(long, max(begin, position), end)
            position = covered_until = max(position, end)
        self._walk(position, until)

    def _look_at_ranges(self, after: datetime, until: datetime) -> list[LedgerRange]:
        """Check the ends and the count of every range; return the long ones by time."""
        longs: list[LedgerRange] = []
        for ledger_range in self._ranges(after, until):
            verdict = ledger_range.range
            if (verdict.count is None or verdict.count > WINDOW_TIMES) and len(longs) < MOST_LONG_RANGES:
                longs.append(ledger_range)
            if verdict.first <= after or verdict.last > until:
                continue
            outside = [at for at in (verdict.first, verdict.last) if not self._nominals.is_nominal(at)]
            if outside:
                self._report.add(self._words.stray_range(outside[0], verdict))
            elif verdict.count is not None:
                count = self._nominals.count_times(verdict.first - MICROSECOND, verdict.last, verdict.count + MOST_ROWS)
                if count != verdict.count:
                    self._report.add(self._words.miscounted(verdict, count))
        return sorted(longs, key=lambda long_range: long_range.range.first)

    def _long(self, long: LedgerRange, after: datetime, until: datetime) -> None:
        """Judge the nominal times that a long range covers, without walking them."""
        if after >= until:
            return
        self._close_gap()
        self._count(long.range.state, self._number(after, until))
        for row in self._rows(after, until):
            self._by_hand(row)
            if not row.scheduled:
                continue
            if self._rewound.covers(row.at):
                continue
            if self._nominals.is_nominal(row.at):
                self._report.add(self._words.two_verdicts(row.at, [row], [long.range]))
            else:
                self._report.add(self._words.stray(row))
        for other in self._ranges(after, until):
            if other.range.count is None or other.range.count > WINDOW_TIMES:
                continue
            begin, end = max(other.range.first, after + MICROSECOND), min(other.range.last, until)
            twice = self._number(begin - MICROSECOND, end)
            if other.id != long.id and twice:
                self._report.add(self._words.two_ranges(begin, end, twice, other.range))

    def _walk(self, after: datetime, until: datetime) -> None:
        """Judge (after, until] window by window."""
        position = after
        while position < until:
            times = self._nominals.list_times(position, until, WINDOW_TIMES)
            end = times[-1] if len(times) == WINDOW_TIMES else until
            ledger_part = self._read(position, end)
            while ledger_part is None:
                end = position + max((end - position) // 2, MICROSECOND)
                ledger_part = self._read(position, end)
            self._window(times[: bisect_right(times, end)], *ledger_part)
            position = end

    def _read(self, after: datetime, until: datetime) -> tuple[list[Row], list[LedgerRange]] | None:
        """Return what the ledger holds for (after, until]; ``None``: more than is kept in memory."""
        rows = list(islice(self._rows(after, until), MOST_ROWS + 1))
        ranges = list(islice(self._ranges(after, until), MOST_ROWS + 1))
        if max(len(rows), len(ranges)) > MOST_ROWS and until - after > MICROSECOND:
            return None
        return rows, ranges

    def _window(self, times: list[datetime], rows: list[Row], ranges: list[LedgerRange]) -> None:
        by_time: dict[datetime, list[Row]] = defaultdict(list)
        for row in rows:
            by_time[row.at].append(row)
        covers: dict[int, list[LedgerRange]] = defaultdict(list)
        for ledger_range in ranges:
            for index in range(
                bisect_left(times, ledger_range.range.first), bisect_right(times, ledger_range.range.last)
            ):
                covers[index].append(ledger_range)
        for index, at in enumerate(times):
            self._nominal(at, by_time.pop(at, []), covers.get(index, []))
        for at in sorted(by_time):
            scheduled = [row for row in by_time[at] if row.scheduled]
            if scheduled and self._nominals.named_elsewhere(at):
                self._nominal(at, by_time[at], [])
                continue
            for row in by_time[at]:
                self._by_hand(row)
                if row.scheduled and not self._rewound.covers(at):
                    self._report.add(self._words.stray(row))

    def _nominal(self, at: datetime, rows: list[Row], ranges: list[LedgerRange]) -> None:
        """Judge a nominal time."""
        scheduled = [row for row in rows if row.scheduled]
        ahead = [row for row in rows if row.origin is Origin.BACKFILL and row.under_its_key]
        verdicts = scheduled or ([] if ranges else ahead)
        for row in rows:
            if row not in verdicts:
                self._by_hand(row)
        if scheduled and ranges and self._rewound.covers(at):
            ranges = []
        if len(scheduled) + len(ranges) > 1:
            self._report.add(self._words.two_verdicts(at, scheduled, [ledger_range.range for ledger_range in ranges]))
        for row in rows:
            if row.origin is Origin.BACKFILL and (succeeded := succeeded_before(row, rows)) is not None:
                self._report.add(self._words.backfilled_again(at, succeeded.id, row.id))
        for row in scheduled[:1]:
            if not self._nominals.named_elsewhere(at):
                self._made_while_paused(at, row)
        if verdicts:
            self._close_gap()
            self._report.ran += any(row.started for row in verdicts)
            self._count(verdicts[0].state, 1)
        elif ranges:
            self._close_gap()
            self._count(ranges[0].range.state, 1)
        else:
            self._count(State.MISSED, 1)
            if self._gap is None:
                self._gap = _Gap(at, at, 0)
            self._gap.last = at
            self._gap.count += 1

    def _made_while_paused(self, at: datetime, row: Row) -> None:
        for pause in self._pauses:
            after_its_start = pause.start <= at and pause.start < row.created_at
            if after_its_start and (pause.end is None or max(at, row.created_at) <= pause.end):
                finding = self._words.paused(at, row.id)
                if self._set_backs.may_have_swapped(pause.start, row.created_at):
                    self._report.leave_open(finding)
                else:
                    self._report.add(finding)
                return

    def _close_gap(self) -> None:
        """Report neighbouring nominal times without a verdict as a single finding."""
        gap, self._gap = self._gap, None
        if gap is None:
            return
        reread = self._store.job(self._name)
        horizon = None if reread is None else reread.horizon
        if horizon is not None and gap.first <= horizon:
            # Pruned during the audit: the record is gone.
            pruned = self._number(gap.first - MICROSECOND, min(gap.last, horizon))
            self._report.expected -= pruned
            self._report.missed -= pruned
            gap.count -= pruned
            later = self._nominals.next_after(horizon)
            if gap.count <= 0 or later is None:
                return
            gap.first = later
        self._report.add(self._words.missing(gap.first, gap.last, gap.count, self._job.watermark))

    # --- undecided: above the watermark ---------------------------------------------------------------------------

    def _undecided(self, after: datetime, until: datetime, late: datetime) -> _Undecided:
        undecided = _Undecided()
        paused_now = self._job.paused_at is not None
        for begin, end, paused in split_at_pauses(after, until, self._pauses):
            if paused:
                undecided.skipped += self._number(begin, end) - self._stand_ahead(begin, end, undecided)
                continue
            undecided_until = begin if paused_now else max(begin, min(end, late))
            missing = self._number(begin, undecided_until) - self._stand_ahead(begin, undecided_until, undecided)
            if missing > 0:
                first = self._nominals.next_after(begin)
                undecided.first = undecided.first or first
                undecided.missing += missing
            undecided.pending += max(
                0, self._number(undecided_until, end) - self._stand_ahead(undecided_until, end, undecided)
            )
        return undecided

    def _stand_ahead(self, after: datetime, until: datetime, undecided: _Undecided) -> int:
        """Count the nominal times in (after, until] that already have an occurrence: acquired or backfilled by name."""
        if after >= until:
            return 0
        number = 0
        for row in self._rows(after, until):
            if not self._nominals.is_nominal(row.at):
                if row.scheduled and not self._nominals.named_elsewhere(row.at) and len(undecided.strays) < MOST_ROWS:
                    undecided.strays.append(row)
            elif row.under_its_key and (row.scheduled or row.origin is Origin.BACKFILL):
                number += 1
                undecided.ahead[row.state] += 1
                undecided.ran += row.started
        return number

    # --- counting and reading -------------------------------------------------------------------------------------

    def _count(self, state: State, number: int) -> None:
        tally(self._report, state, number)

    def _by_hand(self, row: Row) -> None:
        self._report.by_hand += not row.scheduled

    def _number(self, after: datetime, until: datetime) -> int:
        if after >= until:
            return 0
        number = self._nominals.count_times(after, until)
        if number is None:
            self._report.notes.append(
                f"over {MOST_COUNTED:,} nominal times in one stretch; counted as {MOST_COUNTED:,}"
            )
            return MOST_COUNTED
        return number

    def _rows(self, after: datetime, until: datetime) -> Iterator[Row]:
        in_span = OccurrenceFilter(job=self._name, scheduled_from=after + MICROSECOND, scheduled_until=until)
        for occurrence in every_occurrence(self._store, in_span):
            if occurrence.scheduled_for is not None:
                yield Row.of(occurrence, occurrence.scheduled_for)

    def _ranges(self, after: datetime, until: datetime) -> Iterator[LedgerRange]:
        return every_range(self._store, self._name, after + MICROSECOND, until)


class _Undecided:
    """The counts above the watermark; added to the report once they are certain."""

    def __init__(self) -> None:
        self.skipped = self.missing = self.pending = self.ran = 0
        self.first: datetime | None = None
        self.ahead: Counter[State] = Counter()
        self.strays: list[Row] = []

    def add_to(self, report: JobReport) -> None:
        """Add these counts to the report."""
        tally(report, State.SKIPPED, self.skipped)
        tally(report, State.MISSED, self.missing)
        tally(report, State.PENDING, self.pending)
        report.ran += self.ran
        for state, number in self.ahead.items():
            tally(report, state, number)
