"""A release that lacks a job: its waiting work is kept and told of, and another application is noticed."""

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from cronsensus import Scheduler
from cronsensus.model.occurrence import OccurrenceFilter
from cronsensus.model.states import State
from cronsensus.stores.memory import MemoryStore
from cronsensus.stores.values import DefineResult
from cronsensus.testing.conformance.fixtures import START
from cronsensus.timing.clock import ManualClock

HOUR = timedelta(hours=1)


def release(store: MemoryStore, *names: str, **settings: object) -> None:
    """Declare jobs as a release of an application does when it starts."""
    scheduler = Scheduler(store, **settings)  # type: ignore[arg-type]
    for name in names:
        scheduler.job(name=name)(lambda: None)
    scheduler._lifecycle.declare_jobs(store)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore("memory://", clock=ManualClock(START))


def pending(store: MemoryStore) -> list[str]:
    return [one.job for one in store.occurrences(OccurrenceFilter(states=(State.PENDING,)))]


def test_work_of_a_job_that_a_release_lacks_is_kept_and_told_with_its_number(
    store: MemoryStore, caplog: pytest.LogCaptureFixture
):
    release(store, "mail", "tick")
    scheduler = Scheduler(store)
    for _ in range(3):
        scheduler.enqueue("mail")
    release(store, "tick")
    assert pending(store) == ["mail"] * 3
    [record] = [one for one in caplog.records if one.levelno == logging.WARNING]
    assert "job 'mail' is retired" in record.message
    assert "3 runs of it are waiting, kept for 1d" in record.message
    release(store, "mail", "tick")
    assert pending(store) == ["mail"] * 3
    view = store.job("mail")
    assert view is not None
    assert view.waiting_until is None


def test_a_release_that_lacks_many_jobs_asks_the_store_once_what_waits(
    store: MemoryStore, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    names = [f"mail {number}" for number in range(30)]
    release(store, *names, "tick")
    Scheduler(store).enqueue("mail 7")
    asked: list[str] = []

    def counted(verb: str) -> Callable[..., Any]:
        real = getattr(store, verb)

        def ask(*args: Any, **more: Any) -> Any:
            asked.append(verb)
            return real(*args, **more)

        return ask

    for verb in ("occurrences", "pending_of", "counts"):
        monkeypatch.setattr(store, verb, counted(verb))
    release(store, "tick")
    assert asked == ["pending_of"]
    assert "1 run of it is waiting" in caplog.text
    assert "and 19 more" in caplog.text


def test_work_is_cancelled_at_once_with_retire_after_zero(store: MemoryStore):
    release(store, "mail", "tick")
    Scheduler(store).enqueue("mail")
    release(store, "tick", retire_after=0)
    assert pending(store) == []


@pytest.mark.parametrize(
    ("defined", "warns"),
    [
        (DefineResult(created=("a", "b"), retired=("x", "y", "z")), True),
        (DefineResult(created=("a", "b"), kept=("x", "y", "z")), True),
        (DefineResult(created=("a",), unchanged=("b", "c"), retired=("x",)), False),
        (DefineResult(created=("a", "b")), False),
        (DefineResult(unchanged=("a",), retired=("b", "c", "d", "e", "f", "g")), False),
    ],
)
def test_release_that_shares_no_job_with_the_one_before_is_called_another_application(
    store: MemoryStore, caplog: pytest.LogCaptureFixture, defined: DefineResult, warns: bool
):
    from cronsensus.lifecycle.retirement import warn_of_strangers

    warn_of_strangers("default", defined)
    assert [("give each a namespace of its own" in one.message) for one in caplog.records] == [True] * warns


def test_a_node_that_declares_no_job_says_so_once_at_its_start(
    store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    release(store, "mail")
    caplog.clear()
    scheduler = Scheduler(store)
    scheduler._lifecycle.declare_jobs(store)
    scheduler._lifecycle.declare_jobs(store)
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert "declares no job, so it runs nothing; the store has 1, which other nodes must run" in record.message


def test_a_node_of_which_a_newer_release_has_replaced_all_jobs_says_so_once_at_its_start(
    store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    release(store, "mail")
    newer = Scheduler(store, release="2")
    newer.job(name="post")(lambda: None)
    newer._lifecycle.declare_jobs(store)
    store.open_session(newer._lifecycle._new_session(), lease=HOUR)
    caplog.clear()
    older = Scheduler(store)
    older.job(name="mail")(lambda: None)
    for _ in range(2):
        older._lifecycle.declare_jobs(store)
    said = [one.getMessage() for one in caplog.records if "runs nothing" in one.getMessage()]
    assert len(said) == 1
    assert (
        "no function of the 1 job(s) in namespace 'default', so it runs nothing: it has mail, and they call post"
        in said[0]
    )


def test_a_node_with_functions_for_jobs_that_are_added_later_is_not_said_to_run_nothing(
    store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    scheduler = Scheduler(store)
    scheduler.function(name="report")(lambda: None)
    scheduler._lifecycle.declare_jobs(store)
    assert not caplog.records
