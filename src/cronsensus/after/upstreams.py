"""Read from the ledger how an occurrence's upstreams ended, and decide its gate."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Generic, NamedTuple, TypeVar, cast, overload

from cronsensus.model.gate import Gate, Rule, Verdict, decide_gate, is_against
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
"""Most nominal times of an upstream that a run may come after; with more of them it is skipped."""
_LEAST_TOGETHER = 4
"""From this many nominal times of an upstream on, they are read together."""
_TIMES_PER_PAGE = 20
"""For this many nominal times, one more page is read of the occurrences in between. If the upstream runs far more often
than that, each time is read alone."""


@dataclass(frozen=True, slots=True)
class UpstreamResults(Part):
    """How this program reads the results of a job's upstreams.

    Attributes:
        types: the type of each result, by the upstream's name.
        functions: of the upstreams that are declared here, by name; a job's own process imports them.
    """

    types: Mapping[str, Any] = field(default_factory=dict)
    functions: Mapping[str, Callable[..., Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Upstream(Generic[T_co]):
    """An occurrence that a run came after.

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
    """The upstream occurrences of a run, by job or by name."""

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
        """Return the occurrence of an upstream; if there are several nominal times, the last one.

        Raises:
            KeyError: the job is no upstream of this run.
        """
        return self.all(job)[-1]

    @overload
    def all(self, job: str) -> tuple[Upstream[Any], ...]: ...
    @overload
    def all(self, job: Callable[..., Coroutine[Any, Any, T]]) -> tuple[Upstream[T], ...]: ...
    @overload
    def all(self, job: Callable[..., T]) -> tuple[Upstream[T], ...]: ...
    def all(self, job: Any) -> tuple[Upstream[Any], ...]:
        """Return all occurrences of an upstream, the earliest first (several with ``"all_in_period"``).

        Raises:
            KeyError: the job is no upstream of this run.
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
"""The upstream occurrences of a run, by job."""


class _TimeState(NamedTuple):
    verdict: Verdict
    occurrence: Occurrence | None


class Gates:
    """Decides the gates of several occurrences; the state of each upstream is read only once."""

    def __init__(
        self, store: Store, running: Collection[tuple[str, datetime]] = (), *, now: datetime | None = None
    ) -> None:
        """Read from ``store``.

        Args:
            store: has the upstreams' occurrences and verdicts.
            running: nominal times of jobs that are known to be active, so they are not read.
            now: the store's clock, a moment ago; ``None``: it is read if anything waits.
        """
        self._store = store
        self._jobs: dict[str, JobView | None] = {}
        self._seen: dict[tuple[str, datetime], _TimeState] = {key: _TimeState("wait", None) for key in running}
        self._now = now

    def _waited_times(self, sleeper: Sleeper) -> timedelta:
        # Not a cached_property: before Python 3.12 all instances share its lock, so the claims of a node would wait
        # for another thread that waits for a store.
        if self._now is None:
            self._now = self._store.now()
        return self._now - sleeper.created_at

    def read_upstreams(self, sleepers: Sequence[tuple[JobSpec, Sleeper]]) -> None:
        """Read many nominal times of an upstream together: many nights may wait for one that does not end."""
        times_by_job: dict[str, set[datetime]] = defaultdict(set)
        for spec, sleeper in sleepers:
            for rule in () if spec.after is None else spec.after.upstreams:
                if rule.which == "same" and sleeper.scheduled_for is not None:
                    times_by_job[rule.job].add(sleeper.scheduled_for)
        for job, times_of_job in times_by_job.items():
            times_of_job -= {time for read_job, time in self._seen if read_job == job}
            if len(times_of_job) >= _LEAST_TOGETHER:
                self._read_together(job, times_of_job)

    def _read_together(self, job: str, times: Collection[datetime]) -> None:
        """Read the occurrences of many nominal times, and the verdicts of those that have none."""
        view = self._read_job(job)  # first: see ``_read_time``
        first, last = min(times), max(times)
        if view is None or not self._read_times(job, first, last, pages=1 + len(times) // _TIMES_PER_PAGE):
            return  # too many others in between: the rest is read one by one
        without_occurrence = [time for time in times if (job, time) not in self._seen]
        ranges = list(every_range(self._store, job, first, last)) if without_occurrence else []
        for time in without_occurrence:
            decided = next((entry for entry in ranges if entry.range.first <= time <= entry.range.last), None)
            self._seen[job, time] = _without_occurrence(view, time, decided)

    def decide_gate(
        self, spec: JobSpec, sleeper: Sleeper, results: UpstreamResults | None = None
    ) -> tuple[Gate, Found]:
        """Decide the gate of an occurrence, and return its upstream occurrences.

        An occurrence without a nominal time has no gate. ``results``: how to read the upstreams' results; ``None``:
        they are not read.
        """
        if sleeper.scheduled_for is None or (after := spec.after) is None:
            return Gate("run"), {}
        times_by_job = {
            rule.job: list(self._times_of_upstream(rule, sleeper.scheduled_for, spec.trigger))
            for rule in after.upstreams
        }
        verdicts: dict[str, Sequence[Verdict]] = {
            job: [state.verdict for _, state in times] or ["missing"] for job, times in times_by_job.items()
        }
        any_waits = any("wait" in of_upstream for of_upstream in verdicts.values())
        waited = self._waited_times(sleeper) if any_waits else timedelta(0)
        decided = decide_gate(after.upstreams, verdicts, waited=waited, wait_for=after.wait_for)
        if decided.decision != "run":
            return decided, {}
        return decided, {
            job: tuple(_make_upstream(job, time, state, results) for time, state in times)
            for job, times in times_by_job.items()
        }

    def last_end(self, spec: JobSpec, sleeper: Sleeper) -> datetime | None:
        """Return when an occurrence's last upstream ended, as ``decide_gate`` has read it."""
        if sleeper.scheduled_for is None or spec.after is None:
            return None
        states = [
            state
            for rule in spec.after.upstreams
            for _, state in self._times_of_upstream(rule, sleeper.scheduled_for, spec.trigger)
        ]
        ends = [state.occurrence.finished_at for state in states if state.occurrence is not None]
        return max((end for end in ends if end is not None), default=None)

    def _times_of_upstream(
        self, rule: Rule, time: datetime, own_trigger: Trigger | None
    ) -> Iterator[tuple[datetime, _TimeState]]:
        """Yield the nominal times of an upstream that count, with the state of each."""
        if rule.which == "same":
            yield time, self._seen_at(rule.job, time)
            return
        view = self._read_job(rule.job)
        trigger = None if view is None else view.spec.trigger
        if trigger is None:
            return
        last_time = last_until(trigger, time)
        if rule.which == "latest_before":
            if last_time is not None:
                yield last_time, self._seen_at(rule.job, last_time)
            return
        previous_own_time = None if own_trigger is None else last_until(own_trigger, time - _MICROSECOND)
        at = trigger.next_after(time - timedelta(days=1) if previous_own_time is None else previous_own_time)
        if at is not None and at < time:
            self._read_times(rule.job, at, time)
        for _ in range(MOST_IN_PERIOD):
            if at is None or at > time:
                return
            state = self._seen_at(rule.job, at)
            yield at, state
            if is_against(rule, state.verdict):
                return  # the gate is decided, and there may be many others
            at = trigger.next_after(at)
        if at is not None and at <= time:
            yield at, _TimeState("missing", None)  # too many: the rest is not read

    def _read_times(self, job: str, since: datetime, until: datetime, *, pages: int = sys.maxsize) -> bool:
        """Read the occurrences of several nominal times, at most ``pages`` pages; return whether these were all."""
        self._read_job(job)  # first: see ``_read_time``
        wanted, after = OccurrenceFilter(job=job, scheduled_from=since, scheduled_until=until), None
        for _ in range(pages):
            page = self._store.occurrences(wanted, after=after, limit=_PAGE)
            for occurrence in page:
                if occurrence.scheduled_for is not None:
                    # Newest first, and the newest counts.
                    self._seen.setdefault((job, occurrence.scheduled_for), _seen_of(occurrence))
            if len(page) < _PAGE:
                return True
            after = page[-1].id
        return False

    def _read_job(self, name: str) -> JobView | None:
        if name not in self._jobs:
            self._jobs[name] = self._store.job(name)
        return self._jobs[name]

    def _seen_at(self, job: str, time: datetime) -> _TimeState:
        if (job, time) not in self._seen:
            self._seen[job, time] = self._read_time(job, time)
        return self._seen[job, time]

    def _read_time(self, job: str, time: datetime) -> _TimeState:
        at_time = OccurrenceFilter(job=job, scheduled_from=time, scheduled_until=time)
        if newest := self._store.occurrences(at_time, limit=1):
            return _seen_of(newest[0])
        # The job first: times up to its watermark are decided by then, so the later reads find them.
        job_was_read = job in self._jobs
        view = self._read_job(job)
        if view is None:
            return _TimeState("missing", None)
        if not job_was_read and (newest := self._store.occurrences(at_time, limit=1)):
            return _seen_of(newest[0])
        return _without_occurrence(
            view, time, next(iter(self._store.ranges(job, since=time, until=time, limit=1)), None)
        )


