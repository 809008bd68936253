"""The ``Run`` that a test gives to a job function which it calls itself: no node, no store, no record."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from contextvars import Token
from datetime import datetime, timedelta
from typing import Any, NoReturn, Protocol, Self

from cronsensus.after.admission import CAME_AFTER
from cronsensus.after.crossing import CameAfter
from cronsensus.after.upstreams import Upstream, Upstreams
from cronsensus.batching.admission import ADD_ITEMS
from cronsensus.errors import InvalidOption, UnsupportedTransaction
from cronsensus.model.job import JobSpec
from cronsensus.model.occurrence import Claim, check_key, scheduled_key
from cronsensus.model.states import Origin
from cronsensus.node import run as node_run
from cronsensus.run import Run
from cronsensus.timing.clock import SystemClock
from cronsensus.triggers import Trigger
from cronsensus.triggers.zones import instant_in, load_zone

_MICROSECOND = timedelta(microseconds=1)
_IDS = itertools.count(1)


class JobLike(Protocol):
    """What of a job is read."""

    @property
    def name(self) -> str:
        """The job's name."""

    @property
    def spec(self) -> JobSpec:
        """Its definition."""

    @property
    def zone(self) -> str:
        """The name of its time zone."""


class TestRun(Run):
    """A run without a node. It keeps what the job reports, and a test may ask it to stop.

    ``with run:`` makes it what ``current_run()`` returns.

    Attributes:
        progress_reports: what ``progress`` was called with: pairs of done and total.
        added_items: what ``add_items`` was given.
    """

    __test__ = False  # no class of tests, whatever pytest makes of its name

    def __init__(
        self, claim: Claim, *, namespace: str, zone: str, upstreams: dict[str, tuple[Upstream[Any], ...]]
    ) -> None:
        self.progress_reports: list[tuple[float, float]] = []
        self.added_items: list[Any] = []
        self._upstreams = upstreams
        self._outer: list[Token[node_run.BaseRun | None]] = []
        super().__init__(
            claim,
            namespace=namespace,
            zone=zone,
            on_progress=lambda _, done, total: self.progress_reports.append((done, total)),
            extras={ADD_ITEMS: self._keep_items, CAME_AFTER: CameAfter(upstreams)},
        )

    def _keep_items(self, items: Iterable[Any]) -> int:
        before = len(self.added_items)
        self.added_items.extend(items)
        return len(self.added_items) - before

    @property
    def upstream(self) -> Upstreams:
        """What ``Run.for_test`` was given as ``upstream``."""
        return _GivenUpstreams(self._upstreams)

    def lose_lease(self) -> None:
        """Let it be as if another node might be running this by now."""
        self.request_stop("lease lost", lease_lost=True)

    def stop(self, reason: str = "an operator asked") -> None:
        """Let it be as if the run should stop: ``run.cancelled`` is set, and ``run.check()`` raises."""
        self.request_stop(reason)

    def __enter__(self) -> Self:
        self._outer.append(node_run.swap_current_run(self))
        return self

    def __exit__(self, *_: object) -> None:
        node_run.restore_current_run(self._outer.pop())

    def _run_transaction_here(self) -> NoReturn:
        raise UnsupportedTransaction(
            f"this run of {self.job!r} was made by Run.for_test and has no store, so there is nothing with which its "
            "effects could commit; test it on a scheduler with a SQLite file of the test's own"
        )


class _GivenUpstreams(Upstreams):
    """The results that a test gave."""

    def all(self, job: Any) -> tuple[Upstream[Any], ...]:
        """Return what was given for ``job``.

        Raises:
            KeyError: nothing was.
        """
        name = job if isinstance(job, str) else job.name
        if name not in self:
            raise KeyError(f"the test gave no result of {name!r}; write Run.for_test(…, upstream={{{name}: …}})")
        return super().all(job)


def make_test_run(
    job: JobLike,
    *,
    scheduled_for: datetime | str | None = None,
    key: str | None = None,
    attempt: int = 1,
    upstream: Mapping[Any, Any] | None = None,
    namespace: str = "default",
) -> TestRun:
    """Return a run of ``job``; see ``Run.for_test``."""
    if attempt < 1:
        raise InvalidOption(f"attempt={attempt}: the first attempt is 1")
    spec, zone = job.spec, job.zone
    nominal = None if scheduled_for is None else instant_in(scheduled_for, zone, "scheduled_for")
    if nominal is not None and spec.trigger is not None:
        _require_nominal(job.name, spec.trigger, nominal, zone)
    now = nominal or SystemClock().now()
    claim = Claim(
        id=next(_IDS),
        spec=spec,
        key=scheduled_key(nominal) if nominal is not None else check_key("test" if key is None else key),
        origin=Origin.ENQUEUE if nominal is None else Origin.SCHEDULE,
        scheduled_for=nominal,
        due_at=now,
        attempt=attempt,
        token=attempt,
        session="test",
        args=(),
        kwargs={},
        claimed_at=now,
        created_at=now,
    )
    return TestRun(claim, namespace=namespace, zone=zone, upstreams=_read_upstreams(spec, upstream or {}, now))


def _require_nominal(job: str, trigger: Trigger, nominal: datetime, zone: str) -> None:
    """Raise unless ``nominal`` is one of the trigger's times."""
    following = trigger.next_after(nominal - _MICROSECOND)
    if following == nominal:
        return
    hint = "it has none after that" if following is None else f"the next is {_in_zone(following, zone)!r}"
    raise InvalidOption(f"scheduled_for: {_in_zone(nominal, zone)!r} is no time of {job!r} ({trigger}); {hint}")


def _in_zone(instant: datetime, zone: str) -> str:
    return instant.astimezone(load_zone(zone)).isoformat(" ")


def _read_upstreams(spec: JobSpec, given: Mapping[Any, Any], time: datetime) -> dict[str, tuple[Upstream[Any], ...]]:
    """Return what the run came after, by name.

    Raises:
        InvalidOption: the job does not come after one of them.
    """
    results = {job if isinstance(job, str) else job.name: result for job, result in given.items()}
    known = [rule.job for rule in spec.after.upstreams] if spec.after is not None else []
    if wrong := [name for name in results if name not in known]:
        raise InvalidOption(
            f"upstream: {spec.name!r} does not come after {wrong[0]!r}; "
            + (f"it comes after {', '.join(known)}" if known else f"declare it with after=[{wrong[0]}]")
        )
    return {
        name: (Upstream(name, time, "succeeded", result, number),)
        for number, (name, result) in enumerate(results.items(), 1)
    }
