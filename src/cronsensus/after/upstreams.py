"""What became of the jobs that an occurrence comes after: read from the ledger, and put before its gate."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Generic, NamedTuple, TypeVar, cast, overload

from cronsensus.model.gate import Gate, Rule, Verdict, gate, is_against
from cronsensus.model.job import JobSpec, JobView
from cronsensus.model.ledger import LedgerRange
from cronsensus.model.occurrence import Occurrence, OccurrenceFilter
from cronsensus.model.parking import Sleeper
from cronsensus.model.states import State
from cronsensus.node.registered import Part
from cronsensus.stores.base import Store
from cronsensus.stores.pages import every_range
from cronsensus.triggers import Trigger

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
_MICROSECOND = timedelta(microseconds=1)
_FIRST_STEP, _LONGEST_STEP = timedelta(minutes=1), timedelta(days=366 * 5)
_PAGE = 500
MOST_IN_PERIOD = 10_000
"""Nominal times of an upstream that one run may come after; with more of them it is skipped."""
_TOGETHER = 4
"""From so many nominal times of one upstream on, they are read together."""
_SPARSE = 20
"""For each so many of them one page more is read of what lies between: of an upstream that runs far more often, each is
looked at alone."""


@dataclass(frozen=True, slots=True)
class UpstreamResults(Part):
    """How this program reads what the jobs returned that a job of its code comes after.

    Attributes:
        types: how each result is read, by the upstream's name.
        functions: of the upstreams, by name, as far as they are known here; a process of a job's own imports them.
    """

    types: Mapping[str, Any] = field(default_factory=dict)
    functions: Mapping[str, Callable[..., Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Upstream(Generic[T_co]):
    """One occurrence that a run came after.

    Attributes:
        result: what its function returned; ``None`` if it did not succeed.
        run: its number; ``None``: there was no occurrence, only a verdict.
    """

    job: str
    scheduled_for: datetime
    verdict: str
    result: T_co = cast("Any", None)  # noqa: RUF009
    run: int | None = None


class Upstreams:
    """What a run came after, by job or by name."""

    def __init__(self, found: Mapping[str, tuple[Upstream[Any], ...]], *, of_item: bool = False) -> None:
        self._found = found
        self._of_item = of_item

    @overload
    def __getitem__(self, job: str) -> Upstream[Any]: ...
    @overload
    def __getitem__(self, job: Callable[..., Coroutine[Any, Any, T]]) -> Upstream[T]: ...
    @overload
    def __getitem__(self, job: Callable[..., T]) -> Upstream[T]: ...
    def __getitem__(self, job: Any) -> Upstream[Any]:
        """Return the occurrence of an upstream; of several nominal times the last.

        Raises:
            KeyError: this run did not come after it.
        """
        return self.all(job)[-1]

    @overload
    def all(self, job: str) -> tuple[Upstream[Any], ...]: ...
    @overload
    def all(self, job: Callable[..., Coroutine[Any, Any, T]]) -> tuple[Upstream[T], ...]: ...
    @overload
    def all(self, job: Callable[..., T]) -> tuple[Upstream[T], ...]: ...
    def all(self, job: Any) -> tuple[Upstream[Any], ...]:
        """Return the occurrences of an upstream, the earliest first: those ``"all_in_period"``.

        Raises:
            KeyError: as above.
        """
        name = job if isinstance(job, str) else getattr(job, "name", job)
        if not self._found.get(name):
            known = ", ".join(self._found) or (
                "nothing itself, for it is an item: the lister of its batch has run.upstream, and can put into items "
                "what they need of it"
                if self._of_item
                else "nothing, for it was started by hand, without a nominal time. To run it behind its upstreams: "
                "cronsensus jobs trigger FIRST_JOB --downstream, or, of a time that was, cronsensus runs retry ID "
                "--downstream with a run of theirs"
            )
            raise KeyError(f"this run did not come after {name!r}; it came after {known}")
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


Found = Mapping[str, tuple[Upstream[Any], ...]]
"""What a run came after, by job."""


class _Seen(NamedTuple):
    verdict: Verdict
    occurrence: Occurrence | None


class Gates:
    """One look at the gates of several occurrences: what one upstream became is read once."""

    def __init__(
        self, store: Store, running: Collection[tuple[str, datetime]] = (), *, now: datetime | None = None
    ) -> None:
        """Look into ``store``.

        Args:
            store: what knows what became of upstreams.
            running: nominal times of jobs that are known to be active: not asked for.
            now: the store's clock, a moment ago; ``None``: it is asked where anything waits.
        """
        self._store = store
        self._jobs: dict[str, JobView | None] = {}
        self._seen: dict[tuple[str, datetime], _Seen] = {one: _Seen("wait", None) for one in running}
        self._now = now

    def _waited_times(self, one: Sleeper) -> timedelta:
        # Not a cached_property: before Python 3.12 all instances share its lock, so the claims of one node would wait
        # for another thread that asks a store which does not answer.
        if self._now is None:
            self._now = self._store.now()
        return self._now - one.created_at

    def read_upstreams(self, sleepers: Sequence[tuple[JobSpec, Sleeper]]) -> None:
        """Read together what many wait for: they may be all the nights of one upstream that does not end."""
        times: dict[str, set[datetime]] = defaultdict(set)
        for spec, one in sleepers:
            for rule in () if spec.after is None else spec.after.upstreams:
                if rule.which == "same" and one.scheduled_for is not None:
                    times[rule.job].add(one.scheduled_for)
        for job, wanted in times.items():
            wanted -= {time for seen, time in self._seen if seen == job}
            if len(wanted) >= _TOGETHER:
                self._read_together(job, wanted)

    def _read_together(self, job: str, wanted: Collection[datetime]) -> None:
        """Read what there is of many nominal times, and of those that have nothing why."""
        view = self._read_job(job)  # first, as below
        since, until = min(wanted), max(wanted)
        if view is None or not self._read_times(job, since, until, pages=1 + len(wanted) // _SPARSE):
            return  # too much lies between: the rest is looked at one by one
        left = [time for time in wanted if (job, time) not in self._seen]
        ranges = list(every_range(self._store, job, since, until)) if left else []
        for time in left:
            decided = next((one for one in ranges if one.range.first <= time <= one.range.last), None)
            self._seen[job, time] = _without_occurrence(view, time, decided)

    def decide_gate(self, spec: JobSpec, one: Sleeper, results: UpstreamResults | None = None) -> tuple[Gate, Found]:
        """Return what to do with an occurrence of a job, and what it came after.

        One without a nominal time has no gate. ``results``: how what the upstreams returned is read; else it is not.
        """
        if one.scheduled_for is None or (after := spec.after) is None:
            return Gate("run"), {}
        found = {
            rule.job: list(self._times_of_upstream(rule, one.scheduled_for, spec.trigger)) for rule in after.upstreams
        }
        verdicts: dict[str, Sequence[Verdict]] = {
            job: [seen.verdict for _, seen in times] or ["missing"] for job, times in found.items()
        }
        waits = any("wait" in each for each in verdicts.values())
        waited = self._waited_times(one) if waits else timedelta(0)
        decided = gate(after.upstreams, verdicts, waited=waited, wait_for=after.wait_for)
        if decided.decision != "run":
            return decided, {}
        return decided, {
            job: tuple(_make_upstream(job, time, seen, results) for time, seen in times) for job, times in found.items()
        }

    def last_end(self, spec: JobSpec, one: Sleeper) -> datetime | None:
        """Return when the last of what an occurrence comes after ended, as ``decide_gate`` has found it."""
        if one.scheduled_for is None or spec.after is None:
            return None
        times = [
            seen
            for rule in spec.after.upstreams
            for _, seen in self._times_of_upstream(rule, one.scheduled_for, spec.trigger)
        ]
        ends = [seen.occurrence.finished_at for seen in times if seen.occurrence is not None]
        return max((end for end in ends if end is not None), default=None)

    def _times_of_upstream(self, rule: Rule, time: datetime, own: Trigger | None) -> Iterator[tuple[datetime, _Seen]]:
        """Give the nominal times of an upstream that count, with what became of each."""
        if rule.which == "same":
            yield time, self._seen_at(rule.job, time)
            return
        view = self._read_job(rule.job)
        trigger = None if view is None else view.spec.trigger
        if trigger is None:
            return
        last = last_until(trigger, time)
        if rule.which == "latest_before":
            if last is not None:
                yield last, self._seen_at(rule.job, last)
            return
        begin = None if own is None else last_until(own, time - _MICROSECOND)
        at = trigger.next_after(time - timedelta(days=1) if begin is None else begin)
        if at is not None and at < time:
            self._read_times(rule.job, at, time)
        for _ in range(MOST_IN_PERIOD):
            if at is None or at > time:
                return
            seen = self._seen_at(rule.job, at)
            yield at, seen
            if is_against(rule, seen.verdict):
                return  # the others do not matter any more, and may be many
            at = trigger.next_after(at)
        if at is not None and at <= time:
            yield at, _Seen("missing", None)  # nobody has looked at those that are left

    def _read_times(self, job: str, since: datetime, until: datetime, *, pages: int = sys.maxsize) -> bool:
        """Read what there is of several nominal times, at most so many pages; return whether that is all."""
        self._read_job(job)  # first, as below
        where, after = OccurrenceFilter(job=job, scheduled_from=since, scheduled_until=until), None
        for _ in range(pages):
            page = self._store.occurrences(where, after=after, limit=_PAGE)
            for one in page:
                if one.scheduled_for is not None:
                    # Newest first, and it is the newest that counts.
                    self._seen.setdefault((job, one.scheduled_for), _seen_of(one))
            if len(page) < _PAGE:
                return True
            after = page[-1].id
        return False

    def _read_job(self, name: str) -> JobView | None:
        if name not in self._jobs:
            self._jobs[name] = self._store.job(name)
        return self._jobs[name]

    def _seen_at(self, job: str, time: datetime) -> _Seen:
        if (job, time) not in self._seen:
            self._seen[job, time] = self._read_time(job, time)
        return self._seen[job, time]

    def _read_time(self, job: str, time: datetime) -> _Seen:
        at = OccurrenceFilter(job=job, scheduled_from=time, scheduled_until=time)
        if newest := self._store.occurrences(at, limit=1):
            return _seen_of(newest[0])
        # The job before the rest: what its watermark has passed was decided by then, so the reads that follow find it.
        known = job in self._jobs
        view = self._read_job(job)
        if view is None:
            return _Seen("missing", None)
        if not known and (newest := self._store.occurrences(at, limit=1)):
            return _seen_of(newest[0])
        return _without_occurrence(
            view, time, next(iter(self._store.ranges(job, since=time, until=time, limit=1)), None)
        )


def _without_occurrence(view: JobView, time: datetime, decided: LedgerRange | None) -> _Seen:
    """Return what became of a nominal time that has no occurrence; ``view`` was read before that was known."""
    if decided is not None:
        return _Seen("skipped" if decided.range.state is State.SKIPPED else "missed", None)
    if view.horizon is not None and time <= view.horizon:
        return _Seen("pruned", None)
    if view.watermark >= time or view.retired_at is not None:
        return _Seen("missing", None)
    if view.paused_at is not None and time >= view.paused_at:
        return _Seen("skipped", None)
    return _Seen("wait", None)


def _seen_of(one: Occurrence) -> _Seen:
    return _Seen(cast("Verdict", str(one.state)) if one.state.final else "wait", one)


def _make_upstream(job: str, time: datetime, seen: _Seen, results: UpstreamResults | None) -> Upstream[Any]:
    one = seen.occurrence
    if one is None:
        return Upstream(job, time, seen.verdict)
    types = None if results is None else results.types.get(job)
    result = None if one.state is not State.SUCCEEDED or types is None else types.read_result(one.result)
    return Upstream(job, time, seen.verdict, result, one.id)


def last_until(trigger: Trigger, time: datetime) -> datetime | None:
    """Return the last nominal time up to ``time``, included; ``None``: there was none for years."""
    step = _FIRST_STEP
    while step <= _LONGEST_STEP:
        at = trigger.next_after(time - step)
        if at is not None and at <= time:
            return _last_time(trigger, at, time)
        step *= 2
    return None


def _last_time(trigger: Trigger, first: datetime, until: datetime) -> datetime:
    """Return the last of the nominal times from ``first`` on: by halves, for there may be millions."""
    last, end = first, until
    while (following := trigger.next_after(last)) is not None and following <= until:
        middle = last + (end - last) / 2
        found = trigger.next_after(middle)
        if found is None or found > until:
            last, end = following, middle
        else:
            last = found
    return last