def _without_occurrence(view: JobView, time: datetime, decided: LedgerRange | None) -> _TimeState:
    """Return the verdict of a nominal time that has no occurrence; ``view`` was read before that was found."""
    if decided is not None:
        return _TimeState("skipped" if decided.range.state is State.SKIPPED else "missed", None)
    if view.horizon is not None and time <= view.horizon:
        return _TimeState("pruned", None)
    if view.watermark >= time or view.retired_at is not None:
        return _TimeState("missing", None)
    if view.paused_at is not None and time >= view.paused_at:
        return _TimeState("skipped", None)
    return _TimeState("wait", None)


def _seen_of(occurrence: Occurrence) -> _TimeState:
    return _TimeState(cast("Verdict", str(occurrence.state)) if occurrence.state.final else "wait", occurrence)


def _make_upstream(job: str, time: datetime, state: _TimeState, results: UpstreamResults | None) -> Upstream[Any]:
    occurrence = state.occurrence
    if occurrence is None:
        return Upstream(job, time, state.verdict)
    types = None if results is None else results.types.get(job)
    result = None if occurrence.state is not State.SUCCEEDED or types is None else types.read_result(occurrence.result)
    return Upstream(job, time, state.verdict, result, occurrence.id)


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
    """Return the last nominal time from ``first`` on, by bisection, because there may be millions."""
    latest, end = first, until
    while (next_time := trigger.next_after(latest)) is not None and next_time <= until:
        middle = latest + (end - latest) / 2
        next_of_middle = trigger.next_after(middle)
        if next_of_middle is None or next_of_middle > until:
            latest, end = next_time, middle
        else:
            latest = next_of_middle
    return latest
